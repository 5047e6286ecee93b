/* order.c - checks that each name is defined once, and before its use.
 *
 * Every body (the main graph, function bodies, subgraphs) has a table of the names that it defines:
 * inputs, initializers, outputs of nodes. An input of a node is looked up there and then in the
 * bodies around it. A subgraph may use what a node of an outer body produces. The node that holds
 * the subgraph then depends on that node, so that each body is ordered on its own:
 *
 *      y = Add(a, b)                edge Add -> If in the main graph, although only
 *      z = If(c) { then: Relu(y) }  the node in the branch reads y
 *
 * ONNX requires sorted nodes, which not every exporter provides. A body that is not sorted is
 * sorted by depth-first search in the file's order, so that the result is deterministic; a node
 * that the search finds on its own stack is part of a cycle.
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

enum { NOT_A_NODE = -1, MAX_ERRORS = 20 };

struct name { int producer; bool is_input; };
struct edge { int from, to; };
struct scope {
    struct dict name;
    struct edge *edge; size_t nedge, cap_edge;
    bool is_sorted;
};
struct checker { struct onnx_model *m; struct scope *scope; int nerror; };

/* false: enough errors have been reported. */
static bool room_for_error(struct checker *c) { return c->nerror++ < MAX_ERRORS; }

static void set_name(struct checker *c, struct scope *scope, const char *s, struct name name)
{
    *dict_enter(c->m->tgc, &scope->name, s) = mem_copy(c->m->tgc, &name, sizeof name);
}

static void define_value(struct checker *c, struct scope *scope, const char *what, const char *s,
                         bool is_input, bool may_be_input)
{
    const struct name *n = dict_get(&scope->name, s);
    if (n && !(n->is_input && may_be_input) && room_for_error(c)) {
        struct place at = onnx_place_value(c->m, what, s);
        diag_error(c->m->tgc, &at,
                   "the name is defined twice; every name of a graph must be defined once");
    }
    set_name(c, scope, s, (struct name){NOT_A_NODE, is_input});
}

static void define_outputs(struct checker *c, struct scope *scope, const NodeProto *node, int index)
{
    for (size_t k = 0; k < node->n_output; k++) {
        if (!node->output[k][0])
            continue;
        if (dict_has(&scope->name, node->output[k]) && room_for_error(c)) {
            struct place at = onnx_place_output(c->m, node, k);
            diag_error(c->m->tgc, &at,
                       "the name is defined twice; every name of a graph must be defined once");
        }
        set_name(c, scope, node->output[k], (struct name){index, false});
    }
}

static void define_names(struct checker *c, const struct onnx_body *b, struct scope *scope)
{
    const GraphProto *g = b->graph;
    for (size_t i = 0; g && i < g->n_input; i++)
        define_value(c, scope, "graph input", g->input[i]->name, true, false);
    for (size_t i = 0; g && i < g->n_initializer; i++)
        define_value(c, scope, "initializer", g->initializer[i]->name, false, true);
    for (size_t i = 0; g && i < g->n_sparse_initializer; i++)
        if (g->sparse_initializer[i]->values)
            define_value(c, scope, "sparse initializer", g->sparse_initializer[i]->values->name,
                         false, true);
    for (size_t i = 0; !g && i < b->function->n_input; i++)
        define_value(c, scope, "function input", b->function->input[i], true, false);
    for (size_t i = 0; i < b->n_node; i++)
        define_outputs(c, scope, b->node[i], (int)i);
}

/* Looks a name up in body `at` or those around it, and adds the edge for its use by `user`
 * (NOT_A_NODE: an output). */
static bool use_name(struct checker *c, int at, int user, const char *s)
{
    while (at >= 0) {
        struct scope *scope = &c->scope[at];
        const struct name *n = dict_get(&scope->name, s);
        if (n) {
            if (n->producer == NOT_A_NODE || user == NOT_A_NODE)
                return true;
            if (n->producer >= user)
                scope->is_sorted = false;
            struct edge e = {n->producer, user};
            VEC_PUSH(c->m->tgc, scope->edge, scope->nedge, scope->cap_edge, e);
            return true;
        }
        user = c->m->body[at].holder_index;
        at = c->m->body[at].outer;
    }
    return false;
}

static void use_inputs(struct checker *c, int at)
{
    const struct onnx_body *b = &c->m->body[at];
    for (size_t i = 0; i < b->n_node; i++) {
        const NodeProto *node = b->node[i];
        for (size_t k = 0; k < node->n_input; k++) {
            if (!node->input[k][0] || use_name(c, at, (int)i, node->input[k]) || !room_for_error(c))
                continue;
            struct place where = onnx_place_input(c->m, node, k);
            diag_error(c->m->tgc, &where,
                       "nothing defines this name: it is no input, initializer or node output of "
                       "its graph%s",
                       b->outer >= 0 ? ", nor of a graph around it" : "");
        }
    }
}

