/* render.c - a linear kernel to a C function that a person would have written.
 *
 * The linear program is walked twice. The first walk counts uses and remembers where they are; the
 * second writes. A value becomes text when it is reached; it stays text, to be written inside its
 * only user, unless it is used twice, would be computed in a deeper loop than it was, would move
 * across a write to what it reads, or would make its user's line too long. Then it gets a name:
 *
 *      r = RANGE(26)                       for (int oy = 0; oy < 26; oy++) {
 *      a = ACC(0.0)                            float sum = 0.0f;
 *      ...  ASSIGN(a, ADD(a, MUL(x, w)))       sum += x[...] * w[...];
 *      STORE(y, offset, MAX(a, 0))             y[...] = max_f32(sum, 0.0f);
 *      END(r)                              }
 *
 * Bodies are written into blocks of their own, so that a loop with one statement needs no braces.
 */
#include "backends/c/exprs.h"

#include <string.h>

enum { LINE_WIDTH = 100, MAX_ACC_READS = 4 };

/* What is known of the value of a uop at this point of the walk. */
struct value {
    struct expr e;
    int nuse;                    /* in the rest of the program, from where it was computed */
    int position, block;         /* where it was computed */
    /* an accumulator with lanes: e is the element of the lanes that are open */
    const char *array;
    bool written;                /* has a name; otherwise e is an expression to be put in place */
    bool leaf;                   /* a constant, symbol or loop variable: free to repeat anywhere */
    bool reads_memory;           /* of a buffer that this kernel may write */
    bool reads_any_memory;
    /* accumulators that the text reads; nacc > MAX: many */
    int nacc; const struct uop *acc[MAX_ACC_READS + 1];
};

struct block { struct text body; int nstatement; bool has_declaration; const char *head; int id; };

struct writer {
    struct program *p;
    struct tgc *t;
    const struct kernel *k;
    enum isa isa;
    struct uop *const *linear; int nlinear;          /* the kernel's, or a variant's */
    struct names *names;
    struct uop_map value;        /* uop -> struct value */
    struct uop_map nuse;         /* uop -> int, uses behind where the count stands */
    /* by position: uses of the value that is computed there, until it is computed again */
    int *use;
    const struct uop **tile; int ntile; size_t cap_tile;          /* accumulators with lanes */
    const char **buffer_name;    /* as the kernel's buffers, then its scratch */
    bool *is_used;               /* likewise: the text reads or writes it */
    struct block *block; int depth; size_t cap_block;
    int next_block;
    int position;
};

/* ----------------------------------------------------------------------------------- statements */

static struct block *top(struct writer *w) { return &w->block[w->depth - 1]; }

static void open_block(struct writer *w, const char *head)
{
    struct block b = {.body = {.t = w->t}, .head = head, .id = w->next_block++};
    VEC_PUSH(w->t, w->block, w->depth, w->cap_block, b);
}

static void statement(struct writer *w, const char *s, bool is_declaration)
{
    struct block *b = top(w);
    text_printf(&b->body, "%s\n", s);
    b->nstatement++;
    b->has_declaration |= is_declaration;
}

static void put_indented(struct text *out, const char *lines)
{
    for (const char *s = lines; s && *s;) {
        size_t n = strcspn(s, "\n");
        if (n > 0)
            text_puts(out, "    ");
        text_write(out, s, n);
        text_putc(out, '\n');
        s += n + (s[n] == '\n');
    }
}

static void close_block(struct writer *w)
{
    struct block b = *top(w);
    w->depth--;
    struct block *outer = top(w);
    bool bare = b.nstatement == 1 && !b.has_declaration;
    /* a loop over nothing says nothing */
    if (b.nstatement == 0)
        return;
    text_printf(&outer->body, "%s%s\n", b.head, bare ? "" : " {");
    put_indented(&outer->body, b.body.s);
    if (!bare)
        text_puts(&outer->body, "}\n");
    outer->nstatement++;
}

static int room(const struct writer *w) { return LINE_WIDTH - 4 * w->depth; }

/* --------------------------------------------------------------------------------------- values */

static bool is_value(const struct uop *u)
{
    return op_is_elementwise(u->op) || u->op == OP_LOAD || u->op == OP_SPLAT ||
           u->op == OP_FOLD || u->op == OP_HALF || u->op == OP_DOT || u->op == OP_LOOKUP ||
           u->op == OP_NEAREST;
}

static struct value *value_of(struct writer *w, const struct uop *u)
{
    struct value *v = map_get(&w->value, u);
    if (!v)
        TGC_BUG(w->t, "kernel %s uses a %s before it is computed", w->k->name, op_name(u->op));
    return v;
}

static const char *place_name(const struct writer *w, const struct buffer *b);

/* A name for a value, by what it is. */
static const char *temporary_stem(const struct writer *w, const struct uop *u)
{
    if (u->op == OP_LOAD) {
        const struct buffer *b = uop_buffer_of(u->src[0]);
        return mem_printf(w->t, "%sv", place_name(w, b));
    }
    if (u->dtype == DTYPE_BOOL)
        return "inside";
    if (u->dtype == DTYPE_INDEX)
        return "at";
    bool of_sum = (u->op == OP_MUL || u->op == OP_DIV) && u->src[0]->op == OP_ACC &&
                  u->src[1]->op == OP_CONST;
    bool difference = u->op == OP_SUB ||
                      (u->op == OP_ADD && (u->src[1]->op == OP_NEG || u->src[1]->op == OP_MUL));
    return of_sum              ? "mean"
           : u->op == OP_EXP   ? "e"
           : u->op == OP_RECIP ? "inverse"
           : difference        ? "d"
                               : "t";
}

