/* read.c - reads a .tg text graph: statements, names, regions.
 *
 *      file      = "tg" "1" { statement }                                 '#' begins a comment;
 *      line ends are blanks
 *      statement = "graph" string [ "producer" string ]
 *                | "dim" dimension                                        a symbol that no input's
 *                type declares: dim N<=8
 *                | "input" %x ":" type [ "as" string ]
 *                | "weight" %w ":" type [ "as" string ] "=" init          see weight.c
 *                | "output" operand [ "as" string ]
 *                | result { "," result } "=" value
 *      result    = ( %x | "_" ) [ ":" type ]                              the type is checked; a
 *      host call needs it
 *      value     = name "(" operands ")" [ "{" attributes "}" ] tail      an op of ir/ops.def or a
 *      function, see functions_*.c
 *                | "host" string "(" operands ")" "{" params=[..], vars=[..] "}" tail
 *                | "if" "(" operand ")" "then" branch "else" branch tail
 *                | "loop" %i "<" operand [ "while" operand ] [ "carry" "(" %p "=" operand { "," ...
 *                } ")" ] [ "stack" expr ] body tail
 *      branch    = "(" operands ")" | "{" { statement } "yield" "(" operands ")" "}"
 *      body      = "{" { statement } "next" "(" operands ")" [ "while" operand ] [ "scan" "("
 *      operands ")" ] "}"
 *      tail      = { "axes" "(" string ")" | "loc" "(" string [ "," string [ "," integer ] ] ")" }
 *      operand   = %x | dtype "(" number ")" | number | expr | "_"        a bare number takes the
 *      dtype of what it stands beside
 *
 * What is defined in a region is not seen outside it. After an error reading goes on at the next
 * line that begins a statement, so that several mistakes are reported at once; a name whose
 * definition failed is known, and its uses are silent.
 */
#include "frontend/text/reader.h"

#include <errno.h>
#include <string.h>

struct name_slot { const char *name; struct uop *value; int region; };
struct origin_slot { const char *node, *op; int index, number; };

/* ---- names */

static struct name_slot *find_slot(struct reader *r, const char *name)
{
    uint32_t h = 2166136261u;
    for (const char *s = name; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    size_t i = h & (r->name_size - 1);
    while (r->name[i].name && strcmp(r->name[i].name, name) != 0)
        i = (i + 1) & (r->name_size - 1);
    return &r->name[i];
}

static void grow_names(struct reader *r)
{
    struct name_slot *old = r->name;
    size_t n = r->name_size;
    r->name_size = n ? 2 * n : 256;
    r->name = mem_array(r->t, r->name_size, sizeof *r->name);
    for (size_t i = 0; i < n; i++)
        if (old[i].name)
            *find_slot(r, old[i].name) = old[i];
}

struct uop *read_lookup(struct reader *r, const char *name, bool *found)
{
    struct name_slot *s = r->name_size ? find_slot(r, name) : NULL;
    *found = s && s->name && s->region >= 0;
    return *found ? s->value : NULL;
}

/* value NULL: its definition failed. */
static bool define(struct reader *r, const struct token *name, struct uop *value)
{
    if (2 * (r->nname + 1) > r->name_size)
        grow_names(r);
    struct name_slot *s = find_slot(r, name->text);
    if (s->name && s->region >= 0)
        return read_error(r, name, "%s is defined already; every value has a name of its own",
                          token_describe(r, name));
    r->nname += s->name == NULL;
    *s = (struct name_slot){name->text, value, r->region};
    if (r->region)
        VEC_PUSH(r->t, r->local, r->nlocal, r->cap_local, name->text);
    return true;
}

/* What the region defined is forgotten; its names may be used again. */
static void leave_region(struct reader *r)
{
    while (r->nlocal) {
        struct name_slot *s = find_slot(r, r->local[r->nlocal - 1]);
        if (s->region != r->region)
            break;
        s->region = -1;
        r->nlocal--;
    }
    r->region--;
}

/* ---- operands */

static bool read_constant(struct reader *r, enum dtype d, struct operand *o)
{
    double f;
    int64_t i;
    bool minus = accept(r, '-');
    struct token at = r->token;
    if (at.kind == TOKEN_NAME && d == DTYPE_BOOL &&
        (!strcmp(at.text, "true") || !strcmp(at.text, "false"))) {
        o->value = uop_bool(r->t, at.text[0] == 't');
    } else if (dtype_is_float(d) && token_number(&at, &f)) {
        o->value = uop_constf(r->t, d, minus ? -f : f);
    } else if (dtype_is_int(d) && token_int(&at, &i)) {
        o->value = uop_consti(r->t, d, minus ? (int64_t)(0 - (uint64_t)i) : i);
        if (d == DTYPE_U64)
            o->value = uop_const(r->t, d, (union scalar){.i = i});
    } else {
        return at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected a constant of dtype %s",
                                token_describe(r, &at), dtype_name(d));
    }
    lex_next(r);
    return expect(r, ')', "after the constant");
}

