/* grid_matrix.h - for grid_matrix.c, which applies a matrix instruction to a product, and
 * grid_matrix_cost.c, which chooses the tile. A wave is a subgroup (warp), or the warpgroup of an
 * instruction that needs one. */
#ifndef TGC_GRID_MATRIX_H
#define TGC_GRID_MATRIX_H

#include "passes/kernel/grid_product.h"

/* CHOICES_MAX: best tiles that are kept. INSTRUCTIONS_MAX: instructions for one product.
 * BESIDE_LIMIT: costs that do not bound the time count at 1/64, to break ties. */
enum { CHOICES_MAX = 8, INSTRUCTIONS_MAX = 32, BESIDE_LIMIT = 64 };

/* An n-stage pipeline of operand copies: number of stages, and how data is transferred. */
struct stages { int n; enum transfer how; };
struct matrix_choice;
/* A block's tile, and how its kernel runs. Pairs are of rows and columns. */
struct wave_tile {
    const struct matrix_choice *of;
    int64_t waves[2], tiles[2];  /* waves of a block; matrices of the instruction for each wave */
    int64_t step;                /* terms of one step of the sum */
    struct stages by;
    int64_t cluster[2];          /* CLUSTER_MULTICAST: blocks along rows that multicast the columns'
                                  * factor; likewise along columns; 1: no cluster */
    double blocks;               /* PERSISTENT: persistent blocks, which loop over all tiles; 0: one
                                  * block for each tile */
    int64_t split;               /* SPLIT_K: factor, along the sum's last loop; 1: no split */
    int producers;               /* WARP_SPECIALIZE: threads that only issue copies */
    bool staged, boxes;          /* STAGE_EPILOGUE: through shared memory; BULK_EPILOGUE: stored
                                  * from there as boxes (TMA) */
    double ns;
};
enum { PADS_MAX = 64 };
struct pads { struct pad { int side; int64_t row, width, pad; } v[PADS_MAX]; int n; };
struct matrix_choice {
    const struct shape *s; int joined;       /* the product's form, and how many loops were
                                              * merged into its rows and columns */
    bool patched, divided, alone[2];         /* rows or columns are patches of an image;
                                              * divisions compute their position; divisions or
                                              * conditions do so for a factor's single elements */
    const struct product *x;
    const struct matrix_row *row;
    enum matrix_unit of;
    double gflops;
    bool reads_copies;           /* the instruction reads its factors from shared memory */
    int64_t nelem[3];            /* elements of each matrix that a thread holds */
    int64_t local_nbytes;        /* shared memory that a block may have */
    int m, n;                    /* positions of the store's loops that are the instruction's
                                  * rows and columns */
    int64_t nm, nn, nk;          /* sizes of rows, columns and terms */
    /* For factors a and b: the vector width of copies, and whether it runs along rows or columns
     * rather than terms. */
    int64_t width[2]; bool along_side[2];
    double spread[2];            /* memory traffic per element copied one by one, in elements: 1
                                  * to those of a sector */
    double computed[2];          /* operations per element, if copies compute it */
    struct pads *pads;           /* paddings found so far (a cache) */
    double memory_ns;            /* time to read the factors from memory once; 0: only sizes
                                  * are known */
    bool is_counted;             /* all loops of the store have known sizes and fit the grid */
    struct epilogue epilogue; bool may_stage;  /* the epilogue, and whether it may be staged
                                              * through shared memory */
};

/* Lists the instructions that can multiply the product's factors. Those whose rows are the result's
 * come first: the elements of one lane are contiguous along columns. If the factors are held in
 * registers, one order of the two is enough. */
int choice_list(struct tgc *t, const struct product *x, struct matrix_choice *c);
/* Merges the instruction's tiles into the n cheapest so far; returns their number. */
int choice_list_waves(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *best,
                      int n);
/* Stride of the factor's elements along the loop; INT64_MAX if it is not affine. */
int64_t choice_stride(struct tgc *t, const struct uop *factor, const struct uop *along);
/* Whether the sum's load number `operand`, sources first, is the factor of rows (0) or of columns
 * (1). */
int choice_side(const struct matrix_choice *c, int operand);
/* Which side of the block, the instruction's rows (0) or columns (1), is the result's rows. */
int choice_epilogue_row(const struct matrix_choice *c);

/* Rows (0) or columns (1) of a block's tile; its computing threads; blocks of its cluster. */
int64_t wave_side(const struct matrix_choice *c, const struct wave_tile *w, int side);
int64_t wave_threads(const struct matrix_choice *c, const struct wave_tile *w);
int64_t wave_cluster(const struct wave_tile *w);
/* Whether the epilogue tile aliases the operand buffers. A persistent block's tile has memory of
 * its own, so that the next tile's loads overlap the store. */
bool wave_aliases(const struct wave_tile *w);
/* Vector width, in elements, of the copies of a factor: the largest that all threads share
 * evenly. */
int64_t wave_width(const struct matrix_choice *c, const struct wave_tile *w, int side);
/* Row padding of a factor's copy, in elements, that keeps a wave's accesses in different banks. */
int64_t wave_pad(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w,
                 int side);
/* Row length of the operand's copy. Copies keep the order of memory, along terms or along the side;
 * elements other than 16 bits lie along terms. 0: not affine. */
int64_t wave_copied_row(const struct matrix_choice *c, const struct wave_tile *w, int operand);
/* Whether the device can copy both factors by w->by.how. */
bool wave_can_copy(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w);
double wave_ns(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w);
/* ns of a tile of merged loops, whose positions divisions compute, as it is compared. */
double choice_flat_ns(const struct matrix_choice *c, double ns);
/* Its parts, and the launch, without what wave_ns() adds to break ties. */
struct grid_parts wave_parts(const struct tgc *t, const struct matrix_choice *c,
                             const struct wave_tile *w);

#endif
