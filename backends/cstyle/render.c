/* render.c - writes a linear kernel as C statements that a person would have written.
 *
 * The linear program is walked twice. The first walk counts uses and their positions; the second
 * writes. A value becomes text when it is reached. It stays text, inlined in its only use, unless
 * it is used twice, would be computed in a deeper loop, would move across a store to memory that it
 * reads, or would make the line too long. Then it gets a name:
 *
 *      r = RANGE(26)                       for (int oy = 0; oy < 26; oy++) {
 *      a = ACC(0.0)                            float sum = 0.0f;
 *      ...  ASSIGN(a, ADD(a, MUL(x, w)))       sum += x[...] * w[...];
 *      STORE(y, offset, MAX(a, 0))             y[...] = max_f32(sum, 0.0f);
 *      END(r)                              }
 *
 * Bodies are written into blocks of their own, so that a loop with one statement needs no braces.
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

enum { MAX_ACC_READS = 4 };

/* The state of a uop's value at this point of the walk. */
struct value {
    struct expr e;
    int nuse;                    /* uses in the rest of the program, until it is computed again */
    int position, block;         /* where it was computed */
    /* an accumulator with lanes: e is the element for the open lanes */
    const char *array;
    bool written;                /* has a name; otherwise e is an expression to be inlined */
    bool leaf;                   /* a constant, symbol or loop variable: may be repeated anywhere */
    bool reads_memory;           /* it loads from a buffer that this kernel may write */
    bool reads_any_memory;
    /* accumulators that the text reads; nacc > MAX: many */
    int nacc; const struct uop *acc[MAX_ACC_READS + 1];
};

struct block {
    struct text body;
    int nstatement, id;
    bool has_declaration;
    const char *head;            /* "for (...)", "if (...)" */
    const char *counter;         /* of a loop: its variable */
};

struct writer {
    struct function *f;
    struct program *p;
    struct tgc *t;
    struct uop *const *linear; int nlinear;          /* the kernel's, or a variant's */
    struct uop_map value;        /* uop -> struct value */
    struct uop_map nuse;         /* uop -> int, uses after the present position */
    /* by position: uses of the value computed there, until it is computed again */
    int *use;
    const struct uop **tile; int ntile; size_t cap_tile;          /* accumulators with lanes */
    struct block *block; int depth; size_t cap_block;
    int next_block;
    int position;
    const bool *kept;            /* by position: loops that compilers must not unroll */
};

/* ----------------------------------------------------------------------------------- statements */

static struct block *top(struct writer *w) { return &w->block[w->depth - 1]; }

static void open_block(struct writer *w, const char *head, const char *counter)
{
    struct block b = {
        .body = {.t = w->t}, .head = head, .counter = counter, .id = w->next_block++};
    VEC_PUSH(w->t, w->block, w->depth, w->cap_block, b);
    if (counter)
        names_hold(w->f->names, counter);
}

static void statement(struct writer *w, const char *s, bool is_declaration)
{
    struct block *b = top(w);
    text_printf(&b->body, "%s\n", s);
    b->nstatement++;
    b->has_declaration |= is_declaration;
}

static void close_block(struct writer *w)
{
    struct block b = *top(w);
    w->depth--;
    struct block *outer = top(w);
    /* siblings share the counter's name */
    if (b.counter)
        names_release(w->f->names, b.counter);
    bool bare = b.nstatement == 1 && !b.has_declaration;
    /* an empty loop is not written */
    if (b.nstatement == 0)
        return;
    text_printf(&outer->body, "%s%s\n", b.head, bare ? "" : " {");
    text_lines(&outer->body, b.body.s, 1);
    if (!bare)
        text_puts(&outer->body, "}\n");
    outer->nstatement++;
}

static int room(const struct writer *w) { return LINE_WIDTH - 4 * w->depth; }

/* --------------------------------------------------------------------------------------- values */

static bool is_value(const struct uop *u)
{
    return op_is_elementwise(u->op) || u->op == OP_LOAD || u->op == OP_SPLAT || u->op == OP_RAMP ||
           u->op == OP_FOLD || u->op == OP_HALF || u->op == OP_CROSS || u->op == OP_INTRINSIC ||
           u->op == OP_LOOKUP || u->op == OP_NEAREST || u->op == OP_LANES || u->op == OP_NARROW ||
           u->op == OP_GATHER;
}

