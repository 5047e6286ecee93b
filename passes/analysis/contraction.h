/* contraction.h - sums of products by their axes: matrix products, convolutions, attention.
 *
 *      REDUCE(ADD) of MUL(x, w)      x, w: views of the factors' bases
 *
 *      y[n, oc, oy]   = sum over ic, ky  x[n, ic, oy + ky] * w[oc, ic, ky]
 *
 *      n ROW   oc COLUMN   oy ROW   ic SUM   ky TAP                      x streamed, w stationary
 */
#ifndef TGC_CONTRACTION_H
#define TGC_CONTRACTION_H

#include "passes/analysis/stationary.h"

/* The role of an axis of the product. */
enum role {
    ROLE_NONE,                   /* its size is 1, or both factors are invariant along it */
    ROLE_BATCH,                  /* of both factors and the result */
    ROLE_ROW,                    /* of the streamed factor and the result */
    ROLE_COLUMN,                 /* of the stationary factor and the result */
    ROLE_SUM,                    /* reduced */
    ROLE_TAP  /* reduced, and sharing a base coordinate with a row: a window's taps */
};

/* How the product's axes run along one axis of a base, at coordinate
 *      begin + stride[0] * (index along axis[0]) + ...         strides fall
 * n -1: the coordinate is no such sum, or has more terms. whole: they cover the axis, each element
 * once, in row-major order. */
enum { RUN_MAX = 4 };
struct run { int n, axis[RUN_MAX]; int64_t stride[RUN_MAX], begin; bool whole; };

struct factor {
    struct uop *value;           /* the factor in the product */
    struct uop *base;            /* the value of which it is a view, through the allowed moves */
    struct uop *at[MAX_RANK];    /* the base's coordinates as functions of the product's range[] */
    struct uop *valid;           /* bool: the element is of the base, not padding */
    /* the product's axes along which at[a] changes; the union of these */
    uint32_t axes[MAX_RANK], of;
    enum standing standing;      /* standing of the base */
};

struct contraction {
    struct tgc *t;
    struct uop *sum, *product;
    uint32_t reduced;            /* axes of the sum, as bits */
    struct uop *range[MAX_RANK]; /* a RANGE for each of the product's axes; 0 where the size is 1 */
    enum role role[MAX_RANK];
    struct factor factor[2];     /* product->src[0], [1] */
    /* The stationary factor is the one that is known better: the weights. If both are streamed, as
     * queries and keys are, the one with windows is `streamed`; without windows, `stationary` is
     * the one that owns the last axis that belongs to a single factor. */
    int streamed, stationary;
};

/* The MUL that u, a REDUCE, sums, among tensors or in a kernel; NULL: another operation. */
struct uop *summed_product(const struct uop *u);
/* The same, with these moves (enum moves) allowed between the two. */
struct uop *summed_product_behind(const struct uop *u, unsigned moves);
/* Reads u and follows its factors through these moves (enum moves). false: it is no sum of products
 * of two tensors; a sum of squares or of multiples is not one either. */
bool contraction_find(struct tgc *t, struct uop *u, unsigned moves, struct contraction *c);
/* The same in steps, for callers that follow factors through more than movement, and replace `base`
 * by a value of the same shape in between; squares are allowed. */
bool contraction_begin(struct tgc *t, struct uop *u, struct contraction *c);
void factor_follow(struct contraction *c, struct factor *f, unsigned moves);
void contraction_settle(struct contraction *c);

bool contraction_is_reduced(const struct contraction *c, int axis);
/* The product of the sizes of all axes of that role, at the upper bounds. */
double contraction_extent(const struct contraction *c, enum role role);
/* How the product's axes run along one axis of a factor's base. */
struct run contraction_run(const struct contraction *c, const struct factor *f, int axis);

/* The coordinates of v: a RANGE for each axis, 0 where the size is 1. The same sizes give the same
 * uops. */
void axes_range(struct tgc *t, const struct uop *v, struct uop **range);
/* The axes of v along which the base behind these moves changes, as bits. */
uint32_t axes_of_base(struct tgc *t, struct uop *v, unsigned moves);
/* v at index 0 of all axes outside the set: they get size 1. */
struct uop *axes_keep(struct tgc *t, struct uop *v, uint32_t axes);

/* The inverse. */

/* The sum of the products of x and w over the axes of `sum`, with its axis names: another sum of
 * the same form. */
struct uop *contraction_like(struct tgc *t, const struct uop *sum, struct uop *x, struct uop *w);
/* x with the rank and the axes' order of a product: axis a of x is axis of[a] or a part of it; -1:
 * of none, its size is 1. */
struct uop *contraction_arrange(struct tgc *t, struct uop *x, const int *of, int ndim);
/* Builds the sum again from roles and the factors' bases, in a normal form: cut, windows, split
 * axes, the product's order. NULL: a run along a base is neither whole axes, a part nor a
 * window. */
struct uop *contraction_build(const struct contraction *c);

#endif