/* A number, perhaps the beginning of an expression. */
static bool read_number(struct reader *r, struct operand *o)
{
    bool minus = accept(r, '-');
    struct token at = r->token;
    if (!token_number(&at, &o->f))
        return read_error(r, &at, "%s is no number", token_describe(r, &at));
    o->integral = token_int(&at, &o->i);
    lex_next(r);
    if (minus) {
        o->f = -o->f;
        o->i = (int64_t)(0 - (uint64_t)o->i);
    }
    bool more = r->token.kind == TOKEN_PUNCT && strchr("+-*", r->token.punct);
    if (more && o->integral)
        return read_expr_after(r, uop_int(r->t, o->i), &o->value);
    o->untyped = true;
    return true;
}

bool read_operand(struct reader *r, struct operand *o)
{
    struct token at = r->token;
    enum dtype d;
    *o = (struct operand){.at = at};
    switch (at.kind) {
    case TOKEN_REF: {
        bool found;
        o->value = read_lookup(r, at.text, &found);
        if (!found)
            return read_error(r, &at, "%s is not defined before this line", token_describe(r, &at));
        lex_next(r);
        if (r->token.kind == TOKEN_PUNCT && strchr("+-*", r->token.punct)) {
            if (o->value && (o->value->ndim || o->value->dtype != DTYPE_INDEX))
                return read_error(r, &at,
                                  "%s is %s; infix arithmetic is for i64 scalars, use add(), "
                                  "mul(), ... for tensors",
                                  token_describe(r, &at), lib_describe(&r->lib, o->value));
            return o->value && read_expr_after(r, o->value, &o->value);
        }
        return true;
    }
    case TOKEN_NAME:
        if (!strcmp(at.text, "_")) {
            lex_next(r);
            o->absent = true;
            return true;
        }
        if (dtype_parse(at.text, &d) && !read_symbol(r, &at)) {
            lex_next(r);
            return expect(r, '(', "and a constant, as in f32(0.5)") && read_constant(r, d, o);
        }
        if (!strcmp(at.text, "inf") || !strcmp(at.text, "nan"))
            return read_number(r, o);
        return read_expr(r, &o->value);
    case TOKEN_SYMBOL: return read_expr(r, &o->value);
    case TOKEN_NUMBER: return read_number(r, o);
    case TOKEN_PUNCT:
        if (at.punct == '-')
            return read_number(r, o);
        if (at.punct == '(')
            return read_expr(r, &o->value);
        break;
    default: break;
    }
    return at.kind == TOKEN_BAD
               ? false
               : read_error(r, &at,
                            "found %s, expected a value: %%x, f32(0.5), a number, a dimension or _",
                            token_describe(r, &at));
}

/* The value of an operand that must be there; a bare number becomes i64 or bool. */
static bool settle(struct reader *r, struct operand *o, enum dtype bare)
{
    if (o->absent)
        return read_error(r, &o->at, "a value is required here");
    if (o->untyped)
        o->value = dtype_is_float(bare) || !o->integral
                       ? uop_constf(r->t, dtype_is_float(bare) ? bare : DTYPE_F32, o->f)
                       : uop_consti(r->t, bare, o->i);
    return o->value != NULL;
}

