/* band_cost.c - what a group of layers in bands costs and saves: time, or memory where rewritten
 * layers need more of it than the model's own tensors do (layer_memory.c).
 */
#include "passes/analysis/stationary.h"
#include "passes/plan/band.h"
#include "passes/analysis/nest.h"

#include <math.h>
#include <string.h>

enum { ROWS = 128, ROOM_ROWS = 4, LAYER_NBYTES = 4096, BUFFERS_MAX = 16 };

static double stored_nbytes(const struct segment *s)
{
    return value_nelem(s->value) * (double)dtype_nbytes(s->value->dtype);
}

double band_read_by(const struct segment *s, const struct buffer *b)
{
    double most = 0;
    for (const struct use *u = s->use; u; u = u->next_of_seg) {
        double n = value_nelem(u->node->u) * (double)dtype_nbytes(b->dtype);
        if (u->node->buffer == b && !u->root && n > most)
            most = n;
    }
    return most;
}

/* -------------------------------------------------------------------------------- what it costs */

/* Axes along which the reduction u would be recomputed though it is invariant: a sum per channel
 * over a whole image. A sum that is invariant along all axes is computed before the bands. */
static uint32_t axes_of_no_effect(struct tgc *t, struct uop *u, const struct segment *s)
{
    uint32_t on = 0, off = 0;
    for (int a = 0; a < s->value->ndim && u->op == OP_REDUCE; a++)
        if (s->axis[a]->op == OP_RANGE)
            *(uop_depends_on(t, u, s->axis[a]) ? &on : &off) |= 1u << a;
    return on ? off : 0;
}

/* Axes along which the weights of a sum in the kernel vary, whichever of its stores has the sum. */
static uint32_t columns_of_sum(struct tgc *t, struct uop *ast, struct uop *sum,
                               const struct segment *s)
{
    struct nest m;
    uint32_t columns = 0;
    if (sum->op != OP_REDUCE || !nest_find_sum(t, ast->src[0], sum, &m))
        return 0;
    for (int a = 0; a < s->value->ndim; a++)
        if (s->axis[a]->op == OP_RANGE && nest_axis(&m, s->axis[a]).weights)
            columns |= 1u << a;
    return columns;
}

/* Axes on which some choice depends. */
static uint32_t axes_of_choice(struct tgc *t, struct uop *u, const struct segment *s)
{
    uint32_t axes = 0;
    for (int a = 0; a < s->value->ndim && u->op == OP_LT; a++)
        if (s->axis[a]->op == OP_RANGE && uop_depends_on(t, u, s->axis[a]))
            axes |= 1u << a;
    return axes;
}

const struct work *band_work(struct banding *w, struct segment *s)
{
    struct plan *p = w->p;
    int n;
    struct work *k = &w->work[s->at];
    if (k->known)
        return k;
    struct segment *next = s->next;
    k->buffer = mem_array(p->t, BUFFERS_MAX, sizeof *k->buffer);
    struct mem_mark mark = scratch_mark(p->t);
    s->next = NULL;
    struct uop *ast = lower_trial(p, s);
    s->next = next;
    (void)linearize(p->t, ast, &n, &k->flop);
    struct uop **order = uop_toposort(p->t, &ast, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? uop_buffer_of(order[i]) : NULL;
        if (b && b->kind == BUFFER_TEMP && k->nbuffer < BUFFERS_MAX)
            k->buffer[k->nbuffer++] = b;
        if (!b || b == s->dest)
            continue;
        double nbytes = band_read_by(s, b);
        *(buffer_is_stationary(b) ? &k->weights : &k->reads) +=
            nbytes > 0 ? nbytes : buffer_most_nbytes(b);
    }
    for (int i = 0; i < n; i++) {
        k->columns |= columns_of_sum(p->t, ast, order[i], s);
        k->chooses |= axes_of_choice(p->t, order[i], s);
        k->repeats |= axes_of_no_effect(p->t, order[i], s);
    }
    scratch_release(p->t, mark);
    k->known = true;
    return k;
}

