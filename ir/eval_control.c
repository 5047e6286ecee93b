/* eval_control.c - IF, LOOP and HOST while a graph is evaluated.
 *
 * An IF asks for its condition, then for one branch. A LOOP is a task that stays on the stack for
 * all its iterations. Tensors that depend on the counter or a PARAM are dropped after each
 * iteration, invariant ones stay.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

/* -------------------------------------------------------------------------------------- control */

/* A scalar's value. */
static enum status scalar_now(struct eval *e, struct uop *u, int64_t *v)
{
    struct tensor *x = eval_compute_plain(e, u, false);
    if (!x || x->nelem != 1)
        return STATUS_FAIL;
    *v = ((union scalar *)x->data)->i;
    eval_tensor_free(e, x);
    return STATUS_READY;
}

static enum status compute_branch(struct eval *e, struct node *n)
{
    const struct uop *branch = n->u->src[0];
    int64_t cond, count = branch->arg.i;
    enum status s = eval_need(e, branch->src[0]);
    if (s == STATUS_READY)
        s = scalar_now(e, branch->src[0], &cond);
    if (s != STATUS_READY)
        return s;
    struct uop *taken = branch->src[1 + (cond ? 0 : count) + n->u->arg.i];
    if ((s = eval_need(e, taken)) != STATUS_READY)
        return s;
    if ((s = eval_find_dims(e, n)) != STATUS_READY)
        return s;
    n->value = eval_compute_plain(e, taken, false);
    return n->value ? STATUS_READY : STATUS_FAIL;
}

static void host_forget(struct eval *e, struct host_state *s)
{
    for (int k = 0; k < s->call->nout; k++) {
        eval_tensor_free(e, s->out[k]);
        s->out[k] = NULL;
    }
    for (int k = 0; k < s->call->nresult; k++)
        e->var_set[s->call->result[k]->id] = false;
    s->done = false;
}

static void scope_clear(struct eval *e, struct loop_state *s)
{
    for (int i = s->first_in_scope; i >= 0; i = e->node[i].next_in_scope) {
        struct node *n = &e->node[i];
        if (n->u->op != OP_PARAM)
            eval_tensor_free(e, n->value);
        n->value = NULL;
        n->has_dims = n->has_scalar = false;
        struct loop_state *inner = n->u->op == OP_LOOP ? eval_find_loop(e, n->u->arg.p) : NULL;
        struct host_state *host = n->u->op == OP_HOST ? eval_find_host(e, n->u) : NULL;
        if (inner)
            inner->done = false;
        if (host)
            host_forget(e, host);
    }
}

/* Replaces the carried values. */
static bool carry(struct eval *e, struct loop_state *s, struct uop *const *from)
{
    int n = s->loop->ncarried;
    struct tensor **fresh = calloc((size_t)n + 1, sizeof *fresh);
    bool ok = fresh != NULL;
    for (int k = 0; ok && k < n; k++)
        ok = (fresh[k] = eval_compute_plain(e, from[k], false)) != NULL;
    for (int k = 0; fresh && k < n; k++) {
        eval_tensor_free(e, ok ? s->param[k] : fresh[k]);
        if (ok)
            s->param[k] = fresh[k];
    }
    free(fresh);
    return ok;
}

/* Appends one iteration's value to a stacked result, whose length grows with the iterations and is
 * set at the end. */
static bool scan_append(struct eval *e, struct loop_state *s, int j, struct uop *u)
{
    struct tensor *one = eval_compute_plain(e, u, false), *old = s->scan[j];
    int64_t have = old ? old->dim[0] : 0;
    if (one && one->ndim < MAX_RANK && s->iteration >= have) {
        int64_t dim[MAX_RANK], grown = s->fixed_length ? s->scan_length : have ? 2 * have : 8;
        dim[0] = grown;
        for (int a = 0; a < one->ndim; a++)
            dim[a + 1] = one->dim[a];
        struct tensor *more = s->iteration < grown
                                  ? eval_tensor_new(e, u->dtype, dim, one->ndim + 1)
                                  : NULL;
        if (more) {
            size_t used = (size_t)(have * one->nelem);
            if (used)
                memcpy(more->data, old->data, used * sizeof(union scalar));
            memset((union scalar *)more->data + used, 0,
                   ((size_t)more->nelem - used) * sizeof(union scalar));
            eval_tensor_free(e, old);
            s->scan[j] = more;
        } else {
            eval_tensor_free(e, one);
            return false;
        }
    }
    if (!one || s->scan[j]->nelem / s->scan[j]->dim[0] != one->nelem) {
        eval_tensor_free(e, one);
        return false;
    }
    memcpy((union scalar *)s->scan[j]->data + s->iteration * one->nelem, one->data,
           (size_t)one->nelem * sizeof(union scalar));
    eval_tensor_free(e, one);
    return true;
}

