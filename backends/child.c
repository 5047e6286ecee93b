/* child.c - a process for a compiler that comes as a library and aborts where it gets no memory
 * (NVRTC): what ends is the process, and the compile that needed it fails with an error.
 *
 *      tgc or libtgc's caller                    the process
 *        child_start()    fork()  ------------->  serve()
 *        child_ask()      -- block of bytes -->   child_read()
 *        child_hear()     <-- block of bytes --   child_write()
 *        child_end()      kill, wait
 *
 * By fork() rather than by a program that is started: libtgc has no file of a program that it could
 * be sure of. It is safe in a caller with threads: the C library makes its allocator and its loader
 * usable in the child. The compiler's library is opened there alone, so no other thread can have
 * had a lock of it. The child has its standard error closed, leaves no core file and ends with the
 * thread that waits for it.
 */
#include "backends/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

struct child { struct tgc *t; struct held *held; int socket; pid_t pid; };

static void stop(void *what)
{
    struct child *c = what;
    if (c->pid > 0) {
        kill(c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    if (c->socket >= 0)
        close(c->socket);
    c->pid = 0;
    c->socket = -1;
}

void child_end(struct child *c) { held_release(c->held); }

/* What the caller's process has of its own is not the child's. */
static void become_child(void)
{
    const struct rlimit none = {0, 0};
    const int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    static const int number[] = {SIGABRT, SIGSEGV, SIGPIPE, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        signal(number[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &none);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

struct child *child_start(struct tgc *t, const char *who,
                          void (*serve)(int socket, const char *wanted), const char *wanted)
{
    struct child *c = MEM_NEW(t, struct child);
    int pair[2];
    *c = (struct child){.t = t, .socket = -1};
    c->held = held_add(t, stop, c);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        diag_error(t, NULL, "%s is given a process of its own, and there is no socket for it: %s",
                   who, strerror(errno));
        return NULL;
    }
    fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    fcntl(pair[1], F_SETFD, FD_CLOEXEC);
    c->socket = pair[0];
    c->pid = fork();
    if (c->pid == 0) {
        close(pair[0]);
        become_child();
        serve(pair[1], wanted);
        _exit(0);
    }
    const int why = errno;
    close(pair[1]);
    if (c->pid > 0)
        return c;
    c->pid = 0;
    diag_error(t, NULL, "%s is given a process of its own, which does not start: %s", who,
               strerror(why));
    return NULL;
}

bool child_ask(struct child *c, const void *block, size_t nbytes)
{
    const char *at = block;
    while (nbytes > 0) {
        const ssize_t n = send(c->socket, at, nbytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        nbytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* false: the other side has ended. */
static bool get(int socket, void *block, size_t nbytes)
{
    char *at = block;
    while (nbytes > 0) {
        const ssize_t n = recv(socket, at, nbytes, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        at += n > 0 ? n : 0;
        nbytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool child_hear(struct child *c, void *block, size_t nbytes)
{
    return get(c->socket, block, nbytes);
}

const char *child_why(struct child *c)
{
    int status = 0;
    pid_t ended;
    do
        ended = waitpid(c->pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    c->pid = 0;
    return ended > 0 && WIFSIGNALED(status)
               ? mem_printf(c->t, "it ended by signal %d (%s)", WTERMSIG(status),
                            strsignal(WTERMSIG(status)))
           : ended > 0 ? mem_printf(c->t, "it ended with status %d", WEXITSTATUS(status))
                       : "it ended";
}

void child_read(int socket, void *block, size_t nbytes)
{
    if (!get(socket, block, nbytes))
        _exit(0);
}

void child_write(int socket, const void *block, size_t nbytes)
{
    const char *at = block;
    while (nbytes > 0) {
        const ssize_t n = send(socket, at, nbytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            _exit(0);
        at += n > 0 ? n : 0;
        nbytes -= n > 0 ? (size_t)n : 0;
    }
}
