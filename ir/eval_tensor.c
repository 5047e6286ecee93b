/* eval_tensor.c - computes one tensor whose operands are all computed.
 *
 * Reductions add in double, in row-major order of the reduced axes, one element after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

/* -------------------------------------------------------------------------------------- tensors */

struct tensor *eval_tensor_new(struct eval *e, enum dtype d, const int64_t *dim, int ndim)
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

void eval_tensor_free(struct eval *e, struct tensor *x)
{
    if (!x)
        return;
    e->live -= (size_t)x->nelem * sizeof(union scalar);
    free(x->data);
    free(x);
}

void eval_tensor_cut(struct eval *e, struct tensor *x, const int64_t *dim)
{
    int64_t nelem = 1;
    for (int a = 0; a < x->ndim; a++)
        nelem *= x->dim[a] = dim[a];
    e->live -= (size_t)(x->nelem - nelem) * sizeof(union scalar);
    x->nelem = nelem;
}

/* ------------------------------------------------------------------------- computing one tensor */

static void put_lanes(union scalar *to, int n, const struct operand *v)
{
    if (!v->uniform) {
        ARRAY_COPY(to, v->v, n);
        return;
    }
    for (int i = 0; i < n; i++)
        to[i] = v->v[0];
}

struct rows { union scalar *out; int64_t nlane; };

static void sink_rows(void *ctx, int64_t first, int n, int64_t step, const struct operand *v)
{
    const struct rows *r = ctx;
    put_lanes(r->out + step * r->nlane + first, n, v);
}

/* Lanes run along the last axes and steps along the others, the first of them fastest: a window's
 * channels follow each other, so whether its taps are inside is computed once for all channels. */
static struct tensor *compute_over(struct eval *e, struct uop *u, const int *axis, int naxis,
                                   bool body)
{
    enum { LEAST_LANES = LANES / 4 };
    const struct node *n = eval_node(e, u);
    struct program *p = &e->program;
    int64_t dim[MAX_RANK], step[MAX_RANK], nlane = 1;
    int coord[MAX_RANK], nstep = naxis;
    bool given[MAX_RANK] = {false};
    for (int i = 0; i < naxis; i++)
        dim[i] = n->dim[axis[i]];
    struct tensor *r = eval_tensor_new(e, u->dtype, dim, naxis);
    if (!r)
        return NULL;
    while (nstep > 0 && nlane < LEAST_LANES)
        nlane *= dim[--nstep];
    memcpy(step, dim, sizeof step);
    for (int i = nstep; i < u->ndim; i++)
        step[i] = 1;                 /* axes along which it is invariant */
    eval_program_reset(p);
    eval_program_lanes(p, dim + nstep, naxis - nstep);
    eval_program_steps(p, step, u->ndim - (naxis - nstep), true);
    for (int i = 0; i < naxis; i++) {
        coord[axis[i]] = i < nstep ? p->step_reg[i] : p->lane_reg[i - nstep];
        given[axis[i]] = true;
    }
    for (int a = 0, k = nstep; a < u->ndim; a++)
        if (!given[a])
            coord[a] = p->step_reg[k++];
    struct rows rows = {r->data, nlane};
    int root = r->nelem == 0 ? 0
               : body        ? eval_program_body(p, e, u, coord)
                             : eval_program_value(p, e, u, coord);
    if (r->nelem == 0 || eval_program_run(p, &root, 1, sink_rows, &rows))
        return r;
    eval_tensor_free(e, r);
    return NULL;
}

struct tensor *eval_compute_over(struct eval *e, struct uop *u, const int *axis, int naxis)
{
    return compute_over(e, u, axis, naxis, false);
}

struct tensor *eval_compute_plain(struct eval *e, struct uop *u, bool body)
{
    int axis[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        axis[a] = a;
    return compute_over(e, u, axis, u->ndim, body);
}

struct reduction { enum op op; enum dtype dtype; bool by_step; union scalar *out; };

/* Accumulates in double; narrow kinds and small integers are converted at the end. */
static union scalar reduce_one(const struct reduction *r, union scalar acc, union scalar v)
{
    enum dtype d = dtype_is_float(r->dtype)                          ? DTYPE_F64
                   : r->dtype == DTYPE_U64 || r->dtype == DTYPE_BOOL ? r->dtype
                                                                     : DTYPE_I64;
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

/* Lanes run along the kept axes and steps along the reduced ones; if few elements are kept, lanes
 * run along the reduced ones and steps along the kept. */
static struct tensor *compute_reduce(struct eval *e, struct uop *u)
{
    const struct node *n = eval_node(e, u), *x = eval_node(e, u->src[0]);
    struct program *p = &e->program;
    struct reduction red = {.op = REDUCE_OP(u->arg.i), .dtype = u->dtype};
    int64_t dim[2][MAX_RANK], reduced = 1;
    int axis[2][MAX_RANK], count[2] = {0, 0}, coord[MAX_RANK];
    struct tensor *r = eval_compute_product(e, u);
    if (r || !(r = eval_tensor_new(e, u->dtype, n->dim, u->ndim)))
        return r;
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
    eval_program_steps(p, dim[step], count[step], false);
    for (int a = 0; a < count[lane]; a++)
        coord[axis[lane][a]] = p->lane_reg[a];
    for (int a = 0; a < count[step]; a++)
        coord[axis[step][a]] = p->step_reg[a];
    int root = eval_program_value(p, e, u->src[0], coord);
    if (!eval_program_run(p, &root, 1, sink_reduce, &red)) {
        eval_tensor_free(e, r);
        return NULL;
    }
    alu_confine(u->dtype, red.out, r->nelem);
    for (int64_t i = 0; i < r->nelem && u->dtype != DTYPE_F32; i++)
        red.out[i] = scalar_cast(u->dtype, dtype_is_float(u->dtype) ? DTYPE_F64 : DTYPE_I64,
                                 red.out[i]);
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
    struct tensor *r = eval_tensor_new(e, u->dtype, n->dim, u->ndim);
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
            eval_tensor_free(e, r);
            return NULL;
        }
        c.offset += c.src_block;
    }
    if (end == n->dim[axis] || r->nelem == 0)
        return r;
    eval_tensor_free(e, r);
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
    struct tensor *r = eval_compute_plain(e, u->src[0], false);
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
        root[k - 1] = value->nelem && fits
                          ? eval_program_value(p, e, u->src[k], x->u->ndim ? p->lane_reg : NULL)
                          : 0;
    }
    if (fits && (value->nelem == 0 || eval_program_run(p, root, u->nsrc - 1, sink_scatter, &s)))
        return r;
    eval_tensor_free(e, r);
    return NULL;
}

struct tensor *eval_compute(struct eval *e, struct uop *u)
{
    switch (u->op) {
    case OP_REDUCE:
        return compute_reduce(e, u);
    case OP_CONCAT:
        return compute_concat(e, u);
    case OP_SCATTER:
        return compute_scatter(e, u);
    default:
        return eval_compute_plain(e, u, true);
    }
}
