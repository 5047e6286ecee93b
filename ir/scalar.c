/* scalar.c - elementwise ops on constants: the semantics that constant folding and sym_eval()
 * share.
 *
 * Floats are computed in double and rounded once to the dtype, which for + - * / sqrt of f32 and
 * narrower gives the correctly rounded result. Integers are computed modulo 2^64 and wrapped to the
 * dtype. Where the IR leaves a result open (a right shift by more than the width, max of zeros of
 * different signs, a negative power of an integer) nothing is computed: the caller keeps the op.
 */
#include "ir/ir.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

int64_t int_floordiv(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return wrap_sub(0, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t int_floormod(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t int_gcd(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t r = x % y;
        x = y;
        y = r;
    }
    return x > INT64_MAX ? INT64_MIN : (int64_t)x;
}

static int64_t int_pow(int64_t a, int64_t n)
{
    int64_t r = 1;
    for (; n; n >>= 1, a = wrap_mul(a, a))
        if (n & 1)
            r = wrap_mul(r, a);
    return r;
}

/* clang-format off: tables */

/* u64: the top bit is a digit, not a sign. */
static bool apply_u64(enum op op, uint64_t a, uint64_t b, int64_t *r)
{
    switch (op) {
    case OP_DIV:
    case OP_FLOORDIV: *r = b ? (int64_t)(a / b) : 0; return true;
    case OP_MOD:
    case OP_FLOORMOD: *r = b ? (int64_t)(a % b) : 0; return true;
    case OP_MAX: *r = (int64_t)(a > b ? a : b); return true;
    case OP_MIN: *r = (int64_t)(a < b ? a : b); return true;
    case OP_LT: *r = a < b; return true;
    case OP_ABS: *r = (int64_t)a; return true;
    case OP_SHR: *r = (int64_t)(a >> (b & 63)); return b < 64;
    default: return false;
    }
}

/* d is the sources' dtype. */
static bool apply_int(enum op op, enum dtype d, int64_t a, int64_t b, int64_t c, int64_t *r)
{
    int bits = d == DTYPE_BOOL ? 1 : dtype_bits(d);
    if (d == DTYPE_U64 && apply_u64(op, (uint64_t)a, (uint64_t)b, r))
        return true;
    switch (op) {
    case OP_NEG: *r = wrap_sub(0, a); break;
    case OP_NOT: *r = d == DTYPE_BOOL ? !a : ~a; break;
    case OP_ABS: *r = a < 0 ? wrap_sub(0, a) : a; break;
    case OP_ADD: *r = wrap_add(a, b); break;
    case OP_SUB: *r = wrap_sub(a, b); break;
    case OP_MUL: *r = wrap_mul(a, b); break;
    case OP_DIV: *r = b == 0 ? 0 : b == -1 ? wrap_sub(0, a) : a / b; break;
    case OP_MOD: *r = b == 0 || b == -1 ? 0 : a % b; break;
    case OP_FLOORDIV: *r = int_floordiv(a, b); break;
    case OP_FLOORMOD: *r = int_floormod(a, b); break;
    case OP_MAX: *r = a > b ? a : b; break;
    case OP_MIN: *r = a < b ? a : b; break;
    case OP_AND: *r = a & b; break;
    case OP_OR: *r = a | b; break;
    case OP_XOR: *r = a ^ b; break;
    case OP_LT: *r = a < b; break;
    case OP_EQ: *r = a == b; break;
    case OP_NE: *r = a != b; break;
    case OP_WHERE: *r = a ? b : c; break;
    case OP_MULACC: *r = wrap_add(wrap_mul(a, b), c); break;
    case OP_SHL:
        if (b < 0)
            return false;
        *r = b >= bits ? 0 : (int64_t)((uint64_t)a << b);
        break;
    case OP_SHR:
        if (b < 0 || b >= bits)
            return false;
        *r = a >> b;
        break;
    case OP_POW:
        if (b < 0)
            return false;
        *r = int_pow(a, b);
        break;
    default: return false;
    }
    return true;
}

/* The sign of a remainder of zero is left open. */
static bool float_floormod(double a, double b, double *r)
{
    *r = fmod(a, b);
    if (*r == 0)
        return signbit(*r) == signbit(b);
    if ((*r < 0) != (b < 0))
        *r += b;
    return true;
}

static bool apply_float1(enum op op, double a, double *r)
{
    switch (op) {
    case OP_NEG: *r = -a; return true;
    case OP_ABS: *r = fabs(a); return true;
    case OP_SQRT: *r = sqrt(a); return true;
    case OP_RECIP: *r = 1.0 / a; return true;
    case OP_EXP: *r = exp(a); return true;
    case OP_LOG: *r = log(a); return true;
    case OP_SIN: *r = sin(a); return true;
    case OP_COS: *r = cos(a); return true;
    case OP_TAN: *r = tan(a); return true;
    case OP_ASIN: *r = asin(a); return true;
    case OP_ACOS: *r = acos(a); return true;
    case OP_ATAN: *r = atan(a); return true;
    case OP_SINH: *r = sinh(a); return true;
    case OP_COSH: *r = cosh(a); return true;
    case OP_TANH: *r = tanh(a); return true;
    case OP_ASINH: *r = asinh(a); return true;
    case OP_ACOSH: *r = acosh(a); return true;
    case OP_ATANH: *r = atanh(a); return true;
    case OP_ERF: *r = erf(a); return true;
    case OP_EXP2: *r = exp2(a); return true;
    case OP_EXP1: *r = 1 + exp(-a); return true;
    case OP_FLOOR: *r = floor(a); return true;
    case OP_CEIL: *r = ceil(a); return true;
    case OP_TRUNC: *r = trunc(a); return true;
    case OP_ROUND: *r = nearbyint(a); return true;
    default: return false;
    }
}

static bool apply_float2(enum op op, double a, double b, double *r)
{
    switch (op) {
    case OP_ADD: *r = a + b; return true;
    case OP_SUB: *r = a - b; return true;
    case OP_MUL: *r = a * b; return true;
    case OP_DIV: *r = a / b; return true;
    case OP_MOD: *r = fmod(a, b); return true;
    case OP_FLOORMOD: return float_floormod(a, b, r);
    case OP_POW: *r = pow(a, b); return true;
    case OP_ATAN2: *r = atan2(a, b); return true;
    case OP_MAX:
    case OP_MIN:
        if (a == 0 && b == 0 && signbit(a) != signbit(b))
            return false;
        *r = a != a || b != b ? (double)NAN : (op == OP_MAX) == (a > b) ? a : b;
        return true;
    default: return false;
    }
}

static bool apply_float(enum op op, enum dtype d, const union scalar *v, union scalar *r)
{
    double x;
    switch (op) {
    case OP_ISNAN: r->i = v[0].f != v[0].f; return true;
    case OP_LT: r->i = v[0].f < v[1].f; return true;
    case OP_EQ: r->i = v[0].f == v[1].f; return true;
    case OP_NE: r->i = v[0].f != v[1].f; return true;
    default: break;
    }
    if (op_nsrc(op) == 1 ? !apply_float1(op, v[0].f, &x)
                         : op_nsrc(op) != 2 || !apply_float2(op, v[0].f, v[1].f, &x))
        return false;
    *r = scalar_cast(d, DTYPE_F64, (union scalar){.f = x});
    return true;
}

/* clang-format on */

bool scalar_apply(enum op op, enum dtype to, enum dtype from, const union scalar *v,
                  union scalar *r)
{
    if (op == OP_CAST) {
        *r = scalar_cast(to, from, v[0]);
        return true;
    }
    if (op == OP_BITCAST) {
        unsigned char bytes[8] = {0};
        if (dtype_bits(to) != dtype_bits(from) || to == DTYPE_BOOL || from == DTYPE_BOOL)
            return false;
        scalar_store(from, bytes, v[0]);
        *r = scalar_load(to, bytes);
        return true;
    }
    if (op == OP_WHERE) {
        *r = v[0].i ? v[1] : v[2];
        return true;
    }
    if (dtype_is_float(from))
        return apply_float(op, to, v, r);
    if (!dtype_is_int(from) && from != DTYPE_BOOL)
        return false;
    bool logical = op_class(op) == CLASS_BINARY &&
                   (op == OP_LT || (op >= OP_AND && op <= OP_XOR) || op == OP_EQ || op == OP_NE ||
                    op == OP_MAX || op == OP_MIN);
    if (from == DTYPE_BOOL && !logical && op != OP_NOT)
        return false;
    int64_t i;
    if (!apply_int(op, from, v[0].i, op_nsrc(op) > 1 ? v[1].i : 0, op_nsrc(op) > 2 ? v[2].i : 0,
                   &i))
        return false;
    *r = scalar_cast(to, DTYPE_I64, (union scalar){.i = i});
    return true;
}

bool buffer_bounds(const struct buffer *b, size_t most, struct element_bounds *e)
{
    bool floats = b && (b->dtype == DTYPE_F32 || dtype_is_f8(b->dtype));
    if (!b || b->kind != BUFFER_WEIGHT || !b->weight.data || b->storage ||
        (!floats && (!dtype_is_int(b->dtype) || dtype_bits(b->dtype) < 8)))
        return false;
    size_t size = dtype_nbytes(b->dtype), n = b->nbytes / size;
    e->whole = true;
    for (size_t i = 0; i < n && n <= most; i++) {
        union scalar v = scalar_load(b->dtype, (const char *)b->weight.data + i * size);
        if (floats && !(fabs(v.f) <= FLT_MAX))
            return false;
        e->whole &= !floats || v.f == rint(v.f);
        if (i == 0 || (floats ? v.f < e->lo.f : v.i < e->lo.i))
            e->lo = v;
        if (i == 0 || (floats ? v.f > e->hi.f : v.i > e->hi.i))
            e->hi = v;
    }
    return n > 0 && n <= most;
}
