/* lower_elementwise.c - operators that work element by element: arithmetic, comparison, logic,
 * casts, activations.
 *
 * Most rows of operators.def name the uop or the activation as their parameter and share a function
 * here. Before opset 7 the second operand of a binary operator broadcast only on request
 * (`broadcast`), and then from `axis` on instead of from the last axis.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "frontend/onnx/lower.h"

bool lower_unary(struct node *n)
{
    return node_set(n, 0, lib_unary(&n->lib, (enum op)n->operator->param, n->in[0]));
}

/* The second operand broadcast to the rank of the first. */
static struct uop *legacy_operand(const struct node *n)
{
    struct uop *a = n->in[0], *b = n->in[1], *dim[MAX_RANK];
    if (n->opset >= 7 || !node_has(n, "axis") || node_int(n, "broadcast", 0) == 0)
        return b;
    int axis;
    if (!node_axis(n, node_int(n, "axis", 0), a->ndim, &axis))
        return NULL;
    if (axis + b->ndim > a->ndim) {
        node_error(n, 1, "%s does not fit into %s from axis %d on", shape_text(n, b),
                   shape_text(n, a), axis);
        return NULL;
    }
    for (int i = 0; i < a->ndim - axis; i++)
        dim[i] = i < b->ndim ? b->dim[i] : uop_int(n->t, 1);
    return uop_reshape(n->t, b, dim, a->ndim - axis);
}

bool lower_binary(struct node *n)
{
    return node_set(n, 0,
                    lib_binary(&n->lib, (enum op)n->operator->param, n->in[0], legacy_operand(n)));
}

/* Greater, GreaterOrEqual, LessOrEqual: a > b is b < a; a >= b is (b < a) | (a == b), so that NaN
 * makes it false, and !(a < b) of integers. */
bool lower_compare(struct node *n)
{
    struct uop *a = n->in[0], *b = legacy_operand(n);
    bool less = !strncmp(n->operator->name, "Less", 4), equal = n->operator->param != 0;
    if (equal && dtype_is_int(a->dtype)) {
        struct uop *not = lib_binary(&n->lib, OP_LT, less ? b : a, less ? a : b);
        return node_set(n, 0, not ? uop_not(n->t, not) : NULL);
    }
    struct uop *r = lib_binary(&n->lib, OP_LT, less ? a : b, less ? b : a);
    if (equal && r)
        r = lib_binary(&n->lib, OP_OR, r, lib_binary(&n->lib, OP_EQ, a, b));
    return node_set(n, 0, r);
}

/* Max, Min, Sum, Mean: any number of inputs. */
bool lower_variadic(struct node *n)
{
    enum op op = (enum op)n->operator->param;
    struct uop *r = n->in[0];
    for (int k = 1; k < n->nin; k++) {
        if (!n->in[k])
            return node_error(n, k, "input %d is missing", k);
        if (!(r = lib_binary(&n->lib, op, r, n->in[k])))
            return false;
    }
    if (!strcmp(n->operator->name, "Mean"))
        r = lib_div(&n->lib, r, lib_scalar(&n->lib, r, n->nin));
    return node_set(n, 0, r);
}

/* The exponent may be of another type; the result has the base's. Integer powers of integers stay
 * integers. */
bool lower_pow(struct node *n)
{
    struct uop *a = n->in[0], *b = legacy_operand(n);
    enum dtype d = a->dtype, wide = d;
    if (!b)
        return false;
    if (dtype_is_int(d) && dtype_is_float(b->dtype))
        wide = b->dtype == DTYPE_F64 || dtype_bits(d) > 16 ? DTYPE_F64 : DTYPE_F32;
    struct uop *r =
        lib_binary(&n->lib, OP_POW, lib_cast(&n->lib, wide, a), lib_cast(&n->lib, wide, b));
    return node_set(n, 0, lib_cast(&n->lib, d, r));
}

