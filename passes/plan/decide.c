/* decide.c - decides which values get a buffer, which are inlined where they are used, and which
 * are kept in scratch for a row.
 *
 * The graph is walked from consumers to producers, so when a node comes up all its uses are known:
 * the coordinates as expressions over the ranges of the segment that needs it, and the ranges open
 * there (tinygrad's rangeify, with a cost model). Then
 *   - movement ops are never computed: their uses become uses of their source, with mapped
 *     coordinates;
 *   - a value is INLINED if it is needed in one segment only and computing it there repeats no work
 *     that matters;
 *   - it is STAGED if it is needed several times under the same outer ranges (softmax's exp, a row
 *     of attention scores): it is computed once per iteration of those ranges, into scratch;
 *   - otherwise it is REALIZED: a segment of its own writes it to a buffer.
 * Work repeats where a value is evaluated more often than it has elements. A value that depends on
 * only some of the open ranges is hoisted out of the others by the linearizer, if the loop order
 * allows it: the sets that must be prefixes of the order form a chain, and a value whose set does
 * not fit the chain is realized.
 */
#include "passes/plan/fuse.h"

enum { POOLED_MAX = 16 };

/* Notes why the value is not computed where it is used, which the report says; returns false. */
static bool refuse(struct node *n, const char *why)
{
    n->why = why;
    return false;
}

static bool is_too_large(const struct node *n, int most)
{
    int depth = 0;
    for (const struct use *u = n->use; u; u = u->next)
        depth = u->depth > depth ? u->depth : depth;
    return depth > MAX_SEGMENT_DEPTH * most || n->use->seg->nnode > MAX_SEGMENT_NODES * most;
}

/* Tensors and sums below the segment's value, if it computes all that lies between; more than
 * `most` where there are more of them, or very many operations. */
static int count_reach(struct tgc *t, const struct segment *s, int most)
{
    enum { LOOK_MAX = 4096 };
    struct mem_mark mark = scratch_mark(t);
    struct uop_map seen = {.t = t, .scratch = true};
    struct uop **todo = scratch_array(t, LOOK_MAX, sizeof *todo);
    int n = 0, done = 0, count = 0;
    todo[n++] = s->value;
    while (done < n && count <= most) {
        struct uop *u = todo[done++];
        bool is_inside = u == s->value || op_is_elementwise(u->op) || op_class(u->op) == CLASS_MOVE;
        count += u->op != OP_CONST && (value_is_leaf(u) || !is_inside);
        for (int i = 0; i < u->nsrc && is_inside && !value_is_leaf(u); i++) {
            struct uop *v = u->src[i];
            if (v->dtype == DTYPE_INDEX || map_get(&seen, v))
                continue;
            map_set(&seen, v, v);
            if (n < LOOK_MAX)
                todo[n++] = v;
            else
                count = most + 1;
        }
    }
    scratch_release(t, mark);
    return count;
}

/* Whether its segment, computing the node, would have more tensors than the device's kernels take,
 * its result included. An undecided value counts as a tensor, unless all of it comes from few. */
static bool has_too_many_operands(const struct plan *p, const struct node *n)
{
    struct segment *s = n->use->seg;
    int most = device_operands(p->t);
    if (s->nread + n->u->nsrc <= most)
        return false;
    if (!s->reach)
        s->reach = 1 + count_reach(p->t, s, most);
    return s->reach > most;
}

static double evaluations_of(struct plan *p, const struct node *n)
{
    double sum = 0;
    for (const struct use *u = n->use; u; u = u->next)
        sum += segment_extent(
            u->seg, segment_placed_in(u->seg, plan_mask_all(p, u->index, n->u->ndim), u->open));
    return sum;
}

static void inline_uses(struct plan *p, struct node *n)
{
    for (struct use *u = n->use; u; u = u->next) {
        bool first = true;
        for (const struct use *before = n->use; before != u; before = before->next)
            first &= before->seg != u->seg;
        u->seg->nread -= first;
        if (u->root)
            u->seg->own = true;
        plan_push_sources(p, n->u, u->seg, u->index, u->open, u);
    }
}

/* Whether its uses are inside a reduction or a stage: then it is a layer's operand, not an
 * epilogue. */
static bool is_within(struct plan *p, const struct node *n)
{
    const struct segment *s = n->use->seg;
    return (plan_mask_all(p, n->use->index, n->u->ndim) & s->inner) != 0;
}

