/* eval.c - the oracle: the values of graph uops, slowly and plainly.
 *
 * A uop's value is computed where it is read (eval_program.c) unless it gets a tensor: reduce,
 * concat, scatter, contiguous, the results of control, values with several readers, values that
 * EXPAND, WINDOW or INDEX read repeatedly, and those that would make a program too long. So the
 * product under a convolution's sum is never in memory. A chain of any length is cut into pieces.
 * Nothing is computed more often than a fixed number of times. Only the factors of such products,
 * if they are small, are computed before (eval_product.c).
 *
 * Tensors are computed on demand: a stack of tasks, each of which either finds all its operands
 * computed, or pushes the missing ones and is tried again. Nothing recurses on the depth of the
 * model.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

enum {
    SHARED_MAX = 1 << 24,        /* a shared product with more elements than this, ... */
    /* ... and more than this factor times its sources' elements, is computed by each reader */
    SHARED_GROWTH = 8
};

/* -------------------------------------------------------------------------- sizes, made numbers */

bool eval_push_task(struct eval *e, struct node *n)
{
    if (!eval_reserve(&e->failed, &e->task, &e->cap_task, (size_t)e->ntask + 1, sizeof *e->task))
        return false;
    e->task[e->ntask++] = n;
    return true;
}

static enum status var_value(struct eval *e, struct node *n)
{
    const struct var *v = n->u->arg.p;
    if (!e->var_set[v->id]) {
        int from = e->var_from[v->id];
        for (int i = 0; i < e->ntask && from >= 0; i++)
            /* a task that is on the stack already: it would wait for itself */
            if (e->task[i] == &e->node[from])
                return STATUS_FAIL;
        return from >= 0 && eval_push_task(e, &e->node[from]) ? STATUS_WAIT : STATUS_FAIL;
    }
    n->scalar = e->var[v->id];
    n->has_scalar = true;
    return STATUS_READY;
}

/* Depth-first; the walk array above its current end is the stack. */
enum status eval_dim_value(struct eval *e, struct node *root)
{
    int bottom = e->nwalk;
    if (!root->has_scalar &&
        eval_reserve(&e->failed, &e->walk, &e->cap_walk, (size_t)e->nwalk + 1, sizeof *e->walk))
        e->walk[e->nwalk++] = root;
    while (!e->failed && e->nwalk > bottom) {
        struct node *n = e->walk[e->nwalk - 1], *missing = NULL;
        union scalar v[3] = {{0}};
        enum status s = n->is_dim ? STATUS_READY : STATUS_FAIL;
        for (int k = 0; k < n->u->nsrc && n->is_dim; k++) {
            struct node *c = eval_node(e, n->u->src[k]);
            if (!c->has_scalar)
                missing = c;
            else
                v[k].i = c->scalar;
        }
        if (missing) {
            if (eval_reserve(&e->failed, &e->walk, &e->cap_walk, (size_t)e->nwalk + 1,
                             sizeof *e->walk))
                e->walk[e->nwalk++] = missing;
            continue;
        }
        if (n->is_dim && n->u->op == OP_VAR)
            s = var_value(e, n);
        else if (n->is_dim)
            n->scalar =
                n->u->op == OP_CONST
                    ? n->u->arg.i
                    : eval_scalar(n->u->op, n->u->dtype, n->u->src[n->u->nsrc - 1]->dtype, v).i;
        n->has_scalar = s == STATUS_READY;
        e->nwalk--;
        if (s != STATUS_READY) {
            e->nwalk = bottom;
            return s;
        }
    }
    return e->failed ? STATUS_FAIL : STATUS_READY;
}

enum status eval_find_dims(struct eval *e, struct node *n)
{
    if (n->has_dims)
        return STATUS_READY;
    n->nelem = 1;
    for (int a = 0; a < n->u->ndim; a++) {
        struct node *d = eval_node(e, n->u->dim[a]);
        enum status s = eval_dim_value(e, d);
        if (s != STATUS_READY)
            return s;
        n->dim[a] = d->scalar;
        if (d->scalar < 0 || __builtin_mul_overflow(n->nelem, d->scalar, &n->nelem))
            return STATUS_FAIL;
    }
    n->has_dims = true;
    return n->is_dim ? eval_dim_value(e, n) : STATUS_READY;
}

/* ------------------------------------------------------------------------------------ demanding */

bool eval_is_inline(struct eval *e, const struct node *n)
{
    if (eval_is_memory(n->u->op) || !n->materialize)
        return !eval_is_memory(n->u->op);
    if (!n->shared || n->nelem <= SHARED_MAX)
        return false;
    int64_t total = 1;
    for (int k = 0; k < n->u->nsrc; k++) {
        const struct node *c = eval_node(e, n->u->src[k]);
        total = sat_add(total, c->has_dims ? c->nelem : 0);
    }
    return n->nelem / SHARED_GROWTH > total;
}

