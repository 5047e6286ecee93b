/* lower_create.c - operators that make tensors from little: constants, ranges, identity matrices,
 * windows, random numbers. */
#include <math.h>
#include <string.h>

#include "frontend/onnx/lower.h"

/* ------------------------------------------------------------------------------------ constants */

static struct uop *constant_floats(const struct node *n)
{
    const float *v;
    int count = node_floats(n, "value_floats", &v);
    int64_t dim = count;
    return tensor_from_data(n->t, DTYPE_F32, &dim, 1, v, (size_t)count * sizeof *v, NULL);
}

static struct uop *constant_ints(const struct node *n)
{
    const int64_t *v;
    int count = node_ints(n, "value_ints", &v);
    struct uop **elem = mem_array(n->t, (size_t)count + 1, sizeof *elem);
    for (int i = 0; i < count; i++)
        elem[i] = uop_int(n->t, v[i]);
    return index_vector(n->t, elem, count);
}

bool lower_constant(struct node *n)
{
    static const char *const forms[] = {"value", "sparse_value", "value_float", "value_int",
                                        "value_floats", "value_ints", "value_strings",
                                        "value_string"};
    struct onnx_model *m = lower_model(n->lower);
    const char *given = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (!node_has(n, forms[i]))
            continue;
        if (given)
            return node_error(n, -1, "has both '%s' and '%s'; one value is expected", given,
                              forms[i]);
        given = forms[i];
    }
    if (node_has(n, "value")) {
        const TensorProto *p = onnx_attr_tensor(m, n->proto, "value");
        return p && node_set(n, 0, lower_tensor(n, "value", p));
    }
    if (node_has(n, "sparse_value")) {
        const SparseTensorProto *p = onnx_attr_sparse_tensor(m, n->proto, "sparse_value");
        return p && node_set(n, 0, lower_sparse_tensor(n, "sparse_value", p));
    }
    if (node_has(n, "value_float"))
        return node_set(n, 0, uop_constf(n->t, DTYPE_F32, node_float(n, "value_float", 0)));
    if (node_has(n, "value_int"))
        return node_set(n, 0, uop_int(n->t, node_int(n, "value_int", 0)));
    if (node_has(n, "value_floats"))
        return node_set(n, 0, constant_floats(n));
    if (node_has(n, "value_ints"))
        return node_set(n, 0, constant_ints(n));
    if (node_has(n, "value_strings"))
        return node_set(n, 0, node_string_weight(n, "value_strings"));
    if (node_has(n, "value_string")) {
        const char **one = MEM_NEW(n->t, const char *);
        *one = node_string(n, "value_string", "");
        return node_set(n, 0,
                        tensor_from_data(n->t, DTYPE_STRING, NULL, 0, one, sizeof *one, NULL));
    }
    return node_error(n, -1,
                      "one of the attributes value, sparse_value, value_float(s), value_int(s) "
                      "and value_string(s) is expected");
}

bool lower_constant_of_shape(struct node *n)
{
    struct uop **dim, *value = uop_constf(n->t, DTYPE_F32, 0);
    int rank;
    if (!node_symbols(n, 0, &dim, &rank))
        return false;
    if (rank > MAX_RANK)
        return node_error(n, 0, "the result would have rank %d; at most %d is supported", rank,
                          MAX_RANK);
    for (int a = 0; a < rank; a++)
        if (dim[a]->vmax < 0)
            return node_error(n, 0, "element %d is negative", a);
    if (node_has(n, "value")) {
        const TensorProto *p = onnx_attr_tensor(lower_model(n->lower), n->proto, "value");
        int64_t zero[MAX_RANK] = {0};
        value = p ? lower_tensor(n, "value", p) : NULL;
        if (!value)
            return false;
        for (int a = 0; a < value->ndim; a++)
            if (!uop_is_int(value->dim[a], 1))
                return node_error(n, -1, "attribute 'value' must have one element, found %s",
                                  shape_text(n, value));
        if (!(value = tensor_element(n->t, value, zero)))
            return node_error(n, -1, "attribute 'value' is no number");
    }
    return node_set(n, 0, tensor_full(n->t, value, dim, rank));
}

/* The number of elements of a range with bounds known only at run time.
 * A delta of 0 has no end, and a
 * range longer than i64 can count exceeds any bound. */