/* An expensive value, or a layer, that a pooling's overlapping windows would recompute, or keep for
 * a whole image: it is computed before, by vectors. */
static bool is_pooled_anew(struct plan *p, const struct node *n, double repeats)
{
    const struct segment *s = n->use->seg;
    bool window = false;
    for (int a = 0; a < n->u->ndim; a++) {
        range_set m = plan_mask(p, n->use->index[a]);
        window |= (m & s->inner) && (m & s->out);
    }
    return window && repeats > 1.01 && !s->ncontraction && n->u->op != OP_REDUCE &&
           value_takes_long(p, n->u);
}

/* True: compute it where it is used. False: try to stage or realize it. */
static bool inline_elementwise(struct plan *p, struct node *n)
{
    double repeats = evaluations_of(p, n) / value_nelem(n->u);
    /* small weights stay small in memory */
    if (value_is_stationary(n->u))
        return true;
    if (is_within(p, n) && value_joins_parts(p, n->u))
        return refuse(n, "it selects among several tensors, which an inner loop would repeat");
    if (!(repeats > 1.01)) {
        /* a sum of two layers is the epilogue of one contraction; the other keeps its own epilogue
         * and is stored */
        const struct uop *c = is_within(p, n) ? NULL : value_contraction(p, n->u);
        struct segment *s = n->use->seg;
        if (c && value_contracts_weight(c) && s->claimed && s->claimed != c)
            return refuse(n, "the kernel is the epilogue of another layer already");
        if (c)
            s->claimed = c;
        return true;
    }
    /* a layer's prologue is computed by its producer */
    if (n->use->seg->ncontraction && is_within(p, n))
        return refuse(n, "the layer that reads it would compute it again for each of its columns");
    n->why = "it would be computed more often than it has elements";
    return cost_class_of(n->u->op) < COST_DIVISION && repeats <= RATIO_REPEATED &&
           !value_contraction(p, n->u) && !is_pooled_anew(p, n, repeats);
}

/* A sum of products with a coordinate that depends on a stage's column and on a row at once, as the
 * distance between key and query: rows do not share operands. A kernel of its own computes a tile
 * of all distances in less time than this segment the ones that it needs. */
static bool is_sheared(struct plan *p, const struct node *n)
{
    const struct segment *s = n->use->seg;
    for (int a = 0; a < n->u->ndim && value_is_contraction(n->u); a++) {
        range_set m = plan_mask(p, n->use->index[a]);
        if ((m & s->inner) && (m & s->out))
            return true;
    }
    return false;
}

/* The rows of a softmax that feeds a contraction are worth a stage. A layer's prologue is computed
 * by its producer: the layer is then a contraction over buffers, which can be tiled. */
static bool wants_stage(struct plan *p, struct node *n)
{
    double repeats = evaluations_of(p, n) / value_nelem(n->u);
    if (n->use->seg->weighted || value_joins_parts(p, n->u) ||
        (n->use->seg->streams && value_streams_weight(machine_of(p->t), n->u)) ||
        is_pooled_anew(p, n, repeats) ||
        is_sheared(p, n))
        return false;
    if (n->u->op == OP_REDUCE || (repeats > 1.01 && repeats <= RATIO_REPEATED))
        return true;
    return repeats > 1.01 && value_has_row_stat(p, n->u);
}

/* A row of a stage, all elements of which use the same weights: scores of a constant query. */
static bool is_row_of_stage(struct plan *p, const struct node *n, range_set deps)
{
    const struct segment *s = n->use->seg;
    bool inner[MAX_RANK];
    for (int a = 0; a < n->u->ndim; a++)
        inner[a] = (plan_mask(p, n->use->index[a]) & s->inner) != 0;
    return (deps & s->inner) && range_set_within(deps & s->inner, s->staged) &&
           !value_keeps_columns(p, n->u, n->u, inner);
}

