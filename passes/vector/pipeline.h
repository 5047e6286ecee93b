/* pipeline.h - private to pipeline.c, pipeline_bulk.c and bulk_epilogue.c: a loop of pipelined
 * steps, and what these files write of it. */
#ifndef TGC_PIPELINE_H
#define TGC_PIPELINE_H

#include "passes/analysis/box.h"
#include "passes/vector/expand.h"

enum { STEP_LOOPS = 8 };

/* A loop of steps in e->in. loop[]: its loops, outermost first. The body is begin..end, its copies
 * come before `second`, the second barrier. The loop begins at `first`. If steps are counted
 * through a loop around it (a tile loop), that begins at `start` and is loop[0]. */
struct steps {
    struct expander *e;
    struct uop *loop[STEP_LOOPS]; int nloop;
    int start, first, begin, end, second;
    struct uop *count;
    struct pipeline by;          /* of its copies; cluster: the largest, 1: none */
    struct uop_map now;          /* uops of the program -> their present form in the new one */
    struct uop *thread;          /* the thread's number in its block */
    struct of_step {
        struct uop *store, *acc, *at, *loop[STEP_LOOPS], *own[STEP_LOOPS], *thread;
        int nloop;
    } copy[STEP_LOOPS];
    int ncopy;
    struct kernel *kernel;
    struct uop *full, *empty;    /* bulk copies: an mbarrier for each stage: its bytes have
                                  * arrived; all subgroups have read it */
    struct box box[STEP_LOOPS];       /* by copy */
};

/* Elements of one stage of the memory. */
int64_t steps_stage_nelem(const struct uop *memory);
/* The number of the present step, counted through all loops. */
struct uop *steps_number(const struct steps *s);
/* Maps the loops' variables to those of step number n. */
void steps_map(const struct steps *s, struct uop_map *by, struct uop *n);
/* Appends u of the program; coordinates and conditions that a copy has computed are reused. */
void steps_copy(struct expander *e, struct uop *u);
/* Appends u with its operands' present forms; loads from a copy use stage `stage`. */
void steps_write(struct steps *s, struct uop *u, struct uop *stage);
/* Appends a statement that has no operands. */
void steps_push(struct expander *e, enum op op, int64_t bits);
/* Opens a guard: what follows runs where the condition holds, until steps_close(). */
struct uop *steps_open(struct expander *e, struct uop *condition);
void steps_close(struct expander *e, struct uop *guard);
/* pipeline_bulk.c. steps_in_bulk() writes the steps of s with bulk copies; the two functions for
 * bands write the beginning of a band and the end of its iteration. */
void steps_in_bulk(struct steps *s);
/* Writes what must follow the loops whose copies a cluster shares. needs: steps_in_bulk()
 * before. */
void steps_end_cluster(struct steps *s);
void bands_begin_in_bulk(struct steps *s);
void bands_end_in_bulk(struct steps *s);
/* Warp specialization (WARP_SPECIALIZE). steps_begin_roles() writes the producers' code and opens
 * the consumers' guard, which the caller closes; steps_of_consumers() writes their steps. */
struct uop *steps_begin_roles(struct steps *s);
void steps_of_consumers(struct steps *s);
/* The barrier `of_all`, for the consumers alone. */
struct uop *steps_barrier(const struct steps *s, const struct uop *of_all);

#endif
