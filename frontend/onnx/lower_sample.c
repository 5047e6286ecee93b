/* lower_sample.c - reading a grid between its points: GridSample, RoiAlign, MaxRoiPool, DeformConv;
 * AffineGrid, which makes the points; Col2Im.
 *
 * A sample is a weighted sum of taps: 1 (nearest), 2 (linear) or 4 (cubic) on each axis. Each tap
 * is one INDEX, which reads 0 outside the tensor: that is the padding mode "zeros". The other
 * modes clamp or reflect the coordinates, those of the sample (except for cubic) and of each tap.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

enum sample_mode { SAMPLE_NEAREST, SAMPLE_LINEAR, SAMPLE_CUBIC };
enum sample_padding { SAMPLE_ZEROS, SAMPLE_BORDER, SAMPLE_REFLECTION };
enum { MAX_SAMPLE_AXES = 3, MAX_TAPS = 4 };

struct sampler {
    const struct node *n;
    struct uop *x;               /* [batch, channel, spatial...] */
    struct uop *batch, *channel; /* i64, broadcast to dim */
    struct uop **dim;
    int ndim; /* of the result */
    enum sample_mode mode;
    enum sample_padding padding;
    bool largest_tap;   /* the largest weighted tap instead of their sum */
    /* where reflection is centered: at the outer points, or half an element beyond */
    bool align_corners;
};

/* Reflects v between lo and hi. */
static struct uop *reflect(const struct lib *l, struct uop *v, double half, struct uop *size)
{
    struct uop *range = lib_binaryf(l, OP_SUB, lib_float_of(l, v->dtype, size), half == 0 ? 1 : 0);
    struct uop *period = lib_binaryf(l, OP_MUL, range, 2),
               *safe = lib_where(l, lib_binaryf(l, OP_EQ, range, 0), lib_scalar(l, v, 1), period);
    struct uop *d = lib_binaryf(l, OP_ADD, v, half);
    d = lib_sub(l, d, lib_mul(l, lib_unary(l, OP_FLOOR, lib_div(l, d, safe)), safe));
    d = lib_sub(l, range, lib_unary(l, OP_ABS, lib_sub(l, d, range)));
    return lib_binaryf(l, OP_SUB, lib_binaryf(l, OP_MAX, d, 0), half);
}

static struct uop *bend(const struct sampler *s, struct uop *v, struct uop *size)
{
    const struct lib *l = &s->n->lib;
    if (s->padding == SAMPLE_ZEROS)
        return v;
    if (s->padding == SAMPLE_REFLECTION)
        v = reflect(l, v, s->align_corners ? 0 : 0.5, size);
    else
        v = lib_binary(l, OP_MIN, lib_binaryf(l, OP_MAX, v, 0),
                       lib_float_of(l, v->dtype, sym_addi(s->n->t, size, -1)));
    return v;
}

/* Keys' cubic convolution with a = -0.75; w: distance from the second tap. */
static void cubic_weights(const struct lib *l, struct uop *w, struct uop **weight)
{
    const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        struct uop *d = k < 2 ? lib_binaryf(l, OP_ADD, w, 1 - k)
                              : lib_binaryf(l, OP_SUB, lib_unary(l, OP_NEG, w), -(k - 1));
        bool inner = k == 1 || k == 2;
        double c3 = inner ? a + 2 : a, c2 = inner ? -(a + 3) : -5 * a, c1 = inner ? 0 : 8 * a,
               c0 = inner ? 1 : -4 * a;
        struct uop *r = lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, d, c3), c2);
        r = lib_binaryf(l, OP_ADD, lib_mul(l, r, d), c1);
        weight[k] = lib_binaryf(l, OP_ADD, lib_mul(l, r, d), c0);
    }
}

struct taps {
    int n;
    struct uop *index[MAX_TAPS], *weight[MAX_TAPS];
};

