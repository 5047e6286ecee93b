/* SPDX-License-Identifier: 0BSD */
/* cuda_wgmma.c - the matrix products of ir/matrix.def that a warpgroup, four warps, issues
 * asynchronously (PTX: wgmma). The unit reads the factors from shared memory itself.
 *
 * A factor's 64-bit descriptor has its begin, the distance to its next panel (leading) and to its
 * next eight rows (stride), each in units of 16 bytes, and the layout: a 128-byte XOR swizzle of
 * 16-byte chunks.
 *
 *      63 62        46          32        30          16        14           0
 *      | 1 |  ...   |   stride   |   ...   |  leading  |   ...   |   begins   |
 *
 * panel_tile<0> is contiguous along k; panel_tile<1> is the transpose. Only sm_90a has the
 * instruction. Elsewhere each warp computes its rows of the same sums by mma.sync, from the same
 * memory by ldmatrix.
 *
 * If defined, TGC_PRODUCTS_MODEL(what, sum, a, b) replaces the instructions and TGC_ROWS_MODEL
 * replaces ldmatrix (cuda_matrix.c): the emulator's models of them.
 */
#include <stdint.h>

//@ cuda_panel_tile
template <int across> struct panel_tile { uint64_t bits; };
template <int across>
static inline panel_tile<across> panel_tile_at(const void *p, uint32_t leading)
{
    const uint64_t begins = __cvta_generic_to_shared(p) >> 4 & 0x3fff;
    return {begins | (uint64_t)(leading >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
            (uint64_t)1 << 62};
}

//@ cuda_panel_rows cuda_panel_tile
/* The tile at p, contiguous along k. */
static inline panel_tile<0> panel_rows(const void *p) { return panel_tile_at<0>(p, 16); }

//@ cuda_panel_columns cuda_panel_tile
/* The tile at p, transposed: its memory rows are slices at one k, and continue
 * in the next panel. */
static inline panel_tile<1> panel_columns(const void *p, uint32_t panel)
{
    return panel_tile_at<1>(p, panel);
}

//@ cuda_panel_words cuda_panel_tile cuda_words
/* Loads four 8 x 16-byte matrices (transposed: 16 bytes x 8) by ldmatrix, from row x (column x) and
 * from byte 0 along k. Lane 8 * m + i passes the address of line i of matrix m; all lanes get its
 * words.
 *
 *      far      matrix 1: next 16 bytes along k      matrix 2: rows x + 8      matrix 3: both
 *      else     matrix 1: rows x + 8      matrix 2: next 16 bytes along k      matrix 3: both
 *
 * A tile is aligned to eight lines of 128 bytes, so a line's number within it is what its chunks'
 * numbers are XORed with. */
template <bool far> static inline words<4> panel_words(panel_tile<0> t, int x)
{
    const int lane = threadIdx.x % 32, next = far ? lane / 16 : lane / 8 % 2,
              byte = (far ? lane / 8 % 2 : lane / 16) * 16;
    const uint32_t at = (((uint32_t)(t.bits << 4 & 0x3fff0) + byte) ^ lane % 8 << 4) +
                        (next * 8 + lane % 8) * 128 + x * 128;
    words<4> w;
#ifdef TGC_ROWS_MODEL
    TGC_ROWS_MODEL(w.x, __cvta_shared_to_generic(at), 4, 0);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[2]), "=r"(w.x[3]) : "r"(at) : "memory");
#endif
    return w;
}
template <bool far> static inline words<4> panel_words(panel_tile<1> t, int x)
{
    const int lane = threadIdx.x % 32, next = x + (far ? lane / 16 : lane / 8 % 2) * 8,
              k = (far ? lane / 8 % 2 : lane / 16) * 8 + lane % 8;
    const uint32_t at = (uint32_t)(t.bits << 4 & 0x3fff0) +
                        next / 64 * (uint32_t)(t.bits >> 12 & 0x3fff0) + k * 128 +
                        (next % 64 * 2 ^ lane % 8 << 4);
    words<4> w;
#ifdef TGC_ROWS_MODEL
    TGC_ROWS_MODEL(w.x, __cvta_shared_to_generic(at), 4, 1);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[2]), "=r"(w.x[3]) : "r"(at) : "memory");
