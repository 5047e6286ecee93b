/* kernel.c - reads a kernel's AST, or a linear program, from the text that ir/print_kernel.c
 * writes.
 *
 *      file    = ( "kernel" | "linear" ) { line }
 *      line    = "symbol" 'N' least greatest [ "counter" ]
 *              | kind %kindN ":" dtype [ "[" expr { "," expr } "]" ]
 *                [ "shared" [ "alias" ] [ "bulk_stored" ] [ "panels" n ] [ "ring" n how ]
 *                | "registers" ]
 *                [ order ] [ "in" %kindM "+" expr ] [ string ] [ "=" { number } ]
 *              | ( "range" | "for" ) rN [ ".team" | ".block" | ".grid" | ".item" ]
 *                "<" expr [ string ]
 *              | "end" rN
 *              | [ "let" ] [ %k [ ":" dtype ] "=" ] op operands
 *                [ "{" argument { "," argument } "}" ]
 *      order   = "order" "[" [ integer ":" integer { "," integer ":" integer } ] "]" "+" integer
 *      argument = name "=" ( integer | op )
 *      expr    = term { "+" term | "-" integer }
 *      term    = factor { ( "*" | "//" | "%" ) factor }
 *      factor  = [ "-" ] integer | 'N' | rN | %k | %kindN | dtype "(" number ")" | "(" expr ")"
 *              | op [ "." dtype ] operands
 *      operands = "(" [ expr { "," expr } ] ")"
 *
 * Uops are interned as they are written; no rule simplifies them. Reading ends at the first error.
 * Errors that need the whole kernel, such as a range that is never bound, are checked last and
 * reported at the place where the range is written.
 */
#include "frontend/text/reader.h"
#include "ir/device_ops.h"

#include <string.h>

enum { ID_MAX = ARG_ID_MAX, SOURCES_MAX = 96, ARGUMENTS_MAX = 8, VALUES_MAX = 1 << 16 };

struct kernel_reader {
    struct reader r;   /* the tokens; nothing of a graph's */
    struct dict value; /* of %k and %kindN */
    struct dict range, symbol;
    struct uop_map line; /* the token of each uop's line */
    struct kernel_text *k;
    bool linear;
    struct uop **open;
    int nopen;
    size_t cap_open;
    struct uop **store;
    int nstore;
    size_t cap_store;
    size_t cap_linear, cap_buffer;
};

static bool read_sum(struct kernel_reader *k, struct uop **e);

static bool found(struct kernel_reader *k, const char *expected)
{
    return k->r.token.kind == TOKEN_BAD ? false
                                        : read_error(&k->r, &k->r.token, "found %s, expected %s",
                                                     token_describe(&k->r, &k->r.token), expected);
}

static bool read_int(struct kernel_reader *k, int64_t *v)
{
    bool minus = accept(&k->r, '-');
    if (!token_int(&k->r.token, v) || (*v < 0 && !(minus && *v == INT64_MIN)))
        return found(k, "an integer of 64 bits");
    *v = minus && *v != INT64_MIN ? -*v : *v;
    lex_next(&k->r);
    return true;
}

/* ---------------------------------------------------------------------------------- expressions */

static bool read_number(struct kernel_reader *k, enum dtype d, union scalar *v)
{
    bool minus = accept(&k->r, '-');
    struct token at = k->r.token;
    int64_t i;
    double f;
    if (dtype_is_float(d) && token_number(&at, &f)) {
        v->f = minus ? -f : f;
        if (v->f == v->f && v->f != scalar_cast(d, DTYPE_F64, *v).f)
            return read_error(&k->r, &at, "%s does not hold this number", dtype_name(d));
    } else if (!dtype_is_float(d) && d != DTYPE_STRING && token_int(&at, &i)) {
        v->i = minus ? (int64_t)(0 - (uint64_t)i) : i;
        bool wraps = d != DTYPE_U64 && i < 0 && !(minus && i == INT64_MIN);
        if (wraps || scalar_cast(d, DTYPE_I64, *v).i != v->i)
            return read_error(&k->r, &at, "%s does not hold this number", dtype_name(d));
    } else if (d == DTYPE_BOOL && at.kind == TOKEN_NAME &&
               (!strcmp(at.text, "true") || !strcmp(at.text, "false"))) {
        v->i = at.text[0] == 't';
    } else {
        return found(k, "a number");
    }
    lex_next(&k->r);
    return true;
}

/* How many sources an op has at least, where it may have any number. */
static int least_sources(enum op op)
{
    switch (op) {
    case OP_LOAD:
    case OP_REDUCE:
    case OP_STACK:
    case OP_STAGE:
        return 2;
    case OP_STORE:
    case OP_GATHER:
    case OP_MATRIX:
        return 3;
    case OP_COPY: case OP_PUT:
        return 4;
    case OP_ACC:
        return 1;
    case OP_BULK:
        return BULK_AXES + BULK_AXIS;
    case OP_BULK_STORE:
        return BULK_AXES - BULK_LEAVES + BULK_AXIS;
    default:
        return 0;
    }
}

