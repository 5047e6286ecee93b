/* group_stages.c - sums of products of bytes that a kernel keeps in scratch become sums of groups,
 * as group_bytes.c makes them of a store's own.
 */
#include "passes/kernel/tile.h"

/* Sums of products of bytes that the kernel keeps in scratch become groups as well; their ranges
 * are divided and ordered for that alone. */
static void group_stages(struct tgc *t, struct kernel *k, int at)
{
    int n, number = -1;
    struct uop *store = k->ast->src[at], *values, *weights;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct nest m;
        number += order[i]->op == OP_STAGE;
        if (order[i]->op != OP_STAGE || !nest_find(t, stage_as_store(t, order[i]), &m) ||
            m.grouped || !nest_sums_bytes(&m, &values, &weights))
            continue;
        struct variant v = kernel_variant(t, k, isa_portable());
        struct opt group = {.op = OPT_GROUP, .store = at, .of = OF_STAGE, .number = number};
        divide_sums(t, k, &v, at, number);
        order_sums(t, k, &v, at, number);
        if (!opt_apply(t, k, &v, &group, 1, NULL))
            continue;
        k->ast = v.ast;
        k->opts = v.opts;
        store = k->ast->src[at];
        order = uop_toposort(t, &store, 1, &n);
        i = number = -1;
    }
}

bool pass_group_stages(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        group_stages(t, k, i);
    return true;
}
