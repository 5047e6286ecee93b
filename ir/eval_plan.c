/* eval_plan.c - which nodes are computed, and which of them get a tensor.
 *
 * Everything reachable becomes a node, in topological order. A node depends on loops (it belongs to
 * the innermost of them and is dropped after each iteration), has readers, and is computed in place
 * or materialized; eval.c lists the criteria.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

bool eval_reserve(bool *failed, void *array, size_t *cap, size_t n, size_t size)
{
    void **a = array;
    if (n <= *cap)
        return true;
    size_t want = n < 32 ? 64 : 2 * n, nbytes;
    void *grown = size_mul(want, size, &nbytes) ? realloc(*a, nbytes) : NULL;
    if (!grown) {
        *failed = true;
        return false;
    }
    *a = grown;
    *cap = want;
    return true;
}

/* ---------------------------------------------------------------------------------------- nodes */

static int *table_slot(const struct eval *e, uint32_t id)
{
    size_t i = (id * 0x9E3779B9u) & (e->table_size - 1);
    while (e->table[i] && e->node[e->table[i] - 1].u->id != id)
        i = (i + 1) & (e->table_size - 1);
    return &e->table[i];
}

struct node *eval_node(struct eval *e, const struct uop *u)
{
    int k = e->table_size ? *table_slot(e, u->id) : 0;
    return k ? &e->node[k - 1] : NULL;
}

static bool node_add(struct eval *e, struct uop *u)
{
    if (!eval_reserve(&e->failed, &e->node, &e->cap_node, (size_t)e->nnode + 1, sizeof *e->node))
        return false;
    e->node[e->nnode++] = (struct node){
        .u = u, .scope = -1, .next_in_scope = -1, .last_reader = -1};
    if (2 * (size_t)e->nnode > e->table_size) {
        size_t size = e->table_size ? 2 * e->table_size : 128;
        int *table = calloc(size, sizeof *table);
        if (!table)
            return false;
        free(e->table);
        e->table = table;
        e->table_size = size;
        for (int i = 0; i < e->nnode; i++)
            *table_slot(e, e->node[i].u->id) = i + 1;
    } else {
        *table_slot(e, u->id) = e->nnode;
    }
    return true;
}

/* What must be computed before u: its sources and its dims; for a symbol that a host call finds,
 * that call. */
static struct uop *child(const struct eval *e, const struct uop *u, int k)
{
    const struct host_call *h = u->op == OP_HOST ? u->arg.p : NULL;
    if (u->op == OP_VAR)
        return k == 0 ? e->var_host[((const struct var *)u->arg.p)->id] : NULL;
    if (k < u->nsrc)
        return u->src[k];
    k -= u->nsrc;
    if (k < u->ndim)
        return u->dim[k];
    k -= u->ndim;
    if (!h || k < h->nparam)
        return h ? h->param[k] : NULL;
    k -= h->nparam;
    for (int i = 0; i < h->nout; k -= h->out[i++].ndim)
        if (k < h->out[i].ndim)
            return h->out[i].dim[k];
    return NULL;
}

static bool add_reachable(struct eval *e, struct uop *root)
{
    struct frame { struct uop *u; int next; } *stack = NULL;
    size_t cap = 0;
    int depth = 0;
    uint32_t mark = e->t->mark;
    bool ok = eval_reserve(&e->failed, &stack, &cap, 1, sizeof *stack);
    if (ok && root->mark != mark) {
        root->mark = mark;
        stack[depth++] = (struct frame){root, 0};
    }
    while (ok && depth) {
        struct frame *f = &stack[depth - 1];
        struct uop *c = child(e, f->u, f->next++);
        if (!c) {
            ok = node_add(e, f->u);
            depth--;
        } else if (c->mark != mark) {
            c->mark = mark;
            if ((ok = eval_reserve(&e->failed, &stack, &cap, (size_t)depth + 1, sizeof *stack)))
                stack[depth++] = (struct frame){c, 0};
        }
    }
    free(stack);
    return ok;
}

