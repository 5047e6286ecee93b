/* SPDX-License-Identifier: 0BSD */
/* vector_avx2.c - vectors of floats for AVX2 with FMA: f32x8.
 *
 * Arithmetic and bits are the compiler's own (gcc's vector extensions, which clang has, too); the
 * rest are intrinsics. A comparison gives lanes of all ones or zeros (mask_f32x8), and a choice by
 * one is a blend: no compiler has to recognize it in a formula of and, or and not. Integers are
 * unsigned in C, so that they wrap. Each function has a target attribute, so that no compiler flags
 * are needed.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

//@ f32x8
#define IN_f32x8 __attribute__((target("avx2,fma")))
typedef __m256 f32x8;
typedef uint32_t bits_f32x8 __attribute__((vector_size(32)));
typedef int32_t ints_f32x8 __attribute__((vector_size(32)));
typedef ints_f32x8 mask_f32x8;

//@ less_f32x8 f32x8
static inline IN_f32x8 mask_f32x8 less_f32x8(f32x8 a, f32x8 b) { return a < b; }

//@ equal_f32x8 f32x8
static inline IN_f32x8 mask_f32x8 equal_f32x8(f32x8 a, f32x8 b) { return a == b; }

//@ differ_f32x8 f32x8
/* also where one is NaN */
static inline IN_f32x8 mask_f32x8 differ_f32x8(f32x8 a, f32x8 b) { return a != b; }

//@ not_f32x8 f32x8
static inline IN_f32x8 mask_f32x8 not_f32x8(mask_f32x8 m) { return ~m; }

//@ splat_mask_f32x8 f32x8
static inline IN_f32x8 mask_f32x8 splat_mask_f32x8(bool b)
{
    return (mask_f32x8)_mm256_set1_epi32(b ? -1 : 0);
}

//@ select_f32x8 f32x8
/* m ? a : b, lane by lane */
static inline IN_f32x8 f32x8 select_f32x8(mask_f32x8 m, f32x8 a, f32x8 b)
{
    return _mm256_blendv_ps(b, a, (__m256)m);
}

//@ from_bool_f32x8 f32x8
static inline IN_f32x8 f32x8 from_bool_f32x8(mask_f32x8 m)
{
    return _mm256_and_ps((__m256)m, _mm256_set1_ps(1.0f));
}

//@ abs_f32x8 f32x8
static inline IN_f32x8 f32x8 abs_f32x8(f32x8 v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

//@ copysign_f32x8 f32x8
static inline IN_f32x8 f32x8 copysign_f32x8(f32x8 v, f32x8 sign)
{
    const __m256 top = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(top, v), _mm256_and_ps(top, sign));
}

//@ load_f32x8 f32x8
static inline IN_f32x8 f32x8 load_f32x8(const float *p) { return _mm256_loadu_ps(p); }

//@ store_f32x8 f32x8
static inline IN_f32x8 void store_f32x8(float *p, f32x8 v) { _mm256_storeu_ps(p, v); }

//@ load_i8_f32x8 f32x8
static inline IN_f32x8 f32x8 load_i8_f32x8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

//@ load_u8_f32x8 f32x8
static inline IN_f32x8 f32x8 load_u8_f32x8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

//@ load_bf16_f32x8 f32x8
static inline IN_f32x8 f32x8 load_bf16_f32x8(const uint16_t *p)
{
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

//@ load_f16_f32x8 f32x8
/* Shifts exponent and mantissa into place and adds 112 to the exponent, which is all ones for
 * infinity and NaN. A subnormal is built as the fraction of 2^-14, which is then subtracted: this
 * never feeds a subnormal float to arithmetic, which may take it for zero (DAZ). */
static inline IN_f32x8 f32x8 load_f16_f32x8(const uint16_t *p)
{
    const bits_f32x8 h =
        (bits_f32x8)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const bits_f32x8 size = (h & 0x7fff) << 13;
    const __m256i large = _mm256_cmpgt_epi32((__m256i)size, _mm256_set1_epi32(0x0f7fffff));
    const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), (__m256i)size);
    const f32x8 normal = (f32x8)((size + 0x38000000) | ((bits_f32x8)large & 0x7f800000));
    const f32x8 fraction = (f32x8)(size + 0x38800000) - 0x1p-14f;
    const f32x8 v = _mm256_blendv_ps(normal, fraction, (f32x8)small);
    return (f32x8)((bits_f32x8)v | (h & 0x8000) << 16);
}

