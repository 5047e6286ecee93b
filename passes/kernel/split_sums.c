/* split_sums.c - split-K by two kernels: long sums of products with few results become partial
 * sums, and a kernel that adds them.
 *
 *      y[m, n] = sum over k  x[m, k] * w[k, n]
 *  ->  part[s, m, n] = sum over k < K/S  x[m, s*K/S + k] * w[s*K/S + k, n]     S times the threads
 *      y[m, n] = sum over s  part[s, m, n]                                     a kernel of its own
 *
 * On processors for the caches' sake: a gradient by a convolution's weights reads both of its
 * operands once for each tile of few results, of all pixels of all images. Parts of them stay in
 * the cache while all tiles are computed. Known weights, which are packed, are not split.
 *
 * On devices for their threads. The order of additions depends on the device's row alone, so
 * results are equal from run to run; there are no atomics. The cost model chooses the split factor,
 * by the models of the tiles, matrix instructions included (grid_product.h). It weighs blocks that
 * the device lacks to keep its units busy against the parts' bytes and another launch.
 *
 * Where a device has tickets (TICKET), matrix tiles may split their sum within one kernel
 * (grid_matrix_cost.c). Here that counts as no split, and two kernels have to be faster.
 *
 * Attention's product of a softmax and values stays with its scores (grid_attention.c,
 * grid_rows.c). A product of a single row with weights contiguous along the sum stays: a block's
 * threads share such a sum (grid_rows.c). So does one with weights contiguous along the columns, if
 * the results make enough blocks of columns to fill the device (grid_slice.c). */
#include "passes/analysis/contraction.h"
#include "passes/analysis/softmax.h"
#include "passes/analysis/value.h"
#include "passes/kernel/grid_product.h"
#include "passes/passes.h"
#include "passes/target/cost.h"

/* RESULTS_MANY: results per thread of the device from which on no sum is split. SLICES: threads
 * that share a sum of one row whose columns form lines of memory (grid_slice.c). */
enum { PARTS_MOST = 64, TERMS_LEAST = 32, RESULTS_MANY = 16, SLICES = 32, SLICE_COLUMNS = 8 };

/* The longest axis of the sum that is no tap of a window; -1: its length is unknown. */
static int longest_axis(const struct contraction *c)
{
    int best = -1;
    for (int a = 0; a < c->product->ndim; a++) {
        const struct uop *n = c->product->dim[a];
        if (c->role[a] == ROLE_SUM && n->op == OP_CONST &&
            (best < 0 || n->arg.i > c->product->dim[best]->arg.i))
            best = a;
    }
    return best;
}

/* Whether a block's threads would read contiguous terms if they shared the sum of a single row. */
static bool is_row_of_sums(const struct contraction *c, int axis)
{
    const struct factor *f = &c->factor[c->stationary];
    double rows = contraction_extent(c, ROLE_ROW), columns = contraction_extent(c, ROLE_COLUMN);
    return (rows < 2 || columns < 2) && f->base->ndim > 0 &&
           (f->axes[f->base->ndim - 1] >> axis & 1);
}

/* The factor's dtype in memory: the narrow float that it is widened from, or rounded to
 * (--math). */
static enum dtype dtype_of(const struct tgc *t, const struct factor *f)
{
    struct uop *v = value_behind(f->value, MOVES_VIEW);
    return v->op == OP_CAST ? v->src[0]->dtype : t->math != DTYPE_VOID ? t->math : v->dtype;
}

/* The product of the kernel that computes partial sums. */
static struct product product_of(struct tgc *t, const struct sums *s, int64_t parts)
{
    int64_t last = s->last_terms / parts;
    struct product x = {
        .nrow = (int64_t)s->rows, .ncolumn = (int64_t)s->columns, .rest = (int64_t)s->rest * parts,
        .terms = (int64_t)s->terms / parts, .last_terms = last, .unit = 1,
    };
    int64_t lanes = grid_vector_lanes(t);
    x.vector = x.ncolumn % lanes == 0 ? (int)lanes : 1;
    x.step = grid_step(last, true);
    return x;
}

/* Time without tiles: a thread for each sum loads both factors of each term, or several threads
 * share a sum. */
static double each_ns(const struct tgc *t, const struct product *x, double nbytes)
{
    const struct device_row *d = t->device;
    double results = (double)x->nrow * (double)x->ncolumn * (double)x->rest, threads = d->wave;
    double slices = x->nrow < 2 && x->ncolumn >= SLICE_COLUMNS && !t->no_locals ? SLICES : 1;
    struct grid_work work = {
        .blocks = __builtin_ceil(results * slices / threads),
        .threads = threads,
        .issued = (double)x->terms / slices * (2 + 2 * cost_grid_load(d)) +
                  (slices > 1 ? SLICES + RATIO_GRID_BARRIER : 0),
        .cache_nbytes = 4 * (double)x->terms * (double)x->rest * (double)(x->nrow + x->ncolumn),
        .memory_nbytes = nbytes,
    };
    return cost_of_grid(d, &work, NULL);
}

