/* inputs.c - the initializers and inputs of a graph, and the symbols of their dimensions.
 *
 *      initializers   -> BUFFER_WEIGHT     of one element: constants, unless keep_scalars
 *      inputs         -> BUFFER_INPUT      those that no initializer gives, in the model's order
 *      dim_params     -> symbols           the same name the same symbol; --shape fixes them, --dim
 * fixes or bounds them; a dimension without a name is INPUT_dimK; what nothing bounds is reported
 * all at once
 */
#include "frontend/onnx/lower.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SUM_NAME_MOST = 256, NUMBER_MOST = 10 };  /* characters of a sum's name, of a number in it */

/* -------------------------------------------------------------------------------------- symbols */

static bool is_fixed(const TensorShapeProto__Dimension *d)
{
    return d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0;
}

static const char *symbol_name(struct tgc *t, const char *input,
                               const TensorShapeProto__Dimension *d, int axis)
{
    return onnx_dim_is_named(d) ? d->dim_param : mem_printf(t, "%s_dim%d", input, axis);
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
    VEC_PUSH(l->t, l->symbol, l->nsymbol, l->cap_symbol,
             ((struct symbol){.name = name, .input = input, .axis = axis}));
    return &l->symbol[l->nsymbol - 1];
}

static const struct onnx_shape_option *shape_option(const struct lower *l, const char *input)
{
    for (int i = 0; l->options && i < l->options->nshape; i++)
        if (!strcmp(l->options->shape[i].input, input))
            return &l->options->shape[i];
    return NULL;
}

/* --shape fixes the symbols of one input; it has to agree with fixed dimensions. */
static bool apply_shape(struct lower *l, const ValueInfoProto *in, const TensorShapeProto *shape)
{
    struct tgc *t = l->t;
    const struct onnx_shape_option *o = shape_option(l, in->name);
    struct place at = onnx_place_value(l->model, "graph input", in->name);
    if (!o || !shape)
        return true;
    if (o->ndim != (int)shape->n_dim)
        return diag_error(t, &at, "--shape gives rank %d, but the model says rank %d", o->ndim,
                          (int)shape->n_dim);
    for (int a = 0; a < o->ndim; a++) {
        const TensorShapeProto__Dimension *d = shape->dim[a];
        if (o->dim[a] < 0)
            continue;
        if (is_fixed(d)) {
            if (d->dim_value != o->dim[a])
                return diag_error(
                    t, &at, "--shape gives %" PRId64 " for axis %d, but the model says %" PRId64
                            ", a size that its nodes may rely on: export it with this axis open "
                            "(dynamic_axes or dynamic_shapes), or write a name for the number into "
                            "the input's shape (onnx.tools.update_model_dims)",
                    o->dim[a], a, d->dim_value);
            continue;
        }
        struct symbol *s = symbol_get(l, symbol_name(t, in->name, d, a), in->name, a);
        int64_t have;
        if (s->dim && uop_const_int(s->dim, &have) && have != o->dim[a])
            return diag_error(t, &at,
                              "--shape gives %" PRId64
                              " for axis %d, but dimension '%s' is %" PRId64 " in input '%s'",
                              o->dim[a], a, s->name, have, s->input);
        s->dim = uop_int(t, o->dim[a]);
    }
    return true;
}

static void apply_dim_options(struct lower *l)
{
    for (int i = 0; l->options && i < l->options->ndim; i++) {
        const struct onnx_dim_option *o = &l->options->dim[i];
        struct symbol *s = symbol_find(l, o->name);
        if (!s)
            continue;
        l->option_used[i] = true;
        if (o->min == o->max) {
            s->dim = uop_int(l->t, o->max);
        } else {
            struct var *v = var_new(l->t, s->name, o->min, o->max);
            VEC_PUSH(l->t, l->var, l->nvar, l->cap_var, v);
            s->dim = uop_var(l->t, v);
        }
    }
}

struct uop *lower_dim_named(const struct lower *l, const char *name)
{
    for (int i = 0; i < l->nsymbol; i++)
        if (!strcmp(l->symbol[i].name, name))
            return l->symbol[i].dim;
    return NULL;
}

bool lower_check_dim_options(struct lower *l)
{
    bool ok = true;
    for (int i = 0; l->options && i < l->options->ndim; i++) {
        if (l->option_used[i])
            continue;
        struct text x = {.t = l->t};
        int n = 0;
        for (int k = 0; k < l->nsymbol; k++)
            text_printf(&x, "%s'%s'", n++ ? ", " : "", l->symbol[k].name);
        for (int k = 0; k < l->nfound; k++)
            text_printf(&x, "%s'%s'", n++ ? ", " : "", l->found[k].name);
        struct place at = onnx_place_model(l->model);
        ok = diag_error(l->t, &at, "--dim names '%s', but %s%s", l->options->dim[i].name,
                        n ? "the dimensions that can be chosen are "
                          : "every dimension of the model is fixed",
                        x.s ? x.s : "");
    }
    return ok;
}

