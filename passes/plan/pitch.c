/* pitch.c - pads strides that would make simultaneous accesses collide in a cache.
 *
 * Winograd's tensors are an example: all xi of a tile are computed together, and their stride is
 * the number of all tiles. If that is a multiple of half a page, they map to a few cache sets and
 * evict each other; padded by one line, they do not. (band.c pads a band's scratch.) Axes whose
 * sizes known only at run time, a batch, go outside of the places, whose stride is a constant then.
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

/* The axes of a buffer, outermost first: those with open sizes, then the others as
 * they are. *nunknown: of the former. false: there is nothing to store. */
static bool find_axes(const struct buffer *b, int *axis, int *nunknown)
{
    int n = 0;
    for (int fixed = 0; fixed <= 1; fixed++) {
        for (int i = 0; i < b->ndim; i++) {
            int a = b->order.is_set ? b->order.axis[i] : i;
            if (b->dim[a]->vmax < 1)
                return false;
            if ((b->dim[a]->op == OP_CONST) == fixed)
                axis[n++] = a;
        }
        *nunknown = fixed ? *nunknown : n;
    }
    return true;
}

static void spread(struct plan *p, struct node *n, struct segment *s)
{
    struct tgc *t = p->t;
    struct buffer *b = n->buffer;
    int axis[MAX_RANK], nunknown = 0;
    const struct machine *m = machine_of(t);
    int64_t size = (int64_t)dtype_nbytes(b->dtype), line = m->line / size, apart = 1, places;
    if (!find_axes(b, axis, &nunknown) || nunknown == b->ndim)
        return;
    int first = nunknown;
    while (first < b->ndim - 1 && b->dim[axis[first]]->arg.i == 1)
        first++;
    for (int i = first + 1; i < b->ndim; i++)
        apart = sat_mul(apart, b->dim[axis[i]]->arg.i);
    places = b->dim[axis[first]]->arg.i;
    int along = value_axis(n->u, axis[first]);
    if (places < PLACES || apart > INT64_MAX / 2 / places / size)
        return;
    int64_t padding = apart * size % cost_alias_nbytes(m) ? 0 : line;
    if ((!padding && !nunknown) ||
        (!is_read_place_by_place(n, along) && !is_stack_along(p, s, along)))
        return;
    struct view *v = MEM_NEW(t, struct view);
    v->ndim = b->ndim;
    v->offset = uop_int(t, 0);
    struct uop *stride = uop_int(t, 1);
    for (int i = b->ndim - 1; i >= 0; i--) {
        stride = sym_addi(t, stride, i == first ? padding : 0);
        v->dim[axis[i]] = b->dim[axis[i]];
        v->stride[axis[i]] = stride;
        stride = sym_mul(t, stride, b->dim[axis[i]]);
    }
    b->dim[axis[first]] = uop_int(t, places + (places * padding + apart - 1) / apart);
    b->storage = v;
}

void plan_pitch(struct plan *p)
{
    for (int i = 0; i < p->nnode; i++) {
        struct segment *s = only_segment(p, &p->node[i]);
        if (s)
            spread(p, &p->node[i], s);
    }
}
