/* lower_shape.c - operators that only move elements: reshaping, cutting, joining, padding,
 * repeating.
 *
 * They read integers with node_known(): constants, or expressions of the model's dimensions.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

/* A list of integers from an attribute (old opsets) or from input k, as INDEX scalars that may read
 * memory: node_symbol() makes dimensions of them. false: absent (*count -1) or reported (*count
 * 0). */
static bool ints_from(const struct node *n, const char *name, int k, struct uop ***v, int *count)
{
    const int64_t *list;
    *count = name ? node_ints(n, name, &list) : -1;
    if (*count >= 0) {
        *v = mem_array(n->t, (size_t)*count + 1, sizeof **v);
        for (int i = 0; i < *count; i++)
            (*v)[i] = uop_int(n->t, list[i]);
        return true;
    }
    if (k < 0 || k >= n->nin || !n->in[k])
        return false;
    if (node_integers(n, k, v, count))
        return true;
    *count = 0;
    return false;
}

/* ints_from() for a required list. */
static bool require_ints(const struct node *n, const char *name, int k, struct uop ***v, int *count)
{
    if (ints_from(n, name, k, v, count))
        return true;
    if (*count == 0)
        return false; /* reported */
    return name ? node_error(n, -1, "needs the attribute '%s'", name)
                : node_error(n, -1, "needs input %d", k);
}

static bool check_rank(const struct node *n, int rank)
{
    return rank <= MAX_RANK ||
           node_error(n, -1, "the result would have rank %d; at most %d is supported", rank,
                      MAX_RANK);
}

static bool is_known(const struct node *n, struct uop *e)
{
    return tensor_element(n->t, e, NULL) != NULL;
}

/* An element of a shape known only at run time: 0 means a dimension of the input, -1 the rest. */
static struct uop *resolved_dim(const struct node *n, struct uop *const *want, int rank, int a,
                                bool allow_zero)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *rest = sym_prod(t, x->dim, x->ndim), *r = want[a];
    struct uop *zero = uop_int(t, 0), *minus = uop_int(t, -1);
    for (int b = 0; b < rank; b++) {
        struct uop *d = want[b];
        if (b == a)
            continue;
        if (!allow_zero && b < x->ndim)
            d = uop_where(t, uop_binary(t, OP_EQ, d, zero), x->dim[b], d);
        rest = uop_binary(t, OP_FLOORDIV, rest, d);
    }
    if (!allow_zero && a < x->ndim)
        r = uop_where(t, uop_binary(t, OP_EQ, r, zero), x->dim[a], r);
    return uop_where(t, uop_binary(t, OP_EQ, want[a], minus), rest, r);
}

/* A shape with elements known only at run time. The last one of them is inferred from the others,
 * so that the result has no more elements than the input, and is then compared. */
static bool reshape_at_run(struct node *n, struct uop *const *want, int rank, bool allow_zero)
{
    struct uop *x = n->in[0], *dim[MAX_RANK], *resolved = NULL;
    int last = -1;
    for (int a = 0; a < rank; a++)
        if (uop_is_int(want[a], -1))
            last = a;
    for (int a = rank - 1; a >= 0 && last < 0; a--)
        if (!is_known(n, want[a]))
            last = a;
    for (int a = 0; a < rank; a++) {
        struct uop *r = resolved_dim(n, want, rank, a, allow_zero);
        const char *name = node_input_name(n, 1, a, rank);
        dim[a] = NULL;
        if (a == last)
            resolved = r;
        else if (!(dim[a] = node_symbol(n, 1, r, name, 0, NULL)))
            return false;
    }
    struct uop *y = lib_reshape(&n->lib, x, dim, rank);
    return y &&
           node_require(n, 1, uop_binary(n->t, OP_EQ, resolved, y->dim[last]),
                        "the shape does not have as many elements as the input") &&
           node_require(n, 1,
                        uop_binary(n->t, OP_EQ, sym_prod(n->t, y->dim, rank),
                                   sym_prod(n->t, x->dim, x->ndim)),
                        "the shape does not have as many elements as the input") &&
           node_set(n, 0, y);
}

static bool reshape_require(const struct node *n, struct uop *a, struct uop *b)
{
    return sym_must_equal(n->t, a, b) ||
           node_require(n, 1, uop_binary(n->t, OP_EQ, a, b),
                        "the shape does not have as many elements as the input");
}

