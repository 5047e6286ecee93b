/* cost.h - costs on a machine, in nanoseconds of one core, and what fits which cache, for every
 * choice between two ways of computing the same. The numbers are in machines.def (facts) and
 * cost.def (assumptions).
 */
#ifndef TGC_COST_H
#define TGC_COST_H

#include "passes/target/target.h"

enum flop {
#define FLOP(name, share, text) FLOP_##name,
#include "passes/target/cost.def"
};
enum fit {
#define FIT(name, level, share, text) FIT_##name,
#include "passes/target/cost.def"
};
#define RATIO(name, value, text) static const double RATIO_##name = value;
#include "passes/target/cost.def"

/* A multiply-add counts as two. */
double cost_of_flop(const struct machine *m, enum flop of, double flop);
double cost_of_bytes(const struct machine *m, enum memory_level from, double nbytes);
/* Classes of operations by their time. */
enum cost_class { COST_STEP, COST_DIVISION, COST_FUNCTION };      /* exponential and the like */
enum cost_class cost_class_of(enum op op);
/* The time of one element's operation in vectors, as a multiple of an addition's; that of an
 * operation in a scalar loop */
double cost_in_additions(const struct machine *m, enum op op);
double cost_of_addition(const struct machine *m);
double cost_of_cycles(const struct machine *m, double cycles);
double cost_to_cycles(const struct machine *m, double ns);

/* Straight-line code, one turn of a loop: operations, loads and stores, as vectors of the machine's
 * lanes; instructions; cycles until the next turn can add to a sum, 0: there is none; rows of tiles
 * that are multiplied. */
struct cost_body { double work, loads, stores, instructions, chain, tile_rows; };
double cost_of_body(const struct machine *m, const struct cost_body *b);           /* cycles */

/* One step of a tile's reduction: vectors of `lanes` that are multiplied and added, or otherwise
 * computed; vectors that are loaded; those of them that come from the L2; vectors that are stored
 * and loaded again between two sums, as a mean over their steps. */
struct cost_step { double work, loads, panel, spilled; int64_t lanes; bool reduces; };
double cost_of_step(const struct machine *m, const struct cost_step *s);

/* The bytes of a cache that this use may fill. */
double cost_fit(const struct machine *m, enum fit of);
int64_t cost_fit_nelem(const struct machine *m, enum fit of);   /* the same in floats */
/* Bytes: addresses that differ by a multiple of it share a few sets of the L1. */
int64_t cost_alias_nbytes(const struct machine *m);
/* Threads that keep a device with a grid busy, if each waits for what it loads. */
double cost_full_threads(const struct device_row *d);

/* A kernel of a device with a grid, by its blocks: the one model by which schedules are chosen and
 * kernels are weighed. Blocks that copy operands to local memory wait for each step's copies, other
 * threads for each load. */
struct grid_work {
    double blocks, threads;      /* places of the grid, and threads of each */
    double rounds;               /* what units take for their blocks, in the time of an average one;
                                  * 0: blocks are alike */
    double beside;               /* threads of a block that only copy */
    double handovers;            /* of a block: steps for which the other threads copy, and units
                                  * for matrices wait meanwhile */
    double issued;               /* by a thread, in multiply-adds: arithmetic, loads, its part of
                                  * copies, barriers */
    double powers;               /* 2^x by a device's own instruction, of a thread, in
                                  * multiply-adds: by a unit of its own, while others are issued */
    double groups;               /* of a block's waves, each of which waits for its products before
                                  * it goes on, and products for it; 0: no one waits */
    double matrix_ns;            /* instructions for matrices of one block, if all the device's
                                  * units shared them */
    bool apart;                  /* there are units for them beside those of the threads */
    double stored;               /* the same behind a thread's last step, where it stores what it
                                  * has computed */
    bool goes_on;                /* the block goes on with another place, whose copies
                                  * come while it stores */
    double steps;                /* of a block, each of which begins with copies; 0: nothing is
                                  * copied */
    int ahead;                   /* steps that copies are made early */
    int cluster;                 /* blocks that copy together, and wait for each other; 0, 1: each
                                  * copies for itself */
    double local_nbytes;         /* of a block */
    double registers;            /* of a thread; 0: no more than are there for all threads of a
                                  * unit */
    double cache_nbytes;         /* that all blocks load and store, each its own once */
    double taken_nbytes;         /* by all blocks, of which a cluster's take the same; 0: as many */
    double memory_nbytes;        /* between memory and cache; 0: not counted */
};
/* What a kernel's time is that of. */
enum grid_limit {
#define LIMIT(name, text) LIMIT_##name,
#include "passes/target/cost.def"
};
const char *cost_limit_name(enum grid_limit of);
/* ns, without the launch. limit: NULL, or which of them takes longest. */
double cost_of_grid(const struct device_row *d, const struct grid_work *w, enum grid_limit *limit);
/* Blocks that the device runs at once, as many as its units have room for, at most those that there
 * are for each unit. */
double cost_grid_at_once(const struct device_row *d, const struct grid_work *w);
/* ns that the last of blocks which had a part each of so many elements takes more, of
 * all such tiles: until it knows that it is, and to load and add the parts, as fast as
 * they come to its unit. */
double cost_grid_last(const struct device_row *d, double tiles, double threads, double elements,
                      double parts);
/* A thread's load of a word from memory or the cache, and from local memory, in multiply-adds. */
double cost_grid_load(const struct device_row *d);
double cost_grid_local(const struct device_row *d);
/* Groups of so many threads' waves that keep a unit busy by themselves. */
double cost_grid_groups(const struct device_row *d, double threads);
/* Its 2^x, for the unit that computes it, in multiply-adds; to issue it takes one. */
double cost_grid_power(const struct device_row *d);
/* ns of one instruction of matrix.def of this rate, if all the device's units shared it: what it
 * multiplies, or reads of local memory itself. */
double cost_of_matrix(const struct device_row *d, enum matrix_unit of, double gflops);
/* Bytes of t's cache that bands should fit: --cache, or the machine's L2; 0: bands are made
 * wherever possible. */
double cost_cache_nbytes(const struct tgc *t);

#endif
