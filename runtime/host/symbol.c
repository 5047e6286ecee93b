/* SPDX-License-Identifier: 0BSD */
/* symbol.c - what a run must find out before it can go on: values that become dimensions, and
 * conditions that the model takes for granted.
 *
 * A dimension is looked at before anything of that size is touched, so no run leaves its memory.
 */
#include <stdint.h>

enum {
    MODEL_OK,
    MODEL_DIM_OUT_OF_RANGE = 6,
    MODEL_TOO_MANY_RESULTS = 9,
    MODEL_BAD_VALUE = 10,
    MODEL_DIM_MISMATCH = 13
};

//@ require
/* What the model takes for granted, such as that an index lies inside its tensor. */
static int require(const uint8_t *ok) { return *ok ? MODEL_OK : MODEL_BAD_VALUE; }

//@ expect
/* The same, of what all later steps can work with, whatever it is: they read and store nothing
 * outside of tensors. */
static int expect(const uint8_t *ok) { return *ok ? MODEL_OK : MODEL_BAD_VALUE; }

//@ match_dims
/* Two sizes that the model needs equal. */
static int match_dims(int64_t a, int64_t b) { return a == b ? MODEL_OK : MODEL_DIM_MISMATCH; }

//@ read_dim
/* x[at] as a dimension or a position, which must be within its bounds. */
static int read_dim(const int64_t *x, int64_t at, int64_t lo, int64_t hi, int64_t *dim)
{
    if (x[at] < lo || x[at] > hi)
        return MODEL_DIM_OUT_OF_RANGE;
    *dim = x[at];
    return MODEL_OK;
}

//@ nonzero
/* The positions of what is true, in order, and their number. */
static int nonzero(const uint8_t *x, int64_t *positions, int64_t n, int64_t least, int64_t most,
                   int64_t *count)
{
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!x[i])
            continue;
        if (*count == most)
            return MODEL_TOO_MANY_RESULTS;
        positions[(*count)++] = i;
    }
    return *count < least ? MODEL_DIM_OUT_OF_RANGE : MODEL_OK;
}
