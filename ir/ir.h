/* ir.h - the header of ir/: dtypes, uops, symbolic integers, views, tensors, printing, evaluation;
 * base.h has memory and diagnostics.
 *
 * A program is a graph of immutable, hash-consed uops; equality is ==. Three dialects share the
 * struct: the tensor graph (every uop has a shape), the kernel AST (scalars over RANGEs), and the
 * linear program (an array of kernel uops).
 *
 *      tensor graph  --schedule-->  kernel AST  --linearize-->  linear program  --render-->  C
 */
#ifndef TGC_IR_H
#define TGC_IR_H

#include "ir/base.h"

/* -------------------------------------------------------------------------------------- dtype.c */

enum dtype {
#define DTYPE(name, text, ctype, bits, kind, onnx) DTYPE_##name,
#include "ir/dtypes.def"
#undef DTYPE
    DTYPE_COUNT,
    /* dtype of dimensions and index arithmetic */
    DTYPE_INDEX = DTYPE_I64
};
const char *dtype_name(enum dtype d);                             /* "f32" */
const char *dtype_ctype(enum dtype d);                            /* "float" */
/* in memory: sub-byte kinds take 1 byte */
size_t dtype_nbytes(enum dtype d);
int dtype_bits(enum dtype d);
char dtype_kind(enum dtype d);                                    /* 'B' 'I' 'U' 'F' 'S' 'N' */
/* a bit of a constant, since it is asked for each element that the interpreter computes */
static inline bool dtype_is_float(enum dtype d)
{
    const uint64_t floats = 0
#define DTYPE(name, text, ctype, bits, kind, onnx) | (uint64_t)(#kind[0] == 'F') << DTYPE_##name
#include "ir/dtypes.def"
#undef DTYPE
        ;
    return floats >> d & 1;
}
bool dtype_is_int(enum dtype d);  /* signed or unsigned, not bool */
/* f16, bf16, tf32: to which --math rounds, and what vectors have as f32 until it is stored */
bool dtype_is_half(enum dtype d);
bool dtype_is_byte(enum dtype d);                                 /* i8, u8 */
/* elements of a group, DOT_BYTES of memory: four bytes, two bf16 */
int dtype_group(enum dtype d);
bool dtype_is_f8(enum dtype d);                                   /* with a sign and a mantissa */
/* of a float of 8 or 16 bits the integer; else d */
enum dtype dtype_as_bits(enum dtype d);
enum dtype dtype_from_onnx(int tensor_proto_type);                /* VOID if unknown */
int dtype_to_onnx(enum dtype d);
bool dtype_parse(const char *s, enum dtype *d);
/* integers; U64 is bounded by INT64_MAX */
int64_t dtype_min(enum dtype d), dtype_max(enum dtype d);
/* A scalar of dtype d: floats in double, integers in int64 (u64 as its bits), bool 0/1. */
union scalar { int64_t i; double f; };
/* from memory in the storage format */
union scalar scalar_load(enum dtype d, const void *p);
/* rounds to nearest even / wraps */
void scalar_store(enum dtype d, void *p, union scalar v);
/* CAST semantics; result is representable in `to` */
union scalar scalar_cast(enum dtype to, enum dtype from, union scalar v);

/* ------------------------------------------------------------------------------------- scalar.c */
/* towards -inf; a // 0 = 0; INT64_MIN // -1 wraps */
int64_t int_floordiv(int64_t a, int64_t b);
int64_t int_floormod(int64_t a, int64_t b);                       /* sign of b; a % 0 = 0 */
/* >= 0; gcd(0, 0) = 0; INT64_MIN if it is 2^63 */
int64_t int_gcd(int64_t a, int64_t b);

/* ---------------------------------------------------------------------------------------- uop.c */

enum op {
#define OP(name, text, class, nsrc, arg) OP_##name,
#include "ir/ops.def"
#undef OP
    OP_COUNT
};
enum opclass {
    CLASS_LEAF,
    CLASS_MOVE,
    CLASS_UNARY,
    CLASS_BINARY,
    CLASS_TERNARY,
    CLASS_CHOICE,
    CLASS_REDUCE,
    CLASS_MEMORY,
    CLASS_CONTROL
};
/* The arg of an op: none of its own, or a layout (ops.def). After a layout's enumerator, ARG_WAIT,
 * those of its fields follow, ARG_WAIT_ID. */
enum argkind {
    ARG_NONE = -4,
    ARG_VALUE,
    ARG_BITS,
    ARG_PTR,
#define LAYOUT(name) ARG_##name,
#define FIELD(layout, name, type, text, kind, at, bits, bias, least, most, otherwise, said)        \
    ARG_##layout##_##name,
#include "ir/ops.def"
    ARG_COUNT
};
const char *op_name(enum op op);
bool op_parse(const char *s, enum op *op);
enum opclass op_class(enum op op);
enum argkind op_argkind(enum op op);
/* The layout of this arg of the op, where it has several: LOAD and STORE. Negative: no fields. */
enum argkind op_layout(enum op op, int64_t arg);
/* A row of ops.def. text NULL: an enumerator of a layout, not of a field. */
enum arg_type { ARG_IS_INT, ARG_IS_FOLD, ARG_IS_UNIT, ARG_IS_ROLE, ARG_IS_POWER, ARG_IS_SWIZZLE,
                ARG_IS_FLAG };
struct arg_field {
    const char *text;
    enum arg_type type;
    int at, bits;
    int64_t bias, least, most, otherwise;
    bool always;
};
const struct arg_field *arg_field(enum argkind field);
/* Whether the field may have the value; reads it, and sets it. */
bool arg_fits(enum argkind field, int64_t value);
int64_t arg_get(int64_t arg, enum argkind field);
int64_t arg_with(int64_t arg, enum argkind field, int64_t value);
/* Whether each field has a value that it may have, and nothing else is in the arg. */
bool arg_is_valid(enum op op, int64_t arg);
/* An arg of these values, in the order of the layout's rows; further fields say `otherwise`. */
int64_t arg_pack(enum argkind layout, const int64_t *value, int n);
#define ARG_PACK(layout, ...)                                                                      \
    arg_pack(ARG_##layout, (const int64_t[]){__VA_ARGS__},                                         \
             (int)(sizeof(const int64_t[]){__VA_ARGS__} / sizeof(int64_t)))
