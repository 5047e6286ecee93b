/* gpu_language.c - NVIDIA's and AMD's devices in LLVM: the intrinsics of gpu.thread.x() and its
 * like (emit.h), and what makes a function a kernel.
 *
 * A shuffle's mask is part of the instruction, so there is a function for each. AMD: DPP exchanges
 * lanes within a row of 16 by a pattern (177: lanes in pairs, 78: pairs within four, 296: the row
 * rotated by 8). ds_swizzle exchanges lanes within 32 (mask << 10 | 31), ds_bpermute within the
 * wave.
 */
#include "backends/llvm/emit.h"

#include <string.h>

#define NUMBER(name, intrinsic)                                                                    \
    "declare i32 @" intrinsic "()\n"                                                               \
    "define linkonce_odr hidden i32 @gpu." name "() alwaysinline nounwind {\n"                     \
    "  %r = call i32 @" intrinsic "()\n"                                                           \
    "  ret i32 %r\n}\n"

#define NVPTX_SHUFFLE(mask)                                                                        \
    "define linkonce_odr hidden float @gpu.shuffle." #mask                                         \
    "(float %x) alwaysinline convergent nounwind {\n"                                              \
    "  %r = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %x, i32 " #mask ", i32 31)\n"   \
    "  ret float %r\n}\n"

/* of: shape, layout and types as PTX names them; sum, letter: LLVM's type of a sum, and its
 * register's constraint */
#define NVPTX_MATRIX(row, of, sum, letter)                                                         \
    "define linkonce_odr hidden { " sum ", " sum ", " sum ", " sum " } @gpu." row                  \
    "(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, " sum " %s0, " sum " %s1, " sum        \
    " %s2, " sum " %s3) alwaysinline convergent nounwind {\n"                                      \
    "  %r = call { " sum ", " sum ", " sum ", " sum " } asm \"mma.sync.aligned." of                \
    " {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$0, $1, $2, $3};\", \"=" letter ",=" letter   \
    ",=" letter ",=" letter ",r,r,r,r,r,r,0,1,2,3\"(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, " \
    "i32 %b1, " sum " %s0, " sum " %s1, " sum " %s2, " sum " %s3) convergent nounwind\n"           \
    "  ret { " sum ", " sum ", " sum ", " sum " } %r\n}\n"

/* Addresses are generic ones, as integers. level: ca or cg, the cache that it goes through. n: the
 * bytes that are copied, the rest are zeros. */
#define NVPTX_COPY(nbytes, level)                                                                  \
    "define linkonce_odr hidden void @gpu.copy." #nbytes                                           \
    "(i64 %to, i64 %from, i32 %n) alwaysinline convergent nounwind {\n"                            \
    "  call void asm sideeffect \"{ .reg .u64 to, from; cvta.to.shared.u64 to, $0; "               \
    "cvta.to.global.u64 from, $1; "                                                                \
    "cp.async." level ".shared.global [to], [from], " #nbytes                                      \
    ", $2; }\", \"l,l,r,~{memory}\"(i64 %to, i64 %from, i32 %n)\n"                                 \
    "  ret void\n}\n"
#define NVPTX_STATEMENT(name, text)                                                                \
    "define linkonce_odr hidden void @gpu." name "() alwaysinline convergent nounwind {\n"         \
    "  call void asm sideeffect \"" text ";\", \"~{memory}\"()\n"                                 \
    "  ret void\n}\n"
#define NVPTX_WAIT(n) NVPTX_STATEMENT("wait." #n, "cp.async.wait_group " #n)

/* words: the i32 results; registers: PTX's, with their constraints; row: a generic
 * address as an integer */
#define NVPTX_ROWS(name, of, words, registers, constraints, row)                                   \
    "define linkonce_odr hidden { " words " } @gpu." name                                          \
    "(i64 %p) alwaysinline convergent nounwind {\n"                                                \
    "  %r = call { " words " } asm sideeffect \"{ .reg .u64 row; cvta.to.shared.u64 row, " row     \
    "; ldmatrix.sync.aligned.m8n8." of ".shared.b16 {" registers "}, [row]; }\", \"" constraints   \
    ",l,~{memory}\"(i64 %p) convergent nounwind\n"                                                 \
    "  ret { " words " } %r\n}\n"
#define NVPTX_ROWS4(name, of)                                                                      \
    NVPTX_ROWS(name, of, "i32, i32, i32, i32", "$0, $1, $2, $3", "=r,=r,=r,=r", "$4")
#define NVPTX_ROWS2(name, of) NVPTX_ROWS(name, of, "i32, i32", "$0, $1", "=r,=r", "$2")

/* The dot product of four unsigned and four signed bytes. */
#define DOT(name, body)                                                                            \
    "define linkonce_odr hidden i32 @gpu." name                                                    \
    "(i32 %sum, i32 %a, i32 %b) alwaysinline nounwind {\n" body "  ret i32 %r\n}\n"

