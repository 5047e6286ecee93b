/* library_move.c - reshaping, slicing, padding and creating tensors, in terms of the movement ops.
 *
 * A step of a slice is a WINDOW of kernel 1 (in = step * o), a negative one a FLIP first. Padding
 * other than with a constant reads its source through INDEX with the coordinate folded back into
 * range, so that no copy of the border exists.
 */
#include "frontend/library.h"

#include <string.h>

struct uop *lib_broadcast_to(const struct lib *l, struct uop *x, struct uop *const *dim, int ndim)
{
    if (!x)
        return NULL;
    struct uop *r = tensor_broadcast_to(l->t, x, dim, ndim);
    if (r)
        return r;
    struct uop want = {
        .dtype = x->dtype, .ndim = ndim, .dim = mem_copy(l->t, dim, (size_t)ndim * sizeof *dim)};
    return lib_error(l, "%s does not broadcast to %s", lib_describe(l, x), lib_describe(l, &want));
}

/* Cancels dimensions that occur on both sides; the products of the remaining ones. */
static void cancel_dims(const struct lib *l, struct uop *const *a, int na, struct uop *const *b,
                        int nb, struct uop **ra, struct uop **rb)
{
    struct uop *pa = uop_int(l->t, 1), *pb = uop_int(l->t, 1);
    uint32_t used = 0;
    for (int i = 0; i < na; i++) {
        int j = 0;
        while (j < nb && (b[j] != a[i] || used >> j & 1 || uop_is_int(b[j], 0)))
            j++;
        if (j < nb)
            used |= 1u << j;
        else
            pa = sym_mul(l->t, pa, a[i]);
    }
    for (int j = 0; j < nb; j++)
        if (b[j] && !(used >> j & 1))
            pb = sym_mul(l->t, pb, b[j]);
    *ra = pa;
    *rb = pb;
}

static struct uop *reshape_error(const struct lib *l, const struct uop *x, struct uop *const *dim,
                                 int ndim)
{
    struct text s = {.t = l->t};
    for (int a = 0; a < ndim; a++) {
        text_puts(&s, a ? ", " : "");
        if (dim[a])
            uop_print(&s, dim[a]);
        else
            text_puts(&s, "-1");
    }
    return lib_error(l, "reshape: %s does not have as many elements as [%s]", lib_describe(l, x),
                     s.s ? s.s : "");
}

struct uop *lib_reshape(const struct lib *l, struct uop *x, struct uop *const *dim, int ndim)
{
    struct uop *out[MAX_RANK], *total, *rest;
    int infer = -1;
    int64_t n, d;
    if (!x)
        return NULL;
    if (ndim > MAX_RANK)
        return lib_error(l, "reshape: rank %d; at most %d is supported", ndim, MAX_RANK);
    for (int a = 0; a < ndim; a++) {
        if (!dim[a] && infer >= 0)
            return lib_error(l, "reshape: two dimensions are to be inferred; only one can be");
        if (!dim[a])
            infer = a;
        out[a] = dim[a];
    }
    cancel_dims(l, x->dim, x->ndim, dim, ndim, &total, &rest);
    bool known = uop_const_int(total, &n) && uop_const_int(rest, &d);
    if (infer < 0)
        return known && n != d ? reshape_error(l, x, dim, ndim) : uop_reshape(l->t, x, out, ndim);
    if (known && (d == 0 || n % d))
        return reshape_error(l, x, dim, ndim);
    out[infer] = uop_is_int(rest, 1) ? total : sym_div(l->t, total, rest);
    return uop_reshape(l->t, x, out, ndim);
}

struct uop *lib_flatten(const struct lib *l, struct uop *x, int64_t axis)
{
    int a;
    if (!x)
        return NULL;
    if (axis == x->ndim)
        a = x->ndim;
    else if (!lib_axis(l, axis, x->ndim, &a))
        return NULL;
    struct uop *dim[2] = {sym_prod(l->t, x->dim, a), sym_prod(l->t, x->dim + a, x->ndim - a)};
    return uop_reshape(l->t, x, dim, 2);
}

