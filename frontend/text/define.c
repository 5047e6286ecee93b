/* define.c - statements of a .tg text graph that define values: results = value tail.
 *
 *      %a, %b = host "top_k" (%x) {...}          read_host
 *      %y = if (%c) then (%a) else { ... }       read_if
 *      %h = loop %i < 10 carry (%s = %s0) {...}  read_loop
 *      %y = conv2d(%x, %w) {stride=2}            read_function_call: an op or a library function
 *      ... axes("n c") loc("node", "Conv", 7)    read_tail
 *
 * The grammar is in read.c.
 */
#include "frontend/text/reader.h"

#include <string.h>

struct origin_slot { const char *node, *op; int index, number; };

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

/* Inside of a definition everything is the call's, but a cast is noted as one: it is asked for, and
 * rounds (passes/graph/half_precision.c). */
static void enter_cast(struct reader *r, const char *op)
{
    const struct origin *call = r->origin_of_call ? r->t->origin[r->origin_of_call - 1] : NULL;
    if (call && !strcmp(op, "cast"))
        origin_new(r->t, call->node, op, call->index);
}

/* Makes the location current: uops that the statement builds have this origin. name NULL: no
 * origin, unless the statement gives one. */
static void enter_origin(struct reader *r, const struct tail *tail, const char *name,
                         const char *op)
{
    struct origin_slot o = {tail->located ? tail->node : name, tail->located ? tail->op : op,
                            tail->located ? (int)tail->index : r->place.line, 0};
    r->t->current_origin = r->origin_of_call;
    if (r->custom)
        enter_cast(r, op);
    if (!o.node || r->custom)
        return;
    struct origin_slot *last = r->norigin ? &r->origin[r->norigin - 1] : NULL;
    if (last && last->index == o.index && !strcmp(last->node, o.node) && !strcmp(last->op, o.op)) {
        r->t->current_origin = last->number;
        return;
    }
    o.number = origin_new(r->t, o.node, o.op, o.index);
    VEC_PUSH(r->t, r->origin, r->norigin, r->cap_origin, o);
}

/* What names stand for, for --value. */
static void note_value(struct reader *r, const struct token *name, struct uop *value)
{
    struct named_value v = {.name = name->text, .from = mem_printf(r->t, "line %d", name->line)};
    if (r->in_entry && !region_depth(r))
        v.refusal = "it belongs to an entry";
    else if (r->region)
        v.refusal = mem_printf(r->t, "line %d defines it inside of a branch or a loop; only values "
                               "outside of them can be outputs", name->line);
    else if (value->dtype == DTYPE_INDEX)
        v.refusal = "it is a size, no tensor";
    else
        v.value = value;
    VEC_PUSH(r->t, r->named, r->nnamed, r->cap_named, v);
}

static bool define_results(struct reader *r, const struct result *v, int n,
                           struct uop *const *value, const struct tail *tail)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        if (v[i].at.kind == TOKEN_NAME)
            continue;
        struct uop *one = value ? gradient_variable(r, v[i].at.text, value[i]) : NULL;
        ok &= define_name(r, &v[i].at, one);
        if (one && v[i].typed)
            ok &= type_matches(r, &v[i].type, one);
        if (one)
            note_value(r, &v[i].at, one);
    }
    if (value && n && value[0] && tail && tail->axes)
        uop_name_axes(r->t, value[0], tail->axes);
    return ok;
}

/* ---- values with a syntax of their own */

static bool result_count(struct reader *r, const struct result *v, int n, int have,
                         const char *what)
{
    return n <= have ? true
                     : read_error(r, &v[have].at, "%s has %d results, %d are named", what, have, n);
}

/* A call has to match the signature of its function: otherwise the emitted C would be undefined. */
static bool check_host(struct reader *r, const struct call *c, const struct token *at,
                       const char *function, const struct host_output *out, int nout, int nparam,
                       int nresult)
{
    const struct host_function *f = host_function_find(function);
    if (!f)
        return read_error(r, at, "there is no host function '%.100s'; tgc ops --tg lists them",
                          function);
    if (c->narg != f->nin || nout != f->nout || nparam != f->nparam || nresult != f->nresult)
        return read_error(
            r, at,
            "'%s' takes %d inputs, %d params and %d vars and has %d results; here are "
            "%d, %d, %d and %d",
            f->name, f->nin, f->nparam, f->nresult, f->nout, c->narg, nparam, nresult, nout);
    for (int i = 0; i < f->nin + f->nout; i++) {
        bool input = i < f->nin;
        enum dtype expected = host_function_dtype(f, i),
                   found = input ? c->arg[i].value->dtype : out[i - f->nin].dtype;
        if (found != expected && !(found == DTYPE_BOOL && expected == DTYPE_U8))
            return read_error(r, at, "%s %d of '%s' is of %s; here it is of %s",
                              input ? "input" : "result", input ? i + 1 : i - f->nin + 1, f->name,
                              dtype_name(expected), dtype_name(found));
    }
    return true;
}

