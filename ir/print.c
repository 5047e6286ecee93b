/* print.c - graphs, linear programs and scalar expressions as text, for people who debug the
 * compiler.
 *
 * One op a line, in the syntax of the .tg format where that has one: `%id : dtype[dims] =
 * op(sources) {attributes} loc("node")`. Scalars over symbols and ranges are written in place,
 * infix, with no more parentheses than they need; a scalar that is too deep to be read ends in an
 * ellipsis. Names come from the model and are escaped. The reader and writer of .tg files are in
 * frontend/text.
 */
#include <math.h>
#include <string.h>

#include "ir/print.h"
#include "ir/device_ops.h"

enum { PRINT_DEPTH = 40 };

/* ---------------------------------------------------------------------------------- small parts */

void print_name(struct text *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            text_printf(out, "\\%c", c);
        else if (c < 32 || c > 126)
            text_printf(out, "\\x%02x", c);
        else
            text_putc(out, *s);
    }
}

/* The shortest of the usual formats that reads back as the same number. */
static void print_float(struct text *out, double x)
{
    char s[40];
    if (isnan(x) || isinf(x)) {
        text_puts(out, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        double back = 0;
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (sscanf(s, "%lf", &back) == 1 && back == x)
            break;
    }
    text_puts(out, s);
    if (!strpbrk(s, ".en"))
        text_puts(out, ".0");
}

void print_const(struct text *out, const struct uop *u)
{
    if (dtype_is_float(u->dtype))
        print_float(out, u->arg.f);
    else if (u->dtype == DTYPE_BOOL)
        text_puts(out, u->arg.i ? "true" : "false");
    else if (u->dtype == DTYPE_U64)
        text_printf(out, "%llu", (unsigned long long)u->arg.i);
    else if (u->dtype == DTYPE_STRING) {
        text_putc(out, '"');
        print_name(out, u->arg.p ? (const char *)u->arg.p : "");
        text_putc(out, '"');
    } else
        text_printf(out, "%lld", (long long)u->arg.i);
}

const char *buffer_kind_name(enum buffer_kind k)
{
    static const char *const kind[] = {"input", "output", "weight", "temp", "state", "scratch"};
    return kind[k];
}

void print_buffer(struct text *out, const struct buffer *b)
{
    text_printf(out, "%%%s%d", buffer_kind_name(b->kind), b->id);
}

/* ---------------------------------------------------------------------------------- expressions */

/* The precedence of an infix op; 0: written as a call. `sign` is the text between the operands. */
static int precedence(enum op op, const char **sign)
{
    switch (op) {
    case OP_WHERE:
        return 1;
    case OP_OR:
        *sign = " | ";
        return 2;
    case OP_XOR:
        *sign = " ^ ";
        return 3;
    case OP_AND:
        *sign = " & ";
        return 4;
    case OP_EQ:
        *sign = " == ";
        return 5;
    case OP_NE:
        *sign = " != ";
        return 5;
    case OP_LT:
        *sign = " < ";
        return 6;
    case OP_SHL:
        *sign = " << ";
        return 7;
    case OP_SHR:
        *sign = " >> ";
        return 7;
    case OP_ADD:
        *sign = " + ";
        return 8;
    case OP_SUB:
        *sign = " - ";
        return 8;
    case OP_MUL:
        *sign = "*";
        return 9;
    case OP_DIV:
        *sign = "/";
        return 9;
    case OP_FLOORDIV:
        *sign = "//";
        return 9;
    case OP_FLOORMOD:
        *sign = "%";
        return 9;
    default:
        return 0;
    }
}

static void print_expr(struct text *out, const struct uop *u, int outer, int depth);

static void print_call(struct text *out, const struct uop *u, int depth)
{
    text_puts(out, op_name(u->op));
    if (u->op == OP_CAST || u->op == OP_BITCAST)
        text_printf(out, ".%s", dtype_name(u->dtype));
    text_putc(out, '(');
    for (int k = 0; k < u->nsrc; k++) {
        if (k)
            text_puts(out, ", ");
        print_expr(out, u->src[k], 0, depth + 1);
    }
    text_putc(out, ')');
}

static void print_infix(struct text *out, const struct uop *u, int p, const char *sign, int depth)
{
    if (u->op == OP_WHERE) {
        print_expr(out, u->src[0], p + 1, depth + 1);
        text_puts(out, " ? ");
        print_expr(out, u->src[1], p + 1, depth + 1);
        text_puts(out, " : ");
        print_expr(out, u->src[2], p, depth + 1);
        return;
    }
    const struct uop *b = u->src[1];
    bool minus = u->op == OP_ADD && b->op == OP_CONST && dtype_is_int(b->dtype) && b->arg.i < 0 &&
                 b->arg.i > INT64_MIN && b->dtype != DTYPE_U64;
    print_expr(out, u->src[0], p, depth + 1);
    if (minus) {
        text_printf(out, " - %lld", (long long)-b->arg.i);
        return;
    }
    text_puts(out, sign);
    print_expr(out, b, p + 1, depth + 1);
}

/* outer: the precedence of the surrounding op. */
static void print_expr(struct text *out, const struct uop *u, int outer, int depth)
{
    const char *sign = "";
    if (u->ndim > 0 && u->op != OP_BUFFER) {
        text_printf(out, "%%%u", u->id);
        return;
    }
    if (depth > PRINT_DEPTH) {
        text_puts(out, "...");
        return;
    }
    switch (u->op) {
    case OP_CONST:
        print_const(out, u);
        return;
    case OP_VAR:
        print_name(out, ((const struct var *)u->arg.p)->name ? ((const struct var *)u->arg.p)->name
                                                             : "var");
        return;
    case OP_BUFFER: case OP_STAGE:
        print_buffer(out, u->arg.p);
        return;
    case OP_RANGE:
        text_printf(out, "%c%d%s", axis_letter(RANGE_AXIS(u->arg.i)), RANGE_ID(u->arg.i),
                    worker_suffix(RANGE_WORKER(u->arg.i)));
        return;
    case OP_ACC:
        text_printf(out, "acc%lld", (long long)u->arg.i);
        return;
    case OP_PARAM:
        text_printf(out, "%%carried%d.%d", ((const struct loop_param *)u->arg.p)->loop->id,
                    ((const struct loop_param *)u->arg.p)->index);
        return;
    default:
        break;
    }
    int p = precedence(u->op, &sign);
    if (!p) {
        print_call(out, u, depth);
        return;
    }
    if (p < outer)
        text_putc(out, '(');
    print_infix(out, u, p, sign, depth);
    if (p < outer)
        text_putc(out, ')');
}

void uop_print(struct text *out, const struct uop *u) { print_expr(out, u, 0, 0); }

/* ----------------------------------------------------------------------------------- op by line */

static void print_type(struct text *out, enum dtype d, struct uop *const *dim, int ndim)
{
    text_puts(out, dtype_name(d));
    if (ndim == 0)
        return;
    text_putc(out, '[');
    for (int a = 0; a < ndim; a++) {
        if (a)
            text_puts(out, ", ");
        uop_print(out, dim[a]);
    }
    text_putc(out, ']');
}

static void print_axes(struct text *out, uint32_t axes)
{
    const char *comma = "";
    text_puts(out, "axes=[");
    for (int a = 0; a < 32; a++)
        if (axes >> a & 1) {
            text_printf(out, "%s%d", comma, a);
            comma = ", ";
        }
    text_putc(out, ']');
}

static void print_attributes(struct text *out, const struct uop *u)
{
    int64_t bits = u->arg.i;
    switch (u->op) {
    case OP_PERMUTE:
        text_puts(out, " {perm=[");
        for (int a = 0; a < u->ndim; a++)
            text_printf(out, "%s%d", a ? ", " : "", PERM_GET(bits, a));
        text_puts(out, "]}");
        break;
    case OP_FLIP:
        text_puts(out, " {");
        print_axes(out, (uint32_t)bits);
        text_putc(out, '}');
        break;
    case OP_REDUCE:
        text_printf(out, " {op=%s, ", op_name(REDUCE_OP(bits)));
        print_axes(out, REDUCE_AXES(bits));
        text_putc(out, '}');
        break;
    case OP_WINDOW:
        text_printf(out, " {axis=%d, stride=%lld, dilation=%lld}", WINDOW_AXIS(bits),
                    (long long)WINDOW_STRIDE(bits), (long long)WINDOW_DILATION(bits));
        break;
    case OP_CONCAT:
        text_printf(out, " {axis=%lld}", (long long)bits);
        break;
    case OP_SCATTER:
        text_printf(out, " {op=%s}", bits == OP_CONST ? "set" : op_name((enum op)bits));
        break;
    case OP_GET:
        text_printf(out, " {k=%lld}", (long long)bits);
        break;
    case OP_IF:
        text_printf(out, " {n=%lld}", (long long)bits);
        break;
    case OP_LOOP: {
        const struct loop *l = u->arg.p;
        text_printf(out, " {loop=%d, carried=%d, scanned=%d, counter=", l->id, l->ncarried,
                    l->nscan);
        print_name(out, l->counter && l->counter->name ? l->counter->name : "");
        text_putc(out, '}');
        break;
    }
    case OP_PARAM: {
        const struct loop_param *p = u->arg.p;
        text_printf(out, " {loop=%d, k=%d}", p->loop->id, p->index);
        break;
    }
    case OP_HOST:
        text_puts(out, " {function=\"");
        print_name(out, ((const struct host_call *)u->arg.p)->function);
        text_puts(out, "\"}");
        break;
    default:
        break;
    }
}

static void print_location(struct text *out, const struct tgc *t, const struct uop *u)
{
    const struct origin *o = uop_get_origin(t, u);
    if (!o)
        return;
    text_puts(out, "   loc(\"");
    print_name(out, o->node && *o->node ? o->node : o->op_type ? o->op_type : "");
    text_puts(out, "\")");
}

/* A scalar that is written in one expression needs no line of its own. */
static bool is_expression(const struct uop *u)
{
    return u->ndim == 0 &&
           (op_class(u->op) == CLASS_LEAF ||
            (op_is_elementwise(u->op) && u->dtype == DTYPE_INDEX && u->vmin != u->vmax) ||
            u->op == OP_CONST);
}

static void print_source(struct text *out, const struct uop *u)
{
    if (u->op == OP_BUFFER || is_expression(u))
        uop_print(out, u);
    else
        text_printf(out, "%%%u", u->id);
}

static void print_tensor_line(struct text *out, const struct tgc *t, const struct uop *u)
{
    text_printf(out, "%%%u : ", u->id);
    print_type(out, u->dtype, u->dim, u->ndim);
    text_printf(out, " = %s(", op_name(u->op));
    for (int k = 0; k < u->nsrc; k++) {
        if (k)
            text_puts(out, ", ");
        print_source(out, u->src[k]);
    }
    text_putc(out, ')');
    print_attributes(out, u);
    print_location(out, t, u);
    text_putc(out, '\n');
}

static void print_declaration(struct text *out, const struct buffer *b)
{
    text_puts(out, b->kind == BUFFER_WEIGHT  ? "weight "
                   : b->kind == BUFFER_INPUT ? "input  "
                                             : "buffer ");
    print_buffer(out, b);
    text_puts(out, " : ");
    print_type(out, b->dtype, b->dim, b->ndim);
    if (b->name) {
        text_puts(out, " \"");
        print_name(out, b->name);
        text_putc(out, '"');
    }
    text_putc(out, '\n');
}

void graph_print(struct text *out, struct tgc *t, const struct graph *g)
{
    struct uop **root = mem_array(t, (size_t)(g->noutput + g->ninput) + 1, sizeof *root);
    int n, nroot = 0;
    for (int i = 0; i < g->ninput; i++)
        root[nroot++] = g->input[i];
    for (int i = 0; i < g->noutput; i++)
        root[nroot++] = g->output[i].value;
    struct uop **order = uop_toposort(t, root, nroot, &n);
    text_puts(out, "tg 1\n");
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_BUFFER)
            print_declaration(out, order[i]->arg.p);
    for (int i = 0; i < n; i++)
        if (order[i]->op != OP_BUFFER && !is_expression(order[i]))
            print_tensor_line(out, t, order[i]);
    for (int i = 0; i < g->noutput; i++) {
        text_puts(out, "output ");
        print_source(out, g->output[i].value);
        text_puts(out, " as \"");
        print_name(out, g->output[i].name ? g->output[i].name : "");
        text_puts(out, "\"\n");
    }
}