enum { ARG_ID_MAX = 1 << 20 };       /* numbers of barriers, accumulators, groups, at most */
int op_nsrc(enum op op);
bool op_is_elementwise(enum op op);                               /* UNARY, BINARY, TERNARY */
bool op_is_pointwise(enum op op);      /* those, and STACK: a function of the sources'
                                        * elements at one position */
bool op_is_commutative(enum op op);
/* An op with an effect and without a value. */
bool op_is_statement(enum op op);
/* Is operand k memory, a BUFFER or a STAGE? An INTRINSIC's row says which of its operands are. */
bool op_takes_memory(enum op op, int k);
/* scalar.c: the value of an elementwise op on constants v[nsrc] of dtype `from` (WHERE: v[0] is
 * bool), as a scalar of dtype `to`. false: the IR leaves the result open, or the op has no meaning
 * for the dtype. */
bool scalar_apply(enum op op, enum dtype to, enum dtype from, const union scalar *v,
                  union scalar *r);

enum { MAX_RANK = 16 };
/* Alignment in bytes of tensors that may be images: a row of 64 pixels of four floats. */
enum { IMAGE_ALIGN = 1024 };
union arg { int64_t i; double f; const void *p; };

struct uop {
    enum op op;
    enum dtype dtype;
    int nsrc;
    int ndim;                    /* derived: rank of a tensor uop; 0 for scalars and kernel uops */
    int lanes; /* derived: lanes of a vector in a linear program; 1: a scalar */
    uint32_t id;                 /* order of creation; deterministic */
    union arg arg;
    struct uop **src;
    /* derived: dim[ndim], each an INDEX-typed scalar: CONST, VAR or arithmetic on them */
    struct uop **dim;
    /* derived, integers and bool: bounds of every element. Floats: see uop_float_bounds() */
    union {
        struct { int64_t vmin, vmax; };
        struct { double fmin, fmax; };
    };
    struct uop *folded;          /* the fold hook's result for it; itself if nothing folds */
    uint32_t mark;               /* uop_toposort's visit */
    uint32_t ranges;  /* the set of ranges below it: passes/analysis/access.c; 0: not known yet */
};

/* The integer symbols. A dimension of the model, or a loop counter. Identity is the pointer. */
struct var {
    const char *name;
    int64_t min, max;
    int id;
    bool is_counter;
    bool is_found;               /* the frontend says: a host call gives it its value */
};

#include "ir/buffer.h"

/* LOOP: src = trip (i64 scalar), cond (bool scalar), init[ncarried], cond_next, next[ncarried],
 * scan[nscan]. Inside, the iteration number is VAR `counter`, and carried value k is the PARAM
 * whose arg is &param[k]. What does not depend on the counter or a PARAM of the loop is
 * loop-invariant and runs before it. GET k < ncarried is the final carried value; GET ncarried + j
 * is scan[j] stacked along a new first axis of `scan_length`. A carried value keeps its shape. */
struct loop;
struct loop_param {
    struct loop *loop;
    int index;
    enum dtype dtype;
    int ndim;
    struct uop *dim[MAX_RANK];
};
struct loop {
    int id, ncarried, nscan;
    struct var *counter;
    struct loop_param *param;    /* [ncarried] */
    struct uop *scan_length;
};

/* HOST: a call of `function` in runtime/host: inputs' pointers, outputs' pointers, then params as
 * int64_t. GET k is output k. A data-dependent dimension is a var in `result`, at most var->max;
 * the function writes its value. */
struct host_output {
    enum dtype dtype;
    int ndim;
    struct uop *dim[MAX_RANK];
    bool kept; /* other results point into it: its memory is reserved for the whole run */
};
/* The signature of a function of runtime/host/: a row of ir/host.def. */
struct host_function {
    const char *name;
    int nin, nout, nparam, nresult;
    size_t stack_nbytes;
    const char *needs, *found; /* see ir/host.def */
    const char *signature;              /* "x, keys -> places; params": for people */
    const char *types;                  /* see ir/host.def */
};
const struct host_function *host_function_at(int i);              /* NULL: no more */
/* NULL: there is no function of this name. */
const struct host_function *host_function_find(const char *name);
/* The element type of its k-th input, or of result k - nin. */
enum dtype host_function_dtype(const struct host_function *f, int k);
/* A C function of the user's, as docs/custom-operators.md declares it: its arguments in order. An
 * operand and a result are a pointer and the shape, a list a pointer and its length, the scratch a
 * pointer and its bytes. */
enum external_kind {
    EXTERNAL_OPERAND, EXTERNAL_INT, EXTERNAL_FLOAT, EXTERNAL_STRING, EXTERNAL_INTS,
    EXTERNAL_FLOATS, EXTERNAL_RESULT, EXTERNAL_SCRATCH
};
struct external_argument { enum external_kind kind; const char *name; enum dtype dtype; int ndim; };
struct external {
    const char *name;            /* of the operator: "my.domain::Foo" */
    const char *symbol;          /* of the function */
    const char *declaration;     /* as .tg text */
    const struct external_argument *argument; int nargument;
    const struct external_gradient *gradient;    /* NULL: it is not differentiated */
};
/* What a call gives for an argument, besides inputs, outputs and params. */
struct external_value {
    bool absent;                 /* OPERAND: a null pointer */
    double f;
    const char *s;
    const int64_t *ints;
    const double *floats;
    int nitem;
};
struct host_call {
    /* C identifier; also selects the snippet, see ir/host.def */
    const char *function;
    int nout; struct host_output *out;
    int nparam; struct uop **param;
    int nresult; struct var **result;
    /* NULL: a function of runtime/host/. Otherwise the params are, by argument, the sizes of an
     * operand that is there or of a result, an INT, the bytes of the scratch, which is the last
     * output; value[] is by argument, too. */
    const struct external *external;
    const struct external_value *value;
};
/* The params that belong to argument i of an external call. */
int external_params(const struct host_call *h, int i);