/* Whether source k is read as a value, not as a size known from the dims. */
bool eval_is_value_source(const struct uop *u, int k)
{
    switch (u->op) {
    case OP_IOTA:
        return false;
    case OP_RESHAPE: case OP_EXPAND: case OP_WINDOW: case OP_REDUCE:
        return k == 0;
    case OP_PAD:
        return k == 1 || k % 2 == 0;
    case OP_SHRINK:
        return k == 0 || k % 2 == 1;
    default:
        return true;
    }
}

static bool is_control(enum op op) { return op == OP_IF || op == OP_LOOP || op == OP_HOST; }
bool eval_is_memory(enum op op) { return op == OP_BUFFER || op == OP_PARAM; }
static bool is_movement(enum op op)
{
    return op_class(op) == CLASS_MOVE && op != OP_CONCAT && op != OP_IOTA;
}

/* ------------------------------------------------------------------------------------- analysis */

struct loop_state *eval_find_loop(struct eval *e, const struct loop *l)
{
    for (int i = 0; i < e->nloop; i++)
        if (e->loop[i].loop == l)
            return &e->loop[i];
    return NULL;
}

struct host_state *eval_find_host(struct eval *e, const struct uop *u)
{
    for (int i = 0; i < e->nhost; i++)
        if (e->host[i].node->u == u)
            return &e->host[i];
    return NULL;
}

static bool find_hosts(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        if (e->node[i].u->op != OP_HOST)
            continue;
        if (!eval_reserve(&e->failed, &e->host, &e->cap_host, (size_t)e->nhost + 1,
                          sizeof *e->host))
            return false;
        struct host_call *h = (struct host_call *)(uintptr_t)e->node[i].u->arg.p;
        struct host_state s = {
            .node = &e->node[i], .call = h, .out = calloc((size_t)h->nout + 1, sizeof *s.out)};
        e->host[e->nhost++] = s;
        if (!s.out)
            return false;
    }
    return true;
}

static uint64_t *loops_of(struct eval *e, int node)
{
    return e->free_loops + (size_t)node * e->nword;
}

static bool find_loops(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        if (e->node[i].u->op != OP_LOOP)
            continue;
        if (!eval_reserve(&e->failed, &e->loop, &e->cap_loop, (size_t)e->nloop + 1,
                          sizeof *e->loop))
            return false;
        struct loop *l = (struct loop *)(uintptr_t)e->node[i].u->arg.p;
        struct loop_state s = {.loop = l, .node = &e->node[i], .first_in_scope = -1};
        size_t nparam = (size_t)l->ncarried + 1, nscan = (size_t)l->nscan + 1;
        s.param = calloc(nparam, sizeof *s.param);
        s.param_node = calloc(nparam, sizeof *s.param_node);
        s.scan = calloc(nscan, sizeof *s.scan);
        e->loop[e->nloop++] = s;
        if (!s.param || !s.param_node || !s.scan)
            return false;
    }
    for (int i = 0; i < e->nnode; i++)
        if (e->node[i].u->op == OP_PARAM) {
            const struct loop_param *p = e->node[i].u->arg.p;
            struct loop_state *s = eval_find_loop(e, p->loop);
            if (s)
                s->param_node[p->index] = &e->node[i];
        }
    return true;
}

static int innermost(struct eval *e, int node)
{
    int best = -1;
    for (int l = 0; l < e->nloop; l++)
        if (loops_of(e, node)[l / 64] >> (l % 64) & 1 &&
            (best < 0 || e->loop[l].depth > e->loop[best].depth))
            best = l;
    return best;
}

/* A node depends on the loops of its children; LOOP itself binds its own. A loop is nested in those
 * that its LOOP depends on. */
