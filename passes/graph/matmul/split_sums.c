/* split_sums.c - long sums of products with few results, on devices: in parts of the sum that are
 * computed beside each other, and the parts' sum.
 *
 *      y[m, n] = sum over k  x[m, k] * w[k, n]
 * ->   part[s, m, n] = sum over k < K/S  x[m, s*K/S + k] * w[s*K/S + k, n]      S times as many threads
 *      y[m, n] = sum over s  part[s, m, n]                                      a kernel of its own
 *
 * The order of the additions depends on the device's row alone, so results are the same from run to
 * run; no atomic operations. How many parts there are is the cost model's (cost_sum_ns()): threads that
 * a device lacks to hide its memory's latency, against the parts' bytes and another launch.
 *
 * Attention's product of a softmax and values stays with its scores (grid_attention.c, grid_rows.c).
 * A product of a single row whose weights are contiguous along the sum stays as it is: a block's threads
 * share such a sum in one kernel (grid_rows.c). Where they are contiguous along the columns, too, if the
 * results are enough for blocks of some columns to fill the device (grid_slice.c).
 */
#include "passes/analysis/contraction.h"
#include "passes/analysis/softmax.h"
#include "passes/passes.h"
#include "passes/target/cost.h"
#include "passes/target/target.h"

enum { PARTS_MOST = 64, TERMS_LEAST = 32, TILED_LEAST = 8, SLICES = 32, SLICE_COLUMNS = 8 };

static double nelem_of(const struct uop *v)
{
    double n = 1;
    for (int a = 0; a < v->ndim; a++)
        n *= v->dim[a]->vmax > 0 ? (double)v->dim[a]->vmax : 0;
    return n;
}

/* The longest axis of the sum that is none of a window's taps; -1: only the run knows how long it is. */
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

/* Whether a block's threads would read neighbours if they shared the sum of a single row. */
static bool is_row_of_sums(const struct contraction *c, int axis)
{
    const struct factor *f = &c->factor[c->stationary];
    double rows = contraction_extent(c, ROLE_ROW), columns = contraction_extent(c, ROLE_COLUMN);
    return (rows < 2 || columns < 2) && f->base->ndim > 0 && (f->axes[f->base->ndim - 1] >> axis & 1);
}

/* Threads for each sum of a kernel: a thread has some sums, or, of one row with columns that make lines of memory, many
 * threads share one, where there is local memory (grid_slice.c). */
static double threads_each(const struct tgc *t, const struct contraction *c)
{
    bool sliced = contraction_extent(c, ROLE_ROW) < 2 && contraction_extent(c, ROLE_COLUMN) >= SLICE_COLUMNS && !t->no_locals;
    return sliced ? SLICES : 1. / RATIO_GRID_SUMS;
}

/* In how many parts the axis' sum takes least; 1: as it is. */
static int64_t count_parts(struct tgc *t, const struct contraction *c, int axis)
{
    double results = nelem_of(c->sum), terms = nelem_of(c->product) / results, least = 0;
    double nbytes = 4 * (nelem_of(c->factor[0].base) + nelem_of(c->factor[1].base));
    int64_t n = c->product->dim[axis]->arg.i, best = 1;
    bool tiled = contraction_extent(c, ROLE_ROW) >= TILED_LEAST && contraction_extent(c, ROLE_COLUMN) >= TILED_LEAST;
    for (int64_t parts = 1; parts <= PARTS_MOST && n / parts >= TERMS_LEAST; parts++) {
        double ns = cost_sum_ns(t->device, results, terms, nbytes, (double)parts, threads_each(t, c), tiled);
        if (n % parts || (parts > 1 && n / parts % 4) || (parts > 1 && ns >= least))
            continue;
        least = ns;
        best = parts;
    }
    return best;
}

/* The factor with the axis in two, of which the first one, of the parts, is outermost. */
static struct uop *split_axis(struct tgc *t, struct uop *v, int axis, int64_t parts)
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
    struct uop *product = tensor_binary(t, OP_MUL, split_axis(t, factor[0], axis, parts),
                                        split_axis(t, factor[1], axis, parts));
    struct uop *part = uop_reduce(t, OP_ADD, product, c.reduced << 1);
    part = uop_new(t, OP_CONTIGUOUS, part->dtype, &part, 1, (union arg){0});
    return uop_reshape(t, uop_reduce(t, OP_ADD, part, 1), u->dim, u->ndim);
}

bool pass_split_sums(struct tgc *t, struct graph *g)
{
    if (device_has_grid(t))
        graph_rewrite(t, g, rewrite, NULL);
    return true;
}
