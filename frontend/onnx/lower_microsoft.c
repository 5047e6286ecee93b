/* lower_microsoft.c - com.microsoft: activations, normalizations, and convolutions and products
 * with the ops that ONNX Runtime's optimizer has fused with them.
 *
 * Fused operators are decomposed: the compiler's own fusion decides what becomes one loop.
 */
#include <math.h>
#include <string.h>

#include "frontend/onnx/microsoft.h"

bool node_view(const struct node *n, int opset, struct node_view *v)
{
    if (n->nin > MIN_SLOTS)
        return node_error(n, -1, "at most %d inputs are expected, found %d", MIN_SLOTS, n->nin);
    v->node = *n;
    v->node.opset = opset;
    v->node.in = v->in;
    memcpy(v->in, n->in, sizeof v->in);
    return true;
}

bool node_has_inputs(const struct node *n, uint32_t mask)
{
    for (int k = 0; k < 32; k++)
        if (mask >> k & 1 && (k >= n->nin || !n->in[k]))
            return node_error(n, k, "input %d is missing", k);
    return true;
}

struct uop *channels_first(const struct node *n, struct uop *x)
{
    int perm[MAX_RANK];
    if (!x)
        return NULL;
    for (int a = 0; a < x->ndim; a++)
        perm[a] = a < 1 ? 0 : a == 1 ? x->ndim - 1 : a - 1;
    return x->ndim < 3 ? x : uop_permute(n->t, x, perm);
}

struct uop *channels_last(const struct node *n, struct uop *x)
{
    int perm[MAX_RANK];
    if (!x)
        return NULL;
    for (int a = 0; a < x->ndim; a++)
        perm[a] = a < 1 ? 0 : a == x->ndim - 1 ? 1 : a + 1;
    return x->ndim < 3 ? x : uop_permute(n->t, x, perm);
}

/* ---------------------------------------------------------------------------------- activations */

struct uop *fused_activation(const struct node *n, const char *name, const double *param,
                             int nparam, struct uop *x)
{
    enum activation a;
    if (!x || !*name)
        return x;
    if (!strcmp(name, "Clip")) {
        struct uop *lo = nparam > 0 ? uop_constf(n->t, x->dtype, param[0]) : NULL;
        return lib_clip(&n->lib, x, lo, nparam > 1 ? uop_constf(n->t, x->dtype, param[1]) : NULL);
    }
    if (!activation_by_name(name, &a)) {
        node_error(n, -1, "activation '%s' is not supported", name);
        return NULL;
    }
    const struct activation_info *info = lib_activation_info(a);
    return lib_activate(&n->lib, a, x, nparam > 0 ? param[0] : info->alpha,
                        nparam > 1 ? param[1] : info->beta);
}

struct uop *conv_activation(const struct node *n, struct uop *x)
{
    const float *v;
    double param[2];
    int count = node_floats(n, "activation_params", &v);
    count = count < 0 ? 0 : count > 2 ? 2 : count;
    for (int i = 0; i < count; i++)
        param[i] = (double)v[i];
    return fused_activation(n, node_string(n, "activation", ""), param, count, x);
}

/* Gelu, FastGelu and BiasGelu: of x + bias. */
bool lower_bias_gelu(struct node *n)
{
    struct uop *x = n->in[1] ? lib_add(&n->lib, n->in[0], n->in[1]) : n->in[0];
    return node_set(n, 0, lib_activate_default(&n->lib, (enum activation)n->operator->param, x));
}

bool lower_quick_gelu(struct node *n)
{
    double alpha = node_float(n, "alpha", 1.702);
    return node_set(n, 0, lib_activate(&n->lib, ACTIVATION_SILU, n->in[0], alpha, 0));
}

/* silu(x) * scale */
bool lower_scaled_silu(struct node *n)
{
    struct uop *x = n->in[0], *scale = uop_constf(n->t, x->dtype, node_float(n, "alpha", 1));
    if (n->in[1] && !(scale = lib_cast(&n->lib, x->dtype, node_variable(n, 1))))
        return false;
    return node_set(n, 0, lib_mul(&n->lib, lib_activate(&n->lib, ACTIVATION_SILU, x, 1, 0), scale));
}