static struct uop *count_at_run(const struct node *n, struct uop *const *v)
{
    struct tgc *t = n->t;
    const struct lib *l = &n->lib;
    if (dtype_is_float(v[0]->dtype)) {
        struct uop *q = lib_div(l, lib_cast(l, DTYPE_F64, lib_sub(l, v[1], v[0])),
                                lib_cast(l, DTYPE_F64, v[2]));
        q = lib_binaryf(l, OP_MAX, lib_unary(l, OP_CEIL, q), 0);
        return lib_cast(l, DTYPE_INDEX, q);
    }
    struct uop *w[3], *zero = uop_int(t, 0);
    for (int k = 0; k < 3; k++)
        w[k] = lib_cast(l, DTYPE_INDEX, v[k]);
    struct uop *back = uop_binary(t, OP_LT, w[2], zero);
    struct uop *from = uop_where(t, back, w[1], w[0]), *to = uop_where(t, back, w[0], w[1]);
    struct uop *span = uop_binary(t, OP_SUB, to, from), *step = uop_unary(t, OP_ABS, w[2]);
    struct uop *endless = uop_binary(t, OP_OR, uop_binary(t, OP_EQ, step, zero),
                                     uop_binary(t, OP_LT, span, zero));
    struct uop *full = uop_binary(t, OP_FLOORDIV, sym_addi(t, span, -1), step);
    full = uop_where(t, endless, uop_int(t, INT64_MAX), sym_addi(t, full, 1));
    return uop_where(t, uop_binary(t, OP_LT, from, to), full, zero);
}

bool lower_range(struct node *n)
{
    struct uop *v[3], *count;
    bool known = true;
    if (!node_same_dtype(n, 0, 1) || !node_same_dtype(n, 0, 2))
        return false;
    enum dtype d = n->in[0]->dtype, wide = lib_acc_dtype(d);
    for (int k = 0; k < 3; k++) {
        if (!(v[k] = node_scalar(n, k)))
            return false;
        struct uop *e = tensor_element(n->t, v[k], NULL);
        known &= e != NULL;
        if (e && dtype_is_int(d))
            v[k] = uop_cast(n->t, d, known_index(n->t, e));
        v[k] = lib_cast(&n->lib, wide, v[k]);
    }
    if (!node_require(n, 2, lib_binaryf(&n->lib, OP_NE, v[2], 0), "the step is 0"))
        return false;
    for (int k = 0; k < 3 && known; k++)
        known = tensor_element(n->t, v[k], NULL)->op == OP_CONST ||
                (dtype_is_int(d) && (k < 2 || v[k]->op == OP_CONST));
    count = known ? lib_arange_count(&n->lib, v[0], v[1], v[2])
                  : node_symbol(n, -1, count_at_run(n, v), node_output_dim_name(n, 0, 0), 0, NULL);
    return node_set(n, 0, lib_cast(&n->lib, d, lib_arange(&n->lib, v[0], v[2], count)));
}

bool lower_eye_like(struct node *n)
{
    struct uop *x = n->in[0];
    enum dtype d = node_dtype(n, "dtype", x->dtype);
    if (!node_rank(n, 0, 2, 2))
        return false;
    if (d == DTYPE_VOID || d == DTYPE_STRING)
        return node_error(n, -1, "attribute 'dtype' names no type that is supported");
    return node_set(n, 0, lib_eye(&n->lib, d, x->dim[0], x->dim[1], node_int(n, "k", 0)));
}

bool lower_one_hot(struct node *n)
{
    struct uop *indices = n->in[0], *d = node_scalar(n, 1);
    if (!d)
        return false;
    if (!dtype_is_int(d->dtype) && !dtype_is_float(d->dtype))
        return node_error(n, 1, "a number is expected, found %s", shape_text(n, n->in[1]));
    if (!(d = node_symbol(n, 1, d, node_input_name(n, 1, 0, 1), 0, NULL)))
        return false;
    return node_set(n, 0,
                    lib_one_hot(&n->lib, lib_cast(&n->lib, DTYPE_INDEX, indices), d, n->in[2],
                                node_int(n, "axis", -1)));
}

/* -------------------------------------------------------------------------------------- windows */