const char *onnx_next_term(struct tgc *t, const char **rest)
{
    const char *begin = *rest + strspn(*rest, " ");
    size_t n = strcspn(begin, "+");
    *rest = begin + n + (begin[n] == '+');
    while (n > 0 && begin[n - 1] == ' ')
        n--;
    return mem_printf(t, "%.*s", (int)n, begin);
}

/* What exporters name "past_sequence_length + sequence_length" or "past + 1": the sum of dimensions
 * that have names of their own, and of numbers. NULL: it is a name like any other. A given --dim of
 * the whole name comes first. */
static struct uop *sum_of_symbols(struct lower *l, const char *name)
{
    struct uop *sum = NULL;
    if (!strchr(name, '+') || strlen(name) > SUM_NAME_MOST)
        return NULL;
    for (const char *rest = name; rest == name || rest[-1] == '+';) {
        const char *term = onnx_next_term(l->t, &rest);
        struct uop *dim = lower_dim_named(l, term);
        if (*term && strspn(term, "0123456789") == strlen(term) && strlen(term) < NUMBER_MOST)
            dim = uop_int(l->t, strtoll(term, NULL, 10));
        if (!dim)
            return NULL;
        sum = sum ? sym_add(l->t, sum, dim) : dim;
    }
    return sum;
}

static bool close_symbols(struct lower *l)
{
    struct text what = {.t = l->t};
    bool *open = mem_array(l->t, (size_t)l->nsymbol + 1, sizeof *open);
    int missing = 0;
    for (int i = 0; i < l->nsymbol; i++)
        if (!l->symbol[i].dim)
            l->symbol[i].dim = sum_of_symbols(l, l->symbol[i].name);
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
        text_printf(&what, "%s'%s' (axis %d of input '%s')", missing++ ? ", " : "", s->name,
                    s->axis, s->input);
        open[i] = true;
    }
    if (!missing)
        return true;
    struct place at = onnx_place_model(l->model);
    struct suggestion to = lower_suggest(l, open);
    const char *are = missing == 1 ? "this dimension is" : "these dimensions are";
    const char *them = missing == 1 ? "it" : "them";
    if (!to.fixed)
        return diag_error(l->t, &at,
                          "%s unknown: %s; fix %s with --dim NAME=N, or keep %s open up to a bound "
                          "with --dim NAME=..N; no size that was tried works: %s",
                          are, what.s, them, them,
                          to.why ? to.why : "the model is too large to try");
    if (!to.bound)
        return diag_error(l->t, &at, "%s unknown: %s; fix %s with\n   %s", are, what.s, them,
                          to.fixed);
    return diag_error(
        l->t, &at, "%s unknown: %s; fix %s with\n   %s\nor keep %s open up to a bound with\n   %s",
        are, what.s, them, to.fixed, them, to.bound);
}

/* ---------------------------------------------------------------------- inputs and initializers */

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

/* An initializer: a weight that the model names, of one element a constant. */
static struct uop *initial_from(struct lower *l, const struct onnx_tensor *x)
{
    const struct onnx_graph_options *o = l->options;
    bool keeps = o && (o->keep_scalars || (o->trains && x->ndim)) && dtype_is_float(x->dtype);
    if (x->dtype == DTYPE_STRING || (x->nelem == 1 && !keeps))
        return constant_from(l, x);
    return tensor_weight(l->t, x->dtype, x->dim, x->ndim, x->data, x->nbytes, x->name, false);
}

/* A tensor without a name has that of what the node makes. */
struct uop *lower_tensor(const struct node *n, const char *attribute, const TensorProto *p)
{
    struct onnx_tensor x;
    struct place at = onnx_place_attr(n->lower->model, n->proto, attribute);
    if (!onnx_decode_tensor(n->lower->model, &at, p, &x))
        return NULL;
    if (!*x.name && n->proto->n_output)
        x.name = n->proto->output[0];
    return constant_from(n->lower, &x);
}

struct uop *lower_sparse_tensor(const struct node *n, const char *attribute,
                                const SparseTensorProto *p)
{
    struct onnx_tensor x;
    struct place at = onnx_place_attr(n->lower->model, n->proto, attribute);
    return onnx_decode_sparse_tensor(n->lower->model, &at, p, &x) ? constant_from(n->lower, &x)
                                                                  : NULL;
}