static bool inline_reduce(struct plan *p, struct node *n)
{
    struct segment *s = n->use->seg;
    range_set deps = plan_mask_all(p, n->use->index, n->u->ndim);
    bool contraction = value_is_contraction(n->u);
    bool layer = contraction && value_contracts_weight(n->u) && !is_row_of_stage(p, n, deps);
    /* the row of a stage: one contraction may feed another */
    bool row = (deps & s->inner) && !layer;
    if (n->nuse > 1)
        return refuse(n, "the kernel needs the sum at several places");
    if (segment_is_full(s))
        return refuse(n, "the kernel has as many loops as one may have");
    if (contraction && s->ncontraction && !row)
        return refuse(n, "the kernel has a sum of products already, and a tile has room for one");
    if (row && is_sheared(p, n))
        return refuse(n, "its rows share no operands, so a kernel of its own computes it by tiles");
    /* two such products in one segment are no single nest, which could be tiled */
    if (s->streams && value_streams_weight(machine_of(p->t), n->u))
        return refuse(n, "each of the two products streams a large weight");
    if (!(deps & s->inner) && !segment_accepts(s, deps))
        return refuse(n, "no order of the kernel's loops computes each of its sums once");
    /* a sum of weights that is invariant along a layer's columns prevents tiling: the second of the
     * two gets a kernel of its own */
    bool gate = !(deps & s->inner) && deps != s->out && range_set_within(deps, s->out) &&
                value_behind(n->u->src[0], MOVES_OPERAND)->op == OP_MUL &&
                value_contracts_weight(n->u);
    if ((gate && s->ncontraction) || (contraction && value_contracts_weight(n->u) && s->gated))
        return refuse(n, "a sum of weights that the layer's columns share would prevent tiles");
    if (segment_extent(s, segment_placed_in(s, deps, n->use->open)) > 1.01 * value_nelem(n->u))
        return refuse(n, "the sum would be computed more often than it has elements");
    /* inside a stage, a contraction with weights would stream them again for every row */
    if (layer && (deps & s->inner) && s->nchain && !range_set_within(s->out, deps))
        return refuse(n, "its weights would be read again for every row");
    /* a layer under a reduction has no rows for a tile, which only a small window is worth, not a
     * whole image */
    if (layer && segment_extent(s, deps & s->inner) > POOLED_MAX)
        return refuse(n, "under the sum that reads it, the layer would have no rows for a tile");
    /* nor has one whose operands are both values, which besides has no layout for its columns */
    if (contraction && !layer && (deps & s->inner) && !range_set_within(deps & s->inner, s->staged))
        return refuse(n, "under the sum that reads it, the product would have no rows for a tile");
    /* nor has one that is invariant along axes of the segment: their loops stand inside of it */
    if (contraction && !layer && !(deps & s->inner) && deps != s->out)
        return refuse(n, "loops along which the product does not change would stand inside of it");
    if (!(deps & s->inner))
        segment_add_prefix(s, deps);
    s->gated |= gate;
    segment_note_contraction(p, s, n->u);
    return true;
}

/* -O0 inlines only what must be: a product with more elements than its factors must not exist in
 * memory. */
static bool noopt_inlines(const struct node *n)
{
    const struct uop *m = value_behind(n->u, MOVES_OPERAND);
    return n->use && !n->use->next && !n->use->root && m->op == OP_MUL && value_outgrows_factors(m);
}

/* Computes the segment's own value in place, if the segment stores where nobody else could read
 * it. */
static void compute_root(struct plan *p, struct node *n)
{
    struct segment *s = n->use->seg;
    segment_note_contraction(p, s, n->u);
    segment_add_prefix(s, s->out);
    inline_uses(p, n);
}

/* The bytes from which cheap ops compute v, as dequantization does: a quarter of the memory, and
 * less if they are broadcast. NULL: there are none. */
static struct uop *bytes_below(struct plan *p, struct uop *v)
{
    enum { STEPS = 6 };
    for (int i = 0; i < STEPS && !plan_node(p, v)->must; i++) {
        bool cast = v->op == OP_CAST && (v->dtype == DTYPE_F32 || v->dtype == DTYPE_I32);
        struct uop *q = cast ? v->src[0] : v;
        q = cast ? value_behind(q, MOVES_PLACES) : q;
        if (cast && dtype_is_byte(q->dtype))
            return q;
        bool cheap = cast || v->op == OP_ADD || v->op == OP_MUL || v->op == OP_MAX;
        if (!cheap || (v->dtype != DTYPE_F32 && v->dtype != DTYPE_I32) ||
            (v->nsrc == 2 && value_behind(v->src[1], MOVES_OPERAND)->op != OP_CONST))
            return NULL;
        v = v->src[0];
    }
    return NULL;
}

/* Stores the value, or the bytes from which it is dequantized. */
static void keep(struct plan *p, struct node *n)
{
    struct uop *bytes = n->must || n->use->root || p->noopt ? NULL : bytes_below(p, n->u);
    /* ops that would be repeated too often are computed once, before */
    if (!bytes || is_too_large(n, 1) ||
        evaluations_of(p, n) > 1.01 * n->nuse * value_nelem(n->u)) {
        plan_realize(p, n);
        return;
    }
    plan_node(p, bytes)->kept = true;
    inline_uses(p, n);
}

