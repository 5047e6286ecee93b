/* lower_microsoft_attention.c - com.microsoft's attentions: Attention and QAttention (with the
 * input projection), MultiHeadAttention, GroupQueryAttention (with a cache of keys and values), and
 * their RotaryEmbedding.
 *
 * A padding mask adds mask_filter_value to hidden scores instead of removing them: a row with all
 * keys hidden is the softmax of its scores. Keys hidden by causality have weight 0.
 */
#include <math.h>
#include <string.h>

#include "frontend/onnx/microsoft.h"

/* Positions a, a + 1, ... of axis `axis` of a tensor [1, 1, s, t] of i64. */
static struct uop *positions(const struct node *n, struct uop *size, int axis)
{
    struct uop *one = uop_int(n->t, 1), *dim[4] = {one, one, one, one};
    dim[axis] = size;
    return tensor_iota(n->t, dim, 4, axis);
}

/* v [b] as [b, 1, 1, 1] of i64 */
static struct uop *per_batch(const struct node *n, struct uop *v)
{
    struct uop *one = uop_int(n->t, 1), *dim[4] = {v->dim[0], one, one, one};
    return uop_reshape(n->t, uop_cast(n->t, DTYPE_INDEX, v), dim, 4);
}

/* [b] lengths, [2 b] ends then starts, [3 b + 2] lengths and offsets: which keys count. */
static struct uop *mask_of_lengths(const struct node *n, struct uop *mask, struct uop *batch,
                                   struct uop *keys)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *all = mask->dim[0], *key = positions(n, keys, 3);
    bool ends = sym_equal(t, all, batch), both = sym_equal(t, all, sym_muli(t, batch, 2)),
         packed = sym_equal(t, all, sym_addi(t, sym_muli(t, batch, 3), 2));
    if (!ends && !both && !packed) {
        lib_error(l, "the mask is %s; lengths, or ends and starts, of %s sequences are expected",
                  lib_describe(l, mask), lib_describe(l, n->in[0]));
        return NULL;
    }
    struct uop *end = lib_narrow(l, mask, 0, uop_int(t, 0), batch);
    struct uop *real = end ? lib_binary(l, OP_LT, key, per_batch(n, end)) : NULL;
    if (both) {
        struct uop *start = lib_narrow(l, mask, 0, batch, batch);
        real =
            lib_binary(l, OP_AND, real, uop_not(t, lib_binary(l, OP_LT, key, per_batch(n, start))));
    }
    return real;
}

/* [b, 1, m, m]: the rows of these queries, the columns of these keys. */
static struct uop *mask_of_square(const struct node *n, struct uop *mask,
                                  const struct fused_attention *a)
{
    mask = lib_narrow(&n->lib, mask, 2, a->past_length, a->q->dim[2]);
    return lib_narrow(&n->lib, mask, 3, uop_int(n->t, 0), a->k->dim[2]);
}

bool fused_attention_mask(const struct node *n, int k, struct fused_attention *a)
{
    const struct lib *l = &n->lib;
    struct uop *mask = n->in[k], *real;
    if (!mask)
        return true;
    if (!node_rank(n, k, 1, 4))
        return false;
    if (mask->ndim == 1) {
        real = mask_of_lengths(n, mask, a->q->dim[0], a->k->dim[2]);
    } else {
        if (mask->ndim == 4 && !(mask = mask_of_square(n, mask, a)))
            return false;
        for (int at = 1; mask->ndim < 4; at = 1)
            mask = tensor_insert_axis(n->t, mask, at);
        real = lib_binary(l, OP_LT, lib_scalar(l, mask, 0), mask);
    }
    enum dtype d = lib_acc_dtype(a->q->dtype);
    struct uop *hidden = uop_constf(n->t, d, node_float(n, "mask_filter_value", -10000));
    struct uop *bias = lib_where(l, real, uop_constf(n->t, d, 0), hidden);
    a->bias = a->bias ? lib_add(l, lib_cast(l, d, a->bias), bias) : bias;
    return a->bias != NULL;
}

