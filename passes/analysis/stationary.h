/* stationary.h - what can be known of a value before any run. */
#ifndef TGC_STATIONARY_H
#define TGC_STATIONARY_H

#include "ir/ir.h"

enum standing {
    STREAMED,                    /* changes with each run, or iteration of a loop */
    STATIONARY,                  /* equal in all of them: may be packed once */
    KNOWN                        /* and its elements are known at compile time */
};

/* Of a value of the graph: KNOWN is a weight with data, or a constant; STATIONARY a value made of
 * these by casts, sums and products alone, as dequantization is, of a few ops' depth. */
enum standing value_standing(const struct uop *v);
/* At least STATIONARY. */
bool value_is_stationary(const struct uop *v);
/* The weight that v is, if its elements are known and row-major; else NULL. */
const struct buffer *known_buffer(const struct uop *v);
/* The known buffer of the value of which v is a view; NULL: there is none. */
const struct buffer *known_behind(const struct uop *v);
/* A KNOWN weight of f32 itself, not a view of one. */
bool is_known_f32(const struct uop *v);

/* Of memory, in a graph and in kernels: it never changes, and is not in the arena. */
bool buffer_is_stationary(const struct buffer *b);
/* Of a LOAD in a kernel. */
bool load_is_stationary(const struct uop *load);

#endif
