/* tile_cost.h - private to choose_tile.c and tile_cost.c: the cost of a nest's tile. */
#ifndef TGC_TILE_COST_H
#define TGC_TILE_COST_H

#include "passes/kernel/tile.h"

/* Facts of the columns' range together with the rows' range (or without rows): computed once, not
 * for each size of a tile. */
struct pairing {
    int axis;                    /* the rows', an index of store->src; -1: one row */
    int64_t size;                /* of the rows' range, at most */
    bool unknown;                /* the size is unknown: tiles have 2, 4, 8 or 16 rows */
    double worth;                /* discount for tiles of these rows: there may be fewer rows
                                  * than that */
    bool strided; int64_t stride;               /* the store's stride along the columns */
    bool crosses;                /* its rows are contiguous, so they may be stored by columns */
    bool differ;                 /* see columns_differ() */
    bool share_set;              /* see rows_share_set() */
    /* A window: row i reads at step k what row i - 1 reads at step k + window, of `taps`; `steps`
     * of all other ranges. 0: there is none. */
    int64_t window, taps, steps;
};
struct pairing tile_pair(const struct nest *m, struct uop *column, int axis);

/* Operations on a vector of columns before the product: widening of small elements, computation on
 * several loads. */
int tile_column_steps(const struct nest *m, const struct uop *column);

/* Elements that a tile of vectors computes per ns of one thread; 0: it needs more registers than
 * there are. p: of its columns and rows; column_steps: from tile_column_steps(); used: the share of
 * lanes in use. */
double tile_gain(const struct nest *m, enum isa isa, const struct pairing *p, int column_steps,
                 const struct tile *tile, double used);
/* How evenly threads can share the loops around a tile, from 0 to 1. */
double tile_evenness(const struct nest *m, int column_axis, int64_t columns, int row_axis,
                     int64_t rows);
/* Gain of a tile of the portable kernel, whose rows run along the range `row` (NULL: one row).
 * Compilers vectorize its lanes: multiply-adds of a vector per load. On a machine without vectors:
 * multiply-adds per instruction; 0: it needs more registers than there are. */
double tile_gain_portable(const struct nest *m, const struct uop *column, const struct uop *row,
                          int64_t rows, int64_t columns);

#endif
