/* library_resize.c - resize. source: ONNX Resize 19, whose reference implementation names the
 * corner cases.
 *
 *      y[o] = sum over taps t of weight[o, t] * x[clamp(base[o] + t)]
 *
 * for every resized axis at once: one INDEX, one product, one REDUCE(ADD). base and weight are
 * small tables, made at compile time where the sizes are known (lib_fold) and once a run otherwise.
 * Nearest neighbour by a whole factor is an EXPAND.
 */
#include "frontend/library.h"

#include <math.h>

/* One resized axis. */
struct resized {
    int axis, ntap, first;               /* taps base + first .. base + first + ntap - 1 */
    struct uop *in, *out;
    struct uop *at;                      /* f64 [out]: where in the input */
    struct uop *index;                   /* i64 [out] or [out, ntap] */
    struct uop *weight;                  /* acc [out, ntap] */
    struct uop *outside;                 /* bool [out], tf_crop_and_resize */
};

struct uop *lib_scaled_dim(const struct lib *l, struct uop *dim, double scale)
{
    int64_t n;
    if (!dim)
        return NULL;
    if (!(scale > 0) || scale > INT32_MAX)
        return lib_error(l, "resize: scale %g; it must be positive", scale);
    if (uop_const_int(dim, &n))     /* the product is one of f32: 5 * 2.6f is 13 */
        return uop_int(l->t, (int64_t)floorf((float)n * (float)scale));
    int64_t q = 1;                                    /* scale = p / q: a binary fraction */
    while (q < (int64_t)1 << 30 && floor(scale * (double)q) != scale * (double)q)
        q *= 2;
    return sym_div(l->t, sym_muli(l->t, dim, (int64_t)floor(scale * (double)q)), uop_int(l->t, q));
}

static struct uop *f64(const struct lib *l, double v) { return uop_constf(l->t, DTYPE_F64, v); }

/* Nearest rounds coordinates to pixels, so rounding errors decide: they are those of f32 in the
 * order of ONNX Runtime's sums. 1 / (2/3) is 1.5 there, less in f64. */
static struct uop *as_f32(const struct lib *l, const struct resize_attr *a, struct uop *x)
{
    return a->mode == RESIZE_NEAREST ? lib_cast(l, DTYPE_F64, lib_cast(l, DTYPE_F32, x)) : x;
}

static struct uop *step(const struct lib *l, const struct resize_attr *a, enum op op,
                        struct uop *x, struct uop *y)
{
    return as_f32(l, a, lib_binary(l, op, x, y));
}

/* The scale as f64 scalar, the stated one or what the sizes make. */
static struct uop *scale_of(const struct lib *l, const struct resize_attr *a,
                            const struct resized *r)
{
    if (a->scale_at_run[r->axis])
        return a->scale_at_run[r->axis];
    if (a->scale[r->axis] != 0)
        return f64(l, a->scale[r->axis]);
    return step(l, a, OP_DIV, lib_float_of(l, DTYPE_F64, r->out),
                lib_float_of(l, DTYPE_F64, r->in));
}

