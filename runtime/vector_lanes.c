/* SPDX-License-Identifier: 0BSD */
/* vector_lanes.c - vectors of four lanes for the C++-like languages of devices (CUDA, HIP, Metal):
 * 16 bytes, which one transaction loads or stores. Arithmetic is done lane by lane, by the
 * functions of number.c and math.c, since a thread's arithmetic is scalar.
 *
 * f32x4 and i32x4 are structs. In Metal (metal.c) they are the language's vectors, which have the
 * same four fields. Whatever takes a pointer is a macro, since a pointer's type in Metal names its
 * address space. It evaluates a pointer several times, a vector once.
 */

//@ lanes_f32x4
/* Four lanes; one value converts to four equal ones. i32x4 wraps; a mask's lanes are
 * all ones or zeros. */
#define LANES_OPERATOR(op) \
    friend __device__ inline lanes operator op(lanes a, lanes b) \
    { \
        return lanes(a.x op b.x, a.y op b.y, a.z op b.z, a.w op b.w); \
    }
#define LANES_ASSIGNMENT(op) \
    friend __device__ inline lanes &operator op##=(lanes &a, lanes b) { return a = a op b; }
template <class E> struct lanes {
    alignas(16) E x;
    E y, z, w;
    lanes() = default;
    __device__ lanes(E v) { this->x = this->y = this->z = this->w = v; }
    __device__ lanes(E a, E b, E c, E d) { this->x = a, this->y = b, this->z = c, this->w = d; }
    LANES_OPERATOR(+)
    LANES_OPERATOR(-)
    LANES_OPERATOR(*)
    LANES_OPERATOR(/)
    LANES_OPERATOR(&)
    LANES_OPERATOR(|)
    LANES_OPERATOR(^)
    LANES_ASSIGNMENT(+)
    LANES_ASSIGNMENT(-)
    LANES_ASSIGNMENT(*)
    LANES_ASSIGNMENT(/)
    friend __device__ inline lanes operator-(lanes v) { return lanes(-v.x, -v.y, -v.z, -v.w); }
};
typedef lanes<float> f32x4;
typedef lanes<uint32_t> i32x4;
typedef lanes<int32_t> mask_f32x4, mask_i32x4;

//@ lanes_i32x4 f32x4

//@ lanes_four f32x4
/* f of each lane, and of four consecutive elements in memory. */
#define EACH_OF(type, f, v) type(f((v).x), f((v).y), f((v).z), f((v).w))
#define EACH_OF_TWO(type, f, a, b)                                                                 \
    type(f((a).x, (b).x), f((a).y, (b).y), f((a).z, (b).z), f((a).w, (b).w))
#define EACH_AT(type, f, p) type(f((p)[0]), f((p)[1]), f((p)[2]), f((p)[3]))
#define AS_IT_IS(v) (v)
/* Stores f of the first n lanes, `step` apart. */
#define EACH_TO(type, f, p, v, step, n) \
    do { \
        const type lanes_ = v; \
        if ((n) > 0) (p)[0] = f(lanes_.x); \
        if ((n) > 1) (p)[step] = f(lanes_.y); \
        if ((n) > 2) (p)[2 * (step)] = f(lanes_.z); \
        if ((n) > 3) (p)[3 * (step)] = f(lanes_.w); \
    } while (0)

//@for f32x4:f32x4 i32x4:i32x4

//@ lanes_load_word
/* four bytes, aligned to 4, in one transaction */
#define load_word(space, p) (*(const int *)(p))

//@ lanes_store_word
#define store_word(space, p, v) (*(int *)(p) = (v))

//@ lanes_load_aligned_T T
/* Aligned to 16 bytes. It is a value, not an lvalue: a choice between two lvalues takes their
 * addresses, which would force both into memory. */
#define load_aligned_T(space, p) T(*(const T *)(p))

//@ lanes_store_aligned_T T
#define store_aligned_T(space, p, v) (*(T *)(p) = (v))

//@ lanes_copy_bytes
#ifdef __clang__
#define copy_bytes __builtin_memcpy
#else
#define copy_bytes memcpy
#endif

//@ lanes_put4 copy_bytes
/* Copies consecutive elements from an array of the thread or block; `to` is aligned to
 * their total size. */
static inline void put4(void *to, const void *from)
{
    uint32_t word;
    copy_bytes(&word, from, sizeof word);
    *(uint32_t *)to = word;
}

//@ lanes_words2
struct alignas(8) words2 { uint32_t x[2]; };

//@ lanes_words4
struct alignas(16) words4 { uint32_t x[4]; };

