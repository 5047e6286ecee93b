/* gradient_elementwise.c - derivatives of elementwise ops and of reductions. Discontinuous ops
 * (comparisons, rounding, integers) have derivative 0; abs has 0 at 0; equal operands of max and
 * min have half each; equal extremes of a reduction share it.
 */
#include <math.h>

#include "frontend/gradient.h"

/* The derivative of u = f(x), with u given; NULL: 0, or not known. */
static struct uop *slope(const struct lib *l, const struct uop *of, struct uop *x, struct uop *u)
{
    struct uop *one = lib_scalar(l, u, 1), *zero = lib_scalar(l, u, 0), *xx = lib_mul(l, x, x);
    struct uop *more = lib_add(l, xx, one), *less = lib_sub(l, one, xx);
    switch (of->op) {
    case OP_NEG: return lib_scalar(l, u, -1);
    case OP_ABS:
        return lib_where(l, lib_binaryf(l, OP_LT, x, 0), lib_scalar(l, u, -1),
                         lib_where(l, lib_binary(l, OP_LT, zero, x), one, zero));
    case OP_SQRT: return lib_div(l, lib_scalar(l, u, 0.5), u);
    case OP_RECIP: return lib_unary(l, OP_NEG, lib_mul(l, u, u));
    case OP_EXP: return u;
    case OP_LOG: return lib_div(l, one, x);
    case OP_SIN: return lib_unary(l, OP_COS, x);
    case OP_COS: return lib_unary(l, OP_NEG, lib_unary(l, OP_SIN, x));
    case OP_TAN: return lib_add(l, lib_mul(l, u, u), one);
    case OP_ASIN: return lib_div(l, one, lib_unary(l, OP_SQRT, less));
    case OP_ACOS: return lib_div(l, lib_scalar(l, u, -1), lib_unary(l, OP_SQRT, less));
    case OP_ATAN: return lib_div(l, one, more);
    case OP_SINH: return lib_unary(l, OP_COSH, x);
    case OP_COSH: return lib_unary(l, OP_SINH, x);
    case OP_TANH: return lib_sub(l, one, lib_mul(l, u, u));
    case OP_ASINH: return lib_div(l, one, lib_unary(l, OP_SQRT, more));
    case OP_ACOSH: return lib_div(l, one, lib_unary(l, OP_SQRT, lib_sub(l, xx, one)));
    case OP_ATANH: return lib_div(l, one, less);
    case OP_ERF:
        return lib_binaryf(l, OP_MUL, lib_unary(l, OP_EXP, lib_unary(l, OP_NEG, xx)),
                           2 / sqrt(acos(-1)));
    default: return NULL;
    }
}

static void give_power(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *self = lib_binary(l, OP_POW, a, b);
    struct uop *below = lib_binary(l, OP_POW, a, lib_binaryf(l, OP_SUB, b, 1));
    /* x^0 is 1 everywhere, and 0^b is constant in b */
    struct uop *by_a =
        lib_where(l, lib_binaryf(l, OP_EQ, b, 0), lib_scalar(l, b, 0), lib_mul(l, b, below));
    struct uop *by_b = lib_where(l, lib_binaryf(l, OP_EQ, a, 0), lib_scalar(l, a, 0),
                                 lib_mul(l, self, lib_unary(l, OP_LOG, a)));
    gradient_give(g, a, lib_mul(l, d, by_a));
    gradient_give(g, b, lib_mul(l, d, by_b));
}

/* MAX or MIN of two: the one that counts; of equal ones each counts half, but none beside a value
 * that does not depend on the variables, so that Relu has 0 at 0. */
static void give_larger(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *zero = lib_scalar(l, d, 0);
    bool both = gradient_wants(g, a) && gradient_wants(g, b);
    struct uop *half = both ? lib_binaryf(l, OP_MUL, d, 0.5) : zero;
    struct uop *equal = lib_where(l, lib_binary(l, OP_EQ, a, b), half, zero);
    bool is_max = u->op == OP_MAX;
    struct uop *lower = is_max ? a : b, *upper = is_max ? b : a;
    gradient_give(g, a, lib_where(l, lib_binary(l, OP_LT, upper, lower), d, equal));
    gradient_give(g, b, lib_where(l, lib_binary(l, OP_LT, lower, upper), d, equal));
}

