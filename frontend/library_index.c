/* library_index.c - reading and writing at computed coordinates: gather and scatter.
 *
 * Each is one INDEX or SCATTER whose coordinates are tensors: an IOTA for axes that are not
 * indexed, the wrapped indices for the others. A gather with constant indices of constant step is a
 * slice, and then no index is computed at run time.
 */
#include "frontend/library.h"
#include "ir/oracle.h"

struct uop *lib_contiguous(const struct lib *l, struct uop *x)
{
    return x ? uop_new(l->t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0}) : NULL;
}

struct uop *lib_fold(const struct lib *l, struct uop *x)
{
    enum { FOLD_ELEMENTS = 1 << 16, FOLD_BUDGET = 1 << 24 };
    struct tensor *v;
    struct eval_env env = {.budget = FOLD_BUDGET};
    int64_t n = 1, d;
    if (!x || !x->ndim)
        return x;
    for (int a = 0; a < x->ndim; a++) {
        if (!uop_const_int(x->dim[a], &d))
            return x;
        n = sat_mul(n, d);
    }
    if (n > FOLD_ELEMENTS || !eval_graph(l->t, &x, 1, &env, &v))
        return x;
    size_t size = dtype_nbytes(x->dtype);
    char *data = mem_array(l->t, (size_t)n + 1, size);
    for (int64_t i = 0; i < n; i++) {
        union scalar s;
        if (dtype_is_float(x->dtype))
            s.f = ((const double *)v->data)[i];
        else
            s.i = ((const int64_t *)v->data)[i];
        scalar_store(x->dtype, data + (size_t)i * size, s);
    }
    return tensor_from_data(l->t, x->dtype, v->dim, v->ndim, data, (size_t)n * size, NULL);
}

struct uop *lib_wrap(const struct lib *l, struct uop *indices, struct uop *n)
{
    struct tgc *t = l->t;
    if (!indices || !n)
        return NULL;
    if (indices->dtype == DTYPE_STRING || indices->dtype == DTYPE_BOOL)
        return lib_error(l, "indices are %s; they must be integers", lib_describe(l, indices));
    struct uop *i = uop_cast(t, DTYPE_I64, indices);
    if (i->vmin >= 0)
        return i;
    return tensor_where(t, uop_binary(t, OP_LT, i, uop_int(t, 0)), uop_binary(t, OP_ADD, i, n), i);
}

static bool integral(const struct lib *l, const char *what, const struct uop *indices)
{
    if (!dtype_is_int(indices->dtype))
        lib_error(l, "%s: the indices are %s; they must be integers", what,
                  lib_describe(l, indices));
    return dtype_is_int(indices->dtype);
}

/* A gather with constant indices of constant step as a slice. NULL: it is none, or an index is out
 * of range: then *failed. */
static struct uop *gather_slice(const struct lib *l, struct uop *x, struct uop *indices, int axis,
                                bool *failed)
{
    enum { LONGEST = 64 };
    int64_t n = 1, v[LONGEST], size;
    if (indices->ndim > 1 ||
        (indices->ndim == 1 && (!uop_const_int(indices->dim[0], &n) || n < 1 || n > LONGEST)))
        return NULL;
    if (!uop_const_int(x->dim[axis], &size))
        size = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!lib_known_int(l, indices, i, &v[i]))
            return NULL;
        if (size >= 0 && (v[i] < -size || v[i] >= size)) {
            lib_error(l, "gather: index %lld is outside axis %d of %s", (long long)v[i], axis,
                      lib_describe(l, x));
            *failed = true;
            return NULL;
        }
        if (v[i] < 0 && size < 0 && n > 1)
            return NULL;
        v[i] += v[i] < 0 && size >= 0 ? size : 0;
        if (v[i] > INT32_MAX || v[i] < -INT32_MAX || (i > 1 && v[i] - v[i - 1] != v[1] - v[0]))
            return NULL;
    }
    int64_t step = n > 1 ? v[1] - v[0] : 1, end = v[n - 1] + (step > 0 ? 1 : -1);
    if (step == 0 || (size < 0 && x->dim[axis]->vmin <= v[n - 1]) ||
        (size < 0 && x->dim[axis]->vmin <= v[0]))
        /* may be out of range at run time: INDEX then reads 0 */
        return NULL;
    struct uop *r;
    if (v[0] < 0)
        r = lib_narrow(l, x, axis, sym_addi(l->t, x->dim[axis], v[0]), uop_int(l->t, 1));
    else
        r = lib_slice(l, x, axis, uop_int(l->t, v[0]), end < 0 ? NULL : uop_int(l->t, end), step);
    return r && !indices->ndim ? tensor_drop_axes(l->t, r, 1u << axis) : r;
}

