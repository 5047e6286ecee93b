/* byte_sums.c - sums of products of quantized values become sums of products of bytes.
 *
 *      sum over k of (a[i,k] - za) * sa * (w[k,j] - zw) * sw[j]
 *    = (sum over k of a[i,k] * w'[k,j]  -  za * sum over k of w'[k,j]) * (sa * sw[j])
 *
 * a is a run-time value, w a weight, w' = w - zw. The sums on the right are exact in i32; the
 * correction terms, sums of weights, are computed here. It is a rewrite of the graph. The pattern
 * is a sum of products whose operands are, below movement, 8-bit integers less a zero point, times
 * a scale (ONNX: DequantizeLinear before MatMul, Conv, Gemm; ConvInteger, MatMulInteger,
 * QLinearConv and their kin). Padding with zeros becomes padding with za. The bytes are u8 and i8,
 * as instruction sets multiply them: a signed a is shifted by 128, and so is its zero point; on a
 * device that multiplies signed bytes alone, one without sign. Floats of 8 bits, which have no zero
 * points, are the same where a device multiplies matrices of them: what is left is a sum in f32 of
 * their products, times the scales.
 *
 * Instruction sets sum groups of four neighbours (DOT_BYTES), so channels are padded to a multiple
 * of four: any bytes, times weights of 0.
 */
#include "passes/graph/quant/byte_sums.h"
#include "ir/oracle.h"

#include <math.h>
#include <string.h>

enum { CHANNELS_MIN = 3, COLUMNS_MIN = 4 };
/* how many products of u8 and i8 never overflow a sum in i32 */
static const double PRODUCTS_MAX = 2147483647.0 / (255 * 128);

/* Whether a sum in i32 cannot overflow, for values of at most 255 after subtracting their zero
 * point, and weights of at most `largest`. A sum that is i32 in the model may wrap. */
static bool sum_is_held(const struct sum_of_bytes *s, int64_t largest)
{
    return s->reduce->dtype == DTYPE_I32 ||
           products_of(s) * 255 * (double)largest <= 2147483647.0;
}

/* ------------------------------------------------------------------------------------- operands */

static bool has_one_element(const struct uop *v)
{
    for (int a = 0; a < v->ndim; a++)
        if (!uop_is_int(v->dim[a], 1))
            return false;
    return true;
}

/* A zero point as an i32 of rank 0: a constant, a run-time value, a weight with equal elements. */
static bool take_zero(struct tgc *t, struct uop *v, struct operand *o)
{
    struct element_bounds e;
    v = value_behind(v, MOVES_VIEW);
    const struct buffer *b = v->op == OP_CAST ? known_behind(v->src[0]) : NULL;
    if (b && dtype_is_int(b->dtype) && buffer_bounds(b, SIZE_MAX, &e) && e.lo.i == e.hi.i) {
        o->zero = uop_consti(t, DTYPE_I32, e.lo.i);
        return true;
    }
    if (v->op != OP_CONST && !has_one_element(v))
        return false;
    o->zero = uop_reshape(t, v, NULL, 0);
    return true;
}

static bool take_bytes(struct uop *v, struct operand *o)
{
    if (v->op != OP_CAST || !(dtype_is_byte(v->src[0]->dtype) ||
                              (dtype_is_f8(v->src[0]->dtype) && v->dtype == DTYPE_F32)))
        return false;
    o->q = v->src[0];
    return true;
}

/* Whether v is zeros, as zero points of floats of 8 bits are. */
static bool are_zeros(struct uop *v)
{
    struct element_bounds e;
    v = value_behind(v, MOVES_VIEW);
    const struct buffer *b = known_behind(v->op == OP_CAST ? v->src[0] : v);
    return b && dtype_is_f8(b->dtype) && buffer_bounds(b, SIZE_MAX, &e) && e.lo.f == 0 &&
           e.hi.f == 0;
}

/* q - zero, as i32 or as f32 */
static bool take_difference(struct tgc *t, struct uop *v, struct operand *o)
{
    if (take_bytes(v, o))
        return true;
    if (v->op == OP_CAST && v->src[0]->dtype == DTYPE_I32)
        return take_difference(t, v->src[0], o);
    for (int k = 0; k < 2 && v->op == OP_ADD; k++) {
        const struct uop *c = value_behind(v->src[1 - k], MOVES_VIEW);
        bool whole = c->op == OP_CONST && v->dtype == DTYPE_F32 && c->arg.f == rint(c->arg.f) &&
                     fabs(c->arg.f) <= 255;
        if (!take_bytes(v->src[k], o) || c->op != OP_CONST || (v->dtype == DTYPE_F32 && !whole))
            continue;
        o->zero = uop_consti(t, DTYPE_I32, v->dtype == DTYPE_F32 ? -(int64_t)c->arg.f : -c->arg.i);
        return true;
    }
    if (v->op != OP_SUB || !take_bytes(v->src[0], o))
        return false;
    return dtype_is_f8(o->q->dtype) ? are_zeros(v->src[1])
                                    : v->dtype == DTYPE_I32 && take_zero(t, v->src[1], o);
}

