/* SPDX-License-Identifier: 0BSD */
/* vector_opencl.c - vectors of floats for OpenCL C: f32x4 is its float4, f32x8 its float8.
 *
 * Arithmetic, comparisons (lanes of all ones or zeros: mask_T) and conversions are the language's
 * own. Elementary functions are those of vector_math.c, so that results do not depend on the
 * driver. Built-in functions are called only where the specification requires correct rounding
 * (fma, rounding to integers, conversions), and sqrt (3 ulp), which CPUs round correctly, too.
 * Whatever takes a pointer is a macro: a pointer's type names its address space, and kernels have
 * vectors in several.
 */

//@ opencl_four_bytes
/* four bytes in memory as one int */
#define four_bytes(p) as_int(vload4(0, p))

//@ opencl_store_four_bytes
#define store_four_bytes(p, v) \
    do { \
        const uchar4 lanes_ = as_uchar4(v); \
        (p)[0] = lanes_.s0, (p)[1] = lanes_.s1, (p)[2] = lanes_.s2, (p)[3] = lanes_.s3; \
    } while (0)

//@ opencl_load_word
/* four bytes, aligned to 4, in one transaction; space: global or local */
#define load_word(space, p) (*(space const int *)(p))

//@ opencl_store_word
#define store_word(space, p, v) (*(space int *)(p) = (v))

//@ opencl_f32x4
typedef float4 f32x4;
typedef uint4 bits_f32x4;
typedef int4 ints_f32x4, mask_f32x4;
typedef ushort4 halves_f32x4;
typedef char4 i8_f32x4;
typedef uchar4 u8_f32x4;
#define IN_f32x4
#define as_f32x4(v) as_float4(v)
#define as_bits_f32x4(v) as_uint4(v)
#define as_ints_f32x4(v) as_int4(v)
#define to_f32x4(v) convert_float4(v)
#define to_ints_f32x4(v) convert_int4(v)
#define near_ints_f32x4(v) convert_int4_sat(v)
#define to_halves_f32x4(v) convert_ushort4(v)
#define to_i8_f32x4(v) convert_char4_sat(v)
#define to_u8_f32x4(v) convert_uchar4_sat(v)
#define nearest_i8_f32x4(v) convert_char4_sat_rte(v)
#define nearest_u8_f32x4(v) convert_uchar4_sat_rte(v)
#define get_f32x4(p) vload4(0, p)
#define put_f32x4(p, v) vstore4(v, 0, p)
#define get_halves_f32x4(p) vload_half4(0, p)
#define put_halves_f32x4(p, v) vstore_half4_rte(v, 0, p)
/* stores the first n lanes of a vector, `step` apart */
#define put_apart_f32x4(type, p, v, step, n) \
    do { \
        const type lanes_ = v; \
        if ((n) > 0) (p)[0] = lanes_.s0; \
        if ((n) > 1) (p)[step] = lanes_.s1; \
        if ((n) > 2) (p)[2 * (step)] = lanes_.s2; \
        if ((n) > 3) (p)[3 * (step)] = lanes_.s3; \
    } while (0)

