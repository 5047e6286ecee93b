/* eval.c - the oracle: the values of graph uops, slowly and plainly.
 *
 * A uop's value is computed where it is read (eval_program.c) unless it gets a tensor: reduce, concat, scatter, contiguous, the results
 * of control, what has several readers, what is read again and again through EXPAND, WINDOW or INDEX, and what would make a program too
 * long. So the product under a convolution's sum never lies in memory, a chain of any length is cut into pieces, and nothing is computed
 * more often than a fixed number of times.
 *
 * Tensors are computed on demand: a stack of tasks, each of which either finds all that it reads, or pushes what is missing and is tried
 * again. An IF asks for its condition, then for one branch. A LOOP is a task that stays on the stack for all its iterations; what belongs
 * to the iteration (depends on the counter or a PARAM) is dropped between them, what does not stays.
 *
 * Reductions add up in double in row-major order of the reduced axes, one element after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

enum {
    WEIGHT_MAX = 64,             /* uops in one program's tree */
    SHARED_MAX = 1 << 24,        /* a shared product with more elements than this, ... */
    SHARED_GROWTH = 8            /* ... and so many times its sources', is computed by each reader after all */
};

struct loop_state {
    struct loop *loop;
    struct node *node;           /* its LOOP */
    int depth;
    int first_in_scope;          /* list of nodes, -1: end */
    int phase;
    int64_t iteration, trip, scan_length;
    bool cond, done, fixed_length;
    struct tensor **param, **scan;   /* [ncarried], [nscan] */
    struct node **param_node;
};

struct eval {
    struct tgc *t;
    const struct eval_env *env;
    int64_t budget;
    size_t live, live_limit;     /* bytes of tensors */
    struct node *node; int nnode; size_t cap_node;
    int *table; size_t table_size;       /* uop id -> node index + 1 */
    struct loop_state *loop; int nloop; size_t cap_loop;
    uint64_t *free_loops; size_t nword;  /* per node: the loops that it depends on and is not itself */
    int64_t *var; bool *var_set; int *var_from; int nvar;    /* var_from: node whose evaluation sets it, -1 */
    struct node **task; int ntask; size_t cap_task;
    struct node **walk; int nwalk; size_t cap_walk;
    struct node **read; int nread; size_t cap_read;
    uint32_t mark;
    struct program program;
    bool failed;
};

enum status { STATUS_FAIL, STATUS_WAIT, STATUS_READY };

static bool reserve(struct eval *e, void *array, size_t *cap, size_t n, size_t size)
{
    void **a = array;
    if (n <= *cap)
        return true;
    size_t want = n < 32 ? 64 : 2 * n, nbytes;
    void *grown = size_mul(want, size, &nbytes) ? realloc(*a, nbytes) : NULL;
    if (!grown) {
        e->failed = true;
        return false;
    }
    *a = grown;
    *cap = want;
    return true;
}

/* ------------------------------------------------------------------------------------------------- tensors */

static struct tensor *tensor_new(struct eval *e, enum dtype d, const int64_t *dim, int ndim)
{
    size_t nelem = 1, nbytes;
    for (int a = 0; a < ndim; a++)
        if (dim[a] < 0 || !size_mul(nelem, (size_t)dim[a], &nelem))
            return NULL;
    if (!size_mul(nelem, sizeof(union scalar), &nbytes) || nbytes > e->live_limit - e->live)
        return NULL;
    struct tensor *x = calloc(1, sizeof *x);
    if (!x || !(x->data = malloc(nbytes ? nbytes : 1))) {
        free(x);
        return NULL;
    }
    x->dtype = d;
    x->ndim = ndim;
    x->nelem = (int64_t)nelem;
    for (int a = 0; a < ndim; a++)
        x->dim[a] = dim[a];
    e->live += nbytes;
    return x;
}

static void tensor_free(struct eval *e, struct tensor *x)
{
    if (!x)
        return;
    e->live -= (size_t)x->nelem * sizeof(union scalar);
    free(x->data);
    free(x);
}

/* --------------------------------------------------------------------------------------------------- nodes */

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
    if (!reserve(e, &e->node, &e->cap_node, (size_t)e->nnode + 1, sizeof *e->node))
        return false;
    e->node[e->nnode++] = (struct node){.u = u, .scope = -1, .next_in_scope = -1, .last_reader = -1};
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

/* What must be known before u: its sources and its dims. */
static struct uop *child(const struct uop *u, int k)
{
    const struct host_call *h = u->op == OP_HOST ? u->arg.p : NULL;
    if (k < u->nsrc)
        return u->src[k];
    k -= u->nsrc;
    if (k < u->ndim)
        return u->dim[k];
    k -= u->ndim;
    return h && k < h->nparam ? h->param[k] : NULL;
}

