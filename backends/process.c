/* process.c - starts a program and waits for its end; no shell is involved.
 *
 * The listener hears of it before a signal can end this process, and the program begins with the
 * signals' usual actions, so that it can be ended at any moment.
 */
#include "backends/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool has_group(const struct tgc *t) { return t->listener && t->listener->on_process; }

static void tell(const struct tgc *t, pid_t pid, bool begins)
{
    if (has_group(t))
        t->listener->on_process(t->listener->user, (long)pid, begins);
}

/* The environment with TMPDIR; NULL: as it is. */
static char **environment_of(struct tgc *t, const struct process *p)
{
    size_t n = 0, kept = 0;
    if (!p->temporary)
        return NULL;
    while (environ[n])
        n++;
    char **list = mem_array(t, n + 2, sizeof *list);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0)
            list[kept++] = environ[i];
    list[kept++] = mem_printf(t, "TMPDIR=%s", p->temporary);
    list[kept] = NULL;
    return list;
}

/* Handlers are this process's: a signal before exec would run them in the child. */
static void forget_handlers(void)
{
    for (int i = 1; i < NSIG; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            signal(i, SIG_DFL);
    }
}

static bool place_files(const struct process *p)
{
    for (int i = 0; i < 3; i++)
        if (p->file[i] >= 0 && dup2(p->file[i], i) < 0)
            return false;
    return true;
}

/* In the child: only calls that are safe after fork(). Failures are reported through the pipe. */
static _Noreturn void become(const struct process *p, bool group, char **variables, int pipe_end,
                             const sigset_t *mask)
{
    if (group)
        setpgid(0, 0);
    forget_handlers();
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (place_files(p) && (!p->folder || chdir(p->folder) == 0)) {
        if (variables)
            environ = variables;
        execvp(p->word[0], (char *const *)(uintptr_t)p->word);
    }
    int why = errno;
    ssize_t written = write(pipe_end, &why, sizeof why);
    _exit(written == (ssize_t)sizeof why ? 127 : 126);
}

/* Signals wait from before the process is there until the listener knows it. */
static pid_t begin(struct tgc *t, const struct process *p, int pipe_end)
{
    char **variables = environment_of(t, p);
    bool group = has_group(t);
    sigset_t all, before;
    sigfillset(&all);
    tgc_critical(t, true);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        become(p, group, variables, pipe_end, &before);
    int why = errno;
    if (pid > 0 && group)
        setpgid(pid, pid);                      /* the child does it, too: whoever is first */
    if (pid > 0)
        tell(t, pid, true);
    sigprocmask(SIG_SETMASK, &before, NULL);
    tgc_critical(t, false);
    errno = why;
    return pid;
}

/* Leaves the process as it is, so that its number stays its own. */
static void wait_for_end(pid_t pid)
{
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
}

int process_run(struct tgc *t, const struct process *p)
{
    int ends[2], status = 0, why = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    pid_t pid = begin(t, p, ends[1]);
    int failed = pid < 0 ? errno : 0;
    close(ends[1]);
    ssize_t n = 0;
    while (!failed && (n = read(ends[0], &why, sizeof why)) < 0 && errno == EINTR)
        continue;
    close(ends[0]);
    if (!failed)
        wait_for_end(pid);
    if (pid > 0)
        tell(t, pid, false);
    while (!failed && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            failed = errno;
    if (failed)
        return -failed;
    if (n == (ssize_t)sizeof why)
        return -why;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
