/* nodes.c - the plan's nodes: the graph's uops in topological order, and the loops on which each
 * depends. In a training a weight's gradient comes as soon as what it sums is there, which then
 * need not stay until the weights change. New values of weights and of the optimizer's states come
 * as soon as their gradient is there and nobody needs the old ones: the gradient's memory is free
 * then. Which elements are a pool's maximum is stored with the maximum, as a byte each.
 */
#include "passes/plan/plan.h"

#include <limits.h>

struct plan *plan_new(struct tgc *t, struct graph *g, bool noopt)
{
    struct plan *p = MEM_NEW(t, struct plan);
    *p = (struct plan){.t = t,
                       .graph = g,
                       .noopt = noopt,
                       .of = {.t = t},
                       .finder = {.t = t},
                       .bit = {.t = t},
                       .mask = {.t = t}};
    struct schedule *s = p->schedule = MEM_NEW(t, struct schedule);
    *s = (struct schedule){.graph = g,
                           .ninput = graph_count_inputs(g),
                           .noutput = graph_count_outputs(g),
                           .state = g->state,
                           .nstate = g->nstate,
                           .part = g->part,
                           .npart = g->npart,
                           .var = g->var,
                           .nvar = g->nvar};
    for (int k = 0; k < g->npart; k++)
        p->trains |= g->part[k]->entry >= 0 && g->part[k]->state->in->port.first;
    s->input = mem_array(t, (size_t)s->ninput, sizeof *s->input);
    s->output = mem_array(t, (size_t)s->noutput, sizeof *s->output);
    for (int i = 0; i < s->ninput; i++)
        s->input[i] = (struct buffer *)(uintptr_t)g->input[i]->arg.p;
    return p;
}

int plan_loop_number(const struct plan *p, const struct loop *l)
{
    for (int i = 0; i < p->nloop; i++)
        if (p->loop[i] == l)
            return i;
    return -1;
}

static int loop_of_counter(const struct plan *p, const struct var *v)
{
    for (int i = 0; i < p->nloop; i++)
        if (p->loop[i]->counter == v)
            return i;
    return -1;
}

/* The k-th part stored into the state whose leaf is b; NULL: there are no more. */
static struct uop *rows_of(const struct graph *g, const struct buffer *b, int k)
{
    for (int i = 0; b->port.state && i < g->npart; i++)
        if ((g->part[i]->out == b || g->part[i]->state->out == b) && k-- == 0)
            return g->output[g->noutput - g->npart + i].value;
    return NULL;
}

/* What must run before u: its sources, the rows appended to a state, and the host calls that
 * compute the symbols of its dimensions. */
struct uop *plan_child(const struct plan *p, const struct uop *u, int k)
{
    const struct graph *g = p->graph;
    if (k < u->nsrc)
        return u->src[k];
    k -= u->nsrc;
    if (u->op == OP_BUFFER)
        return rows_of(g, u->arg.p, k);
    if (u->op == OP_VAR)
        return k == 0 ? map_get(&p->finder, u) : NULL;
    if (u->op == OP_HOST)
        return k < ((const struct host_call *)u->arg.p)->nparam
                   ? ((const struct host_call *)u->arg.p)->param[k]
                   : NULL;
    return (u->op == OP_GET || u->op == OP_PARAM) && k < u->ndim ? u->dim[k] : NULL;
}

struct ordering {
    struct plan *p;
    struct uop **order; int n; size_t cap;
    uint32_t mark;
    struct uop_map nconsumer;
    /* order[begin..end): a training's sum, and before it values of its kernel alone; or the new
     * value of a state, with what it alone is made of, which waits for the readers of `old` */
    struct summed { int begin, end, entry; const struct uop *old; } *sum;
    int nsum; size_t cap_sum;
    struct uop **kept; int nkept; size_t cap_kept;              /* sums that get a buffer */
};

