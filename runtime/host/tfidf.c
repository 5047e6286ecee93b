/* SPDX-License-Identifier: 0BSD */
/* tfidf.c - how often each n-gram of a pool stands in each row.
 *
 * An n-gram's elements may be apart by up to `skip` others; single elements are counted once. The
 * pool is sorted by size, and those of one size by content, so that a row's n-grams are found by
 * bisection.
 */
#include <stdbool.h>
#include <stdint.h>

typedef float T;
static bool less_T(T a, T b) { return a < b; }

//@for i64:int64_t str:string_t
//@ gram_order_T less_T
/* -1, 0, 1: n elements at a, `stride` apart, against n elements at b */
static int gram_order_T(const T *a, int64_t stride, const T *b, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        if (less_T(a[k * stride], b[k]))
            return -1;
        if (less_T(b[k], a[k * stride]))
            return 1;
    }
    return 0;
}

//@ tfidf_T gram_order_T
/* x[rows][columns] -> y[rows][size], the counts. gram[i]: where in the pool the i-th n-gram begins;
 * place[i]: its column of y; first[n]: the first one of n + 1 elements. */
static int tfidf_T(const T *x, const T *pool, const int64_t *gram, const int64_t *place,
                   const int64_t *first, float *y, int64_t rows, int64_t columns, int64_t size,
                   int64_t shortest, int64_t longest, int64_t skip)
{
    for (int64_t i = 0; i < rows * size; i++)
        y[i] = 0;
    for (int64_t n = shortest; n <= longest; n++)
        for (int64_t stride = 1;
             stride == 1 || (n > 1 && stride - 1 <= skip && stride <= (columns - 1) / (n - 1));
             stride++)
            for (int64_t i = 0; i < rows * columns; i++) {
                if (i % columns + (n - 1) * stride >= columns)
                    continue;
                int64_t lo = first[n - 1], hi = first[n];
                while (lo < hi) {
                    int64_t middle = lo + (hi - lo) / 2;
                    if (gram_order_T(x + i, stride, pool + gram[middle], n) > 0)
                        lo = middle + 1;
                    else
                        hi = middle;
                }
                if (lo < first[n] && gram_order_T(x + i, stride, pool + gram[lo], n) == 0)
                    y[i / columns * size + place[lo]] += 1;
            }
    return 0;
}
