/* lower_microsoft_quantize.c - com.microsoft operators on integers with a scale and a zero point:
 * elementwise ones, pools and softmax between quantized tensors, products with quantized weights,
 * and weights of 2, 4 or 8 bits in blocks.
 *
 * Elementwise ones are computed in f32 and rounded once, half to even. Sums of products are exact
 * in i32.
 */
#include <string.h>

#include "frontend/onnx/microsoft.h"

/* (x - zero) * scale in f32; scale and zero are single elements, inputs of the node; zero may be
 * absent. */
static struct uop *linear(const struct node *n, struct uop *x, int scale, int zero)
{
    const struct lib *l = &n->lib;
    struct uop *z = n->in[zero] ? node_scalar(n, zero) : NULL, *s;
    if (!n->in[scale])
        node_error(n, scale, "input %d is missing", scale);
    if (!n->in[scale] || (n->in[zero] && !z) || !(s = node_scalar(n, scale)))
        return NULL;
    x = quantized_centered(n, x, z, 0);
    return lib_mul(l, lib_cast(l, DTYPE_F32, x), lib_cast(l, DTYPE_F32, s));
}

/* y as an integer of dtype d by the inputs scale and zero. */
static struct uop *to_linear(const struct node *n, struct uop *y, enum dtype d, int scale, int zero)
{
    const struct lib *l = &n->lib;
    struct uop *s = node_scalar(n, scale), *z = n->in[zero] ? node_scalar(n, zero) : NULL;
    if (!y || !s || (n->in[zero] && !z))
        return NULL;
    return quantized(n, lib_div(l, y, lib_cast(l, DTYPE_F32, s)), z, d);
}

/* QLinearAdd, QLinearMul: a, scale, zero, b, scale, zero, scale, zero of the result. */
bool lower_qlinear_binary(struct node *n)
{
    if (!node_has_inputs(n, 0x5b))
        return false;
    struct uop *y = lib_binary(&n->lib, (enum op)n->operator->param, linear(n, n->in[0], 1, 2),
                               linear(n, n->in[3], 4, 5));
    return node_set(n, 0, to_linear(n, y, n->in[0]->dtype, 6, 7));
}

/* QLinearSigmoid, QLinearLeakyRelu: x, scale, zero, scale, zero of the result. */
bool lower_qlinear_activation(struct node *n)
{
    if (!node_has_inputs(n, 0xb))
        return false;
    struct uop *y = lib_activate(&n->lib, (enum activation)n->operator->param,
                                 linear(n, n->in[0], 1, 2), node_float(n, "alpha", 0.01), 0);
    return node_set(n, 0, to_linear(n, y, n->in[0]->dtype, 3, 4));
}

bool lower_qlinear_softmax(struct node *n)
{
    struct uop *x = n->in[0];
    int axis;
    if (!node_has_inputs(n, 0xb) || !node_axis(n, node_int(n, "axis", -1), x->ndim, &axis))
        return false;
    uint32_t axes =
        node_int(n, "opset", 13) < 13 ? lib_all_axes(x) & ~((1u << axis) - 1) : 1u << axis;
    struct uop *y = lib_softmax(&n->lib, linear(n, x, 1, 2), axes);
    return node_set(n, 0, to_linear(n, y, x->dtype, 3, 4));
}

bool lower_qlinear_where(struct node *n)
{
    struct uop *y =
        lib_where(&n->lib, n->in[0], linear(n, n->in[1], 2, 3), linear(n, n->in[4], 5, 6));
    return node_set(n, 0, to_linear(n, y, n->in[1]->dtype, 7, 8));
}

bool lower_qlinear_reduce_mean(struct node *n)
{
    struct uop *x = n->in[0];
    uint32_t axes;
    bool given;
    if (!node_has_inputs(n, 0xb) || !node_axes(n, "axes", -1, x->ndim, &axes, &given))
        return false;
    struct uop *y = lib_reduce(&n->lib, REDUCE_MEAN, linear(n, x, 1, 2),
                               axes ? axes : lib_all_axes(x), node_int(n, "keepdims", 1) != 0);
    return node_set(n, 0, to_linear(n, y, x->dtype, 3, 4));
}

