/* join_launches.c - on devices, joins consecutive small elementwise kernels of one form into one
 * launch.
 *
 *      copy_2   for h, e   k[h, e] = x[768 + 64*h + e]
 *      copy_3   for h, e   v[h, e] = x[1536 + 64*h + e]
 *   ->
 *      copy_2   for h, e   k[h, e] = x[768 + 64*h + e]
 *                          v[h, e] = x[1536 + 64*h + e]
 *
 * The kernels are independent: none accesses what another one stores. Their loops have equal sizes,
 * so one grid serves all stores. The time of such kernels is their launch. Larger kernels gain
 * little, and a joined kernel that waits for several inputs may start later.
 *
 * needs: ASTs before any schedule is chosen */
#include "passes/kernel/tile.h"
#include "passes/plan/plan.h"

enum { STORES_MOST = 8, BUFFERS_MOST = 16 };

/* Whether the kernel computes one value for each iteration of its loops, and few of them. */
static bool is_small(struct tgc *t, const struct kernel *k)
{
    int n;
    double iterations = 1;
    if (k->ast->nsrc != 1 || k->is_serial || k->by_blocks || kernel_reads_results(t, k))
        return false;
    struct uop *store = k->ast->src[0], **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE || order[i]->op == OP_STACK)
            return false;
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        if (!range_is(store->src[i], AXIS_LOOP) || range_fixed_size(store->src[i]) < 1)
            return false;
        iterations *= (double)range_fixed_size(store->src[i]);
    }
    return iterations <= (double)STORES_MOST * cost_full_threads(t->device);
}

static bool loops_agree(const struct uop *a, const struct uop *b)
{
    int first = store_first_range(a), other = store_first_range(b);
    bool agree = a->nsrc - first == b->nsrc - other;
    for (int i = 0; agree && first + i < a->nsrc; i++)
        agree = range_fixed_size(a->src[first + i]) == range_fixed_size(b->src[other + i]);
    return agree;
}

/* Whether b accesses nothing that a stores. */
static bool is_apart(const struct kernel *a, const struct kernel *b)
{
    for (int i = 0; i < a->noutput; i++)
        for (int j = 0; j < b->nbuffer; j++)
            if (buffer_root(a->buffer[i]) == buffer_root(b->buffer[j]))
                return false;
    return true;
}

static bool may_join(struct tgc *t, const struct kernel *a, const struct kernel *b)
{
    return a->ast->nsrc < STORES_MOST && a->nbuffer + b->nbuffer <= BUFFERS_MOST &&
           is_small(t, b) && loops_agree(a->ast->src[0], b->ast->src[0]) && is_apart(a, b) &&
           is_apart(b, a);
}

/* a gets b's store. */
static void join(struct tgc *t, struct kernel *a, const struct kernel *b)
{
    struct uop *store[STORES_MOST];
    const char *name = a->name;
    int n = a->ast->nsrc;
    for (int i = 0; i < n; i++)
        store[i] = a->ast->src[i];
    store[n] = b->ast->src[0];
    a->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, n + 1, (union arg){0});
    a->is_disjoint = false;
    kernel_describe(t, a);
    a->name = name;
}

bool pass_join_launches(struct tgc *t, struct schedule *s)
{
    struct kernel *last = NULL;                  /* of the step before, if others may join it */
    int nstep = 0, nkernel = 0;
    if (!device_has_grid(t) || t->image)
        return true;
    for (int i = 0; i < s->nstep; i++) {
        struct kernel *k = s->step[i].kernel;
        if (k && last && may_join(t, last, k)) {
            join(t, last, k);
            continue;
        }
        last = k && is_small(t, k) ? k : NULL;
        if (k) {
            k->index = nkernel;
            s->kernel[nkernel++] = k;
        }
        s->step[nstep++] = s->step[i];
    }
    s->nstep = nstep, s->nkernel = nkernel;
    return true;
}