static bool make_taps(const struct sampler *s, struct uop *v, struct uop *size, struct taps *t)
{
    const struct lib *l = &s->n->lib;
    if (s->mode == SAMPLE_NEAREST)
        v = lib_unary(l, OP_ROUND, v);
    /* only the taps of cubic samples are clamped, as in PyTorch and ONNX Runtime */
    if (s->mode != SAMPLE_CUBIC)
        v = bend(s, v, size);
    if (!v)
        return false;
    t->n = s->mode == SAMPLE_NEAREST ? 1 : s->mode == SAMPLE_LINEAR ? 2 : 4;
    struct uop *base = s->mode == SAMPLE_NEAREST ? v : lib_unary(l, OP_FLOOR, v),
               *w = lib_sub(l, v, base);
    if (s->mode == SAMPLE_LINEAR) {
        t->weight[0] = lib_binaryf(l, OP_ADD, lib_unary(l, OP_NEG, w), 1);
        t->weight[1] = w;
    } else if (s->mode == SAMPLE_CUBIC) {
        cubic_weights(l, w, t->weight);
    }
    for (int k = 0; k < t->n; k++) {
        struct uop *at = lib_binaryf(l, OP_ADD, base, s->mode == SAMPLE_CUBIC ? k - 1 : k);
        at = lib_cast(l, DTYPE_INDEX, bend(s, at, size));
        if (!at || !(t->index[k] = lib_broadcast_to(l, at, s->dim, s->ndim)))
            return false;
    }
    return true;
}

/* coord[a]: the position along spatial axis a, in elements; floats that broadcast to the result's
 * shape. */
static struct uop *sample(const struct sampler *s, struct uop *const *coord)
{
    const struct lib *l = &s->n->lib;
    int naxis = s->x->ndim - 2, count = 1;
    struct taps taps[MAX_SAMPLE_AXES];
    struct uop *sum = NULL, *index[MAX_SAMPLE_AXES + 2];
    enum dtype acc = coord[0]->dtype;
    for (int a = 0; a < naxis; a++) {
        if (!make_taps(s, coord[a], s->x->dim[2 + a], &taps[a]))
            return NULL;
        count *= taps[a].n;
    }
    if (!(index[0] = lib_broadcast_to(l, s->batch, s->dim, s->ndim)) ||
        !(index[1] = lib_broadcast_to(l, s->channel, s->dim, s->ndim)))
        return NULL;
    for (int i = 0; i < count; i++) {
        struct uop *weight = NULL;
        for (int a = naxis - 1, rest = i; a >= 0; rest /= taps[a].n, a--) {
            int k = rest % taps[a].n;
            index[2 + a] = taps[a].index[k];
            if (taps[a].n > 1)
                weight = weight ? lib_mul(l, weight, taps[a].weight[k]) : taps[a].weight[k];
        }
        struct uop *v = uop_index(s->n->t, s->x, index);
        if (s->mode == SAMPLE_NEAREST) /* as it is, whatever it is */
            return v;
        v = lib_cast(l, acc, v);
        v = weight ? lib_mul(l, v, weight) : v;
        sum = sum ? lib_binary(l, s->largest_tap ? OP_MAX : OP_ADD, sum, v) : v;
    }
    return sum;
}

/* i64, 0 .. dim[axis] - 1 along one axis of a shape, 1 long elsewhere. */
static struct uop *along(const struct node *n, struct uop *const *dim, int ndim, int axis)
{
    struct uop *one[MAX_RANK];
    for (int a = 0; a < ndim; a++)
        one[a] = a == axis ? dim[a] : uop_int(n->t, 1);
    return tensor_iota(n->t, one, ndim, axis);
}

/* ----------------------------------------------------------------------------------- GridSample */

static bool grid_attributes(const struct node *n, struct sampler *s)
{
    const char *mode = node_string(n, "mode", "linear"),
               *padding = node_string(n, "padding_mode", "zeros");
    if (!strcmp(mode, "linear") || !strcmp(mode, "bilinear"))
        s->mode = SAMPLE_LINEAR;
    else if (!strcmp(mode, "cubic") || !strcmp(mode, "bicubic"))
        s->mode = SAMPLE_CUBIC;
    else if (!strcmp(mode, "nearest"))
        s->mode = SAMPLE_NEAREST;
    else
        return node_error(n, -1, "mode '%s' is not supported", mode);
    if (!strcmp(padding, "zeros"))
        s->padding = SAMPLE_ZEROS;
    else if (!strcmp(padding, "border"))
        s->padding = SAMPLE_BORDER;
    else if (!strcmp(padding, "reflection"))
        s->padding = SAMPLE_REFLECTION;
    else
        return node_error(n, -1, "padding_mode '%s' is not supported", padding);
    s->align_corners = node_int(n, "align_corners", 0) != 0;
    return true;
}

