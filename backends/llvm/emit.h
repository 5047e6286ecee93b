/* emit.h - what the files of backends/llvm/ share: LLVM's types and functions, the module that is
 * being built, values. */
#ifndef TGC_LLVM_EMIT_H
#define TGC_LLVM_EMIT_H

#include "backends/cstyle/cstyle.h"
#include "backends/llvm/llvm.h"

/* ------------------------------------------------------------------------------- LLVM's C types */

typedef int LLVMBool;
#define OPAQUE(name) typedef struct LLVMOpaque##name *LLVM##name##Ref;
OPAQUE(Context)
OPAQUE(DiagnosticInfo)
OPAQUE(Module)
OPAQUE(Metadata)
OPAQUE(Type)
OPAQUE(Value)
OPAQUE(BasicBlock)
OPAQUE(Builder)
OPAQUE(DIBuilder)
OPAQUE(Attribute)
OPAQUE(Target)
OPAQUE(TargetMachine)
OPAQUE(TargetData)
OPAQUE(MemoryBuffer)
OPAQUE(PassBuilderOptions)
OPAQUE(Error)
#undef OPAQUE
/* Values of the enums of LLVM's C interface. */
enum llvm_opcode {
    LLVM_ADD = 8, LLVM_FADD, LLVM_SUB, LLVM_FSUB, LLVM_MUL, LLVM_FMUL, LLVM_UDIV, LLVM_SDIV,
    LLVM_FDIV, LLVM_UREM, LLVM_SREM, LLVM_FREM, LLVM_SHL, LLVM_LSHR, LLVM_ASHR, LLVM_AND, LLVM_OR,
    LLVM_XOR,
    LLVM_TRUNC = 30, LLVM_ZEXT, LLVM_SEXT, LLVM_FPTOUI, LLVM_FPTOSI, LLVM_UITOFP, LLVM_SITOFP,
    LLVM_FPTRUNC, LLVM_FPEXT, LLVM_PTRTOINT, LLVM_INTTOPTR
};
enum llvm_icmp {
    LLVM_EQ = 32, LLVM_NE, LLVM_UGT, LLVM_UGE, LLVM_ULT, LLVM_ULE, LLVM_SGT, LLVM_SGE, LLVM_SLT,
    LLVM_SLE
};
enum llvm_fcmp {
    LLVM_OEQ = 1, LLVM_OGT, LLVM_OGE, LLVM_OLT, LLVM_OLE, LLVM_ONE, LLVM_ORD, LLVM_UNO, LLVM_UEQ,
    LLVM_FUGT, LLVM_FUGE, LLVM_FULT, LLVM_FULE, LLVM_UNE
};
enum { LLVM_EXTERNAL = 0, LLVM_INTERNAL = 8, LLVM_PRIVATE = 9 };                 /* linkage */
enum { LLVM_HIDDEN = 1 };                             /* visibility */

/* ---------------------------------------------------------------------------------------- api.c */

struct llvm {
    struct tgc *t;
    void *library;
    int version;                 /* 14 to 19 */
#define API(result, name, parameters) result (*name) parameters;
#include "backends/llvm/api.def"
#undef API
};

/* ---------------------------------------------------------------------------------- the emitter */

typedef LLVMValueRef value;

/* A loop, or a guard, that is open. */
struct region {
    const struct uop *u;
    LLVMBasicBlockRef head, exit;/* a guard has no head; a position of the grid without a
                                  * condition has neither */
    value counter, end;
    bool is_kept, is_straight;   /* a loop of a device's kernel that must not, or
                                  * must, be unrolled */
    int64_t step;                /* of its counter; 0: 1 */
};

/* A function of the module's own. Kernels with other features have another: vectors are passed as
 * the features say. */
struct own_piece { const char *name, *features; value function; };

