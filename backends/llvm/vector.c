/* vector.c - what only vectors have: splats, ramps, folds, and the operations of ir/intrinsics.def.
 *
 * Intrinsics are written by their meaning, which LLVM turns into what the processor has; where that
 * is an instruction that it does not find, native_dot() names it.
 */
#include "backends/llvm/emit.h"

#include <string.h>

static value const_lanes(const struct emit *e, LLVMTypeRef type, int lanes)
{
    value *lane = scratch_array(e->t, (size_t)lanes, sizeof *lane);
    for (int i = 0; i < lanes; i++)
        lane[i] = type == e->f32 ? e->l->ConstReal(type, i) : const_int(e, type, i);
    return e->l->ConstVector(lane, (unsigned)lanes);
}

static value emit_splat(struct emit *e, const struct uop *u)
{
    value v = operand(e, u->src[0]);
    int from[128], had = u->src[0]->lanes;
    if (had == 1 && u->dtype == DTYPE_BF16)               /* groups of halves, which are words */
        return splat(e, to_memory(e, DTYPE_BF16, v, 1), u->lanes);
    if (had == 1)
        return splat(e, cast_to(e, LLVM_TRUNC, v, e->l->TypeOf(v) == e->i32 &&
                                                          dtype_is_byte(u->dtype)
                                                      ? e->i8
                                                      : e->l->TypeOf(v)), u->lanes);
    for (int i = 0; i < u->lanes; i++)
        from[i] = i % had;
    return shuffle(e, v, NULL, from, u->lanes);
}

static value fold_two(struct emit *e, enum op op, enum dtype d, value a, value b)
{
    bool is_float = dtype_is_float(d);
    return op == OP_ADD   ? binary(e, is_float ? LLVM_FADD : LLVM_ADD, a, b)
           : op == OP_MUL ? binary(e, is_float ? LLVM_FMUL : LLVM_MUL, a, b)
                          : extreme(e, op, d, a, b);
}

/* Halves are combined until one lane is left. */
static value emit_fold(struct emit *e, const struct uop *u)
{
    value v = operand(e, u->src[0]);
    for (int n = u->src[0]->lanes; n > 1; n /= 2) {
        int low[128], high[128];
        if (n % 2)
            TGC_BUG(e->t, "a vector of %d lanes", n);
        for (int i = 0; i < n / 2; i++) {
            low[i] = i;
            high[i] = n / 2 + i;
        }
        v = fold_two(e, (enum op)u->arg.i, u->dtype, shuffle(e, v, NULL, low, n / 2),
                     shuffle(e, v, NULL, high, n / 2));
    }
    return v;
}

static value clamp(struct emit *e, enum dtype d, value v, LLVMTypeRef type, int lanes, int64_t lo,
                   int64_t hi)
{
    v = extreme(e, OP_MAX, d, v, splat(e, const_int(e, type, lo), lanes));
    return extreme(e, OP_MIN, d, v, splat(e, const_int(e, type, hi), lanes));
}

static value emit_narrow(struct emit *e, const struct uop *u)
{
    value v = operand(e, u->src[0]);
    LLVMTypeRef type = vector_of(e, e->i32, u->lanes);
    if (u->src[0]->dtype == DTYPE_F32) {
        v = float_to_int(e, DTYPE_I32, DTYPE_F32, v, u->lanes);
        return clamp(e, DTYPE_I32, v, e->i32, u->lanes, -u->arg.i, u->arg.i);
    }
    v = clamp(e, DTYPE_I64, v, e->i64, u->lanes, -u->arg.i, u->arg.i);
    return cast_to(e, LLVM_TRUNC, v, type);
}

static value emit_nearest(struct emit *e, const struct uop *u)
{
    value v = operand(e, u->src[0]);
    LLVMTypeRef type = e->l->TypeOf(v);
    v = call_intrinsic(e, "llvm.roundeven", &type, 1, &v, 1);
    v = cast_to(e, LLVM_FPTOSI, v, vector_of(e, e->i32, u->lanes));
    v = clamp(e, DTYPE_I32, v, e->i32, u->lanes, dtype_min(u->dtype), dtype_max(u->dtype));
    return cast_to(e, LLVM_TRUNC, v, vector_of(e, e->i8, u->lanes));
}