bool lower_grid_sample(struct node *n)
{
    struct uop *x = n->in[0], *grid = n->in[1], *coord[MAX_SAMPLE_AXES], *dim[MAX_RANK];
    const struct lib *l = &n->lib;
    struct sampler s = {.n = n, .x = x, .dim = dim, .ndim = x->ndim};
    int naxis = x->ndim - 2;
    if (!grid_attributes(n, &s) || !node_rank(n, 0, 3, 2 + MAX_SAMPLE_AXES) ||
        !node_rank(n, 1, x->ndim, x->ndim))
        return false;
    if (!uop_is_int(grid->dim[x->ndim - 1], naxis) || !dtype_is_float(grid->dtype))
        return node_error(n, 1, "%d coordinates for each point are expected, found %s", naxis,
                          shape_text(n, grid));
    bool exact = dtype_is_float(x->dtype) || dtype_is_int(x->dtype);
    if (!exact && s.mode != SAMPLE_NEAREST)
        return node_error(n, 0, "there is nothing between the elements of %s; mode nearest takes "
                          "them", shape_text(n, x));
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int a = 0; a < naxis; a++)
        dim[2 + a] = grid->dim[1 + a];
    s.batch = along(n, dim, s.ndim, 0);
    s.channel = along(n, dim, s.ndim, 1);
    for (int a = 0; a < naxis; a++) { /* the last coordinate belongs to the first spatial axis */
        struct uop *g = node_slice_at(n, grid, x->ndim - 1, uop_int(n->t, naxis - 1 - a));
        if (!g)
            return false;
        enum dtype acc = dtype_is_float(x->dtype) ? lib_acc_dtype(x->dtype)
                         : dtype_bits(x->dtype) < 24 ? DTYPE_F32 : DTYPE_F64;
        g = lib_cast(l, acc, tensor_insert_axis(n->t, g, 1));
        struct uop *size = lib_float_of(
            l, g->dtype, s.align_corners ? sym_addi(n->t, x->dim[2 + a], -1) : x->dim[2 + a]);
        g = lib_mul(l, lib_binaryf(l, OP_ADD, g, 1), size);
        coord[a] = lib_binaryf(l, OP_MUL, s.align_corners ? g : lib_binaryf(l, OP_SUB, g, 1), 0.5);
        if (!coord[a])
            return false;
    }
    struct uop *y = sample(&s, coord);
    return node_set(n, 0, y && y->dtype == x->dtype ? y : lib_cast(l, x->dtype, y));
}

