/* band.c - layers that become one kernel, band by band, since what they pass on then fits a cache.
 *
 *      for band < 14                                     B rows of the last one's result at a time
 *        for xi, tile, c       v[..] = ...               v, m, y: scratch for one band
 *        for xi, tile, c, k    m[..] = sum of v * u
 *        for tile, c, xi       y[..] = ...
 *        for row < B, x, c     out[band*B + row, ..] = relu(y[..] + bias)
 *
 * The loop over an axis of the last one's result is split. Which part of a tensor that one band
 * reads follows from the coordinates at which it is read: they have to be a start, which depends on
 * the band alone, and a distance of fixed bounds. So the producer's loop runs over that part, and
 * the tensor's buffer becomes scratch for it. Producers of producers join as long as it pays. Where
 * windows overlap, a part is computed again for the next band.
 *
 * What speaks for it is what tensors cost that leave the cache, written once and read once; against
 * it weights that are read once a band, and what is computed again. Nothing here knows what the
 * layers are: Winograd's transforms and products become one, as do layers with small windows.
 */
#include "passes/plan.h"
#include "passes/tile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEMBERS_MAX = 6, LINE = 64, ALIAS = 1024, ROWS = 128, LAYER_NBYTES = 4096 };

/* Cycles of a core: see winograd.c. What is computed again has to be worth it: small gains did not show
 * on mobilenet_v3_small. The part of a cache that may be scratch: of 0.5 and 0.8, timed
 * on a Zen 4, 0.8 is 3 % faster on inception_v3, 1.5 % on mobilenet_v2, and within 1 % on resnet18,
 * resnet50, densenet121 and efficientnet_b0; vgg16 was too noisy to tell. vgg16's arena is 12 MB
 * smaller, mobilenet_v2's 0.4 MB, resnet50's 0.9 MB larger. */
enum { AGAIN_FLOP_CYCLE = 24, WEIGHT_BYTES_CYCLE = 16, NEAR_BYTES_CYCLE = 64, FAR_BYTES_CYCLE = 5 };
static const double far_caches = 4, scratch_share = 0.8, nest_cycles = 2000;

/* A segment, and which part of its value one band is. */
struct member {
    struct segment *s;
    struct node *node;           /* whose buffer becomes scratch; NULL: the last segment's stays */
    struct band part[BANDS_MAX];
    struct kept kept[BANDS_MAX]; /* of the node */
};

struct group { int nband; double nbands; struct member member[MEMBERS_MAX]; int n; };

/* chooses: axes of its value whose coordinate decides what is computed. columns: those that its weights
 * know, too, a tile's columns. */
struct work { bool known; double flop, weights, reads; uint32_t chooses, columns; };

struct banding {
    struct plan *p;
    struct node **candidate; int ncandidate; size_t cap;         /* by position */
    struct segment **producer;   /* of each candidate */
    size_t cap_producer;
    struct work *work;           /* by segment */
    bool tried;                  /* something was lowered */
};

static double stored_nbytes(const struct segment *s)
{
    return plan_nelem(s->value) * (double)dtype_nbytes(s->value->dtype);
}

/* Bytes that a segment reads of a buffer, if it is one of the plan's: of the largest of the tensors
 * in it. */
static double read_by(const struct plan *p, const struct segment *s, const struct buffer *b)
{
    double most = 0;
    for (int i = 0; i < p->nnode; i++)
        for (const struct use *u = p->node[i].buffer == b ? p->node[i].use : NULL; u; u = u->next) {
            double n = plan_nelem(p->node[i].u) * (double)dtype_nbytes(b->dtype);
            if (u->seg == s && !u->root && n > most)
                most = n;
        }
    return most;
}

/* ---------------------------------------------------------------------------------- what it costs */

