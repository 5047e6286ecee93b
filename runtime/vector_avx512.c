/* vector_avx512.c - vectors of floats for AVX-512: f32x16.
 *
 * Arithmetic, comparison and bits are the compiler's own (gcc's vector extensions, which clang has,
 * too); only what they do not reach is an intrinsic. A comparison gives lanes of all ones or zeros
 * (bits_f32x16). Each function carries the target it needs, so that no compiler flags are needed.
 */
#include <immintrin.h>
#include <stdint.h>

//@ f32x16
#define IN_f32x16 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
typedef __m512 f32x16;
typedef int32_t bits_f32x16 __attribute__((vector_size(64)));

//@ load_f32x16 f32x16
static inline IN_f32x16 f32x16 load_f32x16(const float *p) { return _mm512_loadu_ps(p); }

//@ store_f32x16 f32x16
static inline IN_f32x16 void store_f32x16(float *p, f32x16 v) { _mm512_storeu_ps(p, v); }

//@ load_i8_f32x16 f32x16
static inline IN_f32x16 f32x16 load_i8_f32x16(const int8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

//@ load_u8_f32x16 f32x16
static inline IN_f32x16 f32x16 load_u8_f32x16(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

//@ load_bf16_f32x16 f32x16
static inline IN_f32x16 f32x16 load_bf16_f32x16(const uint16_t *p)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

//@ load_f16_f32x16 f32x16
static inline IN_f32x16 f32x16 load_f16_f32x16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

//@ store_f16_f32x16 f32x16
/* the nearest, half to even */
static inline IN_f32x16 void store_f16_f32x16(uint16_t *p, f32x16 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_maskz_cvtps_ph(0xffff, v, 8));
}

//@ store_bf16_f32x16 f32x16
/* the nearest, half to even */
static inline IN_f32x16 void store_bf16_f32x16(uint16_t *p, f32x16 v)
{
    const bits_f32x16 bits = (bits_f32x16)v;
    const bits_f32x16 near = bits + 0x7fff + ((bits >> 16) & 1), number = v == v;
    const bits_f32x16 top = ((near & number) | ((bits | 0x400000) & ~number)) >> 16;
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)top));
}

//@ load_bool_f32x16 f32x16
static inline IN_f32x16 bits_f32x16 load_bool_f32x16(const uint8_t *p)
{
    return (bits_f32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)) !=
           0;
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
static inline IN_f32x16 f32x16 higher_f32x16(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); }

//@ lower_f32x16 f32x16
static inline IN_f32x16 f32x16 lower_f32x16(f32x16 a, f32x16 b) { return _mm512_min_ps(a, b); }

//@ sqrt_f32x16 f32x16
static inline IN_f32x16 f32x16 sqrt_f32x16(f32x16 v) { return _mm512_sqrt_ps(v); }

//@ macros_f32x16
/* Without optimization gcc has intrinsics with a constant as macros, and warns about what is in
 * them. */
#if !defined __clang__ && !defined __OPTIMIZE__
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

//@ floor_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 floor_f32x16(f32x16 v) { return _mm512_roundscale_ps(v, 9); }

//@ ceil_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 ceil_f32x16(f32x16 v) { return _mm512_roundscale_ps(v, 10); }

//@ trunc_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 trunc_f32x16(f32x16 v) { return _mm512_roundscale_ps(v, 11); }

//@ round_f32x16 f32x16 macros_f32x16
/* half to even */
static inline IN_f32x16 f32x16 round_f32x16(f32x16 v) { return _mm512_roundscale_ps(v, 8); }

//@ turn_f32x16 f32x16 macros_f32x16
/* Neighbours that are `by` apart change places: a fold is as many of these as it has halves. */
static inline IN_f32x16 f32x16 turn_f32x16(f32x16 v, int by)
{
    return by == 8   ? _mm512_shuffle_f32x4(v, v, 0x4e)
           : by == 4 ? _mm512_shuffle_f32x4(v, v, 0xb1)
           : by == 2 ? _mm512_permute_ps(v, 0x4e)
                     : _mm512_permute_ps(v, 0xb1);
}

//@ evens_f32x16 f32x16 macros_f32x16
/* The even ones of the groups of `by` lanes: a's, each with b's behind it. */
static inline IN_f32x16 f32x16 evens_f32x16(f32x16 a, f32x16 b, int by)
{
    return by == 8   ? _mm512_shuffle_f32x4(a, b, 0x44)
           : by == 4 ? _mm512_mask_shuffle_f32x4(a, 0xf0f0, b, b, 0xb1)
           : by == 2 ? (f32x16)_mm512_unpacklo_pd((__m512d)a, (__m512d)b)
                     : _mm512_mask_moveldup_ps(a, 0xaaaa, b);
}

