/* fuse.c - which values get a buffer, which are computed where they are used, which are kept in
 * scratch for a row.
 *
 * The graph is walked from consumers to producers, so when a node comes up every use of it is
 * known: the coordinates as expressions over the ranges of the segment that needs it, and the
 * ranges open there (tinygrad's rangeify, with the costs in view). Then
 *   - movement ops are never computed: their uses become uses of their source, with mapped
 *     coordinates;
 *   - a value is INLINED if it is needed in one segment only and computing it there repeats no work
 *     worth speaking of;
 *   - it is STAGED if it is needed several times under the same outer ranges (softmax's exp, a row
 *     of attention scores): it is computed once per iteration of those ranges, into scratch;
 *   - otherwise it is REALIZED: a segment of its own writes it to a buffer.
 * Work repeats where a value is evaluated more often than it has elements. A value that needs only
 * some of the open ranges is hoisted out of the others by the linearizer, provided that the loop
 * order lets it: the sets that must be prefixes of the order form a chain, and a value whose set
 * does not fit the chain is realized.
 */
#include "passes/plan.h"

#include <string.h>

enum { STAGE_NELEM = 1 << 14, REPEAT_CHEAP = 4, EXPENSIVE = 4, POOLED_MAX = 16 };
/* bytes that a staged contraction may read again for every row: half of a common L2 */
static const double STAGE_FOOTPRINT = 256 << 10;

struct node *plan_node(const struct plan *p, const struct uop *u) { return map_get(&p->of, u); }

double plan_extent(const struct uop *dim) { return dim->vmax < 0 ? 0.0 : (double)dim->vmax; }

double plan_nelem(const struct uop *u)
{
    double n = 1;
    for (int a = 0; a < u->ndim; a++)
        n *= plan_extent(u->dim[a]);
    return n;
}

/* ---- ranges */

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

static range_set mask_of(struct plan *p, struct uop *const *index, int n)
{
    range_set m = 0;
    for (int a = 0; a < n; a++)
        m |= plan_mask(p, index[a]);
    return m;
}

static bool segment_is_full(const struct segment *s)
{
    return s->nrange > MAX_RANGES - 2 * MAX_RANK;
}

static struct uop *new_range(struct plan *p, struct segment *s, struct uop *size, bool inner)
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

static double extent_of(const struct segment *s, range_set m)
{
    double n = 1;
    for (int b = 0; b < s->nrange; b++)
        if (m >> b & 1)
            n *= plan_extent(s->range[b]->src[0]);
    return n;
}

static bool is_subset(range_set a, range_set b) { return (a & ~b) == 0; }

static bool chain_accepts(const struct segment *s, range_set m)
{
    for (int i = 0; i < s->nchain; i++)
        if (!is_subset(m, s->chain[i]) && !is_subset(s->chain[i], m))
            return false;
    return true;
}

static void chain_add(struct segment *s, range_set m)
{
    int at = 0;
    while (at < s->nchain && s->chain[at] != m && is_subset(s->chain[at], m))
        at++;
    if (m == 0 || (at < s->nchain && s->chain[at] == m))
        return;
    memmove(s->chain + at + 1, s->chain + at, (size_t)(s->nchain - at) * sizeof *s->chain);
    s->chain[at] = m;
    s->nchain++;
}

/* The ranges inside which a value that depends on `deps` is computed, when it is needed where
 * `open` are open. */
static range_set placed_in(const struct segment *s, range_set deps, range_set open)
{
    if (deps & s->inner)
        return open;
    return chain_accepts(s, deps) ? deps : open & s->out;
}

/* ---- uses */

static bool is_leaf(const struct uop *v)
{
    return v->op == OP_BUFFER || v->op == OP_PARAM || v->op == OP_GET || v->op == OP_CONST ||
           v->op == OP_VAR;
}

struct use *plan_find_use(const struct node *n, const struct segment *s, struct uop *const *index)
{
    for (struct use *u = n->use; u; u = u->next)
        if (u->seg == s &&
            (n->u->ndim == 0 || !memcmp(u->index, index, (size_t)n->u->ndim * sizeof *index)))
            return u;
    return NULL;
}

