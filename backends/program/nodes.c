/* nodes.c - the model's nodes in comments: those that a kernel computes, above it, and once those
 * that none computes.
 */
#include "backends/program/program.h"

#include <string.h>

static size_t column(const struct text *out)
{
    size_t n = out->n;
    while (n > 0 && out->s[n - 1] != '\n')
        n--;
    return out->n - n;
}

/* An item of a list in a comment, on a new line if this one is full. */
static void put_item(struct text *out, const char *item, bool first)
{
    struct text escaped = {.t = out->t};
    text_comment(&escaped, item);
    if (!first && column(out) + escaped.n + 2 > LINE_WIDTH - 4)
        text_puts(out, ",\n *     ");
    else if (!first)
        text_puts(out, ", ");
    text_puts(out, escaped.s ? escaped.s : "");
}

void nodes_write(const char *nodes, struct text *out)
{
    for (const char *s = nodes; *s;) {
        int n = (int)strcspn(s, "\n");
        put_item(out, mem_printf(out->t, "%.*s", n, s), s == nodes);
        s += n + (s[n] == '\n');
    }
}

static void mark(const struct origin *const *list, bool *is_named, int n, const struct origin *o)
{
    int low = 0, high = n;
    while (o && low < high) {
        int middle = (low + high) / 2;
        if (origin_compare(list[middle], o) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (o && low < n && origin_compare(list[low], o) == 0)
        is_named[low] = true;
}

/* The nodes of one operator, after which they are marked. */
static void write_operator(const struct origin *const *list, bool *is_named, int n, int from,
                           struct text *out)
{
    int nunnamed = 0;
    bool first = true;
    text_puts(out, "\n *   ");
    text_comment(out, list[from]->op_type);
    text_putc(out, ' ');
    for (int i = from; i < n; i++) {
        if (is_named[i] || strcmp(list[i]->op_type, list[from]->op_type) != 0)
            continue;
        is_named[i] = true;
        nunnamed += !*list[i]->node;
        if (!*list[i]->node)
            continue;
        put_item(out, mem_printf(out->t, "\"%s\"", list[i]->node), first);
        first = false;
    }
    if (nunnamed)
        put_item(out, mem_printf(out->t, "%d without a name", nunnamed), first);
}

void nodes_write_others(const struct program *p, struct text *out)
{
    int n;
    const struct origin *const *list = origin_list(p->t, &n);
    bool *is_named = mem_array(p->t, (size_t)n + 1, sizeof *is_named), any = false;
    for (int i = 0; i < p->s->nkernel; i++)
        for (int j = 0; j < p->s->kernel[i]->nnode; j++)
            mark(list, is_named, n, p->s->kernel[i]->node[j]);
    for (int i = 0; i < p->s->nstep; i++)
        mark(list, is_named, n, p->s->step[i].node);
    for (int i = 0; i < n; i++) {
        if (is_named[i])
            continue;
        if (!any)
            text_puts(out, "/* These nodes of the model have no code of their own. They are "
                           "constants, say where values\n * lie, are merged with other nodes, or no "
                           "output needs them:");
        any = true;
        write_operator(list, is_named, n, i, out);
    }
    if (any)
        text_puts(out, " */\n\n");
}
