/* cook_toom.c - the matrices of Winograd's convolutions, and the sums that multiply by them.
 *
 * F(m, r) computes m neighbouring outputs of a filter of r taps from n = m + r - 1 inputs with n
 * multiplications, y = A^T ((G g) * (B^T d)). The matrices follow from the points at which the
 * polynomials are evaluated: n - 1 numbers, and infinity. The points chosen are dyadic, so that A
 * and B are exact in f32; they come in pairs of opposite sign, so that half of the sums serve two
 * places; and their error is small: see docs/winograd.md. A tile of two axes is the product of two
 * such transforms.
 *
 * source: Toom, Cook; Lavin and Gray (arXiv:1509.09308)
 */
#include "passes/graph/conv/winograd.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- matrices */

/* The coefficients of the product of (x - point[l]), l != except, in ascending order. */
static void expand_product(const double *point, int npoint, int except, double *coef)
{
    int degree = 0;
    coef[0] = 1;
    for (int l = 0; l < npoint; l++) {
        if (l == except)
            continue;
        coef[degree + 1] = 0;
        for (int i = ++degree; i >= 0; i--)
            coef[i] = (i ? coef[i - 1] : 0) - point[l] * (i < degree ? coef[i] : 0);
    }
}

void transform_make(struct transform *f, int m, int taps)
{
    static const double points[][SIDE_MAX - 1] = {
        {0, 1, -1},
        {0, 0.75, -0.75, 1.5, -1.5},
        {0, 1, -1, 0.5, -0.5, 1.75, -1.75},
        {0, 0.375, -0.375, 0.75, -0.75, 1.25, -1.25, 2.5, -2.5}};
    int n = m + taps - 1, last = n - 1;
    const double *p = points[n / 2 - 2];
    *f = (struct transform){m, taps, n, {n, n, {{0}}}, {n, taps, {{0}}}, {m, n, {{0}}}};
    for (int j = 0; j < last; j++) {
        double norm = 1;
        for (int l = 0; l < last; l++)
            norm *= l == j ? 1 : p[j] - p[l];
        for (int i = 0; i < m; i++)
            f->output.at[i][j] = pow(p[j], i);
        for (int k = 0; k < taps; k++)
            f->weight.at[j][k] = pow(p[j], k) / norm;
        expand_product(p, last, j, f->input.at[j]);
    }
    f->output.at[m - 1][last] = f->weight.at[last][taps - 1] = 1;
    expand_product(p, last, -1, f->input.at[last]);
}

/* The noise of an output: the mean over the m outputs of how A^T amplifies roundings at the places,
 * given the squares of B^T and G; relative to the sum of squares of a direct sum's terms, for
 * independent weights and inputs. */
double transform_noise(const struct transform *f)
{
    double total = 0;
    for (int j = 0; j < f->n; j++) {
        double input = 0, weight = 0, output = 0;
        for (int k = 0; k < f->n; k++)
            input += f->input.at[j][k] * f->input.at[j][k];
        for (int k = 0; k < f->taps; k++)
            weight += f->weight.at[j][k] * f->weight.at[j][k];
        for (int i = 0; i < f->m; i++)
            output += f->output.at[i][j] * f->output.at[i][j];
        total += output * weight * input;
    }
    return total / f->m / f->taps;
}

/* -------------------------------------------------------------------------------- straight sums */

/* The sum of coef[k] * x[k] over the k in `part`; NULL if it is empty. */
static struct uop *sum_of(struct tgc *t, const double *coef, struct uop *const *x, int n,
                          unsigned part)
{
    struct uop *sum = NULL;
    for (int scaled = 0; scaled < 2; scaled++)           /* unscaled ones first */
        for (int k = 0; k < n; k++) {
            if (!(part >> k & 1) || coef[k] == 0 || (fabs(coef[k]) != 1) != (scaled == 1))
                continue;
            if (!sum && coef[k] == 1)
                sum = x[k];
            else if (sum && fabs(coef[k]) == 1)
                sum = uop_binary(t, coef[k] > 0 ? OP_ADD : OP_SUB, sum, x[k]);
            else {
                struct uop *p = uop_binary(t, OP_MUL, x[k], uop_constf(t, x[k]->dtype, coef[k]));
                sum = sum ? uop_binary(t, OP_ADD, sum, p) : p;
            }
        }
    return sum;
}

/* Whether two lines agree up to signs, and at which places with equal signs (`same`) or not
 * (`opposite`). */
static bool lines_mirror(const double *a, const double *b, int n, int step, unsigned *same,
                         unsigned *opposite)
{
    *same = *opposite = 0;
    for (int k = 0; k < n; k++) {
        double x = a[k * step], y = b[k * step];
        if (x == 0 && y == 0)
            continue;
        if (fabs(x) != fabs(y))
            return false;
        *(x == y ? same : opposite) |= 1u << k;
    }
    return *same && *opposite;
}

/* out = a * x. Columns that mirror each other are added and subtracted first; rows that mirror each
 * other share their two halves. */
static void multiply(struct tgc *t, const struct matrix *a, struct uop *const *x, struct uop **out)
{
    struct matrix b = *a;
    struct uop *in[SIDE_MAX];
    unsigned same, opposite;
    ARRAY_COPY(in, x, a->ncol);
    for (int c = 0; c + 1 < a->ncol; c++) {
        if (!lines_mirror(&a->at[0][c], &a->at[0][c + 1], a->nrow, SIDE_MAX, &same, &opposite))
            continue;
        in[c] = uop_binary(t, OP_ADD, x[c], x[c + 1]);
        in[c + 1] = uop_binary(t, OP_SUB, x[c], x[c + 1]);
        for (int r = 0; r < a->nrow; r++) {
            bool odd = opposite >> r & 1;
            b.at[r][c + 1] = odd ? a->at[r][c] : 0;
            b.at[r][c] = odd ? 0 : a->at[r][c];
        }
        c++;
    }
    for (int r = 0; r < a->nrow; r++) {
        if (r + 1 == a->nrow ||
            !lines_mirror(b.at[r], b.at[r + 1], a->ncol, 1, &same, &opposite)) {
            out[r] = sum_of(t, b.at[r], in, a->ncol, ~0u);
            continue;
        }
        struct uop *even = sum_of(t, b.at[r], in, a->ncol, same),
                   *odd = sum_of(t, b.at[r], in, a->ncol, opposite);
        out[r] = uop_binary(t, OP_ADD, even, odd);
        out[r + 1] = uop_binary(t, OP_SUB, even, odd);
        r++;
    }
}

void transform_apply(struct tgc *t, const struct matrix *const *a, int nside,
                     struct uop *const *x, struct uop **out)
{
    struct uop *half[SIDE_MAX * SIDE_MAX], *in[SIDE_MAX], *line[SIDE_MAX];
    int ncol = nside == 2 ? a[1]->ncol : 1, nrow = nside == 2 ? a[1]->nrow : 1;
    for (int q = 0; q < ncol; q++) {
        for (int p = 0; p < a[0]->ncol; p++)
            in[p] = x[p * ncol + q];
        multiply(t, a[0], in, line);
        for (int r = 0; r < a[0]->nrow; r++)
            half[r * ncol + q] = line[r];
    }
    for (int r = 0; r < a[0]->nrow; r++)
        if (nside == 2)
            multiply(t, a[1], half + r * ncol, out + r * nrow);
        else
            out[r] = half[r];
}
