/* library_window.c - sliding windows and what pools make of them.
 *
 *      x [n, c, y, x] --pad--> --window y--> [n, c, oy, ky, x] --window x--> [n, c, oy, ky, ox, kx]
 *      --permute--> [n, c, oy, ox, ky, kx]
 *
 * The divisor of an average is arithmetic on the output's coordinates, not a second pool.
 */
#include "frontend/library_window.h"

#include <math.h>

const char *window_axis_name(int nspatial, int i)
{
    static const char *const name[] = {"x", "y", "z", "w", "v", "u"};
    return name[nspatial - 1 - i];
}

bool window_steps(const struct lib *l, const char *what, const struct uop *x,
                  const struct window_attr *a, struct window_plan *p)
{
    for (int i = 0; i < x->ndim - 2; i++) {
        p->stride[i] = a->stride[i] ? a->stride[i] : 1;
        p->dilation[i] = a->dilation[i] ? a->dilation[i] : 1;
        if (p->stride[i] < 1 || p->dilation[i] < 1 || p->stride[i] >= 1 << 28 ||
            p->dilation[i] >= 1 << 28) {
            lib_error(l,
                      "%s: spatial axis %d has stride %lld and dilation %lld; both must be "
                      "positive and below 2^28",
                      what, i, (long long)p->stride[i], (long long)p->dilation[i]);
            return false;
        }
        p->lo[i] = p->hi[i] = p->extra[i] = uop_int(l->t, 0);
    }
    return true;
}

/* source: ONNX Conv and MaxPool, auto_pad */
static void same_pads(struct tgc *t, bool upper, struct uop *n, struct uop *reach, int64_t stride,
                      struct uop **lo, struct uop **hi)
{
    struct uop *nout = sym_ceildiv(t, n, stride);
    struct uop *total = sym_sub(t, sym_add(t, sym_muli(t, sym_addi(t, nout, -1), stride), reach),
                                n);
    total = sym_max(t, total, uop_int(t, 0));
    struct uop *half = sym_div(t, total, uop_int(t, 2)), *rest = sym_sub(t, total, half);
    *lo = upper ? half : rest;
    *hi = upper ? rest : half;
}

/* Rounded up, but no window starts in the padding at the end. source: ONNX MaxPool, ceil_mode */
static void ceil_windows(struct tgc *t, struct uop *n, struct uop *reach, struct window_plan *p,
                         int i)
{
    struct uop *padded = sym_add(t, sym_add(t, n, p->lo[i]), p->hi[i]);
    struct uop *all = sym_addi(t, sym_ceildiv(t, sym_sub(t, padded, reach), p->stride[i]), 1);
    p->nout[i] = sym_min(t, all, sym_ceildiv(t, sym_add(t, n, p->lo[i]), p->stride[i]));
    struct uop *need = sym_add(t, sym_muli(t, sym_addi(t, p->nout[i], -1), p->stride[i]), reach);
    p->extra[i] = sym_max(t, sym_sub(t, need, padded), uop_int(t, 0));
}

bool window_plan(const struct lib *l, const char *what, const struct uop *x,
                 struct uop *const *kernel, const struct window_attr *a, struct window_plan *p)
{
    struct tgc *t = l->t;
    if (!window_steps(l, what, x, a, p))
        return false;
    for (int i = 0; i < x->ndim - 2; i++) {
        struct uop *n = x->dim[2 + i],
                   *reach = sym_addi(t, sym_muli(t, sym_addi(t, kernel[i], -1), p->dilation[i]), 1);
        if (a->auto_pad == AUTO_PAD_SAME_UPPER || a->auto_pad == AUTO_PAD_SAME_LOWER)
            same_pads(t, a->auto_pad == AUTO_PAD_SAME_UPPER, n, reach, p->stride[i], &p->lo[i],
                      &p->hi[i]);
        else if (a->auto_pad == AUTO_PAD_NONE) {
            p->lo[i] = a->lo[i] ? a->lo[i] : p->lo[i];
            p->hi[i] = a->hi[i] ? a->hi[i] : p->hi[i];
        }
        struct uop *padded = sym_add(t, sym_add(t, n, p->lo[i]), p->hi[i]);
        if (kernel[i]->vmin < 1 || sym_sub(t, padded, reach)->vmax < 0) {
            struct text size = {.t = t};
            uop_print(&size, reach);
            lib_error(l,
                      "%s: a window of %s (kernel with dilation) on spatial axis %d does not fit "
                      "into %s, padding included",
                      what, size.s, i, lib_describe(l, x));
            return false;
        }
        if (a->ceil_mode && (a->auto_pad == AUTO_PAD_NONE || a->auto_pad == AUTO_PAD_VALID))
            ceil_windows(t, n, reach, p, i);
        else
            p->nout[i] = sym_addi(
                t, sym_div(t, sym_sub(t, padded, reach), uop_int(t, p->stride[i])), 1);
    }
    return true;
}

