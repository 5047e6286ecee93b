/* library_nn.c - activations, attention and rotary embeddings.
 *
 * Activations of narrow floats are computed in f32 and rounded once. None of them overflows where
 * its value does not: softplus is max(x, 0) + log1p(e^-|x|), with log1p after Kahan: log(u) * e /
 * (u - 1) for u = 1 + e.
 */
#include "frontend/library.h"

#include <math.h>
#include <string.h>

static const struct activation_info activations[] = {
#define ACTIVATION(name, text, nparam, alpha, beta) {text, nparam, alpha, beta},
#include "frontend/activations.def"
#undef ACTIVATION
};

const struct activation_info *lib_activation_info(enum activation a) { return &activations[a]; }

bool lib_activation_parse(const char *name, enum activation *a)
{
    for (int i = 0; i < ACTIVATION_COUNT; i++)
        if (!strcmp(activations[i].name, name)) {
            *a = (enum activation)i;
            return true;
        }
    return false;
}

static struct uop *sigmoid(const struct lib *l, struct uop *x)
{
    struct uop *e = lib_unary(l, OP_EXP, lib_unary(l, OP_NEG, x));
    struct uop *y = lib_unary(l, OP_RECIP, lib_binaryf(l, OP_ADD, e, 1));
    uop_name_value(l->t, y, "sigmoid");
    return y;
}

static struct uop *softplus(const struct lib *l, struct uop *x)
{
    struct uop *e = lib_unary(l, OP_EXP, lib_unary(l, OP_NEG, lib_unary(l, OP_ABS, x)));
    struct uop *u = lib_binaryf(l, OP_ADD, e, 1), *d = lib_binaryf(l, OP_SUB, u, 1);
    struct uop *tiny = lib_binaryf(l, OP_EQ, d, 0);
    struct uop *safe = lib_where(l, tiny, lib_scalar(l, x, 1), d);
    struct uop *log1p = lib_where(l, tiny, e,
                                  lib_div(l, lib_mul(l, lib_unary(l, OP_LOG, u), e), safe));
    return lib_add(l, lib_binaryf(l, OP_MAX, x, 0), log1p);
}

static struct uop *elu(const struct lib *l, struct uop *x, double alpha, double divisor)
{
    struct uop *low = lib_binaryf(l, OP_MIN, x, 0);
    struct uop *e = lib_unary(l, OP_EXP, divisor == 1 ? low : lib_binaryf(l, OP_DIV, low, divisor));
    return lib_where(l, lib_binaryf(l, OP_LT, x, 0),
                     lib_binaryf(l, OP_MUL, lib_binaryf(l, OP_SUB, e, 1), alpha), x);
}

/* min(max(alpha x + beta, 0), 1) */
static struct uop *hard_sigmoid(const struct lib *l, struct uop *x, double alpha, double beta)
{
    struct uop *y = lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, x, alpha), beta);
    return lib_binaryf(l, OP_MIN, lib_binaryf(l, OP_MAX, y, 0), 1);
}

/* x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); past 20 the quotient is 1. */
static struct uop *mish(const struct lib *l, struct uop *x)
{
    struct uop *e = lib_unary(l, OP_EXP, lib_binaryf(l, OP_MIN, x, 20));
    struct uop *n = lib_mul(l, e, lib_binaryf(l, OP_ADD, e, 2));
    return lib_mul(l, x, lib_div(l, n, lib_binaryf(l, OP_ADD, n, 2)));
}

static struct uop *gelu(const struct lib *l, struct uop *x, bool by_tanh)
{
    struct uop *u;
    if (by_tanh) {
        struct uop *cube = lib_mul(l, lib_mul(l, x, x), x);
        u = lib_binaryf(l, OP_MUL, lib_add(l, x, lib_binaryf(l, OP_MUL, cube, 0.044715)),
                        0.7978845608028653559);
        u = lib_unary(l, OP_TANH, u);
    } else {
        u = lib_unary(l, OP_ERF, lib_binaryf(l, OP_MUL, x, 0.7071067811865475244));
    }
    return lib_mul(l, lib_binaryf(l, OP_MUL, x, 0.5), lib_binaryf(l, OP_ADD, u, 1));
}

static struct uop *soft_shrink(const struct lib *l, struct uop *x, double lambda, double bias)
{
    struct uop *zero = lib_scalar(l, x, 0),
               *above = uop_binary(l->t, OP_LT, lib_scalar(l, x, lambda), x);
    struct uop *high = lib_where(l, above, lib_binaryf(l, OP_SUB, x, bias), zero);
    return lib_where(l, lib_binaryf(l, OP_LT, x, -lambda), lib_binaryf(l, OP_ADD, x, bias), high);
}

