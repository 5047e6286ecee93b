/* arena.c - the place of every buffer that the program owns: results in place, the arena, states.
 *
 * live_ranges.c says when a buffer is live. One that is a part of another one (a concat's source)
 * is placed within it.
 *
 * An elementwise kernel that is the last reader of an input stores its result in the input's place.
 * Where a kernel's stores trail its loads, its result may overlap a part of an input (overlap.c);
 * in a chain of such kernels each result would be lower than the one before, so some kernels count
 * down, and their results are higher. Each of these mechanisms is used wherever possible or not at
 * all: all variants are packed (arena.c) and the smallest arena is taken.
 *
 * States are in front of the arena, in one place where the next value may replace the last one,
 * else in two that swap roles after each run.
 *
 * Not here: buffers of the caller (inputs, outputs), what a backend puts before the arena, and
 * small scratch on a kernel's stack. */
#include "passes/place/memory.h"
#include "passes/passes.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- in place */

/* Whether the store does not load `in`, or, if its result replaces `in`, only the element that it
 * is about to store. */
static bool reads_own_element(struct tgc *t, struct uop *store, const struct buffer *in,
                              bool replaces)
{
    int n;
    if (replaces && uop_reads_memory(t, store->src[1]))
        return false; /* the offset is data-dependent: elements may be stored twice */
    struct uop **order = uop_toposort(t, &store->src[2], 1, &n);
    for (int i = 0; i < n; i++) {
        bool reads = order[i]->op == OP_LOAD && uop_buffer_of(order[i]->src[0]) == in;
        if (reads && (!replaces || order[i]->src[1] != store->src[1]))
            return false;
    }
    return true;
}

/* True if the kernel reads `in` only at the element that it is about to store. It stores it once;
 * other nests of a band store to scratch. */
static bool is_elementwise_in(struct tgc *t, const struct kernel *k, const struct buffer *in)
{
    int nstore = 0;
    for (int i = 0; i < k->ast->nsrc; i++) {
        struct uop *store = k->ast->src[i];
        bool guarded = store->nsrc > 3 && store->src[3]->dtype == DTYPE_BOOL;
        bool replaces = uop_buffer_of(store->src[0])->kind != BUFFER_SCRATCH;
        nstore += replaces;
        if (nstore > 1 || guarded || !reads_own_element(t, store, in, replaces))
            return false;
    }
    return nstore == 1;
}

static bool is_elementwise(struct tgc *t, const struct kernel *k, const struct buffer *in)
{
    struct mem_mark mark = scratch_mark(t);
    bool yes = is_elementwise_in(t, k, kernel_buffer_there(k, in));
    scratch_release(t, mark);
    return yes;
}

static bool may_move_in(struct memory *m, const struct kernel *k, int step,
                        const struct slot *place, const struct tenant *out, const struct tenant *in)
{
    if (!in || in == out || in->has_parts || in->place < 0 || in->place == out->place ||
        k->stores_twice)
        return false;
    const struct slot *to = &place[in->place];
    return to->nbytes == place[out->place].nbytes && to->span[to->nspan - 1].end == step &&
           dtype_nbytes(in->buffer->dtype) == dtype_nbytes(out->buffer->dtype) &&
           is_elementwise(m->t, k, in->buffer);
}

/* Appends the place `from`, which begins in the step where the place `to` ends, to that one. */
static void join_places(struct memory *m, struct slot *place, int to, int from)
{
    struct slot *a = &place[to], *b = &place[from];
    struct span *span = mem_array(m->t, (size_t)(a->nspan + b->nspan), sizeof *span);
    ARRAY_COPY(span, a->span, a->nspan);
    ARRAY_COPY(span + a->nspan - 1, b->span, b->nspan);
    span[a->nspan - 1].begin = a->span[a->nspan - 1].begin;
    a->span = span;
    a->nspan += b->nspan - 1;
    *b = (struct slot){0};
    for (int i = 0; i < m->s->nbuffer; i++) {
        if (m->tenant[i].place == from)
            m->tenant[i].place = to;
    }
}

