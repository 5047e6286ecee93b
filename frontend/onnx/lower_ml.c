/* lower_ml.c - ai.onnx.ml without trees and support vectors: scaling, encoding, linear models.
 *
 * Numbers of any dtype are computed in f32, the dtype of the specification's outputs; in f64 if the
 * output is f64. Maps as outputs are not supported: ZipMap's output is the tensor of the values,
 * with columns in the order of the class labels.
 */
#include "frontend/onnx/ml.h"

#include <math.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- attributes */

static bool read_tensor(const struct node *n, const char *name, struct ml_list *list)
{
    struct onnx_model *m = lower_model(n->lower);
    const TensorProto *p = onnx_attr_tensor(m, n->proto, name);
    struct place at = onnx_place_attr(m, n->proto, name);
    struct onnx_tensor x;
    if (!p || !onnx_decode_tensor(m, &at, p, &x))
        return p ? false : node_error(n, -1, "attribute '%s' is no tensor", name);
    list->count = (int64_t)x.nelem;
    list->dtype = x.dtype == DTYPE_STRING || x.dtype == DTYPE_F64 ? x.dtype
                  : dtype_is_float(x.dtype)                       ? DTYPE_F32
                                                                  : DTYPE_I64;
    list->data = mem_array(n->t, x.nelem + 1, 8);
    for (size_t i = 0; i < x.nelem; i++) {
        const char *from = (const char *)x.data + i * dtype_nbytes(x.dtype);
        if (x.dtype == DTYPE_STRING)
            ((const char **)list->data)[i] = *(const char *const *)(const void *)from;
        else
            ((union scalar *)list->data)[i] = scalar_load(x.dtype, from);
    }
    return true;
}

static void read_floats(const struct node *n, const char *name, struct ml_list *list)
{
    const float *v;
    int count = node_floats(n, name, &v);
    *list = (struct ml_list){DTYPE_F32, NULL, count > 0 ? count : 0};
    list->data = mem_array(n->t, (size_t)list->count + 1, 8);
    for (int64_t i = 0; i < list->count; i++)
        ((double *)list->data)[i] = (double)v[i];
}

bool ml_numbers(const struct node *n, const char *floats, const char *tensor, struct ml_list *list)
{
    *list = (struct ml_list){.dtype = DTYPE_F32, .data = MEM_NEW(n->t, double)};
    if (tensor && node_has(n, tensor)) {
        if (!read_tensor(n, tensor, list))
            return false;
        return dtype_is_float(list->dtype) ||
               node_error(n, -1, "attribute '%s' must hold floats", tensor);
    }
    if (floats && node_has(n, floats))
        read_floats(n, floats, list);
    return true;
}

bool ml_list(const struct node *n, const char *name, struct ml_list *list)
{
    const char *strings = mem_printf(n->t, "%s_strings", name);
    const char *ints = mem_printf(n->t, "%s_int64s", name);
    const char *floats = mem_printf(n->t, "%s_floats", name);
    const char *tensor = mem_printf(n->t, "%s_tensor", name);
    *list = (struct ml_list){DTYPE_VOID, NULL, 0};
    if (node_has(n, strings)) {
        const char *const *v;
        list->count = node_strings(n, strings, &v);
        list->dtype = DTYPE_STRING;
        list->data = mem_copy(n->t, list->count > 0 ? v : NULL, (size_t)list->count * sizeof *v);
    } else if (node_has(n, ints)) {
        const int64_t *v;
        list->count = node_ints(n, ints, &v);
        list->dtype = DTYPE_I64;
        list->data = mem_copy(n->t, list->count > 0 ? v : NULL, (size_t)list->count * sizeof *v);
    } else if (node_has(n, floats)) {
        read_floats(n, floats, list);
    } else if (node_has(n, tensor)) {
        return read_tensor(n, tensor, list);
    }
    return true;
}

struct uop *ml_weight(const struct node *n, enum dtype d, const struct ml_list *list)
{
    size_t size = dtype_nbytes(d);
    char *data = mem_array(n->t, (size_t)list->count + 1, size);
    if (d == DTYPE_STRING)
        memcpy(data, list->data, (size_t)list->count * size);
    else
        for (int64_t i = 0; i < list->count; i++)
            scalar_store(d, data + (size_t)i * size,
                         scalar_cast(d, list->dtype, ((const union scalar *)list->data)[i]));
    return tensor_from_data(n->t, d, &list->count, 1, data, (size_t)list->count * size, NULL);
}

struct uop *ml_ints(const struct node *n, enum dtype d, const int64_t *v, int64_t count)
{
    return ml_weight(n, d, &(struct ml_list){DTYPE_I64, (void *)(uintptr_t)v, count});
}

