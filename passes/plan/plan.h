/* plan.h - private to plan/ and the driver: what fusion decided.
 *
 * A segment is one loop nest that stores one value; a kernel is a segment, or several that fill
 * parts of one buffer (CONCAT, SCATTER). Fusion walks the graph from consumers to producers. Every
 * place where a node's value is needed is a `use`: the coordinates as expressions over the
 * segment's ranges, and the set of ranges that are open there.
 */
#ifndef TGC_PLAN_H
#define TGC_PLAN_H

#include "passes/passes.h"

/* What one segment computes: values, and how deep they nest, since lowering recurses. */
enum { MAX_RANGES = 64, MAX_SEGMENT_NODES = 2048, MAX_SEGMENT_DEPTH = 256 };
typedef uint64_t range_set;      /* bit b: the segment's b-th range */

enum block_kind { BLOCK_TOP, BLOCK_THEN, BLOCK_ELSE, BLOCK_BODY };
struct block {
    enum block_kind kind;
    struct block *parent;
    int depth;
    struct uop *owner;           /* its IF or LOOP */
    struct item *item; int nitem; size_t cap_item;
};

/* Something that happens at a place in a block's order: a kernel, a host call, a region. */
struct item { int pos; struct segment *kernel; struct uop *node; };

/* Coordinate `axis` of a segment's value is start + inner, and start depends on the band's range
 * alone; inner, a range of its own or 0, is less than extent. */
enum { BANDS_MAX = 2 };
struct band { struct uop *range, *start, *inner; int axis; int64_t extent; };
/* Of a tensor along an axis: what one band reads, `extent` elements from `begin` on, and what
 * scratch keeps, `slots` elements from `start` on. More than is read where the band stores as many
 * elements as ever, but some of them are a border. */
struct kept { struct uop *begin, *start; int64_t extent, slots; };

/* Of the tiles along one range of a segment, and the rows in them along another, the first so many
 * rows are stored. rows 0: all of them. */
struct clip { struct uop *tile, *in; int64_t rows; };

struct segment {
    struct block *block;
    int at;                      /* among the plan's segments */
    int pos;                     /* place in the graph's topological order: when it runs */
    struct uop *value;           /* what it stores */
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
    int depth;                   /* of the use whose sources are looked at */
    struct band band[BANDS_MAX]; int nband;
    struct clip clip;
    const struct uop *claimed;   /* the contraction whose epilogue it is */
    bool gated;                  /* a sum of weights is computed before some of the ranges */
    bool weighted;               /* one of its contractions reads a weight */
    bool streams;                /* a large weight, once: the product of a matrix and a vector */
    bool online;                 /* attention that becomes one by blocks of keys, see online_softmax.c */
};

/* Values kept in scratch for the inner loops of one iteration of the ranges in `prefix`. */
struct stage {
    range_set prefix;
    /* coordinates at which it is computed: fixed ones, or its own ranges */
    struct uop *index[MAX_RANK];
    struct uop *range[MAX_RANK]; /* NULL where fixed */
    struct buffer *scratch;
    struct uop *value;           /* lowered: the STAGE uop */
};

struct lowered { struct uop *valid, *value; struct lowered *next; };
struct use {
    struct segment *seg;
    struct uop **index;          /* [ndim] */
    range_set open;              /* ranges open where it is needed */
    bool root;                   /* the segment's own value */
    int depth;                   /* below the segment's value */
    /* [ndim] REDUCE, where inlined: the ranges of its axes, NULL elsewhere */
    struct uop **range;
    struct stage *stage;
    struct lowered *lowered;
    struct use *next;
};

struct node {
    struct uop *u;
    int pos;
    struct block *block;
    range_set loops;             /* loops it depends on, by plan index */
    struct use *use;
    int nuse;
    int nconsumer;               /* uops that have it as a source */
    /* needs a buffer: read at data-dependent places, or by a host function */
    bool must;
    bool in_order;               /* so, and its axes lie in the order of its shape */
    bool kept;                   /* needs a buffer of any layout: others are made of it */
    bool online;                 /* scores or powers of attention by blocks: rows of any length */
    struct buffer *buffer;       /* realized here; NULL: computed where it is used */
    bool is_private;             /* nobody but its uses knows the buffer */
    const struct node *within;   /* whose buffer it is a part of, from `at` on; NULL: of none */
    struct uop *const *at;
    bool hosts;                  /* others lie within it */
    struct block *side[2];       /* IF: THEN and ELSE; LOOP: BODY */
    /* IF, LOOP, HOST: where GET k finds it; NULL: nobody asks */
    struct buffer **result; int nresult;
    struct buffer **state;       /* LOOP: carried values, then the condition */
    struct uop **host_arg;       /* HOST: BUFFER uops of its inputs */
    struct uop *scalar[2];       /* IF: condition; LOOP: trip count, first condition */
};

