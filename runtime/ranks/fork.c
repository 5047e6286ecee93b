/* SPDX-License-Identifier: 0BSD */
/* fork.c - ranks of one machine that the program starts itself: copies of its process, with a
 * stream socket between each two.
 *
 *      rank 0 ──fork()──> 1, 2, ...       the socket of two ranks: socket[a] in a, socket[b] in b
 *
 * A process that ends, by whatever, closes its sockets, so the others notice at once. What it has
 * said before by ranks_say() is in memory that all share.
 */
#include "runtime/ranks/parts.h"

//@ ranks_fork ranks_parts ranks_sum
#ifdef MODEL_NO_RANKS
RANKS_API bool ranks_fork(struct ranks *r, int size)
{
    (void)size;
    return ranks_fail(r, "this program was built without processes of its own (no fork)");
}

RANKS_API void ranks_say(struct ranks *r, const char *text)
{
    (void)r;
    (void)text;
}
#else
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* the sockets' SO_NOSIGPIPE does it */
#endif
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

enum { RANKS_FORKED = 256, RANKS_WORDS = 384 };
struct ranks_fork {
    int socket[RANKS_FORKED]; /* -1: none */
    pid_t child[RANKS_FORKED];
    char (*words)[RANKS_WORDS]; /* [size], shared */
};

/* A rank's socket is closed: it has ended. */
static bool ranks_ended(struct ranks *r, int peer)
{
    const struct ranks_fork *f = (const struct ranks_fork *)r->own;
    const char *words = f->words[peer];
    return ranks_fail(r, "rank %d has ended%s%.*s", peer, words[0] ? ": " : "", RANKS_WORDS - 1,
                      words);
}

/* Moves what can be moved of a message without waiting. false: its rank has ended. */
static bool ranks_fork_move(const struct ranks_fork *f, const struct ranks_message *m,
                            size_t *moved)
{
    while (*moved < m->nbytes) {
        char *at = (char *)m->data + *moved;
        const size_t left = m->nbytes - *moved;
        const ssize_t n = m->sends ? send(f->socket[m->peer], at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                                   : recv(f->socket[m->peer], at, left, MSG_DONTWAIT);
        if (n > 0)
            *moved += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else
            return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
    return true;
}

/* Whether an earlier message between the same two in the same direction is not done. */
static bool ranks_fork_waits(const struct ranks_message *m, const bool *is_done, int i)
{
    for (int k = 0; k < i; k++)
        if (!is_done[k] && m[k].peer == m[i].peer && m[k].sends == m[i].sends)
            return true;
    return false;
}

static bool ranks_fork_exchange(struct ranks *r, struct ranks_message *m, int n)
{
    const struct ranks_fork *f = (const struct ranks_fork *)r->own;
    const double end = ranks_seconds() + r->timeout;
    size_t moved[2 * RANKS_MOST] = {0};
    bool is_done[2 * RANKS_MOST] = {false};
    for (;;) {
        struct pollfd wait[2 * RANKS_MOST];
        int nwait = 0;
        for (int i = 0; i < n; i++) {
            if (is_done[i] || ranks_fork_waits(m, is_done, i))
                continue;
            if (!ranks_fork_move(f, &m[i], &moved[i]))
                return ranks_ended(r, m[i].peer);
            is_done[i] = moved[i] == m[i].nbytes;
            if (is_done[i])
                continue;
            wait[nwait].fd = f->socket[m[i].peer];
            wait[nwait].revents = 0;
            wait[nwait++].events = m[i].sends ? POLLOUT : POLLIN;
        }
        bool is_over = true;
        for (int i = 0; i < n; i++)
            is_over &= is_done[i];
        if (is_over)
            return true;
        const double left = end - ranks_seconds();
        if (left <= 0)
            return ranks_too_late(r, m, is_done, n);
        const int milliseconds = left > 1000 ? 1000000 : (int)(left * 1000) + 1;
        if (nwait && poll(wait, (nfds_t)nwait, milliseconds) < 0 && errno != EINTR)
            return ranks_fail(r, "poll: %s", strerror(errno));
    }
}

/* Waits for the other ranks' end; kills those that do not come to it. */
static void ranks_fork_reap(const struct ranks *r, const struct ranks_fork *f, bool is_done)
{
    const double end = ranks_seconds() + (is_done ? r->timeout : 2);
    for (int i = 1; i < r->size; i++) {
        while (f->child[i] > 0 && waitpid(f->child[i], NULL, WNOHANG) == 0) {
            const struct timespec some = {0, 2000000};
            if (ranks_seconds() < end) {
                (void)nanosleep(&some, NULL);
                continue;
            }
            (void)kill(f->child[i], SIGKILL);
            (void)waitpid(f->child[i], NULL, 0);
            break;
        }
    }
}

static void ranks_fork_close(struct ranks *r, bool is_done)
{
    struct ranks_fork *f = (struct ranks_fork *)r->own;
    for (int i = 0; i < r->size; i++)
        if (f->socket[i] >= 0)
            (void)close(f->socket[i]);
    if (r->rank == 0)
        ranks_fork_reap(r, f, is_done);
    (void)munmap(f->words, (size_t)r->size * RANKS_WORDS);
    free(f);
}

/* Sockets between each two: pair[a * size + b] is a's end of the one with b. */
static bool ranks_fork_connect(int *pair, int size)
{
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            int two[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, two) != 0)
                return false;
            pair[a * size + b] = two[0];
            pair[b * size + a] = two[1];
#ifdef SO_NOSIGPIPE
            const int on = 1;
            for (int i = 0; i < 2; i++)
                if (setsockopt(two[i], SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) != 0)
                    return false;
#endif
        }
    return true;
}

