/* tree.c - ensembles of decision trees, each row through each tree.
 *
 * A node is six numbers: (test, feature, yes, no, a, b). The test compares x[feature] with the node's
 * value, or looks for it in the set [a, b); NaN goes to `yes` where bit 3 is set. The leaf's are
 * [a, b) of the pairs (target, weight).
 *
 *      0 <= · 1 < · 2 >= · 3 > · 4 == · 5 != · 6 member · 7 leaf
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

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

//@ tree_ensemble_T tree_test_T
/* x[rows][features] -> y[rows][targets]. aggregate: 0 the sum of the leaves' weights, 1 the least, 2
 * the greatest; 0 where no leaf names the target. */
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
            for (int32_t k = at[4]; k < at[5]; k++) {
                T *s = sum + target[k], w = weight[k];
                *s = aggregate == 0 ? *s + w : (aggregate == 1 ? w < *s : w > *s) ? w : *s;
            }
        }
        for (int64_t k = 0; k < targets && aggregate != 0; k++)
            sum[k] = sum[k] == worst ? 0 : sum[k];
    }
    return 0;
}
