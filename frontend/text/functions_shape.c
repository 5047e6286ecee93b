/* functions_shape.c - the library's movement, indexing and creation as functions of the text
 * format. */
#include "frontend/text/reader.h"

#include <math.h>
#include <string.h>

/* ---- movement */

static void run_flatten(struct call *c)
{
    int64_t axis = attr_int(c, "axis", 1);
    call_result(c, lib_flatten(c->l, call_arg(c, 0), axis));
}

static void run_transpose(struct call *c)
{
    int64_t perm[MAX_RANK];
    int n = attr_ints(c, "perm", perm, MAX_RANK);
    if (!c->failed)
        call_result(c, lib_permute(c->l, call_arg(c, 0), n < 0 ? NULL : perm, n));
}

static void run_squeeze(struct call *c)
{
    struct uop *x = call_arg(c, 0);
    uint32_t axes = attr_axes(c, "axes", x);
    if (!attr_given(c, "axes"))
        for (int a = 0; x && a < x->ndim; a++)
            axes &= uop_is_int(x->dim[a], 1) ? ~0u : ~(1u << a);
    if (!c->failed)
        call_result(c, lib_squeeze(c->l, x, axes));
}

static void run_unsqueeze(struct call *c)
{
    int64_t axis[MAX_RANK];
    int n = attr_required(c, "axes") ? attr_ints(c, "axes", axis, MAX_RANK) : -1;
    if (!c->failed)
        call_result(c, lib_unsqueeze(c->l, call_arg(c, 0), axis, n));
}

static void run_slice(struct call *c)
{
    int64_t axis = attr_required(c, "axis") ? attr_int(c, "axis", 0) : 0,
            step = attr_int(c, "step", 1);
    struct uop *start = attr_dim(c, "start"), *end = attr_dim(c, "end");
    if (!c->failed)
        call_result(c, lib_slice(c->l, call_arg(c, 0), axis, start, end, step));
}

/* Into as many parts as there are results, or by sizes. */
static void run_split(struct call *c)
{
    struct uop *x = call_arg(c, 0), *size[MAX_RESULTS], *begin = uop_int(c->r->t, 0);
    int64_t axis = attr_int(c, "axis", 0), total;
    int n = attr_dims(c, "sizes", size, MAX_RESULTS), a;
    if (c->failed || !x || !lib_axis(c->l, axis, x->ndim, &a)) {
        c->failed = true;
        return;
    }
    if (n < 0) {
        n = c->nwanted;
        if (!uop_const_int(x->dim[a], &total) || total % n) {
            call_fail(c, "axis %d of %s cannot be split into %d equal parts; give 'sizes'", a,
                      lib_describe(c->l, x), n);
            return;
        }
        for (int i = 0; i < n; i++)
            size[i] = uop_int(c->r->t, total / n);
    }
    struct uop *sum = begin;
    for (int i = 0; i < n; i++)
        sum = sym_add(c->r->t, sum, size[i]);
    if (!sym_equal(c->r->t, sum, x->dim[a])) {
        call_fail(c, "the sizes do not add up to axis %d of %s", a, lib_describe(c->l, x));
        return;
    }
    for (int i = 0; i < n; i++) {
        call_result(c, lib_narrow(c->l, x, a, begin, size[i]));
        begin = sym_add(c->r->t, begin, size[i]);
    }
}

static void run_tile(struct call *c)
{
    struct uop *repeat[MAX_RANK];
    int n = attr_required(c, "repeats") ? attr_dims(c, "repeats", repeat, MAX_RANK) : -1;
    if (!c->failed)
        call_result(c, lib_tile(c->l, call_arg(c, 0), repeat, n));
}

static void run_pad_like(struct call *c)
{
    struct uop *x = call_arg(c, 0), *lo[MAX_RANK], *hi[MAX_RANK];
    int nlo = attr_required(c, "lo") ? attr_dims(c, "lo", lo, MAX_RANK) : 0,
        nhi = attr_required(c, "hi") ? attr_dims(c, "hi", hi, MAX_RANK) : 0;
    enum pad_mode mode = !strcmp(c->name, "pad_reflect") ? PAD_MODE_REFLECT
                         : !strcmp(c->name, "pad_edge")  ? PAD_MODE_EDGE
                                                         : PAD_MODE_WRAP;
    if (!c->failed && x && (nlo != x->ndim || nhi != x->ndim))
        call_fail(c, "'lo' and 'hi' need one entry for each axis");
    if (!c->failed)
        call_result(c, lib_pad(c->l, x, mode, NULL, lo, hi));
}

static void run_depth(struct call *c)
{
    static const char *const modes[] = {"dcr", "crd", NULL};
    int64_t block = attr_required(c, "block") ? attr_int(c, "block", 1) : 1;
    bool to_space = c->name[0] == 'd';
    bool crd = to_space && attr_choice(c, "mode", modes, 0) == 1;
    if (!c->failed)
        call_result(c, to_space ? lib_depth_to_space(c->l, call_arg(c, 0), block, crd)
                                : lib_space_to_depth(c->l, call_arg(c, 0), block));
}

