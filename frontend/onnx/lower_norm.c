/* lower_norm.c - reductions, softmax, normalizations, losses. */
#include <string.h>

#include "frontend/onnx/lower.h"

/* Axes are an attribute before opset 13 (ReduceSum) or 18 (the others), an input then. Without any:
 * all, or none if asked for. */
bool lower_reduce(struct node *n)
{
    struct uop *x = n->in[0];
    enum reduction r = (enum reduction)n->operator->param;
    bool attribute = n->opset < (r == REDUCE_SUM ? 13 : 18), given;
    uint32_t axes;
    if (!attribute && node_is_open(n, 1))
        return lower_by_cases(n, 1, x->ndim);
    if (!node_axes(n, attribute ? "axes" : NULL, attribute ? -1 : 1, x->ndim, &axes, &given))
        return false;
    bool noop = node_int(n, "noop_with_empty_axes", 0) != 0;
    if (!axes && noop &&
        !attribute) { /* the elementwise part only: the result of reducing nothing */
        if (r == REDUCE_SUM || r == REDUCE_MEAN || r == REDUCE_PROD || r == REDUCE_MAX ||
            r == REDUCE_MIN)
            return node_set(n, 0, x);
        return node_set(n, 0, lib_reduce(&n->lib, r, x, 0, true));
    }
    return node_set(
        n, 0,
        lib_reduce(&n->lib, r, x, axes ? axes : lib_all_axes(x), node_int(n, "keepdims", 1) != 0));
}

bool lower_arg_extreme(struct node *n)
{
    struct uop *x = n->in[0];
    bool keep = node_int(n, "keepdims", 1) != 0, last = node_int(n, "select_last_index", 0) != 0;
    int64_t axis = node_int(n, "axis", 0);
    return node_set(n, 0,
                    n->operator->param ? lib_argmin(&n->lib, x, axis, keep, last)
                                       : lib_argmax(&n->lib, x, axis, keep, last));
}

bool lower_cumulative(struct node *n)
{
    int64_t axis;
    if (node_is_open(n, 1))
        return lower_by_cases(n, 1, n->in[0]->ndim);
    return node_known_int(n, 1, &axis) &&
           node_set(n, 0,
                    lib_cumulative(&n->lib, (enum op)n->operator->param, n->in[0], axis,
                                   node_int(n, "exclusive", 0) != 0,
                                   node_int(n, "reverse", 0) != 0));
}

/* Softmax, LogSoftmax, Hardmax. Before opset 13 the input is seen as a matrix, split before `axis`
 * (1 by default). */
bool lower_softmax(struct node *n)
{
    struct uop *x = n->in[0];
    int axis, rank = x->ndim;
    if (!node_axis(n, node_int(n, "axis", n->opset < 13 ? (rank > 1 ? 1 : 0) : -1), rank, &axis))
        return false;
    uint32_t axes = n->opset < 13 ? lib_all_axes(x) & ~((1u << axis) - 1) : 1u << axis;
    if (n->operator->param == 0)
        return node_set(n, 0, lib_softmax(&n->lib, x, axes));
    if (n->operator->param == 1)
        return node_set(n, 0, lib_log_softmax(&n->lib, x, axes));
    if (n->opset >= 13)
        return node_set(n, 0, lib_hardmax(&n->lib, x, axis));
    struct uop *r = lib_hardmax(&n->lib, lib_flatten(&n->lib, x, axis), 1);
    return node_set(n, 0, r ? uop_reshape(n->t, r, x->dim, rank) : NULL);
}

/* -------------------------------------------------------------------------------- normalization */

/* Training: normalizes with the batch's own mean and (biased) variance, and mixes them into the
 * running ones. */
