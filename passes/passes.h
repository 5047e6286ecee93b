/* passes.h - from the tensor graph to a schedule of linear kernels.
 *
 *      graph --simplify, fold--> graph --fuse--> decisions --lower--> kernel ASTs --linearize-->
 *      linear programs
 *                                                                     └─ plan memory, schedule
 *                                                                     control ─┘
 */
#ifndef TGC_PASSES_H
#define TGC_PASSES_H

#include "passes/target/cost.h"

/* How a kernel's loops were tiled; chosen by optimize.c, applied by tile.c. */
enum opt_op {
    /* the store's range `axis` is split by `amount`, which becomes a lane */
    OPT_UPCAST,
    /* so is it, and the lane is a vector's */
    OPT_VECTORIZE,
    /* all of it becomes straight-line code; amount: its size */
    OPT_UNROLL,
    /* what is left of the store's range `axis` is the loop number `amount`, outside of the rows' */
    OPT_SWAP,
    /* weight load `axis` of the contraction reads a copy in loop order */
    OPT_PACK,
    /* the store's loop `axis` is shared by up to `amount` threads */
    OPT_THREAD
};
struct opt { enum opt_op op; int axis; int64_t amount; };

/* A kernel for one instruction set: the same values by other loops. */
struct variant {
    enum isa isa;
    struct uop *ast;
    struct opt *opt; int nopt; size_t cap_opt;
    struct uop **linear; int nlinear;
};

/* A kernel: one loop nest (or several in sequence) with its buffers. */
struct kernel {
    int index;                   /* its place in schedule.kernel */
    const char *name;            /* C identifier, unique in the program: "conv2_1", "softmax_3" */
    /* one line for a person: 'Conv "conv_3", Relu "relu_4": f32[1,64,56,56]'; not escaped */
    const char *title;
    struct uop *ast;             /* SINK(STORE(buffer, offset, value, range...)...) */
    struct opt *opt; int nopt; size_t cap_opt;
    struct uop **linear; int nlinear;
    /* with vectors; `ast` and `linear` are the portable one's */
    struct variant *variant; int nvariant; size_t cap_variant;
    /* weights in the order in which this kernel reads them, shared by its variants */
    struct buffer **packed; int npacked; size_t cap_packed;
    struct buffer **buffer; int nbuffer;   /* in order of the kernel's parameters: outputs first */
    int noutput;                 /* the first `noutput` of buffer[] are written */
    /* STAGE buffers: places in the arena, or on the stack if small. In the arena each thread that
     * shares the kernel has one of its own, scratch_stride() behind the one before */
    struct buffer **scratch; int nscratch;
    struct var **var; int nvar;  /* symbols it reads: passed as int64_t */
    /* threads cannot share it: its nests meet, or it stores to places that are data */
    bool is_serial;
    bool is_disjoint; /* its nests store to parts of a tensor that have nothing in common */
    bool stores_twice;           /* some elements: what they are made of must stay as it is */
    bool is_shared;              /* by threads: some loop of each nest is theirs */
    bool counts_down;            /* the outermost loop of each nest, from its last turn to 0 */
    double shared_ns;            /* what that is estimated to save; 0 to 1e9 */
    double flop, nbytes;         /* at the dimensions' upper bounds */
    /* a RANGE's loop is named uop_get_axes(t, range), where that is not NULL; names can repeat
     * within a kernel */
};

/* What lenet_run() does, in order. IF..ELSE..ENDIF and LOOP..ENDLOOP nest properly. */
enum step_kind {
    STEP_KERNEL,
    STEP_HOST,
    STEP_IF,
    STEP_ELSE,
    STEP_ENDIF,
    STEP_LOOP,
    STEP_BREAK_UNLESS,
    STEP_ENDLOOP
};
struct step {
    enum step_kind kind;
    struct kernel *kernel;       /* KERNEL */
    struct host_call *host;      /* HOST */
    struct buffer **arg; int narg;         /* HOST: inputs, then outputs */
    /* IF, BREAK_UNLESS: bool scalar kernel expression (LOAD of a buffer, VARs) */
    struct uop *cond;
    struct var *counter;         /* LOOP: counts from 0 */
    struct uop *trip;            /* LOOP: i64 scalar kernel expression */
};

