/* split_reductions.c - splits long reductions with few results on devices: partial results in
 * parallel, then their reduction. Sums of everything, means of a few long rows or of an image's
 * channels, maxima.
 *
 *      y[r] = sum over k  f(x[r, k])
 *  ->  part[s, r] = sum over k < C  f(x[r, s*C + k])        S < K/C parts, a block for each
 *      y[r] = sum over s  part[s, r]  +  sum over k >= S*C  f(x[r, k])   a kernel of its own
 *
 * One block reads a long row at a fraction of the memory's bandwidth: its threads have too few
 * bytes in flight. The order of operations depends only on the device's row and the sizes; there
 * are no atomics. The cost model chooses the number of parts.
 *
 * split_sums.c handles products of two tensors, except those with one result in all or in each row,
 * where results share nothing. Terms may depend on other reductions with no more results (a
 * variance on the mean, a softmax's sum on the maximum), but on no larger ones: attention's scores
 * stay with their softmax. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/value.h"
#include "passes/kernel/grid_product.h"
#include "passes/passes.h"
#include "passes/target/cost.h"

/* PARTS: at most. TERMS: of a part, at least. COLUMNS: adjacent results that one block computes. */
enum { PARTS = 1024, TERMS = 256, COLUMNS = 16, ALIGNED = 4 };

/* A reduction by its sizes. last: of its longest axis. columns: results that are contiguous in
 * memory. nbytes: what it reads. around: there is another reduction of as many terms, which one
 * kernel computes with this one. */
struct reduction { double results, terms, columns, nbytes; int axis; int64_t last; bool around; };

static bool is_computed_in_place(const struct uop *u)
{
    return op_is_pointwise(u->op) || op_class(u->op) == CLASS_MOVE || u->op == OP_REDUCE;
}

/* Whether the operand of the reduction u comes from tensors in memory and from reductions with no
 * more results than u. */
static bool reads_memory(struct tgc *t, const struct uop *u, struct reduction *x)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop_map seen = {.t = t, .scratch = true};
    struct uop **v = NULL;
    int n = 0;
    size_t cap = 0;
    bool is = true;
    SCRATCH_PUSH(t, v, n, cap, u->src[0]);
    while (n > 0 && is) {
        struct uop *of = v[--n];
        if (of->ndim == 0 || map_get(&seen, of))
            continue;
        map_set(&seen, of, of);
        is = of->op != OP_REDUCE || value_nelem(of) <= x->results;
        x->around |= of->op == OP_REDUCE && value_nelem(of->src[0]) / value_nelem(of) >= x->terms;
        x->nbytes +=
            is_computed_in_place(of) ? 0 : value_nelem(of) * (double)dtype_nbytes(of->dtype);
        for (int i = 0; i < of->nsrc && is_computed_in_place(of); i++)
            SCRATCH_PUSH(t, v, n, cap, of->src[i]);
    }
    scratch_release(t, mark);
    return is;
}

/* Finds u's sizes; false: its length is unknown, or another pass handles it. */
static bool find_reduction(struct tgc *t, struct uop *u, struct reduction *x)
{
    struct contraction c;
    struct uop *of = u->src[0];
    *x = (struct reduction){
        .results = value_nelem(u), .terms = value_nelem(of), .columns = 1, .axis = -1};
    if (u->op != OP_REDUCE || u->ndim >= MAX_RANK || x->results < 1)
        return false;
    x->terms /= x->results;
    for (int a = 0; a < of->ndim; a++) {
        bool reduced = REDUCE_AXES(u->arg.i) >> a & 1;
        x->columns = reduced ? 1 : x->columns * (double)of->dim[a]->vmax;
        if (reduced && of->dim[a]->op == OP_CONST && of->dim[a]->arg.i > x->last)
            x->axis = a, x->last = of->dim[a]->arg.i;
    }
    if (x->axis < 0 || (contraction_find(t, u, MOVES_ANY, &c) &&
                        contraction_extent(&c, ROLE_ROW) * contraction_extent(&c, ROLE_COLUMN) > 1))
        return false;
    return reads_memory(t, u, x);
}

/* ns of `parts` partial results for each result: a block for each, or for some adjacent ones. */
static double blocks_ns(const struct device_row *d, const struct reduction *x, double parts)
{
    double columns = x->columns < COLUMNS ? x->columns : COLUMNS,
           rows = x->results / columns * parts, iterations = x->terms / parts * columns;
    double threads = grid_row_threads(d, rows, iterations);
    struct grid_work work = {
        .blocks = rows,
        .threads = threads,
        .issued = iterations / threads * (1 + cost_grid_load(d)) + RATIO_GRID_BARRIER,
        .cache_nbytes = x->nbytes,
        .memory_nbytes = x->nbytes,
    };
    return cost_of_grid(d, &work, NULL) + RATIO_GRID_LAUNCH;
}

/* blocks_ns() plus the reduction of the partial results. */
static double parts_ns(const struct device_row *d, const struct reduction *x, int64_t parts)
{
    struct reduction added = {.results = x->results,
                              .terms = (double)parts,
                              .columns = x->columns,
                              .nbytes = 4 * x->results * (double)parts};
    return blocks_ns(d, x, (double)parts) + blocks_ns(d, &added, 1);
}

