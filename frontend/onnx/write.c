/* write.c - a tensor graph as an ONNX model: uops in topological order become nodes (write.h has
 * the files and how they share values), and these, with inputs, outputs and weights, the messages
 * of the file.
 *
 * Not written: what ONNX has no form for (entries, states, calls of C functions). Bounds of symbols
 * are left out, since ONNX knows none; so are checks of sizes that a run makes, which a warning
 * says.
 */
#include "frontend/onnx/write.h"

#include <string.h>

/* ----------------------------------------------------------------------------------------- uops */

static bool write_leaf(struct onnx_writer *w, struct uop *u)
{
    const struct buffer *b = u->arg.p;
    if (b->kind == BUFFER_WEIGHT) {
        write_set(w, u, write_weight(w, b));
        return true;
    }
    struct written *v = MEM_NEW(w->t, struct written);
    v->dtype = u->dtype;
    v->ndim = u->ndim;
    ARRAY_COPY(v->dim, u->dim, u->ndim);
    v->first = v;
    v->name = b->name;
    write_set(w, u, v);
    return true;
}

/* What a region or a call computes has no form here. */
static bool check_uops(struct onnx_writer *w)
{
    for (int i = 0; i < w->norder; i++) {
        struct uop *u = w->order[i];
        const struct host_call *h = u->op == OP_HOST ? u->arg.p : NULL;
        if (h)
            return write_refuse(w, u, mem_printf(w->t, "%s(): a call of a function is not written "
                                                       "as ONNX; write the model as .tg",
                                                 h->function));
    }
    return true;
}

static bool write_uop(struct onnx_writer *w, struct uop *u)
{
    w->now = u;
    if (map_get(&w->value, u) || u->op == OP_CONST || u->op == OP_VAR || u->op == OP_IF)
        return true;                                     /* these when they are used */
    if (u->op == OP_BUFFER)
        return write_leaf(w, u);
    if (write_idiom(w, u))
        return true;
    if (op_is_pointwise(u->op))
        return write_elementwise(w, u);
    if (u->op == OP_REDUCE)
        return write_contraction(w, u) || write_reduce(w, u);
    if (u->op == OP_INDEX)
        return write_index(w, u);
    if (u->op == OP_SCATTER)
        return write_scatter(w, u);
    if (op_class(u->op) == CLASS_MOVE || u->op == OP_CONTIGUOUS || u->op == OP_STOP)
        return write_movement(w, u);
    if (u->op == OP_LOOP)
        return write_loop(w, u);
    if (u->op == OP_GET)
        return write_get(w, u);
    if (u->op != OP_PARAM)
        TGC_BUG(w->t, "%s is no op of a graph", op_name(u->op));
    write_set(w, u, write_inside(w, u));
    return true;
}

/* ------------------------------------------------------------------------------------- messages */

static TypeProto *type_proto(struct tgc *t, enum dtype d, struct uop *const *dim, int ndim)
{
    TypeProto *p = MEM_NEW(t, TypeProto);
    TypeProto__Tensor *x = MEM_NEW(t, TypeProto__Tensor);
    TensorShapeProto *s = MEM_NEW(t, TensorShapeProto);
    type_proto__init(p);
    type_proto__tensor__init(x);
    tensor_shape_proto__init(s);
    p->value_case = TYPE_PROTO__VALUE_TENSOR_TYPE;
    p->tensor_type = x;
    x->has_elem_type = true;
    x->elem_type = dtype_to_onnx(d);
    x->shape = s;
    s->n_dim = (size_t)ndim;
    s->dim = mem_array(t, (size_t)ndim + 1, sizeof *s->dim);
    for (int a = 0; a < ndim; a++) {
        TensorShapeProto__Dimension *n = s->dim[a] = MEM_NEW(t, TensorShapeProto__Dimension);
        tensor_shape_proto__dimension__init(n);
        if (uop_const_int(dim[a], &n->dim_value)) {
            n->value_case = TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        } else if (dim[a]->op == OP_VAR) {
            n->value_case = TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            n->dim_param = mem_str(t, ((const struct var *)dim[a]->arg.p)->name);
        }
    }
    return p;
}

static ValueInfoProto *value_proto(struct tgc *t, const char *name, enum dtype d,
                                   struct uop *const *dim, int ndim)
{
    ValueInfoProto *p = MEM_NEW(t, ValueInfoProto);
    value_info_proto__init(p);
    p->name = mem_str(t, name);
    p->type = type_proto(t, d, dim, ndim);
    return p;
}

