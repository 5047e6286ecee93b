/* check.c - the structure of an unpacked model, before it is lowered.
 *
 * It establishes what onnx.h promises to lowering: operator sets, shapes' ranks, initializers'
 * dimensions, attributes' types, and that functions do not call themselves. order.c checks names
 * and the order of nodes. Whether an operator exists and has the right inputs is checked by
 * lowering's table. source: the ONNX specification, docs/IR.md.
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

enum {
    NEWEST_IR_VERSION = 14,
    MAX_IMPORTS = 100,
    MAX_FUNCTIONS = 100000,
    MAX_ATTRIBUTES = 200,
    MAX_INLINED_NODES = 1000000,
    MAX_ERRORS = 20,
};

static bool is_default_domain(const char *domain)
{
    return !domain[0] || strcmp(domain, "ai.onnx") == 0;
}

static bool same_domain(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || (is_default_domain(a) && is_default_domain(b));
}

static int64_t find_opset(OperatorSetIdProto *const *import, size_t n, const char *domain)
{
    for (size_t i = 0; i < n; i++)
        if (same_domain(import[i]->domain, domain))
            return import[i]->version;
    return 0;
}

int64_t onnx_opset(const struct onnx_model *m, const FunctionProto *f, const char *domain)
{
    int64_t imported = f ? find_opset(f->opset_import, f->n_opset_import, domain)
                         : find_opset(m->proto->opset_import, m->proto->n_opset_import, domain);
    if (imported)
        return imported;
    /* Before IR version 3 there were no imports, and one operator set. */
    if (!f && m->proto->ir_version < 3 && !m->proto->n_opset_import && is_default_domain(domain))
        return 1;
    /* Optimizers leave out the import of what they fuse; runtimes take the newest version then. */
    return is_default_domain(domain) ? 0 : onnx_newest_opset(domain);
}

/* The slot of the function of that name, or the free slot where it would be inserted. */
static int *find_function_slot(const struct onnx_model *m, const char *domain, const char *name,
                               const char *overload)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *s = name; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    size_t i = (size_t)(h ^ h >> 32) & (m->nfunction_slot - 1);
    for (; m->function_slot[i]; i = (i + 1) & (m->nfunction_slot - 1)) {
        const FunctionProto *f = m->proto->functions[m->function_slot[i] - 1];
        if (strcmp(f->name, name) == 0 && same_domain(f->domain, domain) &&
            strcmp(f->overload, overload) == 0)
            break;
    }
    return &m->function_slot[i];
}

static int find_function(const struct onnx_model *m, const NodeProto *n)
{
    return m->nfunction_slot ? *find_function_slot(m, n->domain, n->op_type, n->overload) - 1 : -1;
}

const FunctionProto *onnx_find_function(const struct onnx_model *m, const NodeProto *node)
{
    int i = find_function(m, node);
    return i >= 0 ? m->proto->functions[i] : NULL;
}

static bool index_functions(struct onnx_model *m)
{
    size_t n = m->proto->n_functions;
    if (!n)
        return true;
    m->nfunction_slot = 16;
    while (m->nfunction_slot < 2 * n)
        m->nfunction_slot *= 2;
    m->function_slot = mem_array(m->tgc, m->nfunction_slot, sizeof *m->function_slot);
    for (size_t i = 0; i < n; i++) {
        const FunctionProto *f = m->proto->functions[i];
        int *slot = find_function_slot(m, f->domain, f->name, f->overload);
        if (*slot) {
            struct place at = onnx_place_value(m, "function", f->name);
            return diag_error(
                m->tgc, &at,
                "the function is defined twice; domain, name and overload together must be unique");
        }
        *slot = (int)i + 1;
    }
    return true;
}

/* -------------------------------------------------------------------------------- operator sets */

