/* winograd.c - convolutions with 3x3 windows of stride 1 by fewer multiplications.
 *
 * F(m x m, 3 x 3) of Lavin and Gray (arXiv:1509.09308): tiles of m x m outputs are computed from
 * tiles of n x n inputs, n = m + 2, with n*n multiplications a channel where there were 9*m*m:
 *
 *      V[xi] = (B^T d B)[xi]         d: a tile of x; xi: one of n*n places in it
 *      M[xi] = sum over ic of U[xi] V[xi]             n*n matrix products
 *      Y     = A^T M A               U = G g G^T, computed here in double and rounded once
 *
 * It is a rewrite of the graph. There is no convolution in it: what is looked for is a sum of
 * products, one operand of which walks two axes of something by windows of 3 and stride 1, while
 * the other is a weight. Whatever else its axes are (batch, groups, several channels' axes) they
 * keep their meaning. The transforms are sums of shifted parts of a tensor, and the places xi a
 * tree of decisions on an index (`select_place`), which optimize.c makes straight-line code of.
 *
 * The matrices follow from the points at which the polynomials are evaluated (Cook-Toom). Those
 * chosen are dyadic, come in pairs of either sign, so that half of the sums serve two places, and
 * err little: see docs/winograd.md.
 */
#include "passes/passes.h"
#include "passes/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TAPS = 3, TILE_MAX = 6, SIDE_MAX = TILE_MAX + TAPS - 1, PLACES_MAX = SIDE_MAX * SIDE_MAX };

/* ------------------------------------------------------------------------------------- matrices */

struct matrix { int nrow, ncol; double at[SIDE_MAX][SIDE_MAX]; };
struct transform { int m, n; struct matrix input, weight, output; };     /* B^T, G, A^T */

/* The coefficients of the product of (x - point[l]), l != except, by rising power. */
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

/* The points are those below and infinity. needs: m is 2, 4 or 6 */
static void make_transform(struct transform *f, int m)
{
    static const double points[][SIDE_MAX - 1] = {
        {0, 1, -1}, {0, 0.75, -0.75, 1.5, -1.5}, {0, 1, -1, 0.5, -0.5, 1.75, -1.75}};
    const double *p = points[m / 2 - 1];
    int n = m + TAPS - 1, last = n - 1;
    *f = (struct transform){m, n, {n, n, {{0}}}, {n, TAPS, {{0}}}, {m, n, {{0}}}};
    for (int j = 0; j < last; j++) {
        double norm = 1;
        for (int l = 0; l < last; l++)
            norm *= l == j ? 1 : p[j] - p[l];
        for (int i = 0; i < m; i++)
            f->output.at[i][j] = pow(p[j], i);
        for (int k = 0; k < TAPS; k++)
            f->weight.at[j][k] = pow(p[j], k) / norm;
        expand_product(p, last, j, f->input.at[j]);
    }
    f->output.at[m - 1][last] = f->weight.at[last][TAPS - 1] = 1;
    expand_product(p, last, -1, f->input.at[last]);
}

/* -------------------------------------------------------------------------------- straight sums */

