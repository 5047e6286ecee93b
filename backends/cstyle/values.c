/* values.c - values on their way into the text of a kernel: inlined where they are used, or named
 * (render.c says when), and the statements and blocks that they are written to.
 */
#include "backends/cstyle/writer.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- statements */

struct block *writer_block(struct writer *w) { return &w->block[w->depth - 1]; }

void writer_open(struct writer *w, const char *head, const char *counter)
{
    struct block b = {
        .body = {.t = w->t}, .head = head, .counter = counter, .id = w->next_block++};
    VEC_PUSH(w->t, w->block, w->depth, w->cap_block, b);
    if (counter)
        names_hold(w->f->names, counter);
}

void writer_put(struct writer *w, const char *s, bool is_declaration)
{
    struct block *b = writer_block(w);
    text_printf(&b->body, "%s\n", s);
    b->nstatement++;
    b->has_declaration |= is_declaration;
}

void writer_close(struct writer *w)
{
    struct block b = *writer_block(w);
    w->depth--;
    struct block *outer = writer_block(w);
    /* siblings share the counter's name */
    if (b.counter)
        names_release(w->f->names, b.counter);
    bool bare = b.nstatement == 1 && !b.has_declaration;
    /* an empty loop is not written */
    if (b.nstatement == 0)
        return;
    if (!b.head) {
        text_printf(&outer->body, "%s", b.body.s);
        outer->nstatement += b.nstatement;
        return;
    }
    text_printf(&outer->body, "%s%s\n", b.head, bare ? "" : " {");
    text_lines(&outer->body, b.body.s, 1);
    if (!bare)
        text_puts(&outer->body, "}\n");
    outer->nstatement++;
}

static int room(const struct writer *w) { return LINE_WIDTH - 4 * w->depth; }

/* --------------------------------------------------------------------------------------- values */

struct value *writer_value(struct writer *w, const struct uop *u)
{
    struct value *v = map_get(&w->value, u);
    if (!v)
        TGC_BUG(w->t, "kernel %s uses a %s before it is computed", w->f->k->name, op_name(u->op));
    return v;
}

/* Its index among the function's names of buffers. */
int writer_place(const struct writer *w, const struct buffer *b)
{
    const struct kernel *k = w->f->k;
    for (int i = 0; i < k->nbuffer + k->nscratch; i++)
        if (b == (i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer]))
            return i;
    TGC_BUG(w->t, "kernel %s uses buffer %d, which is not among its parameters", k->name, b->id);
}

const char *writer_place_name(const struct writer *w, const struct buffer *b)
{
    return w->f->buffer_name[writer_place(w, b)];
}

const char *writer_local(struct writer *w, const char *stem)
{
    const char *s = names_number(w->f->names, stem, "");
    names_add(w->f->names, s);
    return s;
}

