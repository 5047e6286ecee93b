/* views.c - the sections of the page: figures, tables and the picture of memory over time, which
 * need no script. The scripts draw what is in elements with an id and no content. */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 1000 };       /* of a table: the document has all */

static void end_section(struct text *out) { text_puts(out, "</section>\n"); }

static void put_left_out(struct text *out, int n)
{
    if (n > ROWS_MOST)
        text_printf(out, "<p class=\"note\">%d more rows are in the document (-o NAME.json).</p>\n",
                    n - ROWS_MOST);
}

/* ------------------------------------------------------------------------------------- overview */

void view_figure(struct text *out, const char *name, const char *value, const char *words)
{
    text_printf(out, "<div><dt>%s</dt><dd>", name);
    html_put(out, value);
    text_puts(out, "<small>");
    html_put(out, words);
    text_puts(out, "</small></dd></div>\n");
}

/* Whether it is a dimension of some tensor, and not which run of several is made. */
static bool is_dimension(const struct page *p, const char *symbol)
{
    for (const struct json *b = json_get(p->d, "buffers")->child; b; b = b->next) {
        const struct json *shape = json_get(b, "shape");
        for (const struct json *d = shape ? shape->child : NULL; d; d = d->next)
            if (d->kind == JSON_STRING && strcmp(d->string, symbol) == 0)
                return true;
    }
    return false;
}

const char *view_bounds(const struct page *p)
{
    struct text x = {.t = p->t};
    const struct json *symbols = json_get(p->d, "symbols");
    text_puts(&x, "");
    for (const struct json *s = symbols ? symbols->child : NULL; s; s = s->next)
        if (json_number(s, "min") < json_number(s, "max") && is_dimension(p, json_string(s, "name")))
            text_printf(&x, "%s%s = %.0f", x.n ? ", " : ", at ", json_string(s, "name"),
                        json_number(s, "max"));
    return x.s;
}

/* What tensors between kernels lie in: the arena, the stack, or a device's memory, of which the
 * host's arena has no part. */
static bool is_in(const struct page *p, const char *where)
{
    return json_number(p->d, "tensor_bytes") > 0 &&
           strcmp(json_string(p->d, "tensors_in"), where) == 0;
}

static double memory_bytes(const struct page *p)
{
    bool apart = is_in(p, "device") || is_in(p, "stack");
    return json_number(p->d, apart ? "tensor_bytes" : "arena_bytes");
}

static void put_figures(struct text *out, const struct page *p)
{
    struct tgc *t = p->t;
    const struct json *bench = json_get(p->d, "bench"), *machine = json_get(p->d, "machine");
    double us = p->measured ? 1e6 * json_number(bench, "min_seconds") : p->total,
           flop = json_number(p->d, "flop"), arena = memory_bytes(p), peak = json_number(machine, "gflops");
    text_puts(out, "<dl class=\"figures\">\n");
    view_figure(out, p->measured ? "Time of a run" : "Estimated time", view_time(t, us),
               p->measured ? mem_printf(t, "measured, least of %.0f runs", json_number(bench, "runs"))
                           : json_number(p->d, "threads") > 1
                               ? "sum of the kernels' estimates, by one thread"
                               : "sum of the kernels' estimates");
    view_figure(out, "Work", view_flop(t, flop),
               us > 0 ? mem_printf(t, "%.3g GFLOP/s of %.3g", flop / us / 1000, peak) : "");
    view_figure(out, "Weights", view_bytes(t, json_number(p->d, "weight_bytes")),
               mem_printf(t, "%s in the model",
                          view_bytes(t, json_number(p->d, "model_weight_bytes"))));
    view_figure(out, is_in(p, "device") ? "Device memory" : is_in(p, "stack") ? "On the stack" : "Arena",
               view_bytes(t, arena),
               mem_printf(t, "%s alive at once%s", view_bytes(t, json_number(p->d, "live_bytes")),
                          view_bounds(p)));
    view_figure(out, "Kernels", mem_printf(t, "%d", p->nkernel),
               mem_printf(t, "stack: %s at most", view_bytes(t, json_number(p->d, "stack_bytes"))));
    text_puts(out, "</dl>\n");
}

