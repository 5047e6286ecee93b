/* SPDX-License-Identifier: 0BSD */
/* vector_avx512.c - vectors of floats for AVX-512: f32x16.
 *
 * Arithmetic and bits are the compiler's own (gcc's vector extensions, which clang has, too); the
 * rest are intrinsics. A comparison gives one bit a lane (mask_f32x16), and a choice by one is a
 * blend: no compiler has to recognize one in a formula of and, or, not, which clang 19 does
 * wrongly. Vectors of integers are unsigned: overflow wraps. Each function has a target attribute,
 * so that no compiler flags are needed.
 *
 * Many intrinsics without a mask start from an undefined vector, about which g++ warns. Those with
 * a mask do not; with all lanes (ALL_f32x16) they are the same instructions.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

//@ f32x16
#define IN_f32x16 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define ALL_f32x16 ((__mmask16)0xffff)
typedef __m512 f32x16;
typedef uint32_t bits_f32x16 __attribute__((vector_size(64)));
typedef int32_t ints_f32x16 __attribute__((vector_size(64)));
typedef __mmask16 mask_f32x16;

//@ less_f32x16 f32x16
static inline IN_f32x16 mask_f32x16 less_f32x16(f32x16 a, f32x16 b)
{
    return _mm512_cmplt_ps_mask(a, b);
}

//@ equal_f32x16 f32x16
static inline IN_f32x16 mask_f32x16 equal_f32x16(f32x16 a, f32x16 b)
{
    return _mm512_cmpeq_ps_mask(a, b);
}

//@ differ_f32x16 f32x16
/* also where one is NaN */
static inline IN_f32x16 mask_f32x16 differ_f32x16(f32x16 a, f32x16 b)
{
    return _mm512_cmpneq_ps_mask(a, b);
}

//@ not_f32x16 f32x16
static inline IN_f32x16 mask_f32x16 not_f32x16(mask_f32x16 m) { return _mm512_knot(m); }

//@ splat_mask_f32x16 f32x16
static inline IN_f32x16 mask_f32x16 splat_mask_f32x16(bool b) { return b ? ALL_f32x16 : 0; }

//@ select_f32x16 f32x16
/* m ? a : b, lane by lane */
static inline IN_f32x16 f32x16 select_f32x16(mask_f32x16 m, f32x16 a, f32x16 b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

//@ from_bool_f32x16 f32x16
static inline IN_f32x16 f32x16 from_bool_f32x16(mask_f32x16 m)
{
    return _mm512_maskz_mov_ps(m, _mm512_set1_ps(1.0f));
}

//@ abs_f32x16 f32x16
static inline IN_f32x16 f32x16 abs_f32x16(f32x16 v)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), v);
}

//@ copysign_f32x16 f32x16
static inline IN_f32x16 f32x16 copysign_f32x16(f32x16 v, f32x16 sign)
{
    const __m512 top = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(top, v), _mm512_and_ps(top, sign));
}

//@ load_f32x16 f32x16
static inline IN_f32x16 f32x16 load_f32x16(const float *p) { return _mm512_loadu_ps(p); }

//@ store_f32x16 f32x16
static inline IN_f32x16 void store_f32x16(float *p, f32x16 v) { _mm512_storeu_ps(p, v); }

//@ load_i8_f32x16 f32x16
static inline IN_f32x16 f32x16 load_i8_f32x16(const int8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_maskz_cvtepi32_ps(ALL_f32x16, _mm512_maskz_cvtepi8_epi32(ALL_f32x16, bytes));
}

//@ load_u8_f32x16 f32x16
static inline IN_f32x16 f32x16 load_u8_f32x16(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_maskz_cvtepi32_ps(ALL_f32x16, _mm512_maskz_cvtepu8_epi32(ALL_f32x16, bytes));
}

//@ load_bf16_f32x16 f32x16
static inline IN_f32x16 f32x16 load_bf16_f32x16(const uint16_t *p)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (f32x16)((bits_f32x16)_mm512_maskz_cvtepu16_epi32(ALL_f32x16, half) << 16);
}

//@ load_f16_f32x16 f32x16
static inline IN_f32x16 f32x16 load_f16_f32x16(const uint16_t *p)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_maskz_cvtph_ps(ALL_f32x16, half);
}