static bool read_value(struct reader *r, struct uop **x)
{
    struct operand o;
    if (!read_operand(r, &o) || !settle(r, &o, DTYPE_I64))
        return false;
    *x = o.value;
    return true;
}

/* "(" values ")" */
static bool read_values(struct reader *r, struct uop ***v, int *n)
{
    size_t cap = 0;
    *v = NULL;
    *n = 0;
    if (!expect(r, '(', "before the values"))
        return false;
    if (accept(r, ')'))
        return true;
    do {
        struct uop *x;
        if (!read_value(r, &x))
            return false;
        VEC_PUSH(r->t, *v, *n, cap, x);
    } while (accept(r, ','));
    return expect(r, ')', "after the values");
}

/* ---- results and tails */

struct result { struct token at; bool typed; struct type type; };
struct tail { const char *axes, *node, *op; int64_t index; bool located; };

static bool read_results(struct reader *r, struct result **v, int *n)
{
    size_t cap = 0;
    *v = NULL;
    *n = 0;
    do {
        struct result one = {.at = r->token};
        bool skipped = r->token.kind == TOKEN_NAME && !strcmp(r->token.text, "_");
        if (r->token.kind != TOKEN_REF && !skipped)
            return r->token.kind == TOKEN_BAD
                       ? false
                       : read_error(r, &r->token, "found %s, expected a result: %%name or _",
                                    token_describe(r, &r->token));
        lex_next(r);
        if ((one.typed = accept(r, ':')) && !read_type(r, &one.type))
            return false;
        if (*n == MAX_RESULTS)
            return read_error(r, &one.at, "more than %d results", MAX_RESULTS);
        VEC_PUSH(r->t, *v, *n, cap, one);
    } while (accept(r, ','));
    return expect(r, '=', "after the results");
}

static bool read_text(struct reader *r, const char **s, const char *what)
{
    if (r->token.kind != TOKEN_STRING)
        return r->token.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &r->token, "found %s, expected %s in double quotes",
                                token_describe(r, &r->token), what);
    *s = r->token.text;
    lex_next(r);
    return true;
}

static bool read_tail(struct reader *r, struct tail *tail)
{
    *tail = (struct tail){.op = ""};
    for (;;) {
        if (accept_word(r, "axes")) {
            if (!expect(r, '(', "after axes") || !read_text(r, &tail->axes, "the axes' names") ||
                !expect(r, ')', "after the names"))
                return false;
        } else if (accept_word(r, "loc")) {
            tail->located = true;
            if (!expect(r, '(', "after loc") || !read_text(r, &tail->node, "a node's name") ||
                (accept(r, ',') && !read_text(r, &tail->op, "an operator")))
                return false;
            if (accept(r, ',')) {
                bool minus = accept(r, '-');
                if (!token_int(&r->token, &tail->index) || tail->index > INT32_MAX ||
                    tail->index < 0)
                    return read_error(r, &r->token, "found %s, expected the node's number",
                                      token_describe(r, &r->token));
                tail->index = minus ? -tail->index : tail->index;
                lex_next(r);
            }
            if (!expect(r, ')', "after the location"))
                return false;
        } else {
            return true;
        }
    }
}

/* Makes the location current: what the statement builds comes from there. name NULL: from nowhere,
 * unless it says so. */
static void enter_origin(struct reader *r, const struct tail *tail, const char *name,
                         const char *op)
{
    struct origin_slot o = {tail->located ? tail->node : name, tail->located ? tail->op : op,
                            tail->located ? (int)tail->index : r->place.line, 0};
    r->t->current_origin = 0;
    if (!o.node)
        return;
    struct origin_slot *last = r->norigin ? &r->origin[r->norigin - 1] : NULL;
    if (last && last->index == o.index && !strcmp(last->node, o.node) && !strcmp(last->op, o.op)) {
        r->t->current_origin = last->number;
        return;
    }
    o.number = origin_new(r->t, o.node, o.op, o.index);
    VEC_PUSH(r->t, r->origin, r->norigin, r->cap_origin, o);
}

