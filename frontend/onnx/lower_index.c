/* lower_index.c - operators that read or write at data-dependent indices: gather, scatter, top-k,
 * resize. */
#include <math.h>
#include <string.h>

#include "frontend/onnx/lower.h"

/* Indices along an axis have to be in range: checked now if they are known, by a status
 * otherwise. */
static bool check_along(const struct node *n, int64_t axis, int rank)
{
    int a;
    return node_axis(n, axis, rank, &a) && node_expect_index(n, 1, n->in[1], n->in[0]->dim[a]);
}

/* Coordinates along the last axis of the indices have to be in range, too. */
static bool check_rows(const struct node *n, int64_t first)
{
    struct uop *x = n->in[0], *index = n->in[1];
    int64_t count;
    if (index->ndim < 1 || !uop_const_int(index->dim[index->ndim - 1], &count) || first < 0)
        return true; /* the library reports it */
    for (int64_t k = 0; k < count && first + k < x->ndim; k++) {
        struct uop *row = node_slice_at(n, index, index->ndim - 1, uop_int(n->t, k));
        if (!row || !node_expect_index(n, 1, row, x->dim[first + k]))
            return false;
    }
    return true;
}

bool lower_gather(struct node *n)
{
    return check_along(n, node_int(n, "axis", 0), n->in[0]->ndim) &&
           node_set(n, 0, lib_gather(&n->lib, n->in[0], n->in[1], node_int(n, "axis", 0)));
}

bool lower_gather_elements(struct node *n)
{
    return check_along(n, node_int(n, "axis", 0), n->in[0]->ndim) &&
           node_set(n, 0,
                    lib_gather_elements(&n->lib, n->in[0], n->in[1], node_int(n, "axis", 0)));
}

bool lower_gather_nd(struct node *n)
{
    return check_rows(n, node_int(n, "batch_dims", 0)) &&
           node_set(n, 0,
                    lib_gather_nd(&n->lib, n->in[0], n->in[1], node_int(n, "batch_dims", 0)));
}

/* The combining op of a scatter; CONST overwrites. OP_COUNT: an error was reported. */
static enum op scatter_op(const struct node *n)
{
    static const struct {
        const char *name;
        enum op op;
    } names[] = {
        {"none", OP_CONST}, {"add", OP_ADD}, {"mul", OP_MUL}, {"max", OP_MAX}, {"min", OP_MIN}};
    const char *s = node_string(n, "reduction", "none");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(s, names[i].name))
            return names[i].op;
    node_error(n, -1, "reduction '%s' is not supported", s);
    return OP_COUNT;
}

bool lower_scatter_elements(struct node *n)
{
    enum op op = scatter_op(n);
    return op != OP_COUNT && check_along(n, node_int(n, "axis", 0), n->in[0]->ndim) &&
           node_set(n, 0,
                                      lib_scatter_elements(&n->lib, op, n->in[0], n->in[1],
                                                           n->in[2], node_int(n, "axis", 0)));
}

bool lower_scatter_nd(struct node *n)
{
    enum op op = scatter_op(n);
    return op != OP_COUNT && check_rows(n, 0) &&
           node_set(n, 0, lib_scatter_nd(&n->lib, op, n->in[0], n->in[1], n->in[2]));
}

