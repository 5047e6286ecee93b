/* state.c - outputs that a context keeps as inputs of its next run (--state OUT=IN).
 *
 *      h ──> LSTM ──> h'          in, out: two buffers, in one place or in two
 *
 *      past ──┐                   past:    rows 0 .. n-1     of one place, as large as the bound
 *             CONCAT ──> ...      new:     rows n .. n+k-1   stored there by a kernel
 *      new ───┘                   ... :    rows 0 .. n+k-1   reads that place: a leaf
 *
 * The CONCAT is gone from the graph: its readers read a buffer, and the graph stores its new rows.
 * `past` does not change, so the order of its own readers is free; those of the leaf come after the
 * store.
 *
 *      past ──> SCATTER ──> ...      one place, some rows of which are stored, at data-dependent
 *      new rows ──┘                  coordinates; ... reads it, too, as a leaf. The SCATTER may
 *                                    have its axes in another order.
 *
 *      past[0] ──┐                   keys and values in one tensor: a state of several parts,
 *                CONCAT ──┐          each with a leaf of its own that is a box of the place.
 *      keys ─────┘        CONCAT ──> OUT
 *      past[1] ──┐        │          What reads OUT itself reads all of the place, after
 *                CONCAT ──┘          the rows of all parts.
 *      values ───┘
 */
#include "passes/analysis/stationary.h"
#include "passes/passes.h"

#include <string.h>

/* What a part of a state stores: all of OUT, or new rows. `whole` is read as a leaf: the CONCAT
 * with the rows, or all of OUT if it is IN with some elements overwritten; else NULL. */
struct stored {
    struct uop *value, *whole;
};

struct states {
    struct tgc *t;
    struct graph *g;
    struct place at;
    struct state **state;
    struct uop **whole; /* of OUT */
    int n;
    struct stored *stored; /* of the states' parts, one state after the other */
    int nstored;
    size_t cap_stored;
};

/* ---------------------------------------------------------------------------------------- names */

static int find_input(const struct graph *g, const char *name, size_t n)
{
    for (int i = 0; i < g->ninput; i++) {
        const char *s = uop_buffer_of(g->input[i])->name;
        if (strlen(s) == n && memcmp(s, name, n) == 0)
            return i;
    }
    return -1;
}

static int find_output(const struct graph *g, const char *name, size_t n)
{
    for (int i = 0; i < g->noutput; i++)
        if (strlen(g->output[i].name) == n && memcmp(g->output[i].name, name, n) == 0)
            return i;
    return -1;
}

static const char *name_of(const struct graph *g, bool output, int i)
{
    return output ? g->output[i].name : uop_buffer_of(g->input[i])->name;
}

/* Reports a name that does not exist, with the nearest and the first that do. */
static bool no_such_name(const struct states *s, const char *option, bool output, const char *name,
                         size_t n)
{
    enum { SHOWN = 8 };
    const struct graph *g = s->g;
    int count = output ? g->noutput : g->ninput;
    struct nearest near = nearest_to(mem_printf(s->t, "%.*s", n < 100 ? (int)n : 100, name));
    struct text list = {.t = s->t};
    for (int i = 0; i < count; i++) {
        nearest_offer(&near, name_of(g, output, i));
        if (i < SHOWN)
            text_printf(&list, "%s'%.100s'", i ? ", " : "", name_of(g, output, i));
    }
    if (count > SHOWN)
        text_printf(&list, " and %d more", count - SHOWN);
    return diag_error(s->t, &s->at,
                      "--state %.200s: the model has no %s '%s'%s%.100s%s; it has %s", option,
                      output ? "output" : "input", near.word, near.best ? " (did you mean '" : "",
                      near.best ? near.best : "", near.best ? "'?)" : "", count ? list.s : "none");
}

