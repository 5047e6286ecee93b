/* times.c - the time of each kernel of a model, by the hook that is called before each kernel. */
#include "cli/cli.h"

#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"

#include <string.h>

enum { WARM_UP = 2, MIN_RUNS = 5, MAX_RUNS = 2000 };
static const double min_seconds = 0.3, max_seconds = 10;

void times_on_kernel(void *user, int index, const char *kernel)
{
    struct kernel_times *s = user;
    double now = clock_seconds();
    (void)kernel;
    if (s->open >= 0 && s->open < s->n)
        s->now[s->open] += now - s->since;
    s->open = index;
    s->since = clock_seconds();
}

static void times_on_kernel_time(void *user, int index, const char *kernel, double ns)
{
    struct kernel_times *s = user;
    (void)kernel;
    if (index < s->n)
        s->now[index] += 1e-9 * ns;
}

void times_hook(struct tgc *t, struct kernel_times *s, struct instance *p)
{
    int nkernel = p->info->kernel_count;
    *s = (struct kernel_times){.n = nkernel, .open = -1};
    s->now = mem_array(t, (size_t)nkernel + 1, sizeof *s->now);
    s->least = mem_array(t, (size_t)nkernel + 1, sizeof *s->least);
    if (instance_is_of_device(p))
        p->on_kernel_time = times_on_kernel_time;
    else
        p->on_kernel = times_on_kernel;
    p->user = s;
}

void times_begin(struct kernel_times *s)
{
    memset(s->now, 0, (size_t)s->n * sizeof *s->now);
    s->open = -1;
}

void times_end(struct kernel_times *s)
{
    for (int k = 0; k < s->n; k++)
        if (s->nrun == 0 || s->now[k] < s->least[k])
            s->least[k] = s->now[k];
    s->nrun++;
}

bool times_of_runs(struct tgc *t, struct instance *p, struct kernel_times *s)
{
    double total = 0;
    s->run = 0, s->nrun = 0;
    for (int i = -WARM_UP; i < MAX_RUNS && (i < MIN_RUNS || total < min_seconds) &&
                           (total < max_seconds || i < 1);
         i++) {
        times_begin(s);
        double start = clock_seconds();
        if (!instance_run_again(t, p))
            return false;
        double run = clock_seconds() - start;
        if (i < 0)
            continue;
        total += run;
        if (s->run == 0 || run < s->run)
            s->run = run;
        times_end(s);
    }
    return true;
}

void times_of_one_run(struct kernel_times *s)
{
    ARRAY_COPY(s->least, s->now, s->n);
}

static double times_sum(const struct kernel_times *s)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += s->least[i];
    return sum;
}

/* What is known of a kernel, from the schedule or, if the program was kept, from that. */
struct line { const char *name, *title; double flop, nbytes, ns; };

static struct line line_of(struct tgc *t, const struct model *m, const struct instance *p, int i)
{
    const struct program_kernel *x = &p->info->kernels[i];
    const struct schedule *s = m->facts ? NULL : m->schedule;
    const struct kernel *k = s ? s->kernel[i] : NULL;
    return k ? (struct line){k->name, k->title, k->flop, k->nbytes, kernel_cost(t, s, k).ns}
             : (struct line){x->name, x->title, x->flop, x->bytes, p->predicted[i]};
}

void times_write(struct text *out, struct tgc *t, const struct model *m, const struct instance *p,
                 const struct kernel_times *times)
{
    double sum = times_sum(times);
    int width = 6;
    for (int i = 0; i < times->n; i++) {
        int n = (int)strlen(line_of(t, m, p, i).name);
        width = n > width ? n : width;
    }
    text_printf(out, "%10s %6s %8s %8s %10s  %-*s  what\n", "us", "share", "GFLOP/s", "GB/s",
                "predicted", width, "kernel");
    for (int i = 0; i < times->n; i++) {
        const struct line k = line_of(t, m, p, i);
        double seconds = times->least[i];
        text_printf(out, "%10.2f %5.1f%% ", 1e6 * seconds, sum > 0 ? 100 * seconds / sum : 0);
        if (seconds > 0)
            text_printf(out, "%8.3g %8.3g", k.flop / seconds / 1e9, k.nbytes / seconds / 1e9);
        else
            text_printf(out, "%8s %8s", "-", "-");     /* in a branch that was not taken */
        text_printf(out, " %10.2f  %-*s  ", k.ns / 1000, width, k.name);
        text_comment(out, k.title ? k.title : "");
        text_putc(out, '\n');
    }
}

void times_write_json(struct text *out, struct tgc *t, const struct model *m,
                      const struct instance *p, const struct kernel_times *times)
{
    double sum = times_sum(times);
    for (int i = 0; i < times->n; i++) {
        const struct line k = line_of(t, m, p, i);
        double seconds = times->least[i];
        text_printf(out, "%s{\"name\":\"%s\",\"title\":", i ? "," : "", k.name);
        text_json(out, k.title ? k.title : "");
        text_printf(out, ",\"us\":%.6g,\"predicted_us\":%.4g,\"share\":%.6g", 1e6 * seconds,
                    k.ns / 1000, sum > 0 ? seconds / sum : 0);
        if (seconds > 0)
            text_printf(out, ",\"gflops\":%.6g,\"gbytes_per_second\":%.6g}", k.flop / seconds / 1e9,
                        k.nbytes / seconds / 1e9);
        else
            text_puts(out, ",\"gflops\":null,\"gbytes_per_second\":null}");
    }
}

void times_print(struct tgc *t, const struct model *m, const struct instance *p,
                 const struct kernel_times *times)
{
    struct text x = {.t = t};
    times_write(&x, t, m, p, times);
    for (const char *s = x.s; *s; s += strcspn(s, "\n") + 1) {
        print_escaped(stderr, mem_printf(t, "%.*s", (int)strcspn(s, "\n"), s));
        fputc('\n', stderr);
    }
}

void times_print_one_run(struct tgc *t, const struct model *m, const struct instance *p,
                         struct kernel_times *times)
{
    if (t->debug < 2)
        return;
    times_of_one_run(times);
    times_print(t, m, p, times);
}
