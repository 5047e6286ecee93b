/* apart.c - what LLVM does, it does in a process of its own (backends/child.c). Where memory ends
 * libLLVM aborts, follows NULL, or comes back from its handlers with a lock held: as it is loaded,
 * and later. The process has a copy of all that the work reads, its result comes back as bytes.
 *
 *      the compile                      the process
 *      llvm_do()      -- fork -->       loads libLLVM, w->work()
 *        meanwhile()
 *                     <-- head --       how it ended, how many bytes follow
 *                     <-- notes --      version and file of libLLVM, what was reported
 *                     <-- bytes --      the result
 */
#include "backends/child.h"
#include "backends/llvm/bytes.h"
#include "backends/llvm/machine.h"

#include <string.h>
#include <unistd.h>

enum outcome { DONE, FAILED, STOPPED, EXHAUSTED, FATAL };
struct head {
    enum outcome outcome;
    int version;
    bool bug;
    size_t notes, bytes;
};
struct job {
    struct tgc *t;
    const struct llvm_work *w;
};

/* ------------------------------------------------------------------------------- in the process */

/* A handler has no argument that could say it. */
static int told;
static int version_told;

static void answer(const struct head *head, const char *notes, const char *bytes)
{
    child_write(told, head, sizeof *head);
    child_write(told, notes, head->notes);
    child_write(told, bytes, head->bytes);
}

static void tell_fatal(const char *reason)
{
    answer(&(struct head){FATAL, .version = version_told, .notes = strlen(reason)}, reason, NULL);
}

static void put_diagnostics(struct text *out, const struct tgc *t, int first)
{
    bytes_put(out, (uint64_t)(t->ndiag - first));
    for (int i = first; i < t->ndiag; i++) {
        const struct diag *d = &t->diag[i];
        bytes_put(out, (uint64_t)d->severity);
        bytes_put_string(out, d->message);
        bytes_put_string(out, d->at.file);
        bytes_put_string(out, d->at.text);
        bytes_put_string(out, d->at.source_line);
        bytes_put(out, (uint64_t)d->at.line);
        bytes_put(out, (uint64_t)d->at.column);
    }
}

static enum outcome work(const struct job *j, struct text *notes, struct text *out)
{
    struct tgc *t = j->t;
    const int first = t->ndiag;
    struct llvm *l = llvm_load(t);
    version_told = l ? l->version : 0;
    if (l)
        fatal_install(l, tell_fatal);
    const bool ok = l && (!j->w->work || j->w->work(l, j->w->what, out));
    bytes_put_string(notes, l ? llvm_file(l) : NULL);
    put_diagnostics(notes, t, first);
    return ok ? DONE : FAILED;
}

/* The listener is the caller's: it hears nothing of what this process does. */
static void serve(int socket, void *user)
{
    const struct job *j = user;
    struct tgc *t = j->t;
    struct text notes = {.t = t}, out = {.t = t};
    const int first = t->ndiag;
    told = socket;
    t->listener = NULL;
    if (setjmp(t->stop) == 0) {
        const enum outcome outcome = work(j, &notes, &out);
        answer(&(struct head){outcome, version_told, false, notes.n, out.n}, notes.s, out.s);
        return;
    }
    struct text said = {.t = t};
    if (!t->exhausted && setjmp(t->stop) == 0) {
        bytes_put_string(&said, NULL);
        put_diagnostics(&said, t, first);
        answer(&(struct head){STOPPED, version_told, t->bug, said.n, 0}, said.s, NULL);
        return;
    }
    answer(&(struct head){EXHAUSTED, .version = version_told}, NULL, NULL);
}

/* -------------------------------------------------------------------------------- in the caller */

static void take_diagnostics(struct tgc *t, struct byte_reader *r)
{
    const uint64_t n = bytes_get(r);
    for (uint64_t i = 0; i < n && !r->is_bad; i++) {
        const int severity = bytes_get_int(r, SEVERITY_NOTE, SEVERITY_ERROR);
        const char *message = bytes_get_string(r);
        struct place at = {.file = bytes_get_string(r)};
        at.text = bytes_get_string(r);
        at.source_line = bytes_get_string(r);
        at.line = (int)bytes_get(r);
        at.column = (int)bytes_get(r);
        if (severity == SEVERITY_ERROR)
            diag_error(t, &at, "%s", message);
        else if (severity == SEVERITY_WARNING)
            diag_warn(t, &at, "%s", message);
        else
            diag_note(t, &at, "%s", message);
    }
}

/* NULL: the process has ended. */
static char *hear(struct tgc *t, struct child *c, size_t nbytes)
{
    char *bytes = mem_array(t, nbytes + 1, 1);
    bytes[nbytes] = 0;
    return child_hear(c, bytes, nbytes) ? bytes : NULL;
}

static bool ended(struct tgc *t, const char *why)
{
    return diag_error(t, NULL,
                      "LLVM's process does not end its work: %s, as where it gets no memory: free "
                      "some, or raise the process's limit (ulimit -v)",
                      why);
}

/* What the process says before its result. */
static bool read_notes(struct tgc *t, const struct head *head, const char *notes,
                       struct llvm_result *r)
{
    struct byte_reader reader = {.t = t,
                                 .at = (const unsigned char *)notes,
                                 .end = (const unsigned char *)notes + head->notes};
    if (head->outcome == FATAL)
        return diag_error(t, NULL, "LLVM %d: %s", head->version, notes);
    if (head->outcome == EXHAUSTED) {
        t->exhausted = true;
        diag_error(t, NULL,
                   "out of memory: the model's code by LLVM needs more than the compile "
                   "may use (--max-memory)");
        tgc_stop(t);
    }
    r->by = (struct llvm_by){mem_printf(t, "LLVM %d", head->version), bytes_get_string(&reader),
                             head->version};
    take_diagnostics(t, &reader);
    t->bug |= head->bug;
    if (head->outcome == STOPPED)
        tgc_stop(t);
    return head->outcome == DONE;
}

bool llvm_do(struct tgc *t, const struct llvm_work *w, struct llvm_result *r)
{
    struct head head;
    *r = (struct llvm_result){.bytes = NULL};
    struct child *c = child_start(
        t, &(struct child_work){.who = "LLVM", .serve = serve, .user = &(struct job){t, w}});
    if (!c)
        return false;
    if (w->meanwhile)
        w->meanwhile(w->what);
    const char *notes = child_hear(c, &head, sizeof head) ? hear(t, c, head.notes) : NULL;
    r->bytes = notes ? hear(t, c, head.bytes) : NULL;
    if (!r->bytes)
        return ended(t, child_why(c));
    r->nbytes = head.bytes;
    child_end(c);
    return read_notes(t, &head, notes, r);
}

const char *llvm_found(struct tgc *t)
{
    struct llvm_result r;
    const int ndiag = t->ndiag;
    if (llvm_do(t, &(struct llvm_work){NULL, NULL, NULL}, &r))
        return mem_printf(t, "%d", r.by.version);
    diag_take_back(t, ndiag);
    return NULL;
}
