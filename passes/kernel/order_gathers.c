/* order_gathers.c - the order of loops around loads at data-dependent indices. */
#include "passes/kernel/tile.h"

/* Whether u is loaded at a data-dependent index, or under such a condition, that depends on the
 * innermost range. */
static bool is_gathered(struct tgc *t, struct uop *u, struct uop *inner)
{
    int64_t stride;
    return u->op == OP_LOAD && uop_depends_on(t, u->src[1], inner) &&
           !index_stride(t, u->src[1], inner, &stride);
}

/* The number of operations that compute gathered indices and would be repeated in each iteration of
 * r though they are invariant in it; 0 if r changes them. */
static int repeated_steps(struct tgc *t, struct uop *const *order, int n, struct uop *inner,
                          struct uop *r)
{
    int64_t stride;
    int steps = 0;
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op == OP_REDUCE || u->op == OP_STAGE ||
            (is_gathered(t, u, inner) && (!index_stride(t, u->src[1], r, &stride) ||
                                          (u->nsrc == 4 && uop_depends_on(t, u->src[2], r)))))
            return 0;
        steps += op_is_elementwise(u->op) && uop_depends_on(t, u, inner) &&
                 !uop_depends_on(t, u, r);
    }
    return steps;
}

int gathers_find_inner(struct tgc *t, const struct uop *store, int first, int *axis)
{
    enum { STEPS_MIN = 12 };
    struct uop *inner = store->src[store->nsrc - 1];
    int n, ninside = 0;
    bool any = false;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int i = 0; i < n && inner->op == OP_RANGE && !range_is_lane(inner); i++)
        any |= is_gathered(t, order[i], inner);
    for (int k = first; any && k < store->nsrc - 1; k++) {
        struct uop *r = store->src[k];
        if (r->op == OP_RANGE && !range_is_lane(r) && !range_is(r, AXIS_BAND) &&
            repeated_steps(t, order, n, inner, r) >= STEPS_MIN)
            axis[ninside++] = k;
    }
    return ninside;
}

bool pass_order_gathers(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++) {
        const struct uop *store = k->ast->src[i];
        int *axis = scratch_array(t, (size_t)store->nsrc, sizeof *axis),
            first = store_first_range(store);
        for (int j = 0, n = gathers_find_inner(t, store, first, axis); j < n; j++) {
            struct opt order = {.op = OPT_ORDER, .store = i, .axis = axis[j] - j - first,
                                .to = store->nsrc - first - 1};
            opt_must(t, k, NULL, &order, 1);
        }
    }
    return true;
}
