/* contraction.c - the roles of the axes of a sum of products: row, column, batch, sum, tap.
 *
 * The product's coordinates are ranges. move_index() (ir/view.c) maps them through each factor's
 * movement to coordinates of its base, and the ranges on which these depend determine the roles:
 *
 *      varies: both factors   streamed   stationary   neither
 *              BATCH          ROW        COLUMN       NONE         an axis of the result
 *
 * A reduced axis is a TAP if a coordinate of the streamed factor's base depends on it and on an
 * axis of the result, as in a window. Otherwise, and if the two are in row-major order, it is a
 * SUM. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/access.h"

#include <string.h>

/* Ranges of these ids belong to axes of tensors, not to kernels: 16 bits below the largest id. */
enum { AXIS_RANGES = 0x7fff0000 };

struct uop *summed_product_behind(const struct uop *u, unsigned moves)
{
    if (u->op != OP_REDUCE || REDUCE_OP(u->arg.i) != OP_ADD)
        return NULL;
    struct uop *product = value_behind(u->src[0], moves);
    return product->op == OP_MUL ? product : NULL;
}

struct uop *summed_product(const struct uop *u) { return summed_product_behind(u, 0); }

/* ----------------------------------------------------------------------------------------- axes */

void axes_range(struct tgc *t, const struct uop *v, struct uop **range)
{
    for (int a = 0; a < v->ndim; a++)
        range[a] = uop_is_int(v->dim[a], 1) ? uop_int(t, 0)
                                            : uop_range(t, v->dim[a], AXIS_RANGES + a);
}

/* The product's axes on whose ranges `at` depends, as bits. */
static uint32_t axes_in(struct tgc *t, struct uop *at)
{
    uint32_t axes = 0;
    int n;
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, &at, 1, &n);
    for (int i = 0; i < n; i++) {
        int64_t axis = order[i]->op == OP_RANGE ? order[i]->arg.i - AXIS_RANGES : -1;
        axes |= axis >= 0 && axis < MAX_RANK ? 1u << axis : 0;
    }
    scratch_release(t, mark);
    return axes;
}

uint32_t axes_of_base(struct tgc *t, struct uop *v, unsigned moves)
{
    struct uop *at[MAX_RANK];
    uint32_t axes = 0;
    axes_range(t, v, at);
    const struct uop *base = move_down(t, v, moves, at);
    for (int a = 0; a < base->ndim; a++)
        axes |= axes_in(t, at[a]);
    return axes;
}

struct uop *axes_keep(struct tgc *t, struct uop *v, uint32_t axes)
{
    struct uop *zero[MAX_RANK], *dim[MAX_RANK];
    for (int a = 0; a < v->ndim; a++) {
        zero[a] = uop_int(t, 0);
        dim[a] = axes >> a & 1 ? v->dim[a] : uop_int(t, 1);
    }
    return uop_shrink(t, v, zero, dim);
}

/* -------------------------------------------------------------------------------------- reading */

bool contraction_begin(struct tgc *t, struct uop *u, struct contraction *c)
{
    struct uop *product = summed_product(u);
    if (!product || u->nsrc > 1)
        return false;
    *c = (struct contraction){.t = t, .sum = u, .product = product,
                              .reduced = REDUCE_AXES(u->arg.i)};
    axes_range(t, product, c->range);
    for (int k = 0; k < 2; k++) {
        struct factor *f = &c->factor[k];
        f->value = f->base = product->src[k];
        f->valid = uop_bool(t, true);
        ARRAY_COPY(f->at, c->range, f->value->ndim);
    }
    return true;
}

void factor_follow(struct contraction *c, struct factor *f, unsigned moves)
{
    struct uop *below[MAX_RANK], *valid;
    for (; move_is(f->base, moves); f->base = f->base->src[0]) {
        if (f->base->op == OP_CAST)
            continue;
        move_index(c->t, f->base, 0, f->at, below, &valid);
        f->valid = sym_and(c->t, f->valid, valid);
        ARRAY_COPY(f->at, below, f->base->src[0]->ndim);
    }
}

bool contraction_is_reduced(const struct contraction *c, int axis)
{
    return c->reduced >> axis & 1;
}

/* Whether a reduced axis shares a base coordinate with one that is not, as in a window. */
static bool is_walked(const struct contraction *c, const struct factor *f, int axis)
{
    for (int a = 0; a < f->base->ndim; a++)
        if ((f->axes[a] >> axis & 1) && (f->axes[a] & ~c->reduced) &&
            !contraction_run(c, f, a).whole)
            return true;
    return false;
}

static bool has_windows(const struct contraction *c, const struct factor *f)
{
    for (int p = 0; p < c->product->ndim; p++)
        if ((f->of & c->reduced) >> p & 1 && is_walked(c, f, p))
            return true;
    return false;
}

