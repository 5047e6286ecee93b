/* eval.h - what the files of the evaluator share; private to ir/.
 *
 * eval_alu.c       elementwise ops on scalars and on short vectors of them
 * eval_program.c   the value of a graph uop at many coordinates, as a vector program; no control flow
 * eval.c           what is materialized, in which order; reduce, scatter, concat, if, loop, host
 * eval_linear.c    linear programs
 */
#ifndef TGC_EVAL_H
#define TGC_EVAL_H

#include "ir/ir.h"

enum { LANES = 512 };            /* elements computed by one instruction */

/* ------------------------------------------------------------------------------------------------ eval_alu.c */

/* One elementwise op on scalars; d is the result's dtype, sd the last source's. f32 is not rounded. It says the same as scalar_apply(),
 * which folding uses, and is written apart from it: a test compares them. */
union scalar eval_scalar(enum op op, enum dtype d, enum dtype sd, const union scalar *v);
/* An operand: n values, or one for all. */
struct operand { const union scalar *v; bool uniform; };
/* r[0..n) = op(x...); dtype is the result's, sdtype that of the last source. n <= LANES. */
void alu_vector(enum op op, enum dtype dtype, enum dtype sdtype, int n, union scalar *r, const struct operand *x, int nx);
/* The neutral element of a reduction: the result of reducing nothing. */
union scalar alu_identity(enum op op, enum dtype dtype);

/* -------------------------------------------------------------------------------------------- eval_program.c */

/* What is known of a uop during an evaluation. Filled in by eval.c. */
struct node {
    struct uop *u;
    int weight;                  /* uops in its tree down to what is materialized */
    int scope;                   /* the innermost loop that it depends on, an index into eval.loop[]; -1: none */
    int readers;                 /* tensors of the same scope that are still to be computed from it */
    bool is_dim;                 /* integer arithmetic on constants and symbols */
    bool pure;                   /* movement of memory, nothing computed */
    bool stretched;              /* read through an op that repeats elements */
    bool materialize;            /* gets a tensor of its own; otherwise it is computed where it is read */
    bool shared;                 /* materialized only because it has several readers */
    bool kept;                   /* its tensor stays when all have read it */
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
struct reg { int varies, producer; bool is_const, needed; union scalar value; int slot; };   /* value: where it does not vary by lane */

/* Elements are computed at points of two boxes: the lane axes are flattened into vectors, the step axes are loops around them. */
struct program {
    struct instr *instr; int ninstr; size_t cap_instr;
    struct reg *reg; int nreg; size_t cap_reg;
    struct memo *memo; int nmemo; size_t cap_memo;
    int *list; size_t cap_list;  /* instructions by how often they run */
    union scalar *slot; size_t cap_slot;
    int *last_use; size_t cap_last_use;
    int *free_slot; size_t cap_free_slot;
    int nlane_axes, nstep_axes;
    int64_t lane_dim[MAX_RANK], step_dim[MAX_RANK];
    int lane_reg[MAX_RANK], step_reg[MAX_RANK];
    int64_t *budget;             /* element operations left; negative: no limit */
    bool failed;                 /* out of memory or budget, or a coordinate outside its tensor */
};

struct eval;
struct node *eval_node(struct eval *e, const struct uop *u);
bool eval_is_inline(struct eval *e, const struct node *n);        /* to be compiled in place */
const struct buffer *eval_raw_weight(const struct node *n);       /* a weight that is read from its bytes; NULL: use value */

void eval_program_reset(struct program *p);
void eval_program_free(struct program *p);
/* Registers of the coordinates of a box. */
void eval_program_lanes(struct program *p, const int64_t *dim, int ndim);
void eval_program_steps(struct program *p, const int64_t *dim, int ndim);
/* The register with u at these coordinates; -1 after a failure. needs: dims of all nodes below known, all that is not inline computed. */
int eval_program_value(struct program *p, struct eval *e, struct uop *u, const int *coord);
/* The same, and u itself is computed, materialized or not. */
int eval_program_body(struct program *p, struct eval *e, struct uop *u, const int *coord);
/* Runs; after each step hands over the lanes first .. first+n of step number `step`. value[i] are operands for root[i]. */
typedef void (*program_sink)(void *ctx, int64_t first, int n, int64_t step, const struct operand *value);
bool eval_program_run(struct program *p, const int *root, int nroot, program_sink sink, void *ctx);

#endif
