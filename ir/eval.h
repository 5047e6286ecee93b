/* eval.h - what the files of the evaluator share; private to ir/.
 *
 *     eval_alu.c            elementwise ops on scalars and on short vectors of them;
 *     eval_program.c        the value of a graph uop at many coordinates, as a vector program
 *                           without control flow;
 *     eval_plan.c           what gets a tensor; loops and their scopes;
 *     eval_tensor.c         one tensor: plain, reduce, scatter, concat;
 *     eval_product.c        sums of products, as a product of matrices;
 *     eval_control.c        if, loop, calls of host functions;
 *     eval_host.c           the host functions;
 *     eval.c                what is computed when; the exported functions;
 *     eval_memory.c         what kernels read and write;
 *     eval_linear.c         linear programs, as instructions;
 *     eval_linear_code.c    their translation to instructions;
 *     eval_linear_memory.c  their loads and stores;
 *     eval_kernel.c         kernels' ASTs.
 */
#ifndef TGC_EVAL_H
#define TGC_EVAL_H

#include "ir/device_ops.h"
#include "ir/oracle.h"

enum { LANES = 512 };            /* elements computed by one instruction */

/* ----------------------------------------------------------------------------------- eval_alu.c */

/* One elementwise op on scalars; d is the result's dtype, sd the last source's. f32 is not rounded.
 * It has the same meaning as scalar_apply(), which folding uses, but is an independent
 * implementation: a test compares them. */
union scalar eval_scalar(enum op op, enum dtype d, enum dtype sd, const union scalar *v);
/* An operand: n values, or one for all. */
struct operand { const union scalar *v; bool uniform; };
/* Values beyond the largest f32 become infinite, if d is f32. */
void alu_confine(enum dtype d, union scalar *r, int64_t n);
/* r[0..n) = op(x...); dtype is the result's, sdtype that of the last source. n <= LANES. */
void alu_vector(enum op op, enum dtype dtype, enum dtype sdtype, int n, union scalar *r,
                const struct operand *x, int nx);
/* The neutral element of a reduction: the result of reducing nothing. */
union scalar alu_identity(enum op op, enum dtype dtype);

/* ------------------------------------------------------------------------------- eval_program.c */

/* What is known of a uop during an evaluation. Filled in by eval_plan.c. */
struct node {
    struct uop *u;
    int weight;                  /* uops in its tree down to what is materialized */
    /* the innermost loop on which it depends, an index into eval.loop[]; -1: none */
    int scope;
    /* tensors of the same scope that still have to be computed from it */
    int readers;
    bool is_dim;                 /* integer arithmetic on constants and symbols */
    bool pure;                   /* a movement op: nothing is computed */
    bool stretched;              /* read through an op that repeats elements */
    /* gets a tensor of its own; otherwise it is computed where it is read */
    bool materialize;
    bool shared;                 /* materialized only because it has several readers */
    bool kept;                   /* its tensor is kept after its last reader */
    bool has_dims, has_scalar;
    int64_t dim[MAX_RANK], nelem;
    int64_t scalar;              /* of a dim */
    struct tensor *value;        /* once computed */
    int next_in_scope;
    int last_reader;             /* consumer that was counted last */
    int nreader;                 /* distinct consumers */
    uint32_t mark;
};

enum instr_kind { INSTR_ALU, INSTR_LOAD, INSTR_IN_RANGE, INSTR_CLAMP };
struct instr {
    enum instr_kind kind;
    enum op op;                  /* ALU */
    enum dtype dtype, sdtype;
    int dst, src[3], nsrc;
    int64_t n;                   /* LOAD: elements of the tensor. CLAMP: to 0 .. n-1 */
    const void *data;            /* LOAD */
    bool raw;                    /* LOAD: data is in the storage format of dtype */
};

/* How often a register changes: once, per batch of lanes, per step, or both. */
enum { VARIES_LANE = 1, VARIES_STEP = 2 };
/* value: of a register that does not vary by lane. pace: the fastest of the step axes on which it
 * depends, 0 for the one that changes in each step; MAX_RANK: none */
struct reg { int varies, pace, producer; bool is_const, needed; union scalar value; int slot; };

/* Elements are computed at points of two boxes: the lane axes are flattened into vectors, the step
 * axes are loops around them. */
