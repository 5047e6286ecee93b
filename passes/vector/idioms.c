/* idioms.c - fuses ops that instruction sets, or runtime/, have as one operation: multiply-adds,
 * sigmoids, rounding, clamping and conversion to bytes (passes/rules/vectors.rules).
 */
#include "passes/rules/rules.h"
#include "passes/vector/expand.h"

struct uop *expand_fuse_product(struct expander *e, struct uop *u)
{
    int rule;
    struct uop *r = e->isa == &isa_table[ISA_GENERIC]
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