static bool define_results(struct reader *r, const struct result *v, int n,
                           struct uop *const *value, const struct tail *tail)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        if (v[i].at.kind == TOKEN_NAME)
            continue;
        ok &= define(r, &v[i].at, value ? value[i] : NULL);
        if (value && value[i] && v[i].typed)
            ok &= type_matches(r, &v[i].type, value[i]);
    }
    if (value && n && value[0] && tail && tail->axes)
        uop_name_axes(r->t, value[0], tail->axes);
    return ok;
}

/* ---- values with a syntax of their own */

static bool read_statements(struct reader *r, const char *until, const char *or_until);

static bool result_count(struct reader *r, const struct result *v, int n, int have,
                         const char *what)
{
    return n <= have ? true
                     : read_error(r, &v[have].at, "%s has %d results, %d are named", what, have, n);
}

static bool read_host(struct reader *r, const struct result *v, int n)
{
    struct call c = {.r = r, .l = &r->lib, .name = "host", .at = r->token};
    struct uop *param[64], *var[64], *value[MAX_RESULTS], **in = mem_array(r->t, 1, sizeof *in);
    struct host_output *out = mem_array(r->t, (size_t)n, sizeof *out);
    struct var *result[64];
    struct tail tail;
    const char *function;
    if (!read_text(r, &function, "the function's name") || !read_arguments(r, &c) ||
        !read_tail(r, &tail))
        return false;
    in = mem_array(r->t, (size_t)c.narg + 1, sizeof *in);
    for (int i = 0; i < c.narg; i++) {
        if (!settle(r, &c.arg[i], DTYPE_I64))
            return false;
        in[i] = c.arg[i].value;
    }
    int nparam = attr_dims(&c, "params", param, 64), nresult = attr_dims(&c, "vars", var, 64);
    if (c.failed)
        return false;
    for (int i = 0; i < nresult; i++) {
        if (var[i]->op != OP_VAR)
            return read_error(
                r, &c.at,
                "a host call's vars must be dimensions, declared in the types of its results");
        result[i] = (struct var *)var[i]->arg.p;
    }
    for (int i = 0; i < n; i++) {
        if (!v[i].typed)
            return read_error(r, &v[i].at, "the results of a host call need a type");
        out[i] = (struct host_output){.dtype = v[i].type.dtype, .ndim = v[i].type.ndim};
        memcpy(out[i].dim, v[i].type.dim, sizeof out[i].dim);
    }
    enter_origin(r, &tail, NULL, "");
    struct uop *call = lib_host(&r->lib, function, in, c.narg, out, n, param,
                                nparam > 0 ? nparam : 0, result, nresult > 0 ? nresult : 0);
    for (int i = 0; i < n && call; i++)
        value[i] = v[i].at.kind == TOKEN_REF ? lib_get(&r->lib, call, i) : NULL;
    return call && define_results(r, v, n, value, &tail);
}

static bool read_branch(struct reader *r, struct uop ***v, int *n)
{
    if (!accept(r, '{'))
        return read_values(r, v, n);
    struct token at = r->token;
    if (++r->region > MAX_NESTING)
        return read_error(r, &at, "regions nested more than %d deep", MAX_NESTING);
    bool ok = read_statements(r, "yield", NULL), ended = accept_word(r, "yield");
    if (!ended && ok)
        read_error(r, &r->token, "found %s, expected 'yield' and the branch's values",
                   token_describe(r, &r->token));
    ended = ended && read_values(r, v, n) && expect(r, '}', "after the branch");
    leave_region(r);
    return ok && ended;
}

