/* opts_persistent.c - PERSISTENT: persistent blocks, as many as run concurrently, loop over all
 * output tiles of the grid.
 *
 *      for q.grid < 16, r.grid < 32         512 blocks
 *        ...
 *
 *      persistent 0 axis=1 n=128            for block.grid < 128
 *                                             for turn < 4
 *                                               q = (turn*128 + block) / 32, r: the remainder
 *
 * The tiles keep their order: concurrent ones are adjacent, as before. If the blocks do not divide
 * the tiles, the last blocks have one iteration less. The loop's size says so, uniformly for the
 * threads of a block. Bounds follow from the tile's number, which is clamped to the number of
 * tiles. The loop is inside the block's threads and outside their lanes and sums. So a sum's
 * pipeline may run through it (PIPELINE): the next tile's loads overlap this tile's products and
 * epilogue. Grid loops inside `axis` stay over the grid.
 *
 * Stores in common bands (STAGE_EPILOGUE) share one tile loop: a band of all of them, outside of
 * the block's threads. */
#include "passes/kernel/opts_work.h"

static bool has_parts(struct work *w, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STAGE && uop_buffer_of(order[i])->scratch.pipeline.stages)
            return true;
    return false;
}

/* The number of tiles in the nest's grid loops up to `axis`; 0: refused. */
static int64_t count_places(struct work *w, const struct opt *opt)
{
    const struct open *o = &w->open;
    bool together = w->ast->nsrc > 1;
    int64_t places = 1;
    bool items = false;
    if (opt->axis < 0 || opt->axis >= o->n || !range_is_grid(o->range[opt->axis]))
        return work_refuse(w, "the nest has no such loop over the grid");
    for (int i = 0; i < o->n; i++) {
        items |= range_is_item(o->range[i]);
        if (i > opt->axis || !range_is_grid(o->range[i]))
            continue;
        places = sat_mul(places, range_fixed_size(o->range[i]));
        if (range_is(o->range[i], AXIS_BAND) != together || range_fixed_size(o->range[i]) < 1)
            return work_refuse(w, "the loop is a band shared with other stores, or its size is "
                                  "unknown at compile time");
    }
    if (!items)
        return work_refuse(w, "no loop of the nest is over the block's threads");
    if (places <= opt->n || places > INT32_MAX)
        return work_refuse(w, "there are no more output tiles than blocks");
    return places;
}

/* Tiles of one block: a block's number of iterations. */
static struct uop *iterations_of(struct tgc *t, struct uop *block, int64_t places)
{
    int64_t blocks = block->src[0]->arg.i;
    struct uop *less = sym_lt(t, block, uop_int(t, places % blocks));
    if (places % blocks == 0)
        return uop_int(t, places / blocks);
    return sym_addi(t, uop_new(t, OP_CAST, DTYPE_INDEX, &less, 1, (union arg){0}), places / blocks);
}

/* Whether the tile loop replaces loop i of the store: a grid loop among the first n. */
static bool is_gone_through(const struct uop *store, int i, int n)
{
    return i < store_first_range(store) + n && range_is_grid(store->src[i]);
}

/* The store inside the tile loop, whose other bands are outside of it. NULL: its bands are not
 * those of the first store. */
static struct uop *in_iterations(struct tgc *t, const struct uop *store, const struct uop *first,
                                 int n, const struct uop_map *by, struct uop *block,
                                 struct uop *iteration)
{
    struct uop *src[RANGES_MAX + 8];
    int from = store_first_range(store), to = 0, begin = store_first_range(first), last = 0;
    for (int i = 0; i < from; i++)
        src[to++] = uop_substitute_all(t, store->src[i], by);
    while (begin + last < first->nsrc && range_is(first->src[begin + last], AXIS_BAND))
        last++;
    for (int i = 0; i < last; i++)
        if (from + i >= store->nsrc || store->src[from + i] != first->src[begin + i])
            return NULL;
    src[to++] = block;
    for (int i = from; i < store->nsrc; i++) {
        if (i == from + last)
            src[to++] = iteration;
        if (!is_gone_through(store, i, n))
            src[to++] = store->src[i];
    }
    return uop_intern(t, OP_STORE, store->dtype, src, to, store->arg);
}

/* Makes one tile loop of all stores, from the grid loops among their first n. */
static bool put_together(struct work *w, int n, struct uop *block, struct uop *iteration,
                         struct uop *place)
{
    struct tgc *t = w->t;
    struct uop_map by = {.t = t, .scratch = true};
    work_close(w);
    struct uop *first = w->ast->src[0],
               **store = scratch_array(t, (size_t)w->ast->nsrc, sizeof *store);
    for (int i = store_first_range(first) + n - 1; i >= store_first_range(first); i--) {
        if (i >= first->nsrc || !is_gone_through(first, i, n))
            continue;
        map_set(&by, first->src[i], sym_mod(t, place, first->src[i]->src[0]));
        place = sym_div(t, place, first->src[i]->src[0]);
    }
    for (int i = 0; i < w->ast->nsrc; i++)
        if (!(store[i] = in_iterations(t, w->ast->src[i], first, n, &by, block, iteration)))
            return work_refuse(w,
                               "the kernel's stores are not all in the same bands over the grid");
    w->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, w->ast->nsrc, w->ast->arg);
    return true;
}

bool apply_persistent(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct open *o = &w->open;
    if (!work_is_whole(w) || !work_open(w, opt))
        return false;
    bool together = w->ast->nsrc > 1;
    if (o->stage || o->n > RANGES_MAX - 2)
        return work_refuse(w,
                           "only a store can be made persistent, and it has too many nested loops");
    if (opt->n < 2 || opt->n > INT32_MAX)
        return work_refuse(w, "there must be two blocks or more");
    if (has_parts(w, o->store))
        return work_refuse(w, "the operands are pipelined already: make blocks persistent first");
    int64_t places = count_places(w, opt);
    if (!places)
        return false;
    enum axis axis = together ? AXIS_BAND : AXIS_LOOP;
    struct uop *block = uop_axis(t, uop_int(t, opt->n), axis, WORKER_GRID),
               *iteration = uop_axis(t, iterations_of(t, block, places), axis, WORKER_EACH),
               *place = sym_add(t, sym_muli(t, iteration, opt->n), block);
    if (places % opt->n)
        place = sym_min(t, place, uop_int(t, places - 1));
    w->is_placed = true;
    if (together)
        return put_together(w, opt->axis + 1, block, iteration, place);
    work_insert_range(o, work_loops_before_lanes(o), iteration, iteration);
    int first = opt->axis;
    for (int i = opt->axis; i >= 0; i--) {
        struct uop *r = o->range[i];
        if (!range_is_grid(r))
            continue;
        work_remove_range(o, i);
        work_substitute(w, r, sym_mod(t, place, r->src[0]));
        place = sym_div(t, place, r->src[0]);
        first = i;
    }
    work_insert_range(o, first, block, block);
    work_close(w);
    return true;
}
