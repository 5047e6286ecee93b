/* expand.c - calls of what custom.c has read: operands are unified with their types, and attributes
 * get their values.
 *
 * A definition's statements are read once more, by a reader of their own with these names. So a
 * call leaves nothing but ops, which are fused and differentiated as any others. A C function
 * becomes a HOST call with the sizes of its tensors. A message from inside a definition has its
 * line and column, and the call.
 */
#include "frontend/text/reader.h"

#include <string.h>

enum { MAX_CALLS = 20000 };

/* ---- values of attributes */

static const char *kind_name(enum external_kind kind)
{
    switch (kind) {
    case EXTERNAL_INT: return "an integer";
    case EXTERNAL_FLOAT: return "a number";
    case EXTERNAL_STRING: return "a string";
    case EXTERNAL_INTS: return "a list of integers";
    default: return "a list of numbers";
    }
}

static bool read_items(struct reader *r, const struct attr_value *v, struct tg_argument *a)
{
    const struct attr_value *item = v->kind == ATTR_LIST ? v->item : v;
    int n = v->kind == ATTR_LIST ? v->nitem : 1;
    int64_t *ints = mem_array(r->t, (size_t)n + 1, sizeof *ints);
    double *floats = mem_array(r->t, (size_t)n + 1, sizeof *floats);
    for (int i = 0; i < n; i++)
        if (a->kind == EXTERNAL_INTS ? !attr_value_int(&item[i], &ints[i])
                                     : !attr_value_float(&item[i], &floats[i]))
            return false;
    bool of_ints = a->kind == EXTERNAL_INTS;
    a->v = (struct external_value){
        .ints = of_ints ? ints : NULL, .floats = of_ints ? NULL : floats, .nitem = n};
    return true;
}

bool custom_value(struct reader *r, const struct custom_part *p, const struct attr_value *v,
                  struct tg_argument *a)
{
    int64_t i;
    bool ok;
    *a = (struct tg_argument){.name = p->name, .kind = p->kind, .at = lex_place(r, &v->at)};
    switch (p->kind) {
    case EXTERNAL_INT:
        ok = v->kind == ATTR_EXPR || attr_value_int(v, &i);
        a->i = !ok ? NULL : v->kind == ATTR_EXPR ? v->expr : uop_int(r->t, i);
        break;
    case EXTERNAL_FLOAT: ok = attr_value_float(v, &a->v.f); break;
    case EXTERNAL_STRING:
        ok = v->kind == ATTR_STRING;
        a->v.s = v->at.text;
        break;
    default: ok = read_items(r, v, a); break;
    }
    return ok || read_error(r, &v->at, "attribute '%s' is %s; expected %s", p->name,
                            v->kind == ATTR_LIST ? "a list" : token_describe(r, &v->at),
                            kind_name(p->kind));
}

static struct attr_value number_value(struct reader *r, const struct token *at, double f)
{
    struct attr_value v = {.kind = ATTR_NUMBER, .at = *at};
    bool word = f != f || f - f != 0;
    v.at.kind = word ? TOKEN_NAME : TOKEN_NUMBER;
    v.at.text = !word    ? mem_printf(r->t, "%.17g", f)
                : f != f ? "nan"
                : f < 0  ? "-inf"
                         : "inf";
    return v;
}

static struct attr_value int_value(struct reader *r, const struct token *at, int64_t i)
{
    struct attr_value v = {.kind = ATTR_NUMBER, .at = *at};
    v.at.kind = TOKEN_NUMBER;
    v.at.text = mem_printf(r->t, "%lld", (long long)i);
    return v;
}

