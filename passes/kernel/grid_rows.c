/* grid_rows.c - rows on a device: softmax, normalizations, means, products with few results. A block has a
 * row, and its threads share the row's sums.
 *
 *      row r < R                                   a block for each row
 *        m = max over k   s = sum over k             each thread: every T-th term; then all T results
 *        for c < C   y[r, c] = f(x[r, c], m, s)      each thread: every T-th column
 *
 * What is staged for a row, elements that several loops read, is computed anew where it is read, if that
 * is no sum, or else kept in local memory. A sum of T results goes in two steps if they are many; threads that are one wave
 * exchange theirs by shuffles instead, where the device's row has them, without a barrier. So that
 * sums do not wait for each other there are threads for a part of the row alone.
 */
#include "passes/kernel/grid.h"

#include <string.h>

enum { STEP = 16 };

/* A store whose sums do not depend on some of its loops, or has few results. */
struct rows {
    struct uop *store;
    int first, columns;          /* the largest loop that repeats sums, by position; -1: none */
    double results, terms;       /* that sums are made for; of the longest sum */
};

static bool find_rows(struct tgc *t, struct uop *store, struct rows *x)
{
    int n;
    bool any = false;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    *x = (struct rows){.store = store, .first = store_first_range(store), .columns = -1, .results = 1};
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
    return any;
}

/* Threads of a block: as many as the row has work for, in waves. */
static int choose_threads(struct tgc *t, const struct rows *x)
{
    int most = t->device->group < THREADS_MOST ? t->device->group : THREADS_MOST, n = t->device->wave;
    double turns = x->terms;
    if (x->columns >= 0 && (double)x->store->src[x->columns]->src[0]->vmax > turns)
        turns = (double)x->store->src[x->columns]->src[0]->vmax;
    while (2 * n <= most && 2 * n * RATIO_GRID_SUM <= turns && x->results * n < cost_full_threads(t->device))
        n *= 2;
    return n;
}

/* Stages of rows: without a sum in them they are computed where they are read. */
static bool place_stages(struct tgc *t, struct place_list *l, struct uop *store)
{
    int n, number = 0;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    struct opt first[LIST_MAX];
    int nfirst = 0;
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_STAGE)
            continue;
        int nown, sums = 0;
        struct uop **own = nest_order(t, order[i]->src[0], &nown);
        for (int j = 0; j < nown; j++)
            sums += own[j]->op == OP_REDUCE;
        if (nfirst == LIST_MAX / 2)
            return false;
        first[nfirst++] = (struct opt){.op = sums ? OPT_SHARE : OPT_INLINE, .store = l->store,
                                       .of = OF_STAGE, .number = number};
        number += sums > 0;                          /* one that is computed in place is none any more */
    }
    if (l->n + nfirst > LIST_MAX)
        return false;
    for (int i = l->n - 1; i >= 0; i--)
        l->opt[i + nfirst] = l->opt[i];
    for (int i = 0; i < nfirst; i++)
        l->opt[i] = first[i];
    l->n += nfirst;
    return true;
}

/* Which of a sum's loops its threads share: the longest. */
static int longest_loop(const struct uop *sum)
{
    int best = 1;
    for (int i = 2; i < sum->nsrc; i++)
        if (sum->src[i]->src[0]->vmax > sum->src[best]->src[0]->vmax)
            best = i;
    return best - 1;
}

/* The block's threads share each sum that is the same for all of them. */
static int share_sums(struct tgc *t, struct kernel *k, int at, int threads)
{
    int shared = 0;
    for (int number = 0;; number++) {
        struct uop *store = k->ast->src[at], *sum = NULL;
        int n, left = number;
        struct uop **order = uop_toposort(t, &store, 1, &n);
        for (int i = 0; i < n && !sum; i++)
            if (order[i]->op == OP_REDUCE && left-- == 0)
                sum = order[i];
        if (!sum)
            return shared;
        bool exchanged = threads == t->device->shuffle && sum->dtype == DTYPE_F32;
        struct opt tree[2] = {{.op = exchanged ? OPT_SHUFFLE : OPT_TREE, .store = at, .of = OF_SUM, .number = number,
                               .axis = longest_loop(sum), .n = threads}};
        int64_t turns = sum->src[tree[0].axis + 1]->src[0]->vmax;
        if ((double)turns < RATIO_GRID_SUM * threads || !opt_apply(t, k, NULL, tree, 1, NULL))
            continue;
        shared++;
        if (exchanged)
            continue;
        number++;                                    /* the parts, then all of them */
        tree[1] = tree[0];
        tree[1].number = number, tree[1].axis = 0, tree[1].n = STEP;
        if (threads >= 4 * STEP && opt_apply(t, k, NULL, &tree[1], 1, NULL))
            number++;
    }
}

