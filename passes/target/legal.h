/* legal.h - what bounds allow a language to write plainly; asked by the last pass, widths.c, which
 * writes the answers into the program. */
#ifndef TGC_LEGAL_H
#define TGC_LEGAL_H

#include "ir/ir.h"

/* Whether a machine's operator on signed integers of `bits` has the IR's meaning. There is no
 * overflow, division by 0, shift out of range or lossy cast. In a maximum or minimum the first
 * operand, or else the second, is no NaN. */
bool legal_is_plain(const struct uop *u, int bits);
/* Whether that depends on the operands. */
bool legal_is_conditional(const struct uop *u);
/* Whether the result, in unlimited integers, is within these bounds. */
bool legal_fits(const struct uop *u, int64_t least, int64_t most);
/* A maximum or minimum of vectors of floats. */
bool legal_is_extreme(const struct uop *u);
/* Whether a vector's elements are known not to be NaN. */
bool legal_is_number(const struct uop *u);
/* widths.c: an integer expression of the host's code, where symbols are i64, with every width and
 * mark as in programs after the last pass. */
struct uop *legal_scalar(struct tgc *t, struct uop *root);
/* legalize.c: the expression with the operations that every language has; narrow formats are
 * computed in f32 or i32, and rounded or wrapped after each operation. */
struct uop *legal_formats(struct tgc *t, struct uop *root);

#endif
