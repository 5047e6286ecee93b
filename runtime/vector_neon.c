/* SPDX-License-Identifier: 0BSD */
/* vector_neon.c - vectors of floats for NEON: f32x4.
 *
 * Arithmetic and bits are the compiler's own (gcc's vector extensions, which clang has, too); what
 * they do not reach is an intrinsic. A comparison gives lanes of all ones or zeros (mask_f32x4),
 * and what chooses by one is a blend: no compiler has to rediscover it in a formula of and, or and
 * not. Integers are unsigned to C, so that they wrap. Each function carries the target it needs, so
 * that no compiler flags are needed.
 */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

//@ f32x4
#define IN_f32x4
typedef float32x4_t f32x4;
typedef uint32x4_t bits_f32x4, mask_f32x4;
typedef int32x4_t ints_f32x4;

//@ less_f32x4 f32x4
static inline mask_f32x4 less_f32x4(f32x4 a, f32x4 b) { return vcltq_f32(a, b); }

//@ equal_f32x4 f32x4
static inline mask_f32x4 equal_f32x4(f32x4 a, f32x4 b) { return vceqq_f32(a, b); }

//@ differ_f32x4 f32x4
/* also where one is NaN */
static inline mask_f32x4 differ_f32x4(f32x4 a, f32x4 b) { return vmvnq_u32(vceqq_f32(a, b)); }

//@ not_f32x4 f32x4
static inline mask_f32x4 not_f32x4(mask_f32x4 m) { return vmvnq_u32(m); }

//@ splat_mask_f32x4 f32x4
static inline mask_f32x4 splat_mask_f32x4(bool b) { return vdupq_n_u32(b ? UINT32_MAX : 0); }

//@ select_f32x4 f32x4
/* m ? a : b, lane by lane */
static inline f32x4 select_f32x4(mask_f32x4 m, f32x4 a, f32x4 b) { return vbslq_f32(m, a, b); }

//@ from_bool_f32x4 f32x4
static inline f32x4 from_bool_f32x4(mask_f32x4 m)
{
    return vreinterpretq_f32_u32(vandq_u32(m, vdupq_n_u32(0x3f800000)));
}

//@ abs_f32x4 f32x4
static inline f32x4 abs_f32x4(f32x4 v) { return vabsq_f32(v); }

//@ copysign_f32x4 f32x4
static inline f32x4 copysign_f32x4(f32x4 v, f32x4 sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000), sign, v);
}

//@ load_f32x4 f32x4
static inline f32x4 load_f32x4(const float *p) { return vld1q_f32(p); }

//@ store_f32x4 f32x4
static inline void store_f32x4(float *p, f32x4 v) { vst1q_f32(p, v); }

//@ load_i8_f32x4 f32x4
static inline f32x4 load_i8_f32x4(const int8_t *p)
{
    const int32_t a[4] = {p[0], p[1], p[2], p[3]};
    return vcvtq_f32_s32(vld1q_s32(a));
}

//@ load_u8_f32x4 f32x4
static inline f32x4 load_u8_f32x4(const uint8_t *p)
{
    const uint32_t a[4] = {p[0], p[1], p[2], p[3]};
    return vcvtq_f32_u32(vld1q_u32(a));
}

//@ load_bf16_f32x4 f32x4
static inline f32x4 load_bf16_f32x4(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

//@ load_f16_f32x4 f32x4
static inline f32x4 load_f16_f32x4(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

//@ store_f16_f32x4 f32x4
/* the nearest, half to even */
static inline void store_f16_f32x4(uint16_t *p, f32x4 v)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}

//@ store_bf16_f32x4 f32x4
/* the nearest, half to even */
static inline void store_bf16_f32x4(uint16_t *p, f32x4 v)
{
    const bits_f32x4 bits = (bits_f32x4)v;
    const bits_f32x4 near = bits + 0x7fff + ((bits >> 16) & 1);
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), near, bits | 0x400000), 16));
}

//@ load_bool_f32x4 f32x4
static inline mask_f32x4 load_bool_f32x4(const uint8_t *p)
{
    const uint32_t a[4] = {p[0], p[1], p[2], p[3]};
    return vcgtq_u32(vld1q_u32(a), vdupq_n_u32(0));
}

//@ load_part_f32x4 f32x4
/* the first n; 0 in the others */
static inline f32x4 load_part_f32x4(const float *p, int n)
{
    const float a[4] = {n > 0 ? p[0] : 0.0f, n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f, 0.0f};
    return vld1q_f32(a);
}

//@ store_part_f32x4 f32x4
/* the first n */
static inline void store_part_f32x4(float *p, f32x4 v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = v[i];
}

//@ splat_f32x4 f32x4
static inline f32x4 splat_f32x4(float v) { return vdupq_n_f32(v); }