/* theta [n, r, r + 1], size [n, c, spatial...]: the points of a grid over -1 .. 1, transformed. */
bool lower_affine_grid(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *theta = n->in[0], **size;
    int count;
    bool align = node_int(n, "align_corners", 0) != 0;
    if (!node_rank(n, 0, 3, 3) || !node_symbols(n, 1, &size, &count))
        return false;
    int r = count - 2;
    if (r < 2 || r > 3 || !uop_is_int(theta->dim[1], r) || !uop_is_int(theta->dim[2], r + 1))
        return node_error(n, 0, "theta is %s, which does not go with a size of %d elements",
                          shape_text(n, theta), count);
    struct uop *shape[5], *column[3], *sum = NULL, *at = NULL;
    shape[0] = uop_int(n->t, 1);
    for (int a = 0; a < r; a++)
        shape[1 + a] = size[2 + a];
    for (int k = 0; k <= r; k++) { /* x, y, z: the last spatial axis first; then 1 */
        struct uop *w = node_slice_at(n, theta, 2, uop_int(n->t, k)), *wide[5]; /* [n, r] */
        if (!w)
            return false;
        for (int a = 0; a < r + 2; a++)
            wide[a] = a == 0 ? theta->dim[0] : a == r + 1 ? theta->dim[1] : uop_int(n->t, 1);
        w = uop_reshape(n->t, w, wide, r + 2);
        if (k < r) {
            int axis = r - 1 - k;
            struct uop *i = lib_cast(l, theta->dtype, along(n, shape, r + 1, 1 + axis));
            struct uop *steps = lib_float_of(
                l, theta->dtype, align ? sym_addi(n->t, shape[1 + axis], -1) : shape[1 + axis]);
            i = align ? lib_div(l, lib_binaryf(l, OP_MUL, i, 2), steps)
                      : lib_div(l, lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, i, 2), 1), steps);
            column[k] = lib_binaryf(l, OP_SUB, i, 1);
            at = column[k] ? tensor_insert_axis(n->t, column[k], r + 1) : NULL;
        }
        struct uop *term = k < r ? lib_mul(l, w, at) : w;
        sum = sum ? lib_add(l, sum, term) : term;
    }
    return node_set(n, 0, sum);
}

/* ------------------------------------------------------------------------------------- RoiAlign */

/* Samples of one spatial axis: start + (i + (k + 1/2) / ratio) * step, as [roi, 1, .., i, .., k,
 * ..] of rank 6. */
static struct uop *roi_points(const struct node *n, struct uop *start, struct uop *step,
                              struct uop *const *dim, int axis, int64_t ratio)
{
    const struct lib *l = &n->lib;
    struct uop *i = lib_cast(l, start->dtype, along(n, dim, 6, axis)),
               *k = lib_cast(l, start->dtype, along(n, dim, 6, axis + 2));
    k = lib_binaryf(l, OP_MUL, lib_binaryf(l, OP_ADD, k, 0.5), 1.0 / (double)ratio);
    return lib_add(l, start, lib_mul(l, lib_add(l, i, k), step));
}

/* A host step, for sums whose number of terms is not known. image NULL: the regions name it. y is
 * [region, channel, out[0], out[1]]. */
static bool roi_host(struct node *n, const char *function, struct uop *image, const int64_t out[2],
                     const int64_t *more, int nmore)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *rois = n->in[1], *in[4], *param[9];
    enum dtype d = lib_acc_dtype(x->dtype);
    struct host_output y = {.dtype = d, .ndim = 4};
    struct text name = {.t = t};
    int nin = 0, nparam = 0;
    in[nin++] = lib_cast(l, d, x);
    in[nin++] = lib_cast(l, d, rois);
    if (image)
        in[nin++] = lib_cast(l, DTYPE_I64, image);
    in[nin++] = uop_constf(t, d, node_float(n, "spatial_scale", 1));
    for (int a = 0; a < 4; a++)
        param[nparam++] = x->dim[a];
    param[nparam++] = rois->dim[0];
    for (int a = 0; a < 2; a++)
        param[nparam++] = uop_int(t, out[a]);
    for (int k = 0; k < nmore; k++)
        param[nparam++] = uop_int(t, more[k]);
    y.dim[0] = rois->dim[0];
    y.dim[1] = x->dim[1];
    for (int a = 0; a < 2; a++)
        y.dim[2 + a] = uop_int(t, out[a]);
    text_printf(&name, "%s_%s", function, dtype_name(d));
    struct uop *call = lib_host(l, name.s, in, nin, &y, 1, param, nparam, NULL, 0);
    return node_set(n, 0, lib_cast(l, x->dtype, call ? lib_get(l, call, 0) : NULL));
}

/* x [n, c, h, w], rois [count, 5] as image x1 y1 x2 y2 */
bool lower_max_roi_pool(struct node *n)
{
    const int64_t *out;
    if (!node_rank(n, 0, 4, 4) || !node_rank(n, 1, 2, 2) || !node_same_dtype(n, 0, 1))
        return false;
    if (!uop_is_int(n->in[1]->dim[1], 5))
        return node_error(n, 1, "an image and four corners for each region are expected, found %s",
                          shape_text(n, n->in[1]));
    if (node_ints(n, "pooled_shape", &out) != 2 || out[0] < 1 || out[1] < 1 || out[0] > 1 << 20 ||
        out[1] > 1 << 20)
        return node_error(n, -1, "attribute 'pooled_shape' must have two positive elements");
    return roi_host(n, "roi_max", NULL, out, NULL, 0);
}

