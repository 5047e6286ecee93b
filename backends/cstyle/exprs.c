/* exprs.c - one elementwise op to one C expression, by the table exprs.def.
 *
 * Signed overflow, division by zero, wide shifts and float conversions out of range are undefined
 * in C and defined in the IR. Where the program says that there are none (target/widths.c) the
 * plain operator is written; otherwise a helper of runtime/number.c. Narrow formats are computed in
 * int and float; what could leave them has been given a cast (target/legalize.c).
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

struct line { enum op op; const char *kinds; enum prec prec; const char *text; bool careful; };
static const struct line table[] = {
#define EXPR(op, kinds, prec, text) {OP_##op, #kinds, PREC_##prec, text, false},
#define CAREFUL(op, kinds, prec, text) {OP_##op, #kinds, PREC_##prec, text, true},
#include "backends/cstyle/exprs.def"
#undef EXPR
#undef CAREFUL
};

/* ------------------------------------------------------------------------------------ templates */

static const struct line *try_line(enum op op, char kind, bool careful)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == op && table[i].careful == careful && strchr(table[i].kinds, kind))
            return &table[i];
    return NULL;
}

static const struct line *find_line(struct program *p, enum op op, char kind)
{
    const struct line *l = try_line(op, kind, false);
    if (!l)
        TGC_BUG(p->t, "exprs.def has no line for %s of kind %c", op_name(op), kind);
    return l;
}

/* The line where the program does not say that the plain one does. */
static const struct line *line_of(struct program *p, const struct uop *u, char kind)
{
    const struct line *l = u->arg.i & ARG_PLAIN ? NULL : try_line(u->op, kind, true);
    return l ? l : find_line(p, u->op, kind);
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
    return expand(p, find_line(p, minus ? OP_SUB : OP_ADD, kind), v, kind);
}

/* Whether an integer is index arithmetic, for a reader. */
static bool is_index(const struct uop *u, const struct expr *src)
{
    bool chooses = u->op == OP_WHERE && u->src[1]->op == OP_CONST && u->src[2]->op == OP_CONST;
    bool any = u->dtype == DTYPE_INDEX;
    for (int k = u->op == OP_WHERE && !chooses; k < u->nsrc; k++)
        any |= src[k].is_index;
    return any;
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
    const struct line *l = find_line(p, OP_MUL, integer && is_index(u, src) ? 'L' : kind);
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
    v[1] = expr_int(p, DTYPE_I64, -c);
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
        e.s = mem_printf(p->t, "%s >= %s", b, expr_int(p, u->src[0]->dtype, c + 1).s);
        e.negated = mem_printf(p->t, "%s < %s", b, expr_int(p, u->src[0]->dtype, c + 1).s);
        return e;
    }
    e.s = mem_printf(p->t, "%s < %s", a, b);
    e.negated = integer ? mem_printf(p->t, "%s >= %s", a, b) : NULL;
    return e;
}

/* ------------------------------------------------------------------------------------- applying */

static bool is_comparison(enum op op) { return op == OP_LT || op == OP_EQ || op == OP_NE; }

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
    /* one condition for all lanes */
    if ((kind == 'X' || kind == 'W' || kind == 'M') && cond->kind != 'M') {
        /* arithmetic yields another vector type than functions return */
        for (int k = 1; k < 3; k++)
            if (src[k].prec < PREC_CALL)
                src[k] = expr_cast(p, expr_type(p, &src[k]), &src[k], kind);
        struct expr e = expand(p, find_line(p, OP_WHERE, 'F'), src, kind);
        e.lanes = a->lanes;
        return e;
    }
    return expand(p, find_line(p, OP_WHERE, kind), src, kind);
}

static struct expr apply_int(struct program *p, const struct uop *u, struct expr *src, char kind)
{
    const struct line *l = line_of(p, u, kind);
    if (!l->careful && u->op == OP_ADD)
        return sum(p, src, kind);
    if (!l->careful && u->op == OP_MUL)
        return product(p, u, src, kind);
    if (kind == 'L' && !l->careful && u->op == OP_SHL && src[0].kind == 'I')
        src[0] = expr_cast(p, "int64_t", &src[0], 'L');
    struct expr e = expand(p, l, src, kind);
    if (u->op == OP_POW && kind != 'L' && kind != 'V') {
        e.kind = 'L';
        return expr_to_int(p, u->dtype, false, &e);
    }
    return e;
}

/* A call of the vector function of this kind. */
static struct expr vector_call(struct program *p, const char *function, const char *args, char kind,
                               int lanes)
{
    const char *name = mem_printf(p->t, "%s_%s", function, vector_name(p, kind, lanes));
    struct expr e = expr_call(p, name, args, kind);
    e.lanes = lanes;
    return e;
}

