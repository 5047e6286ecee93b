/* library_contract.c - matmul, linear, convolution of every rank and kind, einsum: each is one
 * REDUCE(ADD) of one MUL.
 *
 *      matmul   a [b, i, 1, k] * b [b, 1, j, k]
 *               reduce k;
 *      conv     x windows [n, g, 1, oy, ox, ic, ky, kx] * w [g, oc, 1, 1, ic, ky, kx]
 *               reduce ic ky kx.
 *
 * A transposed convolution of stride s is a convolution of stride 1 by the mirrored kernel. Each of
 * s adjacent outputs uses every s-th tap of it. If sizes are not known, or with dilations, it is a
 * convolution over the input with s - 1 zeros between its elements. Einsum contracts its operands
 * from left to right, each pair in one reduce over the labels that are not needed later.
 */
#include "frontend/library.h"
#include "frontend/library_window.h"

#include <string.h>

/* The sum of a * b over axes, in the accumulation dtype, axes dropped. a and b broadcast. names:
 * one for each axis of the product. */
static struct uop *contract(const struct lib *l, struct uop *a, struct uop *b, uint32_t axes,
                            const char *names)
{
    enum dtype acc = lib_acc_dtype(a->dtype);
    struct uop *product = lib_mul(l, uop_cast(l->t, acc, a), uop_cast(l->t, acc, b));
    if (!product)
        return NULL;
    uop_name_axes(l->t, product, names);
    return tensor_sum(l->t, product, axes, false);
}

static bool contractible(const struct lib *l, const char *what, const struct uop *a,
                         const struct uop *b)
{
    if (a->dtype != b->dtype || (!dtype_is_float(a->dtype) && !dtype_is_int(a->dtype))) {
        lib_error(l, "%s: the operands are %s and %s; they must have one numeric dtype", what,
                  lib_describe(l, a), lib_describe(l, b));
        return false;
    }
    return true;
}

/* ---- matmul */

static const char *matmul_names(const struct lib *l, int nbatch)
{
    struct text s = {.t = l->t};
    if (nbatch == 1)
        text_puts(&s, "b ");
    else
        for (int i = 0; i < nbatch; i++)
            text_printf(&s, "b%d ", i);
    text_puts(&s, "i j k");
    return s.s;
}

/* a [batch, i, k], b [batch, j, k] -> [batch, i, j], accumulation dtype. */
static struct uop *matmul_nt(const struct lib *l, struct uop *a, struct uop *b)
{
    a = tensor_insert_axis(l->t, a, a->ndim - 1);
    if (b->ndim < a->ndim - 1)
        for (int n = b->ndim; n < a->ndim - 1; n++)
            b = tensor_insert_axis(l->t, b, 0);
    b = tensor_insert_axis(l->t, b, b->ndim - 2);
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    return contract(l, a, b, 1u << (ndim - 1), matmul_names(l, ndim - 3));
}

static struct uop *swap_last(const struct lib *l, struct uop *x)
{
    int perm[MAX_RANK];
    for (int i = 0; i < x->ndim; i++)
        perm[i] = i;
    perm[x->ndim - 2] = x->ndim - 1;
    perm[x->ndim - 1] = x->ndim - 2;
    return uop_permute(l->t, x, perm);
}

struct uop *lib_matmul(const struct lib *l, struct uop *a, struct uop *b)
{
    if (!a || !b || !contractible(l, "matmul", a, b))
        return NULL;
    if (!a->ndim || !b->ndim || a->ndim >= MAX_RANK || b->ndim >= MAX_RANK)
        return lib_error(l, "matmul: operands %s and %s; ranks must be 1..%d", lib_describe(l, a),
                         lib_describe(l, b), MAX_RANK - 1);
    struct uop *m = a->ndim == 1 ? tensor_insert_axis(l->t, a, 0) : a;
    struct uop *n = b->ndim == 1 ? tensor_insert_axis(l->t, b, 0) : swap_last(l, b);
    if (!sym_must_equal(l->t, m->dim[m->ndim - 1], n->dim[n->ndim - 1]))
        return lib_error(
            l,
            "matmul: %s times %s: the last axis of the first must be equal to the %s of the second",
            lib_describe(l, a), lib_describe(l, b), b->ndim == 1 ? "axis" : "last but one");
    struct uop *r = matmul_nt(l, m, n);
    if (!r)
        return NULL;
    uint32_t drop = (a->ndim == 1 ? 1u << (r->ndim - 2) : 0) |
                    (b->ndim == 1 ? 1u << (r->ndim - 1) : 0);
    return uop_cast(l->t, a->dtype, tensor_drop_axes(l->t, r, drop));
}