//@ odds_f32x16 f32x16 macros_f32x16
static inline IN_f32x16 f32x16 odds_f32x16(f32x16 a, f32x16 b, int by)
{
    return by == 8   ? _mm512_shuffle_f32x4(a, b, 0xee)
           : by == 4 ? _mm512_mask_shuffle_f32x4(b, 0x0f0f, a, a, 0xb1)
           : by == 2 ? (f32x16)_mm512_unpackhi_pd((__m512d)a, (__m512d)b)
                     : _mm512_mask_movehdup_ps(b, 0x5555, a);
}

//@ half_f32x16 f32x16 f32x8
/* the first eight lanes; clang would make them anew from what all lanes were made of */
static inline IN_f32x16 f32x8 half_f32x16(f32x16 v)
{
#ifdef __clang__
    __asm__("" : "+v"(v));
#endif
    return _mm512_castps512_ps256(v);
}

//@ exp1_f32x16 fma_f32x16 higher_f32x16 lower_f32x16 splat_f32x16
/* 1 + e^-x, infinite from where 2^(k/16) is. e^-x = 2^(k/16) e^r, r in +-ln2/32: 2^(k%16/16) is
 * looked up, its bits less those that k%16 adds to the exponent's. */
static inline IN_f32x16 f32x16 exp1_f32x16(f32x16 x)
{
    const __m512i powers = _mm512_setr_epi32(
        0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
        0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
        0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d);
    const f32x16 v = lower_f32x16(splat_f32x16(87.3f), higher_f32x16(splat_f32x16(-88.73f), x));
    const f32x16 shifted = fma_f32x16(v, splat_f32x16(-23.0831203f), splat_f32x16(12582912.0f));
    const f32x16 k = shifted - 12582912.0f;
    const f32x16 r = fma_f32x16(k, splat_f32x16(1.32621527e-5f),
                                fma_f32x16(k, splat_f32x16(-0.0433349609375f), -v));
    f32x16 p = fma_f32x16(splat_f32x16(0.166672f), r, splat_f32x16(0.5f));
    p = fma_f32x16(p, r, splat_f32x16(1.0f));
    p = fma_f32x16(p, r, splat_f32x16(1.0f));
    const __m512i bits = _mm512_castps_si512(shifted);
    const f32x16 power = _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_permutexvar_epi32(bits, powers), _mm512_slli_epi32(bits, 19)));
    return fma_f32x16(power, p, splat_f32x16(1.0f));
}

//@ i32x16 f32x16
typedef int32_t i32x16 __attribute__((vector_size(64)));

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

//@ store_apart_i32x16 i32x16
/* the first n, each `step` behind the one before */
static inline IN_f32x16 void store_apart_i32x16(int32_t *p, i32x16 v, int64_t step, int n)
{
    for (int i = 0; i < n; i++)
        p[i * step] = v[i];
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
/* For each of 64 bytes the table's byte of that number: pairs of neighbours are looked up, for the
 * bytes at even places and for those at odd ones. */
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
    /* the second one of a pair, if the number is odd */
    const __mmask32 last0 = _mm512_test_epi16_mask(odd, _mm512_set1_epi16(1));
    const __mmask32 last1 = _mm512_test_epi16_mask(odd, _mm512_set1_epi16(256));
    const __m512i y0 = _mm512_mask_srli_epi16(pair0, last0, pair0, 8);
    const __m512i y1 = _mm512_mask_slli_epi16(pair1, (__mmask32)~last1, pair1, 8);
    return (i32x16)_mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaau, y0, y1);
}

//@ lookup_i8_i32x16 lookup_i32x16
/* by bytes of -128..127, the first element is that of -128 */
static inline IN_f32x16 i32x16 lookup_i8_i32x16(const void *table, i32x16 bytes)
{
    return lookup_i32x16(table, bytes ^ (int32_t)0x80808080u);
}

//@ load_groups_i32x16 i32x16
/* four bytes in each lane, each `step` behind the one before; lanes are neighbours */
static inline IN_f32x16 i32x16 load_groups_i32x16(const void *p, int64_t step)
{
    const char *s = (const char *)p;
    const __m512i a = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)s));
    const __m512i b =
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(s + step)));
    const __m512i c =
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(s + 2 * step)));
    const __m512i d =
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(s + 3 * step)));
    const __m512i low = _mm512_or_si512(a, _mm512_slli_epi32(b, 8));
    const __m512i high = _mm512_or_si512(_mm512_slli_epi32(c, 16), _mm512_slli_epi32(d, 24));
    return (i32x16)_mm512_or_si512(low, high);
}

