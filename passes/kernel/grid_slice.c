/* grid_slice.c - few results with long sums: products of one row, attention of one query. A block
 * has some columns, and groups of its threads share their sums.
 *
 *       blocks of columns (index n)        a block of C columns x P threads each
 *         stages and sums of the row         by all threads, in each block anew
 *         SLICE_K: columns are contiguous    thread p * C + c reads whole lines of C columns
 *           part[p][c] = sum over q  x[P*q + p] * w[P*q + p, n*C + c]
 *         SLICE_K_ADJACENT: terms are        thread c * P + p
 *           part[c][p] = sum over q  x[P*q + p] * w[n*C + c, P*q + p]
 *         y[n*C + c] = sum over p  part      the first C threads
 *
 * So one launch has enough threads to hide memory latency. Fewer columns per block make more
 * blocks, down to lines of 32 bytes (SLICE_K). Each block recomputes what belongs to the whole row
 * (a normalization's sums, a softmax's scores). If that is expensive, a block has all columns
 * (SLICE_K), or loops over several groups of columns (SLICE_K_ADJACENT). */
#include "passes/kernel/grid.h"

/* Columns of a block: COLUMNS_MANY if the results alone fill the device, else between COLUMNS_LEAST
 * and COLUMNS_MOST. */
enum { COLUMNS_MANY = 128, COLUMNS_MOST = 32, COLUMNS_LEAST = 8, GROUPS_LEAST = 8 };

struct sliced {
    struct uop *store, *sum;
    int column;                  /* by position among the store's loops */
    bool by_terms;               /* terms are contiguous, not columns */
    int64_t columns;
    double terms, rows, row;     /* terms of the sum; iterations of the store's other loops;
                                  * iterations that each block recomputes for its row */
};
/* columns: of a block at a time; iterations: how often; groups: threads for each column; lanes:
 * terms that a thread loads as a vector. */
struct slice_block {
    int64_t columns, iterations, groups, lanes;
};

/* Whether the sum's loads that vary along the column are contiguous, all along it or all along the
 * sum (by_terms), with a load for each term. */
static bool reads_columns(struct tgc *t, struct uop *sum, const struct uop *column, bool *by_terms)
{
    int n;
    int64_t along, terms;
    bool any = false, first = true;
    struct uop **order = nest_order(t, sum->src[0], &n),
               *term = sum->src[grid_longest_loop(sum) + 1];
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op != OP_LOAD || !uop_depends_on(t, u, column))
            continue;
        if (!index_stride(t, u->src[1], column, &along) ||
            !index_stride(t, u->src[1], term, &terms))
            return false;
        bool of_terms = terms == 1 && along > 1;
        if ((!of_terms && (along != 1 || terms == 1)) || (!first && of_terms != *by_terms))
            return false;
        *by_terms = of_terms, first = false;
        any |= terms != 0;
    }
    return any;
}

/* Notes the sum and its loop of columns; of two loops with contiguous terms the longer one. false:
 * there is another such sum. */
static bool note_columns(struct sliced *x, struct uop *sum, int column, int64_t columns,
                         bool by_terms)
{
    if (x->sum && (x->sum != sum || !by_terms || !x->by_terms))
        return false;
    if (!x->sum || columns > x->columns)
        x->sum = sum, x->column = column, x->by_terms = by_terms, x->columns = columns;
    return true;
}

/* Whether the sum is invariant in one of the store's loops: a row's statistic, used by its
 * elements. */
static bool is_repeated(struct tgc *t, const struct uop *store, struct uop *sum)
{
    bool again = false;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        again |= !uop_depends_on(t, sum, store->src[i]);
    return again;
}

/* Whether another long sum of the column would be left to one thread: an argmax looks for the
 * position of what its first sum found. */
static bool leaves_sums(struct tgc *t, const struct sliced *x)
{
    const struct uop *column = x->store->src[store_first_range(x->store) + x->column];
    int n;
    struct uop **order = nest_order(t, x->store->src[2], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE && order[i] != x->sum &&
            uop_depends_on(t, order[i], column) &&
            grid_sum_iterations(order[i]) >= grid_sum_iterations(x->sum) / COLUMNS_LEAST)
            return true;
    return false;
}