struct uop *window_pad(const struct lib *l, struct uop *x, struct uop *value,
                       const struct window_plan *p)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    lo[0] = hi[0] = lo[1] = hi[1] = uop_int(l->t, 0);
    for (int i = 0; i < x->ndim - 2; i++) {
        lo[2 + i] = p->lo[i];
        hi[2 + i] = p->hi[i];
        if (p->extra[i] && !uop_is_int(p->extra[i], 0))
            hi[2 + i] = sym_add(l->t, hi[2 + i], p->extra[i]);
    }
    return lib_pad(l, x, PAD_MODE_CONSTANT, value, lo, hi);
}

struct uop *window_view(const struct lib *l, struct uop *x, struct uop *const *nout,
                        struct uop *const *kernel, const int64_t *stride, const int64_t *dilation)
{
    int nspatial = x->ndim - 2;
    for (int i = 0; i < nspatial; i++)
        x = uop_window(l->t, x, 2 + 2 * i, nout[i], kernel[i], stride[i], dilation[i]);
    return x;
}

/* ---- pools */

/* Windows with the kernel's axes last: [n, c, o..., k...]. */
static struct uop *pool_view(const struct lib *l, struct uop *x, struct uop *value,
                             struct uop *const *kernel, const struct window_plan *p)
{
    int s = x->ndim - 2, perm[MAX_RANK] = {0, 1};
    struct text names = {.t = l->t};
    x = window_pad(l, x, value, p);
    if (!x)
        return NULL;
    x = window_view(l, x, p->nout, kernel, p->stride, p->dilation);
    text_puts(&names, "n c");
    for (int i = 0; i < s; i++) {
        perm[2 + i] = 2 + 2 * i;
        perm[2 + s + i] = 3 + 2 * i;
        text_printf(&names, " o%s", window_axis_name(s, i));
    }
    for (int i = 0; i < s; i++)
        text_printf(&names, " p%s", window_axis_name(s, i));
    x = uop_permute(l->t, x, perm);
    uop_name_axes(l->t, x, names.s);
    return x;
}

/* i64 of shape [o]: how many elements of window o on axis i count. */
static struct uop *pool_count(const struct lib *l, const struct window_attr *a,
                              const struct window_plan *p, struct uop *n, int i)
{
    struct tgc *t = l->t;
    struct uop *zero = uop_int(t, 0), *k = uop_int(t, a->kernel[i]),
               *d = uop_int(t, p->dilation[i]);
    struct uop *lo = a->count_include_pad ? zero : sym_max(t, p->lo[i], zero);
    struct uop *hi = sym_add(t, sym_add(t, n, p->lo[i]),
                             a->count_include_pad ? p->hi[i] : sym_min(t, p->hi[i], zero));
    struct uop *start = uop_binary(t, OP_MUL, uop_iota(t, p->nout[i]), uop_int(t, p->stride[i]));
    struct uop *up = sym_addi(t, d, -1);                /* ceil((v - start) / d) */
    struct uop *first = uop_binary(t, OP_FLOORDIV, uop_binary(t, OP_SUB, sym_add(t, lo, up), start),
                                   d);
    struct uop *end = uop_binary(t, OP_FLOORDIV, uop_binary(t, OP_SUB, sym_add(t, hi, up), start),
                                 d);
    first = uop_binary(t, OP_MAX, first, zero);
    end = uop_binary(t, OP_MIN, end, k);
    return uop_binary(t, OP_MAX, uop_binary(t, OP_SUB, end, first), uop_int(t, 1));
}