static bool batch_norm_training(struct node *n, struct uop *x, double eps)
{
    double momentum = node_float(n, "momentum", 0.9);
    uint32_t axes = lib_all_axes(x) & ~2u;
    enum dtype wide = lib_acc_dtype(x->dtype), d = n->in[3]->dtype;
    struct uop *w = lib_cast(&n->lib, wide, x),
               *mean = lib_reduce(&n->lib, REDUCE_MEAN, w, axes, true);
    struct uop *off = lib_sub(&n->lib, w, mean),
               *var = lib_reduce(&n->lib, REDUCE_MEAN, lib_mul(&n->lib, off, off), axes, true);
    if (!var)
        return false;
    mean = uop_reshape(n->t, mean, n->in[3]->dim, 1);
    var = uop_reshape(n->t, var, n->in[3]->dim, 1);
    struct uop *batch[2] = {mean, var};
    if (!node_set(n, 0,
                  lib_batch_norm(&n->lib, x, n->in[1], n->in[2], lib_cast(&n->lib, d, mean),
                                 lib_cast(&n->lib, d, var), eps)))
        return false;
    for (int k = 0; k < 2; k++) {
        struct uop *old =
            lib_binaryf(&n->lib, OP_MUL, lib_cast(&n->lib, wide, n->in[3 + k]), momentum);
        struct uop *mixed =
            lib_add(&n->lib, old, lib_binaryf(&n->lib, OP_MUL, batch[k], 1 - momentum));
        if (!node_set(n, 1 + k, lib_cast(&n->lib, d, mixed)) ||
            !node_set(n, 3 + k, lib_cast(&n->lib, d, batch[k])))   /* before opset 14 */
            return false;
    }
    return true;
}

/* spatial=0: parameters [c, d1, ...], of every element of an image. */
static bool batch_norm_each(struct node *n, struct uop *x, double eps)
{
    struct uop *dim[2] = {x->dim[0], sym_prod(n->t, x->dim + 1, x->ndim - 1)}, *p[4];
    if (n->nout > 1)
        return node_error(n, -1, "spatial=0 is for inference only");
    for (int k = 0; k < 4; k++) {
        const struct uop *v = n->in[1 + k];
        bool fits = v->ndim == x->ndim - 1;
        for (int a = 0; a < v->ndim && fits; a++)
            fits = sym_equal(n->t, v->dim[a], x->dim[1 + a]);
        if (!fits)
            return node_error(n, 1 + k, "with spatial=0 one value for each element of an image of "
                              "%s is expected, found %s", shape_text(n, x), shape_text(n, v));
        p[k] = uop_reshape(n->t, n->in[1 + k], dim + 1, 1);
    }
    struct uop *y = lib_batch_norm(&n->lib, uop_reshape(n->t, x, dim, 2), p[0], p[1], p[2], p[3],
                                   eps);
    return node_set(n, 0, y ? uop_reshape(n->t, y, x->dim, x->ndim) : NULL);
}

bool lower_batch_norm(struct node *n)
{
    struct uop *x = n->in[0];
    double eps = node_float(n, "epsilon", 1e-5);
    if (!node_rank(n, 0, 2, MAX_RANK))
        return false;
    if (n->opset < 9 && node_int(n, "spatial", 1) == 0)
        return batch_norm_each(n, x, eps);
    for (int k = 1; k <= 4; k++) {
        if (!node_rank(n, k, 1, 1))
            return false;
        if (!sym_equal(n->t, n->in[k]->dim[0], x->dim[1]))
            return node_error(n, k, "one value for each channel of %s is expected, found %s",
                              shape_text(n, x), shape_text(n, n->in[k]));
    }
    /* before opset 14 the outputs say so */
    bool training = n->opset >= 14 ? node_int(n, "training_mode", 0) != 0
                                   : n->nout > 1 && (n->opset >= 7 || !node_int(n, "is_test", 0));
    if (training)
        return batch_norm_training(n, x, eps);
    lib_note_statistics(&n->lib, x, n->in[3], n->in[4], node_float(n, "momentum", 0.9));
    return node_set(n, 0, lib_batch_norm(&n->lib, x, n->in[1], n->in[2], n->in[3], n->in[4], eps));
}