static void run_trilu(struct call *c)
{
    int64_t k = attr_int(c, "k", 0);
    if (!c->failed)
        call_result(c, lib_trilu(c->l, call_arg(c, 0), uop_int(c->r->t, k), c->name[3] == 'u'));
}

static void run_clip(struct call *c)
{
    struct uop *x = call_arg(c, 0), *lo = NULL, *hi = NULL;
    if (x && attr_given(c, "min"))
        lo = uop_constf(c->r->t, x->dtype, attr_float(c, "min", 0));
    else
        lo = call_arg_like(c, 1, x);
    if (x && attr_given(c, "max"))
        hi = uop_constf(c->r->t, x->dtype, attr_float(c, "max", 0));
    else
        hi = call_arg_like(c, 2, x);
    if (!c->failed)
        call_result(c, lib_clip(c->l, x, lo, hi));
}

/* ---- gather, scatter */

static void run_gather(struct call *c)
{
    int64_t axis = attr_int(c, "axis", 0);
    if (!c->failed)
        call_result(c, !strcmp(c->name, "gather")
                           ? lib_gather(c->l, call_arg(c, 0), call_arg(c, 1), axis)
                           : lib_gather_elements(c->l, call_arg(c, 0), call_arg(c, 1), axis));
}

static void run_gather_nd(struct call *c)
{
    int64_t batch = attr_int(c, "batch_dims", 0);
    if (!c->failed)
        call_result(c, lib_gather_nd(c->l, call_arg(c, 0), call_arg(c, 1), batch));
}

static void run_scatter(struct call *c)
{
    static const char *const names[] = {"const", "add", "mul", "max", "min", NULL};
    static const enum op ops[] = {OP_CONST, OP_ADD, OP_MUL, OP_MAX, OP_MIN};
    struct uop *x = call_arg(c, 0), *indices = call_arg(c, 1), *updates = call_arg_like(c, 2, x);
    enum op op = ops[attr_choice(c, "op", names, 0)];
    bool elements = !strcmp(c->name, "scatter_elements");
    int64_t axis = elements ? attr_int(c, "axis", 0) : 0;
    if (!c->failed)
        call_result(c, elements ? lib_scatter_elements(c->l, op, x, indices, updates, axis)
                                : lib_scatter_nd(c->l, op, x, indices, updates));
}

static void run_one_hot(struct call *c)
{
    struct uop *depth = attr_required(c, "depth") ? attr_size(c, "depth") : NULL;
    int64_t axis = attr_int(c, "axis", -1);
    enum dtype d = attr_dtype(c, "dtype", DTYPE_F32);
    if (c->failed)
        return;
    struct uop *values = call_arg(c, 1);
    call_result(
        c,
        lib_one_hot(c->l, call_arg(c, 0), depth,
                    values ? values : uop_cast(c->r->t, d, uop_iota(c->r->t, uop_int(c->r->t, 2))),
                    axis));
}

/* ---- resize */

static void run_resize(struct call *c)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const coordinates[] = {"half_pixel",         "half_pixel_symmetric",
                                              "pytorch_half_pixel", "align_corners",
                                              "asymmetric",         NULL};
    static const char *const rounding[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                           "ceil", NULL};
    struct uop *x = call_arg(c, 0);
    struct resize_attr a = {.mode = (enum resize_mode)attr_choice(c, "mode", modes, 0)};
    a.coordinates = (enum resize_coordinates)attr_choice(c, "coordinates", coordinates, 0);
    a.rounding = (enum resize_rounding)attr_choice(c, "rounding", rounding, 0);
    a.cubic_a = attr_float(c, "cubic_a", 0);
    a.exclude_outside = attr_bool(c, "exclude_outside", false);
    a.antialias = attr_bool(c, "antialias", false);
    int n = attr_required(c, "size") ? attr_dims(c, "size", a.size, MAX_RANK) : -1;
    if (!c->failed && x && n != x->ndim)
        call_fail(c, "'size' needs one entry for each axis");
    for (int axis = 0; axis < n && !c->failed; axis++)
        if (a.size[axis]->vmax < 0)
            call_fail(c, "a negative size");
    if (!c->failed)
        call_result(c, lib_resize(c->l, x, &a));
}

/* ---- creation */

static int shape_attr(struct call *c, struct uop **dim)
{
    int n = attr_required(c, "shape") ? attr_dims(c, "shape", dim, MAX_RANK) : -1;
    for (int a = 0; a < n; a++)
        if (dim[a]->vmax < 0)
            call_fail(c, "a negative dimension");
    return c->failed ? -1 : n;
}