//@ lanes_put8 copy_bytes words2
static inline void put8(void *to, const void *from)
{
    words2 word;
    copy_bytes(&word, from, sizeof word);
    *(words2 *)to = word;
}

//@ lanes_put16 copy_bytes words4
static inline void put16(void *to, const void *from)
{
    words4 word;
    copy_bytes(&word, from, sizeof word);
    *(words4 *)to = word;
}

//@ lanes_get4 copy_bytes
/* Copies consecutive elements to an array of the thread; `from` is aligned to their total size. */
static inline void get4(void *to, const void *from)
{
    const uint32_t word = *(const uint32_t *)from;
    copy_bytes(to, &word, sizeof word);
}

//@ lanes_get8 copy_bytes words2
static inline void get8(void *to, const void *from)
{
    const words2 word = *(const words2 *)from;
    copy_bytes(to, &word, sizeof word);
}

//@ lanes_get16 copy_bytes words4
static inline void get16(void *to, const void *from)
{
    const words4 word = *(const words4 *)from;
    copy_bytes(to, &word, sizeof word);
}

//@ lanes_move4
/* Copies consecutive elements; both sides are aligned to their total size. */
static inline void move4(void *to, const void *from) { *(uint32_t *)to = *(const uint32_t *)from; }

//@ lanes_move8 words2
static inline void move8(void *to, const void *from) { *(words2 *)to = *(const words2 *)from; }

//@ lanes_move16 words4
static inline void move16(void *to, const void *from) { *(words4 *)to = *(const words4 *)from; }

//@ lanes_load_T four
#define load_T(p) EACH_AT(T, AS_IT_IS, p)

//@ lanes_store_T four
#define store_T(p, v) EACH_TO(T, AS_IT_IS, p, v, 1, 4)

//@ lanes_store_apart_T four
#define store_apart_T(p, v, step, n) EACH_TO(T, AS_IT_IS, p, v, step, n)

//@ lanes_load_i8_T four
#define load_i8_T(p) EACH_AT(T, AS_IT_IS, p)

//@ lanes_load_u8_T four
#define load_u8_T(p) EACH_AT(T, AS_IT_IS, p)

//@ lanes_equal_T four
static inline mask_T equal_T(T a, T b)
{
    return mask_T(-(a.x == b.x), -(a.y == b.y), -(a.z == b.z), -(a.w == b.w));
}

//@ lanes_differ_T four
static inline mask_T differ_T(T a, T b)
{
    return mask_T(-(a.x != b.x), -(a.y != b.y), -(a.z != b.z), -(a.w != b.w));
}

//@ lanes_select_T four
/* m ? a : b, lane by lane */
static inline T select_T(mask_T m, T a, T b)
{
    return T(m.x ? a.x : b.x, m.y ? a.y : b.y, m.z ? a.z : b.z, m.w ? a.w : b.w);
}

//@for f32x4:f32x4

//@ lanes_load_apart_T four
/* n floats, `step` apart; 0 in the other lanes */
#define load_apart_T(p, step, n)                                                                   \
    T((n) > 0 ? (p)[0] : 0.0f, (n) > 1 ? (p)[step] : 0.0f, (n) > 2 ? (p)[2 * (step)] : 0.0f,       \
      (n) > 3 ? (p)[3 * (step)] : 0.0f)

//@ lanes_load_part_T load_apart_T
#define load_part_T(p, n) load_apart_T(p, 1, n)

//@ lanes_store_part_T four
#define store_part_T(p, v, n) EACH_TO(T, AS_IT_IS, p, v, 1, n)

//@ lanes_load_bool_T four
#define IS_SET(v) -((v) != 0)
#define load_bool_T(p) EACH_AT(mask_T, IS_SET, p)

//@ lanes_load_f16_T four f16_to_f32
#define load_f16_T(p) EACH_AT(T, f16_to_f32, p)

//@ lanes_store_f16_T four f32_to_f16
#define store_f16_T(p, v) EACH_TO(T, f32_to_f16, p, v, 1, 4)

//@ lanes_store_apart_f16_T four f32_to_f16
#define store_apart_f16_T(p, v, step, n) EACH_TO(T, f32_to_f16, p, v, step, n)

//@ lanes_round_f16_T four round_f16
static inline T round_f16_T(T v) { return EACH_OF(T, round_f16, v); }

//@ lanes_load_bf16_T four bf16_to_f32
#define load_bf16_T(p) EACH_AT(T, bf16_to_f32, p)

//@ lanes_store_bf16_T four f32_to_bf16
#define store_bf16_T(p, v) EACH_TO(T, f32_to_bf16, p, v, 1, 4)

