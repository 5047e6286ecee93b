/* eval_kernel.c - interprets a kernel's AST directly, at any stage: the semantics that linearize.c
 * has to preserve.
 *
 * Stores run one after the other; those of the same bands do so once for each band. A store runs
 * its loops, and in each iteration computes the uops below it, sources first. A REDUCE runs its own
 * loops whenever its value is needed and not valid, a STAGE fills its scratch. A value stays valid
 * until one of its free ranges changes, or memory that it reads and the kernel writes: both keep
 * the time of their last change. So nothing is hoisted and no loop order is chosen, and the errors
 * that linearize.c could make cannot occur here.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

/* What is computed in one iteration of a loop: indices into order[], sources first. */
struct body {
    int *at, n;
};

struct value {
    const struct uop *u;
    union scalar v;
    uint64_t time;       /* when it was computed, or changed; 0: never */
    int *src;            /* indices of its sources */
    int *causes, ncause; /* indices of the ranges and memory whose changes invalidate it */
    struct body body;    /* STORE, REDUCE, STAGE: of an iteration; RANGE: of its size */
    int memory;          /* LOAD, STORE, STAGE, BUFFER */
};

struct kernel_eval {
    struct tgc *t;
    const struct eval_env *env;
    struct value *value;
    int n;
    uint64_t time;
    int64_t budget;
    struct eval_memory memory;
    bool failed;
};

static int first_range_of(const struct uop *u)
{
    if (u->op == OP_STORE)
        return u->nsrc > 3 && u->src[3]->op != OP_RANGE ? 4 : 3;
    return u->op == OP_STAGE ? 2 : 1;
}

static bool binds(const struct uop *u)
{
    return u->op == OP_REDUCE || u->op == OP_STAGE || u->op == OP_STORE;
}

/* ------------------------------------------------------------------------------- what is needed */

/* The uops below the roots, without those that a REDUCE or STAGE computes itself. */
static struct body find_body(struct kernel_eval *e, const int *root, int nroot)
{
    struct body b = {0};
    struct mem_mark mark = scratch_mark(e->t);
    bool *needed = scratch_array(e->t, (size_t)e->n, sizeof *needed);
    for (int k = 0; k < nroot; k++)
        needed[root[k]] = true;
    for (int i = e->n - 1; i >= 0; i--) {
        const struct uop *u = e->value[i].u;
        if (!needed[i] || binds(u) || u->op == OP_RANGE)
            continue;
        for (int k = 0; k < u->nsrc; k++)
            needed[e->value[i].src[k]] = true;
    }
    for (int i = 0; i < e->n; i++) {
        const struct uop *u = e->value[i].u;
        needed[i] &= op_class(u->op) != CLASS_LEAF && u->op != OP_RANGE;
        b.n += needed[i];
    }
    b.at = mem_array(e->t, (size_t)b.n + 1, sizeof *b.at);
    for (int i = 0, n = 0; i < e->n; i++)
        if (needed[i])
            b.at[n++] = i;
    scratch_release(e->t, mark);
    return b;
}

/* The causes of its sources except for the ranges that it binds; for a range, itself; for a LOAD,
 * memory that a store writes. */
static void find_causes(struct kernel_eval *e, int i, const bool *written)
{
    struct value *x = &e->value[i];
    int nvalue = binds(x->u) ? first_range_of(x->u) : x->u->nsrc;
    struct mem_mark mark = scratch_mark(e->t);
    bool *cause = scratch_array(e->t, (size_t)e->n, sizeof *cause);
    for (int k = 0; k < x->u->nsrc; k++) {
        const struct value *s = &e->value[x->src[k]];
        for (int c = 0; c < s->ncause; c++)
            cause[s->causes[c]] |= k < nvalue || s->causes[c] != x->src[k];
    }
    for (int k = nvalue; k < x->u->nsrc; k++)
        cause[x->src[k]] = false;
    cause[i] |= x->u->op == OP_RANGE || (x->u->op == OP_BUFFER && written[i]);
    for (int c = 0; c <= i; c++)
        x->ncause += cause[c];
    x->causes = mem_array(e->t, (size_t)x->ncause + 1, sizeof *x->causes);
    for (int c = 0, n = 0; c <= i; c++)
        if (cause[c])
            x->causes[n++] = c;
    scratch_release(e->t, mark);
}

