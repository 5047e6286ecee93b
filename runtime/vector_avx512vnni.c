/* SPDX-License-Identifier: 0BSD */
/* vector_avx512vnni.c - dot products of bytes for AVX-512 with VNNI; all else is in
 * vector_avx512.c. */
#include <immintrin.h>
#include <stdint.h>

//@ vnni f32x16
#define IN_vnni __attribute__((target("avx512vnni,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))

//@ dot_vnni_i32x16 vnni i32x16
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane */
static inline IN_vnni i32x16 dot_vnni_i32x16(i32x16 sum, i32x16 a, i32x16 b)
{
    return (i32x16)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}

//@ dot_vnni_i32x8 vnni i32x8
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane */
static inline IN_vnni i32x8 dot_vnni_i32x8(i32x8 sum, i32x8 a, i32x8 b)
{
    return (i32x8)_mm256_dpbusd_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
}