/* present = past, with update written at write_indices[batch] .. along `axis`. */
bool lower_tensor_scatter(struct node *n)
{
    struct uop *past = n->in[0], *update = n->in[1], *index[MAX_RANK], *dim[MAX_RANK];
    int axis;
    const char *mode = node_string(n, "mode", "linear");
    if (!node_axis(n, node_int(n, "axis", -2), past->ndim, &axis) ||
        !node_rank(n, 1, past->ndim, past->ndim) || !node_same_dtype(n, 0, 1))
        return false;
    if (axis == 0)
        return node_error(n, -1, "axis 0 is the batch; it cannot be the sequence");
    for (int a = 0; a < past->ndim; a++) {
        if (a != axis && !sym_equal(n->t, past->dim[a], update->dim[a]))
            return node_error(n, 1, "%s does not fit into %s", shape_text(n, update),
                              shape_text(n, past));
        index[a] = tensor_iota(n->t, update->dim, update->ndim, a);
        dim[a] = a ? uop_int(n->t, 1) : update->dim[0];
    }
    if (n->in[2]) {
        struct uop *start =
            lib_reshape(&n->lib, lib_cast(&n->lib, DTYPE_INDEX, n->in[2]), dim, past->ndim);
        index[axis] = lib_add(&n->lib, index[axis], start);
        struct uop *end = lib_add(&n->lib, start, update->dim[axis]);
        struct uop *fits =
            end ? uop_not(n->t, uop_binary(n->t, OP_LT, past->dim[axis], end)) : NULL;
        struct uop *begins = start ? uop_binary(n->t, OP_LT, uop_int(n->t, -1), start) : NULL;
        if (!begins || !node_expect(n, 2, begins, "writes before the beginning") ||
            (!strcmp(mode, "linear") && !node_expect(n, 2, fits, "writes behind the end")))
            return false;
    }
    if (!strcmp(mode, "circular") && index[axis])
        index[axis] = lib_binary(&n->lib, OP_FLOORMOD, index[axis], past->dim[axis]);
    else if (strcmp(mode, "linear"))
        return node_error(n, -1, "mode '%s' is not supported", mode);
    return index[axis] && node_set(n, 0, uop_scatter(n->t, OP_CONST, past, update, index));
}

/* ----------------------------------------------------------------------------------- selections */

/* k: an attribute before opset 10, then an input of one element. */
bool lower_topk(struct node *n)
{
    struct uop **k;
    int count = 1;
    if (n->opset < 10) {
        k = mem_array(n->t, 1, sizeof(struct uop *));
        k[0] = uop_int(n->t, node_int(n, "k", 0));
    } else if (!node_integers(n, 1, &k, &count)) {
        return false;
    }
    int axis;
    if (count != 1)
        return node_error(n, 1, "one element is expected, found %d", count);
    if (!node_axis(n, node_int(n, "axis", -1), n->in[0]->ndim, &axis) ||
        !(k[0] = node_symbol(n, 1, k[0], node_input_name(n, 1, 0, 1), 0, n->in[0]->dim[axis])))
        return false;
    return lib_topk(&n->lib, n->in[0], k[0], node_int(n, "axis", -1),
                    node_int(n, "largest", 1) != 0, node_int(n, "sorted", 1) != 0, &n->out[0],
                    &n->out[1]);
}

/* The positions of true elements in the vector `mask`, if they are known at compile time: all of
 * them (exporters use NonZero(ConstantOfShape) as a range), or a list. NULL: unknown. */
static struct uop *known_positions(const struct node *n, struct uop *mask)
{
    struct tgc *t = n->t;
    const struct uop *one = mask;
    while (one->op == OP_EXPAND || one->op == OP_RESHAPE)
        one = one->src[0];
    if (uop_is_int(one, 1))
        return uop_cast(t, DTYPE_I64, uop_iota(t, mask->dim[0]));
    const struct buffer *b = uop_buffer_of(lib_fold(&n->lib, mask));
    int64_t len, count = 0;
    if (!b || b->kind != BUFFER_WEIGHT || !b->weight.data || !uop_const_int(mask->dim[0], &len))
        return NULL;
    int64_t *at = mem_array(t, (size_t)len + 1, sizeof *at);
    for (int64_t i = 0; i < len; i++)
        if (((const char *)b->weight.data)[i])
            at[count++] = i;
    return count == len ? uop_cast(t, DTYPE_I64, uop_iota(t, mask->dim[0]))
                        : tensor_from_data(t, DTYPE_I64, &count, 1, at,
                                           (size_t)count * sizeof *at, NULL);
}

/* The positions of true elements in the vector `mask`, known or found by a host step:
 * i64[count]. */
