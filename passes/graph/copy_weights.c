/* copy_weights.c - weights that each run may change, as training does, are copied before a
 * convolution or a product reads them.
 *
 *      y[n, oc, oy] = sum over ic, ky  x[n, ic, oy + ky] * w[oc, ic, ky]     w: an input or a state
 *      y[n, o]      = sum over i  x[n, i] * w[o, i]                          w: a parameter
 *
 * Known weights are packed when the model is compiled. Of others the columns, oc and o, are strided
 * where the model has them first. A copy is a tensor of the plan, whose order of axes is free
 * (plan/layout.c), and takes little beside the products of 64 pixels or rows. In a loop that does
 * not change the weights it is made before the loop. Of products, parameters alone are copied:
 * keys of attention, for example, are packed by its kernel. Beside known weights nothing is: these
 * are the columns. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"

enum { ROWS_MIN = 64 };

static bool has_window(const struct uop *factor)
{
    const struct path p = path_down((struct uop *)(uintptr_t)factor, MOVES_ANY);
    for (int i = 0; i < p.n; i++)
        if (p.move[i]->op == OP_WINDOW)
            return true;
    return false;
}

/* The factor of a copy, if it is a tensor of the run that is read often enough, each element at one
 * place of the axes along which it varies; else NULL. */
static struct uop *copied(struct tgc *t, struct uop *factor, double nproduct)
{
    const struct uop *base = value_behind(factor, MOVES_VIEW);
    if (!value_is_leaf(base) || base->op == OP_CONST || value_is_stationary(base) ||
        has_window(factor) || nproduct < ROWS_MIN * value_nelem(base))
        return NULL;
    struct uop *x = axes_keep(t, factor, axes_of_base(t, factor, MOVES_VIEW));
    if (value_nelem(x) > value_nelem(base))
        return NULL;
    return uop_expand(t, uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0}), factor->dim);
}

/* Whether factor k is a parameter of training, of which the sum goes along the innermost axis. */
static bool is_summed_parameter(struct tgc *t, struct uop *u, int k)
{
    const struct uop *base = value_behind(u->src[0]->src[k], MOVES_VIEW);
    const struct buffer *b = base->op == OP_BUFFER ? base->arg.p : NULL;
    struct contraction c;
    if (!b || !b->port.state || !b->port.first || state_axis(b) >= 0 ||
        !contraction_find(t, u, MOVES_VIEW, &c))
        return false;
    int last = base->ndim - 1;
    while (last >= 0 && uop_is_int(base->dim[last], 1))
        last--;
    return last >= 0 && c.factor[k].base == base && (c.factor[k].axes[last] & c.reduced) != 0;
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    (void)ctx;
    struct uop *product = u->dtype == DTYPE_F32 ? summed_product(u) : NULL;
    for (int k = 0; product && u->src[0] == product && k < 2; k++) {
        bool wanted = !value_is_stationary(value_behind(product->src[1 - k], MOVES_VIEW)) &&
                      (has_window(product->src[1 - k]) || is_summed_parameter(t, u, k));
        struct uop *w = wanted ? copied(t, product->src[k], value_nelem(product)) : NULL;
        if (w)
            return k == 0 ? contraction_like(t, u, w, product->src[1])
                          : contraction_like(t, u, product->src[0], w);
    }
    return NULL;
}

bool pass_copy_weights(struct tgc *t, struct graph *g)
{
    graph_rewrite(t, g, rewrite, NULL);
    return true;
}