struct uop *ml_rows(const struct node *n, int k, enum dtype d)
{
    struct uop *x = n->in[k];
    if (!node_rank(n, k, 1, 2))
        return NULL;
    if (x->dtype == DTYPE_STRING) {
        node_error(n, k, "numbers are expected, found strings");
        return NULL;
    }
    if (x->ndim == 1)
        x = tensor_insert_axis(n->t, x, 0);
    return uop_cast(n->t, d, x);
}

/* --------------------------------------------------------------------------------------- scores */

bool ml_post_transform(const struct node *n, enum ml_transform *t)
{
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    const char *name = node_string(n, "post_transform", "NONE");
    for (int i = 0; i < 5; i++)
        if (!strcmp(names[i], name)) {
            *t = (enum ml_transform)i;
            return true;
        }
    return node_error(n, -1, "post_transform '%s' is not one of the specification", name);
}

/* The normal distribution's quantiles; source: Winitzki, A handy approximation for the error
 * function and its inverse (2008). */
static struct uop *probit(const struct lib *l, struct uop *p)
{
    const double a = 0.147;
    struct uop *x = lib_binaryf(l, OP_SUB, lib_binaryf(l, OP_MUL, p, 2), 1);
    struct uop *one = lib_scalar(l, x, 1), *zero = lib_scalar(l, x, 0);
    struct uop *log = lib_unary(l, OP_LOG, lib_mul(l, lib_sub(l, one, x), lib_add(l, one, x)));
    struct uop *v = lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, log, 0.5),
                                2 / (3.14159265358979323846 * a));
    struct uop *w = lib_sub(l, lib_mul(l, v, v), lib_binaryf(l, OP_DIV, log, a));
    struct uop *r = lib_unary(l, OP_SQRT, lib_sub(l, lib_unary(l, OP_SQRT, w), v));
    r = lib_where(l, lib_binary(l, OP_LT, x, zero), lib_unary(l, OP_NEG, r), r);
    return lib_binaryf(l, OP_MUL, r, 1.41421356237309504880);
}

/* Scores of 0 stay 0 but for the scaling. */
static struct uop *softmax_zero(const struct lib *l, struct uop *x)
{
    struct uop *top = tensor_max(l->t, x, 2, true);
    struct uop *some = lib_binary(l, OP_LT, lib_scalar(l, x, 1e-7), lib_unary(l, OP_ABS, x));
    struct uop *e = lib_where(l, some, lib_unary(l, OP_EXP, lib_sub(l, x, top)),
                              lib_mul(l, x, lib_unary(l, OP_EXP, lib_unary(l, OP_NEG, top))));
    return lib_div(l, e, tensor_sum(l->t, e, 2, true));
}

struct uop *ml_transformed(const struct node *n, struct uop *score, enum ml_transform t)
{
    if (!score)
        return NULL;
    switch (t) {
    case ML_NONE: break;
    case ML_SOFTMAX: return lib_softmax(&n->lib, score, 2);
    case ML_LOGISTIC: return lib_activate_default(&n->lib, ACTIVATION_SIGMOID, score);
    case ML_SOFTMAX_ZERO: return softmax_zero(&n->lib, score);
    case ML_PROBIT: return probit(&n->lib, score);
    }
    return score;
}

struct uop *ml_both_classes(const struct node *n, struct uop *score, bool positive,
                            enum ml_transform t)
{
    const struct lib *l = &n->lib;
    if (!score)
        return NULL;
    struct uop *other = lib_unary(l, OP_NEG, score);
    if (t == ML_PROBIT) {
        node_error(n, -1, "post_transform PROBIT of one score for two classes is not defined");
        return NULL;
    }
    if (t == ML_LOGISTIC) {
        score = lib_activate_default(l, ACTIVATION_SIGMOID, score);
        other = lib_activate_default(l, ACTIVATION_SIGMOID, other);
    } else if (positive) {
        other = lib_binaryf(l, OP_ADD, other, 1);
    }
    return lib_concat(l, (struct uop *[]){other, score}, 2, 1);
}

int64_t ml_label_count(const struct node *n, const char *ints, const char *strings)
{
    const int64_t *v;
    const char *const *s;
    int count = node_has(n, strings) ? node_strings(n, strings, &s) : node_ints(n, ints, &v);
    return count > 0 ? count : 0;
}

