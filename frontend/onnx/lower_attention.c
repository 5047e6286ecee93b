/* lower_attention.c - attention, rotary embeddings, and recurrences that replace attention.
 *
 * What a query may see is one bool tensor (causal, windows, the number of real keys, a bool mask)
 * and one float tensor (a float mask); lib_attention() does the rest. The scores themselves are
 * computed separately, only if a model has them as an output.
 */
#include <math.h>
#include <string.h>

#include "frontend/onnx/lower.h"

struct uop *heads_unpack(const struct node *n, int k, struct uop *x, int64_t heads)
{
    int64_t width;
    if (!x)
        return NULL;
    if (heads < 1 || (uop_const_int(x->dim[2], &width) && width % heads)) {
        node_error(n, k, "%s does not split into %lld heads", shape_text(n, x), (long long)heads);
        return NULL;
    }
    struct uop *count = uop_int(n->t, heads),
               *dim[4] = {x->dim[0], x->dim[1], count, sym_div(n->t, x->dim[2], count)};
    return uop_permute(n->t, uop_reshape(n->t, x, dim, 4), (int[]){0, 2, 1, 3});
}

struct uop *heads_pack(const struct node *n, struct uop *x)
{
    if (!x)
        return NULL;
    struct uop *dim[3] = {x->dim[0], x->dim[2], sym_mul(n->t, x->dim[1], x->dim[3])};
    return uop_reshape(n->t, uop_permute(n->t, x, (int[]){0, 2, 1, 3}), dim, 3);
}

/* Each head `group` times: [b, h, s, e] -> [b, h * group, s, e]. */
static struct uop *repeat_heads(const struct node *n, struct uop *x, const struct uop *q)
{
    int64_t h, hk;
    if (!uop_const_int(q->dim[1], &h) || !uop_const_int(x->dim[1], &hk) || hk < 1 || h % hk) {
        node_error(n, -1, "%s and %s: the heads of one must be a multiple of those of the other",
                   shape_text(n, q), shape_text(n, x));
        return NULL;
    }
    struct uop *wide[5] = {x->dim[0], x->dim[1], uop_int(n->t, h / hk), x->dim[2], x->dim[3]};
    struct uop *dim[4] = {x->dim[0], q->dim[1], x->dim[2], x->dim[3]};
    return uop_reshape(n->t, uop_expand(n->t, tensor_insert_axis(n->t, x, 2), wide), dim, 4);
}

struct attention {
    struct uop *q, *k, *v; /* [b, h, l, e], [b, hk, s, e], [b, hk, s, ev] */
    struct uop *allowed;   /* bool, NULL: all */
    struct uop *bias;      /* float, NULL: none */
    double scale, softcap;
    struct attention_attr attr;
};

/* A mask whose last axis is shorter than the keys hides the rest. */
static struct uop *pad_mask(const struct node *n, struct uop *mask, struct uop *nkeys)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    int last = mask->ndim - 1;
    if (mask->ndim == 0 || sym_equal(n->t, mask->dim[last], nkeys) ||
        uop_is_int(mask->dim[last], 1))
        return mask;
    for (int a = 0; a <= last; a++)
        lo[a] = hi[a] = uop_int(n->t, 0);
    hi[last] = sym_sub(n->t, nkeys, mask->dim[last]);
    struct uop *hidden = mask->dtype == DTYPE_BOOL
                             ? uop_bool(n->t, false)
                             : uop_constf(n->t, mask->dtype, -(double)INFINITY);
    return lib_pad(&n->lib, mask, PAD_MODE_CONSTANT, hidden, lo, hi);
}

static struct uop *both(const struct node *n, struct uop *a, struct uop *b)
{
    return a && b ? lib_binary(&n->lib, OP_AND, a, b) : a ? a : b;
}

/* The keys that a query sees by position. offset: [b, 1, 1, 1] or a scalar, added to the query's
 * index. */
