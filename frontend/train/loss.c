/* loss.c - losses by sample, as tensor uops, and what they find in a model's output. */
#include "frontend/train/train.h"

static bool same_size(const struct uop *dim, int64_t n)
{
    int64_t v;
    return !uop_const_int(dim, &v) || v == n;
}

int loss_class_axis(const struct uop *y, const int64_t *target_dim, int target_ndim)
{
    for (int axis = 1; axis < y->ndim && target_ndim == y->ndim - 1; axis++) {
        bool fits = true;
        for (int a = 0; a < target_ndim; a++)
            fits &= same_size(y->dim[a < axis ? a : a + 1], target_dim[a]);
        if (fits)
            return axis;
    }
    return -1;
}

/* x below movements and casts that change nothing but its type's name */
static const struct uop *below(const struct uop *x)
{
    while (x->op == OP_EXPAND || (x->op == OP_CAST && x->dtype == x->src[0]->dtype))
        x = x->src[0];
    return x;
}

/* y is e / sum(e) over the axis, where e = exp(z). */
struct uop *loss_logits_below(const struct uop *y, int axis)
{
    const struct uop *e, *sum;
    if (y->op == OP_DIV) {
        e = y->src[0], sum = below(y->src[1]);
    } else if (y->op == OP_MUL) {
        bool first = below(y->src[0])->op == OP_RECIP;
        const struct uop *by = below(y->src[first ? 0 : 1]);
        e = y->src[first ? 1 : 0];
        sum = by->op == OP_RECIP ? below(by->src[0]) : by;
    } else {
        return NULL;
    }
    bool is_softmax = e->op == OP_EXP && sum->op == OP_REDUCE && REDUCE_OP(sum->arg.i) == OP_ADD &&
                      REDUCE_AXES(sum->arg.i) == 1u << axis && sum->src[0] == e;
    return is_softmax ? e->src[0] : NULL;
}

/* [n, ...] -> [n], the mean of the rest. */
static struct uop *mean_of_sample(const struct lib *l, struct uop *x)
{
    uint32_t rest = lib_all_axes(x) & ~1u;
    return rest ? lib_reduce(l, REDUCE_MEAN, x, rest, false) : x;
}

static int class_axis(const struct uop *y, const struct uop *target)
{
    int64_t dim[MAX_RANK];
    for (int a = 0; a < target->ndim; a++)
        if (!uop_const_int(target->dim[a], &dim[a]))
            dim[a] = -1;
    return loss_class_axis(y, dim, target->ndim);
}

static struct uop *cross_entropy(const struct lib *l, struct uop *y, struct uop *target,
                                 struct uop **correct)
{
    bool is_class = dtype_is_int(target->dtype);
    int axis = is_class ? class_axis(y, target) : 1;
    struct uop *log = lib_log_softmax(l, y, 1u << axis), *terms, *zero = lib_scalar(l, y, 0);
    if (is_class) {
        int64_t at = axis;
        struct uop *number = tensor_iota(l->t, y->dim, y->ndim, axis);
        struct uop *one = lib_unsqueeze(l, uop_cast(l->t, number->dtype, target), &at, 1);
        terms = lib_where(l, lib_binary(l, OP_EQ, number, one), log, zero);
        struct uop *is_right = lib_binary(l, OP_EQ, lib_argmax(l, y, axis, false, false), target);
        *correct = mean_of_sample(l, lib_cast(l, y->dtype, is_right));
    } else {
        terms = lib_mul(l, log, target);
    }
    return lib_unary(l, OP_NEG, mean_of_sample(l, tensor_sum(l->t, terms, 1u << axis, false)));
}

static struct uop *huber(const struct lib *l, struct uop *far)
{
    struct uop *near = lib_binaryf(l, OP_MUL, lib_mul(l, far, far), 0.5);
    return lib_where(l, lib_binaryf(l, OP_LT, far, 1), near, lib_binaryf(l, OP_SUB, far, 0.5));
}

/* log(1 + e^y) - target y, where the exponent is never above 0. At 0 the slopes of both parts add
 * up to 1/2 - target, which those of |y| and max(y, 0) would not. */
static struct uop *bce(const struct lib *l, struct uop *y, struct uop *target)
{
    struct uop *is_negative = lib_binaryf(l, OP_LT, y, 0), *minus = lib_unary(l, OP_NEG, y);
    struct uop *small = lib_unary(l, OP_EXP, lib_where(l, is_negative, y, minus));
    struct uop *log = lib_unary(l, OP_LOG, lib_binaryf(l, OP_ADD, small, 1));
    struct uop *above = lib_where(l, is_negative, lib_scalar(l, y, 0), y);
    return lib_add(l, lib_sub(l, above, lib_mul(l, target, y)), log);
}

struct uop *loss_of_samples(const struct lib *l, enum loss loss, struct uop *y, struct uop *target,
                            struct uop **correct)
{
    struct uop *off;
    *correct = NULL;
    switch (loss) {
    case LOSS_CROSS_ENTROPY: return cross_entropy(l, y, target, correct);
    case LOSS_BCE_WITH_LOGITS: return mean_of_sample(l, bce(l, y, target));
    case LOSS_OUTPUT: return y;
    default: break;
    }
    off = lib_sub(l, y, target);
    struct uop *far = lib_unary(l, OP_ABS, off);
    return mean_of_sample(l, loss == LOSS_MSE   ? lib_mul(l, off, off)
                             : loss == LOSS_L1  ? far
                                                : huber(l, far));
}
