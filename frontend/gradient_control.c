/* gradient_control.c - branches, and copies of regions: a region that is computed once more has
 * loops and host calls of its own.
 *
 * The adjoint of an IF is an IF: each side propagates to the values that it shares with what is
 * outside of it (the anchors), and the sides' adjoints of these are its results. So only the side
 * that was taken is differentiated by the run.
 */
#include <string.h>

#include "frontend/gradient.h"

bool gradient_refuse_as(struct gradient *g, const struct gradient *inner)
{
    g->at = inner->at;
    return gradient_refuse(g, inner->why, inner->cure);
}

struct gradient gradient_inner(const struct gradient *g)
{
    struct tgc *t = g->t;
    return (struct gradient){.l = g->l,
                             .t = t,
                             .adjoint = {.t = t},
                             .depends = {.t = t},
                             .stop = {.t = t},
                             .axes = {.t = t},
                             .order = g->order,
                             .norder = g->norder,
                             .root = g->root,
                             .nroot = g->nroot};
}

struct uop *gradient_of_result(const struct gradient *g, struct uop *node, int k, enum dtype d)
{
    return map_get(&g->adjoint, uop_intern(g->t, OP_GET, d, &node, 1, (union arg){.i = k}));
}

/* ---- branches */

enum { IN_THEN = 1, IN_ELSE = 2, OUTSIDE = 4 };

static int seen_from(const struct uop_map *where, const struct uop *u)
{
    return (int)(intptr_t)map_get(where, u);
}

/* From where each uop of the graph is used, but for uses through other uops that are. */
static void find_sides(const struct gradient *g, const struct uop *branch, struct uop_map *where)
{
    int count = (int)branch->arg.i;
    for (int k = 0; k < g->nroot; k++)
        map_set(where, g->root[k], (void *)(intptr_t)OUTSIDE);
    for (int i = g->norder - 1; i >= 0; i--) {
        const struct uop *u = g->order[i];
        for (int k = 0; k < u->nsrc; k++) {
            int from = u != branch   ? seen_from(where, u)
                       : k == 0      ? OUTSIDE
                       : k <= count  ? IN_THEN
                                     : IN_ELSE;
            map_set(where, u->src[k], (void *)(intptr_t)(seen_from(where, u->src[k]) | from));
        }
    }
}

/* Differentiates one side, from the results' adjoints to the anchors'. */
static bool run_side(struct gradient *g, struct gradient *in, struct uop *u, int side,
                     const struct uop_map *where)
{
    int count = (int)u->arg.i;
    for (int i = 0; i < g->norder; i++) {
        struct uop *v = g->order[i];
        if (gradient_wants(g, v) && (seen_from(where, v) != side || map_get(&g->stop, v)))
            map_set(&in->stop, v, v);
    }
    gradient_mark(in);
    for (int k = 0; k < count; k++) {
        struct uop *x = u->src[1 + k + (side == IN_THEN ? 0 : count)];
        gradient_give(in, x, gradient_of_result(g, u, k, x->dtype));
    }
    return gradient_run(in) || gradient_refuse_as(g, in);
}

bool gradient_branch(struct gradient *g, struct uop *u)
{
    struct tgc *t = g->t;
    struct uop_map where = {.t = t};
    struct gradient in[2] = {gradient_inner(g), gradient_inner(g)};
    find_sides(g, u, &where);
    if (!run_side(g, &in[0], u, IN_THEN, &where) || !run_side(g, &in[1], u, IN_ELSE, &where))
        return false;
    struct uop **x = NULL, **d[2];
    int n = 0;
    size_t cap = 0;
    for (int i = 0; i < g->norder; i++) {
        struct uop *v = g->order[i];
        if (map_get(&in[0].stop, v) && (map_get(&in[0].adjoint, v) || map_get(&in[1].adjoint, v)))
            VEC_PUSH(t, x, n, cap, v);
        else if (map_get(&in[1].stop, v) && map_get(&in[1].adjoint, v))
            VEC_PUSH(t, x, n, cap, v);
    }
    if (!n)
        return true;
    for (int s = 0; s < 2; s++) {
        d[s] = mem_array(t, (size_t)n, sizeof *d[s]);
        for (int k = 0; k < n; k++) {
            struct uop *a = map_get(&in[s].stop, x[k]) ? map_get(&in[s].adjoint, x[k]) : NULL;
            d[s][k] = a ? a : gradient_full_like(g, x[k], 0);
        }
    }
    struct uop *both = lib_if(g->l, u->src[0], d[0], d[1], n);
    for (int k = 0; k < n; k++)
        gradient_give(g, x[k], lib_get(g->l, both, k));
    return both != NULL;
}

/* ---- copies */

struct copies {
    struct tgc *t;
    struct uop_map *by;                  /* leaves, and what stands for them in the copy */
    struct pair { const void *from, *to; } *pair;     /* struct loop, struct host_call */
    int npair;
    size_t cap_pair;
};

