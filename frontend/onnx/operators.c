/* operators.c - the table of operators.def: finds the row for an opset, and the operators of a
 * model without a row. */
#include "frontend/onnx/lower.h"

#include <string.h>

static const struct operator operators[] = {
#define OPERATOR(domain, name, since, until, function, param, kinds, limits)                       \
    {domain, name, since, until, function, param, kinds, limits},
#include "frontend/onnx/operators.def"
#undef OPERATOR
};

int operator_count(void) { return (int)(sizeof operators / sizeof *operators); }

const struct operator* operator_at(int i) { return &operators[i]; }

const char *operator_gradient(const struct operator *op)
{
    static const struct { const char *domain, *name, *what; } rows[] = {
#define GRADIENT(domain, name, what) {domain, name, #what},
#include "frontend/onnx/gradients.def"
#undef GRADIENT
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, op->name) && !strcmp(rows[i].domain, op->domain))
            return rows[i].what;
    return "";
}

const struct operator*
    operator_find(const char *domain, const char *name, int opset, bool *known_elsewhere)
{
    int lo = 0, hi = operator_count();
    bool seen = false;
    while (lo < hi) { /* the first row of that name: rows are sorted by name, domain, since */
        int mid = lo + (hi - lo) / 2;
        int order = strcmp(operators[mid].name, name);
        if (order == 0)
            order = strcmp(operators[mid].domain, domain);
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct operator* found = NULL;
    for (int i = lo; i < operator_count() && !strcmp(operators[i].name, name) &&
                     !strcmp(operators[i].domain, domain);
         i++) {
        seen = true;
        if (opset >= operators[i].since && (!operators[i].until || opset <= operators[i].until))
            found = &operators[i];
    }
    if (known_elsewhere)
        *known_elsewhere = seen;
    return found;
}

/* ---------------------------------------------------------------------- operators not supported */

struct missing {
    const char *domain, *op_type;
    int opset, count;
    bool elsewhere;
    const NodeProto *first;
    struct text nodes;
};
struct missing_list {
    struct missing *v;
    int n;
    size_t cap;
};

static void note_missing(struct lower *l, struct missing_list *list, const NodeProto *p, int opset,
                         bool elsewhere)
{
    struct missing *m = NULL;
    for (int i = 0; i < list->n && !m; i++)
        if (!strcmp(list->v[i].op_type, p->op_type) && !strcmp(list->v[i].domain, p->domain) &&
            list->v[i].opset == opset)
            m = &list->v[i];
    if (!m) {
        VEC_PUSH(l->t, list->v, list->n, list->cap,
                 ((struct missing){.domain = p->domain,
                                   .op_type = p->op_type,
                                   .opset = opset,
                                   .elsewhere = elsewhere,
                                   .first = p,
                                   .nodes = {.t = l->t}}));
        m = &list->v[list->n - 1];
    }
    if (m->count++ < 5)
        text_printf(&m->nodes, "%s%d '%s'", m->count > 1 ? ", " : "", onnx_node_index(l->model, p),
                    p->name);
}

enum { MAX_WRONG = 20 };            /* nodes whose mistakes are reported */
struct block {
    NodeProto *const *node;
    size_t n;
    const FunctionProto *function;
};

/* Checks every node of the model, subgraphs and called functions included, before anything is
 * lowered: reports all missing operators at once. */
bool lower_check_operators(struct lower *l)
{
    struct tgc *t = l->t;
    const GraphProto *g = l->model->proto->graph;
    struct missing_list list = {0};
    struct block *todo = NULL;
    const FunctionProto **seen = NULL;
    int ntodo = 0, nseen = 0, nwrong = 0;
    size_t cap = 0, cap_seen = 0;
    VEC_PUSH(t, todo, ntodo, cap, ((struct block){g->node, g->n_node, NULL}));
    while (ntodo) {
        struct block b = todo[--ntodo];
        for (size_t i = 0; i < b.n; i++) {
            const NodeProto *p = b.node[i];
            if (lower_find_custom(l, p))
                continue;
            const FunctionProto *f = onnx_find_function(l->model, p);
            bool known = false;
            for (int k = 0; f && k < nseen && !known; k++)
                known = seen[k] == f;
            if (f && !known) {
                VEC_PUSH(t, seen, nseen, cap_seen, f);
                VEC_PUSH(t, todo, ntodo, cap, ((struct block){f->node, f->n_node, f}));
            }
            int opset = (int)onnx_opset(l->model, b.function, p->domain);
            bool elsewhere = false;
            const char *domain = operator_domain(p->domain);
            const struct schema *s = schema_find(domain, p->op_type, opset);
            if (!f && (!operator_find(domain, p->op_type, opset, &elsewhere) || !s))
                note_missing(l, &list, p, opset, elsewhere);
            if (!f && s && nwrong < MAX_WRONG) {
                bool right = schema_check_attributes(l->model, p, s, opset);
                nwrong += !(schema_check_counts(l->model, p, s, opset) && right);
            }
            for (size_t a = 0; a < p->n_attribute; a++) {
                const AttributeProto *at = p->attribute[a];
                if (at->g)
                    VEC_PUSH(t, todo, ntodo, cap,
                             ((struct block){at->g->node, at->g->n_node, b.function}));
                for (size_t k = 0; k < at->n_graphs; k++)
                    VEC_PUSH(
                        t, todo, ntodo, cap,
                        ((struct block){at->graphs[k]->node, at->graphs[k]->n_node, b.function}));
            }
        }
    }
    for (int i = 0; i < list.n; i++) {
        const struct missing *m = &list.v[i];
        struct place at = onnx_place_model(l->model);
        if (m->count > 5)
            text_printf(&list.v[i].nodes, " and %d more", m->count - 5);
        diag_error(t, &at, "operator %s%s%s of opset %d is not supported%s: node%s %s", m->domain,
                   *m->domain ? "." : "", m->op_type, m->opset,
                   m->elsewhere ? " at this version" : "", m->count > 1 ? "s" : "", m->nodes.s);
    }
    struct place at = onnx_place_model(l->model);
    if (list.n)
        diag_note(t, &at, "--library FILE.tg gives operators of your own, as .tg or as C functions "
                          "(docs/custom-operators.md)");
    return !list.n && !nwrong;
}