/* A local of the kernel, or the counter of a loop around. */
static bool is_taken(const struct writer *w, const char *s)
{
    bool taken = names_has(w->names, s);
    size_t n = strlen(s);
    for (int i = 0; i < w->depth && !taken; i++) {
        const char *head = w->block[i].head, *eq = head ? strstr(head, " = ") : NULL;
        taken = eq && (size_t)(eq - head) >= n && !strncmp(eq - n, s, n) && eq[-1 - (int)n] == ' ';
    }
    return taken;
}

/* A local that is not taken: sum, sum2, sum3. */
static const char *local_name(struct writer *w, const char *stem)
{
    const char *s = stem;
    for (int k = 2; is_taken(w, s); k++)
        s = mem_printf(w->t, "%s%d", stem, k);
    names_add(w->names, s);
    return s;
}

/* Gives a value a name: from here on it is that variable. */
static void write_temporary(struct writer *w, const struct uop *u, struct value *v)
{
    const char *name = local_name(w, temporary_stem(w, u));
    struct expr e = expr_resolve(w->p, v->e);
    const char *type = expr_type(w->p, &e);
    bool is_string = e.kind == 'S';
    statement(
        w, mem_printf(w->t, is_string ? "%sconst %s = %s;" : "const %s %s = %s;", type, name, e.s),
        true);
    v->e = expr_name(name, e.kind);
    v->e.lanes = e.lanes;
    v->e.of = e.of;
    v->e.in_range = e.in_range;
    v->e.rounds = e.rounds;
    v->written = true;
    v->reads_memory = v->reads_any_memory = false;
    v->nacc = 0;
    v->block = top(w)->id;
}

static void add_acc(struct value *v, const struct uop *acc)
{
    for (int i = 0; i < v->nacc && i < MAX_ACC_READS; i++)
        if (v->acc[i] == acc)
            return;
    if (v->nacc <= MAX_ACC_READS)
        v->acc[v->nacc++] = acc;
}

static bool reads_acc(const struct value *v, const struct uop *acc)
{
    for (int i = 0; i < v->nacc && i < MAX_ACC_READS; i++)
        if (v->acc[i] == acc)
            return true;
    return v->nacc > MAX_ACC_READS;
}

/* Index arithmetic that reads well when repeated. */
static bool is_short(const struct value *v) { return strlen(v->e.s) <= (v->nuse == 2 ? 9 : 6); }

/* The operands of u, ready to stand in its text: what may not move here was named before; what is
 * too long is named now. */
static void take_operands(struct writer *w, const struct uop *u, int nsrc, struct expr *src)
{
    size_t length = 0;
    for (int i = 0; i < nsrc; i++)
        length += strlen(value_of(w, u->src[i])->e.s) + (u->src[i]->lanes > 1 ? 10 : 3);
    while (length > (size_t)room(w) - 6) {
        struct value *longest = NULL;
        const struct uop *which = NULL;
        for (int i = 0; i < nsrc; i++) {
            struct value *v = value_of(w, u->src[i]);
            if (!v->written && !v->leaf && (!longest || strlen(v->e.s) > strlen(longest->e.s))) {
                longest = v;
                which = u->src[i];
            }
        }
        if (!longest || strlen(longest->e.s) < 16)
            break;
        length -= strlen(longest->e.s);
        write_temporary(w, which, longest);
        length += strlen(longest->e.s);
    }
    /* a ? b : c inside arithmetic is hard to read */
    for (int i = 0; i < nsrc; i++) {
        struct value *v = value_of(w, u->src[i]);
        if (v->e.prec == PREC_COND && !v->written && u->op != OP_STORE && u->op != OP_ASSIGN &&
            strlen(v->e.s) > 24)
            write_temporary(w, u->src[i], v);
    }
    for (int i = 0; i < nsrc; i++)
        src[i] = value_of(w, u->src[i])->e;
}

/* Notes what the operands' text reads: now u's text reads it. */
static void inherit_reads(struct writer *w, struct value *v, const struct uop *u)
{
    for (int i = 0; i < u->nsrc; i++) {
        const struct value *s = map_get(&w->value, u->src[i]);
        if (!s || s->written)
            continue;
        v->reads_memory |= s->reads_memory;
        v->reads_any_memory |= s->reads_any_memory;
        for (int j = 0; j < s->nacc && j <= MAX_ACC_READS; j++)
            add_acc(v, s->acc[j]);
    }
}

