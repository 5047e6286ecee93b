/* summary.h - all that a compile decides, as text: for goldens of what is estimated and chosen. */
#ifndef TGC_TEST_SUMMARY_H
#define TGC_TEST_SUMMARY_H

#include "passes/passes.h"

struct summary_options { isa_set isa; int threads; };

/* Runs all passes on a graph from a reader. Prints the estimates, what the passes chose,
 * the places of buffers, and for each program the number of ops of each kind. false:
 * diagnostics were recorded. */
bool summary_print(struct text *out, struct tgc *t, struct graph *g,
                   const struct summary_options *o);

#endif
