/* passes.h - from the tensor graph to a schedule of linear kernels.
 *
 *      graph --simplify, fold--> graph --fuse--> decisions --lower--> kernel ASTs --linearize-->
 *      linear programs
 *                                                                     └─ plan memory, schedule
 *                                                                     control ─┘
 */
#ifndef TGC_PASSES_H
#define TGC_PASSES_H

#include "passes/opts.h"
#include "passes/target/cost.h"

/* A kernel for one instruction set: the same values by other loops. */
struct variant {
    enum isa isa;
    struct uop *ast;
    struct opts opts;            /* what made the AST of the one that was lowered */
    struct uop **linear; int nlinear;
};

/* A twin's earlier kernel, whose programs it shares; there[i] in them stands for here[i]. */
struct likeness {
    struct kernel *kernel;
    struct buffer **here, **there; int n;
    size_t cap_here, cap_there;
};

/* A kernel: one loop nest (or several in sequence) with its buffers. */
struct kernel {
    int index;                   /* its place in schedule.kernel */
    const char *name;            /* C identifier, unique in the program: "conv2_1", "softmax_3" */
    /* one line for a person: 'Conv "conv_3", Relu "relu_4": f32[1,64,56,56]'; not escaped */
    const char *title;
    /* all nodes of which `title` names the first ones, a line each, in the order of their
     * computation */
    const char *nodes;
    /* the steps of a node's computation that it makes: 'Winograd F(4x4, 3x3): Y = A'MA', a line
     * each; NULL: none */
    const char *steps;
    /* the model's nodes that it computes, those of `title`; what names it is first. is_adjoint:
     * it computes derivatives of nodes; is_again: and sums of nodes themselves once more */
    bool is_adjoint, is_again;
    const struct origin **node; int nnode; size_t cap_node;
    struct uop *ast;             /* SINK(STORE(buffer, offset, value, range...)...) */
    struct opts opts;            /* what made it of the AST that was lowered */
    struct uop **linear; int nlinear;
    /* vector variants; `ast` and `linear` are the portable one's */
    struct variant *variant; int nvariant; size_t cap_variant;
    /* weights packed in the order in which this kernel reads them, shared by its variants */
    struct buffer **packed; int npacked; size_t cap_packed;
    struct buffer **buffer; int nbuffer;   /* in order of the kernel's parameters: outputs first */
    int noutput;                 /* the first `noutput` of buffer[] are written */
    /* STAGE buffers, in the arena, or on the stack if small. In the arena each thread that shares
     * the kernel has its own, scratch_stride() bytes after the one before */
    struct buffer **scratch; int nscratch;
    struct var **var; int nvar;  /* symbols it reads: passed as int64_t */
    /* threads cannot share it: its nests depend on each other, or it stores at data-dependent
     * offsets */
    bool is_serial;
    bool is_copy;                /* it moves values, and computes none */
    bool by_blocks;              /* attention that becomes online softmax, see online_softmax.c */
    bool is_disjoint; /* its nests store to disjoint parts of a tensor */
    bool stores_twice;  /* stores some elements twice, so its operands must not be overwritten */
    bool is_shared;              /* by threads: each nest has a loop that they share */
    int block;                   /* threads of a block, which share a loop of each nest; or 0 */
    /* The grid's dimensions on a device, those of the innermost loops first; its indices are
     * threads, or blocks of threads. 0: parts of a loop are shared. group: threads of each
     * dimension in a work-group if there are no blocks; the last ones may be outside of the grid */
    int ngrid; struct uop *grid[GRID_RANK]; int group[GRID_RANK];
    bool counts_down;            /* the outermost loop of each nest counts down to 0 */
    double shared_ns;            /* the time that this is estimated to save; 0 to 1e9 */
    double flop, nbytes;         /* at the dimensions' upper bounds */
    /* of buffer[], whether it is read as an image, see vector/images.c; NULL: none is */
    bool *is_image;
    struct likeness *like;       /* NULL: the programs are its own, and name its buffers */
    /* a RANGE's loop is named uop_get_axes(t, range), unless that is NULL; names can repeat within
     * a kernel */
};

