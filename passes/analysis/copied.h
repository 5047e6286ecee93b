/* copied.h - copies to local memory of elements as they are (OP_COPY). */
#ifndef TGC_COPIED_H
#define TGC_COPIED_H

#include "passes/analysis/access.h"

/* The condition for the first of n turns of the range, if that holds for all of them or for none,
 * wherever they begin, at a multiple of n; NULL: it may not. */
struct uop *condition_of_first(struct tgc *t, struct uop *cond, const struct uop *r, int64_t n);
/* Neighbours, of a buffer from element `from` on, that go to those of local memory from `at` on. */
struct copied {
    struct uop *memory, *from, *at;
    struct uop *valid;           /* NULL: always; else where they are not zeros */
    int lanes;
    int64_t nbytes;              /* 4, 8 or 16 */
};
/* Of a value that is stored at element `at` of local memory, in these loops: a vector's lanes, or
 * the bytes of a group, are the neighbours. false: it is no such copy. */
bool copied_read(struct tgc *t, struct uop *value, struct uop *at, struct uop *const *range, int n,
                 struct copied *c);

#endif