/* The left half times gelu of the right half, both with bias. */
bool lower_bias_split_gelu(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *x = lib_add(l, n->in[0], n->in[1]);
    if (!x || !node_rank(n, 0, 1, MAX_RANK))
        return false;
    struct uop *half = sym_div(n->t, x->dim[x->ndim - 1], uop_int(n->t, 2));
    struct uop *left = lib_narrow(l, x, -1, uop_int(n->t, 0), half),
               *right = lib_narrow(l, x, -1, half, half);
    return node_set(n, 0, lib_mul(l, left, lib_activate_default(l, ACTIVATION_GELU, right)));
}

/* x + bias + skip */
bool lower_bias_add(struct node *n)
{
    return node_set(n, 0, lib_add(&n->lib, lib_add(&n->lib, n->in[0], n->in[1]), n->in[2]));
}

/* Inference: data + bias + residual, mask all true. */
bool lower_bias_dropout(struct node *n)
{
    struct uop *x = lib_add(&n->lib, n->in[0], n->in[1]), *training = NULL;
    if (n->in[4] && (!(training = node_scalar(n, 4)) || !uop_is_int(training, 0)))
        return node_error(n, 4, "training is not supported");
    if (n->in[2])
        x = lib_add(&n->lib, x, n->in[2]);
    n->out[1] = x ? tensor_full(n->t, uop_bool(n->t, true), x->dim, x->ndim) : NULL;
    return node_set(n, 0, x);
}

/* softmax(x + bias), where bias lacks axes of x: the first ones, or those in front of `axis`. */
bool lower_bias_softmax(struct node *n)
{
    struct uop *x = n->in[0], *bias = n->in[1], *dim[MAX_RANK];
    int axis;
    if (!node_axis(n, node_int(n, "axis", 1), x->ndim, &axis))
        return false;
    if (node_int(n, "is_inner_broadcast", 0) && bias->ndim < x->ndim) {
        int lead = bias->ndim - (x->ndim - axis);
        if (lead < 0)
            return node_error(n, 1, "%s does not fit into %s", shape_text(n, bias),
                              shape_text(n, x));
        for (int a = 0; a < x->ndim; a++)
            dim[a] = a < lead   ? bias->dim[a]
                     : a < axis ? uop_int(n->t, 1)
                                : bias->dim[a - axis + lead];
        bias = lib_reshape(&n->lib, bias, dim, x->ndim);
    }
    uint32_t axes = lib_all_axes(x) & ~((1u << axis) - 1);
    return node_set(n, 0, lib_softmax(&n->lib, lib_add(&n->lib, x, bias), axes));
}

/* Whether no input contains NaN, infinity or either. */
bool lower_is_all_finite(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *all = uop_bool(n->t, true);
    for (int k = 0; k < n->nin; k++) {
        struct uop *x = n->in[k];
        if (!x)
            return node_error(n, k, "input %d is missing", k);
        if (!dtype_is_float(x->dtype))
            return node_error(n, k, "floats are expected, found %s", shape_text(n, x));
        x = lib_cast(l, lib_acc_dtype(x->dtype), x);
        struct uop *nan = lib_unary(l, OP_ISNAN, x),
                   *inf = lib_binaryf(l, OP_EQ, lib_unary(l, OP_ABS, x), (double)INFINITY);
        struct uop *bad = node_int(n, "isinf_only", 0)   ? inf
                          : node_int(n, "isnan_only", 0) ? nan
                                                         : lib_binary(l, OP_OR, nan, inf);
        all = lib_binary(l, OP_AND, all, node_all(n, uop_not(n->t, bad)));
    }
    return node_set(n, 0, all);
}

/* ------------------------------------------------------------------------------- normalizations */

