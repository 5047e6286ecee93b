/* lower_sequence.c - sequences and optionals: lists of values whose length is known when the model
 * is compiled. */
#include <string.h>

#include "frontend/onnx/lower.h"

static bool is_sequence(const struct node *n, int k)
{
    const struct value *v = n->value_in[k];
    return (v && v->kind == VALUE_SEQUENCE) ||
           node_error(n, k, "a sequence is expected, found a tensor or an optional");
}

/* Position in a sequence of `count`, negative ones from the end; last: where an absent input
 * points. */
static bool position(const struct node *n, int k, int count, int last, int *at)
{
    int64_t v;
    if (k >= n->nin || !n->in[k]) {
        *at = last;
        return true;
    }
    if (!node_known_int(n, k, &v))
        return false;
    if (v < -count || v > last)
        return node_error(n, k, "position %lld is outside a sequence of %d", (long long)v, count);
    *at = (int)(v < 0 ? v + count : v);
    return true;
}

bool lower_sequence_empty(struct node *n)
{
    enum dtype d = node_dtype(n, "dtype", DTYPE_F32);
    if (d == DTYPE_VOID)
        return node_error(n, -1, "attribute 'dtype' names no type");
    n->value_out[0] = value_sequence(n->t, NULL, 0, d);
    return true;
}

bool lower_sequence_construct(struct node *n)
{
    for (int k = 0; k < n->nin; k++)
        if (!n->in[k])
            return node_error(n, k, "a tensor is expected");
        else if (!node_same_dtype(n, 0, k))
            return false;
    n->value_out[0] = value_sequence(n->t, n->value_in, n->nin, n->in[0]->dtype);
    return true;
}

bool lower_sequence_at(struct node *n)
{
    int at;
    const struct value *s = n->value_in[0];
    if (!is_sequence(n, 0) || !position(n, 1, s->nitem, s->nitem - 1, &at))
        return false;
    n->value_out[0] = s->item[at];
    return true;
}

bool lower_sequence_insert(struct node *n)
{
    int at;
    const struct value *s = n->value_in[0];
    if (!is_sequence(n, 0) || !position(n, 2, s->nitem, s->nitem, &at))
        return false;
    if (!n->in[1])
        return node_error(n, 1, "a tensor is expected");
    struct value **item = mem_array(n->t, (size_t)s->nitem + 1, sizeof *item);
    for (int i = 0; i <= s->nitem; i++)
        item[i] = i < at ? s->item[i] : i == at ? n->value_in[1] : s->item[i - 1];
    n->value_out[0] = value_sequence(n->t, item, s->nitem + 1, n->in[1]->dtype);
    return true;
}

bool lower_sequence_erase(struct node *n)
{
    int at;
    const struct value *s = n->value_in[0];
    if (!is_sequence(n, 0) || !position(n, 1, s->nitem, s->nitem - 1, &at))
        return false;
    if (!s->nitem)
        return node_error(n, 0, "the sequence is empty");
    struct value **item = mem_array(n->t, (size_t)s->nitem, sizeof *item);
    for (int i = 0; i + 1 < s->nitem; i++)
        item[i] = s->item[i < at ? i : i + 1];
    n->value_out[0] = value_sequence(n->t, item, s->nitem - 1, s->dtype);
    return true;
}

bool lower_sequence_length(struct node *n)
{
    return is_sequence(n, 0) && node_set(n, 0, uop_int(n->t, n->value_in[0]->nitem));
}

bool lower_concat_from_sequence(struct node *n)
{
    if (!is_sequence(n, 0))
        return false;
    const struct value *s = n->value_in[0];
    bool new_axis = node_int(n, "new_axis", 0) != 0;
    struct uop **x = mem_array(n->t, (size_t)s->nitem + 1, sizeof *x);
    if (!s->nitem)
        return node_error(n, 0, "the sequence is empty");
    int axis = 0;
    for (int i = 0; i < s->nitem; i++) {
        x[i] = s->item[i]->tensor;
        if (!node_axis(n, node_int(n, "axis", 0), x[i]->ndim + new_axis, &axis))
            return false;
        x[i] = new_axis ? tensor_insert_axis(n->t, x[i], axis) : x[i];
    }
    return node_set(n, 0, lib_concat(&n->lib, x, s->nitem, axis));
}

/* Parts of the given sizes, or of one size (the last may be smaller), or of one element each whose
 * axis may go. How many there are must be known, sizes need not be. (The specification ignores
 * keepdims where there is a split. PyTorch's exporter up to 2.8 writes both for unbind, a split of
 * 1 without the axis, and ONNX Runtime does as it means.) */