bool lower_roi_align(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *rois = n->in[1], *coord[2], *inside = NULL;
    int64_t out[2] = {node_int(n, "output_height", 1), node_int(n, "output_width", 1)},
            ratio = node_int(n, "sampling_ratio", 0);
    double scale = node_float(n, "spatial_scale", 1);
    const char *mode = node_string(n, "mode", "avg");
    const char *transform = node_string(n, "coordinate_transformation_mode",
                                        n->opset < 16 ? "output_half_pixel" : "half_pixel");
    bool half = !strcmp(transform, "half_pixel");
    if (!node_rank(n, 0, 4, 4) || !node_rank(n, 1, 2, 2) || !node_rank(n, 2, 1, 1) ||
        !uop_is_int(rois->dim[1], 4))
        return n->t->nerror
                   ? false
                   : node_error(n, 1, "four corners for each region are expected, found %s",
                                shape_text(n, rois));
    if (!node_same_dtype(n, 0, 1))
        return false;
    if (!dtype_is_int(n->in[2]->dtype))
        return node_error(n, 2, "integers are expected, found %s", shape_text(n, n->in[2]));
    if (out[0] < 1 || out[1] < 1 || out[0] > 1 << 20 || out[1] > 1 << 20 || ratio < 0 ||
        ratio > 1 << 10)
        return node_error(n, -1, "output_height and output_width must be positive, sampling_ratio "
                                 "must not be negative");
    bool max = !strcmp(mode, "max");
    if (!max && strcmp(mode, "avg"))
        return node_error(n, -1, "mode '%s' is not supported", mode);
    if (ratio == 0) /* a sample for each pixel of a region */
        return roi_host(n, "roi_align", n->in[2], out, (int64_t[]){half, max}, 2);
    struct uop *dim[6] = {rois->dim[0],       x->dim[1],         uop_int(t, out[0]),
                          uop_int(t, out[1]), uop_int(t, ratio), uop_int(t, ratio)};
    struct uop *one[6] = {rois->dim[0],  uop_int(t, 1), uop_int(t, 1),
                          uop_int(t, 1), uop_int(t, 1), uop_int(t, 1)};
    struct sampler s = {
        .n = n, .x = x, .dim = dim, .ndim = 6, .mode = SAMPLE_LINEAR, .padding = SAMPLE_BORDER};
    s.channel = along(n, dim, 6, 1);
    if (!(s.batch = lib_reshape(l, lib_cast(l, DTYPE_INDEX, n->in[2]), one, 6)))
        return false;
    for (int a = 0; a < 2; a++) { /* a region is x1 y1 x2 y2 */
        struct uop *lo = node_slice_at(n, rois, 1, uop_int(t, 1 - a)),
                   *hi = node_slice_at(n, rois, 1, uop_int(t, 3 - a));
        enum dtype d = lib_acc_dtype(rois->dtype);
        lo = lib_binaryf(l, OP_SUB, lib_binaryf(l, OP_MUL, lib_cast(l, d, lo), scale),
                         half ? 0.5 : 0);
        hi = lib_binaryf(l, OP_SUB, lib_binaryf(l, OP_MUL, lib_cast(l, d, hi), scale),
                         half ? 0.5 : 0);
        struct uop *extent = lib_sub(l, hi, lo);
        extent = half ? extent : lib_binaryf(l, OP_MAX, extent, 1);
        struct uop *step =
            lib_reshape(l, lib_binaryf(l, OP_MUL, extent, 1.0 / (double)out[a]), one, 6);
        if (!step ||
            !(coord[a] = roi_points(n, lib_reshape(l, lo, one, 6), step, dim, 2 + a, ratio)))
            return false;
        struct uop *far = lib_float_of(l, d, x->dim[2 + a]);
        struct uop *ok = uop_not(t, lib_binary(l, OP_OR, lib_binaryf(l, OP_LT, coord[a], -1),
                                               lib_binary(l, OP_LT, far, coord[a])));
        inside = inside ? lib_binary(l, OP_AND, inside, ok) : ok;
    }
    s.largest_tap = max;
    struct uop *v = sample(&s, coord);
    v = v ? lib_where(l, inside, v, lib_scalar(l, v, 0)) : NULL;
    return node_set(
        n, 0,
        lib_cast(l, x->dtype, lib_reduce(l, max ? REDUCE_MAX : REDUCE_MEAN, v, 3u << 4, false)));
}

