/* write.c - a graph as .tg text, such that reading and writing it again gives the same bytes.
 *
 * One line an op, in topological order from the outputs, which depends only on the graph's
 * structure. Integer scalars over constants and symbols are written where they are used, infix;
 * other scalars have lines. Uops that depend on a loop's counter or carried values are written
 * inside that loop: a uop's home is the innermost loop on which it depends. The branches of an if
 * need no region, since dependence alone determines what runs. Values are numbered in the order of
 * writing; inputs and weights keep their names where these are plain. Of a graph with entries, what
 * one of them alone needs is written in it, and what several need before them.
 */
#include "frontend/text/write.h"

#include <math.h>
#include <string.h>

enum { INLINE_NELEM = 64, EXPR_NODES = 48 };

/* ---- text */

void tg_put_quoted(struct text *out, const char *s, char quote)
{
    text_putc(out, quote);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '\'')
            text_printf(out, "\\%c", c);
        else if (c < 32 || c > 126)
            text_printf(out, "\\x%02x", c);
        else
            text_putc(out, *s);
    }
    text_putc(out, quote);
}

static bool is_plain(const char *s, bool digits_first)
{
    if (!*s || (!digits_first && ((*s >= '0' && *s <= '9') || *s == '.')))
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
              *s == '_' || *s == '.'))
            return false;
    return true;
}