bool read_bound(struct reader *r, const struct token *at, struct attr_value *v)
{
    const struct tg_argument *a = NULL;
    int64_t i;
    for (int k = 0; k < r->nbound && !a; k++)
        a = strcmp(r->bound[k].name, at->text) ? NULL : &r->bound[k];
    if (!a)
        return false;
    *v = (struct attr_value){.at = *at};
    if (a->kind == EXTERNAL_INT && uop_const_int(a->i, &i)) {
        *v = int_value(r, at, i);
    } else if (a->kind == EXTERNAL_INT) {
        v->kind = ATTR_EXPR;
        v->expr = a->i;
    } else if (a->kind == EXTERNAL_FLOAT) {
        *v = number_value(r, at, a->v.f);
    } else if (a->kind == EXTERNAL_STRING) {
        v->kind = ATTR_STRING;
        v->at.kind = TOKEN_STRING;
        v->at.text = a->v.s;
    } else {
        v->kind = ATTR_LIST;
        v->nitem = a->v.nitem;
        v->item = mem_array(r->t, (size_t)v->nitem + 1, sizeof *v->item);
        for (int k = 0; k < v->nitem; k++)
            v->item[k] = a->kind == EXTERNAL_INTS ? int_value(r, at, a->v.ints[k])
                                                  : number_value(r, at, a->v.floats[k]);
    }
    return true;
}

/* ---- types */

void custom_reader(struct reader *inner, struct tgc *t, struct tg_library *l,
                   const struct custom *c, const struct lex_mark *mark)
{
    *inner = (struct reader){.t = t,
                             .path = c->path,
                             .end = c->end,
                             .library = l,
                             .custom = c,
                             .variable = c->variable,
                             .base_error = t->nerror,
                             .options = {.no_external_data = l->options.no_external_data,
                                         .on_file = l->options.on_file,
                                         .user = l->options.user}};
    lex_return(inner, mark);
    inner->place = lex_place(inner, &c->at);
    inner->lib = (struct lib){t, &inner->place};
}

static void bind_symbol(struct reader *r, const char *name, struct uop *value)
{
    struct symbol s = {.name = name, .value = value};
    VEC_PUSH(r->t, r->symbol, r->nsymbol, r->cap_symbol, s);
}

static struct uop *any_size(struct reader *r, const char *name)
{
    return uop_var(r->t, var_new(r->t, name, 0, INT32_MAX));
}

/* A size; of a symbol that stands alone for the first time, that of x. */
static bool read_size(struct reader *r, bool binds, const struct uop *x, int a, struct uop **e)
{
    struct lex_mark mark = lex_mark(r);
    struct token name = r->token;
    if (binds && (name.kind == TOKEN_NAME || name.kind == TOKEN_SYMBOL) && !read_symbol(r, &name)) {
        lex_next(r);
        if (r->token.kind == TOKEN_PUNCT && strchr(",]", r->token.punct)) {
            *e = x ? x->dim[a] : any_size(r, name.text);
            bind_symbol(r, name.text, *e);
            return true;
        }
        lex_return(r, &mark);
    }
    struct token at = r->token;
    if (!read_expr(r, e))
        return false;
    return (*e)->vmax >= 0 || read_error(r, &at, "a size that is negative");
}

/* ", where N is 4 and C is 5" */
static const char *sizes_text(struct reader *r)
{
    struct text x = {.t = r->t};
    for (int i = 0; i < r->nsymbol; i++) {
        text_printf(&x, "%s%s is ", i == 0 ? ", where " : i + 1 < r->nsymbol ? ", " : " and ",
                    r->symbol[i].name);
        uop_print(&x, r->symbol[i].value);
    }
    return x.s ? x.s : "";
}

static bool misfit(struct reader *r, const struct custom *c, const struct custom_part *p,
                   const struct uop *x, const struct place *at)
{
    return diag_error(r->t, at, "found %s, expected %s%s: %%%s of '%s', %s",
                      lib_describe(&r->lib, x), p->type_text, sizes_text(r), p->name, c->name,
                      custom_place(r->t, c, &p->at, at->file));
}

bool custom_type(struct reader *r, const struct custom *c, const struct custom_part *p,
                 const struct uop *x, const struct place *at, struct type *type)
{
    bool binds = p->kind == EXTERNAL_OPERAND;
    lex_return(r, &p->type);
    *type = (struct type){.dtype = p->dtype, .at = r->token};
    lex_next(r);
    if (x && ((!p->is_any && x->dtype != p->dtype) || x->ndim != p->ndim))
        return misfit(r, c, p, x, at);
    if (!accept(r, '[') || accept(r, ']'))
        return true;
    do {
        struct uop **e = &type->dim[type->ndim];
        if (!read_size(r, binds, x, type->ndim, e))
            return false;
        if (x && !sym_must_equal(r->t, x->dim[type->ndim], *e))
            return misfit(r, c, p, x, at);
        type->ndim++;
    } while (accept(r, ','));
    return expect(r, ']', "after the sizes");
}

