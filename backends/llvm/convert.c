/* convert.c - conversions between formats: of values, and between values and memory.
 *
 * A float becomes an integer as llvm.fpto.i.sat has it, which is the IR's meaning: towards zero,
 * saturated, 0 for NaN. Formats narrower than f32 are rounded by the functions of
 * runtime/number.c.
 */
#include "backends/llvm/emit.h"

#include <string.h>

static LLVMTypeRef int_type(const struct emit *e, int bits)
{
    return bits == 1    ? e->i1
           : bits == 8  ? e->i8
           : bits == 16 ? e->i16
           : bits == 32 ? e->i32
           : bits == 64 ? e->i64
                        : e->l->IntTypeInContext(e->context, (unsigned)bits);
}

static bool is_unsigned(enum dtype d) { return dtype_is_int(d) && dtype_min(d) == 0; }

/* Bits of a value of this dtype. */
static int value_bits(enum dtype d, int lanes)
{
    int bits = dtype_bits(d);
    return d == DTYPE_BOOL ? 1 : bits == 64 ? 64 : lanes > 1 && bits == 8 ? 8 : 32;
}

/* An integer of `bits` bits as a value of d, which has as many bits, or less. */
static value widen(const struct emit *e, enum dtype d, value v, int lanes)
{
    LLVMTypeRef type = type_of(e, d, lanes);
    return cast_to(e, is_unsigned(d) ? LLVM_ZEXT : LLVM_SEXT, v, type);
}

static value int_to_int(const struct emit *e, enum dtype to, enum dtype from, value v, int lanes)
{
    int had = value_bits(from, lanes), bits = dtype_bits(to);
    if (bits < had)
        v = cast_to(e, LLVM_TRUNC, v, vector_of(e, int_type(e, bits), lanes));
    else if (had < bits || had < value_bits(to, lanes)) {
        bool zero = from == DTYPE_BOOL || is_unsigned(from);
        v = cast_to(e, zero ? LLVM_ZEXT : LLVM_SEXT, v,
                    vector_of(e, int_type(e, value_bits(to, lanes)), lanes));
        if (bits < value_bits(to, lanes) && from != DTYPE_BOOL && had >= bits)
            v = cast_to(e, LLVM_TRUNC, v, vector_of(e, int_type(e, bits), lanes));
    }
    return widen(e, to, v, lanes);
}

/* Converts a vector to integers between lo and hi, which i32 holds, saturated. LLVM's own
 * saturating conversion is scalar code for each lane on x86. The operand is clamped to lo and hi
 * before it is converted; f32 has no 2^31 - 1, so there it is clamped to the largest float below,
 * and lanes above that are set to hi afterwards. */
static value saturate_lanes(const struct emit *e, value v, LLVMTypeRef real, int64_t lo, int64_t hi,
                            int lanes)
{
    bool is_exact = real == e->f64 || hi < INT32_MAX;
    value least = splat(e, e->l->ConstReal(real, (double)lo), lanes);
    value most = splat(e, e->l->ConstReal(real, is_exact ? (double)hi : 0x1.fffffep+30), lanes);
    value big = e->l->BuildFCmp(e->at, LLVM_OGT, v, most, "");
    value number = e->l->BuildFCmp(e->at, LLVM_ORD, v, v, "");
    v = choose(e, number, v, e->l->ConstNull(e->l->TypeOf(v)));
    v = choose(e, e->l->BuildFCmp(e->at, LLVM_OGT, v, least, ""), v, least);
    v = choose(e, e->l->BuildFCmp(e->at, LLVM_OLT, v, most, ""), v, most);
    v = cast_to(e, LLVM_FPTOSI, v, vector_of(e, e->i32, lanes));
    return is_exact ? v : choose(e, big, splat(e, const_int(e, e->i32, hi), lanes), v);
}

value float_to_int(struct emit *e, enum dtype to, enum dtype from, value v, int lanes)
{
    LLVMTypeRef real = type_of(e, from, 1), bits = int_type(e, dtype_bits(to));
    LLVMTypeRef type[2] = {vector_of(e, bits, lanes), e->l->TypeOf(v)};
    const char *name = is_unsigned(to) ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
    if (lanes > 1 && dtype_max(to) <= INT32_MAX)
        v = cast_to(e, LLVM_TRUNC, saturate_lanes(e, v, real, dtype_min(to), dtype_max(to), lanes),
                    type[0]);
    else
        v = call_intrinsic(e, name, type, 2, &v, 1);
    return widen(e, to, v, lanes);
}

static value round_to(struct emit *e, enum dtype d, value v, int lanes)
{
    if (lanes > 1 || dtype_is_half(d))
        return from_memory(e, d, to_memory(e, d, v, lanes), lanes);
    return call_piece(e, mem_printf(e->t, "round_%s", dtype_name(d)), e->f32, &v, 1);
}

