/* exprs.c - one elementwise op to one C expression, by the table exprs.def.
 *
 * Signed overflow, division by zero, wide shifts and float conversions out of range are undefined
 * in C and defined in the IR. Where the bounds of the operands exclude these the plain operator is
 * written; otherwise a helper of runtime/number.c. Integers of at most 32 bits (except u32) are
 * computed in int and wrapped to their width where they could leave it. Narrow floats are computed
 * in float; their rounding is pending until the value has a use other than a store, which rounds by
 * itself.
 */
#include "backends/cstyle/cstyle.h"

#include <math.h>
#include <string.h>

struct line { enum op op; const char *kinds; enum prec prec; const char *text; bool wrap; };
static const struct line table[] = {
#define EXPR(op, kinds, prec, text) {OP_##op, #kinds, PREC_##prec, text, false},
#define WRAP(op, kinds, prec, text) {OP_##op, #kinds, PREC_##prec, text, true},
#include "backends/cstyle/exprs.def"
#undef EXPR
#undef WRAP
};

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

static struct expr call(struct program *p, const char *function, const char *args, char kind)
{
    if (snippet_find(function))
        snippet_use(&p->snippets, function);
    return expr_name(mem_printf(p->t, "%s(%s)", function, args), kind);
}

static struct expr cast(struct program *p, const char *type, const struct expr *e, char kind)
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

static struct expr const_int(struct program *p, enum dtype d, int64_t v)
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
        return const_int(p, d, v.i);
    struct text s = {.t = p->t};
    if (d == DTYPE_F64)
        text_double(&s, v.f);
    else
        text_float(&s, (float)v.f);
    return (struct expr){
        .s = s.s, .prec = s.s[0] == '-' ? PREC_UNARY : PREC_CALL, .kind = expr_kind(d)};
}

/* --------------------------------------------------------------------------------------- bounds */

struct bounds { int64_t lo, hi; };

static struct bounds bounds_sum(struct bounds a, struct bounds b)
{
    return (struct bounds){sat_add(a.lo, b.lo), sat_add(a.hi, b.hi)};
}

static int64_t sat_neg(int64_t v) { return v == INT64_MIN ? INT64_MAX : -v; }

static struct bounds bounds_negated(struct bounds a)
{
    return (struct bounds){sat_neg(a.hi), sat_neg(a.lo)};
}

static struct bounds bounds_product(struct bounds a, struct bounds b)
{
    int64_t v[4] = {sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi), sat_mul(a.hi, b.lo),
                    sat_mul(a.hi, b.hi)};
    struct bounds r = {v[0], v[0]};
    for (int i = 1; i < 4; i++) {
        r.lo = v[i] < r.lo ? v[i] : r.lo;
        r.hi = v[i] > r.hi ? v[i] : r.hi;
    }
    return r;
}

/* Bounds of the op's result in unlimited integers. INT64_MIN and INT64_MAX mean that they may be
 * beyond these. */
static struct bounds bounds_exact(const struct uop *u)
{
    struct bounds v[3] = {{0, 0}, {0, 0}, {0, 0}};
    for (int i = 0; i < u->nsrc && i < 3; i++)
        v[i] = (struct bounds){u->src[i]->vmin, u->src[i]->vmax};
    switch (u->op) {
    case OP_NEG: return bounds_negated(v[0]);
    case OP_ABS: {
        struct bounds n = bounds_negated(v[0]);
        return (struct bounds){0, v[0].hi > n.hi ? v[0].hi : n.hi};
    }
    case OP_ADD: return bounds_sum(v[0], v[1]);
    case OP_SUB: return bounds_sum(v[0], bounds_negated(v[1]));
    case OP_MUL: return bounds_product(v[0], v[1]);
    case OP_MULACC: return bounds_sum(bounds_product(v[0], v[1]), v[2]);
    case OP_SHL:
        if (v[0].lo < 0 || v[1].lo < 0 || v[1].hi > 30)
            return (struct bounds){INT64_MIN, INT64_MAX};
        return bounds_product(v[0], (struct bounds){1, (int64_t)1 << v[1].hi});
    case OP_NOT: return (struct bounds){-1 - v[0].hi, -1 - v[0].lo};
    default: return (struct bounds){u->vmin, u->vmax};
    }
}

static bool within(struct bounds b, int64_t lo, int64_t hi)
{
    return b.lo >= lo && b.hi <= hi && b.lo > INT64_MIN && b.hi < INT64_MAX;
}