/* Packed args (ARG_BITS). */
/* PERMUTE: 4 bits an axis */
#define PERM_GET(bits, a) ((int)(((uint64_t)(bits) >> (4 * (a))) & 15))
int64_t perm_pack(const int *perm, int n);
/* RANGE: its number, what its loop becomes (the axis), and who runs its iterations (the worker).
 * The two are independent: a loop, a band or a part of a panel may be shared, and later passes
 * treat it no differently. */
enum axis {
#define AXIS(name, text, letter, lane) AXIS_##name,
#include "ir/axes.def"
#undef AXIS
    AXIS_COUNT
};
enum worker {
    WORKER_EACH,                 /* every thread that runs the kernel runs all iterations */
    /* a team of threads shares them: of n iterations, part p of P runs n*p/P to n*(p + 1)/P - 1 */
    WORKER_TEAM,
    /* so do the threads of a block, which run the same part and share shared memory */
    WORKER_BLOCK,
    /* Each iteration is a position of the device's grid: a thread, or a block. A nest has a loop
     * for each dimension of the grid; the innermost one is the first dimension. */
    WORKER_GRID,
    /* Each iteration is a thread of the block: thread i * n + j in a nest of two. They are no
     * loops, so a barrier may stand inside them. */
    WORKER_ITEM
};
/* As a range's name in text has it: "", ".team", ... */
const char *worker_suffix(enum worker w);
enum { GRID_RANK = 3 };                  /* of a grid's dimensions, at most */
const char *axis_name(enum axis a);
char axis_letter(enum axis a);           /* the letter of its loops' names in text, as in r12 */
/* Products of groups, of bytes or of bf16: the bytes of a group, which a lane multiplies, and what
 * is subtracted from unsigned values for instructions that take signed ones. */
enum { DOT_BYTES = 4, DOT_MIDDLE = 128 };
/* An elementwise op of a program after the last pass: the target language's operator suffices,
 * although it does not define all that the IR does; see passes/target/widths.c. */
enum { ARG_PLAIN = 1 };
/* A buffer's panel: bytes of a row and of a chunk; the rows after which the XOR swizzle repeats. */
enum {
    PANEL_ROW_NBYTES = 128,
    PANEL_CHUNK_NBYTES = 16,
    PANEL_ROWS = 8,
    PANEL_ALIGN = PANEL_ROW_NBYTES * PANEL_ROWS
};
/* A tile register: its rows, and bytes of a row; the number of registers. */
enum {
    TILE_ROWS_MAX = 16,
    TILE_ROW_NBYTES = 64,
    TILE_REGISTERS = 8,
    TILE_SUMS_MAX = TILE_ROWS_MAX * TILE_ROW_NBYTES / 4
};
/* INTRINSIC: its row, and the parameters that the row names, at most 4095 each. */
enum intrinsic {
#define INTRINSIC(name, text, params, shapes, meaning) INTRINSIC_##name,
#include "ir/intrinsics.def"
#undef INTRINSIC
    INTRINSIC_COUNT
};
enum { INTRINSIC_PARAMS = 4, INTRINSIC_OPERANDS = 4, INTRINSIC_PARAM_MAX = 4095 };
#define INTRINSIC_BITS(row, a, b, c)                                                               \
    ((int64_t)(row) | (int64_t)(a) << 8 | (int64_t)(b) << 20 | (int64_t)(c) << 32)
#define INTRINSIC_ROW(bits) ((enum intrinsic)((bits) & 255))
#define INTRINSIC_PARAM(bits, i) ((bits) >> (8 + 12 * (i)) & INTRINSIC_PARAM_MAX)
/* A row of matrix.def. */
enum matrix_unit {
#define MATRIX(name, text, lanes, m, n, k, a, b, sum, of_a, of_b, of_sum) MATRIX_##name,
#include "ir/matrix.def"
#undef MATRIX
    MATRIX_COUNT
};
enum { COPY_NBYTES_LEAST = 4, COPY_NBYTES_MOST = 16 };

static inline int64_t arg_bits(int64_t arg, int at, int bits, bool is_signed)
{
    uint64_t high = (uint64_t)arg << (64 - at - bits);
    return is_signed ? (int64_t)high >> (64 - bits) : (int64_t)(high >> (64 - bits));
}
/* The fields of packed args: LAYOUT_NAME(arg) for each row of ops.def. */
#define FIELD(layout, name, type, text, kind, at, bits, bias, least, most, otherwise, said)        \
    static inline type layout##_##name(int64_t arg)                                                \
    {                                                                                              \
        return (type)(arg_bits(arg, at, bits, (least) - (bias) < 0) + (bias));                     \
    }
#include "ir/ops.def"
/* kernel: the row of matrix.def that computes the sum over its last range, from 1 on; 0: none */
#define REDUCE_MATRIX(arg) (REDUCE_UNIT(arg) + 1)
#define TILE_IS(arg) ((arg) != 0 && VECTOR_LANES(arg) == 0)
#define TILE_IS_BY_ROWS(arg) (TILE_IS(arg) && TILE_HAS_ALIGNED_ROWS(arg))
#define VECTOR_IS_IMAGE(arg) (VECTOR_LANES(arg) == 4 && VECTOR_IS_PIXEL(arg))
#define MATRIX_ALONG_K(arg, factor) ((factor) ? MATRIX_B_IS_ALONG_K(arg) : MATRIX_A_IS_ALONG_K(arg))

#define ERROR_LIMIT 1e-4             /* see tgc.error_limit */
/* The most bytes of a program's weights, by a multiple of the model's or by a number; 0 and 0: any.
 * added: what rewrites have added so far, see passes/analysis/weight_budget.h */