bool custom_scratch(struct reader *r, const struct custom *c, struct uop **nbytes)
{
    lex_return(r, &c->scratch);
    struct token at = r->token;
    return read_expr(r, nbytes) && expect(r, ')', "after the scratch's bytes") &&
           ((*nbytes)->vmax >= 0 || read_error(r, &at, "a size that is negative"));
}

/* ---- a call */

struct expansion {
    struct reader r;
    const struct custom *c;
    struct tg_call *call;
    struct tg_argument *value;           /* by part: of an attribute */
    struct uop **in;                     /* by part: of an operand; NULL: absent */
};

static bool bind_operand(struct expansion *x, int i, int k)
{
    struct reader *r = &x->r;
    const struct custom_part *p = &x->c->part[i];
    struct type type;
    x->in[i] = k < x->call->nin ? x->call->in[k] : NULL;
    if (!x->in[i] && !p->is_optional)
        return diag_error(r->t, &x->call->at, "'%s' needs operand %d, %%%s (%s)", x->c->name,
                          k + 1, p->name, custom_place(r->t, x->c, &p->at, x->call->at.file));
    if (!x->in[i]) {
        define_absent(r, &p->at);
        return true;
    }
    return (!p->is_typed || custom_type(r, x->c, p, x->in[i], &x->call->in_at[k], &type)) &&
           define_name(r, &p->at, gradient_variable(r, p->name, x->in[i]));
}

/* Attributes are symbols, too, where they are integers. */
static bool bind_attribute(struct expansion *x, int i)
{
    struct reader *r = &x->r;
    const struct custom_part *p = &x->c->part[i];
    const struct tg_argument *given = NULL;
    for (int k = 0; k < x->call->nattribute && !given; k++)
        given = strcmp(x->call->attribute[k].name, p->name) ? NULL : &x->call->attribute[k];
    if (given && given->kind != p->kind)
        return diag_error(r->t, &given->at, "found %s, expected %s: '%s' of '%s', %s",
                          kind_name(given->kind), kind_name(p->kind), p->name, x->c->name,
                          custom_place(r->t, x->c, &p->at, given->at.file));
    if (!given && !p->otherwise)
        return diag_error(r->t, &x->call->at, "'%s' needs the attribute '%s' (%s)", x->c->name,
                          p->name, custom_place(r->t, x->c, &p->at, x->call->at.file));
    if (given)
        x->value[i] = *given;
    else if (!custom_value(r, p, p->otherwise, &x->value[i]))
        return false;
    x->value[i].name = p->name;
    if (p->kind == EXTERNAL_INT)
        bind_symbol(r, p->name, x->value[i].i);
    return true;
}

static const char *attribute_list(struct reader *r, const struct custom *c)
{
    struct text s = {.t = r->t};
    for (int i = 0; i < c->npart; i++)
        if (custom_is_attribute(&c->part[i]))
            text_printf(&s, "%s%s", s.n ? ", " : "; it has ", c->part[i].name);
    return s.s ? s.s : "";
}

static bool bind_parts(struct expansion *x)
{
    struct reader *r = &x->r;
    const struct tg_call *call = x->call;
    int k = 0;
    for (int i = 0; i < x->c->npart && x->c->part[i].kind != EXTERNAL_RESULT; i++)
        if (x->c->part[i].kind == EXTERNAL_OPERAND ? !bind_operand(x, i, k++)
                                                   : !bind_attribute(x, i))
            return false;
    for (int i = k; i < call->nin; i++)
        if (call->in[i])
            return diag_error(r->t, &call->in_at[i], "'%s' takes %d operands, found %d (%s)",
                              x->c->name, k, call->nin,
                              custom_place(r->t, x->c, &x->c->at, call->at.file));
    for (int i = 0; i < call->nattribute; i++)
        if (tg_custom_attribute(x->c, call->attribute[i].name) == EXTERNAL_SCRATCH)
            return diag_error(r->t, &call->attribute[i].at, "'%s' has no attribute '%.60s'%s",
                              x->c->name, call->attribute[i].name, attribute_list(r, x->c));
    r->bound = x->value;
    r->nbound = x->c->npart;
    return true;
}

