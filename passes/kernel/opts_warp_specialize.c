/* opts_warp_specialize.c - WARP_SPECIALIZE: producer threads of a block issue its copies; the
 * others, the consumers, only compute.
 *
 *      warp_specialize 0.sum0 n=128      256 threads get 128 more; one of them copies all boxes
 *
 * Without producers thread 0 stalls in its step until all subgroups have released a stage, and
 * stalls its subgroup and every product that this one takes part in. Copies are bulk copies of a
 * PIPELINE: barriers in shared memory say whether a stage is full or empty. No block barrier is in
 * the steps, and the two roles run at different speeds (passes/vector/pipeline_bulk.c). ITEM loops
 * are the consumers' alone. Where the device can move registers between subgroups, producers give
 * theirs to consumers (device_role_registers()).
 *
 * So nothing may remain that all of a block's threads do together: no other copies to shared
 * memory, no combined sums. Passing on values (STAGE_EPILOGUE) is allowed inside a band around
 * everything, the tile loop, where consumers synchronize without producers. */
#include "passes/kernel/opts_work.h"
#include "passes/target/target.h"

int kernel_threads(const struct kernel *k)
{
    int n = k->block;
    for (int i = 0; i < k->nscratch && k->block; i++)
        n = k->block + k->scratch[i]->scratch.pipeline.producers > n
                ? k->block + k->scratch[i]->scratch.pipeline.producers
                : n;
    return n;
}

/* Whether the stage is a bulk copy of the sum's pipeline. */
static bool comes_in_bulk(const struct uop *stage)
{
    const struct buffer *b = stage->op == OP_STAGE ? uop_buffer_of(stage) : NULL;
    return b && b->scratch.pipeline.stages && b->scratch.pipeline.transfer == TRANSFER_BULK;
}

/* Whether the store, these copies aside, needs no cooperation of threads. */
static bool leaves_threads_alone(struct work *w, struct uop *store, const struct uop_map *copies)
{
    int n;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        if (u->op == OP_STAGE && buffer_space(uop_buffer_of(u)) == SPACE_SHARED &&
            !map_get(copies, u))
            return work_refuse(
                w, "the block's threads write shared memory other than by the sum's bulk copies");
        for (int k = 1; k < u->nsrc && u->op == OP_REDUCE; k++)
            if (range_is_item(u->src[k]) || range_is_of_block(u->src[k]))
                return work_refuse(w, "the block's threads reduce a sum together");
    }
    return true;
}

/* Whether the consumer warps can execute all stores of the kernel: `store` is the only one, or all
 * are in the same loop that each thread runs by itself (PERSISTENT). */
static bool is_consumers(struct work *w, const struct uop *store)
{
    const struct uop *band = NULL;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        if (range_is(store->src[i], AXIS_BAND) && RANGE_WORKER(store->src[i]->arg.i) == WORKER_EACH)
            band = band ? band : store->src[i];
    for (int i = 0; i < w->ast->nsrc; i++) {
        const struct uop *other = w->ast->src[i];
        bool inside = other == store;
        for (int k = store_first_range(other); k < other->nsrc; k++)
            inside |= other->src[k] == band;
        if (!inside)
            return false;
    }
    return true;
}

bool apply_warp_specialize(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *store;
    struct uop_map by = {.t = t, .scratch = true};
    int n, found = 0;
    if (!work_take_sum(w, opt, 0, &sum) || !work_is_whole(w))
        return false;
    store = w->ast->src[opt->store];
    const int64_t wave = t->device ? t->device->wave : 1, threads = work_items(store);
    if (!is_consumers(w, store) || w->kernel->nvariant)
        return work_refuse(w, "the kernel has variants, or stores outside the tile loop");
    if (opt->n < wave || opt->n % wave || threads % wave || threads < 2 ||
        threads + opt->n > THREADS_OF_BLOCK)
        return work_refuse(
            w, "producers and consumers must be whole subgroups, of at most 1024 threads together");
    struct uop **order = uop_toposort(t, &sum, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *stage = order[i];
        if (!comes_in_bulk(stage))
            continue;
        if (uop_buffer_of(stage)->scratch.pipeline.producers)
            return work_refuse(w, "the block has producer warps already");
        struct buffer *b = work_copy_memory(w, uop_buffer_of(stage));
        b->scratch.pipeline.producers = (int)opt->n;
        map_set(
            &by, stage,
            uop_intern(t, OP_STAGE, stage->dtype, stage->src, stage->nsrc, (union arg){.p = b}));
        found++;
    }
    if (!found)
        return work_refuse(w, "the sum has no bulk copies");
    for (int i = 0; i < w->ast->nsrc; i++)
        if (!leaves_threads_alone(w, w->ast->src[i], &by))
            return false;
    w->ast = uop_substitute_all(t, w->ast, &by);
    return true;
}