struct weight_limit { double ratio; size_t nbytes; double added; };
#define CACHE_OF_MACHINE SIZE_MAX    /* see tgc.cache_nbytes */
enum agreement { SIZES_DIFFER, SIZES_EQUAL, SIZES_STRETCH };
/* The compile. Everything hangs on it; there is no other global state. */
struct tgc {
    jmp_buf stop;                /* set by the caller that starts a compile */
    struct mem_block *mem;
    const struct device_row *device;      /* the target; NULL: the program's processor */
    const char *architectures;   /* "sm_80,sm_90a", if kernels are compiled for several;
                                  * NULL: the device's */
    bool by_llvm;         /* LLVM compiles kernels, not the vendor's compiler: matrix_in_shared() */
    /* the stack's blocks, top first; empty blocks */
    struct mem_block *scratch, *spare;
    size_t mem_used, mem_limit;  /* bytes; the limit is --max-memory */
    size_t run_used, run_limit;  /* of the tensors of runs in this process; 0: no limit */
    struct intern_slot { struct uop *uop; uint32_t hash; } *table; /* every uop */
    size_t table_size, nuop;
    uint32_t mark;
    struct range_sets *range_sets;                       /* see uop.ranges */
    struct uop_frame *visit; size_t cap_visit;           /* uop_toposort's stack */
    /* simplifies a new uop; NULL: no folding. Set by passes/rules/rewrite.c */
    struct uop *(*fold)(struct tgc *t, struct uop *u);
    /* index arithmetic in normal form, without a uop that would be folded; NULL: fold has to be
     * asked. Set by passes/rules/rewrite.c */
    struct uop *(*fold_index)(struct tgc *t, enum op op, struct uop *x, struct uop *y);
    /* May two sizes that are not proved equal be assumed equal? For broadcasting: equal, unless
     * those of `stretch` (1: a, 2: b) are 1. A hook that agrees must make the run check it. NULL:
     * never. Set by a frontend */
    enum agreement (*agree)(struct tgc *t, void *ctx, struct uop *a, struct uop *b, int stretch);
    void *agree_ctx;
    /* nesting of calls of the fold hook, to catch rules that undo each other */
    int fold_depth;
    unsigned *fired;             /* by rule, how often it fired (pass_log); NULL: not counted */
    bool noopt;                  /* -O0: only integer index rules fold */
    bool fast_math;
    bool no_winograd;            /* convolutions stay sums of products */
    /* products with weights by Strassen's seven products, see passes/graph/matmul/strassen.c */
    bool strassen;
    /* a device's kernels read four contiguous elements as a pixel; values between kernels, and
     * weights, are halves in memory; no shared memory: passes/vector/images.c,
     * passes/kernel/half_storage.c, passes/kernel/grid.c */
    bool image, half_storage, no_locals;
    /* the error that rewrites may add to the outputs, and the variance already added, see
     * passes/analysis/error.h */
    double error_limit, error_variance;
    struct weight_limit weight_limit;
    /* bytes of a core's own cache; CACHE_OF_MACHINE: the machine's L2; 0: bands
     * wherever possible */
    size_t cache_nbytes;
    /* what the cost models read, see passes/target/target.h; NULL: the first row */
    const struct machine *machine;
    int threads;                 /* threads of a run, at most; 0 as 1 */
    bool scalar;                 /* emit no vector variants */
    /* BF16 or I8: the storage format of large f32 weights; VOID: unchanged */
    enum dtype weight_dtype;
    /* F16, BF16 or TF32: to what the factors of products are rounded (--math); VOID: they are
     * not */
    enum dtype math;
    const char *const *unrounded; int nunrounded;    /* nodes, but for whose products; with '*' */
    /* measured choices, see passes/target/tune.h; NULL: the cost models choose */
    struct tuning *tuning;
    struct opt_limit *limit;     /* TGC_OPT_LIMIT; NULL: there is none */
    struct diag *diag; int ndiag; size_t cap_diag; int nerror;
    int next_buffer, next_var, next_range, next_loop;
    int debug;                   /* DEBUG=n */
    const struct listener *listener;         /* NULL: none */
    struct held *held;           /* see held_add() */
    /* origins: which model node a uop came from; see origin_* */
    struct origin **origin; size_t norigin, cap_origin;
    /* index into origin[] + 1, 0: none; the frontend sets it while it lowers a node */
    int current_origin;
    char last_node[256];         /* the node during which memory ran out, for the message */
    int *uop_origin; size_t cap_uop_origin;              /* by uop id */
    const char **uop_axes; size_t cap_uop_axes;          /* by uop id */
    const char **uop_word; size_t cap_uop_word;          /* by uop id */
    struct merged **uop_merged; size_t cap_uop_merged;   /* by uop id */
    bool bug;                    /* tgc_stop() was called by tgc_bug() */
    bool cancelled;              /* ... since the listener wanted it */
    bool exhausted;              /* a limit of memory, or the system's, is reached */
};
/* NULL if out of memory; 0: no limit */
struct tgc *tgc_new(size_t mem_limit);
void tgc_free(struct tgc *t);

/* Interns without folding. Shape, bounds and hash are derived. needs: sources valid for op (TGC_BUG
 * otherwise). */
/* derive.c: a new uop's dimensions, bounds and lanes, from its op, dtype, sources and arg */
void uop_derive(struct tgc *t, struct uop *u);
struct uop *uop_intern(struct tgc *t, enum op op, enum dtype dtype, struct uop *const *src,
                       int nsrc, union arg arg);
/* Interns and folds: what every builder uses. The result may be any equivalent uop of the same
 * dtype and shape. */
struct uop *uop_new(struct tgc *t, enum op op, enum dtype dtype, struct uop *const *src, int nsrc,
                    union arg arg);

