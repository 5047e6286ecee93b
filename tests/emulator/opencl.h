/* SPDX-License-Identifier: 0BSD */
/* opencl.h - what clang declares for some versions of OpenCL C alone: functions of sub-groups,
 * which drivers have as extensions of 1.2, under two names.
 */
#define EMULATOR_OVER __attribute__((overloadable))
#define EMULATOR_EXCHANGE(T)                                                                       \
    T EMULATOR_OVER emulator_shuffle(T, uint);                                                     \
    T EMULATOR_OVER emulator_shuffle_xor(T, uint);                                                 \
    T EMULATOR_OVER emulator_shuffle_down(T, uint);                                                \
    T EMULATOR_OVER emulator_shuffle_up(T, uint);                                                  \
    T EMULATOR_OVER emulator_reduce_add(T);                                                        \
    T EMULATOR_OVER emulator_reduce_max(T);                                                        \
    T EMULATOR_OVER emulator_reduce_min(T);
EMULATOR_EXCHANGE(int)
EMULATOR_EXCHANGE(uint)
EMULATOR_EXCHANGE(long)
EMULATOR_EXCHANGE(ulong)
EMULATOR_EXCHANGE(float)
uint emulator_subgroup(uint what);
void emulator_subgroup_barrier(uint flags);

#define sub_group_shuffle emulator_shuffle
#define sub_group_shuffle_xor emulator_shuffle_xor
#define sub_group_shuffle_down emulator_shuffle_down
#define sub_group_shuffle_up emulator_shuffle_up
#define sub_group_broadcast emulator_shuffle
#define intel_sub_group_shuffle emulator_shuffle
#define intel_sub_group_shuffle_xor emulator_shuffle_xor
#define sub_group_reduce_add emulator_reduce_add
#define sub_group_reduce_max emulator_reduce_max
#define sub_group_reduce_min emulator_reduce_min
#define get_sub_group_size() emulator_subgroup(0)
#define get_max_sub_group_size() emulator_subgroup(1)
#define get_sub_group_local_id() emulator_subgroup(2)
#define get_sub_group_id() emulator_subgroup(3)
#define get_num_sub_groups() emulator_subgroup(4)
#define sub_group_barrier emulator_subgroup_barrier
