/* grid_shape.c - rewrites the loops of a sum of products into other forms before they become tiles.
 *
 *      rows      b < 32, y < 56, x < 56  ->  r < 100352         flattened pixels of all images
 *                                            q < 3136, r < 64   patches: 8 x 8 pixels, a box
 *      terms     c < 64, ky < 3, kx < 3  ->  ky, kx, c          the longest loop innermost
 *                c < 3,  ky < 7, kx < 7  ->  k < 147            merged, if none is long
 *      weights   w[n, c, ky, kx]         ->  w[ky, kx, c, n]    packed in the order of steps
 *
 * A convolution is a product of pixels by weights whose windows are never stored (implicit GEMM).
 * Flattened rows do not end a tile at the end of an image row; divisions compute the pixel's
 * position. The models of grid_tile.c and grid_matrix_cost.c choose the cheapest form. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/grid_product.h"

#include <stdlib.h>

/* A copy of the kernel whose lists may grow independently. */
static void begin_shape(struct tgc *t, struct shape *s, const struct kernel *k)
{
    s->k = *k;
    s->k.opts.v = mem_copy(t, k->opts.v, (size_t)k->opts.n * sizeof *k->opts.v);
    s->k.opts.cap = (size_t)k->opts.n;
    s->k.packed = mem_copy(t, k->packed, (size_t)k->npacked * sizeof *k->packed);
    s->k.cap_packed = (size_t)k->npacked;
}

bool shape_begin(struct tgc *t, struct shape *s, const struct kernel *k, int store)
{
    begin_shape(t, s, k);
    return grid_find_product(t, s->k.ast->src[store], false, &s->x);
}

/* Applies the opts and finds the product again. false: refused. */
static bool change(struct tgc *t, struct shape *s, int store, const struct opt *opt, int n)
{
    return opt_apply(t, &s->k, NULL, opt, n, NULL) &&
           grid_find_product(t, s->k.ast->src[store], false, &s->x);
}

/* ---- rows */

static bool may_join(const struct product *x, int at, int side)
{
    const struct uop *r = x->m.store->src[at], *of = x->m.store->src[side];
    return at != x->row && at != x->column && product_may_cut(&x->m, r) &&
           range_fixed_size(r) > 1 && range_fixed_size(of) > 1 &&
           operands_equal(nest_axis(&x->m, r).reads, nest_axis(&x->m, of).reads);
}

/* The loop nearest to the rows (or columns, at `side`) that may be flattened with them, since it
 * reads the same operands; of two equally near, the inner one. -1: none. */
static int nearest_loop(const struct product *x, int side)
{
    int best = -1;
    for (int at = x->m.first; at < x->m.store->nsrc; at++)
        if (may_join(x, at, side) && (best < 0 || abs(at - side) <= abs(best - side)))
            best = at;
    return best;
}

bool shape_join_rows(struct tgc *t, const struct shape *from, int store, struct shape *to)
{
    const struct product *x = &from->x;
    int side = x->row, at = nearest_loop(x, side), n = 0;
    if (at < 0)
        at = nearest_loop(x, side = x->column);
    if (at < 0)
        return false;
    struct opt opt[2];
    int next = at < side ? side - 1 : side + 1, outer = at < side ? next : side;
    if (at != next)
        opt[n++] = (struct opt){
            .op = OPT_ORDER, .store = store, .axis = at - x->m.first, .to = next - x->m.first};
    opt[n++] = (struct opt){.op = OPT_FLATTEN, .store = store, .axis = outer - x->m.first};
    begin_shape(t, to, &from->k);
    return change(t, to, store, opt, n);
}

/* ---- rows as patches */

enum { PATCH_LOOPS = 3 };

/* The loops of a patch, a box of up to three of the store's loops that a block computes together.
 * at: their positions, innermost first; all are rows of the product, or else all are columns.
 * Returns their number; 0: neither has two. */
static int list_patch(const struct product *x, int *at)
{
    int n = 0;
    for (int k = 0; k < 2 && n < 2; k++) {
        int side = k ? x->column : x->row;
        n = 0;
        for (int i = x->m.store->nsrc - 1; i >= x->m.first && n < PATCH_LOOPS; i--)
            if (i == side ? product_may_cut(&x->m, x->m.store->src[i]) &&
                                range_fixed_size(x->m.store->src[i]) > 1
                          : may_join(x, i, side))
                at[n++] = i;
    }
    return n < 2 ? 0 : n;
}

