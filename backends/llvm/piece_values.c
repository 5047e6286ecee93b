/* piece_values.c - expressions of the functions of runtime/, as a module's instructions. By
 * recursive descent, each rule builds what it has read. Pieces that processors have an instruction
 * for are LLVM's (builtin[]).
 */
#include "backends/llvm/piece_code.h"

#include <math.h>
#include <string.h>

enum { MOST_ARGUMENTS = 8 };

static struct operand unary(struct piece *p);

static struct operand made(value v, enum ctype type)
{
    return (struct operand){.v = v, .type = type};
}

static value read(struct piece *p, struct operand o)
{
    return o.is_place ? ctype_load(p->e, o.v, o.type) : o.v;
}

value piece_read_as(struct piece *p, struct operand o, enum ctype type)
{
    return ctype_convert(p->e, read(p, o), o.type, type);
}

value piece_condition(struct piece *p, struct operand o)
{
    return p->e->l->BuildICmp(p->e->at, LLVM_NE, piece_read_as(p, o, C_BOOL),
                              const_int(p->e, p->e->i32, 0), "");
}

static struct operand truth(struct piece *p, value i1)
{
    return made(cast_to(p->e, LLVM_ZEXT, i1, p->e->i32), C_I32);
}

/* ------------------------------------------------------------------------------------- operands */

static struct operand number(struct piece *p)
{
    const struct words w = p->w;
    LLVMTypeRef type = ctype_register(p->e, w.type);
    words_next(&p->w);
    return made(w.type >= C_F32 ? p->e->l->ConstReal(type, w.real)
                                : const_int(p->e, type, (int64_t)w.whole),
                w.type);
}

static struct operand *find_variable(struct piece *p)
{
    for (int i = p->nvariable - 1; i >= 0; i--)
        if (p->variable[i].n == p->w.n && memcmp(p->variable[i].name, p->w.s, p->w.n) == 0)
            return &p->variable[i].o;
    return NULL;
}

static const struct { const char *name; enum ctype type; double v;
} constant[] = {{"NAN", C_F32, NAN},
                {"INFINITY", C_F32, INFINITY},
                {"INT32_MAX", C_I32, INT32_MAX},
                {"INT32_MIN", C_I32, INT32_MIN},
                {"UINT32_MAX", C_U32, UINT32_MAX}};
static const struct { const char *name; enum ctype type; uint64_t v;
} wide_constant[] = {{"INT64_MAX", C_I64, INT64_MAX},
                     {"INT64_MIN", C_I64, (uint64_t)1 << 63},
                     {"UINT64_MAX", C_U64, UINT64_MAX}};

static bool find_constant(struct piece *p, struct operand *o)
{
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++)
        if (words_are(&p->w, constant[i].name)) {
            enum ctype type = constant[i].type;
            *o = made(type == C_F32 ? p->e->l->ConstReal(p->e->f32, constant[i].v)
                                    : const_int(p->e, p->e->i32, (int64_t)constant[i].v), type);
            return true;
        }
    for (size_t i = 0; i < sizeof wide_constant / sizeof *wide_constant; i++)
        if (words_are(&p->w, wide_constant[i].name)) {
            *o = made(const_int(p->e, p->e->i64, (int64_t)wide_constant[i].v),
                      wide_constant[i].type);
            return true;
        }
    return false;
}

/* Functions that are an instruction: LLVM's intrinsic of the arguments' type, NULL: the same
 * bits. */
static const struct { const char *name; enum ctype of, to; const char *intrinsic; } builtin[] = {
    {"fabs", C_F64, C_F64, "llvm.fabs"}, {"fabsf", C_F32, C_F32, "llvm.fabs"},
    {"copysign", C_F64, C_F64, "llvm.copysign"}, {"copysignf", C_F32, C_F32, "llvm.copysign"},
    {"sqrt_f64", C_F64, C_F64, "llvm.sqrt"}, {"sqrt_f32", C_F32, C_F32, "llvm.sqrt"},
    {"bits_f32", C_F32, C_U32, NULL}, {"float_bits", C_U32, C_F32, NULL},
    {"bits_f64", C_F64, C_U64, NULL}, {"double_bits", C_U64, C_F64, NULL}};

static bool call_builtin(struct piece *p, const char *name, const struct operand *a, int n,
                         struct operand *r)
{
    value arg[2];
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++) {
        LLVMTypeRef type = ctype_register(p->e, builtin[i].of);
        if (strcmp(name, builtin[i].name) != 0 || n > 2)
            continue;
        for (int k = 0; k < n; k++)
            arg[k] = piece_read_as(p, a[k], builtin[i].of);
        *r = made(
            builtin[i].intrinsic
                ? call_intrinsic(p->e, builtin[i].intrinsic, &type, 1, arg, n)
                : p->e->l->BuildBitCast(p->e->at, arg[0], ctype_register(p->e, builtin[i].to), ""),
            builtin[i].to);
        return true;
    }
    return false;
}

