/* custom.c - definitions of operators, and declarations of C functions: of a --library file, or of
 * a graph in front of its calls.
 *
 *      library    = "tg" "1" { definition | function }
 *      definition = "def" name parts "->" "(" results ")" "{" { statement } "}"
 *      function   = "extern" name parts "->" "(" results ")" [ "scratch" "(" expr ")" ]
 *                   [ "as" string ] [ "gradient" name ]
 *      name       = name | "domain::name"
 *      parts      = "(" [ part { "," part } ] ")"
 *      part       = %x [ "?" ] [ ":" kind ]                   an operand; ?: it may be absent
 *                 | name ":" ("int" | "float" | "string" | "ints" | "floats") [ "=" value ]
 *      results    = %y [ ":" kind ] { "," %y [ ":" kind ] }
 *      kind       = (dtype | "any") [ "[" size { "," size } "]" ]
 *
 * A size that is a symbol alone, for the first time, is what the operand has there; every other one
 * is an expression that it has to equal. Types are read again for each call (expand.c). A
 * definition calls what stands before it, so none calls itself.
 */
#include "frontend/text/reader.h"

#include <string.h>

enum { MAX_PARTS = 64, LONGEST_NAME = 200 };

/* ---- the library */

struct tg_library *tg_library_new(struct tgc *t, const struct tg_library_options *options)
{
    struct tg_library *l = MEM_NEW(t, struct tg_library);
    if (options)
        l->options = *options;
    return l;
}

void tg_library_begin(struct tg_library *l)
{
    if (l)
        l->ncall = 0;
}

const struct custom *tg_library_find(const struct tg_library *l, const char *name)
{
    for (; l; l = l->parent)
        for (int i = 0; i < l->n; i++)
            if (!strcmp(l->v[i]->name, name))
                return l->v[i];
    return NULL;
}

enum external_kind tg_custom_attribute(const struct custom *c, const char *name)
{
    for (int i = 0; i < c->npart; i++)
        if (custom_is_attribute(&c->part[i]) && !strcmp(c->part[i].name, name))
            return c->part[i].kind;
    return EXTERNAL_SCRATCH;
}

static const struct custom *find_symbol(const struct tg_library *l, const char *symbol)
{
    for (; l; l = l->parent)
        for (int i = 0; i < l->n; i++)
            if (l->v[i]->symbol && !strcmp(l->v[i]->symbol, symbol))
                return l->v[i];
    return NULL;
}

const char *custom_place(struct tgc *t, const struct custom *c, const struct token *at,
                         const char *file)
{
    if (file && !strcmp(c->path, file))
        return mem_printf(t, "line %d", at->line);
    return mem_printf(t, "%s:%d:%d", c->path, at->line, at->column);
}

/* The same declaration may be in a graph and in a library. */
static bool add(struct reader *r, struct custom *c)
{
    struct tg_library *l = r->library;
    const struct custom *same = tg_library_find(l, c->name);
    if (same && c->declaration && same->declaration && !strcmp(c->declaration, same->declaration))
        return true;
    if (same)
        return read_error(r, &c->at, "'%s' is defined already, %s", c->name,
                          custom_place(r->t, same, &same->at, r->path));
    const struct custom *function = c->symbol ? find_symbol(l, c->symbol) : NULL;
    if (function)
        return read_error(r, &c->at, "the C function %s is that of '%s' already, %s", c->symbol,
                          function->name,
                          custom_place(r->t, function, &function->at, r->path));
    VEC_PUSH(r->t, l->v, l->n, l->cap, c);
    return true;
}

/* ---- names */

static bool is_identifier(const char *s)
{
    bool digit = *s >= '0' && *s <= '9';
    for (const char *c = s; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '_'))
            return false;
    return *s && !digit && strlen(s) <= LONGEST_NAME;
}

/* The name after the domain. */
static const char *operator_of(const char *name)
{
    const char *at = name;
    for (const char *s; (s = strstr(at, "::"));)
        at = s + 2;
    return at;
}

/* Whether a call of this name is something else. */
static bool is_taken(const char *name)
{
    static const char *const words[] = {"host", "custom", "if", "loop"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(name, words[i]))
            return true;
    return call_is_known(name);
}

