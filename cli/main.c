/* main.c - the process: one compile, its diagnostics, its exit status. The only place that ends the
 * process. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name) { return getenv(name); }

static enum exit_status print_what_is_asked(struct tgc *t, const struct options *o)
{
    struct text x = {.t = t};
    if (o->print == OPTION_HELP)
        help_write(&x, o->topic);
    else if (o->print == OPTION_VERSION)
        version_write(&x);
    else if (o->print == OPTION_MAN)
        man_write(&x);
    else
        completion_write(&x, o->shell);
    fwrite(x.s, 1, x.n, stdout);
    return EXIT_DONE;
}

static enum exit_status print_info(struct tgc *t, const struct options *o)
{
    struct text x = {.t = t};
    if (!info_write(&x, t, o))
        return EXIT_FAILED;
    if (o->json)
        fputs(x.s, stdout);
    else
        print_lines_escaped(stdout, x.s);
    return EXIT_DONE;
}

static enum exit_status dispatch(struct tgc *t, struct options *o)
{
    limits_set(t, o);
    o->subject = o->model && strcmp(o->model, "-") == 0 ? "<stdin>" : o->model;
    switch (o->command) {
    case COMMAND_COMPILE:
        return compile_model(t, o, outputs_new(t)) ? EXIT_DONE : EXIT_FAILED;
    case COMMAND_RUN:
        return cmd_run(t, o);
    case COMMAND_VERIFY:
        return o->bisect ? cmd_bisect(t, o) : cmd_verify(t, o);
    case COMMAND_BENCH:
        return cmd_bench(t, o);
    case COMMAND_INFO:
        return print_info(t, o);
    case COMMAND_OPS:
        return cmd_ops(t, o);
    case COMMAND_REPORT:
        return cmd_report(t, o);
    case COMMAND_CACHE:
        return cmd_cache(t, o);
    case COMMAND_DEVICES:
        return cmd_devices(t, o);
    case COMMAND_TRAIN:
        return cmd_train(t, o);
    case COMMAND_WEIGHTS:
        return weights_from_block(t, o, outputs_new(t)) ? EXIT_DONE : EXIT_FAILED;
    case COMMAND_TUNE:
        return cmd_tune(t, o);
    case COMMAND_HELP:
    case COMMAND_COUNT:
        break;
    }
    TGC_BUG(t, "no function for the command %s", command_name(o->command));
}

static void print_hints(const struct tgc *t, const struct options *o, enum exit_status status)
{
    if (o->diagnostics_json)
        return;
    if (status == EXIT_USAGE)
        fputs("tgc help lists commands and options, tgc help COMMAND those of one\n", stderr);
    if (t->bug)
        fputs("This is a bug in tgc " TGC_VERSION ", not in your model. Please report it with the "
                                                  "line above, the command line and, if you can,\n"
              "the model; -O0 may get you around it meanwhile.\n",
              stderr);
}

/* VIZ=1, of commands that write no report themselves. */
static enum exit_status add_report(const struct options *o)
{
    struct tgc *own = tgc_new(0);
    volatile bool ok = false;    /* what setjmp() returns to */
    if (!own)
        return EXIT_FAILED;
    struct options copy = *o;
    if (setjmp(own->stop) == 0) {
        limits_set(own, &copy);
        own->listener = listen_for_terminal(own, &copy);
        ok = viz_write(own, &copy);
    }
    enum exit_status status = own->bug ? EXIT_BUG : ok ? EXIT_DONE : EXIT_FAILED;
    messages_print(own, &copy, stderr);
    print_hints(own, &copy, status);
    tgc_free(own);
    return status;
}

static enum exit_status run(struct tgc *t, int argc, const char *const *argv, struct options *o)
{
    if (!options_parse(t, argc, argv, variable, o))
        return EXIT_USAGE;
    if (o->print != OPTION_COUNT)
        return print_what_is_asked(t, o);
    t->listener = listen_for_terminal(t, o);
    double start = clock_seconds();
    enum exit_status status = dispatch(t, o);
    if (viz_is_apart(o) && status == EXIT_DONE)
        status = add_report(o);
    report_stage(t, "total", start);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_DONE) {
        diag_error(t, NULL, "writing to standard output failed");
        status = EXIT_FAILED;
    }
    return status;
}

int main(int argc, char **argv)
{
    /* as options_parse() left it, even if tgc_stop() ends the compile */
    static struct options o;
    struct tgc *t = tgc_new(0);
    enum exit_status status;
    if (!t) {
        fputs("tgc: error: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    if (setjmp(t->stop) == 0)
        status = run(t, argc, (const char *const *)argv, &o);
    else
        status = t->bug ? EXIT_BUG : EXIT_FAILED;
    fflush(stdout);
    messages_print(t, &o, stderr);
    limit_print(t, stderr);
    print_hints(t, &o, status);
    tgc_free(t);
    return (int)status;
}
