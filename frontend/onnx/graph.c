/* graph.c - from an unpacked model to the tensor graph: walks the nodes in order.
 *
 *      nodes          -> the lowering functions of operators.def
 *      operators of a library -> lower_custom.c
 *      functions      -> inlined: a scope of their own, attribute references resolved in a copy of
 * each node subgraphs      -> lowered where their node is, in a scope that looks into the enclosing
 * ones
 *
 * Nesting of subgraphs and calls is bounded (MAX_DEPTH), so is the number of nodes after inlining
 * (MAX_NODES): functions that call functions could double with each level.
 */
#include "frontend/onnx/lower.h"
#include "frontend/text/text.h"

#include <string.h>

enum { MAX_DEPTH = 100, MAX_NODES = 400000 };

/* ---------------------------------------------------------------------------------------- nodes */

static bool lower_nodes(struct lower *l, struct scope *s, const struct call *call,
                        NodeProto *const *node, size_t nnode);

/* Inside a function: a copy of the node whose attribute references are replaced by what the caller
 * gave, or by the function's default, or dropped. */
static const NodeProto *resolve_attributes(struct lower *l, const struct call *call,
                                           const NodeProto *p)
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
        return node_error(
            n, -1, "function '%s' has %zu inputs and %zu outputs, but is called with %d and %d",
            f->name, f->n_input, f->n_output, n->nin, n->nout);
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

/* Checks what the tables say of an operator's inputs, now that there are values. */
static bool check_operands(const struct node *n)
{
    const struct operator* o = n->operator;
    bool takes_any = o->kinds[0] == 'S';
    if (!schema_check_presence(n, n->schema))
        return false;
    for (int k = 0; k < n->nin; k++)
        if (n->value_in[k] && !n->in[k] && !takes_any)
            return node_error(n, k, "a tensor is expected, found %s",
                              n->value_in[k]->kind == VALUE_SEQUENCE ? "a sequence"
                                                                     : "an optional");
    for (int k = 0; k < n->nin; k++) {
        if (!n->in[k])
            continue;
        bool is_string = n->in[k]->dtype == DTYPE_STRING;
        bool taken = is_string ? strchr(o->kinds, 'T') || (k > 0 && strchr(o->kinds, 't'))
                               : k > 0 || takes_any || !*o->kinds ||
                                     strchr(o->kinds, dtype_kind(n->in[k]->dtype)) != NULL;
        if (!taken)
            return node_error(n, k, "dtype %s is not supported by this operator",
                              dtype_name(n->in[k]->dtype));
    }
    return true;
}

/* A node may have failed because a dimension is open that the model cannot leave open: reports that
 * once. */
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
    for (int i = 0; i < l->nvar; i++)
        put_dim_option(&names, l->var[i]->name, "N");
    l->hinted = true;
    diag_warn(l->t, &n->at,
              "its inputs have open dimensions; if the model only holds together for some sizes, "
              "fix them with%s",
              names.s);
}

/* A window that does not fit for some sizes: the run finds out. */
static bool require_sizes(const struct node *n, const struct uop *x)
{
    for (int a = 0; a < x->ndim; a++)
        if (x->dim[a]->vmin < 0 &&
            !node_require(n, -1, uop_not(n->t, sym_lt(n->t, x->dim[a], uop_int(n->t, 0))),
                          "a size would be negative"))
            return false;
    return true;
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
        if (n->value_out[k]->tensor && !require_sizes(n, n->value_out[k]->tensor))
            return false;
        scope_set(l->t, s, name, n->value_out[k]);
        if (n->value_out[k]->tensor)
            lower_learn(l, s, name, n->value_out[k]->tensor);
    }
    return true;
}

