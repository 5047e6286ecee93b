/* gradient_index.c - the adjoint of an INDEX is a SCATTER that adds, and the other way round. */
#include "frontend/gradient.h"

bool gradient_indexed(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *x = u->src[0];
    if (u->op == OP_INDEX) {
        gradient_give(g, x, uop_scatter(g->t, OP_ADD, gradient_full_like(g, x, 0), d, u->src + 1));
        return true;
    }
    if ((enum op)u->arg.i != OP_ADD && (enum op)u->arg.i != OP_CONST)
        return false;
    gradient_give(g, u->src[1], uop_index(g->t, d, u->src + 2));
    if ((enum op)u->arg.i == OP_CONST) /* overwritten elements have no influence */
        d = uop_scatter(g->t, OP_CONST, d, gradient_full_like(g, u->src[1], 0), u->src + 2);
    gradient_give(g, x, d);
    return true;
}
