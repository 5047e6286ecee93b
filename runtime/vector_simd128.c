/* SPDX-License-Identifier: 0BSD */
/* vector_simd128.c - vectors of floats for WebAssembly's SIMD128: f32x4.
 *
 * A module has these instructions or it has not: there is no choice at run time, and no target
 * attribute. The compiler's -msimd128 decides. The file is of its own: no other instruction set has
 * variants beside this one, so the pieces have the names that NEON's have.
 *
 * There is no fused multiply-add: fma_f32x4() rounds twice, as the portable C does. higher and
 * lower are the pseudo-maximum and -minimum, one instruction on x86; where one operand is NaN the
 * result is the second one, as by AVX.
 */
#include <stdint.h>
#include <string.h>
#include <wasm_simd128.h>

//@ simd128_f32x4
#define IN_f32x4
typedef float f32x4 __attribute__((vector_size(16)));
typedef uint32_t bits_f32x4 __attribute__((vector_size(16)));
typedef int32_t ints_f32x4 __attribute__((vector_size(16)));
typedef ints_f32x4 mask_f32x4;

//@ simd128_less_f32x4 f32x4
static inline mask_f32x4 less_f32x4(f32x4 a, f32x4 b) { return a < b; }

//@ simd128_equal_f32x4 f32x4
static inline mask_f32x4 equal_f32x4(f32x4 a, f32x4 b) { return a == b; }

//@ simd128_differ_f32x4 f32x4
/* also where one is NaN */
static inline mask_f32x4 differ_f32x4(f32x4 a, f32x4 b) { return a != b; }

//@ simd128_not_f32x4 f32x4
static inline mask_f32x4 not_f32x4(mask_f32x4 m) { return ~m; }

//@ simd128_splat_mask_f32x4 f32x4
static inline mask_f32x4 splat_mask_f32x4(bool b)
{
    return (mask_f32x4)wasm_i32x4_splat(b ? -1 : 0);
}

//@ simd128_select_f32x4 f32x4
/* m ? a : b, lane by lane */
static inline f32x4 select_f32x4(mask_f32x4 m, f32x4 a, f32x4 b)
{
    return (f32x4)wasm_v128_bitselect((v128_t)a, (v128_t)b, (v128_t)m);
}

//@ simd128_from_bool_f32x4 f32x4
static inline f32x4 from_bool_f32x4(mask_f32x4 m) { return (f32x4)(m & 0x3f800000); }

//@ simd128_abs_f32x4 f32x4
static inline f32x4 abs_f32x4(f32x4 v) { return (f32x4)wasm_f32x4_abs((v128_t)v); }

//@ simd128_copysign_f32x4 f32x4
static inline f32x4 copysign_f32x4(f32x4 v, f32x4 sign)
{
    return (f32x4)(((bits_f32x4)v & 0x7fffffffu) | ((bits_f32x4)sign & 0x80000000u));
}

//@ simd128_load_f32x4 f32x4
static inline f32x4 load_f32x4(const float *p) { return (f32x4)wasm_v128_load(p); }

//@ simd128_store_f32x4 f32x4
static inline void store_f32x4(float *p, f32x4 v) { wasm_v128_store(p, (v128_t)v); }

//@ simd128_load_i8_f32x4 f32x4
static inline f32x4 load_i8_f32x4(const int8_t *p)
{
    const v128_t bytes = wasm_v128_load32_zero(p);
    const v128_t wide = wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(bytes));
    return (f32x4)wasm_f32x4_convert_i32x4(wide);
}

//@ simd128_load_u8_f32x4 f32x4
static inline f32x4 load_u8_f32x4(const uint8_t *p)
{
    const v128_t bytes = wasm_v128_load32_zero(p);
    const v128_t wide = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(bytes));
    return (f32x4)wasm_f32x4_convert_i32x4(wide);
}

//@ simd128_load_bf16_f32x4 f32x4
static inline f32x4 load_bf16_f32x4(const uint16_t *p)
{
    return (f32x4)((bits_f32x4)wasm_u32x4_load16x4(p) << 16);
}

