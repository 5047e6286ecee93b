/* SPDX-License-Identifier: 0BSD */
/* cuda_bulk.c - boxes of tensors that an engine copies to shared memory, and barriers in memory that tell of
 * them, as PTX (from sm_90 on). What a kernel knows of a tensor is a map that the host has made.
 *
 * TGC_BULK_MODEL(what, ...), if it is defined, does what the instruction does.
 */
#include <stdint.h>

//@ cuda_tensor_map
struct __align__(64) tensor_map { uint64_t word[16]; };

//@ cuda_shared_address
/* An address of shared memory as its instructions take it. */
static inline uint32_t shared_address(const void *p)
{
    uint32_t at;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(at) : "l"(p));
    return at;
}

//@ cuda_mbar_init cuda_shared_address
/* Begins n barriers, whose phases end when `count` threads have arrived; the block's first thread does it, and others
 * see it, as the copying engine does, behind __syncthreads(). */
static inline void mbar_init(uint64_t *bar, int n, unsigned count)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(init, bar, n, count);
#else
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < n; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar + i)), "r"(count) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

//@ cuda_mbar_arrive cuda_shared_address
/* Arrives; so many bytes more are expected in this phase. */
static inline void mbar_arrive(uint64_t *bar, unsigned nbytes)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(arrive, bar, nbytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(nbytes)
                 : "memory");
#endif
}

//@ cuda_mbar_release cuda_shared_address
/* Behind what all threads of a warp have done one of them arrives. */
static inline void mbar_release(uint64_t *bar)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(release, bar);
#else
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
#endif
}

//@ cuda_mbar_wait cuda_shared_address
/* Waits until the phase of this parity has ended. */
static inline void mbar_wait(uint64_t *bar, unsigned parity)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(wait, bar, parity);
#else
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
#endif
}

//@ cuda_bulk_copy cuda_shared_address cuda_tensor_map
/* Starts a copy of the map's box at these coordinates, the innermost one first, whose bytes the barrier expects. */
#ifdef TGC_BULK_MODEL
template <class... T> static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, T... at)
{
    const int x[] = {(int)at...};
    TGC_BULK_MODEL(copy, to, map, bar, (int)sizeof...(at), x);
}
#else
#define BULK_COPY(rank, at) \
    "cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" at "}], [%2];" \
        ::"r"(shared_address(to)), "l"(map), "r"(shared_address(bar))
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a)
{
    asm volatile(BULK_COPY("1d", "%3"), "r"(a) : "memory");
}
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a, int b)
{
    asm volatile(BULK_COPY("2d", "%3, %4"), "r"(a), "r"(b) : "memory");
}
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a, int b, int c)
{
    asm volatile(BULK_COPY("3d", "%3, %4, %5"), "r"(a), "r"(b), "r"(c) : "memory");
}
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a, int b, int c, int d)
{
    asm volatile(BULK_COPY("4d", "%3, %4, %5, %6"), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a, int b, int c, int d, int e)
{
    asm volatile(BULK_COPY("5d", "%3, %4, %5, %6, %7"), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e) : "memory");
}
#undef BULK_COPY
#endif
