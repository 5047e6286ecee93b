/* bounds.h - what a float can be, in kernels and in the graph. */
#ifndef TGC_BOUNDS_H
#define TGC_BOUNDS_H

#include "passes/passes.h"

/* A number of lo..hi. known: false, if it may be none, or infinite. */
struct bounds { double lo, hi; bool known; };

/* What has been found out already, for one memory: set t, the rest is zero. most: the largest of
 * some elements is known as they are, which it is not any more once it is an accumulator. */
struct bounds_memo { struct tgc *t; struct uop_map of; bool most; };

/* Of a float, a scalar's or a vector's; roundings are allowed for. */
struct bounds bounds_of(struct bounds_memo *m, const struct uop *u);
/* Whether it is known to be a whole number (or none). */
bool bounds_is_whole(const struct uop *u);

/* Of a tensor in the graph; *steps: how many uops may still be looked at. */
enum { WHOLE_STEPS = 40 };
/* Whether all its elements, of f32, are known to be whole numbers. */
bool value_is_whole(const struct uop *v, int *steps);
/* What |v|, a whole number, cannot exceed; INFINITY: not known. */
double value_magnitude(const struct uop *v, int *steps);

#endif