/* A text in which options are not broken. */
static void put_words(struct text *out, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, " ") + strspn(s + strcspn(s, " "), " ");
        bool is_option = strncmp(s, "--", 2) == 0 && s[2];
        text_puts(out, is_option ? "<span class=\"option\">" : "");
        html_put(out, mem_printf(out->t, "%.*s", (int)n, s));
        text_puts(out, is_option ? "</span>" : "");
        s += n;
    }
}

static void put_advice(struct text *out, const struct page *p)
{
    int n;
    const struct json **advice = json_elements(p->t, json_get(p->d, "advice"), &n);
    text_puts(out, "<h3>Worth doing next</h3>\n<ol class=\"advice\">\n");
    for (int i = 0; i < n; i++) {
        double us = json_number(advice[i], "gain_us"), nbytes = json_number(advice[i], "gain_bytes");
        text_puts(out, "<li><p>");
        put_words(out, json_string(advice[i], "text"));
        text_puts(out, "</p><p class=\"gain\"><code>");
        html_put(out, json_string(advice[i], "option"));
        text_printf(out, "</code> %s</p></li>\n",
                    us > 0       ? mem_printf(p->t, "up to %s of the %s time", view_time(p->t, us),
                                             p->measured ? "measured" : "estimated")
                    : nbytes > 0 ? view_bytes(p->t, nbytes)
                                 : "");
    }
    if (n == 0)
        text_puts(out, "<li><p>Nothing stands out in the compiler's own numbers.</p></li>\n");
    text_puts(out, "</ol>\n");
}

/* A node of the model's with the kernels whose main node it is. */
struct layer { int node, first, n; double us, flop; };

static int compare_layers(const void *a, const void *b)
{
    const struct layer *x = a, *y = b;
    return x->first - y->first;
}

/* In the order of their first kernels. Kernels that compute no node are layers of their own. */
static struct layer *find_layers(const struct page *p, int *n)
{
    struct layer *layer = mem_array(p->t, (size_t)p->nkernel + 1, sizeof *layer);
    int *of = mem_array(p->t, (size_t)p->nnode + 1, sizeof *of);
    *n = 0;
    for (int i = 0; i < p->nkernel; i++) {
        int node = page_main_node(p, i);
        int at = node >= 0 && of[node] ? of[node] - 1 : (*n)++;
        struct layer *l = &layer[at];
        if (l->n++ == 0)
            *l = (struct layer){.node = node, .first = i, .n = 1};
        if (node >= 0)
            of[node] = at + 1;
        l->us += p->us[i];
        l->flop += json_number(p->kernel[i], "flop");
    }
    qsort(layer, (size_t)*n, sizeof *layer, compare_layers);
    return layer;
}

static void put_layer(struct text *out, const struct page *p, const struct layer *l, double most)
{
    const struct json *node = l->node >= 0 ? p->node[l->node] : NULL;
    const char *name = json_string(node, "name");
    text_puts(out, "<tr><th scope=\"row\">");
    html_put(out, *name ? name : node ? mem_printf(p->t, "node %d", l->node)
                                      : json_string(p->kernel[l->first], "name"));
    text_puts(out, "</th>");
    cell_text(out, node ? json_string(node, "op") : "copy");
    cell_bar(out, p->total > 0 ? l->us / p->total : 0, p->total > 0 ? most / p->total : 0);
    cell_number(out, l->us, view_time(p->t, l->us));
    cell_number(out, l->flop, view_flop(p->t, l->flop));
    cell_text(out, json_string(p->kernel[l->first], "limit"));
    text_puts(out, "<td>");
    for (int i = l->first, n = 0; i < p->nkernel && n < l->n && n < 8; i++)
        if (i == l->first || (l->node >= 0 && page_main_node(p, i) == l->node)) {
            text_puts(out, n++ ? ", " : "");
            html_kernel(out, json_string(p->kernel[i], "name"));
        }
    text_puts(out, "</td></tr>\n");
}

