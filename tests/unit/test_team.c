/* Threads that wait for work (runtime/threads.c): each part runs once a turn, sleepers are woken
 * for what is worth it, and waiting ends. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/threads.c"

enum { WORKERS = MODEL_THREADS - 1, LONG = 5000 };

struct work { atomic_int runs[MODEL_THREADS]; int slow; };

static void pass_milliseconds(long n)
{
    nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000}, NULL);
}

static void work(void *context, int part)
{
    struct work *w = context;
    atomic_fetch_add(&w->runs[part], 1);
    if (part == w->slow)
        pass_milliseconds(1);
}

static struct team *open_team(void)
{
    struct team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    memset((void *)t, 0, sizeof *t);
    assert_int_equal(team_open(t, WORKERS), 0);
    return t;
}

static void close_team(struct team *t)
{
    team_close(t);
    free(t);
}

static int sleepers_become(struct team *t, int n)
{
    for (int i = 0; i < LONG && atomic_load(&t->asleep) != n; i++)
        pass_milliseconds(1);
    return atomic_load(&t->asleep) == n;
}

static void test_parts(void **state)
{
    (void)state;
    struct team *t = open_team();
    struct work w = {.slow = -1};
    enum { TURNS = 3000 };
    for (int i = 0; i < TURNS; i++) {
        w.slow = i % 50 == 0 ? i / 50 % MODEL_THREADS : -1;
        team_run(t, work, &w, i % 3 ? TEAM_WORTH : 100);
        for (int k = 0; k < MODEL_THREADS; k++)
            assert_int_equal(atomic_load(&w.runs[k]), i + 1);
        if (i % 400 == 0)
            pass_milliseconds(3);
    }
    close_team(t);
}

static void test_sleepers(void **state)
{
    (void)state;
    struct team *t = open_team();
    struct work w = {.slow = -1};
    assert_true(sleepers_become(t, WORKERS));
    for (long missed = 0; missed + 1000 < TEAM_MISSED; missed += 1000) {
        team_run(t, work, &w, 1000);
        assert_int_equal(atomic_load(&t->asleep), WORKERS);   /* nobody is woken for so little */
        assert_int_equal(t->missed, missed + 1000);
    }
    team_run(t, work, &w, 1000);                              /* together it is something */
    assert_int_equal(t->missed, 0);
    assert_true(sleepers_become(t, 0) || sleepers_become(t, WORKERS));
    assert_true(sleepers_become(t, WORKERS));
    w.slow = 0;                                               /* part 0 is the caller's */
    team_run(t, work, &w, TEAM_WORTH);
    assert_int_equal(t->missed, 0);
    close_team(t);
}

static void test_patience(void **state)
{
    (void)state;
    struct patience p = {0, 0};
    const int64_t before = team_clock();
    while (look_again(&p))
        continue;
    assert_true(team_clock() - before >= TEAM_AWAKE);
    assert_true(p.looks < 100 * TEAM_AWAKE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_sleepers),
        cmocka_unit_test(test_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
