/* fuse.c - the values that are stored: one kernel for each.
 *
 * From consumers to producers: outputs and states, results of regions (IF, LOOP), arguments of host
 * calls, then what decide.c says of every other node.
 */
#include "passes/plan/plan.h"

#include <string.h>

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

/* Whether a device's kernels note what the call would look at, so that the run goes on. */
static bool is_noted(const struct plan *p, const struct host_call *h)
{
    return p->t->device && !h->external && strcmp(h->function, "expect") == 0;
}

static void plan_verdict(struct plan *p, const struct node *n)
{
    struct schedule *s = p->schedule;
    struct buffer *b = buffer_new(p->t, BUFFER_TEMP, DTYPE_BOOL, NULL, 0, NULL);
    b->is_verdict = true;
    VEC_PUSH(p->t, s->verdict, s->nverdict, s->cap_verdict, b);
    store_to(p, n->block, n->pos, n->u->src[0], b);
}

static void plan_host(struct plan *p, struct node *n)
{
    struct uop *u = n->u;
    const struct host_call *h = u->arg.p;
    if (is_noted(p, h)) {
        plan_verdict(p, n);
        return;
    }
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
    struct block *block = plan_block_of_output(p, g->noutput - g->npart + k);
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
    plan_note_compared(p);
    for (int k = 0; k < p->graph->npart; k++)
        plan_state(p, k);
    for (int i = 0; i < s->noutput; i++) {
        const struct graph_output *o = &p->graph->output[i];
        struct buffer *b = buffer_new(p->t, BUFFER_OUTPUT, o->value->dtype, o->value->dim,
                                      o->value->ndim, o->name);
        s->output[i] = b;
        store_to(p, plan_block_of_output(p, i), p->nnode + i, o->value, b);
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