/* As lib_reshape(). If the numbers of elements are not proved equal, the last open dimension is
 * inferred, and the run compares. */
static struct uop *reshape_checked(const struct node *n, struct uop **dim, int rank, int inferred)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *want, *total = sym_prod(t, x->dim, x->ndim);
    for (int a = rank - 1; a >= 0 && inferred < 0; a--)
        if (dim[a]->op != OP_CONST)
            inferred = a;
    if (inferred >= 0 && (want = dim[inferred]) && !sym_equal(t, total, sym_prod(t, dim, rank)))
        dim[inferred] = NULL;
    else
        want = NULL;
    struct uop *y = lib_reshape(&n->lib, x, dim, rank);
    return y && (!want || reshape_require(n, want, y->dim[inferred])) &&
                   reshape_require(n, sym_prod(t, y->dim, rank), total)
               ? y
               : NULL;
}

/* An element of the shape that is a dimension, and may be 0 in a run: a dimension of the input is
 * copied then. It matters where another one is inferred (x[3,N] by [N,-1] is [3,0] for N = 0); else
 * the numbers of elements would differ, and the result without elements is as good. */
static struct uop *copied_if_zero(const struct node *n, struct uop *d, int a)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0];
    if (d->op != OP_VAR || d->vmin > 0 || a >= x->ndim || x->dim[a] == d)
        return d;
    return uop_where(t, uop_binary(t, OP_EQ, d, uop_int(t, 0)), x->dim[a], d);
}

bool lower_reshape(struct node *n)
{
    struct uop *x = n->in[0], **want, *dim[MAX_RANK];
    int rank, inferred = -1;
    bool allow_zero = node_int(n, "allowzero", 0) != 0;
    if (!require_ints(n, n->opset < 5 ? "shape" : NULL, n->opset < 5 ? -1 : 1, &want, &rank) ||
        !check_rank(n, rank))
        return false;
    for (int a = 0; a < rank; a++)
        if (!is_known(n, want[a]))
            return reshape_at_run(n, want, rank, allow_zero);
    for (int a = 0; a < rank; a++) {
        dim[a] = want[a];
        if (uop_is_int(want[a], -1)) {
            if (inferred >= 0)
                return node_error(n, 1, "more than one -1 in the shape");
            inferred = a;
            dim[a] = NULL;
        } else if (uop_is_int(want[a], 0) && !allow_zero) {
            if (a >= x->ndim)
                return node_error(n, 1,
                                  "element %d is 0, which copies a dimension that %s does not have",
                                  a, shape_text(n, x));
            dim[a] = x->dim[a];
        } else if (want[a]->vmin < 0 && want[a]->op == OP_CONST) {
            return node_error(n, 1, "element %d is negative", a);
        }
    }
    for (int a = 0; a < rank && inferred >= 0 && !allow_zero; a++)
        dim[a] = dim[a] ? copied_if_zero(n, dim[a], a) : NULL;
    return node_set(n, 0, reshape_checked(n, dim, rank, inferred));
}

bool lower_flatten(struct node *n)
{
    int64_t axis = node_int(n, "axis", 1);
    int rank = n->in[0]->ndim;
    if (axis < -rank || axis > rank || (axis < 0 && n->opset < 11))
        return node_error(n, -1, "axis is %lld, but must be in %d .. %d", (long long)axis,
                          n->opset < 11 ? 0 : -rank, rank);
    return node_set(n, 0, lib_flatten(&n->lib, n->in[0], axis < 0 ? axis + rank : axis));
}

bool lower_squeeze(struct node *n)
{
    struct uop *x = n->in[0];
    uint32_t axes;
    bool given;
    if (n->opset >= 13 && node_is_open(n, 1))
        return lower_by_cases(n, 1, x->ndim);
    if (!node_axes(n, n->opset < 13 ? "axes" : NULL, n->opset < 13 ? -1 : 1, x->ndim, &axes,
                   &given))
        return false;
    if (!given)
        for (int a = 0; a < x->ndim; a++)
            axes |= uop_is_int(x->dim[a], 1) ? 1u << a : 0;
    struct uop *y = lib_squeeze(&n->lib, x, axes);
    for (int a = 0; y && a < x->ndim; a++)
        if (axes >> a & 1 &&
            !node_require(n, 0, uop_binary(n->t, OP_EQ, x->dim[a], uop_int(n->t, 1)),
                          "an axis that goes must be 1"))
            return false;
    return node_set(n, 0, y);
}