static const struct work *work_of(struct banding *w, struct segment *s)
{
    struct plan *p = w->p;
    int at = 0, n;
    while (p->segment[at] != s)
        at++;
    struct work *k = &w->work[at];
    if (k->known)
        return k;
    struct segment *next = s->next;
    struct mem_mark mark = scratch_mark(p->t);
    s->next = NULL;
    struct uop *ast = lower_kernel(p, s);
    s->next = next;
    (void)linearize(p->t, ast, &n, &k->flop);
    struct uop **order = uop_toposort(p->t, &ast, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? uop_buffer_of(order[i]) : NULL;
        if (!b || b == s->dest)
            continue;
        double nbytes = read_by(p, s, b);
        *(b->kind == BUFFER_WEIGHT ? &k->weights : &k->reads) += nbytes > 0 ? nbytes : buffer_most_nbytes(b);
    }
    for (int i = 0; i < n; i++) {
        bool weight = order[i]->op == OP_LOAD && order[i]->src[0]->op == OP_BUFFER &&
                      uop_buffer_of(order[i]->src[0])->kind == BUFFER_WEIGHT;
        for (int a = 0; a < s->value->ndim && (weight || order[i]->op == OP_LT); a++)
            if (s->axis[a]->op == OP_RANGE && nest_depends(p->t, order[i], s->axis[a]))
                *(weight ? &k->columns : &k->chooses) |= 1u << a;
    }
    scratch_release(p->t, mark);
    k->known = w->tried = true;
    return k;
}

static bool chooses(struct banding *w, struct segment *s, int a)
{
    return work_of(w, s)->chooses >> a & 1;
}

/* Whether bands along axis a would leave a layer few columns. */
static bool is_column(struct banding *w, struct segment *s, int a)
{
    return work_of(w, s)->columns >> a & 1 && work_of(w, s)->weights > LAYER_NBYTES;
}

/* What lies behind one another in memory: the axes of the stored value, outermost first. */
static int stored_axes(const struct buffer *b, int *axis)
{
    for (int a = 0; a < b->ndim; a++)
        axis[a] = b->is_ordered ? b->order[a] : a;
    return b->ndim;
}

/* The axis of v's buffer that is v's axis a: a reduction's buffer does without what it leaves. */
static int stored_axis(const struct uop *v, int a)
{
    int n = a;
    for (int k = 0; k < a && v->op == OP_REDUCE; k++)
        n -= (int)(REDUCE_AXES(v->arg.i) >> k & 1);
    return n;
}

/* Scratch for one band. */
static double scratch_of(const struct group *g)
{
    double n = 0;
    for (int i = 1; i < g->n; i++) {
        const struct member *m = &g->member[i];
        double part = buffer_most_nbytes(m->node->buffer);
        for (int k = 0; k < g->nband; k++)
            part *= (double)m->kept[k].slots / plan_extent(m->node->u->dim[m->part[k].axis]);
        n += part;
    }
    return n;
}

/* What a band reads and writes beside scratch, and would drive scratch out of the cache. */
static double streamed_of(struct banding *w, const struct group *g)
{
    double n = stored_nbytes(g->member[0].s);
    for (int i = 0; i < g->n; i++)
        n += work_of(w, g->member[i].s)->reads - (i ? buffer_most_nbytes(g->member[i].node->buffer) : 0);
    return n / g->nbands;
}

static bool is_too_large(struct banding *w, const struct group *g)
{
    double cache = (double)w->p->t->cache_nbytes;
    return cache > 0 && scratch_of(g) + streamed_of(w, g) > scratch_share * cache;
}

/* The axis of a segment's value that lies innermost in memory: vectors run along it. */
static int innermost(const struct segment *s)
{
    int axis[MAX_RANK], n = stored_axes(s->dest, axis);
    for (int a = 0; n && a < s->value->ndim; a++)
        if (stored_axis(s->value, a) == axis[n - 1])
            return a;
    return -1;
}

/* The least number of rows that a layer with weights has in one band: what lies behind one another
 * from the band's axis on, but for the innermost axis. */
static double shortest_rows(struct banding *w, const struct group *g)
{
    double least = HUGE_VAL;
    for (int i = 0; i < g->n; i++) {
        const struct member *m = &g->member[i];
        const struct uop *v = m->s->value;
        double rows = 1;
        int inner = innermost(m->s), first = v->ndim;
        for (int k = 0; k < g->nband; k++)
            first = m->part[k].axis < first ? m->part[k].axis : first;
        for (int a = first; a < v->ndim; a++) {
            double n = a == inner ? 1 : plan_extent(v->dim[a]);
            for (int k = 0; k < g->nband; k++)
                n = m->part[k].axis == a ? (double)m->part[k].extent : n;
            rows *= n;
        }
        if (work_of(w, m->s)->weights > LAYER_NBYTES && rows < least)
            least = rows;
    }
    return least;
}

