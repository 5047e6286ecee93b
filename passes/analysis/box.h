/* box.h - copies to local memory of boxes of tensors (OP_BULK). */
#ifndef TGC_BOX_H
#define TGC_BOX_H

#include "passes/analysis/access.h"
#include "ir/device_ops.h"

/* A box of the tensor that begins at element `first` of a buffer: axes innermost first, their
 * strides ascending. What is beyond a size is 0. */
struct box_axis { struct uop *coordinate; int64_t size, stride, extent; };
struct box {
    struct uop *memory;          /* the buffer */
    int64_t first;
    struct box_axis axis[BULK_RANK]; int rank;
    int64_t nelem, row;        /* elements of it; those of its innermost axis, which lie in a row */
};
/* Where element `at` of a copy of nelem elements lies in panels (opt SWIZZLE); its rows have n
 * elements of so many bytes. */
struct uop *panel_place(struct tgc *t, struct uop *at, int64_t n, int64_t nelem, int64_t nbytes);
/* Of a value that is stored at element `at` of local memory in these loops, outermost first: it is
 * what a buffer has in a box, at its place in the box, as it is or f32 rounded to tf32, or 0.
 * panel: the local memory's, as buffer.panel. false: it is no such box; *why says what the engine
 * does not copy. */
bool box_read(struct tgc *t, struct uop *value, struct uop *at, struct uop *const *loop, int nloop,
              int64_t panel, struct box *b, const char **why);

/* Of a store of what is in local memory, as it is: that is this memory. */
bool box_leaves(const struct uop *store, const struct uop *memory);
/* Whether the condition holds for a block's first thread alone, beside what else it says. */
bool box_is_of_first(struct uop *valid, const struct uop *item);
/* The box that such a store of the first thread, in these loops, leaves by; valid:
 * NULL, or its condition. */
bool box_read_leaving(struct tgc *t, const struct uop *store, struct uop *valid,
                      const struct uop *item, struct uop *const *loop, int nloop, struct box *b,
                      const char **why);

#endif
