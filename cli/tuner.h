/* tuner.h - private to cmd_tune.c and round.c: what tgc tune measures. */
#ifndef TGC_TUNER_H
#define TGC_TUNER_H

#include "cli/cli.h"

enum { TITLE_NBYTES = 120, KERNELS_MAX = 64 };

/* One choice of a compile, and its time: of a nest's kernel on this machine, of all kernels of a
 * convolution. */
struct record {
    struct tuned taken;                  /* us: its time */
    struct tuned candidate[TUNE_WIDTH_MAX];
    int n, model;                        /* candidates; the model's */
    int kernel;                          /* not WINOGRAD: its index */
    char title[TITLE_NBYTES];            /* for a person, one line */
};

enum { MAKER_NBYTES = 64 };
struct round {
    struct record *record; int n; size_t cap;
    double us;                           /* of a run */
    bool is_here;                        /* code of this process ran, not a C compiler's */
    char maker[MAKER_NBYTES];            /* what made the code that ran, as instance->made_by */
};

/* Compiles m with these entries, in a process of its own, runs it as o says, and reports the
 * choices and their times. Without `timed` nothing is compiled or run. false: a diagnostic. needs:
 * m is loaded. */
bool round_run(struct tgc *t, const struct options *o, const struct model *m,
               const struct tuning *tuning, bool timed, struct round *r);

#endif
