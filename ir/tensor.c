/* tensor.c - builders of tensor-graph uops: movement, reduce, indexed access, broadcasting; and the
 * value of a single element.
 *
 * The builders check their needs (TGC_BUG: frontends validate the user's model first) and drop
 * no-ops. Broadcasting is numpy's. Dimensions are uops: two are equal if they are ==, which normal
 * forms make likely, or if sym_equal() proves it.
 */
#include "ir/ir.h"

#include <string.h>

static bool same_dims(struct uop *const *a, int na, struct uop *const *b, int nb)
{
    return na == nb && (na == 0 || !memcmp(a, b, (size_t)na * sizeof *a));
}

/* src[0] = x, then the rest. */
static struct uop *make(struct tgc *t, enum op op, struct uop *x, struct uop *const *rest,
                        int nrest, int64_t bits)
{
    struct uop *src[2 * MAX_RANK + 3] = {x};
    ARRAY_COPY(src + 1, rest, nrest);
    return uop_new(t, op, x->dtype, src, nrest + 1, (union arg){.i = bits});
}

struct uop *uop_reshape(struct tgc *t, struct uop *x, struct uop *const *dim, int ndim)
{
    if (same_dims(x->dim, x->ndim, dim, ndim))
        return x;
    if (ndim > MAX_RANK)
        TGC_BUG(t, "reshape to rank %d", ndim);
    return make(t, OP_RESHAPE, x, dim, ndim, 0);
}

struct uop *uop_permute(struct tgc *t, struct uop *x, const int *perm)
{
    bool identity = true;
    uint32_t seen = 0;
    for (int a = 0; a < x->ndim; a++) {
        identity &= perm[a] == a;
        seen |= 1u << perm[a];
    }
    if (seen != (1u << x->ndim) - 1)
        TGC_BUG(t, "permute: not a permutation");
    return identity ? x : make(t, OP_PERMUTE, x, NULL, 0, perm_pack(perm, x->ndim));
}

struct uop *uop_expand(struct tgc *t, struct uop *x, struct uop *const *dim)
{
    if (same_dims(x->dim, x->ndim, dim, x->ndim))
        return x;
    for (int a = 0; a < x->ndim; a++)
        if (x->dim[a] != dim[a] && !uop_is_int(x->dim[a], 1) && !sym_equal(t, x->dim[a], dim[a]))
            TGC_BUG(t, "expand: axis %d is not 1", a);
    return make(t, OP_EXPAND, x, dim, x->ndim, 0);
}

struct uop *uop_pad(struct tgc *t, struct uop *x, struct uop *value, struct uop *const *lo,
                    struct uop *const *hi)
{
    struct uop *rest[2 * MAX_RANK + 1] = {value};
    bool none = true;
    if (value->dtype != x->dtype || value->ndim)
        TGC_BUG(t, "pad: the value must be a scalar of the tensor's dtype");
    for (int a = 0; a < x->ndim; a++) {
        rest[1 + 2 * a] = lo[a];
        rest[2 + 2 * a] = hi[a];
        none &= uop_is_int(lo[a], 0) && uop_is_int(hi[a], 0);
    }
    return none ? x : make(t, OP_PAD, x, rest, 2 * x->ndim + 1, 0);
}

struct uop *uop_shrink(struct tgc *t, struct uop *x, struct uop *const *begin,
                       struct uop *const *size)
{
    struct uop *rest[2 * MAX_RANK];
    bool whole = true;
    for (int a = 0; a < x->ndim; a++) {
        rest[2 * a] = begin[a];
        rest[2 * a + 1] = size[a];
        whole &= uop_is_int(begin[a], 0) && size[a] == x->dim[a];
    }
    return whole ? x : make(t, OP_SHRINK, x, rest, 2 * x->ndim, 0);
}

struct uop *uop_flip(struct tgc *t, struct uop *x, uint32_t axes)
{
    for (int a = 0; a < x->ndim; a++)
        if (uop_is_int(x->dim[a], 1))
            axes &= ~(1u << a);
    return axes ? make(t, OP_FLIP, x, NULL, 0, (int64_t)axes) : x;
}

struct uop *uop_window(struct tgc *t, struct uop *x, int axis, struct uop *nout,
                       struct uop *nkernel, int64_t stride, int64_t dilation)
{
    if (axis < 0 || axis >= x->ndim || x->ndim == MAX_RANK || stride < 0 || dilation < 0 ||
        stride >> 28 || dilation >> 28)
        TGC_BUG(t, "window: axis %d stride %lld dilation %lld", axis, (long long)stride,
                (long long)dilation);
    return make(t, OP_WINDOW, x, (struct uop *[]){nout, nkernel}, 2,
                ARG_PACK(WINDOW, axis, stride, dilation));
}