static struct use *add_use(struct plan *p, struct uop *v, struct segment *s,
                           struct uop *const *index, range_set open)
{
    struct node *n = plan_node(p, v);
    if (is_leaf(v))                                   /* read where it lies, wherever that is */
        return NULL;
    struct use *u = plan_find_use(n, s, index);
    if (u) {
        u->open |= open;
        u->depth = u->depth > s->depth ? u->depth : s->depth + 1;
        return u;
    }
    u = MEM_NEW(p->t, struct use);
    u->seg = s;
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
    *s = (struct segment){.block = b, .pos = pos, .value = value, .dest = dest};
    VEC_PUSH(p->t, p->segment, p->nsegment, p->cap_segment, s);
    for (int a = 0; a < value->ndim; a++)
        s->axis[a] = new_range(p, s, value->dim[a], false);
    return s;
}

void plan_use_root(struct plan *p, struct segment *s)
{
    struct use *u = add_use(p, s->value, s, s->axis, s->out);
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

/* Pushes uses to v's sources for one evaluation of v itself. `u` is NULL where v is its segment's
 * root. */
static void push_sources(struct plan *p, struct uop *v, struct segment *s, struct uop *const *index,
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
        add_use(p, v->src[0], s, at, open);
        if (v->op == OP_PAD)
            add_use(p, v->src[1], s, NULL, open);
        return;
    case CLASS_UNARY: case CLASS_BINARY: case CLASS_TERNARY:
        for (int k = 0; k < v->nsrc; k++)
            add_use(p, v->src[k], s, index, open);
        return;
    case CLASS_REDUCE: {
        range_set deps = mask_of(p, index, v->ndim), inside = placed_in(s, deps, open);
        u->range = mem_array(p->t, (size_t)v->ndim, sizeof *u->range);
        for (int a = 0; a < v->ndim; a++) {
            at[a] = index[a];
            if (REDUCE_AXES(v->arg.i) >> a & 1) {
                at[a] = new_range(p, s, v->src[0]->dim[a], true);
                if (at[a]->op == OP_RANGE)
                    inside |= plan_mask(p, at[a]);
                u->range[a] = at[a];
            }
        }
        add_use(p, v->src[0], s, at, inside);
        return;
    }
    default:
        break;
    }
    if (v->op == OP_INDEX) {
        for (int a = 1; a < v->nsrc; a++)
            add_use(p, v->src[a], s, index, open);
    } else if (v->op == OP_CONTIGUOUS) {
        add_use(p, v->src[0], s, index, open);
    } else {
        TGC_BUG(p->t, "%s cannot be computed in a kernel", op_name(v->op));
    }
}

/* ---- what a node is */

static double op_cost(const struct uop *v)
{
    switch (v->op) {
    case OP_EXP: case OP_LOG: case OP_SIN: case OP_COS: case OP_TAN: case OP_ASIN: case OP_ACOS:
    case OP_ATAN: case OP_SINH: case OP_COSH:
    case OP_TANH: case OP_ASINH: case OP_ACOSH: case OP_ATANH: case OP_ERF: case OP_POW:
    case OP_ATAN2:
        return 20;
    case OP_DIV: case OP_MOD: case OP_FLOORDIV: case OP_FLOORMOD: case OP_SQRT: case OP_RECIP:
        return 4;
    case OP_INDEX:
        return 2;
    default:
        return 1;
    }
}

/* Through movement and casts, to what is multiplied. */
static const struct uop *operand_base(const struct uop *v)
{
    while ((op_class(v->op) == CLASS_MOVE && v->op != OP_IOTA && v->op != OP_CONCAT) ||
           v->op == OP_CAST)
        v = v->src[0];
    return v;
}

/* A reduction of products with more products than either factor has elements: matmul,
 * convolution. */
static bool is_contraction(const struct uop *v)
{
    if (v->op != OP_REDUCE || REDUCE_OP(v->arg.i) != OP_ADD)
        return false;
    const struct uop *m = operand_base(v->src[0]);
    if (m->op != OP_MUL)
        return false;
    const struct uop *a = operand_base(m->src[0]), *b = operand_base(m->src[1]);
    return a->ndim && b->ndim && plan_nelem(m) > 1.5 * plan_nelem(a) &&
           plan_nelem(m) > 1.5 * plan_nelem(b);
}