bool lower_unsqueeze(struct node *n)
{
    const int64_t *axis;
    int64_t *known;
    int count;
    if (n->opset >= 13 && node_is_open(n, 1)) {
        int64_t added = 1;
        if (n->in[1]->ndim)
            uop_const_int(n->in[1]->dim[0], &added);
        return check_rank(n, n->in[0]->ndim + (int)added) &&
               lower_by_cases(n, 1, n->in[0]->ndim + (int)added);
    }
    if (n->opset < 13) {
        count = node_ints(n, "axes", &axis);
        if (count < 0)
            return node_error(n, -1, "needs the attribute 'axes'");
    } else {
        if (!node_known_ints(n, 1, &known, &count))
            return false;
        axis = known;
    }
    return check_rank(n, n->in[0]->ndim + count) &&
           node_set(n, 0, lib_unsqueeze(&n->lib, n->in[0], axis, count));
}

bool lower_transpose(struct node *n)
{
    const int64_t *perm;
    int count = node_ints(n, "perm", &perm);
    for (int i = 0; i < count; i++)
        if (perm[i] < 0)
            return node_error(n, -1, "'perm' has %lld; axes from 0 on are expected",
                              (long long)perm[i]);
    return node_set(n, 0,
                    lib_permute(&n->lib, n->in[0], count < 0 ? NULL : perm, count < 0 ? 0 : count));
}

/* Broadcasts the shape and the input against each other. A size known only at run time has to be 1
 * or the input's, unless that is 1. */
bool lower_expand(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], **want, *dim[MAX_RANK], *one = uop_int(t, 1);
    int count;
    if (!require_ints(n, NULL, 1, &want, &count) || !check_rank(n, count))
        return false;
    int rank = count > x->ndim ? count : x->ndim;
    for (int a = 0; a < rank; a++) {
        int i = a - (rank - count), k = a - (rank - x->ndim);
        bool fresh = k < 0 || uop_is_int(x->dim[k], 1);
        if (i < 0 || uop_is_int(want[i], 1)) {
            dim[a] = k < 0 ? one : x->dim[k];
        } else if (fresh || is_known(n, want[i])) {
            if (!(dim[a] = node_symbol(n, 1, want[i], node_input_name(n, 1, i, count), 0, NULL)))
                return false;
        } else {
            dim[a] = x->dim[k];
            struct uop *fits = uop_binary(t, OP_OR, uop_binary(t, OP_EQ, want[i], one),
                                          uop_binary(t, OP_EQ, want[i], dim[a]));
            if (!node_require(n, 1, fits, "the shape does not go with that of the input"))
                return false;
        }
        if (dim[a]->vmax < 0)
            return node_error(n, 1, "element %d is negative", i);
    }
    return node_set(n, 0, lib_broadcast_to(&n->lib, x, dim, rank));
}

/* Before opset 4 the axis defaults to 1. */
bool lower_concat(struct node *n)
{
    for (int k = 0; k < n->nin; k++)
        if (!n->in[k])
            return node_error(n, k, "input %d is missing", k);
    if (n->opset >= 4 && !node_has(n, "axis"))
        return node_error(n, -1, "needs the attribute 'axis'");
    return node_set(n, 0, lib_concat(&n->lib, n->in, n->nin, node_int(n, "axis", 1)));
}

/* --------------------------------------------------------------------------------- split, slice */

/* The sizes of the parts: given, or the axis in equal parts of which the last may be smaller (opset
 * 18 on). */