static value int_to_float(const struct emit *e, enum dtype from, value v, LLVMTypeRef type)
{
    bool zero = from == DTYPE_BOOL || is_unsigned(from);
    return cast_to(e, zero ? LLVM_UITOFP : LLVM_SITOFP, v, type);
}

static value to_float(struct emit *e, enum dtype to, const struct uop *from, value v)
{
    int lanes = from->lanes;
    bool is_float = dtype_is_float(from->dtype), wide = from->dtype == DTYPE_F64;
    LLVMTypeRef f32 = vector_of(e, e->f32, lanes), f64 = vector_of(e, e->f64, lanes);
    if (to == DTYPE_F64)
        return is_float ? cast_to(e, LLVM_FPEXT, v, f64) : int_to_float(e, from->dtype, v, f64);
    bool exact = is_float ? !wide
                          : from->dtype == DTYPE_BOOL ||
                                (from->dtype != DTYPE_U64 && from->vmin >= -(1 << 24) &&
                                 from->vmax <= 1 << 24);
    if (to == DTYPE_F32)
        return wide       ? cast_to(e, LLVM_FPTRUNC, v, f32)
               : is_float ? v
                          : int_to_float(e, from->dtype, v, f32);
    if (wide) {
        v = call_piece(e, "f32_odd", e->f32, &v, 1);
    /* the others have a float's integers, at most */
    } else if (!exact && (to == DTYPE_BF16 || to == DTYPE_F8E8M0)) {
        value x = cast_to(e, is_unsigned(from->dtype) ? LLVM_ZEXT : LLVM_SEXT, v, e->i64);
        v = call_piece(e, is_unsigned(from->dtype) ? "u64_odd" : "i64_odd", e->f32, &x, 1);
    } else if (!is_float) {
        v = int_to_float(e, from->dtype, v, f32);
    }
    return from->dtype == to ? v : round_to(e, to, v, lanes);
}

value convert(struct emit *e, enum dtype to, const struct uop *from, value v)
{
    int lanes = from->lanes;
    if (from->dtype == to)
        return v;
    if (from->dtype == DTYPE_STRING || to == DTYPE_STRING)
        TGC_BUG(e->t, "cast of strings reached the renderer");
    if (dtype_is_float(to))
        return to_float(e, to, from, v);
    bool is_float = dtype_is_float(from->dtype);
    if (to == DTYPE_BOOL) {
        value zero = e->l->ConstNull(e->l->TypeOf(v));
        return is_float ? e->l->BuildFCmp(e->at, LLVM_UNE, v, zero, "")
                        : e->l->BuildICmp(e->at, LLVM_NE, v, zero, "");
    }
    return is_float ? float_to_int(e, to, from->dtype, v, lanes)
                    : int_to_int(e, to, from->dtype, v, lanes);
}

/* --------------------------------------------------------------------------------------- memory */

/* Functions of runtime/ take and return narrow formats as the C types of their bits, whose upper
 * bits in a register are undefined. */
static value narrow_call(struct emit *e, const char *name, enum dtype d, value v)
{
    value r = call_piece(e, name, e->i32, &v, 1);
    return cast_to(e, LLVM_TRUNC, r, type_in_memory(e, d));
}

static value each_lane(struct emit *e, enum dtype d, value v, int lanes, LLVMTypeRef type,
                       value (*one)(struct emit *, enum dtype, value, int))
{
    value r = e->l->GetUndef(vector_of(e, type, lanes));
    for (int i = 0; i < lanes; i++) {
        value at = const_int(e, e->i32, i);
        value x = one(e, d, e->l->BuildExtractElement(e->at, v, at, ""), 1);
        r = e->l->BuildInsertElement(e->at, r, x, at, "");
    }
    return r;
}

static bool is_narrow_float(enum dtype d)
{
    return dtype_is_float(d) && d != DTYPE_F32 && d != DTYPE_TF32 && d != DTYPE_F64;
}

/* LLVM's own conversions of f16, where the processor has an instruction. */
static bool has_half(const struct emit *e)
{
    return e->gpu || strstr(e->features, "+f16c") || strstr(e->features, "+avx512f") ||
           strstr(e->features, "+neon");
}