struct plan {
    struct tgc *t;
    struct graph *graph;
    struct schedule *schedule;               /* what the plan becomes */
    bool noopt;
    struct node *node; int nnode;            /* in topological order */
    struct uop_map of;                       /* uop -> node */
    struct uop_map finder;                   /* VAR -> the HOST that gives it its value */
    struct uop_map bit;                      /* RANGE -> its bit + 1 */
    struct uop_map mask;                     /* index expression -> its range_set + 1 */
    struct segment **segment; int nsegment; size_t cap_segment;
    struct loop *loop[64]; struct uop *loop_node[64]; int nloop;
    struct block *top;
};

/* schedule.c: a plan of nothing, and its schedule of nothing. */
struct plan *plan_new(struct tgc *t, struct graph *g, bool noopt);
/* The nodes in topological order, the loops that they depend on; a diagnostic if those are too
 * many. */
void plan_nodes(struct plan *p);
void plan_blocks(struct plan *p);        /* where each node runs */
void plan_online(struct plan *p);        /* which attention goes by blocks of keys */
void plan_fuse(struct plan *p);          /* what becomes a kernel */
void plan_lower(struct plan *p);         /* kernels' ASTs and the schedule's steps */

struct node *plan_node(const struct plan *p, const struct uop *u);
range_set plan_mask(struct plan *p, const struct uop *index);
/* A new segment that stores `value` (of value's shape) into dest. */
struct segment *plan_segment(struct plan *p, struct block *b, int pos, struct uop *value,
                             struct buffer *dest);
/* Says that the segment's value is needed: the first use of a node. */
void plan_use_root(struct plan *p, struct segment *s);
/* What the SCATTER v puts into dest, which holds what it is put over already. */
struct segment *plan_update(struct plan *p, struct block *b, int pos, struct uop *v,
                            struct buffer *dest);
struct use *plan_find_use(const struct node *n, const struct segment *s, struct uop *const *index);
double plan_extent(const struct uop *dim);   /* upper bound of a dimension, as a double */
double plan_nelem(const struct uop *u);

/* fuse.c: decides for one node, all of whose uses are known, and pushes uses to its sources. */
void plan_decide(struct plan *p, struct node *n);
/* A node or buffer that holds u's value contiguously, through reshapes; marks it `must`. NULL: it
 * has to be copied. */
struct node *plan_contiguous_base(struct plan *p, struct uop *u);

/* store_inside.c: what lies within a larger tensor is stored there. needs: all decisions are
 * made */
void plan_insets(struct plan *p);
/* layout.c: the order of the axes in intermediate buffers. needs: all decisions are made */
void plan_layout(struct plan *p);
/* What was lowered on trial is of no further use. */
void plan_forget(struct plan *p);
/* band.c: segments that become one kernel, since what they pass on fits a cache band by band.
 * needs: the order of the axes */
void plan_bands(struct plan *p);
/* Whether a value of so many bytes, were it stored, would stay in a cache: all of it, or bands of its
 * rows, of which there are `nrow` or NULL. */
bool plan_stays_near(const struct tgc *t, double nbytes, const struct uop *nrow, double row_nbytes);

/* band_halo.c: which part of what a PAD is made of, `inside`, one band computes, where it reads
 * `kept` of the PAD along an axis; what scratch keeps of it. false: the axis has no range. */
bool halo_part(struct tgc *t, const struct node *pad, const struct segment *inside, int axis,
               struct kept *kept, struct band *part);
/* The segments that store the border of what a band keeps of `pad`, the last of them in front of
 * `inside`; returns the first, or `inside`. */
struct segment *halo_fill(struct plan *p, const struct node *pad, const struct kept *kept,
                          const struct band *part, int nband, struct segment *inside);

/* pitch.c: what is read or stored at many places at once lies at distances that suit a cache.
 * needs: bands are made */
void plan_spread(struct plan *p);

/* store_clipped.c: tiles of which a part is read are stored as far as that goes. needs: bands
 * are made */
void plan_clip(struct plan *p);
/* The store of a segment, as up to CLIPPED_MAX stores; returns their number. */
enum { CLIPPED_MAX = 2 };
int clip_store(struct tgc *t, const struct segment *s, struct uop *store, struct uop **part);

/* online_find.c: the scores of attention that is worth being computed by blocks of keys, and their
 * powers, of a graph's uops; each is its own value in the map. kept: results that need a buffer. */
void online_find(struct tgc *t, struct uop *const *order, int n, struct uop_map *found,
                 struct uop_map *kept);
/* online_softmax.c: the AST of such a kernel, which has whole rows of scores, as one of blocks;
 * NULL: it is none. */
struct uop *online_apply(struct tgc *t, struct uop *ast);

/* lower.c: the AST of a kernel: SINK(STORE...) */
struct uop *lower_kernel(struct plan *p, struct segment *s);
/* A scalar outside kernels (IF, LOOP): CONST, VARs, LOAD of a realized buffer. */
struct uop *lower_scalar(struct plan *p, struct uop *u);
/* where u's value lies, or NULL */
struct buffer *lower_buffer_of(struct plan *p, const struct uop *u);

#endif