struct uop *fused_attention(const struct node *n, const struct fused_attention *a)
{
    const struct lib *l = &n->lib;
    struct attention_attr attr = {.causal = a->causal,
                                  .last_sees_all = a->last_sees_all,
                                  .offset = a->past_length,
                                  .scale = node_float(n, "scale", 0),
                                  .softcap = node_float(n, "softcap", 0)};
    struct uop *mask = a->allowed ? a->allowed : a->bias;
    if (a->allowed && a->bias)
        mask =
            lib_where(l, a->allowed, a->bias, uop_constf(n->t, a->bias->dtype, -(double)INFINITY));
    enum dtype d = a->q->dtype, wide = lib_acc_dtype(d);
    struct uop *y = lib_attention(l, lib_cast(l, wide, a->q), lib_cast(l, wide, a->k),
                                  lib_cast(l, wide, a->v), mask, &attr);
    return heads_pack(n, lib_cast(l, d, y));
}

/* ------------------------------------------------------------------------ Attention, QAttention */

/* [2, b, h, s, e] of k and v. */
static struct uop *stacked(const struct node *n, struct uop *k, struct uop *v)
{
    struct uop *part[2] = {tensor_insert_axis(n->t, k, 0), tensor_insert_axis(n->t, v, 0)};
    return lib_concat(&n->lib, part, 2, 0);
}

bool fused_attention_project(struct node *n, struct uop *qkv, struct uop *past,
                             struct fused_attention *a)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    const int64_t *sizes;
    int64_t heads = node_int(n, "num_heads", 0);
    struct uop *begin = uop_int(t, 0), **part[3] = {&a->q, &a->k, &a->v};
    int count = node_ints(n, "qkv_hidden_sizes", &sizes);
    if (count > 0 && count != 3)
        return node_error(n, -1, "qkv_hidden_sizes has %d values; 3 are expected", count);
    if (node_int(n, "do_rotary", 0) || node_int(n, "past_present_share_buffer", 0))
        return node_error(n, -1, "do_rotary and past_present_share_buffer are not supported here");
    for (int i = 0; i < 3; i++) {
        struct uop *size =
            count > 0 ? uop_int(t, sizes[i]) : sym_div(t, qkv->dim[2], uop_int(t, 3));
        *part[i] = heads_unpack(n, 0, lib_narrow(l, qkv, 2, begin, size), heads);
        if (!*part[i])
            return false;
        begin = sym_add(t, begin, size);
    }
    a->past_length = uop_int(t, 0);
    if (past) {
        if (past->ndim != 5)
            return node_error(n, 4, "past is %s; [2, batch, heads, length, size] is expected",
                              shape_text(n, past));
        a->past_length = past->dim[3];
        for (int i = 0; i < 2; i++) {
            struct uop **to = i ? &a->v : &a->k;
            *to = lib_concat(l, (struct uop *[]){node_slice_at(n, past, 0, uop_int(t, i)), *to}, 2,
                             2);
            if (!*to)
                return false;
        }
    }
    a->causal = node_int(n, "unidirectional", 0) != 0;
    if (n->nout > 1 && *n->proto->output[1])
        return node_set(n, 1, stacked(n, a->k, a->v));
    return true;
}

bool lower_microsoft_attention(struct node *n)
{
    struct fused_attention a = {0};
    if (!node_rank(n, 0, 3, 3) || !node_rank(n, 1, 2, 2))
        return false;
    struct uop *qkv = lib_matmul(&n->lib, n->in[0], n->in[1]);
    if (n->in[2])
        qkv = lib_add(&n->lib, qkv, n->in[2]);
    a.bias = n->in[5];
    return qkv && fused_attention_project(n, qkv, n->in[4], &a) && fused_attention_mask(n, 3, &a) &&
           node_set(n, 0, fused_attention(n, &a));
}

/* --------------------------------------------------------------------------- MultiHeadAttention */

/* Part i of `count` that lie packed in x [b, s, heads, count, e], as [b, s, heads * e]. */
static struct uop *unpacked(const struct node *n, struct uop *x, int i)
{
    struct uop *part = node_slice_at(n, x, 3, uop_int(n->t, i));
    if (!part)
        return NULL;
    struct uop *dim[3] = {part->dim[0], part->dim[1], sym_mul(n->t, part->dim[2], part->dim[3])};
    return uop_reshape(n->t, part, dim, 3);
}

/* q, k, v with their share of the bias (input 3), which is [q + k + v]. Keys and values in heads
 * have been projected before: their share is not added. */