static bool add_reachable(struct eval *e, struct uop *root)
{
    struct frame { struct uop *u; int next; } *stack = NULL;
    size_t cap = 0;
    int depth = 0;
    uint32_t mark = e->t->mark;
    bool ok = reserve(e, &stack, &cap, 1, sizeof *stack);
    if (ok && root->mark != mark) {
        root->mark = mark;
        stack[depth++] = (struct frame){root, 0};
    }
    while (ok && depth) {
        struct frame *f = &stack[depth - 1];
        struct uop *c = child(f->u, f->next++);
        if (!c) {
            ok = node_add(e, f->u);
            depth--;
        } else if (c->mark != mark) {
            c->mark = mark;
            if ((ok = reserve(e, &stack, &cap, (size_t)depth + 1, sizeof *stack)))
                stack[depth++] = (struct frame){c, 0};
        }
    }
    free(stack);
    return ok;
}

/* Is the value of source k asked for, or is it a size that is known from the dims? */
static bool is_value_source(const struct uop *u, int k)
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
static bool is_memory(enum op op) { return op == OP_BUFFER || op == OP_PARAM; }
static bool is_movement(enum op op) { return op_class(op) == CLASS_MOVE && op != OP_CONCAT && op != OP_IOTA; }

/* ------------------------------------------------------------------------------------------------ analysis */

static struct loop_state *find_loop(struct eval *e, const struct loop *l)
{
    for (int i = 0; i < e->nloop; i++)
        if (e->loop[i].loop == l)
            return &e->loop[i];
    return NULL;
}

static uint64_t *loops_of(struct eval *e, int node) { return e->free_loops + (size_t)node * e->nword; }

static bool find_loops(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        if (e->node[i].u->op != OP_LOOP)
            continue;
        if (!reserve(e, &e->loop, &e->cap_loop, (size_t)e->nloop + 1, sizeof *e->loop))
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
            struct loop_state *s = find_loop(e, p->loop);
            if (s)
                s->param_node[p->index] = &e->node[i];
        }
    return true;
}

static int innermost(struct eval *e, int node)
{
    int best = -1;
    for (int l = 0; l < e->nloop; l++)
        if (loops_of(e, node)[l / 64] >> (l % 64) & 1 && (best < 0 || e->loop[l].depth > e->loop[best].depth))
            best = l;
    return best;
}