//@ opencl_f32x8 opencl_f32x4
typedef float8 f32x8;
typedef uint8 bits_f32x8;
typedef int8 ints_f32x8, mask_f32x8;
typedef ushort8 halves_f32x8;
typedef char8 i8_f32x8;
typedef uchar8 u8_f32x8;
#define IN_f32x8
#define as_f32x8(v) as_float8(v)
#define as_bits_f32x8(v) as_uint8(v)
#define as_ints_f32x8(v) as_int8(v)
#define to_f32x8(v) convert_float8(v)
#define to_ints_f32x8(v) convert_int8(v)
#define near_ints_f32x8(v) convert_int8_sat(v)
#define to_halves_f32x8(v) convert_ushort8(v)
#define to_i8_f32x8(v) convert_char8_sat(v)
#define to_u8_f32x8(v) convert_uchar8_sat(v)
#define nearest_i8_f32x8(v) convert_char8_sat_rte(v)
#define nearest_u8_f32x8(v) convert_uchar8_sat_rte(v)
#define get_f32x8(p) vload8(0, p)
#define put_f32x8(p, v) vstore8(v, 0, p)
#define get_halves_f32x8(p) vload_half8(0, p)
#define put_halves_f32x8(p, v) vstore_half8_rte(v, 0, p)
#define put_apart_f32x8(type, p, v, step, n) \
    do { \
        const type lanes_ = v; \
        if ((n) > 0) (p)[0] = lanes_.s0; \
        if ((n) > 1) (p)[step] = lanes_.s1; \
        if ((n) > 2) (p)[2 * (step)] = lanes_.s2; \
        if ((n) > 3) (p)[3 * (step)] = lanes_.s3; \
        if ((n) > 4) (p)[4 * (step)] = lanes_.s4; \
        if ((n) > 5) (p)[5 * (step)] = lanes_.s5; \
        if ((n) > 6) (p)[6 * (step)] = lanes_.s6; \
        if ((n) > 7) (p)[7 * (step)] = lanes_.s7; \
    } while (0)

//@ opencl_ramp_f32x4 opencl_f32x4
/* v, v + 1, v + 2 ... */
f32x4 ramp_f32x4(float v) { return v + (f32x4)(0, 1, 2, 3); }

//@ opencl_ramp_f32x8 opencl_f32x8
f32x8 ramp_f32x8(float v) { return v + (f32x8)(0, 1, 2, 3, 4, 5, 6, 7); }

//@ opencl_load_apart_f32x4 opencl_f32x4
/* n floats, `step` apart; 0 in the other lanes */
#define load_apart_f32x4(p, step, n) \
    (f32x4)((n) > 0 ? (p)[0] : 0.0f, (n) > 1 ? (p)[step] : 0.0f, \
            (n) > 2 ? (p)[2 * (step)] : 0.0f, (n) > 3 ? (p)[3 * (step)] : 0.0f)

//@ opencl_load_apart_f32x8 opencl_f32x8 opencl_load_apart_f32x4
#define load_apart_f32x8(p, step, n) \
    (f32x8)(load_apart_f32x4(p, step, n), load_apart_f32x4((p) + 4 * (step), step, (n) - 4))

//@ opencl_evens_f32x4 opencl_f32x4
/* The even groups of `by` lanes of a, each followed by that of b. */
f32x4 evens_f32x4(f32x4 a, f32x4 b, int by)
{
    return by == 2 ? (f32x4)(a.lo, b.lo) : (f32x4)(a.s0, b.s0, a.s2, b.s2);
}

//@ opencl_odds_f32x4 opencl_f32x4
f32x4 odds_f32x4(f32x4 a, f32x4 b, int by)
{
    return by == 2 ? (f32x4)(a.hi, b.hi) : (f32x4)(a.s1, b.s1, a.s3, b.s3);
}

//@ opencl_evens_f32x8 opencl_f32x8
f32x8 evens_f32x8(f32x8 a, f32x8 b, int by)
{
    return by == 4   ? (f32x8)(a.lo, b.lo)
           : by == 2 ? (f32x8)(a.s01, b.s01, a.s45, b.s45)
                     : (f32x8)(a.s0, b.s0, a.s2, b.s2, a.s4, b.s4, a.s6, b.s6);
}

//@ opencl_odds_f32x8 opencl_f32x8
f32x8 odds_f32x8(f32x8 a, f32x8 b, int by)
{
    return by == 4   ? (f32x8)(a.hi, b.hi)
           : by == 2 ? (f32x8)(a.s23, b.s23, a.s67, b.s67)
                     : (f32x8)(a.s1, b.s1, a.s3, b.s3, a.s5, b.s5, a.s7, b.s7);
}

//@for f32x4:f32x4 f32x8:f32x8

//@ opencl_less_T opencl_T
mask_T less_T(T a, T b) { return a < b; }

//@ opencl_equal_T opencl_T
mask_T equal_T(T a, T b) { return a == b; }

//@ opencl_differ_T opencl_T
/* also where one is NaN */
mask_T differ_T(T a, T b) { return a != b; }

