/* pitch.c - pads strides that would make simultaneous accesses collide in a cache.
 *
 * Winograd's tensors are an example: all xi of a tile are computed together, and their stride is
 * the number of all tiles. If that is a multiple of half a page, they map to a few cache sets and
 * evict each other; padded by one line, they do not. (band.c pads a band's scratch.)
 */
#include "passes/plan/plan.h"
#include "passes/analysis/access.h"

enum { PLACES = 8 };

/* The single plain segment that fills the node's buffer, if the buffer is private. */
static struct segment *only_segment(const struct plan *p, const struct node *n)
{
    struct segment *s = NULL;
    if (!n->buffer || !n->is_private || n->must || n->buffer->kind != BUFFER_TEMP ||
        n->buffer->storage || n->buffer->ndim < 2)
        return NULL;
    for (int k = 0; k < p->nsegment; k++) {
        if (p->segment[k]->dest != n->buffer)
            continue;
        if (s || p->segment[k]->value != n->u)
            return NULL;
        s = p->segment[k];
    }
    return !s || s->start || s->lead || s->scatter ? NULL : s;
}

/* The axis of value v that is its buffer's axis a: a reduction's buffer lacks the reduced axes. */
static int value_axis(const struct uop *v, int a)
{
    int k = 0;
    for (int n = 0; k < v->ndim; k++) {
        bool stored = v->op != OP_REDUCE || !(REDUCE_AXES(v->arg.i) >> k & 1);
        if (stored && n++ == a)
            break;
    }
    return k;
}

/* Whether a coordinate chooses within a STACK: such an axis is unrolled completely. */
static bool is_stack_along(struct plan *p, struct segment *s, int axis)
{
    bool found = false;
    int n;
    struct mem_mark mark = scratch_mark(p->t);
    struct uop *ast = lower_trial(p, s);
    struct uop **order = uop_toposort(p->t, &ast, 1, &n);
    for (int i = 0; i < n && !found; i++)
        found = order[i]->op == OP_STACK && s->axis[axis]->op == OP_RANGE &&
                uop_depends_on(p->t, order[i]->src[0], s->axis[axis]);
    scratch_release(p->t, mark);
    return found;
}

static bool is_read_place_by_place(const struct node *n, int axis)
{
    int nuse = 0;
    for (const struct use *u = n->use; u; u = u->next) {
        if (!u->index || u->root)
            continue;
        if (u->index[axis]->op != OP_CONST)
            return false;
        nuse++;
    }
    return nuse >= PLACES;
}

static void spread(struct plan *p, struct node *n, struct segment *s)
{
    struct tgc *t = p->t;
    struct buffer *b = n->buffer;
    int axis[MAX_RANK], first = 0;
    const struct machine *m = machine_of(t);
    int64_t size = (int64_t)dtype_nbytes(b->dtype), line = m->line / size, stride = 1;
    for (int a = 0; a < b->ndim; a++) {
        if (b->dim[a]->op != OP_CONST || b->dim[a]->arg.i < 1)
            return;
        axis[a] = b->is_ordered ? b->order[a] : a;
    }
    while (first < b->ndim - 1 && b->dim[axis[first]]->arg.i == 1)
        first++;
    for (int i = first + 1; i < b->ndim; i++)
        stride = sat_mul(stride, b->dim[axis[i]]->arg.i);
    int64_t places = b->dim[axis[first]]->arg.i;
    int along = value_axis(n->u, axis[first]);
    if (places < PLACES || stride > INT64_MAX / 2 / places / size ||
        stride * size % cost_alias_nbytes(m) ||
        (!is_read_place_by_place(n, along) && !is_stack_along(p, s, along)))
        return;
    struct view *v = MEM_NEW(t, struct view);
    v->ndim = b->ndim;
    v->offset = uop_int(t, 0);
    stride = 1;
    for (int i = b->ndim - 1; i >= 0; i--) {
        v->dim[axis[i]] = b->dim[axis[i]];
        v->stride[axis[i]] = uop_int(t, stride += i == first ? line : 0);
        stride *= i == first ? 1 : b->dim[axis[i]]->arg.i;      /* outer axes have size 1 */
    }
    stride -= line;
    b->dim[axis[first]] = uop_int(t, places + (places * line + stride - 1) / stride);
    b->storage = v;
}

void plan_spread(struct plan *p)
{
    for (int i = 0; i < p->nnode; i++) {
        struct segment *s = only_segment(p, &p->node[i]);
        if (s)
            spread(p, &p->node[i], s);
    }
}
