/* gradient_elementwise.c - derivatives of elementwise ops and of reductions. Discontinuous ops
 * (comparisons, rounding, integers) have derivative 0; abs, norms and atan2 have 0 at 0; equal
 * operands of max and min have half each; equal extremes of a reduction share it. A quotient of
 * exponentials by their sum has a rule of its own.
 */
#include <math.h>
#include <string.h>

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
    case OP_RECIP: return lib_unary(l, OP_NEG, lib_mul(l, u, u));
    case OP_EXP: return u;
    case OP_EXP2: return lib_binaryf(l, OP_MUL, u, log(2));
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

/* A value that is 0, and nothing is divided by it: 1. */
static struct uop *not_zero(const struct lib *l, struct uop *x)
{
    return lib_where(l, lib_binaryf(l, OP_EQ, x, 0), lib_scalar(l, x, 1), x);
}

/* a^b. By a it is 0 where b is 0, for x^0 is 1 everywhere, and b / a has the right derivative by b;
 * by b at a = 0 it is 0, but minus infinity where b < 0. Its own derivatives meet no 0 * infinity
 * there. */
static void give_power(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *zero = lib_scalar(l, b, 0);
    struct uop *below = lib_binary(l, OP_POW, a, lib_binaryf(l, OP_SUB, b, 1));
    struct uop *by_a = lib_where(l, lib_binaryf(l, OP_EQ, b, 0), lib_div(l, b, not_zero(l, a)),
                                 lib_mul(l, b, below));
    struct uop *at_zero = lib_where(l, lib_binaryf(l, OP_LT, b, 0), lib_scalar(l, b, -INFINITY),
                                    zero);
    struct uop *by_b = lib_where(l, lib_binaryf(l, OP_EQ, a, 0), at_zero,
                                 lib_mul(l, u, lib_unary(l, OP_LOG, not_zero(l, a))));
    gradient_give(g, a, lib_mul(l, d, by_a));
    gradient_give(g, b, lib_mul(l, d, by_b));
}

/* Is x a sum of squares, perhaps divided by a constant? Its root is a norm. */
static bool is_sum_of_squares(const struct uop *x)
{
    enum { MOST = 16 };
    for (int i = 0; i < MOST; i++) {
        if (x->op == OP_MUL && x->src[0] == x->src[1])
            return true;
        if ((x->op == OP_MUL || x->op == OP_DIV) && x->src[1]->op == OP_CONST)
            x = x->src[0];
        else if (op_class(x->op) == CLASS_MOVE ? x->op == OP_RESHAPE || x->op == OP_PERMUTE ||
                                                     x->op == OP_EXPAND
                                               : x->op == OP_CAST || x->op == OP_CONTIGUOUS ||
                                                     (x->op == OP_REDUCE &&
                                                      REDUCE_OP(x->arg.i) == OP_ADD))
            x = x->src[0];
        else
            return false;
    }
    return false;
}

/* 1 / 2u, which is infinite at 0; but a norm has 0 there: all squares are 0, and have slope 0. */
static struct uop *slope_of_root(const struct lib *l, const struct uop *x, struct uop *u)
{
    struct uop *half = lib_scalar(l, u, 0.5);
    if (!is_sum_of_squares(x))
        return lib_div(l, half, u);
    return lib_where(l, lib_binaryf(l, OP_EQ, u, 0), lib_scalar(l, u, 0),
                     lib_div(l, half, not_zero(l, u)));
}

static bool is_zero(const struct uop *x)
{
    while (x->op == OP_EXPAND || x->op == OP_RESHAPE)
        x = x->src[0];
    return uop_is_constf(x, 0);
}

/* MAX or MIN of two: the one that counts; of equal ones each counts half. Where only one depends on
 * the variables, it counts, as at the bounds of a clamp; but not beside 0, so that Relu has 0 at 0:
 * there the result tells whether it counts, and the operand need not be kept. */
