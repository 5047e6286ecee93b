/* order_sums.c - the order of a sum's loops: by falling stride of what they read, so that the
 * innermost loop reads contiguous elements.
 */
#include "passes/kernel/tile.h"

static bool depends_on_ranges(struct tgc *t, struct uop *offset, const struct uop *u)
{
    for (int k = 1; k < u->nsrc; k++)
        if (uop_depends_on(t, offset, u->src[k]))
            return true;
    return false;
}

/* The last range along which u reads a value that is no weight; NULL: none. */
static struct uop *find_values(struct tgc *t, struct uop *u)
{
    struct uop *values = NULL;
    int n;
    struct uop **order = nest_order(t, u->src[0], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && !load_is_stationary(order[i]) &&
            depends_on_ranges(t, order[i]->src[1], u))
            values = order[i];
    return values;
}

/* The order of a sum's ranges by stride, so that the innermost loop reads contiguous memory. false:
 * there is none. */
static bool find_order(struct tgc *t, struct uop *u, const struct uop **range)
{
    int64_t stride[MAX_RANK + 1] = {0};
    struct uop *values = u->nsrc <= MAX_RANK ? find_values(t, u) : NULL;
    if (!values)
        return false;
    for (int k = 1; k < u->nsrc; k++) {
        range[k] = u->src[k];
        if (u->src[k]->op != OP_RANGE ||
            !index_stride(t, values->src[1], u->src[k], &stride[k]) || stride[k] < 0)
            return false;
    }
    for (int k = 2; k < u->nsrc; k++)                    /* stable, by falling stride */
        for (int j = k; j > 1 && stride[j] > stride[j - 1]; j--) {
            const struct uop *r = range[j];
            int64_t s = stride[j];
            range[j] = range[j - 1], range[j - 1] = r;
            stride[j] = stride[j - 1], stride[j - 1] = s;
        }
    return true;
}

/* Orders the loops of a store's sums so; stage: its number, or -1: the store's own. */
void order_sums(struct tgc *t, struct kernel *k, struct variant *v, int at, int stage)
{
    struct uop *u;
    for (int number = 0; (u = store_sum(t, (v ? v->ast : k->ast)->src[at], stage, number));
         number++) {
        const struct uop *range[MAX_RANK + 1];
        if (u->op != OP_REDUCE || !find_order(t, u, range))
            continue;
        for (int to = 1; to < u->nsrc; to++) {
            int from = to;
            while (u->src[from] != range[to])
                from++;
            struct opt opt = {.op = OPT_ORDER, .store = at, .of = OF_SUM, .number = number,
                              .axis = from - 1, .to = to - 1};
            if (from == to)
                continue;
            if (!opt_apply(t, k, v, &opt, 1, NULL))
                break;                               /* a group keeps its position */
            u = store_sum(t, (v ? v->ast : k->ast)->src[at], -1, number);
        }
    }
}

bool pass_order_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        order_sums(t, k, NULL, i, -1);
    return true;
}
