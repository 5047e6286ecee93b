/* tile_cost.h - private to choose_tile.c and tile_cost.c: what a tile of a nest costs. */
#ifndef TGC_TILE_COST_H
#define TGC_TILE_COST_H

#include "passes/kernel/tile.h"

/* What the costs of tiles want to know of the columns' range together with the rows', or with none:
 * asked once, not for each size of a tile. */
struct pairing {
    int axis;                    /* the rows', of store->src; -1: one row */
    int64_t size;                /* of the row's range */
    bool strided; int64_t stride;               /* the store's, along the columns */
    bool crosses;                /* its columns' rows are contiguous in memory */
    bool differ;                 /* see columns_differ() */
    bool share_set;              /* see rows_share_set() */
    /* A window: row i reads at step k what row i - 1 reads at step k + window, of `taps`; so many
     * `steps` of all others. 0: there is none. */
    int64_t window, taps, steps;
};
struct pairing tile_pair(const struct nest *m, struct uop *column, int axis);

/* Operations on a vector of columns before it is multiplied: small elements are widened, what is
 * made of several loads is computed. */
int tile_column_steps(const struct nest *m, const struct uop *column);

/* Elements that such a tile of vectors computes in a ns of one thread; 0: it needs more registers
 * than there are. p: of its columns and rows; column_steps: by tile_column_steps(); used: the share
 * of its lanes that are wanted. */
double tile_gain(const struct nest *m, enum isa isa, const struct pairing *p, int column_steps,
                 const struct tile *tile, double used);
/* The same of the portable kernel, whose lanes compilers make vectors of: multiply-adds of a vector
 * for each load. */
double tile_gain_portable(int64_t rows, int64_t columns);

#endif