struct uop *uop_const(struct tgc *t, enum dtype d, union scalar v);
struct uop *uop_int(struct tgc *t, int64_t v);                    /* CONST of DTYPE_INDEX */
/* v converted to d, whatever d is */
struct uop *uop_consti(struct tgc *t, enum dtype d, int64_t v);
struct uop *uop_constf(struct tgc *t, enum dtype d, double v);
struct uop *uop_bool(struct tgc *t, bool v);
struct uop *uop_unary(struct tgc *t, enum op op, struct uop *a);
struct uop *uop_binary(struct tgc *t, enum op op, struct uop *a, struct uop *b);
struct uop *uop_where(struct tgc *t, struct uop *c, struct uop *a, struct uop *b);
/* STACK: x[index] of n; index: i64 */
struct uop *uop_stack(struct tgc *t, struct uop *index, struct uop *const *x, int n);
struct uop *uop_cast(struct tgc *t, enum dtype d, struct uop *a);
struct uop *uop_not(struct tgc *t, struct uop *a);
/* same op, dtype, arg; folds */
struct uop *uop_replace_src(struct tgc *t, struct uop *u, struct uop *const *src);

/* integer or bool CONST equal to v */
bool uop_is_int(const struct uop *u, int64_t v);
bool uop_const_int(const struct uop *u, int64_t *v);              /* integer CONST */
/* float CONST; -0.0 and 0.0 differ */
bool uop_is_constf(const struct uop *u, double v);
/* derive.c: bounds of a float scalar that follows from symbols alone, with the rounding of its
 * dtype; false: it has none, or may be NaN. */
bool uop_float_bounds(const struct uop *u, double *lo, double *hi);
/* Is the scalar arithmetic on symbols and constants alone? false also where it is
 * too long to tell. */
bool uop_is_of_symbols(const struct uop *u);

struct var *var_new(struct tgc *t, const char *name, int64_t min, int64_t max);
struct uop *uop_var(struct tgc *t, struct var *v);
/* A hash of name, dtype and shape. needs: a name */
uint64_t buffer_key(const struct buffer *b);
/* The fan-in of a weight whose values are drawn: elements along all axes but the first; of a
 * matrix, whose sides may be either way round, along the longer side. 0: none is drawn, of rank
 * below 2 or without elements. needs: a known size */
int64_t buffer_fan(const struct buffer *b);
struct buffer *buffer_new(struct tgc *t, enum buffer_kind kind, enum dtype d,
                          struct uop *const *dim, int ndim, const char *name);
struct uop *uop_buffer(struct tgc *t, struct buffer *b);
struct uop *uop_range(struct tgc *t, struct uop *size, int id);   /* id from t->next_range++ */
/* a fresh range of another axis kind and worker */
struct uop *uop_axis(struct tgc *t, struct uop *size, enum axis a, enum worker w);
/* Whether u is a RANGE of this kind; one of a lane's kind; one that threads share. */
bool range_is(const struct uop *u, enum axis a);
bool range_is_lane(const struct uop *u);
bool range_is_shared(const struct uop *u);               /* WORKER_TEAM */
bool range_is_of_block(const struct uop *u);             /* WORKER_BLOCK */
bool range_is_grid(const struct uop *u);                 /* WORKER_GRID */
bool range_is_item(const struct uop *u);                 /* WORKER_ITEM */
/* For a linear program's RANGE u[at]: how many loops of its worker are nested in it. *turns: the
 * product of their sizes, at their upper bounds. */
int linear_inner_workers(struct uop *const *u, int n, int at, int64_t *turns);
/* The buffer that b is a part of, or b itself. */
const struct buffer *buffer_root(const struct buffer *b);
/* Whether b is `whole`, or a part of it. */
bool buffer_is_part_of(const struct buffer *b, const struct buffer *whole);
enum space buffer_space(const struct buffer *b);
const struct buffer *uop_buffer_of(const struct uop *u);          /* BUFFER or STAGE */
/* Bounds of a weight's elements; whole: each is an integer. */
struct element_bounds { union scalar lo, hi; bool whole; };
/* Bounds of a weight of integers of at least 8 bits, f32 or floats of 8 bits, in stored order.
 * false: it is no such weight, it is empty or has more than `most` elements, or one is
 * infinite or NaN. */
bool buffer_bounds(const struct buffer *b, size_t most, struct element_bounds *e);

/* Topological order (sources first) of everything reachable from roots; the array is scratch.
 * Deterministic. Iterative. */
struct uop **uop_toposort(struct tgc *t, struct uop *const *root, int nroot, int *n);
/* Does u depend on a LOAD, so on data? NULL: no. */
bool uop_reads_memory(struct tgc *t, struct uop *u);
/* Rewrites bottom-up with memo: each node gets new sources, then fn(ctx, node) may return a
 * replacement (NULL: keep). Iterative. */
typedef struct uop *(*uop_rewriter)(struct tgc *t, void *ctx, struct uop *u);
void uop_rewrite(struct tgc *t, struct uop **root, int nroot, uop_rewriter fn, void *ctx);
/* u with `to` in place of `from`, once: `from` stays inside `to`, and where the substitution itself
 * creates it (r + 1 for r turns r - 1 into r). */
struct uop *uop_substitute(struct tgc *t, struct uop *u, const struct uop *from, struct uop *to);
/* A map from uops to pointers, by id. `scratch`: it is on the scratch stack, and must be filled
 * before its mark is released. */
struct uop_map {
    struct tgc *t;
    bool scratch;
    struct uop_slot {
        uint32_t key;
        void *value;
    } * slot;
    size_t size, used;
};
void *map_get(const struct uop_map *m, const struct uop *u);
void map_set(struct uop_map *m, const struct uop *u, void *value);
/* uop_substitute() of all uops that `by` has, at once: none of what they become is looked at
 * again. */
struct uop *uop_substitute_all(struct tgc *t, struct uop *u, const struct uop_map *by);

/* origins: provenance of uops, stored outside the graph and the hash key. Set while the frontend
 * lowers a node; rewriting keeps the first. */
/* model's node name (may be ""), operator, number */
/* id: its place in tgc.origin. of, step: of a step in which a pass computes the node `of`, which is
 * the origin of the step's uops; NULL: this is a node's own. is_adjoint: a step that computes the
 * derivative of the node */
