/* unfinished.c - a signal that ends the process removes its unfinished files.
 *
 * They are listed in a table that a handler can read: the one piece of state of tgc outside a struct
 * tgc, because a handler gets no argument. Only the main thread writes it, and an entry is valid once
 * `used` is set. A file that finds no place in it stays where a signal ends the process.
 */
#include "cli/cli.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PENDING = 1024 };

struct pending { char path[PATH_MAX]; bool is_directory; volatile sig_atomic_t used; };
static struct pending pending[MAX_PENDING];

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGXCPU, SIGXFSZ};

/* Uses only what is safe in a handler: unlink and rmdir. */
static void remove_all(void)
{
    for (int directories = 0; directories < 2; directories++) { /* files first */
        for (int i = 0; i < MAX_PENDING; i++) {
            if (!pending[i].used || pending[i].is_directory != directories)
                continue;
            if (directories)
                rmdir(pending[i].path);
            else
                unlink(pending[i].path);
        }
    }
}

static void on_signal(int signal_number)
{
    remove_all();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void catch_signals(void)
{
    for (size_t i = 0; i < sizeof fatal_signals / sizeof *fatal_signals; i++) {
        struct sigaction old, action = {.sa_handler = on_signal};
        sigemptyset(&action.sa_mask);
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(fatal_signals[i], &action, NULL);
    }
}

static void add(const char *path, bool is_directory)
{
    size_t n = strlen(path) + 1;
    catch_signals();
    for (int i = 0; i < MAX_PENDING && n <= sizeof pending->path; i++) {
        if (pending[i].used)
            continue;
        memcpy(pending[i].path, path, n);
        pending[i].is_directory = is_directory;
        pending[i].used = 1;
        return;
    }
}

void unfinished_note(void *user, const char *path, bool is_directory, bool appears)
{
    (void)user;
    if (appears)
        add(path, is_directory);
    for (int i = 0; i < MAX_PENDING && !appears; i++)
        if (pending[i].used && strcmp(pending[i].path, path) == 0)
            pending[i].used = 0;
}
