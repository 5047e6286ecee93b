/* SPDX-License-Identifier: 0BSD */
/* cuda.h - CUDA C's words and built-ins as C++ has them: what a thread asks of its place, and bits
 * of numbers. A static variable of a kernel is the block's.
 */
#include <math.h>
#include <stdint.h>

#include "../half.h"

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __cluster_dims__(...)

extern "C" {
__attribute__((const)) uint64_t emulator_place(uint32_t what, uint32_t d);
__attribute__((convergent, noduplicate)) void emulator_barrier(uint32_t flags);
__attribute__((convergent, noduplicate)) void emulator_give(const void *value, uint32_t nbytes);
void emulator_take(void *value, uint32_t nbytes, uint32_t lane);
uint32_t emulator_subgroup(uint32_t what);
__attribute__((convergent, noduplicate)) void emulator_subgroup_barrier(uint32_t flags);
void emulator_fence(void);
unsigned emulator_count(uint32_t *at, unsigned last);
__attribute__((convergent, noduplicate)) int emulator_any(int value);
__attribute__((convergent, noduplicate)) void emulator_matrix(const char *row, void *sum,
                                                              const void *a, const void *b);
void *emulator_local(uint32_t at);
void emulator_bulk_init(uint64_t *at, int n, unsigned count);
void emulator_bulk_arrive(uint64_t *at, unsigned nbytes);
__attribute__((convergent, noduplicate)) void emulator_bulk_release(uint64_t *at, int blocks);
__attribute__((convergent, noduplicate)) void emulator_bulk_meet(void);
__attribute__((noduplicate)) void emulator_bulk_wait(uint64_t *at, unsigned parity);
__attribute__((convergent, noduplicate)) void emulator_bulk_registers(int n, bool more);
__attribute__((convergent, noduplicate)) void emulator_bulk_role(unsigned n);
void emulator_bulk_store(const void *map, const void *from, int rank, const int *x);
__attribute__((noduplicate)) void emulator_bulk_left(bool all);
void emulator_bulk_copy_part(void *to, const void *map, uint64_t *at, int rank, const int *x,
                             int blocks, int axis, int rows, int nbytes);
void emulator_bulk_copy(void *to, const void *map, uint64_t *at, int rank, const int *x);
}
#define TGC_MATRIX_MODEL emulator_matrix
#define TGC_HALF_MODEL half
extern "C" {
__attribute__((convergent, noduplicate)) void emulator_copy(void *to, const void *from,
                                                            uint32_t nbytes, uint32_t valid);
__attribute__((convergent, noduplicate)) void emulator_rows(uint32_t *words, const void *row,
                                                            uint32_t n, uint32_t across);
void emulator_commit(void);
void emulator_wait(uint32_t n);
}
#define TGC_COPY_MODEL emulator_copy
#define TGC_ROWS_MODEL emulator_rows
#define TGC_COMMIT_MODEL emulator_commit
#define TGC_WAIT_MODEL emulator_wait
#define TGC_PRODUCTS_MODEL emulator_matrix
/* Local memory's addresses have 18 bits. */
#define __cvta_generic_to_shared(p) ((uintptr_t)(p) & 0x3ffff)
#define __cvta_shared_to_generic(at) emulator_local(at)
#define TGC_BULK_MODEL(what, ...) emulator_bulk_##what(__VA_ARGS__)
#define __grid_constant__
#define __align__(n) alignas(n)

/* Of a device that places them, arrays are where the launch's memory has them, which has so many
 * bytes at most; build.c reads their bounds. Else each is by itself. */
#ifdef TGC_PLACED
__attribute__((aligned(1024))) static unsigned char block_memory[TGC_PLACED];
#define BLOCK_ARRAY(type, name, count, at) type *const name = (type *)(block_memory + at)
#else
#define BLOCK_ARRAY(type, name, count, at) __attribute__((aligned(1024))) static type name[count]
#endif

struct emulator_dim {
    unsigned x, y, z;
};
__attribute__((always_inline)) static inline emulator_dim emulator_dims(uint32_t what)
{
    return {(unsigned)emulator_place(what, 0), (unsigned)emulator_place(what, 1),
            (unsigned)emulator_place(what, 2)};
}
/* as builtins.c counts them */
#define threadIdx emulator_dims(2)
#define blockDim emulator_dims(3)
#define blockIdx emulator_dims(4)
#define gridDim emulator_dims(5)
#define __syncthreads() emulator_barrier(3)
#define __syncwarp() emulator_subgroup_barrier(1)
#define __syncthreads_or(value) emulator_any(value)
#define __threadfence() emulator_fence()
#define atomicInc(at, last) emulator_count(at, last)

template <class To, class From>
__attribute__((always_inline)) static inline To emulator_bits(From v)
{
    return __builtin_bit_cast(To, v);
}
#define __float_as_uint(v) emulator_bits<uint32_t, float>(v)
#define __uint_as_float(v) emulator_bits<float, uint32_t>(v)
#define __float_as_int(v) emulator_bits<int32_t, float>(v)
#define __int_as_float(v) emulator_bits<float, int32_t>(v)
#define __double_as_longlong(v) emulator_bits<long long, double>(v)
#define __longlong_as_double(v) emulator_bits<double, long long>(v)

__attribute__((always_inline)) static inline float __shfl_xor_sync(unsigned, float x, int mask)
{
    emulator_give(&x, sizeof x);
    emulator_take(&x, sizeof x, emulator_subgroup(2) ^ (unsigned)mask);
    return x;
}