static bool split_sizes(const struct node *n, struct uop *dim, struct uop ***size, int *count)
{
    bool attribute = n->opset < 13;
    if (ints_from(n, attribute ? "split" : NULL, n->opset == 1 || !attribute ? 1 : -1, size, count))
        return true;
    if (*count == 0)
        return false;
    struct tgc *t = n->t;
    int64_t total;
    *count = n->nout;
    if (n->opset >= 18 && !node_int_within(n, "num_outputs", n->nout, 1, n->nout, count))
        return false;
    bool is_fixed = uop_const_int(dim, &total);
    if (n->opset < 18 && is_fixed && total % *count)
        return node_error(n, -1, "%lld elements do not split into %d equal parts", (long long)total,
                          *count);
    struct uop *rest = sym_mod(t, dim, uop_int(t, *count));
    if (n->opset < 18 && !is_fixed &&
        !node_require(n, 0, uop_binary(t, OP_EQ, rest, uop_int(t, 0)),
                      "the axis does not split into equal parts"))
        return false;
    struct uop *part = n->opset < 18 ? sym_div(t, dim, uop_int(t, *count))
                                     : sym_ceildiv(t, dim, *count);
    *size = mem_array(t, (size_t)*count, sizeof **size);
    for (int i = 0; i < *count; i++) {
        struct uop *left = sym_sub(t, dim, sym_muli(t, part, i));
        (*size)[i] = n->opset < 18 ? part : sym_max(t, uop_int(t, 0), sym_min(t, left, part));
    }
    return true;
}

/* The first versions of Split and Tile take sizes in the dtype of the data. */
static void whole_numbers(struct node *n, int from, int to)
{
    for (int k = from; k <= to; k++)
        if (n->in[k] && dtype_is_float(n->in[k]->dtype))
            n->in[k] = uop_cast(n->t, DTYPE_I64, n->in[k]);
}

bool lower_split(struct node *n)
{
    struct uop *x = n->in[0], **size, *begin = uop_int(n->t, 0);
    int axis, count;
    if (n->opset < 2)
        whole_numbers(n, 1, 1);
    bool has_sizes = node_has(n, "split") || (n->nin > 1 && n->in[1]);
    if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis) ||
        !split_sizes(n, x->dim[axis], &size, &count))
        return false;
    if (count != n->nout)
        return node_error(n, -1, "has %d sizes for %d outputs", count, n->nout);
    for (int i = 0; i < count; i++) {
        struct uop *left = sym_sub(n->t, x->dim[axis], begin);
        if (!is_known(n, size[i]) &&
            !(size[i] = node_symbol(n, 1, size[i], node_input_name(n, 1, i, count), 0, left)))
            return false;
        if (i < n->nout && !node_set(n, i, lib_narrow(&n->lib, x, axis, begin, size[i])))
            return false;
        begin = sym_add(n->t, begin, size[i]);
    }
    int64_t end, total;
    if (uop_const_int(begin, &end) && uop_const_int(x->dim[axis], &total) && end != total)
        return node_error(n, -1, "the sizes add up to %lld, but the axis has %lld elements",
                          (long long)end, (long long)total);
    return begin->op == OP_CONST || !has_sizes ||
           node_require(n, 1, uop_binary(n->t, OP_EQ, begin, x->dim[axis]),
                        "the sizes do not add up to the length of the axis");
}

/* The list's scalar for axis a, where its place in the list is known only at run time: the sum
 * over those
 * whose axis is a. */
static struct uop *of_axis(const struct node *n, int a, int rank, struct uop *const *axis,
                           struct uop *const *v, int count, struct uop *otherwise)
{
    struct tgc *t = n->t;
    for (int i = 0; i < count; i++) {
        struct uop *is = uop_binary(t, OP_EQ, axis ? axis[i] : uop_int(t, i), uop_int(t, a));
        if (axis)
            is = uop_binary(t, OP_OR, is, uop_binary(t, OP_EQ, axis[i], uop_int(t, a - rank)));
        otherwise = uop_where(t, is, v[i], otherwise);
    }
    return otherwise;
}

static bool require_axes(const struct node *n, int k, struct uop *const *axis, int count, int rank)
{
    struct tgc *t = n->t;
    for (int i = 0; axis && i < count; i++) {
        if (!node_require_index(n, k, axis[i], uop_int(t, rank)))
            return false;
        for (int j = 0; j < i; j++) {
            struct uop *gap = uop_binary(t, OP_SUB, axis[i], axis[j]);
            struct uop *same = uop_binary(t, OP_EQ, uop_binary(t, OP_MOD, gap, uop_int(t, rank)),
                                          uop_int(t, 0));
            if (!node_require(n, k, uop_not(t, same), "an axis is named twice"))
                return false;
        }
    }
    return true;
}

