/* SPDX-License-Identifier: 0BSD */
/* threads.c - threads that wait for work together, for models compiled with --threads.
 *
 * A call of team_run() is one turn: every worker, and the caller, runs the body with a part of its
 * own. A thread that is done takes the parts of workers that have not begun, so that no one waits
 * for a thread that still sleeps or has no processor; the caller waits for those that have begun. A
 * part is claimed by changing its worker's number from the last turn to this one: a late worker
 * claims nothing.
 *
 * A waiting thread spins, since the next kernel comes soon; after some microseconds it yields,
 * perhaps to the thread for which it waits; after some more it sleeps. Waking sleepers takes longer
 * than a small kernel, so they are woken only when the time that they missed in several kernels
 * adds up; threads that are awake always take part.
 *
 * Counters are written before the flags of sleepers are read, all in one order (seq_cst): either
 * the counting thread sees the sleeper, or the sleeper sees the count. The condition variables are
 * only for sleepers.
 */
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MODEL_THREADS 4

//@ team
/* Threads are Windows' or POSIX'. Where there are none (define MODEL_NO_PTHREADS), work is shared
 * by the parallel_for of the options, or not at all. */
#if !defined MODEL_NO_PTHREADS && ((defined __wasm__ && !defined _REENTRANT) || \
                                   (defined __STDC_NO_ATOMICS__ && !defined __cplusplus))
#define MODEL_NO_PTHREADS
#endif
#ifndef MODEL_NO_PTHREADS
#ifdef _WIN32
#include <process.h>
#else
#include <pthread.h>
#include <sched.h>
#include <time.h>
#endif
#ifdef __cplusplus
#include <atomic>
using std::atomic_compare_exchange_strong;
using std::atomic_fetch_add;
using std::atomic_fetch_sub;
using std::atomic_int;
using std::atomic_load;
using std::atomic_load_explicit;
using std::atomic_store;
using std::atomic_store_explicit;
using std::atomic_uint;
using std::memory_order_acquire;
using std::memory_order_relaxed;
#else
#include <stdatomic.h>
#endif

#ifdef _WIN32
/* As <windows.h> declares them, which also defines near, far, min and other names of kernels. */
#ifdef __cplusplus
extern "C" {
#endif
struct _RTL_SRWLOCK;
struct _RTL_CONDITION_VARIABLE;
__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(struct _RTL_SRWLOCK *lock);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(struct _RTL_SRWLOCK *lock);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(
    struct _RTL_CONDITION_VARIABLE *condition, struct _RTL_SRWLOCK *lock,
    unsigned long milliseconds, unsigned long flags);
__declspec(dllimport) void __stdcall WakeAllConditionVariable(
    struct _RTL_CONDITION_VARIABLE *condition);
__declspec(dllimport) unsigned long __stdcall WaitForSingleObject(void *thread,
                                                                  unsigned long milliseconds);
__declspec(dllimport) int __stdcall CloseHandle(void *thread);
__declspec(dllimport) int __stdcall SwitchToThread(void);
union _LARGE_INTEGER;
__declspec(dllimport) int __stdcall QueryPerformanceCounter(union _LARGE_INTEGER *count);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(union _LARGE_INTEGER *in_a_second);
#ifdef __cplusplus
}
#endif
typedef void *team_thread, *team_lock, *team_condition; /* a lock and a condition begin as NULL */
#else
typedef pthread_t team_thread;
typedef pthread_mutex_t team_lock;
typedef pthread_cond_t team_condition;
#endif

struct team;
struct worker {
    alignas(64) atomic_uint claimed; /* the last turn in which somebody began this part */
    struct team *team;
    team_thread thread;
    int part;
};

/* The threads of a model beside its caller. */
struct team {
    void (*body)(void *context, int part); /* of this turn */
    void *context;
    int workers;
    long missed; /* nanoseconds that sleepers would have saved */
    team_lock lock;
    team_condition wake, done;
    struct worker worker[MODEL_THREADS - 1];
    alignas(64) atomic_uint turn; /* workers wait for the next one */
    atomic_int asleep;            /* workers that wait for `wake` */
    atomic_int ended;             /* there is none */
    alignas(64) atomic_int left;  /* parts that are not done in this turn */
    atomic_int waiting;           /* the caller waits for `done` */
};
#else
struct team { int workers; };
#endif

//@ team_run team
#ifndef MODEL_NO_PTHREADS
/* Nanoseconds: until a thread that waits lets others run, and until it sleeps; what a turn has to
 * save, or several of them together, so that sleepers are woken. */