/* A node depends on the loops of its children; LOOP itself binds its own. A loop is inside those that its LOOP depends on. */
static bool find_scopes(struct eval *e)
{
    size_t total;
    e->nword = ((size_t)e->nloop + 63) / 64;
    if (e->nloop == 0)
        return true;
    if (!size_mul(e->nword, (size_t)e->nnode, &total) || !(e->free_loops = calloc(total, sizeof *e->free_loops)))
        return false;
    for (int i = 0; i < e->nnode; i++) {
        const struct uop *u = e->node[i].u, *c;
        uint64_t *set = loops_of(e, i);
        for (int k = 0; (c = child(u, k)); k++) {
            const uint64_t *s = loops_of(e, (int)(eval_node(e, c) - e->node));
            for (size_t w = 0; w < e->nword; w++)
                set[w] |= s[w];
        }
        for (int l = 0; l < e->nloop; l++) {
            const struct loop *loop = e->loop[l].loop;
            bool is_own = (u->op == OP_PARAM && ((const struct loop_param *)u->arg.p)->loop == loop) ||
                          (u->op == OP_VAR && u->arg.p == loop->counter);
            if (is_own)
                set[l / 64] |= (uint64_t)1 << (l % 64);
            if (e->loop[l].node == &e->node[i])
                set[l / 64] &= ~((uint64_t)1 << (l % 64));
        }
    }
    for (int l = 0; l < e->nloop; l++)
        for (size_t w = 0; w < e->nword; w++)
            e->loop[l].depth += __builtin_popcountll(loops_of(e, (int)(e->loop[l].node - e->node))[w]);
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
            if (is_value_source(e->node[i].u, k) && c->last_reader != i) {
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
    return op == OP_REDUCE || op == OP_CONCAT || op == OP_SCATTER || op == OP_CONTIGUOUS || op == OP_GET;
}

static void choose_tensors(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        struct node *n = &e->node[i];
        const struct uop *u = n->u;
        bool all_dims = u->ndim == 0 && (u->op == OP_CONST || op_is_elementwise(u->op)) && !dtype_is_float(u->dtype);
        n->pure = is_movement(u->op) || u->op == OP_IOTA || op_class(u->op) == CLASS_LEAF;
        n->weight = 1;
        for (int k = 0; k < u->nsrc; k++) {
            const struct node *c = eval_node(e, u->src[k]);
            all_dims &= c->is_dim;
            if (!is_value_source(u, k) || c->materialize || is_memory(c->u->op) || c->is_dim)
                continue;
            n->weight = n->weight + c->weight > 1 << 20 ? 1 << 20 : n->weight + c->weight;
            n->pure &= c->pure;
        }
        n->is_dim = all_dims || u->op == OP_VAR;
        if (is_memory(u->op) || is_control(u->op) || n->is_dim || u->op == OP_CONST)
            continue;
        n->shared = !n->pure && n->nreader > 1 && n->weight > 3 && u->ndim > 0;
        bool dear = u->op == OP_PAD || (!n->pure && !is_movement(u->op));       /* not to be computed again and again */
        bool must = always_materialized(u->op) || n->weight > WEIGHT_MAX || (n->stretched && dear && u->ndim > 0);
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
            e->var_from[((const struct var *)loop->scan_length->arg.p)->id] = (int)(e->loop[l].node - e->node);
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- sizes, made numbers */

static bool push_task(struct eval *e, struct node *n)
{
    if (!reserve(e, &e->task, &e->cap_task, (size_t)e->ntask + 1, sizeof *e->task))
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
            if (e->task[i] == &e->node[from])                    /* it would wait for itself */
                return STATUS_FAIL;
        return from >= 0 && push_task(e, &e->node[from]) ? STATUS_WAIT : STATUS_FAIL;
    }
    n->scalar = e->var[v->id];
    n->has_scalar = true;
    return STATUS_READY;
}

/* Depth-first with the walk array as stack above its present end. */
static enum status dim_value(struct eval *e, struct node *root)
{
    int bottom = e->nwalk;
    if (!root->has_scalar && reserve(e, &e->walk, &e->cap_walk, (size_t)e->nwalk + 1, sizeof *e->walk))
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
            if (reserve(e, &e->walk, &e->cap_walk, (size_t)e->nwalk + 1, sizeof *e->walk))
                e->walk[e->nwalk++] = missing;
            continue;
        }
        if (n->is_dim && n->u->op == OP_VAR)
            s = var_value(e, n);
        else if (n->is_dim)
            n->scalar = n->u->op == OP_CONST ? n->u->arg.i : eval_scalar(n->u->op, n->u->dtype, n->u->src[n->u->nsrc - 1]->dtype, v).i;
        n->has_scalar = s == STATUS_READY;
        e->nwalk--;
        if (s != STATUS_READY) {
            e->nwalk = bottom;
            return s;
        }
    }
    return e->failed ? STATUS_FAIL : STATUS_READY;
}

static enum status find_dims(struct eval *e, struct node *n)
{
    if (n->has_dims)
        return STATUS_READY;
    n->nelem = 1;
    for (int a = 0; a < n->u->ndim; a++) {
        struct node *d = eval_node(e, n->u->dim[a]);
        enum status s = dim_value(e, d);
        if (s != STATUS_READY)
            return s;
        n->dim[a] = d->scalar;
        if (d->scalar < 0 || __builtin_mul_overflow(n->nelem, d->scalar, &n->nelem))
            return STATUS_FAIL;
    }
    n->has_dims = true;
    return n->is_dim ? dim_value(e, n) : STATUS_READY;
}

/* ----------------------------------------------------------------------------------------------- demanding */

bool eval_is_inline(struct eval *e, const struct node *n)
{
    if (is_memory(n->u->op) || !n->materialize)
        return !is_memory(n->u->op);
    if (!n->shared || n->nelem <= SHARED_MAX)
        return false;
    int64_t total = 1;
    for (int k = 0; k < n->u->nsrc; k++) {
        const struct node *c = eval_node(e, n->u->src[k]);
        total = sat_add(total, c->has_dims ? c->nelem : 0);
    }
    return n->nelem / SHARED_GROWTH > total;
}

const struct buffer *eval_raw_weight(const struct node *n) { return n->value || n->u->op != OP_BUFFER ? NULL : n->u->arg.p; }

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
    bool is_weight = b && b->kind == BUFFER_WEIGHT && b->data && size_mul((size_t)n->nelem, dtype_nbytes(b->dtype), &nbytes);
    return is_weight && nbytes <= b->nbytes ? STATUS_READY : STATUS_FAIL;
}

static bool walk_push(struct eval *e, struct node *n)
{
    if (n->mark == e->mark)
        return true;
    n->mark = e->mark;
    if (!reserve(e, &e->walk, &e->cap_walk, (size_t)e->nwalk + 1, sizeof *e->walk))
        return false;
    e->walk[e->nwalk++] = n;
    return true;
}