/* That OUT=IN ends so is enough to look at it. */
bool lower_is_state(const struct lower *l, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; l->options && i < l->options->nstate; i++) {
        const char *s = l->options->state[i];
        size_t length = strlen(s);
        if (length > n && s[length - n - 1] == '=' && strcmp(s + length - n, name) == 0)
            return true;
    }
    return false;
}

static const TensorProto *initializer_of(const GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0)
            return g->initializer[i];
    return NULL;
}

static bool is_input(const GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_input; i++)
        if (strcmp(g->input[i]->name, name) == 0)
            return true;
    return false;
}

/* The model's initial value of a state's input, which the first run reads. */
static bool set_first(struct lower *l, const GraphProto *g, struct buffer *b)
{
    const TensorProto *p = initializer_of(g, b->name);
    struct onnx_tensor x;
    struct place at = onnx_place_value(l->model, "initializer", b->name);
    struct uop *dim[MAX_RANK];
    if (!p)
        return true;
    if (!onnx_decode_tensor(l->model, &at, p, &x))
        return false;
    if (x.dtype != b->dtype)
        return diag_error(l->t, &at, "is of %s, the input of this name of %s", dtype_name(x.dtype),
                          dtype_name(b->dtype));
    for (int a = 0; a < x.ndim; a++)
        dim[a] = uop_int(l->t, x.dim[a]);
    b->port.first = buffer_new(l->t, BUFFER_WEIGHT, x.dtype, dim, x.ndim,
                          mem_printf(l->t, "%s_first", b->name));
    b->port.first->weight.data = x.data;
    b->port.first->nbytes = x.nbytes;
    return true;
}

bool lower_initializers(struct lower *l, struct scope *s, const GraphProto *g)
{
    bool ok = true;
    for (size_t i = 0; i < g->n_initializer; i++) {
        struct onnx_tensor x;
        const TensorProto *p = g->initializer[i];
        struct place at = onnx_place_value(l->model, "initializer", p->name);
        if (lower_is_state(l, p->name) && is_input(g, p->name))
            continue;
        if (onnx_decode_tensor(l->model, &at, p, &x))
            scope_set(l->t, s, p->name, value_tensor(l->t, initial_from(l, &x)));
        else
            ok = false;
    }
    for (size_t i = 0; i < g->n_sparse_initializer; i++) {
        struct onnx_tensor x;
        const SparseTensorProto *p = g->sparse_initializer[i];
        const char *name = p->values ? p->values->name : "";
        struct place at = onnx_place_value(l->model, "sparse initializer", name);
        if (onnx_decode_sparse_tensor(l->model, &at, p, &x))
            scope_set(l->t, s, name, value_tensor(l->t, initial_from(l, &x)));
        else
            ok = false;
    }
    return ok;
}

/* The model's inputs that no initializer gives, and the tensors that stand for them. */
struct open_inputs {
    struct border_input *border; int nborder;
    ValueInfoProto **tensor; int ntensor; size_t cap_tensor;
};

static bool open_inputs(struct lower *l, const struct scope *s, const GraphProto *g,
                        struct open_inputs *v)
{
    bool ok = true;
    v->border = mem_array(l->t, g->n_input + 1, sizeof *v->border);
    for (size_t i = 0; i < g->n_input; i++) {
        if (scope_get(s, g->input[i]->name))
            continue;
        struct border_input *b = &v->border[v->nborder++];
        ok = border_open(l, g->input[i], b) && ok;
        for (int k = 0; k < b->count; k++)
            VEC_PUSH(l->t, v->tensor, v->ntensor, v->cap_tensor, b->tensor[k]);
    }
    return ok;
}

static bool check_input(struct lower *l, const ValueInfoProto *in)
{
    struct place at = onnx_place_value(l->model, "graph input", in->name);
    const TypeProto *type = in->type;
    if (!type || type->value_case != TYPE_PROTO__VALUE_TENSOR_TYPE)
        return diag_error(l->t, &at, "is without a type");
    enum dtype d = dtype_from_onnx(type->tensor_type->elem_type);
    if (d == DTYPE_VOID)
        return diag_error(l->t, &at, "has element type %d%s, which is not supported",
                          type->tensor_type->elem_type,
                          onnx_dtype_hint(type->tensor_type->elem_type));
    if (!type->tensor_type->shape && !shape_option(l, in->name))
        return diag_error(l->t, &at,
                          "has no shape; give it with --shape '%s=1x2x3', with its own dimensions",
                          in->name);
    return true;
}

