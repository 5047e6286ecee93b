/* graph.c - the model's own nodes, as the frontend names what it makes, and which feeds which.
 *
 * A node stands for all uops of its origin. A uop without one, such as a movement that a rule made,
 * belongs to the node of its first source. Inputs and outputs are nodes as well. Before the passes,
 * an origin's uops have sources of earlier origins alone, so there is no cycle. A derivative is of
 * the node that it is of, and what it reads makes no edge.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <stdlib.h>
#include <string.h>

struct edge { int from, to; };
struct nodes {
    struct tgc *t;
    struct text *out;
    int *of_origin;             /* by origin's id; -1: not met */
    int *of_uop; size_t nuop;   /* by uop id; -1: none */
    bool *varies;               /* by uop id: it depends on an input, or is computed by the host */
    int n;
    const struct uop **last;    /* by node: the last uop that is its own */
    struct edge *edge; size_t nedge, cap_edge;
};

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static void add_edge(struct nodes *g, int from, int to)
{
    struct edge e = {from, to};
    if (from >= 0 && to >= 0 && from != to)
        VEC_PUSH(g->t, g->edge, g->nedge, g->cap_edge, e);
}

/* The node to which u belongs, a new one where its origin has not been met; -1: none. */
static int node_of(struct nodes *g, const struct uop *u)
{
    const struct origin *o = uop_get_origin(g->t, u);
    const struct buffer *b = u->op == OP_BUFFER ? uop_buffer_of(u) : NULL;
    int node = -1;
    if (b) {
        node = b->kind == BUFFER_INPUT ? g->n++ : -1;
    } else if (uop_is_adjoint(g->t, u)) {
        return g->of_origin[o->id];
    } else if (o && op_class(u->op) != CLASS_LEAF) {
        if (g->of_origin[o->id] < 0)
            g->of_origin[o->id] = g->n++;
        node = g->of_origin[o->id];
    } else if (u->nsrc) {
        node = g->of_uop[u->src[0]->id];
    }
    if (node >= 0 && (b || o))
        g->last[node] = u;
    return node;
}

static bool varies(const struct nodes *g, const struct uop *u)
{
    bool is_input = u->op == OP_BUFFER && uop_buffer_of(u)->kind == BUFFER_INPUT;
    bool any = is_input || u->op == OP_HOST || u->op == OP_LOOP || u->op == OP_IF ||
               u->op == OP_PARAM;
    for (int k = 0; k < u->nsrc && !any; k++)
        any = g->varies[u->src[k]->id];
    return any;
}

/* Equal constants are one uop, of the first node that has them: what does not vary is no node's, so
 * that it makes no edge between nodes that share it. */
static void find_nodes(struct nodes *g, struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++) {
        bool counts = g->varies[u[i]->id] = varies(g, u[i]);
        counts &= u[i]->dtype != DTYPE_INDEX;
        int node = g->of_uop[u[i]->id] = counts ? node_of(g, u[i]) : -1;
        for (int k = 0; k < u[i]->nsrc; k++)
            if (u[i]->src[k]->dtype != DTYPE_INDEX && !uop_is_adjoint(g->t, u[i]))
                add_edge(g, g->of_uop[u[i]->src[k]->id], node);
    }
}

static void put_node(struct nodes *g, const char *kind, const char *name, const char *op,
                     const struct uop *u)
{
    struct text type = {.t = g->t};
    text_printf(&type, "%s", u ? dtype_name(u->dtype) : "");
    if (u)
        text_dims(&type, u->dim, u->ndim, "[", "]");
    text_printf(g->out, "%s{\"kind\":\"%s\",\"name\":", g->out->s[g->out->n - 1] == '[' ? "" : ",\n",
                kind);
    text_json(g->out, name);
    text_puts(g->out, ",\"op\":");
    text_json(g->out, op);
    text_puts(g->out, ",\"type\":");
    text_json(g->out, type.s);
    text_putc(g->out, '}');
}

static void put_nodes(struct nodes *g, const struct graph *graph, int nroot)
{
    text_puts(g->out, ",\n\"nodes\":[");
    for (int i = 0; i < g->n; i++) {
        const struct uop *u = g->last[i];
        const struct origin *o = uop_get_origin(g->t, u);
        if (u->op == OP_BUFFER)
            put_node(g, "input", uop_buffer_of(u)->name ? uop_buffer_of(u)->name : "", "input", u);
        else
            put_node(g, "node", o->node, o->op_type, u);
    }
    for (int i = 0; i < graph->noutput && i < nroot; i++)
        put_node(g, "output", graph->output[i].name ? graph->output[i].name : "", "output",
                 graph->output[i].value);
}

/* Sorted, each once. */
static void put_edges(struct nodes *g)
{
    bool any = false;
    if (g->nedge)
        qsort(g->edge, g->nedge, sizeof *g->edge, compare_edges);
    text_puts(g->out, "],\n\"edges\":[");
    for (size_t i = 0; i < g->nedge; i++) {
        if (i && compare_edges(&g->edge[i - 1], &g->edge[i]) == 0)
            continue;
        text_printf(g->out, "%s[%d,%d]", any ? "," : "", g->edge[i].from, g->edge[i].to);
        any = true;
    }
    text_putc(g->out, ']');
}

void report_graph(struct text *out, struct tgc *t, const struct model *m, int **number)
{
    struct nodes g = {.t = t, .out = out};
    int n;
    struct uop **order = uop_toposort(t, m->root, m->nroot, &n);
    for (int i = 0; i < n; i++)
        g.nuop = order[i]->id >= g.nuop ? (size_t)order[i]->id + 1 : g.nuop;
    g.of_uop = mem_array(t, g.nuop + 1, sizeof *g.of_uop);
    g.varies = mem_array(t, g.nuop + 1, sizeof *g.varies);
    g.of_origin = mem_array(t, t->norigin + 1, sizeof *g.of_origin);
    g.last = mem_array(t, (size_t)n + 1, sizeof *g.last);
    for (size_t i = 0; i < t->norigin; i++)
        g.of_origin[i] = -1;
    find_nodes(&g, order, n);
    for (int i = 0; i < m->graph->noutput && i < m->nroot; i++)
        add_edge(&g, g.of_uop[m->root[i]->id], g.n + i);
    put_nodes(&g, m->graph, m->nroot);
    put_edges(&g);
    *number = g.of_origin;
}