static bool is_of_kernels(const struct kernel_reader *k, enum op op)
{
    if (op_is_elementwise(op) || op == OP_LOAD || op == OP_STORE)
        return true;
    if (!k->linear)
        return op == OP_REDUCE || op == OP_STAGE || op == OP_STACK || op == OP_TICKET;
    return op == OP_PREFETCH || (op >= OP_ACC && op < OP_SINK);
}

/* Only the operand for memory may be memory, only that of ENDGUARD a guard, and none a store. */
static bool check_operands(struct kernel_reader *k, const struct token *at, enum op op,
                           enum intrinsic row, struct uop *const *src, int n)
{
    bool table = op == OP_INTRINSIC && intrinsic_shape(row, 0).memory;
    if (op_nsrc(op) >= 0 ? n != op_nsrc(op) : n < least_sources(op))
        return read_error(&k->r, at, "%s with %d operands", op_name(op), n);
    for (int i = 0; i < n; i++) {
        bool memory = src[i]->op == OP_BUFFER || src[i]->op == OP_STAGE;
        if (memory != (op_takes_memory(op, i) || (table && i == 0)))
            return read_error(&k->r, at, "operand %d of %s is %s", i + 1, op_name(op),
                              memory ? "memory" : "no memory");
        if (!memory && (src[i]->dtype == DTYPE_VOID) != (op == OP_ENDGUARD))
            return read_error(&k->r, at, "operand %d of %s is no value of its kind", i + 1,
                              op_name(op));
        if (op == OP_ENDGUARD && src[i]->op != OP_GUARD)
            return read_error(&k->r, at, "endguard of what is no guard");
    }
    return true;
}

static bool read_operands(struct kernel_reader *k, struct uop **src, int *n)
{
    if (!expect(&k->r, '(', "before the operands"))
        return false;
    while (!(k->r.token.kind == TOKEN_PUNCT && k->r.token.punct == ')')) {
        if (*n == SOURCES_MAX)
            return read_error(&k->r, &k->r.token, "more than %d operands", SOURCES_MAX);
        if (!read_sum(k, &src[(*n)++]))
            return false;
        if (!accept(&k->r, ','))
            break;
    }
    return expect(&k->r, ')', "behind the operands");
}

/* op or op.dtype, or a row of intrinsics.def; *d: the dtype, VOID if there is none. */
static bool find_op(struct kernel_reader *k, const struct token *at, enum op *op, enum dtype *d,
                    enum intrinsic *row)
{
    const char *dot = strchr(at->text, '.');
    const char *name = dot ? mem_printf(k->r.t, "%.*s", (int)(dot - at->text), at->text) : at->text;
    *d = DTYPE_VOID;
    if (k->linear && intrinsic_find(name, row))
        *op = OP_INTRINSIC;
    else if (!op_parse(name, op) || !is_of_kernels(k, *op) || *op == OP_INTRINSIC)
        return read_error(&k->r, at, "'%.60s' is no op of a %s", name,
                          k->linear ? "linear program" : "kernel");
    if (dot && !dtype_parse(dot + 1, d))
        return read_error(&k->r, at, "'%.60s' is no dtype", dot + 1);
    return true;
}

/* An elementwise op in place. */
static bool read_call_of(struct kernel_reader *k, const struct token *at, struct uop **e)
{
    struct uop *src[SOURCES_MAX];
    enum intrinsic row;
    enum op op;
    enum dtype d;
    int n = 0;
    if (!find_op(k, at, &op, &d, &row) || !read_operands(k, src, &n) ||
        !check_operands(k, at, op, row, src, n))
        return false;
    bool cast = op == OP_CAST || op == OP_BITCAST;
    bool to_bool = op == OP_LT || op == OP_EQ || op == OP_NE || op == OP_ISNAN;
    if (!op_is_elementwise(op) || cast != (d != DTYPE_VOID))
        return read_error(&k->r, at, "%s cannot stand in an expression", at->text);
    *e = uop_intern(k->r.t, op,
                    cast      ? d
                    : to_bool ? DTYPE_BOOL
                              : src[n - 1]->dtype,
                    src, n, (union arg){0});
    map_set(&k->line, *e, mem_copy(k->r.t, at, sizeof *at));
    return true;
}

/* A symbol as an i32, as the last pass makes it. */
static bool read_narrow_symbol(struct kernel_reader *k, struct uop **e)
{
    struct token at = k->r.token;
    struct uop *symbol = dict_get(&k->symbol, at.text);
    if (!symbol || symbol->vmin < INT32_MIN || symbol->vmax > INT32_MAX)
        return read_error(&k->r, &at, symbol ? "%s is not within the bounds of an i32"
                                             : "there is no %s before this line",
                          token_describe(&k->r, &at));
    lex_next(&k->r);
    *e = uop_intern(k->r.t, OP_VAR, DTYPE_I32, NULL, 0, symbol->arg);
    return true;
}

