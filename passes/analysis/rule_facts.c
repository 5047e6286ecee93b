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

bool fact_small(struct rule_facts *facts, const struct uop *u)
{
    const double small = 0x1p16;
    struct bounds b = bounds_of(&facts->most, u);
    return b.known && b.lo >= -small && b.hi <= small && fact_whole(facts, u);
}