/* Of either float. */
static struct operand sign_bit(struct piece *p, struct operand a)
{
    bool wide = a.type == C_F64;
    LLVMTypeRef type = wide ? p->e->i64 : p->e->i32;
    value bits = p->e->l->BuildBitCast(p->e->at, read(p, a), type, "");
    return truth(p, p->e->l->BuildICmp(p->e->at, LLVM_SLT, bits, const_int(p->e, type, 0), ""));
}

void piece_head(struct words *w, enum ctype *result)
{
    if (!words_type(w, result) || w->kind != TOKEN_WORD)
        words_wrong(w);
    words_next(w);
    words_need(w, "(");
}

bool piece_parameter(struct words *w, struct variable *a)
{
    if (words_take(w, ")"))
        return false;
    words_take(w, ",");
    *a = (struct variable){.name = NULL};
    if (!words_type(w, &a->o.type))
        words_wrong(w);
    a->o.is_pointer = words_take(w, "*");
    a->name = w->s;
    a->n = w->n;
    words_next(w);
    return true;
}

static struct operand call_other(struct piece *p, const char *name, const struct operand *a, int n)
{
    size_t stem = strlen(name) - strlen("x4");
    int lanes;
    if (stem < strlen(name) && strcmp(name + stem, "x4") == 0)
        name = mem_printf(p->w.t, "%.*sx%d", (int)stem, name, p->e->lanes);
    const char *text = piece_text(p->e, name, &lanes);
    struct words w;
    struct variable formal;
    enum ctype result;
    value arg[MOST_ARGUMENTS];
    if (!text)
        TGC_BUG(p->w.t, "%s of runtime/ calls %s(), which LLVM does not compile", p->w.name, name);
    words_begin(&w, p->w.t, name, text);
    piece_head(&w, &result);
    for (int i = 0; i < n; i++) {
        if (!piece_parameter(&w, &formal))
            words_wrong(&w);
        arg[i] = formal.o.is_pointer ? a[i].v : piece_read_as(p, a[i], formal.o.type);
    }
    return made(call_piece(p->e, name, ctype_register(p->e, result), arg, n), result);
}

/* As the languages of devices and C have it, without a call. */
static struct operand mul_add(struct piece *p, const struct operand *a)
{
    struct emit *e = p->e;
    value arg[3];
    for (int k = 0; k < 3; k++)
        arg[k] = piece_read_as(p, a[k], C_F32);
    value r = e->gpu ? call_intrinsic(e, "llvm.fma", &e->f32, 1, arg, 3)
                     : binary(e, LLVM_FADD, binary(e, LLVM_FMUL, arg[0], arg[1]), arg[2]);
    return made(r, C_F32);
}

static struct operand call_named(struct piece *p, const char *name)
{
    struct operand a[MOST_ARGUMENTS], r;
    int n = 0;
    while (!words_take(&p->w, ")")) {
        if (n == MOST_ARGUMENTS)
            words_wrong(&p->w);
        a[n] = piece_assignment(p);
        if (a[n].is_place)
            a[n] = made(read(p, a[n]), a[n].type);
        n++;
        words_take(&p->w, ",");
    }
    if (strcmp(name, "mul_add_f32") == 0 && n == 3)
        return mul_add(p, a);
    if (strcmp(name, "signbit") == 0 && n == 1)
        return sign_bit(p, a[0]);
    return call_builtin(p, name, a, n, &r) || piece_call_vectors(p, name, a, n, &r)
               ? r
               : call_other(p, name, a, n);
}

static struct operand primary(struct piece *p)
{
    struct operand r;
    if (p->w.kind == TOKEN_NUMBER)
        return number(p);
    if (words_take(&p->w, "(")) {
        r = piece_expression(p);
        words_need(&p->w, ")");
        return r;
    }
    if (p->w.kind != TOKEN_WORD)
        words_wrong(&p->w);
    const struct operand *known = find_variable(p);
    if (known || find_constant(p, &r)) {
        r = known ? *known : r;
        words_next(&p->w);
        return r;
    }
    const char *name = mem_printf(p->w.t, "%.*s", (int)p->w.n, p->w.s);
    words_next(&p->w);
    words_need(&p->w, "(");
    return call_named(p, name);
}

/* What is at a pointer, n elements on. */
static struct operand element(struct piece *p, struct operand pointer, value n)
{
    LLVMTypeRef type = ctype_memory(p->e, pointer.type);
    return (struct operand){.v = n ? pointer_at(p->e, pointer.v, type, n) : pointer.v,
                            .type = pointer.type,
                            .is_place = true};
}

