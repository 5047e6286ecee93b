/* ranks_failing.c - ranks_fork() where the system gives no memory, or not all processes: what has
 * begun is undone, and no descriptor of the caller's is closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 5, FIRST = 40, MANY = 200 };
static int forks, maps, sockets;                /* that succeed */

static pid_t some_forks(void)
{
    if (forks-- > 0)
        return fork();
    errno = EAGAIN;
    return -1;
}

static void *some_maps(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    if (maps-- > 0)
        return mmap(at, n, protection, flags, fd, from);
    errno = ENOMEM;
    return MAP_FAILED;
}

static int some_sockets(int domain, int type, int protocol, int two[2])
{
    if (sockets-- > 0)
        return socketpair(domain, type, protocol, two);
    errno = EMFILE;
    return -1;
}

/* Filled with numbers of the caller's descriptors. */
static void *used_memory(size_t n)
{
    int *x = malloc(n);
    for (size_t i = 0; x && i < n / sizeof *x; i++)
        x[i] = FIRST + (int)i;
    return x;
}

#define fork() some_forks()
#define mmap(at, n, protection, flags, fd, from) some_maps(at, n, protection, flags, fd, from)
#define socketpair(domain, type, protocol, two) some_sockets(domain, type, protocol, two)
#define malloc(n) used_memory(n)
#include "runtime/ranks/fork.c"

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/* NULL: it failed as it should. */
static const char *try(int nfork, int nmap, int nsocket, const char *says)
{
    static struct ranks r;
    memset(&r, 0, sizeof r);
    r.size = 1, r.timeout = 10;
    bool before[MANY];
    for (int fd = 0; fd < MANY; fd++)
        before[fd] = is_open(fd);
    forks = nfork, maps = nmap, sockets = nsocket;
    if (ranks_fork(&r, SIZE)) {
        if (r.rank > 0)
            _exit(0);
        return "it did not fail";
    }
    if (!strstr(r.error, says) || r.own || r.rank || r.size != 1)
        return r.error[0] ? r.error : "no error";
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        return "a child is left";
    for (int fd = 0; fd < MANY; fd++)
        if (before[fd] != is_open(fd))
            return before[fd] ? "a descriptor of the caller's is closed" : "a descriptor is left";
    return NULL;
}

int main(void)
{
    const char *wrong = NULL;
    for (int i = 0; i < SIZE * SIZE; i++)
        if (dup2(STDIN_FILENO, FIRST + i) < 0)
            return 2;
    for (int k = 0; k < SIZE - 1 && !wrong; k++)
        wrong = try(k, 1, MANY, strerror(EAGAIN));
    if (!wrong)
        wrong = try(MANY, 0, MANY, strerror(ENOMEM));
    for (int k = 0; k < SIZE * (SIZE - 1) / 2 && !wrong; k++)
        wrong = try(MANY, 1, k, strerror(EMFILE));
    printf("%s\n", wrong ? wrong : "ok");
    return wrong != NULL;
}