/* Splits OUT=IN at each possible =, since names may contain some. */
static bool find_names(const struct states *s, const char *option, int *out, int *in)
{
    const char *last = strrchr(option, '=');
    *in = *out = -1;
    for (const char *at = strchr(option, '='); at; at = strchr(at + 1, '=')) {
        *out = find_output(s->g, option, (size_t)(at - option));
        *in = find_input(s->g, at + 1, strlen(at + 1));
        if (*out >= 0 && *in >= 0)
            return true;
    }
    *out = find_output(s->g, option, (size_t)(last - option));
    return *out < 0 ? no_such_name(s, option, true, option, (size_t)(last - option))
                    : no_such_name(s, option, false, last + 1, strlen(last + 1));
}

/* --------------------------------------------------------------------------------------- shapes */

static const char *type_text(struct tgc *t, enum dtype d, struct uop *const *dim, int ndim)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(d));
    for (int a = 0; a < ndim; a++) {
        text_puts(&x, a ? "," : "");
        uop_print(&x, dim[a]);
    }
    text_putc(&x, ']');
    return x.s;
}

static bool disagree(const struct states *s, const struct state *st, const struct uop *value,
                     const char *advice)
{
    return diag_error(
        s->t, &s->at,
        "--state %.100s=%.100s: the output '%.100s' is %s, the input '%.100s' is %s; %s", st->from,
        st->name, st->from, type_text(s->t, value->dtype, value->dim, value->ndim), st->name,
        type_text(s->t, st->in->dtype, st->in->dim, st->in->ndim), advice);
}

static bool depends_on(struct tgc *t, struct uop *u, const struct var *v)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    bool found = false;
    for (int i = 0; i < n; i++)
        found |= order[i]->op == OP_VAR && order[i]->arg.p == v;
    scratch_release(t, mark);
    return found;
}

/* A symbol whose value is known when a run begins. */
static bool is_given(const struct graph *g, struct tgc *t, struct uop *dim)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &dim, 1, &n);
    bool given = true;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_VAR) {
            bool found = false;
            for (int k = 0; k < g->nvar; k++)
                found |= g->var[k] == order[i]->arg.p;
            given &= found;
        }
    scratch_release(t, mark);
    return given;
}

/* The layout with the strides of the dimensions' upper bounds. */
static const struct view *bounded_view(struct tgc *t, const struct buffer *b)
{
    struct view *v = MEM_NEW(t, struct view);
    struct uop *stride = uop_int(t, 1);
    v->ndim = b->ndim;
    v->offset = uop_int(t, 0);
    for (int a = b->ndim - 1; a >= 0; a--) {
        v->dim[a] = b->dim[a];
        v->stride[a] = stride;
        stride = uop_int(t, sat_mul(stride->arg.i, b->dim[a]->vmax));
    }
    return v;
}

/* ---------------------------------------------------------------------------------------- parts */

/* Movements between a part of OUT and OUT. */
enum { MOVES_BOX = MOVES_SPREAD | MOVES_CUT };

/* u, a part of OUT; at: the same as a movement of st->out. */
struct piece {
    struct uop *u, *at;
};

/* The source of u, a RESHAPE or PERMUTE, as a movement of the tensor of which `at` is one. */
static struct uop *move_back(struct tgc *t, const struct uop *u, struct uop *at)
{
    int perm[MAX_RANK];
    if (u->op == OP_RESHAPE)
        return uop_reshape(t, at, u->src[0]->dim, u->src[0]->ndim);
    for (int a = 0; a < u->ndim; a++)
        perm[PERM_GET(u->arg.i, a)] = a;
    return uop_permute(t, at, perm);
}