value from_memory(struct emit *e, enum dtype d, value v, int lanes)
{
    if (d == DTYPE_BOOL)
        return e->l->BuildICmp(e->at, LLVM_NE, v, e->l->ConstNull(e->l->TypeOf(v)), "");
    if (d == DTYPE_BF16) {
        LLVMTypeRef type = vector_of(e, e->i32, lanes);
        value bits = binary(e, LLVM_SHL, cast_to(e, LLVM_ZEXT, v, type),
                            splat(e, const_int(e, e->i32, 16), lanes));
        return e->l->BuildBitCast(e->at, bits, vector_of(e, e->f32, lanes), "");
    }
    if (d == DTYPE_F16 && has_half(e)) {
        LLVMTypeRef half = vector_of(e, e->l->HalfTypeInContext(e->context), lanes);
        value h = e->l->BuildBitCast(e->at, v, half, "");
        return cast_to(e, LLVM_FPEXT, h, vector_of(e, e->f32, lanes));
    }
    if (is_narrow_float(d)) {
        if (lanes > 1)
            return each_lane(e, d, v, lanes, e->f32, from_memory);
        value bits = cast_to(e, LLVM_ZEXT, v, e->i32);
        return call_piece(e, mem_printf(e->t, "%s_to_f32", dtype_name(d)), e->f32, &bits, 1);
    }
    if (dtype_is_int(d))
        return widen(e, d, v, lanes);
    return v;
}

/* The upper half of a float, rounded to even; 0x7fc0 for NaN. */
static value to_bf16(const struct emit *e, value v, int lanes)
{
    LLVMTypeRef type = vector_of(e, e->i32, lanes);
    value half = splat(e, const_int(e, e->i32, 16), lanes);
    value nan = e->l->BuildFCmp(e->at, LLVM_UNO, v, v, "");
    value bits = e->l->BuildBitCast(e->at, v, type, "");
    value odd = binary(e, LLVM_AND, binary(e, LLVM_LSHR, bits, half),
                       splat(e, const_int(e, e->i32, 1), lanes));
    value sum = binary(e, LLVM_ADD, binary(e, LLVM_ADD, bits, odd),
                       splat(e, const_int(e, e->i32, 0x7fff), lanes));
    value r = choose(e, nan, splat(e, const_int(e, e->i32, 0x7fc0), lanes),
                     binary(e, LLVM_LSHR, sum, half));
    return cast_to(e, LLVM_TRUNC, r, vector_of(e, e->i16, lanes));
}

/* 10 bits of mantissa, half away from zero; NaN stays. */
static value to_tf32(const struct emit *e, value v, int lanes)
{
    LLVMTypeRef type = vector_of(e, e->i32, lanes);
    value nan = e->l->BuildFCmp(e->at, LLVM_UNO, v, v, "");
    value bits = binary(e, LLVM_ADD, e->l->BuildBitCast(e->at, v, type, ""),
                        splat(e, const_int(e, e->i32, 0x1000), lanes));
    bits = binary(e, LLVM_AND, bits, splat(e, const_int(e, e->i32, ~0x1fff), lanes));
    return choose(e, nan, v, e->l->BuildBitCast(e->at, bits, vector_of(e, e->f32, lanes), ""));
}

value to_memory(struct emit *e, enum dtype d, value v, int lanes)
{
    if (d == DTYPE_BOOL)
        return cast_to(e, LLVM_ZEXT, v, vector_of(e, e->i8, lanes));
    if (d == DTYPE_BF16)
        return to_bf16(e, v, lanes);
    if (d == DTYPE_TF32)
        return to_tf32(e, v, lanes);
    if (d == DTYPE_F16 && has_half(e)) {
        LLVMTypeRef half = vector_of(e, e->l->HalfTypeInContext(e->context), lanes);
        return e->l->BuildBitCast(e->at, cast_to(e, LLVM_FPTRUNC, v, half),
                                  vector_of(e, e->i16, lanes), "");
    }
    if (is_narrow_float(d)) {
        if (lanes > 1)
            return each_lane(e, d, v, lanes, type_in_memory(e, d), to_memory);
        /* f8e5m2 is the only 8-bit kind with an infinity, which a conversion saturates */
        return narrow_call(e, d == DTYPE_F8E5M2 ? "store_f8e5m2"
                                                : mem_printf(e->t, "f32_to_%s", dtype_name(d)),
                           d, v);
    }
    if (dtype_is_int(d))
        return cast_to(e, LLVM_TRUNC, v, vector_of(e, type_in_memory(e, d), lanes));
    return v;
}

value convert_bits(struct emit *e, enum dtype to, enum dtype from, value v, int lanes)
{
    if (dtype_nbytes(to) != dtype_nbytes(from))
        TGC_BUG(e->t, "bitcast from %s to %s", dtype_name(from), dtype_name(to));
    if (from == to)
        return v;
    value bits = is_narrow_float(from) && from == DTYPE_F8E5M2
                     ? narrow_call(e, "f32_to_f8e5m2", from, v)
                     : to_memory(e, from, v, lanes);
    bits = e->l->BuildBitCast(e->at, bits, vector_of(e, type_in_memory(e, to), lanes), "");
    if (dtype_is_int(to) && dtype_bits(to) < 8)
        bits = cast_to(e, LLVM_TRUNC, bits, int_type(e, dtype_bits(to)));
    return from_memory(e, to, bits, lanes);
}
