/* matrix.h - sums of products that an instruction of ir/matrix.def computes for a subgroup. */
#ifndef TGC_MATRIX_H
#define TGC_MATRIX_H

#include "passes/analysis/access.h"
#include "ir/device_ops.h"

/* One of an instruction's matrices: its coordinates m, n and k are sums of these ranges, each times
 * a scale. lane: the block's threads within the subgroup, the innermost of the store's items;
 * element: what a thread holds. Innermost first. */
struct matrix_axis { struct uop *range; enum matrix_coordinate of; int64_t scale; };
enum { MATRIX_AXES_MAX = 16 };
struct matrix_axes { struct matrix_axis v[MATRIX_AXES_MAX]; int n; };

/* The value in memory that makes u a factor which the row multiplies exactly: u itself, or what is
 * cast to u's dtype. It is loaded, rounded from a load, or computed from loads by few operations
 * (quantized weights times their scales). NULL: u is none of these, or has another dtype. */
struct uop *matrix_factor(struct uop *u, enum dtype d);
/* Whether u is computed from loads by few operations (weights of few bits times their scales) and
 * is finite where all loads are 0, as they are beyond a tensor. */
bool matrix_is_finite(const struct uop *u);
/* Whether a copy of the factor computes it; the load with the most elements; whether the load is
 * one of its; operations for each element. */
bool matrix_is_computed(const struct uop *factor);
struct uop *matrix_factor_load(struct uop *factor);
bool matrix_reads(const struct uop *factor, const struct uop *load);
double matrix_computed(const struct uop *factor);
/* The product under the sum: factor[0] is for the row's a, factor[1] for b (exchanged: vice versa).
 * Which of them varies with m or n the caller finds. At most one is computed: beyond the sum's
 * terms the other one is 0. false: it is no product of values of the row's dtypes. */
bool matrix_factors(const struct uop *sum, const struct matrix_row *row, bool exchanged,
                    struct uop **factor);

/* Whether the accumulator layout of the row is the layout of this factor, with columns as terms:
 * accumulators in registers can then be a factor of another product. */
bool matrix_sums_are_factor(const struct matrix_row *row, enum matrix_part part);
/* For a factor kept in registers: the offset, in the block's memory, of the terms that the thread
 * itself has. The loop k becomes lanes and *n further ranges, element[], each with the position of
 * its lowest bit in k. NULL: the layouts differ. */
struct uop *matrix_own_terms(struct tgc *t, const struct uop *store, const struct matrix_row *row,
                             enum matrix_part part, struct uop *offset, const struct uop *k,
                             struct matrix_axis *element, int *n);

/* A factor in shared memory: a tile of rows of contiguous elements. In panels the offset is that
 * with chunks in order. In registers it is the thread's own part, with the terms of a row
 * contiguous. */
struct matrix_tile {
    struct uop *load, *offset;
    int64_t stride;
    bool along_k;
    int own_rows, own_terms;
};
struct matrix_product {
    enum matrix_unit of;
    struct matrix_tile factor[2];
    struct uop *element[MATRIX_AXES_MAX]; int nelement;
};
/* Finds the block's last threads as the lanes of the row's accumulators; false: they are others. */
bool matrix_find_lanes(const struct matrix_row *row, const struct uop *store,
                       struct matrix_axes *lanes);
/* Reads how the row of MATRIX computes the store's sum. false: the instruction does not take this
 * form; *why says what is missing. */
bool matrix_read(struct tgc *t, const struct uop *store, const struct uop *sum,
                 struct matrix_product *p, const char **why);
/* Whether the device's instruction for rows of 16 bytes (ldmatrix) loads the row's factor: a tile
 * of such rows, along k or along the other coordinate, `stride` elements apart. */
bool matrix_is_by_rows(const struct tgc *t, const struct matrix_row *r, enum matrix_part part,
                       bool along_k, int64_t stride);
/* The AST with sums by matrix instructions as sums of tiles, in the loops around the last one, and
 * with offsets in panels. A thread's elements stay lanes of its sums. */
struct uop *matrix_linear_ast(struct tgc *t, const struct uop *ast);

#endif
