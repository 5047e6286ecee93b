/* SPDX-License-Identifier: 0BSD */
/* cuda_matrix.c - CUDA's matrix instructions of ir/matrix.def (mma.sync): a warp's loads of
 * fragments from shared memory, and its products, as PTX.
 *
 * Lane l holds row l / 4 of a, or column l / 4 of b, as words of one, two or four elements that are
 * contiguous along k. Its first word is word l % 4 of the row. It has one word for each part of
 * eight rows (columns of b) and four words of k. Rows of a tile in memory are `stride` elements
 * apart and contiguous along k. a_across, b_across: the transpose, whose memory rows are slices at
 * one k; a word is gathered from several of them.
 *
 * If defined, TGC_MATRIX_MODEL(row, sums, a, b) replaces the product and TGC_ROWS_MODEL(words, row,
 * n, across) replaces ldmatrix: the emulator's models of them.
 *
 * Single threads have the dot product of four bytes.
 */
#include <stdint.h>

//@ cuda_dot_bytes
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127 */
static inline uint32_t dot_bytes(uint32_t sum, uint32_t a, uint32_t b)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 610
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    sum += (a & 255) * (uint32_t)(int8_t)b + (a >> 8 & 255) * (uint32_t)(int8_t)(b >> 8);
    return sum + (a >> 16 & 255) * (uint32_t)(int8_t)(b >> 16) +
           (a >> 24) * (uint32_t)(int8_t)(b >> 24);
#endif
}

//@ cuda_words
template <int N> struct words { uint32_t x[N]; };

//@ cuda_matrix_product cuda_words
/* The function of a row of ir/matrix.def: sums += a * b, 16 x 8 of the warp. of: shape, layout and
 * types as PTX names them; letter: the constraint of a sum's register. */
#ifdef TGC_MATRIX_MODEL
#define MATRIX_PRODUCT(row, of, sum, letter)                                                       \
    static inline void row(sum *sums, words<4> a, words<2> b)                                      \
    {                                                                                              \
        TGC_MATRIX_MODEL(#row, sums, &a, &b);                                                      \
    }
#else
#define MATRIX_PRODUCT(row, of, sum, letter)                                                       \
    static inline void row(sum *sums, words<4> a, words<2> b)                                      \
    {                                                                                              \
        asm volatile(                                                                              \
            "mma.sync.aligned." of                                                                 \
            " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
            : "+" letter(sums[0]), "+" letter(sums[1]), "+" letter(sums[2]), "+" letter(sums[3])   \
            : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));       \
    }
#endif