/* Whether C's operator on a type of `bits` has the IR's meaning here. */
static bool is_plain(const struct uop *u, int bits)
{
    int64_t lo = bits == 32 ? INT32_MIN : INT64_MIN, hi = bits == 32 ? INT32_MAX : INT64_MAX;
    const struct uop *a = u->src[0], *b = u->nsrc > 1 ? u->src[1] : NULL;
    switch (u->op) {
    case OP_NEG: case OP_ABS: case OP_ADD: case OP_SUB: case OP_MUL: case OP_MULACC: case OP_SHL:
        return within(bounds_exact(u), lo, hi);
    case OP_DIV: case OP_MOD:
        return b->vmin > 0 || (b->vmax < 0 && (a->vmin > lo || b->vmax < -1));
    case OP_FLOORDIV: case OP_FLOORMOD:
        return a->vmin >= 0 && b->vmin > 0;
    case OP_SHR:
        return a->vmin >= 0 && b->vmin >= 0 && b->vmax < bits;
    case OP_POW:
        return false;
    default:
        return true;
    }
}

/* ------------------------------------------------------------------------------------ templates */

static const struct line *find_line(struct program *p, enum op op, char kind, bool wrap)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == op && table[i].wrap == wrap && strchr(table[i].kinds, kind))
            return &table[i];
    TGC_BUG(p->t, "exprs.def has no line for %s of kind %c%s", op_name(op), kind,
            wrap ? " that wraps" : "");
}

/* Uses the runtime functions that a template calls: words before '('. */
static void use_calls(struct program *p, const char *text)
{
    for (const char *s = text; *s; s++) {
        char word[64];
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (n > 0 && n < sizeof word && s[n] == '(') {
            memcpy(word, s, n);
            word[n] = 0;
            if (snippet_find(word))
                snippet_use(&p->snippets, word);
        }
        if (n > 0)
            s += n - 1;
    }
}

/* The suffix of functions on vectors of this kind. */
static const char *vector_name(struct program *p, char kind, int lanes)
{
    return mem_printf(p->t, "%s%d", kind == 'W' ? "i32x" : "f32x", lanes);
}

static struct expr expand(struct program *p, const struct line *l, const struct expr *src,
                          char kind)
{
    struct text out = {.t = p->t};
    use_calls(p, l->text);
    for (const char *s = l->text; *s; s++) {
        if (*s == '@') {
            text_printf(&out, "%s",
                        vector_name(p, kind, src[0].lanes ? src[0].lanes : src[1].lanes));
            continue;
        }
        if (!strchr("$<>!?", *s) || s[1] < '0' || s[1] > '2') {
            text_putc(&out, *s);
            continue;
        }
        enum prec least = *s == '$'   ? PREC_COND
                          : *s == '<' ? l->prec
                          : *s == '>' ? (enum prec)(l->prec + 1)
                          : *s == '!' ? PREC_UNARY
                                      : PREC_COMPARE;
        const struct expr *e = &src[*++s - '0'];
        bool minus_minus = e->s[0] == '-' && out.n > 0 && out.s[out.n - 1] == '-';
        text_puts(&out, minus_minus ? mem_printf(p->t, "(%s)", e->s) : expr_operand(p, e, least));
    }
    return (struct expr){.s = out.s, .prec = l->prec, .kind = kind};
}

/* a + -b is a - b, with the negated operand second: both are exact, in floats too. */
static struct expr sum(struct program *p, const struct expr *src, char kind)
{
    struct expr v[2] = {src[0], src[1]};
    if (v[0].s[0] == '-' && v[0].prec >= PREC_MUL && v[1].s[0] != '-') {
        v[0] = src[1];
        v[1] = src[0];
    }
    bool minus = v[1].s[0] == '-' && v[1].prec >= PREC_MUL;
    if (minus)
        v[1].s++;
    return expand(p, find_line(p, minus ? OP_SUB : OP_ADD, kind, false), v, kind);
}

