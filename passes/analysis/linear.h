/* linear.h - private to linear_order.c, linear_groups.c and linear_barriers.c. */
#ifndef TGC_LINEAR_H
#define TGC_LINEAR_H

#include "passes/passes.h"

/* How many loops a store shares with the one before, or with the one behind. */
int linear_count_bands(const struct uop *store);
/* How many stores from store[0] on share their first loops; *nshared: how many loops. */
int linear_find_group(struct tgc *t, struct uop *const *store, int n, int *nshared);

/* Local memory that stores have accessed since the last barrier; stored: not only read. */
struct passed_buffer { const struct buffer *buffer; bool stored; };
struct passed { struct passed_buffer *v; int n; size_t cap; };
/* Whether the stores read what was stored there, or store what was accessed. */
bool passed_meets(struct tgc *t, const struct passed *p, struct uop *const *store, int nstore);
void passed_note(struct tgc *t, struct passed *p, struct uop *const *store, int nstore);

#endif