/* Threads of a block, producers (opt WARP_SPECIALIZE) included; 0: there are no blocks. */
int kernel_threads(const struct kernel *k);

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
    const struct origin *node;   /* HOST, IF, LOOP: the model's node that this is; NULL: of none */
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
    /* in order of first use; weights equal in dtype and bytes share one offset */
    struct buffer **weight; int nweight;
    struct buffer **input; int ninput;     /* as graph->input, without states */
    struct buffer **output; int noutput;   /* as graph->output, without states; BUFFER_OUTPUT */
    struct state **state; int nstate;      /* as graph->state */
    struct state_part **part; int npart;   /* as graph->part */
    size_t state_nbytes;                   /* of all places of states in the arena */
    /* of each block of the caller's, its head and table included; of none: BLOCK_HEAD_BYTES */
    size_t block_nbytes[BLOCK_COUNT];
    /* of a device, where each begins among the places of states: its memory holds them all */
    size_t block_at[BLOCK_COUNT];
    /* of a device: what its kernels have found, in place of steps `expect` */
    struct buffer **verdict; int nverdict; size_t cap_verdict;
    struct var **var; int nvar;            /* run-time dimensions and host results */
    isa_set isa;                 /* the instruction sets for which kernels may have variants */
    bool on_device;              /* intermediates are in a device's memory, not in the caller's */
    int threads;                 /* the most threads that run a kernel; 0 as 1 */
    double thread_gain_ns;       /* the least time that sharing a kernel has to save */
    /* intermediates are in the arena even if they are few, where others can look at them */
    bool in_arena;
    /* the arena as planned, and its lower bound, the largest live set */
    size_t arena_nbytes, live_nbytes;
    /* a step in which that set is live; and the set, the largest first */
    int live_step;
    struct buffer **live; int nlive;
    size_t weight_nbytes;
};

/* SCRATCH up to this size is on its kernel's stack, not in the arena */
enum { STACK_SCRATCH_NBYTES = 256 };
/* A variable of the kernel's function: small scratch, and always the shared memory of a block or of
 * a CPU's thread. */
bool scratch_is_on_stack(const struct buffer *b);
/* stack.c: an upper bound of the stack that a call of the kernel takes, in any variant, compiled by
 * gcc or clang at -O1 to -O3 or -Os. needs: planned linear programs */
size_t kernel_stack_nbytes(struct tgc *t, const struct kernel *k);
/* registers.c: 32-bit registers of a thread of a device's kernel, an estimate: its compiler has not
 * run. needs: LINEAR, a device with a grid */
int64_t kernel_registers(struct tgc *t, const struct kernel *k);
/* stack.c: by position in a linear program, the loops that compilers must not unroll, since they
 * would spill */
bool *stack_find_kept(struct tgc *t, enum isa isa, struct uop *const *u, int n);
/* unroll.c: whether the loop that opens at `at` is over elements of a thread's registers, which
 * have no addresses: it must be unrolled */
bool stack_is_over_registers(struct tgc *t, struct uop *const *u, int n, int at);
/* Whether the loop at `loop` of a device's program only accumulates what a block's threads have
 * in shared memory. Partly unrolled, the loads of one iteration then overlap the additions of
 * another. */
bool loop_is_step(struct uop *const *u, int n, int loop);
/* unroll.c: whether gcc's predictive commoning would carry more loads from one iteration of a loop
 * to the next ones than there are registers */
bool stack_carries(struct tgc *t, enum isa isa, struct uop *const *u, int n);
/* Intermediates of no more than this in total are on the stack of a run. */
enum { STACK_RUN_NBYTES = 256 };
/* Stride in bytes between the scratch of one thread and the next: whole cache lines. */
size_t scratch_stride(const struct buffer *b);
/* A buffer's size at the dimensions' upper bounds, for estimates: known before the memory plan sets
 * nbytes. */
double buffer_most_nbytes(const struct buffer *b);
/* Bytes of a block's shared memory, at the upper bounds. An aliasing tile adds only what exceeds
 * all the copies that it aliases. */
int64_t kernel_local_nbytes(const struct kernel *k);

struct compile_options {
    bool noopt;
    int level;                   /* -O0..3 */
    /* kernels run on a device, by up to `threads` work-items, without a least gain */
    bool on_device;
    const struct device_row *device;
    const char *architectures;   /* "sm_80,sm_90a", what kernels are compiled for;
                                  * NULL: the device alone */
    bool by_llvm;                /* which compiles a device's kernels, not the vendor's compiler */
    int threads;                 /* of a run, at most; 0 as 1 */
    isa_set isa;                 /* of variants; 0: only the portable kernel */
    const char *name;            /* C identifier */
    struct pass_record *record;  /* NULL, or the record of each pass */
    struct pass_log *log;        /* NULL, or receives what passes change */
};

