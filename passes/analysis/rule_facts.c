/* rule_facts.c - the facts for which guards of named sets of rules ask (RULE_FACT in
 * passes/rules/rules.def). */
#include "passes/analysis/rule_facts.h"
#include "passes/analysis/stationary.h"
#include "passes/rules/rules.h"

#include <math.h>

enum { KNOWN_STEPS = 200 };

double fact_lo(struct rule_facts *facts, const struct uop *u)
{
    struct bounds b = bounds_of(&facts->bounds, u);
    return b.known ? b.lo : -INFINITY;
}

double fact_hi(struct rule_facts *facts, const struct uop *u)
{
    struct bounds b = bounds_of(&facts->bounds, u);
    return b.known ? b.hi : INFINITY;
}

bool fact_number(struct rule_facts *facts, const struct uop *u)
{
    return bounds_of(&facts->most, u).known;
}

bool fact_whole(struct rule_facts *facts, const struct uop *u)
{
    (void)facts;
    return u->op == OP_CONST ? rule_integral(u) && fabs(u->arg.f) <= 0x1p24 : bounds_is_whole(u);
}

bool fact_counted(struct rule_facts *facts, const struct uop *u)
{
    int steps = WHOLE_STEPS;
    const struct uop *v = value_behind(u, MOVES_VIEW);
    (void)facts;
    if (v->op == OP_ADD && value_behind(v->src[1], MOVES_VIEW)->op == OP_CONST)
        v = value_behind(v->src[0], MOVES_VIEW);
    return (v->op == OP_CAST && dtype_is_int(v->src[0]->dtype)) ||
           ((v->op == OP_REDUCE || v->op == OP_SUB) && value_is_whole(v, &steps));
}

/* Whether u is made of sums of products by steps that keep integers: corrections, casts, movement.
 * The search ends at bytes, whatever they were computed from. *steps: how many uops may still be
 * visited. */
static bool has_products(const struct uop *u, int *steps)
{
    u = value_behind(u, MOVES_VIEW);
    if (--*steps < 0)
        return false;
    if (u->op == OP_REDUCE)
        return REDUCE_OP(u->arg.i) == OP_ADD && value_behind(u->src[0], MOVES_VIEW)->op == OP_MUL;
    if (u->op == OP_CAST)
        return dtype_bits(u->src[0]->dtype) >= 32 && has_products(u->src[0], steps);
    return (u->op == OP_ADD || u->op == OP_SUB) &&
           (has_products(u->src[0], steps) || has_products(u->src[1], steps));
}

bool fact_summed(struct rule_facts *facts, const struct uop *u)
{
    int steps = WHOLE_STEPS;
    return fact_counted(facts, u) && has_products(u, &steps);
}

/* *steps: how many uops may still be visited. */
static bool is_known(const struct uop *u, int *steps)
{
    u = value_behind(u, MOVES_VIEW);
    bool all = op_is_elementwise(u->op);
    if (u->op == OP_CONST || known_buffer(u))
        return true;
    for (int k = 0; k < u->nsrc && all; k++)
        all = --*steps > 0 && is_known(u->src[k], steps);
    return all;
}

bool fact_known(struct rule_facts *facts, const struct uop *u)
{
    int steps = KNOWN_STEPS;
    (void)facts;
    return is_known(u, &steps);
}

bool fact_repeats(struct rule_facts *facts, const struct uop *u)
{
    (void)facts;
    while (move_is(u, MOVES_VIEW) && u->op != OP_EXPAND)
        u = u->src[0];
    return u->op == OP_EXPAND;
}

bool fact_small(struct rule_facts *facts, const struct uop *u)
{
    const double small = 0x1p16;
    struct bounds b = bounds_of(&facts->most, u);
    return b.known && b.lo >= -small && b.hi <= small && fact_whole(facts, u);
}
