/* gradient_loop.c - the adjoint of a LOOP is a loop that goes backwards.
 *
 *      forward   h[j + 1] = f(h[j], x[j], w),  s[j] = g(h[j], x[j], w)        keeps all h[j]
 *      backward  dh[j] = f_h dh[j + 1] + g_h ds[j],  dx[j] = f_x .. , dw += f_w ..
 *
 * The forward loop is made once more with its carried values stacked as further results; a pass
 * joins the two. The body is computed again from h[j] in the backward loop. Each row that the body
 * takes of a tensor at its counter has its adjoint stacked. A contribution to an invariant operand
 * that is a sum of products, as that to a recurrent layer's weights, is not added up in the loop:
 * its factors are stacked, and one contraction over all iterations follows.
 */
#include <string.h>

#include "frontend/gradient.h"

/* An invariant value w: what an iteration adds to its adjoint; or a row of x. */
struct anchor {
    struct uop *u, *d;
    int axis, way;                       /* a row's axis; 1: at counter + c, -1: at c - counter */
};

/* A sum of products, as part of w's adjoint, summed after the loop. */
struct product { struct uop *w; struct gradient_sum s; };

struct backward {
    struct gradient *g;
    struct gradient in;                  /* the body */
    struct uop *u;
    const struct loop *loop;
    struct uop *trip, *counter;
    struct uop **next, **scan;
    struct uop_map inside;               /* uops that differ between iterations */
    bool *live;                          /* carried values that have derivatives */
    struct uop **hole;                   /* stands for the adjoint of a carried value */
    struct anchor *row, *sum; int nrow, nsum; size_t cap_row, cap_sum;
    struct product *product; int nproduct; size_t cap_product;
    struct uop **core; int ncore; size_t cap_core;   /* stacked, for products */
    struct uop **kept;                   /* [ncarried] the stack of a carried value; NULL: none */
    struct uop *result;                  /* the backward LOOP */
    int first_core;                      /* its result that stacks core[0] */
};

static bool is_inside(const struct backward *b, const struct uop *u)
{
    return map_get(&b->inside, u) != NULL;
}

static void mark_inside(struct backward *b, struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        bool is = u == b->counter || (u->op == OP_PARAM &&
                                      ((const struct loop_param *)u->arg.p)->loop == b->loop);
        for (int k = 0; k < b->loop->ncarried; k++)
            is |= u == b->hole[k];
        for (int k = 0; k < u->nsrc && !is && u != b->u; k++)
            is = is_inside(b, u->src[k]);
        if (is)
            map_set(&b->inside, u, u);
    }
}

/* x[j] of a stack. */
static struct uop *row_at(const struct gradient *g, struct uop *x, struct uop *j)
{
    return lib_squeeze(g->l, lib_narrow(g->l, x, 0, j, uop_int(g->t, 1)), 1);
}

static bool has_counter(const struct backward *b, struct uop *e)
{
    struct mem_mark mark = scratch_mark(b->g->t);
    int n;
    struct uop **order = uop_toposort(b->g->t, &e, 1, &n);
    bool has = false;
    for (int i = 0; i < n; i++)
        has |= is_inside(b, order[i]);
    scratch_release(b->g->t, mark);
    return has;
}

/* Is u a row of an invariant tensor, at counter + c or c - counter of one axis? */
static bool find_row(const struct backward *b, struct uop *u, struct anchor *row)
{
    struct tgc *t = b->g->t;
    *row = (struct anchor){.u = u, .axis = -1};
    if (u->op != OP_SHRINK || is_inside(b, u->src[0]) || !gradient_wants(b->g, u->src[0]))
        return false;
    for (int a = 0; a < u->ndim; a++) {
        struct uop *begin = u->src[1 + 2 * a], *size = u->src[2 + 2 * a];
        if (is_inside(b, size))
            return false;
        if (!is_inside(b, begin))
            continue;
        if (row->axis >= 0 || !uop_is_int(size, 1))
            return false;
        row->axis = a;
        row->way = !has_counter(b, sym_sub(t, begin, b->counter))   ? 1
                   : !has_counter(b, sym_add(t, begin, b->counter)) ? -1
                                                                    : 0;
    }
    return row->axis >= 0 && row->way != 0;
}

/* Movement that makes an invariant larger: its adjoint in an iteration is smaller. */
static bool is_transparent(const struct uop *u)
{
    return u->op == OP_RESHAPE || u->op == OP_PERMUTE || u->op == OP_EXPAND || u->op == OP_CAST;
}

