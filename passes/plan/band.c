/* band.c - fuses layers into one kernel that runs band by band, so that the tensors between them
 * fit a cache.
 *
 *      for band < 14                                     B rows of the last result at a time
 *        for xi, tile, c       v[..] = ...               v, m, y: scratch for one band
 *        for xi, tile, c, k    m[..] = sum of v * u
 *        for tile, c, xi       y[..] = ...
 *        for row < B, x, c     out[band*B + row, ..] = relu(y[..] + bias)
 *
 * The loop over an axis of the last layer's result is split. The part of a tensor that one band
 * reads follows from the coordinates of the reads: each has to be a start, which depends on the
 * band alone, plus an offset with constant bounds. The producer's loop runs over that part, and the
 * tensor's buffer becomes scratch. Producers of producers join as long as it pays. Where windows
 * overlap, the overlap is recomputed by the next band.
 *
 * The gain is the cost of tensors that leave the cache, written once and read once; the loss is
 * weights that are read once per band, and recomputation. Nothing here depends on what the layers
 * are: Winograd's transforms and products become one, as do layers with small windows.
 */
#include "passes/plan/band.h"
#include "passes/analysis/access.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- the window */

static struct uop *zero_ranges(struct tgc *t, void *ctx, struct uop *u)
{
    return u->op == OP_RANGE && u != ctx ? uop_int(t, 0) : NULL;
}

/* One coordinate of a member's read, as a start that depends on the band alone and an offset in
 * [lo, hi]. base NULL: it is invariant in the band. false: it is no window. */
static bool window_of(struct tgc *t, struct uop *at, const struct segment *s,
                      const struct band *own, struct uop **base, int64_t *lo, int64_t *hi)
{
    *base = NULL;
    if (!uop_depends_on(t, at, s->axis[own->axis]))
        return true;
    at = uop_substitute(t, at, s->axis[own->axis], sym_add(t, own->start, own->inner));
    if (!uop_depends_on(t, at, own->range))
        return true;
    *base = at;
    uop_rewrite(t, base, 1, zero_ranges, own->range);
    struct uop *local = sym_sub(t, at, *base);
    *lo = local->vmin;
    *hi = local->vmax;
    return !uop_depends_on(t, local, own->range);
}

/* The part of a node's value that band k needs. false: there is no such part, or it is
 * everything. */
static bool find_part(const struct group *g, struct tgc *t, const struct node *n,
                      const struct segment *producer, int k, struct member *m)
{
    struct uop *first = NULL, *base;
    int64_t low = 0, high = 0, lo = 0, hi = 0, apart;
    /* axes along which some use reads a coordinate that is invariant in the band */
    uint32_t still = 0;
    int axis = -1;
    for (const struct use *u = n->use; u; u = u->next) {
        const struct member *by = group_member(g, u->seg);
        for (int a = 0; a < n->u->ndim && u->seg != producer; a++) {
            if (!window_of(t, u->index[a], by->s, &by->part[k], &base, &lo, &hi) ||
                (base && first && axis != a))
                return false;
            if (!base) {
                still |= 1u << a;
                continue;
            }
            if (!first) {
                first = base, low = lo, high = hi;
                axis = a;
            }
            if (!uop_const_int(sym_sub(t, base, first), &apart))
                return false;
            low = lo + apart < low ? lo + apart : low;
            high = hi + apart > high ? hi + apart : high;
        }
    }
    if (!first || still >> axis & 1)
        return false;
    m->kept[k] = (struct kept){.begin = sym_addi(t, first, low), .extent = high - low + 1};
    m->part[k].range = g->member[0].part[k].range;
    return halo_part(t, n, producer, axis, &m->kept[k], &m->part[k]);
}

