/* merge_ranges.c - two adjacent loops become one wherever every access allows it. */
#include "passes/kernel/tile.h"

bool pass_merge_ranges(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        for (int axis = k->ast->src[i]->nsrc - store_first_range(k->ast->src[i]) - 2; axis >= 0;
             axis--) {
            struct opt merge = {.op = OPT_MERGE, .store = i, .axis = axis};
            (void)opt_apply(t, k, NULL, &merge, 1, NULL);    /* wherever it is legal */
        }
    return true;
}