/* Whether a byte is computed by a division, as by QuantizeLinear. */
static bool is_divided(const struct uop *v)
{
    enum { STEPS = 6 };
    for (int i = 0; i < STEPS && v->nsrc > 0 && op_is_elementwise(v->op); i++) {
        if (cost_class_of(v->op) >= COST_DIVISION)
            return true;
        v = v->src[0];
    }
    return false;
}

/* A byte that would be computed from a float repeatedly, or from a layer's sum within a reduction:
 * bytes are the smallest values to store. A little repetition, from channels padded to four, is
 * allowed. */
static bool is_byte_to_keep(struct plan *p, const struct node *n)
{
    if (p->noopt || n->u->op != OP_CAST || !dtype_is_byte(n->u->dtype) ||
        !dtype_is_float(n->u->src[0]->dtype))
        return false;
    double repeats = evaluations_of(p, n) / value_nelem(n->u);
    if (repeats > 1.5 || (repeats > 1.01 && is_divided(n->u)))
        return true;
    const struct uop *c = is_within(p, n) ? value_contraction(p, n->u) : NULL;
    return c && value_contracts_weight(c);
}

/* A statistic of each column that the segment needs at all of the column's rows. A layer's columns
 * are innermost in memory. With a kernel of its own for the statistic, both kernels have vectors
 * along the columns; a single kernel would go column by column, strided. Not so if this segment
 * also sums over the rows, as for a variance around that mean. */
static bool is_stat_of_columns(struct plan *p, const struct node *n)
{
    const struct segment *s = n->use->seg;
    range_set deps = plan_mask_all(p, n->use->index, n->u->ndim);
    return !p->noopt && n->nuse == 1 && !s->inner && deps && deps != s->out &&
           range_set_within(deps, s->out) && value_has_column_stat(p, n->u, POOLED_MAX);
}

/* A converted byte of the run's, or a value rounded by --math, that a device's threads convert on
 * load if there are few rows or columns: no block would reuse it. A rounded value must have one
 * row or column: from two on matrix instructions multiply it. */
static bool is_cast_for_few(struct plan *p, const struct node *n)
{
    const struct uop *v = n->u;
    if (p->noopt || !device_has_grid(p->t) || v->op != OP_CAST || v->src[0]->op != OP_BUFFER ||
        n->nuse != 1)
        return false;
    const bool of_byte =
        dtype_is_byte(v->src[0]->dtype) && (v->dtype == DTYPE_I32 || v->dtype == DTYPE_F32);
    const double few = of_byte ? BYTES_SIDE_LEAST : 2,
                 columns = evaluations_of(p, n) / value_nelem(v),
                 results = value_nelem(n->use->seg->value);
    return (of_byte || (v->dtype == p->t->math && v->src[0]->dtype == DTYPE_F32)) &&
           (columns < few || results < few * columns);
}

/* A rounded factor as f32, by --math or for a matrix instruction of the device: what is worth
 * memory is the half. */
static bool is_widened_factor(const struct plan *p, const struct uop *v)
{
    if (v->op != OP_CAST || v->dtype != DTYPE_F32)
        return false;
    enum dtype d = v->src[0]->dtype;
    return d == p->t->math ||
           (!p->noopt && dtype_bits(d) <= 16 && dtype_is_float(d) && device_multiplies(p->t, d));
}

/* Whether v, of few elements, is computed from x by reductions and elementwise ops. */
static bool is_stat_of(struct uop *v, const struct uop *x)
{
    enum { STEPS = 48 };
    struct uop *open[STEPS] = {v};
    int nopen = 1;
    for (int step = 0; step < STEPS && nopen > 0; step++) {
        struct uop *u = open[--nopen];
        if (u == x)
            return true;
        bool passes = op_is_elementwise(u->op) || op_class(u->op) == CLASS_MOVE ||
                      u->op == OP_REDUCE || u->op == OP_CONTIGUOUS;
        for (int i = 0; passes && i < u->nsrc && nopen < STEPS; i++)
            if (u->src[i]->ndim > 0)
                open[nopen++] = u->src[i];
    }
    return false;
}

/* A function of one element of a tensor and a statistic of the same tensor: what is centered, an
 * exponential beside its maximum. */
