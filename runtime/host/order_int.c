/* SPDX-License-Identifier: 0BSD */
/* order_int.c - the order of integers, under the name that sorting uses. */
#include <stdbool.h>
#include <stdint.h>

typedef int64_t T;

//@for i64:int64_t u64:uint64_t
//@ less_T
static inline bool less_T(T a, T b) { return a < b; }
