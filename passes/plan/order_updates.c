/* order_updates.c - on a device, which loops over a scatter's updates threads may share.
 *
 *      for i < 4096 order          y[at[i], j] op= u[i, j]
 *        for j < 1024
 *
 * Each j has coordinates of its own, so threads share that loop. Each of them runs all i, in the
 * order of the updates.
 *
 * Updates of one coordinate are stored in their order, so one thread stores them. Threads may share
 * a loop whose iterations never store to one coordinate twice: the loop's counter, times a
 * constant, is a term of a coordinate, and no other loop changes that one. All others are loops of
 * the kind `order`, unless the indices are known, and no two updates have equal coordinates: then
 * threads share every loop.
 *
 * If these loops leave threads of the device idle, others share the coordinates:
 *
 *      for p < 64  for i < 4096 order     y[at[i]] op= u[i]  if at[i] % 64 = p
 *
 * All 64 threads go through all updates. Each stores to the coordinates that are its own, in the
 * order of the updates.
 *
 * So results are those of one thread, bit by bit, whatever the reduction is and however often an
 * index occurs. */
#include "passes/analysis/access.h"
#include "ir/oracle.h"
#include "passes/plan/plan.h"

enum { PLACES_MOST = 1 << 22, KNOWN_BUDGET = 1 << 26 };

/* Whether r, and no other loop of the store, changes this coordinate. */
static bool moves_alone(struct tgc *t, struct uop *at, const struct uop *store, const struct uop *r)
{
    int64_t stride;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        if (store->src[i] != r && uop_depends_on(t, at, store->src[i]))
            return false;
    return index_stride(t, at, r, &stride) && stride != 0;
}

static bool has_own_places(struct tgc *t, struct uop *const *at, int n, const struct uop *store,
                           const struct uop *r)
{
    for (int a = 0; a < n; a++)
        if (moves_alone(t, at[a], store, r))
            return true;
    return false;
}

/* The coordinate that the updates' axis a alone changes, if it changes no other one: all its
 * iterations are alike. -1: there is none. */
static int coordinate_of(struct tgc *t, const struct segment *s, struct uop *const *at,
                         const struct uop *store, int a)
{
    const struct uop *r = s->axis[a];
    int moved = 0, own = -1;
    for (int k = 0; k < s->dest->ndim && r->op == OP_RANGE; k++) {
        moved += uop_depends_on(t, at[k], r);
        own = moves_alone(t, at[k], store, r) ? k : own;
    }
    return moved == 1 ? own : -1;
}

/* Marks n coordinates as taken; false: another update has them. Those outside of the tensor do not
 * count. */
static bool mark_place(uint64_t *seen, const int64_t *size, union scalar *const *at, int n,
                       int64_t update)
{
    int64_t place = 0;
    for (int a = 0; a < n; a++) {
        if (at[a][update].i < 0 || at[a][update].i >= size[a])
            return true;
        place = place * size[a] + at[a][update].i;
    }
    bool first = !(seen[place / 64] >> place % 64 & 1);
    seen[place / 64] |= (uint64_t)1 << place % 64;
    return first;
}

/* The coordinates that distinguish updates, with their sizes; *n: the number of updates. An axis
 * whose iterations are alike counts once, without a coordinate. Returns the number of coordinates;
 * -1: they are unknown, or too many. */
static int find_places(struct tgc *t, const struct segment *s, struct uop *const *at,
                       const struct uop *store, union scalar **value, int64_t *size, int64_t *n)
{
    const struct uop *v = s->scatter, *updates = v->src[1];
    struct uop *begin[MAX_RANK], *part[MAX_RANK];
    struct eval_env env = {.budget = KNOWN_BUDGET};
    bool alike[MAX_RANK] = {false};
    int count = 0;
    *n = 1;
    for (int a = 0; a < updates->ndim; a++) {
        int64_t all;
        int own = coordinate_of(t, s, at, store, a);
        if (!uop_const_int(updates->dim[a], &all))
            return -1;
        if (own >= 0)
            alike[own] = true;
        part[a] = uop_int(t, own < 0 ? all : 1);
        begin[a] = uop_int(t, 0);
        *n = sat_mul(*n, part[a]->arg.i);
    }
    for (int a = 0; a < v->ndim && *n >= 1 && *n <= PLACES_MOST; a++) {
        if (alike[a])
            continue;
        value[count] = scratch_array(t, (size_t)*n, sizeof **value);
        if (!uop_const_int(v->dim[a], &size[count]) ||
            !eval_values(t, uop_shrink(t, v->src[2 + a], begin, part), *n, &env, value[count]))
            return -1;
        count++;
    }
    return *n >= 1 && *n <= PLACES_MOST ? count : -1;
}

