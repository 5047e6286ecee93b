/* store_clipped.c - stores a tensor that is computed in whole tiles only as far as it is read.
 *
 *      y[tile, i], tile < 9, i < 6          54 rows      read as y[r / 6, r % 6], r < 52
 *
 *      for tile < 8  for i < 6   y[6*tile + i] = ...     52 rows, in the same order
 *                    for i < 4   y[48 + i] = ...
 *
 * Winograd's results are an example. Rows are clipped, columns are not: their remainder would add
 * two stores of straight-line code. (A band stores no more than its tiles.)
 */
#include "passes/plan/plan.h"
#include "passes/analysis/nest.h"

/* r, if the two coordinates are r / m and r % m, with m the second one's size; or NULL. */
static struct uop *divided(const struct uop *tile, const struct uop *in, int64_t m)
{
    int64_t by, rest;
    if (uop_is_int(tile, 0))
        return (struct uop *)(uintptr_t)in;
    bool both = (tile->op == OP_FLOORDIV || tile->op == OP_DIV) &&
                (in->op == OP_FLOORMOD || in->op == OP_MOD) && tile->src[0] == in->src[0] &&
                uop_const_int(tile->src[1], &by) && uop_const_int(in->src[1], &rest);
    return both && by == m && rest == m ? in->src[0] : NULL;
}

/* How many rows, in the tiles along two axes of n, all uses together read; 0: unknown. */
static int64_t rows_read(const struct node *n, const struct segment *own, int tile, int in)
{
    int64_t rows = 0;
    for (const struct use *u = n->use; u; u = u->next) {
        if (u->seg == own && u->root)
            continue;
        struct uop *r = divided(u->index[tile], u->index[in], n->u->dim[in]->arg.i);
        if (!r || u->stage)
            return 0;
        rows = r->vmax + 1 > rows ? r->vmax + 1 : rows;
    }
    return rows;
}

/* The single plain segment that fills the node's buffer of fixed size, outside all bands. */
static struct segment *whole_segment(const struct plan *p, const struct node *n)
{
    struct segment *found = NULL;
    if (n->u->op != OP_CONTIGUOUS || !n->buffer || !n->is_private || n->must ||
        n->buffer->kind != BUFFER_TEMP || n->buffer->storage)
        return NULL;
    for (int a = 0; a < n->buffer->ndim; a++)
        if (n->buffer->dim[a]->op != OP_CONST || n->buffer->dim[a]->arg.i < 1)
            return NULL;
    for (int k = 0; k < p->nsegment; k++) {
        struct segment *s = p->segment[k];
        if (s->dest != n->buffer)
            continue;
        if (found || s->value != n->u || s->nband || s->start || s->lead || s->scatter)
            return NULL;
        found = s;
    }
    return found;
}

/* Clips the buffer to these rows, tile after tile. */
static void clip(struct plan *p, struct node *n, struct segment *s, int tile, int in, int64_t rows)
{
    struct tgc *t = p->t;
    struct buffer *b = n->buffer;
    struct view *v = MEM_NEW(t, struct view);
    int64_t stride = 1, row = 1;
    v->ndim = b->ndim;
    v->offset = uop_int(t, 0);
    for (int i = b->ndim - 1; i >= 0; i--) {
        int a = b->order.is_set ? b->order.axis[i] : i;
        v->dim[a] = n->u->dim[a];
        v->stride[a] = uop_int(t, a == tile ? row * n->u->dim[in]->arg.i : stride);
        row = a == in ? stride : row;
        stride = sat_mul(stride, a == in ? rows : a == tile ? 1 : b->dim[a]->arg.i);
    }
    b->dim[tile] = uop_int(t, 1);
    b->dim[in] = uop_int(t, rows);
    b->storage = v;
    s->clip = (struct clip){.tile = s->axis[tile], .in = s->axis[in], .rows = rows};
}

static void clip_node(struct plan *p, struct node *n, struct segment *s)
{
    const struct buffer *b = n->buffer;
    for (int i = 1; i < b->ndim; i++) {
        int tile = b->order.is_set ? b->order.axis[i - 1] : i - 1,
            in = b->order.is_set ? b->order.axis[i] : i;
        int64_t m = n->u->dim[in]->arg.i, rows;
        if (m < 2 || s->axis[in]->op != OP_RANGE || b->dim[in] != n->u->dim[in])
            continue;
        rows = rows_read(n, s, tile, in);
        if (rows < 1 || rows >= n->u->dim[tile]->arg.i * m)
            continue;
        clip(p, n, s, tile, in, rows);
        return;                                           /* only rows */
    }
}

void plan_store_clipped(struct plan *p)
{
    for (int i = 0; i < p->nnode; i++) {
        struct segment *s = whole_segment(p, &p->node[i]);
        if (s)
            clip_node(p, &p->node[i], s);
    }
}

static int find_range(const struct uop *store, const struct uop *r)
{
    for (int k = 3; k < store->nsrc; k++)
        if (store->src[k] == r)
            return k;
    return -1;
}

int clip_store(struct tgc *t, const struct segment *s, struct uop *store, struct uop **part)
{
    const struct clip *c = &s->clip;
    struct uop *last = store, *none;
    int n = 0;
    if (c->rows == 0) {
        part[n++] = store;
        return n;
    }
    int64_t m = c->in->src[0]->arg.i;
    int tile = find_range(store, c->tile);                /* -1: there is one */
    if (tile >= 0 && c->rows >= m)
        store_split(t, store, tile, c->rows / m, &part[n++], &last);
    if (c->rows % m == 0)
        return n;
    if (tile >= 0 && last->nsrc == store->nsrc)           /* more than one tile remains */
        store_split(t, last, tile, 1, &last, &none);
    store_split(t, last, find_range(last, c->in), c->rows % m, &part[n++], &none);
    return n;
}