/* source: ONNX Resize, coordinate_transformation_mode */
static struct uop *coordinates(const struct lib *l, const struct resize_attr *a,
                               const struct resized *r)
{
    struct uop *o = uop_cast(l->t, DTYPE_F64, uop_iota(l->t, r->out)), *zero = f64(l, 0),
               *one = f64(l, 1);
    struct uop *in = lib_float_of(l, DTYPE_F64, r->in), *out = lib_float_of(l, DTYPE_F64, r->out),
               *scale = scale_of(l, a, r);
    struct uop *center = step(l, a, OP_DIV, lib_binaryf(l, OP_ADD, o, 0.5), scale),
               *half = step(l, a, OP_SUB, center, f64(l, 0.5));
    struct uop *single = uop_binary(l->t, OP_EQ, out, one);
    struct uop *gaps = lib_where(l, single, one, lib_sub(l, out, one)),
               *span = lib_sub(l, in, one);
    switch (a->coordinates) {
    case RESIZE_HALF_PIXEL: return half;
    case RESIZE_HALF_PIXEL_SYMMETRIC: {
        struct uop *adjust = step(l, a, OP_DIV, out, step(l, a, OP_MUL, in, scale));
        adjust = step(l, a, OP_SUB, one, adjust);
        struct uop *offset = step(l, a, OP_MUL, lib_binaryf(l, OP_MUL, in, 0.5), adjust);
        struct uop *wide = lib_div(l, lib_binaryf(l, OP_ADD, o, 0.5), scale);
        return as_f32(l, a, lib_binaryf(l, OP_SUB, lib_add(l, offset, wide), 0.5));
    }
    case RESIZE_PYTORCH_HALF_PIXEL: return lib_where(l, single, zero, half);
    case RESIZE_ALIGN_CORNERS:
        return lib_where(l, single, zero,
                         step(l, a, OP_DIV, step(l, a, OP_MUL, o, span), gaps));
    case RESIZE_ASYMMETRIC: return step(l, a, OP_DIV, o, scale);
    case RESIZE_TF_HALF_PIXEL: return center;
    case RESIZE_TF_CROP: {
        struct uop *lo = a->roi_at_run[0][r->axis], *hi = a->roi_at_run[1][r->axis];
        lo = lo ? lo : f64(l, a->roi_lo[r->axis]);
        hi = hi ? hi : f64(l, a->roi_hi[r->axis]);
        struct uop *way = step(l, a, OP_MUL, o, step(l, a, OP_SUB, hi, lo));
        way = step(l, a, OP_DIV, step(l, a, OP_MUL, way, span), gaps);
        struct uop *many = step(l, a, OP_ADD, step(l, a, OP_MUL, lo, span), way);
        struct uop *middle = lib_binaryf(l, OP_MUL, lib_add(l, lo, hi), 0.5);
        return lib_where(l, single, lib_mul(l, span, middle), many);
    }
    }
    return NULL;
}

static struct uop *clamp_index(const struct lib *l, struct uop *i, struct uop *n)
{
    return lib_binary(l, OP_MIN, lib_binary(l, OP_MAX, i, uop_int(l->t, 0)), sym_addi(l->t, n, -1));
}

static void nearest_table(const struct lib *l, const struct resize_attr *a, struct resized *r)
{
    const double half = 0.5 + 1e-6; /* what is so near to the middle is a tie in ONNX Runtime */
    struct uop *v = r->at;
    switch (a->rounding) {
    case RESIZE_ROUND_PREFER_FLOOR:
        v = lib_unary(l, OP_CEIL, lib_binaryf(l, OP_SUB, v, half));
        break;
    case RESIZE_ROUND_PREFER_CEIL:
        v = lib_unary(l, OP_FLOOR, lib_binaryf(l, OP_ADD, v, half));
        break;
    case RESIZE_FLOOR: v = lib_unary(l, OP_FLOOR, v); break;
    case RESIZE_CEIL: v = lib_unary(l, OP_CEIL, v); break;
    case RESIZE_CEIL_IF_SMALLER:
        v = lib_where(l, lib_binaryf(l, OP_LT, scale_of(l, a, r), 1), lib_unary(l, OP_CEIL, v),
                      lib_unary(l, OP_FLOOR, v));
        break;
    }
    r->index = clamp_index(l, lib_cast(l, DTYPE_I64, v), r->in);
}

/* source: Keys 1981, with the free parameter a */
static struct uop *cubic(const struct lib *l, struct uop *d, double a)
{
    struct uop *x = lib_unary(l, OP_ABS, d);
    struct uop *near = lib_binaryf(l, OP_SUB, lib_binaryf(l, OP_MUL, x, a + 2), a + 3);
    near = lib_binaryf(l, OP_ADD, lib_mul(l, lib_mul(l, near, x), x), 1);
    struct uop *far = lib_binaryf(l, OP_SUB, lib_binaryf(l, OP_MUL, x, a), 5 * a);
    far = lib_binaryf(l, OP_ADD, lib_mul(l, far, x), 8 * a);
    far = lib_binaryf(l, OP_SUB, lib_mul(l, far, x), 4 * a);
    struct uop *zero = lib_scalar(l, x, 0);
    struct uop *outer = lib_where(l, lib_binaryf(l, OP_LT, x, 2), far, zero);
    return lib_where(l, uop_binary(l->t, OP_LT, lib_scalar(l, x, 1), x), outer, near);
}