bool band_chooses(struct banding *w, struct segment *s, int a)
{
    return band_work(w, s)->chooses >> a & 1;
}

bool band_repeats(struct banding *w, struct segment *s, int a)
{
    return band_work(w, s)->repeats >> a & 1;
}

bool band_is_column(struct banding *w, struct segment *s, int a)
{
    return band_work(w, s)->columns >> a & 1 && band_work(w, s)->weights > LAYER_NBYTES;
}

int band_stored_axes(const struct buffer *b, int *axis)
{
    for (int a = 0; a < b->ndim; a++)
        axis[a] = b->order.is_set ? b->order.axis[a] : a;
    return b->ndim;
}

int band_stored_axis(const struct uop *v, int a)
{
    int n = a;
    for (int k = 0; k < a && v->op == OP_REDUCE; k++)
        n -= (int)(REDUCE_AXES(v->arg.i) >> k & 1);
    return n;
}

double group_scratch(const struct group *g)
{
    double n = 0;
    for (int i = 1; i < g->n; i++) {
        const struct member *m = &g->member[i];
        double part = buffer_most_nbytes(m->node->buffer);
        for (int k = 0; k < g->nband; k++)
            part *= (double)m->kept[k].slots / dim_extent(m->node->u->dim[m->part[k].axis]);
        n += part;
    }
    return n;
}

/* What a band reads and writes other than scratch, which competes with scratch for the cache. */
static double streamed_of(struct banding *w, const struct group *g)
{
    double n = stored_nbytes(g->member[0].s);
    for (int i = 0; i < g->n; i++)
        n += band_work(w, g->member[i].s)->reads -
             (i ? buffer_most_nbytes(g->member[i].node->buffer) : 0);
    return n / g->nbands;
}

/* ------------------------------------------------------------------------------------- the room */

void band_find_alive(struct banding *w)
{
    const struct plan *p = w->p;
    int n = p->t->next_buffer, npos = p->nnode + 1;
    for (int i = 0; i < p->nsegment; i++)
        npos = p->segment[i]->pos >= npos ? p->segment[i]->pos + 1 : npos;
    while (w->nlife < (size_t)n)
        VEC_PUSH(p->t, w->life, w->nlife, w->cap_life, (struct life){0});
    for (int i = 0; i < n; i++)
        w->life[i] = (struct life){npos, -1};
    for (int i = 0; i < p->nsegment; i++) {
        const struct segment *s = p->segment[i];
        struct life *l = &w->life[s->dest->id];
        if (s->value && s->dest->kind == BUFFER_TEMP)
            l->begin = s->pos < l->begin ? s->pos : l->begin;
    }
    for (int i = 0; i < p->nnode; i++)
        for (const struct use *u = p->node[i].buffer ? p->node[i].use : NULL; u; u = u->next) {
            struct life *l = &w->life[p->node[i].buffer->id];
            l->end = u->seg->pos > l->end ? u->seg->pos : l->end;
        }
    if (npos > w->nalive)
        w->alive = mem_array(p->t, (size_t)npos + 1, sizeof *w->alive);
    w->nalive = npos > w->nalive ? npos : w->nalive;
    for (int i = 0; i <= npos; i++)
        w->alive[i] = 0;
    const struct buffer *last = NULL;
    for (int i = 0; i < p->nsegment; i++) {
        const struct segment *s = p->segment[i];
        const struct life *l = &w->life[s->dest->id];
        if (s->dest == last || s->pos != l->begin || l->begin + 1 >= l->end || !s->value)
            continue;
        last = s->dest;               /* a border's segments are independent of each other */
        w->alive[l->begin + 1] += buffer_most_nbytes(s->dest);
        w->alive[l->end] -= buffer_most_nbytes(s->dest);
    }
    for (int i = 1; i < npos; i++)
        w->alive[i] += w->alive[i - 1];
}

