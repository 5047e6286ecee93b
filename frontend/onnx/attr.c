/* attr.c - attributes of a node, read with their types checked.
 *
 * The value of a wrong type is never used: the reader says so and goes on as if the attribute were
 * absent, so that one run reports every mistake. The names of the types are those of the
 * specification (AttributeProto.AttributeType).
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

static const char *type_name(AttributeProto__AttributeType type)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
        &attribute_proto__attribute_type__descriptor, (int)type);
    return v ? v->name : "unknown";
}

const AttributeProto *onnx_attr(const NodeProto *n, const char *name)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, name) == 0)
            return n->attribute[i];
    return NULL;
}

bool onnx_attr_require(const struct onnx_model *m, const NodeProto *n, const char *name)
{
    if (onnx_attr(n, name))
        return true;
    struct place at = onnx_place_node(m, n);
    return diag_error(m->tgc, &at, "the attribute '%s' is missing; the operator requires it", name);
}

/* The attribute if it is there and of that type. */
static const AttributeProto *typed(const struct onnx_model *m, const NodeProto *n, const char *name,
                                   AttributeProto__AttributeType type)
{
    const AttributeProto *a = onnx_attr(n, name);
    if (!a || a->type == type)
        return a;
    struct place at = onnx_place_attr(m, n, name);
    diag_error(m->tgc, &at, "the attribute is of type %s; %s is expected", type_name(a->type),
               type_name(type));
    return NULL;
}

int64_t onnx_attr_int(const struct onnx_model *m, const NodeProto *n, const char *name,
                      int64_t otherwise)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    return a ? a->i : otherwise;
}

int64_t onnx_attr_int_in(const struct onnx_model *m, const NodeProto *n, const char *name,
                         int64_t otherwise, int64_t lo, int64_t hi)
{
    int64_t v = onnx_attr_int(m, n, name, otherwise);
    if (v >= lo && v <= hi)
        return v;
    struct place at = onnx_place_attr(m, n, name);
    diag_error(m->tgc, &at, "the attribute is %lld; it must be between %lld and %lld", (long long)v,
               (long long)lo, (long long)hi);
    return v < lo ? lo : hi;
}

double onnx_attr_float(const struct onnx_model *m, const NodeProto *n, const char *name,
                       double otherwise)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    return (double)(a ? a->f : (float)otherwise);
}

/* Bytes as a C string. false: they hold a NUL. */
static bool as_string(struct tgc *t, const ProtobufCBinaryData *b, const char **s)
{
    if (b->len && memchr(b->data, 0, b->len))
        return false;
    char *copy = mem_alloc(t, b->len + 1);
    if (b->len)
        memcpy(copy, b->data, b->len);
    *s = copy;
    return true;
}

static void complain_nul(const struct onnx_model *m, const NodeProto *n, const char *name)
{
    struct place at = onnx_place_attr(m, n, name);
    diag_error(m->tgc, &at,
               "the string holds a NUL character; strings with NULs are not supported");
}

const char *onnx_attr_string(const struct onnx_model *m, const NodeProto *n, const char *name,
                             const char *otherwise)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    const char *s = otherwise;
    if (a && !as_string(m->tgc, &a->s, &s))
        complain_nul(m, n, name);
    return s;
}

int onnx_attr_ints(const struct onnx_model *m, const NodeProto *n, const char *name,
                   const int64_t **v)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    *v = a ? a->ints : NULL;
    return a ? (int)a->n_ints : -1;
}

int onnx_attr_floats(const struct onnx_model *m, const NodeProto *n, const char *name,
                     const float **v)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
    *v = a ? a->floats : NULL;
    return a ? (int)a->n_floats : -1;
}

int onnx_attr_strings(const struct onnx_model *m, const NodeProto *n, const char *name,
                      const char *const **v)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
    *v = NULL;
    if (!a)
        return -1;
    const char **s = mem_array(m->tgc, a->n_strings, sizeof *s);
    for (size_t i = 0; i < a->n_strings; i++) {
        if (!as_string(m->tgc, &a->strings[i], &s[i])) {
            complain_nul(m, n, name);
            return -1;
        }
    }
    *v = s;
    return (int)a->n_strings;
}

bool onnx_attr_ints_n(const struct onnx_model *m, const NodeProto *n, const char *name, int count,
                      int64_t *v, int64_t otherwise)
{
    const int64_t *given;
    int ngiven = onnx_attr_ints(m, n, name, &given);
    for (int i = 0; i < count; i++)
        v[i] = ngiven == count ? given[i] : otherwise;
    if (ngiven < 0 || ngiven == count)
        return ngiven == count;
    struct place at = onnx_place_attr(m, n, name);
    return diag_error(m->tgc, &at, "the attribute has %d values; %d are expected for these inputs",
                      ngiven, count);
}

const TensorProto *onnx_attr_tensor(const struct onnx_model *m, const NodeProto *n,
                                    const char *name)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    return a ? a->t : NULL;
}

const SparseTensorProto *onnx_attr_sparse_tensor(const struct onnx_model *m, const NodeProto *n,
                                                 const char *name)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR);
    return a ? a->sparse_tensor : NULL;
}

const GraphProto *onnx_attr_graph(const struct onnx_model *m, const NodeProto *n, const char *name)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH);
    return a ? a->g : NULL;
}

const TypeProto *onnx_attr_type(const struct onnx_model *m, const NodeProto *n, const char *name)
{
    const AttributeProto *a = typed(m, n, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO);
    return a ? a->tp : NULL;
}