struct emit {
    struct tgc *t;
    const struct llvm *l;
    const struct schedule *s;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef at;
    struct held *held;           /* the three */
    LLVMTargetDataRef layout;
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, size, pointer, nothing;
    LLVMTypeRef inputs, outputs, options, head;    /* the structs: see layout.c */
    const char *name;            /* of the program */
    const char *arch;            /* as in isa.def */
    bool weights_outside;        /* the options have their address */
    const char *cpu, *features;  /* of the functions; LLVM's "+avx2,-amx" */
    isa_set isa;                 /* dispatch.c: the sets that kernels are written for; 0: for the
                                  * machine alone */
    const struct kernel **twin;  /* by position in schedule->kernel, see twins.c */
    value *kernel;               /* their functions, likewise: the portable one, if there are
                                  * several */
    value *variant[ISA_COUNT];   /* likewise, by instruction set; NULL: none has one */
    int *slot, nslot;            /* likewise: where it is in the tables of dispatch.c;
                                  * -1: it has no variant */
    const struct gpu *gpu;       /* whose kernels these are; NULL: a processor's */
    bool is_linux, swapped;      /* swapped: the byte order is not this process's */
    /* The functions of runtime/ that the module calls: its own, compiled from their text, and those
     * that stay C, which have pointers to the host's data and no vectors. */
    struct own_piece *own; int nown; size_t cap_own;
    const char **piece; int npiece; size_t cap_piece;
    int lanes;                   /* of the vectors of the own piece that is written */

    /* the function that is being written */
    value function;
    LLVMBasicBlockRef entry, begin;        /* the first holds what has a place on the stack */
    const struct kernel *k;      /* NULL: run.c's */
    struct uop *const *linear; int nlinear, position;
    struct uop_map known;        /* the value of a uop; of an accumulator its place */
    value *place;                /* of a kernel's buffers and scratch; in run.c by buffer->id */
    value *var;                  /* in run.c: by var->id, where a symbol's value is */
    value part, parts;
    struct tile_registers *tiles;          /* of a kernel that has some; NULL: it has none */
    value tile_config;           /* likewise: a global with their shapes */
    value task;                  /* in run.c: the arguments of a kernel that threads share */
    struct debug *debug;         /* debug.c; NULL: lines are not noted */
    struct region *region; int nregion; size_t cap_region;
};

/* layout.c: the fields of struct NAME; from HEAD_THREADS to HEAD_USER those of NAME_options, of a
 * training to HEAD_RANK */
enum {
    HEAD_OPENED, HEAD_THREADS, HEAD_WEIGHTS, HEAD_WEIGHTS_NBYTES, HEAD_PARALLEL_FOR, HEAD_ON_KERNEL,
    HEAD_USER, HEAD_PARAMS, HEAD_GRADIENTS, HEAD_OPTIMIZER, HEAD_SUM_RANKS, HEAD_RANKS_USER,
    HEAD_RANKS, HEAD_RANK, HEAD_KERNELS, HEAD_PARTS, HEAD_NFIELD
};
void layout_begin(struct emit *e);
/* describe.c has offsets of this process, where a field takes 8 bytes. */
static inline int field_of(size_t offset) { return (int)(offset / 8); }
/* The place of a field of the struct at s, which has that type; what is there. */
value field_at(const struct emit *e, LLVMTypeRef type, value s, int field);
value field_load(const struct emit *e, LLVMTypeRef type, value s, int field);

/* values.c: types and small operations */
LLVMTypeRef type_of(const struct emit *e, enum dtype d, int lanes);     /* of a value */
LLVMTypeRef type_in_memory(const struct emit *e, enum dtype d);         /* of an element */
LLVMTypeRef vector_of(const struct emit *e, LLVMTypeRef type, int lanes);
value const_int(const struct emit *e, LLVMTypeRef type, int64_t v);
value const_i64(const struct emit *e, int64_t v);
value const_status(const struct emit *e, enum program_status s);
value const_null(const struct emit *e);                        /* a pointer */
value is_null(const struct emit *e, value pointer);
value compare_ints(const struct emit *e, enum llvm_icmp how, value a, value b);
value splat(const struct emit *e, value v, int lanes);
/* lanes from[i] of a, then b (NULL: of a alone) */
value shuffle(const struct emit *e, value a, value b, const int *from, int n);
value binary(const struct emit *e, enum llvm_opcode op, value a, value b);
value cast_to(const struct emit *e, enum llvm_opcode op, value v, LLVMTypeRef type);
value choose(const struct emit *e, value cond, value a, value b);
value call(const struct emit *e, value function, value *arg, int n);
/* LLVM's own intrinsic, by its name and the types that it is for */
value call_intrinsic(const struct emit *e, const char *name, LLVMTypeRef *type, int ntype,
                     value *arg, int n);
/* An attribute of a function, at a parameter, counted from 1, or ~0u: of itself; one with a
 * text. */
void function_attribute(const struct emit *e, value function, unsigned at, const char *name);
void function_attribute_text(const struct emit *e, value function, const char *name,
                             const char *text);