/* Walks what a program for u would contain; with `body`, u itself is part of it. Lists the tensors that it would read. */
static enum status need_more(struct eval *e, struct uop *u, bool body)
{
    enum status all = STATUS_READY;
    struct node *root = eval_node(e, u);
    e->nwalk = 0;
    if (!walk_push(e, root))
        return STATUS_FAIL;
    while (e->nwalk) {
        struct node *n = e->walk[--e->nwalk];
        enum status s = find_dims(e, n);
        if (s == STATUS_READY && is_memory(n->u->op))
            s = memory_ready(n);
        else if (s == STATUS_READY && !(body && n == root) && n->materialize) {
            for (int k = 0; k < n->u->nsrc && n->shared; k++)    /* eval_is_inline() compares sizes */
                if ((s = find_dims(e, eval_node(e, n->u->src[k]))) != STATUS_READY)
                    break;
            if (s == STATUS_READY && !eval_is_inline(e, n)) {
                if (!reserve(e, &e->read, &e->cap_read, (size_t)e->nread + 1, sizeof *e->read))
                    return STATUS_FAIL;
                e->read[e->nread++] = n;
                if (n->value)
                    continue;
                s = push_task(e, n) ? STATUS_WAIT : STATUS_FAIL;
            }
        }
        if (s == STATUS_FAIL)
            return s;
        if (s == STATUS_WAIT) {
            all = s;
            continue;
        }
        for (int k = 0; k < n->u->nsrc && !n->is_dim; k++)
            if (is_value_source(n->u, k) && !walk_push(e, eval_node(e, n->u->src[k])))
                return STATUS_FAIL;
    }
    return all;
}

static void need_begin(struct eval *e)
{
    e->nread = 0;
    e->mark++;
}

static enum status need(struct eval *e, struct uop *u)
{
    need_begin(e);
    return need_more(e, u, false);
}

/* How many tensors are computed from each, so that it can go after the last of them. Loops read theirs again: those stay. */
static void count_tensor_readers(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++) {
        struct node *m = &e->node[i];
        if (!m->materialize)
            continue;
        e->mark++;
        e->nwalk = 0;
        walk_push(e, m);
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
                if (is_value_source(n->u, k))
                    walk_push(e, c);
            }
        }
    }
}

static void release_reads(struct eval *e, const struct node *by)
{
    for (int i = 0; i < e->nread; i++) {
        struct node *n = e->read[i];
        if (n->scope == by->scope && --n->readers == 0 && !n->kept) {
            tensor_free(e, n->value);
            n->value = NULL;
        }
    }
}

/* --------------------------------------------------------------------------------------- computing one tensor */

static void put_lanes(union scalar *to, int n, const struct operand *v)
{
    if (!v->uniform) {
        memcpy(to, v->v, (size_t)n * sizeof *to);
        return;
    }
    for (int i = 0; i < n; i++)
        to[i] = v->v[0];
}

static void sink_copy(void *ctx, int64_t first, int n, int64_t step, const struct operand *v)
{
    (void)step;
    put_lanes((union scalar *)((struct tensor *)ctx)->data + first, n, v);
}

/* u over its own shape; with `body`, u itself is computed. needs: all that it reads is there. */
static struct tensor *compute_plain(struct eval *e, struct uop *u, bool body)
{
    const struct node *n = eval_node(e, u);
    struct tensor *r = tensor_new(e, u->dtype, n->dim, u->ndim);
    struct program *p = &e->program;
    if (!r)
        return NULL;
    eval_program_reset(p);
    eval_program_lanes(p, n->dim, u->ndim);
    int root = n->nelem == 0 ? 0 : body ? eval_program_body(p, e, u, p->lane_reg) : eval_program_value(p, e, u, p->lane_reg);
    if (n->nelem == 0 || eval_program_run(p, &root, 1, sink_copy, r))
        return r;
    tensor_free(e, r);
    return NULL;
}

struct reduction { enum op op; enum dtype dtype; bool by_step; union scalar *out; };

/* Sums in double; narrow kinds and small integers are brought to their kind at the end. */
static union scalar reduce_one(const struct reduction *r, union scalar acc, union scalar v)
{
    enum dtype d = dtype_is_float(r->dtype) ? DTYPE_F64 : r->dtype == DTYPE_U64 || r->dtype == DTYPE_BOOL ? r->dtype : DTYPE_I64;
    if (d == DTYPE_F64 && r->op == OP_ADD)
        return (union scalar){.f = acc.f + v.f};
    return eval_scalar(r->op, d, d, (union scalar[2]){acc, v});
}