/* Gives a value a name: it becomes a variable here. */
static void write_temporary(struct writer *w, const struct uop *u, struct value *v)
{
    const char *loaded = u->op == OP_LOAD || u->op == OP_GATHER
                             ? writer_place_name(w, uop_buffer_of(u->src[0]))
                             : NULL;
    const char *name = writer_local(w, stem_of_value(w->t, u, loaded, v->e.is_index));
    struct expr e = expr_resolve(w->p, v->e);
    const char *type = expr_type(w->p, &e);
    bool is_string = e.kind == 'S';
    writer_put(
        w, mem_printf(w->t, is_string ? "%sconst %s = %s;" : "const %s %s = %s;", type, name, e.s),
        true);
    v->e = expr_name(name, e.kind);
    v->e.is_index = e.is_index;
    v->e.lanes = e.lanes;
    v->e.of = e.of;
    v->e.in_range = e.in_range;
    v->e.rounds = e.rounds;
    v->written = true;
    v->reads_memory = v->reads_any_memory = false;
    v->nacc = 0;
    v->block = writer_block(w)->id;
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

/* The values that u's text is made of: its first nsrc sources, but the terms of an array's indices
 * in place of an offset. */
static struct uop **values_of(const struct writer *w, const struct uop *u, int nsrc, int *n)
{
    struct uop **of = scratch_array(w->t, (size_t)nsrc + ARRAY_TERMS, sizeof *of);
    *n = arrays_terms(w, u, of);
    bool is_array = map_get(&w->places, u) != NULL;
    for (int i = 0; i < nsrc; i++)
        if (!is_array || i != 1)
            of[(*n)++] = u->src[i];
    return of;
}

/* The operands of u as text to inline: those that may not move here were named before; those that
 * are too long are named now. */
void writer_operands(struct writer *w, const struct uop *u, int nsrc, struct expr *src)
{
    size_t length = 0;
    int n;
    struct uop **of = values_of(w, u, nsrc, &n);
    for (int i = 0; i < n; i++)
        length += strlen(writer_value(w, of[i])->e.s) + (of[i]->lanes > 1 ? 10 : 3);
    /* a name for what is assigned would have a line as long */
    while (u->op != OP_ASSIGN && length > (size_t)room(w) - 6) {
        struct value *longest = NULL;
        const struct uop *which = NULL;
        for (int i = 0; i < n; i++) {
            struct value *v = writer_value(w, of[i]);
            if (!v->written && !v->leaf && (!longest || strlen(v->e.s) > strlen(longest->e.s))) {
                longest = v;
                which = of[i];
            }
        }
        if (!longest || strlen(longest->e.s) < 16)
            break;
        length -= strlen(longest->e.s);
        write_temporary(w, which, longest);
        length += strlen(longest->e.s);
    }
    /* a ? b : c inside arithmetic is hard to read */
    for (int i = 0; i < n; i++) {
        struct value *v = writer_value(w, of[i]);
        if (v->e.prec == PREC_COND && !v->written && u->op != OP_STORE && u->op != OP_ASSIGN &&
            strlen(v->e.s) > 24)
            write_temporary(w, of[i], v);
    }
    for (int i = 0; i < nsrc; i++)
        if (i != 1 || !map_get(&w->places, u))
            src[i] = writer_value(w, u->src[i])->e;
}

/* u's text reads what its operands' texts read. */
void writer_inherit(struct writer *w, struct value *v, const struct uop *u)
{
    int n;
    struct uop **of = values_of(w, u, u->nsrc, &n);
    for (int i = 0; i < n; i++) {
        const struct value *s = map_get(&w->value, of[i]);
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
           (v->e.is_index || u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL);
}

static bool is_made_of(const struct writer *w, const struct uop *x, const struct uop *u)
{
    struct uop *term[ARRAY_TERMS];
    bool is_array = map_get(&w->places, x) != NULL, found = false;
    int n = is_array ? arrays_terms(w, x, term) : 0;
    for (int i = 0; i < n; i++)
        found |= term[i] == u;
    for (int i = 0; i < x->nsrc; i++)
        found |= x->src[i] == u && (!is_array || i != 1);
    return found;
}

/* Whether u, computed at w->position, can be inlined in its first use. */
static bool can_wait(struct writer *w, const struct uop *u, const struct value *v, bool pure_index)
{
    int depth = 0;
    for (int i = w->position + 1; i < w->nlinear; i++) {
        const struct uop *x = w->linear[i];
        if (is_made_of(w, x, u))
            return depth <= 0 || pure_index;
        depth += x->op == OP_RANGE ? 1 : x->op == OP_END ? -1 : 0;
        if (depth < 0)
            return false;
        if (x->op == OP_ASSIGN && reads_acc(v, x->src[0]))
            return false;
        if ((x->op == OP_STORE || x->op == OP_PUT) && v->reads_memory)
            return false;
        if (x->op == OP_ENDGUARD && !pure_index)
            return false;
    }
    return true;
}

/* Whether a reader wants a line of its own for a value: it has a word, is long, and is a part of
 * another one. */
static bool deserves_name(struct writer *w, const struct uop *u, const struct value *v)
{
    enum { LONG = 20 };
    if (!uop_get_word(w->t, u) || strlen(v->e.s) < LONG)
        return false;
    for (int i = w->position + 1; i < w->nlinear; i++)
        if (is_made_of(w, w->linear[i], u))
            return op_is_elementwise(w->linear[i]->op) && w->linear[i]->op != OP_CAST;
    return false;
}

void writer_define(struct writer *w, const struct uop *u, struct value *v)
{
    map_set(&w->value, u, v);
    if (v->leaf || v->written)
        return;
    bool pure_index = is_pure_index(u, v);
    bool repeatable = v->nuse == 1 || (pure_index && is_short(v));
    if (v->nuse > 0 &&
        (!repeatable || !can_wait(w, u, v, pure_index) || deserves_name(w, u, v)))
        write_temporary(w, u, v);
}

void writer_leaf(struct writer *w, const struct uop *u)
{
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    v->leaf = true;
    if (u->op == OP_CONST) {
        v->e = expr_const(w->p, u->dtype, u->arg);
    } else if (u->op == OP_VAR) {
        const struct var *var = u->arg.p;
        v->e = expr_name(program_var(w->p, var), expr_kind(u->dtype));
        v->e.is_index = true;
    } else {
        v->e = expr_name("", 'I');
    }
    map_set(&w->value, u, v);
}

/* Leaves have values wherever they are used, whether or not the program lists them. */
void writer_leaves(struct writer *w, const struct uop *u)
{
    int n;
    struct uop **of = values_of(w, u, u->nsrc, &n);
    for (int i = 0; i < n; i++)
        if (op_class(of[i]->op) == CLASS_LEAF && !map_get(&w->value, of[i]))
            writer_leaf(w, of[i]);
}
