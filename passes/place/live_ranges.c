/* live_ranges.c - when buffers are accessed, and the steps in which they are live.
 *
 * The steps are structured: IF..ELSE..ENDIF and LOOP..ENDLOOP nest. A buffer is live from its first
 * to its last access, and
 *   - through a whole LOOP if it is accessed inside and outside it, or is read there before it
 *     is written: another iteration needs it;
 *   - not in a branch of an IF that does not use it, if the other branch has its first write or its
 *     last read.
 *   - not after its last access in the steps of one entry, if later steps that access it are of
 *     other entries: no run makes both.
 * So a live range is a list of spans. A buffer that is a part of another one (a concat's source) is
 * accessed with it.
 */
#include "passes/place/memory.h"
#include "passes/passes.h"

/* ------------------------------------------------------------------------------------- accesses */

struct tenant *tenant_of(const struct memory *m, const struct buffer *b)
{
    int i = m->tenant_of[buffer_root(b)->id];
    return i ? &m->tenant[i - 1] : NULL;
}

static void add_access(struct memory *m, struct buffer *b, int step, bool read, bool write)
{
    struct tenant *n = tenant_of(m, b);
    if (!n)
        return;
    n->has_parts |= n->buffer != b;
    struct access *last = n->naccess ? &n->access[n->naccess - 1] : NULL;
    if (last && last->step == step) {
        last->read |= read;
        last->write |= write;
        return;
    }
    VEC_PUSH(m->t, n->access, n->naccess, n->cap_access, ((struct access){step, read, write}));
}

/* Buffers that the expression loads from; k: of whose program it is, or NULL. */
static void add_reads(struct memory *m, const struct kernel *k, struct uop *u, int step)
{
    struct mem_mark mark = scratch_mark(m->t);
    int n;
    struct uop **order = uop_toposort(m->t, &u, 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_LOAD || order[i]->src[0]->op != OP_BUFFER)
            continue;
        struct buffer *b = (struct buffer *)(uintptr_t)order[i]->src[0]->arg.p;
        add_access(m, k ? kernel_buffer_here(k, b) : b, step, true, false);
    }
    scratch_release(m->t, mark);
}

static void add_kernel(struct memory *m, const struct kernel *k, int step)
{
    for (int i = 0; i < k->nbuffer; i++)
        add_access(m, k->buffer[i], step, i >= k->noutput, i < k->noutput);
    for (int i = 0; i < k->nscratch; i++)
        add_access(m, k->scratch[i], step, false, true);
    add_reads(m, k, k->ast, step); /* an output may be read, too */
}

static void add_step(struct memory *m, const struct step *st, int step)
{
    if (st->kernel)
        add_kernel(m, st->kernel, step);
    for (int i = 0; i < st->narg; i++) {
        bool out = i >= st->narg - st->host->nout;
        add_access(m, st->arg[i], step, !out, out);
    }
    if (st->cond)
        add_reads(m, NULL, st->cond, step);
    if (st->trip)
        add_reads(m, NULL, st->trip, step);
}

/* The LOOP step belongs to its region, so a trip count lives through the loop: it may be read again
 * before each iteration. */
void memory_add_steps(struct memory *m)
{
    struct region *open = NULL;
    int depth = 0;
    size_t cap = 0;
    for (int i = 0; i < m->s->nstep; i++) {
        const struct step *st = &m->s->step[i];
        add_step(m, st, i);
        switch (st->kind) {
        case STEP_IF:
        case STEP_LOOP:
            VEC_PUSH(m->t, open, depth, cap, ((struct region){st->kind == STEP_LOOP, i, -1, -1}));
            break;
        case STEP_ELSE:
            open[depth - 1].middle = i;
            break;
        case STEP_ENDIF:
        case STEP_ENDLOOP: {
            struct region r = open[--depth];
            r.end = i;
            r.middle = r.middle < 0 ? i : r.middle;
            VEC_PUSH(m->t, m->region, m->nregion, m->cap_region, r);
            break;
        }
        default:
            break;
        }
    }
}

/* ------------------------------------------------------------------------------------ lifetimes */

