/* requantize.c - merges the scale of a sum of bytes and that of the result into one factor.
 *
 *      saturate(round((sum * s + b) / y) + zero)  =  saturate(round(sum * (s / y) + b / y) + zero)
 *      saturate(round((e / sum) / y) + zero)      =  saturate(round(e * (1 / y / sum)) + zero)
 *
 * The two sides differ only where the sum is within a rounding error of the middle between two
 * results. The second line is softmax's: one division a row, if the sum is that of a row. The scale
 * of dequantized bytes is merged with a constant divisor in the same way. Bytes requantized with
 * the same scale and zero point are the bytes themselves.
 */
#include "passes/graph/quant/byte_sums.h"
#include "passes/rules/rules.h"

#include <math.h>
#include <string.h>

/* Computed from weights and constants. *steps: how many uops may still be visited, here and
 * below. */
static bool is_constant(const struct uop *v, int *steps)
{
    v = value_behind(v, MOVES_VIEW);
    if (v->op == OP_CONST || known_buffer(v))
        return true;
    bool all = op_is_elementwise(v->op);
    for (int k = 0; k < v->nsrc && all; k++)
        all = --*steps > 0 && is_constant(v->src[k], steps);
    return all;
}

/* v / c for a quotient v whose divisor is invariant along some axis; NULL: v is none. */
static struct uop *divide_quotient(struct tgc *t, struct uop *v, double c)
{
    struct path by = path_down(v->op == OP_DIV ? v->src[1] : v, MOVES_VIEW);
    bool spread = false;
    for (int i = 0; i < by.n; i++)
        spread |= by.move[i]->op == OP_EXPAND;
    if (v->op != OP_DIV || !spread || by.base->op == OP_CONST)
        return NULL;
    struct uop *factor = tensor_binary(t, OP_DIV, uop_constf(t, DTYPE_F32, 1 / c), by.base);
    return uop_binary(t, OP_MUL, v->src[0], path_up(t, &by, factor));
}

/* v / c as a sum of products with divided constants; NULL: v is no such sum. */
static struct uop *divide(struct tgc *t, struct uop *v, double c, int *steps)
{
    struct uop *src[MAX_RANK * 2 + 2];
    if (--*steps < 0)
        return NULL;
    if (move_is(v, MOVES_VIEW)) {
        memcpy(src, v->src, (size_t)v->nsrc * sizeof *src);
        src[0] = divide(t, v->src[0], c, steps);
        return src[0] ? uop_replace_src(t, v, src) : NULL;
    }
    if (is_constant(v, steps))
        return tensor_binary(t, OP_DIV, v, uop_constf(t, DTYPE_F32, c));
    for (int k = 0; k < 2 && v->op == OP_MUL; k++)
        if (fact_counted(NULL, v->src[1 - k]) && is_constant(v->src[k], steps) &&
            (src[k] = divide(t, v->src[k], c, steps)))
            return tensor_binary(t, OP_MUL, v->src[1 - k], src[k]);
    if (v->op != OP_ADD &&
        !(v->op == OP_MAX && uop_is_constf(value_behind(v->src[1], MOVES_VIEW), 0.0)))
        return NULL;
    for (int k = 0; k < 2; k++)
        if (!(src[k] = divide(t, v->src[k], c, steps)))
            return NULL;
    return tensor_binary(t, v->op, src[0], src[1]);
}

/* The bytes q of which v is q - zero, cast to bytes with the same zero point again: q, through
 * movement. NULL: they are others. */
static struct uop *same_bytes(struct tgc *t, const struct uop *u, struct uop *v,
                              struct uop *const *step, int n)
{
    struct path p = path_down(v, MOVES_VIEW);
    double zero = 0, least = (double)dtype_min(u->dtype), most = (double)dtype_max(u->dtype);
    v = p.base;
    if (v->op == OP_ADD && value_behind(v->src[1], MOVES_VIEW)->op == OP_CONST) {
        zero -= value_behind(v->src[1], MOVES_VIEW)->arg.f;
        v = v->src[0];
    }
    for (int i = 0; i < n; i++) {
        const struct uop *c = value_behind(step[i]->src[1], MOVES_VIEW);
        bool fits = c->op == OP_CONST && (step[i]->op == OP_MIN   ? c->arg.f >= most
                                          : step[i]->op == OP_MAX ? c->arg.f <= least
                                                                  : i == n - 1);
        if (!fits)
            return NULL;
        zero -= step[i]->op == OP_ADD ? c->arg.f : 0;
    }
    return zero == 0 && v->op == OP_CAST && v->src[0]->dtype == u->dtype
               ? path_up(t, &p, v->src[0])
               : NULL;
}

struct uop *requantize(struct tgc *t, struct uop *u)
{
    enum { LOOK_MAX = 200, STEPS = 4 };
    struct uop *step[STEPS], *v = u->src[0];
    int n = 0, steps = LOOK_MAX;
    for (; n < STEPS && (v->op == OP_MIN || v->op == OP_MAX || v->op == OP_ADD); v = v->src[0])
        step[n++] = v;
    if (v->op != OP_ROUND || v->src[0]->op != OP_DIV || v->dtype != DTYPE_F32)
        return NULL;
    const struct uop *by = value_behind(v->src[0]->src[1], MOVES_VIEW);
    if (by->op != OP_CONST || !(by->arg.f > 0))
        return NULL;
    struct uop *r = divide(t, v->src[0]->src[0], by->arg.f, &steps);
    if (!r && !(r = divide_quotient(t, v->src[0]->src[0], by->arg.f)))
        return NULL;
    struct uop *same = same_bytes(t, u, r, step, n);
    if (same)
        return same;
    r = uop_unary(t, OP_ROUND, r);
    while (n-- > 0)
        if (step[n]->op != OP_ADD || !uop_is_constf(value_behind(step[n]->src[1], MOVES_VIEW), 0))
            r = uop_binary(t, step[n]->op, r, step[n]->src[1]);
    return uop_cast(t, u->dtype, r);
}

struct uop *rescale(struct tgc *t, struct uop *u)
{
    int rule;
    return rules_match(t, RULES_scales, NULL, u, &rule);
}