/* Index arithmetic reads best as i*4, and as -i*4 where that becomes a subtraction. */
static struct expr product(struct program *p, const struct uop *u, const struct expr *src,
                           char kind)
{
    struct expr v[2] = {src[0], src[1]};
    int64_t c = 1;
    bool integer = kind == 'I' || kind == 'L';
    if (integer && uop_const_int(u->src[0], &c)) {
        v[0] = src[1];
        v[1] = src[0];
    }
    /* Literals of int carry no suffix: one line of the table serves both widths of index
     * arithmetic. */
    const struct line *l = find_line(p, OP_MUL, integer && u->dtype == DTYPE_INDEX ? 'L' : kind,
                                     false);
    bool negative = integer && (uop_const_int(u->src[1], &c) || uop_const_int(u->src[0], &c)) &&
                    c < 0 && c > INT32_MIN;
    /* -a % b is -(a % b) in C, too */
    if (negative && c == -1 && v[0].prec == PREC_MUL)
        return (struct expr){.s = mem_printf(p->t, "-%s", v[0].s), .prec = PREC_MUL, .kind = kind};
    if (!negative || v[0].prec < PREC_CALL)
        return expand(p, l, v, kind);
    v[0].s = mem_printf(p->t, "-%s", v[0].s);
    v[0].prec = PREC_UNARY;
    if (c == -1)
        return (struct expr){.s = v[0].s, .prec = PREC_UNARY, .kind = kind};
    v[1] = const_int(p, DTYPE_I64, -c);
    return expand(p, l, v, kind);
}

/* 3 < i reads as i >= 4. */
static struct expr less(struct program *p, const struct uop *u, const struct expr *src)
{
    int64_t c;
    bool integer = dtype_is_int(u->src[0]->dtype) && u->src[0]->dtype != DTYPE_U64;
    struct expr e = {.prec = PREC_COMPARE, .kind = 'B'};
    const char *a = expr_operand(p, &src[0], PREC_SHIFT), *b = expr_operand(p, &src[1], PREC_SHIFT);
    if (integer && uop_const_int(u->src[0], &c) && c < dtype_max(u->src[0]->dtype)) {
        e.s = mem_printf(p->t, "%s >= %s", b, const_int(p, u->src[0]->dtype, c + 1).s);
        e.negated = mem_printf(p->t, "%s < %s", b, const_int(p, u->src[0]->dtype, c + 1).s);
        return e;
    }
    e.s = mem_printf(p->t, "%s < %s", a, b);
    e.negated = integer ? mem_printf(p->t, "%s >= %s", a, b) : NULL;
    return e;
}

/* ---------------------------------------------------------------------------------- conversions */

/* Wraps an int (or wider) to the width of d. */
static struct expr wrap_to(struct program *p, enum dtype d, const struct expr *e)
{
    switch (d) {
    case DTYPE_I4: return call(p, "wrap_i4", e->s, 'I');
    case DTYPE_I2: return call(p, "wrap_i2", e->s, 'I');
    case DTYPE_U4: case DTYPE_U2: {
        struct expr r = {.prec = PREC_BIT, .kind = 'I'};
        r.s = mem_printf(p->t, "%s & %d", expr_operand(p, e, PREC_UNARY), d == DTYPE_U4 ? 15 : 3);
        if (e->kind != 'I' && e->kind != 'B')
            return cast(p, "int", &r, 'I');
        return r;
    }
    default: return cast(p, dtype_ctype(d), e, expr_kind(d));
    }
}

static struct expr cast_to_int(struct program *p, enum dtype d, const struct uop *from,
                               const struct expr *e)
{
    char kind = expr_kind(d);
    if (e->kind == 'F' || e->kind == 'D') {
        if (kind == 'I' && d != DTYPE_I32)
            return call(p, "to_int",
                        mem_printf(p->t, "%s, %lld, %lld", e->s, (long long)dtype_min(d),
                                   (long long)dtype_max(d)),
                        'I');
        return call(p,
                    kind == 'I'   ? "to_i32"
                    : kind == 'L' ? "to_i64"
                    : kind == 'U' ? "to_u32"
                                  : "to_u64",
                    e->s, kind);
    }
    if (kind == 'L' && (e->kind == 'I' || e->kind == 'B')) {
        struct expr r = *e;
        r.kind = 'I';            /* an int is a valid int64_t */
        return r;
    }
    if (kind == e->kind && kind != 'I')
        return *e;
    bool fits = from->dtype != DTYPE_U64 && from->vmin >= dtype_min(d) &&
                from->vmax <= dtype_max(d);
    if (kind == 'I' && fits) {
        struct expr r = *e;
        if (e->kind != 'I' && e->kind != 'B')
            return cast(p, "int", e, 'I');
        r.kind = 'I';
        return r;
    }
    return wrap_to(p, d, e);
}

