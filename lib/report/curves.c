/* curves.c - the page of one or two logs of trainings (tgc train --log FILE.jsonl): the loss by
 * epoch, for classes the share that is wrong, and a table of the epochs.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 576, HEIGHT = 240, LEFT = 56, BOTTOM = 28, TOP = 8, TICKS = 8, EPOCHS_MOST = 2000 };
static const double least_share = 1e-4;

/* A line of a diagram. */
struct curve { const char *name, *class; const double *v; int n; };
struct log { const char *name; const struct json **epoch; int n; };

bool report_is_log(const struct text *document)
{
    size_t n = document->n < 200 ? document->n : 200;
    const char *end = n ? memchr(document->s, '\n', n) : NULL;
    static const char head[] = "{\"epoch\":";
    return end && document->n > sizeof head && memcmp(document->s, head, sizeof head - 1) == 0;
}

/* A line an epoch; the last one may be cut short by a training that was killed. */
static bool read_log(struct log *l, struct tgc *t, const char *file, const struct text *document)
{
    size_t cap = 0, n = 0;
    const char *s = document->s, *end = s + document->n;
    *l = (struct log){.name = file};
    for (const char *next; s < end; s = next) {
        next = memchr(s, '\n', (size_t)(end - s));
        next = next ? next + 1 : end;
        if (next[-1] != '\n')
            break;
        const struct json *e = json_read(t, file, s, (size_t)(next - s));
        if (!e || !json_get(e, "epoch") || !json_get(e, "loss"))
            return !e ? false
                      : diag_error(t, &(struct place){.file = file},
                                   "line %zu has no \"epoch\" or no \"loss\": expected a log of tgc "
                                   "train --log=FILE.jsonl", n + 1);
        VEC_PUSH(t, l->epoch, n, cap, e);
    }
    l->n = (int)n;
    return n > 0 || diag_error(t, &(struct place){.file = file}, "has no epoch");
}

static const double *values(struct tgc *t, const struct log *l, const char *key, bool is_wrong)
{
    double *v = mem_array(t, (size_t)l->n + 1, sizeof *v);
    for (int i = 0; i < l->n; i++) {
        const struct json *x = json_get(l->epoch[i], key);
        v[i] = x && x->kind == JSON_NUMBER ? x->number : NAN;
        v[i] = is_wrong ? fmax(1 - v[i], least_share) : v[i];
    }
    return v;
}

static double log_share(double v, double low, double high)
{
    return (log10(v) - log10(low)) / (log10(high) - log10(low));
}

static double x_of(int i, int n)
{
    return LEFT + (n > 1 ? (double)i / (n - 1) : 0.5) * (WIDTH - LEFT - 8);
}

static void put_axes(struct text *out, double low, double high, int n)
{
    for (double power = low; power <= high * 1.001; power *= 10) {
        double y = HEIGHT - BOTTOM - log_share(power, low, high) * (HEIGHT - BOTTOM - TOP);
        text_printf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                         "text-anchor=\"end\">%g</text>\n",
                    LEFT, y, WIDTH, LEFT - 8, y + 4, power);
    }
    int step = (n + TICKS - 1) / TICKS;
    for (int i = 0; i < n; i += step > 0 ? step : 1)
        text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                    x_of(i, n), HEIGHT - 8, i + 1);
}

static void put_curve(struct text *out, const struct curve *c, double low, double high, int n)
{
    bool is_open = false;
    text_printf(out, "<path class=\"curve %s\" d=\"", c->class);
    for (int i = 0; i < c->n; i++) {
        if (!isfinite(c->v[i]) || c->v[i] <= 0) {
            is_open = false;
            continue;
        }
        text_printf(out, "%c%.1f %.1f", is_open ? 'L' : 'M',
                    x_of(i, n),
                    HEIGHT - BOTTOM - log_share(c->v[i], low, high) * (HEIGHT - BOTTOM - TOP));
        is_open = true;
    }
    text_puts(out, "\"/>\n");
}

