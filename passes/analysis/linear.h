/* linear.h - private to linear_order.c, linear_values.c, linear_groups.c and linear_barriers.c. */
#ifndef TGC_LINEAR_H
#define TGC_LINEAR_H

#include "passes/passes.h"

/* Leading loops that a store shares with a neighbour before or after it. */
int linear_count_bands(const struct uop *store);
/* How many stores from store[0] on share their leading loops; *nshared: how many loops. */
int linear_find_group(struct tgc *t, struct uop *const *store, int n, int *nshared);

/* Shared memory that stores have accessed since the last barrier; stored: written, not only
 * read. */
struct passed_buffer { const struct buffer *buffer; bool stored; };
struct passed { struct passed_buffer *v; int n; size_t cap; };
/* Whether the stores read what was stored there, or store what was accessed. passed_note() adds
 * their accesses. */
bool passed_meets(struct tgc *t, const struct passed *p, struct uop *const *store, int nstore);
void passed_note(struct tgc *t, struct passed *p, struct uop *const *store, int nstore);

/* A linear program under construction: linear_order.c's loops, and the position of linear_values.c
 * in them. */
struct linear {
    struct tgc *t;
    struct uop **program; int nprogram; size_t cap;
    double flop;
    struct uop_map bit;          /* RANGE -> bit number + 1 */
    struct uop_map place;        /* uop -> index in order[] + 1 */
    struct uop_map made;         /* uop of the AST -> uop of the linear program, while in scope */
    struct uop **order; int n;   /* the AST of the stores that share loops, sources first */
    uint64_t *deps;              /* by index in order[]: ranges on which it depends */
    uint64_t *wait;              /* by index in order[]: ranges that must be open to compute it */
    uint64_t lanes;
    uint64_t items;              /* ranges that are a block's threads */
    uint64_t places;             /* ranges that are not loops: over a grid, or a block's threads */
    uint64_t open;
    double trips;                /* product of the open loops' sizes, at their upper bounds */
    int next_acc;
    struct uop *const *store; int nstore;
    struct uop *const *banded; int nbanded;     /* the stores of the band that is open */
    struct uop *nest;            /* the nest whose lanes are open: a store, or a stage */
    struct passed passed;        /* shared memory accessed by a block's threads since their last
                                  * barrier */
};

/* linear_values.c. Some uops of a store, sources first: all, or those under one REDUCE or STAGE. */
struct linear_part { struct uop **u; int n; };
/* The uops that the roots need; linear_outside() without those in the loops of a REDUCE or STAGE:
 * where lanes open again, only these are recomputed. */
struct linear_part linear_under(struct linear *l, struct uop *const *root, int nroot);
struct linear_part linear_outside(struct linear *l, struct uop *const *root, int nroot);
/* Adds u to the program. */
void linear_push(struct linear *l, struct uop *u);
void linear_barrier(struct linear *l);
/* The bit of a range in l's sets. */
uint64_t linear_bit(struct linear *l, const struct uop *range);
/* The sets of ranges of all uops in l->order. */
void linear_find_deps(struct linear *l);
/* The uop of the program for a uop of the AST that is computed. */
struct uop *linear_made(struct linear *l, const struct uop *u);
/* Computes everything in `part` that became computable when `newly` opened. 0: what depends on no
 * range. */
void linear_emit(struct linear *l, uint64_t newly, const struct linear_part *part);
/* linear_open() opens a loop and computes what of `part` it makes computable; linear_close() closes
 * it and forgets what was computed inside. */
void linear_open(struct linear *l, struct uop *range, const struct linear_part *part);
void linear_close(struct linear *l, struct uop *range);

#endif