/* ----------------------------------------------------------------------------------- DeformConv */

/* [n, g * rest, oh, ow] as [n, channels, kh, kw, oh, ow]; part k of `parts` interleaved ones. */
static struct uop *per_offset_channel(const struct node *n, int input, struct uop *const *dim,
                                      int64_t groups, int64_t parts, int64_t k)
{
    struct tgc *t = n->t;
    struct uop *each = sym_div(t, dim[1], uop_int(t, groups)), *g = uop_int(t, groups);
    struct uop *split[7] = {dim[0], g, dim[2], dim[3], uop_int(t, parts), dim[4], dim[5]};
    struct uop *v =
        node_slice_at(n, lib_reshape(&n->lib, n->in[input], split, 7), 4, uop_int(t, k));
    if (!v)
        return NULL;
    struct uop *wide[7] = {dim[0], g, each, dim[2], dim[3], dim[4], dim[5]};
    return uop_reshape(t, uop_expand(t, tensor_insert_axis(t, v, 2), wide), dim, 6);
}

bool lower_deform_conv(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *w = n->in[1], *offset = n->in[2], *coord[2];
    struct window_attr a;
    int64_t groups = node_int(n, "offset_group", 1), channels, outputs;
    if (!node_rank(n, 0, 4, 4) || !node_rank(n, 1, 4, 4) || !node_rank(n, 2, 4, 4) ||
        !window_attributes(n, x, &a))
        return false;
    if (!uop_const_int(x->dim[1], &channels) || !uop_const_int(w->dim[0], &outputs) || groups < 1 ||
        channels % groups || channels % a.group || outputs % a.group ||
        !uop_is_int(w->dim[1], channels / a.group))
        return node_error(n, 1, "group %lld and offset_group %lld do not go with %s and %s",
                          (long long)a.group, (long long)groups, shape_text(n, x),
                          shape_text(n, w));
    struct uop *dim[6] = {x->dim[0], x->dim[1],      w->dim[2],
                          w->dim[3], offset->dim[2], offset->dim[3]};
    struct sampler s = {
        .n = n, .x = x, .dim = dim, .ndim = 6, .mode = SAMPLE_LINEAR, .padding = SAMPLE_ZEROS};
    s.batch = along(n, dim, 6, 0);
    s.channel = along(n, dim, 6, 1);
    for (int i = 0; i < 2; i++) {
        struct uop *base = lib_add(l,
                                   lib_binaryf(l, OP_MUL, along(n, dim, 6, 4 + i),
                                               (double)(a.stride[i] ? a.stride[i] : 1)),
                                   lib_binaryf(l, OP_MUL, along(n, dim, 6, 2 + i),
                                               (double)(a.dilation[i] ? a.dilation[i] : 1)));
        if (a.lo[i] && base)
            base = lib_sub(l, base, a.lo[i]);
        struct uop *shift = per_offset_channel(n, 2, dim, groups, 2, i);
        enum dtype d = lib_acc_dtype(x->dtype);
        if (!(coord[i] = lib_add(l, lib_cast(l, d, base), lib_cast(l, d, shift))))
            return false;
    }
    struct uop *v = sample(&s, coord);
    if (v && n->in[4])
        v = lib_mul(l, v, lib_cast(l, v->dtype, per_offset_channel(n, 4, dim, groups, 1, 0)));
    if (!v)
        return false;
    struct uop *g = uop_int(t, a.group),
               *split[7] = {dim[0], g, w->dim[1], dim[2], dim[3], dim[4], dim[5]};
    struct uop *rows[5] = {g, uop_int(t, outputs / a.group), w->dim[1], w->dim[2], w->dim[3]},
               *out[4] = {dim[0], w->dim[0], dim[4], dim[5]};
    v = lib_einsum(l, "ngcklxy,gmckl->ngmxy",
                   (struct uop *[]){uop_reshape(t, v, split, 7),
                                    lib_cast(l, v->dtype, uop_reshape(t, w, rows, 5))},
                   2);
    v = lib_reshape(l, v, out, 4);
    if (n->in[3] && v) {
        struct uop *bias[3] = {w->dim[0], uop_int(t, 1), uop_int(t, 1)};
        v = lib_add(l, v, lib_cast(l, v->dtype, lib_reshape(l, n->in[3], bias, 3)));
    }
    return node_set(n, 0, lib_cast(l, x->dtype, v));
}

