/* grid_rows.c - rows on a device: softmax, normalizations, means, products with few results. A
 * block has one row, and its threads share the row's sums.
 *
 *      row r < R                                a block for each row
 *        m = max over k   s = sum over k          each thread: every T-th term; then all T results
 *        for c < C   y[r, c] = f(x[r, c], m, s)   each thread: every T-th column
 *
 * Values staged for a row are recomputed where they are read, unless they contain a sum: then they
 * stay in shared memory. Many partial results are reduced in two steps. A block of one subgroup
 * combines them by shuffles, without a barrier, where the device has these. The block is no larger
 * than the row has work for, so that few barriers wait for idle threads. */
#include "passes/kernel/grid.h"

enum { STEP = 16 };

/* A store whose sums are invariant in some of its loops, or that has few results. */
struct rows {
    struct uop *store;
    int first, columns;          /* position of the largest loop in which sums are invariant; -1:
                                  * none */
    double results, terms;       /* results that sums are made for; terms of the longest sum */
    const struct uop *longest;   /* of the sums that vary along the columns; NULL: there is none */
};

static bool find_rows(struct tgc *t, struct uop *store, struct rows *x)
{
    int n;
    bool any = false;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    *x = (struct rows){
        .store = store, .first = store_first_range(store), .columns = -1, .results = 1};
    for (int i = 0; i < n; i++) {
        double terms = order[i]->op == OP_REDUCE ? 1 : 0;
        for (int k = 1; order[i]->op == OP_REDUCE && k < order[i]->nsrc; k++)
            terms *= (double)order[i]->src[k]->src[0]->vmax;
        x->terms = terms > x->terms ? terms : x->terms;
        any |= order[i]->op == OP_REDUCE;
    }
    for (int i = x->first; i < store->nsrc; i++) {
        struct uop *r = store->src[i];
        bool again = any && grid_repeats(t, store, r);
        if (!again)
            x->results *= (double)r->src[0]->vmax;
        else if (RANGE_AXIS(r->arg.i) == AXIS_LOOP &&
                 (x->columns < 0 || r->src[0]->vmax > store->src[x->columns]->src[0]->vmax))
            x->columns = i;
    }
    for (int i = 0; i < n && x->columns >= 0; i++)
        if (order[i]->op == OP_REDUCE && uop_depends_on(t, order[i], store->src[x->columns]) &&
            (!x->longest || grid_sum_iterations(order[i]) > grid_sum_iterations(x->longest)))
            x->longest = order[i];
    return any;
}

static double iterations_of(const struct uop *u, int first)
{
    double n = 1;
    for (int i = first; i < u->nsrc; i++)
        n *= u->src[i]->op == OP_RANGE ? (double)u->src[i]->src[0]->vmax : 1;
    return n;
}

double grid_sum_iterations(const struct uop *sum) { return iterations_of(sum, 1); }

double grid_row_iterations(struct tgc *t, struct uop *store, const struct uop *r)
{
    int n, nown;
    double iterations = 0;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op == OP_REDUCE && !uop_depends_on(t, u, r))
            iterations += iterations_of(u, 1);
        if (u->op != OP_STAGE || u->nsrc < 3)
            continue;
        struct uop **own = nest_order(t, u->src[0], &nown);
        iterations += iterations_of(u, 2);
        for (int j = 0; j < nown; j++)
            if (own[j]->op == OP_REDUCE && uop_depends_on(t, own[j], u->src[2]))
                iterations += iterations_of(u, 2) * iterations_of(own[j], 1);
    }
    return iterations;
}

/* Whether to split columns over blocks, which recompute the row's invariants: there are few rows,
 * and the invariants are cheap against the columns' sums. */
static bool spreads_columns(struct tgc *t, const struct rows *x, int threads)
{
    const struct uop *r = x->store->src[x->columns];
    double columns = (double)r->src[0]->vmax;
    return x->results < t->device->units && columns > threads && x->longest &&
           2 * grid_row_iterations(t, x->store, r) <= threads * grid_sum_iterations(x->longest);
}

int grid_row_threads(const struct device_row *d, double rows, double iterations)
{
    int most = d->group < THREADS_MOST ? d->group : THREADS_MOST, n = d->wave;
    while (2 * n <= most && 2 * n * RATIO_GRID_SUM <= iterations && rows * n < cost_full_threads(d))
        n *= 2;
    return n;
}