static bool see_by_position(const struct node *n, struct attention *a, struct uop *offset,
                            bool per_batch)
{
    int64_t left = node_int(n, "left_window_size", -1),
            right = node_int(n, "right_window_size", -1);
    bool causal = node_int(n, "is_causal", 0) != 0;
    if (left < -1 || right < -1)
        return node_error(n, -1, "window sizes must be -1 or more");
    if (!per_batch && left < 0 && right < 0) { /* the library handles these */
        a->attr.causal = causal;
        a->attr.offset = offset;
        return true;
    }
    struct uop *dim[2] = {a->q->dim[2], a->k->dim[2]}, *key = tensor_iota(n->t, dim, 2, 1);
    struct uop *at = lib_add(&n->lib, tensor_iota(n->t, dim, 2, 0), offset);
    struct uop *ahead = lib_sub(&n->lib, key, at);
    if (!ahead)
        return false;
    if (causal)
        right = 0;
    if (right >= 0)
        a->allowed = both(n, a->allowed,
                          uop_not(n->t, lib_binary(&n->lib, OP_LT, uop_int(n->t, right), ahead)));
    if (left >= 0)
        a->allowed = both(n, a->allowed,
                          uop_not(n->t, lib_binary(&n->lib, OP_LT, ahead, uop_int(n->t, -left))));
    return true;
}

static bool attention_masks(const struct node *n, struct attention *a)
{
    struct tgc *t = n->t;
    struct uop *offset = uop_int(t, 0), *mask = n->in[3], *real = n->in[6];
    if (n->in[4])
        offset = n->in[4]->dim[2];
    if (real) {
        struct uop *dim[4] = {a->q->dim[0], uop_int(t, 1), uop_int(t, 1), uop_int(t, 1)};
        if (n->in[4])
            return node_error(n, 6, "nonpad_kv_seqlen and past_key exclude each other");
        if (!(real = lib_reshape(&n->lib, lib_cast(&n->lib, DTYPE_INDEX, real), dim, 4)))
            return false;
        offset = lib_sub(&n->lib, real, a->q->dim[2]);
        struct uop *keys[4] = {uop_int(t, 1), uop_int(t, 1), uop_int(t, 1), a->k->dim[2]};
        a->allowed = lib_binary(&n->lib, OP_LT, tensor_iota(t, keys, 4, 3), real);
    }
    if (!see_by_position(n, a, offset, real != NULL))
        return false;
    if (mask && !(mask = pad_mask(n, mask, a->k->dim[2])))
        return false;
    if (mask && mask->dtype == DTYPE_BOOL)
        a->allowed = both(n, a->allowed, mask);
    else if (mask)
        a->bias = mask;
    return true;
}

/* The value added to the scores: 0, a float mask, or -inf; NULL: none. */
static struct uop *whole_bias(const struct node *n, const struct attention *a, struct uop *allowed,
                              enum dtype d)
{
    struct uop *bias = a->bias ? lib_cast(&n->lib, d, a->bias) : NULL,
               *hidden = uop_constf(n->t, d, -(double)INFINITY);
    if (!allowed)
        return bias;
    return lib_where(&n->lib, allowed, bias ? bias : uop_constf(n->t, d, 0), hidden);
}

struct uop *attention_products(const struct node *n, struct uop *q, struct uop *k, double scale,
                               double softcap)
{
    const struct lib *l = &n->lib;
    enum dtype acc = lib_acc_dtype(q->dtype);
    k = repeat_heads(n, k, q);
    if (!k)
        return NULL;
    struct uop *s = lib_matmul(l, lib_cast(l, acc, q),
                               uop_permute(n->t, lib_cast(l, acc, k), (int[]){0, 1, 3, 2}));
    s = lib_binaryf(l, OP_MUL, s, scale);
    if (softcap != 0 && s)
        s = lib_binaryf(l, OP_MUL, lib_unary(l, OP_TANH, lib_binaryf(l, OP_DIV, s, softcap)),
                        softcap);
    return s;
}

/* source: ONNX Attention, qk_matmul_output_mode: 0 the products, 1 after softcap, 2 after the
 * masks, 3 after softmax */
