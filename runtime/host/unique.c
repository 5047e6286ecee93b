/* SPDX-License-Identifier: 0BSD */
/* unique.c - which rows differ: the first of each, how many there are of it, and which row is
 * which.
 *
 * Heapsort of the rows' numbers, equal rows by number; equal neighbours are one group. The caller
 * gives `order` as room for the numbers.
 */
#include <stdbool.h>
#include <stdint.h>

enum { MODEL_OK, MODEL_DIM_OUT_OF_RANGE = 6, MODEL_TOO_MANY_RESULTS = 9 };
typedef float T;
static bool less_T(T a, T b) { return a < b; }

//@for f32:float f64:double i64:int64_t u64:uint64_t str:string_t
//@ unique_T less_T
/* -1, 0, 1 */
static int compare_rows_T(const T *x, int64_t a, int64_t b, int64_t len)
{
    for (int64_t i = 0; i < len; i++) {
        if (less_T(x[a * len + i], x[b * len + i]))
            return -1;
        if (less_T(x[b * len + i], x[a * len + i]))
            return 1;
    }
    return 0;
}

static bool row_before_T(const T *x, int64_t a, int64_t b, int64_t len)
{
    int order = compare_rows_T(x, a, b, len);
    return order < 0 || (order == 0 && a < b);
}

/* Heapsort of order[n]. */
static void sort_rows_T(const T *x, int64_t *order, int64_t n, int64_t len)
{
    for (int64_t start = n / 2, end = n; end > 1;) {
        int64_t moved, hole;
        if (start > 0) {
            moved = order[hole = --start];
        } else {
            moved = order[--end];
            order[end] = order[0];
            hole = 0;
        }
        for (int64_t child; (child = 2 * hole + 1) < end; hole = child) {
            if (child + 1 < end && row_before_T(x, order[child], order[child + 1], len))
                child++;
            if (!row_before_T(x, moved, order[child], len))
                break;
            order[hole] = order[child];
        }
        order[hole] = moved;
    }
}

/* x[n][len] -> first [count], inverse [n], counts [count]; order [n] is room to work. */
static int unique_T(const T *x, int64_t *first, int64_t *inverse, int64_t *counts, int64_t *order,
                    int64_t n, int64_t len, int64_t sorted, int64_t least, int64_t most,
                    int64_t *count)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    sort_rows_T(x, order, n, len);
    *count = 0;
    for (int64_t i = 0, leader = 0; i < n; i++) { /* each row's leader: the first equal one */
        if (i == 0 || compare_rows_T(x, order[i - 1], order[i], len) != 0) {
            leader = order[i];
            if (*count == most)
                return MODEL_TOO_MANY_RESULTS;
            first[(*count)++] = leader;
        }
        inverse[order[i]] = leader;
    }
    if (*count < least)
        return MODEL_DIM_OUT_OF_RANGE;
    for (int64_t i = 0, next = 0; i < n && !sorted; i++)
        if (inverse[i] == i)
            first[next++] = i;
    for (int64_t i = 0; i < *count; i++) { /* a leader's number among the results */
        order[first[i]] = i;
        counts[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        inverse[i] = order[inverse[i]];
        counts[inverse[i]]++;
    }
    return MODEL_OK;
}
