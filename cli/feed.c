/* feed.c - the inputs of run, verify and bench: read from files, matched with the model's, and used to settle its open dimensions.
 *
 * Files are read before the model is lowered, since their shapes may be the only place where a dimension is known: they act as if
 * --shape had been given, but for dimensions that --dim leaves to run time.
 */
#include "cli/cli.h"

#include <string.h>

/* The model's inputs that a caller gives: those that no initializer fills. */
const ValueInfoProto **feed_model_inputs(struct tgc *t, const struct model *m, int *n)
{
    const GraphProto *g = m->onnx->proto->graph;
    const ValueInfoProto **input = mem_array(t, g->n_input, sizeof *input);
    *n = 0;
    for (size_t i = 0; i < g->n_input; i++) {
        bool filled = false;
        for (size_t k = 0; k < g->n_initializer && !filled; k++)
            filled = strcmp(g->initializer[k]->name, g->input[i]->name) == 0;
        if (!filled)
            input[(*n)++] = g->input[i];
    }
    return input;
}

static const TypeProto__Tensor *tensor_type(const ValueInfoProto *v)
{
    return v->type && v->type->value_case == TYPE_PROTO__VALUE_TENSOR_TYPE ? v->type->tensor_type : NULL;
}

enum dtype feed_dtype(const ValueInfoProto *v)
{
    const TypeProto__Tensor *type = tensor_type(v);
    return type ? dtype_from_onnx(type->elem_type) : DTYPE_VOID;
}

static bool is_bounded_by_option(const struct options *o, const char *dim)
{
    for (int i = 0; i < o->ndim; i++)
        if (strcmp(o->dim[i].name, dim) == 0)
            return true;
    return false;
}

static const char *declared_text(struct tgc *t, const ValueInfoProto *v)
{
    const TensorShapeProto *shape = tensor_type(v)->shape;
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(feed_dtype(v)));
    for (size_t i = 0; i < shape->n_dim; i++) {
        const TensorShapeProto__Dimension *d = shape->dim[i];
        text_puts(&x, i ? "," : "");
        if (d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
            text_printf(&x, "%lld", (long long)d->dim_value);
        else
            text_printf(&x, "%.60s", d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param ? d->dim_param : "?");
    }
    text_putc(&x, ']');
    return x.s;
}

enum { MAX_TOLD = 4096 };

/* Small inputs may decide shapes (a list of axes, the length of a range): the frontend is told them. */
static void tell_value(struct tgc *t, struct options *o, const ValueInfoProto *input, const struct array *v)
{
    if (v->nelem > MAX_TOLD || v->dtype == DTYPE_STRING)
        return;
    struct onnx_value_option value = {.input = input->name, .dtype = v->dtype, .ndim = v->ndim, .data = v->data, .nbytes = v->nbytes};
    memcpy(value.dim, v->dim, sizeof value.dim);
    VEC_PUSH(t, o->value, o->nvalue, o->cap_value, value);
}

bool feed_settle_shape(struct tgc *t, struct options *o, const ValueInfoProto *input, const struct array *v, const char *source)
{
    const TypeProto__Tensor *type = tensor_type(input);
    tell_value(t, o, input, v);
    for (int i = 0; i < o->nshape; i++)
        if (strcmp(o->shape[i].input, input->name) == 0)
            return true; /* the user has said it; instance_set_input() compares */
    struct onnx_shape_option s = {.input = input->name, .ndim = v->ndim};
    memcpy(s.dim, v->dim, sizeof s.dim);
    bool fits = !type || !type->shape || (int)type->shape->n_dim == v->ndim;
    for (int i = 0; i < v->ndim && fits && type && type->shape; i++) {
        const TensorShapeProto__Dimension *d = type->shape->dim[i];
        if (d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
            fits = d->dim_value == v->dim[i];
        const char *name = d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param
                               ? d->dim_param : mem_printf(t, "%s_dim%d", input->name, i);
        if (is_bounded_by_option(o, name))
            s.dim[i] = -1;
    }
    if (!fits)
        return diag_error(t, &(struct place){.file = source}, "holds %s; the input '%.100s' is %s", array_type_text(t, v), input->name,
                          declared_text(t, input));
    VEC_PUSH(t, o->shape, o->nshape, o->cap_shape, s);
    return true;
}

static const struct input_file *find_file(const struct options *o, const char *name)
{
    const struct input_file *found = NULL;
    for (int i = 0; i < o->ninput; i++)
        if (strcmp(o->input[i].name, name) == 0)
            found = &o->input[i];
    return found;
}

static bool check_names(struct tgc *t, const struct options *o, const ValueInfoProto *const *input, int n)
{
    struct text names = {.t = t};
    for (int i = 0; i < n; i++)
        text_printf(&names, "%s'%.100s'", i ? ", " : "", input[i]->name);
    for (int i = 0; i < o->ninput; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = strcmp(o->input[i].name, input[k]->name) == 0;
        if (!known)
            return diag_error(t, &(struct place){.file = o->model}, "the model has no input '%.100s' (-i %.100s=%.200s); it has %s",
                              o->input[i].name, o->input[i].name, o->input[i].path, n ? names.s : "none");
    }
    return true;
}

bool feed_read(struct tgc *t, struct options *o, const struct model *m, struct feed *f)
{
    f->input = feed_model_inputs(t, m, &f->n);
    f->value = mem_array(t, (size_t)f->n, sizeof *f->value);
    f->source = mem_array(t, (size_t)f->n, sizeof *f->source);
    if (!check_names(t, o, f->input, f->n))
        return false;
    for (int i = 0; i < f->n; i++) {
        const struct input_file *file = find_file(o, f->input[i]->name);
        if (!file)
            continue;
        f->source[i] = file->path;
        if (!npy_read(t, file->path, feed_dtype(f->input[i]), &f->value[i]) ||
            !feed_settle_shape(t, o, f->input[i], &f->value[i], file->path))
            return false;
    }
    return true;
}

bool feed_instance(struct tgc *t, const struct feed *f, struct instance *p)
{
    for (int i = 0; i < p->info->input_count; i++) {
        for (int k = 0; k < f->n; k++) {
            bool is_it = f->source[k] && strcmp(f->input[k]->name, p->info->inputs[i].name) == 0;
            if (is_it && !instance_set_input(t, p, i, &f->value[k], f->source[k]))
                return false;
        }
    }
    return true;
}
