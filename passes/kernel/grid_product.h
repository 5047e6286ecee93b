/* grid_product.h - for grid_tile.c, grid_shape.c, grid_matrix.c, and split_sums.c: a sum of
 * products that is to be blocks of tiles. */
#ifndef TGC_GRID_PRODUCT_H
#define TGC_GRID_PRODUCT_H

#include "passes/kernel/grid.h"
#include "ir/device_ops.h"

/* Rows and columns as loops of the store, by position; the sum's step. */
struct product {
    struct nest m;
    int row, column;
    int64_t nrow, ncolumn, rest, terms, step;
    int64_t last_terms;          /* of the sum's last loop */
    int64_t unit;                /* elements of a term: of a group of bytes, or 1 */
    int last, outer;             /* of the sum's loops the one with steps, as sum->src[], and the
                                  * one at which copies stand */
    int vector;                  /* lanes of a thread's vectors of columns; 1: none */
    bool row_vectors;            /* rows are neighbours in memory: a thread's lanes
                                  * are loaded as vectors */
};
/* The product under the store; false: there is none that tiles would compute. patched: the store
 * may have a condition, and its last loop is the rows, or the columns. */
bool grid_find_product(struct tgc *t, struct uop *store, bool patched, struct product *x);
/* What the tile that costs least takes, without an instruction for matrices, and by one that
 * multiplies factors of this dtype; 0: there is none. Of x only sizes are read: from nrow on. */
double grid_tile_ns(struct tgc *t, const struct product *x);
/* The same, where what threads load for themselves is waited for: few threads wait longer than
 * instructions for matrices, whose copies come together. */
double grid_tile_loaded_ns(struct tgc *t, const struct product *x);
double grid_matrix_ns(struct tgc *t, const struct product *x, enum dtype of);
/* Terms of a step of a last loop of so many; 0: none are worth it. alone: it is the sum's only
 * loop. */
int64_t grid_step(int64_t terms, bool alone);
/* Whether the store's loop may be cut into blocks of a tile. */
bool product_may_cut(const struct nest *m, const struct uop *r);

/* grid_leave.c: of a product's blocks, the store's loops, by position, of their rows, and of their
 * columns, which are neighbours in memory; how many of these leave at once through local memory,
 * and what is passed on there: the value, or the sum; bytes of an element that is stored, and
 * passed on; loads of the value's beside the sum's, and those of them that all rows share. */
struct leaving {
    int row, column;
    int64_t width;
    bool of_sum;
    int64_t nbytes, passed_nbytes;
    int loads, row_loads;
};
/* m, n: the loops. false: neither of them has neighbours in memory, or the device stores no more
 * than a word at once. */
bool grid_find_leaving(struct tgc *t, const struct product *x, int m, int n, struct leaving *g);
/* Elements of the loop `column` that the store stores at once: they are neighbours, at a multiple
 * of their bytes, and all or none are stored. */
int64_t leaving_width(struct tgc *t, const struct uop *store, struct uop *column);
/* Bytes of local memory for a block's results; whether a block of so many threads has room, and
 * each of them as many elements. */
int64_t leaving_nbytes(const struct leaving *g, int64_t rows, int64_t columns);
int64_t leaving_boxes_nbytes(const struct leaving *g, int64_t rows, int64_t columns);
/* Whether they may leave as boxes that the device's engine stores: whole panels of what is not
 * computed with any more. */
bool leaving_is_boxes(const struct tgc *t, const struct leaving *g, int64_t rows, int64_t columns,
                      int64_t threads);
bool leaving_fits(const struct tgc *t, const struct leaving *g, int64_t rows, int64_t columns,
                  int64_t threads);
/* What a thread issues, in multiply-adds, to store so many elements as the instruction's sums are,
 * and through local memory. exchanged: the instruction's rows are neighbours in memory. */
double leaving_direct(const struct tgc *t, const struct leaving *g, const struct matrix_row *row,
                      bool exchanged, double elements);
double leaving_as_boxes(const struct tgc *t, const struct leaving *g, const struct matrix_row *row,
                        bool exchanged, double elements);
double leaving_through(const struct tgc *t, const struct leaving *g, const struct matrix_row *row,
                       bool exchanged, double elements);
/* THROUGH, of the store's loops of these tags, of its sum of this number: both move inside of all
 * others. Then the second store's opts, the n elements of each thread of which are the last loop's;
 * chunks: a tag for what is left of the columns. */
void list_through(struct place_list *l, const struct leaving *g, int number, int row, int column);
/* The same as boxes, of so many columns; then the second store's opts, of a block of so many
 * threads, whose first starts them. */
void list_through_boxes(struct place_list *l, int row, int column, int64_t columns);
void list_leaving_boxes(struct place_list *l, int64_t threads);
void list_leaving(struct place_list *l, const struct leaving *g, int row, int64_t rows, int column,
                  int64_t columns, int64_t threads, int chunks);

/* split_sums.c: sums of products by their sizes: rows x columns of `rest` products, of so many
 * terms, `last_terms` of them along the loop of which threads may have parts; of: the factors'
 * dtype, DTYPE_VOID if they differ; nbytes: theirs in memory. */
struct sums { double rows, columns, rest, terms, nbytes; int64_t last_terms; enum dtype of; };
/* ns by the schedule that takes least, with its launches; in how many parts, which a
 * kernel of its own adds. */
double grid_sums_ns(struct tgc *t, const struct sums *s, int64_t *parts);

/* grid_shape.c: a kernel of its own with the product's loops in another form, and the product as it
 * is found there. */
struct shape { struct kernel k; struct product x; };
/* The kernel as it is; false: there is no product. */
bool shape_begin(struct tgc *t, struct shape *s, const struct kernel *k, int store);
/* One more loop of the store is a part of the rows, or of the columns: one that reads the same
 * operands. false: there is none. */
bool shape_join_rows(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* Two or three loops that read the same operands, of n[0] turns of the innermost, n[1] of the one
 * around it ...: their turns in a block are the rows, or the columns, and the blocks another loop.
 * false: there are fewer. */
struct patch { int64_t n[3]; };
bool shape_patch(struct tgc *t, const struct shape *from, int store, const struct patch *patch,
                 struct shape *to);
/* Of as many turns the patch that leaves least unused; false: there is none. */
bool shape_find_patch(const struct shape *from, int64_t turns, struct patch *patch);
/* The sum's longest loop is the innermost. false: it is that already. */
bool shape_order_terms(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* All loops of the sum are one. false: there is only one. */
bool shape_join_terms(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* Known operands lie in the order in which steps read them, where `gains` says so of one
 * that changes along loop src[side]: the loop innermost, or the sum's last one (by_terms).
 * false: none was packed. */
bool shape_pack(struct tgc *t, const struct shape *from, int store, bool by_terms,
                bool (*gains)(const struct product *x, const struct uop *load, int side),
                struct shape *to);

/* split_sums.c: v with the axis, which so many parts divide, in two, of which the first one, of the
 * parts, is outermost. */
struct uop *tensor_in_parts(struct tgc *t, struct uop *v, int axis, int64_t parts);

#endif