static bool is_beside_stat(struct uop *v)
{
    enum { FEW = 16, STEPS = 4 };
    for (int step = 0; step < STEPS && op_is_elementwise(v->op) && v->nsrc <= 2; step++) {
        struct uop *next = v->nsrc == 1 ? v->src[0] : NULL;
        for (int i = 0; i < v->nsrc && v->nsrc == 2; i++) {
            struct uop *x = v->src[i], *stat = value_behind(v->src[1 - i], MOVES_SPREAD);
            next = stat->op == OP_CONST ? x : next;
            if (value_nelem(x) <= value_nelem(v) && FEW * value_nelem(stat) <= value_nelem(v) &&
                is_stat_of(stat, x))
                return true;
        }
        if (!next)
            return false;
        v = next;
    }
    return false;
}

/* A factor of a layer's product of more than a few rows, for all of its columns: in a kernel that
 * computes the statistic, too, a block has one row, since no tile has sums beside its own. */
static bool is_factor_of_tiles(struct plan *p, const struct node *n)
{
    enum { ROWS = 16 };
    const struct uop *c = value_contraction(p, n->use->seg->value);
    double columns = evaluations_of(p, n) / value_nelem(n->u);
    return c && columns > 1.5 && value_contracts_weight(c) && value_nelem(c) > ROWS * columns;
}

/* On a device, such a value is computed where it is needed, if several kernels need it or its rows
 * are too long for a stage. The tensor is stored anyway, since the statistic needs all of it first,
 * and reading it again takes less than storing and reading this value. */
static bool is_computed_anew(struct plan *p, const struct node *n)
{
    return !p->noopt && device_has_grid(p->t) && !is_too_large(n, 1) && is_beside_stat(n->u) &&
           !is_factor_of_tiles(p, n);
}

/* Why it cannot be part of the one kernel that uses it. */
static const char *why_apart(const struct plan *p, const struct node *n)
{
    return !node_has_one_segment(n)          ? "several kernels read it"
           : n->use->seg->block != n->block  ? "it is computed outside of the branch or loop"
           : is_too_large(n, 1)              ? "the kernel would become too large"
           : has_too_many_operands(p, n) ? "the kernel would have more tensors than it may have"
                                             : NULL;
}

/* The block of the entry that a block is in; NULL: it is in none. */
static const struct block *entry_of(const struct block *b)
{
    while (b && b->kind != BLOCK_ENTRY)
        b = b->parent;
    return b;
}

/* An elementwise value of which each segment that needs it is in another entry: a run needs it
 * once, wherever it is computed. */
static bool is_of_entries(struct plan *p, const struct node *n)
{
    if (p->noopt || !p->graph->nentry || n->block->kind != BLOCK_TOP ||
        !op_is_elementwise(n->u->op) || is_too_large(n, 1))
        return false;
    for (const struct use *a = n->use; a; a = a->next)
        for (const struct use *b = n->use; b; b = b->next)
            if (!entry_of(a->seg->block) || a->root ||
                (a->seg != b->seg && entry_of(a->seg->block) == entry_of(b->seg->block)))
                return false;
    return true;
}

static void decide_computed(struct plan *p, struct node *n)
{
    const char *apart = NULL;
    if (n->must || n->kept || is_byte_to_keep(p, n)) {
        n->why = n->must   ? "it is read at data-dependent indices, or by the host"
                 : n->kept ? "several values are computed from it"
                           : "bytes are the smallest values to store";
        plan_realize(p, n);
        return;
    }
    struct segment *s = n->use->seg;
    bool reduce = n->u->op == OP_REDUCE;
    if (value_is_index_like(n->u) || is_widened_factor(p, n->u) || is_cast_for_few(p, n) ||
        (!p->noopt && (value_is_widened_weight(n->u) || value_is_mask_of_places(n->u))))
        inline_uses(p, n);
    else if (!node_has_one_segment(n) &&
             (is_computed_anew(p, n) || is_of_entries(p, n) ||
              (!is_too_large(n, 1) && plan_is_recomputed(p, n))))
        inline_uses(p, n);
    else if ((apart = why_apart(p, n)) != NULL)
        refuse(n, apart), keep(p, n);
    else if (n->use->root && !n->use->next && !segment_is_plain(s))
        compute_root(p, n);
    else if (n->use->root || (p->noopt && !noopt_inlines(n)))
        refuse(n, n->use->root ? NULL : "-O0 stores each value"), plan_realize(p, n);
    else if (is_stat_of_columns(p, n))
        refuse(n, "both kernels then have vectors along the columns"), keep(p, n);
    else if (reduce ? inline_reduce(p, n) : inline_elementwise(p, n))
        inline_uses(p, n);
    else if (!(wants_stage(p, n) && plan_stage(p, n)))
        is_computed_anew(p, n) ? inline_uses(p, n) : keep(p, n);
}