/* The shortest decimal that reads back as v in dtype d. */
static void put_float(struct text *out, enum dtype d, double v)
{
    char s[40];
    if (isnan(v) || isinf(v)) {
        text_puts(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        double back = 0;
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (sscanf(s, "%lf", &back) == 1 &&
            scalar_cast(d, DTYPE_F64, (union scalar){.f = back}).f == v)
            break;
    }
    text_puts(out, s);
}

static void put_scalar(struct text *out, enum dtype d, union scalar v)
{
    if (dtype_is_float(d))
        put_float(out, d, v.f);
    else if (d == DTYPE_BOOL)
        text_puts(out, v.i ? "true" : "false");
    else if (d == DTYPE_U64)
        text_printf(out, "%llu", (unsigned long long)v.i);
    else
        text_printf(out, "%lld", (long long)v.i);
}

/* ---- names */

/* Adds a name; false: it is taken. */
static bool take_name(struct writer *w, const char *s)
{
    void **taken = dict_enter(w->t, &w->taken, s);
    bool is_new = *taken == NULL;
    *taken = w;
    return is_new;
}

static bool all_digits(const char *s) { return s[strspn(s, "0123456789")] == 0; }

/* A unique name for a buffer, close to the model's. Names of digits alone are for other values. */
static const char *buffer_name(struct writer *w, const struct uop *u, const char *prefix)
{
    const struct buffer *b = u->arg.p;
    const char *s = b->name && is_plain(b->name, true) && !all_digits(b->name) &&
                            strcmp(b->name, "_") != 0
                        ? b->name
                        : NULL;
    if (s && take_name(w, s))
        return s;
    for (;;) {
        s = mem_printf(w->t, "%s%d", prefix, w->next_weight++);
        if (take_name(w, s))
            return s;
    }
}

static const char *value_name(struct writer *w, const struct uop *u)
{
    if (!map_get(&w->name, u))
        map_set(&w->name, u, mem_printf(w->t, "%d", w->next_value++));
    return map_get(&w->name, u);
}

/* ---- expressions */

static const char *infix(enum op op)
{
    return op == OP_ADD ? " + " : op == OP_SUB ? " - " : op == OP_MUL ? "*" : NULL;
}
static bool is_call(enum op op)
{
    return op == OP_FLOORDIV || op == OP_FLOORMOD || op == OP_MIN || op == OP_MAX;
}

/* Whether u is written where it is used: an i64 scalar over constants, symbols and named scalars,
 * and not too long. */
static bool expr_size(const struct uop *u, int depth, int *budget)
{
    if (--*budget < 0 || depth > EXPR_NODES || u->ndim || u->dtype != DTYPE_INDEX)
        return false;
    if (u->op == OP_CONST || u->op == OP_VAR)
        return true;
    return (infix(u->op) || is_call(u->op)) && expr_size(u->src[0], depth + 1, budget) &&
           expr_size(u->src[1], depth + 1, budget);
}

static bool is_expr(const struct uop *u)
{
    int budget = EXPR_NODES;
    return expr_size(u, 0, &budget);
}

static int precedence(const struct uop *u)
{
    return u->op == OP_ADD || u->op == OP_SUB ? 1 : u->op == OP_MUL ? 2 : 3;
}

static void put_symbol(struct writer *w, const struct uop *u)
{
    const struct var *v = u->arg.p;
    enum dtype d;
    static const char *const reserved[] = {"min",   "max", "floordiv", "floormod", "true",
                                           "false", "inf", "nan",      "_"};
    if (v->is_counter) {
        text_printf(w->out, "%%%s", value_name(w, u));
        return;
    }
    bool plain = is_plain(v->name, false) && !dtype_parse(v->name, &d);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        plain &= strcmp(v->name, reserved[i]) != 0;
    if (plain)
        text_puts(w->out, v->name);
    else
        tg_put_quoted(w->out, v->name, '\'');
}

/* Depth is at most EXPR_NODES. */
static void put_expr(struct writer *w, const struct uop *u, int outer)
{
    if (!is_expr(u)) {
        text_printf(w->out, "%%%s", value_name(w, u));
    } else if (u->op == OP_CONST) {
        text_printf(w->out, "%lld", (long long)u->arg.i);
    } else if (u->op == OP_VAR) {
        put_symbol(w, u);
    } else if (infix(u->op)) {
        int p = precedence(u);
        text_puts(w->out, p < outer ? "(" : "");
        put_expr(w, u->src[0], p);
        text_puts(w->out, infix(u->op));
        put_expr(w, u->src[1], p + 1);
        text_puts(w->out, p < outer ? ")" : "");
    } else {
        text_printf(w->out, "%s(", op_name(u->op));
        put_expr(w, u->src[0], 0);
        text_puts(w->out, ", ");
        put_expr(w, u->src[1], 0);
        text_putc(w->out, ')');
    }
}

static void put_operand(struct writer *w, const struct uop *u)
{
    if (u->op == OP_CONST) {
        text_printf(w->out, "%s(", dtype_name(u->dtype));
        put_scalar(w->out, u->dtype, (union scalar){.i = u->arg.i});
        text_putc(w->out, ')');
    } else {
        put_expr(w, u, 0);
    }
}

/* ---- types */

void write_bounds(struct writer *w, const struct uop *symbol)
{
    const struct var *v = symbol->arg.p;
    if (v->min != 0)
        text_printf(w->out, "%lld<=", (long long)v->min);
    put_symbol(w, symbol);
    text_printf(w->out, "<=%lld", (long long)v->max);
}

/* declares: a symbol that occurs alone here for the first time is written with its bounds. */
static void put_type(struct writer *w, enum dtype d, struct uop *const *dim, int ndim,
                     bool declares)
{
    text_puts(w->out, dtype_name(d));
    for (int a = 0; a < ndim; a++) {
        text_puts(w->out, a ? ", " : "[");
        bool symbol = dim[a]->op == OP_VAR && !((const struct var *)dim[a]->arg.p)->is_counter;
        if (declares && symbol && !map_get(&w->declared, dim[a])) {
            map_set(&w->declared, dim[a], dim[a]);
            write_bounds(w, dim[a]);
        } else {
            put_expr(w, dim[a], 0);
        }
    }
    text_puts(w->out, ndim ? "]" : "");
}

/* " : f32[N]", or nothing if a derived dimension is too long an expression. */
static void put_checked_type(struct writer *w, const struct uop *u)
{
    for (int a = 0; a < u->ndim; a++)
        if (!is_expr(u->dim[a]))
            return;
    text_puts(w->out, " : ");
    put_type(w, u->dtype, u->dim, u->ndim, false);
}

/* ---- weights */

/* Whether the elements read back as the same bytes: a NaN may not. */
static bool exact(const struct buffer *b)
{
    size_t size = dtype_nbytes(b->dtype);
    char again[16];
    for (size_t i = 0; i < b->nbytes / size; i++) {
        const char *p = (const char *)b->weight.data + i * size;
        union scalar v = scalar_load(b->dtype, p);
        if (dtype_is_float(b->dtype) && isnan(v.f))
            v.f = (double)NAN;
        scalar_store(b->dtype, again, v);
        if (memcmp(again, p, size) != 0)
            return false;
    }
    return true;
}

static void put_base64(struct text *out, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text_puts(out, "base64(\"");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0u);
        for (size_t k = 0; k < 4; k++)
            text_putc(out, i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63]);
    }
    text_puts(out, "\")");
}

