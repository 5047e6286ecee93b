/* plan.h - private to plan/ and the driver: the decisions of fusion.
 *
 * A segment is one loop nest that stores one value; a kernel is a segment, or several that fill
 * parts of one buffer (CONCAT, SCATTER). Fusion walks the graph from consumers to producers. Every
 * place where a node's value is needed is a `use`: the coordinates as expressions over the
 * segment's ranges, and the set of ranges that are open there.
 */
#ifndef TGC_PLAN_H
#define TGC_PLAN_H

#include "passes/analysis/value.h"
#include "passes/passes.h"

/* Limits of one segment: of its values, and of their depth, since lowering recurses. */
enum { MAX_RANGES = 64, MAX_SEGMENT_NODES = 2048, MAX_SEGMENT_DEPTH = 256 };
/* Least columns for a layer to have them innermost in memory. */
enum { COLUMNS_MIN = 8 };
typedef uint64_t range_set;      /* bit b: the segment's b-th range */

enum block_kind { BLOCK_TOP, BLOCK_THEN, BLOCK_ELSE, BLOCK_BODY, BLOCK_ENTRY };
struct block {
    enum block_kind kind;
    struct block *parent;
    int depth;
    struct uop *owner;           /* its IF or LOOP */
    struct item *item; int nitem; size_t cap_item;
};

/* What happens at a position in a block: a kernel, a host call, a region. */
struct item { int pos; struct segment *kernel; struct uop *node; };

/* Coordinate `axis` of a segment's value is start + inner, and start depends on the band's range
 * alone; inner, a range of its own or 0, is less than extent. */
enum { BANDS_MAX = 2 };
struct band { struct uop *range, *start, *inner; int axis; int64_t extent; };
/* The part of a tensor along an axis that a band reads, `extent` elements from `begin` on, and the
 * part that scratch holds, `slots` elements from `start` on. Scratch holds more if the band always
 * stores the same number of elements, some of which a border takes the place of. */
struct kept { struct uop *begin, *start; int64_t extent, slots; };

/* All tiles along the range `tile`, with rows along `in`, together store only the first `rows`
 * rows; rows 0: all. */
struct clip { struct uop *tile, *in; int64_t rows; };

struct segment {
    struct block *block;
    int at;                      /* index among the plan's segments */
    int pos;                     /* position in the graph's topological order: when it runs */
    struct uop *value;           /* what it stores */
    struct use *use;             /* of the nodes that it computes or reads, the last one first */
    /* `value` is computed here; otherwise the segment copies it from its buffer */
    bool own;
    struct buffer *dest;
    struct uop *lead;            /* leading coordinate in dest (scan output), or NULL */
    struct uop **start;          /* offset in dest per axis (CONCAT), or NULL */
    struct uop *scatter;         /* SCATTER node: value goes to its data-dependent coordinates */
    struct segment *next;        /* further segments of the same kernel */
    bool absorbed;               /* it is the `next` of another */
    bool early;                  /* a part of a buffer that is filled before the others */
    struct uop *axis[MAX_RANK];  /* coordinates of value: RANGEs, or 0 where the size is 1 */
    struct uop **range; int nrange; size_t cap_range;   /* at most MAX_RANGES */
    range_set out, inner;        /* ranges of the output; of reductions and stages */
    range_set staged;            /* of stages alone */
    /* sets that must be prefixes of the loop order, by size */
    range_set chain[MAX_RANK + 1]; int nchain;
    int nnode, ncontraction;
    /* leaves that it reads. nread: these, and nodes that it uses but does not compute, as far as
     * decided */
    struct uop_map leaves; int nread;
    int reach;                   /* tensors below it, if it computes all between; 0: not counted
                                  * yet */
    int depth;                   /* of the use whose sources are being visited */
    struct band band[BANDS_MAX]; int nband;
    struct clip clip;
    const struct uop *claimed;   /* the contraction whose epilogue it computes */
    bool gated;                  /* a sum of weights is computed outside some of the ranges */
    bool weighted;               /* one of its contractions reads a weight */
    bool streams;                /* a large weight, read once: a matrix-vector product */
    bool online;                 /* attention that becomes online softmax, see online_softmax.c */
};

