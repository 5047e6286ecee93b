/* turns.h - index arithmetic by its values: how many turns a loop takes, and how often a condition
 * holds, where blocks of a grid differ in that.
 */
#ifndef TGC_TURNS_H
#define TGC_TURNS_H

#include "ir/ir.h"

enum { COUNTERS_MAX = 8 };

/* Index arithmetic as it is computed of loops' counters; in scratch memory. */
struct index_code {
    struct uop *const *u; int n;             /* sources first; the last is the value */
    int (*src)[3];
    int64_t *value;
    const struct uop *counter[COUNTERS_MAX]; int place[COUNTERS_MAX], ncounter;
};
/* false: u is of more counters, or of memory or a run's sizes. */
bool index_read(struct tgc *t, struct uop *u, struct index_code *c);
/* What r's counter is from now on; nothing if u is not of it. */
void index_set(struct index_code *c, const struct uop *r, int64_t value);
/* The value with these counters; 0: the IR leaves it open. */
int64_t index_value(struct index_code *c);

/* The places of a grid, or some of them, evenly: its loops of n known sizes, the outermost
 * first. */
struct places { const struct uop *range[COUNTERS_MAX]; int n; };
/* What u is, on average over the places and, if `loop` is not NULL, over the loop's turns there, of
 * which there are as many as loop->src[0] is; a condition's share, so. false: it is not known. */
bool index_mean(struct tgc *t, struct uop *u, const struct places *p, const struct uop *loop,
                double *mean);

/* How long units take for n blocks, in the time of an average block: each begins the next block
 * when it has done one. ns: of a block by its number. 0: there are too many. source: Graham, Bounds
 * on multiprocessing timing anomalies, 1969. */
double blocks_rounds(const double *ns, int64_t n, int units);
/* The same of the blocks of a grid, whose times are as u, in the order of its places, the last
 * loop's first. 0: it is not known, or there are too many. */
double index_rounds(struct tgc *t, struct uop *u, const struct places *p, int units);
#endif
