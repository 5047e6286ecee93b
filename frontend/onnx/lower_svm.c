/* lower_svm.c - support vector machines: the kernel's values are tensor algebra, the votes and
 * probabilities of pairs of classes host steps (runtime/host/svm.c).
 *
 *      LINEAR <x, v> · POLY (gamma <x, v> + coef0)^degree · RBF exp(-gamma |x - v|^2)
 *      SIGMOID tanh(gamma <x, v> + coef0)              kernel_params: gamma, coef0, degree
 */
#include "frontend/onnx/ml.h"

#include <string.h>

/* x [n, f] against support vectors [v, f] -> [n, v] */
static struct uop *kernel_values(const struct node *n, struct uop *x, struct uop *v)
{
    const struct lib *l = &n->lib;
    const float *p;
    const char *kind = node_string(n, "kernel_type", "LINEAR");
    int count = node_floats(n, "kernel_params", &p);
    double gamma = count > 0 ? (double)p[0] : 0, coef0 = count > 1 ? (double)p[1] : 0,
           degree = count > 2 ? (double)p[2] : 0;
    if (!strcmp(kind, "RBF")) {
        struct uop *apart =
            lib_sub(l, tensor_insert_axis(n->t, x, 1), tensor_insert_axis(n->t, v, 0));
        struct uop *square = lib_reduce(l, REDUCE_SUM_SQUARE, apart, 4, false);
        return lib_unary(l, OP_EXP, lib_binaryf(l, OP_MUL, square, -gamma));
    }
    struct uop *product = lib_linear(l, x, v, NULL);
    if (!strcmp(kind, "LINEAR"))
        return product;
    product = lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, product, gamma), coef0);
    if (!strcmp(kind, "POLY"))
        return lib_binaryf(l, OP_POW, product, degree);
    if (!strcmp(kind, "SIGMOID"))
        return lib_unary(l, OP_TANH, product);
    node_error(n, -1, "kernel_type '%s' is not one of the specification", kind);
    return NULL;
}

/* A list of rows * columns numbers as a matrix. */
static struct uop *matrix(const struct node *n, const char *name, int64_t rows, int64_t columns)
{
    struct ml_list v;
    int64_t want;
    struct uop *dim[2] = {uop_int(n->t, rows), uop_int(n->t, columns)};
    if (!ml_numbers(n, name, NULL, &v))
        return NULL;
    if (__builtin_mul_overflow(rows, columns, &want) || v.count != want) {
        node_error(n, -1, "%s has %lld numbers, expected %lld times %lld", name, (long long)v.count,
                   (long long)rows, (long long)columns);
        return NULL;
    }
    return lib_reshape(&n->lib, ml_weight(n, DTYPE_F32, &v), dim, 2);
}

static bool row_width(const struct node *n, const struct uop *x, int64_t *width)
{
    return (uop_const_int(x->dim[1], width) && *width > 0) ||
           node_error(n, 0, "rows of a fixed size are expected, found %s", shape_text(n, x));
}

bool lower_svm_regressor(struct node *n)
{
    const struct lib *l = &n->lib;
    int64_t width, count = node_int(n, "n_supports", 0);
    enum ml_transform t;
    struct ml_list rho;
    struct uop *x = ml_rows(n, 0, DTYPE_F32), *score;
    if (!x || !row_width(n, x, &width) || !ml_post_transform(n, &t) ||
        !ml_numbers(n, "rho", NULL, &rho))
        return false;
    if (rho.count != 1)
        return node_error(n, -1, "rho must have one element, found %lld", (long long)rho.count);
    struct uop *v = count > 0 ? matrix(n, "support_vectors", count, width) : NULL,
               *w = matrix(n, "coefficients", 1, count > 0 ? count : width);
    if ((count > 0 && !v) || !w)
        return false;
    score = count > 0 ? kernel_values(n, x, v) : x;
    score = lib_add(l, lib_linear(l, score, w, NULL), ml_weight(n, DTYPE_F32, &rho));
    if (!score)
        return false;
    if (node_int(n, "one_class", 0))
        score = lib_where(l, lib_binary(l, OP_LT, lib_scalar(l, score, 0), score),
                          lib_scalar(l, score, 1), lib_scalar(l, score, -1));
    return node_set(n, 0, ml_transformed(n, score, t));
}

struct machine { int64_t classes, vectors, pairs; struct uop *first; };

/* Where each class's support vectors begin. */
static bool read_classes(const struct node *n, struct machine *m)
{
    const int64_t *per_class;
    m->classes = node_ints(n, "vectors_per_class", &per_class);
    int64_t *first = mem_array(n->t, (size_t)(m->classes > 0 ? m->classes : 0) + 1, sizeof *first);
    for (int64_t c = 0; c < m->classes; c++) {
        if (per_class[c] < 0 || per_class[c] > INT32_MAX)
            return node_error(n, -1, "vectors_per_class[%lld] is %lld", (long long)c,
                              (long long)per_class[c]);
        first[c + 1] = first[c] + per_class[c];
    }
    m->vectors = m->classes > 0 ? first[m->classes] : 0;
    m->pairs = m->classes * (m->classes - 1) / 2;
    m->first = ml_ints(n, DTYPE_I64, first, m->classes + 1);
    return true;
}

