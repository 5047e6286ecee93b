/* panels.h - the layout of copies in shared memory that SWIZZLE has put in panels. */
#ifndef TGC_PANELS_H
#define TGC_PANELS_H

#include "ir/ir.h"

/* A copy has rows of `row` elements, `in_panel` of which are a row of a panel; a panel has `panel`
 * elements. row 0: the memory is not in panels. */
struct layout { int64_t row, in_panel, panel; };
struct layout buffer_layout(const struct buffer *b);
/* The position in panels, with chunks in order, of element `at` of the copy, row by row. */
struct uop *panels_in_order(struct tgc *t, const struct layout *l, struct uop *at);
/* The offset of that element, with its chunk swizzled. */
struct uop *panels_offset(struct tgc *t, const struct layout *l, struct uop *at);
/* The store of an AST, for a linear program: offsets in panels, but for tiles of matrix
 * instructions, which matrix_linear_ast() has put there. */
struct uop *panels_linear_store(struct tgc *t, struct uop *store);

#endif