/* The elements; name: in the file beside it, if they are written there. */
static void put_data(struct writer *w, const struct buffer *b, const char *name)
{
    size_t nelem = b->nbytes / dtype_nbytes(b->dtype),
           most = w->o && w->o->inline_nelem ? w->o->inline_nelem : INLINE_NELEM;
    if (nelem <= most && exact(b)) {
        text_putc(w->out, '[');
        for (size_t i = 0; i < nelem; i++) {
            text_puts(w->out, i ? ", " : "");
            put_scalar(
                w->out, b->dtype,
                scalar_load(b->dtype, (const char *)b->weight.data + i * dtype_nbytes(b->dtype)));
        }
        text_putc(w->out, ']');
    } else if (w->side && w->o && w->o->side_file && safetensors_holds(b->dtype)) {
        text_puts(w->out, "file(");
        tg_put_quoted(w->out, w->o->side_file, '"');
        text_printf(w->out, ", \"%s\")", name);
        VEC_PUSH(w->t, w->side_weight, w->nside, w->cap_side, (struct buffer *)(uintptr_t)b);
        VEC_PUSH(w->t, w->side_name, w->nside_name, w->cap_side_name, name);
    } else {
        put_base64(w->out, b->weight.data, b->nbytes);
    }
}

/* "input %x : f32[N] as "x:0"", without the line's end; declares: as in put_type(). Returns the
 * name. */
static const char *put_leaf(struct writer *w, const char *word, const struct uop *u,
                            const char *prefix, bool declares)
{
    const struct buffer *b = u->arg.p;
    const char *name = mem_str(w->t, buffer_name(w, u, prefix));
    map_set(&w->name, u, (void *)(uintptr_t)name);
    text_printf(w->out, "%s %%%s : ", word, name);
    put_type(w, b->dtype, u->dim, u->ndim, declares);
    if (b->name && strcmp(b->name, name) != 0) {
        text_puts(w->out, " as ");
        tg_put_quoted(w->out, b->name, '"');
    }
    return name;
}

static void put_weight(struct writer *w, const struct uop *u)
{
    const struct buffer *b = u->arg.p;
    const char *name = put_leaf(w, b->weight.is_param ? "param" : "weight", u, "w", false);
    text_puts(w->out, " = ");
    put_data(w, b, name);
    text_putc(w->out, '\n');
}

static void put_state(struct writer *w, const struct uop *u)
{
    const struct buffer *first = ((const struct buffer *)u->arg.p)->port.first;
    const char *name = put_leaf(w, "state", u, "state", false);
    if (first) {
        text_puts(w->out, " = ");
        put_data(w, first, mem_printf(w->t, "%s_first", name));
    }
    text_putc(w->out, '\n');
}

/* ---- operations */

static void put_list(struct writer *w, const char *name, struct uop *const *v, int n, int step)
{
    text_printf(w->out, "%s=[", name);
    for (int i = 0; i < n; i++) {
        text_puts(w->out, i ? ", " : "");
        put_expr(w, v[i * step], 0);
    }
    text_putc(w->out, ']');
}

static void put_axes(struct writer *w, const char *name, uint32_t axes)
{
    text_printf(w->out, "%s=[", name);
    for (int a = 0, n = 0; a < MAX_RANK; a++)
        if (axes >> a & 1)
            text_printf(w->out, "%s%d", n++ ? ", " : "", a);
    text_putc(w->out, ']');
}

