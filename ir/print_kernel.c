/* print_kernel.c - the complete text of a kernel: its AST at any stage, or a linear program.
 *
 *      kernel                                          or: linear
 *      symbol 'N' 1 64                                 name, least, greatest
 *      input %input0 : f32[4, 'N'] "x"                 memory: its kind, shape and name
 *      weight %weight1 : f32[2] "w" = 1.0 2.0          small ones list their elements
 *      temp %temp3 : f32[8] in %temp2 + 16             a part of another one
 *      let %0 : i64 = max('N', 8)                      a long expression in such a size
 *      range r4.team < 'N' "row"                       axis (axes.def) and number, who shares it
 *      %0 : f32 = load(%input0, r4*4 + r5)             an op of ops.def, its sources and argument
 *      %1 : f32 = reduce(%0, r5) {op=add}
 *      store(%output1, r4, %1, r4)
 *
 * Names of memory and ranges contain their ids, and values are numbered by line, so text that
 * frontend/text/kernel.c has read prints the same. Integer arithmetic of a few operations is
 * written in place. In a linear program each value has its line, in the order of execution, and
 * loops are `for r4 < 8` to `end r4`; `range` declares an accumulator's lanes, which open later.
 * A weight that is stored in an order of its own says it: `order [3:1, 2:3] + 0` lists sizes and
 * strides in the model's elements, and these follow as the model has them. Scratch of a block says
 * `local`. Not in the text: origins and titles.
 */
#include "ir/print.h"
#include "ir/device_ops.h"

enum { INLINE_OPS = 12, WEIGHT_NELEM = 256 };       /* a table of bytes is read again */

struct printer {
    struct text *out;
    struct tgc *t;
    bool linear;
    struct uop_map number; /* line numbers of values, from 1 on */
    struct uop_map size;   /* operations of values written in place */
    uintptr_t next;
};

static void print_quoted(struct text *out, const char *s, char quote)
{
    text_putc(out, quote);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 32 || c > 126 || c == '"' || c == '\\' || c == '\'')
            text_printf(out, "\\x%02x", c);
        else
            text_putc(out, *s);
    }
    text_putc(out, quote);
}

/* ---------------------------------------------------------------------------------- expressions */

static bool is_leaf(const struct uop *u)
{
    return op_class(u->op) == CLASS_LEAF || u->op == OP_RANGE;
}

/* Whether u is written where it is used: leaves, and short integer arithmetic. */
static bool is_in_place(const struct printer *p, const struct uop *u)
{
    if (is_leaf(u))
        return true;
    return !p->linear && op_is_elementwise(u->op) &&
           (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL) &&
           (uintptr_t)map_get(&p->size, u) <= INLINE_OPS;
}

static void find_size(struct printer *p, const struct uop *u)
{
    uintptr_t n = 1;
    for (int k = 0; k < u->nsrc; k++)
        n += is_in_place(p, u->src[k]) ? (uintptr_t)map_get(&p->size, u->src[k]) : 0;
    map_set(&p->size, u, (void *)(is_leaf(u) ? 0 : n));
}

static int infix(const struct uop *u, const char **sign)
{
    if (u->dtype != DTYPE_INDEX)
        return 0;
    *sign = u->op == OP_ADD ? " + " : u->op == OP_MUL ? "*" : u->op == OP_FLOORDIV ? " // " : " % ";
    return u->op == OP_ADD                                                   ? 1
           : u->op == OP_MUL || u->op == OP_FLOORDIV || u->op == OP_FLOORMOD ? 2
                                                                             : 0;
}

static void print_value(struct printer *p, const struct uop *u, int outer);

static void print_call(struct printer *p, const struct uop *u)
{
    text_puts(p->out, op_name(u->op));
    if (u->op == OP_CAST || u->op == OP_BITCAST)
        text_printf(p->out, ".%s", dtype_name(u->dtype));
    text_putc(p->out, '(');
    for (int k = 0; k < u->nsrc; k++) {
        text_puts(p->out, k ? ", " : "");
        print_value(p, u->src[k], 0);
    }
    text_putc(p->out, ')');
}