static bool read_if(struct reader *r, const struct result *v, int n)
{
    struct uop *cond, **then, **other, *value[MAX_RESULTS];
    struct token at = r->token;
    struct tail tail;
    int nthen, nother;
    if (!expect(r, '(', "before the condition") || !read_value(r, &cond) ||
        !expect(r, ')', "after the condition"))
        return false;
    if (!accept_word(r, "then"))
        return read_error(r, &r->token, "found %s, expected 'then'", token_describe(r, &r->token));
    if (!read_branch(r, &then, &nthen))
        return false;
    if (!accept_word(r, "else"))
        return read_error(r, &r->token, "found %s, expected 'else'", token_describe(r, &r->token));
    if (!read_branch(r, &other, &nother) || !read_tail(r, &tail))
        return false;
    if (nthen != nother)
        return read_error(r, &at, "one branch gives %d values, the other %d", nthen, nother);
    if (!result_count(r, v, n, nthen, "if"))
        return false;
    enter_origin(r, &tail, NULL, "");
    struct uop *node = lib_if(&r->lib, cond, then, other, nthen);
    for (int i = 0; i < n && node; i++)
        value[i] = v[i].at.kind == TOKEN_REF ? lib_get(&r->lib, node, i) : NULL;
    return node && define_results(r, v, n, value, &tail);
}

/* "carry" "(" %p "=" operand, ... ")" */
static bool read_carried(struct reader *r, struct token **name, struct uop ***init, int *n)
{
    size_t cap_name = 0, cap_init = 0;
    int ninit = 0;
    *n = 0;
    *name = NULL;
    *init = NULL;
    if (!accept_word(r, "carry"))
        return true;
    if (!expect(r, '(', "after carry"))
        return false;
    do {
        struct uop *x;
        struct token at = r->token;
        if (at.kind != TOKEN_REF)
            return read_error(r, &at,
                              "found %s, expected a name for the carried value, as in %%h = %%h0",
                              token_describe(r, &at));
        lex_next(r);
        if (!expect(r, '=', "and the first value") || !read_value(r, &x))
            return false;
        VEC_PUSH(r->t, *name, *n, cap_name, at);
        VEC_PUSH(r->t, *init, ninit, cap_init, x);
    } while (accept(r, ','));
    return expect(r, ')', "after the carried values");
}

static bool read_loop_body(struct reader *r, struct lib_loop *loop, struct uop ***next,
                           struct uop **cond, struct uop ***scan, int *nscan)
{
    int nnext;
    bool ok = read_statements(r, "next", NULL);
    struct token at = r->token;
    if (!accept_word(r, "next"))
        return ok && read_error(r, &at, "found %s, expected 'next' and the carried values",
                                token_describe(r, &at));
    if (!read_values(r, next, &nnext) || !ok)
        return false;
    if (nnext != loop->loop->ncarried)
        return read_error(r, &at, "the loop carries %d values, next gives %d", loop->loop->ncarried,
                          nnext);
    if (accept_word(r, "while") && !read_value(r, cond))
        return false;
    if (accept_word(r, "scan") && !read_values(r, scan, nscan))
        return false;
    return expect(r, '}', "after the loop's body");
}

static bool read_loop(struct reader *r, const struct result *v, int n)
{
    struct token counter = r->token, *name;
    struct uop *trip, *cond = NULL, **init, *length = NULL, **next = NULL, **scan = NULL,
                      *cond_next = NULL, *value[MAX_RESULTS];
    int ncarried, nscan = 0;
    struct tail tail;
    if (counter.kind != TOKEN_REF)
        return read_error(r, &counter, "found %s, expected the loop's counter, as in %%i < 10",
                          token_describe(r, &counter));
    lex_next(r);
    if (!expect(r, '<', "and the trip count") || !read_value(r, &trip) ||
        (accept_word(r, "while") && !read_value(r, &cond)) ||
        !read_carried(r, &name, &init, &ncarried) ||
        (accept_word(r, "stack") && !read_expr(r, &length)) ||
        !expect(r, '{', "before the loop's body"))
        return false;
    struct lib_loop *loop = lib_loop_begin(&r->lib, trip, cond, init, ncarried);
    if (!loop)
        return false;
    if (++r->region > MAX_NESTING)
        return read_error(r, &counter, "regions nested more than %d deep", MAX_NESTING);
    bool ok = define(r, &counter, loop->counter);
    for (int k = 0; k < ncarried; k++)
        ok &= define(r, &name[k], loop->param[k]);
    ok = ok && read_loop_body(r, loop, &next, &cond_next, &scan, &nscan);
    leave_region(r);
    r->place = lex_place(r, &counter);
    if (!ok || !read_tail(r, &tail) || !result_count(r, v, n, ncarried + nscan, "the loop"))
        return false;
    enter_origin(r, &tail, NULL, "");
    struct uop *node = lib_loop_end(&r->lib, loop, cond_next, next, scan, nscan, length);
    for (int i = 0; i < n && node; i++)
        value[i] = v[i].at.kind == TOKEN_REF ? lib_get(&r->lib, node, i) : NULL;
    return node && define_results(r, v, n, value, &tail);
}