static bool read_name(struct reader *r, struct custom *c)
{
    c->at = r->token;
    c->name = c->at.text;
    if (c->at.kind == TOKEN_STRING) {
        const char *name = operator_of(c->name);
        if (name - c->name < 3 || !*name || strlen(c->name) > LONGEST_NAME)
            return read_error(r, &c->at, "found %s, expected \"domain::name\", or a name without "
                                         "quotes", token_describe(r, &c->at));
    } else if (c->at.kind != TOKEN_NAME || strlen(c->name) > LONGEST_NAME) {
        return c->at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &c->at, "found %s, expected the operator's name: foo, or "
                                           "\"domain::Foo\"", token_describe(r, &c->at));
    } else if (is_taken(c->name)) {
        return read_error(r, &c->at, "%s is an operation of the format; give yours another name",
                          c->name);
    }
    lex_next(r);
    return true;
}

/* ---- parts */

/* Passes over the sizes of a type, and counts them; *end: the position after the bracket. */
static bool pass_sizes(struct reader *r, int *ndim, const char **end)
{
    struct token open = r->token;
    int depth = 0;
    *ndim = 0;
    if (!accept(r, '['))
        return true;
    *end = r->token.start + 1;
    if (accept(r, ']'))
        return true;
    for (++*ndim; r->token.kind != TOKEN_END && r->token.kind != TOKEN_BAD; lex_next(r)) {
        char c = r->token.kind == TOKEN_PUNCT ? r->token.punct : 0;
        if (c == '{' || c == '}')
            break;
        depth += (c == '(') - (c == ')');
        *ndim += c == ',' && depth == 0;
        if (c == ']') {
            *end = r->token.start + 1;
            lex_next(r);
            return *ndim <= MAX_RANK || read_error(r, &open, "more than %d axes", MAX_RANK);
        }
    }
    return r->token.kind == TOKEN_BAD ? false : read_error(r, &open, "no ']' ends the sizes");
}

static bool pass_type(struct reader *r, struct custom_part *p)
{
    struct token at = r->token;
    p->is_typed = true;
    p->type = lex_mark(r);
    p->is_any = at.kind == TOKEN_NAME && !strcmp(at.text, "any");
    if (at.kind != TOKEN_NAME ||
        (!p->is_any && (!dtype_parse(at.text, &p->dtype) || p->dtype == DTYPE_VOID)))
        return at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected a dtype such as f32, or any",
                                token_describe(r, &at));
    lex_next(r);
    const char *end = at.start + at.nbytes;
    if (!pass_sizes(r, &p->ndim, &end))
        return false;
    p->type_text = mem_printf(r->t, "%.*s", (int)(end - at.start), at.start);
    return true;
}

