/* cstyle.h - what all C-like languages share: expressions, kernels as functions, their bodies. */
#ifndef TGC_CSTYLE_H
#define TGC_CSTYLE_H

#include "backends/program/program.h"

/* C expressions of uops: text, precedence and C type. */

/* Lowest precedence first. Other than in C, && and || have no order: a mixture is always
 * parenthesized. */
enum prec {
    PREC_COND, PREC_OR, PREC_AND, PREC_BIT, PREC_COMPARE, PREC_SHIFT, PREC_ADD, PREC_MUL,
    PREC_UNARY, PREC_CALL
};

struct expr {
    const char *s;
    const char *negated;         /* of an integer comparison: its negation; NULL otherwise */
    enum prec prec;
    /* C type, a letter:
     *
     *     B  int or bool, 0 or 1 · I  int · L  int64_t · U  uint32_t · V  uint64_t;
     *     F  float · D  double · X  a vector of floats;
     *     W  a vector of i32, or of groups of four bytes;
     *     M  the lanes of a comparison;
     *     P  an lvalue of small elements, to be cast to a vector. */
    char kind;
    enum dtype of;  /* 'P': dtype of the elements; 'X': u8 or i8 if it is to be stored as that */
    bool in_range;               /* of = u8: in 0..255, or NaN */
    bool rounds;                 /* of = u8, i8: round to nearest, saturate */
    int lanes;                   /* of a vector */
    bool is_index;               /* index arithmetic, which is written tight and named so */
    enum dtype round;            /* not VOID: the rounding to this narrow float format is pending */
};

/* ------------------------------------------------------------------------------------ convert.c */

/* of values of this dtype; an I64 that was an int is one still, where C converts it by itself */
char expr_kind(enum dtype d);
const char *expr_type(struct program *p, const struct expr *e);   /* "int64_t", "f32x8" */
/* in parentheses if its precedence is lower than `least` */
const char *expr_operand(struct program *p, const struct expr *e, enum prec least);
struct expr expr_name(const char *name, char kind);
/* function(args), with its piece of runtime/ if it is one; (type)e */
struct expr expr_call(struct program *p, const char *function, const char *args, char kind);
struct expr expr_cast(struct program *p, const char *type, const struct expr *e, char kind);
struct expr expr_const(struct program *p, enum dtype d, union arg v);
struct expr expr_int(struct program *p, enum dtype d, int64_t v);
/* OP_CAST, OP_BITCAST of a scalar */
struct expr expr_convert(struct program *p, const struct uop *u, const struct expr *e);
struct expr expr_bitcast(struct program *p, const struct uop *u, const struct expr *e);
/* e as an integer of dtype d; an int or wider wrapped to d's width, unless it fits */
struct expr expr_to_int(struct program *p, enum dtype d, bool fits, const struct expr *e);
struct expr expr_wrap(struct program *p, enum dtype d, const struct expr *e);
/* Loads a value of dtype d from `place`, an lvalue such as x[i]; stores one to it. */
struct expr expr_load(struct program *p, enum dtype d, const char *place, bool trusted);
const char *expr_stored(struct program *p, enum dtype d, const struct expr *e);
/* The value itself, with a pending rounding carried out. */
struct expr expr_resolve(struct program *p, struct expr e);

/* -------------------------------------------------------------------------------------- exprs.c */

/* An elementwise op of a program after the last pass, on rendered operands. */
struct expr expr_apply(struct program *p, const struct uop *u, const struct expr *src);
/* `valid ? value : otherwise` */
struct expr expr_choose(struct program *p, const struct expr *cond, const struct expr *a,
                        const struct expr *b);
/* Vectors: of `lanes` contiguous elements in memory (from an lvalue such as x[i]), of equal
 * elements; and the statement that stores one. bits: ARG_PACK(VECTOR, ). space: the word for where
 * the memory is, in a device's language. */
struct expr expr_load_vector(struct program *p, enum dtype d, const char *space, const char *place,
                             int64_t bits);
/* The floats of an lvalue of halves (kind P). */
struct expr expr_load_halves(struct program *p, const struct expr *e);
/* The vector of bytes, of kind P, as integers; zeros where the condition does not hold. */
struct expr expr_load_bytes_where(struct program *p, const struct expr *e, const struct expr *cond);
/* The pixel of an image `place`, whose rows have 2^shift pixels, from element `at` on; valid NULL:
 * always, otherwise zeros where it does not hold. */
struct expr expr_load_pixel(struct program *p, const char *place, const struct expr *at,
                            const struct expr *valid, int shift);
struct expr expr_splat(struct program *p, const struct expr *e, int lanes);
struct expr expr_ramp(struct program *p, const struct expr *e, int lanes);
/* OP_LANES; OP_NARROW; OP_GATHER of elements at[0], relative to `from`, where at[1] holds,
 * otherwise at[2] */