/* ----------------------------------------------------------------------------------- intrinsics */

static bool has(const struct emit *e, const char *feature)
{
    return machine_has_feature(e, feature, (int)strlen(feature));
}

/* AVX-512's own dot product of bytes. */
static value x86_dot(struct emit *e, value sum, value a, value b, int n)
{
    char name[64];
    LLVMTypeRef type = vector_of(e, e->i32, n);
    value arg[3] = {sum, e->l->BuildBitCast(e->at, a, type, ""),
                    e->l->BuildBitCast(e->at, b, type, "")};
    snprintf(name, sizeof name, "llvm.x86.avx512.vpdpbusd.%d", 32 * n);
    return call_intrinsic(e, name, NULL, 0, arg, 3);
}

/* NEON's: of signed bytes, or with I8MM of unsigned ones in a. A byte less 128 is the signed byte
 * with its highest bit inverted. */
static value neon_dot(struct emit *e, value sum, value a, value b, int n, bool centered)
{
    LLVMTypeRef types[2] = {vector_of(e, e->i32, n), vector_of(e, e->i8, DOT_BYTES * n)};
    if (centered)
        a = binary(e, LLVM_XOR, a, splat(e, const_int(e, e->i8, -128), DOT_BYTES * n));
    return call_intrinsic(e, centered ? "llvm.aarch64.neon.sdot" : "llvm.aarch64.neon.usdot", types,
                          2, (value[]){sum, a, b}, 3);
}

/* NEON without these: 16-bit products, four of which are added in pairs, twice. */
static value neon_pairs(struct emit *e, value sum, value a, value b)
{
    enum { NPART = 4, LANES = 4 };
    LLVMTypeRef type = vector_of(e, e->i32, LANES), wide = vector_of(e, e->i16, NPART * LANES);
    value x = cast_to(e, LLVM_ZEXT, a, wide), y = cast_to(e, LLVM_SEXT, b, wide), part[NPART];
    for (int k = 0; k < NPART; k++) {
        int from[LANES];
        for (int i = 0; i < LANES; i++)
            from[i] = LANES * k + i;
        part[k] = call_intrinsic(
            e, "llvm.aarch64.neon.smull", &type, 1,
            (value[]){shuffle(e, x, NULL, from, LANES), shuffle(e, y, NULL, from, LANES)}, 2);
    }
    for (int n = NPART / 2; n > 0; n /= 2)
        for (int k = 0; k < n; k++)
            part[k] = call_intrinsic(e, "llvm.aarch64.neon.addp", &type, 1,
                                     (value[]){part[2 * k], part[2 * k + 1]}, 2);
    return binary(e, LLVM_ADD, sum, part[0]);
}

/* By the processor's own instructions; NULL: it has none for vectors of this size. */
static value native_dot(struct emit *e, value sum, value a, value b, int n, bool centered)
{
    if (!centered && has(e, "avx512vnni") && has(e, "avx512vl") && (n == 4 || n == 8 || n == 16))
        return x86_dot(e, sum, a, b, n);
    if (has(e, centered ? "dotprod" : "i8mm") && (n == 2 || n == 4))
        return neon_dot(e, sum, a, b, n, centered);
    if (!centered && machine_has(e, ISA_NEON) && n == 4)
        return neon_pairs(e, sum, a, b);
    return NULL;
}

