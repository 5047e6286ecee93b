/* SPDX-License-Identifier: 0BSD */
/* vector_neonbf16.c - dot products of pairs of bf16 for NEON with BF16; all else is in
 * vector_neon.c.
 */
#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

//@ has_bf16 has_neon
static inline bool has_bf16(void)
{
#if defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    return true;
#else
    return has_neon(1, 14, "hw.optional.arm.FEAT_BF16");
#endif
}

//@ bfdot f32x4 i32x4
#if defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define IN_bfdot
#elif defined __clang__
#define IN_bfdot __attribute__((target("bf16")))
#else
#define IN_bfdot __attribute__((target("arch=armv8.2-a+bf16")))
#endif

//@ dot_pairs_f32x4 bfdot
/* sum + the dot product of two bf16 in each lane, rounded to odd; subnormal numbers are zeros */
static inline IN_bfdot f32x4 dot_pairs_f32x4(f32x4 sum, i32x4 a, i32x4 b)
{
    __asm__("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}