static struct uop *activate_wide(const struct lib *l, enum activation a, struct uop *x,
                                 double alpha, double beta)
{
    struct uop *zero = lib_scalar(l, x, 0);
    switch (a) {
    case ACTIVATION_RELU: return lib_binary(l, OP_MAX, x, zero);
    case ACTIVATION_LEAKY_RELU:
        return lib_where(l, uop_binary(l->t, OP_LT, x, zero), lib_binaryf(l, OP_MUL, x, alpha), x);
    case ACTIVATION_THRESHOLDED_RELU:
        return lib_where(l, uop_binary(l->t, OP_LT, lib_scalar(l, x, alpha), x), x, zero);
    case ACTIVATION_RELU6: return lib_binaryf(l, OP_MIN, lib_binary(l, OP_MAX, x, zero), 6);
    case ACTIVATION_ELU: return elu(l, x, alpha, 1);
    case ACTIVATION_SELU: return lib_binaryf(l, OP_MUL, elu(l, x, alpha, 1), beta);
    case ACTIVATION_CELU: return elu(l, x, alpha, alpha);
    case ACTIVATION_SIGMOID: return sigmoid(l, x);
    case ACTIVATION_LOG_SIGMOID: return lib_unary(l, OP_NEG, softplus(l, lib_unary(l, OP_NEG, x)));
    case ACTIVATION_HARD_SIGMOID: return hard_sigmoid(l, x, alpha, beta);
    case ACTIVATION_HARD_SWISH: return lib_mul(l, x, hard_sigmoid(l, x, 1.0 / 6, 0.5));
    case ACTIVATION_TANH: return lib_unary(l, OP_TANH, x);
    case ACTIVATION_SCALED_TANH:
        return lib_binaryf(l, OP_MUL, lib_unary(l, OP_TANH, lib_binaryf(l, OP_MUL, x, beta)),
                           alpha);
    case ACTIVATION_AFFINE: return lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, x, alpha), beta);
    case ACTIVATION_SOFTPLUS: return softplus(l, x);
    case ACTIVATION_SOFTSIGN:
        return lib_div(l, x, lib_binaryf(l, OP_ADD, lib_unary(l, OP_ABS, x), 1));
    case ACTIVATION_SILU:
        return lib_mul(l, x, sigmoid(l, alpha == 1 ? x : lib_binaryf(l, OP_MUL, x, alpha)));
    case ACTIVATION_MISH: return mish(l, x);
    case ACTIVATION_GELU: return gelu(l, x, false);
    case ACTIVATION_GELU_TANH: return gelu(l, x, true);
    case ACTIVATION_SHRINK: return soft_shrink(l, x, alpha, beta);
    case ACTIVATION_COUNT: break;
    }
    return NULL;
}

struct uop *lib_activate(const struct lib *l, enum activation a, struct uop *x, double alpha,
                         double beta)
{
    if (!x)
        return NULL;
    if (!dtype_is_float(x->dtype) && !(a == ACTIVATION_RELU && dtype_is_int(x->dtype)) &&
        !(a == ACTIVATION_SHRINK && dtype_is_int(x->dtype)))
        return lib_error(l, "%s: x is %s; it must be floating", activations[a].name,
                         lib_describe(l, x));
    if (a == ACTIVATION_CELU && alpha == 0)
        return lib_error(l, "celu: alpha is 0; x is divided by it");
    enum dtype wide = a == ACTIVATION_RELU || a == ACTIVATION_RELU6 ? x->dtype
                                                                    : lib_acc_dtype(x->dtype);
    return lib_cast(l, x->dtype, activate_wide(l, a, uop_cast(l->t, wide, x), alpha, beta));
}

struct uop *lib_activate_default(const struct lib *l, enum activation a, struct uop *x)
{
    return lib_activate(l, a, x, activations[a].alpha, activations[a].beta);
}

/* ---- attention */

/* [b, h, l, e] -> [b, hk, g, l, e] with h = hk * g; 3-D operands get one head. */
static struct uop *split_heads(const struct lib *l, struct uop *x, struct uop *nkv,
                               struct uop *group)
{
    struct uop *dim[5] = {x->dim[0], nkv, group, x->dim[x->ndim - 2], x->dim[x->ndim - 1]};
    return uop_reshape(l->t, x, dim, 5);
}

