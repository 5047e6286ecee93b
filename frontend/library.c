/* library.c - the library's messages, argument checks and elementwise helpers.
 *
 * Mistakes of the user are found here, with a message, before the builders of ir/ see them: those
 * treat a mismatch as a bug of ours.
 */
#include "frontend/library.h"

#include <string.h>

struct uop *lib_error(const struct lib *l, const char *format, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    diag_error(l->t, l->at, "%s", message);
    return NULL;
}

const char *lib_describe(const struct lib *l, const struct uop *x)
{
    struct text s = {.t = l->t};
    text_puts(&s, dtype_name(x->dtype));
    if (!x->ndim)
        return s.s;
    for (int a = 0; a < x->ndim; a++) {
        text_puts(&s, a ? ", " : "[");
        uop_print(&s, x->dim[a]);
    }
    text_putc(&s, ']');
    return s.s;
}

bool lib_axis(const struct lib *l, int64_t axis, int ndim, int *normalized)
{
    if (axis < -ndim || axis >= ndim) {
        lib_error(l, "axis %lld does not exist: the tensor has rank %d, so axes are %d..%d",
                  (long long)axis, ndim, -ndim, ndim - 1);
        return false;
    }
    *normalized = (int)(axis < 0 ? axis + ndim : axis);
    return true;
}

bool lib_axes(const struct lib *l, const int64_t *axis, int naxis, int ndim, uint32_t *mask)
{
    *mask = 0;
    for (int i = 0; i < naxis; i++) {
        int a;
        if (!lib_axis(l, axis[i], ndim, &a))
            return false;
        if (*mask >> a & 1) {
            lib_error(l, "axis %lld is named twice", (long long)axis[i]);
            return false;
        }
        *mask |= 1u << a;
    }
    return true;
}

uint32_t lib_all_axes(const struct uop *x) { return (1u << x->ndim) - 1; }

enum dtype lib_acc_dtype(enum dtype d)
{
    return dtype_is_float(d) && d != DTYPE_F64 ? DTYPE_F32 : d;
}

struct uop *lib_cast(const struct lib *l, enum dtype d, struct uop *x)
{
    if (!x)
        return NULL;
    if ((d == DTYPE_STRING) != (x->dtype == DTYPE_STRING))
        return lib_error(l, "a cast between %s and %s is no tensor operation", dtype_name(x->dtype),
                         dtype_name(d));
    return uop_cast(l->t, d, x);
}

struct uop *lib_dim(const struct lib *l, const struct uop *x, int64_t axis)
{
    int a;
    return x && lib_axis(l, axis, x->ndim, &a) ? x->dim[a] : NULL;
}

struct uop *lib_float_of(const struct lib *l, enum dtype d, struct uop *dim)
{
    int64_t v;
    return uop_const_int(dim, &v) ? uop_consti(l->t, d, v) : uop_cast(l->t, d, dim);
}

struct uop *lib_scalar(const struct lib *l, const struct uop *like, double v)
{
    return uop_constf(l->t, like->dtype, v);
}

bool lib_known_int(const struct lib *l, struct uop *x, int64_t i, int64_t *v)
{
    int64_t index[MAX_RANK], n;
    for (int a = x->ndim - 1; a >= 0; a--) {
        if (!uop_const_int(x->dim[a], &n) || n <= 0)
            return false;
        index[a] = i % n;
        i /= n;
    }
    struct uop *e = tensor_element(l->t, x, index);
    return e && uop_const_int(e, v);
}

/* ---- elementwise */

static struct uop *no_broadcast(const struct lib *l, const char *what, const struct uop *a,
                                const struct uop *b)
{
    return lib_error(l,
                     "%s: the shapes of %s and %s do not broadcast; matched from the last axis on, "
                     "sizes must be equal or 1",
                     what, lib_describe(l, a), lib_describe(l, b));
}