struct uop *lib_gemm(const struct lib *l, struct uop *a, struct uop *b, struct uop *c, double alpha,
                     double beta, bool trans_a, bool trans_b)
{
    if (!a || !b || !contractible(l, "gemm", a, b))
        return NULL;
    if (a->ndim != 2 || b->ndim != 2)
        return lib_error(l, "gemm: operands %s and %s; both must have rank 2", lib_describe(l, a),
                         lib_describe(l, b));
    struct uop *m = trans_a ? swap_last(l, a) : a, *n = trans_b ? b : swap_last(l, b);
    if (!sym_must_equal(l->t, m->dim[1], n->dim[1]))
        return lib_error(l, "gemm: %s%s times %s%s: the inner sizes differ", lib_describe(l, a),
                         trans_a ? " transposed" : "", lib_describe(l, b),
                         trans_b ? " transposed" : "");
    struct uop *r = matmul_nt(l, m, n);
    if (r && alpha != 1)
        r = lib_binaryf(l, OP_MUL, r, alpha);
    if (r && c && beta != 0) {
        struct uop *wide = tensor_broadcast_to(l->t, c, r->dim, 2);
        if (c->dtype != a->dtype || !wide)
            return lib_error(
                l, "gemm: c is %s; it must have dtype %s and broadcast to the product's shape",
                lib_describe(l, c), dtype_name(a->dtype));
        wide = uop_cast(l->t, r->dtype, wide);
        r = lib_add(l, r, beta != 1 ? lib_binaryf(l, OP_MUL, wide, beta) : wide);
    }
    return r ? uop_cast(l->t, a->dtype, r) : NULL;
}

struct uop *lib_linear(const struct lib *l, struct uop *x, struct uop *w, struct uop *b)
{
    if (!x || !w || !contractible(l, "linear", x, w))
        return NULL;
    if (!x->ndim || w->ndim != 2 || x->ndim >= MAX_RANK ||
        !sym_equal(l->t, x->dim[x->ndim - 1], w->dim[1]))
        return lib_error(l,
                         "linear: x is %s, w is %s; w must be [out, in], and in the last axis of x",
                         lib_describe(l, x), lib_describe(l, w));
    if (b && (b->ndim != 1 || b->dtype != x->dtype || !sym_equal(l->t, b->dim[0], w->dim[0])))
        return lib_error(l, "linear: b is %s; it must be [out] and of dtype %s, where w is %s",
                         lib_describe(l, b), dtype_name(x->dtype), lib_describe(l, w));
    struct uop *r = matmul_nt(l, x->ndim == 1 ? tensor_insert_axis(l->t, x, 0) : x, w);
    if (r && x->ndim == 1)
        r = tensor_drop_axes(l->t, r, 1);
    if (r && b)
        r = lib_add(l, r, uop_cast(l->t, r->dtype, b));
    return r ? uop_cast(l->t, x->dtype, r) : NULL;
}

/* ---- convolution */

/* "n g oc oy ox ic ky kx" */
static const char *conv_names(const struct lib *l, int nspatial, bool grouped)
{
    struct text s = {.t = l->t};
    text_puts(&s, grouped ? "n g oc" : "n oc");
    for (int i = 0; i < nspatial; i++)
        text_printf(&s, " o%s", window_axis_name(nspatial, i));
    text_puts(&s, " ic");
    for (int i = 0; i < nspatial; i++)
        text_printf(&s, " k%s", window_axis_name(nspatial, i));
    return s.s;
}