/* y scale, y zero, then x, scale, zero of each part. */
bool lower_qlinear_concat(struct node *n)
{
    if (n->nin < 5 || (n->nin - 2) % 3)
        return node_error(n, -1,
                          "a scale, a zero point and triples of tensor, scale, zero point "
                          "are expected; found %d inputs",
                          n->nin);
    int count = (n->nin - 2) / 3;
    struct uop **part = mem_array(n->t, (size_t)count, sizeof *part);
    for (int i = 0; i < count; i++) {
        int k = 2 + 3 * i;
        if (!n->in[k])
            return node_error(n, k, "input %d is missing", k);
        part[i] = to_linear(n, linear(n, n->in[k], k + 1, k + 2), n->in[k]->dtype, 0, 1);
        if (!part[i])
            return false;
    }
    return node_set(n, 0, lib_concat(&n->lib, part, count, node_int(n, "axis", 0)));
}

/* QLinear(Global)AveragePool, of either layout. */
bool lower_qlinear_pool(struct node *n)
{
    bool last = node_int(n, "channels_last", 0) != 0, whole = n->operator->param != 0;
    struct node_view v;
    if (!node_has_inputs(n, 0xb))
        return false;
    struct uop *x = linear(n, last ? channels_first(n, n->in[0]) : n->in[0], 1, 2);
    if (!x || !node_rank(n, 0, 3, MAX_RANK) || !node_view(n, 22, &v))
        return false;
    v.in[0] = x;
    if (whole)
        n->out[0] = lib_global_pool(&n->lib, POOL_AVERAGE, x, 0);
    else if (!lower_pool_of(&v.node, POOL_AVERAGE))
        return false;
    struct uop *y = to_linear(n, n->out[0], n->in[0]->dtype, 3, 4);
    return node_set(n, 0, last ? channels_last(n, y) : y);
}

/* Integers: the product of centered operands. */
bool lower_mul_integer(struct node *n)
{
    return node_has_inputs(n, 0x5) &&
           node_set(n, 0,
                    lib_mul(&n->lib, quantized_centered(n, n->in[0], n->in[1], 0),
                            quantized_centered(n, n->in[2], n->in[3], 0)));
}

/* ------------------------------------------------------------------------------------- products */

bool lower_matmul_integer16(struct node *n)
{
    enum dtype d = dtype_kind(n->in[0]->dtype) == 'U' && dtype_kind(n->in[1]->dtype) == 'U'
                       ? DTYPE_U32
                       : DTYPE_I32;
    return node_set(
        n, 0, lib_matmul(&n->lib, lib_cast(&n->lib, d, n->in[0]), lib_cast(&n->lib, d, n->in[1])));
}

/* a is quantized by its own range: a, b, b scale, b zero, bias. */
bool lower_dynamic_quantize_matmul(struct node *n)
{
    struct uop *y = quantized_product(n, n->in[0], n->in[1], n->in[2], n->in[3]);
    return node_set(n, 0, n->in[4] ? lib_add(&n->lib, y, n->in[4]) : y);
}

/* (x - zero) (w - zero) in i32, then scaled, as floats of the scales' dtype. Input k is x, k + 1 w;
 * the others by their numbers. */
static struct uop *scaled_product(const struct node *n, int x_zero, int w_zero, int x_scale,
                                  int w_scale)
{
    const struct lib *l = &n->lib;
    struct uop *x = n->in[0], *w = n->in[1], *xs = node_scalar(n, x_scale);
    if (!xs || !node_rank(n, 0, 1, MAX_RANK) || !node_rank(n, 1, 1, MAX_RANK))
        return NULL;
    x = quantized_centered(n, x, n->in[x_zero], x->ndim > 1 ? x->ndim - 2 : 0);
    struct uop *p = lib_matmul(l, x, quantized_centered(n, w, n->in[w_zero], w->ndim - 1));
    return lib_mul(l, lib_cast(l, xs->dtype, p), lib_mul(l, xs, n->in[w_scale]));
}

bool lower_matmul_integer_to_float(struct node *n)
{
    struct uop *y = scaled_product(n, 4, 5, 2, 3);
    return node_set(n, 0, n->in[6] ? lib_add(&n->lib, y, n->in[6]) : y);
}

/* x, w, bias, x scale, w scale, mask, x zero, w zero, past */
bool lower_qattention(struct node *n)
{
    struct fused_attention a = {0};
    if (!node_rank(n, 0, 3, 3) || !node_rank(n, 1, 2, 2))
        return false;
    struct uop *qkv = scaled_product(n, 6, 7, 3, 4);
    if (n->in[2])
        qkv = lib_add(&n->lib, qkv, n->in[2]);
    return qkv && fused_attention_project(n, qkv, n->in[8], &a) && fused_attention_mask(n, 5, &a) &&
           node_set(n, 0, fused_attention(n, &a));
}