/* Bounds of the numbers of elements. Symbols that the call finds are at their upper bounds, which
 * is what memory is allocated for; others are all at their upper bounds, or all at their lower
 * ones. */
struct bounds { int64_t *value; int n; };

static struct bounds bounds_of(struct reader *r, struct uop *const *dim, int n, bool upper,
                               struct var *const *found, int nfound)
{
    struct mem_mark mark = scratch_mark(r->t);
    int norder;
    struct bounds b = {.n = r->t->next_var};
    b.value = mem_array(r->t, (size_t)b.n + 1, sizeof *b.value);
    struct uop **order = uop_toposort(r->t, dim, n, &norder);
    for (int i = 0; i < norder; i++) {
        if (order[i]->op != OP_VAR)
            continue;
        const struct var *v = order[i]->arg.p;
        b.value[v->id] = upper ? v->max : v->min;
        for (int k = 0; k < nfound; k++)
            b.value[v->id] = found[k] == v ? v->max : b.value[v->id];
    }
    scratch_release(r->t, mark);
    return b;
}

/* The elements that a function may access, by the next word of its `needs`; *word moves past it.
 * false: `needs` does not say, or a param is data. */
static bool host_needs(const char **word, struct uop *const *param, const struct bounds *b,
                       int64_t *nelem)
{
    int64_t most = 0, sum = 0, product = 1, v;
    bool ok = **word != '-';
    for (;; ++*word) {
        char c = **word;
        if (c == '+' || c == '|' || c == ' ' || !c) {
            sum = sat_add(sum, product);
            product = 1;
            if (c == '+')
                continue;
            most = sum > most ? sum : most;
            sum = 0;
            if (c != '|')
                break;
        } else if (c == '/') {
            product /= *++*word - '0';
        } else if (c >= '0' && c <= '9') {
            product = sat_mul(product, c - '0');
        } else if (c != '-') {
            bool less = c < 'a';
            ok &= sym_eval(param[c - (less ? 'A' : 'a')], b->value, b->n, &v);
            product = ok ? sat_mul(product, v - less) : 0;
        }
    }
    *word += **word == ' ';
    *nelem = most;
    return ok;
}

/* No param makes a function access elements outside its inputs and results, with the symbols at
 * their bounds: the emitted C does not check. */
static bool check_host_sizes(struct reader *r, const struct token *at,
                             const struct host_function *f, struct uop *const *in,
                             const struct host_output *out, struct uop *const *param,
                             struct var *const *found, bool upper)
{
    struct uop *all[64 + (8 + 8) * MAX_RANK];
    int n = 0;
    for (int i = 0; i < f->nparam; i++)
        all[n++] = param[i];
    for (int i = 0; i < f->nin + f->nout; i++) {
        int ndim = i < f->nin ? in[i]->ndim : out[i - f->nin].ndim;
        struct uop *const *dim = i < f->nin ? in[i]->dim : out[i - f->nin].dim;
        for (int a = 0; a < ndim; a++)
            all[n++] = dim[a];
    }
    struct bounds b = bounds_of(r, all, n, upper, found, f->nresult);
    bool runs = true;  /* no size is negative: a run with these symbols ends before */
    for (int i = f->nparam; i < n; i++) {
        int64_t v;
        runs &= !sym_eval(all[i], b.value, b.n, &v) || v >= 0;
    }
    for (int i = 0; i < f->nparam; i++) {
        int64_t v;
        char letter = (char)('a' + i), one_less = (char)('A' + i);
        bool sizes = strchr(f->needs, letter) || strchr(f->needs, one_less);
        if (sizes && sym_eval(param[i], b.value, b.n, &v) && v < 0 && (runs || param[i]->vmax < 0))
            return read_error(r, at,
                              "param %d of '%s' is a size or a position; here it may be %lld",
                              i + 1, f->name, (long long)v);
    }
    const char *word = f->needs;
    for (int i = runs ? 0 : f->nin + f->nout, at_dim = f->nparam; i < f->nin + f->nout; i++) {
        bool input = i < f->nin;
        int ndim = input ? in[i]->ndim : out[i - f->nin].ndim;
        int64_t needed, have = 1, v;
        bool known = host_needs(&word, param, &b, &needed);
        for (int a = 0; a < ndim; a++) {
            known &= sym_eval(all[at_dim++], b.value, b.n, &v);
            have = known ? sat_mul(have, v) : 0;
        }
        if (known && needed > have)
            return read_error(
                r, at,
                "with these params '%s' touches %lld elements of its %s %d, which has "
                "%lld: give params that go with the shapes (ir/host.def)",
                f->name, (long long)needed, input ? "input" : "result",
                input ? i + 1 : i - f->nin + 1, (long long)have);
    }
    return true;
}

