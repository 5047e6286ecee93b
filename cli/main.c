/* main.c - the process: one compile, its diagnostics, its exit status. The only place that ends the
 * process. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A hostile file of a few megabytes may use less than half a gigabyte; a real model gets memory for
 * copies of its weights. */
static const size_t base_memory = (size_t)400 << 20;
enum { MEMORY_PER_BYTE = 12 };
/* standard input that is not a file: its size is unknown */
static const size_t stream_memory = (size_t)4 << 30;

static const char *variable(const char *name) { return getenv(name); }

static size_t default_memory(const struct options *o)
{
    struct stat st;
    bool is_stdin = !o->model || strcmp(o->model, "-") == 0;
    size_t limit = base_memory, more;
    if ((is_stdin ? fstat(0, &st) : stat(o->model, &st)) != 0 || !S_ISREG(st.st_mode))
        return is_stdin && o->model ? stream_memory : limit;
    if (!size_mul((size_t)st.st_size, MEMORY_PER_BYTE, &more) || !size_add(limit, more, &limit))
        return SIZE_MAX;
    return limit;
}

/* A quarter of the machine's memory is left to others. */
static size_t default_run_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), nbytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && nbytes > 0 ? (size_t)pages / 4 * 3 * (size_t)nbytes : 0;
}

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

static enum exit_status dispatch(struct tgc *t, struct options *o)
{
    t->mem_limit = o->max_memory ? o->max_memory : default_memory(o);
    t->run_limit = o->max_memory ? o->max_memory : default_run_memory();
    o->subject = o->model && strcmp(o->model, "-") == 0 ? "<stdin>" : o->model;
    o->load.budget_per_external_byte = o->max_memory ? 0 : 2;
    switch (o->command) {
    case COMMAND_COMPILE:
        return compile_to_files(t, o) ? EXIT_DONE : EXIT_FAILED;
    case COMMAND_RUN:
        return cmd_run(t, o);
    case COMMAND_VERIFY:
        return cmd_verify(t, o);
    case COMMAND_BENCH:
        return cmd_bench(t, o);
    case COMMAND_INFO:
        return cmd_info(t, o);
    case COMMAND_OPS:
        return cmd_ops(t, o);
    case COMMAND_TUNE:
        return cmd_tune(t, o);
    case COMMAND_HELP:
    case COMMAND_COUNT:
        break;
    }
    TGC_BUG(t, "no function for the command %s", command_name(o->command));
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
    report_stage(t, "total", start);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_DONE) {
        diag_error(t, NULL, "writing to standard output failed");
        status = EXIT_FAILED;
    }
    return status;
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
    print_hints(t, &o, status);
    tgc_free(t);
    return (int)status;
}