static bool read_function_call(struct reader *r, const struct result *v, int n,
                               const struct token *name)
{
    struct uop *value[MAX_RESULTS] = {NULL};
    struct call c = {
        .r = r, .l = &r->lib, .name = name->text, .at = *name, .result = value, .nwanted = n};
    struct tail tail;
    enum op op;
    if (!read_arguments(r, &c) || !read_tail(r, &tail))
        return false;
    bool primitive = op_parse(name->text, &op);
    const char *ssa = primitive ? NULL : v[0].at.kind == TOKEN_REF ? v[0].at.text : "";
    enter_origin(r, &tail, ssa, name->text);
    if (!read_call(r, &c))
        return false;
    return result_count(r, v, n, c.nresult, name->text) && define_results(r, v, n, value, &tail);
}

static bool read_definition(struct reader *r)
{
    struct result *v;
    int n;
    if (!read_results(r, &v, &n))
        return false;
    struct token name = r->token;
    r->place = lex_place(r, &name);
    r->t->current_origin = 0;
    bool ok;
    if (accept_word(r, "host"))
        ok = read_host(r, v, n);
    else if (accept_word(r, "if"))
        ok = read_if(r, v, n);
    else if (accept_word(r, "loop"))
        ok = read_loop(r, v, n);
    else if (name.kind == TOKEN_NAME) {
        lex_next(r);
        ok = read_function_call(r, v, n, &name);
    } else {
        ok = name.kind == TOKEN_BAD
                 ? false
                 : read_error(r, &name, "found %s, expected an operation, as in relu(%%x)",
                              token_describe(r, &name));
    }
    r->t->current_origin = 0;
    /* uses of what was to be defined stay silent */
    if (!ok)
        for (int i = 0; i < n; i++) {
            bool found;
            read_lookup(r, v[i].at.text, &found);
            if (v[i].at.kind == TOKEN_REF && !found)
                define(r, &v[i].at, NULL);
        }
    return ok;
}

/* ---- other statements */

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

static bool read_input(struct reader *r)
{
    struct token at;
    struct type type;
    const char *name;
    if (!read_named_type(r, "input", &at, &type, &name))
        return at.kind == TOKEN_REF && define(r, &at, NULL) && false;
    if (r->region)
        return read_error(r, &at, "an input inside a region");
    struct buffer *b = buffer_new(r->t, BUFFER_INPUT, type.dtype, type.dim, type.ndim, name);
    struct uop *x = uop_buffer(r->t, b);
    VEC_PUSH(r->t, r->input, r->ninput, r->cap_input, x);
    return define(r, &at, x);
}

static bool read_weight_statement(struct reader *r)
{
    struct token at;
    struct type type;
    const char *name;
    struct uop *w = NULL;
    if (!read_named_type(r, "weight", &at, &type, &name))
        return at.kind == TOKEN_REF && define(r, &at, NULL) && false;
    bool ok = expect(r, '=', "and the values") && read_weight(r, &type, name, &w);
    return define(r, &at, w) && ok;
}

static bool read_output(struct reader *r)
{
    struct operand o;
    if (!read_operand(r, &o) || !settle(r, &o, DTYPE_I64))
        return false;
    const char *name = o.at.kind == TOKEN_REF ? o.at.text
                                              : mem_printf(r->t, "output%d", r->noutput);
    if (accept_word(r, "as") && !read_text(r, &name, "a name"))
        return false;
    if (r->region)
        return read_error(r, &o.at, "an output inside a region");
    for (int i = 0; i < r->noutput; i++)
        if (!strcmp(r->output[i].name, name))
            return read_error(r, &o.at, "there is an output '%.100s' already", name);
    VEC_PUSH(r->t, r->output, r->noutput, r->cap_output, ((struct graph_output){name, o.value}));
    return true;
}

