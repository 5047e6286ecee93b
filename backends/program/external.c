/* external.c - C functions of the user's that the model calls (docs/custom-operators.md): their
 * prototypes in NAME.h, and their calls in NAME_run().
 *
 *      int foo(const float *x, const int64_t x_shape[2], float alpha,      operands, attributes
 *              float *y, const int64_t y_shape[2],                         results
 *              void *scratch, size_t scratch_bytes);                       if it asked for any
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

bool program_check_externals(struct tgc *t, const struct schedule *s, const char *name)
{
    const struct host_call *h;
    struct names *taken = names_of_files(t);
    size_t n = strlen(name);
    for (int step = 0; (h = schedule_next_external(s, &step));) {
        const char *symbol = h->external->symbol;
        bool own = !strncmp(symbol, name, n) && (!symbol[n] || symbol[n] == '_');
        if (own || names_has(taken, symbol))
            return diag_error(t, NULL,
                              "the C function of '%s' cannot be called %s, which is a name of %s; "
                              "say another in its declaration: as \"...\"",
                              h->external->name, symbol,
                              own ? "the model's own code (or give that one another --name)"
                                  : "C, of libc, or of the emitted code");
    }
    return true;
}

/* ----------------------------------------------------------------------------------- prototypes */

static void put_parameter(struct program *p, struct text_list *list, struct names *names,
                          const struct external_argument *a)
{
    const char *n = names_unique(names, a->name, "argument");
    const char *blank = a->dtype == DTYPE_STRING ? "" : " ";
    const char *shape = mem_printf(p->t, a->ndim ? "const int64_t %s_shape[%d]"
                                                 : "const int64_t *%s_shape", n, a->ndim);
    const char *count = mem_printf(p->t, "size_t %s_%s", n,
                                   a->kind == EXTERNAL_SCRATCH ? "bytes" : "count");
    switch (a->kind) {
    case EXTERNAL_OPERAND:
        list_put(list, mem_printf(p->t, "%s%s", const_pointer(a->dtype), n));
        list_put(list, shape);
        break;
    case EXTERNAL_RESULT:
        list_put(list, mem_printf(p->t, "%s%s*%s", dtype_ctype(a->dtype), blank, n));
        list_put(list, shape);
        break;
    case EXTERNAL_INT: list_put(list, mem_printf(p->t, "int64_t %s", n)); break;
    case EXTERNAL_FLOAT: list_put(list, mem_printf(p->t, "float %s", n)); break;
    case EXTERNAL_STRING: list_put(list, mem_printf(p->t, "const char *%s", n)); break;
    case EXTERNAL_INTS:
        list_put(list, mem_printf(p->t, "const int64_t *%s", n));
        list_put(list, count);
        break;
    case EXTERNAL_FLOATS:
        list_put(list, mem_printf(p->t, "const float *%s", n));
        list_put(list, count);
        break;
    case EXTERNAL_SCRATCH:
        list_put(list, mem_printf(p->t, "void *%s", n));
        list_put(list, count);
        break;
    }
    names_add(names, mem_printf(p->t, "%s_shape", n));
    names_add(names, mem_printf(p->t, "%s_count", n));
}

static void write_prototype(struct program *p, struct text *out, const struct external *e)
{
    struct names *names = names_new(p->t, names_reserved(p->t));
    size_t start = out->n;
    text_printf(out, "int %s(", e->symbol);
    struct text_list list = {.out = out, .separator = ",", .line = start,
                             .indent = out->n - start, .tail = strlen(");")};
    names_add(names, "scratch");
    names_add(names, "scratch_bytes");
    for (int i = 0; i < e->nargument; i++) {
        struct external_argument a = e->argument[i];
        if (a.kind == EXTERNAL_SCRATCH)
            names_release(names, "scratch");
        put_parameter(p, &list, names, &a);
    }
    text_puts(out, ");\n");
}