/* The anchors of the body: rows, invariants, and carried values that depend on any of them or on
 * an initial value that does. */
static void find_anchors(struct backward *b)
{
    struct gradient *g = b->g;
    const struct loop *l = b->loop;
    for (int i = 0; i < b->in.norder; i++) {
        struct anchor row;
        struct uop *u = b->in.order[i];
        bool invariant = !is_inside(b, u) && gradient_wants(g, u) &&
                         (map_get(&g->stop, u) || !is_transparent(u));
        if (invariant || (is_inside(b, u) && find_row(b, u, &row)))
            map_set(&b->in.stop, u, u);
    }
    for (int k = 0; k < l->ncarried; k++)
        b->live[k] = dtype_is_float(l->param[k].dtype) && gradient_wants(g, b->u->src[2 + k]);
    for (bool again = true; again;) {
        again = false;
        for (int k = 0; k < l->ncarried; k++)
            if (b->live[k])
                map_set(&b->in.stop, uop_param(g->t, (struct loop_param *)&l->param[k]), b->u);
        gradient_mark(&b->in);
        for (int k = 0; k < l->ncarried; k++)
            if (!b->live[k] && dtype_is_float(l->param[k].dtype) &&
                gradient_wants(&b->in, b->next[k]))
                again = b->live[k] = true;
    }
}

/* Differentiates an iteration, with holes for the adjoints of what it carries on. */
static bool run_body(struct backward *b)
{
    struct gradient *g = b->g;
    const struct loop *l = b->loop;
    struct uop **root = NULL;
    int nroot = 0;
    size_t cap = 0;
    for (int k = 0; k < l->ncarried; k++)
        VEC_PUSH(g->t, root, nroot, cap, b->next[k]);
    for (int k = 0; k < l->nscan; k++)
        VEC_PUSH(g->t, root, nroot, cap, b->scan[k]);
    b->in.root = root;
    b->in.nroot = nroot;
    b->in.order = uop_toposort(g->t, root, nroot, &b->in.norder);
    mark_inside(b, b->in.order, b->in.norder);
    for (int i = 0; i < b->in.norder; i++)
        for (int k = 0; k < b->in.order[i]->nsrc && is_inside(b, b->in.order[i]); k++) {
            const struct uop *v = b->in.order[i]->src[k];
            if (v->op == OP_VAR && ((const struct var *)v->arg.p)->is_found)
                return gradient_refuse(g, "a size in its body is found by the run", NULL);
        }
    find_anchors(b);
    for (int k = 0; k < l->ncarried; k++)
        if (b->live[k])
            gradient_give(&b->in, b->next[k], b->hole[k]);
    for (int k = 0; k < l->nscan; k++) {
        struct uop *d = gradient_of_result(g, b->u, l->ncarried + k, b->scan[k]->dtype);
        if (d)
            gradient_give(&b->in, b->scan[k], row_at(g, d, b->counter));
    }
    return gradient_run(&b->in) || gradient_refuse_as(g, &b->in);
}

/* What is below the movement of a factor. */
static struct uop *core_of(struct uop *x)
{
    while (x->op == OP_RESHAPE || x->op == OP_PERMUTE || x->op == OP_EXPAND)
        x = x->src[0];
    return x;
}

static int carried_index(const struct backward *b, const struct uop *u)
{
    const struct loop_param *p = u->op == OP_PARAM ? u->arg.p : NULL;
    return p && p->loop == b->loop ? p->index : -1;
}

static void add_core(struct backward *b, struct uop *x)
{
    x = core_of(x);
    if (!is_inside(b, x) || carried_index(b, x) >= 0)
        return;
    for (int i = 0; i < b->ncore; i++)
        if (b->core[i] == x)
            return;
    VEC_PUSH(b->g->t, b->core, b->ncore, b->cap_core, x);
}