/* "(%a, %b)" */
static void put_operands(struct writer *w, struct uop *const *v, int n)
{
    text_putc(w->out, '(');
    for (int i = 0; i < n; i++) {
        text_puts(w->out, i ? ", " : "");
        put_operand(w, v[i]);
    }
    text_putc(w->out, ')');
}

static void put_movement(struct writer *w, const struct uop *u)
{
    struct uop *const *s = u->src;
    int n = s[0]->ndim;
    put_operands(w, s, u->op == OP_CONCAT ? u->nsrc : u->op == OP_PAD ? 2 : 1);
    if (u->op == OP_IOTA)
        return;
    text_puts(w->out, " {");
    switch (u->op) {
    case OP_RESHAPE: case OP_EXPAND: put_list(w, "shape", s + 1, u->nsrc - 1, 1); break;
    case OP_PERMUTE:
        text_puts(w->out, "perm=[");
        for (int a = 0; a < n; a++)
            text_printf(w->out, "%s%d", a ? ", " : "", PERM_GET(u->arg.i, a));
        text_putc(w->out, ']');
        break;
    case OP_PAD:
        put_list(w, "lo", s + 2, n, 2);
        text_puts(w->out, ", ");
        put_list(w, "hi", s + 3, n, 2);
        break;
    case OP_SHRINK:
        put_list(w, "begin", s + 1, n, 2);
        text_puts(w->out, ", ");
        put_list(w, "size", s + 2, n, 2);
        break;
    case OP_FLIP: put_axes(w, "axes", (uint32_t)u->arg.i); break;
    case OP_WINDOW:
        text_printf(w->out, "axis=%d, out=", WINDOW_AXIS(u->arg.i));
        put_expr(w, s[1], 0);
        text_puts(w->out, ", kernel=");
        put_expr(w, s[2], 0);
        text_printf(w->out, ", stride=%lld, dilation=%lld", (long long)WINDOW_STRIDE(u->arg.i),
                    (long long)WINDOW_DILATION(u->arg.i));
        break;
    default: text_printf(w->out, "axis=%d", (int)u->arg.i); break;
    }
    text_putc(w->out, '}');
}

static void put_tail(struct writer *w, const struct uop *u)
{
    const struct origin *o = uop_get_origin(w->t, u);
    const char *axes = uop_get_axes(w->t, u);
    if (axes) {
        text_puts(w->out, " axes(");
        tg_put_quoted(w->out, axes, '"');
        text_putc(w->out, ')');
    }
    if (o && !uop_is_adjoint(w->t, u) && !(w->o && w->o->no_locations)) {
        text_puts(w->out, " loc(");
        tg_put_quoted(w->out, o->node ? o->node : "", '"');
        text_puts(w->out, ", ");
        tg_put_quoted(w->out, o->op_type ? o->op_type : "", '"');
        text_printf(w->out, ", %d)", o->index);
    }
    text_putc(w->out, '\n');
}

static void put_indent(struct writer *w, int depth) { text_printf(w->out, "%*s", 2 * depth, ""); }

/* The GETs of a node that are used, in order of their numbers; "_" for the others. */
static void put_results(struct writer *w, const struct uop *node, int n)
{
    const struct uop **get = mem_array(w->t, (size_t)n + 1, sizeof *get);
    for (int i = 0; i < w->norder; i++)
        if (w->order[i]->op == OP_GET && w->order[i]->src[0] == node)
            get[w->order[i]->arg.i] = w->order[i];
    for (int k = 0; k < n; k++) {
        text_puts(w->out, k ? ", " : "");
        if (get[k])
            text_printf(w->out, "%%%s", value_name(w, get[k]));
        else
            text_putc(w->out, '_');
        const struct host_call *h = node->op == OP_HOST ? node->arg.p : NULL;
        if (h && !h->external) {
            const struct host_output *o = &h->out[k];
            text_puts(w->out, " : ");
            put_type(w, o->dtype, o->dim, o->ndim, true);
        } else if (get[k]) {
            put_checked_type(w, get[k]);
        }
    }
    text_puts(w->out, n ? " = " : "");
}