static void set_result(struct tg_call *call, struct uop *value)
{
    if (call->nout < call->most)
        call->out[call->nout] = value;
    call->nout++;
}

/* ---- definitions */

static bool define_result(struct expansion *x, const struct custom_part *p)
{
    struct reader *r = &x->r;
    struct type type;
    bool found;
    struct uop *value = read_lookup(r, p->name, &found);
    if (!found)
        return read_error(r, &p->at, "the definition gives its result %s no value",
                          token_describe(r, &p->at));
    if (read_is_absent(r, p->name))
        return read_error(r, &p->at, "the result is the operand %s, which the call leaves out",
                          token_describe(r, &p->at));
    if (!value)
        return false;
    if (p->is_typed) {
        if (!custom_type(r, x->c, p, NULL, NULL, &type))
            return false;
        type.dtype = p->is_any ? value->dtype : type.dtype;
        if (!type_matches(r, &type, value))
            return false;
    }
    set_result(x->call, value);
    return true;
}

static bool expand_definition(struct expansion *x)
{
    struct reader *r = &x->r;
    lex_return(r, &x->c->body);
    if (!read_statements(r, "}", NULL) || !expect(r, '}', "after the definition"))
        return false;
    for (int i = 0; i < x->c->npart; i++)
        if (x->c->part[i].kind == EXTERNAL_RESULT && !define_result(x, &x->c->part[i]))
            return false;
    return true;
}

/* ---- C functions */

/* C's float. */
static struct external_value single_precision(struct tgc *t, const struct external_value *v)
{
    struct external_value s = *v;
    double *floats = v->floats ? mem_array(t, (size_t)v->nitem + 1, sizeof *floats) : NULL;
    s.f = (double)(float)v->f;
    for (int i = 0; floats && i < v->nitem; i++)
        floats[i] = (double)(float)v->floats[i];
    s.floats = floats;
    return s;
}

/* An operand's and a result's sizes are params, and so is an integer. */
static void add_params(struct host_call *h, struct uop *const *v, int n)
{
    for (int i = 0; i < n; i++)
        h->param[h->nparam++] = v[i];
}

/* Sizes that a run may compute as negative stand for 0. */
static void add_sizes(struct tgc *t, struct host_call *h, struct uop *const *v, int n)
{
    for (int i = 0; i < n; i++)
        h->param[h->nparam++] = v[i]->vmin < 0 ? sym_max(t, v[i], uop_int(t, 0)) : v[i];
}

static bool add_result(struct expansion *x, struct host_call *h, const struct custom_part *p)
{
    struct host_output *o = &h->out[h->nout++];
    struct type type;
    if (!custom_type(&x->r, x->c, p, NULL, NULL, &type))
        return false;
    *o = (struct host_output){.dtype = type.dtype, .ndim = type.ndim};
    memcpy(o->dim, type.dim, sizeof o->dim);
    add_sizes(x->r.t, h, o->dim, o->ndim);
    return true;
}

static bool add_scratch(struct expansion *x, struct host_call *h)
{
    struct host_output *o = &h->out[h->nout++];
    *o = (struct host_output){.dtype = DTYPE_U8, .ndim = 1};
    if (!custom_scratch(&x->r, x->c, &o->dim[0]))
        return false;
    add_sizes(x->r.t, h, o->dim, 1);
    return true;
}