//@ store_f16_f32x16 f32x16
/* the nearest, half to even */
static inline IN_f32x16 void store_f16_f32x16(uint16_t *p, f32x16 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_maskz_cvtps_ph(ALL_f32x16, v, 8));
}

//@ store_bf16_f32x16 select_f32x16 differ_f32x16
/* the nearest, half to even */
static inline IN_f32x16 void store_bf16_f32x16(uint16_t *p, f32x16 v)
{
    const bits_f32x16 bits = (bits_f32x16)v;
    const bits_f32x16 near = bits + 0x7fff + ((bits >> 16) & 1), quiet = bits | 0x400000;
    const bits_f32x16 top =
        (bits_f32x16)select_f32x16(differ_f32x16(v, v), (f32x16)quiet, (f32x16)near);
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_maskz_cvtepi32_epi16(ALL_f32x16, (__m512i)(top >> 16)));
}

//@ load_bool_f32x16 f32x16
static inline IN_f32x16 mask_f32x16 load_bool_f32x16(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm_test_epi8_mask(bytes, bytes);
}

//@ load_part_f32x16 f32x16
/* the first n; 0 in the others */
static inline IN_f32x16 f32x16 load_part_f32x16(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

//@ store_part_f32x16 f32x16
/* the first n */
static inline IN_f32x16 void store_part_f32x16(float *p, f32x16 v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}

//@ splat_f32x16 f32x16
static inline IN_f32x16 f32x16 splat_f32x16(float v) { return _mm512_set1_ps(v); }

//@ ramp_f32x16 splat_f32x16
/* v, v + 1, v + 2 ... */
static inline IN_f32x16 f32x16 ramp_f32x16(float v)
{
    return splat_f32x16(v) + (f32x16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}

//@ fma_f32x16 f32x16
/* a*b + c, rounded once */
static inline IN_f32x16 f32x16 fma_f32x16(f32x16 a, f32x16 b, f32x16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

//@ higher_f32x16 f32x16
/* the larger; b, if one of them is NaN */
static inline IN_f32x16 f32x16 higher_f32x16(f32x16 a, f32x16 b)
{
    return _mm512_maskz_max_ps(ALL_f32x16, a, b);
}

//@ lower_f32x16 f32x16
static inline IN_f32x16 f32x16 lower_f32x16(f32x16 a, f32x16 b)
{
    return _mm512_maskz_min_ps(ALL_f32x16, a, b);
}

//@ sqrt_f32x16 f32x16
static inline IN_f32x16 f32x16 sqrt_f32x16(f32x16 v)
{
    return _mm512_maskz_sqrt_ps(ALL_f32x16, v);
}

//@ macros_f32x16
/* Without optimization gcc has intrinsics with a constant as macros, and warns about what is in
 * them. */
#if !defined __clang__ && !defined __OPTIMIZE__
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

//@ floor_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 floor_f32x16(f32x16 v)
{
    return _mm512_maskz_roundscale_ps(ALL_f32x16, v, 9);
}

//@ ceil_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 ceil_f32x16(f32x16 v)
{
    return _mm512_maskz_roundscale_ps(ALL_f32x16, v, 10);
}

//@ trunc_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 trunc_f32x16(f32x16 v)
{
    return _mm512_maskz_roundscale_ps(ALL_f32x16, v, 11);
}

//@ round_f32x16 f32x16 macros_f32x16
/* half to even */
static inline IN_f32x16 f32x16 round_f32x16(f32x16 v)
{
    return _mm512_maskz_roundscale_ps(ALL_f32x16, v, 8);
}

//@ turn_f32x16 f32x16 macros_f32x16
/* Exchanges groups of `by` lanes in pairs; log2(lanes) of these are a reduction. */
static inline IN_f32x16 f32x16 turn_f32x16(f32x16 v, int by)
{
    return by == 8   ? _mm512_maskz_shuffle_f32x4(ALL_f32x16, v, v, 0x4e)
           : by == 4 ? _mm512_maskz_shuffle_f32x4(ALL_f32x16, v, v, 0xb1)
           : by == 2 ? _mm512_maskz_permute_ps(ALL_f32x16, v, 0x4e)
                     : _mm512_maskz_permute_ps(ALL_f32x16, v, 0xb1);
}

//@ evens_f32x16 f32x16 macros_f32x16
/* The even groups of `by` lanes of a, each followed by that of b. */
static inline IN_f32x16 f32x16 evens_f32x16(f32x16 a, f32x16 b, int by)
{
    return by == 8   ? _mm512_maskz_shuffle_f32x4(ALL_f32x16, a, b, 0x44)
           : by == 4 ? _mm512_mask_shuffle_f32x4(a, 0xf0f0, b, b, 0xb1)
           : by == 2 ? (f32x16)_mm512_maskz_unpacklo_pd(0xff, (__m512d)a, (__m512d)b)
                     : _mm512_mask_moveldup_ps(a, 0xaaaa, b);
}

//@ odds_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 odds_f32x16(f32x16 a, f32x16 b, int by)
{
    return by == 8   ? _mm512_maskz_shuffle_f32x4(ALL_f32x16, a, b, 0xee)
           : by == 4 ? _mm512_mask_shuffle_f32x4(b, 0x0f0f, a, a, 0xb1)
           : by == 2 ? (f32x16)_mm512_maskz_unpackhi_pd(0xff, (__m512d)a, (__m512d)b)
                     : _mm512_mask_movehdup_ps(b, 0x5555, a);
}

//@ half_f32x16 f32x16 f32x8 macros_f32x16
/* the first eight lanes; without the barrier clang computes them again from the
 * inputs of all lanes */
static inline IN_f32x16 f32x8 half_f32x16(f32x16 v)
{
#ifdef __clang__
    __asm__("" : "+v"(v));
#endif
    return (f32x8)_mm512_maskz_extractf64x4_pd(0xf, (__m512d)v, 0);
}

//@ lookup_f32x16 f32x16
/* table[k % 16] for each lane's k */
static inline IN_f32x16 bits_f32x16 lookup_f32x16(const uint32_t *table, bits_f32x16 k)
{
    const __m512i all = _mm512_loadu_si512(table);
    return (bits_f32x16)_mm512_maskz_permutexvar_epi32(ALL_f32x16, (__m512i)k, all);
}

//@ i32x16 f32x16
typedef uint32_t i32x16 __attribute__((vector_size(64)));

//@ load_i32x16 i32x16
static inline IN_f32x16 i32x16 load_i32x16(const int32_t *p)
{
    return (i32x16)_mm512_loadu_si512(p);
}

//@ store_i32x16 i32x16
static inline IN_f32x16 void store_i32x16(int32_t *p, i32x16 v)
{
    _mm512_storeu_si512(p, (__m512i)v);
}

//@ store_apart_i32x16 store_i32x16
/* Stores the first n lanes, `step` apart. It reads them from an array: clang has one stack slot for
 * all such arrays, but one for each vector whose lanes are read in a loop. */
static inline IN_f32x16 void store_apart_i32x16(int32_t *p, i32x16 v, int64_t step, int n)
{
    int32_t a[16];
    store_i32x16(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ load_bytes_i32x16 i32x16
/* four bytes in each lane */
static inline IN_f32x16 i32x16 load_bytes_i32x16(const void *p)
{
    return (i32x16)_mm512_loadu_si512(p);
}

//@ store_bytes_i32x16 i32x16
static inline IN_f32x16 void store_bytes_i32x16(void *p, i32x16 v)
{
    _mm512_storeu_si512(p, (__m512i)v);
}

//@ lookup_i32x16 i32x16
/* Looks up each of 64 bytes in a table of 256. The instruction looks up pairs of entries: once for
 * the even bytes, once for the odd ones. */
static inline IN_f32x16 i32x16 lookup_i32x16(const void *table, i32x16 bytes)
{
    const char *t = (const char *)table;
    const __m512i t0 = _mm512_loadu_si512(t), t1 = _mm512_loadu_si512(t + 64);
    const __m512i t2 = _mm512_loadu_si512(t + 128), t3 = _mm512_loadu_si512(t + 192);
    const __m512i odd = (__m512i)bytes, even = _mm512_slli_epi16(odd, 8);
    const __m512i at0 = _mm512_srli_epi16(even, 9), at1 = _mm512_srli_epi16(odd, 9);
    const __m512i pair0 = _mm512_mask_blend_epi16(_mm512_movepi16_mask(even),
                                                  _mm512_permutex2var_epi16(t0, at0, t1),
                                                  _mm512_permutex2var_epi16(t2, at0, t3));
    const __m512i pair1 = _mm512_mask_blend_epi16(_mm512_movepi16_mask(odd),
                                                  _mm512_permutex2var_epi16(t0, at1, t1),
                                                  _mm512_permutex2var_epi16(t2, at1, t3));
    /* the second entry of the pair, if the index is odd */
    const __mmask32 last0 = _mm512_test_epi16_mask(odd, _mm512_set1_epi16(1));
    const __mmask32 last1 = _mm512_test_epi16_mask(odd, _mm512_set1_epi16(256));
    const __m512i y0 = _mm512_mask_srli_epi16(pair0, last0, pair0, 8);
    const __m512i y1 = _mm512_mask_slli_epi16(pair1, (__mmask32)~last1, pair1, 8);
    return (i32x16)_mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaau, y0, y1);
}

//@ lookup_i8_i32x16 lookup_i32x16
/* for bytes of -128..127; the table begins with the entry of -128 */
static inline IN_f32x16 i32x16 lookup_i8_i32x16(const void *table, i32x16 bytes)
{
    return lookup_i32x16(table, bytes ^ 0x80808080u);
}

//@ load_i8_i32x16 i32x16
static inline IN_f32x16 i32x16 load_i8_i32x16(const int8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (i32x16)_mm512_maskz_cvtepi8_epi32(ALL_f32x16, bytes);
}

//@ load_u8_i32x16 i32x16
static inline IN_f32x16 i32x16 load_u8_i32x16(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (i32x16)_mm512_maskz_cvtepu8_epi32(ALL_f32x16, bytes);
}

//@ load_groups_i32x16 load_u8_i32x16
/* four bytes in each lane, `step` apart; lane i begins i bytes on */
static inline IN_f32x16 i32x16 load_groups_i32x16(const void *p, int64_t step)
{
    const uint8_t *s = (const uint8_t *)p;
    const i32x16 a = load_u8_i32x16(s), b = load_u8_i32x16(s + step);
    const i32x16 c = load_u8_i32x16(s + 2 * step), d = load_u8_i32x16(s + 3 * step);
    return (a | b << 8) | (c << 16 | d << 24);
}

//@ splat_i32x16 i32x16
static inline IN_f32x16 i32x16 splat_i32x16(int32_t v) { return (i32x16)_mm512_set1_epi32(v); }

//@ from_i32_f32x16 i32x16
static inline IN_f32x16 f32x16 from_i32_f32x16(i32x16 v)
{
    return _mm512_maskz_cvtepi32_ps(ALL_f32x16, (__m512i)v);
}

//@ whole_f32x16 f32x16
/* truncated */
static inline IN_f32x16 __m512i whole_f32x16(f32x16 v)
{
    return _mm512_maskz_cvttps_epi32(ALL_f32x16, v);
}

//@ nearest_f32x16 f32x16
/* half to even */
static inline IN_f32x16 __m512i nearest_f32x16(f32x16 v)
{
    return _mm512_maskz_cvtps_epi32(ALL_f32x16, v);
}

//@ store_u8_f32x16 whole_f32x16 higher_f32x16 lower_f32x16 splat_f32x16
/* truncated and saturated; NaN becomes 0 */
static inline IN_f32x16 void store_u8_f32x16(uint8_t *p, f32x16 v)
{
    const f32x16 near = lower_f32x16(higher_f32x16(v, splat_f32x16(0.0f)), splat_f32x16(255.0f));
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm512_maskz_cvtepi32_epi8(ALL_f32x16, whole_f32x16(near)));
}

//@ store_number_u8_f32x16 whole_f32x16
/* of 0..255, or NaN, which becomes 0 */
static inline IN_f32x16 void store_number_u8_f32x16(uint8_t *p, f32x16 v)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm512_maskz_cvtepi32_epi8(ALL_f32x16, whole_f32x16(v)));
}

//@ store_i8_f32x16 whole_f32x16 higher_f32x16 lower_f32x16 splat_f32x16 equal_f32x16
/* truncated and saturated; NaN becomes 0 */
static inline IN_f32x16 void store_i8_f32x16(int8_t *p, f32x16 v)
{
    const f32x16 number = _mm512_maskz_mov_ps(equal_f32x16(v, v), v);
    const f32x16 near =
        lower_f32x16(higher_f32x16(number, splat_f32x16(-128.0f)), splat_f32x16(127.0f));
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm512_maskz_cvtepi32_epi8(ALL_f32x16, whole_f32x16(near)));
}