/* Beyond the border every tap reads the same pixel. Weights that sum to 1 only up to rounding would
 * change its value: equal results would differ. */
static struct uop *within_borders(const struct lib *l, const struct resize_attr *a,
                                  const struct resized *r)
{
    if (a->mode == RESIZE_CUBIC || a->antialias || a->exclude_outside)
        return r->at;
    struct uop *last = lib_float_of(l, DTYPE_F64, sym_addi(l->t, r->in, -1));
    return lib_binary(l, OP_MIN, lib_binaryf(l, OP_MAX, r->at, 0), last);
}

/* The index and weight of each tap. The base is the pixel to the left, or the one before if the
 * coordinate is an integer. */
static bool filter_table(const struct lib *l, const struct resize_attr *a, enum dtype acc,
                         struct resized *r)
{
    struct tgc *t = l->t;
    int reach = a->mode == RESIZE_CUBIC ? 2 : 1;
    double shrink = 1;                               /* less or equal: the reach of the filter */
    struct uop *narrow = f64(l, 1);
    if (a->antialias) {
        struct uop *scale = scale_of(l, a, r);
        int64_t in, out;
        narrow = lib_binaryf(l, OP_MIN, scale, 1);
        if (scale->op == OP_CONST)
            shrink = narrow->arg.f;
        else if (uop_const_int(r->in, &in) && uop_const_int(r->out, &out) && in > out)
            shrink = (double)out / (double)in;       /* a size is the product, rounded down */
        else if (!uop_const_int(r->in, &in) || !uop_const_int(r->out, &out))
            return lib_error(l, "resize: antialias needs sizes known at compile time");
    }
    if (!(reach / shrink < 4096))
        return lib_error(l, "resize: antialias with a scale of %g is not supported", shrink);
    r->first = (int)floor(-reach / shrink) + 1;
    r->ntap = 2 - 2 * r->first;
    struct uop *dim[2] = {r->out, uop_int(t, r->ntap)}, *column[2] = {r->out, uop_int(t, 1)};
    struct uop *at = within_borders(l, a, r);
    struct uop *base = lib_binaryf(l, OP_SUB, lib_unary(l, OP_CEIL, at), 1),
               *ratio = lib_sub(l, at, base);
    struct uop *tap = uop_binary(t, OP_ADD, tensor_iota(t, dim, 2, 1), uop_int(t, r->first));
    struct uop *distance = lib_sub(l, uop_cast(t, DTYPE_F64, tap),
                                   uop_reshape(t, ratio, column, 2));
    struct uop *place = lib_add(l, uop_reshape(t, uop_cast(t, DTYPE_I64, base), column, 2), tap),
               *w;
    distance = lib_mul(l, distance, narrow);
    if (a->mode == RESIZE_CUBIC)
        w = cubic(l, distance, a->cubic_a != 0 ? a->cubic_a : -0.75);
    else
        w = lib_binaryf(l, OP_MAX, lib_sub(l, f64(l, 1), lib_unary(l, OP_ABS, distance)), 0);
    if (a->exclude_outside) {
        struct uop *before = uop_binary(t, OP_LT, place, uop_int(t, 0)),
                   *behind = uop_binary(t, OP_LT, sym_addi(t, r->in, -1), place);
        w = lib_where(l, uop_binary(t, OP_OR, before, behind), f64(l, 0), w);
    }
    if (a->exclude_outside || a->antialias)
        w = lib_div(l, w, tensor_sum(t, w, 2, true));
    /* A tap of weight 0 would propagate NaN and infinity: it reads the pixel to the right, or the
     * pixel itself if the coordinate is an integer, whose weight is 0 only if all are. */
    struct uop *right =
        uop_reshape(t, uop_cast(t, DTYPE_I64, lib_unary(l, OP_CEIL, at)), column, 2);
    place = lib_where(l, lib_binaryf(l, OP_EQ, w, 0), right, place);
    r->index = clamp_index(l, place, r->in);
    r->weight = lib_cast(l, acc, w);
    return r->index && r->weight;
}

