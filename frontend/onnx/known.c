/* known.c - integers that a model computes in narrow or floating types, as expressions of
 * dimensions.
 *
 * Exporters compute sizes as i32, or as floats: Cast(Shape(x)) * 0.5, Floor, Cast back. If the
 * bounds prove that nothing wraps, the same expression over INDEX scalars can be compared with
 * other dimensions. A float expression is kept as a fraction num / den of an INDEX scalar; FLOOR,
 * CEIL and a cast to an integer turn it back. Other expressions are left alone.
 */
#include <math.h>

#include "frontend/onnx/lower.h"

struct fraction {
    struct uop *num;
    int64_t den;
};
enum { MAX_DEPTH = 64, MAX_DEN = 1 << 16 };

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

/* v = p / q with a small q. */
static bool as_fraction(double v, int64_t *p, int64_t *q)
{
    for (*q = 1; *q <= 4096; ++*q) {
        double scaled = v * (double)*q;
        if (fabs(scaled) > 1e12)
            return false;
        *p = (int64_t)nearbyint(scaled);
        if (fabs(scaled - (double)*p) <= 1e-9 * fabs(scaled))
            return true;
    }
    return false;
}

/* A float expression as a fraction; num NULL: it is not one. */
static struct fraction fraction_of(struct widening *w, struct uop *e)
{
    struct tgc *t = w->t;
    struct fraction none = {NULL, 0}, a, b;
    int64_t p, q;
    if (++w->depth > MAX_DEPTH) {
        w->depth--;
        return none;
    }
    struct fraction r = none;
    switch (e->op) {
    case OP_CONST:
        if (as_fraction(e->arg.f, &p, &q))
            r = (struct fraction){uop_int(t, p), q};
        break;
    case OP_CAST:
        if (dtype_is_float(e->src[0]->dtype))
            r = fraction_of(w, e->src[0]);
        else if (dtype_is_int(e->src[0]->dtype) && (r.num = widen(w, e->src[0])))
            r.den = 1;
        break;
    case OP_FLOOR:
    case OP_TRUNC:
    case OP_CEIL:
        a = fraction_of(w, e->src[0]);
        if (a.num && (e->op != OP_TRUNC || a.num->vmin >= 0))
            r = (struct fraction){e->op == OP_CEIL ? sym_ceildiv(t, a.num, a.den)
                                                   : sym_div(t, a.num, uop_int(t, a.den)),
                                  1};
        break;
    case OP_MUL:
    case OP_ADD:
    case OP_SUB:
    case OP_DIV:
        a = fraction_of(w, e->src[0]);
        b = fraction_of(w, e->src[1]);
        if (!a.num || !b.num || a.den > MAX_DEN || b.den > MAX_DEN)
            break;
        if (e->op == OP_MUL)
            r = (struct fraction){sym_mul(t, a.num, b.num), a.den * b.den};
        else if (e->op == OP_DIV && uop_const_int(b.num, &p) && p > 0 && p <= MAX_DEN)
            r = (struct fraction){sym_muli(t, a.num, b.den), a.den * p};
        else if (e->op != OP_DIV) {
            struct uop *x = sym_muli(t, a.num, b.den), *y = sym_muli(t, b.num, a.den);
            r = (struct fraction){e->op == OP_ADD ? sym_add(t, x, y) : sym_sub(t, x, y),
                                  a.den * b.den};
        }
        if (r.num && r.den > 1 && uop_const_int(r.num, &p) && p % r.den == 0)
            r = (struct fraction){uop_int(t, p / r.den), 1};
        break;
    default:
        break;
    }
    w->depth--;
    return r.den > 0 && r.den <= (int64_t)MAX_DEN * MAX_DEN ? r : none;
}

/* An integer expression over INDEX scalars; NULL: it is not one. */
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
        if (dtype_is_float(e->src[0]->dtype)) {
            struct fraction f = fraction_of(w, e->src[0]);
            a = f.num && (f.den == 1 || f.num->vmin >= 0)
                    ? f.den == 1 ? f.num : sym_div(t, f.num, uop_int(t, f.den))
                    : NULL;
        } else {
            a = dtype_is_int(e->src[0]->dtype)   ? widen(w, e->src[0])
                : e->src[0]->dtype == DTYPE_BOOL ? uop_cast(t, DTYPE_INDEX, e->src[0])
                                                 : NULL;
        }
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