/* A weight, or what quantized weights stand for: casts, differences and multiples of weights. */
static bool is_of_weights(const struct uop *v, int depth)
{
    if (v->op == OP_BUFFER)
        return ((const struct buffer *)v->arg.p)->kind == BUFFER_WEIGHT;
    if (v->op == OP_CONST || depth == 0)
        return v->op == OP_CONST;
    bool moves = op_class(v->op) == CLASS_MOVE && v->op != OP_IOTA && v->op != OP_CONCAT;
    if (!moves && v->op != OP_CAST && v->op != OP_ADD && v->op != OP_MUL && v->op != OP_NEG)
        return false;
    for (int k = 0; k < (moves ? 1 : v->nsrc); k++)
        if (!is_of_weights(v->src[k], depth - 1))
            return false;
    return true;
}

enum { WEIGHT_DEPTH = 12 };
static bool contracts_a_weight(const struct uop *v)
{
    const struct uop *m = operand_base(v->src[0]);
    return is_of_weights(m->src[0], WEIGHT_DEPTH) || is_of_weights(m->src[1], WEIGHT_DEPTH);
}

/* Made of constants, iotas and symbols only: cheaper to compute again than to keep. */
static bool is_index_like(struct plan *p, struct uop *v, int depth)
{
    if (v->op == OP_CONST || v->op == OP_VAR || v->op == OP_IOTA)
        return true;
    if (depth == 0 || (op_class(v->op) != CLASS_MOVE && !op_is_elementwise(v->op)) ||
        op_cost(v) > 4)
        return false;
    int n = op_class(v->op) == CLASS_MOVE && v->op != OP_CONCAT ? v->op == OP_PAD ? 2 : 1 : v->nsrc;
    for (int k = 0; k < n; k++)
        if (!is_index_like(p, v->src[k], depth - 1))
            return false;
    return true;
}

/* A weight in a wider type than it is stored in: to be small where it is read is what it is for,
 * by several kernels or within a loop, too. */
static bool is_widened_weight(const struct uop *v)
{
    if (v->op != OP_CAST || dtype_nbytes(v->src[0]->dtype) >= dtype_nbytes(v->dtype))
        return false;
    const struct uop *base = operand_base(v->src[0]);
    return base->op == OP_BUFFER && ((const struct buffer *)base->arg.p)->kind == BUFFER_WEIGHT;
}

/* Depends, within the same rows, on a reduction that is broadcast back over them: softmax's
 * normalization, layernorm. */
static bool has_row_stat(struct plan *p, struct uop *v)
{
    struct uop *stack[64];
    int n = 0, steps = 0;
    bool expanded[64];
    stack[n] = v;
    expanded[n++] = false;
    while (n && steps++ < 64) {
        struct uop *u = stack[--n];
        bool e = expanded[n];
        if (u->op == OP_REDUCE && e)
            return true;
        if (u->op == OP_REDUCE || is_leaf(u) || plan_node(p, u)->buffer)
            continue;
        int nsrc = op_class(u->op) == CLASS_MOVE ? u->op != OP_IOTA
                   : op_is_elementwise(u->op)    ? u->nsrc
                                                 : 0;
        for (int k = 0; k < nsrc && n < 63; k++) {
            stack[n] = u->src[k];
            expanded[n++] = e || u->op == OP_EXPAND;
        }
    }
    return false;
}

/* The contraction that v is an epilogue of: reached through elementwise ops, not through a
 * broadcast, nor through what others need, too. NULL if there is none. */
static const struct uop *leads_to_contraction(struct plan *p, const struct uop *v)
{
    const struct uop *stack[32];
    int n = 0;
    stack[n++] = v;
    for (int steps = 0; n && steps < 64; steps++) {
        const struct uop *u = stack[--n];
        if (is_contraction(u))
            return u;
        if (u->op == OP_EXPAND || is_leaf(u) || u->op == OP_IOTA || plan_node(p, u)->must ||
            (u != v && plan_node(p, u)->nconsumer > 1))
            continue;
        int nsrc = op_is_elementwise(u->op) ? u->nsrc
                                            : op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT;
        for (int k = 0; k < nsrc && n < 32; k++)
            stack[n++] = u->src[k];
    }
    return NULL;
}