/* uop_toposort() with those edges, for one more root. */
static void order_root(struct ordering *o, struct uop *root)
{
    struct frame { struct uop *u; int next; } *stack = NULL;
    struct tgc *t = o->p->t;
    size_t cap = 0;
    int depth = 0;
    if (root->mark == o->mark)
        return;
    root->mark = o->mark;
    VEC_PUSH(t, stack, depth, cap, ((struct frame){root, 0}));
    while (depth) {
        struct frame *f = &stack[depth - 1];
        struct uop *c = plan_child(o->p, f->u, f->next++);
        if (!c) {
            VEC_PUSH(t, o->order, o->n, o->cap, f->u);
            depth--;
        } else if (c->mark != o->mark) {
            c->mark = o->mark;
            VEC_PUSH(t, stack, depth, cap, ((struct frame){c, 0}));
        }
    }
}

/* Whether the sum is smaller than a tensor that it sums, as a layer's gradient usually is. */
static bool is_smaller(const struct uop *sum)
{
    const struct uop *v = value_behind(sum->src[0], MOVES_ANY);
    double most = 0;
    for (int k = 0; k < (v->op == OP_MUL ? 2 : 1); k++) {
        double n = value_nelem(value_behind(v->op == OP_MUL ? v->src[k] : v, MOVES_OPERAND));
        most = n > most ? n : most;
    }
    return value_nelem(sum) < most;
}

/* Whether a kernel that sums computes it on the way. */
static bool is_of_kernel(const struct uop *u)
{
    return value_is_leaf(u) || u->op == OP_IOTA || op_is_elementwise(u->op) ||
           move_is(u, MOVES_ANY);
}

/* Orders the sum, and `top`, which its kernel stores. */
static void order_sum(struct ordering *o, const struct uop *sum, struct uop *top)
{
    int before = o->n;
    const struct uop *part = sum->src[0]->op == OP_CONTIGUOUS ? sum->src[0] : sum, *u;
    order_root(o, top);
    struct summed s = {.begin = o->n - 1, .end = o->n};
    while (s.begin > before && (u = o->order[s.begin - 1], is_of_kernel(u) || u == sum ||
                                                               u == part || u == part->src[0]))
        s.begin--;
    VEC_PUSH(o->p->t, o->sum, o->nsum, o->cap_sum, s);
}

/* Orders a state's new value. */
static void order_update(struct ordering *o, const struct state_part *part, struct uop *value)
{
    int before = o->n;
    order_root(o, value);
    struct summed s = {o->n, o->n, part->entry, uop_buffer(o->p->t, part->state->in)};
    while (s.begin > before && (is_of_kernel(o->order[s.begin - 1]) ||
                                o->order[s.begin - 1]->op == OP_REDUCE))
        s.begin--;
    if (part->entry >= 0 && s.begin < s.end)
        VEC_PUSH(o->p->t, o->sum, o->nsum, o->cap_sum, s);
}

/* Whether u is made of leaves by a few elementwise ops and moves. */
static bool is_of_leaves(struct uop *u)
{
    enum { STEPS = 16 };
    struct uop *open[STEPS] = {u};
    int steps = 0;
    for (int n = 1; n > 0; steps++) {
        u = open[--n];
        if (!is_of_kernel(u) || steps + n + u->nsrc >= STEPS)
            return false;
        for (int k = 0; k < u->nsrc; k++)
            open[n++] = u->src[k];
    }
    return true;
}

/* What `top` takes besides its sum, as a weight's decay, which all of them may share. */
static void order_others(struct ordering *o, const struct uop *top)
{
    for (int k = 0; k < top->nsrc; k++)
        if (is_of_leaves(top->src[k]))
            order_root(o, top->src[k]);
}

/* The sums of which a state's new value is an elementwise function, each with the value with
 * several consumers above it, or (others) what that one takes besides. A sum that is added to the
 * state is stored there. The new value of a weight itself waits: layers before it still read the
 * old one. So a sum that is for it alone, as by plain SGD, gets a buffer. */
