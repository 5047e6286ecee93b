/* grid_slice.c - long sums whose terms are neighbours along the columns, where results are few: products of one row,
 * attention of one query. A block has some columns, and groups of its threads, as wide as these, share their sums.
 *
 *      place n of columns                    a block of C columns x P groups
 *        stages and sums of the row            by all threads, in each block anew
 *        part[p][c] = sum over q               thread p * C + c: terms P*q + p, so the block reads whole lines
 *                 x[P*q + p] * w[P*q + p, n*C + c]
 *        y[n*C + c] = sum over p  part[p][c]   the first C threads
 *
 * So one launch has threads enough to hide what memory takes. The fewer the columns of a block are, the more blocks
 * there are, down to lines of 32 bytes. What a block computes of its row besides (a normalization's sums, a softmax's
 * scores) is repeated in each block: if that is much, a block has all columns.
 */
#include "passes/kernel/grid.h"

/* Columns of a block: where results alone are threads enough, or at most and at least where they are not. */
enum { COLUMNS_MANY = 128, COLUMNS_MOST = 32, COLUMNS_LEAST = 8 };

struct sliced {
    struct uop *store, *sum;
    int column;                  /* of the store's loops, by position */
    int64_t columns;
    double terms, rows, row;     /* of the sum; of the store's other loops; turns of what each block computes of its row */
};

/* Whether the loads of the sum that change along the column are neighbours along it, and none of them is along the
 * sum; and there is one of them for each term. */
static bool reads_columns(struct tgc *t, struct uop *sum, const struct uop *column)
{
    int n;
    int64_t along, terms;
    bool any = false;
    struct uop **order = nest_order(t, sum->src[0], &n), *term = sum->src[grid_longest_loop(sum) + 1];
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op != OP_LOAD || !uop_depends_on(t, u, column))
            continue;
        if (!index_stride(t, u->src[1], column, &along) || along != 1 || !index_stride(t, u->src[1], term, &terms) || terms == 1)
            return false;
        any |= terms != 0;
    }
    return any;
}

/* The store's sum that changes along a loop of columns, as the only one, and this loop. */
static bool find_columns(struct tgc *t, struct sliced *x)
{
    int n, first = store_first_range(x->store);
    struct uop **order = uop_toposort(t, &x->store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (range_is_lane(u))
            return false;
        for (int at = first; u->op == OP_REDUCE && at < x->store->nsrc; at++) {
            struct uop *r = x->store->src[at];
            if (!range_is(r, AXIS_LOOP) || range_fixed_size(r) < COLUMNS_LEAST || !uop_depends_on(t, u, r) || !reads_columns(t, u, r))
                continue;
            if (x->sum)
                return false;
            x->sum = u, x->column = at - first, x->columns = range_fixed_size(r);
        }
    }
    return x->sum != NULL;
}

/* Columns of a block, and threads for each of them; false: there is no such block. */
static bool choose_block(const struct device_row *d, const struct sliced *x, int64_t *columns, int64_t *groups)
{
    int64_t most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    double full = cost_full_threads(d);
    while (x->row > 0 && most > d->wave && x->terms < (double)most)
        most /= 2;                                       /* so that all of them have something of the row */
    *columns = x->columns;
    if (x->row <= x->terms * COLUMNS_LEAST / 2) {
        bool many = x->rows * (double)x->columns >= full;
        if (many && x->row <= 0)                         /* each is a place: vectors of them */
            return false;
        for (*columns = many ? COLUMNS_MANY : COLUMNS_MOST; *columns > COLUMNS_LEAST && (*columns > x->columns ||
                                      x->rows * (double)x->columns / (double)*columns * (double)most < full);)
            *columns /= 2;
    }
    *groups = most / *columns;
    while (*groups > 2 && x->rows * (double)x->columns * (double)(*groups / 2) >= full && *columns == x->columns)
        *groups /= 2;
    while (*groups > 1 && x->terms < RATIO_GRID_SUM * (double)*groups)
        *groups /= 2;
    return *groups > 1;
}

bool grid_slices(struct tgc *t, struct kernel *k, int at)
{
    struct sliced x = {.store = k->ast->src[at], .rows = 1};
    struct place_list l;
    struct kernel trial = *k;
    int tag[LOOPS_MAX], n = 0, first = store_first_range(x.store);
    int64_t size[LOOPS_MAX], columns, groups;
    if (!find_columns(t, &x))
        return false;
    x.row = grid_row_turns(t, x.store, x.store->src[first + x.column]);
    x.terms = grid_sum_turns(x.sum);
    for (int i = first; i < x.store->nsrc; i++)
        x.rows *= i == first + x.column ? 1 : (double)x.store->src[i]->src[0]->vmax;
    if (!choose_block(t->device, &x, &columns, &groups))
        return false;
    struct block_of block = {columns, 1, LOOP_COLUMNS, LOOP_COLUMN_LANES, LOOP_COLUMN_ITEMS, false};
    list_begin(&l, t, k->ast, at);
    for (int i = 0; i < l.nloop; i++)
        if (i != x.column) {
            tag[n] = LOOP_GIVEN + i;
            size[n++] = x.store->src[first + i]->src[0]->vmax;
        }
    int items = LOOP_GIVEN + x.column;
    if (columns < x.columns) {
        list_cover(&l, x.columns, items, &block);
        items = LOOP_COLUMN_ITEMS;
        tag[n] = LOOP_COLUMNS, size[n++] = INT64_MAX;
    }
    struct opt *slice = list_add(&l, OPT_SLICE, -1);
    slice->of = OF_SUM, slice->number = opt_number(t, x.store, x.sum), slice->axis = grid_longest_loop(x.sum), slice->n = groups;
    slice->to = list_position(&l, items);
    grid_place_stages(&l, t, x.store);
    list_grid(&l, tag, size, n);
    if (l.failed || !grid_apply(t, &trial, &l, (int)(groups * columns), 1))
        return false;
    grid_share_sums(t, &trial, at, (int)(groups * columns));
    *k = trial;
    return true;
}