//@ ramp_f32x4 splat_f32x4
/* v, v + 1, v + 2 ... */
static inline f32x4 ramp_f32x4(float v)
{
    return splat_f32x4(v) + (f32x4){0, 1, 2, 3};
}

//@ fma_f32x4 f32x4
/* a*b + c, rounded once */
static inline f32x4 fma_f32x4(f32x4 a, f32x4 b, f32x4 c) { return vfmaq_f32(c, a, b); }

//@ higher_f32x4 f32x4
static inline f32x4 higher_f32x4(f32x4 a, f32x4 b) { return vmaxq_f32(a, b); }

//@ lower_f32x4 f32x4
static inline f32x4 lower_f32x4(f32x4 a, f32x4 b) { return vminq_f32(a, b); }

//@ sqrt_f32x4 f32x4
static inline f32x4 sqrt_f32x4(f32x4 v) { return vsqrtq_f32(v); }

//@ floor_f32x4 f32x4
static inline f32x4 floor_f32x4(f32x4 v) { return vrndmq_f32(v); }

//@ ceil_f32x4 f32x4
static inline f32x4 ceil_f32x4(f32x4 v) { return vrndpq_f32(v); }

//@ trunc_f32x4 f32x4
static inline f32x4 trunc_f32x4(f32x4 v) { return vrndq_f32(v); }

//@ round_f32x4 f32x4
/* half to even */
static inline f32x4 round_f32x4(f32x4 v) { return vrndnq_f32(v); }

//@ turn_f32x4 f32x4
/* Exchanges groups of `by` lanes in pairs; log2(lanes) of these are a reduction. */
static inline f32x4 turn_f32x4(f32x4 v, int by)
{
    return by == 2 ? vextq_f32(v, v, 2) : vrev64q_f32(v);
}

//@ evens_f32x4 f32x4
/* The even groups of `by` lanes of a, each followed by that of b. */
static inline f32x4 evens_f32x4(f32x4 a, f32x4 b, int by)
{
    return by == 2 ? vcombine_f32(vget_low_f32(a), vget_low_f32(b)) : vtrn1q_f32(a, b);
}

//@ odds_f32x4 f32x4
static inline f32x4 odds_f32x4(f32x4 a, f32x4 b, int by)
{
    return by == 2 ? vcombine_f32(vget_high_f32(a), vget_high_f32(b)) : vtrn2q_f32(a, b);
}

//@ i32x4 f32x4
typedef uint32x4_t i32x4;

//@ load_i32x4 i32x4
static inline i32x4 load_i32x4(const int32_t *p)
{
    return vreinterpretq_u32_s32(vld1q_s32(p));
}

//@ store_i32x4 i32x4
static inline void store_i32x4(int32_t *p, i32x4 v)
{
    vst1q_s32(p, vreinterpretq_s32_u32(v));
}

//@ store_apart_i32x4 store_i32x4
/* Stores the first n lanes, `step` apart. It reads them from an array: clang has one stack slot for
 * all such arrays, but one for each vector whose lanes are read in a loop. */
static inline void store_apart_i32x4(int32_t *p, i32x4 v, int64_t step, int n)
{
    int32_t a[4];
    store_i32x4(a, v);
    for (int i = 0; i < n; i++)
        p[i * step] = a[i];
}

//@ load_bytes_i32x4 i32x4
/* four bytes in each lane */
static inline i32x4 load_bytes_i32x4(const void *p)
{
    return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)p));
}

//@ store_bytes_i32x4 i32x4
static inline void store_bytes_i32x4(void *p, i32x4 v)
{
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_u32(v));
}

//@ lookup_i32x4 i32x4
static inline uint8x16x4_t lookup_rows_i32x4(const uint8_t *t)
{
    const uint8x16x4_t rows = {{vld1q_u8(t), vld1q_u8(t + 16), vld1q_u8(t + 32), vld1q_u8(t + 48)}};
    return rows;
}

/* looks up each of 16 bytes in a table of 256 */
static inline i32x4 lookup_i32x4(const void *table, i32x4 bytes)
{
    const uint8_t *t = (const uint8_t *)table;
    const uint8x16_t at = vreinterpretq_u8_u32(bytes);
    uint8x16_t y = vqtbl4q_u8(lookup_rows_i32x4(t), at);
    y = vqtbx4q_u8(y, lookup_rows_i32x4(t + 64), vsubq_u8(at, vdupq_n_u8(64)));
    y = vqtbx4q_u8(y, lookup_rows_i32x4(t + 128), vsubq_u8(at, vdupq_n_u8(128)));
    y = vqtbx4q_u8(y, lookup_rows_i32x4(t + 192), vsubq_u8(at, vdupq_n_u8(192)));
    return vreinterpretq_u32_u8(y);
}