struct uop *ml_labels(const struct node *n, struct uop *number, const char *ints,
                      const char *strings)
{
    const int64_t *v;
    struct uop *label;
    if (!number)
        return NULL;
    if (node_has(n, strings)) {
        label = node_string_weight(n, strings);
    } else {
        int count = node_ints(n, ints, &v);
        if (count <= 0)
            return number;
        label = ml_ints(n, DTYPE_I64, v, count);
    }
    return lib_gather(&n->lib, label, number, 0);
}

/* -------------------------------------------------------------------------------- linear models */

/* x [n, f] times coefficients [e, f], plus intercepts, if there are any. */
static struct uop *linear(const struct node *n, int64_t *count)
{
    struct ml_list w, b;
    int64_t width;
    struct uop *x = ml_rows(n, 0, DTYPE_F32);
    if (!x || !ml_numbers(n, "coefficients", NULL, &w) || !ml_numbers(n, "intercepts", NULL, &b))
        return NULL;
    if (!uop_const_int(x->dim[1], &width) || width < 1 || !w.count || w.count % width) {
        node_error(n, 0, "%lld coefficients do not fit %s", (long long)w.count, shape_text(n, x));
        return NULL;
    }
    *count = w.count / width;
    struct uop *dim[2] = {uop_int(n->t, *count), uop_int(n->t, width)};
    struct uop *y =
        lib_linear(&n->lib, x, lib_reshape(&n->lib, ml_weight(n, DTYPE_F32, &w), dim, 2), NULL);
    if (b.count && b.count != *count) {
        node_error(n, -1, "has %lld intercepts for %lld scores", (long long)b.count,
                   (long long)*count);
        return NULL;
    }
    return b.count ? lib_add(&n->lib, y, ml_weight(n, DTYPE_F32, &b)) : y;
}

bool lower_linear_regressor(struct node *n)
{
    int64_t count, targets = node_int(n, "targets", 1);
    enum ml_transform t;
    struct uop *y = ml_post_transform(n, &t) ? linear(n, &count) : NULL;
    if (y && count != targets)
        return node_error(n, -1, "has coefficients for %lld targets, but 'targets' is %lld",
                          (long long)count, (long long)targets);
    return node_set(n, 0, ml_transformed(n, y, t));
}

bool lower_linear_classifier(struct node *n)
{
    const struct lib *l = &n->lib;
    int64_t count, labels = ml_label_count(n, "classlabels_ints", "classlabels_strings");
    enum ml_transform t;
    struct uop *score = linear(n, &count), *number;
    if (!score || !ml_post_transform(n, &t))
        return false;
    bool one = count == 1 && labels == 2;
    if (!one && labels && labels != count)
        return node_error(n, -1, "has %lld class labels for %lld scores", (long long)labels,
                          (long long)count);
    if (count == 1) {
        struct uop *positive = lib_binary(l, OP_LT, lib_scalar(l, score, 0), score);
        number = lib_cast(l, DTYPE_I64, tensor_drop_axes(n->t, positive, 2));
    } else {
        number = lib_argmax(l, score, 1, false, false);
    }
    return node_set(n, 0, ml_labels(n, number, "classlabels_ints", "classlabels_strings")) &&
           node_set(n, 1, one ? ml_both_classes(n, score, true, t) : ml_transformed(n, score, t));
}

/* ------------------------------------------------------------------------------------- features */

bool lower_array_feature_extractor(struct node *n)
{
    struct uop *x = n->in[0], *at = n->in[1], *count = sym_prod(n->t, at->dim, at->ndim);
    if (!node_rank(n, 0, 1, MAX_RANK))
        return false;
    if (x->ndim == 1)
        x = tensor_insert_axis(n->t, x, 0);
    return node_set(n, 0, lib_gather(&n->lib, x, lib_reshape(&n->lib, at, &count, 1), -1));
}

bool lower_binarizer(struct node *n)
{
    struct uop *x = n->in[0],
               *above = lib_binary(&n->lib, OP_LT,
                                   lib_scalar(&n->lib, x, node_float(n, "threshold", 0)), x);
    return node_set(n, 0, lib_cast(&n->lib, x->dtype, above));
}

/* A list of one element, or of one for each of the last axis. */
static struct uop *per_feature(const struct node *n, const char *name, enum dtype d)
{
    struct ml_list v;
    if (!ml_numbers(n, name, NULL, &v))
        return NULL;
    if (!v.count) {
        node_error(n, -1, "needs the attribute '%s'", name);
        return NULL;
    }
    return ml_weight(n, d, &v);
}

bool lower_scaler(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *offset = per_feature(n, "offset", DTYPE_F32),
               *scale = per_feature(n, "scale", DTYPE_F32), *x = lib_cast(l, DTYPE_F32, n->in[0]);
    return node_set(n, 0, lib_mul(l, lib_sub(l, x, offset), scale));
}

