/* copied.h - copies to shared memory of unconverted elements (OP_COPY). */
#ifndef TGC_COPIED_H
#define TGC_COPIED_H

#include "passes/analysis/access.h"

/* The condition at the first of n iterations of the range, if it then holds for all n or for none,
 * from any multiple of n on; NULL: it may not. */
struct uop *condition_of_first(struct tgc *t, struct uop *cond, const struct uop *r, int64_t n);
/* A copy of contiguous elements, from element `from` of a buffer to element `at` of shared
 * memory. */
struct copied {
    struct uop *memory, *from, *at;
    struct uop *valid;           /* condition; NULL: always; elements are zeros where it fails */
    int lanes;
    int64_t nbytes;              /* 4, 8 or 16 */
};
/* Reads a value that is stored at element `at` of shared memory in these loops. A vector's lanes,
 * or the bytes of a group, must be contiguous. false: it is no such copy. */
bool copied_read(struct tgc *t, struct uop *value, struct uop *at, struct uop *const *range, int n,
                 struct copied *c);

#endif
