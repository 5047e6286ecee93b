/* reader.h - private to frontend/text: tokens, names, calls. */
#ifndef TGC_FRONTEND_TEXT_READER_H
#define TGC_FRONTEND_TEXT_READER_H

#include "frontend/library.h"
#include "frontend/text/text.h"

/* ---------------------------------------------------------------------------------------- lex.c */

enum token_kind {
    TOKEN_END, TOKEN_NAME,               /* add, f32, N */
    TOKEN_REF,                           /* %name, %"any name" */
    TOKEN_SYMBOL,                        /* 'any name': a dimension */
    TOKEN_NUMBER, TOKEN_STRING,
    TOKEN_LE,                            /* <= */
    TOKEN_PUNCT,                         /* one character */
    TOKEN_BAD                            /* reported already */
};
struct token {
    enum token_kind kind;
    /* NAME, REF, SYMBOL, STRING: decoded, without sigil and quotes; NUMBER: as written */
    const char *text;
    const char *start;                   /* in the source */
    size_t nbytes;                       /* of the source */
    int line, column;
    char punct;
};

enum { MAX_NESTING = 64, MAX_ERRORS = 20 };

/* A place in the text to which the reader can return. */
struct lex_mark { const char *at, *line_start; int line; struct token token; };

/* The reader: tokens, one ahead, and what they build. */
struct reader {
    struct tgc *t;
    const char *path;
    struct tg_read_options options;
    const char *at, *end, *line_start;
    const char *last_end;                /* where the token before the next one ends */
    int line;
    /* custom.c: the definitions that calls may name; NULL: none */
    struct tg_library *library;
    bool is_library;                     /* the text is one: it defines, and computes nothing */
    bool is_search;                      /* gradient.c: mistakes are not reported */
    const struct dict *variable;         /* names that gradient() differentiates by; NULL: none */
    /* A definition is being expanded: "in 'swish2' of net.tg:3:6", how deep such calls nest, the
     * values of its attributes, and the origin of all that it builds. NULL: none is. */
    const char *within;
    int depth, origin_of_call;
    const struct custom *custom;
    const struct tg_argument *bound;
    int nbound;
    struct token token;                  /* the next one */
    struct place place;                  /* of the statement being read; lib.at points here */
    struct lib lib;
    int nesting, base_error;

    struct dict name;                     /* to definitions, see value.c */
    int region;                          /* nesting of regions */
    const char **local;                  /* names that regions around here defined */
    int nlocal;
    size_t cap_local;
    struct named_value *named;           /* for --value */
    int nnamed;
    size_t cap_named;

    /* value: a VAR, or a CONST where it is fixed */
    struct symbol { const char *name; struct uop *value; int64_t min, max; } *symbol;
    int nsymbol;
    size_t cap_symbol;
    struct origin_slot *origin;          /* loc(...)s seen */
    int norigin;
    size_t cap_origin;

    struct uop **input;
    int ninput;
    size_t cap_input;
    struct graph_output *output;
    int noutput;
    size_t cap_output;
    struct uop **host;                   /* calls that check, and those that find sizes */
    int nhost;
    size_t cap_host;
    struct uop **found;                  /* symbols that calls find */
    int nfound;
    size_t cap_found;
    const char *graph_name, *producer;
    struct graph_meta *meta;             /* slice.c */
    int nmeta;
    size_t cap_meta;
    struct side_file *side;

    /* entry.c */
    struct import { const char *name; struct token at; void *model; } *import;
    int nimport;
    size_t cap_import;
    struct graph_entry *entry;
    int nentry;
    size_t cap_entry;
    bool in_entry;                       /* the last one is being read: it is the outermost
                                          * region */
    struct uop **state;                  /* inputs that the context keeps */
    int nstate;
    size_t cap_state;
    struct kept_value { struct graph_kept to; struct uop *value; } *kept;
    int nkept;
    size_t cap_kept;
};
/* How deep in regions the statement is, of its graph's or entry's. */
static inline int region_depth(const struct reader *r) { return r->region - r->in_entry; }

