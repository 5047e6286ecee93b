/* online_order.c - the bands of attention by blocks of keys (online_softmax.c), and the order in
 * which a device runs its blocks.
 *
 *      for head < 64, tile < 22              the last head's long blocks start last: units idle
 *      for q < 4, tile < 22, head < 16       the longest blocks start first;
 *                                            keys and values of 16 heads stay in the cache
 *
 * A device starts blocks along the grid's innermost dimension first. If a mask hides more keys from
 * some tiles of queries than from others, the last blocks should be short (longest processing time
 * first: Graham, Bounds on multiprocessing timing anomalies, 1969), and concurrent blocks should
 * read the same keys and values. */
#include "passes/analysis/nest.h"
#include "passes/kernel/online_softmax.h"

static bool is_head(struct online *x, struct uop *r)
{
    return r != x->row && uop_depends_on(x->t, x->scores, r);
}

/* Bytes of a head's keys and values. */
static int64_t head_nbytes(struct online *x, const struct online_shape *shape)
{
    int64_t columns = 1,
            size = (int64_t)dtype_nbytes(shape->tiles ? shape->tiles->factor : DTYPE_F32);
    for (int k = 3; k < x->store->nsrc; k++)
        if (x->store->src[k] != x->row && !is_head(x, x->store->src[k]))
            columns = sat_mul(columns, x->store->src[k]->src[0]->vmax);
    return sat_mul(sat_mul(x->nkey->vmax, size), sat_add(x->dot->src[1]->src[0]->vmax, columns));
}

/* How many heads of the innermost loop over them go inside the loop over tiles; 0: none, or all
 * tiles take the same time. */
static int64_t heads_inside(struct online *x, const struct online_shape *shape)
{
    struct visible v;
    struct uop *last = NULL;
    int64_t nheads = 0;
    if (!shape->whole || !device_has_grid(x->t))
        return 0;
    visible_find(x->t, x->scores->src[0], x->key, x->dot, &v);
    if (v.is_finite || !v.end || !uop_depends_on(x->t, v.end, x->row))
        return 0;
    for (int k = 3; k < x->store->nsrc; k++)
        if (is_head(x, x->store->src[k]))
            last = x->store->src[k], nheads++;
    int64_t n = last ? range_fixed_size(last) : 0, nbytes = head_nbytes(x, shape), some = n;
    while (some > 1 && (n % some || sat_mul(some, nbytes) > x->t->device->cache_nbytes / 2))
        some--;
    return some > 1 && (some == n || nheads == 1) ? some : 0;    /* a grid has three dimensions */
}

struct uop *online_open_bands(struct online *x, const struct online_shape *shape, bool *inside)
{
    struct tgc *t = x->t;
    struct uop *store = x->store, **src = scratch_array(t, (size_t)store->nsrc + 1, sizeof *src);
    struct uop_map by = {.t = t, .scratch = true};
    int64_t some = heads_inside(x, shape);
    int n = 3;
    for (int k = 3; k < store->nsrc; k++) {
        struct uop *r = store->src[k];
        if (!is_head(x, r))
            continue;
        bool divided = some > 0 && range_fixed_size(r) > some;
        struct uop *head = online_band(x, divided ? uop_int(t, some) : r->src[0], r), *now = head;
        if (divided) {
            src[n] = online_band(x, uop_int(t, range_fixed_size(r) / some), r);
            now = sym_add(t, sym_muli(t, src[n++], some), head);
        }
        src[n++] = head;
        map_set(&by, r, now);
    }
    for (int k = 0; k < 3; k++)
        src[k] = uop_substitute_all(t, store->src[k], &by);
    for (int k = 3; k < store->nsrc; k++)
        if (!is_head(x, store->src[k]))
            src[n++] = store->src[k];
    *inside = some > 0;
    return uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
}
