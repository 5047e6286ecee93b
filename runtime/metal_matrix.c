/* SPDX-License-Identifier: 0BSD */
/* metal_matrix.c - Metal's instructions of ir/matrix.def: matrices of 8 x 8 that a SIMD group loads from threadgroup memory
 * and multiplies.
 *
 * A tile's rows are `stride` elements apart; NAME_across: they are the other coordinate's. A row of a tile of b is, along k, a
 * column of b. Each thread has two neighbours of a row of the sums.
 */

//@ metal_loaded_half8x8 metal_spaces
static inline simdgroup_half8x8 loaded_half8x8(SPACE_local const uint16_t *p, int stride, bool turned)
{
    simdgroup_half8x8 m;
    simdgroup_load(m, (SPACE_local const stored_half *)p, (ulong)stride, ulong2(0), turned);
    return m;
}

//@ metal_loaded_float8x8 metal_spaces
static inline simdgroup_float8x8 loaded_float8x8(SPACE_local const float *p, int stride, bool turned)
{
    simdgroup_float8x8 m;
    simdgroup_load(m, p, (ulong)stride, ulong2(0), turned);
    return m;
}

//@ metal_m8n8k8_b16_a metal_loaded_half8x8
#define m8n8k8_b16_a(p, stride) loaded_half8x8(p, stride, false)

//@ metal_m8n8k8_b16_a_across metal_loaded_half8x8
#define m8n8k8_b16_a_across(p, stride) loaded_half8x8(p, stride, true)

//@ metal_m8n8k8_b16_b metal_loaded_half8x8
#define m8n8k8_b16_b(p, stride) loaded_half8x8(p, stride, true)

//@ metal_m8n8k8_b16_b_across metal_loaded_half8x8
#define m8n8k8_b16_b_across(p, stride) loaded_half8x8(p, stride, false)

//@ metal_m8n8k8_b32_a metal_loaded_float8x8
#define m8n8k8_b32_a(p, stride) loaded_float8x8(p, stride, false)

//@ metal_m8n8k8_b32_a_across metal_loaded_float8x8
#define m8n8k8_b32_a_across(p, stride) loaded_float8x8(p, stride, true)

//@ metal_m8n8k8_b32_b metal_loaded_float8x8
#define m8n8k8_b32_b(p, stride) loaded_float8x8(p, stride, true)

//@ metal_m8n8k8_b32_b_across metal_loaded_float8x8
#define m8n8k8_b32_b_across(p, stride) loaded_float8x8(p, stride, false)

//@ metal_add_product8x8
/* The SIMD group's sums, of which sum[0] and sum[1] are the thread's, plus a times b. */
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

//@ metal_m8n8k8_f32 metal_add_product8x8
#define m8n8k8_f32(sum, a, b) add_product8x8(sum, a, b)