static void sink_reduce(void *ctx, int64_t first, int n, int64_t step, const struct operand *v)
{
    const struct reduction *r = ctx;
    union scalar *out = r->by_step ? r->out + step : r->out + first;
    if (r->op == OP_ADD && dtype_is_float(r->dtype) && !v->uniform) {
        if (r->by_step)
            for (int i = 0; i < n; i++)
                out->f += v->v[i].f;
        else
            for (int i = 0; i < n; i++)
                out[i].f += v->v[i].f;
        return;
    }
    for (int i = 0; i < n; i++) {
        union scalar x = v->v[v->uniform ? 0 : i], *acc = r->by_step ? out : out + i;
        *acc = reduce_one(r, *acc, x);
    }
}

/* Lanes go along the kept axes and steps along the reduced ones, or the other way round if few elements are kept. */
static struct tensor *compute_reduce(struct eval *e, struct uop *u)
{
    const struct node *n = eval_node(e, u), *x = eval_node(e, u->src[0]);
    struct program *p = &e->program;
    struct reduction red = {.op = REDUCE_OP(u->arg.i), .dtype = u->dtype};
    int64_t dim[2][MAX_RANK], reduced = 1;
    int axis[2][MAX_RANK], count[2] = {0, 0}, coord[MAX_RANK];
    struct tensor *r = tensor_new(e, u->dtype, n->dim, u->ndim);
    if (!r)
        return NULL;
    for (int a = 0; a < u->ndim; a++) {
        int which = REDUCE_AXES(u->arg.i) >> a & 1;
        reduced = which ? sat_mul(reduced, x->dim[a]) : reduced;
        axis[which][count[which]] = a;
        dim[which][count[which]++] = x->dim[a];
    }
    red.by_step = n->nelem < 64 && n->nelem < reduced;
    red.out = r->data;
    union scalar identity = alu_identity(red.op, u->dtype);
    for (int64_t i = 0; i < r->nelem; i++)
        red.out[i] = identity;
    if (x->nelem == 0)
        return r;
    int lane = red.by_step, step = !red.by_step;
    eval_program_reset(p);
    eval_program_lanes(p, dim[lane], count[lane]);
    eval_program_steps(p, dim[step], count[step]);
    for (int a = 0; a < count[lane]; a++)
        coord[axis[lane][a]] = p->lane_reg[a];
    for (int a = 0; a < count[step]; a++)
        coord[axis[step][a]] = p->step_reg[a];
    int root = eval_program_value(p, e, u->src[0], coord);
    if (!eval_program_run(p, &root, 1, sink_reduce, &red)) {
        tensor_free(e, r);
        return NULL;
    }
    for (int64_t i = 0; i < r->nelem && u->dtype != DTYPE_F32; i++)
        red.out[i] = scalar_cast(u->dtype, dtype_is_float(u->dtype) ? DTYPE_F64 : DTYPE_I64, red.out[i]);
    return r;
}

struct placement { union scalar *out; int64_t src_block, dst_block, offset; };

static void sink_place(void *ctx, int64_t first, int n, int64_t step, const struct operand *v)
{
    const struct placement *c = ctx;
    (void)step;
    for (int i = 0; i < n; i++) {
        int64_t outer = (first + i) / c->src_block, inner = (first + i) % c->src_block;
        c->out[outer * c->dst_block + c->offset + inner] = v->v[v->uniform ? 0 : i];
    }
}

static struct tensor *compute_concat(struct eval *e, struct uop *u)
{
    const struct node *n = eval_node(e, u);
    struct program *p = &e->program;
    struct tensor *r = tensor_new(e, u->dtype, n->dim, u->ndim);
    struct placement c = {.out = r ? r->data : NULL, .dst_block = 1};
    int axis = (int)u->arg.i;
    int64_t inner = 1, end = 0;
    if (!r)
        return NULL;
    for (int a = axis + 1; a < u->ndim; a++)
        inner *= n->dim[a];
    c.dst_block = inner * n->dim[axis];
    for (int k = 0; k < u->nsrc; k++) {
        const struct node *x = eval_node(e, u->src[k]);
        bool fits = (end = sat_add(end, x->dim[axis])) <= n->dim[axis];
        for (int a = 0; a < u->ndim; a++)
            fits &= a == axis || x->dim[a] == n->dim[a];
        c.src_block = inner * x->dim[axis];
        eval_program_reset(p);
        eval_program_lanes(p, x->dim, u->ndim);
        int root = x->nelem ? eval_program_value(p, e, u->src[k], p->lane_reg) : 0;
        if (!fits || (x->nelem && !eval_program_run(p, &root, 1, sink_place, &c))) {
            tensor_free(e, r);
            return NULL;
        }
        c.offset += c.src_block;
    }
    if (end == n->dim[axis] || r->nelem == 0)
        return r;
    tensor_free(e, r);
    return NULL;
}

