/* gathers.h - which order of axes suits a tensor that is read at data-dependent indices. */
#ifndef TGC_GATHERS_H
#define TGC_GATHERS_H

#include "ir/ir.h"

/* The least contiguous elements of a row for which vectors along it pay. */
enum { GATHER_ROW_MIN = 8 };

/* Sizes of all gathers of a tensor: elements read, indices, elements of the results. */
struct gathered { double nread, nplace, nresult; };

/* Adds one of several loads with the same results. */
void gather_count(struct gathered *g, double nread, double nplace, double nresult);
/* Nanoseconds saved if the axes that are not indexed are innermost: a tensor of nelem elements is
 * stored in that order, and the results are transposed back. */
double gather_gain(const struct tgc *t, const struct gathered *g, double nelem);

#endif
