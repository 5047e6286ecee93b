/* copy_gathered.c - copies an input that is read at data-dependent indices, in an order of axes
 * that suits gathers.
 *
 *      y[c, p] = sum over taps of            t[place, c] = x[c, place]
 *                x[c, place(tap, p)] *  ->   y[c, p]     = sum over taps of
 *                weight(tap, p)                            t[place(tap, p), c] * weight(tap, p)
 *
 * A grid's samples are gathered one by one if the pixels of a channel are contiguous, as in a
 * model's inputs; if the channels are, they are loaded as vectors. Intermediates may have any order
 * of axes; inputs may not, so they are copied. That takes arena for the input's elements, and is
 * done where gather_gain() says that it saves time, counting every read of an element: a grid's
 * four or more taps pay, a single gather does not.
 */
#include "passes/analysis/gathers.h"
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"
#include "passes/analysis/access.h"

/* The last axis of u's source, long enough, that is read in order along the results, whatever the
 * indices along the others are; -1: there is none, or the indices along the innermost axis are not
 * data. */
static int find_rows(struct tgc *t, const struct uop *u)
{
    struct uop *range[MAX_RANK], *at[MAX_RANK][MAX_RANK], *base[MAX_RANK];
    int n = u->src[0]->ndim;
    int64_t size;
    if (value_is_index_like(u->src[n]))
        return -1;
    for (int k = 0; k < u->ndim; k++)
        range[k] = uop_range(t, u->dim[k], t->next_range++);
    for (int a = 0; a < n; a++) {
        for (int k = 0; k < u->ndim; k++)
            at[a][k] = range[k];
        base[a] = move_down(t, u->src[1 + a], MOVES_SPREAD, at[a]);
    }
    for (int a = n - 2; a >= 0; a--) {
        bool alone = base[a]->op == OP_IOTA && at[a][0]->op == OP_RANGE &&
                     uop_const_int(u->src[0]->dim[a], &size) && size >= GATHER_ROW_MIN &&
                     base[a]->dim[0] == u->src[0]->dim[a];
        for (int b = 0; b < n && alone; b++)
            for (int k = 0; b != a && k < base[b]->ndim; k++)
                alone &= !uop_depends_on(t, at[b][k], at[a][0]);
        if (alone)
            return a;
    }
    return -1;
}

static bool is_input(const struct uop *x)
{
    const struct uop *base = value_behind(x, MOVES_VIEW);
    return x->dtype == DTYPE_F32 && base->op == OP_BUFFER &&
           ((const struct buffer *)base->arg.p)->kind == BUFFER_INPUT;
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    const struct uop_map *found = ctx;
    struct uop *src[MAX_RANK + 1], *x = u->op == OP_INDEX ? u->src[0] : NULL;
    const struct gathered *g = x ? map_get(found, x) : NULL;
    if (!g || gather_gain(t, g, value_nelem(x)) <= 0 ||
        find_rows(t, u) < 0)
        return NULL;
    for (int k = 1; k < u->nsrc; k++)
        src[k] = u->src[k];
    src[0] = uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0});
    return uop_index(t, src[0], src + 1);
}

bool pass_copy_gathered(struct tgc *t, struct graph *g)
{
    struct uop_map found = {.t = t, .scratch = true};
    bool any = false;
    int n, nroot;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        int axis = u->op == OP_INDEX && is_input(u->src[0]) ? find_rows(t, u) : -1;
        if (axis < 0)
            continue;
        struct gathered *of = map_get(&found, u->src[0]);
        double nelem = value_nelem(u), nplace = nelem / dim_extent(u->src[0]->dim[axis]);
        if (!of) {
            of = scratch_array(t, 1, sizeof *of);
            map_set(&found, u->src[0], of);
        }
        gather_count(of, nelem, nplace, nelem);
        any = true;
    }
    if (any)
        graph_rewrite(t, g, rewrite, &found);
    return true;
}