/* Nearest neighbour by an integer factor repeats every element: source and size say so exactly, for
 * any size. */
static bool repeats_elements(const struct lib *l, const struct resize_attr *a, const struct uop *x,
                             int axis, int64_t *factor)
{
    bool centered = (a->coordinates == RESIZE_HALF_PIXEL ||
                     a->coordinates == RESIZE_HALF_PIXEL_SYMMETRIC) &&
                    (a->rounding == RESIZE_ROUND_PREFER_FLOOR ||
                     a->rounding == RESIZE_ROUND_PREFER_CEIL);
    bool cornered = a->coordinates == RESIZE_ASYMMETRIC &&
                    (a->rounding == RESIZE_FLOOR || a->rounding == RESIZE_CEIL_IF_SMALLER);
    double s = a->scale[axis];
    int64_t in, out;
    if (a->mode != RESIZE_NEAREST || !(centered || cornered) || a->scale_at_run[axis])
        return false;
    if (s == 0 && uop_const_int(x->dim[axis], &in) && uop_const_int(a->size[axis], &out) &&
        in > 0 && out % in == 0)
        s = (double)(out / in);
    if (!(s >= 1 && s < 1 << 20) || floor(s) != s)
        return false;
    *factor = (int64_t)s;
    return sym_equal(l->t, sym_muli(l->t, x->dim[axis], *factor), a->size[axis]);
}

/* [.., n, ..] -> [.., n * factor, ..] */
static struct uop *repeat_elements(const struct lib *l, struct uop *x, int axis, int64_t factor)
{
    struct uop *dim[MAX_RANK];
    struct uop *u = tensor_insert_axis(l->t, x, axis + 1);
    for (int a = 0; a < u->ndim; a++)
        dim[a] = a == axis + 1 ? uop_int(l->t, factor) : u->dim[a];
    u = uop_expand(l->t, u, dim);
    for (int a = 0; a < x->ndim; a++)
        dim[a] = a == axis ? sym_muli(l->t, x->dim[a], factor) : x->dim[a];
    return uop_reshape(l->t, u, dim, x->ndim);
}

static struct uop *table(const struct lib *l, struct uop *x)
{
    struct uop *f = lib_fold(l, x);
    return f == x ? lib_contiguous(l, x) : f;
}

/* A table [out] or [out, ntap] as a tensor of rank ndim: axis of out, axis of the taps. */
static struct uop *spread(const struct lib *l, struct uop *x, int ndim, int out, int tap)
{
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < ndim; a++)
        dim[a] = a == out ? x->dim[0] : a == tap && x->ndim == 2 ? x->dim[1] : uop_int(l->t, 1);
    return uop_reshape(l->t, x, dim, ndim);
}

