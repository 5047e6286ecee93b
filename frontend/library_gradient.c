/* library_gradient.c - derivatives: reverse mode over tensor uops.
 *
 * Every uop between the variables and the result has an adjoint, the sum of its consumers'
 * contributions. The adjoint of a movement is the inverse movement (of an INDEX a SCATTER that
 * adds), that of a sum an expansion; elementwise ops multiply by their derivative. Discontinuous
 * ops (comparisons, rounding, integers) have derivative 0; abs has 0 at 0; equal operands of max
 * and min have half each; equal extremes of a reduction share it.
 * Loops, branches and host calls are refused. source: Griewank and Walther, Evaluating Derivatives,
 * 2008, chapter 3
 */
#include <math.h>
#include <string.h>

#include "frontend/library.h"

struct gradient {
    const struct lib *l;
    struct tgc *t;
    struct uop_map adjoint, depends;
};

static struct uop *full_like(const struct gradient *g, const struct uop *x, double v)
{
    return tensor_full(g->t, uop_constf(g->t, x->dtype, v), x->dim, x->ndim);
}

/* Adds d to x's adjoint; if x is a scalar next to tensors, the sum of d. */
static void give(struct gradient *g, struct uop *x, struct uop *d)
{
    if (!d || !map_get(&g->depends, x))
        return;
    if (x->ndim == 0 && d->ndim > 0)
        d = tensor_sum(g->t, d, lib_all_axes(d), false);
    struct uop *before = map_get(&g->adjoint, x);
    map_set(&g->adjoint, x, before ? lib_add(g->l, before, d) : d);
}

/* ------------------------------------------------------------------------------------- movement */

