/* online_softmax.h - private to online_*.c, mask_bounds.c, grid_attention.c: online softmax,
 * attention by blocks of keys. */
#ifndef TGC_ONLINE_SOFTMAX_H
#define TGC_ONLINE_SOFTMAX_H

#include "passes/plan/plan.h"

/* mask_bounds.c. A condition of scores that compares the key's index with a bound: key < bound if
 * `below`, otherwise key >= bound. */
struct bound { struct uop *cond, *at; bool below, is_apart; };
enum { BOUNDS_MAX = 8 };
/* The keys that a row may see: begin <= key < end; NULL: no limit is known. Other keys have scores
 * of -inf, whatever the operands are. If a mask is finite, their scores are at most its value plus
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
/* Which value of the comparison makes the scores other than -inf: 0, 1; -1: neither. */
int visible_value(struct tgc *t, struct uop *scores, const struct uop *dot, struct uop *cond);
/* The maximum or minimum of u over r; NULL: it is not known. */
struct uop *visible_extreme(struct tgc *t, struct uop *u, const struct uop *r, bool most);

/* online_softmax.c */

/* The bands in which something is computed, in order of time: once for all tiles; for a tile,
 * before its keys; for a pass over the keys; for a block of them; for a tile, after its keys. */
enum level { HEAD, TILE, PASS, KEYS, BEHIND, LEVELS };

struct online {
    struct tgc *t;
    struct uop *store;
    /* of the AST: stages, sums and their ranges */
    struct uop *scores, *power, *most, *sum, *product;
    struct uop *exp;             /* the exponential without its factor */
    double scale;                /* the factor, see defer_division.c; 1: none */
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
    const struct online_tiles *tiles;       /* NULL: sums are scalar */
    struct uop *valid;           /* of the result's store; NULL: always */
    struct uop *band[MAX_RANK]; int nband;  /* around a tile, with its own range */
    bool has_tiles;              /* the last of them is the tile's, or the last but one if heads
                                  * are inside of it */
    bool heads_inside;
    struct uop *tile;            /* the first query of the tile */
    struct uop *begin, *end;     /* keys that the tile sees */
    struct uop *pass;  /* a range of three passes: these keys, earlier ones, later ones */
    /* the range of blocks; a block's first key, and its number of keys */
    struct uop *block, *at, *n;
    int64_t most_keys;           /* upper bound of a block's keys */
    struct stores { struct uop **u; int n; size_t cap; } out[LEVELS];
};

/* How attention is cut. rows: queries of a tile. groups: partial results of a sum over a block's
 * keys. keys: of a block, at most, or always (whole): then only the loop over blocks has an unknown
 * number of iterations. */
struct online_shape { int rows, groups, keys; bool whole; const struct online_tiles *tiles; };
/* For matrix instructions (online_matrix.c). factor: the dtype of factors; k: their length is a
 * multiple of it, a step. n: columns of a tile, the number of partial sums of a row. columns: the
 * result's columns are a multiple of it. pad: row padding of factors in shared memory. direct:
 * threads hold the weights as the second product takes them; own: it takes no others. */
struct online_tiles { enum dtype factor; int64_t k, n, columns, pad; bool direct, own; };
/* Rewrites the AST of one segment, whose stages hold rows of scores and of their exponentials, to
 * blocks of keys; NULL: it is no attention of the known form. */
struct uop *online_blocks(struct tgc *t, struct uop *ast, const struct online_shape *shape);

/* Helpers of the forms of the kernel. online_new_scratch(): new scratch, by the name of `word`. The
 * others make ranges (0 for one iteration): a plain one, a band with the names of `like`, one of
 * the tile's queries. */
struct buffer *online_new_scratch(struct online *x, enum dtype d, int64_t n, const char *word);
struct uop *online_range(struct online *x, struct uop *size, const char *name);
struct uop *online_band(struct online *x, struct uop *size, const struct uop *like);
struct uop *online_rows(struct online *x);
struct uop *online_load(struct online *x, struct buffer *b, struct uop *at);
/* Stores value to b at `at`, over all of the ranges, in the bands of the level; online_put_rows():
 * for each of n elements. */
void online_put(struct online *x, enum level level, struct buffer *b, struct uop *at,
                struct uop *value, struct uop *const *range, int nrange);
void online_put_rows(struct online *x, enum level level, struct buffer *b, int64_t n,
                     struct uop *value);
/* u of the AST for the query `row` of the tile, clamped to the last query; and for the key `place`
 * of the block. */
struct uop *online_for_row(struct online *x, struct uop *u, struct uop *row);
struct uop *online_for_key(struct online *x, struct uop *u, struct uop *place, struct uop *row);
/* online_compare_bounds(): the scores with keys compared as floats, with a bound for each query.
 * online_is_whole(): whether all blocks, or groups, are whole. online_ends_by_mask(): whether a
 * mask hides keys after the last one. */
struct uop *online_compare_bounds(struct online *x, struct uop *scores, struct uop *row,
                                  struct uop *key);
/* The scores of visible keys, without comparisons that hide keys from only some queries. *seen: the
 * condition that the key is visible; NULL: there are no such comparisons. *some: the condition that
 * the block has hidden keys for any of the tile's queries. */
struct uop *online_hide(struct online *x, struct uop *scores, struct uop *row, struct uop *key,
                        struct uop **seen, struct uop **some);
bool online_is_whole(const struct online *x);
bool online_ends_by_mask(const struct online *x);
/* The store's columns, in which the scores are invariant, and their number of elements; -1: it is
 * unknown. */
int online_columns(const struct online *x, struct uop **column, int64_t *n);

/* The range of blocks of keys, for all that the tile sees. */
void online_open_blocks(struct online *x);

/* online_order.c. Opens the bands of the store's ranges around the queries (the heads); returns the
 * store with them. *inside: the last one goes inside the loop over tiles of queries. needs: the
 * parts of x->store. */
struct uop *online_open_bands(struct online *x, const struct online_shape *shape, bool *inside);

/* online_matrix.c. Writes the stores of a kernel by matrix instructions; false: its factors do not
 * fit. needs: the tile, and whole blocks without passes. */
bool online_put_tiles(struct online *x);

/* online_parts.c. Finds the parts of x->store; false: it is not attention of the known form. */
bool online_parts(struct online *x);
/* As online_parts(), but without the queries, of which there may be one for each key. */
bool online_sums(struct online *x);
/* The store with stages of a single number, or of a row of conditions, inlined. */
struct uop *online_without_conditions(struct tgc *t, struct uop *store);

#endif
