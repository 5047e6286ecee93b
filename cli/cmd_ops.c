/* cmd_ops.c - tgc ops: the table of operators, as the frontend has it. */
#include "cli/cli.h"
#include "backends/program.h"
#include "frontend/onnx/lower.h"

/* 'B' and its like as words. */
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

static void put_json(struct text *x, const struct operator *op)
{
    text_puts(x, "{\"name\":");
    text_json(x, op->name);
    text_puts(x, ",\"domain\":");
    text_json(x, *op->domain ? op->domain : "ai.onnx");
    text_printf(x, ",\"since\":%d,\"until\":", op->since);
    if (op->until)
        text_printf(x, "%d", op->until);
    else
        text_puts(x, "null");
    text_puts(x, ",\"dtypes\":");
    text_json(x, kinds_text(x->t, op->kinds));
    text_puts(x, ",\"limits\":");
    text_json(x, op->limits);
    text_putc(x, '}');
}

enum exit_status cmd_ops(struct tgc *t, const struct options *o)
{
    struct text x = {.t = t};
    text_puts(&x, o->json ? "[" : "");
    for (int i = 0; i < operator_count(); i++) {
        const struct operator *op = operator_at(i);
        if (o->json) {
            text_puts(&x, i ? ",\n" : "");
            put_json(&x, op);
            continue;
        }
        const char *opsets = op->until ? mem_printf(t, "%d-%d", op->since, op->until)
                                       : mem_printf(t, "%d-", op->since);
        text_printf(&x, "%-32s %-12s opset %-7s %-24s %s\n", op->name,
                    *op->domain ? op->domain : "ai.onnx", opsets, kinds_text(t, op->kinds),
                    op->limits);
    }
    text_puts(&x, o->json ? "]\n" : "");
    fputs(x.s, stdout);
    return EXIT_DONE;
}