static void put_host(struct writer *w, const struct uop *u)
{
    const struct host_call *h = u->arg.p;
    put_results(w, u, h->nout);
    text_puts(w->out, "host ");
    tg_put_quoted(w->out, h->function, '"');
    text_putc(w->out, ' ');
    put_operands(w, u->src, u->nsrc);
    text_puts(w->out, " {");
    put_list(w, "params", h->param, h->nparam, 1);
    text_puts(w->out, ", vars=[");
    for (int i = 0; i < h->nresult; i++) {
        const struct var *v = h->result[i];
        text_puts(w->out, i ? ", " : "");
        if (v->min == v->max)
            text_printf(w->out, "%lld", (long long)v->min);
        else
            put_symbol(w, uop_var(w->t, h->result[i]));
    }
    text_puts(w->out, "]}");
    put_tail(w, u);
}

static void put_items(struct writer *w, const struct external_value *v)
{
    text_putc(w->out, '[');
    for (int i = 0; i < v->nitem; i++) {
        text_puts(w->out, i ? ", " : "");
        if (v->floats)
            put_float(w->out, DTYPE_F32, v->floats[i]);
        else
            text_printf(w->out, "%lld", (long long)v->ints[i]);
    }
    text_putc(w->out, ']');
}

/* All attributes, defaults included. */
static void put_attributes(struct writer *w, const struct host_call *h)
{
    const struct external *e = h->external;
    int at = 0;
    bool any = false;
    for (int i = 0; i < e->nargument; at += external_params(h, i), i++) {
        const struct external_argument *a = &e->argument[i];
        if (a->kind == EXTERNAL_OPERAND || a->kind == EXTERNAL_RESULT ||
            a->kind == EXTERNAL_SCRATCH)
            continue;
        text_printf(w->out, "%s%s=", any ? ", " : " {", a->name);
        any = true;
        if (a->kind == EXTERNAL_INT)
            put_expr(w, h->param[at], 0);
        else if (a->kind == EXTERNAL_FLOAT)
            put_float(w->out, DTYPE_F32, h->value[i].f);
        else if (a->kind == EXTERNAL_STRING)
            tg_put_quoted(w->out, h->value[i].s, '"');
        else
            put_items(w, &h->value[i]);
    }
    text_puts(w->out, any ? "}" : "");
}

/* A call of a C function of the user's, by the operator's name. */
static void put_external(struct writer *w, const struct uop *u)
{
    const struct host_call *h = u->arg.p;
    const struct external *e = h->external;
    int nresult = 0, nin = 0;
    for (int i = 0; i < e->nargument; i++)
        nresult += e->argument[i].kind == EXTERNAL_RESULT;
    put_results(w, u, nresult);
    text_puts(w->out, "custom ");
    tg_put_quoted(w->out, e->name, '"');
    text_puts(w->out, " (");
    for (int i = 0, n = 0; i < e->nargument; i++) {
        if (e->argument[i].kind != EXTERNAL_OPERAND)
            continue;
        text_puts(w->out, n++ ? ", " : "");
        if (h->value[i].absent)
            text_putc(w->out, '_');
        else
            put_operand(w, u->src[nin++]);
    }
    text_putc(w->out, ')');
    put_attributes(w, h);
    put_tail(w, u);
}

static void put_if(struct writer *w, const struct uop *u)
{
    int n = (int)u->arg.i;
    put_results(w, u, n);
    text_puts(w->out, "if ");
    put_operands(w, u->src, 1);
    text_puts(w->out, " then ");
    put_operands(w, u->src + 1, n);
    text_puts(w->out, " else ");
    put_operands(w, u->src + 1 + n, n);
    put_tail(w, u);
}

static void put_region(struct writer *w, int loop, int depth);