static bool find_scopes(struct eval *e)
{
    size_t total;
    e->nword = ((size_t)e->nloop + 63) / 64;
    if (e->nloop == 0)
        return true;
    if (!size_mul(e->nword, (size_t)e->nnode, &total) ||
        !(e->free_loops = calloc(total, sizeof *e->free_loops)))
        return false;
    for (int i = 0; i < e->nnode; i++) {
        const struct uop *u = e->node[i].u, *c;
        uint64_t *set = loops_of(e, i);
        for (int k = 0; (c = child(e, u, k)); k++) {
            const uint64_t *s = loops_of(e, (int)(eval_node(e, c) - e->node));
            for (size_t w = 0; w < e->nword; w++)
                set[w] |= s[w];
        }
        for (int l = 0; l < e->nloop; l++) {
            const struct loop *loop = e->loop[l].loop;
            bool is_own = (u->op == OP_PARAM &&
                           ((const struct loop_param *)u->arg.p)->loop == loop) ||
                          (u->op == OP_VAR && u->arg.p == loop->counter);
            if (is_own)
                set[l / 64] |= (uint64_t)1 << (l % 64);
            if (e->loop[l].node == &e->node[i])
                set[l / 64] &= ~((uint64_t)1 << (l % 64));
        }
        const struct host_call *h = u->op == OP_HOST ? u->arg.p : NULL;
        for (int k = 0; h && k < h->nresult; k++) {  /* one of its own results may come before it */
            struct node *n = eval_node(e, uop_var(e->t, h->result[k]));
            uint64_t *s = n ? loops_of(e, (int)(n - e->node)) : NULL;
            for (size_t w = 0; n && w < e->nword; w++)
                s[w] |= set[w];
        }
    }
    for (int l = 0; l < e->nloop; l++)
        for (size_t w = 0; w < e->nword; w++)
            e->loop[l].depth += __builtin_popcountll(
                loops_of(e, (int)(e->loop[l].node - e->node))[w]);
    for (int i = 0; i < e->nnode; i++) {
        struct node *n = &e->node[i];
        n->scope = innermost(e, i);
        if (n->scope >= 0) {
            n->next_in_scope = e->loop[n->scope].first_in_scope;
            e->loop[n->scope].first_in_scope = i;
        }
    }
    return true;
}

static void count_readers(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++)
        for (int k = 0; k < e->node[i].u->nsrc; k++) {
            struct node *c = eval_node(e, e->node[i].u->src[k]);
            if (eval_is_value_source(e->node[i].u, k) && c->last_reader != i) {
                c->last_reader = i;
                c->nreader++;
            }
        }
}

static void mark_stretched(struct eval *e)
{
    for (int i = e->nnode - 1; i >= 0; i--) {
        const struct node *n = &e->node[i];
        enum op op = n->u->op;
        bool repeats = op == OP_EXPAND || op == OP_WINDOW || op == OP_INDEX;
        if (repeats || (n->stretched && is_movement(op)))
            eval_node(e, n->u->src[0])->stretched = true;
    }
}

static bool always_materialized(enum op op)
{
    return op == OP_REDUCE || op == OP_CONCAT || op == OP_SCATTER || op == OP_CONTIGUOUS ||
           op == OP_GET;
}

static void choose_tensors(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        struct node *n = &e->node[i];
        const struct uop *u = n->u;
        bool all_dims = u->ndim == 0 && (u->op == OP_CONST || op_is_elementwise(u->op)) &&
                        !dtype_is_float(u->dtype);
        n->pure = is_movement(u->op) || u->op == OP_IOTA || op_class(u->op) == CLASS_LEAF;
        n->weight = 1;
        for (int k = 0; k < u->nsrc; k++) {
            const struct node *c = eval_node(e, u->src[k]);
            all_dims &= c->is_dim;
            if (!eval_is_value_source(u, k) || c->materialize || eval_is_memory(c->u->op) ||
                c->is_dim)
                continue;
            n->weight = n->weight + c->weight > 1 << 20 ? 1 << 20 : n->weight + c->weight;
            n->pure &= c->pure;
        }
        n->is_dim = all_dims || u->op == OP_VAR;
        if (eval_is_memory(u->op) || is_control(u->op) || n->is_dim || u->op == OP_CONST)
            continue;
        n->shared = !n->pure && n->nreader > 1 && n->weight > 3 && u->ndim > 0;
        /* too expensive to be recomputed by each reader */
        bool dear = u->op == OP_PAD || (!n->pure && !is_movement(u->op));
        bool must = always_materialized(u->op) || n->weight > WEIGHT_MAX ||
                    (n->stretched && dear && u->ndim > 0);
        n->materialize = must || n->shared;
        n->shared &= !must;
        n->kept = u->op == OP_GET;
    }
}

