/* winograd_budget.c - chooses the tiles of all convolutions of a network within its budgets: the
 * error that --error allows, and the bytes of weights that --weights-budget does.
 *
 * Each layer prefers the tiles that save most time. If what this takes of a resource exceeds its
 * budget, tiles get smaller, one by one, where that loses least time per unit freed: the Lagrangian
 * relaxation of the knapsack problem, with a multiplier that grows until the sum fits. The rest of
 * the budgets goes to the layers that gain most by it. Choices of a tune file count as the fastest;
 * the limits apply to them, too.
 */
#include "passes/analysis/error.h"
#include "passes/analysis/weight_budget.h"
#include "passes/graph/conv/winograd.h"
#include "passes/target/tune.h"

/* What choices share: variance of the outputs, bytes of weights. */
enum resource { VARIANCE, BYTES, RESOURCES };

static double use_of(const struct weighed *w, int i, enum resource r)
{
    return r == VARIANCE ? w->gain * w->noise[i] : w->bytes[i];
}

static double total_use(struct weighed *const *layer, int n, enum resource r)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += use_of(layer[i], layer[i]->taken, r);
    return total;
}

/* The layer that loses the least time per unit of r freed, and its next choice, which takes no more
 * of the resources before r; NULL: no layer can take less. */
static struct weighed *find_reduction(struct weighed *const *layer, int n, enum resource r, int *to)
{
    struct weighed *found = NULL;
    double least = 0;
    for (int i = 0; i < n; i++) {
        struct weighed *w = layer[i];
        for (int k = 0; k < w->n; k++) {
            double less = use_of(w, w->taken, r) - use_of(w, k, r);
            double price = (w->worth[k] - w->worth[w->taken]) / less;
            bool fits = true;
            for (int q = 0; q < (int)r; q++)
                fits &= use_of(w, k, q) <= use_of(w, w->taken, q);
            if (less > 0 && fits && (!found || price < least))
                least = price, found = w, *to = k;
        }
    }
    return found;
}

/* The layer that gains the most time within the rest of the budgets, and its choice. */
static struct weighed *find_gain(struct weighed *const *layer, int n, const double *limit, int *to)
{
    struct weighed *found = NULL;
    double most = 0, left[RESOURCES];
    for (int r = 0; r < RESOURCES; r++)
        left[r] = limit[r] - total_use(layer, n, r);
    for (int i = 0; i < n; i++) {
        struct weighed *w = layer[i];
        for (int k = 0; k < w->n; k++) {
            bool fits = true;
            for (int r = 0; r < RESOURCES; r++)
                fits &= use_of(w, k, r) - use_of(w, w->taken, r) <= left[r];
            double won = w->worth[w->taken] - w->worth[k];
            if (fits && won > most)
                most = won, found = w, *to = k;
        }
    }
    return found;
}

static void keep_to(struct weighed *const *layer, int n, const double *limit)
{
    struct weighed *w;
    int to = 0;
    bool reduced = false;
    for (int r = 0; r < RESOURCES; r++)
        while (total_use(layer, n, r) > limit[r] && (w = find_reduction(layer, n, r, &to)))
            w->taken = to, reduced = true;
    while (reduced && (w = find_gain(layer, n, limit, &to)))
        w->taken = to;
}

/* The price of a byte of weights, in ns: what doubles the network's memory, weights and what layers
 * pass on, has to save a share of the time. That is the layers' and, on a processor, that of the
 * other sums. */
static double price_of_weights(struct tgc *t, const struct graph *g, const struct plan *p,
                               bool is_device)
{
    double ns = 0, memory = weights_nbytes(t, g) + g->layers_nbytes;
    for (int i = 0; i < p->norder; i++) {
        const struct uop *u = p->order[i];
        const struct weighed *w = p->layer[i];
        double steps = 1;
        for (int k = 0; w && k < w->n; k++)
            steps = k == 0 || w->ns[k] < steps ? w->ns[k] : steps;
        if (w)
            ns += steps;
        else if (!is_device && u->op == OP_REDUCE) {
            for (int a = 0; a < u->src[0]->ndim; a++)
                steps *= (double)u->src[0]->dim[a]->vmax;
            ns += cost_of_flop(machine_of(t), FLOP_TILES, 2 * steps);
        }
    }
    return memory > 0 ? RATIO_MEMORY_TWICE * ns / memory : 0;
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
static void choose_all(struct tgc *t, const struct graph *g, struct weighed **layer, int n)
{
    const double favour = 0.9, limit[RESOURCES] = {error_left(t), weights_left(t, g)};
    bool asked = false;
    for (int i = 0; i < n; i++) {
        asked |= layer[i]->by != NULL;
        layer[i]->taken = layer[i]->model;
    }
    keep_to(layer, n, limit);
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
        keep_to(layer, n, limit);
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
    double price = n ? price_of_weights(t, g, &p, cost != NULL) : 0;
    for (int i = 0; i < n; i++) {
        sides_price(all[i], price);
        all[i]->taken = all[i]->by ? all[i]->asked : all[i]->model;
    }
    fill_gains(t, g, all, n);
    choose_all(t, g, all, n);
    double total = total_use(all, n, VARIANCE);
    error_spend(t, total);
    weights_spend(t, total_use(all, n, BYTES));
    for (int i = 0; i < n; i++) {
        struct weighed *w = all[i];
        if (t->tuning)
            sides_note(t, w, total > 0 ? use_of(w, w->taken, VARIANCE) / total : 0);
        mark = scratch_mark(t);
        if (t->debug >= 2 && layer_find(t, w->sum, l))
            sides_report(l, w);
        scratch_release(t, mark);
    }
    return p;
}
