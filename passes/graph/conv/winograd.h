/* winograd.h - private to graph/conv/: a convolution's tiles. */
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
/* The variance of an output's rounding relative to that of a place's. */
double transform_noise(const struct transform *f);
/* out = a[0] x, or a[0] x a[1]^T; x[p][q] at p * columns + q. */
void transform_apply(struct tgc *t, const struct matrix *const *a, int nside,
                     struct uop *const *x, struct uop **out);

/* ----------------------------------------------------------------------------------- winograd.c */

/* An axis of x that is read in windows: output o and tap k are at stride * o + dilation * k. There
 * are dim outputs, at most `size`; open: only the run knows how many. */
struct window {
    int axis, out, tap;
    struct uop *dim;
    int64_t size, taps, begin, stride, dilation;
    bool open;
};

/* A convolution. Axes are those of `product`; roles of axes of size 1 do not matter. */
struct layer {
    struct tgc *t;
    struct contraction c;
    struct uop *reduce, *product;        /* c's */
    struct uop *x, *weight;              /* under the windows; the product's other operand */
    struct uop *pad[2 * MAX_RANK];       /* of x: lo, hi per axis */
    uint32_t of_x, of_weight;            /* the product's axes along which they vary */
    struct window window[MAX_RANK]; int nwindow;
    int part[MAX_RANK][4], npart[MAX_RANK]; /* per axis of x: the product's axes that make it up */
    const struct window *side[SIDES_MAX]; int nside;         /* windows with tiles */
};

/* Outputs of a tile along each of the layer's sides; 1: no tiles along that window. apart: one
 * product for each tap instead, see separate_taps.c. */
struct sides { int m[SIDES_MAX]; bool apart; };

bool layer_is_reduced(const struct layer *l, int axis);
/* Tiles of m outputs along a window, at most; each remainder modulo the dilation has as many. */
int64_t window_tiles(const struct window *w, int m);

/* For strassen.c, too. The part of x at the indices at[..] of its first `lead` axes; of these axes,
 * `keep` are kept with size 1. */
struct uop *place_part(struct tgc *t, struct uop *x, int lead, const int *at, int keep);

/* ------------------------------------------------------------------------------ separate_taps.c */

/* The share of a layer's products that read elements of x and not its border; 1: also if it has
 * windows that separate_taps.c does not handle. */
double taps_share(const struct layer *l);
/* The layer as a sum of one product for each tap, over what the tap reads inside x. NULL: no tap
 * reads anything. needs: taps_share() < 1 */
struct uop *taps_apart(const struct layer *l);

/* The layer of which u is the sum; false: it is none. */
bool layer_find(struct tgc *t, struct uop *u, struct layer *l);

/* ---------------------------------------------------------------------------- winograd_budget.c */

/* The choice for each layer, within the budget of --error; indexed as `order`, the graph's uops,
 * sources first. */
struct plan { struct uop **order; int norder; struct weighed **layer; };
struct plan winograd_plan(struct tgc *t, const struct graph *g, conv_cost *cost);

/* ------------------------------------------------------------------------------ winograd_cost.c */

/* Whether there are such tiles of the layer. */
bool sides_fit(const struct layer *l, struct sides s);
/* The candidates of a layer; the first is no tiles (all 1), which has the least error. */
enum { SIDES_LIST_MAX = 17 };
struct weighed {
    struct uop *sum;             /* the layer's sum, before any rewrite */
    struct sides list[SIDES_LIST_MAX]; int n;
    double ns[SIDES_LIST_MAX];
    double worth[SIDES_LIST_MAX]; /* time, with a penalty for risks of a choice */
    double bytes[SIDES_LIST_MAX]; /* that its weights take more than the model's */
    /* the variance of the rounding that the choice adds, relative to the sum of the squares of the
     * terms */
    double noise[SIDES_LIST_MAX];
    double gain;                 /* see error_gains() */
    int taken, model;            /* the choice, and the cost model's choice */
    const struct tuned *by;      /* the line of a tune file that chose `asked`; NULL: none did */
    int asked;
    uint64_t key; const char *title;     /* set with t->tuning */
};
/* Fills w; model: the least time by the machine, or by `cost` unless that is NULL.
 * beside: see struct conv_work */
void sides_weigh(const struct layer *l, struct weighed *w, conv_cost *cost, double beside);
/* Chooses anew, with a price in nanoseconds for each byte of weights. */
void sides_price(struct weighed *w, double price);
/* DEBUG=2: reports the candidates and the choice. */
void sides_report(const struct layer *l, const struct weighed *w);
/* For tgc tune and info --why. share: this layer's share of the network's error. */
void sides_note(struct tgc *t, const struct weighed *w, double share);
#endif
