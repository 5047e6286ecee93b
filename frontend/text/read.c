/* read.c - reads a .tg text graph: its statements, one after the other, past errors.
 *
 *      file      = "tg" "1" { statement | definition | function }      the latter: see custom.c
 *      statement = "graph" string [ "producer" string ]
 *                | "dim" dimension                                 a symbol of no input: dim N<=8
 *                | "input" %x ":" type [ "as" string ]
 *                | "weight" %w ":" type [ "as" string ] "=" init   see weight.c
 *                | "param" %w ":" type [ "as" string ] "=" init    a weight that training changes
 *                | "output" operand [ "as" string ]
 *                  [ "{" name "=" integer { "," ... } "}" ]        see slice.c
 *                | "meta" string "=" string                        what the program says of itself
 *                | "import" name "=" string                        an ONNX file: see entry.c
 *                | "state" %x ":" type [ "as" string ] [ "=" init ]
 *                | "keep" %x "=" operand                           a state's value for the next run
 *                | "entry" string "{" { statement } "}"            one of several runs
 *                | result { "," result } "=" value                 see define.c
 *                | "host" string arguments tail                    no result: checks, finds a size
 *      result    = ( %x | "_" ) [ ":" type ]                       a host call needs the type
 *      value     = name arguments tail                             an op of ir/ops.def, a function
 *                | "custom" string arguments tail                  "domain::name", see custom.c
 *                | "host" string arguments tail                    with params=[..], vars=[..]
 *                | "if" "(" operand ")" "then" branch "else" branch tail
 *                | "loop" %i "<" operand [ "while" operand ] [ "carry" "(" carried ")" ]
 *                  [ "stack" expr ] "{" body "}" tail
 *      arguments = "(" operands ")" [ "{" attributes "}" ]         see call.c
 *      branch    = "(" operands ")" | "{" { statement } "yield" "(" operands ")" "}"
 *      carried   = %p "=" operand { "," %p "=" operand }
 *      body      = { statement } "next" "(" operands ")" [ "while" operand ]
 *                  [ "scan" "(" operands ")" ]
 *      tail      = { "axes" "(" string ")"
 *                | "loc" "(" string [ "," string [ "," integer ] ] ")" }
 *      operand   = %x | dtype "(" number ")" | number | expr | "_" see value.c
 *
 * '#' begins a comment; line ends are blanks. What is defined in a region (a branch, a body) is not
 * seen outside it. After an error reading goes on at the next line that begins a statement, so that
 * several mistakes are reported at once.
 */
#include "frontend/text/reader.h"

#include <errno.h>
#include <string.h>

/* ---- other statements */

/* Whether the next token is the word, or the character. */
static bool at_word(const struct reader *r, const char *word)
{
    if (!word)
        return false;
    if (r->token.kind == TOKEN_PUNCT)
        return r->token.punct == word[0];
    return r->token.kind == TOKEN_NAME && !strcmp(r->token.text, word);
}

/* %x ":" type [ "as" string ] */
static bool read_named_type(struct reader *r, const char *what, struct token *at, struct type *type,
                            const char **name)
{
    *at = r->token;
    if (at->kind != TOKEN_REF)
        return at->kind == TOKEN_BAD
                   ? false
                   : read_error(r, at, "found %s, expected the %s's name, as in %%x",
                                token_describe(r, at), what);
    *name = at->text;
    lex_next(r);
    return expect(r, ':', "and the type") && read_type(r, type) &&
           (!accept_word(r, "as") || read_text(r, name, "a name"));
}

/* Why --value cannot have the name. */
static void note_refusal(struct reader *r, const struct token *name, const char *why)
{
    struct named_value v = {.name = name->text, .refusal = why};
    VEC_PUSH(r->t, r->named, r->nnamed, r->cap_named, v);
}