static struct uop *attention_scores(const struct node *n, const struct attention *a, int64_t mode)
{
    const struct lib *l = &n->lib;
    enum dtype acc = lib_acc_dtype(a->q->dtype);
    struct uop *s = attention_products(n, a->q, a->k, a->scale, mode >= 1 ? a->softcap : 0);
    struct uop *allowed = a->allowed;
    if (a->attr.causal) {
        struct uop *dim[2] = {a->q->dim[2], a->k->dim[2]};
        struct uop *at = lib_add(l, tensor_iota(n->t, dim, 2, 0), a->attr.offset);
        allowed =
            both(n, allowed, uop_not(n->t, lib_binary(l, OP_LT, at, tensor_iota(n->t, dim, 2, 1))));
    }
    struct uop *bias = whole_bias(n, a, allowed, acc);
    if (mode >= 2 && bias)
        s = lib_add(l, s, bias);
    if (mode >= 3 && s) {
        struct uop *top =
            lib_reduce(l, REDUCE_MAX, bias ? bias : s, 1u << ((bias ? bias : s)->ndim - 1), true);
        struct uop *nothing = lib_binaryf(l, OP_EQ, top, -(double)INFINITY);
        s = lib_softmax(l, s, 1u << 3);
        s = bias ? lib_where(l, nothing, lib_scalar(l, s, 0), s) : s;
    }
    return lib_cast(l, a->q->dtype, s);
}

static bool attention_operands(const struct node *n, struct attention *a)
{
    bool packed = n->in[0]->ndim == 3;
    for (int k = 0; k < 3; k++)
        if (!node_rank(n, k, packed ? 3 : 4, packed ? 3 : 4))
            return false;
    a->q = packed ? heads_unpack(n, 0, n->in[0], node_int(n, "q_num_heads", 0)) : n->in[0];
    a->k = packed ? heads_unpack(n, 1, n->in[1], node_int(n, "kv_num_heads", 0)) : n->in[1];
    a->v = packed ? heads_unpack(n, 2, n->in[2], node_int(n, "kv_num_heads", 0)) : n->in[2];
    if (!a->q || !a->k || !a->v)
        return false;
    if (!n->in[4] != !n->in[5])
        return node_error(n, 4, "past_key and past_value go together");
    if (n->in[4]) {
        if (!node_rank(n, 4, 4, 4) || !node_rank(n, 5, 4, 4))
            return false;
        a->k = lib_concat(&n->lib, (struct uop *[]){n->in[4], a->k}, 2, 2);
        a->v = lib_concat(&n->lib, (struct uop *[]){n->in[5], a->v}, 2, 2);
    }
    return a->k && a->v;
}

/* What scores are multiplied with; the default is computed, so it is no f32 as attributes are. */
static double scale_of(const struct node *n, int64_t width)
{
    return node_has(n, "scale") ? node_float(n, "scale", 0) : 1 / sqrt((double)width);
}

bool lower_attention(struct node *n)
{
    struct attention a = {0};
    int64_t width;
    if (!attention_operands(n, &a) || !attention_masks(n, &a))
        return false;
    if (!uop_const_int(a.q->dim[3], &width) || width < 1)
        return node_error(n, 0, "the size of a head must be fixed, found %s", shape_text(n, a.q));
    a.scale = scale_of(n, width);
    a.softcap = node_float(n, "softcap", 0);
    a.attr.scale = a.scale;
    a.attr.softcap = a.softcap;
    a.attr.precision = node_dtype(n, "softmax_precision", DTYPE_VOID);
    if (a.attr.precision != DTYPE_VOID && !dtype_is_float(a.attr.precision))
        return node_error(n, -1, "softmax_precision names no float type");
    struct uop *mask = a.bias ? whole_bias(n, &a, a.allowed, a.q->dtype) : a.allowed;
    /* its own dtype in present_value, that of q and k, which y has, in the product */
    struct uop *v = lib_cast(&n->lib, a.q->dtype, a.v);
    struct uop *y = lib_attention(&n->lib, a.q, a.k, v, mask, &a.attr);
    n->out[1] = a.k;
    n->out[2] = a.v;
    if (n->nout > 3 && *n->proto->output[3] &&
        !node_set(n, 3, attention_scores(n, &a, node_int(n, "qk_matmul_output_mode", 0))))
        return false;
    return node_set(n, 0, n->in[0]->ndim == 3 ? heads_pack(n, y) : y);
}

