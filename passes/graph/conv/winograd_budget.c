/* winograd_budget.c - chooses the tiles of all convolutions of a network within its error budget.
 *
 * Each layer prefers the tiles that save most time. If the error that this adds to the network's
 * (error.h) exceeds --error, tiles get smaller, one by one, where that loses least time per error
 * removed: the Lagrangian relaxation of the knapsack problem, with a multiplier that grows until
 * the sum fits. The rest of the budget goes to the layers that gain most by it. Choices of a tune
 * file count as the fastest; the limit applies to them, too.
 */
#include "passes/analysis/error.h"
#include "passes/target/tune.h"
#include "passes/graph/conv/winograd.h"

static double variance_of(const struct weighed *w, int i) { return w->gain * w->noise[i]; }

static double total_variance(struct weighed *const *layer, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += variance_of(layer[i], layer[i]->taken);
    return total;
}

/* The layer that loses the least time per variance removed, and its next choice; NULL: no layer can
 * have less error. */
static struct weighed *find_reduction(struct weighed *const *layer, int n, int *to)
{
    struct weighed *found = NULL;
    double least = 0;
    for (int i = 0; i < n; i++) {
        struct weighed *w = layer[i];
        for (int k = 0; k < w->n; k++) {
            double less = variance_of(w, w->taken) - variance_of(w, k);
            double price = (w->worth[k] - w->worth[w->taken]) / less;
            if (less > 0 && (!found || price < least))
                least = price, found = w, *to = k;
        }
    }
    return found;
}

/* The layer that gains the most time within the rest of the budget, and its choice. */
static struct weighed *find_gain(struct weighed *const *layer, int n, double left, int *to)
{
    struct weighed *found = NULL;
    double most = 0;
    for (int i = 0; i < n; i++) {
        struct weighed *w = layer[i];
        for (int k = 0; k < w->n; k++) {
            double more = variance_of(w, k) - variance_of(w, w->taken);
            double won = w->worth[w->taken] - w->worth[k];
            if (more <= left && won > most)
                most = won, found = w, *to = k;
        }
    }
    return found;
}

static void keep_to(struct weighed *const *layer, int n, double limit)
{
    struct weighed *w;
    int to = 0;
    if (total_variance(layer, n) <= limit)
        return;
    while (total_variance(layer, n) > limit && (w = find_reduction(layer, n, &to)))
        w->taken = to;
    while ((w = find_gain(layer, n, limit - total_variance(layer, n), &to)))
        w->taken = to;
}

static void fill_gains(struct tgc *t, const struct graph *g, struct weighed **layer, int n)
{
    struct uop **sum = mem_array(t, (size_t)n, sizeof *sum);
    double *gain = mem_array(t, (size_t)n, sizeof *gain);
    bool any = false;
    for (int i = 0; i < n; i++) {
        sum[i] = layer[i]->sum;
        any |= layer[i]->noise[layer[i]->taken] > 0;
    }
    if (!any)
        return;
    error_gains(t, g, sum, n, gain);
    for (int i = 0; i < n; i++)
        layer[i]->gain = gain[i];
}

/* First by the cost model alone, then with the choices of a tune file. */
static void choose_all(struct tgc *t, struct weighed **layer, int n)
{
    const double favour = 0.9;
    bool asked = false;
    for (int i = 0; i < n; i++) {
        asked |= layer[i]->by != NULL;
        layer[i]->taken = layer[i]->model;
    }
    keep_to(layer, n, error_left(t));
    for (int i = 0; i < n; i++) {
        struct weighed *w = layer[i];
        w->model = w->taken;
        for (int k = 0; w->by && k < w->n; k++)
            if (k != w->asked && w->worth[w->asked] > favour * w->worth[k])
                w->worth[w->asked] = favour * w->worth[k];
        if (w->by)
            w->taken = w->asked;
    }
    if (asked)
        keep_to(layer, n, error_left(t));
}

struct plan winograd_plan(struct tgc *t, const struct graph *g, conv_cost *cost)
{
    struct plan p;
    int nroot, n = 0;
    struct mem_mark mark = scratch_mark(t);
    struct uop **root = graph_roots(t, g, &nroot),
               **order = uop_toposort(t, root, nroot, &p.norder);
    p.order = mem_copy(t, order, (size_t)p.norder * sizeof *order);
    scratch_release(t, mark);
    p.layer = mem_array(t, (size_t)p.norder, sizeof *p.layer);
    struct weighed **all = mem_array(t, (size_t)p.norder, sizeof *all);
    struct layer *l = MEM_NEW(t, struct layer);
    for (int i = 0; i < p.norder; i++) {
        mark = scratch_mark(t);
        if (layer_find(t, p.order[i], l)) {
            p.layer[i] = all[n++] = MEM_NEW(t, struct weighed);
            sides_weigh(l, all[n - 1], cost, g->layers_nbytes);
        }
        scratch_release(t, mark);
    }
    fill_gains(t, g, all, n);
    choose_all(t, all, n);
    double total = total_variance(all, n);
    error_spend(t, total);
    for (int i = 0; i < n; i++) {
        struct weighed *w = all[i];
        if (t->tuning)
            sides_note(t, w, total > 0 ? variance_of(w, w->taken) / total : 0);
        mark = scratch_mark(t);
        if (t->debug >= 2 && layer_find(t, w->sum, l))
            sides_report(l, w);
        scratch_release(t, mark);
    }
    return p;
}
