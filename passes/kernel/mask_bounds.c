/* mask_bounds.c - the keys of a row of scores that a mask leaves visible, as bounds of the loop
 * over them.
 *
 *      s[j] = j <= i and i - j < 64 ? x[j] : -inf         i - 63 <= j < i + 1
 *
 * A comparison that is affine in the key's index bounds it. Substitution finds whether it hides
 * keys: true or false takes the place of the comparison. The scores are then -inf, or at most a
 * large negative number plus a multiple of a dot product of a query and a key, or neither. So it
 * does not matter how a model spells its mask: as a choice, a sum, conjunctions of visible keys or
 * disjunctions of hidden ones. */
#include "passes/analysis/value.h"
#include "passes/kernel/online_softmax.h"
#include "passes/kernel/tile.h"

#include <math.h>

/* A score is at most value + factor * |dot|. */
struct limit { double value, factor; bool known; };

static struct limit limit_of(const struct uop *u, const struct uop *dot, int depth)
{
    struct limit none = {0}, a, b;
    if (u == dot)
        return (struct limit){0, 1, true};
    if (u->op == OP_CONST && dtype_is_float(u->dtype))
        return (struct limit){u->arg.f, 0, !isnan(u->arg.f)};
    if (depth == 0 || !dtype_is_float(u->dtype))
        return none;
    switch (u->op) {
    case OP_CAST: return limit_of(u->src[0], dot, depth - 1);
    case OP_ADD: case OP_WHERE: case OP_MIN: case OP_MAX:
        a = limit_of(u->src[u->op == OP_WHERE ? 1 : 0], dot, depth - 1);
        b = limit_of(u->src[u->op == OP_WHERE ? 2 : 1], dot, depth - 1);
        break;
    case OP_TANH: return (struct limit){1, 0, true};
    case OP_MUL: case OP_DIV: {
        double by = u->src[1]->op == OP_CONST ? u->src[1]->arg.f : 0;
        a = limit_of(u->src[0], dot, depth - 1);
        by = u->op == OP_DIV && by != 0 ? 1 / by : by;
        bool scaled = a.known && by != 0 && isfinite(by) && (a.value == 0 || by > 0);
        return scaled ? (struct limit){a.value * by, a.factor * fabs(by), true} : none;
    }
    default: return none;
    }
    /* hidden stays hidden, whatever is added */
    if (u->op == OP_ADD || u->op == OP_MIN) {
        const double low = -(double)INFINITY;
        if ((a.known && a.value == low) || (b.known && b.value == low))
            return (struct limit){low, 0, true};
    }
    if (!a.known || !b.known)
        return none;
    return u->op == OP_ADD ? (struct limit){a.value + b.value, a.factor + b.factor, true}
                           : (struct limit){fmax(a.value, b.value), fmax(a.factor, b.factor), true};
}

/* The upper bound of the scores where cond has this value: low enough to hide them, or unknown. */
static struct limit hidden_limit(struct tgc *t, struct uop *scores, const struct uop *dot,
                                 struct uop *cond, bool value)
{
    enum { DEPTH = 12 };
    const double little = -1000;
    struct limit l = limit_of(uop_substitute(t, scores, cond, uop_bool(t, value)), dot, DEPTH);
    l.known &= l.value <= little;
    return l;
}

static struct uop *tighter(struct tgc *t, struct uop *a, struct uop *b, bool least)
{
    return !a ? b : least ? sym_min(t, a, b) : sym_max(t, a, b);
}

/* cond, an LT, as a bound of key; false: it is not one. */
static bool as_bound(struct tgc *t, struct uop *cond, struct uop *key, struct bound *b)
{
    int64_t along;
    struct uop *less = sym_sub(t, cond->src[1], cond->src[0]);           /* > 0 */
    if (!index_stride(t, less, key, &along) || (along != 1 && along != -1))
        return false;
    *b = (struct bound){.cond = cond, .below = along == -1};
    b->at = b->below ? sym_add(t, less, key) : sym_addi(t, sym_sub(t, key, less), 1);
    return !uop_depends_on(t, b->at, key);
}

/* The visible keys are those for which the comparison has the other value. */
static void hide(struct tgc *t, struct visible *v, const struct bound *b, bool value,
                 const struct limit *l)
{
    if (b->below != value)
        v->end = tighter(t, v->end, b->at, true);
    else
        v->begin = tighter(t, v->begin, b->at, false);
    if (isinf(l->value))
        return;
    v->value = v->is_finite ? fmax(v->value, l->value) : l->value;
    v->factor = fmax(v->factor, l->factor);
    v->is_finite = true;
}

void visible_find(struct tgc *t, struct uop *scores, struct uop *key, const struct uop *dot,
                  struct visible *v)
{
    int n;
    struct uop **order = nest_order(t, scores, &n);
    *v = (struct visible){0};
    for (int i = 0; i < n && v->nbound < BOUNDS_MAX; i++) {
        struct bound b;
        if (order[i]->op != OP_LT || order[i]->src[0]->dtype != DTYPE_INDEX ||
            !uop_depends_on(t, order[i], key) || !as_bound(t, order[i], key, &b))
            continue;
        v->bound[v->nbound++] = b;
        for (int value = 0; value < 2 && !value_contains(t, b.at, OP_REDUCE, OP_STAGE); value++) {
            struct limit l = hidden_limit(t, scores, dot, b.cond, value);
            if (l.known)
                hide(t, v, &b, value, &l);
        }
    }
}

int visible_value(struct tgc *t, struct uop *scores, const struct uop *dot, struct uop *cond)
{
    for (int value = 0; value < 2; value++) {
        struct limit l = hidden_limit(t, scores, dot, cond, value);
        if (l.known && isinf(l.value))
            return !value;
    }
    return -1;
}

struct uop *visible_extreme(struct tgc *t, struct uop *u, const struct uop *r, bool most)
{
    struct uop *a, *b;
    int64_t along;
    struct uop *range = (struct uop *)(uintptr_t)r;
    if (!uop_depends_on(t, u, r))
        return u;
    if (index_stride(t, u, range, &along)) {
        struct uop *last = sym_addi(t, r->src[0], -1);
        return uop_substitute(t, u, range, (along > 0) == most ? last : uop_int(t, 0));
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
