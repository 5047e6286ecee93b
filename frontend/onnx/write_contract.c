/* write_contract.c - sums of products as MatMul and Conv, and windows that are reduced as pools.
 *
 *      y = reduce_add(a * b)       a, b: PERMUTE, EXPAND and RESHAPE of ones over a tensor each,
 *                                  whose axes thereby are axes of the product
 *
 *      axis of the product    in a  in b  reduced
 *        batch                 x     x
 *        row                   x
 *        column                      x
 *        sum                   x     x     x
 *
 *      MatMul: a as [batch, row, sum], b as [batch, sum, column]; several rows, columns or sums are
 *      merged where the operator needs it, and taken apart in the result
 *
 * A WINDOW in a splits an axis into an output's place and a tap. If the place is a row and the tap
 * a sum, that is a convolution: batch axes are its groups.
 *
 *      x[n, g ic, (oy ky), (ox kx)]   w[g oc, ic, ky, kx]   ->   y[n, g oc, oy, ox]
 */
#include "frontend/onnx/write.h"

#include <math.h>
#include <string.h>

enum { NONE = -1, AXES_MOST = MAX_RANK };

/* An operand, without what broadcasts and reorders it. */
struct factor {
    struct uop *core;
    /* axis of the product that the core's axis is, NONE for size 1; the second one of a WINDOW: its
     * taps, NONE without */
    int axis[AXES_MOST], tap[AXES_MOST];
    int64_t stride[AXES_MOST], dilation[AXES_MOST];
    uint32_t axes;                       /* of the product, that it changes along */
};

/* x[...] with labels `from`, seen through a RESHAPE that only adds or drops ones. */
static bool through_ones(const struct uop *u, const int *from, int *to)
{
    const struct uop *x = u->src[0];
    int k = 0;
    if (!write_same_but_ones(u->dim, u->ndim, x->dim, x->ndim))
        return false;
    for (int a = 0; a < x->ndim; a++) {
        to[a] = NONE;
        if (uop_is_int(x->dim[a], 1))
            continue;
        while (uop_is_int(u->dim[k], 1))
            k++;
        to[a] = from[k++];
    }
    return true;
}

static struct factor find_factor(struct uop *u)
{
    struct factor f = {.core = u};
    for (int a = 0; a < u->ndim; a++) {
        f.axis[a] = uop_is_int(u->dim[a], 1) ? NONE : a;
        f.tap[a] = NONE;
    }
    for (;;) {
        int to[AXES_MOST];
        u = f.core;
        if (u->op == OP_EXPAND) {
            for (int a = 0; a < u->ndim; a++)
                to[a] = u->src[0]->dim[a] == u->dim[a] ? f.axis[a] : NONE;
        } else if (u->op == OP_PERMUTE) {
            for (int a = 0; a < u->ndim; a++)
                to[PERM_GET(u->arg.i, a)] = f.axis[a];
        } else if (u->op != OP_RESHAPE || !through_ones(u, f.axis, to)) {
            break;
        }
        f.core = u->src[0];
        memcpy(f.axis, to, sizeof to);
    }
    for (int a = 0; a < f.core->ndim; a++)
        if (f.axis[a] != NONE)
            f.axes |= 1u << f.axis[a];
    return f;
}

/* --------------------------------------------------------------------------------------- MatMul */

/* Axes of the product, in the order of an operand or of the result. */
struct axes { int axis[AXES_MOST]; int n; };

static void add_axes(struct axes *to, uint32_t set)
{
    for (int a = 0; a < AXES_MOST; a++)
        if (set >> a & 1)
            to->axis[to->n++] = a;
}

static int count(uint32_t set)
{
    int n = 0;
    for (; set; set &= set - 1)
        n++;
    return n;
}

/* The factor with these axes, in this order. */
static struct written *arrange(struct onnx_writer *w, const struct factor *f,
                               struct uop *const *dim, const struct axes *order)
{
    struct uop *bare[AXES_MOST], *sorted[AXES_MOST];
    int64_t perm[AXES_MOST];
    int place[AXES_MOST], n = 0;
    bool stays = true;
    for (int a = 0; a < f->core->ndim; a++)
        if (f->axis[a] != NONE) {
            place[f->axis[a]] = n;
            bare[n++] = dim[f->axis[a]];
        }
    struct written *v = write_reshaped(w, write_value(w, f->core), bare, n);
    for (int i = 0; i < n; i++) {
        perm[i] = place[order->axis[i]];
        sorted[i] = dim[order->axis[i]];
        stays = stays && perm[i] == i;
    }
    if (stays)
        return v;
    v = write_node(w, "Transpose", v->dtype, sorted, n, &v, 1);
    write_ints(w, v, "perm", perm, n);
    return v;
}