/* x [n, c, ...] already padded, w [m, c/group, k...]: the windows of x times w. */
static struct uop *conv_padded(const struct lib *l, struct uop *x, struct uop *w, struct uop *b,
                               int64_t group, const int64_t *stride, const int64_t *dilation,
                               struct uop *const *nout)
{
    struct tgc *t = l->t;
    enum dtype d = x->dtype;
    int s = x->ndim - 2, perm[MAX_RANK], lead = group > 1 ? 3 : 2, n = 0;
    struct uop *dim[MAX_RANK], *m = w->dim[0], *one = uop_int(t, 1), *g = uop_int(t, group);
    /* [n, c, o, k, o, k...] */
    struct uop *u = window_view(l, x, nout, w->dim + 2, stride, dilation);
    if (group > 1) {
        dim[n++] = u->dim[0];
        dim[n++] = g;
        dim[n++] = w->dim[1];
        for (int a = 2; a < u->ndim; a++)
            dim[n++] = u->dim[a];
        u = uop_reshape(t, u, dim, n);
    }
    for (int a = 0; a < lead - 1; a++)
        perm[a] = a;
    for (int i = 0; i < s; i++) {
        perm[lead - 1 + i] = lead + 2 * i;
        perm[lead + s + i] = lead + 2 * i + 1;
    }
    perm[lead - 1 + s] = lead - 1;
    /* [n, g, 1, o..., ic, k...] */
    u = tensor_insert_axis(t, uop_permute(t, u, perm), lead - 1);
    n = 0;
    if (group > 1)
        dim[n++] = g;
    dim[n++] = sym_div(t, m, g);
    for (int i = 0; i < s; i++)
        dim[n++] = one;
    for (int a = 1; a < w->ndim; a++)
        dim[n++] = w->dim[a];
    struct uop *r = contract(l, u, uop_reshape(t, w, dim, n), ((1u << (s + 1)) - 1) << (lead + s),
                             conv_names(l, s, group > 1));
    if (!r)
        return NULL;
    dim[0] = r->dim[0];
    dim[1] = m;
    for (int i = 0; i < s; i++)
        dim[2 + i] = nout[i];
    r = uop_reshape(t, r, dim, s + 2);
    if (b) {
        struct uop *bdim[MAX_RANK] = {m};
        for (int i = 0; i < s; i++)
            bdim[1 + i] = one;
        r = lib_add(l, r, uop_cast(t, r->dtype, uop_reshape(t, b, bdim, s + 1)));
    }
    return r ? uop_cast(t, d, r) : NULL;
}

static bool conv_check(const struct lib *l, const char *what, struct uop *x, struct uop *w,
                       struct uop *b, int64_t group, struct uop *m, struct uop *c)
{
    int64_t n;
    bool ok = false;
    if (x->ndim < 3 || x->ndim - 2 > MAX_SPATIAL || w->ndim != x->ndim)
        lib_error(l,
                  "%s: x is %s, w is %s; x must be [n, c, spatial...] with 1..%d spatial axes, and "
                  "w of the same rank",
                  what, lib_describe(l, x), lib_describe(l, w), MAX_SPATIAL);
    else if (group < 1)
        lib_error(l, "%s: group %lld; it must be positive", what, (long long)group);
    else if (!m || !c || !sym_equal(l->t, x->dim[1], c))
        lib_error(l, "%s: x is %s, w is %s, group %lld: the channels do not agree", what,
                  lib_describe(l, x), lib_describe(l, w), (long long)group);
    else if (uop_const_int(m, &n) && n % group)
        lib_error(l, "%s: %lld output channels cannot be split into %lld groups", what,
                  (long long)n, (long long)group);
    else if (b && (b->ndim != 1 || b->dtype != x->dtype || !sym_equal(l->t, b->dim[0], m)))
        lib_error(l, "%s: b is %s; it must have one %s for each output channel, where w is %s",
                  what, lib_describe(l, b), dtype_name(x->dtype), lib_describe(l, w));
    else
        ok = true;
    return ok;
}

/* Whether tap k of the windows reads any element of x, or only padding. */
static bool tap_meets(int64_t k, int64_t lo, int64_t in, int64_t nout, int64_t stride,
                      int64_t dilation)
{
    int64_t first = sat_add(sat_mul(k, dilation), -lo), last;
    last = sat_add(first, sat_mul(nout - 1, stride));
    /* the first index that is not before x is inside it, and is one that some window reads */
    int64_t step = first < 0 ? (stride - 1 - first) / stride : 0;
    return last >= 0 && sat_add(first, sat_mul(step, stride)) < in;
}

/* w without the outer taps that read only padding: wide dilations on small images leave one tap of
 * three. The padding shrinks accordingly. */
