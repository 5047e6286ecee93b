/* cmd_bench.c - tgc bench: the time of a run on this machine.
 *
 * Runs until both MIN_RUNS and MIN_SECONDS are reached after a warm-up; reports the least and the
 * median, since a mean says more about the machine's other work than about the model. Runs that are
 * too short for the clock are timed several at once. Kernels are timed in runs of their own, since
 * the clock is read before each.
 */
#include "cli/cli.h"
#include "lib/report/report.h"
#include "backends/program/program.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3, MIN_RUNS = 10, MAX_RUNS = 100000, MAX_AT_ONCE = 1000 };
static const double min_seconds = 1.0, max_seconds = 30.0, least_timed = 20e-6;

static int compare_doubles(const void *a, const void *b)
{
    double x, y;
    x = *(const double *)a;
    y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Seconds of one run, as the mean of several; negative: a run failed. Full states are reset. */
static double time_runs(struct tgc *t, struct instance *p, int runs)
{
    double start = clock_seconds();
    for (int i = 0; i < runs; i++)
        if (!instance_run_again(t, p))
            return -1;
    return (clock_seconds() - start) / runs;
}

/* Seconds of a run, sorted; each is the mean of *at_once runs. NULL: a run failed. */
static double *measure(struct tgc *t, struct instance *p, int *n, int *at_once)
{
    double *seconds = mem_array(t, MAX_RUNS, sizeof *seconds), total = 0, warm = 0;
    for (int i = 0; i < WARM_UP; i++)
        if ((warm = time_runs(t, p, 1)) < 0)
            return NULL;
    *at_once = warm * MAX_AT_ONCE < least_timed ? MAX_AT_ONCE
               : warm < least_timed             ? (int)(least_timed / warm) + 1
                                                : 1;
    for (*n = 0;
         *n < MAX_RUNS && (*n < MIN_RUNS || total < min_seconds) && (total < max_seconds || *n < 1);
         ++*n) {
        seconds[*n] = time_runs(t, p, *at_once);
        if (seconds[*n] < 0)
            return NULL;
        total += seconds[*n] * *at_once;
    }
    qsort(seconds, (size_t)*n, sizeof *seconds, compare_doubles);
    return seconds;
}

static void put_seconds(struct text *x, const char *what, double s)
{
    if (s >= 1e-3)
        text_printf(x, "%s %.3f ms", what, 1e3 * s);
    else if (s >= 1e-6)
        text_printf(x, "%s %.2f µs", what, 1e6 * s);
    else
        text_printf(x, "%s %.1f ns", what, 1e9 * s);
}

/* The sizes of the run's open dimensions: what was measured is that size, and not
 * all up to the bound. */
static void put_sizes(struct text *x, const struct instance *p, bool json)
{
    const struct program_info *info = p->info;
    for (int i = 0, n = 0; i < info->symbol_count; i++) {
        if (info->symbols[i].offset == (size_t)-1)
            continue;                              /* follows from others */
        text_puts(x, n++ ? json ? "," : ", " : json ? "" : " at ");
        if (json)
            text_json(x, info->symbols[i].name);
        else
            text_puts(x, info->symbols[i].name);
        text_printf(x, "%c%lld", json ? ':' : '=', (long long)p->symbol[i]);
    }
}

/* What was measured: seconds[n] of runs, sorted, and the kernels' times. */
struct result {
    const struct instance *p;
    const struct model *m;
    const struct kernel_times *times;
    const double *seconds;
    int n, at_once;
};

static double rate_of(const struct result *r)
{
    return r->seconds[0] > 0 ? r->p->info->flop / r->seconds[0] : 0;
}

static void put_json(struct text *x, const struct options *o, const struct result *r)
{
    const struct program_info *info = r->p->info;
    text_puts(x, "{\"name\":");
    text_json(x, info->name);
    text_puts(x, ",\"ran_by\":");
    text_json(x, r->p->made_by);
    text_printf(x,
                ",\"target\":\"%s\",\"threads\":%d,\"runs\":%d,\"min_seconds\":%.9g,\"median_"
                "seconds\":%.9g,\"flop\":%.17g,"
                "\"gflops\":%.6g,\"kernels\":%d,\"arena_bytes\":%zu,\"weight_bytes\":%zu,"
                "\"kernel_times\":[",
                info->target, o->threads, r->n * r->at_once, r->seconds[0], r->seconds[r->n / 2],
                info->flop, rate_of(r) / 1e9, info->kernel_count, info->arena_bytes,
                info->weights_bytes);
    times_write_json(x, x->t, r->m, r->p, r->times);
    text_puts(x, "],\"sizes\":{");
    put_sizes(x, r->p, true);
    text_puts(x, "}}");
}

static void print_result(struct tgc *t, const struct options *o, const struct result *r)
{
    const struct program_info *info = r->p->info;
    struct text x = {.t = t};
    if (o->json) {
        put_json(&x, o, r);
        text_putc(&x, '\n');
    } else {
        text_puts(&x, info->name);
        put_sizes(&x, r->p, false);
        text_putc(&x, ':');
        put_seconds(&x, " min", r->seconds[0]);
        put_seconds(&x, ", median", r->seconds[r->n / 2]);
        text_printf(&x, " of %d runs, %.3g GFLOP/s, %d kernels, %d thread%s\n", r->n * r->at_once,
                    rate_of(r) / 1e9, info->kernel_count, o->threads, o->threads == 1 ? "" : "s");
        times_write(&x, t, r->m, r->p, r->times);
    }
    fputs(x.s, stdout);
}

/* -o OUT.html or OUT.json, and what VIZ=1 asks for. */
static bool write_report(struct tgc *t, const struct options *o, const struct result *r)
{
    struct outputs *files = outputs_new(t);
    struct text bench = {.t = t};
    const char *name = r->p->info->name, *beside = report_path(t, o, name);
    bool ok = true;
    put_json(&bench, o, r);
    model_protect_files(o, r->m, files);
    if (o->output || o->trace)
        ok = report_write(t, o, r->m, name, bench.s, o->output, files);
    if (o->viz && ok && !(o->output && strcmp(beside, o->output) == 0)) {
        diag_note(t, &(struct place){.file = beside}, "the visual report (VIZ=1)");
        struct options page = *o;
        page.trace = NULL;
        ok = report_write(t, &page, r->m, name, bench.s, beside, files);
    }
    ok = ok && outputs_commit(files);
    if (!ok)
        outputs_discard(files);
    return ok;
}

enum exit_status cmd_bench(struct tgc *t, const struct options *given)
{
    struct options o = *given;
    struct model m;
    struct feed f;
    struct instance p;
    struct kernel_times times;
    int n, at_once;
    bool ok = true, reports = o.output || o.viz || o.trace;
    if (reports) {
        report_prepare(&o);
        o.no_code_cache = true;              /* what is kept has no schedule */
    }
    if (!instance_obtain(t, &o, &m, &f, feed_read, &p) || !feed_instance(t, &f, &p) ||
        !instance_choose_entry(t, &o, true, &p) ||
        !instance_prepare(t, &o, &p))
        return EXIT_FAILED;
    progress(t, "%s: measuring", m.stem);
    const double *seconds = measure(t, &p, &n, &at_once);
    progress_end(t);
    if (seconds) {
        times_hook(t, &times, &p);
        if (!instance_restart(t, &o, &p) || !times_of_runs(t, &p, &times))
            return EXIT_FAILED;
        const struct result r = {&p, &m, &times, seconds, n, at_once};
        if (!o.output || strcmp(o.output, "-") != 0)
            print_result(t, &o, &r);
        ok = !reports || write_report(t, &o, &r);
        if (!o.json)
            instance_print_maker(&p, NULL);
    }
    instance_close(&p);
    return seconds && ok ? EXIT_DONE : EXIT_FAILED;
}
