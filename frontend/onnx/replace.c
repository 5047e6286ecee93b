/* replace.c - a loaded model with other values for some of its weights, written as it was read
 * otherwise.
 *
 * A weight is an initializer of the main graph; else one of a subgraph's, or the tensor of a
 * Constant node, anywhere in the model, if only one has the name: that of the tensor, or where it
 * has none that of the node's output. The new values become raw_data, in the dtype and the shape
 * that the model says. A weight that is an Identity of an initializer becomes a Constant node.
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

/* What has the name. */
struct found { TensorProto *tensor; int n; bool is_sparse; };

static void find_in_graph(const GraphProto *g, const char *name, struct found *f)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0) {
            f->tensor = g->initializer[i];
            f->n++;
        }
    for (size_t i = 0; i < g->n_sparse_initializer; i++) {
        const TensorProto *values = g->sparse_initializer[i]->values;
        if (values && strcmp(values->name, name) == 0) {
            f->is_sparse = true;
            f->n++;
        }
    }
}

static void find_in_node(const NodeProto *n, const char *name, struct found *f)
{
    const AttributeProto *a =
        strcmp(n->op_type, "Constant") == 0 ? onnx_attr(n, "value") : NULL;
    if (!a || !a->t || !n->n_output)
        return;
    if (strcmp(*a->t->name ? a->t->name : n->output[0], name) == 0) {
        f->tensor = a->t;
        f->n++;
    }
}

static struct found find_weight(const struct onnx_model *m, const char *name)
{
    struct found f = {0};
    find_in_graph(m->proto->graph, name, &f);
    for (size_t i = 0; i < m->nbody && !f.n; i++)
        if (i > 0 && m->body[i].graph)
            find_in_graph(m->body[i].graph, name, &f);
    for (size_t i = 0; i < m->nbody && !f.n; i++)
        for (size_t k = 0; k < m->body[i].n_node; k++)
            find_in_node(m->body[i].node[k], name, &f);
    return f;
}

/* The Identity node of the main graph that makes the weight, of an initializer; NULL: none does. */
static NodeProto *find_identity(const struct onnx_model *m, const char *name,
                                const TensorProto **of)
{
    const GraphProto *g = m->proto->graph;
    for (size_t i = 0; i < g->n_node; i++) {
        NodeProto *n = g->node[i];
        if (strcmp(n->op_type, "Identity") != 0 || n->n_output != 1 || n->n_input != 1 ||
            strcmp(n->output[0], name) != 0)
            continue;
        for (size_t k = 0; k < g->n_initializer; k++)
            if (strcmp(g->initializer[k]->name, n->input[0]) == 0) {
                *of = g->initializer[k];
                return n;
            }
    }
    return NULL;
}

/* Nodes that are changed while the model is written, and what they were. */
struct changed { NodeProto *node, before; };
struct changes { struct changed *node; int n; size_t cap; };

/* The node becomes a Constant of a tensor of this type. */
static TensorProto *make_constant(struct tgc *t, struct changes *c, NodeProto *n,
                                  const TensorProto *like)
{
    TensorProto *p = MEM_NEW(t, TensorProto);
    AttributeProto *a = MEM_NEW(t, AttributeProto);
    VEC_PUSH(t, c->node, c->n, c->cap, ((struct changed){n, *n}));
    *p = *like;
    p->name = n->output[0];
    attribute_proto__init(a);
    a->name = mem_str(t, "value");
    a->has_type = true;
    a->type = ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    a->t = p;
    n->op_type = mem_str(t, "Constant");
    n->n_input = 0;
    n->n_attribute = 1;
    n->attribute = mem_array(t, 1, sizeof *n->attribute);
    n->attribute[0] = a;
    return p;
}

static const char *type_text(struct tgc *t, enum dtype d, const int64_t *dim, int ndim)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(d));
    for (int a = 0; a < ndim; a++)
        text_printf(&x, a ? ",%lld" : "%lld", (long long)dim[a]);
    text_putc(&x, ']');
    return x.s;
}

static bool has_type(const TensorProto *p, const struct onnx_replacement *r)
{
    bool same = dtype_from_onnx(p->data_type) == r->dtype && p->n_dims == (size_t)r->ndim;
    for (int a = 0; a < r->ndim && same; a++)
        same = p->dims[a] == r->dim[a];
    return same;
}

static bool replace(struct onnx_model *m, const struct onnx_replacement *r,
                    struct onnx_edits *edits, struct changes *changes)
{
    struct tgc *t = m->tgc;
    struct found f = find_weight(m, r->name);
    struct place at = onnx_place_value(m, "weight", r->name);
    const TensorProto *of;
    NodeProto *identity = f.n ? NULL : find_identity(m, r->name, &of);
    if (identity)
        f = (struct found){make_constant(t, changes, identity, of), 1, false};
    if (!f.n)
        return diag_error(t, &at, "the model has no weight of this name, so its new values cannot "
                                  "be written; initializers and Constant nodes have names");
    if (f.is_sparse)
        return diag_error(t, &at, "is a sparse tensor, whose values cannot be replaced; make it a "
                                  "dense initializer");
    if (f.n > 1)
        return diag_error(t, &at, "%d tensors of the model have this name; give each its own", f.n);
    if (!has_type(f.tensor, r))
        return diag_error(t, &at, "is %s in the model, but its new values are %s",
                          type_text(t, dtype_from_onnx(f.tensor->data_type), f.tensor->dims,
                                    (int)f.tensor->n_dims),
                          type_text(t, r->dtype, r->dim, r->ndim));
    if (dtype_bits(r->dtype) < 8 || r->dtype == DTYPE_STRING)
        return diag_error(t, &at, "is of %s; values of at least 8 bits can be replaced",
                          dtype_name(r->dtype));
    onnx_edit(t, edits, f.tensor);
    onnx_set_raw(f.tensor, r->data, r->nbytes);
    return true;
}

bool onnx_save_replaced(struct onnx_model *m, const struct onnx_replacement *r, int n,
                        const struct onnx_sink *to)
{
    struct onnx_edits edits = {0};
    struct changes changes = {0};
    bool ok = true;
    for (int i = 0; i < n; i++)
        ok = replace(m, &r[i], &edits, &changes) && ok;
    ok = ok && onnx_save(m->tgc, m, m->proto, to);
    onnx_edits_undo(&edits);
    for (int i = changes.n - 1; i >= 0; i--)
        *changes.node[i].node = changes.node[i].before;
    return ok;
}