/* The sum of coef[k] * x[k] over the k that `part` has; NULL if there is none. */
static struct uop *sum_of(struct tgc *t, const double *coef, struct uop *const *x, int n,
                          unsigned part)
{
    struct uop *sum = NULL;
    for (int scaled = 0; scaled < 2; scaled++)           /* plain ones first */
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

/* Whether two lines agree up to signs, and in which places (`same`) and not (`opposite`). */
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

/* out = a * x. Columns that mirror each other are added and subtracted first, rows that do share
 * their two halves. */
static void multiply(struct tgc *t, const struct matrix *a, struct uop *const *x, struct uop **out)
{
    struct matrix b = *a;
    struct uop *in[SIDE_MAX];
    unsigned same, opposite;
    memcpy(in, x, (size_t)a->ncol * sizeof *x);
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

/* a x a^T for a square of tensors, x[p][q] at p * a->ncol + q. */
static void multiply_both(struct tgc *t, const struct matrix *a, struct uop *const *x,
                          struct uop **out)
{
    struct uop *half[PLACES_MAX], *in[SIDE_MAX], *line[SIDE_MAX];
    for (int q = 0; q < a->ncol; q++) {
        for (int p = 0; p < a->ncol; p++)
            in[p] = x[p * a->ncol + q];
        multiply(t, a, in, line);
        for (int r = 0; r < a->nrow; r++)
            half[r * a->ncol + q] = line[r];
    }
    for (int r = 0; r < a->nrow; r++)
        multiply(t, a, half + r * a->ncol, out + r * a->nrow);
}

/* ------------------------------------------------------------------------------------ the layer */

/* A convolution. Axes of `product` are its axes; roles of those of size 1 do not matter. */
struct layer {
    struct tgc *t;
    struct uop *reduce, *product;
    struct uop *x, *weight;              /* under the windows; the product's other operand */
    struct uop *pad[2 * MAX_RANK];       /* of x: lo, hi per axis */
    struct uop *range[MAX_RANK];         /* of the product's axes; 0 where the size is 1 */
    bool of_x[MAX_RANK], of_weight[MAX_RANK];
    /* the axes of x that have windows; where in padded x the first one begins; the product's axes
     * of the windows and of their taps */
    int nspatial, spatial[2], out[2], tap[2];
    int64_t begin[2];
    int part[MAX_RANK][4], npart[MAX_RANK]; /* per axis of x: the product's axes it is made of */
};

static int64_t size_of(const struct uop *dim) { return dim->op == OP_CONST ? dim->arg.i : 0; }

static bool is_pure_move(const struct uop *v)
{
    switch (v->op) {
    case OP_RESHAPE: case OP_PERMUTE: case OP_EXPAND: case OP_WINDOW: case OP_SHRINK: return true;
    default: return false;
    }
}

/* Down to what v is a view of, with the coordinates there. */
static struct uop *walk(struct tgc *t, struct uop *v, struct uop *const *range, struct uop **at)
{
    memcpy(at, range, (size_t)v->ndim * sizeof *at);
    return move_down(t, v, is_pure_move, at);
}

static bool is_reduced(const struct layer *l, int axis)
{
    return REDUCE_AXES(l->reduce->arg.i) >> axis & 1;
}

/* A window's axis of x: o + k + begin. */
static bool add_window(struct layer *l, int axis, const int *of, int64_t begin)
{
    int k = is_reduced(l, of[1]), o = of[1 - k], tap = of[k];
    if (l->nspatial == 2 || is_reduced(l, o) || !is_reduced(l, tap) || begin < 0 ||
        size_of(l->product->dim[tap]) != TAPS || size_of(l->product->dim[o]) < 1 ||
        size_of(l->x->dim[axis]) < 1)
        return false;
    l->spatial[l->nspatial] = axis;
    l->out[l->nspatial] = o;
    l->tap[l->nspatial] = tap;
    l->begin[l->nspatial++] = begin;
    l->npart[axis] = 0;
    return true;
}

/* How one axis of x is run through by the product's axes: by windows, or row-major by one or
 * several of them. */
static bool find_parts(struct layer *l, int axis, struct uop *at)
{
    struct tgc *t = l->t;
    int of[4], n = 0;
    int64_t stride[4], s, rest;
    for (int p = 0; p < l->product->ndim; p++) {
        if (l->range[p]->op != OP_RANGE || !nest_depends(t, at, l->range[p]))
            continue;
        if (n == 4 || l->of_x[p] || !nest_stride(t, at, l->range[p], &s) || s < 1)
            return false;
        l->of_x[p] = true;
        int i = n++;
        for (; i > 0 && stride[i - 1] < s; i--)
            stride[i] = stride[i - 1], of[i] = of[i - 1];
        stride[i] = s, of[i] = p;
    }
    struct uop *left = at;
    for (int i = 0; i < n; i++)
        left = sym_sub(t, left, sym_muli(t, l->range[of[i]], stride[i]));
    if (!uop_const_int(left, &rest))
        return false;
    if (n == 2 && stride[0] == 1 && stride[1] == 1)
        return add_window(l, axis, of, rest);
    struct uop *total = uop_int(t, 1);
    for (int i = n - 1; i >= 0; i--) {
        if (!sym_equal(t, total, uop_int(t, stride[i])))
            return false;
        total = sym_mul(t, total, l->product->dim[of[i]]);
    }
    memcpy(l->part[axis], of, (size_t)n * sizeof *of);
    l->npart[axis] = n;
    return rest == 0 && sym_equal(t, total, l->x->dim[axis]);
}

static bool is_weight(const struct uop *v)
{
    const struct buffer *b = v->op == OP_BUFFER ? v->arg.p : NULL;
    return b && b->kind == BUFFER_WEIGHT && b->data && b->dtype == DTYPE_F32;
}

/* Padding of zeros under the windows is made anew, to whole tiles. */
static struct uop *take_padding(struct layer *l, struct uop *x)
{
    struct uop *zero = uop_int(l->t, 0);
    bool padded =
        x->op == OP_PAD && (uop_is_constf(x->src[1], 0.0) || uop_is_constf(x->src[1], -0.0));
    for (int a = 0; a < 2 * x->ndim; a++)
        l->pad[a] = padded ? x->src[2 + a] : zero;
    return padded ? x->src[0] : x;
}

static bool find_layer(struct tgc *t, struct uop *u, struct layer *l)
{
    struct uop *at[MAX_RANK];
    if (u->op != OP_REDUCE || REDUCE_OP(u->arg.i) != OP_ADD || u->dtype != DTYPE_F32 ||
        u->src[0]->op != OP_MUL || u->ndim > MAX_RANK - 5)
        return false;
    *l = (struct layer){.t = t, .reduce = u, .product = u->src[0]};
    for (int p = 0; p < u->ndim; p++) {
        struct uop *dim = l->product->dim[p];
        l->range[p] = uop_is_int(dim, 1) ? uop_int(t, 0) : uop_range(t, dim, t->next_range++);
    }
    int k = 1;
    struct uop *base = walk(t, l->product->src[1], l->range, at);
    if (!is_weight(base)) {
        k = 0;
        base = walk(t, l->product->src[0], l->range, at);
    }
    if (!is_weight(base))
        return false;
    l->weight = l->product->src[k];
    for (int p = 0; p < u->ndim; p++)
        for (int a = 0; a < base->ndim; a++)
            l->of_weight[p] |= l->range[p]->op == OP_RANGE && nest_depends(t, at[a], l->range[p]);
    struct uop *padded = walk(t, l->product->src[1 - k], l->range, at);
    if (padded->dtype != DTYPE_F32 || padded->ndim > MAX_RANK - 5 ||
        (padded->op == OP_CAST && padded->src[0]->dtype != DTYPE_F32))
        return false;
    l->x = padded;                                    /* find_parts looks at the padded axes */
    for (int a = 0; a < padded->ndim; a++)
        if (!find_parts(l, a, at[a]))
            return false;
    for (int p = 0; p < u->ndim; p++)
        if (l->range[p]->op == OP_RANGE &&
            (is_reduced(l, p) ? !l->of_x[p] || !l->of_weight[p] : !l->of_x[p] && !l->of_weight[p]))
            return false;
    l->x = take_padding(l, padded);
    return l->nspatial == 2 && !l->of_weight[l->out[0]] && !l->of_weight[l->out[1]];
}

/* ---------------------------------------------------------------------------------- the rewrite */

/* i64[.., n, ..], all other axes 1: 0, 1, ... along the axis. */
static struct uop *index_along(struct tgc *t, int n, int axis, int ndim)
{
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < ndim; a++)
        dim[a] = uop_int(t, a == axis ? n : 1);
    return uop_reshape(t, uop_iota(t, uop_int(t, n)), dim, ndim);
}

/* x[lo], ... x[hi - 1] at the places lo, ... hi - 1 of `index`: decisions halve them. */
static struct uop *select_place(struct tgc *t, struct uop *index, struct uop *const *x, int lo,
                                int hi)
{
    int mid = lo + (hi - lo) / 2;
    if (hi - lo == 1)
        return x[lo];
    struct uop *low = select_place(t, index, x, lo, mid),
               *high = select_place(t, index, x, mid, hi);
    return tensor_where(t, tensor_binary(t, OP_LT, index, uop_int(t, mid)), low, high);
}

static int64_t tiles_of(const struct layer *l, int s, int m)
{
    return (size_of(l->product->dim[l->out[s]]) + m - 1) / m;
}

/* The product's axes as one operand has them: tiles for windows, 1 for what it does not depend
 * on. dim[0]: n*n, or 1. */
static void dims_of(const struct layer *l, const struct transform *f, const bool *of, bool tiles,
                    struct uop **dim)
{
    for (int p = 0; p < l->product->ndim; p++)
        dim[p] = of[p] ? l->product->dim[p] : uop_int(l->t, 1);
    for (int s = 0; s < 2; s++) {
        dim[l->out[s]] = uop_int(l->t, tiles ? tiles_of(l, s, f->m) : 1);
        dim[l->tap[s]] = uop_int(l->t, 1);
    }
}

/* x, padded to whole tiles, as [p, q, the product's axes]: the tile's rows and columns first. */
static struct uop *tiles_of_x(const struct layer *l, const struct transform *f)
{
    struct tgc *t = l->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *begin[MAX_RANK], *dim[MAX_RANK];
    int axis_of[MAX_RANK], perm[MAX_RANK], n = 0, ndim = 0;
    struct uop *x = l->x;
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = l->pad[2 * a];
        hi[a] = l->pad[2 * a + 1];
        begin[a] = uop_int(t, 0);
        dim[a] = sym_add(t, x->dim[a], sym_add(t, lo[a], hi[a]));
    }
    for (int s = 0; s < 2; s++) {
        int a = l->spatial[s];
        begin[a] = uop_int(t, l->begin[s]);
        dim[a] = uop_int(t, tiles_of(l, s, f->m) * f->m + TAPS - 1);
        struct uop *more = sym_sub(t, sym_add(t, begin[a], dim[a]),
                                   sym_add(t, x->dim[a], sym_add(t, lo[a], hi[a])));
        hi[a] = sym_max(t, sym_add(t, hi[a], more), uop_int(t, 0));
    }
    x = uop_pad(t, x, uop_constf(t, x->dtype, 0.0), lo, hi);
    x = uop_shrink(t, x, begin, dim);
    for (int a = 0; a < x->ndim; a++) {              /* groups of channels apart */
        bool window = a == l->spatial[0] || a == l->spatial[1];
        if (window)
            axis_of[ndim] = l->out[a == l->spatial[1]], dim[ndim++] = x->dim[a];
        for (int i = 0; i < l->npart[a]; i++)
            axis_of[ndim] = l->part[a][i], dim[ndim++] = l->product->dim[l->part[a][i]];
    }
    x = uop_reshape(t, x, dim, ndim);
    for (int s = 0; s < 2; s++) {
        int a = 0;
        while (axis_of[a] != l->out[s])
            a++;
        x = uop_window(t, x, a, uop_int(t, tiles_of(l, s, f->m)), uop_int(t, f->n), f->m, 1);
        memmove(axis_of + a + 2, axis_of + a + 1, (size_t)(ndim++ - a - 1) * sizeof *axis_of);
        axis_of[a + 1] = -1 - s;
    }
    for (int p = -1; p > -3; p--)
        for (int a = 0; a < ndim; a++)
            if (axis_of[a] == p)
                perm[n++] = a;
    for (int p = 0; p < l->product->ndim; p++)
        for (int a = 0; a < ndim; a++)
            if (axis_of[a] == p)
                perm[n++] = a;
    x = uop_permute(t, x, perm);
    dim[0] = dim[1] = uop_int(t, f->n);
    dims_of(l, f, l->of_x, true, dim + 2);
    return uop_reshape(t, x, dim, l->product->ndim + 2);
}