static bool read_input(struct reader *r)
{
    struct token at;
    struct type type;
    const char *name;
    if (!read_named_type(r, "input", &at, &type, &name))
        return at.kind == TOKEN_REF && define_name(r, &at, NULL) && false;
    if (region_depth(r))
        return read_error(r, &at, "an input inside a region");
    struct buffer *b = buffer_new(r->t, BUFFER_INPUT, type.dtype, type.dim, type.ndim, name);
    struct uop *x = uop_buffer(r->t, b);
    VEC_PUSH(r->t, r->input, r->ninput, r->cap_input, x);
    note_refusal(r, &at, "it is an input of the graph");
    return define_name(r, &at, x);
}

/* A float of rank 0 by which a derivative may be asked for is no constant. */
static enum weight_use use_of_weight(const struct reader *r, const struct token *name,
                                     const struct type *type, bool is_param)
{
    bool kept = r->options.keep_scalars || gradient_is_by(r, name->text);
    return is_param                                 ? WEIGHT_PARAM
           : kept && dtype_is_float(type->dtype) ? WEIGHT_KEPT
                                                    : WEIGHT_CONSTANT;
}

static bool read_weight_statement(struct reader *r, bool is_param)
{
    struct token at;
    struct type type;
    const char *name;
    struct uop *w = NULL;
    if (!read_named_type(r, is_param ? "param" : "weight", &at, &type, &name))
        return at.kind == TOKEN_REF && define_name(r, &at, NULL) && false;
    if (is_param && !dtype_is_float(type.dtype))
        return define_name(r, &at, NULL) &&
               read_error(r, &type.at, "a param of %s: training changes floats; make it a weight",
                          dtype_name(type.dtype));
    bool ok = expect(r, '=', "and the values");
    const char *begin = r->token.start;
    ok = ok && read_weight(r, &type, name, use_of_weight(r, &at, &type, is_param), &w);
    if (ok && r->options.on_weight && !r->custom && !r->is_library && w->op == OP_BUFFER)
        r->options.on_weight(r->options.user, (struct buffer *)(uintptr_t)w->arg.p, begin,
                             r->last_end);
    note_refusal(r, &at, "it is a weight, the same in all runs");
    return define_name(r, &at, w) && ok;
}

static bool read_output(struct reader *r)
{
    struct operand o;
    if (!read_operand(r, &o) || !settle_operand(r, &o, DTYPE_I64))
        return false;
    const char *name = o.at.kind == TOKEN_REF ? o.at.text
                                              : mem_printf(r->t, "output%d", r->noutput);
    if (accept_word(r, "as") && !read_text(r, &name, "a name"))
        return false;
    if (region_depth(r))
        return read_error(r, &o.at, "an output inside a region");
    for (int i = r->in_entry ? r->entry[r->nentry - 1].output : 0; i < r->noutput; i++)
        if (!strcmp(r->output[i].name, name))
            return read_error(r, &o.at, "there is an output '%.100s' already", name);
    struct graph_output made = {.name = name, .value = o.value};
    if (!read_slices(r, &made))
        return false;
    VEC_PUSH(r->t, r->output, r->noutput, r->cap_output, made);
    return true;
}

/* What stands in graphs alone. */
static bool is_of_graph(const struct token *at)
{
    static const char *const words[] = {"input", "param",  "output", "dim",  "host",  "graph", "def",
                                        "extern", "import", "state", "keep", "entry", "meta"};
    for (size_t i = 0; at->kind == TOKEN_NAME && i < sizeof words / sizeof *words; i++)
        if (!strcmp(at->text, words[i]))
            return true;
    return false;
}

