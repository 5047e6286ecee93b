/* matrix.h - sums of products that an instruction of ir/matrix.def computes for a wave. */
#ifndef TGC_MATRIX_H
#define TGC_MATRIX_H

#include "passes/analysis/access.h"
#include "ir/device_ops.h"

/* One of a wave's matrices: its coordinates m, n and k are sums of these ranges, each times a
 * scale. lane: the block's threads within the wave, the innermost of the store's items; element:
 * what a thread holds. Innermost first. */
struct matrix_axis { struct uop *range; enum matrix_coordinate of; int64_t scale; };
enum { MATRIX_AXES_MAX = 16 };
struct matrix_axes { struct matrix_axis v[MATRIX_AXES_MAX]; int n; };

/* The value in memory of which u is the factor of a product that the row multiplies exactly: u
 * itself, or what is cast to u's dtype. NULL: u is no value of that dtype, or none that is loaded,
 * rounded from what is loaded, or computed from that by few operations: quantized weights times
 * their scales. */
struct uop *matrix_factor(struct uop *u, enum dtype d);
/* Whether u is computed from loads of memory by few operations (weights of few bits times their
 * scales) that give a finite number where all of these are 0, as they are beyond a tensor. */
bool matrix_is_finite(const struct uop *u);
/* Whether a copy of the factor computes it; the load that has most elements; whether the load is
 * one of its; how many operations each element takes. */
bool matrix_is_computed(const struct uop *factor);
struct uop *matrix_factor_load(struct uop *factor);
bool matrix_reads(const struct uop *factor, const struct uop *load);
double matrix_computed(const struct uop *factor);
/* The product under the sum: factor[0] is for the row's a, factor[1] for b; which of the two
 * changes with m, or with n: as the caller finds. At most one of them is computed: beyond the sum's
 * terms the other one is 0. false: it is no product of values of the row's dtypes. */
bool matrix_factors(const struct uop *sum, const struct matrix_row *row, bool exchanged,
                    struct uop **factor);

/* Where the element at place `at` of memory in panels lies, of this many bytes: its chunk
 * exchanged. */
struct uop *matrix_swizzled(struct tgc *t, struct uop *at, int64_t size);

/* Whether the lanes that have an element of the row's sums take it as the factor's, the sum's
 * columns as terms: a factor of another product may be sums that are still in registers. */
bool matrix_sums_are_factor(const struct matrix_row *row, enum matrix_part part);
/* Of a sum by the row, the offset in the block's memory of a factor that threads keep in registers,
 * of those of its terms that the thread itself has: the loop k is lanes and *n further ranges,
 * element[], each with the place of its lowest bit in k. NULL: they have others. */
struct uop *matrix_own_terms(struct tgc *t, const struct uop *store, const struct matrix_row *row,
                             enum matrix_part part, struct uop *offset, const struct uop *k,
                             struct matrix_axis *element, int *n);

/* A factor in local memory, a tile of rows of neighbours. Of one in panels the offset is a place
 * before chunks are exchanged. Of one in a thread's registers it is what this has of it: the terms
 * of a row are neighbours. */
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
/* The block's last threads as the lanes of the row's sums; false: they are others. */
bool matrix_find_lanes(const struct matrix_row *row, const struct uop *store,
                       struct matrix_axes *lanes);
/* How the store's sum, which MATRIX has given to a row, is computed by it. false: it is not in the
 * form that the instruction takes; *why says what is missing. */
bool matrix_read(struct tgc *t, const struct uop *store, const struct uop *sum,
                 struct matrix_product *p, const char **why);
/* Whether the row's factor is loaded by the device's instruction for rows of 16 bytes: a tile of
 * such rows, along k or along the other coordinate, these many elements apart. */
bool matrix_is_by_rows(const struct tgc *t, const struct matrix_row *r, enum matrix_part part,
                       bool along_k, int64_t stride);
/* The AST with the sums that instructions of matrix.def compute as such: of tiles, in the loops
 * around the last one. The elements of a thread stay lanes of its sums. */
struct uop *matrix_linear_ast(struct tgc *t, const struct uop *ast);

#endif