static bool check_imports(struct onnx_model *m, OperatorSetIdProto *const *import, size_t n,
                          const char *of)
{
    struct place at = onnx_place_model(m);
    for (size_t i = 0; i < n; i++) {
        const char *domain = import[i]->domain[0] ? import[i]->domain : "ai.onnx";
        if (import[i]->version < 1 || import[i]->version > INT32_MAX)
            return diag_error(
                m->tgc, &at,
                "%s imports version %lld of the operator set '%.100s'; versions start at 1", of,
                (long long)import[i]->version, domain);
        int newest = onnx_newest_opset(import[i]->domain);
        if (newest && import[i]->version > newest)
            return diag_error(m->tgc, &at,
                              "%s imports version %lld of the operator set '%.100s'; the newest "
                              "that tgc knows is %d, so export the model with that or an older one",
                              of, (long long)import[i]->version, domain, newest);
        for (size_t k = 0; k < i; k++)
            if (same_domain(import[k]->domain, import[i]->domain) &&
                import[k]->version != import[i]->version)
                return diag_error(m->tgc, &at,
                                  "%s imports two versions of the operator set '%.100s', %lld and "
                                  "%lld; one is expected",
                                  of, domain, (long long)import[k]->version,
                                  (long long)import[i]->version);
    }
    return true;
}