static struct uop *drop_taps(const struct lib *l, const struct uop *x, struct uop *w,
                             struct window_plan *p)
{
    struct tgc *t = l->t;
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t k, in, lo, hi, nout, first = 0, s = p->stride[i], d = p->dilation[i];
        if (!uop_const_int(w->dim[2 + i], &k) || !uop_const_int(x->dim[2 + i], &in) ||
            !uop_const_int(p->lo[i], &lo) || !uop_const_int(p->hi[i], &hi) ||
            !uop_const_int(p->nout[i], &nout) || (p->extra[i] && !uop_is_int(p->extra[i], 0)) ||
            nout < 1 || lo < 0 || hi < 0)
            continue;
        int64_t end = k;
        while (first < end && sat_mul(first + 1, d) <= lo && !tap_meets(first, lo, in, nout, s, d))
            first++;
        while (end > first && sat_mul(k - end + 1, d) <= hi &&
               !tap_meets(end - 1, lo, in, nout, s, d))
            end--;
        if (first == end || end - first == k)
            continue;
        w = lib_slice(l, w, 2 + i, uop_int(t, first), uop_int(t, end), 1);
        p->lo[i] = uop_int(t, lo - first * d);
        p->hi[i] = uop_int(t, hi - (k - end) * d);
    }
    return w;
}

struct uop *lib_conv(const struct lib *l, struct uop *x, struct uop *w, struct uop *b,
                     const struct window_attr *a)
{
    struct window_plan p;
    if (!x || !w || !contractible(l, "conv", x, w))
        return NULL;
    int64_t group = a->group ? a->group : 1;
    struct uop *m = w->ndim > 1 ? w->dim[0] : NULL,
               *c = w->ndim > 1 ? sym_muli(l->t, w->dim[1], group) : NULL;
    if (!conv_check(l, "conv", x, w, b, group, m, c) ||
        !window_plan(l, "conv", x, w->dim + 2, a, &p))
        return NULL;
    w = drop_taps(l, x, w, &p);
    x = window_pad(l, x, uop_consti(l->t, x->dtype, 0), &p);
    return x ? conv_padded(l, x, w, b, group, p.stride, p.dilation, p.nout) : NULL;
}

