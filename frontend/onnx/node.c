/* node.c - a node's attributes, inputs and compile-time values, for lowering functions; and
 * builders that check first.
 *
 * Known values come from tensor_element(), which follows Shape -> Gather -> Concat chains through
 * the graph built so far; a dimension that stays a symbol is a known value too, as an expression.
 * So there is no separate shape inference: operators get integers here, and the one message about
 * run-time data is here.
 */
#include "frontend/onnx/lower.h"

const char *shape_text(const struct node *n, const struct uop *x)
{
    return lib_describe(&n->lib, x);
}

/* ----------------------------------------------------------------------------------- attributes */

bool node_has(const struct node *n, const char *name) { return onnx_attr(n->proto, name) != NULL; }

enum dtype node_dtype(const struct node *n, const char *name, enum dtype otherwise)
{
    int64_t v = node_int(n, name, -1);
    return !node_has(n, name)     ? otherwise
           : v > 0 && v < 1 << 16 ? dtype_from_onnx((int)v)
                                  : DTYPE_VOID;
}

int64_t node_int(const struct node *n, const char *name, int64_t otherwise)
{
    return onnx_attr_int(lower_model(n->lower), n->proto, name, otherwise);
}

bool node_int_within(const struct node *n, const char *name, int64_t otherwise, int64_t least,
                     int64_t most, int *v)
{
    int64_t found = node_int(n, name, otherwise);
    if (found < least || found > most)
        return node_error(n, -1, "attribute '%s' is %lld; expected %lld to %lld", name,
                          (long long)found, (long long)least, (long long)most);
    *v = (int)found;
    return true;
}

double node_float(const struct node *n, const char *name, double otherwise)
{
    return onnx_attr_float(lower_model(n->lower), n->proto, name, otherwise);
}

const char *node_string(const struct node *n, const char *name, const char *otherwise)
{
    return onnx_attr_string(lower_model(n->lower), n->proto, name, otherwise);
}

int node_ints(const struct node *n, const char *name, const int64_t **v)
{
    return onnx_attr_ints(lower_model(n->lower), n->proto, name, v);
}

int node_strings(const struct node *n, const char *name, const char *const **v)
{
    return onnx_attr_strings(lower_model(n->lower), n->proto, name, v);
}

struct uop *node_string_weight(const struct node *n, const char *name)
{
    const char *const *v;
    int count = node_strings(n, name, &v);
    int64_t dim = count > 0 ? count : 0;
    return tensor_from_data(n->t, DTYPE_STRING, &dim, 1, dim ? (const void *)v : "",
                            (size_t)dim * sizeof(const char *), NULL);
}

int node_floats(const struct node *n, const char *name, const float **v)
{
    return onnx_attr_floats(lower_model(n->lower), n->proto, name, v);
}

bool node_axis(const struct node *n, int64_t axis, int rank, int *result)
{
    if (axis < -rank || axis >= rank)
        return node_error(n, -1, "axis is %lld, but must be in %d .. %d for an input of rank %d",
                          (long long)axis, -rank, rank - 1, rank);
    *result = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

bool node_axes(const struct node *n, const char *name, int k, int rank, uint32_t *mask, bool *given)
{
    const int64_t *v = NULL;
    int count = name ? node_ints(n, name, &v) : -1;
    *mask = 0;
    *given = count >= 0;
    if (count < 0 && k >= 0 && k < n->nin && n->in[k]) {
        int64_t *known;
        if (!node_known_ints(n, k, &known, &count))
            return false;
        v = known;
        *given = true;
    }
    for (int i = 0; i < count; i++) {
        int axis = 0;
        if (!node_axis(n, v[i], rank, &axis))
            return false;
        if (*mask >> axis & 1)
            return node_error(n, -1, "axis %d is named twice", axis);
        *mask |= 1u << axis;
    }
    return true;
}

/* --------------------------------------------------------------------------------- known values */

/* Element i of the row-major elements of x, whose dimensions must be constants. */
static struct uop *element_at(struct tgc *t, struct uop *x, int64_t i)
{
    int64_t index[MAX_RANK] = {0};
    for (int a = x->ndim - 1; a >= 0; a--) {
        int64_t n = 1;
        uop_const_int(x->dim[a], &n);
        index[a] = i % n;
        i /= n;
    }
    return tensor_element(t, x, index);
}

/* The number of elements, if it is constant and small enough to be read at compile time. */
static bool count_elements(const struct uop *x, int64_t *count)
{
    *count = 1;
    for (int a = 0; a < x->ndim; a++) {
        int64_t n;
        if (!uop_const_int(x->dim[a], &n) || (n > 0 && *count > INT64_C(1) << 40))
            return false;
        *count = sat_mul(*count, n);
    }
    return *count <= 1 << 16;
}

/* The elements of x into elem[]; false: they depend on run-time data. */
static bool try_elements(struct tgc *t, struct uop *x, struct uop **elem, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(elem[i] = element_at(t, x, i)))
            return false;
    return true;
}