/* The ABIs of some machines want integers of less than a register extended: zero for
 * what is narrower than an int, by its sign else. Of a function, whose result has that
 * type, and of a call. */
void extend_function(const struct emit *e, value function, LLVMTypeRef result);
void extend_call(const struct emit *e, value made, const LLVMTypeRef *type, int n);
/* The text of which an own piece is compiled; *lanes: of its vectors. NULL: the piece stays C. */
const char *piece_text(const struct emit *e, const char *name, int *lanes);
/* Calls a function of runtime/: the module's own, or one that stays C. */
value call_piece(struct emit *e, const char *name, LLVMTypeRef result, value *arg, int n);
value pointer_at(const struct emit *e, value base, LLVMTypeRef element, value offset);
/* align 0: the type's own */
value load_as(const struct emit *e, LLVMTypeRef type, value pointer, unsigned align);
void store_as(const struct emit *e, value v, value pointer, unsigned align);
/* of whatever address space, as a plain pointer to bytes; LLVM finds the space again */
value generic_pointer(const struct emit *e, value pointer);
value on_stack(struct emit *e, LLVMTypeRef type);    /* a place in the function's frame */
LLVMBasicBlockRef block_new(const struct emit *e, const char *name);

/* operands.c */
value acc_place(struct emit *e, const struct uop *acc);        /* of the lanes that are open */
LLVMTypeRef acc_type(struct emit *e, const struct uop *acc);
/* that it keeps for a subgroup's products; NULL: none */
const struct uop *acc_tile(const struct emit *e, const struct uop *acc);
value operand(struct emit *e, const struct uop *u);            /* of its dtype */
value offset_wide(struct emit *e, const struct uop *u);       /* of an i32: as wide as an address */
/* Should the i32 that u computes be that wide, since nothing overflows? */
bool is_offset(struct emit *e, const struct uop *u);
void define(struct emit *e, const struct uop *u, value v);

/* convert.c */
value convert(struct emit *e, enum dtype to, const struct uop *from, value v);
/* towards zero, saturated, 0 for NaN */
value float_to_int(struct emit *e, enum dtype to, enum dtype from, value v, int lanes);
value convert_bits(struct emit *e, enum dtype to, enum dtype from, value v, int lanes);
value from_memory(struct emit *e, enum dtype d, value v, int lanes);    /* an element's value */
value to_memory(struct emit *e, enum dtype d, value v, int lanes);

/* ops.c */
value apply(struct emit *e, const struct uop *u, value *src);           /* an elementwise op */
value extreme(struct emit *e, enum op op, enum dtype d, value a, value b);

/* memory.c */
value place_of(struct emit *e, const struct buffer *b);
void emit_load(struct emit *e, const struct uop *u);
void emit_store(struct emit *e, const struct uop *u);
void emit_gather(struct emit *e, const struct uop *u);
void emit_prefetch(struct emit *e, const struct uop *u);

/* vector.c: SPLAT, RAMP, FOLD, LANES, NARROW, NEAREST, INTRINSIC */
bool emit_vector(struct emit *e, const struct uop *u);

/* tiles.c: what a kernel with tiles begins and ends with; u is a tile. */
void tiles_open(struct emit *e);
void tiles_close(struct emit *e);
void emit_tile(struct emit *e, const struct uop *u);

/* loops.c */
void loop_open(struct emit *e, const struct uop *u, value begin, value end, bool down);
void loop_close(struct emit *e);
void guard_open(struct emit *e, const struct uop *u, value cond);    /* NULL: without a condition */
/* The loop over every step-th iteration, from number `first` (i32) on. */
void range_stride(struct emit *e, const struct uop *u, value first, int64_t step);
void emit_range(struct emit *e, const struct uop *u);
void emit_acc(struct emit *e, const struct uop *u);
void emit_assign(struct emit *e, const struct uop *u);

/* kernel.c */
void function_open(struct emit *e, value function);         /* one that the module has */
void function_begin(struct emit *e, const char *name, LLVMTypeRef type, bool internal);
void function_end(struct emit *e);       /* after its last instruction */
void emit_uop(struct emit *e, const struct uop *u);
LLVMTypeRef kernel_type(const struct emit *e, const struct kernel *k);
/* Calls the kernel's function, or one at an address. */
void kernel_call(struct emit *e, const struct kernel *k, value function, value *arg, int n);
void emit_linear(struct emit *e);        /* e->linear, in the function that was begun */
value emit_kernel(struct emit *e, const struct kernel *k, const struct variant *v);