/* Whether u, computed at w->position, can be written inside the one that uses it first. */
static bool can_wait(struct writer *w, const struct uop *u, const struct value *v)
{
    int depth = 0;
    bool pure_index = !v->reads_any_memory && v->nacc == 0 &&
                      (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL);
    for (int i = w->position + 1; i < w->nlinear; i++) {
        const struct uop *x = w->linear[i];
        for (int s = 0; s < x->nsrc; s++)
            if (x->src[s] == u)
                return depth <= 0 || pure_index;
        depth += x->op == OP_RANGE ? 1 : x->op == OP_END ? -1 : 0;
        if (depth < 0)
            return false;
        if (x->op == OP_ASSIGN && reads_acc(v, x->src[0]))
            return false;
        if (x->op == OP_STORE && v->reads_memory)
            return false;
        if (x->op == OP_ENDGUARD && !pure_index)
            return false;
    }
    return true;
}

static void define(struct writer *w, const struct uop *u, struct value *v)
{
    map_set(&w->value, u, v);
    if (v->leaf || v->written)
        return;
    bool pure_index = !v->reads_any_memory && v->nacc == 0 &&
                      (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL);
    bool repeatable = v->nuse == 1 || (pure_index && is_short(v));
    if (v->nuse > 0 && (!repeatable || !can_wait(w, u, v)))
        write_temporary(w, u, v);
}

/* --------------------------------------------------------------------------------------- memory */

static bool in_arena(const struct buffer *b)
{
    return b->kind == BUFFER_TEMP || b->kind == BUFFER_STATE || b->kind == BUFFER_SCRATCH;
}

const struct buffer *buffer_root(const struct buffer *b)
{
    while (b->base)
        b = b->base;
    return b;
}

bool buffers_may_alias(const struct buffer *a, const struct buffer *b)
{
    a = buffer_root(a);
    b = buffer_root(b);
    if (a == b)
        return true;
    return in_arena(a) && in_arena(b) && a->offset < b->offset + b->nbytes &&
           b->offset < a->offset + a->nbytes;
}

static bool is_written_here(const struct writer *w, const struct buffer *b)
{
    for (int i = 0; i < w->k->noutput; i++)
        if (buffers_may_alias(w->k->buffer[i], b))
            return true;
    for (int i = 0; i < w->k->nscratch; i++)
        if (buffers_may_alias(w->k->scratch[i], b))
            return true;
    return false;
}

static const char *place_name(const struct writer *w, const struct buffer *b)
{
    const struct kernel *k = w->k;
    for (int i = 0; i < k->nbuffer + k->nscratch; i++)
        if (b == (i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer]))
            return w->buffer_name[i];
    TGC_BUG(w->t, "kernel %s uses buffer %d, which is not among its parameters", k->name, b->id);
}

static void note_used(struct writer *w, const struct buffer *b)
{
    const struct kernel *k = w->k;
    for (int i = 0; i < k->nbuffer + k->nscratch; i++)
        if (b == (i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer]))
            w->is_used[i] = true;
}

static void write_load(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    struct expr src[4] = {{0}, {0}, {0}, {0}};
    const char *name = place_name(w, b);
    note_used(w, b);
    take_operands(w, u, u->nsrc, src);
    const char *place = mem_printf(w->t, "%s[%s]", name, src[1].s);
    v->e = u->lanes > 1 ? expr_load_vector(w->p, u->dtype, place, u->arg.i)
                        : expr_load(w->p, u->dtype, place, b->kind != BUFFER_INPUT);
    if (u->nsrc > 2) {
        struct expr otherwise = u->nsrc > 3 ? expr_resolve(w->p, src[3])
                                            : expr_const(w->p, u->dtype, (union arg){.i = 0});
        v->e = expr_choose(w->p, &src[2], &v->e, &otherwise);
    }
    v->nuse = w->use[w->position];
    inherit_reads(w, v, u);
    v->reads_any_memory = true;
    v->reads_memory |= is_written_here(w, b);
    define(w, u, v);
}

static void write_store(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[4] = {{0}, {0}, {0}, {0}};
    const char *name = place_name(w, b);
    bool guarded = u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL;
    note_used(w, b);
    take_operands(w, u, guarded ? 4 : 3, src);
    if (guarded)
        open_block(w, mem_printf(w->t, "if (%s)", src[3].s));
    const char *place = mem_printf(w->t, "%s[%s]", name, src[1].s);
    if (u->src[2]->lanes > 1)
        statement(w, expr_store_vector(w->p, place, &src[2], u->arg.i), false);
    else
        statement(w, mem_printf(w->t, "%s = %s;", place, expr_stored(w->p, b->dtype, &src[2])),
                  false);
    if (guarded)
        close_block(w);
}

/* The place may lie behind the buffer, where C has no address of an element: it is a number. */
static void write_prefetch(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[2] = {{0}, {0}};
    note_used(w, b);
    take_operands(w, u, 2, src);
    statement(
        w,
        mem_printf(w->t,
                   "__builtin_prefetch((void *)((uintptr_t)%s + %zu * (uintptr_t)(%s)), 0, 2);",
                   place_name(w, b), dtype_nbytes(b->dtype), src[1].s),
        false);
}

/* ---------------------------------------------------------------------------------------- loops */

static const char *loop_stem(const struct writer *w, const struct uop *range)
{
    static const char *const letter[] = {"i", "j", "k", "l", "m"};
    const char *axes = uop_get_axes(w->t, range);
    int nloop = 0;
    for (int i = 0; i < w->depth; i++)
        nloop += w->block[i].head && !strncmp(w->block[i].head, "for", 3);
    return axes && *axes ? axes : letter[nloop < 5 ? nloop : 4];
}