static void put_loop(struct writer *w, const struct uop *u, int depth)
{
    struct loop *l = (struct loop *)u->arg.p;
    int n = l->ncarried, index = 0;
    struct uop *const *init = u->src + 2, *const *next = u->src + 3 + n,
                      *const *scan = u->src + 3 + 2 * n;
    while (w->loop[index].loop != l)
        index++;
    put_results(w, u, n + l->nscan);
    text_puts(w->out, "loop ");
    put_symbol(w, uop_var(w->t, l->counter));
    text_puts(w->out, " < ");
    put_operand(w, u->src[0]);
    text_puts(w->out, " while ");
    put_operand(w, u->src[1]);
    for (int k = 0; k < n; k++) {
        text_printf(w->out, "%s%%%s = ", k ? ", " : " carry(",
                    value_name(w, uop_param(w->t, &l->param[k])));
        put_operand(w, init[k]);
    }
    text_puts(w->out, n ? ") stack " : " stack ");
    put_expr(w, l->scan_length, 0);
    text_puts(w->out, " {\n");
    put_region(w, index, depth + 1);
    put_indent(w, depth + 1);
    text_puts(w->out, "next ");
    put_operands(w, next, n);
    text_puts(w->out, " while ");
    put_operand(w, u->src[2 + n]);
    text_puts(w->out, " scan ");
    put_operands(w, scan, l->nscan);
    text_putc(w->out, '\n');
    put_indent(w, depth);
    text_putc(w->out, '}');
    put_tail(w, u);
}

static void put_op(struct writer *w, const struct uop *u)
{
    text_printf(w->out, "%%%s", value_name(w, u));
    put_checked_type(w, u);
    text_printf(w->out, " = %s", op_name(u->op));
    if (op_class(u->op) == CLASS_MOVE) {
        put_movement(w, u);
    } else if (u->op == OP_REDUCE) {
        put_operands(w, u->src, 1);
        text_printf(w->out, " {op=%s, ", op_name(REDUCE_OP(u->arg.i)));
        put_axes(w, "axes", REDUCE_AXES(u->arg.i));
        text_putc(w->out, '}');
    } else {
        put_operands(w, u->src, u->nsrc);
        if (u->op == OP_CAST || u->op == OP_BITCAST)
            text_printf(w->out, " {to=%s}", dtype_name(u->dtype));
        else if (u->op == OP_SCATTER)
            text_printf(w->out, " {op=%s}", op_name((enum op)u->arg.i));
    }
    put_tail(w, u);
}

/* ---- regions */

static bool in_free(const struct writer *w, int i, int loop)
{
    return w->free[i][loop / 64] >> (loop % 64) & 1;
}

static void find_free(struct writer *w)
{
    w->nword = (w->nloop + 63) / 64;
    for (int i = 0; i < w->norder; i++) {
        const struct uop *u = w->order[i];
        w->free[i] = mem_array(w->t, (size_t)w->nword + 1, sizeof **w->free);
        for (int k = 0; k < u->nsrc; k++)
            for (int word = 0; word < w->nword; word++)
                w->free[i][word] |= w->free[w->at[u->src[k]->id]][word];
        for (int loop = 0; loop < w->nloop; loop++) {
            const struct loop *l = w->loop[loop].loop;
            uint64_t bit = (uint64_t)1 << (loop % 64);
            if (u->op == OP_LOOP && u->arg.p == l) {
                w->free[i][loop / 64] &= ~bit;
                for (int other = 0; other < w->nloop; other++)
                    w->loop[loop].depth += in_free(w, i, other);
            } else if ((u->op == OP_PARAM && ((const struct loop_param *)u->arg.p)->loop == l) ||
                       (u->op == OP_VAR && u->arg.p == l->counter)) {
                w->free[i][loop / 64] |= bit;
            }
        }
    }
}

/* The innermost loop that contains order[i]; -1: none. */
static int home_of(const struct writer *w, int i)
{
    int home = -1;
    for (int loop = 0; loop < w->nloop; loop++)
        if (in_free(w, i, loop) && (home < 0 || w->loop[loop].depth > w->loop[home].depth))
            home = loop;
    return home;
}