static bool call_function(struct expansion *x)
{
    struct tgc *t = x->r.t;
    const struct external *e = x->c->external;
    struct host_call *h = MEM_NEW(t, struct host_call);
    size_t most = (size_t)e->nargument;
    struct external_value *value = mem_array(t, most + 1, sizeof *value);
    struct uop **in = mem_array(t, most + 1, sizeof *in);
    int nin = 0;
    *h = (struct host_call){.function = e->symbol,
                            .out = mem_array(t, most + 1, sizeof *h->out),
                            .param = mem_array(t, most * MAX_RANK + 1, sizeof *h->param),
                            .external = e,
                            .value = value};
    for (int i = 0; i < e->nargument; i++) {
        struct uop *operand = x->in[i];
        switch (e->argument[i].kind) {
        case EXTERNAL_OPERAND:
            value[i].absent = !operand;
            if (operand)
                add_params(h, operand->dim, operand->ndim);
            if (operand)
                in[nin++] = operand;
            break;
        case EXTERNAL_RESULT:
            if (!add_result(x, h, &x->c->part[i]))
                return false;
            break;
        case EXTERNAL_SCRATCH:
            if (!add_scratch(x, h))
                return false;
            break;
        case EXTERNAL_INT: add_params(h, &x->value[i].i, 1); break;
        default: value[i] = single_precision(t, &x->value[i].v); break;
        }
    }
    struct uop *call = uop_host(t, h, in, nin);
    for (int i = 0; i < h->nout - x->c->has_scratch; i++)
        set_result(x->call, uop_get(t, call, i));
    return true;
}

/* ---- from outside */

/* "net.tg:3:6, in ..." or "model.onnx: node 3 'swish' (Swish2)" */
static const char *place_text(struct tgc *t, const struct place *at)
{
    const char *text = at->text ? at->text : "";
    if (at->line)
        return mem_printf(t, "%s:%d:%d%s%s", at->file, at->line, at->column, *text ? ", " : "",
                          text);
    return mem_printf(t, "%s%s%s", at->file ? at->file : "", *text ? ": " : "", text);
}

bool tg_expand(struct tgc *t, struct tg_library *l, const struct custom *c, struct tg_call *call)
{
    struct expansion x = {.c = c, .call = call};
    call->nout = 0;
    if (call->depth >= MAX_NESTING)
        return diag_error(t, &call->at, "definitions call each other more than %d deep",
                          MAX_NESTING);
    if (++l->ncall > MAX_CALLS)
        return diag_error(t, &call->at, "more than %d calls of definitions", MAX_CALLS);
    custom_reader(&x.r, t, l, c, &c->body);
    x.r.within = mem_printf(t, "in '%s' of %s", c->name, place_text(t, &call->at));
    x.r.depth = call->depth + 1;
    x.r.origin_of_call = call->origin;
    x.value = mem_array(t, (size_t)c->npart + 1, sizeof *x.value);
    for (int i = 0; i <= c->npart; i++)
        x.value[i].name = "";
    x.in = mem_array(t, (size_t)c->npart + 1, sizeof(struct uop *));
    return bind_parts(&x) && (c->external ? call_function(&x) : expand_definition(&x));
}

/* ---- gradients */

struct text_gradient {
    struct external_gradient base;
    struct tg_library *library;
    const struct custom *of, *by;
};

/* The attributes of the call that its gradient has, too. */
static int take_attributes(const struct text_gradient *g, const struct host_call *h,
                           const struct place *at, struct tg_argument *to)
{
    const struct external *e = h->external;
    int n = 0;
    for (int i = 0, param = 0; i < e->nargument; param += external_params(h, i++)) {
        const struct external_argument *a = &e->argument[i];
        if (a->kind == EXTERNAL_OPERAND || a->kind == EXTERNAL_RESULT ||
            a->kind == EXTERNAL_SCRATCH || tg_custom_attribute(g->by, a->name) != a->kind)
            continue;
        to[n] = (struct tg_argument){.name = a->name, .kind = a->kind, .at = *at};
        if (a->kind == EXTERNAL_INT)
            to[n].i = h->param[param];
        else
            to[n].v = h->value[i];
        n++;
    }
    return n;
}