static void use_outputs(struct checker *c, int at)
{
    const struct onnx_body *b = &c->m->body[at];
    size_t n = b->graph ? b->graph->n_output : b->function->n_output;
    for (size_t i = 0; i < n; i++) {
        const char *s = b->graph ? b->graph->output[i]->name : b->function->output[i];
        if ((s[0] && use_name(c, at, NOT_A_NODE, s)) || !room_for_error(c))
            continue;
        struct place where = b->holder ? onnx_place_node(c->m, b->holder)
                                       : onnx_place_value(c->m, "graph output", s);
        if (b->holder)
            diag_error(c->m->tgc, &where, "the output '%.100s' of its %.100s is defined nowhere", s,
                       b->attribute);
        else
            diag_error(c->m->tgc, &where, "nothing defines this output%s%.100s",
                       b->function ? " of the function " : "",
                       b->function ? b->function->name : "");
    }
}

/* ---- sorting one body: edges as lists by target, then depth-first search with a stack of (node,
 * next edge) */

struct sorter { size_t *first; int *from; int *state; size_t *next; int *stack; };
enum { UNSEEN, OPEN, DONE };

static void report_cycle(struct checker *c, const struct onnx_body *b, const struct sorter *s,
                         int depth, int again)
{
    if (!room_for_error(c))
        return;
    int start = depth - 1;
    while (start > 0 && s->stack[start] != again)
        start--;
    struct text x = {.t = c->m->tgc};
    for (int i = start; i < depth && i < start + 6; i++) {
        const NodeProto *node = b->node[s->stack[i]];
        text_printf(&x, "%s%d '%.60s' (%.60s)", i > start ? " needs " : "", s->stack[i], node->name,
                    node->op_type);
    }
    struct place at = onnx_place_node(c->m, b->node[again]);
    diag_error(c->m->tgc, &at,
               "the graph has a cycle of %d node%s, each waiting for the next: %s%s; ONNX graphs "
               "have no cycles",
               depth - start, depth - start == 1 ? "" : "s", x.s, depth - start > 6 ? " ..." : "");
}

static void sort_edges(struct tgc *t, const struct scope *scope, size_t n, struct sorter *s)
{
    s->first = mem_array(t, n + 1, sizeof *s->first);
    s->next = mem_array(t, n, sizeof *s->next);
    s->from = mem_array(t, scope->nedge, sizeof *s->from);
    s->state = mem_array(t, n, sizeof *s->state);
    s->stack = mem_array(t, n, sizeof *s->stack);
    for (size_t i = 0; i < scope->nedge; i++)
        s->first[scope->edge[i].to + 1]++;
    for (size_t i = 0; i < n; i++)
        s->first[i + 1] += s->first[i];
    for (size_t i = 0; i < n; i++)
        s->next[i] = s->first[i];
    for (size_t i = 0; i < scope->nedge; i++)
        s->from[s->next[scope->edge[i].to]++] = scope->edge[i].from;
    for (size_t i = 0; i < n; i++)
        s->next[i] = s->first[i];
}

static bool sort_body(struct checker *c, struct onnx_body *b, const struct scope *scope)
{
    size_t n = b->n_node, nsorted = 0;
    struct sorter s;
    sort_edges(c->m->tgc, scope, n, &s);
    NodeProto **sorted = mem_array(c->m->tgc, n, sizeof *sorted);
    for (size_t root = 0; root < n; root++) {
        int depth = 0;
        if (s.state[root] == UNSEEN)
            s.stack[depth++] = (int)root;
        while (depth) {
            int node = s.stack[depth - 1];
            s.state[node] = OPEN;
            if (s.next[node] == s.first[node + 1]) {
                s.state[node] = DONE;
                sorted[nsorted++] = b->node[node];
                depth--;
                continue;
            }
            int from = s.from[s.next[node]++];
            if (s.state[from] == OPEN) {
                report_cycle(c, b, &s, depth, from);
                return false;
            }
            if (s.state[from] == UNSEEN)
                s.stack[depth++] = from;
        }
    }
    ARRAY_COPY(b->node, sorted, n); /* the model's own array */
    return true;
}

bool onnx_check_names(struct onnx_model *m)
{
    struct checker c = {.m = m, .scope = mem_array(m->tgc, m->nbody, sizeof(struct scope))};
    for (size_t i = 0; i < m->nbody; i++) {
        c.scope[i].is_sorted = true;
        define_names(&c, &m->body[i], &c.scope[i]);
    }
    for (size_t i = 0; i < m->nbody; i++) {
        use_inputs(&c, (int)i);
        use_outputs(&c, (int)i);
    }
    for (size_t i = 0; i < m->nbody && !c.nerror; i++)
        if (!c.scope[i].is_sorted)
            sort_body(&c, &m->body[i], &c.scope[i]);
    if (c.nerror > MAX_ERRORS) {
        struct place at = onnx_place_model(m);
        diag_error(m->tgc, &at, "... and %d more errors of this kind", c.nerror - MAX_ERRORS);
    }
    return c.nerror == 0;
}
