/* join_channels.c - joins the few channels of a convolution with its taps, so that terms are
 * contiguous.
 *
 *      y[oc, oy, ox] = sum over ic < 3, ky, kx < 7  x[ic, 2*oy + ky, 2*ox + kx] * w[oc, ic, ky, kx]
 *  ->
 *      t[y, 4*x + c]     = x[c, y, x], 0 for c = 3
 *      v[oc, ky, 4*kx + c] = w[oc, c, ky, kx]
 *      y[oc, oy, ox] = sum over ky, j < 28          t[2*oy + ky, 8*ox + j] * v[oc, ky, j]
 *
 * If all channels of a pixel are contiguous, a window over pixels is a window over elements. A sum
 * then has 28 contiguous terms, at multiples of 8 bytes, instead of 147 scattered ones; 4 of 28 are
 * zeros. A row of the copy is a multiple of 16 bytes. */
#include "passes/graph/conv/join_channels.h"

enum { CHANNELS_LEAST = 3, CHANNELS_MOST = 7, ROW_NBYTES = 16 };

/* How each axis of the base is read; the channels' axis, and the last one's product axes: of pixels
 * and of taps. */
struct joining {
    struct tgc *t;
    const struct contraction *c;
    const struct factor *x, *w;
    struct run run[MAX_RANK];
    int channels, last, ic, pixel, tap;
    int64_t nchannel, padded;    /* as they are, and a power of two */
    enum dtype of;               /* what is copied: the narrowest that the factor is
                                  * cast to on its way */
};

/* A window: pixels that a row moves, and a tap that moves by one. */
static bool is_window(const struct joining *j, const struct run *r)
{
    return r->n == 2 && r->stride[0] > 0 && r->stride[1] == 1 &&
           !contraction_is_reduced(j->c, r->axis[0]) && contraction_is_reduced(j->c, r->axis[1]) &&
           j->c->product->dim[r->axis[0]]->op == OP_CONST &&
           j->c->product->dim[r->axis[1]]->op == OP_CONST;
}

static bool is_whole(const struct run *r) { return r->n == 0 || (r->n == 1 && r->whole); }

static bool find_channels(struct joining *j)
{
    const struct uop *base = j->x->base;
    j->channels = -1;
    j->last = base->ndim - 1;
    for (int a = 0; a < base->ndim; a++) {
        struct run *r = &j->run[a];
        *r = contraction_run(j->c, j->x, a);
        bool few = a < j->last && r->n == 1 && r->whole &&
                   contraction_is_reduced(j->c, r->axis[0]) && base->dim[a]->op == OP_CONST &&
                   base->dim[a]->arg.i >= CHANNELS_LEAST && base->dim[a]->arg.i <= CHANNELS_MOST;
        if (few && j->channels < 0)
            j->channels = a;
        else if (!(is_window(j, r) && r->begin <= 0 && base->dim[a]->op == OP_CONST) &&
                 !(is_whole(r) && a < j->last))
            return false;
    }
    if (j->channels < 0)
        return false;
    j->ic = j->run[j->channels].axis[0];
    j->pixel = j->run[j->last].axis[0];
    j->tap = j->run[j->last].axis[1];
    j->nchannel = base->dim[j->channels]->arg.i;
    for (j->padded = 4; j->padded < j->nchannel;)
        j->padded *= 2;
    return j->padded > j->nchannel;
}

static int64_t size_of(const struct joining *j, int axis)
{
    return j->c->product->dim[axis]->arg.i;
}

/* The base as it is copied: a border of zeros, as far as windows reach, channels last,
 * joined with the pixels. */
static struct uop *copy_of(const struct joining *j)
{
    struct tgc *t = j->t;
    struct uop *x = uop_cast(t, j->of, j->x->base), *lo[MAX_RANK], *hi[MAX_RANK], *dim[MAX_RANK];
    int64_t row = ROW_NBYTES / (int64_t)dtype_nbytes(j->of);
    int perm[MAX_RANK], n = 0;
    for (int a = 0; a < x->ndim; a++) {
        const struct run *r = &j->run[a];
        int64_t begin = r->n == 2 ? -r->begin : 0,
                more = a == j->channels ? j->padded - j->nchannel : 0;
        if (r->n == 2) {
            more = r->stride[0] * (size_of(j, r->axis[0]) - 1) + size_of(j, r->axis[1]) -
                   x->dim[a]->arg.i - begin;
            more = more > 0 ? more : 0;
        }
        while (a == j->last && (x->dim[a]->arg.i + begin + more) * j->padded % row)
            more++;
        lo[a] = uop_int(t, begin);
        hi[a] = uop_int(t, more);
        if (a != j->channels)
            perm[n++] = a;
    }
    perm[n] = j->channels;
    x = uop_permute(t, uop_pad(t, x, uop_cast(t, j->of, uop_constf(t, DTYPE_F32, 0)), lo, hi),
                    perm);
    for (int a = 0; a < n; a++)
        dim[a] = a < n - 1 ? x->dim[a] : uop_int(t, x->dim[a]->arg.i * j->padded);
    x = uop_reshape(t, x, dim, n);
    return uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0});
}