//@ store_nearest_u8_f32x16 nearest_f32x16
/* rounded half to even; -2^31 to 2^31 */
static inline IN_f32x16 void store_nearest_u8_f32x16(uint8_t *p, f32x16 v)
{
    const __m512i n =
        _mm512_maskz_max_epi32(ALL_f32x16, nearest_f32x16(v), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_maskz_cvtusepi32_epi8(ALL_f32x16, n));
}

//@ store_nearest_i8_f32x16 nearest_f32x16
/* rounded half to even; -2^31 to 2^31 */
static inline IN_f32x16 void store_nearest_i8_f32x16(int8_t *p, f32x16 v)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm512_maskz_cvtsepi32_epi8(ALL_f32x16, nearest_f32x16(v)));
}

//@ put_apart_f32x16 f32x16
/* the low bytes of the first n lanes, `step` apart. For an image's channels, four bytes a pixel are
 * stored at once. */
static inline IN_f32x16 void put_apart_f32x16(uint8_t *p, __m512i v, int64_t step, int n)
{
    uint8_t a[16];
    if (step == 4) {
        _mm512_mask_storeu_epi8(p, 0x1111111111111111u >> (64 - 4 * n), v);
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)a, _mm512_maskz_cvtepi32_epi8(ALL_f32x16, v));
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ store_apart_u8_f32x16 put_apart_f32x16 whole_f32x16 higher_f32x16 lower_f32x16 splat_f32x16
/* as store_u8, of the first n lanes, `step` apart */
static inline IN_f32x16 void store_apart_u8_f32x16(uint8_t *p, f32x16 v, int64_t step, int n)
{
    const f32x16 near = lower_f32x16(higher_f32x16(v, splat_f32x16(0.0f)), splat_f32x16(255.0f));
    put_apart_f32x16(p, whole_f32x16(near), step, n);
}