//@ load_i8_i32x16 i32x16
static inline IN_f32x16 i32x16 load_i8_i32x16(const int8_t *p)
{
    return (i32x16)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

//@ load_u8_i32x16 i32x16
static inline IN_f32x16 i32x16 load_u8_i32x16(const uint8_t *p)
{
    return (i32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

//@ splat_i32x16 i32x16
static inline IN_f32x16 i32x16 splat_i32x16(int32_t v) { return (i32x16)_mm512_set1_epi32(v); }

//@ from_i32_f32x16 i32x16
static inline IN_f32x16 f32x16 from_i32_f32x16(i32x16 v) { return _mm512_cvtepi32_ps((__m512i)v); }

//@ store_u8_f32x16 f32x16
/* without what follows the point; 0 for NaN, the nearest for what is out of range */
static inline IN_f32x16 void store_u8_f32x16(uint8_t *p, f32x16 v)
{
    const __m512 near =
        _mm512_min_ps(_mm512_max_ps(v, _mm512_setzero_ps()), _mm512_set1_ps(255.0f));
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(near)));
}

//@ store_number_u8_f32x16 f32x16
/* of 0..255, or NaN, which becomes 0 */
static inline IN_f32x16 void store_number_u8_f32x16(uint8_t *p, f32x16 v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(v)));
}

//@ store_i8_f32x16 f32x16
/* without what follows the point; 0 for NaN, the nearest for what is out of range */
static inline IN_f32x16 void store_i8_f32x16(int8_t *p, f32x16 v)
{
    const __m512 number = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v);
    const __m512 near =
        _mm512_min_ps(_mm512_max_ps(number, _mm512_set1_ps(-128.0f)), _mm512_set1_ps(127.0f));
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(near)));
}

//@ store_nearest_u8_f32x16 f32x16
/* rounded half to even; -2^31 to 2^31 */
static inline IN_f32x16 void store_nearest_u8_f32x16(uint8_t *p, f32x16 v)
{
    const __m512i n = _mm512_max_epi32(_mm512_cvtps_epi32(v), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtusepi32_epi8(n));
}

//@ store_nearest_i8_f32x16 f32x16
/* rounded half to even; -2^31 to 2^31 */
static inline IN_f32x16 void store_nearest_i8_f32x16(int8_t *p, f32x16 v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}

//@ put_apart_f32x16 f32x16
/* the low bytes of the first n, each `step` behind the one before: an image's channels, four bytes
 * a pixel, at once */
static inline IN_f32x16 void put_apart_f32x16(uint8_t *p, __m512i v, int64_t step, int n)
{
    uint8_t a[16];
    if (step == 4) {
        _mm512_mask_storeu_epi8(p, 0x1111111111111111u >> (64 - 4 * n), v);
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)a, _mm512_cvtepi32_epi8(v));
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ store_apart_u8_f32x16 put_apart_f32x16
/* as store_u8, each of the first n `step` behind the one before */
static inline IN_f32x16 void store_apart_u8_f32x16(uint8_t *p, f32x16 v, int64_t step, int n)
{
    const __m512 near =
        _mm512_min_ps(_mm512_max_ps(v, _mm512_setzero_ps()), _mm512_set1_ps(255.0f));
    put_apart_f32x16(p, _mm512_cvttps_epi32(near), step, n);
}

//@ store_apart_nearest_u8_f32x16 put_apart_f32x16
/* as store_nearest_u8, each of the first n `step` behind the one before */
static inline IN_f32x16 void store_apart_nearest_u8_f32x16(uint8_t *p, f32x16 v, int64_t step,
                                                           int n)
{
    const __m512i i = _mm512_max_epi32(_mm512_cvtps_epi32(v), _mm512_setzero_si512());
    put_apart_f32x16(p, _mm512_min_epi32(i, _mm512_set1_epi32(255)), step, n);
}

//@ dot_i32x16 i32x16
/* sum + the four products of bytes a (0..255) and b (-128..127) in each lane: those at even places,
 * then those at odd ones, as products of 16 bits */
static inline IN_f32x16 i32x16 dot_i32x16(i32x16 sum, i32x16 a, i32x16 b)
{
    const __m512i x = (__m512i)a, w = (__m512i)b;
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(x, _mm512_set1_epi16(255)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(x, 8), _mm512_srai_epi16(w, 8));
    return sum + (i32x16)even + (i32x16)odd;
}