/* Source k of the CONCAT u as a movement of the tensor of which `at` is one. */
static struct uop *cut_part(struct tgc *t, const struct uop *u, int k, struct uop *at)
{
    struct uop *begin[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        begin[a] = uop_int(t, 0);
    for (int i = 0; i < k; i++)
        begin[u->arg.i] = sym_add(t, begin[u->arg.i], u->src[i]->dim[u->arg.i]);
    return uop_shrink(t, at, begin, u->src[k]->dim);
}

/* The layout of a movement of st->out: a box of its place, or its rows in another order; NULL: it
 * is not strided. */
static struct view *find_view(struct tgc *t, const struct state *st, struct uop *at)
{
    struct view *whole = mem_copy(t, st->in->storage, sizeof *whole);
    struct tracker *tr = &(struct tracker){1, whole};
    struct uop **move = NULL;
    int n = 0;
    size_t cap = 0;
    memcpy(whole->dim, st->out->dim, sizeof whole->dim);
    for (; move_is(at, MOVES_BOX); at = at->src[0])
        VEC_PUSH(t, move, n, cap, at);
    while (n > 0)
        tr = tracker_apply(t, tr, move[--n]);
    return tr->nview == 1 && !tr->view->has_mask && tr->view->offset->op == OP_CONST ? tr->view
                                                                                     : NULL;
}

/* Whether `past`, the first rows of `at`, has at each coordinate the element that the last run
 * stored there. */
static bool is_where_it_was(struct tgc *t, const struct state *st, struct uop *past, struct uop *at,
                            struct uop *const *index)
{
    struct uop *from[MAX_RANK], *to[MAX_RANK];
    memcpy(from, index, sizeof from);
    memcpy(to, index, sizeof to);
    if (move_down(t, past, MOVES_BOX, from) != uop_buffer(t, st->in))
        return false;
    move_down(t, at, MOVES_BOX, to);
    for (int a = 0; a < st->in->ndim; a++)
        if (from[a] != to[a])
            return false;
    return true;
}

/* p is a CONCAT along an axis that grows: its first source must be the part of IN at the same
 * place. */
static bool add_part(struct states *s, struct state *st, const struct piece *p,
                     struct uop *const *index)
{
    struct tgc *t = s->t;
    int axis = (int)p->u->arg.i;
    struct uop *past = p->u->src[0];
    struct view *view = find_view(t, st, p->at);
    struct state_part part = {.state = st, .out = st->out, .past = past, .axis = axis, .entry = -1};
    if (!view || !sym_equal(t, past->dim[axis], st->in->dim[st->axis]) ||
        !is_where_it_was(t, st, past, p->at, index))
        return false;
    if (p->u != s->whole[s->n]) {
        part.first = view->offset->arg.i;
        part.out = buffer_new(t, BUFFER_OUTPUT, p->u->dtype, p->u->dim, p->u->ndim, st->from);
        part.out->port.state = st;
        view->offset = uop_int(t, 0);
        part.out->storage = view;
    }
    VEC_PUSH(t, st->part, st->npart, st->cap_part, part);
    struct uop *rows = p->u->nsrc == 2
                           ? p->u->src[1]
                           : uop_concat(t, p->u->src + 1, p->u->nsrc - 1, axis);
    VEC_PUSH(t, s->stored, s->nstored, s->cap_stored, ((struct stored){rows, p->u}));
    return true;
}

/* Walks from OUT down to the CONCATs that append rows. */
static bool find_parts(struct states *s, struct state *st, struct uop *value)
{
    struct tgc *t = s->t;
    struct piece *open = NULL;
    int n = 0;
    size_t cap = 0;
    VEC_PUSH(t, open, n, cap, ((struct piece){value, uop_buffer(t, st->out)}));
    while (n > 0) {
        struct piece p = open[--n];
        struct uop *index[MAX_RANK] = {NULL}, *at[MAX_RANK] = {NULL};
        if (p.u->op == OP_RESHAPE || p.u->op == OP_PERMUTE) {
            struct piece below = {p.u->src[0], move_back(t, p.u, p.at)};
            VEC_PUSH(t, open, n, cap, below);
            continue;
        }
        if (p.u->op != OP_CONCAT)
            return false;
        for (int a = 0; a < p.u->ndim; a++)
            at[a] = index[a] = uop_is_int(p.u->dim[a], 1)
                                   ? uop_int(t, 0)
                                   : uop_range(t, p.u->dim[a], t->next_range++);
        move_down(t, p.at, MOVES_BOX, at);
        bool grows = at[st->axis] == index[p.u->arg.i];
        if (grows && !add_part(s, st, &p, index))
            return false;
        for (int k = p.u->nsrc - 1; k >= 0 && !grows; k--) {
            struct piece below = {p.u->src[k], cut_part(t, p.u, k, p.at)};
            VEC_PUSH(t, open, n, cap, below);
        }
    }
    return true;
}

/* OUT is Concat(IN, rows...), part by part, along an axis whose size in IN is a symbol. */
static bool make_growing(struct states *s, struct state *st, struct uop *value, int axis)
{
    struct tgc *t = s->t;
    struct uop *dim = st->in->dim[axis];
    if (dim->op != OP_VAR)
        return disagree(
            s, st, value,
            "a state keeps its shape, or grows along a run-time dimension of the input: "
            "give that a name in the model, and --dim 'NAME<=BOUND'");
    st->length = (struct var *)(uintptr_t)dim->arg.p;
    st->axis = axis;
    st->in->storage = bounded_view(t, st->in);
    st->out->storage = st->in->storage;
    if (!find_parts(s, st, value))
        return disagree(s, st, value,
                        "a state that grows is Concat(input, new rows), or is joined of such "
                        "Concats, each of the part of the input that is in its place, which this "
                        "output is not: keep it in the program that calls the model");
    st->rows = sym_sub(t, value->dim[axis], dim);
    if (depends_on(t, st->rows, st->length) || !is_given(s->g, t, st->rows))
        return disagree(s, st, value, "how many rows a run adds must be known when it begins");
    for (int a = 0; a < value->ndim; a++)
        if (a != axis && depends_on(t, value->dim[a], st->length))
            return disagree(s, st, value, "one axis alone can grow");
    return true;
}

/* OUT is IN with some elements overwritten: a SCATTER into IN. Or a SCATTER into a permuted IN,
 * permuted back (a cache whose positions lead while its rows are stored); that is a SCATTER with
 * permuted coordinates. NULL: it is neither. */
static struct uop *overwrites(struct tgc *t, const struct state *st, struct uop *value)
{
    struct uop *src[MAX_RANK + 2], *in = uop_buffer(t, st->in);
    struct uop *scatter = value->op == OP_PERMUTE ? value->src[0] : value;
    int perm[MAX_RANK];
    if (scatter->op != OP_SCATTER)
        return NULL;
    for (int a = 0; a < value->ndim; a++) {
        perm[a] = value == scatter ? a : PERM_GET(value->arg.i, a);
        src[2 + a] = scatter->src[2 + perm[a]];
    }
    src[0] = uop_permute(t, scatter->src[0], perm);
    src[1] = scatter->src[1];
    return src[0] == in ? uop_replace_src(t, scatter, src) : NULL;
}

static bool check_first(const struct states *s, const struct state *st)
{
    const struct buffer *first = st->in->port.first;
    bool fits = !first || first->ndim == st->in->ndim;
    for (int a = 0; first && fits && a < first->ndim; a++)
        fits = st->length && a == st->axis ? first->dim[a]->arg.i <= st->in->dim[a]->vmax
                                           : first->dim[a]->arg.i == st->in->dim[a]->vmax;
    return fits ||
           diag_error(s->t, &s->at,
                      "--state %.100s=%.100s: the input is %s, but its value in the model is %s",
                      st->from, st->name, type_text(s->t, st->in->dtype, st->in->dim, st->in->ndim),
                      type_text(s->t, first->dtype, first->dim, first->ndim));
}

static bool add_state(struct states *s, const char *option)
{
    struct tgc *t = s->t;
    int out, in, axis = -1, ndiffer = 0;
    if (!find_names(s, option, &out, &in))
        return false;
    struct uop *value = s->g->output[out].value;
    struct state *st = MEM_NEW(t, struct state);
    st->name = name_of(s->g, false, in);
    st->from = s->g->output[out].name;
    st->in = (struct buffer *)(uintptr_t)uop_buffer_of(s->g->input[in]);
    if (st->in->port.state)
        return diag_error(t, &s->at,
                          "--state %.200s: the input '%.100s' is kept from '%.100s' already",
                          option, st->name, st->in->port.state->from);
    if (value->dtype == DTYPE_STRING && st->in->dtype == DTYPE_STRING)
        return diag_error(
            t, &s->at,
            "--state %.200s: the output '%.100s' holds strings, whose text is the run's: "
            "keep it in the program that calls the model",
            option, st->from);
    if (value->dtype != st->in->dtype || value->ndim != st->in->ndim)
        return disagree(s, st, value, "a state keeps dtype and rank");
    for (int a = 0; a < value->ndim; a++)
        if (!sym_equal(t, value->dim[a], st->in->dim[a])) {
            axis = a;
            ndiffer++;
        }
    if (ndiffer > 1)
        return disagree(s, st, value, "a state keeps its shape, or grows along one axis");
    st->out = buffer_new(t, BUFFER_OUTPUT, value->dtype, value->dim, value->ndim, st->from);
    s->whole[s->n] = value;
    if (axis >= 0 && !make_growing(s, st, value, axis))
        return false;
    if (axis < 0) {
        struct state_part all = {.state = st, .out = st->out, .axis = -1, .entry = -1};
        struct uop *update = overwrites(t, st, value);
        VEC_PUSH(t, st->part, st->npart, st->cap_part, all);
        VEC_PUSH(t, s->stored, s->nstored, s->cap_stored,
                 ((struct stored){update ? update : value, update ? value : NULL}));
    }
    for (int a = 0; a < st->in->ndim; a++)
        if (!is_given(s->g, t, st->in->dim[a]))
            return disagree(s, st, value, "a state's size must be known when a run begins");
    st->in->port.state = st->out->port.state = st;
    s->state[s->n++] = st;
    return check_first(s, st);
}

/* States of one length grow together; a state of fixed size has no such length. */
static bool check_lengths(const struct states *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++) {
            const struct state *a = s->state[i], *b = s->state[k];
            if (!a->length)
                continue;
            int64_t none = 0,
                    la = a->in->port.first ? a->in->port.first->dim[a->axis]->arg.i : none,
                    lb = b->length && b->in->port.first ? b->in->port.first->dim[b->axis]->arg.i
                                                        : none;
            if (b->length == a->length && !sym_equal(s->t, a->rows, b->rows))
                return diag_error(
                    s->t, &s->at,
                    "--state: '%.100s' and '%.100s' both have '%.100s' rows, but grow by "
                    "different numbers of them",
                    a->name, b->name, a->length->name);
            if (b->length == a->length && la != lb)
                return diag_error(
                    s->t, &s->at,
                    "--state: '%.100s' and '%.100s' both have '%.100s' rows, but begin "
                    "with %lld and %lld of them",
                    a->name, b->name, a->length->name, (long long)la, (long long)lb);
            for (int x = 0; b->length != a->length && x < b->in->ndim; x++)
                if (depends_on(s->t, b->in->dim[x], a->length))
                    return disagree(s, b, s->whole[k],
                                    mem_printf(s->t,
                                               "'%.100s' is the length of '%.100s', which grows",
                                               a->length->name, a->name));
        }
    return true;
}

