/* expose.c - values inside of a graph as further outputs of its program (--value).
 *
 * A reader of models lists every name that a user may have in mind, those that cannot be outputs
 * with the reason; the names that are asked for are looked up here, so that all readers report a
 * mistake alike.
 */
#include "frontend/library.h"

#include <string.h>

struct exposing {
    struct tgc *t;
    const struct place *at;
    const struct graph *g;
    const struct named_value *value;
    int nvalue;
    /* of each: it is not the same in all runs; it was asked for */
    bool *varies, *chosen;
};

static const struct graph_output *find_output(const struct exposing *e, const char *name)
{
    for (int i = 0; i < e->g->noutput; i++)
        if (strcmp(e->g->output[i].name, name) == 0)
            return &e->g->output[i];
    return NULL;
}

/* Who gives names inside of a region may give them outside of it, too: what can be an output comes
 * first. nvalue: there is none. */
static int find_name(const struct exposing *e, const char *name)
{
    int refused = e->nvalue;
    for (int i = 0; i < e->nvalue; i++) {
        if (strcmp(e->value[i].name, name) != 0)
            continue;
        if (e->value[i].value)
            return i;
        refused = refused < i ? refused : i;
    }
    return refused;
}

static bool is_output(const struct exposing *e, const struct named_value *v)
{
    for (int i = 0; i < e->g->noutput; i++)
        if (e->g->output[i].value == v->value || strcmp(e->g->output[i].name, v->name) == 0)
            return true;
    return false;
}

static bool choose_matching(struct exposing *e, const char *pattern)
{
    int nmatching = 0;
    for (int i = 0; i < e->nvalue; i++) {
        const struct named_value *v = &e->value[i];
        if (!v->value || !name_matches(pattern, v->name))
            continue;
        nmatching++;
        e->chosen[i] |= e->varies[i] && !is_output(e, v);
    }
    return nmatching > 0 ||
           diag_error(e->t, e->at, "--value '%.100s': no value of the graph has such a name",
                      pattern);
}

static bool choose(struct exposing *e, const char *name)
{
    struct nearest near = nearest_to(name);
    const struct graph_output *output = find_output(e, name);
    int i = find_name(e, name);
    if (i < e->nvalue && !e->value[i].value)
        return diag_error(e->t, e->at, "--value %.100s: %s", name, e->value[i].refusal);
    if (output && i < e->nvalue && output->value != e->value[i].value)
        return diag_error(e->t, e->at, "--value %.100s: another output has that name", name);
    if (output)
        return true;
    if (i < e->nvalue)
        return e->chosen[i] = true;
    if (strchr(name, '*'))
        return choose_matching(e, name);
    for (i = 0; i < e->nvalue; i++)
        if (e->value[i].value)
            nearest_offer(&near, e->value[i].name);
    return diag_error(e->t, e->at, "--value %.100s: the graph has no value of that name%s", name,
                      near.best ? mem_printf(e->t, "; is '%.100s' meant?", near.best)
                                : "; tgc run MODEL --value '*' lists all");
}

/* What neither an input nor a random number leads to is the same in all runs. */
static bool *find_varying(struct tgc *t, const struct named_value *v, int n)
{
    struct uop **root = mem_array(t, (size_t)n + 1, sizeof *root);
    bool *varies = mem_array(t, (size_t)n + 1, sizeof *varies);
    int nroot = 0, norder;
    for (int i = 0; i < n; i++)
        if (v[i].value)
            root[nroot++] = v[i].value;
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, root, nroot, &norder);
    uint32_t varying = ++t->mark;
    for (int i = 0; i < norder; i++) {
        const struct uop *u = order[i];
        bool is_varying = u->op == OP_HOST || u->op == OP_VAR ||
                          (u->op == OP_BUFFER && uop_buffer_of(u)->kind == BUFFER_INPUT);
        for (int k = 0; k < u->nsrc; k++)
            is_varying |= u->src[k]->mark == varying;
        for (int k = 0; k < u->ndim; k++)
            is_varying |= u->dim[k]->op != OP_CONST;
        if (is_varying)
            order[i]->mark = varying;
    }
    for (int i = 0; i < n; i++)
        varies[i] = v[i].value && v[i].value->mark == varying;
    scratch_release(t, mark);
    return varies;
}

bool expose_values(struct tgc *t, const struct place *at, struct graph *g,
                   const struct named_value *value, int nvalue, const char *const *wanted,
                   int nwanted)
{
    struct exposing e = {.t = t, .at = at, .value = value, .nvalue = nvalue, .g = g};
    bool ok = true;
    if (!nwanted)
        return true;
    e.varies = find_varying(t, value, nvalue);
    e.chosen = mem_array(t, (size_t)nvalue + 1, sizeof *e.chosen);
    for (int i = 0; i < nwanted; i++)
        ok = choose(&e, wanted[i]) && ok;
    struct graph_output *output = mem_array(t, (size_t)(g->noutput + nvalue) + 1, sizeof *output);
    int end = graph_count_outputs(g), nkept = g->noutput - end;
    ARRAY_COPY(output, g->output, end);
    g->inner_from = mem_array(t, (size_t)nvalue + 1, sizeof *g->inner_from);
    for (int i = 0; i < nvalue; i++) {
        if (!e.chosen[i])
            continue;
        output[end++] = (struct graph_output){.name = value[i].name, .value = value[i].value};
        g->inner_from[g->ninner++] = value[i].from;
    }
    ARRAY_COPY(output + end, g->output + g->noutput - nkept, nkept);
    g->output = output;
    g->noutput = end + nkept;
    return ok;
}
