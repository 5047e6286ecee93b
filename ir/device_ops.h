/* device_ops.h - the meaning of devices' matrix instructions (MATRIX, ir/matrix.def) and of their
 * copy engines (BULK). */
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
/* Does the instruction itself read the matrix from shared memory, so that lanes hold none of it? */
bool matrix_in_shared(const struct matrix_row *r, enum matrix_part part);
/* The coordinates' bits that the bits of the lane's number (of_lane) or of the element's number
 * are, lowest first, for the fragment of a part. Returns how many. bit: [MATRIX_BITS_MAX]. */
struct matrix_bit { enum matrix_coordinate of; int bit; };
int matrix_bits(const struct matrix_row *r, enum matrix_part part, bool of_lane,
                struct matrix_bit *bit);
/* The elements of it that a lane holds. */
int matrix_elements(const struct matrix_row *r, enum matrix_part part);
/* The same in words of 32 bits. */
int matrix_words(const struct matrix_row *r, enum matrix_part part);
/* The coordinates, by enum matrix_coordinate, of the lane's element. */
void matrix_place(const struct matrix_row *r, enum matrix_part part, int lane, int element,
                  int at[MATRIX_NONE + 1]);
/* The index of the lane's element of a factor within the thread's own registers (a LOAD of memory
 * that is_own): a row's elements by rising k, then those of the next row. */
int matrix_own_element(const struct matrix_row *r, enum matrix_part part, int element);
/* The MATRIX among linear[0..n) that multiplies the tile, which is a LOAD, or an ACC that it is
 * assigned to. *factor: 0 for its a, 1 for its b. */
const struct uop *matrix_of_tile(struct uop *const *linear, int n, const struct uop *tile,
                                 int *factor);
/* The LOAD of a tile that linear[0..n) assigns to the accumulator for products to read. NULL: the
 * accumulator holds no tile. */
const struct uop *matrix_kept_tile(struct uop *const *linear, int n, const struct uop *acc);

/* --------------------------------------------------------------------------------------- bulk.c */
/* A BULK's sources; BULK_AXIS more follow for each axis, innermost first. */
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
/* BULK_STORE has no sources for barriers: bulk_source() is the index of source k in either op. */
enum { BULK_LEAVES = BULK_NUMBER - BULK_OFFSET };
static inline bool op_is_box(enum op op) { return op == OP_BULK || op == OP_BULK_STORE; }
static inline int bulk_source(const struct uop *u, int k)
{
    return u->op == OP_BULK_STORE ? k - BULK_LEAVES : k;
}
/* The most axes, and elements along one. Alignment in bytes: of tensors, their rows and a box's
 * rows; of its shared memory. */
enum { BULK_RANK = 5, BULK_EXTENT = 256, BULK_ALIGNED = 16, BULK_MEMORY_ALIGNED = 1024 };
struct bulk_axis { struct uop *coordinate; int64_t size, stride, extent; };
int bulk_rank(const struct uop *u);
struct bulk_axis bulk_axis(const struct uop *u, int a);
/* The axis along which the blocks of a cluster split the box; the extent along `a` of
 * one block's part. */
int bulk_part_axis(const struct uop *u);
int64_t bulk_part_extent(const struct uop *u, int a);
/* Does the engine round f32 to tf32? It rounds to nearest; either neighbour may
 * be taken in a tie. */
bool bulk_rounds(const struct uop *u);
/* Elements of the box. */
int64_t bulk_nelem(const struct uop *u);
/* The place of byte `at` of a box with a swizzle of that many bytes; 0: no swizzle. */
int64_t bulk_swizzled(int64_t at, int64_t swizzle);
/* What is wrong with the copy's operands; NULL: nothing. */
const char *bulk_check(const struct uop *u);
/* For element i of the box at these coordinates: returns its element of the tensor, or -1 if it is
 * outside, so 0. *to: its element of shared memory, from the copy's offset on. */
int64_t bulk_element(const struct uop *u, int64_t i, const int64_t *coordinate, int64_t *to);
/* Do the copies differ only in coordinates and destination? Then one tensor map serves both. */
bool bulk_is_of_same_map(const struct uop *a, const struct uop *b);
/* A barrier as the interpreter keeps it: initialized, after an arrival, after bytes have arrived;
 * is the phase of this parity complete? */
int64_t mbar_begin(int64_t count);
int64_t mbar_arrive(int64_t bar, int64_t nbytes);
int64_t mbar_complete(int64_t bar, int64_t nbytes);
bool mbar_has_ended(int64_t bar, int64_t parity);

#endif