/* A value with these axes of the product, in the product's order. */
static struct written *in_order(struct onnx_writer *w, struct uop *const *size,
                                const struct axes *have, struct written *v)
{
    struct uop *dim[AXES_MOST];
    int64_t perm[AXES_MOST];
    bool stays = true;
    int n = 0;
    for (int a = 0; a < AXES_MOST; a++)
        for (int i = 0; i < have->n; i++)
            if (have->axis[i] == a) {
                stays = stays && i == n;
                perm[n] = i;
                dim[n++] = size[a];
            }
    if (stays)
        return v;
    v = write_node(w, "Transpose", v->dtype, dim, n, &v, 1);
    write_ints(w, v, "perm", perm, n);
    return v;
}

static struct uop *merged(struct onnx_writer *w, struct uop *const *dim, uint32_t set)
{
    struct uop *product = uop_int(w->t, 1);
    for (int a = 0; a < AXES_MOST; a++)
        if (set >> a & 1)
            product = sym_mul(w->t, product, dim[a]);
    return product;
}

/* The sizes of axes, each or as one. */
static int put_sizes(struct onnx_writer *w, struct uop *const *dim, uint32_t set, bool as_one,
                     struct uop **size)
{
    int n = 0;
    if (as_one) {
        size[0] = merged(w, dim, set);
        return 1;
    }
    for (int a = 0; a < AXES_MOST; a++)
        if (set >> a & 1)
            size[n++] = dim[a];
    return n;
}

/* What the axes of a product are. */
struct product {
    struct factor a, b;
    struct uop *const *dim;
    uint32_t batch, row, column, sum;
};

/* A product of a matrix and a vector has a row or a column of size 1: some runtimes are wrong about
 * vectors (ONNX Runtime's FusedMatMul). */
static struct written *matmul(struct onnx_writer *w, const struct product *p, enum dtype d)
{
    bool batched = p->batch != 0, matrix = batched || p->row || p->column;
    struct axes of_a = {.n = 0}, of_b = {.n = 0}, of_y = {.n = 0};
    struct uop *size[AXES_MOST + 2], *result[AXES_MOST + 2], *apart[AXES_MOST];
    add_axes(&of_a, p->batch);
    add_axes(&of_a, p->row);
    add_axes(&of_a, p->sum);
    add_axes(&of_b, p->batch);
    add_axes(&of_b, p->sum);
    add_axes(&of_b, p->column);
    add_axes(&of_y, p->batch);
    add_axes(&of_y, p->row);
    add_axes(&of_y, p->column);
    struct written *in[2] = {arrange(w, &p->a, p->dim, &of_a), arrange(w, &p->b, p->dim, &of_b)};
    int n = put_sizes(w, p->dim, p->batch, false, size), nresult;
    n += matrix ? put_sizes(w, p->dim, p->row, batched || !p->row, size + n) : 0;
    ARRAY_COPY(result, size, n);
    nresult = n;
    size[n++] = merged(w, p->dim, p->sum);
    in[0] = write_as(w, write_reshaped(w, in[0], size, n), d);
    n = put_sizes(w, p->dim, p->batch, false, size);
    size[n++] = merged(w, p->dim, p->sum);
    if (matrix)
        size[n++] = result[nresult++] = merged(w, p->dim, p->column);
    in[1] = write_as(w, write_reshaped(w, in[1], size, n), d);
    struct written *v = write_node(w, "MatMul", d, result, nresult, in, 2);
    for (int i = 0; i < of_y.n; i++)
        apart[i] = p->dim[of_y.axis[i]];
    /* without one of them the axes are in order, but for those of size 1 */
    if (!batched && (!p->row || !p->column) && write_same_but_ones(v->dim, v->ndim, apart, of_y.n))
        return v;
    return in_order(w, p->dim, &of_y, write_reshaped(w, v, apart, of_y.n));
}

static void swap_factors(struct product *p)
{
    struct factor a = p->a;
    uint32_t row = p->row;
    p->a = p->b;
    p->b = a;
    p->row = p->column;
    p->column = row;
}

