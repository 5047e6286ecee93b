/* cstyle.h - what languages like C share: expressions, kernels as functions, their bodies. */
#ifndef TGC_CSTYLE_H
#define TGC_CSTYLE_H

#include "backends/program/program.h"

/* -------------------------------------------------------------------------------------- exprs.c */
/* C expressions made from uops: text, how tightly it binds, and the C type it has. */

/* Loosest first. && and || stand apart from C's own order only in that their mixture is always
 * parenthesized. */
enum prec {
    PREC_COND, PREC_OR, PREC_AND, PREC_BIT, PREC_COMPARE, PREC_SHIFT, PREC_ADD, PREC_MUL,
    PREC_UNARY, PREC_CALL
};

struct expr {
    const char *s;
    const char *negated;         /* of an integer comparison: its opposite; NULL otherwise */
    enum prec prec;
    /* C type: 'B' int or bool, 0 or 1 · 'I' int · 'L' int64_t · 'U' uint32_t · 'V' uint64_t · 'F'
     * float · 'D' double · 'X' a vector of floats · 'W' of i32, or of groups of four bytes · 'M'
     * the lanes of a comparison · 'P' where small elements lie that will be cast to a vector */
    char kind;
    enum dtype of;               /* 'P': the elements'; 'X': u8 or i8, if it is to be stored so */
    bool in_range;               /* of = u8: within 0..255, or NaN */
    bool rounds;                 /* of = u8, i8: to the nearest, saturated */
    int lanes;                   /* of a vector */
    enum dtype round;            /* not VOID: still to be rounded to this narrow float format */
};

/* of a value in general; I64 may be narrower: see expr_apply */
char expr_kind(enum dtype d);
const char *expr_type(struct program *p, const struct expr *e);   /* "int64_t", "f32x8" */
struct expr expr_const(struct program *p, enum dtype d, union arg v);
/* An elementwise op on rendered operands. I64 arithmetic is done in int where its bounds and
 * operands allow. */
struct expr expr_apply(struct program *p, const struct uop *u, const struct expr *src);
/* A value of dtype d out of memory and into it: `place` is an lvalue such as x[i]. */
struct expr expr_load(struct program *p, enum dtype d, const char *place, bool trusted);
const char *expr_stored(struct program *p, enum dtype d, const struct expr *e);
/* The value itself: rounded if that was pending. */
struct expr expr_resolve(struct program *p, struct expr e);
/* `valid ? value : otherwise` */
struct expr expr_choose(struct program *p, const struct expr *cond, const struct expr *a,
                        const struct expr *b);
/* in parentheses if it binds looser than that */
const char *expr_operand(struct program *p, const struct expr *e, enum prec least);
struct expr expr_name(const char *name, char kind);
/* Vectors: of `lanes` neighbours in memory (an lvalue such as x[i]), of equal elements; and the
 * statement that stores one. bits: VECTOR_BITS(). */
struct expr expr_load_vector(struct program *p, enum dtype d, const char *place, int64_t bits);
struct expr expr_splat(struct program *p, const struct expr *e, int lanes);
struct expr expr_ramp(struct program *p, const struct expr *e, int lanes);
/* OP_HALF */
struct expr expr_half(struct program *p, const struct expr *e);
/* OP_CROSS */
struct expr expr_cross(struct program *p, const struct expr *src, int64_t bits);
/* OP_LOOKUP in a table, by bytes of dtype d */
struct expr expr_lookup(struct program *p, const char *from, enum dtype d,
                        const struct expr *bytes);
/* OP_LANES; OP_NARROW; OP_GATHER of the places at[0], from `from` on, where at[1], otherwise at[2] */
struct expr expr_lanes(struct program *p, int lanes);
struct expr expr_narrow(struct program *p, const struct uop *u, const struct expr *e);
struct expr expr_gather(struct program *p, const char *from, const struct expr *at,
                        bool conditional);
/* OP_DOT on acc, values, weights, as this instruction set does it */
struct expr expr_dot(struct program *p, enum isa isa, const struct expr *src);
/* the lanes of a vector by op (add, mul, max, min): a scalar */
struct expr expr_fold(struct program *p, enum op op, const struct expr *e);
const char *expr_store_vector(struct program *p, const char *place, const struct expr *e,
                              int64_t bits);

/* ------------------------------------------------------------------------------------- kernel.c */

/* A kernel, or a variant of it, as a C function. */
struct function {
    struct program *p;
    const struct kernel *k;
    const struct variant *v;     /* NULL: the kernel's own */
    struct names *names;         /* of parameters and locals */
    const char **buffer_name;    /* by position: the kernel's buffers, then its scratch */
    bool *is_used;               /* likewise: the body reads or writes it */
};
/* in programs an int, not an int64_t */
bool var_is_int(const struct var *v);

/* What the function takes: the kernel's buffers, results first; scratch that is too large for the
 * stack; symbols. */
struct parameter {
    const struct buffer *b;      /* NULL: a symbol */
    int at;                      /* the buffer's position: see struct function */
    const struct var *v;
};
struct parameter *kernel_parameters(struct tgc *t, const struct kernel *k, int *n);
bool parameter_is_written(const struct kernel *k, const struct parameter *a);
/* whether nothing else that the kernel is given shares its memory, where one of both is written */
bool parameter_is_restrict(const struct kernel *k, const struct parameter *a);
/* Begins f->names, and gives the buffers their names in it; another name of the function. */
void kernel_name_parameters(struct function *f);
const char *parameter_name(struct function *f, const char *stem);
/* Above each kernel: the model's nodes, the shapes, the work. */
void kernel_write_comment(const struct function *f, struct text *out);

/* ------------------------------------------------------------------------------------- render.c */

/* The statements of the function, without indentation; notes in f->is_used what they name. */
const char *render_body(struct function *f);

#endif