static bool take_operand(struct tgc *t, struct uop *v, struct operand *o)
{
    o->path = path_down(v, MOVES_BYTES);
    v = o->path.base;
    if (take_difference(t, v, o))
        return true;
    for (int k = 0; k < 2 && v->op == OP_MUL && v->dtype == DTYPE_F32; k++) {
        struct uop *scale = value_behind(v->src[1 - k], MOVES_VIEW);
        bool single = scale->op == OP_CONST || has_one_element(scale);
        if ((!single && !known_buffer(scale)) || !take_difference(t, v->src[k], o))
            continue;
        o->scale = single ? uop_reshape(t, scale, NULL, 0) : v->src[1 - k];
        return true;
    }
    return false;
}

/* Follows the operand from the product down to v, of q's shape, and on to v's base. */
static void follow(struct contraction *c, struct factor *f, struct uop *v)
{
    factor_follow(c, f, MOVES_BYTES);
    f->base = v;
    factor_follow(c, f, MOVES_BYTES);
}

static uint32_t axes_of_scale(const struct contraction *c, int k, struct uop *scale)
{
    struct contraction of = *c;
    follow(&of, &of.factor[k], scale);
    contraction_settle(&of);
    return of.factor[k].of;
}

/* ----------------------------------------------------------------------------- moves made again */

/* The axis of the result that is axis `axis` of v after a reshape to dim[], or the innermost part
 * of it if it is split; -1: it is merged with others. */
static int axis_after_reshape(const struct uop *v, int axis, struct uop *const *dim, int ndim)
{
    int64_t before = 1, n, d;
    for (int a = 0; a < axis; a++)
        before = uop_const_int(v->dim[a], &n) ? sat_mul(before, n) : -1;
    if (before < 0 || !uop_const_int(v->dim[axis], &n))
        return -1;
    for (int a = 0; a < ndim; a++) {
        int64_t *left = before > 1 ? &before : &n;
        if (!uop_const_int(dim[a], &d) || d < 1 || *left % d)
            return -1;
        *left /= d;
        if (n == 1)
            return a;
    }
    return -1;
}

struct uop *move_again(struct tgc *t, const struct operand *o, struct uop *x, int *axis)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *dim[MAX_RANK];
    for (int i = o->path.n - 1; i >= 0; i--) {
        const struct uop *m = o->path.move[i], *from = m->src[0];
        struct uop *size = *axis >= 0 ? x->dim[*axis] : NULL;
        bool filled = size && !sym_equal(t, size, from->dim[*axis]);
        int now = *axis;
        ARRAY_COPY(dim, m->dim, m->ndim);
        if (m->op == OP_RESHAPE && now >= 0)
            now = axis_after_reshape(from, now, m->dim, m->ndim);
        if (m->op == OP_PERMUTE && now >= 0)
            for (now = 0; PERM_GET(m->arg.i, now) != *axis;)
                now++;
        if (m->op == OP_WINDOW && now >= 0)
            now = now == WINDOW_AXIS(m->arg.i) ? -1 : now + (now > WINDOW_AXIS(m->arg.i));
        if (*axis >= 0 && now < 0)
            return NULL;
        if (filled && m->op == OP_RESHAPE && !sym_equal(t, m->dim[now], from->dim[*axis]))
            return NULL;
        if (filled)
            dim[now] = size;
        for (int a = 0; a < from->ndim && (m->op == OP_PAD || m->op == OP_SHRINK); a++) {
            lo[a] = m->src[m->op == OP_PAD ? 2 + 2 * a : 1 + 2 * a];
            hi[a] = m->src[m->op == OP_PAD ? 3 + 2 * a : 2 + 2 * a];
            bool whole = m->op == OP_PAD
                             ? uop_is_int(lo[a], 0) && uop_is_int(hi[a], 0)
                             : uop_is_int(lo[a], 0) && sym_equal(t, hi[a], from->dim[a]);
            if (a == now && !whole)
                return NULL;
            if (a == now && filled && m->op == OP_SHRINK)
                hi[a] = size;
        }
        *axis = now;
        switch (m->op) {
        case OP_RESHAPE: x = uop_reshape(t, x, dim, m->ndim); break;
        case OP_EXPAND: x = uop_expand(t, x, dim); break;
        case OP_SHRINK: x = uop_shrink(t, x, lo, hi); break;
        case OP_PAD:
            x = uop_pad(t, x,
                        o->zero ? uop_cast(t, x->dtype, o->zero)
                                : uop_const(t, x->dtype, (union scalar){0}),
                        lo, hi);
            break;
        case OP_WINDOW:
            x = uop_window(t, x, WINDOW_AXIS(m->arg.i), m->dim[WINDOW_AXIS(m->arg.i)],
                           m->dim[WINDOW_AXIS(m->arg.i) + 1], WINDOW_STRIDE(m->arg.i),
                           WINDOW_DILATION(m->arg.i));
            break;
        default: x = uop_new(t, m->op, x->dtype, &x, 1, m->arg);
        }
    }
    return x;
}