static void put_layers(struct text *out, const struct page *p)
{
    int n;
    double most = 0;
    const struct layer *layer = find_layers(p, &n);
    for (int i = 0; i < n; i++)
        most = layer[i].us > most ? layer[i].us : most;
    table_begin(out, "layers",
                p->measured ? "Layers, in the model&#39;s order, by measured time"
                            : "Layers, in the model&#39;s order, by estimated time",
                "Layer|Operator|#Share|#Time|#Work|Limited by|Kernels");
    for (int i = 0; i < n && i < ROWS_MOST; i++)
        put_layer(out, p, &layer[i], most);
    table_end(out);
    put_left_out(out, n);
}

/* Of a program of several runs: what each takes. */
static void put_entries(struct text *out, const struct page *p)
{
    int n;
    const struct json **entry = json_elements(p->t, json_get(p->d, "entries"), &n);
    if (n == 0)
        return;
    table_begin(out, "entries", "Runs of the program; the figures above are of all of them together",
                "Run|#Kernels|#Time|#Work");
    for (int i = 0; i < n; i++) {
        const struct json *list = json_get(entry[i], "kernels");
        double us = 0, flop = 0;
        int count = 0;
        for (const struct json *v = list ? list->child : NULL; v; v = v->next) {
            int k = json_index(v);
            if (k < 0 || k >= p->nkernel)
                continue;
            us += p->us[k];
            flop += json_number(p->kernel[k], "flop");
            count++;
        }
        text_puts(out, "<tr><th scope=\"row\">");
        html_put(out, json_string(entry[i], "name"));
        text_puts(out, "</th>");
        cell_number(out, count, mem_printf(p->t, "%d", count));
        cell_number(out, us, view_time(p->t, us));
        cell_number(out, flop, view_flop(p->t, flop));
        text_puts(out, "</tr>\n");
    }
    table_end(out);
}

/* A tensor of the arena: its place, and the steps from its first to its last access. */
struct placed { double from, to; int first, last; };

static int compare_places(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->first != y->first ? x->first - y->first : (x->from > y->from) - (x->from < y->from);
}

/* Bytes of the arena that a tensor takes: scratch as often as there are threads; 0: it is not
 * there. */
static double placed_bytes(const struct json *b)
{
    const char *kind = json_string(b, "kind");
    bool in_arena = !strcmp(kind, "temp") || !strcmp(kind, "state") || !strcmp(kind, "scratch");
    return in_arena ? json_number(b, json_get(b, "placed") ? "placed" : "bytes") : 0;
}

static double copies_of(const struct json *b)
{
    double copies = json_number(b, "copies");
    return copies > 1 ? copies : 1;
}

/* The model's name, or what stands for it. */
static const char *buffer_name(struct tgc *t, const struct json *b)
{
    const char *name = json_string(b, "name"), *label = json_string(b, "label");
    return *name ? name : *label ? label : mem_printf(t, "b%.0f", json_number(b, "id"));
}

static struct placed *find_placed(const struct page *p, int nstep, int *n)
{
    const struct json *buffers = json_get(p->d, "buffers");
    struct placed *v = mem_array(p->t, buffers ? (size_t)buffers->n + 1 : 1, sizeof *v);
    *n = 0;
    for (const struct json *b = buffers ? buffers->child : NULL; b; b = b->next) {
        double from = json_number(b, "offset"), nbytes = placed_bytes(b);
        struct placed one = {from, from + nbytes, json_index(json_get(b, "first_step")),
                             json_index(json_get(b, "last_step"))};
        if (nbytes > 0 && one.first >= 0 && one.last >= one.first && one.last < nstep)
            v[(*n)++] = one;
    }
    qsort(v, (size_t)*n, sizeof *v, compare_places);
    return v;
}

/* Bytes that the places have together; places may overlap, where a kernel stores into its operand.
 * needs: in order of `from`. */