struct uop *lib_permute(const struct lib *l, struct uop *x, const int64_t *perm, int nperm)
{
    int p[MAX_RANK];
    uint32_t seen;
    if (!x)
        return NULL;
    if (perm && nperm != x->ndim)
        return lib_error(l, "transpose: perm has %d entries, the tensor %d axes", nperm, x->ndim);
    if (perm && !lib_axes(l, perm, nperm, x->ndim, &seen))
        return NULL;
    for (int a = 0; a < x->ndim; a++)
        p[a] = perm ? (int)(perm[a] < 0 ? perm[a] + x->ndim : perm[a]) : x->ndim - 1 - a;
    return uop_permute(l->t, x, p);
}

struct uop *lib_squeeze(const struct lib *l, struct uop *x, uint32_t axes)
{
    if (!x)
        return NULL;
    for (int a = 0; a < x->ndim; a++)
        if (axes >> a & 1 && (x->dim[a]->vmin > 1 || x->dim[a]->vmax < 1))
            return lib_error(l, "squeeze: axis %d of %s is not 1", a, lib_describe(l, x));
    return tensor_drop_axes(l->t, x, axes);
}

struct uop *lib_unsqueeze(const struct lib *l, struct uop *x, const int64_t *axis, int naxis)
{
    uint32_t mask;
    struct uop *dim[MAX_RANK];
    if (!x)
        return NULL;
    int ndim = x->ndim + naxis;
    if (naxis > MAX_RANK || ndim > MAX_RANK)
        return lib_error(l, "unsqueeze: the result would have rank %d; at most %d is supported",
                         ndim, MAX_RANK);
    if (!lib_axes(l, axis, naxis, ndim, &mask))
        return NULL;
    for (int a = 0, from = 0; a < ndim; a++)
        dim[a] = mask >> a & 1 ? uop_int(l->t, 1) : x->dim[from++];
    return uop_reshape(l->t, x, dim, ndim);
}

struct uop *lib_concat(const struct lib *l, struct uop *const *x, int n, int64_t axis)
{
    int a, kept = 0;
    if (n < 1)
        return lib_error(l, "concat: needs at least one tensor");
    struct uop **part = mem_array(l->t, (size_t)n, sizeof *part);
    for (int i = 0; i < n; i++) {
        if (!x[i])
            return NULL;
        if (i == 0 && !lib_axis(l, axis, x[0]->ndim, &a))
            return NULL;
        bool same = x[i]->dtype == x[0]->dtype && x[i]->ndim == x[0]->ndim;
        for (int k = 0; same && k < x[0]->ndim; k++)
            same = k == a || sym_must_equal(l->t, x[i]->dim[k], x[0]->dim[k]);
        if (!same)
            return lib_error(
                l, "concat: tensor %d is %s, tensor 0 is %s; they may differ in axis %d only", i,
                lib_describe(l, x[i]), lib_describe(l, x[0]), a);
        struct uop *dim[MAX_RANK];
        for (int k = 0; k < x[0]->ndim; k++)
            dim[k] = (k == a ? x[i] : x[0])->dim[k];
        if (!uop_is_int(x[i]->dim[a], 0))
            part[kept++] = tensor_match(l->t, x[i], dim);
    }
    return kept ? uop_concat(l->t, part, kept, a) : x[0];
}

