/* gpu_kernel.c - kernels of devices as functions: what a work-item does. The arguments are those that
 * backends/device/kernel.c declares in the devices' own languages, so the same host launches both: a
 * pointer for each tensor, an i64 for each run-time size.
 *
 * Global memory is address space 1, a block's memory is variables of address space 3; kernels use plain
 * pointers to both, and LLVM finds the spaces again (infer-address-spaces). Counters and offsets have
 * 32 bits, as those of the devices' languages.
 */
#include "backends/device/device.h"
#include "backends/llvm/emit.h"
#include "passes/analysis/access.h"

#include <string.h>

enum { SPACE_OF_GLOBAL = 1, SPACE_OF_BLOCK = 3 };

/* ------------------------------------------------------------------------------- what devices have */

value gpu_function(const struct emit *e, const char *name, LLVMTypeRef result, LLVMTypeRef *type, int n)
{
    value f = e->l->GetNamedFunction(e->module, name);
    if (f)
        return f;
    f = e->l->AddFunction(e->module, name, e->l->FunctionType(result, type, (unsigned)n, 0));
    function_attribute(e, f, ~0u, "convergent");
    function_attribute(e, f, ~0u, "nounwind");
    return f;
}

/* "thread" or "block": its number along an axis, an i32 */
static value number_of(const struct emit *e, const char *what, int axis)
{
    return call(e, gpu_function(e, mem_printf(e->t, "gpu.%s.%c", what, "xyz"[axis]), e->i32, NULL, 0), NULL, 0);
}

value gpu_lane(const struct emit *e, int lanes)
{
    return binary(e, LLVM_AND, number_of(e, "thread", 0), const_int(e, e->i32, lanes - 1));
}

void gpu_barrier(struct emit *e)
{
    if (e->gpu)                          /* elsewhere a block has one thread */
        call(e, gpu_function(e, "gpu.barrier", e->nothing, NULL, 0), NULL, 0);
}

void gpu_shuffle(struct emit *e, const struct uop *u)
{
    struct uop *acc = u->src[0], *both[2] = {acc, acc};
    if (!e->gpu)
        return;
    if (acc->dtype != DTYPE_F32 || acc->lanes != 1)
        TGC_BUG(e->t, "a shuffle of %s[%d]", dtype_name(acc->dtype), acc->lanes);
    value own = operand(e, acc);
    value f = gpu_function(e, mem_printf(e->t, "gpu.shuffle.%d", SHUFFLE_MASK(u->arg.i)), e->f32, &e->f32, 1);
    const struct uop *op = uop_intern(e->t, SHUFFLE_OP(u->arg.i), u->dtype, both, 2, (union arg){0});
    store_as(e, apply(e, op, (value[]){own, call(e, f, &own, 1)}), acc_place(e, acc), 0);
}

/* ------------------------------------------------------------------------------------------ places */

/* The number along dimension d of the grid: of the block, or of the work-item, where blocks are no
 * matter of the kernel's. */
static value place_in_grid(const struct emit *e, int d)
{
    int axis = device_axis(e->gpu->p, e->k, d);
    value block = number_of(e, "block", axis);
    if (e->k->block)
        return block;
    return binary(e, LLVM_ADD, binary(e, LLVM_MUL, block, const_int(e, e->i32, e->gpu->block[d])),
                  number_of(e, "thread", d));
}

/* The work-item's number among `turns` of the block, each for `between` neighbours. */
static value place_in_block(const struct emit *e, const struct uop *u, int64_t between, int64_t turns)
{
    value at = number_of(e, "thread", 0);
    if (between > 1)
        at = binary(e, LLVM_UDIV, at, const_int(e, e->i32, between));
    if (range_is_item(u) && sat_mul(between, turns) < e->k->block)
        at = binary(e, LLVM_UREM, at, const_int(e, e->i32, turns));
    return at;
}

/* Whether all places that there are have work: nothing stands around the kernel's barriers then. */
static bool is_whole(const struct emit *e, const struct uop *u, int d)
{
    const struct kernel *k = e->k;
    int64_t n;
    if (!range_is_grid(u) || (k->block && (k->ast->nsrc == 1 || range_is(u, AXIS_BAND))))
        return true;
    return uop_const_int(k->grid[d], &n) && uop_is_int(u->src[0], n) && (k->block || n % k->group[d] == 0);
}

bool gpu_range(struct emit *e, const struct uop *u)
{
    int64_t n, between, turns = u->src[0]->vmax;
    bool all = range_is_of_block(u) && uop_const_int(u->src[0], &n) && n == e->k->block;
    if (range_is_of_block(u) && !all) {
        range_share(e, u, cast_to(e, LLVM_ZEXT, number_of(e, "thread", 0), e->i64), const_i64(e, e->k->block));
        return true;
    }
    if (!all && !range_is_grid(u) && !range_is_item(u))
        return false;
    int d = linear_inner_workers(e->linear, e->nlinear, e->position, &between);
    value size = offset_wide(e, u->src[0]);
    value at = range_is_grid(u) ? place_in_grid(e, d) : place_in_block(e, u, between, turns);
    at = cast_to(e, LLVM_ZEXT, at, e->l->TypeOf(size));
    guard_open(e, u, is_whole(e, u, d) ? NULL : compare_ints(e, LLVM_SLT, at, size));
    define(e, u, at);
    return true;
}