static struct uop *true_positions(struct node *n, struct uop *mask, const char *count_name)
{
    struct tgc *t = n->t;
    struct uop *len = mask->dim[0], *known = known_positions(n, mask);
    if (known)
        return known;
    struct var *v = node_count_symbol(n, count_name, len->vmax);
    if (!v)
        return NULL;
    struct host_output out = {.dtype = DTYPE_I64, .ndim = 1};
    out.dim[0] = v->min == v->max ? uop_int(t, v->min) : uop_var(t, v);
    struct uop *param[3] = {len, uop_int(t, v->min), uop_int(t, v->max)};
    struct uop *call = lib_host(&n->lib, "nonzero", &mask, 1, &out, 1, param, 3, &v, 1);
    lower_add_host(n->lower, call);
    return lib_get(&n->lib, call, 0);
}

/* As a vector of bools. */
static struct uop *empty_string(const struct node *n)
{
    const char **one = MEM_NEW(n->t, const char *);
    *one = "";
    return tensor_from_data(n->t, DTYPE_STRING, NULL, 0, one, sizeof *one, NULL);
}

static struct uop *mask_of(const struct node *n, struct uop *x)
{
    struct uop *len = sym_prod(n->t, x->dim, x->ndim);
    x = uop_reshape(n->t, x, &len, 1);
    if (x->dtype == DTYPE_STRING)
        return lib_binary(&n->lib, OP_NE, x, empty_string(n));
    return x->dtype == DTYPE_BOOL ? x : lib_binaryf(&n->lib, OP_NE, x, 0);
}

/* [rank, count]: a row of coordinates for each axis, computed from the positions. A scalar counts
 * as a vector of one element. */
bool lower_nonzero(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *mask = mask_of(n, x), *row[MAX_RANK], *stride = uop_int(t, 1);
    if (x->ndim == 0)
        x = mask;
    struct uop *p = mask ? true_positions(n, mask, node_output_dim_name(n, 0, 1)) : NULL;
    if (!p)
        return false;
    for (int a = x->ndim - 1; a >= 0; a--) {
        row[a] = uop_binary(t, OP_FLOORMOD, uop_binary(t, OP_FLOORDIV, p, stride), x->dim[a]);
        row[a] = tensor_insert_axis(t, row[a], 0);
        stride = sym_mul(t, stride, x->dim[a]);
    }
    return node_set(n, 0, lib_concat(&n->lib, row, x->ndim, 0));
}

/* A gather of the selected slices. Slices beyond the end of the condition are not selected. */
bool lower_compress(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *mask = n->in[1];
    int axis = 0;
    if (!node_rank(n, 1, 1, 1))
        return false;
    if (mask->dtype != DTYPE_BOOL)
        return node_error(n, 1, "a list of bools is expected, found %s", shape_text(n, mask));
    if (!node_has(n, "axis"))
        x = lib_reshape(&n->lib, x, (struct uop *[]){NULL}, 1);
    else if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis))
        return false;
    if (!x || !node_require(n, 1, uop_not(t, sym_lt(t, x->dim[axis], mask->dim[0])),
                            "the condition is longer than what it selects from"))
        return false;
    struct uop *p = true_positions(n, mask, node_output_dim_name(n, 0, axis));
    return p && node_set(n, 0, lib_gather(&n->lib, x, p, axis));
}

static struct uop *scalar_or(const struct node *n, int k, struct uop *otherwise)
{
    struct uop *x = k < n->nin && n->in[k] ? node_scalar(n, k) : otherwise;
    if (x && x->dtype == otherwise->dtype)
        return x;
    if (x)
        node_error(n, k, "one %s is expected, found %s", dtype_name(otherwise->dtype),
                   shape_text(n, n->in[k]));
    return NULL;
}