static bool read_statement(struct reader *r)
{
    struct token at = r->token;
    r->place = lex_place(r, &at);
    if (!r->is_library &&
        (at.kind == TOKEN_REF || (at.kind == TOKEN_NAME && !strcmp(at.text, "_"))))
        return read_definition(r);
    if (r->custom && is_of_graph(&at))
        return read_error(r, &at, "found %s, which stands in graphs, not in definitions",
                          token_describe(r, &at));
    if (r->is_library && !at_word(r, "def") && !at_word(r, "extern"))
        return read_error(r, &at, "found %s, expected def or extern: a library has nothing else",
                          token_describe(r, &at));
    if (r->region && (at_word(r, "def") || at_word(r, "extern")))
        return read_error(r, &at, "a definition inside a region");
    if (accept_word(r, "def"))
        return read_custom(r, false);
    if (accept_word(r, "extern"))
        return read_custom(r, true);
    if (accept_word(r, "input"))
        return read_input(r);
    if (accept_word(r, "weight"))
        return read_weight_statement(r, false);
    if (accept_word(r, "param"))
        return read_weight_statement(r, true);
    if (accept_word(r, "output"))
        return read_output(r);
    if (accept_word(r, "import"))
        return read_import(r);
    if (accept_word(r, "state"))
        return read_state(r);
    if (accept_word(r, "keep"))
        return read_keep(r);
    if (accept_word(r, "entry"))
        return read_entry(r);
    if (accept_word(r, "meta"))
        return read_meta(r);
    if (accept_word(r, "dim"))
        return read_dimension_decl(r);
    if (accept_word(r, "host"))
        return read_host_statement(r);
    if (accept_word(r, "graph"))
        return read_text(r, &r->graph_name, "the graph's name") &&
               (!accept_word(r, "producer") || read_text(r, &r->producer, "the producer"));
    return at.kind == TOKEN_BAD
               ? false
               : read_error(r, &at,
                            "found %s, expected input, weight, param, output, dim, "
                            "host, graph, def, extern, import, state, keep, entry, meta, or "
                            "a result: %%name = ...",
                            token_describe(r, &at));
}

static bool begins_statement(const struct reader *r)
{
    static const char *const words[] = {"input", "weight", "param",  "output", "dim",  "host",
                                        "graph", "def",    "extern", "import", "state", "keep",
                                        "entry", "meta",   "_",      "next",   "yield"};
    int n = (int)(sizeof words / sizeof *words) - (region_depth(r) ? 0 : 2);
    for (int i = 0; r->token.kind == TOKEN_NAME && i < n; i++)
        if (!strcmp(r->token.text, words[i]))
            return true;
    return r->token.kind == TOKEN_REF;
}

static bool too_many(const struct reader *r) { return r->t->nerror - r->base_error >= MAX_ERRORS; }

/* After an error: on to the next line that begins a statement. */
static void recover(struct reader *r, int line)
{
    while (r->token.kind != TOKEN_END && !too_many(r)) {
        bool first = true;                            /* is the token the first of its line? */
        for (const char *s = r->token.start - 1;
             s >= r->token.start - (r->token.column - 1) && first; s--)
            first = *s == ' ' || *s == '\t';
        bool ends = r->in_entry && r->token.kind == TOKEN_PUNCT && r->token.punct == '}';
        if (first && r->token.line > line && (begins_statement(r) || ends))
            return;
        lex_next(r);
    }
}

bool read_statements(struct reader *r, const char *until, const char *or_until)
{
    bool ok = true;
    while (r->token.kind != TOKEN_END && !at_word(r, until) && !at_word(r, or_until)) {
        int line = r->token.line;
        if (read_statement(r))
            continue;
        ok = false;
        r->nesting = 0;
        recover(r, line);
        if (too_many(r))
            break;
    }
    return ok;
}

/* Every dimension that the caller speaks of must exist. */
static void check_dimensions(struct reader *r)
{
    for (int i = 0; i < r->options.ndim; i++) {
        struct token name = {.text = r->options.dim[i].name};
        if (!read_symbol(r, &name))
            diag_error(r->t, &(struct place){.file = r->path},
                       "the graph has no dimension '%.100s'", name.text);
    }
}

static struct graph *finish(struct reader *r)
{
    struct graph *g = MEM_NEW(r->t, struct graph);
    *g = (struct graph){.name = r->graph_name ? r->graph_name : "",
                        .producer = r->producer,
                        .nmeta = r->nmeta,
                        .meta = r->meta,
                        .ninput = r->ninput,
                        .input = r->input,
                        .noutput = r->noutput,
                        .output = r->output,
                        .nhost = r->nhost,
                        .host = r->host};
    entries_finish(r, g);
    g->var = mem_array(r->t, (size_t)r->nsymbol + 2, sizeof *g->var);
    for (int i = 0; i < r->nsymbol; i++)
        if (r->symbol[i].value->op == OP_VAR)
            g->var[g->nvar++] = (struct var *)r->symbol[i].value->arg.p;
    if (g->nentry)
        g->var[g->nvar++] = g->entry_number;
    return g;
}