struct program {
    struct instr *instr; int ninstr; size_t cap_instr;
    struct reg *reg; int nreg; size_t cap_reg;
    struct memo *memo; int nmemo; size_t cap_memo;
    int *list; size_t cap_list;  /* instructions by how often they run */
    union scalar *slot; size_t cap_slot;
    int *last_use; size_t cap_last_use;
    int *free_slot; size_t cap_free_slot;
    int nlane_axes, nstep_axes;
    bool first_fastest;          /* the first step axis changes fastest, otherwise the last */
    int64_t lane_dim[MAX_RANK], step_dim[MAX_RANK];
    int lane_reg[MAX_RANK], step_reg[MAX_RANK];
    int64_t *budget;             /* element operations left; negative: no limit */
    bool failed;                 /* out of memory or budget, or a coordinate outside its tensor */
};

struct eval;
void eval_program_reset(struct program *p);
void eval_program_free(struct program *p);
/* Registers of the coordinates of a box. */
void eval_program_lanes(struct program *p, const int64_t *dim, int ndim);
void eval_program_steps(struct program *p, const int64_t *dim, int ndim, bool first_fastest);
/* The register with u at these coordinates; -1 after a failure. needs: the dims of all nodes below
 * are known, and all that is not inline is computed. */
int eval_program_value(struct program *p, struct eval *e, struct uop *u, const int *coord);
/* eval_program_value() that computes u itself, materialized or not. */
int eval_program_body(struct program *p, struct eval *e, struct uop *u, const int *coord);
/* The lane axes on which a register depends, as bits; 0 after a failure. */
uint32_t eval_program_axes(struct program *p, int reg);
/* Runs the program; after each step it hands over the lanes first .. first+n of step number `step`,
 * row-major by the step axes. value[i] are operands for root[i]. */
typedef void (*program_sink)(void *ctx, int64_t first, int n, int64_t step,
                             const struct operand *value);
bool eval_program_run(struct program *p, const int *root, int nroot, program_sink sink, void *ctx);

/* ----------------------------------------------------------------------------------- evaluation */

enum {
    WEIGHT_MAX = 64,             /* uops in one program's tree */
    /* the cost of a loop iteration that does little, in element operations */
    ITERATION_COST = 2048
};

struct loop_state {
    struct loop *loop;
    struct node *node;           /* its LOOP */
    int depth;
    int first_in_scope;          /* list of nodes, -1: end */
    int phase;
    int64_t iteration, trip, scan_length;
    bool cond, done, fixed_length;
    struct tensor **param, **scan;   /* [ncarried], [nscan] */
    struct node **param_node;
};

/* A HOST: its results are held here until their GETs take them. */
struct host_state { struct node *node; struct host_call *call; bool done; struct tensor **out; };

struct eval {
    struct tgc *t;
    const struct eval_env *env;
    int64_t budget;
    size_t live, live_limit;     /* bytes of tensors */
    struct node *node; int nnode; size_t cap_node;
    int *table; size_t table_size;       /* uop id -> node index + 1 */
    struct loop_state *loop; int nloop; size_t cap_loop;
    struct host_state *host; int nhost; size_t cap_host;
    /* per node: the loops on which it depends, without itself */
    uint64_t *free_loops; size_t nword;
    /* var_from: the node whose evaluation sets the symbol; -1: none */
    int64_t *var; bool *var_set; int *var_from; int nvar;
    struct uop **var_host;       /* by id: which of the caller's HOSTs finds the symbol's value */
    struct node **task; int ntask; size_t cap_task;
    struct node **walk; int nwalk; size_t cap_walk;
    struct node **read; int nread; size_t cap_read;
    uint32_t mark;
    struct program program;
    bool failed;
};

/* WAIT: tasks were pushed that must run first; ask again after them. */
enum status { STATUS_FAIL, STATUS_WAIT, STATUS_READY };

/* eval_plan.c */
/* grows a heap array; sets failed if it cannot */
bool eval_reserve(bool *failed, void *array, size_t *cap, size_t n, size_t size);
struct node *eval_node(struct eval *e, const struct uop *u);
bool eval_is_memory(enum op op);
/* false: source k is a size, which is known from the dims */
bool eval_is_value_source(const struct uop *u, int k);
struct loop_state *eval_find_loop(struct eval *e, const struct loop *l);
struct host_state *eval_find_host(struct eval *e, const struct uop *u);
bool eval_plan(struct eval *e, struct uop *const *root, int nroot);

/* eval.c: finds what is missing. eval_need() asks for all that a program for u reads;
 * eval_need_more() extends an earlier question; with `body`, u itself is computed, too. */
enum status eval_find_dims(struct eval *e, struct node *n);
enum status eval_dim_value(struct eval *e, struct node *root);
void eval_need_begin(struct eval *e);
enum status eval_need_more(struct eval *e, struct uop *u, bool body);
enum status eval_need(struct eval *e, struct uop *u);
bool eval_push_task(struct eval *e, struct node *n);
/* pushes n on the walk, unless it was pushed since the last mark */
bool eval_walk_push(struct eval *e, struct node *n);
bool eval_is_inline(struct eval *e, const struct node *n);        /* computed where it is read */
/* a weight that is read from its bytes; NULL: use value */
const struct buffer *eval_raw_weight(const struct node *n);