/* Divides an anchor's adjoint into sums of products and the rest, which the loop adds up. */
static void add_anchor(struct backward *b, struct anchor a)
{
    enum { MOST = 64 };                  /* sums that are divided: equal terms are terms, too */
    struct tgc *t = b->g->t;
    struct uop **term = NULL, *rest = NULL;
    int n = 0, ndivided = 0;
    size_t cap = 0;
    VEC_PUSH(t, term, n, cap, a.d);
    while (n) {
        struct uop *d = term[--n];
        if (d->op == OP_ADD && d->src[0]->ndim == d->ndim && d->src[1]->ndim == d->ndim &&
            ndivided++ < MOST) {
            VEC_PUSH(t, term, n, cap, d->src[1]);
            VEC_PUSH(t, term, n, cap, d->src[0]);
            continue;
        }
        struct product p = {a.u, gradient_sum_of(b->g, d)};
        if (!p.s.b || p.s.a->ndim == MAX_RANK) {
            rest = rest ? lib_add(b->g->l, rest, d) : d;
            continue;
        }
        VEC_PUSH(t, b->product, b->nproduct, b->cap_product, p);
    }
    if ((a.d = rest) != NULL)
        VEC_PUSH(t, b->sum, b->nsum, b->cap_sum, a);
}

static void collect(struct backward *b)
{
    for (int i = 0; i < b->in.norder; i++) {
        struct anchor a = {.u = b->in.order[i]};
        a.d = map_get(&b->in.stop, a.u) ? map_get(&b->in.adjoint, a.u) : NULL;
        if (!a.d || carried_index(b, a.u) >= 0)
            continue;
        struct anchor row = a;
        if (is_inside(b, a.u) && find_row(b, a.u, &row)) {
            row.d = a.d;
            VEC_PUSH(b->g->t, b->row, b->nrow, b->cap_row, row);
        } else {
            add_anchor(b, a);
        }
    }
}

/* The forward loop again, which also stacks the carried values that expressions need: in kept[]. */
static bool keep(struct backward *b, struct uop *const *expr, int n)
{
    struct tgc *t = b->g->t;
    const struct loop *l = b->loop;
    int count, nkept = 0, nbody = 1 + l->ncarried + l->nscan;
    int *which = mem_array(t, (size_t)l->ncarried + 1, sizeof *which);
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, expr, n, &count);
    struct uop **body = mem_array(t, (size_t)(nbody + l->ncarried), sizeof *body);
    ARRAY_COPY(body, b->u->src + 2 + l->ncarried, nbody);
    struct uop_map used = {.t = t};
    for (int i = 0; i < n; i++)
        map_set(&used, expr[i], expr[i]);
    for (int i = count - 1; i >= 0; i--) { /* not what the loop itself uses, where it is read */
        for (int k = 0; k < order[i]->nsrc && order[i] != b->u && map_get(&used, order[i]); k++)
            map_set(&used, order[i]->src[k], order[i]);
        if (carried_index(b, order[i]) >= 0 && map_get(&used, order[i])) {
            which[nkept] = carried_index(b, order[i]);
            body[nbody + nkept++] = order[i];
        }
    }
    scratch_release(t, mark);
    if (!nkept)
        return true;
    struct uop_map by = {.t = t};
    struct loop *more = gradient_copy_loop(t, l, l->nscan + nkept, &by);
    if (!l->nscan)
        more->scan_length = b->trip;
    if (!lib_copy(t, body, nbody + nkept, b->u, &by))
        return gradient_refuse(b->g, "a size in its body is found by the run", NULL);
    struct uop *again = uop_loop(t, more, b->trip, b->u->src[1], b->u->src + 2, body[0], body + 1,
                                 body + 1 + l->ncarried);
    for (int i = 0; i < nkept; i++)
        b->kept[which[i]] = uop_get(t, again, l->ncarried + l->nscan + i);
    return true;
}

/* The backward loop. expr[]: the new adjoints of live carried values, the terms of sums, then the
 * rows and cores that it stacks. */
static bool build(struct backward *b, struct uop **expr, int ncarried, int nscan)
{
    struct gradient *g = b->g;
    struct tgc *t = g->t;
    const struct loop *l = b->loop;
    struct uop **init = mem_array(t, (size_t)ncarried + 1, sizeof *init);
    struct uop_map by = {.t = t};
    int n = 0;
    for (int k = 0; k < l->ncarried; k++)
        if (b->live[k]) {
            struct uop *d = gradient_of_result(g, b->u, k, l->param[k].dtype);
            init[n++] = d ? d : gradient_full_like(g, b->hole[k], 0);
        }
    for (int i = 0; i < b->nsum; i++)
        init[n++] = gradient_full_like(g, b->sum[i].u, 0);
    struct lib_loop *back = lib_loop_begin(g->l, b->trip, NULL, init, ncarried);
    if (!back)
        return false;
    struct uop *j = sym_sub(t, sym_addi(t, b->trip, -1), back->counter);
    map_set(&by, b->counter, j);
    n = 0;
    for (int k = 0; k < l->ncarried; k++) {
        if (b->live[k])
            map_set(&by, b->hole[k], back->param[n++]);
        if (b->kept[k])
            map_set(&by, uop_param(t, (struct loop_param *)&l->param[k]),
                    row_at(g, b->kept[k], j));
    }
    if (!lib_copy(t, expr, ncarried + nscan, b->u, &by))
        return gradient_refuse(g, "a size in its body is found by the run", NULL);
    for (int i = 0; i < b->nsum; i++)
        expr[n + i] = lib_add(g->l, back->param[n + i], expr[n + i]);
    b->result = lib_loop_end(g->l, back, NULL, expr, expr + ncarried, nscan, b->trip);
    return b->result != NULL;
}