static bool add_projection_bias(const struct node *n, struct uop *v[3])
{
    struct uop *begin = uop_int(n->t, 0);
    if (!n->in[3])
        return true;
    if (!node_rank(n, 3, 1, 1))
        return false;
    for (int i = 0; i < 3; i++) {
        struct uop *size = v[i]->ndim == 4 ? sym_mul(n->t, v[i]->dim[1], v[i]->dim[3])
                                           : v[i]->dim[2];
        if (sym_add(n->t, begin, size)->vmax > n->in[3]->dim[0]->vmax)
            return node_error(n, 3, "a bias for query, key and value is expected, found %s",
                              shape_text(n, n->in[3]));
        if (v[i]->ndim == 3)
            v[i] = lib_add(&n->lib, v[i], lib_narrow(&n->lib, n->in[3], 0, begin, size));
        if (!v[i])
            return false;
        begin = sym_add(n->t, begin, size);
    }
    return true;
}

/* The operands in [b, s, width]; keys and values may be in heads already, [b, h, t, e]. */
static bool multi_head_operands(const struct node *n, struct uop *v[3])
{
    for (int i = 0; i < 3; i++)
        v[i] = n->in[i];
    if (v[0]->ndim == 5) {
        if (v[1] || v[2])
            return node_error(n, 1, "keys and values lie packed in input 0 already");
        for (int i = 2; i >= 0; i--)
            v[i] = unpacked(n, n->in[0], i);
    } else if (v[1] && v[1]->ndim == 5) {
        v[1] = unpacked(n, n->in[1], 0);
        v[2] = unpacked(n, n->in[1], 1);
    }
    if (!v[0] || !v[1] || !v[2])
        return node_error(n, 1, "keys and values are expected");
    if (v[0]->ndim != 3 || v[1]->ndim < 3 || v[1]->ndim > 4 || v[2]->ndim != v[1]->ndim)
        return node_error(n, 0, "query, key and value of rank 3 are expected, found %s, %s, %s",
                          shape_text(n, v[0]), shape_text(n, v[1]), shape_text(n, v[2]));
    return add_projection_bias(n, v);
}

bool lower_multi_head_attention(struct node *n)
{
    const struct lib *l = &n->lib;
    struct fused_attention a = {.past_length = uop_int(n->t, 0), .bias = n->in[5]};
    struct uop *v[3], **part[3] = {&a.q, &a.k, &a.v};
    int64_t heads = node_int(n, "num_heads", 0);
    if (n->in[8] || n->in[9] || (n->nout > 3 && *n->proto->output[3]))
        return node_error(n, -1,
                          "a shared cache, beams, and the scores as output are not "
                          "supported; they are the CUDA kernel's");
    if (!multi_head_operands(n, v))
        return false;
    for (int i = 0; i < 3; i++)
        if (!(*part[i] = v[i]->ndim == 4 ? v[i] : heads_unpack(n, i, v[i], heads)))
            return false;
    if (!n->in[6] != !n->in[7])
        return node_error(n, 6, "past_key and past_value go together");
    if (n->in[6]) {
        if (!node_rank(n, 6, 4, 4) || !node_rank(n, 7, 4, 4))
            return false;
        a.past_length = n->in[6]->dim[2];
        a.k = lib_concat(l, (struct uop *[]){n->in[6], a.k}, 2, 2);
        a.v = lib_concat(l, (struct uop *[]){n->in[7], a.v}, 2, 2);
        if (!a.k || !a.v)
            return false;
    }
    n->out[1] = a.k;
    n->out[2] = a.v;
    /* ONNX Runtime's mask ends before the last query, which matters if there are more keys */
    a.causal = node_int(n, "unidirectional", 0) != 0;
    a.last_sees_all = !sym_equal(n->t, a.k->dim[2], sym_add(n->t, a.q->dim[2], a.past_length));
    return fused_attention_mask(n, 4, &a) && node_set(n, 0, fused_attention(n, &a));
}

/* -------------------------------------------------------------------------- GroupQueryAttention */

struct group_query {
    struct fused_attention a;
    /* the caches are states: as long as all sequences, so new keys are appended; or of fixed size
     * with room for them */
    bool grows, stays;
    struct uop *total; /* INDEX scalar: the longest sequence with its new part */
    /* [b, 1, 1, 1] how many keys there are before the new ones; a scalar if the cache grows */
    struct uop *past;
    struct uop *at;   /* [b, 1, s, 1] position of each query */
    struct uop *last; /* like past: the last key of each sequence; a prompt's padding is after it */
};

