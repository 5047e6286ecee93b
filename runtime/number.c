/* SPDX-License-Identifier: 0BSD */
/* number.c - arithmetic that C lacks: integers that wrap, divisions that never trap, and the narrow
 * float formats.
 *
 * Values of f16, bf16 and the 8- and 4-bit floats are computed in float and rounded to their format
 * after each operation.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

//@ four_bytes
/* four bytes in memory as one int, in the machine's byte order */
static inline int32_t four_bytes(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

//@ dot_bytes
/* sum + the dot product of the four bytes of a, 0..255, and of b, -128..127. With ARM's DSP
 * extension: the even bytes and the odd ones as pairs of 16 bits. */
#ifdef __ARM_FEATURE_DSP
static inline int32_t dot_bytes(int32_t sum, int32_t a, int32_t b)
{
    uint32_t even, odd, even_b, odd_b;
    __asm__("uxtb16 %0, %1" : "=r"(even) : "r"(a));
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(a));
    __asm__("sxtb16 %0, %1" : "=r"(even_b) : "r"(b));
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd_b) : "r"(b));
    __asm__("smlad %0, %1, %2, %3" : "=r"(sum) : "r"(even), "r"(even_b), "r"(sum));
    __asm__("smlad %0, %1, %2, %3" : "=r"(sum) : "r"(odd), "r"(odd_b), "r"(sum));
    return sum;
}
#else
static inline int32_t dot_bytes(int32_t sum, int32_t a, int32_t b)
{
    uint32_t x = (uint32_t)a, products = (uint32_t)sum;
    products += (uint32_t)((int32_t)(x & 255) * (int8_t)b);
    products += (uint32_t)((int32_t)(x >> 8 & 255) * (int8_t)(b >> 8));
    products += (uint32_t)((int32_t)(x >> 16 & 255) * (int8_t)(b >> 16));
    products += (uint32_t)((int32_t)(x >> 24) * (int8_t)(b >> 24));
    return (int32_t)products;
}
#endif

//@ store_four_bytes
static inline void store_four_bytes(void *p, int32_t v) { memcpy(p, &v, sizeof v); }

//@ add_i32
/* Signed overflow is undefined in C; these wrap. */
static inline int32_t add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

//@ sub_i32
static inline int32_t sub_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }

//@ mul_i32
static inline int32_t mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }

//@ add_i64
static inline int64_t add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

//@ sub_i64
static inline int64_t sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

//@ mul_i64
static inline int64_t mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

//@ abs_i32
static inline int32_t abs_i32(int32_t a) { return a < 0 ? (int32_t)(0u - (uint32_t)a) : a; }

//@ abs_i64
static inline int64_t abs_i64(int64_t a) { return a < 0 ? (int64_t)(0u - (uint64_t)a) : a; }

//@ div_i32
/* Integer division: by zero it is zero, and the lowest number by -1 wraps. */
static inline int32_t div_i32(int32_t a, int32_t b)
{
    return b == 0 ? 0 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}

//@ div_i64
static inline int64_t div_i64(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}

//@ div_u32
static inline uint32_t div_u32(uint32_t a, uint32_t b) { return b == 0 ? 0 : a / b; }

//@ div_u64
static inline uint64_t div_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }

//@ mod_i32
/* The remainder with the sign of the dividend; by zero it is zero. */
static inline int32_t mod_i32(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }

//@ mod_i64
static inline int64_t mod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

//@ mod_u32
static inline uint32_t mod_u32(uint32_t a, uint32_t b) { return b == 0 ? 0 : a % b; }

//@ mod_u64
static inline uint64_t mod_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }

//@ floordiv_i32 div_i32 mod_i32
/* Division towards minus infinity. */
static inline int32_t floordiv_i32(int32_t a, int32_t b)
{
    int32_t r = mod_i32(a, b);
    return div_i32(a, b) - (r != 0 && (r < 0) != (b < 0) ? 1 : 0);
}

//@ floordiv_i64 div_i64 mod_i64
static inline int64_t floordiv_i64(int64_t a, int64_t b)
{
    int64_t r = mod_i64(a, b);
    return div_i64(a, b) - (r != 0 && (r < 0) != (b < 0) ? 1 : 0);
}