/* A loop's name is free again behind the loop: siblings share it. */
static const char *loop_name(struct writer *w, const char *stem)
{
    const char *base = name_mangle(w->t, stem), *s;
    if (!*base)
        base = "i";
    s = base;
    for (int k = 2; is_taken(w, s); k++)
        s = mem_printf(w->t, "%s%d", base, k);
    return s;
}

/* An accumulator with lanes is an array; what its name means follows the lanes' loops:
 * sum[i][j]. */
static void set_tile_element(struct writer *w, const struct uop *acc)
{
    struct value *v = value_of(w, acc);
    struct text s = {.t = w->t};
    text_puts(&s, v->array);
    for (int k = 1; k < acc->nsrc; k++) {
        const struct value *lane = map_get(&w->value, acc->src[k]);
        text_printf(&s, "[%s]", lane ? lane->e.s : "0");
    }
    v->e.s = s.s;
}

/* Where this thread's part of a loop begins and ends, as variables. */
static void write_share(struct writer *w, const struct uop *u, const char *type,
                        const struct expr *size, const char **begin, const char **end)
{
    bool cast = !strcmp(type, "int") && sat_mul(u->src[0]->vmax, w->p->threads) > INT32_MAX;
    const char *n = expr_operand(w->p, size, PREC_MUL);
    const char *open = cast ? "(int)((int64_t)" : "", *close = cast ? ")" : "";
    *begin = local_name(w, "begin");
    *end = local_name(w, "end");
    statement(w, mem_printf(w->t, "const %s %s = %s%s * part / parts%s;", type, *begin, open, n,
                            close), true);
    statement(w, mem_printf(w->t, "const %s %s = %s%s * (part + 1) / parts%s;", type, *end, open, n,
                            close), true);
}

static void write_range(struct writer *w, const struct uop *u)
{
    struct expr size;
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    take_operands(w, u, 1, &size);
    bool narrow = size.kind == 'I' && u->src[0]->vmax <= INT32_MAX;
    const char *name = loop_name(w, loop_stem(w, u));
    v->e = expr_name(name, narrow ? 'I' : 'L');
    v->leaf = true;
    map_set(&w->value, u, v);
    for (int i = 0; i < w->ntile; i++)
        set_tile_element(w, w->tile[i]);
    if (RANGE_IS_THREAD(u->arg.i) && uop_is_int(u->src[0], 1)) {
        v->e = expr_const(w->p, DTYPE_INDEX, (union arg){.i = 0});
        open_block(w, "if (part == parts - 1)");         /* the last part, as of any loop */
        return;
    }
    const char *type = narrow ? "int" : "int64_t", *begin = "0",
               *end = expr_operand(w->p, &size, PREC_SHIFT);
    if (RANGE_IS_THREAD(u->arg.i))
        write_share(w, u, type, &size, &begin, &end);
    open_block(w, mem_printf(w->t, "for (%s %s = %s; %s < %s; %s++)", type, name, begin, name, end,
                             name));
}

static void write_guard(struct writer *w, const struct uop *u)
{
    struct expr cond;
    take_operands(w, u, 1, &cond);
    open_block(w, mem_printf(w->t, "if (%s)", cond.s));
}

/* --------------------------------------------------------------------------------- accumulators */

/* How an accumulator is updated, from its first ASSIGN. */
static enum op acc_op(const struct writer *w, const struct uop *acc)
{
    for (int i = w->position; i < w->nlinear; i++) {
        const struct uop *u = w->linear[i];
        if (u->op == OP_ASSIGN && u->src[0] == acc)
            return u->src[1]->op;
    }
    return OP_ASSIGN;
}

static const char *acc_stem(enum op op, enum dtype d)
{
    switch (op) {
    case OP_ADD: case OP_MULACC: return d == DTYPE_BOOL ? "any" : "sum";
    case OP_MUL: return d == DTYPE_BOOL ? "all" : "product";
    case OP_MAX: return d == DTYPE_BOOL ? "any" : "largest";
    case OP_MIN: return d == DTYPE_BOOL ? "all" : "smallest";
    case OP_OR: return "any";
    case OP_AND: return "all";
    default: return "acc";
    }
}

static void write_leaf_operands(struct writer *w, const struct uop *u);

static void write_tile(struct writer *w, const struct uop *u, struct value *v, const char *init)
{
    struct text declaration = {.t = w->t};
    bool zero = u->src[0]->op == OP_CONST &&
                (dtype_is_float(u->dtype) ? uop_is_constf(u->src[0], 0) : uop_is_int(u->src[0], 0));
    v->array = v->e.s;
    VEC_PUSH(w->t, w->tile, w->ntile, w->cap_tile, u);
    text_printf(&declaration, "%s %s", expr_type(w->p, &v->e), v->array);
    for (int k = 1; k < u->nsrc; k++)
        text_printf(&declaration, "[%lld]", (long long)u->src[k]->src[0]->vmax);
    if (zero) {
        text_printf(&declaration, " = %.*s0%.*s", u->nsrc - 1, "{{{{{{{{{{{{{{{{", u->nsrc - 1,
                    "}}}}}}}}}}}}}}}}");
    }
    text_putc(&declaration, ';');
    statement(w, declaration.s, true);
    for (int k = 1; k < u->nsrc && !zero; k++) {
        write_leaf_operands(w, u->src[k]);
        write_range(w, u->src[k]);
    }
    if (!zero) {
        set_tile_element(w, u);
        statement(w, mem_printf(w->t, "%s = %s;", v->e.s, init), false);
    }
    for (int k = 1; k < u->nsrc && !zero; k++)
        close_block(w);
}

