/* softmax.c - recognizes the exponentials of a softmax, e^(x - max x), as frontends and rules write
 * them. */
#include "passes/analysis/softmax.h"
#include "passes/passes.h"

#include <math.h>

/* m, if u is m == -inf ? 0 : m, which makes the exponentials 0 in a row without visible keys. */
static struct uop *without_choice(struct uop *u)
{
    bool chosen = u->op == OP_WHERE && u->src[0]->op == OP_EQ && u->src[0]->src[0] == u->src[2] &&
                  uop_is_constf(value_behind(u->src[0]->src[1], MOVES_SPREAD), -(double)INFINITY) &&
                  uop_is_constf(value_behind(u->src[1], MOVES_SPREAD), 0);
    return chosen ? value_behind(u->src[2], MOVES_SPREAD) : u;
}

/* The operand that is subtracted in operand k of d; NULL: nothing is. */
static struct uop *subtrahend(const struct uop *d, int k)
{
    if (d->op == OP_SUB)
        return k == 1 ? d->src[1] : NULL;
    if (d->op != OP_ADD)
        return NULL;
    struct uop *v = value_behind(d->src[k], MOVES_SPREAD);
    bool times = v->op == OP_MUL && uop_is_constf(value_behind(v->src[1], MOVES_SPREAD), -1);
    return v->op == OP_NEG || times ? v->src[0] : NULL;
}

static bool match_power(struct uop *exp, struct softmax *s)
{
    for (int k = 0; exp->op == OP_EXP && k < 2 && k < exp->src[0]->nsrc; k++) {
        struct uop *most = subtrahend(exp->src[0], k);
        if (!most)
            continue;
        most = without_choice(value_behind(most, MOVES_SPREAD));
        if (most->op == OP_REDUCE && REDUCE_OP(most->arg.i) == OP_MAX) {
            s->exp = exp;
            s->from = exp->src[0]->src[1 - k];
            s->most = most;
            return true;
        }
    }
    return false;
}

bool softmax_match(struct uop *u, struct softmax *s)
{
    s->scale = 1;
    if (match_power(u, s))
        return true;
    for (int k = 0; k < 2 && u->op == OP_MUL; k++) {
        const struct uop *scale = value_behind(u->src[k], MOVES_SPREAD);
        if (scale->op != OP_CONST || !dtype_is_float(scale->dtype) ||
            !match_power(u->src[1 - k], s))
            continue;
        s->scale = scale->arg.f;
        return true;
    }
    return false;
}

bool softmax_is_weight(struct uop *factor)
{
    struct softmax s;
    struct uop *v = value_behind(factor, MOVES_SPREAD | MOVES_CAST);
    if (v->op == OP_WHERE)           /* rows that are masked as a whole */
        v = value_behind(v->src[2], MOVES_SPREAD | MOVES_CAST);
    return softmax_match(v->op == OP_DIV ? value_behind(v->src[0], MOVES_SPREAD | MOVES_CAST) : v,
                         &s);
}
