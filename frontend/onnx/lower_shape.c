/* lower_shape.c - operators that only say which element goes where: reshaping, cutting, joining,
 * padding, repeating.
 *
 * What they need as integers they read with node_known(): constants, or expressions of the model's
 * dimensions.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

/* A list of integers from an attribute (old opsets) or from input k, as INDEX scalars. false:
 * absent (*count -1) or reported (*count 0). */
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
    if (node_symbols(n, k, v, count))
        return true;
    *count = 0;
    return false;
}

/* The same where it must be there. */
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

bool lower_reshape(struct node *n)
{
    struct uop *x = n->in[0], **want, *dim[MAX_RANK];
    int rank, inferred = -1;
    bool allow_zero = node_int(n, "allowzero", 0) != 0;
    if (!require_ints(n, n->opset < 5 ? "shape" : NULL, n->opset < 5 ? -1 : 1, &want, &rank) ||
        !check_rank(n, rank))
        return false;
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
    return node_set(n, 0, lib_reshape(&n->lib, x, dim, rank));
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
    if (!node_axes(n, n->opset < 13 ? "axes" : NULL, n->opset < 13 ? -1 : 1, x->ndim, &axes,
                   &given))
        return false;
    if (!given)
        for (int a = 0; a < x->ndim; a++)
            axes |= uop_is_int(x->dim[a], 1) ? 1u << a : 0;
    return node_set(n, 0, lib_squeeze(&n->lib, x, axes));
}

bool lower_unsqueeze(struct node *n)
{
    const int64_t *axis;
    int64_t *known;
    int count;
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
    return node_set(n, 0,
                    lib_permute(&n->lib, n->in[0], count < 0 ? NULL : perm, count < 0 ? 0 : count));
}

/* The shape and the input broadcast against each other. */
bool lower_expand(struct node *n)
{
    struct uop *x = n->in[0], **want, *dim[MAX_RANK];
    int count;
    if (!require_ints(n, NULL, 1, &want, &count) || !check_rank(n, count))
        return false;
    int rank = count > x->ndim ? count : x->ndim;
    for (int a = 0; a < rank; a++) {
        int i = a - (rank - count), k = a - (rank - x->ndim);
        dim[a] = i >= 0 ? want[i] : x->dim[k];
        if (i >= 0 && k >= 0 && uop_is_int(want[i], 1))
            dim[a] = x->dim[k];
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
    *count = n->opset >= 18 ? (int)node_int(n, "num_outputs", n->nout) : n->nout;
    int64_t total;
    if (*count < 1 || *count > n->nout)
        return node_error(n, -1, "num_outputs is %d, but the node has %d outputs", *count, n->nout);
    if (!uop_const_int(dim, &total))
        return node_error(n, -1,
                          "the axis to split must have a fixed length here; fix it with --dim, or "
                          "give the sizes");
    if (n->opset < 18 && total % *count)
        return node_error(n, -1, "%lld elements do not split into %d equal parts", (long long)total,
                          *count);
    int64_t part = (total + *count - 1) / *count;
    *size = mem_array(n->t, (size_t)*count, sizeof **size);
    for (int i = 0; i < *count; i++) {
        int64_t left = total - part * i;
        (*size)[i] = uop_int(n->t, left < 0 ? 0 : left < part ? left : part);
    }
    return true;
}

bool lower_split(struct node *n)
{
    struct uop *x = n->in[0], **size, *begin = uop_int(n->t, 0);
    int axis, count;
    if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis) ||
        !split_sizes(n, x->dim[axis], &size, &count))
        return false;
    if (count < n->nout)
        return node_error(n, -1, "has %d sizes for %d outputs", count, n->nout);
    for (int i = 0; i < count; i++) {
        if (i < n->nout && !node_set(n, i, lib_narrow(&n->lib, x, axis, begin, size[i])))
            return false;
        begin = sym_add(n->t, begin, size[i]);
    }
    int64_t end, total;
    if (uop_const_int(begin, &end) && uop_const_int(x->dim[axis], &total) && end != total)
        return node_error(n, -1, "the sizes add up to %lld, but the axis has %lld elements",
                          (long long)end, (long long)total);
    return true;
}