/* Joins several tensors by the place of an element, as products by parts do: reached as above. */
static bool joins_parts(struct plan *p, const struct uop *v)
{
    const struct uop *stack[32];
    int n = 0;
    stack[n++] = v;
    for (int steps = 0; n && steps < 64; steps++) {
        const struct uop *u = stack[--n];
        if (u->op == OP_WHERE && u->src[0]->op == OP_LT && u->src[0]->src[1]->op == OP_CONST &&
            is_index_like(p, u->src[0]->src[0], 8) && !is_index_like(p, u->src[1], 8) &&
            !is_index_like(p, u->src[2], 8))
            return true;
        if (u->op == OP_EXPAND || is_leaf(u) || u->op == OP_IOTA || plan_node(p, u)->must ||
            (u != v && plan_node(p, u)->nconsumer > 1))
            continue;
        int nsrc = op_is_elementwise(u->op) ? u->nsrc
                                            : op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT;
        for (int k = 0; k < nsrc && n < 32; k++)
            stack[n++] = u->src[k];
    }
    return false;
}

/* ---- realizing */

/* A sum of products with a large weight, whether or not there are rows that share it. */
static bool streams_a_weight(const struct uop *v)
{
    enum { WEIGHT_NELEM = 1 << 16 };
    return v->op == OP_REDUCE && REDUCE_OP(v->arg.i) == OP_ADD &&
           operand_base(v->src[0])->op == OP_MUL && contracts_a_weight(v) &&
           plan_nelem(v->src[0]) >= WEIGHT_NELEM;
}

static void note_contraction(struct segment *s, const struct uop *v)
{
    s->streams |= streams_a_weight(v);
    if (is_contraction(v)) {
        s->ncontraction++;
        s->weighted |= contracts_a_weight(v);
    }
}

static bool is_plain(const struct segment *s)
{
    return !s->lead && !s->start && !s->scatter && !s->next && !s->absorbed;
}

/* Parts of one buffer: CONCAT's sources, SCATTER's base and updates. The first segment stands for
 * the kernel. */
static void realize_concat(struct plan *p, struct node *n, struct block *b, struct buffer *dest)
{
    struct uop *v = n->u, *start = uop_int(p->t, 0);
    struct segment *prev = NULL;
    int axis = (int)v->arg.i;
    for (int k = 0; k < v->nsrc; k++) {
        struct segment *s = plan_segment(p, b, n->pos, v->src[k], dest);
        s->start = mem_array(p->t, (size_t)v->ndim, sizeof *s->start);
        for (int a = 0; a < v->ndim; a++)
            s->start[a] = a == axis ? start : uop_int(p->t, 0);
        start = sym_add(p->t, start, v->src[k]->dim[axis]);
        s->absorbed = prev != NULL;
        if (prev)
            prev->next = s;
        prev = s;
        plan_use_root(p, s);
    }
}

/* The border before or behind axis a: along the axes before a as wide as the source, along those
 * behind it as the whole. NULL: there is none. */
static struct segment *border_along(struct plan *p, struct node *n, struct block *b,
                                    struct buffer *dest, int a, bool behind)
{
    struct uop *v = n->u, *dim[MAX_RANK], **start;
    if (uop_is_int(v->src[2 + 2 * a + behind], 0))
        return NULL;
    start = mem_array(p->t, (size_t)v->ndim, sizeof *start);
    for (int k = 0; k < v->ndim; k++) {
        start[k] = k < a ? v->src[2 + 2 * k] : uop_int(p->t, 0);
        dim[k] = k < a ? v->src[0]->dim[k] : v->dim[k];
    }
    dim[a] = v->src[2 + 2 * a + behind];
    if (behind)
        start[a] = sym_add(p->t, v->src[2 + 2 * a], v->src[0]->dim[a]);
    struct segment *s =
        plan_segment(p, b, n->pos, tensor_full(p->t, v->src[1], dim, v->ndim), dest);
    s->start = start;
    return s;
}

/* A halo: the border's value around, the source inside of it. So a convolution's inner loops need
 * no conditions, and the producer of its input stores into the padded buffer directly. */
static void realize_pad(struct plan *p, struct node *n, struct block *b, struct buffer *dest)
{
    struct uop *v = n->u;
    struct segment *last = NULL;
    for (int k = 0; k < 2 * v->ndim; k++) {
        struct segment *s = border_along(p, n, b, dest, k / 2, k % 2);
        if (s && last)
            last->next = s;
        if (s)
            s->absorbed = last != NULL;
        last = s ? s : last;
    }
    struct segment *inside = plan_segment(p, b, n->pos, v->src[0], dest);
    inside->start = mem_array(p->t, (size_t)v->ndim, sizeof *inside->start);
    for (int a = 0; a < v->ndim; a++)
        inside->start[a] = v->src[2 + 2 * a];
    inside->absorbed = last != NULL;
    if (last)
        last->next = inside;
    plan_use_root(p, inside);
}

