/* loops.c - loops, guards and accumulators.
 *
 *      RANGE   begin: br head
 *              head:  i = phi [begin's, next]; br i < end, body, exit
 *      END            next = i + 1; br head
 *              exit:
 *
 * An accumulator is a place on the stack, which LLVM makes a register; with lanes it is an array.
 */
#include "backends/llvm/emit.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------- loops */

static void region_open(struct emit *e, struct region r)
{
    VEC_PUSH(e->t, e->region, e->nregion, e->cap_region, r);
}

void loop_open(struct emit *e, const struct uop *u, value begin, value end, bool down)
{
    struct region r = {.u = u, .head = block_new(e, "head"), .end = end};
    r.is_kept = e->gpu && e->gpu->kept[e->position];
    r.is_straight =
        e->gpu && u &&
        (range_is_lane(u) || (e->linear[e->position] == u &&
                              stack_is_over_registers(e->t, e->linear, e->nlinear, e->position)));
    LLVMBasicBlockRef body = block_new(e, "body"), before = e->l->GetInsertBlock(e->at);
    r.exit = block_new(e, "exit");
    e->l->BuildBr(e->at, r.head);
    e->l->PositionBuilderAtEnd(e->at, r.head);
    r.counter = e->l->BuildPhi(e->at, e->l->TypeOf(begin), "");
    e->l->AddIncoming(r.counter, &begin, &before, 1);
    e->l->BuildCondBr(e->at, e->l->BuildICmp(e->at, LLVM_SLT, r.counter, end, ""), body, r.exit);
    e->l->PositionBuilderAtEnd(e->at, body);
    value i = r.counter;
    if (down)
        i = binary(e, LLVM_SUB,
                   binary(e, LLVM_ADD, begin,
                          binary(e, LLVM_SUB, end, const_int(e, e->l->TypeOf(end), 1))),
                   i);
    region_open(e, r);
    if (u)
        define(e, u, i);
}

void guard_open(struct emit *e, const struct uop *u, value cond)
{
    if (!cond) {
        region_open(e, (struct region){.u = u});
        return;
    }
    struct region r = {.u = u, .exit = block_new(e, "after")};
    LLVMBasicBlockRef then = block_new(e, "guarded");
    e->l->BuildCondBr(e->at, cond, then, r.exit);
    e->l->PositionBuilderAtEnd(e->at, then);
    region_open(e, r);
}

/* Says of a device's loop, which ends with this branch, whether it becomes straight-line code: one
 * over lanes or registers does, one that is kept does not, LLVM decides for the others. For AMD it
 * unrolls loops that touch a thread's own or shared memory up to nine times as far as others, in
 * the hope that arrays become registers: ours have, and all loads of such a loop at once would not
 * fit there. A node with one option; with itself as the first operand it is no other loop's. */
static void mark_unrolled(const struct emit *e, const struct region *r, value branch)
{
    enum { USUAL = 300 };                   /* LLVM's own threshold of other loops */
    static const char kind[] = "llvm.loop";
    const struct llvm *l = e->l;
    bool decides = !r->is_straight && !r->is_kept;
    const char *what = r->is_straight ? "llvm.loop.unroll.full"
                       : r->is_kept   ? "llvm.loop.unroll.disable"
                                      : "amdgpu.loop.unroll.threshold";
    if (decides && e->gpu->row->kind != GPU_AMDGCN)
        return;
    LLVMMetadataRef option[2] = {l->MDStringInContext2(e->context, what, strlen(what)),
                                 l->ValueAsMetadata(const_int(e, e->i32, USUAL))};
    LLVMMetadataRef self = l->TemporaryMDNode(e->context, NULL, 0);
    LLVMMetadataRef list[2] = {self, l->MDNodeInContext2(e->context, option, decides ? 2 : 1)};
    LLVMMetadataRef node = l->MDNodeInContext2(e->context, list, 2);
    l->MetadataReplaceAllUsesWith(self, node);
    l->SetMetadata(branch, l->GetMDKindIDInContext(e->context, kind, sizeof kind - 1),
                   l->MetadataAsValue(e->context, node));
}

