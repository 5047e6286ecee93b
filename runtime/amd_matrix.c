/* SPDX-License-Identifier: 0BSD */
/* amd_matrix.c - AMD's instructions of ir/matrix.def: a wave's loads of tiles from a block's memory, and its products, by
 * clang's built-ins.
 *
 * Lane l of the wave holds, of a factor, row l % 16 (of b: column l % 16) and neighbours of k, two in a word: all 16, or
 * those of its part of the wave. A tile's rows are `stride` elements apart. NAME_across: they are rows of k.
 *
 * TGC_MATRIX_MODEL(row, sums, a, b), if it is defined, does what the instruction does.
 */
#include <stdint.h>

//@ amd_words
template <int N> struct words { uint32_t x[N]; };

//@ amd_fragment amd_words
/* 2 N neighbours of k, which are `step` apart, for each part of 16 lanes those behind the last part's. lanes: after how
 * many the parts begin again. */
template <int N> static inline words<N> fragment(const uint16_t *p, int side, int step, int lanes)
{
    const int lane = (int)__builtin_amdgcn_workitem_id_x() % lanes;
    words<N> w;
    p += lane % 16 * side + lane / 16 * (2 * N) * step;
#pragma unroll
    for (int i = 0; i < N; i++, p += 2 * step)
        w.x[i] = step == 1 ? *(const uint32_t *)p : p[0] | (uint32_t)p[step] << 16;
    return w;
}

//@ amd_mfma16x16x16_b16_a amd_fragment
static inline words<2> mfma16x16x16_b16_a(const uint16_t *p, int stride) { return fragment<2>(p, stride, 1, 64); }

//@ amd_mfma16x16x16_b16_a_across amd_fragment
static inline words<2> mfma16x16x16_b16_a_across(const uint16_t *p, int stride) { return fragment<2>(p, 1, stride, 64); }

//@ amd_mfma16x16x16_b16_b amd_fragment
static inline words<2> mfma16x16x16_b16_b(const uint16_t *p, int stride) { return fragment<2>(p, stride, 1, 64); }

//@ amd_mfma16x16x16_b16_b_across amd_fragment
static inline words<2> mfma16x16x16_b16_b_across(const uint16_t *p, int stride) { return fragment<2>(p, 1, stride, 64); }

//@ amd_wmma16x16x16_b16_a amd_fragment
static inline words<8> wmma16x16x16_b16_a(const uint16_t *p, int stride) { return fragment<8>(p, stride, 1, 16); }

//@ amd_wmma16x16x16_b16_a_across amd_fragment
static inline words<8> wmma16x16x16_b16_a_across(const uint16_t *p, int stride) { return fragment<8>(p, 1, stride, 16); }

//@ amd_wmma16x16x16_b16_b amd_fragment
static inline words<8> wmma16x16x16_b16_b(const uint16_t *p, int stride) { return fragment<8>(p, stride, 1, 16); }

//@ amd_wmma16x16x16_b16_b_across amd_fragment
static inline words<8> wmma16x16x16_b16_b_across(const uint16_t *p, int stride) { return fragment<8>(p, 1, stride, 16); }

//@ amd_wmma16x16x16gfx12_b16_a amd_fragment
static inline words<4> wmma16x16x16gfx12_b16_a(const uint16_t *p, int stride) { return fragment<4>(p, stride, 1, 32); }

//@ amd_wmma16x16x16gfx12_b16_a_across amd_fragment
static inline words<4> wmma16x16x16gfx12_b16_a_across(const uint16_t *p, int stride) { return fragment<4>(p, 1, stride, 32); }

//@ amd_wmma16x16x16gfx12_b16_b amd_fragment
static inline words<4> wmma16x16x16gfx12_b16_b(const uint16_t *p, int stride) { return fragment<4>(p, stride, 1, 32); }

//@ amd_wmma16x16x16gfx12_b16_b_across amd_fragment
static inline words<4> wmma16x16x16gfx12_b16_b_across(const uint16_t *p, int stride) { return fragment<4>(p, 1, stride, 32); }

