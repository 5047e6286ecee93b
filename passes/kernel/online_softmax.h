/* online_softmax.h - private to online_*.c, mask_bounds.c, grid_attention.c: online softmax,
 * attention by blocks of keys. */
#ifndef TGC_ONLINE_SOFTMAX_H
#define TGC_ONLINE_SOFTMAX_H

#include "passes/plan/plan.h"

/* mask_bounds.c. A condition of scores that compares the key's index with a bound: key < bound if
 * `below`, otherwise key >= bound. */
struct bound { struct uop *cond, *at; bool below, is_apart; };
enum { BOUNDS_MAX = 8 };
/* The keys that a row may see: begin <= key < end; NULL: no limit is known. Keys outside have
 * scores of -inf, whatever the operands are; or, if a mask is finite, of at most its value plus
 * `factor` times the largest magnitude of a dot product of a query and a key. */
struct visible {
    struct bound bound[BOUNDS_MAX]; int nbound;
    struct uop *begin, *end;
    bool is_finite;
    double value, factor;
};
/* Finds what is visible in a row of scores; `key` is their range, `dot` their sum of products. */
void visible_find(struct tgc *t, struct uop *scores, struct uop *key, const struct uop *dot,
                  struct visible *v);
/* The value of the comparison without which the scores are -inf: 0, 1; -1: there is none. */
int visible_value(struct tgc *t, struct uop *scores, const struct uop *dot, struct uop *cond);
/* The maximum or minimum of u over r; NULL: it is not known. */
struct uop *visible_extreme(struct tgc *t, struct uop *u, const struct uop *r, bool most);

/* online_softmax.c */

/* The bands in which something is computed, in order of time: the same for all tiles; for a tile,
 * before its keys; for a pass over the keys; for a block of them; for a tile, after its keys. */
enum level { HEAD, TILE, PASS, KEYS, BEHIND, LEVELS };

struct online {
    struct tgc *t;
    struct uop *store;
    /* of the AST: stages, sums and their ranges */
    struct uop *scores, *power, *most, *sum, *product;
    struct uop *exp;             /* the exponential without its factor */
    double scale;                /* that factor, see defer_division.c; 1: none */
    struct uop *key;             /* the range of a row of scores */
    struct uop *dot;             /* the sum of products in the scores */
    struct uop *query, *keys, *values;      /* factors */
    struct uop *weight, *read;   /* the values' other factor; the load of `power` in it,
                                  * which casts may round */
    struct uop *row;             /* the store's range of queries */
    struct uop *nkey, *nrow;
    struct visible visible;
    /* of the new kernel */
    int64_t rows, group, step, align;       /* see online_shape; a block begins at a multiple of
                                             * align */
    bool whole;
    const struct online_tiles *tiles;       /* NULL: sums are those of single numbers */
    struct uop *valid;           /* of the result's store; NULL: always */
    struct uop *band[MAX_RANK]; int nband;  /* around a tile, with its own range */
    bool has_tiles;              /* the last of them is the tile's, the last but one where heads are
                                  * inside of it */
    bool heads_inside;
    struct uop *tile;            /* the first query of the tile */
    struct uop *begin, *end;     /* keys that the tile sees */
    struct uop *pass;  /* a range of three passes: these keys, those before, those behind */
    /* the range of blocks; a block's first key, and its number of keys */
    struct uop *block, *at, *n;
    int64_t most_keys;           /* upper bound of a block's keys */
    struct stores { struct uop **u; int n; size_t cap; } out[LEVELS];
};

/* How attention is cut: queries of a tile; partial results of a sum over a block's keys; a block's
 * keys, at most, or always as many (whole): then no loop but that over the blocks has a number of
 * turns that only the run knows. */
struct online_shape { int rows, groups, keys; bool whole; const struct online_tiles *tiles; };
/* For instructions that multiply tiles (online_matrix.c): what their factors are, as long as a step
 * of their sums, and a tile's columns, in as many of which a row's sum is kept; the result's
 * columns are whole times `columns`; rows of factors in local memory are `pad` elements longer.
 * direct: threads that have weights have what the second product's instruction takes of them; own:
 * it takes no others. */
struct online_tiles { enum dtype factor; int64_t k, n, columns, pad; bool direct, own; };
/* The AST, of one segment whose stages hold rows of scores and of their exponentials, with blocks
 * of keys; NULL: it is no attention of the known form. */
struct uop *online_blocks(struct tgc *t, struct uop *ast, const struct online_shape *shape);

/* What the forms of the kernel are made of. New scratch; a range, or 0 for one turn, one that is a
 * band, with the names of `like`; one of the tile's queries. */
struct buffer *online_new_scratch(struct online *x, enum dtype d, int64_t n);
struct uop *online_range(struct online *x, struct uop *size, const char *name);
struct uop *online_band(struct online *x, struct uop *size, const struct uop *like);
struct uop *online_rows(struct online *x);
struct uop *online_load(struct online *x, struct buffer *b, struct uop *at);
/* Stores value to b at `at`, over all of the ranges, in the bands of the level; the second: for
 * each of n elements. */
void online_put(struct online *x, enum level level, struct buffer *b, struct uop *at,
                struct uop *value, struct uop *const *range, int nrange);
void online_put_rows(struct online *x, enum level level, struct buffer *b, int64_t n,
                     struct uop *value);
/* u of the AST for the query `row` of the tile, clamped to the last query; and for the key `place`
 * of the block. */
struct uop *online_for_row(struct online *x, struct uop *u, struct uop *row);
struct uop *online_for_key(struct online *x, struct uop *u, struct uop *place, struct uop *row);
/* The scores with comparisons of the key by floats of each query; whether all blocks, or groups,
 * are whole; whether a mask hides what is behind the last key. */
struct uop *online_compare_bounds(struct online *x, struct uop *scores, struct uop *row,
                                  struct uop *key);
/* The scores of visible keys, without the comparisons that hide others from some queries alone.
 * *seen: whether the key is visible; NULL: there are none. Returns also, as *some, whether the
 * block has keys that are not, for any of the tile's queries. */
struct uop *online_hide(struct online *x, struct uop *scores, struct uop *row, struct uop *key,
                        struct uop **seen, struct uop **some);
bool online_is_whole(const struct online *x);
bool online_ends_by_mask(const struct online *x);
/* The store's columns, on which the scores do not depend, and how many elements they have; -1: not
 * as many in each run. */
int online_columns(const struct online *x, struct uop **column, int64_t *n);

/* The range of blocks of keys, for all that the tile sees. */
void online_open_blocks(struct online *x);

/* online_order.c. The store of the AST with its ranges around the queries, the heads, as bands, the
 * first of its ranges. *inside: the last one goes into the loop over tiles of queries. needs: the
 * parts of x->store. */
struct uop *online_open_bands(struct online *x, const struct online_shape *shape, bool *inside);

/* online_matrix.c. The stores of a kernel whose sums of products are of tiles; false: its factors
 * are others. needs: the tile, and whole blocks without passes. */
bool online_put_tiles(struct online *x);

/* online_parts.c. Finds the parts of x->store; false: it is not attention of the known form. */
bool online_parts(struct online *x);
/* The same but for the queries, of which there may be one for each key. */
bool online_sums(struct online *x);
/* The store without stages of a single number, or of a row of conditions, which are computed where
 * they are read. */
struct uop *online_without_conditions(struct tgc *t, struct uop *store);

#endif
