/* footprint.h - which part of a buffer several accesses cover together. Those whose places differ
 * by constants, as the unrolled taps of a window do, read mostly the same.
 */
#ifndef TGC_FOOTPRINT_H
#define TGC_FOOTPRINT_H

#include "ir/ir.h"

/* Accesses of a buffer whose offsets differ by constants. */
struct footprint_group { const struct buffer *b; const struct uop *begin; };
struct footprint {
    struct tgc *t;
    struct footprint_group *group; int n; size_t cap;     /* scratch memory */
};
/* The number of the access's group; *at: elements from the group's beginning to its own. */
int footprint_find(struct footprint *f, const struct buffer *b, const struct uop *offset,
                   int64_t *at);

/* Of a group, while some loops run: what all its accesses add up to, and the places from the first
 * to the last one. */
struct cover { double sum, span, low, high; };
/* An access of so many elements, which lie within `span` elements from `at` on. */
void cover_add(struct cover *c, double nelem, double span, int64_t at);
/* Elements that they cover, at most. */
double cover_nelem(const struct cover *c);

/* How many elements lie from the first to the last that is at `offset` while r takes n turns,
 * beside those of one turn; HUGE_VAL: that is not known. */
double footprint_span(struct tgc *t, struct uop *offset, const struct uop *r, double n);

#endif
