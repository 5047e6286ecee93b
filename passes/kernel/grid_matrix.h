/* grid_matrix.h - for grid_matrix.c, which has products on a device computed by an instruction, and
 * grid_matrix_cost.c, which says by which tiles of it. */
#ifndef TGC_GRID_MATRIX_H
#define TGC_GRID_MATRIX_H

#include "passes/kernel/grid_product.h"

/* Tiles that are compared at last; instructions for a product. BESIDE_LIMIT: what is no limit
 * counts for so little of it. */
enum { CHOICES_MAX = 8, INSTRUCTIONS_MAX = 32, BESIDE_LIMIT = 64 };

/* How copies come: of so many parts, which a sum's steps use in turn. */
struct stages { int parts; enum transfer how; };
struct matrix_choice;
/* A tile of a block, and how the kernel runs that has it. Pairs are of rows and columns. */
struct wave_tile {
    const struct matrix_choice *of;
    int64_t waves[2], tiles[2];  /* waves of a block; matrices of the instruction for each wave */
    int64_t step;                /* terms of a step of the sum */
    struct stages by;
    int64_t cluster[2];          /* CLUSTER: neighbouring blocks along rows share the columns'
                                  * factor, and the other way round; 1: none do */
    double blocks;               /* PERSIST: persistent blocks, which loop over all tiles; 0: one
                                  * block for each tile */
    int64_t split;               /* PARTS: blocks that have a part of the sum each, of its last
                                  * loop; 1: one has all of it */
    int producers;               /* PRODUCER: threads of a block that only copy */
    bool through, boxes;         /* THROUGH: results are staged in local memory; LEAVE: and stored
                                  * from there as boxes (TMA) */
    double ns;
};
enum { PADS_MAX = 64 };
struct pads { struct pad { int side; int64_t row, width, pad; } v[PADS_MAX]; int n; };
struct matrix_choice {
    const struct shape *s; int joined;       /* whose product it is, and how many loops its rows and
                                              * columns have been made of */
    bool patched, divided, alone[2];         /* rows, or columns, are patches; divisions tell them
                                              * apart; these or conditions a factor's elements */
    const struct product *x;
    const struct matrix_row *row;
    enum matrix_unit of;
    double gflops;
    bool reads_copies;           /* the instruction reads factors from local memory */
    int64_t nelem[3];            /* what a thread has of each matrix */
    int64_t local_nbytes;        /* a block's memory */
    int m, n;                    /* the store's loops, by position, of the
                                  * instruction's rows and columns */
    int64_t nm, nn, nk;          /* how many there are of each, and of terms */
    /* of the factors, a, b: how many neighbours may be one copy, and whether they are along rows or
     * columns, not terms */
    int64_t width[2]; bool along_side[2];
    double spread[2];            /* of what is copied one by one, the elements of a line
                                  * of memory for each */
    double computed[2];          /* operations for each element, where copies compute it */
    struct pads *pads;           /* that were found */
    double memory_ns;            /* what the factors take to come from memory, once; 0: of sizes
                                  * alone */
    bool is_counted;             /* all loops of the store are over the grid, and of known sizes */
    struct leaving leaving; bool may_leave;  /* how results may leave through local memory, and
                                              * whether they may */
};

/* The instructions that multiply the product's factors; of one whose factors lanes hold, one order
 * of them is enough. Those whose rows are the result's come first, since a lane's neighbours are
 * along columns. */
int choice_list(struct tgc *t, const struct product *x, struct matrix_choice *c);
/* Adds the instruction's tiles to the n that cost least; returns how many there are. */
int choice_list_waves(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *best,
                      int n);
/* How far apart the factor's elements along the loop are; a number that only an index can be:
 * nobody knows. */
int64_t choice_stride(struct tgc *t, const struct uop *factor, const struct uop *along);
/* Whether the sum's load of that number, sources first, is the factor of rows (0) or of columns. */
int choice_side(const struct matrix_choice *c, int operand);
/* The side of the block, of the instruction's rows (0) or columns, that is the results' rows. */
int choice_leaving_row(const struct matrix_choice *c);

/* Rows (0) or columns of a block; its threads that compute; blocks of its cluster. */
int64_t wave_side(const struct matrix_choice *c, const struct wave_tile *w, int side);
int64_t wave_threads(const struct matrix_choice *c, const struct wave_tile *w);
int64_t wave_cluster(const struct wave_tile *w);
/* Whether what leaves lies where the copies were, and not beside those of the block's next place,
 * which come meanwhile. */
bool wave_lies_over(const struct wave_tile *w);
/* How many neighbours of a factor one copy has: each thread makes as many copies. */
int64_t wave_width(const struct matrix_choice *c, const struct wave_tile *w, int side);
/* Elements behind each row of a factor's copy, by which a wave's rows lie in other banks. */
int64_t wave_pad(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w,
                 int side);
/* How long the rows of the operand's copy are: they are those of its memory, by terms or along its
 * side; of what is no half, by terms. */
int64_t wave_copied_row(const struct matrix_choice *c, const struct wave_tile *w, int operand);
/* Whether the device copies both factors so. */
bool wave_comes(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w);
double wave_ns(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w);

#endif
