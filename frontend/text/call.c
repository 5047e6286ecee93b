/* call.c - calls of functions: their arguments and attributes, and the checks that all functions
 * share.
 *
 * A function asks for its attributes by name; attributes that are not in its signature are reported
 * as unknown, with the list of those that are.
 */
#include "frontend/text/reader.h"

#include <string.h>

enum { MAX_ATTRS = 64 };

/* ---- reading */

static bool read_attr_list(struct reader *r, struct attr_value *v)
{
    size_t cap = 0;
    v->kind = ATTR_LIST;
    if (accept(r, ']'))
        return true;
    do {
        struct attr_value one;
        if (!read_attr_value(r, &one))
            return false;
        VEC_PUSH(r->t, v->item, v->nitem, cap, one);
    } while (accept(r, ','));
    return expect(r, ']', "after the list");
}

static bool at_operator(const struct reader *r)
{
    return r->token.kind == TOKEN_PUNCT && strchr("+-*", r->token.punct);
}

bool read_attr_value(struct reader *r, struct attr_value *v)
{
    struct token at = r->token;
    *v = (struct attr_value){.at = at};
    double f;
    if (at.kind == TOKEN_STRING) {
        v->kind = ATTR_STRING;
        lex_next(r);
        return true;
    }
    if (accept(r, '[')) {
        if (r->nesting == MAX_NESTING)
            return read_error(r, &at, "lists nested more than %d deep", MAX_NESTING);
        r->nesting++;
        bool ok = read_attr_list(r, v);
        r->nesting--;
        return ok;
    }
    /* a word, or the beginning of an expression */
    if (at.kind == TOKEN_NAME && read_bound(r, &at, v)) {
        struct lex_mark save = lex_mark(r);
        lex_next(r);
        if (!at_operator(r))
            return true;
        lex_return(r, &save);
    } else if (at.kind == TOKEN_NAME) {
        struct uop *s = read_symbol(r, &at);
        bool word = !s || !strcmp(at.text, "true") || !strcmp(at.text, "false");
        bool call = !strcmp(at.text, "min") || !strcmp(at.text, "max") ||
                    !strcmp(at.text, "floordiv") || !strcmp(at.text, "floormod");
        const char *after = at.start + at.nbytes;
        if (word && !(call && after < r->end && *after == '(')) {
            v->kind = ATTR_NAME;
            lex_next(r);
            return true;
        }
    } else if (at.kind == TOKEN_NUMBER || (at.kind == TOKEN_PUNCT && at.punct == '-')) {
        /* one token more than the lexer looks ahead */
        struct lex_mark save = lex_mark(r);
        bool minus = accept(r, '-');
        bool number = token_number(&r->token, &f);
        v->at = r->token;
        lex_next(r);
        if (number && !at_operator(r)) {
            v->kind = ATTR_NUMBER;
            v->at.text = minus ? mem_printf(r->t, "-%s", v->at.text) : v->at.text;
            v->at.kind = TOKEN_NUMBER;
            return true;
        }
        lex_return(r, &save);
    }
    v->kind = ATTR_EXPR;
    return read_expr(r, &v->expr);
}

static bool read_attrs(struct reader *r, struct call *c)
{
    size_t cap = 0;
    if (accept(r, '}'))
        return true;
    do {
        struct attr a = {.name = r->token.text, .at = r->token};
        if (r->token.kind != TOKEN_NAME)
            return r->token.kind == TOKEN_BAD
                       ? false
                       : read_error(r, &r->token, "found %s, expected an attribute's name",
                                    token_describe(r, &r->token));
        for (int i = 0; i < c->nattr; i++)
            if (!strcmp(c->attr[i].name, a.name))
                return read_error(r, &a.at, "attribute '%.60s' is given twice", a.name);
        lex_next(r);
        if (!expect(r, '=', "after the attribute's name") || !read_attr_value(r, &a.value))
            return false;
        if (c->nattr == MAX_ATTRS)
            return read_error(r, &a.at, "more than %d attributes", MAX_ATTRS);
        VEC_PUSH(r->t, c->attr, c->nattr, cap, a);
    } while (accept(r, ','));
    return expect(r, '}', "after the attributes");
}

bool read_arguments(struct reader *r, struct call *c)
{
    size_t cap = 0;
    if (!expect(r, '(', "before the operands"))
        return false;
    if (!accept(r, ')')) {
        do {
            struct operand o;
            if (!read_operand(r, &o))
                return false;
            VEC_PUSH(r->t, c->arg, c->narg, cap, o);
        } while (accept(r, ','));
        if (!expect(r, ')', "after the operands"))
            return false;
    }
    return !accept(r, '{') || read_attrs(r, c);
}

