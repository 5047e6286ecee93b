/* lower_quantize.c - quantized operators: to and from integers, and products of integers that are
 * accumulated in i32.
 *
 *      quantize    y = saturate(round(x / scale) + zero)          round half to even
 *      dequantize  x = (y - zero) * scale
 *
 * Scales and zero points are one for all, one for each position of an axis, or one for each block
 * of positions of it.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

/* A parameter of quantization as something that broadcasts to x. */
static struct uop *spread(const struct node *n, int k, const struct uop *x, int axis, int64_t block)
{
    struct uop *v = n->in[k], *dim[MAX_RANK + 1], *wide[MAX_RANK + 1];
    int64_t count = 0;
    if (v->ndim == 0 || (v->ndim == 1 && uop_is_int(v->dim[0], 1)))
        return uop_reshape(n->t, v, NULL, 0);
    if (v->ndim == 1 && block == 0) {
        for (int a = 0; a < x->ndim - axis; a++)
            dim[a] = a ? uop_int(n->t, 1) : v->dim[0];
        return uop_reshape(n->t, v, dim, x->ndim - axis);
    }
    if (v->ndim != x->ndim || block < 1 || !uop_const_int(v->dim[axis], &count) ||
        v->ndim == MAX_RANK) {
        node_error(n, k,
                   "one value, one for each position of axis %d, or one for each block of them is "
                   "expected for %s, found %s",
                   axis, shape_text(n, x), shape_text(n, v));
        return NULL;
    }
    for (int a = 0, i = 0; a < v->ndim; a++) { /* each value `block` times */
        dim[i] = wide[i] = v->dim[a];
        i++;
        if (a == axis) {
            dim[i] = uop_int(n->t, 1);
            wide[i++] = uop_int(n->t, block);
        }
    }
    struct uop *r = uop_expand(n->t, uop_reshape(n->t, v, dim, v->ndim + 1), wide),
               *whole[MAX_RANK];
    for (int a = 0; a < v->ndim; a++)
        whole[a] = a == axis ? uop_int(n->t, count * block) : v->dim[a];
    return lib_narrow(&n->lib, uop_reshape(n->t, r, whole, v->ndim), axis, uop_int(n->t, 0),
                      x->dim[axis]);
}

struct uop *quantized(const struct node *n, struct uop *x, struct uop *zero, enum dtype d)
{
    const struct lib *l = &n->lib;
    x = lib_unary(l, OP_ROUND, x);
    if (zero && x)
        x = lib_add(l, x, lib_cast(l, x->dtype, zero));
    if (!x)
        return NULL;
    struct uop *lo = uop_consti(n->t, x->dtype, dtype_min(d)),
               *hi = uop_consti(n->t, x->dtype, dtype_max(d));
    return lib_cast(l, d, lib_binary(l, OP_MIN, lib_binary(l, OP_MAX, x, lo), hi));
}

/* axis only matters where there is one value for each position; its default 1 need not exist
 * otherwise. */
static bool needs_axis(const struct uop *scale)
{
    return !(scale->ndim == 0 || (scale->ndim == 1 && uop_is_int(scale->dim[0], 1)));
}

bool lower_quantize(struct node *n)
{
    struct uop *x = n->in[0], *zero = NULL;
    int axis = 0;
    int64_t block = node_int(n, "block_size", 0);
    if (needs_axis(n->in[1]) &&
        !node_axis(n, node_int(n, "axis", x->ndim > 1 ? 1 : 0), x->ndim, &axis))
        return false;
    enum dtype to = n->in[2]                        ? n->in[2]->dtype
                    : node_int(n, "output_dtype", 0) ? node_dtype(n, "output_dtype", DTYPE_U8)
                                                     : DTYPE_U8;
    enum dtype precision =
        node_int(n, "precision", 0) ? node_dtype(n, "precision", DTYPE_F32) : n->in[1]->dtype;
    struct uop *scale = spread(n, 1, x, axis, block);
    if (!scale || (n->in[2] && !(zero = spread(n, 2, x, axis, block))))
        return false;
    if (dtype_is_int(precision))
        precision = DTYPE_F64; /* an i32 scale: f32 does not hold it */
    else if (precision == DTYPE_F8E8M0)
        precision = dtype_is_float(x->dtype) ? x->dtype : DTYPE_F32; /* it holds no quotient */
    if (!dtype_is_float(precision) || to == DTYPE_VOID || to == DTYPE_STRING)
        return node_error(n, -1, "these types are not supported");
    struct uop *ratio =
        lib_div(&n->lib, lib_cast(&n->lib, precision, x), lib_cast(&n->lib, precision, scale));
    if (dtype_is_float(to)) {
        if (!node_int(n, "saturate", 1) && dtype_is_f8(to))
            return node_set(n, 0, cast_without_saturation(n, to, ratio));
        if (zero && dtype_bits(to) < 8)
            ratio = lib_add(&n->lib, ratio, lib_cast(&n->lib, precision, zero));
        return node_set(n, 0, lib_cast(&n->lib, to, ratio));
    }
    return node_set(n, 0,
                    quantized(n, lib_cast(&n->lib, lib_acc_dtype(precision), ratio), zero, to));
}

