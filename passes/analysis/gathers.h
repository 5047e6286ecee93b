/* gathers.h - which order of axes suits a tensor that is read at places which are data. */
#ifndef TGC_GATHERS_H
#define TGC_GATHERS_H

#include "ir/ir.h"

/* Elements of a row that vectors of neighbours are worth. */
enum { GATHER_ROW_MIN = 8 };

/* How often a tensor is read at such places: elements, places, elements of what is made of them. */
struct gathered { double nread, nplace, nresult; };

/* Counts one more of several loads, all for the same results. */
void gather_count(struct gathered *g, double nread, double nplace, double nresult);
/* Nanoseconds that are saved where the axis which is not indexed lies innermost, in a tensor of nelem
 * elements that is stored anew for it, and with results that are stored in another order. */
double gather_gain(const struct tgc *t, const struct gathered *g, double nelem);

#endif
