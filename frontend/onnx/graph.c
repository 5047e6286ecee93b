/* graph.c - from an unpacked model to the tensor graph: walks the nodes in order and keeps what each name stands for.
 *
 *      model inputs   -> BUFFER_INPUT      dim_params -> symbols, the same name the same symbol; --dim and --shape fix or bound them
 *      initializers   -> BUFFER_WEIGHT     of one element: constants
 *      nodes          -> the lowering functions of operators.def
 *      functions      -> inlined: a scope of their own, attribute references resolved in a copy of each node
 *      subgraphs      -> lowered where their node is, in a scope that looks into the enclosing ones
 *
 * Nesting of subgraphs and calls is bounded (MAX_DEPTH), so is the number of nodes after inlining (MAX_NODES): functions that call
 * functions could double with each level.
 */
#include "frontend/onnx/lower.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_DEPTH = 100, MAX_NODES = 400000 };

/* ------------------------------------------------------------------------------------------------------ scopes */

struct scope_entry { const char *name; struct value *value; };
struct scope {
    const struct scope *parent;
    struct scope_entry *entry;   /* open addressing; power of two */
    size_t cap, n;
};

struct symbol { const char *name; struct uop *dim; const char *input; int axis; bool used; };

struct told_input { struct uop *input, *value; bool used; };

struct lower {
    struct tgc *t;
    struct onnx_model *model;
    const struct onnx_graph_options *options;
    struct symbol *symbol; int nsymbol; size_t cap_symbol;
    struct var **var; int nvar; size_t cap_var;
    struct told_input *told; int ntold; size_t cap_told;
    int depth, nnode;
    bool hinted, limit;
};

struct onnx_model *lower_model(const struct lower *l) { return l->model; }

struct attempt attempt_begin(const struct node *n)
{
    return (struct attempt){n->t->ndiag, n->t->nerror, n->lower->depth};
}

const char *attempt_undo(const struct node *n, struct attempt a)
{
    const char *message = "";
    for (int i = n->t->ndiag - 1; i >= a.ndiag; i--)
        if (n->t->diag[i].severity == SEVERITY_ERROR)
            message = mem_printf(n->t, "%s: %s", n->t->diag[i].at.text ? n->t->diag[i].at.text : "", n->t->diag[i].message);
    n->t->ndiag = a.ndiag;
    n->t->nerror = a.nerror;
    n->lower->depth = a.depth;
    return message;
}

void lower_note_limit(struct lower *l) { l->limit = true; }
bool lower_hit_limit(const struct lower *l) { return l->limit; }

static size_t hash_name(const char *s)
{
    size_t h = 1469598103u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h ^ h >> 29;
}

static struct scope_entry *scope_slot(const struct scope *s, const char *name)
{
    size_t i = hash_name(name) & (s->cap - 1);
    while (s->entry[i].name && strcmp(s->entry[i].name, name))
        i = (i + 1) & (s->cap - 1);
    return &s->entry[i];
}

static void scope_set(struct tgc *t, struct scope *s, const char *name, struct value *v)
{
    if (2 * (s->n + 1) > s->cap) {
        struct scope old = *s;
        s->cap = old.cap ? 2 * old.cap : 64;
        s->entry = mem_array(t, s->cap, sizeof *s->entry);
        for (size_t i = 0; i < old.cap; i++)
            if (old.entry[i].name)
                *scope_slot(s, old.entry[i].name) = old.entry[i];
    }
    struct scope_entry *e = scope_slot(s, name);
    s->n += !e->name;
    *e = (struct scope_entry){name, v};
}

/* NULL for "" and for a function's parameter that its caller left out. */
static struct value *scope_get(const struct scope *s, const char *name)
{
    for (; s && *name; s = s->parent)
        if (s->cap) {
            struct scope_entry *e = scope_slot(s, name);
            if (e->name)
                return e->value;
        }
    return NULL;
}

struct value *value_tensor(struct tgc *t, struct uop *u)
{
    struct value *v = MEM_NEW(t, struct value);
    v->kind = VALUE_TENSOR;
    v->tensor = u;
    return v;
}

