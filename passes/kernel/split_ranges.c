/* split_ranges.c - ranges that are divided: i / 64 and i % 64 of one range become two ranges.
 *
 *      for i < 1025                            for q < 16          i = 64*q + p
 *        y[i] = sum over k                       for p < 64
 *                 x[i % 64, k] * w[k, i / 64]      y[64*q + p] = sum over k  x[p, k] * w[k, q]
 *                                              y[1024] = sum over k  x[0, k] * w[k, 16]
 *
 * A transform in two steps (FFT), a reshape of a matrix product, or a shuffle is such a sum. Its
 * operands have no stride along i, so nothing can be tiled; along q and p they have one. The
 * remainder of the division is a store of its own. The tiler decides whether the parts of a range
 * are useful; a range is split only if that leaves no other division of its parts.
 *
 * The range of a sum is split, too: a matrix product over a flattened image then runs over its rows
 * and channels in memory order, and so does the mean of groups of channels.
 */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

enum { DIVISOR_MIN = 8 };

static bool is_division(const struct uop *u)
{
    return u->op == OP_FLOORDIV || u->op == OP_FLOORMOD || u->op == OP_DIV || u->op == OP_MOD;
}

/* The smallest constant by which r itself is divided; 0: none. */
static int64_t find_divisor(struct tgc *t, struct uop *store, const struct uop *r, bool *reduces)
{
    int n;
    int64_t least = 0, c;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    *reduces = false;
    for (int i = 0; i < n; i++) {
        *reduces |= order[i]->op == OP_REDUCE;
        if (is_division(order[i]) && order[i]->src[0] == r &&
            uop_const_int(order[i]->src[1], &c) && c > 1 && (least == 0 || c < least))
            least = c;
    }
    return least;
}

/* Whether an expression that contains r, and is not r, is divided. */
static bool is_divided_in_sums(struct tgc *t, struct uop *store, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (is_division(order[i]) && order[i]->dtype == DTYPE_INDEX && order[i]->src[0] != r &&
            uop_depends_on(t, order[i], r))
            return true;
    return false;
}

static void name_like(struct tgc *t, struct uop *u, const struct uop *from)
{
    if (uop_get_axes(t, from))
        uop_name_axes(t, u, uop_get_axes(t, from));
}

/* The store with its range `axis`, a multiple of c, split in two; NULL: divisions would remain. */
static struct uop *divide_exactly(struct tgc *t, struct uop *store, int axis, int64_t c)
{
    struct uop *r = store->src[axis], *src[80];
    struct uop *q = uop_range(t, uop_int(t, r->src[0]->arg.i / c), t->next_range++);
    struct uop *p = uop_range(t, uop_int(t, c), t->next_range++);
    struct uop *by = sym_add(t, sym_muli(t, q, c), p);
    int n = 0;
    name_like(t, q, r);
    name_like(t, p, r);
    for (int k = 0; k < store->nsrc; k++) {
        if (k != axis) {
            src[n++] = uop_substitute(t, store->src[k], r, by);
            continue;
        }
        src[n++] = q;
        src[n++] = p;
    }
    struct uop *divided = uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
    return is_divided_in_sums(t, divided, q) || is_divided_in_sums(t, divided, p) ? NULL : divided;
}

/* Splits one range of the store; *rest: the remainder, or NULL. NULL: there is none to split. */
static struct uop *divide_one(struct tgc *t, struct uop *store, struct uop **rest)
{
    for (int k = 3; k < store->nsrc && store->nsrc < 64; k++) {
        struct uop *r = store->src[k], *whole = store;
        bool reduces;
        int64_t size, c;
        *rest = NULL;
        /* other stores have the same band's range */
        if (r->op != OP_RANGE || range_is(r, AXIS_BAND) || !uop_const_int(r->src[0], &size))
            continue;
        c = find_divisor(t, store, r, &reduces);
        if (c == 0 || size < 2 * c || (c < DIVISOR_MIN && !reduces))
            continue;
        if (size % c)
            store_split(t, store, k, size - size % c, &whole, rest);
        whole = divide_exactly(t, whole, k, c);
        if (whole)
            return whole;
    }
    return NULL;
}

int divide_ranges(struct tgc *t, struct uop *store, struct uop **part)
{
    int n = 1;
    part[0] = store;
    for (int i = 0; i < n;) {
        struct uop *rest, *whole = n < PARTS_MAX ? divide_one(t, part[i], &rest) : NULL;
        if (!whole) {
            i++;
            continue;
        }
        part[i] = whole;
        if (rest)
            part[n++] = rest;
    }
    return n;
}

/* The smallest constant by which r is divided in the offset of a load below u; divisions in
 * weights' offsets (a scale for each block) count only if there are no others. 0: none. */
static int64_t find_sums_divisor(struct tgc *t, struct uop *u, const struct uop *r)
{
    int64_t least = 0, of_weights = 0;
    bool reduces;
    int n;
    struct uop **order = nest_order(t, u->src[0], &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_LOAD)
            continue;
        int64_t c = find_divisor(t, order[i]->src[1], r, &reduces);
        bool weight = load_is_stationary(order[i]);
        int64_t *to = weight ? &of_weights : &least;
        if (c && (*to == 0 || c < *to))
            *to = c;
    }
    return least ? least : of_weights;
}

/* u with one range split; NULL: there is none. */
static struct uop *divide_reduction(struct tgc *t, struct uop *u)
{
    int64_t size;
    for (int k = 1; k < u->nsrc && u->nsrc <= MAX_RANK; k++) {
        struct uop *r = u->src[k], *src[MAX_RANK + 2];
        int64_t c = r->op == OP_RANGE ? find_sums_divisor(t, u, r) : 0;
        int n = 0;
        if (c == 0 || !uop_const_int(r->src[0], &size) || size % c || size < 2 * c)
            continue;
        struct uop *q = uop_range(t, uop_int(t, size / c), t->next_range++);
        struct uop *p = uop_range(t, uop_int(t, c), t->next_range++);
        name_like(t, q, r);
        name_like(t, p, r);
        for (int i = 0; i < u->nsrc; i++) {
            if (i == k)
                src[n++] = q;
            src[n++] = i == 0   ? uop_substitute(t, u->src[0], r,
                                               sym_add(t, sym_muli(t, q, c), p))
                       : i == k ? p
                                : u->src[i];
        }
        if (is_divided_in_sums(t, src[0], q) || is_divided_in_sums(t, src[0], p))
            continue;
        struct uop *by = uop_intern(t, OP_REDUCE, u->dtype, src, n, u->arg);
        uop_set_origin(t, by, u);
        return by;
    }
    return NULL;
}

struct uop *divide_sums(struct tgc *t, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        bool group = order[i]->op == OP_REDUCE && order[i]->nsrc > 1 &&
                     order[i]->src[order[i]->nsrc - 1]->op == OP_RANGE &&
                     range_is(order[i]->src[order[i]->nsrc - 1], AXIS_GROUP);
        struct uop *by = order[i]->op == OP_REDUCE && !group ? divide_reduction(t, order[i]) : NULL;
        if (!by)
            continue;
        store = uop_substitute(t, store, order[i], by);
        order = uop_toposort(t, &store, 1, &n);
        i = -1;
    }
    return store;
}
