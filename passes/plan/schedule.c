/* schedule.c - from the tensor graph to an ordered list of steps: kernels, host calls, IF and LOOP
 * regions.
 *
 * The graph is one DAG; the consumers of a node determine where it runs. A node's block is the
 * innermost one that contains all its consumers, moved out of every loop in which it is invariant.
 * An IF's operands are in its THEN and ELSE blocks, those of a LOOP's body in its BODY. So
 * only the taken side of an IF runs, values that both sides share are computed once before it, and
 * invariant work leaves the loop. Within a block the order is the graph's topological order. Fusion
 * (fuse.c) runs on the way, from consumers to producers. */
#include "passes/plan/plan.h"

#include <string.h>

/* ---- nodes, loops, blocks */

static int loop_find(const struct plan *p, const struct loop *l)
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
static struct uop *plan_child(const struct plan *p, const struct uop *u, int k)
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

/* Whether n depends on loop i of the plan. */
static bool node_depends(const struct node *n, int i)
{
    return n->loops[i / 64] >> (i % 64) & 1;
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
        own = loop_find(p, ((const struct loop_param *)n->u->arg.p)->loop);
    else if (n->u->op == OP_VAR)
        own = loop_of_counter(p, n->u->arg.p);
    else if (n->u->op == OP_LOOP)
        own = loop_find(p, n->u->arg.p);
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

static struct block *block_new(struct plan *p, enum block_kind kind, struct block *parent,
                               struct uop *owner)
{
    struct block *b = MEM_NEW(p->t, struct block);
    *b = (struct block){
        .kind = kind, .parent = parent, .depth = parent ? parent->depth + 1 : 0, .owner = owner};
    return b;
}

static struct block *block_join(struct block *a, struct block *b)
{
    if (!a || !b)
        return a ? a : b;
    while (a != b) {
        if (a->depth < b->depth)
            b = b->parent;
        else
            a = a->parent;
    }
    return a;
}

/* Moves the block out of every loop in which n is invariant. */
static struct block *block_hoist(const struct plan *p, const struct node *n, struct block *b)
{
    struct block *place = b;
    for (struct block *c = b; c; c = c->parent)
        if (c->kind == BLOCK_BODY) {
            if (node_depends(n, loop_find(p, c->owner->arg.p)))
                break;
            place = c->parent;
        }
    return place;
}

static void join_into(struct plan *p, struct uop *u, struct block *b)
{
    struct node *n = plan_node(p, u);
    n->block = block_join(n->block, b);
}

/* The block of output or host call i of the graph. */
static struct block *block_of_output(const struct plan *p, int i)
{
    const struct graph *g = p->graph;
    int part = i - graph_count_outputs(g);
    if (part >= 0)
        return g->part[part]->entry < 0 ? p->top : p->entry[g->part[part]->entry];
    for (int e = 0; e < g->nentry; e++)
        if (i >= g->entry[e].output && i < g->entry[e].output + g->entry[e].noutput)
            return p->entry[e];
    return p->top;
}

static struct block *block_of_host(const struct plan *p, int i)
{
    const struct graph *g = p->graph;
    for (int e = 0; e < g->nentry; e++)
        if (i >= g->entry[e].host && i < g->entry[e].host + g->entry[e].nhost)
            return p->entry[e];
    return p->top;
}

void plan_blocks(struct plan *p)
{
    p->top = block_new(p, BLOCK_TOP, NULL, NULL);
    p->entry = mem_array(p->t, (size_t)p->graph->nentry + 1, sizeof *p->entry);
    for (int e = 0; e < p->graph->nentry; e++)
        p->entry[e] = block_new(p, BLOCK_ENTRY, p->top, NULL);
    for (int i = 0; i < p->graph->noutput; i++)
        join_into(p, p->graph->output[i].value, block_of_output(p, i));
    for (int i = 0; i < p->graph->nhost; i++)
        if (uop_is_check(p->graph->host[i]))
            join_into(p, p->graph->host[i], block_of_host(p, i));
    for (int i = p->nnode - 1; i >= 0; i--) {
        struct node *n = &p->node[i];
        struct uop *u = n->u;
        n->block = block_hoist(p, n, n->block);
        if (u->op == OP_IF) {
            int64_t half = u->arg.i;
            n->side[0] = block_new(p, BLOCK_THEN, n->block, u);
            n->side[1] = block_new(p, BLOCK_ELSE, n->block, u);
            join_into(p, u->src[0], n->block);
            for (int k = 1; k < u->nsrc; k++)
                join_into(p, u->src[k], n->side[k > half]);
        } else if (u->op == OP_LOOP) {
            int head = 2 + ((const struct loop *)u->arg.p)->ncarried;
            n->side[0] = block_new(p, BLOCK_BODY, n->block, u);
            for (int k = 0; k < u->nsrc; k++)
                join_into(p, u->src[k], k < head ? n->block : n->side[0]);
        } else {
            struct uop *c;
            for (int k = 0; (c = plan_child(p, u, k)); k++)
                join_into(p, c, n->block);
        }
    }
}

/* ---- stores that are not a node's own: outputs, results of regions, loop state, host arguments */

static struct segment *store_to(struct plan *p, struct block *b, int pos, struct uop *value,
                                struct buffer *dest)
{
    struct segment *s = plan_segment(p, b, pos, value, dest);
    plan_use_root(p, s);
    return s;
}

/* GET: its buffer is an output's if an output is exactly it, else a new one. */
static void plan_get(struct plan *p, struct node *n)
{
    struct uop *owner = n->u->src[0];
    struct node *o = plan_node(p, owner);
    if (!o->result) {
        int nresult = owner->op == OP_HOST ? ((const struct host_call *)owner->arg.p)->nout
                      : owner->op == OP_IF ? (int)owner->arg.i
                                           : ((const struct loop *)owner->arg.p)->ncarried +
                                                 ((const struct loop *)owner->arg.p)->nscan;
        o->nresult = nresult;
        o->result = mem_array(p->t, (size_t)nresult, sizeof(struct buffer *));
    }
    struct buffer *b = buffer_new(p->t, BUFFER_TEMP, n->u->dtype, n->u->dim, n->u->ndim, NULL);
    n->buffer = o->result[n->u->arg.i] = b;
}

static void plan_if(struct plan *p, struct node *n)
{
    int half = (int)n->u->arg.i;
    for (int k = 0; k < n->nresult; k++)
        for (int side = 0; side < 2 && n->result[k]; side++)
            store_to(p, n->side[side], n->pos, n->u->src[1 + k + side * half], n->result[k]);
}

static bool is_true(const struct uop *u) { return uop_is_int(u, 1); }

/* init -> state before; in each iteration next -> fresh, then all fresh -> state; the final value
 * is the state itself. */
static void plan_loop(struct plan *p, struct node *n)
{
    const struct loop *l = n->u->arg.p;
    struct uop *const *init = n->u->src + 2, *const *next = n->u->src + 3 + l->ncarried,
                      *const *scan = next + l->ncarried;
    struct uop *cond_next = n->u->src[2 + l->ncarried];
    bool conditional = !is_true(n->u->src[1]) || !is_true(cond_next);
    n->state = mem_array(p->t, (size_t)l->ncarried + 1, sizeof(struct buffer *));
    for (int k = 0; k <= l->ncarried; k++) {
        bool is_cond = k == l->ncarried;
        if (is_cond && !conditional)
            break;
        struct uop *first = is_cond ? n->u->src[1] : init[k], *then = is_cond ? cond_next : next[k];
        struct buffer *state = !is_cond && k < n->nresult && n->result[k]
                                   ? n->result[k]
                                   : buffer_new(p->t, BUFFER_STATE, first->dtype,
                                                is_cond ? NULL : l->param[k].dim,
                                                is_cond ? 0 : l->param[k].ndim, NULL);
        state->kind = BUFFER_STATE;
        n->state[k] = state;
        store_to(p, n->block, n->pos, first, state);
        struct buffer *fresh = buffer_new(p->t, BUFFER_TEMP, state->dtype, state->dim, state->ndim,
                                          NULL);
        store_to(p, n->side[0], n->pos, then, fresh);
        plan_segment(p, n->side[0], p->nnode + n->pos, uop_buffer(p->t, fresh), state);
    }
    for (int k = 0; k < l->nscan; k++)
        if (l->ncarried + k < n->nresult && n->result[l->ncarried + k]) {
            struct segment *s = plan_segment(p, n->side[0], n->pos, scan[k],
                                             n->result[l->ncarried + k]);
            s->lead = uop_var(p->t, l->counter);
            plan_use_root(p, s);
        }
}

static void plan_host(struct plan *p, struct node *n)
{
    struct uop *u = n->u;
    const struct host_call *h = u->arg.p;
    if (!n->result) {
        n->nresult = h->nout;
        n->result = mem_array(p->t, (size_t)h->nout, sizeof(struct buffer *));
    }
    for (int k = 0; k < h->nout; k++)                 /* the function writes all of them */
        if (!n->result[k])
            n->result[k] = buffer_new(p->t, BUFFER_TEMP, h->out[k].dtype, h->out[k].dim,
                                      h->out[k].ndim, NULL);
    for (int k = 0; k < h->nout; k++)
        n->result[k]->kept = h->out[k].kept;
    n->host_arg = mem_array(p->t, (size_t)u->nsrc, sizeof *n->host_arg);
    for (int k = 0; k < u->nsrc; k++) {
        if (plan_contiguous_base(p, u->src[k]))
            continue;
        struct buffer *copy = buffer_new(p->t, BUFFER_TEMP, u->src[k]->dtype, u->src[k]->dim,
                                         u->src[k]->ndim, NULL);
        n->host_arg[k] = uop_buffer(p->t, copy);
        store_to(p, n->block, n->pos, u->src[k], copy);
    }
}

/* A scalar that controls a region: anything but symbols gets a buffer. */
static void demand_scalar(struct plan *p, struct uop *u)
{
    u = value_behind(u, MOVES_ANY);
    plan_node(p, u)->must = plan_node(p, u)->in_order = true;
}

/* Whether v is the state with some elements overwritten, and may be updated in place: nobody else
 * reads the old value, and no call behind pos can end the run with a bad status. */
static bool is_update(const struct plan *p, const struct state *st, const struct uop *v, int pos)
{
    const struct uop *in = uop_buffer(p->t, st->in);
    if (v->op != OP_SCATTER || v->src[0] != in || plan_node(p, in)->nconsumer != 1)
        return false;
    for (int i = pos; i < p->nnode; i++)
        if (p->node[i].u->op == OP_HOST)
            return false;
    return true;
}

/* Stores the state that the next run reads. New rows are appended in place, and overwritten
 * elements stored in place, before any reader of the new value. */
static void plan_state(struct plan *p, int k)
{
    const struct graph *g = p->graph;
    const struct state_part *part = g->part[k];
    struct state *st = part->state;
    struct uop *value = g->output[g->noutput - g->npart + k].value;
    int pos = p->nnode + g->noutput;
    for (int i = 0; i < 2; i++) {
        const struct node *reader = plan_node(p, uop_buffer(p->t, i ? st->out : part->out));
        pos = reader && reader->pos < pos ? reader->pos : pos;
    }
    struct block *block = block_of_output(p, g->noutput - g->npart + k);
    st->is_updated = part->entry < 0 && is_update(p, st, value, pos);
    if (st->is_updated) {
        plan_update(p, block, pos, value, part->out);
        return;
    }
    struct segment *s = store_to(p, block, pos, value, part->out);
    if (!st->length)
        return;
    s->start = mem_array(p->t, (size_t)value->ndim, sizeof *s->start);
    for (int a = 0; a < value->ndim; a++)
        s->start[a] = a == part->axis ? uop_var(p->t, st->length) : uop_int(p->t, 0);
}

void plan_fuse(struct plan *p)
{
    struct schedule *s = p->schedule;
    for (int k = 0; k < p->graph->npart; k++)
        plan_state(p, k);
    for (int i = 0; i < s->noutput; i++) {
        const struct graph_output *o = &p->graph->output[i];
        struct buffer *b = buffer_new(p->t, BUFFER_OUTPUT, o->value->dtype, o->value->dim,
                                      o->value->ndim, o->name);
        s->output[i] = b;
        store_to(p, block_of_output(p, i), p->nnode + i, o->value, b);
    }
    for (int i = p->nnode - 1; i >= 0; i--) {
        struct node *n = &p->node[i];
        switch (n->u->op) {
        case OP_GET: plan_get(p, n); break;
        case OP_IF:
            demand_scalar(p, n->u->src[0]);
            plan_if(p, n);
            break;
        case OP_LOOP:
            demand_scalar(p, n->u->src[0]);
            plan_loop(p, n);
            break;
        case OP_HOST: plan_host(p, n); break;
        default: plan_decide(p, n);
        }
    }
    for (int i = 0; i < p->nnode; i++) {              /* a PARAM reads its loop's state */
        struct node *n = &p->node[i];
        if (n->u->op != OP_LOOP)
            continue;
        const struct loop *l = n->u->arg.p;
        for (int k = 0; k < l->ncarried; k++) {
            struct node *param = plan_node(p, uop_param(p->t, &l->param[k]));
            if (param)
                param->buffer = n->state[k];
        }
    }
}

/* ---- attention by blocks of keys */

void plan_online(struct plan *p)
{
    struct mem_mark mark = scratch_mark(p->t);
    struct uop_map found = {.t = p->t}, kept = {.t = p->t};
    struct uop **order = scratch_array(p->t, (size_t)p->nnode, sizeof *order);
    for (int i = 0; i < p->nnode; i++)
        order[i] = p->node[i].u;
    online_find(p->t, order, p->nnode, &found, &kept);
    for (int i = 0; i < p->nnode; i++) {
        p->node[i].online = map_get(&found, p->node[i].u) != NULL;
        p->node[i].kept |= map_get(&kept, p->node[i].u) != NULL;
    }
    scratch_release(p->t, mark);
}

/* ---- the plan */

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
