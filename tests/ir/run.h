/* run.h - a schedule on the interpreter, for tgtool; and what the unit tests run it by, too. */
#ifndef TGC_TEST_RUN_H
#define TGC_TEST_RUN_H

#include "passes/passes.h"
#include "ir/oracle.h"

/* The memory of a run: what each buffer holds. */
struct memory_of_run {
    struct tgc *t;
    const struct uop *leaf[512];
    struct tensor *value[512];
    int n;
    int64_t *var;
    int nvar;
};

/* Of the buffer's shape, at the symbols' values; what is new holds NaN or a number that is in no
 * test. */
struct tensor *run_value_of(struct memory_of_run *m, struct buffer *b);
/* Fills a tensor with NaN, or with an integer that no test has: nobody may need what is there. */
void spoil(struct tensor *x);
/* The step that ends the region of step i, or begins its other side. */
int region_end(const struct schedule *s, int i);
/* All steps of a schedule; shared kernels part by part, in another order than their loops have.
 * false: a step cannot be run. needs: linear programs; of a kernel with a variant, it is run. */
bool run_steps(struct memory_of_run *m, const struct schedule *s);

/* run_states.c: gives a state its place, or its two, with its first value; a place that grows has
 * the size of the upper bound. needs: places; the buffers of the state have no values yet. */
void run_place_state(struct memory_of_run *m, struct state *st, const struct tensor *first);
/* What the part of a state holds after a run: a tensor of the shape of `like`. */
struct tensor *run_stored(struct memory_of_run *m, const struct state_part *part,
                          const struct tensor *like);

#endif