static void write_acc(struct writer *w, const struct uop *u)
{
    struct expr init;
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    take_operands(w, u, 1, &init);
    init = expr_resolve(w->p, init);
    v->e = expr_name(local_name(w, acc_stem(acc_op(w, u), u->dtype)),
                     u->lanes > 1 ? init.kind : expr_kind(u->dtype));
    v->e.lanes = init.lanes;
    /* its name may be read again and again, but not moved across its ASSIGN */
    v->leaf = true;
    v->nacc = 1;
    v->acc[0] = u;
    map_set(&w->value, u, v);
    if (u->nsrc > 1)
        write_tile(w, u, v, init.s);
    else
        statement(w, mem_printf(w->t, "%s %s = %s;", expr_type(w->p, &v->e), v->e.s, init.s), true);
}

/* The x of ASSIGN(acc, acc op x), if that can be written acc op= x. */
static const struct uop *compound_operand(struct writer *w, const struct uop *u)
{
    const struct uop *acc = u->src[0], *v = u->src[1];
    if (u->lanes > 1 && v->op != OP_ADD && v->op != OP_MUL)
        return NULL;
    bool compound = (v->op == OP_ADD || v->op == OP_MUL) &&
                    (dtype_is_float(v->dtype) || v->dtype == DTYPE_U32 || v->dtype == DTYPE_U64);
    if (!compound || (dtype_is_float(v->dtype) && v->dtype != DTYPE_F32 && v->dtype != DTYPE_F64))
        return NULL;
    if (value_of(w, v)->written || (v->src[0] == acc) == (v->src[1] == acc))
        return NULL;
    return v->src[0] == acc ? v->src[1] : v->src[0];
}

static void write_assign(struct writer *w, const struct uop *u)
{
    /* who reads the assignment reads the accumulator */
    map_set(&w->value, u, value_of(w, u->src[0]));
    const char *name = value_of(w, u->src[0])->e.s;
    const struct uop *x = compound_operand(w, u);
    struct expr src[2];
    if (!x) {
        take_operands(w, u, 2, src);
        src[1] = expr_resolve(w->p, src[1]);
        statement(w, mem_printf(w->t, "%s = %s;", name, src[1].s), false);
        return;
    }
    struct expr e = expr_resolve(w->p, value_of(w, x)->e);
    const char *sign = u->src[1]->op == OP_MUL ? "*=" : "+=";
    if (u->src[1]->op == OP_ADD && e.s[0] == '-' && e.prec >= PREC_MUL) {
        sign = "-=";
        e.s++;
    }
    statement(w, mem_printf(w->t, "%s %s %s;", name, sign, e.s), false);
}

/* ------------------------------------------------------------------------------------- the walk */

static void write_leaf(struct writer *w, const struct uop *u)
{
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    v->leaf = true;
    if (u->op == OP_CONST) {
        v->e = expr_const(w->p, u->dtype, u->arg);
    } else if (u->op == OP_VAR) {
        const struct var *var = u->arg.p;
        v->e = expr_name(program_var(w->p, var),
                         var->max <= INT32_MAX && var->min >= INT32_MIN ? 'I' : 'L');
    } else {
        v->e = expr_name("", 'I');
    }
    map_set(&w->value, u, v);
}

/* Leaves are values wherever they are used, listed or not. */
static void write_leaf_operands(struct writer *w, const struct uop *u)
{
    for (int i = 0; i < u->nsrc; i++)
        if (op_class(u->src[i]->op) == CLASS_LEAF && !map_get(&w->value, u->src[i]))
            write_leaf(w, u->src[i]);
}

static void define_as(struct writer *w, const struct uop *u, struct expr e)
{
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    v->e = e;
    v->nuse = w->use[w->position];
    inherit_reads(w, v, u);
    define(w, u, v);
}

static void write_elementwise(struct writer *w, const struct uop *u)
{
    struct expr src[3];
    take_operands(w, u, u->nsrc, src);
    define_as(w, u, expr_apply(w->p, u, src));
}

static void write_splat(struct writer *w, const struct uop *u)
{
    struct expr src;
    take_operands(w, u, 1, &src);
    src = expr_resolve(w->p, src);
    /* a group of bytes is one int */
    bool group = u->src[0]->lanes == DOT_BYTES || dtype_is_byte(u->dtype);
    if (dtype_is_byte(u->dtype) && u->src[0]->lanes == 1 && !uop_is_int(u->src[0], 0))
        TGC_BUG(w->t, "a vector of one byte");
    define_as(w, u, expr_splat(w->p, &src, group ? u->lanes / DOT_BYTES : u->lanes));
}

