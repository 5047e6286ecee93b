/* SPDX-License-Identifier: 0BSD */
/* tree.c - ensembles of decision trees: each row goes through each tree.
 *
 * A node is six numbers: (test, feature, yes, no, a, b). The test compares x[feature] with the
 * node's value, or looks for it in the set [a, b). NaN goes to `yes` if bit 3 is set. For a leaf,
 * [a, b) are pairs (target, weight).
 *
 *      0 <= · 1 < · 2 >= · 3 > · 4 == · 5 != · 6 member · 7 leaf
 *
 * If all tests are among the first four, a node is smaller: a feature, the first of its two
 * adjacent children, and a threshold. The second child is taken if x[feature] is greater than that.
 * A leaf is its own child. Several rows walk one tree at once, or one row several trees, without
 * branches, until all are at leaves.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef float T;

//@for f32:float f64:double
//@ tree_test_T
static bool tree_test_T(T x, const int32_t *node, T value, const T *set)
{
    if (x != x && node[0] & 8)
        return true;
    switch (node[0] & 7) {
    case 0: return x <= value;
    case 1: return x < value;
    case 2: return x >= value;
    case 3: return x > value;
    case 4: return x == value;
    case 5: return x != value;
    default: break;
    }
    for (int32_t k = node[4]; k < node[5]; k++)
        if (set[k] == x)
            return true;
    return false;
}

//@ tree_leaf_T
static void tree_leaf_T(T *sum, int32_t from, int32_t to, const int32_t *target, const T *weight,
                        int64_t aggregate)
{
    for (int32_t k = from; k < to; k++) {
        T *s = sum + target[k], w = weight[k];
        *s = aggregate == 0 ? *s + w : (aggregate == 1 ? w < *s : w > *s) ? w : *s;
    }
}

//@ tree_ensemble_T tree_test_T tree_leaf_T
/* x[rows][features] -> y[rows][targets]. aggregate: 0 the sum of the leaves' weights, 1 the least,
 * 2 the greatest; 0 where no leaf names the target. */
static int tree_ensemble_T(const T *x, const int32_t *root, const int32_t *node, const T *value,
                           const T *set, const int32_t *target, const T *weight, T *y, int64_t rows,
                           int64_t features, int64_t trees, int64_t targets, int64_t aggregate)
{
    const T worst = aggregate == 0 ? 0 : aggregate == 1 ? (T)INFINITY : -(T)INFINITY;
    for (int64_t i = 0; i < rows; i++) {
        const T *row = x + i * features;
        T *sum = y + i * targets;
        for (int64_t k = 0; k < targets; k++)
            sum[k] = worst;
        for (int64_t t = 0; t < trees; t++) {
            const int32_t *at = node + 6 * (int64_t)root[t];
            while ((at[0] & 7) != 7) {
                bool yes = tree_test_T(row[at[1]], at, value[(at - node) / 6], set);
                at = node + 6 * (int64_t)at[yes ? 2 : 3];
            }
            tree_leaf_T(sum, at[4], at[5], target, weight, aggregate);
        }
        for (int64_t k = 0; k < targets && aggregate != 0; k++)
            sum[k] = sum[k] == worst ? 0 : sum[k];
    }
    return 0;
}

//@ tree_step_T
/* The next node; a node is four numbers (feature, first child, value in two). NaN goes to the
 * second child if the feature's sign bit is set. */
static inline int32_t tree_step_T(const T *row, const int32_t *node)
{
    T value, x = row[node[0] & INT32_MAX];
    memcpy(&value, node + 2, sizeof value);
    return node[1] + ((x > value) | ((x != x) & (node[0] < 0)));
}

//@ tree_four_T tree_step_T
/* The next nodes of four rows, which are `apart`; 0 if all are leaves. */
static inline int32_t tree_four_T(const T *row, int64_t apart, const int32_t *node, int32_t *at)
{
    const int32_t a = tree_step_T(row, node + 4 * (int64_t)at[0]);
    const int32_t b = tree_step_T(row + apart, node + 4 * (int64_t)at[1]);
    const int32_t c = tree_step_T(row + 2 * apart, node + 4 * (int64_t)at[2]);
    const int32_t d = tree_step_T(row + 3 * apart, node + 4 * (int64_t)at[3]);
    const int32_t moved = (a ^ at[0]) | (b ^ at[1]) | (c ^ at[2]) | (d ^ at[3]);
    at[0] = a, at[1] = b, at[2] = c, at[3] = d;
    return moved;
}

