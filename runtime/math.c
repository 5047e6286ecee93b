/* SPDX-License-Identifier: 0BSD */
/* math.c - elementary functions, so that an emitted file needs no libm and gives the same bits
 * everywhere.
 *
 * f64: argument reduction and Taylor or rational series, within a few units in the last place (pow:
 * within 2e-13 relative). f32: exp, tanh and erf in float for speed, within 2 units; the rest
 * through f64. Straight-line code where loops over arrays should vectorize.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_f32(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}
static inline float float_bits(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}
static inline uint64_t bits_f64(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}
static inline double double_bits(uint64_t u)
{
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

//@ is_nan_f32
/* bool, where isnan() is an int of any value: it may be stored as a byte. */
static inline bool is_nan_f32(float x) { return x != x; }

//@ is_nan_f64
static inline bool is_nan_f64(double x) { return x != x; }

//@ floor_f32
static inline float floor_f32(float x)
{
    if (!(fabsf(x) < 0x1p23f))
        return x;
    float t = (float)(int32_t)x;
    return copysignf(t > x ? t - 1 : t, x);
}

//@ ceil_f32
static inline float ceil_f32(float x)
{
    if (!(fabsf(x) < 0x1p23f))
        return x;
    float t = (float)(int32_t)x;
    return copysignf(t < x ? t + 1 : t, x);
}

//@ trunc_f32
static inline float trunc_f32(float x)
{
    return fabsf(x) < 0x1p23f ? copysignf((float)(int32_t)x, x) : x;
}

//@ round_f32
/* Half to even: adding 2^23 leaves no room for a fraction. */
static inline float round_f32(float x)
{
    return fabsf(x) < 0x1p23f ? copysignf(fabsf(x) + 0x1p23f - 0x1p23f, x) : x;
}

//@ floor_f64
static inline double floor_f64(double x)
{
    if (!(fabs(x) < 0x1p52))
        return x;
    double t = (double)(int64_t)x;
    return copysign(t > x ? t - 1 : t, x);
}

//@ ceil_f64
static inline double ceil_f64(double x)
{
    if (!(fabs(x) < 0x1p52))
        return x;
    double t = (double)(int64_t)x;
    return copysign(t < x ? t + 1 : t, x);
}

//@ trunc_f64
static inline double trunc_f64(double x)
{
    return fabs(x) < 0x1p52 ? copysign((double)(int64_t)x, x) : x;
}

//@ round_f64
/* Half to even. */
static inline double round_f64(double x)
{
    return fabs(x) < 0x1p52 ? copysign(fabs(x) + 0x1p52 - 0x1p52, x) : x;
}

//@ sqrt_f64
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The processor's square root, where a call of libm would be the compiler's choice. */
static inline double sqrt_f64(double x)
{
#if defined __SSE2__
    return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)));
#elif defined __GNUC__ && defined __aarch64__
    double r;
    __asm__("fsqrt %d0, %d1" : "=w"(r) : "w"(x));
    return r;
#elif defined __GNUC__ && defined __arm__ && defined __ARM_FP && (__ARM_FP & 8)
    double r;
    __asm__("vsqrt.f64 %P0, %P1" : "=w"(r) : "w"(x));
    return r;
#elif defined __GNUC__ && defined __riscv_flen && __riscv_flen >= 64
    double r;
    __asm__("fsqrt.d %0, %1" : "=f"(r) : "f"(x));
    return r;
#elif defined __GNUC__ && defined __s390x__
    double r;
    __asm__("sqdbr %0, %1" : "=f"(r) : "f"(x));
    return r;
#else
    uint64_t u, m, root = 0, rest = 0;
    memcpy(&u, &x, sizeof u);
    m = u & 0xfffffffffffffu;
    int e = (int)(u >> 52);
    if (u << 1 == 0 || (e & 2047) == 2047 || u >> 63 != 0) /* zero, no number or a negative one */
        return u << 1 == 0 || u << 1 > 0xffe0000000000000u || u >> 63 == 0 ? x : (double)NAN;
    if (e > 0)
        m |= (uint64_t)1 << 52;
    else
        for (e = 1; m >> 52 == 0; e--)
            m <<= 1;
    /* x = m * 2^(e - 1075), with an even power. Each digit of the root takes two digits of m.
     * One digit more than the result needs decides the rounding: the remainder is never
     * exactly halfway. */
    m <<= e & 1 ? 10 : 11;
    for (int i = 0; i < 54; i++, m <<= 2) {
        rest = rest << 2 | m >> 62;
        root <<= 1;
        if (rest > root << 1) {
            rest -= (root << 1) + 1;
            root++;
        }
    }
    u = ((uint64_t)((e + 1021 + (e & 1)) / 2) << 52) + ((root + 1) >> 1);
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

