/* stationary.h - what can be known of a value before any run. */
#ifndef TGC_STATIONARY_H
#define TGC_STATIONARY_H

#include "ir/ir.h"

enum standing {
    STREAMED,                    /* another one in each run, or step of a loop */
    STATIONARY,                  /* the same in all of them: it may be packed once */
    KNOWN                        /* and its elements can be read now */
};

/* Of a value of the graph: KNOWN a weight with data or a constant, STATIONARY what is made of
 * these by casts, sums and products alone, as dequantization does, and looked at a few ops deep. */
enum standing value_standing(const struct uop *v);
/* At least STATIONARY. */
bool value_is_stationary(const struct uop *v);
/* The weight that v is, if its elements can be read now, in row-major order; NULL: it is none. */
const struct buffer *known_buffer(const struct uop *v);
/* The same of what v is a view of. */
const struct buffer *known_behind(const struct uop *v);
/* A KNOWN weight of f32; not looked for behind movement. */
bool is_known_f32(const struct uop *v);

/* Of memory, in a graph and in kernels: it never changes, nor lies in the arena. */
bool buffer_is_stationary(const struct buffer *b);
/* Of a LOAD in a kernel. */
bool load_is_stationary(const struct uop *load);

#endif
