/* exact_floats.c - computes integers in floats where these are exact, since vectors have all
 * operations on floats.
 *
 * Some sums have no groups of bytes in byte_sums.c: depthwise convolutions, products of two
 * run-time values, weights without columns. They are sums of integers below 2^24, in any order of
 * summation. With a weight, w' = w - zw,
 *
 *      sum over k of (a[i,k] - za) * w'[k,j]  =  sum over k of a[i,k] * w'[k,j]  -  za * W'[j]
 *
 * so bytes are loaded, and padding is bytes that stand for 0; without a weight, zero points are
 * subtracted from the factors. A maximum of bytes is the maximum of the same floats.
 *
 * A program without vectors multiplies integers, so that its weights stay bytes. */
#include "passes/analysis/bounds.h"
#include "passes/graph/quant/byte_sums.h"

#include <math.h>

static const double exact = 0x1p24;

/* An upper bound of |q - zero| of the operand. */
static double largest_of(const struct operand *o)
{
    int64_t zero;
    struct element_bounds e;
    if (o->zero && !uop_const_int(o->zero, &zero))
        return 255;
    zero = o->zero ? zero : 0;
    if (!buffer_bounds(known_behind(o->q), SIZE_MAX, &e)) {
        e.lo.i = dtype_min(o->q->dtype);
        e.hi.i = dtype_max(o->q->dtype);
    }
    return fmax(fabs((double)(e.lo.i - zero)), fabs((double)(e.hi.i - zero)));
}

/* q - zero as floats. */
static struct uop *centered(struct tgc *t, const struct operand *o)
{
    struct uop *x = uop_cast(t, DTYPE_F32, o->q);
    int64_t zero;
    if (!o->zero || (uop_const_int(o->zero, &zero) && zero == 0))
        return x;
    return uop_const_int(o->zero, &zero)
               ? tensor_binary(t, OP_ADD, x, uop_constf(t, DTYPE_F32, (double)-zero))
               : tensor_binary(t, OP_SUB, x, uop_cast(t, DTYPE_F32, o->zero));
}

static struct uop *sum_of_values(const struct sum_of_bytes *s)
{
    struct tgc *t = s->t;
    struct operand a = s->a, w = s->w;
    int none = -1;
    struct uop *left = centered(t, &a), *right = centered(t, &w);
    a.zero = w.zero = NULL;                               /* padding is 0 */
    left = move_again(t, &a, left, &none);
    none = -1;
    right = move_again(t, &w, right, &none);
    return bytes_scale_sum(s, contraction_like(t, s->reduce, left, right));
}

/* w' as integers that are loaded as bytes. */
static struct uop *widened(const struct sum_of_bytes *s)
{
    int64_t rest = 0;
    struct uop *bytes = weight_as_i8(s, &rest);
    if (bytes && !rest)
        return uop_cast(s->t, DTYPE_I32, bytes);
    struct uop *wide = uop_cast(s->t, DTYPE_I32, s->w.q);
    return s->w.zero ? tensor_binary(s->t, OP_SUB, wide, s->w.zero) : wide;
}

static struct uop *sum_of_weights(const struct sum_of_bytes *s)
{
    struct tgc *t = s->t;
    enum dtype d = t->scalar ? DTYPE_I32 : DTYPE_F32;
    int none = -1;
    struct uop *weights = t->scalar ? widened(s) : weights_evaluate(t, centered(t, &s->w));
    if (!weights)
        return NULL;
    struct uop *w = move_again(t, &s->w, weights, &none);
    none = -1;
    struct uop *a = uop_cast(t, d, move_again(t, &s->a, s->a.q, &none));
    struct uop *sum = contraction_like(t, s->reduce, a, w);
    if (s->a.zero && !uop_is_int(s->a.zero, 0)) {
        struct uop *each = weights_sum(s, w, d);
        if (!each)
            return NULL;
        each = tensor_binary(t, OP_MUL, each, uop_cast(t, d, s->a.zero));
        sum = tensor_binary(t, OP_SUB, sum, each);
    }
    return bytes_scale_sum(s, sum);
}

struct uop *whole_rewrite_sum(const struct sum_of_bytes *s)
{
    double each = s->weighted ? 255 : largest_of(&s->a);
    if (products_of(s) * each * largest_of(&s->w) > exact || (s->weighted && s->w.zero &&
                                                             s->w.zero->op != OP_CONST))
        return NULL;
    return s->weighted ? sum_of_weights(s) : sum_of_values(s);
}

/* The axis of m's source `at` after m: a WINDOW (the outputs, not the taps) or a PERMUTE. */
static int axis_after(const struct uop *m, int at)
{
    int now = 0;
    if (m->op == OP_WINDOW)
        return at + (at > WINDOW_AXIS(m->arg.i));
    while (PERM_GET(m->arg.i, now) != at)
        now++;
    return now;
}

/* Whether along `axes` every window contains an element that is not padding. Expects padding first,
 * if any, then windows that are wider than the padding on a side, then a permutation. */