/* Whether three passes (two split reductions, then the elementwise result) are faster than one
 * block per row that does all three. */
static bool pays_apart(const struct device_row *d, const struct reduction *x, int64_t parts)
{
    struct reduction row = *x, all = *x;
    row.nbytes = all.nbytes = 2 * x->nbytes;         /* stores count, too */
    return 2 * parts_ns(d, x, parts) + blocks_ns(d, &all, PARTS) <
           RATIO_GRID_SPLIT * blocks_ns(d, &row, 1);
}

/* The split factor with the least estimated time; 1 means no split. */
static int64_t count_parts(const struct device_row *d, const struct reduction *x)
{
    double least = RATIO_GRID_SPLIT * blocks_ns(d, x, 1);
    int64_t best = 1;
    bool divides = x->last % (ALIGNED * 2) == 0;
    for (int64_t parts = 2;
         parts <= PARTS && x->last / parts >= ALIGNED && x->terms / (double)parts >= TERMS;
         parts++) {
        if (divides ? x->last % (ALIGNED * parts) != 0 : (parts & (parts - 1)) != 0)
            continue;
        double ns = parts_ns(d, x, parts);
        if (ns < least)
            least = ns, best = parts;
    }
    return best > 1 && x->around && !pays_apart(d, x, best) ? 1 : best;
}

/* The `size` elements of v along an axis, from `begin` on. */
static struct uop *part_of(struct tgc *t, struct uop *v, int axis, int64_t begin, int64_t size)
{
    struct uop *from[MAX_RANK], *dim[MAX_RANK];
    for (int a = 0; a < v->ndim; a++) {
        from[a] = uop_int(t, a == axis ? begin : 0);
        dim[a] = a == axis ? uop_int(t, size) : v->dim[a];
    }
    return uop_shrink(t, v, from, dim);
}

/* The split reduction that v is computed from; NULL: there is none. */
static struct uop *of_parts(const struct uop_map *split, struct uop *v)
{
    while (v && (op_is_pointwise(v->op) || op_class(v->op) == CLASS_MOVE || v->op == OP_REDUCE)) {
        if (map_get(split, v))
            return v;
        struct uop *next = NULL;
        for (int i = 0; i < v->nsrc; i++)
            next = v->src[i]->ndim > 0 && v->src[i]->op != OP_CONST && !next ? v->src[i] : next;
        v = next;
    }
    return NULL;
}

/* A statistic with many users, as in a normalization: stored, so that its partial results are
 * reduced once, or inlined in the kernel that uses it. */
static struct uop *place_statistic(struct tgc *t, const struct uop_map *split, struct uop *u)
{
    struct uop *v = u->src[0], *all = value_nelem(u) > value_nelem(v) ? of_parts(split, v) : NULL,
               *whole = all ? map_get(split, all) : NULL;
    struct reduction x;
    if (!whole || !find_reduction(t, whole, &x))
        return NULL;
    v = pays_apart(t->device, &x, count_parts(t->device, &x))
            ? uop_new(t, OP_CONTIGUOUS, v->dtype, &v, 1, (union arg){0})
            : uop_substitute(t, v, all, whole);
    return uop_expand(t, v, u->dim);
}

/* A group's statistic that was repeated for each channel, for a processor's vectors; a device's
 * threads read the original. NULL: another value. */
static struct uop *repeated_below(struct uop *u)
{
    struct uop *v = u->src[0];
    while (v->op == OP_RESHAPE || v->op == OP_EXPAND)
        v = v->src[0];
    return value_nelem(v) < value_nelem(u) && !value_is_leaf(v) ? u->src[0] : NULL;
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct uop_map *split = ctx;
    struct reduction x;
    if (u->op == OP_CONTIGUOUS)
        return repeated_below(u);
    if (u->op == OP_EXPAND)
        return place_statistic(t, split, u);
    if (u->op != OP_REDUCE || !find_reduction(t, u, &x))
        return NULL;
    int64_t parts = count_parts(t->device, &x), whole = x.last / parts / ALIGNED * ALIGNED * parts;
    if (parts < 2)
        return NULL;
    enum op op = REDUCE_OP(u->arg.i);
    uint32_t axes = REDUCE_AXES(u->arg.i);
    struct uop *v = whole < x.last ? part_of(t, u->src[0], x.axis, 0, whole) : u->src[0];
    struct uop *part = uop_reduce(t, op, tensor_in_parts(t, v, x.axis, parts), axes << 1);
    part = uop_new(t, OP_CONTIGUOUS, part->dtype, &part, 1, (union arg){0});
    struct uop *all = uop_reshape(t, uop_reduce(t, op, part, 1), u->dim, u->ndim);
    if (whole < x.last)
        all = tensor_binary(
            t, op, all,
            uop_reduce(t, op, part_of(t, u->src[0], x.axis, whole, x.last - whole), axes));
    map_set(split, all, u);
    return all;
}

bool pass_split_reductions(struct tgc *t, struct graph *g)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop_map split = {.t = t, .scratch = true};
    if (device_has_grid(t))
        graph_rewrite(t, g, rewrite, &split);
    scratch_release(t, mark);
    return true;
}