/* Whether all indices are known, and no two updates have equal coordinates. */
static bool are_distinct(struct tgc *t, const struct segment *s, struct uop *const *at,
                         const struct uop *store)
{
    union scalar *value[MAX_RANK];
    int64_t n, places = 1, size[MAX_RANK];
    int count = find_places(t, s, at, store, value, size, &n);
    for (int a = 0; a < count; a++)
        places = sat_mul(places, size[a]);
    if (count < 0 || places > (int64_t)PLACES_MOST * 64)
        return false;
    uint64_t *seen = scratch_array(t, (size_t)(places / 64 + 1), sizeof *seen);
    for (int64_t i = 0; i < n; i++)
        if (!mark_place(seen, size, value, count, i))
            return false;
    return true;
}

/* Threads that share coordinates: a power of two that fills the device, together with the loops
 * that threads share anyway. */
static int64_t count_owners(struct tgc *t, const struct uop *store, double keys)
{
    double shared = 1, updates = 1;
    int64_t n = 1;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        *(range_is(store->src[i], AXIS_ORDER) ? &updates : &shared) *=
            (double)store->src[i]->src[0]->vmax;
    double most = cost_full_threads(t->device) / shared;
    most = keys < most ? keys : most;
    most = updates < most ? updates : most;
    while ((double)n * 2 <= most)
        n *= 2;
    return n;
}

/* The value with its loads under the condition: elsewhere the coordinate is another thread's, which
 * may be storing to it. */
static struct uop *load_where(struct tgc *t, struct uop *value, struct uop *is)
{
    struct uop_map by = {.t = t, .scratch = true}, below = {.t = t, .scratch = true};
    int n;
    struct uop **order = uop_toposort(t, &is, 1, &n);
    for (int i = 0; i < n; i++)
        map_set(&below, order[i], order[i]);
    order = uop_toposort(t, &value, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op != OP_LOAD || map_get(&below, u))
            continue;
        bool gated = u->nsrc > 2;
        struct uop *src[4] = {u->src[0], u->src[1], gated ? sym_and(t, u->src[2], is) : is,
                              gated ? u->src[3] : uop_consti(t, u->dtype, 0)};
        map_set(&by, u, uop_intern(t, OP_LOAD, u->dtype, src, 4, u->arg));
    }
    return uop_substitute_all(t, value, &by);
}

/* The store by threads that share coordinates. The data-dependent coordinates together select the
 * thread. */
static struct uop *share_places(struct tgc *t, const struct segment *s, struct uop *const *at,
                                struct uop *store)
{
    struct uop *src[MAX_RANGES + 8], *key = uop_int(t, 0);
    int first = store_first_range(store), n = 0;
    double keys = 1;
    for (int a = 0; a < s->dest->ndim; a++) {
        bool decided = false;
        for (int i = first; i < store->nsrc; i++)
            decided |=
                range_is(store->src[i], AXIS_ORDER) && uop_depends_on(t, at[a], store->src[i]);
        if (decided) {
            key = sym_add(t, sym_mul(t, key, s->dest->dim[a]), at[a]);
            keys *= (double)s->dest->dim[a]->vmax;
        }
    }
    int64_t owners = count_owners(t, store, keys);
    if (owners < 2 || store->nsrc >= MAX_RANGES || value_contains(t, store, OP_REDUCE, OP_STAGE))
        return store;
    struct uop *owner = uop_axis(t, uop_int(t, owners), AXIS_LOOP, WORKER_EACH);
    uop_name_axes(t, owner, "owner");
    struct uop *own = uop_binary(t, OP_AND, key, uop_int(t, owners - 1)),
               *is = uop_binary(t, OP_EQ, own, owner);
    for (; n < 3; n++)
        src[n] = store->src[n];
    src[2] = load_where(t, src[2], is);
    src[n++] = first == 4 ? sym_and(t, store->src[3], is) : is;
    src[n++] = owner;
    for (int i = first; i < store->nsrc; i++)
        src[n++] = store->src[i];
    return uop_intern(t, OP_STORE, store->dtype, src, n, store->arg);
}

struct uop *plan_order_updates(struct tgc *t, const struct segment *s, struct uop *const *at,
                               struct uop *store)
{
    struct mem_mark mark = scratch_mark(t);
    bool distinct = are_distinct(t, s, at, store);
    struct uop_map by = {.t = t, .scratch = true};
    for (int i = store_first_range(store); i < store->nsrc && !distinct; i++) {
        struct uop *r = store->src[i];
        if (has_own_places(t, at, s->dest->ndim, store, r))
            continue;
        struct uop *order = uop_intern(
            t, OP_RANGE, r->dtype, r->src, r->nsrc,
            (union arg){.i = ARG_PACK(RANGE, RANGE_ID(r->arg.i), AXIS_ORDER, WORKER_EACH)});
        if (uop_get_axes(t, r))
            uop_name_axes(t, order, uop_get_axes(t, r));
        map_set(&by, r, order);
    }
    struct uop *to[MAX_RANK], *now = uop_substitute_all(t, store, &by);
    for (int a = 0; a < s->dest->ndim; a++)
        to[a] = uop_substitute_all(t, at[a], &by);
    now = distinct ? now : share_places(t, s, to, now);
    uop_set_origin(t, now->src[2], s->scatter);      /* the kernel's title */
    scratch_release(t, mark);
    return now;
}
