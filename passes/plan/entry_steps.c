/* entry_steps.c - of a graph with entries, which of them need the work that stands before them all,
 * since several share it: those that read what it stores, or what is computed from that. Where
 * another entry runs, it is left out.
 *
 *      kernel a            if entry == 0 or entry == 2: kernel a
 *      if entry == 0: reads a          ->       if entry == 0: ...
 *      if entry == 1: ...
 *      if entry == 2: reads a
 */
#include "passes/plan/plan.h"

enum { MOST_ENTRIES = 64 };

/* Sets of entries, as bits. */
struct needs {
    struct tgc *t;
    uint64_t all;
    uint64_t *of;                /* by the root's id: who reads the buffer */
};

static void need(struct needs *n, const struct buffer *b, uint64_t entries)
{
    n->of[buffer_root(b)->id] |= entries;
}

static void need_scalar(struct needs *n, struct uop *u, uint64_t entries)
{
    int count;
    struct uop **order = u ? uop_toposort(n->t, &u, 1, &count) : NULL;
    for (int i = 0; order && i < count; i++)
        if (order[i]->op == OP_BUFFER)
            need(n, uop_buffer_of(order[i]), entries);
}

static void need_all_of(struct needs *n, const struct step *st, uint64_t entries)
{
    for (int i = 0; st->kernel && i < st->kernel->nbuffer; i++)
        need(n, st->kernel->buffer[i], entries);
    for (int i = 0; i < st->narg; i++)
        need(n, st->arg[i], entries);
    need_scalar(n, st->cond, entries);
    need_scalar(n, st->trip, entries);
}

/* Those who read what the step stores. A symbol that it finds may be read anywhere. */
static uint64_t needed_by(const struct needs *n, const struct step *st)
{
    uint64_t entries = 0;
    for (int i = 0; st->kernel && i < st->kernel->noutput; i++)
        entries |= n->of[buffer_root(st->kernel->buffer[i])->id];
    for (int i = 0; st->host && i < st->narg; i++)
        entries |= n->of[buffer_root(st->arg[i])->id];
    return st->host && st->host->nresult ? n->all : entries;
}

static int depth_change(enum step_kind kind)
{
    return kind == STEP_IF || kind == STEP_LOOP         ? 1
           : kind == STEP_ENDIF || kind == STEP_ENDLOOP ? -1
                                                        : 0;
}

/* The first step of the branch or loop that ends with the step, or the step itself. */
static int unit_begin(const struct schedule *s, int last)
{
    int depth = -depth_change(s->step[last].kind);
    while (depth > 0)
        depth -= depth_change(s->step[--last].kind);
    return last;
}

/* The entries' own steps: each reads for its entry. */
static void read_entries(struct needs *n, const struct schedule *s, int from)
{
    for (int i = from, e = -1, depth = 0; i < s->nstep; i++) {
        e += depth == 0 && s->step[i].kind == STEP_IF;
        depth += depth_change(s->step[i].kind);
        need_all_of(n, &s->step[i], UINT64_C(1) << e);
    }
}

static struct uop *is_one_of(struct tgc *t, const struct graph *g, uint64_t entries)
{
    struct uop *is = NULL;
    for (int e = 0; e < g->nentry; e++)
        if (entries >> e & 1) {
            struct uop *one = uop_binary(t, OP_EQ, uop_var(t, g->entry_number), uop_int(t, e));
            is = is ? uop_binary(t, OP_OR, is, one) : one;
        }
    return is;
}

void plan_guard_shared(struct tgc *t, struct schedule *s, int nshared)
{
    const struct graph *g = s->graph;
    if (nshared == 0 || g->nentry > MOST_ENTRIES)
        return;
    struct needs n = {t, UINT64_MAX >> (MOST_ENTRIES - g->nentry),
                      mem_array(t, (size_t)t->next_buffer, sizeof *n.of)};
    uint64_t *by = mem_array(t, (size_t)nshared, sizeof *by), open;
    read_entries(&n, s, nshared);
    for (int last = nshared - 1, first; last >= 0; last = first - 1) {
        uint64_t entries = 0;
        first = unit_begin(s, last);
        for (int i = first; i <= last; i++)
            entries |= needed_by(&n, &s->step[i]);
        for (int i = first; i <= last; i++) {
            by[i] = entries;
            need_all_of(&n, &s->step[i], entries);
        }
    }
    struct step *step = NULL;
    int nstep = 0;
    size_t cap = 0;
    open = n.all;
    for (int i = 0; i <= nshared; i++) {
        uint64_t wanted = i < nshared ? by[i] : n.all;
        if (wanted != open && open != n.all)
            VEC_PUSH(t, step, nstep, cap, (struct step){.kind = STEP_ENDIF});
        if (wanted != open && wanted != n.all)
            VEC_PUSH(t, step, nstep, cap,
                     ((struct step){.kind = STEP_IF, .cond = is_one_of(t, g, wanted)}));
        open = wanted;
        if (i < nshared)
            VEC_PUSH(t, step, nstep, cap, s->step[i]);
    }
    for (int i = nshared; i < s->nstep; i++)
        VEC_PUSH(t, step, nstep, cap, s->step[i]);
    s->step = step;
    s->nstep = nstep;
}