/* Installs the fold hook (rules) into t; called once, before a frontend builds anything. */
void passes_init(struct tgc *t);
/* All passes in the order of passes.def, verified after each one in debug builds. NULL: diagnostics
 * were recorded. */
struct schedule *passes_run(struct tgc *t, struct graph *g, const struct compile_options *o);

/* state.c: --state OUT=IN. Makes the graph's output OUT and its input IN a state for each option. A
 * state grows if it is Concat(IN, rows) along a run-time dimension, or such parts joined along
 * other axes. needs: a graph from a frontend; breaks: nothing. false: diagnostics say which name
 * does not exist, or what does not agree or end; file: for these. */
bool state_apply(struct tgc *t, struct graph *g, const char *const *option, int noption,
                 const char *file);
/* The graph without states' leaves, where a growing state is a CONCAT again: values that the oracle
 * can compute. value[] has graph->noutput of them; the last are what states' parts store. */
void state_whole_values(struct tgc *t, const struct graph *g, struct uop **value);
/* Whether the run's symbol v is the length of a state. */
bool state_is_length(const struct graph *g, const struct var *v);
bool state_is_size(const struct graph *g, const struct var *v);
/* Of n states that several entries store: the number of the set of entries that store st. States of
 * one set change places together. */
int state_turn(struct state *const *state, int n, const struct state *st);
/* The axis along which a state's buffer grows; -1: none. */
int state_axis(const struct buffer *b);

/* constant_axes.c: the axes along which u, made of weights and constants, may vary, as bits; of[k]:
 * those of its source k. needs: all dimensions are known. */
uint32_t varying_axes(const struct uop *u, const uint32_t *of);
/* The axes of more than one element along which all elements of `size` bytes are equal, as bits. */
uint32_t equal_axes(const void *data, const int64_t *dim, int ndim, size_t size);
/* Keeps index 0 of each of these axes, whose dim[] become 1; returns the bytes that remain. */
size_t drop_axes(void *data, int64_t *dim, int ndim, size_t size, uint32_t axes);
/* The number of additions per element of u, if it is an expression of IOTA and integers alone;
 * of[k]: that of its source k. -1: it is not, or it is too long. */
int index_cost(const struct uop *u, const int *of);
/* Whether coordinates u, a table of nbytes, are better computed than stored, or are a join of such
 * tables; cost: its index_cost(). */
bool is_no_table(const struct uop *u, int64_t nbytes, int cost, uint32_t varying,
                 const uint32_t *of);
/* byte_table.c: whether u is computed by a table of 256 entries, indexed by a byte */
bool reads_byte_table(const struct uop *u);
/* layer_memory.c: the largest live set, in bytes, if the graph's layers are computed one by one. */
double room_of_layers(struct tgc *t, const struct graph *g);
/* A convolution as sums of products, of its pixels or of tiles. In each of `groups` and at each of
 * a tile's positions (`places`): rows x out sums of in * taps terms. pixels: of all images;
 * outputs: of a tile; places, outputs 1: no tiles; beside: bytes that a run has in memory without
 * them. */
struct conv_work { double groups, rows, in, out, taps, places, outputs, pixels, beside; };
/* ns of it, with its transforms and launches */
typedef double conv_cost(struct tgc *t, const struct conv_work *w);
/* Convolutions by tiles. side: of this side, 2 to 6, for all windows that it suits; 0:
 * where they cost less, and within the budget of --error. cost: NULL, or a device's model
 * in place of the machine's. */
bool winograd_apply(struct tgc *t, struct graph *g, int side, conv_cost *cost);
/* fills s->buffer and s->weight from the steps' kernels */
void schedule_collect_buffers(struct tgc *t, struct schedule *s);
/* rebuilds k->buffer: the first noutput stay, then what any variant reads, in order of first use */
void kernel_collect_buffers(struct tgc *t, struct kernel *k);
/* What the passes have made of the kernel that k is like, for k. */
void twin_follow(struct tgc *t, struct kernel *k);
/* What the buffer b of k's programs stands for, and by which buffer they name k's b; b itself, but
 * for twins. NULL: there is none. */
