/* opts_pipeline.c - PIPELINE: a sum's copies in shared memory become an n-stage pipeline: while the
 * block computes with the copies of one step, those of later steps are loaded
 * (passes/vector/pipeline.c).
 *
 *      pipeline 0.sum0 n=2 how=registers         double-buffered through registers
 *                      for k: barrier · copy a, b · barrier · sum
 *                  ->  copy a, b of 0 · for k: barrier · load a, b of k + 1 · sum · store them
 *      pipeline 0.sum0 n=3 how=async             asynchronous copies by all threads (cp.async)
 *                  ->  copy a, b of 0; of 1 · for k: wait · barrier · copy a, b of k + 2 · sum
 *      pipeline 0.sum0 n=3 how=bulk              boxes by one thread (TMA), of a STAGE_OPERAND
 *                                                with to=0
 *      pipeline 4.sum0 n=2 how=async             a band, each iteration of which stages a whole
 *                                                operand: a step is an iteration; also how=bulk
 *
 * The copies take n times the memory. Loading early is safe: a kernel with loops over a block's
 * threads (ITEM) never reads what it stores. The number of steps must be a constant, except in a
 * band, whose loop all threads of the block run together.
 *
 * Around the sum there may be one loop that each thread runs by itself (PERSISTENT). Steps are
 * counted through it, so that the next tile's copies overlap this tile's epilogue. With how=bulk
 * that loop may be a band with several stores. Through registers, loads are one step ahead.
 * Asynchronous copies move 4, 8 or 16 contiguous bytes without a conversion, or write zeros where
 * the operand is padded. analysis/box.c decides what a box is. */
#include "passes/analysis/box.h"
#include "passes/analysis/copied.h"
#include "passes/analysis/matrix.h"
#include "passes/kernel/opts_work.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

/* Elements of one stage: rounded up to 16 bytes, to the period of panels, or to a box's
 * alignment. */
static int64_t part_of(const struct buffer *b, enum transfer how)
{
    int64_t n = (b->scratch.panel       ? PANEL_ALIGN
                 : how == TRANSFER_BULK ? BULK_MEMORY_ALIGNED
                                        : COPY_NBYTES_MOST) /
                (int64_t)dtype_nbytes(b->dtype);
    return (b->dim[0]->vmax + n - 1) / n * n;
}

/* Whether the stage is a copy that each step of the sum makes anew. */
static bool is_copy(struct work *w, const struct uop *sum, struct uop *stage)
{
    bool of_step = false;
    for (int i = 1; i < sum->nsrc; i++)
        of_step |= uop_depends_on(w->t, stage, sum->src[i]);
    return of_step && stage->op == OP_STAGE && buffer_space(stage->arg.p) == SPACE_SHARED;
}

/* The innermost band that each thread runs by itself; NULL: there is none. */
static struct uop *band_of(const struct uop *store)
{
    struct uop *band = NULL;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        if (range_is(store->src[i], AXIS_BAND) && RANGE_WORKER(store->src[i]->arg.i) == WORKER_EACH)
            band = store->src[i];
    return band;
}

/* Whether the stage copies to shared memory anew in each iteration of the band, by one load: none
 * whose position another load determines. */
static bool is_copy_of_band(struct work *w, struct uop *stage, struct uop *band)
{
    int n, loads = 0;
    if (!band || stage->op != OP_STAGE || buffer_space(stage->arg.p) != SPACE_SHARED ||
        !uop_depends_on(w->t, stage, band))
        return false;
    struct uop **order = uop_toposort(w->t, &stage, 1, &n);
    for (int i = 0; i < n; i++)
        loads += order[i]->op == OP_LOAD;
    return loads == 1;
}

/* Whether the copy may be made a step early: the threads share it evenly, by loops of known size,
 * and it is a plain load. */
static bool may_be_early(struct work *w, const struct opt *opt, const struct uop *store,
                         const struct uop *stage)
{
    const struct uop *load = stage->src[0];
    bool shared = opt->how == TRANSFER_BULK;
    while (load->op == OP_CAST || load->op == OP_BITCAST)
        load = load->src[0];
    for (int i = 2; i < stage->nsrc; i++)
        shared |= range_is_of_block(stage->src[i]) &&
                  range_fixed_size(stage->src[i]) == work_items(store);
    if (!shared)
        return work_refuse(w, "the block's threads do not all copy the same number of elements");
    bool computed = opt->how == TRANSFER_REGISTERS && matrix_is_finite(load);
    return computed || (load->op == OP_LOAD && load->src[0]->op == OP_BUFFER) ||
           work_refuse(w, "the copied operand is computed, not loaded");
}

/* Whether all copies of the store are those of the sum. */
static bool has_only_copies_of(struct work *w, struct uop *store, const struct uop *sum)
{
    int n;
    bool only = true;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n && only; i++)
        only = order[i]->op != OP_STAGE || buffer_space(order[i]->arg.p) != SPACE_SHARED ||
               is_copy(w, sum, order[i]);
    return only;
}