static enum status loop_begin(struct eval *e, struct loop_state *s)
{
    const struct uop *u = s->node->u;
    int64_t cond;
    eval_need_begin(e);
    for (int k = 0; k < 2 + s->loop->ncarried; k++) {
        enum status st = eval_need_more(e, u->src[k], false);
        if (st != STATUS_READY)
            return st;
    }
    if (scalar_now(e, u->src[0], &s->trip) != STATUS_READY ||
        scalar_now(e, u->src[1], &cond) != STATUS_READY)
        return STATUS_FAIL;
    s->fixed_length = false;
    if (s->loop->nscan) {
        struct node *length = s->loop->scan_length ? eval_node(e, s->loop->scan_length) : NULL;
        bool own = length && length->u->op == OP_VAR &&
                   !e->var_set[((const struct var *)length->u->arg.p)->id];
        if (length && !own) {
            enum status st = eval_dim_value(e, length);
            if (st != STATUS_READY)
                return st;
            s->fixed_length = true;
            s->scan_length = length->scalar;
        }
    }
    if (!carry(e, s, u->src + 2))
        return STATUS_FAIL;
    /* left over from an earlier run inside another loop */
    for (int j = 0; j < s->loop->nscan; j++) {
        eval_tensor_free(e, s->scan[j]);
        s->scan[j] = NULL;
    }
    s->cond = cond != 0;
    s->iteration = 0;
    s->phase = 1;
    return STATUS_READY;
}

/* One iteration: all of its values are computed before any carried value changes. */
static enum status loop_iterate(struct eval *e, struct loop_state *s)
{
    const struct loop *l = s->loop;
    struct uop *const *after = s->node->u->src + 2 + l->ncarried;    /* cond_next, next[], scan[] */
    int64_t cond;
    for (int k = 0; k < l->ncarried; k++)
        if (s->param_node[k])
            s->param_node[k]->value = s->param[k];
    e->var[l->counter->id] = s->iteration;
    e->var_set[l->counter->id] = true;
    eval_need_begin(e);
    for (int k = 0; k < 1 + l->ncarried + l->nscan; k++) {
        enum status st = eval_need_more(e, after[k], false);
        if (st != STATUS_READY)
            return st;
    }
    if (scalar_now(e, after[0], &cond) != STATUS_READY)
        return STATUS_FAIL;
    for (int j = 0; j < l->nscan; j++)
        if (!scan_append(e, s, j, after[1 + l->ncarried + j]))
            return STATUS_FAIL;
    if (!carry(e, s, after + 1))
        return STATUS_FAIL;
    scope_clear(e, s);
    e->var_set[l->counter->id] = false;
    s->cond = cond != 0;
    s->iteration++;
    if (e->budget >= 0 && (e->budget -= ITERATION_COST) < 0)
        return STATUS_FAIL;
    return STATUS_READY;
}

enum status eval_run_loop(struct eval *e, struct loop_state *s)
{
    enum status st = s->phase == 0 ? loop_begin(e, s) : STATUS_READY;
    while (st == STATUS_READY && s->iteration < s->trip && s->cond)
        st = loop_iterate(e, s);
    if (st != STATUS_READY)
        return st;
    const struct uop *length = s->loop->scan_length;
    if (s->loop->nscan && !s->fixed_length && length && length->op == OP_VAR) {
        int id = ((const struct var *)length->arg.p)->id;
        e->var[id] = s->iteration;
        e->var_set[id] = true;
    }
    s->phase = 0;
    s->done = true;
    return STATUS_READY;
}

