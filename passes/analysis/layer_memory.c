/* layer_memory.c - how much memory a run needs if layers are computed as the model has them.
 *
 * The graph, before rewrites that trade memory for time (winograd.c), is simulated in topological
 * order. A reduction is a tensor, and values computed elementwise from it overwrite it. Where two
 * tensors meet (a skip connection), or a value has several consumers, the result is a tensor, too,
 * in the memory of a dead one: a sum is added in place. The largest live set is what rewritten
 * layers may use: where their tensors need more, band.c computes them band by band. */
#include "passes/analysis/stationary.h"
#include "passes/passes.h"

struct held {
    struct uop *u;
    double nbytes;
    int nuse, last;              /* consumers; the last tensor that is computed from it */
    int from, to;                /* the tensors it is computed from: [from, to) in made_of[] */
    bool varies, stays;          /* depends on an input; is in memory */
};

struct room {
    struct tgc *t;
    struct held *tensor;       /* by topological order */
    int n, *at;                  /* tensor's index by uop id */
    int *made_of, nmade_of;
    size_t cap;
};

static double nbytes_of(const struct uop *v)
{
    double n = (double)dtype_nbytes(v->dtype);
    for (int a = 0; a < v->ndim; a++)
        n *= v->dim[a]->vmax > 0 ? (double)v->dim[a]->vmax : 0;
    return n;
}

static struct held *tensor_of(const struct room *r, const struct uop *u)
{
    return &r->tensor[r->at[u->id]];
}

/* Sizes do not count: a weight that is expanded by an unknown size stays what it is. */
static bool varies(const struct room *r, const struct uop *u)
{
    if (u->op == OP_BUFFER)
        return !buffer_is_stationary(uop_buffer_of(u));
    bool any = u->nsrc == 0 && u->op != OP_CONST && u->op != OP_IOTA && u->op != OP_VAR;
    for (int k = 0; k < u->nsrc; k++)
        any |= tensor_of(r, u->src[k])->varies;
    return any;
}

/* Whether it is a tensor in memory: anything but buffers and values that pass a single tensor
 * on. */
static bool is_held(const struct room *r, const struct held *v)
{
    const struct uop *u = v->u;
    int whole = 0;
    if (!v->varies || u->ndim == 0 || u->op == OP_BUFFER)
        return false;
    if (op_class(u->op) == CLASS_MOVE)
        return false;
    for (int k = 0; k < u->nsrc; k++) {
        const struct held *x = tensor_of(r, u->src[k]);
        whole += x->varies && x->nbytes >= v->nbytes;
    }
    return !op_is_elementwise(u->op) || v->nuse > 1 || whole > 1;
}

/* The tensors from which tensor i is computed, each once. */
static void find_sources(struct room *r, int i)
{
    struct uop **stack = NULL;
    struct uop_map seen = {.t = r->t, .scratch = true};
    size_t cap = 0;
    int n = 0;
    struct mem_mark mark = scratch_mark(r->t);
    SCRATCH_PUSH(r->t, stack, n, cap, r->tensor[i].u);
    r->tensor[i].from = r->nmade_of;
    while (n > 0) {
        struct uop *u = stack[--n];
        for (int k = 0; k < u->nsrc; k++) {
            struct uop *x = u->src[k];
            if (!tensor_of(r, x)->varies || map_get(&seen, x))
                continue;
            map_set(&seen, x, x);
            if (tensor_of(r, x)->stays)
                VEC_PUSH(r->t, r->made_of, r->nmade_of, r->cap, r->at[x->id]);
            else
                SCRATCH_PUSH(r->t, stack, n, cap, x);
        }
    }
    r->tensor[i].to = r->nmade_of;
    scratch_release(r->t, mark);
}

/* A result is stored in the caller's memory. */
static void give_away(struct room *r, struct uop *root)
{
    struct held *v = tensor_of(r, root);
    while (!v->stays && op_is_elementwise(v->u->op) && v->nuse <= 1) {
        struct held *below = NULL;
        for (int k = 0; k < v->u->nsrc && !below; k++)
            if (tensor_of(r, v->u->src[k])->varies)
                below = tensor_of(r, v->u->src[k]);
        if (!below)
            return;
        v = below;
    }
    if (v->stays && v->nuse <= 1)
        v->nbytes = 0;
}

