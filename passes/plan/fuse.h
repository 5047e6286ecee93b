/* fuse.h - private to uses.c, kind.c, realize.c and fuse.c: the parts that fusion's decisions are
 * made of.
 */
#ifndef TGC_FUSE_H
#define TGC_FUSE_H

#include "passes/analysis/stationary.h"
#include "passes/plan/plan.h"

/* uses.c: ranges of a segment, and the uses of a node */

range_set plan_mask_all(struct plan *p, struct uop *const *index, int n);   /* of n expressions */
bool range_set_within(range_set a, range_set b);
double segment_extent(const struct segment *s, range_set m);      /* iterations of these ranges */
bool segment_is_full(const struct segment *s);                    /* there may be too many ranges */
/* A range, or 0 where the size is 1; inner: a reduction's or a stage's. */
struct uop *segment_new_range(struct plan *p, struct segment *s, struct uop *size, bool inner);
/* Whether the set can be a prefix of the loop order beside those that are; that it has to be. */
bool segment_accepts(const struct segment *s, range_set m);
void segment_add_prefix(struct segment *s, range_set m);
/* The ranges inside which a value that depends on `deps` is computed, when it is needed where
 * `open` are open. */
range_set segment_placed_in(const struct segment *s, range_set deps, range_set open);
/* The use of v in the segment at the coordinates, a new one or the one that is there. NULL: v is
 * read where it lies. */
struct use *plan_add_use(struct plan *p, struct uop *v, struct segment *s,
                         struct uop *const *index, range_set open);
/* Pushes uses to v's sources for one evaluation of v itself. u: NULL where v is its segment's
 * root. */
void plan_push_sources(struct plan *p, struct uop *v, struct segment *s, struct uop *const *index,
                       range_set open, struct use *u);

/* kind.c: what a value is */

bool value_is_leaf(const struct uop *v);                          /* it is read where it lies */
/* A reduction of products with more products than either factor has elements: matmul,
 * convolution. */
bool value_is_contraction(const struct uop *v);
/* m: a product. */
bool value_outgrows_factors(const struct uop *m);
bool value_contracts_weight(const struct uop *v);                 /* v: a sum of products */
/* c is the contraction that v is an epilogue of. Whether it has weights that differ along one of
 * the axes of v that are marked: a layer's columns, but not a row of constant queries. */
bool value_keeps_columns(struct plan *p, struct uop *v, const struct uop *c, const bool *kept);
/* A sum of products with a large weight, whether or not there are rows that share it. */
bool value_streams_weight(const struct machine *m, const struct uop *v);
/* Made of constants, iotas and symbols only: cheaper to compute again than to keep. */
bool value_is_index_like(const struct uop *v);
/* A bool made of these and of tables of places: where the rows of a mask begin and end. */
bool value_is_mask_of_places(const struct uop *v);
/* A weight in a wider type than it is stored in: to be small where it is read is what it is for, by
 * several kernels or within a loop, too. */
bool value_is_widened_weight(const struct uop *v);
/* Depends, within the same rows, on a reduction that is broadcast back over them: softmax's
 * normalization, layernorm. */
bool value_has_row_stat(struct plan *p, struct uop *v);
/* Whether an expensive step or a reduction is among what v is made of by elementwise steps and
 * movements (broadcasts, too) that nobody else needs. */
bool value_takes_long(struct plan *p, const struct uop *v);
/* The contraction that v is an epilogue of, or NULL. */
const struct uop *value_contraction(struct plan *p, const struct uop *v);
/* v is, or is an epilogue of, what joins several tensors by the place of an element. */
bool value_joins_parts(struct plan *p, const struct uop *v);

/* realize.c: where a value lies */

bool segment_is_plain(const struct segment *s); /* it fills a whole buffer alone */
bool node_has_one_segment(const struct node *n);                  /* that uses it */
/* v is computed in s */
void segment_note_contraction(struct plan *p, struct segment *s, const struct uop *v);
void plan_realize(struct plan *p, struct node *n);                /* in a buffer */
/* In scratch, for all uses: they are in one segment and agree on some coordinates that depend on
 * output ranges alone; the rest is computed once for those. false: that cannot be, or costs
 * more. */
bool plan_stage(struct plan *p, struct node *n);

#endif