/* Closes all ends but those of the rank. */
static void ranks_fork_keep(struct ranks_fork *f, const int *pair, int size, int rank)
{
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            if (a != rank && pair[a * size + b] >= 0)
                (void)close(pair[a * size + b]);
    for (int b = 0; b < size; b++)
        f->socket[b] = rank >= 0 ? pair[rank * size + b] : -1;
}

/* Ends the children that have begun where a later one could not. */
static void ranks_fork_undo(const struct ranks_fork *f, int size)
{
    for (int i = 1; i < size; i++)
        if (f->child[i] > 0) {
            (void)kill(f->child[i], SIGKILL);
            while (waitpid(f->child[i], NULL, 0) < 0 && errno == EINTR)
                continue;
        }
}

RANKS_API bool ranks_fork(struct ranks *r, int size)
{
    if (size > RANKS_FORKED)
        return ranks_fail(r, "%d ranks of one machine; at most %d are possible", size,
                          RANKS_FORKED);
    struct ranks_fork *f = (struct ranks_fork *)calloc(1, sizeof *f);
    const size_t npair = (size_t)size * (size_t)size;
    int *pair = (int *)malloc(npair * sizeof *pair);
    void *words = mmap(NULL, (size_t)size * RANKS_WORDS, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool ok = f && pair && words != MAP_FAILED;
    int rank = 0;
    for (size_t i = 0; i < npair && pair; i++)
        pair[i] = -1;
    ok = ok && ranks_fork_connect(pair, size);
    for (int i = 1; i < size && ok && rank == 0; i++) {
        f->child[i] = fork();
        ok = f->child[i] >= 0;
        rank = f->child[i] == 0 ? i : 0;
    }
    const int error = errno;
    if (f && pair)
        ranks_fork_keep(f, pair, size, ok ? rank : -1);
    free(pair);
    if (!ok) {
        if (f)
            ranks_fork_undo(f, size);
        if (words != MAP_FAILED)
            (void)munmap(words, (size_t)size * RANKS_WORDS);
        free(f);
        return ranks_fail(r, "%d processes cannot be started: %s", size, strerror(error));
    }
    f->words = (char(*)[RANKS_WORDS])words;
    r->rank = rank, r->size = size, r->own = f;
    r->exchange = ranks_fork_exchange;
    r->close = ranks_fork_close;
    return true;
}

RANKS_API void ranks_say(struct ranks *r, const char *text)
{
    struct ranks_fork *f = (struct ranks_fork *)r->own;
    if (r->close == ranks_fork_close)
        (void)snprintf(f->words[r->rank], RANKS_WORDS, "%s", text);
}
#endif
