/* opts_cluster.c - CLUSTER_MULTICAST: blocks that are adjacent along a grid loop copy by multicast
 * what all of them read.
 *
 *      cluster_multicast 0.sum0 axis=0 n=2    row blocks 2*q and 2*q + 1 read the same columns'
 *                                             factor: each copies half, to shared memory of both
 *
 * Copies are bulk copies of a PIPELINE. Boxes that do not depend on the loop are shared: each block
 * copies its part of the box, along the outermost axis, to the same place in all blocks, and
 * signals all their barriers. So a stage is empty once the subgroups of all blocks have read it.
 * The blocks of a cluster run concurrently. Traffic from memory and cache falls to 1/n. */
#include "passes/analysis/box.h"
#include "passes/kernel/opts_work.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

/* The store's loop number `axis` if it is over the grid; NULL: there is none. */
static struct uop *grid_loop(const struct uop *store, int axis)
{
    int at = store_first_range(store) + axis;
    return axis >= 0 && at < store->nsrc && range_is_grid(store->src[at]) ? store->src[at] : NULL;
}

/* Whether all stores are in the loop: with a staged epilogue (STAGE_EPILOGUE) there are two. */
static bool all_have(const struct uop *ast, int axis, const struct uop *loop)
{
    bool all = true;
    for (int i = 0; i < ast->nsrc; i++)
        all &= grid_loop(ast->src[i], axis) == loop;
    return all;
}

/* The grid dimension of the loop: the number of grid loops inside of it. */
static int dimension_of(const struct uop *store, const struct uop *loop)
{
    int inner = 0;
    for (int i = store->nsrc - 1; store->src[i] != loop; i--)
        inner += range_is_grid(store->src[i]);
    return inner;
}

static bool is_shared(struct work *w, struct uop *stage, const struct uop *loop)
{
    return stage->op == OP_STAGE && uop_buffer_of(stage)->scratch.pipeline.stages &&
           uop_buffer_of(stage)->scratch.pipeline.transfer == TRANSFER_BULK &&
           !uop_buffer_of(stage)->scratch.pipeline.cluster && !uop_depends_on(w->t, stage, loop);
}

/* Whether the box divides into n parts along its outermost axis, each aligned as boxes must be. */
static bool has_parts(struct work *w, struct uop *stage, int64_t n)
{
    const struct buffer *of = uop_buffer_of(stage);
    struct box b;
    const char *why;
    int outer = 0;
    if (!box_read(w->t, stage->src[0], stage->src[1], stage->src + 2, stage->nsrc - 2,
                  (struct box_to){of, false}, &b, &why))
        return work_refuse(w, why);
    for (int a = 0; a < b.rank; a++)
        outer = b.axis[a].extent > 1 ? a : outer;
    int64_t nbytes =
        (of->scratch.panel ? of->scratch.panel : b.nelem) * (int64_t)dtype_nbytes(of->dtype);
    return (outer > 0 && b.axis[outer].extent % n == 0 && nbytes / n % BULK_MEMORY_ALIGNED == 0) ||
           work_refuse(w, "a box's parts are not aligned to 1024 bytes");
}

bool apply_cluster_multicast(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *store, *loop;
    struct uop_map by = {.t = t, .scratch = true};
    int n, found = 0;
    if (!work_take_sum(w, opt, 0, &sum) || !work_is_whole(w))
        return false;
    store = w->ast->src[opt->store];
    if (opt->n != 2 && opt->n != 4 && opt->n != 8)
        return work_refuse(w, "a cluster has 2, 4 or 8 blocks");
    if (t->device && device_cluster(t) < opt->n)
        return work_refuse(w, "the device has no clusters of n blocks");
    if (!(loop = grid_loop(store, opt->axis)) || range_fixed_size(loop) % opt->n ||
        range_fixed_size(loop) < 1 || !all_have(w->ast, opt->axis, loop))
        return work_refuse(
            w, "the loop must be over the grid in all stores, with a whole number of clusters");
    struct uop **order = uop_toposort(t, &sum, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *stage = order[i];
        if (!is_shared(w, stage, loop))
            continue;
        if (!has_parts(w, stage, opt->n))
            return false;
        struct buffer *b = work_copy_memory(w, uop_buffer_of(stage));
        b->scratch.pipeline.cluster = (int)opt->n;
        b->scratch.pipeline.multicast = dimension_of(store, loop);
        map_set(
            &by, stage,
            uop_intern(t, OP_STAGE, stage->dtype, stage->src, stage->nsrc, (union arg){.p = b}));
        found++;
    }
    if (!found)
        return work_refuse(w, "the blocks share no bulk copy of the sum, or share it already");
    struct uop *now = uop_substitute_all(t, store, &by);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}