/* x[start:end:step] along an axis where only the run knows some of the three: the selected
 * elements, at most the whole axis, are read at start + step * i. */
static struct uop *slice_at_run(struct node *n, struct uop *x, int a, struct uop *start,
                                struct uop *end, struct uop *step)
{
    struct tgc *t = n->t;
    struct uop *len = x->dim[a], *zero = uop_int(t, 0), *last = sym_addi(t, len, -1);
    struct uop *back = uop_binary(t, OP_LT, step, zero);
    struct uop *bound[2] = {start, end};
    for (int k = 0; k < 2; k++) {
        struct uop *v = uop_binary(t, OP_MAX, bound[k], sym_addi(t, sym_sub(t, zero, len), -1));
        v = uop_where(t, uop_binary(t, OP_LT, bound[k], zero), uop_binary(t, OP_ADD, v, len), v);
        struct uop *lo = uop_where(t, back, k ? uop_int(t, -1) : sym_min(t, zero, last), zero);
        bound[k] = uop_binary(t, OP_MIN, uop_binary(t, OP_MAX, v, lo),
                              uop_where(t, back, last, len));
    }
    struct uop *step_size = uop_binary(
        t, OP_MIN, uop_unary(t, OP_ABS, uop_binary(t, OP_MAX, step, uop_int(t, -INT32_MAX))),
        uop_int(t, INT32_MAX));
    struct uop *span = uop_where(t, back, uop_binary(t, OP_SUB, bound[0], bound[1]),
                                 uop_binary(t, OP_SUB, bound[1], bound[0]));
    struct uop *count = uop_binary(t, OP_ADD, uop_binary(t, OP_MAX, span, zero),
                                   uop_binary(t, OP_SUB, step_size, uop_int(t, 1)));
    count = uop_binary(t, OP_FLOORDIV, count, step_size);
    struct uop *size = node_symbol(n, 2, count, node_output_dim_name(n, 0, a), 0, len),
               *dim[MAX_RANK], *index[MAX_RANK];
    if (!size)
        return NULL;
    if (uop_is_int(step, 1)) { /* a view */
        struct uop *at = node_symbol(n, 1, bound[0],
                                     mem_printf(t, "%s_begin%d", n->proto->output[0], a), 0,
                                     sym_sub(t, len, size));
        return lib_narrow(&n->lib, x, a, at, size);
    }
    for (int k = 0; k < x->ndim; k++)
        dim[k] = k == a ? size : x->dim[k];
    for (int k = 0; k < x->ndim; k++)
        index[k] = tensor_iota(t, dim, x->ndim, k);
    struct uop *offset =
        lib_mul(&n->lib, index[a], uop_where(t, back, uop_unary(t, OP_NEG, step_size), step_size));
    index[a] = lib_add(&n->lib, offset, bound[0]);
    return index[a] ? uop_index(t, x, index) : NULL;
}

static bool all_known(const struct node *n, struct uop *const *v, int count)
{
    for (int i = 0; v && i < count; i++)
        if (!is_known(n, v[i]))
            return false;
    return true;
}

/* With axes known only at run time: along each axis either the given slice, or all of it. */
static bool slice_axes_at_run(struct node *n, struct uop *const *start, struct uop *const *end,
                              struct uop *const *axis, struct uop *const *step, int count)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], **one = mem_array(t, (size_t)count + 1, sizeof *one);
    for (int i = 0; i < count; i++)
        one[i] = uop_int(t, 1);
    if (!require_axes(n, 3, axis, count, x->ndim))
        return false;
    for (int a = 0; a < x->ndim; a++) {
        struct uop *from = of_axis(n, a, x->ndim, axis, start, count, uop_int(t, 0)),
                   *to = of_axis(n, a, x->ndim, axis, end, count, uop_int(t, INT64_MAX)),
                   *by = of_axis(n, a, x->ndim, axis, step ? step : one, count, one[0]);
        if (is_known(n, from) && is_known(n, to) && uop_is_int(from, 0) &&
            uop_is_int(to, INT64_MAX))
            continue;
        if (!(x = slice_at_run(n, x, a, from, to, by)))
            return false;
    }
    return node_set(n, 0, x);
}