static int pick_stationary(const struct contraction *c)
{
    const struct factor *x = &c->factor[0], *w = &c->factor[1];
    uint32_t alone = (x->of ^ w->of) & ~c->reduced;
    if (x->standing != STREAMED || w->standing != STREAMED || !alone)
        return w->standing >= x->standing;
    bool walked = has_windows(c, w);
    if (walked != has_windows(c, x))
        return !walked;
    return w->of >> (31 - __builtin_clz(alone)) & 1;
}

void contraction_settle(struct contraction *c)
{
    for (int k = 0; k < 2; k++) {
        struct factor *f = &c->factor[k];
        f->of = 0;
        for (int a = 0; a < f->base->ndim; a++)
            f->of |= f->axes[a] = axes_in(c->t, f->at[a]);
        f->standing = value_standing(f->base);
    }
    c->stationary = pick_stationary(c);
    c->streamed = 1 - c->stationary;
    for (int p = 0; p < c->product->ndim; p++) {
        bool x = c->factor[c->streamed].of >> p & 1, w = c->factor[c->stationary].of >> p & 1;
        if (c->range[p]->op != OP_RANGE)
            c->role[p] = ROLE_NONE;
        else if (contraction_is_reduced(c, p))
            c->role[p] = is_walked(c, &c->factor[c->streamed], p) ? ROLE_TAP : ROLE_SUM;
        else
            c->role[p] = x && w ? ROLE_BATCH : x ? ROLE_ROW : w ? ROLE_COLUMN : ROLE_NONE;
    }
}

bool contraction_find(struct tgc *t, struct uop *u, unsigned moves, struct contraction *c)
{
    if (!contraction_begin(t, u, c) || c->product->src[0] == c->product->src[1])
        return false;
    for (int k = 0; k < 2; k++)
        factor_follow(c, &c->factor[k], moves);
    contraction_settle(c);
    return c->factor[0].of && c->factor[1].of;
}

double contraction_extent(const struct contraction *c, enum role role)
{
    double n = 1;
    for (int p = 0; p < c->product->ndim; p++)
        if (c->role[p] == role)
            n *= c->product->dim[p]->vmax < 0 ? 0 : (double)c->product->dim[p]->vmax;
    return n;
}

/* Sorts the axes of a run by stride. */
static void sort_run(struct run *r)
{
    for (int n = 1; n < r->n; n++)
        for (int i = n; i > 0 && r->stride[i - 1] < r->stride[i]; i--) {
            int64_t stride = r->stride[i];
            int axis = r->axis[i];
            r->stride[i] = r->stride[i - 1], r->axis[i] = r->axis[i - 1];
            r->stride[i - 1] = stride, r->axis[i - 1] = axis;
        }
}

struct run contraction_run(const struct contraction *c, const struct factor *f, int axis)
{
    static const struct run none = {.n = -1};
    struct tgc *t = c->t;
    struct uop *rest = f->at[axis], *total = uop_int(t, 1);
    struct run r = {0};
    for (int p = 0; p < c->product->ndim; p++) {
        int64_t stride;
        if (!(f->axes[axis] >> p & 1))
            continue;
        if (r.n == RUN_MAX || !index_stride(t, f->at[axis], c->range[p], &stride) || stride == 0)
            return none;
        r.axis[r.n] = p;
        r.stride[r.n++] = stride;
        rest = sym_sub(t, rest, sym_muli(t, c->range[p], stride));
    }
    if (!uop_const_int(rest, &r.begin))
        return none;
    sort_run(&r);
    r.whole = r.begin == 0;
    for (int i = r.n - 1; i >= 0; i--) {
        r.whole &= sym_equal(t, total, uop_int(t, r.stride[i]));
        total = sym_mul(t, total, c->product->dim[r.axis[i]]);
    }
    r.whole &= sym_equal(t, total, f->base->dim[axis]);
    return r;
}

/* ------------------------------------------------------------------------------------- building */

struct uop *contraction_like(struct tgc *t, const struct uop *sum, struct uop *x, struct uop *w)
{
    const char *names = uop_get_axes(t, sum->src[0]);
    struct uop *product = tensor_binary(t, OP_MUL, x, w);
    if (names)
        uop_name_axes(t, product, names);
    return uop_reduce(t, OP_ADD, product, REDUCE_AXES(sum->arg.i));
}