static void realize_scatter(struct plan *p, struct node *n, struct block *b, struct buffer *dest)
{
    struct uop *v = n->u;
    struct segment *base = plan_segment(p, b, n->pos, v->src[0], dest);
    struct segment *update = plan_segment(p, b, n->pos, v->src[1], dest);
    update->scatter = v;
    update->absorbed = true;
    base->next = update;
    plan_use_root(p, base);
    plan_use_root(p, update);
    for (int k = 2; k < v->nsrc; k++)
        add_use(p, v->src[k], update, update->axis, update->out);
}

/* A reduction's buffer does without the axes of size 1 that it leaves. */
static struct buffer *new_temp(struct plan *p, const struct uop *v)
{
    struct uop *dim[MAX_RANK] = {0};
    int n = 0;
    for (int a = 0; a < v->ndim; a++)
        if (v->op != OP_REDUCE || !(REDUCE_AXES(v->arg.i) >> a & 1))
            dim[n++] = v->dim[a];
    return buffer_new(p->t, BUFFER_TEMP, v->dtype, dim, n, NULL);
}

static bool one_segment(const struct node *n)
{
    for (const struct use *u = n->use; u; u = u->next)
        if (u->seg != n->use->seg)
            return false;
    return true;
}

/* Whether the segment that stores n's value to some place makes that place the value's buffer, for
 * whoever else reads it. A loop's state holds the first value only until the first iteration ends.
 * */
static bool may_own(const struct node *n, const struct use *u)
{
    return u->root && is_plain(u->seg) && u->seg->block == n->block &&
           (u->seg->dest->kind != BUFFER_STATE || (one_segment(n) && !n->must));
}

static void realize(struct plan *p, struct node *n)
{
    struct uop *v = n->u;
    struct segment *own = NULL;
    for (struct use *u = n->use; u && !own; u = u->next)
        if (may_own(n, u))
            own = u->seg;
    bool halo = v->op == OP_PAD && v->src[1]->op == OP_CONST,
         parts = halo || v->op == OP_CONCAT || v->op == OP_SCATTER;
    struct buffer *dest = own ? own->dest : new_temp(p, v);
    n->buffer = dest;
    n->is_private = !own && !n->must;
    if (parts) {
        if (own)
            own->value = NULL;                        /* replaced by the parts */
        if (v->op == OP_CONCAT)
            realize_concat(p, n, n->block, dest);
        else if (halo)
            realize_pad(p, n, n->block, dest);
        else
            realize_scatter(p, n, n->block, dest);
        return;
    }
    if (!own)
        own = plan_segment(p, n->block, n->pos, v, dest);
    own->pos = n->pos;
    own->own = true;
    struct use *self = plan_find_use(n, own, own->axis);
    if (!self)
        self = add_use(p, v, own, own->axis, own->out);
    self->root = true;
    chain_add(own, own->out);
    note_contraction(own, v);
    push_sources(p, v, own, own->axis, own->out, self);
}

/* ---- staging */

/* Under a stage a contraction's operands are read again for every iteration of the prefix: fine for
 * the keys of one attention head, not for a layer's weights. `c` is NULL where no contraction lies
 * under the stage. */
static bool stage_suits(const struct segment *s, const struct uop *c, range_set prefix)
{
    if (!c)
        return true;
    double footprint = plan_nelem(c->src[0]) / extent_of(s, prefix) *
                       (double)dtype_nbytes(c->dtype);
    return prefix && !contracts_a_weight(c) && footprint <= STAGE_FOOTPRINT;
}

/* All uses in one segment, agreeing on some coordinates that depend on output ranges alone: compute
 * the rest once for those. */