struct origin {
    const char *node;
    const char *op_type;
    int index, id;
    const struct origin *of;
    const char *step;
    bool is_adjoint;
    bool is_past;                /* of a walk over the model that was begun again */
};
/* also becomes current */
int origin_new(struct tgc *t, const char *node, const char *op_type, int index);
/* "Winograd F(4x4, 3x3): Y = A'MA": a step of the current origin, which it becomes. */
void origin_begin_step(struct tgc *t, const char *text);
/* The derivative of u's node becomes current, unless a node of the model's is, or u is of none. */
void origin_begin_adjoint(struct tgc *t, const struct uop *u);
const struct origin *uop_get_origin(const struct tgc *t, const struct uop *u);     /* NULL: none */
bool uop_is_adjoint(const struct tgc *t, const struct uop *u); /* of the derivative of its origin */
/* 'Conv "conv_3"', not escaped */
const char *origin_title(struct tgc *t, const struct origin *o);
/* The order of nodes in the model's file. 0: they are one node, of which an unrolled loop or a call
 * made several. */
int origin_compare(const struct origin *a, const struct origin *b);
/* The model's nodes in this order, each once. */
const struct origin **origin_list(struct tgc *t, int *n);
/* A node whose computation became a part of a uop's, which has the origin of another one: a Relu
 * before a Clip is a part of the Clip. A uop has at most MERGED_MOST: a chain of them would have
 * lists that are quadratic in its length. Lists are immutable; n: of this one. */
enum { MERGED_MOST = 64 };
struct merged { const struct origin *node; struct merged *next; int n; };
const struct merged *uop_get_merged(const struct tgc *t, const struct uop *u);     /* NULL: none */
const char *uop_get_step(const struct tgc *t, const struct uop *u);                /* NULL: none */
/* The origin of `from`, and its word, for u if it has none. */
void uop_set_origin(struct tgc *t, const struct uop *u, const struct uop *from);
/* Names of a tensor's axes for loops in emitted code: "n oc oy ox ic ky kx", one word an axis. */
void uop_name_axes(struct tgc *t, const struct uop *u, const char *words);
const char *uop_get_axes(const struct tgc *t, const struct uop *u);
/* What a value is, for its name in emitted code: "row_max", "gate_i". Movement and casts of it are
 * named, too; the last word counts. u NULL: nothing. */
void uop_name_value(struct tgc *t, const struct uop *u, const char *word);
const char *uop_get_word(const struct tgc *t, const struct uop *u);                /* NULL: none */

/* ------------------------------------------------------------- symbolic.c: integers with bounds */
/* Arguments are INDEX-typed scalars. Results are in the fold rules' normal form, so equal
 * expressions are mostly ==. */
struct uop *sym_add(struct tgc *t, struct uop *a, struct uop *b);
struct uop *sym_sub(struct tgc *t, struct uop *a, struct uop *b);
struct uop *sym_mul(struct tgc *t, struct uop *a, struct uop *b);
struct uop *sym_div(struct tgc *t, struct uop *a, struct uop *b); /* FLOORDIV */
struct uop *sym_mod(struct tgc *t, struct uop *a, struct uop *b); /* FLOORMOD */
struct uop *sym_addi(struct tgc *t, struct uop *a, int64_t b);
struct uop *sym_muli(struct tgc *t, struct uop *a, int64_t b);
struct uop *sym_ceildiv(struct tgc *t, struct uop *a, int64_t b);
struct uop *sym_min(struct tgc *t, struct uop *a, struct uop *b);
struct uop *sym_max(struct tgc *t, struct uop *a, struct uop *b);
struct uop *sym_lt(struct tgc *t, struct uop *a, struct uop *b);  /* bool */
struct uop *sym_prod(struct tgc *t, struct uop *const *v, int n);
struct uop *sym_and(struct tgc *t, struct uop *a, struct uop *b); /* bool */
/* proved equal: a - b folds to 0 */
bool sym_equal(struct tgc *t, struct uop *a, struct uop *b);
/* Proved equal, or assumed so by the agree hook. It is for sizes that must be equal, not for
 * telling cases apart. tensor_match() turns a tensor of one size into one of the other. */
bool sym_must_equal(struct tgc *t, struct uop *a, struct uop *b);
/* sym_must_equal for broadcasting: `stretch` says which sizes (1: a, 2: b) may be 1 at run time.
 * None is known to be 1. */
enum agreement sym_must_broadcast(struct tgc *t, struct uop *a, struct uop *b, int stretch);
/* Value under an assignment of vars (value[var->id]); false if it depends on a LOAD or an unset
 * var. */
bool sym_eval(const struct uop *u, const int64_t *value, int nvalue, int64_t *result);

/* ---------------------------------------------------------------------------------- intrinsic.c */
/* What the rows of intrinsics.def say. bits: INTRINSIC_BITS() of a use. */
struct intrinsic_shape {
    enum dtype dtype;            /* VOID: the result's, whatever that is */
    bool byte;                   /* which is u8 or i8 */
    bool memory;                 /* a table, not a vector */
    int64_t dim[4];
    int ndim, lanes;
};
const char *intrinsic_name(enum intrinsic of);
bool intrinsic_find(const char *name, enum intrinsic *of);
const char *intrinsic_params(enum intrinsic of);                  /* a letter each */
int intrinsic_nsrc(enum intrinsic of);
struct intrinsic_shape intrinsic_shape(int64_t bits, int k);      /* of operand k */
struct intrinsic_shape intrinsic_result(int64_t bits);
/* An intrinsic's meaning: a graph of the operands, which have their shapes. */
struct uop *intrinsic_meaning(struct tgc *t, int64_t bits, struct uop *const *in);
bool uop_is_intrinsic(const struct uop *u, enum intrinsic of);
/* The lanes of a LOAD or STORE with this argument. */
int access_lanes(int64_t bits);
/* Is u in a tile register, not in a vector's? True for tiles that are loaded,
 * and for their sums. */
bool uop_is_tile(const struct uop *u);
bool intrinsic_is_of_tiles(enum intrinsic of);   /* products of tiles */
const char *uop_op_name(const struct uop *u);            /* of its row, or of its op */

