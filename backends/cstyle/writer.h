/* writer.h - private to values.c, loops.c, render.c: a kernel's body on its way to C statements. */
#ifndef TGC_WRITER_H
#define TGC_WRITER_H

#include "backends/cstyle/cstyle.h"

enum { MAX_ACC_READS = 4 };

/* The state of a uop's value at this point of the walk. */
struct value {
    struct expr e;
    int nuse;                    /* uses in the rest of the program, until it is computed again */
    int position, block;         /* where it was computed */
    /* an accumulator with lanes: e is the element for the open lanes */
    const char *array;
    bool written;                /* has a name; otherwise e is an expression to be inlined */
    bool leaf;                   /* a constant, symbol or loop variable: may be repeated anywhere */
    bool reads_memory;           /* it loads from a buffer that this kernel may write */
    bool reads_any_memory;
    /* accumulators that the text reads; nacc > MAX: many */
    int nacc; const struct uop *acc[MAX_ACC_READS + 1];
};

struct block {
    struct text body;
    int nstatement, id;
    bool has_declaration;
    const char *head;            /* "for (...)", "if (...)"; NULL: it is a part of the one around */
    const char *counter;         /* of a loop: its variable */
};

struct writer {
    struct function *f;
    struct program *p;
    struct tgc *t;
    struct uop *const *linear; int nlinear;          /* the kernel's, or a variant's */
    struct uop_map value;        /* uop -> struct value */
    struct uop_map nuse;         /* uop -> int, uses after the present position */
    /* by position: uses of the value computed there, until it is computed again */
    int *use;
    const struct uop **tile; int ntile; size_t cap_tile;          /* accumulators with lanes */
    struct block *block; int depth; size_t cap_block;
    int next_block;
    int position;
    const bool *kept;            /* by position: loops that compilers must not unroll */
    struct uop_map places;       /* arrays.c: accesses to arrays of several dimensions */
};

/* ------------------------------------------------------------------------------------- values.c */

/* Blocks and statements: the innermost block that is open; a line in it. counter: of a loop, its
 * variable, whose name siblings share. */
struct block *writer_block(struct writer *w);
void writer_open(struct writer *w, const char *head, const char *counter);
void writer_put(struct writer *w, const char *s, bool is_declaration);
void writer_close(struct writer *w);
/* What stands for u now; TGC_BUG if it was not computed. */
struct value *writer_value(struct writer *w, const struct uop *u);
const char *writer_local(struct writer *w, const char *stem);
/* The operands of u as text to inline: those that may not move here were named before; those that
 * are too long are named now. */
void writer_operands(struct writer *w, const struct uop *u, int nsrc, struct expr *src);
/* u's text reads what its operands' texts read. */
void writer_inherit(struct writer *w, struct value *v, const struct uop *u);
/* v is u's value from here on: text, or a variable if it cannot wait for its use. */
void writer_define(struct writer *w, const struct uop *u, struct value *v);
/* Leaves have values wherever they are used, whether or not the program lists them. */
void writer_leaf(struct writer *w, const struct uop *u);
void writer_leaves(struct writer *w, const struct uop *u);
/* A buffer's index among the function's names of buffers; its name. */
int writer_place(const struct writer *w, const struct buffer *b);
const char *writer_place_name(const struct writer *w, const struct buffer *b);

/* ------------------------------------------------------------------------------------- arrays.c */

/* Decides which buffers are arrays of several dimensions: f->array, w->places. */
void arrays_find(struct writer *w);
/* Of an access to one: the values in its indices, which stand for its offset; how many. 0: it is
 * an access to another one. */
enum { ARRAY_TERMS = 64 };
int arrays_terms(const struct writer *w, const struct uop *access, struct uop **term);
/* x[i][j + 1] of such an access */
const char *arrays_write(struct writer *w, const struct uop *access, const char *name);

/* -------------------------------------------------------------------------------------- tiles.c */

/* u is a tile: a statement with its register. */
void tiles_write(struct writer *w, const struct uop *u);

/* ------------------------------------------------------------------------------------- matrix.c */

/* Loads of a subgroup's tile from shared memory; MATRIX. */
void matrix_load(struct writer *w, const struct uop *u);
/* Declares an ACC that keeps tiles; false: it is another one. */
bool matrix_acc(struct writer *w, const struct uop *u);
void matrix_product(struct writer *w, const struct uop *u);
/* Begin, commit and wait of asynchronous products; PUBLISH. */
void matrix_group(struct writer *w, const struct uop *u);

/* --------------------------------------------------------------------------------------- bulk.c */

/* BULK, BULK_STORE, and the waits and barriers for them. */
void bulk_write(struct writer *w, const struct uop *u);

/* -------------------------------------------------------------------------------------- loops.c */

void loops_range(struct writer *w, const struct uop *u);
void loops_guard(struct writer *w, const struct uop *u);
void loops_acc(struct writer *w, const struct uop *u);
void loops_assign(struct writer *w, const struct uop *u);
void loops_shuffle(struct writer *w, const struct uop *u);

#endif