static struct expr cast_to_float(struct program *p, enum dtype d, const struct uop *from,
                                 const struct expr *e)
{
    struct expr r = *e, one = expr_const(p, d, (union arg){.f = 1}),
                zero = expr_const(p, d, (union arg){.f = 0});
    char kind = expr_kind(d);
    if (e->kind == 'B')
        return expr_choose(p, e, &one, &zero);
    if (kind == 'D')
        return e->kind == 'D' ? r : cast(p, "double", e, 'D');
    bool narrow = d != DTYPE_F32;
    bool exact = e->kind == 'F' || ((e->kind != 'D') && from->dtype != DTYPE_U64 &&
                                    from->vmin >= -(1 << 24) && from->vmax <= 1 << 24);
    if (narrow && !exact && e->kind != 'D')
        r = cast(p, "double", e, 'D');
    if (narrow && !exact)
        r = call(p, "f32_odd", r.s, 'F');
    else if (e->kind != 'F')
        r = cast(p, "float", e, 'F');
    r.round = narrow && from->dtype != d ? d : DTYPE_VOID;
    return r;
}

static struct expr cast_expr(struct program *p, const struct uop *u, const struct expr *e)
{
    const struct uop *from = u->src[0];
    if (from->dtype == DTYPE_STRING || u->dtype == DTYPE_STRING)
        TGC_BUG(p->t, "cast of strings reached the renderer");
    if (dtype_is_float(u->dtype))
        return cast_to_float(p, u->dtype, from, e);
    if (u->dtype != DTYPE_BOOL)
        return cast_to_int(p, u->dtype, from, e);
    if (e->kind == 'B')
        return *e;
    return (struct expr){.s = mem_printf(p->t, "%s != 0", expr_operand(p, e, PREC_SHIFT)),
                         .prec = PREC_COMPARE,
                         .kind = 'B'};
}

static struct expr bitcast_expr(struct program *p, const struct uop *u, const struct expr *e)
{
    enum dtype to = u->dtype, from = u->src[0]->dtype;
    bool to_float = dtype_is_float(to), from_float = dtype_is_float(from);
    struct expr r = *e;
    if (dtype_nbytes(to) != dtype_nbytes(from))
        TGC_BUG(p->t, "bitcast from %s to %s", dtype_name(from), dtype_name(to));
    if (from_float && from == to)
        return r;
    if (from == DTYPE_F32 || from == DTYPE_F64)
        r = call(p, from == DTYPE_F32 ? "bits_f32" : "bits_f64", e->s,
                 from == DTYPE_F32 ? 'U' : 'V');
    else if (from_float)
        r = call(p, mem_printf(p->t, "f32_to_%s", dtype_name(from)), e->s, 'I');
    if (to == DTYPE_F32 || to == DTYPE_F64) {
        char kind = to == DTYPE_F32 ? 'U' : 'V';
        if (r.kind != kind)
            r = cast(p, expr_type(p, &(struct expr){.kind = kind}), &r, kind);
        return call(p, to == DTYPE_F32 ? "float_bits" : "double_bits", r.s, expr_kind(to));
    }
    if (to_float) {
        if (!from_float)
            r = cast(p, dtype_ctype(to), &r, 'I');
        return call(p, mem_printf(p->t, "%s_to_f32", dtype_name(to)), r.s, 'F');
    }
    return wrap_to(p, to, &r);
}

/* ------------------------------------------------------------------------------------- applying */

static bool is_comparison(enum op op) { return op == OP_LT || op == OP_EQ || op == OP_NE; }

/* Ops whose results need no rounding if the operands are values of the format. */
static bool is_exact(enum op op)
{
    switch (op) {
    case OP_NEG: case OP_ABS: case OP_MAX: case OP_MIN: case OP_WHERE: case OP_FLOOR: case OP_CEIL:
    case OP_TRUNC: case OP_ROUND:
    case OP_MOD:
        return true;
    default:
        return false;
    }
}