/* a0 - a1 cos(2 pi i / N) + a2 cos(4 pi i / N), N the size or, for symmetric windows, one less. */
bool lower_cosine_window(struct node *n)
{
    static const double coefficient[3][3] = {
        {0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    const double *a = coefficient[n->operator->param];
    struct uop **size;
    int count;
    enum dtype d = node_dtype(n, "output_datatype", DTYPE_F32);
    if (d == DTYPE_VOID || d == DTYPE_STRING)
        return node_error(n, -1, "attribute 'output_datatype' names no type that is supported");
    if (!node_symbols(n, 0, &size, &count))
        return false;
    if (count != 1)
        return node_error(n, 0, "one size is expected, found %d", count);
    enum dtype wide = d == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    struct uop *period = node_int(n, "periodic", 1) ? size[0] : sym_addi(n->t, size[0], -1);
    struct uop *i = lib_cast(&n->lib, wide, uop_iota(n->t, size[0]));
    struct uop *turn = lib_div(&n->lib, lib_binaryf(&n->lib, OP_MUL, i, 2 * 3.14159265358979323846),
                               lib_float_of(&n->lib, wide, period));
    struct uop *once = lib_binaryf(&n->lib, OP_MUL, lib_unary(&n->lib, OP_COS, turn), -a[1]);
    struct uop *twice = lib_binaryf(
        &n->lib, OP_MUL, lib_unary(&n->lib, OP_COS, lib_binaryf(&n->lib, OP_MUL, turn, 2)), a[2]);
    struct uop *sum = lib_binaryf(&n->lib, OP_ADD, lib_add(&n->lib, once, twice), a[0]);
    return node_set(n, 0, lib_cast(&n->lib, d, sum));
}

/* ------------------------------------------------------------------------------- random numbers */

/* The seed of the node, or one that depends on its number alone: the same model gives the same
 * numbers in every compile. */
static uint64_t node_seed(const struct node *n)
{
    double seed = node_float(n, "seed", 0);
    uint64_t bits;
    memcpy(&bits, &seed, sizeof bits);
    return node_has(n, "seed") ? bits
                               : (uint64_t)onnx_node_index(lower_model(n->lower), n->proto) + 1;
}

static bool random_shape(const struct node *n, struct uop **dim, int *ndim, enum dtype *d)
{
    const int64_t *shape;
    if (n->nin && n->in[0]) {
        *ndim = n->in[0]->ndim;
        for (int a = 0; a < *ndim; a++)
            dim[a] = n->in[0]->dim[a];
        *d = node_dtype(n, "dtype", dtype_is_float(n->in[0]->dtype) ? n->in[0]->dtype : DTYPE_F32);
    } else {
        *ndim = node_ints(n, "shape", &shape);
        if (*ndim < 0 || *ndim > MAX_RANK)
            return node_error(n, -1, "attribute 'shape' must have 0 .. %d elements", MAX_RANK);
        for (int a = 0; a < *ndim; a++) {
            if (shape[a] < 0)
                return node_error(n, -1, "attribute 'shape' has a negative element");
            dim[a] = uop_int(n->t, shape[a]);
        }
        *d = node_dtype(n, "dtype", DTYPE_F32);
    }
    if (*d == DTYPE_VOID || *d == DTYPE_STRING)
        return node_error(n, -1, "attribute 'dtype' names no type that is supported");
    return true;
}

bool lower_random_uniform(struct node *n)
{
    struct uop *dim[MAX_RANK];
    int ndim;
    enum dtype d;
    return random_shape(n, dim, &ndim, &d) &&
           node_set(n, 0,
                    lib_random_uniform(&n->lib, d, node_seed(n), node_float(n, "low", 0),
                                       node_float(n, "high", 1), dim, ndim));
}

bool lower_random_normal(struct node *n)
{
    struct uop *dim[MAX_RANK];
    int ndim;
    enum dtype d;
    return random_shape(n, dim, &ndim, &d) &&
           node_set(n, 0,
                    lib_random_normal(&n->lib, d, node_seed(n), node_float(n, "mean", 0),
                                      node_float(n, "scale", 1), dim, ndim));
}

/* The class at which the running sum of exp(x) passes a uniform number of [0, the whole sum). */
bool lower_multinomial(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *x = n->in[0];
    enum dtype d = node_dtype(n, "dtype", DTYPE_I32);
    int64_t samples = node_int(n, "sample_size", 1);
    if (!node_rank(n, 0, 2, 2))
        return false;
    if (d != DTYPE_I32 && d != DTYPE_I64)
        return node_error(n, -1, "attribute 'dtype' must be int32 or int64");
    if (samples < 1 || x->dim[1]->vmin < 1)
        return node_error(n, -1, "one sample and one class are needed at least");
    struct uop *wide = lib_cast(l, lib_acc_dtype(x->dtype), x),
               *dim[2] = {x->dim[0], uop_int(t, samples)};
    struct uop *most = lib_reduce(l, REDUCE_MAX, wide, 1u << 1, true);
    struct uop *sums =
        lib_cumulative(l, OP_ADD, lib_contiguous(l, lib_unary(l, OP_EXP, lib_sub(l, wide, most))),
                       1, false, false);
    if (!sums)
        return false;
    sums = lib_contiguous(l, sums);
    struct uop *last = sym_addi(t, x->dim[1], -1);
    struct uop *whole = lib_narrow(l, sums, 1, last, uop_int(t, 1));
    struct uop *draw = lib_random_uniform(l, sums->dtype, node_seed(n), 0, 1, dim, 2);
    draw = tensor_insert_axis(t, lib_mul(l, draw, whole), 2);
    struct uop *passed = uop_not(t, lib_binary(l, OP_LT, draw, tensor_insert_axis(t, sums, 1)));
    struct uop *at = lib_reduce(l, REDUCE_SUM, lib_cast(l, d, passed), 1u << 2, false);
    return node_set(n, 0, lib_binary(l, OP_MIN, at, lib_float_of(l, d, last)));
}

bool lower_bernoulli(struct node *n)
{
    struct uop *x = n->in[0];
    enum dtype d = node_dtype(n, "dtype", x->dtype), wide = lib_acc_dtype(x->dtype);
    if (d == DTYPE_VOID || d == DTYPE_STRING)
        return node_error(n, -1, "attribute 'dtype' names no type that is supported");
    struct uop *draw = lib_random_uniform(&n->lib, wide, node_seed(n), 0, 1, x->dim, x->ndim);
    return node_set(
        n, 0, lib_cast(&n->lib, d, lib_binary(&n->lib, OP_LT, draw, lib_cast(&n->lib, wide, x))));
}