static void list_tensors(struct room *r, struct uop **order)
{
    uint32_t most = 0;
    for (int i = 0; i < r->n; i++)
        most = order[i]->id > most ? order[i]->id : most;
    r->at = mem_array(r->t, (size_t)most + 1, sizeof *r->at);
    r->tensor = mem_array(r->t, (size_t)r->n + 1, sizeof *r->tensor);
    for (int i = 0; i < r->n; i++) {
        struct held *v = &r->tensor[i];
        r->at[order[i]->id] = i;
        *v = (struct held){.u = order[i], .nbytes = nbytes_of(order[i]), .last = i};
        v->varies = varies(r, order[i]);
        for (int k = 0; k < order[i]->nsrc; k++)
            tensor_of(r, order[i]->src[k])->nuse++;
    }
    for (int i = 0; i < r->n; i++)
        r->tensor[i].stays = is_held(r, &r->tensor[i]);
}

/* Whether tensor i is computed from tensor k. */
static bool is_made_of(const struct room *r, int i, int k)
{
    int at = r->tensor[i].from;
    while (at < r->tensor[i].to && r->made_of[at] != k)
        at++;
    return at < r->tensor[i].to;
}

/* A sum added to an older tensor (a skip connection) takes that one's memory, if it was not
 * computed from it and the tensor is dead afterwards. Two reductions are two tensors. */
static void add_in_place(struct room *r, int i)
{
    const struct held *v = &r->tensor[i];
    for (int a = v->from; a < v->to; a++) {
        struct held *sum = &r->tensor[r->made_of[a]];
        for (int b = v->from; b < v->to && sum->u->op == OP_REDUCE; b++) {
            const struct held *x = &r->tensor[r->made_of[b]];
            if (b == a || sum->last != i || x->last != i || sum->nbytes > v->nbytes ||
                x->nbytes != v->nbytes || sum->nuse > 1 || x->nuse < 2 ||
                is_made_of(r, r->made_of[a], r->made_of[b]))
                continue;
            sum->nbytes = 0;
            return;
        }
    }
}

static double most_alive(struct room *r)
{
    double *change = mem_array(r->t, (size_t)r->n + 2, sizeof *change), now = 0, most = 0;
    for (int i = 0; i < r->n; i++)
        for (int k = r->tensor[i].from; k < r->tensor[i].to; k++)
            r->tensor[r->made_of[k]].last = i;
    for (int i = 0; i < r->n; i++)
        if (r->tensor[i].stays && op_is_elementwise(r->tensor[i].u->op))
            add_in_place(r, i);
    for (int i = 0; i < r->n; i++)
        if (r->tensor[i].stays) {
            change[i] += r->tensor[i].nbytes;
            change[r->tensor[i].last + 1] -= r->tensor[i].nbytes;
        }
    for (int i = 0; i < r->n; i++) {
        const struct held *v = &r->tensor[i];
        double replaced = 0;
        for (int k = v->from; k < v->to && op_is_elementwise(v->u->op); k++) {
            const struct held *x = &r->tensor[r->made_of[k]];
            if (x->last == i && x->nbytes <= v->nbytes && x->nbytes > replaced)
                replaced = x->nbytes;
        }
        now += change[i];
        most = now - replaced > most ? now - replaced : most;
    }
    return most;
}

double room_of_layers(struct tgc *t, const struct graph *g)
{
    struct room r = {.t = t};
    int nroot;
    struct mem_mark mark = scratch_mark(t);
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &r.n);
    list_tensors(&r, order);
    for (int i = 0; i < nroot; i++)
        give_away(&r, root[i]);
    for (int i = 0; i < r.n; i++)
        if (r.tensor[i].stays)
            find_sources(&r, i);
    double most = most_alive(&r);
    scratch_release(t, mark);
    return most;
}