void loop_close(struct emit *e)
{
    if (e->nregion == 0)
        TGC_BUG(e->t, "a loop is closed that is not open");
    struct region *r = &e->region[--e->nregion];
    if (r->head) {
        value step = const_int(e, e->l->TypeOf(r->counter), r->step ? r->step : 1);
        value next = e->l->BuildNSWAdd(e->at, r->counter, step, "");
        LLVMBasicBlockRef here = e->l->GetInsertBlock(e->at);
        e->l->AddIncoming(r->counter, &next, &here, 1);
        if (r->u)
            define(e, r->u, NULL);                    /* lanes that are not open are 0 */
    }
    if (!r->exit)
        return;
    value branch = e->l->BuildBr(e->at, r->head ? r->head : r->exit);
    if (e->gpu && r->head && r->u)
        mark_unrolled(e, r, branch);
    e->l->PositionBuilderAtEnd(e->at, r->exit);
}

static bool loop_loads(const struct emit *e)
{
    for (int i = e->position + 1, depth = 1; i < e->nlinear && depth > 0; i++) {
        enum op op = e->linear[i]->op;
        if (op == OP_LOAD || op == OP_GATHER)
            return true;
        depth += (op == OP_RANGE || op == OP_GUARD) - (op == OP_END || op == OP_ENDGUARD);
    }
    return false;
}

/* size * part / parts; the product of an i32 and a number of threads fits in 64 bits. */
static value share(struct emit *e, value size, value part, value parts)
{
    LLVMTypeRef type = e->l->TypeOf(size);
    value product = binary(e, LLVM_MUL, cast_to(e, LLVM_ZEXT, size, e->i64), part);
    return cast_to(e, LLVM_TRUNC, binary(e, LLVM_UDIV, product, parts), type);
}

void range_stride(struct emit *e, const struct uop *u, value first, int64_t step)
{
    value size = offset_wide(e, u->src[0]);
    loop_open(e, u, cast_to(e, LLVM_ZEXT, first, e->l->TypeOf(size)), size, false);
    e->region[e->nregion - 1].step = step;
}

void emit_range(struct emit *e, const struct uop *u)
{
    value size = offset_wide(e, u->src[0]), end = size;
    value begin = const_int(e, e->l->TypeOf(size), 0);
    bool down = e->k->counts_down && e->nregion == 0 && loop_loads(e);
    if (range_is_shared(u) && e->part) {
        begin = share(e, size, e->part, e->parts);
        end = share(e, size, binary(e, LLVM_ADD, e->part, const_int(e, e->i64, 1)), e->parts);
    }
    loop_open(e, u, begin, end, down);
}

/* --------------------------------------------------------------------------------- accumulators */

static int64_t lanes_of(const struct uop *acc)
{
    int64_t n = 1;
    for (int k = 1; k < acc->nsrc; k++)
        n *= acc->src[k]->src[0]->vmax;
    return n;
}

static void acc_write(struct emit *e, const struct uop *acc, const struct uop *from)
{
    value v = operand(e, from);
    if (from->lanes == 1)
        v = splat(e, v, acc->lanes);
    store_as(e, v, acc_place(e, acc), 0);
}

void emit_acc(struct emit *e, const struct uop *u)
{
    LLVMTypeRef type = acc_type(e, u);
    if (!map_get(&e->known, u))
        define(e, u, on_stack(e, u->nsrc > 1 ? e->l->ArrayType(type, (unsigned)lanes_of(u))
                                             : type));
    if (acc_tile(e, u))
        return;
    for (int k = 1; k < u->nsrc; k++) {
        value size = offset_wide(e, u->src[k]->src[0]);
        loop_open(e, u->src[k], const_int(e, e->l->TypeOf(size), 0), size, false);
    }
    acc_write(e, u, u->src[0]);
    for (int k = 1; k < u->nsrc; k++)
        loop_close(e);
}

void emit_assign(struct emit *e, const struct uop *u) { acc_write(e, u->src[0], u->src[1]); }