bool shape_find_patch(const struct shape *from, int64_t iterations, struct patch *patch)
{
    enum { INNER_LEAST = 8 };                  /* contiguous results are stored together */
    int at[PATCH_LOOPS], n = list_patch(&from->x, at);
    double least = 0;
    for (int64_t inner = iterations; n > 0 && inner >= INNER_LEAST; inner /= 2)
        for (int64_t image = iterations; image >= inner; image /= 2) {
            struct patch p = {{inner, image / inner, iterations / image}};
            double all = 1;
            for (int k = 0; k < PATCH_LOOPS; k++) {
                int64_t size = k < n ? range_fixed_size(from->x.m.store->src[at[k]]) : 1;
                all *= (double)((size + p.n[k] - 1) / p.n[k] * p.n[k]);
            }
            if (least <= 0 || all < least)
                least = all, *patch = p;
        }
    return least > 0;
}

/* Merges the loops with these tags, in this order, into one, innermost in the store. */
static void list_joined_loops(struct opt_list *l, const int *tag, int n)
{
    int joined = 0;
    for (int k = n - 1; k >= 0; k--)
        if (list_position(l, tag[k]) >= 0) {
            list_order(l, tag[k], l->nloop - 1);
            joined++;
        }
    for (; joined > 1; joined--)
        list_flatten(l, l->nloop - 2);
}

bool shape_patch(struct tgc *t, const struct shape *from, int store, const struct patch *patch,
                 struct shape *to)
{
    enum { BLOCKS = LOOP_INNER, ITERATIONS = LOOP_INNER + PATCH_LOOPS };
    static const int blocks[PATCH_LOOPS] = {BLOCKS, BLOCKS + 1, BLOCKS + 2},
                     iterations[PATCH_LOOPS] = {ITERATIONS, ITERATIONS + 1, ITERATIONS + 2};
    const struct product *x = &from->x;
    struct opt_list l;
    int at[PATCH_LOOPS], n = list_patch(x, at);
    list_begin(&l, t, from->k.ast, store);
    for (int k = 0; k < n; k++) {
        struct block_of b = {patch->n[k], 1, blocks[k], iterations[k], iterations[k], false};
        list_cover(&l, range_fixed_size(x->m.store->src[at[k]]), LOOP_GIVEN + at[k] - x->m.first,
                   &b);
    }
    list_joined_loops(&l, blocks, n);
    list_joined_loops(&l, iterations, n);
    begin_shape(t, to, &from->k);
    return n > 0 && !l.failed && opt_apply(t, &to->k, NULL, l.opt, l.n, NULL) &&
           grid_find_product(t, to->k.ast->src[store], true, &to->x);
}

/* ---- terms */

static struct opt of_sum(const struct shape *s, int store, enum opt_op op, int axis)
{
    struct opt o = {.op = op, .store = store, .of = OF_SUM, .axis = axis};
    o.number = opt_number(s->x.m.t, s->x.m.store, s->x.m.reduce);
    return o;
}

bool shape_order_terms(struct tgc *t, const struct shape *from, int store, struct shape *to)
{
    const struct uop *sum = from->x.m.reduce;
    int last = sum->nsrc - 1, longest = last;
    for (int i = 1; i < last; i++)
        if (range_fixed_size(sum->src[i]) > range_fixed_size(sum->src[longest]))
            longest = i;
    if (longest == last || from->x.m.grouped)
        return false;
    struct opt order = of_sum(from, store, OPT_ORDER, longest - 1);
    order.to = last - 1;
    begin_shape(t, to, &from->k);
    return change(t, to, store, &order, 1);
}

bool shape_join_terms(struct tgc *t, const struct shape *from, int store, struct shape *to)
{
    begin_shape(t, to, &from->k);
    to->x = from->x;
    if (from->x.m.grouped || from->x.m.reduce->nsrc < 3)
        return false;
    while (to->x.m.reduce->nsrc > 2) {
        struct opt flatten = of_sum(to, store, OPT_FLATTEN, to->x.m.reduce->nsrc - 3);
        if (!change(t, to, store, &flatten, 1))
            return false;
    }
    return true;
}

/* ---- weights */

bool shape_pack(struct tgc *t, const struct shape *from, int store, bool by_terms,
                bool (*gains)(const struct product *x, const struct uop *load, int side),
                struct shape *to)
{
    bool any = false;
    begin_shape(t, to, &from->k);
    to->x = from->x;
    for (int i = 0; i < to->x.m.nload; i++) {
        const struct product *x = &to->x;
        const struct uop *load = x->m.load[i];
        bool rows = uop_depends_on(t, load->src[1], x->m.store->src[x->row]);
        int side = rows ? x->row : x->column, axis = by_terms != rows ? x->row : x->column;
        struct opt pack = of_sum(to, store, OPT_PACK, axis - x->m.first);
        pack.operand = i, pack.space = SPACE_WEIGHTS,
        pack.n = range_fixed_size(x->m.store->src[axis]);
        if (load_is_stationary(load) && gains(x, load, side))
            any |= change(t, to, store, &pack, 1);        /* wherever it is legal */
    }
    return any;
}