static bool try_stage(struct plan *p, struct node *n)
{
    struct uop *v = n->u;
    struct segment *s = n->use->seg;
    struct stage st = {0};
    bool local[MAX_RANK];
    double nlocal = 1;
    if (segment_is_full(s) || n->use->root)
        return false;
    for (int a = 0; a < v->ndim; a++) {
        local[a] = (plan_mask(p, n->use->index[a]) & s->inner) != 0;
        for (const struct use *u = n->use->next; u; u = u->next)
            local[a] |= u->index[a] != n->use->index[a];
        if (local[a])
            nlocal *= plan_extent(v->dim[a]);
        else
            st.prefix |= plan_mask(p, n->use->index[a]);
    }
    double evaluations = extent_of(s, st.prefix) * nlocal;
    if (nlocal > STAGE_NELEM || evaluations > 1.01 * plan_nelem(v) || !chain_accepts(s, st.prefix))
        return false;
    /* under a value that is normalized by its row, whatever makes the row is needed more than once
     * and decides for itself */
    const struct uop *c = has_row_stat(p, v) ? NULL : leads_to_contraction(p, v);
    if (!stage_suits(s, c, st.prefix) || (v->op == OP_REDUCE && st.prefix == 0))
        return false;
    struct uop *dim[MAX_RANK];
    range_set open = st.prefix;
    int nd = 0;
    for (int a = 0; a < v->ndim; a++) {
        st.index[a] = local[a] ? new_range(p, s, v->dim[a], true) : n->use->index[a];
        st.range[a] = local[a] ? st.index[a] : NULL;
        if (local[a]) {
            dim[nd++] = v->dim[a];
            open |= plan_mask(p, st.index[a]);
        }
    }
    st.scratch = buffer_new(p->t, BUFFER_SCRATCH, v->dtype, dim, nd, NULL);
    struct stage *kept = mem_copy(p->t, &st, sizeof st);
    for (struct use *u = n->use; u; u = u->next)
        u->stage = kept;
    chain_add(s, st.prefix);
    struct use *self = plan_find_use(n, s, st.index);
    if (!self) {
        self = add_use(p, v, s, st.index, open);
        self->stage = kept;
    }
    push_sources(p, v, s, st.index, open, self);
    return true;
}

/* ---- deciding */

static bool is_too_large(const struct node *n, int most)
{
    int depth = 0;
    for (const struct use *u = n->use; u; u = u->next)
        depth = u->depth > depth ? u->depth : depth;
    return depth > MAX_SEGMENT_DEPTH * most || n->use->seg->nnode > MAX_SEGMENT_NODES * most;
}

static double evaluations_of(struct plan *p, const struct node *n)
{
    double sum = 0;
    for (const struct use *u = n->use; u; u = u->next)
        sum += extent_of(u->seg, placed_in(u->seg, mask_of(p, u->index, n->u->ndim), u->open));
    return sum;
}

static void inline_uses(struct plan *p, struct node *n)
{
    for (struct use *u = n->use; u; u = u->next) {
        if (u->root)
            u->seg->own = true;
        push_sources(p, n->u, u->seg, u->index, u->open, u);
    }
}

/* Needed within a reduction or a stage: what it is made of is a layer's operand, no epilogue. */
static bool is_within(struct plan *p, const struct node *n)
{
    const struct segment *s = n->use->seg;
    return (mask_of(p, n->use->index, n->u->ndim) & s->inner) != 0;
}

/* True: compute it where it is used. False: try to stage or realize it. */
static bool inline_elementwise(struct plan *p, struct node *n)
{
    double repeats = evaluations_of(p, n) / plan_nelem(n->u);
    /* small weights stay small in memory */
    if (is_of_weights(n->u, WEIGHT_DEPTH))
        return true;
    if (is_within(p, n) && joins_parts(p, n->u))
        return false;
    if (!(repeats > 1.01)) {
        /* the sum of two layers: one contraction takes the sum as its epilogue, the other keeps its
         * own epilogue */
        const struct uop *c = is_within(p, n) ? NULL : leads_to_contraction(p, n->u);
        struct segment *s = n->use->seg;
        if (c && contracts_a_weight(c) && s->claimed && s->claimed != c)
            return false;
        if (c)
            s->claimed = c;
        return true;
    }
    /* a layer's prologue belongs to whoever produced it */
    if (n->use->seg->ncontraction && is_within(p, n))
        return false;
    return op_cost(n->u) < EXPENSIVE && repeats <= REPEAT_CHEAP && !leads_to_contraction(p, n->u);
}

/* Rows of a softmax that feeds a contraction are worth keeping. The prologue of a layer belongs to
 * whoever produced it: the layer is then one contraction over buffers, which can be tiled. */
static bool wants_stage(struct plan *p, struct node *n)
{
    double repeats = evaluations_of(p, n) / plan_nelem(n->u);
    if (n->use->seg->weighted || joins_parts(p, n->u) ||
        (n->use->seg->streams && streams_a_weight(n->u)))
        return false;
    if (n->u->op == OP_REDUCE || (repeats > 1.01 && repeats <= REPEAT_CHEAP))
        return true;
    return repeats > 1.01 && has_row_stat(p, n->u);
}