static GraphProto *body_proto(struct onnx_writer *w, const struct written_node *n);

static NodeProto *node_proto(struct onnx_writer *w, struct written_node *n)
{
    struct tgc *t = w->t;
    NodeProto *p = MEM_NEW(t, NodeProto);
    node_proto__init(p);
    p->op_type = mem_str(t, n->type);
    p->name = mem_str(t, n->out->name);
    p->n_input = (size_t)n->nin;
    p->input = mem_array(t, p->n_input + 1, sizeof *p->input);
    for (int k = 0; k < n->nin; k++)
        p->input[k] = mem_str(t, n->in[k]->name);
    p->n_output = (size_t)n->nalso + 1;
    p->output = mem_array(t, p->n_output, sizeof *p->output);
    for (int k = 0; k <= n->nalso; k++)
        p->output[k] = mem_str(t, (k ? n->also[k - 1] : n->out)->name);
    if (n->body)
        write_graph(w, n->out, "body", body_proto(w, n));
    p->n_attribute = (size_t)n->nattribute;
    p->attribute = n->attribute;
    return p;
}

/* The nodes of a region: the main graph's, or a loop's body. */
static void put_nodes(struct onnx_writer *w, GraphProto *p, int region)
{
    p->node = mem_array(w->t, (size_t)w->nnode + 1, sizeof *p->node);
    for (int i = 0; i < w->nnode; i++)
        if (w->node[i]->out->used && w->node[i]->out->region == region)
            p->node[p->n_node++] = node_proto(w, w->node[i]);
}

static ValueInfoProto **value_protos(struct tgc *t, struct written *const *v, int n)
{
    ValueInfoProto **p = mem_array(t, (size_t)n + 1, sizeof *p);
    for (int i = 0; i < n; i++)
        p[i] = value_proto(t, v[i]->name, v[i]->dtype, v[i]->dim, v[i]->ndim);
    return p;
}

/* Depth: nesting of loops, which readers of models limit. */
static GraphProto *body_proto(struct onnx_writer *w, const struct written_node *n)
{
    GraphProto *p = MEM_NEW(w->t, GraphProto);
    graph_proto__init(p);
    p->name = mem_printf(w->t, "%s/body", n->out->name);
    put_nodes(w, p, n->body);
    p->n_input = (size_t)n->nbody_in;
    p->input = value_protos(w->t, n->body_in, n->nbody_in);
    p->n_output = (size_t)n->nbody_out;
    p->output = value_protos(w->t, n->body_out, n->nbody_out);
    return p;
}

static GraphProto *graph_proto(struct onnx_writer *w)
{
    struct tgc *t = w->t;
    const struct graph *g = w->g;
    GraphProto *p = MEM_NEW(t, GraphProto);
    graph_proto__init(p);
    p->name = mem_str(t, g->name && *g->name ? g->name : "graph");
    p->initializer = mem_array(t, (size_t)w->nconstant + 1, sizeof *p->initializer);
    p->input = mem_array(t, (size_t)g->ninput + 1, sizeof *p->input);
    p->output = mem_array(t, (size_t)g->noutput + 1, sizeof *p->output);
    put_nodes(w, p, 0);
    for (int i = 0; i < w->nconstant; i++)
        if (w->constant[i]->used) {
            TensorProto *x = (TensorProto *)(uintptr_t)w->constant[i]->tensor;
            x->name = mem_str(t, w->constant[i]->name);
            p->initializer[p->n_initializer++] = x;
        }
    for (int i = 0; i < g->ninput; i++) {
        const struct written *v = map_get(&w->value, g->input[i]);
        p->input[p->n_input++] = value_proto(t, v->name, v->dtype, v->dim, v->ndim);
    }
    for (int i = 0; i < g->noutput; i++) {
        const struct uop *u = g->output[i].value;
        p->output[p->n_output++] = value_proto(t, g->output[i].name, u->dtype, u->dim, u->ndim);
    }
    return p;
}

static StringStringEntryProto *meta_proto(struct tgc *t, const struct graph_meta *m)
{
    StringStringEntryProto *p = MEM_NEW(t, StringStringEntryProto);
    string_string_entry_proto__init(p);
    p->key = mem_str(t, m->key);
    p->value = mem_str(t, m->value);
    return p;
}

