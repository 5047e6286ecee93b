/* nest.h - a store's loop nest, the roles of its ranges, and its operands' dependence on them. */
#ifndef TGC_NEST_H
#define TGC_NEST_H

#include "passes/analysis/access.h"
#include "passes/analysis/contraction.h"
#include "passes/passes.h"

enum { MAX_LOADS = 96 };

/* A set of a nest's operands: bit i is load[i]. */
struct operands { uint64_t bit[(MAX_LOADS + 63) / 64]; };
static inline bool operands_has(struct operands o, int i) { return o.bit[i / 64] >> i % 64 & 1; }
bool operands_any(struct operands o);
bool operands_equal(struct operands a, struct operands b);
bool operands_within(struct operands a, struct operands b);       /* a is a subset of b */
struct operands operands_both(struct operands a, struct operands b);       /* in a and in b */

/* How a nest's operands depend on a range. */
struct nest_axis {
    const struct uop *range;
    struct operands reads;       /* operands whose offsets depend on it */
    struct operands varies;      /* these, and operands that read a stage that depends on it */
    bool stages;                 /* some stage depends on it */
    /* Of the store's ranges: BATCH if all operands vary, COLUMN if only columns[] do, else ROW; of
     * the reduction's: TAP if an operand reads the same elements along a row, else SUM. NONE: no
     * operand varies. */
    enum role role;
    bool weights;                /* stationary operands are among those that vary */
};

enum { MAX_NEST_AXES = 40 };
struct nest {
    struct tgc *t;
    struct uop *store;
    int first;                   /* store->src[first..]: its ranges, without a band's */
    struct uop *reduce;          /* the innermost reduction, or NULL */
    int nouter;                  /* reductions around it, as the maximum of a pool is */
    bool contraction;            /* a sum of terms of several operands: products, distances */
    bool grouped;                /* of bytes or bf16; its innermost range is a group */
    const struct uop *weights;   /* if grouped: the operand whose groups are of columns */
    bool staged;                 /* inside a kernel, to scratch: its weights are not packed */
    struct uop *load[MAX_LOADS]; int nload;     /* under the reduction */
    struct uop *other[MAX_LOADS]; int nother;   /* not under it */
    struct uop *part;            /* the range s, if there is one */
    struct operands operands, stationary;       /* all of load[]; the stationary ones */
    /* the operands of the columns: the stationary ones; if there are none, those that vary along
     * the last range that is not of all operands, as keys do */
    struct operands columns;
    /* the store's ranges and the reduction's, outermost first, up to MAX_NEST_AXES */
    struct nest_axis axis[MAX_NEST_AXES]; int naxis;
};

/* The size of a range; 0: known only at run time. */
int64_t range_fixed_size(const struct uop *range);
/* The uops below root, sources first, without those under a STAGE, which are of another nest. In
 * scratch memory. */
struct uop **nest_order(struct tgc *t, struct uop *root, int *n);
/* The nest of a store; false if it cannot have lanes: several independent reductions, a condition
 * on the store. */
bool nest_find(struct tgc *t, struct uop *store, struct nest *m);
/* nest_find(), but the store may have a condition. */
bool nest_find_anywhere(struct tgc *t, struct uop *store, struct nest *m);
/* The nest of one of the store's reductions, whatever else the store computes. false: it has too
 * many operands. */
bool nest_find_sum(struct tgc *t, struct uop *store, struct uop *reduce, struct nest *m);
/* The operands' dependence on a range, of the nest or not: known after nest_find() for its own. */
struct nest_axis nest_axis(const struct nest *m, const struct uop *r);
/* Whether the nest sums products of which a processor's instructions multiply groups; their loads:
 * u8 values and i8 weights; with --math=bf16 on processors bf16, of which the model knows one. */
bool nest_sums_groups(const struct nest *m, struct uop **values, struct uop **weights);
/* Whether these are bytes. */
bool nest_sums_bytes(const struct nest *m, struct uop **values, struct uop **weights);
/* The dtype of a grouped sum's weights; VOID: it is not grouped. */
enum dtype nest_group(const struct nest *m);
/* The store of another value, of the same dtype, at the same place. */
struct uop *store_of_value(struct tgc *t, const struct uop *store, struct uop *value);
/* Splits a store in two: the first `at` of range `axis` of store->src, and the rest. */
void store_split(struct tgc *t, struct uop *store, int axis, int64_t at, struct uop **first,
                struct uop **rest);
/* As store_split(), but the rest begins at `from`, which may be before n: both parts then have the
 * overlap. */
void store_cut(struct tgc *t, struct uop *store, int axis, int64_t n, int64_t from,
               struct uop **first, struct uop **rest);
/* As store_split(), for a range of unknown size: the first part is its whole multiples of n. */
void store_round(struct tgc *t, struct uop *store, int axis, int64_t n, struct uop **first,
                 struct uop **rest);
/* As store_round(), but the second part is the last n iterations, if there are n and some remain;
 * the third is all of them, if there are fewer. */
void store_overlap(struct tgc *t, struct uop *store, int axis, int64_t n, struct uop **part);

#endif
