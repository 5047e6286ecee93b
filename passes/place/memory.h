/* memory.h - private to memory.c, arena.c and overlap.c: what needs a place, and when. */
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
    /* Another place, index + 1, that this one may overlap though both are alive in one step, if it
     * begins at most `ahead` bytes behind that one's begin, a multiple of ARENA_ALIGN; 0: none.
     * backwards: if that one begins at most `ahead` bytes behind this one's begin. */
    int over;
    int64_t ahead;
    bool backwards;
};

struct kernel;

/* Gives every place an offset; *total is the size of the arena. false: it does not fit in size_t.
 * Deterministic. *work, if not NULL: the neighbours that were looked at, which is what the time
 * goes into; a packing of n places takes n * n of them at most, and improving it no more than
 * ARENA_WORK. */
enum { ARENA_WORK = 40000000 };
bool arena_pack(struct tgc *t, struct slot *place, int n, int nstep, size_t *total, double *work);
/* The largest sum of aligned sizes that any step needs: no arena can be smaller. SIZE_MAX if that
 * overflows. */
size_t arena_live_nbytes(struct tgc *t, const struct slot *place, int n, int nstep);
/* Adds to load[] the bytes that are alive in each step; false on overflow. */
bool arena_loads(const struct slot *place, int n, size_t *load);
/* By how much a place and the one that it may overlap are smaller together than side by side. */
size_t arena_saves(const struct slot *under, const struct slot *over);
bool slots_conflict(const struct slot *a, const struct slot *b);

/* overlap.c: whether out, which the kernel stores, can lie in part over `in`, which it loads; from
 * how far behind the begin of `in` on downwards it may begin. backwards: if the kernel counts down,
 * how far behind the begin of out `in` may begin. */
bool overlap_find(struct tgc *t, const struct kernel *k, const struct buffer *out,
                  const struct buffer *in, bool backwards, int64_t *ahead);

#endif