static const char *const nvptx[] = {
    DOT("dot", "  %r = call i32 asm \"dp4a.u32.s32 $0, $1, $2, $3;\", \"=r,r,r,r\"(i32 %a, i32 %b, "
               "i32 %sum)\n"),
    NUMBER("thread.x", "llvm.nvvm.read.ptx.sreg.tid.x"),
    NUMBER("thread.y", "llvm.nvvm.read.ptx.sreg.tid.y"),
    NUMBER("thread.z", "llvm.nvvm.read.ptx.sreg.tid.z"),
    NUMBER("block.x", "llvm.nvvm.read.ptx.sreg.ctaid.x"),
    NUMBER("block.y", "llvm.nvvm.read.ptx.sreg.ctaid.y"),
    NUMBER("block.z", "llvm.nvvm.read.ptx.sreg.ctaid.z"),
    "declare void @llvm.nvvm.barrier0()\n"
    "define linkonce_odr hidden void @gpu.barrier() alwaysinline convergent nounwind {\n"
    "  call void @llvm.nvvm.barrier0()\n"
    "  ret void\n}\n"
    "declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)\n",
    "declare float @llvm.nvvm.ex2.approx.ftz.f(float)\n"
    "define linkonce_odr hidden float @gpu.exp2(float %x) alwaysinline nounwind {\n"
    "  %r = call float @llvm.nvvm.ex2.approx.ftz.f(float %x)\n"
    "  ret float %r\n}\n",
    NVPTX_SHUFFLE(1),
    NVPTX_SHUFFLE(2),
    NVPTX_SHUFFLE(4),
    NVPTX_SHUFFLE(8),
    NVPTX_SHUFFLE(16),
    NVPTX_COPY(4, "ca"),
    NVPTX_COPY(8, "ca"),
    NVPTX_COPY(16, "cg"),
    NVPTX_STATEMENT("commit", "cp.async.commit_group"),
    NVPTX_WAIT(0),
    NVPTX_WAIT(1),
    NVPTX_WAIT(2),
    NVPTX_WAIT(3),
    NVPTX_WAIT(4),
    NVPTX_WAIT(5),
    NVPTX_WAIT(6),
    NVPTX_ROWS4("rows4", "x4"),
    NVPTX_ROWS4("rows4_across", "x4.trans"),
    NVPTX_ROWS2("rows2", "x2"),
    NVPTX_ROWS2("rows2_across", "x2.trans"),
    NVPTX_MATRIX("m16n8k16_f16", "m16n8k16.row.col.f32.f16.f16.f32", "float", "f"),
    NVPTX_MATRIX("m16n8k16_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", "float", "f"),
    NVPTX_MATRIX("m16n8k8_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", "float", "f"),
    NVPTX_MATRIX("m16n8k32_i8", "m16n8k32.row.col.s32.s8.s8.s32", "i32", "r"),
    NVPTX_MATRIX("m16n8k32_u8i8", "m16n8k32.row.col.s32.u8.s8.s32", "i32", "r"),
    NVPTX_MATRIX("m16n8k32_u8", "m16n8k32.row.col.s32.u8.u8.s32", "i32", "r"),
    NULL};

#define AMD_SHUFFLE(mask, address, call)                                                           \
    "define linkonce_odr hidden float @gpu.shuffle." #mask                                         \
    "(float %x) alwaysinline convergent nounwind {\n"                                              \
    "  %own = bitcast float %x to i32\n" address "  %other = call i32 @llvm.amdgcn." call "\n"     \
    "  %r = bitcast i32 %other to float\n"                                                         \
    "  ret float %r\n}\n"
#define AMD_DPP(mask, pattern)                                                                     \
    AMD_SHUFFLE(mask, "",                                                                          \
                "update.dpp.i32(i32 undef, i32 %own, i32 " pattern ", i32 15, i32 15, i1 true)")
#define AMD_SWIZZLE(mask, pattern) AMD_SHUFFLE(mask, "", "ds.swizzle(i32 %own, i32 " pattern ")")
#define AMD_PERMUTE(mask)                                                                          \
    AMD_SHUFFLE(mask,                                                                              \
                "  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)\n"                         \
                "  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)\n"                     \
                "  %from = xor i32 %lane, " #mask "\n"                                             \
                "  %at = shl i32 %from, 2\n",                                                      \
                "ds.bpermute(i32 %at, i32 %own)")