static struct value *value_of(struct writer *w, const struct uop *u)
{
    struct value *v = map_get(&w->value, u);
    if (!v)
        TGC_BUG(w->t, "kernel %s uses a %s before it is computed", w->f->k->name, op_name(u->op));
    return v;
}

static const char *place_name(const struct writer *w, const struct buffer *b);

/* The stem of a value's name, by its op. */
static const char *temporary_stem(const struct writer *w, const struct uop *u)
{
    if (u->op == OP_LOAD || u->op == OP_GATHER) {
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

static const char *local_name(struct writer *w, const char *stem)
{
    const char *s = names_number(w->f->names, stem, "");
    names_add(w->f->names, s);
    return s;
}

/* Gives a value a name: it becomes a variable here. */
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

/* Index arithmetic that is short enough to be repeated. */
static bool is_short(const struct value *v) { return strlen(v->e.s) <= (v->nuse == 2 ? 9 : 6); }

/* The operands of u as text to inline: those that may not move here were named before; those that
 * are too long are named now. */
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

/* u's text reads what its operands' texts read. */
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

/* Index arithmetic that depends on loop counters alone: compilers hoist it out of loops. */
static bool is_pure_index(const struct uop *u, const struct value *v)
{
    return !v->reads_any_memory && v->nacc == 0 &&
           (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL);
}

/* Whether u, computed at w->position, can be inlined in its first use. */
static bool can_wait(struct writer *w, const struct uop *u, const struct value *v, bool pure_index)
{
    int depth = 0;
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
    bool pure_index = is_pure_index(u, v);
    bool repeatable = v->nuse == 1 || (pure_index && is_short(v));
    if (v->nuse > 0 && (!repeatable || !can_wait(w, u, v, pure_index)))
        write_temporary(w, u, v);
}

/* --------------------------------------------------------------------------------------- memory */

static bool is_written_here(const struct writer *w, const struct buffer *b)
{
    const struct kernel *k = w->f->k;
    for (int i = 0; i < k->noutput; i++)
        if (buffers_may_alias(k->buffer[i], b))
            return true;
    for (int i = 0; i < k->nscratch; i++)
        if (buffers_may_alias(k->scratch[i], b))
            return true;
    return false;
}

/* Its index among the function's names of buffers. */
static int place_of(const struct writer *w, const struct buffer *b)
{
    const struct kernel *k = w->f->k;
    for (int i = 0; i < k->nbuffer + k->nscratch; i++)
        if (b == (i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer]))
            return i;
    TGC_BUG(w->t, "kernel %s uses buffer %d, which is not among its parameters", k->name, b->id);
}

static const char *place_name(const struct writer *w, const struct buffer *b)
{
    return w->f->buffer_name[place_of(w, b)];
}

/* The same, for text that loads or stores it. */
static const char *use_place(struct writer *w, const struct buffer *b)
{
    w->f->is_used[place_of(w, b)] = true;
    return place_name(w, b);
}

static void write_load(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    struct expr src[4] = {{0}, {0}, {0}, {0}};
    const char *name = use_place(w, b);
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

static void write_gather(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    struct expr src[5] = {{0}, {0}, {0}, {0}, {0}};
    const char *name = use_place(w, b);
    take_operands(w, u, u->nsrc, src);
    const char *from = uop_is_int(u->src[1], 0)
                           ? name
                           : mem_printf(w->t, "%s + %s", name, expr_operand(w->p, &src[1], PREC_ADD));
    v->e = expr_gather(w->p, from, src + 2, u->nsrc > 3);
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
    const char *name = use_place(w, b);
    bool guarded = u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL;
    take_operands(w, u, guarded ? 4 : 3, src);
    if (guarded)
        open_block(w, mem_printf(w->t, "if (%s)", src[3].s), NULL);
    const char *place = mem_printf(w->t, "%s[%s]", name, src[1].s);
    if (u->src[2]->lanes > 1)
        statement(w, expr_store_vector(w->p, place, &src[2], u->arg.i), false);
    else
        statement(w, mem_printf(w->t, "%s = %s;", place, expr_stored(w->p, b->dtype, &src[2])),
                  false);
    if (guarded)
        close_block(w);
}

/* The offset may be past the buffer's end, where C has no element's address: it is computed as an
 * integer. */
static void write_prefetch(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[2] = {{0}, {0}};
    take_operands(w, u, 2, src);
    statement(
        w,
        mem_printf(w->t,
                   "__builtin_prefetch((void *)((uintptr_t)%s + %zu * (uintptr_t)(%s)), 0, 2);",
                   use_place(w, b), dtype_nbytes(b->dtype), src[1].s),
        false);
}

/* ---------------------------------------------------------------------------------------- loops */

static const char *loop_stem(const struct writer *w, const struct uop *range)
{
    static const char *const letter[] = {"i", "j", "k", "l", "m"};
    const char *axes = uop_get_axes(w->t, range);
    int nloop = 0;
    for (int i = 0; i < w->depth; i++)
        nloop += w->block[i].counter != NULL;
    return axes && *axes ? axes : letter[nloop < 5 ? nloop : 4];
}

static const char *loop_name(struct writer *w, const char *stem)
{
    const char *base = name_mangle(w->t, stem);
    return names_number(w->f->names, *base ? base : "i", "");
}

/* An accumulator with lanes is an array; its name stands for the element of the open lanes' loops:
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

/* The begin and end of this thread's part of a loop, as variables. The arithmetic is unsigned:
 * clang 14 analyses an unsigned quotient better, and then addresses a tile's rows by one pointer,
 * not by one each. */
static void write_share(struct writer *w, const struct uop *u, const char *type,
                        const struct expr *size, const char **begin, const char **end)
{
    bool wide = strcmp(type, "int") != 0 || sat_mul(u->src[0]->vmax, w->p->threads) > UINT32_MAX;
    const char *n = mem_printf(w->t, "(%s)%s", wide ? "uint64_t" : "unsigned",
                               expr_operand(w->p, size, PREC_UNARY));
    *begin = local_name(w, "begin");
    *end = local_name(w, "end");
    statement(w, mem_printf(w->t, "const %s %s = (%s)(%s * part / parts);", type, *begin, type, n),
              true);
    statement(w, mem_printf(w->t, "const %s %s = (%s)(%s * (part + 1) / parts);", type, *end, type,
                            n), true);
}

/* Whether the loop that begins here contains a load. */
static bool loop_loads(const struct writer *w)
{
    for (int i = w->position + 1, depth = 1; i < w->nlinear && depth > 0; i++) {
        if (w->linear[i]->op == OP_LOAD || w->linear[i]->op == OP_GATHER)
            return true;
        depth += w->linear[i]->op == OP_RANGE ? 1 : w->linear[i]->op == OP_END ? -1 : 0;
    }
    return false;
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
    if (range_is_shared(u) && uop_is_int(u->src[0], 1)) {
        v->e = expr_const(w->p, DTYPE_INDEX, (union arg){.i = 0});
        /* the last part, which is handled as in any loop */
        open_block(w, "if (part == parts - 1)", NULL);
        return;
    }
    const char *type = narrow ? "int" : "int64_t", *begin = "0",
               *end = expr_operand(w->p, &size, PREC_SHIFT);
    if (range_is_shared(u))
        write_share(w, u, type, &size, &begin, &end);
    const char *head = mem_printf(w->t, "for (%s %s = %s; %s < %s; %s++)", type, name, begin, name,
                                  end, name);
    if (w->f->k->counts_down && w->depth == 1 && loop_loads(w))
        head = mem_printf(w->t, "for (%s %s = %s - 1; %s >= 0; %s--)", type, name,
                          expr_operand(w->p, &size, PREC_ADD), name, name);
    if (w->kept[w->position])
        head = mem_printf(w->t, "KEEP_LOOP %s", head);
    open_block(w, head, name);
}

static void write_guard(struct writer *w, const struct uop *u)
{
    struct expr cond;
    take_operands(w, u, 1, &cond);
    open_block(w, mem_printf(w->t, "if (%s)", cond.s), NULL);
}

/* --------------------------------------------------------------------------------- accumulators */

/* The op that updates an accumulator, from its first ASSIGN. */
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
    /* its name may be repeated, but not moved across its ASSIGN */
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
    /* reading the assignment means reading the accumulator */
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
        v->e = expr_name(program_var(w->p, var), var_is_int(var) ? 'I' : 'L');
    } else {
        v->e = expr_name("", 'I');
    }
    map_set(&w->value, u, v);
}

