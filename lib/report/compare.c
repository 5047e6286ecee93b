/* compare.c - the page that compares two documents: what became slower or larger, sorted.
 *
 * Kernels are matched by what they compute (title), those of one title in their order, and weights
 * by name. Times are compared as measured only where both reports have been measured; else as
 * estimated, in both.
 */
#include "lib/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One thing in both documents; of[i] < 0: document i has it not. */
struct match { const char *name; double of[2]; int index; };
struct matches {
    struct tgc *t;
    struct match *v; size_t n, cap;
    struct dict at;             /* key -> index + 1 */
    double least;               /* a change that counts, as a fraction of the older value */
};

static void add(struct matches *m, const char *key, const char *name, int side, double value)
{
    void **slot = dict_enter(m->t, &m->at, key);
    if (!*slot) {
        struct match one = {name, {-1, -1}, (int)m->n};
        VEC_PUSH(m->t, m->v, m->n, m->cap, one);
        *slot = (void *)(uintptr_t)m->n;
    }
    m->v[(size_t)(uintptr_t)*slot - 1].of[side] = value;
}

static double delta(const struct match *m)
{
    return (m->of[1] > 0 ? m->of[1] : 0) - (m->of[0] > 0 ? m->of[0] : 0);
}

static int compare_matches(const void *a, const void *b)
{
    const struct match *x = a, *y = b;
    double p = delta(x), q = delta(y);
    return p != q ? (p < q) - (p > q) : x->index - y->index;
}

typedef const char *write_value(struct tgc *t, double v);

static void put_change(struct text *out, double old, double new)
{
    double by = new - old;
    if (old < 0 || new < 0)
        cell_number(out, by, old < 0 ? "new" : "gone");
    else if (by == 0)
        cell_number(out, 0, "equal");
    else
        cell_number(out, by, old > 0 ? mem_printf(out->t, "%+.1f %%", 100 * by / old) : "");
}

static void put_match(struct text *out, const struct match *m, write_value *value)
{
    double by = delta(m);
    const char *sign = by > 0 ? "+" : by < 0 ? "\342\210\222" : "";
    text_printf(out, "<tr class=\"%s\"><th scope=\"row\">", by > 0 ? "worse" : by < 0 ? "better" : "");
    html_put(out, m->name);
    text_puts(out, "</th>");
    for (int i = 0; i < 2; i++)
        cell_number(out, m->of[i], m->of[i] < 0 ? "" : value(out->t, m->of[i]));
    cell_number(out, by, mem_printf(out->t, "%s%s", sign, value(out->t, fabs(by))));
    put_change(out, m->of[0], m->of[1]);
    text_puts(out, "</tr>\n");
}

static void put_matches(struct text *out, const char *id, const char *caption, struct matches *m,
                        write_value *value)
{
    size_t equal = 0;
    if (m->n)
        qsort(m->v, m->n, sizeof *m->v, compare_matches);
    table_begin(out, id, caption, "What|#Before|#After|#Difference|#Change");
    for (size_t i = 0; i < m->n; i++) {
        const struct match *v = &m->v[i];
        bool same = v->of[0] >= 0 && v->of[1] >= 0 && fabs(delta(v)) <= m->least * v->of[0];
        equal += same;
        if (!same)
            put_match(out, v, value);
    }
    table_end(out);
    if (equal)
        text_printf(out, "<p class=\"note\">%zu more are equal%s.</p>\n", equal,
                    m->least > 0 ? ", or differ by less than 2 %" : "");
}

/* ------------------------------------------------------------------------------------- contents */

static const char *write_count(struct tgc *t, double v) { return mem_printf(t, "%.0f", v); }

static double run_time(const struct page *p, bool measured)
{
    double sum = 0;
    for (int i = 0; i < p->nkernel && !measured; i++)
        sum += json_number(p->kernel[i], "predicted_us");
    return measured ? 1e6 * json_number(json_get(p->d, "bench"), "min_seconds") : sum;
}

static void put_totals(struct text *out, const struct page p[2], bool measured)
{
    static const struct { const char *key, *name; write_value *value; } of[] = {
        {"arena_bytes", "Arena", view_bytes},
        {"tensor_bytes", "Tensors between kernels", view_bytes},
        {"live_bytes", "Alive at once, at most", view_bytes},
        {"weight_bytes", "Weights", view_bytes},
        {"stack_bytes", "Stack", view_bytes},
        {"flop", "Work", view_flop},
        {"kernels", "Kernels", write_count},
    };
    struct match time = {measured ? "Time of a run, measured" : "Time of a run, estimated",
                         {run_time(&p[0], measured), run_time(&p[1], measured)}, 0};
    table_begin(out, "totals", "In all", "What|#Before|#After|#Difference|#Change");
    put_match(out, &time, view_time);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct match m = {of[i].name, {json_number(p[0].d, of[i].key),
                                       json_number(p[1].d, of[i].key)}, 0};
        put_match(out, &m, of[i].value);
    }
    table_end(out);
}

static void put_kernels(struct text *out, const struct page p[2], bool measured)
{
    struct matches m = {.t = out->t, .least = 0.02};
    for (int side = 0; side < 2; side++) {
        struct dict seen = {0};
        for (int i = 0; i < p[side].nkernel; i++) {
            const struct json *k = p[side].kernel[i];
            const char *title = json_string(k, "title"), *name = json_string(k, "name");
            title = *title ? title : name;
            uintptr_t *n = (uintptr_t *)dict_enter(out->t, &seen, title);
            add(&m, mem_printf(out->t, "%zu %s", (size_t)++*n, title),
                mem_printf(out->t, "%s: %s", name, title), side,
                measured ? p[side].us[i] : json_number(k, "predicted_us"));
        }
    }
    put_matches(out, "kernel-changes",
                measured ? "Kernels, by measured time: what became slower comes first"
                         : "Kernels, by estimated time: what became slower comes first",
                &m, view_time);
}

