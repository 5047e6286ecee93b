/* expr.c - index expressions and types.
 *
 *      expr    = term { ("+" | "-") term }          term = factor { "*" factor }
 *      factor  = ["-"] integer | symbol | %value | "(" expr ")" | ("floordiv" | "floormod" | "min"
 *      | "max") "(" expr "," expr ")"
 *      symbol  = name | 'any name'
 *      type    = dtype [ "[" [ dim { "," dim } ] "]" ]        dim = [integer "<="] symbol "<="
 *      integer | expr
 */
#include "frontend/text/reader.h"

#include <string.h>

static bool read_sum(struct reader *r, struct uop *first, struct uop **e);

static const struct symbol *find_symbol(const struct reader *r, const char *name)
{
    for (int i = 0; i < r->nsymbol; i++)
        if (!strcmp(r->symbol[i].name, name))
            return &r->symbol[i];
    return NULL;
}

struct uop *read_symbol(struct reader *r, const struct token *name)
{
    const struct symbol *s = find_symbol(r, name->text);
    return s ? s->value : NULL;
}

/* Declares lo <= name <= hi, or finds that it is so already. What the caller knows of it wins over
 * the text. */
static bool declare(struct reader *r, const struct token *name, int64_t lo, int64_t hi,
                    struct uop **e)
{
    if (r->custom)
        return read_error(r, name, "a definition has no dimensions of its own; it takes those of "
                                   "its operands");
    if (lo < 0 || hi < lo)
        return read_error(
            r, name,
            "dimension '%.100s' has bounds %lld..%lld; they must be 0 <= least <= greatest",
            name->text, (long long)lo, (long long)hi);
    const struct symbol *known = find_symbol(r, name->text);
    if (known && (known->min != lo || known->max != hi))
        return read_error(r, name,
                          "dimension '%.100s' has bounds %lld..%lld already; write its name alone",
                          name->text, (long long)known->min, (long long)known->max);
    if (!known) {
        struct symbol s = {.name = name->text, .min = lo, .max = hi};
        for (int i = 0; i < r->options.ndim; i++)
            if (!strcmp(r->options.dim[i].name, name->text)) {
                hi = r->options.dim[i].max;
                lo = r->options.dim[i].min > 0 || hi < lo ? r->options.dim[i].min : lo;
            }
        s.value = lo == hi ? uop_int(r->t, lo) : uop_var(r->t, var_new(r->t, name->text, lo, hi));
        VEC_PUSH(r->t, r->symbol, r->nsymbol, r->cap_symbol, s);
        known = &r->symbol[r->nsymbol - 1];
    }
    *e = known->value;
    return true;
}

static bool is_symbol(const struct token *t)
{
    return t->kind == TOKEN_NAME || t->kind == TOKEN_SYMBOL;
}

static bool read_ref(struct reader *r, struct uop **e)
{
    bool found;
    struct token at = r->token;
    struct uop *x = read_lookup(r, at.text, &found);
    lex_next(r);
    if (!found)
        return read_error(r, &at, "%s is not defined before this line", token_describe(r, &at));
    if (read_is_absent(r, at.text))
        return read_error(r, &at, "a value is required here, and the call leaves %s out",
                          token_describe(r, &at));
    if (!x)
        return false;
    if (x->ndim || x->dtype != DTYPE_INDEX)
        return read_error(r, &at, "%s is %s; a dimension must be an i64 scalar",
                          token_describe(r, &at), lib_describe(&r->lib, x));
    *e = x;
    return true;
}

static bool read_function(struct reader *r, const struct token *name, struct uop **e)
{
    static const struct { const char *name; enum op op; } functions[] = {
        {"floordiv", OP_FLOORDIV}, {"floormod", OP_FLOORMOD}, {"min", OP_MIN}, {"max", OP_MAX}};
    struct uop *a, *b;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name->text)) {
            if (!expect(r, '(', "after the function") || !read_sum(r, NULL, &a) ||
                !expect(r, ',', "between the operands") || !read_sum(r, NULL, &b) ||
                !expect(r, ')', "after the operands"))
                return false;
            *e = uop_binary(r->t, functions[i].op, a, b);
            return true;
        }
    return read_error(r, name,
                      "'%.100s' is no function of integers (floordiv, floormod, min and max are), "
                      "and calls do not nest: "
                      "name the result, as in %%h = %.100s(...), and give %%h here",
                      name->text, name->text);
}

static bool read_factor(struct reader *r, struct uop **e)
{
    struct token at = r->token;
    int64_t v;
    bool minus = accept(r, '-');
    if (r->token.kind == TOKEN_NUMBER) {
        if (!token_int(&r->token, &v) || (v < 0 && !(minus && v == INT64_MIN)))
            return read_error(r, &r->token, "%s is no integer of 64 bits",
                              token_describe(r, &r->token));
        lex_next(r);
        *e = uop_int(r->t, minus && v != INT64_MIN ? -v : v);
        return true;
    }
    if (minus)
        return read_error(r, &r->token, "found %s, expected a number after '-'",
                          token_describe(r, &r->token));
    if (r->token.kind == TOKEN_REF)
        return read_ref(r, e);
    if (is_symbol(&r->token)) {
        lex_next(r);
        if (at.kind == TOKEN_NAME && r->token.kind == TOKEN_PUNCT && r->token.punct == '(')
            return read_function(r, &at, e);
        *e = read_symbol(r, &at);
        if (!*e && r->custom)
            return read_error(r, &at,
                              "the size '%.100s' is not known: before here it stands alone in no "
                              "operand's type, and is no integer attribute",
                              at.text);
        return *e ? true
                  : read_error(r, &at,
                               "dimension '%.100s' is not known; declare it in an input's type, as "
                               "in %.100s<=8",
                               at.text, at.text);
    }
    if (!accept(r, '('))
        return r->token.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected an integer, a dimension or '('",
                                token_describe(r, &at));
    return read_sum(r, NULL, e) && expect(r, ')', "to close '('");
}

