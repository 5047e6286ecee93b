/* expand.h - private to expand.c and strip.c: the state while a linear program's lanes become
 * vectors. */
#ifndef TGC_EXPAND_H
#define TGC_EXPAND_H

#include "passes/analysis/rule_facts.h"
#include "passes/kernel/tile.h"

/* An accumulator with lanes: one accumulator for each combination of their values. */
struct accs {
    const struct uop *acc;
    struct uop **each;
    /* sums of centered bytes (less DOT_MIDDLE): the load of the other operand; NULL: not
     * centered */
    const struct uop *weights;
    /* accumulators of the correction term, -DOT_MIDDLE times the sum of the weights */
    struct uop **less;
};

/* A lane's loop and its present value; lanes nest as deep as tiles have kinds of them. */
struct lane { int begin, end; int64_t now, size; };

/* A strided store of a vector, one row of a block that transpose_store.c collects. */
struct crossed { const struct uop *store; int64_t tile; struct uop *value; };

struct expander {
    struct tgc *t;
    const struct isa_info *isa;
    struct uop *const *in; int nin;
    struct uop **out; int nout; size_t cap;
    struct uop_map value;        /* uop of `in` -> uop of `out`; a lane -> its present value */
    struct uop_map stride; /* offset of `in` -> its stride along the vector's lane, biased */
    struct scopes scopes;        /* of `out` */
    struct accs *accs; int naccs; size_t cap_accs;
    struct uop *vector;          /* the vector's lane that is open, or NULL */
    int lanes;
    struct uop *fragment;        /* the rows of a tile that are open, or NULL */
    struct uop *group;           /* the group that is open, or NULL */
    enum dtype summed;           /* the dtype of its sum, VOID if there is none */
    struct uop *groups;          /* the loop over groups around it, of a tile; or NULL */
    const struct uop *guard;     /* the condition of a partial store */
    int part;                    /* the number of lanes that it stores */
    int tail;                    /* lanes of the vector that remain of a loop; 0: all */
    struct lane lane[8]; int depth;
    struct crossed *crossed; int ncrossed; size_t cap_crossed;
    int nguard;                  /* open conditions, except for those of lanes */
    bool lazy;                   /* values are computed only where a store needs them */
    bool apart;                  /* products are rounded before they are added: rounds_one() */
    int next_acc;
    struct rule_facts facts;
};

void expand_push(struct expander *e, struct uop *u);
/* A loop or guard opens; what is computed inside is forgotten when it closes. */
void expand_enter(struct expander *e);
void expand_leave(struct expander *e);
/* Computes u and all operands that are not known yet: folding creates new uops. */
void expand_need(struct expander *e, struct uop *u);
/* expand_need(), if values are computed only where a store needs them, too. */
void expand_compute(struct expander *e, struct uop *u);
/* Appends u of a program that is copied; offsets already computed for the copy's additions are
 * reused. */
void expand_copy(struct expander *e, struct uop *u);
/* The present value of a uop of `in`. */
struct uop *expand_value_of(struct expander *e, struct uop *u);
struct uop *expand_splat(struct expander *e, struct uop *u, int lanes);
/* lane_places.c: turns a comparison of coordinates along the vector into one of floats, by the
 * distance to the coordinate at which it changes. false: u is no such comparison. */
bool expand_places(struct expander *e, struct uop *u);
/* The number of lanes, the first ones, for which a condition holds; *cond: the rest of the
 * condition, equal for all lanes. */
int expand_count_lanes(struct expander *e, struct uop **cond);
/* idioms.c: whether the program quantizes a function of one tensor: one operand that is no weight,
 * and no sum of products. A quotient of former bytes often lies halfway between two integers; an
 * unrounded product would then round differently from the model's operators. */
bool rounds_one(struct uop *const *in, int n);
/* a*b + c for a product that is added, else u */
struct uop *expand_fuse_product(struct expander *e, struct uop *u);
/* expand_fuse_product() for vectors, and for all other fused operations on them. */
struct uop *expand_fuse_vector(struct expander *e, struct uop *u);
/* Expands one uop of `in`, along the vector's lane if one is open. */
void expand_one(struct expander *e, struct uop *u);
/* The index of the END that closes the loop at `at`. */
int expand_find_end(const struct expander *e, int at);

/* transpose_store.c: u stores `part` lanes (0: all) with a stride at `place`. true: it is stored,
 * now or later, as a column of a block of contiguous rows. */
bool cross_store(struct expander *e, const struct uop *u, struct uop *place, struct uop *value,
                 int part, int64_t stride);
/* cross_store() with a stride that only the run knows. No vector has one, so this is always true:
 * blocks have any number of rows. */
bool cross_store_by(struct expander *e, const struct uop *u, struct uop *place, struct uop *value,
                 int part, struct uop *stride);
/* byte_lookup.c: a loop that consists of look-ups in a table of bytes. */
struct lookup {
    const struct uop *table;
    struct uop *key;
}; /* the table's LOAD and the LOAD of its index */
bool lookup_find(const struct expander *e, int begin, int end, struct lookup *l);
/* Expands one uop of it, along a vector of e->lanes bytes; false: as any other loop's. */
bool lookup_expand(struct expander *e, const struct lookup *l, struct uop *u);
/* regroup_bytes.c: a loop that regroups bytes: `inner` is the loop over four bytes, with stride
 * `step`; NULL: the loop itself is. */
struct groups { struct uop *load, *inner; int64_t step; int lanes, bytes; };
bool groups_find(const struct expander *e, int begin, int end, struct groups *g);
/* Expands one uop of it, g->lanes iterations at once; false: as any other loop's. */
bool groups_expand(struct expander *e, const struct groups *g, struct uop *u);
/* tiles.c: a load, a store, a product of tiles: of the rows of e->fragment and the columns of
 * e->vector. */
void tile_load(struct expander *e, struct uop *u);
void tile_store(struct expander *e, const struct uop *u, struct uop *const *src);
struct uop *tile_dot(struct expander *e, struct uop *const *src);
/* Forgets loaded tiles, so that other nests do not reuse them: there are few tile registers. */
void tiles_forget(struct expander *e);
/* strip.c: strip-mines the loop at `at`, if it can be vectorized: as many strips of vectors as
 * there are, then the remainder; *at becomes its END. false: nothing was done. */
bool strip_loop(struct expander *e, int *at);

#endif
