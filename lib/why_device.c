/* why_device.c - tgc info --why of a device: for each kernel, the schedule that was chosen and the
 * best of each other kind, with the parts of their estimated times (passes/target/compared.h).
 *
 *          us  ratio  arithmetic   memory  latency   launch  overlap     bias
 *       6.407   1.00       0.776    0.927    0.398        5   -0.714   0.0208  chosen: ...
 *
 * Times are as the chooser compared them. A kind that a rule puts after the chosen one has not been
 * compared: its time, and its ratio, are those of finished programs (*). */
#include "lib/lib.h"

#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/target/compared.h"

#include <string.h>

/* LINES: of a kernel's table, the chosen one's included. REASONS: below it. */
enum { ROWS_MAX = 2 * SCHEDULE_COUNT, LINES = 5, REASONS = 3 };
enum standing { CHOSEN, SLOWER, BY_RULE, REFUSED, INAPPLICABLE };
static const char *const states[] = {"chosen", "slower", "rule", "refused", "inapplicable"};

/* us: 0: it has no estimate. by_program: it is estimated from its program. */
struct row {
    enum schedule_kind kind;
    enum standing state;
    double us, ratio;
    struct grid_parts parts;
    bool by_program;
    const char *text, *why;
};
struct rows { struct row v[ROWS_MAX]; int n; bool tuned; };

static const struct comparison *find(const struct tgc *t, const struct kernel *k)
{
    const struct tuning *s = t->tuning;
    for (int i = 0; i < s->ncompared; i++)
        if (s->compared[i]->kernel == k)
            return s->compared[i];
    return NULL;
}

/* Whether a line of a tune file chose the kernel's grid. */
static bool is_tuned(const struct tgc *t, const struct kernel *k)
{
    const struct tuning *s = t->tuning;
    for (int i = 0; i < s->nchoice; i++)
        if (s->choice[i].kernel == k && s->choice[i].taken.kind == TUNE_GRID && s->choice[i].by)
            return true;
    return false;
}

static void set_ns(struct row *r, double ns, const struct grid_parts *parts, double of)
{
    r->us = ns / 1000;
    r->ratio = of > 0 ? ns / of : 0;
    r->parts = *parts;
}

static const char *grid_text(struct tgc *t, const struct kernel *k)
{
    struct text x = {.t = t};
    text_puts(&x, "grid");
    for (int d = 0; d < k->ngrid; d++) {
        text_puts(&x, d ? " x " : " ");
        uop_print(&x, k->grid[d]);
    }
    if (k->block)
        text_printf(&x, ", blocks of %d threads", k->block);
    return x.s;
}

/* A kind that was applied to a copy of the kernel, but not compared. */
static void estimate(struct tgc *t, const struct schedule *s, const struct candidate *c,
                     double predicted, struct row *r)
{
    struct device_use use;
    r->by_program = true;
    r->text = grid_text(t, c->made);
    if (program_use(t, s, c->made, &use))
        set_ns(r, use.ns, &use.parts, predicted);
}

static bool is_before(const struct row *a, const struct row *b)
{
    if ((a->us > 0) != (b->us > 0))
        return a->us > 0;
    if (a->us > 0 && a->ratio != b->ratio)
        return a->ratio < b->ratio;
    return a->kind < b->kind;
}

static void insert(struct rows *of, const struct row *r)
{
    int at = of->n++;
    for (; at > 0 && is_before(r, &of->v[at - 1]); at--)
        of->v[at] = of->v[at - 1];
    of->v[at] = *r;
}

/* The kernel's rows, by rising time; those without an estimate last. */
static void collect(struct tgc *t, const struct schedule *s, const struct comparison *c,
                    struct rows *of)
{
    const struct device_use use = device_use(t, c->kernel);
    double chosen = c->best[c->chosen].ns > 0 ? c->best[c->chosen].ns : use.ns;
    of->tuned = is_tuned(t, c->kernel);
    for (int k = 0; k < SCHEDULE_COUNT; k++) {
        const struct candidate *best = &c->best[k], *refused = &c->refused[k];
        struct row r = {.kind = (enum schedule_kind)k,
                        .state = k == c->chosen ? CHOSEN : best->why ? BY_RULE : SLOWER,
                        .text = best->text,
                        .why = best->why};
        if (best->ns > 0)
            set_ns(&r, best->ns, &best->parts, chosen);
        else if (k == c->chosen)
            r.by_program = true, set_ns(&r, use.ns, &use.parts, use.ns);
        else if (best->made)
            estimate(t, s, best, use.ns, &r);
        if (r.us > 0)
            insert(of, &r);
        if (!refused->why || (k == c->chosen && refused->ns <= 0))
            continue;
        r = (struct row){.kind = (enum schedule_kind)k,
                         .state = refused->ns > 0 ? REFUSED : INAPPLICABLE,
                         .text = refused->text,
                         .why = refused->why};
        if (refused->ns > 0)
            set_ns(&r, refused->ns, &refused->parts, chosen);
        insert(of, &r);
    }
}

/* Width of a part's column; 0: no row has the part. */
static int width_of(const struct rows *of, int part)
{
    enum { LEAST = 7 };
    int width = (int)strlen(cost_part_name((enum grid_part)part));
    for (int i = 0; i < of->n; i++)
        if (of->v[i].us > 0 && of->v[i].parts.ns[part] != 0)
            return width < LEAST ? LEAST : width;
    return 0;
}