static struct uop *pool_divisor(const struct lib *l, struct uop *x, enum dtype acc,
                                const struct window_attr *a, const struct window_plan *p)
{
    struct tgc *t = l->t;
    struct uop *count = uop_int(t, 1);
    for (int i = 0; i < x->ndim - 2; i++) {
        bool whole = uop_is_int(p->extra[i], 0) &&
                     (a->count_include_pad || (uop_is_int(p->lo[i], 0) && uop_is_int(p->hi[i], 0)));
        struct uop *c = whole ? uop_int(t, a->kernel[i]) : pool_count(l, a, p, x->dim[2 + i], i),
                   *dim[MAX_RANK];
        for (int k = i; !whole && k < x->ndim - 2; k++)
            dim[k - i] = k == i ? p->nout[i] : uop_int(t, 1);
        count = lib_mul(l, count, whole ? c : uop_reshape(t, c, dim, x->ndim - 2 - i));
    }
    return uop_cast(t, acc, count);
}

static bool pool_plan(const struct lib *l, struct uop *x, const struct window_attr *a,
                      struct uop **kernel, struct window_plan *p)
{
    if (x->ndim < 3 || x->ndim - 2 > MAX_SPATIAL) {
        lib_error(l, "pool: x is %s; it must be [n, c, spatial...] with 1..%d spatial axes",
                  lib_describe(l, x), MAX_SPATIAL);
        return false;
    }
    for (int i = 0; i < x->ndim - 2; i++) {
        if (a->kernel[i] < 1 || a->kernel[i] > INT32_MAX) {
            lib_error(l, "pool: kernel %lld on spatial axis %d; it must be positive",
                      (long long)a->kernel[i], i);
            return false;
        }
        kernel[i] = uop_int(l->t, a->kernel[i]);
    }
    return window_plan(l, "pool", x, kernel, a, p);
}

static struct uop *lowest(const struct lib *l, enum dtype d)
{
    return dtype_is_float(d) ? uop_constf(l->t, d, -(double)INFINITY)
                             : uop_consti(l->t, d, dtype_min(d));
}

struct uop *lib_pool(const struct lib *l, enum pool_kind kind, struct uop *x,
                     const struct window_attr *a)
{
    struct uop *kernel[MAX_SPATIAL];
    struct window_plan p;
    if (!x || !pool_plan(l, x, a, kernel, &p))
        return NULL;
    if (kind == POOL_MAX ? !dtype_is_float(x->dtype) && !dtype_is_int(x->dtype)
                         : !dtype_is_float(x->dtype))
        return lib_error(l, "pool: x is %s; it must be %s", lib_describe(l, x),
                         kind == POOL_MAX ? "numeric" : "floating");
    enum dtype d = x->dtype, acc = kind == POOL_MAX ? d : lib_acc_dtype(d);
    struct uop *value = kind == POOL_MAX ? lowest(l, d) : uop_consti(l->t, d, 0);
    struct uop *u = pool_view(l, x, value, kernel, &p);
    if (!u)
        return NULL;
    uint32_t axes = lib_all_axes(u) & ~lib_all_axes(x);
    double power = a->p != 0 ? a->p : 2;
    if (kind == POOL_MAX)
        return tensor_max(l->t, u, axes, false);
    const char *names = uop_get_axes(l->t, u);
    u = uop_cast(l->t, acc, u);
    if (kind == POOL_LP) {
        u = power == 2 ? lib_mul(l, u, u) : lib_unary(l, OP_ABS, u);
        u = power == 1 || power == 2 ? u : lib_binaryf(l, OP_POW, u, power);
    }
    uop_name_axes(l->t, u, names);
    u = tensor_sum(l->t, u, axes, false);
    if (kind == POOL_AVERAGE)
        uop_name_value(l->t, u = lib_div(l, u, pool_divisor(l, x, acc, a, &p)), "mean");
    else if (power != 1)
        u = power == 2 ? lib_unary(l, OP_SQRT, u) : lib_binaryf(l, OP_POW, u, 1 / power);
    return lib_cast(l, d, u);
}

/* Row-major position in the flattened input of each element of the windows, i64 [n, c, o..., k...];
 * valid: it is no padding. */
