/* visible.c - which keys of a row of scores are not hidden by a mask, as bounds of the loop over
 * them.
 *
 *      s[j] = j <= i and i - j < 64 ? x[j] : -inf         i - 63 <= j < i + 1
 *
 * A comparison that is affine in the key's place is a bound of it. Whether it hides keys is found
 * by trying: with the comparison's value put in its place, the scores fold to -inf, or they do not.
 * So it does not matter how a model spells its mask: by a choice, by a sum, by conjunctions of what
 * is seen or disjunctions of what is not.
 */
#include "passes/online.h"
#include "passes/tile.h"

#include <math.h>

/* Whether it is -inf, or no number. */
static bool is_hidden(const struct uop *u, int depth)
{
    if (uop_is_constf(u, -(double)INFINITY))
        return true;
    if (depth == 0)
        return false;
    switch (u->op) {
    case OP_ADD: case OP_MIN:
        return is_hidden(u->src[0], depth - 1) || is_hidden(u->src[1], depth - 1);
    case OP_WHERE: return is_hidden(u->src[1], depth - 1) && is_hidden(u->src[2], depth - 1);
    case OP_CAST: return dtype_is_float(u->src[0]->dtype) && is_hidden(u->src[0], depth - 1);
    default: return false;
    }
}

static bool hides(struct tgc *t, struct uop *scores, struct uop *cond, bool value)
{
    enum { DEPTH = 8 };
    return is_hidden(nest_replace(t, scores, cond, uop_bool(t, value)), DEPTH);
}

static struct uop *tighter(struct tgc *t, struct uop *a, struct uop *b, bool least)
{
    return !a ? b : least ? sym_min(t, a, b) : sym_max(t, a, b);
}

/* Reads the model's data: no bound of a loop. */
static bool is_data(struct tgc *t, struct uop *u)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD || order[i]->op == OP_REDUCE)
            return true;
    return false;
}

/* cond, an LT, as a bound of key; false: it is none. */
static bool as_bound(struct tgc *t, struct uop *cond, struct uop *key, struct bound *b)
{
    int64_t along;
    struct uop *less = sym_sub(t, cond->src[1], cond->src[0]);           /* > 0 */
    if (!nest_stride(t, less, key, &along) || (along != 1 && along != -1))
        return false;
    *b = (struct bound){.cond = cond, .below = along == -1};
    b->at = b->below ? sym_add(t, less, key) : sym_addi(t, sym_sub(t, key, less), 1);
    return !nest_depends(t, b->at, key);
}

void visible_find(struct tgc *t, struct uop *scores, struct uop *key, struct visible *v)
{
    int n;
    struct uop **order = nest_order(t, scores, &n);
    *v = (struct visible){0};
    for (int i = 0; i < n && v->nbound < BOUNDS_MAX; i++) {
        struct bound b;
        if (order[i]->op != OP_LT || order[i]->src[0]->dtype != DTYPE_INDEX ||
            !nest_depends(t, order[i], key) || !as_bound(t, order[i], key, &b))
            continue;
        v->bound[v->nbound++] = b;
        for (int value = 0; value < 2; value++) {
            if (is_data(t, b.at) || !hides(t, scores, b.cond, value))
                continue;
            /* seen keys are those for which it has the other value */
            if (b.below != (value == 1))
                v->end = tighter(t, v->end, b.at, true);
            else
                v->begin = tighter(t, v->begin, b.at, false);
        }
    }
}

struct uop *visible_extreme(struct tgc *t, struct uop *u, const struct uop *r, bool most)
{
    struct uop *a, *b;
    int64_t along;
    struct uop *range = (struct uop *)(uintptr_t)r;
    if (!nest_depends(t, u, r))
        return u;
    if (nest_stride(t, u, range, &along)) {
        struct uop *last = sym_addi(t, r->src[0], -1);
        return nest_replace(t, u, range, (along > 0) == most ? last : uop_int(t, 0));
    }
    switch (u->op) {
    case OP_ADD: case OP_MIN: case OP_MAX:
        a = visible_extreme(t, u->src[0], r, most);
        b = visible_extreme(t, u->src[1], r, most);
        return a && b ? uop_binary(t, u->op, a, b) : NULL;
    case OP_MUL:
        if (u->src[1]->op != OP_CONST)
            return NULL;
        a = visible_extreme(t, u->src[0], r, most == (u->src[1]->arg.i > 0));
        return a ? sym_mul(t, a, u->src[1]) : NULL;
    default: return NULL;
    }
}
