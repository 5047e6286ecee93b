/* compared.h - what the choosers of a device's schedules compared, for tgc info --why.
 *
 * One comparison for each kernel, with the best candidate of each kind of schedules.def, those that
 * were refused, and the one chosen. It is recorded on a trial copy of the kernel
 * (kernel/grid_compare.c), between compare_begin() and compare_end(). Otherwise all functions here
 * do nothing, so a chooser calls them unconditionally. */
#ifndef TGC_COMPARED_H
#define TGC_COMPARED_H

#include "passes/target/tune.h"
#include "passes/target/cost.h"

enum schedule_kind {
#define SCHEDULE(name, text) SCHEDULE_##name,
#include "passes/target/schedules.def"
    SCHEDULE_COUNT
};
const char *schedule_name(enum schedule_kind kind);      /* "MATRIX_BULK" */
const char *schedule_text(enum schedule_kind kind);

/* ns: as the chooser compared it, with the launch; 0: it has no estimate, or is no candidate.
 * parts: of ns. text: the tile, its pipeline and so on; NULL: nothing more than the kind says. why:
 * the rule or opt that refused it; NULL: it is slower. made: the kernel by this schedule, to be
 * estimated by its program; NULL: not needed. */
struct candidate {
    double ns;
    struct grid_parts parts;
    const char *text, *why;
    struct kernel *made;
};
struct comparison {
    struct tgc *t;
    const struct kernel *kernel;
    struct candidate best[SCHEDULE_COUNT], refused[SCHEDULE_COUNT];
    int chosen;                  /* the kind; -1: none of them */
    const char *why;             /* the last refusal, by opt_apply() */
};

/* Starts the kernel's comparison; false: nobody asks. */
bool compare_begin(struct tgc *t, const struct kernel *k);
void compare_end(struct tgc *t);
/* The comparison that is being recorded; NULL: none is. */
static inline struct comparison *compared(const struct tgc *t)
{
    return t->tuning ? t->tuning->comparing : NULL;
}
/* Where to describe a candidate that is the best of its kind so far; NULL: it is not, or nothing is
 * recorded. ns: without the launch. */
struct candidate *compare_candidate(const struct tgc *t, enum schedule_kind kind, double ns);
/* Its parts are those of this work; BIAS is what its ns has beyond that. to: NULL: does nothing. */
void compare_work(const struct tgc *t, struct candidate *to, const struct grid_work *w);
/* Where to describe the candidate that has been applied. Keeps an estimate of this ns. */
struct candidate *compare_chosen(const struct tgc *t, enum schedule_kind kind, double ns);
/* Where to describe a candidate whose opts were refused, for the reason that opt_apply() gave;
 * NULL: a better one of its kind was refused before, or nothing is recorded. */
struct candidate *compare_refused(const struct tgc *t, enum schedule_kind kind, double ns);
/* Notes the rule by which there is no candidate of this kind; returns false. */
bool compare_refuse(const struct tgc *t, enum schedule_kind kind, const char *why);
/* As compare_refuse(), for the reason that opt_apply() gave last. */
bool compare_refuse_last(const struct tgc *t, enum schedule_kind kind);
/* Forgets the estimates of a kind. */
void compare_forget(const struct tgc *t, enum schedule_kind kind);
/* Notes what opt_apply() refused. opt: NULL if it was the list as a whole. */
void compare_note(const struct tgc *t, const struct opt *opt, const char *why);

#endif
