/* SPDX-License-Identifier: 0BSD */
/* vector_neondot.c - dot products of bytes for NEON with the dot product instructions; all else is
 * in vector_neon.c. Before clang 16, compilers have intrinsics only for features that their flags
 * enable, so the instructions are written in assembly.
 */
#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

//@ has_neon
#if defined __linux__
#include <sys/auxv.h>
#elif defined __APPLE__
extern int sysctlbyname(const char *, void *, size_t *, void *, size_t);
#endif
/* Has the processor the feature that is bit `bit` of Linux's capability word `which`, and that
 * Apple calls `name`? */
static inline bool has_neon(int which, int bit, const char *name)
{
#if defined __linux__
    (void)name;
    return (getauxval(which ? AT_HWCAP2 : AT_HWCAP) >> bit & 1) != 0;
#elif defined __APPLE__
    int has = 0;
    size_t n = sizeof has;
    (void)which, (void)bit;
    return sysctlbyname(name, &has, &n, NULL, 0) == 0 && has;
#else
    (void)which, (void)bit, (void)name;
    return false;
#endif
}

//@ has_dotprod has_neon
static inline bool has_dotprod(void)
{
#if defined __ARM_FEATURE_DOTPROD
    return true;
#else
    return has_neon(0, 20, "hw.optional.arm.FEAT_DotProd");
#endif
}

//@ dotprod f32x4 i32x4
#if defined __ARM_FEATURE_DOTPROD
#define IN_dotprod
#elif defined __clang__
#define IN_dotprod __attribute__((target("dotprod")))
#else
#define IN_dotprod __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

//@ dot_centered_i32x4 dotprod
/* sum + the dot product of four bytes of a, 0..255, less 128, and of b, -128..127, in each lane */
static inline IN_dotprod i32x4 dot_centered_i32x4(i32x4 sum, i32x4 a, i32x4 b)
{
    const i32x4 centered = a ^ 0x80808080u;
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(centered), "w"(b));
    return sum;
}
