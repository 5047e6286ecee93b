/* trace.c - a run as Chrome-trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing read:
 * kernels one after the other, the layers that they are of, and the arena's bytes alive.
 *
 * Times are those of the document: measured, else estimated. What steps repeat or leave out at run
 * time stands once; an entry of several has a row of its own. source: Trace Event Format, "X", "C"
 * and "M" events; times are in microseconds.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 1, KERNELS };    /* rows of an entry */

struct trace { struct text *out; const struct page *p; const double *live; int nlive; };

static void put_name(struct trace *x, const char *kind, int process, int row, const char *name)
{
    text_printf(x->out, "%s\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":",
                x->out->s[x->out->n - 1] == '[' ? "" : ",", process, row, kind);
    text_json(x->out, name);
    text_puts(x->out, "}}");
}

/* From whole nanosecond to whole nanosecond, so that spans in a row do not overlap. */
static void put_span(struct trace *x, int process, int row, double from, double us,
                     const char *name)
{
    double begin = rint(1000 * from), end = rint(1000 * (from + us));
    text_printf(x->out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":",
                process, row, begin / 1000, (end - begin) / 1000);
    text_json(x->out, *name ? name : "copies");
}

static void put_kernel(struct trace *x, int process, int k, double from)
{
    const struct json *kernel = x->p->kernel[k];
    double us = x->p->us[k], flop = json_number(kernel, "flop"), nbytes = json_number(kernel, "bytes");
    put_span(x, process, KERNELS, from, us, json_string(kernel, "name"));
    text_printf(x->out, ",\"args\":{\"computes\":");
    text_json(x->out, view_computes(x->p, k));
    text_printf(x->out, ",\"flop\":%.0f,\"bytes\":%.0f,\"gflop_s\":%.4g,\"gbyte_s\":%.4g,"
                        "\"estimate_us\":%.4g,\"limit\":",
                flop, nbytes, us > 0 ? flop / us / 1000 : 0, us > 0 ? nbytes / us / 1000 : 0,
                json_number(kernel, "predicted_us"));
    text_json(x->out, json_string(kernel, "limit"));
    text_puts(x->out, "}}");
}

/* kernel[n]: in the order of the run; step[n]: theirs. */
static void put_run(struct trace *x, int process, const char *name, const int *kernel,
                    const int *step, int n)
{
    double at = 0, begin = 0;
    put_name(x, "process_name", process, 0, name);
    put_name(x, "thread_name", process, LAYERS, "layers");
    put_name(x, "thread_name", process, KERNELS, x->p->measured ? "kernels, measured"
                                                                : "kernels, estimated");
    for (int i = 0; i < n; i++) {
        int node = page_main_node(x->p, kernel[i]);
        put_kernel(x, process, kernel[i], at);
        if (step[i] < x->nlive)
            text_printf(x->out, ",\n{\"ph\":\"C\",\"pid\":%d,\"ts\":%.3f,\"name\":\"arena\",\"args\":{"
                                "\"alive\":%.0f}}",
                        process, at, x->live[step[i]]);
        at += x->p->us[kernel[i]];
        if (i + 1 < n && node >= 0 && page_main_node(x->p, kernel[i + 1]) == node)
            continue;
        if (node >= 0) {
            const char *layer = json_string(x->p->node[node], "name");
            put_span(x, process, LAYERS, begin, at - begin,
                     *layer ? layer : json_string(x->p->node[node], "op"));
            text_putc(x->out, '}');
        }
        begin = at;
    }
}

/* Of each kernel the number of the first step that runs it, -1: none. */
static int *find_steps(const struct page *p, int *order, int *n)
{
    struct dict of = {0};
    int *step = mem_array(p->t, (size_t)p->nkernel + 1, sizeof *step), number = 0;
    for (int i = 0; i < p->nkernel; i++) {
        step[i] = -1;
        *(uintptr_t *)dict_enter(p->t, &of, json_string(p->kernel[i], "name")) = (uintptr_t)i + 1;
    }
    *n = 0;
    for (const struct json *s = json_get(p->d, "steps")->child; s; s = s->next, number++) {
        if (strncmp(s->string, "run ", 4) != 0)
            continue;
        uintptr_t k = *(uintptr_t *)dict_enter(p->t, &of, s->string + 4);
        if (k && step[k - 1] < 0) {
            step[k - 1] = number;
            order[(*n)++] = (int)k - 1;
        }
    }
    return step;
}

bool report_trace(struct text *out, struct tgc *t, const char *file, const char *json,
                  size_t nbytes)
{
    struct page p;
    struct trace x = {.out = out, .p = &p};
    int n, nentry, peak;
    const struct json *d = page_read(t, file, json, nbytes);
    if (!d)
        return false;
    page_of(&p, t, d);
    x.live = view_live(&p, &x.nlive, &peak);
    int *order = mem_array(t, (size_t)p.nkernel + 1, sizeof *order),
        *at = mem_array(t, (size_t)p.nkernel + 1, sizeof *at), *step = find_steps(&p, order, &n);
    const struct json **entry = json_elements(t, json_get(d, "entries"), &nentry);
    text_puts(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (int e = 0; e < (nentry ? nentry : 1); e++) {
        const struct json *list = nentry ? json_get(entry[e], "kernels") : NULL;
        if (nentry) {
            n = 0;
            for (const struct json *v = list ? list->child : NULL; v && n < p.nkernel; v = v->next)
                if (json_index(v) >= 0 && json_index(v) < p.nkernel)
                    order[n++] = json_index(v);
        }
        for (int i = 0; i < n; i++)
            at[i] = step[order[i]] >= 0 ? step[order[i]] : x.nlive;
        put_run(&x, e + 1, nentry ? json_string(entry[e], "name") : json_string(d, "name"), order, at,
                n);
    }
    text_puts(out, "\n]}\n");
    return true;
}