static int choose_threads(struct tgc *t, const struct rows *x)
{
    double iterations = x->terms;
    if (x->columns >= 0 && (double)x->store->src[x->columns]->src[0]->vmax > iterations)
        iterations = (double)x->store->src[x->columns]->src[0]->vmax;
    return grid_row_threads(t->device, x->results, iterations);
}

void grid_place_stages(struct opt_list *l, struct tgc *t, struct uop *store)
{
    int n, number = 0;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_STAGE)
            continue;
        int nown, sums = 0;
        struct uop **own = nest_order(t, order[i]->src[0], &nown);
        for (int j = 0; j < nown; j++)
            sums += own[j]->op == OP_REDUCE;
        struct opt *place = list_add(l, sums ? OPT_SHARE_STAGE : OPT_INLINE, -1);
        place->of = OF_STAGE, place->number = number;
        number += sums > 0;                     /* an inlined stage no longer counts */
    }
}

int grid_longest_loop(const struct uop *sum)
{
    int best = 1;
    for (int i = 2; i < sum->nsrc; i++)
        if (sum->src[i]->src[0]->vmax > sum->src[best]->src[0]->vmax)
            best = i;
    return best - 1;
}

static struct uop *find_sum(struct tgc *t, struct uop *store, int number)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE && number-- == 0)
            return order[i];
    return NULL;
}

bool grid_reads_vectors(struct tgc *t, struct uop *sum, const struct uop *r, int lanes)
{
    int n;
    struct uop **order = nest_order(t, sum->src[0], &n);
    bool any = false;
    for (int i = 0; i < n; i++) {
        int64_t stride;
        if (order[i]->op != OP_LOAD || !uop_depends_on(t, order[i]->src[1], r))
            continue;
        if (!index_stride(t, order[i]->src[1], r, &stride) || stride != 1 || order[i]->nsrc > 2 ||
            (dtype_nbytes(order[i]->dtype) != 4 && order[i]->dtype != DTYPE_F16) ||
            index_divisor(t, sym_sub(t, order[i]->src[1], (struct uop *)(uintptr_t)r)) % lanes)
            return false;
        any = true;
    }
    return any;
}

int grid_sum_lanes(struct tgc *t, struct uop *sum, int axis)
{
    int lanes = grid_vector_lanes(t);
    const struct uop *r = sum->src[axis + 1];
    return lanes > 1 && r->src[0]->vmax >= lanes * t->device->wave &&
                   grid_reads_vectors(t, sum, r, lanes)
               ? lanes
               : 1;
}

/* Makes vector loads of the sum by adding contiguous terms first (VECTOR_LOAD). Returns the new
 * sum. */
static struct uop *add_neighbours(struct tgc *t, struct kernel *k, struct uop *sum, struct opt of)
{
    of.op = OPT_VECTOR_LOAD, of.n = grid_sum_lanes(t, sum, of.axis);
    if (of.n > 1)
        (void)opt_apply(t, k, NULL, &of, 1, NULL);
    return find_sum(t, k->ast->src[of.store], of.number);
}

/* Merges two of the sum's loops if their terms are contiguous, as rows and columns of an image
 * are. */
static bool merge_loops(struct tgc *t, struct kernel *k, int at, int number, const struct uop *sum)
{
    for (int i = sum->nsrc - 3; i >= 0; i--) {
        struct opt merge = {
            .op = OPT_MERGE, .store = at, .of = OF_SUM, .number = number, .axis = i};
        if (opt_apply(t, k, NULL, &merge, 1, NULL))
            return true;
    }
    return false;
}

/* Whether every thread has a term, and enough terms to pay for the reduction. */
static bool is_worth_sharing(const struct uop *sum, const struct opt *reduce)
{
    return sum->src[reduce->axis + 1]->src[0]->vmax >= reduce->n &&
           grid_sum_iterations(sum) >= RATIO_GRID_SUM * (double)reduce->n;
}