/* Each lane: the sum plus the dot product of its four bytes. */
static value emit_dot(struct emit *e, const struct uop *u, bool centered)
{
    int n = u->lanes, from[128];
    value sum = operand(e, u->src[0]), a = operand(e, u->src[1]), b = operand(e, u->src[2]);
    value own = e->gpu ? gpu_dot(e, sum, a, b, n)
                : n == 1 ? NULL
                         : native_dot(e, sum, a, b, n, centered);
    if (own)
        return own;
    LLVMTypeRef wide = vector_of(e, e->i32, 4 * n);
    value x = cast_to(e, LLVM_ZEXT, a, wide), y = cast_to(e, LLVM_SEXT, b, wide);
    if (centered)
        x = binary(e, LLVM_SUB, x, splat(e, const_int(e, e->i32, 128), 4 * n));
    value product = binary(e, LLVM_MUL, x, y);
    for (int k = 0; k < DOT_BYTES; k++) {
        value part;
        for (int i = 0; i < n; i++)
            from[i] = DOT_BYTES * i + k;
        part = n == 1 ? e->l->BuildExtractElement(e->at, product, const_int(e, e->i32, k), "")
                      : shuffle(e, product, NULL, from, n);
        sum = binary(e, LLVM_ADD, sum, part);
    }
    return sum;
}

/* A call with operands as the instruction takes them, by their bits: versions of LLVM differ. */
static value call_by_bits(struct emit *e, const char *name, LLVMTypeRef *type, int ntype,
                          value *arg, int n)
{
    LLVMTypeRef want[3];
    unsigned id = e->l->LookupIntrinsicID(name, strlen(name));
    if (!id || n > 3)
        TGC_BUG(e->t, "LLVM has no %s", name);
    value f = e->l->GetIntrinsicDeclaration(e->module, id, type, (size_t)ntype);
    e->l->GetParamTypes(e->l->GlobalGetValueType(f), want);
    for (int i = 0; i < n; i++)
        arg[i] = e->l->BuildBitCast(e->at, arg[i], want[i], "");
    return call(e, f, arg, n);
}

/* Each lane: the sum plus the dot product of its pair of bf16, the upper ones first. */
static value emit_dot_bf16(struct emit *e, const struct uop *u)
{
    int n = u->lanes;
    LLVMTypeRef f32 = vector_of(e, e->f32, n), i32 = vector_of(e, e->i32, n);
    value arg[3] = {operand(e, u->src[0]), operand(e, u->src[1]), operand(e, u->src[2])};
    char name[64];
    if (has(e, "avx512bf16") && has(e, "avx512vl") && (n == 4 || n == 8 || n == 16)) {
        snprintf(name, sizeof name, "llvm.x86.avx512bf16.dpbf16ps.%d", 32 * n);
        return call_by_bits(e, name, NULL, 0, arg, 3);
    }
    if (has(e, "bf16") && (n == 2 || n == 4)) {
        LLVMTypeRef types[2] = {f32, vector_of(e, e->l->BFloatTypeInContext(e->context), 2 * n)};
        return call_by_bits(e, "llvm.aarch64.neon.bfdot", types, 2, arg, 3);
    }
    value upper = splat(e, const_int(e, e->i32, -65536), n),
          half = splat(e, const_int(e, e->i32, 16), n), part[2][2];
    for (int k = 0; k < 2; k++) {
        value bits = e->l->BuildBitCast(e->at, arg[1 + k], i32, "");
        part[0][k] = e->l->BuildBitCast(e->at, binary(e, LLVM_AND, bits, upper), f32, "");
        part[1][k] = e->l->BuildBitCast(e->at, binary(e, LLVM_SHL, bits, half), f32, "");
    }
    value sum = call_intrinsic(e, "llvm.fma", &f32, 1,
                               (value[]){part[0][0], part[0][1], arg[0]}, 3);
    return call_intrinsic(e, "llvm.fma", &f32, 1, (value[]){part[1][0], part[1][1], sum}, 3);
}

/* AVX-512's lookup in 128 bytes, twice: it ignores the bits of the index above the lowest seven.
 * NULL: the processor has none. */
static value native_lookup(struct emit *e, value table, value index, int n)
{
    enum { REGISTER = 64, NPART = 4 };
    if (n != REGISTER || !has(e, "avx512vbmi"))
        return NULL;
    LLVMTypeRef type = vector_of(e, e->i8, n);
    value part[NPART];
    for (int i = 0; i < NPART; i++)
        part[i] =
            load_as(e, type, pointer_at(e, table, e->i8, const_int(e, e->i64, REGISTER * i)), 1);
    const char *name = "llvm.x86.avx512.vpermi2var.qi.512";
    value low = call_intrinsic(e, name, NULL, 0, (value[]){part[0], index, part[1]}, 3);
    value high = call_intrinsic(e, name, NULL, 0, (value[]){part[2], index, part[3]}, 3);
    value upper = e->l->BuildICmp(e->at, LLVM_SLT, index, e->l->ConstNull(type), "");
    return choose(e, upper, high, low);
}