/* ----------------------------------------------------------------------------------------- hash */

static uint64_t hash_text(uint64_t h, const char *s) { return hash_bytes(h, s, strlen(s) + 1); }

static uint64_t hash_number(uint64_t h, int64_t n) { return (h ^ (uint64_t)n) * 0x100000001b3u; }

/* A hash of the states' names, dtypes and bounds and of the model's weights: a block of a model
 * that was trained further is another model's. */
static uint64_t hash_model(const struct states *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    int n, nroot;
    for (int i = 0; i < s->n; i++) {
        const struct state *st = s->state[i];
        h = hash_text(hash_text(h, st->name), st->from);
        h = hash_number(hash_number(h, st->in->dtype), st->length ? st->axis : -1);
        for (int a = 0; a < st->in->ndim; a++)
            h = hash_number(h, st->in->dim[a]->vmax);
    }
    struct uop **root = graph_roots(s->t, s->g, &nroot);
    struct mem_mark mark = scratch_mark(s->t);
    struct uop **order = uop_toposort(s->t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = known_buffer(order[i]);
        if (b && b->dtype != DTYPE_STRING)
            h = hash_bytes(h, b->weight.data, b->nbytes);
    }
    scratch_release(s->t, mark);
    return h;
}

/* ---------------------------------------------------------------------------------------- graph */