struct expr expr_choose(struct program *p, const struct expr *cond, const struct expr *a,
                        const struct expr *b)
{
    struct expr src[3] = {*cond, *a, *b};
    char kind = a->kind == 'I' && b->kind == 'L' ? 'L' : a->kind;
    if (kind == 'S')
        return (struct expr){.s = mem_printf(p->t, "%s ? %s : %s", expr_operand(p, cond, PREC_OR),
                                             expr_operand(p, a, PREC_OR), b->s),
                             .prec = PREC_COND,
                             .kind = kind};
    if (kind == 'X' && cond->kind != 'M') {           /* one condition for all lanes */
        /* arithmetic yields another vector type than functions return */
        for (int k = 1; k < 3; k++)
            if (src[k].prec < PREC_CALL)
                src[k] = cast(p, expr_type(p, &src[k]), &src[k], 'X');
        struct expr e = expand(p, find_line(p, OP_WHERE, 'F', false), src, kind);
        e.lanes = a->lanes;
        return e;
    }
    return expand(p, find_line(p, OP_WHERE, kind, false), src, kind);
}

/* I64 arithmetic is done in int where the operands are ints and the result fits; otherwise at least
 * one operand has to be wide. */
static char index_kind(struct program *p, const struct uop *u, struct expr *src, int first)
{
    bool narrow = true;
    for (int i = first; i < u->nsrc; i++)
        narrow &= src[i].kind == 'I';
    if (narrow && (is_comparison(u->op) || (u->op != OP_POW && is_plain(u, 32) &&
                                            within(bounds_exact(u), INT32_MIN, INT32_MAX))))
        return 'I';
    if (narrow)
        src[first] = cast(p, "int64_t", &src[first], 'L');
    return 'L';
}

static struct expr apply_int(struct program *p, const struct uop *u, struct expr *src, char kind)
{
    bool is_signed = kind == 'I' || kind == 'L';
    bool wrap = (is_signed && !is_plain(u, kind == 'I' ? 32 : 64)) ||
                (u->op == OP_POW && kind != 'V');
    if (!wrap && u->op == OP_ADD)
        return sum(p, src, kind);
    if (!wrap && u->op == OP_MUL)
        return product(p, u, src, kind);
    if (kind == 'L' && !wrap && u->op == OP_SHL && src[0].kind == 'I')
        src[0] = cast(p, "int64_t", &src[0], 'L');
    struct expr e = expand(p, find_line(p, u->op, kind, wrap), src, kind);
    if (u->op == OP_POW && kind != 'L' && kind != 'V') {
        e.kind = 'L';
        return cast_to_int(p, u->dtype,
                           &(struct uop){.dtype = DTYPE_I64, .vmin = INT64_MIN, .vmax = INT64_MAX},
                           &e);
    }
    return e;
}

/* A call of the vector function of this kind. */
static struct expr vector_call(struct program *p, const char *function, const char *args, char kind,
                               int lanes)
{
    const char *name = mem_printf(p->t, "%s_%s", function, vector_name(p, kind, lanes));
    struct expr e = call(p, name, args, kind);
    e.lanes = lanes;
    return e;
}

static char vector_kind(enum dtype d) { return d == DTYPE_BOOL ? 'M' : d == DTYPE_I32 ? 'W' : 'X'; }

static bool is_clamp(const struct uop *u, enum op op, double least, double most)
{
    const struct uop *c = u->nsrc == 2 ? u->src[1] : NULL;
    c = c && c->op == OP_SPLAT ? c->src[0] : c;
    return u->op == op && c && c->op == OP_CONST && c->arg.f >= least && c->arg.f <= most;
}

/* min(max(x, ..), ..) with a result that fits in an u8, or is NaN. */
static bool is_in_u8(const struct uop *u)
{
    return is_clamp(u, OP_MIN, 0, 255) && is_clamp(u->src[0], OP_MAX, 0, 255);
}

/* Bytes are widened where they are loaded; floats become bytes where they are stored. */
static struct expr cast_vector(struct program *p, const struct uop *u, const struct expr *src)
{
    struct expr e = *src;
    char kind = vector_kind(u->dtype);
    if (src->kind == 'P')
        return vector_call(p, mem_printf(p->t, "load_%s", dtype_name(u->src[0]->dtype)), src->s,
                           kind, u->lanes);
    if (src->kind == 'M')
        return vector_call(p, "from_bool", src->s, kind, u->lanes);
    if (src->kind == 'W')
        return vector_call(p, "from_i32", src->s, kind, u->lanes);
    if (u->src[0]->dtype == DTYPE_F16)
        return vector_call(p, "round_f16", src->s, kind, u->lanes);
    e.of = u->dtype;
    e.in_range = u->dtype == DTYPE_U8 && is_in_u8(u->src[0]);
    return e;
}