//@ cuda_m16n8k16_f16 cuda_matrix_product
MATRIX_PRODUCT(m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f")

//@ cuda_m16n8k16_bf16 cuda_matrix_product
MATRIX_PRODUCT(m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f")

//@ cuda_m16n8k8_tf32 cuda_matrix_product
MATRIX_PRODUCT(m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f")

//@ cuda_m16n8k32_i8 cuda_matrix_product
MATRIX_PRODUCT(m16n8k32_i8, "m16n8k32.row.col.s32.s8.s8.s32", int32_t, "r")

//@ cuda_m16n8k32_u8i8 cuda_matrix_product
MATRIX_PRODUCT(m16n8k32_u8i8, "m16n8k32.row.col.s32.u8.s8.s32", int32_t, "r")

//@ cuda_m16n8k32_u8 cuda_matrix_product
MATRIX_PRODUCT(m16n8k32_u8, "m16n8k32.row.col.s32.u8.u8.s32", int32_t, "r")

//@ cuda_m16n8k32_e4m3 cuda_matrix_product
MATRIX_PRODUCT(m16n8k32_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32", float, "f")

//@ cuda_m16n8k32_e5m2 cuda_matrix_product
MATRIX_PRODUCT(m16n8k32_e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32", float, "f")

//@ cuda_fragment cuda_words
/* The word of elements at p, p + step, p + 2 * step ... */
template <class E> static inline uint32_t word_at(const E *p, int step)
{
    enum { EACH = 4 / sizeof(E), BITS = 8 * sizeof(E) };
    uint32_t word = 0;
    if (step == 1 || EACH == 1)
        return *(const uint32_t *)p;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        word |= ((uint32_t)p[i * step] & 0xffffffffu >> (32 - BITS)) << i * BITS;
    return word;
}

/* Loads a fragment, rows `side` apart and elements along k `step` apart: the word of rows 0..7,
 * that of rows 8..15 if there are 16 rows, then the words of the second half of k. */
template <int N, class E> static inline words<N> fragment(const E *p, int side, int step)
{
    enum { EACH = 4 / sizeof(E), PARTS = N / 2 };
    const int lane = threadIdx.x % 32;
    words<N> w;
    p += lane / 4 * side + lane % 4 * EACH * step;
#pragma unroll
    for (int i = 0; i < N; i++)
        w.x[i] = word_at(p + i % PARTS * 8 * side + i / PARTS * 4 * EACH * step, step);
    return w;
}

//@ cuda_rows cuda_words
/* Loads a fragment by ldmatrix, as 8 x 16-byte matrices: those along the rows first, then along k.
 * Lane l passes the begin of row l % 8 of matrix l / 8, and gets word l % 4 of row l / 4. If step
 * is not 1, memory rows are slices at one k, and .trans returns the words of the columns. */
template <int N, class E> static inline words<N> rows(const E *p, int side, int step)
{
    enum { EACH = 16 / sizeof(E), PARTS = N / 2 };
    const int lane = threadIdx.x % 32, row = lane % 8, of_side = lane / 8 % N % PARTS * 8,
              of_k = lane / 8 % N / PARTS;
    words<N> w;
    p += step == 1 ? (of_side + row) * side + of_k * EACH : (of_k * 8 + row) * step + of_side;
#ifdef TGC_ROWS_MODEL
    TGC_ROWS_MODEL(w.x, p, N, step != 1);
#else
    const unsigned at = (unsigned)__cvta_generic_to_shared(p);
    if (N == 4 && step == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[N - 2]), "=r"(w.x[N - 1])
                     : "r"(at) : "memory");
    else if (N == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[N - 2]), "=r"(w.x[N - 1])
                     : "r"(at) : "memory");
    else if (step == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(w.x[0]), "=r"(w.x[1]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(w.x[0]), "=r"(w.x[1]) : "r"(at) : "memory");
#endif
    return w;
}

//@ cuda_pair_m16n8k16_f16 cuda_f32_to_f16
/* Rounds two floats to the halves of a word, `low` in the lower one. */
static inline uint32_t pair_m16n8k16_f16(float low, float high)
{
#ifdef TGC_HALF_MODEL
    return f32_to_f16(low) | (uint32_t)f32_to_f16(high) << 16;
#else
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#endif
}

//@ cuda_pair_m16n8k16_bf16 cuda_bits_f32
#ifndef __CUDA_ARCH__
/* Rounds to nearest even; NaN stays NaN. */
static inline uint32_t upper_half(float v)
{
    const uint32_t u = bits_f32(v);
    return v != v ? u >> 16 | 64 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
#endif

static inline uint32_t pair_m16n8k16_bf16(float low, float high)
{
#if defined __CUDA_ARCH__
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return upper_half(low) | upper_half(high) << 16;
#endif
}

//@for m16n8k16_f16: m16n8k16_bf16:

//@ cuda_a_own_T cuda_words cuda_pair_T
/* Makes a's fragment of the thread's own sums: two adjacent elements of a row, and of the row eight
 * below, which is `stride` further on. */
static inline words<4> a_own_T(const float *p, int stride)
{
    words<4> w;
#pragma unroll
    for (int i = 0; i < 4; i++)
        w.x[i] = pair_T(p[i % 2 * stride + i / 2 * 2], p[i % 2 * stride + i / 2 * 2 + 1]);
    return w;
}

//@for m16n8k16_f16: m16n8k16_bf16: m16n8k8_tf32: m16n8k32_i8: m16n8k32_u8i8: m16n8k32_u8: m16n8k32_e4m3: m16n8k32_e5m2:

//@ cuda_a_T cuda_fragment
#define a_T(p, stride) fragment<4>(p, stride, 1)

//@ cuda_a_across_T cuda_fragment
#define a_across_T(p, stride) fragment<4>(p, 1, stride)

//@ cuda_b_T cuda_fragment
#define b_T(p, stride) fragment<2>(p, stride, 1)

//@ cuda_b_across_T cuda_fragment
#define b_across_T(p, stride) fragment<2>(p, 1, stride)

//@ cuda_a_rows_T cuda_rows
#define a_rows_T(p, stride) rows<4>(p, stride, 1)

//@ cuda_a_rows_across_T cuda_rows
#define a_rows_across_T(p, stride) rows<4>(p, 1, stride)

//@ cuda_b_rows_T cuda_rows
#define b_rows_T(p, stride) rows<2>(p, stride, 1)

//@ cuda_b_rows_across_T cuda_rows
#define b_rows_across_T(p, stride) rows<2>(p, 1, stride)