//@ simd128_load_f16_f32x4 f32x4
/* Shifts exponent and mantissa into place and adds 112 to the exponent, which is all ones for
 * infinity and NaN. A subnormal is built as the fraction of 2^-14, which is then subtracted. */
static inline f32x4 load_f16_f32x4(const uint16_t *p)
{
    const bits_f32x4 h = (bits_f32x4)wasm_u32x4_load16x4(p);
    const bits_f32x4 size = (h & 0x7fff) << 13;
    const bits_f32x4 large = (bits_f32x4)(size > 0x0f7fffff);
    const f32x4 normal = (f32x4)((size + 0x38000000) | (large & 0x7f800000));
    const f32x4 fraction = (f32x4)(size + 0x38800000) - 0x1p-14f;
    const v128_t v = wasm_v128_bitselect((v128_t)fraction, (v128_t)normal,
                                         (v128_t)(size < 0x00800000));
    return (f32x4)((bits_f32x4)v | (h & 0x8000) << 16);
}

//@ simd128_half_f32x4 f32x4
/* the low halves of the lanes */
static inline void half_f32x4(uint16_t *p, bits_f32x4 v)
{
    const v128_t all = wasm_i8x16_shuffle((v128_t)v, (v128_t)v, 0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4,
                                          5, 8, 9, 12, 13);
    wasm_v128_store64_lane(p, all, 0);
}

//@ simd128_store_f16_f32x4 half_f32x4
/* Rounds to nearest even; below the least normal number, adding 0.5 rounds. */
static inline void store_f16_f32x4(uint16_t *p, f32x4 v)
{
    const bits_f32x4 bits = (bits_f32x4)v, size = bits & 0x7fffffff;
    const bits_f32x4 normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    const bits_f32x4 small = (bits_f32x4)((f32x4)size + 0.5f) - 0x3f000000;
    v128_t h = wasm_v128_bitselect((v128_t)small, (v128_t)normal, (v128_t)(size < 0x38800000));
    h = wasm_v128_bitselect(wasm_i32x4_const_splat(0x7c00), h, (v128_t)(size > 0x477fefff));
    h = wasm_v128_bitselect(wasm_i32x4_const_splat(0x7e00), h, (v128_t)(size > 0x7f800000));
    half_f32x4(p, (bits_f32x4)h | ((bits >> 16) & 0x8000));
}

//@ simd128_store_bf16_f32x4 half_f32x4
/* the nearest, half to even */
static inline void store_bf16_f32x4(uint16_t *p, f32x4 v)
{
    const bits_f32x4 bits = (bits_f32x4)v;
    const bits_f32x4 near = bits + 0x7fff + ((bits >> 16) & 1), quiet = bits | 0x400000;
    const v128_t top = wasm_v128_bitselect((v128_t)quiet, (v128_t)near, (v128_t)(v != v));
    half_f32x4(p, (bits_f32x4)top >> 16);
}

//@ simd128_load_bool_f32x4 f32x4
static inline mask_f32x4 load_bool_f32x4(const uint8_t *p)
{
    const v128_t bytes = wasm_v128_load32_zero(p);
    const v128_t wide = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(bytes));
    return (mask_f32x4)wide != 0;
}

//@ simd128_load_part_f32x4 f32x4
/* the first n; 0 in the others */
static inline f32x4 load_part_f32x4(const float *p, int n)
{
    return (f32x4){n > 0 ? p[0] : 0.0f, n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f,
                   n > 3 ? p[3] : 0.0f};
}

//@ simd128_store_part_f32x4 f32x4
/* the first n */
static inline void store_part_f32x4(float *p, f32x4 v, int n)
{
    for (int i = 0; i < n && i < 4; i++)
        p[i] = v[i];
}

//@ simd128_splat_f32x4 f32x4
static inline f32x4 splat_f32x4(float v) { return (f32x4)wasm_f32x4_splat(v); }

