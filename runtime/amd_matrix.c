/* SPDX-License-Identifier: 0BSD */
/* amd_matrix.c - AMD's matrix instructions of ir/matrix.def (MFMA, WMMA): a wave's loads of
 * fragments from shared memory, and its products, by clang's built-ins.
 *
 * Lane l holds row l % 16 of a, or column l % 16 of b, as words of elements that are contiguous
 * along k: all of k, or the part of the lane's group of 16. Rows of a tile in memory are `stride`
 * elements apart and contiguous along k. a_across, b_across: the transpose, whose memory rows are
 * slices at one k.
 *
 * TGC_MATRIX_MODEL(row, sums, a, b), if defined, replaces the instruction: the emulator's model of
 * it.
 *
 * Single threads have the dot product of four bytes. gfx11 and later take any signedness. gfx9
 * takes signed bytes alone, so the unsigned byte is biased by 128 and the bias is added back.
 */
#include <stdint.h>

//@ amd_dot_bytes
/* sum + the dot product of four bytes of a, 0..255, and of b, -128..127 */
static inline uint32_t dot_bytes(uint32_t sum, uint32_t a, uint32_t b)
{
#if defined __GFX11__ || defined __GFX12__
    return (uint32_t)__builtin_amdgcn_sudot4(false, (int)a, true, (int)b, (int)sum, false);
#elif defined __gfx90a__ || defined __gfx942__
    const int of_128 = __builtin_amdgcn_sdot4(0x01010101, (int)b, 0, false);
    return (uint32_t)__builtin_amdgcn_sdot4((int)(a ^ 0x80808080), (int)b, (int)sum, false) +
           ((uint32_t)of_128 << 7);
#else
    sum += (a & 255) * (uint32_t)(int8_t)b + (a >> 8 & 255) * (uint32_t)(int8_t)(b >> 8);
    return sum + (a >> 16 & 255) * (uint32_t)(int8_t)(b >> 16) +
           (a >> 24) * (uint32_t)(int8_t)(b >> 24);
#endif
}

//@ amd_words
template <int N> struct words { uint32_t x[N]; };

//@ amd_matrix_product amd_words
/* The function of a row of ir/matrix.def: sums += a * b, for factors of N words. made: the
 * built-in's call, with A and B, the factors as the type `factor`, and S, the sums. */
template <class E, int N> using vector_of = E __attribute__((ext_vector_type(N)));
#define VECTOR(type, n) vector_of<type, n>
#ifdef TGC_MATRIX_MODEL
#define MATRIX_PRODUCT(row, N, factor, sum, nsum, made) \
    static inline void row(sum *sums, words<N> a, words<N> b) \
    { \
        TGC_MATRIX_MODEL(#row, sums, &a, &b); \
    }
#else
#define MATRIX_PRODUCT(row, N, factor, sum, nsum, made) \
    static inline void row(sum *sums, words<N> a, words<N> b) \
    { \
        const factor A = __builtin_bit_cast(factor, a), B = __builtin_bit_cast(factor, b); \
        VECTOR(sum, nsum) S; \
        __builtin_memcpy(&S, sums, sizeof S); \
        S = made; \
        __builtin_memcpy(sums, &S, sizeof S); \
    }
#endif

//@ amd_mfma16x16x16_f16 amd_matrix_product
MATRIX_PRODUCT(mfma16x16x16_f16, 2, VECTOR(_Float16, 4), float, 4,
               __builtin_amdgcn_mfma_f32_16x16x16f16(A, B, S, 0, 0, 0))

//@ amd_mfma16x16x16_bf16 amd_matrix_product
MATRIX_PRODUCT(mfma16x16x16_bf16, 2, VECTOR(short, 4), float, 4,
               __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(A, B, S, 0, 0, 0))

//@ amd_wmma16x16x16_f16 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16_f16, 8, VECTOR(_Float16, 16), float, 8,
               __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(A, B, S))

//@ amd_wmma16x16x16_bf16 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16_bf16, 8, VECTOR(short, 16), float, 8,
               __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(A, B, S))

//@ amd_wmma16x16x16gfx12_f16 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_f16, 4, VECTOR(_Float16, 8), float, 8,
               __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(A, B, S))

//@ amd_wmma16x16x16gfx12_bf16 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_bf16, 4, VECTOR(short, 8), float, 8,
               __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(A, B, S))

//@ amd_wmma16x16x16_i8 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16_i8, 4, VECTOR(int, 4), int32_t, 8,
               __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, A, true, B, S, false))

//@ amd_wmma16x16x16_u8i8 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16_u8i8, 4, VECTOR(int, 4), int32_t, 8,
               __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(false, A, true, B, S, false))