static const char *const amdgcn[] = {
    NUMBER("thread.x", "llvm.amdgcn.workitem.id.x"),
    NUMBER("thread.y", "llvm.amdgcn.workitem.id.y"),
    NUMBER("thread.z", "llvm.amdgcn.workitem.id.z"),
    NUMBER("block.x", "llvm.amdgcn.workgroup.id.x"),
    NUMBER("block.y", "llvm.amdgcn.workgroup.id.y"),
    NUMBER("block.z", "llvm.amdgcn.workgroup.id.z"),
    "declare void @llvm.amdgcn.s.barrier()\n"
    "define linkonce_odr hidden void @gpu.barrier() alwaysinline convergent nounwind {\n"
    "  fence syncscope(\"workgroup\") release\n"
    "  call void @llvm.amdgcn.s.barrier()\n"
    "  fence syncscope(\"workgroup\") acquire\n"
    "  ret void\n}\n"
    "declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n"
    "declare i32 @llvm.amdgcn.ds.swizzle(i32, i32)\n"
    "declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)\n"
    "declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)\n"
    "declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)\n",
    "declare float @llvm.exp2.f32(float)\n"
    "define linkonce_odr hidden float @gpu.exp2(float %x) alwaysinline nounwind {\n"
    "  %r = call float @llvm.exp2.f32(float %x)\n"
    "  ret float %r\n}\n",
    AMD_DPP(1, "177"), AMD_DPP(2, "78"), AMD_SWIZZLE(4, "4127"), AMD_DPP(8, "296"),
    AMD_SWIZZLE(16, "16415"), AMD_PERMUTE(32),
    "declare i32 @llvm.amdgcn.sudot4(i1 immarg, i32, i1 immarg, i32, i32, i1 immarg)\n"
    "declare i32 @llvm.amdgcn.sdot4(i32, i32, i32, i1 immarg)\n",
    DOT("dot", "  %r = call i32 @llvm.amdgcn.sudot4(i1 false, i32 %a, i1 true, i32 %b, i32 %sum, "
               "i1 false)\n"),
    /* -2139062144 is 0x80808080, 16843009 is 0x01010101 */
    DOT("dot.gfx9", "  %signed = xor i32 %a, -2139062144\n"
                    "  %of = call i32 @llvm.amdgcn.sdot4(i32 %signed, i32 %b, i32 %sum, i1 false)\n"
                    "  %each = call i32 @llvm.amdgcn.sdot4(i32 16843009, i32 %b, i32 0, i1 false)\n"
                    "  %of128 = shl i32 %each, 7\n"
                    "  %r = add i32 %of, %of128\n"),
    NULL};

/* -------------------------------------------------------------------------------------- kernels */

/* Adds a property of the function and its value to the module's list. */
static void annotate(const struct emit *e, const char *what, int n)
{
    LLVMMetadataRef row[3] = {e->l->ValueAsMetadata(e->function),
                              e->l->MDStringInContext2(e->context, what, strlen(what)),
                              e->l->ValueAsMetadata(const_int(e, e->i32, n))};
    e->l->AddNamedMetadataOperand(
        e->module, "nvvm.annotations",
        e->l->MetadataAsValue(e->context, e->l->MDNodeInContext2(e->context, row, 3)));
}

/* At least one block per multiprocessor: without this bound ptxas spills registers to make room for
 * another block. */
static void nvptx_launched(const struct emit *e, const int block[GRID_RANK])
{
    enum { PTX_KERNEL = 71 };
    static const char *const bound[GRID_RANK] = {"maxntidx", "maxntidy", "maxntidz"};
    e->l->SetFunctionCallConv(e->function, PTX_KERNEL);
    annotate(e, "kernel", 1);
    for (int d = 0; d < GRID_RANK; d++)
        annotate(e, bound[d], block[d]);
    annotate(e, "minctasm", 1);
}

static void amdgcn_launched(const struct emit *e, const int block[GRID_RANK])
{
    enum { AMDGPU_KERNEL = 91 };
    static const char kind[] = "reqd_work_group_size";
    LLVMMetadataRef size[GRID_RANK];
    int n = 1;
    for (int d = 0; d < GRID_RANK; d++) {
        n *= block[d];
        size[d] = e->l->ValueAsMetadata(const_int(e, e->i32, block[d]));
    }
    e->l->SetFunctionCallConv(e->function, AMDGPU_KERNEL);
    e->l->GlobalSetMetadata(e->function,
                            e->l->GetMDKindIDInContext(e->context, kind, sizeof kind - 1),
                            e->l->MDNodeInContext2(e->context, size, GRID_RANK));
    function_attribute_text(e, e->function, "amdgpu-flat-work-group-size",
                            mem_printf(e->t, "%d,%d", n, n));
    function_attribute_text(e, e->function, "uniform-work-group-size", "true");
    function_attribute_text(e, e->function, "amdgpu-no-implicitarg-ptr", "");
    function_attribute_text(e, e->function, "amdgpu-implicitarg-num-bytes", "0");
}

const struct gpu_language gpu_languages[] = {
    [GPU_NVPTX] = {"nvptx64-nvidia-cuda", nvptx, nvptx_launched},
    [GPU_AMDGCN] = {"amdgcn-amd-amdhsa", amdgcn, amdgcn_launched}};
