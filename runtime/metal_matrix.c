/* SPDX-License-Identifier: 0BSD */
/* metal_matrix.c - Metal's instructions of ir/matrix.def: 8 x 8 matrices that a SIMD group loads
 * from threadgroup memory and multiplies.
 *
 * The rows of a tile in memory are `stride` elements apart. They are the rows of a and the columns
 * of b, each contiguous along k; a_across, b_across: the transpose, contiguous along the other
 * axis. Each thread holds two adjacent elements of a row of the sums.
 */

//@ metal_add_product8x8
/* sum += a * b for the SIMD group's sums, of which sum[0] and sum[1] are the thread's. */
template <class S, class M> static inline void add_product8x8(S sum, M a, M b)
{
    simdgroup_float8x8 m;
    m.thread_elements()[0] = sum[0];
    m.thread_elements()[1] = sum[1];
    simdgroup_multiply_accumulate(m, a, b, m);
    sum[0] = m.thread_elements()[0];
    sum[1] = m.thread_elements()[1];
}

//@ metal_m8n8k8_f16 metal_add_product8x8
#define m8n8k8_f16(sum, a, b) add_product8x8(sum, a, b)

//@ metal_m8n8k8_bf16 metal_add_product8x8
#define m8n8k8_bf16(sum, a, b) add_product8x8(sum, a, b)

//@ metal_m8n8k8_f32 metal_add_product8x8
#define m8n8k8_f32(sum, a, b) add_product8x8(sum, a, b)

//@ metal_loaded metal_spaces
/* Loads a matrix from threadgroup memory; turned: transposed. */
template <class M, class P> static inline M loaded(P p, int stride, bool turned)
{
    M m;
    simdgroup_load(m, p, (ulong)stride, ulong2(0), turned);
    return m;
}
#define loaded_f16(p, stride, turned)                                                              \
    loaded<simdgroup_half8x8>((SPACE_local const stored_half *)(p), stride, turned)
#define loaded_bf16(p, stride, turned)                                                             \
    loaded<simdgroup_bfloat8x8>((SPACE_local const bfloat *)(p), stride, turned)
#define loaded_f32(p, stride, turned) loaded<simdgroup_float8x8>(p, stride, turned)

//@ metal_own
/* Makes a matrix of which each thread holds two adjacent elements of a row. */
template <class M, class E, class P> static inline M own(P p)
{
    M m;
    m.thread_elements()[0] = (E)p[0];
    m.thread_elements()[1] = (E)p[1];
    return m;
}
#define own_f16(p) own<simdgroup_half8x8, stored_half>(p)
#define own_bf16(p) own<simdgroup_bfloat8x8, bfloat>(p)
#define own_f32(p) own<simdgroup_float8x8, float>(p)

//@for m8n8k8_f16:own_f16 m8n8k8_bf16:own_bf16 m8n8k8_f32:own_f32

//@ metal_a_own_T metal_own
#define a_own_T(p, stride) T(p)

//@for m8n8k8_f16:loaded_f16 m8n8k8_bf16:loaded_bf16 m8n8k8_f32:loaded_f32

//@ metal_a_T metal_loaded
#define a_T(p, stride) T(p, stride, false)

//@ metal_a_across_T metal_loaded
#define a_across_T(p, stride) T(p, stride, true)

//@ metal_b_T metal_loaded
#define b_T(p, stride) T(p, stride, true)

//@ metal_b_across_T metal_loaded
#define b_across_T(p, stride) T(p, stride, false)
