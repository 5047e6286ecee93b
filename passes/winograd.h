/* winograd.h - private to winograd.c, winograd_cost.c and cook_toom.c: a convolution's tiles. */
#ifndef TGC_WINOGRAD_H
#define TGC_WINOGRAD_H

#include "passes/passes.h"

enum { SIDES_MAX = 2, TAPS_MAX = 9, TILE_SIDE_MAX = 6, SIDE_MAX = 10, PLACES_MAX = 64 };

/* ---------------------------------------------------------------------------------- cook_toom.c */
struct matrix { int nrow, ncol; double at[SIDE_MAX][SIDE_MAX]; };
/* m outputs of a filter of `taps` from n inputs; B^T, G, A^T */
struct transform { int m, taps, n; struct matrix input, weight, output; };

/* needs: m + taps - 1 is 4, 6, 8 or 10 */
void transform_make(struct transform *f, int m, int taps);
/* out = a[0] x, or a[0] x a[1]^T; x[p][q] at p * columns + q. */
void transform_apply(struct tgc *t, const struct matrix *const *a, int nside,
                     struct uop *const *x, struct uop **out);

/* ----------------------------------------------------------------------------------- winograd.c */

/* An axis of x that is walked by windows: output o and tap k are at stride * o + dilation * k. */
struct window { int axis, out, tap; int64_t size, taps, begin, stride, dilation; };

/* A convolution. Axes of `product` are its axes; roles of those of size 1 do not matter. */
struct layer {
    struct tgc *t;
    struct uop *reduce, *product;
    struct uop *x, *weight;              /* under the windows; the product's other operand */
    struct uop *pad[2 * MAX_RANK];       /* of x: lo, hi per axis */
    struct uop *range[MAX_RANK];         /* of the product's axes; 0 where the size is 1 */
    bool of_x[MAX_RANK], of_weight[MAX_RANK];
    struct window window[MAX_RANK]; int nwindow;
    int part[MAX_RANK][4], npart[MAX_RANK]; /* per axis of x: the product's axes it is made of */
    const struct window *side[SIDES_MAX]; int nside;         /* windows that tiles suit */
};

/* Outputs of a tile along each of the layer's sides; 1: that window stays what it is. */
struct sides { int m[SIDES_MAX]; };

bool layer_is_reduced(const struct layer *l, int axis);
/* How many tiles of m outputs there are along a window: as many for each remainder of the places
 * by the dilation. */
int64_t window_tiles(const struct window *w, int m);

/* An f32 weight whose data is known; for strassen.c, too. */
bool is_float_weight(const struct uop *v);

/* Places that are chosen by an index; for strassen.c, too. i64[.., n, ..], all other axes 1: 0, 1,
 * ... along the axis. */
struct uop *place_index(struct tgc *t, int n, int axis, int ndim);
/* x[lo], ... x[hi - 1] at the places lo, ... hi - 1 of `index`: decisions halve them. */
struct uop *place_select(struct tgc *t, struct uop *index, struct uop *const *x, int lo, int hi);
/* The part of x at the places at[..] of its first `lead` axes, without those axes, but for `keep`
 * of them. */
struct uop *place_part(struct tgc *t, struct uop *x, int lead, const int *at, int keep);

/* --------------------------------------------------------------------------------------- taps.c */

/* How much of a layer's products are with elements of x, not with its border; 1: or it has windows
 * that taps.c leaves alone. */
double taps_share(const struct layer *l);
/* The layer as a sum of one product for each tap, of what the tap reads inside of x. NULL: no tap
 * reads that. needs: taps_share() < 1 */
struct uop *taps_apart(const struct layer *l);

/* ------------------------------------------------------------------------------ winograd_cost.c */

/* Whether there are such tiles of the layer. */
bool sides_fit(const struct layer *l, struct sides s);
/* The tiles by which the layer takes the least time, by a tune file or the cost model. All 1: it is
 * best left alone. */
struct sides sides_choose(const struct layer *l);
/* Whether the layer takes less time tap by tap than by tiles s. */
bool taps_pay(const struct layer *l, struct sides s);

#endif
