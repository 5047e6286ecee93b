/* train_plot.c - the curves of a training as a picture, SVG: the loss by epoch on a logarithmic
 * axis, and beside it, for classes, the share that is wrong, likewise. A line is of the training
 * set, a second one of --valid; the best epoch of the latter has a dot.
 */
#include "lib/train.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 460, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 34, BOTTOM = 40, TICKS = 6 };
static const double decade = 10, least_share = 1e-4;

/* A diagram: two lines over the epochs. */
struct diagram {
    const char *title;
    const double *value[2];         /* [n] each; [1] NULL: there is no --valid */
    const char *name[2];
    int n, first;                   /* the number of the first epoch */
    double low, high;               /* of the axis, powers of ten */
    double at;                      /* its left edge */
};

static const char *const colors[] = {"#1f6feb", "#d1570f"};

static double x_of(const struct diagram *d, int i)
{
    double share = d->n > 1 ? (double)i / (d->n - 1) : 0.5;
    return d->at + LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct diagram *d, double v)
{
    double share = (log10(v < d->low ? d->low : v) - log10(d->low)) /
                   (log10(d->high) - log10(d->low));
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

/* Whole decades around all values; NaN and infinity do not count. */
static void find_range(struct diagram *d)
{
    double low = HUGE_VAL, high = 0;
    for (int k = 0; k < 2 && d->value[k]; k++)
        for (int i = 0; i < d->n; i++) {
            double v = d->value[k][i];
            if (!isfinite(v) || v <= 0)
                continue;
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
    d->low = isfinite(low) ? pow(decade, floor(log10(low))) : 1;
    d->high = high > 0 ? pow(decade, ceil(log10(high))) : decade;
    if (d->high <= d->low)
        d->high = d->low * decade;
}

static void put_text(struct text *x, double at, double y, const char *anchor, const char *s)
{
    text_printf(x, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", at, y, anchor, s);
}

/* Lines at powers of ten, thinner ones at their multiples where there are few decades. */
static void put_axes(struct text *x, struct tgc *t, const struct diagram *d)
{
    double left = d->at + LEFT, right = d->at + WIDTH - RIGHT;
    bool is_fine = d->high / d->low < 1001;
    for (double power = d->low; power <= d->high * 1.001; power *= decade)
        for (int k = 1; k < 10 && (double)k * power <= d->high * 1.001; k++) {
            double y = y_of(d, k * power);
            if (k > 1 && !is_fine)
                continue;
            text_printf(x, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/>\n",
                        k == 1 ? "grid" : "fine", left, y, right);
            if (k == 1)
                put_text(x, left - 8, y + 4, "end", mem_printf(t, "%g", power));
        }
    int step = (d->n + TICKS - 1) / TICKS;
    for (int i = 0; i < d->n; i += step > 0 ? step : 1)
        put_text(x, x_of(d, i), HEIGHT - BOTTOM + 18, "middle", mem_printf(t, "%d", d->first + i));
    put_text(x, (left + right) / 2, HEIGHT - 6, "middle", "epoch");
}

static void put_line(struct text *x, const struct diagram *d, int k)
{
    int best = -1;
    bool is_open = false;
    text_printf(x, "<path class=\"line\" stroke=\"%s\" d=\"", colors[k]);
    for (int i = 0; i < d->n; i++) {
        double v = d->value[k][i];
        if (!isfinite(v)) {
            is_open = false;
            continue;
        }
        text_printf(x, "%c%.1f %.1f", is_open ? 'L' : 'M', x_of(d, i), y_of(d, v));
        is_open = true;
        best = best < 0 || v < d->value[k][best] ? i : best;
    }
    text_puts(x, "\"/>\n");
    if (best >= 0 && (k == 1 || d->n == 1))
        text_printf(x, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x_of(d, best),
                    y_of(d, d->value[k][best]), colors[k]);
}

static void put_diagram(struct text *x, struct tgc *t, struct diagram *d)
{
    find_range(d);
    text_printf(x, "<text class=\"title\" x=\"%.1f\" y=\"18\">%s</text>\n", d->at + LEFT, d->title);
    put_axes(x, t, d);
    for (int k = 0; k < 2 && d->value[k]; k++) {
        put_line(x, d, k);
        double right = d->at + WIDTH - RIGHT - (k ? 0 : 96);
        text_printf(x,
                    "<text x=\"%.1f\" y=\"18\" text-anchor=\"end\" style=\"fill:%s\">%s %.4g"
                    "</text>\n",
                    right, colors[k], d->name[k], d->value[k][d->n - 1]);
    }
}

static double *column(struct trainer *r, const struct train_epoch *e, int n, size_t offset,
                      bool is_share)
{
    double *v = mem_array(r->t, (size_t)n + 1, sizeof *v);
    for (int i = 0; i < n; i++) {
        memcpy(&v[i], (const char *)&e[i] + offset, sizeof *v);
        v[i] = !is_share ? v[i] : 1 - v[i] > least_share ? 1 - v[i] : least_share;
    }
    return v;
}

static void put_svg(struct text *x, struct trainer *r, const struct train_epoch *e, int n)
{
    bool has_classes = e[0].has_accuracy, has_valid = e[0].has_valid;
    struct diagram loss = {
        .title = "loss", .name = {"train", "valid"}, .n = n, .first = e[0].epoch};
    struct diagram wrong = loss;
    loss.value[0] = column(r, e, n, offsetof(struct train_epoch, loss), false);
    loss.value[1] =
        has_valid ? column(r, e, n, offsetof(struct train_epoch, valid_loss), false) : NULL;
    wrong.title = "share that is wrong";
    wrong.at = WIDTH;
    wrong.value[0] = column(r, e, n, offsetof(struct train_epoch, accuracy), true);
    wrong.value[1] =
        has_valid ? column(r, e, n, offsetof(struct train_epoch, valid_accuracy), true) : NULL;
    int width = has_classes ? 2 * WIDTH : WIDTH;
    text_printf(x,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
                "<style>text{fill:#57606a}.title{font-size:14px;font-weight:600;fill:#1f2328}"
                ".grid{stroke:#d0d7de;fill:none}.fine{stroke:#eaeef2;fill:none}"
                ".line{fill:none;stroke-width:2;stroke-linejoin:round}</style>\n"
                "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                width, HEIGHT, width, HEIGHT, width, HEIGHT);
    put_diagram(x, r->t, &loss);
    if (has_classes)
        put_diagram(x, r->t, &wrong);
    text_puts(x, "</svg>\n");
}

bool train_plot(struct trainer *r, const struct train_epoch *e, int n)
{
    const char *path = r->o.training.plot;
    struct text x = {.t = r->t};
    if (!path || !n)
        return true;
    put_svg(&x, r, e, n);
    struct outputs *files = outputs_new(r->t);
    FILE *f = outputs_open(files, path);
    if (f && fwrite(x.s, 1, x.n, f) == x.n)
        return outputs_commit(files);
    if (f)
        diag_error(r->t, &(struct place){.file = path}, "cannot be written: %s", strerror(errno));
    outputs_discard(files);
    return false;
}
