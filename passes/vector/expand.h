/* expand.h - private to expand.c and strip.c: a linear program on its way from lanes to vectors. */
#ifndef TGC_EXPAND_H
#define TGC_EXPAND_H

#include "passes/analysis/rule_facts.h"
#include "passes/kernel/tile.h"

/* An accumulator with lanes: one of its own for each of their values. */
struct accs {
    const struct uop *acc;
    struct uop **each;
    const struct uop *weights;   /* sums of bytes less DOT_MIDDLE: the load of the others */
    struct uop **less;           /* sums of -DOT_MIDDLE times the weights, that they all lack */
};

/* A lane's loop, and where in it we are; lanes nest as deep as tiles have kinds of them. */
struct lane { int begin, end; int64_t now, size; };

/* A vector that is stored with its lanes apart, beside those of other rows: see cross.c. */
struct crossed { const struct uop *store; int64_t tile; struct uop *value; };

/* What is computed and in scope, in order; NULL: where a scope begins. Set known.t. */
struct scopes { struct uop_map known; struct uop **u; int n; size_t cap; };

struct expander {
    struct tgc *t;
    const struct isa_info *isa;
    struct uop *const *in; int nin;
    struct uop **out; int nout; size_t cap;
    struct uop_map value;        /* uop of `in` -> uop of `out`; a lane -> its value now */
    struct uop_map stride; /* offset of `in` -> how it grows along the vector's lane, biased */
    struct scopes scopes;        /* of `out` */
    struct accs *accs; int naccs; size_t cap_accs;
    struct uop *vector;          /* the vector's lane that is open, or NULL */
    int lanes;
    struct uop *group;           /* the group of bytes that is open, or NULL */
    const struct uop *guard;     /* the condition of a store that asks for a part of the lanes */
    int part;                    /* how many */
    int tail;                    /* so many lanes of the vector are left of a loop; 0: all */
    struct lane lane[8]; int depth;
    struct crossed *crossed; int ncrossed; size_t cap_crossed;
    int nguard;                  /* conditions that are open, but for those of lanes */
    bool lazy;                   /* values are computed where a store needs them */
    int next_acc;
    struct rule_facts facts;
};

void expand_push(struct expander *e, struct uop *u);
/* A loop opens, or a guard; what is computed inside is forgotten when it closes. */
void expand_enter(struct expander *e);
void expand_leave(struct expander *e);
/* Computes u, and whatever it is made of that is not known yet: folding makes new sums. */
void expand_need(struct expander *e, struct uop *u);
/* What stands for a uop of `in` now. */
struct uop *expand_value_of(struct expander *e, struct uop *u);
struct uop *expand_splat(struct expander *e, struct uop *u, int lanes);
/* idioms.c: a*b + c for a product that is added, else u */
struct uop *expand_fuse_product(struct expander *e, struct uop *u);
/* The same for vectors, and all else that is one operation on them. */
struct uop *expand_fuse_vector(struct expander *e, struct uop *u);
/* One uop of `in`, along the vector's lane that is open. */
void expand_one(struct expander *e, struct uop *u);
/* The index of the END that closes the loop at `at`. */
int expand_find_end(const struct expander *e, int at);

void scopes_enter(struct scopes *s);
void scopes_leave(struct scopes *s);
void scopes_learn(struct scopes *s, struct uop *u);
/* A store to the place: loads from there may read something else now. */
void scopes_forget_loads(struct scopes *s, const struct uop *place);

/* prefetch_panel.c: PREFETCH behind the loop that was opened at `at`, if it reads a panel of
 * weights that others have read before. */
void expand_panel(struct expander *e, int at);
/* transpose_store.c: u stores e->lanes apart, `part` of them (0: all) at `place`. true: it is,
 * or will be, as a column of a block of rows that are neighbours in memory. */
bool cross_store(struct expander *e, const struct uop *u, struct uop *place, struct uop *value,
                 int part, int64_t stride);
/* byte_lookup.c: a loop that reads a table of bytes, by bytes; nothing else stands in it. */
struct lookup {
    const struct uop *table;
    struct uop *key;
}; /* the table's LOAD, that of its key */
bool lookup_find(const struct expander *e, int begin, int end, struct lookup *l);
/* One uop of it, along a vector of e->lanes bytes; false: it is expanded as any other. */
bool lookup_expand(struct expander *e, const struct lookup *l, struct uop *u);
/* regroup_bytes.c: a loop that stores bytes anew in groups: `inner` is the one of four bytes,
 * which lie `step` apart; NULL: the loop is that one itself. */
struct groups { struct uop *load, *inner; int64_t step; int lanes, bytes; };
bool groups_find(const struct expander *e, int begin, int end, struct groups *g);
/* One uop of it, g->lanes iterations at once; false: it is expanded as any other. */
bool groups_expand(struct expander *e, const struct groups *g, struct uop *u);
/* strip.c: the loop at `at`, if vectors can run along it: as many strips of vectors as there are,
 * then the rest; *at becomes its END. false: nothing was done. */
bool strip_loop(struct expander *e, int *at);

#endif