/* The sizes that a function may find are within the bounds of the symbols in `vars`: the results
 * have memory for these, and the rest of the graph relies on them. */
static bool check_host_found(struct reader *r, const struct token *at,
                             const struct host_function *f, struct uop *const *param,
                             struct var *const *found)
{
    for (int i = 0; i < f->nresult; i++) {
        char lo = f->found[2 * i], hi = f->found[2 * i + 1];
        int64_t least = lo < 'a' ? lo - '0' : param[lo - 'a']->vmin, most = param[hi - 'a']->vmax;
        most = most > least ? most : least;
        if (least < found[i]->min || most > found[i]->max)
            return read_error(r, at,
                              "with these params '%s' may find %lld to %lld for entry %d of vars, "
                              "which is %lld to %lld (ir/host.def)",
                              f->name, (long long)least, (long long)most, i + 1,
                              (long long)found[i]->min, (long long)found[i]->max);
    }
    return true;
}

/* Each symbol is found by one call: of two it would have two values. */
static bool find_once(struct reader *r, const struct token *at, struct uop *symbol)
{
    for (int i = 0; i < r->nfound; i++)
        if (r->found[i] == symbol)
            return read_error(r, at, "'%.100s' is found by a host call already; give what this one "
                              "finds a name of its own", ((const struct var *)symbol->arg.p)->name);
    VEC_PUSH(r->t, r->found, r->nfound, r->cap_found, symbol);
    return true;
}

static bool read_host(struct reader *r, const struct result *v, int n)
{
    struct call c = {.r = r, .l = &r->lib, .name = "host", .at = r->token};
    struct token at = r->token;
    struct uop *param[64], *var[64], *value[MAX_RESULTS], **in = mem_array(r->t, 1, sizeof *in);
    struct host_output *out = mem_array(r->t, (size_t)n + 1, sizeof *out);
    struct var *result[64];
    struct tail tail;
    const char *function;
    if (!read_text(r, &function, "the function's name") || !read_arguments(r, &c) ||
        !read_tail(r, &tail))
        return false;
    in = mem_array(r->t, (size_t)c.narg + 1, sizeof *in);
    for (int i = 0; i < c.narg; i++) {
        if (!settle_operand(r, &c.arg[i], DTYPE_I64))
            return false;
        in[i] = c.arg[i].value;
    }
    int nparam = attr_dims(&c, "params", param, 64), nresult = attr_dims(&c, "vars", var, 64);
    if (c.failed)
        return false;
    for (int i = 0; i < nresult; i++) {
        int64_t size;
        bool known = uop_const_int(var[i], &size);
        if (!known && var[i]->op != OP_VAR)
            return read_error(r, &c.at, "a host call's vars must be dimensions or numbers");
        if (!known && !find_once(r, &c.at, var[i]))
            return false;
        result[i] = known ? var_new(r->t, mem_printf(r->t, "found%d_%d", r->nhost, i), size, size)
                          : (struct var *)var[i]->arg.p;
    }
    for (int i = 0; i < n; i++) {
        if (!v[i].typed)
            return read_error(r, &v[i].at, "the results of a host call need a type");
        out[i] = (struct host_output){.dtype = v[i].type.dtype, .ndim = v[i].type.ndim};
        memcpy(out[i].dim, v[i].type.dim, sizeof out[i].dim);
    }
    nparam = nparam > 0 ? nparam : 0;
    nresult = nresult > 0 ? nresult : 0;
    if (!check_host(r, &c, &at, function, out, n, nparam, nresult))
        return false;
    const struct host_function *f = host_function_find(function);
    if (!check_host_found(r, &at, f, param, result) ||
        !check_host_sizes(r, &at, f, in, out, param, result, true) ||
        !check_host_sizes(r, &at, f, in, out, param, result, false) ||
        !host_tables_fit(r, &at, f, in, param))
        return false;
    if (r->custom && nresult > 0)
        return read_error(r, &at, "'%s' finds a size, which a definition cannot", f->name);
    if (n == 0 && region_depth(r))
        return read_error(r, &at, "'%s' has no result and would run once, whatever the loop or the "
                                  "branch does: write it outside of them", f->name);
    enter_origin(r, &tail, NULL, "");
    struct uop *call = lib_host(&r->lib, function, in, c.narg, out, n, param,
                                nparam, result, nresult);
    for (int i = 0; i < n && call; i++)
        value[i] = v[i].at.kind == TOKEN_REF ? lib_get(&r->lib, call, i) : NULL;
    if (call && !region_depth(r) && (n == 0 || nresult > 0))
        VEC_PUSH(r->t, r->host, r->nhost, r->cap_host, call);
    return call && define_results(r, v, n, value, &tail);
}

