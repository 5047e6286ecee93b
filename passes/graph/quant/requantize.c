/* requantize.c - merges the scale of a sum of bytes and that of the result into one factor.
 *
 *      saturate(round((sum * s + b) / y) + zero)  =  saturate(round(sum * (s / y) + b / y) + zero).
 *      saturate(round((p * s + q * r) / y))       =  saturate(round(p * (s / y) + q * (r / y))).
 *      saturate(round((e / sum) / y) + zero)      =  saturate(round(e * (1 / y / sum)) + zero).
 *
 * The two sides differ only where the quotient is within a rounding error of the middle between two
 * results. The first line is for a sum of products, the second for a sum of two quantized tensors.
 * The third is softmax's, with one division a row if each row has its sum. A function of one
 * quantized value is not rewritten so. Its quotients are few, and many of them are such middles (13
 * * 0.1 / 0.2), so users would see other bytes than the specification's. But bytes requantized with
 * the same scale and zero point are the bytes themselves: of integers up to 2^16 (x * s) / s is
 * less than 2^-6 from x. The rules: passes/rules/scales.rules. */
#include "passes/analysis/rule_facts.h"
#include "passes/graph/quant/byte_sums.h"
#include "passes/rules/rules.h"

enum { LOOK_MAX = 200 };         /* uops that may be visited */

/* Whether a constant divisor of a sum of products can move through v. */
static bool is_passed(const struct uop *v)
{
    return v->op == OP_ADD || v->op == OP_MAX || v->op == OP_MUL || move_is(v, MOVES_VIEW);
}

/* Whether every dividend in v is computed from weights alone. *steps: how many uops may still be
 * visited. */
static bool divides_weights(const struct uop *v, int *steps)
{
    v = value_behind(v, MOVES_VIEW);
    bool sum = v->op == OP_ADD || v->op == OP_MAX;
    if (--*steps < 0 || (v->op == OP_DIV && !fact_known(NULL, v->src[0])))
        return false;
    return !sum || (divides_weights(v->src[0], steps) && divides_weights(v->src[1], steps));
}

/* Whether the dividend is a sum of two run-time values, a sum of products, or no function of bytes.
 * *steps: how many uops may still be visited. */
static bool may_merge(const struct uop *v, int *steps)
{
    v = value_behind(v, MOVES_VIEW);
    if (--*steps < 0)
        return false;
    if (v->op == OP_MUL)
        return fact_summed(NULL, v->src[0]);
    if (v->op == OP_MAX)
        return may_merge(v->src[0], steps);
    if (v->op != OP_ADD)
        return v->op == OP_DIV;
    bool known[2] = {fact_known(NULL, v->src[0]), fact_known(NULL, v->src[1])};
    return (!known[0] && !known[1]) || may_merge(v->src[known[0]], steps);
}

/* The quotient u without a division of what is known at run time alone; NULL: it has to stay. */
static struct uop *divide(struct tgc *t, struct uop *u)
{
    int steps = LOOK_MAX;
    struct mem_mark mark = scratch_mark(t);
    struct rule_walk walk = {.t = t, .set = RULES_divisions, .enter = is_passed, .steps = LOOK_MAX};
    struct uop *r = rules_walk(&walk, u);
    scratch_release(t, mark);
    return r != u && divides_weights(r, &steps) ? r : NULL;
}

/* What is computed of bytes before a cast to bytes. */
static bool is_of_bytes(const struct uop *v)
{
    return v->op == OP_ROUND || v->op == OP_MIN || is_passed(v);
}

/* The bytes q of the dtype d that v is, rounded and clamped; NULL: they are others. */
static struct uop *same_bytes(struct tgc *t, enum dtype d, struct uop *v)
{
    struct mem_mark mark = scratch_mark(t);
    struct rule_facts facts = {.bounds = {.t = t}, .most = {.t = t, .most = true}};
    struct rule_walk walk = {
        .t = t, .set = RULES_bytes, .facts = &facts, .enter = is_of_bytes, .steps = 50};
    struct path p = path_down(rules_walk(&walk, v), MOVES_VIEW);
    scratch_release(t, mark);
    bool same = p.base->op == OP_CAST && p.base->src[0]->dtype == d;
    return same ? path_up(t, &p, p.base->src[0]) : NULL;
}

/* Whether the scales cancel, and v is bytes less a zero point. */
static bool is_small(struct tgc *t, const struct uop *v)
{
    struct mem_mark mark = scratch_mark(t);
    struct rule_facts facts = {.bounds = {.t = t}, .most = {.t = t, .most = true}};
    bool small = fact_small(&facts, value_behind(v, MOVES_VIEW));
    scratch_release(t, mark);
    return small;
}

struct uop *requantize(struct tgc *t, struct uop *u)
{
    enum { STEPS = 4 };
    struct uop *step[STEPS], *v = u->src[0];
    int n = 0;
    for (; n < STEPS && (v->op == OP_MIN || v->op == OP_MAX || v->op == OP_ADD); v = v->src[0])
        step[n++] = v;
    if (v->op != OP_ROUND || v->src[0]->op != OP_DIV || v->dtype != DTYPE_F32)
        return NULL;
    const struct uop *by = value_behind(v->src[0]->src[1], MOVES_VIEW);
    if (by->op != OP_CONST || !(by->arg.f > 0 && by->arg.f < 0x1p110))
        return NULL;
    int steps = LOOK_MAX;
    bool merge = may_merge(v->src[0]->src[0], &steps);
    struct uop *r = divide(t, v->src[0]);
    if (!r)
        return NULL;
    merge = merge || is_small(t, r);
    r = uop_unary(t, OP_ROUND, r);
    while (n-- > 0)
        if (step[n]->op != OP_ADD || !uop_is_constf(value_behind(step[n]->src[1], MOVES_VIEW), 0))
            r = uop_binary(t, step[n]->op, r, step[n]->src[1]);
    struct uop *same = same_bytes(t, u->dtype, r);
    return same ? same : merge ? uop_cast(t, u->dtype, r) : NULL;
}

struct uop *rescale(struct tgc *t, struct uop *u)
{
    int rule;
    return rules_match(t, RULES_scales, NULL, u, &rule);
}
