/* grid_product.h - for grid_tile.c, grid_shape.c, grid_matrix.c, and split_sums.c: a sum of products that is to be blocks of tiles. */
#ifndef TGC_GRID_PRODUCT_H
#define TGC_GRID_PRODUCT_H

#include "passes/kernel/grid.h"

/* Rows and columns as loops of the store, by position; the sum's step. */
struct product {
    struct nest m;
    int row, column;
    int64_t nrow, ncolumn, rest, terms, step;
    int64_t last_terms;          /* of the sum's last loop */
    int64_t unit;                /* elements of a term: of a group of bytes, or 1 */
    int last, outer;             /* of the sum's loops the one with steps, as sum->src[], and the one at which copies stand */
    int vector;                  /* lanes of a thread's vectors of columns; 1: none */
    bool row_vectors;            /* rows are neighbours in memory: a thread's lanes are loaded as vectors */
};
/* The product under the store; false: there is none that tiles would compute. */
bool grid_find_product(struct tgc *t, struct uop *store, struct product *x);
/* What the tile that costs least takes, without an instruction for matrices, and by one that multiplies factors of this
 * dtype; 0: there is none. Of x only sizes are read: from nrow on. */
double grid_tile_ns(struct tgc *t, const struct product *x);
double grid_matrix_ns(struct tgc *t, const struct product *x, enum dtype of);
/* Terms of a step of a last loop of so many; 0: none are worth it. alone: it is the sum's only loop. */
int64_t grid_step(int64_t terms, bool alone);
/* Whether the store's loop may be cut into blocks of a tile. */
bool product_may_cut(const struct nest *m, const struct uop *r);

/* grid_shape.c: a kernel of its own with the product's loops in another form, and the product as it is found there. */
struct shape { struct kernel k; struct product x; };
/* The kernel as it is; false: there is no product. */
bool shape_begin(struct tgc *t, struct shape *s, const struct kernel *k, int store);
/* One more loop of the store is a part of the rows, or of the columns: one that reads the same operands. false: there is none. */
bool shape_join_rows(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* The sum's longest loop is the innermost. false: it is that already. */
bool shape_order_terms(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* All loops of the sum are one. false: there is only one. */
bool shape_join_terms(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* Known operands lie in the order in which steps read them, where `gains` says so of one that changes along loop src[side]: the
 * loop innermost, or the sum's last one (by_terms). false: none was packed. */
bool shape_pack(struct tgc *t, const struct shape *from, int store, bool by_terms,
                bool (*gains)(const struct product *x, const struct uop *load, int side), struct shape *to);

#endif
