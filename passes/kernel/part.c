/* part.c - splits kernels into several, before any schedule is chosen.
 *
 * Nests that depend on each other (one reads what another one stores) cannot be shared among
 * threads, so each becomes a kernel. Nests of a band (band.c) depend on each other through scratch,
 * of which each thread has its own; they stay together.
 *
 * On a device all nests of a kernel go by one grid and its blocks, which are made for the longest
 * sum of products among them. The branches of a concat are such nests: convolutions each of which
 * wants tiles of its own. Those that would take a good part of a launch by threads that compute a
 * result each become kernels. Borders and copies stay with the longest.
 */
#include "passes/kernel/grid.h"
#include "passes/kernel/tile.h"
#include "passes/plan/plan.h"

#include <string.h>

/* Whether one nest reads or writes what another one writes. (Nests share what a band keeps.) */
static bool nests_meet(struct tgc *t, const struct kernel *k)
{
    for (int i = 0; i < k->ast->nsrc; i++)
        for (int j = 0; j < i && !k->is_disjoint; j++) {
            const struct buffer *a = uop_buffer_of(k->ast->src[i]->src[0]),
                                *b = uop_buffer_of(k->ast->src[j]->src[0]);
            if (a->kind != BUFFER_SCRATCH && (buffer_is_part_of(a, b) || buffer_is_part_of(b, a)))
                return true;
        }
    return k->ast->nsrc > 1 && kernel_reads_results(t, k);
}

bool kernel_is_band(const struct kernel *k)
{
    for (int i = 0; i < k->ast->nsrc; i++)
        if (uop_buffer_of(k->ast->src[i]->src[0])->kind == BUFFER_SCRATCH)
            return true;
    return false;
}

struct kernel *kernel_of_nests(struct tgc *t, const struct kernel *from, struct uop *const *store,
                               int n, int number)
{
    struct kernel *k = mem_copy(t, from, sizeof *k);
    k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, n, (union arg){0});
    kernel_describe(t, k);
    k->name = number > 0 ? mem_printf(t, "%s_%d", from->name, number) : from->name;
    if (!*k->title) {                                        /* a copy computes nothing */
        k->title = from->title;
        k->nodes = from->nodes;
        k->node = from->node;
        k->nnode = from->nnode;
        k->cap_node = from->cap_node;
    }
    if (n == 1 && store[0]->src[2]->op == OP_CONST) {
        k->name = mem_printf(t, "fill_%d", from->index);
        k->title = mem_printf(t, "the padding for %s", from->title);
        k->nodes = mem_printf(t, "the padding for %s", from->nodes);
    }
    return k;
}

/* ns of the nest's longest sum of products if each thread computes single results; 0: it has
 * none. */
static double product_ns(struct tgc *t, struct uop *store)
{
    const struct device_row *d = t->device;
    double most = 0, results = 1;
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = store_first_range(store); i < store->nsrc; i++)
        results *= (double)store->src[i]->src[0]->vmax;
    for (int i = 0; i < n; i++) {
        double iterations = summed_product(order[i]) ? grid_sum_iterations(order[i]) : 0;
        most = iterations > most ? iterations : most;
    }
    if (most <= 0)
        return 0;
    struct grid_work work = {.blocks = __builtin_ceil(results / d->wave),
                             .threads = d->wave,
                             .issued = most * (1 + 2 * cost_grid_load(d))};
    return cost_of_grid(d, &work, NULL);
}

/* Counts the nests of a device's kernel that deserve a kernel of their own, and moves them to the
 * front of store[]. The longest sum of products and the rest follow. */
static int find_products(struct tgc *t, const struct kernel *k, struct uop **store)
{
    int all = k->ast->nsrc, n = 0, longest = 0;
    double *ns = scratch_array(t, (size_t)all, sizeof *ns);
    for (int i = 0; i < all; i++) {
        ns[i] = product_ns(t, k->ast->src[i]);
        longest = ns[i] > ns[longest] ? i : longest;
    }
    for (int alone = 1, at = 0; alone >= 0; alone--) {
        for (int i = 0; i < all; i++)
            if ((i != longest && ns[i] > RATIO_GRID_APART * RATIO_GRID_LAUNCH) == alone)
                store[at++] = k->ast->src[i];
        n = alone ? at : n;
    }
    return n;
}

/* Splits a kernel's nests: the first ones of store[], whose number is returned, become kernels; the
 * others stay together. */
static int part_nests(struct tgc *t, const struct schedule *s, struct kernel *k, struct uop **store)
{
    bool meet = nests_meet(t, k), may = !k->is_serial && !kernel_is_band(k);
    memcpy(store, k->ast->src, (size_t)k->ast->nsrc * sizeof(struct uop *));
    if (meet && may && threads_may_share(t, k, s))
        return k->ast->nsrc;
    k->is_serial |= meet;
    return may && !meet && device_has_grid(t) && k->ast->nsrc > 1 ? find_products(t, k, store) : 0;
}

bool pass_part(struct tgc *t, struct schedule *s)
{
    struct kernel **kernel = NULL;
    struct step *step = NULL;
    int nkernel = 0, nstep = 0;
    size_t cap_kernel = 0, cap_step = 0;
    for (int i = 0; i < s->nstep && s->threads > 1; i++) {
        struct step st = s->step[i];
        struct kernel *k = st.kernel;
        if (!k) {
            VEC_PUSH(t, step, nstep, cap_step, st);
            continue;
        }
        int all = k->ast->nsrc;
        struct uop **store = mem_array(t, (size_t)all, sizeof *store);
        int alone = part_nests(t, s, k, store);
        for (int at = 0, n = 1, number = 0; at < all; at += n, number++) {
            n = at < alone ? 1 : all - at;
            st.kernel = alone > 0 ? kernel_of_nests(t, k, &store[at], n, number) : k;
            st.kernel->index = nkernel;
            VEC_PUSH(t, kernel, nkernel, cap_kernel, st.kernel);
            VEC_PUSH(t, step, nstep, cap_step, st);
        }
    }
    if (s->threads > 1) {
        s->kernel = kernel, s->nkernel = nkernel;
        s->step = step, s->nstep = nstep;
    }
    return true;
}