/* First access within [begin, end], or NULL. */
static const struct access *first_within(const struct tenant *n, int begin, int end)
{
    int lo = 0, hi = n->naccess;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (n->access[mid].step < begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n->naccess && n->access[lo].step <= end ? &n->access[lo] : NULL;
}

/* What another iteration needs is live through the whole loop. */
static struct span extend_over_loops(const struct memory *m, const struct tenant *n)
{
    struct span life = {n->access[0].step, n->access[n->naccess - 1].step};
    for (int i = 0; i < m->nregion; i++) {
        const struct region *r = &m->region[i];
        const struct access *in = r->loop ? first_within(n, r->begin, r->end) : NULL;
        if (!in)
            continue;
        bool outside = n->access[0].step < r->begin || n->access[n->naccess - 1].step > r->end;
        if (!outside && !in->read)
            continue;
        life.begin = r->begin < life.begin ? r->begin : life.begin;
        life.end = r->end > life.end ? r->end : life.end;
    }
    return life;
}

/* Start of the outermost loop within (begin, step] that holds the step, or the step itself. */
static int before_loops(const struct memory *m, int begin, int step)
{
    int at = step;
    for (int i = 0; i < m->nregion; i++) {
        const struct region *r = &m->region[i];
        if (r->loop && r->begin > begin && r->begin < at && r->end >= step)
            at = r->begin;
    }
    return at;
}

/* The steps of one branch of IF r in which n is dead, though it is live before or after them. */
static bool find_hole(const struct memory *m, const struct tenant *n, struct span life,
                      const struct region *r, struct span *hole)
{
    if (life.begin < r->begin && life.end > r->middle && life.end < r->end) {
        *hole = (struct span){r->begin + 1, r->middle}; /* read in ELSE for the last time */
        return !first_within(n, r->begin + 1, r->middle);
    }
    if (life.begin > r->begin && life.begin < r->middle && life.end > r->middle) {
        const struct access *in = first_within(n, r->middle + 1, r->end - 1);
        if (!in || in->read)
            return false;
        *hole =
            /* written first in both branches */
            (struct span){r->middle, before_loops(m, r->middle, in->step) - 1};
        return hole->begin <= hole->end;
    }
    return false;
}

/* Whether r is the IF of some of the entries: in no other region, and not in all runs. */
static bool is_of_entries(const struct memory *m, const struct region *r)
{
    uint64_t all = 0;
    if (!m->s->graph || m->s->graph->nentry == 0)
        return false;
    for (int i = 0; i < m->s->nstep; i++)
        all |= m->entries[i];
    for (int i = 0; i < m->nregion; i++)
        if (m->region[i].begin < r->begin && m->region[i].end > r->end)
            return false;
    return m->entries[r->begin] != all;
}

/* The steps of IF r, which is of some entries, after n's last access in it, if later steps that
 * access n are of other entries. */
static bool find_end_of_entry(const struct memory *m, const struct tenant *n, struct span life,
                              const struct region *r, struct span *hole)
{
    uint64_t entries = m->entries[r->begin];
    int last = -1;
    if (life.begin >= r->begin || life.end <= r->end || !is_of_entries(m, r))
        return false;
    for (int i = 0; i < n->naccess; i++) {
        const struct access *a = &n->access[i];
        if (a->step > r->end && (m->entries[a->step] & entries))
            return false;
        last = a->step <= r->end ? a->step : last;
    }
    for (int i = 0; i < m->nregion; i++) {
        const struct region *l = &m->region[i];
        last = l->loop && l->begin <= last && l->end > last && l->begin > r->begin ? l->end : last;
    }
    *hole = (struct span){last >= r->begin ? last + 1 : r->begin, r->end};
    return hole->begin <= hole->end;
}

/* Removes the hole from the spans; it is strictly inside one of them, or in an earlier hole. */
static void cut_hole(struct memory *m, struct slot *p, size_t *cap, struct span hole)
{
    for (int i = 0; i < p->nspan; i++) {
        if (hole.begin <= p->span[i].begin || hole.end >= p->span[i].end)
            continue;
        VEC_PUSH(m->t, p->span, p->nspan, *cap, p->span[i]);
        for (int k = p->nspan - 1; k > i; k--)
            p->span[k] = p->span[k - 1];
        p->span[i].end = hole.begin - 1;
        p->span[i + 1].begin = hole.end + 1;
        return;
    }
}

struct slot tenant_slot(struct memory *m, const struct tenant *n)
{
    struct slot p = {.nbytes = n->buffer->nbytes};
    /* SIZE_MAX fits in no arena: arena_pack() reports it */
    if (n->copies > 1 && !size_mul(scratch_stride(n->buffer), n->copies, &p.nbytes))
        p.nbytes = SIZE_MAX;
    if (!place_nbytes(m->t, n->buffer, &p.nbytes))
        p.nbytes = SIZE_MAX;
    size_t cap = 0;
    struct span life = extend_over_loops(m, n), hole;
    bool kept = n->buffer->kept || n->buffer->scratch.counts;    /* counters, from run to run */
    if (kept) {
        for (int i = 0; i < m->nregion && n->buffer->kept; i++)
            if (m->region[i].loop && first_within(n, m->region[i].begin, m->region[i].end))
                diag_error(m->t, NULL, "an operator inside of a loop makes strings; that is not "
                           "supported, since they would have to outlast an iteration");
        life = (struct span){0, m->s->nstep - 1};
    }
    VEC_PUSH(m->t, p.span, p.nspan, cap, life);
    for (int i = 0; i < m->nregion && !kept; i++) {
        if (!m->region[i].loop && (find_hole(m, n, life, &m->region[i], &hole) ||
                                   find_end_of_entry(m, n, life, &m->region[i], &hole)))
            cut_hole(m, &p, &cap, hole);
    }
    return p;
}

