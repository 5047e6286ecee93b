/* ops.c - the elementwise ops, on scalars and on vectors.
 *
 * Integers wrap; where the program says so (ARG_PLAIN: target/widths.c) they cannot, nor divide by
 * zero, and have LLVM's operator that need not. What neither LLVM nor a processor has is a call of
 * a function of runtime/, whose name is the op's and the type's: exp_f32, div_i64, tanh_f32x8.
 */
#include "backends/llvm/emit.h"

#include <math.h>

static value compare(struct emit *e, const struct uop *u, value *src)
{
    enum dtype d = u->src[0]->dtype;
    if (d == DTYPE_STRING) {
        value same = call_piece(e, "equal_string", e->i8, src, 2);
        return e->l->BuildICmp(e->at, u->op == OP_EQ ? LLVM_NE : LLVM_EQ, same,
                               const_int(e, e->i8, 0), "");
    }
    if (dtype_is_float(d))
        return e->l->BuildFCmp(e->at, u->op == OP_LT   ? LLVM_OLT
                                      : u->op == OP_EQ ? LLVM_OEQ
                                                       : LLVM_UNE, src[0], src[1], "");
    bool positive = d == DTYPE_BOOL || dtype_min(d) == 0;
    return e->l->BuildICmp(e->at, u->op == OP_EQ   ? LLVM_EQ
                                  : u->op == OP_NE ? LLVM_NE
                                  : positive       ? LLVM_ULT
                                                   : LLVM_SLT, src[0], src[1], "");
}

static value by_piece(struct emit *e, enum op op, enum dtype d, int lanes, value *src, int n);

/* A device's thread computes lane by lane. */
static value by_lanes(struct emit *e, enum op op, enum dtype d, int lanes, value *src, int n)
{
    value r = e->l->GetUndef(e->l->TypeOf(src[0])), one[3];
    for (int i = 0; i < lanes; i++) {
        value at = const_int(e, e->i32, i);
        for (int k = 0; k < n; k++)
            one[k] = e->l->BuildExtractElement(e->at, src[k], at, "");
        r = e->l->BuildInsertElement(e->at, r, by_piece(e, op, d, 1, one, n), at, "");
    }
    return r;
}

/* A function of runtime/ for the op on values of this dtype. */
static value by_piece(struct emit *e, enum op op, enum dtype d, int lanes, value *src, int n)
{
    const char *type = dtype_is_float(d)       ? d == DTYPE_F64 ? "f64" : "f32"
                       : d == DTYPE_U32        ? "u32"
                       : d == DTYPE_U64        ? "u64"
                       : dtype_bits(d) == 64   ? "i64"
                                               : "i32";
    if (e->gpu && lanes > 1)
        return by_lanes(e, op, d, lanes, src, n);
    const char *name = lanes > 1 ? mem_printf(e->t, "%s_%sx%d", op_name(op), type, lanes)
                                 : mem_printf(e->t, "%s_%s", op_name(op), type);
    return call_piece(e, name, e->l->TypeOf(src[0]), src, n);
}

value extreme(struct emit *e, enum op op, enum dtype d, value a, value b)
{
    bool most = op == OP_MAX;
    if (d == DTYPE_BOOL)
        return binary(e, most ? LLVM_OR : LLVM_AND, a, b);
    if (!dtype_is_float(d)) {
        bool positive = dtype_min(d) == 0;
        value less = e->l->BuildICmp(e->at, positive ? LLVM_ULT : LLVM_SLT, a, b, "");
        return most ? choose(e, less, b, a) : choose(e, less, a, b);
    }
    value beyond = e->l->BuildFCmp(e->at, most ? LLVM_OLT : LLVM_OGT, a, b, "");
    value nan = e->l->BuildFCmp(e->at, LLVM_UNO, b, b, "");
    return choose(e, binary(e, LLVM_OR, beyond, nan), b, a);
}

/* Of floats, the first of which is known to be no NaN, or one is a number: one comparison, and
 * processors have it. */
static value maximum(struct emit *e, const struct uop *u, value *src)
{
    bool first = u->arg.i == ARG_PLAIN && u->lanes > 1;
    for (int k = 0; k < 2 && dtype_is_float(u->dtype); k++)
        if ((first && k == 0) || (u->src[k]->op == OP_CONST && !isnan(u->src[k]->arg.f))) {
            int is = u->op == OP_MAX ? LLVM_OGT : LLVM_OLT;
            return choose(e, e->l->BuildFCmp(e->at, is, src[k], src[1 - k], ""), src[k],
                          src[1 - k]);
        }
    return extreme(e, u->op, u->dtype, src[0], src[1]);
}