const struct member *group_member(const struct group *g, const struct segment *s)
{
    for (int i = 0; i < g->n; i++)
        if (g->member[i].s == s)
            return &g->member[i];
    return NULL;
}

static bool is_passed_within(const struct group *g, const struct buffer *b)
{
    for (int i = 1; i < g->n; i++)
        if (g->member[i].node->buffer == b)
            return true;
    return false;
}

/* Whether the segment's result may replace n, which it uses, element by element, as far as the
 * segment decides. */
static bool may_replace(const struct banding *w, const struct segment *s, const struct node *n)
{
    const struct buffer *b = n->buffer;
    if (!b || b == s->dest || b->kind != BUFFER_TEMP || n->u->ndim != s->value->ndim || s->start ||
        n->within || n->hosts || w->life[b->id].end != s->pos ||
        buffer_most_nbytes(b) != buffer_most_nbytes(s->dest))
        return false;
    for (const struct use *u = n->use; u; u = u->next)
        for (int a = 0; a < n->u->ndim && u->seg == s; a++)
            if (!u->root && u->index[a] != s->axis[a])
                return false;
    return true;
}

void band_find_sink(struct banding *w, struct segment *s)
{
    const struct plan *p = w->p;
    w->sink = s;
    w->replaced = NULL;
    w->nbeside = 0;
    for (const struct use *u = s->use; u; u = u->next_of_seg)
        if (may_replace(w, s, u->node) && (!w->replaced || u->node < w->replaced))
            w->replaced = u->node;
    for (int i = 0; i < p->nsegment && w->nbeside < MEMBERS_MAX; i++) {
        struct segment *x = p->segment[i];
        if (x != s && x->value && x->dest == s->dest && x->pos == s->pos && !x->nband)
            w->beside[w->nbeside++] = x;
    }
}

/* Bytes of an input of the last member whose place its result takes. */
static double replaced_by(const struct banding *w, const struct group *g)
{
    const struct node *n = g->member[0].s == w->sink ? w->replaced : NULL;
    for (const struct use *u = n ? n->use : NULL; u; u = u->next)
        if (u->seg != w->sink && !u->root && group_member(g, u->seg))
            return 0;
    return n ? buffer_most_nbytes(n->buffer) : 0;
}

/* The live set while a group runs: what it accesses, its scratch, and what others read later.
 * Scratch counts for two threads, so that bands, and thereby the bits of results, do not depend on
 * the number of threads. */
static double needed_by(struct banding *w, const struct group *g)
{
    const struct buffer *seen[2 * MEMBERS_MAX * BUFFERS_MAX];
    int nseen = 0, pos = g->member[0].s->pos;
    int nbeside = g->member[0].s == w->sink ? w->nbeside : 0;
    double n = 2 * group_scratch(g) + w->alive[pos] - replaced_by(w, g);
    for (int i = 0; i < g->n + nbeside; i++) {
        const struct work *k = band_work(w, i < g->n ? g->member[i].s : w->beside[i - g->n]);
        for (int j = 0; j < k->nbuffer; j++) {
            const struct buffer *b = k->buffer[j];
            const struct life *l = &w->life[b->id];
            bool counted = (l->begin < pos && pos < l->end) || is_passed_within(g, b);
            for (int q = 0; q < nseen; q++)
                counted |= seen[q] == b;
            if (counted)
                continue;
            seen[nseen++] = b;
            n += buffer_most_nbytes(b);
        }
    }
    return n;
}

/* Whether the group extends live ranges by more bytes than it no longer stores: its inputs are read
 * where the last layer runs. */
