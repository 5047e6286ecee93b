/* SPDX-License-Identifier: 0BSD */
/* cuda_narrow.c - CUDA's conversions of 8-bit floats: widened by way of f16, and narrowed by the
 * hardware's instruction from sm_89 on. number.c has the other formats, and the function that is
 * declared here.
 */
#include <stdint.h>

//@ cuda_f8e5m2_to_f32 f16_to_f32
/* e5m2 is the upper byte of an f16. */
static inline float f8e5m2_to_f32(uint8_t b) { return f16_to_f32((uint16_t)(b << 8)); }

//@ cuda_f8e4m3fn_to_f32 f16_to_f32
/* The bits as an f16 have another exponent bias: 2^8 makes up for it. */
static inline float f8e4m3fn_to_f32(uint8_t b)
{
    const float v = f16_to_f32((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7)) * 256;
    return (b & 0x7f) == 0x7f ? NAN : v;
}

//@ cuda_f32_to_f8e4m3fn f32_to_minifloat
static inline unsigned f32_to_minifloat(float v, int mantissa, int bias);
static inline uint8_t f32_to_f8e4m3fn(float v)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    uint16_t two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(v));
    return (uint8_t)two;
#else
    const unsigned n = f32_to_minifloat(v, 3, 7);
    return v != v ? 0x7f : (uint8_t)((n > 0x7e ? 0x7e : n) | (signbit(v) ? 0x80u : 0u));
#endif
}

//@ cuda_f32_to_f8e5m2 f32_to_minifloat
static inline unsigned f32_to_minifloat(float v, int mantissa, int bias);
static inline uint8_t f32_to_f8e5m2(float v)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    uint16_t two;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(v));
    return v != v ? 0x7e : (uint8_t)two;
#else
    const unsigned n = f32_to_minifloat(v, 2, 15);
    return v != v ? 0x7e : (uint8_t)((n > 0x7b ? 0x7b : n) | (signbit(v) ? 0x80u : 0u));
#endif
}