static bool read_named(struct kernel_reader *k, struct uop **e)
{
    struct token at = k->r.token;
    enum dtype d;
    union scalar v;
    lex_next(&k->r);
    if ((*e = dict_get(&k->range, at.text)) != NULL)
        return true;
    if (!(k->r.token.kind == TOKEN_PUNCT && k->r.token.punct == '('))
        return read_error(&k->r, &at, "there is no range '%.60s' before this line", at.text);
    if (!dtype_parse(at.text, &d))
        return read_call_of(k, &at, e);
    if (!expect(&k->r, '(', "behind the dtype"))
        return false;
    if (k->linear && d == DTYPE_I32 && k->r.token.kind == TOKEN_SYMBOL)
        return read_narrow_symbol(k, e) && expect(&k->r, ')', "behind the symbol");
    if (!read_number(k, d, &v) ||
        !expect(&k->r, ')', "behind the number"))
        return false;
    *e = uop_const(k->r.t, d, v);
    return true;
}

static bool read_factor(struct kernel_reader *k, struct uop **e)
{
    struct token at = k->r.token;
    int64_t v;
    if (accept(&k->r, '('))
        return read_sum(k, e) && expect(&k->r, ')', "behind the expression");
    if (at.kind == TOKEN_NUMBER || (at.kind == TOKEN_PUNCT && at.punct == '-')) {
        if (!read_int(k, &v))
            return false;
        *e = uop_int(k->r.t, v);
        return true;
    }
    if (at.kind == TOKEN_NAME)
        return read_named(k, e);
    if (at.kind != TOKEN_REF && at.kind != TOKEN_SYMBOL)
        return found(k, "a value");
    *e = dict_get(at.kind == TOKEN_REF ? &k->value : &k->symbol, at.text);
    lex_next(&k->r);
    return *e ||
           read_error(&k->r, &at, "there is no %s before this line", token_describe(&k->r, &at));
}

static bool join(struct kernel_reader *k, const struct token *at, enum op op, struct uop *b,
                 struct uop **e)
{
    struct uop *src[2] = {*e, b};
    if (!check_operands(k, at, op, INTRINSIC_COUNT, src, 2))
        return false;
    if (src[0]->dtype != DTYPE_INDEX || b->dtype != DTYPE_INDEX)
        return read_error(&k->r, at, "a sign between values that are not i64: write the op");
    *e = uop_intern(k->r.t, op, DTYPE_INDEX, src, 2, (union arg){0});
    map_set(&k->line, *e, mem_copy(k->r.t, at, sizeof *at));
    return true;
}

static bool read_term(struct kernel_reader *k, struct uop **e)
{
    if (!read_factor(k, e))
        return false;
    for (;;) {
        struct token at = k->r.token;
        struct uop *b;
        enum op op = accept(&k->r, '*')   ? OP_MUL
                     : accept(&k->r, '%') ? OP_FLOORMOD
                     : accept(&k->r, '/') ? OP_FLOORDIV
                                          : OP_COUNT;
        if (op == OP_COUNT)
            return true;
        if ((op == OP_FLOORDIV && !expect(&k->r, '/', "as in a // b")) || !read_factor(k, &b) ||
            !join(k, &at, op, b, e))
            return false;
    }
}

static bool read_sum(struct kernel_reader *k, struct uop **e)
{
    struct token at = k->r.token;
    if (k->r.nesting == MAX_NESTING)
        return read_error(&k->r, &at, "more than %d expressions in each other", MAX_NESTING);
    k->r.nesting++;
    bool ok = read_term(k, e);
    while (ok) {
        struct uop *b;
        int64_t v;
        at = k->r.token;
        if (accept(&k->r, '+')) {
            ok = read_term(k, &b) && join(k, &at, OP_ADD, b, e);
        } else if (at.kind == TOKEN_PUNCT && at.punct == '-') {
            ok = read_int(k, &v) && join(k, &at, OP_ADD, uop_int(k->r.t, v), e);
        } else {
            break;
        }
    }
    k->r.nesting--;
    return ok;
}

/* --------------------------------------------------------------------------------- declarations */

/* The number in a name, from `from` on; -1: not a valid one. */
static int number_of(const char *s)
{
    int n = 0, digits = 0;
    for (; *s >= '0' && *s <= '9' && n < ID_MAX; s++, digits++)
        n = n * 10 + (*s - '0');
    return *s || digits == 0 || n >= ID_MAX ? -1 : n;
}

static bool enter(struct kernel_reader *k, struct dict *d, const struct token *at, struct uop *u)
{
    void **slot = dict_enter(k->r.t, d, at->text);
    if (*slot && (*slot != u || !k->linear))
        return read_error(&k->r, at, "there is a %s already", token_describe(&k->r, at));
    *slot = u;
    return true;
}