const struct buffer *eval_raw_weight(const struct node *n)
{
    return n->value || n->u->op != OP_BUFFER ? NULL : n->u->arg.p;
}

static enum status memory_ready(const struct node *n)
{
    if (n->value) {
        if (n->value->ndim != n->u->ndim || n->value->dtype != n->u->dtype)
            return STATUS_FAIL;
        for (int a = 0; a < n->u->ndim; a++)
            if (n->value->dim[a] != n->dim[a])
                return STATUS_FAIL;
        return STATUS_READY;
    }
    const struct buffer *b = n->u->op == OP_BUFFER ? n->u->arg.p : NULL;
    size_t nbytes;
    bool is_weight = b && b->kind == BUFFER_WEIGHT && b->weight.data &&
                     size_mul((size_t)n->nelem, dtype_nbytes(b->dtype), &nbytes);
    return is_weight && nbytes <= b->nbytes ? STATUS_READY : STATUS_FAIL;
}

bool eval_walk_push(struct eval *e, struct node *n)
{
    if (n->mark == e->mark)
        return true;
    n->mark = e->mark;
    if (!eval_reserve(&e->failed, &e->walk, &e->cap_walk, (size_t)e->nwalk + 1, sizeof *e->walk))
        return false;
    e->walk[e->nwalk++] = n;
    return true;
}

/* Walks what a program for u would contain; with `body`, u itself is part of it. Lists the tensors
 * that the program would read. */
enum status eval_need_more(struct eval *e, struct uop *u, bool body)
{
    enum status all = STATUS_READY;
    struct node *root = eval_node(e, u);
    e->nwalk = 0;
    if (!eval_walk_push(e, root))
        return STATUS_FAIL;
    while (e->nwalk) {
        struct node *n = e->walk[--e->nwalk];
        enum status s = eval_find_dims(e, n);
        if (s == STATUS_READY && eval_is_memory(n->u->op))
            s = memory_ready(n);
        else if (s == STATUS_READY && !(body && n == root) && n->materialize) {
            /* eval_is_inline() compares sizes */
            for (int k = 0; k < n->u->nsrc && n->shared; k++)
                if ((s = eval_find_dims(e, eval_node(e, n->u->src[k]))) != STATUS_READY)
                    break;
            if (s == STATUS_READY && !eval_is_inline(e, n)) {
                if (!eval_reserve(&e->failed, &e->read, &e->cap_read, (size_t)e->nread + 1,
                                  sizeof *e->read))
                    return STATUS_FAIL;
                e->read[e->nread++] = n;
                if (n->value)
                    continue;
                s = eval_push_task(e, n) ? STATUS_WAIT : STATUS_FAIL;
            }
        }
        if (s == STATUS_FAIL)
            return s;
        if (s == STATUS_WAIT) {
            all = s;
            continue;
        }
        for (int k = 0; k < n->u->nsrc && !n->is_dim; k++)
            if (eval_is_value_source(n->u, k) && !eval_walk_push(e, eval_node(e, n->u->src[k])))
                return STATUS_FAIL;
    }
    return all;
}

void eval_need_begin(struct eval *e)
{
    e->nread = 0;
    e->mark++;
}

enum status eval_need(struct eval *e, struct uop *u)
{
    eval_need_begin(e);
    return eval_need_more(e, u, false);
}

static void release_reads(struct eval *e, const struct node *by)
{
    for (int i = 0; i < e->nread; i++) {
        struct node *n = e->read[i];
        if (n->scope == by->scope && --n->readers == 0 && !n->kept) {
            eval_tensor_free(e, n->value);
            n->value = NULL;
        }
    }
}

static enum status compute_tensor(struct eval *e, struct node *n)
{
    eval_need_begin(e);
    enum status s = eval_need_more(e, n->u, true);
    if (s != STATUS_READY)
        return s;
    n->value = eval_compute(e, n->u);
    if (!n->value)
        return STATUS_FAIL;
    release_reads(e, n);
    return STATUS_READY;
}

static enum status run_task(struct eval *e, struct node *n)
{
    switch (n->u->op) {
    case OP_LOOP:
        return eval_run_loop(e, eval_find_loop(e, n->u->arg.p));
    case OP_HOST:
        return eval_run_host(e, eval_find_host(e, n->u));
    case OP_GET:
        return eval_compute_get(e, n);
    default:
        return compute_tensor(e, n);
    }
}

/* A task may be on the stack twice, if it was requested again before it ran. */
static bool is_done(struct eval *e, const struct node *n)
{
    if (n->u->op == OP_LOOP)
        return eval_find_loop(e, n->u->arg.p)->done;
    return n->u->op == OP_HOST ? eval_find_host(e, n->u)->done : n->value != NULL;
}

static bool drain(struct eval *e)
{
    while (e->ntask) {
        struct node *n = e->task[e->ntask - 1];
        if (is_done(e, n)) {
            e->ntask--;
            continue;
        }
        int before = e->ntask;
        enum status s = run_task(e, n);
        if (s == STATUS_FAIL || e->failed)
            return false;
        if (s == STATUS_READY) {
            if (e->ntask != before)
                return false;
            e->ntask--;
        }
    }
    return true;
}