static void prepare(struct kernel_eval *e, const struct uop *ast)
{
    struct tgc *t = e->t;
    struct uop *root = (struct uop *)(uintptr_t)ast, **order = uop_toposort(t, &root, 1, &e->n);
    struct uop_map place = {.t = t};
    bool *written = scratch_array(t, (size_t)e->n, sizeof *written);
    e->value = scratch_array(t, (size_t)e->n, sizeof *e->value);
    for (int i = 0; i < e->n; i++) {
        struct value *x = &e->value[i];
        *x = (struct value){.u = order[i], .memory = -1};
        x->src = scratch_array(t, (size_t)order[i]->nsrc + 1, sizeof *x->src);
        for (int k = 0; k < order[i]->nsrc; k++)
            x->src[k] = (int)(uintptr_t)map_get(&place, order[i]->src[k]) - 1;
        map_set(&place, order[i], (void *)(uintptr_t)(i + 1));
        if (order[i]->op == OP_STORE)
            written[x->src[0]] = true;
    }
    for (int i = 0; i < e->n && !e->failed; i++) {
        struct value *x = &e->value[i];
        if (x->u->op == OP_BUFFER || x->u->op == OP_STAGE)
            x->memory = eval_memory_of(&e->memory, uop_buffer_of(x->u));
        else if (x->u->op == OP_LOAD || x->u->op == OP_STORE)
            x->memory = e->value[x->src[0]].memory;
        if (x->u->op == OP_CONST)
            x->v.i = x->u->arg.i;
        if (x->u->op == OP_VAR) {
            const struct var *v = x->u->arg.p;
            e->failed |= v->id >= e->env->nvar;
            x->v.i = e->failed ? 0 : e->env->var[v->id];
        }
        find_causes(e, i, written);
        if (binds(x->u))
            x->body = find_body(e, x->src, x->u->op == OP_REDUCE ? 1 : first_range_of(x->u));
        if (x->u->op == OP_RANGE)
            x->body = find_body(e, x->src, 1);
    }
}

/* -------------------------------------------------------------------------------------- running */

static void compute(struct kernel_eval *e, int i);

static bool is_known(const struct kernel_eval *e, const struct value *x)
{
    bool known = x->time > 0;
    for (int c = 0; c < x->ncause && known; c++)
        known = x->time > e->value[x->causes[c]].time;
    return known;
}

static void run_body(struct kernel_eval *e, const struct body *b)
{
    for (int i = 0; i < b->n && !e->failed; i++) {
        struct value *x = &e->value[b->at[i]];
        if (is_known(e, x))
            continue;
        compute(e, b->at[i]);
        x->time = ++e->time;
    }
}

static void change(struct kernel_eval *e, struct value *x, int64_t v)
{
    x->v.i = v;
    x->time = ++e->time;
}

/* Runs the loops that u lists, from number k on, and calls `turn` in each iteration. */
typedef void (*turn)(struct kernel_eval *, struct value *u);
/* Of the innermost loop over a grid's places, the first iteration that is this part's, of every
 * `parts`. */
static int64_t first_place(const struct kernel_eval *e, const struct value *u, int k, int64_t n)
{
    int64_t parts = e->env->parts, row = 0;
    for (int i = 0; i < k; i++)
        if (range_is_grid(u->u->src[i])) {
            const struct value *r = &e->value[u->src[i]];
            row = (row * e->value[r->src[0]].v.i + r->v.i) % parts;
        }
    return (e->env->part + parts - row * (n % parts) % parts) % parts;
}

static bool is_first_dimension(const struct value *u, int k)
{
    for (int i = k + 1; i < u->u->nsrc; i++)
        if (range_is_grid(u->u->src[i]))
            return false;
    return range_is_grid(u->u->src[k]);
}

static void run_loops(struct kernel_eval *e, struct value *u, int k, turn inside)
{
    if (k == u->u->nsrc) {
        inside(e, u);
        return;
    }
    struct value *r = &e->value[u->src[k]];
    int64_t outside = r->v.i;
    run_body(e, &r->body);
    int64_t n = e->value[r->src[0]].v.i, begin = 0, end = n, step = 1;
    if (e->env->parts > 0 && range_is_shared(r->u)) {
        begin = n * e->env->part / e->env->parts;
        end = n * (e->env->part + 1) / e->env->parts;
    }
    if (e->env->parts > 0 && is_first_dimension(u, k)) {
        begin = first_place(e, u, k, n);
        step = e->env->parts;
    }
    for (int64_t i = begin; i < end && !e->failed; i += step) {
        e->failed |= e->budget >= 0 && e->budget-- == 0;
        change(e, r, i);
        run_loops(e, u, k + 1, inside);
    }
    change(e, r, outside); /* the same range may be open around this, too */
}

static void add_up(struct kernel_eval *e, struct value *u)
{
    run_body(e, &u->body);
    union scalar v[2] = {u->v, e->value[u->src[0]].v};
    u->v = eval_scalar(REDUCE_OP(u->u->arg.i), u->u->dtype, u->u->dtype, v);
}

static struct memory *element(struct kernel_eval *e, const struct value *x, int64_t at)
{
    struct memory *m = &e->memory.v[x->memory];
    if (at < 0 || at >= m->nelem)
        TGC_BUG(e->t, "%s at element %lld of buffer %d '%s' with %lld", op_name(x->u->op),
                (long long)at, m->buffer->id, m->buffer->name ? m->buffer->name : "",
                (long long)m->nelem);
    return m;
}