struct value *value_sequence(struct tgc *t, struct value *const *item, int nitem, enum dtype dtype)
{
    struct value *v = MEM_NEW(t, struct value);
    v->kind = VALUE_SEQUENCE;
    v->dtype = dtype;
    v->nitem = nitem;
    v->item = mem_array(t, (size_t)nitem + 1, sizeof(struct value *));
    if (nitem)
        memcpy(v->item, item, (size_t)nitem * sizeof *v->item);
    return v;
}

/* ----------------------------------------------------------------------------------------------------- symbols */

static bool is_named(const TensorShapeProto__Dimension *d)
{
    return d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param && strcmp(d->dim_param, "?");
}

static bool is_fixed(const TensorShapeProto__Dimension *d)
{
    return d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0;
}

static const char *symbol_name(struct tgc *t, const char *input, const TensorShapeProto__Dimension *d, int axis)
{
    return is_named(d) ? d->dim_param : mem_printf(t, "%s_dim%d", input, axis);
}

static struct symbol *symbol_find(struct lower *l, const char *name)
{
    for (int i = 0; i < l->nsymbol; i++)
        if (!strcmp(l->symbol[i].name, name))
            return &l->symbol[i];
    return NULL;
}

static struct symbol *symbol_get(struct lower *l, const char *name, const char *input, int axis)
{
    struct symbol *s = symbol_find(l, name);
    if (s)
        return s;
    VEC_PUSH(l->t, l->symbol, l->nsymbol, l->cap_symbol, ((struct symbol){.name = name, .input = input, .axis = axis}));
    return &l->symbol[l->nsymbol - 1];
}

static const struct onnx_shape_option *shape_option(const struct lower *l, const char *input)
{
    for (int i = 0; l->options && i < l->options->nshape; i++)
        if (!strcmp(l->options->shape[i].input, input))
            return &l->options->shape[i];
    return NULL;
}

/* --shape fixes the symbols of one input; what it says of fixed dimensions must agree. */
static bool apply_shape(struct lower *l, const ValueInfoProto *in, const TensorShapeProto *shape)
{
    struct tgc *t = l->t;
    const struct onnx_shape_option *o = shape_option(l, in->name);
    struct place at = onnx_place_value(l->model, "graph input", in->name);
    if (!o || !shape)
        return true;
    if (o->ndim != (int)shape->n_dim)
        return diag_error(t, &at, "--shape gives rank %d, but the model says rank %d", o->ndim, (int)shape->n_dim);
    for (int a = 0; a < o->ndim; a++) {
        const TensorShapeProto__Dimension *d = shape->dim[a];
        if (o->dim[a] < 0)
            continue;
        if (is_fixed(d)) {
            if (d->dim_value != o->dim[a])
                return diag_error(t, &at, "--shape gives %" PRId64 " for axis %d, but the model says %" PRId64, o->dim[a], a, d->dim_value);
            continue;
        }
        struct symbol *s = symbol_get(l, symbol_name(t, in->name, d, a), in->name, a);
        int64_t have;
        if (s->dim && uop_const_int(s->dim, &have) && have != o->dim[a])
            return diag_error(t, &at, "--shape gives %" PRId64 " for axis %d, but dimension '%s' is %" PRId64 " in input '%s'", o->dim[a], a,
                              s->name, have, s->input);
        s->dim = uop_int(t, o->dim[a]);
    }
    return true;
}

static bool apply_dim_options(struct lower *l)
{
    bool ok = true;
    for (int i = 0; l->options && i < l->options->ndim; i++) {
        const struct onnx_dim_option *o = &l->options->dim[i];
        struct symbol *s = symbol_find(l, o->name);
        if (!s) {
            struct text x = {.t = l->t};
            for (int k = 0; k < l->nsymbol; k++)
                text_printf(&x, "%s'%s'", k ? ", " : "", l->symbol[k].name);
            struct place at = onnx_place_model(l->model);
            ok = diag_error(l->t, &at, "--dim names '%s', but %s%s", o->name,
                            l->nsymbol ? "the dimensions that can be chosen are " : "every dimension of the model is fixed", x.s ? x.s : "");
        } else if (o->min == o->max) {
            s->dim = uop_int(l->t, o->max);
        } else {
            struct var *v = var_new(l->t, s->name, o->min, o->max);
            VEC_PUSH(l->t, l->var, l->nvar, l->cap_var, v);
            s->dim = uop_var(l->t, v);
        }
    }
    return ok;
}

