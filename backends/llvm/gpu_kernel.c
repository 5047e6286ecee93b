/* gpu_kernel.c - kernels of devices as functions: what one thread does. The arguments are those
 * that backends/device/kernel.c declares in the devices' own languages, so the same host code
 * launches both: a pointer for each tensor, an i64 for each run-time size.
 *
 * Global memory is address space 1. A block's shared memory is variables of address space 3.
 * Kernels use plain pointers to both, and LLVM finds the spaces again (infer-address-spaces).
 * Counters and offsets have 32 bits, as in the devices' languages.
 */
#include "backends/device/device.h"
#include "backends/llvm/emit.h"
#include "passes/analysis/access.h"

#include <string.h>

enum { SPACE_OF_GLOBAL = 1, SPACE_OF_BLOCK = 3 };

static LLVMTypeRef type_of_kernel(const struct emit *e, const struct parameter *a, int n)
{
    LLVMTypeRef *type = scratch_array(e->t, (size_t)n + 1, sizeof *type);
    for (int i = 0; i < n; i++)
        type[i] = a[i].b ? e->l->PointerType(e->i8, SPACE_OF_GLOBAL) : e->i64;
    return e->l->FunctionType(e->nothing, type, (unsigned)n, 0);
}

/* Scratch in global memory: each thread has its own part. */
static value place_own(const struct emit *e, const struct buffer *b, value p)
{
    const struct kernel *k = e->k;
    value number = k->block ? cast_to(e, LLVM_ZEXT, gpu_number(e, "thread", 0), e->i64) : e->part;
    if (k->block && k->is_shared)
        number = binary(e, LLVM_ADD, binary(e, LLVM_MUL, e->part, const_i64(e, k->block)), number);
    value at = binary(e, LLVM_MUL, number, const_i64(e, (int64_t)scratch_stride(b)));
    return pointer_at(e, p, e->i8, at);
}

/* Tensors are aligned for vectors of 16 bytes. */
enum { PARAMETER_ALIGN = 16 };

static void align_parameter(const struct emit *e, unsigned i)
{
    static const char align[] = "align";
    unsigned kind = e->l->GetEnumAttributeKindForName(align, sizeof align - 1);
    e->l->AddAttributeAtIndex(e->function, i + 1,
                              e->l->CreateEnumAttribute(e->context, kind, PARAMETER_ALIGN));
}

static void bind_parameters(struct emit *e, const struct kernel *k, const struct parameter *a,
                            int n)
{
    int nvar = 0;
    e->place = scratch_array(e->t, (size_t)(k->nbuffer + k->nscratch) + 1, sizeof *e->place);
    e->var = scratch_array(e->t, (size_t)k->nvar + 1, sizeof *e->var);
    for (int i = 0; i < n; i++) {
        value p = e->l->GetParam(e->function, (unsigned)i);
        if (!a[i].b) {
            e->var[nvar++] = p;
            continue;
        }
        bool own = a[i].at >= k->nbuffer && (k->is_shared || k->block);
        if (parameter_is_restrict(k, &a[i]))
            function_attribute(e, e->function, (unsigned)i + 1, "noalias");
        if (buffer_is_aligned(e->t, a[i].b, PARAMETER_ALIGN))
            align_parameter(e, (unsigned)i);
        if (!parameter_is_written(k, &a[i]))
            function_attribute(e, e->function, (unsigned)i + 1, "readonly");
        e->place[a[i].at] = generic_pointer(e, p);
        if (own)
            e->place[a[i].at] = place_own(e, a[i].b, e->place[a[i].at]);
    }
}

static value block_memory(struct emit *e, const char *name, int64_t nbytes, unsigned align)
{
    LLVMTypeRef type = e->l->ArrayType(e->i8, (unsigned)nbytes);
    value g = e->l->AddGlobalInAddressSpace(e->module, type, name, SPACE_OF_BLOCK);
    e->l->SetAlignment(g, align);
    if (nbytes) {
        e->l->SetLinkage(g, LLVM_INTERNAL);
        e->l->SetInitializer(g, e->l->GetUndef(type));
    }
    return g;
}

/* A part of the block's one array. If that is dynamic shared memory, LLVM knows no size of it, and
 * an attribute tells people. */
static value place_part(struct emit *e, const struct kernel *k, const struct buffer *b,
                        int64_t launched)
{
    const char *name = mem_printf(e->t, "%s_%s%s", e->name, program_kernel_name(e->gpu->p, k),
                                  launched ? "$memory" : ".tiles");
    value g = e->l->GetNamedGlobal(e->module, name);
    if (!g) {
        g = block_memory(e, name, launched ? 0 : device_local_at(k, NULL), PANEL_ALIGN);
        if (launched)
            function_attribute_text(e, e->function, "tgc-local",
                                    mem_printf(e->t, "%lld", (long long)launched));
    }
    return pointer_at(e, generic_pointer(e, g), e->i8, const_i64(e, device_local_at(k, b)));
}

/* An array of the block or of the thread, aligned for vector loads. */
static value place_scratch(struct emit *e, const struct kernel *k, const struct buffer *b, int i)
{
    enum { ALIGN = 16 };
    size_t n = (b->nbytes + ALIGN - 1) / ALIGN * ALIGN;
    if (buffer_space(b) != SPACE_SHARED)
        return on_stack(e, e->l->ArrayType(e->i64, (unsigned)((n ? n : ALIGN) / 8)));
    const int64_t launched = device_launched_local(e->gpu->p->backend->driver, k);
    if (launched || device_has_over(k))
        return place_part(e, k, b, launched);
    const char *name =
        mem_printf(e->t, "%s_%s.tile%d", e->name, program_kernel_name(e->gpu->p, k), i);
    return generic_pointer(
        e, block_memory(e, name, n ? (int64_t)n : ALIGN, b->scratch.panel ? PANEL_ALIGN : ALIGN));
}

void gpu_emit_kernel(struct emit *e, const struct kernel *k, const struct variant *v)
{
    struct mem_mark mark = scratch_mark(e->t);
    int n;
    const struct parameter *a = kernel_parameters(e->t, k, &n);
    struct gpu gpu = *e->gpu;
    device_block(k, gpu.block);
    e->gpu = &gpu;
    e->k = k;
    e->linear = v ? v->linear : k->linear;
    e->nlinear = v ? v->nlinear : k->nlinear;
    gpu.kept = stack_find_kept(e->t, v ? v->isa : ISA_GENERIC, e->linear, e->nlinear);
    function_begin(e, mem_printf(e->t, "%s_%s", e->name, program_kernel_name(gpu.p, k)),
                   type_of_kernel(e, a, n), false);
    gpu_languages[gpu.row->kind].launched(e, gpu.block);
    e->part =
        k->is_shared && !k->ngrid ? cast_to(e, LLVM_ZEXT, gpu_number(e, "block", 0), e->i64) : NULL;
    e->parts = e->part ? const_i64(e, gpu.p->threads) : NULL;
    bind_parameters(e, k, a, n);
    for (int i = 0; i < k->nscratch; i++)
        if (scratch_is_on_stack(k->scratch[i]))
            e->place[k->nbuffer + i] = place_scratch(e, k, k->scratch[i], i);
    emit_linear(e);
    e->gpu = NULL;
    scratch_release(e->t, mark);
}
