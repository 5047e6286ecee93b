/* ranks_driver.c - the ranks of runtime/ranks as the suite runs them.
 *
 *      sum SIZE N              collectives over N elements, beside the tree computed here
 *      lose SIZE K HOW         rank SIZE - 1 is lost at its K-th exchange:
 *                              before, within (some of its messages are sent), hang, exit
 *
 * Where mpirun has started it, SIZE is of that. Each rank prints a line, which begins with ok or
 * with the error.
 */
#include "runtime/ranks/tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool (*exchange)(struct ranks *r, struct ranks_message *m, int n);
static int countdown = -1;
static const char *how;

static bool lossy(struct ranks *r, struct ranks_message *m, int n)
{
    if (countdown < 0 || countdown-- > 0)
        return exchange(r, m, n);
    if (strcmp(how, "within") == 0)
        for (int i = 0; i < n; i++) /* with each other rank a part, and then no more */
            if (m[i].sends) {
                struct ranks_message part = m[i];
                part.nbytes /= 2;
                r->timeout = 0.2;
                (void)exchange(r, &part, 1);
            }
    if (strcmp(how, "hang") == 0)
        raise(SIGSTOP);
    if (strcmp(how, "exit") == 0) {
        ranks_say(r, "it had enough");
        _exit(1);
    }
    raise(SIGKILL);
    return false;
}

/* Of rank k: values whose sum depends on the order of additions. */
static double value_of(int k, size_t i)
{
    return (double)((k + 1) * 7919 % 1009) / 3 * (i % 5 ? 1e-4 : 1e4) + (double)i / 7;
}

/* ((0+1) + (2+3)) + ..., in the type of the sum. */
static double tree(int from, int n, size_t i, bool is_wide)
{
    if (n == 1)
        return is_wide ? value_of(from, i) : (double)(float)value_of(from, i);
    int half = 1;
    while (2 * half < n)
        half *= 2;
    const double a = tree(from, half, i, is_wide), b = tree(from + half, n - half, i, is_wide);
    return is_wide ? a + b : (double)((float)a + (float)b);
}

static bool check_sum(struct ranks *r, size_t n, bool is_wide)
{
    const size_t size = is_wide ? sizeof(double) : sizeof(float);
    void *x = malloc(n * size + 1), *scratch = malloc(ranks_sum_scratch(r, n, is_wide) + 1);
    for (size_t i = 0; i < n; i++)
        if (is_wide)
            ((double *)x)[i] = value_of(r->rank, i);
        else
            ((float *)x)[i] = (float)value_of(r->rank, i);
    bool ok = ranks_sum(r, x, n, is_wide, scratch);
    for (size_t i = 0; i < n && ok; i++) {
        const double got = is_wide ? ((double *)x)[i] : (double)((float *)x)[i];
        if (got != tree(0, r->size, i, is_wide)) {
            snprintf(r->error, sizeof r->error, "element %zu is %.17g, not %.17g", i, got,
                     tree(0, r->size, i, is_wide));
            ok = false;
        }
    }
    free(x);
    free(scratch);
    return ok;
}

static bool check_moves(struct ranks *r, size_t n)
{
    unsigned char *x = calloc(n + 1, 1), *all = malloc(n * (size_t)r->size + 1);
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        x[i] = (unsigned char)(i * 31 + (size_t)r->rank);
    ok = ranks_gather(r, x, n, all);
    for (size_t i = 0; i < n * (size_t)r->size && ok; i++)
        ok = all[i] == (unsigned char)(i % n * 31 + i / n) ||
             (snprintf(r->error, sizeof r->error, "gather: byte %zu", i), false);
    ok = ok && ranks_share(r, x, n);
    for (size_t i = 0; i < n && ok; i++)
        ok = x[i] == (unsigned char)(i * 31) ||
             (snprintf(r->error, sizeof r->error, "share: byte %zu", i), false);
    free(x);
    free(all);
    return ok;
}

/* Parts on this rank alone: the tree over all of them. */
static bool check_tree(struct ranks *r, int n)
{
    struct ranks_tree x = {.n32 = 3, .n64 = 2};
    for (int k = 0; k < ranks_tree_levels(n); k++)
        x.level[k] = malloc(ranks_tree_nbytes(&x));
    for (int k = 0; k < n; k++) {
        double *wide = x.level[x.ndone];
        float *narrow = (float *)(wide + x.n64);
        for (size_t i = 0; i < x.n64; i++)
            wide[i] = value_of(k, i);
        for (size_t i = 0; i < x.n32; i++)
            narrow[i] = (float)value_of(k, i);
        ranks_tree_push(&x);
    }
    ranks_tree_end(&x);
    bool ok = true;
    const double *wide = x.level[0];
    const float *narrow = (const float *)(wide + x.n64);
    for (size_t i = 0; i < x.n64; i++)
        ok &= wide[i] == tree(0, n, i, true);
    for (size_t i = 0; i < x.n32; i++)
        ok &= (double)narrow[i] == tree(0, n, i, false);
    for (int k = 0; k < ranks_tree_levels(n); k++)
        free(x.level[k]);
    return ok || (snprintf(r->error, sizeof r->error, "the tree of %d", n), false);
}

static bool work(struct ranks *r, size_t n)
{
    bool ok = true;
    for (int k = 1; k < 20 && ok; k++)
        ok = check_tree(r, k);
    return ok && check_sum(r, n, false) && check_sum(r, n, true) && check_sum(r, 1, true) &&
           check_sum(r, 0, false) && check_moves(r, n) && check_moves(r, 1);
}

int main(int argc, char **argv)
{
    struct ranks r = {.size = 1, .timeout = 60};
    const int launched = ranks_launched();
    if (argc < 4)
        return 2;
    if (launched > 1 ? !ranks_join_mpi(&r, launched) : !ranks_fork(&r, atoi(argv[2]))) {
        printf("%s\n", r.error);
        return 1;
    }
    if (strcmp(argv[1], "lose") == 0) {
        r.timeout = 2;
        exchange = r.exchange;
        how = argv[4];
        countdown = r.rank == r.size - 1 ? atoi(argv[3]) : -1;
        r.exchange = lossy;
    }
    const bool ok = work(&r, argc > 4 ? 100000 : (size_t)atoi(argv[3]));
    char line[RANKS_ERROR_NBYTES + 64];
    const int length = snprintf(line, sizeof line, "%s\n", ok ? "ok" : r.error);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        return 1;
    if (!ok)
        ranks_say(&r, r.error);
    ranks_close(&r, ok);
    return !ok;
}