/* boxes [batch, box, 4], scores [batch, class, box] -> i64[selected, 3] */
bool lower_nms(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *boxes = n->in[0], *scores = n->in[1], *in[5] = {boxes, scores},
               *zero = uop_int(t, 0);
    int64_t known;
    if (!node_rank(n, 0, 3, 3) || !node_rank(n, 1, 3, 3))
        return false;
    if (boxes->dtype != DTYPE_F32 || scores->dtype != DTYPE_F32 || !uop_is_int(boxes->dim[2], 4))
        return node_error(n, 0, "f32[batch, box, 4] and f32[batch, class, box] are expected, found "
                                "%s and %s",
                          shape_text(n, boxes), shape_text(n, scores));
    if (!node_require(n, 1,
                      uop_binary(t, OP_AND, uop_binary(t, OP_EQ, boxes->dim[0], scores->dim[0]),
                                 uop_binary(t, OP_EQ, boxes->dim[1], scores->dim[2])),
                      "the scores do not go with the boxes") ||
        !(in[2] = scalar_or(n, 2, zero)) ||
        !(in[3] = scalar_or(n, 3, uop_constf(t, DTYPE_F32, 0))) ||
        !(in[4] = scalar_or(n, 4, uop_constf(t, DTYPE_F32, -(double)INFINITY))))
        return false;
    int64_t each = boxes->dim[1]->vmax;
    if (uop_const_int(in[2], &known) && known < each)
        each = known < 0 ? 0 : known;
    int64_t most = sat_mul(sat_mul(scores->dim[0]->vmax, scores->dim[1]->vmax), each);
    struct var *v = node_count_symbol(n, node_output_dim_name(n, 0, 0), most);
    if (!v)
        return false;
    struct host_output out[2] = {{.dtype = DTYPE_I64, .ndim = 2}, {.dtype = DTYPE_I64, .ndim = 1}};
    out[0].dim[0] = v->min == v->max ? uop_int(t, v->min) : uop_var(t, v);
    out[0].dim[1] = uop_int(t, 3);
    out[1].dim[0] = boxes->dim[1];
    struct uop *param[6] = {sym_min(t, boxes->dim[0], scores->dim[0]),
                            scores->dim[1],
                            sym_min(t, boxes->dim[1], scores->dim[2]),
                            uop_int(t, node_int(n, "center_point_box", 0)),
                            uop_int(t, v->min),
                            uop_int(t, v->max)};
    struct uop *call = lib_host(&n->lib, "nms", in, 5, out, 2, param, 6, &v, 1);
    lower_add_host(n->lower, call);
    return node_set(n, 0, lib_get(&n->lib, call, 0));
}

/* A host step finds the first of each group of equal rows; the result is a gather of them.
 * com.microsoft's keeps their order and does not return the firsts. */
bool lower_unique(struct node *n)
{
    struct tgc *t = n->t;
    const struct lib *l = &n->lib;
    struct uop *x = n->in[0], *dim[2];
    int64_t perm[MAX_RANK];
    int axis = 0, skip = n->operator->param;
    if (!node_has(n, "axis"))
        x = lib_reshape(l, x, (struct uop *[]){NULL}, 1);
    else if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis))
        return false;
    for (int a = 0; a < x->ndim; a++)
        perm[a] = a == 0 ? axis : a <= axis ? a - 1 : a;
    dim[0] = x->dim[axis];
    struct uop *rows = lib_permute(l, x, perm, x->ndim);
    dim[1] = sym_prod(t, rows->dim + 1, rows->ndim - 1);
    enum dtype wide = dtype_is_float(x->dtype) ? lib_acc_dtype(x->dtype)
                      : x->dtype == DTYPE_U64  ? DTYPE_U64
                                               : DTYPE_I64;
    bool text = x->dtype == DTYPE_STRING;
    rows = uop_reshape(t, rows, dim, 2);
    rows = text ? rows : lib_cast(l, wide, rows);
    struct var *v = node_count_symbol(n, node_output_dim_name(n, 0, axis), dim[0]->vmax);
    if (!v)
        return false;
    struct host_output out[4];
    for (int k = 0; k < 4; k++) {
        out[k] = (struct host_output){.dtype = DTYPE_I64, .ndim = 1};
        out[k].dim[0] = k % 2 ? dim[0] : v->min == v->max ? uop_int(t, v->min) : uop_var(t, v);
    }
    struct uop *param[5] = {dim[0], dim[1], uop_int(t, skip ? 0 : node_int(n, "sorted", 1)),
                            uop_int(t, v->min), uop_int(t, v->max)};
    struct uop *call = lib_host(l, mem_printf(t, "unique_%s", text ? "str" : dtype_name(wide)),
                                &rows, 1, out, 4, param, 5, &v, 1);
    lower_add_host(n->lower, call);
    for (int k = 1; k < 4 - skip; k++)
        n->out[k] = lib_get(l, call, k - 1 + skip);
    return node_set(n, 0, lib_gather(l, x, lib_get(l, call, 0), axis));
}

