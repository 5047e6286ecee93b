/* SPDX-License-Identifier: 0BSD */
/* topk.c - the k largest or smallest of each row, and where they stood; equal ones in order of
 * position.
 *
 * A heap of k positions over the row: n log k steps, no memory but the result. The root is the
 * worst of those kept; NaN counts as larger than every number.
 */
#include <stdbool.h>
#include <stdint.h>

typedef float T;
static bool less_T(T a, T b) { return a < b; }

//@for f32:float f64:double i64:int64_t u64:uint64_t
//@ topk_T less_T
/* Whether a (at position i) comes before b (at position j) in the order asked for. */
static bool topk_before_T(T a, int64_t i, T b, int64_t j, int64_t largest)
{
    bool less = less_T(a, b), more = less_T(b, a);
    return largest ? more || (!less && i < j) : less || (!more && i < j);
}

/* x[outer][n][inner] -> values and indices [outer][k][inner]. */
static int topk_T(const T *x, T *values, int64_t *indices, int64_t outer, int64_t n, int64_t inner,
                  int64_t k, int64_t largest, int64_t sorted)
{
    (void)sorted; /* sorted order is one of the orders allowed without it */
    for (int64_t row = 0; row < outer * inner; row++) {
        const T *v = x + row / inner * n * inner + row % inner;
        int64_t *at = indices + row / inner * k * inner + row % inner;
        int64_t count = 0;
        for (int64_t i = 0; i < n && k > 0; i++) {
            int64_t hole = count;
            if (count < k) { /* sift up */
                for (count++; hole > 0; hole = (hole - 1) / 2) {
                    int64_t parent = at[(hole - 1) / 2 * inner];
                    if (topk_before_T(v[i * inner], i, v[parent * inner], parent, largest))
                        break;
                    at[hole * inner] = parent;
                }
            } else { /* replace the worst, sift down */
                if (!topk_before_T(v[i * inner], i, v[at[0] * inner], at[0], largest))
                    continue;
                hole = 0;
                for (int64_t child; (child = 2 * hole + 1) < k; hole = child) {
                    if (child + 1 < k &&
                        topk_before_T(v[at[child * inner] * inner], at[child * inner],
                                      v[at[(child + 1) * inner] * inner], at[(child + 1) * inner],
                                      largest))
                        child++;
                    if (topk_before_T(v[at[child * inner] * inner], at[child * inner], v[i * inner],
                                      i, largest))
                        break;
                    at[hole * inner] = at[child * inner];
                }
            }
            at[hole * inner] = i;
        }
        for (int64_t end = count - 1; end > 0; end--) { /* take the worst off, again and again */
            int64_t moved = at[end * inner], hole = 0;
            at[end * inner] = at[0];
            for (int64_t child; (child = 2 * hole + 1) < end; hole = child) {
                if (child + 1 < end &&
                    topk_before_T(v[at[child * inner] * inner], at[child * inner],
                                  v[at[(child + 1) * inner] * inner], at[(child + 1) * inner],
                                  largest))
                    child++;
                if (topk_before_T(v[at[child * inner] * inner], at[child * inner], v[moved * inner],
                                  moved, largest))
                    break;
                at[hole * inner] = at[child * inner];
            }
            at[hole * inner] = moved;
        }
        T *best = values + row / inner * k * inner + row % inner;
        for (int64_t i = 0; i < count; i++)
            best[i * inner] = v[at[i * inner] * inner];
    }
    return 0;
}