/* [.., i, ..] -> [.., i * s, ..]: s - 1 zeros after each element. */
static struct uop *stuff_zeros(const struct lib *l, struct uop *x, int axis, int64_t s)
{
    struct tgc *t = l->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *dim[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        dim[a] = a == axis ? sym_muli(t, x->dim[a], s) : x->dim[a];
    struct uop *u = tensor_insert_axis(t, x, axis + 1);
    for (int a = 0; a < u->ndim; a++) {
        lo[a] = uop_int(t, 0);
        hi[a] = uop_int(t, a == axis + 1 ? s - 1 : 0);
    }
    return uop_reshape(t, uop_pad(t, u, uop_consti(t, x->dtype, 0), lo, hi), dim, x->ndim);
}

/* Pads of one axis, from the attributes, from output_size, or from auto_pad. source: ONNX
 * ConvTranspose. */
static void transpose_pads(const struct lib *l, const struct window_attr *a, int i, struct uop *in,
                           struct uop *k, int64_t stride, int64_t dilation, struct uop **lo,
                           struct uop **hi)
{
    struct tgc *t = l->t;
    struct uop *zero = uop_int(t, 0), *out = a->output_size[i];
    *lo = a->auto_pad || !a->lo[i] ? zero : a->lo[i];
    *hi = a->auto_pad || !a->hi[i] ? zero : a->hi[i];
    bool same = a->auto_pad == AUTO_PAD_SAME_UPPER || a->auto_pad == AUTO_PAD_SAME_LOWER;
    if (!out && same)
        out = sym_muli(t, in, stride);
    if (!out)
        return;
    struct uop *reach = sym_addi(t, sym_muli(t, sym_addi(t, k, -1), dilation),
                                 1 + a->output_padding[i]);
    struct uop *total = sym_sub(t, sym_add(t, sym_muli(t, sym_addi(t, in, -1), stride), reach),
                                out);
    struct uop *half = sym_div(t, total, uop_int(t, 2)), *rest = sym_sub(t, total, half);
    *lo = a->auto_pad == AUTO_PAD_SAME_UPPER ? half : rest;
    *hi = a->auto_pad == AUTO_PAD_SAME_UPPER ? rest : half;
}

/* w [c, m/group, k...] -> [m, c/group, k...], mirrored. */
static struct uop *transpose_kernel(const struct lib *l, struct uop *w, int64_t group)
{
    struct tgc *t = l->t;
    struct uop *g = uop_int(t, group),
               *dim[MAX_RANK + 1] = {g, sym_div(t, w->dim[0], g), w->dim[1]};
    int perm[MAX_RANK + 1] = {0, 2, 1};
    for (int a = 2; a < w->ndim; a++) {
        dim[a + 1] = w->dim[a];
        perm[a + 1] = a + 1;
    }
    struct uop *u = uop_permute(t, uop_reshape(t, w, dim, w->ndim + 1), perm);
    struct uop *out[MAX_RANK] = {sym_mul(t, g, w->dim[1]), dim[1]};
    for (int a = 2; a < w->ndim; a++)
        out[a] = w->dim[a];
    return uop_flip(t, uop_reshape(t, u, out, w->ndim), lib_all_axes(w) & ~3u);
}

/* Transposed convolution of known kernels, pads and strides. The s adjacent outputs along an axis
 * are first computed as channels, each from every s-th tap: y[s*q + r] = sum over j of
 * x[q - j] w[s*j + r]. If s does not divide the number of taps, the first outputs have one tap
 * more. Each group of outputs with equally many taps is one convolution. Padding the taps with
 * zeros would cost as much as taps, and propagate NaN and infinities of x to outputs that do not
 * depend on them.
 */
struct phases {
    struct uop *out[MAX_SPATIAL], *nq[MAX_SPATIAL];
    int64_t crop[MAX_SPATIAL], ntap[MAX_SPATIAL];
};

/* Phases with the same number of taps: along each axis, `count` from `first` on. */
struct alike { int64_t first[MAX_SPATIAL], count[MAX_SPATIAL], taps[MAX_SPATIAL]; };

/* false: the kernel's size or the first pad is not known, or dilations or rounded sums do not allow
 * it. The input's size may be the run's. p->lo and hi: of the result. */
static bool find_phases(struct tgc *t, const struct uop *x, const struct uop *w,
                        struct window_plan *p, const struct window_attr *a, struct phases *f)
{
    enum { SIZE_MAX_SAFE = 1 << 24 };
    bool strides = false;
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t k, lo, s = p->stride[i];
        struct uop *in = x->dim[2 + i];
        if (!uop_const_int(w->dim[2 + i], &k) || !uop_const_int(p->lo[i], &lo) ||
            p->dilation[i] != 1 || lo < 0 || in->vmax < 1 || k < 1 || in->vmax > SIZE_MAX_SAFE ||
            k > SIZE_MAX_SAFE || s > SIZE_MAX_SAFE || lo > SIZE_MAX_SAFE ||
            p->hi[i]->vmin < -SIZE_MAX_SAFE || p->hi[i]->vmax > SIZE_MAX_SAFE)
            return false;
        f->out[i] = sym_sub(t, sym_addi(t, sym_muli(t, in, s), k - s + a->output_padding[i] - lo),
                            p->hi[i]);
        f->crop[i] = lo % s;
        f->nq[i] = sym_addi(t, sym_ceildiv(t, sym_addi(t, f->out[i], lo), s), -(lo / s));
        f->ntap[i] = k;
        strides |= s > 1;
        if (f->out[i]->vmax < 1)
            return false;
    }
    return strides && lib_acc_dtype(x->dtype) == x->dtype;
}