/* Time to store the partial sums and add them in a kernel of its own. */
static double added_ns(const struct device_row *d, double results, double parts)
{
    struct grid_work work = {
        .blocks = __builtin_ceil(results / d->wave),
        .threads = d->wave,
        .issued = parts * (1 + cost_grid_load(d)),
        .cache_nbytes = 4 * results * (parts + 1),
        .memory_nbytes = 4 * results * (parts + 1),
    };
    return cost_of_grid(d, &work, NULL) + 4 * results * parts / device_cache_gbytes(d) +
           RATIO_GRID_LAUNCH;
}

static double least_of(double ns, double other) { return other > 0 && other < ns ? other : ns; }

/* ns of the sums in `parts` parts, by the fastest schedule. */
static double parts_ns(struct tgc *t, const struct sums *s, int64_t parts)
{
    const struct device_row *d = t->device;
    struct product x = product_of(t, s, parts);
    double ns = each_ns(t, &x, s->nbytes);
    if (x.nrow > 1 && x.ncolumn > 1) {
        ns = least_of(ns, grid_tile_ns(t, &x));
        if (s->of != DTYPE_VOID && !t->no_locals)
            ns = least_of(ns, grid_matrix_ns(t, &x, s->of));
    }
    double results = s->rows * s->columns * s->rest;
    return (ns > s->nbytes / d->gbytes ? ns : s->nbytes / d->gbytes) + RATIO_GRID_LAUNCH +
           (parts > 1 ? added_ns(d, results, (double)parts) : 0);
}

double grid_sums_ns(struct tgc *t, const struct sums *s, int64_t *parts)
{
    struct mem_mark mark = scratch_mark(t);
    double least = parts_ns(t, s, 1);
    *parts = 1;
    bool many = s->rows * s->columns * s->rest > RESULTS_MANY * cost_full_threads(t->device);
    for (int64_t n = 2; n <= PARTS_MOST && s->last_terms / n >= TERMS_LEAST && !many; n++) {
        if (s->last_terms % n || s->last_terms / n % 4)
            continue;
        double ns = parts_ns(t, s, n);
        if (ns >= (*parts == 1 ? RATIO_GRID_SPLIT * least : least))
            continue;
        least = ns;
        *parts = n;
    }
    scratch_release(t, mark);
    return least;
}

/* The split factor of the axis with the least estimated time; 1 means no split, as for a sum
 * without results. */
static int64_t count_parts(struct tgc *t, const struct contraction *c, int axis)
{
    enum dtype of = dtype_of(t, &c->factor[0]), other = dtype_of(t, &c->factor[1]);
    double results = value_nelem(c->sum);
    if (results < 1)
        return 1;
    struct sums s = {
        .rows = contraction_extent(c, ROLE_ROW),
        .columns = contraction_extent(c, ROLE_COLUMN),
        .terms = value_nelem(c->product) / results,
        .last_terms = c->product->dim[axis]->arg.i,
        .of = of == other ? of : DTYPE_VOID,
        .nbytes = (double)dtype_nbytes(of) *
                  (value_nelem(c->factor[0].base) + value_nelem(c->factor[1].base)),
    };
    int64_t parts;
    s.rest = results / s.rows / s.columns;
    (void)grid_sums_ns(t, &s, &parts);
    return parts;
}

struct uop *tensor_in_parts(struct tgc *t, struct uop *v, int axis, int64_t parts)
{
    struct uop *dim[MAX_RANK];
    int perm[MAX_RANK], n = 0;
    for (int a = 0; a < v->ndim; a++) {
        if (a == axis)
            dim[n++] = uop_int(t, parts);
        dim[n++] = a == axis ? uop_int(t, v->dim[a]->arg.i / parts) : v->dim[a];
    }
    perm[0] = axis;
    for (int a = 0; a < v->ndim; a++)
        perm[a + 1] = a < axis ? a : a + 1;
    return uop_permute(t, uop_reshape(t, v, dim, n), perm);
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct contraction c;
    (void)ctx;
    if (u->dtype != DTYPE_F32 || u->ndim >= MAX_RANK || !contraction_find(t, u, MOVES_ANY, &c))
        return NULL;
    int axis = longest_axis(&c);
    int64_t parts = axis < 0 || is_row_of_sums(&c, axis) ? 1 : count_parts(t, &c, axis);
    struct uop *const *factor = c.product->src;
    if (parts < 2 || factor[0]->ndim != c.product->ndim || factor[1]->ndim != c.product->ndim ||
        softmax_is_weight(factor[0]) || softmax_is_weight(factor[1]))
        return NULL;
    struct uop *product = tensor_binary(t, OP_MUL, tensor_in_parts(t, factor[0], axis, parts),
                                        tensor_in_parts(t, factor[1], axis, parts));
    struct uop *part = uop_reduce(t, OP_ADD, product, c.reduced << 1);
    part = uop_new(t, OP_CONTIGUOUS, part->dtype, &part, 1, (union arg){0});
    return uop_reshape(t, uop_reduce(t, OP_ADD, part, 1), u->dim, u->ndim);
}

/* ----------------------------------------------------------------------------------- processors */

/* Parts along up to two of the sum's axes, outermost first. */
struct cached { int axis[2]; int64_t parts[2]; int n; };