static char vector_kind(enum dtype d) { return d == DTYPE_BOOL ? 'M' : d == DTYPE_I32 ? 'W' : 'X'; }

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
    if (src->kind == 'W' && kind == 'W')              /* bytes that were widened already */
        return e;
    if (src->kind == 'W')
        return vector_call(p, "from_i32", src->s, kind, u->lanes);
    enum dtype from = u->src[0]->dtype;
    if (dtype_is_half(from) && u->src[0]->op == OP_LOAD)                  /* floats already */
        return e;
    if (dtype_is_half(from))
        return vector_call(p, mem_printf(p->t, "round_%s", dtype_name(from)), src->s, kind,
                           u->lanes);
    e.of = u->dtype;
    e.in_range = u->dtype == DTYPE_U8 && (u->arg.i & ARG_PLAIN);
    return e;
}

/* On vectors: the lines of kinds X and W, and of M where the operands are lanes of a comparison. */
static struct expr apply_vector(struct program *p, const struct uop *u, const struct expr *src)
{
    char kind = vector_kind(u->src[u->nsrc - 1]->dtype);
    struct expr e;
    if (u->op == OP_CAST)
        return cast_vector(p, u, src);
    if (u->op == OP_BITCAST && src->kind == 'P')               /* what is loaded, by another name */
        return *src;
    if (u->op == OP_WHERE && u->src[0]->lanes == 1)
        e = expr_choose(p, &src[0], &src[1], &src[2]);
    else if (u->op == OP_ADD)
        e = sum(p, src, kind);
    else
        e = expand(p, line_of(p, u, kind), src, kind);
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
        return expr_convert(p, u, &src[0]);
    if (u->op == OP_BITCAST)
        return expr_bitcast(p, u, &src[0]);
    if (u->op == OP_NOT && src[0].negated && u->dtype == DTYPE_BOOL)
        return (struct expr){
            .s = src[0].negated, .negated = src[0].s, .prec = PREC_COMPARE, .kind = 'B'};

    /* index of the first operand that carries the type */
    int first = u->op == OP_WHERE;
    char kind = expr_kind(u->src[first]->dtype);
    if (kind == 'S' && u->op == OP_WHERE)
        return expr_choose(p, &src[0], &src[1], &src[2]);
    if (kind == 'S') {
        struct expr e = expr_call(p, "equal_string", mem_printf(p->t, "%s, %s", src[0].s, src[1].s),
                             'B');
        const char *differ = mem_printf(p->t, "!%s", e.s);
        return u->op == OP_EQ ? e : (struct expr){.s = differ, .prec = PREC_UNARY, .kind = 'B'};
    }
    /* C computes in the wider type of two: one operand has to be of it */
    bool is_wide = kind != 'L';
    for (int k = first; k < u->nsrc; k++)
        is_wide |= src[k].kind == 'L';
    if (!is_wide)
        src[first] = expr_cast(p, "int64_t", &src[first], 'L');
    if (u->op == OP_LT && kind != 'B')
        return less(p, u, src);
    if (kind == 'F' || kind == 'D') {
        struct expr e = u->op == OP_ADD ? sum(p, src, kind)
                                        : expand(p, find_line(p, u->op, kind), src, kind);
        if (u->dtype == DTYPE_BOOL)
            e.kind = 'B';
        return e;
    }
    if (kind == 'B')
        return expand(p, find_line(p, u->op, kind), src, 'B');
    struct expr e = apply_int(p, u, src, kind);
    e.is_index = is_index(u, src);
    if (is_comparison(u->op)) {
        e.kind = 'B';
        e.negated =
            expand(p, find_line(p, u->op == OP_EQ ? OP_NE : OP_EQ, kind), src, 'B').s;
        return e;
    }
    return e;
}

/* --------------------------------------------------------------------------------------- memory */

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

struct expr expr_load_vector(struct program *p, enum dtype d, const char *space, const char *place,
                             int64_t bits)
{
    const char *args = mem_printf(p->t, "&%s", place);
    int lanes = VECTOR_LANES(bits);
    if (VECTOR_IS_ALIGNED(bits)) {
        bool groups = VECTOR_IS_GROUPS(bits);
        args = mem_printf(p->t, "%s, %s", space, args);
        return groups && lanes == DOT_BYTES
                   ? expr_call(p, "load_word", args, 'I')
                   : vector_call(p, "load_aligned", args, groups ? 'W' : vector_kind(d),
                                 groups ? lanes / DOT_BYTES : lanes);
    }
    if (VECTOR_IS_GROUPS(bits) && VECTOR_STRIDE(bits) != 1)
        return vector_call(p, "load_groups",
                           mem_printf(p->t, "%s, %lld", args, (long long)VECTOR_STRIDE(bits)), 'W',
                           lanes / DOT_BYTES);
    if (VECTOR_IS_GROUPS(bits))
        return lanes == dtype_group(d)
                   ? expr_call(p, "four_bytes", args, 'I')
                   : vector_call(p, "load_bytes", args, 'W', lanes / dtype_group(d));
    if (d == DTYPE_BOOL)
        return vector_call(p, "load_bool", args, 'M', lanes);
    if (d == DTYPE_I64 && VECTOR_STRIDE(bits) != 1)
        args = mem_printf(p->t, "%s, %lld", args, (long long)VECTOR_STRIDE(bits));
    if (d != DTYPE_F32 && d != DTYPE_I32)
        return (struct expr){.s = args, .prec = PREC_UNARY, .kind = 'P', .of = d, .lanes = lanes};
    const char *name = vector_access(p, "load", bits, &args);
    return vector_call(p, name, args, vector_kind(d), lanes);
}