/* Parts of x along its first `lead` axes: element i, j, without those axes, but for `keep` of
 * them. */
static struct uop *part_at(struct tgc *t, struct uop *x, int lead, const int *at, int keep)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        begin[a] = uop_int(t, a < lead ? at[a] : 0);
        size[a] = a < lead ? uop_int(t, 1) : x->dim[a];
    }
    return uop_reshape(t, uop_shrink(t, x, begin, size), size + lead - keep, x->ndim - lead + keep);
}

/* V: [xi, the product's axes] */
static struct uop *transform_input(const struct layer *l, const struct transform *f)
{
    struct tgc *t = l->t;
    struct uop *d[PLACES_MAX], *v[PLACES_MAX], *tiles = tiles_of_x(l, f);
    for (int i = 0; i < f->n * f->n; i++)
        d[i] = part_at(t, tiles, 2, (int[]){i / f->n, i % f->n}, 1);
    multiply_both(t, &f->input, d, v);
    struct uop *xi = index_along(t, f->n * f->n, 0, l->product->ndim + 1);
    return select_place(t, xi, v, 0, f->n * f->n);
}

/* The weight's distinct elements, with the axes of the product; NULL: out of memory's limit. */
static float *weight_values(const struct layer *l, struct uop **dim, int64_t *nelem)
{
    struct tgc *t = l->t;
    struct uop *zero[MAX_RANK];
    *nelem = 1;
    for (int p = 0; p < l->product->ndim; p++) {
        zero[p] = uop_int(t, 0);
        dim[p] = l->of_weight[p] ? l->product->dim[p] : uop_int(t, 1);
        *nelem = sat_mul(*nelem, size_of(dim[p]));
    }
    size_t nbytes, room = t->mem_limit - t->mem_used;
    if (*nelem < 1 || !size_mul((size_t)*nelem, sizeof(float), &nbytes) || nbytes > room / 16)
        return NULL;
    struct uop *w = uop_shrink(t, l->weight, zero, dim);
    struct eval_env env = {.budget = -1};
    float *data = mem_alloc(t, nbytes);
    return eval_store(t, w, *nelem, &env, data, NULL) ? data : NULL;
}

