/* tables.c - tables and numbers of the page. Everything that a model names goes through
 * html_put(). */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <math.h>
#include <string.h>

enum { TEXT_MOST = 240 };        /* bytes of a name that are shown */

void html_put(struct text *out, const char *s) { text_html(out, s, TEXT_MOST); }

void html_kernel(struct text *out, const char *name)
{
    text_puts(out, "<a class=\"k\" href=\"#kernels/");
    html_put(out, name);
    text_puts(out, "\">");
    html_put(out, name);
    text_puts(out, "</a>");
}

void html_heading(struct text *out, const char *id, const char *title, const char *words)
{
    text_printf(out, "<section id=\"%s\" aria-labelledby=\"h-%s\">\n<h2 id=\"h-%s\">%s</h2>\n", id,
                id, id, title);
    if (words)
        text_printf(out, "<p class=\"lead\">%s</p>\n", words);
}

void table_begin(struct text *out, const char *id, const char *caption, const char *columns)
{
    text_printf(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"c-%s\">"
                     "<table id=\"%s\"><caption id=\"c-%s\">%s</caption>\n<thead><tr>",
                id, id, id, caption);
    for (const char *s = columns; *s;) {
        size_t n = strcspn(s, "|");
        bool is_number = *s == '#';
        text_printf(out, "<th scope=\"col\"%s>%.*s</th>", is_number ? " class=\"n\"" : "",
                    (int)n - is_number, s + is_number);
        s += n + (s[n] == '|');
    }
    text_puts(out, "</tr></thead>\n<tbody>\n");
}

void table_end(struct text *out) { text_puts(out, "</tbody></table></div>\n"); }

void cell_text(struct text *out, const char *s)
{
    text_puts(out, "<td>");
    html_put(out, s);
    text_puts(out, "</td>");
}

void cell_number(struct text *out, double v, const char *s)
{
    text_printf(out, "<td class=\"n\" data-v=\"%.6g\">", v);
    html_put(out, s);
    text_puts(out, "</td>");
}

void cell_bar(struct text *out, double share, double most)
{
    double part = share > 0 && most > 0 ? share / most : 0;
    text_printf(out, "<td class=\"b\" data-v=\"%.6g\"><svg class=\"bar\" viewBox=\"0 0 100 8\" "
                     "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"%.2f\" "
                     "height=\"8\"/></svg><span>%.1f %%</span></td>",
                share, 100 * part, 100 * share);
}

/* Three digits of v in the largest of n units of which it has one; each is `step` of the one
 * before. */
static const char *scaled(struct tgc *t, double v, double step, const char *const *unit, int n)
{
    int i = 0;
    for (; i < n - 1 && fabs(v) >= step * 0.9995; i++)
        v /= step;
    return mem_printf(t, fabs(v) >= 99.95 ? "%.0f %s" : "%.3g %s", v, unit[i]);
}

const char *view_time(struct tgc *t, double us)
{
    static const char *const unit[] = {"ns", "\302\265s", "ms", "s"};
    return scaled(t, 1000 * us, 1000, unit, 4);
}

const char *view_bytes(struct tgc *t, double nbytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    return scaled(t, nbytes, 1000, unit, 5);
}

const char *view_flop(struct tgc *t, double flop)
{
    static const char *const unit[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
    return scaled(t, flop, 1000, unit, 5);
}
