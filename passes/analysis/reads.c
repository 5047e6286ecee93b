/* reads.c - the bytes of a tensor that a kernel reads at most.
 *
 *      y[i, c] = t[at[i], c]        i < 7, c < 64: 7 * 64 elements of t, however many it has
 *
 * A load reads an element for each iteration of the loops that its offset depends on, even if data
 * determine the offset. */
#include "passes/analysis/kernel_cost.h"

#include "passes/analysis/access.h"

#include <math.h>

enum { DEPTH_MAX = 128 };

/* Whether u may access all of b; otherwise *load says whether it loads from it. */
static bool accesses_all(const struct uop *u, const struct buffer *b, bool *load)
{
    *load = false;
    if (u->op == OP_PREFETCH || u->nsrc < 2)
        return false;
    for (int i = 0; i < u->nsrc; i++)
        if (u->src[i]->op == OP_BUFFER && uop_buffer_of(u->src[i]) == b) {
            *load = i == 0 && (u->op == OP_GATHER || (u->op == OP_LOAD && !TILE_IS(u->arg.i)));
            return !*load;
        }
    return false;
}

double kernel_reads(struct tgc *t, const struct kernel *k, int number)
{
    double sum = 0;
    k = k->like ? k->like->kernel : k;
    const struct buffer *b = k->buffer[number];
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
        if (accesses_all(u, b, &load))
            return HUGE_VAL;
        double nbytes = (double)u->lanes * (double)dtype_nbytes(b->dtype);
        for (int d = 0; load && d < depth; d++)
            nbytes *= uop_depends_on(t, u->src[1], open[d]) ? (double)open[d]->src[0]->vmax : 1;
        sum += load ? nbytes : 0;
    }
    return sum > 0 ? sum : HUGE_VAL;
}