#endif
    return w;
}

//@ cuda_by_warps cuda_panel_words
/* The warpgroup's product by warps: each computes its 16 rows, 16 columns at a time. */
template <int across> static inline words<4> rows_of_warp(panel_tile<across> a)
{
    return panel_words<false>(a, threadIdx.x / 32 % 4 * 16);
}
static inline words<4> rows_of_warp(words<4> a) { return a; }

template <class T, class A, class B>
static inline void by_warps(void product(T *, words<4>, words<2>), T *sum, A a, B b, int columns)
{
    const words<4> f = rows_of_warp(a);
#pragma unroll
    for (int n = 0; n < columns; n += 16) {
        const words<4> g = panel_words<true>(b, n);
        product(sum + n / 2, f, {g.x[0], g.x[1]});
        product(sum + n / 2 + 4, f, {g.x[2], g.x[3]});
    }
}

//@ cuda_publish
/* Orders the thread's stores to shared memory before accesses of the async proxy (wgmma, bulk
 * copies) that follow the next barrier. */
static inline void publish()
{
#ifdef TGC_PRODUCTS_MODEL
    TGC_PRODUCTS_MODEL("publish", 0, 0, 0);
#elif __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

//@ cuda_hold_sums
/* The compiler moves no use of the sums across this. */
static inline void hold(float &x) { asm volatile("" : "+f"(x)::"memory"); }
static inline void hold(int32_t &x) { asm volatile("" : "+r"(x)::"memory"); }
template <class T, int n> static inline void hold(T (&x)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        hold(x[i]);
}
template <class... T> static inline void hold_sums(T &...sum) { (hold(sum), ...); }

//@ cuda_matrix_begin cuda_hold_sums
/* Before the first product that accumulates into these sums. */
template <class... T> static inline void matrix_begin(T &...sum)
{
#ifdef TGC_PRODUCTS_MODEL
    TGC_PRODUCTS_MODEL("begin", 0, 0, 0);
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
    hold_sums(sum...);
    __syncwarp();       /* a thread may have diverged to start bulk copies; wgmma needs the whole
                         * warp converged */
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    __syncwarp();       /* so does mma.sync */
#endif
}

//@ cuda_matrix_commit
static inline void matrix_commit()
{
#ifdef TGC_PRODUCTS_MODEL
    TGC_PRODUCTS_MODEL("commit", 0, 0, 0);
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

//@ cuda_matrix_wait cuda_hold_sums
/* Waits until at most the n newest groups of products are pending. */
template <int n, class... T> static inline void matrix_wait(T &...sum)
{
#ifdef TGC_PRODUCTS_MODEL
    const uint64_t left[2] = {n, 0};
    TGC_PRODUCTS_MODEL("wait", 0, left, 0);
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
    hold_sums(sum...);
#endif
}

//@ cuda_products cuda_panel_tile cuda_by_warps
/* The sums among an instruction's operands, from %0 on; kind: the constraint "+f" or "+r". */
#define SUMS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS_16 SUMS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_32                                                                                    \
    SUMS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_64                                                                                    \
    SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"     \
            ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_128                                                                                   \
    SUMS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"     \
            ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"     \
            ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109"     \
            ", %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122"       \
            ", %123, %124, %125, %126, %127"
#define TAKE_8(kind, s)                                                                            \
    kind((s)[0]), kind((s)[1]), kind((s)[2]), kind((s)[3]), kind((s)[4]), kind((s)[5]),            \
        kind((s)[6]), kind((s)[7])
#define TAKE_16(kind, s) TAKE_8(kind, s), TAKE_8(kind, (s) + 8)
#define TAKE_32(kind, s) TAKE_16(kind, s), TAKE_16(kind, (s) + 16)
#define TAKE_64(kind, s) TAKE_32(kind, s), TAKE_32(kind, (s) + 32)
#define TAKE_128(kind, s) TAKE_64(kind, s), TAKE_64(kind, (s) + 64)
/* The function of a row of ir/matrix.def: the warpgroup's sums, 64 x n, += a * b. The predicate
 * `add` makes the instruction accumulate. */
#ifdef TGC_PRODUCTS_MODEL
#define PRODUCTS(row, head, T, kind, n, text, e, operands, inputs, by)                             \
    head static inline void row(T *sum, panel_tile<A> a, panel_tile<B> b)                          \
    {                                                                                              \
        const uint64_t of_a[2] = {a.bits, A}, of_b[2] = {b.bits, B};                               \
        TGC_PRODUCTS_MODEL(#row, sum, of_a, of_b);                                                 \
    }
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
#define PRODUCTS(row, head, T, kind, n, text, e, operands, inputs, by)                             \
    head static inline void row(T *sum, panel_tile<A> a, panel_tile<B> b)                          \
    {                                                                                              \
        asm volatile("{.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned." text " {" SUMS_##e "}, " operands ";\n}"      \
                     : TAKE_##e(kind, sum)                                                         \
                     : inputs);                                                                    \
    }
#else
#define PRODUCTS(row, head, T, kind, n, text, e, operands, inputs, by)                             \
    head static inline void row(T *sum, panel_tile<A> a, panel_tile<B> b)                          \
    {                                                                                              \
        by_warps(by, sum, a, b, n);                                                                \
    }
#endif
/* The variants with a in registers. The fence orders the writes of those registers before the
 * instruction reads them. */
#ifdef TGC_PRODUCTS_MODEL
#define OWN_PRODUCTS(row, n, text, e, operands, by)                                                \
    template <int B> static inline void row(float *sum, words<4> a, panel_tile<B> b)               \
    {                                                                                              \
        const uint64_t of_b[2] = {b.bits, B};                                                      \
        TGC_PRODUCTS_MODEL(#row, sum, &a, of_b);                                                   \
    }
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
#define OWN_PRODUCTS(row, n, text, e, operands, by)                                                \
    template <int B> static inline void row(float *sum, words<4> a, panel_tile<B> b)               \
    {                                                                                              \
        asm volatile("{.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                                  \
                     "wgmma.fence.sync.aligned;\n"                                                 \
                     "wgmma.mma_async.sync.aligned." text " {" SUMS_##e "}, " operands ";\n}"      \
                     : TAKE_##e("+f", sum)                                                         \
                     : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b.bits), "n"(B)     \
                     : "memory");                                                                  \
    }
#else
#define OWN_PRODUCTS(row, n, text, e, operands, by)                                                \
    template <int B> static inline void row(float *sum, words<4> a, panel_tile<B> b)               \
    {                                                                                              \
        by_warps(by, sum, a, b, n);                                                                \
    }
#endif
/* 16-bit factors may each be contiguous along k or transposed; others must be
 * contiguous along k. */
#define HALVES template <int A, int B>
#define ALONG template <int A = 0, int B = 0>
#define HALF_TILES "l"(a.bits), "l"(b.bits), "n"(A), "n"(B)
#define TILES "l"(a.bits), "l"(b.bits)

//@ cuda_m64n16k16_f16 cuda_products cuda_m16n8k16_f16
PRODUCTS(m64n16k16_f16, HALVES, float, "+f", 16, "m64n16k16.f32.f16.f16", 8,
         "%8, %9, add, 1, 1, %10, %11", HALF_TILES, m16n8k16_f16)

//@ cuda_m64n16k16_bf16 cuda_products cuda_m16n8k16_bf16
PRODUCTS(m64n16k16_bf16, HALVES, float, "+f", 16, "m64n16k16.f32.bf16.bf16", 8,
         "%8, %9, add, 1, 1, %10, %11", HALF_TILES, m16n8k16_bf16)

//@ cuda_m64n16k8_tf32 cuda_products cuda_m16n8k8_tf32
PRODUCTS(m64n16k8_tf32, ALONG, float, "+f", 16, "m64n16k8.f32.tf32.tf32", 8, "%8, %9, add, 1, 1",
         TILES, m16n8k8_tf32)

//@ cuda_m64n16k32_i8 cuda_products cuda_m16n8k32_i8
PRODUCTS(m64n16k32_i8, ALONG, int32_t, "+r", 16, "m64n16k32.s32.s8.s8", 8, "%8, %9, add", TILES,
         m16n8k32_i8)

//@ cuda_m64n16k32_u8i8 cuda_products cuda_m16n8k32_u8i8
PRODUCTS(m64n16k32_u8i8, ALONG, int32_t, "+r", 16, "m64n16k32.s32.u8.s8", 8, "%8, %9, add", TILES,
         m16n8k32_u8i8)

//@ cuda_m64n16k32_u8 cuda_products cuda_m16n8k32_u8
PRODUCTS(m64n16k32_u8, ALONG, int32_t, "+r", 16, "m64n16k32.s32.u8.u8", 8, "%8, %9, add", TILES,
         m16n8k32_u8)

//@ cuda_m64n16k32_e4m3 cuda_products cuda_m16n8k32_e4m3
PRODUCTS(m64n16k32_e4m3, ALONG, float, "+f", 16, "m64n16k32.f32.e4m3.e4m3", 8, "%8, %9, add, 1, 1",
         TILES, m16n8k32_e4m3)

//@ cuda_m64n16k32_e5m2 cuda_products cuda_m16n8k32_e5m2
PRODUCTS(m64n16k32_e5m2, ALONG, float, "+f", 16, "m64n16k32.f32.e5m2.e5m2", 8, "%8, %9, add, 1, 1",
         TILES, m16n8k32_e5m2)

//@ cuda_m64n64k16_f16 cuda_products cuda_m16n8k16_f16
PRODUCTS(m64n64k16_f16, HALVES, float, "+f", 64, "m64n64k16.f32.f16.f16", 32,
         "%32, %33, add, 1, 1, %34, %35", HALF_TILES, m16n8k16_f16)

//@ cuda_m64n64k16_bf16 cuda_products cuda_m16n8k16_bf16
PRODUCTS(m64n64k16_bf16, HALVES, float, "+f", 64, "m64n64k16.f32.bf16.bf16", 32,
         "%32, %33, add, 1, 1, %34, %35", HALF_TILES, m16n8k16_bf16)

//@ cuda_m64n64k8_tf32 cuda_products cuda_m16n8k8_tf32
PRODUCTS(m64n64k8_tf32, ALONG, float, "+f", 64, "m64n64k8.f32.tf32.tf32", 32, "%32, %33, add, 1, 1",
         TILES, m16n8k8_tf32)

//@ cuda_m64n64k32_i8 cuda_products cuda_m16n8k32_i8
PRODUCTS(m64n64k32_i8, ALONG, int32_t, "+r", 64, "m64n64k32.s32.s8.s8", 32, "%32, %33, add", TILES,
         m16n8k32_i8)

//@ cuda_m64n64k32_u8i8 cuda_products cuda_m16n8k32_u8i8
PRODUCTS(m64n64k32_u8i8, ALONG, int32_t, "+r", 64, "m64n64k32.s32.u8.s8", 32, "%32, %33, add",
         TILES, m16n8k32_u8i8)

//@ cuda_m64n64k32_u8 cuda_products cuda_m16n8k32_u8
PRODUCTS(m64n64k32_u8, ALONG, int32_t, "+r", 64, "m64n64k32.s32.u8.u8", 32, "%32, %33, add", TILES,
         m16n8k32_u8)

//@ cuda_m64n64k32_e4m3 cuda_products cuda_m16n8k32_e4m3
PRODUCTS(m64n64k32_e4m3, ALONG, float, "+f", 64, "m64n64k32.f32.e4m3.e4m3", 32,
         "%32, %33, add, 1, 1", TILES, m16n8k32_e4m3)

//@ cuda_m64n64k32_e5m2 cuda_products cuda_m16n8k32_e5m2
PRODUCTS(m64n64k32_e5m2, ALONG, float, "+f", 64, "m64n64k32.f32.e5m2.e5m2", 32,
         "%32, %33, add, 1, 1", TILES, m16n8k32_e5m2)

//@ cuda_m64n128k16_f16 cuda_products cuda_m16n8k16_f16
PRODUCTS(m64n128k16_f16, HALVES, float, "+f", 128, "m64n128k16.f32.f16.f16", 64,
         "%64, %65, add, 1, 1, %66, %67", HALF_TILES, m16n8k16_f16)

//@ cuda_m64n128k16_bf16 cuda_products cuda_m16n8k16_bf16
PRODUCTS(m64n128k16_bf16, HALVES, float, "+f", 128, "m64n128k16.f32.bf16.bf16", 64,
         "%64, %65, add, 1, 1, %66, %67", HALF_TILES, m16n8k16_bf16)

//@ cuda_m64n128k8_tf32 cuda_products cuda_m16n8k8_tf32
PRODUCTS(m64n128k8_tf32, ALONG, float, "+f", 128, "m64n128k8.f32.tf32.tf32", 64,
         "%64, %65, add, 1, 1", TILES, m16n8k8_tf32)

//@ cuda_m64n128k32_i8 cuda_products cuda_m16n8k32_i8
PRODUCTS(m64n128k32_i8, ALONG, int32_t, "+r", 128, "m64n128k32.s32.s8.s8", 64, "%64, %65, add",
         TILES, m16n8k32_i8)

//@ cuda_m64n128k32_u8i8 cuda_products cuda_m16n8k32_u8i8
PRODUCTS(m64n128k32_u8i8, ALONG, int32_t, "+r", 128, "m64n128k32.s32.u8.s8", 64, "%64, %65, add",
         TILES, m16n8k32_u8i8)

//@ cuda_m64n128k32_u8 cuda_products cuda_m16n8k32_u8
PRODUCTS(m64n128k32_u8, ALONG, int32_t, "+r", 128, "m64n128k32.s32.u8.u8", 64, "%64, %65, add",
         TILES, m16n8k32_u8)

//@ cuda_m64n128k32_e4m3 cuda_products cuda_m16n8k32_e4m3
PRODUCTS(m64n128k32_e4m3, ALONG, float, "+f", 128, "m64n128k32.f32.e4m3.e4m3", 64,
         "%64, %65, add, 1, 1", TILES, m16n8k32_e4m3)

//@ cuda_m64n128k32_e5m2 cuda_products cuda_m16n8k32_e5m2
PRODUCTS(m64n128k32_e5m2, ALONG, float, "+f", 128, "m64n128k32.f32.e5m2.e5m2", 64,
         "%64, %65, add, 1, 1", TILES, m16n8k32_e5m2)

//@ cuda_m64n256k16_f16 cuda_products cuda_m16n8k16_f16
PRODUCTS(m64n256k16_f16, HALVES, float, "+f", 256, "m64n256k16.f32.f16.f16", 128,
         "%128, %129, add, 1, 1, %130, %131", HALF_TILES, m16n8k16_f16)

//@ cuda_m64n256k16_bf16 cuda_products cuda_m16n8k16_bf16
PRODUCTS(m64n256k16_bf16, HALVES, float, "+f", 256, "m64n256k16.f32.bf16.bf16", 128,
         "%128, %129, add, 1, 1, %130, %131", HALF_TILES, m16n8k16_bf16)

//@ cuda_m64n256k8_tf32 cuda_products cuda_m16n8k8_tf32
PRODUCTS(m64n256k8_tf32, ALONG, float, "+f", 256, "m64n256k8.f32.tf32.tf32", 128,
         "%128, %129, add, 1, 1", TILES, m16n8k8_tf32)

//@ cuda_m64n256k32_i8 cuda_products cuda_m16n8k32_i8
PRODUCTS(m64n256k32_i8, ALONG, int32_t, "+r", 256, "m64n256k32.s32.s8.s8", 128, "%128, %129, add",
         TILES, m16n8k32_i8)

//@ cuda_m64n256k32_u8i8 cuda_products cuda_m16n8k32_u8i8
PRODUCTS(m64n256k32_u8i8, ALONG, int32_t, "+r", 256, "m64n256k32.s32.u8.s8", 128, "%128, %129, add",
         TILES, m16n8k32_u8i8)

//@ cuda_m64n256k32_u8 cuda_products cuda_m16n8k32_u8
PRODUCTS(m64n256k32_u8, ALONG, int32_t, "+r", 256, "m64n256k32.s32.u8.u8", 128, "%128, %129, add",
         TILES, m16n8k32_u8)

//@ cuda_m64n256k32_e4m3 cuda_products cuda_m16n8k32_e4m3
PRODUCTS(m64n256k32_e4m3, ALONG, float, "+f", 256, "m64n256k32.f32.e4m3.e4m3", 128,
         "%128, %129, add, 1, 1", TILES, m16n8k32_e4m3)

//@ cuda_m64n256k32_e5m2 cuda_products cuda_m16n8k32_e5m2
PRODUCTS(m64n256k32_e5m2, ALONG, float, "+f", 256, "m64n256k32.f32.e5m2.e5m2", 128,
         "%128, %129, add, 1, 1", TILES, m16n8k32_e5m2)

//@ cuda_m64n64k16_f16_own cuda_products cuda_m16n8k16_f16
OWN_PRODUCTS(m64n64k16_f16_own, 64, "m64n64k16.f32.f16.f16", 32,
             "{%32, %33, %34, %35}, %36, add, 1, 1, %37", m16n8k16_f16)

//@ cuda_m64n64k16_bf16_own cuda_products cuda_m16n8k16_bf16
OWN_PRODUCTS(m64n64k16_bf16_own, 64, "m64n64k16.f32.bf16.bf16", 32,
             "{%32, %33, %34, %35}, %36, add, 1, 1, %37", m16n8k16_bf16)

//@ cuda_m64n128k16_f16_own cuda_products cuda_m16n8k16_f16
OWN_PRODUCTS(m64n128k16_f16_own, 128, "m64n128k16.f32.f16.f16", 64,
             "{%64, %65, %66, %67}, %68, add, 1, 1, %69", m16n8k16_f16)

//@ cuda_m64n128k16_bf16_own cuda_products cuda_m16n8k16_bf16
OWN_PRODUCTS(m64n128k16_bf16_own, 128, "m64n128k16.f32.bf16.bf16", 64,
             "{%64, %65, %66, %67}, %68, add, 1, 1, %69", m16n8k16_bf16)

//@ cuda_m64n256k16_f16_own cuda_products cuda_m16n8k16_f16
OWN_PRODUCTS(m64n256k16_f16_own, 256, "m64n256k16.f32.f16.f16", 128,
             "{%128, %129, %130, %131}, %132, add, 1, 1, %133", m16n8k16_f16)

//@ cuda_m64n256k16_bf16_own cuda_products cuda_m16n8k16_bf16
OWN_PRODUCTS(m64n256k16_bf16_own, 256, "m64n256k16.f32.bf16.bf16", 128,
             "{%128, %129, %130, %131}, %132, add, 1, 1, %133", m16n8k16_bf16)

//@for m64n64k16_f16_own: m64n128k16_f16_own: m64n256k16_f16_own:

//@ cuda_a_own_T cuda_a_own_m16n8k16_f16
#define a_own_T(p, stride) a_own_m16n8k16_f16(p, stride)

//@for m64n64k16_bf16_own: m64n128k16_bf16_own: m64n256k16_bf16_own:

//@ cuda_a_own_T cuda_a_own_m16n8k16_bf16
#define a_own_T(p, stride) a_own_m16n8k16_bf16(p, stride)
