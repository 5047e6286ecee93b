/* grid_window.c - sums over windows on a device: each thread computes several outputs along a
 * window and loads shared rows once.
 *
 *       y[r] = x[r] w[0] + x[r + 1] w[1] + x[r + 2] w[2]          r < 56
 *  ->   a thread has 7 adjacent r: 9 loads instead of 21, all terms of the tap's loop at once
 *
 * For depthwise convolutions and poolings whose channels are contiguous: threads have vectors of
 * channels, and known weights are packed by channel. Shared memory would save no more: other
 * threads of the block find their rows in the cache. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/grid_product.h"
#include "passes/target/cost.h"

enum { ROWS_MOST = 8, TAPS_MOST = 8 };

/* The store's loop and the sum's loop along which loads move alike, by position. */
struct along { int row, tap; };

/* Whether some load moves along r as along the taps, and taps are fewer than rows. */
static bool moves_alike(const struct nest *m, const struct uop *r, const struct uop *tap)
{
    int64_t a, b, taps = range_fixed_size(tap);
    for (int i = 0; i < m->nload; i++) {
        struct uop *at = m->load[i]->src[1];
        if (index_stride(m->t, at, r, &a) && index_stride(m->t, at, tap, &b) && b != 0 && a != 0 &&
            a % b == 0 && a / b > 0 && a / b < taps)
            return true;
    }
    return false;
}

/* Prefers outermost loops: their rows are far apart. */
static bool find_along(const struct nest *m, int vector, struct along *w)
{
    const struct uop *s = m->store, *sum = m->reduce;
    for (w->row = m->first; w->row < s->nsrc; w->row++)
        for (w->tap = 1; w->tap < sum->nsrc; w->tap++) {
            int64_t taps = range_fixed_size(sum->src[w->tap]);
            if (w->row != vector && taps > 1 && taps <= TAPS_MOST && sum->nsrc > 2 &&
                product_may_cut(m, s->src[w->row]) && range_fixed_size(s->src[w->row]) > 1 &&
                moves_alike(m, s->src[w->row], sum->src[w->tap]))
                return true;
        }
    return false;
}

/* Rows of a thread: a divisor of n that leaves threads for the whole device; 1: none. */
static int64_t rows_of_thread(const struct device_row *d, int64_t n, double threads)
{
    for (int64_t rows = ROWS_MOST; rows > 1; rows--)
        if (n % rows == 0 && threads / (double)rows >= cost_full_threads(d))
            return rows;
    return 1;
}

/* Packs known operands along the vector's loop. */
static void pack_along(struct tgc *t, struct kernel *k, int store, const struct nest *m, int vector)
{
    struct opt pack = {.op = OPT_PACK,
                       .store = store,
                       .of = OF_SUM,
                       .space = SPACE_WEIGHTS,
                       .axis = vector - m->first,
                       .number = opt_number(t, m->store, m->reduce),
                       .n = range_fixed_size(m->store->src[vector])};
    for (pack.operand = 0; pack.operand < m->nload; pack.operand++) {
        int64_t stride;
        const struct uop *load = m->load[pack.operand];
        if (load_is_stationary(load) &&
            index_stride(t, load->src[1], m->store->src[vector], &stride) && stride > 1)
            (void)opt_apply(t, k, NULL, &pack, 1, NULL);
    }
}

bool grid_windows(struct tgc *t, struct kernel *k, int store)
{
    struct nest m;
    struct along w;
    struct kernel trial = *k;
    struct opt_list l;
    int lanes = grid_vector_lanes(t), vector = k->ast->src[store]->nsrc - 1;
    if (lanes < 2)
        return compare_refuse(t, SCHEDULE_WINDOWS, "the device has no vectors");
    if (k->ast->nsrc > 1 || !nest_find(t, k->ast->src[store], &m) || !m.reduce || m.grouped ||
        vector < m.first)
        return compare_refuse(t, SCHEDULE_WINDOWS, "it is no single sum");
    pack_along(t, &trial, store, &m, vector);
    struct uop *s = trial.ast->src[store];
    if (!nest_find(t, s, &m) || !find_along(&m, vector, &w) ||
        !grid_vector_fits(t, s, vector, lanes))
        return compare_refuse(t, SCHEDULE_WINDOWS,
                              "it is no window along contiguous channels that fill vectors");
    double threads = 1.0 / lanes;
    for (int i = m.first; i < s->nsrc; i++) {
        if (grid_repeats(t, s, s->src[i]))
            return compare_refuse(t, SCHEDULE_WINDOWS, "a sum is invariant along a loop");
        threads *= (double)s->src[i]->src[0]->vmax;
    }
    int64_t size[LOOPS_MAX], n = range_fixed_size(s->src[w.row]),
                             rows = rows_of_thread(t->device, n, threads);
    if (rows < 2)
        return compare_refuse(t, SCHEDULE_WINDOWS, "fewer threads would not fill the device");
    int tag[LOOPS_MAX], ntag = 0;
    list_begin(&l, t, trial.ast, store);
    int nloop = l.nloop;
    list_vector(&l, LOOP_GIVEN + vector - m.first, range_fixed_size(s->src[vector]), lanes);
    for (int i = nloop - 1; i >= 0; i--) {
        int64_t iterations = s->src[m.first + i]->src[0]->vmax;
        tag[ntag] = m.first + i == w.row ? LOOP_ROWS : LOOP_GIVEN + i;
        size[ntag++] = iterations / (m.first + i == w.row    ? rows
                                     : m.first + i == vector ? lanes
                                                             : 1);
    }
    list_divide(&l, LOOP_GIVEN + w.row - m.first, n, rows, LOOP_ROWS);
    list_grid(&l, tag, size, ntag);
    list_lanes(&l, LOOP_GIVEN + w.row - m.first, rows, false);
    struct opt *terms = list_add(&l, OPT_VECTOR_LOAD, -1);
    terms->of = OF_SUM, terms->number = opt_number(t, s, m.reduce), terms->axis = w.tap - 1;
    terms->n = range_fixed_size(m.reduce->src[w.tap]);
    if (l.failed || !grid_apply(t, &trial, &l, 0, 1, NULL))
        return compare_refuse_last(t, SCHEDULE_WINDOWS);
    *k = trial;
    return true;
}