struct expr expr_lanes(struct program *p, int lanes);
struct expr expr_narrow(struct program *p, const struct uop *u, const struct expr *e);
struct expr expr_gather(struct program *p, const char *from, const struct expr *at,
                        bool conditional);
/* OP_INTRINSIC, with this instruction set's functions */
struct expr expr_intrinsic(struct program *p, enum isa isa, const struct uop *u,
                           const struct expr *src);
/* reduces the lanes of a vector by op (add, mul, max, min) to a scalar */
struct expr expr_fold(struct program *p, enum op op, const struct expr *e);
/* a vector's lane number `lane` */
struct expr expr_lane(struct program *p, int lane, const struct expr *e);
const char *expr_store_vector(struct program *p, const char *space, const char *place,
                              const struct expr *e, int64_t bits);

/* ----------------------------------------------------------------------------- tile_registers.c */

/* What the tile registers hold while a linear program is written, and their shapes
 * (rows 0: not used). */
struct tile_registers {
    struct tgc *t;
    const char *kernel;          /* for messages */
    struct uop *const *linear; int nlinear;
    struct tile_shape { int rows, nbytes; } shape[TILE_REGISTERS];
    struct in_tile { const struct uop *of; int until; } in[TILE_REGISTERS];
};
/* A register for u, an accumulator or a load that stands at this position; that of u,
 * which is used there. */
int tile_take(struct tile_registers *r, const struct uop *u, int position);
int tile_register(const struct tile_registers *r, const struct uop *u, int position);
bool tiles_are_used(const struct tile_registers *r);

/* ------------------------------------------------------------------------------------- kernel.c */

/* How a buffer is declared: "[26][26]", the dimensions after the first one, and how many elements
 * they are. dims NULL: as a pointer to, or an array of, elements. */
struct array_type { const char *dims; int64_t stride; };

/* A kernel, or a variant of it, as a C function. */
struct function {
    struct program *p;
    const struct kernel *k;
    const struct variant *v;     /* NULL: the kernel's own */
    struct names *names;         /* of parameters and locals */
    const char **buffer_name;    /* by position: the kernel's buffers, then its scratch */
    bool *is_used;               /* likewise: the body reads or writes it */
    struct array_type *array;    /* likewise */
    const char *exchanged;       /* shared memory by which threads exchange values;
                                  * NULL: none is needed */
    struct tile_registers tiles;
    /* BULKs that stand for the tensor maps that the function takes, and the parameters' names */
    const struct uop **map; const char **map_name; int nmap;
};
/* an int in programs, not an int64_t */
bool var_is_int(const struct var *v);

/* The function's parameters: the kernel's buffers, results first; scratch that is too large for the
 * stack; symbols; tensor maps. */
struct parameter {
    const struct buffer *b;      /* NULL: a symbol */
    int at;                      /* the buffer's position: see struct function */
    const struct var *v;
    const struct uop *map;       /* a tensor map of b, by one of the kernel's BULKs that use it;
                                  * NULL: b's address */
};
struct parameter *kernel_parameters(struct tgc *t, const struct kernel *k, int *n);
bool parameter_is_written(const struct kernel *k, const struct parameter *a);
/* Is it sure that no other buffer of the kernel aliases it, if one of the two is written? */
bool parameter_is_restrict(const struct kernel *k, const struct parameter *a);
/* Creates f->names and names the buffers in it; the second one reserves another name in the
 * function. */
void kernel_name_parameters(struct function *f);
const char *parameter_name(struct function *f, const char *stem);
/* The comment above a kernel: the model's nodes, the shapes, the work. */
void kernel_write_comment(const struct function *f, struct text *out);

/* -------------------------------------------------------------------------------------- stems.c */

/* Stems of names: of parameter i; of scratch, of which the parameters are named before; of an
 * accumulator in a linear program of n uops; of a value, loaded: of the buffer of that name; NULL:
 * computed. */
const char *stem_of_parameter(const struct function *f, int i);
const char *stem_of_tile(const struct function *f, const struct buffer *b);
const char *stem_of_acc(struct tgc *t, struct uop *const *linear, int n, const struct uop *acc);
const char *stem_of_value(struct tgc *t, const struct uop *u, const char *loaded, bool is_index);

/* ------------------------------------------------------------------------------------- render.c */

/* The statements of the function, without indentation; notes in f->is_used the buffers that they
 * name. */
const char *render_body(struct function *f);

/* -------------------------------------------------------------------------------------- tiles.c */

/* The statement that configures the registers of the body that was rendered. */
void tiles_begin(struct function *f, struct text *out);

#endif