static struct uop *apply(const struct lib *l, struct uop *x, struct resized *r, int n,
                         enum dtype acc, bool filter)
{
    struct tgc *t = l->t;
    struct uop *dim[MAX_RANK], *index[MAX_RANK], *weight = NULL;
    struct text names = {.t = t};
    int ndim = x->ndim + (filter ? n : 0);
    for (int a = 0; a < x->ndim; a++) {
        dim[a] = x->dim[a];
        text_printf(&names, "%si%d", a ? " " : "", a);
    }
    for (int i = 0; i < n; i++) {
        dim[r[i].axis] = r[i].out;
        if (filter) {
            dim[x->ndim + i] = uop_int(t, r[i].ntap);
            text_printf(&names, " t%d", i);
        }
    }
    for (int a = 0, i = 0; a < x->ndim; a++) {
        if (i == n || r[i].axis != a) {
            index[a] = tensor_iota(t, dim, ndim, a);
            continue;
        }
        index[a] = uop_expand(t, spread(l, table(l, r[i].index), ndim, a, x->ndim + i), dim);
        if (filter) {
            struct uop *w = spread(l, table(l, r[i].weight), ndim, a, x->ndim + i);
            weight = weight ? lib_mul(l, weight, w) : w;
        }
        i++;
    }
    struct uop *u = uop_index(t, x, index);
    if (!filter)
        return u;
    u = lib_mul(l, uop_cast(t, acc, u), weight);
    uop_name_axes(t, u, names.s);
    return uop_cast(t, x->dtype, tensor_sum(t, u, lib_all_axes(u) & ~lib_all_axes(x), false));
}

/* tf_crop_and_resize: coordinates outside the input give a constant. */
static struct uop *extrapolate(const struct lib *l, struct uop *y, const struct resized *r, int n,
                               double value)
{
    for (int i = 0; i < n && y; i++)
        y = lib_where(l, spread(l, r[i].outside, y->ndim, r[i].axis, -1), lib_scalar(l, y, value),
                      y);
    return y;
}

struct uop *lib_resize(const struct lib *l, struct uop *x, const struct resize_attr *a)
{
    struct resized r[MAX_RANK];
    int n = 0;
    int64_t factor;
    if (!x)
        return NULL;
    if (a->mode != RESIZE_NEAREST && !dtype_is_float(x->dtype) && !dtype_is_int(x->dtype))
        return lib_error(l, "resize: there is nothing between the elements of %s; nearest mode "
                            "takes them", lib_describe(l, x));
    if (a->coordinates == RESIZE_TF_CROP && x->dtype == DTYPE_STRING)
        return lib_error(l, "resize: %s has no extrapolation_value", lib_describe(l, x));
    enum dtype acc = dtype_is_float(x->dtype) ? lib_acc_dtype(x->dtype) : DTYPE_F32;
    bool filter = a->mode != RESIZE_NEAREST;
    for (int k = 0; k < x->ndim; k++) {
        if (!a->size[k] || a->size[k]->vmax < 0)
            return lib_error(l, "resize: no size for axis %d of %s", k, lib_describe(l, x));
        bool same = sym_equal(l->t, a->size[k], x->dim[k]) && !a->scale_at_run[k] &&
                    (a->scale[k] == 0 || a->scale[k] == 1);
        if (same && a->coordinates != RESIZE_TF_CROP)
            continue;
        if (repeats_elements(l, a, x, k, &factor) && x->ndim < MAX_RANK) {
            x = repeat_elements(l, x, k, factor);
            continue;
        }
        if (uop_is_int(x->dim[k], 0))
            return lib_error(l, "resize: axis %d of %s is empty", k, lib_describe(l, x));
        r[n] = (struct resized){.axis = k, .in = x->dim[k], .out = a->size[k]};
        if (!(r[n].at = coordinates(l, a, &r[n])))
            return NULL;
        if (a->coordinates == RESIZE_TF_CROP) {
            struct uop *last = lib_float_of(l, DTYPE_F64, sym_addi(l->t, x->dim[k], -1));
            r[n].outside = uop_binary(l->t, OP_OR, lib_binaryf(l, OP_LT, r[n].at, 0),
                                      uop_binary(l->t, OP_LT, last, r[n].at));
        }
        if (!filter)
            nearest_table(l, a, &r[n]);
        else if (!filter_table(l, a, acc, &r[n]))
            return NULL;
        n++;
    }
    if (!n)
        return x;
    if (filter && x->ndim + n > MAX_RANK)
        return lib_error(l, "resize: %d axes of %s at once are not supported", n,
                         lib_describe(l, x));
    struct uop *y = apply(l, x, r, n, acc, filter);
    return a->coordinates == RESIZE_TF_CROP ? extrapolate(l, y, r, n, a->extrapolation) : y;
}