//@ lanes_store_apart_bf16_T four f32_to_bf16
#define store_apart_bf16_T(p, v, step, n) EACH_TO(T, f32_to_bf16, p, v, step, n)

//@ lanes_round_bf16_T four round_bf16
static inline T round_bf16_T(T v) { return EACH_OF(T, round_bf16, v); }

//@ lanes_load_tf32_T four
#define load_tf32_T(p) EACH_AT(T, AS_IT_IS, p)

//@ lanes_store_tf32_T four round_tf32
#define store_tf32_T(p, v) EACH_TO(T, round_tf32, p, v, 1, 4)

//@ lanes_store_apart_tf32_T four round_tf32
#define store_apart_tf32_T(p, v, step, n) EACH_TO(T, round_tf32, p, v, step, n)

//@ lanes_round_tf32_T four round_tf32
static inline T round_tf32_T(T v) { return EACH_OF(T, round_tf32, v); }

//@ lanes_i8_of to_int
static inline int8_t i8_of(float v) { return (int8_t)to_int(v, -128, 127); }

//@ lanes_nearest_i8_of i8_of round_f32
static inline int8_t nearest_i8_of(float v) { return i8_of(round_f32(v)); }

//@ lanes_store_i8_T four i8_of
/* truncated and saturated; NaN becomes 0 */
#define store_i8_T(p, v) EACH_TO(T, i8_of, p, v, 1, 4)

//@ lanes_store_nearest_i8_T four nearest_i8_of
/* rounded half to even */
#define store_nearest_i8_T(p, v) EACH_TO(T, nearest_i8_of, p, v, 1, 4)

//@ lanes_store_apart_i8_T four i8_of
#define store_apart_i8_T(p, v, step, n) EACH_TO(T, i8_of, p, v, step, n)

//@ lanes_store_apart_nearest_i8_T four nearest_i8_of
#define store_apart_nearest_i8_T(p, v, step, n) EACH_TO(T, nearest_i8_of, p, v, step, n)

//@ lanes_u8_of to_int
static inline uint8_t u8_of(float v) { return (uint8_t)to_int(v, 0, 255); }

//@ lanes_nearest_u8_of u8_of round_f32
static inline uint8_t nearest_u8_of(float v) { return u8_of(round_f32(v)); }

//@ lanes_store_u8_T four u8_of
/* truncated and saturated; NaN becomes 0 */
#define store_u8_T(p, v) EACH_TO(T, u8_of, p, v, 1, 4)

//@ lanes_store_nearest_u8_T four nearest_u8_of
/* rounded half to even */
#define store_nearest_u8_T(p, v) EACH_TO(T, nearest_u8_of, p, v, 1, 4)

//@ lanes_store_apart_u8_T four u8_of
#define store_apart_u8_T(p, v, step, n) EACH_TO(T, u8_of, p, v, step, n)

//@ lanes_store_apart_nearest_u8_T four nearest_u8_of
#define store_apart_nearest_u8_T(p, v, step, n) EACH_TO(T, nearest_u8_of, p, v, step, n)

//@ lanes_store_number_u8_T four u8_of
/* of 0..255, or NaN, which becomes 0 */
#define store_number_u8_T(p, v) EACH_TO(T, u8_of, p, v, 1, 4)

//@ lanes_less_T four
static inline mask_T less_T(T a, T b)
{
    return mask_T(-(a.x < b.x), -(a.y < b.y), -(a.z < b.z), -(a.w < b.w));
}

//@ lanes_not_T four
static inline mask_T not_T(mask_T m) { return mask_T(~m.x, ~m.y, ~m.z, ~m.w); }

//@ lanes_splat_mask_T four
static inline mask_T splat_mask_T(bool b) { return mask_T(-b, -b, -b, -b); }

//@ lanes_from_bool_T four
static inline T from_bool_T(mask_T m)
{
    return T(m.x ? 1.0f : 0.0f, m.y ? 1.0f : 0.0f, m.z ? 1.0f : 0.0f, m.w ? 1.0f : 0.0f);
}

//@ lanes_from_i32_T four
static inline T from_i32_T(i32x4 v)
{
    return T((float)(int)v.x, (float)(int)v.y, (float)(int)v.z, (float)(int)v.w);
}

//@ lanes_splat_T four
static inline T splat_T(float v) { return T(v, v, v, v); }

//@ lanes_ramp_T four
/* v, v + 1, v + 2 ... */
static inline T ramp_T(float v) { return T(v, v + 1.0f, v + 2.0f, v + 3.0f); }

//@ lanes_lane_T four
static inline float lane_T(T v, int k) { return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w; }