static void order_sums_of(struct ordering *o, struct uop *value, bool others)
{
    enum { STEPS = 64 };
    struct open { struct uop *u, *top; } open[STEPS] = {{value, NULL}};
    if (value->op == OP_ADD && (value->src[0]->op == OP_BUFFER || value->src[1]->op == OP_BUFFER))
        open[0].top = value;
    for (int n = 1, steps = 0; n > 0 && steps < STEPS; steps++) {
        struct open at = open[--n];
        struct uop *u = at.u;
        if (u != value && (uintptr_t)map_get(&o->nconsumer, u) > 1)
            at.top = u;
        bool is_single = u->op == OP_REDUCE && !at.top;
        if (is_single)
            at.top = u;
        if (u->op == OP_REDUCE && at.top->mark != o->mark && is_smaller(u) &&
            value_nelem(at.top) == value_nelem(u)) {
            if (others)
                order_others(o, at.top);
            else
                order_sum(o, u, at.top);
            if (is_single && !others)
                VEC_PUSH(o->p->t, o->kept, o->nkept, o->cap_kept, u);
        }
        for (int k = 0; k < u->nsrc && n < STEPS; k++)
            if (op_is_elementwise(u->op) || (move_is(u, MOVES_ANY) && k == 0))
                open[n++] = (struct open){u->src[k], at.top};
    }
}

/* How many sources each value is. */
static void count_consumers(struct ordering *o)
{
    struct tgc *t = o->p->t;
    struct mem_mark mark = scratch_mark(t);
    int nroot, n;
    struct uop **root = graph_roots(t, o->p->graph, &nroot);
    struct uop **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < order[i]->nsrc; k++) {
            struct uop *x = order[i]->src[k];
            map_set(&o->nconsumer, x, (char *)map_get(&o->nconsumer, x) + 1);
        }
    scratch_release(t, mark);
}

/* ---- places of the sums and updates */

struct moving {
    const struct ordering *o;
    struct uop_map number;                /* uop -> its number in the order + 1 */
    int *at;                              /* order[i] follows order[at[i]] */
    int *inside;                          /* the outermost LOOP in whose body it is; 0: none */
    int *first, *consumer;                /* those of i: consumer[first[i]..first[i + 1]) */
    uint64_t *entries;                    /* whose results need it: a bit for each */
};

static int number_of(const struct moving *m, const struct uop *u)
{
    return (int)(uintptr_t)map_get(&m->number, u) - 1;
}

static void find_consumers(struct moving *m)
{
    const struct ordering *o = m->o;
    struct uop *c;
    m->first = mem_array(o->p->t, (size_t)o->n + 2, sizeof *m->first);
    for (int i = 0; i < o->n; i++)
        for (int k = 0; (c = plan_child(o->p, o->order[i], k)); k++)
            m->first[number_of(m, c) + 1]++;
    for (int i = 0; i < o->n; i++)
        m->first[i + 1] += m->first[i];
    int *next = mem_array(o->p->t, (size_t)o->n + 1, sizeof *next);
    m->consumer = mem_array(o->p->t, (size_t)m->first[o->n] + 1, sizeof *m->consumer);
    ARRAY_COPY(next, m->first, o->n);
    for (int i = 0; i < o->n; i++)
        for (int k = 0; (c = plan_child(o->p, o->order[i], k)); k++)
            m->consumer[next[number_of(m, c)]++] = i;
}

/* The entry that output i belongs to; -1: all of them. */
static int entry_of_output(const struct graph *g, int i)
{
    int part = i - graph_count_outputs(g);
    if (part >= 0)
        return g->part[part]->entry;
    for (int e = 0; e < g->nentry; e++)
        if (i >= g->entry[e].output && i < g->entry[e].output + g->entry[e].noutput)
            return e;
    return -1;
}