/* ---- signatures */

static const struct function *function_at(int i)
{
    const struct function *const table[] = {primitive_functions, nn_functions, shape_functions};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        for (const struct function *f = table[k]; f->name; f++)
            if (i-- == 0)
                return f;
    return NULL;
}

const char *tg_function_at(int i, const char **operands, const char **attributes)
{
    const struct function *f = function_at(i);
    if (!f)
        return NULL;
    *operands = f->operands;
    *attributes = f->attributes;
    return f->name;
}

/* How many operands: *max -1: any number. */
static void count_operands(const struct function *f, int *min, int *max)
{
    *min = *max = 0;
    for (const char *s = f->operands; *s;) {
        size_t n = strcspn(s, ",");
        if (s[n - 1] == '.') {
            *max = -1;
            return;
        }
        *min += s[n - 1] != '?';
        ++*max;
        s += n + strspn(s + n, ", ");
    }
}

static bool has_attribute(const struct function *f, const char *name)
{
    size_t length = strlen(name);
    for (const char *s = f->attributes; *s;) {
        size_t n = strcspn(s, ","), word = strcspn(s, "=?,");
        if (word == length && !strncmp(s, name, length))
            return true;
        s += n + strspn(s + n, ", ");
    }
    return false;
}

/* ---- running */

static const struct function *find_function(const char *name)
{
    const struct function *f;
    for (int i = 0; (f = function_at(i)); i++)
        if (!strcmp(f->name, name))
            return f;
    return NULL;
}

static const char *nearest_function(struct reader *r, const char *name)
{
    struct nearest near = nearest_to(name);
    const struct function *f;
    for (int i = 0; (f = function_at(i)); i++)
        nearest_offer(&near, f->name);
    for (const struct tg_library *l = r->library; l; l = l->parent)
        for (int i = 0; i < l->n; i++)
            nearest_offer(&near, l->v[i]->name);
    return near.best ? mem_printf(r->t, "; did you mean '%s'?", near.best) : "";
}

static bool check_attrs(struct call *c)
{
    for (int i = 0; i < c->nattr; i++) {
        const struct attr *a = &c->attr[i];
        if (a->used)
            continue;
        if (has_attribute(c->function, a->name))
            return read_error(c->r, &a->at, "%s has no use for '%.60s' here", c->name, a->name);
        return read_error(c->r, &a->at, "%s has no attribute '%.60s'%s%s", c->name, a->name,
                          *c->function->attributes ? "; it has " : "", c->function->attributes);
    }
    return true;
}

bool call_is_known(const char *name) { return find_function(name) != NULL; }

bool custom_unknown(struct reader *r, const struct token *name)
{
    if (name->kind == TOKEN_STRING)
        return read_error(r, name,
                          "no operator '%.100s' is defined here; give the file that defines it: "
                          "--library FILE.tg%s",
                          name->text, nearest_function(r, name->text));
    return read_error(r, name, "there is no operation '%.60s'%s", name->text,
                      nearest_function(r, name->text));
}

/* false: the definition of one failed, and was reported. */
static bool operands_are_defined(const struct call *c)
{
    for (int i = 0; i < c->narg; i++)
        if (!c->arg[i].value && !c->arg[i].absent && !c->arg[i].untyped)
            return false;
    return true;
}

bool read_call(struct reader *r, struct call *c)
{
    bool quoted = c->at.kind == TOKEN_STRING;
    const struct function *f = quoted ? NULL : find_function(c->name);
    const struct custom *custom = f ? NULL : tg_library_find(r->library, c->name);
    const struct import *import = f || quoted ? NULL : import_find(r, c->name);
    int min, max;
    if (import)
        return operands_are_defined(c) && import_run(c, import);
    if (custom)
        return operands_are_defined(c) && custom_run(c, custom);
    if (!f)
        return custom_unknown(r, &c->at);
    c->function = f;
    count_operands(f, &min, &max);
    if (c->narg < min || (max >= 0 && c->narg > max)) {
        const char *most = max < 0     ? " or more"
                           : max > min ? mem_printf(r->t, " to %d", max)
                                       : "";
        return read_error(r, &c->at, "%s takes %d%s operands (%s), found %d", c->name, min, most,
                          f->operands, c->narg);
    }
    if (!operands_are_defined(c))
        return false;
    f->run(c);
    return !c->failed && check_attrs(c) && c->nresult > 0;
}

void call_result(struct call *c, struct uop *x)
{
    if (!x)
        c->failed = true;
    else if (c->nresult < c->nwanted)
        c->result[c->nresult++] = x;
    else
        c->nresult++;                                 /* a result without a name */
}