/* GET of a LOOP takes the loop's tensor over; there is one GET for each result. */
static enum status compute_loop_result(struct eval *e, struct node *n)
{
    struct loop_state *s = eval_find_loop(e, n->u->src[0]->arg.p);
    int k = (int)n->u->arg.i, j = k - s->loop->ncarried;
    if (!s->done)
        return eval_push_task(e, s->node) ? STATUS_WAIT : STATUS_FAIL;
    enum status st = eval_find_dims(e, n);
    if (st != STATUS_READY)
        return st;
    struct tensor **from = j < 0 ? &s->param[k] : &s->scan[j];
    if (!*from && j >= 0 && s->iteration == 0)
        *from = eval_tensor_new(e, n->u->dtype, n->dim, n->u->ndim);
    if (!*from)
        return STATUS_FAIL;
    if (j >= 0 && s->iteration == 0)
        memset((*from)->data, 0, (size_t)(*from)->nelem * sizeof(union scalar));
    if (j >= 0 && !s->fixed_length)
        eval_tensor_cut(e, *from, n->dim);
    n->value = *from;
    *from = NULL;
    return STATUS_READY;
}

/* A result's tensor at its largest size, since the function says how large it really is. */
static struct tensor *host_room(struct eval *e, const struct host_output *o)
{
    int64_t dim[MAX_RANK];
    for (int a = 0; a < o->ndim; a++) {
        struct node *d = eval_node(e, o->dim[a]);
        dim[a] = eval_dim_value(e, d) == STATUS_READY ? d->scalar : o->dim[a]->vmax;
    }
    return eval_tensor_new(e, o->dtype, dim, o->ndim);
}

static bool host_call(struct eval *e, struct host_state *s, struct tensor **in, int64_t *param,
                      int64_t *result)
{
    const struct host_call *h = s->call;
    int nin = s->node->u->nsrc;
    for (int i = 0; i < nin; i++)
        if (!(in[i] = eval_compute_plain(e, s->node->u->src[i], false)))
            return false;
    for (int k = 0; k < h->nparam; k++)
        if (scalar_now(e, h->param[k], &param[k]) != STATUS_READY)
            return false;
    for (int k = 0; k < h->nout; k++)
        if (!(s->out[k] = host_room(e, &h->out[k])))
            return false;
    return !h->external &&
           eval_host(h->function, in, nin, s->out, h->nout, param, h->nparam, result);
}

enum status eval_run_host(struct eval *e, struct host_state *s)
{
    const struct host_call *h = s->call;
    int nin = s->node->u->nsrc;
    eval_need_begin(e);
    for (int k = 0; k < nin + h->nparam; k++) {
        enum status st = eval_need_more(e, k < nin ? s->node->u->src[k] : h->param[k - nin], false);
        if (st != STATUS_READY)
            return st;
    }
    host_forget(e, s);
    struct tensor **in = calloc((size_t)nin + 1, sizeof *in);
    int64_t *param = calloc((size_t)h->nparam + (size_t)h->nresult + 1, sizeof *param),
            *result = param + h->nparam;
    bool ok = in && param && host_call(e, s, in, param, result);
    for (int k = 0; ok && k < h->nresult; k++) {
        e->var[h->result[k]->id] = result[k];
        e->var_set[h->result[k]->id] = true;
    }
    for (int i = 0; in && i < nin; i++)
        eval_tensor_free(e, in[i]);
    free(in);
    free(param);
    s->done = ok;
    return ok ? STATUS_READY : STATUS_FAIL;
}

static enum status compute_host_result(struct eval *e, struct node *n)
{
    struct host_state *s = eval_find_host(e, n->u->src[0]);
    if (!s->done)
        return eval_push_task(e, s->node) ? STATUS_WAIT : STATUS_FAIL;
    enum status st = eval_find_dims(e, n);
    struct tensor **from = &s->out[n->u->arg.i];
    if (st != STATUS_READY || !*from || n->nelem > (*from)->nelem)
        return st == STATUS_WAIT ? st : STATUS_FAIL;
    eval_tensor_cut(e, *from, n->dim);
    n->value = *from;
    *from = NULL;
    return STATUS_READY;
}

/* ------------------------------------------------------------------------------------------ get */

enum status eval_compute_get(struct eval *e, struct node *n)
{
    enum op op = n->u->src[0]->op;
    enum status s = op == OP_IF     ? compute_branch(e, n)
                    : op == OP_LOOP ? compute_loop_result(e, n)
                                    : compute_host_result(e, n);
    for (int a = 0; s == STATUS_READY && a < n->u->ndim; a++)
        if (n->value->dim[a] != n->dim[a])
            s = STATUS_FAIL;
    return s;
}
