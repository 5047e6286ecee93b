/* kernel_cost.h - estimates the time of one kernel of a program by the machine's description, to be
 * compared with measurements: the sum of what all choices cost.
 */
#ifndef TGC_KERNEL_COST_H
#define TGC_KERNEL_COST_H

#include "passes/passes.h"

/* ns of one thread on machine_of(t), for one run. `nbytes`: traffic from L2, L3 and memory. */
struct kernel_cost { double ns, compute_ns, nbytes[LEVEL_COUNT]; };

/* Of the kernel's widest program, at the dimensions' upper bounds. 0 for devices: the machines are
 * processors. needs: VECTORS, SIZES. Changes nothing. */
struct kernel_cost kernel_cost(struct tgc *t, const struct schedule *s, const struct kernel *k);

#endif
