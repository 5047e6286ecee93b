/* storage.c - weights in another order, as they are stored or seen: copies through a view of
 * constant strides.
 *
 * The innermost two axes of the view are a plane, which is copied in blocks of BLOCK rows. Where a
 * weight is transposed adjacent elements of the source are in different rows, so that a block reads
 * whole cache lines:
 *
 *      source   k0 k1 k2 ...   (column 0)        stored   c0 c1 c2 ...   (row k0)
 *               k0 k1 k2 ...   (column 1)                 c0 c1 c2 ...   (row k1)
 */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 };

struct plane { int64_t nrow, ncol, row_stride, col_stride; size_t width; };

/* Inlined for each width, which is a constant there. */
static inline void copy_block(const struct plane *p, size_t width, int64_t row, int64_t nrow,
                              const unsigned char *from, unsigned char *to)
{
    for (int64_t c = 0; c < p->ncol; c++)
        for (int64_t r = row; r < row + nrow; r++)
            memcpy(to + (size_t)(r * p->ncol + c) * width,
                   from + (r * p->row_stride + c * p->col_stride) * (int64_t)width, width);
}

static void copy_plane(const struct plane *p, const unsigned char *from, unsigned char *to)
{
    for (int64_t r = 0; r < p->nrow; r += BLOCK) {
        int64_t n = p->nrow - r < BLOCK ? p->nrow - r : BLOCK;
        for (int64_t i = r; p->col_stride == 1 && i < r + n; i++)
            memcpy(to + (size_t)(i * p->ncol) * p->width,
                   from + i * p->row_stride * (int64_t)p->width, (size_t)p->ncol * p->width);
        if (p->col_stride == 1)
            continue;
        switch (p->width) {
        case 1: copy_block(p, 1, r, n, from, to); break;
        case 2: copy_block(p, 2, r, n, from, to); break;
        case 4: copy_block(p, 4, r, n, from, to); break;
        default: copy_block(p, p->width, r, n, from, to);
        }
    }
}

/* A place in a view: its coordinates, and the offset of that element. */
struct walk { const struct view *v; int64_t at[MAX_RANK], offset; };

static struct walk walk_from(const struct view *v, int64_t element)
{
    struct walk w = {.v = v, .offset = v->offset->arg.i};
    for (int a = v->ndim - 1; a >= 0; a--) {
        w.at[a] = element % v->dim[a]->arg.i;
        element /= v->dim[a]->arg.i;
        w.offset += w.at[a] * v->stride[a]->arg.i;
    }
    return w;
}

/* n further along an axis, within it, and at its end on along the ones before, like an odometer. */
static void walk_on(struct walk *w, int axis, int64_t n)
{
    for (int a = axis; a >= 0; a--, n = 1) {
        w->offset += n * w->v->stride[a]->arg.i;
        w->at[a] += n;
        if (w->at[a] < w->v->dim[a]->arg.i)
            return;
        w->offset -= w->at[a] * w->v->stride[a]->arg.i;
        w->at[a] = 0;
    }
}

/* Copies what is whole in the next n elements, a plane or part of a row. Returns how many. */
static int64_t copy_next(struct walk *w, int64_t n, size_t width, const unsigned char *from,
                         unsigned char *to)
{
    const struct view *v = w->v;
    int last = v->ndim - 1;
    struct plane p = {1, 1, 0, 1, width};
    if (last >= 0) {
        p.ncol = v->dim[last]->arg.i - w->at[last];
        p.col_stride = v->stride[last]->arg.i;
    }
    bool is_plane = last > 0 && w->at[last] == 0 && w->at[last - 1] == 0 &&
                    n / p.ncol >= v->dim[last - 1]->arg.i;
    if (is_plane) {
        p.nrow = v->dim[last - 1]->arg.i;
        p.row_stride = v->stride[last - 1]->arg.i;
    } else if (p.ncol > n) {
        p.ncol = n;
    }
    copy_plane(&p, from + w->offset * (int64_t)width, to);
    walk_on(w, is_plane ? last - 1 : last, is_plane ? p.nrow : p.ncol);
    return p.nrow * p.ncol;
}

void view_copy_stored(const struct buffer *b, size_t begin, size_t nbytes, unsigned char *to)
{
    const unsigned char *from = b->weight.data;
    if (!b->storage) {
        memcpy(to, from + begin, nbytes);
        return;
    }
    size_t width = dtype_nbytes(b->dtype);
    int64_t n = (int64_t)(nbytes / width);
    if (!n)
        return;
    struct walk w = walk_from(b->storage, (int64_t)(begin / width));
    for (int64_t i = 0; i < n;)
        i += copy_next(&w, n - i, width, from, to + (size_t)i * width);
}

static bool is_constant(const struct view *v)
{
    int64_t n;
    bool ok = !v->has_mask && uop_const_int(v->offset, &n);
    for (int a = 0; a < v->ndim && ok; a++)
        ok = uop_const_int(v->dim[a], &n) && n > 0 && uop_const_int(v->stride[a], &n);
    return ok;
}

bool view_copy_weight(struct tgc *t, struct uop *u, void *to)
{
    struct path path = path_down(u, MOVES_VIEW);
    const struct buffer *b = uop_buffer_of(path.base);
    if (!b || path.base->op != OP_BUFFER || !b->weight.data || b->storage || b->dtype != u->dtype)
        return false;
    struct tracker *tr = tracker_contiguous(t, path.base->dim, path.base->ndim);
    for (int i = path.n - 1; i >= 0 && tr; i--)
        tr = tracker_apply(t, tr, path.move[i]);
    if (!tr || tr->nview != 1 || !is_constant(&tr->view[0]))
        return false;
    struct buffer seen = *b;
    seen.storage = &tr->view[0];
    size_t nbytes = dtype_nbytes(b->dtype);
    for (int a = 0; a < u->ndim; a++)
        nbytes *= (size_t)tr->view[0].dim[a]->arg.i;
    view_copy_stored(&seen, 0, nbytes, to);
    return true;
}

bool view_last_element(const struct view *v, int64_t *last)
{
    int64_t n, stride;
    if (v->has_mask || !uop_const_int(v->offset, last) || *last < 0)
        return false;
    for (int a = 0; a < v->ndim; a++) {
        if (!uop_const_int(v->dim[a], &n) || !uop_const_int(v->stride[a], &stride) || n < 1 ||
            stride < 0)
            return false;
        *last = sat_add(*last, sat_mul(n - 1, stride));
    }
    return *last < INT64_MAX;
}

const void *view_stored_bytes(const struct buffer *b, void **packed)
{
    *packed = NULL;
    if (!b->storage)
        return b->weight.data;
    *packed = malloc(b->nbytes ? b->nbytes : 1);
    if (*packed && b->nbytes)
        view_copy_stored(b, 0, b->nbytes, *packed);
    return *packed;
}