/* The table begins with the element of the least index. */
static value emit_lookup(struct emit *e, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    value table = place_of(e, b), index = operand(e, u->src[1]);
    value v = e->l->GetUndef(vector_of(e, e->i8, u->lanes));
    bool is_signed = u->src[1]->dtype == DTYPE_I8;
    value least = splat(e, const_int(e, e->i8, is_signed ? -128 : 0), u->lanes);
    value own = native_lookup(e, table, binary(e, LLVM_XOR, index, least), u->lanes);
    if (own)
        return own;
    for (int i = 0; i < u->lanes; i++) {
        value lane = const_int(e, e->i32, i);
        value at = e->l->BuildExtractElement(e->at, index, lane, "");
        at = cast_to(e, is_signed ? LLVM_SEXT : LLVM_ZEXT, at, e->i64);
        if (is_signed)
            at = binary(e, LLVM_ADD, at, const_int(e, e->i64, 128));
        v = e->l->BuildInsertElement(
            e->at, v, load_as(e, e->i8, pointer_at(e, table, e->i8, at), 1), lane, "");
    }
    return v;
}

/* Interleaves the even groups of both, or the odd ones. */
static value emit_interleave(struct emit *e, const struct uop *u, bool odd)
{
    int from[128], group = (int)INTRINSIC_PARAM(u->arg.i, 1);
    for (int i = 0; i < u->lanes; i++) {
        int second = i / group % 2, pair = i / (2 * group);
        from[i] = second * u->lanes + pair * 2 * group + odd * group + i % group;
    }
    return shuffle(e, operand(e, u->src[0]), operand(e, u->src[1]), from, u->lanes);
}

static value emit_intrinsic(struct emit *e, const struct uop *u)
{
    int from[128];
    switch (INTRINSIC_ROW(u->arg.i)) {
    case INTRINSIC_DOT: return emit_dot(e, u, false);
    case INTRINSIC_DOT_CENTERED: return emit_dot(e, u, true);
    case INTRINSIC_DOT_BF16: return emit_dot_bf16(e, u);
    case INTRINSIC_LOOKUP: case INTRINSIC_LOOKUP_I8: return emit_lookup(e, u);
    case INTRINSIC_EVENS: return emit_interleave(e, u, false);
    case INTRINSIC_ODDS: return emit_interleave(e, u, true);
    case INTRINSIC_HALF:
        for (int i = 0; i < u->lanes; i++)
            from[i] = i;
        return shuffle(e, operand(e, u->src[0]), NULL, from, u->lanes);
    default:
        TGC_BUG(e->t, "%s has no form in LLVM", intrinsic_name(INTRINSIC_ROW(u->arg.i)));
    }
}

bool emit_vector(struct emit *e, const struct uop *u)
{
    value v;
    switch (u->op) {
    case OP_SPLAT: v = emit_splat(e, u); break;
    case OP_RAMP:
        v = binary(e, LLVM_FADD, splat(e, operand(e, u->src[0]), u->lanes),
                   const_lanes(e, e->f32, u->lanes));
        break;
    case OP_LANES: v = const_lanes(e, e->i32, u->lanes); break;
    case OP_FOLD: v = emit_fold(e, u); break;
    case OP_LANE:
        v = e->l->BuildExtractElement(e->at, operand(e, u->src[0]), const_int(e, e->i32, u->arg.i),
                                      "");
        break;
    case OP_NARROW: v = emit_narrow(e, u); break;
    case OP_NEAREST: v = emit_nearest(e, u); break;
    case OP_INTRINSIC: v = emit_intrinsic(e, u); break;
    default: return false;
    }
    define(e, u, v);
    return true;
}
