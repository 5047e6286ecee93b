/* site.c - the place of a node in the file, for messages.
 *
 * Every node of the main graph, of the subgraphs in attributes and of function bodies gets its
 * number in the order of the file, before check.c sorts anything. The table is a hash table over
 * the node's address with linear probing: it is looked up, never iterated over, so that addresses
 * do not affect any output. A place reads from the outside in:
 *
 *      function 'ai.custom.Gelu': node 3 'if_0' (If), then_branch: node 1 'add_2' (Add), input 1
 *      'b'
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

struct onnx_site { const NodeProto *node; int index, body; };

static size_t slot_of(const struct onnx_model *m, const NodeProto *n)
{
    size_t i = (size_t)((uint64_t)(uintptr_t)n * 0x9e3779b97f4a7c15u >> 32) & (m->cap_site - 1);
    while (m->site[i].node && m->site[i].node != n)
        i = (i + 1) & (m->cap_site - 1);
    return i;
}

static const struct onnx_site *find_site(const struct onnx_model *m, const NodeProto *n)
{
    if (!m->cap_site)
        return NULL;
    const struct onnx_site *s = &m->site[slot_of(m, n)];
    return s->node ? s : NULL;
}

static void add_site(struct onnx_model *m, struct onnx_site site)
{
    if (2 * (m->nsite + 1) > m->cap_site) {
        struct onnx_site *old = m->site;
        size_t nold = m->cap_site;
        m->cap_site = nold ? 2 * nold : 64;
        m->site = mem_array(m->tgc, m->cap_site, sizeof *m->site);
        for (size_t i = 0; i < nold; i++)
            if (old[i].node)
                m->site[slot_of(m, old[i].node)] = old[i];
    }
    size_t i = slot_of(m, site.node);
    m->nsite += !m->site[i].node;
    m->site[i] = site;
}

static void add_subgraph(struct onnx_model *m, int outer, int holder_index, const AttributeProto *a,
                         GraphProto *g)
{
    struct onnx_body body = {.graph = g,
                             .function = m->body[outer].function,
                             .node = g->node,
                             .n_node = g->n_node,
                             .outer = outer,
                             .holder_index = holder_index,
                             .holder = m->body[outer].node[holder_index],
                             .attribute = a->name};
    VEC_PUSH(m->tgc, m->body, m->nbody, m->cap_body, body);
}

static void add_body_nodes(struct onnx_model *m, int body)
{
    NodeProto *const *node = m->body[body].node; /* body[] moves as it grows */
    size_t n = m->body[body].n_node;
    for (size_t i = 0; i < n; i++) {
        add_site(m, (struct onnx_site){node[i], (int)i, body});
        for (size_t k = 0; k < node[i]->n_attribute; k++) {
            const AttributeProto *a = node[i]->attribute[k];
            if (a->g)
                add_subgraph(m, body, (int)i, a, a->g);
            for (size_t g = 0; g < a->n_graphs; g++)
                add_subgraph(m, body, (int)i, a, a->graphs[g]);
        }
    }
}

void onnx_site_build(struct onnx_model *m)
{
    GraphProto *g = m->proto->graph;
    struct onnx_body main = {.graph = g, .node = g->node, .n_node = g->n_node, .outer = -1};
    VEC_PUSH(m->tgc, m->body, m->nbody, m->cap_body, main);
    for (size_t i = 0; i < m->proto->n_functions; i++) {
        FunctionProto *f = m->proto->functions[i];
        struct onnx_body body = {.function = f, .node = f->node, .n_node = f->n_node, .outer = -1};
        VEC_PUSH(m->tgc, m->body, m->nbody, m->cap_body, body);
    }
    for (size_t i = 0; i < m->nbody; i++) /* grows while subgraphs are found */
        add_body_nodes(m, (int)i);
}

void onnx_site_copy(struct onnx_model *m, const NodeProto *copy, const NodeProto *original)
{
    const struct onnx_site *from = find_site(m, original);
    if (!from)
        return;
    struct onnx_site site = *from;
    site.node = copy;
    add_site(m, site);
}

int onnx_node_index(const struct onnx_model *m, const NodeProto *n)
{
    const struct onnx_site *s = find_site(m, n);
    return s ? s->index : -1;
}

/* Names come from the model and may be of any length. */
enum { MAX_QUOTED = 100 };

static void put_quoted(struct text *x, const char *name)
{
    int n = (int)strnlen(name, MAX_QUOTED + 1);
    if (n <= MAX_QUOTED)
        text_printf(x, "'%s'", name);
    else
        text_printf(x, "'%.*s...'", MAX_QUOTED, name);
}

static void put_node(struct text *x, const struct onnx_model *m, const NodeProto *n)
{
    const struct onnx_site *chain[ONNX_MAX_DEPTH]; /* from the node outwards */
    int depth = 0;
    const struct onnx_site *s = find_site(m, n);
    for (; s && depth < ONNX_MAX_DEPTH;
         s = m->body[s->body].holder ? find_site(m, m->body[s->body].holder) : NULL)
        chain[depth++] = s;
    if (depth && m->body[chain[0]->body].function) {
        text_puts(x, "function ");
        put_quoted(x, m->body[chain[0]->body].function->name);
        text_puts(x, ": ");
    }
    for (int i = depth - 1; i >= 0; i--) {
        const NodeProto *node = i ? chain[i]->node : n;
        text_printf(x, "node %d ", chain[i]->index);
        put_quoted(x, node->name);
        text_printf(x, " (%.*s)", MAX_QUOTED, node->op_type);
        if (i > 0)
            text_printf(x, ", %.*s: ", MAX_QUOTED, m->body[chain[i - 1]->body].attribute);
    }
    if (!depth) {
        text_puts(x, "node ");
        put_quoted(x, n->name);
        text_printf(x, " (%.*s)", MAX_QUOTED, n->op_type);
    }
}

struct place onnx_place_model(const struct onnx_model *m)
{
    return (struct place){.file = m->path};
}

struct place onnx_place_node(const struct onnx_model *m, const NodeProto *n)
{
    struct text x = {.t = m->tgc};
    put_node(&x, m, n);
    return (struct place){.file = m->path, .text = x.s};
}

static struct place place_operand(const struct onnx_model *m, const NodeProto *n, const char *what,
                                  size_t k, size_t count, char *const *name)
{
    struct text x = {.t = m->tgc};
    put_node(&x, m, n);
    text_printf(&x, ", %s %zu", what, k);
    if (k < count && name[k][0]) {
        text_putc(&x, ' ');
        put_quoted(&x, name[k]);
    }
    return (struct place){.file = m->path, .text = x.s};
}

struct place onnx_place_input(const struct onnx_model *m, const NodeProto *n, size_t k)
{
    return place_operand(m, n, "input", k, n->n_input, n->input);
}

struct place onnx_place_output(const struct onnx_model *m, const NodeProto *n, size_t k)
{
    return place_operand(m, n, "output", k, n->n_output, n->output);
}

struct place onnx_place_attr(const struct onnx_model *m, const NodeProto *n, const char *name)
{
    struct text x = {.t = m->tgc};
    put_node(&x, m, n);
    text_puts(&x, ", attribute ");
    put_quoted(&x, name);
    return (struct place){.file = m->path, .text = x.s};
}

struct place onnx_place_value(const struct onnx_model *m, const char *what, const char *name)
{
    struct text x = {.t = m->tgc};
    text_printf(&x, "%s ", what);
    put_quoted(&x, name);
    return (struct place){.file = m->path, .text = x.s};
}
