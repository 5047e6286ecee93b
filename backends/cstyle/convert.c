/* convert.c - C expressions of one type as those of another: constants, casts, scalars that are
 * loaded and stored. Narrow floats are computed in float; their rounding is pending until the value
 * has a use other than a store, which rounds by itself.
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

char expr_kind(enum dtype d)
{
    switch (d) {
    case DTYPE_BOOL: return 'B';
    case DTYPE_I64: return 'L';
    case DTYPE_U32: return 'U';
    case DTYPE_U64: return 'V';
    case DTYPE_F64: return 'D';
    case DTYPE_STRING: return 'S';
    default: return dtype_is_float(d) ? 'F' : 'I';
    }
}

const char *expr_type(struct program *p, const struct expr *e)
{
    switch (e->kind) {
    case 'X': return mem_printf(p->t, "f32x%d", e->lanes);
    case 'W': return mem_printf(p->t, "i32x%d", e->lanes);
    case 'M': return mem_printf(p->t, "mask_f32x%d", e->lanes);
    case 'P': return mem_printf(p->t, "%s *", dtype_ctype(e->of));
    case 'B': return "bool";
    case 'I': return "int";
    case 'L': return "int64_t";
    case 'U': return "uint32_t";
    case 'V': return "uint64_t";
    case 'F': return "float";
    case 'S': return "const char *";
    default: return "double";
    }
}

struct expr expr_name(const char *name, char kind)
{
    return (struct expr){.s = name, .prec = PREC_CALL, .kind = kind};
}

struct expr expr_call(struct program *p, const char *function, const char *args, char kind)
{
    if (snippet_is_known(&p->snippets, function))
        snippet_use(&p->snippets, function);
    return expr_name(mem_printf(p->t, "%s(%s)", function, args), kind);
}

struct expr expr_cast(struct program *p, const char *type, const struct expr *e, char kind)
{
    return (struct expr){.s = mem_printf(p->t, "(%s)%s", type, expr_operand(p, e, PREC_UNARY)),
                         .prec = PREC_UNARY,
                         .kind = kind};
}

const char *expr_operand(struct program *p, const struct expr *e, enum prec least)
{
    return e->prec < least ? mem_printf(p->t, "(%s)", e->s) : e->s;
}

/* ------------------------------------------------------------------------------------ constants */

struct expr expr_int(struct program *p, enum dtype d, int64_t v)
{
    struct expr e = {.prec = v < 0 ? PREC_UNARY : PREC_CALL, .kind = expr_kind(d)};
    bool narrow = v >= INT32_MIN && v <= INT32_MAX;
    if (d == DTYPE_BOOL)
        e.s = v ? "true" : "false";
    else if (e.kind == 'U')
        e.s = mem_printf(p->t, "%lluu", (unsigned long long)v);
    else if (e.kind == 'V')
        e.s = mem_printf(p->t, "UINT64_C(%llu)", (unsigned long long)v);
    else if (v == INT64_MIN || v == INT32_MIN)
        e.s = v == INT64_MIN ? "INT64_MIN" : "INT32_MIN";
    else if (narrow)
        e.s = mem_printf(p->t, "%lld", (long long)v);
    else
        e.s = mem_printf(p->t, "INT64_C(%lld)", (long long)v);
    if (e.kind == 'L' && narrow)
        e.kind = 'I';
    if (e.kind == 'U' || e.kind == 'V' || v == INT64_MIN || v == INT32_MIN || !narrow)
        e.prec = PREC_CALL;
    return e;
}

struct expr expr_const(struct program *p, enum dtype d, union arg v)
{
    if (d == DTYPE_STRING) {
        struct text quoted = {.t = p->t};
        text_string(&quoted, v.p ? v.p : "");
        return (struct expr){.s = quoted.s, .prec = PREC_CALL, .kind = 'S'};
    }
    if (!dtype_is_float(d))
        return expr_int(p, d, v.i);
    struct text s = {.t = p->t};
    if (d == DTYPE_F64)
        text_double(&s, v.f);
    else
        text_float(&s, (float)v.f);
    return (struct expr){
        .s = s.s, .prec = s.s[0] == '-' ? PREC_UNARY : PREC_CALL, .kind = expr_kind(d)};
}