/* Cycles saved by a group; 0 or less: leave it. */
static double gain_of(struct banding *w, const struct group *g)
{
    double saved = 0, lost = 0, whole = 0, weights = 0;
    double cache = (double)w->p->t->cache_nbytes;
    for (int i = 1; i < g->n; i++) {
        const struct member *m = &g->member[i];
        double nbytes = buffer_most_nbytes(m->node->buffer), part = 1;
        for (int k = 0; k < g->nband; k++)
            part *= (double)m->part[k].extent / plan_extent(m->s->value->dim[m->part[k].axis]);
        whole += nbytes;
        saved += 2 * nbytes / (nbytes > far_caches * cache ? FAR_BYTES_CYCLE : NEAR_BYTES_CYCLE);
        lost += work_of(w, m->s)->flop * (part * g->nbands - 1) / AGAIN_FLOP_CYCLE;
    }
    if (cache == 0)
        return whole;
    if (is_too_large(w, g) || whole < scratch_share * cache)
        return 0;
    double again = lost;
    for (int i = 0; i < g->n; i++)
        weights += work_of(w, g->member[i].s)->weights;
    if (weights + scratch_of(g) > cache)
        lost += weights * (g->nbands - 1) / WEIGHT_BYTES_CYCLE;
    /* near, what is passed on has to be more than what is stored; most of it where a layer's rows
     * become short */
    double least = (shortest_rows(w, g) < ROWS ? 3 : 1.2) * stored_nbytes(g->member[0].s);
    if (whole < 2 * far_caches * cache && whole < least)
        return 0;
    double gain = saved - lost - nest_cycles * g->nbands * g->n;
    return gain < 0.25 * again ? 0 : gain;
}

/* ------------------------------------------------------------------------------------- the window */

static struct uop *zero_ranges(struct tgc *t, void *ctx, struct uop *u)
{
    return u->op == OP_RANGE && u != ctx ? uop_int(t, 0) : NULL;
}

static const struct member *member_of(const struct group *g, const struct segment *s)
{
    for (int i = 0; i < g->n; i++)
        if (g->member[i].s == s)
            return &g->member[i];
    return NULL;
}

/* One coordinate at which a member reads: a start that depends on the band alone, and a distance
 * from lo to hi. base NULL: it does not move with the band. false: it is no window. */
static bool window_of(struct tgc *t, struct uop *at, const struct segment *s,
                      const struct band *own, struct uop **base, int64_t *lo, int64_t *hi)
{
    *base = NULL;
    if (!nest_depends(t, at, s->axis[own->axis]))
        return true;
    at = nest_replace(t, at, s->axis[own->axis], sym_add(t, own->start, own->inner));
    if (!nest_depends(t, at, own->range))
        return true;
    *base = at;
    uop_rewrite(t, base, 1, zero_ranges, own->range);
    struct uop *local = sym_sub(t, at, *base);
    *lo = local->vmin;
    *hi = local->vmax;
    return !nest_depends(t, local, own->range);
}