bool lower_imputer(struct node *n)
{
    const struct lib *l = &n->lib;
    struct uop *x = n->in[0], *value, *hit;
    if (dtype_is_float(x->dtype)) {
        double wanted = node_float(n, "replaced_value_float", 0);
        value = per_feature(n, "imputed_value_floats", x->dtype);
        hit = isnan(wanted) ? lib_unary(l, OP_ISNAN, x)
                            : lib_binary(l, OP_EQ, x, lib_scalar(l, x, wanted));
    } else {
        const int64_t *v;
        int count = node_ints(n, "imputed_value_int64s", &v);
        if (count < 1)
            return node_error(n, -1, "needs the attribute 'imputed_value_int64s'");
        value = ml_ints(n, x->dtype, v, count);
        hit = lib_binary(l, OP_EQ, x,
                         uop_consti(n->t, x->dtype, node_int(n, "replaced_value_int64", 0)));
    }
    return node_set(n, 0, lib_where(l, hit, value, x));
}

/* By the largest element, the sum of magnitudes, or the root of the sum of squares of each row; a
 * row whose norm is 0 stays. */
bool lower_normalizer(struct node *n)
{
    const struct lib *l = &n->lib;
    const char *norm = node_string(n, "norm", "MAX");
    bool max = !strcmp(norm, "MAX"), l1 = !strcmp(norm, "L1");
    struct uop *x = ml_rows(n, 0, DTYPE_F32), *by;
    if (!x)
        return false;
    if (!max && !l1 && strcmp(norm, "L2"))
        return node_error(n, -1, "norm must be MAX, L1 or L2, found '%s'", norm);
    by = lib_reduce(l, max ? REDUCE_MAX : l1 ? REDUCE_L1 : REDUCE_L2, x, 2, true);
    if (!by)
        return false;
    by = lib_where(l, lib_binary(l, OP_EQ, by, lib_scalar(l, by, 0)), lib_scalar(l, by, 1), by);
    return node_set(n, 0, lib_reshape(l, lib_div(l, x, by), n->in[0]->dim, n->in[0]->ndim));
}

bool lower_feature_vectorizer(struct node *n)
{
    const int64_t *width;
    int count = node_ints(n, "inputdimensions", &width);
    struct uop **x = mem_array(n->t, (size_t)n->nin, sizeof *x);
    if (count >= 0 && count != n->nin)
        return node_error(n, -1, "has %d inputs, but inputdimensions of %d", n->nin, count);
    for (int k = 0; k < n->nin; k++) {
        int64_t have;
        if (!(x[k] = ml_rows(n, k, DTYPE_F32)))
            return false;
        if (count >= 0 && (!uop_const_int(x[k]->dim[1], &have) || have != width[k]))
            return node_error(n, k, "inputdimensions says %lld, found %s", (long long)width[k],
                              shape_text(n, x[k]));
    }
    return node_set(n, 0, lib_concat(&n->lib, x, n->nin, 1));
}

/* DictVectorizer and CastMap. */
bool lower_of_map(struct node *n)
{
    return node_error(n, 0,
                      "its input is a map from keys to values, which C does not have; remove the "
                      "node, and make its result, a tensor with a column for each key, an "
                      "input of the graph");
}

bool lower_zip_map(struct node *n) { return node_set(n, 0, n->in[0]); }

/* ------------------------------------------------------------------------------------- encoders */

/* Which of the list's elements each of x is, `count` if none. */
static struct uop *find_in(const struct node *n, struct uop *x, const struct ml_list *keys)
{
    bool text = x->dtype == DTYPE_STRING, real = dtype_is_float(x->dtype),
         real_keys = dtype_is_float(keys->dtype);
    if (text != (keys->dtype == DTYPE_STRING)) {
        node_error(n, 0, "%s are expected, found %s", text ? "numbers" : "strings",
                   shape_text(n, x));
        return NULL;
    }
    if (!text && real && !real_keys)
        x = uop_cast(n->t, DTYPE_I64, x);
    else if (!text && !real && real_keys)
        x = uop_cast(n->t, keys->dtype, x);
    else if (real && keys->dtype == DTYPE_F64)
        x = uop_cast(n->t, DTYPE_F64, x);
    return node_find(n, x, keys->data, keys->count);
}

