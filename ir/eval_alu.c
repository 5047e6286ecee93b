/* eval_alu.c - the meaning of every elementwise op, in one place.
 *
 * Floats are computed in double. A result of a kind narrower than f32 is rounded to it at once,
 * since programs in such kinds are written for that rounding; f32 stays in double, so that the
 * evaluator's own rounding does not hide the error of f32 code when that is measured; but it is
 * rounded before discontinuous ops (floor, comparisons, conversion to integers), and it is infinite
 * where f32 is. Integers wrap to their width; u64 travels as its bits and is compared, divided and
 * shifted as unsigned.
 */
#include <math.h>
#include <string.h>

#include "ir/eval.h"

static bool is_narrow(enum dtype d)
{
    return dtype_is_float(d) && d != DTYPE_F32 && d != DTYPE_F64;
}

/* --------------------------------------------------------------------------------------- floats */

static double float_unary(enum op op, double x)
{
    switch (op) {
    case OP_NEG:
        return -x;
    case OP_ABS:
        return fabs(x);
    case OP_SQRT:
        return sqrt(x);
    case OP_RECIP:
        return 1 / x;
    case OP_EXP:
        return exp(x);
    case OP_LOG:
        return log(x);
    case OP_SIN:
        return sin(x);
    case OP_COS:
        return cos(x);
    case OP_TAN:
        return tan(x);
    case OP_ASIN:
        return asin(x);
    case OP_ACOS:
        return acos(x);
    case OP_ATAN:
        return atan(x);
    case OP_SINH:
        return sinh(x);
    case OP_COSH:
        return cosh(x);
    case OP_TANH:
        return tanh(x);
    case OP_ASINH:
        return asinh(x);
    case OP_ACOSH:
        return acosh(x);
    case OP_ATANH:
        return atanh(x);
    case OP_ERF:
        return erf(x);
    case OP_EXP2:
        return exp2(x);
    case OP_EXP1:
        return 1 + exp(-x);
    case OP_FLOOR:
        return floor(x);
    case OP_CEIL:
        return ceil(x);
    case OP_TRUNC:
        return trunc(x);
    case OP_ROUND:
        return rint(x);
    default:
        return NAN;
    }
}