/* ++ and --: the new value */
static struct operand step(struct piece *p, struct operand o, int by)
{
    value v = ctype_convert(p->e, read(p, o), o.type, ctype_common(o.type, C_I32));
    v = binary(p->e, LLVM_ADD, v, const_int(p->e, p->e->l->TypeOf(v), by));
    ctype_store(p->e, v, o.v, o.type);
    return o;
}

static struct operand postfix(struct piece *p)
{
    struct operand r = primary(p);
    while (words_take(&p->w, "[")) {
        r = element(p, r, piece_read_as(p, piece_expression(p), C_I64));
        words_need(&p->w, "]");
    }
    if (words_are(&p->w, "++") || words_are(&p->w, "--")) {
        struct operand before = made(read(p, r), r.type);
        step(p, r, words_take(&p->w, "++") ? 1 : (words_next(&p->w), -1));
        return before;
    }
    return r;
}

static struct operand negate(struct piece *p, struct operand o)
{
    enum ctype type = ctype_common(o.type, C_I32);
    value v = piece_read_as(p, o, type);
    return made(ctype_is_real(type) ? p->e->l->BuildFNeg(p->e->at, v, "")
                                    : p->e->l->BuildNeg(p->e->at, v, ""),
                type);
}

static struct operand cast_or_primary(struct piece *p)
{
    struct words before = p->w;
    enum ctype type;
    if (words_take(&p->w, "(") && words_type(&p->w, &type)) {
        words_need(&p->w, ")");
        return made(piece_read_as(p, unary(p), type), type);
    }
    p->w = before;
    return postfix(p);
}

static struct operand unary(struct piece *p)
{
    struct operand o;
    if (words_take(&p->w, "-"))
        return negate(p, unary(p));
    if (words_take(&p->w, "!"))
        return truth(p, p->e->l->BuildNot(p->e->at, piece_condition(p, unary(p)), ""));
    if (words_take(&p->w, "~")) {
        o = unary(p);
        enum ctype type = ctype_common(o.type, C_I32);
        return made(p->e->l->BuildNot(p->e->at, piece_read_as(p, o, type), ""), type);
    }
    if (words_take(&p->w, "*"))
        return element(p, unary(p), NULL);
    if (words_take(&p->w, "&")) {
        o = unary(p);
        return (struct operand){.v = o.v, .type = o.type, .is_pointer = true};
    }
    return cast_or_primary(p);
}

/* ------------------------------------------------------------------------------------ operators */

/* By C's precedence, the tightest last; whole, real: LLVM's operator, or comparison. Of signed
 * integers, which have others for some, one more. */
struct operator { const char *sign; int level; bool compares; int whole, real, of_signed; };
static const struct operator table[] = {{"|", 2, false, LLVM_OR, 0, 0},
                                        {"^", 3, false, LLVM_XOR, 0, 0},
                                        {"&", 4, false, LLVM_AND, 0, 0},
                                        {"==", 5, true, LLVM_EQ, LLVM_OEQ, 0},
                                        {"!=", 5, true, LLVM_NE, LLVM_UNE, 0},
                                        {"<", 6, true, LLVM_ULT, LLVM_OLT, LLVM_SLT},
                                        {"<=", 6, true, LLVM_ULE, LLVM_OLE, LLVM_SLE},
                                        {">", 6, true, LLVM_UGT, LLVM_OGT, LLVM_SGT},
                                        {">=", 6, true, LLVM_UGE, LLVM_OGE, LLVM_SGE},
                                        {"<<", 7, false, LLVM_SHL, 0, 0},
                                        {">>", 7, false, LLVM_LSHR, 0, LLVM_ASHR},
                                        {"+", 8, false, LLVM_ADD, LLVM_FADD, 0},
                                        {"-", 8, false, LLVM_SUB, LLVM_FSUB, 0},
                                        {"*", 9, false, LLVM_MUL, LLVM_FMUL, 0},
                                        {"/", 9, false, LLVM_UDIV, LLVM_FDIV, LLVM_SDIV},
                                        {"%", 9, false, LLVM_UREM, 0, LLVM_SREM}};
enum { LEVEL_OR = 0, LEVEL_AND = 1, LEVEL_SHIFT = 7 };

static struct operand apply_operator(struct piece *p, const struct operator* op, struct operand a,
                                     struct operand b)
{
    enum ctype type = ctype_common(a.type, op->level == LEVEL_SHIFT ? C_I32 : b.type);
    value x = piece_read_as(p, a, type), y = piece_read_as(p, b, type);
    int is = ctype_is_real(type)                      ? op->real
             : op->of_signed && ctype_is_signed(type) ? op->of_signed
                                                      : op->whole;
    if (!is)
        words_wrong(&p->w);
    if (!op->compares)
        return made(p->e->l->BuildBinOp(p->e->at, is, x, y, ""), type);
    return truth(p, ctype_is_real(type) ? p->e->l->BuildFCmp(p->e->at, is, x, y, "")
                                  : p->e->l->BuildICmp(p->e->at, is, x, y, ""));
}

