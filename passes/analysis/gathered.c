/* gathered.c - the bytes of a table that a kernel reads at most, whatever its indices are.
 *
 *      y[i, c] = t[at[i], c]        i < 7, c < 64: 7 * 64 elements of t, however many it has
 *
 * Where all accesses are at places that data say, there are as many elements as these have turns of the loops on which their
 * places depend.
 */
#include "passes/analysis/kernel_cost.h"

#include "passes/analysis/access.h"

#include <math.h>

enum { DEPTH_MAX = 128 };

/* Whether data say where that is: tensors, not what the kernel has computed by itself. */
static bool is_said_by_data(struct tgc *t, struct uop *offset)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &offset, 1, &n);
    bool loads = false, computes = false;
    for (int i = 0; i < n; i++) {
        loads |= order[i]->op == OP_LOAD || order[i]->op == OP_GATHER;
        computes |= order[i]->op == OP_ACC;
    }
    scratch_release(t, mark);
    return loads && !computes;
}

/* Whether u may access all of b; otherwise *load says whether it loads from it. */
static bool accesses_all(struct tgc *t, const struct uop *u, const struct buffer *b, bool *load)
{
    *load = false;
    if (u->op == OP_PREFETCH || u->nsrc < 2)
        return false;
    for (int i = 0; i < u->nsrc; i++)
        if (u->src[i]->op == OP_BUFFER && uop_buffer_of(u->src[i]) == b) {
            *load = i == 0 && (u->op == OP_GATHER || (u->op == OP_LOAD && !TILE_IS(u->arg.i))) && is_said_by_data(t, u->src[1]);
            return !*load;
        }
    return false;
}

double kernel_gathers(struct tgc *t, const struct kernel *k, const struct buffer *b)
{
    double sum = 0;
    const struct uop *open[DEPTH_MAX];
    int depth = 0;
    for (int i = 0; i < k->nlinear; i++) {
        const struct uop *u = k->linear[i];
        bool load;
        if (u->op == OP_RANGE && depth == DEPTH_MAX)
            TGC_BUG(t, "more than %d loops in each other", DEPTH_MAX);
        if (u->op == OP_RANGE)
            open[depth++] = u;
        else if (u->op == OP_END)
            depth--;
        if (accesses_all(t, u, b, &load))
            return HUGE_VAL;
        double nbytes = (double)u->lanes * (double)dtype_nbytes(b->dtype);
        for (int d = 0; load && d < depth; d++)
            nbytes *= uop_depends_on(t, u->src[1], open[d]) ? (double)open[d]->src[0]->vmax : 1;
        sum += load ? nbytes : 0;
    }
    return sum > 0 ? sum : HUGE_VAL;
}
