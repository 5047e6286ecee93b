/* footprint.h - which part of a buffer several accesses cover together. Accesses whose offsets
 * differ by constants, as the unrolled taps of a window do, mostly overlap. */
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

/* What a group covers while some loops run: the sum of all its accesses, and the extent from the
 * first to the last. */
struct cover { double sum, span, low, high; };
/* Adds an access of nelem elements, within `span` elements from `at` on. */
void cover_add(struct cover *c, double nelem, double span, int64_t at);
/* Elements that they cover, at most. */
double cover_nelem(const struct cover *c);

/* Elements from the first to the last at `offset` over n iterations of r, beyond those of one
 * iteration; HUGE_VAL: unknown. */
double footprint_span(struct tgc *t, struct uop *offset, const struct uop *r, double n);

#endif