//@ half_f32x8 f32x8
/* the low halves of the lanes */
static inline IN_f32x8 void half_f32x8(uint16_t *p, bits_f32x8 v)
{
    const __m256i all = _mm256_packus_epi32((__m256i)v, (__m256i)v);
    const __m256i both = _mm256_permute4x64_epi64(all, 8);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(both));
}

//@ store_f16_f32x8 half_f32x8
/* Rounds to nearest even; below the least normal number, adding 0.5 rounds. */
static inline IN_f32x8 void store_f16_f32x8(uint16_t *p, f32x8 v)
{
    const bits_f32x8 bits = (bits_f32x8)v, size = bits & 0x7fffffff;
    const bits_f32x8 normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    const bits_f32x8 small = (bits_f32x8)((f32x8)size + 0.5f) - 0x3f000000;
    const __m256i order = (__m256i)size;       /* no sign: they compare as signed numbers, too */
    const __m256i nan = _mm256_cmpgt_epi32(order, _mm256_set1_epi32(0x7f800000));
    const __m256i large = _mm256_cmpgt_epi32(order, _mm256_set1_epi32(0x477fefff));
    const __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x38800000), order);
    __m256i h = _mm256_blendv_epi8((__m256i)normal, (__m256i)small, tiny);
    h = _mm256_blendv_epi8(h, _mm256_set1_epi32(0x7c00), large);
    h = _mm256_blendv_epi8(h, _mm256_set1_epi32(0x7e00), nan);
    half_f32x8(p, (bits_f32x8)h | ((bits >> 16) & 0x8000));
}

//@ store_bf16_f32x8 half_f32x8 select_f32x8
/* the nearest, half to even */
static inline IN_f32x8 void store_bf16_f32x8(uint16_t *p, f32x8 v)
{
    const bits_f32x8 bits = (bits_f32x8)v;
    const bits_f32x8 near = bits + 0x7fff + ((bits >> 16) & 1), quiet = bits | 0x400000;
    const bits_f32x8 top = (bits_f32x8)select_f32x8(v != v, (f32x8)quiet, (f32x8)near);
    half_f32x8(p, top >> 16);
}

//@ load_bool_f32x8 f32x8
static inline IN_f32x8 mask_f32x8 load_bool_f32x8(const uint8_t *p)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (mask_f32x8)_mm256_cmpgt_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_setzero_si256());
}

//@ first_f32x8 f32x8
/* all ones in the first n */
static inline IN_f32x8 __m256i first_f32x8(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

//@ load_part_f32x8 f32x8 first_f32x8
/* the first n; 0 in the others */
static inline IN_f32x8 f32x8 load_part_f32x8(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_f32x8(n));
}

//@ store_part_f32x8 f32x8 first_f32x8
/* the first n */
static inline IN_f32x8 void store_part_f32x8(float *p, f32x8 v, int n)
{
    _mm256_maskstore_ps(p, first_f32x8(n), v);
}

//@ splat_f32x8 f32x8
static inline IN_f32x8 f32x8 splat_f32x8(float v) { return _mm256_set1_ps(v); }

//@ ramp_f32x8 splat_f32x8
/* v, v + 1, v + 2 ... */
static inline IN_f32x8 f32x8 ramp_f32x8(float v)
{
    return splat_f32x8(v) + (f32x8){0, 1, 2, 3, 4, 5, 6, 7};
}

