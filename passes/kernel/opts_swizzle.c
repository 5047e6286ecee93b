/* opts_swizzle.c - SWIZZLE: XOR swizzle of 16-byte chunks of a copy in shared memory. A read of one
 * chunk from each of eight consecutive rows, as matrix units make it, then has no bank conflicts.
 *
 *      stage_operand 0.sum0 axis=0 n=0 to=1 operand=0; swizzle 0.sum0 n=64 operand=0
 *
 * A row of the copy has n elements, in bytes a multiple of 128. Longer rows are split into panels:
 * first the first 128 bytes of all rows, then the next 128. Matrix units that read shared memory
 * themselves, and engines that copy boxes, use this layout (CUDA's 128-byte swizzle), which
 * analysis/panels.c draws. Offsets stay those of rows; linear programs have them in panels.
 *
 *      swizzle 3 n=64        the same for the buffer that store 3 writes and later stores read
 */
#include "passes/analysis/nest.h"
#include "passes/kernel/opts_work.h"

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

static bool swizzle_passed(struct work *w, const struct opt *opt)
{
    struct uop_map by = {.t = w->t, .scratch = true};
    work_close(w);
    struct uop *memory = w->ast->src[opt->store]->src[0];
    const struct buffer *was = uop_buffer_of(memory);
    if (was->kind != BUFFER_SCRATCH || buffer_space(was) != SPACE_SHARED || was->ndim != 1)
        return work_refuse(w, "the store writes no scratch in shared memory");
    struct buffer *b = new_panels(w, was, opt->n);
    if (b)
        map_set(&by, memory, uop_buffer(w->t, b));
    w->ast = b ? uop_substitute_all(w->t, w->ast, &by) : w->ast;
    return b != NULL;
}

bool apply_swizzle(struct work *w, const struct opt *opt)
{
    struct uop_map by = {.t = w->t, .scratch = true};
    struct uop *sum, *copy;
    if (opt->of == OF_STORE)
        return swizzle_passed(w, opt);
    if (!work_take_sum(w, opt, 0, &sum))
        return false;
    if (!(copy = find_copy(w, opt, sum)))
        return work_refuse(w, "the sum has no such operand in shared memory");
    struct buffer *b = new_panels(w, uop_buffer_of(copy), opt->n);
    if (!b)
        return false;
    map_set(&by, copy, uop_intern(w->t, OP_STAGE, copy->dtype, copy->src, copy->nsrc,
                                  (union arg){.p = b}));
    struct uop *store = uop_substitute_all(w->t, w->ast->src[opt->store], &by);
    work_put_stores(w, opt->store, &store, 1);
    return true;
}
