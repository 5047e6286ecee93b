/* round.c - one round of tgc tune: a model is compiled with certain choices, and run.
 *
 * That happens in a process of its own: its memory is freed afterwards, and a candidate that makes
 * the compiler or the program fail does no harm. All kernels are timed in one program, with the
 * caches and memory in the same state as later. The least time of each kernel over many runs
 * counts.
 */
#include "cli/tuner.h"

#include "backends/program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------ what was chosen */

/* Keeps the variant of each kernel that this machine runs; the others need not be compiled. */
static void keep_one_variant(struct schedule *s, isa_set host)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        int best = -1;
        for (int j = 0; j < k->nvariant; j++)
            if ((host >> k->variant[j].isa & 1) &&
                (best < 0 || k->variant[j].isa > k->variant[best].isa))
                best = j;
        if (best >= 0)
            k->variant[0] = k->variant[best];
        k->nvariant = best >= 0;
    }
}

static bool computes_origin(struct tgc *t, const struct kernel *k, const struct origin *o)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop *root = k->ast;
    int n;
    struct uop **order = uop_toposort(t, &root, 1, &n);
    bool found = false;
    for (int i = 0; i < n && !found; i++)
        found = (order[i]->op == OP_REDUCE || op_is_elementwise(order[i]->op)) &&
                order[i]->dtype != DTYPE_INDEX && uop_get_origin(t, order[i]) == o;
    scratch_release(t, mark);
    return found;
}

static void set_title(struct tgc *t, struct record *r, const char *name, const char *title)
{
    struct text x = {.t = t};
    text_comment(&x, mem_printf(t, "%s%s%s", name, *name ? ": " : "", title ? title : ""));
    for (size_t i = 0; i + 1 < sizeof r->title && i < x.n; i++)
        r->title[i] = x.s[i] == '#' ? '.' : x.s[i];
}

static bool record_of(struct tgc *t, const struct schedule *s, const struct choice *c,
                      const double *us, struct record *r)
{
    *r = (struct record){.taken = c->taken, .model = c->model,
                         .n = c->n < TUNE_WIDTH_MAX ? c->n : TUNE_WIDTH_MAX};
    ARRAY_COPY(r->candidate, c->candidate, r->n);
    if (c->taken.kind == TUNE_WINOGRAD) {
        for (int i = 0; i < s->nkernel && us && c->origin; i++)
            if (computes_origin(t, s->kernel[i], c->origin))
                r->taken.us += us[i];
        set_title(t, r, c->origin ? c->origin->node : "", c->title);
        return c->origin != NULL;
    }
    const struct kernel *k = c->kernel;
    if (tune_has_isa(c->taken.kind) &&
        c->taken.isa != (k->nvariant > 0 ? k->variant[0].isa : ISA_GENERIC))
        return false;                                 /* another machine's */
    r->taken.us = us ? us[k->index] : 0;
    r->kernel = k->index;
    set_title(t, r, k->name, k->title);
    return true;
}

/* -------------------------------------------------------------------------------------- a round */

struct child { struct tgc *t; const struct model *model; bool timed; FILE *out; };

/* The list that belongs to an entry of a record, which holds its own process's pointer. */
static bool send_opts(FILE *out, const struct opts *list)
{
    return list->n == 0 ||
           fwrite(list->v, sizeof *list->v, (size_t)list->n, out) == (size_t)list->n;
}

/* p NULL: nothing ran */
static bool send_records(struct child *c, const struct schedule *s, const struct instance *p,
                         const double *us, double run)
{
    const struct tuning *tuning = c->t->tuning;
    struct record *r = MEM_NEW(c->t, struct record);
    struct round head = {.us = run, .is_here = p && p->code};
    for (size_t i = 0; p && i + 1 < sizeof head.maker && p->made_by[i]; i++)
        head.maker[i] = p->made_by[i];
    bool ok = fwrite(&head, sizeof head, 1, c->out) == 1;
    for (int i = 0; i < tuning->nchoice && ok; i++)
        if (record_of(c->t, s, &tuning->choice[i], us, r)) {
            ok = fwrite(r, sizeof *r, 1, c->out) == 1 && send_opts(c->out, &r->taken.opts);
            for (int k = 0; k < r->n && ok; k++)
                ok = send_opts(c->out, &r->candidate[k].opts);
        }
    return fflush(c->out) == 0 && ok;
}

