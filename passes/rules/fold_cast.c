/* fold_cast.c - quantized values that stay floats: what is rounded, clamped to an integer type and
 * read again needs no integer in between.
 *
 *      (f32)(u8)min(max(round(x) + 3, 0), 255)   =   min(max(round(x) + 3, 0), 255), but 0 for NaN,
 *                                               which is tested for unless x is known to be finite
 *      (f32)((i32)q - 3)                         =   (f32)q - 3
 *
 * (Quantization and dequantization as separate operators: ONNX QuantizeLinear, DequantizeLinear.)
 */
#include "passes/rules/rules.h"

#include <math.h>

/* Integers up to this size are floats of dtype d. */
static double exact_up_to(enum dtype d)
{
    return d == DTYPE_F64 ? 0x1p53 : d == DTYPE_F32 ? 0x1p24 : 0;
}

static bool is_within(const struct uop *u, double most)
{
    return (double)u->vmin >= -most && (double)u->vmax <= most;
}

struct uop *fold_cast_sum(struct tgc *t, struct uop *u, struct uop *x, struct uop *c0)
{
    double most = exact_up_to(u->dtype);
    enum dtype d = c0->dtype;
    if (!is_within(x, most) || !is_within(c0, most))
        return NULL;
    double least = (double)x->vmin + (double)c0->arg.i,
           largest = (double)x->vmax + (double)c0->arg.i;
    if (least < -most || largest > most || least < (double)dtype_min(d) ||
        largest > (double)dtype_max(d))
        return NULL;                                  /* rounded, or wrapped */
    return uop_binary(t, OP_ADD, uop_cast(t, u->dtype, x),
                      uop_constf(t, u->dtype, (double)c0->arg.i));
}

/* An integer that both can hold; -0 is none. */
static bool is_whole(const struct uop *c, double most)
{
    double v = c->arg.f;
    return v >= -most && v <= most && v == (double)(int64_t)v && !(v == 0 && __builtin_signbit(v));
}

/* What |u| cannot exceed, in f32 as well; INFINITY: not known, or it may be no number. *steps: how
 * many uops may still be looked at. */
static double magnitude(const struct uop *u, int *steps)
{
    enum { LOOK_MAX = 8192 };
    struct element_bounds e;
    double v[3] = {0, 0, 0}, most;
    if (--*steps < 0 || u->dtype != DTYPE_F32)
        return INFINITY;
    if (u->op == OP_CONST)
        return u->arg.f == u->arg.f ? fabs(u->arg.f) : INFINITY;
    if (u->op == OP_LOAD)
        return buffer_bounds(uop_buffer_of(u->src[0]), LOOK_MAX, &e)
                   ? fmax(fabs(e.lo.f), fabs(e.hi.f))
                   : INFINITY;
    if (u->op == OP_CAST && dtype_is_int(u->src[0]->dtype) && u->src[0]->dtype != DTYPE_U64)
        return fmax(fabs((double)u->src[0]->vmin), fabs((double)u->src[0]->vmax));
    for (int k = u->op == OP_WHERE; k < u->nsrc && k < 3; k++)
        v[k] = magnitude(u->src[k], steps);
    switch (u->op) {
    case OP_ADD: case OP_SUB: most = v[0] + v[1]; break;
    case OP_MUL: most = v[0] * v[1]; break;
    case OP_MAX: case OP_MIN: case OP_WHERE: most = fmax(v[0], fmax(v[1], v[2])); break;
    case OP_NEG: case OP_ABS: most = v[0]; break;
    case OP_ROUND: case OP_TRUNC: most = v[0] + 1; break;
    default: return INFINITY;
    }
    return most < 1e38 ? most : INFINITY;            /* roundings on the way change little */
}

struct uop *fold_requantize(struct tgc *t, struct uop *u, struct uop *x, struct uop *c0,
                            struct uop *c1, struct uop *c2)
{
    struct uop *clamped = u->src[0]->src[0];
    int steps = 100;
    enum dtype d = u->src[0]->dtype;
    double most = exact_up_to(u->dtype);
    if (u->ndim > 0)
        return NULL; /* what is kept of a tensor is bytes; within a kernel it is floats */
    if (u->dtype != clamped->dtype || d == DTYPE_U64 || !is_whole(c0, most) ||
        !is_whole(c1, most) || !is_whole(c2, most) || c1->arg.f < (double)dtype_min(d) ||
        c2->arg.f > (double)dtype_max(d) || c1->arg.f > c2->arg.f)
        return NULL;
    if (magnitude(x, &steps) < INFINITY)
        return clamped;
    return uop_where(t, uop_binary(t, OP_NE, clamped, clamped), uop_constf(t, u->dtype, 0),
                     clamped);
}

/* The same without a sum, whose zeros have a sign that an integer has not. */
struct uop *fold_requantize_at_0(struct tgc *t, struct uop *u, struct uop *x, struct uop *c1,
                                 struct uop *c2)
{
    struct uop *r = fold_requantize(t, u, x, c1, c1, c2);
    return r ? uop_binary(t, OP_ADD, r, uop_constf(t, u->dtype, 0)) : NULL;
}