static void transform_square(const struct transform *f, double g[TAPS][TAPS], double *u)
{
    double half[SIDE_MAX][TAPS] = {{0}};
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < TAPS; k++)
            for (int j = 0; j < TAPS; j++)
                half[i][j] += f->weight.at[i][k] * g[k][j];
    for (int i = 0; i < f->n; i++)
        for (int j = 0; j < f->n; j++) {
            double sum = 0;
            for (int k = 0; k < TAPS; k++)
                sum += half[i][k] * f->weight.at[j][k];
            u[i * f->n + j] = sum;
        }
}

/* U: [xi, the product's axes], a weight; NULL: it is too large for the memory's limit. */
static struct uop *transform_weight(const struct layer *l, const struct transform *f)
{
    struct tgc *t = l->t;
    struct uop *dim[MAX_RANK], *udim[MAX_RANK];
    int64_t nelem, stride[2] = {1, 1}, size[MAX_RANK];
    int ndim = l->product->ndim, places = f->n * f->n;
    float *w = weight_values(l, dim, &nelem);
    if (!w)
        return NULL;
    for (int s = 0; s < 2; s++)
        for (int p = l->tap[s] + 1; p < ndim; p++)
            stride[s] *= size_of(dim[p]);
    dims_of(l, f, l->of_weight, false, udim);
    int64_t each = nelem / (TAPS * TAPS);
    float *u = mem_array(t, (size_t)each * (size_t)places, sizeof *u);
    for (int64_t i = 0; i < each; i++) {
        int64_t from = 0, rest = i, step = nelem;
        for (int p = 0; p < ndim; p++) {                  /* coordinates of i among udim */
            int64_t below = 1;
            for (int a = p + 1; a < ndim; a++)
                below *= size_of(udim[a]);
            step /= size_of(dim[p]);
            from += rest / below * step;
            rest %= below;
        }
        double g[TAPS][TAPS], places_of[PLACES_MAX];
        for (int k = 0; k < TAPS * TAPS; k++)
            g[k / TAPS][k % TAPS] = w[from + k / TAPS * stride[0] + k % TAPS * stride[1]];
        transform_square(f, g, places_of);
        for (int k = 0; k < places; k++)
            u[k * each + i] = (float)places_of[k];
    }
    size[0] = places;
    for (int p = 0; p < ndim; p++)
        size[p + 1] = size_of(udim[p]);
    return tensor_from_data(t, DTYPE_F32, size, ndim + 1, u,
                            (size_t)each * (size_t)places * sizeof *u, NULL);
}

