/* byte_sums.h - private to graph/quant/: quantized values. */
#ifndef TGC_BYTE_SUMS_H
#define TGC_BYTE_SUMS_H

#include "passes/analysis/contraction.h"
#include "passes/passes.h"

/* Movements through which bytes are followed: padding with zeros becomes padding with the zero
 * point. */
enum { MOVES_BYTES = MOVES_VIEW | MOVES_ZEROS };

/* One factor: scale * (q - zero), and its movements. */
struct operand {
    struct uop *q;
    struct uop *zero;            /* i32 of rank 0; NULL: none */
    struct uop *scale;           /* of q's shape, or of rank 0; NULL: none */
    struct path path;            /* the movements, from the product down */
    uint32_t of;                 /* the product's axes along which it varies */
};

struct sum_of_bytes {
    struct tgc *t;
    struct contraction c;        /* of the bytes, without their scales and zero points */
    struct uop *reduce, *product;        /* c's */
    struct operand a, w;         /* w: a weight, if one of them is */
    int weight;                  /* which of c's factors w is */
    bool weighted;
};

/* byte_sums.c */
bool has_padding(const struct operand *o);
/* Whether the sum is one of matrices that the device's instructions for bytes are made for. */
bool bytes_suit_matrices(const struct sum_of_bytes *s);
/* Operand a as u8, or as the device multiplies it by i8, its zero point moved along. */
struct uop *values_as_bytes(struct sum_of_bytes *s);
/* x with its axis padded to a multiple of DOT_BYTES by `value`. */
struct uop *fill_axis(struct tgc *t, struct uop *x, int axis, struct uop *value);
/* Applies the moves to x, with padding by o->zero. x's axis *axis (-1: none) may have another size
 * than before; *axis becomes its index in the result. NULL: the axis is merged with others. */
struct uop *move_again(struct tgc *t, const struct operand *o, struct uop *x, int *axis);
/* The number of products in a sum. */
double products_of(const struct sum_of_bytes *s);
/* The weight less its zero point, as i8. If that does not fit, a part of the zero point is
 * subtracted, and *rest is the other part. NULL: the zero point is not known. */
struct uop *weight_as_i8(const struct sum_of_bytes *s, int64_t *rest);
/* Evaluates a value of weights alone to a weight; NULL: over the memory limit. */
struct uop *weights_evaluate(struct tgc *t, struct uop *v);
/* The sums of the weights, one for each column, in dtype d; NULL: over the memory limit. */
struct uop *weights_sum(const struct sum_of_bytes *s, struct uop *w, enum dtype d);
/* The sum, of dtype d, times the operands' scales, if the result is a float. */
struct uop *bytes_scale_sum(const struct sum_of_bytes *s, struct uop *sum);

/* runtime_products.c: the sum of products of two run-time values, one of which is regrouped; NULL:
 * that does not pay. */
struct uop *product_rewrite_sum(const struct sum_of_bytes *s);

/* exact_floats.c: the sum in floats, if they are exact; else NULL. */
struct uop *whole_rewrite_sum(const struct sum_of_bytes *s);
/* A maximum or minimum of bytes, as floats, which vectors can compare; NULL: it is none. */
struct uop *whole_rewrite_most(struct tgc *t, struct uop *u);
/* A cast of an integer-valued float to an integer and back; NULL: it is none. */
struct uop *whole_rewrite_cast(struct tgc *t, struct uop *u);

/* byte_table.c: a byte, u, that is a function of one byte, by a table; NULL: it is none, or
 * slower. */
struct uop *table_rewrite(struct tgc *t, struct uop *u);

/* requantize.c: merges the scales of a scaled sum whose cast to a byte u is; NULL: there is
 * none. */
struct uop *requantize(struct tgc *t, struct uop *u);
/* A scaled sum of products divided by a constant; NULL: u is no such quotient. */
struct uop *rescale(struct tgc *t, struct uop *u);

#endif