static bool work(struct child *c, struct options *o, struct model *m)
{
    struct tgc *t = c->t;
    struct feed f;
    struct instance p;
    struct kernel_times times = {0};
    const char *name = program_name(t, m->stem);
    o->weights = WEIGHTS_FILE;
    struct listener quiet = *t->listener;
    quiet.on_progress = NULL;        /* the search shows its own progress */
    t->listener = &quiet;
    if (!feed_read(t, o, m, &f) || !model_schedule(t, o, name, m))
        return false;
    struct schedule *s = m->schedule;
    keep_one_variant(s, options_host_isa());
    if (c->timed) {
        o->name = name;
        if (!instance_build(t, o, m, &p) || !feed_instance(t, &f, &p))
            return false;
        times_hook(t, &times, &p);
        if (!instance_prepare(t, o, &p) || !times_of_runs(t, &p, &times))
            return false;
        for (int i = 0; i < s->nkernel; i++)
            times.least[i] *= 1e6;
    }
    return send_records(c, s, c->timed ? &p : NULL, times.least, 1e6 * times.run);
}

/* Ends the process. */
static void run_child(struct child *c, const struct options *given)
{
    static struct options o;
    static struct model m;
    static bool ok;
    o = *given;
    m = *c->model;
    c->t->held = NULL;               /* stays the parent's */
    if (setjmp(c->t->stop) == 0)
        ok = work(c, &o, &m);
    if (!ok) {
        held_release_all(c->t);
        messages_print(c->t, &o, stderr);
    }
    fclose(c->out);
    _exit(ok ? 0 : 1);
}

static bool receive_opts(struct tgc *t, FILE *in, struct opts *list)
{
    if (list->n == 0)
        return true;
    list->v = mem_array(t, (size_t)list->n, sizeof *list->v);
    list->cap = (size_t)list->n;
    return fread(list->v, sizeof *list->v, list->cap, in) == list->cap;
}

static bool receive(struct tgc *t, FILE *in, struct round *r)
{
    struct record one;
    if (fread(r, sizeof *r, 1, in) != 1)
        return false;
    while (fread(&one, sizeof one, 1, in) == 1) {
        bool ok = receive_opts(t, in, &one.taken.opts);
        for (int k = 0; k < one.n && ok; k++)
            ok = receive_opts(t, in, &one.candidate[k].opts);
        if (!ok)
            return false;
        VEC_PUSH(t, r->record, r->n, r->cap, one);
    }
    return true;
}

bool round_run(struct tgc *t, const struct options *o, const struct model *m,
               const struct tuning *tuning, bool timed, struct round *r)
{
    int ends[2], status = 0;
    *r = (struct round){0};
    fflush(NULL);
    if (pipe(ends) != 0)
        return diag_error(t, NULL, "no pipe to a process that measures: %s", strerror(errno));
    tgc_critical(t, true);
    pid_t pid = fork();
    int why = errno;
    if (pid >= 0)
        setpgid(pid, pid);                     /* in both, whoever is first */
    if (pid > 0 && t->listener && t->listener->on_process)
        t->listener->on_process(t->listener->user, (long)pid, true);
    tgc_critical(t, false);
    errno = why;
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return diag_error(t, NULL, "no process to measure in: %s", strerror(errno));
    }
    if (pid == 0) {
        close(ends[0]);
        struct child c = {t, m, timed, fdopen(ends[1], "w")};
        t->tuning = mem_copy(t, tuning, sizeof *tuning);
        if (!c.out)
            _exit(1);
        run_child(&c, o);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    bool ok = in && receive(t, in, r);
    if (in)
        fclose(in);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (t->listener && t->listener->on_process)
        t->listener->on_process(t->listener->user, (long)pid, false);
    return (ok && WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           diag_error(t, NULL, "a round of measuring failed (%s %d)",
                      WIFSIGNALED(status) ? "signal" : "status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
