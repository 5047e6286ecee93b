/* tile.h - private to choose_tile.c, optimize.c, tile.c: a loop nest with one reduction, and how
 * it is tiled.
 *
 * Columns are what vectors run along, rows reuse them:
 *
 *      range r of n columns = panel q · part s · block b · lane v      P = columns of a panel
 *      range of rows        = tile · row
 *
 * Where a panel has more lanes than there are columns, loads and the store are conditional on the
 * column.
 *
 *      for q  for s  for tile             acc[row][b] = 0
 *                      for k              acc[row][b] += a[tile, row, k] * w[q, k, s, b, v]
 *
 * A weight is stored panel by panel, in the order in which it is read. Variants of a kernel have
 * tiles of their own, but one panel, so that they share the stored weight.
 */
#ifndef TGC_TILE_H
#define TGC_TILE_H

#include "passes/analysis/access.h"
#include "passes/passes.h"

enum { MAX_LOADS = 96, VECTOR_STRIDE_MAX = 1 << 30 };
/* So many rows that are neighbours in memory are worth being stored by their columns, see
 * cross.c. */
enum { CROSS_ROWS_MIN = 4 };

/* Some of a nest's operands: bit i of all is load[i]. */
struct operands { uint64_t bit[(MAX_LOADS + 63) / 64]; };
static inline bool operands_has(struct operands o, int i) { return o.bit[i / 64] >> i % 64 & 1; }
bool operands_any(struct operands o);
bool operands_equal(struct operands a, struct operands b);
bool operands_within(struct operands a, struct operands b);       /* all of a are of b */

/* A range as a nest's operands see it. What changes all of them is a batch; streamed ones alone,
 * rows; stationary ones alone, columns. */
struct nest_axis {
    const struct uop *range;
    struct operands reads;       /* their offsets change with it */
    struct operands varies;      /* these, or what a stage that they read keeps */
    bool stages;                 /* what some stage keeps changes, of whatever load */
};

enum { MAX_NEST_AXES = 40 };
struct nest {
    struct tgc *t;
    struct uop *store;
    int first;                   /* store->src[first..]: its ranges, but for a band's */
    struct uop *reduce;          /* the innermost reduction, or NULL */
    bool contraction;            /* a sum of products with several operands */
    bool bytes;                  /* of bytes, its innermost range is a group */
    bool staged;                 /* within a kernel: its weights are not packed */
    struct uop *load[MAX_LOADS]; int nload;     /* under the reduction */
    struct uop *other[MAX_LOADS]; int nother;   /* not under it */
    struct uop *part;            /* the range s, once there is one */
    struct operands operands, stationary;       /* all of load[]; those that no run changes */
    /* the store's ranges and the reduction's, outermost first, as far as they go in here */
    struct nest_axis axis[MAX_NEST_AXES]; int naxis;
};

/* Where the loop over panels stands: where the columns' was, or first, or behind the rows'. */
enum panels { PANELS_THERE, PANELS_OUTSIDE, PANELS_INSIDE };

/* axis: of store->src, -1: none. vector 0: lanes stay loops, and `columns` of them are one. */
struct tile {
    int column_axis, row_axis;
    int64_t panel, columns, rows;
    int vector;
    enum panels panels;
    double gain;
};

/* What root is made of, sources first; what is under a STAGE is another nest's. In scratch
 * memory. */
struct uop **nest_order(struct tgc *t, struct uop *root, int *n);
/* The nest of a store; false if lanes cannot go through it: several reductions side by side, a
 * condition on the store. */
bool nest_find(struct tgc *t, struct uop *store, struct nest *m);
/* The axis of a range, of the nest or not: known since nest_find() of its own ranges. */
struct nest_axis nest_axis(const struct nest *m, const struct uop *r);
/* Whether a load could read its weight in the order of the loops. */
bool nest_is_packable(const struct nest *m, const struct uop *load);

/* Whether vectors of it can be loaded: floats, and what is cast to floats on the way. */
bool tile_is_vector_dtype(enum dtype d);
/* Whether u compares places that change by one along r, or stand still: vectors do that, too. */
bool tile_compares_places(struct tgc *t, const struct uop *u, struct uop *r);
/* Whether vectors have this operation. */
bool tile_is_vector_op(const struct uop *u);

/* choose.c. The size of a range, 0 where only the run knows it. */
int64_t range_fixed_size(const struct uop *range);
/* Whether vectors can run along r: everything that varies with it is a float, read side by side,
 * and has an operation on vectors; r itself is used in offsets only. */
bool nest_vectors_fit(const struct nest *m, struct uop *r);
/* Whether a load that runs along r is conditional already, or of small elements: no part of it can
 * be loaded. */
bool nest_has_gates(const struct nest *m, const struct uop *r);
/* The tile that is best by the cost model; column_axis -1: none suits. `like`: a variant's tile,
 * whose panel is to be kept, or NULL. exact: no columns may be left over for a store of their
 * own. */