bool lower_slice(struct node *n)
{
    struct uop *x = n->in[0], **start, **end, **axes = NULL, **steps = NULL;
    int count, nend, naxis = -1, nstep = -1;
    bool attribute = n->opset < 10;
    if (!require_ints(n, attribute ? "starts" : NULL, attribute ? -1 : 1, &start, &count) ||
        !require_ints(n, attribute ? "ends" : NULL, attribute ? -1 : 2, &end, &nend))
        return false;
    if ((!ints_from(n, attribute ? "axes" : NULL, attribute ? -1 : 3, &axes, &naxis) && !naxis) ||
        (!attribute && !ints_from(n, NULL, 4, &steps, &nstep) && !nstep))
        return false;
    if (nend != count || (axes && naxis != count) || (steps && nstep != count))
        return node_error(
            n, -1, "starts, ends, axes and steps must be of one length, found %d, %d, %d and %d",
            count, nend, axes ? naxis : count, steps ? nstep : count);
    if (!axes && count > x->ndim)
        return node_error(n, 1, "%d starts for an input of rank %d", count, x->ndim);
    if (!all_known(n, axes, count))
        return slice_axes_at_run(n, start, end, axes, steps, count);
    uint32_t seen = 0;
    for (int i = 0; i < count; i++) {
        int a;
        int64_t axis = i, step = 1;
        if (axes && !uop_const_int(axes[i], &axis))
            return node_error(n, 3, "axis %d must not depend on a dimension that is not fixed", i);
        if (!node_axis(n, axis, x->ndim, &a))
            return false;
        if (seen >> a & 1)
            return node_error(n, 3, "axis %d is named twice", a);
        seen |= 1u << a;
        bool fixed_step = !steps || uop_const_int(steps[i], &step);
        if (fixed_step && step == 0)
            return node_error(n, 4, "step %d is 0", i);
        x = fixed_step && is_known(n, start[i]) && is_known(n, end[i])
                ? lib_slice(&n->lib, x, a, start[i], end[i], step)
                : slice_at_run(n, x, a, start[i], end[i], steps ? steps[i] : uop_int(n->t, 1));
        if (!x)
            return false;
    }
    return node_set(n, 0, x);
}

/* ------------------------------------------------------------------------------------ pad, tile */

static bool pad_mode(const struct node *n, enum pad_mode *mode)
{
    static const char *const names[] = {[PAD_MODE_CONSTANT] = "constant",
                                        [PAD_MODE_REFLECT] = "reflect",
                                        [PAD_MODE_EDGE] = "edge",
                                        [PAD_MODE_WRAP] = "wrap"};
    const char *s = node_string(n, "mode", "constant");
    for (int i = 0; i < 4; i++)
        if (!strcmp(s, names[i])) {
            *mode = (enum pad_mode)i;
            return true;
        }
    return node_error(n, -1, "mode '%s' is not supported", s);
}

bool lower_pad(struct node *n)
{
    struct uop *x = n->in[0], **pads, *value = NULL, *lo[MAX_RANK], *hi[MAX_RANK], **axis = NULL;
    int count, naxis = -1;
    enum pad_mode mode = PAD_MODE_CONSTANT;
    if (!pad_mode(n, &mode) || !require_ints(n,
                                             n->opset < 2    ? "paddings"
                                             : n->opset < 11 ? "pads"
                                                             : NULL,
                                             n->opset < 11 ? -1 : 1, &pads, &count))
        return false;
    if (n->opset < 11)
        value = uop_constf(n->t, x->dtype, node_float(n, "value", 0));
    else if (n->in[2] && !(value = node_variable(n, 2)))
        return false;
    if (n->opset >= 18 && !ints_from(n, NULL, 3, &axis, &naxis) && !naxis)
        return false;
    naxis = axis ? naxis : x->ndim;
    if (count != 2 * naxis)
        return node_error(n, 1, "%d pads are expected, two for each axis; found %d", 2 * naxis,
                          count);
    if (!all_known(n, axis, naxis) && !require_axes(n, 3, axis, naxis, x->ndim))
        return false;
    for (int i = 0, a; axis && i < naxis; i++)
        if (axis[i]->op == OP_CONST && !node_axis(n, axis[i]->arg.i, x->ndim, &a))
            return false;
    bool known = true;
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = of_axis(n, a, x->ndim, axis, pads, naxis, uop_int(n->t, 0));
        hi[a] = of_axis(n, a, x->ndim, axis, pads + naxis, naxis, uop_int(n->t, 0));
        known &= is_known(n, lo[a]) && is_known(n, hi[a]);
    }
    if (known)
        return node_set(n, 0, lib_pad(&n->lib, x, mode, value, lo, hi));
    for (int a = 0; a < x->ndim; a++) {
        struct uop *size = lib_add(&n->lib, lib_add(&n->lib, lo[a], hi[a]), x->dim[a]);
        if (!(hi[a] = node_symbol(n, 1, size, node_output_dim_name(n, 0, a), 0, NULL)))
            return false;
    }
    return node_set(n, 0, lib_pad_to(&n->lib, x, mode, value, lo, hi));
}

