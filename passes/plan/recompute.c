/* recompute.c - values that a training's kernels compute again instead of reading them.
 *
 *      mean = sum r / n,  d = r - mean,  y = r a + b      y, d and dr of a batch norm are functions
 *      dr   = a dy + (2 / n) d dv + dm                    of r, of dy, and of numbers per channel
 *
 * A step's backward kernels read what its forward kernels computed, so all of that is in memory at
 * once, and most of it is elementwise in tensors that are there anyway. Such a value costs a few
 * operations in each of the kernels that need it, and no memory.
 *
 * The walk goes from the value down to tensors that stay in memory: leaves, those with other
 * consumers, and sums. It counts the operations on the way and the bytes that are stored for this
 * value's sake alone. Not computed again: what an equality of floats reads, as a pool's maximum and
 * its operand, since another kernel may round a product and its sum once; functions such as exp;
 * and what a layer would read for each of its columns. Decisions go from consumers to producers, so
 * a tensor at which the walk ends may be computed again itself, from what is below.
 *
 * Inference stores such values as before: they are short-lived there, and traffic is what counts.
 * source: Griewank and Walther, Evaluating Derivatives, 2008, chapter 12 */
#include "passes/plan/fuse.h"

/* FEW: elements for each of a statistic that is no tensor to save. OPS_MOST: of elementwise ops.
 * USES_MOST: places that compute it. */
enum { FEW = 16, OPS_MOST = 12, USES_MOST = 8, SEEN_MOST = 64 };

static double nbytes_of(const struct uop *v)
{
    return value_nelem(v) * (double)dtype_nbytes(v->dtype);
}

/* A step of the walk: a value, and whether something else reads it, or a view of it on the way. */
struct below { struct uop *u; bool is_shared; };
struct walk {
    struct plan *p;
    const struct uop *from;
    struct below open[SEEN_MOST]; int n;
    struct uop *mask[SEEN_MOST]; int nmask;    /* comparisons, which are stored as bools */
    int nop;
    double nbytes;               /* stored for the value's sake alone */
};

static bool push(struct walk *w, struct uop *u, bool is_shared)
{
    if (w->n == SEEN_MOST)
        return false;
    w->open[w->n++] = (struct below){u, is_shared};
    return true;
}

/* Whether the walk ends here, at a value in memory. */
static bool is_end(const struct walk *w, const struct uop *u, bool is_shared)
{
    const struct node *n = plan_node(w->p, u);
    return u != w->from &&
           (is_shared || n->must || n->kept || !op_is_elementwise(u->op) ||
            u->dtype == DTYPE_BOOL || value_nelem(u) < value_nelem(w->from));
}

static void end(struct walk *w, struct uop *u, bool is_shared)
{
    const struct node *n = plan_node(w->p, u);
    w->nbytes += is_shared || n->must ? 0 : nbytes_of(u);
    if (u->dtype == DTYPE_BOOL && op_is_elementwise(u->op))
        w->mask[w->nmask++] = u;
}

/* false: it takes too long to be computed again. */
static bool visit(struct walk *w, struct below b)
{
    struct uop *u = b.u;
    if (value_is_leaf(u) || u->op == OP_IOTA || FEW * value_nelem(u) <= value_nelem(w->from))
        return true;
    const struct node *n = plan_node(w->p, u);
    bool is_shared = u != w->from && (b.is_shared || n->nconsumer > 1);
    if (move_is(u, MOVES_ANY))
        return push(w, u->src[0], is_shared);
    if (is_end(w, u, is_shared)) {
        end(w, u, is_shared);
        return true;
    }
    if (cost_class_of(u->op) == COST_FUNCTION || ++w->nop > OPS_MOST)
        return false;
    for (int k = 0; k < u->nsrc; k++)
        if (!push(w, u->src[k], false))
            return false;
    return true;
}

/* Whether each of few uses needs each element once, in the block where it would be stored. */
static bool is_read_once(struct plan *p, const struct node *n)
{
    for (const struct use *u = n->use; u; u = u->next) {
        const struct segment *s = u->seg;
        range_set deps = plan_mask_all(p, u->index, n->u->ndim);
        double evaluations = segment_extent(s, segment_placed_in(s, deps, u->open));
        if (u->root || s->block != n->block || evaluations > 1.01 * value_nelem(n->u))
            return false;
    }
    return n->nuse <= USES_MOST;
}

bool plan_is_recomputed(struct plan *p, const struct node *n)
{
    if (p->noopt || !p->trains || device_has_grid(p->t) || n->is_compared ||
        !op_is_elementwise(n->u->op) || n->u->dtype == DTYPE_BOOL || !is_read_once(p, n))
        return false;
    struct walk w = {.p = p, .from = n->u};
    push(&w, n->u, false);
    while (w.n > 0)
        if (!visit(&w, w.open[--w.n]))
            return false;
    if (2 * w.nbytes > nbytes_of(n->u))
        return false;
    for (int k = 0; k < w.nmask; k++)
        plan_node(p, w.mask[k])->kept = true;
    return true;
}

/* Notes what an equality of floats reads. */
void plan_note_compared(struct plan *p)
{
    for (int i = 0; i < p->nnode; i++) {
        const struct uop *u = p->node[i].u;
        for (int k = 0; k < 2 && (u->op == OP_EQ || u->op == OP_NE); k++)
            if (dtype_is_float(u->src[k]->dtype))
                plan_node(p, value_behind(u->src[k], MOVES_ANY))->is_compared = true;
    }
}