//@ sqrt_f32
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

/* The processor's square root, where a call of libm would be the compiler's choice. */
static inline float sqrt_f32(float x)
{
#if defined __SSE2__
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#elif defined __GNUC__ && defined __aarch64__
    float r;
    __asm__("fsqrt %s0, %s1" : "=w"(r) : "w"(x));
    return r;
#elif defined __GNUC__ && defined __arm__ && defined __ARM_FP && (__ARM_FP & 4)
    float r;
    __asm__("vsqrt.f32 %0, %1" : "=t"(r) : "t"(x));
    return r;
#elif defined __GNUC__ && defined __riscv_flen && __riscv_flen >= 32
    float r;
    __asm__("fsqrt.s %0, %1" : "=f"(r) : "f"(x));
    return r;
#elif defined __GNUC__ && defined __s390x__
    float r;
    __asm__("sqebr %0, %1" : "=f"(r) : "f"(x));
    return r;
#else
    uint32_t u, m, root = 0, rest = 0;
    memcpy(&u, &x, sizeof u);
    m = u & 0x7fffffu;
    int e = (int)(u >> 23);
    if (u << 1 == 0 || (e & 255) == 255 || u >> 31 != 0) /* zero, no number or a negative one */
        return u << 1 == 0 || u << 1 > 0xff000000u || u >> 31 == 0 ? x : NAN;
    if (e > 0)
        m |= 0x800000u;
    else
        for (e = 1; m >> 23 == 0; e--)
            m <<= 1;
    /* x = m * 2^(e - 150), with an even power. Each digit of the root takes two digits of m.
     * One digit more than the result needs decides the rounding: the remainder is never
     * exactly halfway. */
    m <<= e & 1 ? 7 : 8;
    for (int i = 0; i < 25; i++, m <<= 2) {
        rest = rest << 2 | m >> 30;
        root <<= 1;
        if (rest > root << 1) {
            rest -= (root << 1) + 1;
            root++;
        }
    }
    u = ((uint32_t)((e + 125 + (e & 1)) / 2) << 23) + ((root + 1) >> 1);
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

//@ mul_add_f32
/* a * b + c. Rounded twice in C, unless the compiler contracts it; once in the languages of
 * GPUs, whose compilers fuse nothing of themselves. */
static inline float mul_add_f32(float a, float b, float c) { return a * b + c; }

//@ exp_f32 mul_add_f32 bits_f32 float_bits
/* e^x = 2^k * e^r, r in +-ln2/2; k comes out of the low bits of x*log2(e) + 1.5*2^23. */
static inline float exp_f32(float x)
{
    float v = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    float shifted = mul_add_f32(v, 1.44269504f, 12582912.0f), k = shifted - 12582912.0f;
    float r = mul_add_f32(k, 2.12194440e-4f, mul_add_f32(k, -0.693359375f, v));
    float p = mul_add_f32(1.98756915e-4f, r, 1.3981999507e-3f);
    p = mul_add_f32(p, r, 8.3334519073e-3f);
    p = mul_add_f32(p, r, 4.1665795894e-2f);
    p = mul_add_f32(p, r, 1.6666665459e-1f);
    p = mul_add_f32(p, r, 5.0000001201e-1f);
    p = mul_add_f32(p * r, r, r) + 1.0f;
    uint32_t n = bits_f32(shifted) - 0x4b400000u + 254u,
             half = n >> 1; /* 2^k in two factors: k may be beyond the range of one */
    return p * float_bits(half << 23) * float_bits((n - half) << 23);
}

//@ exp2_f32 exp_f32
static inline float exp2_f32(float x) { return exp_f32(x * 0.693147181f); }

//@ exp_f64 bits_f64 double_bits
static inline double exp_f64(double x)
{
    double v = x < -746.0 ? -746.0 : x > 710.0 ? 710.0 : x;
    double shifted = v * 1.4426950408889634 + 0x1.8p52, k = shifted - 0x1.8p52;
    double r = v - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800.0;
    static const double c[] = {
        1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
        1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5};
    for (int i = 0; i < 11; i++)
        p = p * r + c[i];
    p = p * r * r + r + 1.0;
    uint64_t n = bits_f64(shifted) - 0x4338000000000000u + 2046u, half = n >> 1;
    return p * double_bits(half << 52) * double_bits((n - half) << 52);
}

//@ log_f64 bits_f64 double_bits
/* x = 2^k * m, m in sqrt(1/2) .. sqrt(2); log m = 2 atanh((m - 1) / (m + 1)). */
static double log_f64(double x)
{
    if (!(x > 0) || x > 0x1.fffffffffffffp1023)
        return x == 0 ? -(double)INFINITY : x > 0 ? x : (double)NAN;
    int k = x < 0x1p-1022 ? -54 : 0;
    uint64_t u = bits_f64(x < 0x1p-1022 ? x * 0x1p54 : x);
    k += (int)(u >> 52) - 1023;
    double m = double_bits((u & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        k++;
    }
    double f = m - 1, s = f / (m + 1), z = s * s, t = 1.0 / 23;
    for (int n = 21; n >= 3; n -= 2)
        t = t * z + 1.0 / n;
    double half = 0.5 * f * f; /* log m = f - (f^2/2 - s*(f^2/2 + 2 z t)) */
    return k * 6.93147180369123816490e-01 -
           ((half - (s * (half + 2 * z * t) + k * 1.90821492927058770002e-10)) - f);
}

//@ log_f32 log_f64
static inline float log_f32(float x) { return (float)log_f64((double)x); }

//@ log1p_f64 log_f64
static double log1p_f64(double x)
{
    double u = 1 + x;
    return u == 1 || u > 0x1p1023 ? (u == 1 ? x : log_f64(u))
                                  : log_f64(u) * (x / (u - 1)); /* repairs what 1 + x lost */
}

//@ expm1_f64 exp_f64 log_f64
static double expm1_f64(double x)
{
    double u = exp_f64(x);
    if (u == 1)
        return x;
    return u - 1 == -1 || u > 0x1p60 ? u - 1 : (u - 1) * (x / log_f64(u));
}

//@ tanh_f32 exp_f32 mul_add_f32
static inline float tanh_f32(float x)
{
    float z = x * x, p = mul_add_f32(-5.70498872745e-3f, z, 2.06390887954e-2f);
    p = mul_add_f32(p, z, -5.37397155531e-2f);
    p = mul_add_f32(p, z, 1.33314422036e-1f);
    p = mul_add_f32(p, z, -3.33332819422e-1f);
    float small = mul_add_f32(p * z, x, x);
    float large = copysignf(1.0f - 2.0f / (exp_f32(2.0f * fabsf(x)) + 1.0f), x);
    return fabsf(x) < 0.625f ? small : x != x ? x : large;
}

//@ tanh_f64 expm1_f64
static double tanh_f64(double x)
{
    double t = expm1_f64(-2 * fabs(x));
    return copysign(-t / (2 + t), x);
}

//@ sinh_f64 expm1_f64 exp_f64
static double sinh_f64(double x)
{
    double a = fabs(x), e = a < 700 ? expm1_f64(a) : 0, half = a < 700 ? 0 : exp_f64(a / 2);
    return copysign(a < 700 ? 0.5 * (e + e / (e + 1)) : 0.5 * half * half, x);
}

//@ cosh_f64 exp_f64
static double cosh_f64(double x)
{
    double a = fabs(x), half = exp_f64(a / 2);
    return a < 700 ? 0.5 * (half * half + 1 / (half * half)) : 0.5 * half * half;
}

//@ asinh_f64 log1p_f64 sqrt_f64
static double asinh_f64(double x)
{
    double a = fabs(x);
    double r = a > 0x1p28 ? log_f64(a) + 0.6931471805599453
                          : log1p_f64(a + a * a / (1 + sqrt_f64(1 + a * a)));
    return copysign(r, x);
}

//@ acosh_f64 log1p_f64 sqrt_f64
static double acosh_f64(double x)
{
    double t = x - 1;
    return x > 0x1p28 ? log_f64(x) + 0.6931471805599453
           : t < 0    ? (double)NAN
                      : log1p_f64(t + sqrt_f64(2 * t + t * t));
}

//@ atanh_f64 log1p_f64
static double atanh_f64(double x)
{
    double a = fabs(x);
    return a > 1 ? (double)NAN
                 : copysign(a == 1 ? (double)INFINITY : 0.5 * log1p_f64(2 * a / (1 - a)), x);
}

//@ reduce_f64 bits_f64
/* x = (quadrant + r / (pi/2)) * pi/2, r in +-pi/4. Returns r. Large x: Payne and Hanek, with as
 * many digits of 2/pi as it takes. */
static double reduce_f64(double x, int *quadrant)
{
    static const uint32_t two_over_pi[42] = {
        0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
        0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e,
        0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b,
        0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7,
        0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1,
        0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d, 0xa9e39161, 0x5ee61b08,
    };
    if (fabs(x) < 0x1p20) {
        double k = x * 0.6366197723675814 + 0x1.8p52 - 0x1.8p52;
        *quadrant = (int)((int64_t)k & 3);
        return x - k * 1.57079632673412561417e+00 - k * 6.07710050630396597660e-11 -
               k * 2.02226624879595063154e-21;
    }
    /* |x| = m * 2^e. Digits of 2/pi above the first one kept only add multiples of 4; six words
     * times m give what remains. */
    uint64_t u = bits_f64(fabs(x)), m = (u & 0xfffffffffffffu) | 0x10000000000000u, carry = 0;
    int e = (int)(u >> 52) - 1075, first = e - 2;
    uint32_t word[6], product[6];
    for (int i = 0; i < 6; i++) {
        int bit = first + 32 * i, at = (bit + 64) / 32 - 2, shift = (bit + 64) % 32;
        uint64_t pair =
            (uint64_t)(at < 0 ? 0 : two_over_pi[at]) << 32 | (at + 1 < 0 ? 0 : two_over_pi[at + 1]);
        word[i] = (uint32_t)(pair >> (32 - shift));
    }
    for (int i = 5; i >= 0; i--) { /* the low half of m, then the high half */
        carry += (uint64_t)word[i] * (m & 0xffffffffu);
        product[i] = (uint32_t)carry;
        carry >>= 32;
    }
    carry = 0;
    for (int i = 5; i >= 1; i--) {
        carry += (uint64_t)word[i] * (m >> 32) + product[i - 1];
        product[i - 1] = (uint32_t)carry;
        carry >>= 32;
    }
    uint64_t high = (uint64_t)product[0] << 32 | product[1],
             low = (uint64_t)product[2] << 32 | product[3];
    int q = (int)(high >> 62);
    high = high << 2 | low >> 62;
    low <<= 2;
    int negative = high >> 63 != 0;
    if (negative) { /* nearer to the next quadrant */
        q++;
        low = ~low + 1;
        high = ~high + (low == 0);
    }
    double r = ((double)high * 0x1p-64 + (double)low * 0x1p-128) * 1.5707963267948966;
    r = negative ? -r : r;
    *quadrant = (x < 0 ? -q : q) & 3;
    return x < 0 ? -r : r;
}

//@ sin_quadrant_f64
/* sin(r + quadrant * pi/2) for r in +-pi/4. */
static double sin_quadrant_f64(double r, int quadrant)
{
    double z = r * r, p;
    if (quadrant & 1) {
        p = 1.0 / 6402373705728000.0;
        static const double c[] = {1.0 / 20922789888000.0,
                                   1.0 / 87178291200.0,
                                   1.0 / 479001600,
                                   1.0 / 3628800,
                                   1.0 / 40320,
                                   1.0 / 720,
                                   1.0 / 24,
                                   0.5};
        for (int i = 0; i < 8; i++)
            p = c[i] - p * z;
        p = 1 - p * z;
    } else {
        p = 1.0 / 355687428096000.0;
        static const double c[] = {1.0 / 1307674368000.0,
                                   1.0 / 6227020800.0,
                                   1.0 / 39916800,
                                   1.0 / 362880,
                                   1.0 / 5040,
                                   1.0 / 120,
                                   1.0 / 6};
        for (int i = 0; i < 7; i++)
            p = c[i] - p * z;
        p = r - p * z * r;
    }
    return quadrant & 2 ? -p : p;
}

//@ sin_f64 reduce_f64 sin_quadrant_f64
static double sin_f64(double x)
{
    int q = 0;
    if (!(fabs(x) <= 0x1.fffffffffffffp1023))
        return (double)NAN;
    double r = reduce_f64(x, &q);
    return sin_quadrant_f64(r, q);
}

//@ cos_f64 reduce_f64 sin_quadrant_f64
static double cos_f64(double x)
{
    int q = 0;
    if (!(fabs(x) <= 0x1.fffffffffffffp1023))
        return (double)NAN;
    double r = reduce_f64(x, &q);
    return sin_quadrant_f64(r, q + 1);
}

//@ tan_f64 reduce_f64 sin_quadrant_f64
static double tan_f64(double x)
{
    int q = 0;
    if (!(fabs(x) <= 0x1.fffffffffffffp1023))
        return (double)NAN;
    double r = reduce_f64(x, &q);
    return sin_quadrant_f64(r, q) / sin_quadrant_f64(r, q + 1);
}

//@ atan_f64
static double atan_f64(double x)
{
    double a = fabs(x), base = 0, t = 1.0 / 45;
    int inverse = a > 1;
    if (inverse)
        a = 1 / a;
    if (a > 0.41421356237309503) { /* tan(pi/8) */
        a = (a - 1) / (a + 1);
        base = 0.78539816339744828;
    }
    double z = a * a;
    for (int n = 43; n >= 1; n -= 2)
        t = 1.0 / n - t * z;
    double r = base + t * a;
    return x != x ? x : copysign(inverse ? 1.5707963267948966 - r : r, x);
}

//@ atan2_f64 atan_f64
static double atan2_f64(double y, double x)
{
    if (x != x || y != y)
        return (double)NAN;
    double a = fabs(x), b = fabs(y), r;
    if (a == b)
        r = a == 0 ? 0 : 0.78539816339744828;
    else
        r = a > b ? atan_f64(b / a) : 1.5707963267948966 - atan_f64(a / b);
    return copysign(copysign(1.0, x) < 0 ? 3.1415926535897931 - r : r, y);
}

//@ asin_f64 atan2_f64 sqrt_f64
static double asin_f64(double x)
{
    return fabs(x) > 1 ? (double)NAN : atan2_f64(x, sqrt_f64((1 - x) * (1 + x)));
}

//@ acos_f64 atan2_f64 sqrt_f64
static double acos_f64(double x)
{
    return fabs(x) > 1 ? (double)NAN : atan2_f64(sqrt_f64((1 - x) * (1 + x)), x);
}

//@ erf_f32 exp_f32 mul_add_f32
/* |x| < 0.92: a polynomial. Beyond: 1 - e^q, q a polynomial, too. */
static inline float erf_f32(float x)
{
    float a = fabsf(x), z = x * x, v = a > 4.0f ? 4.0f : a;
    float small = mul_add_f32(-5.99087216e-4f, z, 4.99318447e-3f);
    small = mul_add_f32(small, z, -2.67666206e-2f);
    small = mul_add_f32(small, z, 1.12818167e-1f);
    small = mul_add_f32(small, z, -3.76124948e-1f);
    small = mul_add_f32(small, z, 1.28379151e-1f);
    float q = mul_add_f32(1.95720713e-4f, v, -3.04109324e-3f);
    q = mul_add_f32(q, v, 2.22184528e-2f);
    q = mul_add_f32(q, v, -1.03914030e-1f);
    q = mul_add_f32(q, v, -6.37202263e-1f);
    q = mul_add_f32(q, v, -1.12766373f);
    q = mul_add_f32(q, v, -1.98554685e-4f);
    float large = copysignf(1.0f - exp_f32(q), x);
    return a < 0.921875f ? mul_add_f32(small, x, x) : large;
}

//@ erf_f64 exp_f64
static double erf_f64(double x)
{
    double a = fabs(x), z = x * x;
    if (a > 6 || x != x)
        return x != x ? x : copysign(1.0, x);
    if (a < 3) { /* 2/sqrt(pi) e^-x^2 sum of 2^n x^(2n+1) / (2n+1)!!: all terms of one sign */
        double term = x, sum = x;
        for (int n = 1; n < 80; n++) {
            term *= 2 * z / (2 * n + 1);
            sum += term;
        }
        return sum * exp_f64(-z) * 1.1283791670955126;
    }
    double f = a; /* a continued fraction, from its far end */
    for (int n = 60; n >= 1; n--)
        f = a + 0.5 * n / f;
    return copysign(1 - exp_f64(-z) / (f * 1.7724538509055161), x);
}

//@ pow_f64 exp_f64 log_f64
/* Small whole powers by multiplication, the rest by exp and log. */
static double pow_f64(double x, double y)
{
    if (y == 0 || x == 1)
        return 1;
    if (x != x || y != y)
        return (double)NAN;
    double a = fabs(x);
    int whole = fabs(y) >= 0x1p53 || (double)(int64_t)(fabs(y) < 0x1p53 ? y : 0) == y;
    int odd = fabs(y) < 0x1p53 && whole && ((int64_t)y & 1) != 0;
    if (x < 0 && !whole && a <= 0x1.fffffffffffffp1023)
        return (double)NAN;
    double r;
    if (whole && fabs(y) <= 64) {
        int n = (int)fabs(y);
        r = 1;
        for (double b = a; n > 0; n >>= 1, b *= b)
            r = n & 1 ? r * b : r;
        r = y < 0 ? 1 / r : r;
    } else if (a == 1) {
        r = 1;
    } else {
        r = exp_f64(y * log_f64(a));
    }
    return odd && copysign(1.0, x) < 0 ? -r : r;
}

//@ mod_f64
/* The exact remainder with the sign of a, by long division. */
static double mod_f64(double a, double b)
{
    double r = fabs(a), d = fabs(b);
    if (!(d > 0) || !(r <= 0x1.fffffffffffffp1023))
        return (double)NAN;
    while (r >= d) {
        double t = d;
        while (t <= r * 0.5)
            t *= 2;
        r -= t;
    }
    return copysign(r, a);
}

//@ floormod_f64 mod_f64
static double floormod_f64(double a, double b)
{
    double r = mod_f64(a, b);
    return r == 0 ? copysign(0.0, b) : (r < 0) != (b < 0) ? r + b : r;
}

//@ sin_f32 sin_f64
static inline float sin_f32(float x) { return (float)sin_f64((double)x); }

//@ cos_f32 cos_f64
static inline float cos_f32(float x) { return (float)cos_f64((double)x); }

//@ tan_f32 tan_f64
static inline float tan_f32(float x) { return (float)tan_f64((double)x); }

//@ asin_f32 asin_f64
static inline float asin_f32(float x) { return (float)asin_f64((double)x); }

//@ acos_f32 acos_f64
static inline float acos_f32(float x) { return (float)acos_f64((double)x); }

//@ atan_f32 atan_f64
static inline float atan_f32(float x) { return (float)atan_f64((double)x); }

//@ sinh_f32 sinh_f64
static inline float sinh_f32(float x) { return (float)sinh_f64((double)x); }

//@ cosh_f32 cosh_f64
static inline float cosh_f32(float x) { return (float)cosh_f64((double)x); }

//@ asinh_f32 asinh_f64
static inline float asinh_f32(float x) { return (float)asinh_f64((double)x); }

//@ acosh_f32 acosh_f64
static inline float acosh_f32(float x) { return (float)acosh_f64((double)x); }

//@ atanh_f32 atanh_f64
static inline float atanh_f32(float x) { return (float)atanh_f64((double)x); }

//@ atan2_f32 atan2_f64
static inline float atan2_f32(float a, float b) { return (float)atan2_f64((double)a, (double)b); }

//@ pow_f32 pow_f64
static inline float pow_f32(float a, float b) { return (float)pow_f64((double)a, (double)b); }

//@ mod_f32 mod_f64
static inline float mod_f32(float a, float b) { return (float)mod_f64((double)a, (double)b); }

//@ floormod_f32 floormod_f64
static inline float floormod_f32(float a, float b)
{
    return (float)floormod_f64((double)a, (double)b);
}
