/* library_norm.c - reductions, running sums, softmax and the normalizations.
 *
 * Variance is the mean of the squared distance from the mean (two passes; the scheduler may make
 * them one by Welford). Softmax and log-sum-exp subtract the maximum first. A maximum of -inf is
 * replaced by 0, so that a row of -inf has the sum 0, not NaN.
 */
#include "frontend/library.h"

#include <math.h>
#include <string.h>

static const char *const reduction_names[] = {
#define REDUCTION(name, text) text,
#include "frontend/reductions.def"
#undef REDUCTION
};

const char *lib_reduction_name(enum reduction r) { return reduction_names[r]; }

/* The number of elements that are reduced into one, as a scalar of dtype d. */
static struct uop *reduced_count(const struct lib *l, enum dtype d, const struct uop *x,
                                 uint32_t axes)
{
    struct uop *n = uop_int(l->t, 1);
    for (int a = 0; a < x->ndim; a++)
        if (axes >> a & 1)
            n = sym_mul(l->t, n, x->dim[a]);
    return lib_float_of(l, d, n);
}

static struct uop *mean_of(const struct lib *l, struct uop *x, uint32_t axes, const char *word)
{
    struct uop *mean = lib_div(l, tensor_sum(l->t, x, axes, true),
                               reduced_count(l, x->dtype, x, axes));
    uop_name_value(l->t, mean, word);
    return mean;
}

/* The maximum over the axes, which stay, of size 1. */
static struct uop *row_max(const struct lib *l, struct uop *x, uint32_t axes)
{
    struct uop *most = tensor_max(l->t, x, axes, true);
    uop_name_value(l->t, most, "row_max");
    return most;
}

/* The maximum over axes, or 0 if it is infinite: subtracted from exponents. */
static struct uop *finite_max(const struct lib *l, struct uop *x, uint32_t axes)
{
    struct uop *m = row_max(l, x, axes), *inf = lib_scalar(l, x, (double)INFINITY);
    struct uop *finite = uop_binary(l->t, OP_LT, uop_unary(l->t, OP_ABS, m), inf);
    return lib_where(l, uop_binary(l->t, OP_OR, finite, uop_unary(l->t, OP_ISNAN, m)), m,
                     lib_scalar(l, x, 0));
}

static struct uop *log_sum_exp(const struct lib *l, struct uop *x, uint32_t axes)
{
    struct uop *m = finite_max(l, x, axes);
    struct uop *e = lib_unary(l, OP_EXP, lib_sub(l, x, m));
    return lib_add(l, lib_unary(l, OP_LOG, tensor_sum(l->t, e, axes, true)), m);
}

struct uop *lib_reduce(const struct lib *l, enum reduction r, struct uop *x, uint32_t axes,
                       bool keep)
{
    struct tgc *t = l->t;
    if (!x)
        return NULL;
    enum dtype d = x->dtype;
    bool boolean = d == DTYPE_BOOL && (r == REDUCE_MAX || r == REDUCE_MIN);
    if (!boolean && !dtype_is_float(d) && !dtype_is_int(d))
        return lib_error(l, "reduce %s does not take %s", lib_reduction_name(r),
                         lib_describe(l, x));
    if (r != REDUCE_MAX && r != REDUCE_MIN)
        x = uop_cast(t, lib_acc_dtype(d), x);
    enum dtype wide = x->dtype;
    bool real = !dtype_is_float(wide) &&
                (r == REDUCE_L2 || r == REDUCE_LOG_SUM || r == REDUCE_LOG_SUM_EXP);
    if (real)                                         /* roots and logarithms of integers */
        x = uop_cast(t, DTYPE_F64, x);
    switch (r) {
    case REDUCE_SUM: x = uop_reduce(t, OP_ADD, x, axes); break;
    case REDUCE_MEAN: x = mean_of(l, x, axes, "mean"); break;
    case REDUCE_PROD: x = uop_reduce(t, OP_MUL, x, axes); break;
    case REDUCE_MAX: x = uop_reduce(t, boolean ? OP_OR : OP_MAX, x, axes); break;
    case REDUCE_MIN: x = uop_reduce(t, boolean ? OP_AND : OP_MIN, x, axes); break;
    case REDUCE_L1: x = uop_reduce(t, OP_ADD, uop_unary(t, OP_ABS, x), axes); break;
    case REDUCE_L2: x = uop_unary(t, OP_SQRT, uop_reduce(t, OP_ADD, lib_mul(l, x, x), axes)); break;
    case REDUCE_SUM_SQUARE: x = uop_reduce(t, OP_ADD, lib_mul(l, x, x), axes); break;
    case REDUCE_LOG_SUM: x = uop_unary(t, OP_LOG, uop_reduce(t, OP_ADD, x, axes)); break;
    case REDUCE_LOG_SUM_EXP: x = log_sum_exp(l, x, axes); break;
    case REDUCTION_COUNT: return NULL;
    }
    if (!x)
        return NULL;
    x = uop_cast(t, d, x);
    return keep ? x : tensor_drop_axes(t, x, axes);
}