bool lower_mod(struct node *n)
{
    bool fmod = node_int(n, "fmod", 0) != 0;
    if (!fmod && n->opset < 28 && dtype_is_float(n->in[0]->dtype))
        return node_error(n, 0, "floats need the attribute fmod=1 before opset 28");
    return node_set(n, 0, lib_binary(&n->lib, fmod ? OP_MOD : OP_FLOORMOD, n->in[0], n->in[1]));
}

bool lower_bitshift(struct node *n)
{
    const char *direction = node_string(n, "direction", "");
    bool left = !strcmp(direction, "LEFT");
    if (!left && strcmp(direction, "RIGHT"))
        return node_error(n, -1, "attribute 'direction' must be LEFT or RIGHT, found '%s'",
                          direction);
    struct uop *x = n->in[0], *by = n->in[1];
    struct uop *r = lib_binary(&n->lib, left ? OP_SHL : OP_SHR, x, by);
    if (r && by->vmin < 0 &&
        dtype_kind(by->dtype) == 'I') { /* a negative shift amount is beyond every width */
        struct uop *zero = uop_consti(n->t, x->dtype, 0), *gone = zero;
        if (!left && dtype_kind(x->dtype) == 'I')
            gone = lib_where(&n->lib, lib_binary(&n->lib, OP_LT, x, zero),
                             uop_consti(n->t, x->dtype, -1), zero);
        r = lib_where(&n->lib, lib_binary(&n->lib, OP_LT, by, uop_consti(n->t, by->dtype, 0)), gone,
                      r);
    }
    return node_set(n, 0, r);
}

bool lower_where(struct node *n)
{
    return node_set(n, 0, lib_where(&n->lib, n->in[0], n->in[1], n->in[2]));
}

bool lower_sign(struct node *n)
{
    struct uop *x = n->in[0], *zero = uop_consti(n->t, x->dtype, 0),
               *one = uop_consti(n->t, x->dtype, 1);
    if (dtype_kind(x->dtype) == 'U')
        return node_set(n, 0, lib_binary(&n->lib, OP_MIN, x, one));
    struct uop *negative =
        lib_where(&n->lib, lib_binary(&n->lib, OP_LT, x, zero), uop_consti(n->t, x->dtype, -1), x);
    return node_set(n, 0, lib_where(&n->lib, lib_binary(&n->lib, OP_LT, zero, x), one, negative));
}

bool lower_isinf(struct node *n)
{
    struct uop *x = n->in[0], *r = NULL;
    enum dtype d = lib_acc_dtype(x->dtype);
    x = lib_cast(&n->lib, d, x);
    if (node_int(n, "detect_positive", 1))
        r = lib_binary(&n->lib, OP_EQ, x, uop_constf(n->t, d, (double)INFINITY));
    if (node_int(n, "detect_negative", 1)) {
        struct uop *negative =
            lib_binary(&n->lib, OP_EQ, x, uop_constf(n->t, d, -(double)INFINITY));
        r = r ? lib_binary(&n->lib, OP_OR, r, negative) : negative;
    }
    return node_set(n, 0, r ? r : tensor_full(n->t, uop_bool(n->t, false), x->dim, x->ndim));
}

bool lower_clip(struct node *n)
{
    struct uop *x = n->in[0], *lo = n->in[1], *hi = n->in[2];
    if (n->opset < 11) { /* from opset 6 on the bounds' defaults are those of f32, not infinite */
        bool bounded = n->opset >= 6 && (x->dtype == DTYPE_F32 || x->dtype == DTYPE_F64);
        const char *const name[2] = {"min", "max"};
        struct uop **const bound[2] = {&lo, &hi};
        for (int i = 0; i < 2; i++)
            *bound[i] = bounded || node_has(n, name[i])
                            ? uop_constf(n->t, x->dtype,
                                         node_float(n, name[i], i ? FLT_MAX : -FLT_MAX))
                            : NULL;
    }
    return node_set(n, 0, lib_clip(&n->lib, x, lo, hi));
}

/* ---------------------------------------------------------------------------------------- casts */

static struct uop *bits_as(struct tgc *t, enum dtype d, struct uop *x)
{
    return x ? uop_new(t, OP_BITCAST, d, &x, 1, (union arg){0}) : NULL;
}

