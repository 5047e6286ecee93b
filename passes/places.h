/* places.h - private to places.c, fold.c and online_find.c: masks that are made of places. */
#ifndef TGC_PLACES_H
#define TGC_PLACES_H

#include "ir/ir.h"

/* A mask of so many rows and columns is worth being compared: loops run over what it shows. */
enum { PLACES_ROWS = 64, PLACES_COLUMNS = 96 };
/* Whether u, made of nothing but places, is as large as that. */
bool places_stay(const struct uop *u);
/* Whether some comparison of places is among what u is made of, above its sums. */
bool places_compares(struct tgc *t, struct uop *u);

#endif