struct leaf {
    struct uop *whole, *leaf;
};

static struct uop *read_in_place(struct tgc *t, void *ctx, struct uop *u)
{
    const struct leaf *l = ctx;
    (void)t;
    return u == l->whole ? l->leaf : NULL;
}

/* Replaces what grows by its leaf in all values; one after the other, since that changes the uops
 * that depend on it, later layers' concats among them. First the parts, then their joins. */
static void read_leaves(struct states *s)
{
    struct graph *g = s->g;
    int nroot;
    struct uop **graph_root = graph_roots(s->t, g, &nroot);
    int nall = nroot + s->nstored + s->n;
    struct uop **root = mem_array(s->t, (size_t)nall, sizeof *root), **part = root + nroot,
               **whole = part + s->nstored, **value = root + g->noutput - g->npart;
    ARRAY_COPY(root, graph_root, nroot);
    ARRAY_COPY(whole, s->whole, s->n);
    for (int k = 0; k < s->nstored; k++)
        part[k] = s->stored[k].whole ? s->stored[k].whole : s->stored[k].value;
    for (int k = 0; k < s->nstored; k++) {
        struct leaf l = {part[k], uop_buffer(s->t, g->part[k]->out)};
        struct uop *own = value[k];
        if (!s->stored[k].whole)
            continue;
        uop_rewrite(s->t, root, nall, read_in_place, &l);
        value[k] = own == l.whole ? own : value[k];
    }
    for (int k = 0; k < s->n; k++) {
        struct leaf l = {whole[k], uop_buffer(s->t, s->state[k]->out)};
        if (!s->state[k]->length || l.whole == l.leaf)
            continue;
        s->state[k]->join = l.whole;
        uop_rewrite(s->t, root, nall, read_in_place, &l);
    }
    for (int i = 0; i < g->noutput; i++)
        g->output[i].value = root[i];
    for (int i = 0; i < g->nhost; i++)
        g->host[i] = root[g->noutput + i];
}