static void name_product(const struct layer *l, struct uop *product)
{
    struct text s = {.t = l->t};
    const char *w = uop_get_axes(l->t, l->product);
    text_puts(&s, "xi");
    for (int p = 0; w && *w && p < l->product->ndim; p++) {
        size_t n = strcspn(w, " ");
        bool tile = p == l->out[0] || p == l->out[1];
        text_printf(&s, " %s%.*s", tile ? "tile_" : "", (int)n, w);
        w += n + (w[n] == ' ');
    }
    if (w)
        uop_name_axes(l->t, product, s.s);
}

/* Y: from M, [xi, the product's axes, reduced], to what the sum was. */
static struct uop *transform_output(const struct layer *l, const struct transform *f,
                                    struct uop *sums)
{
    struct tgc *t = l->t;
    struct uop *m[PLACES_MAX], *y[PLACES_MAX], *row[SIDE_MAX], *dim[MAX_RANK], *zero[MAX_RANK];
    int first = l->out[0] < l->out[1] ? 0 : 1;       /* which spatial axis comes first */
    /* where the axes of a tile's rows and columns stand once both are there */
    int at[2], ndim = l->product->ndim + 2;
    at[first] = l->out[first] + 1;
    at[1 - first] = l->out[1 - first] + 2;
    for (int i = 0; i < f->n * f->n; i++)
        m[i] = part_at(t, sums, 1, &i, 0);
    multiply_both(t, &f->output, m, y);
    for (int i = 0; i < f->m; i++) {
        for (int j = 0; j < f->m; j++) {
            struct uop **place = &y[i * f->m + j];
            *place = tensor_insert_axis(t, *place, at[first]);
            *place = tensor_insert_axis(t, *place, at[1 - first]);
        }
        row[i] = select_place(t, index_along(t, f->m, at[1], ndim), y + i * f->m, 0, f->m);
    }
    struct uop *r = select_place(t, index_along(t, f->m, at[0], ndim), row, 0, f->m);
    r = uop_new(t, OP_CONTIGUOUS, r->dtype, &r, 1, (union arg){0});
    for (int p = 0; p < l->product->ndim; p++) {
        dim[p] = l->reduce->dim[p];
        zero[p] = uop_int(t, 0);
    }
    for (int s = 0; s < 2; s++)
        dim[l->out[s]] = uop_int(t, tiles_of(l, s, f->m) * f->m);
    r = uop_reshape(t, r, dim, l->product->ndim);
    for (int s = 0; s < 2; s++)
        dim[l->out[s]] = l->product->dim[l->out[s]];
    return uop_shrink(t, r, zero, dim);
}

