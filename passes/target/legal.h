/* legal.h - what bounds allow a language to write plainly; the same for every renderer. */
#ifndef TGC_LEGAL_H
#define TGC_LEGAL_H

#include "ir/ir.h"

/* Whether a machine's operator on signed integers of so many bits has the IR's meaning: no
 * overflow, no division by 0, no shift out of range. */
bool legal_is_plain(const struct uop *u, int bits);
/* Whether the result, in unlimited integers, is within these bounds. */
bool legal_fits(const struct uop *u, int64_t least, int64_t most);
/* min(max(x, ..), ..) with a result that fits in an u8, or is NaN. */
bool legal_is_in_u8(const struct uop *u);
/* Whether a vector's elements are known not to be NaN. */
bool legal_is_number(const struct uop *u);

#endif