void externals_write_header(struct program *p, struct text *out)
{
    const struct host_call *h;
    bool any = false;
    for (int step = 0; (h = schedule_next_external(p->s, &step)); any = true) {
        if (!any)
            text_printf(out,
                        "/* What you define, and %s_run calls. Tensors are contiguous, the last "
                        "axis fastest, and do not\n * overlap; shapes are those of the run. 0 is "
                        "success; anything else ends the run, which returns it:\n * take 100 and "
                        "more. %s_STACK_BYTES does not count what they take themselves. */\n",
                        p->name, p->upper);
        text_puts(out, "/* ");
        text_comment(out, h->external->name);
        text_puts(out, " */\n");
        write_prototype(p, out, h->external);
    }
    text_puts(out, any ? "\n" : "");
}

/* ---------------------------------------------------------------------------------------- calls */

/* The sizes in order of the params, as an array of the block; NULL: there are none. */
static const char *write_shape(struct program *p, struct text *out, struct names *names,
                               const struct external_argument *a, struct uop *const *size)
{
    if (!a->ndim)
        return "NULL";
    const char *n = names_unique(names, mem_printf(p->t, "%s_shape", a->name), "shape");
    text_printf(out, "    const int64_t %s[%d] = {", n, a->ndim);
    for (int k = 0; k < a->ndim; k++)
        text_printf(out, "%s%s", k ? ", " : "", program_scalar(p, size[k]));
    text_puts(out, "};\n");
    return n;
}

static const char *write_list(struct program *p, struct text *out, struct names *names,
                              const struct external_argument *a, const struct external_value *v)
{
    if (!v->nitem)
        return "NULL, 0";
    const char *n = names_unique(names, a->name, "list");
    text_printf(out, "    static const %s %s[%d] = {", v->ints ? "int64_t" : "float", n, v->nitem);
    for (int k = 0; k < v->nitem; k++) {
        text_puts(out, k ? ", " : "");
        if (v->ints)
            text_puts(out, program_scalar(p, uop_int(p->t, v->ints[k])));
        else
            text_float(out, (float)v->floats[k]);
    }
    text_puts(out, "};\n");
    return mem_printf(p->t, "%s, %d", n, v->nitem);
}

static const char *string_text(struct program *p, const char *s)
{
    struct text x = {.t = p->t};
    text_string(&x, s);
    return x.s;
}

static const char *float_text(struct program *p, double v)
{
    struct text x = {.t = p->t};
    text_float(&x, (float)v);
    return x.s;
}

void external_write_call(struct program *p, struct text *out, const struct step *step)
{
    const struct host_call *h = step->host;
    const struct external *e = h->external;
    struct names *names = names_new(p->t, p->run);
    struct text call = {.t = p->t};
    int buffer = 0, param = 0;
    text_puts(out, "{\n");
    text_printf(&call, "    status = %s(", e->symbol);
    struct text_list list = {.out = &call, .separator = ",", .indent = 8, .tail = strlen(");")};
    for (int i = 0; i < e->nargument; param += external_params(h, i), i++) {
        const struct external_argument *a = &e->argument[i];
        const struct external_value *v = &h->value[i];
        switch (a->kind) {
        case EXTERNAL_OPERAND: case EXTERNAL_RESULT:
            if (v->absent) {
                list_put(&list, "NULL, NULL");
                break;
            }
            list_put(&list, program_buffer(p, step->arg[buffer++]));
            list_put(&list, write_shape(p, out, names, a, h->param + param));
            break;
        case EXTERNAL_INT: list_put(&list, program_scalar(p, h->param[param])); break;
        case EXTERNAL_FLOAT: list_put(&list, float_text(p, v->f)); break;
        case EXTERNAL_STRING: list_put(&list, string_text(p, v->s)); break;
        case EXTERNAL_INTS: case EXTERNAL_FLOATS:
            list_put(&list, write_list(p, out, names, a, v));
            break;
        case EXTERNAL_SCRATCH:
            list_put(&list, program_buffer(p, step->arg[buffer++]));
            list_put(&list, mem_printf(p->t, "(size_t)(%s)", program_scalar(p, h->param[param])));
            break;
        }
    }
    text_printf(out, "%s);\n}\nif (status != %s_OK)\n    return status;\n", call.s, p->upper);
}