bool lower_dequantize(struct node *n)
{
    struct uop *x = n->in[0], *zero = NULL;
    int axis = 0;
    int64_t block = node_int(n, "block_size", 0);
    if (needs_axis(n->in[1]) &&
        !node_axis(n, node_int(n, "axis", x->ndim > 1 ? 1 : 0), x->ndim, &axis))
        return false;
    enum dtype d = node_int(n, "output_dtype", 0) ? node_dtype(n, "output_dtype", DTYPE_F32)
                                                  : n->in[1]->dtype,
               wide = lib_acc_dtype(d);
    struct uop *scale = spread(n, 1, x, axis, block);
    if (!scale || (n->in[2] && !(zero = spread(n, 2, x, axis, block))))
        return false;
    if (!dtype_is_float(d))
        return node_error(n, -1, "these types are not supported");
    if (zero && dtype_is_int(x->dtype))
        x = lib_sub(&n->lib, lib_cast(&n->lib, DTYPE_I32, x), lib_cast(&n->lib, DTYPE_I32, zero));
    else if (zero)
        x = lib_sub(&n->lib, lib_cast(&n->lib, wide, x), lib_cast(&n->lib, wide, zero));
    struct uop *r = lib_mul(&n->lib, lib_cast(&n->lib, wide, x), lib_cast(&n->lib, wide, scale));
    return node_set(n, 0, lib_cast(&n->lib, d, r));
}

/* scale and zero (u8) that map the range of x, widened to hold 0, to 0 .. 255; y = x quantized so.
 */
bool quantize_dynamically(const struct node *n, struct uop *x, struct uop **y, struct uop **scale,
                          struct uop **zero)
{
    const struct lib *l = &n->lib;
    uint32_t all = lib_all_axes(x);
    struct uop *lo = lib_binaryf(l, OP_MIN, lib_reduce(l, REDUCE_MIN, x, all, false), 0);
    struct uop *hi = lib_binaryf(l, OP_MAX, lib_reduce(l, REDUCE_MAX, x, all, false), 0);
    struct uop *range = lib_sub(l, hi, lo);
    struct uop *empty = range ? lib_binary(l, OP_EQ, range, lib_scalar(l, range, 0)) : NULL;
    *scale = range
                 ? lib_where(l, empty, lib_scalar(l, range, 1), lib_binaryf(l, OP_DIV, range, 255))
                 : NULL;
    if (!*scale)
        return false;
    struct uop *at = lib_unary(l, OP_NEG, lib_div(l, lo, *scale));
    *zero = quantized(n, lib_clip(l, at, lib_scalar(l, at, 0), lib_scalar(l, at, 255)), NULL,
                       DTYPE_U8);
    *y = quantized(n, lib_div(l, x, *scale), *zero, DTYPE_U8);
    return *y != NULL;
}

bool lower_dynamic_quantize(struct node *n)
{
    return quantize_dynamically(n, n->in[0], &n->out[0], &n->out[1], &n->out[2]);
}

/* ----------------------------------------------------------------------------- integer products */

struct uop *quantized_product(const struct node *n, struct uop *x, struct uop *w,
                              struct uop *w_scale, struct uop *w_zero)
{
    const struct lib *l = &n->lib;
    struct uop *q, *scale, *zero;
    if (!x || !quantize_dynamically(n, x, &q, &scale, &zero))
        return NULL;
    q = quantized_centered(n, q, zero, 0);
    w = quantized_centered(n, w, w_zero, w->ndim - 1);
    return lib_mul(l, lib_cast(l, x->dtype, lib_matmul(l, q, w)), lib_mul(l, scale, w_scale));
}

/* x - zero in dtype d */
static struct uop *centered(const struct node *n, enum dtype d, struct uop *x, struct uop *zero,
                            int axis)
{
    x = lib_cast(&n->lib, d, x);
    if (!zero || !x)
        return x;
    if (zero->ndim == 1 && !uop_is_int(zero->dim[0], 1)) {
        struct uop *dim[MAX_RANK];
        for (int a = 0; a < x->ndim - axis; a++)
            dim[a] = a ? uop_int(n->t, 1) : zero->dim[0];
        zero = uop_reshape(n->t, zero, dim, x->ndim - axis);
    } else if (zero->ndim == 1) {
        zero = uop_reshape(n->t, zero, NULL, 0);
    }
    return lib_sub(&n->lib, x, lib_cast(&n->lib, d, zero));
}