/* ------------------------------------------------------------------------------ linear programs */

/* In a linear program each value has its line; constants, symbols, memory, loop variables and
 * accumulators are named in place. Values are numbered by line, so that what was built before does
 * not show. */
struct lines {
    struct text *out;
    struct tgc *t;
    struct uop_map number; /* of a value, from 1 on */
    uintptr_t next;
};

static void print_operand(struct lines *x, const struct uop *u)
{
    if (op_class(u->op) == CLASS_LEAF || u->op == OP_RANGE || u->op == OP_ACC || u->op == OP_STAGE)
        uop_print(x->out, u);
    else
        text_printf(x->out, "%%%u", (unsigned)(uintptr_t)map_get(&x->number, u) - 1);
}

static void print_operation(struct lines *x, const struct uop *u)
{
    struct text *out = x->out;
    const char *sign = "";
    int p = precedence(u->op, &sign);
    if (p > 1 && u->nsrc == 2) {
        print_operand(x, u->src[0]);
        text_printf(out, "%s%s%s", p == 9 ? " " : "", sign, p == 9 ? " " : "");
        print_operand(x, u->src[1]);
        return;
    }
    text_printf(out, "%s(", uop_op_name(u));
    for (int k = 0; k < u->nsrc; k++) {
        if (k)
            text_puts(out, ", ");
        print_operand(x, u->src[k]);
    }
    text_putc(out, ')');
}

