/* value.h - classification of values of tensors. */
#ifndef TGC_VALUE_H
#define TGC_VALUE_H

#include "passes/passes.h"

struct machine;

double dim_extent(const struct uop *dim);    /* upper bound of a dimension, as a double */
double value_nelem(const struct uop *v);     /* of the number of elements, likewise */

bool value_is_leaf(const struct uop *v);                          /* it is read from its memory */
/* A reduction of products with more products than either factor has elements: matmul,
 * convolution. */
bool value_is_contraction(const struct uop *v);
/* Whether the product m has more elements than its factors. */
bool value_outgrows_factors(const struct uop *m);
/* v: a sum of products; whether a factor is a weight */
bool value_contracts_weight(const struct uop *v);
/* A sum of products with a large weight, whether or not several rows share it. */
bool value_streams_weight(const struct machine *m, const struct uop *v);
/* Computed from constants, iotas and symbols only: cheaper to recompute than to store. */
bool value_is_index_like(const struct uop *v);
/* A bool computed from these and from tables of coordinates: where the rows of a mask begin and
 * end. */
bool value_is_mask_of_places(const struct uop *v);
/* A weight cast to a wider type than it is stored in: it stays narrow in memory, even if several
 * kernels or a loop read it. */
bool value_is_widened_weight(const struct uop *v);
/* Whether u is, or is computed from, a uop of one of the two ops. */
bool value_contains(struct tgc *t, struct uop *u, enum op a, enum op b);

#endif