struct scattering { enum op op; struct tensor *out; };

static void sink_scatter(void *ctx, int64_t first, int n, int64_t step, const struct operand *v)
{
    const struct scattering *s = ctx;
    enum dtype d = s->out->dtype;
    (void)first;
    (void)step;
    for (int i = 0; i < n; i++) {
        int64_t offset = 0;
        bool inside = true;
        for (int a = 0; a < s->out->ndim; a++) {
            int64_t at = v[1 + a].v[v[1 + a].uniform ? 0 : i].i;
            inside &= at >= 0 && at < s->out->dim[a];
            offset = inside ? offset * s->out->dim[a] + at : 0;
        }
        if (!inside)
            continue;
        union scalar x = v[0].v[v[0].uniform ? 0 : i], *to = (union scalar *)s->out->data + offset;
        *to = s->op == OP_CONST ? x : eval_scalar(s->op, d, d, (union scalar[2]){*to, x});
    }
}

static struct tensor *compute_scatter(struct eval *e, struct uop *u)
{
    struct program *p = &e->program;
    const struct node *value = eval_node(e, u->src[1]);
    struct tensor *r = compute_plain(e, u->src[0], false);
    struct scattering s = {.op = (enum op)u->arg.i, .out = r};
    int root[MAX_RANK + 1];
    if (!r)
        return NULL;
    eval_program_reset(p);
    eval_program_lanes(p, value->dim, value->u->ndim);
    bool fits = true;
    for (int k = 1; k < u->nsrc; k++) {
        const struct node *x = eval_node(e, u->src[k]);
        for (int a = 0; a < x->u->ndim; a++)
            fits &= x->dim[a] == value->dim[a];
        root[k - 1] = value->nelem && fits ? eval_program_value(p, e, u->src[k], x->u->ndim ? p->lane_reg : NULL) : 0;
    }
    if (fits && (value->nelem == 0 || eval_program_run(p, root, u->nsrc - 1, sink_scatter, &s)))
        return r;
    tensor_free(e, r);
    return NULL;
}

static enum status compute_tensor(struct eval *e, struct node *n)
{
    need_begin(e);
    enum status s = need_more(e, n->u, true);
    if (s != STATUS_READY)
        return s;
    switch (n->u->op) {
    case OP_REDUCE:
        n->value = compute_reduce(e, n->u);
        break;
    case OP_CONCAT:
        n->value = compute_concat(e, n->u);
        break;
    case OP_SCATTER:
        n->value = compute_scatter(e, n->u);
        break;
    default:
        n->value = compute_plain(e, n->u, true);
    }
    if (!n->value)
        return STATUS_FAIL;
    release_reads(e, n);
    return STATUS_READY;
}

/* ------------------------------------------------------------------------------------------------- control */

/* A scalar's value. */
static enum status scalar_now(struct eval *e, struct uop *u, int64_t *v)
{
    struct tensor *x = compute_plain(e, u, false);
    if (!x || x->nelem != 1)
        return STATUS_FAIL;
    *v = ((union scalar *)x->data)->i;
    tensor_free(e, x);
    return STATUS_READY;
}

static enum status compute_branch(struct eval *e, struct node *n)
{
    const struct uop *branch = n->u->src[0];
    int64_t cond, count = branch->arg.i;
    enum status s = need(e, branch->src[0]);
    if (s == STATUS_READY)
        s = scalar_now(e, branch->src[0], &cond);
    if (s != STATUS_READY)
        return s;
    struct uop *taken = branch->src[1 + (cond ? 0 : count) + n->u->arg.i];
    if ((s = need(e, taken)) != STATUS_READY)
        return s;
    if ((s = find_dims(e, n)) != STATUS_READY)
        return s;
    n->value = compute_plain(e, taken, false);
    return n->value ? STATUS_READY : STATUS_FAIL;
}

static void scope_clear(struct eval *e, struct loop_state *s)
{
    for (int i = s->first_in_scope; i >= 0; i = e->node[i].next_in_scope) {
        struct node *n = &e->node[i];
        if (n->u->op != OP_PARAM)
            tensor_free(e, n->value);
        n->value = NULL;
        n->has_dims = n->has_scalar = false;
        struct loop_state *inner = n->u->op == OP_LOOP ? find_loop(e, n->u->arg.p) : NULL;
        if (inner)
            inner->done = false;
    }
}

