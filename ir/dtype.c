/* dtype.c - the element types: their names and widths, and scalars in and out of memory.
 *
 * All facts come from dtypes.def; the layouts of the floating-point kinds stand in the table below.
 * A scalar travels as int64_t or double, which hold every value of every kind exactly, so a
 * conversion is one rounding to the target.
 *
 *      value = (-1)^s * 2^(e - bias) * 1.m      e > 0
 *      value = (-1)^s * 2^(1 - bias) * 0.m      e = 0          bits: s | e | m, m lowest
 *
 * Kinds of up to 16 bits are rounded here by hand: integer arithmetic on the bits of the double
 * where the result is normal, adding and subtracting a power of two where it is subnormal. Both
 * round to nearest, ties to even. TF32 rounds as PTX's cvt.rna.tf32.f32 does: to nearest, ties away
 * from zero. E8M0 is a scale, not a number one computes with: it rounds up and drops the sign, as
 * ONNX's Cast does by default.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/ir.h"

struct dtype_info {
    const char *name, *ctype;
    int bits;
    char kind;
    int onnx;
};

static const struct dtype_info info[DTYPE_COUNT] = {
#define DTYPE(name, text, ctype, bits, kind, onnx) {text, ctype, bits, #kind[0], onnx},
#include "ir/dtypes.def"
#undef DTYPE
};

/* Meaning of the codes with the largest exponent. */
enum special { SPECIAL_NONE, SPECIAL_IEEE, SPECIAL_FN, SPECIAL_FNUZ };
/* IEEE: top exponent is Inf and NaN. FN: no Inf, all ones is NaN. FNUZ: no Inf, minus zero is NaN.
 * NONE: neither. */
struct float_format {
    int nexp, nman, bias;
    enum special special;
    bool saturates;              /* a finite value out of range becomes the largest finite one */
};

static const struct float_format *float_format(enum dtype d)
{
    static const struct float_format f4e2m1 = {2, 1, 1, SPECIAL_NONE, true};
    static const struct float_format f6e2m3 = {2, 3, 1, SPECIAL_NONE, true};
    static const struct float_format f6e3m2 = {3, 2, 3, SPECIAL_NONE, true};
    static const struct float_format f8e4m3fn = {4, 3, 7, SPECIAL_FN, true};
    static const struct float_format f8e4m3fnuz = {4, 3, 8, SPECIAL_FNUZ, true};
    static const struct float_format f8e5m2 = {5, 2, 15, SPECIAL_IEEE, true};
    static const struct float_format f8e5m2fnuz = {5, 2, 16, SPECIAL_FNUZ, true};
    static const struct float_format bf16 = {8, 7, 127, SPECIAL_IEEE, false};
    static const struct float_format f16 = {5, 10, 15, SPECIAL_IEEE, false};
    switch (d) {
    case DTYPE_F4E2M1:
        return &f4e2m1;
    case DTYPE_F6E2M3:
        return &f6e2m3;
    case DTYPE_F6E3M2:
        return &f6e3m2;
    case DTYPE_F8E4M3FN:
        return &f8e4m3fn;
    case DTYPE_F8E4M3FNUZ:
        return &f8e4m3fnuz;
    case DTYPE_F8E5M2:
        return &f8e5m2;
    case DTYPE_F8E5M2FNUZ:
        return &f8e5m2fnuz;
    case DTYPE_BF16:
        return &bf16;
    case DTYPE_F16:
        return &f16;
    default:
        return NULL;
    }
}

/* ------------------------------------------------------------------------------------ the table */

const char *dtype_name(enum dtype d) { return info[d].name; }
const char *dtype_ctype(enum dtype d) { return info[d].ctype; }
int dtype_bits(enum dtype d) { return info[d].bits; }
char dtype_kind(enum dtype d) { return info[d].kind; }
size_t dtype_nbytes(enum dtype d) { return ((size_t)info[d].bits + 7) / 8; }
bool dtype_is_half(enum dtype d) { return d == DTYPE_F16 || d == DTYPE_BF16 || d == DTYPE_TF32; }
bool dtype_is_byte(enum dtype d) { return d == DTYPE_I8 || d == DTYPE_U8; }
int dtype_group(enum dtype d) { return DOT_BYTES / (int)dtype_nbytes(d); }

