/* border.c - sequences and optionals as inputs and outputs of the graph.
 *
 * A program's inputs and outputs are tensors. A sequence becomes one for each of its items: input
 * 'x' becomes 'x[0]', 'x[1]', ...; an optional is its one value, or nothing. How many there are,
 * and of which shapes, is part of the program, as ranks are: --shape 'x=[2x3,4]' and --shape
 * 'x=absent' say it, see docs/onnx.md.
 *
 *      sequence(tensor)             one input an item
 *      optional(tensor)             one input called like it; there, unless --shape says absent
 *      optional(sequence(tensor))   as the sequence, or absent
 */
#include <string.h>

#include "frontend/onnx/lower.h"

static const struct onnx_list_option *list_option(const struct lower *l, const char *input)
{
    for (int i = 0; l->options && i < l->options->nlist; i++)
        if (!strcmp(l->options->list[i].input, input))
            return &l->options->list[i];
    return NULL;
}

bool onnx_dim_is_named(const TensorShapeProto__Dimension *d)
{
    return d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param &&
           strcmp(d->dim_param, "?");
}

const TypeProto *onnx_element_type(const TypeProto *type, bool *is_optional, bool *is_sequence)
{
    *is_optional = type && type->value_case == TYPE_PROTO__VALUE_OPTIONAL_TYPE;
    if (*is_optional)
        type = type->optional_type->elem_type;
    *is_sequence = type && type->value_case == TYPE_PROTO__VALUE_SEQUENCE_TYPE;
    if (*is_sequence)
        type = type->sequence_type->elem_type;
    return type && type->value_case == TYPE_PROTO__VALUE_TENSOR_TYPE ? type : NULL;
}

/* The i-th item as an input of its own; its own --shape takes precedence over the declared one. */
static ValueInfoProto *item_input(struct lower *l, const ValueInfoProto *in, const TypeProto *type,
                                  int i)
{
    ValueInfoProto *item = mem_copy(l->t, in, sizeof *in);
    if (i >= 0)
        item->name = mem_printf(l->t, "%s[%d]", in->name, i);
    TypeProto *own = mem_copy(l->t, type, sizeof *type);
    own->tensor_type = mem_copy(l->t, type->tensor_type, sizeof *type->tensor_type);
    for (int k = 0; i >= 0 && l->options && k < l->options->nshape; k++)
        if (!strcmp(l->options->shape[k].input, item->name))
            own->tensor_type->shape = NULL;
    item->type = own;
    return item;
}

static bool open_list(struct lower *l, const ValueInfoProto *in, struct border_input *b)
{
    struct place at = onnx_place_value(l->model, "graph input", in->name);
    const struct onnx_list_option *o = list_option(l, in->name);
    bool is_optional, is_sequence;
    const TypeProto *type = onnx_element_type(in->type, &is_optional, &is_sequence);
    if (!type)
        return diag_error(l->t, &at, "is %s, but only tensors, sequences and optionals of them can "
                          "be inputs; remove the nodes that read it, and make their results, which "
                          "are tensors, inputs of the graph",
                          in->type && in->type->value_case == TYPE_PROTO__VALUE_MAP_TYPE
                              ? "a map"
                              : "of another kind");
    b->is_optional = is_optional;
    b->is_sequence = is_sequence;
    b->dtype = dtype_from_onnx(type->tensor_type->elem_type);
    if (o && o->count < 0 && !is_optional)
        return diag_error(l->t, &at, "--shape says absent, but only optionals can be");
    if (o && o->count >= 0 && !is_sequence)
        return diag_error(l->t, &at, "--shape gives a list, but it is no sequence");
    b->is_absent = o && o->count < 0;
    if (!o && is_sequence)
        return diag_error(
            l->t, &at,
            "is a sequence; say how many tensors it has and of which shapes, such as --shape "
            "'%s=[2x3,2x3,scalar]'%s", in->name, is_optional ? ", or absent" : "");
    b->count = b->is_absent ? 0 : is_sequence ? o->count : 1;
    b->tensor = mem_array(l->t, (size_t)b->count + 1, sizeof *b->tensor);
    for (int i = 0; i < b->count; i++)
        b->tensor[i] = item_input(l, in, type, is_sequence ? i : -1);
    return true;
}

