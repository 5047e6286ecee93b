/* weight_budget.c - the bytes that rewrites may add to a network's weights.
 *
 * Winograd's tiles and Strassen's seven parts store more numbers than the model's weight has. The
 * budget is what they may add together. Packing in panels comes later and adds a few percent, which
 * lib/info_weights.c holds against the limit.
 */
#include "passes/analysis/weight_budget.h"

#include <math.h>

double weights_nbytes(struct tgc *t, const struct graph *g)
{
    struct mem_mark mark = scratch_mark(t);
    int nroot, norder;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &norder);
    double total = 0;
    for (int i = 0; i < norder; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? order[i]->arg.p : NULL;
        total += b && b->kind == BUFFER_WEIGHT ? (double)b->nbytes : 0;
    }
    scratch_release(t, mark);
    return total;
}

double weights_left(struct tgc *t, const struct graph *g)
{
    const struct weight_limit *w = &t->weight_limit;
    if (w->ratio <= 0 && w->nbytes == 0)
        return HUGE_VAL;
    double model = weights_nbytes(t, g);
    double most = w->ratio > 0 ? w->ratio * model : (double)w->nbytes;
    return fmax(0, most - model - w->added);
}

void weights_spend(struct tgc *t, double nbytes) { t->weight_limit.added += nbytes; }