/* 1 / sqrt(mean of x^2 + eps) over the last axes, kept. */
static struct uop *inverse_rms(const struct node *n, struct uop *x, int axis, double eps)
{
    const struct lib *l = &n->lib;
    x = lib_cast(l, lib_acc_dtype(x->dtype), x);
    struct uop *mean =
        lib_reduce(l, REDUCE_MEAN, lib_mul(l, x, x), lib_all_axes(x) & ~((1u << axis) - 1), true);
    struct uop *root = lib_unary(l, OP_SQRT, lib_binaryf(l, OP_ADD, mean, eps));
    return lib_unary(l, OP_RECIP, root);
}

/* ai.onnx's SimplifiedLayerNormalization, which only ONNX Runtime has. */
bool lower_simplified_layer_norm(struct node *n)
{
    int axis;
    double eps = node_float(n, "epsilon", 1e-5);
    if (!node_axis(n, node_int(n, "axis", -1), n->in[0]->ndim, &axis))
        return false;
    if (n->nout > 1)
        n->out[1] = inverse_rms(n, n->in[0], axis, eps);
    return node_set(n, 0, lib_rms_norm(&n->lib, n->in[0], n->in[1], axis, eps));
}

/* Skip(Simplified)LayerNormalization: of input + skip + bias; the sum is output 3. */
bool lower_skip_layer_norm(struct node *n)
{
    const struct lib *l = &n->lib;
    bool simplified = n->operator->param != 0;
    struct uop *bias = n->in[simplified ? 3 : 4], *mean = NULL, *inv = NULL;
    double eps = node_float(n, "epsilon", 1e-12);
    enum dtype d = n->in[0]->dtype, wide = lib_acc_dtype(d);
    struct uop *sum = lib_add(l, lib_cast(l, wide, n->in[0]), lib_cast(l, wide, n->in[1]));
    if (bias)
        sum = lib_add(l, sum, lib_cast(l, wide, bias));
    if (!sum)
        return false;
    struct uop *scale = lib_cast(l, wide, n->in[2]), *y;
    if (simplified)
        y = lib_rms_norm(l, sum, scale, -1, eps);
    else
        y = lib_layer_norm(l, sum, scale, n->in[3] ? lib_cast(l, wide, n->in[3]) : NULL, -1, eps,
                           &mean, &inv);
    n->out[1] = mean;
    n->out[2] = simplified && n->nout > 2 ? inverse_rms(n, sum, sum->ndim - 1, eps) : inv;
    if (simplified && n->nout > 1 && *n->proto->output[1])
        return node_error(n, -1, "the mean is not computed by this operator");
    n->out[3] = lib_cast(l, d, sum);
    return node_set(n, 0, lib_cast(l, d, y));
}

/* How many elements of each row of the mask (input k) are 1; zeros without a mask. i32 [b] */
static struct uop *mask_lengths(const struct node *n, int k, struct uop *ids)
{
    if (!n->in[k])
        return lib_full(&n->lib, DTYPE_I32, 0, ids->dim, 1);
    if (!node_rank(n, k, 2, 2))
        return NULL;
    struct uop *one = lib_binaryf(&n->lib, OP_EQ, n->in[k], 1);
    return lib_reduce(&n->lib, REDUCE_SUM, lib_cast(&n->lib, DTYPE_I32, one), 1u << 1, false);
}

/* Rows of table k at the indices of input `at`, with a check; ids NULL: 0, 1, ... */
static struct uop *embed(const struct node *n, int k, int at, struct uop *ids)
{
    struct uop *table = n->in[k];
    if (!node_rank(n, k, 2, 2) || !node_expect_index(n, at, ids, table->dim[0]))
        return NULL;
    return lib_gather(&n->lib, table, ids, 0);
}

/* A gathered table, or one that is quantized, as f32. scale, zero: inputs. */
static struct uop *dequantized(const struct node *n, struct uop *x, int scale, int zero)
{
    const struct lib *l = &n->lib;
    struct uop *s = n->in[scale] ? node_scalar(n, scale) : NULL,
               *z = n->in[zero] ? node_scalar(n, zero) : NULL;
    if (!s || !z) {
        node_error(n, scale, "a scale and a zero point are expected");
        return NULL;
    }
    x = lib_sub(l, lib_cast(l, DTYPE_I32, x), lib_cast(l, DTYPE_I32, z));
    return lib_mul(l, lib_cast(l, s->dtype, x), s);
}

