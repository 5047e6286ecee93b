/* opts_work.h - private to opts*.c and pack.c: a kernel's AST while opts change it
 * (opts_work.c). */
#ifndef TGC_OPTS_WORK_H
#define TGC_OPTS_WORK_H

#include "passes/kernel/tile.h"

enum { RANGES_MAX = 64, BLOCK_MAX = 256, ITEMS_MAX = 512 };

/* The loops of a nest while opts change them. */
struct open {
    struct uop *store;           /* the nest as it was: a store, or a stage as one; NULL: none */
    struct uop *stage;           /* NULL: it is the store itself */
    int at;                      /* which store of the AST */
    enum opt_of of;
    int number;
    int first;                   /* store->src[first..]: its ranges */
    struct uop *range[RANGES_MAX + 4]; int n;
    struct uop *was[RANGES_MAX + 4];       /* the range of the nest that range[i] is a part of */
    struct uop *from[RANGES_MAX], *to[RANGES_MAX]; int nsubstitution;
};

struct work {
    struct tgc *t;
    struct kernel *kernel;
    struct uop *ast;
    struct open open;
    bool stores_twice;
    int block;                   /* the kernel's, then */
    bool is_placed;              /* loops are places of a grid, or a block's threads */
    const char *why;
};

/* Says why; false. */
bool work_refuse(struct work *w, const char *why);
/* The AST with n stores in the place of one. */
void work_put_stores(struct work *w, int at, struct uop *const *store, int n);
/* Builds the nest that is open, if one is. */
void work_close(struct work *w);
/* The range of the opt's axis, in a nest that is open then. false: the nest has no such loop, or it
 * may not be divided or become something else. */
bool work_take_range(struct work *w, const struct opt *opt, struct uop **range);
/* The same of a loop that has as many turns in each run. */
bool work_take_axis(struct work *w, const struct opt *opt, struct uop **range, int64_t *size);
/* In the open nest. A range that is constant, since it has one turn, is left out. */
void work_remove_range(struct open *o, int at);
void work_insert_range(struct open *o, int at, struct uop *r, struct uop *was);
/* Opens the nest that the opt is about. */
bool work_open(struct work *w, const struct opt *opt);
int work_loops_before_lanes(const struct open *o);
/* The loop number `at` is run by the worker. */
void work_give(struct work *w, int at, enum worker worker);
/* r, one of the open nest's or one that has come since, is `by`. */
void work_substitute(struct work *w, const struct uop *r, struct uop *by);
/* A loop of n turns; the constant 0 for one. */
/* New memory for a STAGE. */
struct buffer *work_new_memory(struct work *w, enum dtype d, int64_t nelem, enum space space);
/* The same of a STAGE in local memory that becomes another one's: as large, and its
 * copies come as those do. */
struct buffer *work_copy_memory(struct work *w, const struct buffer *was);
struct uop *work_new_range(struct tgc *t, int64_t n, enum axis a);

/* The threads of a block that run the store, by its ITEM ranges. */
int64_t work_items(const struct uop *store);
/* The store's part number `number` of this op, sources first; NULL: it has no such one. */
struct uop *work_find(struct work *w, struct uop *store, enum op op, int number);
/* The sum of the opt, and whether it has a loop `axis` that is no group. */
bool work_take_sum(struct work *w, const struct opt *opt, int axis, struct uop **sum);
/* Whether the sum is a term of another one, and changes with its loops. */
bool work_is_of_sum(struct work *w, struct uop *store, struct uop *sum);
/* The innermost stage whose nest has the sum; NULL: it is the store's. */
struct uop *work_stage_of(struct work *w, struct uop *store, const struct uop *sum);
/* Whether something is divided that depends on r and is more than r. */
bool work_is_divided(struct tgc *t, struct uop *u, const struct uop *r);
/* Whether a division tells turns of the merged loop r apart. */
bool work_is_split_again(struct tgc *t, struct uop *u, const struct uop *r);
void work_name_like(struct tgc *t, struct uop *u, const struct uop *from);

/* opts_store.c */
bool apply_divide_sum(struct work *w, const struct opt *opt);
bool apply_merge_sum(struct work *w, const struct opt *opt);
bool apply_terms(struct work *w, const struct opt *opt);
bool apply_order_sum(struct work *w, const struct opt *opt);
bool apply_decide(struct work *w, const struct opt *opt);
bool apply_stage(struct work *w, const struct opt *opt);
bool apply_rows(struct work *w, const struct opt *opt);
bool apply_points(struct work *w, const struct opt *opt);
bool apply_group(struct work *w, const struct opt *opt);
bool apply_cut(struct work *w, const struct opt *opt);
bool apply_round(struct work *w, const struct opt *opt);
bool apply_fill(struct work *w, const struct opt *opt);
bool apply_join(struct work *w, const struct opt *opt);
/* opts_device.c: whether what a thread keeps for itself is on its stack: a grid has too many
 * threads for more. false: refused */
bool work_scratch_fits(struct work *w);
bool apply_place(struct work *w, const struct opt *opt);
bool apply_first(struct work *w, const struct opt *opt);
bool apply_cover(struct work *w, const struct opt *opt);
bool apply_local(struct work *w, const struct opt *opt);
bool apply_tree(struct work *w, const struct opt *opt);
bool apply_slice(struct work *w, const struct opt *opt);
bool apply_shuffle(struct work *w, const struct opt *opt);
bool apply_inline(struct work *w, const struct opt *opt);
bool apply_share(struct work *w, const struct opt *opt);
bool apply_pass(struct work *w, const struct opt *opt);
/* opts_swizzle.c */
bool apply_swizzle(struct work *w, const struct opt *opt);
/* opts_pipeline.c */
bool apply_pipeline(struct work *w, const struct opt *opt);
/* opts_persist.c */
bool apply_persist(struct work *w, const struct opt *opt);
/* opts_producer.c */
bool apply_producer(struct work *w, const struct opt *opt);
/* opts_cluster.c */
bool apply_cluster(struct work *w, const struct opt *opt);
/* opts_matrix.c; the second: whether all sums that an instruction of matrix.def computes have the
 * form that it takes, false: refused */
bool apply_matrix(struct work *w, const struct opt *opt);
bool apply_spread(struct work *w, const struct opt *opt);
bool apply_repeat(struct work *w, const struct opt *opt);
bool apply_exchange(struct work *w, const struct opt *opt);
bool work_matrices_fit(struct work *w);
/* opts_keep.c */
bool apply_keep(struct work *w, const struct opt *opt);
/* opts_through.c */
bool apply_through(struct work *w, const struct opt *opt);
bool apply_parts(struct work *w, const struct opt *opt);
/* Refuses, where blocks of the kernel have parts of a sum (PARTS): its blocks are all those of the
 * grid, with all of their threads. */
bool work_is_whole(struct work *w);
bool apply_over(struct work *w, const struct opt *opt);
bool apply_leave(struct work *w, const struct opt *opt);
/* fragment.c */
bool apply_fragment(struct work *w, const struct opt *opt);

/* pack.c */
bool apply_pack(struct work *w, const struct opt *opt);

#endif