/* gpu_language.c: what a kernel asks of its device, as functions in LLVM's text that are added to
 * the module. Their names have a dot, which no kernel's has:
 *
 *      i32 gpu.thread.x()            thread in the block, likewise .y and .z;
 *      i32 gpu.block.x()             block in the grid;
 *      void gpu.barrier()            a barrier of the block that orders its memory accesses;
 *      float gpu.exp2(float)
 *      float gpu.shuffle.M(float)    the value of lane ^ M of the subgroup, M 1, 2, ... 32;
 *      i32 gpu.dot(sum, a, b)        sum + the dot product of four bytes, a's unsigned, b's
 *                                    signed; on gfx9 gpu.dot.gfx9;
 *      void gpu.copy.N(to, from, n)  N bytes to shared memory, asynchronously, zeros if n is 0;
 *                                    addresses are i64; then gpu.commit(), gpu.wait.N();
 *      { words } gpu.rows4(row)      ldmatrix: rows of 16 bytes of shared memory, whose addresses
 *                                    are i64; also gpu.rows2, gpu.rows4_across, ...;
 *      { sums } gpu.ROW(a, b, sums)  of ir/matrix.def: see gpu_matrix.c. */
struct gpu_language {
    const char *triple;
    const char *const *functions;          /* up to NULL */
    /* Marks the function as a kernel with blocks of this many threads. */
    void (*launched)(const struct emit *e, const int block[GRID_RANK]);
};
enum gpu_kind { GPU_NVPTX, GPU_AMDGCN };
extern const struct gpu_language gpu_languages[];
/* gpus.def */
struct gpu_row {
    enum gpu_kind kind;
    const char *text;
    int number;
    bool exact;
    int since;
    const char *features;
};

/* gpu_kernel.c: kernels of devices. */
struct program;
struct gpu {
    const struct gpu_row *row;
    struct program *p;
    int block[GRID_RANK];        /* of the kernel that is written */
    const bool *kept;            /* by position in its program: loops that are not to be unrolled */
};
void gpu_emit_kernel(struct emit *e, const struct kernel *k, const struct variant *v);
/* gpu_ops.c. Calls one of gpu_language.c's functions. The number of "thread" or "block" along an
 * axis, an i32. The thread's lane in a subgroup of that many threads, a power of 2. */
value gpu_function(const struct emit *e, const char *name, LLVMTypeRef result, LLVMTypeRef *type,
                   int n);
value gpu_number(const struct emit *e, const char *what, int axis);
value gpu_lane(const struct emit *e, int lanes);
/* Handles the RANGE if it is a position of the grid or block, or shared by the block's threads;
 * false: it is a loop. */
bool gpu_range(struct emit *e, const struct uop *u);
void gpu_barrier(struct emit *e);
void gpu_shuffle(struct emit *e, const struct uop *u);
/* In each of n lanes: the sum plus the dot product of four bytes, a's unsigned, b's signed. */
value gpu_dot(struct emit *e, value sum, value a, value b, int n);
/* COPY; COMMIT and WAIT. */
void gpu_copy(struct emit *e, const struct uop *u);
void gpu_put(struct emit *e, const struct uop *u);
void gpu_wait(struct emit *e, const struct uop *u);
/* gpu_matrix.c */
void gpu_matrix_load(struct emit *e, const struct uop *u);
void gpu_matrix_product(struct emit *e, const struct uop *u);
/* Adds to `out` those of gpu_matrix.def that the module calls. */
void gpu_matrix_functions(const struct emit *e, struct text *out);

/* piece_code.c: emits the functions of runtime/ that the module calls, and those that they call. */
void pieces_emit(struct emit *e);

/* state.c */
/* What NAME_run() begins with (loads the lengths that the context keeps, checks them against the
 * inputs, sets the states' addresses) and ends with (stores the lengths for the next run). */
void state_begin_run(struct emit *e, value self);
void state_end_run(struct emit *e, value self);
/* NAME_reset(), NAME_save(), NAME_restore(); and NAME.begin(self), which NAME_init() calls. */
void emit_states(struct emit *e);

/* threads.c */
/* The kernel's function for one thread, and its call, which the run waits for. */
void emit_part(struct emit *e, const struct kernel *k, value kernel);
void emit_share(struct emit *e, value self, const struct kernel *k, value *arg, int n);

/* pool.c: threads of a file's program. Its call of a shared kernel, which threads.c calls; what
 * NAME_init() and NAME_close() do. */