static struct uop *rewrite_layer(const struct layer *l, int m)
{
    struct tgc *t = l->t;
    struct transform f;
    make_transform(&f, m);
    struct uop *u = transform_weight(l, &f);
    if (!u)
        return NULL;
    struct uop *v = transform_input(l, &f);
    struct uop *product = tensor_binary(t, OP_MUL, v, u);
    name_product(l, product);
    uint32_t axes = REDUCE_AXES(l->reduce->arg.i) & ~(1u << l->tap[0]) & ~(1u << l->tap[1]);
    return transform_output(l, &f, uop_reduce(t, OP_ADD, product, axes << 1));
}

/* ----------------------------------------------------------------------------------- the choice */

/* Cycles of a core with 8-lane vectors, as measured on layers of ResNet and VGG: what is computed,
 * what the transforms move, and the weights, each time from memory. The ratios are what counts, and
 * they hold for other widths, too. */
enum { FLOP_CYCLE = 29, TRANSFORM_BYTES_CYCLE = 10, WEIGHT_BYTES_CYCLE = 6 };
static const double FAR_BYTES = 16 << 20; /* what lies in no cache costs three times as much */

struct extent { double in, out, groups, batch; };    /* channels of a group, groups, images */

static struct extent extent_of(const struct layer *l)
{
    struct extent e = {1, 1, 1, 1};
    for (int p = 0; p < l->product->ndim; p++) {
        double n = l->product->dim[p]->op == OP_CONST ? (double)size_of(l->product->dim[p]) : 1;
        if (p == l->tap[0] || p == l->tap[1] || p == l->out[0] || p == l->out[1])
            continue;
        if (is_reduced(l, p))
            e.in *= n;
        else if (l->of_x[p] && l->of_weight[p])
            e.groups *= n;
        else if (l->of_x[p])
            e.batch *= n;
        else
            e.out *= n;
    }
    return e;
}

/* m = 1: as it is. */
static double cost_of(const struct layer *l, const struct extent *e, int m)
{
    double n = m + TAPS - 1, places = m == 1 ? TAPS * TAPS : n * n;
    double tiles = (double)tiles_of(l, 0, m) * (double)tiles_of(l, 1, m) * e->batch;
    /* weights are fetched while products are made (prefetch.c), as far as that goes */
    double flops = places * tiles * e->in * e->out * e->groups * 2 / FLOP_CYCLE;
    double weights = places * e->in * e->out * e->groups * (double)sizeof(float) /
                     WEIGHT_BYTES_CYCLE;
    double cost = flops > weights ? flops + 0.25 * weights : weights + 0.25 * flops;
    if (m == 1)
        return cost;
    /* V and M are written and read; inputs are read, outputs written and read */
    double values = (e->in + e->out) * e->groups * tiles * (double)sizeof(float);
    bool whole = size_of(l->product->dim[l->out[0]]) % m == 0 &&
                 size_of(l->product->dim[l->out[1]]) % m == 0;    /* band.c keeps them near */
    double near = values * places > FAR_BYTES && !whole ? 1 : 3;
    return cost + values * (places + 1.5 * m * m) * (3 / near) / TRANSFORM_BYTES_CYCLE;
}

