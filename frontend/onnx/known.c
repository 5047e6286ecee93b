/* known.c - sizes that a model computes in narrow or floating types, as index arithmetic.
 *
 * Exporters compute sizes as i32, or as floats: Cast(Shape(x)) * 0.5, Floor, Cast back. A size is
 * what that arithmetic makes of it, with its roundings and wraps. Where it is proven that nothing
 * rounds or wraps, the same size is an expression over INDEX scalars, which can be compared with
 * other dimensions; that is what this file finds. Everything else stays as the model has it.
 *
 * A float with p bits holds num / den, den a power of two, if |num| <= 2^p. A quotient of integers
 * below 2^p that is no integer is never rounded to one: it is at least 1 / den away from an
 * integer, more than half a unit. So rounding it first does not change the result of FLOOR, CEIL
 * and casts.
 */
#include "frontend/onnx/lower.h"

#include <math.h>

/* num / den; `rounded`: once, to the dtype. */
struct fraction {
    struct uop *num;
    int64_t den;
    bool rounded;
};
enum { MAX_DEPTH = 64, MAX_DEN = 1 << 12 };
static const struct fraction none = {NULL, 0, false};

struct widening {
    struct tgc *t;
    struct uop_map done;
    int depth;
};

static struct uop *widen(struct widening *w, struct uop *e);

static bool fits(const struct uop *e, const struct uop *narrow)
{
    enum dtype d = narrow->dtype;
    return e && e->vmin >= dtype_min(d) && e->vmax <= dtype_max(d);
}

static bool is_within(const struct uop *num, enum dtype d)
{
    int64_t most = d == DTYPE_F64   ? (int64_t)1 << 53
                   : d == DTYPE_F32 ? 1 << 24
                   : d == DTYPE_F16 ? 1 << 11
                   : d == DTYPE_BF16 ? 1 << 8
                                     : -1;
    return num->vmin >= -most && num->vmax <= most;
}

static bool is_power(int64_t n) { return n > 0 && !(n & (n - 1)); }

/* The fraction num / den, if it is a value of dtype d. */
static struct fraction exact(struct tgc *t, struct uop *num, int64_t den, enum dtype d)
{
    int64_t c;
    if (uop_const_int(num, &c) && den > 1) {
        int64_t common = int_gcd(c, den);
        num = uop_int(t, c / common);
        den /= common;
    }
    return is_power(den) && den <= MAX_DEN && is_within(num, d) ? (struct fraction){num, den, false}
                                                                : none;
}

static struct fraction of_const(struct tgc *t, const struct uop *e)
{
    double scaled = e->arg.f * MAX_DEN;
    if (!(fabs(scaled) <= 0x1p53) || scaled != nearbyint(scaled))
        return none;
    return exact(t, uop_int(t, (int64_t)scaled), MAX_DEN, e->dtype);
}

static struct fraction of_binary(struct tgc *t, const struct uop *e, struct fraction a,
                                 struct fraction b)
{
    int64_t p;
    if (!a.num || !b.num || a.rounded || b.rounded)
        return none;
    if (e->op == OP_MUL)
        return exact(t, sym_mul(t, a.num, b.num), a.den * b.den, e->dtype);
    if (e->op != OP_DIV) {
        struct uop *x = sym_muli(t, a.num, b.den), *y = sym_muli(t, b.num, a.den);
        return exact(t, e->op == OP_ADD ? sym_add(t, x, y) : sym_sub(t, x, y), a.den * b.den,
                     e->dtype);
    }
    if (!uop_const_int(b.num, &p) || p <= 0 || p > INT32_MAX)
        return none;
    struct uop *num = sym_muli(t, a.num, b.den);
    struct fraction r = exact(t, num, a.den * p, e->dtype);
    return r.num ? r : is_within(num, e->dtype) ? (struct fraction){num, a.den * p, true} : none;
}