static bool keeps_more(struct banding *w, const struct group *g)
{
    double kept = 0, passed = 0;
    for (int i = 1; i < g->n; i++) {
        const struct work *k = band_work(w, g->member[i].s);
        passed += buffer_most_nbytes(g->member[i].node->buffer);
        for (int j = 0; j < k->nbuffer; j++)
            if (w->life[k->buffer[j]->id].end < g->member[0].s->pos &&
                !is_passed_within(g, k->buffer[j]))
                kept += buffer_most_nbytes(k->buffer[j]);
    }
    return kept > passed;
}

static double needed_alone(struct banding *w, struct segment *s)
{
    struct group g = {.n = 1, .member = {{.s = s}}};
    return needed_by(w, &g);
}

void band_find_rewritten(struct banding *w)
{
    for (int i = 0; i < w->p->nnode; i++) {
        const struct segment *by = w->producer[i];
        bool counts = by && !uop_is_adjoint(w->p->t, by->value);
        const struct origin *o = counts ? uop_get_origin(w->p->t, by->value) : NULL;
        for (const struct use *u = o ? w->p->node[i].use : NULL; u; u = u->next)
            if (u->seg != by && u->seg->value && !uop_is_adjoint(w->p->t, u->seg->value) &&
                uop_get_origin(w->p->t, u->seg->value) == o)
                w->work[u->seg->at].rewritten = true;
    }
}

static bool is_rewritten(const struct banding *w, const struct segment *s)
{
    return w->work[s->at].rewritten;
}

/* The largest live set at a rewritten layer outside the group whose result the group reads; 0:
 * there is none. */
static double needed_before(struct banding *w, const struct group *g)
{
    double most = 0;
    for (int k = 0; k < g->n; k++)
        for (const struct use *u = g->member[k].s->use; u; u = u->next_of_seg) {
            struct segment *s = band_producer(w, u->node);
            if (!s || s->nband || !is_rewritten(w, s) || group_member(g, s) ||
                is_passed_within(g, u->node->buffer))
                continue;
            double n = needed_alone(w, s);
            most = n > most ? n : most;
        }
    return most;
}

double group_most(struct banding *w, const struct group *g)
{
    double before = needed_before(w, g), now = needed_by(w, g);
    return now > before ? now : before;
}

static bool has_rewritten(const struct banding *w, const struct group *g)
{
    for (int i = 0; i < g->n; i++)
        if (is_rewritten(w, g->member[i].s))
            return true;
    return false;
}

bool group_leaves_excess(struct banding *w, const struct group *g, double room)
{
    return (has_rewritten(w, g) && needed_by(w, g) > room) || needed_before(w, g) > room;
}

bool group_exceeds(struct banding *w, const struct group *g, double room)
{
    return needed_by(w, g) > room;
}

bool group_is_too_large(struct banding *w, const struct group *g)
{
    if (w->room > 0)
        return needed_by(w, g) > w->room;
    double cache = cost_cache_nbytes(w->p->t);
    return cache > 0 && group_scratch(g) + streamed_of(w, g) > RATIO_SCRATCH * cache;
}

int band_innermost(const struct segment *s)
{
    int axis[MAX_RANK], n = band_stored_axes(s->dest, axis);
    for (int a = 0; n && a < s->value->ndim; a++)
        if (band_stored_axis(s->value, a) == axis[n - 1])
            return a;
    return -1;
}

/* The fewest rows that a layer with weights has in one band: the product of the contiguous axes
 * from the band's axis on, without the innermost one. */
static double shortest_rows(struct banding *w, const struct group *g)
{
    double least = HUGE_VAL;
    for (int i = 0; i < g->n; i++) {
        const struct member *m = &g->member[i];
        const struct uop *v = m->s->value;
        double rows = 1;
        int inner = band_innermost(m->s), first = v->ndim;
        for (int k = 0; k < g->nband; k++)
            first = m->part[k].axis < first ? m->part[k].axis : first;
        for (int a = first; a < v->ndim; a++) {
            double n = a == inner ? 1 : dim_extent(v->dim[a]);
            for (int k = 0; k < g->nband; k++)
                n = m->part[k].axis == a ? (double)m->part[k].extent : n;
            rows *= n;
        }
        if (band_work(w, m->s)->weights > LAYER_NBYTES && rows < least)
            least = rows;
    }
    return least;
}

