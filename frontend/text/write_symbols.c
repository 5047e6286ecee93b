/* write_symbols.c - which symbols of a graph have lines of their own in its text: `dim B <= 8`. One
 * that first occurs alone in the type of an input or of a host call's result is declared there.
 */
#include "frontend/text/write.h"

/* How v first occurs when a type is read: not at all, alone, which can declare it, or in an
 * expression. */
enum meeting { MEETS_NOT, MEETS_ALONE, MEETS_INSIDE };

static enum meeting meets(const struct writer *w, struct uop *const *dim, int ndim,
                          const struct uop *v)
{
    for (int a = 0; a < ndim; a++) {
        int n;
        if (dim[a] == v)
            return MEETS_ALONE;
        struct uop **part = uop_toposort(w->t, &dim[a], 1, &n);
        for (int i = 0; i < n; i++)
            if (part[i] == v)
                return MEETS_INSIDE;
    }
    return MEETS_NOT;
}

/* Whether v first occurs in the type of a host call's result, alone. */
static bool is_declared_by_result(const struct writer *w, const struct uop *v)
{
    for (int i = 0; i < w->norder; i++) {
        const struct uop *u = w->order[i];
        if (u->op != OP_HOST) {
            if (u == v || meets(w, u->dim, u->ndim, v) != MEETS_NOT)
                return false;
            continue;
        }
        const struct host_call *h = u->arg.p;
        for (int k = 0; k < h->nout && !h->external; k++) {
            enum meeting how = meets(w, h->out[k].dim, h->out[k].ndim, v);
            if (how != MEETS_NOT)
                return how == MEETS_ALONE && w->home[i] < 0;
        }
        if (meets(w, h->param, h->nparam, v) != MEETS_NOT)
            return false;
        for (int k = 0; k < h->nresult; k++)
            if (h->result[k] == v->arg.p)
                return false;
    }
    return false;
}

static bool is_host_result(const struct writer *w, const struct uop *v)
{
    for (int i = 0; i < w->norder; i++)
        if (w->order[i]->op == OP_HOST) {
            const struct host_call *h = w->order[i]->arg.p;
            for (int k = 0; k < h->nresult; k++)
                if (h->result[k] == v->arg.p)
                    return true;
        }
    return false;
}

/* Whether v first occurs in an input's type, alone. */
static bool is_declared_by_input(const struct writer *w, const struct uop *v)
{
    for (int k = 0; k < w->g->ninput; k++) {
        enum meeting how = meets(w, w->g->input[k]->dim, w->g->input[k]->ndim, v);
        if (how != MEETS_NOT)
            return how == MEETS_ALONE;
    }
    return false;
}

static void put_symbol_line(struct writer *w, struct uop *v)
{
    const struct var *var = v->arg.p;
    if (var->is_counter || var == w->g->entry_number || map_get(&w->declared, v) ||
        (!w->g->nentry && is_declared_by_input(w, v)) ||
        (is_host_result(w, v) && is_declared_by_result(w, v)))
        return;
    map_set(&w->declared, v, v);
    text_puts(w->out, "dim ");
    write_bounds(w, v);
    text_putc(w->out, '\n');
}

/* Symbols that no input's type declares; with entries, all of them, since they share them. */
void write_symbols(struct writer *w)
{
    int n;
    for (int i = 0; i < w->g->nvar; i++)
        put_symbol_line(w, uop_var(w->t, w->g->var[i]));
    for (int k = 0; k < w->g->ninput; k++) {
        struct uop **part = uop_toposort(w->t, w->g->input[k]->dim, w->g->input[k]->ndim, &n);
        for (int i = 0; i < n; i++)
            if (part[i]->op == OP_VAR)
                put_symbol_line(w, part[i]);
    }
    for (int i = 0; i < w->norder; i++) {
        struct uop *u = w->order[i];
        if (u->op == OP_VAR)
            put_symbol_line(w, u);
        if (u->op != OP_HOST)
            continue;
        const struct host_call *h = u->arg.p;
        struct uop **part = uop_toposort(w->t, h->param, h->nparam, &n);
        for (int k = 0; k < n; k++)
            if (part[k]->op == OP_VAR)
                put_symbol_line(w, part[k]);
    }
}
