/* memory.c - loads, stores and gathers: of one element, or of a vector whose lanes are contiguous,
 * partial or strided. A load whose condition is false touches no memory. */
#include "backends/llvm/emit.h"

static int kernel_position(const struct kernel *k, const struct buffer *b)
{
    for (int i = 0; i < k->nbuffer + k->nscratch; i++)
        if (b == (i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer]))
            return i;
    return -1;
}

value place_of(struct emit *e, const struct buffer *b)
{
    if (e->k) {
        int at = kernel_position(e->k, b);
        if (at < 0)
            TGC_BUG(e->t, "kernel %s uses buffer %d, which is not among its parameters",
                    e->k->name, b->id);
        return e->place[at];
    }
    value p = e->place[buffer_root(b)->id];
    if (!p)
        TGC_BUG(e->t, "buffer %d is not in the schedule", buffer_root(b)->id);
    for (; b->base; b = b->base)
        if (b->base_offset && !uop_is_int(b->base_offset, 0))
            p = pointer_at(e, p, type_in_memory(e, b->dtype), offset_wide(e, b->base_offset));
    return p;
}

static value element_at(struct emit *e, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    return pointer_at(e, place_of(e, b), type_in_memory(e, b->dtype), offset_wide(e, u->src[1]));
}

/* The offset of lane l from the first one. */
static int64_t lane_at(int64_t bits, int l)
{
    int64_t stride = VECTOR_STRIDE(bits);
    return VECTOR_IS_GROUPS(bits) && stride != 1 ? l / DOT_BYTES + l % DOT_BYTES * stride
                                                 : l * stride;
}

/* The alignment of the access: the vector's size for an aligned transaction of a device. */
static unsigned alignment_of(enum dtype d, int64_t bits)
{
    return (unsigned)dtype_nbytes(d) *
           (bits && VECTOR_IS_ALIGNED(bits) ? (unsigned)VECTOR_LANES(bits) : 1);
}

/* What is in memory, as a vector of elements. */
static value load_elements(struct emit *e, enum dtype d, value at, int64_t bits)
{
    LLVMTypeRef type = type_in_memory(e, d);
    unsigned align = alignment_of(d, bits);
    int lanes = bits ? VECTOR_LANES(bits) : 1, part = bits ? VECTOR_PART(bits) : 0;
    int n = part ? part : lanes;
    if (!bits)
        return load_as(e, type, at, align);
    value v = e->l->GetUndef(vector_of(e, type, lanes));
    if (VECTOR_STRIDE(bits) == 1) {
        value whole = load_as(e, vector_of(e, type, n), at, align);
        int from[128];
        for (int l = 0; l < lanes; l++)
            from[l] = l < n ? l : -1;
        return n == lanes ? whole
               : n == 1   ? e->l->BuildInsertElement(e->at, v, whole, const_int(e, e->i32, 0), "")
                          : shuffle(e, whole, NULL, from, lanes);
    }
    for (int l = 0; l < n; l++) {
        value p = pointer_at(e, at, type, const_int(e, e->i64, lane_at(bits, l)));
        v = e->l->BuildInsertElement(e->at, v, load_as(e, type, p, align),
                                     const_int(e, e->i32, l), "");
    }
    return v;
}

/* Groups of halves stay what they are in memory, which instructions multiply. */
static bool is_of_halves(const struct uop *u)
{
    return u->dtype == DTYPE_BF16 && u->arg.i && VECTOR_IS_GROUPS(u->arg.i);
}

static value load(struct emit *e, const struct uop *u)
{
    if (is_of_halves(u))
        return load_elements(e, u->dtype, element_at(e, u), u->arg.i);
    return from_memory(e, u->dtype, load_elements(e, u->dtype, element_at(e, u), u->arg.i),
                       u->lanes);
}

/* Computed only where the condition holds. */
static value load_where(struct emit *e, const struct uop *u)
{
    LLVMBasicBlockRef then = block_new(e, "inside"), after = block_new(e, "loaded");
    LLVMTypeRef type = is_of_halves(u) ? vector_of(e, e->i16, u->lanes)
                                       : type_of(e, u->dtype, u->lanes);
    value valid = operand(e, u->src[2]);
    value otherwise = u->nsrc > 3 ? operand(e, u->src[3]) : e->l->ConstNull(type);
    if (u->nsrc > 3 && u->lanes > 1 && u->src[3]->lanes == 1)
        otherwise = splat(e, otherwise, u->lanes);
    LLVMBasicBlockRef before = e->l->GetInsertBlock(e->at);
    e->l->BuildCondBr(e->at, valid, then, after);
    e->l->PositionBuilderAtEnd(e->at, then);
    value v = load(e, u);
    LLVMBasicBlockRef end = e->l->GetInsertBlock(e->at);
    e->l->BuildBr(e->at, after);
    e->l->PositionBuilderAtEnd(e->at, after);
    value r = e->l->BuildPhi(e->at, type, "");
    e->l->AddIncoming(r, (value[]){v, otherwise}, (LLVMBasicBlockRef[]){end, before}, 2);
    return r;
}