/* A float expression as a fraction; num NULL: it is not one. */
static struct fraction fraction_of(struct widening *w, struct uop *e)
{
    struct tgc *t = w->t;
    struct fraction a, b, r = none;
    struct uop *x = e->nsrc ? e->src[0] : NULL;
    if (++w->depth > MAX_DEPTH) {
        w->depth--;
        return none;
    }
    switch (e->op) {
    case OP_CONST:
        r = of_const(t, e);
        break;
    case OP_CAST:
        if (dtype_is_float(x->dtype)) {
            a = fraction_of(w, x);
            r = a.num && !a.rounded ? exact(t, a.num, a.den, e->dtype) : none;
        } else if (dtype_is_int(x->dtype) && (x = widen(w, x))) {
            r = exact(t, x, 1, e->dtype);
        }
        break;
    case OP_FLOOR:
    case OP_TRUNC:
    case OP_CEIL:
        a = fraction_of(w, x);
        if (a.num && (e->op != OP_TRUNC || a.num->vmin >= 0))
            r = exact(t, e->op == OP_CEIL ? sym_ceildiv(t, a.num, a.den)
                                          : sym_div(t, a.num, uop_int(t, a.den)), 1, e->dtype);
        break;
    case OP_MUL:
    case OP_ADD:
    case OP_SUB:
    case OP_DIV:
        a = fraction_of(w, x);
        b = a.num ? fraction_of(w, e->src[1]) : none;
        r = of_binary(t, e, a, b);
        break;
    default:
        break;
    }
    w->depth--;
    return r;
}

/* A float as an integer; NULL: that rounds. */
static struct uop *truncated(struct widening *w, struct uop *e)
{
    struct fraction f = fraction_of(w, e);
    return !f.num         ? NULL
           : f.den == 1   ? f.num
           : f.num->vmin >= 0 ? sym_div(w->t, f.num, uop_int(w->t, f.den))
                          : NULL;
}

/* An integer expression over INDEX scalars that nothing wraps; NULL: something may. */
static struct uop *widen_new(struct widening *w, struct uop *e)
{
    struct tgc *t = w->t;
    struct uop *a, *b;
    switch (e->op) {
    case OP_CONST:
        return uop_int(t, e->arg.i);
    case OP_VAR:
        return e->dtype == DTYPE_INDEX ? e : NULL;
    case OP_CAST:
        a = dtype_is_float(e->src[0]->dtype)      ? truncated(w, e->src[0])
            : dtype_is_int(e->src[0]->dtype)      ? widen(w, e->src[0])
            : e->src[0]->dtype == DTYPE_BOOL      ? uop_cast(t, DTYPE_INDEX, e->src[0])
                                                  : NULL;
        return fits(a, e) ? a : NULL;
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_MIN:
    case OP_MAX:
    case OP_DIV:
    case OP_MOD:
    case OP_FLOORDIV:
    case OP_FLOORMOD:
        a = widen(w, e->src[0]);
        b = widen(w, e->src[1]);
        if (!a || !b)
            return NULL;
        if ((e->op == OP_DIV || e->op == OP_MOD) && (a->vmin < 0 || b->vmin < 1))
            return e->dtype == DTYPE_INDEX ? uop_binary(t, e->op, a, b) : NULL;
        if ((e->op == OP_FLOORDIV || e->op == OP_FLOORMOD) && b->vmin < 1)
            return e->dtype == DTYPE_INDEX ? uop_binary(t, e->op, a, b) : NULL;
        a = e->op == OP_ADD                           ? sym_add(t, a, b)
            : e->op == OP_SUB                         ? sym_sub(t, a, b)
            : e->op == OP_MUL                         ? sym_mul(t, a, b)
            : e->op == OP_MIN                         ? sym_min(t, a, b)
            : e->op == OP_MAX                         ? sym_max(t, a, b)
            : e->op == OP_DIV || e->op == OP_FLOORDIV ? sym_div(t, a, b)
                                                      : sym_mod(t, a, b);
        return e->dtype == DTYPE_INDEX || fits(a, e) ? a : NULL;
    case OP_NEG:
        a = widen(w, e->src[0]);
        a = a ? sym_sub(t, uop_int(t, 0), a) : NULL;
        return e->dtype == DTYPE_INDEX || fits(a, e) ? a : NULL;
    case OP_WHERE:
        a = widen(w, e->src[1]);
        b = widen(w, e->src[2]);
        return a && b ? uop_where(t, e->src[0], a, b) : NULL;
    default:
        return NULL;
    }
}

static struct uop *widen(struct widening *w, struct uop *e)
{
    struct uop *r = map_get(&w->done, e);
    if (r)
        return r;
    if (++w->depth <= MAX_DEPTH)
        r = widen_new(w, e);
    w->depth--;
    if (!r && e->dtype != DTYPE_U64)
        r = uop_cast(w->t, DTYPE_INDEX, e);
    if (r)
        map_set(&w->done, e, r);
    return r;
}

struct uop *known_index(struct tgc *t, struct uop *e)
{
    struct widening w = {.t = t, .done = {.t = t}};
    struct uop *r = widen(&w, e);
    return r ? r : uop_cast(t, DTYPE_INDEX, e);
}
