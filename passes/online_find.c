/* online_find.c - which attention is worth being computed by blocks of keys (online.c): one whose
 * rows of scores are too long for scratch, or have no fixed length, or of which a mask hides a part
 * by place.
 */
#include "passes/fuse.h"
#include "passes/online.h"
#include "passes/places.h"
#include "passes/tile.h"

#include <math.h>

enum { KEYS_LONG = 2048, FEATURES_MAX = 512 };

static struct uop *without_spread(struct uop *v)
{
    while (move_spreads(v))
        v = v->src[0];
    return v;
}

/* The maximum of the scores, or 0 where that is -inf. */
static struct uop *maximum_of(struct uop *v)
{
    v = without_spread(v);
    if (v->op == OP_WHERE && v->src[0]->op == OP_EQ)
        v = without_spread(v->src[2]);
    return v->op == OP_REDUCE && REDUCE_OP(v->arg.i) == OP_MAX ? v : NULL;
}

/* The scores of a power, e^(x - the largest x), perhaps times a constant (factor.c), and their
 * maximum; NULL: it is none. */
static struct uop *scores_of(struct uop *power, struct uop **most)
{
    if (power->op == OP_MUL && without_spread(power->src[1])->op == OP_CONST)
        power = power->src[0];
    struct uop *d = power->op == OP_EXP ? power->src[0] : NULL;
    for (int k = 0; d && (d->op == OP_SUB || d->op == OP_ADD) && k < 2; k++) {
        struct uop *m = d->src[k], *s = d->src[1 - k];
        if (d->op == OP_SUB && k == 0)
            continue;
        if (d->op == OP_ADD) {
            m = without_spread(m);
            bool times = m->op == OP_MUL && uop_is_constf(without_spread(m->src[1]), -1);
            if (m->op != OP_NEG && !times)
                continue;
            m = m->src[0];
        }
        *most = maximum_of(m);
        if (*most && (*most)->src[0] == s && s->dtype == DTYPE_F32)
            return s;
    }
    return NULL;
}

/* The sum of products under the scores, its features being one axis of fixed size. */
static bool has_products(const struct uop *scores)
{
    enum { DEPTH = 16 };
    const struct uop *v = scores;
    for (int depth = 0; depth < DEPTH; depth++) {
        if (v->op == OP_REDUCE)
            break;
        if (op_class(v->op) == CLASS_MOVE && v->op != OP_IOTA && v->op != OP_CONCAT &&
            v->op != OP_PAD) {
            v = v->src[0];
            continue;
        }
        if (!op_is_elementwise(v->op))
            return false;
        const struct uop *next = NULL;
        for (int k = 0; k < v->nsrc; k++)
            if (v->src[k]->ndim > 0 && !value_is_index_like(v->src[k]) &&
                (!next || plan_nelem(v->src[k]) > plan_nelem(next)))
                next = v->src[k];
        if (!next)
            return false;
        v = next;
    }
    if (v->op != OP_REDUCE || REDUCE_OP(v->arg.i) != OP_ADD || v->src[0]->op != OP_MUL ||
        !value_is_contraction(v) || value_contracts_weight(v))
        return false;
    double n = plan_nelem(v->src[0]) / plan_nelem(v);
    return n >= 8 && n <= FEATURES_MAX;
}

/* The one axis that a reduction sums up; -1: there are several. */
static int axis_of(const struct uop *reduce)
{
    int axis = -1;
    for (int a = 0; a < reduce->ndim; a++)
        if ((REDUCE_AXES(reduce->arg.i) >> a & 1) && !uop_is_int(reduce->src[0]->dim[a], 1))
            axis = axis < 0 ? a : -2;
    return axis;
}

static bool is_worth_it(struct tgc *t, struct uop *scores, int axis)
{
    const struct uop *nkey = scores->dim[axis], *nquery = NULL;
    for (int a = 0; a < scores->ndim; a++)
        if (a != axis && (!nquery || scores->dim[a]->vmax > nquery->vmax))
            nquery = scores->dim[a];
    if (!nquery || nquery->vmax < PLACES_ROWS || nkey->vmax < PLACES_COLUMNS)
        return false;
    bool fixed = nkey->op == OP_CONST && nquery->op == OP_CONST;
    return !fixed || nkey->vmax >= KEYS_LONG || places_compares(t, scores);
}

/* What attention computes, and whether its axes have changed places since. */
struct result { struct uop *u; bool permuted; };

/* Heads that lie beside each other's features are no band's: the result is stored by heads, and
 * packed by whoever reads it. */
static void follow(struct tgc *t, struct uop *u, struct uop_map *results, struct uop_map *kept)
{
    for (int k = 0; k < u->nsrc; k++) {
        const struct result *below = map_get(results, u->src[k]);
        struct result *r;
        if (!below || (k > 0 && op_class(u->op) == CLASS_MOVE))
            continue;
        if (u->op == OP_RESHAPE && below->permuted)
            map_set(kept, below->u, below->u);
        else if (u->op == OP_RESHAPE || u->op == OP_PERMUTE || op_is_elementwise(u->op)) {
            r = scratch_array(t, 1, sizeof *r);
            *r = op_is_elementwise(u->op)
                     ? (struct result){u, false}
                     : (struct result){below->u, below->permuted || u->op == OP_PERMUTE};
            map_set(results, u, r);
        }
        return;
    }
}

void online_find(struct tgc *t, struct uop *const *order, int n, struct uop_map *found,
                 struct uop_map *kept)
{
    struct uop_map results = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        follow(t, u, &results, kept);
        if (u->op != OP_REDUCE || REDUCE_OP(u->arg.i) != OP_ADD || u->dtype != DTYPE_F32 ||
            u->src[0]->op != OP_MUL)
            continue;
        for (int k = 0; k < 2; k++) {
            struct uop *power = without_spread(u->src[0]->src[k]), *most;
            struct uop *scores = scores_of(power, &most);
            if (!scores || !has_products(scores))
                continue;
            int axis = axis_of(most);
            if (axis < 0 || !is_worth_it(t, scores, axis))
                continue;
            map_set(found, power, power);
            map_set(found, scores, scores);
            struct result *r = scratch_array(t, 1, sizeof *r);
            *r = (struct result){u, false};
            map_set(&results, u, r);
        }
    }
}