/* The parts of a value that the bands need, along one axis for each band. */
static bool find_parts(struct banding *w, const struct group *g, const struct node *n,
                       struct segment *producer, struct member *m)
{
    *m = (struct member){.s = producer, .node = (struct node *)(uintptr_t)n};
    for (int k = 0; k < g->nband; k++)
        if (!find_part(g, w->p->t, n, producer, k, m) ||
            (k > 0 && m->part[k].axis == m->part[0].axis) ||
            m->part[k].axis == band_innermost(producer) ||
            band_chooses(w, producer, m->part[k].axis) ||
            band_repeats(w, producer, m->part[k].axis) ||
            band_is_column(w, producer, m->part[k].axis))
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------ the group */

static bool is_free(const struct group *g, const struct segment *s)
{
    return !s->nband && !s->online && !group_member(g, s);
}

/* Whether the node has uses, and all of them are in the group. */
static bool feeds_group(const struct group *g, const struct node *n, const struct segment *producer)
{
    bool any = false;
    for (const struct use *u = n->use; u; u = u->next) {
        if (u->seg == producer)
            continue;
        if (u->stage || !group_member(g, u->seg))
            return false;
        any = true;
    }
    return any;
}

/* The last candidate before `before` (NULL: of all) that a member reads; NULL: there is none. */
static struct node *last_candidate(const struct banding *w, const struct group *g,
                                   const struct node *before)
{
    struct node *last = NULL;
    for (int i = 0; i < g->n; i++)
        for (const struct use *u = g->member[i].s->use; u; u = u->next_of_seg)
            if (band_producer(w, u->node) && (!before || u->node < before) &&
                (!last || u->node > last))
                last = u->node;
    return last;
}

/* Adds the producers of what the group reads, from the last on, as long as it pays. `best`: the
 * best group so far, *most its gain. */
static void grow(struct banding *w, struct group *g, struct group *best, double *most)
{
    struct node *n = NULL;
    while (g->n < MEMBERS_MAX && (n = last_candidate(w, g, n)) != NULL) {
        struct segment *s = band_producer(w, n);
        struct member m;
        if (!is_free(g, s) || s->block != g->member[0].s->block || !feeds_group(g, n, s) ||
            band_read_by(s, g->member[0].s->dest) > 0 || !find_parts(w, g, n, s, &m))
            continue;
        g->member[g->n++] = m;
        double gain = group_gain(w, g);
        if (gain > *most) {
            *most = gain;
            *best = *g;
        }
    }
}

static bool reads_candidates(const struct banding *w, const struct segment *s)
{
    for (const struct use *u = s->use; u; u = u->next_of_seg) {
        const struct segment *producer = band_producer(w, u->node);
        if (producer && producer != s && buffer_most_nbytes(u->node->buffer) > 0)
            return true;
    }
    return false;
}

/* Adds a band: `rows` rows at a time along axis a of the last segment's value. */
static void add_band(struct tgc *t, struct group *g, int a, int64_t rows)
{
    struct uop *size = g->member[0].s->axis[a]->src[0];
    struct band *b = &g->member[0].part[g->nband++];
    b->axis = a;
    b->extent = rows;
    b->range = uop_axis(t, sym_div(t, size, uop_int(t, rows)), AXIS_BAND, WORKER_EACH);
    b->start = sym_muli(t, b->range, rows);
    b->inner = rows > 1 ? uop_range(t, uop_int(t, rows), t->next_range++) : uop_int(t, 0);
    g->nbands *= dim_extent(b->range->src[0]);
    g->n = 1;
}

static bool may_split(struct banding *w, struct segment *s, int a)
{
    return s->axis[a]->op == OP_RANGE && a != band_innermost(s) && !band_chooses(w, s, a) &&
           !band_repeats(w, s, a) && !band_is_column(w, s, a);
}

/* The next divisor of `dim` above n (step 1) or below (step -1) that is valid for a band; 0: none.
 * A size known only at run time, as that of a batch, has bands of one. */
static int64_t next_divisor(const struct uop *dim, int64_t n, int step)
{
    enum { MOST = 1 << 16 };     /* no cache holds as many rows */
    int64_t size;
    if (!uop_const_int(dim, &size))
        return dim->vmax > 1 && n != 1 ? 1 : 0;
    n = step < 0 && n > MOST + 1 ? MOST + 1 : n;
    for (n += step; n > 0 && n < size && n <= MOST; n += step)
        if (size % n == 0)
            return n;
    return 0;
}

bool plan_stays_near(const struct tgc *t, double nbytes, const struct uop *nrow, double row_nbytes)
{
    double cache = cost_cache_nbytes(t), room = cache > 0 ? RATIO_STORED * cache : HUGE_VAL;
    if (nbytes <= room)
        return true;
    if (!nrow || nrow->op != OP_CONST)
        return false;
    int64_t n = next_divisor(nrow, (int64_t)RATIO_BAND_ROWS - 1, 1);
    return n > 0 && (double)n * row_nbytes <= room;
}

/* Finds bands along one axis, or along two if one row exceeds a cache. */
static void find_group(struct banding *w, struct segment *sink, struct group *best)
{
    struct tgc *t = w->p->t;
    double most = 0;
    best->n = 0;
    for (int a = 0; a < sink->value->ndim; a++) {
        if (!may_split(w, sink, a))
            continue;
        const struct uop *size = sink->axis[a]->src[0];
        for (int64_t rows = 0; (rows = next_divisor(size, rows, 1)) > 0;) {
            struct group g = {.nbands = 1, .n = 1, .member = {{.s = sink}}};
            add_band(t, &g, a, rows);
            grow(w, &g, best, &most);
            for (int b = a + 1; b < sink->value->ndim && g.n > 1 && group_is_too_large(w, &g);
                 b++) {
                if (!may_split(w, sink, b))
                    continue;
                const struct uop *across = sink->axis[b]->src[0];
                for (int64_t columns = across->vmax;
                     (columns = next_divisor(across, columns, -1)) > 0;) {
                    struct group h = {.nbands = 1, .n = 1, .member = {{.s = sink}}};
                    add_band(t, &h, a, rows);
                    add_band(t, &h, b, columns);
                    grow(w, &h, best, &most);
                }
            }
            if (g.n > 1 && w->room == 0 && group_is_too_large(w, &g))
                break;                                /* more rows are larger */
        }
    }
}

/* Makes the member's buffer scratch for one band, axes of open sizes at their bounds. Strides
 * between offsets that are stored to at once must not map all of them to one cache set. */
static void shrink_buffer(struct tgc *t, const struct group *g, const struct member *m)
{
    const struct machine *machine = machine_of(t);
    struct buffer *b = m->node->buffer;
    struct view *v = MEM_NEW(t, struct view);
    int axis[MAX_RANK], n = band_stored_axes(b, axis);
    int64_t stride = 1, nbytes = (int64_t)dtype_nbytes(b->dtype), line = machine->line / nbytes;
    b->kind = BUFFER_SCRATCH;
    for (int k = 0; k < g->nband; k++)
        b->dim[band_stored_axis(m->node->u, m->part[k].axis)] = uop_int(t, m->kept[k].slots);
    v->ndim = n;
    v->offset = uop_int(t, 0);
    for (int i = n - 1; i >= 0; i--) {
        int64_t size = b->dim[axis[i]]->vmax;
        b->dim[axis[i]] = uop_int(t, size);
        if (i == 0 && n > 1 && size > 1 && stride * nbytes % cost_alias_nbytes(machine) == 0) {
            b->dim[axis[0]] = uop_int(t, size + (size * line + stride - 1) / stride);
            stride += line;
        }
        v->dim[axis[i]] = uop_int(t, size);
        v->stride[axis[i]] = uop_int(t, stride);
        stride *= size;
    }
    for (int k = 0; k < g->nband; k++) {
        int a = band_stored_axis(m->node->u, m->part[k].axis);
        v->offset = sym_sub(t, v->offset, sym_mul(t, v->stride[a], m->kept[k].start));
    }
    b->storage = v;
}

/* Drops a tensor's border segments, which the bands fill themselves. */
static void drop_border(struct plan *p, const struct segment *inside)
{
    for (int i = 0; i < p->nsegment; i++)
        if (p->segment[i]->dest == inside->dest && p->segment[i] != inside)
            p->segment[i]->value = NULL;
}

/* Replaces the group's last segment in its kernel by all segments of the group. */
static void join_group(struct plan *p, const struct group *g)
{
    struct segment *sink = g->member[0].s, *before = NULL, *first = sink;
    for (int i = 0; i < p->nsegment; i++)
        if (p->segment[i]->value && p->segment[i]->next == sink)
            before = p->segment[i];
    for (int i = 0; i < g->n; i++) {
        const struct member *m = &g->member[i];
        struct segment *s = m->s;
        s->nband = g->nband;
        memcpy(s->band, m->part, sizeof m->part);
        for (int k = 0; k < g->nband; k++) {
            const char *name = uop_get_axes(p->t, s->axis[m->part[k].axis]);
            if (i == 0)
                uop_name_axes(p->t, m->part[k].range, "band");
            if (name && m->part[k].inner->op == OP_RANGE)
                uop_name_axes(p->t, m->part[k].inner, name);
        }
        if (i == 0)
            continue;
        if (s->start)
            drop_border(p, s);
        shrink_buffer(p->t, g, m);
        s->next = first;
        s->pos = sink->pos;
        first->absorbed = true;
        first = s->start ? halo_fill(p, m->node, m->kept, m->part, g->nband, s) : s;
    }
    first->absorbed = before != NULL;
    if (before)
        before->next = first;
}

/* DEBUG=2: reports what was chosen. */
static void report(struct banding *w, const struct group *g)
{
    double flop = 0, weights = 0;
    for (int i = 0; i < g->n; i++) {
        const struct work *k = band_work(w, g->member[i].s);
        const struct origin *o = uop_get_origin(w->p->t, g->member[i].s->value);
        fprintf(stderr, "%s%s", i ? " < " : "bands: ", o ? o->node : "");
        flop += k->flop;
        weights += k->weights;
    }
    fprintf(stderr, ": %g kB of scratch for", group_scratch(g) / 1e3);
    for (int k = 0; k < g->nband; k++)
        fprintf(stderr, "%s %lld of %g", k ? "," : "", (long long)g->member[0].part[k].extent,
                dim_extent(g->member[0].s->value->dim[g->member[0].part[k].axis]));
    fprintf(stderr, "; %g MFLOP, weights %g kB, %.0f us saved\n", flop / 1e6, weights / 1e3,
            group_gain(w, g) / 1e3);
}

/* The single segment that fills the node's buffer: a plain one, or the inside of a border. NULL:
 * there are several. */
static struct segment *find_producer(const struct plan *p, const struct node *n)
{
    struct segment *s = NULL;
    const struct uop *value = n->u->op == OP_PAD ? n->u->src[0] : n->u;
    for (int k = 0; k < p->nsegment; k++) {
        struct segment *own = p->segment[k];
        if (own->dest != n->buffer || (n->u->op == OP_PAD && own->value != value))
            continue;
        if (s || own->value != value)
            return NULL;
        s = own;
    }
    if (!s || s->next || s->lead || s->scatter || (s->start == NULL) != (n->u->op != OP_PAD) ||
        (s->absorbed && !s->start))
        return NULL;
    /* a reduction's buffer lacks axes that the border has */
    return s->start && value->op == OP_REDUCE ? NULL : s;
}

/* Finds the buffers that one segment fills, and these segments. */
static void find_candidates(struct banding *w)
{
    const double addressed = 0x1p47;                  /* bytes of any arena */
    struct plan *p = w->p;
    for (int i = 0; i < p->nnode; i++) {
        struct node *n = &p->node[i];
        bool plain = n->buffer && n->is_private && !n->must && !n->within && !n->hosts &&
                     n->buffer->kind == BUFFER_TEMP && buffer_most_nbytes(n->buffer) < addressed;
        for (int a = 0; plain && a < n->buffer->ndim; a++)
            plain = n->buffer->dim[a]->vmax > 0;
        w->producer[i] = plain ? find_producer(p, n) : NULL;
    }
}

/* Finds bands that save time; where a group leaves more live memory than `room`, bands that need
 * less. `partly`: a partial saving must not take layers from groups not examined yet. */
static void choose_group(struct banding *w, struct segment *s, double room, bool partly,
                         struct group *best)
{
    struct group other;
    w->room = 0;
    best->n = 0;
    if (!partly)
        find_group(w, s, best);
    bool banded = best->n > 1;
    if (!banded)
        *best = (struct group){.n = 1, .member = {{.s = s}}};
    if (room <= 0)
        return;
    band_find_sink(w, s);
    w->plain = !group_leaves_excess(w, best, room);
    if (w->plain && (banded || partly || !group_exceeds(w, best, room / RATIO_BORDERS)))
        return;
    w->room = w->plain ? room / RATIO_BORDERS : room;
    w->most = group_most(w, best);
    w->partly = partly;
    find_group(w, s, &other);
    if (other.n < 2 && banded && !partly) {
        w->partly = true;
        find_group(w, s, &other);
    }
    if (other.n < 2)
        return;
    *best = other;
    group_spend(w, best);
}

/* Segments are numbered from the last one to the first. */
static void find_groups(struct banding *w, int nsegment, double room, bool partly)
{
    struct plan *p = w->p;
    struct group best;
    if (room > 0)
        band_find_alive(w);
    for (int i = 0; i < nsegment; i++) {
        struct segment *s = p->segment[i];
        if (!s->value || s->lead || s->scatter || s->nband || s->online ||
            value_nelem(s->value) == 0 || !reads_candidates(w, s))
            continue;
        choose_group(w, s, room, partly, &best);
        if (best.n > 1 && p->t->debug >= 2)
            report(w, &best);
        if (best.n > 1) {
            join_group(p, &best);
            if (room > 0)
                band_find_alive(w);
        }
    }
}

void plan_band(struct plan *p)
{
    struct banding w = {.p = p};
    int nsegment = p->nsegment;
    w.work = mem_array(p->t, (size_t)nsegment + 1, sizeof *w.work);
    w.producer = mem_array(p->t, (size_t)p->nnode + 1, sizeof *w.producer);
    find_candidates(&w);
    band_find_rewritten(&w);
    band_find_budget(&w);
    double room = cost_cache_nbytes(p->t) > 0 ? RATIO_BORDERS * p->graph->layers_nbytes : 0;
    find_groups(&w, nsegment, room, false);
    if (room > 0)
        find_groups(&w, nsegment, room, true);
}
