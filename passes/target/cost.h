/* cost.h - what something takes on a machine, in nanoseconds of one core, and what fits which
 * cache: the one vocabulary of whatever chooses between two ways to compute the same. Numbers stand
 * in machines.def (facts) and cost.def (what is assumed of them).
 */
#ifndef TGC_COST_H
#define TGC_COST_H

#include "passes/target/target.h"

enum flop {
#define FLOP(name, share, text) FLOP_##name,
#include "passes/target/cost.def"
};
enum traffic {
#define TRAFFIC(name, level, share, text) TRAFFIC_##name,
#include "passes/target/cost.def"
};
enum fit {
#define FIT(name, level, share, text) FIT_##name,
#include "passes/target/cost.def"
};
#define RATIO(name, value, text) static const double RATIO_##name = value;
#include "passes/target/cost.def"

/* A multiplication and an addition are two. */
double cost_of_flop(const struct machine *m, enum flop of, double flop);
double cost_of_bytes(const struct machine *m, enum traffic of, double nbytes);
/* How long an operation takes, in order. */
enum cost_class { COST_STEP, COST_DIVISION, COST_FUNCTION };      /* exponential and the like */
enum cost_class cost_class_of(enum op op);
/* One element's operation in vectors, as a multiple of an addition's time; that of one in a loop */
double cost_in_additions(const struct machine *m, enum op op);
double cost_of_addition(const struct machine *m);
double cost_of_cycles(const struct machine *m, double cycles);
double cost_to_cycles(const struct machine *m, double ns);

/* A step of a tile's reduction: vectors of `lanes` that are multiplied and added, or computed
 * otherwise; vectors that are loaded, those of them that come from the L2. */
struct cost_step { double work, loads, panel; int64_t lanes; bool reduces; };
double cost_of_step(const struct machine *m, const struct cost_step *s);

/* Bytes of a cache that this may take. */
double cost_fit(const struct machine *m, enum fit of);
int64_t cost_fit_nelem(const struct machine *m, enum fit of);   /* the same in floats */
/* Bytes: places that lie a multiple of it apart share a few sets of the L1. */
int64_t cost_alias_nbytes(const struct machine *m);
/* Bytes of t's cache that what layers pass on is made to fit: --cache, or the machine's L2; 0:
 * whatever can be made to fit one is. */
double cost_cache_nbytes(const struct tgc *t);

#endif
