/* parallel.c - modules become objects, in as many threads as there are processors.
 *
 * Each module has a context of its own, and gets a target machine of its own, so threads share
 * nothing but the number of the next module. They do not touch struct tgc: what goes wrong comes
 * back as text.
 */
#include "backends/llvm/machine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORKERS = 16, STACK_NBYTES = 16 << 20 };

struct job {
    LLVMModuleRef module;
    LLVMMemoryBufferRef object;
    struct machine_notes notes;
    struct code_error error;
    bool ok;
};
struct work {
    const struct llvm *l;
    const struct llvm_machine *m;
    const char *passes;
    struct job *job; int njob;
    atomic_int next;
};

static void do_job(const struct work *w, struct job *job)
{
    struct llvm_machine m = *w->m;
    m.machine = machine_again(w->l, w->m);
    job->ok =
        machine_code(w->l, &m, job->module, w->passes, CODE_OBJECT, &job->object, &job->error);
    w->l->DisposeTargetMachine(m.machine);
}

static void *do_jobs(void *work)
{
    struct work *w = work;
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->njob;)
        do_job(w, &w->job[i]);
    return NULL;
}

static int processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MOST_WORKERS ? MOST_WORKERS : (int)n;
}

/* The caller works as well: where the system gives no threads it does all. */
static void do_work(struct work *w)
{
    pthread_t thread[MOST_WORKERS];
    pthread_attr_t attributes;
    int n = 0, wanted = processors() < w->njob ? processors() - 1 : w->njob - 1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_NBYTES);
    while (n < wanted && pthread_create(&thread[n], &attributes, do_jobs, w) == 0)
        n++;
    pthread_attr_destroy(&attributes);
    do_jobs(w);
    while (n)
        pthread_join(thread[--n], NULL);
}

static void dispose_objects(void *what)
{
    const struct work *w = what;
    for (int i = 0; i < w->njob; i++)
        if (w->job[i].ok)
            w->l->DisposeMemoryBuffer(w->job[i].object);
}

bool parallel_generate(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                       const struct emit *e, int n, struct code_object *object)
{
    struct job *job = mem_array(t, (size_t)n + 1, sizeof *job);
    struct work *w = MEM_NEW(t, struct work);
    bool ok = true;
    *w = (struct work){.l = l, .m = m, .passes = machine_passes(t, l), .job = job, .njob = n};
    struct held *held = held_add(t, dispose_objects, w);
    for (int i = 0; i < n; i++) {
        job[i].module = e[i].module;
        job[i].notes = (struct machine_notes){l, &job[i].error};
        l->ContextSetDiagnosticHandler(e[i].context, machine_note, &job[i].notes);
    }
    do_work(w);
    for (int i = 0; i < n; i++) {
        if (!job[i].ok) {
            held_forget(e[i].held);             /* LLVM may have left it half-changed */
            ok = ok && diag_error(t, NULL, "LLVM %d: %s", l->version, job[i].error.text);
            continue;
        }
        size_t nbytes = l->GetBufferSize(job[i].object);
        unsigned char *bytes = mem_alloc(t, nbytes);
        memcpy(bytes, l->GetBufferStart(job[i].object), nbytes);
        object[i] = (struct code_object){bytes, nbytes};
    }
    held_release(held);
    return ok;
}