bool lower_split_to_sequence(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], **given = NULL, *begin = uop_int(t, 0);
    int axis, count = 0;
    int64_t total, each = 1;
    bool keep = node_int(n, "keepdims", 1) != 0;
    if (!x)
        return node_error(n, 0, "a tensor is expected");
    if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis))
        return false;
    if (n->in[1] && n->in[1]->ndim == 0) {
        if (!node_known_int(n, 1, &each))
            return false;
    } else if (n->in[1] && !node_integers(n, 1, &given, &count)) {
        return false;
    }
    if (!given) {
        if (!uop_const_int(x->dim[axis], &total))
            return node_error(n, 0, "axis %d must have a fixed size; fix it with --dim", axis);
        if (each < 1)
            return node_error(n, 1, "a part has %lld elements; it must be positive",
                              (long long)each);
        if ((total + each - 1) / each > 1 << 20)
            return node_error(n, 0, "more than a million parts");
        count = (int)((total + each - 1) / each);
    }
    keep |= given || each != 1;
    struct value **item = mem_array(t, (size_t)count + 1, sizeof *item);
    for (int i = 0; i < count; i++) {
        struct uop *left = sym_sub(t, x->dim[axis], begin);
        struct uop *size =
            given ? node_symbol(n, 1, given[i], node_input_name(n, 1, i, count), 0, left)
                  : sym_min(t, left, uop_int(t, each));
        if (!size)
            return false;
        if (size->vmax < 0 || size->vmin > left->vmax)
            return node_error(n, 1, "the sizes do not fit into %s", shape_text(n, x));
        struct uop *part = lib_narrow(&n->lib, x, axis, begin, size);
        if (!part)
            return false;
        item[i] = value_tensor(t, keep ? part : tensor_drop_axes(t, part, 1u << axis));
        begin = sym_add(t, begin, size);
    }
    if (!node_require(n, 1, uop_binary(t, OP_EQ, begin, x->dim[axis]),
                      "the sizes do not add up to the length of the axis"))
        return false;
    n->value_out[0] = value_sequence(t, item, count, x->dtype);
    return true;
}

/* Lowers the body once for each item of the first sequence; other sequences advance with it,
 * tensors stay the same. */
bool lower_sequence_map(struct node *n)
{
    const GraphProto *body = onnx_attr_graph(lower_model(n->lower), n->proto, "body");
    if (!body)
        return node_error(n, -1, "needs the attribute 'body', a graph");
    if (!is_sequence(n, 0))
        return false;
    if ((int)body->n_output != n->nout)
        return node_error(n, -1, "its body has %zu outputs, but the node has %d", body->n_output,
                          n->nout);
    int count = n->value_in[0]->nitem;
    struct value ***out = mem_array(n->t, (size_t)count + 1, sizeof *out),
                 **args = mem_array(n->t, (size_t)n->nin, sizeof *args);
    for (int i = 0; i < count; i++) {
        out[i] = mem_array(n->t, (size_t)n->nout + 1, sizeof **out);
        for (int k = 0; k < n->nin; k++) {
            struct value *v = n->value_in[k];
            if (v && v->kind == VALUE_SEQUENCE && v->nitem != count)
                return node_error(n, k, "a sequence of %d is expected, found %d", count, v->nitem);
            args[k] = v && v->kind == VALUE_SEQUENCE ? v->item[i] : v;
        }
        if (!lower_subgraph(n, body, args, n->nin, out[i]))
            return false;
    }
    struct value **item = mem_array(n->t, (size_t)count + 1, sizeof *item);
    for (int k = 0; k < n->nout; k++) {
        for (int i = 0; i < count; i++)
            item[i] = out[i][k];
        n->value_out[k] = value_sequence(
            n->t, item, count, count && item[0]->tensor ? item[0]->tensor->dtype : DTYPE_VOID);
    }
    return true;
}

/* ------------------------------------------------------------------------------------ optionals */

bool lower_optional(struct node *n)
{
    n->value_out[0] = value_optional(n->t, n->nin > 0 ? n->value_in[0] : NULL);
    return true;
}

bool lower_optional_get(struct node *n)
{
    struct value *v = n->value_in[0];
    if (v->kind == VALUE_OPTIONAL && !v->nitem)
        return node_error(n, 0, "the optional is empty");
    n->value_out[0] = v->kind == VALUE_OPTIONAL ? v->item[0] : v;
    return true;
}

bool lower_optional_has(struct node *n)
{
    const struct value *v = n->nin > 0 ? n->value_in[0] : NULL;
    return node_set(n, 0, uop_bool(n->t, v && (v->kind != VALUE_OPTIONAL || v->nitem)));
}