/* a, scale, zero, b, scale, zero, c, y scale, y zero: quantized if there is a y scale, else f32. */
bool lower_qgemm(struct node *n)
{
    const struct lib *l = &n->lib;
    bool trans_b = node_int(n, "transB", 0) != 0;
    struct uop *a = n->in[0], *b = n->in[3], *scale = node_scalar(n, 1);
    if (!node_rank(n, 0, 2, 2) || !node_rank(n, 3, 2, 2) || !scale)
        return false;
    struct uop *sum = lib_gemm(l, quantized_centered(n, a, n->in[2], 0),
                               quantized_centered(n, b, n->in[5], trans_b ? 0 : 1), n->in[6], 1, 1,
                               node_int(n, "transA", 0) != 0, trans_b);
    scale = lib_binaryf(l, OP_MUL, lib_mul(l, scale, n->in[4]), node_float(n, "alpha", 1));
    struct uop *y = lib_mul(l, lib_cast(l, DTYPE_F32, sum), scale);
    if (n->in[7])
        y = to_linear(n, y, n->in[8] ? n->in[8]->dtype : DTYPE_U8, 7, 8);
    return node_set(n, 0, y);
}

/* QLinearConv with an attribute for the layout. */
bool lower_microsoft_qlinear_conv(struct node *n)
{
    struct node_view v;
    bool last = node_int(n, "channels_last", 0) != 0;
    if (!last)
        return lower_qlinear_conv(n);
    if (!node_view(n, 10, &v))
        return false;
    v.in[0] = channels_first(n, n->in[0]);
    return lower_qlinear_conv(&v.node) && node_set(n, 0, channels_last(n, n->out[0]));
}

bool lower_nhwc_max_pool(struct node *n)
{
    struct node_view v;
    if (!node_view(n, 12, &v))
        return false;
    v.in[0] = channels_first(n, n->in[0]);
    return lower_pool_of(&v.node, POOL_MAX) && node_set(n, 0, channels_last(n, n->out[0]));
}

/* ----------------------------------------------------------------------------- packed in blocks */

/* Each byte of the last axis is 8 / bits numbers, the low bits first: u8 [.., bytes * 8 / bits]. */
static struct uop *unpack_bits(const struct node *n, struct uop *x, int bits)
{
    struct uop *dim[MAX_RANK], *count = uop_int(n->t, 8 / bits);
    if (bits == 8)
        return x;
    if (x->ndim == MAX_RANK) {
        node_error(n, -1, "rank %d is beyond the limit", MAX_RANK);
        return NULL;
    }
    struct uop *by = uop_cast(n->t, DTYPE_U8, uop_iota(n->t, count));
    struct uop *wide = tensor_insert_axis(n->t, x, x->ndim);
    wide =
        lib_binary(&n->lib, OP_SHR, wide, lib_mul(&n->lib, by, uop_consti(n->t, DTYPE_U8, bits)));
    wide = lib_binary(&n->lib, OP_AND, wide, uop_consti(n->t, DTYPE_U8, (1 << bits) - 1));
    ARRAY_COPY(dim, x->dim, x->ndim);
    dim[x->ndim - 1] = sym_mul(n->t, dim[x->ndim - 1], count);
    return lib_reshape(&n->lib, wide, dim, x->ndim);
}

static bool block_bits(const struct node *n, int *bits, int64_t *block)
{
    if (!node_int_within(n, "bits", 4, 2, 8, bits))
        return false;
    *block = node_int(n, "block_size", 128);
    if ((*bits == 2 || *bits == 4 || *bits == 8) && *block >= 16 && *block <= INT32_MAX &&
        !(*block & (*block - 1)))
        return true;
    return node_error(n, -1,
                      "bits must be 2, 4 or 8, and block_size a power of two from 16 on; "
                      "found %d and %lld",
                      *bits, (long long)*block);
}

/* (q - zero) * scale for q [rows, blocks, block], as [rows, blocks * block]. zero: for each block,
 * a scalar, NULL: the middle. */
static struct uop *dequantize_blocks(const struct node *n, struct uop *q, struct uop *scale,
                                     struct uop *zero, int bits, enum dtype d)
{
    const struct lib *l = &n->lib;
    struct uop *each[3] = {q->dim[0], q->dim[1], uop_int(n->t, 1)};
    struct uop *z = uop_constf(n->t, d, (double)(1 << (bits - 1)));
    if (zero && zero->ndim == 0)
        z = lib_cast(l, d, zero);
    else if (zero && !(z = lib_cast(l, d, lib_reshape(l, zero, each, 3))))
        return NULL;
    struct uop *w = lib_mul(l, lib_sub(l, lib_cast(l, d, q), z),
                            lib_cast(l, d, lib_reshape(l, scale, each, 3)));
    struct uop *dim[2] = {q->dim[0], sym_mul(n->t, q->dim[1], q->dim[2])};
    return lib_reshape(l, w, dim, 2);
}