/* Rotates x [b, h, s, e] by rows of the caches at its positions [b, 1, s, 1], or position_ids. */
static struct uop *rotate_at(const struct node *n, struct uop *x, struct uop *at, int cos, int sin,
                             bool interleaved)
{
    const struct lib *l = &n->lib;
    struct uop *table[2];
    for (int i = 0; i < 2; i++) {
        int k = i ? sin : cos;
        if (!n->in[k]) {
            node_error(n, k, "a table for the rotation is expected");
            return NULL;
        }
        struct uop *dim[3] = {at->dim[0], at->dim[1], at->dim[2]};
        if (!node_rank(n, k, 2, 2) || !node_expect_index(n, k, at, n->in[k]->dim[0]))
            return NULL;
        table[i] = lib_gather(l, n->in[k], uop_reshape(n->t, at, dim, 3), 0); /* [b, 1, s, r] */
    }
    return lib_rope(l, x, table[0], table[1], interleaved);
}

/* Whether past_key and past_value are states (--state): of a run-time length, or of fixed size. */
static void group_query_states(const struct node *n, struct group_query *g)
{
    for (int k = 3; k <= 4; k++) {
        const struct uop *x = n->in[k];
        const struct buffer *b = x && x->op == OP_BUFFER ? x->arg.p : NULL;
        if (!b || b->kind != BUFFER_INPUT || b->ndim != 4 || !lower_is_state(n->lower, b->name))
            return;
    }
    const struct uop *length = n->in[3]->dim[2];
    g->grows = length->op == OP_VAR && length == n->in[4]->dim[2];
    g->stays = length->op == OP_CONST && length == n->in[4]->dim[2];
}

/* The cache: `old` up to past, then the new keys, then zeros; [b, h, length, e]. */
static struct uop *append(const struct node *n, const struct group_query *g, struct uop *old,
                          struct uop *new, struct uop *length)
{
    const struct lib *l = &n->lib;
    struct uop *dim[4] = {new->dim[0], new->dim[1], length, new->dim[3]};
    struct uop *key = positions(n, length, 2), *zero = uop_int(n->t, 0);
    struct uop *from = lib_sub(l, key, g->past);
    struct uop *is_new = lib_binary(l, OP_AND, uop_not(n->t, lib_binary(l, OP_LT, from, zero)),
                                    lib_binary(l, OP_LT, from, new->dim[2]));
    struct uop *safe = lib_where(l, is_new, from, zero);
    struct uop *fresh = lib_gather_elements(l, new, lib_broadcast_to(l, safe, dim, 4), 2);
    struct uop *rest = uop_constf(n->t, new->dtype, 0);
    if (old) {
        struct uop *is_old = lib_binary(l, OP_LT, key, g->past);
        rest = lib_where(l, is_old, tensor_fit(n->t, old, dim), rest);
    }
    return lib_where(l, is_new, fresh, rest);
}

/* Whether the shapes differ only in the length. */
static bool is_room_for(struct tgc *t, const struct uop *old, const struct uop *new)
{
    bool same = old->dtype == new->dtype;
    for (int a = 0; a < 4 && same; a++)
        same = a == 2 || sym_equal(t, old->dim[a], new->dim[a]);
    return same;
}

/* append() for an `old` that is a state with room: only the new keys are stored, and the elements
 * after them keep their values. */
static struct uop *overwrite(const struct node *n, const struct group_query *g, struct uop *old,
                             struct uop *new)
{
    struct uop *index[4];
    for (int a = 0; a < 4; a++) {
        index[a] = a == 2 ? g->at : positions(n, new->dim[a], a);
        if (!(index[a] = lib_broadcast_to(&n->lib, index[a], new->dim, 4)))
            return NULL;
    }
    if (!node_expect_index(n, 5, g->at, old->dim[2]))
        return NULL;
    return uop_scatter(n->t, OP_CONST, old, new, index);
}

