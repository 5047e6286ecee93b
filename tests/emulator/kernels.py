"""Kernels and hosts for the emulator, written by hand: right ones, and the same with one mistake, by which each of its checks is seen
to fire. Each mistake is a kernel's text, how it is launched, and words of the report."""

HEAD = "kernel void k(global float *y, global const float *x, int n)\n{\n    const int i = get_global_id(0), l = get_local_id(0);\n"

SUM = HEAD + """    local float part[64];
    part[l] = x[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 32; step > 0; step /= 2) {
        if (l < step)
            part[l] += part[l + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (l == 0)
        y[get_group_id(0)] = part[0];
}
"""
SHUFFLED = HEAD + """    float sum = x[i];
    for (uint step = 16; step > 0; step /= 2)
        sum += sub_group_shuffle_xor(sum, step);
    if (l % 32 == 0)
        y[i / 32] = sum;
}
"""
REVERSED = HEAD + """    y[i] = x[i];
    barrier(CLK_GLOBAL_MEM_FENCE);
    const float other = y[i ^ 1];
    barrier(CLK_GLOBAL_MEM_FENCE);
    y[i] = other;
}
"""
COPY = HEAD + """    y[i] = x[i];
}
"""
VECTORS = HEAD + """    vstore4(vload4(i, x), i, y);
}
"""
WIDE = HEAD + """    if (i < 8)
        *(global float8 *)(y + 8 * i) = *(global const float8 *)(x + 8 * i);
}
"""
COUNT = HEAD + """    atomic_inc((volatile global int *)y);
}
"""
IN_TURNS = HEAD + """    local float shared[64];
    shared[l] = x[i];
    sub_group_barrier(CLK_LOCAL_MEM_FENCE);
    y[i] = shared[l ^ 1];
}
"""
# when each block came to its two halves, by a count of all
TURNS = HEAD + """    volatile global int *const turn = (volatile global int *)y, *const own = turn + 1 + 2 * get_group_id(0);
    if (l == 0)
        own[0] = atomic_inc(turn);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0)
        own[1] = atomic_inc(turn);
}
"""
# As emitted: several tensors are in one buffer, and the comment has their sizes.
TENSORS = """/* half of the elements
 *   y   f32[n,16]  <- result
 *   x   f32[n,16]
 */
__attribute__((reqd_work_group_size(16, 1, 1)))
kernel void k(global uchar *y_in, ulong y_at, global const uchar *x_in, ulong x_at, long n_is)
{
    global float *y = (global float *)(y_in + y_at);
    global const float *x = (global const float *)(x_in + x_at);
    const int i = get_global_id(0);
    y[i] = x[i];
}
"""
# Each line gives one number.
BUILTINS = [
    ("convert_int_rte(2.5f)", 2), ("convert_uchar_sat(300.0f)", 255), ("convert_char_sat_rte(-200.0f)", -128), ("convert_int(-1.9f)", -1),
    ("convert_short4((float4)(1.5f, -2.5f, 3, 4)).s1", -2), ("convert_float8((int8)(7)).s7", 7), ("convert_uchar4_sat((int4)(-5, 5, 500, 0)).s2", 255),
    ("select((float4)(1, 2, 3, 4), (float4)(5, 6, 7, 8), (int4)(0, -1, 0, 1)).s1", 6), ("select(1.0f, 2.0f, 3)", 2),
    ("clamp((float4)(9, -9, 1, 2), -1.0f, 3.0f).s0", 3), ("max((int8)(4), 6).s3", 6), ("fmin(NAN, 1.0f)", 1), ("min((long2)(3, 4), (long2)(5, 1)).s1", 1),
    ("mul_hi(0x40000000, 8)", 2), ("rotate(0x80000001u, 1u)", 3), ("popcount(7)", 3), ("clz(1)", 31), ("clz((uchar)1)", 7), ("abs(-3)", 3),
    ("fma(2.0f, 3.0f, 4.0f)", 10), ("mad((float2)(2), (float2)(3), (float2)(1)).s1", 7), ("rsqrt(0.25f)", 2), ("rint(2.5f)", 2), ("round(2.5f)", 3),
    ("ldexp(3.0f, 2)", 12), ("dot((float4)(1, 2, 3, 4), (float4)(1))", 10), ("any((int4)(0, 0, -1, 0))", 1), ("all((int4)(-1, 0, -1, -1))", 0),
    ("isnan((float4)(NAN, 1, 2, 3)).s0", -1), ("isnan(NAN)", 1), ("as_int(1.0f) == 0x3f800000", 1), ("native_exp(0.0f)", 1), ("copysign(2.0f, -0.0f)", -2),
    ("get_global_size(0) + get_local_size(1) + get_group_id(5) + get_work_dim()", 3), ("vload_half(1, h)", 1.5), ("vload_half4(0, h).s3", 65504),
    ("sub_group_reduce_add(3)", 3), ("get_sub_group_size()", 1), ("mix(2.0f, 4.0f, 0.5f)", 3), ("sign((float4)(-7)).s2", -1),
]
# 128 floats each, blocks of 64: kernels without a mistake, and what y is then, of x = 0, 1, ... (None: the first element is so many)
RIGHT = {
    "a sum in local memory": (SUM, lambda x: [*x.reshape(2, 64).sum(1)]),
    "a sum by shuffles": (SHUFFLED, lambda x: [*x.reshape(4, 32).sum(1)]),
    "an exchange in global memory": (REVERSED, lambda x: [*x.reshape(64, 2)[:, ::-1].ravel()]),
    "a copy": (COPY, lambda x: [*x]),
    "a copy of vectors": (WIDE, lambda x: [*x[:64]]),
    "an exchange in sub-groups": (IN_TURNS, lambda x: [*x.reshape(64, 2)[:, ::-1].ravel()]),
}
LOCAL_BARRIER = "    barrier(CLK_LOCAL_MEM_FENCE);\n"
# name, text, what it becomes, words of the report
WRONG = [
    ("a barrier removed", SUM, (LOCAL_BARRIER, ""), "race: .* of shared memory 'part', which .* without a barrier between, at line [58]: "),
    ("the barrier of a loop removed", SUM, ("    " + LOCAL_BARRIER, ""), "race: .*shared memory 'part'"),
    ("a fence of the other memory", REVERSED, ("GLOBAL", "LOCAL"), "race: .* memory 'y', which .* without a barrier between, at line 6: "),
    ("a sub-group's barrier removed", IN_TURNS, ("    sub_group_barrier(CLK_LOCAL_MEM_FENCE);\n", ""), "which nobody has written|race"),
    ("a sub-group's barrier for more than a sub-group", IN_TURNS, ("l ^ 1", "l ^ 32"), "race|which nobody has written"),
    ("two blocks write one element", COPY, ("y[i]", "y[l]"), "race: work-item 0 of block 1 writes .*'y', which work-item 0 of block 0 writes in the same launch, at line 4: y"),
    ("one block reads what another writes", COPY, ("x[i]", "y[0] + x[i]"), "race|which nobody has written"),
    ("atomic and plain access", COUNT, ("}", "    y[0] = 1;\n}"), "race: .*memory 'y'"),
    ("an index off by one", COPY, ("x[i]", "x[i + 1]"), "out of bounds: work-item 63 of block 1 reads 4 bytes, 0 bytes behind the end of memory 'x' .512 bytes., at line 4"),
    ("an index before the first", COPY, ("y[i]", "y[i - 1]"), "out of bounds: work-item 0 of block 0 writes 4 bytes, 4 bytes before memory 'y'"),
    ("a misaligned vector", WIDE, ("x + 8 * i)", "x + 8 * i + 65)"), "misaligned: work-item 0 of block 0 reads 32 bytes at byte 260 of memory 'x'"),
    ("a vector over the end", COPY, ("y[i] = x[i]", "vstore4(0, i, y + 1)"), "out of bounds: work-item 31 of block 0 writes 4 bytes, 0 bytes behind the end of memory 'y'"),
    ("vectors beyond the end", VECTORS, ("", ""), "out of bounds: work-item 32 of block 0 reads 4 bytes, 0 bytes behind the end of memory 'x'"),
    ("an address of nothing", COPY, ("y[i] = x[i]", "y[i] = *(global float *)(ulong)(8 + i)"), "out of bounds: .* none of its arguments'"),
    ("local memory too short", SUM, ("part[64]", "part[63]"), "out of bounds: .*shared memory 'part'"),
    ("a write to what is read only", COPY, ("y[i] = x[i]", "*(global float *)x = 1"), "writes 4 bytes of memory 'x', which it may only read"),
    ("local memory read before it is written", SUM, ("    part[l] = x[i];\n", ""), "reads .* of shared memory 'part', which nobody has written, at line"),
    ("global memory read before it is written", COPY, ("x[i]", "y[i] + x[i]"), "reads .* of memory 'y', which nobody has written"),
    ("a barrier for some", SUM, (LOCAL_BARRIER, "    if (l < 32)\n    " + LOCAL_BARRIER), "divergent barrier: work-item 0 of block 0 waits at line 7: .*; work-item 32 of block 0 waits at line 11: "),
    ("a barrier behind a return", SUM, (LOCAL_BARRIER, "    if (l == 5)\n        return;\n" + LOCAL_BARRIER), "divergent barrier: work-item 0 of block 0 waits at .*; work-item 5 of block 0 has returned"),
    ("barriers as often as an item's number", REVERSED, ("    const float", "    for (int k = 0; k < l; k++)\n        barrier(CLK_LOCAL_MEM_FENCE);\n    const float"), "divergent barrier"),
    ("a shuffle for some", SHUFFLED, ("        sum += ", "        if (l % 4 < 3)\n            sum += "), "divergent operation of a sub-group: work-item 0 of block 0 waits at line 7"),
]
WITHIN = [
    ("right", [], ""),
    ("one too far", [("x[i]", "x[i + 1]")], "out of bounds: work-item 15 of block 3 reads 4 bytes, 0 bytes behind the end of memory 'x_in' .256 bytes."),
    ("one too early", [("y[i]", "y[i - 1]")], "out of bounds: work-item 0 of block 0 writes 4 bytes, 4 bytes before memory 'y_in'"),
    ("a write to what is another tensor", [("y[i]", "y[i + 80]")], "writes 4 bytes of memory 'x_in', which it may only read"),
    ("a function of two tensors' sizes", [("x   f32[n,16]", "x   f32[n,512]\n * the same: other, y f32[n,512], x f32[n,16]"), ("x[i]", "x[i + 1]")],
     "out of bounds: work-item 15 of block 3 reads 4 bytes, 0 bytes behind the end of memory 'x_in' .256 bytes."),
    ("the larger one of two", [("x   f32[n,16]", "x   f32[n,17]\n * the same: other, x f32[n,16]"), ("x[i]", "x[i + 1]")], ""),
]