bool lower_one_hot_encoder(struct node *n)
{
    struct uop *x = n->in[0], *dim[MAX_RANK + 1];
    struct ml_list cats;
    if (!ml_list(n, "cats", &cats))
        return false;
    if (cats.count < 1)
        return node_error(n, -1, "needs the attribute 'cats_int64s' or 'cats_strings'");
    if (x->ndim == MAX_RANK)
        return node_error(n, 0, "the result would have rank %d", MAX_RANK + 1);
    struct uop *at = find_in(n, x, &cats);
    if (!at)
        return false;
    struct uop *known = lib_binary(&n->lib, OP_LT, at, lib_scalar(&n->lib, at, (double)cats.count));
    if (!node_int(n, "zeros", 1) &&
        !node_expect(n, 0, known, "an element is none of the categories, and 'zeros' is 0"))
        return false;
    for (int a = 0; a < x->ndim; a++)
        dim[a] = uop_int(n->t, 1);
    dim[x->ndim] = uop_int(n->t, cats.count);
    struct uop *hit = lib_binary(&n->lib, OP_EQ, tensor_insert_axis(n->t, at, x->ndim),
                                 tensor_iota(n->t, dim, x->ndim + 1, x->ndim));
    return node_set(n, 0, lib_cast(&n->lib, DTYPE_F32, hit));
}

/* Appends the default to the values, so that missing keys have its index. */
static bool with_default(const struct node *n, struct ml_list *values)
{
    char *data = mem_array(n->t, (size_t)values->count + 1, 8);
    memcpy(data, values->data, 8 * (size_t)values->count);
    union scalar last = {.i = 0};
    struct ml_list given;
    if (node_has(n, "default_tensor")) {
        if (!read_tensor(n, "default_tensor", &given))
            return false;
        if (given.count != 1 || given.dtype != values->dtype)
            return node_error(n, -1, "default_tensor must be one element of the values' type");
        memcpy(data + 8 * values->count, given.data, 8);
    } else if (values->dtype == DTYPE_STRING) {
        const char *text = node_string(n, "default_string", "_Unused");
        memcpy(data + 8 * values->count, &text, 8);
    } else {
        if (values->dtype == DTYPE_I64)
            last.i = node_int(n, "default_int64", -1);
        else
            last.f = node_float(n, "default_float", -0.0);
        memcpy(data + 8 * values->count, &last, 8);
    }
    values->data = data;
    values->count++;
    return true;
}

static bool encode(struct node *n, struct ml_list keys, struct ml_list values, enum dtype d)
{
    if (keys.count != values.count)
        return node_error(n, -1, "has %lld keys and %lld values", (long long)keys.count,
                          (long long)values.count);
    if (!with_default(n, &values))
        return false;
    struct uop *at = find_in(n, n->in[0], &keys);
    return at && node_set(n, 0, lib_gather(&n->lib, ml_weight(n, d, &values), at, 0));
}

/* 0, 1, 2, ... */
static struct ml_list numbers_up_to(const struct node *n, int64_t count)
{
    int64_t *v = mem_array(n->t, (size_t)count + 1, sizeof *v);
    for (int64_t i = 0; i < count; i++)
        v[i] = i;
    return (struct ml_list){DTYPE_I64, v, count};
}

bool lower_label_encoder(struct node *n)
{
    struct ml_list keys, values;
    bool text = n->in[0]->dtype == DTYPE_STRING;
    if (n->opset < 2) {
        if (!ml_list(n, "classes", &keys))
            return false;
        struct ml_list numbers = numbers_up_to(n, keys.count);
        return text ? encode(n, keys, numbers, DTYPE_I64) : encode(n, numbers, keys, DTYPE_STRING);
    }
    if (!ml_list(n, "keys", &keys) || !ml_list(n, "values", &values))
        return false;
    if (keys.dtype == DTYPE_VOID || values.dtype == DTYPE_VOID)
        return node_error(n, -1, "needs keys and values");
    enum dtype d = values.dtype;
    if (node_has(n, "values_tensor"))
        d = dtype_from_onnx(
            onnx_attr_tensor(lower_model(n->lower), n->proto, "values_tensor")->data_type);
    return encode(n, keys, values, d);
}

bool lower_category_mapper(struct node *n)
{
    struct ml_list strings = {DTYPE_STRING, NULL, 0}, ints = {DTYPE_I64, NULL, 0};
    const char *const *s;
    const int64_t *v;
    strings.count = node_strings(n, "cats_strings", &s);
    ints.count = node_ints(n, "cats_int64s", &v);
    if (strings.count < 1 || ints.count < 1)
        return node_error(n, -1, "needs the attributes cats_strings and cats_int64s");
    strings.data = (void *)(uintptr_t)s;
    ints.data = (void *)(uintptr_t)v;
    return n->in[0]->dtype == DTYPE_STRING ? encode(n, strings, ints, DTYPE_I64)
                                           : encode(n, ints, strings, DTYPE_STRING);
}