static void put_row(struct text *x, const struct rows *of, const struct row *r)
{
    text_printf(x, "    %8.4g%c %5.2f", r->us, r->by_program ? '*' : ' ', r->ratio);
    for (int p = 0, width; p < PART_COUNT; p++)
        if ((width = width_of(of, p)))
            text_printf(x, "  %*.3g", width, r->parts.ns[p] / 1000);
    text_printf(x, "  %s%s",
                r->state == CHOSEN    ? of->tuned ? "the model's: " : "chosen: "
                : r->state == REFUSED ? "refused: "
                                      : "",
                schedule_text(r->kind));
    if (r->text)
        text_printf(x, ": %s", r->text);
    if (r->why)
        text_printf(x, "; %s", r->why);
    text_putc(x, '\n');
}

/* Whether to say why there is no candidate: of kinds before the chosen one, and of the last one. */
static bool is_told(const struct row *r, int chosen)
{
    return r->us <= 0 && ((int)r->kind < chosen || r->kind == SCHEDULE_EACH);
}

/* The kinds without a candidate, those of one rule in a line. */
static void put_reasons(struct text *x, const struct rows *of, int chosen)
{
    bool done[ROWS_MAX] = {false};
    for (int i = 0, lines = 0; i < of->n && lines < REASONS; i++) {
        const struct row *r = &of->v[i];
        if (done[i] || !is_told(r, chosen))
            continue;
        text_puts(x, "    not by ");
        for (int j = i, n = 0; j < of->n; j++)
            if (is_told(&of->v[j], chosen) && !strcmp(of->v[j].why, r->why)) {
                text_printf(x, "%s%s", n++ ? "; " : "", schedule_text(of->v[j].kind));
                done[j] = true;
            }
        text_printf(x, ": %s\n", r->why);
        lines++;
    }
}

/* The chosen one, whatever its time, and the first others. */
static void put_rows(struct text *x, const struct rows *of)
{
    int others = 0, left = 0;
    text_printf(x, "    %8s  %5s", "us", "ratio");
    for (int p = 0, width; p < PART_COUNT; p++)
        if ((width = width_of(of, p)))
            text_printf(x, "  %*s", width, cost_part_name((enum grid_part)p));
    text_putc(x, '\n');
    for (int i = 0; i < of->n; i++) {
        const struct row *r = &of->v[i];
        if (r->us <= 0)
            continue;
        bool fits = r->state == CHOSEN || others < LINES - 1;
        if (fits)
            put_row(x, of, r);
        left += !fits;
        others += r->state != CHOSEN;
    }
    if (left)
        text_printf(x, "    and %d more: --json has all\n", left);
}

void why_compared_legend(struct text *out)
{
    static const char *const words[][2] = {
        {"us", "the sum of these parts, as the chooser estimated it; *: as its program says"},
        {"ratio", "to the chosen one, of such estimates or of programs; lines are in that order"},
        {"by rule, after X", "X applies, so this was not compared"},
        {"refused", "it was estimated faster, but an opt does not apply to the kernel"},
        {"not by X", "the rule by which there is no such candidate"},
    };
    if (out->t->tuning->ncompared == 0)
        return;
    text_puts(out, "legend: schedules\n");
    for (int p = 0; p < PART_COUNT; p++)
        text_printf(out, "    %-22s  %s\n", cost_part_name((enum grid_part)p),
                    cost_part_text((enum grid_part)p));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        text_printf(out, "    %-22s  %s\n", words[i][0], words[i][1]);
}

void why_compared(struct text *out, const struct schedule *s, const struct kernel *k)
{
    const struct comparison *c = find(out->t, k);
    if (!c || c->chosen < 0)
        return;
    struct mem_mark mark = scratch_mark(out->t);
    struct rows *of = scratch_array(out->t, 1, sizeof *of);
    collect(out->t, s, c, of);
    put_rows(out, of);
    put_reasons(out, of, c->chosen);
    scratch_release(out->t, mark);
}

static void put_string(struct text *x, const char *key, const char *value)
{
    if (!value)
        return;
    text_printf(x, ",\"%s\":", key);
    text_json(x, value);
}

static void put_row_json(struct text *x, const struct row *r)
{
    text_printf(x, "{\"kind\":\"%s\",\"state\":\"%s\"", schedule_name(r->kind), states[r->state]);
    put_string(x, "is", schedule_text(r->kind));
    put_string(x, "text", r->text);
    put_string(x, "why", r->why);
    if (r->us > 0) {
        text_printf(x, ",\"by\":\"%s\",\"us\":%.6g,\"ratio\":%.6g,\"parts\":{",
                    r->by_program ? "program" : "chooser", r->us, r->ratio);
        for (int p = 0; p < PART_COUNT; p++)
            text_printf(x, "%s\"%s\":%.6g", p ? "," : "", cost_part_name((enum grid_part)p),
                        r->parts.ns[p] / 1000);
        text_putc(x, '}');
    }
    text_putc(x, '}');
}

void why_compared_json(struct text *out, struct tgc *t, const struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct comparison *c = find(t, s->kernel[i]);
        if (!c || c->chosen < 0)
            continue;
        struct mem_mark mark = scratch_mark(t);
        struct rows *of = scratch_array(t, 1, sizeof *of);
        collect(t, s, c, of);
        text_puts(out, out->n ? ",{\"kernel\":" : "{\"kernel\":");
        text_json(out, s->kernel[i]->name);
        text_printf(out, ",\"tuned\":%s,\"candidates\":[", of->tuned ? "true" : "false");
        for (int j = 0; j < of->n; j++) {
            text_puts(out, j ? "," : "");
            put_row_json(out, &of->v[j]);
        }
        text_puts(out, "]}");
        scratch_release(t, mark);
    }
}