/* "%12 : f32 = ", "%13 : f32x8 = " */
static void print_result(struct lines *x, const struct uop *u)
{
    struct text *out = x->out;
    map_set(&x->number, u, (void *)++x->next);
    text_printf(out, "%%%u : %s", (unsigned)x->next - 1, dtype_name(u->dtype));
    if (u->lanes > 1)
        text_printf(out, "x%d", u->lanes);
    text_puts(out, " = ");
}

static void print_linear_line(struct lines *x, const struct uop *u)
{
    struct text *out = x->out;
    switch (u->op) {
    case OP_RANGE:
        text_puts(out, "for ");
        print_operand(x, u);
        text_puts(out, " < ");
        print_operand(x, u->src[0]);
        if (uop_get_axes(x->t, u)) {
            text_puts(out, "   # ");
            print_name(out, uop_get_axes(x->t, u));
        }
        break;
    case OP_END: case OP_ENDGUARD:
        text_puts(out, "end");
        break;
    case OP_GUARD:
        text_puts(out, "if ");
        print_operand(x, u->src[0]);
        break;
    case OP_ACC:
        text_printf(out, "acc%lld", (long long)u->arg.i);
        for (int k = 1; k < u->nsrc; k++) {
            text_puts(out, k == 1 ? "[" : ", ");
            print_operand(x, u->src[k]);
        }
        text_printf(out, "%s : %s := ", u->nsrc > 1 ? "]" : "", dtype_name(u->dtype));
        print_operand(x, u->src[0]);
        break;
    case OP_ASSIGN:
        print_operand(x, u->src[0]);
        text_puts(out, " := ");
        print_operand(x, u->src[1]);
        break;
    case OP_SHUFFLE:
        print_operand(x, u->src[0]);
        text_printf(out, " := shuffle %s ^ %d of ", op_name(SHUFFLE_OP(u->arg.i)),
                    SHUFFLE_MASK(u->arg.i));
        print_operand(x, u->src[0]);
        break;
    case OP_MATRIX:
        print_operand(x, u->src[0]);
        text_printf(out, " += %s of ", matrix_row(MATRIX_ROW(u->arg.i))->text);
        print_operand(x, u->src[1]);
        text_puts(out, " and ");
        print_operand(x, u->src[2]);
        break;
    case OP_COPY: case OP_PUT:
        print_operand(x, u->src[0]);
        text_putc(out, '[');
        print_operand(x, u->src[1]);
        text_printf(out, u->op == OP_COPY ? "..%d] <- " : "..%d] := ", COPY_LANES(u->arg.i));
        print_operand(x, u->src[2]);
        text_putc(out, '[');
        print_operand(x, u->src[3]);
        text_putc(out, ']');
        if (u->nsrc > 4) {
            text_puts(out, " if ");
            print_operand(x, u->src[4]);
        }
        break;
    case OP_WAIT:
        text_printf(out, "wait until %d groups are left", WAIT_GROUPS(u->arg.i));
        break;
    case OP_PREFETCH:
        text_puts(out, "prefetch ");
        print_operand(x, u->src[0]);
        text_putc(out, '[');
        print_operand(x, u->src[1]);
        text_putc(out, ']');
        break;
    case OP_STORE:
        print_operand(x, u->src[0]);
        text_putc(out, '[');
        print_operand(x, u->src[1]);
        text_puts(out, "] := ");
        print_operand(x, u->src[2]);
        break;
    case OP_LOAD:
        print_result(x, u);
        print_operand(x, u->src[0]);
        text_putc(out, '[');
        print_operand(x, u->src[1]);
        text_putc(out, ']');
        if (u->nsrc > 3) {
            text_puts(out, " if ");
            print_operand(x, u->src[2]);
            text_puts(out, " else ");
            print_operand(x, u->src[3]);
        }
        break;
    default:
        print_result(x, u);
        print_operation(x, u);
    }
    if (op_is_elementwise(u->op))
        print_location(out, x->t, u);
    text_putc(out, '\n');
}

bool linear_has_line(const struct uop *u) { return op_class(u->op) != CLASS_LEAF; }

void linear_print(struct text *out, struct tgc *t, struct uop *const *u, int n)
{
    struct lines x = {.out = out, .t = t, .number = {.t = t}};
    int depth = 0;
    for (int i = 0; i < n; i++) {
        bool closes = u[i]->op == OP_END || u[i]->op == OP_ENDGUARD;
        if (!linear_has_line(u[i]))
            continue;
        depth -= closes && depth > 0;
        for (int k = 0; k < depth; k++)
            text_puts(out, "    ");
        print_linear_line(&x, u[i]);
        depth += u[i]->op == OP_RANGE || u[i]->op == OP_GUARD;
    }
}