/* q, k, v [b, h, s, e] from inputs 0 to 2, or packed in input 0; normalized and rotated. */
static bool group_query_operands(struct node *n, struct group_query *g)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    int64_t heads = node_int(n, "num_heads", 0), pairs = node_int(n, "kv_num_heads", 0), width;
    struct uop *v[3] = {n->in[0], n->in[1], n->in[2]}, **part[3] = {&g->a.q, &g->a.k, &g->a.v};
    if (!node_rank(n, 0, 3, 3) || heads < 1 || pairs < 1 || heads % pairs)
        return node_error(n, -1, "num_heads must be a positive multiple of kv_num_heads");
    if (!v[1]) {
        if (!uop_const_int(v[0]->dim[2], &width) || width % (heads + 2 * pairs))
            return node_error(n, 0, "%s does not split into %lld heads", shape_text(n, v[0]),
                              (long long)(heads + 2 * pairs));
        int64_t e = width / (heads + 2 * pairs), begin = 0;
        for (int i = 0; i < 3; i++) {
            int64_t size = e * (i ? pairs : heads);
            v[i] = lib_narrow(l, n->in[0], 2, uop_int(t, begin), uop_int(t, size));
            begin += size;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (!v[i])
            return node_error(n, i, "input %d is missing", i);
        if (v[i]->ndim != 3)
            return node_error(n, i, "rank 3 is expected, found %s", shape_text(n, v[i]));
        if (!(*part[i] = heads_unpack(n, i, v[i], i ? pairs : heads)))
            return false;
    }
    for (int i = 0; i < 2 && n->in[14] && n->in[15]; i++)
        *part[i] =
            lib_rms_norm(l, *part[i], n->in[14 + i], -1, node_float(n, "qk_norm_epsilon", 1e-6));
    return g->a.q && g->a.k;
}

/* A cache that grows is as long as each sequence without its new part: seqlens_k and
 * total_sequence_length have to agree with that. */
static bool group_query_behind(struct node *n, struct group_query *g, struct uop *lengths)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *s = g->a.q->dim[2], *total = node_scalar(n, 6);
    g->past = n->in[3]->dim[2];
    g->total = sym_add(t, g->past, s);
    g->at = lib_add(l, g->past, positions(n, s, 2));
    g->last = sym_addi(t, g->total, -1);
    if (!total || !g->at)
        return false;
    struct uop *all = lib_binaryf(l, OP_ADD, per_batch(n, lengths), 1);
    return node_expect(n, 6, lib_binary(l, OP_EQ, uop_cast(t, DTYPE_INDEX, total), g->total),
                       "the total length is not that of the cache and the new part") &&
           node_expect(n, 5, lib_binary(l, OP_EQ, all, g->total),
                       "a sequence is not as long as the cache and the new part");
}

/* The position of each sequence's new part: after seqlens_k + 1 - s keys, but at the start if the
 * new part is all there is. */
static bool group_query_positions(struct node *n, struct group_query *g)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop **total, *s = g->a.q->dim[2], *zero = uop_int(t, 0), *lengths = n->in[5];
    int count;
    if (lengths->ndim == 2 && uop_is_int(lengths->dim[1], 1))
        lengths = uop_reshape(t, lengths, lengths->dim, 1);
    if (lengths->ndim != 1)
        return node_error(n, 5, "a length of each sequence is expected, found %s",
                          shape_text(n, lengths));
    if (g->grows)
        return group_query_behind(n, g, lengths);
    if (!node_symbols(n, 6, &total, &count))
        return false;
    if (count != 1)
        return node_error(n, 6, "one length is expected, found %d", count);
    g->total = total[0];
    g->last = per_batch(n, lengths);
    struct uop *past = lib_sub(l, lib_binaryf(l, OP_ADD, g->last, 1), s);
    past = lib_where(l, lib_binary(l, OP_EQ, g->total, s), zero, past);
    if (!past || !node_expect(n, 5, uop_not(t, lib_binary(l, OP_LT, past, zero)),
                              "a sequence is shorter than its new part"))
        return false;
    g->past = past;
    g->at = lib_add(l, past, positions(n, s, 2));
    return g->at != NULL;
}

static bool group_query_rotate(struct node *n, struct group_query *g)
{
    bool interleaved = node_int(n, "rotary_interleaved", 0) != 0;
    struct uop *at = g->at;
    if (!node_int(n, "do_rotary", 0))
        return true;
    if (n->in[9]) {
        if (!node_rank(n, 9, 2, 2))
            return false;
        at = lib_cast(&n->lib, DTYPE_INDEX, n->in[9]);
        at = tensor_insert_axis(n->t, tensor_insert_axis(n->t, at, 1), 3);
    }
    g->a.q = rotate_at(n, g->a.q, at, 7, 8, interleaved);
    g->a.k = g->a.q ? rotate_at(n, g->a.k, at, 7, 8, interleaved) : NULL;
    return g->a.k != NULL;
}