/* w [c, m/group, k...] -> [c, m/group * count..., taps...] */
static struct uop *split_taps(const struct lib *l, struct uop *w, const struct window_plan *p,
                              const struct phases *f, const struct alike *k)
{
    struct tgc *t = l->t;
    struct uop *zero[MAX_RANK], *hi[MAX_RANK], *size[MAX_RANK],
        *dim[MAX_RANK] = {w->dim[0], w->dim[1]};
    int n = w->ndim - 2, perm[MAX_RANK] = {0, 1};
    struct uop *m = w->dim[1];
    for (int a = 0; a < w->ndim; a++)
        zero[a] = hi[a] = uop_int(t, 0);
    for (int i = 0; i < n; i++) {
        int64_t steps = (f->ntap[i] + p->stride[i] - 1) / p->stride[i];
        hi[2 + i] = uop_int(t, steps * p->stride[i] - f->ntap[i]);
        dim[2 + 2 * i] = uop_int(t, steps);
        dim[3 + 2 * i] = uop_int(t, p->stride[i]);
        perm[2 + i] = 3 + 2 * i;
        perm[2 + n + i] = 2 + 2 * i;
        m = sym_muli(t, m, k->count[i]);
    }
    w = uop_reshape(t, uop_pad(t, w, uop_consti(t, w->dtype, 0), zero, hi), dim, 2 + 2 * n);
    struct uop *begin[MAX_RANK] = {uop_int(t, 0), uop_int(t, 0)};
    size[0] = w->dim[0];
    size[1] = w->dim[1];
    for (int i = 0; i < n; i++) {
        begin[2 + 2 * i] = uop_int(t, 0);
        begin[3 + 2 * i] = uop_int(t, k->first[i]);
        size[2 + 2 * i] = uop_int(t, k->taps[i]);
        size[3 + 2 * i] = uop_int(t, k->count[i]);
    }
    w = uop_permute(t, uop_shrink(t, w, begin, size), perm);
    dim[1] = m;
    for (int i = 0; i < n; i++)
        dim[2 + i] = uop_int(t, k->taps[i]);
    return uop_reshape(t, w, dim, 2 + n);
}

/* y [n, m, s..., q...] -> [n, m, out...] */
static struct uop *join_phases(const struct lib *l, struct uop *y, struct uop *m,
                               const struct window_plan *p, const struct phases *f)
{
    struct tgc *t = l->t;
    struct uop *dim[MAX_RANK] = {y->dim[0], m}, *begin[MAX_RANK], *size[MAX_RANK];
    int n = (y->ndim - 2) / 2, perm[MAX_RANK] = {0, 1};
    bool crops = false;
    for (int i = 0; i < n; i++) {
        perm[2 + 2 * i] = 2 + n + i;
        perm[3 + 2 * i] = 2 + i;
    }
    y = uop_permute(t, y, perm);
    for (int i = 0; i < n; i++) {
        dim[2 + i] = sym_muli(t, f->nq[i], p->stride[i]);
        begin[2 + i] = uop_int(t, f->crop[i]);
        size[2 + i] = f->out[i];
        crops |= f->crop[i] != 0;
    }
    if (crops)  /* a crop that is no whole number of steps is not divided */
        y = uop_new(t, OP_CONTIGUOUS, y->dtype, &y, 1, (union arg){0});
    y = uop_reshape(t, y, dim, 2 + n);
    begin[0] = begin[1] = uop_int(t, 0);
    size[0] = y->dim[0];
    size[1] = y->dim[1];
    return uop_shrink(t, y, begin, size);
}

/* The outputs of phases with the same number of taps: [n, m, count..., q...]. */
static struct uop *phases_alike(const struct lib *l, struct uop *x, struct uop *w, int64_t group,
                                struct uop *m, const struct window_plan *p,
                                const struct phases *f, const struct alike *k)
{
    struct tgc *t = l->t;
    struct window_plan inner = *p;
    int64_t unit[MAX_SPATIAL], lo;
    int n = x->ndim - 2;
    bool none = false;
    struct uop *dim[MAX_RANK] = {x->dim[0], m};
    for (int i = 0; i < n; i++) {
        if (!uop_const_int(p->lo[i], &lo))
            return NULL;
        int64_t first = lo / p->stride[i];
        inner.lo[i] = uop_int(t, k->taps[i] - 1 - first);
        inner.hi[i] = sym_sub(t, sym_addi(t, f->nq[i], first), x->dim[2 + i]);
        inner.nout[i] = f->nq[i];
        unit[i] = 1;
        none |= k->taps[i] == 0;
        dim[2 + i] = uop_int(t, k->count[i]);
        dim[2 + n + i] = f->nq[i];
    }
    if (none)
        return tensor_broadcast_to(t, uop_consti(t, x->dtype, 0), dim, 2 + 2 * n);
    x = window_pad(l, x, uop_consti(t, x->dtype, 0), &inner);
    struct uop *taps = transpose_kernel(l, split_taps(l, w, p, f, k), group);
    struct uop *y = x ? conv_padded(l, x, taps, NULL, group, unit, unit, inner.nout) : NULL;
    return y ? uop_reshape(t, y, dim, 2 + 2 * n) : NULL;
}