static bool read_symbol_line(struct kernel_reader *k)
{
    struct token at = k->r.token;
    int64_t lo, hi;
    if (at.kind != TOKEN_SYMBOL)
        return found(k, "the symbol's name in '...'");
    lex_next(&k->r);
    if (!read_int(k, &lo) || !read_int(k, &hi))
        return false;
    if (lo > hi)
        return read_error(&k->r, &at, "its bounds are empty");
    struct var *v = var_new(k->r.t, at.text, lo, hi);
    v->is_counter = accept_word(&k->r, "counter");
    return enter(k, &k->symbol, &at, uop_var(k->r.t, v));
}

/* in_program: of a loop of a linear program, which may count in i32. */
static bool read_size(struct kernel_reader *k, struct uop **e, bool in_program)
{
    struct token at = k->r.token;
    if (!read_sum(k, e))
        return false;
    bool integer = (*e)->dtype == DTYPE_INDEX || (in_program && (*e)->dtype == DTYPE_I32);
    return (integer && (*e)->ndim == 0 && (*e)->lanes == 1) ||
           read_error(&k->r, &at, "a size that is no i64 scalar");
}

static bool read_dims(struct kernel_reader *k, struct uop **dim, int *n)
{
    struct token at = k->r.token;
    if (!accept(&k->r, '['))
        return true;
    do {
        if (*n == MAX_RANK)
            return read_error(&k->r, &at, "more than %d axes", MAX_RANK);
        if (!read_size(k, &dim[*n], false))
            return false;
        if (dim[(*n)++]->vmin < 0)
            return read_error(&k->r, &at, "a size that may be negative");
    } while (accept(&k->r, ','));
    return expect(&k->r, ']', "behind the shape");
}

/* How many elements a panel of shared memory has: rows of the panel's length, and as many as it
 * repeats after. */
static bool read_panel(struct kernel_reader *k, struct buffer_scratch *s, enum dtype d)
{
    struct token at = k->r.token;
    int64_t nbytes = (int64_t)dtype_nbytes(d);
    return read_int(k, &s->panel) &&
           ((s->panel > 0 && sat_mul(s->panel, nbytes) % PANEL_ALIGN == 0) ||
            read_error(&k->r, &at, "a panel is a multiple of %d bytes", PANEL_ALIGN));
}

/* The order of a weight's elements: sizes, and strides in those that the text lists. */
static bool read_order(struct kernel_reader *k, struct buffer *b)
{
    struct token at = k->r.token;
    struct view *v = MEM_NEW(k->r.t, struct view);
    int64_t n, stride, last, total = 1, nelem = 1, d;
    if (!accept_word(&k->r, "order"))
        return true;
    if (!expect(&k->r, '[', "and sizes and strides"))
        return false;
    while (!accept(&k->r, ']')) {
        if (v->ndim == MAX_RANK || (v->ndim && !expect(&k->r, ',', "or ]")))
            return found(k, "] behind an order of at most as many axes as tensors have");
        if (!read_int(k, &n) || !expect(&k->r, ':', "and the stride") || !read_int(k, &stride))
            return false;
        total = sat_mul(total, n);
        v->dim[v->ndim] = uop_int(k->r.t, n);
        v->stride[v->ndim++] = uop_int(k->r.t, stride);
    }
    if (!expect(&k->r, '+', "and the first element") || !read_int(k, &n))
        return false;
    v->offset = uop_int(k->r.t, n);
    for (int a = 0; a < b->ndim; a++)
        nelem = uop_const_int(b->dim[a], &d) ? sat_mul(nelem, d) : INT64_MAX;
    if (b->kind != BUFFER_WEIGHT || !view_last_element(v, &last) || total != nelem ||
        last >= (int64_t)1 << 48)
        return read_error(&k->r, &at, "no order of all elements of a weight");
    b->storage = v;
    return true;
}

static bool read_elements(struct kernel_reader *k, struct buffer *b)
{
    struct token at = k->r.token;
    int64_t n = 1, d, listed;
    size_t size = dtype_nbytes(b->dtype);
    if (!accept(&k->r, '='))
        return true;
    for (int a = 0; a < b->ndim; a++)
        n = uop_const_int(b->dim[a], &d) ? sat_mul(n, d) : VALUES_MAX + 1;
    if (b->kind != BUFFER_WEIGHT || b->dtype == DTYPE_STRING || n > VALUES_MAX)
        return read_error(&k->r, &at, "values of what is no weight of at most %d", VALUES_MAX);
    if (b->storage && (!view_last_element(b->storage, &listed) || ++listed > VALUES_MAX))
        return read_error(&k->r, &at, "values of what is no weight of at most %d", VALUES_MAX);
    listed = b->storage ? listed : n;
    char *data = mem_alloc(k->r.t, (size_t)listed * size + 1);
    for (int64_t i = 0; i < listed; i++) {
        union scalar v;
        if (!read_number(k, b->dtype, &v))
            return false;
        scalar_store(b->dtype, data + (size_t)i * size, v);
    }
    b->weight.data = data;
    b->nbytes = (size_t)n * size;
    return true;
}

