/* library_gradient.c - derivatives: reverse mode over tensor uops.
 *
 * Every uop between the variables and the result has an adjoint, the sum of its consumers'
 * contributions. The rules are in the files gradient_*.c; docs/gradients.md lists them. They build
 * ordinary uops, which have derivatives themselves.
 * Integers and bools carry none: what is computed of them is constant.
 * source: Griewank and Walther, Evaluating Derivatives, 2008, chapter 3
 */
#include "frontend/gradient.h"

struct uop *gradient_full_like(const struct gradient *g, const struct uop *x, double v)
{
    return tensor_full(g->t, uop_constf(g->t, x->dtype, v), x->dim, x->ndim);
}

struct uop *gradient_sum(const struct gradient *g, struct uop *x, uint32_t axes, bool keep)
{
    struct uop *sum = tensor_sum(g->t, lib_cast(g->l, lib_acc_dtype(x->dtype), x), axes, keep);
    return lib_cast(g->l, x->dtype, sum);
}

bool gradient_wants(const struct gradient *g, const struct uop *x)
{
    return map_get(&g->depends, x) != NULL;
}

void gradient_give(struct gradient *g, struct uop *x, struct uop *d)
{
    if (!d || !gradient_wants(g, x))
        return;
    if (x->ndim == 0 && d->ndim > 0)
        d = gradient_sum(g, d, lib_all_axes(d), false);
    struct uop *before = map_get(&g->adjoint, x);
    map_set(&g->adjoint, x, before ? lib_add(g->l, before, d) : d);
}

bool gradient_refuse(struct gradient *g, const char *why, const char *cure)
{
    g->why = why;
    g->cure = cure;
    return false;
}

void gradient_mark(struct gradient *g)
{
    for (int i = 0; i < g->norder; i++) {
        struct uop *u = g->order[i];
        bool carries = dtype_is_float(u->dtype) || u->dtype == DTYPE_VOID;
        carries &= u->op != OP_STOP || u->arg.i != 0;
        if (map_get(&g->stop, u))
            map_set(&g->depends, u, u);
        for (int k = 0; k < u->nsrc && carries; k++)
            if (gradient_wants(g, u->src[k]))
                map_set(&g->depends, u, u);
    }
}

static bool refuse_host(struct gradient *g, const struct host_call *h)
{
    if (h->external)
        return gradient_refuse(g,
                               mem_printf(g->t, "'%s' is a C function, which has no derivative",
                                          h->external->name),
                               "name its gradient, or define it in .tg (docs/custom-operators.md)");
    return gradient_refuse(g, mem_printf(g->t, "it is a step of the host, '%s'", h->function),
                           "take the gradient by values after it, or compute it by operators that "
                           "have one");
}

static bool has_gradient(const struct uop *host)
{
    const struct host_call *h = host->arg.p;
    return h->external && h->external->gradient;
}

/* By the operator that its declaration names; results that nothing depends on have zeros. */
static bool gradient_external(struct gradient *g, struct uop *host)
{
    const struct host_call *h = host->arg.p;
    const struct external_gradient *by = h->external->gradient;
    struct uop **dy = mem_array(g->t, (size_t)h->nout + 1, sizeof *dy);
    struct uop **dx = mem_array(g->t, (size_t)host->nsrc + 1, sizeof *dx);
    for (int k = 0; k < h->nout; k++) {
        if (!dtype_is_float(h->out[k].dtype))
            continue;
        dy[k] = gradient_of_result(g, host, k, h->out[k].dtype);
        if (!dy[k])
            dy[k] = gradient_full_like(g, uop_get(g->t, host, k), 0);
    }
    if (!by->run(by, g->l, host, dy, dx))
        return false;
    for (int i = 0; i < host->nsrc; i++)
        gradient_give(g, host->src[i], dx[i]);
    return true;
}

static bool propagate(struct gradient *g, struct uop *u, struct uop *d)
{
    struct uop *x = u->nsrc ? u->src[0] : NULL;
    switch (op_class(u->op)) {
    case CLASS_MOVE: return gradient_moved(g, u, d);
    case CLASS_REDUCE: return gradient_reduced(g, u, d);
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_TERNARY:
    case CLASS_CHOICE: return gradient_elementwise(g, u, d);
    default: break;
    }
    switch (u->op) {
    case OP_CONTIGUOUS:
    case OP_STOP: gradient_give(g, x, d); return true;
    case OP_INDEX:
    case OP_SCATTER: return gradient_indexed(g, u, d);
    case OP_GET:
        if (x->op == OP_HOST && !has_gradient(x))
            return gradient_selected(g, u, d) || refuse_host(g, x->arg.p);
        map_set(&g->adjoint, x, x); /* it asks for its results' */
        return true;
    case OP_HOST: return gradient_external(g, u);
    case OP_LOOP: return gradient_loop(g, u);
    case OP_IF: return gradient_branch(g, u);
    default: return false;
    }
}

bool gradient_run(struct gradient *g)
{
    int outer = g->t->current_origin;
    bool ok = true;
    for (int i = g->norder - 1; i >= 0 && ok; i--) {
        struct uop *u = g->order[i], *d = map_get(&g->adjoint, u);
        if (!d || map_get(&g->stop, u) || !gradient_wants(g, u))
            continue;
        origin_begin_adjoint(g->t, u);
        ok = propagate(g, u, d);
        g->at = ok || g->at ? g->at : u;
    }
    g->t->current_origin = outer;
    return ok;
}

static void report(const struct gradient *g)
{
    const struct origin *o = uop_get_origin(g->t, g->at);
    const struct uop *u = g->at->op == OP_GET ? g->at->src[0] : g->at;
    const char *node = o ? mem_printf(g->t, "node %d '%s' (%s), ", o->index, o->node, o->op_type)
                         : "";
    lib_error(g->l, "gradient: %sop '%s', has no derivative: %s; %s", node, uop_op_name(u),
              g->why ? g->why : "there is no rule for it",
              g->cure ? g->cure : "take the gradient by values after it");
}

bool lib_gradient(const struct lib *l, struct uop *y, struct uop *const *x, int n, struct uop **dx)
{
    struct tgc *t = l->t;
    struct gradient g = {.l = l,
                         .t = t,
                         .adjoint = {.t = t},
                         .depends = {.t = t},
                         .stop = {.t = t},
                         .axes = {.t = t}};
    if (!y)
        return false;
    if (!dtype_is_float(y->dtype)) {
        lib_error(l, "gradient: %s has none; a float type is expected", lib_describe(l, y));
        return false;
    }
    struct mem_mark mark = scratch_mark(t);
    g.order = uop_toposort(t, &y, 1, &g.norder);
    g.root = &y;
    g.nroot = 1;
    for (int k = 0; k < n; k++)
        map_set(&g.stop, x[k], x[k]);
    gradient_mark(&g);
    map_set(&g.adjoint, y, gradient_full_like(&g, y, 1));
    const int before = t->nerror;
    bool ok = gradient_run(&g);
    if (!ok && t->nerror == before)      /* the gradient of a C function says why itself */
        report(&g);
    for (int k = 0; k < n && ok; k++) {
        dx[k] = map_get(&g.adjoint, x[k]);
        dx[k] = dx[k] ? dx[k] : gradient_full_like(&g, x[k], 0);
    }
    scratch_release(t, mark);
    return ok && !t->nerror;
}