/* For a shell: quotes where needed. */
static void put_quoted(struct text *x, const char *s)
{
    text_putc(x, '\'');
    for (; *s; s++)
        if (*s == '\'')
            text_puts(x, "'\\''");
        else
            text_putc(x, *s);
}

static bool close_symbols(struct lower *l)
{
    struct text what = {.t = l->t}, fix = {.t = l->t}, bound = {.t = l->t};
    int missing = 0;
    for (int i = 0; i < l->nsymbol; i++) {
        struct symbol *s = &l->symbol[i];
        if (s->dim)
            continue;
        if (l->options && l->options->default_max > 0) {
            struct var *v = var_new(l->t, s->name, 1, l->options->default_max);
            VEC_PUSH(l->t, l->var, l->nvar, l->cap_var, v);
            s->dim = uop_var(l->t, v);
            continue;
        }
        text_printf(&what, "%s'%s' (axis %d of input '%s')", missing++ ? ", " : "", s->name, s->axis, s->input);
        text_puts(&fix, " --dim ");
        put_quoted(&fix, s->name);
        text_puts(&fix, "=1'");
        text_puts(&bound, " --dim ");
        put_quoted(&bound, s->name);
        text_puts(&bound, "<=8'");
    }
    if (!missing)
        return true;
    struct place at = onnx_place_model(l->model);
    return diag_error(l->t, &at, "%s unknown: %s; fix %s with\n   %s\nor keep %s open up to a bound with\n   %s",
                      missing == 1 ? "this dimension is" : "these dimensions are", what.s, missing == 1 ? "it" : "them", fix.s,
                      missing == 1 ? "it" : "them", bound.s);
}

/* ------------------------------------------------------------------------------------- inputs and initializers */