//@ store_apart_nearest_u8_f32x16 put_apart_f32x16 nearest_f32x16
/* as store_nearest_u8, of the first n lanes, `step` apart */
static inline IN_f32x16 void store_apart_nearest_u8_f32x16(uint8_t *p, f32x16 v, int64_t step,
                                                           int n)
{
    const __m512i i =
        _mm512_maskz_max_epi32(ALL_f32x16, nearest_f32x16(v), _mm512_setzero_si512());
    put_apart_f32x16(p, _mm512_maskz_min_epi32(ALL_f32x16, i, _mm512_set1_epi32(255)), step, n);
}

//@ dot_i32x16 i32x16
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane; even and odd
 * bytes are multiplied as 16-bit integers */
static inline IN_f32x16 i32x16 dot_i32x16(i32x16 sum, i32x16 a, i32x16 b)
{
    const __m512i x = (__m512i)a, w = (__m512i)b;
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(x, _mm512_set1_epi16(255)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(x, 8), _mm512_srai_epi16(w, 8));
    return sum + (i32x16)even + (i32x16)odd;
}

//@ dot_bf16_f32x16 f32x16 i32x16
/* sum + the dot product of two bf16, the upper ones first, in each lane */
static inline IN_f32x16 f32x16 dot_bf16_f32x16(f32x16 sum, i32x16 a, i32x16 b)
{
    const bits_f32x16 x = (bits_f32x16)a, w = (bits_f32x16)b;
    sum = _mm512_fmadd_ps((f32x16)(x & 0xffff0000u), (f32x16)(w & 0xffff0000u), sum);
    return _mm512_fmadd_ps((f32x16)(x << 16), (f32x16)(w << 16), sum);
}