/* -------------------------------------------------------------------------------- what is found */

bool has_padding(const struct operand *o)
{
    for (int i = 0; i < o->path.n; i++)
        if (o->path.move[i]->op == OP_PAD)
            return true;
    return false;
}

/* Whether padding can be bytes that stand for 0. */
static bool can_be_padded(const struct operand *o)
{
    return !o->zero || (o->zero->op == OP_CONST && o->zero->arg.i >= dtype_min(o->q->dtype) &&
                        o->zero->arg.i <= dtype_max(o->q->dtype));
}

double products_of(const struct sum_of_bytes *s)
{
    double n = 1;
    for (int p = 0; p < s->product->ndim; p++)
        if (contraction_is_reduced(&s->c, p))
            n *= s->product->dim[p]->vmax < 0 ? 0 : (double)s->product->dim[p]->vmax;
    return n;
}

/* Whether there are columns, an axis of the weight alone, for vectors. */
static bool has_columns(const struct sum_of_bytes *s)
{
    for (int p = 0; p < s->product->ndim; p++)
        if (s->c.role[p] == ROLE_COLUMN && s->product->dim[p]->vmin >= COLUMNS_MIN)
            return true;
    return false;
}

/* Whether along all reduced axes both factors vary, but the weight's scale does not. */
static bool sums_alike(const struct sum_of_bytes *s, uint32_t of_scale)
{
    for (int p = 0; p < s->product->ndim; p++)
        if (contraction_is_reduced(&s->c, p) && s->c.range[p]->op == OP_RANGE &&
            !((s->a.of & s->w.of & ~of_scale) >> p & 1))
            return false;
    return true;
}

/* Whether such values are multiplied with each other: bytes, or, if the device has an instruction
 * for it, floats of one format. */
static bool multiply(const struct tgc *t, const struct uop *sum, const struct operand o[2])
{
    enum dtype d = o[0].q->dtype;
    if (!dtype_is_f8(d) && !dtype_is_f8(o[1].q->dtype))
        return true;
    return d == o[1].q->dtype && !o[0].zero && !o[1].zero && sum->dtype == DTYPE_F32 &&
           device_multiplies(t, d);
}

static bool find_sum(struct tgc *t, struct uop *u, struct sum_of_bytes *s)
{
    struct operand o[2] = {{0}, {0}};
    *s = (struct sum_of_bytes){.t = t};
    if ((u->dtype != DTYPE_F32 && u->dtype != DTYPE_I32) || !contraction_begin(t, u, &s->c))
        return false;
    s->reduce = u;
    s->product = s->c.product;
    for (int k = 0; k < 2; k++)
        if (!take_operand(t, s->product->src[k], &o[k]))
            return false;
    if (!multiply(t, u, o))
        return false;
    int w = known_behind(o[1].q) != NULL;
    s->weighted = known_behind(o[w].q) != NULL;
    if (known_behind(o[1 - w].q) || products_of(s) > PRODUCTS_MAX)
        return false;
    bool fixed = o[w].scale && o[w].scale->ndim > 0;
    uint32_t of_scale = fixed ? axes_of_scale(&s->c, w, o[w].scale) : 0;
    for (int k = 0; k < 2; k++)
        follow(&s->c, &s->c.factor[k], o[k].q);
    contraction_settle(&s->c);
    for (int k = 0; k < 2; k++)
        o[k].of = s->c.factor[k].of;
    s->a = o[1 - w];
    s->w = o[w];
    s->weight = w;
    if (!sums_alike(s, of_scale) ||
        (s->a.scale && s->a.scale->ndim > 0) || (fixed && !s->weighted))
        return false;
    return !(has_padding(&s->w) && s->weighted) &&
           (!has_padding(&s->a) || !s->weighted || can_be_padded(&s->a));
}