enum { TEAM_ALONE = 20000, TEAM_AWAKE = 100000, TEAM_WORTH = 15000, TEAM_MISSED = 150000 };

static void relax(void)
{
#if defined __GNUC__ && (defined __x86_64__ || defined __i386__)
    __builtin_ia32_pause();
#elif defined __GNUC__ && defined __aarch64__
    __asm__ volatile("yield");
#endif
}

#ifdef _WIN32
/* Nanoseconds of a clock that runs on. */
static int64_t team_clock(void)
{
    const int64_t second = INT64_C(1000000000);
    int64_t count = 0, rate = 0;
    QueryPerformanceFrequency((union _LARGE_INTEGER *)&rate);
    QueryPerformanceCounter((union _LARGE_INTEGER *)&count);
    return rate > 0 ? count / rate * second + count % rate * second / rate : 0;
}
static void team_yield(void) { SwitchToThread(); }
static struct _RTL_SRWLOCK *team_lock_of(struct team *t) { return (struct _RTL_SRWLOCK *)&t->lock; }
static void team_enter(struct team *t) { AcquireSRWLockExclusive(team_lock_of(t)); }
static void team_leave(struct team *t) { ReleaseSRWLockExclusive(team_lock_of(t)); }
static void team_sleep(struct team *t, team_condition *c)
{
    const unsigned long forever = 0xffffffff;
    SleepConditionVariableSRW((struct _RTL_CONDITION_VARIABLE *)c, team_lock_of(t), forever, 0);
}
static void team_wake(team_condition *c)
{
    WakeAllConditionVariable((struct _RTL_CONDITION_VARIABLE *)c);
}
static void team_join(struct worker *w)
{
    const unsigned long forever = 0xffffffff;
    WaitForSingleObject(w->thread, forever);
    CloseHandle(w->thread);
}
static void team_free_locks(struct team *t) { (void)t; }
/* 0: done */
static int team_make_locks(struct team *t)
{
    t->lock = t->wake = t->done = NULL;
    return 0;
}
#else
/* Nanoseconds; 0: unknown. */
static int64_t team_clock(void)
{
    struct timespec now;
    if (timespec_get(&now, TIME_UTC) == 0)
        return 0;
    return INT64_C(1000000000) * now.tv_sec + now.tv_nsec;
}
static void team_yield(void) { sched_yield(); }
static void team_enter(struct team *t) { pthread_mutex_lock(&t->lock); }
static void team_leave(struct team *t) { pthread_mutex_unlock(&t->lock); }
static void team_sleep(struct team *t, team_condition *c) { pthread_cond_wait(c, &t->lock); }
static void team_wake(team_condition *c) { pthread_cond_broadcast(c); }
static void team_join(struct worker *w) { pthread_join(w->thread, NULL); }
static void team_free_locks(struct team *t)
{
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
}
/* 0: done */
static int team_make_locks(struct team *t)
{
    if (pthread_mutex_init(&t->lock, NULL) != 0)
        return 1;
    if (pthread_cond_init(&t->wake, NULL) != 0) {
        pthread_mutex_destroy(&t->lock);
        return 1;
    }
    if (pthread_cond_init(&t->done, NULL) != 0) {
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
        return 1;
    }
    return 0;
}
#endif

/* One thread's waiting: how often it has looked, and since when. */
struct patience {
    int looks;
    int64_t since;
};

/* Waits a moment. 0: it has been long enough, sleep. */
static int look_again(struct patience *p)
{
    enum { LOOKS = 32 }; /* between two looks at the clock */
    if (p->looks++ % LOOKS > 0) {
        relax();
        return 1;
    }
    const int64_t now = team_clock();
    if (p->looks == 1)
        return (p->since = now) != 0;
    const int64_t waited = now - p->since;
    if (waited >= TEAM_ALONE)
        team_yield();
    return waited >= 0 && waited < TEAM_AWAKE; /* a clock can be set back */
}

/* Waits until the turn is another one than the one seen last. */
static unsigned team_await(struct team *t, unsigned seen)
{
    struct patience p = {0, 0};
    unsigned turn;
    do {
        turn = atomic_load_explicit(&t->turn, memory_order_acquire);
        if (turn != seen)
            return turn;
    } while (look_again(&p));
    team_enter(t);
    atomic_fetch_add(&t->asleep, 1);
    while ((turn = atomic_load(&t->turn)) == seen)
        team_sleep(t, &t->wake);
    atomic_fetch_sub(&t->asleep, 1);
    team_leave(t);
    return turn;
}