static bool read_product(struct reader *r, struct uop *first, struct uop **e)
{
    struct uop *b;
    *e = first;
    if (!first && !read_factor(r, e))
        return false;
    while (accept(r, '*')) {
        if (!read_factor(r, &b))
            return false;
        *e = uop_binary(r->t, OP_MUL, *e, b);
    }
    return true;
}

static bool read_sum(struct reader *r, struct uop *first, struct uop **e)
{
    struct uop *b;
    if (r->nesting == MAX_NESTING)
        return read_error(r, &r->token, "nested more than %d deep", MAX_NESTING);
    r->nesting++;
    bool ok = read_product(r, first, e);
    while (ok && r->token.kind == TOKEN_PUNCT && (r->token.punct == '+' || r->token.punct == '-')) {
        enum op op = r->token.punct == '+' ? OP_ADD : OP_SUB;
        lex_next(r);
        ok = read_product(r, NULL, &b);
        if (ok)
            *e = uop_binary(r->t, op, *e, b);
    }
    r->nesting--;
    return ok;
}

bool read_expr(struct reader *r, struct uop **e) { return read_sum(r, NULL, e); }
bool read_expr_after(struct reader *r, struct uop *first, struct uop **e)
{
    return read_sum(r, first, e);
}

/* ---- types */

/* "N<=8", "2<=N<=8", or an expression; `first` was read if it was a symbol. */
static bool read_dimension(struct reader *r, struct uop **e)
{
    struct token at = r->token, name;
    int64_t lo = 0, hi;
    if (is_symbol(&at)) {
        lex_next(r);
        if (r->token.kind != TOKEN_LE) {
            struct uop *s = NULL;
            bool call = at.kind == TOKEN_NAME && r->token.kind == TOKEN_PUNCT &&
                        r->token.punct == '(';
            if (call && !read_function(r, &at, &s))
                return false;
            if (!call && !(s = read_symbol(r, &at)) && r->custom)
                return read_error(r, &at, "the size '%.100s' is not known: it stands alone in no "
                                          "operand's type",
                                  at.text);
            if (!call && !s)
                return read_error(r, &at,
                                  "dimension '%.100s' has no bound; give the greatest size that "
                                  "can occur, as in %.100s<=8",
                                  at.text, at.text);
            return read_expr_after(r, s, e);
        }
        name = at;
    } else {
        if (!read_expr(r, e))
            return false;
        if (r->token.kind != TOKEN_LE)
            return true;
        lex_next(r);
        name = r->token;
        if (!uop_const_int(*e, &lo) || !is_symbol(&name))
            return read_error(r, &name, "found %s, expected a dimension's name, as in 2<=N<=8",
                              token_describe(r, &name));
        lex_next(r);
    }
    if (r->token.kind != TOKEN_LE)
        return read_error(r, &r->token, "found %s, expected '<=' and the greatest size",
                          token_describe(r, &r->token));
    lex_next(r);
    if (!token_int(&r->token, &hi) || hi < 0)
        return read_error(r, &r->token, "found %s, expected the greatest size as a number",
                          token_describe(r, &r->token));
    lex_next(r);
    return declare(r, &name, lo, hi, e);
}

bool read_dimension_decl(struct reader *r)
{
    struct uop *e;
    struct token at = r->token;
    int before = r->nsymbol;
    if (!read_dimension(r, &e))
        return false;
    return e->op == OP_VAR || r->nsymbol > before
               ? true
               : read_error(r, &at, "expected a dimension with its bound, as in N<=8");
}

bool read_type(struct reader *r, struct type *type)
{
    *type = (struct type){.at = r->token};
    if (r->token.kind != TOKEN_NAME || !dtype_parse(r->token.text, &type->dtype) ||
        type->dtype == DTYPE_VOID)
        return r->token.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &r->token,
                                "found %s, expected a dtype such as f32, f16, bf16, i64 or bool",
                                token_describe(r, &r->token));
    lex_next(r);
    if (!accept(r, '[') || accept(r, ']'))
        return true;
    do {
        struct token at = r->token;
        if (type->ndim == MAX_RANK)
            return read_error(r, &at, "more than %d axes", MAX_RANK);
        if (!read_dimension(r, &type->dim[type->ndim]))
            return false;
        if (type->dim[type->ndim]->vmax < 0)
            return read_error(r, &at, "a dimension that is negative");
        type->ndim++;
    } while (accept(r, ','));
    return expect(r, ']', "after the dimensions");
}

bool type_matches(struct reader *r, const struct type *want, const struct uop *have)
{
    bool same = want->dtype == have->dtype && want->ndim == have->ndim;
    for (int a = 0; same && a < want->ndim; a++)
        same = sym_equal(r->t, want->dim[a], have->dim[a]);
    if (same)
        return true;
    struct uop w = {.dtype = want->dtype, .ndim = want->ndim, .dim = (struct uop **)want->dim};
    return read_error(r, &want->at, "declared %s, but the value is %s", lib_describe(&r->lib, &w),
                      lib_describe(&r->lib, have));
}