static bool read_statement(struct reader *r)
{
    struct token at = r->token;
    r->place = lex_place(r, &at);
    if (at.kind == TOKEN_REF || (at.kind == TOKEN_NAME && !strcmp(at.text, "_")))
        return read_definition(r);
    if (accept_word(r, "input"))
        return read_input(r);
    if (accept_word(r, "weight"))
        return read_weight_statement(r);
    if (accept_word(r, "output"))
        return read_output(r);
    if (accept_word(r, "dim"))
        return read_dimension_decl(r);
    if (accept_word(r, "graph"))
        return read_text(r, &r->graph_name, "the graph's name") &&
               (!accept_word(r, "producer") || read_text(r, &r->producer, "the producer"));
    return at.kind == TOKEN_BAD ? false
                                : read_error(r, &at,
                                             "found %s, expected input, weight, output, dim, "
                                             "graph, or a result: %%name = ...",
                                             token_describe(r, &at));
}

static bool begins_statement(const struct reader *r)
{
    static const char *const words[] = {"input", "weight", "output", "dim",
                                        "graph", "_",      "next",   "yield"};
    int n = (int)(sizeof words / sizeof *words) - (r->region ? 0 : 2);
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
        if (first && r->token.line > line && begins_statement(r))
            return;
        lex_next(r);
    }
}

static bool at_word(const struct reader *r, const char *word)
{
    return word && r->token.kind == TOKEN_NAME && !strcmp(r->token.text, word);
}

/* Up to one of the words (regions), or to the end; past errors. */
static bool read_statements(struct reader *r, const char *until, const char *or_until)
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
                        .ninput = r->ninput,
                        .input = r->input,
                        .noutput = r->noutput,
                        .output = r->output};
    g->var = mem_array(r->t, (size_t)r->nsymbol + 1, sizeof *g->var);
    for (int i = 0; i < r->nsymbol; i++)
        if (r->symbol[i].value->op == OP_VAR)
            g->var[g->nvar++] = (struct var *)r->symbol[i].value->arg.p;
    return g;
}

struct graph *tg_read_bytes(struct tgc *t, const char *path, const void *bytes, size_t nbytes,
                            const struct tg_read_options *options)
{
    struct reader *r = MEM_NEW(t, struct reader);
    *r = (struct reader){.t = t, .path = path};
    if (options)
        r->options = *options;
    r->lib = (struct lib){t, &r->place};
    grow_names(r);
    int before = r->base_error = t->nerror;
    lex_start(r, bytes, nbytes);
    struct token at = r->token;
    int64_t version;
    if (!accept_word(r, "tg")) {
        read_error(r, &at, "found %s, expected 'tg 1': this is no .tg graph",
                   token_describe(r, &at));
        return NULL;
    }
    if (!token_int(&r->token, &version) || version != 1) {
        read_error(r, &r->token,
                   "found %s, expected 1: the only version of the format that this tgc reads",
                   token_describe(r, &r->token));
        return NULL;
    }
    lex_next(r);
    read_statements(r, NULL, NULL);
    check_dimensions(r);
    if (t->nerror == before && r->noutput == 0)
        read_error(r, &r->token, "the graph has no output; add a line such as: output %%y");
    return t->nerror == before ? finish(r) : NULL;
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
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) {
        diag_error(t, &(struct place){.file = path}, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    char *s = slurp(t, standard ? "<stdin>" : path, f, nbytes);
    if (!standard)
        fclose(f);
    return s;
}

struct graph *tg_read(struct tgc *t, const char *path, const struct tg_read_options *options)
{
    size_t nbytes;
    const char *s = tg_load(t, path, &nbytes);
    return s ? tg_read_bytes(t, strcmp(path, "-") ? path : "<stdin>", s, nbytes, options) : NULL;
}
