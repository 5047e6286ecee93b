/* nodes.c - the plan's nodes: the graph's uops in topological order, and the loops on which each
 * depends.
 */
#include "passes/plan/plan.h"

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
    for (int i = 0; b->state && i < g->npart; i++)
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

/* uop_toposort() with those edges: checks first, so that they end a run early. */
static struct uop **plan_order(struct plan *p)
{
    struct frame { struct uop *u; int next; } *stack = NULL;
    struct tgc *t = p->t;
    const struct graph *g = p->graph;
    struct uop **order = NULL;
    size_t cap = 0, cap_order = 0;
    uint32_t mark = ++t->mark;
    p->nnode = 0;
    for (int i = 0; i < g->nhost + g->noutput; i++) {
        struct uop *root = i < g->nhost ? g->host[i] : g->output[i - g->nhost].value;
        int depth = 0;
        if (root->mark == mark || (i < g->nhost && !uop_is_check(root)))
            continue;
        root->mark = mark;
        VEC_PUSH(t, stack, depth, cap, ((struct frame){root, 0}));
        while (depth) {
            struct frame *f = &stack[depth - 1];
            struct uop *c = plan_child(p, f->u, f->next++);
            if (!c) {
                VEC_PUSH(t, order, p->nnode, cap_order, f->u);
                depth--;
            } else if (c->mark != mark) {
                c->mark = mark;
                VEC_PUSH(t, stack, depth, cap, ((struct frame){c, 0}));
            }
        }
    }
    return order;
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
    plan_finders(p);
    struct uop **order = plan_order(p);
    p->node = mem_array(p->t, (size_t)p->nnode, sizeof *p->node);
    for (int i = 0; i < p->nnode; i++) {
        p->node[i] = (struct node){.u = order[i], .pos = i};
        map_set(&p->of, order[i], &p->node[i]);
    }
    const int nword = plan_loops(p);
    uint64_t *sets = mem_array(p->t, (size_t)p->nnode * (size_t)nword, sizeof *sets);
    for (int i = 0; i < p->nnode; i++) {
        p->node[i].loops = sets + (ptrdiff_t)i * nword;
        node_find_loops(p, &p->node[i], nword);
    }
}