struct schedule {
    const struct graph *graph;
    struct step *step; int nstep;
    struct kernel **kernel; int nkernel;
    /* every TEMP, STATE and SCRATCH buffer with a place in the arena */
    struct buffer **buffer; int nbuffer;
    /* in order of first use; those equal in dtype and bytes have one offset */
    struct buffer **weight; int nweight;
    struct buffer **input; int ninput;     /* as graph->input, without states */
    struct buffer **output; int noutput;   /* as graph->output, without states; BUFFER_OUTPUT */
    struct state **state; int nstate;      /* as graph->state */
    struct state_part **part; int npart;   /* as graph->part */
    size_t state_nbytes;                   /* of all their places */
    struct var **var; int nvar;            /* run-time dimensions and host results */
    isa_set isa;                 /* for which kernels may have variants */
    bool on_device;              /* intermediates lie in a device's memory, not in the caller's */
    int threads;                 /* that run a kernel at most; 0 as 1 */
    double thread_gain_ns;       /* what a kernel has to gain by threads, or is not shared */
    size_t arena_nbytes, live_nbytes;      /* planned, and the largest live set */
    size_t weight_nbytes;
};

/* SCRATCH up to this size is on its kernel's stack and has no place in the arena */
enum { STACK_SCRATCH_NBYTES = 256 };
bool scratch_is_on_stack(const struct buffer *b);
/* stack.c: the most that a call of the kernel takes of the stack, by gcc and clang at -O1 to -O3 and
 * -Os, whichever variant it is; an estimate from above. needs: planned linear programs */
size_t kernel_stack_nbytes(struct tgc *t, const struct kernel *k);
/* stack.c: by position in a linear program, which loops compilers must not unroll, since they would
 * keep more than the registers hold */
bool *stack_find_kept(struct tgc *t, enum isa isa, struct uop *const *u, int n);
/* Intermediates that take no more than this together are on the stack of a run. */
enum { STACK_RUN_NBYTES = 256 };
/* Bytes from one thread's scratch to the next one's: whole cache lines. */
size_t scratch_stride(const struct buffer *b);
/* A buffer's size at the dimensions' upper bounds, for estimates: known before the memory plan sets
 * nbytes. */
double buffer_most_nbytes(const struct buffer *b);

struct compile_options {
    bool noopt;
    int level;                   /* -O0..3 */
    /* kernels run on a device: by as many work-items as `threads` says, whatever that gains */
    bool on_device;
    int threads;                 /* of a run, at most; 0 as 1 */
    isa_set isa;                 /* 0: the portable one alone */
    const char *name;            /* C identifier */
    struct pass_record *record;  /* NULL, or by pass: what became of it */
};

/* Installs the fold hook (rules) into t; called once, before a frontend builds anything. */
void passes_init(struct tgc *t);
/* All passes in the order of passes.def, verified after each one in debug builds. NULL: diagnostics
 * were recorded. */
struct schedule *passes_run(struct tgc *t, struct graph *g, const struct compile_options *o);

/* state.c: --state OUT=IN. Makes the graph's output OUT and its input IN a state each; one that is
 * Concat(IN, rows) along a run-time dimension, or is joined of such parts along others, grows.
 * needs: what a frontend has made; breaks: nothing. false: diagnostics name what does not exist,
 * agree or end; file: for these. */
bool state_apply(struct tgc *t, struct graph *g, const char *const *option, int noption,
                 const char *file);
/* The graph as it was, where what grows is a CONCAT: of values that the oracle can compute. value[]
 * has graph->noutput of them; the last are what parts of states store. */