//@ lookup_i8_i32x4 lookup_i32x4
/* for bytes of -128..127; the table begins with the entry of -128 */
static inline i32x4 lookup_i8_i32x4(const void *table, i32x4 bytes)
{
    return lookup_i32x4(table, bytes ^ 0x80808080u);
}

//@ load_groups_i32x4 i32x4
/* four bytes in each lane, `step` apart; lane i begins i bytes on */
static inline i32x4 load_groups_i32x4(const void *p, int64_t step)
{
    static const uint8_t turned[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    uint8_t a[16];
    for (int g = 0; g < 4; g++)
        memcpy(a + 4 * g, (const uint8_t *)p + g * step, 4);
    return vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(a), vld1q_u8(turned)));
}

//@ load_i8_i32x4 i32x4
static inline i32x4 load_i8_i32x4(const int8_t *p)
{
    const int32_t a[4] = {p[0], p[1], p[2], p[3]};
    return vreinterpretq_u32_s32(vld1q_s32(a));
}

//@ load_u8_i32x4 i32x4
static inline i32x4 load_u8_i32x4(const uint8_t *p)
{
    const uint32_t a[4] = {p[0], p[1], p[2], p[3]};
    return vld1q_u32(a);
}

//@ splat_i32x4 i32x4
static inline i32x4 splat_i32x4(int32_t v) { return vdupq_n_u32((uint32_t)v); }

//@ from_i32_f32x4 i32x4
static inline f32x4 from_i32_f32x4(i32x4 v)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(v));
}

//@ store_u8_f32x4 f32x4
/* truncated and saturated; NaN becomes 0 */
static inline void store_u8_f32x4(uint8_t *p, f32x4 v)
{
    const uint16x4_t n = vqmovn_u32(vcvtq_u32_f32(v));
    const uint8x8_t bytes = vqmovn_u16(vcombine_u16(n, n));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(p, &four, sizeof four);
}

//@ store_number_u8_f32x4 store_u8_f32x4
/* of 0..255, or NaN, which becomes 0 */
static inline void store_number_u8_f32x4(uint8_t *p, f32x4 v) { store_u8_f32x4(p, v); }

//@ store_i8_f32x4 f32x4
/* truncated and saturated; NaN becomes 0 */
static inline void store_i8_f32x4(int8_t *p, f32x4 v)
{
    const int16x4_t n = vqmovn_s32(vcvtq_s32_f32(v));
    const int8x8_t bytes = vqmovn_s16(vcombine_s16(n, n));
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
    memcpy(p, &four, sizeof four);
}

//@ store_nearest_u8_f32x4 f32x4
/* rounded half to even; -2^31 to 2^31 */
static inline void store_nearest_u8_f32x4(uint8_t *p, f32x4 v)
{
    const uint16x4_t n = vqmovun_s32(vcvtnq_s32_f32(v));
    const uint8x8_t bytes = vqmovn_u16(vcombine_u16(n, n));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(p, &four, sizeof four);
}

//@ store_nearest_i8_f32x4 f32x4
/* rounded half to even; -2^31 to 2^31 */
static inline void store_nearest_i8_f32x4(int8_t *p, f32x4 v)
{
    const int16x4_t n = vqmovn_s32(vcvtnq_s32_f32(v));
    const int8x8_t bytes = vqmovn_s16(vcombine_s16(n, n));
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
    memcpy(p, &four, sizeof four);
}

//@ dot_i32x4 i32x4
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane */
static inline i32x4 dot_i32x4(i32x4 sum, i32x4 a, i32x4 b)
{
    const uint8x16_t x = vreinterpretq_u8_u32(a);
    const int8x16_t w = vreinterpretq_s8_u32(b);
    const int16x8_t x0 = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(x))),
                    w0 = vmovl_s8(vget_low_s8(w));
    const int16x8_t x1 = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(x))),
                    w1 = vmovl_s8(vget_high_s8(w));
    const int32x4_t p0 = vmull_s16(vget_low_s16(x0), vget_low_s16(w0)), p1 = vmull_high_s16(x0, w0);
    const int32x4_t p2 = vmull_s16(vget_low_s16(x1), vget_low_s16(w1)), p3 = vmull_high_s16(x1, w1);
    const int32x4_t p = vpaddq_s32(vpaddq_s32(p0, p1), vpaddq_s32(p2, p3));
    return sum + vreinterpretq_u32_s32(p);
}

