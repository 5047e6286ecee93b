/* gradient.c - derivatives in a .tg text graph.
 *
 *      %ga, %gb = gradient(%loss, %a, %b)       of the sum of %loss by %a and %b
 *      %y = stop_gradient(%x)                   %x, through which no derivative passes
 *
 * Rules simplify while uops are built: of %h = mul(%x, 2) and %y = mul(%h, 3) nothing is left of
 * %h in %y. So a text is searched for names that calls of gradient() differentiate by, before it is
 * read, and what these names stand for is a variable (lib_variable()), which no rule sees through.
 * graph_settle() removes variables when the text has been read.
 */
#include "frontend/text/reader.h"

#include <string.h>

static const char function_name[] = "gradient";

/* ---- the names */

/* After "gradient": adds the names of all operands but the first. */
static void add_names(struct reader *r, struct dict *names)
{
    int operand = 0;
    if (!accept(r, '('))
        return;
    while (r->token.kind != TOKEN_END && r->token.kind != TOKEN_BAD && !accept(r, ')')) {
        if (r->token.kind == TOKEN_REF && operand > 0)
            *dict_enter(r->t, names, r->token.text) = r->t;
        operand += r->token.kind == TOKEN_PUNCT && r->token.punct == ',';
        lex_next(r);
    }
}

static const char *find_word(const char *at, const char *end)
{
    const size_t length = sizeof function_name - 1;
    while (at < end && (at = memchr(at, function_name[0], (size_t)(end - at)))) {
        if ((size_t)(end - at) < length)
            return NULL;
        if (memcmp(at, function_name, length) == 0)
            return at;
        at++;
    }
    return NULL;
}

/* Only lines with the word are read, from their beginnings, where no string and no comment is
 * open. */
const struct dict *gradient_names(struct tgc *t, const char *bytes, size_t nbytes)
{
    struct reader r = {.t = t, .is_search = true};
    struct dict *names = NULL;
    const char *end = bytes + nbytes, *from = bytes;   /* up to where it was read */
    for (const char *at = bytes; (at = find_word(at, end)); at++) {
        const char *line = at;
        while (line > from && line[-1] != '\n')
            line--;
        if (!names || line > from)
            lex_start(&r, line, (size_t)(end - line));
        names = names ? names : MEM_NEW(t, struct dict);
        while (r.token.start < at && r.token.kind != TOKEN_END)
            lex_next(&r);
        if (r.token.start == at && accept_word(&r, function_name))
            add_names(&r, names);
        from = r.token.start;
    }
    return names;
}

bool gradient_is_by(const struct reader *r, const char *name)
{
    return r->variable && dict_has(r->variable, name);
}

struct uop *gradient_variable(struct reader *r, const char *name, struct uop *value)
{
    bool wanted = value && dtype_is_float(value->dtype) && gradient_is_by(r, name);
    return wanted ? lib_variable(&r->lib, value) : value;
}

/* ---- the functions */

/* The variables of the call, by which alone it differentiates. */
static bool read_variables(struct call *c, struct uop **x)
{
    for (int k = 1; k < c->narg; k++) {
        const struct token *at = &c->arg[k].at;
        if (at->kind != TOKEN_REF)
            return read_error(c->r, at, "gradient: found %s, expected a name to differentiate by, "
                                        "as in %%w", token_describe(c->r, at));
        if (!(x[k - 1] = call_arg(c, k)))
            return false;
        if (!dtype_is_float(x[k - 1]->dtype))
            return read_error(c->r, at, "gradient: %s is %s; only floats have a gradient",
                              token_describe(c->r, at), lib_describe(c->l, x[k - 1]));
    }
    return true;
}

/* Leaves are variables together. By another value it is a call of its own: of two values, one of
 * which is made of the other, each gets its whole derivative. */
void run_gradient(struct call *c)
{
    struct tgc *t = c->r->t;
    int n = c->narg - 1, nleaf = 0;
    struct uop *y = call_arg(c, 0), **x = mem_array(t, (size_t)n + 1, sizeof *x),
               **leaf = mem_array(t, (size_t)n + 1, sizeof *leaf),
               **dx = mem_array(t, (size_t)n + 1, sizeof *dx);
    if (!y || !read_variables(c, x)) {
        c->failed = true;
        return;
    }
    for (int k = 0; k < n; k++)
        if (x[k]->op == OP_BUFFER)
            leaf[nleaf++] = x[k];
    if (!lib_gradient(c->l, y, leaf, nleaf, dx)) {
        c->failed = true;
        return;
    }
    for (int k = 0, i = 0; k < n && !c->failed; k++) {
        struct uop *by = x[k]->op == OP_BUFFER ? dx[i++] : NULL;
        c->failed = !by && !lib_gradient(c->l, y, &x[k], 1, &by);
        call_result(c, by);
    }
}

void run_stop_gradient(struct call *c)
{
    call_result(c, lib_stop_gradient(c->l, call_arg(c, 0)));
}