/* Opset 1: inputs tiles and axis; later: one repeat for each axis. */
bool lower_tile(struct node *n)
{
    struct uop *x = n->in[0], **repeat, *all[MAX_RANK];
    int count;
    if (n->opset < 6)
        whole_numbers(n, 1, 2);
    if (!require_ints(n, NULL, 1, &repeat, &count))
        return false;
    if (n->opset < 6) {
        int64_t axis;
        int a;
        if (!node_known_int(n, 2, &axis) || !node_axis(n, axis, x->ndim, &a) || count != 1)
            return false;
        for (int i = 0; i < x->ndim; i++)
            all[i] = i == a ? repeat[0] : uop_int(n->t, 1);
        return node_set(n, 0, lib_tile(&n->lib, x, all, x->ndim));
    }
    if (count != x->ndim)
        return node_error(n, 1, "%d repeats are expected, found %d", x->ndim, count);
    for (int i = 0; i < count; i++)
        if (!(repeat[i] = node_symbol(n, 1, repeat[i], node_input_name(n, 1, i, count), 0, NULL)))
            return false;
    return node_set(n, 0, lib_tile(&n->lib, x, repeat, count));
}

/* Crops or pads around the middle; an odd remainder goes to the end. */
bool lower_center_crop_pad(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], **size, *lo[MAX_RANK], *hi[MAX_RANK], *two = uop_int(t, 2);
    const int64_t *axis;
    int count, naxis = node_ints(n, "axes", &axis);
    if (!node_symbols(n, 1, &size, &count))
        return false;
    if (count != (naxis < 0 ? x->ndim : naxis))
        return node_error(n, 1, "%d sizes are expected, found %d", naxis < 0 ? x->ndim : naxis,
                          count);
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(t, 0);
    for (int i = 0; i < count; i++) {
        int a;
        if (!node_axis(n, naxis < 0 ? i : axis[i], x->ndim, &a))
            return false;
        struct uop *more = sym_sub(t, size[i], x->dim[a]), *zero = uop_int(t, 0);
        struct uop *before = sym_div(t, sym_max(t, more, zero), two),
                   *cut = sym_div(t, sym_max(t, sym_sub(t, zero, more), zero), two);
        lo[a] = sym_sub(t, before, cut);
        hi[a] = sym_sub(t, more, lo[a]);
    }
    return node_set(n, 0, lib_pad(&n->lib, x, PAD_MODE_CONSTANT, NULL, lo, hi));
}

bool lower_depth_to_space(struct node *n)
{
    const char *mode = node_string(n, "mode", "DCR");
    bool crd = !strcmp(mode, "CRD");
    if (!crd && strcmp(mode, "DCR"))
        return node_error(n, -1, "mode '%s' is not supported; DCR and CRD are", mode);
    return node_set(n, 0, lib_depth_to_space(&n->lib, n->in[0], node_int(n, "blocksize", 0), crd));
}

/* The blocks go in front of the channels (DCR) or, from opset 28 on if asked for,
 * after them (CRD). */
bool lower_space_to_depth(struct node *n)
{
    const char *mode = node_string(n, "mode", "DCR");
    int64_t block = node_int(n, "blocksize", 0);
    struct uop *x = n->in[0], *r = lib_space_to_depth(&n->lib, x, block);
    if (!r || !strcmp(mode, "DCR"))
        return node_set(n, 0, r);
    if (strcmp(mode, "CRD"))
        return node_error(n, -1, "mode '%s' is not supported; DCR and CRD are", mode);
    struct uop *b = uop_int(n->t, block),
               *blocks[6] = {r->dim[0], b, b, x->dim[1], r->dim[2], r->dim[3]};
    struct uop *flat[4] = {r->dim[0], r->dim[1], r->dim[2], r->dim[3]};
    return node_set(
        n, 0,
        uop_reshape(n->t,
                    uop_permute(n->t, uop_reshape(n->t, r, blocks, 6), (int[]){0, 3, 1, 2, 4, 5}),
                    flat, 4));
}

