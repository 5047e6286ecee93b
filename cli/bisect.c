/* bisect.c - tgc verify --bisect: which step of optimization makes the answer wrong.
 *
 * A step is an optional pass over one graph or kernel, or one list of opts (ir/limit.c). The same
 * command runs as a process of its own with TGC_OPT_LIMIT=N, so that a crash is an answer, too:
 *
 *      N       0      ...      n - 1      n      ...      all
 *      answer  right           right    wrong             wrong
 *
 * Right and wrong may alternate in between; step n is one of those that turn right into wrong.
 */
#include "backends/process.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a run with a limit said: whether the answer is right, and ir/limit.c's figures. */
struct trial {
    int status;
    long steps;
    const char *last, *next;
};

void limit_print(const struct tgc *t, FILE *to)
{
    if (t->limit)
        fprintf(to, "TGC_OPT_LIMIT: %ld of %ld steps\n  the last: %s\n  the next: %s\n",
                t->limit->most < t->limit->n ? t->limit->most : t->limit->n, t->limit->n,
                t->limit->last, t->limit->next);
}

/* The rest of the last line that begins with `head`. */
static const char *line_after(struct tgc *t, const char *text, const char *head)
{
    const char *found = NULL;
    for (const char *s = text; (s = strstr(s, head)); s += strlen(head))
        found = s + strlen(head);
    return found ? mem_printf(t, "%.*s", (int)strcspn(found, "\n"), found) : NULL;
}

static const char *read_all(struct tgc *t, FILE *f)
{
    struct text x = {.t = t};
    rewind(f);
    for (int c; (c = getc(f)) != EOF;)
        text_putc(&x, c ? (char)c : ' ');
    return x.s ? x.s : "";
}

static bool run_trial(struct tgc *t, const struct options *o, const char *program, long most,
                      struct trial *result)
{
    const char **word = mem_array(t, o->nword + 4, sizeof *word);
    int n = 0, nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    FILE *said = tmpfile();
    word[n++] = program;
    for (size_t i = 0; i < o->nword; i++)
        if (strcmp(o->word[i], "--bisect") != 0)
            word[n++] = o->word[i];
    if (!o->data && !o->nother)
        word[n++] = "--other=-O0";
    if (!said || nothing < 0 ||
        setenv("TGC_OPT_LIMIT", mem_printf(t, "%ld", most), 1) != 0)
        return diag_error(t, NULL, "cannot start tgc once more: %s", strerror(errno));
    struct process p = {.word = word, .file = {nothing, nothing, fileno(said)}};
    progress(t, "bisect: %ld steps", most);
    int status = process_run(t, &p);
    progress_end(t);
    const char *text = read_all(t, said), *of = line_after(t, text, "TGC_OPT_LIMIT: ");
    fclose(said);
    close(nothing);
    if (status < 0)
        return diag_error(t, NULL, "cannot start %s: %s", program, strerror(-status));
    if (status == EXIT_USAGE || (status == EXIT_FAILED && most == 0))
        return diag_error(t, NULL, "the command does not work without optimization either:\n%s",
                          text);
    *result = (struct trial){.status = status,
                             .steps = of && strstr(of, " of ") ? atol(strstr(of, " of ") + 4) : 0,
                             .last = line_after(t, text, "  the last: "),
                             .next = line_after(t, text, "  the next: ")};
    return true;
}

static const char *how(struct tgc *t, const struct trial *r)
{
    return r->status == EXIT_MISMATCH ? "the answer is wrong"
           : r->status == EXIT_BUG    ? "tgc ends with a bug of its own"
           : r->status > 128          ? mem_printf(t, "it ends by signal %d", r->status - 128)
                                      : mem_printf(t, "it fails with exit status %d", r->status);
}

enum exit_status cmd_bisect(struct tgc *t, const struct options *o)
{
    if (strcmp(o->model, "-") == 0) {
        diag_error(t, NULL,
                   "--bisect reads the model many times, and standard input once: give a file");
        return EXIT_FAILED;
    }
    enum { ALL = 999999999 };
    char program[4096];
    struct trial none, all, good, now;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) {
        diag_error(t, NULL, "cannot find this program's file: %s", strerror(errno));
        return EXIT_FAILED;
    }
    program[n] = 0;
    if (!run_trial(t, o, program, ALL, &all) || !run_trial(t, o, program, 0, &none))
        return EXIT_FAILED;
    if (all.status == EXIT_DONE) {
        puts("ok: with all steps of optimization the answer is right");
        return EXIT_DONE;
    }
    if (none.status != EXIT_DONE) {
        printf("without any step of optimization %s: a pass that always runs, the frontend, or the "
               "target does it\n",
               how(t, &none));
        return EXIT_MISMATCH;
    }
    long right = 0, wrong = all.steps > 0 ? all.steps : ALL;
    good = none;
    while (wrong - right > 1) {
        long middle = right + (wrong - right) / 2;
        if (!run_trial(t, o, program, middle, &now))
            return EXIT_FAILED;
        if (now.status == EXIT_DONE)
            right = middle, good = now;
        else
            wrong = middle, all = now;
    }
    printf("step %ld: %s\nwith %ld steps the answer is right, with %ld %s\n", wrong,
           good.next ? good.next : "unknown", right, wrong, how(t, &all));
    printf("look at it: DEBUG=4 TGC_OPT_LIMIT=%ld\n", wrong);
    return EXIT_MISMATCH;
}