/* Whether it is known not to be NaN. */
static bool is_number(const struct uop *u)
{
    if (u->op == OP_SPLAT)
        return u->src[0]->op == OP_CONST && !isnan(u->src[0]->arg.f);
    return u->op == OP_CAST && dtype_is_int(u->src[0]->dtype);
}

/* The function for a maximum or minimum if one operand is known not to be NaN, so that it need not
 * propagate the other's NaN. NULL: neither is known. */
static const char *extreme(struct program *p, const struct uop *u, const struct expr *src)
{
    for (int k = 0; k < 2 && (u->op == OP_MAX || u->op == OP_MIN); k++)
        if (is_number(u->src[k]))
            return mem_printf(p->t, "%s, %s", src[k].s, src[1 - k].s);
    return NULL;
}

/* On vectors: the lines of kinds X and W, and of M where the operands are lanes of a comparison. */
static struct expr apply_vector(struct program *p, const struct uop *u, const struct expr *src)
{
    char kind = vector_kind(u->src[u->nsrc - 1]->dtype);
    struct expr e;
    if (u->op == OP_CAST)
        return cast_vector(p, u, src);
    const char *args = u->dtype == DTYPE_F32 ? extreme(p, u, src) : NULL;
    if (args)
        return vector_call(p, u->op == OP_MAX ? "higher" : "lower", args, kind, u->lanes);
    if (u->op == OP_WHERE && u->src[0]->lanes == 1)
        e = expr_choose(p, &src[0], &src[1], &src[2]);
    else if (u->op == OP_ADD)
        e = sum(p, src, kind);
    else
        e = expand(p, find_line(p, u->op, kind, false), src, kind);
    e.kind = vector_kind(u->dtype);
    e.lanes = u->lanes;
    if (e.prec == PREC_CALL)
        use_calls(p, e.s);
    return e;
}

struct expr expr_apply(struct program *p, const struct uop *u, const struct expr *operands)
{
    struct expr src[3] = {{0}, {0}, {0}};
    for (int i = 0; i < u->nsrc; i++)
        src[i] = expr_resolve(p, operands[i]);
    if (u->lanes > 1)
        return apply_vector(p, u, src);
    if (u->op == OP_CAST)
        return cast_expr(p, u, &src[0]);
    if (u->op == OP_BITCAST)
        return bitcast_expr(p, u, &src[0]);
    if (u->op == OP_NOT && src[0].negated && u->dtype == DTYPE_BOOL)
        return (struct expr){
            .s = src[0].negated, .negated = src[0].s, .prec = PREC_COMPARE, .kind = 'B'};

    /* index of the first operand that carries the type */
    int first = u->op == OP_WHERE;
    char kind = expr_kind(u->src[first]->dtype);
    if (kind == 'S' && u->op == OP_WHERE)
        return expr_choose(p, &src[0], &src[1], &src[2]);
    if (kind == 'S') {
        struct expr e = call(p, "equal_string", mem_printf(p->t, "%s, %s", src[0].s, src[1].s),
                             'B');
        const char *differ = mem_printf(p->t, "!%s", e.s);
        return u->op == OP_EQ ? e : (struct expr){.s = differ, .prec = PREC_UNARY, .kind = 'B'};
    }
    if (kind == 'L')
        kind = index_kind(p, u, src, first);
    if (u->op == OP_LT && kind != 'B')
        return less(p, u, src);
    if (kind == 'F' || kind == 'D') {
        struct expr e = u->op == OP_ADD ? sum(p, src, kind)
                                        : expand(p, find_line(p, u->op, kind, false), src, kind);
        if (is_comparison(u->op) || u->op == OP_ISNAN)
            e.kind = 'B';
        else if (kind == 'F' && u->dtype != DTYPE_F32 && !is_exact(u->op))
            e.round = u->dtype;
        return e;
    }
    if (kind == 'B')
        return expand(p, find_line(p, u->op, kind, false), src, 'B');
    struct expr e = apply_int(p, u, src, kind);
    if (is_comparison(u->op)) {
        e.kind = 'B';
        e.negated =
            expand(p, find_line(p, u->op == OP_EQ ? OP_NE : OP_EQ, kind, false), src, 'B').s;
        return e;
    }
    struct bounds exact = bounds_exact(u);
    if (kind == 'I' && u->dtype != DTYPE_I64 && u->dtype != DTYPE_I32 &&
        !within(exact, dtype_min(u->dtype), dtype_max(u->dtype)))
        return wrap_to(p, u->dtype, &e);
    return e;
}