static double union_of(struct placed *const *v, int n)
{
    double sum = 0, end = 0;
    for (int i = 0; i < n; i++) {
        double from = v[i]->from > end ? v[i]->from : end;
        sum += v[i]->to > from ? v[i]->to - from : 0;
        end = v[i]->to > end ? v[i]->to : end;
    }
    return sum;
}

double *view_live(const struct page *p, int *nstep, int *peak)
{
    const struct json *steps = json_get(p->d, "steps");
    int n, next = 0, nopen = 0;
    *nstep = steps ? steps->n : 0;
    struct placed *v = find_placed(p, *nstep, &n);
    struct placed **open = mem_array(p->t, (size_t)n + 1, sizeof *open);
    double *live = mem_array(p->t, (size_t)*nstep + 1, sizeof *live);
    *peak = 0;
    for (int i = 0; i < *nstep; i++) {
        int kept = 0;
        for (int k = 0; k < nopen; k++)
            if (open[k]->last >= i)
                open[kept++] = open[k];
        for (nopen = kept; next < n && v[next].first <= i; next++) {
            int at = nopen++;
            for (; at > 0 && open[at - 1]->from > v[next].from; at--)
                open[at] = open[at - 1];
            open[at] = &v[next];
        }
        live[i] = union_of(open, nopen);
        *peak = live[i] > live[*peak] ? i : *peak;
    }
    return live;
}

