/* eval_product.c - sums of products of two factors that are invariant along different axes.
 *
 *      sum[b, i, j] = x[b, i, 0] * y[b, 0, j] + x[b, i, 1] * y[b, 1, j] + ...
 *
 * A program would load both factors for every product. Here each factor is computed once, by a
 * program over the axes that it depends on, with the axes' roles: batch (both factors change), row
 * (the first), column (the second), depth (reduced). The rest is a loop over doubles in blocks that
 * stay in a cache:
 *
 *                    y[DEPTH][COLUMNS]
 *      x[ROWS, DEPTH] ->  sum[ROWS][COLUMNS], which goes to its places after the last of the depth
 *
 * Each element adds the same products in double in the order of eval_tensor.c. So the result is the
 * same to the last bit, and the oracle may do this. (One exception: if a single product is beyond
 * f32, only the sum becomes infinite here.)
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

enum {
    ROWS = 128, COLUMNS = 64, DEPTH = 256,
    LEAST = 4,  /* rows and columns from which it pays to compute a factor on its own */
    RATE = 32  /* multiply-adds that cost as much as one element operation of a program */
};

struct group { int axis[MAX_RANK], n; int64_t dim[MAX_RANK], stride[MAX_RANK], nelem; };
struct product {
    struct uop *factor[2];
    struct group batch, row, column, depth;
};
struct block {
    double y[DEPTH][COLUMNS], sum[ROWS][COLUMNS];
    /* offsets of rows and columns from the batch's first result */
    int64_t row_at[ROWS], column_at[COLUMNS];
};

static int64_t at_most(int64_t n, int64_t limit) { return n < limit ? n : limit; }

