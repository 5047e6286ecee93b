/* banks.h - how often lanes want different words of one bank of local memory. */
#ifndef TGC_BANKS_H
#define TGC_BANKS_H

#include "ir/device_ops.h"

/* The turns that a wave's load of the row's factor takes beyond the least: a tile of rows along k
 * or along the other coordinate, `stride` elements apart, the first at a multiple of 128 bytes; by
 * an instruction that loads rows, or lane by lane. */
int banks_of_tile(const struct matrix_row *r, enum matrix_part part, bool along_k, int64_t stride,
                  bool by_rows);
/* The same of 32 lanes that copy neighbours of `nbytes` to rows of `row` bytes,
 * `stride` bytes apart. */
int banks_of_copy(int64_t row, int64_t stride, int64_t nbytes);

#endif