/* --------------------------------------------------------------------------------------- memory */

struct expr expr_resolve(struct program *p, struct expr e)
{
    if (e.round == DTYPE_VOID)
        return e;
    return call(p, mem_printf(p->t, "round_%s", dtype_name(e.round)), e.s, e.kind);
}

struct expr expr_load(struct program *p, enum dtype d, const char *place, bool trusted)
{
    char kind = expr_kind(d);
    if (kind == 'F' && d != DTYPE_F32)
        return call(p, mem_printf(p->t, "%s_to_f32", dtype_name(d)), place, 'F');
    /* a caller's true may be any nonzero byte */
    if (kind == 'B' && !trusted)
        return (struct expr){
            .s = mem_printf(p->t, "%s != 0", place), .prec = PREC_COMPARE, .kind = 'B'};
    return expr_name(place, kind);
}

const char *expr_stored(struct program *p, enum dtype d, const struct expr *e)
{
    if (expr_kind(d) == 'F' && d != DTYPE_F32) {
        struct expr v = e->round == d ? *e : expr_resolve(p, *e);
        if (d == DTYPE_F8E5M2 && e->round != d) /* the only 8-bit kind with an infinity */
            return call(p, "store_f8e5m2", v.s, 'I').s;
        return call(p, mem_printf(p->t, "f32_to_%s", dtype_name(d)), v.s, 'I').s;
    }
    struct expr v = expr_resolve(p, *e);
    if (v.kind == 'I' && d != DTYPE_I32 && d != DTYPE_I64)
        return cast(p, dtype_ctype(d), &v, 'I').s;
    /* gcc compares x != INFINITY with a literal of its own, and then warns of the conversion */
    if (v.kind == 'B' && strstr(v.s, "INFINITY"))
        return cast(p, dtype_ctype(d), &v, 'B').s;
    return v.s;
}

/* "load", "load_part" or "load_apart", and the arguments after the place and the value: the stride,
 * the number of elements. */
static const char *vector_access(struct program *p, const char *verb, int64_t bits,
                                 const char **args)
{
    int part = VECTOR_PART(bits), lanes = VECTOR_LANES(bits);
    long long stride = (long long)VECTOR_STRIDE(bits);
    if (stride != 1) {
        *args = mem_printf(p->t, "%s, %lld, %d", *args, stride, part ? part : lanes);
        return mem_printf(p->t, "%s_apart", verb);
    }
    if (part)
        *args = mem_printf(p->t, "%s, %d", *args, part);
    return part ? mem_printf(p->t, "%s_part", verb) : verb;
}

struct expr expr_load_vector(struct program *p, enum dtype d, const char *place, int64_t bits)
{
    const char *args = mem_printf(p->t, "&%s", place);
    int lanes = VECTOR_LANES(bits);
    if (VECTOR_IS_GROUPS(bits) && VECTOR_STRIDE(bits) != 1)
        return vector_call(p, "load_groups",
                           mem_printf(p->t, "%s, %lld", args, (long long)VECTOR_STRIDE(bits)), 'W',
                           lanes / DOT_BYTES);
    if (VECTOR_IS_GROUPS(bits))
        return lanes == DOT_BYTES ? call(p, "four_bytes", args, 'I')
                                  : vector_call(p, "load_bytes", args, 'W', lanes / DOT_BYTES);
    if (d == DTYPE_BOOL)
        return vector_call(p, "load_bool", args, 'M', lanes);
    if (d == DTYPE_I64 && VECTOR_STRIDE(bits) != 1)
        args = mem_printf(p->t, "%s, %lld", args, (long long)VECTOR_STRIDE(bits));
    if (d != DTYPE_F32 && d != DTYPE_I32)
        return (struct expr){.s = args, .prec = PREC_UNARY, .kind = 'P', .of = d, .lanes = lanes};
    const char *name = vector_access(p, "load", bits, &args);
    return vector_call(p, name, args, vector_kind(d), lanes);
}

struct expr expr_splat(struct program *p, const struct expr *e, int lanes)
{
    bool whole = e->kind == 'I';
    struct expr v =
        vector_call(p, e->kind == 'B' ? "splat_mask" : "splat", e->s, whole ? 'W' : 'X', lanes);
    v.kind = e->kind == 'B' ? 'M' : v.kind;
    return v;
}