//@ fma_f32x8 f32x8
/* a*b + c, rounded once */
static inline IN_f32x8 f32x8 fma_f32x8(f32x8 a, f32x8 b, f32x8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

//@ higher_f32x8 f32x8
/* the larger; b, if one of them is NaN */
static inline IN_f32x8 f32x8 higher_f32x8(f32x8 a, f32x8 b) { return _mm256_max_ps(a, b); }

//@ lower_f32x8 f32x8
static inline IN_f32x8 f32x8 lower_f32x8(f32x8 a, f32x8 b) { return _mm256_min_ps(a, b); }

//@ sqrt_f32x8 f32x8
static inline IN_f32x8 f32x8 sqrt_f32x8(f32x8 v) { return _mm256_sqrt_ps(v); }

//@ floor_f32x8 f32x8
static inline IN_f32x8 f32x8 floor_f32x8(f32x8 v) { return _mm256_floor_ps(v); }

//@ ceil_f32x8 f32x8
static inline IN_f32x8 f32x8 ceil_f32x8(f32x8 v) { return _mm256_ceil_ps(v); }

//@ trunc_f32x8 f32x8
static inline IN_f32x8 f32x8 trunc_f32x8(f32x8 v) { return _mm256_round_ps(v, 11); }

//@ round_f32x8 f32x8
/* half to even */
static inline IN_f32x8 f32x8 round_f32x8(f32x8 v) { return _mm256_round_ps(v, 8); }

//@ turn_f32x8 f32x8
/* Exchanges groups of `by` lanes in pairs; log2(lanes) of these are a reduction. */
static inline IN_f32x8 f32x8 turn_f32x8(f32x8 v, int by)
{
    return by == 4   ? _mm256_permute2f128_ps(v, v, 1)
           : by == 2 ? _mm256_permute_ps(v, 0x4e)
                     : _mm256_permute_ps(v, 0xb1);
}

//@ evens_f32x8 f32x8
/* The even groups of `by` lanes of a, each followed by that of b. */
static inline IN_f32x8 f32x8 evens_f32x8(f32x8 a, f32x8 b, int by)
{
    return by == 4   ? _mm256_permute2f128_ps(a, b, 0x20)
           : by == 2 ? (f32x8)_mm256_unpacklo_pd((__m256d)a, (__m256d)b)
                     : _mm256_blend_ps(a, _mm256_moveldup_ps(b), 0xaa);
}

//@ odds_f32x8 f32x8
static inline IN_f32x8 f32x8 odds_f32x8(f32x8 a, f32x8 b, int by)
{
    return by == 4   ? _mm256_permute2f128_ps(a, b, 0x31)
           : by == 2 ? (f32x8)_mm256_unpackhi_pd((__m256d)a, (__m256d)b)
                     : _mm256_blend_ps(_mm256_movehdup_ps(a), b, 0xaa);
}

//@ i32x8 f32x8
typedef uint32_t i32x8 __attribute__((vector_size(32)));

//@ load_i32x8 i32x8
static inline IN_f32x8 i32x8 load_i32x8(const int32_t *p)
{
    return (i32x8)_mm256_loadu_si256((const __m256i *)(const void *)p);
}

//@ store_i32x8 i32x8
static inline IN_f32x8 void store_i32x8(int32_t *p, i32x8 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)v);
}

//@ store_apart_i32x8 store_i32x8
/* Stores the first n lanes, `step` apart. It reads them from an array: clang has one stack slot for
 * all such arrays, but one for each vector whose lanes are read in a loop. */
static inline IN_f32x8 void store_apart_i32x8(int32_t *p, i32x8 v, int64_t step, int n)
{
    int32_t a[8];
    store_i32x8(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ load_bytes_i32x8 i32x8
/* four bytes in each lane */
static inline IN_f32x8 i32x8 load_bytes_i32x8(const void *p)
{
    return (i32x8)_mm256_loadu_si256((const __m256i *)p);
}

//@ store_bytes_i32x8 i32x8
static inline IN_f32x8 void store_bytes_i32x8(void *p, i32x8 v)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)v);
}

//@ lookup_i32x8 i32x8
/* For indices 0 .. 0x7f - up_to: the entry of a 16-byte row XOR that of the next row; 0
 * for other indices. */
static inline IN_f32x8 __m256i lookup_row_i32x8(const __m128i *row, __m256i at, char up_to)
{
    const __m128i more = _mm_xor_si128(_mm_loadu_si128(row), _mm_loadu_si128(row + 1));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(more),
                               _mm256_adds_epu8(at, _mm256_set1_epi8(up_to)));
}

/* Entry h of the table for indices 0..127, 0 for others. XORs row h ^ row h+1, row h+1 ^ row h+2
 * and so on up to the last row, which leaves row h. */
static inline IN_f32x8 __m256i lookup_half_i32x8(const void *table, __m256i at)
{
    const __m128i *row = (const __m128i *)table;
    const __m256i last = _mm256_broadcastsi128_si256(_mm_loadu_si128(row + 7));
    __m256i y = _mm256_shuffle_epi8(last, at);
    y = _mm256_xor_si256(y, lookup_row_i32x8(row + 6, at, 0x10));
    y = _mm256_xor_si256(y, lookup_row_i32x8(row + 5, at, 0x20));
    y = _mm256_xor_si256(y, lookup_row_i32x8(row + 4, at, 0x30));
    y = _mm256_xor_si256(y, lookup_row_i32x8(row + 3, at, 0x40));
    y = _mm256_xor_si256(y, lookup_row_i32x8(row + 2, at, 0x50));
    y = _mm256_xor_si256(y, lookup_row_i32x8(row + 1, at, 0x60));
    return _mm256_xor_si256(y, lookup_row_i32x8(row, at, 0x70));
}