struct uop *uop_concat(struct tgc *t, struct uop *const *x, int n, int axis)
{
    if (n == 1)
        return x[0];
    for (int i = 1; i < n; i++)
        if (x[i]->ndim != x[0]->ndim || x[i]->dtype != x[0]->dtype)
            TGC_BUG(t, "concat: source %d differs in rank or dtype", i);
    return uop_new(t, OP_CONCAT, x[0]->dtype, x, n, (union arg){.i = axis});
}

struct uop *uop_reduce(struct tgc *t, enum op op, struct uop *x, uint32_t axes)
{
    for (int a = 0; a < x->ndim; a++)
        if (uop_is_int(x->dim[a], 1))
            axes &= ~(1u << a);
    return axes ? make(t, OP_REDUCE, x, NULL, 0, ARG_PACK(REDUCE, op, axes)) : x;
}

struct uop *uop_iota(struct tgc *t, struct uop *n)
{
    return uop_new(t, OP_IOTA, DTYPE_INDEX, &n, 1, (union arg){0});
}

struct uop *uop_index(struct tgc *t, struct uop *x, struct uop *const *index)
{
    for (int a = 0; a < x->ndim; a++)
        if (index[a]->dtype != DTYPE_INDEX || index[a]->ndim != index[0]->ndim)
            TGC_BUG(t, "index: coordinate %d has another dtype or rank", a);
    return x->ndim ? make(t, OP_INDEX, x, index, x->ndim, 0) : x;
}

struct uop *uop_scatter(struct tgc *t, enum op op, struct uop *x, struct uop *value,
                        struct uop *const *index)
{
    struct uop *rest[MAX_RANK + 1] = {value};
    for (int a = 0; a < x->ndim; a++) {
        if (index[a]->dtype != DTYPE_INDEX || index[a]->ndim != value->ndim)
            TGC_BUG(t, "scatter: coordinate %d has another dtype or rank than the values", a);
        rest[a + 1] = index[a];
    }
    return make(t, OP_SCATTER, x, rest, x->ndim + 1, (int64_t)op);
}

/* ---- control */

struct uop *uop_if(struct tgc *t, struct uop *cond, struct uop *const *then,
                   struct uop *const *other, int n)
{
    struct uop **src = mem_array(t, 2 * (size_t)n + 1, sizeof *src);
    src[0] = cond;
    for (int k = 0; k < n; k++) {
        if (then[k]->dtype != other[k]->dtype || then[k]->ndim != other[k]->ndim)
            TGC_BUG(t, "if: result %d differs between the branches", k);
        src[1 + k] = then[k];
        src[1 + n + k] = other[k];
    }
    return uop_new(t, OP_IF, DTYPE_VOID, src, 2 * n + 1, (union arg){.i = n});
}

struct uop *uop_loop(struct tgc *t, struct loop *l, struct uop *trip, struct uop *cond,
                     struct uop *const *init, struct uop *cond_next, struct uop *const *next,
                     struct uop *const *scan)
{
    int n = l->ncarried, nsrc = 0;
    struct uop **src = mem_array(t, 3 + 2 * (size_t)n + (size_t)l->nscan, sizeof *src);
    src[nsrc++] = trip;
    src[nsrc++] = cond;
    for (int k = 0; k < n; k++)
        src[nsrc++] = init[k];
    src[nsrc++] = cond_next;
    for (int k = 0; k < n; k++)
        src[nsrc++] = next[k];
    for (int k = 0; k < l->nscan; k++)
        src[nsrc++] = scan[k];
    return uop_new(t, OP_LOOP, DTYPE_VOID, src, nsrc, (union arg){.p = l});
}

struct uop *uop_param(struct tgc *t, struct loop_param *p)
{
    return uop_new(t, OP_PARAM, p->dtype, NULL, 0, (union arg){.p = p});
}