/* (Q)EmbedLayerNormalization: the layer norm of word + position + segment embeddings. The quantized
 * one has its scales from input 8 and its zero points from input 13 on. */
bool lower_embed_layer_norm(struct node *n)
{
    const struct lib *l = &n->lib;
    bool quantized = n->operator->param != 0;
    struct uop *ids = n->in[0], *position, *mean = NULL, *inv = NULL;
    if (!node_has_inputs(n, (quantized ? 0x37b6d : 0x6d) | (n->in[1] ? 1u << 4 : 0)) ||
        !node_rank(n, 0, 2, 2) || (n->in[1] && !node_rank(n, 1, 2, 2)))
        return false;
    struct uop *given = quantized ? NULL : n->in[8];
    if (given)
        position = embed(n, 3, 8, given);
    else
        position = lib_narrow(l, n->in[3], 0, uop_int(n->t, 0), ids->dim[1]);
    struct uop *part[3] = {embed(n, 2, 0, ids), position, NULL};
    if (n->in[1] && !(part[2] = embed(n, 4, 1, n->in[1])))
        return false;
    struct uop *gamma = n->in[5], *beta = n->in[6];
    for (int i = 0; i < 3 && quantized && part[0] && part[1]; i++)
        part[i] = part[i] ? dequantized(n, part[i], 8 + i, 13 + i) : NULL;
    if (quantized) {
        gamma = dequantized(n, gamma, 11, 16);
        beta = dequantized(n, beta, 12, 17);
    }
    struct uop *sum = lib_add(l, part[0], part[1]);
    if (n->in[1])
        sum = lib_add(l, sum, part[2]);
    if (!sum || !gamma || !beta)
        return false;
    n->out[1] = mask_lengths(n, 7, ids);
    n->out[2] = sum;
    return n->out[1] && node_set(n, 0,
                                 lib_layer_norm(l, sum, gamma, beta, -1,
                                                node_float(n, "epsilon", 1e-12), &mean, &inv));
}

/* (Skip)GroupNorm: of x, or of x + skip + bias, which is output 1; channels are last by default. */
bool lower_microsoft_group_norm(struct node *n)
{
    const struct lib *l = &n->lib;
    bool last = node_int(n, "channels_last", 1) != 0, skips = n->operator->param != 0;
    struct uop *x = n->in[0], *skip = n->in[3], *scale = n->in[1], *bias = n->in[2];
    int64_t groups = node_int(n, "groups", 0), activation = node_int(n, "activation", 0);
    if (!node_rank(n, 0, 3, MAX_RANK) || groups < 1 || activation < 0 || activation > 1)
        return node_error(n, -1, "groups must be positive, and activation 0 or 1");
    x = last ? channels_first(n, x) : x;
    if (skips) {
        if (skip->ndim == 2) {
            struct uop *dim[MAX_RANK] = {skip->dim[0], skip->dim[1]};
            for (int a = 2; a < x->ndim; a++)
                dim[a] = uop_int(n->t, 1);
            skip = uop_reshape(n->t, skip, dim, x->ndim);
        } else if (last) {
            skip = channels_first(n, skip);
        }
        x = lib_add(l, x, skip);
        if (n->in[4] && x) {
            if (!node_rank(n, 4, 1, 1))
                return false;
            struct uop *dim[MAX_RANK] = {n->in[4]->dim[0]};
            for (int a = 1; a < x->ndim - 1; a++)
                dim[a] = uop_int(n->t, 1);
            x = lib_add(l, x, lib_reshape(l, n->in[4], dim, x->ndim - 1));
        }
        n->out[1] = last ? channels_last(n, x) : x;
    }
    if (!x)
        return false;
    enum dtype d = x->dtype, wide = lib_acc_dtype(d);
    struct uop *y = lib_group_norm(l, lib_cast(l, wide, x), lib_cast(l, wide, scale),
                                   lib_cast(l, wide, bias), groups, node_float(n, "epsilon", 1e-5));
    if (activation)
        y = lib_activate(l, ACTIVATION_SILU, y, 1, 0);
    y = lib_cast(l, d, y);
    return node_set(n, 0, last ? channels_last(n, y) : y);
}