static bool read_kind(struct reader *r, struct custom_part *p)
{
    static const struct { const char *name; enum external_kind kind; } kinds[] = {
        {"int", EXTERNAL_INT},   {"float", EXTERNAL_FLOAT},   {"string", EXTERNAL_STRING},
        {"ints", EXTERNAL_INTS}, {"floats", EXTERNAL_FLOATS},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (accept_word(r, kinds[i].name)) {
            p->kind = kinds[i].kind;
            return true;
        }
    return r->token.kind == TOKEN_BAD
               ? false
               : read_error(r, &r->token,
                            "found %s, expected the attribute's kind: int, float, string, ints or "
                            "floats",
                            token_describe(r, &r->token));
}

static bool read_attribute(struct reader *r, struct custom_part *p)
{
    enum dtype d;
    struct tg_argument value;
    static const char *const taken[] = {"true", "false", "inf", "nan", "any", "_"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcmp(p->name, taken[i]))
            return read_error(r, &p->at, "an attribute cannot be called %s", p->name);
    if (dtype_parse(p->name, &d))
        return read_error(r, &p->at, "an attribute cannot be called %s, which is a dtype", p->name);
    if (!expect(r, ':', "and the attribute's kind") || !read_kind(r, p))
        return false;
    if (!accept(r, '='))
        return true;
    p->otherwise = MEM_NEW(r->t, struct attr_value);
    return read_attr_value(r, p->otherwise) && custom_value(r, p, p->otherwise, &value);
}

static bool read_part(struct reader *r, struct custom *c, bool result)
{
    struct custom_part p = {.at = r->token, .name = r->token.text,
                            .kind = result ? EXTERNAL_RESULT : EXTERNAL_OPERAND};
    bool tensor = p.at.kind == TOKEN_REF;
    if (!tensor && (p.at.kind != TOKEN_NAME || result))
        return p.at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &p.at, result ? "found %s, expected a result, as in %%y"
                                                 : "found %s, expected an operand, as in %%x, or "
                                                   "an attribute's name",
                                token_describe(r, &p.at));
    for (int i = 0; i < c->npart; i++)
        if (!strcmp(c->part[i].name, p.name) &&
            (tensor ? c->part[i].kind == p.kind : custom_is_attribute(&c->part[i])))
            return read_error(r, &p.at, "%s is there twice", token_describe(r, &p.at));
    if (c->npart == MAX_PARTS)
        return read_error(r, &p.at, "more than %d operands, attributes and results", MAX_PARTS);
    lex_next(r);
    if (!tensor && !read_attribute(r, &p))
        return false;
    p.is_optional = tensor && !result && accept(r, '?');
    if (tensor && accept(r, ':') && !pass_type(r, &p))
        return false;
    VEC_PUSH(r->t, c->part, c->npart, c->cap_part, p);
    return true;
}

static bool read_parts(struct reader *r, struct custom *c, bool results)
{
    if (!expect(r, '(', results ? "before the results" : "before the operands and attributes"))
        return false;
    if (!results && accept(r, ')'))
        return true;
    do {
        if (!read_part(r, c, results))
            return false;
    } while (accept(r, ','));
    return expect(r, ')', results ? "after the results" : "after the operands and attributes");
}

/* The types hold together, whatever the operands' sizes are: symbols are known where they are
 * used. */
static bool check_types(struct reader *r, const struct custom *c)
{
    struct reader inner;
    struct type type;
    bool ok = true;
    custom_reader(&inner, r->t, r->library, c, &c->body);
    for (int i = 0; i < c->npart && ok; i++) {
        const struct custom_part *p = &c->part[i];
        struct symbol s = {.name = p->name};
        if (p->kind == EXTERNAL_INT) {
            s.value = uop_var(r->t, var_new(r->t, p->name, 0, INT32_MAX));
            VEC_PUSH(r->t, inner.symbol, inner.nsymbol, inner.cap_symbol, s);
        }
        ok = !p->is_typed || custom_type(&inner, c, p, NULL, NULL, &type);
    }
    struct uop *nbytes;
    return ok && (!c->has_scratch || custom_scratch(&inner, c, &nbytes));
}

/* ---- bodies */

/* Calls in the body name what is there: an operation, or what was defined before. */
static bool check_callee(struct reader *r, const struct custom *c, const struct token *name)
{
    static const char *const other[] = {"if", "floordiv", "floormod"};
    bool quoted = name->kind == TOKEN_STRING;
    if (!strcmp(name->text, c->name))
        return read_error(r, name, "a definition cannot call itself");
    for (size_t i = 0; i < sizeof other / sizeof *other && !quoted; i++)
        if (!strcmp(name->text, other[i]))
            return true;
    if (tg_library_find(r->library, name->text) || (!quoted && call_is_known(name->text)))
        return true;
    return custom_unknown(r, name);
}

/* `name` is the token before the reader's next one. If a call begins there, checks what it
 * calls. */
static bool check_value(struct reader *r, const struct custom *c, const struct token *name)
{
    bool call = r->token.kind == TOKEN_PUNCT && r->token.punct == '(';
    if (name->kind != TOKEN_NAME)
        return true;
    if (!strcmp(name->text, "custom") && r->token.kind == TOKEN_STRING)
        return check_callee(r, c, &r->token);
    return !call || check_callee(r, c, name);
}

