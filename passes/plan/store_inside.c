/* store_inside.c - stores the parts of a larger tensor in place: a tensor that is concatenated or
 * padded is stored in the result, from which all of its consumers read it.
 *
 *      a = ...                            c[.., 0..64] = ...
 *      b = f(a)                           c[.., 64..96] = f(c[.., 0..64])
 *      c = concat(a, b)
 *
 * So no tensor with a buffer of its own is copied: a skip connection, an input with its border, and
 * the growing concats of a dense block, each of which is a prefix of the last one. A part of a
 * concat without a buffer (it was moved on the way) is copied once, as soon as it is computed.
 *
 * No kernel may read and write the same buffer, since it would neither be tiled nor shared by
 * threads: tensors that would cause that keep their own buffers.
 */
#include "passes/plan/plan.h"

enum { MAX_PARTS = 256 };

static bool has_fixed_sizes(const struct buffer *b)
{
    for (int a = 0; a < b->ndim; a++)
        if (b->dim[a]->op != OP_CONST || b->dim[a]->arg.i < 1)
            return false;
    return true;
}

/* Whether only kernels access its buffer. */
static bool is_movable(const struct node *n)
{
    return n->buffer && n->is_private && !n->must && !n->within &&
           n->buffer->kind == BUFFER_TEMP && n->buffer->ndim == n->u->ndim &&
           n->u->op != OP_REDUCE && n->u->op != OP_SCATTER && n->u->op != OP_GET &&
           has_fixed_sizes(n->buffer);
}

/* Whether a kernel would read and write the same buffer if all tensors of `from` were in `to`,
 * without the segment that copies them. */
static bool would_meet(const struct plan *p, const struct buffer *from, const struct buffer *to,
                       const struct segment *copy)
{
    for (int i = 0; i < p->nnode; i++)
        for (const struct use *u = p->node[i].use; u; u = u->next) {
            const struct buffer *b = p->node[i].buffer, *dest = u->seg->dest;
            if ((b != from && b != to) || u->seg == copy || !u->seg->value)
                continue;
            if (u->root ? dest != b && (dest == from || dest == to) : dest == from || dest == to)
                return true;
        }
    return false;
}

/* Whether the segments that fill it can fill a part of another buffer. */
static bool may_move(const struct plan *p, const struct node *x, const struct node *host,
                     const struct segment *copy)
{
    if (!is_movable(x) || x->u->ndim != host->u->ndim || x->u->dtype != host->u->dtype ||
        x->block != host->block)
        return false;
    for (int i = 0; i < p->nsegment; i++) {
        const struct segment *s = p->segment[i];
        if (s->value && s->dest == x->buffer &&
            (s->lead || s->scatter || s->block != copy->block || s->value->op == OP_REDUCE ||
             s->value->ndim != x->u->ndim))
            return false;
    }
    return !would_meet(p, x->buffer, host->buffer, copy);
}

static void move(struct plan *p, struct node *x, struct node *host, struct uop *const *at)
{
    struct buffer *from = x->buffer;
    for (int i = 0; i < p->nsegment; i++) {
        struct segment *s = p->segment[i];
        if (!s->value || s->dest != from)
            continue;
        struct uop **start = mem_array(p->t, (size_t)x->u->ndim, sizeof *start);
        for (int a = 0; a < x->u->ndim; a++)
            start[a] = s->start ? sym_add(p->t, s->start[a], at[a]) : at[a];
        s->start = start;
        s->dest = host->buffer;
    }
    for (int i = 0; i < p->nnode; i++)
        if (p->node[i].buffer == from)
            p->node[i].buffer = host->buffer;
    x->within = host;
    x->at = at;
    host->hosts = true;
}

static int segments_of(const struct plan *p, const struct node *n, struct segment **seg, int most)
{
    int found = 0;
    for (int i = 0; i < p->nsegment; i++) {
        if (!p->segment[i]->value || p->segment[i]->dest != n->buffer)
            continue;
        if (found < most)
            seg[found] = p->segment[i];
        found++;
    }
    return found;
}

/* Links the remaining segments as those of one kernel. */
static void link_segments(struct segment *const *seg, int n)
{
    struct segment *last = NULL;
    for (int k = 0; k < n; k++) {
        if (!seg[k] || !seg[k]->value)
            continue;
        seg[k]->next = NULL;
        seg[k]->absorbed = last != NULL;
        if (last)
            last->next = seg[k];
        last = seg[k];
    }
}

/* -------------------------------------------------------------------------------------- concats */

/* The index in a longer concat at which the sources of `part` occur in a row; -1: they do not. */
static int find_run(const struct uop *part, const struct uop *whole)
{
    for (int r = 0; r + part->nsrc <= whole->nsrc; r++) {
        int k = 0;
        while (k < part->nsrc && part->src[k] == whole->src[r + k])
            k++;
        if (k == part->nsrc)
            return r;
    }
    return -1;
}

