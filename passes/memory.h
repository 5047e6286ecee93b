/* memory.h - private to memory.c and arena.c: what needs a place, and when. */
#ifndef TGC_MEMORY_H
#define TGC_MEMORY_H

#include "ir/ir.h"

enum { ARENA_ALIGN = 64 };

struct span {
    int begin, end; /* steps, both inclusive */
};

/* Bytes that are needed in some steps. Two places may overlap in memory if no step is in both. */
struct slot {
    size_t nbytes;     /* 0: no place at all */
    struct span *span; /* in order, not overlapping */
    int nspan;
    size_t offset; /* of arena_pack(); a multiple of ARENA_ALIGN */
};

/* Gives every place an offset; *total is the size of the arena. false: it does not fit in size_t.
 * Deterministic; time is bounded by n * n times a constant. */
bool arena_pack(struct tgc *t, struct slot *place, int n, int nstep, size_t *total);
/* The largest sum of aligned sizes that any step needs: no arena can be smaller. SIZE_MAX if that
 * overflows. */
size_t arena_live_nbytes(struct tgc *t, const struct slot *place, int n, int nstep);
bool slots_conflict(const struct slot *a, const struct slot *b);

#endif
