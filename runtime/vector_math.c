/* SPDX-License-Identifier: 0BSD */
/* vector_math.c - elementary functions on vectors: the steps of math.c, lane by lane. Each piece
 * exists for f32x4, f32x8 and f32x16, unless AVX-512 has a better way. T is the vector of floats,
 * bits_T its bits, ints_T its bits as signed integers, mask_T the result of comparisons.
 * as_bits_T() and its like are casts in C and functions in OpenCL C (embed.c). */

//@for f32x4:f32x4 f32x8:f32x8 f32x16:f32x16

//@ load_apart_T load_T
/* n floats, `step` apart; 0 in the other lanes */
static inline IN_T T load_apart_T(const float *p, int64_t step, int n)
{
    float a[sizeof(T) / sizeof(float)] = {0};
    for (int i = 0; i < n; i++)
        a[i] = p[i * step];
    return load_T(a);
}

//@ store_apart_T store_T
/* stores the first n lanes, `step` apart */
static inline IN_T void store_apart_T(float *p, T v, int64_t step, int n)
{
    float a[sizeof(T) / sizeof(float)];
    store_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ store_apart_i8_T store_i8_T
static inline IN_T void store_apart_i8_T(int8_t *p, T v, int64_t step, int n)
{
    int8_t a[sizeof(T) / sizeof(float)];
    store_i8_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ store_apart_nearest_i8_T store_nearest_i8_T
static inline IN_T void store_apart_nearest_i8_T(int8_t *p, T v, int64_t step, int n)
{
    int8_t a[sizeof(T) / sizeof(float)];
    store_nearest_i8_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ store_apart_f16_T store_f16_T
static inline IN_T void store_apart_f16_T(uint16_t *p, T v, int64_t step, int n)
{
    uint16_t a[sizeof(T) / sizeof(float)];
    store_f16_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

/* Rounds to f16, and converts back. */
//@ round_f16_T store_f16_T load_f16_T
static inline IN_T T round_f16_T(T v)
{
    uint16_t a[sizeof(T) / sizeof(float)];
    store_f16_T(a, v);
    return load_f16_T(a);
}

//@ store_apart_bf16_T store_bf16_T
static inline IN_T void store_apart_bf16_T(uint16_t *p, T v, int64_t step, int n)
{
    uint16_t a[sizeof(T) / sizeof(float)];
    store_bf16_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ round_bf16_T store_bf16_T load_bf16_T
static inline IN_T T round_bf16_T(T v)
{
    uint16_t a[sizeof(T) / sizeof(float)];
    store_bf16_T(a, v);
    return load_bf16_T(a);
}

//@ round_tf32_T select_T differ_T
/* 10 bits of mantissa, half away from zero; NaN stays */
static inline IN_T T round_tf32_T(T v)
{
    const T near = as_T((as_bits_T(v) + 0x1000) & 0xffffe000);
    return select_T(differ_T(v, v), v, near);
}

//@ load_tf32_T load_T
static inline IN_T T load_tf32_T(const float *p) { return load_T(p); }

//@ store_tf32_T store_T round_tf32_T
static inline IN_T void store_tf32_T(float *p, T v) { store_T(p, round_tf32_T(v)); }

//@ store_apart_tf32_T store_apart_T round_tf32_T
static inline IN_T void store_apart_tf32_T(float *p, T v, int64_t step, int n)
{
    store_apart_T(p, round_tf32_T(v), step, n);
}

//@ max_T higher_T select_T differ_T
/* NaN if either is; where a is known to be a number, that is higher_T(a, b) */
static inline IN_T T max_T(T a, T b) { return select_T(differ_T(a, a), a, higher_T(a, b)); }

//@ min_T lower_T select_T differ_T
static inline IN_T T min_T(T a, T b) { return select_T(differ_T(a, a), a, lower_T(a, b)); }

//@ sum_T turn_T
static inline IN_T float sum_T(T v)
{
    if (sizeof v > 32)
        v += turn_T(v, 8);
    if (sizeof v > 16)
        v += turn_T(v, 4);
    v += turn_T(v, 2);
    v += turn_T(v, 1);
    return v[0];
}

//@ product_T turn_T
static inline IN_T float product_T(T v)
{
    if (sizeof v > 32)
        v *= turn_T(v, 8);
    if (sizeof v > 16)
        v *= turn_T(v, 4);
    v *= turn_T(v, 2);
    v *= turn_T(v, 1);
    return v[0];
}

//@ largest_T max_T turn_T
static inline IN_T float largest_T(T v)
{
    if (sizeof v > 32)
        v = max_T(v, turn_T(v, 8));
    if (sizeof v > 16)
        v = max_T(v, turn_T(v, 4));
    v = max_T(v, turn_T(v, 2));
    v = max_T(v, turn_T(v, 1));
    return v[0];
}

//@ smallest_T min_T turn_T
static inline IN_T float smallest_T(T v)
{
    if (sizeof v > 32)
        v = min_T(v, turn_T(v, 8));
    if (sizeof v > 16)
        v = min_T(v, turn_T(v, 4));
    v = min_T(v, turn_T(v, 2));
    v = min_T(v, turn_T(v, 1));
    return v[0];
}

//@ exp_T fma_T higher_T lower_T splat_T
/* e^x = 2^k * e^r, r in +-ln2/2; k comes out of the low bits of x*log2(e) + 1.5*2^23. */
static inline IN_T T exp_T(T x)
{
    const T v = lower_T(splat_T(89.0f), higher_T(splat_T(-104.0f), x));
    const T shifted = fma_T(v, splat_T(1.44269504f), splat_T(12582912.0f));
    const T k = shifted - 12582912.0f;
    const T r = fma_T(k, splat_T(2.12194440e-4f), fma_T(k, splat_T(-0.693359375f), v));
    T p = fma_T(splat_T(1.98756915e-4f), r, splat_T(1.3981999507e-3f));
    p = fma_T(p, r, splat_T(8.3334519073e-3f));
    p = fma_T(p, r, splat_T(4.1665795894e-2f));
    p = fma_T(p, r, splat_T(1.6666665459e-1f));
    p = fma_T(p, r, splat_T(5.0000001201e-1f));
    p = fma_T(p * r, r, r) + 1.0f;
    /* 2^k in two factors: k may be beyond the range of one */
    const bits_T n = as_bits_T(shifted) - 0x4b400000 + 254, half = n >> 1;
    return p * as_T(half << 23) * as_T((n - half) << 23);
}

//@for f32x4:f32x4 f32x8:f32x8

//@ store_apart_u8_T store_u8_T
static inline IN_T void store_apart_u8_T(uint8_t *p, T v, int64_t step, int n)
{
    uint8_t a[sizeof(T) / sizeof(float)];
    store_u8_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ store_apart_nearest_u8_T store_nearest_u8_T
static inline IN_T void store_apart_nearest_u8_T(uint8_t *p, T v, int64_t step, int n)
{
    uint8_t a[sizeof(T) / sizeof(float)];
    store_nearest_u8_T(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ exp1_T fma_T higher_T lower_T splat_T
/* 1 + e^-x, infinite from where 2^k is: 127 more in the low bits of -x*log2(e) + 1.5*2^23 make them
 * the exponent of 2^k. */
static inline IN_T T exp1_T(T x)
{
    const T v = lower_T(splat_T(87.3f), higher_T(splat_T(-88.8f), x));
    const T shifted = fma_T(v, splat_T(-1.44269504f), splat_T(12583039.0f));
    const T k = shifted - 12583039.0f;
    const T r = fma_T(k, splat_T(2.12194440e-4f), fma_T(k, splat_T(-0.693359375f), -v));
    T p = fma_T(splat_T(1.38145401e-3f), r, splat_T(8.36874514e-3f));
    p = fma_T(p, r, splat_T(4.16683908e-2f));
    p = fma_T(p, r, splat_T(1.66665204e-1f));
    p = fma_T(p, r, splat_T(4.99999934e-1f));
    p = fma_T(p * r, r, r) + 1.0f;
    return fma_T(p, as_T(as_bits_T(shifted) << 23), splat_T(1.0f));
}

//@for f32x16:f32x16

//@ exp1_T fma_T higher_T lower_T splat_T lookup_T
/* 1 + e^-x, infinite from where 2^(k/16) is. e^-x = 2^(k/16) e^r, r in +-ln2/32: 2^(k%16/16) is
 * looked up, its bits less those that k%16 adds to the exponent's. */
static inline IN_T T exp1_T(T x)
{
    static const uint32_t powers[16] = {
        0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
        0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
        0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
    const T v = lower_T(splat_T(87.3f), higher_T(splat_T(-88.73f), x));
    const T shifted = fma_T(v, splat_T(-23.0831203f), splat_T(12582912.0f));
    const T k = shifted - 12582912.0f;
    const T r = fma_T(k, splat_T(1.32621527e-5f), fma_T(k, splat_T(-0.0433349609375f), -v));
    T p = fma_T(splat_T(0.166672f), r, splat_T(0.5f));
    p = fma_T(p, r, splat_T(1.0f));
    p = fma_T(p, r, splat_T(1.0f));
    const bits_T bits = as_bits_T(shifted);
    return fma_T(as_T(lookup_T(powers, bits) + (bits << 19)), p, splat_T(1.0f));
}

//@for f32x4:f32x4 f32x8:f32x8 f32x16:f32x16

//@ log_T fma_T select_T less_T equal_T splat_T from_i32_T from_bool_T
/* x = 2^k * m, m in [sqrt(1/2), sqrt(2)); log m by a polynomial in m - 1. */
static inline IN_T T log_T(T x)
{
    const mask_T tiny = less_T(x, splat_T(0x1p-126f));
    const bits_T bits = as_bits_T(select_T(tiny, x * 0x1p23f, x)) - 0x3f3504f3;
    const T exponent = from_i32_T(as_bits_T(as_ints_T(bits) >> 23));
    const T k = fma_T(from_bool_T(tiny), splat_T(-23.0f), exponent);
    const T m = as_T((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    T p = fma_T(splat_T(7.0376836292e-2f), m, splat_T(-1.1514610310e-1f));
    p = fma_T(p, m, splat_T(1.1676998740e-1f));
    p = fma_T(p, m, splat_T(-1.2420140846e-1f));
    p = fma_T(p, m, splat_T(1.4249322787e-1f));
    p = fma_T(p, m, splat_T(-1.6668057665e-1f));
    p = fma_T(p, m, splat_T(2.0000714765e-1f));
    p = fma_T(p, m, splat_T(-2.4999993993e-1f));
    p = fma_T(p, m, splat_T(3.3333331174e-1f));
    const T z = m * m;
    T y = fma_T(k, splat_T(-2.12194440e-4f), p * m * z);
    y = fma_T(z, splat_T(-0.5f), y) + m;
    y = fma_T(k, splat_T(0.693359375f), y);
    y = select_T(equal_T(x, splat_T(0.0f)), splat_T(-INFINITY), y);
    y = select_T(less_T(x, splat_T(INFINITY)), y, x);
    return select_T(less_T(x, splat_T(0.0f)), splat_T(NAN), y);
}

//@ tanh_T exp_T abs_T copysign_T select_T less_T differ_T
static inline IN_T T tanh_T(T x)
{
    const T z = x * x, a = abs_T(x);
    T p = fma_T(splat_T(-5.70498872745e-3f), z, splat_T(2.06390887954e-2f));
    p = fma_T(p, z, splat_T(-5.37397155531e-2f));
    p = fma_T(p, z, splat_T(1.33314422036e-1f));
    p = fma_T(p, z, splat_T(-3.33332819422e-1f));
    const T small = fma_T(p * z, x, x);
    const T large = copysign_T(1.0f - 2.0f / (exp_T(2.0f * a) + 1.0f), x);
    return select_T(less_T(a, splat_T(0.625f)), small, select_T(differ_T(x, x), x, large));
}

//@ erf_T fma_T lower_T abs_T copysign_T select_T less_T splat_T
/* |x| < 0.92: a polynomial. Beyond: 1 - e^q, q a polynomial, too, whose power is exp_T's with
 * fewer steps, since q is in -17..0 and e^q a small part of the result. */
static inline IN_T T erf_T(T x)
{
    const T a = abs_T(x), z = x * x, v = lower_T(splat_T(4.0f), a);
    T small = fma_T(splat_T(-5.99087216e-4f), z, splat_T(4.99318447e-3f));
    small = fma_T(small, z, splat_T(-2.67666206e-2f));
    small = fma_T(small, z, splat_T(1.12818167e-1f));
    small = fma_T(small, z, splat_T(-3.76124948e-1f));
    small = fma_T(small, z, splat_T(1.28379151e-1f));
    T q = fma_T(splat_T(1.95720713e-4f), v, splat_T(-3.04109324e-3f));
    q = fma_T(q, v, splat_T(2.22184528e-2f));
    q = fma_T(q, v, splat_T(-1.03914030e-1f));
    q = fma_T(q, v, splat_T(-6.37202263e-1f));
    q = fma_T(q, v, splat_T(-1.12766373f));
    q = fma_T(q, v, splat_T(-1.98554685e-4f));
    const T shifted = fma_T(q, splat_T(1.44269504f), splat_T(12582912.0f));
    const T r = fma_T(shifted - 12582912.0f, splat_T(-0.693147181f), q);
    T p = fma_T(splat_T(8.29694793e-3f), r, splat_T(4.19202931e-2f));
    p = fma_T(p, r, splat_T(1.66676104e-1f));
    p = fma_T(p, r, splat_T(4.99988496e-1f));
    p = fma_T(p, r, splat_T(9.99999702e-1f));
    p = fma_T(p, r, splat_T(1.00000012f));
    const T power = as_T((as_bits_T(shifted) - 0x4b400000 + 127) << 23);
    const T large = copysign_T(1.0f - p * power, x);
    return select_T(less_T(a, splat_T(0.921875f)), fma_T(small, x, x), large);
}

//@for f32x4:f32x4

//@ opencl_sum_f32x4 opencl_f32x4
/* Folds by halves of vectors, which OpenCL C has: the same pairs. */
float sum_f32x4(f32x4 v)
{
    const float2 two = v.lo + v.hi;
    return two.lo + two.hi;
}

//@ opencl_sum_f32x8 opencl_f32x8 opencl_sum_f32x4
float sum_f32x8(f32x8 v) { return sum_f32x4(v.lo + v.hi); }

//@ opencl_product_f32x4 opencl_f32x4
float product_f32x4(f32x4 v)
{
    const float2 two = v.lo * v.hi;
    return two.lo * two.hi;
}

//@ opencl_product_f32x8 opencl_f32x8 opencl_product_f32x4
float product_f32x8(f32x8 v) { return product_f32x4(v.lo * v.hi); }

//@ opencl_largest_f32x4 max_f32x4
float largest_f32x4(f32x4 v)
{
    v = max_f32x4(v, v.zwxy);
    return max_f32x4(v, v.yxwz).x;
}

//@ opencl_largest_f32x8 opencl_f32x8 opencl_largest_f32x4
float largest_f32x8(f32x8 v) { return largest_f32x4(max_f32x4(v.lo, v.hi)); }

//@ opencl_smallest_f32x4 min_f32x4
float smallest_f32x4(f32x4 v)
{
    v = min_f32x4(v, v.zwxy);
    return min_f32x4(v, v.yxwz).x;
}

//@ opencl_smallest_f32x8 opencl_f32x8 opencl_smallest_f32x4
float smallest_f32x8(f32x8 v) { return smallest_f32x4(min_f32x4(v.lo, v.hi)); }