static void run_full(struct call *c)
{
    struct uop *dim[MAX_RANK];
    int n = shape_attr(c, dim);
    enum dtype d = attr_dtype(c, "dtype", DTYPE_F32);
    struct uop *v = c->name[0] == 'f' ? attr_constant(c, "value", d, 0)
                                      : uop_constf(c->r->t, d, c->name[0] == 'o');
    if (!c->failed)
        call_result(c, tensor_full(c->r->t, v, dim, n));
}

/* Integers, unless start or step is none, as NumPy's. */
static void run_arange(struct call *c)
{
    struct uop *n = attr_required(c, "n") ? attr_size(c, "n") : NULL;
    bool integral = attr_is_integral(c, "start") && attr_is_integral(c, "step");
    enum dtype d = attr_dtype(c, "dtype", integral ? DTYPE_I64 : DTYPE_F32);
    struct uop *start = attr_constant(c, "start", d, 0), *step = attr_constant(c, "step", d, 1);
    if (!c->failed)
        call_result(c, lib_arange(c->l, start, step, n));
}

static void run_eye(struct call *c)
{
    struct uop *rows = attr_required(c, "rows") ? attr_size(c, "rows") : NULL,
               *cols = attr_size(c, "cols");
    enum dtype d = attr_dtype(c, "dtype", DTYPE_F32);
    int64_t k = attr_int(c, "k", 0);
    if (!c->failed)
        call_result(c, lib_eye(c->l, d, rows, cols ? cols : rows, k));
}

static void run_random(struct call *c)
{
    struct uop *dim[MAX_RANK];
    int n = shape_attr(c, dim);
    enum dtype d = attr_dtype(c, "dtype", DTYPE_F32);
    uint64_t seed = attr_seed(c, "seed");
    bool normal = !strcmp(c->name, "randn") || !strcmp(c->name, "normal");
    double a = 0, b = 1;
    if (!strcmp(c->name, "uniform")) {
        a = attr_float(c, "low", 0);
        b = attr_float(c, "high", 1);
    } else if (!strcmp(c->name, "normal")) {
        a = attr_float(c, "mean", 0);
        b = attr_float(c, "std", 1);
    }
    if (!c->failed)
        call_result(c, normal ? lib_random_normal(c->l, d, seed, a, b, dim, n)
                              : lib_random_uniform(c->l, d, seed, a, b, dim, n));
}

/* clang-format off */
const struct function shape_functions[] = {
    {"flatten", "x", "axis=1", run_flatten},
    {"transpose", "x", "perm?", run_transpose},
    {"squeeze", "x", "axes?", run_squeeze},
    {"unsqueeze", "x", "axes", run_unsqueeze},
    {"slice", "x", "axis, start?, end?, step=1", run_slice},
    {"split", "x", "axis=0, sizes?", run_split},
    {"tile", "x", "repeats", run_tile},
    {"pad_reflect", "x", "lo, hi", run_pad_like},
    {"pad_edge", "x", "lo, hi", run_pad_like},
    {"pad_wrap", "x", "lo, hi", run_pad_like},
    {"depth_to_space", "x", "block, mode=dcr|crd", run_depth},
    {"space_to_depth", "x", "block", run_depth},
    {"tril", "x", "k=0", run_trilu},
    {"triu", "x", "k=0", run_trilu},
    {"clip", "x, low?, high?", "min?, max?", run_clip},
    {"gather", "x, indices", "axis=0", run_gather},
    {"gather_elements", "x, indices", "axis=0", run_gather},
    {"gather_nd", "x, indices", "batch_dims=0", run_gather_nd},
    {"scatter_elements", "x, indices, updates", "op=const|add|mul|max|min, axis=0", run_scatter},
    {"scatter_nd", "x, indices, updates", "op=const|add|mul|max|min", run_scatter},
    {"one_hot", "x, values?", "depth, axis=-1, dtype=f32", run_one_hot},
    {"resize", "x", "size, mode=nearest|linear|cubic, "
     "coordinates=half_pixel|half_pixel_symmetric|pytorch_half_pixel|align_corners|asymmetric, "
     "rounding=round_prefer_floor|round_prefer_ceil|floor|ceil, cubic_a=0, "
     "exclude_outside=false, antialias=false", run_resize},
    {"full", "", "shape, value=0, dtype=f32", run_full},
    {"zeros", "", "shape, dtype=f32", run_full},
    {"ones", "", "shape, dtype=f32", run_full},
    {"arange", "", "n, start=0, step=1, dtype?", run_arange},
    {"eye", "", "rows, cols?, k=0, dtype=f32", run_eye},
    {"rand", "", "shape, dtype=f32, seed=0", run_random},
    {"randn", "", "shape, dtype=f32, seed=0", run_random},
    {"uniform", "", "shape, low=0, high=1, dtype=f32, seed=0", run_random},
    {"normal", "", "shape, mean=0, std=1, dtype=f32, seed=0", run_random},
    {NULL, NULL, NULL, NULL},
};
/* clang-format on */