void grid_share_sums(struct tgc *t, struct kernel *k, int at, int threads)
{
    for (int number = 0;; number++) {
        struct uop *sum = find_sum(t, k->ast->src[at], number);
        while (sum && merge_loops(t, k, at, number, sum))
            sum = find_sum(t, k->ast->src[at], number);
        if (!sum)
            return;
        bool exchanged = threads == t->device->shuffle && sum->dtype == DTYPE_F32;
        struct opt reduce[2] = {{.op = exchanged ? OPT_SHUFFLE_REDUCE : OPT_BLOCK_REDUCE,
                                 .store = at,
                                 .of = OF_SUM,
                                 .number = number,
                                 .axis = grid_longest_loop(sum),
                                 .n = threads}};
        sum = add_neighbours(t, k, sum, reduce[0]);
        while (!exchanged && !is_worth_sharing(sum, &reduce[0]) && reduce[0].n >= 4 * STEP)
            reduce[0].n /= 2;            /* fewer threads: the others would have no term */
        if (!is_worth_sharing(sum, &reduce[0]) || !opt_apply(t, k, NULL, reduce, 1, NULL))
            continue;
        if (exchanged)
            continue;
        number++;                                    /* skips the sum of the partial results */
        reduce[1] = reduce[0];
        reduce[1].number = number, reduce[1].axis = 0, reduce[1].n = STEP;
        if (reduce[0].n >= 4 * STEP && opt_apply(t, k, NULL, &reduce[1], 1, NULL))
            number++;
    }
}

/* Puts the loops that repeat no sum over the grid; blocks of columns, too, if they are split. */
static void list_blocks(struct opt_list *l, struct tgc *t, const struct rows *x, bool spread)
{
    int tag[LOOPS_MAX + 1], n = 0;
    int64_t size[LOOPS_MAX + 1];
    if (spread)
        tag[n] = LOOP_COLUMNS, size[n++] = INT64_MAX;
    for (int i = 0; x->first + i < x->store->nsrc && n < LOOPS_MAX; i++)
        if (!grid_repeats(t, x->store, x->store->src[x->first + i])) {
            tag[n] = LOOP_GIVEN + i;
            size[n++] = x->store->src[x->first + i]->src[0]->vmax;
        }
    list_grid(l, tag, size, n);
}

/* A block for each row: its threads have every n-th column, in vectors of `lanes`. */
static bool apply_rows(struct tgc *t, struct kernel *k, int at, const struct rows *x, int lanes)
{
    struct opt_list l;
    struct kernel trial = *k;
    int threads = choose_threads(t, x), tag = LOOP_GIVEN + x->columns - x->first;
    struct block_of block = {threads, 1, LOOP_COLUMNS, LOOP_COLUMN_LANES, LOOP_COLUMN_ITEMS};
    int64_t columns = x->columns < 0 ? 0 : range_fixed_size(x->store->src[x->columns]);
    list_begin(&l, t, k->ast, at);
    grid_place_stages(&l, t, x->store);
    if (lanes > 1)
        list_vector(&l, tag, columns, lanes);
    if (x->columns >= 0)
        list_cover(&l, columns / lanes, tag, &block);
    list_blocks(&l, t, x, x->columns >= 0 && spreads_columns(t, x, threads));
    if (x->columns >= 0)
        list_add(&l, OPT_ITEM, LOOP_COLUMN_ITEMS);
    else
        list_add(&l, OPT_FIRST, -1)->n = threads;
    if (l.failed || !grid_apply(t, &trial, &l, threads, 1, NULL))
        return false;
    grid_share_sums(t, &trial, at, threads);
    *k = trial;
    return true;
}

bool grid_rows(struct tgc *t, struct kernel *k, int at)
{
    struct rows x;
    struct uop *store = k->ast->src[at];
    int lanes = grid_vector_lanes(t);
    if (!find_rows(t, store, &x))
        return compare_refuse(t, SCHEDULE_ROWS, "it has no sum");
    if (x.columns < 0 && x.results >= cost_full_threads(t->device))
        return compare_refuse(t, SCHEDULE_ROWS, "its results alone fill the device with threads");
    if (x.columns < 0 && x.terms < RATIO_GRID_SUM * t->device->wave)
        return compare_refuse(t, SCHEDULE_ROWS, "its sums are too short for a subgroup");
    /* enough vectors to keep the block's threads busy */
    bool vectors =
        x.columns >= 0 && lanes > 1 &&
        range_fixed_size(store->src[x.columns]) >= (int64_t)lanes * choose_threads(t, &x) &&
        grid_vector_fits(t, store, x.columns, lanes);
    if ((vectors && apply_rows(t, k, at, &x, lanes)) || apply_rows(t, k, at, &x, 1))
        return true;
    return compare_refuse_last(t, SCHEDULE_ROWS);
}
