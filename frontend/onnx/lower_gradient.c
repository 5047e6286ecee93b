/* lower_gradient.c - ai.onnx.preview.training.Gradient: the nodes between the named variables and
 * the named result are lowered again, with unknowns for the variables, and their derivatives
 * (library_gradient.c) evaluated at the node's inputs.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

/* Names in a set of pointers to them; short. */
struct name_list { struct tgc *t; const char **v; int n; size_t cap; };

static bool has_name(const struct name_list *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], name))
            return true;
    return false;
}

static void add_name(struct name_list *l, const char *name)
{
    if (*name && !has_name(l, name))
        VEC_PUSH(l->t, l->v, l->n, l->cap, name);
}

/* Adds what a node reads, its subgraphs included; and the variables of another Gradient. */
static void add_inputs(const struct node *n, struct name_list *l, const NodeProto *p)
{
    const NodeProto **todo = NULL;
    int ntodo = 0;
    size_t cap = 0;
    VEC_PUSH(l->t, todo, ntodo, cap, p);
    while (ntodo) {
        p = todo[--ntodo];
        for (size_t k = 0; k < p->n_input; k++)
            add_name(l, p->input[k]);
        if (!strcmp(p->op_type, "Gradient"))
            add_name(l, onnx_attr_string(lower_model(n->lower), p, "y", ""));
        for (size_t k = 0; k < p->n_attribute; k++)
            for (size_t i = 0; p->attribute[k]->g && i < p->attribute[k]->g->n_node; i++)
                VEC_PUSH(l->t, todo, ntodo, cap, p->attribute[k]->g->node[i]);
    }
}

/* The nodes of n's graph that compute y from the names in stop, in order. */
static GraphProto *part_of_graph(const struct node *n, const char *y, const struct name_list *stop)
{
    struct tgc *t = n->t;
    const GraphProto *whole = n->scope->graph;
    GraphProto *g = MEM_NEW(t, GraphProto);
    struct name_list wanted = {.t = t};
    NodeProto **node = mem_array(t, whole->n_node + 1, sizeof *node);
    size_t begin = whole->n_node, at = begin;
    graph_proto__init(g);
    add_name(&wanted, y);
    for (size_t i = whole->n_node; i-- > 0;) {
        bool makes = false;
        for (size_t k = 0; k < whole->node[i]->n_output; k++)
            makes |= has_name(&wanted, whole->node[i]->output[k]) &&
                     !has_name(stop, whole->node[i]->output[k]);
        if (!makes)
            continue;
        node[--at] = whole->node[i];
        add_inputs(n, &wanted, whole->node[i]);
    }
    g->name = mem_printf(t, "%s", whole->name);
    g->node = node + at;
    g->n_node = begin - at;
    ValueInfoProto *info = mem_array(t, (size_t)stop->n + 1, sizeof *info);
    ValueInfoProto **border = mem_array(t, (size_t)stop->n + 1, sizeof *border);
    for (int k = 0; k <= stop->n; k++) {
        value_info_proto__init(border[k] = &info[k]);
        info[k].name = mem_printf(t, "%s", k < stop->n ? stop->v[k] : y);
    }
    g->input = border;
    g->n_input = (size_t)stop->n;
    g->output = border + stop->n;
    g->n_output = 1;
    return g;
}

struct point { int n; struct uop *const *unknown, *const *value; };

static struct uop *at_point(struct tgc *t, void *ctx, struct uop *u)
{
    const struct point *p = ctx;
    (void)t;
    for (int k = 0; k < p->n && u->op == OP_BUFFER; k++)
        if (p->unknown[k] == u)
            return p->value[k];
    return NULL;
}

/* The conditions and host calls that the lowering of the nodes added from these marks on are about
 * the unknowns, too. */
static void move_checks(const struct node *n, int ncheck, int nhost, struct point *p)
{
    struct lower *l = n->lower;
    int left = ncheck;
    uop_rewrite(n->t, l->host + nhost, l->nhost - nhost, at_point, p);
    for (int i = ncheck; i < l->ncheck; i++) {
        struct check c = l->check[i];
        bool seen = false;
        uop_rewrite(n->t, &c.cond, 1, at_point, p);
        for (int k = 0; k < left && !seen; k++)
            if ((seen = l->check[k].cond == c.cond))
                l->check[k].is_late &= c.is_late;
        if (!seen)
            l->check[left++] = c;
    }
    l->ncheck = left;
}

bool lower_gradient(struct node *n)
{
    struct tgc *t = n->t;
    const char *const *xs, *const *zs, *y = node_string(n, "y", "");
    int nx = node_strings(n, "xs", &xs), nz = node_strings(n, "zs", &zs);
    struct name_list names = {.t = t};
    nz = nz < 0 ? 0 : nz;
    if (nx < 1 || !*y || nx + nz != n->nin || n->nout > nx)
        return node_error(n, -1,
                          "needs the attributes xs and y, as many inputs as xs and zs name, and at "
                          "most as many outputs as xs");
    if (!n->scope->graph)
        return node_error(n, -1, "the body of a function has no graph to take the gradient of");
    struct uop **unknown = mem_array(t, (size_t)n->nin, sizeof *unknown),
               **dx = mem_array(t, (size_t)nx, sizeof *dx);
    struct value **args = mem_array(t, (size_t)n->nin, sizeof *args), *result;
    for (int k = 0; k < n->nin; k++) {
        const struct uop *x = n->in[k];
        const char *name = k < nx ? xs[k] : zs[k - nx];
        if (!x || has_name(&names, name))
            return node_error(n, k, "each variable must be there, once");
        add_name(&names, name);
        unknown[k] = uop_buffer(t, buffer_new(t, BUFFER_INPUT, x->dtype, x->dim, x->ndim, name));
        args[k] = value_tensor(t, unknown[k]);
    }
    int ncheck = n->lower->ncheck, nhost = n->lower->nhost;
    if (!lower_subgraph(n, part_of_graph(n, y, &names), args, n->nin, &result))
        return false;
    if (result->kind != VALUE_TENSOR)
        return node_error(n, -1, "'%s' is no tensor", y);
    if (!lib_gradient(&n->lib, result->tensor, unknown, nx, dx))
        return false;
    struct point p = {n->nin, unknown, n->in};
    uop_rewrite(t, dx, nx, at_point, &p);
    move_checks(n, ncheck, nhost, &p);
    for (int k = 0; k < n->nout; k++)
        if (*n->proto->output[k] && !node_set(n, k, dx[k]))
            return false;
    return true;
}
