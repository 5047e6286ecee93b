/* dump.c - the lines of graphs and kernels that each pass changed: printed (DEBUG=4), or kept for
 * the report. */
#include "passes/dump.h"

#include "passes/analysis/kernel_cost.h"
#include "passes/plan/plan.h"
#include "passes/target/target.h"

#include <stdlib.h>
#include <string.h>

/* What was last printed of the graph, of the plan or of a kernel, by subject, to print differences
 * alone. A uop keeps its number, so an unchanged one keeps its line. */
struct dump { struct pass_log *log; struct dict last; struct text now; };

struct dump *dump_new(struct tgc *t, struct pass_log *log)
{
    struct dump *d = MEM_NEW(t, struct dump);
    *d = (struct dump){.log = log, .now = {.t = t}};
    return d;
}

struct pass_log *pass_log_new(struct tgc *t, size_t most)
{
    struct pass_log *log = MEM_NEW(t, struct pass_log);
    log->most = most;
    log->fired = mem_array(t, ((size_t)pass_count() + 1) * (size_t)rule_count(),
                           sizeof *log->fired);
    pass_log_enter(t, log, pass_count());
    return log;
}

void pass_log_enter(struct tgc *t, struct pass_log *log, int pass)
{
    t->fired = log ? log->fired + (size_t)pass * (size_t)rule_count() : NULL;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A text's lines, in their order and sorted; on the scratch stack. */
struct lines { const char **at, **sorted; size_t n; };

static struct lines cut_lines(struct tgc *t, const char *text)
{
    struct lines l = {0};
    size_t nbytes = strlen(text) + 1, most = 1;
    for (const char *s = text; *s; s++)
        most += *s == '\n';
    l.at = scratch_array(t, most, sizeof *l.at);
    l.sorted = scratch_array(t, most, sizeof *l.sorted);
    for (char *s = memcpy(scratch_array(t, nbytes, 1), text, nbytes), *end; *s; s = end + 1) {
        end = s + strcspn(s, "\n");
        l.sorted[l.n] = l.at[l.n] = s;
        l.n++;
        if (!*end)
            break;
        *end = 0;
    }
    if (l.n)
        qsort(l.sorted, l.n, sizeof *l.sorted, compare_lines);
    return l;
}

static bool has_line(const struct lines *l, const char *line)
{
    return l->n && bsearch(&line, l->sorted, l->n, sizeof *l->sorted, compare_lines);
}

/* The lines that went, after `minus`, and those that came, after `plus`, where they stand; a line
 * that moved both went and came. equal: before the length of a run of equal lines; NULL: they are
 * left out. */
static void put_difference(struct text *x, const char *before, const char *after,
                           const char *minus, const char *plus, const char *equal)
{
    struct mem_mark mark = scratch_mark(x->t);
    struct lines a = cut_lines(x->t, before), b = cut_lines(x->t, after);
    size_t i = 0, j = 0, same = 0;
    while (i < a.n || j < b.n) {
        bool went = i < a.n && !has_line(&b, a.at[i]), came = j < b.n && !has_line(&a, b.at[j]);
        if (!went && !came && i < a.n && j < b.n && strcmp(a.at[i], b.at[j]) == 0) {
            i++, j++, same++;
            continue;
        }
        if (same && equal)
            text_printf(x, "%s%zu\n", equal, same);
        same = 0;
        if (i < a.n && (went || !came))
            text_printf(x, "%s%s\n", minus, a.at[i++]);
        if (j < b.n && (came || !went))
            text_printf(x, "%s%s\n", plus, b.at[j++]);
    }
    scratch_release(x->t, mark);
}

static void add_to_log(struct pass_log *log, struct tgc *t, const char *subject, const char *after,
                       const char *lines, bool whole)
{
    const struct pass *pass = pass_find(after);
    size_t nbytes = strlen(lines);
    struct pass_change one = {pass_count(), subject, lines, whole};
    for (int i = 0; pass && i < pass_count(); i++)
        if (pass_at(i) == pass)
            one.pass = i;
    if (log->nbytes + nbytes > log->most) {
        log->left_out++;
        return;
    }
    log->nbytes += nbytes;
    VEC_PUSH(t, log->change, log->n, log->cap, one);
}

static bool is_full(const struct dump *d) { return d->log && d->log->left_out > 0; }

/* What is in d->now: of the subject, after a pass. heading: NULL, or what stands before it. */
static void dump_text(struct tgc *t, struct dump *d, const char *subject, const char *heading,
                      const char *after)
{
    void **last = dict_enter(t, &d->last, subject);
    const char *before = *last, *text = d->now.n ? d->now.s : "";
    struct text lines = {.t = t};
    if (before && strcmp(before, text) == 0)
        return;
    text = *last = mem_str(t, text);
    if (before && d->log)
        put_difference(&lines, before, text, "-", "+", "=");
    else if (before)
        put_difference(&lines, before, text, "- ", "+ ", NULL);
    if (d->log) {
        add_to_log(d->log, t, subject, after, before ? lines.s : text, !before);
        return;
    }
    fprintf(stderr, "*** %s after %s%s\n%s", subject, after, heading ? heading : "",
            before ? mem_printf(t, ": what changed\n%s", lines.s)
                   : mem_printf(t, "\n%s", text));
}

void dump_graph(struct tgc *t, struct dump *d, const struct graph *g, const char *after)
{
    if (is_full(d))
        return;
    d->now.n = 0;
    graph_print(&d->now, t, g);
    dump_text(t, d, "graph", NULL, after);
}

void dump_plan(struct tgc *t, struct dump *d, struct plan *p, const char *after)
{
    if (is_full(d))
        return;
    d->now.n = 0;
    plan_print(&d->now, p);
    dump_text(t, d, "plan", NULL, after);
}

/* A kernel's AST, or its linear program, for one instruction set. */
static void dump_form(struct tgc *t, struct dump *d, const struct kernel *k, enum isa isa,
                      const struct uop *ast, struct uop *const *linear, int n, const char *after)
{
    d->now.n = 0;
    if (linear)
        linear_print(&d->now, t, linear, n);
    else
        kernel_print(&d->now, t, ast);
    dump_text(t, d,
              mem_printf(t, "%s (%s%s)", k->name, isa_table[isa].text, linear ? "" : ", AST"),
              mem_printf(t, ": %s", k->title), after);
}

void dump_kernel(struct tgc *t, struct dump *d, const struct kernel *k, const char *after)
{
    if (is_full(d))
        return;
    dump_form(t, d, k, isa_portable(), k->ast, k->linear, k->nlinear, after);
    for (int j = 0; j < k->nvariant; j++)
        if (!d->log || &k->variant[j] == kernel_cost_variant(machine_of(t), k))
            dump_form(t, d, k, k->variant[j].isa, k->variant[j].ast, k->variant[j].linear,
                      k->variant[j].nlinear, after);
}