void lex_start(struct reader *r, const char *bytes, size_t nbytes);
void lex_next(struct reader *r);
struct lex_mark lex_mark(const struct reader *r);
void lex_return(struct reader *r, const struct lex_mark *mark);
struct place lex_place(const struct reader *r, const struct token *at);
/* false */
bool read_error(struct reader *r, const struct token *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "'%x'", "the end of the file" */
const char *token_describe(struct reader *r, const struct token *t);

/* Each: false after an error. */
bool accept(struct reader *r, char punct);
bool accept_word(struct reader *r, const char *word);
bool expect(struct reader *r, char punct, const char *where);
bool token_number(const struct token *t, double *v);
bool token_int(const struct token *t, int64_t *v);

/* --------------------------------------------------------------------------------------- expr.c */

/* An index expression: an i64 scalar. */
bool read_expr(struct reader *r, struct uop **e);
/* its first operand was read already */
bool read_expr_after(struct reader *r, struct uop *first, struct uop **e);
/* NULL: unknown, not reported */
struct uop *read_symbol(struct reader *r, const struct token *name);
struct type { enum dtype dtype; int ndim; struct uop *dim[MAX_RANK]; struct token at; };
/* may declare symbols: N<=8 */
bool read_type(struct reader *r, struct type *type);
/* after `dim` */
bool read_dimension_decl(struct reader *r);
bool type_matches(struct reader *r, const struct type *want, const struct uop *have);

/* -------------------------------------------------------------------------------------- value.c */

struct uop *read_lookup(struct reader *r, const char *name, bool *found);
/* In this region. value NULL: its definition failed. */
bool define_name(struct reader *r, const struct token *name, struct uop *value);
/* An optional operand of a definition that its caller left out: the name stands for _. */
void define_absent(struct reader *r, const struct token *name);
bool read_is_absent(const struct reader *r, const char *name);
/* Forgets the names that the region defined; they may be used again. */
void leave_region(struct reader *r);
/* A value where an operand may stand: %x, f32(1.5), N+1; or a bare number, whose dtype its
 * surroundings give. */
struct operand {
    struct uop *value;
    bool absent, untyped, integral;
    double f;
    int64_t i;
    struct token at;
};
bool read_operand(struct reader *r, struct operand *o);
/* The value of an operand that must be there; a bare number gets dtype `bare` or f32. */
/* Whether an integer or boolean dtype holds the integer. */
bool int_fits(enum dtype d, int64_t i);
bool settle_operand(struct reader *r, struct operand *o, enum dtype bare);
bool read_value(struct reader *r, struct uop **x);
/* "(" values ")" */
bool read_value_list(struct reader *r, struct uop ***v, int *n);
bool read_text(struct reader *r, const char **s, const char *what);

/* ------------------------------------------------------------------------------------- define.c */

/* results "=" value tail */
bool read_definition(struct reader *r);
/* tables.c: every number in the call's tables is in range of what it is an index of, and no walk
 * goes in circles. false: reported. */
bool host_tables_fit(struct reader *r, const struct token *at, const struct host_function *f,
                     struct uop *const *in, struct uop *const *param);
bool read_host_statement(struct reader *r); /* after "host", which stands first */

/* --------------------------------------------------------------------------------------- read.c */

/* Up to one of the words (regions), or to the end; past errors. */
bool read_statements(struct reader *r, const char *until, const char *or_until);
/* "tg" "1" */
bool read_version(struct reader *r);

/* -------------------------------------------------------------------------------------- slice.c */

/* after `meta` */
bool read_meta(struct reader *r);
/* "{" names and sizes "}", if it is there, of the parts of the output's last axis */
bool read_slices(struct reader *r, struct graph_output *output);

/* --------------------------------------------------------------------------------------- call.c */

enum attr_kind { ATTR_NUMBER, ATTR_NAME, ATTR_EXPR, ATTR_STRING, ATTR_LIST };
struct attr_value {
    enum attr_kind kind;
    struct token at;
    struct uop *expr;
    int nitem;
    struct attr_value *item;
};
struct attr { const char *name; struct token at; struct attr_value value; bool used; };
enum { MAX_RESULTS = 256 };
struct call {
    struct reader *r;
    const struct lib *l;
    const char *name;
    struct token at;
    struct operand *arg;
    int narg;
    struct attr *attr;
    int nattr;
    struct uop **result;                 /* [nwanted] */
    int nresult, nwanted;
    bool failed;
    const struct function *function;     /* NULL: host, whose attributes are its caller's */
};
bool read_attr_value(struct reader *r, struct attr_value *v);
/* An integer constant, "-3" included; a number. */
bool attr_value_int(const struct attr_value *v, int64_t *i);
bool attr_value_float(const struct attr_value *v, double *f);
/* "(...)" and "{...}" */
bool read_arguments(struct reader *r, struct call *c);
/* runs the function c->name */
bool read_call(struct reader *r, struct call *c);
/* whether the format has an operation of this name */
bool call_is_known(const char *name);

/* What functions take their arguments by. On a mistake they report and set c->failed. */
/* NULL: absent */
struct uop *call_arg(struct call *c, int k);
/* bare numbers get like's dtype */
struct uop *call_arg_like(struct call *c, int k, const struct uop *like);
bool attr_given(struct call *c, const char *name);
bool attr_required(struct call *c, const char *name);
int64_t attr_int(struct call *c, const char *name, int64_t otherwise);
double attr_float(struct call *c, const char *name, double otherwise);
/* a number that dtype d can hold, as a constant; NULL: failed */
struct uop *attr_constant(struct call *c, const char *name, enum dtype d, double otherwise);
/* absent, or written as an integer */
bool attr_is_integral(struct call *c, const char *name);
bool attr_bool(struct call *c, const char *name, bool otherwise);
uint64_t attr_seed(struct call *c, const char *name);
const char *attr_string(struct call *c, const char *name, const char *otherwise);
enum dtype attr_dtype(struct call *c, const char *name, enum dtype otherwise);
/* choice ends with NULL */
int attr_choice(struct call *c, const char *name, const char *const *choice, int otherwise);
/* NULL: absent */
struct uop *attr_dim(struct call *c, const char *name);
/* the same, not negative */
struct uop *attr_size(struct call *c, const char *name);
/* -1: absent; a single one is a list of one */
int attr_dims(struct call *c, const char *name, struct uop **v, int max);
int attr_ints(struct call *c, const char *name, int64_t *v, int max);
/* absent: all */
uint32_t attr_axes(struct call *c, const char *name, const struct uop *x);
/* appends; NULL: failed */
void call_result(struct call *c, struct uop *x);
/* "conv2d: ..." at the call */
void call_fail(struct call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef void (*tg_function)(struct call *c);
/* operands: "x, w, bias?, more..." (x and w must be there); attributes: "axis, keep=false, size?",
 * of which the first is required, the second has a default, the last has none; "op=add|mul" is one
 * of those words, by default the first. Calls are checked against both. */
struct function { const char *name, *operands, *attributes; tg_function run; };
/* end with a NULL name */
extern const struct function primitive_functions[], nn_functions[], shape_functions[];

/* ------------------------------------------------------------------------------------- custom.c */

/* An operand, attribute or result of a declaration, and where its type is read for each call. */
struct custom_part {
    enum external_kind kind;
    const char *name;
    struct token at;
    bool is_optional;                    /* OPERAND: may be absent */
    bool is_typed, is_any;               /* any: of whatever dtype */
    enum dtype dtype;
    int ndim;
    struct lex_mark type;                /* OPERAND, RESULT: after the colon */
    const char *type_text;               /* "f32[N, C]" */
    struct attr_value *otherwise;        /* of an attribute; NULL: it is required */
};
struct custom {
    const char *name;                    /* "my.domain::Foo", "foo" */
    struct token at;
    const char *path, *end;              /* of the text; where the definition ends */
    struct custom_part *part; int npart; size_t cap_part;
    struct lex_mark body;                /* of a definition: after its brace */
    const struct dict *variable;         /* of the text */
    /* of a C function; NULL: a definition */
    const char *symbol, *declaration;
    const struct external *external;
    bool has_scratch;
    struct lex_mark scratch;             /* after its parenthesis */
    const struct custom *gradient;       /* of a C function; NULL: none is named */
};
/* What --library files define and declare, or a graph (then parent is the former). */
struct tg_library {
    const struct tg_library *parent;
    struct tg_library_options options;
    struct custom **v; int n; size_t cap;
    int ncall;                           /* expanded so far */
};
/* After `def` or `extern`. */
bool read_custom(struct reader *r, bool is_extern);
static inline bool custom_is_attribute(const struct custom_part *p)
{
    return p->kind != EXTERNAL_OPERAND && p->kind != EXTERNAL_RESULT;
}
/* Where it is, for a message about a place in `file`: "line 3", "lib.tg:3:5". */
const char *custom_place(struct tgc *t, const struct custom *c, const struct token *at,
                         const char *file);
/* Nothing is called so: reported, with the nearest name; false. */
bool custom_unknown(struct reader *r, const struct token *name);

/* ----------------------------------------------------------------------------------- gradient.c */

/* The names that calls of gradient() in the text differentiate by; NULL: there is none. */
const struct dict *gradient_names(struct tgc *t, const char *bytes, size_t nbytes);
bool gradient_is_by(const struct reader *r, const char *name);
/* What the name is to stand for: a variable if it is one of these, else the value itself. */
struct uop *gradient_variable(struct reader *r, const char *name, struct uop *value);
void run_gradient(struct call *c);
void run_stop_gradient(struct call *c);

/* ------------------------------------------------------------------------------------- expand.c */

/* The value of an attribute of the definition that is being expanded, at the token that names it;
 * false: there is none. */
bool read_bound(struct reader *r, const struct token *at, struct attr_value *v);
/* A reader of c's text, from the mark on. */
void custom_reader(struct reader *inner, struct tgc *t, struct tg_library *l,
                   const struct custom *c, const struct lex_mark *mark);
/* Reads a part's type. Symbols of an operand that stand alone for the first time become x's sizes,
 * all other sizes have to be x's. x NULL: a result; or an operand of which nothing is known. false:
 * reported, at `at` what x is not. */
bool custom_type(struct reader *r, const struct custom *c, const struct custom_part *p,
                 const struct uop *x, const struct place *at, struct type *type);
bool custom_scratch(struct reader *r, const struct custom *c, struct uop **nbytes);
/* An attribute's value as it is written, by its kind. */
bool custom_value(struct reader *r, const struct custom_part *p, const struct attr_value *v,
                  struct tg_argument *value);
/* What the declared gradient of a C function computes. needs: c->gradient */
const struct external_gradient *custom_gradient(struct tgc *t, struct tg_library *l,
                                                const struct custom *c);
/* A call by a statement. */
bool custom_run(struct call *c, const struct custom *custom);

/* -------------------------------------------------------------------------------------- entry.c */

/* Statements, after their first word. */
bool read_import(struct reader *r);
bool read_state(struct reader *r);
bool read_keep(struct reader *r);
bool read_entry(struct reader *r);
/* The graph imported by that name; NULL: there is none. */
const struct import *import_find(const struct reader *r, const char *name);
/* A call of it. */
bool import_run(struct call *c, const struct import *import);
/* The entries and states of a whole text. false: reported */
bool entries_check(struct reader *r);
void entries_finish(struct reader *r, struct graph *g);

/* ------------------------------------------------------------------------------------- weight.c */

/* Maps a file that the text names at `at`. false: reported */
bool map_file(struct reader *r, const struct token *at, const char *location, void **base,
              size_t *nbytes);

/* After '=': values, base64, file or initializer, as a uop named `name`. KEPT, PARAM: of rank 0 a
 * BUFFER, too. */
enum weight_use { WEIGHT_CONSTANT, WEIGHT_KEPT, WEIGHT_PARAM };
bool read_weight(struct reader *r, const struct type *type, const char *name, enum weight_use use,
                 struct uop **w);

/* -------------------------------------------------------------------------------- safetensors.c */

struct safetensor {
    enum dtype dtype;
    int ndim;
    int64_t dim[MAX_RANK];
    const void *data;
    size_t nbytes;
};
/* Finds `name` in the bytes of a safetensors file. error: what is wrong, or that it does not
 * exist. */
bool safetensors_find(const void *bytes, size_t nbytes, const char *name, struct safetensor *found,
                      const char **error);

#endif
