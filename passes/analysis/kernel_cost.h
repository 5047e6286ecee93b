/* kernel_cost.h - estimates the time of one kernel of a program by the machine's description, to be
 * compared with measurements: the sum of what all choices cost.
 */
#ifndef TGC_KERNEL_COST_H
#define TGC_KERNEL_COST_H

#include "passes/passes.h"
#include "passes/target/cost.h"

/* ns of one thread on machine_of(t), for one run. `nbytes`: traffic from L2, L3 and memory. limit:
 * the level whose traffic takes longest; LEVEL_L1: no traffic does, but the arithmetic. */
struct kernel_cost { double ns, compute_ns, nbytes[LEVEL_COUNT]; enum memory_level limit; };
/* What limits the kernel, for people: "arithmetic", "L3", or of a device what device_use() says. */
const char *kernel_limit_name(struct tgc *t, const struct kernel *k, const struct kernel_cost *c);
/* The variant that the machine would run: the widest that its vectors hold, by tiles if it
 * multiplies them; NULL: the portable program. */
const struct variant *kernel_cost_variant(const struct machine *m, const struct kernel *k);

/* Of the kernel's widest program, at the dimensions' upper bounds. For devices with a grid the time
 * alone. needs: VECTORS, SIZES. Changes nothing. */
struct kernel_cost kernel_cost(struct tgc *t, const struct schedule *s, const struct kernel *k);

/* Whether u, of a linear program, is computed from loop counters and symbols: index arithmetic,
 * which the last pass may narrow to 32 bits. */
bool linear_is_index(const struct uop *u);

/* reads.c: the most bytes of buffer[number] that the kernel reads, by the iterations of its loads
 * (of a gathered table only the rows read); HUGE_VAL: it stores there, or copies. needs: LINEAR. */
double kernel_reads(struct tgc *t, const struct kernel *k, int number);

/* device_cost.c: a kernel's use of a device with a grid, at the dimensions' upper bounds; 0 for
 * other kernels. threads: of its grid. local_nbytes: shared memory of a block. asked: bytes that
 * all threads load and store, from memory or a cache; local_asked: from shared memory. cached:
 * bytes that blocks need from the cache, each block its own once. moved: traffic between memory and
 * cache, each element of a tensor once. limit: what bounds ns; parts: of ns. needs: LINEAR,
 * SIZES. */
struct device_use {
    double threads, local_nbytes, asked, local_asked, cached, moved, ns;
    struct grid_parts parts;
    enum grid_limit limit;
};
struct device_use device_use(struct tgc *t, const struct kernel *k);
/* passes/program_use.c: of a copy of one of the schedule's kernels with another grid, which becomes
 * a program. needs: AST, of k; all facts, of the schedule. false: diagnostics were recorded. */
bool program_use(struct tgc *t, const struct schedule *s, struct kernel *k, struct device_use *use);

/* Which steps a run may take, in scratch memory: of an entry of the graph; entry -1: of all
 * runs. */
bool *steps_of_entry(struct tgc *t, const struct schedule *s, int entry);

/* Work of an entry's run, or of all entries' together (-1), at the dimensions' upper bounds.
 * kernels: in its steps, those of a loop counted once. flop: those of a loop as often as it runs at
 * most, or once where only data say how often. needs: SCHEDULE. */
struct run_use { int kernels; double flop; };
struct run_use run_use(struct tgc *t, const struct schedule *s, int entry);

/* Use of a device by a run, at the dimensions' upper bounds. launches: kernels of the schedule's
 * steps, those of a loop counted once. moved: the bytes of each kernel's tensors. least: those of
 * the inputs, outputs and weights that kernels access, once (of a table, the elements gathered).
 * local_nbytes: the most of a block. asked: see device_use. ns: estimated, one kernel after the
 * other. needs: LINEAR, SIZES. */
struct device_run { int launches; double moved, least, asked, local_nbytes, ns; };
struct device_run device_run(struct tgc *t, const struct schedule *s, int entry);

/* Image use with --image. images: tensors that kernels read as images. buffers: tensors of floats
 * or halves that some kernel reads as a buffer. reads, gated: pixel reads of a run's kernels, and
 * those among them whose value a condition selects away. */
struct image_use { int images, buffers, reads, gated; };
struct image_use image_use(struct tgc *t, const struct schedule *s, int entry);

#endif