static int team_claim(struct worker *w, unsigned turn)
{
    unsigned before = turn - 1;
    return atomic_load_explicit(&w->claimed, memory_order_relaxed) == before &&
           atomic_compare_exchange_strong(&w->claimed, &before, turn);
}

/* Runs the parts of this turn that nobody has begun, the given worker's first. */
static void team_take_parts(struct team *t, unsigned turn, int first)
{
    for (int k = 0; k < t->workers; k++) {
        struct worker *w = &t->worker[(first + k) % t->workers];
        if (!team_claim(w, turn))
            continue;
        t->body(t->context, w->part);
        if (atomic_fetch_sub(&t->left, 1) == 1 && atomic_load(&t->waiting)) {
            team_enter(t);
            team_wake(&t->done);
            team_leave(t);
        }
    }
}

static void team_work(const struct worker *me)
{
    unsigned turn = 0;
    for (;;) {
        turn = team_await(me->team, turn);
        if (atomic_load(&me->team->ended))
            return;
        team_take_parts(me->team, turn, me->part - 1);
    }
}

#ifdef _WIN32
static unsigned __stdcall team_thread_main(void *worker)
{
    team_work((const struct worker *)worker);
    return 0;
}
/* 0: the worker's thread runs */
static int team_begin(struct worker *w)
{
    w->thread = (void *)_beginthreadex(NULL, 0, team_thread_main, w, 0, NULL);
    return w->thread == NULL;
}
#else
static void *team_thread_main(void *worker)
{
    team_work((const struct worker *)worker);
    return NULL;
}
/* 0: the worker's thread runs */
static int team_begin(struct worker *w)
{
    return pthread_create(&w->thread, NULL, team_thread_main, w);
}
#endif

/* saves: nanoseconds, more or less, if nobody sleeps */
static unsigned team_start_turn(struct team *t, long saves)
{
    unsigned turn = atomic_fetch_add(&t->turn, 1u) + 1;
    if (atomic_load(&t->asleep) == 0)
        return turn;
    t->missed += saves < TEAM_WORTH ? saves : (long)TEAM_MISSED;
    if (t->missed >= TEAM_MISSED) {
        t->missed = 0;
        team_enter(t);
        team_wake(&t->wake);
        team_leave(t);
    }
    return turn;
}

/* Runs all parts of the body; the caller's is part 0. */
static void team_run(struct team *t, void (*body)(void *context, int part), void *context,
                     long saves)
{
    struct patience p = {0, 0};
    t->body = body;
    t->context = context;
    atomic_store_explicit(&t->left, t->workers, memory_order_relaxed);
    unsigned turn = team_start_turn(t, saves);
    body(context, 0);
    team_take_parts(t, turn, 0);
    do {
        if (atomic_load_explicit(&t->left, memory_order_acquire) == 0)
            return;
    } while (look_again(&p));
    team_enter(t);
    atomic_store(&t->waiting, 1);
    while (atomic_load(&t->left) > 0)
        team_sleep(t, &t->done);
    atomic_store(&t->waiting, 0);
    team_leave(t);
}

static void team_close(struct team *t)
{
    atomic_store(&t->ended, 1);
    team_start_turn(t, TEAM_WORTH);
    for (int i = 0; i < t->workers; i++)
        team_join(&t->worker[i]);
    team_free_locks(t);
}

/* 0, or nothing is left of it. */
static int team_open(struct team *t, int workers)
{
    t->workers = 0;
    t->missed = 0;
    atomic_store(&t->turn, 0u);
    atomic_store(&t->asleep, 0);
    atomic_store(&t->ended, 0);
    atomic_store(&t->left, 0);
    atomic_store(&t->waiting, 0);
    if (team_make_locks(t) != 0)
        return 1;
    for (; t->workers < workers; t->workers++) {
        struct worker *w = &t->worker[t->workers];
        atomic_store(&w->claimed, 0u);
        w->team = t;
        w->part = t->workers + 1;
        if (team_begin(w) != 0) {
            team_close(t);
            return 1;
        }
    }
    return 0;
}
#else
static void team_run(struct team *t, void (*body)(void *context, int part), void *context,
                     long saves)
{
    (void)saves;
    for (int part = 0; part <= t->workers; part++)
        body(context, part);
}
static int team_open(struct team *t, int workers)
{
    t->workers = workers;
    return 0;
}
static void team_close(struct team *t) { t->workers = 0; }
#endif

//@ team_open team_run

//@ team_close team_run
