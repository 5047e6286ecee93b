/* samples.h - which sample of a batch an element of a graph's tensor depends on. */
#ifndef TGC_SAMPLES_H
#define TGC_SAMPLES_H

#include "passes/passes.h"

struct samples;

/* NULL: the graph has no batch: no input has two rows, or rows of one input meet in some value. */
struct samples *samples_find(struct tgc *t, const struct graph *g);
/* The row of an input on which v's element at the coordinates at[] depends; *row NULL: on none.
 * false: not known. */
bool samples_row(struct samples *s, struct uop *v, struct uop *const *at, struct uop **row);

#endif
