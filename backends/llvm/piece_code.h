/* piece_code.h - private to piece_code.c and piece_*.c: the words and types of the C that the
 * functions of runtime/ are written in. */
#ifndef TGC_LLVM_PIECE_CODE_H
#define TGC_LLVM_PIECE_CODE_H

#include "backends/llvm/emit.h"

/* In the order of C's conversions, from int on; what is mixed with a vector becomes one: C_MASKS
 * (of a comparison), C_INTS and C_BITS (of 32 bits, with and without a sign), C_FLOATS. */
enum ctype {
    C_VOID, C_BOOL, C_I8, C_U8, C_I16, C_U16, C_I32, C_U32, C_I64, C_U64, C_F32, C_F64,
    C_MASKS, C_INTS, C_BITS, C_FLOATS
};

enum token { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_SIGN };
struct words {
    struct tgc *t;
    const char *name;            /* of the piece, for messages */
    const char *next;            /* after the current word */
    enum token kind;
    const char *s; size_t n;     /* the word */
    enum ctype type;             /* of a number */
    uint64_t whole; double real;
};
void words_begin(struct words *w, struct tgc *t, const char *name, const char *text);
void words_next(struct words *w);
bool words_are(const struct words *w, const char *s);
bool words_take(struct words *w, const char *s);                 /* skips the word if it is s */
void words_need(struct words *w, const char *s);
_Noreturn void words_wrong(const struct words *w);      /* a bug: the piece has what is not known */
/* A type's name with what may stand before it; false: no type begins here. */
bool words_type(struct words *w, enum ctype *type);

/* A value in a register: an integer of 32 bits or less is an i32, extended as its type says. */
LLVMTypeRef ctype_register(const struct emit *e, enum ctype type);
LLVMTypeRef ctype_memory(const struct emit *e, enum ctype type);
bool ctype_is_signed(enum ctype type);
bool ctype_is_real(enum ctype type);
/* Of two operands, as C has it. */
enum ctype ctype_common(enum ctype a, enum ctype b);
value ctype_convert(struct emit *e, value v, enum ctype from, enum ctype to);
value ctype_load(struct emit *e, value place, enum ctype type);
void ctype_store(struct emit *e, value v, value place, enum ctype type);

/* What an expression is: a value, or a place where there is one. */
struct operand {
    value v;
    enum ctype type;
    bool is_place, is_pointer;   /* pointer: to what has the type; a table's name is one */
};
struct variable { const char *name; size_t n; struct operand o; };
struct piece {
    struct words w;
    struct emit *e;
    enum ctype result;
    struct variable *variable; int nvariable; size_t cap;
};

/* piece_values.c */
value piece_read_as(struct piece *p, struct operand o, enum ctype type);
value piece_condition(struct piece *p, struct operand o);        /* an i1 */
struct operand piece_expression(struct piece *p);
struct operand piece_assignment(struct piece *p);                /* an expression without commas */
/* "static inline float name(", and a parameter; false: there is no other. The words
 * after them come next. */
void piece_head(struct words *w, enum ctype *result);
bool piece_parameter(struct words *w, struct variable *a);

/* piece_vectors.c: a function of vectors that is an instruction or two on all processors, of
 * arguments that are no places; false: it is none. */
bool piece_call_vectors(struct piece *p, const char *name, const struct operand *a, int n,
                        struct operand *r);

#endif
