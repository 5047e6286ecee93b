/* gradient_outputs.c - derivatives of an output as further outputs of its program (--gradient), and
 * the uops that only derivatives need.
 *
 *      loss ──> grad.x, grad.w         of the sum of loss, by each float input and each float
 *                                      weight that it depends on
 *
 * The variables are the graph's leaves: BUFFER_INPUTs of the caller, in their order, then
 * BUFFER_WEIGHTs that the model names, in the model's order. States are constants of a run. The
 * graph is that of a reader: no pass has changed it, and no rule simplifies through a leaf. The
 * derivatives themselves are library_gradient.c's.
 */
#include "frontend/library.h"

#include <stdlib.h>
#include <string.h>

/* A variable; a weight that a text imports twice is one, with a leaf for each import. */
struct variable { const char *name; struct uop *leaf; int same; /* -1: the first of its name */ };

struct gradients {
    struct tgc *t;
    struct graph *g;
    const struct gradient_options *o;
    struct place at;
    struct lib lib;
    const char *of;                      /* the output, and where it is */
    int output, entry;                   /* entry -1: of the graph itself */
    struct variable *variable; int nvariable; size_t cap_variable;
    struct graph_output *made; int nmade; size_t cap_made;
};

/* ----------------------------------------------------------------------------------- the output */

/* Whether OUT=IN has the name on this side. */
static bool is_state(const struct gradients *d, const char *name, bool is_out)
{
    size_t n = strlen(name);
    for (int i = 0; i < d->o->nstate; i++) {
        const char *s = d->o->state[i];
        size_t length = strlen(s);
        if (is_out ? strncmp(s, name, n) == 0 && s[n] == '='
                   : length > n && s[length - n - 1] == '=' && strcmp(s + length - n, name) == 0)
            return true;
    }
    return false;
}

/* The caller's outputs, for messages: 'a' (f32[3]), 'b' (i64). */
static const char *list_outputs(const struct gradients *d)
{
    enum { LISTED = 12 };
    struct text x = {.t = d->t};
    int n = graph_count_outputs(d->g), listed = 0;
    for (int i = 0; i < n && listed < LISTED; i++) {
        const struct graph_output *o = &d->g->output[i];
        if (!is_state(d, o->name, true))
            text_printf(&x, "%s'%.100s' (%s)", listed++ ? ", " : "", o->name,
                        lib_describe(&d->lib, o->value));
    }
    text_puts(&x, n > LISTED ? ", ..." : "");
    return x.s;
}

/* Finds the output by its name; entries may have equal ones. */
static bool find_output(struct gradients *d)
{
    const struct graph *g = d->g;
    int n = graph_count_outputs(g), found = -1;
    d->entry = -1;
    for (int i = 0; i < n; i++) {
        if (strcmp(g->output[i].name, d->of) != 0)
            continue;
        if (found >= 0)
            return diag_error(d->t, &d->at, "two entries have an output of this name; give the one "
                                            "that is meant a name of its own");
        found = i;
    }
    if (found >= 0 && is_state(d, d->of, true))
        return diag_error(d->t, &d->at, "it is no output, but a state of --state");
    if (found < 0)
        return diag_error(d->t, &d->at,
                          "there is no such output; the outputs are %s, and --value NAME makes a "
                          "value inside of the graph one",
                          list_outputs(d));
    d->output = found;
    for (int e = 0; e < g->nentry; e++)
        if (found >= g->entry[e].output && found < g->entry[e].output + g->entry[e].noutput)
            d->entry = e;
    const struct uop *y = g->output[found].value;
    return dtype_is_float(y->dtype) ||
           diag_error(d->t, &d->at, "it is %s, and only floats have a gradient; the outputs are %s",
                      lib_describe(&d->lib, y), list_outputs(d));
}

/* -------------------------------------------------------------------------------- the variables */

static bool is_caller_input(const struct gradients *d, const struct uop *u)
{
    const struct graph *g = d->g;
    bool found = false;
    for (int i = 0; i < graph_count_inputs(g) && !found; i++)
        found = g->input[i] == u;
    return found && !is_state(d, uop_buffer_of(u)->name, false);
}

static bool is_variable(const struct gradients *d, const struct uop *u)
{
    const struct buffer *b = u->op == OP_BUFFER ? uop_buffer_of(u) : NULL;
    if (!b || !dtype_is_float(b->dtype))
        return false;
    return b->kind == BUFFER_WEIGHT ? b->weight.is_named : is_caller_input(d, u);
}

