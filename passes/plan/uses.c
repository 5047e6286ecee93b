/* uses.c - the uses of nodes' values, and the ranges of the segments that use them.
 *
 * A use consists of coordinates, which are expressions over its segment's ranges, and the ranges
 * that are open there. Computing a value makes uses of its sources, through movement ops with
 * mapped coordinates (plan_push_sources). The sets of ranges that must be prefixes of a segment's
 * loop order form a chain, each within the next one.
 */
#include "passes/plan/fuse.h"

#include <string.h>

struct node *plan_node(const struct plan *p, const struct uop *u) { return map_get(&p->of, u); }

/* --------------------------------------------------------------------------------------- ranges */

range_set plan_mask(struct plan *p, const struct uop *index)
{
    if (op_class(index->op) == CLASS_LEAF)
        return 0;
    uintptr_t memo = (uintptr_t)map_get(&p->mask, index);
    if (memo)
        return memo - 1;
    struct mem_mark mark = scratch_mark(p->t);
    int n;
    struct uop *root = (struct uop *)(uintptr_t)index;
    struct uop **order = uop_toposort(p->t, &root, 1, &n);
    for (int i = 0; i < n; i++) {
        uintptr_t bit = (uintptr_t)map_get(&p->bit, order[i]);
        range_set m = order[i]->op == OP_RANGE && bit ? (range_set)1 << (bit - 1) : 0;
        for (int k = 0; k < order[i]->nsrc; k++)
            m |= op_class(order[i]->src[k]->op) == CLASS_LEAF
                     ? 0
                     : (uintptr_t)map_get(&p->mask, order[i]->src[k]) - 1;
        map_set(&p->mask, order[i], (void *)(uintptr_t)(m + 1));
    }
    scratch_release(p->t, mark);
    return (uintptr_t)map_get(&p->mask, index) - 1;
}

range_set plan_mask_all(struct plan *p, struct uop *const *index, int n)
{
    range_set m = 0;
    for (int a = 0; a < n; a++)
        m |= plan_mask(p, index[a]);
    return m;
}

bool segment_is_full(const struct segment *s)
{
    return s->nrange > MAX_RANGES - 2 * MAX_RANK;
}

struct uop *segment_new_range(struct plan *p, struct segment *s, struct uop *size, bool inner)
{
    if (uop_is_int(size, 1))
        return uop_int(p->t, 0);
    if (s->nrange == MAX_RANGES)
        TGC_BUG(p->t, "a segment with more than %d ranges", MAX_RANGES);
    struct uop *r = uop_range(p->t, size, p->t->next_range++);
    map_set(&p->bit, r, (void *)(uintptr_t)(s->nrange + 1));
    range_set bit = (range_set)1 << s->nrange;
    VEC_PUSH(p->t, s->range, s->nrange, s->cap_range, r);
    if (inner)
        s->inner |= bit;
    else
        s->out |= bit;
    return r;
}

double segment_extent(const struct segment *s, range_set m)
{
    double n = 1;
    for (int b = 0; b < s->nrange; b++)
        if (m >> b & 1)
            n *= dim_extent(s->range[b]->src[0]);
    return n;
}

bool range_set_within(range_set a, range_set b) { return (a & ~b) == 0; }

bool segment_accepts(const struct segment *s, range_set m)
{
    for (int i = 0; i < s->nchain; i++)
        if (!range_set_within(m, s->chain[i]) && !range_set_within(s->chain[i], m))
            return false;
    return true;
}

void segment_add_prefix(struct segment *s, range_set m)
{
    int at = 0;
    while (at < s->nchain && s->chain[at] != m && range_set_within(s->chain[at], m))
        at++;
    if (m == 0 || (at < s->nchain && s->chain[at] == m))
        return;
    memmove(s->chain + at + 1, s->chain + at, (size_t)(s->nchain - at) * sizeof *s->chain);
    s->chain[at] = m;
    s->nchain++;
}

range_set segment_placed_in(const struct segment *s, range_set deps, range_set open)
{
    if (deps & s->inner)
        return open;
    return segment_accepts(s, deps) ? deps : open & s->out;
}

/* ----------------------------------------------------------------------------------------- uses */

struct use *plan_find_use(const struct node *n, const struct segment *s, struct uop *const *index)
{
    for (struct use *u = n->use; u; u = u->next)
        if (u->seg == s &&
            (n->u->ndim == 0 || !memcmp(u->index, index, (size_t)n->u->ndim * sizeof *index)))
            return u;
    return NULL;
}

bool plan_is_used_in(const struct node *n, const struct segment *s)
{
    const struct use *u = n->use;
    while (u && u->seg != s)
        u = u->next;
    return u != NULL;
}