/* outer: the precedence of the surrounding op. */
static void print_value(struct printer *p, const struct uop *u, int outer)
{
    const char *sign;
    if (!is_in_place(p, u)) {
        text_printf(p->out, "%%%d", (int)(uintptr_t)map_get(&p->number, u) - 1);
        return;
    }
    switch (u->op) {
    case OP_CONST:
        if (u->dtype != DTYPE_INDEX)
            text_printf(p->out, "%s(", dtype_name(u->dtype));
        print_const(p->out, u);
        text_puts(p->out, u->dtype == DTYPE_INDEX ? "" : ")");
        return;
    case OP_VAR:
        if (u->dtype != DTYPE_INDEX)
            text_printf(p->out, "%s(", dtype_name(u->dtype));
        print_quoted(p->out, ((const struct var *)u->arg.p)->name, '\'');
        text_puts(p->out, u->dtype == DTYPE_INDEX ? "" : ")");
        return;
    case OP_BUFFER:
        print_buffer(p->out, u->arg.p);
        return;
    case OP_RANGE:
        uop_print(p->out, u);
        return;
    default:
        break;
    }
    int tight = infix(u, &sign);
    if (!tight) {
        print_call(p, u);
        return;
    }
    text_puts(p->out, tight < outer ? "(" : "");
    print_value(p, u->src[0], tight);
    text_puts(p->out, sign);
    print_value(p, u->src[1], tight + 1);
    text_puts(p->out, tight < outer ? ")" : "");
}

/* ---------------------------------------------------------------------------------------- lines */

static void print_params(struct text *out, const struct uop *u)
{
    const char *params = intrinsic_params(INTRINSIC_ROW(u->arg.i));
    for (int i = 0; params[i]; i++)
        text_printf(out, "%s%c=%lld", i ? ", " : " {", params[i],
                    (long long)INTRINSIC_PARAM(u->arg.i, i));
    text_puts(out, *params ? "}" : "");
}

static void print_field(struct text *out, const struct arg_field *f, int64_t v)
{
    if (f->type == ARG_IS_FOLD)
        text_puts(out, op_name((enum op)v));
    else if (f->type == ARG_IS_UNIT)
        text_puts(out, matrix_row((enum matrix_unit)v)->text);
    else if (f->type == ARG_IS_ROLE)
        text_puts(out, role_name((enum thread_role)v));
    else
        text_printf(out, "%lld", (long long)v);
}

static void print_argument(struct text *out, const struct uop *u)
{
    enum argkind layout = op_layout(u->op, u->arg.i);
    const char *before = " {";
    if (u->op == OP_INTRINSIC)
        print_params(out, u);
    for (int i = layout + 1; layout >= 0 && i < ARG_COUNT && arg_field((enum argkind)i)->text;
         i++) {
        const struct arg_field *f = arg_field((enum argkind)i);
        int64_t v = arg_get(u->arg.i, (enum argkind)i);
        if (!*f->text || (!f->always && v == f->otherwise))
            continue;
        text_printf(out, "%s%s=", before, f->text);
        print_field(out, f, v);
        before = ", ";
    }
    text_puts(out, *before == ',' ? "}" : "");
}

static void print_range(struct printer *p, const struct uop *u, const char *word)
{
    text_puts(p->out, word);
    uop_print(p->out, u);
    text_puts(p->out, " < ");
    print_value(p, u->src[0], 0);
    if (uop_get_axes(p->t, u)) {
        text_putc(p->out, ' ');
        print_quoted(p->out, uop_get_axes(p->t, u), '"');
    }
    text_putc(p->out, '\n');
}

static void print_line(struct printer *p, const struct uop *u)
{
    if (u->op == OP_RANGE) {
        print_range(p, u, p->linear ? "for " : "range ");
        return;
    }
    if (u->op == OP_END) {
        text_puts(p->out, "end ");
        uop_print(p->out, u->src[0]);
        text_putc(p->out, '\n');
        return;
    }
    bool result = !op_is_statement(u->op);
    if (result && !map_get(&p->number, u))
        map_set(&p->number, u, (void *)++p->next);
    if (result) {
        text_printf(p->out, "%%%d", (int)(uintptr_t)map_get(&p->number, u) - 1);
        if (u->dtype != DTYPE_VOID)
            text_printf(p->out, " : %s", dtype_name(u->dtype));
        text_puts(p->out, " = ");
    }
    text_printf(p->out, "%s(", uop_op_name(u));
    if (u->op == OP_STAGE)
        print_buffer(p->out, u->arg.p);
    for (int k = 0; k < u->nsrc; k++) {
        text_puts(p->out, k || u->op == OP_STAGE ? ", " : "");
        print_value(p, u->src[k], 0);
    }
    text_putc(p->out, ')');
    print_argument(p->out, u);
    text_putc(p->out, '\n');
}