struct uop *lib_narrow(const struct lib *l, struct uop *x, int64_t axis, struct uop *begin,
                       struct uop *size)
{
    struct uop *b[MAX_RANK], *s[MAX_RANK];
    int a;
    if (!x || !begin || !size || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    if (sat_add(begin->vmin, size->vmin) > x->dim[a]->vmax || begin->vmax < 0 || size->vmax < 0)
        return lib_error(l, "%lld elements from %lld on are beyond the end of axis %d of %s",
                         (long long)size->vmin, (long long)begin->vmin, a, lib_describe(l, x));
    for (int i = 0; i < x->ndim; i++) {
        b[i] = uop_int(l->t, 0);
        s[i] = x->dim[i];
    }
    b[a] = begin;
    s[a] = size;
    return uop_shrink(l->t, x, b, s);
}

/* A bound of a slice as a coordinate in lo..hi. */
static struct uop *slice_bound(const struct lib *l, struct uop *v, struct uop *n, struct uop *lo,
                               struct uop *hi)
{
    /* such as INT64_MAX, without arithmetic that could wrap */
    if (v->vmin >= n->vmax && v->vmin >= 0)
        return hi;
    if (v->vmax < 0 && v->vmax <= -n->vmax - 1)
        return lo;
    if (v->vmax < 0)
        v = sym_add(l->t, v, n);
    else if (v->vmin < 0)
        v = uop_where(l->t, sym_lt(l->t, v, uop_int(l->t, 0)), sym_add(l->t, v, n), v);
    return sym_min(l->t, sym_max(l->t, v, lo), hi);
}

struct uop *lib_slice(const struct lib *l, struct uop *x, int64_t axis, struct uop *start,
                      struct uop *end, int64_t step)
{
    struct tgc *t = l->t;
    int a;
    if (!x || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    if (step == 0 || step <= -(1 << 28) || step >= 1 << 28) {
        if (step == 0)
            return lib_error(l, "slice: step 0; it must be positive or negative");
        step = step < 0 ? -(1 << 28) + 1 : (1 << 28) - 1;
        if (x->dim[a]->vmax > step && x->dim[a]->vmax > -step)
            return lib_error(l, "slice: a step beyond 2^28 on axis %d", a);
    }
    struct uop *n = x->dim[a], *zero = uop_int(t, 0), *minus = uop_int(t, -1),
               *last = sym_addi(t, n, -1), *size;
    if (step > 0) {
        start = start ? slice_bound(l, start, n, zero, n) : zero;
        end = end ? slice_bound(l, end, n, zero, n) : n;
        size = sym_sub(t, end, start);
    } else {
        start = start ? slice_bound(l, start, n, sym_min(t, zero, last), last) : last;
        end = end ? slice_bound(l, end, n, minus, last) : minus;
        size = sym_sub(t, start, end);
        start = sym_sub(t, last, start);
        x = uop_flip(t, x, 1u << a);
        step = -step;
    }
    if (size->vmin < 0)
        size = sym_max(t, size, zero);
    x = lib_narrow(l, x, a, start, size);
    if (step == 1)
        return x;
    if (x->ndim == MAX_RANK)
        return lib_error(l, "slice: steps in a tensor of rank %d are not supported", MAX_RANK);
    return tensor_drop_axes(
        t, uop_window(t, x, a, sym_ceildiv(t, size, step), uop_int(t, 1), step, 1), 2u << a);
}

struct uop *lib_tile(const struct lib *l, struct uop *x, struct uop *const *repeat, int nrepeat)
{
    struct uop *ones[MAX_RANK], *wide[MAX_RANK], *out[MAX_RANK];
    if (!x)
        return NULL;
    if (nrepeat != x->ndim)
        return lib_error(l, "tile: %d repeats for a tensor of rank %d", nrepeat, x->ndim);
    int n = 0;
    /* [d] -> [1, d] -> [r, d] -> [r * d], where r is not 1 */
    for (int a = 0; a < x->ndim; a++) {
        out[a] = sym_mul(l->t, repeat[a], x->dim[a]);
        if (repeat[a]->vmin < 0)
            return lib_error(l, "tile: a negative repeat");
        if (!uop_is_int(repeat[a], 1)) {
            if (n + 1 >= MAX_RANK)
                return lib_error(l, "tile: rank %d with so many repeated axes is not supported",
                                 x->ndim);
            ones[n] = uop_int(l->t, 1);
            wide[n++] = repeat[a];
        }
        if (n >= MAX_RANK)
            return lib_error(l, "tile: rank %d with so many repeated axes is not supported",
                             x->ndim);
        ones[n] = wide[n] = x->dim[a];
        n++;
    }
    return uop_reshape(l->t, uop_expand(l->t, uop_reshape(l->t, x, ones, n), wide), out, x->ndim);
}

struct uop *lib_flip(const struct lib *l, struct uop *x, uint32_t axes)
{
    return x ? uop_flip(l->t, x, axes) : NULL;
}

/* ---- padding */

static struct uop *pad_constant(const struct lib *l, struct uop *x, struct uop *value,
                                struct uop *const *lo, struct uop *const *hi)
{
    struct tgc *t = l->t;
    struct uop *zero = uop_int(t, 0), *begin[MAX_RANK], *size[MAX_RANK], *plo[MAX_RANK],
               *phi[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        struct uop *cut = sym_max(t, sym_sub(t, zero, hi[a]), zero);
        begin[a] = sym_max(t, sym_sub(t, zero, lo[a]), zero);
        size[a] = sym_sub(t, sym_sub(t, x->dim[a], begin[a]), cut);
        if (size[a]->vmax < 0)
            return lib_error(l, "pad: axis %d of %s is cut by more than it has", a,
                             lib_describe(l, x));
        plo[a] = sym_max(t, lo[a], zero);
        phi[a] = sym_max(t, hi[a], zero);
    }
    return uop_pad(t, uop_shrink(t, x, begin, size), value, plo, phi);
}

/* The coordinate of the source that is read at position p, with lo elements of padding before
 * it. */
static struct uop *pad_source(struct tgc *t, enum pad_mode mode, struct uop *p, struct uop *n)
{
    struct uop *zero = uop_int(t, 0), *last = sym_addi(t, n, -1);
    if (mode == PAD_MODE_EDGE)
        return uop_binary(t, OP_MIN, uop_binary(t, OP_MAX, p, zero), last);
    if (mode == PAD_MODE_WRAP)
        return uop_binary(t, OP_FLOORMOD, p, n);
    struct uop *period = sym_muli(t, last, 2), *m = uop_binary(t, OP_FLOORMOD, p, period);
    return uop_binary(t, OP_MIN, m, uop_binary(t, OP_SUB, period, m));
}

/* The first coordinates outside x read `value` (PAD_MODE_CONSTANT), or what the mode says. */
struct uop *lib_pad_to(const struct lib *l, struct uop *x, enum pad_mode mode, struct uop *value,
                       struct uop *const *lo, struct uop *const *dim)
{
    struct tgc *t = l->t;
    struct uop *index[MAX_RANK], *inside = NULL;
    for (int a = 0; a < x->ndim; a++) {
        if (dim[a]->vmax < 0)
            return lib_error(l, "pad: axis %d of %s is cut by more than it has", a,
                             lib_describe(l, x));
        if (mode != PAD_MODE_CONSTANT && uop_is_int(x->dim[a], 0) && !uop_is_int(dim[a], 0))
            return lib_error(l, "pad: axis %d of %s is empty; there is nothing to repeat", a,
                             lib_describe(l, x));
    }
    for (int a = 0; a < x->ndim; a++) {
        index[a] = tensor_iota(t, dim, x->ndim, a);
        if (uop_is_int(lo[a], 0) && dim[a] == x->dim[a])
            continue;
        index[a] = uop_binary(t, OP_SUB, index[a], lo[a]);
        if (mode != PAD_MODE_CONSTANT) {
            index[a] = pad_source(t, mode, index[a], x->dim[a]);
            continue;
        }
        struct uop *within = uop_binary(t, OP_AND, uop_binary(t, OP_LT, uop_int(t, -1), index[a]),
                                        uop_binary(t, OP_LT, index[a], x->dim[a]));
        inside = inside ? uop_binary(t, OP_AND, inside, within) : within;
    }
    struct uop *y = uop_index(t, x, index);
    if (value && value->ndim)
        value = lib_reshape(l, value, NULL, 0);
    return inside && value ? lib_where(l, inside, y, value) : y;
}

static struct uop *pad_by_index(const struct lib *l, struct uop *x, enum pad_mode mode,
                                struct uop *const *lo, struct uop *const *hi)
{
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        dim[a] = sym_add(l->t, sym_add(l->t, x->dim[a], lo[a]), hi[a]);
    return lib_pad_to(l, x, mode, NULL, lo, dim);
}

static bool pad_fits(const struct uop *amount)
{
    const int64_t most = (int64_t)1 << 40;
    return amount->op != OP_CONST || (amount->arg.i >= -most && amount->arg.i <= most);
}

struct uop *lib_pad(const struct lib *l, struct uop *x, enum pad_mode mode, struct uop *value,
                    struct uop *const *lo, struct uop *const *hi)
{
    if (!x)
        return NULL;
    bool none = true;
    for (int a = 0; a < x->ndim; a++)
        none &= uop_is_int(lo[a], 0) && uop_is_int(hi[a], 0);
    if (none)
        return x;
    for (int a = 0; a < x->ndim; a++)
        if (!pad_fits(lo[a]) || !pad_fits(hi[a]))
            return lib_error(l,
                             "pad: axis %d would grow or shrink by more than 2^40 elements; no "
                             "such tensor fits into memory",
                             a);
    if (mode != PAD_MODE_CONSTANT)
        return pad_by_index(l, x, mode, lo, hi);
    if (value && value->dtype != x->dtype)
        return lib_error(l, "pad: the value is %s, the tensor %s; they must have one dtype",
                         lib_describe(l, value), lib_describe(l, x));
    if (value && value->ndim)
        value = lib_reshape(l, value, NULL, 0);
    else if (!value)
        value = uop_consti(l->t, x->dtype, 0);
    return value ? pad_constant(l, x, value, lo, hi) : NULL;
}

/* ---- blocks, triangles */

static bool block_dims(const struct lib *l, const struct uop *x, int64_t block, const char *what)
{
    if (x->ndim != 4)
        lib_error(l, "%s: %s has rank %d; it must be 4: [n, c, h, w]", what, lib_describe(l, x),
                  x->ndim);
    else if (block < 1 || block > INT32_MAX)
        lib_error(l, "%s: block size %lld; it must be positive", what, (long long)block);
    return x->ndim == 4 && block >= 1 && block <= INT32_MAX;
}

static bool divides(const struct lib *l, const struct uop *x, int axis, int64_t d, const char *what)
{
    int64_t n;
    if (!uop_const_int(x->dim[axis], &n) || n % d == 0)
        return true;
    lib_error(l, "%s: axis %d of %s is no multiple of %lld", what, axis, lib_describe(l, x),
              (long long)d);
    return false;
}

struct uop *lib_depth_to_space(const struct lib *l, struct uop *x, int64_t block, bool crd)
{
    struct tgc *t = l->t;
    if (!x || !block_dims(l, x, block, "depth_to_space") ||
        !divides(l, x, 1, block * block, "depth_to_space"))
        return NULL;
    struct uop *b = uop_int(t, block), *c = sym_div(t, x->dim[1], uop_int(t, block * block));
    struct uop *dcr_dim[6] = {x->dim[0], b, b, c, x->dim[2], x->dim[3]},
               *crd_dim[6] = {x->dim[0], c, b, b, x->dim[2], x->dim[3]};
    static const int dcr_perm[6] = {0, 3, 4, 1, 5, 2}, crd_perm[6] = {0, 1, 4, 2, 5, 3};
    x = uop_permute(t, uop_reshape(t, x, crd ? crd_dim : dcr_dim, 6), crd ? crd_perm : dcr_perm);
    struct uop *out[4] = {x->dim[0], c, sym_mul(t, x->dim[2], b), sym_mul(t, x->dim[4], b)};
    return uop_reshape(t, x, out, 4);
}

struct uop *lib_space_to_depth(const struct lib *l, struct uop *x, int64_t block)
{
    struct tgc *t = l->t;
    if (!x || !block_dims(l, x, block, "space_to_depth") ||
        !divides(l, x, 2, block, "space_to_depth") || !divides(l, x, 3, block, "space_to_depth"))
        return NULL;
    struct uop *b = uop_int(t, block), *h = sym_div(t, x->dim[2], b), *w = sym_div(t, x->dim[3], b);
    struct uop *split[6] = {x->dim[0], x->dim[1], h, b, w, b},
               *out[4] = {x->dim[0], sym_muli(t, x->dim[1], block * block), h, w};
    return uop_reshape(t, uop_permute(t, uop_reshape(t, x, split, 6), (int[]){0, 3, 5, 1, 2, 4}),
                       out, 4);
}

struct uop *lib_trilu(const struct lib *l, struct uop *x, struct uop *k, bool upper)
{
    struct tgc *t = l->t;
    if (!x)
        return NULL;
    if (x->ndim < 2)
        return lib_error(l, "trilu: %s has rank %d; it must be at least 2", lib_describe(l, x),
                         x->ndim);
    if (k && (k->dtype != DTYPE_I64 || !(k = lib_reshape(l, k, NULL, 0))))
        return lib_error(l, "trilu: k must be one i64");
    struct uop **dim = x->dim + x->ndim - 2;
    struct uop *row = tensor_iota(t, dim, 2, 0), *col = tensor_iota(t, dim, 2, 1);
    /* upper keeps col >= edge, lower col <= edge */
    struct uop *edge = k ? uop_binary(t, OP_ADD, row, k) : row;
    struct uop *gone = upper ? uop_binary(t, OP_LT, col, edge) : uop_binary(t, OP_LT, edge, col);
    return lib_where(l, gone, uop_consti(t, x->dtype, 0), x);
}

/* ---- creation */

struct uop *lib_full(const struct lib *l, enum dtype d, double v, struct uop *const *dim, int ndim)
{
    return tensor_full(l->t, uop_constf(l->t, d, v), dim, ndim);
}

struct uop *lib_eye(const struct lib *l, enum dtype d, struct uop *rows, struct uop *cols,
                    int64_t k)
{
    struct uop *dim[2] = {rows, cols};
    struct uop *diagonal = uop_binary(l->t, OP_ADD, tensor_iota(l->t, dim, 2, 0), uop_int(l->t, k));
    return uop_cast(l->t, d, uop_binary(l->t, OP_EQ, diagonal, tensor_iota(l->t, dim, 2, 1)));
}

struct uop *lib_arange(const struct lib *l, struct uop *start, struct uop *delta, struct uop *n)
{
    if (!start || !delta || !n)
        return NULL;
    if (!(start = lib_reshape(l, start, NULL, 0)) || !(delta = lib_reshape(l, delta, NULL, 0)))
        return NULL;
    struct uop *i = uop_cast(l->t, start->dtype, uop_iota(l->t, n));
    return lib_add(l, lib_mul(l, i, delta), start);
}

struct uop *lib_arange_count(const struct lib *l, struct uop *start, struct uop *limit,
                             struct uop *delta)
{
    struct tgc *t = l->t;
    struct uop *v[3] = {start, limit, delta}, *zero = uop_int(t, 0);
    for (int i = 0; i < 3; i++) {
        if (!v[i] || !(v[i] = lib_reshape(l, v[i], NULL, 0)))
            return NULL;
        if (!(v[i] = tensor_element(t, v[i], NULL)))
            return lib_error(
                l, "range: start, limit and delta must be constants or come from dimensions; "
                   "otherwise its length is not known before the run");
    }
    if (dtype_is_float(v[0]->dtype)) {
        if (v[0]->op != OP_CONST || v[1]->op != OP_CONST || v[2]->op != OP_CONST)
            return lib_error(
                l, "range: a floating-point range that depends on dimensions has no known length");
        double q = __builtin_ceil((v[1]->arg.f - v[0]->arg.f) / v[2]->arg.f);
        if (!(q < 1e15))
            return lib_error(l, "range: from %g to %g by %g does not end", v[0]->arg.f, v[1]->arg.f,
                             v[2]->arg.f);
        return uop_int(t, q > 0 ? (int64_t)q : 0);
    }
    int64_t d;
    for (int i = 0; i < 3; i++)
        v[i] = uop_cast(t, DTYPE_INDEX, v[i]);
    if (!uop_const_int(v[2], &d) || d == 0 || d == INT64_MIN)
        return lib_error(l, "range: delta must be a constant and not 0");
    struct uop *span = d > 0 ? sym_sub(t, v[1], v[0]) : sym_sub(t, v[0], v[1]);
    return sym_ceildiv(t, sym_max(t, span, zero), d > 0 ? d : -d);
}

struct uop *lib_one_hot(const struct lib *l, struct uop *indices, struct uop *depth,
                        struct uop *values, int64_t axis)
{
    struct tgc *t = l->t;
    int a;
    if (!indices || !depth || !values || !lib_axis(l, axis, indices->ndim + 1, &a))
        return NULL;
    if (values->ndim != 1 || !uop_is_int(values->dim[0], 2))
        return lib_error(l, "one_hot: values are %s; they must be [2]: off, on",
                         lib_describe(l, values));
    if (indices->ndim == MAX_RANK)
        return lib_error(l, "one_hot: the result would have rank %d; at most %d is supported",
                         MAX_RANK + 1, MAX_RANK);
    struct uop *wrapped = lib_wrap(l, indices, depth);
    if (!wrapped)
        return NULL;
    struct uop *at = tensor_insert_axis(t, wrapped, a), *dim[MAX_RANK];
    for (int k = 0; k < at->ndim; k++)
        dim[k] = k == a ? depth : at->dim[k];
    struct uop *hit = tensor_binary(t, OP_EQ, at, tensor_iota(t, dim, at->ndim, a));
    struct uop *off = tensor_drop_axes(t, lib_narrow(l, values, 0, uop_int(t, 0), uop_int(t, 1)),
                                       1);
    struct uop *on = tensor_drop_axes(t, lib_narrow(l, values, 0, uop_int(t, 1), uop_int(t, 1)), 1);
    return lib_where(l, hit, on, off);
}
