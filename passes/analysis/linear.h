/* linear.h - private to linear_order.c and linear_groups.c. */
#ifndef TGC_LINEAR_H
#define TGC_LINEAR_H

#include "passes/passes.h"

/* How many loops a store shares with the one before, or with the one behind. */
int linear_count_bands(const struct uop *store);
/* How many stores from store[0] on share their first loops; *nshared: how many loops. */
int linear_find_group(struct tgc *t, struct uop *const *store, int n, int *nshared);

#endif
