/* room.c - how much memory the layers of a model need that are computed as they stand.
 *
 * A layer holds what it is made of and its result. The largest layer of the graph, before rewrites
 * that trade memory for time (winograd.c), is the room that these should do with: where their tensors
 * need more, band.c computes them piece by piece.
 */
#include "passes/passes.h"

static double nbytes_of(const struct uop *v)
{
    double n = (double)dtype_nbytes(v->dtype);
    for (int a = 0; a < v->ndim; a++)
        n *= v->dim[a]->vmax > 0 ? (double)v->dim[a]->vmax : 0;
    return n;
}

/* What passes on what lies below it, element by element. */
static bool is_passed(const struct uop *v)
{
    return op_is_elementwise(v->op) || (op_class(v->op) == CLASS_MOVE && v->op != OP_IOTA);
}

/* The tensors of the run that a sum is made of: each once. */
static double nbytes_below(struct tgc *t, struct uop *v)
{
    struct uop **stack = NULL;
    struct uop_map seen = {.t = t, .scratch = true};
    size_t cap = 0;
    int n = 0;
    double nbytes = 0;
    SCRATCH_PUSH(t, stack, n, cap, v);
    while (n > 0) {
        struct uop *u = stack[--n];
        if (map_get(&seen, u))
            continue;
        map_set(&seen, u, u);
        bool passed = is_passed(u);
        if (!passed && u->ndim > 0 && u->op != OP_BUFFER && u->op != OP_IOTA)
            nbytes += nbytes_of(u);
        for (int k = 0; passed && k < u->nsrc; k++)
            SCRATCH_PUSH(t, stack, n, cap, u->src[k]);
    }
    return nbytes;
}

double room_of_layers(struct tgc *t, const struct graph *g)
{
    int n, nroot;
    double most = 0;
    struct mem_mark mark = scratch_mark(t);
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_REDUCE)
            continue;
        struct mem_mark inner = scratch_mark(t);
        double nbytes = nbytes_of(order[i]) + nbytes_below(t, order[i]->src[0]);
        scratch_release(t, inner);
        most = nbytes > most ? nbytes : most;
    }
    scratch_release(t, mark);
    return most;
}