static value same_intrinsic(struct emit *e, const char *name, value *src, int n)
{
    LLVMTypeRef type = e->l->TypeOf(src[0]);
    return call_intrinsic(e, name, &type, 1, src, n);
}

static value apply_float(struct emit *e, const struct uop *u, value *src)
{
    LLVMTypeRef type = e->l->TypeOf(src[0]);
    value one;
    switch (u->op) {
    case OP_NEG: return e->l->BuildFNeg(e->at, src[0], "");
    case OP_ABS: return same_intrinsic(e, "llvm.fabs", src, 1);
    case OP_SQRT: return same_intrinsic(e, "llvm.sqrt", src, 1);
    case OP_FLOOR: return same_intrinsic(e, "llvm.floor", src, 1);
    case OP_CEIL: return same_intrinsic(e, "llvm.ceil", src, 1);
    case OP_TRUNC: return same_intrinsic(e, "llvm.trunc", src, 1);
    case OP_ROUND: return same_intrinsic(e, "llvm.roundeven", src, 1);
    case OP_RECIP:
        one = splat(e, e->l->ConstReal(u->dtype == DTYPE_F64 ? e->f64 : e->f32, 1), u->lanes);
        return binary(e, LLVM_FDIV, one, src[0]);
    case OP_ISNAN: return e->l->BuildFCmp(e->at, LLVM_UNO, src[0], e->l->ConstNull(type), "");
    case OP_ADD: return binary(e, LLVM_FADD, src[0], src[1]);
    case OP_SUB: return binary(e, LLVM_FSUB, src[0], src[1]);
    case OP_MUL: return binary(e, LLVM_FMUL, src[0], src[1]);
    case OP_DIV: return binary(e, LLVM_FDIV, src[0], src[1]);
    case OP_FLOORDIV:
        one = binary(e, LLVM_FDIV, src[0], src[1]);
        return same_intrinsic(e, "llvm.floor", &one, 1);
    case OP_MULACC:
        if (u->dtype == DTYPE_F64 && !e->gpu)
            return binary(e, LLVM_FADD, binary(e, LLVM_FMUL, src[0], src[1]), src[2]);
        return same_intrinsic(e, "llvm.fma", src, 3);
    case OP_EXP2:
        if (e->gpu && u->dtype == DTYPE_F32 && u->lanes == 1)
            return call(e, gpu_function(e, "gpu.exp2", e->f32, &e->f32, 1), src, 1);
        return by_piece(e, u->op, u->dtype, u->lanes, src, 1);
    case OP_EXP1:
        if (!e->gpu)
            return by_piece(e, u->op, u->dtype, u->lanes, src, 1);
        one = e->l->BuildFNeg(e->at, src[0], "");
        one = by_piece(e, OP_EXP, u->dtype, u->lanes, &one, 1);
        return binary(e, LLVM_FADD, one, splat(e, e->l->ConstReal(e->f32, 1), u->lanes));
    default: return by_piece(e, u->op, u->src[0]->dtype, u->lanes, src, u->nsrc);
    }
}

static value apply_bool(struct emit *e, const struct uop *u, value *src)
{
    switch (u->op) {
    case OP_NOT: return e->l->BuildNot(e->at, src[0], "");
    case OP_ADD: case OP_OR: return binary(e, LLVM_OR, src[0], src[1]);
    case OP_MUL: case OP_AND: return binary(e, LLVM_AND, src[0], src[1]);
    case OP_XOR: return binary(e, LLVM_XOR, src[0], src[1]);
    default: TGC_BUG(e->t, "%s of bools", op_name(u->op));
    }
}

/* Whether a shift's count is less than the width. */
static bool is_short(const struct uop *u, int bits)
{
    return u->src[1]->vmin >= 0 && u->src[1]->vmax < bits && u->src[1]->dtype != DTYPE_U64;
}

static value absolute(struct emit *e, const struct uop *u, value v)
{
    if (dtype_min(u->dtype) == 0)
        return v;
    value zero = e->l->ConstNull(e->l->TypeOf(v));
    return choose(e, e->l->BuildICmp(e->at, LLVM_SLT, v, zero, ""), e->l->BuildNeg(e->at, v, ""),
                  v);
}