/* Puts a new set of carried values in place of the old one. */
static bool carry(struct eval *e, struct loop_state *s, struct uop *const *from)
{
    int n = s->loop->ncarried;
    struct tensor **fresh = calloc((size_t)n + 1, sizeof *fresh);
    bool ok = fresh != NULL;
    for (int k = 0; ok && k < n; k++)
        ok = (fresh[k] = compute_plain(e, from[k], false)) != NULL;
    for (int k = 0; fresh && k < n; k++) {
        tensor_free(e, ok ? s->param[k] : fresh[k]);
        if (ok)
            s->param[k] = fresh[k];
    }
    free(fresh);
    return ok;
}

/* Appends one iteration's value to a stack that is as long as is known so far; its length is set right at the end. */
static bool scan_append(struct eval *e, struct loop_state *s, int j, struct uop *u)
{
    struct tensor *one = compute_plain(e, u, false), *old = s->scan[j];
    int64_t have = old ? old->dim[0] : 0;
    if (one && one->ndim < MAX_RANK && s->iteration >= have) {
        int64_t dim[MAX_RANK], grown = s->fixed_length ? s->scan_length : have ? 2 * have : 8;
        dim[0] = grown;
        for (int a = 0; a < one->ndim; a++)
            dim[a + 1] = one->dim[a];
        struct tensor *more = s->iteration < grown ? tensor_new(e, u->dtype, dim, one->ndim + 1) : NULL;
        if (more) {
            size_t used = (size_t)(have * one->nelem);
            if (used)
                memcpy(more->data, old->data, used * sizeof(union scalar));
            memset((union scalar *)more->data + used, 0, ((size_t)more->nelem - used) * sizeof(union scalar));
            tensor_free(e, old);
            s->scan[j] = more;
        } else {
            tensor_free(e, one);
            return false;
        }
    }
    if (!one || s->scan[j]->nelem / s->scan[j]->dim[0] != one->nelem) {
        tensor_free(e, one);
        return false;
    }
    memcpy((union scalar *)s->scan[j]->data + s->iteration * one->nelem, one->data, (size_t)one->nelem * sizeof(union scalar));
    tensor_free(e, one);
    return true;
}

static enum status loop_begin(struct eval *e, struct loop_state *s)
{
    const struct uop *u = s->node->u;
    int64_t cond;
    need_begin(e);
    for (int k = 0; k < 2 + s->loop->ncarried; k++) {
        enum status st = need_more(e, u->src[k], false);
        if (st != STATUS_READY)
            return st;
    }
    if (scalar_now(e, u->src[0], &s->trip) != STATUS_READY || scalar_now(e, u->src[1], &cond) != STATUS_READY)
        return STATUS_FAIL;
    s->fixed_length = false;
    if (s->loop->nscan) {
        struct node *length = s->loop->scan_length ? eval_node(e, s->loop->scan_length) : NULL;
        bool own = length && length->u->op == OP_VAR && !e->var_set[((const struct var *)length->u->arg.p)->id];
        if (length && !own) {
            enum status st = dim_value(e, length);
            if (st != STATUS_READY)
                return st;
            s->fixed_length = true;
            s->scan_length = length->scalar;
        }
    }
    if (!carry(e, s, u->src + 2))
        return STATUS_FAIL;
    for (int j = 0; j < s->loop->nscan; j++) {                   /* left from an earlier run, inside another loop */
        tensor_free(e, s->scan[j]);
        s->scan[j] = NULL;
    }
    s->cond = cond != 0;
    s->iteration = 0;
    s->phase = 1;
    return STATUS_READY;
}

/* One iteration: all of its values first, then all carried values change at once. */
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
    need_begin(e);
    for (int k = 0; k < 1 + l->ncarried + l->nscan; k++) {
        enum status st = need_more(e, after[k], false);
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
    if (e->budget >= 0 && (e->budget -= WEIGHT_MAX) < 0)
        return STATUS_FAIL;
    return STATUS_READY;
}

static enum status loop_run(struct eval *e, struct loop_state *s)
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

static void cut_first_axis(struct eval *e, struct tensor *x, int64_t n)
{
    int64_t nelem = x->dim[0] ? x->nelem / x->dim[0] * n : 0;
    e->live -= (size_t)(x->nelem - nelem) * sizeof(union scalar);
    x->dim[0] = n;
    x->nelem = nelem;
}