/* Finds the store's only sum that varies along a loop of columns, and this loop. */
static bool find_columns(struct tgc *t, struct sliced *x)
{
    int n, first = store_first_range(x->store);
    struct uop **order = uop_toposort(t, &x->store, 1, &n);
    for (int i = 0; i < n; i++)
        if (range_is_lane(order[i]))
            return false;
    order = nest_order(t, x->store->src[2], &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        for (int at = first; u->op == OP_REDUCE && at < x->store->nsrc; at++) {
            struct uop *r = x->store->src[at];
            bool by_terms = false;
            if (range_is(r, AXIS_LOOP) && range_fixed_size(r) >= COLUMNS_LEAST &&
                uop_depends_on(t, u, r) && reads_columns(t, u, r, &by_terms) &&
                !(by_terms && is_repeated(t, x->store, u)) &&
                !note_columns(x, u, at - first, range_fixed_size(r), by_terms))
                return false;
        }
    }
    return x->sum && !(x->by_terms && leaves_sums(t, x));
}

/* The block for contiguous columns; false: there is none. */
static bool choose_columns(const struct device_row *d, const struct sliced *x,
                           struct slice_block *b)
{
    int64_t most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    double full = cost_full_threads(d);
    while (x->row > 0 && most > d->wave && x->terms < (double)most)
        most /= 2;                               /* every thread needs a part of the row's work */
    b->columns = x->columns;
    if (x->row <= x->terms * COLUMNS_LEAST / 2) {
        bool many = x->rows * (double)x->columns >= full;
        if (many && x->row <= 0)                         /* a thread for each result suffices, in
                                                          * vectors */
            return false;
        for (b->columns = many ? COLUMNS_MANY : COLUMNS_MOST;
             b->columns > COLUMNS_LEAST &&
             (b->columns > x->columns ||
              x->rows * (double)x->columns / (double)b->columns * (double)most < full);)
            b->columns /= 2;
    }
    b->groups = most / b->columns;
    while (b->groups > 2 && x->rows * (double)x->columns * (double)(b->groups / 2) >= full &&
           b->columns == x->columns)
        b->groups /= 2;
    while (b->groups > 1 && x->terms < RATIO_GRID_SUM * (double)b->groups)
        b->groups /= 2;
    return b->groups > 1;
}

/* The block for contiguous terms: a subgroup for each column, more if the device would be idle and
 * there are enough terms; and blocks for all units. */
static bool choose_terms(const struct device_row *d, const struct sliced *x, struct slice_block *b)
{
    int64_t most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    double iterations =
        (double)x->sum->src[grid_longest_loop(x->sum) + 1]->src[0]->vmax / (double)b->lanes;
    for (b->groups = most / 2;
         b->groups > 1 &&
         (iterations < RATIO_GRID_SUM * (double)b->groups ||
          (b->groups > d->wave &&
           x->rows * (double)x->columns * (double)b->groups / 2 >= cost_full_threads(d)));)
        b->groups /= 2;
    for (b->columns = most / b->groups;
         b->columns > 2 &&
         (b->columns > x->columns || x->rows * (double)x->columns / (double)b->columns < d->units);)
        b->columns /= 2;
    double all = x->rows * (double)x->columns * (double)b->groups;
    while (x->row > (double)(b->columns * b->iterations) * x->terms / COLUMNS_LEAST &&
           all / (double)(2 * b->iterations) >= cost_full_threads(d))
        b->iterations *= 2;
    return b->groups >= GROUPS_LEAST;
}

/* The number of weights in a packed word (of 4-bit weights, say): the size of the sum's last loop,
 * if all its iterations read the same integer and the other operand's loads are contiguous along
 * it, so that they become one vector load. Otherwise 1. */