/* ----------------------------------------------------------------------- products, convolutions */

/* FusedConv, and in channels-last form NhwcFusedConv and NhwcConv: act(conv(x, w) + b + z). */
bool lower_fused_conv(struct node *n)
{
    struct window_attr a;
    bool last = n->operator->param != 0;
    struct uop *x = last ? channels_first(n, n->in[0]) : n->in[0], *w = n->in[1];
    if (!window_attributes(n, x, &a) || !node_rank(n, 1, x->ndim, x->ndim))
        return false;
    struct uop *y = lib_conv(&n->lib, x, w, n->in[2], &a);
    if (n->in[3])
        y = lib_add(&n->lib, y, last ? channels_first(n, n->in[3]) : n->in[3]);
    y = conv_activation(n, y);
    return node_set(n, 0, last ? channels_last(n, y) : y);
}

/* The second parameter of an activation (as of Selu) is called gamma here. */
bool lower_fused_gemm(struct node *n)
{
    const char *name = node_string(n, "activation", "");
    enum activation a;
    if (*name && !activation_by_name(name, &a))
        return node_error(n, -1, "activation '%s' is not supported", name);
    const struct activation_info *info = *name ? lib_activation_info(a) : NULL;
    if (!lower_gemm(n) || !info)
        return !info && n->out[0];
    double alpha = node_float(n, "activation_alpha", info->alpha);
    const char *second = node_has(n, "activation_gamma") ? "activation_gamma" : "activation_beta";
    return node_set(n, 0, lib_activate(&n->lib, a, n->out[0], alpha,
                                       node_float(n, second, info->beta)));
}

/* transBatch moves the first axis after the other batch axes; trans swaps the last two. */
static struct uop *transposed(const struct node *n, struct uop *x, bool batch, bool matrix)
{
    int perm[MAX_RANK], r = x->ndim;
    for (int a = 0; a < r; a++)
        perm[a] = batch && a < r - 2 ? a + 1 : batch && a == r - 2 ? 0 : a;
    if (matrix) {
        int a = perm[r - 1];
        perm[r - 1] = perm[r - 2];
        perm[r - 2] = a;
    }
    return uop_permute(n->t, x, perm);
}

bool lower_fused_matmul(struct node *n)
{
    struct uop *v[2];
    for (int k = 0; k < 2; k++) {
        bool batch = node_int(n, k ? "transBatchB" : "transBatchA", 0) != 0;
        bool matrix = node_int(n, k ? "transB" : "transA", 0) != 0;
        v[k] = n->in[k];
        if (v[k]->ndim >= 2 && (batch || matrix))
            v[k] = transposed(n, v[k], batch && v[k]->ndim > 2, matrix);
    }
    double alpha = node_float(n, "alpha", 1);
    struct uop *y = lib_matmul(&n->lib, v[0], v[1]);
    return node_set(n, 0, alpha == 1 ? y : lib_binaryf(&n->lib, OP_MUL, y, alpha));
}

/* GemmFastGelu: gelu(x w + b), in the tanh form. */
bool lower_gemm_fast_gelu(struct node *n)
{
    struct uop *y = lib_matmul(&n->lib, n->in[0], n->in[1]);
    if (n->in[2])
        y = lib_add(&n->lib, y, n->in[2]);
    return node_set(n, 0, lib_activate_default(&n->lib, ACTIVATION_GELU_TANH, y));
}

/* Squared distances of the rows of a from those of b, or their roots. */
bool lower_cdist(struct node *n)
{
    const struct lib *l = &n->lib;
    const char *metric = node_string(n, "metric", "sqeuclidean");
    bool root = !strcmp(metric, "euclidean");
    if (!root && strcmp(metric, "sqeuclidean"))
        return node_error(n, -1, "metric '%s' is not supported; euclidean and sqeuclidean are",
                          metric);
    if (!node_rank(n, 0, 2, 2) || !node_rank(n, 1, 2, 2))
        return false;
    struct uop *off =
        lib_sub(l, tensor_insert_axis(n->t, n->in[0], 1), tensor_insert_axis(n->t, n->in[1], 0));
    struct uop *sum = lib_reduce(l, REDUCE_SUM, lib_mul(l, off, off), 1u << 2, false);
    return node_set(n, 0, root ? lib_unary(l, OP_SQRT, sum) : sum);
}