/* ---------------------------------------------------------------------------------- the rewrite */

struct uop *weight_as_i8(const struct sum_of_bytes *s, int64_t *rest)
{
    struct tgc *t = s->t;
    const struct operand *w = &s->w;
    struct element_bounds e;
    int64_t zero = 0;
    *rest = 0;
    if (w->zero && !uop_const_int(w->zero, &zero))
        return NULL;
    if (zero == 0 && w->q->dtype == DTYPE_I8)
        return w->q;
    if (!buffer_bounds(known_behind(w->q), SIZE_MAX, &e))
        return NULL;
    int64_t least = zero - e.lo.i, most = e.hi.i - zero;
    if (!sum_is_held(s, least > most ? least : most))
        return NULL;
    if (e.lo.i - zero < -128 || e.hi.i - zero > 127) {
        int64_t middle = w->q->dtype == DTYPE_U8 ? 128 : 0;
        *rest = zero - middle;
        zero = middle;
    }
    struct uop *wide = uop_cast(t, DTYPE_I32, w->q);
    return uop_cast(t, DTYPE_I8,
                    tensor_binary(t, OP_SUB, wide, uop_consti(t, DTYPE_I32, zero)));
}

bool bytes_suit_matrices(const struct sum_of_bytes *s)
{
    int64_t terms = 0;
    for (int p = 0; p < s->product->ndim; p++)
        if (contraction_is_reduced(&s->c, p) && s->product->dim[p]->vmax > terms)
            terms = s->product->dim[p]->vmax;
    return device_multiplies(s->t, DTYPE_I8) && terms >= BYTES_TERMS_LEAST &&
           contraction_extent(&s->c, ROLE_ROW) >= BYTES_SIDE_LEAST &&
           contraction_extent(&s->c, ROLE_COLUMN) >= BYTES_SIDE_LEAST;
}

/* u8, which is multiplied by i8 in words of four; for a device's instructions for matrices what
 * they are, or what these multiply by i8. */
static enum dtype dtype_of_values(const struct sum_of_bytes *s)
{
    enum dtype own = s->a.q->dtype;
    if (!bytes_suit_matrices(s))
        return DTYPE_U8;
    if (device_multiplies_both(s->t, own, DTYPE_I8))
        return own;
    return device_multiplies_both(s->t, DTYPE_U8, DTYPE_I8) ? DTYPE_U8 : DTYPE_I8;
}

/* The producer of the values stores them shifted, under their movements, which are applied
 * later. */
struct uop *values_as_bytes(struct sum_of_bytes *s)
{
    struct tgc *t = s->t;
    struct operand *a = &s->a;
    enum dtype d = dtype_of_values(s);
    int middle = d == DTYPE_U8 ? 128 : -128;
    if (a->q->dtype == d)
        return a->q;
    struct path p = path_down(a->q, MOVES_VIEW);
    struct uop *shift = uop_consti(t, DTYPE_I32, middle);
    a->zero = a->zero ? uop_binary(t, OP_ADD, a->zero, shift) : shift;
    struct uop *q = tensor_binary(t, OP_ADD, uop_cast(t, DTYPE_F32, p.base),
                                  uop_constf(t, DTYPE_F32, middle));
    return path_up(t, &p, uop_cast(t, d, q));
}

struct uop *fill_axis(struct tgc *t, struct uop *x, int axis, struct uop *value)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    int64_t n = x->dim[axis]->arg.i, more = (DOT_BYTES - n % DOT_BYTES) % DOT_BYTES;
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = uop_int(t, 0);
        hi[a] = uop_int(t, a == axis ? more : 0);
    }
    return more ? uop_pad(t, x, value, lo, hi) : x;
}

