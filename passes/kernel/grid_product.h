/* grid_product.h - for grid_tile.c, grid_shape.c, grid_matrix.c, grid_epilogue.c and split_sums.c:
 * a sum of products that becomes blocks of tiles. */
#ifndef TGC_GRID_PRODUCT_H
#define TGC_GRID_PRODUCT_H

#include "passes/kernel/grid.h"
#include "ir/device_ops.h"

/* Rows and columns are loops of the store, by position. step: terms that one step of the sum
 * stages. */
struct product {
    struct nest m;
    int row, column;
    int64_t nrow, ncolumn, rest, terms, step;
    int64_t last_terms;          /* iterations of the sum's last loop */
    int64_t unit;                /* elements of a term: DOT_BYTES for a group of bytes, else 1 */
    int last, outer;             /* the sum's loop with the steps, as sum->src[], and the loop at
                                  * which copies are placed */
    int vector;                  /* vector width along columns; 1: scalar */
    bool row_vectors;            /* operands are contiguous along rows, so a thread's rows are
                                  * loaded as vectors */
};
/* Finds the product under the store; false: there is none that tiles can compute. patched: the
 * store may have a condition, and its last loop must be the rows or the columns. */
bool grid_find_product(struct tgc *t, struct uop *store, bool patched, struct product *x);
/* Time of the cheapest tile without matrix instructions, or by one that multiplies factors of this
 * dtype; 0: there is none. Only the sizes in x are read, from nrow on. */
double grid_tile_ns(struct tgc *t, const struct product *x);
/* As grid_tile_ns(), but bound below by the latency of unstaged loads, which matrix kernels hide
 * better since their copies are batched. */
double grid_tile_loaded_ns(struct tgc *t, const struct product *x);
double grid_matrix_ns(struct tgc *t, const struct product *x, enum dtype of);
/* Terms of a step for a last loop of `terms`; 0: steps are not worth it. alone: it is the sum's
 * only loop. */
int64_t grid_step(int64_t terms, bool alone);
/* Whether the store's loop may be cut into blocks of a tile. */
bool product_may_cut(const struct nest *m, const struct uop *r);

/* grid_epilogue.c: the epilogue of a product's blocks. row, column: the store's loops, by position;
 * columns are contiguous in memory. width: elements of one store if the epilogue is staged through
 * shared memory. of_sum: the sum is staged, not the finished value. nbytes, passed_nbytes: of an
 * element stored, and staged. loads: the value's loads beside the sum's that differ by row;
 * row_loads: those that all rows share. */
struct epilogue {
    int row, column;
    int64_t width;
    bool of_sum;
    int64_t nbytes, passed_nbytes;
    int loads, row_loads;
};
/* m, n: the two loops. false: neither is contiguous in memory, or the device stores no more than a
 * word at once. */
bool grid_find_epilogue(struct tgc *t, const struct product *x, int m, int n, struct epilogue *g);
/* Vector width of the store along the loop `column`: aligned, contiguous, and under one
 * condition. */
int64_t epilogue_width(struct tgc *t, const struct uop *store, struct uop *column);
/* Shared memory for a block's epilogue tile, plain or as boxes. */
int64_t epilogue_nbytes(const struct epilogue *g, int64_t rows, int64_t columns);
int64_t epilogue_boxes_nbytes(const struct epilogue *g, int64_t rows, int64_t columns);
/* epilogue_is_boxes(): whether the tile may be stored as boxes by the device's copy engine: whole
 * panels of finished values. epilogue_fits(): whether a block of `threads` has room for the tile
 * and shares it evenly. */
bool epilogue_is_boxes(const struct tgc *t, const struct epilogue *g, int64_t rows, int64_t columns,
                       int64_t threads);
bool epilogue_fits(const struct tgc *t, const struct epilogue *g, int64_t rows, int64_t columns,
                   int64_t threads);
/* Issue cost per thread, in multiply-adds, of storing `elements`: direct from the instruction's
 * layout, as boxes, or staged through shared memory. exchanged: the instruction's rows are
 * contiguous in memory. */
double epilogue_direct(const struct tgc *t, const struct epilogue *g, const struct matrix_row *row,
                       bool exchanged, double elements);
double epilogue_as_boxes(const struct tgc *t, const struct epilogue *g,
                         const struct matrix_row *row, bool exchanged, double elements);
double epilogue_staged(const struct tgc *t, const struct epilogue *g, const struct matrix_row *row,
                        bool exchanged, double elements);
/* Adds STAGE_EPILOGUE for the loops with these tags and the sum number `number`: both loops move
 * inside all others. list_epilogue() then adds the second store's opts; `chunks` tags its loop over
 * vectors of columns. */
void list_stage_epilogue(struct opt_list *l, const struct epilogue *g, int number, int row,
                         int column);
/* As list_stage_epilogue(), for a tile that the copy engine (TMA) stores as boxes: it lies in
 * shared memory as swizzled panels of `columns` elements. */
void list_stage_boxes(struct opt_list *l, int row, int column, int64_t columns);
/* Then the opts of the store from shared to global memory: one of the block's `threads` starts the
 * bulk copies. */
void list_epilogue_boxes(struct opt_list *l, int64_t threads);
void list_epilogue(struct opt_list *l, const struct epilogue *g, int row, int64_t rows, int column,
                   int64_t columns, int64_t threads, int chunks);

/* split_sums.c: sums of products known by their sizes: rows x columns x `rest` of `terms` each.
 * last_terms: along the loop that split-K may divide. of: the factors' dtype, DTYPE_VOID if they
 * differ. nbytes: of both factors in memory. */
struct sums { double rows, columns, rest, terms, nbytes; int64_t last_terms; enum dtype of; };
/* ns of the fastest schedule, launches included. *parts: its split-K factor, reduced by a kernel of
 * its own. */
double grid_sums_ns(struct tgc *t, const struct sums *s, int64_t *parts);

/* grid_shape.c: a copy of the kernel with the product's loops in another form, and the product
 * found there. */
struct shape { struct kernel k; struct product x; };
/* Starts from the kernel as it is; false: there is no product. */
bool shape_begin(struct tgc *t, struct shape *s, const struct kernel *k, int store);
/* Merges one more loop of the store into the rows or columns: one that reads the same operands.
 * false: there is none. */
bool shape_join_rows(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* Makes rows or columns of patches: tiles of two or three loops that read the same operands, n[0]
 * iterations of the innermost, n[1] of the next. The patches themselves become another loop. false:
 * there are fewer loops. */
struct patch { int64_t n[3]; };
bool shape_patch(struct tgc *t, const struct shape *from, int store, const struct patch *patch,
                 struct shape *to);
/* The patch of `iterations` iterations that wastes fewest; false: there is none. */
bool shape_find_patch(const struct shape *from, int64_t iterations, struct patch *patch);
/* Moves the sum's longest loop innermost. false: it is there already. */
bool shape_order_terms(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* Merges all loops of the sum. false: there is only one. */
bool shape_join_terms(struct tgc *t, const struct shape *from, int store, struct shape *to);
/* Packs known operands in the order in which steps read them. gains: asked for an operand that
 * varies along loop src[side]. The innermost loop becomes that loop, or the sum's last one
 * (by_terms). false: none was packed. */
bool shape_pack(struct tgc *t, const struct shape *from, int store, bool by_terms,
                bool (*gains)(const struct product *x, const struct uop *load, int side),
                struct shape *to);

/* split_sums.c: v with the axis divided into `parts` equal parts; the new axis of parts is
 * outermost. */
struct uop *tensor_in_parts(struct tgc *t, struct uop *v, int axis, int64_t parts);

#endif