/* Passes over the body, to its brace. */
static bool read_body(struct reader *r, struct custom *c)
{
    struct token open = r->token, before = open;
    if (!expect(r, '{', "before the definition's statements"))
        return false;
    c->body = lex_mark(r);
    bool ok = true, weight = false;      /* of which the values are no call */
    for (int depth = 1; r->token.kind != TOKEN_END;) {
        struct token tok = r->token;
        char p = tok.kind == TOKEN_PUNCT ? tok.punct : 0;
        bool is_value = before.kind == TOKEN_PUNCT && before.punct == '=';
        depth += (p == '{') - (p == '}');
        before = tok;
        lex_next(r);
        if (depth == 0) {
            c->end = tok.start + 1;
            return ok;
        }
        ok &= tok.kind != TOKEN_BAD && (!is_value || weight || check_value(r, c, &tok));
        bool is_weight = !strcmp(tok.text, "weight") || !strcmp(tok.text, "param");
        weight = (weight && !is_value) || (tok.kind == TOKEN_NAME && is_weight);
    }
    return ok && read_error(r, &open, "no '}' ends the definition");
}

/* ---- C functions */

static char punct_of(const struct token *tok)
{
    return tok->kind == TOKEN_PUNCT ? tok->punct : 0;
}

/* Whether no blank stands between b and c; a stands before them. */
static bool is_joined(const struct token *a, const struct token *b, const struct token *c)
{
    char before = punct_of(a), left = punct_of(b), right = punct_of(c);
    bool named = b->kind == TOKEN_NAME || b->kind == TOKEN_STRING;
    bool minus = left == '-' && before && strchr("([,=*", before);
    return (right && strchr(",)]?", right)) || (named && (right == '(' || right == '[')) ||
           left == '(' || left == '[' || (left == '-' && right == '>') || minus;
}

/* The tokens up to `end`, spaced as the format is. */
static const char *declaration_text(struct reader *r, const struct lex_mark *begin, const char *end)
{
    struct text out = {.t = r->t};
    struct lex_mark here = lex_mark(r);
    struct token a = {0}, b = {0};
    for (lex_return(r, begin); r->token.start < end && r->token.kind != TOKEN_END; lex_next(r)) {
        if (out.n && !is_joined(&a, &b, &r->token))
            text_putc(&out, ' ');
        text_write(&out, r->token.start, r->token.nbytes);
        a = b;
        b = r->token;
    }
    lex_return(r, &here);
    return out.s;
}

static bool check_function(struct reader *r, const struct custom *c)
{
    for (int i = 0; i < c->npart; i++) {
        const struct custom_part *p = &c->part[i];
        if (custom_is_attribute(p))
            continue;
        if (!p->is_typed || p->is_any)
            return read_error(r, &p->at, "%s needs a dtype and sizes: the C function has one "
                                         "signature", token_describe(r, &p->at));
        if (p->kind == EXTERNAL_RESULT && p->dtype == DTYPE_STRING)
            return read_error(r, &p->at, "a C function cannot make strings");
    }
    return true;
}

static void describe_function(struct reader *r, struct custom *c)
{
    struct external *e = MEM_NEW(r->t, struct external);
    struct external_argument *a = mem_array(r->t, (size_t)c->npart + 1, sizeof *a);
    *e = (struct external){c->name, c->symbol, c->declaration, a, c->npart + c->has_scratch};
    for (int i = 0; i < c->npart; i++)
        a[i] = (struct external_argument){c->part[i].kind, c->part[i].name, c->part[i].dtype,
                                          c->part[i].ndim};
    a[c->npart] = (struct external_argument){EXTERNAL_SCRATCH, "scratch", DTYPE_U8, 1};
    if (c->gradient)
        e->gradient = custom_gradient(r->t, r->library, c);
    c->external = e;
}

static int count_parts(const struct custom *c, enum external_kind kind, bool floats)
{
    int n = 0;
    for (int i = 0; i < c->npart; i++)
        n += c->part[i].kind == kind && (!floats || dtype_is_float(c->part[i].dtype));
    return n;
}

/* The operator before it that is given its operands and a gradient for each result of floats, and
 * makes one for each operand of floats. */