static void give_larger(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *zero = lib_scalar(l, d, 0), *share = d;
    bool is_max = u->op == OP_MAX;
    struct uop *other = !gradient_wants(g, a) ? a : !gradient_wants(g, b) ? b : NULL;
    if (other && is_max && is_zero(other)) {
        struct uop *counts = lib_binary(l, OP_LT, other, u);
        gradient_give(g, other == b ? a : b, lib_where(l, counts, d, zero));
        return;
    }
    if (!other)
        share = lib_binaryf(l, OP_MUL, d, 0.5);
    struct uop *equal = lib_where(l, lib_binary(l, OP_EQ, a, b), share, zero);
    struct uop *lower = is_max ? a : b, *upper = is_max ? b : a;
    gradient_give(g, a, lib_where(l, lib_binary(l, OP_LT, upper, lower), d, equal));
    gradient_give(g, b, lib_where(l, lib_binary(l, OP_LT, lower, upper), d, equal));
}

/* The sum of e along some axes, expanded over them: perhaps with a 1 in place of 0. */
static struct uop *sum_of(const struct uop *e, const struct uop *by)
{
    if (by->op != OP_EXPAND)
        return NULL;
    struct uop *sum = by->src[0];
    if (sum->op == OP_WHERE && sum->src[0]->op == OP_EQ && sum->src[0]->src[0] == sum->src[2])
        sum = sum->src[2];
    bool is = sum->op == OP_REDUCE && REDUCE_OP(sum->arg.i) == OP_ADD && sum->src[0] == e;
    return is ? sum : NULL;
}

/* Whether x is the same along these axes by its form. */
static bool is_expanded(const struct uop *x, uint32_t axes)
{
    for (int a = 0; a < x->ndim; a++)
        if ((axes >> a & 1) && (x->op != OP_EXPAND || !uop_is_int(x->src[0]->dim[a], 1)))
            return false;
    return true;
}

/* A softmax, u = e / sum e with e = exp(x - m): it depends on no m that is the same along the sum's
 * axes, so the maximum has no part in the derivative by x, u (d - sum d u). false: it is none. */
static bool give_softmax(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *e = u->src[0], *sum = e->op == OP_EXP ? sum_of(e, u->src[1]) : NULL;
    if (!sum)
        return false;
    uint32_t axes = REDUCE_AXES(sum->arg.i);
    struct uop *x = e->src[0];
    if (x->op == OP_SUB && is_expanded(x->src[1], axes))
        x = x->src[0];
    struct uop *mean = gradient_sum(g, lib_mul(l, d, u), axes, true);
    gradient_give(g, x, lib_mul(l, u, lib_sub(l, d, uop_expand(g->t, mean, u->dim))));
    return true;
}

static bool give_to_two(struct gradient *g, struct uop *u, struct uop *d)
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
        if (give_softmax(g, u, d))
            return true;
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
        d = lib_div(l, d, not_zero(l, lib_add(l, lib_mul(l, a, a), lib_mul(l, b, b))));
        gradient_give(g, a, lib_mul(l, d, b));
        gradient_give(g, b, lib_unary(l, OP_NEG, lib_mul(l, d, a)));
        return true;
    default: return false;
    }
}

/* The product of the others of each factor along an axis. Nothing is divided, so that zeros have
 * derivatives of every order. */
static struct uop *product_of_others(const struct lib *l, struct uop *x, int axis)
{
    enum { SHORT = 64 }; /* above: of those before and those after, in O(n) */
    struct tgc *t = l->t;
    struct uop *n = x->dim[axis], *dim[MAX_RANK];
    if (n->vmax > SHORT)
        return lib_mul(l, lib_cumulative(l, OP_MUL, x, axis, true, false),
                       lib_cumulative(l, OP_MUL, x, axis, true, true));
    for (int a = 0; a <= x->ndim; a++)
        dim[a] = a < axis ? x->dim[a] : a <= axis + 1 ? n : x->dim[a - 1];
    struct uop *self = lib_binary(l, OP_EQ, tensor_iota(t, dim, x->ndim + 1, axis),
                                  tensor_iota(t, dim, x->ndim + 1, axis + 1));
    struct uop *all = uop_expand(t, tensor_insert_axis(t, x, axis), dim);
    struct uop *u = lib_where(l, self, lib_scalar(l, x, 1), all);
    return tensor_drop_axes(t, uop_reduce(t, OP_MUL, u, 2u << axis), 2u << axis);
}

