/* mask_tables.h - private to mask_tables.c, fold_constants.c and online_find.c: masks that are
 * made of places. */
#ifndef TGC_MASK_TABLES_H
#define TGC_MASK_TABLES_H

#include "ir/ir.h"

/* From this size on a mask stays a comparison of row and column, from which loop bounds follow, and
 * is not folded into a table. */
enum { PLACES_ROWS = 64, PLACES_COLUMNS = 96 };
/* Whether u, made of nothing but places, is as large as that. */
bool places_stay(const struct uop *u);
/* Whether some comparison of places is among what u is made of, above its sums. */
bool places_compares(struct tgc *t, struct uop *u);

#endif