/* --value: names with or without the % that the text has. What regions define is no output. */
static bool expose_inner(struct reader *r, struct graph *g)
{
    int n = r->options.ninner;
    struct place at = {.file = r->path};
    const char **wanted = mem_array(r->t, (size_t)n + 1, sizeof *wanted);
    for (int i = 0; i < n; i++)
        wanted[i] = r->options.inner[i] + (r->options.inner[i][0] == '%');
    return expose_values(r->t, &at, g, r->named, r->nnamed, wanted, n);
}

bool read_version(struct reader *r)
{
    struct token at = r->token;
    int64_t version;
    if (!accept_word(r, "tg"))
        return read_error(r, &at, "found %s, expected 'tg 1': this is no .tg graph",
                          token_describe(r, &at));
    if (!token_int(&r->token, &version) || version != 1)
        return read_error(
            r, &r->token,
            "found %s, expected 1: the only version of the format that this tgc reads",
            token_describe(r, &r->token));
    lex_next(r);
    return true;
}

struct graph *tg_read_bytes(struct tgc *t, const char *path, const void *bytes, size_t nbytes,
                            const struct tg_read_options *options)
{
    struct reader *r = MEM_NEW(t, struct reader);
    *r = (struct reader){.t = t, .path = path};
    if (options)
        r->options = *options;
    r->lib = (struct lib){t, &r->place};
    int before = r->base_error = t->nerror;
    r->library = tg_library_new(t, NULL);
    r->library->parent = r->options.library;
    r->library->options = (struct tg_library_options){
        r->options.no_external_data, r->options.on_file, r->options.user};
    r->variable = gradient_names(t, bytes, nbytes);
    lex_start(r, bytes, nbytes);
    if (!read_version(r))
        return NULL;
    read_statements(r, NULL, NULL);
    check_dimensions(r);
    if (t->nerror == before)
        entries_check(r);
    if (t->nerror == before && r->noutput == 0)
        read_error(r, &r->token, "the graph has no output; add a line such as: output %%y");
    struct graph *g = t->nerror == before ? finish(r) : NULL;
    if (!g || !expose_inner(r, g))
        return NULL;
    if (!r->options.keep_scalars)
        graph_settle(t, g, false);
    return g;
}

/* Everything that a file or standard input holds. */
static char *slurp(struct tgc *t, const char *path, FILE *f, size_t *nbytes)
{
    enum { CHUNK = 1 << 16 };
    static const size_t longest = (size_t)INT32_MAX;
    size_t cap = 0;
    char *s = NULL;
    *nbytes = 0;
    for (;;) {
        s = mem_grow(t, s, &cap, *nbytes + CHUNK, 1);
        size_t n = fread(s + *nbytes, 1, CHUNK, f);
        *nbytes += n;
        if (*nbytes > longest) {
            diag_error(t, &(struct place){.file = path},
                       "the text is longer than 2 GiB; put weights into files");
            return NULL;
        }
        if (n < CHUNK)
            break;
    }
    if (ferror(f)) {
        diag_error(t, &(struct place){.file = path}, "reading failed: %s", strerror(errno));
        return NULL;
    }
    return s;
}

const char *tg_load(struct tgc *t, const char *path, size_t *nbytes)
{
    bool standard = !strcmp(path, "-");
    struct held *held = NULL;
    FILE *f = standard ? stdin : held_fopen(t, path, "rbe", &held);
    if (!f) {
        diag_error(t, &(struct place){.file = path}, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    char *s = slurp(t, standard ? "<stdin>" : path, f, nbytes);
    held_release(held);
    return s;
}

struct graph *tg_read(struct tgc *t, const char *path, const struct tg_read_options *options)
{
    size_t nbytes;
    const char *s = tg_load(t, path, &nbytes);
    return s ? tg_read_bytes(t, strcmp(path, "-") ? path : "<stdin>", s, nbytes, options) : NULL;
}
