/* grid_compare.h - private to grid*.c: records candidates for tgc info --why. All of it does
 * nothing unless a comparison is being recorded (compared.h). */
#ifndef TGC_GRID_COMPARE_H
#define TGC_GRID_COMPARE_H

#include "passes/target/compared.h"

struct wave_tile;
struct product;

/* A tile of a matrix instruction, with its ns as the chooser compares it. */
void compare_wave(const struct tgc *t, const struct wave_tile *w);
/* What became of it: it is the schedule, or its opts were refused. */
void compare_applied(const struct tgc *t, const struct wave_tile *w, bool done);
/* The rule by which no matrix instruction computes the product. */
void compare_no_matrix(struct tgc *t, const struct product *x);
/* Records the kernel's comparison, by a trial of each kind of schedule on copies of it. */
void grid_compare(struct tgc *t, const struct kernel *k);

#endif
