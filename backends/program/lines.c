/* lines.c - which lines of NAME.c belong to which nodes of the model.
 *
 * The file is put together from texts that are written one by one. A range is noted in the text
 * where it was written (lines_mark), and moves along when that text is appended to another one
 * (lines_move). At the end all are in NAME.c, and bytes become lines (lines_finish).
 */
#include "backends/program/program.h"

#include <string.h>

void lines_mark(struct program *p, const struct text *in, size_t from, const char *title)
{
    struct program_lines *l = p->o->lines;
    if (l && in->n > from)
        VEC_PUSH(p->t, l->range, l->n, l->cap,
                 ((struct program_range){in, from, in->n, title ? title : ""}));
}

void lines_move(struct program *p, const struct text *from, const struct text *to)
{
    struct program_lines *l = p->o->lines;
    size_t base = to->n - from->n;
    for (size_t i = 0; l && i < l->n; i++)
        if (l->range[i].in == from) {
            l->range[i].in = to;
            l->range[i].from += base;
            l->range[i].to += base;
        }
}

void lines_write_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                        struct text *out)
{
    size_t from = out->n, task = p->tasks.n;
    p->backend->kernel(p, k, v, out);
    struct program_sources *s = p->o->sources;
    if (s) {
        struct program_source one = {k, v ? v->isa : isa_portable(),
                                     mem_printf(p->t, "%.*s", (int)(out->n - from), out->s + from)};
        VEC_PUSH(p->t, s->v, s->n, s->cap, one);
    }
    lines_mark(p, out, from, k->title);
    lines_mark(p, &p->tasks, task, k->title);
}

/* The line of a byte: the number of line breaks before it, and 1. */
static size_t line_of(const size_t *end, size_t n, size_t byte)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (end[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low + 1;
}

void lines_finish(struct program *p, const struct text *c)
{
    struct program_lines *l = p->o->lines;
    size_t *end = NULL, n = 0, cap = 0;
    if (!l)
        return;
    for (const char *s = c->s; (s = memchr(s, '\n', c->n - (size_t)(s - c->s))); s++)
        VEC_PUSH(p->t, end, n, cap, (size_t)(s - c->s));
    for (size_t i = 0; i < l->n; i++) {
        if (l->range[i].in != c)
            TGC_BUG(p->t, "lines of '%s' are in no text of the file", l->range[i].title);
        l->range[i].from = line_of(end, n, l->range[i].from);
        l->range[i].to = line_of(end, n, l->range[i].to - 1);
    }
}

const char *program_line_title(const struct program_lines *l, size_t line)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->range[i].from <= line && line <= l->range[i].to)
            return l->range[i].title;
    return NULL;
}