/* looks up each of 32 bytes in a table of 256 */
static inline IN_f32x8 i32x8 lookup_i32x8(const void *table, i32x8 bytes)
{
    const __m256i at = (__m256i)bytes, above = _mm256_xor_si256(at, _mm256_set1_epi8(-128));
    return (i32x8)_mm256_xor_si256(lookup_half_i32x8(table, at),
                                   lookup_half_i32x8((const char *)table + 128, above));
}

//@ lookup_i8_i32x8 lookup_i32x8
/* for bytes of -128..127; the table begins with the entry of -128 */
static inline IN_f32x8 i32x8 lookup_i8_i32x8(const void *table, i32x8 bytes)
{
    return lookup_i32x8(table, bytes ^ 0x80808080u);
}

//@ load_groups_i32x8 i32x8
/* four bytes in each lane, `step` apart; lane i begins i bytes on */
static inline IN_f32x8 i32x8 load_groups_i32x8(const void *p, int64_t step)
{
    const char *s = (const char *)p;
    const __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)s);
    const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(s + step));
    const __m128i c = _mm_loadl_epi64((const __m128i *)(const void *)(s + 2 * step));
    const __m128i d = _mm_loadl_epi64((const __m128i *)(const void *)(s + 3 * step));
    const __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    const __m256i low = _mm256_castsi128_si256(_mm_unpacklo_epi16(ab, cd));
    return (i32x8)_mm256_inserti128_si256(low, _mm_unpackhi_epi16(ab, cd), 1);
}

//@ load_i8_i32x8 i32x8
static inline IN_f32x8 i32x8 load_i8_i32x8(const int8_t *p)
{
    return (i32x8)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

//@ load_u8_i32x8 i32x8
static inline IN_f32x8 i32x8 load_u8_i32x8(const uint8_t *p)
{
    return (i32x8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

//@ splat_i32x8 i32x8
static inline IN_f32x8 i32x8 splat_i32x8(int32_t v) { return (i32x8)_mm256_set1_epi32(v); }

//@ from_i32_f32x8 i32x8
static inline IN_f32x8 f32x8 from_i32_f32x8(i32x8 v) { return _mm256_cvtepi32_ps((__m256i)v); }

//@ store_u8_f32x8 f32x8
/* truncated and saturated; NaN becomes 0 */
static inline IN_f32x8 void store_u8_f32x8(uint8_t *p, f32x8 v)
{
    const __m256 near =
        _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(255.0f));
    const __m256i n = _mm256_cvttps_epi32(near);
    const __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(half, half));
}

//@ store_number_u8_f32x8 f32x8
/* of 0..255, or NaN, which becomes 0 */
static inline IN_f32x8 void store_number_u8_f32x8(uint8_t *p, f32x8 v)
{
    const __m256i n = _mm256_cvttps_epi32(v);
    const __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(half, half));
}

//@ store_i8_f32x8 f32x8
/* truncated and saturated; NaN becomes 0 */
static inline IN_f32x8 void store_i8_f32x8(int8_t *p, f32x8 v)
{
    const __m256 number = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    const __m256 near =
        _mm256_min_ps(_mm256_max_ps(number, _mm256_set1_ps(-128.0f)), _mm256_set1_ps(127.0f));
    const __m256i n = _mm256_cvttps_epi32(near);
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(half, half));
}

//@ store_nearest_u8_f32x8 f32x8
/* rounded half to even; -2^31 to 2^31 */
static inline IN_f32x8 void store_nearest_u8_f32x8(uint8_t *p, f32x8 v)
{
    const __m256i n = _mm256_cvtps_epi32(v);
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(half, half));
}

//@ store_nearest_i8_f32x8 f32x8
/* rounded half to even; -2^31 to 2^31 */
static inline IN_f32x8 void store_nearest_i8_f32x8(int8_t *p, f32x8 v)
{
    const __m256i n = _mm256_cvtps_epi32(v);
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(half, half));
}

//@ dot_i32x8 i32x8
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane. Even and odd
 * bytes are multiplied as 16-bit integers, since the instruction for bytes saturates. */
static inline IN_f32x8 i32x8 dot_i32x8(i32x8 sum, i32x8 a, i32x8 b)
{
    const __m256i x = (__m256i)a, w = (__m256i)b;
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8));
    return sum + (i32x8)even + (i32x8)odd;
}

