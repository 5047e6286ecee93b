/* scope.c - what every part of the lowering stands on: names and their values, messages at a node,
 * attempts that may fail, and subgraphs, which graph.c walks.
 *
 * graph.c calls the lowering functions, and some of these lower a subgraph of their node: that way
 * back goes through struct lower, so that no file calls one that calls it.
 */
#include "frontend/onnx/lower.h"

#include <string.h>

struct onnx_model *lower_model(const struct lower *l) { return l->model; }

bool lower_subgraph(const struct node *n, const GraphProto *g, struct value *const *args, int nargs,
                    struct value **out)
{
    return n->lower->subgraph(n, g, args, nargs, out);
}

/* ---------------------------------------------------------------------------------- diagnostics */

bool node_error(const struct node *n, int input, const char *format, ...)
{
    const struct onnx_model *m = lower_model(n->lower);
    struct place at = input >= 0 && (size_t)input < n->proto->n_input
                          ? onnx_place_input(m, n->proto, (size_t)input)
                          : onnx_place_node(m, n->proto);
    va_list ap;
    va_start(ap, format);
    char buffer[2048];
    vsnprintf(buffer, sizeof buffer, format, ap);
    va_end(ap);
    return diag_error(n->t, &at, "%s", buffer);
}

/* ------------------------------------------------------------------------------------- attempts */

struct attempt attempt_begin(const struct node *n)
{
    return (struct attempt){n->t->ndiag, n->t->nerror, n->lower->depth, n->lower->ncheck};
}

const char *attempt_undo(const struct node *n, struct attempt a)
{
    const char *message = "";
    for (int i = n->t->ndiag - 1; i >= a.ndiag; i--)
        if (n->t->diag[i].severity == SEVERITY_ERROR)
            message = mem_printf(n->t, "%s: %s", n->t->diag[i].at.text ? n->t->diag[i].at.text : "",
                                 n->t->diag[i].message);
    n->t->ndiag = a.ndiag;
    n->t->nerror = a.nerror;
    n->lower->depth = a.depth;
    n->lower->ncheck = a.ncheck;
    return message;
}

void lower_note_limit(struct lower *l) { l->limit = true; }
bool lower_hit_limit(const struct lower *l) { return l->limit; }

/* --------------------------------------------------------------------------------------- scopes */

void scope_set(struct tgc *t, struct scope *s, const char *name, struct value *v)
{
    *dict_enter(t, &s->value, name) = v;
}

struct value *scope_get(const struct scope *s, const char *name)
{
    for (; s && *name; s = s->parent)
        if (dict_has(&s->value, name))
            return dict_get(&s->value, name);
    return NULL;
}

struct value *value_tensor(struct tgc *t, struct uop *u)
{
    struct value *v = MEM_NEW(t, struct value);
    v->kind = VALUE_TENSOR;
    v->tensor = u;
    return v;
}

struct value *value_sequence(struct tgc *t, struct value *const *item, int nitem, enum dtype dtype)
{
    struct value *v = MEM_NEW(t, struct value);
    v->kind = VALUE_SEQUENCE;
    v->dtype = dtype;
    v->nitem = nitem;
    v->item = mem_array(t, (size_t)nitem + 1, sizeof(struct value *));
    ARRAY_COPY(v->item, item, nitem);
    return v;
}

struct value *value_optional(struct tgc *t, struct value *item)
{
    struct value *v = MEM_NEW(t, struct value);
    v->kind = VALUE_OPTIONAL;
    v->nitem = item != NULL;
    v->item = mem_array(t, 1, sizeof(struct value *));
    v->item[0] = item;
    return v;
}