/* ---- indices of extremes */

static struct uop *arg_extreme(const struct lib *l, enum op op, struct uop *x, int64_t axis,
                               bool keep, bool last)
{
    struct tgc *t = l->t;
    int a;
    if (!x || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    if (!dtype_is_float(x->dtype) && !dtype_is_int(x->dtype))
        return lib_error(l, "argmax and argmin do not take %s", lib_describe(l, x));
    if (uop_is_int(x->dim[a], 0))
        return lib_error(l, "argmax and argmin over axis %d of %s: it is empty", a,
                         lib_describe(l, x));
    uint32_t axes = 1u << a;
    struct uop *hit = tensor_binary(t, OP_EQ, x, uop_reduce(t, op, x, axes));
    if (dtype_is_float(x->dtype))
        hit = uop_binary(t, OP_OR, hit, uop_unary(t, OP_ISNAN, x));
    struct uop *none = last ? uop_int(t, -1) : x->dim[a];
    struct uop *place = tensor_where(t, hit, tensor_iota(t, x->dim, x->ndim, a), none);
    struct uop *r = uop_reduce(t, last ? OP_MAX : OP_MIN, place, axes);
    return keep ? r : tensor_drop_axes(t, r, axes);
}

struct uop *lib_argmax(const struct lib *l, struct uop *x, int64_t axis, bool keep, bool last)
{
    return arg_extreme(l, OP_MAX, x, axis, keep, last);
}

struct uop *lib_argmin(const struct lib *l, struct uop *x, int64_t axis, bool keep, bool last)
{
    return arg_extreme(l, OP_MIN, x, axis, keep, last);
}

/* ---- running sums and products */

enum { CUMULATIVE_BLOCK = 32 };

/* Every output reads the whole axis through a triangular mask: n^2 operations, for short axes. */
static struct uop *cumulative_short(const struct lib *l, enum op op, struct uop *x, int axis,
                                    bool exclusive, bool reverse)
{
    struct tgc *t = l->t;
    struct uop *n = x->dim[axis], *square[2] = {n, n}, *dim[MAX_RANK];
    struct uop *o = tensor_iota(t, square, 2, 0), *k = tensor_iota(t, square, 2, 1);
    /* included: first < then, or also == */
    struct uop *first = reverse ? o : k, *then = reverse ? k : o;
    struct uop *in = exclusive ? uop_binary(t, OP_LT, first, then)
                               : uop_not(t, uop_binary(t, OP_LT, then, first));
    for (int a = 0; a < x->ndim + 1; a++)
        dim[a] = a == axis || a == axis + 1 ? n : uop_int(t, 1);
    struct uop *mask = uop_reshape(t, in, dim, x->ndim + 1);
    struct uop *u = tensor_where(t, mask, tensor_insert_axis(t, x, axis),
                                 uop_consti(t, x->dtype, op == OP_MUL));
    uint32_t axes = 2u << axis;
    return tensor_drop_axes(t, uop_reduce(t, op, u, axes), axes);
}

/* Blocks of 32; each adds the running value of the totals of the blocks before it (computed in
 * blocks again if there are many). */
static struct uop *cumulative_long(const struct lib *l, enum op op, struct uop *x, int axis,
                                   bool exclusive, bool reverse)
{
    struct tgc *t = l->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *dim[MAX_RANK + 1],
        *n = x->dim[axis], *unit = uop_consti(t, x->dtype, op == OP_MUL);
    if (x->ndim + 2 > MAX_RANK || n->vmax <= 2 * CUMULATIVE_BLOCK)
        return cumulative_short(l, op, x, axis, exclusive, reverse);
    struct uop *nblock = sym_ceildiv(t, n, CUMULATIVE_BLOCK);
    struct uop *padded = sym_muli(t, nblock, CUMULATIVE_BLOCK);
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(t, 0);
    hi[axis] = sym_sub(t, padded, n);
    struct uop *u = uop_pad(t, x, unit, lo, hi);
    for (int a = 0, k = 0; a < x->ndim; a++) {
        dim[k++] = a == axis ? nblock : x->dim[a];
        if (a == axis)
            dim[k++] = uop_int(t, CUMULATIVE_BLOCK);
    }
    u = uop_reshape(t, u, dim, x->ndim + 1);
    struct uop *total = tensor_drop_axes(t, uop_reduce(t, op, u, 2u << axis), 2u << axis);
    /* depth: log32 of the axis */
    struct uop *before = cumulative_long(l, op, total, axis, true, reverse);
    struct uop *r = lib_binary(l, op, cumulative_short(l, op, u, axis + 1, exclusive, reverse),
                               tensor_insert_axis(t, before, axis + 1));
    for (int a = 0; a < x->ndim; a++)
        dim[a] = a == axis ? padded : x->dim[a];
    return lib_narrow(l, uop_reshape(t, r, dim, x->ndim), axis, uop_int(t, 0), n);
}

struct uop *lib_cumulative(const struct lib *l, enum op op, struct uop *x, int64_t axis,
                           bool exclusive, bool reverse)
{
    int a;
    if (!x || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    enum dtype d = x->dtype;
    if ((!dtype_is_float(d) && !dtype_is_int(d)) || x->ndim == MAX_RANK)
        return lib_error(l, "running sums and products do not take %s", lib_describe(l, x));
    return lib_cast(
        l, d, cumulative_long(l, op, uop_cast(l->t, lib_acc_dtype(d), x), a, exclusive, reverse));
}

/* ---- softmax */

static bool floating(const struct lib *l, const char *what, const struct uop *x)
{
    if (!dtype_is_float(x->dtype))
        lib_error(l, "%s: x is %s; it must be floating", what, lib_describe(l, x));
    return dtype_is_float(x->dtype);
}

struct uop *lib_row_sum(const struct lib *l, struct uop *x, uint32_t axes)
{
    enum { FEW = 32 };
    if (!x)
        return NULL;
    struct uop *n = uop_int(l->t, 1);
    for (int a = 0; a < x->ndim; a++)
        if (axes >> a & 1)
            n = sym_mul(l->t, n, x->dim[a]);
    bool stepwise = x->dtype != DTYPE_F16 && n->vmax <= FEW;
    enum dtype d = x->dtype, wide = stepwise ? d : lib_acc_dtype(d);
    struct uop *sum = uop_reduce(l->t, OP_ADD, uop_cast(l->t, wide, x), axes);
    uop_name_value(l->t, sum, "row_sum");
    return uop_cast(l->t, d, sum);
}

struct uop *lib_softmax(const struct lib *l, struct uop *x, uint32_t axes)
{
    if (!x || !floating(l, "softmax", x))
        return NULL;
    struct uop *e = lib_unary(l, OP_EXP, lib_sub(l, x, row_max(l, x, axes)));
    return lib_div(l, e, lib_row_sum(l, e, axes));
}

struct uop *lib_log_softmax(const struct lib *l, struct uop *x, uint32_t axes)
{
    if (!x || !floating(l, "log_softmax", x))
        return NULL;
    enum dtype d = x->dtype;
    x = uop_cast(l->t, lib_acc_dtype(d), x);
    struct uop *shifted = lib_sub(l, x, row_max(l, x, axes));
    struct uop *sum = tensor_sum(l->t, lib_unary(l, OP_EXP, shifted), axes, true);
    uop_name_value(l->t, sum, "row_sum");
    return lib_cast(l, d, lib_sub(l, shifted, lib_unary(l, OP_LOG, sum)));
}

struct uop *lib_hardmax(const struct lib *l, struct uop *x, int64_t axis)
{
    int a;
    struct uop *place = lib_argmax(l, x, axis, true, false);
    if (!place || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    return uop_cast(l->t, x->dtype,
                    tensor_binary(l->t, OP_EQ, tensor_iota(l->t, x->dim, x->ndim, a), place));
}

/* ---- normalizations */

static struct uop *inverse_root(const struct lib *l, struct uop *var, double eps)
{
    return lib_unary(l, OP_RECIP, lib_unary(l, OP_SQRT, lib_binaryf(l, OP_ADD, var, eps)));
}

struct uop *lib_normalize(const struct lib *l, struct uop *x, uint32_t axes, double eps,
                          struct uop **mean, struct uop **inv_std)
{
    if (!x || !floating(l, "normalization", x))
        return NULL;
    x = uop_cast(l->t, lib_acc_dtype(x->dtype), x);
    struct uop *m = mean_of(l, x, axes, "mean");
    struct uop *centered = lib_sub(l, x, m);
    struct uop *var = mean_of(l, lib_mul(l, centered, centered), axes, "variance");
    struct uop *inv = inverse_root(l, var, eps);
    if (mean)
        *mean = m;
    if (inv_std)
        *inv_std = inv;
    return lib_mul(l, centered, inv);
}

/* y * scale + bias in y's dtype, rounded to d. */
static struct uop *affine(const struct lib *l, const char *what, struct uop *y, struct uop *scale,
                          struct uop *bias, enum dtype d)
{
    struct uop *p[2] = {scale, bias};
    for (int i = 0; y && i < 2; i++) {
        if (!p[i])
            continue;
        struct uop *wide = tensor_broadcast_to(l->t, p[i], y->dim, y->ndim);
        if (!wide || !dtype_is_float(p[i]->dtype))
            return lib_error(l, "%s: the %s is %s; it must be floating and broadcast to %s", what,
                             i ? "bias" : "scale", lib_describe(l, p[i]), lib_describe(l, y));
        y = lib_binary(l, i ? OP_ADD : OP_MUL, y, uop_cast(l->t, y->dtype, wide));
    }
    return lib_cast(l, d, y);
}

struct uop *lib_layer_norm(const struct lib *l, struct uop *x, struct uop *scale, struct uop *bias,
                           int64_t axis, double eps, struct uop **mean, struct uop **inv_std)
{
    int a;
    if (!x || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    struct uop *y = lib_normalize(l, x, lib_all_axes(x) & ~((1u << a) - 1), eps, mean, inv_std);
    return affine(l, "layer_norm", y, scale, bias, x->dtype);
}

struct uop *lib_rms_norm(const struct lib *l, struct uop *x, struct uop *scale, int64_t axis,
                         double eps)
{
    int a;
    if (!x || !floating(l, "rms_norm", x) || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    struct uop *u = uop_cast(l->t, lib_acc_dtype(x->dtype), x);
    struct uop *inv = inverse_root(
        l, mean_of(l, lib_mul(l, u, u), lib_all_axes(x) & ~((1u << a) - 1), "mean_square"), eps);
    return affine(l, "rms_norm", lib_mul(l, u, inv), scale, NULL, x->dtype);
}

/* p [c] -> [c, 1, ...], to broadcast against [n, c, ...]; NULL stays. */
static bool per_channel(const struct lib *l, const char *what, const struct uop *x, struct uop **p)
{
    if (!*p)
        return true;
    if ((*p)->ndim != 1 || !sym_equal(l->t, (*p)->dim[0], x->dim[1])) {
        lib_error(l, "%s: a parameter is %s; it must have one value for each channel of %s", what,
                  lib_describe(l, *p), lib_describe(l, x));
        return false;
    }
    struct uop *dim[MAX_RANK] = {x->dim[1]};
    for (int a = 2; a < x->ndim; a++)
        dim[a - 1] = uop_int(l->t, 1);
    *p = uop_reshape(l->t, *p, dim, x->ndim - 1);
    return true;
}

static bool has_channels(const struct lib *l, const char *what, const struct uop *x)
{
    if (x->ndim < 2)
        lib_error(l, "%s: x is %s; it must be [n, c, ...]", what, lib_describe(l, x));
    return x->ndim >= 2;
}

/* One value for each group, [n, groups, 1], repeated for each channel, [n, c, 1, ...]: contiguous,
 * as vectors of channels read them. */
static struct uop *for_channels(const struct lib *l, struct uop *v, const struct uop *x,
                                struct uop *const *split)
{
    struct uop *dim[MAX_RANK] = {x->dim[0], x->dim[1]};
    for (int a = 2; a < x->ndim; a++)
        dim[a] = uop_int(l->t, 1);
    v = uop_reshape(l->t, uop_expand(l->t, v, split), dim, x->ndim);
    return lib_contiguous(l, v);
}

/* The mean of each group, from the sums of its channels. So a loop over an image covers all
 * channels, whatever the groups are, and in any layout. */
static struct uop *mean_of_groups(const struct lib *l, struct uop *x, struct uop *const *split)
{
    struct uop *sum = lib_contiguous(l, tensor_sum(l->t, x, lib_all_axes(x) & ~3u, true));
    sum = tensor_sum(l->t, uop_reshape(l->t, sum, split, 3), 1u << 2, true);
    struct uop *count = reduced_count(l, x->dtype, x, lib_all_axes(x) & ~3u);
    count = lib_mul(l, count, lib_float_of(l, x->dtype, split[2]));
    return for_channels(l, lib_div(l, sum, count), x, split);
}

struct uop *lib_group_norm(const struct lib *l, struct uop *x, struct uop *scale, struct uop *bias,
                           int64_t groups, double eps)
{
    struct tgc *t = l->t;
    int64_t c;
    if (!x || !has_channels(l, "group_norm", x) || !floating(l, "group_norm", x))
        return NULL;
    if (groups < 1 || (uop_const_int(x->dim[1], &c) && c % groups))
        return lib_error(l, "group_norm: the channels of %s cannot be split into %lld groups",
                         lib_describe(l, x), (long long)groups);
    if (!per_channel(l, "group_norm", x, &scale) || !per_channel(l, "group_norm", x, &bias))
        return NULL;
    struct uop *split[3] = {x->dim[0], uop_int(t, groups),
                            sym_div(t, x->dim[1], uop_int(t, groups))};
    struct uop *u = uop_cast(t, lib_acc_dtype(x->dtype), x);
    struct uop *centered = lib_sub(l, u, mean_of_groups(l, u, split));
    struct uop *var = mean_of_groups(l, lib_mul(l, centered, centered), split);
    return affine(l, "group_norm", lib_mul(l, centered, inverse_root(l, var, eps)), scale, bias,
                  x->dtype);
}

/* The groups of a tensor in which a reshape has made each group of channels one channel: [n, c,
 * ...] as [n, groups, rest]. That is how exporters without the operator write group norm. NULL: it
 * is not. */
static struct uop *ungrouped(struct uop *x)
{
    struct uop *y = x->op == OP_RESHAPE ? x->src[0] : NULL;
    int64_t groups, channels;
    bool fits = y && y->ndim >= 3 && y->dim[0] == x->dim[0] && uop_const_int(x->dim[1], &groups) &&
                uop_const_int(y->dim[1], &channels) && groups > 0 && channels > groups &&
                channels % groups == 0;
    return fits ? y : NULL;
}

/* A parameter for each group, repeated for each channel. */
static struct uop *repeat_groups(const struct lib *l, struct uop *p, struct uop *nchannel)
{
    struct tgc *t = l->t;
    struct uop *dim[2] = {p->dim[0], uop_int(t, 1)};
    struct uop *u = uop_reshape(t, p, dim, 2);
    dim[1] = sym_div(t, nchannel, p->dim[0]);
    u = uop_reshape(t, uop_expand(t, u, dim), &nchannel, 1);
    struct uop *folded = lib_fold(l, u);
    return folded == u ? lib_contiguous(l, u) : folded;
}

struct uop *lib_instance_norm(const struct lib *l, struct uop *x, struct uop *scale,
                              struct uop *bias, double eps)
{
    struct uop *each[2] = {scale, bias};
    if (!x || !has_channels(l, "instance_norm", x) ||
        !per_channel(l, "instance_norm", x, &each[0]) ||
        !per_channel(l, "instance_norm", x, &each[1]))
        return NULL;
    struct uop *y = ungrouped(x);
    if (y) {
        y = lib_group_norm(l, y, scale ? repeat_groups(l, scale, y->dim[1]) : NULL,
                           bias ? repeat_groups(l, bias, y->dim[1]) : NULL, x->dim[1]->arg.i, eps);
        return y ? uop_reshape(l->t, y, x->dim, x->ndim) : NULL;
    }
    return affine(l, "instance_norm", lib_normalize(l, x, lib_all_axes(x) & ~3u, eps, NULL, NULL),
                  each[0], each[1], x->dtype);
}

struct uop *lib_batch_norm(const struct lib *l, struct uop *x, struct uop *scale, struct uop *bias,
                           struct uop *mean, struct uop *var, double eps)
{
    struct tgc *t = l->t;
    struct uop **p[4] = {&scale, &bias, &mean, &var};
    if (!x || !scale || !bias || !mean || !var || !has_channels(l, "batch_norm", x) ||
        !floating(l, "batch_norm", x))
        return NULL;
    enum dtype acc = lib_acc_dtype(x->dtype);
    for (int i = 0; i < 4; i++) {
        if (!floating(l, "batch_norm", *p[i]) || !per_channel(l, "batch_norm", x, p[i]))
            return NULL;
        *p[i] = uop_cast(t, acc, *p[i]);
    }
    /* if constant it is folded, and one multiply-add remains */
    struct uop *factor = lib_mul(l, scale, inverse_root(l, var, eps));
    struct uop *shift = lib_sub(l, bias, lib_mul(l, mean, factor));
    return lib_cast(l, x->dtype, lib_add(l, lib_mul(l, uop_cast(t, acc, x), factor), shift));
}

static void note_statistic(const struct lib *l, struct uop *x, const struct uop *u,
                           bool is_variance, double momentum)
{
    while (u->op == OP_CAST || u->op == OP_RESHAPE)
        u = u->src[0];
    struct buffer *b = u->op == OP_BUFFER ? (struct buffer *)(uintptr_t)u->arg.p : NULL;
    if (!b || b->kind != BUFFER_WEIGHT)
        return;
    bool is_shared = b->weight.statistic && b->weight.statistic->of != x;
    b->weight.statistic = MEM_NEW(l->t, struct statistic);
    *b->weight.statistic = (struct statistic){is_shared ? NULL : x, is_variance, momentum};
}

void lib_note_statistics(const struct lib *l, struct uop *x, struct uop *mean, struct uop *var,
                         double momentum)
{
    note_statistic(l, x, mean, false, momentum);
    note_statistic(l, x, var, true, momentum);
}

struct uop *lib_lp_normalize(const struct lib *l, struct uop *x, int64_t axis, int p)
{
    int a;
    if (!x || !floating(l, "lp_normalize", x) || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    if (p != 1 && p != 2)
        return lib_error(l, "lp_normalize: p is %d; it must be 1 or 2", p);
    struct uop *u = uop_cast(l->t, lib_acc_dtype(x->dtype), x);
    struct uop *norm = lib_reduce(l, p == 1 ? REDUCE_L1 : REDUCE_L2, u, 1u << a, true);
    struct uop *zero = lib_scalar(l, u, 0), *none = uop_binary(l->t, OP_EQ, norm, zero);
    struct uop *safe = lib_where(l, none, lib_scalar(l, u, 1), norm);
    return lib_cast(l, x->dtype, lib_where(l, none, zero, lib_div(l, u, safe)));
}

struct uop *lib_lrn(const struct lib *l, struct uop *x, int64_t size, double alpha, double beta,
                    double bias)
{
    struct tgc *t = l->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    if (!x || !has_channels(l, "lrn", x) || !floating(l, "lrn", x))
        return NULL;
    if (size < 1 || size > INT32_MAX || x->ndim == MAX_RANK)
        return lib_error(l, "lrn: size %lld; it must be positive", (long long)size);
    struct uop *u = uop_cast(t, lib_acc_dtype(x->dtype), x), *square = lib_mul(l, u, u);
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = uop_int(t, a == 1 ? (size - 1) / 2 : 0);
        hi[a] = uop_int(t, a == 1 ? size - 1 - (size - 1) / 2 : 0);
    }
    square = uop_pad(t, square, lib_scalar(l, u, 0), lo, hi);
    square = uop_window(t, square, 1, x->dim[1], uop_int(t, size), 1, 1);
    struct uop *sum = tensor_sum(t, square, 4, false);
    struct uop *base = lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, sum, alpha / (double)size),
                                   bias);
    return lib_cast(l, x->dtype, lib_div(l, u, lib_binaryf(l, OP_POW, base, beta)));
}
