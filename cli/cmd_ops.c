/* cmd_ops.c - tgc ops: lists the frontend's table of operators or, with --tg, the functions of the
 * text format and those of runtime/host/ that its `host` can call. */
#include "cli/cli.h"
#include "backends/program/program.h"
#include "frontend/onnx/lower.h"

#include <string.h>

/* Kinds such as 'B' as words. */
static const char *kinds_text(struct tgc *t, const char *kinds)
{
    static const struct { char kind; const char *name; } names[] = {
        {'B', "bool"}, {'I', "int"}, {'U', "uint"}, {'F', "float"}, {'T', "string"},
        {'t', "string"},
    };
    struct text x = {.t = t};
    text_puts(&x, "");
    for (const char *k = kinds; *k; k++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i].kind == *k)
                text_printf(&x, "%s%s", x.n ? " " : "", names[i].name);
    return x.s;
}

static const char *domain_of(const struct operator* op)
{
    return *op->domain ? op->domain : "ai.onnx";
}

static int last_opset(const struct operator *op)
{
    return op->until ? op->until : onnx_newest_opset(op->domain);
}

static const char *opsets_of(struct tgc *t, const struct operator *op)
{
    int last = last_opset(op);
    return last == op->since ? mem_printf(t, "%d", op->since)
                             : mem_printf(t, "%d-%d", op->since, last);
}

static void put_json_text(struct text *x, const char *key, const char *value)
{
    text_printf(x, "%s\"%s\":", x->s[x->n - 1] == '{' ? "" : ",", key);
    text_json(x, value);
}

static void put_json(struct text *x, const struct operator *op)
{
    text_putc(x, '{');
    put_json_text(x, "name", op->name);
    put_json_text(x, "domain", domain_of(op));
    text_printf(x, ",\"since\":%d,\"until\":%d", op->since, last_opset(op));
    put_json_text(x, "dtypes", kinds_text(x->t, op->kinds));
    put_json_text(x, "gradient", operator_gradient(op));
    put_json_text(x, "limits", op->limits);
    text_putc(x, '}');
}

/* One operator for a person: a line for each fact. */
static void put_record(struct text *x, const struct operator *op)
{
    text_printf(x, "%s\n    domain  %s\n    opsets  %s\n    dtypes  %s\n", op->name, domain_of(op),
                opsets_of(x->t, op), kinds_text(x->t, op->kinds));
    if (*operator_gradient(op))
        text_printf(x, "    gradient  %s\n", operator_gradient(op));
    if (*op->limits)
        text_printf(x, "    limits  %s\n", op->limits);
}

/* Rows of cells in columns; the last cell of a row has no trailing blanks. */
enum { COLUMNS = 6 };
struct columns { const char *(*cell)[COLUMNS]; size_t n, cap; };

static void put_columns(struct text *x, const struct columns *c)
{
    size_t width[COLUMNS] = {0};
    for (size_t i = 0; i < c->n; i++)
        for (int k = 0; k < COLUMNS; k++)
            if (strlen(c->cell[i][k]) > width[k])
                width[k] = strlen(c->cell[i][k]);
    for (size_t i = 0; i < c->n; i++) {
        int last = COLUMNS - 1;
        while (last > 0 && !*c->cell[i][last])
            last--;
        for (int k = 0; k < last; k++)
            text_printf(x, "%-*s  ", (int)width[k], c->cell[i][k]);
        text_printf(x, "%s\n", c->cell[i][last]);
    }
}

static void put_operators(struct text *x, bool json)
{
    struct columns all = {.n = (size_t)operator_count()};
    all.cell = mem_array(x->t, all.n + 1, sizeof *all.cell);
    text_puts(x, json ? "[" : "");
    for (int i = 0; i < operator_count(); i++) {
        const struct operator *op = operator_at(i);
        all.cell[i][0] = op->name;
        all.cell[i][1] = domain_of(op);
        all.cell[i][2] = mem_printf(x->t, "opset %s", opsets_of(x->t, op));
        all.cell[i][3] = kinds_text(x->t, op->kinds);
        const char *gradient = operator_gradient(op);
        all.cell[i][4] = *gradient ? mem_printf(x->t, "gradient: %s", gradient) : "";
        all.cell[i][5] = op->limits;
        text_puts(x, json && i ? ",\n" : "");
        if (json)
            put_json(x, op);
    }
    if (json)
        text_puts(x, "]\n");
    else
        put_columns(x, &all);
}