/* Which part of a node's value the k-th band needs. false: there is no such part, or it is all. */
static bool find_part(const struct group *g, struct tgc *t, const struct node *n,
                      const struct segment *producer, int k, struct member *m)
{
    struct uop *first = NULL, *base;
    int64_t low = 0, high = 0, lo = 0, hi = 0, apart;
    uint32_t still = 0;          /* axes whose coordinate some use reads without regard to the band */
    int axis = -1;
    for (const struct use *u = n->use; u; u = u->next) {
        const struct member *by = member_of(g, u->seg);
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

/* Which part of a value the bands need, along an axis for each of them. */
static bool find_parts(struct banding *w, const struct group *g, const struct node *n,
                       struct segment *producer, struct member *m)
{
    *m = (struct member){.s = producer, .node = (struct node *)(uintptr_t)n};
    for (int k = 0; k < g->nband; k++)
        if (!find_part(g, w->p->t, n, producer, k, m) ||
            (k > 0 && m->part[k].axis == m->part[0].axis) ||
            chooses(w, producer, m->part[k].axis) || is_column(w, producer, m->part[k].axis))
            return false;
    return true;
}

/* -------------------------------------------------------------------------------------- the group */

static bool is_free(const struct group *g, const struct segment *s)
{
    return !s->nband && !member_of(g, s);
}

/* Whether all that reads it is in the group, and it is read at all. */
static bool feeds_group(const struct group *g, const struct node *n, const struct segment *producer)
{
    bool any = false;
    for (const struct use *u = n->use; u; u = u->next) {
        if (u->seg == producer)
            continue;
        if (u->stage || !member_of(g, u->seg))
            return false;
        any = true;
    }
    return any;
}

/* The producers of what the group reads, the last ones first, as long as it pays. `best`, its gain:
 * the best group so far. */
static void grow(struct banding *w, struct group *g, struct group *best, double *most)
{
    for (int i = w->ncandidate - 1; i >= 0 && g->n < MEMBERS_MAX; i--) {
        struct node *n = w->candidate[i];
        struct segment *s = w->producer[i];
        struct member m;
        if (!is_free(g, s) || s->block != g->member[0].s->block || !feeds_group(g, n, s) ||
            read_by(w->p, s, g->member[0].s->dest) > 0 || !find_parts(w, g, n, s, &m))
            continue;
        g->member[g->n++] = m;
        double gain = gain_of(w, g);
        if (gain > *most) {
            *most = gain;
            *best = *g;
        }
    }
}

static bool reads_candidates(const struct banding *w, const struct segment *s)
{
    double nbytes = 0;
    for (int i = 0; i < w->ncandidate; i++)
        for (const struct use *u = w->candidate[i]->use; u; u = u->next)
            if (u->seg == s && w->producer[i] != s) {
                nbytes += buffer_most_nbytes(w->candidate[i]->buffer);
                break;
            }
    return nbytes > 0;
}

/* One more band: along axis a of the last segment's value, so many elements at a time. */
static void add_band(struct tgc *t, struct group *g, int a, int64_t size, int64_t rows)
{
    struct uop *nband = uop_int(t, size / rows);
    struct band *b = &g->member[0].part[g->nband++];
    b->axis = a;
    b->extent = rows;
    b->range = uop_intern(t, OP_RANGE, DTYPE_INDEX, &nband, 1,
                          (union arg){.i = t->next_range++ | RANGE_BAND});
    b->start = sym_muli(t, b->range, rows);
    b->inner = rows > 1 ? uop_range(t, uop_int(t, rows), t->next_range++) : uop_int(t, 0);
    g->nbands *= (double)(size / rows);
    g->n = 1;
}

static bool may_split(struct banding *w, struct segment *s, int a, int64_t *size)
{
    return s->axis[a]->op == OP_RANGE && uop_const_int(s->axis[a]->src[0], size) &&
           a != innermost(s) && !chooses(w, s, a) && !is_column(w, s, a);
}

/* Bands along one axis, or, where one row of bands is more than a cache holds, along two. */
static void find_group(struct banding *w, struct segment *sink, struct group *best)
{
    struct tgc *t = w->p->t;
    double most = 0;
    int64_t size, across;
    best->n = 0;
    for (int a = 0; a < sink->value->ndim; a++) {
        if (!may_split(w, sink, a, &size))
            continue;
        for (int64_t rows = 1; rows < size; rows++) {
            struct group g = {.nbands = 1, .n = 1, .member = {{.s = sink}}};
            if (size % rows)
                continue;
            add_band(t, &g, a, size, rows);
            grow(w, &g, best, &most);
            for (int b = a + 1; b < sink->value->ndim && g.n > 1 && is_too_large(w, &g); b++) {
                if (!may_split(w, sink, b, &across))
                    continue;
                for (int64_t columns = across - 1; columns > 0; columns--) {
                    struct group h = {.nbands = 1, .n = 1, .member = {{.s = sink}}};
                    if (across % columns)
                        continue;
                    add_band(t, &h, a, size, rows);
                    add_band(t, &h, b, across, columns);
                    grow(w, &h, best, &most);
                }
            }
            if (g.n > 1 && is_too_large(w, &g))
                break;                                /* more rows are larger */
        }
    }
}

/* Its buffer becomes scratch for one band. Where many places far apart are stored to at once they
 * shall not all lie at the same place of a cache's ways. */
static void shrink_buffer(struct tgc *t, const struct group *g, const struct member *m)
{
    struct buffer *b = m->node->buffer;
    struct view *v = MEM_NEW(t, struct view);
    int axis[MAX_RANK], n = stored_axes(b, axis);
    int64_t stride = 1, nbytes = (int64_t)dtype_nbytes(b->dtype), line = LINE / nbytes;
    b->kind = BUFFER_SCRATCH;
    for (int k = 0; k < g->nband; k++)
        b->dim[stored_axis(m->node->u, m->part[k].axis)] = uop_int(t, m->kept[k].slots);
    v->ndim = n;
    v->offset = uop_int(t, 0);
    for (int i = n - 1; i >= 0; i--) {
        int64_t size = b->dim[axis[i]]->arg.i;
        if (i == 0 && n > 1 && size > 1 && stride * nbytes % ALIAS == 0) {
            b->dim[axis[0]] = uop_int(t, size + (size * line + stride - 1) / stride);
            stride += line;
        }
        v->dim[axis[i]] = uop_int(t, size);
        v->stride[axis[i]] = uop_int(t, stride);
        stride *= size;
    }
    for (int k = 0; k < g->nband; k++) {
        int a = stored_axis(m->node->u, m->part[k].axis);
        v->offset = sym_sub(t, v->offset, sym_mul(t, v->stride[a], m->kept[k].start));
    }
    b->storage = v;
}

/* The border of a tensor, of which bands now keep parts. */
static void drop_border(struct plan *p, const struct segment *inside)
{
    for (int i = 0; i < p->nsegment; i++)
        if (p->segment[i]->dest == inside->dest && p->segment[i] != inside)
            p->segment[i]->value = NULL;
}

/* The group's segments take the place of its last one among those of its kernel. */
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

/* DEBUG=2: what was chosen. */
static void report(struct banding *w, const struct group *g)
{
    double flop = 0, weights = 0;
    for (int i = 0; i < g->n; i++) {
        const struct work *k = work_of(w, g->member[i].s);
        const struct origin *o = uop_get_origin(w->p->t, g->member[i].s->value);
        fprintf(stderr, "%s%s", i ? " < " : "bands: ", o ? o->node : "");
        flop += k->flop;
        weights += k->weights;
    }
    fprintf(stderr, ": %g kB of scratch for", scratch_of(g) / 1e3);
    for (int k = 0; k < g->nband; k++)
        fprintf(stderr, "%s %lld of %g", k ? "," : "", (long long)g->member[0].part[k].extent,
                plan_extent(g->member[0].s->value->dim[g->member[0].part[k].axis]));
    fprintf(stderr, "; %g MFLOP, weights %g kB, %.0f kcycles saved\n", flop / 1e6, weights / 1e3,
            gain_of(w, g) / 1e3);
}

/* The segment that fills the node's buffer: a plain one, or the inside of a border. NULL: there are
 * several. */
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
    /* a sum's buffer would be without some axes that the border has */
    return s->start && value->op == OP_REDUCE ? NULL : s;
}

/* Buffers of fixed size that one segment fills, and the segments. */
static void find_candidates(struct banding *w)
{
    struct plan *p = w->p;
    for (int i = 0; i < p->nnode; i++) {
        struct node *n = &p->node[i];
        bool plain = n->buffer && n->is_private && !n->must && !n->within && !n->hosts &&
                     n->buffer->kind == BUFFER_TEMP;
        for (int a = 0; plain && a < n->buffer->ndim; a++)
            plain = n->buffer->dim[a]->op == OP_CONST && n->buffer->dim[a]->arg.i > 0;
        struct segment *s = plain ? find_producer(p, n) : NULL;
        if (!s)
            continue;
        int at = w->ncandidate;
        VEC_PUSH(p->t, w->producer, at, w->cap_producer, s);
        VEC_PUSH(p->t, w->candidate, w->ncandidate, w->cap, n);
    }
}

void plan_bands(struct plan *p)
{
    struct banding w = {.p = p};
    struct group best;
    int nsegment = p->nsegment;
    w.work = mem_array(p->t, (size_t)nsegment + 1, sizeof *w.work);
    find_candidates(&w);
    /* segments were made from the last one to the first */
    for (int i = 0; i < nsegment; i++) {
        struct segment *s = p->segment[i];
        if (!s->value || s->lead || s->scatter || s->nband || !reads_candidates(&w, s))
            continue;
        find_group(&w, s, &best);
        if (best.n > 1 && p->t->debug >= 2)
            report(&w, &best);
        if (best.n > 1)
            join_group(p, &best);
        if (w.tried)
            plan_forget(p);
        w.tried = false;
    }
}
