/* child.c - a process for a compiler that comes as a library and aborts, or hangs, where it gets no
 * memory (NVRTC, LLVM): what ends is the process, and the compile that needed it fails with an
 * error.
 *
 *      tgc or libtgc's caller                    the process
 *        child_start()    process_fork()  ----->  serve()
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
#include "backends/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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

struct child {
    struct tgc *t;
    int socket;
    pid_t pid;
    struct held *held;
};

static void stop(void *what)
{
    struct child *c = what;
    if (c->pid > 0)
        process_end(c->t, c->pid, true);
    if (c->socket >= 0)
        close(c->socket);
    c->pid = 0;
    c->socket = -1;
}

void child_end(struct child *c) { held_release(c->held); }

/* ------------------------------------------------------------------------------- in the process */

/* Bytes of addresses that this process has, which a limit counts, without an allocation; 0:
 * unknown. */
static size_t taken_nbytes(void)
{
    char text[32] = "";
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return n > 0 ? strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

/* A limit that is lower already stays. */
static void limit_memory(size_t more)
{
    struct rlimit now;
    const size_t taken = taken_nbytes();
    if (!more || !taken || more > SIZE_MAX / 2 || getrlimit(RLIMIT_AS, &now) != 0)
        return;
    if (now.rlim_cur == RLIM_INFINITY || now.rlim_cur > taken + more)
        now.rlim_cur = taken + more;
    setrlimit(RLIMIT_AS, &now);
}

/* What is begun: its ends of the socket. */
struct begun {
    const struct child_work *w;
    int own, other;
};

/* What the caller's process has of its own is not the child's. */
static void live(void *what)
{
    const struct begun *b = what;
    const struct rlimit none = {0, 0};
    const int null = open("/dev/null", O_RDWR);
    close(b->other);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    setrlimit(RLIMIT_CORE, &none);
    limit_memory(b->w->limit);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    b->w->serve(b->own, b->w->user);
}

/* -------------------------------------------------------------------------------- in the caller */

struct child *child_start(struct tgc *t, const struct child_work *w)
{
    struct child *c = MEM_NEW(t, struct child);
    int pair[2];
    *c = (struct child){.t = t, .socket = -1};
    c->held = held_add(t, stop, c);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        diag_error(t, NULL, "%s is given a process of its own, and there is no socket for it: %s",
                   w->who, strerror(errno));
        return NULL;
    }
    fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    fcntl(pair[1], F_SETFD, FD_CLOEXEC);
    c->socket = pair[0];
    c->pid = process_fork(t, live, &(struct begun){w, pair[1], pair[0]});
    const int why = errno;
    close(pair[1]);
    if (c->pid > 0)
        return c;
    c->pid = 0;
    diag_error(t, NULL, "%s is given a process of its own, which does not start: %s", w->who,
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
    enum { PATIENCE_MS = 20 };
    struct pollfd ready = {.fd = c->socket, .events = POLLIN};
    while (nbytes > 0 && c->t->listener && c->t->listener->go_on &&
           poll(&ready, 1, PATIENCE_MS) <= 0)
        tgc_poll(c->t);
    return get(c->socket, block, nbytes);
}

const char *child_why(struct child *c)
{
    const int status = process_end(c->t, c->pid, false);
    c->pid = 0;
    return status < 0            ? "it ended"
           : WIFSIGNALED(status) ? mem_printf(c->t, "it ended by signal %d (%s)", WTERMSIG(status),
                                              strsignal(WTERMSIG(status)))
                                 : mem_printf(c->t, "it ended with status %d", WEXITSTATUS(status));
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