/* -------------------------------------------------------------------------------- FlexAttention */

/* The scores or probabilities through a subgraph of one input and one output. */
static struct uop *modify(const struct node *n, const char *name, struct uop *x)
{
    const GraphProto *g =
        node_has(n, name) ? onnx_attr_graph(lower_model(n->lower), n->proto, name) : NULL;
    if (!g || !x)
        return x;
    struct value *in = value_tensor(n->t, x), *out;
    if (g->n_output != 1) {
        node_error(n, -1, "the graph '%s' must have one output", name);
        return NULL;
    }
    return lower_subgraph(n, g, &in, 1, &out) ? out->tensor : NULL;
}

bool lower_flex_attention(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *q = n->in[0];
    int64_t width;
    for (int k = 0; k < 3; k++)
        if (!node_rank(n, k, 4, 4))
            return false;
    struct uop *k = repeat_heads(n, n->in[1], q), *v = repeat_heads(n, n->in[2], q);
    if (!k || !v)
        return false;
    if (!uop_const_int(q->dim[3], &width) || width < 1)
        return node_error(n, 0, "the size of a head must be fixed, found %s", shape_text(n, q));
    enum dtype d = node_dtype(n, "softmax_precision", lib_acc_dtype(q->dtype));
    if (!dtype_is_float(d))
        return node_error(n, -1, "softmax_precision names no float type");
    struct uop *s =
        lib_matmul(l, lib_cast(l, d, q), uop_permute(n->t, lib_cast(l, d, k), (int[]){0, 1, 3, 2}));
    s = modify(n, "score_mod", lib_binaryf(l, OP_MUL, s, scale_of(n, width)));
    if (!s || s->ndim != 4)
        return s ? node_error(n, -1, "the graph 'score_mod' must keep the shape") : false;
    struct uop *p = modify(n, "prob_mod", lib_softmax(l, s, 1u << 3));
    return node_set(n, 0, lib_cast(l, n->in[2]->dtype, lib_matmul(l, p, lib_cast(l, d, v))));
}

/* ----------------------------------------------------------------------------- rotary embedding */

bool lower_rotary_embedding(struct node *n)
{
    struct uop *x = n->in[0], *table[2] = {n->in[1], n->in[2]};
    bool packed = x->ndim == 3;
    if (!node_rank(n, 0, 3, 4))
        return false;
    if (packed && !(x = heads_unpack(n, 0, n->in[0], node_int(n, "num_heads", 0))))
        return false;
    for (int i = 0; i < 2; i++) {
        if (n->in[3])
            table[i] = lib_gather(&n->lib, table[i], n->in[3], 0);
        if (!table[i])
            return false;
        if (table[i]->ndim != 3)
            return node_error(n, 1 + i,
                              "one row for each position of each batch is expected, found %s",
                              shape_text(n, table[i]));
        table[i] = tensor_insert_axis(n->t, table[i], 1);
    }
    int64_t rotary = node_int(n, "rotary_embedding_dim", 0), half;
    if (rotary > 0 && uop_const_int(table[0]->dim[3], &half) && half != rotary / 2)
        return node_error(n, 1, "rotary_embedding_dim is %lld, but the table has rows of %lld",
                          (long long)rotary, (long long)half);
    struct uop *y = lib_rope(&n->lib, x, table[0], table[1], node_int(n, "interleaved", 0) != 0);
    return node_set(n, 0, packed ? heads_pack(n, y) : y);
}

/* ----------------------------------------------------------------------------- linear attention */