static bool same_dims(const struct node *a, const struct node *b)
{
    if (a->u->ndim != b->u->ndim)
        return false;
    for (int i = 0; i < a->u->ndim; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* The axes along which u changes, as bits. */
static uint32_t axes_of(struct eval *e, struct uop *u)
{
    struct program *p = &e->program;
    eval_program_reset(p);
    eval_program_lanes(p, eval_node(e, u)->dim, u->ndim);
    return eval_program_axes(p, eval_program_value(p, e, u, p->lane_reg));
}

static void group_add(struct group *g, int axis, int64_t dim, int64_t stride)
{
    g->axis[g->n] = axis;
    g->dim[g->n] = dim;
    g->stride[g->n++] = stride;
    g->nelem *= dim;
}

/* Whether u is such a sum. The factors are swapped so that there are at least as many columns as
 * rows. */
static bool find_product(struct eval *e, struct uop *u, struct product *pr)
{
    struct uop *mul = u->src[0];
    const struct node *x = eval_node(e, mul);
    /* narrower dtypes round each product */
    bool real = u->dtype == DTYPE_F32 || u->dtype == DTYPE_F64;
    if (REDUCE_OP(u->arg.i) != OP_ADD || !real || mul->op != OP_MUL || !eval_is_inline(e, x) ||
        x->nelem == 0)
        return false;
    uint32_t changes[2], summed = REDUCE_AXES(u->arg.i);
    int64_t stride = 1;
    for (int k = 0; k < 2; k++) {
        if (!same_dims(eval_node(e, mul->src[k]), x))
            return false;
        changes[k] = axes_of(e, mul->src[k]);
    }
    struct group *const all[] = {&pr->batch, &pr->row, &pr->column, &pr->depth};
    for (int i = 0; i < 4; i++)
        *all[i] = (struct group){.nelem = 1};
    for (int a = mul->ndim - 1; a >= 0; a--) {
        bool first = changes[0] >> a & 1, second = changes[1] >> a & 1;
        group_add(summed >> a & 1   ? &pr->depth
                  : first && second ? &pr->batch
                  : second          ? &pr->column
                                    : &pr->row,
                  a, x->dim[a], stride);
        stride *= summed >> a & 1 ? 1 : x->dim[a];
    }
    bool swap = pr->row.nelem > pr->column.nelem;
    struct group row = pr->row;
    pr->factor[0] = mul->src[swap];
    pr->factor[1] = mul->src[!swap];
    pr->row = swap ? pr->column : pr->row;
    pr->column = swap ? row : pr->column;
    return pr->row.nelem >= LEAST;
}

static bool pay(struct eval *e, const struct product *pr)
{
    int64_t columns = sat_add(pr->column.nelem, COLUMNS - 1) / COLUMNS * COLUMNS;
    int64_t n = sat_mul(sat_mul(pr->batch.nelem, pr->row.nelem), sat_mul(columns, pr->depth.nelem));
    if (e->budget < 0)
        return true;
    if (n / RATE > e->budget)
        return false;
    e->budget -= n / RATE;
    return true;
}

/* A factor's values, row-major by these groups. */
static struct tensor *factor_value(struct eval *e, struct uop *u, const struct group *const *g,
                                   int ngroup)
{
    int axis[MAX_RANK], n = 0;
    for (int i = 0; i < ngroup; i++)
        for (int a = g[i]->n - 1; a >= 0; a--)
            axis[n++] = g[i]->axis[a];
    return eval_compute_over(e, u, axis, n);
}

/* The offset of the group's element i in the result. */
static int64_t place_of(const struct group *g, int64_t i)
{
    int64_t at = 0;
    for (int a = 0; a < g->n; i /= g->dim[a++])
        at += i % g->dim[a] * g->stride[a];
    return at;
}

/* y: depth rows of COLUMNS. Four at a time, so that sum[] is loaded and stored less often. */
static void add_row(double *restrict sum, const double *restrict x, const double *restrict y,
                    int64_t depth)
{
    const double *end = x + depth;
    for (; end - x >= 4; x += 4, y += 4 * COLUMNS)
        for (int j = 0; j < COLUMNS; j++)
            sum[j] = sum[j] + x[0] * y[j] + x[1] * y[COLUMNS + j] + x[2] * y[2 * COLUMNS + j] +
                     x[3] * y[3 * COLUMNS + j];
    for (; x < end; x++, y += COLUMNS)
        for (int j = 0; j < COLUMNS; j++)
            sum[j] += x[0] * y[j];
}

/* x, y, out: one batch. Columns of the block past the end are never read. */
static void compute_block(struct block *b, const struct product *pr, const double *x,
                          const double *y, double *out, int64_t row, int64_t column)
{
    int64_t depth = pr->depth.nelem, stride = pr->column.nelem;
    int64_t rows = at_most(pr->row.nelem - row, ROWS), columns = at_most(stride - column, COLUMNS);
    memset(b->sum, 0, sizeof b->sum);
    for (int64_t k = 0; k < depth; k += DEPTH) {
        int64_t n = at_most(depth - k, DEPTH);
        for (int64_t i = 0; i < n; i++)
            ARRAY_COPY(b->y[i], y + (k + i) * stride + column, columns);
        for (int64_t i = 0; i < rows; i++)
            add_row(b->sum[i], x + (row + i) * depth + k, b->y[0], n);
    }
    for (int64_t i = 0; i < rows; i++)
        b->row_at[i] = place_of(&pr->row, row + i);
    for (int64_t j = 0; j < columns; j++)
        b->column_at[j] = place_of(&pr->column, column + j);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[b->row_at[i] + b->column_at[j]] = b->sum[i][j];
}

static void multiply(struct block *b, const struct product *pr, const double *x, const double *y,
                     double *out)
{
    int64_t m = pr->row.nelem, n = pr->column.nelem, k = pr->depth.nelem;
    for (int64_t i = 0; i < pr->batch.nelem; i++)
        for (int64_t row = 0; row < m; row += ROWS)
            for (int64_t column = 0; column < n; column += COLUMNS)
                compute_block(b, pr, x + i * m * k, y + i * k * n, out + place_of(&pr->batch, i),
                              row, column);
}

struct tensor *eval_compute_product(struct eval *e, struct uop *u)
{
    struct product pr;
    if (!find_product(e, u, &pr) || !pay(e, &pr))
        return NULL;
    const struct group *const first[] = {&pr.batch, &pr.row, &pr.depth},
                       *const second[] = {&pr.batch, &pr.depth, &pr.column};
    struct tensor *x = factor_value(e, pr.factor[0], first, 3),
                  *y = x ? factor_value(e, pr.factor[1], second, 3) : NULL,
                  *r = y ? eval_tensor_new(e, u->dtype, eval_node(e, u)->dim, u->ndim) : NULL;
    struct block *b = r ? calloc(1, sizeof *b) : NULL;
    if (b) {
        multiply(b, &pr, x->data, y->data, r->data);
        alu_confine(u->dtype, r->data, r->nelem);
    } else {
        eval_tensor_free(e, r);
        r = NULL;
    }
    free(b);
    eval_tensor_free(e, y);
    eval_tensor_free(e, x);
    return r;
}
