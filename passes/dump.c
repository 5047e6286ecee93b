/* dump.c - DEBUG=4: the lines of graphs and kernels that each pass changed. */
#include "passes/dump.h"

#include "passes/plan/plan.h"
#include "passes/target/target.h"

#include <stdlib.h>
#include <string.h>

/* What was last printed of the graph (key ""), of the plan or of a kernel, to print differences
 * alone. A uop keeps its number, so an unchanged one keeps its line. */
struct dumped { const char *key, *text; };
struct dump { struct dumped *v; size_t n, cap; };

struct dump *dump_new(struct tgc *t) { return MEM_NEW(t, struct dump); }

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The lines of a text, optionally sorted; breaks: the text, which is cut up. */
static const char **cut_lines(struct tgc *t, const char *text, bool sorted, size_t *n)
{
    const char **line = NULL;
    size_t cap = 0;
    *n = 0;
    for (char *s = mem_str(t, text), *end; *s; s = end + 1) {
        end = s + strcspn(s, "\n");
        VEC_PUSH(t, line, *n, cap, s);
        if (!*end)
            break;
        *end = 0;
    }
    if (sorted && *n)
        qsort(line, *n, sizeof *line, compare_lines);
    return line;
}

/* Prints the lines of `of` that `among` does not have. */
static int print_lacking(struct tgc *t, const char *of, const char *among, const char *sign)
{
    size_t n, nknown;
    const char **line = cut_lines(t, of, false, &n), **known = cut_lines(t, among, true, &nknown);
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        if (nknown && bsearch(&line[i], known, nknown, sizeof *known, compare_lines))
            continue;
        fprintf(stderr, "%s%s\n", sign, line[i]);
        count++;
    }
    return count;
}

static void dump_text(struct tgc *t, struct dump *d, const char *key, const char *title,
                      const char *text)
{
    size_t i = 0;
    while (i < d->n && strcmp(d->v[i].key, key) != 0)
        i++;
    if (i == d->n) {
        VEC_PUSH(t, d->v, d->n, d->cap, ((struct dumped){key, text}));
        fprintf(stderr, "*** %s\n%s", title, text);
        return;
    }
    if (strcmp(d->v[i].text, text) == 0)
        return;
    fprintf(stderr, "*** %s: what changed\n", title);
    int nline = print_lacking(t, d->v[i].text, text, "- ");
    nline += print_lacking(t, text, d->v[i].text, "+ ");
    if (nline == 0)
        fputs("(the order)\n", stderr);
    d->v[i].text = text;
}

void dump_graph(struct tgc *t, struct dump *d, const struct graph *g, const char *after)
{
    struct text x = {.t = t};
    graph_print(&x, t, g);
    dump_text(t, d, "", mem_printf(t, "graph after %s", after), x.s ? x.s : "");
}

void dump_plan(struct tgc *t, struct dump *d, struct plan *p, const char *after)
{
    struct text x = {.t = t};
    plan_print(&x, p);
    dump_text(t, d, "plan", mem_printf(t, "plan after %s", after), x.s);
}

/* A kernel's AST, or its linear program, for one instruction set. */
static void dump_form(struct tgc *t, struct dump *d, const struct kernel *k, enum isa isa,
                      const struct uop *ast, struct uop *const *linear, int n, const char *after)
{
    struct text x = {.t = t};
    const char *name = mem_printf(t, "%s (%s)", k->name, isa_table[isa].text);
    if (linear)
        linear_print(&x, t, linear, n);
    else
        kernel_print(&x, t, ast);
    dump_text(t, d, linear ? name : mem_printf(t, "%s, AST", name),
              mem_printf(t, "%s after %s: %s", name, after, k->title), x.s ? x.s : "");
}

void dump_kernel(struct tgc *t, struct dump *d, const struct kernel *k, const char *after)
{
    dump_form(t, d, k, isa_portable(), k->ast, k->linear, k->nlinear, after);
    for (int j = 0; j < k->nvariant; j++)
        dump_form(t, d, k, k->variant[j].isa, k->variant[j].ast, k->variant[j].linear,
                  k->variant[j].nlinear, after);
}
