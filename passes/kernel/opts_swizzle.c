/* opts_swizzle.c - SWIZZLE: XOR swizzle of 16-byte chunks of a copy in shared memory. A read of one
 * chunk from each of eight consecutive rows, as matrix units make it, then has no bank conflicts.
 *
 *      stage_operand 0.sum0 axis=0 n=0 to=1 operand=0; swizzle 0.sum0 n=64 operand=0
 *
 *      row 0    0 1 2 3 4 5 6 7        chunks of 16 bytes, of a panel's row of 128 bytes
 *      row 1    1 0 3 2 5 4 7 6        chunk c of row r is at c ^ r % 8
 *      row 2    2 3 0 1 6 7 4 5
 *      ...
 *
 * A row of the copy has n elements, in bytes a multiple of 128. Longer rows are split into panels:
 * first the first 128 bytes of all rows, then the next 128. Matrix units that read shared memory
 * themselves, and engines that copy boxes, use this layout (CUDA's 128-byte swizzle). The index
 * arithmetic of the copy's stores and loads is the layout; the scratch's `panel` notes that it is
 * this one.
 *
 *      swizzle 3 n=64        the same for the buffer that store 3 writes and later stores read
 */
#include "passes/analysis/box.h"
#include "passes/analysis/nest.h"
#include "passes/kernel/opts_work.h"

#include <string.h>

/* The copy from which operand number `operand`, counted as STAGE_OPERAND does, is loaded. */
static struct uop *find_copy(struct work *w, const struct opt *opt, struct uop *sum)
{
    int n, operand = opt->operand;
    struct uop **order = nest_order(w->t, sum->src[0], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && operand-- == 0)
            return order[i]->src[0]->op == OP_STAGE &&
                           buffer_space(uop_buffer_of(order[i]->src[0])) == SPACE_SHARED
                       ? order[i]->src[0]
                       : NULL;
    return NULL;
}

/* New memory in panels for rows of n elements, in place of `was`; NULL: refused. */
static struct buffer *new_panels(struct work *w, const struct buffer *was, int64_t n)
{
    int64_t nelem = was->dim[0]->vmax, nbytes = (int64_t)dtype_nbytes(was->dtype);
    const char *why = NULL;
    if (was->scratch.pipeline.stages || was->scratch.panel)
        why = "the copy has another order, or two halves";
    else if (n < 1 || nelem % n || n * nbytes % PANEL_ROW_NBYTES || nelem / n % PANEL_ROWS)
        why = "the copy is no whole number of panels: eight rows of a multiple of 128 bytes";
    if (why) {
        (void)work_refuse(w, why);
        return NULL;
    }
    struct buffer *b = work_new_memory(w, was->dtype, nelem, SPACE_SHARED);
    b->scratch.panel = nelem / n * (PANEL_ROW_NBYTES / nbytes);
    return b;
}

static struct uop *load_of(struct tgc *t, const struct uop *load, struct uop *memory, int64_t n)
{
    const struct buffer *b = uop_buffer_of(memory);
    struct uop *read[2] = {
        memory, panel_place(t, load->src[1], n, b->dim[0]->vmax, (int64_t)dtype_nbytes(b->dtype))};
    return uop_intern(t, OP_LOAD, load->dtype, read, 2, (union arg){0});
}

/* Makes the store's loads of `memory` read `now`. */
static struct uop *read_panels(struct work *w, struct uop *store, struct uop *memory,
                               struct uop *now, int64_t n)
{
    struct uop_map by = {.t = w->t, .scratch = true};
    int count;
    struct uop **order = uop_toposort(w->t, &store, 1, &count);
    for (int i = 0; i < count; i++)
        if (order[i]->op == OP_LOAD && order[i]->src[0] == memory)
            map_set(&by, order[i], load_of(w->t, order[i], now, n));
    return by.used ? uop_substitute_all(w->t, store, &by) : store;
}

static bool swizzle_passed(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    work_close(w);
    struct uop *memory = w->ast->src[opt->store]->src[0];
    const struct buffer *was = uop_buffer_of(memory);
    if (was->kind != BUFFER_SCRATCH || buffer_space(was) != SPACE_SHARED || was->ndim != 1)
        return work_refuse(w, "the store writes no scratch in shared memory");
    struct buffer *b = new_panels(w, was, opt->n);
    if (!b)
        return false;
    struct uop *now = uop_buffer(t, b),
               **store = scratch_array(t, (size_t)w->ast->nsrc, sizeof *store);
    for (int i = 0; i < w->ast->nsrc; i++) {
        store[i] = read_panels(w, w->ast->src[i], memory, now, opt->n);
        if (store[i]->src[0] != memory)
            continue;
        struct uop **src = mem_copy(t, store[i]->src, (size_t)store[i]->nsrc * sizeof *src);
        src[0] = now;
        src[1] = panel_place(t, src[1], opt->n, b->dim[0]->vmax, (int64_t)dtype_nbytes(b->dtype));
        store[i] = uop_intern(t, OP_STORE, store[i]->dtype, src, store[i]->nsrc, store[i]->arg);
    }
    w->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, w->ast->nsrc, w->ast->arg);
    return true;
}

bool apply_swizzle(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *copy, *src[8];
    if (opt->of == OF_STORE)
        return swizzle_passed(w, opt);
    if (!work_take_sum(w, opt, 0, &sum))
        return false;
    if (!(copy = find_copy(w, opt, sum)) || copy->nsrc > (int)(sizeof src / sizeof *src))
        return work_refuse(w, "the sum has no such operand in shared memory");
    struct buffer *b = new_panels(w, uop_buffer_of(copy), opt->n);
    if (!b)
        return false;
    ARRAY_COPY(src, copy->src, copy->nsrc);
    src[1] = panel_place(t, src[1], opt->n, b->dim[0]->vmax, (int64_t)dtype_nbytes(b->dtype));
    struct uop *now = uop_intern(t, OP_STAGE, copy->dtype, src, copy->nsrc, (union arg){.p = b});
    struct uop *store = read_panels(w, w->ast->src[opt->store], copy, now, opt->n);
    work_put_stores(w, opt->store, &store, 1);
    return true;
}