/* The operator that the current words are, followed by `behind`: "" or "="; NULL: there is none. */
static const struct operator *find_operator(struct piece *p, const char *behind)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (words_are(&p->w, mem_printf(p->w.t, "%s%s", table[i].sign, behind)))
            return &table[i];
    return NULL;
}

static value join(struct piece *p, LLVMTypeRef type, value a, LLVMBasicBlockRef from, value b,
                  LLVMBasicBlockRef other)
{
    value r = p->e->l->BuildPhi(p->e->at, type, "");
    p->e->l->AddIncoming(r, (value[]){a, b}, (LLVMBasicBlockRef[]){from, other}, 2);
    return r;
}

static struct operand operators(struct piece *p, int level);

/* && and ||: the second operand is computed only if the first does not decide. */
static struct operand logic(struct piece *p, int level)
{
    struct emit *e = p->e;
    struct operand a = operators(p, level + 1);
    while (words_take(&p->w, level == LEVEL_OR ? "||" : "&&")) {
        LLVMBasicBlockRef more = block_new(e, "more"), after = block_new(e, "decided");
        value first = piece_condition(p, a);
        LLVMBasicBlockRef from = e->l->GetInsertBlock(e->at);
        e->l->BuildCondBr(e->at, first, level == LEVEL_OR ? after : more,
                          level == LEVEL_OR ? more : after);
        e->l->PositionBuilderAtEnd(e->at, more);
        value second = piece_condition(p, operators(p, level + 1));
        LLVMBasicBlockRef end = e->l->GetInsertBlock(e->at);
        e->l->BuildBr(e->at, after);
        e->l->PositionBuilderAtEnd(e->at, after);
        a = truth(p, join(p, e->i1, const_int(e, e->i1, level == LEVEL_OR), from, second, end));
    }
    return a;
}

static struct operand operators(struct piece *p, int level)
{
    enum { TIGHTEST = 9 };
    if (level > TIGHTEST)
        return unary(p);
    if (level <= LEVEL_AND)
        return logic(p, level);
    struct operand a = operators(p, level + 1);
    for (const struct operator *op; (op = find_operator(p, "")) && op->level == level;) {
        if (a.is_place)                  /* what follows may change it */
            a = made(read(p, a), a.type);
        words_next(&p->w);
        a = apply_operator(p, op, a, operators(p, level + 1));
    }
    return a;
}

/* Only one side is computed. */
static struct operand conditional(struct piece *p)
{
    struct emit *e = p->e;
    struct operand c = operators(p, LEVEL_OR);
    if (!words_take(&p->w, "?"))
        return c;
    LLVMBasicBlockRef then = block_new(e, "then"), other = block_new(e, "else"),
                      after = block_new(e, "chosen");
    e->l->BuildCondBr(e->at, piece_condition(p, c), then, other);
    e->l->PositionBuilderAtEnd(e->at, then);
    struct operand a = piece_expression(p);
    a = made(read(p, a), a.type);
    then = e->l->GetInsertBlock(e->at);
    words_need(&p->w, ":");
    e->l->PositionBuilderAtEnd(e->at, other);
    struct operand b = conditional(p);
    enum ctype type = a.type == b.type ? a.type : ctype_common(a.type, b.type);
    value y = piece_read_as(p, b, type);
    other = e->l->GetInsertBlock(e->at);
    e->l->BuildBr(e->at, after);
    e->l->PositionBuilderAtEnd(e->at, then);
    value x = piece_read_as(p, a, type);
    e->l->BuildBr(e->at, after);
    e->l->PositionBuilderAtEnd(e->at, after);
    return made(join(p, ctype_register(e, type), x, then, y, other), type);
}

struct operand piece_assignment(struct piece *p)
{
    struct operand to = conditional(p), from;
    const struct operator *op = find_operator(p, "=");
    if (op && !op->compares) {
        words_next(&p->w);
        from = apply_operator(p, op, to, piece_assignment(p));
    } else if (words_take(&p->w, "=")) {
        from = piece_assignment(p);
    } else {
        return to;
    }
    if (!to.is_place)
        words_wrong(&p->w);
    ctype_store(p->e, piece_read_as(p, from, to.type), to.v, to.type);
    return to;
}

struct operand piece_expression(struct piece *p)
{
    struct operand r = piece_assignment(p);
    while (words_take(&p->w, ","))
        r = piece_assignment(p);
    return r;
}
