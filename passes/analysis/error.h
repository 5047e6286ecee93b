/* error.h - the error that rewrites with other roundings add to a network's outputs, and the budget
 * for it. */
#ifndef TGC_ERROR_H
#define TGC_ERROR_H

#include "passes/passes.h"

/* How errors of sums of products propagate to the outputs, in the present graph. gain[i] belongs to
 * sum[i], a REDUCE of a MUL. Assume that the errors of its results are independent, with a variance
 * of c^2 times the sum of the squares of the result's terms. Then the outputs' errors have the
 * variance c^2 gain[i], relative to the square of the largest output (summed over several outputs).
 * The network is run on a few pseudo-random pixels; nothing depends on the machine.
 *
 * false: out of memory; the gains are then those of a network that neither amplifies nor damps
 * errors. */
bool error_gains(struct tgc *t, const struct graph *g, struct uop *const *sum, int n,
                 double *gain);

/* --error in standard deviations: the largest deviation among many elements. */
extern const double ERROR_DEVIATIONS;
/* Takes a rewrite's variance, c^2 gain, from the budget of --error; false: it exceeds the budget,
 * and nothing was taken. */
bool error_spend(struct tgc *t, double variance);
/* The rest of the budget, as such a variance. */
double error_left(const struct tgc *t);
/* The error spent so far, in the unit of --error: a fraction of the largest output. */
double error_estimate(const struct tgc *t);

/* Half of the distance of neighbours at 1: what rounding to a float type adds at most,
 * relatively. */
double error_unit(enum dtype d);
/* The difference at the outputs of two programs of the graph if each rounds the factors of sums of
 * products by itself. It rounds them as the graph says, or as the device has them (halves in memory
 * or in instructions). One standard deviation, relative to the largest output; 0: nothing is
 * rounded. */
double error_of_rounding(struct tgc *t, const struct graph *g);

#endif
