/* contraction.h - sums of products by their axes: matrix products, convolutions, attention.
 *
 *      REDUCE(ADD) of MUL(x, w)      x, w: views, by movement, of what is multiplied
 *
 *      y[n, oc, oy]   = sum over ic, ky  x[n, ic, oy + ky] * w[oc, ic, ky]
 *
 *      n ROW   oc COLUMN   oy ROW   ic SUM   ky TAP                      x streamed, w stationary
 */
#ifndef TGC_CONTRACTION_H
#define TGC_CONTRACTION_H

#include "passes/analysis/stationary.h"

/* What an axis of the product is. */
enum role {
    ROLE_NONE,                   /* its size is 1, or it repeats: neither factor changes along it */
    ROLE_BATCH,                  /* of both factors and the result */
    ROLE_ROW,                    /* of the streamed factor and the result */
    ROLE_COLUMN,                 /* of the stationary factor and the result */
    ROLE_SUM,                    /* added up */
    ROLE_TAP                     /* added up, and walked together with a row by a window */
};

/* How axes of the product run along one axis of a base: to the place
 *      begin + stride[0] * (place along axis[0]) + ...         strides fall
 * n -1: it is no such sum, or of more axes. whole: in row-major order and all of it, each place
 * once. */
enum { RUN_MAX = 4 };
struct run { int n, axis[RUN_MAX]; int64_t stride[RUN_MAX], begin; bool whole; };

struct factor {
    struct uop *value;           /* as the product has it */
    struct uop *base;            /* what it is a view of, by the moves that may be passed */
    struct uop *at[MAX_RANK];    /* the base's coordinates where the product's are range[] */
    struct uop *valid;           /* bool: whether there is an element of the base, not padding */
    uint32_t axes[MAX_RANK], of; /* the product's axes along which at[a] changes; any of them */
    enum standing standing;      /* the base's */
};

struct contraction {
    struct tgc *t;
    struct uop *sum, *product;
    uint32_t reduced;            /* axes */
    struct uop *range[MAX_RANK]; /* of the product's axes; 0 where the size is 1 */
    enum role role[MAX_RANK];
    struct factor factor[2];     /* product->src[0], [1] */
    /* The factor that is less known, and the other one: weights. Where both are streamed, as keys
     * and queries are, windows walk the streamed one; without any, stationary is the one to which
     * the last axis belongs that is one's alone. */
    int streamed, stationary;
};

/* The MUL that u, a REDUCE, adds up, among tensors or in a kernel; NULL: it does something else. */
struct uop *summed_product(const struct uop *u);
/* The same with such moves (enum moves) between the two. */
struct uop *summed_product_behind(const struct uop *u, unsigned moves);
/* Reads u, whose factors are followed through such moves (enum moves). false: it is no sum of
 * products of two tensors; nor is a sum of squares, or of multiples. */
bool contraction_find(struct tgc *t, struct uop *u, unsigned moves, struct contraction *c);
/* The same in steps, for factors that are followed through more than movement, in between by their
 * `base`, of one shape with what it was; squares are welcome. */
bool contraction_begin(struct tgc *t, struct uop *u, struct contraction *c);
void factor_follow(struct contraction *c, struct factor *f, unsigned moves);
void contraction_settle(struct contraction *c);

bool contraction_is_reduced(const struct contraction *c, int axis);
/* How many products there are along all axes of that role, at most. */
double contraction_extent(const struct contraction *c, enum role role);
/* How one axis of a factor's base is run along. */
struct run contraction_run(const struct contraction *c, const struct factor *f, int axis);

/* The coordinates of v: a RANGE for each axis, 0 where the size is 1. They are the same uops
 * whenever sizes are. */
void axes_range(struct tgc *t, const struct uop *v, struct uop **range);
/* The axes of v, as a set, along which the base behind such moves changes. */
uint32_t axes_of_base(struct tgc *t, struct uop *v, unsigned moves);
/* v at place 0 of all axes but those of the set: they have size 1. */
struct uop *axes_keep(struct tgc *t, struct uop *v, uint32_t axes);

/* The inverse. */

/* The sum of the products of x and w along the axes of `sum`, whose names they get: another sum of
 * the same form. */
struct uop *contraction_like(struct tgc *t, const struct uop *sum, struct uop *x, struct uop *w);
/* x with the axes of a product of rank ndim: axis a of x is, or is a part of, axis of[a]; -1: of
 * none, its size is 1. */
struct uop *contraction_arrange(struct tgc *t, struct uop *x, const int *of, int ndim);
/* The sum again, from roles and factors' bases, in one form: cut, windows, split axes, the
 * product's order. NULL: a base is not run along by whole axes, parts or windows. */
struct uop *contraction_build(const struct contraction *c);

#endif