/* What a query sees, and the bias of its scores. */
static bool group_query_masks(struct node *n, struct group_query *g)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *key = positions(n, g->a.k->dim[2], 3);
    int64_t window = node_int(n, "local_window_size", -1);
    struct uop *last = node_int(n, "causal", 1) ? g->at : g->last;
    g->a.allowed = uop_not(t, lib_binary(l, OP_LT, last, key));
    if (window >= 0) { /* that many keys, its own included */
        struct uop *first = lib_sub(l, g->at, uop_int(t, window - 1));
        g->a.allowed =
            lib_binary(l, OP_AND, g->a.allowed, uop_not(t, lib_binary(l, OP_LT, key, first)));
    }
    if (n->in[10]) {
        struct uop *dim[4];
        if (!node_rank(n, 10, 4, 4))
            return false;
        memcpy(dim, n->in[10]->dim, sizeof dim);
        dim[3] = g->a.k->dim[2];
        g->a.bias = tensor_fit(n->t, n->in[10], dim);
    }
    return g->a.allowed != NULL;
}

/* An attention sink adds exp(sink) to the denominator of a head's softmax: that is one more key of
 * zeros, with a value of zero. sink: [heads], NULL: zeros. */
static bool group_query_sink(struct node *n, struct group_query *g, struct uop *sink)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *one = uop_int(t, 1), *lo[4], *hi[4];
    enum dtype d = lib_acc_dtype(g->a.q->dtype);
    for (int a = 0; a < 4; a++)
        lo[a] = hi[a] = uop_int(t, 0);
    hi[2] = one;
    struct uop *full[4] = {g->a.q->dim[0], sink ? g->a.q->dim[1] : one, g->a.q->dim[2],
                           g->a.k->dim[2]};
    struct uop *bias = g->a.bias ? lib_cast(l, d, g->a.bias) : uop_constf(t, d, 0);
    bias = lib_where(l, g->a.allowed, bias, uop_constf(t, d, -(double)INFINITY));
    if (bias && !uop_is_int(bias->dim[1], 1))
        full[1] = bias->dim[1];
    bias = lib_broadcast_to(l, bias, full, 4);
    full[3] = one;
    struct uop *column = uop_constf(t, d, 0);
    if (sink) {
        struct uop *dim[3] = {sink->dim[0], one, one};
        column = lib_reshape(l, lib_cast(l, d, sink), dim, 3);
    }
    column = lib_broadcast_to(l, column, full, 4);
    g->a.bias = bias && column ? lib_concat(l, (struct uop *[]){bias, column}, 2, 3) : NULL;
    g->a.allowed = NULL;
    g->a.k = lib_pad(l, g->a.k, PAD_MODE_CONSTANT, NULL, lo, hi);
    g->a.v = lib_pad(l, g->a.v, PAD_MODE_CONSTANT, NULL, lo, hi);
    return g->a.bias && g->a.k && g->a.v;
}

/* present_key and present_value: the past with the new keys and values. */
static bool group_query_present(struct node *n, struct group_query *g)
{
    struct uop *length = g->total, **part[2] = {&g->a.k, &g->a.v};
    for (int i = 0; i < 2 && n->in[3]; i++)
        if (!node_rank(n, 3 + i, 4, 4))
            return false;
    if (n->in[3] && !g->grows)
        length = sym_max(n->t, length, n->in[3]->dim[2]);
    g->stays = g->stays && sym_equal(n->t, length, n->in[3]->dim[2]) &&
               is_room_for(n->t, n->in[3], g->a.k) && is_room_for(n->t, n->in[4], g->a.v);
    for (int i = 0; i < 2; i++) {
        struct uop *joined[2] = {n->in[3 + i], *part[i]};
        *part[i] = g->grows   ? lib_concat(&n->lib, joined, 2, 2)
                   : g->stays ? overwrite(n, g, n->in[3 + i], *part[i])
                              : append(n, g, n->in[3 + i], *part[i], length);
        n->out[1 + i] = *part[i];
    }
    return g->a.k && g->a.v;
}

