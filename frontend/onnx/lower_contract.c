/* lower_contract.c - operators that are contractions or slide windows: matrix products,
 * convolutions, pools. */
#include <string.h>

#include "frontend/onnx/lower.h"

bool lower_matmul(struct node *n)
{
    return node_set(n, 0, lib_matmul(&n->lib, n->in[0], n->in[1]));
}

/* Before opset 7 C broadcasts only on request, which changes nothing where it fits. */
bool lower_gemm(struct node *n)
{
    return node_set(n, 0,
                    lib_gemm(&n->lib, n->in[0], n->in[1], n->in[2], node_float(n, "alpha", 1),
                             node_float(n, "beta", 1), node_int(n, "transA", 0) != 0,
                             node_int(n, "transB", 0) != 0));
}

bool lower_einsum(struct node *n)
{
    for (int k = 0; k < n->nin; k++)
        if (!n->in[k])
            return node_error(n, k, "input %d is missing", k);
    return node_set(n, 0, lib_einsum(&n->lib, node_string(n, "equation", ""), n->in, n->nin));
}

/* ---------------------------------------------------------------------------- window attributes */

/* An attribute of one integer for each spatial axis; left alone if it is absent. */
static bool spatial_ints(const struct node *n, const char *name, int nspatial, int64_t *v)
{
    const int64_t *list;
    int count = node_ints(n, name, &list);
    if (count >= 0 && count != nspatial)
        return node_error(n, -1, "attribute '%s' has %d values; %d are expected", name, count,
                          nspatial);
    for (int i = 0; i < count; i++) {
        if (list[i] < (strcmp(name, "output_padding") ? 1 : 0))
            return node_error(n, -1, "attribute '%s' holds %lld; it must be positive", name,
                              (long long)list[i]);
        v[i] = list[i];
    }
    return true;
}

bool window_attributes(const struct node *n, const struct uop *x, struct window_attr *a)
{
    static const struct {
        const char *name;
        enum auto_pad pad;
    } names[] = {
        {"NOTSET", AUTO_PAD_NONE},           {"", AUTO_PAD_NONE},
        {"SAME_UPPER", AUTO_PAD_SAME_UPPER}, {"SAME_LOWER", AUTO_PAD_SAME_LOWER},
        {"VALID", AUTO_PAD_VALID},
    };
    const char *pad = node_string(n, "auto_pad", "NOTSET");
    int nspatial = x->ndim - 2;
    bool known = false;
    memset(a, 0, sizeof *a);
    if (nspatial < 1 || nspatial > MAX_SPATIAL)
        return node_error(n, 0, "rank 3 .. %d is expected, found %s", MAX_SPATIAL + 2,
                          shape_text(n, x));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(pad, names[i].name)) {
            a->auto_pad = names[i].pad;
            known = true;
        }
    if (!known)
        return node_error(n, -1, "auto_pad '%s' is not supported", pad);
    const int64_t *pads;
    int count = node_ints(n, "pads", &pads);
    if (count >= 0 && count != 2 * nspatial)
        return node_error(n, -1, "attribute 'pads' has %d values; %d are expected", count,
                          2 * nspatial);
    for (int i = 0; i < nspatial && count >= 0; i++) {
        if (pads[i] < -INT32_MAX || pads[i] > INT32_MAX || pads[nspatial + i] < -INT32_MAX ||
            pads[nspatial + i] > INT32_MAX)
            return node_error(n, -1, "attribute 'pads' is beyond 2^31");
        a->lo[i] = uop_int(n->t, pads[i]);
        a->hi[i] = uop_int(n->t, pads[nspatial + i]);
    }
    a->group = node_int(n, "group", 1);
    if (a->group < 1)
        return node_error(n, -1, "group is %lld; it must be positive", (long long)a->group);
    return spatial_ints(n, "strides", nspatial, a->stride) &&
           spatial_ints(n, "dilations", nspatial, a->dilation) &&
           spatial_ints(n, "kernel_shape", nspatial, a->kernel);
}

/* kernel_shape of a convolution has to agree with the weights. */
static bool check_kernel_shape(const struct node *n, const struct uop *w,
                               const struct window_attr *a)
{
    for (int i = 0; i < w->ndim - 2 && a->kernel[0]; i++) {
        int64_t k;
        if (uop_const_int(w->dim[2 + i], &k) && k != a->kernel[i])
            return node_error(n, 1,
                              "kernel_shape says %lld on spatial axis %d, but the weights are %s",
                              (long long)a->kernel[i], i, shape_text(n, w));
    }
    return true;
}

bool lower_conv(struct node *n)
{
    struct window_attr a;
    struct uop *x = n->in[0], *w = n->in[1];
    if (!window_attributes(n, x, &a) || !node_rank(n, 1, x->ndim, x->ndim) ||
        !check_kernel_shape(n, w, &a))
        return false;
    return node_set(n, 0, lib_conv(&n->lib, x, w, n->in[2], &a));
}

