/* drop_plain.c - variants without a vector equal the portable kernel, and are dropped. */
#include "passes/passes.h"

static bool has_vectors(const struct variant *v)
{
    for (int i = 0; i < v->nlinear; i++)
        if (v->linear[i]->op == OP_STORE ? v->linear[i]->src[2]->lanes > 1
                                         : v->linear[i]->lanes > 1)
            return true;
    return false;
}

bool pass_drop_plain(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int n = 0;
    (void)t;
    (void)s;
    for (int j = 0; j < k->nvariant; j++)
        if (has_vectors(&k->variant[j]))
            k->variant[n++] = k->variant[j];
    k->nvariant = n;
    return true;
}