/* Depth: nesting of loops, which the reader limits. */
static void put_region(struct writer *w, int loop, int depth)
{
    if (depth > MAX_NESTING) {
        w->failed = true;
        return;
    }
    for (int i = 0; i < w->norder; i++) {
        struct uop *u = w->order[i];
        if (op_class(u->op) == CLASS_LEAF || u->op == OP_GET || is_expr(u) || w->home[i] != loop ||
            (loop < 0 && w->owner[i] != w->entry))
            continue;
        put_indent(w, depth);
        if (u->op == OP_LOOP)
            put_loop(w, u, depth);
        else if (u->op == OP_IF)
            put_if(w, u);
        else if (u->op == OP_HOST && ((const struct host_call *)u->arg.p)->external)
            put_external(w, u);
        else if (u->op == OP_HOST)
            put_host(w, u);
        else
            put_op(w, u);
    }
}

/* ---- the graph */

static void own(int *owner, int entry)
{
    *owner = *owner == NEEDED_BY_NONE || *owner == entry ? entry : SHARED;
}

/* Which entry needs what; without entries the graph does. */
static void find_owners(struct writer *w)
{
    const struct graph *g = w->g;
    w->owner = mem_array(w->t, (size_t)w->norder + 1, sizeof *w->owner);
    for (int i = 0; i < w->norder; i++)
        w->owner[i] = g->nentry ? NEEDED_BY_NONE : SHARED;
    for (int e = 0; e < g->nentry; e++) {
        const struct graph_entry *x = &g->entry[e];
        for (int i = 0; i < x->noutput; i++)
            own(&w->owner[w->at[g->output[x->output + i].value->id]], e);
        for (int i = 0; i < g->nkept; i++)
            if (g->kept[i].entry == e)
                own(&w->owner[w->at[g->output[g->noutput - g->nkept + i].value->id]], e);
        for (int i = 0; i < x->nhost; i++)
            own(&w->owner[w->at[g->host[x->host + i]->id]], e);
    }
    for (int i = w->norder; i-- > 0;)
        for (int k = 0; k < w->order[i]->nsrc; k++)
            own(&w->owner[w->at[w->order[i]->src[k]->id]], w->owner[i]);
}

static void collect(struct writer *w)
{
    int nroot;
    struct uop **root = graph_roots(w->t, w->g, &nroot);
    w->order = uop_toposort(w->t, root, nroot, &w->norder);
    w->at = mem_array(w->t, w->t->nuop + 1, sizeof *w->at);
    w->home = mem_array(w->t, (size_t)w->norder + 1, sizeof *w->home);
    w->free = mem_array(w->t, (size_t)w->norder + 1, sizeof *w->free);
    for (int i = 0; i < w->norder; i++) {
        w->at[w->order[i]->id] = i;
        if (w->order[i]->op == OP_LOOP)
            VEC_PUSH(w->t, w->loop, w->nloop, w->cap_loop,
                     ((struct region){(struct loop *)w->order[i]->arg.p, w->order[i], 0}));
    }
    find_free(w);
    for (int i = 0; i < w->norder; i++)
        w->home[i] = home_of(w, i);
    find_owners(w);
}

/* The C functions that are called, in the order of their first calls. */
static void put_declarations(struct writer *w)
{
    struct dict written = {0};
    for (int i = 0; i < w->norder; i++) {
        const struct host_call *h = w->order[i]->op == OP_HOST ? w->order[i]->arg.p : NULL;
        if (!h || !h->external)
            continue;
        void **seen = dict_enter(w->t, &written, h->external->name);
        if (!*seen)
            text_printf(w->out, "extern %s\n", h->external->declaration);
        *seen = w;
    }
}

/* What the format cannot express: constants and weights of strings; buffers other than inputs and
 * weights. */
static bool check_writable(const struct writer *w)
{
    for (int i = 0; i < w->norder; i++) {
        const struct uop *u = w->order[i];
        if (u->dtype == DTYPE_STRING &&
            (u->op == OP_CONST ||
             (u->op == OP_BUFFER && ((const struct buffer *)u->arg.p)->kind == BUFFER_WEIGHT)))
            return diag_error(w->t, NULL,
                              "the graph has constant strings, which the .tg format does not hold");
    }
    return true;
}

static void put_kept(struct writer *w, int entry, int depth)
{
    const struct graph *g = w->g;
    for (int i = 0; i < g->nkept; i++) {
        if (g->kept[i].entry != entry)
            continue;
        put_indent(w, depth);
        text_printf(w->out, "keep %%%s = ", (const char *)map_get(&w->name, g->kept[i].in));
        put_operand(w, g->output[g->noutput - g->nkept + i].value);
        text_putc(w->out, '\n');
    }
}