struct uop *quantized_centered(const struct node *n, struct uop *x, struct uop *zero, int axis)
{
    return centered(n, DTYPE_I32, x, zero, axis);
}

static bool integers(const struct node *n, int a, int b)
{
    if (dtype_is_int(n->in[a]->dtype) && dtype_is_int(n->in[b]->dtype))
        return true;
    return node_error(n, a, "integers are expected, found %s and %s", shape_text(n, n->in[a]),
                      shape_text(n, n->in[b]));
}

bool lower_matmul_integer(struct node *n)
{
    struct uop *a = n->in[0], *b = n->in[1];
    if (!integers(n, 0, 1) || !node_rank(n, 0, 1, MAX_RANK) || !node_rank(n, 1, 1, MAX_RANK))
        return false;
    a = quantized_centered(n, a, n->in[2], a->ndim > 1 ? a->ndim - 2 : 0);
    return node_set(n, 0, lib_matmul(&n->lib, a, quantized_centered(n, b, n->in[3], b->ndim - 1)));
}

bool lower_conv_integer(struct node *n)
{
    struct window_attr a;
    if (!integers(n, 0, 1) || !window_attributes(n, n->in[0], &a) ||
        !node_rank(n, 1, n->in[0]->ndim, n->in[0]->ndim))
        return false;
    return node_set(
        n, 0,
        lib_conv(&n->lib, quantized_centered(n, n->in[0], n->in[2], 1),
                 quantized_centered(n, n->in[1], n->in[3], 0), NULL, &a));
}

/* Inputs x, scale, zero, w, scale, zero, y scale, y zero: the i32 product p -> saturate(round(p *
 * xs * ws / ys) + yz). */
static bool requantize(struct node *n, struct uop *product, struct uop *w_scale)
{
    const struct lib *l = &n->lib;
    enum dtype to = n->in[7]->dtype;
    struct uop *xs = lib_cast(l, DTYPE_F32, node_scalar(n, 1)),
               *ys = lib_cast(l, DTYPE_F32, node_scalar(n, 6)), *zero = node_scalar(n, 7);
    if (!product || !w_scale || !xs || !ys || !zero)
        return false;
    struct uop *scale = lib_div(l, lib_mul(l, xs, lib_cast(l, DTYPE_F32, w_scale)), ys);
    struct uop *r = lib_mul(l, lib_cast(l, DTYPE_F32, product), scale);
    if (dtype_is_float(to))
        return node_set(n, 0, lib_cast(l, to, r));
    return node_set(n, 0, quantized(n, r, zero, to));
}

bool lower_qlinear_matmul(struct node *n)
{
    struct uop *a = n->in[0], *b = n->in[3], *bs = n->in[4], *product;
    if (dtype_is_float(a->dtype) || dtype_is_float(b->dtype)) {
        product = lib_matmul(
            &n->lib, centered(n, DTYPE_F32, a, n->in[2], a->ndim > 1 ? a->ndim - 2 : 0),
            centered(n, DTYPE_F32, b, n->in[5], b->ndim - 1));
    } else {
        if (!integers(n, 0, 3) || !node_rank(n, 0, 1, MAX_RANK) || !node_rank(n, 3, 1, MAX_RANK))
            return false;
        a = quantized_centered(n, a, n->in[2], a->ndim > 1 ? a->ndim - 2 : 0);
        product = lib_matmul(&n->lib, a,
                             quantized_centered(n, b, n->in[5], b->ndim - 1));
    }
    return requantize(n, product, bs);
}

bool lower_qlinear_conv(struct node *n)
{
    struct window_attr a;
    struct uop *x = n->in[0], *w = n->in[3], *ws = n->in[4], *dim[MAX_RANK];
    if (!integers(n, 0, 3) || !window_attributes(n, x, &a) || !node_rank(n, 3, x->ndim, x->ndim))
        return false;
    struct uop *product =
        lib_conv(&n->lib, quantized_centered(n, x, n->in[2], 1),
                 quantized_centered(n, w, n->in[5], 0), n->in[8], &a);
    if (ws->ndim == 1 && !uop_is_int(ws->dim[0], 1)) {
        for (int k = 0; k < x->ndim - 1; k++)
            dim[k] = k ? uop_int(n->t, 1) : ws->dim[0];
        ws = uop_reshape(n->t, ws, dim, x->ndim - 1);
    }
    return requantize(n, product, ws);
}