static bool check_header(struct onnx_model *m)
{
    const ModelProto *p = m->proto;
    struct place at = onnx_place_model(m);
    if (!p->graph)
        return diag_error(m->tgc, &at,
                          "the model holds no graph; is it an ONNX model, and complete?");
    if (!p->has_ir_version || p->ir_version < 1)
        return diag_error(m->tgc, &at,
                          "the model has no ir_version; every ONNX model has one, is it complete?");
    if (p->ir_version > NEWEST_IR_VERSION)
        diag_warn(m->tgc, &at, "the model's ir_version is %lld; the newest that tgc knows is %d",
                  (long long)p->ir_version, NEWEST_IR_VERSION);
    if (p->ir_version >= 3 && !p->n_opset_import)
        return diag_error(
            m->tgc, &at,
            "the model imports no operator set (opset_import); at least one is required");
    if (!p->graph->n_output)
        return diag_error(m->tgc, &at, "the graph has no outputs, so there is nothing to compute");
    if (p->n_opset_import > MAX_IMPORTS || p->n_functions > MAX_FUNCTIONS)
        return diag_error(m->tgc, &at,
                          "the model has %zu operator sets and %zu functions; that is absurd",
                          p->n_opset_import, p->n_functions);
    if (!check_imports(m, p->opset_import, p->n_opset_import, "the model"))
        return false;
    for (size_t i = 0; i < p->n_functions; i++) {
        const FunctionProto *f = p->functions[i];
        if (f->n_opset_import > MAX_IMPORTS)
            return diag_error(m->tgc, &at,
                              "the function '%.100s' imports %zu operator sets; that is absurd",
                              f->name, f->n_opset_import);
        if (!check_imports(m, f->opset_import, f->n_opset_import,
                           mem_printf(m->tgc, "the function '%.100s'", f->name)))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------- shapes and types */

/* Follows the element types of sequences, maps and optionals down to a tensor. */
static bool check_type(struct onnx_model *m, const char *what, const char *name,
                       const TypeProto *type)
{
    const TensorShapeProto *shape = NULL;
    while (type) {
        const TypeProto *element = NULL;
        if (type->value_case == TYPE_PROTO__VALUE_TENSOR_TYPE)
            shape = type->tensor_type->shape;
        else if (type->value_case == TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE)
            shape = type->sparse_tensor_type->shape;
        else if (type->value_case == TYPE_PROTO__VALUE_SEQUENCE_TYPE)
            element = type->sequence_type->elem_type;
        else if (type->value_case == TYPE_PROTO__VALUE_OPTIONAL_TYPE)
            element = type->optional_type->elem_type;
        else if (type->value_case == TYPE_PROTO__VALUE_MAP_TYPE)
            element = type->map_type->value_type;
        type = element;
    }
    if (!shape || shape->n_dim <= MAX_RANK)
        return true;
    struct place at = onnx_place_value(m, what, name);
    return diag_error(m->tgc, &at, "its rank is %zu; at most %d is supported", shape->n_dim,
                      MAX_RANK);
}

static bool check_values(struct onnx_model *m, const char *what, ValueInfoProto *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!check_type(m, what, v[i]->name, v[i]->type))
            return false;
    return true;
}

/* Dimensions alone; the bytes are checked when the tensor is decoded. */
static bool check_dims(struct onnx_model *m, const struct place *at, const int64_t *dim, size_t n)
{
    size_t nelem = 1;
    if (n > MAX_RANK)
        return diag_error(m->tgc, at, "the tensor has rank %zu; at most %d is supported", n,
                          MAX_RANK);
    for (size_t i = 0; i < n; i++) {
        if (dim[i] < 0)
            return diag_error(m->tgc, at,
                              "dimension %zu of the tensor is %lld; it cannot be negative", i,
                              (long long)dim[i]);
        if (dim[i] && (!size_mul(nelem, (size_t)dim[i], &nelem) || nelem > PTRDIFF_MAX / 16))
            return diag_error(m->tgc, at,
                              "the tensor's shape has more elements than can be addressed");
    }
    return true;
}

static bool check_graph(struct onnx_model *m, const GraphProto *g)
{
    if (!check_values(m, "graph input", g->input, g->n_input) ||
        !check_values(m, "graph output", g->output, g->n_output) ||
        !check_values(m, "value", g->value_info, g->n_value_info))
        return false;
    for (size_t i = 0; i < g->n_input; i++) {
        if (g->input[i]->name[0])
            continue;
        struct place at = onnx_place_value(m, "graph input", "");
        return diag_error(m->tgc, &at, "input %zu has no name; every input has one", i);
    }
    for (size_t i = 0; i < g->n_initializer; i++) {
        const TensorProto *p = g->initializer[i];
        struct place at = {.file = m->path};
        /* the place is made only where it may be needed */
        bool is_plain = p->n_dims <= MAX_RANK && p->name[0];
        for (size_t k = 0; k < p->n_dims && is_plain; k++)
            is_plain = p->dims[k] >= 0 && p->dims[k] < 1 << 16 && k < 3;
        if (is_plain)
            continue;
        at = onnx_place_value(m, "initializer", p->name);
        if (!p->name[0])
            return diag_error(m->tgc, &at, "initializer %zu has no name; every initializer has one",
                              i);
        if (!check_dims(m, &at, p->dims, p->n_dims))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- attributes */

/* The type by the field that is present: models before IR version 2, and careless writers, leave it
 * out. */
static AttributeProto__AttributeType infer_type(const AttributeProto *a)
{
    const struct { bool is_there; AttributeProto__AttributeType type; } field[] = {
        {a->has_f, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT},
        {a->has_i, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT},
        {a->has_s, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING},
        {a->t, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR},
        {a->g, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH},
        {a->sparse_tensor, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR},
        {a->tp, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO},
        {a->n_floats, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS},
        {a->n_ints, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS},
        {a->n_strings, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS},
        {a->n_tensors, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSORS},
        {a->n_graphs, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPHS},
        {a->n_sparse_tensors, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSORS},
        {a->n_type_protos, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTOS},
    };
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (field[i].is_there)
            return field[i].type;
    return ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED;
}

/* Scalars and lists that proto3 writers omit are zero and empty; messages cannot be. */
static bool lacks_message(const AttributeProto *a)
{
    switch (a->type) {
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        return !a->t;
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH:
        return !a->g;
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR:
        return !a->sparse_tensor;
    case ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO:
        return !a->tp;
    default:
        return false;
    }
}

/* NULL: the attribute has no fault. */
static const char *find_attribute_fault(const struct onnx_body *b, AttributeProto *a)
{
    if (!a->name[0])
        return "an attribute has no name";
    if (a->ref_attr_name[0])
        return b->function
                   ? NULL
                   : "it refers to an attribute of a function (ref_attr_name), but is in none";
    if (!a->has_type || a->type == ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED)
        a->type = infer_type(a);
    if (a->type == ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED)
        return "the attribute has neither a type nor a value";
    if (!protobuf_c_enum_descriptor_get_value(&attribute_proto__attribute_type__descriptor,
                                              (int)a->type))
        return "the attribute's type is not one of the ONNX specification";
    return lacks_message(a) ? "the attribute has a type, but no value of it" : NULL;
}

/* Rank and dimensions of tensors in attributes, so that the promise about ranks holds for them
 * too. */
static bool check_attribute_tensors(struct onnx_model *m, const NodeProto *n,
                                    const AttributeProto *a)
{
    struct place at = {.file = m->path};
    if (a->t || a->n_tensors || a->sparse_tensor)
        at = onnx_place_attr(m, n, a->name);
    if (a->t && !check_dims(m, &at, a->t->dims, a->t->n_dims))
        return false;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (!check_dims(m, &at, a->tensors[i]->dims, a->tensors[i]->n_dims))
            return false;
    return !a->sparse_tensor ||
           check_dims(m, &at, a->sparse_tensor->dims, a->sparse_tensor->n_dims);
}

/* Once for each operator set. */
static void warn_of_import(struct onnx_model *m, const struct onnx_body *b, const NodeProto *n)
{
    const FunctionProto *f = b->function;
    bool is_imported = f ? find_opset(f->opset_import, f->n_opset_import, n->domain)
                         : find_opset(m->proto->opset_import, m->proto->n_opset_import, n->domain);
    bool is_known = is_imported || is_default_domain(n->domain) || onnx_find_function(m, n);
    for (int i = 0; i < m->nassumed && !is_known; i++)
        is_known = strcmp(m->assumed[i], n->domain) == 0;
    if (is_known)
        return;
    VEC_PUSH(m->tgc, m->assumed, m->nassumed, m->cap_assumed, n->domain);
    struct place at = onnx_place_node(m, n);
    diag_warn(m->tgc, &at,
              "the %s does not import its operator set '%.100s'; version %d is assumed",
              f ? "function" : "model", n->domain, onnx_newest_opset(n->domain));
}

static bool check_node(struct onnx_model *m, const struct onnx_body *b, const NodeProto *n)
{
    struct tgc *t = m->tgc;
    struct place at;
    const char *fault = !n->op_type[0]                    ? "the node has no op_type"
                        : n->n_attribute > MAX_ATTRIBUTES ? "the node has over 200 attributes"
                                                          : NULL;
    if (fault) {
        at = onnx_place_node(m, n);
        return diag_error(t, &at, "%s", fault);
    }
    if (!onnx_opset(m, b->function, n->domain) && !onnx_find_function(m, n)) {
        at = onnx_place_node(m, n);
        return diag_error(t, &at,
                          "its operator set '%.100s' is not among the %s's imports (opset_import), "
                          "so that its version is unknown",
                          n->domain[0] ? n->domain : "ai.onnx", b->function ? "function" : "model");
    }
    warn_of_import(m, b, n);
    for (size_t i = 0; i < n->n_attribute; i++) {
        AttributeProto *a = n->attribute[i];
        fault = find_attribute_fault(b, a);
        for (size_t k = 0; k < i && !fault; k++)
            if (strcmp(n->attribute[k]->name, a->name) == 0)
                fault = "the attribute is given twice";
        if (fault) {
            at = onnx_place_attr(m, n, a->name);
            return diag_error(t, &at, "%s", fault);
        }
        if (!check_attribute_tensors(m, n, a))
            return false;
    }
    return true;
}

static bool check_nodes(struct onnx_model *m)
{
    int nerror = 0;
    for (size_t i = 0; i < m->nbody; i++)
        for (size_t k = 0; k < m->body[i].n_node && nerror < MAX_ERRORS; k++)
            nerror += !check_node(m, &m->body[i], m->body[i].node[k]);
    return nerror == 0;
}

/* ------------------------------------------------------------------------------------ functions */

/* Calls between functions: depth-first search with a stack; on the way back each function's size
 * when all calls are inlined. The main graph counts as one more function, the last. */
struct calls {
    struct onnx_model *m;
    int *callee;                        /* the calls of function f are first[f] .. first[f + 1] */
    size_t *first, *next, *size;
    int *state, *stack;
};

static size_t caller_of(const struct onnx_model *m, const struct onnx_body *b)
{
    const FunctionProto *f = b->function;
    return f ? (size_t)(*find_function_slot(m, f->domain, f->name, f->overload) - 1)
             : m->proto->n_functions;
}

/* Counts the calls of each function, then places them. */
static void collect_calls(struct calls *c)
{
    const struct onnx_model *m = c->m;
    size_t n = m->proto->n_functions;
    for (size_t i = 0; i < m->nbody; i++) {
        size_t caller = caller_of(m, &m->body[i]);
        c->size[caller] += m->body[i].n_node;
        for (size_t k = 0; k < m->body[i].n_node; k++)
            c->first[caller + 1] += find_function(m, m->body[i].node[k]) >= 0;
    }
    for (size_t i = 0; i <= n; i++) {
        c->first[i + 1] += c->first[i];
        c->next[i] = c->first[i];
    }
    c->callee = mem_array(m->tgc, c->first[n + 1], sizeof *c->callee);
    for (size_t i = 0; i < m->nbody; i++) {
        size_t caller = caller_of(m, &m->body[i]);
        for (size_t k = 0; k < m->body[i].n_node; k++) {
            int callee = find_function(m, m->body[i].node[k]);
            if (callee >= 0)
                c->callee[c->next[caller]++] = callee;
        }
    }
    for (size_t i = 0; i <= n; i++)
        c->next[i] = c->first[i];
}

static bool report_recursion(struct calls *c, int f)
{
    struct place at = onnx_place_model(c->m);
    return diag_error(c->m->tgc, &at,
                      "the function '%.100s' calls itself, directly or through others; ONNX "
                      "functions cannot recurse",
                      c->m->proto->functions[f]->name);
}

static bool visit_functions(struct calls *c, size_t n)
{
    enum { UNSEEN, OPEN, DONE };
    for (size_t root = 0; root <= n; root++) {
        int depth = 0;
        if (c->state[root] == UNSEEN)
            c->stack[depth++] = (int)root;
        while (depth) {
            int f = c->stack[depth - 1];
            c->state[f] = OPEN;
            if (c->next[f] < c->first[f + 1]) {
                int callee = c->callee[c->next[f]++];
                if (c->state[callee] == OPEN)
                    return report_recursion(c, callee);
                if (c->state[callee] == UNSEEN)
                    c->stack[depth++] = callee;
                continue;
            }
            for (size_t i = c->first[f]; i < c->first[f + 1]; i++)
                if (!size_add(c->size[f], c->size[c->callee[i]], &c->size[f]))
                    c->size[f] = SIZE_MAX;
            c->state[f] = DONE;
            depth--;
        }
    }
    return true;
}

static bool check_functions(struct onnx_model *m)
{
    size_t n = m->proto->n_functions;
    if (!n)
        return true;
    struct calls c = {.m = m,
                      .first = mem_array(m->tgc, n + 2, sizeof(size_t)),
                      .next = mem_array(m->tgc, n + 1, sizeof(size_t)),
                      .size = mem_array(m->tgc, n + 1, sizeof(size_t)),
                      .state = mem_array(m->tgc, n + 1, sizeof(int)),
                      .stack = mem_array(m->tgc, n + 1, sizeof(int))};
    collect_calls(&c);
    if (!visit_functions(&c, n))
        return false;
    if (c.size[n] <= MAX_INLINED_NODES)
        return true;
    struct place at = onnx_place_model(m);
    return diag_error(
        m->tgc, &at,
        "with its functions inlined the model has over %d nodes, which is more than is supported",
        MAX_INLINED_NODES);
}

bool onnx_check(struct onnx_model *m)
{
    if (!check_header(m) || !index_functions(m))
        return false;
    onnx_site_build(m);
    for (size_t i = 0; i < m->nbody; i++) {
        const struct onnx_body *b = &m->body[i];
        if (b->graph
                ? !check_graph(m, b->graph)
                : !check_values(m, "value", b->function->value_info, b->function->n_value_info))
            return false;
    }
    return check_nodes(m) && check_functions(m) && onnx_check_names(m);
}