void state_whole_values(struct tgc *t, const struct graph *g, struct uop **value);
/* Whether the run's symbol v is the length of a state, or must stay as it is while states live. */
bool state_is_length(const struct graph *g, const struct var *v);
bool state_is_size(const struct graph *g, const struct var *v);
/* The axis along which a state's buffer grows; -1: none. */
int state_axis(const struct buffer *b);

/* One pass each; false: diagnostics were recorded. */
/* half_precision.c: f16 is computed in f32, and rounded where it leaves */
bool pass_excess(struct tgc *t, struct graph *g);
/* hoist_elementwise.c: elementwise steps stand before padding, and behind what picks rows of
 * weights */
bool pass_early(struct tgc *t, struct graph *g);
/* fold_constants.c: what depends on weights alone becomes a weight, capped */
bool pass_fold_constants(struct tgc *t, struct graph *g);
/* constant_axes.c: a bit for each axis along which u, made of weights and constants, may vary;
 * of[k]: its source k. needs: all dimensions are known. */
uint32_t varying_axes(const struct uop *u, const uint32_t *of);
/* A bit for each axis of more than one element along which all elements of `size` bytes are
 * equal. */
uint32_t equal_axes(const void *data, const int64_t *dim, int ndim, size_t size);
/* Leaves the first place of each of these axes, whose dim[] become 1; the bytes that are left. */
size_t drop_axes(void *data, int64_t *dim, int ndim, size_t size, uint32_t axes);
/* Additions that u takes for one element if it is an expression of the index, made of IOTA and
 * whole numbers alone; of[k]: its source k. -1: it is none, or a long one. */
int index_cost(const struct uop *u, const int *of);
/* Whether coordinates u, a table of nbytes, are computed all the same, or at least made of the
 * tables of what u joins; cost: its index_cost(). */
bool is_no_table(const struct uop *u, int64_t nbytes, int cost, uint32_t varying,
                 const uint32_t *of);
/* mask_tables.c: a constant mask whose rows are intervals is comparisons of places */
bool pass_places(struct tgc *t, struct graph *g);
/* onehot.c: a one-hot row times a matrix is a row of the matrix */
bool pass_onehot(struct tgc *t, struct graph *g);
bool pass_affine(struct tgc *t, struct graph *g);
/* narrow_weights.c: large weights in t->weight_dtype, where the user wants that */
bool pass_narrow_weights(struct tgc *t, struct graph *g);
/* byte_sums.c: sums of products of quantized values become sums of products of bytes */
bool pass_integer(struct tgc *t, struct graph *g);
/* byte_table.c: whether u is read from a table of bytes, by bytes */
bool reads_byte_table(const struct uop *u);
/* winograd.c: convolutions of stride 1 by tiles, where that takes less time */
bool pass_winograd(struct tgc *t, struct graph *g);
/* strassen.c. needs: constants are folded */
bool pass_strassen(struct tgc *t, struct graph *g);
/* defer_division.c: what a sum of products is divided by in every term is divided by behind it */
bool pass_factor(struct tgc *t, struct graph *g);
/* transpose_keys.c: keys that are a part of a tensor and too many for a kernel's scratch are
 * stored */
bool pass_across(struct tgc *t, struct graph *g);
/* copy_gathered.c: inputs that are read again and again at places which are data are stored in another
 * order */
bool pass_gathered(struct tgc *t, struct graph *g);
/* The same with tiles of this side, 2 to 6, along all windows that it fits; 0: as
 * pass_winograd() */
/* layer_memory.c: the most bytes that are alive at once where the layers of the graph are
 * computed one by one. */