/* ------------------------------------------------------------------------------------- tensor.c */
/* Builders of graph uops: check, broadcast, infer shapes. Axis arguments are 0..ndim-1. */
struct uop *uop_reshape(struct tgc *t, struct uop *x, struct uop *const *dim, int ndim);
struct uop *uop_permute(struct tgc *t, struct uop *x, const int *perm);
/* same rank */
struct uop *uop_expand(struct tgc *t, struct uop *x, struct uop *const *dim);
struct uop *uop_pad(struct tgc *t, struct uop *x, struct uop *value, struct uop *const *lo,
                    struct uop *const *hi);
struct uop *uop_shrink(struct tgc *t, struct uop *x, struct uop *const *begin,
                       struct uop *const *size);
struct uop *uop_flip(struct tgc *t, struct uop *x, uint32_t axes);
struct uop *uop_window(struct tgc *t, struct uop *x, int axis, struct uop *nout,
                       struct uop *nkernel, int64_t stride, int64_t dilation);
struct uop *uop_concat(struct tgc *t, struct uop *const *x, int n, int axis);
/* axes become 1 */
struct uop *uop_reduce(struct tgc *t, enum op op, struct uop *x, uint32_t axes);
struct uop *uop_iota(struct tgc *t, struct uop *n);
/* index[x->ndim], all of one shape */
struct uop *uop_index(struct tgc *t, struct uop *x, struct uop *const *index);
/* op CONST: overwrite; ADD MUL MAX MIN */
struct uop *uop_scatter(struct tgc *t, enum op op, struct uop *x, struct uop *value,
                        struct uop *const *index);
/* Control. Each returns the node; uop_get() its k-th result. then[k] and other[k] agree in dtype
 * and dims. */
struct uop *uop_if(struct tgc *t, struct uop *cond, struct uop *const *then,
                   struct uop *const *other, int n);
struct uop *uop_loop(struct tgc *t, struct loop *l, struct uop *trip, struct uop *cond,
                     struct uop *const *init, struct uop *cond_next, struct uop *const *next,
                     struct uop *const *scan);
struct uop *uop_param(struct tgc *t, struct loop_param *p);
struct uop *uop_host(struct tgc *t, struct host_call *call, struct uop *const *input, int n);
struct uop *uop_get(struct tgc *t, struct uop *node, int k);
/* Built of the ops above. */
/* a scalar expanded */
struct uop *tensor_full(struct tgc *t, struct uop *value, struct uop *const *dim, int ndim);
/* x with dimensions that are equal to its own, but other uops */
struct uop *tensor_match(struct tgc *t, struct uop *x, struct uop *const *dim);
/* x with these dimensions: truncated, or padded with zeros at the end. Rank and axes stay. */
struct uop *tensor_fit(struct tgc *t, struct uop *x, struct uop *const *dim);
/* numpy rules; NULL if impossible. A dimension that may be 1 at run time is tested by the run. */
struct uop *tensor_broadcast_to(struct tgc *t, struct uop *x, struct uop *const *dim, int ndim);
/* dim[MAX_RANK]; false: cannot */
bool tensor_broadcast_dims(struct tgc *t, struct uop *const *x, int n, struct uop **dim, int *ndim);
struct uop *tensor_unary(struct tgc *t, enum op op, struct uop *a);
/* broadcasts; NULL if it cannot */
struct uop *tensor_binary(struct tgc *t, enum op op, struct uop *a, struct uop *b);
struct uop *tensor_where(struct tgc *t, struct uop *c, struct uop *a, struct uop *b);
struct uop *tensor_stack(struct tgc *t, struct uop *index, struct uop *const *x, int n);
/* concatenates x[0], ... x[n - 1] along an axis that has size 1 in each of them */
struct uop *tensor_stack_along(struct tgc *t, int axis, struct uop *const *x, int n);
/* reshape that removes axes of size 1 */
struct uop *tensor_drop_axes(struct tgc *t, struct uop *x, uint32_t axes);
struct uop *tensor_insert_axis(struct tgc *t, struct uop *x, int axis);                /* size 1 */
struct uop *tensor_sum(struct tgc *t, struct uop *x, uint32_t axes, bool keep);
struct uop *tensor_max(struct tgc *t, struct uop *x, uint32_t axes, bool keep);
/* i64 of shape dim: index along axis */
struct uop *tensor_iota(struct tgc *t, struct uop *const *dim, int ndim, int axis);
/* Notes of which weight, and how, a pass has made one (or a view of it); returns it. of: NULL if
 * that is unknown. */
struct uop *tensor_made_of(struct uop *made, const struct buffer *of, const char *how);
/* The largest weight of which u is made; NULL: there is none. */
const struct buffer *tensor_weight_below(struct tgc *t, struct uop *u);
/* A weight, of rank 0 a constant. data is not copied. */
struct uop *tensor_from_data(struct tgc *t, enum dtype d, const int64_t *dim, int ndim,
                             const void *data, size_t nbytes, const char *name);
/* A weight that the model names, of any rank a BUFFER. */
struct uop *tensor_weight(struct tgc *t, enum dtype d, const int64_t *dim, int ndim,
                          const void *data, size_t nbytes, const char *name, bool is_param);
/* The element at constant coordinates as a scalar uop, if it is known at compile time or follows
 * from dimensions (Shape -> Gather -> Concat chains). It walks movement ops with the index
 * arithmetic, reads weights, folds. NULL if it depends on run-time data. */
struct uop *tensor_element(struct tgc *t, struct uop *x, const int64_t *index);

#include "ir/view.h"

/* ---------------------------------------------------------------------------------------- graph */
/* Elements of the last axis of an output, which have a name of their own. */
struct graph_slice { const char *name; int64_t begin, size; };
struct graph_output {
    const char *name; struct uop *value; int nslice; struct graph_slice *slice;
    const struct quantization *quantization;      /* NULL: it stands for itself */
};
/* What a program says of itself: a key and its value. */
struct graph_meta { const char *key, *value; };
/* One of several runs that a program has over one context and its states. Inputs, outputs and host
 * calls of the graph that belong to it: from these on, as many. */