/* Orders the inputs and outputs: the caller's first, then those of the states. */
static void move_to_end(struct states *s)
{
    struct graph *g = s->g;
    int nin = 0, nout = 0;
    struct uop **input = mem_array(s->t, (size_t)g->ninput, sizeof *input);
    struct graph_output *output =
        mem_array(s->t, (size_t)(g->noutput + s->nstored), sizeof *output);
    g->part = mem_array(s->t, (size_t)s->nstored, sizeof *g->part);
    for (int i = 0; i < g->ninput; i++)
        if (!uop_buffer_of(g->input[i])->port.state)
            input[nin++] = g->input[i];
    for (int i = 0; i < g->noutput; i++) {
        bool kept = i >= g->noutput - g->nkept;
        for (int k = 0; k < s->n; k++)
            kept |= s->state[k]->from == g->output[i].name;
        if (!kept)
            output[nout++] = g->output[i];
    }
    for (int k = 0; k < s->n; k++) {
        struct state *st = s->state[k];
        input[nin++] = uop_buffer(s->t, st->in);
        for (int i = 0; i < st->npart; i++) {
            output[nout++] =
                (struct graph_output){.name = st->from, .value = s->stored[g->npart].value};
            g->part[g->npart++] = &st->part[i];
        }
    }
    g->input = input;
    g->output = output;
    g->noutput = nout;
    g->state = s->state;
    g->nstate = s->n;
}