static void give_permuted(struct gradient *g, const struct uop *u, struct uop *d)
{
    int back[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        back[PERM_GET(u->arg.i, a)] = a;
    give(g, u->src[0], uop_permute(g->t, d, back));
}

static void give_expanded(struct gradient *g, const struct uop *u, struct uop *d)
{
    uint32_t axes = 0;
    for (int a = 0; a < u->ndim; a++)
        if (!sym_equal(g->t, u->src[0]->dim[a], u->dim[a]))
            axes |= 1u << a;
    give(g, u->src[0], axes ? uop_reduce(g->t, OP_ADD, d, axes) : d);
}

/* src: (x, value, lo, hi, ...) */
static void give_padded(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *begin[MAX_RANK], *inside = uop_bool(g->t, true);
    const struct uop *x = u->src[0];
    for (int a = 0; a < u->ndim; a++)
        begin[a] = u->src[2 + 2 * a];
    give(g, u->src[0], uop_shrink(g->t, d, begin, x->dim));
    for (int a = 0; a < u->ndim && map_get(&g->depends, u->src[1]); a++) {
        struct uop *i = tensor_iota(g->t, u->dim, u->ndim, a);
        struct uop *ok = uop_not(
            g->t, lib_binary(g->l, OP_OR, lib_binary(g->l, OP_LT, i, begin[a]),
                             uop_not(g->t, lib_binary(g->l, OP_LT, i,
                                                      sym_add(g->t, begin[a], x->dim[a])))));
        inside = lib_binary(g->l, OP_AND, inside, ok);
    }
    give(g, u->src[1], lib_where(g->l, inside, lib_scalar(g->l, d, 0), d));
}

/* src: (x, begin, size, ...) */
static void give_shrunk(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    const struct uop *x = u->src[0];
    for (int a = 0; a < u->ndim; a++) {
        lo[a] = u->src[1 + 2 * a];
        hi[a] = sym_sub(g->t, sym_sub(g->t, x->dim[a], lo[a]), u->dim[a]);
    }
    give(g, u->src[0], uop_pad(g->t, d, lib_scalar(g->l, d, 0), lo, hi));
}

/* x with `gap` zeros after each element of the axis but the last. */
static struct uop *spread(const struct gradient *g, struct uop *x, int axis, int64_t gap)
{
    struct uop *dim[MAX_RANK + 1], *lo[MAX_RANK + 1], *hi[MAX_RANK + 1], *n = x->dim[axis];
    struct uop *zero = uop_int(g->t, 0), *step = uop_int(g->t, gap + 1);
    for (int a = 0; a <= x->ndim; a++) {
        dim[a] = a <= axis ? x->dim[a] : a == axis + 1 ? uop_int(g->t, 1) : x->dim[a - 1];
        lo[a] = zero;
        hi[a] = a == axis + 1 ? uop_int(g->t, gap) : zero;
    }
    struct uop *rows = uop_reshape(g->t, x, dim, x->ndim + 1);
    rows = uop_pad(g->t, rows, lib_scalar(g->l, x, 0), lo, hi);
    memcpy(dim, x->dim, (size_t)x->ndim * sizeof *dim);
    dim[axis] = sym_mul(g->t, n, step);
    struct uop *flat = uop_reshape(g->t, rows, dim, x->ndim);
    return lib_narrow(g->l, flat, axis, zero, sym_sub(g->t, dim[axis], uop_int(g->t, gap)));
}

/* The elements of x with equal coordinates of two adjacent axes of size n, which become one axis.
 * They are n + 1 apart once the two are merged. */
static struct uop *diagonal(const struct gradient *g, struct uop *x, int axis)
{
    struct uop *dim[MAX_RANK], *lo[MAX_RANK], *hi[MAX_RANK], *n = x->dim[axis];
    struct uop *zero = uop_int(g->t, 0), *one = uop_int(g->t, 1);
    int ndim = x->ndim;
    for (int a = 0; a < ndim - 1; a++) {
        dim[a] = a < axis ? x->dim[a] : a == axis ? sym_mul(g->t, n, n) : x->dim[a + 1];
        lo[a] = zero;
        hi[a] = a == axis ? n : zero;
    }
    x = uop_reshape(g->t, x, dim, ndim - 1);
    x = uop_pad(g->t, x, lib_scalar(g->l, x, 0), lo, hi);
    for (int a = ndim - 1; a > axis + 1; a--)
        dim[a] = dim[a - 1];
    dim[axis] = n;
    dim[axis + 1] = sym_add(g->t, n, one);
    x = lib_narrow(g->l, uop_reshape(g->t, x, dim, ndim), axis + 1, zero, one);
    return lib_squeeze(g->l, x, 1u << (axis + 1));
}

/* Whether x's elements do not depend on their coordinate of the axis; false: not known. */
static bool is_constant_along(const struct gradient *g, const struct uop *x, int axis)
{
    if (axis >= x->ndim)
        return true;
    if (op_class(x->op) == CLASS_UNARY || op_class(x->op) == CLASS_BINARY) {
        for (int k = 0; k < x->nsrc; k++)
            if (!is_constant_along(g, x->src[k], axis))
                return false;
        return true;
    }
    const struct uop *from = x->nsrc ? x->src[0] : NULL;
    struct uop *before = uop_int(g->t, 1), *there = before;
    switch (x->op) {
    case OP_EXPAND:
        return !sym_equal(g->t, from->dim[axis], x->dim[axis]) || is_constant_along(g, from, axis);
    case OP_PERMUTE: return is_constant_along(g, from, PERM_GET(x->arg.i, axis));
    case OP_FLIP: return is_constant_along(g, from, axis);
    case OP_RESHAPE: /* the axis stays, if what is before it has the same size */
        for (int a = 0; a < axis; a++)
            before = sym_mul(g->t, before, x->dim[a]);
        for (int a = 0; a < from->ndim; there = sym_mul(g->t, there, from->dim[a++]))
            if (sym_equal(g->t, before, there) && sym_equal(g->t, from->dim[a], x->dim[axis]))
                return is_constant_along(g, from, a);
        return false;
    default: return false;
    }
}

/* A value as a sum of products, over the last `nsum` axes: those of a REDUCE below reshapes and
 * permutations, which become the factors'. b NULL: a alone. */
struct sum { struct uop *a, *b; int nsum; };

static struct uop *move_terms(const struct gradient *g, struct uop *x, struct uop *const *chain,
                              int nchain, const struct uop *sum)
{
    struct uop *dim[MAX_RANK], *size[MAX_RANK];
    uint32_t axes = REDUCE_AXES(sum->arg.i);
    int perm[MAX_RANK], ndim = 0, nsum = 0;
    for (int a = 0; a < sum->ndim; a++)
        if (!(axes >> a & 1))
            perm[ndim++] = a;
    for (int a = 0; a < sum->ndim; a++)
        if (axes >> a & 1)
            perm[ndim + nsum] = a, size[nsum++] = sum->src[0]->dim[a];
    x = uop_permute(g->t, x, perm);
    for (int k = nchain; k >= 0; k--) { /* the REDUCE itself keeps axes of size 1 */
        const struct uop *u = k == nchain ? sum : chain[k];
        memcpy(dim, u->dim, (size_t)u->ndim * sizeof *dim);
        memcpy(dim + u->ndim, size, (size_t)nsum * sizeof *dim);
        for (int a = 0; a < u->ndim + nsum; a++)
            perm[a] = a < u->ndim && u->op == OP_PERMUTE ? PERM_GET(u->arg.i, a) : a;
        x = u->op == OP_PERMUTE ? uop_permute(g->t, x, perm)
                                : uop_reshape(g->t, x, dim, u->ndim + nsum);
    }
    return x;
}

static struct sum sum_of(const struct gradient *g, struct uop *d)
{
    enum { MOST = 8 };
    struct uop *chain[MOST], *x = d;
    int nchain = 0, most = 0, nsum = 0;
    for (; (x->op == OP_RESHAPE || x->op == OP_PERMUTE) && nchain < MOST; x = x->src[0]) {
        most = x->ndim > most ? x->ndim : most;
        chain[nchain++] = x;
    }
    if (x->op != OP_REDUCE || REDUCE_OP(x->arg.i) != OP_ADD || x->src[0]->op != OP_MUL)
        return (struct sum){d, NULL, 0};
    for (int a = 0; a < x->ndim; a++)
        nsum += (int)(REDUCE_AXES(x->arg.i) >> a & 1);
    struct uop *a = x->src[0]->src[0], *b = x->src[0]->src[1];
    most = x->ndim > most ? x->ndim : most;
    if (most + nsum >= MAX_RANK || a->ndim != x->ndim || b->ndim != x->ndim)
        return (struct sum){d, NULL, 0};
    a = move_terms(g, a, chain, nchain, x);
    return (struct sum){a, move_terms(g, b, chain, nchain, x), nsum};
}

/* d[.. o ..] -> [.. i, k ..], the element of d at which tap k of window o = (i - dilation * k) /
 * stride lies, 0 where there is none. The taps run backwards, from n - 1 to 0. */
static struct uop *positions(const struct gradient *g, struct uop *d, const struct uop *u, int axis)
{
    struct tgc *t = g->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *taps = u->dim[axis + 1], *n = u->src[0]->dim[axis];
    d = spread(g, d, axis, WINDOW_STRIDE(u->arg.i) - 1);
    for (int a = 0; a < d->ndim; a++)
        lo[a] = hi[a] = uop_int(t, 0);
    lo[axis] = sym_mul(t, sym_sub(t, taps, uop_int(t, 1)), uop_int(t, WINDOW_DILATION(u->arg.i)));
    hi[axis] = sym_sub(t, n, d->dim[axis]);
    d = uop_pad(t, d, lib_scalar(g->l, d, 0), lo, hi);
    return uop_window(t, d, axis, n, taps, 1, WINDOW_DILATION(u->arg.i));
}

/* Element i of x is in the windows o whose tap k is at i = stride * o + dilation * k, so its
 * adjoint is a sum over k. Where the adjoint is a sum of products of which one factor does not
 * depend on k and the other does not on o, as that of a convolution, it is a transposed
 * convolution: one sum of products, too. */
static void give_window(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct tgc *t = g->t;
    struct uop *x = u->src[0], *zero = uop_int(t, 0), *one = uop_int(t, 1), *terms;
    int axis = WINDOW_AXIS(u->arg.i);
    uint32_t tap = 1u << (axis + 1);
    struct sum s = sum_of(g, d);
    if (s.b && is_constant_along(g, s.a, axis) && is_constant_along(g, s.b, axis + 1)) {
        struct uop *a = s.a;
        s.a = s.b, s.b = a;
    }
    if (s.b && is_constant_along(g, s.b, axis) && is_constant_along(g, s.a, axis + 1)) {
        struct uop *a = lib_narrow(g->l, s.a, axis + 1, zero, one);
        struct uop *b = lib_narrow(g->l, uop_flip(t, s.b, tap), axis, zero, one);
        a = positions(g, lib_squeeze(g->l, a, tap), u, axis);
        terms = lib_mul(g->l, a, uop_expand(t, b, a->dim));
    } else {
        s.nsum = 0;
        terms = diagonal(g, positions(g, uop_flip(t, d, tap), u, axis), axis + 1);
    }
    uint32_t summed = ((1u << s.nsum) - 1) << (terms->ndim - s.nsum) | tap;
    give(g, x, lib_squeeze(g->l, uop_reduce(t, OP_ADD, terms, summed), summed));
}

static void give_joined(struct gradient *g, const struct uop *u, struct uop *d)
{
    int axis = (int)u->arg.i;
    struct uop *at = uop_int(g->t, 0);
    for (int k = 0; k < u->nsrc; k++) {
        give(g, u->src[k], lib_narrow(g->l, d, axis, at, u->src[k]->dim[axis]));
        at = sym_add(g->t, at, u->src[k]->dim[axis]);
    }
}

static bool give_moved(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct uop *x = u->src[0];
    switch (u->op) {
    case OP_RESHAPE: give(g, u->src[0], uop_reshape(g->t, d, x->dim, x->ndim)); return true;
    case OP_PERMUTE: give_permuted(g, u, d); return true;
    case OP_EXPAND: give_expanded(g, u, d); return true;
    case OP_PAD: give_padded(g, u, d); return true;
    case OP_SHRINK: give_shrunk(g, u, d); return true;
    case OP_FLIP: give(g, u->src[0], uop_flip(g->t, d, (uint32_t)u->arg.i)); return true;
    case OP_WINDOW: give_window(g, u, d); return true;
    case OP_CONCAT: give_joined(g, u, d); return true;
    default: return false;
    }
}

/* ---------------------------------------------------------------------------------- elementwise */

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
    give(g, a, lib_mul(l, d, by_a));
    give(g, b, lib_mul(l, d, by_b));
}

