/* cmd_run.c - tgc run: compile, run here, write the outputs. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static bool write_outputs(struct tgc *t, const struct options *o, const struct model *m,
                          const struct instance *p)
{
    if (mkdir(o->out_dir, 0777) != 0 && errno != EEXIST)
        return diag_error(t, &(struct place){.file = o->out_dir},
                          "the directory cannot be made: %s", strerror(errno));
    struct outputs *files = outputs_new(t);
    model_protect_files(o, m, files);
    for (int i = 0; i < p->info->output_count; i++) {
        if (!instance_has(p, true, i))
            continue;
        const char *path = mem_printf(t, "%s/%s.npy", o->out_dir,
                                      file_name_of(t, p->output[i].name));
        FILE *f = outputs_open(files, path);
        if (!f || !npy_write(t, f, path, &p->output[i])) {
            outputs_discard(files);
            return false;
        }
    }
    return outputs_commit(files);
}

static void print_summary(struct tgc *t, const struct instance *p)
{
    for (int i = 0; i < p->info->output_count; i++) {
        if (!instance_has(p, true, i))
            continue;
        struct text x = {.t = t};
        array_summary(&x, &p->output[i]);
        print_escaped(stdout, p->output[i].name);
        printf(": %s ", array_type_text(t, &p->output[i]));
        print_escaped(stdout, x.s);
        putchar('\n');
    }
}

enum exit_status cmd_run(struct tgc *t, const struct options *given)
{
    struct options o = *given;
    struct model m;
    struct feed f;
    struct instance p;
    struct kernel_times times;
    if (!instance_obtain(t, &o, &m, &f, feed_read, &p) || !feed_instance(t, &f, &p) ||
        !instance_choose_entry(t, &o, true, &p))
        return EXIT_FAILED;
    if (t->debug >= 2)
        times_hook(t, &times, &p);
    if (!instance_prepare(t, &o, &p))
        return EXIT_FAILED;
    double start = clock_seconds();
    for (int i = 0; i < o.steps; i++) {
        if (t->debug >= 2)
            times_begin(&times); /* the last run's are printed */
        if (!instance_run(t, &p))
            return EXIT_FAILED;
    }
    report_stage(t, o.steps > 1 ? mem_printf(t, "%d runs", o.steps) : "run", start);
    times_print_one_run(t, &m, &p, &times);
    bool ok = true;
    if (o.out_dir)
        ok = write_outputs(t, &o, &m, &p);
    else
        print_summary(t, &p);
    instance_print_maker(&p, NULL);
    instance_close(&p);
    return ok ? EXIT_DONE : EXIT_FAILED;
}