static void write_nearest(struct writer *w, const struct uop *u)
{
    struct expr e;
    take_operands(w, u, 1, &e);
    e = expr_resolve(w->p, e);
    e.of = u->dtype;
    e.rounds = true;
    define_as(w, u, e);
}

static void write_dot(struct writer *w, const struct uop *u)
{
    struct expr src[3];
    take_operands(w, u, 3, src);
    define_as(w, u, expr_dot(w->p, w->isa, src));
}

static void write_lookup(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[2];
    note_used(w, b);
    take_operands(w, u, 2, src);
    define_as(w, u, expr_lookup(w->p, place_name(w, b), u->src[1]->dtype, &src[1]));
}

static void write_fold(struct writer *w, const struct uop *u)
{
    struct expr src;
    take_operands(w, u, 1, &src);
    define_as(w, u, expr_fold(w->p, (enum op)u->arg.i, &src));
}

static void write_half(struct writer *w, const struct uop *u)
{
    struct expr src;
    take_operands(w, u, 1, &src);
    define_as(w, u, expr_half(w->p, &src));
}

static void write_uop(struct writer *w, const struct uop *u)
{
    if (is_value(u) && w->use[w->position] == 0)
        return;
    write_leaf_operands(w, u);
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER: case OP_STAGE: write_leaf(w, u); break;
    case OP_RANGE: write_range(w, u); break;
    case OP_END: case OP_ENDGUARD: close_block(w); break;
    case OP_GUARD: write_guard(w, u); break;
    case OP_SPLAT: write_splat(w, u); break;
    case OP_FOLD: write_fold(w, u); break;
    case OP_HALF: write_half(w, u); break;
    case OP_NEAREST: write_nearest(w, u); break;
    case OP_DOT: write_dot(w, u); break;
    case OP_LOOKUP: write_lookup(w, u); break;
    case OP_ACC: write_acc(w, u); break;
    case OP_ASSIGN: write_assign(w, u); break;
    case OP_LOAD: write_load(w, u); break;
    case OP_STORE: write_store(w, u); break;
    case OP_PREFETCH: write_prefetch(w, u); break;
    case OP_SINK: break;
    default:
        if (!op_is_elementwise(u->op))
            TGC_BUG(w->t, "kernel %s: %s in a linear program", w->k->name, op_name(u->op));
        write_elementwise(w, u);
    }
}

/* Backwards, so that what only a dead value uses counts as unused. */
static void count_uses(struct writer *w)
{
    w->use = mem_array(w->t, (size_t)w->nlinear + 1, sizeof *w->use);
    for (int i = w->nlinear - 1; i >= 0; i--) {
        const struct uop *u = w->linear[i];
        w->use[i] = (int)(intptr_t)map_get(&w->nuse, u);
        map_set(&w->nuse, u, NULL);
        if (u->op == OP_SINK || u->op == OP_END || u->op == OP_ENDGUARD || u->op == OP_STAGE ||
            (is_value(u) && w->use[i] == 0))
            continue;
        int nsrc = u->op == OP_STORE ? (u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL ? 4 : 3)
                   : u->op == OP_ACC ? 1
                                     : u->nsrc;
        for (int s = 0; s < nsrc; s++)
            map_set(&w->nuse, u->src[s], (void *)((intptr_t)map_get(&w->nuse, u->src[s]) + 1));
    }
}

/* --------------------------------------------------------------------------------- the function */

static bool on_stack(const struct buffer *b)
{
    return b->nbytes > 0 && b->nbytes <= STACK_SCRATCH_NBYTES;
}

static void name_buffers(struct writer *w)
{
    const struct kernel *k = w->k;
    w->buffer_name = mem_array(w->t, (size_t)(k->nbuffer + k->nscratch), sizeof *w->buffer_name);
    w->is_used = mem_array(w->t, (size_t)(k->nbuffer + k->nscratch) + 1, sizeof *w->is_used);
    for (int i = 0; i < k->nbuffer; i++) {
        const struct buffer *b = k->buffer[i];
        bool weight = b->kind == BUFFER_WEIGHT;
        w->buffer_name[i] = local_name(w, i < k->noutput ? "y"
                                          : !weight      ? "x"
                                          : b->ndim > 1  ? "w"
                                                         : "b");
    }
    for (int i = 0; i < k->nscratch; i++)
        w->buffer_name[k->nbuffer + i] = local_name(w, "tile");
}

static bool is_restrict(const struct kernel *k, int i)
{
    for (int j = 0; j < k->nbuffer; j++)
        if (j != i && (i < k->noutput || j < k->noutput) &&
            buffers_may_alias(k->buffer[i], k->buffer[j]))
            return false;
    return true;
}

static const char *pointer_to(const struct writer *w, enum dtype d, const char *qualifier,
                              const char *name)
{
    const char *type = dtype_ctype(d);
    bool star = type[strlen(type) - 1] == '*';
    return mem_printf(w->t, "%s%s*%s%s", type, star ? "" : " ", qualifier, name);
}

