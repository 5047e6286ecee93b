/* dump.c - the lines of graphs and kernels that each pass changed: printed (DEBUG=4), or kept for
 * the report. */
#include "passes/dump.h"

#include "passes/analysis/kernel_cost.h"
#include "passes/plan/plan.h"
#include "passes/target/target.h"

#include <stdlib.h>
#include <string.h>

/* What was last printed of the graph, of the plan or of a kernel, by subject, to print differences
 * alone. graph: of the graph, with the numbers that uops have. */
struct dump { struct pass_log *log; struct dict last; struct text now, kept; const char *graph; };

struct dump *dump_new(struct tgc *t, struct pass_log *log)
{
    struct dump *d = MEM_NEW(t, struct dump);
    *d = (struct dump){.log = log, .now = {.t = t}, .kept = {.t = t}};
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

/* The graph comes first, and may take half as much again: pictures are made of its text. */
static void add_to_log(struct pass_log *log, struct tgc *t, const char *subject, const char *after,
                       const char *lines, bool whole)
{
    const struct pass *pass = pass_find(after);
    size_t nbytes = strlen(lines);
    size_t most = strcmp(subject, "graph") == 0 ? log->most + log->most / 2 : log->most;
    struct pass_change one = {pass_count(), subject, lines, whole};
    for (int i = 0; pass && i < pass_count(); i++)
        if (pass_at(i) == pass)
            one.pass = i;
    if (log->nbytes + nbytes > most) {
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

/* ------------------------------------------------------------------------------ numbers that stay
 *
 * Each uop that depends on one that changed is a new one, with a new number, though it computes the
 * same. What computes the same as a line before, of the same operands, keeps its number here; so
 * does what alone is of its op, type and node, of other operands. Differences then are what a pass
 * has changed. */

/* Of "%12 : f32[3] = ..." what follows the number; NULL: the line defines no value. */
static const char *after_number(const char *line, size_t *number)
{
    char *end;
    if (line[0] != '%' || line[1] < '0' || line[1] > '9')
        return NULL;
    *number = strtoul(line + 1, &end, 10);
    return end;
}

/* Whether a % at s begins a value's name: it is no remainder, "N%2". */
static bool begins_name(const char *s, const char *line)
{
    char c = s > line ? s[-1] : ' ';
    bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                   c == '_' || c == ')' || c == ']';
    return s[1] >= '0' && s[1] <= '9' && !is_word;
}

/* The text with other numbers of values; name: by number, 0: its own, else less 1; NULL: without
 * numbers. */
static void put_renamed(struct text *out, const char *line, const size_t *name, size_t nname)
{
    bool quoted = false;
    for (const char *s = line; *s; s++) {
        size_t number;
        const char *end = !quoted && begins_name(s, line) ? after_number(s, &number) : NULL;
        if (end) {
            s = end - 1;
            if (name && number < nname && name[number])
                number = name[number] - 1;
            if (name)
                text_printf(out, "%%%zu", number);
            continue;
        }
        if (quoted && *s == '\\' && s[1])
            text_putc(out, *s++);
        else if (*s == '"')
            quoted = !quoted;
        text_putc(out, *s);
    }
}

static const char *without_numbers(struct tgc *t, const char *rest)
{
    struct text x = {.t = t};
    put_renamed(&x, rest, NULL, 0);
    return x.s;
}

/* Of the lines of nodes, by what they are without numbers, the number + 1; SIZE_MAX: of several. */
static struct dict find_alone(struct tgc *t, const struct lines *l)
{
    struct dict found = {0};
    for (size_t i = 0, number; i < l->n; i++) {
        const char *rest = after_number(l->at[i], &number);
        if (!rest || !strstr(rest, "   loc(\""))
            continue;
        void **is = dict_enter(t, &found, without_numbers(t, rest));
        *is = (void *)(*is ? (uintptr_t)SIZE_MAX : (uintptr_t)(number + 1));
    }
    return found;
}

/* Of two graphs' lines that are alone of their kind in both, the number of the older; 0: none. */
static size_t number_alone(struct tgc *t, const struct dict *old, const struct dict *now,
                           const char *rest)
{
    const char *key = without_numbers(t, rest);
    uintptr_t before = (uintptr_t)dict_get(old, key), after = (uintptr_t)dict_get(now, key);
    return before && before != SIZE_MAX && after && after != SIZE_MAX ? before : 0;
}

/* From d->now to d->kept. before: the lines of the last one. */
static void keep_numbers(struct tgc *t, struct dump *d, const char *before)
{
    struct mem_mark mark = scratch_mark(t);
    struct lines old = cut_lines(t, before), now = cut_lines(t, d->now.s);
    struct dict of = {0};               /* what follows a number -> the number + 1 */
    const struct dict was = find_alone(t, &old), is_now = find_alone(t, &now);
    struct text line = {.t = t};
    size_t most = t->nuop, number;
    const char *rest;
    for (size_t i = 0; i < old.n; i++)
        if ((rest = after_number(old.at[i], &number)) != NULL) {
            *dict_enter(t, &of, rest) = (void *)(uintptr_t)(number + 1);
            most = number > most ? number : most;
        }
    size_t nname = most + now.n + 2, fresh = most + 1;
    size_t *name = scratch_array(t, nname, sizeof *name);
    bool *taken = scratch_array(t, nname, sizeof *taken);
    for (size_t i = 0; i < now.n; i++) {
        line.n = 0;
        rest = after_number(now.at[i], &number);
        put_renamed(&line, rest ? rest : now.at[i], name, nname);
        if (rest) {
            size_t same = (uintptr_t)dict_get(&of, line.s);
            same = same ? same : number_alone(t, &was, &is_now, rest);
            size_t is = same ? same - 1 : number;
            is = taken[is] ? number : is;
            is = taken[is] ? fresh++ : is;
            taken[is] = true;
            name[number] = is + 1;
            text_printf(&d->kept, "%%%zu", is);
        }
        text_printf(&d->kept, "%s\n", line.s);
    }
    scratch_release(t, mark);
}

void dump_graph(struct tgc *t, struct dump *d, const struct graph *g, const char *after)
{
    const char *before = dict_get(&d->last, "graph");
    if (is_full(d))
        return;
    d->now.n = 0;
    graph_print(&d->now, t, g);
    if (before && strcmp(d->graph, d->now.s) == 0)
        return;
    d->graph = mem_str(t, d->now.s);
    if (before) {
        d->kept.n = 0;
        keep_numbers(t, d, before);
        d->now.n = 0;
        text_write(&d->now, d->kept.s, d->kept.n);
    }
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