//@ less_i32x16 i32x16
static inline IN_f32x16 mask_f32x16 less_i32x16(i32x16 a, i32x16 b)
{
    return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b);
}

//@ equal_i32x16 i32x16
static inline IN_f32x16 mask_f32x16 equal_i32x16(i32x16 a, i32x16 b)
{
    return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b);
}

//@ differ_i32x16 i32x16
static inline IN_f32x16 mask_f32x16 differ_i32x16(i32x16 a, i32x16 b)
{
    return _mm512_cmpneq_epi32_mask((__m512i)a, (__m512i)b);
}

//@ max_i32x16 i32x16
static inline IN_f32x16 i32x16 max_i32x16(i32x16 a, i32x16 b)
{
    return (i32x16)_mm512_maskz_max_epi32(ALL_f32x16, (__m512i)a, (__m512i)b);
}

//@ min_i32x16 i32x16
static inline IN_f32x16 i32x16 min_i32x16(i32x16 a, i32x16 b)
{
    return (i32x16)_mm512_maskz_min_epi32(ALL_f32x16, (__m512i)a, (__m512i)b);
}

//@ select_i32x16 i32x16
/* m ? a : b, lane by lane */
static inline IN_f32x16 i32x16 select_i32x16(mask_f32x16 m, i32x16 a, i32x16 b)
{
    return (i32x16)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a);
}