static bool attention_check(const struct lib *l, const struct uop *q, const struct uop *k,
                            const struct uop *v)
{
    struct tgc *t = l->t;
    int n = q->ndim;
    int64_t h, hk;
    bool ok = (n == 3 || n == 4) && k->ndim == n && v->ndim == n && dtype_is_float(q->dtype) &&
              k->dtype == q->dtype && v->dtype == q->dtype && sym_equal(t, q->dim[0], k->dim[0]) &&
              sym_equal(t, q->dim[0], v->dim[0]) && sym_equal(t, q->dim[n - 1], k->dim[n - 1]) &&
              sym_equal(t, k->dim[n - 2], v->dim[n - 2]);
    if (ok && n == 4)
        ok = sym_equal(t, k->dim[1], v->dim[1]) && uop_const_int(q->dim[1], &h) &&
             uop_const_int(k->dim[1], &hk) && hk > 0 && h % hk == 0;
    if (!ok)
        lib_error(l,
                  "attention: q is %s, k is %s, v is %s; expected q [b, h, l, e], k [b, hk, s, e], "
                  "v [b, hk, s, ev] of one floating "
                  "dtype, h a constant multiple of hk, or all without the heads",
                  lib_describe(l, q), lib_describe(l, k), lib_describe(l, v));
    return ok;
}

/* The keys that a query may see, by position: bool, broadcasts to [b, 1, 1, l, s]; NULL: all. */
static struct uop *visible_keys(const struct lib *l, const struct attention_attr *a, struct uop *nq,
                                struct uop *nk)
{
    struct tgc *t = l->t;
    struct uop *dim[2] = {nq, nk}, *seen = NULL;
    struct uop *key = tensor_iota(t, dim, 2, 1), *at = tensor_iota(t, dim, 2, 0);
    if (a->offset && !uop_is_int(a->offset, 0))
        at = uop_binary(t, OP_ADD, at, a->offset);
    if (a->causal)
        seen = uop_not(t, uop_binary(t, OP_LT, at, key));
    if (a->causal && a->last_sees_all)
        seen = uop_binary(t, OP_OR, seen,
                          uop_binary(t, OP_EQ, tensor_iota(t, dim, 2, 0), sym_addi(t, nq, -1)));
    if (a->window > 0) {
        struct uop *near = uop_binary(t, OP_LT, uop_binary(t, OP_SUB, at, key),
                                      uop_int(t, a->window));
        seen = seen ? uop_binary(t, OP_AND, seen, near) : near;
    }
    if (a->nkeys) {
        struct uop *bdim[5] = {a->nkeys->dim[0], uop_int(t, 1), uop_int(t, 1), uop_int(t, 1),
                               uop_int(t, 1)};
        struct uop *real = tensor_binary(t, OP_LT, key, uop_reshape(t, a->nkeys, bdim, 5));
        seen = seen ? tensor_binary(t, OP_AND, seen, real) : real;
    }
    return seen;
}

/* [.., l, s] that broadcasts to [b, h, l, s] -> against [b, hk, g, l, s] */
static struct uop *split_mask(const struct lib *l, struct uop *mask, struct uop *const *full,
                              struct uop *nkv, struct uop *group)
{
    struct tgc *t = l->t;
    struct uop *dim[5];
    if (mask->ndim > 4 || !tensor_broadcast_to(t, mask, full, 4))
        return lib_error(
            l, "attention: the mask is %s; it must broadcast to [batch, heads, queries, keys]",
            lib_describe(l, mask));
    while (mask->ndim < 4)
        mask = tensor_insert_axis(t, mask, 0);
    bool one = uop_is_int(mask->dim[1], 1);
    dim[0] = mask->dim[0];
    dim[1] = one ? mask->dim[1] : nkv;
    dim[2] = one ? mask->dim[1] : group;
    dim[3] = mask->dim[2];
    dim[4] = mask->dim[3];
    return uop_reshape(t, mask, dim, 5);
}

/* a [b, h, g, i, k] times b [b, h, 1, j, k], over k. */
static struct uop *score(const struct lib *l, struct uop *a, struct uop *b, const char *names)
{
    struct uop *product = lib_mul(l, tensor_insert_axis(l->t, a, 4),
                                  tensor_insert_axis(l->t, b, 3));
    if (!product)
        return NULL;
    uop_name_axes(l->t, product, names);
    return tensor_sum(l->t, product, 1u << 5, false);
}