/* "cluster 2 of 1" */
static bool read_cluster(struct kernel_reader *k, struct pipeline *p)
{
    int64_t n, of;
    if (p->transfer != TRANSFER_BULK || !accept_word(&k->r, "cluster"))
        return true;
    struct token at = k->r.token;
    if (!read_int(k, &n))
        return false;
    if (!accept_word(&k->r, "of"))
        return found(k, "of and a dimension of the grid");
    if (!read_int(k, &of))
        return false;
    if (n < 2 || n > CLUSTER_MOST || of < 0 || of >= GRID_RANK)
        return read_error(&k->r, &at,
                          "a cluster of %lld blocks of dimension %lld; it has 2 to %d of 0 to %d",
                          (long long)n, (long long)of, CLUSTER_MOST, GRID_RANK - 1);
    p->cluster = (int)n;
    p->multicast = (int)of;
    return true;
}

/* "producers 128" */
static bool read_producers(struct kernel_reader *k, struct pipeline *p)
{
    int64_t n;
    if (p->transfer != TRANSFER_BULK || !accept_word(&k->r, "producers"))
        return true;
    struct token at = k->r.token;
    if (!read_int(k, &n))
        return false;
    if (n < 1 || n > THREADS_OF_BLOCK)
        return read_error(&k->r, &at, "%lld producers; there are 1 to %d", (long long)n,
                          THREADS_OF_BLOCK);
    p->producers = (int)n;
    return true;
}

/* "ring 3 async" */
static bool read_ring(struct kernel_reader *k, struct pipeline *p)
{
    int64_t n;
    if (!accept_word(&k->r, "ring"))
        return true;
    struct token at = k->r.token;
    if (!read_int(k, &n))
        return false;
    if (n < 2 || n > RING_MAX)
        return read_error(&k->r, &at, "a ring of %lld parts; it has 2 to %d", (long long)n,
                          RING_MAX);
    p->stages = (int)n;
    for (int i = 0; i < TRANSFER_COUNT; i++)
        if (accept_word(&k->r, transfer_name((enum transfer)i))) {
            p->transfer = (enum transfer)i;
            return read_cluster(k, p) && read_producers(k, p);
        }
    return found(k, "a transfer of transfers.def");
}

static bool read_scratch(struct kernel_reader *k, struct buffer_scratch *s, enum dtype d)
{
    if (s->space == SPACE_SHARED) {
        s->is_alias = accept_word(&k->r, "alias");
        s->is_bulk_stored = accept_word(&k->r, "bulk_stored");
        return (!accept_word(&k->r, "panels") || read_panel(k, s, d)) && read_ring(k, &s->pipeline);
    }
    if (accept_word(&k->r, space_name(SPACE_GLOBAL))) {
        s->space = SPACE_GLOBAL;
        s->counts = accept_word(&k->r, "counts");
    } else {
        s->is_register = accept_word(&k->r, "registers");
    }
    return true;
}

static bool read_memory(struct kernel_reader *k, enum buffer_kind kind, const char *word)
{
    struct token at = k->r.token;
    struct uop *dim[MAX_RANK];
    enum dtype d;
    int n = 0, id = -1;
    if (at.kind == TOKEN_REF && !strncmp(at.text, word, strlen(word)))
        id = number_of(at.text + strlen(word));
    if (id < 0)
        return found(k, mem_printf(k->r.t, "%%%s and a number", word));
    lex_next(&k->r);
    if (!expect(&k->r, ':', "and the dtype"))
        return false;
    if (k->r.token.kind != TOKEN_NAME || !dtype_parse(k->r.token.text, &d) || d == DTYPE_VOID)
        return found(k, "a dtype");
    lex_next(&k->r);
    if (!read_dims(k, dim, &n))
        return false;
    struct buffer *b = buffer_new(k->r.t, kind, d, dim, n, NULL);
    b->id = id;
    k->r.t->next_buffer = k->r.t->next_buffer > id ? k->r.t->next_buffer : id + 1;
    struct token space = k->r.token;
    if (accept_word(&k->r, space_name(SPACE_SHARED)))
        b->scratch.space = SPACE_SHARED;
    if (b->scratch.space == SPACE_SHARED && kind != BUFFER_SCRATCH)
        return read_error(&k->r, &space, "only scratch is shared");
    if ((kind == BUFFER_SCRATCH && !read_scratch(k, &b->scratch, b->dtype)) || !read_order(k, b))
        return false;
    if (accept_word(&k->r, "in")) {
        struct uop *base =
            k->r.token.kind == TOKEN_REF ? dict_get(&k->value, k->r.token.text) : NULL;
        if (!base || base->op != OP_BUFFER || uop_buffer_of(base)->base)
            return found(k, "memory that is part of no other");
        lex_next(&k->r);
        b->base = (struct buffer *)(uintptr_t)base->arg.p;
        if (!expect(&k->r, '+', "and where it begins") || !read_size(k, &b->base_offset, false))
            return false;
    }
    if (k->r.token.kind == TOKEN_STRING) {
        b->name = k->r.token.text;
        lex_next(&k->r);
    }
    struct uop *u;
    if (!read_elements(k, b))
        return false;
    u = uop_buffer(k->r.t, b); /* declared after its elements, which bound it */
    VEC_PUSH(k->r.t, k->k->buffer, k->k->nbuffer, k->cap_buffer, b);
    return enter(k, &k->value, &at, u);
}