/* eval_tensor.c. NULL: out of memory or budget, or sizes that do not fit. needs: all that is read
 * is computed. */
struct tensor *eval_tensor_new(struct eval *e, enum dtype d, const int64_t *dim, int ndim);
void eval_tensor_free(struct eval *e, struct tensor *x);
/* truncates it to dims that are smaller: its first elements are kept */
void eval_tensor_cut(struct eval *e, struct tensor *x, const int64_t *dim);
/* u over its shape; body: u itself is computed */
struct tensor *eval_compute_plain(struct eval *e, struct uop *u, bool body);
/* u over these axes, in this order; needs: it is invariant along the others */
struct tensor *eval_compute_over(struct eval *e, struct uop *u, const int *axis, int naxis);
struct tensor *eval_compute(struct eval *e, struct uop *u);       /* u itself, whatever op it is */

/* eval_product.c: a REDUCE; also NULL if it is not a sum of such products */
struct tensor *eval_compute_product(struct eval *e, struct uop *u);

/* eval_control.c */
enum status eval_run_loop(struct eval *e, struct loop_state *s);
enum status eval_run_host(struct eval *e, struct host_state *s);
enum status eval_compute_get(struct eval *e, struct node *n);  /* a result of an IF, LOOP or HOST */

/* eval_host.c: needs: out[] have room for the largest results; result[] receives the data-dependent
 * dimensions. false: no such function here. */
bool eval_host(const char *function, struct tensor *const *in, int nin, struct tensor *const *out,
               int nout, const int64_t *param, int nparam, int64_t *result);

/* -------------------------------------------------------------------------------- eval_memory.c */

/* A buffer's elements: as wide scalars, or a weight's bytes in the storage format. */
struct memory {
    const struct buffer *buffer;
    union scalar *data;
    const char *raw;
    void *packed;
    int64_t nelem;
    bool own;
    struct touched *touch;       /* NULL: races are not looked for */
    bool owns_touch;
};
/* What a kernel accesses: given by the caller, weights, and scratch that lives as long as this. */
struct eval_memory {
    struct tgc *t;
    const struct eval_env *env;
    bool *failed;                /* set when memory runs out */
    struct memory *v;
    int n;
    size_t cap;
    /* of the block's first thread, which has its shared memory; or NULL */
    struct eval_memory *block;
};
/* The buffer's index in v[]. Fresh scratch is filled with a value that shows in any result that
 * reads it. */
int eval_memory_of(struct eval_memory *m, const struct buffer *b);
union scalar eval_memory_get(const struct memory *m, int64_t at);
void eval_memory_free(struct eval_memory *m);

/* -------------------------------------------------------------------------- eval_linear_code.c */

enum code {
    CODE_ALU,
    CODE_LOAD,
    CODE_STORE,
    CODE_TRANSFER,            /* COPY, completed at once: the copy may complete at any
                               * time before its WAIT */
    CODE_OPEN,
    CODE_CLOSE,
    CODE_COPY,
    CODE_PICK,
    CODE_LANE,
    CODE_FOLD,
    CODE_INTRINSIC,
    CODE_MATRIX,
    CODE_NEAREST,
    CODE_COUNT,
    CODE_NARROW,
    CODE_GATHER,
    CODE_RAMP,
    CODE_SKIP_UNLESS,
    CODE_BARRIER,
    CODE_MBAR,                   /* by op: MBAR_INIT, MBAR_ARRIVE, MBAR_RELEASE, MBAR_WAIT */
    CODE_BULK,
    CODE_BULK_STORE,
    CODE_ROLE,
    CODE_TICKET,
    CODE_OFFER,           /* SHUFFLE: other threads may take the value after the end of the phase */
    CODE_TAKE,                   /* SHUFFLE: takes another thread's value */
    CODE_LANES_INIT,
    CODE_LANES_GET,
    CODE_LANES_SET
};
struct linstr {
    enum code code;
    enum op op;
    enum dtype dtype, sdtype;
    int dst, src[4], nsrc;
    /* lanes of the result, or of a stored value; those in memory; the stride between them */
    int lanes, part, stride;
    int step[4]; /* per source: 1 if it is a vector, 0 if all lanes read one element; MATRIX: 2 if
                  * it is bits, 3 if each thread has its own */
    int period;                  /* COPY: the source's lanes, which are repeated */
    int columns;                 /* LOAD, STORE of a tile: of a row; the rows are `stride` apart */
    int64_t panel;               /* LOAD of a tile: elements of a panel of its memory */
    bool grouped;                /* LOAD of groups of bytes, `stride` apart within a group */
    bool plain;   /* ALU: bounds exclude what a language's operator does not define */
    /* OPEN, CLOSE: this run executes a part of the loop's iterations, or this thread of a block */
    bool shared, of_block;
    /* OPEN, CLOSE. Of a grid's first dimension: the loops of the others around it. Of a block's
     * threads: how many are between two iterations */
    bool grid; int outer[2], nouter;
    bool place;   /* OPEN, CLOSE: iterations are positions of a grid, each with memory of its own */
    int64_t item;
    int mask;                    /* TAKE */
    bool of_role;               /* BARRIER, OFFER: for the consumers alone, if threads have roles */
    int64_t bits;                /* MATRIX: its row and the order of its tiles; MBAR,
                                  * ROLE: the op's argument */
    int memory;                  /* LOAD, STORE; INTRINSIC: its table; index into memory[] */
    int from;                    /* TRANSFER: likewise, what is copied */
    /* OPEN, SKIP_UNLESS: where to continue if the loop or guard is skipped; CLOSE: the first
     * instruction inside; INTRINSIC: index into meaning[]; BULK: into bulk[]; PICK: the least index
     * that takes the source instead of what dst holds, 0: any */
    int target;
};