/* Places a concat within a longer one, of which it is a part. Parts that are copied are copied
 * before it is read. */
static void nest_concat(struct plan *p, struct node *part, struct node *whole, struct segment **seg)
{
    struct segment *own[MAX_PARTS];
    int run = find_run(part->u, whole->u), n;
    if (!is_movable(part) || part->hosts || part->u->arg.i != whole->u->arg.i || run < 0 ||
        part->block != whole->block)
        return;
    for (int k = run; k < run + part->u->nsrc; k++)
        if (seg[k]->value && plan_node(p, whole->u->src[k])->buffer)
            return;
    n = segments_of(p, part, own, MAX_PARTS);
    for (int k = 0; k < n && n == part->u->nsrc; k++)
        if (own[k]->value != part->u->src[k])
            return;
    if (n != part->u->nsrc)
        return;
    for (int k = 0; k < n; k++)
        own[k]->value = NULL;                             /* copies onto themselves */
    if (would_meet(p, part->buffer, whole->buffer, NULL)) {
        for (int k = 0; k < n; k++)
            own[k]->value = part->u->src[k];
        return;
    }
    for (int k = run; k < run + n; k++)
        if (seg[k]->value) {
            seg[k]->pos = plan_node(p, whole->u->src[k])->pos;
            seg[k]->early = true;
        }
    move(p, part, whole, seg[run]->start);
}

static void inset_concat(struct plan *p, struct node *n)
{
    struct segment *seg[MAX_PARTS], *late[MAX_PARTS] = {NULL};
    int nsrc = n->u->nsrc;
    if (nsrc > MAX_PARTS || segments_of(p, n, seg, MAX_PARTS) != nsrc)
        return;
    for (int k = 0; k < nsrc; k++) {
        struct node *x = plan_node(p, n->u->src[k]);
        if (seg[k]->value != n->u->src[k] || seg[k]->block != n->block)
            return;
        if (!x || !x->buffer || x->buffer == n->buffer || !may_move(p, x, n, seg[k]))
            continue;
        move(p, x, n, seg[k]->start);
        seg[k]->value = NULL;
    }
    for (int i = n->pos - 1; i >= 0; i--)
        if (p->node[i].u->op == OP_CONCAT)
            nest_concat(p, &p->node[i], n, seg);
    for (int k = 0; k < nsrc; k++) {
        if (seg[k]->value && seg[k]->early)
            link_segments(&seg[k], 1);
        late[k] = seg[k]->early ? NULL : seg[k];
    }
    link_segments(late, nsrc);
}

/* -------------------------------------------------------------------------------------- borders */

/* Whether its other consumers read each element once: layers do not, and would no longer find its
 * rows contiguous, which matters for vectors. */
static bool is_read_in_passing(struct plan *p, const struct node *x, const struct segment *copy)
{
    if (device_has_grid(p->t))
        return true;
    for (const struct use *u = x->use; u; u = u->next)
        for (int a = 0; a < x->u->ndim && u->seg != copy && !u->root; a++)
            if (plan_mask(p, u->index[a]) & u->seg->inner)
                return false;
    return true;
}

static void inset_pad(struct plan *p, struct node *n)
{
    struct segment *seg[2 * MAX_RANK + 1], *own[2];
    struct node *x = plan_node(p, n->u->src[0]);
    int nseg = segments_of(p, n, seg, 2 * MAX_RANK + 1);
    if (nseg < 2 || nseg > 2 * MAX_RANK + 1 || !x || !x->buffer || x->buffer == n->buffer)
        return;
    struct segment *copy = seg[nseg - 1];
    if (copy->value != x->u || !may_move(p, x, n, copy) || segments_of(p, x, own, 2) != 1 ||
        own[0]->next || own[0]->absorbed || own[0]->start || !is_read_in_passing(p, x, copy))
        return;
    move(p, x, n, copy->start);
    copy->value = NULL;
    seg[nseg - 1] = own[0];
    for (int k = 0; k < nseg; k++)
        seg[k]->pos = own[0]->pos;
    link_segments(seg, nseg);
}

static void forget_dropped(struct plan *p)
{
    for (int i = 0; i < p->nnode; i++)
        for (struct use **u = &p->node[i].use; *u;) {
            if ((*u)->seg->value)
                u = &(*u)->next;
            else
                *u = (*u)->next;
        }
}

void plan_store_inside(struct plan *p)
{
    for (int i = p->nnode - 1; i >= 0; i--) {
        struct node *n = &p->node[i];
        if (n->u->op == OP_CONCAT && is_movable(n))
            inset_concat(p, n);
        else if (n->u->op == OP_PAD && is_movable(n))
            inset_pad(p, n);
    }
    forget_dropped(p);
}
