/* idioms.c - fuses ops that instruction sets, or runtime/, have as one operation: multiply-adds,
 * sigmoids, rounding, clamping and conversion to bytes (passes/rules/vectors.rules).
 */
#include "passes/rules/rules.h"
#include "passes/vector/expand.h"

static bool is_narrow(enum dtype d) { return dtype_is_int(d) && dtype_bits(d) <= 16; }

bool rounds_one(struct uop *const *in, int n)
{
    const struct buffer *one = NULL;
    bool stores = false, sums = false, weights = false;
    for (int i = 0; i < n; i++) {
        const struct uop *u = in[i];
        const struct buffer *b = u->op == OP_LOAD ? uop_buffer_of(u->src[0]) : NULL;
        sums |= u->op == OP_ACC;
        stores |= u->op == OP_STORE;
        weights |= b && b->kind == BUFFER_WEIGHT;
        if (u->op == OP_STORE && !is_narrow(u->src[2]->dtype))
            return false;
        if (!b || b->kind == BUFFER_WEIGHT)
            continue;
        if (one && one != b)
            return false;
        one = b;
    }
    return stores && one && !(sums && weights);
}

struct uop *expand_fuse_product(struct expander *e, struct uop *u)
{
    int rule;
    struct uop *r = e->apart || e->isa == &isa_table[ISA_GENERIC]
                        ? NULL
                        : rules_match(e->t, RULES_products, &e->facts, u, &rule);
    return r ? r : u;
}

struct uop *expand_fuse_vector(struct expander *e, struct uop *u)
{
    int rule;
    for (struct uop *r = expand_fuse_product(e, u); r;
         r = rules_match(e->t, RULES_vectors, &e->facts, u, &rule))
        u = r;
    return u;
}
