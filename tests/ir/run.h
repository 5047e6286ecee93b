/* run.h - a schedule on the interpreter, for tgtool. */
#ifndef TGC_TEST_RUN_H
#define TGC_TEST_RUN_H

#include "passes/passes.h"

/* The memory of a run: what each buffer holds. */
struct memory_of_run {
    struct tgc *t;
    const struct uop *leaf[512];
    struct tensor *value[512];
    int n;
    int64_t *var;
    int nvar;
    int threads;
};

/* Of the buffer's shape, at the symbols' values; what is new holds NaN or a number that is in no
 * test. */
struct tensor *run_value_of(struct memory_of_run *m, struct buffer *b);
/* All steps of a schedule; shared kernels part by part, in another order than their loops have.
 * false: a step cannot be run. needs: linear programs; of a kernel with a variant, it is run. */
bool run_schedule(struct memory_of_run *m, const struct schedule *s);

#endif
