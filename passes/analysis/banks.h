/* banks.h - bank conflicts in shared memory. */
#ifndef TGC_BANKS_H
#define TGC_BANKS_H

#include "ir/device_ops.h"

/* Serialized accesses beyond the minimum when a subgroup loads a tile of the row's factor. The
 * tile's rows run along k or along the other coordinate, `stride` elements apart, the first at a
 * multiple of 128 bytes. by_rows: by an instruction that loads rows; else lane by lane. */
int banks_of_tile(const struct matrix_row *r, enum matrix_part part, bool along_k, int64_t stride,
                  bool by_rows);
/* Serialized accesses beyond the minimum when 32 lanes copy vectors of `nbytes` to rows of `row`
 * bytes, `stride` bytes apart. */
int banks_of_copy(int64_t row, int64_t stride, int64_t nbytes);

#endif