/* The same, [rows, depth], where column k has the scale and zero point of block group[k]. */
static struct uop *dequantize_groups(const struct node *n, struct uop *q, struct uop *scale,
                                     struct uop *zero, int bits, enum dtype d, struct uop *depth)
{
    const struct lib *l = &n->lib;
    struct uop *each[2] = {q->dim[0], q->dim[1]}, *none = uop_int(n->t, 0);
    struct uop *flat[2] = {q->dim[0], sym_mul(n->t, q->dim[1], q->dim[2])};
    struct uop *z = uop_constf(n->t, d, (double)(1 << (bits - 1)));
    struct uop *group = node_rank(n, 4, 1, 1) ? lib_narrow(l, n->in[4], 0, none, depth) : NULL;
    if (!node_expect_index(n, 4, group, q->dim[1]))
        return NULL;
    if (zero)
        z = lib_cast(l, d, lib_gather(l, lib_reshape(l, zero, each, 2), group, 1));
    q = lib_narrow(l, lib_reshape(l, q, flat, 2), 1, none, depth);
    scale = lib_gather(l, lib_reshape(l, scale, each, 2), group, 1);
    return lib_mul(l, lib_sub(l, lib_cast(l, d, q), z), lib_cast(l, d, scale));
}

static const unsigned char *known_bytes(const struct uop *u, int64_t nbytes)
{
    while (u->op == OP_RESHAPE)
        u = u->src[0];
    const struct buffer *b = u->op == OP_BUFFER ? u->arg.p : NULL;
    bool known = b && b->kind == BUFFER_WEIGHT && b->weight.data && dtype_nbytes(b->dtype) == 1 &&
                 nbytes >= 0 && b->nbytes >= (size_t)nbytes;
    return known ? b->weight.data : NULL;
}