static bool lower_node(struct lower *l, struct scope *s, const struct call *call,
                       const NodeProto *p)
{
    struct tgc *t = l->t;
    const FunctionProto *f = onnx_find_function(l->model, p);
    struct node n = {.t = t,
                     .lower = l,
                     .scope = s,
                     .call = call,
                     .nin = (int)p->n_input,
                     .nout = (int)p->n_output};
    n.proto = resolve_attributes(l, call, p);
    n.at = onnx_place_node(l->model, n.proto);
    n.lib = (struct lib){t, &n.at};
    size_t nin = p->n_input > MIN_SLOTS ? p->n_input : MIN_SLOTS,
           nout = p->n_output > MIN_SLOTS ? p->n_output : MIN_SLOTS;
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
        return node_error(
            &n, -1,
            "the model has more than %d nodes once functions are inlined and loops unrolled",
            MAX_NODES);
    int saved = t->current_origin;
    const struct custom *custom = lower_find_custom(l, p);
    if (custom) {
        origin_new(t, p->name, p->op_type, onnx_node_index(l->model, p));
        if (!lower_custom(&n, custom) || t->nerror) {
            hint_open_dimensions(&n);
            return false;
        }
    } else if (f) {
        if (!inline_function(&n, f))
            return false;
    } else {
        n.opset = (int)onnx_opset(l->model, call ? call->function : NULL, p->domain);
        n.operator= operator_find(operator_domain(p->domain), p->op_type, n.opset, NULL);
        n.schema = schema_find(operator_domain(p->domain), p->op_type, n.opset);
        if (!n.operator || !n.schema)
            return node_error(&n, -1, "is not supported");
        if (n.proto != p && !schema_check_attributes(l->model, n.proto, n.schema, n.opset))
            return false;
        origin_new(t, p->name, p->op_type, onnx_node_index(l->model, p));
        const struct node *outer = l->node;
        l->node = &n;
        if (!check_operands(&n) || !n.operator->lower(&n) || t->nerror) {
            hint_open_dimensions(&n);
            return false;
        }
        l->node = outer;
    }
    t->current_origin = saved;
    return bind_outputs(l, s, &n);
}

static bool lower_nodes(struct lower *l, struct scope *s, const struct call *call,
                        NodeProto *const *node, size_t nnode)
{
    for (size_t i = 0; i < nnode; i++) {
        tgc_poll(l->t);
        if (!lower_node(l, s, call, node[i]))
            return false;
    }
    return true;
}

static bool walk_subgraph(const struct node *n, const GraphProto *g, struct value *const *args,
                          int nargs, struct value **out)
{
    struct lower *l = n->lower;
    struct scope body = {.parent = n->scope, .graph = g};
    if ((size_t)nargs != g->n_input)
        return node_error(n, -1, "its subgraph '%s' must have %d inputs, found %zu", g->name, nargs,
                          g->n_input);
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
            return node_error(n, -1, "output '%s' of its subgraph '%s' is not there",
                              g->output[k]->name, g->name);
    l->depth--;
    return true;
}
/* ------------------------------------------------------------------------------------ the model */

/* One walk over the model with the facts that are known so far; NULL: reported. */
static struct graph *lower_once(struct lower *l)
{
    const GraphProto *g = l->model->proto->graph;
    struct scope top = {.graph = g};
    struct graph *out = MEM_NEW(l->t, struct graph);
    out->name = g->name;
    if (!lower_initializers(l, &top, g) || !lower_inputs(l, &top, g, out))
        return NULL;
    l->t->agree = lower_agree;
    l->t->agree_ctx = l;
    bool ok = lower_nodes(l, &top, NULL, g->node, g->n_node);
    l->t->agree = NULL;
    if (!ok || !border_outputs(l, &top, g, out) || !inner_outputs(l, &top, g, out))
        return NULL;
    out->var = l->var;
    out->nvar = l->nvar;
    return l->t->nerror ? NULL : out;
}

/* Declarations may bound a symbol that was met before them: then the model is lowered again with
 * that knowledge. */
struct graph *onnx_lower(struct tgc *t, struct onnx_model *m,
                         const struct onnx_graph_options *options)
{
    enum { MAX_ROUNDS = 8 };
    struct fact_list facts = {0};
    const struct lower start = {.t = t,
                                .model = m,
                                .options = options,
                                .facts = &facts,
                                .subgraph = walk_subgraph,
                                .again = onnx_lower};
    struct lower l = start;
    int ndiag = t->ndiag, nerror = t->nerror;
    struct graph *out = NULL;
    if (!lower_check_operators(&l))
        return NULL;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        size_t first = t->norigin;
        l = start;
        tg_library_begin(options ? options->library : NULL);
        l.option_used = mem_array(t, options ? (size_t)options->ndim + 1 : 1, sizeof(bool));
        out = lower_once(&l);
        if (!l.learned || round + 1 == MAX_ROUNDS)
            break;
        for (size_t i = first; i < t->norigin; i++)
            t->origin[i]->is_past = true;
        t->ndiag = ndiag;
        t->nerror = nerror;
    }
    if (!out) {
        lower_hint_found(&l);
        lower_suggest_others(&l);
        return NULL;
    }
    out->producer = mem_printf(t, "%s%s%s", m->proto->producer_name,
                               *m->proto->producer_version ? " " : "", m->proto->producer_version);
    lower_emit_checks(&l);
    if (!lower_check_dim_options(&l) || !lower_close_found(&l, out))
        return NULL;
    lower_report_assumptions(&l);
    t->current_origin = 0;
    return t->nerror ? NULL : out;
}