static void share_in_place(struct memory *m, struct slot *place)
{
    for (int step = 0; step < m->s->nstep && !m->t->image; step++) {
        const struct kernel *k = m->s->step[step].kernel;
        struct tenant *out = k && k->noutput == 1 ? tenant_of(m, k->buffer[0]) : NULL;
        if (!out || out->has_parts || out->place < 0 || place[out->place].span[0].begin != step)
            continue;
        for (int i = k->noutput; i < k->nbuffer; i++) {
            const struct tenant *in = tenant_of(m, k->buffer[i]);
            if (may_move_in(m, k, step, place, out, in)) {
                join_places(m, place, in->place, out->place);
                break;
            }
        }
    }
}

/* ----------------------------------------------------------------------------- one over another */

/* The input of a step's kernel that saves most if the result overlaps it, in either direction
 * (ndirection 2) or forwards only (1). Returns the bytes saved, 0: none. */
static size_t find_under(struct memory *m, struct slot *place, int step, const bool *is_under,
                         int ndirection)
{
    const struct kernel *k = m->s->step[step].kernel;
    const struct tenant *out = k && k->noutput == 1 ? tenant_of(m, k->buffer[0]) : NULL;
    size_t most = 0;
    /* a device's images are parts of its memory; an image must not be read while an overlapping one
     * is written */
    if (m->t->image || !out || out->has_parts || out->place < 0 ||
        place[out->place].span[0].begin != step)
        return 0;
    struct slot best = place[out->place];
    for (int i = k->noutput * ndirection; i < k->nbuffer * ndirection; i++) {
        const struct tenant *in = tenant_of(m, k->buffer[i / ndirection]);
        struct slot over = place[out->place];
        over.backwards = i % ndirection == 1;
        if (!in || in->has_parts || in->place < 0 || in->place == out->place ||
            is_under[in->place] || place[in->place].span[place[in->place].nspan - 1].end != step ||
            !overlap_find(m->t, k, out->buffer, in->buffer, over.backwards, &over.ahead))
            continue;
        over.over = in->place + 1;
        size_t saved = arena_saves(&place[in->place], &over);
        /* in a chain whose results moved down, the next one moves up */
        bool turns = over.backwards && best.over == over.over && saved == most &&
                     place[in->place].over && !place[in->place].backwards;
        if (saved > most || turns) {
            most = saved;
            best = over;
        }
    }
    place[out->place] = best;
    return most;
}

/* Lets kernels' results overlap their inputs where that reduces the peak: from the step of the
 * largest load on, until the remaining load is needed anyway. false: nowhere. */
static bool lay_over(struct memory *m, struct slot *place, int n, int ndirection)
{
    int nstep = m->s->nstep;
    size_t reached = 0, *load = mem_array(m->t, (size_t)nstep + 1, sizeof *load);
    bool *is_under = mem_array(m->t, (size_t)n + 1, sizeof *is_under);
    bool any = false;
    if (!arena_loads(place, n, load))
        return false;
    for (;;) {
        int step = 0;
        for (int s = 0; s < nstep; s++)
            step = load[s] > load[step] ? s : step;
        if (nstep == 0 || load[step] <= reached)
            return any;
        size_t saved = find_under(m, place, step, is_under, ndirection);
        size_t left = load[step] - saved;
        any |= saved > 0;
        load[step] = 0;
        reached = left > reached ? left : reached;
        for (int i = 0; i < n && saved; i++)
            if (place[i].over && place[i].nspan && place[i].span[0].begin == step)
                is_under[place[i].over - 1] = true;
    }
}

/* ------------------------------------------------------------------------------------ the arena */

bool scratch_is_on_stack(const struct buffer *b)
{
    return b->kind == BUFFER_SCRATCH && b->nbytes > 0 && b->scratch.space != SPACE_GLOBAL &&
           (b->nbytes <= STACK_SCRATCH_NBYTES || b->scratch.space == SPACE_SHARED ||
            b->scratch.is_register);
}