static bool find_product(const struct uop *u, struct product *p)
{
    struct uop *mul = u->src[0];
    uint32_t reduced = REDUCE_AXES(u->arg.i);
    if (mul->op != OP_MUL || !mul->src[0]->ndim || !mul->src[1]->ndim)
        return false;
    *p = (struct product){find_factor(mul->src[0]), find_factor(mul->src[1]), mul->dim, 0, 0, 0, 0};
    for (int a = 0; a < mul->ndim; a++) {
        uint32_t bit = 1u << a;
        bool in_a = p->a.axes & bit, in_b = p->b.axes & bit, sums = reduced & bit;
        if (uop_is_int(mul->dim[a], 1))
            continue;
        if ((sums && !(in_a && in_b)) || (!in_a && !in_b))
            return false;
        *(sums ? &p->sum : in_a && in_b ? &p->batch : in_a ? &p->row : &p->column) |= bit;
    }
    return p->sum && (p->row || p->column || !p->batch);
}

static bool write_matmul(struct onnx_writer *w, struct uop *u, struct product *p)
{
    enum dtype d = write_working(u->dtype);
    if (!p->batch && count(p->column) > 1 && count(p->row) <= 1)
        swap_factors(p);
    write_set(w, u, write_as(w, matmul(w, p, d), u->dtype));
    return true;
}

/* -------------------------------------------------------------------------------------- windows */

/* Goes on through the WINDOWs of a factor; each makes one axis of two. */
static bool through_windows(struct factor *f)
{
    bool any = false;
    while (f->core->op == OP_WINDOW) {
        struct uop *u = f->core, *x = u->src[0];
        int axis = WINDOW_AXIS(u->arg.i), k = 0;
        struct factor to = *f;
        if (f->tap[axis] != NONE || f->tap[axis + 1] != NONE)
            return false;
        for (int a = 0; a < x->ndim; a++, k++) {
            to.axis[a] = f->axis[k];
            to.tap[a] = f->tap[k];
            to.stride[a] = f->stride[k];
            to.dilation[a] = f->dilation[k];
            if (a != axis)
                continue;
            to.tap[a] = f->axis[++k];
            to.stride[a] = WINDOW_STRIDE(u->arg.i);
            to.dilation[a] = WINDOW_DILATION(u->arg.i);
            if (to.axis[a] == NONE || to.tap[a] == NONE)
                return false;
        }
        *f = to;
        f->core = x;
        any = true;
    }
    return any;
}

/* Padding of the windows' axes that is a part of the operator: constants, with this value. */
struct padding { int64_t lo[AXES_MOST], hi[AXES_MOST]; };

static void through_pad(struct factor *f, double value, struct padding *pad)
{
    struct uop *u = f->core;
    struct padding p = {{0}, {0}};
    if (u->op != OP_PAD || !uop_is_constf(u->src[1], value))
        return;
    for (int a = 0; a < u->ndim; a++) {
        if (!uop_const_int(u->src[2 + 2 * a], &p.lo[a]) ||
            !uop_const_int(u->src[3 + 2 * a], &p.hi[a]))
            return;
        if ((p.lo[a] || p.hi[a]) && f->tap[a] == NONE)
            return;
    }
    *pad = p;
    f->core = u->src[0];
}

/* Does the operator's own formula give the size of the axis? It rounds down. */
static bool gives_size(struct onnx_writer *w, struct uop *n, struct uop *o, int64_t k, int64_t pad,
                       int64_t stride, int64_t dilation)
{
    struct uop *span = sym_addi(w->t, n, pad - dilation * (k - 1) - 1);
    struct uop *size = sym_addi(w->t, sym_div(w->t, span, uop_int(w->t, stride)), 1);
    return span->vmin >= 0 && size == o;
}

/* The windows of a factor as an operator's attributes. */
struct windows {
    int64_t kernel[AXES_MOST], stride[AXES_MOST], dilation[AXES_MOST], pads[2 * AXES_MOST];
    int n;
};

static bool find_windows(struct onnx_writer *w, const struct factor *f, const struct padding *pad,
                         struct uop *const *dim, struct windows *s)
{
    int n = 0;
    for (int a = 0; a < f->core->ndim; a++)
        n += f->tap[a] != NONE;
    *s = (struct windows){.n = 0};
    for (int a = 0; a < f->core->ndim; a++) {
        int i = s->n;
        if (f->tap[a] == NONE)
            continue;
        if (!uop_const_int(dim[f->tap[a]], &s->kernel[i]) ||
            !gives_size(w, f->core->dim[a], dim[f->axis[a]], s->kernel[i], pad->lo[a] + pad->hi[a],
                        f->stride[a], f->dilation[a]))
            return false;
        s->stride[i] = f->stride[a];
        s->dilation[i] = f->dilation[a];
        s->pads[i] = pad->lo[a];
        s->pads[n + i] = pad->hi[a];
        s->n++;
    }
    return s->n > 0 && s->n <= 3;
}

