/* train_fit.c - --train-memory: the step of a training within a bound of memory.
 *
 * The forward part is cut into more and more segments that are computed again (again.c of
 * frontend/train), and each time all of it is compiled, until the arena, without states and
 * blocks, is within the bound: an estimate of fused and planned memory would not be exact. Fewer
 * segments compute less again, so the first one that fits takes the least time.
 */
#include "backends/program/program.h"
#include "lib/lib.h"

#include <string.h>

static const int segments[] = {0, 2, 3, 4, 6, 8, 12, 16};
enum { TRIES = sizeof segments / sizeof *segments, LARGEST = 3 };

static const char *largest_tensors(struct tgc *t, const struct schedule *s)
{
    struct text out = {.t = t};
    bool *told = mem_array(t, (size_t)s->nbuffer + 1, sizeof *told);
    for (int n = 0; n < LARGEST; n++) {
        int best = -1;
        for (int i = 0; i < s->nbuffer; i++)
            if (!told[i] && !s->buffer[i]->port.state && s->buffer[i]->kind == BUFFER_TEMP &&
                (best < 0 || s->buffer[i]->nbytes > s->buffer[best]->nbytes))
                best = i;
        if (best < 0)
            break;
        told[best] = true;
        budget_put_tensor(&out, s, s->buffer[best]);
    }
    return out.s ? out.s : "none";
}

/* One number of segments, compiled in memory of its own. */
struct trial {
    struct tgc *t;
    const struct options *o;
    const char *name;
    training_lowering *lower; void *user;
    int nsegment;
    struct model m;
    struct compute_again again;
    bool ok;
};

/* x is not a local of the function that calls setjmp. */
static void run_trial(struct trial *x)
{
    if (setjmp(x->t->stop) == 0)
        x->ok = model_load(x->t, x->o, &x->m) &&
                x->lower(x->t, x->user, x->nsegment, &x->m, &x->again) &&
                model_optimize(x->t, x->o, x->name, &x->m);
}

static void free_trial(void *x) { tgc_free(((struct trial *)x)->t); }

static struct trial *trial_new(struct tgc *t, const struct options *o, const char *name,
                               training_lowering *lower, void *user, int nsegment,
                               struct held **held)
{
    struct trial *x = MEM_NEW(t, struct trial);
    *x = (struct trial){.t = tgc_new(t->mem_limit),
                        .o = o,
                        .name = name,
                        .lower = lower,
                        .user = user,
                        .nsegment = nsegment};
    if (!x->t)
        return NULL;
    *held = held_add(t, free_trial, x);
    return x;
}

static void say(struct tgc *t, size_t need, size_t whole, const struct compute_again *again)
{
    struct text x = {.t = t};
    text_printf(&x, "a step takes %zu bytes", need);
    if (again->nvalue)
        text_printf(&x, " of %zu: %d values of %.0f bytes are computed again, %.0f %% of the "
                        "forward part's operations",
                    whole, again->nvalue, again->nbytes, 100 * again->flop / again->all);
    text_puts(&x, "\n");
    report_text(t, x.s);
}

/* The number of segments that fits, [TRIES]: none does. A trial that fails ends the search: so will
 * the compile, which reports it. */
static int find_fit(struct tgc *t, const struct options *o, const char *name,
                    training_lowering *lower, void *user, size_t *whole)
{
    size_t least = SIZE_MAX;
    const char *largest = "none";
    *whole = 0;
    for (int k = 0; k < TRIES; k++) {
        struct held *held = NULL;
        struct trial *x = trial_new(t, o, name, lower, user, segments[k], &held);
        if (x)
            run_trial(x);
        bool ok = x && x->ok;
        size_t need = ok ? x->m.schedule->arena_nbytes : 0;
        if (ok && need < least) {
            least = need;
            largest = mem_printf(t, "%s", largest_tensors(x->t, x->m.schedule));
        }
        *whole = k ? *whole : need;
        if (x)
            held_release(held);
        if (!ok || need <= o->training.memory)
            return k;
    }
    diag_error(t, &(struct place){.file = o->model},
               "--train-memory=%zu: a step takes at least %zu bytes beside parameters and states, "
               "and %zu where nothing is computed again; the largest tensors are %s; a smaller "
               "--batch takes less",
               o->training.memory, least, *whole, largest);
    return TRIES;
}

bool training_fit(struct tgc *t, const struct options *o, const char *name, struct model *m,
                  training_lowering *lower, void *user)
{
    struct compute_again again = {0};
    size_t whole = 0;
    int k = o->training.memory ? find_fit(t, o, name, lower, user, &whole) : 0;
    if (k == TRIES || !lower(t, user, segments[k], m, &again) || !model_optimize(t, o, name, m))
        return false;
    m->fit = (struct training_fit){m->schedule->arena_nbytes, whole, again};
    m->fit.whole = o->training.memory ? whole : m->schedule->arena_nbytes;
    if (o->training.memory)
        say(t, m->schedule->arena_nbytes, whole, &again);
    return true;
}
