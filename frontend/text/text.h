/* text.h - the .tg text graph: reader and writer. docs: the grammar is at the top of read.c.
 *
 * print(parse(print(g))) == print(g): the writer writes primitive ops, which the reader reads as
 * they are; functions of the library (conv2d, softmax, attention, ...) expand on reading.
 */
#ifndef TGC_FRONTEND_TEXT_TEXT_H
#define TGC_FRONTEND_TEXT_TEXT_H

#include "ir/ir.h"

/* Custom operators (docs/custom-operators.md): definitions, which calls expand into ops, and
 * declarations of the user's C functions. */
struct tg_library_options {
    bool no_external_data;
    /* NULL, or called for each file that weights are read from */
    void (*on_file)(void *user, const char *path);
    void *user;
};
struct tg_library *tg_library_new(struct tgc *t, const struct tg_library_options *options);
/* Adds what a file defines. false: diagnostics with line and column were recorded. */
bool tg_library_read(struct tgc *t, struct tg_library *l, const char *path);
struct custom;
/* A model is lowered anew: the calls that were expanded are not counted any more. l may be NULL. */
void tg_library_begin(struct tg_library *l);
/* By its whole name, "my.domain::Foo"; NULL: there is none. l may be NULL. */
const struct custom *tg_library_find(const struct tg_library *l, const char *name);
/* The kind of its attribute; EXTERNAL_SCRATCH: it has no such attribute. */
enum external_kind tg_custom_attribute(const struct custom *c, const char *name);

/* A call. Operands and attributes are checked against the declaration. */
struct tg_argument {
    const char *name;
    enum external_kind kind;     /* INT to FLOATS */
    struct place at;
    struct uop *i;               /* INT: an INDEX scalar */
    struct external_value v;
};
struct tg_call {
    struct place at;             /* the node, or the statement */
    int nin;
    struct uop *const *in;       /* NULL: absent */
    const struct place *in_at;
    int nattribute;
    const struct tg_argument *attribute;
    int depth;                   /* of definitions around it */
    int origin;                  /* of all that it builds */
    int nout;                    /* set, with the results; at most `most` of them */
    struct uop **out;
    int most;
};
/* What the call computes, as ops; calls nest and are counted, since they may double with each
 * level. false: reported, at the call or at the definition with the call. */
bool tg_expand(struct tgc *t, struct tg_library *l, const struct custom *c, struct tg_call *call);

/* What the caller knows of a dimension: fixed if min == max, otherwise other bounds than the
 * text's. */
struct tg_dimension { const char *name; int64_t min, max; };
struct tg_read_options {
    const struct tg_dimension *dim;
    int ndim;
    /* values of the graph that are outputs, too, with or without their %; see expose_values() */
    const char *const *inner;
    int ninner;
    /* Weights of rank 0 stay buffers, for derivatives by them; otherwise they are constants, unless
     * they are params. Nor are variables settled: graph_settle() is the caller's. */
    bool keep_scalars;
    /* where file("...") looks; NULL: the directory of `path` */
    const char *external_data_dir;
    bool no_external_data;
    /* NULL, or called for each file that weights are read from, with its path from here */
    void (*on_file)(void *user, const char *path);
    /* NULL, or called for each weight that is a statement of the graph itself, with the place of
     * its contents in `bytes` */
    void (*on_weight)(void *user, struct buffer *b, const char *begin, const char *end);
    void *user;
    struct tg_library *library;  /* NULL: none but the graph's own definitions */
    /* Reads an ONNX file that the text imports, whose bytes stay mapped; NULL: reported. Then its
     * graph, lowered for operands of these shapes, which are constants; NULL: reported. */
    void *(*import)(void *user, const char *path, const void *bytes, size_t nbytes);
    struct graph *(*lower)(void *user, void *imported, struct uop *const *operand, int n);
};
/* Reads a graph. path: for messages and for external data ("<stdin>": none without
 * external_data_dir). options may be NULL. NULL: diagnostics with line and column were recorded.
 * External data stays mapped until the process ends. */
struct graph *tg_read_bytes(struct tgc *t, const char *path, const void *bytes, size_t nbytes,
                            const struct tg_read_options *options);
/* The same from a file; path "-": standard input. */
struct graph *tg_read(struct tgc *t, const char *path, const struct tg_read_options *options);
/* Its first part: the bytes, in the arena. NULL: diagnostics were recorded. */
const char *tg_load(struct tgc *t, const char *path, size_t *nbytes);

struct tg_write_options {
    /* weights of at most this many elements are written as numbers; 0: 64 */
    size_t inline_nelem;
    /* larger ones go there, as safetensors: its name as the graph has it; NULL: inline, base64 */
    const char *side_file;
    bool no_locations;                   /* without loc(...) */
};
/* Writes g to out; the bytes of the side file to side (may be NULL if there is none). options may
 * be NULL. false: a diagnostic (a dtype that the format does not hold: strings). */
bool tg_write(struct tgc *t, const struct graph *g, const struct tg_write_options *options,
              struct text *out, struct text *side);

/* A string as the format has it, between such quotes. */
void tg_put_quoted(struct text *out, const char *s, char quote);
/* Whether a safetensors file can have elements of this dtype. */
bool safetensors_holds(enum dtype d);
/* A whole file; and its beginning alone, after which the elements of each weight in turn follow. */
void safetensors_write(struct text *out, struct buffer *const *w, const char *const *name, int n);
void safetensors_begin(struct text *out, struct buffer *const *w, const char *const *name, int n);

/* The functions of the format, in the order of the tables that calls are read by; NULL: no more.
 * *operands: "x, w, bias?", where ? marks optional ones and "more..." any number; *attributes:
 * "axis, keep=false, size?", with defaults. */
const char *tg_function_at(int i, const char **operands, const char **attributes);

/* kernel.c: a kernel's AST (ast), or a linear program (linear), and its memory as declared. */
struct kernel_text {
    struct uop *ast;
    struct uop **linear; int nlinear;
    struct buffer **buffer; int nbuffer;
};
bool tg_is_kernel(const void *bytes, size_t nbytes);
/* Reads what kernel_print() and program_print() write, and checks it as the verifier does. path:
 * for messages. false: a diagnostic with line and column. */
bool tg_read_kernel(struct tgc *t, const char *path, const void *bytes, size_t nbytes,
                    struct kernel_text *text);

#endif