static int64_t terms_of_word(struct tgc *t, const struct sliced *x)
{
    enum { TERMS_MOST = 16 };
    int n, last = x->sum->nsrc - 1;
    const struct uop *r = x->sum->src[last],
                     *column = x->store->src[store_first_range(x->store) + x->column];
    int64_t size = range_fixed_size(r);
    bool word = false;
    struct uop **order = nest_order(t, x->sum->src[0], &n);
    for (int i = 0; i < n; i++)
        word |= order[i]->op == OP_LOAD && dtype_is_int(order[i]->dtype) &&
                uop_depends_on(t, order[i], column) && !uop_depends_on(t, order[i], r);
    bool small =
        last > 1 && last - 1 != grid_longest_loop(x->sum) && size > 1 && size <= TERMS_MOST;
    return word && small && grid_reads_vectors(t, x->sum, r, (int)size) ? size : 1;
}

/* Adds the opts of the block's sums after those of the store's loops. items: the tag of the loop of
 * columns. */
static void list_slice(struct opt_list *l, struct tgc *t, const struct sliced *x,
                       const struct slice_block *b, int items)
{
    int number = opt_number(t, x->store, x->sum), axis = grid_longest_loop(x->sum);
    int64_t word = x->by_terms ? 1 : terms_of_word(t, x);
    if (word > 1) {
        struct opt *terms = list_add(l, OPT_VECTOR_LOAD, -1);
        terms->of = OF_SUM, terms->number = number, terms->axis = x->sum->nsrc - 2, terms->n = word;
    }
    if (b->lanes > 1) {
        struct opt *terms = list_add(l, OPT_VECTOR_LOAD, -1);
        terms->of = OF_SUM, terms->number = number, terms->axis = axis, terms->n = b->lanes;
    }
    struct opt *slice = list_add(l, x->by_terms ? OPT_SLICE_K_ADJACENT : OPT_SLICE_K, -1);
    slice->of = OF_SUM, slice->number = number, slice->axis = axis, slice->n = b->groups;
    slice->to = list_position(l, items);
}

bool grid_slices(struct tgc *t, struct kernel *k, int at)
{
    struct sliced x = {.store = k->ast->src[at], .rows = 1};
    struct opt_list l;
    struct kernel trial = *k;
    int tag[LOOPS_MAX], n = 0, first = store_first_range(x.store);
    int64_t size[LOOPS_MAX];
    struct slice_block b = {.iterations = 1, .lanes = 1};
    if (!find_columns(t, &x))
        return compare_refuse(t, SCHEDULE_SLICES,
                              "no single sum reads contiguous columns, or contiguous terms");
    x.row = grid_row_iterations(t, x.store, x.store->src[first + x.column]);
    x.terms = grid_sum_iterations(x.sum);
    for (int i = first; i < x.store->nsrc; i++)
        x.rows *= i == first + x.column ? 1 : (double)x.store->src[i]->src[0]->vmax;
    if (x.by_terms)
        b.lanes = grid_sum_lanes(t, x.sum, grid_longest_loop(x.sum));
    if (!(x.by_terms ? choose_terms(t->device, &x, &b) : choose_columns(t->device, &x, &b)))
        return compare_refuse(t, SCHEDULE_SLICES,
                              "its results fill the device with threads, or its sums are short");
    struct block_of block = {b.columns,         b.iterations,      LOOP_COLUMNS,
                             LOOP_COLUMN_LANES, LOOP_COLUMN_ITEMS, false};
    list_begin(&l, t, k->ast, at);
    for (int i = 0; i < l.nloop; i++)
        if (i != x.column) {
            tag[n] = LOOP_GIVEN + i;
            size[n++] = x.store->src[first + i]->src[0]->vmax;
        }
    int items = LOOP_GIVEN + x.column;
    if (b.columns < x.columns) {
        list_cover(&l, x.columns, items, &block);
        items = LOOP_COLUMN_ITEMS;
        tag[n] = LOOP_COLUMNS, size[n++] = INT64_MAX;
    }
    list_slice(&l, t, &x, &b, items);
    grid_place_stages(&l, t, x.store);
    list_grid(&l, tag, size, n);
    if (l.failed || !grid_apply(t, &trial, &l, (int)(b.groups * b.columns), 1, NULL))
        return compare_refuse_last(t, SCHEDULE_SLICES);
    grid_share_sums(t, &trial, at, (int)(b.groups * b.columns));
    *k = trial;
    return true;
}