/* GET of a LOOP takes the loop's tensor; there is one GET for each result. */
static enum status compute_loop_result(struct eval *e, struct node *n)
{
    struct loop_state *s = find_loop(e, n->u->src[0]->arg.p);
    int k = (int)n->u->arg.i, j = k - s->loop->ncarried;
    if (!s->done)
        return push_task(e, s->node) ? STATUS_WAIT : STATUS_FAIL;
    enum status st = find_dims(e, n);
    if (st != STATUS_READY)
        return st;
    struct tensor **from = j < 0 ? &s->param[k] : &s->scan[j];
    if (!*from && j >= 0 && s->iteration == 0)
        *from = tensor_new(e, n->u->dtype, n->dim, n->u->ndim);
    if (!*from)
        return STATUS_FAIL;
    if (j >= 0 && s->iteration == 0)
        memset((*from)->data, 0, (size_t)(*from)->nelem * sizeof(union scalar));
    if (j >= 0 && !s->fixed_length)
        cut_first_axis(e, *from, s->iteration);
    n->value = *from;
    *from = NULL;
    return STATUS_READY;
}

static enum status run_task(struct eval *e, struct node *n)
{
    if (n->u->op == OP_LOOP)
        return loop_run(e, find_loop(e, n->u->arg.p));
    if (n->u->op != OP_GET)
        return compute_tensor(e, n);
    enum status s = STATUS_FAIL;                                 /* host functions: not known here */
    if (n->u->src[0]->op == OP_IF)
        s = compute_branch(e, n);
    else if (n->u->src[0]->op == OP_LOOP)
        s = compute_loop_result(e, n);
    for (int a = 0; s == STATUS_READY && a < n->u->ndim; a++)
        if (n->value->dim[a] != n->dim[a])
            s = STATUS_FAIL;
    return s;
}

/* -------------------------------------------------------------------------------------------------- the whole */

static bool drain(struct eval *e)
{
    while (e->ntask) {
        struct node *n = e->task[e->ntask - 1];
        bool loop_done = n->u->op == OP_LOOP && find_loop(e, n->u->arg.p)->done;
        if (n->value || loop_done) {                             /* asked for twice before it was computed */
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

static bool analyze(struct eval *e, struct uop *const *root, int nroot)
{
    e->t->mark++;
    for (int r = 0; r < nroot; r++)
        if (!add_reachable(e, root[r]))
            return false;
    if (e->budget >= 0 && (e->budget -= e->nnode) < 0) {         /* looking at them is work, too */
        e->budget = 0;
        return false;
    }
    if (!find_loops(e) || !find_scopes(e) || !find_vars(e))
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
    while ((s = need(e, root)) == STATUS_WAIT)
        if (!drain(e))
            return NULL;
    return s == STATUS_READY ? compute_plain(e, root, false) : NULL;
}

static bool evaluate(struct eval *e, struct uop *const *root, int nroot, struct tensor **result)
{
    if (!analyze(e, root, nroot))
        return false;
    for (int r = 0; r < nroot; r++) {
        struct tensor *x = evaluate_root(e, root[r]);
        if (!x)
            return false;
        result[r] = to_arena(e->t, x);
        tensor_free(e, x);
    }
    return true;
}

static bool evaluate_bytes(struct eval *e, struct uop *root, int64_t nelem, char *data)
{
    struct tensor *x = analyze(e, &root, 1) ? evaluate_root(e, root) : NULL;
    bool ok = x && x->nelem == nelem;
    size_t size = dtype_nbytes(root->dtype);
    for (int64_t i = 0; ok && i < nelem; i++)
        scalar_store(root->dtype, data + (size_t)i * size, ((union scalar *)x->data)[i]);
    tensor_free(e, x);
    return ok;
}

static void eval_free(struct eval *e)
{
    for (int i = 0; i < e->nnode; i++)
        if (!is_memory(e->node[i].u->op))
            tensor_free(e, e->node[i].value);
    for (int l = 0; l < e->nloop; l++) {
        struct loop_state *s = &e->loop[l];
        for (int k = 0; s->param && k < s->loop->ncarried; k++)
            tensor_free(e, s->param[k]);
        for (int j = 0; s->scan && j < s->loop->nscan; j++)
            tensor_free(e, s->scan[j]);
        free(s->param);
        free(s->scan);
        free(s->param_node);
    }
    eval_program_free(&e->program);
    free(e->node);
    free(e->table);
    free(e->loop);
    free(e->free_loops);
    free(e->var);
    free(e->var_set);
    free(e->var_from);
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
    e->live_limit = t->mem_limit - t->mem_used;
    e->program.budget = &e->budget;
    return e;
}

/* The heap is used, since tensors come and go; a stop of the compile on the way must not leak them. */
bool eval_graph(struct tgc *t, struct uop *const *root, int nroot, const struct eval_env *env, struct tensor **result)
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

/* Nothing here allocates from the arena. */
bool eval_store(struct tgc *t, struct uop *root, int64_t nelem, const struct eval_env *env, void *data, int64_t *left)
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
