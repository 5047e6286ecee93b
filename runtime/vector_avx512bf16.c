/* SPDX-License-Identifier: 0BSD */
/* vector_avx512bf16.c - dot products of pairs of bf16 for AVX-512 with BF16; all else is in
 * vector_avx512.c. */
#include <immintrin.h>
#include <stdint.h>

//@ bf16 f32x16
#define IN_bf16                                                                                    \
    __attribute__((                                                                                \
        target("avx512bf16,avx512vnni,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))

//@ dot_pairs_f32x16 bf16 f32x16 i32x16
/* sum + the dot product of two bf16 in each lane; subnormal numbers are zeros */
static inline IN_bf16 f32x16 dot_pairs_f32x16(f32x16 sum, i32x16 a, i32x16 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

//@ dot_pairs_f32x8 bf16 f32x8 i32x8
/* sum + the dot product of two bf16 in each lane; subnormal numbers are zeros */
static inline IN_bf16 f32x8 dot_pairs_f32x8(f32x8 sum, i32x8 a, i32x8 b)
{
    return _mm256_dpbf16_ps(sum, (__m256bh)a, (__m256bh)b);
}