bool lower_trilu(struct node *n)
{
    struct uop *k = NULL;
    if (n->in[1] && !(k = node_scalar(n, 1)))
        return false;
    return node_set(n, 0, lib_trilu(&n->lib, n->in[0], k, node_int(n, "upper", 1) != 0));
}

/* ------------------------------------------------------------------------------- shapes, copies */

bool lower_shape(struct node *n)
{
    struct uop *x = n->in[0];
    int64_t start = n->opset >= 15 ? node_int(n, "start", 0) : 0,
            end = n->opset >= 15 ? node_int(n, "end", x->ndim) : x->ndim;
    start += start < 0 ? x->ndim : 0;
    end += end < 0 ? x->ndim : 0;
    start = start < 0 ? 0 : start > x->ndim ? x->ndim : start;
    end = end < start ? start : end > x->ndim ? x->ndim : end;
    return node_set(n, 0, index_vector(n->t, x->dim + start, (int)(end - start)));
}

bool lower_size(struct node *n)
{
    return node_set(n, 0, sym_prod(n->t, n->in[0]->dim, n->in[0]->ndim));
}

static bool is_uniform(const struct buffer *b)
{
    size_t size = dtype_nbytes(b->dtype);
    return b->kind == BUFFER_WEIGHT && b->weight.data && dtype_is_float(b->dtype) &&
           b->nbytes >= size &&
           memcmp(b->weight.data, (const char *)b->weight.data + size, b->nbytes - size) == 0;
}

bool lower_identity(struct node *n)
{
    const struct uop *x = n->in[0];
    n->value_out[0] = n->value_in[0];
    if (!n->lower->options || !n->lower->options->trains || !x || x->op != OP_BUFFER ||
        !is_uniform(x->arg.p))
        return true;
    const struct buffer *of = x->arg.p;
    struct buffer *b =
        buffer_new(n->t, BUFFER_WEIGHT, x->dtype, x->dim, x->ndim, n->proto->output[0]);
    b->weight.data = of->weight.data;
    b->nbytes = of->nbytes;
    b->weight.is_named = true;
    n->value_out[0] = value_tensor(n->t, uop_buffer(n->t, b));
    return true;
}

bool lower_reverse_sequence(struct node *n)
{
    struct uop *x = n->in[0], *dim[MAX_RANK], *index[MAX_RANK], *shape[MAX_RANK];
    int batch, time;
    if (!node_int_within(n, "batch_axis", 1, 0, 1, &batch) ||
        !node_int_within(n, "time_axis", 0, 0, 1, &time))
        return false;
    if (x->ndim < 2 || batch == time)
        return node_error(n, -1,
                          "batch_axis and time_axis must be 0 and 1 in either order, and the input "
                          "of rank 2 or more");
    if (!node_rank(n, 1, 1, 1))
        return false;
    if (!dtype_is_int(n->in[1]->dtype))
        return node_error(n, 1, "integers are expected, found %s", shape_text(n, n->in[1]));
    for (int a = 0; a < x->ndim; a++) {
        dim[a] = x->dim[a];
        shape[a] = a == batch ? n->in[1]->dim[0] : uop_int(n->t, 1);
    }
    struct uop *length = lib_broadcast_to(
        &n->lib, uop_reshape(n->t, lib_cast(&n->lib, DTYPE_INDEX, n->in[1]), shape, x->ndim), dim,
        x->ndim);
    if (!length)
        return false;
    for (int a = 0; a < x->ndim; a++)
        index[a] = tensor_iota(n->t, dim, x->ndim, a);
    struct uop *at = index[time],
               *turned = lib_sub(&n->lib, lib_binaryf(&n->lib, OP_SUB, length, 1), at);
    index[time] = lib_where(&n->lib, lib_binary(&n->lib, OP_LT, at, length), turned, at);
    return node_set(n, 0, uop_index(n->t, x, index));
}
