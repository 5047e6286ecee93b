/* winograd.h - private to winograd.c, winograd_cost.c and cook_toom.c: a convolution's tiles. */
#ifndef TGC_WINOGRAD_H
#define TGC_WINOGRAD_H

#include "passes/analysis/contraction.h"
#include "passes/passes.h"

struct tuned;

enum { SIDES_MAX = 2, TAPS_MAX = 9, TILE_SIDE_MAX = 6, SIDE_MAX = 10, PLACES_MAX = 64 };

/* ---------------------------------------------------------------------------------- cook_toom.c */
struct matrix { int nrow, ncol; double at[SIDE_MAX][SIDE_MAX]; };
/* m outputs of a filter of `taps` from n inputs; B^T, G, A^T */
struct transform { int m, taps, n; struct matrix input, weight, output; };

/* needs: m + taps - 1 is 4, 6, 8 or 10 */
void transform_make(struct transform *f, int m, int taps);
/* By how much the variance of its rounding is larger than that of the places'. */
double transform_noise(const struct transform *f);
/* out = a[0] x, or a[0] x a[1]^T; x[p][q] at p * columns + q. */
void transform_apply(struct tgc *t, const struct matrix *const *a, int nside,
                     struct uop *const *x, struct uop **out);

/* ----------------------------------------------------------------------------------- winograd.c */

/* An axis of x that is walked by windows: output o and tap k are at stride * o + dilation * k. */
struct window { int axis, out, tap; int64_t size, taps, begin, stride, dilation; };

/* A convolution. Axes of `product` are its axes; roles of those of size 1 do not matter. */
struct layer {
    struct tgc *t;
    struct contraction c;
    struct uop *reduce, *product;        /* c's */
    struct uop *x, *weight;              /* under the windows; the product's other operand */
    struct uop *pad[2 * MAX_RANK];       /* of x: lo, hi per axis */
    uint32_t of_x, of_weight;            /* the product's axes along which they change */
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

/* Places that are chosen by an index; for strassen.c, too. i64[.., n, ..], all other axes 1: 0, 1,
 * ... along the axis. */
struct uop *place_index(struct tgc *t, int n, int axis, int ndim);
/* x[lo], ... x[hi - 1] at the places lo, ... hi - 1 of `index`: decisions halve them. */
struct uop *place_select(struct tgc *t, struct uop *index, struct uop *const *x, int lo, int hi);
/* The part of x at the places at[..] of its first `lead` axes, without those axes, but for `keep`
 * of them. */
struct uop *place_part(struct tgc *t, struct uop *x, int lead, const int *at, int keep);

/* ------------------------------------------------------------------------------ separate_taps.c */

/* How much of a layer's products are with elements of x, not with its border; 1: or it has windows
 * that separate_taps.c leaves alone. */
double taps_share(const struct layer *l);
/* The layer as a sum of one product for each tap, of what the tap reads inside of x. NULL: no tap
 * reads that. needs: taps_share() < 1 */
struct uop *taps_apart(const struct layer *l);

/* The layer that u is the sum of, if it is one. */
bool layer_find(struct tgc *t, struct uop *u, struct layer *l);

/* ---------------------------------------------------------------------------- winograd_budget.c */

/* What each layer of the graph gets, within what --error leaves: by its place in `order`, the
 * graph's uops, sources first. */
struct plan { struct uop **order; int norder; struct weighed **layer; };
struct plan winograd_plan(struct tgc *t, const struct graph *g);

/* ------------------------------------------------------------------------------ winograd_cost.c */

/* Whether there are such tiles of the layer. */
bool sides_fit(const struct layer *l, struct sides s);
/* What a layer could have: first of all no tiles (all 1), which err least. */
enum { SIDES_LIST_MAX = 16 };
struct weighed {
    struct uop *sum;             /* the layer's, before anything is rewritten */
    struct sides list[SIDES_LIST_MAX]; int n;
    double ns[SIDES_LIST_MAX];
    double worth[SIDES_LIST_MAX]; /* the same with what speaks against a choice */
    /* of the rounding that the choice adds, by the sum of the squares of the terms */
    double noise[SIDES_LIST_MAX];
    double gain;                 /* see error_gains() */
    int taken, model;            /* what is taken, and by the cost model alone */
    const struct tuned *by;      /* the line of a tune file that asked for `asked` */
    int asked;
    uint64_t key; const char *title;     /* with t->tuning */
};
/* taken: the least time by a tune file or the cost model. */
void sides_weigh(const struct layer *l, struct weighed *w);
/* DEBUG=2: what was weighed, and what is taken. */
void sides_report(const struct layer *l, const struct weighed *w);
/* For tgc tune and info --why. share: of the network's error. */
void sides_note(struct tgc *t, const struct weighed *w, double share);
/* Whether the layer takes less time tap by tap than by tiles s. */
bool taps_pay(const struct layer *l, struct sides s);

#endif