/* MAX or MIN of two: the one that counts; of equal ones each counts half, but none beside a value
 * that does not depend on the variables, so that Relu has 0 at 0. */
static void give_larger(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *zero = lib_scalar(l, d, 0);
    bool both = map_get(&g->depends, a) && map_get(&g->depends, b);
    struct uop *half = both ? lib_binaryf(l, OP_MUL, d, 0.5) : zero;
    struct uop *equal = lib_where(l, lib_binary(l, OP_EQ, a, b), half, zero);
    bool is_max = u->op == OP_MAX;
    give(g, a, lib_where(l, lib_binary(l, OP_LT, is_max ? b : a, is_max ? a : b), d, equal));
    give(g, b, lib_where(l, lib_binary(l, OP_LT, is_max ? a : b, is_max ? b : a), d, equal));
}

static bool give_to_two(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *a = u->src[0], *b = u->src[1], *size;
    switch (u->op) {
    case OP_ADD: give(g, a, d); give(g, b, d); return true;
    case OP_SUB: give(g, a, d); give(g, b, lib_unary(l, OP_NEG, d)); return true;
    case OP_MUL: give(g, a, lib_mul(l, d, b)); give(g, b, lib_mul(l, d, a)); return true;
    case OP_DIV:
        d = lib_div(l, d, b);
        give(g, a, d);
        give(g, b, lib_unary(l, OP_NEG, lib_div(l, lib_mul(l, d, a), b)));
        return true;
    case OP_MAX:
    case OP_MIN:
        give_larger(g, u, d);
        return true;
    case OP_MOD:
    case OP_FLOORMOD:
        size = lib_div(l, a, b);
        size = lib_unary(l, u->op == OP_MOD ? OP_TRUNC : OP_FLOOR, size);
        give(g, a, d);
        give(g, b, lib_unary(l, OP_NEG, lib_mul(l, d, size)));
        return true;
    case OP_POW: give_power(g, u, d); return true;
    case OP_ATAN2:
        d = lib_div(l, d, lib_add(l, lib_mul(l, a, a), lib_mul(l, b, b)));
        give(g, a, lib_mul(l, d, b));
        give(g, b, lib_unary(l, OP_NEG, lib_mul(l, d, a)));
        return true;
    default: return false;
    }
}