struct segment *band_producer(const struct banding *w, const struct node *n)
{
    return w->producer[n - w->p->node];
}

static double share_of(const struct banding *w)
{
    return w->plain ? RATIO_ROOM_PLAIN : RATIO_ROOM_SHARE;
}

/* The time that a group made to save memory loses; *all: the time of its layers. */
static double lost_in_room(struct banding *w, const struct group *g, double *all)
{
    const struct machine *machine = machine_of(w->p->t);
    double nest = cost_of_cycles(machine, RATIO_ROOM_NEST * machine->nest_cycles);
    double lost = nest * g->nbands * g->n, weights = 0;
    *all = 0;
    for (int i = 0; i < g->n; i++) {
        const struct member *m = &g->member[i];
        double part = g->nbands;
        double flop = cost_of_flop(machine, FLOP_BAND, band_work(w, m->s)->flop);
        for (int k = 0; k < g->nband; k++)
            part *= (double)m->part[k].extent / dim_extent(m->s->value->dim[m->part[k].axis]);
        *all += flop;
        lost += flop * (part > 1 ? part - 1 : 0);
        weights += band_work(w, m->s)->weights;
    }
    if (weights + group_scratch(g) > cost_cache_nbytes(w->p->t))
        lost += cost_of_bytes(machine, LEVEL_L3, weights * (g->nbands - 1));
    return lost;
}

void band_find_budget(struct banding *w)
{
    const struct plan *p = w->p;
    const struct machine *m = machine_of(p->t);
    double all = 0;
    for (int i = 0; i < p->nnode; i++) {
        const struct uop *u = p->node[i].u;
        const struct buffer *b = u->op == OP_BUFFER ? uop_buffer_of(u) : NULL;
        if (u->op == OP_REDUCE)
            all += cost_of_flop(m, FLOP_BAND, 2 * value_nelem(u->src[0]));
        if (b && buffer_is_stationary(b))
            all += cost_of_bytes(m, LEVEL_L3, buffer_most_nbytes(b));
    }
    w->budget = RATIO_ROOM_MODEL * all;
}

void group_spend(struct banding *w, const struct group *g)
{
    double all, lost = lost_in_room(w, g, &all);
    w->budget -= lost > share_of(w) * all ? lost : 0;
}

/* The gain of a group made to save memory, from 0 to 1: greater the less time it loses if it fits
 * the room, else the more memory it saves. 0: it loses too much time. */
static double gain_in_room(struct banding *w, const struct group *g)
{
    if (keeps_more(w, g) || shortest_rows(w, g) < ROOM_ROWS)
        return 0;
    double all, lost = lost_in_room(w, g, &all), needs = group_most(w, g);
    if (lost > share_of(w) * all && (w->plain || lost > w->budget))
        return 0;
    if (!w->partly)
        return needs <= w->room ? 1 / (1 + lost) : 0;
    return needs < (1 - RATIO_ROOM_SAVED) * w->most ? 1 - needs / w->most : 0;
}

static bool is_index_of(struct tgc *t, const struct node *n, const struct use *u, struct uop *r)
{
    for (int a = 0; a < n->u->ndim; a++)
        if (uop_depends_on(t, u->index[a], r))
            return true;
    return false;
}

/* The nodes that the segment reads, in order: *n of them, in scratch. */
static const struct node **nodes_read(struct tgc *t, const struct segment *s, int *n)
{
    const struct node **read = NULL;
    size_t cap = 0;
    *n = 0;
    for (const struct use *u = s->use; u; u = u->next_of_seg) {
        int at = *n;
        while (at > 0 && read[at - 1] > u->node)
            at--;
        if (u->root || (at > 0 && read[at - 1] == u->node))
            continue;
        SCRATCH_PUSH(t, read, *n, cap, u->node);
        memmove(read + at + 1, read + at, (size_t)(*n - 1 - at) * sizeof *read);
        read[at] = u->node;
    }
    return read;
}