static void find_entries(struct moving *m)
{
    enum { MOST = 64 };
    const struct ordering *o = m->o;
    const struct graph *g = o->p->graph;
    m->entries = mem_array(o->p->t, (size_t)o->n + 1, sizeof *m->entries);
    for (int i = 0; i < g->noutput; i++) {
        int e = g->nentry <= MOST ? entry_of_output(g, i) : -1;
        m->entries[number_of(m, g->output[i].value)] |= e < 0 ? UINT64_MAX : UINT64_C(1) << e;
    }
    for (int i = 0; i < g->nhost; i++)
        if (number_of(m, g->host[i]) >= 0)
            m->entries[number_of(m, g->host[i])] = UINT64_MAX;
    for (int i = o->n - 1; i >= 0; i--)
        for (int k = m->first[i]; k < m->first[i + 1]; k++)
            m->entries[i] |= m->entries[m->consumer[k]];
}

/* A LOOP follows its body, whose values depend on its parameters or its counter. */
static void find_bodies(struct moving *m)
{
    const struct ordering *o = m->o;
    struct tgc *t = o->p->t;
    struct uop *c;
    m->inside = mem_array(t, (size_t)o->n + 1, sizeof *m->inside);
    for (int i = 0; i < o->n; i++) {
        const struct loop *l = o->order[i]->op == OP_LOOP ? o->order[i]->arg.p : NULL;
        for (int k = 0; l && k <= l->ncarried; k++) {
            int x = number_of(m, k < l->ncarried ? uop_param(t, &l->param[k])
                                                 : uop_var(t, l->counter));
            if (x >= 0)
                m->inside[x] = i;
        }
    }
    for (int i = 0; i < o->n; i++)
        for (int k = 0; (c = plan_child(o->p, o->order[i], k)); k++) {
            int in = m->inside[number_of(m, c)];
            m->inside[i] = in > i && in > m->inside[i] ? in : m->inside[i];
        }
}

/* The last place where a kernel likely reads what s replaces: of its readers, and of what may be
 * computed in their kernels: elementwise values and moves, up to a sum and what follows it alone.
 * INT_MAX: of too many. emit_steps.c corrects what the kernels turn out to compute. */
static int last_read(const struct moving *m, const struct summed *s)
{
    enum { STEPS = 512 };
    struct reader { int i; bool summed; } open[STEPS] = {{number_of(m, s->old), false}};
    int last = 0, n = open[0].i >= 0;
    for (int done = 0; done < n; done++) {
        int i = open[done].i;
        const struct uop *u = m->o->order[i];
        int place = m->inside[i] > m->at[i] ? m->inside[i] : m->at[i];
        int count = m->first[i + 1] - m->first[i];
        bool is_sum = u->op == OP_REDUCE, summed = open[done].summed || is_sum;
        last = place > last ? place : last;
        if ((open[done].summed && is_sum) || (!is_sum && !is_of_kernel(u) && u->op != OP_INDEX) ||
            (summed && count > 1))
            continue;
        for (int k = m->first[i]; k < m->first[i + 1]; k++) {
            int to = m->consumer[k];
            if ((to >= s->begin && to < s->end) ||
                !(m->entries[to] >> s->entry % 64 & 1))
                continue;
            if (n == STEPS)
                return INT_MAX;
            open[n++] = (struct reader){to, summed};
        }
    }
    return last;
}

/* Where all of it may be computed: what it takes is there. */
static int ready_place(const struct moving *m, const struct summed *s)
{
    struct uop *c;
    int ready = 0;
    for (int i = s->begin; i < s->end; i++)
        for (int k = 0; (c = plan_child(m->o->p, m->o->order[i], k)); k++) {
            int below = number_of(m, c);
            if (below < s->begin && m->at[below] > ready)
                ready = m->at[below];
        }
    return ready;
}

/* Whether something after the comparison s reads x, or a view of it. */
static bool is_read_after(const struct moving *m, const struct uop *x, const struct summed *s)
{
    enum { STEPS = 64 };
    int open[STEPS] = {number_of(m, x)}, n = open[0] >= 0;
    for (int done = 0; done < n; done++)
        for (int k = m->first[open[done]]; k < m->first[open[done] + 1]; k++) {
            int to = m->consumer[k];
            bool is_view = move_is(m->o->order[to], MOVES_ANY);
            if ((!is_view && to >= s->end) || (is_view && n == STEPS))
                return true;
            if (is_view)
                open[n++] = to;
        }
    return n == 0;
}

