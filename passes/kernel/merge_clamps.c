/* merge_clamps.c - what is rounded and clamped several times on its way to a byte.
 *
 * Layers that stand for one operation of integers (a sum of a convolution and what is passed by it,
 * ReLU) each round to bytes and take them back. As floats these are
 *
 *      min(max(round(x) + 130, 0), 255) + -130   =   min(max(round(x), -130), 125)
 *      max(min(max(x, -133), 122) * 2, 0)        =   min(max(x, 0), 122) * 2
 *      min(max(x, 0), 255)                       =   x, if it is within them anyway
 *      round(x), x is NaN ? 0 : x                =   x, if it is a whole number already
 *
 * exactly, but for the sign of a zero, which a byte has not: so it is done below casts to bytes.
 */
#include "passes/analysis/bounds.h"
#include "passes/kernel/tile.h"

#include <math.h>
#include <string.h>

/* constants that sums of whole numbers beside them are exact with */
static const double small = 0x1p16;

/* most: knows more than what becomes of a clamp shall rest on, see bounds.h. */
struct clamps { struct tgc *t; struct bounds_memo memo, most; int steps; };

static bool is_const(const struct uop *u) { return u->op == OP_CONST && u->dtype == DTYPE_F32; }

static bool is_small_whole(const struct uop *u)
{
    return is_const(u) && fabs(u->arg.f) <= small && u->arg.f == rint(u->arg.f);
}

/* u + c where a sum below takes c; NULL: none does. low, high: the sum is clamped to what is small
 * on these sides, so that it need not be exact where it is large. */
static struct uop *merge_sum(struct clamps *s, struct uop *u, double c, bool low, bool high)
{
    struct tgc *t = s->t;
    if (--s->steps < 0 || u->nsrc != 2 || !is_small_whole(u->src[1]))
        return NULL;
    double k = u->src[1]->arg.f;
    if (u->op == OP_MIN || u->op == OP_MAX) {
        struct uop *x = merge_sum(s, u->src[0], c, low || u->op == OP_MAX, high || u->op == OP_MIN);
        return x ? uop_binary(t, u->op, x, uop_constf(t, DTYPE_F32, k + c)) : NULL;
    }
    struct bounds b = bounds_of(&s->most, u->src[0]);
    bool exact = (low && high && b.known) || (b.known && b.lo >= -small && b.hi <= small);
    if (u->op != OP_ADD || !exact || !bounds_is_whole(u->src[0]))
        return NULL;
    return k + c == 0 ? u->src[0]
                      : uop_binary(t, OP_ADD, u->src[0], uop_constf(t, DTYPE_F32, k + c));
}

/* op(u, c), a MIN or MAX, with what is clamped below already. */
static struct uop *clamp(struct clamps *s, enum op op, struct uop *u, struct uop *c)
{
    struct tgc *t = s->t;
    struct bounds b = bounds_of(&s->memo, u);
    if (b.known && (op == OP_MAX ? b.lo >= c->arg.f : b.hi <= c->arg.f))
        return u;
    struct uop *k = u->nsrc == 2 && is_const(u->src[1]) ? u->src[1] : NULL;
    if (!k || --s->steps < 0)
        return uop_binary(t, op, u, c);
    if (u->op == OP_MUL && c->arg.f == 0 && k->arg.f > 0)
        return uop_binary(t, OP_MUL, clamp(s, op, u->src[0], c), k);
    if (u->op == op)
        return uop_binary(t, op, u->src[0],
                          (op == OP_MAX) == (k->arg.f > c->arg.f) ? k : c);
    if (op == OP_MAX && u->op == OP_MIN && c->arg.f <= k->arg.f)
        return uop_binary(t, OP_MIN, clamp(s, op, u->src[0], c), k);
    return uop_binary(t, op, u, c);
}

/* What u is but for the sign of a zero. */
static struct uop *simplify(struct clamps *s, struct uop *u)
{
    struct uop *a, *b, *sum;
    if (--s->steps < 0 || u->dtype != DTYPE_F32)
        return u;
    switch (u->op) {
    case OP_ROUND:
        a = simplify(s, u->src[0]);
        return bounds_of(&s->most, a).known && bounds_is_whole(a) ? a
                                                                  : uop_unary(s->t, OP_ROUND, a);
    case OP_WHERE:                                       /* 0 where it is no number */
        a = u->src[2];
        return u->src[0]->op == OP_NE && u->src[0]->src[0] == a && u->src[0]->src[1] == a &&
                       bounds_of(&s->most, a).known
                   ? simplify(s, a)
                   : u;
    case OP_MIN: case OP_MAX:
        a = simplify(s, u->src[0]);
        return is_const(u->src[1]) ? clamp(s, u->op, a, u->src[1])
                                   : uop_binary(s->t, u->op, a, simplify(s, u->src[1]));
    case OP_ADD:
        a = simplify(s, u->src[0]);
        b = simplify(s, u->src[1]);
        if (uop_is_constf(b, 0.0))
            return a;
        sum = is_small_whole(b) ? merge_sum(s, a, b->arg.f, false, false) : NULL;
        return sum ? sum : uop_binary(s->t, OP_ADD, a, b);
    case OP_MUL:
        a = simplify(s, u->src[0]);
        return uop_binary(s->t, OP_MUL, a, simplify(s, u->src[1]));
    default: return u;
    }
}

struct uop *tile_fold_clamps(struct tgc *t, struct uop *store)
{
    enum { STEPS_MAX = 200 };
    struct uop *v = store->src[2], *src[80];
    struct clamps s = {
        .t = t, .memo = {.t = t}, .most = {.t = t, .most = true}, .steps = STEPS_MAX};
    if (!tile_stores_small(store, v) || !dtype_is_byte(v->dtype) || store->nsrc > 80)
        return store;
    struct uop *by = uop_cast(t, v->dtype, simplify(&s, v->src[0]));
    if (by == v || by->dtype != v->dtype)
        return store;
    uop_set_origin(t, by, v);
    memcpy(src, store->src, (size_t)store->nsrc * sizeof *src);
    src[2] = by;
    return uop_intern(t, OP_STORE, store->dtype, src, store->nsrc, store->arg);
}