size_t scratch_stride(const struct buffer *b)
{
    return (b->nbytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* How many copies of each buffer the arena holds: scratch of kernels that threads share has one per
 * thread, of a block, too. */
static void find_copies(struct memory *m)
{
    struct schedule *s = m->s;
    for (int i = 0; i < s->nbuffer; i++)
        m->tenant[i].copies = 1;
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        for (int j = 0; j < k->nscratch; j++) {
            struct tenant *n = tenant_of(m, k->scratch[j]);
            if (n && n->buffer->scratch.space != SPACE_GLOBAL)
                n->copies = (size_t)(k->is_shared ? s->threads : 1) *
                            (size_t)(k->block ? kernel_threads(k) : 1);
        }
    }
}

static void find_tenants(struct memory *m)
{
    struct schedule *s = m->s;
    m->tenant = mem_array(m->t, (size_t)s->nbuffer, sizeof *m->tenant);
    m->tenant_of = mem_array(m->t, (size_t)m->t->next_buffer, sizeof *m->tenant_of);
    for (int i = 0; i < s->nbuffer; i++) {
        m->tenant[i] = (struct tenant){.buffer = s->buffer[i], .place = -1};
        if (!s->buffer[i]->base)
            m->tenant_of[s->buffer[i]->id] = i + 1;
    }
    for (int i = 0; i < s->nbuffer; i++) {
        const struct buffer *root = buffer_root(s->buffer[i]);
        bool arena = root->kind == BUFFER_TEMP || root->kind == BUFFER_STATE;
        if (root != s->buffer[i] && arena && !m->tenant_of[root->id])
            TGC_BUG(m->t, "buffer %d is a part of buffer %d, which the schedule lacks",
                    s->buffer[i]->id, root->id);
    }
    find_copies(m);
    memory_add_steps(m);
}

struct layout {
    struct slot *place;
    int n;
    int *place_of; /* by tenant */
    size_t total, live;
};

enum sharing { SHARE_NOTHING, SHARE_IN_PLACE, SHARE_PARTS, SHARE_PARTS_BOTH_WAYS };

static bool lay_out(struct memory *m, enum sharing sharing, struct layout *l)
{
    struct schedule *s = m->s;
    l->place = mem_array(m->t, (size_t)s->nbuffer, sizeof *l->place);
    l->place_of = mem_array(m->t, (size_t)s->nbuffer, sizeof *l->place_of);
    l->n = 0;
    for (int i = 0; i < s->nbuffer; i++) {
        struct tenant *n = &m->tenant[i];
        n->place = -1;
        if (!n->naccess || !n->buffer->nbytes || scratch_is_on_stack(n->buffer) ||
            n->buffer->is_verdict)
            continue;
        n->place = l->n++;
        l->place[n->place] = tenant_slot(m, n);
    }
    if (sharing >= SHARE_IN_PLACE)
        share_in_place(m, l->place);
    if (sharing >= SHARE_PARTS &&
        !lay_over(m, l->place, l->n, sharing == SHARE_PARTS_BOTH_WAYS ? 2 : 1))
        return false;
    for (int i = 0; i < s->nbuffer; i++)
        l->place_of[i] = m->tenant[i].place;
    l->live = arena_live_nbytes(m->t, l->place, l->n, s->nstep);
    return arena_pack(m->t, l->place, l->n, s->nstep, &l->total, NULL);
}

/* Offsets of parts follow from their base's. A buffer without a place gets an offset after the
 * arena, so that it overlaps with no other. */
static void place_buffers(struct memory *m, const struct layout *l)
{
    for (int i = 0; i < m->s->nbuffer; i++) {
        int p = l->place_of[i];
        m->s->buffer[i]->offset = p < 0 ? l->total : l->place[p].offset;
        m->s->buffer[i]->placed = p < 0 ? 0 : l->place[p].nbytes;
    }
    for (int i = 0; i < m->s->nbuffer; i++) {
        struct buffer *b = m->s->buffer[i];
        int64_t at = 0, first;
        for (const struct buffer *x = b; x->base; x = x->base) {
            if (x->base_offset && uop_const_int(x->base_offset, &first))
                at = sat_add(at, sat_mul(first, (int64_t)dtype_nbytes(x->dtype)));
        }
        if (b->base)
            b->offset = buffer_root(b)->offset + (size_t)at;
    }
}

/* Kernels whose output overlaps the tail of a dying input count down. */
static void turn_kernels(struct schedule *s, const struct layout *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->place[i].over && l->place[i].nspan && l->place[i].backwards)
            s->step[l->place[i].span[0].begin].kernel->counts_down = true;
}