static bool read_range(struct kernel_reader *k, bool opens)
{
    struct token at = k->r.token;
    struct uop *size;
    const char *dot = at.kind == TOKEN_NAME ? strchr(at.text, '.') : NULL;
    enum worker w = WORKER_ITEM;
    while (w != WORKER_EACH && (!dot || strcmp(dot, worker_suffix(w)) != 0))
        w--;
    int axis = 0, id = -1;
    if (at.kind == TOKEN_NAME && (!dot || w != WORKER_EACH) && at.text[0])
        id = number_of(dot ? mem_printf(k->r.t, "%.*s", (int)(dot - at.text) - 1, at.text + 1)
                           : at.text + 1);
    while (id >= 0 && axis < AXIS_COUNT && axis_letter((enum axis)axis) != at.text[0])
        axis++;
    if (id < 0 || axis == AXIS_COUNT)
        return found(k, "a range's name, as in r12 or r12.team or r12.block");
    lex_next(&k->r);
    if (!expect(&k->r, '<', "and its size") || !read_size(k, &size, k->linear))
        return false;
    struct uop *r = uop_intern(k->r.t, OP_RANGE, size->dtype, &size, 1,
                               (union arg){.i = ARG_PACK(RANGE, id, axis, w)});
    k->r.t->next_range = k->r.t->next_range > id ? k->r.t->next_range : id + 1;
    if (k->r.token.kind == TOKEN_STRING) {
        uop_name_axes(k->r.t, r, k->r.token.text);
        lex_next(&k->r);
    }
    map_set(&k->line, r, mem_copy(k->r.t, &at, sizeof at));
    if (opens) {
        VEC_PUSH(k->r.t, k->k->linear, k->k->nlinear, k->cap_linear, r);
        VEC_PUSH(k->r.t, k->open, k->nopen, k->cap_open, r);
    }
    return enter(k, &k->range, &at, r);
}

static bool read_end(struct kernel_reader *k)
{
    struct token at = k->r.token;
    struct uop *r = at.kind == TOKEN_NAME ? dict_get(&k->range, at.text) : NULL;
    if (!r || !k->linear || k->nopen == 0 || k->open[k->nopen - 1] != r)
        return found(k, "the range of the innermost open loop");
    lex_next(&k->r);
    k->nopen--;
    struct uop *end = uop_intern(k->r.t, OP_END, DTYPE_VOID, &r, 1, (union arg){0});
    map_set(&k->line, end, mem_copy(k->r.t, &at, sizeof at));
    VEC_PUSH(k->r.t, k->k->linear, k->k->nlinear, k->cap_linear, end);
    return true;
}

/* --------------------------------------------------------------------------------------- values */

/* Arguments as they are written: the rows of ops.def have texts and types; an intrinsic's have a
 * letter each. */
struct arguments {
    struct {
        const char *text;
        int64_t v;
    } of[ARGUMENTS_MAX];
    int n;
};

static bool read_role(struct kernel_reader *k, int64_t *role)
{
    for (*role = 0; *role < ROLE_COUNT; ++*role)
        if (accept_word(&k->r, role_name((enum thread_role)*role)))
            return true;
    return found(k, "a role of roles.def");
}

static bool read_argument(struct kernel_reader *k, enum arg_type type, int64_t *v)
{
    bool named = k->r.token.kind == TOKEN_NAME;
    if (type == ARG_IS_ROLE)
        return read_role(k, v);
    if (type == ARG_IS_FOLD) {
        enum op op;
        if (!named || !op_parse(k->r.token.text, &op))
            return found(k, "an op");
        *v = op;
    } else if (type == ARG_IS_UNIT) {
        enum matrix_unit by;
        if (!named || !matrix_find(k->r.token.text, &by))
            return found(k, "an instruction of matrix.def");
        *v = by;
    } else {
        return read_int(k, v);
    }
    lex_next(&k->r);
    return true;
}

