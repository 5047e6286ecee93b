/* affine_index.c - turns constant tables of indices into affine expressions of their coordinates.
 *
 *      w = 5, 8, 11, 14 ...        x[w[i] + v[j]]  ->  x[3*i + 5 + 32*j]
 *      v = 0, 32, 64 ...
 *
 * Exporters write sliding windows, strides and ranges in this way. With an affine index the load
 * has known strides instead of being a gather: it needs no bounds test and can be vectorized.
 * Tables that are not used as indices stay.
 */
#include "passes/analysis/stationary.h"
#include "passes/passes.h"

#include <string.h>

static int64_t element(const struct buffer *b, int64_t i)
{
    int64_t wide;
    int32_t narrow;
    if (b->dtype == DTYPE_INDEX) {
        memcpy(&wide, (const char *)b->weight.data + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)b->weight.data + 4 * i, sizeof narrow);
    return narrow;
}

/* The step of the elements along each axis; false: it is not constant. */
static bool find_steps(const struct uop *u, const struct buffer *b, int64_t *step)
{
    int64_t dim[MAX_RANK], at[MAX_RANK] = {0}, nelem = 1, first = element(b, 0);
    const int64_t most = INT32_MAX;      /* so that nothing wraps, whatever the coordinates are */
    for (int a = u->ndim - 1; a >= 0; a--) {
        if (!uop_const_int(u->dim[a], &dim[a]) || dim[a] < 1)
            return false;
        step[a] = 0;
        if (dim[a] > 1) {
            int64_t next = element(b, nelem);
            if (next > most || next < -most || first > most || first < -most)
                return false;
            step[a] = next - first;
        }
        nelem = sat_mul(nelem, dim[a]);
    }
    for (int64_t i = 0; i < nelem; i++) {
        int64_t v = first;
        for (int a = 0; a < u->ndim; a++)
            v += step[a] * at[a];
        if (element(b, i) != v)
            return false;
        for (int a = u->ndim - 1; a >= 0 && ++at[a] == dim[a]; a--)
            at[a] = 0;
    }
    return nelem > 1;
}

/* The weight as an expression of its coordinates; NULL: it is not affine. */
static struct uop *expression_of(struct tgc *t, struct uop *u)
{
    const struct buffer *b = known_buffer(u);
    int64_t step[MAX_RANK];
    if (!b || (u->dtype != DTYPE_INDEX && u->dtype != DTYPE_I32) || b->nbytes == 0 ||
        !find_steps(u, b, step))
        return NULL;
    struct uop *sum = uop_int(t, element(b, 0));
    for (int a = 0; a < u->ndim; a++) {
        struct uop *one[MAX_RANK];
        for (int k = 0; k < u->ndim; k++)
            one[k] = k == a ? u->dim[a] : uop_int(t, 1);
        if (step[a])
            sum = tensor_binary(t, OP_ADD, sum,
                                tensor_binary(t, OP_MUL, tensor_iota(t, one, u->ndim, a),
                                              uop_int(t, step[a])));
    }
    return uop_cast(t, u->dtype, tensor_broadcast_to(t, sum, u->dim, u->ndim));
}

/* Marks the sources of u from `first` on as coordinates. */
static void mark(struct uop_map *of_index, const struct uop *u, int first)
{
    for (int k = first; k < u->nsrc; k++)
        if (dtype_is_int(u->src[k]->dtype))
            map_set(of_index, u->src[k], u->src[k]);
}

static struct uop *replace(struct tgc *t, void *ctx, struct uop *u)
{
    (void)t;
    return map_get(ctx, u);
}

bool pass_affine_index(struct tgc *t, struct graph *g)
{
    int n, nroot;
    struct uop **root = graph_roots(t, g, &nroot);
    struct uop **order = uop_toposort(t, root, nroot, &n);
    struct uop_map of_index = {.t = t}, by = {.t = t};
    bool any = false;
    for (int i = n - 1; i >= 0; i--) {
        struct uop *u = order[i], *to;
        if (u->op == OP_INDEX)
            mark(&of_index, u, 1);
        if (!map_get(&of_index, u))
            continue;
        if (op_is_elementwise(u->op))
            mark(&of_index, u, 0);
        else if (op_class(u->op) == CLASS_MOVE && u->nsrc > 0 && u->op != OP_IOTA)
            map_set(&of_index, u->src[0], u->src[0]);
        if ((to = expression_of(t, u))) {
            map_set(&by, u, to);
            any = true;
        }
    }
    if (any)
        graph_rewrite(t, g, replace, &by);
    return true;
}