bool lower_instance_norm(struct node *n)
{
    return node_rank(n, 0, 3, MAX_RANK) &&
           node_set(n, 0,
                    lib_instance_norm(&n->lib, n->in[0], n->in[1], n->in[2],
                                      node_float(n, "epsilon", 1e-5)));
}

/* Opset 18 has scale and bias per group, 21 per channel. */
bool lower_group_norm(struct node *n)
{
    struct uop *x = n->in[0], *scale = n->in[1], *bias = n->in[2];
    int64_t groups = node_int(n, "num_groups", 0);
    if (!node_rank(n, 0, 2, MAX_RANK) || !node_rank(n, 1, 1, 1) || !node_rank(n, 2, 1, 1))
        return false;
    if (groups < 1)
        return node_error(n, -1, "num_groups is %lld; it must be positive", (long long)groups);
    if (n->opset < 21) {
        struct uop *each = sym_div(n->t, x->dim[1], uop_int(n->t, groups)),
                   *wide[2] = {scale->dim[0], each}, *column[2] = {scale->dim[0], uop_int(n->t, 1)};
        scale = uop_reshape(n->t, uop_expand(n->t, uop_reshape(n->t, scale, column, 2), wide),
                            &x->dim[1], 1);
        bias = lib_reshape(
            &n->lib, lib_broadcast_to(&n->lib, lib_reshape(&n->lib, bias, column, 2), wide, 2),
            &x->dim[1], 1);
    }
    return node_set(
        n, 0, lib_group_norm(&n->lib, x, scale, bias, groups, node_float(n, "epsilon", 1e-5)));
}

bool lower_layer_norm(struct node *n)
{
    struct uop *mean = NULL, *inv_std = NULL;
    enum dtype stash =
        node_int(n, "stash_type", 1) == 1 ? DTYPE_F32 : node_dtype(n, "stash_type", DTYPE_F32);
    n->out[0] = lib_layer_norm(&n->lib, n->in[0], n->in[1], n->in[2], node_int(n, "axis", -1),
                               node_float(n, "epsilon", 1e-5), &mean, &inv_std);
    if (!n->out[0])
        return false;
    n->out[1] = n->nout > 1 ? lib_cast(&n->lib, stash, mean) : NULL;
    n->out[2] = n->nout > 2 ? lib_cast(&n->lib, stash, inv_std) : NULL;
    return true;
}

bool lower_rms_norm(struct node *n)
{
    struct uop *x = n->in[0], *scale = n->in[1];
    if (!dtype_is_float(scale->dtype))
        return node_error(n, 1, "a float type is expected, found %s", shape_text(n, scale));
    enum dtype d = scale->dtype; /* normalized in x's dtype, scaled in the scale's, which y has */
    if (d == x->dtype)
        return node_set(n, 0, lib_rms_norm(&n->lib, x, scale, node_int(n, "axis", -1),
                                           node_float(n, "epsilon", 1e-5)));
    struct uop *one = uop_consti(n->t, x->dtype, 1);
    struct uop *y = lib_rms_norm(&n->lib, x, one, node_int(n, "axis", -1),
                                 node_float(n, "epsilon", 1e-5));
    return node_set(n, 0, lib_mul(&n->lib, lib_cast(&n->lib, d, y), scale));
}

bool lower_lp_norm(struct node *n)
{
    int p;
    return node_int_within(n, "p", 2, 1, 2, &p) &&
           node_set(n, 0, lib_lp_normalize(&n->lib, n->in[0], node_int(n, "axis", -1), p));
}

bool lower_lrn(struct node *n)
{
    int size;
    return node_int_within(n, "size", 0, 1, INT32_MAX, &size) && node_rank(n, 0, 2, MAX_RANK) &&
           node_set(n, 0,
                    lib_lrn(&n->lib, n->in[0], size, node_float(n, "alpha", 1e-4),
                            node_float(n, "beta", 0.75), node_float(n, "bias", 1)));
}