struct uop *lib_attention(const struct lib *l, struct uop *q, struct uop *k, struct uop *v,
                          struct uop *mask, const struct attention_attr *a)
{
    struct tgc *t = l->t;
    if (!q || !k || !v || !attention_check(l, q, k, v))
        return NULL;
    enum dtype d = q->dtype, acc = lib_acc_dtype(d);
    int n = q->ndim;
    int64_t h = 1, hk = 1, e;
    if (n == 4) {
        uop_const_int(q->dim[1], &h);
        uop_const_int(k->dim[1], &hk);
    }
    double scale = a->scale != 0                               ? a->scale
                   : uop_const_int(q->dim[n - 1], &e) && e > 0 ? 1 / sqrt((double)e)
                                                               : 0;
    if (scale == 0)
        return lib_error(l,
                         "attention: the size of a head is not known, so the scale must be given");
    struct uop *nkv = uop_int(t, hk), *group = uop_int(t, h / hk), *one = uop_int(t, 1),
               *nq = q->dim[n - 2], *nk = k->dim[n - 2];
    struct uop *full[4] = {q->dim[0], uop_int(t, h), nq, nk},
               *out[4] = {q->dim[0], uop_int(t, h), nq, v->dim[n - 1]};
    /* A narrow dtype is computed in steps, each rounded to it; contractions accumulate in acc. */
    enum dtype soft = a->precision != DTYPE_VOID ? a->precision : d;
    struct uop *q5 = split_heads(l, q, nkv, group), *k5 = split_heads(l, k, nkv, one);
    if (acc != d) {
        struct uop *root = uop_constf(t, d, sqrt(scale));
        q5 = lib_mul(l, q5, root);
        k5 = lib_mul(l, k5, root);
        scale = 1;
    }
    struct uop *v5 = uop_cast(t, acc, split_heads(l, v, nkv, one));
    struct uop *s = score(l, uop_cast(t, acc, q5), uop_cast(t, acc, k5), "b h g i j e");
    s = lib_cast(l, d, scale == 1 ? s : lib_binaryf(l, OP_MUL, s, scale));
    if (s && a->softcap != 0)
        s = lib_binaryf(l, OP_MUL, lib_unary(l, OP_TANH, lib_binaryf(l, OP_DIV, s, a->softcap)),
                        a->softcap);
    struct uop *seen = a->causal || a->window > 0 || a->nkeys ? visible_keys(l, a, nq, nk) : NULL;
    if (mask && !(mask = split_mask(l, mask, full, nkv, group)))
        return NULL;
    if (mask && mask->dtype == DTYPE_BOOL)
        seen = seen ? lib_binary(l, OP_AND, seen, mask) : mask;
    else if (mask)
        s = lib_add(l, s, uop_cast(t, d, mask));
    if (!s)
        return NULL;
    s = uop_cast(t, soft, s);
    uop_name_value(t, s, "scores");
    struct uop *low = uop_constf(t, soft, -(double)INFINITY), *zero = uop_constf(t, soft, 0);
    if (seen && !(s = lib_where(l, seen, s, low)))
        return NULL;
    struct uop *top = tensor_max(t, s, 1u << 4, true);
    uop_name_value(t, top, "row_max");
    /* A row may have no visible key: then its maximum is -inf and its sum 0. Not if each query sees
     * the key at its own position. */
    bool own = !mask && !a->nkeys && (!a->offset || uop_is_int(a->offset, 0)) &&
               sym_equal(t, nq, nk);
    bool hidden = (seen || mask) && !own;
    if (hidden)
        top = lib_where(l, uop_binary(t, OP_EQ, top, low), zero, top);
    struct uop *p = lib_unary(l, OP_EXP, lib_sub(l, s, top)),
               *sum = lib_row_sum(l, p, 1u << 4);
    if (hidden)
        sum = lib_where(l, uop_binary(t, OP_EQ, sum, zero), uop_constf(t, soft, 1), sum);
    p = lib_cast(l, acc, lib_cast(l, d, lib_div(l, p, sum)));
    struct uop *r = score(l, p, uop_permute(t, v5, (int[]){0, 1, 2, 4, 3}), "b h g i e j");
    if (!r)
        return NULL;
    if (n == 3)
        out[1] = nq, out[2] = v->dim[2];
    return uop_cast(t, d, uop_reshape(t, r, out, n));
}

/* ---- rotary embeddings */