//@ opencl_not_T opencl_T
mask_T not_T(mask_T m) { return ~m; }

//@ opencl_splat_mask_T opencl_T
mask_T splat_mask_T(bool b) { return (mask_T)(b ? -1 : 0); }

//@ opencl_select_T opencl_T
/* m ? a : b, lane by lane */
T select_T(mask_T m, T a, T b) { return select(b, a, m); }

//@ opencl_from_bool_T opencl_T
T from_bool_T(mask_T m) { return as_T(m & 0x3f800000); }

//@ opencl_abs_T opencl_T
T abs_T(T v) { return fabs(v); }

//@ opencl_copysign_T opencl_T
T copysign_T(T v, T sign) { return copysign(v, sign); }

//@ opencl_splat_T opencl_T
T splat_T(float v) { return (T)(v); }

//@ opencl_fma_T opencl_T
/* a*b + c, rounded once */
T fma_T(T a, T b, T c) { return fma(a, b, c); }

//@ opencl_higher_T opencl_T
/* the larger; b, if one of them is NaN */
T higher_T(T a, T b) { return select(b, a, a > b); }

//@ opencl_lower_T opencl_T
T lower_T(T a, T b) { return select(b, a, a < b); }

//@ opencl_sqrt_T opencl_T
T sqrt_T(T v) { return sqrt(v); }

//@ opencl_floor_T opencl_T
T floor_T(T v) { return floor(v); }

//@ opencl_ceil_T opencl_T
T ceil_T(T v) { return ceil(v); }

//@ opencl_trunc_T opencl_T
T trunc_T(T v) { return trunc(v); }

//@ opencl_round_T opencl_T
/* half to even */
T round_T(T v) { return rint(v); }

//@ opencl_load_T opencl_T
#define load_T(p) get_T(p)

//@ opencl_store_T opencl_T
#define store_T(p, v) put_T(p, v)

//@ opencl_load_aligned_T opencl_T
/* aligned to the vector's size, in one transaction; space: global or local */
#define load_aligned_T(space, p) (*(space const T *)(p))

//@ opencl_store_aligned_T opencl_T
#define store_aligned_T(space, p, v) (*(space T *)(p) = (v))

//@ opencl_lane_T opencl_T
#define lane_T(v, k) (v).s##k

//@ opencl_store_apart_T opencl_T
#define store_apart_T(p, v, step, n) put_apart_T(T, p, v, step, n)

//@ opencl_load_part_T opencl_load_apart_T
#define load_part_T(p, n) load_apart_T(p, 1, n)

//@ opencl_store_part_T opencl_T
#define store_part_T(p, v, n) put_apart_T(T, p, v, 1, n)

//@ opencl_load_bool_T opencl_T
#define load_bool_T(p) (to_ints_T(get_T(p)) != 0)

//@ opencl_load_i8_T opencl_T
#define load_i8_T(p) to_T(get_T(p))

//@ opencl_load_u8_T opencl_T
#define load_u8_T(p) to_T(get_T(p))

//@ opencl_store_i8_T opencl_T
/* truncated and saturated; NaN becomes 0 */
#define store_i8_T(p, v) put_T(p, to_i8_T(v))

//@ opencl_store_u8_T opencl_T
#define store_u8_T(p, v) put_T(p, to_u8_T(v))

//@ opencl_store_number_u8_T opencl_T
/* of 0..255, or NaN, which becomes 0 */
#define store_number_u8_T(p, v) put_T(p, to_u8_T(v))

//@ opencl_store_nearest_i8_T opencl_T
/* rounded half to even; -2^31 to 2^31 */
#define store_nearest_i8_T(p, v) put_T(p, nearest_i8_T(v))

//@ opencl_store_nearest_u8_T opencl_T
#define store_nearest_u8_T(p, v) put_T(p, nearest_u8_T(v))

//@ opencl_store_apart_i8_T opencl_T
#define store_apart_i8_T(p, v, step, n) put_apart_T(i8_T, p, to_i8_T(v), step, n)

