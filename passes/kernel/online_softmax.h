/* online_softmax.h - private to online_softmax.c, online_find.c, mask_bounds.c: attention by
 * blocks of keys. */
#ifndef TGC_ONLINE_SOFTMAX_H
#define TGC_ONLINE_SOFTMAX_H

#include "passes/plan/plan.h"

/* visible.c. A condition of scores that compares the key's place with a bound: key < bound, where
 * `below`, otherwise key >= bound. */
struct bound { struct uop *cond, *at; bool below; };
enum { BOUNDS_MAX = 8 };
/* Which keys a row may see: begin <= key < end; NULL: no limit is known. Keys outside of it have
 * scores of -inf, whatever the operands are; or, where a mask is finite, of no more than its value
 * and `factor` times the largest product of a query and a key, in magnitude. */
struct visible {
    struct bound bound[BOUNDS_MAX]; int nbound;
    struct uop *begin, *end;
    bool is_finite;
    double value, factor;
};
/* Of the scores of a row, `key` being their range, and `dot` their sum of products. */
void visible_find(struct tgc *t, struct uop *scores, struct uop *key, const struct uop *dot,
                  struct visible *v);
/* A limit of what u is while r runs, the most or the least; NULL: none is known. */
struct uop *visible_extreme(struct tgc *t, struct uop *u, const struct uop *r, bool most);

/* online_softmax.c */

/* Inside of which bands something is computed, in the order of time: what is the same for all tiles;
 * a tile's, before its keys; a pass over them, a block of them; a tile's, behind them. */
enum level { HEAD, TILE, PASS, KEYS, BEHIND, LEVELS };

struct online {
    struct tgc *t;
    struct uop *store;
    /* of the AST: stages, sums and their ranges */
    struct uop *scores, *power, *most, *sum, *product;
    struct uop *exp;             /* the power without its factor */
    double scale;                /* that factor, see defer_division.c; 1: none */
    struct uop *key;             /* the range of the row of scores */
    struct uop *dot;             /* the sum of products that scores are made of */
    struct uop *query, *keys, *values;      /* factors */
    struct uop *row;             /* the store's range of queries */
    struct uop *nkey, *nrow;
    struct visible visible;
    /* of the kernel that is made */
    struct uop *band[MAX_RANK]; int nband;  /* around a tile, with its own range */
    bool has_tiles;              /* the last one of them is the tile's */
    struct uop *tile;            /* the first query of the tile */
    struct uop *begin, *end;     /* keys that the tile sees */
    struct uop *pass;            /* a range of three: these keys, those before, those behind */
    struct uop *block, *at, *n;  /* the blocks' range; a block's first key, and how many */
    int64_t most_keys;           /* of a block */
    struct stores { struct uop **u; int n; size_t cap; } out[LEVELS];
};

/* online_parts.c. Finds the parts of x->store; false: it is no attention that is known. */
bool online_parts(struct online *x);
/* The store without stages of one number. */
struct uop *online_without_scalars(struct tgc *t, struct uop *store);

#endif
