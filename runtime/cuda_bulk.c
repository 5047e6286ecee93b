/* SPDX-License-Identifier: 0BSD */
/* cuda_bulk.c - the Tensor Memory Accelerator (sm_90 on), as PTX: bulk copies of boxes between a
 * tensor and shared memory, and the mbarriers that signal their arrival. The host encodes a tensor
 * map for each tensor.
 *
 * TGC_BULK_MODEL(what, ...), if defined, replaces the instruction: the emulator's model of it.
 */
#include <stdint.h>

//@ cuda_tensor_map
struct __align__(64) tensor_map { uint64_t word[16]; };

//@ cuda_shared_address
/* A generic pointer to shared memory as a 32-bit shared address. */
static inline uint32_t shared_address(const void *p)
{
    uint32_t at;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(at) : "l"(p));
    return at;
}

//@ cuda_mbar_init cuda_shared_address
/* Initializes n mbarriers, whose phases complete after `count` arrivals. The block's first thread
 * does it; other threads and the copy engine may use them after a __syncthreads(). */
static inline void mbar_init(uint64_t *bar, int n, unsigned count)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(init, bar, n, count);
#else
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < n; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     ::"r"(shared_address(bar + i)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster; "
                 "fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

//@ cuda_cluster_barrier
/* A barrier of all threads of the cluster. It is relaxed: it orders no earlier stores or arrivals.
 * mbar_init()'s fence makes initialized mbarriers visible. */
static inline void cluster_barrier()
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(meet);
#else
    asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
#endif
}

//@ cuda_role_barrier
/* A barrier of the block's first n threads, which orders their shared memory accesses. It is
 * hardware barrier 1; __syncthreads() is barrier 0. */
template <int n> static inline void role_barrier()
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(role, n);
#else
    asm volatile("barrier.sync 1, %0;" ::"n"(n) : "memory");
#endif
}

//@ cuda_give_registers
/* Lowers the registers of each thread of a warpgroup to n. Other warpgroups of the block may take
 * what is released. */
template <int n> static inline void give_registers()
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(registers, n, false);
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
#endif
}

//@ cuda_take_registers
/* Raises the registers of each thread of a warpgroup to n, once that many have been released. */
template <int n> static inline void take_registers()
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(registers, n, true);
#elif defined __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
#endif
}

//@ cuda_mbar_arrive cuda_shared_address
/* Arrives, and adds nbytes to the bytes that the current phase expects. */
static inline void mbar_arrive(uint64_t *bar, unsigned nbytes)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(arrive, bar, nbytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(bar)), "r"(nbytes) : "memory");
#endif
}

//@ cuda_mbar_release cuda_shared_address
/* Once all threads of the warp are done, one of them arrives at this mbarrier in each block of the
 * cluster. The release has block scope even for remote blocks: threads have only read, and a
 * release at cluster scope would wait for device memory in each stage. */
template <int blocks> static inline void mbar_release(uint64_t *bar)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(release, bar, blocks);
#else
    const unsigned lane = threadIdx.x % 32;
    __syncwarp();
    if (blocks == 1 && lane == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar))
                     : "memory");
    if (blocks > 1 && lane < blocks)
        asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; "
                     "mbarrier.arrive.shared::cluster.b64 _, [a]; }"
                     ::"r"(shared_address(bar)), "r"(lane) : "memory");
#endif
}

//@ cuda_mbar_wait cuda_shared_address
/* Waits until the phase of this parity has completed. */
static inline void mbar_wait(uint64_t *bar, unsigned parity)
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(wait, bar, parity);
#else
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
#endif
}

//@ cuda_bulk_copy cuda_shared_address cuda_tensor_map
/* Starts a copy of the map's box at these coordinates, innermost first. The mbarrier
 * expects its bytes. */