static struct uop *constant_from(struct lower *l, const struct onnx_tensor *x)
{
    struct tgc *t = l->t;
    if (x->nelem != 1 || x->dtype == DTYPE_STRING)
        return tensor_from_data(t, x->dtype, x->dim, x->ndim, x->data, x->nbytes, x->name);
    struct uop *one[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        one[a] = uop_int(t, 1);
    return uop_reshape(t, uop_const(t, x->dtype, scalar_load(x->dtype, x->data)), one, x->ndim);
}

struct uop *lower_tensor(const struct node *n, const char *attribute, const TensorProto *p)
{
    struct onnx_tensor x;
    struct place at = onnx_place_attr(n->lower->model, n->proto, attribute);
    return onnx_decode_tensor(n->lower->model, &at, p, &x) ? constant_from(n->lower, &x) : NULL;
}

struct uop *lower_sparse_tensor(const struct node *n, const char *attribute, const SparseTensorProto *p)
{
    struct onnx_tensor x;
    struct place at = onnx_place_attr(n->lower->model, n->proto, attribute);
    return onnx_decode_sparse_tensor(n->lower->model, &at, p, &x) ? constant_from(n->lower, &x) : NULL;
}

static bool lower_initializers(struct lower *l, struct scope *s, const GraphProto *g)
{
    bool ok = true;
    for (size_t i = 0; i < g->n_initializer; i++) {
        struct onnx_tensor x;
        const TensorProto *p = g->initializer[i];
        struct place at = onnx_place_value(l->model, "initializer", p->name);
        if (onnx_decode_tensor(l->model, &at, p, &x))
            scope_set(l->t, s, p->name, value_tensor(l->t, constant_from(l, &x)));
        else
            ok = false;
    }
    for (size_t i = 0; i < g->n_sparse_initializer; i++) {
        struct onnx_tensor x;
        const SparseTensorProto *p = g->sparse_initializer[i];
        const char *name = p->values ? p->values->name : "";
        struct place at = onnx_place_value(l->model, "sparse initializer", name);
        if (onnx_decode_sparse_tensor(l->model, &at, p, &x))
            scope_set(l->t, s, name, value_tensor(l->t, constant_from(l, &x)));
        else
            ok = false;
    }
    return ok;
}

/* The model's inputs that no initializer gives. */
static ValueInfoProto **open_inputs(struct lower *l, const struct scope *s, const GraphProto *g, int *n)
{
    ValueInfoProto **v = mem_array(l->t, g->n_input + 1, sizeof(ValueInfoProto *));
    *n = 0;
    for (size_t i = 0; i < g->n_input; i++)
        if (!scope_get(s, g->input[i]->name))
            v[(*n)++] = g->input[i];
    return v;
}

static bool check_input(struct lower *l, const ValueInfoProto *in)
{
    struct place at = onnx_place_value(l->model, "graph input", in->name);
    const TypeProto *type = in->type;
    if (!type || type->value_case != TYPE_PROTO__VALUE_TENSOR_TYPE)
        return diag_error(l->t, &at, "is %s, but only tensors can be inputs",
                          !type ? "without a type"
                          : type->value_case == TYPE_PROTO__VALUE_SEQUENCE_TYPE   ? "a sequence"
                          : type->value_case == TYPE_PROTO__VALUE_OPTIONAL_TYPE   ? "an optional"
                          : type->value_case == TYPE_PROTO__VALUE_MAP_TYPE        ? "a map"
                                                                                  : "no tensor");
    enum dtype d = dtype_from_onnx(type->tensor_type->elem_type);
    if (d == DTYPE_VOID || d == DTYPE_STRING)
        return diag_error(l->t, &at, "has element type %d%s, which is not supported", type->tensor_type->elem_type,
                          d == DTYPE_STRING ? " (string)" : "");
    if (!type->tensor_type->shape && !shape_option(l, in->name))
        return diag_error(l->t, &at, "has no shape; give it with --shape '%s=1x2x3', with its own dimensions", in->name);
    return true;
}

/* One dimension of an input, once symbols are closed. */
static struct uop *input_dim(struct lower *l, const char *input, const TensorShapeProto *shape, int axis)
{
    if (!shape)
        return uop_int(l->t, shape_option(l, input)->dim[axis]);
    const TensorShapeProto__Dimension *d = shape->dim[axis];
    return is_fixed(d) ? uop_int(l->t, d->dim_value) : symbol_find(l, symbol_name(l->t, input, d, axis))->dim;
}

static bool check_shape_options(struct lower *l, ValueInfoProto *const *in, int nin)
{
    bool ok = true;
    for (int i = 0; l->options && i < l->options->nshape; i++) {
        bool found = false;
        for (int k = 0; k < nin; k++)
            found |= !strcmp(in[k]->name, l->options->shape[i].input);
        struct place at = onnx_place_model(l->model);
        if (!found)
            ok = diag_error(l->t, &at, "--shape names '%s', but the model has no such input", l->options->shape[i].input);
    }
    return ok;
}

static void tell_input(struct lower *l, struct uop *input)
{
    const struct buffer *b = input->arg.p;
    for (int i = 0; l->options && i < l->options->nvalue; i++) {
        const struct onnx_value_option *o = &l->options->value[i];
        if (strcmp(o->input, b->name))
            continue;
        bool fits = o->dtype == input->dtype && o->ndim == input->ndim;
        for (int a = 0; fits && a < o->ndim; a++)
            fits = uop_is_int(input->dim[a], o->dim[a]);
        if (!fits)                       /* another shape than the program will have: nothing is known then */
            continue;
        struct onnx_tensor x = {.dtype = o->dtype, .ndim = o->ndim, .nelem = 1, .data = o->data, .nbytes = o->nbytes};
        for (int a = 0; a < o->ndim; a++) {
            x.dim[a] = o->dim[a];
            x.nelem *= (size_t)o->dim[a];
        }
        VEC_PUSH(l->t, l->told, l->ntold, l->cap_told, ((struct told_input){.input = input, .value = constant_from(l, &x)}));
    }
}

static struct uop *assume_input(struct tgc *t, void *ctx, struct uop *u)
{
    struct lower *l = ctx;
    (void)t;
    for (int i = 0; i < l->ntold && u->op == OP_BUFFER; i++)
        if (l->told[i].input == u) {
            l->told[i].used = true;
            return l->told[i].value;
        }
    return NULL;
}

struct uop *lower_assume(struct lower *l, struct uop *x)
{
    if (l->ntold)
        uop_rewrite(l->t, &x, 1, assume_input, l);
    return x;
}

static void report_assumptions(struct lower *l)
{
    for (int i = 0; i < l->ntold; i++) {
        const struct buffer *b = l->told[i].input->arg.p;
        struct place at = onnx_place_value(l->model, "graph input", b->name);
        if (l->told[i].used)
            diag_warn(l->t, &at, "shapes depend on its value; the program holds for the value that was given alone");
    }
}

static bool lower_inputs(struct lower *l, struct scope *s, const GraphProto *g, struct graph *out)
{
    struct tgc *t = l->t;
    int nin;
    ValueInfoProto **in = open_inputs(l, s, g, &nin);
    bool ok = check_shape_options(l, in, nin);
    for (int i = 0; i < nin; i++) {
        if (!check_input(l, in[i])) {
            ok = false;
            continue;
        }
        const TensorShapeProto *shape = in[i]->type->tensor_type->shape;
        for (size_t a = 0; shape && a < shape->n_dim; a++)
            if (!is_fixed(shape->dim[a]))
                symbol_get(l, symbol_name(t, in[i]->name, shape->dim[a], (int)a), in[i]->name, (int)a);
        ok = apply_shape(l, in[i], shape) && ok;
    }
    if (!ok || !apply_dim_options(l) || !close_symbols(l))
        return false;
    out->input = mem_array(t, (size_t)nin + 1, sizeof(struct uop *));
    for (int i = 0; i < nin; i++) {
        const TypeProto__Tensor *type = in[i]->type->tensor_type;
        struct uop *dim[MAX_RANK];
        int ndim = type->shape ? (int)type->shape->n_dim : shape_option(l, in[i]->name)->ndim;
        for (int a = 0; a < ndim; a++) {
            dim[a] = input_dim(l, in[i]->name, type->shape, a);
            struct place at = onnx_place_value(l->model, "graph input", in[i]->name);
            if (dim[a]->vmin < 0)
                return diag_error(t, &at, "axis %d has no size; --shape must give it", a);
        }
        struct buffer *b = buffer_new(t, BUFFER_INPUT, dtype_from_onnx(type->elem_type), dim, ndim, in[i]->name);
        out->input[out->ninput++] = uop_buffer(t, b);
        scope_set(t, s, in[i]->name, value_tensor(t, out->input[i]));
        tell_input(l, out->input[i]);
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------- nodes */

static bool lower_nodes(struct lower *l, struct scope *s, const struct call *call, NodeProto *const *node, size_t nnode);

static const char *plain_domain(const char *domain) { return strcmp(domain, "ai.onnx") ? domain : ""; }

/* Inside a function: a copy of the node whose attribute references are replaced by what the caller gave, or by the function's
 * default, or dropped. */
static const NodeProto *resolve_attributes(struct lower *l, const struct call *call, const NodeProto *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n_attribute; i++)
        any |= *p->attribute[i]->ref_attr_name != 0;
    if (!any || !call)
        return p;
    NodeProto *copy = mem_copy(l->t, p, sizeof *p);
    copy->attribute = mem_array(l->t, p->n_attribute + 1, sizeof *copy->attribute);
    copy->n_attribute = 0;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const AttributeProto *a = p->attribute[i];
        if (*a->ref_attr_name) {
            const AttributeProto *given = onnx_attr(call->caller, a->ref_attr_name);
            for (size_t k = 0; !given && k < call->function->n_attribute_proto; k++)
                if (!strcmp(call->function->attribute_proto[k]->name, a->ref_attr_name))
                    given = call->function->attribute_proto[k];
            if (!given)
                continue;
            AttributeProto *renamed = mem_copy(l->t, given, sizeof *given);
            renamed->name = a->name;
            a = renamed;
        }
        copy->attribute[copy->n_attribute++] = (AttributeProto *)a;
    }
    onnx_site_copy(l->model, copy, p);
    return copy;
}

static bool inline_function(struct node *n, const FunctionProto *f)
{
    struct lower *l = n->lower;
    struct scope body = {0};
    struct call call = {.caller = n->proto, .function = f};
    if ((size_t)n->nin > f->n_input || (size_t)n->nout > f->n_output)
        return node_error(n, -1, "function '%s' has %zu inputs and %zu outputs, but is called with %d and %d", f->name, f->n_input,
                          f->n_output, n->nin, n->nout);
    if (++l->depth > MAX_DEPTH)
        return node_error(n, -1, "calls and subgraphs are nested more than %d deep", MAX_DEPTH);
    for (size_t k = 0; k < f->n_input; k++)
        scope_set(l->t, &body, f->input[k], k < (size_t)n->nin ? n->value_in[k] : NULL);
    if (!lower_nodes(l, &body, &call, f->node, f->n_node))
        return false;
    for (int k = 0; k < n->nout; k++)
        n->value_out[k] = scope_get(&body, f->output[k]);
    l->depth--;
    return true;
}

/* What operators.def says of an operator's inputs. */
static bool check_operands(const struct node *n)
{
    const struct operator *o = n->operator;
    bool takes_any = o->kinds[0] == 'S';
    if (o->max_in >= 0 && n->nin > o->max_in)
        return node_error(n, -1, "has %d inputs, but takes at most %d", n->nin, o->max_in);
    for (int k = 0; k < n->nin || k < o->min_in; k++) {
        if (k >= n->nin || !n->value_in[k]) {
            if (k < o->min_in)
                return node_error(n, k, "input %d is missing", k);
            continue;
        }
        if (!n->in[k] && !takes_any)
            return node_error(n, k, "a tensor is expected, found %s", n->value_in[k]->kind == VALUE_SEQUENCE ? "a sequence" : "an optional");
    }
    if (n->nin && n->in[0] && *o->kinds) {
        char kind = dtype_kind(n->in[0]->dtype);
        if (!takes_any && !strchr(o->kinds, kind))
            return node_error(n, 0, "dtype %s is not supported by this operator", dtype_name(n->in[0]->dtype));
    }
    for (int k = 0; k < n->nin; k++)
        if (n->in[k] && n->in[k]->dtype == DTYPE_STRING)
            return node_error(n, k, "tensors of strings are not supported");
    return true;
}

/* A node may have failed because a dimension is open that the model cannot leave open: says so, once. */
static void hint_open_dimensions(const struct node *n)
{
    struct lower *l = n->lower;
    struct text names = {.t = l->t};
    bool open = false;
    for (int k = 0; k < n->nin; k++)
        for (int a = 0; n->in[k] && a < n->in[k]->ndim; a++)
            open |= n->in[k]->dim[a]->op != OP_CONST;
    if (!open || !l->nvar || l->hinted)
        return;
    for (int i = 0; i < l->nvar; i++) {
        text_puts(&names, " --dim ");
        put_quoted(&names, l->var[i]->name);
        text_puts(&names, "=N'");
    }
    l->hinted = true;
    diag_warn(l->t, &n->at, "its inputs have open dimensions; if the model only holds together for some sizes, fix them with%s", names.s);
}

static bool bind_outputs(struct lower *l, struct scope *s, struct node *n)
{
    for (int k = 0; k < n->nout; k++) {
        const char *name = n->proto->output[k];
        if (!*name)
            continue;
        if (!n->value_out[k] && n->out[k])
            n->value_out[k] = value_tensor(l->t, n->out[k]);
        if (!n->value_out[k])
            return node_error(n, -1, "output %d '%s' is not supported", k, name);
        if (n->value_out[k]->tensor && n->value_out[k]->tensor->ndim > MAX_RANK)
            return node_error(n, -1, "output %d has a rank above %d", k, MAX_RANK);
        scope_set(l->t, s, name, n->value_out[k]);
    }
    return true;
}

static bool lower_node(struct lower *l, struct scope *s, const struct call *call, const NodeProto *p)
{
    struct tgc *t = l->t;
    const FunctionProto *f = onnx_find_function(l->model, p);
    struct node n = {.t = t, .lower = l, .scope = s, .call = call, .nin = (int)p->n_input, .nout = (int)p->n_output};
    n.proto = resolve_attributes(l, call, p);
    n.at = onnx_place_node(l->model, n.proto);
    n.lib = (struct lib){t, &n.at};
    size_t nin = p->n_input > MIN_SLOTS ? p->n_input : MIN_SLOTS, nout = p->n_output > MIN_SLOTS ? p->n_output : MIN_SLOTS;
    n.value_in = mem_array(t, nin, sizeof *n.value_in);
    n.in = mem_array(t, nin, sizeof *n.in);
    n.value_out = mem_array(t, nout, sizeof *n.value_out);
    n.out = mem_array(t, nout, sizeof *n.out);
    for (int k = 0; k < n.nin; k++) {
        n.value_in[k] = scope_get(s, p->input[k]);
        if (n.value_in[k] && n.value_in[k]->kind == VALUE_TENSOR)
            n.in[k] = n.value_in[k]->tensor;
    }
    if (++l->nnode > MAX_NODES)
        return node_error(&n, -1, "the model has more than %d nodes once functions are inlined and loops unrolled", MAX_NODES);
    int saved = t->current_origin;
    if (f) {
        if (!inline_function(&n, f))
            return false;
    } else {
        n.opset = (int)onnx_opset(l->model, call ? call->function : NULL, p->domain);
        n.operator = operator_find(plain_domain(p->domain), p->op_type, n.opset, NULL);
        if (!n.operator)
            return node_error(&n, -1, "is not supported");
        origin_new(t, p->name, p->op_type, onnx_node_index(l->model, p));
        if (!check_operands(&n) || !n.operator->lower(&n) || t->nerror) {
            hint_open_dimensions(&n);
            return false;
        }
    }
    t->current_origin = saved;
    return bind_outputs(l, s, &n);
}

static bool lower_nodes(struct lower *l, struct scope *s, const struct call *call, NodeProto *const *node, size_t nnode)
{
    for (size_t i = 0; i < nnode; i++)
        if (!lower_node(l, s, call, node[i]))
            return false;
    return true;
}

bool lower_subgraph(const struct node *n, const GraphProto *g, struct value *const *args, int nargs, struct value **out)
{
    struct lower *l = n->lower;
    struct scope body = {.parent = n->scope};
    if ((size_t)nargs != g->n_input)
        return node_error(n, -1, "its subgraph '%s' must have %d inputs, found %zu", g->name, nargs, g->n_input);
    if (++l->depth > MAX_DEPTH)
        return node_error(n, -1, "calls and subgraphs are nested more than %d deep", MAX_DEPTH);
    if (!lower_initializers(l, &body, g))
        return false;
    for (int k = 0; k < nargs; k++)
        scope_set(l->t, &body, g->input[k]->name, args[k]);
    int saved = l->t->current_origin;
    if (!lower_nodes(l, &body, n->call, g->node, g->n_node))
        return false;
    l->t->current_origin = saved;
    for (size_t k = 0; k < g->n_output; k++)
        if (!(out[k] = scope_get(&body, g->output[k]->name)))
            return node_error(n, -1, "output '%s' of its subgraph '%s' is not there", g->output[k]->name, g->name);
    l->depth--;
    return true;
}

/* ------------------------------------------------------------------------------------- operators not supported */

struct missing { const char *domain, *op_type; int opset, count; bool elsewhere; const NodeProto *first; struct text nodes; };
struct missing_list { struct missing *v; int n; size_t cap; };

static void note_missing(struct lower *l, struct missing_list *list, const NodeProto *p, int opset, bool elsewhere)
{
    struct missing *m = NULL;
    for (int i = 0; i < list->n && !m; i++)
        if (!strcmp(list->v[i].op_type, p->op_type) && !strcmp(list->v[i].domain, p->domain) && list->v[i].opset == opset)
            m = &list->v[i];
    if (!m) {
        VEC_PUSH(l->t, list->v, list->n, list->cap,
                 ((struct missing){.domain = p->domain, .op_type = p->op_type, .opset = opset, .elsewhere = elsewhere, .first = p,
                                   .nodes = {.t = l->t}}));
        m = &list->v[list->n - 1];
    }
    if (m->count++ < 5)
        text_printf(&m->nodes, "%s%d '%s'", m->count > 1 ? ", " : "", onnx_node_index(l->model, p), p->name);
}

struct block { NodeProto *const *node; size_t n; const FunctionProto *function; };

/* Every node of the model, subgraphs and called functions included, before anything is lowered: all that is missing at once. */
static bool check_operators(struct lower *l)
{
    struct tgc *t = l->t;
    const GraphProto *g = l->model->proto->graph;
    struct missing_list list = {0};
    struct block *todo = NULL;
    const FunctionProto **seen = NULL;
    int ntodo = 0, nseen = 0;
    size_t cap = 0, cap_seen = 0;
    VEC_PUSH(t, todo, ntodo, cap, ((struct block){g->node, g->n_node, NULL}));
    while (ntodo) {
        struct block b = todo[--ntodo];
        for (size_t i = 0; i < b.n; i++) {
            const NodeProto *p = b.node[i];
            const FunctionProto *f = onnx_find_function(l->model, p);
            bool known = false;
            for (int k = 0; f && k < nseen && !known; k++)
                known = seen[k] == f;
            if (f && !known) {
                VEC_PUSH(t, seen, nseen, cap_seen, f);
                VEC_PUSH(t, todo, ntodo, cap, ((struct block){f->node, f->n_node, f}));
            }
            int opset = (int)onnx_opset(l->model, b.function, p->domain);
            bool elsewhere = false;
            if (!f && !operator_find(plain_domain(p->domain), p->op_type, opset, &elsewhere))
                note_missing(l, &list, p, opset, elsewhere);
            for (size_t a = 0; a < p->n_attribute; a++) {
                const AttributeProto *at = p->attribute[a];
                if (at->g)
                    VEC_PUSH(t, todo, ntodo, cap, ((struct block){at->g->node, at->g->n_node, b.function}));
                for (size_t k = 0; k < at->n_graphs; k++)
                    VEC_PUSH(t, todo, ntodo, cap, ((struct block){at->graphs[k]->node, at->graphs[k]->n_node, b.function}));
            }
        }
    }
    for (int i = 0; i < list.n; i++) {
        const struct missing *m = &list.v[i];
        struct place at = onnx_place_model(l->model);
        if (m->count > 5)
            text_printf(&list.v[i].nodes, " and %d more", m->count - 5);
        diag_error(t, &at, "operator %s%s%s of opset %d is not supported%s: node%s %s", m->domain, *m->domain ? "." : "", m->op_type, m->opset,
                   m->elsewhere ? " at this version" : "", m->count > 1 ? "s" : "", m->nodes.s);
    }
    return !list.n;
}

/* ----------------------------------------------------------------------------------------------------- outputs */

static bool lower_outputs(struct lower *l, const struct scope *s, const GraphProto *g, struct graph *out)
{
    out->output = mem_array(l->t, g->n_output + 1, sizeof *out->output);
    for (size_t i = 0; i < g->n_output; i++) {
        const ValueInfoProto *o = g->output[i];
        struct place at = onnx_place_value(l->model, "graph output", o->name);
        struct value *v = scope_get(s, o->name);
        if (!v || v->kind != VALUE_TENSOR)
            return diag_error(l->t, &at, "is %s, but only tensors can be outputs", !v ? "not there" : v->kind == VALUE_SEQUENCE ? "a sequence" : "an optional");
        const TypeProto__Tensor *type = o->type && o->type->value_case == TYPE_PROTO__VALUE_TENSOR_TYPE ? o->type->tensor_type : NULL;
        enum dtype d = type ? dtype_from_onnx(type->elem_type) : DTYPE_VOID;
        if (d != DTYPE_VOID && d != v->tensor->dtype)
            return diag_error(l->t, &at, "is declared as %s, but the nodes make %s", dtype_name(d), lib_describe(&(struct lib){l->t, &at}, v->tensor));
        if (v->tensor->dtype == DTYPE_STRING)
            return diag_error(l->t, &at, "is a tensor of strings, which is not supported");
        out->output[out->noutput++] = (struct graph_output){o->name, v->tensor};
    }
    return true;
}

struct graph *onnx_lower(struct tgc *t, struct onnx_model *m, const struct onnx_graph_options *options)
{
    const GraphProto *g = m->proto->graph;
    struct lower l = {.t = t, .model = m, .options = options};
    struct scope top = {0};
    struct graph *out = MEM_NEW(t, struct graph);
    out->name = g->name;
    out->producer = mem_printf(t, "%s%s%s", m->proto->producer_name, *m->proto->producer_version ? " " : "", m->proto->producer_version);
    if (!check_operators(&l) || !lower_initializers(&l, &top, g) || !lower_inputs(&l, &top, g, out))
        return NULL;
    if (!lower_nodes(&l, &top, NULL, g->node, g->n_node) || !lower_outputs(&l, &top, g, out))
        return NULL;
    report_assumptions(&l);
    t->current_origin = 0;
    out->var = l.var;
    out->nvar = l.nvar;
    return t->nerror ? NULL : out;
}