/* --------------------------------------------------------------------------------------- resize */

bool resize_modes(const struct node *n, struct resize_attr *a)
{
    static const struct {
        const char *name;
        enum resize_coordinates v;
    } coordinates[] = {
        {"half_pixel", RESIZE_HALF_PIXEL},
        {"half_pixel_symmetric", RESIZE_HALF_PIXEL_SYMMETRIC},
        {"pytorch_half_pixel", RESIZE_PYTORCH_HALF_PIXEL},
        {"align_corners", RESIZE_ALIGN_CORNERS},
        {"asymmetric", RESIZE_ASYMMETRIC},
        {"tf_crop_and_resize", RESIZE_TF_CROP},
        {"tf_half_pixel_for_nn", RESIZE_TF_HALF_PIXEL}, /* opsets 11 and 12 */
    };
    static const struct {
        const char *name;
        enum resize_rounding v;
    } rounding[] = {
        {"round_prefer_floor", RESIZE_ROUND_PREFER_FLOOR},
        {"round_prefer_ceil", RESIZE_ROUND_PREFER_CEIL},
        {"floor", RESIZE_FLOOR},
        {"ceil", RESIZE_CEIL},
        {"", RESIZE_CEIL_IF_SMALLER}, /* opset 10, which says nothing: as ONNX Runtime */
    };
    bool old = n->opset < 11;
    const char *mode = node_string(n, "mode", "nearest");
    const char *c =
        node_string(n, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    const char *r = node_string(n, "nearest_mode", old ? "" : "round_prefer_floor");
    bool found_c = false, found_r = false;
    if (!strcmp(mode, "nearest"))
        a->mode = RESIZE_NEAREST;
    else if (!strcmp(mode, "linear") || !strcmp(mode, "bilinear"))
        a->mode = RESIZE_LINEAR;
    else if (!strcmp(mode, "cubic"))
        a->mode = RESIZE_CUBIC;
    else
        return node_error(n, -1, "mode '%s' is not supported", mode);
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++)
        if (!strcmp(c, coordinates[i].name)) {
            a->coordinates = coordinates[i].v;
            found_c = true;
        }
    for (size_t i = 0; i < sizeof rounding / sizeof *rounding; i++)
        if (!strcmp(r, rounding[i].name)) {
            a->rounding = rounding[i].v;
            found_r = true;
        }
    if (!found_c || !found_r)
        return node_error(n, -1, "%s '%s' is not supported",
                          found_c ? "nearest_mode" : "coordinate_transformation_mode",
                          found_c ? r : c);
    a->cubic_a = node_float(n, "cubic_coeff_a", -0.75);
    a->exclude_outside = node_int(n, "exclude_outside", 0) != 0;
    a->antialias = node_int(n, "antialias", 0) != 0;
    a->extrapolation = node_float(n, "extrapolation_value", 0);
    return true;
}

/* axes: those to which sizes, scales and roi apply; by default all. */
static bool resize_axes(const struct node *n, int rank, int *axis, int *naxis)
{
    const int64_t *list;
    *naxis = node_ints(n, "axes", &list);
    if (*naxis < 0) {
        *naxis = rank;
        for (int a = 0; a < rank; a++)
            axis[a] = a;
        return true;
    }
    if (*naxis > rank)
        return node_error(n, -1, "%d axes for an input of rank %d", *naxis, rank);
    for (int i = 0; i < *naxis; i++)
        if (!node_axis(n, list[i], rank, &axis[i]))
            return false;
    return true;
}