//@ lanes_i32x16 i32x16
static inline IN_f32x16 i32x16 lanes_i32x16(void)
{
    return (i32x16)_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

//@ narrow_f32_i32x16 i32x16
/* truncated and clamped to -most..most; NaN becomes 0 */
static inline IN_f32x16 i32x16 narrow_f32_i32x16(f32x16 v, int most)
{
    const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    const __m512 high = _mm512_set1_ps((float)most), low = _mm512_set1_ps((float)-most);
    const __m512 near = _mm512_maskz_min_ps(number, _mm512_maskz_max_ps(number, v, low), high);
    return (i32x16)_mm512_maskz_cvttps_epi32(0xffff, near);
}

//@ narrow_i64_i32x16 i32x16
/* -most..most */
static inline IN_f32x16 __m256i narrow_half_i32x16(const int64_t *p, int most)
{
    const __m512i high = _mm512_set1_epi64(most), low = _mm512_set1_epi64(-most);
    __m512i v = _mm512_maskz_max_epi64(0xff, _mm512_loadu_si512((const void *)p), low);
    v = _mm512_maskz_min_epi64(0xff, v, high);
    return _mm512_maskz_cvtepi64_epi32(0xff, v);
}

static inline IN_f32x16 i32x16 narrow_i64_i32x16(const int64_t *p, int most)
{
    const __m256i half[2] = {narrow_half_i32x16(p, most), narrow_half_i32x16(p + 8, most)};
    i32x16 all;
    memcpy(&all, half, sizeof all);
    return all;
}

//@ gather_f32x16 i32x16 macros_f32x16
static inline IN_f32x16 f32x16 gather_f32x16(const float *p, i32x16 at)
{
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), ALL_f32x16, (__m512i)at, p, 4);
}

//@ gather_where_f32x16 i32x16 macros_f32x16
/* The lanes of m; nothing is read for the others, which are `otherwise`. */
static inline IN_f32x16 f32x16 gather_where_f32x16(const float *p, i32x16 at, mask_f32x16 m,
                                                   f32x16 otherwise)
{
    return _mm512_mask_i32gather_ps(otherwise, m, (__m512i)at, p, 4);
}

//@ narrow_apart_i64_i32x16 i32x16
/* of 64-bit integers that are `step` apart */
static inline IN_f32x16 i32x16 narrow_apart_i64_i32x16(const int64_t *p, int64_t step, int most)
{
    int32_t v[16];
    for (int i = 0; i < 16; i++, p += step)
        v[i] = (int32_t)(*p < -most ? -most : *p > most ? most : *p);
    i32x16 all;
    memcpy(&all, v, sizeof all);
    return all;
}