struct uop *weights_evaluate(struct tgc *t, struct uop *v)
{
    int64_t dim[MAX_RANK], nelem = 1;
    size_t nbytes;
    for (int a = 0; a < v->ndim; a++) {
        if (!uop_const_int(v->dim[a], &dim[a]))
            return NULL;
        nelem = sat_mul(nelem, dim[a]);
    }
    if (!size_mul((size_t)nelem, dtype_nbytes(v->dtype), &nbytes) ||
        nbytes > mem_room(t) / 4)
        return NULL;
    struct eval_env env = {.budget = -1};
    char *data = mem_alloc(t, nbytes);
    return eval_store(t, v, nelem, &env, data, NULL)
               ? tensor_from_data(t, v->dtype, dim, v->ndim, data, nbytes, NULL)
               : NULL;
}

/* The weights, padded along their axis k, through their moves; NULL: axis k is not the product's
 * axis `at` of n elements, or it exceeds the memory limit. */
static struct uop *move_weights(struct sum_of_bytes *s, struct uop *weights, int k, int at,
                                int64_t n)
{
    struct tgc *t = s->t;
    int there = k;
    if (weights->dim[k]->op != OP_CONST)
        return NULL;
    struct uop *filled = fill_axis(t, weights, k, uop_consti(t, DTYPE_I8, 0)),
               *w = move_again(t, &s->w, filled, &there);
    if (!w || there != at || !uop_is_int(w->dim[at], n))
        return NULL;
    if (filled == weights)
        return w;
    there = k;
    filled = weights_evaluate(t, filled);
    return filled ? move_again(t, &s->w, filled, &there) : NULL;
}

/* Both operands through their moves, where one of their reduced axes, the channels, becomes a
 * multiple of DOT_BYTES; returns the values' axis, -1: there are too few channels. */
static int move_operands(struct sum_of_bytes *s, struct uop *values, struct uop *weights,
                          struct uop **a, struct uop **w)
{
    struct tgc *t = s->t;
    bool fixed = s->a.zero && s->a.zero->op == OP_CONST;
    /* the same byte as in padding */
    struct uop *any = uop_consti(t, values->dtype, fixed ? s->a.zero->arg.i : 0);
    for (int i = values->ndim - 1; i >= 0; i--) {
        int64_t n;
        if (!uop_const_int(values->dim[i], &n) || n < CHANNELS_MIN)
            continue;
        int at = i;
        struct uop *x = fill_axis(t, values, i, any);
        /* copies values with a fixed order of axes, or with padded channels; a padded tensor gets a
         * buffer anyway */
        if (!has_padding(&s->a) &&
            (x != values || (i < x->ndim - 1 && value_behind(x, MOVES_VIEW)->op == OP_BUFFER)))
            x = uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0});
        if (!(*a = move_again(t, &s->a, x, &at)) || !contraction_is_reduced(&s->c, at) ||
            !uop_const_int((*a)->dim[at], &n) || n % DOT_BYTES)
            continue;
        for (int k = 0; k < weights->ndim; k++)
            if ((*w = move_weights(s, weights, k, at, n)))
                return i;
    }
    return -1;
}

struct uop *weights_sum(const struct sum_of_bytes *s, struct uop *w, enum dtype d)
{
    struct tgc *t = s->t;
    struct uop *wide = uop_cast(t, d, axes_keep(t, w, s->w.of));
    return weights_evaluate(t, uop_reduce(t, OP_ADD, wide, s->c.reduced));
}

/* Axes of size 1 leave nothing to add: what is in a buffer is not copied to another one. */
static struct uop *sum_to_buffer(struct tgc *t, struct uop *a, uint32_t axes)
{
    a = uop_reduce(t, OP_ADD, a, axes);
    if (value_behind(a, MOVES_VIEW)->op == OP_CONTIGUOUS)
        return a;
    return uop_new(t, OP_CONTIGUOUS, a->dtype, &a, 1, (union arg){0});
}

/* The sums of the values, one for each row: first over the axis `channels`, which windows share,
 * then over the rest. In buffers, since a kernel with a sum of products has no other sum. In floats
 * if they are exact, else in integers. */
static struct uop *sum_values(const struct sum_of_bytes *s, struct uop *values, int channels)
{
    const double exact = 0x1p24 / 255;
    struct tgc *t = s->t;
    enum dtype d = products_of(s) <= exact ? DTYPE_F32 : DTYPE_I32;
    struct operand o = s->a;
    int at = channels, none = -1;
    struct uop *each = sum_to_buffer(t, uop_cast(t, d, values), 1u << channels), *a;
    if (o.zero)
        o.zero = uop_binary(t, OP_MUL, o.zero,
                            uop_consti(t, DTYPE_I32, values->dim[channels]->arg.i));
    a = move_again(t, &o, each, &at);
    if (!a)
        a = uop_cast(t, d, move_again(t, &s->a, values, &none));
    a = axes_keep(t, a, s->a.of);
    return uop_cast(t, DTYPE_I32, sum_to_buffer(t, a, s->c.reduced));
}

