/* idioms.c - operations that instruction sets, or pieces of runtime/, do at once: products that
 * are added, sigmoids, what is rounded, clamped and becomes a byte.
 */
#include "passes/vector/expand.h"

/* a*b + c, and c + a*b. Scalars as well as vectors: what an element is made of shall not depend on
 * whether it is among the last ones, which are left over. */
struct uop *expand_fuse_product(struct expander *e, struct uop *u)
{
    bool fuses = u->op == OP_ADD && u->dtype == DTYPE_F32 && e->isa != &isa_table[ISA_GENERIC];
    for (int k = 0; k < 2 && fuses; k++) {
        const struct uop *m = u->src[k];
        struct uop *src[3];
        if (m->op != OP_MUL)
            continue;
        src[0] = m->src[0], src[1] = m->src[1], src[2] = u->src[1 - k];
        return uop_intern(e->t, OP_MULACC, u->dtype, src, 3, (union arg){0});
    }
    return u;
}

/* The 1 + e^-x under a sigmoid, as a function of its own: its range is smaller than that of a
 * power. */
static struct uop *fuse_power(struct expander *e, struct uop *u)
{
    struct uop *sum = u->op == OP_RECIP && u->lanes > 1 && u->dtype == DTYPE_F32 ? u->src[0] : NULL;
    for (int k = 0; k < 2 && sum && sum->op == OP_ADD; k++) {
        const struct uop *one = sum->src[1 - k];
        struct uop *power = sum->src[k], *x;
        one = one->op == OP_SPLAT ? one->src[0] : one;
        if (power->op != OP_EXP || !uop_is_constf(one, 1.0))
            continue;
        x = power->src[0]->op == OP_NEG
                ? power->src[0]->src[0]
                : uop_intern(e->t, OP_NEG, DTYPE_F32, &power->src[0], 1, (union arg){0});
        x = uop_intern(e->t, OP_EXP1, DTYPE_F32, &x, 1, (union arg){0});
        return uop_intern(e->t, OP_RECIP, DTYPE_F32, &x, 1, (union arg){0});
    }
    return u;
}

/* x * sigmoid(x) is one quotient: nothing else is multiplied by the same one. */
static struct uop *fuse_quotient(struct expander *e, struct uop *u)
{
    for (int k = 0; k < 2 && u->op == OP_MUL && u->lanes > 1; k++) {
        const struct uop *sigmoid = u->src[k];
        struct uop *src[2] = {u->src[1 - k]};
        if (sigmoid->op != OP_RECIP || sigmoid->src[0]->op != OP_EXP1 ||
            sigmoid->src[0]->src[0] != src[0])
            continue;
        src[1] = sigmoid->src[0];
        return uop_intern(e->t, OP_DIV, DTYPE_F32, src, 2, (union arg){0});
    }
    return u;
}

/* x, clamped to no less than the bytes of dtype d allow */
static struct uop *without_clamps(struct uop *x, enum dtype d)
{
    while ((x->op == OP_MIN || x->op == OP_MAX) && x->src[1]->op == OP_SPLAT &&
           x->src[1]->src[0]->op == OP_CONST) {
        double c = x->src[1]->src[0]->arg.f;
        if (x->op == OP_MIN ? !(c >= (double)dtype_max(d)) : !(c <= (double)dtype_min(d)))
            break;
        x = x->src[0];
    }
    return x;
}

/* What is rounded, clamped and becomes a byte: instruction sets do all that at once, with what is
 * an i32 when it is rounded. */
static struct uop *fuse_rounding(struct expander *e, struct uop *u)
{
    const double most = 0x1p30;
    if (u->op != OP_CAST || u->lanes == 1 || !dtype_is_byte(u->dtype) ||
        u->src[0]->dtype != DTYPE_F32)
        return u;
    struct uop *x = without_clamps(u->src[0], u->dtype);
    if (!bounds_is_whole(x))
        return u;
    x = x->op == OP_ROUND ? x->src[0] : x;
    struct bounds b = bounds_of(&e->bounds, x);
    return b.known && b.lo >= -most && b.hi <= most
               ? uop_intern(e->t, OP_NEAREST, u->dtype, &x, 1, (union arg){0})
               : u;
}

struct uop *expand_fuse_vector(struct expander *e, struct uop *u)
{
    return fuse_rounding(e, fuse_quotient(e, fuse_power(e, expand_fuse_product(e, u))));
}
