/* piece_words.c - the words of a piece of runtime/, which is C, and C's types and conversions as
 * LLVM has them. What a compiler leaves undefined in C stays so here.
 */
#include "backends/llvm/piece_code.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- words */

void words_wrong(const struct words *w)
{
    TGC_BUG(w->t, "%s of runtime/ has '%.*s', which is not known where LLVM compiles it", w->name,
            (int)w->n, w->s);
}

static const char *skip_blanks(const char *s)
{
    for (;;) {
        s += strspn(s, " \t\n");
        const char *end = strncmp(s, "/*", 2) == 0 ? strstr(s + 2, "*/") : NULL;
        if (!end)
            return s;
        s = end + 2;
    }
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* C's type of a number without a suffix that says it. */
static enum ctype type_of_whole(uint64_t v, bool is_decimal, bool is_unsigned)
{
    if (v <= INT32_MAX && !is_unsigned)
        return C_I32;
    if (v <= UINT32_MAX && (is_unsigned || !is_decimal))
        return C_U32;
    return v <= INT64_MAX && !is_unsigned ? C_I64 : C_U64;
}

static void read_number(struct words *w)
{
    bool is_hex = strncmp(w->s, "0x", 2) == 0;
    size_t n = is_hex ? 2 + strspn(w->s + 2, "0123456789abcdefABCDEF") : strspn(w->s, "0123456789");
    bool is_real = w->s[n] == '.' || w->s[n] == 'p' || (!is_hex && w->s[n] == 'e');
    char *end;
    w->kind = TOKEN_NUMBER;
    if (is_real) {
        w->real = strtod(w->s, &end);
        w->type = *end == 'f' ? C_F32 : C_F64;
        w->real = *end == 'f' ? (double)strtof(w->s, NULL) : w->real;
        end += *end == 'f';
    } else {
        w->whole = strtoull(w->s, &end, 0);
        w->type = type_of_whole(w->whole, !is_hex, *end == 'u');
        end += strspn(end, "u");
    }
    w->n = (size_t)(end - w->s);
}

void words_next(struct words *w)
{
    static const char *const sign[] = {
        "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
        "+=",  "-=",  "*=", "/=", "%=", "&=", "|=", "^=", "++", "--"};
    w->s = skip_blanks(w->next);
    w->n = *w->s != '\0';
    w->kind = *w->s ? TOKEN_SIGN : TOKEN_END;
    if (is_letter(*w->s)) {
        w->kind = TOKEN_WORD;
        while (is_letter(w->s[w->n]) || is_digit(w->s[w->n]))
            w->n++;
    } else if (is_digit(*w->s)) {
        read_number(w);
    } else {
        for (size_t i = 0; i < sizeof sign / sizeof *sign && w->n == 1; i++)
            if (strncmp(w->s, sign[i], strlen(sign[i])) == 0)
                w->n = strlen(sign[i]);
    }
    w->next = w->s + w->n;
}

void words_begin(struct words *w, struct tgc *t, const char *name, const char *text)
{
    *w = (struct words){.t = t, .name = name, .next = text};
    words_next(w);
}

bool words_are(const struct words *w, const char *s)
{
    return strlen(s) == w->n && memcmp(w->s, s, w->n) == 0;
}

bool words_take(struct words *w, const char *s)
{
    if (!words_are(w, s))
        return false;
    words_next(w);
    return true;
}

void words_need(struct words *w, const char *s)
{
    if (!words_take(w, s))
        words_wrong(w);
}

bool words_type(struct words *w, enum ctype *type)
{
    static const struct { const char *name; enum ctype type;
    } table[] = {{"bool", C_BOOL},       {"int8_t", C_I8},       {"uint8_t", C_U8},
                 {"int16_t", C_I16},     {"uint16_t", C_U16},    {"int", C_I32},
                 {"int32_t", C_I32},     {"unsigned", C_U32},    {"uint32_t", C_U32},
                 {"int64_t", C_I64},     {"uint64_t", C_U64},    {"float", C_F32},
                 {"double", C_F64},      {"void", C_VOID},       {"f32x4", C_FLOATS},
                 {"bits_f32x4", C_BITS}, {"ints_f32x4", C_INTS}, {"mask_f32x4", C_MASKS}};
    while (words_take(w, "static") || words_take(w, "inline") || words_take(w, "const") ||
           words_take(w, "IN_f32x4"))
        ;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (words_take(w, table[i].name)) {
            *type = table[i].type;
            return true;
        }
    return false;
}

/* ---------------------------------------------------------------------------------------- types */

static bool is_vector(enum ctype type) { return type >= C_MASKS; }
static bool is_wide(enum ctype type) { return type == C_I64 || type == C_U64; }

bool ctype_is_real(enum ctype type) { return type == C_F32 || type == C_F64 || type == C_FLOATS; }

bool ctype_is_signed(enum ctype type)
{
    return type == C_I8 || type == C_I16 || type == C_I32 || type == C_I64 || type == C_INTS;
}

/* Of a vector that has such lanes when a scalar becomes one. */
static enum ctype lane_type(enum ctype type)
{
    return type == C_FLOATS ? C_F32 : type == C_INTS ? C_I32 : type == C_BITS ? C_U32 : C_BOOL;
}

LLVMTypeRef ctype_register(const struct emit *e, enum ctype type)
{
    if (is_vector(type))
        return vector_of(e, type == C_MASKS ? e->i1 : ctype_register(e, lane_type(type)), e->lanes);
    return type == C_VOID  ? e->nothing
           : type == C_F32 ? e->f32
           : type == C_F64 ? e->f64
           : is_wide(type) ? e->i64
                           : e->i32;
}

LLVMTypeRef ctype_memory(const struct emit *e, enum ctype type)
{
    return type <= C_U8 ? e->i8 : type <= C_U16 ? e->i16 : ctype_register(e, type);
}

enum ctype ctype_common(enum ctype a, enum ctype b)
{
    enum ctype most = a > b ? a : b;
    return most < C_I32 ? C_I32 : most;
}

/* An integer as what a narrow type has of it. */
static value narrow(struct emit *e, value v, enum ctype type)
{
    LLVMTypeRef memory = ctype_memory(e, type);
    if (memory == e->i32 || is_wide(type))
        return v;
    return cast_to(e, ctype_is_signed(type) ? LLVM_SEXT : LLVM_ZEXT,
                   cast_to(e, LLVM_TRUNC, v, memory), e->i32);
}

static value is_not_zero(struct emit *e, value v, enum ctype type)
{
    value zero = e->l->ConstNull(e->l->TypeOf(v));
    return ctype_is_real(type) ? e->l->BuildFCmp(e->at, LLVM_UNE, v, zero, "")
                               : e->l->BuildICmp(e->at, LLVM_NE, v, zero, "");
}

value ctype_convert(struct emit *e, value v, enum ctype from, enum ctype to)
{
    LLVMTypeRef type = ctype_register(e, to);
    if (from == to)
        return v;
    if (is_vector(to))
        return splat(e, ctype_convert(e, v, from, lane_type(to)), e->lanes);
    if (to == C_BOOL)
        return cast_to(e, LLVM_ZEXT, is_not_zero(e, v, from), e->i32);
    if (ctype_is_real(to))
        return ctype_is_real(from)
                   ? cast_to(e, to > from ? LLVM_FPEXT : LLVM_FPTRUNC, v, type)
                   : cast_to(e, ctype_is_signed(from) ? LLVM_SITOFP : LLVM_UITOFP, v, type);
    if (ctype_is_real(from))
        return narrow(e, cast_to(e, ctype_is_signed(to) ? LLVM_FPTOSI : LLVM_FPTOUI, v, type), to);
    if (is_wide(to))
        return cast_to(e, ctype_is_signed(from) ? LLVM_SEXT : LLVM_ZEXT, v, type);
    return narrow(e, cast_to(e, LLVM_TRUNC, v, e->i32), to);
}

value ctype_load(struct emit *e, value place, enum ctype type)
{
    value v = load_as(e, ctype_memory(e, type), place, 0);
    return cast_to(e, ctype_is_signed(type) ? LLVM_SEXT : LLVM_ZEXT, v, ctype_register(e, type));
}

void ctype_store(struct emit *e, value v, value place, enum ctype type)
{
    store_as(e, cast_to(e, LLVM_TRUNC, v, ctype_memory(e, type)), place, 0);
}