//@ amd_mfma16x16x16_f16 amd_words
/* The wave's sums, 16 x 16, plus a, 16 x 16, times b, 16 x 16. */
static inline void mfma16x16x16_f16(float *sum, words<2> a, words<2> b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("mfma16x16x16_f16", sum, &a, &b);
#else
    typedef _Float16 factor __attribute__((ext_vector_type(4)));
    typedef float sums __attribute__((ext_vector_type(4)));
    sums s;
    __builtin_memcpy(&s, sum, sizeof s);
    s = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(factor, a), __builtin_bit_cast(factor, b), s, 0, 0, 0);
    __builtin_memcpy(sum, &s, sizeof s);
#endif
}

//@ amd_mfma16x16x16_bf16 amd_words
/* The wave's sums, 16 x 16, plus a, 16 x 16, times b, 16 x 16. */
static inline void mfma16x16x16_bf16(float *sum, words<2> a, words<2> b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("mfma16x16x16_bf16", sum, &a, &b);
#else
    typedef short factor __attribute__((ext_vector_type(4)));
    typedef float sums __attribute__((ext_vector_type(4)));
    sums s;
    __builtin_memcpy(&s, sum, sizeof s);
    s = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(factor, a), __builtin_bit_cast(factor, b), s, 0, 0, 0);
    __builtin_memcpy(sum, &s, sizeof s);
#endif
}

//@ amd_wmma16x16x16_f16 amd_words
/* The wave's sums, 16 x 16, plus a, 16 x 16, times b, 16 x 16. */
static inline void wmma16x16x16_f16(float *sum, words<8> a, words<8> b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("wmma16x16x16_f16", sum, &a, &b);
#else
    typedef _Float16 factor __attribute__((ext_vector_type(16)));
    typedef float sums __attribute__((ext_vector_type(8)));
    sums s;
    __builtin_memcpy(&s, sum, sizeof s);
    s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(factor, a), __builtin_bit_cast(factor, b), s);
    __builtin_memcpy(sum, &s, sizeof s);
#endif
}

//@ amd_wmma16x16x16_bf16 amd_words
/* The wave's sums, 16 x 16, plus a, 16 x 16, times b, 16 x 16. */
static inline void wmma16x16x16_bf16(float *sum, words<8> a, words<8> b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("wmma16x16x16_bf16", sum, &a, &b);
#else
    typedef short factor __attribute__((ext_vector_type(16)));
    typedef float sums __attribute__((ext_vector_type(8)));
    sums s;
    __builtin_memcpy(&s, sum, sizeof s);
    s = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(factor, a), __builtin_bit_cast(factor, b), s);
    __builtin_memcpy(sum, &s, sizeof s);
#endif
}

//@ amd_wmma16x16x16gfx12_f16 amd_words
/* The wave's sums, 16 x 16, plus a, 16 x 16, times b, 16 x 16. */
static inline void wmma16x16x16gfx12_f16(float *sum, words<4> a, words<4> b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("wmma16x16x16gfx12_f16", sum, &a, &b);
#else
    typedef _Float16 factor __attribute__((ext_vector_type(8)));
    typedef float sums __attribute__((ext_vector_type(8)));
    sums s;
    __builtin_memcpy(&s, sum, sizeof s);
    s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(factor, a), __builtin_bit_cast(factor, b), s);
    __builtin_memcpy(sum, &s, sizeof s);
#endif
}

//@ amd_wmma16x16x16gfx12_bf16 amd_words
/* The wave's sums, 16 x 16, plus a, 16 x 16, times b, 16 x 16. */
static inline void wmma16x16x16gfx12_bf16(float *sum, words<4> a, words<4> b)
{
#ifdef TGC_MATRIX_MODEL
    TGC_MATRIX_MODEL("wmma16x16x16gfx12_bf16", sum, &a, &b);
#else
    typedef short factor __attribute__((ext_vector_type(8)));
    typedef float sums __attribute__((ext_vector_type(8)));
    sums s;
    __builtin_memcpy(&s, sum, sizeof s);
    s = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(factor, a), __builtin_bit_cast(factor, b), s);
    __builtin_memcpy(sum, &s, sizeof s);
#endif
}