bool border_open(struct lower *l, ValueInfoProto *in, struct border_input *b)
{
    const TypeProto *type = in->type;
    b->name = in->name;
    if (type && type->value_case != TYPE_PROTO__VALUE_TENSOR_TYPE &&
        type->value_case != TYPE_PROTO__VALUE__NOT_SET)
        return open_list(l, in, b);
    b->count = 1;
    b->tensor = mem_array(l->t, 1, sizeof *b->tensor);
    b->tensor[0] = in;
    return true;
}

struct value *border_value(struct tgc *t, const struct border_input *b, struct uop *const *x)
{
    struct value *v, **item = mem_array(t, (size_t)b->count + 1, sizeof *item);
    for (int i = 0; i < b->count; i++)
        item[i] = value_tensor(t, x[i]);
    v = b->is_sequence ? value_sequence(t, item, b->count, b->dtype) : item[0];
    return b->is_optional ? value_optional(t, b->is_absent ? NULL : v) : v;
}

/* A declared shape that the nodes do not compute is a contradiction in the model: it is reported,
 * and the nodes decide, as in ONNX Runtime. */
static void compare_declared(struct lower *l, const struct place *at, const TensorShapeProto *shape,
                             const struct uop *x)
{
    struct text said = {.t = l->t};
    bool differs = shape && shape->n_dim != (size_t)x->ndim;
    text_putc(&said, '[');
    for (size_t a = 0; shape && a < shape->n_dim; a++) {
        const TensorShapeProto__Dimension *d = shape->dim[a];
        int64_t made;
        bool sized = d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                     d->dim_value >= 0;
        if (sized && !differs && uop_const_int(x->dim[a], &made))
            differs = made != d->dim_value;
        if (sized)
            text_printf(&said, "%s%lld", a ? "," : "", (long long)d->dim_value);
        else
            text_printf(&said, "%s%.60s", a ? "," : "", onnx_dim_is_named(d) ? d->dim_param : "?");
    }
    if (differs)
        diag_warn(l->t, at, "is declared as %s], but the nodes make %s", said.s,
                  lib_describe(&(struct lib){l->t, at}, x));
}

static bool add_output(struct lower *l, const ValueInfoProto *o, const TypeProto *type,
                       const char *name, const struct value *v, struct graph *out, size_t *cap)
{
    struct place at = onnx_place_value(l->model, "graph output", name);
    enum dtype d = type ? dtype_from_onnx(type->tensor_type->elem_type) : DTYPE_VOID;
    if (!v || v->kind != VALUE_TENSOR)
        return diag_error(l->t, &at, "is %s, but only tensors, sequences and optionals of them can "
                          "be outputs", v ? "a nested sequence" : "not there");
    if (o->type && o->type->value_case == TYPE_PROTO__VALUE_MAP_TYPE)
        return diag_error(l->t, &at, "is a map, but only tensors, sequences and optionals of them "
                          "can be outputs");
    if (d != DTYPE_VOID && d != v->tensor->dtype)
        return diag_error(l->t, &at, "is declared as %s, but the nodes make %s", dtype_name(d),
                          lib_describe(&(struct lib){l->t, &at}, v->tensor));
    compare_declared(l, &at, type ? type->tensor_type->shape : NULL, v->tensor);
    VEC_PUSH(l->t, out->output, out->noutput, *cap,
             ((struct graph_output){.name = name, .value = v->tensor}));
    return true;
}

bool border_outputs(struct lower *l, const struct scope *s, const GraphProto *g, struct graph *out)
{
    size_t cap = 0;
    for (size_t i = 0; i < g->n_output; i++) {
        const ValueInfoProto *o = g->output[i];
        const struct value *v = scope_get(s, o->name);
        bool is_optional, is_sequence;
        const TypeProto *type = onnx_element_type(o->type, &is_optional, &is_sequence);
        if (v && v->kind == VALUE_OPTIONAL) {
            if (!v->nitem)
                continue;
            v = v->item[0];
        }
        if (!v || v->kind != VALUE_SEQUENCE) {
            if (!add_output(l, o, type, o->name, v, out, &cap))
                return false;
            continue;
        }
        for (int k = 0; k < v->nitem; k++)
            if (!add_output(l, o, type, mem_printf(l->t, "%s[%d]", o->name, k), v->item[k], out,
                            &cap))
                return false;
    }
    return true;
}
