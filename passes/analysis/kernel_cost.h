/* kernel_cost.h - estimates the time of one kernel of a program by the machine's description, to be
 * compared with measurements: the sum of what all choices cost.
 */
#ifndef TGC_KERNEL_COST_H
#define TGC_KERNEL_COST_H

#include "passes/passes.h"

/* ns of one thread on machine_of(t), for one run. `nbytes`: traffic from L2, L3 and memory. */
struct kernel_cost { double ns, compute_ns, nbytes[LEVEL_COUNT]; };

/* Of the kernel's widest program, at the dimensions' upper bounds. For devices the time alone, if they have a grid.
 * needs: VECTORS, SIZES. Changes nothing. */
struct kernel_cost kernel_cost(struct tgc *t, const struct schedule *s, const struct kernel *k);

/* device_cost.c: of a kernel of a device that has a grid, at the dimensions' upper bounds; 0 of others. threads: of its
 * grid; local_nbytes: of a block; asked: bytes that all threads load and store, from memory or a
 * cache, and from local memory. needs: LINEAR, SIZES. */
struct device_use { double threads, local_nbytes, asked, local_asked, ns; };
struct device_use device_use(struct tgc *t, const struct kernel *k);

#endif
