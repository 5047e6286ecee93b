/* block_rows.h - private to block_rows*.c: large values between small ones, computed by blocks of
 * rows. */
#ifndef TGC_BLOCK_ROWS_H
#define TGC_BLOCK_ROWS_H

#include "passes/passes.h"

/* Of each axis of a value, the axis of the frame along which it runs; -1: none. */
struct along { int axis[MAX_RANK]; };
/* A sum over an axis of large values, which is small. at: of the product that it sums. */
struct region_sum { struct uop *sum; struct along at; };

enum { MAX_SUMS = 16, REGION_SOURCES = 3 };      /* of a region; of an elementwise op in it */

/* Large values, what is computed of a row of them, and the sums that leave the region. All of it is
 * computed row by row; only the sums reduce the rows. In scratch: most candidates are refused. */
struct region {
    struct tgc *t;
    struct uop **order; int norder;      /* the graph, sources first */
    const struct uop_map *number;        /* uop -> its number in the order + 1 */
    struct uop *frame;                   /* a large value, whose axes name those of all others */
    int row, key;                        /* of the frame: the rows, and what a mask may hide of
                                          * them; key -1: none */
    uint32_t batch;                      /* axes in which all is independent */
    uint32_t merged;                     /* axes that some value does not have for itself */
    struct uop_map inside;               /* uop -> struct along */
    int *member; int nmember; size_t cap_member;     /* numbers of these, consumers first */
    int *open; int nopen; size_t cap_open;           /* a heap of those whose sources have none */
    struct region_sum sum[MAX_SUMS]; int nsum;
    struct uop **input; int ninput; size_t cap_input;
};

/* block_rows.c: the place of a source of u, or of the value that a move u makes of its source.
 * false: a reshape joins or splits an axis of the frame, or u is no op that keeps places. */
bool place_below(struct region *r, const struct uop *u, int k, const struct along *at,
                 struct along *below);
/* The frame's axis along which u's axis a runs, if it has more than one element; -1: none. */
int place_axis(const struct uop *u, const struct along *at, int a);

/* block_rows_mask.c: the keys that a block of rows may see. Of the others all sums are 0, and all
 * rows' maxima -inf. */
enum { LIMITS_MAX = 4 };
struct visible_keys {
    struct uop *row;                     /* the RANGE of a row */
    struct uop *begin[LIMITS_MAX], *end[LIMITS_MAX];     /* affine in it: begin <= key < end */
    int nbegin, nend;
};
void visible_keys_find(struct region *r, struct visible_keys *v);
/* The first key that the rows [first, first + n) see, rounded down; and the end, of known rows. */
struct uop *visible_keys_begin(struct region *r, const struct visible_keys *v, struct uop *first,
                               int64_t n);
int64_t visible_keys_end(struct region *r, const struct visible_keys *v, int64_t first, int64_t n);

/* block_rows_loop.c: result[i] in place of the sum i, by blocks of nrows rows. */
void region_build(struct region *r, int64_t nrows, struct uop **result);
/* Rows of a block. */
int64_t region_block_rows(const struct region *r);

#endif