/* --------------------------------------------------------------------------------- what it uses */

struct used {
    struct buffer **buffer;
    int nbuffer;
    size_t cap;
    bool *seen;
};

static void use_buffer(struct tgc *t, struct used *s, const struct buffer *b)
{
    if (b->base)
        use_buffer(t, s, b->base); /* bases have no base themselves */
    if (s->seen[b->id])
        return;
    s->seen[b->id] = true;
    VEC_PUSH(t, s->buffer, s->nbuffer, s->cap, (struct buffer *)(uintptr_t)b);
}

static void print_elements(struct text *out, const struct buffer *b)
{
    int64_t n = 1, d, last;
    for (int a = 0; a < b->ndim; a++)
        n = uop_const_int(b->dim[a], &d) ? sat_mul(n, d) : INT64_MAX;
    size_t size = dtype_nbytes(b->dtype);
    if (b->kind != BUFFER_WEIGHT || !b->weight.data || n < 1 || n > WEIGHT_NELEM ||
        b->dtype == DTYPE_STRING || b->nbytes < (size_t)n * size)
        return;
    if (b->storage && (!view_last_element(b->storage, &last) || (n = last + 1) > WEIGHT_NELEM))
        return;
    const char *data = b->weight.data;
    text_puts(out, " =");
    for (int64_t i = 0; i < n; i++) {
        union scalar v = scalar_load(b->dtype, data + (size_t)i * size);
        text_putc(out, ' ');
        print_const(out, &(struct uop){.op = OP_CONST, .dtype = b->dtype, .arg = {.i = v.i}});
    }
}

/* Where element i of the stored order lies in the model's: a view of constant strides. */
static void print_storage(struct printer *p, const struct view *v)
{
    text_puts(p->out, " order");
    for (int a = 0; a < v->ndim; a++) {
        text_puts(p->out, a ? ", " : "[");
        print_value(p, v->dim[a], 0);
        text_puts(p->out, ":");
        print_value(p, v->stride[a], 0);
    }
    text_puts(p->out, v->ndim ? "] + " : "[] + ");
    print_value(p, v->offset, 0);
}

static void print_memory(struct printer *p, const struct buffer *b)
{
    text_printf(p->out, "%s ", buffer_kind_name(b->kind));
    print_buffer(p->out, b);
    text_printf(p->out, " : %s", dtype_name(b->dtype));
    for (int a = 0; a < b->ndim; a++) {
        text_puts(p->out, a ? ", " : "[");
        print_value(p, b->dim[a], 0);
    }
    text_puts(p->out, b->ndim ? "]" : "");
    if (buffer_space(b) == SPACE_SHARED)
        text_printf(p->out, " %s", space_name(SPACE_SHARED));
    if (b->scratch.space == SPACE_GLOBAL)
        text_printf(p->out, " %s%s", space_name(SPACE_GLOBAL), b->scratch.counts ? " counts" : "");
    if (b->scratch.is_alias)
        text_puts(p->out, " alias");
    if (b->scratch.is_bulk_stored)
        text_puts(p->out, " bulk_stored");
    if (b->scratch.panel)
        text_printf(p->out, " panels %lld", (long long)b->scratch.panel);
    if (b->scratch.pipeline.stages)
        text_printf(p->out, " ring %d %s", b->scratch.pipeline.stages,
                    transfer_name(b->scratch.pipeline.transfer));
    if (b->scratch.pipeline.cluster)
        text_printf(p->out, " cluster %d of %d", b->scratch.pipeline.cluster,
                    b->scratch.pipeline.multicast);
    if (b->scratch.pipeline.producers)
        text_printf(p->out, " producers %d", b->scratch.pipeline.producers);
    if (b->scratch.is_register)
        text_puts(p->out, " registers");
    if (b->kind == BUFFER_WEIGHT && b->storage)
        print_storage(p, b->storage);
    if (b->base) {
        text_puts(p->out, " in ");
        print_buffer(p->out, b->base);
        text_puts(p->out, " + ");
        print_value(p, b->base_offset, 0);
    }
    if (b->name) {
        text_putc(p->out, ' ');
        print_quoted(p->out, b->name, '"');
    }
    print_elements(p->out, b);
    text_putc(p->out, '\n');
}