/* ------------------------------------------------------------------------------------- the rest */

/* A factor's derivative is the product of the others: where one factor is 0, only its own is not 0;
 * where two are, all are 0. */
static void give_product(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    uint32_t axes = REDUCE_AXES(u->arg.i);
    struct uop *x = u->src[0], *is_zero = lib_binaryf(l, OP_EQ, x, 0), *zero = lib_scalar(l, x, 0);
    struct uop *others = lib_where(l, is_zero, lib_scalar(l, x, 1), x);
    struct uop *product = uop_reduce(g->t, OP_MUL, others, axes);
    struct uop *zeros = uop_reduce(g->t, OP_ADD, lib_cast(l, x->dtype, is_zero), axes);
    struct uop *by =
        lib_where(l, is_zero, lib_where(l, lib_binaryf(l, OP_EQ, zeros, 1), product, zero),
                  lib_where(l, lib_binaryf(l, OP_EQ, zeros, 0), lib_div(l, product, others), zero));
    give(g, x, lib_mul(l, d, by));
}

static bool give_reduced(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *x = u->src[0], *same, *count;
    switch (REDUCE_OP(u->arg.i)) {
    case OP_ADD: give(g, x, uop_expand(g->t, d, x->dim)); return true;
    case OP_MUL: give_product(g, u, d); return true;
    case OP_MAX:
    case OP_MIN: /* equal extremes share */
        same = lib_cast(l, x->dtype, lib_binary(l, OP_EQ, x, u));
        count = uop_reduce(g->t, OP_ADD, same, REDUCE_AXES(u->arg.i));
        give(g, x, lib_mul(l, same, lib_div(l, d, count)));
        return true;
    default: return false;
    }
}

