/* memory.c - the place of every buffer: live ranges over the steps, results in place, the arena,
 * the weights.
 *
 * The steps are structured: IF..ELSE..ENDIF and LOOP..ENDLOOP nest. A buffer is live from its first
 * to its last access, and
 *   - through a whole LOOP if it is accessed inside and outside it, or is read there before it
 *     is written: another iteration needs it;
 *   - not in a branch of an IF that does not use it, if the other branch has its first write or its
 *     last read.
 * So a live range is a list of spans. A buffer that is a part of another one (a concat's source) is
 * placed within it.
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

struct access {
    int step;
    bool read, write;
};

struct region {
    bool loop;
    int begin, middle, end; /* steps of LOOP or IF, of ELSE (or the end), of ENDLOOP or ENDIF */
};

/* A buffer that is not a part of another one, together with its parts. */
struct tenant {
    struct buffer *buffer;
    struct access *access; /* by step */
    int naccess;
    size_t cap_access;
    bool has_parts;
    int place; /* index, -1: none */
    size_t copies;
};

struct memory {
    struct tgc *t;
    struct schedule *s;
    struct tenant *tenant; /* as s->buffer */
    int *tenant_of;        /* by buffer id: index + 1 */
    struct region *region; /* inner regions before outer ones */
    int nregion;
    size_t cap_region;
};

/* ---------------------------------------------------------------------------------------- sizes */

static const char *describe(struct tgc *t, const struct buffer *b)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(b->dtype));
    for (int a = 0; a < b->ndim; a++)
        text_printf(&x, "%s%lld", a ? "," : "", (long long)b->dim[a]->vmax);
    text_printf(&x, "]%s%s%s", b->name ? " '" : "", b->name ? b->name : "", b->name ? "'" : "");
    return x.s;
}

/* Bytes at the dimensions' upper bounds. */
static bool size_buffer(struct tgc *t, struct buffer *b)
{
    size_t nbytes = dtype_nbytes(b->dtype);
    bool empty = false;
    for (int a = 0; a < b->ndim; a++)
        empty |= b->dim[a]->vmax <= 0;
    for (int a = 0; a < b->ndim && !empty; a++) {
        if ((uint64_t)b->dim[a]->vmax > PTRDIFF_MAX ||
            !size_mul(nbytes, (size_t)b->dim[a]->vmax, &nbytes) || nbytes > PTRDIFF_MAX)
            return diag_error(t, NULL,
                              "a tensor may be as large as %s, more than memory can address: give "
                              "its dimensions smaller bounds",
                              describe(t, b));
    }
    b->nbytes = empty ? 0 : nbytes;
    return true;
}

