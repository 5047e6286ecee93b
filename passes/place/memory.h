/* memory.h - private to passes/place/: places and their live ranges. */
#ifndef TGC_MEMORY_H
#define TGC_MEMORY_H

#include "ir/ir.h"

enum { ARENA_ALIGN = 64 };

/* *nbytes becomes what the buffer takes where it lies: with --image whole rows of one, and a
 * multiple of IMAGE_ALIGN, so that all begin at one. false: too many to count. */
bool place_nbytes(const struct tgc *t, const struct buffer *b, size_t *nbytes);

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
    /* Another place, index + 1, that this one may overlap although both are live in one step; 0:
     * none. This one may begin at most `ahead` bytes (a multiple of ARENA_ALIGN) after that one's
     * begin. backwards: that one may begin at most `ahead` bytes after this one's begin. */
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

/* ------------------------------------------------------------------------------- live_ranges.c */

struct access {
    int step;
    bool read, write;
};

struct region {
    bool loop;
    int begin, middle, end; /* steps of LOOP or IF, of ELSE (or the end), of ENDLOOP or ENDIF */
};

/* A buffer that is not a part of another one, together with its parts. */
struct tenant {
    struct buffer *buffer;
    struct access *access; /* by step */
    int naccess;
    size_t cap_access;
    bool has_parts;
    int place; /* index, -1: none */
    size_t copies;
};

struct memory {
    struct tgc *t;
    struct schedule *s;
    struct tenant *tenant; /* as s->buffer */
    int *tenant_of;        /* by buffer id: index + 1 */
    struct region *region; /* inner regions before outer ones */
    int nregion;
    size_t cap_region;
    uint64_t *entries;     /* of each step: the entries whose runs make it, a bit for each */
};

/* The tenant that b, or what it is a part of, is; NULL: it is none of the schedule's buffers. */
struct tenant *tenant_of(const struct memory *m, const struct buffer *b);
/* The accesses of all steps, and the regions. */
void memory_add_steps(struct memory *m);
/* The slot of a tenant that is accessed, or kept: its size and its live range. */
struct slot tenant_slot(struct memory *m, const struct tenant *n);

/* ------------------------------------------------------------------------------------- sizes.c */

/* b->nbytes, at the bounds of its dimensions. false, with an error: it is too large. */
bool buffer_set_size(struct tgc *t, struct buffer *b);

/* ----------------------------------------------------------------------------------- overlap.c */

/* Whether out, which the kernel stores, can overlap `in`, which it loads. *ahead: `out` may begin
 * at most this many bytes after the begin of `in`. backwards: the kernel counts down, and `in` may
 * begin at most this many bytes after the begin of `out`. */
bool overlap_find(struct tgc *t, const struct kernel *k, const struct buffer *out,
                  const struct buffer *in, bool backwards, int64_t *ahead);

#endif