/* ---------------------------------------------------------------------------------- conversions */

/* Wraps an int (or wider) to the width of d. */
struct expr expr_wrap(struct program *p, enum dtype d, const struct expr *e)
{
    switch (d) {
    case DTYPE_I4: return expr_call(p, "wrap_i4", e->s, 'I');
    case DTYPE_I2: return expr_call(p, "wrap_i2", e->s, 'I');
    case DTYPE_U4: case DTYPE_U2: {
        struct expr r = {.prec = PREC_BIT, .kind = 'I'};
        r.s = mem_printf(p->t, "%s & %d", expr_operand(p, e, PREC_UNARY), d == DTYPE_U4 ? 15 : 3);
        if (e->kind != 'I' && e->kind != 'B')
            return expr_cast(p, "int", &r, 'I');
        return r;
    }
    default: return expr_cast(p, dtype_ctype(d), e, expr_kind(d));
    }
}

struct expr expr_to_int(struct program *p, enum dtype d, bool fits, const struct expr *e)
{
    char kind = expr_kind(d);
    if (e->kind == 'F' || e->kind == 'D') {
        const char *from = e->kind == 'D' ? "_f64" : "";
        if (kind == 'I' && d != DTYPE_I32)
            return expr_call(p, mem_printf(p->t, "to_int%s", from),
                        mem_printf(p->t, "%s, %lld, %lld", e->s, (long long)dtype_min(d),
                                   (long long)dtype_max(d)),
                        'I');
        const char *to = kind == 'I'   ? "to_i32"
                         : kind == 'L' ? "to_i64"
                         : kind == 'U' ? "to_u32"
                                       : "to_u64";
        return expr_call(p, mem_printf(p->t, "%s%s", to, from), e->s, kind);
    }
    if (kind == 'L' && (e->kind == 'I' || e->kind == 'B')) {
        struct expr r = *e;
        r.kind = 'I';            /* an int is a valid int64_t */
        return r;
    }
    if (kind == e->kind && kind != 'I')
        return *e;
    if (kind == 'I' && fits) {
        struct expr r = *e;
        if (e->kind != 'I' && e->kind != 'B')
            return expr_cast(p, "int", e, 'I');
        r.kind = 'I';
        return r;
    }
    return expr_wrap(p, d, e);
}

/* plain: a float holds the integer exactly. */
static struct expr cast_to_float(struct program *p, enum dtype d, enum dtype from, bool plain,
                                 const struct expr *e)
{
    struct expr r = *e;
    char kind = expr_kind(d);
    if (e->kind == 'B')
        return (struct expr){.s = mem_printf(p->t, "%s ? %s : %s", expr_operand(p, e, PREC_OR),
                                             expr_const(p, d, (union arg){.f = 1}).s,
                                             expr_const(p, d, (union arg){.f = 0}).s),
                             .prec = PREC_COND,
                             .kind = kind};
    if (kind == 'D')
        return e->kind == 'D' ? r : expr_cast(p, "double", e, 'D');
    bool narrow = d != DTYPE_F32;
    /* what a float does not hold exactly is beyond the other formats */
    bool exact =
        e->kind == 'F' || (e->kind != 'D' && (plain || (d != DTYPE_BF16 && d != DTYPE_F8E8M0)));
    if (narrow && !exact)
        r = expr_call(p, e->kind == 'D'                     ? "f32_odd"
                         : e->kind == 'U' || e->kind == 'V' ? "u64_odd"
                                                            : "i64_odd", e->s, 'F');
    else if (e->kind != 'F')
        r = expr_cast(p, "float", e, 'F');
    r.round = narrow && from != d ? d : DTYPE_VOID;
    return r;
}