static value power(struct emit *e, const struct uop *u, value *src)
{
    bool wide = u->dtype == DTYPE_U64;
    struct uop from = {.dtype = wide ? DTYPE_U64 : DTYPE_I64, .lanes = 1};
    for (int k = 0; k < 2 && !wide; k++)
        src[k] = convert(e, DTYPE_I64, u->src[k], src[k]);
    value r = call_piece(e, wide ? "pow_u64" : "pow_i64", e->i64, src, 2);
    return convert(e, u->dtype, &from, r);
}

/* Runtime's shifts take a wide count. */
static value shift(struct emit *e, const struct uop *u, value *src)
{
    bool is_signed = dtype_min(u->dtype) < 0;
    if (is_short(u, dtype_bits(u->dtype) == 64 ? 64 : 32))
        return binary(e, u->op == OP_SHL ? LLVM_SHL : is_signed ? LLVM_ASHR : LLVM_LSHR, src[0],
                      src[1]);
    src[1] = cast_to(e, is_signed ? LLVM_SEXT : LLVM_ZEXT, src[1], e->i64);
    return by_piece(e, u->op, u->dtype, 1, src, 2);
}

static value apply_int(struct emit *e, const struct uop *u, value *src)
{
    bool plain = u->arg.i == ARG_PLAIN;
    switch (u->op) {
    case OP_NEG: return e->l->BuildNeg(e->at, src[0], "");
    case OP_NOT: return e->l->BuildNot(e->at, src[0], "");
    case OP_ABS: return absolute(e, u, src[0]);
    case OP_ADD:
        return plain ? e->l->BuildNSWAdd(e->at, src[0], src[1], "")
                     : binary(e, LLVM_ADD, src[0], src[1]);
    case OP_SUB:
        return plain ? e->l->BuildNSWSub(e->at, src[0], src[1], "")
                     : binary(e, LLVM_SUB, src[0], src[1]);
    case OP_MUL:
        return plain ? e->l->BuildNSWMul(e->at, src[0], src[1], "")
                     : binary(e, LLVM_MUL, src[0], src[1]);
    case OP_MULACC: return binary(e, LLVM_ADD, binary(e, LLVM_MUL, src[0], src[1]), src[2]);
    case OP_AND: return binary(e, LLVM_AND, src[0], src[1]);
    case OP_OR: return binary(e, LLVM_OR, src[0], src[1]);
    case OP_XOR: return binary(e, LLVM_XOR, src[0], src[1]);
    case OP_SHL: case OP_SHR: return shift(e, u, src);
    case OP_POW: return power(e, u, src);
    case OP_DIV: case OP_FLOORDIV:
        if (plain)
            return binary(e, LLVM_SDIV, src[0], src[1]);
        break;
    case OP_MOD: case OP_FLOORMOD:
        if (plain)
            return binary(e, LLVM_SREM, src[0], src[1]);
        break;
    default: break;
    }
    bool positive = u->dtype == DTYPE_U32 || u->dtype == DTYPE_U64;
    enum op op = positive && u->op == OP_FLOORDIV   ? OP_DIV
                 : positive && u->op == OP_FLOORMOD ? OP_MOD
                                                    : u->op;
    return by_piece(e, op, u->dtype, u->lanes, src, u->nsrc);
}

value apply(struct emit *e, const struct uop *u, value *src)
{
    for (int k = 0; k < u->nsrc; k++)            /* one scalar for all lanes */
        if (u->lanes > 1 && u->src[k]->lanes == 1 && !(u->op == OP_WHERE && k == 0))
            src[k] = splat(e, src[k], u->lanes);
    enum dtype d = u->src[u->nsrc - 1]->dtype;
    switch (u->op) {
    case OP_CAST: return convert(e, u->dtype, u->src[0], src[0]);
    case OP_BITCAST: return convert_bits(e, u->dtype, u->src[0]->dtype, src[0], u->lanes);
    case OP_WHERE: return choose(e, src[0], src[1], src[2]);
    case OP_LT: case OP_EQ: case OP_NE: return compare(e, u, src);
    case OP_MAX: case OP_MIN: return maximum(e, u, src);
    default: break;
    }
    return dtype_is_float(d)   ? apply_float(e, u, src)
           : d == DTYPE_BOOL ? apply_bool(e, u, src)
                             : apply_int(e, u, src);
}