/* Of each document what is alive at its peak, and how much of that shares bytes. */
static void put_peaks(struct text *out, const struct page p[2])
{
    struct matches m = {.t = out->t};
    double shared[2];
    for (int side = 0; side < 2; side++) {
        struct dict seen = {0};
        int n;
        const struct alive *v = view_peak(&p[side], &n, &shared[side]);
        for (int i = 0; i < n; i++) {
            const char *key = mem_printf(out->t, "%.7s %s", v[i].what, *v[i].title ? v[i].title
                                                                               : v[i].what);
            uintptr_t *count = (uintptr_t *)dict_enter(out->t, &seen, key);
            add(&m, mem_printf(out->t, "%zu %s", (size_t)++*count, key),
                mem_printf(out->t, "%s: %s", v[i].what, v[i].title), side, v[i].to - v[i].from);
        }
    }
    put_matches(out, "peak-changes", "Alive at the peak of the arena: what became larger comes first",
                &m, view_bytes);
    bool by_threads = json_number(p[0].d, "threads") != json_number(p[1].d, "threads");
    if (shared[0] != shared[1])
        text_printf(out, "<p class=\"note\">At the peak, kernels that store over what they read share "
                         "%s before, and %s after%s.</p>\n",
                    view_bytes(out->t, shared[0]), view_bytes(out->t, shared[1]),
                    by_threads ? ": a thread would store over what another one still reads" : "");
}

static void put_weights(struct text *out, const struct page p[2])
{
    struct matches m = {.t = out->t};
    for (int side = 0; side < 2; side++) {
        struct dict seen = {0};
        const struct json *list = json_get(p[side].d, "buffers");
        for (const struct json *b = list ? list->child : NULL; b; b = b->next) {
            const char *name = json_string(b, "name");
            if (strcmp(json_string(b, "kind"), "weight") != 0)
                continue;
            name = *name ? name : "a weight without a name";
            uintptr_t *n = (uintptr_t *)dict_enter(out->t, &seen, name);
            add(&m, mem_printf(out->t, "%zu %s", (size_t)++*n, name), name, side,
                json_number(b, "bytes"));
        }
    }
    put_matches(out, "weight-changes", "Stored weights: what became larger comes first", &m,
                view_bytes);
}

static void put_setting(struct text *out, const char *name, const char *old, const char *new)
{
    text_printf(out, "<tr%s><th scope=\"row\">%s</th>", strcmp(old, new) ? " class=\"differs\"" : "",
                name);
    cell_text(out, old);
    cell_text(out, new);
    text_puts(out, "</tr>\n");
}

static const char *options_of(struct tgc *t, const struct json *d)
{
    struct text x = {.t = t};
    const struct json *list = json_get(d, "options");
    text_puts(&x, "");
    for (const struct json *o = list ? list->child : NULL; o; o = o->next)
        text_printf(&x, "%s%s", x.n ? ", " : "", o->kind == JSON_STRING ? o->string : "");
    return x.n ? x.s : "none";
}

static void put_settings(struct text *out, struct tgc *t, const char *const file[2],
                         const struct page p[2])
{
    static const char *const key[][2] = {
        {"name", "Name"}, {"model", "Model"}, {"producer", "Compiler"}, {"target", "Target"}};
    table_begin(out, "settings", "What is compared", "|Before|After");
    put_setting(out, "File", file[0], file[1]);
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        put_setting(out, key[i][1], json_string(p[0].d, key[i][0]), json_string(p[1].d, key[i][0]));
    put_setting(out, "Options", options_of(t, p[0].d), options_of(t, p[1].d));
    put_setting(out, "Machine of the estimates",
                json_string(json_get(p[0].d, "machine"), "name"),
                json_string(json_get(p[1].d, "machine"), "name"));
    put_setting(out, "Measured", p[0].measured ? "yes" : "no: estimates",
                p[1].measured ? "yes" : "no: estimates");
    table_end(out);
}

static const char *title_of(struct tgc *t, const struct page p[2])
{
    const char *old = json_string(p[0].d, "name"), *new = json_string(p[1].d, "name");
    return strcmp(old, new) ? mem_printf(t, "%s \342\206\222 %s", old, new)
                            : mem_printf(t, "%s: before and after", new);
}

bool report_compare(struct text *out, struct tgc *t, const char *const file[2],
                    const struct text document[2])
{
    struct page p[2];
    for (int i = 0; i < 2; i++) {
        const struct json *d = page_read(t, file[i], document[i].s, document[i].n);
        if (!d)
            return false;
        page_of(&p[i], t, d);
    }
    bool measured = p[0].measured && p[1].measured;
    page_begin(out, title_of(t, p),
               measured ? "Times were measured by tgc bench."
                        : "Times are estimates: at least one of the two was not measured.");
    text_puts(out, "<main>\n<section id=\"compared\" aria-label=\"Comparison\">\n");
    put_totals(out, p, measured);
    put_kernels(out, p, measured);
    put_peaks(out, p);
    put_weights(out, p);
    put_settings(out, t, file, p);
    text_puts(out, "</section>\n");
    page_end(out, NULL, 0);
    return true;
}