static bool resize_by_scales(const struct node *n, struct resize_attr *a, const int *axis,
                             int naxis, const double *scale, int count)
{
    if (count != naxis)
        return node_error(n, -1, "%d scales are expected, found %d", naxis, count);
    for (int i = 0; i < naxis; i++) {
        if (!(scale[i] > 0))
            return node_error(n, -1, "scale %d is %g; it must be positive", i, scale[i]);
        a->scale[axis[i]] = scale[i];
        struct uop *in = n->in[0]->dim[axis[i]];
        if (a->coordinates == RESIZE_TF_CROP) {
            int64_t size;
            if (!uop_const_int(in, &size))
                return node_error(n, 0,
                                  "tf_crop_and_resize needs fixed dimensions; fix them with --dim");
            in = uop_int(n->t, (int64_t)((double)size * (a->roi_hi[axis[i]] - a->roi_lo[axis[i]]) *
                                         scale[i]));
        } else if (!(in = lib_scaled_dim(&n->lib, in, scale[i]))) {
            return false;
        }
        a->size[axis[i]] = in;
    }
    return true;
}

/* keep_aspect_ratio_policy: one scale for all, the smaller or the larger one. */
static bool resize_by_sizes(const struct node *n, struct resize_attr *a, const int *axis, int naxis,
                            struct uop *const *size, int count)
{
    const struct lib *l = &n->lib;
    const char *policy = node_string(n, "keep_aspect_ratio_policy", "stretch");
    bool stretch = !strcmp(policy, "stretch"), larger = !strcmp(policy, "not_smaller");
    struct uop *scale = NULL;
    if (count != naxis)
        return node_error(n, -1, "%d sizes are expected, found %d", naxis, count);
    if (!stretch && !larger && strcmp(policy, "not_larger"))
        return node_error(n, -1, "keep_aspect_ratio_policy '%s' is not supported", policy);
    for (int i = 0; i < naxis; i++) {
        if (stretch) {
            a->size[axis[i]] = node_symbol(n, 3, size[i], node_input_name(n, 3, i, count), 0, NULL);
            if (!a->size[axis[i]])
                return false;
            continue;
        }
        struct uop *s = lib_div(l, lib_cast(l, DTYPE_F64, size[i]),
                                lib_float_of(l, DTYPE_F64, n->in[0]->dim[axis[i]]));
        scale = scale ? lib_binary(l, larger ? OP_MAX : OP_MIN, scale, s) : s;
    }
    for (int i = 0; i < naxis && !stretch; i++) {
        struct uop *in = lib_float_of(l, DTYPE_F64, n->in[0]->dim[axis[i]]);
        struct uop *out = lib_binaryf(l, OP_ADD, lib_mul(l, scale, in), 0.5);
        out = lib_cast(l, DTYPE_INDEX, lib_unary(l, OP_FLOOR, out));
        if (!(a->size[axis[i]] =
                  node_symbol(n, 3, out, node_output_dim_name(n, 0, axis[i]), 0, NULL)))
            return false;
        if (scale->op == OP_CONST)
            a->scale[axis[i]] = scale->arg.f;
        else
            a->scale_at_run[axis[i]] = scale;
    }
    return true;
}

/* Scales known only at run time: sizes are symbols, and the coordinates are computed from the
 * scales. */
static bool resize_at_run(const struct node *n, struct resize_attr *a, const int *axis, int naxis,
                          struct uop *scales, int input)
{
    const struct lib *l = &n->lib;
    if (scales->ndim != 1 || !uop_is_int(scales->dim[0], naxis))
        return node_error(n, input, "%d scales are expected, found %s", naxis,
                          shape_text(n, scales));
    for (int i = 0; i < naxis; i++) {
        struct uop *s = lib_cast(l, DTYPE_F64, node_element(n, scales, i));
        struct uop *in = n->in[0]->dim[axis[i]], *size = lib_float_of(l, DTYPE_F64, in);
        if (!node_require(n, input, lib_binary(l, OP_LT, uop_constf(n->t, DTYPE_F64, 0), s),
                          "a scale must be positive"))
            return false;
        if (a->coordinates == RESIZE_TF_CROP) {
            struct uop *lo = a->roi_at_run[0][axis[i]], *hi = a->roi_at_run[1][axis[i]];
            lo = lo ? lo : uop_constf(n->t, DTYPE_F64, a->roi_lo[axis[i]]);
            hi = hi ? hi : uop_constf(n->t, DTYPE_F64, a->roi_hi[axis[i]]);
            size = lib_mul(l, size, lib_sub(l, hi, lo));
        }
        size = lib_cast(l, DTYPE_INDEX, lib_unary(l, OP_FLOOR, lib_mul(l, size, s)));
        a->scale_at_run[axis[i]] = s;
        a->size[axis[i]] =
            node_symbol(n, input, size, node_output_dim_name(n, 0, axis[i]), 0, NULL);
        if (!a->size[axis[i]])
            return false;
    }
    return true;
}

