/* few_terms.c - a sum of few terms beside a contraction is written as these terms.
 *
 *      s = reduce x*w over ky, kx, oc               s
 *      n = reduce b over py < 2, px < 2    ->       n = b00 + b01 + b10 + b11
 *      y = s / n                                    y = s / n
 *
 * A tile keeps the accumulators of one reduction. What is left beside it is elementwise, an
 * epilogue. So a gradient by a convolution's input is tiled where a pool's gradient follows, which
 * divides by the number of its maxima. The terms are added in the same order.
 */
#include "passes/analysis/nest.h"
#include "passes/kernel/tile.h"

enum { TERMS_MOST = 16 };

/* The number of terms; 0: not known. */
static int64_t terms_of(const struct uop *reduce)
{
    int64_t n = 1;
    for (int k = 1; k < reduce->nsrc; k++)
        n = sat_mul(n, reduce->src[k]->op == OP_RANGE ? range_fixed_size(reduce->src[k]) : 0);
    return n;
}

/* The terms of a reduction, combined from the outermost range's first iteration on. */
static struct uop *write_terms(struct tgc *t, const struct uop *reduce)
{
    enum op op = REDUCE_OP(reduce->arg.i);
    struct uop *all = uop_const(t, reduce->dtype, reduce_identity(op, reduce->dtype));
    for (int64_t i = 0, n = terms_of(reduce); i < n; i++) {
        struct uop *term = reduce->src[0];
        int64_t rest = i;
        for (int k = reduce->nsrc - 1; k >= 1; k--) {
            int64_t size = range_fixed_size(reduce->src[k]);
            term = uop_substitute(t, term, reduce->src[k], uop_int(t, rest % size));
            rest /= size;
        }
        all = uop_binary(t, op, all, term);
    }
    return all;
}

/* The contraction with the most terms, in a store of several reductions; NULL: there is none. */
static struct uop *largest(struct tgc *t, struct uop *const *order, int n, struct uop *store)
{
    struct uop *most = NULL;
    for (int i = 0; i < n; i++) {
        struct nest m;
        if (order[i]->op == OP_REDUCE && terms_of(order[i]) > TERMS_MOST &&
            (!most || terms_of(order[i]) > terms_of(most)) &&
            nest_find_sum(t, store, order[i], &m) && m.contraction)
            most = order[i];
    }
    return most;
}

static struct uop *write_few(struct tgc *t, struct uop *store)
{
    struct nest m;
    struct uop *value = store->src[2], *most;
    int n;
    if (nest_find(t, store, &m))
        return store;
    struct uop **order = nest_order(t, value, &n);
    if (!(most = largest(t, order, n, store)))
        return store;
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op == OP_REDUCE && terms_of(u) > 0 && terms_of(u) <= TERMS_MOST &&
            !uop_depends_on(t, u, most) && !uop_depends_on(t, most, u))
            value = uop_substitute(t, value, u, write_terms(t, u));
    }
    struct uop *by = store_of_value(t, store, value);
    return nest_find(t, by, &m) ? by : store;
}

bool pass_few_terms(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return kernel_each_store(t, k, write_few);
}