const struct host_function *host_function_at(int i)
{
    static const struct host_function table[] = {
#define HOST(function, inputs, outputs, params, results, stack, types, needs, found, signature)    \
    {#function, inputs, outputs, params, results, stack, needs, found, signature, types},
#include "ir/host.def"
#undef HOST
    };
    return i >= 0 && (size_t)i < sizeof table / sizeof *table ? &table[i] : NULL;
}

const struct host_function *host_function_find(const char *name)
{
    const struct host_function *f;
    for (int i = 0; (f = host_function_at(i)); i++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

enum dtype host_function_dtype(const struct host_function *f, int k)
{
    const char *word = f->types;
    char name[8] = {0};
    enum dtype dtype;
    for (; k > 0; k--)
        word += strcspn(word, " ") + 1;
    memcpy(name, word, strcspn(word, " "));
    return dtype_parse(name, &dtype) ? dtype : DTYPE_VOID;
}

int external_params(const struct host_call *h, int i)
{
    const struct external_argument *a = &h->external->argument[i];
    switch (a->kind) {
    case EXTERNAL_OPERAND: return h->value[i].absent ? 0 : a->ndim;
    case EXTERNAL_RESULT: return a->ndim;
    case EXTERNAL_INT: case EXTERNAL_SCRATCH: return 1;
    default: return 0;
    }
}

struct uop *uop_host(struct tgc *t, struct host_call *call, struct uop *const *input, int n)
{
    return uop_new(t, OP_HOST, DTYPE_VOID, input, n, (union arg){.p = call});
}

struct uop *uop_get(struct tgc *t, struct uop *node, int k)
{
    enum dtype d = DTYPE_VOID;
    int64_t taken;
    if (node->op == OP_IF && uop_const_int(node->src[0], &taken))
        return node->src[1 + k + (taken ? 0 : (int)node->arg.i)];
    if (node->op == OP_HOST) {
        d = ((const struct host_call *)node->arg.p)->out[k].dtype;
    } else if (node->op == OP_IF) {
        d = node->src[1 + k]->dtype;
    } else {
        const struct loop *l = node->arg.p;
        d = k < l->ncarried ? l->param[k].dtype : node->src[3 + l->ncarried + k]->dtype;
    }
    return uop_new(t, OP_GET, d, &node, 1, (union arg){.i = k});
}

/* ---- broadcasting */

struct uop *tensor_full(struct tgc *t, struct uop *value, struct uop *const *dim, int ndim)
{
    struct uop *one[MAX_RANK];
    for (int a = 0; a < ndim; a++)
        one[a] = uop_int(t, 1);
    return ndim ? uop_expand(t, uop_reshape(t, value, one, ndim), dim) : value;
}

struct uop *tensor_match(struct tgc *t, struct uop *x, struct uop *const *dim)
{
    struct uop *begin[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        begin[a] = uop_int(t, 0);
    return uop_shrink(t, x, begin, dim);
}

struct uop *tensor_fit(struct tgc *t, struct uop *x, struct uop *const *dim)
{
    struct uop *lo[MAX_RANK], *size[MAX_RANK], *hi[MAX_RANK];
    bool same = true;
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = uop_int(t, 0);
        size[a] = sym_min(t, x->dim[a], dim[a]);
        hi[a] = sym_sub(t, dim[a], size[a]);
        same &= dim[a] == x->dim[a];
    }
    if (same)
        return x;
    x = uop_pad(t, uop_shrink(t, x, lo, size), uop_consti(t, x->dtype, 0), lo, hi);
    return uop_reshape(t, x, dim, x->ndim);
}

/* Broadcasts one axis of x to a size. Whether the axis has that size or 1 is known only at run
 * time. */
static struct uop *stretch_axis(struct tgc *t, struct uop *x, int axis, struct uop *size)
{
    struct uop *dim[MAX_RANK], *is_one = uop_binary(t, OP_EQ, x->dim[axis], uop_int(t, 1));
    for (int a = 0; a < x->ndim; a++)
        dim[a] = a == axis ? uop_int(t, 1) : x->dim[a];
    struct uop *first = tensor_fit(t, x, dim);
    dim[axis] = size;
    return uop_where(t, is_one, uop_expand(t, first, dim), tensor_fit(t, x, dim));
}

struct uop *tensor_broadcast_to(struct tgc *t, struct uop *x, struct uop *const *dim, int ndim)
{
    struct uop *padded[MAX_RANK] = {0}, *own[MAX_RANK] = {0};
    uint32_t stretched = 0;
    if (x->ndim > ndim)
        return NULL;
    for (int a = 0; a < ndim; a++) {
        int from = a - (ndim - x->ndim);
        padded[a] = from < 0 ? uop_int(t, 1) : x->dim[from];
        own[a] = dim[a];
        if (uop_is_int(padded[a], 1)) {
            own[a] = padded[a];
            continue;
        }
        enum agreement fits = sym_must_broadcast(t, padded[a], dim[a], 1);
        if (fits == SIZES_DIFFER)
            return NULL;
        if (fits == SIZES_STRETCH)
            stretched |= 1u << a;
    }
    x = uop_reshape(t, x, padded, ndim);
    for (int a = 0; a < ndim; a++)
        if (stretched >> a & 1)
            x = stretch_axis(t, x, a, dim[a]);
    return uop_expand(t, tensor_match(t, x, own), dim);
}

bool tensor_broadcast_dims(struct tgc *t, struct uop *const *x, int n, struct uop **dim, int *ndim)
{
    *ndim = 0;
    for (int i = 0; i < n; i++)
        if (x[i]->ndim > *ndim)
            *ndim = x[i]->ndim;
    for (int a = 0; a < *ndim; a++) {
        dim[a] = uop_int(t, 1);
        for (int i = 0; i < n; i++) {
            int from = a - (*ndim - x[i]->ndim);
            struct uop *d = from < 0 ? NULL : x[i]->dim[from];
            if (!d || uop_is_int(d, 1) || d == dim[a])
                continue;
            enum agreement fits = uop_is_int(dim[a], 1)
                                      ? SIZES_STRETCH
                                      : sym_must_broadcast(t, dim[a], d, 1 | 2);
            if (fits == SIZES_DIFFER)
                return false;
            if (fits == SIZES_STRETCH)
                dim[a] = uop_where(t, uop_binary(t, OP_EQ, dim[a], uop_int(t, 1)), d, dim[a]);
        }
    }
    return true;
}

struct uop *tensor_unary(struct tgc *t, enum op op, struct uop *a) { return uop_unary(t, op, a); }

/* Scalars stay scalars: elementwise ops accept them next to tensors. */
static bool broadcast_all(struct tgc *t, struct uop **x, int n)
{
    struct uop *dim[MAX_RANK];
    int ndim;
    if (!tensor_broadcast_dims(t, x, n, dim, &ndim))
        return false;
    for (int i = 0; i < n; i++)
        if (x[i]->ndim && !(x[i] = tensor_broadcast_to(t, x[i], dim, ndim)))
            return false;
    return true;
}

struct uop *tensor_binary(struct tgc *t, enum op op, struct uop *a, struct uop *b)
{
    struct uop *x[2] = {a, b};
    return broadcast_all(t, x, 2) ? uop_binary(t, op, x[0], x[1]) : NULL;
}

struct uop *tensor_where(struct tgc *t, struct uop *c, struct uop *a, struct uop *b)
{
    struct uop *x[3] = {c, a, b};
    return broadcast_all(t, x, 3) ? uop_where(t, x[0], x[1], x[2]) : NULL;
}

struct uop *tensor_stack(struct tgc *t, struct uop *index, struct uop *const *x, int n)
{
    struct uop **all = scratch_array(t, (size_t)n + 1, sizeof *all);
    all[0] = index;
    ARRAY_COPY(all + 1, x, n);
    return broadcast_all(t, all, n + 1) ? uop_stack(t, all[0], all + 1, n) : NULL;
}

struct uop *tensor_stack_along(struct tgc *t, int axis, struct uop *const *x, int n)
{
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < x[0]->ndim; a++)
        dim[a] = uop_int(t, a == axis ? n : 1);
    struct uop *place = uop_reshape(t, uop_iota(t, uop_int(t, n)), dim, x[0]->ndim);
    struct uop *r = tensor_stack(t, place, x, n);
    if (!r)
        TGC_BUG(t, "stack: a source has another shape");
    return r;
}

struct uop *tensor_drop_axes(struct tgc *t, struct uop *x, uint32_t axes)
{
    struct uop *dim[MAX_RANK];
    int n = 0;
    for (int a = 0; a < x->ndim; a++)
        if (!(axes >> a & 1))
            dim[n++] = x->dim[a];
    return uop_reshape(t, x, dim, n);
}

struct uop *tensor_insert_axis(struct tgc *t, struct uop *x, int axis)
{
    struct uop *dim[MAX_RANK + 1];
    for (int a = 0, n = 0; n <= x->ndim; n++)
        dim[n] = n == axis ? uop_int(t, 1) : x->dim[a++];
    return uop_reshape(t, x, dim, x->ndim + 1);
}

struct uop *tensor_sum(struct tgc *t, struct uop *x, uint32_t axes, bool keep)
{
    struct uop *r = uop_reduce(t, OP_ADD, x, axes);
    return keep ? r : tensor_drop_axes(t, r, axes);
}

struct uop *tensor_max(struct tgc *t, struct uop *x, uint32_t axes, bool keep)
{
    struct uop *r = uop_reduce(t, OP_MAX, x, axes);
    return keep ? r : tensor_drop_axes(t, r, axes);
}

struct uop *tensor_iota(struct tgc *t, struct uop *const *dim, int ndim, int axis)
{
    struct uop *one[MAX_RANK];
    for (int a = 0; a < ndim; a++)
        one[a] = a == axis ? dim[a] : uop_int(t, 1);
    return uop_expand(t, uop_reshape(t, uop_iota(t, dim[axis]), one, ndim), dim);
}

static struct buffer *weight_new(struct tgc *t, enum dtype d, const int64_t *dim, int ndim,
                                 const void *data, size_t nbytes, const char *name)
{
    struct uop *dims[MAX_RANK];
    for (int a = 0; a < ndim; a++)
        dims[a] = uop_int(t, dim[a]);
    struct buffer *b = buffer_new(t, BUFFER_WEIGHT, d, dims, ndim, name);
    b->weight.data = data;
    b->nbytes = nbytes;
    return b;
}

struct uop *tensor_weight(struct tgc *t, enum dtype d, const int64_t *dim, int ndim,
                          const void *data, size_t nbytes, const char *name, bool is_param)
{
    struct buffer *b = weight_new(t, d, dim, ndim, data, nbytes, name);
    b->weight.is_named = true;
    b->weight.is_param = is_param;
    return uop_buffer(t, b);
}

struct uop *tensor_from_data(struct tgc *t, enum dtype d, const int64_t *dim, int ndim,
                             const void *data, size_t nbytes, const char *name)
{
    if (ndim == 0)
        return uop_const(t, d, scalar_load(d, data));
    return uop_buffer(t, weight_new(t, d, dim, ndim, data, nbytes, name));
}

struct uop *tensor_made_of(struct uop *made, const struct buffer *of, const char *how)
{
    const struct uop *u = made;
    while (op_class(u->op) == CLASS_MOVE)
        u = u->src[0];
    if (u->op == OP_BUFFER && of) {
        struct buffer *b = (struct buffer *)(uintptr_t)u->arg.p;
        b->weight.of = of;
        b->weight.how = how;
    }
    return made;
}

const struct buffer *tensor_weight_below(struct tgc *t, struct uop *u)
{
    const struct buffer *found = NULL;
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? order[i]->arg.p : NULL;
        if (b && b->kind == BUFFER_WEIGHT && (!found || b->nbytes > found->nbytes))
            found = b;
    }
    return found;
}

/* ---- elements known at compile time */

enum { ELEMENT_STEPS = 1 << 14, ELEMENT_DEPTH = 256, ELEMENT_REDUCE = 1 << 10 };

struct element { struct tgc *t; int steps, depth; };
static struct uop *element_at(struct element *e, struct uop *x, struct uop *const *index);

static struct uop *element_of_weight(struct element *e, const struct uop *x,
                                     struct uop *const *index)
{
    const struct buffer *b = x->arg.p;
    int64_t offset = 0, i, n;
    if (b->kind != BUFFER_WEIGHT || b->dtype == DTYPE_STRING)
        return NULL;
    for (int a = 0; a < x->ndim; a++) {
        if (!uop_const_int(index[a], &i) || !uop_const_int(x->dim[a], &n) || i < 0 || i >= n)
            return NULL;
        offset = sat_add(sat_mul(offset, n), i);
    }
    size_t nbytes = dtype_nbytes(b->dtype);
    return uop_const(e->t, b->dtype,
                     scalar_load(b->dtype, (const char *)b->weight.data + (size_t)offset * nbytes));
}

static struct uop *element_of_concat(struct element *e, struct uop *x, struct uop *const *index)
{
    struct uop *src_index[MAX_RANK], *valid;
    for (int k = 0; k < x->nsrc; k++) {
        move_index(e->t, x, k, index, src_index, &valid);
        if (uop_is_int(valid, 1))
            return element_at(e, x->src[k], src_index);
        if (!uop_is_int(valid, 0))
            return NULL;
    }
    return NULL;
}

static struct uop *element_of_reduce(struct element *e, struct uop *x, struct uop *const *index)
{
    struct uop *in = x->src[0], *at[MAX_RANK], *sum = NULL;
    uint32_t axes = REDUCE_AXES(x->arg.i);
    int64_t n, total = 1;
    for (int a = 0; a < in->ndim; a++) {
        at[a] = index[a];
        if (axes >> a & 1) {
            if (!uop_const_int(in->dim[a], &n))
                return NULL;
            total = sat_mul(total, n);
        }
    }
    if (total < 1 || total > ELEMENT_REDUCE)
        return NULL;
    for (int64_t k = 0; k < total; k++) {
        int64_t rest = k;
        for (int a = in->ndim - 1; a >= 0; a--)
            if (axes >> a & 1 && uop_const_int(in->dim[a], &n)) {
                at[a] = uop_int(e->t, rest % n);
                rest /= n;
            }
        struct uop *v = element_at(e, in, at);
        if (!v)
            return NULL;
        sum = sum ? uop_binary(e->t, REDUCE_OP(x->arg.i), sum, v) : v;
    }
    return sum;
}

static struct uop *element_of_move(struct element *e, struct uop *x, struct uop *const *index)
{
    struct uop *src_index[MAX_RANK], *valid;
    move_index(e->t, x, 0, index, src_index, &valid);
    struct uop *v = uop_is_int(valid, 0) ? NULL : element_at(e, x->src[0], src_index);
    if (uop_is_int(valid, 1))
        return v;
    if (uop_is_int(valid, 0))
        return element_at(e, x->src[1], NULL);        /* PAD's value */
    struct uop *other = v ? element_at(e, x->src[1], NULL) : NULL;
    return other ? uop_where(e->t, valid, v, other) : NULL;
}

static struct uop *element_of_elementwise(struct element *e, struct uop *x,
                                          struct uop *const *index)
{
    struct uop *src[3];
    for (int k = 0; k < x->nsrc; k++)
        if (!(src[k] = element_at(e, x->src[k], x->src[k]->ndim ? index : NULL)))
            return NULL;
    return uop_replace_src(e->t, x, src);
}

static struct uop *element_of_stack(struct element *e, struct uop *x, struct uop *const *index)
{
    struct uop *at = element_at(e, x->src[0], x->src[0]->ndim ? index : NULL), *one;
    int64_t k;
    if (!at || !uop_const_int(at, &k))
        return NULL;
    one = x->src[1 + (k < 0 ? 0 : k < x->nsrc - 1 ? (int)k : x->nsrc - 2)];
    return element_at(e, one, one->ndim ? index : NULL);
}

static struct uop *element_of_index(struct element *e, struct uop *x, struct uop *const *index)
{
    struct uop *at[MAX_RANK];
    for (int a = 0; a < x->nsrc - 1; a++) {
        struct uop *n = x->src[0]->dim[a];
        if (!(at[a] = element_at(e, x->src[a + 1], index)) || at[a]->vmin < 0 ||
            !uop_is_int(sym_lt(e->t, at[a], n), 1))
            return NULL;
    }
    return element_at(e, x->src[0], at);
}

static struct uop *element_at(struct element *e, struct uop *x, struct uop *const *index)
{
    if (++e->steps > ELEMENT_STEPS || e->depth > ELEMENT_DEPTH)
        return NULL;
    struct uop *v = NULL;
    e->depth++;
    switch (x->op) {
    case OP_CONST: case OP_VAR: v = x; break;
    case OP_BUFFER: v = element_of_weight(e, x, index); break;
    case OP_IOTA: v = index[0]; break;
    case OP_CONCAT: v = element_of_concat(e, x, index); break;
    case OP_REDUCE: v = element_of_reduce(e, x, index); break;
    case OP_INDEX: v = element_of_index(e, x, index); break;
    case OP_CONTIGUOUS: case OP_STOP: case OP_AFTER:
        v = element_at(e, x->src[0], index); break;
    case OP_STACK: v = element_of_stack(e, x, index); break;
    default:
        if (op_class(x->op) == CLASS_MOVE)
            v = element_of_move(e, x, index);
        else if (op_is_elementwise(x->op))
            v = element_of_elementwise(e, x, index);
    }
    e->depth--;
    return v;
}

struct uop *tensor_element(struct tgc *t, struct uop *x, const int64_t *index)
{
    struct element e = {.t = t};
    struct uop *at[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        at[a] = uop_int(t, index[a]);
    return element_at(&e, x, at);
}
