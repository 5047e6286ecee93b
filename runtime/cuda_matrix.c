/* SPDX-License-Identifier: 0BSD */
/* cuda_matrix.c - CUDA's instructions of ir/matrix.def: a warp's loads of tiles from shared memory, and its
 * products, as PTX.
 *
 * Lane l of the warp holds, of a factor, row l / 4 (of b: column l / 4) and the neighbours of k from l % 4 times
 * a word's on: words of two or four elements, as many words as the matrix has parts of eight rows and of four
 * words. A tile's rows are `stride` elements apart. NAME_across: they are rows of k, whose words are put
 * together from several of them.
 *
 * TGC_MATRIX_MODEL(row, sums, a, b), if it is defined, does what the instruction does.
 *
 * Of a thread's own there is the dot product of four bytes.
 */
#include <stdint.h>

//@ cuda_dot_bytes
/* sum + the four products of bytes a (0..255) and b (-128..127) */
static inline uint32_t dot_bytes(uint32_t sum, uint32_t a, uint32_t b)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 610
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    sum += (a & 255) * (uint32_t)(int8_t)b + (a >> 8 & 255) * (uint32_t)(int8_t)(b >> 8);
    return sum + (a >> 16 & 255) * (uint32_t)(int8_t)(b >> 16) + (a >> 24) * (uint32_t)(int8_t)(b >> 24);
#endif
}

//@ cuda_words
struct words2 { uint32_t x[2]; };
struct words4 { uint32_t x[4]; };

//@ cuda_word_of
/* Neighbours of less than 32 bits as a word. */
template <class T> static inline uint32_t word_of(const T *p) { return *(const uint32_t *)p; }

//@ cuda_word_across
/* Elements that are `stride` apart as a word. */
static inline uint32_t word_across(const uint16_t *p, int stride)
{
    return p[0] | (uint32_t)p[stride] << 16;
}
template <class T> static inline uint32_t word_across(const T *p, int stride)
{
    return (uint8_t)p[0] | (uint32_t)(uint8_t)p[stride] << 8 | (uint32_t)(uint8_t)p[2 * stride] << 16 |
           (uint32_t)(uint8_t)p[3 * stride] << 24;
}

//@ cuda_m16n8k16_b16_a cuda_words cuda_word_of
static inline words4 m16n8k16_b16_a(const uint16_t *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane / 4 * stride + lane % 4 * 2;
    return {word_of(p), word_of(p + 8 * stride), word_of(p + 8), word_of(p + 8 * stride + 8)};
}

//@ cuda_m16n8k16_b16_a_across cuda_words cuda_word_across
static inline words4 m16n8k16_b16_a_across(const uint16_t *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane % 4 * 2 * stride + lane / 4;
    return {word_across(p, stride), word_across(p + 8, stride), word_across(p + 8 * stride, stride),
            word_across(p + 8 * stride + 8, stride)};
}

//@ cuda_m16n8k16_b16_b cuda_words cuda_word_of
static inline words2 m16n8k16_b16_b(const uint16_t *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane / 4 * stride + lane % 4 * 2;
    return {word_of(p), word_of(p + 8)};
}

//@ cuda_m16n8k16_b16_b_across cuda_words cuda_word_across
static inline words2 m16n8k16_b16_b_across(const uint16_t *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane % 4 * 2 * stride + lane / 4;
    return {word_across(p, stride), word_across(p + 8 * stride, stride)};
}

//@ cuda_m16n8k8_b32_a cuda_words
static inline words4 m16n8k8_b32_a(const float *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane / 4 * stride + lane % 4;
    return {__float_as_uint(p[0]), __float_as_uint(p[8 * stride]), __float_as_uint(p[4]), __float_as_uint(p[8 * stride + 4])};
}

//@ cuda_m16n8k8_b32_a_across cuda_words
static inline words4 m16n8k8_b32_a_across(const float *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane % 4 * stride + lane / 4;
    return {__float_as_uint(p[0]), __float_as_uint(p[8]), __float_as_uint(p[4 * stride]), __float_as_uint(p[4 * stride + 8])};
}

//@ cuda_m16n8k8_b32_b cuda_words
static inline words2 m16n8k8_b32_b(const float *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane / 4 * stride + lane % 4;
    return {__float_as_uint(p[0]), __float_as_uint(p[4])};
}

//@ cuda_m16n8k8_b32_b_across cuda_words
static inline words2 m16n8k8_b32_b_across(const float *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane % 4 * stride + lane / 4;
    return {__float_as_uint(p[0]), __float_as_uint(p[4 * stride])};
}

//@ cuda_m16n8k32_b8_a cuda_words cuda_word_of
template <class T> static inline words4 m16n8k32_b8_a(const T *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane / 4 * stride + lane % 4 * 4;
    return {word_of(p), word_of(p + 8 * stride), word_of(p + 16), word_of(p + 8 * stride + 16)};
}

//@ cuda_m16n8k32_b8_a_across cuda_words cuda_word_across
template <class T> static inline words4 m16n8k32_b8_a_across(const T *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane % 4 * 4 * stride + lane / 4;
    return {word_across(p, stride), word_across(p + 8, stride), word_across(p + 16 * stride, stride),
            word_across(p + 16 * stride + 8, stride)};
}

//@ cuda_m16n8k32_b8_b cuda_words cuda_word_of
template <class T> static inline words2 m16n8k32_b8_b(const T *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane / 4 * stride + lane % 4 * 4;
    return {word_of(p), word_of(p + 16)};
}

//@ cuda_m16n8k32_b8_b_across cuda_words cuda_word_across
template <class T> static inline words2 m16n8k32_b8_b_across(const T *p, int stride)
{
    const int lane = threadIdx.x % 32;
    p += lane % 4 * 4 * stride + lane / 4;
    return {word_across(p, stride), word_across(p + 16 * stride, stride)};
}

//@ cuda_m16n8k16_f16 cuda_words
/* The warp's sums, 16 x 8, plus a, 16 x 16, times b, 16 x 8. */
static inline void m16n8k16_f16(float *sum, words4 a, words2 b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("m16n8k16_f16", sum, &a, &b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#endif
}

//@ cuda_m16n8k16_bf16 cuda_words
/* The warp's sums, 16 x 8, plus a, 16 x 16, times b, 16 x 8. */
static inline void m16n8k16_bf16(float *sum, words4 a, words2 b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("m16n8k16_bf16", sum, &a, &b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#endif
}

//@ cuda_m16n8k8_tf32 cuda_words
/* The warp's sums, 16 x 8, plus a, 16 x 8, times b, 8 x 8. */
static inline void m16n8k8_tf32(float *sum, words4 a, words2 b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("m16n8k8_tf32", sum, &a, &b);
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#endif
}

//@ cuda_m16n8k32_i8 cuda_words
/* The warp's sums, 16 x 8, plus a, 16 x 32, times b, 32 x 8. */
static inline void m16n8k32_i8(int32_t *sum, words4 a, words2 b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("m16n8k32_i8", sum, &a, &b);
#else
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#endif
}

//@ cuda_m16n8k32_u8i8 cuda_words
/* The warp's sums, 16 x 8, plus a, 16 x 32 without signs, times b, 32 x 8. */
static inline void m16n8k32_u8i8(int32_t *sum, words4 a, words2 b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("m16n8k32_u8i8", sum, &a, &b);
#else
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#endif
}
