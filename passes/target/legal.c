/* legal.c - what bounds allow a language to write plainly: operators whose overflow, or whose
 * operands out of range, are undefined there and defined in the IR, casts that lose nothing, and
 * functions that need not care for NaN.
 */
#include "passes/target/legal.h"

#include <math.h>

/* A range of integers. */
struct span { int64_t lo, hi; };

static struct span span_sum(struct span a, struct span b)
{
    return (struct span){sat_add(a.lo, b.lo), sat_add(a.hi, b.hi)};
}

static int64_t sat_neg(int64_t v) { return v == INT64_MIN ? INT64_MAX : -v; }

static struct span span_negated(struct span a)
{
    return (struct span){sat_neg(a.hi), sat_neg(a.lo)};
}

static struct span span_product(struct span a, struct span b)
{
    int64_t v[4] = {sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi), sat_mul(a.hi, b.lo),
                    sat_mul(a.hi, b.hi)};
    struct span r = {v[0], v[0]};
    for (int i = 1; i < 4; i++) {
        r.lo = v[i] < r.lo ? v[i] : r.lo;
        r.hi = v[i] > r.hi ? v[i] : r.hi;
    }
    return r;
}

static struct span span_hull(struct span a, struct span b)
{
    return (struct span){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

/* Bounds of the op's result in unlimited integers. INT64_MIN and INT64_MAX mean that they may be
 * beyond these. */
static struct span span_exact(const struct uop *u)
{
    struct span v[3] = {{0, 0}, {0, 0}, {0, 0}};
    for (int i = 0; i < u->nsrc && i < 3; i++)
        v[i] = (struct span){u->src[i]->vmin, u->src[i]->vmax};
    switch (u->op) {
    case OP_NEG: return span_negated(v[0]);
    case OP_ABS: {
        struct span n = span_negated(v[0]);
        return (struct span){0, v[0].hi > n.hi ? v[0].hi : n.hi};
    }
    case OP_ADD: return span_sum(v[0], v[1]);
    case OP_SUB: return span_sum(v[0], span_negated(v[1]));
    case OP_MUL: return span_product(v[0], v[1]);
    case OP_MULACC: return span_sum(span_product(v[0], v[1]), v[2]);
    case OP_DIV: case OP_FLOORDIV:                   /* the least integer divided by -1 overflows */
        return v[1].lo <= -1 && v[1].hi >= -1
                   ? span_hull((struct span){u->vmin, u->vmax}, span_negated(v[0]))
                   : (struct span){u->vmin, u->vmax};
    case OP_SHL:
        if (v[0].lo < 0 || v[1].lo < 0 || v[1].hi > 30)
            return (struct span){INT64_MIN, INT64_MAX};
        return span_product(v[0], (struct span){1, (int64_t)1 << v[1].hi});
    case OP_NOT: return (struct span){-1 - v[0].hi, -1 - v[0].lo};
    default: return (struct span){u->vmin, u->vmax};
    }
}

static bool within(struct span b, int64_t lo, int64_t hi)
{
    return b.lo >= lo && b.hi <= hi && b.lo > INT64_MIN && b.hi < INT64_MAX;
}

bool legal_fits(const struct uop *u, int64_t least, int64_t most)
{
    return within(span_exact(u), least, most);
}

static bool is_clamp(const struct uop *u, enum op op, double least, double most)
{
    const struct uop *c = u->nsrc == 2 ? u->src[1] : NULL;
    c = c && c->op == OP_SPLAT ? c->src[0] : c;
    return u->op == op && c && c->op == OP_CONST && c->arg.f >= least && c->arg.f <= most;
}

/* min(max(x, ..), ..) with a result that fits in an u8, or is NaN. */
static bool is_in_u8(const struct uop *u)
{
    return is_clamp(u, OP_MIN, 0, 255) && is_clamp(u->src[0], OP_MAX, 0, 255);
}

bool legal_is_number(const struct uop *u)
{
    if (u->op == OP_SPLAT)
        return u->src[0]->op == OP_CONST && !isnan(u->src[0]->arg.f);
    return u->op == OP_CAST && dtype_is_int(u->src[0]->dtype);
}

bool legal_is_extreme(const struct uop *u)
{
    return (u->op == OP_MAX || u->op == OP_MIN) && u->lanes > 1 && u->dtype == DTYPE_F32;
}

/* Integers as another integer: the value fits. As a narrow float: an f32, from which it is rounded,
 * holds it. A vector of floats as bytes: the value, if it is a number, fits. */
static bool is_plain_cast(const struct uop *u)
{
    const struct uop *x = u->src[0];
    const int64_t most = dtype_is_float(u->dtype) ? 1 << 24 : dtype_max(u->dtype);
    if (dtype_is_float(x->dtype))
        return u->lanes > 1 && u->dtype == DTYPE_U8 && is_in_u8(x);
    return x->dtype != DTYPE_U64 && x->vmax <= most &&
           x->vmin >= (dtype_is_float(u->dtype) ? -most : dtype_min(u->dtype));
}

bool legal_is_plain(const struct uop *u, int bits)
{
    int64_t lo = bits == 32 ? INT32_MIN : INT64_MIN, hi = bits == 32 ? INT32_MAX : INT64_MAX;
    const struct uop *a = u->src[0], *b = u->nsrc > 1 ? u->src[1] : NULL;
    switch (u->op) {
    case OP_NEG: case OP_ABS: case OP_ADD: case OP_SUB: case OP_MUL: case OP_MULACC: case OP_SHL:
        return within(span_exact(u), lo, hi);
    case OP_DIV: case OP_MOD:
        return b->vmin > 0 || (b->vmax < 0 && (a->vmin > lo || b->vmax < -1));
    case OP_FLOORDIV: case OP_FLOORMOD:
        return a->vmin >= 0 && b->vmin > 0;
    case OP_SHR:
        return a->vmin >= 0 && b->vmin >= 0 && b->vmax < bits;
    case OP_POW:
        return false;
    case OP_CAST:
        return is_plain_cast(u);
    case OP_MAX: case OP_MIN:
        return !legal_is_extreme(u) || legal_is_number(a) || legal_is_number(b);
    default:
        return true;
    }
}

bool legal_is_conditional(const struct uop *u)
{
    const enum dtype d = u->dtype, from = u->nsrc ? u->src[0]->dtype : d;
    switch (u->op) {
    case OP_NEG: case OP_ABS: case OP_ADD: case OP_SUB: case OP_MUL: case OP_MULACC: case OP_SHL:
    case OP_DIV: case OP_MOD: case OP_FLOORDIV: case OP_FLOORMOD: case OP_SHR:
        return dtype_is_int(d) && d != DTYPE_U32 && d != DTYPE_U64 && u->lanes == 1;
    case OP_CAST:
        return d != DTYPE_BOOL && d != DTYPE_STRING && d != DTYPE_F32 && d != DTYPE_F64 &&
               (from == DTYPE_BOOL || dtype_is_int(from) || u->lanes > 1);
    default:
        return legal_is_extreme(u);
    }
}