/* The comparison at i, and moves before it for it alone. */
static struct summed comparison_at(const struct moving *m, int i)
{
    struct summed s = {.begin = i, .end = i + 1};
    bool is_own = true;
    while (s.begin > 0 && move_is(m->o->order[s.begin - 1], MOVES_ANY)) {
        for (int k = m->first[s.begin - 1]; k < m->first[s.begin]; k++)
            is_own &= m->consumer[k] <= i;
        if (!is_own)
            break;
        s.begin--;
    }
    return s;
}

/* What is equal to a maximum, as in a pooling's windows, takes a byte: it comes before the
 * gradients if one of the floats that it compares need not stay otherwise. */
static void compare_early(struct moving *m)
{
    for (int i = 0; i < m->o->n; i++) {
        struct uop *u = m->o->order[i];
        if ((u->op != OP_EQ && u->op != OP_NE) || u->ndim == 0 ||
            !dtype_is_float(u->src[0]->dtype))
            continue;
        struct summed s = comparison_at(m, i);
        int ready = ready_place(m, &s);
        bool frees = false;
        for (int k = 0; k < 2; k++) {
            struct uop *x = value_behind(u->src[k], MOVES_ANY);
            frees |= !value_is_leaf(x) && value_nelem(x) >= value_nelem(u) &&
                     !is_read_after(m, x, &s);
        }
        for (int j = s.begin; j < s.end && frees && ready < s.begin; j++)
            m->at[j] = ready;
    }
}

/* What a new value is made of may be computed as soon as what that takes is there, which several of
 * them may share; the value itself where the old one is read no more. */
static void update_early(const struct moving *m, const struct summed *s)
{
    for (int i = s->begin; i < s->end; i++) {
        struct summed one = {.begin = i, .end = i + 1};
        int ready = ready_place(m, &one), last = i == s->end - 1 ? last_read(m, s) : 0;
        ready = last > ready ? last : ready;
        m->at[i] = ready < s->begin ? ready : i;
    }
}

/* Whether there are branches, whose values are computed where the IF is. */
static bool has_branches(const struct ordering *o)
{
    for (int i = 0; i < o->n; i++)
        if (o->order[i]->op == OP_IF)
            return true;
    return false;
}

/* Moves each of the sums to where the last of what it sums has been computed, so that this need not
 * wait for the weight's turn, and updates to where they may be. */
static struct uop **order_early(struct ordering *o)
{
    struct tgc *t = o->p->t;
    struct moving m = {.o = o, .number = {.t = t}};
    int *first = mem_array(t, (size_t)o->n + 2, sizeof *first);
    struct uop **order = mem_array(t, (size_t)o->n + 1, sizeof(struct uop *));
    m.at = mem_array(t, (size_t)o->n + 1, sizeof *m.at);
    for (int i = 0; i < o->n; i++) {
        m.at[i] = i;
        map_set(&m.number, o->order[i], (void *)(uintptr_t)(i + 1));
    }
    find_consumers(&m);
    find_entries(&m);
    find_bodies(&m);
    const bool stays = has_branches(o);
    if (!stays)
        compare_early(&m);
    for (int k = 0; k < o->nsum; k++) {
        const struct summed *s = &o->sum[k];
        int ready = s->old ? INT_MAX : ready_place(&m, s);
        for (int i = s->begin; i < s->end && ready < s->begin; i++)
            m.at[i] = o->order[i]->op == OP_CONST ? 0 : ready;     /* others may take it, too */
        if (s->old && !stays)
            update_early(&m, s);
    }
    for (int i = 0; i < o->n; i++)
        first[m.at[i] + 1]++;
    for (int i = 0; i < o->n; i++)
        first[i + 1] += first[i];
    for (int i = 0; i < o->n; i++)
        order[first[m.at[i]]++] = o->order[i];
    return order;
}