//@ simd128_ramp_f32x4 splat_f32x4
/* v, v + 1, v + 2 ... */
static inline f32x4 ramp_f32x4(float v)
{
    return splat_f32x4(v) + (f32x4){0, 1, 2, 3};
}

//@ simd128_fma_f32x4 f32x4
/* a*b + c, rounded twice */
static inline f32x4 fma_f32x4(f32x4 a, f32x4 b, f32x4 c) { return a * b + c; }

//@ simd128_higher_f32x4 f32x4
static inline f32x4 higher_f32x4(f32x4 a, f32x4 b)
{
    return (f32x4)wasm_f32x4_pmax((v128_t)b, (v128_t)a);
}

//@ simd128_lower_f32x4 f32x4
static inline f32x4 lower_f32x4(f32x4 a, f32x4 b)
{
    return (f32x4)wasm_f32x4_pmin((v128_t)b, (v128_t)a);
}

//@ simd128_sqrt_f32x4 f32x4
static inline f32x4 sqrt_f32x4(f32x4 v) { return (f32x4)wasm_f32x4_sqrt((v128_t)v); }

//@ simd128_floor_f32x4 f32x4
static inline f32x4 floor_f32x4(f32x4 v) { return (f32x4)wasm_f32x4_floor((v128_t)v); }

//@ simd128_ceil_f32x4 f32x4
static inline f32x4 ceil_f32x4(f32x4 v) { return (f32x4)wasm_f32x4_ceil((v128_t)v); }

//@ simd128_trunc_f32x4 f32x4
static inline f32x4 trunc_f32x4(f32x4 v) { return (f32x4)wasm_f32x4_trunc((v128_t)v); }

//@ simd128_round_f32x4 f32x4
/* half to even */
static inline f32x4 round_f32x4(f32x4 v) { return (f32x4)wasm_f32x4_nearest((v128_t)v); }

//@ simd128_turn_f32x4 f32x4
/* Exchanges groups of `by` lanes in pairs; log2(lanes) of these are a reduction. */
static inline f32x4 turn_f32x4(f32x4 v, int by)
{
    return by == 2 ? __builtin_shufflevector(v, v, 2, 3, 0, 1)
                   : __builtin_shufflevector(v, v, 1, 0, 3, 2);
}

//@ simd128_evens_f32x4 f32x4
/* The even groups of `by` lanes of a, each followed by that of b. */
static inline f32x4 evens_f32x4(f32x4 a, f32x4 b, int by)
{
    return by == 2 ? __builtin_shufflevector(a, b, 0, 1, 4, 5)
                   : __builtin_shufflevector(a, b, 0, 4, 2, 6);
}

//@ simd128_odds_f32x4 f32x4
static inline f32x4 odds_f32x4(f32x4 a, f32x4 b, int by)
{
    return by == 2 ? __builtin_shufflevector(a, b, 2, 3, 6, 7)
                   : __builtin_shufflevector(a, b, 1, 5, 3, 7);
}

//@ simd128_i32x4 f32x4
typedef bits_f32x4 i32x4;

//@ simd128_load_i32x4 i32x4
static inline i32x4 load_i32x4(const int32_t *p) { return (i32x4)wasm_v128_load(p); }

//@ simd128_store_i32x4 i32x4
static inline void store_i32x4(int32_t *p, i32x4 v) { wasm_v128_store(p, (v128_t)v); }