//@ opencl_store_apart_u8_T opencl_T
#define store_apart_u8_T(p, v, step, n) put_apart_T(u8_T, p, to_u8_T(v), step, n)

//@ opencl_store_apart_nearest_i8_T opencl_T
#define store_apart_nearest_i8_T(p, v, step, n) put_apart_T(i8_T, p, nearest_i8_T(v), step, n)

//@ opencl_store_apart_nearest_u8_T opencl_T
#define store_apart_nearest_u8_T(p, v, step, n) put_apart_T(u8_T, p, nearest_u8_T(v), step, n)

//@ opencl_halves_T opencl_T
/* Halves are passed as bits. Devices without half arithmetic convert only on loads and stores, so
 * the value goes through a private variable. */
T from_halves_T(halves_T h) { return get_halves_T((const stored_half *)&h); }
halves_T near_halves_T(T v)
{
    halves_T h;
    put_halves_T((stored_half *)&h, v);
    return h;
}

//@ opencl_load_f16_T opencl_halves_T
#define load_f16_T(p) from_halves_T(get_T(p))

//@ opencl_store_f16_T opencl_halves_T
/* the nearest, half to even */
#define store_f16_T(p, v) put_T(p, near_halves_T(v))

//@ opencl_store_apart_f16_T opencl_halves_T
#define store_apart_f16_T(p, v, step, n) put_apart_T(halves_T, p, near_halves_T(v), step, n)

//@ opencl_round_f16_T opencl_halves_T
T round_f16_T(T v) { return from_halves_T(near_halves_T(v)); }

//@ opencl_load_bf16_T opencl_T
#define load_bf16_T(p) as_T(to_ints_T(get_T(p)) << 16)

//@ opencl_near_bf16_T opencl_T
/* the nearest, half to even */
halves_T near_bf16_T(T v)
{
    const bits_T bits = as_bits_T(v), near = bits + 0x7fff + ((bits >> 16) & 1);
    return to_halves_T(select(near, bits | 0x400000, v != v) >> 16);
}

//@ opencl_store_bf16_T opencl_near_bf16_T
#define store_bf16_T(p, v) put_T(p, near_bf16_T(v))

//@ opencl_store_apart_bf16_T opencl_near_bf16_T
#define store_apart_bf16_T(p, v, step, n) put_apart_T(halves_T, p, near_bf16_T(v), step, n)

//@ opencl_round_bf16_T opencl_near_bf16_T
T round_bf16_T(T v) { return as_T(to_ints_T(near_bf16_T(v)) << 16); }

//@ opencl_load_tf32_T opencl_load_T
#define load_tf32_T(p) load_T(p)

//@ opencl_store_tf32_T opencl_store_T opencl_round_tf32_T
#define store_tf32_T(p, v) store_T(p, round_tf32_T(v))

//@ opencl_store_apart_tf32_T opencl_store_apart_T opencl_round_tf32_T
#define store_apart_tf32_T(p, v, step, n) store_apart_T(p, round_tf32_T(v), step, n)

//@ opencl_from_i32_T opencl_T
T from_i32_T(bits_T v) { return to_T(as_ints_T(v)); }

//@for f32x4:f32x4

//@ opencl_i32x4 opencl_f32x4
/* unsigned, so that it wraps */
typedef uint4 i32x4;
#define ints_i32x4(v) as_int4(v)
#define bits_i32x4(v) as_uint4(v)
#define mask_i32x4 mask_f32x4
#define get_i32x4(p) vload4(0, p)
#define put_i32x4(p, v) vstore4(v, 0, p)
#define to_ints_i32x4(v) convert_int4(v)
#define bytes_i32x4(v) convert_uint4(as_uchar4(v))
#define put_apart_i32x4 put_apart_f32x4

//@ opencl_narrow_f32_i32x4 opencl_i32x4
/* truncated and clamped to -most..most; NaN becomes 0 */
i32x4 narrow_f32_i32x4(f32x4 v, int most)
{
    return as_uint4(clamp(near_ints_f32x4(v), -most, most));
}