/* Checks first, so that they end a run early; then what the caller reads, then states. */
static struct uop **plan_order(struct plan *p, struct ordering *o)
{
    const struct graph *g = p->graph;
    int nown = graph_count_outputs(g);
    if (p->trains)
        count_consumers(o);
    o->mark = ++p->t->mark;
    for (int i = 0; i < g->nhost; i++)
        if (uop_is_check(g->host[i]))
            order_root(o, g->host[i]);
    for (int i = 0; i < nown; i++)
        order_root(o, g->output[i].value);
    for (int i = 0; i < 2 * (g->noutput - nown) && p->trains; i++) {
        bool others = i < g->noutput - nown;
        order_sums_of(o, g->output[nown + i % (g->noutput - nown)].value, others);
    }
    for (int i = nown; i < g->noutput; i++)
        if (p->trains)
            order_update(o, g->part[i - nown], g->output[i].value);
        else
            order_root(o, g->output[i].value);
    p->nnode = o->n;
    return p->trains ? order_early(o) : o->order;
}

static void plan_finders(struct plan *p)
{
    for (int i = 0; i < p->graph->nhost; i++) {
        const struct host_call *h = p->graph->host[i]->arg.p;
        for (int k = 0; k < h->nresult; k++)
            map_set(&p->finder, uop_var(p->t, h->result[k]), p->graph->host[i]);
    }
}

/* Numbers the loops among the nodes; returns how many words have a bit for each. */
static int plan_loops(struct plan *p)
{
    size_t cap = 0;
    for (int i = 0; i < p->nnode; i++)
        if (p->node[i].u->op == OP_LOOP)
            VEC_PUSH(p->t, p->loop, p->nloop, cap, (struct loop *)(uintptr_t)p->node[i].u->arg.p);
    return (p->nloop + 63) / 64;
}

/* The loops on which n depends: those of its sources, and its own if it is a loop's parameter or
 * counter; a loop's result depends on it no more. */
static void node_find_loops(struct plan *p, struct node *n, int nword)
{
    struct uop *c;
    int own = -1;
    for (int k = 0; (c = plan_child(p, n->u, k)); k++) {
        for (int w = 0; w < nword; w++)
            n->loops[w] |= plan_node(p, c)->loops[w];
        plan_node(p, c)->nconsumer++;
    }
    if (n->u->op == OP_PARAM)
        own = plan_loop_number(p, ((const struct loop_param *)n->u->arg.p)->loop);
    else if (n->u->op == OP_VAR)
        own = loop_of_counter(p, n->u->arg.p);
    else if (n->u->op == OP_LOOP)
        own = plan_loop_number(p, n->u->arg.p);
    if (own >= 0 && n->u->op != OP_LOOP)
        n->loops[own / 64] |= (uint64_t)1 << (own % 64);
    else if (own >= 0)
        n->loops[own / 64] &= ~((uint64_t)1 << (own % 64));
}

void plan_nodes(struct plan *p)
{
    struct ordering o = {.p = p, .nconsumer = {.t = p->t}};
    plan_finders(p);
    struct uop **order = plan_order(p, &o);
    p->node = mem_array(p->t, (size_t)p->nnode, sizeof *p->node);
    for (int i = 0; i < p->nnode; i++) {
        p->node[i] = (struct node){.u = order[i], .pos = i};
        map_set(&p->of, order[i], &p->node[i]);
    }
    for (int i = 0; i < o.nkept; i++)
        plan_node(p, o.kept[i])->kept = true;
    const int nword = plan_loops(p);
    uint64_t *sets = mem_array(p->t, (size_t)p->nnode * (size_t)nword, sizeof *sets);
    for (int i = 0; i < p->nnode; i++) {
        p->node[i].loops = sets + (ptrdiff_t)i * nword;
        node_find_loops(p, &p->node[i], nword);
    }
}
