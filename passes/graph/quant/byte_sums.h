/* byte_sums.h - private to byte_sums.c, runtime_products.c, exact_floats.c, byte_table.c and
 * requantize.c: quantized values. */
#ifndef TGC_BYTE_SUMS_H
#define TGC_BYTE_SUMS_H

#include "passes/analysis/contraction.h"
#include "passes/passes.h"

/* Through which bytes can be followed: padding becomes padding with the zero point. */
enum { MOVES_BYTES = MOVES_VIEW | MOVES_ZEROS };

/* One factor: scale * (q - zero), moved. */
struct operand {
    struct uop *q;
    struct uop *zero;            /* i32 of rank 0; NULL: none */
    struct uop *scale;           /* of q's shape, or of rank 0; NULL: none */
    struct path path;            /* on top of the scale */
    uint32_t of;                 /* the product's axes along which it changes */
};

struct sum_of_bytes {
    struct tgc *t;
    struct contraction c;        /* of the bytes, behind their scales and zero points */
    struct uop *reduce, *product;        /* c's */
    struct operand a, w;         /* w: a weight, if one of them is */
    int weight;                  /* w is this one of c's factors */
    bool weighted;
};

/* byte_sums.c */
bool has_padding(const struct operand *o);
/* Operand a as u8, its zero point moved along. */
struct uop *values_as_u8(struct sum_of_bytes *s);
/* x with its axis filled up to a multiple of DOT_BYTES by `value`. */
struct uop *fill_axis(struct tgc *t, struct uop *x, int axis, struct uop *value);
/* The moves on top of x; its axis *axis (-1: none) is x's own instead of what it was, and *axis
 * becomes where it ends up. What is padded is o->zero. NULL: the axis is lost on the way. */
struct uop *move_again(struct tgc *t, const struct operand *o, struct uop *x, int *axis);
/* How many products a sum has. */
double products_of(const struct sum_of_bytes *s);
/* The weight less its zero point, as i8. Where that does not fit, less what makes it i8; *rest is
 * what is left of the zero point. NULL: the zero point is not known. */
struct uop *weight_as_i8(const struct sum_of_bytes *s, int64_t *rest);
/* What depends on weights alone, as a weight; NULL: out of memory's limit. */
struct uop *weights_evaluate(struct tgc *t, struct uop *v);
/* The sums of the weights, one for each column, in dtype d; NULL: out of memory's limit. */
struct uop *weights_sum(const struct sum_of_bytes *s, struct uop *w, enum dtype d);
/* The sum, of dtype d, times the operands' scales, if it is to be a float. */
struct uop *bytes_scale_sum(const struct sum_of_bytes *s, struct uop *sum);

/* runtime_products.c: the sum of products of two run-time values, one of which is stored in
 * groups of bytes; NULL: that does not pay. */
struct uop *product_rewrite_sum(const struct sum_of_bytes *s);

/* exact_floats.c: the sum by floats that hold it exactly; NULL: they do not. */
struct uop *whole_rewrite_sum(const struct sum_of_bytes *s);
/* The largest or least of bytes, as floats, which vectors can compare; NULL: it is none. */
struct uop *whole_rewrite_most(struct tgc *t, struct uop *u);
/* A cast of a whole number to an integer and back; NULL: it is none. */
struct uop *whole_rewrite_cast(struct tgc *t, struct uop *u);

/* byte_table.c: a byte, u, that depends on one byte alone, by a table; NULL: it does not, or
 * that takes longer. */
struct uop *table_rewrite(struct tgc *t, struct uop *u);

/* requantize.c: scaled sums that are scaled anew, u is a cast to a byte; NULL: they are none. */
struct uop *requantize(struct tgc *t, struct uop *u);
/* What bytes stand for, (q - zero) * scale, divided by a constant; NULL: u is no such quotient. */
struct uop *rescale(struct tgc *t, struct uop *u);

#endif