static bool inline_reduce(struct plan *p, struct node *n)
{
    struct segment *s = n->use->seg;
    range_set deps = mask_of(p, n->use->index, n->u->ndim);
    bool contraction = is_contraction(n->u);
    /* of a stage: one contraction may feed another */
    bool row = (deps & s->inner) && !(contraction && contracts_a_weight(n->u));
    if (n->nuse > 1 || segment_is_full(s) || (contraction && s->ncontraction && !row))
        return false;
    /* two of them side by side are no nest of one sum, which could be tiled */
    if (s->streams && streams_a_weight(n->u))
        return false;
    if (!(deps & s->inner) && !chain_accepts(s, deps))
        return false;
    if (extent_of(s, placed_in(s, deps, n->use->open)) > 1.01 * plan_nelem(n->u))
        return false;
    /* inside a stage a contraction with weights would stream them again for every row */
    if (contraction && contracts_a_weight(n->u) && (deps & s->inner) && s->nchain &&
        !is_subset(s->out, deps))
        return false;
    /* a layer under a reduction has no rows for a tile: a small window is worth that, not a whole
     * image */
    if (contraction && contracts_a_weight(n->u) && extent_of(s, deps & s->inner) > POOLED_MAX)
        return false;
    if (!(deps & s->inner))
        chain_add(s, deps);
    note_contraction(s, n->u);
    return true;
}

/* -O0 keeps apart what can be kept apart. A product with more elements than its factors must not
 * exist in memory even then. */
static bool noopt_inlines(const struct node *n)
{
    const struct uop *m = operand_base(n->u);
    return n->use && !n->use->next && !n->use->root && m->op == OP_MUL &&
           plan_nelem(m) > 1.5 * plan_nelem(operand_base(m->src[0])) &&
           plan_nelem(m) > 1.5 * plan_nelem(operand_base(m->src[1]));
}

/* The segment's own value, where the segment writes to a place that nobody else can read it
 * from. */
static void compute_root(struct plan *p, struct node *n)
{
    struct segment *s = n->use->seg;
    note_contraction(s, n->u);
    chain_add(s, s->out);
    inline_uses(p, n);
}

/* Movement that gives each element as it is, if somewhere else or at several places. */
static bool is_spread(const struct uop *v)
{
    return v->op == OP_RESHAPE || v->op == OP_PERMUTE || v->op == OP_EXPAND || v->op == OP_FLIP ||
           v->op == OP_WINDOW;
}

/* The bytes that v is made of by cheap steps, as dequantization does: a fourth of the memory, and
 * less if they are spread over more places than there are bytes. NULL: it is not. */
static struct uop *bytes_below(struct plan *p, struct uop *v)
{
    enum { STEPS = 6 };
    for (int i = 0; i < STEPS && !plan_node(p, v)->must; i++) {
        bool cast = v->op == OP_CAST && (v->dtype == DTYPE_F32 || v->dtype == DTYPE_I32);
        struct uop *q = cast ? v->src[0] : v;
        while (q != v && is_spread(q))
            q = q->src[0];
        if (cast && q->op == OP_CAST && dtype_is_byte(q->dtype))
            return q;
        bool cheap = cast || v->op == OP_ADD || v->op == OP_MUL || v->op == OP_MAX;
        if (!cheap || (v->dtype != DTYPE_F32 && v->dtype != DTYPE_I32) ||
            (v->nsrc == 2 && operand_base(v->src[1])->op != OP_CONST))
            return NULL;
        v = v->src[0];
    }
    return NULL;
}

/* What is to be kept: bytes rather than the floats that they stand for. */
static void keep(struct plan *p, struct node *n)
{
    struct uop *bytes = n->must || n->use->root || p->noopt ? NULL : bytes_below(p, n->u);
    /* steps that would be done again and again are done before */
    if (!bytes || is_too_large(n, 1) ||
        evaluations_of(p, n) > 1.01 * n->nuse * plan_nelem(n->u)) {
        realize(p, n);
        return;
    }
    plan_node(p, bytes)->kept = true;
    inline_uses(p, n);
}

/* Whether a byte is made by a division, as by QuantizeLinear. */
static bool is_divided(const struct uop *v)
{
    enum { STEPS = 6 };
    for (int i = 0; i < STEPS && v->nsrc > 0 && op_is_elementwise(v->op); i++) {
        if (op_cost(v) >= EXPENSIVE)
            return true;
        v = v->src[0];
    }
    return false;
}