//@ amd_wmma16x16x16_u8 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16_u8, 4, VECTOR(int, 4), int32_t, 8,
               __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(false, A, false, B, S, false))

//@ amd_wmma16x16x16gfx12_i8 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_i8, 2, VECTOR(int, 2), int32_t, 8,
               __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, A, true, B, S, false))

//@ amd_wmma16x16x16gfx12_u8i8 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_u8i8, 2, VECTOR(int, 2), int32_t, 8,
               __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(false, A, true, B, S, false))

//@ amd_wmma16x16x16gfx12_u8 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_u8, 2, VECTOR(int, 2), int32_t, 8,
               __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(false, A, false, B, S, false))

//@ amd_wmma16x16x16gfx12_e4m3 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_e4m3, 2, VECTOR(int, 2), float, 8,
               __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(A, B, S))

//@ amd_wmma16x16x16gfx12_e5m2 amd_matrix_product
MATRIX_PRODUCT(wmma16x16x16gfx12_e5m2, 2, VECTOR(int, 2), float, 8,
               __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(A, B, S))

//@ amd_mfma16x16x16_i8 amd_matrix_product
MATRIX_PRODUCT(mfma16x16x16_i8, 1, int, int32_t, 4,
               __builtin_amdgcn_mfma_i32_16x16x16i8(A, B, S, 0, 0, 0))

//@ amd_mfma16x16x32_i8 amd_matrix_product
MATRIX_PRODUCT(mfma16x16x32_i8, 2, long, int32_t, 4,
               __builtin_amdgcn_mfma_i32_16x16x32_i8(A, B, S, 0, 0, 0))

//@ amd_mfma16x16x32_e4m3fnuz amd_matrix_product
MATRIX_PRODUCT(mfma16x16x32_e4m3fnuz, 2, long, float, 4,
               __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(A, B, S, 0, 0, 0))

//@ amd_mfma16x16x32_e5m2fnuz amd_matrix_product
MATRIX_PRODUCT(mfma16x16x32_e5m2fnuz, 2, long, float, 4,
               __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(A, B, S, 0, 0, 0))

//@ amd_fragment amd_words
/* A lane's part of an operand: N words of 32 bits, which hold consecutive elements along k. In
 * memory these are `step` elements apart, the operand's rows (a column of b is a row, too) `side`.
 * Lane l has row l % 16; each group of 16 lanes has the next N words. Lanes from LANES on load
 * what lane l % LANES loads. */
template <int N, int LANES, class E> static inline words<N> fragment(const E *p, int side, int step)
{
    enum { EACH = 4 / sizeof(E), BITS = 8 * sizeof(E) };
    const int lane = (int)__builtin_amdgcn_workitem_id_x() % LANES;
    words<N> w;
    p += lane % 16 * side + lane / 16 * (N * EACH) * step;
#pragma unroll
    for (int i = 0; i < N; i++, p += EACH * step) {
        w.x[i] = step == 1 ? *(const uint32_t *)p : 0;
#pragma unroll
        for (int j = 0; j < EACH && step != 1; j++)
            w.x[i] |= ((uint32_t)p[j * step] & 0xffffffffu >> (32 - BITS)) << j * BITS;
    }
    return w;
}

//@for mfma16x16x16_f16:2,64 mfma16x16x16_bf16:2,64 mfma16x16x16_i8:1,64 mfma16x16x32_i8:2,64 mfma16x16x32_e4m3fnuz:2,64 mfma16x16x32_e5m2fnuz:2,64 wmma16x16x16_f16:8,16 wmma16x16x16_bf16:8,16 wmma16x16x16_i8:4,16 wmma16x16x16_u8i8:4,16 wmma16x16x16_u8:4,16 wmma16x16x16gfx12_f16:4,32 wmma16x16x16gfx12_bf16:4,32 wmma16x16x16gfx12_i8:2,32 wmma16x16x16gfx12_u8i8:2,32 wmma16x16x16gfx12_u8:2,32 wmma16x16x16gfx12_e4m3:2,32 wmma16x16x16gfx12_e5m2:2,32

//@ amd_a_T amd_fragment
#define a_T(p, stride) fragment<T>(p, stride, 1)

//@ amd_a_across_T amd_fragment
#define a_across_T(p, stride) fragment<T>(p, 1, stride)

//@ amd_b_T amd_fragment
#define b_T(p, stride) fragment<T>(p, stride, 1)

//@ amd_b_across_T amd_fragment
#define b_across_T(p, stride) fragment<T>(p, 1, stride)