struct uop *lib_gather(const struct lib *l, struct uop *x, struct uop *indices, int64_t axis)
{
    struct tgc *t = l->t;
    struct uop *dim[2 * MAX_RANK], *index[MAX_RANK], *one[MAX_RANK];
    int a, n = 0;
    bool failed = false;
    if (!x || !indices || !integral(l, "gather", indices) || !lib_axis(l, axis, x->ndim, &a))
        return NULL;
    struct uop *slice = gather_slice(l, x, indices, a, &failed);
    if (slice || failed)
        return slice;
    int ndim = x->ndim - 1 + indices->ndim;
    if (ndim > MAX_RANK)
        return lib_error(l, "gather: the result would have rank %d; at most %d is supported", ndim,
                         MAX_RANK);
    for (int k = 0; k < x->ndim; k++)
        if (k != a)
            dim[n++] = x->dim[k];
        else
            for (int i = 0; i < indices->ndim; i++)
                dim[n++] = indices->dim[i];
    for (int k = 0; k < ndim; k++)
        one[k] = k >= a && k < a + indices->ndim ? dim[k] : uop_int(t, 1);
    for (int k = 0; k < x->ndim; k++)
        if (k == a)
            index[k] = ndim ? uop_expand(t,
                                         uop_reshape(t, lib_wrap(l, indices, x->dim[a]), one, ndim),
                                         dim)
                            : lib_wrap(l, indices, x->dim[a]);
        else
            index[k] = tensor_iota(t, dim, ndim, k < a ? k : k - 1 + indices->ndim);
    return uop_index(t, x, index);
}

/* Coordinates in x of the elements of `indices`, which are the coordinates of one axis. */
static bool element_coordinates(const struct lib *l, const char *what, const struct uop *x,
                                struct uop *indices, int64_t axis, struct uop **index)
{
    int a;
    if (!integral(l, what, indices) || !lib_axis(l, axis, x->ndim, &a))
        return false;
    if (indices->ndim != x->ndim) {
        lib_error(l, "%s: the indices are %s, x is %s; they must have one rank", what,
                  lib_describe(l, indices), lib_describe(l, x));
        return false;
    }
    for (int k = 0; k < x->ndim; k++) {
        if (k != a && indices->dim[k]->vmin > x->dim[k]->vmax) {
            lib_error(l, "%s: axis %d of the indices %s is longer than that of %s", what, k,
                      lib_describe(l, indices), lib_describe(l, x));
            return false;
        }
        index[k] = k == a ? lib_wrap(l, indices, x->dim[a])
                          : tensor_iota(l->t, indices->dim, indices->ndim, k);
    }
    return true;
}

struct uop *lib_gather_elements(const struct lib *l, struct uop *x, struct uop *indices,
                                int64_t axis)
{
    struct uop *index[MAX_RANK];
    if (!x || !indices || !element_coordinates(l, "gather_elements", x, indices, axis, index))
        return NULL;
    return uop_index(l->t, x, index);
}

static bool same_shape(const struct lib *l, const struct uop *x, struct uop *const *dim, int ndim)
{
    for (int a = 0; x->ndim == ndim && a < ndim; a++)
        if (!sym_equal(l->t, x->dim[a], dim[a]))
            return false;
    return x->ndim == ndim;
}

