/* opts_work.h - private to opts*.c and pack.c: a kernel's AST while opts change it
 * (opts_work.c). */
#ifndef TGC_OPTS_WORK_H
#define TGC_OPTS_WORK_H

#include "passes/kernel/tile.h"

enum { RANGES_MAX = 64, BLOCK_MAX = 256, ITEMS_MAX = 512 };

/* The loops of a nest while opts change them. */
struct open {
    struct uop *store;           /* the nest before the changes: a store, or a stage in the form
                                  * of one; NULL: no nest is open */
    struct uop *stage;           /* the stage; NULL: the nest is the store itself */
    int at;                      /* which store of the AST */
    enum opt_of of;
    int number;
    int first;                   /* store->src[first..]: its ranges */
    struct uop *range[RANGES_MAX + 4]; int n;
    struct uop *was[RANGES_MAX + 4];       /* the original range that range[i] is a part of */
    struct uop *from[RANGES_MAX], *to[RANGES_MAX]; int nsubstitution;
};

struct work {
    struct tgc *t;
    struct kernel *kernel;
    struct uop *ast;
    struct open open;
    bool stores_twice;
    int block;                   /* threads of the kernel's blocks */
    bool is_placed;              /* some loop is over the grid or a block's threads */
    const char *why;
};

/* Notes the reason and returns false. */
bool work_refuse(struct work *w, const char *why);
/* Replaces one store of the AST by n. */
void work_put_stores(struct work *w, int at, struct uop *const *store, int n);
/* Builds the open nest, if there is one, with all its changes. */
void work_close(struct work *w);
/* Opens the opt's nest and returns its loop `axis`. false: there is no such loop, or it may not be
 * changed. */
bool work_take_range(struct work *w, const struct opt *opt, struct uop **range);
/* As work_take_range(), for a loop of known size. */
bool work_take_axis(struct work *w, const struct opt *opt, struct uop **range, int64_t *size);
/* Change the open nest. A constant in the place of a range (a loop of one iteration) is not
 * inserted. */
void work_remove_range(struct open *o, int at);
void work_insert_range(struct open *o, int at, struct uop *r, struct uop *was);
/* Opens the nest that the opt is about. */
bool work_open(struct work *w, const struct opt *opt);
int work_loops_before_lanes(const struct open *o);
/* Gives the open nest's loop number `at` to the worker. */
void work_give(struct work *w, int at, enum worker worker);
/* Substitutes `by` for the range r, which is one of the open nest's or came from one. */
void work_substitute(struct work *w, const struct uop *r, struct uop *by);
/* New memory for a STAGE. */
struct buffer *work_new_memory(struct work *w, enum dtype d, int64_t nelem, enum space space);
/* Memory in shared memory for a STAGE that replaces another one: same size, pipeline and layout.
 * work_new_range(): a loop of n iterations; the constant 0 if n is 1. */
struct buffer *work_copy_memory(struct work *w, const struct buffer *was);
struct uop *work_new_range(struct tgc *t, int64_t n, enum axis a);

/* Threads of a block that run the store: the product of its ITEM ranges. */
int64_t work_items(const struct uop *store);
/* The store's uop number `number` of this op, sources first; NULL: there is none. */
struct uop *work_find(struct work *w, struct uop *store, enum op op, int number);
/* The opt's sum. false: there is none, or no loop `axis` that may be changed. */
bool work_take_sum(struct work *w, const struct opt *opt, int axis, struct uop **sum);
/* Whether the sum is inside a term of another sum, and changes with that one's loops. */
bool work_is_of_sum(struct work *w, struct uop *store, struct uop *sum);
/* The innermost stage whose nest contains the sum; NULL: it is the store's own. */
struct uop *work_stage_of(struct work *w, struct uop *store, const struct uop *sum);
/* Whether a division remains of an expression of r other than r itself. */
bool work_is_divided(struct tgc *t, struct uop *u, const struct uop *r);
/* Whether a division by the merged loop r remains, which would tell its two halves apart. */
bool work_is_split_again(struct tgc *t, struct uop *u, const struct uop *r);
void work_name_like(struct tgc *t, struct uop *u, const struct uop *from);

/* opts_store.c */
bool apply_divide_sum(struct work *w, const struct opt *opt);
bool apply_merge_sum(struct work *w, const struct opt *opt);
bool apply_vector_load(struct work *w, const struct opt *opt);
bool apply_order_sum(struct work *w, const struct opt *opt);
bool apply_overlap(struct work *w, const struct opt *opt);
bool apply_decide(struct work *w, const struct opt *opt);
bool apply_stage(struct work *w, const struct opt *opt);
bool apply_rows(struct work *w, const struct opt *opt);
bool apply_points(struct work *w, const struct opt *opt);
bool apply_group(struct work *w, const struct opt *opt);
bool apply_cut(struct work *w, const struct opt *opt);
bool apply_round(struct work *w, const struct opt *opt);
bool apply_fill(struct work *w, const struct opt *opt);
bool apply_join(struct work *w, const struct opt *opt);
/* opts_device.c. work_scratch_fits(): whether each thread's scratch fits its stack, which a grid
 * requires; false: refused. */
bool work_scratch_fits(struct work *w);
bool apply_place(struct work *w, const struct opt *opt);
bool apply_first(struct work *w, const struct opt *opt);
bool apply_cover(struct work *w, const struct opt *opt);
bool apply_stage_operand(struct work *w, const struct opt *opt);
bool apply_block_reduce(struct work *w, const struct opt *opt);
bool apply_slice_k(struct work *w, const struct opt *opt);
bool apply_shuffle_reduce(struct work *w, const struct opt *opt);
bool apply_inline(struct work *w, const struct opt *opt);
bool apply_share_stage(struct work *w, const struct opt *opt);
bool apply_share_scratch(struct work *w, const struct opt *opt);
/* opts_swizzle.c */
bool apply_swizzle(struct work *w, const struct opt *opt);
/* opts_pipeline.c */
bool apply_pipeline(struct work *w, const struct opt *opt);
/* opts_persistent.c */
bool apply_persistent(struct work *w, const struct opt *opt);
/* opts_warp_specialize.c */
bool apply_warp_specialize(struct work *w, const struct opt *opt);
/* opts_cluster.c */
bool apply_cluster_multicast(struct work *w, const struct opt *opt);
/* opts_matrix.c. work_matrices_fit(): whether each sum that a matrix instruction computes has the
 * form that it takes; false: refused. */
bool apply_mma(struct work *w, const struct opt *opt);
bool apply_mma_layout(struct work *w, const struct opt *opt);
bool apply_mma_row_layout(struct work *w, const struct opt *opt);
bool apply_mma_row_reduce(struct work *w, const struct opt *opt);
bool work_matrices_fit(struct work *w);
/* opts_registers.c */
bool apply_keep_in_registers(struct work *w, const struct opt *opt);
/* opts_epilogue.c */
bool apply_stage_epilogue(struct work *w, const struct opt *opt);
bool apply_split_k(struct work *w, const struct opt *opt);
/* Refuses if the kernel uses split-K (SPLIT_K): the ticket counts all blocks of the grid, with all
 * their threads. */
bool work_is_whole(struct work *w);
bool apply_alias_epilogue(struct work *w, const struct opt *opt);
bool apply_bulk_epilogue(struct work *w, const struct opt *opt);
/* fragment.c */
bool apply_fragment(struct work *w, const struct opt *opt);

/* pack.c */
bool apply_pack(struct work *w, const struct opt *opt);

#endif