static bool read_elements(const struct node *n, int k, struct uop ***elem, int *count, bool quiet)
{
    struct uop *x = k < n->nin ? n->in[k] : NULL;
    if (!x)
        return quiet ? false : node_error(n, k, "input %d is missing", k);
    int64_t total;
    if (!count_elements(x, &total))
        return quiet
                   ? false
                   : node_error(
                         n, k,
                         "its length must be known when the model is compiled, but its shape is %s",
                         shape_text(n, x));
    *elem = mem_array(n->t, (size_t)total + 1, sizeof **elem);
    *count = (int)total;
    if (try_elements(n->t, x, *elem, total) ||
        try_elements(n->t, lower_assume(n->lower, x), *elem, total))
        return true;
    if (quiet)
        return false;
    lower_note_limit(n->lower);
    return node_error(
        n, k,
        "its value must be known when the model is compiled, but depends on run-time data; "
        "make it a constant or an initializer, or compute it from shapes only");
}

bool node_elements(const struct node *n, int k, struct uop ***elem, int *count)
{
    return read_elements(n, k, elem, count, false);
}

bool node_integers(const struct node *n, int k, struct uop ***elem, int *count)
{
    struct uop *x = k < n->nin ? n->in[k] : NULL;
    int64_t total;
    if (!x)
        return node_error(n, k, "input %d is missing", k);
    if (x->ndim > 1)
        return node_error(n, k, "a list is expected, found %s", shape_text(n, x));
    if (!dtype_is_int(x->dtype))
        return node_error(n, k, "integers are expected, found %s", shape_text(n, x));
    if (!count_elements(x, &total))
        return read_elements(n, k, elem, count, false);
    *elem = mem_array(n->t, (size_t)total + 1, sizeof **elem);
    *count = (int)total;
    for (int i = 0; i < *count; i++) {
        struct uop *known = element_at(n->t, x, i);
        struct uop *e = known ? known : node_found(n, node_element(n, x, i));
        known = known ? known : tensor_element(n->t, e, NULL);
        (*elem)[i] = known ? known_index(n->t, known) : e;
    }
    return true;
}

bool node_symbols(const struct node *n, int k, struct uop ***elem, int *count)
{
    if (!node_integers(n, k, elem, count))
        return false;
    for (int i = 0; i < *count; i++)
        if (!((*elem)[i] = node_symbol(n, k, (*elem)[i], node_input_name(n, k, i, *count), 0,
                                       NULL)))
            return false;
    return true;
}

bool node_known(const struct node *n, int k, struct uop ***elem, int *count)
{
    if (!read_elements(n, k, elem, count, false))
        return false;
    if (n->in[k]->ndim > 1)
        return node_error(n, k, "a list is expected, found %s", shape_text(n, n->in[k]));
    if (!dtype_is_int(n->in[k]->dtype))
        return node_error(n, k, "integers are expected, found %s", shape_text(n, n->in[k]));
    for (int i = 0; i < *count; i++)
        (*elem)[i] = known_index(n->t, (*elem)[i]);
    return true;
}