//@ floormod_i32 mod_i32
/* The remainder with the sign of the divisor. */
static inline int32_t floormod_i32(int32_t a, int32_t b)
{
    int32_t r = mod_i32(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

//@ floormod_i64 mod_i64
static inline int64_t floormod_i64(int64_t a, int64_t b)
{
    int64_t r = mod_i64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

//@ max_i32
static inline int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }

//@ min_i32
static inline int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }

//@ max_i64
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

//@ min_i64
static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

//@ max_u32
static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

//@ min_u32
static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

//@ max_u64
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

//@ min_u64
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

//@ max_f32
/* NaN if either is NaN. */
static inline float max_f32(float a, float b) { return a < b || b != b ? b : a; }

//@ min_f32
static inline float min_f32(float a, float b) { return a > b || b != b ? b : a; }

//@ max_f64
static inline double max_f64(double a, double b) { return a < b || b != b ? b : a; }

//@ min_f64
static inline double min_f64(double a, double b) { return a > b || b != b ? b : a; }

//@ shl_i32
/* Shifts by the width or more give zero, or the sign. */
static inline int32_t shl_i32(int32_t a, int64_t n)
{
    return n < 0 || n > 31 ? 0 : (int32_t)((uint32_t)a << n);
}

//@ shl_i64
static inline int64_t shl_i64(int64_t a, int64_t n)
{
    return n < 0 || n > 63 ? 0 : (int64_t)((uint64_t)a << n);
}

//@ shl_u32
static inline uint32_t shl_u32(uint32_t a, uint64_t n) { return n > 31 ? 0 : a << n; }

//@ shl_u64
static inline uint64_t shl_u64(uint64_t a, uint64_t n) { return n > 63 ? 0 : a << n; }

//@ shr_i32
static inline int32_t shr_i32(int32_t a, int64_t n)
{
    int s = n < 0 || n > 31 ? 31 : (int)n;
    return a < 0 ? ~(~a >> s) : a >> s;
}

//@ shr_i64
static inline int64_t shr_i64(int64_t a, int64_t n)
{
    int s = n < 0 || n > 63 ? 63 : (int)n;
    return a < 0 ? ~(~a >> s) : a >> s;
}

//@ shr_u32
static inline uint32_t shr_u32(uint32_t a, uint64_t n) { return n > 31 ? 0 : a >> n; }

//@ shr_u64
static inline uint64_t shr_u64(uint64_t a, uint64_t n) { return n > 63 ? 0 : a >> n; }

//@ pow_i64
/* Integer powers wrap; a negative exponent gives 0, except of 1 and -1. */
static int64_t pow_i64(int64_t a, int64_t n)
{
    if (n < 0)
        return a == 1 ? 1 : a == -1 ? (n % 2 != 0 ? -1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)a;
    for (; n > 0; n >>= 1, b *= b)
        if (n & 1)
            r *= b;
    return (int64_t)r;
}

//@ pow_u64
static uint64_t pow_u64(uint64_t a, uint64_t n)
{
    uint64_t r = 1;
    for (; n > 0; n >>= 1, a *= a)
        if (n & 1)
            r *= a;
    return r;
}

//@ wrap_i4
/* The low bits, with sign. */
static inline int wrap_i4(int64_t a) { return (int)((a & 15) ^ 8) - 8; }

//@ wrap_i2
static inline int wrap_i2(int64_t a) { return (int)((a & 3) ^ 2) - 2; }

//@ to_i32
/* Float to integer: towards zero, and to the nearest representable number where it does not fit;
 * NaN becomes 0. */
static inline int32_t to_i32(float v)
{
    return v >= 2147483648.0f    ? INT32_MAX
           : v > -2147483648.0f  ? (int32_t)v
           : v <= -2147483648.0f ? INT32_MIN
                                 : 0;
}

//@ to_i64
static inline int64_t to_i64(float v)
{
    return v >= 9223372036854775808.0f    ? INT64_MAX
           : v > -9223372036854775808.0f  ? (int64_t)v
           : v <= -9223372036854775808.0f ? INT64_MIN
                                          : 0;
}

//@ to_u32
static inline uint32_t to_u32(float v)
{
    return v >= 4294967296.0f ? UINT32_MAX : v > 0 ? (uint32_t)v : 0;
}

//@ to_u64
static inline uint64_t to_u64(float v)
{
    return v >= 18446744073709551616.0f ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

//@ to_int
/* To a type of 8 or 16 bits, likewise. */
static inline int to_int(float v, int low, int high)
{
    return v >= (float)high ? high : v > (float)low ? (int)v : v <= (float)low ? low : 0;
}

//@ to_i32_f64
/* Float to integer: towards zero, and to the nearest representable number where it does not fit;
 * NaN becomes 0. */
static inline int32_t to_i32_f64(double v)
{
    return v >= 2147483647.0    ? INT32_MAX
           : v > -2147483648.0  ? (int32_t)v
           : v <= -2147483648.0 ? INT32_MIN
                                : 0;
}

//@ to_i64_f64
static inline int64_t to_i64_f64(double v)
{
    return v >= 9223372036854775808.0    ? INT64_MAX
           : v > -9223372036854775808.0  ? (int64_t)v
           : v <= -9223372036854775808.0 ? INT64_MIN
                                         : 0;
}

//@ to_u32_f64
static inline uint32_t to_u32_f64(double v)
{
    return v >= 4294967295.0 ? UINT32_MAX : v > 0 ? (uint32_t)v : 0;
}

//@ to_u64_f64
static inline uint64_t to_u64_f64(double v)
{
    return v >= 18446744073709551616.0 ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

//@ to_int_f64
static inline int to_int_f64(double v, int low, int high)
{
    return v >= high ? high : v > low ? (int)v : v <= low ? low : 0;
}

//@ bits_f32
static inline uint32_t bits_f32(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

//@ float_bits
static inline float float_bits(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

//@ bits_f64
static inline uint64_t bits_f64(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

//@ double_bits
static inline double double_bits(uint64_t u)
{
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

//@ f16_to_f32 bits_f32 float_bits
/* f16 is passed as its bits. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    if ((h & 0x7c00) == 0x7c00)
        return float_bits(sign | 0x7f800000u | rest);
    /* A subnormal is built as the fraction of 2^-14, which is then subtracted: this never feeds a
     * subnormal float to arithmetic, which may take it for zero (DAZ). */
    if ((h & 0x7c00) == 0)
        return float_bits(sign | bits_f32(float_bits(rest + 0x38800000u) - 0x1p-14f));
    return float_bits(sign | (rest + 0x38000000u));
}

//@ f32_to_f16 bits_f32 float_bits
static inline uint16_t f32_to_f16(float v)
{
    uint32_t u = bits_f32(v), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    if (rest > 0x7f800000)
        return 0x7e00;
    if (rest >= 0x477ff000) /* 65520: rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) /* below 2^-14: adding 0.5 rounds at 2^-24 */
        return (uint16_t)(sign | (bits_f32(float_bits(rest) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
}

//@ round_f16 f16_to_f32 f32_to_f16
static inline float round_f16(float v) { return f16_to_f32(f32_to_f16(v)); }

//@ bf16_to_f32 float_bits
/* bf16 is the upper half of a float. */
static inline float bf16_to_f32(uint16_t h) { return float_bits((uint32_t)h << 16); }

//@ f32_to_bf16 bits_f32
static inline uint16_t f32_to_bf16(float v)
{
    uint32_t u = bits_f32(v);
    return (uint16_t)(v != v ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

//@ round_bf16 bf16_to_f32 f32_to_bf16
static inline float round_bf16(float v) { return bf16_to_f32(f32_to_bf16(v)); }

//@ round_tf32 bits_f32 float_bits
/* 10 bits of mantissa, half away from zero, as PTX's cvt.rna.tf32.f32 has it. */
static inline float round_tf32(float v)
{
    return v != v ? v : float_bits((bits_f32(v) + 0x1000) & 0xffffe000);
}

//@ f32_odd bits_f32 float_bits
/* double to float rounding to odd, so that a second rounding to a narrower format is exact. */
static inline float f32_odd(double v)
{
    float f = (float)v;
    if (f != f || (double)f == v)
        return f;
    uint32_t u = bits_f32(f);
    bool up = v > 0 ? (double)f > v : (double)f < v; /* magnitude was rounded up */
    u = up ? u - 1 : u;
    return float_bits(u | 1);
}

//@ u64_odd
/* An integer to float, rounding to odd: keeps 17 bits at least, the last of which is 1 if any
 * dropped bit was. */
static inline float u64_odd(uint64_t v)
{
    float unit = 1;
    for (; v >> 24 != 0; unit *= 256)
        v = v >> 8 | (uint64_t)((v & 255) != 0);
    return (float)v * unit;
}

//@ i64_odd u64_odd
static inline float i64_odd(int64_t v)
{
    return v < 0 ? -u64_odd(0 - (uint64_t)v) : u64_odd((uint64_t)v);
}

//@ minifloat_to_f32 float_bits
/* The 8- and 4-bit floats, which saturate: sign, exponent and mantissa without special values;
 * `mantissa` bits, exponent bias `bias`. */
static inline float minifloat_to_f32(unsigned bits, int mantissa, int bias)
{
    return bits >> mantissa ? float_bits((bits << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23))
                            : (float)bits * float_bits((uint32_t)(128 - bias - mantissa) << 23);
}

//@ f32_to_minifloat bits_f32 float_bits
/* |v| rounded half to even; the caller saturates what the format cannot represent. */
static inline unsigned f32_to_minifloat(float v, int mantissa, int bias)
{
    uint32_t u = bits_f32(v) & 0x7fffffffu;
    int drop = 23 - mantissa;
    if (u >> 23 < (uint32_t)(128 - bias)) {    /* below the least normal number */
        /* exact: a power of two */
        float scaled = float_bits(u) * (float)(1 << (bias - 1 + mantissa));
        unsigned n = (unsigned)scaled;
        float rest = scaled - (float)n;
        return n + (rest > 0.5f || (rest == 0.5f && (n & 1)) ? 1 : 0);
    }
    u += (1u << (drop - 1)) - 1 + (u >> drop & 1);
    return (u >> drop) - ((unsigned)(127 - bias) << mantissa);
}

//@ f8e4m3fn_to_f32 minifloat_to_f32
static float f8e4m3fn_to_f32(uint8_t b)
{
    float v = (b & 0x7f) == 0x7f ? NAN : minifloat_to_f32(b & 0x7f, 3, 7);
    return b & 0x80 ? -v : v;
}

//@ f32_to_f8e4m3fn f32_to_minifloat
static uint8_t f32_to_f8e4m3fn(float v)
{
    if (v != v)
        return 0x7f;
    unsigned n = f32_to_minifloat(v, 3, 7);
    return (uint8_t)((n > 0x7e ? 0x7e : n) | (signbit(v) ? 0x80u : 0u));
}

//@ round_f8e4m3fn f8e4m3fn_to_f32 f32_to_f8e4m3fn
static inline float round_f8e4m3fn(float v) { return f8e4m3fn_to_f32(f32_to_f8e4m3fn(v)); }

//@ f8e4m3fnuz_to_f32 minifloat_to_f32
static float f8e4m3fnuz_to_f32(uint8_t b)
{
    float v = b == 0x80 ? NAN : minifloat_to_f32(b & 0x7f, 3, 8);
    return b & 0x80 ? -v : v;
}

//@ f32_to_f8e4m3fnuz f32_to_minifloat
static uint8_t f32_to_f8e4m3fnuz(float v)
{
    if (v != v)
        return 0x80;
    unsigned n = f32_to_minifloat(v, 3, 8);
    return (uint8_t)(n == 0 ? 0 : (n > 0x7f ? 0x7f : n) | (v < 0 ? 0x80u : 0u));
}

//@ round_f8e4m3fnuz f8e4m3fnuz_to_f32 f32_to_f8e4m3fnuz
static inline float round_f8e4m3fnuz(float v) { return f8e4m3fnuz_to_f32(f32_to_f8e4m3fnuz(v)); }

//@ f8e5m2_to_f32 minifloat_to_f32
static float f8e5m2_to_f32(uint8_t b)
{
    unsigned n = b & 0x7f;
    float v = n > 0x7c ? NAN : n == 0x7c ? INFINITY : minifloat_to_f32(n, 2, 15);
    return b & 0x80 ? -v : v;
}

//@ f32_to_f8e5m2 f32_to_minifloat
static uint8_t f32_to_f8e5m2(float v)
{
    if (v != v)
        return 0x7e;
    unsigned n = f32_to_minifloat(v, 2, 15);
    return (uint8_t)((n > 0x7b ? 0x7b : n) | (signbit(v) ? 0x80u : 0u));
}

//@ round_f8e5m2 f8e5m2_to_f32 f32_to_f8e5m2
static inline float round_f8e5m2(float v) { return f8e5m2_to_f32(f32_to_f8e5m2(v)); }

/* Without saturation: the value is one of the format, infinity included. */
//@ store_f8e5m2 f32_to_f8e5m2
static inline uint8_t store_f8e5m2(float v)
{
    return v == INFINITY ? 0x7c : v == -INFINITY ? 0xfc : f32_to_f8e5m2(v);
}

//@ f8e5m2fnuz_to_f32 minifloat_to_f32
static float f8e5m2fnuz_to_f32(uint8_t b)
{
    float v = b == 0x80 ? NAN : minifloat_to_f32(b & 0x7f, 2, 16);
    return b & 0x80 ? -v : v;
}

//@ f32_to_f8e5m2fnuz f32_to_minifloat
static uint8_t f32_to_f8e5m2fnuz(float v)
{
    if (v != v)
        return 0x80;
    unsigned n = f32_to_minifloat(v, 2, 16);
    return (uint8_t)(n == 0 ? 0 : (n > 0x7f ? 0x7f : n) | (v < 0 ? 0x80u : 0u));
}

//@ round_f8e5m2fnuz f8e5m2fnuz_to_f32 f32_to_f8e5m2fnuz
static inline float round_f8e5m2fnuz(float v) { return f8e5m2fnuz_to_f32(f32_to_f8e5m2fnuz(v)); }

//@ f4e2m1_to_f32 minifloat_to_f32
static float f4e2m1_to_f32(uint8_t b)
{
    float v = minifloat_to_f32(b & 7, 1, 1);
    return b & 8 ? -v : v;
}

//@ f32_to_f4e2m1 f32_to_minifloat
static uint8_t f32_to_f4e2m1(float v)
{
    if (v != v)
        return 8;
    unsigned n = f32_to_minifloat(v, 1, 1);
    return (uint8_t)((n > 7 ? 7 : n) | (signbit(v) ? 8u : 0u));
}

//@ round_f4e2m1 f4e2m1_to_f32 f32_to_f4e2m1
static inline float round_f4e2m1(float v) { return f4e2m1_to_f32(f32_to_f4e2m1(v)); }

//@ f6e2m3_to_f32 minifloat_to_f32
static float f6e2m3_to_f32(uint8_t b)
{
    float v = minifloat_to_f32(b & 31, 3, 1);
    return b & 32 ? -v : v;
}

//@ f32_to_f6e2m3 f32_to_minifloat
static uint8_t f32_to_f6e2m3(float v)
{
    if (v != v)
        return 32;
    unsigned n = f32_to_minifloat(v, 3, 1);
    return (uint8_t)((n > 31 ? 31 : n) | (signbit(v) ? 32u : 0u));
}

//@ round_f6e2m3 f6e2m3_to_f32 f32_to_f6e2m3
static inline float round_f6e2m3(float v) { return f6e2m3_to_f32(f32_to_f6e2m3(v)); }

//@ f6e3m2_to_f32 minifloat_to_f32
static float f6e3m2_to_f32(uint8_t b)
{
    float v = minifloat_to_f32(b & 31, 2, 3);
    return b & 32 ? -v : v;
}

//@ f32_to_f6e3m2 f32_to_minifloat
static uint8_t f32_to_f6e3m2(float v)
{
    if (v != v)
        return 32;
    unsigned n = f32_to_minifloat(v, 2, 3);
    return (uint8_t)((n > 31 ? 31 : n) | (signbit(v) ? 32u : 0u));
}

//@ round_f6e3m2 f6e3m2_to_f32 f32_to_f6e3m2
static inline float round_f6e3m2(float v) { return f6e3m2_to_f32(f32_to_f6e3m2(v)); }

//@ f8e8m0_to_f32 float_bits
/* f8e8m0 is an exponent, 2^(b - 127): conversion rounds up and drops the sign. */
static float f8e8m0_to_f32(uint8_t b)
{
    return b == 255 ? NAN : b == 0 ? float_bits(0x400000u) : float_bits((uint32_t)b << 23);
}

//@ f32_to_f8e8m0 bits_f32
static uint8_t f32_to_f8e8m0(float v)
{
    uint32_t u = bits_f32(v) & 0x7fffffff, e = u >> 23, fraction = u & 0x7fffff;
    if (e == 255)
        return 255;
    e += e == 0 ? fraction > 0x400000 : fraction > 0; /* rounds up */
    return (uint8_t)(e > 254 ? 254 : e);
}

//@ round_f8e8m0 f8e8m0_to_f32 f32_to_f8e8m0
static inline float round_f8e8m0(float v) { return f8e8m0_to_f32(f32_to_f8e8m0(v)); }