static struct tensor *to_arena(struct tgc *t, const struct tensor *x)
{
    struct tensor *r = mem_copy(t, x, sizeof *x);
    r->data = mem_copy(t, x->data, (size_t)x->nelem * sizeof(union scalar));
    return r;
}

/* The value of one root, on the heap. */
static struct tensor *evaluate_root(struct eval *e, struct uop *root)
{
    enum status s;
    while ((s = eval_need(e, root)) == STATUS_WAIT)
        if (!drain(e))
            return NULL;
    return s == STATUS_READY ? eval_compute_plain(e, root, false) : NULL;
}

static bool evaluate(struct eval *e, struct uop *const *root, int nroot, struct tensor **result)
{
    if (!eval_plan(e, root, nroot))
        return false;
    for (int i = 0; i < e->env->nhost; i++)
        if (uop_is_check(e->env->host[i]) &&
            (!eval_push_task(e, eval_node(e, e->env->host[i])) || !drain(e)))
            return false;
    for (int r = 0; r < nroot; r++) {
        struct tensor *x = evaluate_root(e, root[r]);
        if (!x)
            return false;
        result[r] = to_arena(e->t, x);
        eval_tensor_free(e, x);
    }
    return true;
}

static bool evaluate_bytes(struct eval *e, struct uop *root, int64_t nelem, char *data)
{
    struct tensor *x = eval_plan(e, &root, 1) ? evaluate_root(e, root) : NULL;
    bool ok = x && x->nelem == nelem;
    size_t size = dtype_nbytes(root->dtype);
    for (int64_t i = 0; ok && i < nelem; i++)
        scalar_store(root->dtype, data + (size_t)i * size, ((union scalar *)x->data)[i]);
    eval_tensor_free(e, x);
    return ok;
}

static void eval_free(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++)
        if (!eval_is_memory(e->node[i].u->op))
            eval_tensor_free(e, e->node[i].value);
    for (int l = 0; l < e->nloop; l++) {
        struct loop_state *s = &e->loop[l];
        for (int k = 0; s->param && k < s->loop->ncarried; k++)
            eval_tensor_free(e, s->param[k]);
        for (int j = 0; s->scan && j < s->loop->nscan; j++)
            eval_tensor_free(e, s->scan[j]);
        free(s->param);
        free(s->scan);
        free(s->param_node);
    }
    for (int i = 0; i < e->nhost; i++) {
        for (int k = 0; e->host[i].out && k < e->host[i].call->nout; k++)
            eval_tensor_free(e, e->host[i].out[k]);
        free(e->host[i].out);
    }
    eval_program_free(&e->program);
    free(e->node);
    free(e->table);
    free(e->loop);
    free(e->host);
    free(e->free_loops);
    free(e->var);
    free(e->var_set);
    free(e->var_from);
    free(e->var_host);
    free(e->task);
    free(e->walk);
    free(e->read);
    free(e);
}

static struct eval *eval_begin(struct tgc *t, const struct eval_env *env)
{
    struct eval *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->t = t;
    e->env = env;
    e->budget = env->budget;
    e->live_limit = mem_room(t);
    e->program.budget = &e->budget;
    return e;
}

/* Tensors are on the heap, since they are freed during the evaluation; a stop of the compile must
 * not leak them. */
bool eval_graph(struct tgc *t, struct uop *const *root, int nroot, const struct eval_env *env,
                struct tensor **result)
{
    struct eval *const e = eval_begin(t, env);
    jmp_buf outer;
    if (!e)
        return false;
    memcpy(&outer, &t->stop, sizeof outer);
    if (setjmp(t->stop)) {
        memcpy(&t->stop, &outer, sizeof outer);
        eval_free(e);
        tgc_stop(t);
    }
    bool ok = evaluate(e, root, nroot, result);
    memcpy(&t->stop, &outer, sizeof outer);
    eval_free(e);
    return ok;
}

bool eval_values(struct tgc *t, struct uop *root, int64_t nelem, const struct eval_env *env,
                 union scalar *value)
{
    struct eval *e = eval_begin(t, env);
    struct tensor *x = e && eval_plan(e, &root, 1) ? evaluate_root(e, root) : NULL;
    bool ok = x && x->nelem == nelem;
    if (ok)
        ARRAY_COPY(value, x->data, nelem);
    if (x)
        eval_tensor_free(e, x);
    if (e)
        eval_free(e);
    return ok;
}

/* Nothing here allocates from the arena. */
bool eval_store(struct tgc *t, struct uop *root, int64_t nelem, const struct eval_env *env,
                void *data, int64_t *left)
{
    struct eval *e = eval_begin(t, env);
    if (!e)
        return false;
    bool ok = evaluate_bytes(e, root, nelem, data);
    if (left)
        *left = e->budget;
    eval_free(e);
    return ok;
}