/* The least divisor of n that is `least` or more. Its cofactor is sought, the terms of a part. They
 * fit a cache, so few are tried even if n is a large prime. */
static int64_t divisor_from(int64_t n, int64_t least)
{
    int64_t terms = least < n ? n / least : 1;
    while (n % terms)
        terms--;
    return n / terms;
}

/* Cuts the sum's axes until it has that many parts. */
static int64_t cut_axes(const struct contraction *c, int64_t parts, struct cached *to)
{
    int64_t n = 1;
    to->n = 0;
    for (int a = 0; a < c->product->ndim && to->n < 2 && n < parts; a++) {
        const struct uop *size = c->product->dim[a];
        if (!contraction_is_reduced(c, a) || size->op != OP_CONST || size->arg.i < 2)
            continue;
        int64_t by = divisor_from(size->arg.i, (parts + n - 1) / n);
        to->axis[to->n] = a;
        to->parts[to->n++] = by;
        n *= by;
    }
    return n;
}

/* Parts whose operands fit the L2. The whole sum's exceed a core's share of the L3, and partial
 * sums are few beside what tiles read. n 0: there are none. */
static struct cached choose_cached(struct tgc *t, const struct contraction *c)
{
    enum { ROWS = 8, COLUMNS = 32, TRAFFIC_SHARE = 16 };     /* of a tile */
    const struct machine *m = machine_of(t);
    struct cached none = {.n = 0}, found;
    double size = (double)dtype_nbytes(DTYPE_F32), results = value_nelem(c->sum), nbytes = 0;
    for (int k = 0; k < 2; k++) {
        double n = value_nelem(c->factor[k].base);
        if (c->factor[k].standing != STREAMED || n < 2 * results)
            return none;
        nbytes += size * n;
    }
    double traffic = size * value_nelem(c->product) * (1.0 / ROWS + 1.0 / COLUMNS);
    double cache = m->level[LEVEL_L2].nbytes / 2;
    if (nbytes < m->level[LEVEL_L3].nbytes / 4 || contraction_extent(c, ROLE_ROW) < ROWS ||
        contraction_extent(c, ROLE_COLUMN) < ROWS)
        return none;
    int64_t parts = cut_axes(c, (int64_t)(nbytes / cache) + 1, &found);
    return 2 * size * results * (double)parts < traffic / TRAFFIC_SHARE ? found : none;
}

/* How often each value is read: NULL once, itself more often. */
static struct uop_map *count_uses(struct tgc *t, struct graph *g)
{
    int nroot, n;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    struct uop_map *seen = MEM_NEW(t, struct uop_map), *many = MEM_NEW(t, struct uop_map);
    *seen = *many = (struct uop_map){.t = t};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < order[i]->nsrc; k++) {
            struct uop *v = order[i]->src[k];
            map_set(map_get(seen, v) ? many : seen, v, v);
        }
    return many;
}

/* The factor; stored, if it is elementwise and for this sum alone: else each part's kernel would
 * compute it, channel by channel. */
static struct uop *stored_factor(struct tgc *t, const struct uop_map *many, const struct factor *f)
{
    struct uop *base = f->base;
    if (!op_is_elementwise(base->op) || map_get(many, base))
        return f->value;
    base = uop_new(t, OP_CONTIGUOUS, base->dtype, &base, 1, (union arg){0});
    return uop_substitute(t, f->value, f->base, base);
}

static struct uop *rewrite_cached(struct tgc *t, void *ctx, struct uop *u)
{
    struct contraction c;
    if (u->dtype != DTYPE_F32 || u->ndim + 2 > MAX_RANK || !contraction_find(t, u, MOVES_ANY, &c))
        return NULL;
    struct uop *factor[2] = {c.product->src[0], c.product->src[1]};
    struct cached by = choose_cached(t, &c);
    if (!by.n || factor[0]->ndim != c.product->ndim || factor[1]->ndim != c.product->ndim ||
        softmax_is_weight(factor[0]) || softmax_is_weight(factor[1]))
        return NULL;
    for (int k = 0; k < 2; k++)
        factor[k] = stored_factor(t, ctx, &c.factor[k]);
    for (int i = 0; i < by.n; i++)
        for (int k = 0; k < 2; k++)
            factor[k] = tensor_in_parts(t, factor[k], by.axis[i] + i, by.parts[i]);
    struct uop *product = tensor_binary(t, OP_MUL, factor[0], factor[1]);
    struct uop *part = uop_reduce(t, OP_ADD, product, c.reduced << by.n);
    uop_set_origin(t, part, u);
    part = uop_new(t, OP_CONTIGUOUS, part->dtype, &part, 1, (union arg){0});
    part = uop_reduce(t, OP_ADD, part, (1u << by.n) - 1);
    return uop_reshape(t, part, u->dim, u->ndim);
}

bool pass_split_sums(struct tgc *t, struct graph *g)
{
    if (device_has_grid(t))
        graph_rewrite(t, g, rewrite, NULL);
    else
        graph_rewrite(t, g, rewrite_cached, count_uses(t, g));
    return true;
}