/* Propagates d from u to its sources; false: u has no derivative here. */
static bool propagate(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *x = u->nsrc ? u->src[0] : NULL, *zero = lib_scalar(l, d, 0), *by;
    if (give_moved(g, u, d) || give_to_two(g, u, d))
        return true;
    switch (u->op) {
    case OP_CAST: give(g, x, lib_cast(l, x->dtype, d)); return true;
    case OP_CONTIGUOUS: give(g, x, d); return true;
    case OP_REDUCE: return give_reduced(g, u, d);
    case OP_WHERE:
        give(g, u->src[1], lib_where(l, x, d, zero));
        give(g, u->src[2], lib_where(l, x, zero, d));
        return true;
    case OP_INDEX:
        give(g, x, uop_scatter(g->t, OP_ADD, full_like(g, x, 0), d, u->src + 1));
        return true;
    case OP_SCATTER:
        if ((enum op)u->arg.i != OP_ADD && (enum op)u->arg.i != OP_CONST)
            return false;
        give(g, u->src[1], uop_index(g->t, d, u->src + 2));
        if ((enum op)u->arg.i == OP_CONST) /* overwritten elements have no influence */
            d = uop_scatter(g->t, OP_CONST, d, full_like(g, u->src[1], 0), u->src + 2);
        give(g, x, d);
        return true;
    case OP_FLOOR:
    case OP_CEIL:
    case OP_TRUNC:
    case OP_ROUND: return true;
    default:
        if (op_class(u->op) != CLASS_UNARY || !(by = slope(l, u, x, u)))
            return false;
        give(g, x, lib_mul(l, d, by));
        return true;
    }
}

bool lib_gradient(const struct lib *l, struct uop *y, struct uop *const *x, int n, struct uop **dx)
{
    struct tgc *t = l->t;
    struct gradient g = {.l = l, .t = t, .adjoint = {.t = t}, .depends = {.t = t}};
    int count;
    if (!y)
        return false;
    if (!dtype_is_float(y->dtype)) {
        lib_error(l, "gradient: %s has none; a float type is expected", lib_describe(l, y));
        return false;
    }
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, &y, 1, &count);
    for (int k = 0; k < n; k++)
        map_set(&g.depends, x[k], x[k]);
    for (int i = 0; i < count; i++) {
        bool carries = dtype_is_float(order[i]->dtype) || op_class(order[i]->op) == CLASS_CONTROL;
        for (int k = 0; k < order[i]->nsrc && carries; k++)
            if (map_get(&g.depends, order[i]->src[k]))
                map_set(&g.depends, order[i], order[i]);
    }
    map_set(&g.adjoint, y, full_like(&g, y, 1));
    bool ok = true;
    for (int i = count - 1; i >= 0 && ok; i--) {
        struct uop *u = order[i], *d = map_get(&g.adjoint, u);
        bool is_variable = false;
        for (int k = 0; k < n; k++)
            is_variable |= x[k] == u;
        if (is_variable || !map_get(&g.depends, u))
            continue;
        if (!d || (ok = propagate(&g, u, d)))
            continue;
        const struct host_call *h = u->op == OP_GET && u->src[0]->op == OP_HOST ? u->src[0]->arg.p
                                                                                : NULL;
        if (h && h->external)
            lib_error(l,
                      "gradient: '%s' is a C function, which has no derivative; define it in .tg "
                      "(def), or take the gradient elsewhere",
                      h->external->name);
        else
            lib_error(
                l,
                "gradient: %s has no derivative here; export the model with its backward pass "
                "as ordinary nodes",
                op_name(u->op));
    }
    for (int k = 0; k < n && ok; k++) {
        dx[k] = map_get(&g.adjoint, x[k]);
        dx[k] = dx[k] ? dx[k] : full_like(&g, x[k], 0);
    }
    scratch_release(t, mark);
    return ok && !t->nerror;
}