static void put_output(struct writer *w, const struct graph_output *o)
{
    text_puts(w->out, "output ");
    put_operand(w, o->value);
    text_puts(w->out, " as ");
    tg_put_quoted(w->out, o->name, '"');
    for (int i = 0; i < o->nslice; i++)
        text_printf(w->out, "%s%s=%lld", i ? ", " : " {", o->slice[i].name,
                    (long long)o->slice[i].size);
    text_puts(w->out, o->nslice ? "}\n" : "\n");
}

/* Inputs, what the run computes, and outputs, in these ranges. */
static void put_run(struct writer *w, const struct graph_entry *x, int entry, int depth)
{
    w->entry = entry;
    put_region(w, -1, depth);
    put_kept(w, entry, depth);
    for (int i = x->output; i < x->output + x->noutput; i++) {
        put_indent(w, depth);
        put_output(w, &w->g->output[i]);
    }
}

static void put_inputs(struct writer *w, int from, int n, int depth)
{
    for (int i = from; i < from + n; i++) {
        put_indent(w, depth);
        put_leaf(w, "input", w->g->input[i], "in", true);
        text_putc(w->out, '\n');
    }
}

static void put_entries(struct writer *w)
{
    w->entry = SHARED;
    put_region(w, -1, 0);
    for (int e = 0; e < w->g->nentry; e++) {
        const struct graph_entry *x = &w->g->entry[e];
        text_puts(w->out, "entry ");
        tg_put_quoted(w->out, x->name, '"');
        text_puts(w->out, " {\n");
        put_inputs(w, x->input, x->ninput, 1);
        put_run(w, x, e, 1);
        text_puts(w->out, "}\n");
    }
}

static void put_title(struct text *out, const struct graph *g)
{
    text_puts(out, "tg 1\n");
    if (!(g->name && *g->name) && !g->producer)
        return;
    text_puts(out, "graph ");
    tg_put_quoted(out, g->name ? g->name : "", '"');
    if (g->producer) {
        text_puts(out, " producer ");
        tg_put_quoted(out, g->producer, '"');
    }
    text_putc(out, '\n');
}

static void put_meta(struct text *out, const struct graph *g)
{
    for (int i = 0; i < g->nmeta; i++) {
        text_puts(out, "meta ");
        tg_put_quoted(out, g->meta[i].key, '"');
        text_puts(out, " = ");
        tg_put_quoted(out, g->meta[i].value, '"');
        text_putc(out, '\n');
    }
}

bool tg_write(struct tgc *t, const struct graph *g, const struct tg_write_options *options,
              struct text *out, struct text *side)
{
    struct writer w = {.t = t,
                       .g = g,
                       .o = options,
                       .out = out,
                       .side = side,
                       .declared = {.t = t},
                       .name = {.t = t}};
    out->t = t;
    collect(&w);
    if (!check_writable(&w))
        return false;
    put_title(out, g);
    put_meta(out, g);
    put_declarations(&w);
    write_symbols(&w);
    if (!g->nentry)
        put_inputs(&w, 0, graph_count_inputs(g), 0);
    for (int i = 0; i < w.norder; i++)
        if (w.order[i]->op == OP_BUFFER &&
            ((const struct buffer *)w.order[i]->arg.p)->kind == BUFFER_WEIGHT)
            put_weight(&w, w.order[i]);
    for (int i = graph_count_inputs(g); i < g->ninput; i++)
        put_state(&w, g->input[i]);
    if (g->nentry)
        put_entries(&w);
    else
        put_run(&w, &(struct graph_entry){.noutput = graph_count_outputs(g)}, SHARED, 0);
    if (w.failed)
        return diag_error(t, NULL, "loops nested more than %d deep cannot be written", MAX_NESTING);
    if (side && w.nside) {
        side->t = t;
        safetensors_write(side, w.side_weight, w.side_name, w.nside);
    }
    return true;
}