/* The text and type of the argument that is named next; NULL: there is no such argument. */
static const char *accept_argument(struct kernel_reader *k, const char *params, enum arg_type *type)
{
    *type = ARG_IS_INT;
    for (int i = 0; params[i]; i++)
        if (accept_word(&k->r, (char[]){params[i], 0}))
            return mem_printf(k->r.t, "%c", params[i]);
    for (int i = 0; i < ARG_COUNT; i++) {
        const struct arg_field *f = arg_field((enum argkind)i);
        if (f->text && *f->text && accept_word(&k->r, f->text)) {
            *type = f->type;
            return f->text;
        }
    }
    return NULL;
}

static bool read_arguments_of(struct kernel_reader *k, const char *params, struct arguments *a)
{
    a->n = 0;
    if (!accept(&k->r, '{'))
        return true;
    do {
        struct token at = k->r.token;
        enum arg_type type;
        if (a->n == ARGUMENTS_MAX)
            return read_error(&k->r, &at, "more than %d arguments", ARGUMENTS_MAX);
        if (!(a->of[a->n].text = accept_argument(k, params, &type)))
            return read_error(&k->r, &at, "%s is no argument", token_describe(&k->r, &at));
        if (!expect(&k->r, '=', "and its value") || !read_argument(k, type, &a->of[a->n++].v))
            return false;
    } while (accept(&k->r, ','));
    return expect(&k->r, '}', "behind the arguments");
}

/* The argument's value; NULL: it is not written. */
static const int64_t *argument(const struct arguments *a, const char *text)
{
    for (int i = a->n - 1; i >= 0; i--)
        if (!strcmp(a->of[i].text, text))
            return &a->of[i].v;
    return NULL;
}

/* Sizes must not be 0, and no operand may have more elements than a kernel's can. */
static bool pack_params(enum intrinsic row, const struct arguments *a, int64_t *bits)
{
    enum { LANES_MAX = 1 << 16 };
    const char *params = intrinsic_params(row);
    int64_t v[INTRINSIC_PARAMS] = {0};
    for (int i = 0; params[i]; i++) {
        const int64_t *given = argument(a, (char[]){params[i], 0});
        v[i] = given ? *given : 0;
        if (v[i] < 1 || v[i] > INTRINSIC_PARAM_MAX)
            return false;
    }
    *bits = INTRINSIC_BITS(row, v[0], v[1], v[2]);
    for (int k = 0; k <= intrinsic_nsrc(row); k++) {
        int64_t lanes = intrinsic_shape(*bits, k).lanes;
        if (lanes < 1 || lanes > LANES_MAX)
            return false;
    }
    return true;
}

/* The argument of an op, as the IR packs it: each field that its layout has, and no other. */
static bool pack_argument(enum op op, enum intrinsic row, const struct arguments *a, int64_t *bits)
{
    int given = 0;
    enum argkind layout = op_layout(op, 0);
    *bits = 0;
    if (op == OP_INTRINSIC)
        return pack_params(row, a, bits);
    if (op == OP_LOAD || op == OP_STORE)
        layout = a->n == 0 ? ARG_NONE : argument(a, "rows") ? ARG_TILE : ARG_VECTOR;
    for (int i = layout + 1; layout >= 0 && i < ARG_COUNT && arg_field((enum argkind)i)->text;
         i++) {
        const struct arg_field *f = arg_field((enum argkind)i);
        const int64_t *v = *f->text ? argument(a, f->text) : NULL;
        if (!arg_fits((enum argkind)i, v ? *v : f->otherwise))
            return false;
        *bits = arg_with(*bits, (enum argkind)i, v ? *v : f->otherwise);
        given += v != NULL;
    }
    bool by_unit = op == OP_REDUCE && REDUCE_MATRIX(*bits);
    return given == a->n && (!by_unit || REDUCE_OP(*bits) == OP_ADD);
}

static enum dtype result_dtype(enum op op, struct uop *const *src)
{
    return op == OP_STORE && src[2]                                 ? src[2]->dtype
           : op == OP_ASSIGN || op == OP_SHUFFLE || op == OP_MATRIX ? src[0]->dtype
                                                                    : DTYPE_VOID;
}

/* op "(" operands ")" arguments; `name`: of the result, or END. A stage's first operand is its
 * memory. */
