/* divide_sums.c - reduction ranges that an offset divides: k / 64 and k % 64 of one range become
 * two ranges.
 *
 * A matrix product over a flattened image then runs over its rows and channels in memory order, and
 * so does the mean of groups of channels.
 */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

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
        int64_t c = range_divisor(t, order[i]->src[1], r, &reduces);
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

bool pass_divide_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        divide_sums(t, k, NULL, i, -1);
    return true;
}