void emit_load(struct emit *e, const struct uop *u)
{
    define(e, u, u->nsrc > 2 ? load_where(e, u) : load(e, u));
}

static void store_elements(struct emit *e, enum dtype d, value v, value at, int64_t bits, int lanes)
{
    LLVMTypeRef type = type_in_memory(e, d);
    unsigned align = alignment_of(d, bits);
    int part = bits ? VECTOR_PART(bits) : 0, n = part ? part : lanes;
    if (lanes == 1 || (n == lanes && VECTOR_STRIDE(bits) == 1)) {
        store_as(e, v, at, align);
        return;
    }
    if (VECTOR_STRIDE(bits) == 1) {
        int from[128];
        for (int l = 0; l < n; l++)
            from[l] = l;
        store_as(e, shuffle(e, v, NULL, from, n), at, align);
        return;
    }
    for (int l = 0; l < n; l++)
        store_as(e, e->l->BuildExtractElement(e->at, v, const_int(e, e->i32, l), ""),
                 pointer_at(e, at, type, const_int(e, e->i64, lane_at(bits, l))), align);
}

void emit_store(struct emit *e, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    bool guarded = u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL;
    int lanes = u->src[2]->lanes;
    if (guarded)
        guard_open(e, u, operand(e, u->src[3]));
    value v = operand(e, u->src[2]);
    if (u->src[2]->lanes == 1 && u->arg.i && VECTOR_LANES(u->arg.i) > 1)
        v = splat(e, v, lanes = VECTOR_LANES(u->arg.i));
    store_elements(e, b->dtype, to_memory(e, b->dtype, v, lanes), element_at(e, u), u->arg.i,
                   lanes);
    if (guarded)
        loop_close(e);
}

/* LLVM goes lane by lane where the processor has no instruction for it. */
static value gather_all(struct emit *e, const struct uop *u, value base, value at)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    LLVMTypeRef type = type_in_memory(e, b->dtype);
    LLVMTypeRef pointers = vector_of(e, e->l->PointerType(type, 0), u->lanes);
    value typed = e->l->BuildBitCast(e->at, base, e->l->PointerType(type, 0), "");
    value p = e->l->BuildGEP2(e->at, type, typed, &at, 1, "");
    LLVMTypeRef types[2] = {vector_of(e, type, u->lanes), pointers};
    bool conditional = u->nsrc > 3;
    value mask = conditional ? operand(e, u->src[3]) : splat(e, const_int(e, e->i1, 1), u->lanes);
    if (conditional && u->src[3]->lanes == 1)
        mask = splat(e, mask, u->lanes);
    value otherwise = conditional ? operand(e, u->src[4]) : e->l->GetUndef(types[0]);
    if (conditional && u->src[4]->lanes == 1)
        otherwise = splat(e, otherwise, u->lanes);
    value arg[4] = {p, const_int(e, e->i32, (int64_t)dtype_nbytes(b->dtype)), mask, otherwise};
    return call_intrinsic(e, "llvm.masked.gather", types, 2, arg, 4);
}

void emit_gather(struct emit *e, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    value base = pointer_at(e, place_of(e, b), type_in_memory(e, b->dtype),
                            offset_wide(e, u->src[1]));
    if (b->dtype != DTYPE_F32 && b->dtype != DTYPE_I32)
        TGC_BUG(e->t, "a gather of %s", dtype_name(b->dtype));
    define(e, u, gather_all(e, u, base, operand(e, u->src[2])));
}

/* The offset may be past the buffer's end: the address is computed as an integer's would be. */
void emit_prefetch(struct emit *e, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    value nbytes = const_int(e, e->i64, (int64_t)dtype_nbytes(b->dtype));
    value at = pointer_at(e, place_of(e, b), e->i8,
                          binary(e, LLVM_MUL,
                                 cast_to(e, LLVM_SEXT, offset_wide(e, u->src[1]), e->i64), nbytes));
    value arg[4] = {at, const_int(e, e->i32, 0), const_int(e, e->i32, 2),
                    const_int(e, e->i32, 1)};
    LLVMTypeRef type = e->pointer;
    call_intrinsic(e, "llvm.prefetch", &type, 1, arg, 4);
}