static bool differentiate(const struct external_gradient *base, const struct lib *l,
                         const struct uop *host, struct uop *const *dy, struct uop **dx)
{
    const struct text_gradient *g = (const struct text_gradient *)(const void *)base;
    const struct host_call *h = host->arg.p;
    const struct external *e = h->external;
    const size_t most = (size_t)e->nargument + (size_t)h->nout + 1;
    struct uop **in = mem_array(l->t, most, sizeof *in);
    struct uop **out = mem_array(l->t, most, sizeof *out);
    struct place *at = mem_array(l->t, most, sizeof *at);
    struct tg_argument *attribute = mem_array(l->t, most, sizeof *attribute);
    struct tg_call call = {.in = in,
                           .in_at = at,
                           .attribute = attribute,
                           .origin = l->t->current_origin,
                           .out = out,
                           .most = (int)most};
    if (l->at)
        call.at = *l->at;
    int source = 0, made = 0;
    for (int i = 0; i < e->nargument; i++)
        if (e->argument[i].kind == EXTERNAL_OPERAND)
            in[call.nin++] = h->value[i].absent ? NULL : host->src[source++];
    for (int k = 0; k < h->nout - g->of->has_scratch; k++)
        if (dtype_is_float(h->out[k].dtype))
            in[call.nin++] = dy[k];
    for (size_t i = 0; i < most; i++)
        at[i] = call.at;
    call.nattribute = take_attributes(g, h, &call.at, attribute);
    if (!tg_expand(l->t, g->library, g->by, &call))
        return false;
    source = 0;
    for (int i = 0; i < e->nargument; i++) {
        const struct external_argument *a = &e->argument[i];
        if (a->kind != EXTERNAL_OPERAND)
            continue;
        struct uop *d = dtype_is_float(a->dtype) ? out[made++] : NULL;
        if (h->value[i].absent)
            continue;
        struct uop *x = host->src[source];
        bool fits = !d || (d->dtype == x->dtype && d->ndim == x->ndim);
        for (int k = 0; d && fits && k < x->ndim; k++)
            fits = sym_must_equal(l->t, d->dim[k], x->dim[k]);
        if (!fits)
            return diag_error(l->t, &call.at, "'%s', the gradient of '%s', makes %s for the operand "
                                              "%%%s, which is %s",
                              g->by->name, g->of->name, lib_describe(l, d), a->name,
                              lib_describe(l, x));
        dx[source++] = d;
    }
    return true;
}

const struct external_gradient *custom_gradient(struct tgc *t, struct tg_library *l,
                                                const struct custom *c)
{
    struct text_gradient *g = MEM_NEW(t, struct text_gradient);
    *g = (struct text_gradient){{c->gradient->name, differentiate}, l, c, c->gradient};
    return &g->base;
}

/* The operands of a statement; bare numbers have the dtype of the declaration. */
static bool statement_operands(struct call *c, const struct custom *custom, struct uop **in,
                               struct place *at)
{
    for (int k = 0, part = 0; k < c->narg; k++, part++) {
        while (part < custom->npart && custom_is_attribute(&custom->part[part]))
            part++;
        const struct custom_part *p = part < custom->npart ? &custom->part[part] : NULL;
        struct uop like = {.dtype = p ? p->dtype : DTYPE_VOID};
        bool typed = p && p->kind == EXTERNAL_OPERAND && p->is_typed && !p->is_any;
        in[k] = typed ? call_arg_like(c, k, &like) : call_arg(c, k);
        at[k] = lex_place(c->r, &c->arg[k].at);
    }
    return !c->failed;
}

bool custom_run(struct call *c, const struct custom *custom)
{
    struct reader *r = c->r;
    struct uop **in = mem_array(r->t, (size_t)c->narg + 1, sizeof *in);
    struct place *at = mem_array(r->t, (size_t)c->narg + 1, sizeof *at);
    struct tg_argument *attribute = mem_array(r->t, (size_t)c->nattr + 1, sizeof *attribute);
    struct tg_call call = {.at = lex_place(r, &c->at),
                           .nin = c->narg,
                           .in = in,
                           .in_at = at,
                           .nattribute = c->nattr,
                           .attribute = attribute,
                           .depth = r->depth,
                           .origin = r->t->current_origin,
                           .out = c->result,
                           .most = c->nwanted};
    for (int i = 0; i < c->nattr; i++) {
        struct custom_part p = {.name = c->attr[i].name,
                                .kind = tg_custom_attribute(custom, c->attr[i].name)};
        attribute[i] = (struct tg_argument){.name = p.name, .at = lex_place(r, &c->attr[i].at)};
        if (p.kind != EXTERNAL_SCRATCH && !custom_value(r, &p, &c->attr[i].value, &attribute[i]))
            return false;
    }
    if (!statement_operands(c, custom, in, at) || !tg_expand(r->t, r->library, custom, &call))
        return false;
    c->nresult = call.nout;
    return true;
}