bool dtype_is_f8(enum dtype d)
{
    return d == DTYPE_F8E4M3FN || d == DTYPE_F8E4M3FNUZ || d == DTYPE_F8E5M2 ||
           d == DTYPE_F8E5M2FNUZ;
}

enum dtype dtype_as_bits(enum dtype d)
{
    return !dtype_is_float(d) || dtype_bits(d) > 16 ? d
           : dtype_nbytes(d) == 1                   ? DTYPE_U8
                                                    : DTYPE_U16;
}

bool dtype_is_int(enum dtype d) { return info[d].kind == 'I' || info[d].kind == 'U'; }
int dtype_to_onnx(enum dtype d) { return info[d].onnx; }

enum dtype dtype_from_onnx(int tensor_proto_type)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (info[d].onnx == tensor_proto_type)
            return (enum dtype)d;
    return DTYPE_VOID;
}

bool dtype_parse(const char *s, enum dtype *d)
{
    for (int i = DTYPE_VOID + 1; i < DTYPE_COUNT; i++)
        if (strcmp(info[i].name, s) == 0) {
            *d = (enum dtype)i;
            return true;
        }
    return false;
}

int64_t dtype_min(enum dtype d)
{
    if (info[d].kind == 'I')
        return -1 - dtype_max(d);
    return info[d].kind == 'U' || info[d].kind == 'B' ? 0 : INT64_MIN;
}

int64_t dtype_max(enum dtype d)
{
    switch (info[d].kind) {
    case 'B':
        return 1;
    case 'I':
        return (int64_t)(((uint64_t)1 << (info[d].bits - 1)) - 1);
    case 'U':
        return info[d].bits == 64 ? INT64_MAX : (int64_t)(((uint64_t)1 << info[d].bits) - 1);
    default:
        return INT64_MAX;
    }
}

/* ---------------------------------------------------------------------------- small float kinds */

