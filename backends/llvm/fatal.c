/* fatal.c - LLVM's fatal errors, and memory that it does not get, end a compile and not the
 * process.
 *
 * LLVM tells of both by functions of the whole process that have no argument of the caller's, so
 * the guard of a thread is a variable of that thread. A thread without one goes the way of LLVM.
 */
#include "backends/llvm/machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct fatal *guarded;

struct fatal *fatal_guard(struct fatal *guard)
{
    struct fatal *before = guarded;
    guarded = guard;
    return before;
}

void fatal_end(struct fatal *guard)
{
    if (guarded == guard)
        guarded = NULL;
}

static void end(void *guard) { fatal_end(guard); }

struct fatal *fatal_begin(struct tgc *t)
{
    struct fatal *guard = MEM_NEW(t, struct fatal);
    held_add(t, end, guard);
    guarded = guard;
    return guard;
}

static void give_up(const char *reason)
{
    struct fatal *guard = guarded;
    guarded = NULL;
    snprintf(guard->error.text, sizeof guard->error.text, "%s", reason);
    longjmp(guard->back, 1);
}

static void on_fatal(const char *reason)
{
    if (guarded)
        give_up(reason);
}

/* LLVM's own allocations; the C interface has no function that sets this. */
static void on_bad_alloc(void *user, const char *reason, bool dump)
{
    (void)user;
    (void)reason;
    (void)dump;
    on_fatal("out of memory");
}

/* C++'s operator new: what it would throw nobody catches in a guarded thread. In another one it is
 * the caller's program that allocates: without this handler, new tries again and throws. */
static void on_no_memory(void)
{
    void *p = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
    void (*(*set)(void (*)(void)))(void);
    on_fatal("out of memory");
    memcpy(&set, &p, sizeof set);
    if (!p)
        abort();
    set(NULL);
}

void fatal_install(const struct llvm *l)
{
    typedef void bad_alloc_handler(void *user, const char *reason, bool dump);
    typedef void new_handler(void);
    void *p = dlsym(l->library, "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
    void *q = dlsym(l->library, "_ZSt15set_new_handlerPFvvE");
    void (*install)(bad_alloc_handler *, void *);
    new_handler *(*set)(new_handler *);
    memcpy(&install, &p, sizeof install);
    memcpy(&set, &q, sizeof set);
    l->ResetFatalErrorHandler();
    l->InstallFatalErrorHandler(on_fatal);
    if (p)
        install(on_bad_alloc, NULL);
    if (q)
        set(on_no_memory);
}