/* The rows' adjoints, stacked from the last iteration to the first, at their places in x. */
static void give_row(struct backward *b, const struct anchor *row, struct uop *stack)
{
    struct tgc *t = b->g->t;
    struct uop *x = row->u->src[0], *lo[MAX_RANK], *hi[MAX_RANK], *last;
    int perm[MAX_RANK];
    if (row->way > 0)
        stack = uop_flip(t, stack, 1);
    stack = lib_squeeze(b->g->l, stack, 2u << row->axis);
    for (int a = 0; a < x->ndim; a++) {
        perm[a] = a < row->axis ? a + 1 : a == row->axis ? 0 : a;
        lo[a] = row->u->src[1 + 2 * a];
    }
    stack = uop_permute(t, stack, perm);
    /* the first place: that of iteration 0, or of the last one */
    last = row->way > 0 ? uop_int(t, 0) : sym_addi(t, b->trip, -1);
    lo[row->axis] = uop_substitute(t, lo[row->axis], b->counter, last);
    for (int a = 0; a < x->ndim; a++)
        hi[a] = sym_sub(t, sym_sub(t, x->dim[a], lo[a]), stack->dim[a]);
    gradient_give(b->g, x, uop_pad(t, stack, lib_scalar(b->g->l, stack, 0), lo, hi));
}

/* A factor for all iterations, from the last to the first: along a new first axis. */
static struct uop *stacked(const struct backward *b, struct uop *x)
{
    struct tgc *t = b->g->t;
    struct uop **chain = NULL, *core = core_of(x), *r = NULL, *dim[MAX_RANK] = {b->trip};
    int n = 0, k = carried_index(b, core), perm[MAX_RANK] = {0};
    size_t cap = 0;
    for (; x != core; x = x->src[0])
        VEC_PUSH(t, chain, n, cap, x);
    if (k >= 0)
        r = uop_flip(t, lib_narrow(b->g->l, b->kept[k], 0, uop_int(t, 0), b->trip), 1);
    for (int i = 0; i < b->ncore && k < 0; i++)
        if (b->core[i] == core)
            r = lib_get(b->g->l, b->result, b->first_core + i);
    if (!r) {
        ARRAY_COPY(dim + 1, core->dim, core->ndim);
        r = uop_expand(t, tensor_insert_axis(t, core, 0), dim);
    }
    while (n) {
        x = chain[--n];
        ARRAY_COPY(dim + 1, x->dim, x->ndim);
        for (int a = 0; a < x->ndim && x->op == OP_PERMUTE; a++)
            perm[a + 1] = PERM_GET(x->arg.i, a) + 1;
        r = x->op == OP_PERMUTE  ? uop_permute(t, r, perm)
            : x->op == OP_EXPAND ? uop_expand(t, r, dim)
                                 : uop_reshape(t, r, dim, x->ndim + 1);
    }
    return r;
}

static void give_products(struct backward *b)
{
    for (int i = 0; i < b->nproduct; i++) {
        const struct product *p = &b->product[i];
        struct uop *u = lib_mul(b->g->l, stacked(b, p->s.a), stacked(b, p->s.b));
        uint32_t axes = ((1u << p->s.nsum) - 1) << (u->ndim - p->s.nsum) | 1;
        gradient_give(b->g, p->w, gradient_sum(b->g, u, axes, false));
    }
}

/* Without an iteration, the results are the initial values. */
static bool give_initial(struct gradient *g, struct uop *u)
{
    for (int k = 0; k < ((const struct loop *)u->arg.p)->ncarried; k++)
        gradient_give(g, u->src[2 + k], gradient_of_result(g, u, k, u->src[2 + k]->dtype));
    return true;
}

