/* SPDX-License-Identifier: 0BSD */
/* order.c - the order of floats that sorting uses: NaN is larger than every number. */
#include <stdbool.h>

typedef float T;

//@for f32:float f64:double
//@ less_T
/* NaN is larger than every number. */
static inline bool less_T(T a, T b) { return a < b || (b != b && a == a); }
