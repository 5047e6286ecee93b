/* cost.h - costs on a machine, in nanoseconds of one core, and what fits which cache, for every
 * choice between two ways of computing the same. The numbers are in machines.def (facts) and
 * cost.def (assumptions). */
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

/* A multiply-add counts as two flop. */
double cost_of_flop(const struct machine *m, enum flop of, double flop);
double cost_of_bytes(const struct machine *m, enum memory_level from, double nbytes);
/* Classes of operations by their time; a function is an exponential or the like. */
enum cost_class { COST_STEP, COST_DIVISION, COST_FUNCTION };
enum cost_class cost_class_of(enum op op);
/* Time of one element's operation in vectors, as a multiple of an addition's. cost_of_addition():
 * that of an addition in a scalar loop. */
double cost_in_additions(const struct machine *m, enum op op);
double cost_of_addition(const struct machine *m);
double cost_of_cycles(const struct machine *m, double cycles);
double cost_to_cycles(const struct machine *m, double ns);

/* Straight-line code, one iteration of a loop. work, loads, stores: vectors of the machine's width.
 * chain: latency, in cycles, of the dependence from one iteration to the next; 0: none. tile_rows:
 * rows of tiles that are multiplied. */
struct cost_body { double work, loads, stores, instructions, chain, tile_rows; };
double cost_of_body(const struct machine *m, const struct cost_body *b);           /* cycles */

/* One step of a tile's reduction. work: vectors that are multiplied and added, or otherwise
 * computed; loads: vectors loaded; panel: those of them from the L2; spilled: vectors spilled
 * between two sums, as a mean over their steps. */
struct cost_step { double work, loads, panel, spilled; int64_t lanes; bool reduces; };
double cost_of_step(const struct machine *m, const struct cost_step *s);

/* Bytes of a cache that this use may fill; the second function: in floats. */
double cost_fit(const struct machine *m, enum fit of);
int64_t cost_fit_nelem(const struct machine *m, enum fit of);
/* Addresses that differ by a multiple of this many bytes share a few sets of the L1. */
int64_t cost_alias_nbytes(const struct machine *m);
/* Threads that hide a device's memory latency if each waits for its own loads. */
double cost_full_threads(const struct device_row *d);

/* A kernel of a device with a grid, described by its blocks. This is the one model by which
 * schedules are chosen and kernels weighed. Blocks that stage operands in shared memory stall on
 * each step's copies, other threads on each load. */
struct grid_work {
    double blocks, threads;      /* blocks of the grid, and threads of each */
    double rounds;               /* time of all blocks on the units, in that of an average one;
                                  * 0: blocks are alike */
    double producers;            /* producer threads of a block */
    double handovers;            /* steps of a block whose copies are issued by its computing
                                  * threads, while matrix units idle */
    double issued;               /* issue slots of a thread, in multiply-adds: arithmetic, loads,
                                  * its share of copies, barriers */
    double powers;               /* 2^x by a unit of its own, per thread, in multiply-adds;
                                  * overlaps the issue of others */
    double groups;               /* groups of a block's subgroups that alternate between issue
                                  * and matrix products, each waiting for its own; 0: no such
                                  * waiting */
    double matrix_ns;            /* matrix instructions of one block, if all the device's units
                                  * shared them */
    bool apart;                  /* matrix units run beside those of the threads */
    double stored;               /* issue slots of a thread's epilogue, after its last step */
    bool persistent;             /* the next tile's copies overlap the epilogue */
    double steps;                /* steps of a block, each of which begins with copies; 0:
                                  * nothing is staged */
    int ahead;                   /* steps that copies are issued ahead (stages of the pipeline
                                  * less one) */
    int cluster;                 /* blocks of a cluster, which synchronize; 0, 1: no cluster */
    double local_nbytes;         /* shared memory of a block */
    double registers;            /* registers of a thread; 0: they do not limit occupancy */
    double cache_nbytes;         /* bytes that all blocks load and store, each block its own once */
    double received_nbytes;         /* bytes that blocks receive, where multicast delivers the same
                                  * to several; 0: cache_nbytes */
    double memory_nbytes;        /* traffic between memory and cache; 0: not counted */
};
/* What bounds a kernel's time. */
enum grid_limit {
#define LIMIT(name, text) LIMIT_##name,
#include "passes/target/cost.def"
};
const char *cost_limit_name(enum grid_limit of);
/* ns, without the launch. limit: NULL, or where the bound is returned. */
double cost_of_grid(const struct device_row *d, const struct grid_work *w, enum grid_limit *limit);
/* Parts of a kernel's estimated time, in ns, whose sum it is. OVERLAP is negative. */
enum grid_part {
#define PART(name, word, text) PART_##name,
#include "passes/target/cost.def"
    PART_COUNT
};
struct grid_parts { double ns[PART_COUNT]; };
const char *cost_part_name(enum grid_part of);
const char *cost_part_text(enum grid_part of);
/* The parts of cost_of_grid(). With LAUNCH; that time, or one that a chooser made of it, is
 * cost_close_parts()' `ns`, by which OVERLAP follows. */
struct grid_parts cost_parts_of_grid(const struct device_row *d, const struct grid_work *w);
void cost_close_parts(struct grid_parts *p, double ns);
double cost_sum_parts(const struct grid_parts *p);
/* Resident blocks of the device (its occupancy): what its units have room for, at most their share
 * of the grid. */
double cost_grid_at_once(const struct device_row *d, const struct grid_work *w);
/* ns that split-K adds after the partial sums are stored. `tiles` last-arriving blocks notice that
 * they are last, then load and add `parts` partial sums of `elements` each, at the rate at which
 * their units receive. */
double cost_grid_last(const struct device_row *d, double tiles, double threads, double elements,
                      double parts);
/* A thread's load of a word from memory or cache, and from shared memory, in multiply-adds. */
double cost_grid_load(const struct device_row *d);
double cost_grid_local(const struct device_row *d);
/* Groups of subgroups of a block of `threads`, each large enough to keep a unit busy. */
double cost_grid_groups(const struct device_row *d, double threads);
/* Cost of 2^x on the unit that computes it, in multiply-adds; issuing it takes one. */
double cost_grid_power(const struct device_row *d);
/* ns of one matrix instruction of this rate, if all the device's units shared it: arithmetic, or
 * reading its operands from shared memory, whichever is slower. */
double cost_of_matrix(const struct device_row *d, enum matrix_unit of, double gflops);
/* Bytes of t's cache that bands should fit: --cache, or the machine's L2; 0: bands are made
 * wherever possible. */
double cost_cache_nbytes(const struct tgc *t);

#endif