static bool find_vars(struct eval *e)
{
    e->nvar = e->t->next_var > e->env->nvar ? e->t->next_var : e->env->nvar;
    size_t n = (size_t)e->nvar + 1;
    e->var = calloc(n, sizeof *e->var);
    e->var_set = calloc(n, sizeof *e->var_set);
    e->var_from = calloc(n, sizeof *e->var_from);
    if (!e->var || !e->var_set || !e->var_from)
        return false;
    for (int i = 0; i < e->nvar; i++) {
        e->var_from[i] = -1;
        e->var_set[i] = i < e->env->nvar;
        e->var[i] = e->var_set[i] ? e->env->var[i] : 0;
    }
    for (int l = 0; l < e->nloop; l++) {
        const struct loop *loop = e->loop[l].loop;
        e->var_set[loop->counter->id] = false;
        if (loop->scan_length && loop->scan_length->op == OP_VAR)
            e->var_from[((const struct var *)loop->scan_length->arg.p)->id] =
                (int)(e->loop[l].node - e->node);
    }
    for (int i = 0; i < e->nhost; i++)
        for (int k = 0; k < e->host[i].call->nresult; k++) {
            int id = e->host[i].call->result[k]->id;
            /* even if the caller gives it a value */
            e->var_set[id] = false;
            e->var_from[id] = (int)(e->host[i].node - e->node);
        }
    return true;
}

/* How many tensors are computed from each one, so that it is freed after the last of them. Those
 * that loops read in each iteration stay. */
static void count_tensor_readers(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        struct node *m = &e->node[i];
        if (!m->materialize)
            continue;
        e->mark++;
        e->nwalk = 0;
        eval_walk_push(e, m);
        while (e->nwalk) {
            struct node *n = e->walk[--e->nwalk];
            if (n != m && n->materialize) {
                n->readers++;
                n->kept |= n->scope != m->scope;
                continue;
            }
            for (int k = 0; k < n->u->nsrc; k++) {
                struct node *c = eval_node(e, n->u->src[k]);
                if (n->u->op == OP_LOOP || n->u->op == OP_HOST)
                    c->kept = true;
                if (eval_is_value_source(n->u, k))
                    eval_walk_push(e, c);
            }
        }
    }
}

static bool find_var_hosts(struct eval *e)
{
    if (!(e->var_host = calloc((size_t)e->t->next_var + 1, sizeof *e->var_host)))
        return false;
    for (int i = 0; i < e->env->nhost; i++) {
        const struct host_call *h = e->env->host[i]->arg.p;
        for (int k = 0; k < h->nresult; k++)
            e->var_host[h->result[k]->id] = e->env->host[i];
    }
    return true;
}

bool eval_plan(struct eval *e, struct uop *const *root, int nroot)
{
    if (!find_var_hosts(e))
        return false;
    e->t->mark++;
    for (int r = 0; r < nroot; r++)
        if (!add_reachable(e, root[r]))
            return false;
    for (int i = 0; i < e->env->nhost; i++)
        if (uop_is_check(e->env->host[i]) && !add_reachable(e, e->env->host[i]))
            return false;
    if (e->budget >= 0 && (e->budget -= e->nnode) < 0) {  /* visiting them costs budget, too */
        e->budget = 0;
        return false;
    }
    if (!find_loops(e) || !find_hosts(e) || !find_scopes(e) || !find_vars(e))
        return false;
    count_readers(e);
    mark_stretched(e);
    choose_tensors(e);
    for (int r = 0; r < nroot; r++)
        eval_node(e, root[r])->kept = true;
    count_tensor_readers(e);
    for (int i = 0; i < e->env->n; i++) {
        struct node *n = eval_node(e, e->env->leaf[i]);
        if (n)
            n->value = e->env->value[i];
    }
    return !e->failed;
}

