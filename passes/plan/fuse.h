/* fuse.h - private to uses.c, kind.c, realize.c and fuse.c: the components of fusion's decisions.
 */
#ifndef TGC_FUSE_H
#define TGC_FUSE_H

#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"
#include "passes/plan/plan.h"

/* uses.c: ranges of a segment, and the uses of a node */

range_set plan_mask_all(struct plan *p, struct uop *const *index, int n);   /* of n expressions */
bool range_set_within(range_set a, range_set b);
double segment_extent(const struct segment *s, range_set m);      /* iterations of these ranges */
bool segment_is_full(const struct segment *s);                    /* no more ranges can be added */
/* A range, or 0 where the size is 1; inner: of a reduction or a stage. */
struct uop *segment_new_range(struct plan *p, struct segment *s, struct uop *size, bool inner);
/* Whether the set can be a prefix of the loop order along with the present ones; the next function
 * requires it to be one. */
bool segment_accepts(const struct segment *s, range_set m);
void segment_add_prefix(struct segment *s, range_set m);
/* The ranges inside which a value that depends on `deps` is computed, if it is needed where `open`
 * are open. */
range_set segment_placed_in(const struct segment *s, range_set deps, range_set open);
/* The use of v in the segment at the coordinates, new or existing. NULL: v is a leaf, read from its
 * memory. */
struct use *plan_add_use(struct plan *p, struct uop *v, struct segment *s,
                         struct uop *const *index, range_set open);
/* Whether one of the node's uses is in the segment. */
bool plan_is_used_in(const struct node *n, const struct segment *s);
/* Pushes uses to v's sources for one evaluation of v itself. u: NULL where v is its segment's
 * root. */
void plan_push_sources(struct plan *p, struct uop *v, struct segment *s, struct uop *const *index,
                       range_set open, struct use *u);

/* kind.c: classification of values in the plan */

/* c is the contraction of which v is an epilogue. Whether its weights differ along a marked axis of
 * v: a layer's columns, but not a row of constant queries. */
bool value_keeps_columns(struct plan *p, struct uop *v, const struct uop *c, const bool *kept);
/* Depends, within its rows, on a reduction that is broadcast back over them: softmax's
 * normalization, layernorm. */
bool value_has_row_stat(struct plan *p, struct uop *v);
/* Whether there is an expensive op or a reduction below v, through elementwise ops and movements
 * (with broadcasts) that have no other consumer. */
bool value_takes_long(struct plan *p, const struct uop *v);
/* Whether v is, or is computed elementwise from, a statistic of a layer's columns: a reduction over
 * more than `rows` rows, along which the layer's weights do not change, as the mean of each
 * channel's pixels. There are COLUMNS_MIN of them along an axis. Not a softmax's: its rows are
 * worth a stage. */
bool value_has_column_stat(struct plan *p, const struct uop *v, double rows);
/* The contraction of which v is an epilogue, or NULL. */
const struct uop *value_contraction(struct plan *p, const struct uop *v);
/* Whether v is, or is an epilogue of, a value that selects among several tensors by coordinate. */
bool value_joins_parts(struct plan *p, const struct uop *v);

/* recompute.c: what a training's kernels compute again */

/* Whether each of the kernels that need the value computes it, so that it is not stored; marks what
 * is kept for that. needs: several segments use it, and plan_note_compared() */
bool plan_is_recomputed(struct plan *p, const struct node *n);

/* realize.c: buffers and stages */

bool segment_is_plain(const struct segment *s); /* it fills a whole buffer alone */
bool node_has_one_segment(const struct node *n);                  /* that uses it */
/* v is computed in s */
void segment_note_contraction(struct plan *p, struct segment *s, const struct uop *v);
void plan_realize(struct plan *p, struct node *n);                /* gives it a buffer */
/* Stages the value for all uses, which are in one segment and agree on some coordinates that depend
 * on output ranges alone; it is computed once for each of those. false: impossible, or more
 * expensive. */
bool plan_stage(struct plan *p, struct node *n);
/* Elements that a stage may have. */
double plan_most_staged(const struct tgc *t);

#endif