/* ------------------------------------------------------------- forerunners of ai.onnx operators */

bool lower_microsoft_pad(struct node *n)
{
    struct node_view v;
    return node_view(n, 11, &v) && lower_pad(&v.node);
}

/* Range with a step that may be left out. */
bool lower_microsoft_range(struct node *n)
{
    struct node_view v;
    if (!node_view(n, 11, &v))
        return false;
    if (!v.in[2])
        v.in[2] = lib_scalar(&n->lib, n->in[0], 1);
    return lower_range(&v.node);
}

bool lower_expand_dims(struct node *n)
{
    int64_t axis;
    return node_known_int(n, 1, &axis) &&
           node_set(n, 0, lib_unsqueeze(&n->lib, n->in[0], &axis, 1));
}

/* T5's buckets of relative positions: exact below half of them, then logarithmic up to
 * max_distance. bias_table [buckets, heads], column after column, -> [1, heads, q, k]. */
bool lower_relative_position_bias(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop **elem[2], *dim[2];
    int64_t buckets, most = node_int(n, "max_distance", 0);
    bool both = node_int(n, "is_bidirectional", 0) != 0;
    int count[2];
    for (int k = 0; k < 2; k++) {
        if (!node_symbols(n, 1 + k, &elem[k], &count[k]))
            return false;
        if (count[k] != 1)
            return node_error(n, 1 + k, "one length is expected");
        dim[k] = elem[k][0];
    }
    if (!node_rank(n, 0, 2, 2) || !uop_const_int(n->in[0]->dim[0], &buckets) || buckets < 4)
        return node_error(n, 0, "a table of a fixed number of buckets is expected, found %s",
                          shape_text(n, n->in[0]));
    buckets = both ? buckets / 2 : buckets;
    int64_t exact = buckets / 2;
    if (most <= exact)
        return node_error(n, -1, "max_distance is %lld; it must be above %lld", (long long)most,
                          (long long)exact);
    struct uop *ahead = lib_sub(l, tensor_iota(t, dim, 2, 1), tensor_iota(t, dim, 2, 0)),
               *zero = uop_int(t, 0), *base = zero;
    struct uop *distance = lib_unary(l, OP_NEG, ahead);
    if (both) {
        base = lib_where(l, lib_binary(l, OP_LT, zero, ahead), uop_int(t, buckets), zero);
        distance = lib_unary(l, OP_ABS, distance);
    }
    distance = lib_binary(l, OP_MAX, distance, zero);
    struct uop *f = lib_cast(l, DTYPE_F32, distance);
    struct uop *log_ratio =
        lib_unary(l, OP_LOG, lib_binaryf(l, OP_DIV, lib_binaryf(l, OP_MAX, f, 1), (double)exact));
    struct uop *far =
        lib_binaryf(l, OP_MUL, lib_binaryf(l, OP_DIV, log_ratio, log((double)most / (double)exact)),
                    (double)(buckets - exact));
    far = lib_binary(l, OP_ADD, lib_cast(l, DTYPE_INDEX, far), uop_int(t, exact));
    far = lib_binary(l, OP_MIN, far, uop_int(t, buckets - 1));
    struct uop *bucket =
        lib_where(l, lib_binary(l, OP_LT, distance, uop_int(t, exact)), distance, far);
    struct uop *order[2] = {n->in[0]->dim[1], n->in[0]->dim[0]};
    struct uop *row =
        lib_gather(l, lib_reshape(l, n->in[0], order, 2), lib_add(l, bucket, base), 1);
    return node_set(n, 0, row ? tensor_insert_axis(t, row, 0) : NULL);
}