/* Inputs first; both in the order in which the reader made them. */
static int compare_variables(const void *a, const void *b)
{
    const struct buffer *x = uop_buffer_of(((const struct variable *)a)->leaf),
                        *y = uop_buffer_of(((const struct variable *)b)->leaf);
    if (x->kind != y->kind)
        return x->kind == BUFFER_WEIGHT ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_same_weight(const struct uop *a, const struct uop *b)
{
    const struct buffer *x = uop_buffer_of(a), *y = uop_buffer_of(b);
    if (x->kind != BUFFER_WEIGHT || y->kind != BUFFER_WEIGHT || strcmp(x->name, y->name) != 0 ||
        x->dtype != y->dtype || x->ndim != y->ndim || x->nbytes != y->nbytes)
        return false;
    for (int i = 0; i < x->ndim; i++)
        if (x->dim[i] != y->dim[i])
            return false;
    return x->weight.data == y->weight.data ||
           memcmp(x->weight.data, y->weight.data, x->nbytes) == 0;
}

/* Names that are taken get a number. */
static void name_variables(struct gradients *d)
{
    struct dict taken = {0};
    for (int i = 0; i < d->nvariable; i++) {
        struct variable *v = &d->variable[i];
        const char *name = uop_buffer_of(v->leaf)->name;
        void **first = dict_enter(d->t, &taken, name);
        v->same = -1;
        v->name = name;
        for (int k = 0; k < i && *first && v->same < 0; k++)
            if (d->variable[k].same < 0 && is_same_weight(d->variable[k].leaf, v->leaf))
                v->same = k;
        for (int n = 2; *first && v->same < 0; n++) {
            v->name = mem_printf(d->t, "%s_%d", name, n);
            first = dict_enter(d->t, &taken, v->name);
        }
        *first = d;
    }
}

/* What the output depends on: not what is below a STOP alone. */
static void find_variables(struct gradients *d)
{
    struct uop **stack = NULL;
    size_t cap = 0;
    int n = 0;
    uint32_t mark = ++d->t->mark;
    VEC_PUSH(d->t, stack, n, cap, d->g->output[d->output].value);
    while (n) {
        struct uop *u = stack[--n];
        if (u->mark == mark)
            continue;
        u->mark = mark;
        if (is_variable(d, u))
            VEC_PUSH(d->t, d->variable, d->nvariable, d->cap_variable,
                     ((struct variable){.leaf = u}));
        for (int k = 0; k < u->nsrc && (u->op != OP_STOP || u->arg.i); k++)
            VEC_PUSH(d->t, stack, n, cap, u->src[k]);
    }
    if (d->nvariable)
        qsort(d->variable, (size_t)d->nvariable, sizeof *d->variable, compare_variables);
    name_variables(d);
}

/* ------------------------------------------------------------------------------ the derivatives */

static bool no_variable(const struct gradients *d)
{
    struct text x = {.t = d->t};
    int n = graph_count_inputs(d->g);
    for (int i = 0; i < n && i < 12; i++)
        text_printf(&x, "%s'%.100s' (%s)", i ? ", " : "; the inputs are ",
                    uop_buffer_of(d->g->input[i])->name, lib_describe(&d->lib, d->g->input[i]));
    return diag_error(d->t, &d->at, "it depends on no float input and no float weight%s%s",
                      x.s ? x.s : "", n > 12 ? ", ..." : "");
}

/* Appends the outputs of one OUT to made[]. */
static bool add_gradients(struct gradients *d)
{
    struct uop **leaf, **dx;
    d->nvariable = 0;
    find_variables(d);
    if (!d->nvariable)
        return no_variable(d);
    leaf = mem_array(d->t, (size_t)d->nvariable, sizeof *leaf);
    dx = mem_array(d->t, (size_t)d->nvariable, sizeof *dx);
    for (int i = 0; i < d->nvariable; i++)
        leaf[i] = d->variable[i].leaf;
    if (!lib_gradient(&d->lib, d->g->output[d->output].value, leaf, d->nvariable, dx))
        return false;
    for (int i = 0; i < d->nvariable; i++) {
        int same = d->variable[i].same;
        if (same >= 0)
            dx[same] = lib_add(&d->lib, dx[same], dx[i]);
    }
    for (int i = 0; i < d->nvariable; i++) {
        const struct variable *v = &d->variable[i];
        const char *of = d->o->n > 1 ? mem_printf(d->t, "%s.", d->of) : "";
        if (v->same < 0)
            VEC_PUSH(d->t, d->made, d->nmade, d->cap_made,
                     ((struct graph_output){mem_printf(d->t, "grad.%s%s", of, v->name), dx[i]}));
    }
    return true;
}

/* Where outputs end that the new ones follow: the entry's, or the model's own, before those of
 * --value. */
static int end_of_outputs(const struct gradients *d)
{
    const struct graph_entry *e = d->entry < 0 ? NULL : &d->g->entry[d->entry];
    return e ? e->output + e->noutput : graph_count_outputs(d->g) - d->g->ninner;
}

/* Makes made[] outputs of the graph. */
static bool insert_outputs(struct gradients *d)
{
    struct graph *g = d->g;
    int at = end_of_outputs(d), n = d->nmade;
    int from = d->entry < 0 ? 0 : g->entry[d->entry].output;
    int end = d->entry < 0 ? graph_count_outputs(g) : at;
    for (int i = from; i < end; i++)
        for (int k = 0; k < n; k++)
            if (strcmp(g->output[i].name, d->made[k].name) == 0)
                return diag_error(d->t, &d->at, "there is an output '%.100s' already",
                                  d->made[k].name);
    struct graph_output *all = mem_array(d->t, (size_t)(g->noutput + n) + 1, sizeof *all);
    ARRAY_COPY(all, g->output, at);
    ARRAY_COPY(all + at, d->made, n);
    ARRAY_COPY(all + at + n, g->output + at, g->noutput - at);
    g->output = all;
    g->noutput += n;
    for (int e = 0; e < g->nentry; e++)
        if (e == d->entry)
            g->entry[e].noutput += n;
        else if (g->entry[e].output >= at)
            g->entry[e].output += n;
    return true;
}

bool gradient_outputs(struct tgc *t, struct graph *g, const struct gradient_options *o)
{
    struct gradients d = {.t = t, .g = g, .o = o};
    for (int i = 0; i < o->n; i++) {
        d.of = o->of[i];
        d.nmade = 0;
        d.at = (struct place){.file = o->file, .text = mem_printf(t, "--gradient=%.100s", d.of)};
        d.lib = (struct lib){t, &d.at};
        for (int k = 0; k < i; k++)
            if (strcmp(o->of[k], d.of) == 0)
                return diag_error(t, &d.at, "it is given twice");
        if (!find_output(&d) || !add_gradients(&d) || !insert_outputs(&d))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------ STOP and params */

struct uop *lib_stop_gradient(const struct lib *l, struct uop *x)
{
    return x && dtype_is_float(x->dtype)
               ? uop_new(l->t, OP_STOP, x->dtype, &x, 1, (union arg){0})
               : x;
}

struct uop *lib_variable(const struct lib *l, struct uop *x)
{
    /* uops are numbered, so no other variable has this number */
    union arg number = {.i = (int64_t)l->t->nuop + 1};
    return uop_new(l->t, OP_STOP, x->dtype, &x, 1, number);
}

struct settling { bool all; };

static bool is_settled(const struct settling *s, const struct uop *u)
{
    const struct buffer *b = u->op == OP_BUFFER ? uop_buffer_of(u) : NULL;
    if (u->op == OP_STOP)
        return !s->all && u->arg.i == 0;
    return !b || b->kind != BUFFER_WEIGHT || b->ndim || (b->weight.is_param && !s->all);
}

static struct uop *settle(struct tgc *t, void *context, struct uop *u)
{
    if (is_settled(context, u))
        return NULL;
    return u->op == OP_STOP ? u->src[0]
                            : uop_const(t, u->dtype,
                                        scalar_load(u->dtype, uop_buffer_of(u)->weight.data));
}

void graph_settle(struct tgc *t, struct graph *g, bool all)
{
    struct settling s = {all};
    int nroot, n;
    bool found = false;
    struct uop **root = graph_roots(t, g, &nroot);
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n && !found; i++)
        found = !is_settled(&s, order[i]);
    scratch_release(t, mark);
    if (found)
        graph_rewrite(t, g, settle, &s);
}