//@ lanes_fma_T four
/* a*b + c, rounded once */
static inline T fma_T(T a, T b, T c)
{
    return T(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

//@ lanes_higher_T four
/* the larger; b, if one of them is NaN */
static inline T higher_T(T a, T b)
{
    return T(a.x > b.x ? a.x : b.x, a.y > b.y ? a.y : b.y, a.z > b.z ? a.z : b.z,
             a.w > b.w ? a.w : b.w);
}

//@ lanes_lower_T four
static inline T lower_T(T a, T b)
{
    return T(a.x < b.x ? a.x : b.x, a.y < b.y ? a.y : b.y, a.z < b.z ? a.z : b.z,
             a.w < b.w ? a.w : b.w);
}

//@ lanes_max_T four max_f32
static inline T max_T(T a, T b) { return EACH_OF_TWO(T, max_f32, a, b); }

//@ lanes_min_T four min_f32
static inline T min_T(T a, T b) { return EACH_OF_TWO(T, min_f32, a, b); }

//@ lanes_abs_T four
static inline T abs_T(T v) { return EACH_OF(T, fabsf, v); }

//@ lanes_exp1_T four exp_f32
/* 1 + e^-x */
static inline T exp1_T(T v)
{
    return T(exp_f32(-v.x) + 1.0f, exp_f32(-v.y) + 1.0f, exp_f32(-v.z) + 1.0f,
             exp_f32(-v.w) + 1.0f);
}

//@ lanes_sqrt_T four sqrt_f32
static inline T sqrt_T(T v) { return EACH_OF(T, sqrt_f32, v); }

//@ lanes_exp_T four exp_f32
static inline T exp_T(T v) { return EACH_OF(T, exp_f32, v); }

//@ lanes_log_T four log_f32
static inline T log_T(T v) { return EACH_OF(T, log_f32, v); }

//@ lanes_tanh_T four tanh_f32
static inline T tanh_T(T v) { return EACH_OF(T, tanh_f32, v); }

//@ lanes_erf_T four erf_f32
static inline T erf_T(T v) { return EACH_OF(T, erf_f32, v); }

//@ lanes_floor_T four floor_f32
static inline T floor_T(T v) { return EACH_OF(T, floor_f32, v); }

//@ lanes_ceil_T four ceil_f32
static inline T ceil_T(T v) { return EACH_OF(T, ceil_f32, v); }

//@ lanes_trunc_T four trunc_f32
static inline T trunc_T(T v) { return EACH_OF(T, trunc_f32, v); }

//@ lanes_round_T four round_f32
static inline T round_T(T v) { return EACH_OF(T, round_f32, v); }

//@ lanes_sum_T four
static inline float sum_T(T v) { return (v.x + v.z) + (v.y + v.w); }

//@ lanes_product_T four
static inline float product_T(T v) { return (v.x * v.z) * (v.y * v.w); }

//@ lanes_largest_T four max_f32
static inline float largest_T(T v) { return max_f32(max_f32(v.x, v.z), max_f32(v.y, v.w)); }

//@ lanes_smallest_T four min_f32
static inline float smallest_T(T v) { return min_f32(min_f32(v.x, v.z), min_f32(v.y, v.w)); }

//@ lanes_evens_T four
/* The even groups of `by` lanes of a, each followed by that of b. */
static inline T evens_T(T a, T b, int by)
{
    return by == 2 ? T(a.x, a.y, b.x, b.y) : T(a.x, b.x, a.z, b.z);
}

//@ lanes_odds_T four
static inline T odds_T(T a, T b, int by)
{
    return by == 2 ? T(a.z, a.w, b.z, b.w) : T(a.y, b.y, a.w, b.w);
}

//@ lanes_gather_T four
#define gather_T(p, at) T((p)[(int)(at).x], (p)[(int)(at).y], (p)[(int)(at).z], (p)[(int)(at).w])

//@ lanes_gather_where_T four
/* The lanes where m is all ones; nothing is read for the others, which are `otherwise`. */
#define gather_where_T(p, at, m, otherwise) \
    T((m).x ? (p)[(int)(at).x] : (otherwise).x, (m).y ? (p)[(int)(at).y] : (otherwise).y, \
      (m).z ? (p)[(int)(at).z] : (otherwise).z, (m).w ? (p)[(int)(at).w] : (otherwise).w)

//@for i32x4:i32x4

//@ lanes_less_T four
static inline mask_T less_T(T a, T b)
{
    return mask_T(-((int)a.x < (int)b.x), -((int)a.y < (int)b.y), -((int)a.z < (int)b.z),
                  -((int)a.w < (int)b.w));
}

//@ lanes_max_T four max_i32
static inline T max_T(T a, T b) { return EACH_OF_TWO(T, max_i32, a, b); }

//@ lanes_min_T four min_i32
static inline T min_T(T a, T b) { return EACH_OF_TWO(T, min_i32, a, b); }

//@ lanes_splat_T four
static inline T splat_T(int v) { return T((uint32_t)v, (uint32_t)v, (uint32_t)v, (uint32_t)v); }

//@ lanes_lane_T four
static inline int lane_T(T v, int k)
{
    return (int)(k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w);
}

//@ lanes_lanes_T four
static inline T lanes_T() { return T(0, 1, 2, 3); }

//@ lanes_narrow_f32_T four to_int
/* truncated and clamped to -most..most; NaN becomes 0 */
static inline T narrow_f32_T(f32x4 v, int most)
{
    return T((uint32_t)to_int(v.x, -most, most), (uint32_t)to_int(v.y, -most, most),
             (uint32_t)to_int(v.z, -most, most), (uint32_t)to_int(v.w, -most, most));
}

//@ lanes_confined
/* -most..most */
static inline uint32_t confined(int64_t v, int64_t most)
{
    return (uint32_t)(v < -most ? -most : v > most ? most : v);
}

//@ lanes_narrow_i64_T four confined
#define narrow_i64_T(p, most) narrow_apart_i64_T(p, 1, most)

//@ lanes_narrow_apart_i64_T four confined
/* of 64-bit integers that are `step` apart */
#define narrow_apart_i64_T(p, step, most)                                                          \
    T(confined((p)[0], most), confined((p)[step], most), confined((p)[2 * (step)], most),          \
      confined((p)[3 * (step)], most))

//@ lanes_four_bytes
/* four bytes in memory, `step` apart, as one int */
#define four_bytes_apart(p, step)                                                                  \
    ((uint32_t)(uint8_t)(p)[0] | (uint32_t)(uint8_t)(p)[step] << 8 |                               \
     (uint32_t)(uint8_t)(p)[2 * (step)] << 16 | (uint32_t)(uint8_t)(p)[3 * (step)] << 24)
#define four_bytes(p) ((int)four_bytes_apart(p, 1))

//@ lanes_store_four_bytes
#define store_four_bytes(p, v)                                                                     \
    do {                                                                                           \
        const uint32_t bytes_ = (uint32_t)(v);                                                     \
        (p)[0] = (uint8_t)bytes_, (p)[1] = (uint8_t)(bytes_ >> 8),                                 \
        (p)[2] = (uint8_t)(bytes_ >> 16), (p)[3] = (uint8_t)(bytes_ >> 24);                        \
    } while (0)

//@ lanes_load_bytes_T four four_bytes
/* four bytes in each lane */
#define load_bytes_T(p)                                                                            \
    T(four_bytes_apart(p, 1), four_bytes_apart((p) + 4, 1), four_bytes_apart((p) + 8, 1),          \
      four_bytes_apart((p) + 12, 1))

//@ lanes_store_bytes_T four store_four_bytes
#define store_bytes_T(p, v) \
    do { \
        const T all_ = v; \
        store_four_bytes(p, all_.x); \
        store_four_bytes((p) + 4, all_.y); \
        store_four_bytes((p) + 8, all_.z); \
        store_four_bytes((p) + 12, all_.w); \
    } while (0)

//@ lanes_load_groups_T four four_bytes
/* Four bytes in each lane, `step` apart; lane i begins i bytes on. */
#define load_groups_T(p, step)                                                                     \
    T(four_bytes_apart(p, step), four_bytes_apart((p) + 1, step), four_bytes_apart((p) + 2, step), \
      four_bytes_apart((p) + 3, step))

//@ lanes_dot_bytes
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127 */
static inline uint32_t dot_bytes(uint32_t sum, uint32_t a, uint32_t b)
{
    sum += (a & 255) * (uint32_t)(int8_t)b + (a >> 8 & 255) * (uint32_t)(int8_t)(b >> 8);
    return sum + (a >> 16 & 255) * (uint32_t)(int8_t)(b >> 16) +
           (a >> 24) * (uint32_t)(int8_t)(b >> 24);
}

//@ lanes_dot_T four dot_bytes
static inline T dot_T(T sum, T a, T b)
{
    return T(dot_bytes(sum.x, a.x, b.x), dot_bytes(sum.y, a.y, b.y), dot_bytes(sum.z, a.z, b.z),
             dot_bytes(sum.w, a.w, b.w));
}