static bool stores(const struct state *st, int entry)
{
    bool found = false;
    for (int k = 0; k < st->npart; k++)
        found |= st->part[k].entry == entry;
    return found;
}

static bool same_entries(const struct state *a, const struct state *b)
{
    bool same = true;
    for (int k = 0; k < a->npart; k++)
        same &= stores(b, a->part[k].entry);
    for (int k = 0; k < b->npart; k++)
        same &= stores(a, b->part[k].entry);
    return same;
}

int state_turn(struct state *const *state, int n, const struct state *st)
{
    int turn = 0;
    for (int i = 0; i < n && !same_entries(state[i], st); i++) {
        int first = 0;
        while (!same_entries(state[first], state[i]))
            first++;
        turn += first == i;
    }
    return turn;
}

/* Whether NAME.odd has a bit for all states that different entries store. */
static bool check_turns(struct states *s)
{
    enum { MOST_TURNS = 64 };
    int most = 0;
    for (int i = 0; i < s->n && s->g->nentry; i++) {
        int turn = state_turn(s->state, s->n, s->state[i]);
        most = turn > most ? turn : most;
    }
    return most < MOST_TURNS ||
           diag_error(s->t, &s->at, "states are stored by %d sets of entries, more than %d: store "
                      "those together that one entry stores", most + 1, MOST_TURNS);
}

/* The states that a text declares, and what its entries store into them. */
static bool declare_states(struct states *s)
{
    struct tgc *t = s->t;
    struct graph *g = s->g;
    s->state = mem_array(t, (size_t)g->ndeclared, sizeof(struct state *));
    s->whole = mem_array(t, (size_t)g->ndeclared, sizeof *s->whole);
    for (int i = 0; i < g->ndeclared; i++) {
        struct uop *in = g->input[g->ninput - g->ndeclared + i];
        struct state *st = MEM_NEW(t, struct state);
        st->in = (struct buffer *)(uintptr_t)uop_buffer_of(in);
        st->name = st->from = st->in->name;
        st->out = buffer_new(t, BUFFER_OUTPUT, in->dtype, in->dim, in->ndim, st->from);
        if (in->dtype == DTYPE_STRING)
            return diag_error(t, &s->at, "the state '%.100s' holds strings, whose text is a run's",
                              st->name);
        for (int k = 0; k < g->nkept; k++) {
            if (g->kept[k].in != in)
                continue;
            struct state_part part = {
                .state = st, .out = st->out, .axis = -1, .entry = g->kept[k].entry};
            struct uop *value = g->output[g->noutput - g->nkept + k].value;
            VEC_PUSH(t, st->part, st->npart, st->cap_part, part);
            VEC_PUSH(t, s->stored, s->nstored, s->cap_stored, ((struct stored){value, NULL}));
            s->whole[s->n] = value;
        }
        st->in->port.state = st->out->port.state = st;
        s->state[s->n++] = st;
    }
    return check_turns(s);
}

bool state_apply(struct tgc *t, struct graph *g, const char *const *option, int noption,
                 const char *file)
{
    struct states s = {.t = t, .g = g, .at = {.file = file}};
    if (noption > 0 && g->ndeclared > 0)
        return diag_error(t, &s.at,
                          "--state: the text declares states itself: make this one so, too");
    if (noption == 0 && g->ndeclared == 0)
        return true;
    if (g->ndeclared > 0) {
        if (!declare_states(&s))
            return false;
        g->state_hash = hash_model(&s);
        move_to_end(&s);
        g->nkept = g->ndeclared = 0;
        return true;
    }
    s.state = mem_array(t, (size_t)noption, sizeof(struct state *));
    s.whole = mem_array(t, (size_t)noption, sizeof *s.whole);
    for (int i = 0; i < noption; i++)
        if (!add_state(&s, option[i]))
            return false;
    if (!check_lengths(&s))
        return false;
    g->state_hash = hash_model(&s);
    move_to_end(&s);
    read_leaves(&s);
    return true;
}
