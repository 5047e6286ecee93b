/* kernel.c - a linear program as a function: a pointer for each buffer, an i64 for each symbol,
 * and, where threads share the kernel, which part of how many this call computes. */
#include "backends/llvm/emit.h"

void function_open(struct emit *e, value function)
{
    e->function = function;
    function_attribute(e, function, ~0u, "nounwind");
    function_attribute_text(e, function, "target-cpu", e->cpu);
    function_attribute_text(e, function, "target-features", e->features);
    e->entry = block_new(e, "entry");
    e->known = (struct uop_map){.t = e->t, .scratch = true};
    e->nregion = 0;
    e->begin = block_new(e, "begin");
    e->l->PositionBuilderAtEnd(e->at, e->begin);
}

void function_begin(struct emit *e, const char *name, LLVMTypeRef type, bool internal)
{
    function_open(e, e->l->AddFunction(e->module, name, type));
    if (internal)
        e->l->SetLinkage(e->function, LLVM_INTERNAL);
    function_attribute(e, e->function, ~0u, "noinline");
    /* vectors of this size are passed in registers, as the functions of runtime/ take them */
    function_attribute_text(e, e->function, "min-legal-vector-width", "512");
    function_attribute_text(e, e->function, "prefer-vector-width", "512");
}

void function_end(struct emit *e)
{
    e->l->PositionBuilderAtEnd(e->at, e->entry);
    e->l->BuildBr(e->at, e->begin);
}

static bool is_value(const struct uop *u)
{
    return op_is_elementwise(u->op) || u->op == OP_LOAD || u->op == OP_GATHER;
}

static void emit_elementwise(struct emit *e, const struct uop *u)
{
    value src[3];
    bool wide = is_offset(e, u);
    for (int k = 0; k < u->nsrc; k++)
        src[k] = wide ? offset_wide(e, u->src[k]) : operand(e, u->src[k]);
    define(e, u, apply(e, u, src));
}

void emit_uop(struct emit *e, const struct uop *u)
{
    if (e->gpu && u->op == OP_LOAD && uop_is_tile(u)) {
        gpu_matrix_load(e, u);
        return;
    }
    if (!e->gpu && uop_is_tile(u)) {
        emit_tile(e, u);
        return;
    }
    if (emit_vector(e, u))
        return;
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER: case OP_STAGE: case OP_SINK: break;
    case OP_BARRIER:
        if (BARRIER_THREADS(u->arg.i))
            TGC_BUG(e->t, "a barrier of a role's threads, of which LLVM's kernels have none");
        gpu_barrier(e);
        break;
    case OP_SHUFFLE: gpu_shuffle(e, u); break;
    case OP_COPY: gpu_copy(e, u); break;
    case OP_PUT: gpu_put(e, u); break;
    case OP_COMMIT: case OP_WAIT: gpu_wait(e, u); break;
    case OP_MATRIX: gpu_matrix_product(e, u); break;
    case OP_RANGE:
        if (!e->gpu || !gpu_range(e, u))
            emit_range(e, u);
        break;
    case OP_GUARD: guard_open(e, u, operand(e, u->src[0])); break;
    case OP_END: case OP_ENDGUARD: loop_close(e); break;
    case OP_ACC: emit_acc(e, u); break;
    case OP_ASSIGN: emit_assign(e, u); break;
    case OP_LOAD: emit_load(e, u); break;
    case OP_STORE: emit_store(e, u); break;
    case OP_GATHER: emit_gather(e, u); break;
    case OP_PREFETCH: emit_prefetch(e, u); break;
    default:
        if (!is_value(u))
            TGC_BUG(e->t, "%s in a linear program", op_name(u->op));
        emit_elementwise(e, u);
    }
}

/* Scratch that is small has a place on the stack. */
static void place_scratch(struct emit *e, const struct kernel *k)
{
    for (int i = 0; i < k->nscratch; i++) {
        const struct buffer *b = k->scratch[i];
        if (!scratch_is_on_stack(b))
            continue;
        enum { ALIGN = 8 };
        size_t n = (b->nbytes + ALIGN - 1) / ALIGN;
        e->place[k->nbuffer + i] = on_stack(e, e->l->ArrayType(e->i64, (unsigned)(n ? n : 1)));
    }
}

static void bind_parameters(struct emit *e, const struct kernel *k, const struct parameter *a,
                            int n)
{
    e->place = scratch_array(e->t, (size_t)(k->nbuffer + k->nscratch) + 1, sizeof *e->place);
    e->var = scratch_array(e->t, (size_t)k->nvar + 1, sizeof *e->var);
    int nvar = 0;
    for (int i = 0; i < n; i++) {
        value p = e->l->GetParam(e->function, (unsigned)i);
        if (!a[i].b) {
            e->var[nvar++] = p;
            continue;
        }
        e->place[a[i].at] = p;
        if (parameter_is_restrict(k, &a[i]))
            function_attribute(e, e->function, (unsigned)i + 1, "noalias");
    }
    e->part = k->is_shared ? e->l->GetParam(e->function, (unsigned)n) : NULL;
    e->parts = k->is_shared ? e->l->GetParam(e->function, (unsigned)n + 1) : NULL;
}

LLVMTypeRef kernel_type(const struct emit *e, const struct kernel *k)
{
    int n;
    const struct parameter *a = kernel_parameters(e->t, k, &n);
    LLVMTypeRef *type = mem_array(e->t, (size_t)n + 2, sizeof *type);
    for (int i = 0; i < n; i++)
        type[i] = a[i].b ? e->pointer : e->i64;
    type[n] = type[n + 1] = e->i64;
    return e->l->FunctionType(e->nothing, type, (unsigned)(n + 2 * k->is_shared), 0);
}

void kernel_call(struct emit *e, const struct kernel *k, value function, value *arg, int n)
{
    LLVMTypeRef type = kernel_type(e, k);
    value f = e->l->BuildBitCast(e->at, function, e->l->PointerType(type, 0), "");
    e->l->BuildCall2(e->at, type, f, arg, (unsigned)n, "");
}

void emit_linear(struct emit *e)
{
    tiles_open(e);
    for (e->position = 0; e->position < e->nlinear; e->position++) {
        debug_uop(e);
        emit_uop(e, e->linear[e->position]);
    }
    if (e->nregion)
        TGC_BUG(e->t, "kernel %s: %d loops are not closed", e->k->name, e->nregion);
    tiles_close(e);
    e->l->BuildRetVoid(e->at);
    function_end(e);
}

value emit_kernel(struct emit *e, const struct kernel *k, const struct variant *v)
{
    struct mem_mark mark = scratch_mark(e->t);
    int n;
    const struct parameter *a = kernel_parameters(e->t, k, &n);
    e->k = k;
    e->linear = v ? v->linear : k->linear;
    e->nlinear = v ? v->nlinear : k->nlinear;
    const char *name = v && e->isa ? mem_printf(e->t, "%s_%s", k->name, isa_name(v->isa)) : k->name;
    function_begin(e, name, kernel_type(e, k), true);
    bind_parameters(e, k, a, n);
    place_scratch(e, k);
    debug_kernel(e, k, name);
    emit_linear(e);
    debug_leave(e);
    scratch_release(e->t, mark);
    return e->function;
}
