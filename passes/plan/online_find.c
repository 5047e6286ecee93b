/* online_find.c - finds the attention for which online softmax pays: with rows of scores that
 * exceed scratch, or have no fixed length, or of which a mask hides a part by position.
 */
#include "passes/plan/fuse.h"
#include "passes/plan/plan.h"
#include "passes/graph/mask_tables.h"
#include "passes/analysis/contraction.h"
#include "passes/analysis/softmax.h"

#include <math.h>

enum { KEYS_LONG = 2048, FEATURES_MAX = 512, DEVICE_QUERIES = 8, DEVICE_KEYS = 16 };

/* Whether a sum of products is under the scores, with features along one axis of fixed size. */
static bool has_products(const struct uop *scores)
{
    enum { DEPTH = 16 };
    const struct uop *v = scores;
    for (int depth = 0; depth < DEPTH; depth++) {
        if (v->op == OP_REDUCE)
            break;
        if (move_is(v, MOVES_VIEW)) {
            v = v->src[0];
            continue;
        }
        if (!op_is_elementwise(v->op))
            return false;
        const struct uop *next = NULL;
        for (int k = 0; k < v->nsrc; k++)
            if (v->src[k]->ndim > 0 && !value_is_index_like(v->src[k]) &&
                (!next || value_nelem(v->src[k]) > value_nelem(next)))
                next = v->src[k];
        if (!next)
            return false;
        v = next;
    }
    if (!summed_product(v) || !value_is_contraction(v) || value_contracts_weight(v))
        return false;
    double n = value_nelem(v->src[0]) / value_nelem(v);
    return n >= 8 && n <= FEATURES_MAX;
}

/* The one axis of a reduction; -1: there are several. */
static int axis_of(const struct uop *reduce)
{
    int axis = -1;
    for (int a = 0; a < reduce->ndim; a++)
        if ((REDUCE_AXES(reduce->arg.i) >> a & 1) && !uop_is_int(reduce->src[0]->dim[a], 1))
            axis = axis < 0 ? a : -2;
    return axis;
}

/* Whether so few rows have keys that no block of the device's keeps whole: in parts they fill it
 * (split_keys.c). */
static bool is_long_for_few(const struct tgc *t, const struct uop *scores, const struct uop *nkey)
{
    double rows = value_nelem(scores) / dim_extent(nkey);
    return rows < t->device->units && (double)nkey->vmax > plan_most_staged(t);
}

static bool is_worth_it(struct tgc *t, struct uop *scores, int axis)
{
    const struct uop *nkey = scores->dim[axis], *nquery = NULL;
    for (int a = 0; a < scores->ndim; a++)
        if (a != axis && (!nquery || scores->dim[a]->vmax > nquery->vmax))
            nquery = scores->dim[a];
    if (device_has_grid(t))      /* whether it pays is decided by the kernel's loops,
                                  * grid_attention.c */
        return !t->no_locals && nquery && nkey->vmax >= DEVICE_KEYS &&
               (nquery->vmax >= DEVICE_QUERIES || is_long_for_few(t, scores, nkey));
    if (!nquery || nquery->vmax < PLACES_ROWS || nkey->vmax < PLACES_COLUMNS)
        return false;
    bool fixed = nkey->op == OP_CONST && nquery->op == OP_CONST;
    return !fixed || nkey->vmax >= KEYS_LONG || places_compares(t, scores);
}

/* A value of attention's result, and whether its axes have been permuted since. */
struct result { struct uop *u; bool permuted; };

/* If heads are interleaved with features the result is not suited to bands: it is stored by heads,
 * and its consumer reorders it. */
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

static void find_online(struct tgc *t, struct uop *const *order, int n, struct uop_map *found,
                 struct uop_map *kept)
{
    struct uop_map results = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (!device_has_grid(t))
            follow(t, u, &results, kept);
        if (u->dtype != DTYPE_F32 || !summed_product(u))
            continue;
        for (int k = 0; k < 2; k++) {
            struct uop *power = value_behind(u->src[0]->src[k], MOVES_SPREAD | MOVES_CAST), *scores;
            struct softmax s;
            if (!softmax_match(power, &s) || s.most->src[0] != s.from ||
                s.from->dtype != DTYPE_F32 || !has_products(s.from))
                continue;
            int axis = axis_of(s.most);
            scores = s.from;
            if (axis < 0 || !is_worth_it(t, scores, axis))
                continue;
            map_set(found, power, power);
            map_set(found, scores, scores);
            /* what is kept, if they are a movement alone */
            scores = value_behind(scores, MOVES_SPREAD);
            map_set(found, scores, scores);
            struct result *r = scratch_array(t, 1, sizeof *r);
            *r = (struct result){u, false};
            map_set(&results, u, r);
        }
    }
}

void plan_online_find(struct plan *p)
{
    struct mem_mark mark = scratch_mark(p->t);
    struct uop_map found = {.t = p->t}, kept = {.t = p->t};
    struct uop **order = scratch_array(p->t, (size_t)p->nnode, sizeof *order);
    for (int i = 0; i < p->nnode; i++)
        order[i] = p->node[i].u;
    find_online(p->t, order, p->nnode, &found, &kept);
    for (int i = 0; i < p->nnode; i++) {
        p->node[i].online = map_get(&found, p->node[i].u) != NULL;
        p->node[i].kept |= map_get(&kept, p->node[i].u) != NULL;
    }
    scratch_release(p->t, mark);
}