static void print_symbol(struct text *out, const struct var *v)
{
    text_puts(out, "symbol ");
    print_quoted(out, v->name, '\'');
    text_printf(out, " %lld %lld%s\n", (long long)v->min, (long long)v->max,
                v->is_counter ? " counter" : "");
}

/* Symbols, memory, and the values in their sizes. */
static void print_declarations(struct printer *p, struct uop *const *root, int nroot)
{
    struct tgc *t = p->t;
    struct used used = {0};
    struct uop **size = NULL;
    size_t cap = 0;
    int n, nsize = 0;
    struct uop **order = uop_toposort(t, root, nroot, &n);
    bool linear = p->linear;
    p->linear = false; /* sizes are written in place in a linear program, too */
    used.seen = mem_array(t, (size_t)t->next_buffer + 1, sizeof *used.seen);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_BUFFER || order[i]->op == OP_STAGE)
            use_buffer(t, &used, order[i]->arg.p);
    for (int i = 0; i < used.nbuffer; i++) {
        for (int a = 0; a < used.buffer[i]->ndim; a++)
            VEC_PUSH(t, size, nsize, cap, used.buffer[i]->dim[a]);
        if (used.buffer[i]->base)
            VEC_PUSH(t, size, nsize, cap, used.buffer[i]->base_offset);
    }
    for (int i = 0; i < nroot; i++)
        VEC_PUSH(t, size, nsize, cap, root[i]);
    order = uop_toposort(t, size, nsize, &n);
    for (int i = 0; i < n; i++) {
        bool is_first = order[i]->op == OP_VAR;
        find_size(p, order[i]);
        for (int k = 0; k < i && is_first; k++)          /* it may be an i32 and an i64 */
            is_first = order[k]->op != OP_VAR || order[k]->arg.p != order[i]->arg.p;
        if (is_first)
            print_symbol(p->out, order[i]->arg.p);
    }
    order = uop_toposort(t, size, nsize - nroot, &n);
    for (int i = 0; i < n; i++)
        if (!is_in_place(p, order[i])) {
            text_puts(p->out, "let ");
            print_line(p, order[i]);
        }
    for (int i = 0; i < used.nbuffer; i++)
        print_memory(p, used.buffer[i]);
    p->linear = linear;
}

/* ---------------------------------------------------------------------------------------------  */

void kernel_print(struct text *out, struct tgc *t, const struct uop *ast)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop *root = (struct uop *)(uintptr_t)ast;
    struct printer p = {.out = out, .t = t, .number = {.t = t}, .size = {.t = t}};
    int n;
    text_puts(out, "kernel\n");
    print_declarations(&p, &root, 1);
    struct uop **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_RANGE || (!is_in_place(&p, order[i]) && order[i]->op != OP_SINK &&
                                         order[i]->op != OP_STORE && !map_get(&p.number, order[i])))
            print_line(&p, order[i]);
    for (int i = 0; i < ast->nsrc; i++)
        print_line(&p, ast->src[i]);
    scratch_release(t, mark);
}

void program_print(struct text *out, struct tgc *t, struct uop *const *u, int n)
{
    struct mem_mark mark = scratch_mark(t);
    struct printer p = {.out = out, .t = t, .linear = true, .number = {.t = t}, .size = {.t = t}};
    struct uop_map lane = {.t = t};
    int depth = 0;
    text_puts(out, "linear\n");
    print_declarations(&p, u, n);
    for (int i = 0; i < n; i++)
        for (int k = 1; k < u[i]->nsrc && u[i]->op == OP_ACC; k++)
            if (!map_get(&lane, u[i]->src[k])) {
                map_set(&lane, u[i]->src[k], u[i]->src[k]);
                print_range(&p, u[i]->src[k], "range ");
            }
    for (int i = 0; i < n; i++) {
        if (op_class(u[i]->op) == CLASS_LEAF)
            continue;
        depth -= (u[i]->op == OP_END || u[i]->op == OP_ENDGUARD) && depth > 0;
        for (int k = 0; k < depth; k++)
            text_puts(out, "    ");
        print_line(&p, u[i]);
        depth += u[i]->op == OP_RANGE || u[i]->op == OP_GUARD;
    }
    scratch_release(t, mark);
}
