/* index_values.h - index arithmetic by its values: iterations of a loop, and frequency of a
 * condition, where blocks of a grid differ. */
#ifndef TGC_TURNS_H
#define TGC_TURNS_H

#include "ir/ir.h"

enum { COUNTERS_MAX = 8 };

/* Index arithmetic ready to be evaluated for loop counters; in scratch memory. */
struct index_code {
    struct uop *const *u; int n;             /* sources first; the last is the value */
    int (*src)[3];
    int64_t *value;
    const struct uop *counter[COUNTERS_MAX]; int place[COUNTERS_MAX], ncounter;
};
/* false: u has too many counters, or depends on memory or a run's sizes. */
bool index_read(struct tgc *t, struct uop *u, struct index_code *c);
/* Sets the value of r's counter; no effect if u does not depend on it. */
void index_set(struct index_code *c, const struct uop *r, int64_t value);
/* The value for the present counters; 0: the IR leaves it undefined. */
int64_t index_value(struct index_code *c);

/* The loops of a grid, or some of them, of n known sizes, outermost first. */
struct places { const struct uop *range[COUNTERS_MAX]; int n; };
/* The mean of u over the grid and, if `loop` is not NULL, over its iterations there, loop->src[0]
 * of them. For a condition that is its frequency. false: unknown. */
bool index_mean(struct tgc *t, struct uop *u, const struct places *p, const struct uop *loop,
                double *mean);

/* Time of the units for n blocks, in that of an average block; each unit starts the next block when
 * it has finished one. ns: of a block by its number. 0: too many. source: Graham, Bounds on
 * multiprocessing timing anomalies, 1969. */
double blocks_rounds(const double *ns, int64_t n, int units);
/* blocks_rounds() for the blocks of a grid with times u, in the grid's order, the last loop
 * fastest. 0: unknown, or too many. */
double index_rounds(struct tgc *t, struct uop *u, const struct places *p, int units);
#endif