static void put_windows(struct onnx_writer *w, struct written *v, const struct windows *s)
{
    bool strides = false, dilations = false, pads = false;
    for (int i = 0; i < s->n; i++) {
        strides |= s->stride[i] != 1;
        dilations |= s->dilation[i] != 1;
    }
    for (int i = 0; i < 2 * s->n; i++)
        pads |= s->pads[i] != 0;
    write_ints(w, v, "kernel_shape", s->kernel, s->n);
    if (strides)
        write_ints(w, v, "strides", s->stride, s->n);
    if (dilations)
        write_ints(w, v, "dilations", s->dilation, s->n);
    if (pads)
        write_ints(w, v, "pads", s->pads, 2 * s->n);
}

/* A tensor as an operator wants it: each of its axes is several of the core's, the first one the
 * outermost. */
struct layout { int axis[AXES_MOST], part[AXES_MOST], naxis, npart; };

static void lay_next(struct layout *y, uint32_t outer, uint32_t inner)
{
    struct axes both = {.n = 0};
    add_axes(&both, outer);
    add_axes(&both, inner);
    for (int i = 0; i < both.n; i++) {
        y->axis[y->naxis] = both.axis[i];
        y->part[y->naxis++] = y->npart;
    }
    y->npart++;
}

static struct written *lay_out(struct onnx_writer *w, const struct factor *f,
                               const struct layout *y)
{
    struct uop *size[AXES_MOST], *dim[AXES_MOST] = {NULL};
    struct axes order = {.n = y->naxis};
    for (int a = 0; a < f->core->ndim; a++)
        if (f->axis[a] != NONE)
            dim[f->axis[a]] = f->core->dim[a];
    for (int i = 0; i < y->npart; i++)
        size[i] = uop_int(w->t, 1);
    for (int i = 0; i < y->naxis; i++) {
        order.axis[i] = y->axis[i];
        size[y->part[i]] = sym_mul(w->t, size[y->part[i]], dim[y->axis[i]]);
    }
    return write_reshaped(w, arrange(w, f, dim, &order), size, y->npart);
}

/* The node, and then its result with an axis for each of the product's. */
static struct written *conv(struct onnx_writer *w, enum dtype d, const struct product *p,
                            uint32_t place, uint32_t tap, const struct windows *s, int64_t group)
{
    struct layout x = {.naxis = 0}, k = {.naxis = 0}, y = {.naxis = 0};
    uint32_t samples = p->row & ~place;
    lay_next(&x, samples, 0);
    lay_next(&x, p->batch, p->sum & ~tap);
    lay_next(&k, p->batch, p->column);
    lay_next(&k, p->sum & ~tap, 0);
    lay_next(&y, samples, 0);
    lay_next(&y, p->batch, p->column);
    for (int a = 0; a < p->a.core->ndim; a++)
        if (p->a.tap[a] != NONE) {
            lay_next(&x, 1u << p->a.axis[a], 0);
            lay_next(&k, 1u << p->a.tap[a], 0);
            lay_next(&y, 1u << p->a.axis[a], 0);
        }
    struct uop *dim[AXES_MOST], *apart[AXES_MOST];
    struct axes have = {.n = y.naxis};
    for (int i = 0; i < y.npart; i++)
        dim[i] = uop_int(w->t, 1);
    for (int i = 0; i < y.naxis; i++) {
        have.axis[i] = y.axis[i];
        apart[i] = p->dim[y.axis[i]];
        dim[y.part[i]] = sym_mul(w->t, dim[y.part[i]], apart[i]);
    }
    struct written *in[2] = {lay_out(w, &p->a, &x), lay_out(w, &p->b, &k)};
    struct written *v = write_node(w, "Conv", d, dim, y.npart, in, 2);
    put_windows(w, v, s);
    if (group != 1)
        write_int(w, v, "group", group);
    return in_order(w, p->dim, &have, write_reshaped(w, v, apart, y.naxis));
}

static void find_places(const struct factor *f, uint32_t *place, uint32_t *tap)
{
    *place = *tap = 0;
    for (int a = 0; a < f->core->ndim; a++)
        if (f->tap[a] != NONE) {
            *place |= 1u << f->axis[a];
            *tap |= 1u << f->tap[a];
        }
}