/* A node with one string; with itself as the first operand it is no other loop's. */
void gpu_unroll(struct emit *e, const struct region *r, value branch)
{
    static const char kind[] = "llvm.loop";
    const struct llvm *l = e->l;
    const char *what = range_is_lane(r->u) ? "llvm.loop.unroll.full" : r->is_kept ? "llvm.loop.unroll.disable" : NULL;
    if (!what)
        return;
    LLVMMetadataRef word = l->MDStringInContext2(e->context, what, strlen(what));
    LLVMMetadataRef self = l->TemporaryMDNode(e->context, NULL, 0);
    LLVMMetadataRef list[2] = {self, l->MDNodeInContext2(e->context, &word, 1)};
    LLVMMetadataRef node = l->MDNodeInContext2(e->context, list, 2);
    l->MetadataReplaceAllUsesWith(self, node);
    l->SetMetadata(branch, l->GetMDKindIDInContext(e->context, kind, sizeof kind - 1),
                   l->MetadataAsValue(e->context, node));
}

/* ------------------------------------------------------------------------------------- the kernel */

static LLVMTypeRef type_of_kernel(const struct emit *e, const struct parameter *a, int n)
{
    LLVMTypeRef *type = scratch_array(e->t, (size_t)n + 1, sizeof *type);
    for (int i = 0; i < n; i++)
        type[i] = a[i].b ? e->l->PointerType(e->i8, SPACE_OF_GLOBAL) : e->i64;
    return e->l->FunctionType(e->nothing, type, (unsigned)n, 0);
}

/* Of scratch, each work-item has its own, as many bytes behind the one before. */
static value place_own(const struct emit *e, const struct buffer *b, value p)
{
    const struct kernel *k = e->k;
    value number = k->block ? cast_to(e, LLVM_ZEXT, number_of(e, "thread", 0), e->i64) : e->part;
    if (k->block && k->is_shared)
        number = binary(e, LLVM_ADD, binary(e, LLVM_MUL, e->part, const_i64(e, k->block)), number);
    value at = binary(e, LLVM_MUL, number, const_i64(e, (int64_t)scratch_stride(b)));
    return pointer_at(e, p, e->i8, at);
}

/* The tensor begins where vectors of 16 bytes may. */
enum { PARAMETER_ALIGN = 16 };

static void align_parameter(const struct emit *e, unsigned i)
{
    static const char align[] = "align";
    unsigned kind = e->l->GetEnumAttributeKindForName(align, sizeof align - 1);
    e->l->AddAttributeAtIndex(e->function, i + 1, e->l->CreateEnumAttribute(e->context, kind, PARAMETER_ALIGN));
}

static void bind_parameters(struct emit *e, const struct kernel *k, const struct parameter *a, int n)
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

/* Of the block, or of the work-item; vectors of it are loaded at once. */
static value place_scratch(struct emit *e, const struct kernel *k, const struct buffer *b, int i)
{
    enum { ALIGN = 16 };
    size_t n = (b->nbytes + ALIGN - 1) / ALIGN * ALIGN;
    LLVMTypeRef type = e->l->ArrayType(e->i8, (unsigned)(n ? n : ALIGN));
    if (buffer_space(b) != SPACE_LOCAL)
        return on_stack(e, e->l->ArrayType(e->i64, (unsigned)((n ? n : ALIGN) / 8)));
    const char *name = mem_printf(e->t, "%s_%s.tile%d", e->name, program_kernel_name(e->gpu->p, k), i);
    value g = e->l->AddGlobalInAddressSpace(e->module, type, name, SPACE_OF_BLOCK);
    e->l->SetLinkage(g, LLVM_INTERNAL);
    e->l->SetInitializer(g, e->l->GetUndef(type));
    e->l->SetAlignment(g, ALIGN);
    return generic_pointer(e, g);
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
    function_begin(e, mem_printf(e->t, "%s_%s", e->name, program_kernel_name(gpu.p, k)), type_of_kernel(e, a, n),
                   false);
    gpu_languages[gpu.row->kind].launched(e, gpu.block);
    e->part = k->is_shared && !k->ngrid ? cast_to(e, LLVM_ZEXT, number_of(e, "block", 0), e->i64) : NULL;
    e->parts = e->part ? const_i64(e, gpu.p->threads) : NULL;
    bind_parameters(e, k, a, n);
    for (int i = 0; i < k->nscratch; i++)
        if (scratch_is_on_stack(k->scratch[i]))
            e->place[k->nbuffer + i] = place_scratch(e, k, k->scratch[i], i);
    emit_linear(e);
    e->gpu = NULL;
    scratch_release(e->t, mark);
}