/* Bytes of values that bands read repeatedly, since they are invariant in the band: all keys of an
 * attention, for a band of its rows. *once: their bytes. */
static double read_again(struct banding *w, const struct group *g, double *once)
{
    const struct plan *p = w->p;
    double again = 0;
    *once = 0;
    for (int i = 0; i < g->n; i++) {
        struct mem_mark mark = scratch_mark(p->t);
        const struct member *m = &g->member[i];
        int nread;
        const struct node **read = nodes_read(p->t, m->s, &nread);
        for (int k = 0; k < nread; k++) {
            const struct node *n = read[k];
            const struct use *u = n->use;
            if (!n->buffer || n->buffer->kind != BUFFER_TEMP || is_passed_within(g, n->buffer) ||
                n->buffer == g->member[0].s->dest)
                continue;
            while (u->seg != m->s || u->root)
                u = u->next;
            double nbytes = value_nelem(n->u) * (double)dtype_nbytes(n->u->dtype), times = 1;
            for (int b = 0; b < g->nband; b++) {
                int a = m->part[b].axis;
                if (!is_index_of(p->t, n, u, m->s->axis[a]))
                    times *= dim_extent(m->s->value->dim[a]) / (double)m->part[b].extent;
            }
            again += nbytes * (times - 1);
            *once += times > 1 ? nbytes : 0;
        }
        scratch_release(p->t, mark);
    }
    return again;
}

double group_gain(struct banding *w, const struct group *g)
{
    if (w->room > 0)
        return gain_in_room(w, g);
    double saved = 0, lost = 0, whole = 0, weights = 0;
    const struct machine *machine = machine_of(w->p->t);
    double cache = cost_cache_nbytes(w->p->t);
    for (int i = 1; i < g->n; i++) {
        const struct member *m = &g->member[i];
        double nbytes = buffer_most_nbytes(m->node->buffer), part = 1;
        for (int k = 0; k < g->nband; k++)
            part *= (double)m->part[k].extent / dim_extent(m->s->value->dim[m->part[k].axis]);
        whole += nbytes;
        bool far = nbytes > RATIO_FAR_CACHES * cache;
        saved += cost_of_bytes(machine, far ? LEVEL_MEMORY : LEVEL_L2, 2 * nbytes);
        double flop = band_work(w, m->s)->flop * (part * g->nbands - 1);
        lost += cost_of_flop(machine, FLOP_BAND, flop);
    }
    if (cache == 0)
        return whole;
    if (group_is_too_large(w, g) || whole < RATIO_SCRATCH * cache)
        return 0;
    double again = lost;
    for (int i = 0; i < g->n; i++)
        weights += band_work(w, g->member[i].s)->weights;
    double once, again_nbytes = read_again(w, g, &once) + weights * (g->nbands - 1);
    if (weights + once + group_scratch(g) > cache)
        lost += cost_of_bytes(machine, LEVEL_L3, again_nbytes);
    /* where tensors stay in a near cache, the tensors between the layers have to exceed what is
     * stored; by more where a layer's rows become short */
    double least = (shortest_rows(w, g) < ROWS ? RATIO_BAND_SHORT : RATIO_BAND_STORED) *
                   stored_nbytes(g->member[0].s);
    if (whole < 2 * RATIO_FAR_CACHES * cache && whole < least)
        return 0;
    double nests = cost_of_cycles(machine, machine->nest_cycles) * g->nbands * g->n;
    double gain = saved - lost - nests;
    return gain < RATIO_BAND_GAIN * again ? 0 : gain;
}