/* The store's sum that changes along r, none of a stage's, by n groups of threads; `to`: r's place among the loops. false:
 * there is no such sum. */
static bool find_slice(struct tgc *t, struct uop *store, const struct uop *r, int64_t n, struct opt *slice)
{
    int nuop, number = 0;
    struct uop **order = uop_toposort(t, &store, 1, &nuop);
    for (int i = 0; i < nuop; i++) {
        if (order[i]->op != OP_REDUCE)
            continue;
        *slice = (struct opt){.op = OPT_SLICE, .of = OF_SUM, .number = number++, .axis = longest_loop(order[i]), .n = n};
        if (uop_depends_on(t, order[i], r))
            return true;
    }
    return false;
}

/* The loops that repeat no sum, as places of blocks: all but the columns. */
static void list_blocks(struct place_list *l, struct tgc *t, const struct rows *x)
{
    int tag[LOOPS_MAX], n = 0;
    int64_t size[LOOPS_MAX];
    for (int i = 0; x->first + i < x->store->nsrc && n < LOOPS_MAX; i++)
        if (!grid_repeats(t, x->store, x->store->src[x->first + i])) {
            tag[n] = LOOP_GIVEN + i;
            size[n++] = x->store->src[x->first + i]->src[0]->vmax;
        }
    list_grid(l, tag, size, n);
}

/* A row with few columns, whose sums are long: attention's result. There are several threads for each of the columns. */
static bool grid_few_columns(struct tgc *t, struct kernel *k, int at, const struct rows *x)
{
    struct place_list l;
    struct kernel trial = *k;
    struct opt slice;
    int64_t n = x->columns < 0 ? 0 : range_fixed_size(x->store->src[x->columns]);
    int most = choose_threads(t, x);
    if (n < 2 || 2 * n > most || !find_slice(t, x->store, x->store->src[x->columns], most / n, &slice))
        return false;
    int threads = (int)(most / n * n);
    list_begin(&l, t, k->ast, at);
    list_blocks(&l, t, x);
    if (l.failed || !place_stages(t, &l, x->store) || l.n == LIST_MAX)
        return false;
    memmove(l.opt + 1, l.opt, (size_t)l.n++ * sizeof *l.opt);
    slice.store = at, slice.to = x->columns - x->first;
    l.opt[0] = slice;
    if (!grid_apply(t, &trial, &l, threads, 1))
        return false;
    (void)share_sums(t, &trial, at, threads);
    *k = trial;
    return true;
}

bool grid_rows(struct tgc *t, struct kernel *k, int at)
{
    struct rows x;
    struct place_list l;
    struct kernel trial = *k;
    struct uop *store = k->ast->src[at];
    if (!find_rows(t, store, &x) ||
        (x.columns < 0 && (x.results >= cost_full_threads(t->device) || x.terms < RATIO_GRID_SUM * t->device->wave)))
        return false;
    if (grid_few_columns(t, k, at, &x))
        return true;
    int threads = choose_threads(t, &x);
    struct block_of block = {threads, 1, LOOP_COLUMNS, LOOP_COLUMN_LANES, LOOP_COLUMN_ITEMS};
    list_begin(&l, t, k->ast, at);
    if (x.columns >= 0)
        list_cover(&l, range_fixed_size(store->src[x.columns]), LOOP_GIVEN + x.columns - x.first, &block);
    list_blocks(&l, t, &x);
    if (x.columns >= 0)
        list_add(&l, OPT_ITEM, LOOP_COLUMN_ITEMS);
    else
        list_add(&l, OPT_FIRST, -1)->n = threads;
    if (l.failed || !place_stages(t, &l, store) || !grid_apply(t, &trial, &l, threads, 1))
        return false;
    (void)share_sums(t, &trial, at, threads);
    *k = trial;
    return true;
}
