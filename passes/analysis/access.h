/* access.h - dependence on ranges, and strides of offsets along them. Both are read off the
 * expressions, which are canonical sums of products (rules/fold_sum.c); no uop is built.
 */
#ifndef TGC_ACCESS_H
#define TGC_ACCESS_H

#include "ir/ir.h"

/* Whether u is r or depends on it, through loads, stages and reductions, and through the sizes of
 * ranges. If r is a RANGE the answer is cached in all uops visited. */
bool uop_depends_on(struct tgc *t, struct uop *u, const struct uop *r);
/* The stride of the integer `offset` along the range r: the sum of r's coefficients, 0 if offset is
 * invariant. false: the stride is not constant, since r is under a division, a remainder, a choice
 * or a load, or has a varying factor. */
bool index_stride(struct tgc *t, struct uop *offset, const struct uop *r, int64_t *stride);
/* As index_stride(), for a stride that only the run may know: W + 2 along the rows of an image.
 * NULL: there is none. The one function here that builds uops. */
struct uop *index_slope(struct tgc *t, struct uop *offset, struct uop *r);
/* The step of the offset from the range's first iteration to its second, with all other ranges at
 * their first. A loop over flattened pixels, which divisions tell apart, has no stride, but this
 * gives an order. 0: unknown. */
int64_t index_first_step(struct tgc *t, struct uop *offset, const struct uop *r);
/* The largest number that is known to divide the integer `offset`, whatever its loops and the run's
 * sizes are; 0 for the constant 0, which all numbers do. */
int64_t index_divisor(struct tgc *t, const struct uop *offset);
/* Whether the buffer begins at a multiple of n elements in every run, as devices place it: all but
 * a thread's own variables, parts of states, and parts of tensors that begin elsewhere. */
bool buffer_is_aligned(struct tgc *t, const struct buffer *b, int64_t n);
/* Whether a LOAD with a condition is 0 where that fails. */
bool load_is_zero_elsewhere(const struct uop *load);
/* Index of a STORE's first range among its sources: after the condition, if there is one. */
int store_first_range(const struct uop *store);

#endif