/* Values kept in scratch for the inner loops of one iteration of the ranges in `prefix`. */
struct stage {
    range_set prefix;
    /* coordinates at which it is computed: invariant ones, or its own ranges */
    struct uop *index[MAX_RANK];
    struct uop *range[MAX_RANK]; /* NULL where invariant */
    struct buffer *scratch;
    struct uop *value;           /* lowered: the STAGE uop */
};

struct lowered { struct uop *valid, *value; struct lowered *next; };
struct use {
    struct node *node;
    struct segment *seg;
    struct uop **index;          /* [ndim] */
    range_set open;              /* ranges open where it is needed */
    bool root;                   /* the segment's own value */
    int depth;                   /* below the segment's value */
    /* [ndim] REDUCE, where inlined: the ranges of its axes, NULL elsewhere */
    struct uop **range;
    struct stage *stage;
    struct lowered *lowered;
    struct use *next;            /* of the node */
    struct use *next_of_seg;
};

struct node {
    struct uop *u;
    int pos;
    struct block *block;
    uint64_t *loops;             /* loops on which it depends: a bit for each of the plan's */
    struct use *use;
    int nuse;
    int nconsumer;               /* uops that have it as a source */
    /* needs a buffer: read at data-dependent indices, or by a host function */
    bool must;
    bool in_order;               /* needs one, with the axes in the order of its shape */
    bool kept;  /* needs a buffer, with any layout: several values are computed from it */
    bool is_compared;            /* an equality of floats reads it */
    bool online;                 /* scores or exponentials of online softmax: rows of any length */
    const char *why;             /* why it is not computed where it is used; NULL: not said */
    struct buffer *buffer;       /* its value is stored here; NULL: computed where it is used */
    bool is_private;             /* only its uses access the buffer */
    const struct node *within;   /* the node whose buffer contains it, from `at` on; NULL: none */
    struct uop *const *at;
    bool hosts;                  /* its buffer contains others */
    struct block *side[2];       /* IF: THEN and ELSE; LOOP: BODY */
    /* IF, LOOP, HOST: the buffer of GET k; NULL: there is no such GET */
    struct buffer **result; int nresult;
    struct buffer **state;       /* LOOP: carried values, then the condition */
    struct uop **host_arg;       /* HOST: BUFFER uops of its inputs */
    struct uop *scalar[2];       /* IF: condition; LOOP: trip count, first condition */
};

struct plan {
    struct tgc *t;
    struct graph *graph;
    struct schedule *schedule;               /* what the plan is turned into */
    bool noopt;
    bool trains;                 /* a run of an entry changes weights */
    struct node *node; int nnode;            /* in topological order */
    struct uop_map of;                       /* uop -> node */
    struct uop_map finder;                   /* VAR -> the HOST that computes it */
    struct uop_map bit;                      /* RANGE -> its bit + 1 */
    struct uop_map mask;                     /* index expression -> its range_set + 1 */
    struct segment **segment; int nsegment; size_t cap_segment;
    struct loop **loop; int nloop;
    struct block *top;
    struct block **entry;                    /* [graph->nentry]: of nodes of one entry alone */
};

/* nodes.c: an empty plan, with an empty schedule. */
struct plan *plan_new(struct tgc *t, struct graph *g, bool noopt);
/* The passes of the plan: plan_nodes() and so on. */
#define PLAN_PASS(name, ...) void plan_##name(struct plan *p);
#include "passes/passes.def"
/* The number of the loop in plan->loop[]; -1: it is not among the nodes. */
int plan_loop_number(const struct plan *p, const struct loop *l);
/* What must run before u, from k = 0 on: its sources, the rows appended to a state, and the host
 * calls that compute the symbols of its dimensions. NULL: no more. */
