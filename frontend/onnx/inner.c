/* inner.c - what the names of a model stand for, for who asks for values inside of it (--value).
 *
 * The values of the main graph's nodes can be outputs: tensors as they are, a sequence's items as
 * 'x[0]', 'x[1]', .... What a subgraph or a function computes has as many values as it runs, or
 * none, under one name.
 */
#include "frontend/onnx/lower.h"

#include <string.h>

struct names { struct lower *l; struct named_value *v; int n; size_t cap; };

static void add_refused(struct names *s, const char *name, const char *why)
{
    struct named_value v = {.name = name, .refusal = why};
    if (*name)
        VEC_PUSH(s->l->t, s->v, s->n, s->cap, v);
}

static void add_value(struct names *s, const char *name, const struct value *v, const char *from)
{
    struct named_value named = {.name = name, .from = from};
    if (v && v->kind == VALUE_OPTIONAL && v->nitem)
        v = v->item[0];
    if (!v || (v->kind != VALUE_TENSOR && !v->nitem)) {
        add_refused(s, name, "it is an optional or a sequence without a tensor");
    } else if (v->kind == VALUE_SEQUENCE) {
        for (int i = 0; i < v->nitem; i++)
            if (v->item[i]->kind == VALUE_TENSOR)
                add_value(s, mem_printf(s->l->t, "%s[%d]", name, i), v->item[i], from);
        add_refused(s, name, mem_printf(s->l->t, "it is a sequence; its tensors are '%.100s[0]' "
                                        "to '%.100s[%d]'", name, name, v->nitem - 1));
    } else {
        named.value = v->tensor;
        VEC_PUSH(s->l->t, s->v, s->n, s->cap, named);
    }
}

static void add_body(struct names *s, const struct onnx_body *b)
{
    for (size_t i = 0; i < b->n_node; i++) {
        const char *at = onnx_place_node(s->l->model, b->node[i]).text;
        for (size_t k = 0; k < b->node[i]->n_output; k++)
            add_refused(s, b->node[i]->output[k],
                        mem_printf(s->l->t, "%s makes it, in a %s; only values of the main graph "
                                   "can be outputs", at, b->graph ? "subgraph" : "function"));
    }
}

bool inner_outputs(struct lower *l, const struct scope *top, const GraphProto *g,
                   struct graph *out)
{
    struct names s = {.l = l};
    struct place at = onnx_place_model(l->model);
    if (!l->options || !l->options->ninner)
        return true;
    for (size_t i = 0; i < g->n_input; i++)
        add_refused(&s, g->input[i]->name, "it is an input of the graph");
    for (size_t i = 0; i < g->n_initializer; i++)
        add_refused(&s, g->initializer[i]->name, "it is a weight, the same in all runs");
    for (size_t i = 0; i < g->n_node; i++) {
        const char *from = onnx_place_node(l->model, g->node[i]).text;
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            if (g->node[i]->output[k][0])
                add_value(&s, g->node[i]->output[k], scope_get(top, g->node[i]->output[k]), from);
    }
    for (size_t i = 1; i < l->model->nbody; i++)
        add_body(&s, &l->model->body[i]);
    return expose_values(l->t, &at, out, s.v, s.n, l->options->inner, l->options->ninner);
}
