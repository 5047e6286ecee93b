/* opts_swizzle.c - SWIZZLE: the order of a copy in local memory, so that threads that read a column of it,
 * or 16 bytes of eight rows that follow each other, meet in no bank.
 *
 *      local 0.sum0 axis=0 n=0 to=1 operand=0; swizzle 0.sum0 n=64 operand=0
 *
 *      row 0    0 1 2 3 4 5 6 7        chunks of 16 bytes, of a panel's row of 128 bytes
 *      row 1    1 0 3 2 5 4 7 6        chunk c of row r is at c ^ r % 8
 *      row 2    2 3 0 1 6 7 4 5
 *      ...
 *
 * Rows of n elements that are longer than 128 bytes lie in panels, one behind the other: all rows' first 128
 * bytes, then all rows' next ones. It is the order in which units that read matrices from local memory
 * themselves, and those that copy boxes to it, know a matrix (CUDA's "128-byte swizzle"). Both the copy's
 * places and those of its loads are index arithmetic, which says all of it; the buffer's `panel` says that they
 * are of this kind.
 */
#include "passes/analysis/box.h"
#include "passes/analysis/nest.h"
#include "passes/kernel/opts_work.h"

#include <string.h>

/* The copy that the operand, by its number as LOCAL counts them, is loaded from. */
static struct uop *find_copy(struct work *w, const struct opt *opt, struct uop *sum)
{
    int n, operand = opt->operand;
    struct uop **order = nest_order(w->t, sum->src[0], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && operand-- == 0)
            return order[i]->src[0]->op == OP_STAGE && buffer_space(uop_buffer_of(order[i]->src[0])) == SPACE_LOCAL
                       ? order[i]->src[0] : NULL;
    return NULL;
}

bool apply_swizzle(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *copy, *src[8];
    struct uop_map by = {.t = t, .scratch = true};
    int n;
    if (!work_take_sum(w, opt, 0, &sum))
        return false;
    if (!(copy = find_copy(w, opt, sum)))
        return work_refuse(w, "the sum has no copy of such an operand in local memory");
    const struct buffer *was = uop_buffer_of(copy);
    int64_t nelem = was->dim[0]->vmax, nbytes = (int64_t)dtype_nbytes(was->dtype);
    if (was->ring || was->panel)
        return work_refuse(w, "the copy has another order, or two halves");
    if (opt->n < 1 || nelem % opt->n || opt->n * nbytes % PANEL_ROW_NBYTES || nelem / opt->n % PANEL_ROWS ||
        copy->nsrc > (int)(sizeof src / sizeof *src))
        return work_refuse(w, "the copy is no whole number of eight rows of so many times 128 bytes");
    struct buffer *b = work_new_memory(w, was->dtype, nelem, SPACE_LOCAL);
    b->panel = nelem / opt->n * (PANEL_ROW_NBYTES / nbytes);
    memcpy(src, copy->src, (size_t)copy->nsrc * sizeof *src);
    src[1] = panel_place(t, src[1], opt->n, nelem, nbytes);
    struct uop *now = uop_intern(t, OP_STAGE, copy->dtype, src, copy->nsrc, (union arg){.p = b});
    struct uop *store = w->ast->src[opt->store], **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && order[i]->src[0] == copy) {
            struct uop *read[2] = {now, panel_place(t, order[i]->src[1], opt->n, nelem, nbytes)};
            map_set(&by, order[i], uop_intern(t, OP_LOAD, order[i]->dtype, read, 2, (union arg){0}));
        }
    store = uop_substitute_all(t, store, &by);
    work_put_stores(w, opt->store, &store, 1);
    return true;
}