static uint64_t bits_of(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static double double_of(uint64_t b)
{
    double x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* 2^e for a normal double */
static double power_of_two(int e) { return double_of((uint64_t)(e + 1023) << 52); }

static uint32_t code_mask(const struct float_format *f) { return (1u << (f->nexp + f->nman)) - 1; }

/* The largest finite magnitude's code. */
static uint32_t code_max(const struct float_format *f)
{
    switch (f->special) {
    case SPECIAL_IEEE:
        return code_mask(f) - (1u << f->nman);
    case SPECIAL_FN:
        return code_mask(f) - 1;
    default:
        return code_mask(f);
    }
}

static uint32_t code_nan(const struct float_format *f)
{
    switch (f->special) {
    case SPECIAL_IEEE:
        return code_mask(f) & ~((1u << (f->nman - 1)) - 1);
    case SPECIAL_FN:
        return code_mask(f);
    /* minus zero: NaN in FNUZ; formats without NaN use it as well */
    default:
        return code_mask(f) + 1;
    }
}

static double format_decode(const struct float_format *f, uint32_t code)
{
    uint32_t magnitude = code & code_mask(f);
    bool negative = (code & ~code_mask(f)) != 0;
    if (f->special == SPECIAL_FNUZ && negative && magnitude == 0)
        return NAN;
    if (magnitude > code_max(f))
        return f->special == SPECIAL_IEEE && magnitude == code_max(f) + 1
                   ? (negative ? -INFINITY : INFINITY)
                   : NAN;
    int e = (int)(magnitude >> f->nman);
    uint64_t m = magnitude & ((1u << f->nman) - 1);
    double x = e == 0 ? (double)m * power_of_two(1 - f->bias - f->nman)
                      : double_of((uint64_t)(e - f->bias + 1023) << 52 | m << (52 - f->nman));
    return negative ? -x : x;
}

/* x| rounded to the precision of f, with unbounded exponents above. */
static double format_round(const struct float_format *f, double x)
{
    if (x < power_of_two(1 - f->bias)) {
        /* doubles of this size have the spacing of f's subnormals */
        double unit = power_of_two(1 - f->bias - f->nman + 52);
        /* volatile: rounds to double even where compilers keep more precision */
        volatile double sum = x + unit;
        return sum - unit;
    }
    int shift = 52 - f->nman;
    uint64_t b = bits_of(x), one = 1;
    b += (one << (shift - 1)) - 1 + (b >> shift & 1);
    return double_of(b & ~((one << shift) - 1));
}

static uint32_t format_encode(const struct float_format *f, double x)
{
    if (isnan(x))
        return code_nan(f);
    uint32_t sign = signbit(x) ? code_mask(f) + 1 : 0, magnitude;
    x = fabs(x);
    double r = isinf(x) ? x : format_round(f, x);
    if (r > format_decode(f, code_max(f))) {
        bool to_inf = f->special == SPECIAL_IEEE && (isinf(x) || !f->saturates);
        magnitude = code_max(f) + to_inf;
    } else if (r < power_of_two(1 - f->bias)) {
        magnitude = (uint32_t)(r * power_of_two(f->bias - 1 + f->nman));
    } else {
        uint64_t b = bits_of(r);
        uint32_t e = (uint32_t)((int)(b >> 52) - 1023 + f->bias);
        magnitude = e << f->nman | (uint32_t)(b >> (52 - f->nman) & ((1u << f->nman) - 1));
    }
    return magnitude == 0 && f->special == SPECIAL_FNUZ ? 0 : sign | magnitude;
}

static double e8m0_decode(uint8_t code) { return code == 255 ? NAN : power_of_two(code - 127); }

static uint8_t e8m0_encode(double x)
{
    if (isnan(x) || isinf(x))
        return 255;
    int e;
    double m = frexp(fabs(x), &e);                               /* m in [0.5, 1) */
    int up = m == 0 ? -127 : m == 0.5 ? e - 1 : e;
    return (uint8_t)((up < -127 ? -127 : up > 127 ? 127 : up) + 127);
}

/* To 11 bits of an f32, half away from zero; subnormals have the spacing of the
 * smallest normal numbers. */
static double tf32_round(double x)
{
    enum { BITS = 11, LEAST = -125, MOST = 128 };
    int e;
    if (isnan(x) || isinf(x) || x == 0)
        return x;
    (void)frexp(x, &e);                                          /* |x| in [2^(e-1), 2^e) */
    int last = (e > LEAST ? e : LEAST) - BITS;
    double r = ldexp(round(ldexp(x, -last)), last);
    return fabs(r) < ldexp(1, MOST) ? r : copysign(INFINITY, r);
}

/* --------------------------------------------------------------------------------------- memory */

/* The low bits of v as an integer of kind d. */
static int64_t int_wrap(enum dtype d, int64_t v)
{
    if (info[d].kind == 'B')
        return v != 0;
    if (info[d].bits == 64)
        return v;
    uint64_t mask = ((uint64_t)1 << info[d].bits) - 1, low = (uint64_t)v & mask;
    if (info[d].kind == 'I' && low > mask >> 1)
        return (int64_t)low - (int64_t)mask - 1;
    return (int64_t)low;
}

union scalar scalar_load(enum dtype d, const void *p)
{
    union scalar v = {.i = 0};
    const struct float_format *f = float_format(d);
    uint8_t b1;
    uint16_t b2;
    uint32_t b4;
    float f4;
    switch (dtype_nbytes(d)) {
    case 1:
        memcpy(&b1, p, 1);
        if (d == DTYPE_F8E8M0)
            v.f = e8m0_decode(b1);
        else if (f)
            v.f = format_decode(f, b1 & (code_mask(f) << 1 | 1));
        else
            v.i = int_wrap(d, b1);
        break;
    case 2:
        memcpy(&b2, p, 2);
        if (f)
            v.f = format_decode(f, b2);
        else
            v.i = int_wrap(d, b2);
        break;
    case 4:
        memcpy(&b4, p, 4);
        memcpy(&f4, p, 4);
        if (d == DTYPE_F32 || d == DTYPE_TF32)
            v.f = (double)f4;
        else
            v.i = int_wrap(d, b4);
        break;
    case 8:
        memcpy(&v, p, 8);
        break;
    default:
        break;
    }
    return v;
}

void scalar_store(enum dtype d, void *p, union scalar v)
{
    const struct float_format *f = float_format(d);
    uint8_t b1;
    uint16_t b2;
    uint32_t b4;
    float f4;
    switch (dtype_nbytes(d)) {
    case 1:
        b1 = d == DTYPE_F8E8M0 ? e8m0_encode(v.f)
             : f               ? (uint8_t)format_encode(f, v.f)
                               : (uint8_t)int_wrap(d, v.i);
        memcpy(p, &b1, 1);
        break;
    case 2:
        b2 = f ? (uint16_t)format_encode(f, v.f) : (uint16_t)v.i;
        memcpy(p, &b2, 2);
        break;
    case 4:
        if (d == DTYPE_F32 || d == DTYPE_TF32) {
            f4 = (float)(d == DTYPE_TF32 ? tf32_round(v.f) : v.f);
            memcpy(p, &f4, 4);
        } else {
            b4 = (uint32_t)v.i;
            memcpy(p, &b4, 4);
        }
        break;
    case 8:
        memcpy(p, &v, 8);
        break;
    default:
        break;
    }
}

/* ---------------------------------------------------------------------------------------- casts */

static double float_round(enum dtype to, double x)
{
    const struct float_format *f = float_format(to);
    if (f) {
        /* ONNX: saturate=1 saturates infinities, too */
        if (isinf(x) && f->saturates)
            x = x < 0 ? -DBL_MAX : DBL_MAX;
        return format_decode(f, format_encode(f, x));
    }
    if (to == DTYPE_F8E8M0)
        return e8m0_decode(e8m0_encode(x));
    if (to == DTYPE_TF32)
        return tf32_round(x);
    return to == DTYPE_F32 ? (double)(float)x : x;
}

static int64_t float_to_int(enum dtype to, double x)
{
    if (isnan(x))
        return 0;
    bool is_signed = info[to].kind == 'I';
    double end = ldexp(1, info[to].bits - is_signed);            /* first value above the range */
    x = trunc(x);
    if (x >= end)
        return info[to].bits == 64 && !is_signed ? -1 : dtype_max(to);
    if (x < (is_signed ? -end : 0))
        return dtype_min(to);
    return x >= 0x1p63 ? (int64_t)(uint64_t)x : (int64_t)x;
}

/* An integer to a float kind, rounded once: an integer that a double cannot hold is first rounded
 * to odd, at a precision far above that of every narrower kind, so the second rounding is right. */
static double int_to_float(enum dtype to, enum dtype from, int64_t v)
{
    bool negative = v < 0 && from != DTYPE_U64;
    uint64_t a = negative ? 0 - (uint64_t)v : (uint64_t)v;
    if (to != DTYPE_F64 && a >> 53 != 0)
        a = (a >> 11 | ((a & 0x7ff) != 0)) << 11;
    return float_round(to, negative ? -(double)a : (double)a);
}

union scalar scalar_cast(enum dtype to, enum dtype from, union scalar v)
{
    union scalar r = {.i = 0};
    bool from_float = dtype_is_float(from);
    if (dtype_is_float(to))
        r.f = from == to ? v.f : from_float ? float_round(to, v.f) : int_to_float(to, from, v.i);
    else if (to == DTYPE_BOOL)
        r.i = from_float ? v.f != 0 : v.i != 0;
    else
        r.i = from_float ? float_to_int(to, v.f) : int_wrap(to, v.i);
    return r;
}