static ModelProto *model_proto(struct onnx_writer *w, const char *producer, const char *version)
{
    struct tgc *t = w->t;
    ModelProto *p = MEM_NEW(t, ModelProto);
    OperatorSetIdProto *opset = MEM_NEW(t, OperatorSetIdProto);
    model_proto__init(p);
    operator_set_id_proto__init(opset);
    opset->has_version = p->has_ir_version = true;
    opset->version = ONNX_WRITTEN_OPSET;
    p->ir_version = ONNX_WRITTEN_IR;
    p->n_opset_import = 1;
    p->opset_import = mem_array(t, 1, sizeof *p->opset_import);
    p->opset_import[0] = opset;
    p->producer_name = mem_str(t, producer);
    p->producer_version = mem_str(t, version);
    p->n_metadata_props = (size_t)w->g->nmeta;
    p->metadata_props = mem_array(t, p->n_metadata_props + 1, sizeof *p->metadata_props);
    for (int i = 0; i < w->g->nmeta; i++)
        p->metadata_props[i] = meta_proto(t, &w->g->meta[i]);
    p->graph = graph_proto(w);
    return p;
}

/* ------------------------------------------------------------------------------------ the graph */

static bool check_writable(struct tgc *t, const struct graph *g)
{
    int nchecks = 0;
    if (g->nentry)
        return diag_error(t, NULL, "the graph has entries, of which an ONNX model has none; write "
                                   "the model as .tg, or each entry as a graph of its own");
    if (g->ndeclared || g->nstate)
        return diag_error(t, NULL, "the graph has states, which an ONNX model cannot keep; make "
                                   "each an input and an output, or write the model as .tg");
    for (int i = 0; i < g->nhost; i++) {
        if (!uop_is_check(g->host[i]))
            return diag_error(t, NULL, "sizes depend on the values of tensors, which is not "
                                       "written as ONNX; write the model as .tg");
        nchecks++;
    }
    if (nchecks)
        diag_warn(t, NULL, "%d checks that a run makes of its inputs are not in the ONNX model",
                  nchecks);
    return true;
}

/* Each output as a node's result of its own. */
static struct written **write_outputs(struct onnx_writer *w)
{
    const struct graph *g = w->g;
    struct written **output = mem_array(w->t, (size_t)g->noutput + 1, sizeof *output);
    for (int i = 0; i < g->noutput; i++) {
        bool own = true;
        w->now = g->output[i].value;
        output[i] = write_exact(w, g->output[i].value);
        for (int k = 0; k < i; k++)
            own = own && output[k] != output[i];
        if (!own || !output[i]->node)
            output[i] = write_unary(w, "Identity", output[i]);
    }
    return output;
}

ModelProto *onnx_write(struct tgc *t, const struct graph *g, const char *producer,
                       const char *version)
{
    struct onnx_writer w = {.t = t,
                            .g = g,
                            .value = {.t = t},
                            .used_by_others = {.t = t},
                            .elementwise = write_elementwise};
    struct uop **root = mem_array(t, (size_t)(g->noutput + g->ninput) + 1, sizeof *root);
    if (!check_writable(t, g))
        return NULL;
    for (int i = 0; i < g->ninput; i++)
        root[i] = g->input[i];
    for (int i = 0; i < g->noutput; i++)
        root[g->ninput + i] = g->output[i].value;
    struct uop **order = uop_toposort(t, root, g->ninput + g->noutput, &w.norder);
    w.order = mem_copy(t, order, (size_t)w.norder * sizeof *order);
    if (!check_uops(&w) || !write_find_loops(&w))
        return NULL;
    for (int i = 0; i < w.norder; i++)
        if (!write_uop(&w, w.order[i]))
            return NULL;
    struct written **output = write_outputs(&w);
    if (!write_names(&w, output))
        return NULL;
    if (w.unsourced && w.unsourced->used) {
        diag_error(t, NULL, "no input has the size '%s' as a dimension, so an ONNX model cannot "
                            "know it; fix it with --dim %s=N",
                   ((const struct var *)w.unsourced_symbol->arg.p)->name,
                   ((const struct var *)w.unsourced_symbol->arg.p)->name);
        return NULL;
    }
    return model_proto(&w, producer, version);
}