/* A byte that would be made of a float again and again, or of a layer's sum within a reduction:
 * nothing is smaller to keep. Channels that are filled up to four are no more than a few more. */
static bool is_byte_to_keep(struct plan *p, const struct node *n)
{
    if (p->noopt || n->u->op != OP_CAST || !dtype_is_byte(n->u->dtype) ||
        !dtype_is_float(n->u->src[0]->dtype))
        return false;
    double repeats = evaluations_of(p, n) / plan_nelem(n->u);
    if (repeats > 1.5 || (repeats > 1.01 && is_divided(n->u)))
        return true;
    const struct uop *c = is_within(p, n) ? leads_to_contraction(p, n->u) : NULL;
    return c && contracts_a_weight(c);
}

static void decide_computed(struct plan *p, struct node *n)
{
    if (n->must || n->kept || is_byte_to_keep(p, n)) {
        realize(p, n);
        return;
    }
    struct segment *s = n->use->seg;
    bool reduce = n->u->op == OP_REDUCE;
    if (is_index_like(p, n->u, 8) || (!p->noopt && is_widened_weight(n->u)))
        inline_uses(p, n);
    else if (!one_segment(n) || s->block != n->block || is_too_large(n, 1))
        keep(p, n);
    else if (n->use->root && !n->use->next && !is_plain(s))
        compute_root(p, n);
    else if (n->use->root || (p->noopt && !noopt_inlines(n)))
        realize(p, n);
    else if (reduce ? inline_reduce(p, n) : inline_elementwise(p, n))
        inline_uses(p, n);
    else if (!(wants_stage(p, n) && try_stage(p, n)))
        keep(p, n);
}

struct node *plan_contiguous_base(struct plan *p, struct uop *u)
{
    while (u->op == OP_RESHAPE)
        u = u->src[0];
    if (u->op == OP_CONST || u->op == OP_VAR || u->op == OP_IOTA ||
        (op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT))
        return NULL;
    struct node *n = plan_node(p, u);
    n->must = true;
    return n;
}

/* INDEX reads its source at places known only at run time: whatever lies under its movement ops
 * needs a buffer. */
static void demand_source(struct plan *p, struct uop *u)
{
    while (op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT && u->op != OP_IOTA)
        u = u->src[0];
    struct node *n = plan_node(p, u);
    n->must = true;
}

/* The byte that a table of bytes is read by: the table has a kernel of its own, since vectors do all
 * that stands before and behind it. */
static void keep_key(struct plan *p, const struct uop *table)
{
    struct uop *v = table->src[1];
    while (!dtype_is_byte(v->dtype) && v->nsrc > 0)
        v = v->src[0];
    while (is_spread(v))
        v = v->src[0];
    plan_node(p, v)->kept = true;
}

/* Padding that a contraction would test for again and again, or that is read at many places of one
 * segment: a tile's. */
static bool wants_halo(struct plan *p, const struct node *n)
{
    enum { PLACES = 4 };
    if (p->noopt || n->u->op != OP_PAD || n->u->src[1]->op != OP_CONST || !n->use || n->use->root)
        return false;
    double repeats = evaluations_of(p, n) / plan_nelem(n->u);
    /* vectors of bytes are read without conditions, and there is not much to copy */
    bool contraction = dtype_is_byte(n->u->dtype);
    double most = contraction ? 1 : 2;
    for (const struct use *u = n->use; u; u = u->next)
        contraction |= u->seg->ncontraction > 0;
    return contraction ? repeats > most : n->nuse > PLACES && repeats > 1;
}

void plan_decide(struct plan *p, struct node *n)
{
    struct uop *v = n->u;
    if ((!n->use && !n->must) || is_leaf(v))
        return;
    bool table = !p->noopt && reads_byte_table(v);
    if (v->op == OP_INDEX)
        demand_source(p, v->src[0]);
    if (table)
        keep_key(p, v);
    if (table || v->op == OP_CONCAT || v->op == OP_SCATTER || v->op == OP_CONTIGUOUS || wants_halo(p, n))
        realize(p, n);
    else if (op_class(v->op) == CLASS_MOVE && n->use && !is_too_large(n, 2) &&
             !(n->must && v->op == OP_IOTA))
        inline_uses(p, n);
    else
        decide_computed(p, n);
}
