/* SPDX-License-Identifier: 0BSD */
/* tree.h - sums of vectors of one process in the order of ranks_sum(), so that they go on as its
 * ranks' do. */
#include "runtime/ranks/ranks.h"

//@ ranks_tree_interface ranks_interface
#ifndef RANKS_TREE_H
#define RANKS_TREE_H

/* A sum of vectors by a tree that is fixed by their number: ((0+1) + (2+3)) + ((4+5) + ...). The
 * caller fills level[ndone], calls ranks_tree_push(), and so on; it is done with
 * ranks_tree_end(), and level[0] is the sum.
 *
 *      pushed      level
 *      0           0
 *      0 1         0+1
 *      0 1 2       0+1  2
 *      0 1 2 3     (0+1)+(2+3) */
enum { RANKS_LEVELS = 32 };
struct ranks_tree {
    void *level[RANKS_LEVELS];
    size_t n32, n64; /* a vector: f64[n64], then f32[n32] */
    int ndone;       /* levels that are filled */
    int64_t npushed;
};
/* How many levels n pushes need. */
RANKS_API int ranks_tree_levels(int64_t n);
RANKS_API size_t ranks_tree_nbytes(const struct ranks_tree *t);
RANKS_API void ranks_tree_push(struct ranks_tree *t);
RANKS_API void ranks_tree_end(struct ranks_tree *t);

#endif