/* The streamed factor, of the copy. */
static struct uop *factor_of(const struct joining *j)
{
    struct tgc *t = j->t;
    struct uop *x = uop_cast(t, j->x->value->dtype, copy_of(j));
    int of[MAX_RANK], n = 0;
    for (int a = 0; a <= j->last; a++) {
        const struct run *r = &j->run[a];
        int64_t each = a == j->last ? j->padded : 1;
        if (a == j->channels)
            continue;
        if (r->n == 2)
            x = uop_window(t, x, n, j->c->product->dim[r->axis[0]],
                           uop_int(t, size_of(j, r->axis[1]) * each), r->stride[0] * each, 1);
        for (int k = 0; k < r->n; k++)
            of[n++] = r->axis[k];
        if (r->n == 0)
            of[n++] = -1;
    }
    return contraction_arrange(t, x, of, j->c->product->ndim);
}

/* The narrowest dtype on the way from the value down to its base. */
static enum dtype narrowest(struct uop *v)
{
    enum dtype d = v->dtype;
    for (; move_is(v, MOVES_ANY | MOVES_CAST); v = v->src[0])
        d = dtype_nbytes(v->src[0]->dtype) < dtype_nbytes(d) ? v->src[0]->dtype : d;
    return d;
}

/* The weights, with channels innermost, inside of their taps. They are padded last: constants are
 * folded as far as elements change, so the order is stored. */
static struct uop *weights_of(const struct joining *j)
{
    struct tgc *t = j->t;
    enum dtype d = narrowest(j->w->value);
    struct uop *w = uop_cast(t, d, axes_keep(t, j->w->value, j->w->of)), *lo[MAX_RANK],
               *hi[MAX_RANK], *dim[MAX_RANK];
    int perm[MAX_RANK], n = 0;
    for (int a = 0; a < w->ndim; a++) {
        dim[a] = a == j->ic    ? uop_int(t, 1)
                 : a == j->tap ? uop_int(t, size_of(j, j->tap) * j->padded)
                               : w->dim[a];
        if (a != j->ic)
            perm[n++] = a;
        if (a == j->tap)
            perm[n++] = j->ic;
    }
    for (int a = 0; a < w->ndim; a++) {
        lo[a] = uop_int(t, 0);
        hi[a] = uop_int(t, perm[a] == j->ic ? j->padded - j->nchannel : 0);
    }
    w = uop_pad(t, uop_permute(t, w, perm), uop_cast(t, d, uop_constf(t, DTYPE_F32, 0)), lo, hi);
    return uop_cast(t, j->w->value->dtype, uop_reshape(t, w, dim, w->ndim));
}

/* Whether zeros stand around the base alone: no move between two others pads. */
static bool pads_base(struct uop *v)
{
    struct path p = path_down(v, MOVES_ANY | MOVES_CAST);
    bool moved = false, pads = false;
    for (int i = p.n - 1; i >= 0; i--) {
        pads |= p.move[i]->op == OP_PAD && moved;
        moved |= p.move[i]->op != OP_CAST;
    }
    return !pads;
}

struct uop *channels_join(struct tgc *t, const struct contraction *c)
{
    struct joining j = {
        .t = t, .c = c, .x = &c->factor[c->streamed], .w = &c->factor[c->stationary]};
    uint32_t needed = 0;
    if (!find_channels(&j) || !pads_base(j.x->value))
        return NULL;
    j.of = narrowest(j.x->value);
    needed = 1u << j.ic | 1u << j.tap;
    if ((j.w->of & needed) != needed || j.w->of >> j.pixel & 1)
        return NULL;
    return contraction_like(t, c->sum, factor_of(&j), weights_of(&j));
}
