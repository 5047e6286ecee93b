/* device_ops.h - what devices' instructions for matrices (MATRIX, ir/matrix.def) and their engines
 * that copy boxes (BULK) compute. */
#ifndef TGC_DEVICE_OPS_H
#define TGC_DEVICE_OPS_H

#include "ir/ir.h"

/* A TICKET's sources. */
enum { TICKET_COUNTERS, TICKET_NUMBER, TICKET_OF, TICKET_MEMORY };

/* ------------------------------------------------------------------------------------- matrix.c */
/* A row of matrix.def. */
enum matrix_part { MATRIX_A, MATRIX_B, MATRIX_SUM };
enum matrix_coordinate { MATRIX_M, MATRIX_N, MATRIX_K, MATRIX_NONE };
enum { MATRIX_BITS_MAX = 8 };
struct matrix_row {
    const char *text;
    int lanes;                   /* of a wave */
    int size[3];                 /* by coordinate */
    enum dtype dtype[3];         /* by part */
    const char *layout[3];
};
const struct matrix_row *matrix_row(enum matrix_unit of);
bool matrix_find(const char *text, enum matrix_unit *of);
/* Whether the instruction reads the matrix from local memory, so that no lane holds any of it. */
bool matrix_is_local(const struct matrix_row *r, enum matrix_part part);
/* Of a part's fragment, which bits of coordinates the bits of the lane's number are, or those of
 * the element's, lowest first; returns how many. bit: [MATRIX_BITS_MAX]. */
struct matrix_bit { enum matrix_coordinate of; int bit; };
int matrix_bits(const struct matrix_row *r, enum matrix_part part, bool of_lane,
                struct matrix_bit *bit);
/* How many elements of it a lane holds. */
int matrix_elements(const struct matrix_row *r, enum matrix_part part);
/* How many words of 32 bits these are. */
int matrix_words(const struct matrix_row *r, enum matrix_part part);
/* The coordinates, by enum matrix_coordinate, of the element of the lane's. */
void matrix_place(const struct matrix_row *r, enum matrix_part part, int lane, int element,
                  int at[MATRIX_NONE + 1]);
/* Where the lane's element of a factor is in what it has in registers (a LOAD of memory that
 * is_own): its terms of a row, the lowest bit of k first, then those of the next row. */
int matrix_own_element(const struct matrix_row *r, enum matrix_part part, int element);
/* The MATRIX among linear[0..n) that multiplies the tile, a LOAD, or an ACC that it is assigned to;
 * *factor: 0, it is its a, or 1, its b. */
const struct uop *matrix_of_tile(struct uop *const *linear, int n, const struct uop *tile,
                                 int *factor);
/* The LOAD of a tile that linear[0..n) assigns to the accumulator, from which products read it;
 * NULL: the accumulator holds no tile. */
const struct uop *matrix_kept_tile(struct uop *const *linear, int n, const struct uop *acc);

/* --------------------------------------------------------------------------------------- bulk.c */
/* A BULK's sources, and those of each axis behind them, innermost first. */
enum {
    BULK_TO,
    BULK_OFFSET,
    BULK_BARRIERS,
    BULK_NUMBER,
    BULK_FROM,
    BULK_FIRST,
    BULK_AXES,
    BULK_AXIS = 4
};
/* BULK_STORE has no barriers: of both, where the sources are that say which tensor. */
enum { BULK_LEAVES = BULK_NUMBER - BULK_OFFSET };
static inline bool op_is_box(enum op op) { return op == OP_BULK || op == OP_BULK_STORE; }
static inline int bulk_source(const struct uop *u, int k)
{
    return u->op == OP_BULK_STORE ? k - BULK_LEAVES : k;
}
/* The most axes and elements along one; where tensors, their rows and a box's rows begin, in bytes;
 * and its memory. */
enum { BULK_RANK = 5, BULK_EXTENT = 256, BULK_ALIGNED = 16, BULK_MEMORY_ALIGNED = 1024 };
struct bulk_axis { struct uop *coordinate; int64_t size, stride, extent; };
int bulk_rank(const struct uop *u);
struct bulk_axis bulk_axis(const struct uop *u, int a);
/* The axis along which each block of a cluster copies its part of the box; the extents of what one
 * block copies. */
int bulk_part_axis(const struct uop *u);
int64_t bulk_part_extent(const struct uop *u, int a);
/* Whether the engine rounds f32 to tf32: to the nearest, of two that are as near to one of them. */
bool bulk_rounds(const struct uop *u);
/* Elements of the box. */
int64_t bulk_nelem(const struct uop *u);
/* Where the byte `at` of a box lies that is swizzled by so many bytes, 0: where it is. */
int64_t bulk_swizzled(int64_t at, int64_t swizzle);
/* What is wrong with the copy, by its operands; NULL: nothing. */
const char *bulk_check(const struct uop *u);
/* Of element i of the box at these coordinates: its element of the tensor, -1: it is beyond, and 0;
 * and in local memory, from the copy's offset on. */
int64_t bulk_element(const struct uop *u, int64_t i, const int64_t *coordinate, int64_t *to);
/* Whether two copies differ in where their boxes begin and go alone: one description of the tensor
 * serves both. */
bool bulk_is_of_same_map(const struct uop *a, const struct uop *b);
/* A barrier as the interpreter keeps it: at first; behind an arrival; behind the arrival of bytes;
 * whether the phase has ended. */
int64_t mbar_begin(int64_t count);
int64_t mbar_arrive(int64_t bar, int64_t nbytes);
int64_t mbar_complete(int64_t bar, int64_t nbytes);
bool mbar_has_ended(int64_t bar, int64_t parity);

#endif