/* (x - E[x]) / (sqrt(E[x^2] - E[x]^2) + 1e-9) */
bool lower_mean_variance(struct node *n)
{
    static const int64_t usual[] = {0, 2, 3};
    const int64_t *list = usual;
    struct uop *x = n->in[0];
    int count = node_ints(n, "axes", &list);
    uint32_t axes;
    if (count < 0) {
        list = usual;
        count = 3;
    }
    if (!lib_axes(&n->lib, list, count, x->ndim, &axes))
        return false;
    struct uop *wide = lib_cast(&n->lib, lib_acc_dtype(x->dtype), x),
               *off = lib_sub(&n->lib, wide, lib_reduce(&n->lib, REDUCE_MEAN, wide, axes, true));
    struct uop *var = lib_reduce(&n->lib, REDUCE_MEAN, lib_mul(&n->lib, off, off), axes, true);
    struct uop *std = lib_binaryf(&n->lib, OP_ADD, lib_unary(&n->lib, OP_SQRT, var), 1e-9);
    return node_set(n, 0, lib_cast(&n->lib, x->dtype, lib_div(&n->lib, off, std)));
}

/* --------------------------------------------------------------------------------------- losses */

/* log_prob [n, c, ...], target [n, ...]: -weight[target] log_prob[target], then reduced. */
static struct uop *negative_log_likelihood(const struct node *n, struct uop *log_prob,
                                           int target_input, int weight_input)
{
    const struct lib *l = &n->lib;
    struct uop *target = n->in[target_input], *weight = n->in[weight_input];
    if (log_prob->ndim < 2 || target->ndim != log_prob->ndim - 1) {
        node_error(n, target_input, "one class for each prediction of %s is expected, found %s",
                   shape_text(n, log_prob), shape_text(n, target));
        return NULL;
    }
    enum dtype d = log_prob->dtype;
    target = lib_cast(l, DTYPE_INDEX, target);
    struct uop *ignored = NULL, *zero = uop_consti(n->t, d, 0);
    if (node_has(n, "ignore_index")) {
        ignored = lib_binary(l, OP_EQ, target, uop_int(n->t, node_int(n, "ignore_index", 0)));
        target = lib_where(l, ignored, uop_int(n->t, 0), target);
    }
    struct uop *picked = lib_gather_elements(l, log_prob, tensor_insert_axis(n->t, target, 1), 1);
    if (!picked)
        return NULL;
    struct uop *loss = uop_unary(n->t, OP_NEG, tensor_drop_axes(n->t, picked, 2u));
    struct uop *w = weight ? lib_gather(l, weight, target, 0)
                           : tensor_full(n->t, uop_consti(n->t, d, 1), target->dim, target->ndim);
    if (ignored)
        w = lib_where(l, ignored, zero, w);
    if (weight || ignored)
        loss = lib_mul(l, loss, w);
    const char *reduction = node_string(n, "reduction", "mean");
    if (!strcmp(reduction, "none") || !loss)
        return loss;
    struct uop *sum = lib_reduce(l, REDUCE_SUM, loss, lib_all_axes(loss), false);
    if (!strcmp(reduction, "sum"))
        return sum;
    if (strcmp(reduction, "mean")) {
        node_error(n, -1, "reduction '%s' is not supported; none, sum and mean are", reduction);
        return NULL;
    }
    return lib_div(l, sum, lib_reduce(l, REDUCE_SUM, w, lib_all_axes(w), false));
}

bool lower_nll_loss(struct node *n)
{
    return node_set(n, 0, negative_log_likelihood(n, n->in[0], 1, 2));
}

bool lower_softmax_cross_entropy(struct node *n)
{
    if (!node_rank(n, 0, 2, MAX_RANK))
        return false;
    n->out[1] = lib_log_softmax(&n->lib, n->in[0], 2u);
    return n->out[1] && node_set(n, 0, negative_log_likelihood(n, n->out[1], 1, 2));
}
