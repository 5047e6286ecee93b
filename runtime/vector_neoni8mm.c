/* SPDX-License-Identifier: 0BSD */
/* vector_neoni8mm.c - dot products of bytes for NEON with I8MM, which has one instruction for them;
 * all else is in vector_neon.c.
 */
#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

//@ has_i8mm has_neon
static inline bool has_i8mm(void)
{
#if defined __ARM_FEATURE_MATMUL_INT8
    return true;
#else
    return has_neon(1, 13, "hw.optional.arm.FEAT_I8MM");
#endif
}

//@ i8mm f32x4 i32x4
#if defined __ARM_FEATURE_MATMUL_INT8
#define IN_i8mm
#elif defined __clang__
#define IN_i8mm __attribute__((target("i8mm")))
#else
#define IN_i8mm __attribute__((target("arch=armv8.2-a+i8mm")))
#endif

//@ dot_mixed_i32x4 i8mm
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane */
static inline IN_i8mm i32x4 dot_mixed_i32x4(i32x4 sum, i32x4 a, i32x4 b)
{
    __asm__("usdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}