bool lower_conv_transpose(struct node *n)
{
    struct window_attr a;
    struct uop *x = n->in[0], *w = n->in[1];
    const int64_t *shape;
    if (!window_attributes(n, x, &a) || !node_rank(n, 1, x->ndim, x->ndim) ||
        !check_kernel_shape(n, w, &a) ||
        !spatial_ints(n, "output_padding", x->ndim - 2, a.output_padding))
        return false;
    int count = node_ints(n, "output_shape", &shape), skip = count == x->ndim ? 2 : 0;
    if (count >= 0 && count - skip != x->ndim - 2)
        return node_error(n, -1, "attribute 'output_shape' has %d values; %d are expected", count,
                          x->ndim - 2);
    for (int i = 0; i < x->ndim - 2 && count >= 0; i++)
        a.output_size[i] = uop_int(n->t, shape[skip + i]);
    return node_set(n, 0, lib_conv_transpose(&n->lib, x, w, n->in[2], &a));
}

/* ---------------------------------------------------------------------------------------- pools */

bool lower_pool_of(struct node *n, enum pool_kind kind)
{
    struct window_attr a;
    struct uop *x = n->in[0];
    if (!window_attributes(n, x, &a))
        return false;
    if (kind == POOL_LP && n->opset < 2 && !a.kernel[0])
        return node_error(n, -1, "needs the attribute 'kernel_shape'");
    if (!a.kernel[0])
        return node_error(n, -1, "needs the attribute 'kernel_shape'");
    a.ceil_mode = node_int(n, "ceil_mode", 0) != 0;
    a.count_include_pad = node_int(n, "count_include_pad", 0) != 0;
    a.p = n->opset < 2 ? node_float(n, "p", 2) : (double)node_int(n, "p", 2);
    if (!node_set(n, 0, lib_pool(&n->lib, kind, x, &a)))
        return false;
    if (kind == POOL_MAX && n->nout > 1)
        return node_set(n, 1,
                        lib_max_pool_indices(&n->lib, x, &a, node_int(n, "storage_order", 0) != 0));
    return true;
}

bool lower_pool(struct node *n) { return lower_pool_of(n, (enum pool_kind)n->operator->param); }

bool lower_global_pool(struct node *n)
{
    enum pool_kind kind = (enum pool_kind)n->operator->param;
    double p = kind != POOL_LP ? 0
               : n->opset < 2  ? node_float(n, "p", 2)
                               : (double)node_int(n, "p", 2);
    return node_rank(n, 0, 3, MAX_RANK) &&
           node_set(n, 0, lib_global_pool(&n->lib, kind, n->in[0], p));
}

/* Stores every value at its index in a tensor of zeros. */
bool lower_max_unpool(struct node *n)
{
    struct uop *x = n->in[0], *dim[MAX_RANK], **given;
    struct window_attr a;
    int count;
    if (!window_attributes(n, x, &a))
        return false;
    if (!a.kernel[0])
        return node_error(n, -1, "needs the attribute 'kernel_shape'");
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t stride = a.stride[i] ? a.stride[i] : 1;
        struct uop *size =
            sym_addi(n->t, sym_muli(n->t, sym_addi(n->t, x->dim[2 + i], -1), stride), a.kernel[i]);
        size = a.lo[i] ? sym_sub(n->t, sym_sub(n->t, size, a.lo[i]), a.hi[i]) : size;
        dim[2 + i] = size;
    }
    if (n->in[1]->ndim != x->ndim)
        return node_error(n, 1, "rank %d is expected, found %s", x->ndim, shape_text(n, n->in[1]));
    for (int i = 0; i < x->ndim; i++)
        if (!sym_equal(n->t, x->dim[i], n->in[1]->dim[i]))
            return node_error(n, 1, "the shape of the values is expected, %s; found %s",
                              shape_text(n, x), shape_text(n, n->in[1]));
    struct uop *all = sym_prod(n->t, x->dim, x->ndim);
    struct uop *index = uop_reshape(n->t, lib_cast(&n->lib, DTYPE_INDEX, n->in[1]), &all, 1);
    struct uop *whole = sym_prod(n->t, dim, x->ndim),
               *zeros = tensor_full(n->t, uop_consti(n->t, x->dtype, 0), &whole, 1);
    struct uop *flat = uop_scatter(n->t, OP_CONST, zeros, uop_reshape(n->t, x, &all, 1), &index);
    struct uop *y = lib_reshape(&n->lib, flat, dim, x->ndim), *lo[MAX_RANK], *hi[MAX_RANK];
    if (!n->in[2])
        return node_set(n, 0, y);
    if (!node_symbols(n, 2, &given, &count)) /* a larger output: the rest is 0 */
        return false;
    if (count != x->ndim)
        return node_error(n, 2, "%d sizes are expected, found %d", x->ndim, count);
    for (int i = 0; i < count; i++) {
        lo[i] = uop_int(n->t, 0);
        hi[i] = sym_sub(n->t, given[i], dim[i]);
    }
    return node_set(n, 0, lib_pad(&n->lib, y, PAD_MODE_CONSTANT, NULL, lo, hi));
}