static bool write_conv(struct onnx_writer *w, struct uop *u, struct product *p)
{
    struct padding pad = {{0}, {0}};
    struct windows s;
    uint32_t place, tap;
    int64_t group;
    if (u->dtype != DTYPE_F32 && u->dtype != DTYPE_F16)
        return false;
    if (p->b.core->op == OP_WINDOW)
        swap_factors(p);
    if (p->b.core->op == OP_WINDOW || !through_windows(&p->a))
        return false;
    through_pad(&p->a, 0.0, &pad);
    find_places(&p->a, &place, &tap);
    if ((place & ~p->row) || (tap & ~p->sum) || !find_windows(w, &p->a, &pad, p->dim, &s) ||
        !uop_const_int(merged(w, p->dim, p->batch), &group))
        return false;
    write_set(w, u, conv(w, u->dtype, p, place, tap, &s, group));
    return true;
}

/* ---------------------------------------------------------------------------------------- pools */

/* The windows of a reduction, with all other axes of its operand; false: it has none. */
struct pool { struct factor f; struct windows s; uint32_t rest, place; };

static bool find_pool(struct onnx_writer *w, struct uop *u, double padding, struct pool *p)
{
    struct padding pad = {{0}, {0}};
    uint32_t tap, reduced = 0;
    p->f = find_factor(u->src[0]);
    for (int a = 0; a < u->ndim; a++)
        if (REDUCE_AXES(u->arg.i) >> a & 1 && !uop_is_int(u->src[0]->dim[a], 1))
            reduced |= 1u << a;
    if (!through_windows(&p->f))
        return false;
    through_pad(&p->f, padding, &pad);
    find_places(&p->f, &p->place, &tap);
    p->rest = p->f.axes & ~p->place & ~tap;
    if (tap != reduced || !find_windows(w, &p->f, &pad, u->src[0]->dim, &p->s))
        return false;
    for (int i = 0; i < p->s.n; i++)
        if (p->s.pads[i] >= p->s.kernel[i] || p->s.pads[p->s.n + i] >= p->s.kernel[i])
            return false;
    return true;
}

/* [samples, channels, places], of which samples are all axes but the last one that is no place. */
static struct written *pool(struct onnx_writer *w, const char *type, struct uop *u,
                            const struct pool *p)
{
    struct layout y = {.naxis = 0};
    uint32_t channel = 0;
    struct uop *dim[AXES_MOST], *apart[AXES_MOST];
    struct axes have;
    for (int a = 0; a < AXES_MOST; a++)
        channel = p->rest >> a & 1 ? 1u << a : channel;
    lay_next(&y, p->rest & ~channel, 0);
    lay_next(&y, channel, 0);
    for (int a = 0; a < p->f.core->ndim; a++)
        if (p->f.tap[a] != NONE)
            lay_next(&y, 1u << p->f.axis[a], 0);
    have.n = y.naxis;
    for (int i = 0; i < y.npart; i++)
        dim[i] = uop_int(w->t, 1);
    for (int i = 0; i < y.naxis; i++) {
        have.axis[i] = y.axis[i];
        apart[i] = u->dim[y.axis[i]];
        dim[y.part[i]] = sym_mul(w->t, dim[y.part[i]], apart[i]);
    }
    struct written *in = lay_out(w, &p->f, &y);
    struct written *v = write_node(w, type, u->dtype, dim, y.npart, &in, 1);
    put_windows(w, v, &p->s);
    if (REDUCE_OP(u->arg.i) == OP_ADD)
        write_int(w, v, "count_include_pad", 1);
    return in_order(w, u->dim, &have, write_reshaped(w, v, apart, y.naxis));
}

static bool write_pool(struct onnx_writer *w, struct uop *u)
{
    struct pool p;
    int64_t taps = 1;
    bool is_max = REDUCE_OP(u->arg.i) == OP_MAX;
    if (u->dtype != DTYPE_F32 || !find_pool(w, u, is_max ? -HUGE_VAL : 0.0, &p))
        return false;
    struct written *v = pool(w, is_max ? "MaxPool" : "AveragePool", u, &p);
    if (!is_max) {
        for (int i = 0; i < p.s.n; i++)
            taps = sat_mul(taps, p.s.kernel[i]);
        v = write_binary(w, "Mul", v, write_scalar_int(w, DTYPE_F32, taps));
    }
    write_set(w, u, v);
    return true;
}

bool write_contraction(struct onnx_writer *w, struct uop *u)
{
    struct product p;
    enum op op = u->op == OP_REDUCE ? REDUCE_OP(u->arg.i) : OP_CONST;
    if (op != OP_ADD && op != OP_MAX)
        return false;
    if (op == OP_ADD && find_product(u, &p)) {
        struct product again = p;
        return write_conv(w, u, &again) || write_matmul(w, u, &p);
    }
    return write_pool(w, u);
}
