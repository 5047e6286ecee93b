/* quantization.h - what the integers of inputs and outputs stand for. */
#ifndef TGC_QUANTIZATION_H
#define TGC_QUANTIZATION_H

#include "passes/passes.h"

/* Fills in `quantization` of the graph's inputs and outputs. needs: no pass has run. */
void quantization_find(struct tgc *t, struct graph *g);

#endif