//@ simd128_store_apart_i32x4 store_i32x4
/* stores the first n lanes, `step` apart */
static inline void store_apart_i32x4(int32_t *p, i32x4 v, int64_t step, int n)
{
    int32_t a[4];
    store_i32x4(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ simd128_load_bytes_i32x4 i32x4
/* four bytes in each lane */
static inline i32x4 load_bytes_i32x4(const void *p) { return (i32x4)wasm_v128_load(p); }

//@ simd128_store_bytes_i32x4 i32x4
static inline void store_bytes_i32x4(void *p, i32x4 v) { wasm_v128_store(p, (v128_t)v); }

//@ simd128_load_groups_i32x4 i32x4
/* four bytes in each lane, `step` apart; lane i begins i bytes on */
static inline i32x4 load_groups_i32x4(const void *p, int64_t step)
{
    const uint8_t *q = (const uint8_t *)p;
    v128_t v = wasm_v128_load32_zero(q);
    v = wasm_v128_load32_lane(q + step, v, 1);
    v = wasm_v128_load32_lane(q + 2 * step, v, 2);
    v = wasm_v128_load32_lane(q + 3 * step, v, 3);
    return (i32x4)wasm_i8x16_shuffle(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

//@ simd128_load_i8_i32x4 i32x4
static inline i32x4 load_i8_i32x4(const int8_t *p)
{
    const v128_t bytes = wasm_v128_load32_zero(p);
    return (i32x4)wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(bytes));
}

//@ simd128_load_u8_i32x4 i32x4
static inline i32x4 load_u8_i32x4(const uint8_t *p)
{
    const v128_t bytes = wasm_v128_load32_zero(p);
    return (i32x4)wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(bytes));
}

//@ simd128_splat_i32x4 i32x4
static inline i32x4 splat_i32x4(int32_t v) { return (i32x4)wasm_i32x4_splat(v); }

//@ simd128_from_i32_f32x4 i32x4
static inline f32x4 from_i32_f32x4(i32x4 v) { return (f32x4)wasm_f32x4_convert_i32x4((v128_t)v); }

//@ simd128_bytes_f32x4 f32x4
/* the lanes of integers as signed bytes (or, with u, unsigned ones), saturated */
static inline void bytes_i8_f32x4(int8_t *p, v128_t n)
{
    const v128_t words = wasm_i16x8_narrow_i32x4(n, n);
    wasm_v128_store32_lane(p, wasm_i8x16_narrow_i16x8(words, words), 0);
}
static inline void bytes_u8_f32x4(uint8_t *p, v128_t n)
{
    const v128_t words = wasm_i16x8_narrow_i32x4(n, n);
    wasm_v128_store32_lane(p, wasm_u8x16_narrow_i16x8(words, words), 0);
}

//@ simd128_store_u8_f32x4 bytes_f32x4
/* truncated and saturated; NaN becomes 0 */
static inline void store_u8_f32x4(uint8_t *p, f32x4 v)
{
    bytes_u8_f32x4(p, wasm_i32x4_trunc_sat_f32x4((v128_t)v));
}

//@ simd128_store_number_u8_f32x4 store_u8_f32x4
/* of 0..255, or NaN, which becomes 0 */
static inline void store_number_u8_f32x4(uint8_t *p, f32x4 v) { store_u8_f32x4(p, v); }

//@ simd128_store_i8_f32x4 bytes_f32x4
/* truncated and saturated; NaN becomes 0 */
static inline void store_i8_f32x4(int8_t *p, f32x4 v)
{
    bytes_i8_f32x4(p, wasm_i32x4_trunc_sat_f32x4((v128_t)v));
}

//@ simd128_store_nearest_u8_f32x4 bytes_f32x4
/* rounded half to even; -2^31 to 2^31 */
static inline void store_nearest_u8_f32x4(uint8_t *p, f32x4 v)
{
    bytes_u8_f32x4(p, wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest((v128_t)v)));
}

//@ simd128_store_nearest_i8_f32x4 bytes_f32x4
/* rounded half to even; -2^31 to 2^31 */
static inline void store_nearest_i8_f32x4(int8_t *p, f32x4 v)
{
    bytes_i8_f32x4(p, wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest((v128_t)v)));
}