/* --------------------------------------------------------------------------------------- Col2Im */

/* x [n, c * block, places]: adds each block's elements at the block's place in the image. */
bool lower_col2im(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *x = n->in[0], **image, *dim[MAX_RANK], *out[MAX_RANK], *index[MAX_RANK];
    struct uop **block;
    int r, nblock;
    if (!node_rank(n, 0, 3, 3) || !node_symbols(n, 1, &image, &r) ||
        !node_integers(n, 2, &block, &nblock))
        return false;
    if (r != nblock || r < 1 || 2 + 2 * r > MAX_RANK)
        return node_error(n, 2, "image_shape has %d elements, block_shape %d", r, nblock);
    const int64_t *stride, *dilation, *pad;
    int nstride = node_ints(n, "strides", &stride),
        ndilation = node_ints(n, "dilations", &dilation), npad = node_ints(n, "pads", &pad);
    if ((nstride >= 0 && nstride != r) || (ndilation >= 0 && ndilation != r) ||
        (npad >= 0 && npad != 2 * r))
        return node_error(n, -1, "strides, dilations and pads must go with %d axes", r);
    struct uop *elements = uop_int(t, 1), *places = uop_int(t, 1);
    for (int a = 0; a < r; a++) {
        int64_t s = nstride < 0 ? 1 : stride[a], d = ndilation < 0 ? 1 : dilation[a],
                lo = npad < 0 ? 0 : pad[a], hi = npad < 0 ? 0 : pad[r + a];
        if (s < 1 || d < 1 || s > INT32_MAX || d > INT32_MAX || lo < 0 || hi < 0 ||
            lo > INT32_MAX || hi > INT32_MAX)
            return node_error(n, -1, "strides and dilations must be positive, pads not negative");
        struct uop *padded = sym_addi(t, image[a], lo + hi);
        if (!(block[a] = node_symbol(n, 2, block[a], node_input_name(n, 2, a, r), 1, padded)))
            return false;
        if (block[a]->vmin < 1)
            return node_error(n, 2, "block_shape must be positive");
        elements = sym_mul(t, elements, block[a]);
        out[2 + a] = image[a];
        dim[2 + a] = block[a];
        struct uop *room =
            sym_addi(t, sym_sub(t, padded, sym_muli(t, sym_addi(t, block[a], -1), d)), -1);
        dim[2 + r + a] = sym_addi(t, sym_div(t, room, uop_int(t, s)), 1);
        places = sym_mul(t, places, dim[2 + r + a]);
    }
    out[0] = dim[0] = x->dim[0];
    out[1] = dim[1] = sym_div(t, x->dim[1], elements);
    bool fixed = elements->op == OP_CONST;
    if (!fixed) { /* at most as many as there are, whatever the run says */
        if (!node_require(n, 2, uop_binary(t, OP_EQ, sym_mul(t, dim[1], elements), x->dim[1]),
                          "block_shape does not go with the input") ||
            !node_require(n, 2, uop_binary(t, OP_EQ, places, x->dim[2]),
                          "block_shape does not go with the input"))
            return false;
        struct uop *left = x->dim[2];
        for (int a = 0; a < r; a++) {
            dim[2 + r + a] = sym_max(t, sym_min(t, dim[2 + r + a], left), uop_int(t, 0));
            left = sym_div(t, left, dim[2 + r + a]);
        }
    }
    struct uop *v = fixed ? lib_reshape(l, x, dim, 2 + 2 * r) : uop_reshape(t, x, dim, 2 + 2 * r);
    if (!v)
        return false;
    index[0] = tensor_iota(t, dim, v->ndim, 0);
    index[1] = tensor_iota(t, dim, v->ndim, 1);
    for (int a = 0; a < r; a++) {
        struct uop *place = lib_binaryf(l, OP_MUL, tensor_iota(t, dim, v->ndim, 2 + r + a),
                                        (double)(nstride < 0 ? 1 : stride[a]));
        struct uop *within = lib_binaryf(l, OP_MUL, tensor_iota(t, dim, v->ndim, 2 + a),
                                         (double)(ndilation < 0 ? 1 : dilation[a]));
        index[2 + a] =
            lib_binaryf(l, OP_SUB, lib_add(l, place, within), (double)(npad < 0 ? 0 : pad[a]));
        if (!index[2 + a])
            return false;
    }
    struct uop *zeros = tensor_full(t, uop_consti(t, x->dtype, 0), out, 2 + r);
    return node_set(n, 0, uop_scatter(t, OP_ADD, zeros, v, index));
}

