/* memory.h - private to memory.c, arena.c and overlap.c: places and their live ranges. */
#ifndef TGC_MEMORY_H
#define TGC_MEMORY_H

#include "ir/ir.h"

enum { ARENA_ALIGN = 64 };

struct span {
    int begin, end; /* steps, both inclusive */
};

/* A block of bytes with a live range. Two places may overlap in memory if they have no step in
 * common. */
struct slot {
    size_t nbytes;     /* 0: it needs no place */
    struct span *span; /* in order, not overlapping */
    int nspan;
    size_t offset; /* set by arena_pack(); a multiple of ARENA_ALIGN */
    /* Another place, index + 1, that this one may overlap although both are live in one step, if it
     * begins at most `ahead` bytes (a multiple of ARENA_ALIGN) behind that one's begin; 0: none.
     * backwards: if that one begins at most `ahead` bytes behind this one's begin. */
    int over;
    int64_t ahead;
    bool backwards;
};

struct kernel;

/* Gives every place an offset; *total is the size of the arena. false: it does not fit in size_t.
 * Deterministic. *work, if not NULL: the neighbours visited, which is what takes the time; packing
 * n places visits n * n of them at most, and improving the result no more than ARENA_WORK. */
enum { ARENA_WORK = 40000000 };
bool arena_pack(struct tgc *t, struct slot *place, int n, int nstep, size_t *total, double *work);
/* The lower bound of the arena: the largest sum of aligned sizes that are live in one step.
 * SIZE_MAX if that overflows. */
size_t arena_live_nbytes(struct tgc *t, const struct slot *place, int n, int nstep);
/* Adds to load[] the bytes that are live in each step; false on overflow. */
bool arena_loads(const struct slot *place, int n, size_t *load);
/* The bytes saved if a place overlaps the other one as far as it may. */
size_t arena_saves(const struct slot *under, const struct slot *over);
bool slots_conflict(const struct slot *a, const struct slot *b);

/* overlap.c: whether out, which the kernel stores, can overlap `in`, which it loads; *ahead: it may
 * begin at most so far behind the begin of `in`. backwards: if the kernel counts down, `in` may
 * begin at most so far behind the begin of out. */
bool overlap_find(struct tgc *t, const struct kernel *k, const struct buffer *out,
                  const struct buffer *in, bool backwards, int64_t *ahead);

#endif
