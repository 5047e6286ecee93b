/* SPDX-License-Identifier: 0BSD */
/* tree.c - sums of vectors by a fixed tree, one vector after the other. */
#include "runtime/ranks/tree.h"

//@ ranks_tree ranks_tree_interface ranks_sum
RANKS_API int ranks_tree_levels(int64_t n)
{
    int k = 1;
    while (n > 1 && k < RANKS_LEVELS) {
        n /= 2;
        k++;
    }
    return k;
}

RANKS_API size_t ranks_tree_nbytes(const struct ranks_tree *t)
{
    return t->n64 * sizeof(double) + t->n32 * sizeof(float);
}

/* The last level is added to the one before. */
static void ranks_tree_merge(struct ranks_tree *t)
{
    char *to = (char *)t->level[t->ndone - 2];
    const char *from = (const char *)t->level[t->ndone - 1];
    const size_t wide = t->n64 * sizeof(double);
    ranks_add(to, from, t->n64, true);
    ranks_add(to + wide, from + wide, t->n32, false);
    t->ndone--;
}

RANKS_API void ranks_tree_push(struct ranks_tree *t)
{
    t->ndone++;
    for (int64_t k = t->npushed++; k & 1; k >>= 1)
        ranks_tree_merge(t);
}

RANKS_API void ranks_tree_end(struct ranks_tree *t)
{
    while (t->ndone > 1)
        ranks_tree_merge(t);
    t->ndone = 0;
    t->npushed = 0;
}
