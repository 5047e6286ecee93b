/* divide_ranges.c - loops that are divided: i / 64 and i % 64 of one range become two ranges.
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
 */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

enum { DIVISOR_MIN = 8, PARTS_MAX = 6 };

static bool is_division(const struct uop *u)
{
    return u->op == OP_FLOORDIV || u->op == OP_FLOORMOD || u->op == OP_DIV || u->op == OP_MOD;
}

int64_t range_divisor(struct tgc *t, struct uop *store, const struct uop *r, bool *reduces)
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
        if (r->op != OP_RANGE)
            continue;
        int64_t c = range_divisor(t, store, r, &reduces), size = range_fixed_size(r);
        if (c == 0 || r->src[0]->vmax < 2 * c || (c < DIVISOR_MIN && !reduces))
            continue;
        struct uop *left = sym_mod(t, r->src[0], uop_int(t, c));
        struct opt opt[2] = {{.op = OPT_ROUND, .store = at, .axis = axis - first, .n = c,
                              .to = rest},
                             {.op = OPT_DIVIDE, .store = at, .axis = axis - first, .n = c}};
        if (size > 0) {
            opt[0].op = OPT_CUT;
            opt[0].n = opt[0].from = size - size % c;
        }
        *cut = !uop_is_int(left, 0);
        if (*cut ? opt_apply(t, k, NULL, opt, 2, NULL) : opt_apply(t, k, NULL, &opt[1], 1, NULL))
            return true;
    }
    return false;
}

/* Splits the loops of store number `at` that an offset divides, into up to PARTS_MAX stores;
 * returns their number. */
static int divide_ranges(struct tgc *t, struct kernel *k, int at)
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

bool pass_divide_ranges(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc;)
        i += divide_ranges(t, k, i);
    return true;
}
