/* SPDX-License-Identifier: 0BSD */
/* sum.c - sums over ranks, and what else all ranks do together, over any transport.
 *
 *      ranks_sum()   x = | part 0 | part 1 | ... |     rank i gets part i of every rank, adds them
 *                                                      up, and sends the sum to every rank
 *
 * The order of additions depends on the number of vectors alone: not on when messages come.
 */
#include "runtime/ranks/parts.h"

//@ ranks_sum ranks_parts
RANKS_API bool ranks_fail(struct ranks *r, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(r->error, sizeof r->error, format, ap);
    va_end(ap);
    return false;
}

RANKS_API double ranks_seconds(void)
{
#ifdef MODEL_NO_RANKS
    return (double)clock() / CLOCKS_PER_SEC;
#else
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

RANKS_API bool ranks_too_late(struct ranks *r, const struct ranks_message *m, const bool *is_done,
                              int n)
{
    enum { NAMED = 8 };
    char list[NAMED * 12 + 8] = "";
    size_t used = 0;
    int named[NAMED], nnamed = 0;
    for (int i = 0; i < n; i++) {
        bool is_new = !is_done[i];
        for (int k = 0; k < nnamed; k++)
            is_new &= named[k] != m[i].peer;
        if (!is_new)
            continue;
        if (nnamed == NAMED) {
            (void)snprintf(list + used, sizeof list - used, ", ...");
            break;
        }
        named[nnamed++] = m[i].peer;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "",
                                 m[i].peer);
    }
    return ranks_fail(r, "rank %d waited %g seconds for rank %s: it hangs, has ended, or needs "
                      "longer", r->rank, r->timeout, list);
}

/* ---- the order of additions */

RANKS_API void ranks_add(void *to, const void *from, size_t n, bool is_wide)
{
    if (is_wide) {
        double *a = (double *)to;
        const double *b = (const double *)from;
        for (size_t i = 0; i < n; i++)
            a[i] += b[i];
    } else {
        float *a = (float *)to;
        const float *b = (const float *)from;
        for (size_t i = 0; i < n; i++)
            a[i] += b[i];
    }
}

/* ---- all ranks together */

/* Where rank k's part of n elements begins. */
static size_t ranks_part(const struct ranks *r, size_t n, int k)
{
    const size_t each = n / (size_t)r->size, rest = n % (size_t)r->size, at = (size_t)k;
    return each * at + (at < rest ? at : rest);
}

RANKS_API size_t ranks_sum_scratch(const struct ranks *r, size_t n, bool is_wide)
{
    return r->size > 1 ? (n + (size_t)r->size) * (is_wide ? sizeof(double) : sizeof(float)) : 0;
}

/* Each rank's part of x goes to all. */
static bool ranks_spread(struct ranks *r, void *x, size_t n, size_t size)
{
    struct ranks_message m[2 * RANKS_MOST];
    char *data = (char *)x;
    int k = 0;
    for (int i = 0; i < r->size; i++) {
        const size_t own = ranks_part(r, n, r->rank), at = ranks_part(r, n, i);
        if (i == r->rank)
            continue;
        m[k].peer = i, m[k].sends = true, m[k].data = data + own * size;
        m[k++].nbytes = (ranks_part(r, n, r->rank + 1) - own) * size;
        m[k].peer = i, m[k].sends = false, m[k].data = data + at * size;
        m[k++].nbytes = (ranks_part(r, n, i + 1) - at) * size;
    }
    return r->exchange(r, m, k);
}

RANKS_API bool ranks_sum(struct ranks *r, void *x, size_t n, bool is_wide, void *scratch)
{
    const size_t size = is_wide ? sizeof(double) : sizeof(float);
    const size_t own = ranks_part(r, n, r->rank), nown = ranks_part(r, n, r->rank + 1) - own;
    struct ranks_message m[2 * RANKS_MOST];
    char *data = (char *)x, *slot = (char *)scratch;
    int k = 0;
    if (r->size == 1 || n == 0)
        return true;
    for (int i = 0; i < r->size; i++) {
        const size_t at = ranks_part(r, n, i);
        if (i == r->rank)
            continue;
        m[k].peer = i, m[k].sends = true, m[k].data = data + at * size;
        m[k++].nbytes = (ranks_part(r, n, i + 1) - at) * size;
        m[k].peer = i, m[k].sends = false, m[k].data = slot + (size_t)i * nown * size;
        m[k++].nbytes = nown * size;
    }
    if (!r->exchange(r, m, k))
        return false;
    memcpy(slot + (size_t)r->rank * nown * size, data + own * size, nown * size);
    for (int step = 1; step < r->size; step *= 2)
        for (int i = 0; i + step < r->size; i += 2 * step)
            ranks_add(slot + (size_t)i * nown * size, slot + (size_t)(i + step) * nown * size, nown,
                      is_wide);
    memcpy(data + own * size, slot, nown * size);
    return ranks_spread(r, x, n, size);
}

RANKS_API bool ranks_share(struct ranks *r, void *data, size_t nbytes)
{
    struct ranks_message m[RANKS_MOST];
    char *bytes = (char *)data;
    int k = 0;
    if (r->size == 1 || nbytes == 0)
        return true;
    for (int i = 1; i < r->size; i++) {
        const size_t at = ranks_part(r, nbytes, i);
        if (r->rank != 0 && r->rank != i)
            continue;
        m[k].peer = r->rank == 0 ? i : 0;
        m[k].sends = r->rank == 0;
        m[k].data = bytes + at;
        m[k++].nbytes = ranks_part(r, nbytes, i + 1) - at;
    }
    return r->exchange(r, m, k) && ranks_spread(r, data, nbytes, 1);
}

RANKS_API bool ranks_gather(struct ranks *r, const void *data, size_t nbytes, void *all)
{
    char *to = (char *)all;
    memcpy(to + (size_t)r->rank * nbytes, data, nbytes);
    return r->size == 1 || ranks_spread(r, all, (size_t)r->size * nbytes, 1);
}

/* ---- the whole */

RANKS_API void ranks_close(struct ranks *r, bool is_done)
{
    if (r->close)
        r->close(r, is_done);
    r->close = NULL;
    r->own = NULL;
}