struct uop *bytes_scale_sum(const struct sum_of_bytes *s, struct uop *sum)
{
    struct tgc *t = s->t;
    struct uop *scale = s->a.scale;
    if (s->reduce->dtype == DTYPE_I32)
        return uop_cast(t, DTYPE_I32, sum);
    if (s->w.scale) {
        int none = -1;
        struct uop *by = s->w.scale->ndim ? move_again(t, &s->w, s->w.scale, &none) : s->w.scale;
        by = by->ndim ? axes_keep(t, by, s->w.of & ~s->c.reduced) : by;
        scale = scale ? tensor_binary(t, OP_MUL, scale, by) : by;
    }
    sum = uop_cast(t, DTYPE_F32, sum);
    return scale ? tensor_binary(t, OP_MUL, sum, scale) : sum;
}

static struct uop *rewrite_sum(struct sum_of_bytes *s)
{
    struct tgc *t = s->t;
    int64_t rest = 0;
    struct uop *a, *w, *weights = s->weighted && has_columns(s) ? weight_as_i8(s, &rest) : NULL;
    if (!weights)
        return NULL;
    struct operand before = s->a;
    struct uop *values = values_as_bytes(s);
    int channels = move_operands(s, values, weights, &a, &w);
    if (channels < 0) {
        s->a = before;
        return NULL;
    }
    struct uop *sum = contraction_like(t, s->reduce, uop_cast(t, DTYPE_I32, a),
                                       uop_cast(t, DTYPE_I32, w));
    struct uop *zero = s->a.zero && !uop_is_int(s->a.zero, 0) ? s->a.zero : NULL;
    if (zero) {
        struct uop *each = weights_sum(s, w, DTYPE_I32);
        if (!each)
            return NULL;
        if (rest)
            each = tensor_binary(t, OP_SUB, each,
                                 uop_consti(t, DTYPE_I32, rest * (int64_t)products_of(s)));
        sum = tensor_binary(t, OP_SUB, sum, tensor_binary(t, OP_MUL, each, zero));
    }
    if (rest)
        sum = tensor_binary(t, OP_SUB, sum,
                            tensor_binary(t, OP_MUL, sum_values(s, values, channels),
                                          uop_consti(t, DTYPE_I32, rest)));
    return bytes_scale_sum(s, sum);
}

/* Floats of 8 bits, whose products are exact in f32: the scales leave the sum. */
static struct uop *rewrite_floats(const struct sum_of_bytes *s)
{
    struct tgc *t = s->t;
    int none = -1;
    if (!s->a.scale && !s->w.scale)
        return NULL;
    struct uop *a = move_again(t, &s->a, s->a.q, &none), *w = move_again(t, &s->w, s->w.q, &none);
    return bytes_scale_sum(
        s, contraction_like(t, s->reduce, uop_cast(t, DTYPE_F32, a), uop_cast(t, DTYPE_F32, w)));
}

static struct uop *rewrite_found(struct sum_of_bytes *s)
{
    if (dtype_is_f8(s->a.q->dtype))
        return rewrite_floats(s);
    struct uop *r = rewrite_sum(s);
    r = r ? r : product_rewrite_sum(s);
    return r ? r : whole_rewrite_sum(s);
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct sum_of_bytes s;
    struct mem_mark mark = scratch_mark(t);
    bool found = find_sum(t, u, &s), cast = u->op == OP_CAST;
    int outer = t->current_origin;
    (void)ctx;
    scratch_release(t, mark);
    if (!found && !cast && u->op != OP_REDUCE && u->op != OP_DIV)
        return NULL;
    t->current_origin = u->id < t->cap_uop_origin ? t->uop_origin[u->id] : 0;
    struct uop *r = NULL;
    if (found)
        r = rewrite_found(&s);
    else if (u->op == OP_DIV)
        r = rescale(t, u);
    else if (!cast)
        r = whole_rewrite_most(t, u);
    else if (u->dtype == DTYPE_F32)
        r = whole_rewrite_cast(t, u);
    else if (dtype_is_byte(u->dtype) && !(r = table_rewrite(t, u)))
        r = requantize(t, u);
    t->current_origin = outer;
    return r;
}

bool pass_byte_sums(struct tgc *t, struct graph *g)
{
    graph_rewrite(t, g, rewrite, NULL);
    return true;
}