/* [b, t, h] or [b, t, h * d] as [b, h, t, 1 or d] in f32 */
static struct uop *gate_operand(const struct node *n, int k, int64_t heads)
{
    int64_t width;
    if (!n->in[k]) {
        node_error(n, k, "input %d is missing for this update_rule", k);
        return NULL;
    }
    if (!node_rank(n, k, 3, 3) || !uop_const_int(n->in[k]->dim[2], &width))
        return NULL;
    return lib_cast(&n->lib, DTYPE_F32,
                    heads_unpack(n, k, n->in[k], width < heads ? width : heads));
}

/* State S [b, h, dk, dv], for each position: S = exp(g) S; v = beta (v - S^T k); S += k v^T; o =
 * scale q^T S. */
bool lower_linear_attention(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    const char *rule = node_string(n, "update_rule", "gated_delta");
    bool gated = !strncmp(rule, "gated", 5), delta = strstr(rule, "delta") != NULL;
    int64_t heads = node_int(n, "kv_num_heads", 0), q_heads = node_int(n, "q_num_heads", 0), width;
    if (strcmp(rule, "linear") && !gated && strcmp(rule, "delta"))
        return node_error(n, -1, "update_rule '%s' is not supported", rule);
    if (heads < 1 || q_heads < 1 || q_heads % heads)
        return node_error(n, -1, "q_num_heads must be a positive multiple of kv_num_heads");
    for (int k = 0; k < 3; k++)
        if (!node_rank(n, k, 3, 3))
            return false;
    struct uop *q = lib_cast(l, DTYPE_F32, heads_unpack(n, 0, n->in[0], q_heads)),
               *k = lib_cast(l, DTYPE_F32, heads_unpack(n, 1, n->in[1], heads));
    struct uop *v = lib_cast(l, DTYPE_F32, heads_unpack(n, 2, n->in[2], heads)), *g = NULL,
               *beta = NULL;
    if (!q || !k || !v || (gated && !(g = gate_operand(n, 4, heads))) ||
        (delta && !(beta = gate_operand(n, 5, heads))))
        return false;
    if (!uop_const_int(q->dim[3], &width) || width < 1)
        return node_error(n, 0, "the size of a head must be fixed, found %s", shape_text(n, q));
    double scale = node_float(n, "scale", 0);
    scale = scale == 0 ? 1 / sqrt((double)width) : scale;
    struct uop *dim[4] = {q->dim[0], uop_int(t, heads), k->dim[3], v->dim[3]};
    struct uop *init = n->in[3] ? lib_broadcast_to(l, lib_cast(l, DTYPE_F32, n->in[3]), dim, 4)
                                : lib_full(l, DTYPE_F32, 0, dim, 4);
    if (!init)
        return false;
    struct lib_loop *loop = lib_loop_begin(l, q->dim[2], NULL, &init, 1);
    if (!loop)
        return false;
    struct uop *s = loop->param[0], *at = loop->counter;
    struct uop *qt = node_slice_at(n, q, 2, at), *kt = node_slice_at(n, k, 2, at),
               *vt = node_slice_at(n, v, 2, at);
    if (gated) /* [b, h, 1 or dk] -> [b, h, ., 1] */
        s = lib_mul(l, s,
                    tensor_insert_axis(t, lib_unary(l, OP_EXP, node_slice_at(n, g, 2, at)), 3));
    if (delta) {
        struct uop *retrieved = lib_einsum(l, "bhdm,bhd->bhm", (struct uop *[]){s, kt}, 2);
        vt = lib_mul(l, node_slice_at(n, beta, 2, at), lib_sub(l, vt, retrieved));
    }
    if (!s || !vt)
        return false;
    s = lib_add(l, s, lib_mul(l, tensor_insert_axis(t, kt, 3), tensor_insert_axis(t, vt, 2)));
    struct uop *o =
        s ? lib_einsum(l, "bhd,bhdm->bhm", (struct uop *[]){qt, repeat_heads(n, s, q)}, 2) : NULL;
    if (!(o = lib_binaryf(l, OP_MUL, o, scale)))
        return false;
    struct uop *all = lib_loop_end(l, loop, NULL, &s, &o, 1, q->dim[2]);
    if (!all)
        return false;
    struct uop *y = lib_permute(l, lib_get(l, all, 1), (int64_t[]){1, 2, 0, 3},
                                4); /* [t, b, h, m] -> [b, h, t, m] */
    enum dtype state = n->in[3] ? n->in[3]->dtype : n->in[0]->dtype;
    n->out[1] = lib_cast(l, state, lib_get(l, all, 0));
    return node_set(n, 0, lib_cast(l, n->in[0]->dtype, heads_pack(n, y)));
}

