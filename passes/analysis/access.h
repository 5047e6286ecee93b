/* access.h - where values are read and stored, as the loops around them see it: what depends on a
 * range, and by how much an offset grows with it. All of it is read off the expressions, which are
 * canonical sums of products (rules/fold_sum.c); nothing is built.
 */
#ifndef TGC_ACCESS_H
#define TGC_ACCESS_H

#include "ir/ir.h"

/* Whether r is u or among what u is made of, through loads, stages and reductions, and in the sizes
 * of ranges. Of a RANGE the answer is kept with each uop that is asked for or lies under one. */
bool uop_depends_on(struct tgc *t, struct uop *u, const struct uop *r);
/* By how much `offset`, an integer, grows where the range r does by 1: the sum of the coefficients
 * of r. 0 where it does not depend on r. false: that is no constant, for r stands under a division,
 * a remainder, a choice, a load, or beside a factor that varies. */
bool index_stride(struct tgc *t, struct uop *offset, const struct uop *r, int64_t *stride);

#endif
