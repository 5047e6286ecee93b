/* value.c - names and operands in a .tg text graph: %x, f32(0.5), 7, N + 1, _.
 *
 * Names are kept in one table. Each belongs to the region that defined it, and is forgotten at that
 * region's end; a name whose definition failed is kept with no value, so that its uses are silent.
 */
#include "frontend/text/reader.h"

#include <string.h>

/* region -1: forgotten */
struct definition { struct uop *value; int region; bool absent; };

/* ---- names */

static struct definition *find_definition(const struct reader *r, const char *name)
{
    struct definition *d = dict_get(&r->name, name);
    return d && d->region >= 0 ? d : NULL;
}

struct uop *read_lookup(struct reader *r, const char *name, bool *found)
{
    const struct definition *d = find_definition(r, name);
    *found = d != NULL;
    return d ? d->value : NULL;
}

bool define_name(struct reader *r, const struct token *name, struct uop *value)
{
    if (find_definition(r, name->text))
        return read_error(r, name, "%s is defined already; every value has a name of its own",
                          token_describe(r, name));
    struct definition *d = MEM_NEW(r->t, struct definition);
    *d = (struct definition){.value = value, .region = r->region};
    *dict_enter(r->t, &r->name, name->text) = d;
    if (r->region)
        VEC_PUSH(r->t, r->local, r->nlocal, r->cap_local, name->text);
    return true;
}

void define_absent(struct reader *r, const struct token *name)
{
    struct definition *d = MEM_NEW(r->t, struct definition);
    *d = (struct definition){.absent = true, .region = r->region};
    *dict_enter(r->t, &r->name, name->text) = d;
}

bool read_is_absent(const struct reader *r, const char *name)
{
    const struct definition *d = find_definition(r, name);
    return d && d->absent;
}

void leave_region(struct reader *r)
{
    while (r->nlocal) {
        struct definition *d = find_definition(r, r->local[r->nlocal - 1]);
        if (!d || d->region != r->region)
            break;
        d->region = -1;
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
        i = minus ? (int64_t)(0 - (uint64_t)i) : i;
        if (!int_fits(d, i) || (minus && d == DTYPE_U64 && i))
            return read_error(r, &at, "%s%s does not fit into %s", minus ? "-" : "",
                              token_describe(r, &at), dtype_name(d));
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

/* An attribute of a definition: a number, unless an expression begins with it.
 * false: it is none. */
static bool read_bound_number(struct reader *r, struct operand *o)
{
    struct attr_value v;
    struct lex_mark mark = lex_mark(r);
    if (!read_bound(r, &o->at, &v) || !attr_value_float(&v, &o->f))
        return false;
    lex_next(r);
    if (r->token.kind == TOKEN_PUNCT && strchr("+-*", r->token.punct)) {
        lex_return(r, &mark);
        return false;
    }
    o->untyped = true;
    o->integral = attr_value_int(&v, &o->i);
    return true;
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
        o->absent = read_is_absent(r, at.text);
        if (r->token.kind == TOKEN_PUNCT && strchr("+-*", r->token.punct)) {
            if (o->absent)
                return settle_operand(r, o, DTYPE_I64);
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
        if (read_bound_number(r, o))
            return true;
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

bool int_fits(enum dtype d, int64_t i)
{
    return !dtype_is_float(d) && scalar_cast(d, DTYPE_I64, (union scalar){.i = i}).i == i;
}

bool settle_operand(struct reader *r, struct operand *o, enum dtype bare)
{
    if (o->absent)
        return read_error(r, &o->at, "a value is required here");
    if (o->untyped)
        o->value = dtype_is_float(bare) || !o->integral
                       ? uop_constf(r->t, dtype_is_float(bare) ? bare : DTYPE_F32, o->f)
                       : uop_consti(r->t, bare, o->i);
    return o->value != NULL;
}

bool read_value(struct reader *r, struct uop **x)
{
    struct operand o;
    if (!read_operand(r, &o) || !settle_operand(r, &o, DTYPE_I64))
        return false;
    *x = o.value;
    return true;
}

bool read_value_list(struct reader *r, struct uop ***v, int *n)
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

bool read_text(struct reader *r, const char **s, const char *what)
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