/* [b, t, channels in any number of axes] -> [b, channels, t], and back into the dimensions of `as`
 * but for t. */
static struct uop *sequence_last(const struct node *n, struct uop *x)
{
    struct uop *dim[3];
    if (x->ndim < 3)
        return x;
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    dim[2] = sym_prod(n->t, x->dim + 2, x->ndim - 2);
    return lib_permute(&n->lib, lib_reshape(&n->lib, x, dim, 3), (int64_t[]){0, 2, 1}, 3);
}

static struct uop *sequence_first(const struct node *n, struct uop *x, const struct uop *as)
{
    struct uop *dim[MAX_RANK];
    if (!x || !(x = lib_permute(&n->lib, x, (int64_t[]){0, 2, 1}, 3)))
        return NULL;
    for (int a = 0; a < as->ndim; a++)
        dim[a] = a == 1 ? x->dim[1] : as->dim[a];
    return lib_reshape(&n->lib, x, dim, as->ndim);
}

/* The attributes that com.microsoft adds. */
static bool causal_conv_layout(const struct node *n, int64_t *dilation, bool *last)
{
    *dilation = node_int(n, "dilation", 1);
    *last = node_int(n, "channels_last", 0) != 0;
    if (node_int(n, "ndim", 1) != 1 || node_int(n, "state_window", 0))
        return node_error(n, -1,
                          "ndim other than 1 and state_window are not supported; they are the "
                          "CUDA kernel's");
    if (*dilation < 1 || *dilation > INT32_MAX)
        return node_error(n, -1, "dilation is %lld; it must be positive", (long long)*dilation);
    return node_rank(n, 0, 3, *last ? MAX_RANK : 3) && node_rank(n, 1, 3, 3);
}

/* A depthwise convolution that looks back only; the last k - 1 positions are the state. */
bool lower_causal_conv(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *w = n->in[1], *x = n->in[0], *past = n->in[3];
    const char *activation = node_string(n, "activation", "none");
    bool silu = !strcmp(activation, "silu") || !strcmp(activation, "swish"), last;
    int64_t channels, dilation;
    if (!causal_conv_layout(n, &dilation, &last))
        return false;
    if (!silu && strcmp(activation, "none"))
        return node_error(n, -1, "activation '%s' is not supported", activation);
    x = last ? sequence_last(n, x) : x;
    past = last && past ? sequence_last(n, past) : past;
    if (!x || !uop_const_int(x->dim[1], &channels))
        return node_error(n, 0, "the number of channels must be fixed, found %s", shape_text(n, x));
    struct uop *state = sym_muli(n->t, sym_addi(n->t, w->dim[2], -1), dilation),
               *dim[3] = {x->dim[0], x->dim[1], state};
    past = past ? lib_broadcast_to(l, past, dim, 3)
                : tensor_full(n->t, uop_consti(n->t, x->dtype, 0), dim, 3);
    struct uop *padded = lib_concat(l, (struct uop *[]){past, x}, 2, 2);
    if (!past || !padded)
        return false;
    struct window_attr a = {.group = channels, .dilation = {dilation}};
    struct uop *y = lib_conv(l, padded, w, n->in[2], &a);
    y = silu ? lib_activate(l, ACTIVATION_SILU, y, 1, 0) : y;
    state = lib_narrow(l, padded, 2, x->dim[2], state);
    n->out[1] = last ? sequence_first(n, state, n->in[0]) : state;
    return n->out[1] && node_set(n, 0, last ? sequence_first(n, y, n->in[0]) : y);
}