struct buffer *kernel_buffer_here(const struct kernel *k, const struct buffer *b);
struct buffer *kernel_buffer_there(const struct kernel *k, const struct buffer *b);
/* Makes a twin's programs its own: they name its buffers. */
void kernel_own_programs(struct tgc *t, struct kernel *k);
/* alias.c: whether they share memory, in part or whole. needs: places. */
bool buffers_may_alias(const struct buffer *a, const struct buffer *b);
/* Whether the kernels' buffers, as many of each kind, agree in all that the text of a function
 * depends on. needs: places. */
bool kernel_buffers_agree(const struct kernel *a, const struct kernel *b);
/* Notes the grid that the kernel's loops are. */
void kernel_note_grid(struct tgc *t, struct kernel *k);
union scalar reduce_identity(enum op op, enum dtype d);
/* analysis/linear_order.c: the linear program of a kernel's AST; *flop: its floating point
 * operations */
struct uop **linearize(struct tgc *t, const struct uop *ast, int *n, double *flop);
/* print_schedule.c: the steps, sizes and places, a line each, as far as they are known */
void schedule_print(struct text *out, struct tgc *t, const struct schedule *s);

/* ------------------------------------------------------------------------------ driver.c */

enum pass_fact {
#define FACT(name, text) FACT_##name,
#include "passes/passes.def"
    FACT_COUNT
};
const char *fact_text(enum pass_fact f);
enum stage_of { STAGE_GRAPH, STAGE_PLAN, STAGE_SCHEDULE, STAGE_KERNEL, STAGE_CODE };
struct plan;
/* The passes, but for those of a plan (plan.h): pass_half_precision() and so on. */
#define GRAPH_PASS(name, ...) bool pass_##name(struct tgc *t, struct graph *g);
#define SCHEDULE_PASS(name, ...) bool pass_##name(struct tgc *t, struct schedule *s);
#define KERNEL_PASS(name, ...)                                                                     \
    bool pass_##name(struct tgc *t, struct schedule *s, struct kernel *k);
#define CODE_PASS KERNEL_PASS
#include "passes/passes.def"
/* A row of passes.def: name and what it does. One of the functions is not NULL, according to the
 * stage. needs, makes, breaks: bit i is enum pass_fact i. */
struct pass {
    const char *name, *text;
    enum stage_of stage;
    bool always, cpu, then;      /* the column `when`, if it is not opt */
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
/* What a pass did: seconds taken, graphs or kernels run on, how many of them it changed, how many
 * uops it made, and bytes of memory that it took (blocks, the passes' common scratch included). */
struct pass_record { double seconds; int runs, changes; size_t uops, nbytes; };

/* A rule of passes/rules/, by its number. rewrite.c */
struct rule_row { const char *name, *file; int line; };
int rule_count(void);
const struct rule_row *rule_row_at(int i);

/* What passes have done, for the report: of the graph, the plan or a kernel the lines that each
 * changed, and how often each rule fired. Kernels as the portable program, and as the variant that
 * the machine would run. dump.c */
struct pass_change {
    int pass;                    /* pass_at(); pass_count(): the frontend */
    const char *subject;         /* "graph", "plan", "conv_3 (avx2)" */
    /* whole: all lines, the first time. Then what became of them in order: "=N" for N equal lines,
     * "-" before one that went, "+" before one that came; equal lines at the end are left out */
    const char *lines;
    bool whole;
};
struct pass_log {
    struct pass_change *change; size_t n, cap;
    size_t nbytes, most;         /* of all lines; later changes are left out */
    int left_out;
    unsigned *fired;             /* [pass_count() + 1][rule_count()]; the last row: the frontend */
};
/* Counts rules from now on, as the frontend's. */
struct pass_log *pass_log_new(struct tgc *t, size_t most);
/* Rules that fire from now on are this pass's. */
void pass_log_enter(struct tgc *t, struct pass_log *log, int pass);

/* The state of a compile between two passes. */
struct passing {
    struct graph *graph;
    struct plan *plan;           /* created for the first PLAN pass, with its schedule */
    struct schedule *schedule;
    bool noopt;
    isa_set isa;                 /* for the schedule */
    int threads;
    bool on_device;
    double thread_gain_ns;
    unsigned facts;              /* bit i is enum pass_fact i */
    struct pass_record *record;  /* by pass; NULL: not recorded */
    struct dump *dump;           /* at DEBUG=4, or with a log */
    struct pass_log *log;
};
/* Runs the passes from `first` to `last`, verifying after each. needs: a verified graph. false:
 * diagnostics were recorded. */
bool passes_run_rows(struct tgc *t, struct passing *p, const char *first, const char *last);

#endif