/* A host step: u8[size] -> u8[height, width, channels], as large as the model or an option says. */
bool lower_image_decoder(struct node *n)
{
    static const char *const formats[] = {"RGB", "BGR", "Grayscale"};
    enum { IMAGE_TABLES = 2144 };        /* sizeof (struct image_tables) of runtime/host/image.c */
    struct tgc *t = n->t;
    const char *format = node_string(n, "pixel_format", "RGB");
    int64_t order = 0, most[2];
    struct uop *x = n->in[0], *dim[3], *param[7], *room;
    struct var *size[2];
    while (order < 3 && strcmp(format, formats[order]))
        order++;
    if (order == 3)
        return node_error(n, -1, "pixel_format must be RGB, BGR or Grayscale, found '%s'", format);
    if (x->dtype != DTYPE_U8 || !node_rank(n, 0, 1, 1))
        return node_error(n, 0, "the bytes of a file are expected, u8[size], found %s",
                          shape_text(n, x));
    for (int a = 0; a < 2; a++) {
        most[a] = node_bound(n, 0, a, INT64_MAX);
        if (most[a] < 0 || most[a] > INT32_MAX ||
            !(size[a] = node_count_symbol(n, node_output_dim_name(n, 0, a), most[a])))
            return most[a] <= INT32_MAX
                       ? false
                       : node_error(n, -1, "images of at most %d pixels a side are decoded",
                                    INT32_MAX);
        dim[a] = size[a]->min == size[a]->max ? uop_int(t, size[a]->min) : uop_var(t, size[a]);
    }
    dim[2] = uop_int(t, order == 2 ? 1 : 3);
    /* the codes of a PNG, and its bytes of 4 samples of 16 bits, its rows' filters, those of its
     * passes included */
    room =
        uop_int(t, sat_add(IMAGE_TABLES, sat_mul(most[0] + 8, sat_add(sat_mul(most[1], 8), 16))));
    param[0] = x->dim[0];
    param[1] = uop_int(t, order);
    for (int a = 0; a < 2; a++) {
        param[2 + 2 * a] = uop_int(t, size[a]->min);
        param[3 + 2 * a] = uop_int(t, size[a]->max);
    }
    param[6] = room;
    struct host_output out[2] = {{.dtype = DTYPE_U8, .ndim = 3, .dim = {dim[0], dim[1], dim[2]}},
                                 {.dtype = DTYPE_U8, .ndim = 1, .dim = {room}}};
    struct uop *call = lib_host(&n->lib, "image_decode", &x, 1, out, 2, param, 7, size, 2);
    if (call)
        lower_add_host(n->lower, call);
    return node_set(n, 0, lib_get(&n->lib, call, 0));
}
