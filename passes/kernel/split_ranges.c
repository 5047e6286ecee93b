/* split_ranges.c - divided ranges: i / 64 and i % 64 of one range become two ranges.
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
 * and channels in memory order, and so does the mean of groups of channels. */
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

/* Divides one range of the store, if any is divided; *cut: the remainder is store `rest`. */
static bool divide_one(struct tgc *t, struct kernel *k, int at, int rest, bool *cut)
{
    struct uop *store = k->ast->src[at];
    int first = store_first_range(store);
    for (int axis = 3; axis < store->nsrc && store->nsrc < 64; axis++) {
        const struct uop *r = store->src[axis];
        bool reduces;
        int64_t size;
        if (r->op != OP_RANGE || !uop_const_int(r->src[0], &size))
            continue;
        int64_t c = find_divisor(t, store, r, &reduces), left = c ? size % c : 0;
        if (c == 0 || size < 2 * c || (c < DIVISOR_MIN && !reduces))
            continue;
        struct opt opt[2] = {{.op = OPT_CUT, .store = at, .axis = axis - first, .n = size - left,
                              .from = size - left, .to = rest},
                             {.op = OPT_DIVIDE, .store = at, .axis = axis - first, .n = c}};
        *cut = left > 0;
        if (left ? opt_apply(t, k, NULL, opt, 2, NULL) : opt_apply(t, k, NULL, &opt[1], 1, NULL))
            return true;
    }
    return false;
}

int divide_ranges(struct tgc *t, struct kernel *k, int at)
{
    int n = 1;
    for (int i = 0; i < n;) {
        bool cut;
        if (n == PARTS_MAX || !divide_one(t, k, at + i, at + n, &cut))
            i++;
        else
            n += cut;
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

/* Divides one range of the sum, if any is divided. */
static bool divide_sum(struct tgc *t, struct kernel *k, struct variant *v, struct uop *u, int at,
                       int number)
{
    int64_t size;
    for (int axis = 0; axis + 1 < u->nsrc && u->nsrc <= MAX_RANK; axis++) {
        const struct uop *r = u->src[axis + 1];
        int64_t c = r->op == OP_RANGE ? find_sums_divisor(t, u, r) : 0;
        if (c == 0 || !uop_const_int(r->src[0], &size) || size % c || size < 2 * c)
            continue;
        struct opt opt = {.op = OPT_DIVIDE, .store = at, .of = OF_SUM, .number = number,
                          .axis = axis, .n = c};
        if (opt_apply(t, k, v, &opt, 1, NULL))
            return true;
    }
    return false;
}

void divide_sums(struct tgc *t, struct kernel *k, struct variant *v, int at, int stage)
{
    struct uop *u;
    for (int number = 0; (u = store_sum(t, (v ? v->ast : k->ast)->src[at], stage, number));) {
        bool group = u->nsrc > 1 && range_is(u->src[u->nsrc - 1], AXIS_GROUP);
        if (u->op != OP_REDUCE || group || !divide_sum(t, k, v, u, at, number))
            number++;
        else
            number = 0;
    }
}