#ifdef TGC_BULK_MODEL
template <class... T>
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, T... at)
{
    const int x[] = {(int)at...};
    TGC_BULK_MODEL(copy, to, map, bar, (int)sizeof...(at), x);
}
#else
#define BULK_COPY(rank, at) \
    "cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes " \
    "[%0], [%1, {" at "}], [%2];" \
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
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a, int b, int c,
                             int d)
{
    asm volatile(BULK_COPY("4d", "%3, %4, %5, %6"), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
static inline void bulk_copy(void *to, const tensor_map *map, uint64_t *bar, int a, int b, int c,
                             int d, int e)
{
    asm volatile(BULK_COPY("5d", "%3, %4, %5, %6, %7"), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
                 : "memory");
}
#undef BULK_COPY
#endif

//@ cuda_bulk_copy_part cuda_bulk_copy
/* Starts a multicast copy of this block's part of a box: `rows` rows along `axis`, `nbytes` bytes.
 * It goes to the same place in all blocks of the cluster, whose mbarriers expect its bytes. */
#ifdef TGC_BULK_MODEL
template <int blocks, int axis, int rows, int nbytes, class... T>
static inline void bulk_copy_part(void *to, const tensor_map *map, uint64_t *bar, T... at)
{
    const int x[] = {(int)at...};
    TGC_BULK_MODEL(copy_part, to, map, bar, (int)sizeof...(at), x, blocks, axis, rows, nbytes);
}
#else
#define BULK_COPY_PART(rank, at) \
    "cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes" \
    ".multicast::cluster [%0], [%1, {" at "}], [%2], %3;" \
    ::"r"(shared_address(to)), "l"(map), "r"(shared_address(bar)), "h"(all)
template <int blocks, int axis, int rows, int nbytes, class... T>
static inline void bulk_copy_part(void *first, const tensor_map *map, uint64_t *bar, T... at)
{
    uint32_t block;
    int x[5] = {at...};
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    const uint16_t all = (1 << blocks) - 1;
    void *to = (char *)first + block * nbytes;
    x[axis] += block * rows;
    if (sizeof...(at) == 2)
        asm volatile(BULK_COPY_PART("2d", "%4, %5"), "r"(x[0]), "r"(x[1]) : "memory");
    if (sizeof...(at) == 3)
        asm volatile(BULK_COPY_PART("3d", "%4, %5, %6"), "r"(x[0]), "r"(x[1]), "r"(x[2])
                     : "memory");
    if (sizeof...(at) == 4)
        asm volatile(BULK_COPY_PART("4d", "%4, %5, %6, %7"), "r"(x[0]), "r"(x[1]), "r"(x[2]),
                     "r"(x[3])
                     : "memory");
    if (sizeof...(at) == 5)
        asm volatile(BULK_COPY_PART("5d", "%4, %5, %6, %7, %8"), "r"(x[0]), "r"(x[1]), "r"(x[2]),
                     "r"(x[3]), "r"(x[4])
                     : "memory");
}
#undef BULK_COPY_PART
#endif

//@ cuda_bulk_wait
/* Waits until the thread's bulk stores have read shared memory; all: until they are complete. */
template <bool all> static inline void bulk_wait()
{
#ifdef TGC_BULK_MODEL
    TGC_BULK_MODEL(left, all);
#else
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (all)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    else
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

//@ cuda_bulk_store cuda_shared_address cuda_tensor_map
/* Starts a store of the map's box at these coordinates, innermost first. Its data must have been
 * published with publish(). */
#ifdef TGC_BULK_MODEL
template <class... T>
static inline void bulk_store(const tensor_map *map, const void *from, T... at)
{
    const int x[] = {(int)at...};
    TGC_BULK_MODEL(store, map, from, (int)sizeof...(at), x);
}
#else
#define BULK_STORE(rank, at) \
    "cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group [%0, {" at "}], [%1];" \
    ::"l"(map), "r"(shared_address(from))
static inline void bulk_store(const tensor_map *map, const void *from, int a)
{
    asm volatile(BULK_STORE("1d", "%2"), "r"(a) : "memory");
}
static inline void bulk_store(const tensor_map *map, const void *from, int a, int b)
{
    asm volatile(BULK_STORE("2d", "%2, %3"), "r"(a), "r"(b) : "memory");
}
static inline void bulk_store(const tensor_map *map, const void *from, int a, int b, int c)
{
    asm volatile(BULK_STORE("3d", "%2, %3, %4"), "r"(a), "r"(b), "r"(c) : "memory");
}
static inline void bulk_store(const tensor_map *map, const void *from, int a, int b, int c, int d)
{
    asm volatile(BULK_STORE("4d", "%2, %3, %4, %5"), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
static inline void bulk_store(const tensor_map *map, const void *from, int a, int b, int c, int d,
                              int e)
{
    asm volatile(BULK_STORE("5d", "%2, %3, %4, %5, %6"), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
                 : "memory");
}
#undef BULK_STORE
#endif