//@ opencl_lanes_i32x4 opencl_i32x4
i32x4 lanes_i32x4(void) { return (i32x4)(0, 1, 2, 3); }

//@ opencl_load_bytes_i32x4 opencl_i32x4
/* four bytes in each lane */
#define load_bytes_i32x4(p) as_uint4(vload16(0, p))

//@ opencl_store_bytes_i32x4 opencl_i32x4
/* the macro does not know the element's type, so it stores lane by lane */
#define store_bytes_i32x4(p, v) \
    do { \
        const uchar16 lanes_ = as_uchar16(v); \
        (p)[0] = lanes_.s0, (p)[1] = lanes_.s1, (p)[2] = lanes_.s2, (p)[3] = lanes_.s3; \
        (p)[4] = lanes_.s4, (p)[5] = lanes_.s5, (p)[6] = lanes_.s6, (p)[7] = lanes_.s7; \
        (p)[8] = lanes_.s8, (p)[9] = lanes_.s9, (p)[10] = lanes_.sa, (p)[11] = lanes_.sb; \
        (p)[12] = lanes_.sc, (p)[13] = lanes_.sd, (p)[14] = lanes_.se, (p)[15] = lanes_.sf; \
    } while (0)

//@ opencl_gather_f32x4 opencl_i32x4
#define gather_f32x4(p, at) \
    (f32x4)((p)[as_int4(at).s0], (p)[as_int4(at).s1], (p)[as_int4(at).s2], (p)[as_int4(at).s3])

//@ opencl_gather_where_f32x4 opencl_i32x4
/* The lanes where m is all ones; nothing is read for the others, which are `otherwise`. */
#define gather_where_f32x4(p, at, m, otherwise) \
    (f32x4)((m).s0 ? (p)[as_int4(at).s0] : (otherwise).s0, \
            (m).s1 ? (p)[as_int4(at).s1] : (otherwise).s1, \
            (m).s2 ? (p)[as_int4(at).s2] : (otherwise).s2, \
            (m).s3 ? (p)[as_int4(at).s3] : (otherwise).s3)

//@ opencl_narrow_i64_i32x4 opencl_i32x4
/* -most..most */
#define narrow_i64_i32x4(p, most) \
    as_uint4(convert_int4(clamp(vload4(0, p), (long)-(most), (long)(most))))

//@ opencl_narrow_apart_i64_i32x4 opencl_i32x4
/* of 64-bit integers that are `step` apart */
#define narrow_apart_i64_i32x4(p, step, most) \
    as_uint4(convert_int4(clamp((long4)((p)[0], (p)[step], (p)[2 * (step)], (p)[3 * (step)]), \
                                (long)-(most), (long)(most))))

//@for f32x8:f32x8

//@ opencl_i32x8 opencl_i32x4 opencl_f32x8
typedef uint8 i32x8;
#define ints_i32x8(v) as_int8(v)
#define bits_i32x8(v) as_uint8(v)
#define mask_i32x8 mask_f32x8
#define get_i32x8(p) vload8(0, p)
#define put_i32x8(p, v) vstore8(v, 0, p)
#define to_ints_i32x8(v) convert_int8(v)
#define bytes_i32x8(v) convert_uint8(as_uchar8(v))
#define put_apart_i32x8 put_apart_f32x8

//@ opencl_narrow_f32_i32x8 opencl_i32x8
i32x8 narrow_f32_i32x8(f32x8 v, int most)
{
    return as_uint8(clamp(near_ints_f32x8(v), -most, most));
}

//@ opencl_lanes_i32x8 opencl_i32x8
i32x8 lanes_i32x8(void) { return (i32x8)(0, 1, 2, 3, 4, 5, 6, 7); }

//@ opencl_load_bytes_i32x8 opencl_i32x8
#define load_bytes_i32x8(p) (i32x8)(as_uint4(vload16(0, p)), as_uint4(vload16(1, p)))

//@ opencl_store_bytes_i32x8 opencl_i32x8 opencl_store_bytes_i32x4
#define store_bytes_i32x8(p, v) \
    do { \
        const i32x8 all_ = v; \
        store_bytes_i32x4(p, all_.lo); \
        store_bytes_i32x4((p) + 16, all_.hi); \
    } while (0)