bool lower_slice(struct node *n)
{
    struct uop *x = n->in[0], **start, **end;
    int64_t *axis = NULL, *step = NULL;
    int count, nend, naxis = -1, nstep = -1;
    bool attribute = n->opset < 10;
    if (!require_ints(n, attribute ? "starts" : NULL, attribute ? -1 : 1, &start, &count) ||
        !require_ints(n, attribute ? "ends" : NULL, attribute ? -1 : 2, &end, &nend))
        return false;
    if (attribute) {
        const int64_t *list;
        naxis = node_ints(n, "axes", &list);
        axis = naxis < 0 ? NULL : mem_copy(n->t, list, (size_t)naxis * sizeof *list);
    } else if ((n->in[3] && !node_known_ints(n, 3, &axis, &naxis)) ||
               (n->in[4] && !node_known_ints(n, 4, &step, &nstep))) {
        return false;
    }
    if (nend != count || (axis && naxis != count) || (step && nstep != count))
        return node_error(
            n, -1, "starts, ends, axes and steps must be of one length, found %d, %d, %d and %d",
            count, nend, axis ? naxis : count, step ? nstep : count);
    if (!axis && count > x->ndim)
        return node_error(n, 1, "%d starts for an input of rank %d", count, x->ndim);
    uint32_t seen = 0;
    for (int i = 0; i < count; i++) {
        int a;
        if (!node_axis(n, axis ? axis[i] : i, x->ndim, &a))
            return false;
        if (seen >> a & 1)
            return node_error(n, 3, "axis %d is named twice", a);
        seen |= 1u << a;
        if (step && step[i] == 0)
            return node_error(n, 4, "step %d is 0", i);
        if (!(x = lib_slice(&n->lib, x, a, start[i], end[i], step ? step[i] : 1)))
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
    struct uop *x = n->in[0], **pads, *value = NULL, *lo[MAX_RANK], *hi[MAX_RANK];
    int count, naxis = x->ndim;
    int64_t *axis = NULL;
    enum pad_mode mode = PAD_MODE_CONSTANT;
    if (!pad_mode(n, &mode) || !require_ints(n,
                                             n->opset < 2    ? "paddings"
                                             : n->opset < 11 ? "pads"
                                                             : NULL,
                                             n->opset < 11 ? -1 : 1, &pads, &count))
        return false;
    if (n->opset < 11)
        value = uop_constf(n->t, x->dtype, node_float(n, "value", 0));
    else if (n->in[2] && !(value = node_scalar(n, 2)))
        return false;
    if (n->opset >= 18 && n->in[3] && !node_known_ints(n, 3, &axis, &naxis))
        return false;
    if (count != 2 * naxis)
        return node_error(n, 1, "%d pads are expected, two for each axis; found %d", 2 * naxis,
                          count);
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(n->t, 0);
    for (int i = 0; i < naxis; i++) {
        int a;
        if (!node_axis(n, axis ? axis[i] : i, x->ndim, &a))
            return false;
        lo[a] = pads[i];
        hi[a] = pads[naxis + i];
    }
    return node_set(n, 0, lib_pad(&n->lib, x, mode, value, lo, hi));
}

/* Opset 1: inputs tiles and axis; later: one repeat for each axis. */
bool lower_tile(struct node *n)
{
    struct uop *x = n->in[0], **repeat, *all[MAX_RANK];
    int count;
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
    return node_set(n, 0, lib_tile(&n->lib, x, repeat, count));
}

/* Crops or pads around the middle; an odd remainder goes to the end. */
bool lower_center_crop_pad(struct node *n)
{
    struct uop *x = n->in[0], **size, *lo[MAX_RANK], *hi[MAX_RANK];
    const int64_t *axis;
    int count, naxis = node_ints(n, "axes", &axis);
    if (!require_ints(n, NULL, 1, &size, &count))
        return false;
    if (count != (naxis < 0 ? x->ndim : naxis))
        return node_error(n, 1, "%d sizes are expected, found %d", naxis < 0 ? x->ndim : naxis,
                          count);
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(n->t, 0);
    for (int i = 0; i < count; i++) {
        int a;
        int64_t have, want;
        if (!node_axis(n, naxis < 0 ? i : axis[i], x->ndim, &a))
            return false;
        if (!uop_const_int(x->dim[a], &have) || !uop_const_int(size[i], &want))
            return node_error(n, -1, "axis %d must have a fixed size; fix it with --dim", a);
        int64_t more = want - have, before = more >= 0 ? more / 2 : -(-more / 2);
        lo[a] = uop_int(n->t, before);
        hi[a] = uop_int(n->t, more - before);
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

/* The blocks go in front of the channels (DCR) or, from opset 28 on if asked for, behind them
 * (CRD). */
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

bool lower_identity(struct node *n)
{
    n->value_out[0] = n->value_in[0];
    return true;
}

bool lower_reverse_sequence(struct node *n)
{
    struct uop *x = n->in[0], *dim[MAX_RANK], *index[MAX_RANK], *shape[MAX_RANK];
    int batch = (int)node_int(n, "batch_axis", 1), time = (int)node_int(n, "time_axis", 0);
    if (x->ndim < 2 || batch == time || batch < 0 || batch > 1 || time < 0 || time > 1)
        return node_error(n, -1,
                          "batch_axis and time_axis must be 0 and 1 in either order, and the input "
                          "of rank 2 or more");
    if (!node_rank(n, 1, 1, 1))
        return false;
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