struct expr expr_convert(struct program *p, const struct uop *u, const struct expr *e)
{
    const struct uop *from = u->src[0];
    bool plain = u->arg.i & ARG_PLAIN;
    if (from->dtype == DTYPE_STRING || u->dtype == DTYPE_STRING)
        TGC_BUG(p->t, "cast of strings reached the renderer");
    if (dtype_is_float(u->dtype))
        return cast_to_float(p, u->dtype, from->dtype, plain, e);
    if (u->dtype != DTYPE_BOOL)
        return expr_to_int(p, u->dtype, plain, e);
    if (e->kind == 'B')
        return *e;
    return (struct expr){.s = mem_printf(p->t, "%s != 0", expr_operand(p, e, PREC_SHIFT)),
                         .prec = PREC_COMPARE,
                         .kind = 'B'};
}

struct expr expr_bitcast(struct program *p, const struct uop *u, const struct expr *e)
{
    enum dtype to = u->dtype, from = u->src[0]->dtype;
    bool to_float = dtype_is_float(to), from_float = dtype_is_float(from);
    struct expr r = *e;
    if (dtype_nbytes(to) != dtype_nbytes(from))
        TGC_BUG(p->t, "bitcast from %s to %s", dtype_name(from), dtype_name(to));
    if (from_float && from == to)
        return r;
    if (from_float && e->kind == 'I')      /* loaded as its bits */
        return expr_wrap(p, to, e);
    if (from == DTYPE_F32 || from == DTYPE_F64)
        r = expr_call(p, from == DTYPE_F32 ? "bits_f32" : "bits_f64", e->s,
                 from == DTYPE_F32 ? 'U' : 'V');
    else if (from_float)
        r = expr_call(p, mem_printf(p->t, "f32_to_%s", dtype_name(from)), e->s, 'I');
    if (to == DTYPE_F32 || to == DTYPE_F64) {
        char kind = to == DTYPE_F32 ? 'U' : 'V';
        if (r.kind != kind)
            r = expr_cast(p, expr_type(p, &(struct expr){.kind = kind}), &r, kind);
        return expr_call(p, to == DTYPE_F32 ? "float_bits" : "double_bits", r.s, expr_kind(to));
    }
    if (to_float) {
        if (!from_float)
            r = expr_cast(p, dtype_ctype(to), &r, 'I');
        return expr_call(p, mem_printf(p->t, "%s_to_f32", dtype_name(to)), r.s, 'F');
    }
    return expr_wrap(p, to, &r);
}

/* --------------------------------------------------------------------------------------- memory */

/* Is the format in memory also that of the value? */
static bool is_number(enum dtype d)
{
    return expr_kind(d) != 'F' || d == DTYPE_F32 || d == DTYPE_TF32;
}

struct expr expr_resolve(struct program *p, struct expr e)
{
    if (e.round == DTYPE_VOID)
        return e;
    return expr_call(p, mem_printf(p->t, "round_%s", dtype_name(e.round)), e.s, e.kind);
}

struct expr expr_load(struct program *p, enum dtype d, const char *place, bool trusted)
{
    char kind = expr_kind(d);
    if (!is_number(d))
        return expr_call(p, mem_printf(p->t, "%s_to_f32", dtype_name(d)), place, 'F');
    /* a caller's true may be any nonzero byte */
    if (kind == 'B' && !trusted)
        return (struct expr){
            .s = mem_printf(p->t, "%s != 0", place), .prec = PREC_COMPARE, .kind = 'B'};
    return expr_name(place, kind);
}

const char *expr_stored(struct program *p, enum dtype d, const struct expr *e)
{
    if (!is_number(d)) {
        struct expr v = e->round == d ? *e : expr_resolve(p, *e);
        if (d == DTYPE_F8E5M2 && e->round != d) /* the only 8-bit kind with an infinity */
            return expr_call(p, "store_f8e5m2", v.s, 'I').s;
        return expr_call(p, mem_printf(p->t, "f32_to_%s", dtype_name(d)), v.s, 'I').s;
    }
    struct expr v = expr_resolve(p, *e);
    if (v.kind == 'I' && d != DTYPE_I32 && d != DTYPE_I64)
        return expr_cast(p, dtype_ctype(d), &v, 'I').s;
    /* gcc compares x != INFINITY with a literal of its own, and then warns of the conversion */
    if (v.kind == 'B' && strstr(v.s, "INFINITY"))
        return expr_cast(p, dtype_ctype(d), &v, 'B').s;
    return v.s;
}