/* Counting down has to save a share of the arena: compilers can no longer prove that stores and
 * loads do not alias. */
static bool is_better(const struct layout *l, enum sharing sharing, const struct layout *than)
{
    enum { TURN_SHARE = 25 };
    size_t least = sharing == SHARE_PARTS_BOTH_WAYS ? than->total / TURN_SHARE : 0;
    return l->total < than->total - least;
}

/* Notes what is live in the step with the largest live set. */
static bool note_live(struct memory *m, const struct layout *l)
{
    struct schedule *s = m->s;
    size_t *load = mem_array(m->t, (size_t)s->nstep + 1, sizeof *load);
    if (!arena_loads(l->place, l->n, load))
        return false;
    for (int i = 0; i < s->nstep; i++)
        s->live_step = load[i] > load[s->live_step] ? i : s->live_step;
    s->live = mem_array(m->t, (size_t)s->nbuffer + 1, sizeof *s->live);
    for (int i = 0; i < s->nbuffer; i++) {
        struct tenant *n = &m->tenant[i];
        if (l->place_of[i] < 0)
            continue;
        struct slot own = tenant_slot(m, n);
        for (int k = 0; k < own.nspan; k++)
            if (own.span[k].begin <= s->live_step && own.span[k].end >= s->live_step)
                s->live[s->nlive++] = n->buffer;
    }
    for (int i = 1; i < s->nlive; i++)           /* insertion keeps the order of equal ones */
        for (int k = i; k > 0 && s->live[k]->nbytes > s->live[k - 1]->nbytes; k--) {
            struct buffer *b = s->live[k];
            s->live[k] = s->live[k - 1];
            s->live[k - 1] = b;
        }
    return true;
}

static bool plan_arena(struct memory *m)
{
    static const enum sharing order[] = {SHARE_IN_PLACE, SHARE_NOTHING, SHARE_PARTS,
                                         SHARE_PARTS_BOTH_WAYS};
    struct layout layout[4], *best = NULL;
    find_tenants(m);
    for (int i = 0; i < 4; i++)
        if ((!best || best->total > best->live || order[i] >= SHARE_PARTS) &&
            lay_out(m, order[i], &layout[i]) && (!best || is_better(&layout[i], order[i], best)))
            best = &layout[i];
    if (!best)
        return diag_error(m->t, NULL,
                          "the intermediate tensors together need more memory than can "
                          "be addressed: give dimensions smaller bounds");
    if (best->total > m->t->mem_limit)
        return diag_error(
            m->t, NULL,
            "the intermediate tensors need an arena of %zu bytes, more than the limit "
            "of %zu: raise --max-memory or give dimensions smaller bounds",
            best->total, m->t->mem_limit);
    m->s->arena_nbytes = best->total;
    m->s->live_nbytes = best->live;
    if (!note_live(m, best))
        return false;
    place_buffers(m, best);
    turn_kernels(m->s, best);
    return true;
}

/* --------------------------------------------------------------------------------------- states */

/* First or last step of the outermost loop that contains the step, or the step itself: in the next
 * iteration, later steps come before it. */
static int around_loops(const struct memory *m, int step, bool end)
{
    int at = step;
    for (int i = 0; i < m->nregion; i++) {
        const struct region *r = &m->region[i];
        if (r->loop && r->begin <= step && r->end >= step)
            at = end ? (r->end > at ? r->end : at) : r->begin < at ? r->begin : at;
    }
    return at;
}

static bool step_touches(const struct step *step, const struct buffer *b, bool write)
{
    const struct kernel *k = step->kernel;
    bool found = false;
    for (int i = 0; k && i < k->nbuffer; i++)
        found |= k->buffer[i] == b && (i < k->noutput) == write;
    for (int i = 0; i < step->narg; i++)
        found |= step->arg[i] == b && (i >= step->narg - step->host->nout) == write;
    return found;
}

