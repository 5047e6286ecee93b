/* grid_product.h - private to grid_tile.c and grid_matrix.c: a sum of products that is to be blocks of tiles. */
#ifndef TGC_GRID_PRODUCT_H
#define TGC_GRID_PRODUCT_H

#include "passes/kernel/grid.h"

/* Rows and columns as loops of the store, by position; the sum's step. */
struct product {
    struct nest m;
    int row, column;
    int64_t nrow, ncolumn, rest, terms, step;
    int64_t unit;                /* elements of a term: of a group of bytes, or 1 */
    int last, outer;             /* of the sum's loops the one with steps, as sum->src[], and the one at which copies stand */
    int vector;                  /* lanes of a thread's vectors of columns; 1: none */
    bool row_vectors;            /* rows are neighbours in memory: a thread's lanes are loaded as vectors */
};
/* The product under the store; false: there is none that tiles would compute. */
bool grid_find_product(struct tgc *t, struct uop *store, struct product *x);
/* What the tile that costs least takes, without an instruction for matrices; 0: there is no tile. */
double grid_tile_ns(struct tgc *t, const struct product *x);

#endif