static bool roi_is_open(const struct resize_attr *a, int rank)
{
    for (int k = 0; k < rank; k++)
        if (a->roi_at_run[0][k] || a->roi_at_run[1][k])
            return true;
    return false;
}

static bool is_given(const struct node *n, int k)
{
    return k < n->nin && n->in[k] && !(n->in[k]->ndim == 1 && uop_is_int(n->in[k]->dim[0], 0));
}

bool lower_resize(struct node *n)
{
    struct resize_attr a = {0};
    struct uop *x = n->in[0], **size;
    int axis[MAX_RANK], naxis, count;
    int roi_input = n->opset < 11 ? -1 : 1, scales_input = n->opset < 11 ? 1 : 2;
    double *v;
    if (!resize_modes(n, &a) || !resize_axes(n, x->ndim, axis, &naxis))
        return false;
    for (int k = 0; k < x->ndim; k++) {
        a.size[k] = x->dim[k];
        a.roi_hi[k] = 1;
    }
    if (roi_input > 0 && is_given(n, roi_input) && a.coordinates == RESIZE_TF_CROP) {
        struct uop *roi = n->in[roi_input];
        if (roi->ndim != 1 || !uop_is_int(roi->dim[0], 2 * naxis))
            return node_error(n, roi_input, "%d values are expected, found %s", 2 * naxis,
                              shape_text(n, roi));
        for (int i = 0; i < 2 * naxis; i++) {
            struct uop *e = lib_cast(&n->lib, DTYPE_F64, node_element(n, roi, i)),
                       *known = e ? tensor_element(n->t, e, NULL) : NULL;
            int at = axis[i % naxis];
            if (known && known->op == OP_CONST)
                *(i < naxis ? &a.roi_lo[at] : &a.roi_hi[at]) = known->arg.f;
            else if (!(a.roi_at_run[i / naxis][at] = e))
                return false;
        }
    }
    if (n->opset < 7) { /* Upsample 1: [n, c, height, width] */
        double scale[4] = {1, 1, node_float(n, "height_scale", 0), node_float(n, "width_scale", 0)};
        if (!node_rank(n, 0, 4, 4) || !resize_by_scales(n, &a, axis, naxis, scale, 4))
            return false;
    } else if (is_given(n, 3)) {
        if (is_given(n, scales_input))
            return node_error(n, 3, "scales and sizes are both given; one of them must be absent "
                                    "or empty");
        if (!node_integers(n, 3, &size, &count) ||
            !resize_by_sizes(n, &a, axis, naxis, size, count))
            return false;
    } else if (n->opset < 9 && node_has(n, "scales")) { /* Upsample 7: an attribute */
        const float *f;
        count = node_floats(n, "scales", &f);
        v = mem_array(n->t, (size_t)count + 1, sizeof *v);
        for (int i = 0; i < count; i++)
            v[i] = (double)f[i];
        if (!resize_by_scales(n, &a, axis, naxis, v, count))
            return false;
    } else if (!is_given(n, scales_input)) {
        return node_error(n, -1, "needs scales or sizes");
    } else if (!node_is_known(n, scales_input) || roi_is_open(&a, x->ndim)) {
        if (!resize_at_run(n, &a, axis, naxis, n->in[scales_input], scales_input))
            return false;
    } else if (!node_known_floats(n, scales_input, &v, &count) ||
               !resize_by_scales(n, &a, axis, naxis, v, count)) {
        return false;
    }
    if (node_learn_shape(n, 0, a.size, x->ndim)) /* then again, with fixed sizes */
        return node_set(n, 0, tensor_full(n->t, uop_consti(n->t, x->dtype, 0), a.size, x->ndim));
    return node_set(n, 0, lib_resize(&n->lib, x, &a));
}
