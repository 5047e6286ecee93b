/* fatal.c - LLVM's fatal errors, and memory that it does not get, end the process that works for a
 * compile, and tell the compile why.
 *
 * LLVM tells of both by functions of the whole process that have no argument of the caller's, so
 * whom to tell is a variable of the process. Nothing of LLVM is touched again: whatever it was at
 * is half done, and may hold a lock.
 */
#include "backends/llvm/machine.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static void (*tell)(const char *reason);
static atomic_flag ending = ATOMIC_FLAG_INIT;

static void on_fatal(const char *reason)
{
    while (atomic_flag_test_and_set(&ending))
        pause();                                    /* another thread is at it */
    tell(reason);
    _exit(1);
}

/* LLVM's own allocations; the C interface has no function that sets this. */
static void on_bad_alloc(void *user, const char *reason, bool dump)
{
    (void)user;
    (void)reason;
    (void)dump;
    on_fatal("out of memory");
}

/* C++'s operator new: what it would throw nobody catches. */
static void on_no_memory(void) { on_fatal("out of memory"); }

void fatal_install(const struct llvm *l, void (*teller)(const char *reason))
{
    typedef void bad_alloc_handler(void *user, const char *reason, bool dump);
    typedef void new_handler(void);
    void *p = dlsym(l->library, "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
    void *q = dlsym(l->library, "_ZSt15set_new_handlerPFvvE");
    void (*install)(bad_alloc_handler *, void *);
    new_handler *(*set)(new_handler *);
    memcpy(&install, &p, sizeof install);
    memcpy(&set, &q, sizeof set);
    tell = teller;
    l->ResetFatalErrorHandler();
    l->InstallFatalErrorHandler(on_fatal);
    if (p)
        install(on_bad_alloc, NULL);
    if (q)
        set(on_no_memory);
}
