/* read_parts.c - on devices, a concat whose elements are read once is not stored: its reader
 * selects among the parts.
 *
 *      k[j, e] = concat(past[j, e], new[j, e])
 *      x[j] = sum over e  q[e] * k[j, e]
 *  ->  k[j, e] = where(j < n, past[j, e], new[j - n, e])
 *      x[j] = sum over e  q[e] * k[j, e]
 *
 * The keys and values of a single query are those of earlier runs and its own. Joining them costs a
 * launch, and another store and load of all of them. If several products read each element (several
 * queries, a layer's columns) a buffer is better than a selection in each. So it is if something
 * else reads the tensor, or if it is a result.
 *
 *      r[e] = concat(-x[h..2h], x[0..h])
 *      y[e] = x[e] * cos[e] + r[e] * sin[e]
 *  ->  r[e] = where(e < h, -x[e + h], x[e - h])
 *      y[e] = x[e] * cos[e] + r[e] * sin[e]
 *
 * Parts that are computed elementwise from the same sums (rotary embeddings) are selected by the
 * elementwise op that reads them. These sums are in memory, since more than one part needs them,
 * and a launch costs more than a few loads. A sum of one part alone would be computed under a
 * condition, so such tensors are stored (branches of convolutions). */
#include "passes/analysis/contraction.h"
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"

enum { PARTS_MOST = 3, SUMS_MOST = 4, STEPS_MOST = 48 };

/* Elements of a value that its readers compute, if all of these end in sums of products; how many
 * of them elementwise ops read; and whether there are other readers. */
struct reading { double nelem, by_element; bool other, direct; };

/* u reads its source k. */
static void note_reading(struct tgc *t, struct uop_map *of, const struct uop *u, int k)
{
    struct reading *by = map_get(of, u), *r = map_get(of, u->src[k]);
    bool passes_on =
        op_is_pointwise(u->op) || (op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT && k == 0);
    if (!r) {
        r = scratch_array(t, 1, sizeof *r);
        map_set(of, u->src[k], r);
    }
    if (summed_product(u))
        r->nelem += value_nelem(u->src[0]);
    else if (passes_on && by)
        r->nelem += by->nelem, r->other |= by->other;
    else
        r->other = true;
    if (op_is_pointwise(u->op))
        r->by_element += value_nelem(u);
    else if (passes_on && by)
        r->by_element += by->by_element, r->direct |= by->direct;
    else
        r->direct = true;
}

/* The sums that a part is computed of, element by element. false: something else, or
 * they are too many. */
static bool find_sums(struct uop *u, struct uop **sum, int *n)
{
    struct uop *open[STEPS_MOST] = {u};
    int nopen = 1, step = 0;
    for (*n = 0; nopen > 0 && step < STEPS_MOST; step++) {
        u = open[--nopen];
        if (u->op == OP_REDUCE) {
            if (*n == SUMS_MOST)
                return false;
            sum[(*n)++] = u;
            continue;
        }
        bool moves = op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT;
        int nsrc = moves ? 1 : op_is_pointwise(u->op) ? u->nsrc : 0;
        if (nopen + nsrc > STEPS_MOST)
            return false;
        for (int k = 0; k < nsrc; k++)
            open[nopen++] = u->src[k];
    }
    return nopen == 0;
}

/* Whether there are sums, and each of any part is one of all parts. */
static bool shares_sums(const struct uop *u)
{
    struct uop *sum[PARTS_MOST][SUMS_MOST];
    int n[PARTS_MOST];
    for (int k = 0; k < u->nsrc; k++)
        if (!find_sums(u->src[k], sum[k], &n[k]) || n[k] == 0)
            return false;
    for (int k = 0; k < u->nsrc; k++)
        for (int i = 0; i < n[k]; i++) {
            const int other = (k + 1) % u->nsrc;
            bool found = false;
            for (int j = 0; j < n[other]; j++)
                found |= sum[other][j] == sum[k][i];
            if (!found)
                return false;
        }
    return true;
}