static bool op_accepts(enum op op, enum dtype d)
{
    switch (op) {
    case OP_NOT: case OP_AND: case OP_OR: case OP_XOR: return d == DTYPE_BOOL || dtype_is_int(d);
    case OP_SHL: case OP_SHR: case OP_FLOORDIV: return dtype_is_int(d);
    case OP_EQ: case OP_NE: return true;
    case OP_MAX: case OP_MIN: case OP_LT: return d != DTYPE_STRING;
    case OP_NEG: case OP_ABS: case OP_ADD: case OP_SUB: case OP_MUL: case OP_DIV: case OP_MOD:
    case OP_FLOORMOD: case OP_POW:
        return dtype_is_int(d) || dtype_is_float(d);
    default: return dtype_is_float(d);
    }
}

struct uop *lib_unary(const struct lib *l, enum op op, struct uop *x)
{
    if (!x)
        return NULL;
    if (!op_accepts(op, x->dtype))
        return lib_error(l, "%s does not take %s", op_name(op), lib_describe(l, x));
    return uop_unary(l->t, op, x);
}

struct uop *lib_binary(const struct lib *l, enum op op, struct uop *a, struct uop *b)
{
    if (!a || !b)
        return NULL;
    if (a->dtype != b->dtype)
        return lib_error(
            l, "%s: the operands are %s and %s; they must have one dtype (cast one of them)",
            op_name(op), lib_describe(l, a), lib_describe(l, b));
    if (!op_accepts(op, a->dtype))
        return lib_error(l, "%s does not take %s", op_name(op), lib_describe(l, a));
    struct uop *r = tensor_binary(l->t, op, a, b);
    return r ? r : no_broadcast(l, op_name(op), a, b);
}

struct uop *lib_where(const struct lib *l, struct uop *cond, struct uop *a, struct uop *b)
{
    if (!cond || !a || !b)
        return NULL;
    if (cond->dtype != DTYPE_BOOL)
        return lib_error(l, "where: the condition is %s; it must be bool", lib_describe(l, cond));
    if (a->dtype != b->dtype)
        return lib_error(l, "where: the choices are %s and %s; they must have one dtype",
                         lib_describe(l, a), lib_describe(l, b));
    struct uop *r = tensor_where(l->t, cond, a, b);
    if (r)
        return r;
    struct uop *dim[MAX_RANK], *ab[2] = {a, b};
    int ndim;
    return tensor_broadcast_dims(l->t, ab, 2, dim, &ndim)
               ? no_broadcast(l, "where", cond, a->ndim >= b->ndim ? a : b)
               : no_broadcast(l, "where", a, b);
}

struct uop *lib_binaryf(const struct lib *l, enum op op, struct uop *x, double v)
{
    return x ? lib_binary(l, op, x, lib_scalar(l, x, v)) : NULL;
}

struct uop *lib_add(const struct lib *l, struct uop *a, struct uop *b)
{
    return lib_binary(l, OP_ADD, a, b);
}
struct uop *lib_sub(const struct lib *l, struct uop *a, struct uop *b)
{
    return lib_binary(l, OP_SUB, a, b);
}
struct uop *lib_mul(const struct lib *l, struct uop *a, struct uop *b)
{
    return lib_binary(l, OP_MUL, a, b);
}
struct uop *lib_div(const struct lib *l, struct uop *a, struct uop *b)
{
    return lib_binary(l, OP_DIV, a, b);
}

struct uop *lib_clip(const struct lib *l, struct uop *x, struct uop *lo, struct uop *hi)
{
    struct uop *bound[2] = {lo, hi};
    for (int i = 0; i < 2 && x; i++) {
        if (!bound[i])
            continue;
        for (int a = 0; a < bound[i]->ndim; a++)
            if (!uop_is_int(bound[i]->dim[a], 1))
                return lib_error(l, "clip: the bound is %s; it must be a scalar",
                                 lib_describe(l, bound[i]));
        x = lib_binary(l, i ? OP_MIN : OP_MAX, x, uop_reshape(l->t, bound[i], NULL, 0));
    }
    return x;
}

struct uop *lib_prelu(const struct lib *l, struct uop *x, struct uop *slope)
{
    if (!x || !slope)
        return NULL;
    if (x->dtype != slope->dtype || !(slope = tensor_broadcast_to(l->t, slope, x->dim, x->ndim)))
        return lib_error(l, "prelu: the slope must have the dtype of %s and broadcast to its shape",
                         lib_describe(l, x));
    return lib_where(l, lib_binaryf(l, OP_LT, x, 0), lib_mul(l, slope, x), x);
}
