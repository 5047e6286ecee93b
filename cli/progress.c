/* progress.c - tells the person at the terminal what is being done.
 *
 * A line about long work replaces the one before, and is removed when the work is done. There is
 * none if stderr is not a terminal.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void show_progress(void *user, const char *what)
{
    (void)user;
    fputs("\r\033[K", stderr);
    fputs(what, stderr);
    fflush(stderr);
}

static void show_stage(void *user, const char *what, double seconds, size_t mem_used)
{
    (void)user;
    fprintf(stderr, "%-26s %10.3f ms %8.1f MB\n", what, 1e3 * seconds, (double)mem_used / 1e6);
}

static void show_text(void *user, const char *text)
{
    (void)user;
    print_lines_escaped(stderr, text);
}

static bool progress_is_wanted(const struct options *o)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0 && !o->verbose &&
           !o->diagnostics_json;
}

const struct listener *listen_for_terminal(struct tgc *t, const struct options *o)
{
    struct listener *l = MEM_NEW(t, struct listener);
    l->on_progress = progress_is_wanted(o) ? show_progress : NULL;
    l->on_stage = o->verbose || o->debug >= 1 ? show_stage : NULL;
    l->on_text = show_text;
    l->on_temporary = unfinished_note;
    l->on_process = unfinished_note_process;
    l->on_critical = unfinished_critical;
    unfinished_catch_signals();
    return l;
}