/* Without the line breaks and what indents behind them. */
static const char *one_line(struct tgc *t, const char *s)
{
    struct text out = {.t = t};
    while (*s) {
        size_t n = strcspn(s, "\n");
        text_write(&out, s, n);
        s += n;
        if (*s)
            text_putc(&out, ' ');
        s += strspn(s, "\n ");
    }
    return out.s;
}

static const char *var_type(const struct var *v)
{
    return v->max <= INT32_MAX && v->min >= INT32_MIN ? "int" : "int64_t";
}

/* "static void conv1(float *restrict y, const float *restrict x)", wrapped below the
 * parenthesis. */
static void write_signature(struct writer *w, const struct variant *v, struct text *out)
{
    const struct kernel *k = w->k;
    int nparameter = k->nbuffer + k->nscratch + k->nvar;
    struct text head = {.t = w->t};
    if (v)
        text_printf(&head, "%s ", isa_table[v->isa].attribute);
    text_printf(&head, "static void %s(",
                program_variant_name(w->p, k, v ? v->isa : ISA_GENERIC));
    size_t indent = head.n, start = out->n, from = start + indent;
    text_puts(out, head.s);
    bool first = true;
    for (int i = 0; i < nparameter + 2 * k->is_shared; i++) {
        const char *s;
        if (i >= nparameter) {
            s = i == nparameter ? "int part" : "int parts";
        } else if (i < k->nbuffer) {
            const struct buffer *b = k->buffer[i];
            const char *qualifier = is_restrict(k, i) ? "restrict " : "";
            s = i < k->noutput ? pointer_to(w, b->dtype, qualifier, place_name(w, b))
                               : mem_printf(w->t, "%s%s%s", const_pointer(b->dtype), qualifier,
                                            place_name(w, b));
        } else if (i < k->nbuffer + k->nscratch) {
            const struct buffer *b = k->scratch[i - k->nbuffer];
            if (on_stack(b))
                continue;
            s = pointer_to(w, b->dtype, "restrict ", place_name(w, b));
        } else {
            const struct var *var = k->var[i - k->nbuffer - k->nscratch];
            s = mem_printf(w->t, "%s %s", var_type(var), program_var(w->p, var));
        }
        if (!first && out->n - start + strlen(s) + 3 > LINE_WIDTH) {
            text_puts(out, ",\n");
            start = out->n;
            text_pad(out, start, indent);
        } else if (!first) {
            text_puts(out, ", ");
        }
        text_puts(out, s);
        first = false;
    }
    if (first)
        text_puts(out, "void");
    if (!v)
        w->p->parameters[k->index] = one_line(w->t, out->s + from);
    text_puts(out, ")\n");
}

/* struct conv1_task, which holds a call's arguments, and conv1_part(), which runs a part of it. */
static void write_task(struct writer *w)
{
    const struct kernel *k = w->k;
    struct program *p = w->p;
    struct text *out = &p->tasks, call = {.t = w->t};
    const char *task = p->task_name[k->index];
    text_printf(out, "struct %s {\n    %s *self;\n", task, p->name);
    text_printf(&call, "%s%s(", k->nvariant ? "t->self->kernels->" : "", program_kernel_name(p, k));
    size_t indent = call.n + 4, start = 0;
    for (int i = 0; i < k->nbuffer + k->nscratch + k->nvar; i++) {
        const char *name, *argument;
        if (i < k->nbuffer + k->nscratch) {
            const struct buffer *b = i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer];
            bool written = i < k->noutput || i >= k->nbuffer;
            if (i >= k->nbuffer && on_stack(b))
                continue;
            name = place_name(w, b);
            text_printf(out, "    %s%s;\n",
                        written ? pointer_to(w, b->dtype, "", "") : const_pointer(b->dtype), name);
            argument = i < k->nbuffer ? mem_printf(w->t, "t->%s", name)
                                      : mem_printf(w->t, "t->%s + part * %zu", name,
                                                   scratch_stride(b) / dtype_nbytes(b->dtype));
        } else {
            const struct var *var = k->var[i - k->nbuffer - k->nscratch];
            name = program_var(p, var);
            text_printf(out, "    %s %s;\n", var_type(var), name);
            argument = mem_printf(w->t, "t->%s", name);
        }
        if (call.n - start + strlen(argument) + 30 > LINE_WIDTH) {
            text_putc(&call, '\n');
            start = call.n;
            text_pad(&call, start, indent);
        }
        text_printf(&call, "%s, ", argument);
    }
    text_printf(out, "};\nstatic void %s(void *context, int part)\n{\n", p->part_name[k->index]);
    text_printf(out, "    const struct %s *t = (const struct %s *)context;\n", task, task);
    text_printf(out, "    %spart, t->self->parts);\n}\n\n", call.s);
}