/* An axis without a role (-1) keeps its position after the axis before it. */
struct uop *contraction_arrange(struct tgc *t, struct uop *x, const int *of, int ndim)
{
    struct uop *dim[MAX_RANK];
    int perm[MAX_RANK], n = 0;
    for (int p = -1; p < ndim; p++)
        for (int a = 0, at = -1; a < x->ndim; a++)
            if ((at = of[a] < 0 ? at : of[a]) == p)
                perm[n++] = a;
    for (int p = 0; p < ndim; p++) {
        dim[p] = uop_int(t, 1);
        for (int a = 0; a < x->ndim; a++)
            dim[p] = of[a] == p ? sym_mul(t, dim[p], x->dim[a]) : dim[p];
    }
    return uop_reshape(t, uop_permute(t, x, perm), dim, ndim);
}

/* A base on the way to become a factor: axis a of x belongs to the product's axis of[a]. */
struct building { struct uop *x; int of[MAX_RANK]; };

/* Cuts off what is never read: before `begin`, and after the `size` elements from it. */
static void cut_axis(struct tgc *t, struct building *b, int a, struct uop *size, int64_t begin)
{
    struct uop *lo[MAX_RANK], *dim[MAX_RANK];
    for (int i = 0; i < b->x->ndim; i++) {
        lo[i] = uop_int(t, i == a ? begin : 0);
        dim[i] = i == a ? size : b->x->dim[i];
    }
    b->x = uop_shrink(t, b->x, lo, dim);
}

/* Splits axis a into the n axes of a run that covers it wholly. */
static void split_axis(const struct contraction *c, struct building *b, int a, const struct run *r)
{
    struct uop *dim[MAX_RANK];
    int of[MAX_RANK], n = 0;
    for (int i = 0; i < b->x->ndim; i++)
        for (int k = 0; k < (i == a ? r->n : 1); k++) {
            of[n] = i == a ? r->axis[k] : b->of[i];
            dim[n++] = i == a ? c->product->dim[r->axis[k]] : b->x->dim[i];
        }
    b->x = uop_reshape(c->t, b->x, dim, n);
    ARRAY_COPY(b->of, of, n);
}

static void walk_axis(const struct contraction *c, struct building *b, int a, const struct run *r)
{
    int tap = contraction_is_reduced(c, r->axis[0]) ? 0 : 1, out = 1 - tap;
    b->x = uop_window(c->t, b->x, a, c->product->dim[r->axis[out]], c->product->dim[r->axis[tap]],
                      r->stride[out], r->stride[tap]);
    memmove(b->of + a + 1, b->of + a, (size_t)(b->x->ndim - 1 - a) * sizeof *b->of);
    b->of[a] = r->axis[out];
    b->of[a + 1] = r->axis[tap];
}

/* false: the run is none of whole axis, part, split or window. */
static bool build_axis(const struct contraction *c, struct building *b, int a, const struct run *r)
{
    struct uop *size = b->x->dim[a];
    b->of[a] = r->n == 1 ? r->axis[0] : -1;
    if (r->n < 0 || r->begin < 0 || (r->n > 0 && r->stride[r->n - 1] < 1) ||
        b->x->ndim + r->n > MAX_RANK)
        return false;
    if (r->n < 2) {
        struct uop *part = r->n ? c->product->dim[r->axis[0]] : uop_int(c->t, 1);
        if (part != size)
            cut_axis(c->t, b, a, part, r->begin);
        return r->n == 0 || r->stride[0] == 1;
    }
    if (r->whole) {
        split_axis(c, b, a, r);
        return true;
    }
    if (r->n > 2)
        return false;
    if (r->begin)
        cut_axis(c->t, b, a, sym_addi(c->t, size, -r->begin), r->begin);
    walk_axis(c, b, a, r);
    return true;
}

/* Windows first, then splits, the order in which frontends build them. */
static struct uop *build_factor(const struct contraction *c, const struct factor *f)
{
    struct building b = {.x = f->base};
    struct run run[MAX_RANK];
    int place[MAX_RANK], shift = 0;
    for (int a = 0; a < f->base->ndim; a++)
        run[a] = contraction_run(c, f, a);
    for (int pass = 0; pass < 2; pass++, shift = 0)
        for (int a = 0; a < f->base->ndim; a++) {
            bool splits = run[a].n > 1 && run[a].whole;
            int at = pass ? place[a] + shift : a + shift, ndim = b.x->ndim;
            place[a] = pass ? place[a] : at;
            if (splits != (pass == 1))
                continue;
            if (!build_axis(c, &b, at, &run[a]))
                return NULL;
            shift += b.x->ndim - ndim;
        }
    struct uop *x = contraction_arrange(c->t, b.x, b.of, c->product->ndim);
    return uop_expand(c->t, x, c->product->dim);
}

struct uop *contraction_build(const struct contraction *c)
{
    struct uop *x[2];
    for (int k = 0; k < 2; k++)
        if (!(x[k] = build_factor(c, &c->factor[k])))
            return NULL;
    return contraction_like(c->t, c->sum, x[0], x[1]);
}
