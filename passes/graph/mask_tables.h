/* mask_tables.h - private to mask_tables.c, fold_constants.c and online_find.c: masks computed from
 * coordinates. */
#ifndef TGC_MASK_TABLES_H
#define TGC_MASK_TABLES_H

#include "ir/ir.h"

/* From this size on a mask stays a comparison of row and column, which bounds loops, and is not
 * folded into a table. */
enum { PLACES_ROWS = 64, PLACES_COLUMNS = 96 };
/* Whether u is computed from coordinates alone and is as large as that. */
bool places_stay(const struct uop *u);
/* Whether there is a comparison of coordinates below u, above any sum. */
bool places_compares(struct tgc *t, struct uop *u);

#endif