static bool read_op(struct kernel_reader *k, const struct token *name, enum dtype d, bool let)
{
    struct token at = k->r.token;
    struct uop *src[SOURCES_MAX] = {0}, **from = src;
    struct arguments a;
    union arg arg = {0};
    enum intrinsic row = INTRINSIC_COUNT;
    enum op op;
    enum dtype to;
    int n = 0;
    if (at.kind != TOKEN_NAME)
        return found(k, "an op");
    lex_next(&k->r);
    if (!find_op(k, &at, &op, &to, &row) || !read_operands(k, src, &n) ||
        !read_arguments_of(k, op == OP_INTRINSIC ? intrinsic_params(row) : "", &a))
        return false;
    if (op == OP_STAGE) {
        if (n < 3 || src[0]->op != OP_BUFFER)
            return read_error(&k->r, &at, "a stage without its memory, value and offset");
        arg.p = src[0]->arg.p;
        from = src + 1;
        n--;
    }
    if (!check_operands(k, &at, op, row, from, n))
        return false;
    if (op != OP_STAGE && !pack_argument(op, row, &a, &arg.i))
        return read_error(&k->r, &at, "%s with arguments that are none of its own", op_name(op));
    bool results = !op_is_statement(op);
    if (results != (name->kind == TOKEN_REF) || (let && !op_is_elementwise(op)))
        return read_error(&k->r, &at, "%s %s", op_name(op),
                          results ? "whose result has no name" : "has no result here");
    if (results == (d == DTYPE_VOID) && op != OP_GUARD)
        return read_error(&k->r, &at, "a result without a dtype");
    struct uop *u = uop_intern(k->r.t, op, results ? d : result_dtype(op, from), from, n, arg);
    if (u->lanes < 1)
        return read_error(&k->r, &at, "a vector without lanes");
    map_set(&k->line, u, mem_copy(k->r.t, &at, sizeof at));
    if (k->linear && !let)
        VEC_PUSH(k->r.t, k->k->linear, k->k->nlinear, k->cap_linear, u);
    else if (op == OP_STORE)
        VEC_PUSH(k->r.t, k->store, k->nstore, k->cap_store, u);
    return !results || enter(k, &k->value, name, u);
}

static bool read_value_line(struct kernel_reader *k, bool let)
{
    struct token name = k->r.token;
    enum dtype d = DTYPE_VOID;
    if (name.kind == TOKEN_REF) {
        lex_next(&k->r);
        if (accept(&k->r, ':')) {
            if (k->r.token.kind != TOKEN_NAME || !dtype_parse(k->r.token.text, &d))
                return found(k, "a dtype");
            lex_next(&k->r);
        }
        if (!expect(&k->r, '=', "and the value"))
            return false;
    }
    return read_op(k, &name, d, let);
}

static bool read_line(struct kernel_reader *k)
{
    static const char *const kind[] = {"input", "output", "weight", "temp", "state", "scratch"};
    for (int i = 0; i < (int)(sizeof kind / sizeof *kind); i++)
        if (accept_word(&k->r, kind[i]))
            return read_memory(k, (enum buffer_kind)i, kind[i]);
    if (accept_word(&k->r, "symbol"))
        return read_symbol_line(k);
    if (accept_word(&k->r, "range"))
        return read_range(k, false);
    if (k->linear && accept_word(&k->r, "for"))
        return read_range(k, true);
    if (accept_word(&k->r, "end"))
        return read_end(k);
    return read_value_line(k, accept_word(&k->r, "let"));
}

/* Checks that need the whole text. */
static bool check_whole(struct kernel_reader *k)
{
    struct violation v;
    if (k->linear ? k->k->nlinear == 0 || k->nopen : k->nstore == 0)
        return read_error(&k->r, &k->r.token,
                          k->nopen ? "a loop is still open" : "a kernel that stores nothing");
    if (!k->linear)
        k->k->ast = uop_intern(k->r.t, OP_SINK, DTYPE_VOID, k->store, k->nstore, (union arg){0});
    if (k->linear ? linear_check(k->r.t, k->k->linear, k->k->nlinear, &v)
                  : kernel_check(k->r.t, k->k->ast, &v))
        return true;
    const struct token *at = v.at ? map_get(&k->line, v.at) : NULL;
    return read_error(&k->r, at ? at : &k->r.token, "%s: %s",
                      v.at ? uop_op_name(v.at) : "the whole", v.what);
}

bool tg_is_kernel(const void *bytes, size_t nbytes)
{
    const char *s = bytes, *end = s + nbytes;
    while (s < end && (*s == ' ' || *s == '\n' || *s == '\t' || *s == '\r' || *s == '#'))
        s = *s == '#' && memchr(s, '\n', (size_t)(end - s))
                ? (const char *)memchr(s, '\n', (size_t)(end - s))
            : *s == '#' ? end
                        : s + 1;
    return end - s > 6 && (!memcmp(s, "kernel", 6) || !memcmp(s, "linear", 6));
}

bool tg_read_kernel(struct tgc *t, const char *path, const void *bytes, size_t nbytes,
                    struct kernel_text *text)
{
    struct kernel_reader *k = MEM_NEW(t, struct kernel_reader);
    *text = (struct kernel_text){0};
    *k = (struct kernel_reader){.r = {.t = t, .path = path}, .k = text, .line = {.t = t}};
    lex_start(&k->r, bytes, nbytes);
    k->linear = accept_word(&k->r, "linear");
    if (!k->linear && !accept_word(&k->r, "kernel"))
        return found(k, "'kernel' or 'linear'");
    while (k->r.token.kind != TOKEN_END)
        if (!read_line(k))
            return false;
    return check_whole(k);
}