struct expr expr_load_halves(struct program *p, const struct expr *e)
{
    return vector_call(p, mem_printf(p->t, "load_%s", dtype_name(e->of)), e->s, 'X', e->lanes);
}

struct expr expr_load_bytes_where(struct program *p, const struct expr *e, const struct expr *cond)
{
    struct expr none = expr_const(p, DTYPE_I32, (union arg){.i = 0});
    struct expr v[2] = {
        vector_call(p, mem_printf(p->t, "load_%s", dtype_name(e->of)), e->s, 'W', e->lanes),
        expr_splat(p, &none, e->lanes)};
    return expr_choose(p, cond, &v[0], &v[1]);
}

struct expr expr_load_pixel(struct program *p, const char *place, const struct expr *at,
                            const struct expr *valid, int shift)
{
    const char *args = valid ? mem_printf(p->t, "%s, %s, %s, %d", place, valid->s, at->s, shift)
                             : mem_printf(p->t, "%s, %s, %d", place, at->s, shift);
    return vector_call(p, valid ? "image_where" : "image", args, 'X', 4);
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
    enum intrinsic row = INTRINSIC_ROW(u->arg.i);
    const struct expr *last = &src[u->nsrc - 1];
    const char *args = src[0].s, *function = isa_function(isa, row);
    if (!function)
        TGC_BUG(p->t, "%s has no %s", isa_name(isa), intrinsic_name(row));
    for (int k = 1; k < u->nsrc; k++)
        args = mem_printf(p->t, "%s, %s", args, src[k].s);
    if (row == INTRINSIC_EVENS || row == INTRINSIC_ODDS)
        args = mem_printf(p->t, "%s, %d", args, (int)INTRINSIC_PARAM(u->arg.i, 1));
    if (u->lanes == 1)
        return expr_call(p, function, args, 'I');
    char kind = u->dtype == DTYPE_F32 ? 'X' : last->kind;
    struct expr e = vector_call(p, function, args, kind, last->lanes);
    e.lanes = dtype_is_byte(u->dtype) ? u->lanes / DOT_BYTES : u->lanes;
    return e;
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

struct expr expr_lane(struct program *p, int lane, const struct expr *e)
{
    struct expr v =
        vector_call(p, "lane", mem_printf(p->t, "%s, %d", e->s, lane), e->kind, e->lanes);
    v.kind = e->kind == 'W' ? 'I' : 'F';
    v.lanes = 0;
    return v;
}

const char *expr_store_vector(struct program *p, const char *space, const char *place,
                              const struct expr *e, int64_t bits)
{
    const char *args = mem_printf(p->t, "&%s, %s", place, e->s);
    if (VECTOR_IS_ALIGNED(bits)) {
        args = mem_printf(p->t, "%s, %s", space, args);
        if (VECTOR_IS_GROUPS(bits) && VECTOR_LANES(bits) == DOT_BYTES)
            return mem_printf(p->t, "%s;", expr_call(p, "store_word", args, 'I').s);
        return mem_printf(p->t, "%s;", vector_call(p, "store_aligned", args, e->kind, e->lanes).s);
    }
    if (VECTOR_IS_GROUPS(bits) && VECTOR_LANES(bits) == DOT_BYTES)
        return mem_printf(p->t, "%s;", expr_call(p, "store_four_bytes", args, 'I').s);
    if (VECTOR_IS_GROUPS(bits))
        return mem_printf(p->t, "%s;", vector_call(p, "store_bytes", args, 'W', e->lanes).s);
    const char *name = vector_access(p, "store", bits, &args);
    if (dtype_is_half(e->of))
        name = mem_printf(p->t, "%s_%s", name, dtype_name(e->of));
    if (dtype_is_byte(e->of))
        name = e->rounds ? mem_printf(p->t, "%s_nearest_%s", name, dtype_name(e->of))
               : e->in_range && strcmp(name, "store") == 0
                   ? "store_number_u8"
                   : mem_printf(p->t, "%s_%s", name, dtype_name(e->of));
    return mem_printf(p->t, "%s;", vector_call(p, name, args, e->kind, e->lanes).s);
}