static bool begin(struct backward *b, struct gradient *g, struct uop *u)
{
    const struct loop *l = u->arg.p;
    struct tgc *t = g->t;
    *b = (struct backward){.g = g, .u = u, .loop = l, .in = gradient_inner(g), .inside = {.t = t}};
    b->trip = u->src[0];
    b->counter = uop_var(t, l->counter);
    b->next = u->src + 3 + l->ncarried;
    b->scan = b->next + l->ncarried;
    b->live = mem_array(t, (size_t)l->ncarried + 1, sizeof *b->live);
    b->kept = mem_array(t, (size_t)l->ncarried + 1, sizeof *b->kept);
    b->hole = mem_array(t, (size_t)l->ncarried + 1, sizeof *b->hole);
    for (int k = 0; k < l->ncarried; k++) {
        const struct loop_param *p = &l->param[k];
        b->hole[k] = uop_buffer(
            t, buffer_new(t, BUFFER_INPUT, p->dtype, (struct uop **)p->dim, p->ndim, NULL));
    }
    if (!uop_is_int(u->src[1], 1) || !uop_is_int(u->src[2 + l->ncarried], 1))
        return gradient_refuse(g, "a condition ends the loop",
                               "give it a trip count and no condition");
    if (!uop_is_of_symbols(b->trip))
        return gradient_refuse(g, "its trip count is data of the run",
                               "give it one that follows from the sizes of inputs");
    return true;
}

/* What is stacked for products. */
static void add_cores(struct backward *b)
{
    for (int i = 0; i < b->nproduct; i++) {
        struct uop *both[2] = {b->product[i].s.a, b->product[i].s.b};
        struct mem_mark mark = scratch_mark(b->g->t);
        int n;
        struct uop **order = uop_toposort(b->g->t, both, 2, &n);
        mark_inside(b, order, n);
        scratch_release(b->g->t, mark);
        add_core(b, both[0]);
        add_core(b, both[1]);
    }
}

/* What an iteration computes, in the order of build(), then the products' factors; *ncarried and
 * *nscan: how much of it is carried and stacked. */
static struct uop **expressions(struct backward *b, int *ncarried, int *nscan, int *n)
{
    struct tgc *t = b->g->t;
    struct uop **expr = NULL;
    size_t cap = 0;
    *n = 0;
    for (int k = 0; k < b->loop->ncarried; k++)
        if (b->live[k]) {
            struct uop *p = uop_param(t, (struct loop_param *)&b->loop->param[k]),
                       *d = map_get(&b->in.adjoint, p);
            d = d ? d : gradient_full_like(b->g, p, 0);
            VEC_PUSH(t, expr, *n, cap, d);
        }
    for (int i = 0; i < b->nsum; i++)
        VEC_PUSH(t, expr, *n, cap, b->sum[i].d);
    *ncarried = *n;
    for (int i = 0; i < b->nrow; i++)
        VEC_PUSH(t, expr, *n, cap, b->row[i].d);
    b->first_core = *n;
    for (int i = 0; i < b->ncore; i++)
        VEC_PUSH(t, expr, *n, cap, b->core[i]);
    *nscan = *n - *ncarried;
    for (int i = 0; i < b->nproduct; i++) {
        VEC_PUSH(t, expr, *n, cap, b->product[i].s.a);
        VEC_PUSH(t, expr, *n, cap, b->product[i].s.b);
    }
    return expr;
}

bool gradient_loop(struct gradient *g, struct uop *u)
{
    struct backward b;
    const struct loop *l = u->arg.p;
    int ncarried, nscan, n, k = 0;
    if (u->src[0]->vmax <= 0)
        return give_initial(g, u);
    if (!begin(&b, g, u) || !run_body(&b))
        return false;
    collect(&b);
    add_cores(&b);
    struct uop **expr = expressions(&b, &ncarried, &nscan, &n);
    if (!n)
        return true;
    if (!keep(&b, expr, n) || !build(&b, expr, ncarried, nscan))
        return false;
    for (int c = 0; c < l->ncarried; c++)
        if (b.live[c])
            gradient_give(g, u->src[2 + c], lib_get(g->l, b.result, k++));
    for (int i = 0; i < b.nsum; i++)
        gradient_give(g, b.sum[i].u, lib_get(g->l, b.result, k++));
    for (int i = 0; i < b.nrow; i++)
        give_row(&b, &b.row[i], lib_get(g->l, b.result, k++));
    give_products(&b);
    return true;
}