static bool size_buffers(struct tgc *t, struct buffer *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        if (!size_buffer(t, b[i]))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------- accesses */

static struct buffer *root_of(struct buffer *b)
{
    while (b->base)
        b = b->base;
    return b;
}

static struct tenant *tenant_of(const struct memory *m, struct buffer *b)
{
    int i = m->tenant_of[root_of(b)->id];
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

/* Buffers that the expression loads from. */
static void add_reads(struct memory *m, struct uop *u, int step)
{
    struct mem_mark mark = scratch_mark(m->t);
    int n;
    struct uop **order = uop_toposort(m->t, &u, 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op == OP_LOAD && order[i]->src[0]->op == OP_BUFFER)
            add_access(m, (struct buffer *)(uintptr_t)order[i]->src[0]->arg.p, step, true, false);
    }
    scratch_release(m->t, mark);
}

static void add_kernel(struct memory *m, const struct kernel *k, int step)
{
    for (int i = 0; i < k->nbuffer; i++)
        add_access(m, k->buffer[i], step, i >= k->noutput, i < k->noutput);
    for (int i = 0; i < k->nscratch; i++)
        add_access(m, k->scratch[i], step, false, true);
    add_reads(m, k->ast, step); /* an output may be read, too */
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
        add_reads(m, st->cond, step);
    if (st->trip)
        add_reads(m, st->trip, step);
}

/* The LOOP step belongs to its region, so a trip count lives through the loop: it may be read again
 * before each iteration. */
static void add_steps(struct memory *m)
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

static struct slot place_of(struct memory *m, const struct tenant *n)
{
    struct slot p = {.nbytes = n->buffer->nbytes};
    /* SIZE_MAX fits in no arena: arena_pack() reports it */
    if (n->copies > 1 && !size_mul(scratch_stride(n->buffer), n->copies, &p.nbytes))
        p.nbytes = SIZE_MAX;
    size_t cap = 0;
    struct span life = extend_over_loops(m, n), hole;
    if (n->buffer->kept) {
        for (int i = 0; i < m->nregion; i++)
            if (m->region[i].loop && first_within(n, m->region[i].begin, m->region[i].end))
                diag_error(m->t, NULL, "an operator inside of a loop makes strings; that is not "
                           "supported, since they would have to outlast an iteration");
        life = (struct span){0, m->s->nstep - 1};
    }
    VEC_PUSH(m->t, p.span, p.nspan, cap, life);
    for (int i = 0; i < m->nregion && !n->buffer->kept; i++) {
        if (!m->region[i].loop && find_hole(m, n, life, &m->region[i], &hole))
            cut_hole(m, &p, &cap, hole);
    }
    return p;
}

/* ------------------------------------------------------------------------------------- in place */

/* Whether the store does not load `in`, or, if its result replaces `in`, only the element that it
 * is about to store. */
static bool reads_own_element(struct tgc *t, struct uop *store, const struct buffer *in,
                              bool replaces)
{
    int n;
    struct uop **order = uop_toposort(t, &store->src[1], 1, &n);
    for (int i = 0; i < n && replaces; i++) {
        if (order[i]->op == OP_LOAD)
            return false; /* the offset is data-dependent: elements may be stored twice */
    }
    order = uop_toposort(t, &store->src[2], 1, &n);
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
    bool yes = is_elementwise_in(t, k, in);
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
    memcpy(span, a->span, (size_t)a->nspan * sizeof *span);
    memcpy(span + a->nspan - 1, b->span, (size_t)b->nspan * sizeof *span);
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
    for (int step = 0; step < m->s->nstep; step++) {
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
    if (!out || out->has_parts || out->place < 0 || place[out->place].span[0].begin != step)
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
    return b->kind == BUFFER_SCRATCH && b->nbytes > 0 && b->nbytes <= STACK_SCRATCH_NBYTES;
}

size_t scratch_stride(const struct buffer *b)
{
    return (b->nbytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* How many copies of each buffer the arena holds: scratch of kernels that threads share has one per
 * thread. */
static void find_copies(struct memory *m)
{
    struct schedule *s = m->s;
    for (int i = 0; i < s->nbuffer; i++)
        m->tenant[i].copies = 1;
    for (int i = 0; i < s->nkernel; i++)
        for (int j = 0; s->kernel[i]->is_shared && j < s->kernel[i]->nscratch; j++) {
            struct tenant *n = tenant_of(m, s->kernel[i]->scratch[j]);
            if (n)
                n->copies = (size_t)s->threads;
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
        struct buffer *root = root_of(s->buffer[i]);
        bool arena = root->kind == BUFFER_TEMP || root->kind == BUFFER_STATE;
        if (root != s->buffer[i] && arena && !m->tenant_of[root->id])
            TGC_BUG(m->t, "buffer %d is a part of buffer %d, which the schedule lacks",
                    s->buffer[i]->id, root->id);
    }
    find_copies(m);
    add_steps(m);
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
        if (!n->naccess || !n->buffer->nbytes || scratch_is_on_stack(n->buffer))
            continue;
        n->place = l->n++;
        l->place[n->place] = place_of(m, n);
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

/* Offsets of parts follow from their base's. A buffer without a place gets an offset behind the
 * arena, so that it overlaps with no other. */
static void place_buffers(struct memory *m, const struct layout *l)
{
    for (int i = 0; i < m->s->nbuffer; i++) {
        int p = l->place_of[i];
        m->s->buffer[i]->offset = p < 0 ? l->total : l->place[p].offset;
    }
    for (int i = 0; i < m->s->nbuffer; i++) {
        struct buffer *b = m->s->buffer[i];
        int64_t at = 0, first;
        for (const struct buffer *x = b; x->base; x = x->base) {
            if (x->base_offset && uop_const_int(x->base_offset, &first))
                at = sat_add(at, sat_mul(first, (int64_t)dtype_nbytes(x->dtype)));
        }
        if (b->base)
            b->offset = root_of(b)->offset + (size_t)at;
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
 * no later step can fail, so that a run with a bad status leaves the state as it was. */
static bool may_stay(struct memory *m, const struct state *st)
{
    int read = -1, write = m->s->nstep;
    bool same = false;
    for (int i = 0; i < m->s->nstep; i++) {
        const struct step *step = &m->s->step[i];
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

/* A part is placed in its state's place, from that one's first element on. */
static bool size_part(struct tgc *t, struct state_part *part)
{
    size_t first = (size_t)part->first * dtype_nbytes(part->out->dtype);
    if (!size_buffer(t, part->out))
        return false;
    part->out->nbytes = part->state->nbytes ? part->state->nbytes - first : 0;
    part->out->offset = part->state->place[1] + first;
    return true;
}

/* Places all states, from 0 on: the program puts them in front of the intermediates. */
static bool plan_states(struct memory *m)
{
    struct schedule *s = m->s;
    size_t total = 0, all;
    for (int i = 0; i < s->nstate; i++) {
        struct state *st = s->state[i];
        bool one = st->length || st->is_updated || may_stay(m, st);
        if (!size_buffer(m->t, st->in) || !size_buffer(m->t, st->out))
            return false;
        st->nbytes = st->in->nbytes;
        st->out->nbytes = st->nbytes; /* a run that needs more ends with a status */
        for (int k = 0; k < 2; k++) {
            st->place[k] = k == 1 && one ? st->place[0] : total;
            if (k == 1 && one)
                continue;
            if (!size_add(total, st->nbytes, &total) || !size_align(total, ARENA_ALIGN, &total))
                return diag_error(m->t, NULL,
                                  "the states together need more memory than can be "
                                  "addressed: give their dimensions smaller bounds");
        }
        st->in->offset = st->place[0];
        st->out->offset = st->place[1];
        for (int k = 0; k < st->npart; k++)
            if (!size_part(m->t, &st->part[k]))
                return false;
    }
    if (!size_add(total, s->arena_nbytes, &all) || all > m->t->mem_limit)
        return diag_error(
            m->t, NULL,
            "the states need %zu bytes of the arena and the intermediate tensors %zu, more "
            "than the limit of %zu: raise --max-memory or give dimensions smaller bounds",
            total, s->arena_nbytes, m->t->mem_limit);
    s->state_nbytes = total;
    return true;
}

/* -------------------------------------------------------------------------------------- weights */

struct weight_entry {
    const struct buffer *weight;
    uint64_t hash;
};

/* The entry of an equal weight, or the free entry where w is to be inserted. */
static struct weight_entry *find_weight(struct weight_entry *table, size_t size,
                                        const struct buffer *w, uint64_t hash)
{
    size_t i = hash & (size - 1);
    for (; table[i].weight; i = (i + 1) & (size - 1)) {
        const struct buffer *other = table[i].weight;
        if (table[i].hash == hash && other->dtype == w->dtype && other->nbytes == w->nbytes &&
            other->storage == w->storage &&
            (other->data == w->data || !memcmp(other->data, w->data, w->nbytes)))
            break;
    }
    return &table[i];
}

/* Weights are placed in order of first use; equal ones share a place. */
bool pass_weights(struct tgc *t, struct schedule *s)
{
    size_t size = 16, total = 0;
    while (size < 2 * (size_t)s->nweight)
        size *= 2;
    struct weight_entry *table = mem_array(t, size, sizeof *table);
    for (int i = 0; i < s->nweight; i++) {
        struct buffer *w = s->weight[i];
        size_t given = w->nbytes;
        if (!size_buffer(t, w))
            return false;
        if (given != w->nbytes && given)
            TGC_BUG(t, "weight %s has %zu bytes", describe(t, w), given);
        w->offset = total;
        if (!w->nbytes || w->dtype == DTYPE_STRING)
            continue; /* strings are pointers: the backend writes them separately */
        uint64_t hash = hash_bytes(0xcbf29ce484222325u ^ w->nbytes, w->data, w->nbytes);
        struct weight_entry *found = find_weight(table, size, w, hash);
        if (found->weight) {
            w->offset = found->weight->offset;
            w->same = found->weight;
            continue;
        }
        *found = (struct weight_entry){w, hash};
        if (!size_align(total, ARENA_ALIGN, &w->offset) || !size_add(w->offset, w->nbytes, &total))
            return diag_error(t, NULL,
                              "the weights together need more memory than can be addressed");
    }
    s->weight_nbytes = total;
    return true;
}

bool pass_sizes(struct tgc *t, struct schedule *s)
{
    return size_buffers(t, s->buffer, s->nbuffer) && size_buffers(t, s->input, s->ninput) &&
           size_buffers(t, s->output, s->noutput);
}

bool pass_arena(struct tgc *t, struct schedule *s)
{
    struct memory m = {.t = t, .s = s};
    return plan_arena(&m) && plan_states(&m);
}
