/* merge_clamps.c - removes redundant roundings and clamps before a byte.
 *
 * The layers of one integer operation (the sum of a convolution and a skip connection, ReLU) each
 * round to bytes and dequantize again. As floats these are
 *
 *      min(max(round(x) + 130, 0), 255) + -130   =   min(max(round(x), -130), 125)
 *      max(min(max(x, -133), 122) * 2, 0)        =   min(max(x, 0), 122) * 2
 *      min(max(x, 0), 255)                       =   x, if its bounds say so
 *      round(x), x is NaN ? 0 : x                =   x, if it is an integer
 *
 * exactly, except for the sign of a zero, which bytes do not have: so it is done below casts to
 * bytes (passes/rules/clamps.rules).
 */
#include "passes/analysis/rule_facts.h"
#include "passes/kernel/tile.h"
#include "passes/rules/rules.h"

#include <string.h>

/* Ops in whose results the sign of a zero has no further effect. */
static bool keeps_zeros(const struct uop *u)
{
    return u->dtype == DTYPE_F32 && (u->op == OP_ROUND || u->op == OP_MIN || u->op == OP_MAX ||
                                     u->op == OP_ADD || u->op == OP_MUL);
}

/* The store of a byte without redundant roundings and clamps. */
static struct uop *fold_clamps(struct tgc *t, struct uop *store)
{
    enum { STEPS_MAX = 200 };
    struct uop *v = store->src[2];
    if (!tile_stores_small(store, v) || !dtype_is_byte(v->dtype))
        return store;
    struct rule_facts facts = {.bounds = {.t = t}, .most = {.t = t, .most = true}};
    struct rule_walk walk = {
        .t = t, .set = RULES_clamps, .facts = &facts, .enter = keeps_zeros, .steps = STEPS_MAX};
    struct uop *by = uop_cast(t, v->dtype, rules_walk(&walk, v->src[0]));
    if (by == v || by->dtype != v->dtype)
        return store;
    uop_set_origin(t, by, v);
    return store_of_value(t, store, by);
}

bool pass_merge_clamps(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return kernel_each_store(t, k, fold_clamps);
}