/* Whether steps can be counted through each thread's loops around the sum. At most one is
 * allowed: never empty, inside the block's threads (or a band, for boxes), and without other
 * copies in it. */
static bool may_be_counted(struct work *w, struct uop *store, const struct uop *sum,
                           enum transfer how)
{
    bool only = true;
    const struct uop *around = NULL;
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        const struct uop *r = store->src[i];
        bool each = RANGE_WORKER(r->arg.i) == WORKER_EACH && !range_is_lane(r);
        bool outside =
            range_is_item(r) && !(how == TRANSFER_BULK && around && range_is(around, AXIS_BAND));
        if (around && (each || outside))
            return work_refuse(
                w,
                "several serial loops are around the sum, or one outside the loops over threads");
        around = each ? r : around;
    }
    for (int i = 0; i < w->ast->nsrc && around && only; i++)
        only = has_only_copies_of(w, w->ast->src[i], sum);
    return !around || (around->src[0]->vmin > 0 && only) ||
           work_refuse(
               w, "the loop around the sum may have no iteration, or has copies of another sum");
}

/* Whether the number of steps is known, uniform over the threads, and at least the number of
 * stages. */
static bool steps_are_known(struct work *w, const struct opt *opt, struct uop *store,
                            const struct uop *sum, struct uop *stage)
{
    int64_t count = 1;
    if (!may_be_counted(w, store, sum, opt->how))
        return false;
    for (int i = 1; i < sum->nsrc; i++) {
        if (!uop_depends_on(w->t, stage, sum->src[i]))
            continue;
        count = sat_mul(count, range_fixed_size(sum->src[i]));
        if (range_fixed_size(sum->src[i]) < 1)
            return work_refuse(w, "the sum's number of steps is unknown at compile time");
    }
    return count >= opt->n ||
           work_refuse(w, "the sum has fewer steps than the pipeline has stages");
}

static bool may_come(struct work *w, const struct opt *opt, const struct uop *stage)
{
    struct copied c;
    struct box b;
    const char *why;
    if (opt->how == TRANSFER_REGISTERS)
        return true;
    if (opt->how == TRANSFER_BULK && w->t->device && !device_copies_boxes(w->t))
        return work_refuse(w, "the device has no bulk copies of boxes");
    if (opt->how == TRANSFER_BULK)
        return box_read(w->t, stage->src[0], stage->src[1], stage->src + 2, stage->nsrc - 2,
                        (struct box_to){uop_buffer_of(stage), false}, &b, &why) ||
               work_refuse(w, why);
    if (!copied_read(w->t, stage->src[0], stage->src[1], stage->src + 2, stage->nsrc - 2, &c))
        return work_refuse(
            w, "an asynchronous copy moves 4, 8 or 16 contiguous, aligned bytes unchanged");
    return !w->t->device || device_copies(w->t, c.nbytes) ||
           work_refuse(w, "the device does not copy so many bytes asynchronously");
}

bool apply_pipeline(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum;
    struct uop_map by = {.t = t, .scratch = true};
    int n, found = 0;
    if (!work_take_sum(w, opt, 0, &sum))
        return false;
    if (opt->n < 2 || opt->n > (opt->how == TRANSFER_REGISTERS ? 2 : RING_MAX))
        return work_refuse(w, "a pipeline has 2 stages through registers, else 2 to 8");
    struct uop *store = w->ast->src[opt->store], **order = uop_toposort(t, &sum, 1, &n),
               *band = band_of(store);
    for (int i = 0; i < n; i++) {
        struct uop *stage = order[i];
        bool of_band = opt->how != TRANSFER_REGISTERS && !is_copy(w, sum, stage) &&
                       is_copy_of_band(w, stage, band);
        if (!of_band && !is_copy(w, sum, stage))
            continue;
        const struct buffer *was = uop_buffer_of(stage);
        if (was->scratch.pipeline.stages)
            return work_refuse(w, "the operands are pipelined already");
        if (!may_be_early(w, opt, store, stage) ||
            (!of_band && !steps_are_known(w, opt, store, sum, stage)) || !may_come(w, opt, stage))
            return false;
        struct buffer *b =
            work_new_memory(w, stage->dtype, sat_mul(opt->n, part_of(was, opt->how)), SPACE_SHARED);
        b->scratch.pipeline.stages = (int)opt->n;
        b->scratch.pipeline.transfer = opt->how;
        b->scratch.panel = was->scratch.panel;
        map_set(
            &by, stage,
            uop_intern(t, OP_STAGE, stage->dtype, stage->src, stage->nsrc, (union arg){.p = b}));
        found++;
    }
    if (!found)
        return work_refuse(w, "the sum has no operand in shared memory");
    struct uop *now = uop_substitute_all(t, store, &by);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}