struct use *plan_add_use(struct plan *p, struct uop *v, struct segment *s,
                           struct uop *const *index, range_set open)
{
    struct node *n = plan_node(p, v);
    if (value_is_leaf(v)) { /* a leaf is read from its memory */
        if (v->op != OP_CONST && !map_get(&s->leaves, v)) {
            map_set(&s->leaves, v, v);
            s->nread++;
        }
        return NULL;
    }
    struct use *u = plan_find_use(n, s, index);
    if (u) {
        u->open |= open;
        u->depth = u->depth > s->depth ? u->depth : s->depth + 1;
        return u;
    }
    s->nread += !plan_is_used_in(n, s);
    u = MEM_NEW(p->t, struct use);
    u->node = n;
    u->seg = s;
    u->next_of_seg = s->use;
    s->use = u;
    u->index = v->ndim ? mem_copy(p->t, index, (size_t)v->ndim * sizeof *index) : NULL;
    u->open = open;
    u->depth = s->depth + 1;
    struct use **end = &n->use;
    while (*end)
        end = &(*end)->next;
    *end = u;
    n->nuse++;
    return u;
}

struct segment *plan_segment(struct plan *p, struct block *b, int pos, struct uop *value,
                             struct buffer *dest)
{
    struct segment *s = MEM_NEW(p->t, struct segment);
    *s = (struct segment){
        .block = b, .pos = pos, .value = value, .dest = dest, .leaves = {.t = p->t}};
    s->at = p->nsegment;
    VEC_PUSH(p->t, p->segment, p->nsegment, p->cap_segment, s);
    for (int a = 0; a < value->ndim; a++)
        s->axis[a] = segment_new_range(p, s, value->dim[a], false);
    return s;
}

void plan_use_root(struct plan *p, struct segment *s)
{
    struct use *u = plan_add_use(p, s->value, s, s->axis, s->out);
    if (u)
        u->root = true;
}

/* Names loops after the axes that a library function gave to the tensor under a reduction. */
static void name_ranges(struct plan *p, const struct uop *v, struct uop *const *index)
{
    const char *w = uop_get_axes(p->t, v);
    for (int a = 0; w && a < v->ndim; a++) {
        while (*w == ' ')
            w++;
        size_t n = strcspn(w, " ");
        if (index[a]->op == OP_RANGE && n && !uop_get_axes(p->t, index[a]))
            uop_name_axes(p->t, index[a], mem_printf(p->t, "%.*s", (int)n, w));
        w += n;
    }
}

void plan_push_sources(struct plan *p, struct uop *v, struct segment *s, struct uop *const *index,
                         range_set open, struct use *u)
{
    struct uop *at[MAX_RANK], *valid;
    s->nnode++;
    s->depth = u ? u->depth : 0;
    name_ranges(p, v, index);
    switch (op_class(v->op)) {
    case CLASS_MOVE:
        if (v->op == OP_IOTA)
            return;
        if (v->op == OP_CONCAT)
            TGC_BUG(p->t, "an inlined concat");
        move_index(p->t, v, 0, index, at, &valid);
        plan_add_use(p, v->src[0], s, at, open);
        if (v->op == OP_PAD)
            plan_add_use(p, v->src[1], s, NULL, open);
        return;
    case CLASS_UNARY: case CLASS_BINARY: case CLASS_TERNARY: case CLASS_CHOICE:
        for (int k = 0; k < v->nsrc; k++)
            plan_add_use(p, v->src[k], s, index, open);
        return;
    case CLASS_REDUCE: {
        range_set deps = plan_mask_all(p, index, v->ndim),
                  inside = segment_placed_in(s, deps, open);
        u->range = mem_array(p->t, (size_t)v->ndim, sizeof *u->range);
        for (int a = 0; a < v->ndim; a++) {
            at[a] = index[a];
            if (REDUCE_AXES(v->arg.i) >> a & 1) {
                at[a] = segment_new_range(p, s, v->src[0]->dim[a], true);
                if (at[a]->op == OP_RANGE)
                    inside |= plan_mask(p, at[a]);
                u->range[a] = at[a];
            }
        }
        plan_add_use(p, v->src[0], s, at, inside);
        return;
    }
    default:
        break;
    }
    if (v->op == OP_INDEX) {
        for (int a = 1; a < v->nsrc; a++)
            plan_add_use(p, v->src[a], s, index, open);
    } else if (v->op == OP_CONTIGUOUS || v->op == OP_AFTER) {
        plan_add_use(p, v->src[0], s, index, open);
    } else {
        TGC_BUG(p->t, "%s cannot be computed in a kernel", op_name(v->op));
    }
}