/* Values beyond the largest number become infinity, or NaN if the format has none. Chosen as bits,
 * since a conversion to these formats saturates. */
struct uop *cast_without_saturation(const struct node *n, enum dtype to, struct uop *x)
{
    static const struct {
        enum dtype to;
        double limit; /* the largest number and half a step; a tie goes to the even side */
        bool tie_fits;
        int infinity, nan;
    } formats[] = {
        {DTYPE_F8E4M3FN, 448 + 16, true, 0x7f, 0x7f},
        {DTYPE_F8E4M3FNUZ, 240 + 8, false, 0x80, 0x80},
        {DTYPE_F8E5M2, 57344 + 4096, false, 0x7c, 0x7f},
        {DTYPE_F8E5M2FNUZ, 57344 + 4096, false, 0x80, 0x80},
    };
    const struct lib *l = &n->lib;
    int f = 0;
    while (formats[f].to != to)
        f++;
    enum dtype d = lib_acc_dtype(x->dtype);
    struct uop *wide = lib_cast(l, d, x), *size = lib_unary(l, OP_ABS, wide);
    struct uop *fits = lib_binaryf(l, OP_LT, size, formats[f].limit);
    if (formats[f].tie_fits)
        fits = lib_binary(l, OP_OR, fits, lib_binaryf(l, OP_EQ, size, formats[f].limit));
    struct uop *beyond = uop_consti(n->t, DTYPE_U8, formats[f].infinity);
    struct uop *negative = uop_consti(n->t, DTYPE_U8, formats[f].infinity | 0x80);
    beyond = lib_where(l, lib_binaryf(l, OP_LT, wide, 0), negative, beyond);
    struct uop *nan = uop_consti(n->t, DTYPE_U8, formats[f].nan);
    beyond = lib_where(l, lib_unary(l, OP_ISNAN, wide), nan, beyond);
    struct uop *within = bits_as(n->t, DTYPE_U8, lib_cast(l, to, x));
    return bits_as(n->t, to, lib_where(l, fits, within, beyond));
}

/* To f8e8m0, the exponent of an f32, rounded as round_mode says; 255 is NaN. A tie goes up, but for
 * that of the smallest exponent. */
static struct uop *cast_to_exponent(const struct node *n, struct uop *x)
{
    const struct lib *l = &n->lib;
    const char *mode = node_string(n, "round_mode", "up");
    bool nearest = !strcmp(mode, "nearest"), up = !strcmp(mode, "up");
    if (!nearest && !up && strcmp(mode, "down")) {
        node_error(n, -1, "round_mode must be up, down or nearest, found '%s'", mode);
        return NULL;
    }
    struct uop *bits = bits_as(n->t, DTYPE_U32, lib_cast(l, DTYPE_F32, x));
    struct uop *e = lib_binaryf(l, OP_AND, lib_binaryf(l, OP_SHR, bits, 23), 0xff),
               *m = lib_binaryf(l, OP_AND, bits, 0x7fffff);
    struct uop *more = lib_binary(l, OP_LT, lib_scalar(l, m, nearest ? 0x400000 : 0), m);
    if (nearest)
        more = lib_binary(l, OP_OR, more,
                          lib_binary(l, OP_AND, lib_binaryf(l, OP_EQ, m, 0x400000),
                                     lib_binaryf(l, OP_NE, e, 0)));
    struct uop *most = lib_scalar(l, e, node_int(n, "saturate", 1) ? 0xfe : 0xff);
    more = lib_binary(l, OP_AND, more, lib_binary(l, OP_LT, e, most));
    if (nearest || up)
        e = lib_add(l, e, lib_cast(l, e->dtype, more));
    return bits_as(n->t, DTYPE_F8E8M0, lib_cast(l, DTYPE_U8, e));
}

