/* pipeline.h - private to pipeline.c and pipeline_bulk.c: a loop over steps whose copies have
 * several parts, and what both write of it. */
#ifndef TGC_PIPELINE_H
#define TGC_PIPELINE_H

#include "passes/analysis/box.h"
#include "passes/vector/expand.h"

enum { STEP_LOOPS = 8 };

/* A loop over steps in e->in: of `loop`, outermost first, the body from `begin` to `end`, the
 * copies up to `second`, the second barrier. It begins at `first`, or with the loop at `start`
 * around it, through which steps are counted, too: that is the first of `loop` then. */
struct steps {
    struct expander *e;
    struct uop *loop[STEP_LOOPS]; int nloop;
    int start, first, begin, end, second;
    struct uop *count;
    int parts; enum transfer how;
    int producers;               /* threads that only copy; 0: thread 0 does it, beside */
    int cluster;                 /* blocks that share copies; 1: each has its own */
    struct uop_map now;          /* of the program -> of the new one */
    struct uop *thread;          /* number in its block */
    struct of_step {
        struct uop *store, *acc, *at, *turn[STEP_LOOPS], *own[STEP_LOOPS], *thread;
        int nturn;
    } copy[STEP_LOOPS];
    int ncopy;
    struct kernel *kernel;
    struct uop *full, *empty;    /* in bulk: an mbarrier for each part of the ring: its bytes have
                                  * arrived; all waves have read it */
    struct box box[STEP_LOOPS];       /* by copy */
};

/* Elements of a part of the memory. */
int64_t steps_part(const struct uop *memory);
/* The number of the step: through all loops. */
struct uop *steps_number(const struct steps *s);
/* Maps the loops' variables to those of step number n. */
void steps_map(const struct steps *s, struct uop_map *by, struct uop *n);
/* Appends u of the program; coordinates and conditions may be known already, from a copy's. */
void steps_copy(struct expander *e, struct uop *u);
/* The same with operands as they are now; a load from a copy is of this step's part. */
void steps_write(struct steps *s, struct uop *u, struct uop *part);
/* Appends a statement that has no operands. */
void steps_push(struct expander *e, enum op op, int64_t bits);
/* What follows is done where the condition holds, until steps_close. */
struct uop *steps_open(struct expander *e, struct uop *condition);
void steps_close(struct expander *e, struct uop *guard);
/* pipeline_bulk.c: writes the steps of s, whose copies come in bulk. Of a band: its beginning, and
 * the end of a turn. */
void steps_in_bulk(struct steps *s);
/* Behind the loops whose copies blocks of a cluster share. needs: what
 * steps_in_bulk() has written. */
void steps_end_cluster(struct steps *s);
void bands_begin_in_bulk(struct steps *s);
void bands_end_in_bulk(struct steps *s);
/* The same where threads have roles (PRODUCER): what is before them, and all that
 * producers do, and, behind a guard that is returned, for the caller to close, consumers
 * begin; the consumers' steps. */
struct uop *steps_begin_roles(struct steps *s);
void steps_of_consumers(struct steps *s);
/* A barrier of all threads, where it is the consumers' alone. */
struct uop *steps_barrier(const struct steps *s, const struct uop *of_all);

#endif