static bool give_to_two(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *size;
    switch (u->op) {
    case OP_ADD:
        gradient_give(g, a, d);
        gradient_give(g, b, d);
        return true;
    case OP_SUB:
        gradient_give(g, a, d);
        gradient_give(g, b, lib_unary(l, OP_NEG, d));
        return true;
    case OP_MUL:
        gradient_give(g, a, lib_mul(l, d, b));
        gradient_give(g, b, lib_mul(l, d, a));
        return true;
    case OP_DIV:
        d = lib_div(l, d, b);
        gradient_give(g, a, d);
        gradient_give(g, b, lib_unary(l, OP_NEG, lib_div(l, lib_mul(l, d, a), b)));
        return true;
    case OP_MAX:
    case OP_MIN:
        give_larger(g, u, d);
        return true;
    case OP_MOD:
    case OP_FLOORMOD:
        size = lib_div(l, a, b);
        size = lib_unary(l, u->op == OP_MOD ? OP_TRUNC : OP_FLOOR, size);
        gradient_give(g, a, d);
        gradient_give(g, b, lib_unary(l, OP_NEG, lib_mul(l, d, size)));
        return true;
    case OP_POW: give_power(g, u, d); return true;
    case OP_ATAN2:
        d = lib_div(l, d, lib_add(l, lib_mul(l, a, a), lib_mul(l, b, b)));
        gradient_give(g, a, lib_mul(l, d, b));
        gradient_give(g, b, lib_unary(l, OP_NEG, lib_mul(l, d, a)));
        return true;
    default: return false;
    }
}

/* A factor's derivative is the product of the others: where one factor is 0, only its own is not 0;
 * where two are, all are 0. */
struct uop *gradient_by_factor(const struct lib *l, struct uop *x, struct uop *other,
                               struct uop *product, struct uop *zeros)
{
    struct uop *zero = lib_scalar(l, x, 0), *none = lib_binaryf(l, OP_EQ, zeros, 0),
               *one = lib_binaryf(l, OP_EQ, zeros, 1);
    return lib_where(l, lib_binaryf(l, OP_EQ, x, 0), lib_where(l, one, product, zero),
                     lib_where(l, none, lib_div(l, product, other), zero));
}

static void give_product(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    uint32_t axes = REDUCE_AXES(u->arg.i);
    struct uop *x = u->src[0], *is_zero = lib_binaryf(l, OP_EQ, x, 0);
    struct uop *other = lib_where(l, is_zero, lib_scalar(l, x, 1), x);
    struct uop *product = uop_reduce(g->t, OP_MUL, other, axes);
    struct uop *zeros = gradient_sum(g, lib_cast(l, x->dtype, is_zero), axes, true);
    gradient_give(g, x, lib_mul(l, d, gradient_by_factor(l, x, other, product, zeros)));
}

bool gradient_reduced(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *x = u->src[0], *same, *count;
    switch (REDUCE_OP(u->arg.i)) {
    case OP_ADD: gradient_give(g, x, uop_expand(g->t, d, x->dim)); return true;
    case OP_MUL: give_product(g, u, d); return true;
    case OP_MAX:
    case OP_MIN: /* equal extremes share */
        same = lib_cast(l, x->dtype, lib_binary(l, OP_EQ, x, u));
        count = gradient_sum(g, same, REDUCE_AXES(u->arg.i), true);
        gradient_give(g, x, lib_mul(l, same, lib_div(l, d, count)));
        return true;
    default: return false;
    }
}

bool gradient_elementwise(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *x = u->src[0], *zero = lib_scalar(l, d, 0), *by;
    switch (u->op) {
    case OP_CAST: gradient_give(g, x, lib_cast(l, x->dtype, d)); return true;
    case OP_WHERE:
        gradient_give(g, u->src[1], lib_where(l, x, d, zero));
        gradient_give(g, u->src[2], lib_where(l, x, zero, d));
        return true;
    case OP_FLOOR:
    case OP_CEIL:
    case OP_TRUNC:
    case OP_ROUND: return true;
    case OP_BITCAST:
        return gradient_refuse(g, "it takes a number's bits apart", NULL);
    default:
        if (op_class(u->op) != CLASS_UNARY)
            return give_to_two(g, u, d);
        if (!(by = slope(l, u, x, u)))
            return false;
        gradient_give(g, x, lib_mul(l, d, by));
        return true;
    }
}