//@ opencl_gather_f32x8 opencl_i32x8 opencl_gather_f32x4
#define gather_f32x8(p, at) (f32x8)(gather_f32x4(p, (at).lo), gather_f32x4(p, (at).hi))

//@ opencl_gather_where_f32x8 opencl_i32x8 opencl_gather_where_f32x4
#define gather_where_f32x8(p, at, m, otherwise) \
    (f32x8)(gather_where_f32x4(p, (at).lo, (m).lo, (otherwise).lo), \
            gather_where_f32x4(p, (at).hi, (m).hi, (otherwise).hi))

//@ opencl_narrow_i64_i32x8 opencl_i32x8
#define narrow_i64_i32x8(p, most) \
    as_uint8(convert_int8(clamp(vload8(0, p), (long)-(most), (long)(most))))

//@ opencl_narrow_apart_i64_i32x8 opencl_i32x8 opencl_narrow_apart_i64_i32x4
#define narrow_apart_i64_i32x8(p, step, most) \
    (i32x8)(narrow_apart_i64_i32x4(p, step, most), \
            narrow_apart_i64_i32x4((p) + 4 * (step), step, most))

//@for i32x4:i32x4 i32x8:i32x8

//@ opencl_load_T opencl_T
#define load_T(p) bits_T(get_T(p))

//@ opencl_store_T opencl_T
#define store_T(p, v) put_T(p, ints_T(v))

//@ opencl_load_aligned_T opencl_T
/* aligned to the vector's size, in one transaction; space: global or local */
#define load_aligned_T(space, p) (*(space const T *)(p))

//@ opencl_store_aligned_T opencl_T
#define store_aligned_T(space, p, v) (*(space T *)(p) = (v))

//@ opencl_lane_T opencl_T
#define lane_T(v, k) ((int)(v).s##k)

//@ opencl_store_apart_T opencl_T
#define store_apart_T(p, v, step, n) put_apart_T(T, p, v, step, n)

//@ opencl_load_i8_T opencl_T
#define load_i8_T(p) bits_T(to_ints_T(get_T(p)))

//@ opencl_load_u8_T opencl_T
#define load_u8_T(p) bits_T(to_ints_T(get_T(p)))

//@ opencl_load_groups_T opencl_T
/* four bytes in each lane, `step` apart; lane i begins i bytes on */
#define load_groups_T(p, step) \
    (bytes_T(get_T(p)) | bytes_T(get_T((p) + (step))) << 8 | \
     bytes_T(get_T((p) + 2 * (step))) << 16 | bytes_T(get_T((p) + 3 * (step))) << 24)

//@ opencl_splat_T opencl_T
T splat_T(int v) { return (T)((uint)v); }

//@ opencl_dot_T opencl_T
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127, in each lane */
T dot_T(T sum, T a, T b)
{
    sum += (a & 255) * bits_T(ints_T(b << 24) >> 24);
    sum += (a >> 8 & 255) * bits_T(ints_T(b << 16) >> 24);
    sum += (a >> 16 & 255) * bits_T(ints_T(b << 8) >> 24);
    return sum + (a >> 24) * bits_T(ints_T(b) >> 24);
}

//@ opencl_less_T opencl_T
mask_T less_T(T a, T b) { return ints_T(a) < ints_T(b); }

//@ opencl_equal_T opencl_T
mask_T equal_T(T a, T b) { return a == b; }

//@ opencl_differ_T opencl_T
mask_T differ_T(T a, T b) { return a != b; }

//@ opencl_max_T opencl_T
T max_T(T a, T b) { return bits_T(max(ints_T(a), ints_T(b))); }

//@ opencl_min_T opencl_T
T min_T(T a, T b) { return bits_T(min(ints_T(a), ints_T(b))); }

//@ opencl_select_T opencl_T
/* m ? a : b, lane by lane */
T select_T(mask_T m, T a, T b) { return select(b, a, m); }