//@ dot_bf16_f32x4 f32x4 i32x4
/* sum + the dot product of two bf16, the upper ones first, in each lane */
static inline f32x4 dot_bf16_f32x4(f32x4 sum, i32x4 a, i32x4 b)
{
    const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    sum = vfmaq_f32(sum, vreinterpretq_f32_u32(vandq_u32(a, upper)),
                    vreinterpretq_f32_u32(vandq_u32(b, upper)));
    return vfmaq_f32(sum, vreinterpretq_f32_u32(vshlq_n_u32(a, 16)),
                     vreinterpretq_f32_u32(vshlq_n_u32(b, 16)));
}

//@ less_i32x4 i32x4
static inline mask_f32x4 less_i32x4(i32x4 a, i32x4 b)
{
    return (mask_f32x4)vcltq_s32((int32x4_t)a, (int32x4_t)b);
}

//@ equal_i32x4 i32x4
static inline mask_f32x4 equal_i32x4(i32x4 a, i32x4 b)
{
    return (mask_f32x4)vceqq_s32((int32x4_t)a, (int32x4_t)b);
}

//@ differ_i32x4 equal_i32x4
static inline mask_f32x4 differ_i32x4(i32x4 a, i32x4 b) { return ~equal_i32x4(a, b); }

//@ max_i32x4 i32x4
static inline i32x4 max_i32x4(i32x4 a, i32x4 b)
{
    return (i32x4)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}

//@ min_i32x4 i32x4
static inline i32x4 min_i32x4(i32x4 a, i32x4 b)
{
    return (i32x4)vminq_s32((int32x4_t)a, (int32x4_t)b);
}

//@ select_i32x4 i32x4
/* m ? a : b, lane by lane */
static inline i32x4 select_i32x4(mask_f32x4 m, i32x4 a, i32x4 b)
{
    return (i32x4)vbslq_s32((uint32x4_t)m, (int32x4_t)a, (int32x4_t)b);
}

//@ lanes_i32x4 i32x4
static inline i32x4 lanes_i32x4(void) { return (i32x4){0, 1, 2, 3}; }

//@ narrow_f32_i32x4 i32x4
/* truncated and clamped to -most..most; NaN becomes 0 */
static inline i32x4 narrow_f32_i32x4(f32x4 v, int most)
{
    const int32x4_t n = vcvtq_s32_f32(v); /* saturates; 0 for NaN */
    return (i32x4)vminq_s32(vmaxq_s32(n, vdupq_n_s32(-most)), vdupq_n_s32(most));
}

//@ narrow_i64_i32x4 i32x4
/* -most..most */
static inline i32x4 narrow_i64_i32x4(const int64_t *p, int most)
{
    const int32x4_t n = vcombine_s32(vqmovn_s64(vld1q_s64(p)), vqmovn_s64(vld1q_s64(p + 2)));
    return (i32x4)vminq_s32(vmaxq_s32(n, vdupq_n_s32(-most)), vdupq_n_s32(most));
}

//@ gather_f32x4 i32x4
static inline f32x4 gather_f32x4(const float *p, i32x4 at)
{
    const int32x4_t i = (int32x4_t)at;
    f32x4 v = vld1q_dup_f32(p + vgetq_lane_s32(i, 0));
    v = vld1q_lane_f32(p + vgetq_lane_s32(i, 1), v, 1);
    v = vld1q_lane_f32(p + vgetq_lane_s32(i, 2), v, 2);
    return vld1q_lane_f32(p + vgetq_lane_s32(i, 3), v, 3);
}

//@ gather_where_f32x4 i32x4
/* The lanes where m is all ones; nothing is read for the others, which are `otherwise`. */
static inline f32x4 gather_where_f32x4(const float *p, i32x4 at, mask_f32x4 m, f32x4 otherwise)
{
    const int32x4_t i = (int32x4_t)at, is = (int32x4_t)m;
    f32x4 v = otherwise;
    if (vgetq_lane_s32(is, 0))
        v = vld1q_lane_f32(p + vgetq_lane_s32(i, 0), v, 0);
    if (vgetq_lane_s32(is, 1))
        v = vld1q_lane_f32(p + vgetq_lane_s32(i, 1), v, 1);
    if (vgetq_lane_s32(is, 2))
        v = vld1q_lane_f32(p + vgetq_lane_s32(i, 2), v, 2);
    if (vgetq_lane_s32(is, 3))
        v = vld1q_lane_f32(p + vgetq_lane_s32(i, 3), v, 3);
    return v;
}

//@ narrow_apart_i64_i32x4 i32x4
/* of 64-bit integers that are `step` apart */
static inline i32x4 narrow_apart_i64_i32x4(const int64_t *p, int64_t step, int most)
{
    int32_t v[4];
    for (int i = 0; i < 4; i++, p += step)
        v[i] = (int32_t)(*p < -most ? -most : *p > most ? most : *p);
    i32x4 all;
    memcpy(&all, v, sizeof all);
    return all;
}