void call_fail(struct call *c, const char *format, ...)
{
    char message[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    c->failed = true;
    read_error(c->r, &c->at, "%s: %s", c->name, message);
}

/* ---- arguments */

static struct uop *typed_constant(struct call *c, const struct operand *o, enum dtype d)
{
    if (dtype_is_float(d))
        return uop_constf(c->r->t, d, o->f);
    if (o->integral && int_fits(d, o->i))
        return uop_consti(c->r->t, d, o->i);
    c->failed = true;
    read_error(c->r, &o->at, "%s is no constant of dtype %s", token_describe(c->r, &o->at),
               dtype_name(d));
    return NULL;
}

struct uop *call_arg(struct call *c, int k)
{
    if (k >= c->narg || c->arg[k].absent)
        return NULL;
    struct operand *o = &c->arg[k];
    if (o->untyped) {
        o->value = typed_constant(c, o, o->integral ? DTYPE_I64 : DTYPE_F32);
        o->untyped = false;
    }
    return o->value;
}

struct uop *call_arg_like(struct call *c, int k, const struct uop *like)
{
    if (k < c->narg && c->arg[k].untyped && like)
        return typed_constant(c, &c->arg[k], like->dtype);
    return call_arg(c, k);
}

/* ---- attributes */

static struct attr_value *find_attr(struct call *c, const char *name)
{
    if (c->function && !has_attribute(c->function, name))
        TGC_BUG(c->r->t, "%s asks for '%s', which its signature has not", c->name, name);
    for (int i = 0; i < c->nattr; i++)
        if (!strcmp(c->attr[i].name, name)) {
            c->attr[i].used = true;
            return &c->attr[i].value;
        }
    return NULL;
}

static void attr_error(struct call *c, const char *name, const struct attr_value *v,
                       const char *expected)
{
    c->failed = true;
    read_error(c->r, &v->at, "attribute '%s' is %s; expected %s", name,
               v->kind == ATTR_LIST ? "a list" : token_describe(c->r, &v->at), expected);
}

bool attr_given(struct call *c, const char *name)
{
    for (int i = 0; i < c->nattr; i++)
        if (!strcmp(c->attr[i].name, name))
            return true;
    return false;
}

bool attr_required(struct call *c, const char *name)
{
    if (attr_given(c, name))
        return true;
    c->failed = true;
    return read_error(c->r, &c->at, "%s needs the attribute '%s'", c->name, name);
}

bool attr_value_int(const struct attr_value *v, int64_t *i)
{
    if (v->kind == ATTR_EXPR)
        return uop_const_int(v->expr, i);
    if (v->kind != ATTR_NUMBER)
        return false;
    struct token positive = v->at;
    bool minus = positive.text[0] == '-';
    positive.text += minus;
    if (!token_int(&positive, i))
        return false;
    *i = minus ? (int64_t)(0 - (uint64_t)*i) : *i;
    return true;
}

int64_t attr_int(struct call *c, const char *name, int64_t otherwise)
{
    struct attr_value *v = find_attr(c, name);
    int64_t i = otherwise;
    if (v && !attr_value_int(v, &i))
        attr_error(c, name, v, "an integer");
    return i;
}

bool attr_value_float(const struct attr_value *v, double *f)
{
    struct token positive = v->at;
    bool minus = v->kind == ATTR_NUMBER && positive.text[0] == '-';
    positive.text += minus;
    if ((v->kind != ATTR_NUMBER && v->kind != ATTR_NAME) || !token_number(&positive, f))
        return false;
    *f = minus ? -*f : *f;
    return true;
}

double attr_float(struct call *c, const char *name, double otherwise)
{
    struct attr_value *v = find_attr(c, name);
    double f = otherwise;
    if (v && !attr_value_float(v, &f))
        attr_error(c, name, v, "a number");
    return f;
}

struct uop *attr_constant(struct call *c, const char *name, enum dtype d, double otherwise)
{
    struct attr_value *v = find_attr(c, name);
    double f = otherwise;
    int64_t i;
    struct token positive = {0};
    if (v && v->kind == ATTR_NUMBER) {
        positive = v->at;
        positive.text += positive.text[0] == '-';
    }
    if (!v || (dtype_is_float(d) && v->kind == ATTR_NUMBER && token_number(&positive, &f)))
        return uop_constf(c->r->t, d, v && v->at.text[0] == '-' ? -f : f);
    if (!dtype_is_float(d) && attr_value_int(v, &i) && int_fits(d, i))
        return uop_consti(c->r->t, d, i);
    attr_error(c, name, v, mem_printf(c->r->t, "a number of dtype %s", dtype_name(d)));
    return NULL;
}

bool attr_is_integral(struct call *c, const char *name)
{
    int64_t i;
    for (int k = 0; k < c->nattr; k++)
        if (!strcmp(c->attr[k].name, name))
            return attr_value_int(&c->attr[k].value, &i);
    return true;
}

bool attr_bool(struct call *c, const char *name, bool otherwise)
{
    struct attr_value *v = find_attr(c, name);
    if (!v)
        return otherwise;
    bool yes = v->kind == ATTR_NAME && !strcmp(v->at.text, "true");
    if (!yes && !(v->kind == ATTR_NAME && !strcmp(v->at.text, "false")))
        attr_error(c, name, v, "true or false");
    return yes;
}

uint64_t attr_seed(struct call *c, const char *name) { return (uint64_t)attr_int(c, name, 0); }

const char *attr_string(struct call *c, const char *name, const char *otherwise)
{
    struct attr_value *v = find_attr(c, name);
    if (v && v->kind != ATTR_STRING)
        attr_error(c, name, v, "a string in double quotes");
    return v && v->kind == ATTR_STRING ? v->at.text : otherwise;
}

enum dtype attr_dtype(struct call *c, const char *name, enum dtype otherwise)
{
    struct attr_value *v = find_attr(c, name);
    enum dtype d = otherwise;
    if (v && (v->kind != ATTR_NAME || !dtype_parse(v->at.text, &d) || d == DTYPE_VOID))
        attr_error(c, name, v, "a dtype such as f32");
    return d;
}

int attr_choice(struct call *c, const char *name, const char *const *choice, int otherwise)
{
    struct attr_value *v = find_attr(c, name);
    struct text list = {.t = c->r->t};
    if (!v)
        return otherwise;
    for (int i = 0; choice[i]; i++) {
        if (v->kind == ATTR_NAME && !strcmp(v->at.text, choice[i]))
            return i;
        text_printf(&list, "%s%s", i ? ", " : "one of ", choice[i]);
    }
    attr_error(c, name, v, list.s);
    return otherwise;
}

static struct uop *dim_value(struct call *c, const char *name, struct attr_value *v)
{
    int64_t i;
    if (v->kind == ATTR_EXPR)
        return v->expr;
    if (attr_value_int(v, &i))
        return uop_int(c->r->t, i);
    attr_error(c, name, v, "an integer or a dimension");
    return NULL;
}

struct uop *attr_dim(struct call *c, const char *name)
{
    struct attr_value *v = find_attr(c, name);
    return v ? dim_value(c, name, v) : NULL;
}

struct uop *attr_size(struct call *c, const char *name)
{
    struct uop *dim = attr_dim(c, name);
    if (dim && dim->vmax < 0)
        call_fail(c, "'%s' is negative; a size is expected", name);
    return dim;
}

int attr_dims(struct call *c, const char *name, struct uop **out, int max)
{
    struct attr_value *v = find_attr(c, name);
    if (!v)
        return -1;
    struct attr_value *item = v->kind == ATTR_LIST ? v->item : v;
    int n = v->kind == ATTR_LIST ? v->nitem : 1;
    if (n > max) {
        attr_error(c, name, v, mem_printf(c->r->t, "at most %d entries", max));
        return 0;
    }
    for (int i = 0; i < n; i++)
        if (!(out[i] = dim_value(c, name, &item[i])))
            return 0;
    return n;
}

int attr_ints(struct call *c, const char *name, int64_t *out, int max)
{
    struct attr_value *v = find_attr(c, name);
    if (!v)
        return -1;
    struct attr_value *item = v->kind == ATTR_LIST ? v->item : v;
    int n = v->kind == ATTR_LIST ? v->nitem : 1;
    if (n > max) {
        attr_error(c, name, v, mem_printf(c->r->t, "at most %d entries", max));
        return 0;
    }
    for (int i = 0; i < n; i++)
        if (!attr_value_int(&item[i], &out[i])) {
            attr_error(c, name, &item[i], "integers");
            return 0;
        }
    return n;
}

uint32_t attr_axes(struct call *c, const char *name, const struct uop *x)
{
    int64_t v[MAX_RANK];
    uint32_t mask = 0;
    int n = attr_ints(c, name, v, MAX_RANK);
    if (!x)
        return 0;
    if (n < 0)
        return lib_all_axes(x);
    if (!c->failed && !lib_axes(c->l, v, n, x->ndim, &mask))
        c->failed = true;
    return mask;
}