static bool read_gradient(struct reader *r, struct custom *c)
{
    struct token at = r->token;
    struct custom name = {0};
    if (!read_name(r, &name))
        return false;
    c->gradient = tg_library_find(r->library, name.name);
    if (!c->gradient)
        return read_error(r, &at, "the gradient of '%s' is '%s', and no operator of that name "
                                  "stands before it", c->name, name.name);
    const struct custom *by = c->gradient;
    int in = count_parts(c, EXTERNAL_OPERAND, false) + count_parts(c, EXTERNAL_RESULT, true);
    int out = count_parts(c, EXTERNAL_OPERAND, true);
    if (count_parts(by, EXTERNAL_OPERAND, false) != in ||
        count_parts(by, EXTERNAL_RESULT, false) != out)
        return read_error(r, &at, "'%s' has %d operands and %d results; the gradient of '%s' takes "
                                  "its operands, then a gradient for each result of floats, %d, "
                                  "and makes one for each operand of floats, %d",
                          by->name, count_parts(by, EXTERNAL_OPERAND, false),
                          count_parts(by, EXTERNAL_RESULT, false), c->name, in, out);
    for (int i = 0; i < by->npart; i++)
        if (custom_is_attribute(&by->part[i]) && !by->part[i].otherwise &&
            tg_custom_attribute(c, by->part[i].name) != by->part[i].kind)
            return read_error(r, &at, "'%s' needs the attribute '%s', which '%s' has not",
                              by->name, by->part[i].name, c->name);
    return true;
}

/* [ "scratch" "(" expr ")" ] [ "as" string ] [ "gradient" name ] */
static bool read_function(struct reader *r, struct custom *c, const struct lex_mark *begin)
{
    struct token at = c->at;
    c->symbol = operator_of(c->name);
    if (accept_word(r, "scratch")) {
        int depth = 1;
        c->has_scratch = true;
        if (!expect(r, '(', "before the scratch's bytes"))
            return false;
        c->scratch = lex_mark(r);
        for (; depth && r->token.kind != TOKEN_END && r->token.kind != TOKEN_BAD; lex_next(r))
            if (r->token.kind == TOKEN_PUNCT)
                depth += (r->token.punct == '(') - (r->token.punct == ')');
        if (depth)
            return r->token.kind != TOKEN_BAD &&
                   read_error(r, &r->token, "no ')' ends the scratch's bytes");
    }
    if (accept_word(r, "as")) {
        at = r->token;
        if (!read_text(r, &c->symbol, "the C function's name"))
            return false;
    }
    if (!is_identifier(c->symbol))
        return read_error(r, &at, "'%.100s' is no name of a C function; say one: as \"foo\"",
                          c->symbol);
    c->declaration = declaration_text(r, begin, r->token.start);
    if (!check_function(r, c) || (accept_word(r, "gradient") && !read_gradient(r, c)))
        return false;
    describe_function(r, c);
    return true;
}

bool read_custom(struct reader *r, bool is_extern)
{
    struct custom *c = MEM_NEW(r->t, struct custom);
    struct lex_mark begin = lex_mark(r);
    *c = (struct custom){.path = r->path, .end = r->end, .variable = r->variable};
    if (!read_name(r, c) || !read_parts(r, c, false) || !expect(r, '-', "of ->, and the results") ||
        !expect(r, '>', "of ->, and the results") || !read_parts(r, c, true))
        return false;
    if (is_extern ? !read_function(r, c, &begin) : !read_body(r, c))
        return false;
    return check_types(r, c) && add(r, c);
}

bool tg_library_read(struct tgc *t, struct tg_library *l, const char *path)
{
    size_t nbytes;
    const char *s = tg_load(t, path, &nbytes);
    struct reader *r = MEM_NEW(t, struct reader);
    int before = t->nerror;
    if (!s)
        return false;
    *r = (struct reader){
        .t = t, .path = path, .library = l, .is_library = true, .base_error = before};
    r->variable = gradient_names(t, s, nbytes);
    r->lib = (struct lib){t, &r->place};
    lex_start(r, s, nbytes);
    return read_version(r) && read_statements(r, NULL, NULL) && t->nerror == before;
}
