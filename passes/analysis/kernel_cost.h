/* kernel_cost.h - how long one kernel of a program takes, by the machine's description: what all
 * choices about it come to in the end, to be held against what was measured.
 */
#ifndef TGC_KERNEL_COST_H
#define TGC_KERNEL_COST_H

#include "passes/passes.h"

/* ns of one thread on machine_of(t), once. `nbytes`: of L2, L3 and memory each, what comes from
 * there. */
struct kernel_cost { double ns, compute_ns, nbytes[LEVEL_COUNT]; };

/* Of the widest program that the kernel has; at the dimensions' upper bounds. 0 for devices: the
 * machines are processors.
 * needs: VECTORS, SIZES. Nothing is changed. */
struct kernel_cost kernel_cost(struct tgc *t, const struct schedule *s, const struct kernel *k);

#endif