struct uop *lib_rope(const struct lib *l, struct uop *x, struct uop *cos, struct uop *sin,
                     bool interleaved)
{
    struct tgc *t = l->t;
    int64_t e, half;
    if (!x || !cos || !sin)
        return NULL;
    int last = x->ndim - 1;
    if (!dtype_is_float(x->dtype) || cos->dtype != sin->dtype || !dtype_is_float(cos->dtype) ||
        last < 0 || cos->ndim < 1 || cos->ndim > x->ndim || sin->ndim != cos->ndim ||
        last == MAX_RANK - 1 || !uop_const_int(x->dim[last], &e) ||
        !uop_const_int(cos->dim[cos->ndim - 1], &half) || half < 1 || 2 * half > e)
        return lib_error(l,
                         "rope: x is %s, cos is %s, sin is %s; expected x [..., e] and cos and sin "
                         "that broadcast to [..., r/2], r <= e",
                         lib_describe(l, x), lib_describe(l, cos), lib_describe(l, sin));
    enum dtype acc = lib_acc_dtype(x->dtype);
    struct uop *n = uop_int(t, half), *zero = uop_int(t, 0), *one = uop_int(t, 1), *a, *b,
               *dim[MAX_RANK];
    struct uop *turn = uop_cast(t, acc, lib_narrow(l, x, last, zero, uop_int(t, 2 * half)));
    ARRAY_COPY(dim, turn->dim, x->ndim);
    if (interleaved) {
        dim[last] = n;
        dim[last + 1] = uop_int(t, 2);
        struct uop *pair = uop_reshape(t, turn, dim, x->ndim + 1);
        a = tensor_drop_axes(t, lib_narrow(l, pair, last + 1, zero, one), 2u << last);
        b = tensor_drop_axes(t, lib_narrow(l, pair, last + 1, one, one), 2u << last);
    } else {
        a = lib_narrow(l, turn, last, zero, n);
        b = lib_narrow(l, turn, last, n, n);
    }
    struct uop *c = uop_cast(t, acc, cos), *s = uop_cast(t, acc, sin);
    struct uop *re = lib_sub(l, lib_mul(l, a, c), lib_mul(l, b, s)),
               *im = lib_add(l, lib_mul(l, a, s), lib_mul(l, b, c));
    if (!re || !im)
        return NULL;
    struct uop *r;
    if (interleaved) {
        struct uop *pair[2] = {tensor_insert_axis(t, re, last + 1),
                               tensor_insert_axis(t, im, last + 1)};
        struct uop *both = lib_concat(l, pair, 2, last + 1);
        dim[last] = uop_int(t, 2 * half);
        r = both ? uop_reshape(t, both, dim, x->ndim) : NULL;
    } else {
        r = lib_concat(l, (struct uop *[]){re, im}, 2, last);
    }
    r = lib_cast(l, x->dtype, r);
    if (!r || 2 * half == e)
        return r;
    struct uop *rest = lib_narrow(l, x, last, uop_int(t, 2 * half), uop_int(t, e - 2 * half));
    return lib_concat(l, (struct uop *[]){r, rest}, 2, last);
}

bool lib_rope_table(const struct lib *l, enum dtype d, struct uop *positions, int64_t rotary,
                    double base, struct uop **cos, struct uop **sin)
{
    struct tgc *t = l->t;
    if (!positions)
        return false;
    if (rotary < 2 || rotary % 2 || rotary > INT32_MAX || !(base > 0) ||
        positions->ndim == MAX_RANK || !dtype_is_int(positions->dtype)) {
        lib_error(l,
                  "rope_table: rotary is %lld, base is %g, positions are %s; expected an even "
                  "size, a positive base, integers",
                  (long long)rotary, base, lib_describe(l, positions));
        return false;
    }
    struct uop *half = uop_int(t, rotary / 2);
    struct uop *i = uop_cast(t, DTYPE_F32, uop_iota(t, half));
    struct uop *frequency = lib_unary(l, OP_EXP,
                                      lib_binaryf(l, OP_MUL, i, -2 * log(base) / (double)rotary));
    struct uop *at = tensor_insert_axis(t, uop_cast(t, DTYPE_F32, positions), positions->ndim);
    struct uop *angle = lib_mul(l, at, frequency);
    *cos = lib_cast(l, d, lib_unary(l, OP_COS, angle));
    *sin = lib_cast(l, d, lib_unary(l, OP_SIN, angle));
    return *cos && *sin;
}
