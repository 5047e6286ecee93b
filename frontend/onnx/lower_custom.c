/* lower_custom.c - nodes whose operator a library defines (docs/custom-operators.md): "domain::Op"
 * of a --library file, in front of everything else that has this name. Operands and attributes are
 * handed over as the node has them; frontend/text/expand.c checks them against the definition.
 */
#include "frontend/onnx/lower.h"
#include "frontend/text/text.h"

#include <string.h>

const struct custom *lower_find_custom(const struct lower *l, const NodeProto *p)
{
    const char *domain = operator_domain(p->domain);
    struct tg_library *library = l->options ? l->options->library : NULL;
    return library ? tg_library_find(library, mem_printf(l->t, "%s::%s",
                                                         *domain ? domain : "ai.onnx", p->op_type))
                   : NULL;
}

static bool read_ints(struct node *n, const char *name, struct tg_argument *a)
{
    a->kind = EXTERNAL_INTS;
    a->v.nitem = node_ints(n, name, &a->v.ints);
    return a->v.nitem >= 0;
}

static bool read_floats(struct node *n, const char *name, struct tg_argument *a)
{
    const float *v;
    int count = node_floats(n, name, &v);
    double *wide = mem_array(n->t, (size_t)(count > 0 ? count : 0) + 1, sizeof *wide);
    for (int i = 0; i < count; i++)
        wide[i] = (double)v[i];
    a->kind = EXTERNAL_FLOATS;
    a->v.floats = wide;
    a->v.nitem = count;
    return count >= 0;
}

static bool read_attribute(struct node *n, const AttributeProto *p, struct tg_argument *a)
{
    struct onnx_model *m = lower_model(n->lower);
    *a = (struct tg_argument){.name = p->name, .at = onnx_place_attr(m, n->proto, p->name)};
    switch (p->type) {
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        a->kind = EXTERNAL_INT;
        a->i = uop_int(n->t, node_int(n, p->name, 0));
        return true;
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        a->kind = EXTERNAL_FLOAT;
        a->v.f = node_float(n, p->name, 0);
        return true;
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        a->kind = EXTERNAL_STRING;
        a->v.s = node_string(n, p->name, NULL);
        return a->v.s != NULL;
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS: return read_ints(n, p->name, a);
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS: return read_floats(n, p->name, a);
    default:
        return diag_error(n->t, &a->at,
                          "an operator of a library takes integers, floats, a string, and lists of "
                          "numbers; make this an input");
    }
}

/* Names that begin so are notes of tools. */
static bool is_note(const AttributeProto *p) { return strncmp(p->name, "__", 2) == 0; }

bool lower_custom(struct node *n, const struct custom *custom)
{
    struct tgc *t = n->t;
    size_t nattribute = n->proto->n_attribute;
    struct tg_argument *attribute = mem_array(t, nattribute + 1, sizeof *attribute);
    struct place *at = mem_array(t, (size_t)n->nin + 1, sizeof *at);
    struct tg_call call = {.at = n->at,
                           .nin = n->nin,
                           .in = n->in,
                           .in_at = at,
                           .attribute = attribute,
                           .origin = t->current_origin,
                           .out = n->out,
                           .most = n->nout};
    for (int k = 0; k < n->nin; k++) {
        at[k] = onnx_place_input(lower_model(n->lower), n->proto, (size_t)k);
        if (n->value_in[k] && !n->in[k])
            return node_error(n, k, "a tensor is expected, found a sequence or an optional");
    }
    for (size_t i = 0; i < nattribute; i++)
        if (!is_note(n->proto->attribute[i]) &&
            !read_attribute(n, n->proto->attribute[i], &attribute[call.nattribute++]))
            return false;
    if (!tg_expand(t, n->lower->options->library, custom, &call))
        return false;
    return n->nout <= call.nout ||
           node_error(n, -1, "the operator has %d results, and the node %d outputs", call.nout,
                      n->nout);
}