/* Above each kernel: the model's nodes, the shapes, the work. */
static void write_comment(struct writer *w, struct text *out)
{
    const struct kernel *k = w->k;
    text_puts(out, "/* ");
    text_comment(out, k->title && *k->title ? k->title : program_kernel_name(w->p, k));
    for (int i = 0; i < k->nbuffer; i++) {
        const struct buffer *b = k->buffer[i];
        text_puts(out, "\n *   ");
        size_t start = out->n;
        text_puts(out, place_name(w, b));
        text_pad(out, start, 3);
        text_printf(out, " %s", dtype_name(b->dtype));
        text_dims(out, b->dim, b->ndim, "[", "]");
        if (b->name && *b->name) {
            text_puts(out, b->kind == BUFFER_WEIGHT  ? "  weight \""
                           : b->kind == BUFFER_INPUT ? "  input \""
                                                     : "  \"");
            text_comment(out, b->name);
            text_puts(out, "\"");
        }
        if (i < k->noutput)
            text_puts(out, "  <- result");
    }
    for (int i = k->index + 1; i < w->p->s->nkernel; i++)
        if (w->p->twin[i] == k) {
            text_puts(out, "\n * the same: ");
            text_comment(out, w->p->s->kernel[i]->title ? w->p->s->kernel[i]->title : "");
        }
    if (k->flop > 0 || k->nbytes > 0) {
        text_printf(out, "\n * %s", text_si(w->t, k->flop, "FLOP"));
        text_puts(out, ", touches ");
        text_bytes(out, k->nbytes);
        text_putc(out, '.');
    }
    text_puts(out, " */\n");
}

static void render_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                          struct text *out)
{
    struct mem_mark mark = scratch_mark(p->t);
    struct writer *w = scratch_array(p->t, 1, sizeof *w);
    w->p = p;
    w->t = p->t;
    w->k = k;
    w->isa = v ? v->isa : ISA_GENERIC;
    w->linear = v ? v->linear : k->linear;
    w->nlinear = v ? v->nlinear : k->nlinear;
    w->names = names_new(p->t, p->visible);
    w->value = w->nuse = (struct uop_map){.t = p->t, .scratch = true};
    for (int i = 0; i < k->nvar; i++)
        names_add(w->names, program_var(p, k->var[i]));
    if (k->is_shared) {
        names_add(w->names, "part");
        names_add(w->names, "parts");
    }
    name_buffers(w);
    count_uses(w);
    open_block(w, NULL);
    if (k->is_shared && !v)
        write_task(w);
    for (w->position = 0; w->position < w->nlinear; w->position++)
        write_uop(w, w->linear[w->position]);
    if (w->depth != 1)
        TGC_BUG(p->t, "kernel %s: %d loops are not closed", k->name, w->depth - 1);
    if (v)
        snippet_use(&p->snippets, isa_table[v->isa].attribute + strlen("IN_"));
    if (v)
        text_printf(out, "/* %s, for %s */\n", program_kernel_name(p, k), isa_table[v->isa].title);
    else
        write_comment(w, out);
    write_signature(w, v, out);
    text_puts(out, "{\n");
    /* of weights that another instruction set's kernel reads in another order */
    for (int i = 0; i < k->nbuffer; i++)
        if (!w->is_used[i])
            text_printf(out, "    (void)%s;\n", place_name(w, k->buffer[i]));
    for (int i = 0; i < k->nscratch; i++) {
        const struct buffer *b = k->scratch[i];
        if (on_stack(b) && w->is_used[k->nbuffer + i])
            text_printf(out, "    %s %s[%zu];\n", dtype_ctype(b->dtype), place_name(w, b),
                        b->nbytes / dtype_nbytes(b->dtype));
        else if (!on_stack(b) && !w->is_used[k->nbuffer + i])
            text_printf(out, "    (void)%s;\n", place_name(w, b));
    }
    put_indented(out, top(w)->body.s);
    text_puts(out, "}\n\n");
    scratch_release(p->t, mark);
}

/* ------------------------------------------------------------------------------------- the call */

static void render_call(struct program *p, const struct kernel *k, struct text *out)
{
    struct text head = {.t = p->t};
    if (k->is_shared)
        text_printf(&head, "{\n    struct %s task = {self, ",
                    p->task_name[p->twin[k->index]->index]);
    else
        text_printf(&head, "%s%s(", k->nvariant ? "self->kernels->" : "",
                    program_kernel_name(p, k));
    size_t indent = k->is_shared ? head.n - 2 : head.n, start = out->n;
    text_puts(out, head.s);
    bool first = true;
    for (int i = 0; i < k->nbuffer + k->nscratch + k->nvar; i++) {
        const char *s;
        if (i < k->nbuffer) {
            s = program_buffer(p, k->buffer[i]);
        } else if (i < k->nbuffer + k->nscratch) {
            if (on_stack(k->scratch[i - k->nbuffer]))
                continue;
            s = program_buffer(p, k->scratch[i - k->nbuffer]);
        } else {
            const struct var *v = k->var[i - k->nbuffer - k->nscratch];
            s = mem_printf(p->t, "%s%s", strcmp(var_type(v), "int") == 0 ? "(int)" : "",
                           program_var_in_run(p, v));
        }
        if (!first && out->n - start + strlen(s) + 8 > LINE_WIDTH) {
            text_puts(out, ",\n");
            start = out->n;
            text_pad(out, start, indent);
        } else if (!first) {
            text_puts(out, ", ");
        }
        text_puts(out, s);
        first = false;
    }
    if (k->is_shared)
        text_printf(out, "};\n    share(self, %s, &task);\n}\n",
                    p->part_name[p->twin[k->index]->index]);
    else
        text_puts(out, ");\n");
}

const struct backend backend_c = {"c", render_kernel, render_call};