/* The scores (qk_output 1) or their softmax (2) of all keys that there are; 0 for hidden ones. */
static bool group_query_scores(struct node *n, const struct group_query *g)
{
    const struct lib *l = &n->lib;
    int64_t mode = node_int(n, "qk_output", 0), width;
    if (n->nout < 4 || !*n->proto->output[3])
        return true;
    if (mode < 1 || mode > 2)
        return node_error(n, -1, "qk_output is %lld; the scores are an output with 1 or 2",
                          (long long)mode);
    if (!uop_const_int(g->a.q->dim[3], &width) || width < 1)
        return node_error(n, 0, "the size of a head must be fixed, found %s",
                          shape_text(n, g->a.q));
    double scale = node_float(n, "scale", 0);
    struct uop *s =
        attention_products(n, g->a.q, g->a.k, scale != 0 ? scale : 1 / sqrt((double)width),
                           node_float(n, "softcap", 0));
    if (s && g->a.bias)
        s = lib_add(l, s, lib_cast(l, s->dtype, g->a.bias));
    if (s && g->a.allowed)
        s = lib_where(l, g->a.allowed, s, lib_scalar(l, s, -(double)INFINITY));
    if (!s)
        return false;
    struct uop *hidden = lib_binaryf(l, OP_EQ, s, -(double)INFINITY);
    s = lib_where(l, hidden, lib_scalar(l, s, 0), mode == 2 ? lib_softmax(l, s, 1u << 3) : s);
    s = lib_narrow(l, s, 3, uop_int(n->t, 0), g->total);
    return node_set(n, 3, lib_cast(l, g->a.q->dtype, s));
}

bool lower_group_query_attention(struct node *n)
{
    struct group_query g = {0};
    group_query_states(n, &g);
    for (int k = 12; k <= 13; k++) {
        const char *kind = node_string(n, k == 12 ? "k_quant_type" : "v_quant_type", "NONE");
        if (n->in[k] || strcmp(kind, "NONE") != 0)
            return node_error(n, k, "a quantized cache is not supported");
    }
    if (!node_has_inputs(n, 0x61))
        return false;
    if (!node_int(n, "local_window_size", -1))
        return node_error(n, -1, "local_window_size 0 leaves no key");
    if (node_int(n, "sliding_window_cache", 0) || !n->in[3] != !n->in[4])
        return node_error(n, 3,
                          "a past key and value are expected, or neither; "
                          "sliding_window_cache is not supported");
    if (n->in[11] && !node_rank(n, 11, 1, 1))
        return false;
    if (!group_query_operands(n, &g) || !group_query_positions(n, &g) || !group_query_rotate(n, &g))
        return false;
    bool sink = n->in[11] || node_int(n, "smooth_softmax", -1) == 1;
    return group_query_present(n, &g) && group_query_masks(n, &g) &&
           (!sink || group_query_sink(n, &g, n->in[11])) && group_query_scores(n, &g) &&
           node_set(n, 0, fused_attention(n, &g.a));
}

/* ------------------------------------------------------------------------------ RotaryEmbedding */

/* position_ids: [b, s], or one number that the first position has. The caches are [max, rotary /
 * 2].
 */
bool lower_microsoft_rotary_embedding(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *x = n->in[0], *at = lib_cast(l, DTYPE_INDEX, n->in[1]);
    bool packed = x->ndim == 3;
    int64_t heads = node_int(n, "num_heads", 0), half, width;
    if (!node_rank(n, 0, 3, 4) || !node_rank(n, 2, 2, 2))
        return false;
    if (node_int(n, "is_packed_batching", 0))
        return node_error(n, -1, "is_packed_batching is not supported");
    if (packed && heads == 0) {
        if (!uop_const_int(n->in[2]->dim[1], &half) || !uop_const_int(x->dim[2], &width) ||
            half < 1)
            return node_error(n, 2, "a table of a fixed size is expected, found %s",
                              shape_text(n, n->in[2]));
        heads = width / (2 * half);
    }
    if (packed && !(x = heads_unpack(n, 0, x, heads)))
        return false;
    if (at->ndim == 2)
        at = tensor_insert_axis(n->t, tensor_insert_axis(n->t, at, 1), 3);
    else
        at = lib_add(l, node_scalar(n, 1), positions(n, x->dim[2], 2));
    if (!at)
        return false;
    struct uop *y = rotate_at(n, x, at, 2, 3, node_int(n, "interleaved", 0) != 0);
    return node_set(n, 0, packed ? heads_pack(n, y) : y);
}
