/* box.h - copies of boxes of tensors to and from shared memory (OP_BULK). */
#ifndef TGC_BOX_H
#define TGC_BOX_H

#include "passes/analysis/access.h"
#include "ir/device_ops.h"

/* A box of the tensor that begins at element `first` of a buffer. Axes are innermost first, with
 * ascending strides. Elements beyond a size are 0. */
struct box_axis { struct uop *coordinate; int64_t size, stride, extent; };
struct box {
    struct uop *memory;          /* the buffer */
    int64_t first;
    struct box_axis axis[BULK_RANK]; int rank;
    int64_t nelem, row;        /* elements of the box; of a row of its innermost axis */
};
/* The shared memory of a box. is_linear: offsets are a linear program's, in panels (panels.h). */
struct box_to { const struct buffer *memory; bool is_linear; };
/* Whether these loops, outermost first, store to shared memory what a bulk copy (TMA) could: a box
 * of one buffer, in its order. `value` goes to element `at`. Elements are those of the buffer, or
 * f32 rounded to tf32, and 0 beyond the buffer's end. false: *why says what the copy engine cannot
 * do. */
bool box_read(struct tgc *t, struct uop *value, struct uop *at, struct uop *const *loop, int nloop,
              struct box_to to, struct box *b, const char **why);

/* Whether the store stores shared memory unchanged, namely `memory`. */
bool box_copies(const struct uop *store, const struct uop *memory);
/* Whether the condition holds for a block's first thread only, whatever else it says. */
bool box_is_of_first(struct uop *valid, const struct uop *item);
/* Reads such a store of the first thread, in these loops, as a box; valid: its condition, or
 * NULL. */
bool box_read_store(struct tgc *t, const struct uop *store, struct uop *valid,
                    const struct uop *item, struct uop *const *loop, int nloop, bool is_linear,
                    struct box *b, const char **why);

#endif
