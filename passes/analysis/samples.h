/* samples.h - which sample of a batch an element of a graph's tensor depends on. */
#ifndef TGC_SAMPLES_H
#define TGC_SAMPLES_H

#include "passes/passes.h"

struct samples;

/* NULL: the graph has no batch: no input has two rows, or rows of one input meet in some value. */
struct samples *samples_find(struct tgc *t, const struct graph *g);
/* Which row of an input the element of v at the coordinates at[] depends on; *row NULL: on none.
 * false: on some that are not known. */
bool samples_row(struct samples *s, struct uop *v, struct uop *const *at, struct uop **row);

#endif