static bool expr_reads(struct tgc *t, struct uop *u, const struct buffer *b)
{
    struct mem_mark mark = scratch_mark(t);
    bool found = false;
    int n = 0;
    struct uop **order = u ? uop_toposort(t, &u, 1, &n) : NULL;
    for (int i = 0; i < n; i++)
        found |= order[i]->op == OP_LOAD && uop_buffer_of(order[i]->src[0]) == b;
    scratch_release(t, mark);
    return found;
}

/* Whether the kernel reads a state and may store its next value in the same place. */
static bool may_replace(struct memory *m, const struct kernel *k, const struct state *st)
{
    int64_t ahead;
    if (!k || k->noutput != 1 || k->stores_twice)
        return false;
    return is_elementwise(m->t, k, st->in) ||
           (overlap_find(m->t, k, st->out, st->in, false, &ahead) && ahead >= 0);
}

/* Whether the next value may be stored over the state: nobody reads the old value afterwards, and
 * no later step can fail, so that a run with a bad status leaves the state as it was. Verdicts are
 * read when all is stored. */
static bool may_stay_in(struct memory *m, const struct state *st, uint64_t entry)
{
    int read = -1, write = m->s->nstep;
    bool same = false;
    for (int i = 0; i < m->s->nstep; i++) {
        const struct step *step = &m->s->step[i];
        if (!(m->entries[i] & entry))
            continue;
        bool reads = step_touches(step, st->in, false) || expr_reads(m->t, step->cond, st->in) ||
                     expr_reads(m->t, step->trip, st->in),
             writes = step_touches(step, st->out, true);
        if (step->kind == STEP_HOST && write < m->s->nstep)
            return false;
        if (reads)
            read = around_loops(m, i, true);
        if (writes && write == m->s->nstep) {
            write = around_loops(m, i, false);
            same = reads && may_replace(m, step->kernel, st);
        }
    }
    return read < write || (read == write && same);
}

/* In each entry, of which a run is one. */
static bool may_stay(struct memory *m, const struct state *st)
{
    if (m->s->nverdict > 0)
        return false;
    uint64_t all = 0;
    for (int i = 0; i < m->s->nstep; i++)
        all |= m->entries[i];
    for (uint64_t entry = 1; entry && entry <= all; entry <<= 1)
        if ((all & entry) && !may_stay_in(m, st, entry))
            return false;
    return true;
}

/* The entries, a bit for each, in which a condition of entry_steps.c holds; all: it is no such. */
static uint64_t entries_of(const struct graph *g, const struct uop *cond, uint64_t all)
{
    int64_t e;
    if (cond->op == OP_OR)
        return entries_of(g, cond->src[0], all) | entries_of(g, cond->src[1], all);
    for (int i = 0; cond->op == OP_EQ && i < 2; i++)
        if (cond->src[i]->op == OP_VAR && cond->src[i]->arg.p == g->entry_number &&
            uop_const_int(cond->src[1 - i], &e) && e >= 0 && e < g->nentry)
            return UINT64_C(1) << e;
    return all;
}

/* Of each step, the entries whose runs make it. */
static void find_entries(struct memory *m)
{
    enum { MOST = 64 };
    const struct schedule *s = m->s;
    int n = s->graph ? s->graph->nentry : 0, depth = 0;
    const uint64_t all = n == 0 || n > MOST ? 1 : UINT64_MAX >> (MOST - n);
    uint64_t open = all;
    m->entries = mem_array(m->t, (size_t)s->nstep + 1, sizeof *m->entries);
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        bool begins = step->kind == STEP_IF || step->kind == STEP_LOOP;
        bool ends = step->kind == STEP_ENDIF || step->kind == STEP_ENDLOOP;
        if (begins && depth++ == 0 && step->kind == STEP_IF && n > 0 && n <= MOST)
            open = entries_of(s->graph, step->cond, all);
        m->entries[i] = open;
        if (ends && --depth == 0)
            open = all;
    }
}

/* A part is placed in its state's place, from that one's first element on. */
static bool size_part(struct tgc *t, struct state_part *part)
{
    size_t first = (size_t)part->first * dtype_nbytes(part->out->dtype);
    if (!buffer_set_size(t, part->out))
        return false;
    part->out->nbytes = part->state->nbytes ? part->state->nbytes - first : 0;
    part->out->offset = part->state->place[1] + first;
    return true;
}

