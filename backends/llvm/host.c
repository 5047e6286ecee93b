/* host.c - what the functions outside of kernels have in common: scalars of the schedule, places of
 * buffers and weights, constant data, early returns.
 */
#include "backends/llvm/emit.h"
#include "passes/target/legal.h"

value weight_place(struct emit *e, value self, const struct buffer *b)
{
    value g;
    if (b->dtype == DTYPE_STRING) {
        const char *name =
            mem_printf(e->t, "strings_%d", (b->weight.same ? b->weight.same : b)->id);
        g = e->l->GetNamedGlobal(e->module, name);
        if (!g)
            g = e->l->AddGlobal(e->module, e->i8, name);
        return e->l->BuildBitCast(e->at, g, e->pointer, "");
    }
    if (e->weights_outside)
        return pointer_at(e, field_load(e, e->head, self, HEAD_WEIGHTS), e->i8,
                          const_i64(e, (int64_t)b->offset));
    g = e->l->GetNamedGlobal(e->module, "weights");
    if (!g)
        g = e->l->AddGlobal(e->module, e->i8, "weights");
    return pointer_at(e, e->l->BuildBitCast(e->at, g, e->pointer, ""), e->i8,
                      const_i64(e, (int64_t)b->offset));
}

value host_scalar(struct emit *e, struct uop *root)
{
    int n;
    struct uop *last = legal_scalar(e->t, root);
    struct uop **order = uop_toposort(e->t, &last, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op != OP_CONST && order[i]->op != OP_VAR && order[i]->op != OP_BUFFER) {
            if (order[i]->op != OP_LOAD && !op_is_elementwise(order[i]->op))
                TGC_BUG(e->t, "%s in a scalar of the schedule", op_name(order[i]->op));
            emit_uop(e, order[i]);
        }
    value v = operand(e, last);
    if (root->dtype == DTYPE_INDEX)
        v = cast_to(e, LLVM_SEXT, v, e->i64);
    define(e, root, v);
    return v;
}

/* A part of another buffer begins at an offset that may be an expression. */
value host_argument(struct emit *e, const struct buffer *b)
{
    for (const struct buffer *part = b; part->base; part = part->base)
        if (part->base_offset)
            host_scalar(e, part->base_offset);
    return place_of(e, b);
}

LLVMBasicBlockRef begin_when(struct emit *e, value so)
{
    LLVMBasicBlockRef then = block_new(e, "when"), after = block_new(e, "after");
    e->l->BuildCondBr(e->at, so, then, after);
    e->l->PositionBuilderAtEnd(e->at, then);
    return after;
}

void begin_after(struct emit *e, LLVMBasicBlockRef after)
{
    e->l->BuildBr(e->at, after);
    e->l->PositionBuilderAtEnd(e->at, after);
}

void call_hook(struct emit *e, value hook, LLVMTypeRef *type, value *arg, int n)
{
    LLVMTypeRef function = e->l->FunctionType(e->nothing, type, (unsigned)n, 0);
    value f = e->l->BuildBitCast(e->at, hook, e->l->PointerType(function, 0), "");
    extend_call(e, e->l->BuildCall2(e->at, function, f, arg, (unsigned)n, ""), type, n);
}

void return_if(struct emit *e, value bad, value status)
{
    LLVMBasicBlockRef end = block_new(e, "bad"), after = block_new(e, "good");
    e->l->BuildCondBr(e->at, bad, end, after);
    e->l->PositionBuilderAtEnd(e->at, end);
    e->l->BuildRet(e->at, status);
    e->l->PositionBuilderAtEnd(e->at, after);
}

value constant_data(const struct emit *e, value initial, const char *name)
{
    value g = e->l->AddGlobal(e->module, e->l->TypeOf(initial), name);
    e->l->SetInitializer(g, initial);
    e->l->SetGlobalConstant(g, 1);
    e->l->SetLinkage(g, LLVM_INTERNAL);
    return g;
}

value constant_address(const struct emit *e, value g) { return e->l->ConstBitCast(g, e->pointer); }

value constant_table(const struct emit *e, value *row, int n, const char *name)
{
    value all = e->l->ConstArray(e->l->TypeOf(row[0]), row, (unsigned)n);
    return constant_address(e, constant_data(e, all, name));
}