/* All operators of one name, in any domain and opset. */
static bool put_operator(struct text *x, const struct options *o)
{
    struct nearest near = nearest_to(o->model);
    int n = 0;
    text_puts(x, o->json ? "[" : "");
    for (int i = 0; i < operator_count(); i++) {
        const struct operator *op = operator_at(i);
        nearest_offer(&near, op->name);
        if (strcmp(op->name, o->model) != 0)
            continue;
        text_puts(x, o->json && n++ ? ",\n" : "");
        if (o->json)
            put_json(x, op);
        else
            put_record(x, op);
        n += !o->json;
    }
    text_puts(x, o->json ? "]\n" : "");
    return n || diag_error(x->t, NULL, "there is no operator '%.100s'%s%s%s", o->model,
                           near.best ? "; did you mean '" : "; tgc ops lists them",
                           near.best ? near.best : "", near.best ? "'?" : "");
}

/* -------------------------------------------------------------------------- the text format's */

/* "conv2d(x, w, bias?) {stride=1}" */
static const char *signature_text(struct tgc *t, const char *name, const char *operands,
                                  const char *attributes)
{
    return *attributes ? mem_printf(t, "%s(%s) {%s}", name, operands, attributes)
                       : mem_printf(t, "%s(%s)", name, operands);
}

static void put_function(struct text *x, bool json, const char *name, const char *operands,
                         const char *attributes)
{
    if (!json) {
        text_printf(x, "%s\n", signature_text(x->t, name, operands, attributes));
        return;
    }
    text_puts(x, x->s[x->n - 1] == '[' ? "{" : ",\n{");
    put_json_text(x, "name", name);
    put_json_text(x, "operands", operands);
    put_json_text(x, "attributes", attributes);
    text_putc(x, '}');
}

static void put_host(struct text *x, bool json, const struct host_function *f)
{
    if (!json) {
        text_printf(x, "host \"%s\" (inputs %d, results %d, params %d, vars %d): %s\n", f->name,
                    f->nin, f->nout, f->nparam, f->nresult, f->signature);
        return;
    }
    text_puts(x, x->s[x->n - 1] == '[' ? "{" : ",\n{");
    put_json_text(x, "name", f->name);
    text_printf(x, ",\"inputs\":%d,\"results\":%d,\"params\":%d,\"vars\":%d", f->nin, f->nout,
                f->nparam, f->nresult);
    put_json_text(x, "signature", f->signature);
    text_putc(x, '}');
}

static bool put_functions(struct text *x, const struct options *o)
{
    const char *name, *operands, *attributes;
    const struct host_function *f;
    struct nearest near = nearest_to(o->model ? o->model : "");
    int n = 0;
    text_puts(x, o->json ? "{\"functions\":[" : "");
    for (int i = 0; (name = tg_function_at(i, &operands, &attributes)); i++) {
        nearest_offer(&near, name);
        if (o->model && strcmp(o->model, name) != 0)
            continue;
        put_function(x, o->json, name, operands, attributes);
        n++;
    }
    text_puts(x, o->json ? "],\n\"host\":[" : o->model ? "" : "\n");
    for (int i = 0; (f = host_function_at(i)); i++) {
        nearest_offer(&near, f->name);
        if (o->model && strcmp(o->model, f->name) != 0)
            continue;
        put_host(x, o->json, f);
        n++;
    }
    text_puts(x, o->json ? "]}\n" : "");
    return n || diag_error(x->t, NULL, "there is no function '%.100s'%s%s%s", o->model,
                           near.best ? "; did you mean '" : "; tgc ops --tg lists them",
                           near.best ? near.best : "", near.best ? "'?" : "");
}

enum exit_status cmd_ops(struct tgc *t, const struct options *o)
{
    struct text x = {.t = t};
    bool ok = true;
    if (o->tg)
        ok = put_functions(&x, o);
    else if (o->model)
        ok = put_operator(&x, o);
    else
        put_operators(&x, o->json);
    if (!ok)
        return EXIT_FAILED;
    fputs(x.s, stdout);
    return EXIT_DONE;
}