/* The value of a STORE, or of a STAGE, whose sources are at other positions. */
static void put(struct kernel_eval *e, struct value *u)
{
    bool stage = u->u->op == OP_STAGE;
    run_body(e, &u->body);
    if (e->failed || (!stage && first_range_of(u->u) == 4 && !e->value[u->src[3]].v.i))
        return;
    int64_t at = e->value[u->src[1]].v.i;
    struct memory *m = element(e, u, at);
    if (!m->data)
        TGC_BUG(e->t, "store to a weight");
    m->data[at] = e->value[u->src[stage ? 0 : 2]].v;
    if (!stage)
        e->value[u->src[0]].time = ++e->time;
}

static void compute_load(struct kernel_eval *e, struct value *x)
{
    int64_t at = e->value[x->src[1]].v.i;
    if (x->u->nsrc == 4 && !e->value[x->src[2]].v.i)
        x->v = e->value[x->src[3]].v;
    else
        x->v = eval_memory_get(element(e, x, at), at);
}

static void compute(struct kernel_eval *e, int i)
{
    struct value *x = &e->value[i];
    union scalar v[3];
    e->failed |= e->budget >= 0 && e->budget-- == 0;
    switch (x->u->op) {
    case OP_LOAD:
        compute_load(e, x);
        return;
    case OP_REDUCE:
        x->v = alu_identity(REDUCE_OP(x->u->arg.i), x->u->dtype);
        run_loops(e, x, 1, add_up);
        return;
    case OP_STAGE:
        run_loops(e, x, 2, put);
        return;
    case OP_STACK: {
        int64_t at = e->value[x->src[0]].v.i, last = x->u->nsrc - 2;
        x->v = e->value[x->src[1 + (at < 0 ? 0 : at < last ? at : last)]].v;
        return;
    }
    case OP_TICKET: {
        const struct value *r = &e->value[x->src[TICKET_OF]];
        x->v.i = r->v.i == r->u->src[0]->arg.i - 1;
        return;
    }
    default:
        if (!op_is_elementwise(x->u->op))
            TGC_BUG(e->t, "%s in a kernel's AST", op_name(x->u->op));
        for (int k = 0; k < x->u->nsrc; k++)
            v[k] = e->value[x->src[k]].v;
        x->v = eval_scalar(x->u->op, x->u->dtype, x->u->src[x->u->nsrc - 1]->dtype, v);
    }
}

/* Runs the stores [from, to) of the SINK, all of which are in the same `depth` bands. */
static void run_stores(struct kernel_eval *e, const struct value *sink, int from, int to, int depth)
{
    for (int i = from, next; i < to && !e->failed; i = next) {
        struct value *store = &e->value[sink->src[i]];
        int band = first_range_of(store->u) + depth;
        next = i + 1;
        if (band >= store->u->nsrc || !range_is(store->u->src[band], AXIS_BAND)) {
            run_loops(e, store, band, put);
            continue;
        }
        struct value *r = &e->value[store->src[band]];
        for (; next < to; next++) {
            const struct uop *other = sink->u->src[next];
            int at = first_range_of(other) + depth;
            if (at >= other->nsrc || other->src[at] != r->u)
                break;
        }
        run_body(e, &r->body);
        int64_t n = e->value[r->src[0]].v.i;
        bool part = e->env->parts > 0 && range_is_shared(r->u);
        int64_t begin = part ? n * e->env->part / e->env->parts : 0;
        int64_t end = part ? n * (e->env->part + 1) / e->env->parts : n;
        for (int64_t b = begin; b < end && !e->failed; b++) {
            change(e, r, b);
            run_stores(e, sink, i, next, depth + 1);
        }
    }
}

bool eval_kernel(struct tgc *t, const struct uop *ast, const struct eval_env *env)
{
    struct kernel_eval *const e = calloc(1, sizeof *e);
    jmp_buf outer;
    if (!e)
        return false;
    struct mem_mark mark = scratch_mark(t);
    *e = (struct kernel_eval){.t = t, .env = env, .budget = env->budget};
    e->memory = (struct eval_memory){.t = t, .env = env, .failed = &e->failed};
    memcpy(&outer, &t->stop, sizeof outer);
    /* a stop of the compile must not leak */
    if (setjmp(t->stop)) {
        memcpy(&t->stop, &outer, sizeof outer);
        eval_memory_free(&e->memory);
        free(e);
        tgc_stop(t);
    }
    prepare(e, ast);
    if (!e->failed)
        run_stores(e, &e->value[e->n - 1], 0, ast->nsrc, 0);
    bool ok = !e->failed;
    memcpy(&t->stop, &outer, sizeof outer);
    scratch_release(t, mark);
    eval_memory_free(&e->memory);
    free(e);
    return ok;
}