struct expr expr_ramp(struct program *p, const struct expr *e, int lanes)
{
    return vector_call(p, "ramp", e->s, 'X', lanes);
}

struct expr expr_intrinsic(struct program *p, enum isa isa, const struct uop *u,
                           const struct expr *src)
{
    const char *args = src[0].s;
    const char *function = isa_function(isa, INTRINSIC_ROW(u->arg.i));
    if (!function)
        TGC_BUG(p->t, "%s has no %s", isa_name(isa), intrinsic_name(INTRINSIC_ROW(u->arg.i)));
    for (int k = 1; k < u->nsrc; k++)
        args = mem_printf(p->t, "%s, %s", args, src[k].s);
    return vector_call(p, function, args, vector_kind(u->dtype), u->lanes);
}

struct expr expr_lanes(struct program *p, int lanes)
{
    return vector_call(p, "lanes", "", 'W', lanes);
}

struct expr expr_narrow(struct program *p, const struct uop *u, const struct expr *e)
{
    const struct uop *from = u->src[0];
    const char *function = from->dtype == DTYPE_F32            ? "narrow_f32"
                           : VECTOR_STRIDE(from->arg.i) == 1 ? "narrow_i64"
                                                             : "narrow_apart_i64";
    return vector_call(p, function, mem_printf(p->t, "%s, %lld", e->s, (long long)u->arg.i), 'W',
                       u->lanes);
}

struct expr expr_gather(struct program *p, const char *from, const struct expr *at,
                        bool conditional)
{
    const char *args = mem_printf(p->t, "%s, %s", from, at[0].s);
    if (conditional)
        args = mem_printf(p->t, "%s, %s, %s", args, at[1].s, at[2].s);
    return vector_call(p, conditional ? "gather_where" : "gather", args, 'X', at[0].lanes);
}

struct expr expr_lookup(struct program *p, const char *from, enum dtype d,
                        const struct expr *bytes)
{
    const char *function = d == DTYPE_I8 ? "lookup_i8" : "lookup";
    return vector_call(p, function, mem_printf(p->t, "%s, %s", from, bytes->s), 'W', bytes->lanes);
}

struct expr expr_fold(struct program *p, enum op op, const struct expr *e)
{
    const char *name = op == OP_ADD   ? "sum"
                       : op == OP_MUL ? "product"
                       : op == OP_MAX ? "largest"
                                      : "smallest";
    struct expr v = vector_call(p, name, e->s, 'X', e->lanes);
    v.kind = 'F';
    v.lanes = 0;
    return v;
}

struct expr expr_half(struct program *p, const struct expr *e)
{
    struct expr v = vector_call(p, "half", e->s, 'X', e->lanes);
    v.lanes = e->lanes / 2;
    return v;
}

struct expr expr_cross(struct program *p, const struct expr *src, int64_t bits)
{
    const char *args = mem_printf(p->t, "%s, %s, %d", src[0].s, src[1].s, CROSS_BY(bits));
    return vector_call(p, CROSS_IS_ODD(bits) ? "odds" : "evens", args, 'X', src[0].lanes);
}

const char *expr_store_vector(struct program *p, const char *place, const struct expr *e,
                              int64_t bits)
{
    const char *args = mem_printf(p->t, "&%s, %s", place, e->s);
    if (VECTOR_IS_GROUPS(bits) && VECTOR_LANES(bits) == DOT_BYTES)
        return mem_printf(p->t, "%s;", call(p, "store_four_bytes", args, 'I').s);
    if (VECTOR_IS_GROUPS(bits))
        return mem_printf(p->t, "%s;", vector_call(p, "store_bytes", args, 'W', e->lanes).s);
    const char *name = vector_access(p, "store", bits, &args);
    if (e->of == DTYPE_F16 || e->of == DTYPE_BF16)
        name = mem_printf(p->t, "%s_%s", name, dtype_name(e->of));
    if (dtype_is_byte(e->of))
        name = e->rounds ? mem_printf(p->t, "%s_nearest_%s", name, dtype_name(e->of))
               : e->in_range && strcmp(name, "store") == 0
                   ? "store_number_u8"
                   : mem_printf(p->t, "%s_%s", name, dtype_name(e->of));
    return mem_printf(p->t, "%s;", vector_call(p, name, args, e->kind, e->lanes).s);
}
