/* SPDX-License-Identifier: 0BSD */
/* find.c - the position of each element in a sorted list of keys, by bisection.
 *
 * All NaN are equal in this order, so NaN finds a NaN.
 */
#include <stdbool.h>
#include <stdint.h>

typedef float T;
static bool less_T(T a, T b) { return a < b; }

//@for f32:float f64:double i64:int64_t str:string_t
//@ find_T less_T
/* x[count] -> the position of each in keys[nkey], or nkey. */
static int find_T(const T *x, const T *keys, int64_t *at, int64_t count, int64_t nkey)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t lo = 0, hi = nkey;
        while (lo < hi) { /* keys below lo are less than x, those from hi on are not */
            int64_t middle = lo + (hi - lo) / 2;
            if (less_T(keys[middle], x[i]))
                lo = middle + 1;
            else
                hi = middle;
        }
        at[i] = lo < nkey && !less_T(x[i], keys[lo]) ? lo : nkey;
    }
    return 0;
}
