/* bounds.h - bounds of floats, in kernels and in the graph. */
#ifndef TGC_BOUNDS_H
#define TGC_BOUNDS_H

#include "passes/passes.h"

/* A float in [lo, hi]. known: false if it may be NaN or infinite. */
struct bounds { double lo, hi; bool known; };

/* Memo of one query; set t, zero the rest. most: MAX and MIN reductions are bounded by their
 * operand, which no longer holds once they are accumulators. */
struct bounds_memo { struct tgc *t; struct uop_map of; bool most; };

/* Of a float scalar or vector, with a margin for roundings. */
struct bounds bounds_of(struct bounds_memo *m, const struct uop *u);
/* Whether it is proved to be an integer (or NaN). */
bool bounds_is_whole(const struct uop *u);

/* Of a tensor in the graph; *steps: how many uops may still be visited. */
enum { WHOLE_STEPS = 40 };
/* Whether all elements, of f32, are proved to be integers. */
bool value_is_whole(const struct uop *v, int *steps);
/* An upper bound of |v|, for an integer v; INFINITY: not known. */
double value_magnitude(const struct uop *v, int *steps);

#endif
