/* opts_bulk_epilogue.c - BULK_EPILOGUE: the epilogue tile in shared memory is stored as boxes by
 * the device's copy engine (TMA, BULK_STORE).
 *
 *      stage_epilogue 0 axis=1 to=3 n=0    tile[..] = sum; y[..] = tile[..]
 *      first 1 n=128                       ... by the block's first thread, element by element
 *      bulk_epilogue 0                     ... which starts bulk stores, while the block goes on
 *
 * The second store keeps its form, which describes a box (analysis/box.h) of the tile, or of its
 * panels (SWIZZLE). Its condition masks what is beyond the tensor, and the engine clips the
 * same. passes/vector/bulk_epilogue.c writes the start of the boxes and the wait before the tile is
 * overwritten. */
#include "passes/analysis/box.h"
#include "passes/kernel/opts_work.h"
#include "passes/target/target.h"

/* The only store that reads the memory, if it stores the elements unchanged; NULL: there is
 * none. */
static struct uop *find_reader(struct work *w, const struct uop *memory)
{
    struct uop *reader = NULL;
    for (int i = 0; i < w->ast->nsrc; i++) {
        int n;
        bool reads = false;
        struct uop *store = w->ast->src[i], **order = uop_toposort(w->t, &store, 1, &n);
        for (int k = 0; k < n; k++)
            reads |= order[k]->op == OP_LOAD && order[k]->src[0] == memory;
        if (!reads)
            continue;
        if (reader || !box_copies(store, memory))
            return NULL;
        reader = store;
    }
    return reader;
}

/* Whether the block's first thread alone runs the store (FIRST), and it is a box. */
static bool is_box(struct work *w, const struct uop *store)
{
    struct uop *loop[RANGES_MAX], *item = NULL;
    struct box box;
    const char *why;
    int n = 0;
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        struct uop *r = store->src[i];
        if (range_is_item(r) && !item)
            item = r;
        else if (range_is_item(r) || range_is_lane(r) ||
                 (!range_is(r, AXIS_BAND) && RANGE_WORKER(r->arg.i) != WORKER_EACH))
            return work_refuse(w, "the block's first thread alone must run the store");
        else if (!range_is(r, AXIS_BAND))
            loop[n++] = r;
    }
    struct uop *valid = store_first_range(store) == 4 ? store->src[3] : NULL;
    if (!item || !box_is_of_first(valid, item))
        return work_refuse(w, "the block's first thread alone must run the store");
    return box_read_store(w->t, store, valid, item, loop, n, false, &box, &why) ||
           work_refuse(w, why);
}

bool apply_bulk_epilogue(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop_map by = {.t = t, .scratch = true};
    work_close(w);
    struct uop *memory = w->ast->src[opt->store]->src[0], *reader = NULL;
    const struct buffer *was = uop_buffer_of(memory);
    if (opt->of != OF_STORE || was->kind != BUFFER_SCRATCH || buffer_space(was) != SPACE_SHARED ||
        was->scratch.is_bulk_stored || !(reader = find_reader(w, memory)))
        return work_refuse(
            w, "the store writes no scratch in shared memory that another store copies unchanged");
    if (t->device && !device_copies_boxes(t))
        return work_refuse(w, "the device has no bulk copies of boxes");
    if (!is_box(w, reader))
        return false;
    struct buffer *b = work_copy_memory(w, was);
    b->scratch.is_bulk_stored = true;
    map_set(&by, memory, uop_buffer(t, b));
    w->ast = uop_substitute_all(t, w->ast, &by);
    return true;
}