struct uop *lib_scatter_elements(const struct lib *l, enum op op, struct uop *x,
                                 struct uop *indices, struct uop *updates, int64_t axis)
{
    struct uop *index[MAX_RANK];
    if (!x || !indices || !updates ||
        !element_coordinates(l, "scatter_elements", x, indices, axis, index))
        return NULL;
    if (updates->dtype != x->dtype || !same_shape(l, updates, indices->dim, indices->ndim))
        return lib_error(
            l, "scatter_elements: the updates are %s; expected %s of the indices' shape %s",
            lib_describe(l, updates), dtype_name(x->dtype), lib_describe(l, indices));
    return uop_scatter(l->t, op, x, updates, index);
}

/* indices [b..., i..., q]: coordinate tensors of shape dim = [b..., i..., rest of x's axes]. */
static bool nd_coordinates(const struct lib *l, const char *what, const struct uop *x,
                           struct uop *indices, int64_t batch, struct uop **index, struct uop **dim,
                           int *ndim)
{
    struct tgc *t = l->t;
    int64_t q;
    int last = indices->ndim - 1;
    if (!integral(l, what, indices))
        return false;
    if (last < 0 || !uop_const_int(indices->dim[last], &q) || q < 1 || batch < 0 ||
        batch + q > x->ndim || batch > last) {
        lib_error(l,
                  "%s: the indices are %s, x is %s, batch_dims %lld: the last axis of the indices "
                  "must be a constant 1..%d",
                  what, lib_describe(l, indices), lib_describe(l, x), (long long)batch, x->ndim);
        return false;
    }
    int inner = (int)(batch + q);
    *ndim = last + x->ndim - inner;
    if (*ndim > MAX_RANK) {
        lib_error(l, "%s: the result would have rank %d; at most %d is supported", what, *ndim,
                  MAX_RANK);
        return false;
    }
    for (int k = 0; k < *ndim; k++)
        dim[k] = k < last ? indices->dim[k] : x->dim[inner + k - last];
    for (int k = 0; k < x->ndim; k++) {
        if (k < batch || k >= inner) {
            index[k] = tensor_iota(t, dim, *ndim, k < batch ? k : last + k - inner);
            continue;
        }
        struct uop *one[MAX_RANK],
            *i = lib_narrow(l, indices, last, uop_int(t, k - batch), uop_int(t, 1));
        for (int a = 0; a < *ndim; a++)
            one[a] = a < last ? dim[a] : uop_int(t, 1);
        i = lib_wrap(l, i, x->dim[k]);
        index[k] = uop_expand(t, uop_reshape(t, i, one, *ndim), dim);
    }
    return true;
}

struct uop *lib_gather_nd(const struct lib *l, struct uop *x, struct uop *indices,
                          int64_t batch_dims)
{
    struct uop *index[MAX_RANK], *dim[MAX_RANK];
    int ndim;
    if (!x || !indices ||
        !nd_coordinates(l, "gather_nd", x, indices, batch_dims, index, dim, &ndim))
        return NULL;
    return uop_index(l->t, x, index);
}

struct uop *lib_scatter_nd(const struct lib *l, enum op op, struct uop *x, struct uop *indices,
                           struct uop *updates)
{
    struct uop *index[MAX_RANK], *dim[MAX_RANK];
    int ndim;
    if (!x || !indices || !updates ||
        !nd_coordinates(l, "scatter_nd", x, indices, 0, index, dim, &ndim))
        return NULL;
    if (updates->dtype != x->dtype || !same_shape(l, updates, dim, ndim))
        return lib_error(l,
                         "scatter_nd: the updates are %s, the indices %s, x is %s: the updates' "
                         "shape does not follow from these",
                         lib_describe(l, updates), lib_describe(l, indices), lib_describe(l, x));
    return uop_scatter(l->t, op, x, updates, index);
}
