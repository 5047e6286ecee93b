/* operands.c - what a uop reads: constants, symbols, accumulators, and values that were computed
 * before.
 *
 * Counters of loops, their sums and products are as wide as an address, where that has 64 bits: the
 * passes that make them so take LLVM a fifth of its time. What reads them as an i32 truncates them.
 */
#include "backends/llvm/emit.h"
#include "ir/device_ops.h"

#include <string.h>

static value constant(struct emit *e, const struct uop *u)
{
    if (u->dtype == DTYPE_STRING) {
        const char *s = u->arg.p ? u->arg.p : "";
        size_t n = strlen(s);
        value text = e->l->ConstStringInContext(e->context, s, (unsigned)n, 0);
        value g = e->l->AddGlobal(e->module, e->l->TypeOf(text), "");
        e->l->SetInitializer(g, text);
        e->l->SetGlobalConstant(g, 1);
        e->l->SetLinkage(g, LLVM_PRIVATE);
        return e->l->ConstBitCast(g, e->pointer);
    }
    LLVMTypeRef type = type_of(e, u->dtype, 1);
    if (!dtype_is_float(u->dtype))
        return const_int(e, type, u->arg.i);
    return e->l->ConstReal(type, u->dtype == DTYPE_F64 ? u->arg.f : (double)(float)u->arg.f);
}

/* As an i64. */
static value symbol(struct emit *e, const struct uop *u)
{
    const struct var *v = u->arg.p;
    if (!e->k)
        return load_as(e, e->i64, e->var[v->id], 0);
    for (int i = 0; i < e->k->nvar; i++)
        if (e->k->var[i] == v)
            return e->var[i];
    TGC_BUG(e->t, "kernel %s reads the symbol %s, which is not among its parameters", e->k->name,
            v->name);
}

const struct uop *acc_tile(const struct emit *e, const struct uop *acc)
{
    return e->gpu ? matrix_kept_tile(e->linear, e->nlinear, acc) : NULL;
}

/* Of tiles the words that a lane of the wave holds. */
LLVMTypeRef acc_type(struct emit *e, const struct uop *acc)
{
    const struct uop *tile = acc_tile(e, acc);
    int factor;
    if (!tile)
        return type_of(e, acc->dtype, acc->lanes);
    const struct uop *product = matrix_of_tile(e->linear, e->nlinear, tile, &factor);
    if (!product)
        TGC_BUG(e->t, "kernel %s: a tile without a product", e->k->name);
    return e->l->VectorType(e->i32, (unsigned)matrix_words(matrix_row(MATRIX_ROW(product->arg.i)),
                                                           factor ? MATRIX_B : MATRIX_A));
}

/* The element of the lanes that are open. */
value acc_place(struct emit *e, const struct uop *acc)
{
    value p = map_get(&e->known, acc), at = const_int(e, e->i64, 0);
    if (!p)
        TGC_BUG(e->t, "kernel %s uses an accumulator before it is set", e->k->name);
    for (int k = 1; k < acc->nsrc; k++) {
        value lane = map_get(&e->known, acc->src[k]);
        at = binary(e, LLVM_MUL, at, const_int(e, e->i64, acc->src[k]->src[0]->vmax));
        if (lane)
            at = binary(e, LLVM_ADD, at, cast_to(e, LLVM_SEXT, lane, e->i64));
    }
    return acc->nsrc > 1 ? pointer_at(e, p, acc_type(e, acc), at) : p;
}

static value acc_read(struct emit *e, const struct uop *acc)
{
    return load_as(e, acc_type(e, acc), acc_place(e, acc), 0);
}

/* As it was made. */
static value operand_made(struct emit *e, const struct uop *u)
{
    if (u->op == OP_CONST)
        return constant(e, u);
    if (u->op == OP_VAR)
        return symbol(e, u);
    if (u->op == OP_ACC)
        return acc_read(e, u);
    if (u->op == OP_ASSIGN)
        return acc_read(e, u->src[0]);
    value v = map_get(&e->known, u);
    if (!v)
        TGC_BUG(e->t, "kernel %s uses a %s before it is computed", e->k ? e->k->name : "run",
                op_name(u->op));
    return v;
}

value operand(struct emit *e, const struct uop *u)
{
    value v = operand_made(e, u);
    return e->l->TypeOf(v) == e->i64 ? cast_to(e, LLVM_TRUNC, v, type_of(e, u->dtype, 1)) : v;
}

value offset_wide(struct emit *e, const struct uop *u)
{
    bool widens = e->size == e->i64 && u->dtype == DTYPE_I32 && u->lanes == 1;
    return widens ? cast_to(e, LLVM_SEXT, operand_made(e, u), e->i64) : operand(e, u);
}

bool is_offset(struct emit *e, const struct uop *u)
{
    bool plain = u->arg.i == ARG_PLAIN && (u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL);
    for (int k = 0; k < u->nsrc && plain && u->dtype == DTYPE_I32 && u->lanes == 1; k++) {
        value v = map_get(&e->known, u->src[k]);
        if (u->src[k]->op == OP_VAR || (v && e->l->TypeOf(v) == e->i64))
            return e->size == e->i64;
    }
    return false;
}

void define(struct emit *e, const struct uop *u, value v) { map_set(&e->known, u, v); }
