/* linearize.c - the linear programs of a kernel and of its variants, in the order of
 * analysis/linear_order.c, and what a kernel computes and reads at most.
 */
#include "passes/analysis/kernel_cost.h"
#include "passes/kernel/tile.h"

/* Bytes of a buffer that a kernel accesses, at the upper bounds. A growing state is stored only in
 * its new rows, and read in all. */
static double touched_nbytes(const struct buffer *b, bool stored)
{
    const struct state *st = b->port.state;
    int grown = state_axis(b);
    double n = (double)dtype_nbytes(b->dtype);
    for (int a = 0; a < b->ndim; a++) {
        const struct uop *dim = a != grown ? b->dim[a]
                                : stored   ? st->rows
                                           : st->in->dim[st->axis];
        n *= (double)dim->vmax;
    }
    return n;
}

bool pass_linearize(struct tgc *t, struct schedule *s, struct kernel *k)
{
    double same;
    (void)s;
    if (t->limit)
        k->ast = stacks_settle(t, k->ast);
    for (int j = 0; j < k->nvariant && t->limit; j++)
        k->variant[j].ast = stacks_settle(t, k->variant[j].ast);
    k->linear = linearize(t, k->ast, &k->nlinear, &k->flop);
    for (int j = 0; j < k->nvariant; j++)
        k->variant[j].linear = linearize(t, k->variant[j].ast, &k->variant[j].nlinear, &same);
    for (int j = 0; j < k->nbuffer; j++) {
        double all = touched_nbytes(k->buffer[j], j < k->noutput), some = kernel_reads(t, k, j);
        k->nbytes += some < all ? some : all;
    }
    return true;
}