struct tile tile_choose_vectors(const struct nest *m, enum isa isa,
                                const struct tile *like, bool exact);
/* The tile of a kernel's nest: of vectors, or of the portable kernel, where they do not suit. It is
 * a choice that can be tuned, of the kernel's store number `nest`; NULL: it is not. */
struct tile tile_choose(const struct nest *m, enum isa isa, const struct tile *like,
                        struct kernel *k, int nest);

/* Whether u is the value of the store, a float that is cast to a byte. */
bool tile_stores_small(const struct uop *store, const struct uop *u);
/* Whether vectors of the store's value can be stored: of floats, i32, floats that become bytes. */
bool tile_stores_vectors(const struct uop *store);

/* How many columns whole tiles leave over; more than that, where vectors of what is left cannot be
 * loaded in part: some are stored twice then, so that all vectors are whole. */
int64_t tile_columns_left(const struct nest *m, const struct tile *tile);
/* Where a tile's panels had best be: outside of the rows, or inside? */
enum panels tile_place_panels(const struct nest *m, const struct tile *tile);
/* Two stores: the first `at` of range `axis` of store->src, and the rest. */
void tile_split(struct tgc *t, struct uop *store, int axis, int64_t at, struct uop **first,
                struct uop **rest);
/* split_ranges.c: the store, its ranges that are divided taken apart, as up to PARTS_MAX stores;
 * returns their number. */
enum { PARTS_MAX = 6 };
int divide_ranges(struct tgc *t, struct uop *store, struct uop **part);
/* The same with the ranges of the store's sum of products, where they divide exactly. */
struct uop *divide_sums(struct tgc *t, struct uop *store);
/* The store with its ranges split; what was done is noted in opt. */
struct uop *tile_apply(struct nest *m, const struct tile *tile, struct variant *v);
/* A panel of fewer columns than its vectors have lanes: the lanes left over do nothing. To be done
 * last, since weights are stored without them. */
struct uop *tile_fill_vectors(struct nest *m, const struct tile *tile, struct uop *store);
/* UNROLL: the store's range r becomes a lane. */
struct uop *tile_unroll(struct tgc *t, struct uop *store, struct uop *r, struct variant *v);
/* byte_groups.c: whether the nest's sum is one of products of u8 values and i8 weights; their
 * loads. */
bool nest_sums_bytes(const struct nest *m, struct uop **values, struct uop **weights);
/* The innermost range of a sum of products of bytes becomes groups of DOT_BYTES. */
struct uop *tile_group_bytes(struct tgc *t, struct uop *store);
/* merge_clamps.c: the store of a byte with fewer roundings and clamps on the way. */
struct uop *tile_fold_clamps(struct tgc *t, struct uop *store);
/* gather.c: the store with those ranges inside of the innermost one that do not change at which
 * places, which are data, it reads; first: of its ranges. */
struct uop *tile_order_gathers(struct tgc *t, struct uop *store, int first);
/* pack_keys.c: PACK at run time, for what attention's scores are made of. Scratch joins the
 * kernel's. */
struct uop *keys_pack(struct tgc *t, struct kernel *k, struct uop *store);
/* How far apart rows of so many elements lie in scratch. */
int64_t scratch_pitch(const struct tgc *t, int64_t nelem);
/* share_stages.c: rows that go through the store's stages together, as up to two stores; returns
 * their number. Scratch joins the kernel's. */
int rows_share_stages(struct tgc *t, struct kernel *k, struct uop *store, struct uop **part);
/* gather_rows.c: what is read at places that are data, by vectors of neighbours, and stored in another
 * order, as up to GATHER_PARTS_MAX stores; returns their number. Scratch joins the kernel's. */
enum { GATHER_PARTS_MAX = 2 };
int gather_rows(struct tgc *t, struct kernel *k, struct uop *store, struct uop **part);
/* stage_places.c: a value that is made of rows at places which are data, with what such places are, and
 * what else is the same along the row, computed for all points at once; whether there is anything
 * that is worth it. Scratch joins the kernel's. */
bool has_places(struct tgc *t, struct uop *value, struct uop *point, struct uop *row);
struct uop *stage_places(struct tgc *t, struct kernel *k, struct uop *value, struct uop *point,
                         struct uop *row);
/* Scratch of n elements that joins the kernel's. */
struct buffer *kernel_new_scratch(struct tgc *t, struct kernel *k, enum dtype d, int64_t n);
/* A STAGE as the nest of a store to its scratch, and back. */
struct uop *stage_as_store(struct tgc *t, const struct uop *stage);
struct uop *store_as_stage(struct tgc *t, const struct uop *store);
/* PACK: weights are read in the order of the tiles, from copies that the kernel's variants
 * share. */
struct uop *tile_pack(struct tgc *t, struct kernel *k, struct variant *v, struct uop *store);

#endif