/* The side of the tiles by which the layer takes the least time; 0: it is best left alone. Larger
 * tiles err more. */
static int choose_tile(const struct layer *l)
{
    enum { CHANNELS_MIN = 16 };
    static const double worth[TILE_MAX + 1] = {[2] = 1.1, [4] = 1.15, [6] = 1.3};
    struct extent e = extent_of(l);
    double least = cost_of(l, &e, 1);
    int best = 0;
    if (e.in < CHANNELS_MIN || e.out < CHANNELS_MIN)
        return 0;
    for (int m = 2; m <= TILE_MAX; m += 2) {
        double cost = cost_of(l, &e, m) * worth[m];
        if (cost < least) {
            least = cost;
            best = m;
        }
    }
    return best;
}

/* DEBUG=2: what was weighed. */
static void report(const struct layer *l, int m)
{
    struct extent e = extent_of(l);
    const struct origin *o = uop_get_origin(l->t, l->reduce);
    fprintf(stderr,
            "winograd: %s %s: %g x %g channels, %lld x %lld; kcycles %.0f, F2 %.0f, F4 %.0f, "
            "F6 %.0f: %d\n",
            o ? o->op_type : "", o ? o->node : "", e.in, e.out,
            (long long)size_of(l->product->dim[l->out[0]]),
            (long long)size_of(l->product->dim[l->out[1]]), cost_of(l, &e, 1) / 1e3,
            cost_of(l, &e, 2) / 1e3, cost_of(l, &e, 4) / 1e3, cost_of(l, &e, 6) / 1e3, m);
}

/* What a tune file says for layers of these extents, or the model. */
static int tuned_tile(const struct layer *l)
{
    struct tgc *t = l->t;
    struct extent e = extent_of(l);
    int64_t shape[] = {(int64_t)e.in, (int64_t)e.out, (int64_t)e.groups, (int64_t)e.batch,
                       size_of(l->product->dim[l->out[0]]), size_of(l->product->dim[l->out[1]])};
    struct choice c = {.taken = {.kind = TUNE_WINOGRAD, .key = tune_key_of_numbers(shape, 6)},
                       .origin = uop_get_origin(t, l->reduce), .n = TILE_MAX / 2 + 1,
                       .candidate = mem_array(t, TILE_MAX / 2 + 1, sizeof *c.candidate)};
    c.model = choose_tile(l) / 2;
    for (int m = 0; m <= TILE_MAX; m += 2) {
        c.candidate[m / 2] = c.taken;
        c.candidate[m / 2].winograd = m;
        c.cost[m / 2] = cost_of(l, &e, m ? m : 1) / 1e3;
    }
    c.by = tune_find(t, TUNE_WINOGRAD, c.taken.key, ISA_GENERIC);
    c.taken.winograd = c.by ? c.by->winograd : 2 * c.model;
    c.title = mem_printf(t, "%lld x %lld channels, %lld groups, %lld images of %lld x %lld",
                         (long long)shape[0], (long long)shape[1], (long long)shape[2],
                         (long long)shape[3], (long long)shape[4], (long long)shape[5]);
    tune_note(t, c);
    return c.taken.winograd;
}

struct winograd { int tile; };

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    const struct winograd *w = ctx;
    struct layer l;
    struct mem_mark mark = scratch_mark(t);
    bool found = find_layer(t, u, &l);
    scratch_release(t, mark);
    int m = !found ? 0 : w->tile ? w->tile : t->tuning ? tuned_tile(&l) : choose_tile(&l);
    int outer = t->current_origin;
    if (found && t->debug >= 2)
        report(&l, m);
    if (!m)
        return NULL;
    t->current_origin = u->id < t->cap_uop_origin ? t->uop_origin[u->id] : 0;
    struct uop *r = rewrite_layer(&l, m);
    t->current_origin = outer;
    return r;
}

bool winograd_apply(struct tgc *t, struct graph *g, int tile)
{
    struct winograd w = {tile};
    graph_rewrite(t, g, rewrite, &w);
    return true;
}

bool pass_winograd(struct tgc *t, struct graph *g)
{
    return t->no_winograd || winograd_apply(t, g, 0);
}