void pool_emit_share(struct emit *e);
void pool_open(struct emit *e, value self);                    /* returns if there are no threads */
void pool_close(struct emit *e, value self);

/* machine.c */
/* Whether the module's machine has the feature, of n letters, by LLVM's name; all that the
 * instruction set needs, which is no set with tiles: those are for files that ask at their start
 * (dispatch.c). */
bool machine_has_feature(const struct emit *e, const char *name, int n);
bool machine_has(const struct emit *e, enum isa isa);

/* features.c */
const char *isa_features(enum isa isa);                          /* as in isa.def */
/* LLVM's "+avx2,+fma", appended to others; the features of its instruction set that a processor of
 * the architecture (as in isa.def) has */
const char *features_with(struct tgc *t, const char *base, enum isa isa);
const char *features_of_processor(struct tgc *t, const char *arch, const char *base,
                                  const struct processor *p);

/* dispatch.c */
/* The kernel's variant for the machine; NULL: it has none, but the portable form. */
const struct variant *variant_pick(const struct emit *e, const struct kernel *k);
/* The kernel, for each set of e->isa, or for the machine. */
void dispatch_emit(struct emit *e, const struct kernel *k);
/* What a run calls, a function or its address in the table of struct NAME. */
value dispatch_callee(struct emit *e, value self, const struct kernel *k);
/* The table of the processor that runs this; NULL: no kernel has variants. */
value dispatch_pick(struct emit *e);

/* debug.c: the lines of a listing of the kernels, as debugging information. Without
 * e->debug these do nothing. */
void debug_begin(struct emit *e, const char *listing, const char *producer);
/* The function that was begun just now, whose program is e->linear. */
void debug_kernel(struct emit *e, const struct kernel *k, const char *name);
void debug_uop(struct emit *e);          /* what is built from here on belongs to
                                          * e->linear[e->position] */
void debug_run(struct emit *e, const char *name);
void debug_step(struct emit *e, const struct step *step);
void debug_leave(struct emit *e);        /* what is built from here on has no line */
struct text debug_end(struct emit *e);   /* the listing */

/* module.c */
struct llvm_machine;
void module_begin(struct emit *e, struct llvm *l, const struct llvm_machine *m, const char *name);
void module_tables(struct emit *e);                            /* twin, kernel, slot */
/* Kernels for all of e->isa, the functions of states, and the run, which it returns. */
value module_emit(struct emit *e, const char *function);
void module_check(const struct emit *e);                       /* by LLVM's verifier */
void module_end(struct emit *e);

/* describe.c */
void describe_program(struct tgc *t, const struct schedule *s, const char *name,
                      const char *producer, struct program_info *info);

/* external.c: C functions of the user's */
void externals_declare(struct emit *e);
void emit_external(struct emit *e, const struct step *step);

/* host.c: what functions outside of kernels have in common */
/* Begins what is done if `so` is true. Returns what follows, where begin_after() goes on. */
LLVMBasicBlockRef begin_when(struct emit *e, value so);
void begin_after(struct emit *e, LLVMBasicBlockRef after);
/* A void function of the caller's, by its address, with arguments of these types. */
void call_hook(struct emit *e, value hook, LLVMTypeRef *type, value *arg, int n);
void return_if(struct emit *e, value bad, value status);
value weight_place(struct emit *e, value self, const struct buffer *b);
/* An integer or bool over symbols and elements that this run has stored. */
value host_scalar(struct emit *e, struct uop *root);
/* Where a buffer, or a part of one, is. */
value host_argument(struct emit *e, const struct buffer *b);
/* A constant of the module, as a global; its address as a plain pointer; a constant of n values. */
value constant_data(const struct emit *e, value initial, const char *name);
value constant_address(const struct emit *e, value global);
value constant_table(const struct emit *e, value *row, int n, const char *name);

/* run.c */
void emit_run(struct emit *e, const char *name);

/* entry.c */
/* Before the run: its data, and the function that tells the caller which kernel comes. */
void entry_begin(struct emit *e, const struct program_info *info);
/* Weights that are strings, as data: run.c looks for them by name. */
void entry_strings(const struct emit *e);
/* The functions of NAME.h. run: what module_emit() has made */
void entry_end(struct emit *e, const struct program_info *info, value run);
/* entries.c: the function of one entry, "NAME_ENTRY"_run(), over NAME_run(). */
void entries_emit(struct emit *e, const struct program_info *info, int entry, const char *name);

#endif
