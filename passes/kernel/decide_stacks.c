/* decide_stacks.c - what becomes of a STACK in a kernel.
 *
 * If its index is one of the loops that store its elements, as in Winograd's transforms, that loop
 * is unrolled (tile_nest.c): each iteration has its own expression, and all share common
 * subexpressions. Any other STACK becomes a tree of decisions that halve the range of the index:
 *
 *      stack(i, a, b, c, d)   ->   i < 2 ? (i < 1 ? a : b) : (i < 3 ? c : d)
 */
#include "passes/kernel/tile.h"

enum { UNROLL_MAX = 64 };

/* A loop that is unrolled for u, if u is a STACK. */
static bool is_unrolled_for(const struct uop *u, const struct uop *r)
{
    int64_t size = range_fixed_size(r);
    return u->op == OP_STACK && u->src[0] == r && size > 1 && size <= UNROLL_MAX &&
           !range_is_lane(r) && !range_is(r, AXIS_BAND);
}

/* The loops that are unrolled, as bits of store->src; what is under a STAGE is another nest's. */
static uint64_t unrolled_axes(struct tgc *t, const struct uop *store)
{
    uint64_t axes = 0;
    int n;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int i = 0; i < n; i++)
        for (int k = 3; k < store->nsrc && k < 64 && order[i]->op == OP_STACK; k++)
            if (store->src[k]->op == OP_RANGE && is_unrolled_for(order[i], store->src[k]))
                axes |= (uint64_t)1 << k;
    return axes;
}

int stacks_axis(struct tgc *t, const struct uop *store)
{
    uint64_t axes = unrolled_axes(t, store);
    return axes ? __builtin_ctzll(axes) : -1;
}

static struct uop *decide(struct tgc *t, const struct uop *u, int lo, int hi)
{
    int mid = lo + (hi - lo) / 2;
    if (hi - lo == 1)
        return u->src[1 + lo];
    struct uop *low = decide(t, u, lo, mid), *high = decide(t, u, mid, hi);
    return uop_where(t, uop_binary(t, OP_LT, u->src[0], uop_int(t, mid)), low, high);
}

struct deciding { const struct uop *store; uint64_t unrolled; };

static struct uop *decide_one(struct tgc *t, void *ctx, struct uop *u)
{
    const struct deciding *d = ctx;
    for (int k = 3; u->op == OP_STACK && k < d->store->nsrc; k++)
        if ((d->unrolled >> k & 1) && u->src[0] == d->store->src[k])
            return NULL;
    return u->op == OP_STACK ? decide(t, u, 0, u->nsrc - 1) : NULL;
}

struct uop *stacks_decide(struct tgc *t, struct uop *store)
{
    struct mem_mark mark = scratch_mark(t);
    struct nest m;
    bool unrolls = !t->noopt && nest_find(t, store, &m) && !m.reduce;
    struct deciding d = {store, unrolls ? unrolled_axes(t, store) : 0};
    scratch_release(t, mark);
    struct uop *root[1] = {store};
    uop_rewrite(t, root, 1, decide_one, &d);
    return root[0];
}

/* Decides by a loop that no opt has unrolled; what lanes choose is left for expand.c. */
static struct uop *settle_one(struct tgc *t, void *ctx, struct uop *u)
{
    (void)ctx;
    return u->op == OP_STACK && !range_is_lane(u->src[0]) ? decide(t, u, 0, u->nsrc - 1) : NULL;
}

struct uop *stacks_settle(struct tgc *t, struct uop *ast)
{
    struct uop *root[1] = {ast};
    uop_rewrite(t, root, 1, settle_one, NULL);
    return root[0];
}

bool pass_decide_stacks(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return kernel_each_store(t, k, stacks_decide);
}