static int compare_alive(const void *a, const void *b)
{
    const struct alive *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* The kernel of a step, by its name; NULL: it runs none. */
static const struct json *kernel_of_step(const struct page *p, int step)
{
    const struct json *s = json_get(p->d, "steps")->child;
    for (; s && step > 0; step--)
        s = s->next;
    for (int i = 0; s && strncmp(s->string, "run ", 4) == 0 && i < p->nkernel; i++)
        if (strcmp(json_string(p->kernel[i], "name"), s->string + 4) == 0)
            return p->kernel[i];
    return NULL;
}

struct alive *view_peak(const struct page *p, int *n, double *shared)
{
    int nstep, peak, nplaced;
    double *live = view_live(p, &nstep, &peak), end = 0;
    const struct json *b = json_get(p->d, "buffers")->child;
    find_placed(p, nstep, &nplaced);
    struct alive *v = mem_array(p->t, (size_t)nplaced + 1, sizeof *v);
    *n = 0;
    *shared = 0;
    for (; b && nstep && live[peak] > 0; b = b->next) {
        int first = json_index(json_get(b, "first_step")), last = json_index(json_get(b, "last_step"));
        double from = json_number(b, "offset"), nbytes = placed_bytes(b);
        if (first < 0 || first > peak || last < peak || *n == nplaced || nbytes <= 0)
            continue;
        const struct json *k = kernel_of_step(p, first);
        double copies = copies_of(b);
        const char *each = copies > 1 ? mem_printf(p->t, ", %.0f \303\227 %s, one per thread", copies,
                                                   view_bytes(p->t, nbytes / copies))
                                      : "";
        v[(*n)++] = (struct alive){
            .what = mem_printf(p->t, "%s%s", buffer_name(p->t, b), each),
            .title = k ? json_string(k, "title") : "",
            .from = from,
            .to = from + nbytes,
            .more = nbytes - nbytes / copies};
    }
    qsort(v, (size_t)*n, sizeof *v, compare_alive);
    for (int i = 0; i < *n; i++) {
        *shared += end > v[i].from ? (end < v[i].to ? end : v[i].to) - v[i].from : 0;
        end = v[i].to > end ? v[i].to : end;
    }
    return v;
}

/* Bytes of the arena that are alive at each step, as an area. */
static void put_live(struct text *out, const struct page *p)
{
    enum { WIDTH = 576, HEIGHT = 170, TOP = 2 };
    int n, peak;
    double *live = view_live(p, &n, &peak), most = n ? live[peak] : 0;
    text_puts(out, "<h3>Memory over time</h3>\n");
    if (most <= 0) {
        text_puts(out, "<p class=\"note\">No step passes a tensor to another one by the arena.</p>\n");
        return;
    }
    text_printf(out, "<svg class=\"live\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Bytes of the "
                     "arena that are alive, by step: at most %s, at step %d of %d\">\n<path class=\"area\" "
                     "d=\"M0 %d",
                WIDTH, HEIGHT + TOP, view_bytes(p->t, most), peak + 1, n, HEIGHT + TOP);
    for (int i = 0; i < n; i++) {
        double y = TOP + HEIGHT * (1 - live[i] / most);
        text_printf(out, "L%.1f %.1fL%.1f %.1f", (double)WIDTH * i / n, y,
                    (double)WIDTH * (i + 1) / n, y);
    }
    text_printf(out, "L%d %dZ\"/>\n<path class=\"axis\" d=\"M0 %dH%d\"/>\n<path class=\"peak\" "
                     "d=\"M%.1f %dV%d\"/>\n</svg>\n<p class=\"note\">Most at step %d of %d, ",
                WIDTH, HEIGHT + TOP, HEIGHT + TOP, WIDTH, WIDTH * (peak + 0.5) / n, TOP,
                HEIGHT + TOP, peak + 1, n);
    const struct json *step = json_get(p->d, "steps")->child;
    for (int i = 0; i < peak && step; i++)
        step = step->next;
    html_put(out, step && step->kind == JSON_STRING ? step->string : "");
    text_printf(out, ": %s.</p>\n", view_bytes(p->t, most));
}

void view_overview(struct text *out, const struct page *p)
{
    html_heading(out, "overview", "Overview", NULL);
    put_figures(out, p);
    text_puts(out, "<div class=\"pair\"><div>\n");
    put_advice(out, p);
    text_puts(out, "</div><div>\n");
    put_live(out, p);
    text_puts(out, "</div></div>\n");
    put_entries(out, p);
    view_blocks(out, p);
    put_layers(out, p);
    end_section(out);
}

/* ---------------------------------------------------------------------------------------- graph */

void view_graph(struct text *out, const struct page *p)
{
    html_heading(out, "graph", "Graph", NULL);
    text_printf(out, "<p class=\"lead\">%d nodes of the model that compute something, its inputs and its "
                     "outputs. The darker a node, the larger its share of the time.</p>\n", p->nnode);
    text_puts(out, "<noscript><p class=\"note\">The picture needs JavaScript; the table of layers in the "
                   "overview has the same nodes.</p></noscript>\n<div id=\"graph-view\"></div>\n");
    end_section(out);
}

/* -------------------------------------------------------------------------------------- kernels */

struct by_time { int kernel; double us; };

static int compare_times(const void *a, const void *b)
{
    const struct by_time *x = a, *y = b;
    return x->us != y->us ? (x->us < y->us) - (x->us > y->us) : x->kernel - y->kernel;
}

const char *view_computes(const struct page *p, int i)
{
    enum { MOST = 6 };
    int n = 0, at = page_main_node(p, i);
    struct text x = {.t = p->t};
    if (at < 0)
        return json_string(p->kernel[i], "title");
    const struct json *backward = json_get(p->kernel[i], "backward");
    text_printf(&x, "%s%s %s", backward && backward->kind == JSON_TRUE ? "gradient of " : "",
                json_string(p->node[at], "op"), json_string(p->node[at], "name"));
    for (const struct json *v = p->nodes[i]->child->next; v; v = v->next) {
        int node = json_index(v);
        if (node >= 0 && node < p->nnode && n++ < MOST)
            text_printf(&x, "%s%s", n == 1 ? ", with " : ", ", json_string(p->node[node], "op"));
    }
    if (n > MOST)
        text_printf(&x, " and %d more", n - MOST);
    return x.s;
}

static void put_kernel(struct text *out, const struct page *p, int i)
{
    const struct json *k = p->kernel[i];
    double flop = json_number(k, "flop"), nbytes = json_number(k, "bytes"),
           estimate = json_number(k, "predicted_us");
    text_puts(out, "<tr id=\"kernels/");
    html_put(out, json_string(k, "name"));
    text_puts(out, "\"><th scope=\"row\">");
    html_kernel(out, json_string(k, "name"));
    text_puts(out, "</th>");
    cell_text(out, view_computes(p, i));
    cell_bar(out, p->total > 0 ? p->us[i] / p->total : 0,
             p->total > 0 ? p->most / p->total : 0);
    if (p->measured)
        cell_number(out, p->us[i], view_time(p->t, p->us[i]));
    cell_number(out, estimate, view_time(p->t, estimate));
    cell_number(out, flop, view_flop(p->t, flop));
    cell_number(out, nbytes, view_bytes(p->t, nbytes));
    cell_number(out, p->us[i] > 0 ? flop / p->us[i] / 1000 : 0,
                p->us[i] > 0 ? mem_printf(p->t, flop / p->us[i] < 999.5e3 ? "%.3g" : "%.0f",
                                          flop / p->us[i] / 1000)
                             : "");
    cell_text(out, json_string(k, "limit"));
    text_puts(out, "</tr>\n");
}

void view_kernels(struct text *out, const struct page *p)
{
    struct by_time *order = mem_array(p->t, (size_t)p->nkernel + 1, sizeof *order);
    for (int i = 0; i < p->nkernel; i++)
        order[i] = (struct by_time){i, p->us[i]};
    qsort(order, (size_t)p->nkernel, sizeof *order, compare_times);
    html_heading(out, "kernels", "Kernels", NULL);
    text_puts(out, "<div id=\"roofline\"></div>\n<div id=\"kernel-detail\"></div>\n");
    table_begin(out, "kernel-table", "Kernels, the longest first",
                p->measured ? "Kernel|Computes|#Share|#Measured|#Estimate|#Work|#Traffic|#GFLOP/s|Limited by"
                            : "Kernel|Computes|#Share|#Estimate|#Work|#Traffic|#GFLOP/s|Limited by");
    for (int i = 0; i < p->nkernel && i < ROWS_MOST; i++)
        put_kernel(out, p, order[i].kernel);
    table_end(out);
    put_left_out(out, p->nkernel);
    view_device(out, p);
    view_winograd(out, p);
    end_section(out);
}

/* --------------------------------------------------------------------------------------- memory */

static const char *shape_of(struct tgc *t, const struct json *b)
{
    const struct json *shape = json_get(b, "shape");
    struct text x = {.t = t};
    text_printf(&x, "%s[", json_string(b, "dtype"));
    for (const struct json *d = shape ? shape->child : NULL; d; d = d->next) {
        text_puts(&x, d == shape->child ? "" : ",");
        if (d->kind == JSON_STRING)
            text_puts(&x, d->string);
        else
            text_printf(&x, "%.0f", d->number);
    }
    text_putc(&x, ']');
    return x.s;
}

static void put_buffer(struct text *out, const struct page *p, const struct json *b)
{
    struct tgc *t = p->t;
    bool used = json_get(b, "first_step") != NULL;
    text_puts(out, "<tr><th scope=\"row\">");
    html_put(out, buffer_name(t, b));
    text_puts(out, "</th>");
    cell_text(out, json_string(b, "kind"));
    cell_text(out, shape_of(t, b));
    double copies = copies_of(b), nbytes = json_number(b, "bytes");
    cell_number(out, copies * nbytes,
                copies > 1 ? mem_printf(t, "%.0f \303\227 %s", copies, view_bytes(t, nbytes))
                           : view_bytes(t, nbytes));
    cell_number(out, json_number(b, "offset"),
                *json_string(b, "in") ? json_string(b, "in")
                                      : mem_printf(t, "%.0f", json_number(b, "offset")));
    cell_number(out, json_number(b, "first_step"),
                used ? mem_printf(t, "%.0f to %.0f", json_number(b, "first_step") + 1,
                                  json_number(b, "last_step") + 1)
                     : "");
    cell_text(out, json_string(b, "why"));
    text_puts(out, "</tr>\n");
}

struct sized_buffer { const struct json *b; double nbytes; int index; };

static int compare_sizes(const void *a, const void *b)
{
    const struct sized_buffer *x = a, *y = b;
    return x->nbytes != y->nbytes ? (x->nbytes < y->nbytes) - (x->nbytes > y->nbytes)
                                  : x->index - y->index;
}

static void put_buffers(struct text *out, const struct page *p, bool weights)
{
    int n, count = 0;
    const struct json **b = json_elements(p->t, json_get(p->d, "buffers"), &n);
    struct sized_buffer *v = mem_array(p->t, (size_t)n + 1, sizeof *v);
    for (int i = 0; i < n; i++)
        if ((strcmp(json_string(b[i], "kind"), "weight") == 0) == weights)
            v[count++] = (struct sized_buffer){b[i], copies_of(b[i]) * json_number(b[i], "bytes"), i};
    qsort(v, (size_t)count, sizeof *v, compare_sizes);
    table_begin(out, weights ? "weights" : "buffers",
                weights ? "Weights, the largest first" : "Tensors, the largest first",
                "Name|Kind|Type|#Size|#Place|#Steps|Stored because");
    for (int i = 0; i < count && i < ROWS_MOST; i++)
        put_buffer(out, p, v[i].b);
    table_end(out);
    put_left_out(out, count);
}

/* Weights that are stored otherwise than the model has them. */
static void put_changed(struct text *out, const struct page *p)
{
    int n;
    const struct json **w = json_elements(p->t, json_get(p->d, "weights_changed"), &n);
    if (n == 0)
        return;
    table_begin(out, "changed", "Weights that are stored otherwise than in the model",
                "Weight|Operator|#In the model|#Stored|How");
    for (int i = 0; i < n && i < ROWS_MOST; i++) {
        double from = json_number(w[i], "model_bytes"), to = json_number(w[i], "bytes");
        text_puts(out, "<tr><th scope=\"row\">");
        html_put(out, *json_string(w[i], "weight") ? json_string(w[i], "weight") : "a constant");
        text_puts(out, "</th>");
        cell_text(out, *json_string(w[i], "node") ? json_string(w[i], "node")
                                                  : json_string(w[i], "operator"));
        cell_number(out, from, view_bytes(p->t, from));
        cell_number(out, to, view_bytes(p->t, to));
        cell_text(out, json_string(w[i], "why"));
        text_puts(out, "</tr>\n");
    }
    table_end(out);
    put_left_out(out, n);
}

/* What has to be smaller, for the arena to be. */
static void put_peak(struct text *out, const struct page *p)
{
    int n, nstep, peak;
    double shared, end = 0;
    const struct alive *v = view_peak(p, &n, &shared);
    view_live(p, &nstep, &peak);
    if (n == 0)
        return;
    table_begin(out, "peak",
                mem_printf(p->t, "Alive at the peak, step %d of %d, by place", peak + 1, nstep),
                "Tensor|Computes|#Size|#Place|Shares bytes");
    for (int i = 0; i < n && i < ROWS_MOST; i++) {
        text_puts(out, "<tr><th scope=\"row\">");
        html_put(out, v[i].what);
        text_puts(out, "</th>");
        cell_text(out, v[i].title);
        cell_number(out, v[i].to - v[i].from, view_bytes(p->t, v[i].to - v[i].from));
        cell_number(out, v[i].from, mem_printf(p->t, "%.0f", v[i].from));
        cell_text(out, end > v[i].from ? "with the one before it: a kernel stores over what it reads"
                                       : "");
        end = v[i].to > end ? v[i].to : end;
        text_puts(out, "</tr>\n");
    }
    table_end(out);
    put_left_out(out, n);
}

/* How much of it is there because of threads. */
static void put_copies(struct text *out, const struct page *p)
{
    int n;
    double shared, more = 0, threads = json_number(p->d, "threads");
    const struct alive *v = view_peak(p, &n, &shared);
    for (int i = 0; i < n; i++)
        more += v[i].more;
    if (threads > 1)
        text_printf(out, "<p>Each of the %.0f threads has its own copy of a kernel&#39;s scratch. At the "
                         "peak the copies beyond the first one take %s: with one thread there are none."
                         "</p>\n",
                    threads, view_bytes(p->t, more));
}

void view_memory(struct text *out, const struct page *p)
{
    html_heading(out, "memory", "Memory", NULL);
    text_printf(out, "<p class=\"lead\">%s %s, %s of them alive at once at most",
                is_in(p, "device")  ? "Tensors between kernels take memory of the device:"
                : is_in(p, "stack") ? "Tensors between kernels take the stack:"
                                    : "The arena has",
                view_bytes(p->t, memory_bytes(p)), view_bytes(p->t, json_number(p->d, "live_bytes")));
    html_put(out, view_bounds(p));
    text_puts(out, ". Tensors that are never alive together share a place.");
    if (is_in(p, "device") || is_in(p, "stack"))
        text_printf(out, " The caller&#39;s arena, %s, has none of them.",
                    view_bytes(p->t, json_number(p->d, "arena_bytes")));
    text_puts(out, "</p>\n");
    put_copies(out, p);
    text_puts(out, "<div id=\"arena-view\"></div>\n");
    put_peak(out, p);
    put_buffers(out, p, false);
    put_changed(out, p);
    put_buffers(out, p, true);
    end_section(out);
}

/* --------------------------------------------------------------------------------------- passes */

void view_passes(struct text *out, const struct page *p)
{
    int n, nrule;
    const struct json **pass = json_elements(p->t, json_get(p->d, "passes"), &n);
    const struct json **rule = json_elements(p->t, json_get(p->d, "rules"), &nrule);
    double *fired = mem_array(p->t, (size_t)n + 1, sizeof *fired);
    bool *differs = mem_array(p->t, (size_t)n + 1, sizeof *differs);
    int nchange;
    const struct json **change = json_elements(p->t, json_get(p->d, "changes"), &nchange);
    for (int i = 0; i < nchange; i++) {
        int of = json_index(json_get(change[i], "pass"));
        if (of >= 0 && of <= n)
            differs[of] = true;
    }
    bool all_texts = json_number(p->d, "changes_left_out") <= 0;
    for (int i = 0; i < nrule; i++) {
        int of = json_index(json_get(rule[i], "pass"));
        if (of >= 0 && of <= n)
            fired[of] += json_number(rule[i], "n");
    }
    html_heading(out, "passes", "Passes", NULL);
    text_puts(out, "<div id=\"pass-view\"></div>\n");
    table_begin(out, "pass-table", "Passes in their order",
                "Pass|Stage|What it does|#Runs|#Changed|#Uops made|#Rules fired");
    for (int i = 0; i < n; i++) {
        const struct json *changes = json_get(pass[i], "changes");
        bool is_idle = !differs[i] && json_number(pass[i], "changes") <= 0 &&
                       (all_texts || (changes && changes->kind == JSON_NUMBER));
        text_printf(out, "<tr%s id=\"passes/", is_idle ? " class=\"idle\"" : "");
        html_put(out, json_string(pass[i], "name"));
        text_puts(out, "\"><th scope=\"row\"><a class=\"p\" href=\"#passes/");
        html_put(out, json_string(pass[i], "name"));
        text_puts(out, "\">");
        html_put(out, json_string(pass[i], "name"));
        text_puts(out, "</a></th>");
        cell_text(out, json_string(pass[i], "stage"));
        cell_text(out, json_string(pass[i], "text"));
        cell_number(out, json_number(pass[i], "runs"),
                    mem_printf(p->t, "%.0f", json_number(pass[i], "runs")));
        cell_number(out, json_number(pass[i], "changes"),
                    changes && changes->kind == JSON_NUMBER ? mem_printf(p->t, "%.0f", changes->number)
                                                            : "");
        cell_number(out, json_number(pass[i], "uops"),
                    mem_printf(p->t, "%.0f", json_number(pass[i], "uops")));
        cell_number(out, fired[i], mem_printf(p->t, "%.0f", fired[i]));
        text_puts(out, "</tr>\n");
    }
    table_end(out);
    end_section(out);
}