bool read_host_statement(struct reader *r)
{
    r->t->current_origin = r->origin_of_call;
    bool ok = read_host(r, NULL, 0);
    r->t->current_origin = r->origin_of_call;
    return ok;
}

static bool read_branch(struct reader *r, struct uop ***v, int *n)
{
    if (!accept(r, '{'))
        return read_value_list(r, v, n);
    struct token at = r->token;
    if (++r->region > MAX_NESTING)
        return read_error(r, &at, "regions nested more than %d deep", MAX_NESTING);
    bool ok = read_statements(r, "yield", NULL), ended = accept_word(r, "yield");
    if (!ended && ok)
        read_error(r, &r->token, "found %s, expected 'yield' and the branch's values",
                   token_describe(r, &r->token));
    ended = ended && read_value_list(r, v, n) && expect(r, '}', "after the branch");
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
    if (!read_value_list(r, next, &nnext) || !ok)
        return false;
    if (nnext != loop->loop->ncarried)
        return read_error(r, &at, "the loop carries %d values, next gives %d", loop->loop->ncarried,
                          nnext);
    if (accept_word(r, "while") && !read_value(r, cond))
        return false;
    if (accept_word(r, "scan") && !read_value_list(r, scan, nscan))
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
    bool ok = define_name(r, &counter, loop->counter);
    for (int k = 0; k < ncarried; k++)
        ok &= define_name(r, &name[k], loop->param[k]);
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

bool read_definition(struct reader *r)
{
    struct result *v;
    int n;
    if (!read_results(r, &v, &n))
        return false;
    struct token name = r->token;
    r->place = lex_place(r, &name);
    r->t->current_origin = r->origin_of_call;
    bool ok;
    if (accept_word(r, "host"))
        ok = read_host(r, v, n);
    else if (accept_word(r, "if"))
        ok = read_if(r, v, n);
    else if (accept_word(r, "loop"))
        ok = read_loop(r, v, n);
    else if (accept_word(r, "custom")) {
        const char *text;
        name = r->token;
        ok = read_text(r, &text, "the operator's name, \"domain::name\",") &&
             read_function_call(r, v, n, &name);
    } else if (name.kind == TOKEN_NAME) {
        lex_next(r);
        ok = read_function_call(r, v, n, &name);
    } else {
        ok = name.kind == TOKEN_BAD
                 ? false
                 : read_error(r, &name, "found %s, expected an operation, as in relu(%%x)",
                              token_describe(r, &name));
    }
    r->t->current_origin = r->origin_of_call;
    /* uses of the names that it would have defined are not reported */
    if (!ok)
        for (int i = 0; i < n; i++) {
            bool found;
            read_lookup(r, v[i].at.text, &found);
            if (v[i].at.kind == TOKEN_REF && !found)
                define_name(r, &v[i].at, NULL);
        }
    return ok;
}