struct node *plan_contiguous_base(struct plan *p, struct uop *u)
{
    while (u->op == OP_RESHAPE)
        u = u->src[0];
    if (u->op == OP_CONST || u->op == OP_VAR || u->op == OP_IOTA ||
        (op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT))
        return NULL;
    const struct buffer *b = uop_buffer_of(u);
    if (b && b->port.state && b->storage)
        return NULL; /* its rows have the stride of their upper bound */
    struct node *n = plan_node(p, u);
    n->must = n->in_order = true;
    return n;
}

/* INDEX reads its source at data-dependent coordinates: the value under its movement ops needs a
 * buffer. */
static void demand_source(struct plan *p, struct uop *u)
{
    plan_node(p, value_behind(u, MOVES_ANY))->must = true;
}

/* Stores the index byte of a table of bytes: the look-up gets a kernel of its own, so that the ops
 * before and after it can be vectorized. */
static void keep_key(struct plan *p, const struct uop *table)
{
    struct uop *v = table->src[1];
    while (!dtype_is_byte(v->dtype) && v->nsrc > 0)
        v = v->src[0];
    plan_node(p, value_behind(v, MOVES_PLACES))->kept = true;
}

/* Padding that a contraction would test repeatedly, or that is read at many coordinates of one
 * segment: a tile's. */
static bool wants_halo(struct plan *p, const struct node *n)
{
    enum { PLACES = 4 };
    if (p->noopt || n->u->op != OP_PAD || n->u->src[1]->op != OP_CONST || !n->use || n->use->root)
        return false;
    /* if no kernel can store directly inside of it, it would be copied: on a device that launch
     * costs more than the tests, which copies to shared memory make once */
    const struct uop *inside = value_behind(n->u->src[0], MOVES_VIEW);
    if (device_has_grid(p->t) &&
        (value_is_leaf(inside) || inside->op == OP_REDUCE || inside->op == OP_CONTIGUOUS))
        return false;
    double repeats = evaluations_of(p, n) / value_nelem(n->u);
    /* vectors of bytes are loaded without conditions, and copies of bytes are small */
    bool contraction = dtype_is_byte(n->u->dtype);
    double most = contraction ? 1 : 2;
    for (const struct use *u = n->use; u; u = u->next)
        contraction |= u->seg->ncontraction > 0;
    return contraction ? repeats > most : n->nuse > PLACES && repeats > 1;
}

/* A sum's result, of a shape without the summed axes, that is a part of a concat and is read
 * elsewhere, too: it is computed where it is stored, and so in the concat (store_inside.c). On a
 * processor a copy is little beside a layer. */
static bool is_joined_sum(struct plan *p, const struct node *n)
{
    bool joined = false;
    if (p->noopt || !device_has_grid(p->t) || n->u->op != OP_RESHAPE ||
        n->u->src[0]->op != OP_REDUCE || !n->use || node_has_one_segment(n))
        return false;
    for (const struct use *u = n->use; u; u = u->next)
        joined |= u->root && u->seg->start;
    return joined;
}

void plan_decide(struct plan *p, struct node *n)
{
    struct uop *v = n->u;
    if ((!n->use && !n->must) || value_is_leaf(v))
        return;
    bool table = !p->noopt && reads_byte_table(v);
    if (v->op == OP_INDEX)
        demand_source(p, v->src[0]);
    if (table)
        keep_key(p, v);
    if (table || v->op == OP_CONCAT || v->op == OP_SCATTER || v->op == OP_CONTIGUOUS ||
        wants_halo(p, n) || is_joined_sum(p, n)) {
        n->why = table                ? "a look-up of bytes has a kernel of its own"
                 : v->op == OP_CONCAT ? "its parts are stored in place"
                 : v->op == OP_PAD    ? "its border is stored once, not tested at each read"
                                      : NULL;
        plan_realize(p, n);
    } else if (v->op == OP_AFTER && !n->must) {
        inline_uses(p, n);
    } else if (op_class(v->op) == CLASS_MOVE && n->use && !is_too_large(n, 2) &&
             !(n->must && v->op == OP_IOTA))
        inline_uses(p, n);
    else
        decide_computed(p, n);
}