/* Whole decades around all values; those that are not finite, or not positive, are left out. */
static void put_diagram(struct text *out, const char *title, const struct curve *c, int ncurve)
{
    double low = HUGE_VAL, high = 0;
    int n = 0, first;
    for (int k = 0; k < ncurve; k++)
        for (int i = 0; i < c[k].n; i++)
            if (isfinite(c[k].v[i]) && c[k].v[i] > 0) {
                low = fmin(low, c[k].v[i]);
                high = fmax(high, c[k].v[i]);
                n = c[k].n > n ? c[k].n : n;
            }
    if (!n)
        return;
    low = pow(10, floor(log10(low)));
    high = fmax(pow(10, ceil(log10(high))), 10 * low);
    text_printf(out, "<div><h3>%s by epoch</h3>\n<svg class=\"curves\" viewBox=\"0 0 %d %d\" role=\"img\" "
                     "aria-label=\"%s by epoch, logarithmic; the table has the same numbers\">\n",
                title, WIDTH, HEIGHT, title);
    put_axes(out, low, high, n);
    for (int k = 0; k < ncurve; k++)
        put_curve(out, &c[k], low, high, n);
    text_puts(out, "</svg>\n<p class=\"note\">");
    for (int k = 0; k < ncurve; k++) {
        for (first = c[k].n - 1; first > 0 && !isfinite(c[k].v[first]); first--)
            continue;
        text_printf(out, "<svg class=\"key\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"curve "
                         "%s\" d=\"M0 4H24\"/></svg> ",
                    c[k].class);
        html_put(out, c[k].name);
        text_printf(out, ", at last %.4g. ", c[k].v[first]);
    }
    text_puts(out, "</p></div>\n");
}

static void put_diagrams(struct text *out, struct tgc *t, const struct log *l, int nlog)
{
    static const struct { const char *title, *key[2]; bool is_wrong; } of[] = {
        {"Loss", {"loss", "valid_loss"}, false},
        {"Share that is wrong", {"accuracy", "valid_accuracy"}, true},
    };
    static const char *const class[2][2] = {{"s0", "s0 v"}, {"s1", "s1 v"}};
    static const char *const words[] = {"training", "--valid"};
    text_puts(out, "<div class=\"pair\">\n");
    for (size_t d = 0; d < sizeof of / sizeof *of; d++) {
        struct curve c[4];
        int n = 0;
        for (int i = 0; i < nlog; i++)
            for (int k = 0; k < 2; k++)
                if (json_get(l[i].epoch[0], of[d].key[k]))
                    c[n++] = (struct curve){
                        .name = nlog > 1 ? mem_printf(t, "%s, %s", l[i].name, words[k]) : words[k],
                        .class = class[i][k],
                        .v = values(t, &l[i], of[d].key[k], of[d].is_wrong),
                        .n = l[i].n};
        put_diagram(out, of[d].title, c, n);
    }
    text_puts(out, "</div>\n");
}

static void put_epochs(struct text *out, struct tgc *t, const struct log *l, const char *id)
{
    static const char *const key[] = {"loss", "valid_loss", "accuracy", "valid_accuracy", "seconds"};
    struct text caption = {.t = t};
    text_puts(&caption, "Epochs of ");
    html_put(&caption, l->name);
    table_begin(out, id, caption.s,
                "#Epoch|#Step|#Loss|#Loss of --valid|#Accuracy|#Accuracy of --valid|#Seconds");
    for (int i = 0; i < l->n && i < EPOCHS_MOST; i++) {
        const struct json *e = l->epoch[i];
        text_puts(out, "<tr>");
        cell_number(out, json_number(e, "epoch"), mem_printf(t, "%.0f", json_number(e, "epoch")));
        cell_number(out, json_number(e, "step"), mem_printf(t, "%.0f", json_number(e, "step")));
        for (size_t k = 0; k < sizeof key / sizeof *key; k++)
            cell_number(out, json_number(e, key[k]),
                        json_get(e, key[k]) ? mem_printf(t, "%.4g", json_number(e, key[k])) : "");
        text_puts(out, "</tr>\n");
    }
    table_end(out);
}

bool report_curves(struct text *out, struct tgc *t, const char *const file[2],
                   const struct text document[2], int n)
{
    struct log l[2];
    for (int i = 0; i < n; i++)
        if (!read_log(&l[i], t, file[i], &document[i]))
            return false;
    page_begin(out, n > 1 ? "Two trainings" : path_base(file[0]),
               n > 1 ? mem_printf(t, "%s and %s, logs of tgc train.", file[0], file[1])
                     : "A log of tgc train.");
    text_puts(out, "<main>\n<section id=\"curves\" aria-label=\"Curves\">\n");
    put_diagrams(out, t, l, n);
    for (int i = 0; i < n; i++)
        put_epochs(out, t, &l[i], i ? "epochs-after" : "epochs");
    text_puts(out, "</section>\n");
    page_end(out, NULL, 0);
    return true;
}