static void give_product(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct tgc *t = g->t;
    struct uop *x = u->src[0], *dim[MAX_RANK], *n = uop_int(t, 1);
    uint32_t axes = REDUCE_AXES(u->arg.i);
    int perm[MAX_RANK], back[MAX_RANK], kept = 0, nperm;
    for (int a = 0; a < x->ndim; a++)
        if (!(axes >> a & 1))
            perm[kept++] = a;
    nperm = kept;
    for (int a = 0; a < x->ndim; a++)
        if (axes >> a & 1)
            perm[nperm++] = a, n = sym_mul(t, n, x->dim[a]);
    struct uop *moved = uop_permute(t, x, perm);
    ARRAY_COPY(dim, moved->dim, kept);
    dim[kept] = n;
    struct uop *by = product_of_others(g->l, uop_reshape(t, moved, dim, kept + 1), kept);
    for (int i = 0; i < x->ndim; i++)
        back[perm[i]] = i;
    by = uop_permute(t, uop_reshape(t, by, moved->dim, x->ndim), back);
    gradient_give(g, x, lib_mul(g->l, d, by));
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

/* (i, x0, x1 ...): to each x where i, clamped, is its number. */
static void give_chosen(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *i = u->src[0], *zero = lib_scalar(l, d, 0);
    for (int k = 0; k < u->nsrc - 1; k++) {
        struct uop *below = lib_binary(l, OP_LT, i, uop_int(g->t, k)),
                   *above = lib_binary(l, OP_LT, uop_int(g->t, k), i);
        struct uop *other = uop_bool(g->t, false);
        other = k > 0 ? lib_binary(l, OP_OR, other, below) : other;
        other = k < u->nsrc - 2 ? lib_binary(l, OP_OR, other, above) : other;
        gradient_give(g, u->src[1 + k], lib_where(l, other, zero, d));
    }
}

/* d in the dtype of what was cast: where d was only rounded from it, that. So the gradient of a
 * weight that is rounded for the model is not. */
static struct uop *unrounded(const struct gradient *g, enum dtype wide, struct uop *d)
{
    bool is_rounded = d->op == OP_CAST && dtype_is_half(d->dtype) && d->src[0]->dtype == wide;
    return is_rounded ? d->src[0] : lib_cast(g->l, wide, d);
}

bool gradient_elementwise(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *x = u->src[0], *zero = lib_scalar(l, d, 0), *by;
    switch (u->op) {
    case OP_CAST: gradient_give(g, x, unrounded(g, x->dtype, d)); return true;
    case OP_WHERE:
        gradient_give(g, u->src[1], lib_where(l, x, d, zero));
        gradient_give(g, u->src[2], lib_where(l, x, zero, d));
        return true;
    case OP_MULACC:
        gradient_give(g, x, lib_mul(l, d, u->src[1]));
        gradient_give(g, u->src[1], lib_mul(l, d, x));
        gradient_give(g, u->src[2], d);
        return true;
    case OP_STACK: give_chosen(g, u, d); return true;
    case OP_FLOOR:
    case OP_CEIL:
    case OP_TRUNC:
    case OP_ROUND: return true;
    case OP_BITCAST:
        return gradient_refuse(g, "it takes a number's bits apart", NULL);
    default:
        if (op_class(u->op) != CLASS_UNARY)
            return give_to_two(g, u, d);
        if (!(by = u->op == OP_SQRT ? slope_of_root(l, x, u) : slope(l, u, x, u)))
            return false;
        gradient_give(g, x, lib_mul(l, d, by));
        return true;
    }
}