static struct uop *cast_to(const struct node *n, enum dtype to, struct uop *x)
{
    if (to == DTYPE_VOID) {
        node_error(n, -1, "a cast to this type is not supported");
        return NULL;
    }
    if (to == DTYPE_STRING)
        return x->dtype == DTYPE_STRING ? x : node_to_string(n, x);
    if (x->dtype == DTYPE_STRING)
        x = node_from_string(n, dtype_is_f8(to) || dtype_bits(to) < 8 ? DTYPE_F32 : to, x);
    if (!x)
        return NULL;
    if (dtype_is_f8(to) && dtype_is_float(x->dtype) && !node_int(n, "saturate", 1))
        return cast_without_saturation(n, to, x);
    if (dtype_is_int(to) && dtype_bits(to) < 8 && dtype_is_float(x->dtype))
        x = lib_cast(&n->lib, DTYPE_I32, x); /* wraps, as in the specification's own reference */
    if (to == DTYPE_F8E8M0 && (strcmp(node_string(n, "round_mode", "up"), "up") ||
                               !node_int(n, "saturate", 1)))
        return cast_to_exponent(n, x);
    return lib_cast(&n->lib, to, x);
}

/* Before opset 6 `to` is the name of the type. */
bool lower_cast(struct node *n)
{
    if (n->opset >= 6)
        return node_set(n, 0, cast_to(n, node_dtype(n, "to", DTYPE_VOID), n->in[0]));
    static const struct {
        const char *name;
        enum dtype d;
    } names[] = {
        {"FLOAT", DTYPE_F32},   {"UINT8", DTYPE_U8},   {"INT8", DTYPE_I8},    {"UINT16", DTYPE_U16},
        {"INT16", DTYPE_I16},   {"INT32", DTYPE_I32},  {"INT64", DTYPE_I64},  {"BOOL", DTYPE_BOOL},
        {"FLOAT16", DTYPE_F16}, {"DOUBLE", DTYPE_F64}, {"UINT32", DTYPE_U32}, {"UINT64", DTYPE_U64},
        {"STRING", DTYPE_STRING},
    };
    const char *to = node_string(n, "to", "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(to, names[i].name))
            return node_set(n, 0, cast_to(n, names[i].d, n->in[0]));
    return node_error(n, -1, "a cast to '%s' is not supported", to);
}

bool lower_cast_like(struct node *n)
{
    return node_set(n, 0, cast_to(n, n->in[1]->dtype, n->in[0]));
}

bool lower_bitcast(struct node *n)
{
    enum dtype to = node_dtype(n, "to", DTYPE_VOID), from = n->in[0]->dtype;
    if (to == DTYPE_VOID || to == DTYPE_STRING || dtype_bits(to) != dtype_bits(from))
        return node_error(n, -1, "attribute 'to' must name a type of %d bits", dtype_bits(from));
    return node_set(
        n, 0, to == from ? n->in[0] : uop_new(n->t, OP_BITCAST, to, &n->in[0], 1, (union arg){0}));
}

/* ---------------------------------------------------------------------------------- activations */

/* alpha and beta where the operator has them; the defaults are the operator's, which
 * activations.def shares but for two. */
bool lower_activation(struct node *n)
{
    enum activation a = (enum activation)n->operator->param;
    const struct activation_info *info = lib_activation_info(a);
    double alpha = node_float(n, "alpha", info->alpha), beta = info->beta;
    if (a == ACTIVATION_SELU) {
        if (n->opset < 6) {
            alpha = node_float(n, "alpha", 1.6732);
            beta = 1.0507;
        }
        beta = node_float(n, "gamma", beta);
    } else {
        beta = node_float(n, "beta", beta);
    }
    return node_set(n, 0, lib_activate(&n->lib, a, n->in[0], alpha, beta));
}

bool lower_shrink(struct node *n)
{
    struct uop *x = n->in[0];
    enum dtype d = x->dtype, wide = dtype_is_float(d) ? d : DTYPE_F64;
    struct uop *r = lib_activate(&n->lib, ACTIVATION_SHRINK, lib_cast(&n->lib, wide, x),
                                 node_float(n, "lambd", 0.5), node_float(n, "bias", 0));
    return node_set(n, 0, lib_cast(&n->lib, d, r));
}

bool lower_gelu(struct node *n)
{
    const char *approximate = node_string(n, "approximate", "none");
    bool tanh = !strcmp(approximate, "tanh");
    if (!tanh && strcmp(approximate, "none"))
        return node_error(n, -1, "attribute 'approximate' must be 'none' or 'tanh', found '%s'",
                          approximate);
    return node_set(
        n, 0,
        lib_activate_default(&n->lib, tanh ? ACTIVATION_GELU_TANH : ACTIVATION_GELU, n->in[0]));
}

/* Before opset 7 a slope with one axis is per channel. */
bool lower_prelu(struct node *n)
{
    struct uop *x = n->in[0], *slope = n->in[1], *dim[MAX_RANK];
    if (n->opset < 7 && slope->ndim == 1 && x->ndim > 2 && !uop_is_int(slope->dim[0], 1)) {
        for (int a = 1; a < x->ndim; a++)
            dim[a - 1] = a == 1 ? slope->dim[0] : uop_int(n->t, 1);
        slope = uop_reshape(n->t, slope, dim, x->ndim - 1);
    }
    return node_set(n, 0, lib_prelu(&n->lib, x, slope));
}

bool lower_swiglu(struct node *n)
{
    return node_set(
        n, 0,
        lib_mul(&n->lib,
                lib_activate(&n->lib, ACTIVATION_SILU, n->in[0], node_float(n, "alpha", 1), 0),
                n->in[1]));
}

/* y = x, mask all true, at inference. In training an element stays with a probability of 1 - ratio
 * and grows by 1 / (1 - ratio): random numbers are those of RandomUniform. */
/* The number that makes the draws of a training's runs differ; NULL: this is no training. */
static struct uop *draw_of_training(const struct node *n)
{
    struct uop **draw = n->lower->options ? n->lower->options->draw : NULL;
    if (draw && !*draw)
        *draw = uop_buffer(n->t, buffer_new(n->t, BUFFER_INPUT, DTYPE_I64, NULL, 0, "draw"));
    return draw ? *draw : NULL;
}

bool lower_dropout(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *run = draw_of_training(n);
    const struct lib *l = &n->lib;
    struct uop *x = n->in[0], *all = uop_bool(t, true), *training = uop_bool(t, false), *ratio;
    enum dtype mask_dtype = n->opset < 10 ? x->dtype : DTYPE_BOOL, wide = lib_acc_dtype(x->dtype);
    if (n->opset < 7)
        training = uop_bool(t, !node_int(n, "is_test", 0));
    else if (n->opset >= 12 && n->in[2] && !(training = node_scalar(n, 2)))
        return false;
    if (run)
        training = uop_not(t, uop_binary(t, OP_LT, run, uop_consti(t, DTYPE_I64, 0)));
    if (training->dtype != DTYPE_BOOL)
        return node_error(n, 2, "a bool is expected, found %s", shape_text(n, n->in[2]));
    ratio = uop_constf(t, wide, node_float(n, "ratio", 0.5));
    if (n->opset >= 12 && n->in[1] && !(ratio = lib_cast(l, wide, node_scalar(n, 1))))
        return false;
    struct uop *mask = tensor_full(t, all, x->dim, x->ndim), *y = x;
    bool never = uop_is_int(training, 0) || uop_is_constf(ratio, 0);
    if (!never) {
        int64_t seed = node_int(n, "seed", onnx_node_index(lower_model(n->lower), n->proto) + 1);
        struct uop *draw = lib_random_uniform_of_run(l, wide, (uint64_t)seed, run, 0, 1, x->dim,
                                                     x->ndim);
        struct uop *stays =
            lib_where(l, training, uop_not(t, lib_binary(l, OP_LT, draw, ratio)), all);
        struct uop *one = uop_constf(t, wide, 1);
        struct uop *grow = lib_where(l, training, lib_div(l, one, lib_sub(l, one, ratio)), one);
        struct uop *kept = lib_where(l, stays, lib_mul(l, lib_cast(l, wide, x), grow),
                                     uop_constf(t, wide, 0));
        mask = stays;
        y = lib_cast(l, x->dtype, kept);
    }
    n->out[1] = lib_cast(l, mask_dtype, mask);
    return node_set(n, 0, y) && n->out[1];
}