static struct uop *transpose_by_phases(const struct lib *l, struct uop *x, struct uop *w,
                                       struct uop *b, int64_t group, struct uop *m,
                                       struct window_plan *p, const struct phases *f)
{
    struct tgc *t = l->t;
    int n = x->ndim - 2, kinds = 1 << n;
    struct uop *part[1 << MAX_SPATIAL], *dim[MAX_RANK] = {m};
    for (int kind = 0; kind < kinds; kind++) {
        struct alike k;
        bool any = true;
        for (int i = 0; i < n; i++) {    /* bit i: phases with one tap fewer along axis i */
            int64_t s = p->stride[i], more = f->ntap[i] % s;
            bool fewer = kind >> i & 1;
            k.first[i] = fewer ? more : 0;
            k.count[i] = fewer ? s - more : more;
            k.taps[i] = f->ntap[i] / s + !fewer;
            any &= k.count[i] > 0;
        }
        part[kind] = any ? phases_alike(l, x, w, group, m, p, f, &k) : NULL;
        if (any && !part[kind])
            return NULL;
    }
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < kinds; kind++) {
            struct uop *both[] = {part[kind], part[kind | 1 << i]};
            if (both[0] && both[1] && !(kind >> i & 1))
                part[kind] = uop_concat(t, both, 2, 2 + i);
            else if (!both[0])
                part[kind] = both[1];
        }
    struct uop *y = join_phases(l, part[0], m, p, f);
    for (int i = 1; i < y->ndim - 1; i++)
        dim[i] = uop_int(t, 1);
    return b ? lib_add(l, y, uop_reshape(t, b, dim, y->ndim - 1)) : y;
}

struct uop *lib_conv_transpose(const struct lib *l, struct uop *x, struct uop *w, struct uop *b,
                               const struct window_attr *a)
{
    struct tgc *t = l->t;
    struct window_plan p;
    if (!x || !w || !contractible(l, "conv_transpose", x, w))
        return NULL;
    int64_t group = a->group ? a->group : 1;
    struct uop *m = w->ndim > 1 ? sym_muli(t, w->dim[1], group) : NULL,
               *c = w->ndim > 1 ? w->dim[0] : NULL;
    if (!conv_check(l, "conv_transpose", x, w, b, group, m, c) ||
        !window_steps(l, "conv_transpose", x, a, &p))
        return NULL;
    int64_t channels;
    if (uop_const_int(c, &channels) && channels % group)
        return lib_error(l, "conv_transpose: %s cannot be split into %lld groups",
                         lib_describe(l, x), (long long)group);
    int64_t unit[MAX_SPATIAL];
    struct phases f;
    for (int i = 0; i < x->ndim - 2; i++) {
        if (a->output_padding[i] < 0 || a->output_padding[i] > INT32_MAX)
            return lib_error(l, "conv_transpose: output_padding %lld",
                             (long long)a->output_padding[i]);
        transpose_pads(l, a, i, x->dim[2 + i], w->dim[2 + i], p.stride[i], p.dilation[i], &p.lo[i],
                       &p.hi[i]);
    }
    if (find_phases(t, x, w, &p, a, &f))
        return transpose_by_phases(l, x, w, b, group, m, &p, &f);
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t stride = p.stride[i];
        struct uop *reach = sym_muli(t, sym_addi(t, w->dim[2 + i], -1), p.dilation[i]);
        p.lo[i] = sym_sub(t, reach, p.lo[i]);
        p.hi[i] = sym_addi(t, sym_sub(t, reach, p.hi[i]), a->output_padding[i] - (stride - 1));
        if (stride > 1)
            x = stuff_zeros(l, x, 2 + i, stride);
        p.nout[i] = sym_sub(t, sym_add(t, sym_add(t, x->dim[2 + i], p.lo[i]), p.hi[i]), reach);
        if (p.nout[i]->vmax < 1)
            return lib_error(l,
                             "conv_transpose: spatial axis %d of the result is empty: input %s, "
                             "kernel %s, pads that cut too much",
                             i, lib_describe(l, x), lib_describe(l, w));
        unit[i] = 1;
    }
    x = window_pad(l, x, uop_consti(t, x->dtype, 0), &p);
    return x ? conv_padded(l, x, transpose_kernel(l, w, group), b, group, unit, p.dilation, p.nout)
             : NULL;
}