//@ dot_bf16_f32x8 f32x8 i32x8
/* sum + the dot product of two bf16, the upper ones first, in each lane */
static inline IN_f32x8 f32x8 dot_bf16_f32x8(f32x8 sum, i32x8 a, i32x8 b)
{
    const bits_f32x8 x = (bits_f32x8)a, w = (bits_f32x8)b;
    sum = _mm256_fmadd_ps((f32x8)(x & 0xffff0000u), (f32x8)(w & 0xffff0000u), sum);
    return _mm256_fmadd_ps((f32x8)(x << 16), (f32x8)(w << 16), sum);
}

//@ less_i32x8 i32x8
static inline IN_f32x8 mask_f32x8 less_i32x8(i32x8 a, i32x8 b)
{
    return (mask_f32x8)_mm256_cmpgt_epi32((__m256i)b, (__m256i)a);
}

//@ equal_i32x8 i32x8
static inline IN_f32x8 mask_f32x8 equal_i32x8(i32x8 a, i32x8 b)
{
    return (mask_f32x8)_mm256_cmpeq_epi32((__m256i)a, (__m256i)b);
}

//@ differ_i32x8 equal_i32x8
static inline IN_f32x8 mask_f32x8 differ_i32x8(i32x8 a, i32x8 b) { return ~equal_i32x8(a, b); }

//@ max_i32x8 i32x8
static inline IN_f32x8 i32x8 max_i32x8(i32x8 a, i32x8 b)
{
    return (i32x8)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

//@ min_i32x8 i32x8
static inline IN_f32x8 i32x8 min_i32x8(i32x8 a, i32x8 b)
{
    return (i32x8)_mm256_min_epi32((__m256i)a, (__m256i)b);
}

//@ select_i32x8 i32x8
/* m ? a : b, lane by lane */
static inline IN_f32x8 i32x8 select_i32x8(mask_f32x8 m, i32x8 a, i32x8 b)
{
    return (i32x8)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
}

//@ lanes_i32x8 i32x8
static inline IN_f32x8 i32x8 lanes_i32x8(void)
{
    return (i32x8)_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

//@ narrow_f32_i32x8 i32x8
/* truncated and clamped to -most..most; NaN becomes 0 */
static inline IN_f32x8 i32x8 narrow_f32_i32x8(f32x8 v, int most)
{
    const __m256 number = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    const __m256 high = _mm256_set1_ps((float)most), low = _mm256_set1_ps((float)-most);
    return (i32x8)_mm256_cvttps_epi32(_mm256_min_ps(_mm256_max_ps(number, low), high));
}

//@ narrow_i64_i32x8 i32x8
/* -most..most */
static inline IN_f32x8 __m256 narrow_half_i32x8(const int64_t *p, int most)
{
    const __m256i high = _mm256_set1_epi64x(most), low = _mm256_set1_epi64x(-(int64_t)most);
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    v = _mm256_blendv_epi8(v, high, _mm256_cmpgt_epi64(v, high));
    return (__m256)_mm256_blendv_epi8(v, low, _mm256_cmpgt_epi64(low, v));
}

static inline IN_f32x8 i32x8 narrow_i64_i32x8(const int64_t *p, int most)
{
    const __m256 a = narrow_half_i32x8(p, most), b = narrow_half_i32x8(p + 4, most);
    return (i32x8)_mm256_permute4x64_epi64((__m256i)_mm256_shuffle_ps(a, b, 0x88), 0xd8);
}

//@ gather_f32x8 i32x8
static inline IN_f32x8 f32x8 gather_f32x8(const float *p, i32x8 at)
{
    return _mm256_i32gather_ps(p, (__m256i)at, 4);
}

//@ gather_where_f32x8 i32x8
/* The lanes where m is all ones; nothing is read for the others, which are `otherwise`. */
static inline IN_f32x8 f32x8 gather_where_f32x8(const float *p, i32x8 at, mask_f32x8 m,
                                                f32x8 otherwise)
{
    return _mm256_mask_i32gather_ps(otherwise, p, (__m256i)at, (__m256)m, 4);
}

//@ narrow_apart_i64_i32x8 i32x8
/* of 64-bit integers that are `step` apart */
static inline IN_f32x8 i32x8 narrow_apart_i64_i32x8(const int64_t *p, int64_t step, int most)
{
    int32_t v[8];
    for (int i = 0; i < 8; i++, p += step)
        v[i] = (int32_t)(*p < -most ? -most : *p > most ? most : *p);
    i32x8 all;
    memcpy(&all, v, sizeof all);
    return all;
}