/* One dimension of an input, once symbols are closed. */
static struct uop *input_dim(struct lower *l, const char *input, const TensorShapeProto *shape,
                             int axis)
{
    if (!shape)
        return uop_int(l->t, shape_option(l, input)->dim[axis]);
    const TensorShapeProto__Dimension *d = shape->dim[axis];
    return is_fixed(d) ? uop_int(l->t, d->dim_value)
                       : symbol_find(l, symbol_name(l->t, input, d, axis))->dim;
}

static const char *input_names(struct lower *l, const struct open_inputs *v)
{
    struct text x = {.t = l->t};
    for (int k = 0; k < v->ntensor; k++)
        text_printf(&x, "%s'%.100s'", k ? ", " : "", v->tensor[k]->name);
    return v->ntensor ? x.s : "none";
}

static bool check_shape_options(struct lower *l, const struct open_inputs *v)
{
    bool ok = true;
    ValueInfoProto *const *in = v->tensor;
    int nin = v->ntensor;
    for (int i = 0; l->options && i < l->options->nlist; i++) {
        bool found = false;
        for (int k = 0; k < v->nborder; k++)
            found |= !strcmp(v->border[k].name, l->options->list[i].input) &&
                     (v->border[k].is_sequence || v->border[k].is_optional);
        struct place at = onnx_place_model(l->model);
        if (!found)
            ok = diag_error(l->t, &at, "--shape gives a list for '%s', but the model has no "
                            "sequence or optional of that name", l->options->list[i].input);
    }
    for (int i = 0; l->options && i < l->options->nshape; i++) {
        bool found = false;
        for (int k = 0; k < nin; k++)
            found |= !strcmp(in[k]->name, l->options->shape[i].input);
        struct place at = onnx_place_model(l->model);
        if (!found)
            ok = diag_error(l->t, &at,
                            "--shape names '%s', but the model has no such input; it has %s",
                            l->options->shape[i].input, input_names(l, v));
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
        if (!fits) /* another shape than the program will have: nothing is known then */
            continue;
        struct onnx_tensor x = {
            .dtype = o->dtype, .ndim = o->ndim, .nelem = 1, .data = o->data, .nbytes = o->nbytes};
        for (int a = 0; a < o->ndim; a++) {
            x.dim[a] = o->dim[a];
            x.nelem *= (size_t)o->dim[a];
        }
        VEC_PUSH(l->t, l->told, l->ntold, l->cap_told,
                 ((struct told_input){.input = input, .value = constant_from(l, &x)}));
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

void lower_report_assumptions(struct lower *l)
{
    for (int i = 0; i < l->ntold; i++) {
        const struct buffer *b = l->told[i].input->arg.p;
        struct place at = onnx_place_value(l->model, "graph input", b->name);
        if (l->told[i].used)
            diag_warn(
                l->t, &at,
                "shapes depend on its value; the program holds for the value that was given alone");
    }
}

bool lower_inputs(struct lower *l, struct scope *s, const GraphProto *g, struct graph *out)
{
    struct tgc *t = l->t;
    struct open_inputs open = {0};
    bool ok = open_inputs(l, s, g, &open) && check_shape_options(l, &open);
    ValueInfoProto *const *in = open.tensor;
    int nin = open.ntensor;
    for (int i = 0; i < nin; i++) {
        if (!check_input(l, in[i])) {
            ok = false;
            continue;
        }
        const TensorShapeProto *shape = in[i]->type->tensor_type->shape;
        for (size_t a = 0; shape && a < shape->n_dim; a++)
            if (!is_fixed(shape->dim[a]))
                symbol_get(l, symbol_name(t, in[i]->name, shape->dim[a], (int)a), in[i]->name,
                           (int)a);
        ok = apply_shape(l, in[i], shape) && ok;
    }
    apply_dim_options(l);
    if (!ok)
        return false;
    if (!close_symbols(l)) {
        lower_check_dim_options(l);
        return false;
    }
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
        struct buffer *b =
            buffer_new(t, BUFFER_INPUT, dtype_from_onnx(type->elem_type), dim, ndim, in[i]->name);
        if (lower_is_state(l, in[i]->name) && !set_first(l, g, b))
            return false;
        out->input[out->ninput++] = uop_buffer(t, b);
        tell_input(l, out->input[i]);
    }
    for (int i = 0, at = 0; i < open.nborder; at += open.border[i++].count)
        scope_set(t, s, open.border[i].name,
                  border_value(t, &open.border[i], out->input + at));
    return true;
}
