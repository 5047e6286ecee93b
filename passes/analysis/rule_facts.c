/* rule_facts.c - the facts for which guards of named sets of rules ask (RULE_FACT in
 * passes/rules/rules.def). */
#include "passes/analysis/rule_facts.h"
#include "passes/rules/rules.h"

#include <math.h>

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

bool fact_small(struct rule_facts *facts, const struct uop *u)
{
    const double small = 0x1p16;
    struct bounds b = bounds_of(&facts->most, u);
    return b.known && b.lo >= -small && b.hi <= small && fact_whole(facts, u);
}