static int bits_at(const unsigned char *data, int64_t i, int bits)
{
    return data[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
}

/* Weights less their zero points as a weight of i8, [rows, blocks, block]: what vectors read. NULL:
 * not known, or no i8. */
static struct uop *centered_bytes(const struct node *n, int bits, int64_t rows, int64_t blocks,
                                  int64_t block)
{
    int64_t per_row = (blocks * bits + 7) / 8, nelem = sat_mul(sat_mul(rows, blocks), block);
    const struct uop *zero = n->in[3];
    const unsigned char *q = known_bytes(n->in[1], nelem / 8 * bits), *z = NULL;
    if (!q || nelem > INT64_MAX / 16 || (zero && (bits == 8 || !dtype_is_int(zero->dtype))) ||
        (zero && !(z = known_bytes(zero, sat_mul(rows, per_row)))))
        return NULL;
    int8_t *to = mem_array(n->t, (size_t)nelem, sizeof *to);
    for (int64_t i = 0; i < nelem; i++) {
        int64_t row = i / (blocks * block), at = i / block % blocks;
        int middle = z ? bits_at(z + row * per_row, at, bits) : 1 << (bits - 1);
        to[i] = (int8_t)(bits_at(q, i, bits) - middle);
    }
    int64_t dim[3] = {rows, blocks, block};
    return tensor_from_data(n->t, DTYPE_I8, dim, 3, to, (size_t)nelem, NULL);
}

/* a [.., K] times the transpose of weights [N, K] in blocks along K. Zero points: packed as the
 * weights are, or as floats; one for each block. */
bool lower_matmul_nbits(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    int bits;
    int64_t block, rows = node_int(n, "N", 0), depth = node_int(n, "K", 0);
    if (!block_bits(n, &bits, &block))
        return false;
    if (node_int(n, "weight_prepacked", 0))
        return node_error(n, -1, "prepacked weights are not supported; they are a CUDA kernel's");
    if (rows < 1 || depth < 1 || depth > INT64_MAX / 2 - block)
        return node_error(n, -1, "N and K must be positive");
    int64_t blocks = (depth + block - 1) / block, packed = (blocks * bits + 7) / 8;
    struct uop *dim[3] = {uop_int(t, rows), uop_int(t, blocks), uop_int(t, block * bits / 8)};
    struct uop *q = lib_reshape(l, n->in[1], dim, 3), *zero = n->in[3];
    struct uop *bytes = q && !n->in[4] ? centered_bytes(n, bits, rows, blocks, block) : NULL;
    if (!q || !(q = bytes ? bytes : unpack_bits(n, q, bits)))
        return false;
    if (bytes)
        zero = uop_consti(t, DTYPE_I8, 0);
    else if (zero && dtype_is_int(zero->dtype)) {
        struct uop *each[2] = {uop_int(t, rows), uop_int(t, packed)};
        if (!(zero = lib_reshape(l, zero, each, 2)))
            return false;
        zero = lib_narrow(l, unpack_bits(n, zero, bits), 1, uop_int(t, 0), uop_int(t, blocks));
    }
    enum dtype d = n->in[0]->dtype, wide = lib_acc_dtype(d);
    struct uop *w = n->in[4]
                        ? dequantize_groups(n, q, n->in[2], zero, bits, wide, uop_int(t, depth))
                        : dequantize_blocks(n, q, n->in[2], zero, bits, wide);
    w = w ? lib_narrow(l, w, 1, uop_int(t, 0), uop_int(t, depth)) : NULL;
    struct uop *y = lib_linear(l, lib_cast(l, wide, n->in[0]), w,
                               n->in[5] ? lib_cast(l, wide, n->in[5]) : NULL);
    return node_set(n, 0, lib_cast(l, d, y));
}

/* x with the values of each block repeated along the axis, cut to `size`. */
static struct uop *repeat_blocks(const struct node *n, struct uop *x, int axis, int64_t block,
                                 struct uop *size)
{
    struct uop *wide[MAX_RANK], *dim[MAX_RANK];
    for (int a = 0; a <= x->ndim && x->ndim < MAX_RANK; a++)
        wide[a] = a <= axis ? x->dim[a] : a == axis + 1 ? uop_int(n->t, block) : x->dim[a - 1];
    ARRAY_COPY(dim, x->dim, x->ndim);
    dim[axis] = sym_muli(n->t, dim[axis], block);
    x = tensor_insert_axis(n->t, x, axis + 1);
    return lib_narrow(&n->lib, uop_reshape(n->t, uop_expand(n->t, x, wide), dim, x->ndim - 1), axis,
                      uop_int(n->t, 0), size);
}

/* Rows of a table whose other axis is quantized in blocks: data, indices, scales, zero points. u8
 * data holds numbers of `bits` bits, packed along the last axis. */
bool lower_gather_block_quantized(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *data = n->in[0], *at = n->in[1], *part[3] = {data, n->in[2], n->in[3]};
    int bits, gather, axis;
    int64_t block;
    if (!block_bits(n, &bits, &block) || data->ndim >= MAX_RANK ||
        !node_axis(n, node_int(n, "gather_axis", 0), data->ndim, &gather) ||
        !node_axis(n, node_int(n, "quantize_axis", 1), data->ndim, &axis) ||
        !node_expect_index(n, 1, at, data->dim[gather]))
        return false;
    bool packed = data->dtype == DTYPE_U8 && bits < 8;
    if (!dtype_is_int(data->dtype) || gather == axis || (packed && gather == data->ndim - 1))
        return node_error(n, 0,
                          "integers that are gathered along another axis than they are "
                          "quantized and packed along are expected");
    for (int i = 0; i < 3; i++) {
        if (!part[i])
            continue;
        part[i] = lib_gather(l, part[i], at, gather);
        if (!part[i])
            return false;
        if (packed && i != 1)
            part[i] = unpack_bits(n, part[i], bits);
        if (!part[i])
            return false;
    }
    axis = axis > gather ? axis + at->ndim - 1 : axis;
    enum dtype d = part[1]->dtype, wide = lib_acc_dtype(d);
    struct uop *size = part[0]->dim[axis];
    struct uop *middle = uop_consti(n->t, DTYPE_I32, 1 << (bits - 1)), *zero;
    if (part[2])
        zero = repeat_blocks(n, lib_narrow(l, part[2], axis, uop_int(n->t, 0), part[1]->dim[axis]),
                             axis, block, size);
    else
        zero = data->dtype == DTYPE_U8 ? middle : uop_consti(n->t, DTYPE_I32, 0);
    struct uop *q = lib_sub(l, lib_cast(l, DTYPE_I32, part[0]), lib_cast(l, DTYPE_I32, zero));
    struct uop *scale = repeat_blocks(n, part[1], axis, block, size);
    return node_set(n, 0,
                    lib_cast(l, d, lib_mul(l, lib_cast(l, wide, q), lib_cast(l, wide, scale))));
}