static const void *copy_of(const struct copies *c, const void *from)
{
    for (int i = 0; i < c->npair; i++)
        if (c->pair[i].from == from)
            return c->pair[i].to;
    return NULL;
}

struct loop *gradient_copy_loop(struct tgc *t, const struct loop *from, int nscan,
                                struct uop_map *by)
{
    struct loop *l = MEM_NEW(t, struct loop);
    *l = *from;
    l->id = t->next_loop++;
    l->nscan = nscan;
    l->param = mem_array(t, (size_t)from->ncarried + 1, sizeof *l->param);
    l->counter = var_new(t, mem_printf(t, "step%d", l->id), from->counter->min, from->counter->max);
    l->counter->is_counter = true;
    map_set(by, uop_var(t, from->counter), uop_var(t, l->counter));
    for (int k = 0; k < from->ncarried; k++) {
        l->param[k] = from->param[k];
        l->param[k].loop = l;
        map_set(by, uop_param(t, &from->param[k]), uop_param(t, &l->param[k]));
    }
    return l;
}

static const struct host_call *copy_call(const struct copies *c, const struct host_call *from)
{
    struct host_call *h = MEM_NEW(c->t, struct host_call);
    *h = *from;
    h->out = mem_copy(c->t, from->out, (size_t)from->nout * sizeof *h->out);
    h->param = mem_array(c->t, (size_t)from->nparam + 1, sizeof *h->param);
    for (int k = 0; k < from->nparam; k++)
        h->param[k] = uop_substitute_all(c->t, from->param[k], c->by);
    for (int k = 0; k < from->nout; k++)
        for (int a = 0; a < h->out[k].ndim; a++)
            h->out[k].dim[a] = uop_substitute_all(c->t, from->out[k].dim[a], c->by);
    return h;
}

/* u with the copies of its sources. */
static struct uop *copy_node(const struct copies *c, struct uop *u, const struct uop_map *done)
{
    struct uop **src = mem_array(c->t, (size_t)u->nsrc + 1, sizeof *src);
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *s = map_get(done, u->src[k]);
        src[k] = s ? s : u->src[k];
    }
    const void *own = u->op == OP_LOOP || u->op == OP_HOST ? copy_of(c, u->arg.p) : NULL;
    struct uop *r = own ? uop_new(c->t, u->op, u->dtype, src, u->nsrc, (union arg){.p = own})
                        : uop_replace_src(c->t, u, src);
    uop_set_origin(c->t, r, u);
    return r;
}

/* Marks what has to be copied, and gives loops and calls among it copies; a loop that is copied has
 * parameters of its own, so what is inside of it is copied, too. false: a call finds a size. */
static bool find_changed(struct copies *c, struct uop *const *order, int n,
                         const struct uop *bound, struct uop_map *changed)
{
    bool ok = true;
    for (int before = -1; before < c->npair;) {
        before = c->npair;
        for (int i = 0; i < n; i++) {
            struct uop *u = order[i];
            bool is = map_get(c->by, u) != NULL;
            for (int k = 0; k < u->nsrc && u != bound; k++)
                is |= map_get(changed, u->src[k]) != NULL;
            if (!is)
                continue;
            map_set(changed, u, u);
            if ((u->op != OP_LOOP && u->op != OP_HOST) || copy_of(c, u->arg.p))
                continue;
            struct pair p = {u->arg.p, u->arg.p};
            if (u->op == OP_LOOP)
                p.to = gradient_copy_loop(c->t, p.from, ((const struct loop *)p.from)->nscan,
                                          c->by);
            else
                ok &= ((const struct host_call *)p.from)->nresult == 0;
            VEC_PUSH(c->t, c->pair, c->npair, c->cap_pair, p);
        }
    }
    return ok;
}

bool lib_copy(struct tgc *t, struct uop **root, int nroot, const struct uop *bound,
              struct uop_map *by)
{
    struct copies c = {.t = t, .by = by};
    struct uop_map changed = {.t = t}, done = {.t = t};
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, root, nroot, &n);
    bool ok = find_changed(&c, order, n, bound, &changed);
    for (int i = 0; i < n && ok; i++) {
        struct uop *u = order[i], *leaf = map_get(by, u);
        for (int k = 0; k < c.npair && u->op == OP_HOST; k++)
            if (c.pair[k].from == u->arg.p)
                c.pair[k].to = copy_call(&c, c.pair[k].from);
        if (map_get(&changed, u))
            map_set(&done, u, leaf ? leaf : copy_node(&c, u, &done));
    }
    for (int k = 0; k < nroot && ok; k++) {
        struct uop *r = map_get(&done, root[k]);
        root[k] = r ? r : root[k];
    }
    scratch_release(t, mark);
    return ok;
}
