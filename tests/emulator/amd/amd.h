/* SPDX-License-Identifier: 0BSD */
/* amd.h - HIP C's words, and AMD's built-ins as C++ has them: what a thread asks of its place, the
 * barrier, what lanes of a wave exchange. A static variable of a kernel is the block's.
 */
#include <math.h>
#include <stdint.h>

#include "../half.h"

#define _Float16 half
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

extern "C" {
__attribute__((const)) uint64_t emulator_place(uint32_t what, uint32_t d);
__attribute__((convergent, noduplicate)) void emulator_barrier(uint32_t flags);
__attribute__((convergent, noduplicate)) void emulator_give(const void *value, uint32_t nbytes);
void emulator_take(void *value, uint32_t nbytes, uint32_t lane);
uint32_t emulator_subgroup(uint32_t what);
__attribute__((convergent, noduplicate)) void emulator_matrix(const char *row, void *sum,
                                                              const void *a, const void *b);
}
#define TGC_MATRIX_MODEL emulator_matrix

/* as builtins.c counts them */
#define __builtin_amdgcn_workitem_id_x() ((unsigned)emulator_place(2, 0))
#define __builtin_amdgcn_workitem_id_y() ((unsigned)emulator_place(2, 1))
#define __builtin_amdgcn_workitem_id_z() ((unsigned)emulator_place(2, 2))
#define __builtin_amdgcn_workgroup_size_x() ((unsigned)emulator_place(3, 0))
#define __builtin_amdgcn_workgroup_id_x() ((unsigned)emulator_place(4, 0))
#define __builtin_amdgcn_workgroup_id_y() ((unsigned)emulator_place(4, 1))
#define __builtin_amdgcn_workgroup_id_z() ((unsigned)emulator_place(4, 2))
#define __builtin_amdgcn_grid_size_x() ((unsigned)(emulator_place(5, 0) * emulator_place(3, 0)))
#define __builtin_amdgcn_s_barrier() emulator_barrier(3)
#define __builtin_amdgcn_fence(order, scope) ((void)0)

/* The value of another lane, by its number in the wave. */
__attribute__((always_inline)) static inline int emulator_lane(int v, uint32_t lane)
{
    emulator_give(&v, sizeof v);
    emulator_take(&v, sizeof v, lane);
    return v;
}

/* The patterns' meaning is the instruction set's: of DPP quad_perm and row_ror, of ds_swizzle the
 * masks of 32 lanes. */
__attribute__((always_inline)) static inline int
__builtin_amdgcn_update_dpp(int, int v, int control, int, int, bool)
{
    const uint32_t lane = emulator_subgroup(2);
    if (control < 0x100)
        return emulator_lane(v, (lane & ~3u) | ((uint32_t)control >> 2 * (lane & 3) & 3));
    if (control < 0x121 || control > 0x12f)
        return emulator_lane(v, UINT32_MAX); /* of a lane that there is not */
    return emulator_lane(v, (lane & ~15u) | ((lane - ((uint32_t)control & 15)) & 15));
}
__attribute__((always_inline)) static inline int __builtin_amdgcn_ds_swizzle(int v, int pattern)
{
    const uint32_t lane = emulator_subgroup(2), p = (uint32_t)pattern;
    return emulator_lane(v, (lane & ~31u) | (((lane & p & 31) | (p >> 5 & 31)) ^ (p >> 10 & 31)));
}
__attribute__((always_inline)) static inline int __builtin_amdgcn_ds_bpermute(int at, int v)
{
    return emulator_lane(v, (uint32_t)at >> 2 & (emulator_subgroup(1) - 1));
}