/* An accumulator with lanes: one element per combination of them, row-major. */
enum { LANES_RANK = 8 };
struct lanes {
    const struct uop *acc;
    int reg[LANES_RANK], n;
    int64_t size[LANES_RANK], nelem;
    int wide;                    /* lanes of each element */
    union scalar *data;
};

/* What an INTRINSIC does: a graph of its operands. */
struct meaning {
    struct uop *root;
    const struct uop *leaf[INTRINSIC_OPERANDS];
    struct tensor *value[INTRINSIC_OPERANDS];
    int n;
};

/* A bulk copy: its memories, and the registers with its operands. */
struct bulk { const struct uop *u; int to, barriers, from, offset, number, coordinate[BULK_RANK]; };

struct linear_eval {
    struct tgc *t;
    const struct eval_env *env;
    struct linstr *code; int ncode; size_t cap_code;
    union scalar *reg; bool *set; int nreg; size_t cap_reg;
    struct eval_memory memory;
    struct lanes *lanes; int nlanes; size_t cap_lanes;
    struct meaning *meaning; int nmeaning; size_t cap_meaning;
    struct bulk *bulk; int nbulk; size_t cap_bulk;
    struct slot { const struct uop *u; int reg; } *table; size_t table_size, table_used;
    const struct uop **of; size_t cap_of;        /* by register */
    /* code positions of loops and guards to be closed */
    int *open; int nopen; size_t cap_open;
    int64_t budget;
    bool failed;
    int thread, threads;         /* of the block */
    int items;                   /* the threads of ITEM ranges; those after them are producers */
    int nrole;                   /* guards of roles that are open */
    int phase;                   /* barriers that were passed */
    union scalar offered[2];     /* in this phase and the one before, by the lowest
                                  * bit of the phase */
    int pc;         /* where it continues: after a barrier, at a barrier in memory, or at the end */
    bool polls, went;            /* it waits at a barrier in memory; it made progress since it
                                  * was started last */
    bool is_last;                /* the block's first thread: was it the last at its last TICKET? */
    bool stops, of_role;         /* it waits for all other threads, or has ended; it waits for
                                  * those of its role */
    struct uop *const *program; int nprogram, at;    /* what is compiled, and how far */
};

/* failed: no memory */
void eval_linear_compile(struct linear_eval *e, struct uop *const *u, int n);
void eval_linear_free(struct linear_eval *e);

/* ------------------------------------------------------------------------ eval_linear_memory.c */

/* One instruction each, by its name. */
void eval_linear_load(struct linear_eval *e, const struct linstr *in);
void eval_linear_store(struct linear_eval *e, const struct linstr *in);
void eval_linear_transfer(struct linear_eval *e, const struct linstr *in);
void eval_linear_gather(struct linear_eval *e, const struct linstr *in);
/* false: the thread must wait for others. */
bool eval_linear_mbar(struct linear_eval *e, const struct linstr *in);
void eval_linear_ticket(struct linear_eval *e, const struct linstr *in);
void eval_linear_bulk(struct linear_eval *e, const struct bulk *b);
void eval_linear_bulk_store(struct linear_eval *e, const struct bulk *b);

#endif