struct uop *plan_child(const struct plan *p, const struct uop *u, int k);
/* blocks.c: where the graph's output i is stored. */
struct block *plan_block_of_output(const struct plan *p, int i);
/* entry_steps.c: the first nshared steps, which stand before the entries, run for
 * those that need them. */
void plan_guard_shared(struct tgc *t, struct schedule *s, int nshared);
/* print_plan.c: what is known of the plan's values, and its kernels, a line each; at any time from
 * plan_nodes() to plan_emit_steps(). */
void plan_print(struct text *out, struct plan *p);

struct node *plan_node(const struct plan *p, const struct uop *u);
range_set plan_mask(struct plan *p, const struct uop *index);
/* A new segment that stores `value` (of value's shape) into dest. */
struct segment *plan_segment(struct plan *p, struct block *b, int pos, struct uop *value,
                             struct buffer *dest);
/* Adds the first use of a node: the segment's value is needed. */
void plan_use_root(struct plan *p, struct segment *s);
/* A segment that stores the updates of the SCATTER v into dest, which holds the base already. */
struct segment *plan_update(struct plan *p, struct block *b, int pos, struct uop *v,
                            struct buffer *dest);
struct use *plan_find_use(const struct node *n, const struct segment *s, struct uop *const *index);

/* decide.c: decides for one node, all of whose uses are known, and pushes uses to its sources. */
void plan_decide(struct plan *p, struct node *n);
/* The node or buffer that holds u's value contiguously, up to reshapes; marks it `must`. NULL: it
 * has to be copied. */
struct node *plan_contiguous_base(struct plan *p, struct uop *u);

/* Whether a value of `nbytes`, if stored, would stay in a cache: whole, or in bands of its
 * `nrow` rows (NULL: none). */
bool plan_stays_near(const struct tgc *t, double nbytes, const struct uop *nrow, double row_nbytes);

/* recompute.c: notes which values an equality of floats reads. */
void plan_note_compared(struct plan *p);

/* band_halo.c: the part of a PAD's source, which `inside` stores, that one band computes if it
 * reads `kept` of the PAD along an axis; sets what scratch holds. false: the axis has no range. */
bool halo_part(struct tgc *t, const struct node *pad, const struct segment *inside, int axis,
               struct kept *kept, struct band *part);
/* The segments that store the border of what a band keeps of `pad`, the last of them before
 * `inside`; returns the first, or `inside`. */
struct segment *halo_fill(struct plan *p, const struct node *pad, const struct kept *kept,
                          const struct band *part, int nband, struct segment *inside);

/* The store of a segment, as up to CLIPPED_MAX stores; returns their number. */
enum { CLIPPED_MAX = 2 };
int clip_store(struct tgc *t, const struct segment *s, struct uop *store, struct uop **part);

/* emit_steps.c: what follows from a kernel's AST: buffers, scratch, symbols, title and name. */
void kernel_describe(struct tgc *t, struct kernel *k);

/* lower.c: the AST of a kernel: SINK(STORE...) */
struct uop *lower_kernel(struct plan *p, struct segment *s);
/* lower_kernel() while the plan may still change: nothing of it is kept for the kernel. */
struct uop *lower_trial(struct plan *p, struct segment *s);
/* A scalar outside kernels (IF, LOOP): CONST, VARs, LOAD of a realized buffer. */
struct uop *lower_scalar(struct plan *p, struct uop *u);
/* order_updates.c: on a device, orders the store of a scatter's updates, whose coordinates in the
 * buffer are at[]: loops that may store to one coordinate twice become `order` loops. */
struct uop *plan_order_updates(struct tgc *t, const struct segment *s, struct uop *const *at,
                               struct uop *store);
/* the buffer with u's value, or NULL */
struct buffer *lower_buffer_of(struct plan *p, const struct uop *u);

#endif