static bool windows_reach(const struct operand *o, uint32_t axes)
{
    int at[MAX_RANK], tap[MAX_RANK], first = o->path.n - 1;
    const struct uop *pad =
        first >= 0 && o->path.move[first]->op == OP_PAD ? o->path.move[first] : NULL;
    for (int i = 0; i < first + (pad == NULL); i++)
        if (o->path.move[i]->op == OP_PAD ||
            (pad && o->path.move[i]->op != OP_WINDOW && o->path.move[i]->op != OP_PERMUTE))
            return false;
    for (int a = 0; pad && a < pad->ndim; a++) {
        at[a] = a;
        tap[a] = -1;
    }
    for (int i = first - 1; pad && i >= 0; i--) {
        const struct uop *w = o->path.move[i];
        for (int a = 0; a < pad->ndim; a++) {
            int64_t taps, lo, hi;
            if (w->op == OP_WINDOW && tap[a] == WINDOW_AXIS(w->arg.i))
                return false;                             /* it sees some of the taps */
            int axis = w->op == OP_WINDOW && tap[a] < 0 ? WINDOW_AXIS(w->arg.i) : -1;
            bool reaches = at[a] == axis && WINDOW_DILATION(w->arg.i) == 1 &&
                           uop_const_int(w->dim[axis + 1], &taps) &&
                           uop_const_int(pad->src[2 + 2 * a], &lo) &&
                           uop_const_int(pad->src[3 + 2 * a], &hi) && lo < taps && hi < taps;
            tap[a] = reaches ? axis + 1 : tap[a] >= 0 ? axis_after(w, tap[a]) : -1;
            at[a] = axis_after(w, at[a]);
        }
    }
    for (int a = 0; pad && a < pad->ndim; a++)
        if (!(tap[a] >= 0 && (axes >> tap[a] & 1)) &&
            !(uop_is_int(pad->src[2 + 2 * a], 0) && uop_is_int(pad->src[3 + 2 * a], 0)))
            return false;
    return true;
}

static bool pads_lowest(const struct uop *v)
{
    return v->op == OP_PAD && v->src[1]->op == OP_CONST && v->src[1]->arg.f < 0 &&
           isinf(v->src[1]->arg.f);
}

/* Whether v is a monotone (non-decreasing) function of v->src[0] with constant parameters, and
 * never NaN. */
static bool never_falls(const struct uop *v)
{
    const struct uop *c = v->nsrc == 2 ? value_behind(v->src[1], MOVES_VIEW) : NULL;
    if (!c || c->op != OP_CONST || v->dtype != DTYPE_F32 || !(fabs(c->arg.f) < INFINITY))
        return false;
    return v->op == OP_ADD || v->op == OP_MAX || v->op == OP_MIN ||
           (v->op == OP_MUL && c->arg.f > 0);
}

/* A maximum of (q - zero) * scale with scale > 0, or of monotone functions of it, as the maximum of
 * q. Padding with -INFINITY becomes padding with the least byte. */
static struct uop *largest_dequantized(struct tgc *t, struct uop *u)
{
    enum { STEPS_MAX = 8 };
    struct operand o = {0};
    struct uop *v = u->src[0], *step[STEPS_MAX], *q;
    int none = -1, nstep = 0;
    for (; pads_lowest(v) || (move_is(v, MOVES_VIEW)); v = v->src[0]) {
        if (o.path.n == PATH_MAX)
            return NULL;
        o.path.move[o.path.n++] = v;
    }
    for (; nstep < STEPS_MAX && never_falls(v); v = v->src[0])
        step[nstep++] = v;
    q = v->op == OP_CAST ? v->src[0] : NULL;
    if (nstep == 0 || !q || !dtype_is_byte(q->dtype) || !windows_reach(&o, REDUCE_AXES(u->arg.i)))
        return NULL;
    o.zero = uop_consti(t, DTYPE_I32, dtype_min(q->dtype));
    q = move_again(t, &o, q, &none);
    struct uop *y = uop_reduce(t, OP_MAX, uop_cast(t, DTYPE_F32, q), REDUCE_AXES(u->arg.i));
    while (nstep-- > 0)
        y = tensor_binary(t, step[nstep]->op, y, value_behind(step[nstep]->src[1], MOVES_VIEW));
    return y;
}

struct uop *whole_rewrite_most(struct tgc *t, struct uop *u)
{
    enum op op = (enum op)REDUCE_OP(u->arg.i);
    if (op == OP_MAX && u->dtype == DTYPE_F32)
        return largest_dequantized(t, u);
    if ((op != OP_MAX && op != OP_MIN) || !dtype_is_byte(u->dtype))
        return NULL;
    struct uop *x = uop_cast(t, DTYPE_F32, u->src[0]);
    return uop_cast(t, u->dtype, uop_reduce(t, op, x, REDUCE_AXES(u->arg.i)));
}

/* (f32)((i32)v + b), for integer-valued v and weights b, as a sum of floats if that is exact. */
static struct uop *add_weights(struct tgc *t, const struct uop *v)
{
    for (int k = 0; k < 2 && v->op == OP_ADD && v->dtype == DTYPE_I32; k++) {
        int steps = WHOLE_STEPS;
        struct uop *b = v->src[1 - k];
        if (!known_behind(b) || value_behind(v->src[k], MOVES_VIEW)->op != OP_CAST)
            continue;
        struct uop *a = whole_rewrite_cast(t, uop_cast(t, DTYPE_F32, v->src[k]));
        if (a && value_magnitude(a, &steps) + value_magnitude(b, &steps) <= exact)
            return uop_binary(t, OP_ADD, a, uop_cast(t, DTYPE_F32, b));
    }
    return NULL;
}

struct uop *whole_rewrite_cast(struct tgc *t, struct uop *u)
{
    int steps = WHOLE_STEPS;
    struct path p = path_down(u->src[0], MOVES_VIEW);
    struct uop *v = p.base;
    struct uop *x = v->op == OP_CAST && v->dtype == DTYPE_I32 && value_is_whole(v->src[0], &steps)
                        ? v->src[0]
                        : add_weights(t, v);
    return x ? path_up(t, &p, x) : NULL;
}