static struct uop *window_positions(const struct lib *l, struct uop *x, struct uop *u,
                                    const struct window_plan *p, struct uop **valid)
{
    struct tgc *t = l->t;
    int s = x->ndim - 2;
    struct uop *flat = uop_binary(
        t, OP_ADD, uop_binary(t, OP_MUL, tensor_iota(t, u->dim, u->ndim, 0), x->dim[1]),
        tensor_iota(t, u->dim, u->ndim, 1));
    *valid = uop_bool(t, true);
    for (int i = 0; i < s; i++) {
        struct uop *o = uop_binary(t, OP_MUL, tensor_iota(t, u->dim, u->ndim, 2 + i),
                                   uop_int(t, p->stride[i]));
        struct uop *k = uop_binary(t, OP_MUL, tensor_iota(t, u->dim, u->ndim, 2 + s + i),
                                   uop_int(t, p->dilation[i]));
        struct uop *at = uop_binary(t, OP_SUB, uop_binary(t, OP_ADD, o, k), p->lo[i]);
        *valid = uop_binary(t, OP_AND, *valid, uop_binary(t, OP_LT, uop_int(t, -1), at));
        *valid = uop_binary(t, OP_AND, *valid, uop_binary(t, OP_LT, at, x->dim[2 + i]));
        flat = uop_binary(t, OP_ADD, uop_binary(t, OP_MUL, flat, x->dim[2 + i]), at);
    }
    return flat;
}

/* The same positions counted with the first spatial axis fastest. */
static struct uop *to_column_major(const struct lib *l, struct uop *flat, const struct uop *x)
{
    struct tgc *t = l->t;
    struct uop *at[MAX_SPATIAL], *rest = flat;
    for (int i = x->ndim - 3; i >= 0; i--) {
        at[i] = uop_binary(t, OP_FLOORMOD, rest, x->dim[2 + i]);
        rest = uop_binary(t, OP_FLOORDIV, rest, x->dim[2 + i]);
    }
    for (int i = x->ndim - 3; i >= 0; i--)
        rest = uop_binary(t, OP_ADD, uop_binary(t, OP_MUL, rest, x->dim[2 + i]), at[i]);
    return rest;
}

struct uop *lib_max_pool_indices(const struct lib *l, struct uop *x, const struct window_attr *a,
                                 bool column_major)
{
    struct tgc *t = l->t;
    struct uop *kernel[MAX_SPATIAL], *valid;
    struct window_plan p;
    if (!x || !pool_plan(l, x, a, kernel, &p))
        return NULL;
    struct uop *u = pool_view(l, x, lowest(l, x->dtype), kernel, &p);
    if (!u)
        return NULL;
    uint32_t axes = lib_all_axes(u) & ~lib_all_axes(x);
    struct uop *hit = tensor_binary(t, OP_EQ, u, tensor_max(t, u, axes, true));
    if (dtype_is_float(x->dtype))
        hit = uop_binary(t, OP_OR, hit, uop_unary(t, OP_ISNAN, u));
    struct uop *flat = window_positions(l, x, u, &p, &valid);
    struct uop *place = tensor_where(t, uop_binary(t, OP_AND, hit, valid), flat,
                                     uop_int(t, INT64_MAX));
    struct uop *first = tensor_drop_axes(t, uop_reduce(t, OP_MIN, place, axes), axes);
    struct uop *index = column_major ? to_column_major(l, first, x) : first;
    bool apart = false;     /* windows with dilations can be all padding */
    for (int i = 0; i < x->ndim - 2; i++)
        apart |= p.dilation[i] > 1;
    return apart ? tensor_where(t, tensor_binary(t, OP_EQ, first, uop_int(t, INT64_MAX)),
                                uop_int(t, -1), index)
                 : index;
}

struct uop *lib_global_pool(const struct lib *l, enum pool_kind kind, struct uop *x, double p)
{
    if (!x)
        return NULL;
    if (x->ndim < 2)
        return lib_error(l, "global pool: x is %s; it must be [n, c, spatial...]",
                         lib_describe(l, x));
    uint32_t axes = lib_all_axes(x) & ~3u;
    if (kind != POOL_LP || p == 1 || p == 2)
        return lib_reduce(l,
                          kind == POOL_MAX       ? REDUCE_MAX
                          : kind == POOL_AVERAGE ? REDUCE_MEAN
                          : p == 1               ? REDUCE_L1
                                                 : REDUCE_L2,
                          x, axes, true);
    struct uop *u = lib_binaryf(l, OP_POW,
                                lib_unary(l, OP_ABS, lib_cast(l, lib_acc_dtype(x->dtype), x)), p);
    return lib_cast(l, x->dtype,
                    lib_binaryf(l, OP_POW, lib_reduce(l, REDUCE_SUM, u, axes, true), 1 / p));
}
