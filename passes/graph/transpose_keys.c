/* transpose_keys.c - stores keys that exceed a kernel's scratch in a buffer of their own,
 * transposed.
 *
 *      b[j, 3 heads, e]  = x w
 *      s[head, i, j]     = sum over e  b[i, head, e] * b[j, heads + head, e]
 *  ->
 *      b[j, 3 heads, e]  = x w
 *      k[head, e, j]     = b[j, heads + head, e]
 *      s[head, i, j]     = sum over e  b[i, head, e] * k[head, e, j]
 *
 * Attention's scores need keys that are contiguous along j, its weighted sums values that are
 * contiguous along e. If both are parts of one tensor, one of them is strided. A head's keys can be
 * copied within its kernel; if they exceed what a stage may read again for every row (FIT_OPERAND),
 * they become a tensor, whose order of axes is free. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"

enum { ROWS_MIN = 64 };

/* The reduced axis, if it is one, and the result's innermost one. */
static bool find_axes(const struct uop *sum, int *summed, int *column)
{
    const struct uop *product = sum->src[0];
    *summed = *column = -1;
    for (int a = 0; a < sum->ndim; a++) {
        if (uop_is_int(product->dim[a], 1))
            continue;
        if (!(REDUCE_AXES(sum->arg.i) >> a & 1))
            *column = a;
        else if (*summed >= 0)
            return false;
        else
            *summed = a;
    }
    return *summed >= 0 && *column >= 0;
}

/* The keys in a buffer, if they are a part of a tensor; NULL: they are not, or they serve too few
 * of the `nsum` sums of `nfeature` features each. */
static struct uop *in_buffer(struct tgc *t, struct uop *keys, double nsum, double nfeature)
{
    struct path p = path_down(keys, MOVES_SPREAD);
    struct uop *x = p.base;
    if (x->op != OP_SHRINK || value_is_stationary(x) ||
        nsum < ROWS_MIN * value_nelem(x) / nfeature)
        return NULL;
    return path_up(t, &p, uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0}));
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    int e, j;
    int64_t nkey, nfeature;
    struct contraction c;
    (void)ctx;
    if (u->dtype != DTYPE_F32 || !summed_product(u) || !find_axes(u, &e, &j))
        return NULL;
    struct uop *product = u->src[0];
    if (!uop_const_int(product->dim[j], &nkey) || !uop_const_int(product->dim[e], &nfeature) ||
        nkey <= nfeature || sat_mul(nkey, nfeature) <= cost_fit_nelem(machine_of(t), FIT_OPERAND) ||
        !contraction_find(t, u, MOVES_SPREAD, &c))
        return NULL;
    for (int k = 0; k < 2; k++) {
        uint32_t both = 1u << j | 1u << e;
        struct uop *keys = NULL;
        if ((c.factor[k].of & both) == both)
            keys = in_buffer(t, product->src[k], value_nelem(u), (double)nfeature);
        if (keys)
            return contraction_like(t, u, product->src[1 - k], keys);
    }
    return NULL;
}

bool pass_transpose_keys(struct tgc *t, struct graph *g)
{
    graph_rewrite(t, g, rewrite, NULL);
    return true;
}