/* The first free byte of each block: after its head and its table. */
static void begin_blocks(struct schedule *s)
{
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT; b++)
        s->block_nbytes[b] = BLOCK_HEAD_BYTES;
    for (int i = 0; i < s->nstate; i++)
        s->block_nbytes[s->state[i]->in->port.block] += BLOCK_ROW_BYTES;
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT; b++)
        s->block_nbytes[b] =
            (s->block_nbytes[b] + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    s->block_nbytes[BLOCK_ARENA] = 0;
}

static bool take_place(struct memory *m, size_t *total, size_t nbytes, size_t *place)
{
    *place = *total;
    return (size_add(*total, nbytes, total) && size_align(*total, ARENA_ALIGN, total)) ||
           diag_error(m->t, NULL, "the states together need more memory than can be addressed: "
                                  "give their dimensions smaller bounds");
}

/* On a device all places are in its memory, and so count from one begin: the blocks, one after the
 * other, then the second places, which take turns with those in the blocks. */
static void join_blocks(struct schedule *s)
{
    size_t at = 0;
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT && s->graph->training; b++) {
        s->block_at[b] = at;
        at += s->block_nbytes[b];
    }
    for (int i = 0; i < s->nstate; i++) {
        struct state *st = s->state[i];
        st->place[0] += s->block_at[st->in->port.block];
        st->place[1] += st->out->port.block == BLOCK_ARENA ? at : s->block_at[st->in->port.block];
        st->is_copied = false;
    }
    s->state_nbytes = at + s->block_nbytes[BLOCK_ARENA];
}

static bool place_parts(struct memory *m)
{
    for (int i = 0; i < m->s->nstate; i++) {
        struct state *st = m->s->state[i];
        st->in->offset = st->place[0];
        st->out->offset = st->place[1];
        for (int k = 0; k < st->npart; k++)
            if (!size_part(m->t, &st->part[k]))
                return false;
    }
    return true;
}

/* Places all states, from 0 on: the program puts them in front of the intermediates, and those of
 * blocks in their blocks. */
static bool plan_states(struct memory *m)
{
    struct schedule *s = m->s;
    size_t all = 0;
    begin_blocks(s);
    for (int i = 0; i < s->nstate; i++) {
        struct state *st = s->state[i];
        enum state_block block = st->in->port.block;
        bool one = st->length || st->is_updated || may_stay(m, st);
        if (!buffer_set_size(m->t, st->in) || !buffer_set_size(m->t, st->out))
            return false;
        st->nbytes = st->in->nbytes;
        st->out->nbytes = st->nbytes; /* a run that needs more ends with a status */
        if (!take_place(m, &s->block_nbytes[block], st->nbytes, &st->place[0]))
            return false;
        st->place[1] = st->place[0];
        if (!one && !take_place(m, &s->block_nbytes[BLOCK_ARENA], st->nbytes, &st->place[1]))
            return false;
        st->is_copied = block != BLOCK_ARENA && !one;
        st->out->port.block = one ? block : BLOCK_ARENA;
    }
    s->state_nbytes = s->block_nbytes[BLOCK_ARENA];
    bool fits = true;
    for (int b = 0; b < BLOCK_COUNT; b++)
        fits &= size_add(all, s->block_nbytes[b], &all);
    if (!fits || !size_add(all, s->arena_nbytes, &all) || all > m->t->mem_limit)
        return diag_error(
            m->t, NULL,
            "the states need %zu bytes of the arena and the intermediate tensors %zu, more "
            "than the limit of %zu: raise --max-memory or give dimensions smaller bounds",
            all - s->arena_nbytes, s->arena_nbytes, m->t->mem_limit);
    if (s->on_device)
        join_blocks(s);
    return place_parts(m);
}

/* ------------------------------------------------------------------------------------- the pass */

bool pass_arena(struct tgc *t, struct schedule *s)
{
    struct memory m = {.t = t, .s = s};
    find_entries(&m);
    return plan_arena(&m) && plan_states(&m);
}
