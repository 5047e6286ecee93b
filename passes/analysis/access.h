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
/* Where the ranges of a STORE begin among its sources: behind the condition, if it has one. */
int store_first_range(const struct uop *store);

#endif