/* Whether each element is read once, by an elementwise op, which can compute it. */
static bool may_compute(const struct uop *u, const struct reading *r)
{
    if (u->op != OP_CONCAT || u->nsrc < 2 || u->nsrc > PARTS_MOST || !dtype_is_float(u->dtype) ||
        !r || r->direct || !(r->by_element > 0) || r->by_element > value_nelem(u))
        return false;
    for (int k = 0; k < u->nsrc; k++)
        if (u->src[k]->dim[u->arg.i]->op != OP_CONST)
            return false;
    return shares_sums(u);
}

/* A part that is a view of an input, perhaps widened, which no rewriting changes;
 * NULL: there is none. */
static struct uop *stored_part(const struct uop *u)
{
    for (int k = 0; k < u->nsrc; k++) {
        const struct uop *base = value_behind(u->src[k], MOVES_VIEW | MOVES_CAST);
        if (value_is_leaf(base) && !value_is_stationary(base))
            return u->src[k];
    }
    return NULL;
}

static bool may_choose(const struct uop *u, const struct reading *r)
{
    bool fixed = true;
    for (int a = 0; a < u->ndim; a++)
        fixed &= u->dim[a]->op == OP_CONST;
    return fixed && dtype_is_float(u->dtype) && u->nsrc <= PARTS_MOST && r && !r->other &&
           r->nelem <= value_nelem(u);
}

/* Part k in its place, zeros around it. */
static struct uop *put_part(struct tgc *t, const struct uop *u, int k, struct uop *begin)
{
    int axis = (int)u->arg.i;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *x = u->src[k];
    for (int a = 0; a < u->ndim; a++)
        lo[a] = hi[a] = uop_int(t, 0);
    lo[axis] = begin;
    hi[axis] = sym_sub(t, u->dim[axis], sym_add(t, begin, x->dim[axis]));
    return tensor_match(t, uop_pad(t, x, uop_constf(t, x->dtype, 0), lo, hi), u->dim);
}

/* The same, chosen for each element. */
static struct uop *choose_part(struct tgc *t, struct uop *u)
{
    struct uop *begin = uop_int(t, 0), *all = NULL, *part;
    struct uop *place = tensor_iota(t, u->dim, u->ndim, (int)u->arg.i);
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *dim[MAX_RANK];
        for (int a = 0; a < u->ndim; a++)
            dim[a] = u->dim[a];
        struct uop *first = tensor_full(t, uop_consti(t, DTYPE_I64, begin->arg.i), dim, u->ndim);
        part = put_part(t, u, k, begin);
        all = all ? tensor_where(t, tensor_binary(t, OP_LT, place, first), all, part) : part;
        begin = sym_add(t, begin, u->src[k]->dim[u->arg.i]);
    }
    return all;
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    const struct uop_map *chosen = ctx;
    struct uop *part = u->op == OP_CONCAT ? stored_part(u) : NULL;
    return part && map_get(chosen, part) == part ? choose_part(t, u) : NULL;
}

static struct uop *rewrite_one(struct tgc *t, void *ctx, struct uop *u)
{
    return u == ctx ? choose_part(t, u) : NULL;
}

bool pass_read_parts(struct tgc *t, struct graph *g)
{
    struct uop_map of = {.t = t, .scratch = true}, chosen = {.t = t, .scratch = true};
    int n, nroot;
    if (!device_has_grid(t))
        return true;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < nroot; i++) {
        struct reading *r = scratch_array(t, 1, sizeof *r);
        r->other = r->direct = true;
        map_set(&of, root[i], r);
    }
    for (int i = n - 1; i >= 0; i--) {
        struct uop *u = order[i], *part = u->op == OP_CONCAT ? stored_part(u) : NULL;
        for (int k = 0; k < u->nsrc; k++)
            note_reading(t, &of, u, k);
        /* one that several have is a part of none that is chosen: what is a concat
         * anew has no other name */
        if (part && may_choose(u, map_get(&of, u)) && !map_get(&chosen, part))
            map_set(&chosen, part, part);
        else if (part)
            map_set(&chosen, part, u);
    }
    /* the last one first: those before it remain the same uops */
    for (int i = n - 1; i >= 0; i--)
        if (may_compute(order[i], map_get(&of, order[i])))
            graph_rewrite(t, g, rewrite_one, order[i]);
    graph_rewrite(t, g, rewrite, &chosen);
    return true;
}