/* Leaves have values wherever they are used, whether or not the program lists them. */
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

static void write_ramp(struct writer *w, const struct uop *u)
{
    struct expr src;
    take_operands(w, u, 1, &src);
    src = expr_resolve(w->p, src);
    define_as(w, u, expr_ramp(w->p, &src, u->lanes));
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

static void write_lanes(struct writer *w, const struct uop *u)
{
    define_as(w, u, expr_lanes(w->p, u->lanes));
}

static void write_narrow(struct writer *w, const struct uop *u)
{
    struct expr e;
    take_operands(w, u, 1, &e);
    define_as(w, u, expr_narrow(w->p, u, &e));
}

static void write_intrinsic(struct writer *w, const struct uop *u)
{
    struct expr src[INTRINSIC_OPERANDS];
    take_operands(w, u, u->nsrc, src);
    define_as(w, u, expr_intrinsic(w->p, w->f->v ? w->f->v->isa : ISA_GENERIC, u, src));
}

static void write_lookup(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[2];
    take_operands(w, u, 2, src);
    define_as(w, u, expr_lookup(w->p, use_place(w, b), u->src[1]->dtype, &src[1]));
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

static void write_cross(struct writer *w, const struct uop *u)
{
    struct expr src[2];
    take_operands(w, u, 2, src);
    define_as(w, u, expr_cross(w->p, src, u->arg.i));
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
    case OP_RAMP: write_ramp(w, u); break;
    case OP_FOLD: write_fold(w, u); break;
    case OP_HALF: write_half(w, u); break;
    case OP_CROSS: write_cross(w, u); break;
    case OP_NEAREST: write_nearest(w, u); break;
    case OP_LANES: write_lanes(w, u); break;
    case OP_NARROW: write_narrow(w, u); break;
    case OP_GATHER: write_gather(w, u); break;
    case OP_INTRINSIC: write_intrinsic(w, u); break;
    case OP_LOOKUP: write_lookup(w, u); break;
    case OP_ACC: write_acc(w, u); break;
    case OP_ASSIGN: write_assign(w, u); break;
    case OP_LOAD: write_load(w, u); break;
    case OP_STORE: write_store(w, u); break;
    case OP_PREFETCH: write_prefetch(w, u); break;
    case OP_SINK: break;
    default:
        if (!op_is_elementwise(u->op))
            TGC_BUG(w->t, "kernel %s: %s in a linear program", w->f->k->name, op_name(u->op));
        write_elementwise(w, u);
    }
}

/* Backwards, so that uses by dead values do not count. */
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

const char *render_body(struct function *f)
{
    struct program *p = f->p;
    struct writer *w = scratch_array(p->t, 1, sizeof *w);
    *w = (struct writer){.f = f, .p = p, .t = p->t};
    w->linear = f->v ? f->v->linear : f->k->linear;
    w->nlinear = f->v ? f->v->nlinear : f->k->nlinear;
    w->value = w->nuse = (struct uop_map){.t = p->t, .scratch = true};
    w->kept = stack_find_kept(p->t, f->v ? f->v->isa : ISA_GENERIC, w->linear, w->nlinear);
    count_uses(w);
    open_block(w, NULL, NULL);
    for (w->position = 0; w->position < w->nlinear; w->position++)
        write_uop(w, w->linear[w->position]);
    if (w->depth != 1)
        TGC_BUG(p->t, "kernel %s: %d loops are not closed", f->k->name, w->depth - 1);
    return top(w)->body.s;
}
