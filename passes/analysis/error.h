/* error.h - how much rewrites that round differently may add to a network's error, and what they
 * do add. */
#ifndef TGC_ERROR_H
#define TGC_ERROR_H

#include "passes/passes.h"

/* By how much the error of the outputs grows with that of some sums of products, the graph being
 * what it is now. gain[i] is about sum[i], a REDUCE of a MUL: if each of its results has an error
 * that is independent of all others and has c^2 times the sum of the squares of the result's terms
 * as variance, c^2 gain[i] is the variance of the outputs' errors, as a fraction of the square of
 * the largest output (of several outputs: the sum of these). The network is run on a few
 * pseudo-random pixels; nothing depends on the machine.
 * false: there is no memory for that, and the gains are such that an error is neither enlarged nor
 * reduced on its way. */
bool error_gains(struct tgc *t, const struct graph *g, struct uop *const *sum, int n,
                 double *gain);

/* The errors of which --error speaks are so many standard deviations: what the largest of many
 * elements has. */
extern const double ERROR_DEVIATIONS;
/* What a rewrite adds, c^2 gain, if there is room for it in what --error leaves; false: there is
 * none, and nothing was added. */
bool error_spend(struct tgc *t, double variance);
/* What is left, as such a variance. */
double error_left(const struct tgc *t);
/* What was spent, as --error counts it: of the largest output. */
double error_estimate(const struct tgc *t);

#endif
