/* process.c - starts a process, or a program in one, and waits for its end; there is no shell. */
#include "backends/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

pid_t process_fork(struct tgc *t, void (*live)(void *what), void *what)
{
    bool group = has_group(t);
    sigset_t all, before;
    sigfillset(&all);
    tgc_critical(t, true);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        if (group)
            setpgid(0, 0);
        forget_handlers();
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        live(what);
        _exit(0);
    }
    int why = errno;
    if (pid > 0 && group)
        setpgid(pid, pid); /* the child does it, too: whoever is first */
    if (pid > 0)
        tell(t, pid, true);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    tgc_critical(t, false);
    errno = why;
    return pid;
}

int process_end(const struct tgc *t, pid_t pid, bool kills)
{
    siginfo_t info;
    int status = 0;
    pid_t ended;
    if (kills)
        kill(has_group(t) ? -pid : pid, SIGKILL);
    /* The process stays as it is, so that its number is its own, until the listener has heard. */
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    tell(t, pid, false);
    while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
        continue;
    return ended < 0 ? -1 : status;
}

/* A program that is to be started. Failures are reported through the pipe. */
struct image {
    const struct process *p;
    char **variables;
    int pipe_end;
};

/* Only calls that are safe after fork(). */
static void become(void *what)
{
    const struct image *image = what;
    const struct process *p = image->p;
    if (place_files(p) && (!p->folder || chdir(p->folder) == 0)) {
        if (image->variables)
            environ = image->variables;
        execvp(p->word[0], (char *const *)(uintptr_t)p->word);
    }
    int why = errno;
    ssize_t written = write(image->pipe_end, &why, sizeof why);
    _exit(written == (ssize_t)sizeof why ? 127 : 126);
}

int process_run(struct tgc *t, const struct process *p)
{
    int ends[2], status = 0, why = 0;
    struct image image = {p, environment_of(t, p), -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    image.pipe_end = ends[1];
    pid_t pid = process_fork(t, become, &image);
    int failed = pid < 0 ? errno : 0;
    close(ends[1]);
    ssize_t n = 0;
    while (!failed && (n = read(ends[0], &why, sizeof why)) < 0 && errno == EINTR)
        continue;
    close(ends[0]);
    if (!failed && (status = process_end(t, pid, false)) < 0)
        failed = errno;
    if (failed)
        return -failed;
    if (n == (ssize_t)sizeof why)
        return -why;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