bool node_known_ints(const struct node *n, int k, int64_t **v, int *count)
{
    struct uop **elem;
    if (!node_known(n, k, &elem, count))
        return false;
    *v = mem_array(n->t, (size_t)*count + 1, sizeof **v);
    for (int i = 0; i < *count; i++)
        if (!uop_const_int(elem[i], &(*v)[i]))
            return node_error(
                n, k,
                "element %d must not depend on a dimension that is not fixed; fix it with --dim",
                i);
    return true;
}

bool node_known_int(const struct node *n, int k, int64_t *v)
{
    int64_t *list;
    int count;
    if (!node_known_ints(n, k, &list, &count))
        return false;
    if (count != 1)
        return node_error(n, k, "one element is expected, found %d", count);
    *v = list[0];
    return true;
}

bool node_known_floats(const struct node *n, int k, double **v, int *count)
{
    struct uop **elem;
    if (!read_elements(n, k, &elem, count, false))
        return false;
    *v = mem_array(n->t, (size_t)*count + 1, sizeof **v);
    for (int i = 0; i < *count; i++) {
        struct uop *e = uop_cast(n->t, DTYPE_F64, elem[i]);
        if (e->op != OP_CONST)
            return node_error(
                n, k,
                "element %d must not depend on a dimension that is not fixed; fix it with --dim",
                i);
        (*v)[i] = e->arg.f;
    }
    return true;
}

bool node_is_known(const struct node *n, int k)
{
    struct uop **elem;
    int count;
    return read_elements(n, k, &elem, &count, true);
}

struct uop *node_scalar(const struct node *n, int k)
{
    struct uop *x = n->in[k];
    for (int a = 0; a < x->ndim; a++)
        if (!uop_is_int(x->dim[a], 1)) {
            node_error(n, k, "one element is expected, found %s", shape_text(n, x));
            return NULL;
        }
    int64_t zero[MAX_RANK] = {0};
    struct uop *e = tensor_element(n->t, x, zero);
    return e ? e : uop_reshape(n->t, x, NULL, 0);
}

struct uop *node_variable(const struct node *n, int k)
{
    struct uop *x = node_scalar(n, k);
    return x && n->in[k]->op == OP_BUFFER ? uop_reshape(n->t, n->in[k], NULL, 0) : x;
}

/* --------------------------------------------------------------------------------------- checks */

bool node_same_dtype(const struct node *n, int a, int b)
{
    if (n->in[a]->dtype == n->in[b]->dtype)
        return true;
    return node_error(n, b, "dtype %s is expected, as of input %d; found %s",
                      dtype_name(n->in[a]->dtype), a, dtype_name(n->in[b]->dtype));
}

bool node_rank(const struct node *n, int k, int min, int max)
{
    int rank = n->in[k]->ndim;
    if (rank >= min && rank <= max)
        return true;
    if (min == max)
        return node_error(n, k, "rank %d is expected, found %s", min, shape_text(n, n->in[k]));
    return node_error(n, k, "rank %d .. %d is expected, found %s", min, max,
                      shape_text(n, n->in[k]));
}

bool node_set(struct node *n, int k, struct uop *u)
{
    n->out[k] = u;
    return u != NULL;
}

struct uop *index_vector(struct tgc *t, struct uop *const *elem, int n)
{
    bool constant = true;
    for (int i = 0; i < n; i++)
        constant = constant && elem[i]->op == OP_CONST;
    int64_t dim = n;
    if (constant && n != 1) {
        int64_t *v = mem_array(t, (size_t)n + 1, sizeof *v);
        for (int i = 0; i < n; i++)
            v[i] = elem[i]->arg.i;
        return tensor_from_data(t, DTYPE_INDEX, &dim, 1, v, (size_t)n * sizeof *v, NULL);
    }
    struct uop **part = mem_array(t, (size_t)n, sizeof *part), *one = uop_int(t, 1);
    for (int i = 0; i < n; i++)
        part[i] = uop_reshape(t, elem[i], &one, 1);
    return n == 1 ? part[0] : uop_concat(t, part, n, 0);
}

struct uop *node_slice_at(const struct node *n, struct uop *x, int axis, struct uop *i)
{
    struct uop *r = lib_narrow(&n->lib, x, axis, i, uop_int(n->t, 1));
    return r ? tensor_drop_axes(n->t, r, 1u << axis) : NULL;
}