double room_of_layers(struct tgc *t, const struct graph *g);
bool winograd_apply(struct tgc *t, struct graph *g, int side);
/* s->buffer, s->weight from the steps' kernels */
void schedule_collect_buffers(struct tgc *t, struct schedule *s);
/* k->buffer anew: the first noutput stay, then what any variant reads, in order of first use */
void kernel_collect_buffers(struct tgc *t, struct kernel *k);
/* thread.c: nests that meet become kernels of their own */
bool pass_part(struct tgc *t, struct schedule *s);
/* optimize.c: the loops of a kernel's stores. s: for which instruction sets */
bool pass_merge_clamps(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_merge_ranges(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_order_gathers(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_divide_sums(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_order_sums(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_group_bytes(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_group_stages(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_divide_ranges(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_gather_rows(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_pack_keys(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_share_stages(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_split_columns(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_tile(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_collect(struct tgc *t, struct schedule *s);            /* s->buffer, s->weight */
/* thread.c: which loops threads share */
bool pass_thread(struct tgc *t, struct schedule *s, struct kernel *k);
bool pass_linearize(struct tgc *t, struct schedule *s, struct kernel *k);
/* The linear program of a kernel's AST; *flop: its floating point operations. */
struct uop **linearize(struct tgc *t, const struct uop *ast, int *n, double *flop);
/* expand.c: in the variants, lanes become vectors and straight-line code */
bool pass_expand(struct tgc *t, struct schedule *s, struct kernel *k);
/* half_vectors.c: vectors of which no more than half the lanes are stored become half as wide, where
 * the instruction set has vectors of half the size */
bool pass_halve(struct tgc *t, struct schedule *s, struct kernel *k);
/* prefetch.c: PREFETCH behind loads of weights; of those that are read once only if they are far:
 * more than a cache keeps from one run to the next */
bool pass_prefetch(struct tgc *t, struct schedule *s, struct kernel *k);
/* a variant without vectors says nothing that the portable one does not say */
bool pass_drop_plain(struct tgc *t, struct schedule *s, struct kernel *k);
/* memory.c */
bool pass_sizes(struct tgc *t, struct schedule *s);
bool pass_arena(struct tgc *t, struct schedule *s);
bool pass_weights(struct tgc *t, struct schedule *s);

/* ------------------------------------------------------------------------------ driver.c */

enum pass_fact {
#define FACT(name, text) FACT_##name,
#include "passes/passes.def"
    FACT_COUNT
};
const char *fact_text(enum pass_fact f);
enum stage_of { STAGE_GRAPH, STAGE_PLAN, STAGE_SCHEDULE, STAGE_KERNEL, STAGE_CODE };
struct plan;
/* A row of passes.def. One of the functions is not NULL, as the stage says. needs, makes, breaks: bit
 * i is enum pass_fact i. */
struct pass {
    const char *name;
    enum stage_of stage;
    bool always;
    unsigned needs, makes, breaks;
    bool (*graph)(struct tgc *t, struct graph *g);
    void (*plan)(struct plan *p);
    bool (*schedule)(struct tgc *t, struct schedule *s);
    bool (*kernel)(struct tgc *t, struct schedule *s, struct kernel *k);
};
const struct pass *pass_at(int i);                               /* NULL: no more */
int pass_count(void);
const struct pass *pass_find(const char *name);                  /* NULL: there is none */
const char *stage_name(enum stage_of s);
/* What became of a pass: how long it took, of how many graphs or kernels, and how many changed. */
struct pass_record { double seconds; int runs, changes; };

/* A compile between two passes. */
struct passing {
    struct graph *graph;
    struct plan *plan;           /* made for the first of its passes, with its schedule */
    struct schedule *schedule;
    bool noopt;
    isa_set isa;                 /* these are the schedule's */
    int threads;
    bool on_device;
    double thread_gain_ns;
    unsigned facts;              /* bit i is enum pass_fact i */
    struct pass_record *record;  /* by pass; NULL: nobody asks */
    struct dump *dump;           /* at DEBUG=4 */
};
/* All passes from one to another, verified after each. needs: a verified graph. false: diagnostics
 * were recorded. */
bool passes_run_rows(struct tgc *t, struct passing *p, const char *first, const char *last);

#endif
