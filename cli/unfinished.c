/* unfinished.c - what happens when a signal ends the process: programs that work for it are ended,
 * and its unfinished files are removed. Then the process ends as it would have without all this.
 *
 * Both are listed in tables that a handler can read: the one piece of state of tgc outside a struct
 * tgc, because a handler gets no argument. Only the main thread writes them. An entry is valid once
 * `owner` is set: the process that made it, since what fork() copies is not the child's to remove.
 * A file that finds no place in its table stays where a signal ends the process.
 *
 *      IDLE ── critical begins ──> CRITICAL ── signal n ──> CRITICAL + n ── critical ends ──> end
 */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PENDING = 1024, MAX_PROCESSES = 8, STEP_MS = 2, PATIENCE_MS = 2000, LAST_MS = 200 };
enum { IDLE, CRITICAL };

/* The paths are apart, so that a search for a place touches few pages. */
static struct { volatile pid_t owner; bool is_directory; } pending[MAX_PENDING];
static char pending_path[MAX_PENDING][PATH_MAX];
static struct { volatile pid_t pid, owner; } process[MAX_PROCESSES];
static atomic_int state = IDLE;
static atomic_flag ending = ATOMIC_FLAG_INIT;

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGXCPU, SIGXFSZ};

/* Whether it ended within the time. */
static bool wait_for(pid_t pid)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += STEP_MS) {
        pid_t got = waitpid(pid, NULL, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))    /* or the main thread had waited for it */
            return true;
        poll(NULL, 0, STEP_MS);
    }
    return false;
}

/* Compilers that are asked to end remove what they have begun; then whoever is left has to. */
static void end_processes(void)
{
    for (int i = 0; i < MAX_PROCESSES; i++) {
        pid_t group = process[i].pid;
        if (process[i].owner != getpid())
            continue;
        kill(-group, SIGTERM);
        kill(-group, SIGCONT);
        bool ended = wait_for(group);
        kill(-group, SIGKILL);
        if (!ended)
            waitpid(group, NULL, 0);
        for (int ms = 0; ms < LAST_MS && kill(-group, 0) == 0; ms += STEP_MS)
            poll(NULL, 0, STEP_MS);
    }
}

/* Uses only what is safe in a handler. */
static void remove_all(void)
{
    for (int directories = 0; directories < 2; directories++) { /* files first */
        for (int i = 0; i < MAX_PENDING; i++) {
            if (pending[i].owner != getpid() || pending[i].is_directory != directories)
                continue;
            if (directories)
                directory_remove(pending_path[i]);
            else
                unlink(pending_path[i]);
        }
    }
}

static void end_by(int signal_number)
{
    sigset_t one;
    if (atomic_flag_test_and_set(&ending))
        return;                                     /* another thread is at it */
    end_processes();
    remove_all();
    signal(signal_number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(signal_number);
}

static void on_signal(int signal_number)
{
    int was = CRITICAL, before = errno;
    if (!atomic_compare_exchange_strong(&state, &was, CRITICAL + signal_number) && was == IDLE)
        end_by(signal_number);
    errno = before;
}

void unfinished_critical(void *user, bool begins)
{
    (void)user;
    int was = atomic_exchange(&state, begins ? CRITICAL : IDLE);
    if (!begins && was > CRITICAL)
        end_by(was - CRITICAL);
}

void unfinished_catch_signals(void)
{
    for (size_t i = 0; i < sizeof fatal_signals / sizeof *fatal_signals; i++) {
        struct sigaction old, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(fatal_signals[i], &action, NULL);
    }
}

static void add(const char *path, bool is_directory)
{
    size_t n = strlen(path) + 1;
    for (int i = 0; i < MAX_PENDING && n <= PATH_MAX; i++) {
        if (pending[i].owner == getpid())
            continue;
        pending[i].owner = 0;
        memcpy(pending_path[i], path, n);
        pending[i].is_directory = is_directory;
        pending[i].owner = getpid();
        return;
    }
}

void unfinished_note(void *user, const char *path, bool is_directory, bool appears)
{
    (void)user;
    if (appears)
        add(path, is_directory);
    for (int i = 0; i < MAX_PENDING && !appears; i++)
        if (pending[i].owner == getpid() && strcmp(pending_path[i], path) == 0)
            pending[i].owner = 0;
}

void unfinished_note_process(void *user, long pid, bool begins)
{
    (void)user;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        bool is_own = process[i].owner == getpid();
        if (begins ? is_own : !is_own || process[i].pid != (pid_t)pid)
            continue;
        process[i].owner = 0;
        process[i].pid = (pid_t)pid;
        process[i].owner = begins ? getpid() : 0;
        return;
    }
}