//@ tree_leaves_T tree_leaf_T
/* Adds the leaves that a row reached in `count` trees. */
static inline void tree_leaves_T(T *sum, const int32_t *at, int64_t count, const int32_t *first,
                                 const int32_t *target, const T *weight, int64_t targets,
                                 int64_t aggregate)
{
    if (targets > 1 || aggregate != 0) {
        for (int64_t k = 0; k < count; k++)
            tree_leaf_T(sum, first[at[k]], first[at[k] + 1], target, weight, aggregate);
        return;
    }
    T s = *sum;                                          /* in a register */
    for (int64_t k = 0; k < count; k++)
        for (int32_t l = first[at[k]]; l < first[at[k] + 1]; l++)
            s += weight[l];
    *sum = s;
}

//@ tree_rows_T tree_leaf_T tree_four_T
/* The first rows of tree_walk_T that make whole groups; returns their number. A group goes through
 * one tree after the other, in blocks of trees that stay in the cache for the next group. */
static int64_t tree_rows_T(const T *x, const int32_t *root, const int32_t *node,
                           const int32_t *first, const int32_t *target, const T *weight, T *y,
                           int64_t rows, int64_t features, int64_t trees, int64_t targets,
                           int64_t aggregate)
{
    enum { TOGETHER = 8, BLOCK = 128 };
    const int64_t whole = rows - rows % TOGETHER;
    for (int64_t from = 0; from < whole; from += BLOCK)
        for (int64_t t = 0; t < trees; t++)
            for (int64_t i = from; i < whole && i < from + BLOCK; i += TOGETHER) {
                const T *row = x + i * features;
                int32_t at[TOGETHER], moved = 1;
                for (int64_t k = 0; k < TOGETHER; k++)
                    at[k] = root[t];
                while (moved)
                    moved = tree_four_T(row, features, node, at) |
                            tree_four_T(row + 4 * features, features, node, at + 4);
                for (int64_t k = 0; k < TOGETHER; k++)
                    tree_leaf_T(y + (i + k) * targets, first[at[k]], first[at[k] + 1], target,
                                weight, aggregate);
            }
    return whole;
}

//@ tree_walk_T tree_leaves_T tree_four_T tree_rows_T
/* x[rows][features] -> y[rows][targets]; the leaves of node n are first[n] .. first[n + 1].
 * aggregate: as tree_ensemble_T. */
static int tree_walk_T(const T *x, const int32_t *root, const int32_t *node, const int32_t *first,
                       const int32_t *target, const T *weight, T *y, int64_t rows, int64_t features,
                       int64_t trees, int64_t targets, int64_t aggregate)
{
    enum { TOGETHER = 8 };
    const T worst = aggregate == 0 ? 0 : aggregate == 1 ? (T)INFINITY : -(T)INFINITY;
    for (int64_t k = 0; k < rows * targets; k++)
        y[k] = worst;
    for (int64_t i = tree_rows_T(x, root, node, first, target, weight, y, rows, features, trees,
                                 targets, aggregate);
         i < rows; i++)
        for (int64_t t = 0; t < trees; t += TOGETHER) {
            const int64_t count = trees - t < TOGETHER ? trees - t : TOGETHER;
            const T *row = x + i * features;
            int32_t at[TOGETHER], moved = 1;
            for (int64_t k = 0; k < TOGETHER; k++)
                at[k] = root[k < count ? t + k : t];
            while (moved)
                moved = tree_four_T(row, 0, node, at) | tree_four_T(row, 0, node, at + 4);
            tree_leaves_T(y + i * targets, at, count, first, target, weight, targets, aggregate);
        }
    for (int64_t k = 0; k < rows * targets && aggregate != 0; k++)
        y[k] = y[k] == worst ? 0 : y[k];
    return 0;
}
