/* weight_budget.h - the bytes that rewrites may add to a network's weights: --weights-budget. */
#ifndef TGC_WEIGHT_BUDGET_H
#define TGC_WEIGHT_BUDGET_H

#include "passes/passes.h"

/* Bytes of the weights that the graph reads. */
double weights_nbytes(struct tgc *t, const struct graph *g);
/* The rest of the budget in bytes; HUGE_VAL: there is none. */
double weights_left(struct tgc *t, const struct graph *g);
/* Takes nbytes from the budget. */
void weights_spend(struct tgc *t, double nbytes);

#endif