static double float_floormod(double a, double b)
{
    double m = fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static double float_binary(enum op op, double a, double b)
{
    switch (op) {
    case OP_ADD:
        return a + b;
    case OP_SUB:
        return a - b;
    case OP_MUL:
        return a * b;
    case OP_DIV:
        return a / b;
    case OP_MOD:
        return fmod(a, b);
    case OP_FLOORDIV:
        return floor(a / b);
    case OP_FLOORMOD:
        return float_floormod(a, b);
    case OP_MAX:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case OP_MIN:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case OP_POW:
        return pow(a, b);
    case OP_ATAN2:
        return atan2(a, b);
    default:
        return NAN;
    }
}

static bool float_compare(enum op op, double a, double b)
{
    return op == OP_LT ? a < b : op == OP_EQ ? a == b : a != b;
}

/* ------------------------------------------------------------------------------------- integers */

static uint64_t uint_power(uint64_t a, uint64_t b)
{
    uint64_t r = 1;
    for (; b; b >>= 1, a *= a)
        if (b & 1)
            r *= a;
    return r;
}

/* A negative exponent gives the reciprocal towards zero. */
static int64_t int_power(int64_t a, int64_t b, bool is_signed)
{
    if (b >= 0 || !is_signed)
        return (int64_t)uint_power((uint64_t)a, (uint64_t)b);
    return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
}

static int64_t signed_divide(enum op op, int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return op == OP_DIV || op == OP_FLOORDIV ? (int64_t)(0 - (uint64_t)a) : 0;
    int64_t q = a / b, m = a % b;
    bool down = m != 0 && (m < 0) != (b < 0);
    switch (op) {
    case OP_DIV:
        return q;
    case OP_MOD:
        return m;
    case OP_FLOORDIV:
        return q - down;
    default:
        return down ? m + b : m;
    }
}

static uint64_t unsigned_divide(enum op op, uint64_t a, uint64_t b)
{
    if (b == 0)
        return 0;
    return op == OP_DIV || op == OP_FLOORDIV ? a / b : a % b;
}

static int64_t shift_right(int64_t a, int64_t by, bool is_signed)
{
    bool beyond = by < 0 || by > 63;
    if (!is_signed)
        return beyond ? 0 : (int64_t)((uint64_t)a >> by);
    return a < 0 ? ~(~a >> (beyond ? 63 : by)) : a >> (beyond ? 63 : by);
}

static int64_t int_unary(enum op op, enum dtype d, int64_t x)
{
    switch (op) {
    case OP_NEG:
        return (int64_t)(0 - (uint64_t)x);
    case OP_NOT:
        return d == DTYPE_BOOL ? !x : ~x;
    case OP_ABS:
        return x < 0 && dtype_kind(d) == 'I' ? (int64_t)(0 - (uint64_t)x) : x;
    case OP_FLOOR: case OP_CEIL: case OP_TRUNC: case OP_ROUND:
        return x;
    default:
        return 0;
    }
}

static bool int_less(enum dtype d, int64_t a, int64_t b)
{
    return d == DTYPE_U64 ? (uint64_t)a < (uint64_t)b : a < b;
}

static int64_t int_binary(enum op op, enum dtype d, int64_t a, int64_t b)
{
    bool is_signed = dtype_kind(d) == 'I';
    switch (op) {
    case OP_ADD:
        return d == DTYPE_BOOL ? a | b : (int64_t)((uint64_t)a + (uint64_t)b);
    case OP_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case OP_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_DIV: case OP_MOD: case OP_FLOORDIV: case OP_FLOORMOD:
        return is_signed ? signed_divide(op, a, b)
                         : (int64_t)unsigned_divide(op, (uint64_t)a, (uint64_t)b);
    case OP_MAX:
        return int_less(d, a, b) ? b : a;
    case OP_MIN:
        return int_less(d, a, b) ? a : b;
    case OP_POW:
        return int_power(a, b, is_signed);
    case OP_AND:
        return a & b;
    case OP_OR:
        return a | b;
    case OP_XOR:
        return a ^ b;
    case OP_SHL:
        return b < 0 || b >= dtype_bits(d) ? 0 : (int64_t)((uint64_t)a << b);
    case OP_SHR:
        return shift_right(a, b, is_signed);
    default:
        return 0;
    }
}

static bool string_or_int_compare(enum op op, enum dtype d, int64_t a, int64_t b)
{
    if (d == DTYPE_STRING) {
        int order = strcmp((const char *)(intptr_t)a, (const char *)(intptr_t)b);
        return op == OP_LT ? order < 0 : op == OP_EQ ? order == 0 : order != 0;
    }
    return op == OP_LT ? int_less(d, a, b) : op == OP_EQ ? a == b : a != b;
}

/* --------------------------------------------------------------------------- any elementwise op */

static union scalar bitcast(enum dtype to, enum dtype from, union scalar v)
{
    unsigned char bytes[8] = {0};
    scalar_store(from, bytes, v);
    return scalar_load(to, bytes);
}

/* Discontinuous ops, whose operands must be rounded to f32 first: 5.9999999 is 6 there. */
static bool is_step(enum op op, enum dtype d)
{
    switch (op) {
    case OP_CAST: return !dtype_is_float(d);
    case OP_FLOOR: case OP_CEIL: case OP_TRUNC: case OP_ROUND: case OP_MOD: case OP_FLOORDIV:
    case OP_FLOORMOD: case OP_LT: case OP_EQ: case OP_NE:
        return true;
    default: return false;
    }
}

static double confine(double x)
{
    const double most = 0x1.ffffffp127;          /* from there on f32 rounds to infinity */
    x = x >= most ? INFINITY : x;
    return x <= -most ? -INFINITY : x;
}

void alu_confine(enum dtype d, union scalar *r, int64_t n)
{
    for (int64_t i = 0; i < n && d == DTYPE_F32; i++)
        r[i].f = confine(r[i].f);
}

/* What most elements pass through, without the questions that other ops and kinds ask. */
static bool common_scalar(enum op op, enum dtype d, const union scalar *v, union scalar *r)
{
    if (op != OP_ADD && op != OP_MUL)
        return false;
    if (d == DTYPE_I64)
        r->i = (int64_t)(op == OP_ADD ? (uint64_t)v[0].i + (uint64_t)v[1].i
                                      : (uint64_t)v[0].i * (uint64_t)v[1].i);
    else if (d == DTYPE_F32 || d == DTYPE_F64)
        r->f = op == OP_ADD ? v[0].f + v[1].f : v[0].f * v[1].f;
    else
        return false;
    if (d == DTYPE_F32)
        r->f = confine(r->f);
    return true;
}

union scalar eval_scalar(enum op op, enum dtype d, enum dtype sd, const union scalar *operand)
{
    union scalar r = {.i = 0}, rounded[2];
    const union scalar *v = operand;
    if (common_scalar(op, d, v, &r))
        return r;
    if (sd == DTYPE_F32 && is_step(op, d)) {
        for (int k = 0; k < op_nsrc(op); k++)
            rounded[k].f = (double)(float)operand[k].f;
        v = rounded;
    }
    switch (op) {
    case OP_CAST:
        /* An f32 computed in double is not rounded yet, so a cast to f32 rounds it. */
        return scalar_cast(d, sd == d && d == DTYPE_F32 ? DTYPE_F64 : sd, v[0]);
    case OP_BITCAST:
        return bitcast(d, sd, v[0]);
    case OP_ISNAN:
        r.i = dtype_is_float(sd) && isnan(v[0].f);
        return r;
    case OP_WHERE:
        return v[0].i ? v[1] : v[2];
    case OP_LT: case OP_EQ: case OP_NE:
        r.i = dtype_is_float(sd) ? float_compare(op, v[0].f, v[1].f)
                                 : string_or_int_compare(op, sd, v[0].i, v[1].i);
        return r;
    case OP_MULACC:
        if (dtype_is_float(d))
            r.f = v[0].f * v[1].f + v[2].f;
        else
            r.i = (int64_t)((uint64_t)v[0].i * (uint64_t)v[1].i + (uint64_t)v[2].i);
        break;
    default:
        if (dtype_is_float(d))
            r.f = op_nsrc(op) == 1 ? float_unary(op, v[0].f) : float_binary(op, v[0].f, v[1].f);
        else
            r.i = op_nsrc(op) == 1 ? int_unary(op, d, v[0].i) : int_binary(op, d, v[0].i, v[1].i);
    }
    if (is_narrow(d))
        return scalar_cast(d, DTYPE_F64, r);
    alu_confine(d, &r, 1);
    return dtype_is_float(d) || dtype_bits(d) == 64 ? r : scalar_cast(d, DTYPE_I64, r);
}

union scalar alu_identity(enum op op, enum dtype d)
{
    union scalar r = {.i = 0};
    bool max = op == OP_MAX;
    if (dtype_is_float(d))
        r.f = op == OP_MUL ? 1 : max ? -INFINITY : op == OP_MIN ? INFINITY : 0;
    else if (op == OP_MUL)
        r.i = 1;
    else if (max)
        r.i = dtype_min(d);
    else if (op == OP_MIN)
        r.i = d == DTYPE_U64 ? -1 : dtype_max(d);
    else if (op == OP_AND)
        r = scalar_cast(d, DTYPE_I64, (union scalar){.i = -1});
    return r;
}

/* The few ops that most elements pass through, as loops that a compiler vectorizes. false: another
 * op. */
static bool vector_float(enum op op, int n, union scalar *r, const union scalar *a,
                         const union scalar *b)
{
    switch (op) {
    case OP_ADD:
        for (int i = 0; i < n; i++)
            r[i].f = a[i].f + b[i].f;
        return true;
    case OP_SUB:
        for (int i = 0; i < n; i++)
            r[i].f = a[i].f - b[i].f;
        return true;
    case OP_MUL:
        for (int i = 0; i < n; i++)
            r[i].f = a[i].f * b[i].f;
        return true;
    default:
        return false;
    }
}

/* Coordinates are small and not negative, and 32-bit division is several times faster. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    if (((uint64_t)a | (uint64_t)b) >> 32 == 0 && b != 0)
        return (int64_t)((uint32_t)a / (uint32_t)b);
    return signed_divide(OP_FLOORDIV, a, b);
}

static bool vector_int(enum op op, int n, union scalar *r, const union scalar *a,
                       const union scalar *b)
{
    switch (op) {
    case OP_ADD:
        for (int i = 0; i < n; i++)
            r[i].i = (int64_t)((uint64_t)a[i].i + (uint64_t)b[i].i);
        return true;
    case OP_SUB:
        for (int i = 0; i < n; i++)
            r[i].i = (int64_t)((uint64_t)a[i].i - (uint64_t)b[i].i);
        return true;
    case OP_MUL:
        for (int i = 0; i < n; i++)
            r[i].i = (int64_t)((uint64_t)a[i].i * (uint64_t)b[i].i);
        return true;
    case OP_AND:
        for (int i = 0; i < n; i++)
            r[i].i = a[i].i & b[i].i;
        return true;
    case OP_FLOORDIV:
        for (int i = 0; i < n; i++)
            r[i].i = floor_divide(a[i].i, b[i].i);
        return true;
    case OP_FLOORMOD:
        for (int i = 0; i < n; i++)
            r[i].i = (int64_t)((uint64_t)a[i].i -
                               (uint64_t)floor_divide(a[i].i, b[i].i) * (uint64_t)b[i].i) *
                     (b[i].i != 0);
        return true;
    default:
        return false;
    }
}

static const union scalar *spread(const struct operand *x, int n, union scalar *room)
{
    if (!x->uniform)
        return x->v;
    union scalar v = x->v[0];
    for (int i = 0; i < n; i++)
        room[i] = v;
    return room;
}

void alu_vector(enum op op, enum dtype d, enum dtype sd, int n, union scalar *r,
                const struct operand *x, int nx)
{
    union scalar room[3][LANES], v[3];
    const union scalar *s[3] = {NULL, NULL, NULL};
    for (int k = 0; k < nx; k++)
        s[k] = spread(&x[k], n, room[k]);
    if (nx == 2 && (d == DTYPE_F32 || d == DTYPE_F64) && vector_float(op, n, r, s[0], s[1])) {
        alu_confine(d, r, n);
        return;
    }
    if (nx == 2 && (d == DTYPE_I64 || (d == DTYPE_BOOL && op == OP_AND)) &&
        vector_int(op, n, r, s[0], s[1]))
        return;
    if (op == OP_WHERE) {
        for (int i = 0; i < n; i++)
            r[i] = s[0][i].i ? s[1][i] : s[2][i];
        return;
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < nx; k++)
            v[k] = s[k][i];
        r[i] = eval_scalar(op, d, sd, v);
    }
}