//@ simd128_dot_i32x4 i32x4
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane */
static inline i32x4 dot_i32x4(i32x4 sum, i32x4 a, i32x4 b)
{
    const v128_t x = (v128_t)a, w = (v128_t)b;
    const v128_t low = wasm_i32x4_dot_i16x8(wasm_u16x8_extend_low_u8x16(x),
                                            wasm_i16x8_extend_low_i8x16(w));
    const v128_t high = wasm_i32x4_dot_i16x8(wasm_u16x8_extend_high_u8x16(x),
                                             wasm_i16x8_extend_high_i8x16(w));
    const v128_t even = wasm_i32x4_shuffle(low, high, 0, 2, 4, 6);
    const v128_t odd = wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
    return sum + (i32x4)even + (i32x4)odd;
}

//@ simd128_less_i32x4 i32x4
static inline mask_f32x4 less_i32x4(i32x4 a, i32x4 b) { return (ints_f32x4)a < (ints_f32x4)b; }

//@ simd128_equal_i32x4 i32x4
static inline mask_f32x4 equal_i32x4(i32x4 a, i32x4 b) { return a == b; }

//@ simd128_differ_i32x4 i32x4
static inline mask_f32x4 differ_i32x4(i32x4 a, i32x4 b) { return a != b; }

//@ simd128_max_i32x4 i32x4
static inline i32x4 max_i32x4(i32x4 a, i32x4 b)
{
    return (i32x4)wasm_i32x4_max((v128_t)a, (v128_t)b);
}

//@ simd128_min_i32x4 i32x4
static inline i32x4 min_i32x4(i32x4 a, i32x4 b)
{
    return (i32x4)wasm_i32x4_min((v128_t)a, (v128_t)b);
}

//@ simd128_select_i32x4 i32x4
/* m ? a : b, lane by lane */
static inline i32x4 select_i32x4(mask_f32x4 m, i32x4 a, i32x4 b)
{
    return (i32x4)wasm_v128_bitselect((v128_t)a, (v128_t)b, (v128_t)m);
}

//@ simd128_lanes_i32x4 i32x4
static inline i32x4 lanes_i32x4(void) { return (i32x4){0, 1, 2, 3}; }

//@ simd128_narrow_f32_i32x4 i32x4
/* truncated and clamped to -most..most; NaN becomes 0 */
static inline i32x4 narrow_f32_i32x4(f32x4 v, int most)
{
    const v128_t n = wasm_i32x4_trunc_sat_f32x4((v128_t)v);
    return (i32x4)wasm_i32x4_min(wasm_i32x4_max(n, wasm_i32x4_splat(-most)),
                                 wasm_i32x4_splat(most));
}

//@ simd128_narrow_apart_i64_i32x4 i32x4
/* of 64-bit integers that are `step` apart */
static inline i32x4 narrow_apart_i64_i32x4(const int64_t *p, int64_t step, int most)
{
    uint32_t v[4];
    for (int i = 0; i < 4; i++, p += step)
        v[i] = (uint32_t)(*p < -most ? -most : *p > most ? most : *p);
    return (i32x4){v[0], v[1], v[2], v[3]};
}

//@ simd128_narrow_i64_i32x4 narrow_apart_i64_i32x4
/* -most..most */
static inline i32x4 narrow_i64_i32x4(const int64_t *p, int most)
{
    return narrow_apart_i64_i32x4(p, 1, most);
}

//@ simd128_gather_f32x4 i32x4
static inline f32x4 gather_f32x4(const float *p, i32x4 at)
{
    const ints_f32x4 i = (ints_f32x4)at;
    return (f32x4){p[i[0]], p[i[1]], p[i[2]], p[i[3]]};
}

//@ simd128_gather_where_f32x4 i32x4
/* The lanes where m is all ones; nothing is read for the others, which are `otherwise`. */
static inline f32x4 gather_where_f32x4(const float *p, i32x4 at, mask_f32x4 m, f32x4 otherwise)
{
    const ints_f32x4 i = (ints_f32x4)at;
    return (f32x4){m[0] ? p[i[0]] : otherwise[0], m[1] ? p[i[1]] : otherwise[1],
                   m[2] ? p[i[2]] : otherwise[2], m[3] ? p[i[3]] : otherwise[3]};
}
