/* compared.c - records what the choosers of a device's schedules compared. Nothing is recorded
 * unless tgc info --why asks (tuning.compares); the record decides nothing. */
#include "passes/target/compared.h"

static const struct { const char *name, *text; } kinds[] = {
#define SCHEDULE(name, text) {#name, text},
#include "passes/target/schedules.def"
};

const char *schedule_name(enum schedule_kind kind) { return kinds[kind].name; }
const char *schedule_text(enum schedule_kind kind) { return kinds[kind].text; }

bool compare_begin(struct tgc *t, const struct kernel *k)
{
    struct tuning *s = t->tuning;
    if (!s || !s->compares)
        return false;
    struct comparison *c = MEM_NEW(t, struct comparison);
    *c = (struct comparison){.t = t, .kernel = k, .chosen = -1};
    s->comparing = c;
    return true;
}

void compare_end(struct tgc *t)
{
    struct tuning *s = t->tuning;
    VEC_PUSH(t, s->compared, s->ncompared, s->cap_compared, s->comparing);
    s->comparing = NULL;
}

struct candidate *compare_candidate(const struct tgc *t, enum schedule_kind kind, double ns)
{
    struct comparison *c = compared(t);
    struct candidate *x = c ? &c->best[kind] : NULL;
    if (!x || (x->ns > 0 && ns + RATIO_GRID_LAUNCH >= x->ns))
        return NULL;
    *x = (struct candidate){.ns = ns + RATIO_GRID_LAUNCH};
    return x;
}

void compare_work(const struct tgc *t, struct candidate *to, const struct grid_work *w)
{
    if (!to)
        return;
    double ns = cost_of_grid(t->device, w, NULL) + RATIO_GRID_LAUNCH;
    to->parts = cost_parts_of_grid(t->device, w);
    cost_close_parts(&to->parts, ns);
    to->parts.ns[PART_BIAS] = to->ns - ns;
}

struct candidate *compare_chosen(const struct tgc *t, enum schedule_kind kind, double ns)
{
    struct comparison *c = compared(t);
    if (!c)
        return NULL;
    c->chosen = (int)kind;
    c->best[kind] = (struct candidate){.ns = ns + RATIO_GRID_LAUNCH};
    return &c->best[kind];
}

struct candidate *compare_refused(const struct tgc *t, enum schedule_kind kind, double ns)
{
    struct comparison *c = compared(t);
    if (!c)
        return NULL;
    if (c->best[kind].ns == ns + RATIO_GRID_LAUNCH)           /* it is no candidate any more */
        c->best[kind] = (struct candidate){.ns = 0};
    struct candidate *x = &c->refused[kind];
    if (x->why)
        return NULL;
    *x = (struct candidate){.ns = ns + RATIO_GRID_LAUNCH,
                            .why = c->why ? c->why : "it has too many loops"};
    return x;
}

bool compare_refuse(const struct tgc *t, enum schedule_kind kind, const char *why)
{
    struct comparison *c = compared(t);
    if (c && !c->refused[kind].why)
        c->refused[kind] = (struct candidate){.why = why};
    return false;
}

bool compare_refuse_last(const struct tgc *t, enum schedule_kind kind)
{
    const struct comparison *c = compared(t);
    return compare_refuse(t, kind, c && c->why ? c->why : "it has too many loops");
}

void compare_forget(const struct tgc *t, enum schedule_kind kind)
{
    struct comparison *c = compared(t);
    if (c)
        c->best[kind] = (struct candidate){.ns = 0};
}

void compare_note(const struct tgc *t, const struct opt *opt, const char *why)
{
    struct comparison *c = compared(t);
    if (!c)
        return;
    struct text line = {.t = c->t};
    if (opt) {
        opt_print(&line, opt);
        text_puts(&line, ": ");
    }
    text_puts(&line, why);
    c->why = line.s;
}