static struct host_output host_tensor(enum dtype d, struct uop *rows, int64_t columns,
                                      const struct node *n)
{
    return (struct host_output){.dtype = d, .ndim = 2, .dim = {rows, uop_int(n->t, columns)}};
}

static struct uop *coupled(const struct node *n, const struct machine *m, struct uop *score)
{
    struct ml_list a, b;
    if (!ml_numbers(n, "prob_a", NULL, &a) || !ml_numbers(n, "prob_b", NULL, &b))
        return NULL;
    if (a.count != m->pairs || b.count != m->pairs) {
        node_error(n, -1, "prob_a and prob_b need %lld elements each", (long long)m->pairs);
        return NULL;
    }
    struct uop *in[3] = {score, ml_weight(n, DTYPE_F32, &a), ml_weight(n, DTYPE_F32, &b)},
               *rows = score->dim[0], *param[2] = {rows, uop_int(n->t, m->classes)};
    struct host_output out[2] = {
        host_tensor(DTYPE_F32, rows, m->classes, n),
        host_tensor(DTYPE_F32, uop_int(n->t, 2 * m->classes + 1), m->classes, n)};
    return lib_get(&n->lib, lib_host(&n->lib, "svm_probability", in, 3, out, 2, param, 2, NULL, 0),
                   0);
}

static bool set_classes(struct node *n, struct uop *number, struct uop *score)
{
    return node_set(n, 0, ml_labels(n, number, "classlabels_ints", "classlabels_strings")) &&
           node_set(n, 1, score);
}

/* Without support vectors: one linear score a class. */
static bool linear_machine(struct node *n, struct uop *x, int64_t width, enum ml_transform t)
{
    const struct lib *l = &n->lib;
    struct ml_list w, rho;
    if (!ml_numbers(n, "coefficients", NULL, &w) || !ml_numbers(n, "rho", NULL, &rho))
        return false;
    int64_t count = w.count / width;
    struct uop *c = matrix(n, "coefficients", count, width);
    if (!c || rho.count < 1)
        return c ? node_error(n, -1, "needs the attribute 'rho'") : false;
    struct ml_list first = {rho.dtype, rho.data, 1};
    struct uop *score = lib_add(l, lib_linear(l, x, c, NULL), ml_weight(n, DTYPE_F32, &first));
    return set_classes(n, lib_argmax(l, score, 1, false, false), ml_transformed(n, score, t));
}

bool lower_svm_classifier(struct node *n)
{
    const struct lib *l = &n->lib;
    struct machine m = {0};
    int64_t width;
    enum ml_transform t;
    struct ml_list rho;
    struct uop *x = ml_rows(n, 0, DTYPE_F32);
    if (!x || !row_width(n, x, &width) || !ml_post_transform(n, &t) || !read_classes(n, &m) ||
        !ml_numbers(n, "rho", NULL, &rho))
        return false;
    if (m.vectors < 1)
        return linear_machine(n, x, width, t);
    if (m.classes < 2 || rho.count != m.pairs)
        return node_error(n, -1, "has %lld classes with support vectors, rho has %lld elements",
                          (long long)m.classes, (long long)rho.count);
    struct uop *v = matrix(n, "support_vectors", m.vectors, width),
               *w = matrix(n, "coefficients", m.classes - 1, m.vectors),
               *kernel = v && w ? kernel_values(n, x, v) : NULL;
    if (!kernel)
        return false;
    struct uop *in[4] = {kernel, w, m.first, ml_weight(n, DTYPE_F32, &rho)}, *rows = x->dim[0];
    struct uop *param[3] = {rows, uop_int(n->t, m.vectors), uop_int(n->t, m.classes)};
    struct host_output out[3] = {host_tensor(DTYPE_F32, rows, m.pairs, n),
                                 {.dtype = DTYPE_I64, .ndim = 1, .dim = {rows}},
                                 host_tensor(DTYPE_I64, uop_int(n->t, 1), m.classes, n)};
    struct uop *call = lib_host(l, "svm_decide", in, 4, out, 3, param, 3, NULL, 0);
    struct uop *score = lib_get(l, call, 0), *winner = lib_get(l, call, 1);
    if (!score || !winner)
        return false;
    if (node_has(n, "prob_a")) {
        struct uop *p = coupled(n, &m, score);
        return p && set_classes(n, winner, ml_transformed(n, p, t));
    }
    if (m.classes == 2) /* the columns are those of onnxruntime: -score, score */
        return set_classes(n, winner, ml_both_classes(n, score, t != ML_NONE, t));
    return set_classes(n, winner, ml_transformed(n, score, t));
}