struct graph_entry { const char *name; int input, ninput, output, noutput, host, nhost; };
/* A state that the graph declares itself, and what an entry stores into it; entry -1: the run. */
struct graph_kept { struct uop *in; int entry; };
/* An entry of a training: what a caller passes and reads, by index in the graph's inputs and
 * outputs; -1: the entry has none. */
struct train_entry {
    int number, input, target, weight, draw, learning_rate, weight_decay, step;
    int loss, correct;
};
/* Of a training whose states are the caller's blocks: a program with NAME_train() and its like. */
struct graph_training {
    int ninput;                  /* of the model, from an entry's `input` on */
    struct train_entry run, train, gradients, update, evaluate;
    int nparam, nstatistic;      /* the first states; both are in the block of parameters */
    int64_t nclass;              /* targets are class numbers below it; 0: they are not */
    bool scales;                 /* the loss, dynamically: gradients need the optimizer's block */
    uint64_t identity;           /* hash of the weights that do not train */
    uint64_t seed;               /* by which elements drop */
    double learning_rate, weight_decay;        /* where the user has no other */
    const char *loss, *optimizer;              /* as they were asked for */
};
/* What passes/graph/narrow_weights.c did to the weights; nweight 0: nothing. Errors are those of
 * the narrowed weights: the root of the mean square relative to that of their values; and the
 * largest of one value, relative to its own (BF16) or to the largest of its channel (I8). */
struct narrowing {
    enum dtype dtype;
    int nweight;
    size_t from_nbytes, to_nbytes;
    double rms_error, max_error;
};
struct graph {
    const char *name;
    /* BUFFER_INPUT uops, in the model's order */
    int ninput; struct uop **input;
    int noutput; struct graph_output *output;
    /* The last `ninner` of the caller's outputs are values inside of the model, which --value asked
     * for; inner_from: what makes each, such as "node 3 'conv' (Conv)". */
    int ninner; const char **inner_from;
    /* The last `nstate` inputs and `npart` outputs belong to states, not to the caller:
     * state[k]->in, and the value stored into part[k]->out, which is the new rows alone if it
     * grows. */
    int nstate; struct state **state;
    int npart; struct state_part **part;
    /* Before passes/graph/state.c: the last `ndeclared` inputs are states, and the last `nkept`
     * outputs are stored into these. */
    int ndeclared, nkept; struct graph_kept *kept;
    /* 0: the graph is one run; else `entry_number` is the symbol whose value says which it is */
    int nentry; struct graph_entry *entry; struct var *entry_number;
    const struct graph_training *training;     /* NULL: the graph is no such training */
    uint64_t state_hash;  /* of the model and its states: checked when a saved state is loaded */
    int nvar; struct var **var;                                   /* dimensions that stay symbols */
    /* HOST uops that are no operand of any value: those that find a symbol's value, which run
     * before its first use, if there is one; and those without results, which check something and
     * always run. */
    int nhost; struct uop **host;
    const char *producer;                                         /* for the emitted comment */
    int nmeta; struct graph_meta *meta;
    struct narrowing narrowing;
    /* bytes that a run of the model's own layers needs, see passes/analysis/layer_memory.c; 0:
     * not known */
    double layers_nbytes;
};

/* uop.c: how many inputs and outputs are the caller's. */
int graph_count_inputs(const struct graph *g);
int graph_count_outputs(const struct graph *g);
/* The values of all outputs, then host[]; in the arena. */
struct uop **graph_roots(struct tgc *t, const struct graph *g, int *n);
/* uop_rewrite() of all roots; the results become the graph's. */
void graph_rewrite(struct tgc *t, struct graph *g, uop_rewriter fn, void *ctx);
/* a HOST that only checks */
bool uop_is_check(const struct uop *u);

/* ------------------------------------------------------------------------------------- scopes.c */

/* Values computed and in scope, in order; NULL: where a scope begins. Set known.t. */
struct scopes { struct uop_map known; struct uop **u; int n; size_t cap; };
void scopes_enter(struct scopes *s);
/* Forgets what was learned since the last scopes_enter(). */
void scopes_leave(struct scopes *s);
void scopes_learn(struct scopes *s, struct uop *u);
/* A store to the place: values loaded from there before are not reused. */
void scopes_forget_loads(struct scopes *s, const struct uop *place);

/* ---------------------------------------------------------------------------- print.c, verify.c */
/* one expression, infix for index arithmetic */
void uop_print(struct text *out, const struct uop *u);
void graph_print(struct text *out, struct tgc *t, const struct graph *g);
/* a line for each uop that linear_has_line() */
void linear_print(struct text *out, struct tgc *t, struct uop *const *u, int n);
bool linear_has_line(const struct uop *u);
/* print_kernel.c: all of a kernel's AST, or of a linear program, as text that can be read again */
void kernel_print(struct text *out, struct tgc *t, const struct uop *ast);
void program_print(struct text *out, struct tgc *t, struct uop *const *u, int n);
/* TGC_BUG on a violation */
bool graph_verify(struct tgc *t, const struct graph *g, const char *after_pass);
bool linear_verify(struct tgc *t, struct uop *const *u, int n, const char *after_pass);
bool kernel_verify(struct tgc *t, const struct uop *ast, const char *after_pass);
/* graph_verify() that returns false and says what is violated, and where. */
struct violation { const struct uop *at; const char *what; };
bool linear_check(struct tgc *t, struct uop *const *u, int n, struct violation *v);
bool kernel_check(struct tgc *t, const struct uop *ast, struct violation *v);
/* Counts loads of scratch that are proved to read what was stored before, and loads where this is
 * undecided. */
struct scratch_proof { int proved, open; };
/* verify_scratch.c: TGC_BUG where a load reads what no store wrote before it, in the same iteration
 * and thread, or where an access is out of bounds. Adds to *proof. */
void scratch_verify(struct tgc *t, struct uop *const *u, int n, const char *after_pass,
                    struct scratch_proof *proof);

#endif
