/* separate_taps.c - computes convolutions whose taps mostly read the border tap by tap.
 *
 *      x   . . . . a b c d . . . .       three taps, dilation 4, on four elements: the first and
 *          k-------k-------k             the last one read nothing but the border, but for ...
 *            k-------k-------k
 *
 *      y = sum over taps of pad(sum over ic of w[tap] * part of x)
 *
 * A tap multiplies only the part of x that it reads inside the border, so no border is stored. If
 * the dilation is about as large as the image (the last layers of segmentation networks), the
 * border would be larger than that. It is a rewrite of the graph: one sum of products for each tap
 * that reads anything, and the sum of these, each padded with zeros. */
#include "passes/graph/conv/winograd.h"

/* The number of outputs, from *first on, for which a tap reads the inside of x. */
static int64_t tap_reads(const struct layer *l, const struct window *w, int tap, int64_t *first)
{
    int64_t lo = l->pad[2 * w->axis]->arg.i, at = w->begin + tap * w->dilation - lo;
    int64_t end = l->x->dim[w->axis]->arg.i - at;
    *first = at < 0 ? -at : 0;
    end = end < w->size ? end : w->size;
    return end > *first ? end - *first : 0;
}

/* The outputs for which one combination of taps reads the inside: n[] of them from first[] on along
 * each window. false: none. */
struct reach { int tap[SIDES_MAX]; int64_t first[SIDES_MAX], n[SIDES_MAX]; };

static bool find_reach(const struct layer *l, int place, struct reach *r)
{
    for (int i = l->nside - 1; i >= 0; i--) {
        r->tap[i] = place % (int)l->side[i]->taps;
        place /= (int)l->side[i]->taps;
        r->n[i] = tap_reads(l, l->side[i], r->tap[i], &r->first[i]);
        if (r->n[i] == 0)
            return false;
    }
    return true;
}

/* The part of x that one combination of taps reads, with the axes of the product. */
static struct uop *part_of_x(const struct layer *l, const struct reach *r)
{
    struct tgc *t = l->t;
    struct uop *begin[MAX_RANK], *size[MAX_RANK], *dim[MAX_RANK];
    int axis_of[MAX_RANK], ndim = 0;
    for (int a = 0; a < l->x->ndim; a++) {
        int s = 0;
        while (s < l->nside && l->side[s]->axis != a)
            s++;
        begin[a] = uop_int(t, 0);
        size[a] = l->x->dim[a];
        if (s < l->nside) {
            const struct window *w = l->side[s];
            begin[a] = uop_int(t, r->first[s] + w->begin + r->tap[s] * w->dilation -
                                      l->pad[2 * a]->arg.i);
            axis_of[ndim] = w->out;
            dim[ndim++] = size[a] = uop_int(t, r->n[s]);
        }
        for (int i = 0; i < l->npart[a]; i++)
            axis_of[ndim] = l->part[a][i], dim[ndim++] = l->product->dim[l->part[a][i]];
    }
    struct uop *x = uop_reshape(t, uop_shrink(t, l->x, begin, size), dim, ndim);
    return contraction_arrange(t, x, axis_of, l->product->ndim);
}

static struct uop *weights_of(const struct layer *l, const struct reach *r)
{
    struct tgc *t = l->t;
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    for (int p = 0; p < l->product->ndim; p++) {
        begin[p] = uop_int(t, 0);
        size[p] = l->of_weight >> p & 1 ? l->product->dim[p] : uop_int(t, 1);
        for (int s = 0; s < l->nside; s++)
            if (l->side[s]->tap == p) {
                begin[p] = uop_int(t, r->tap[s]);
                size[p] = uop_int(t, 1);
            }
    }
    return uop_shrink(t, l->weight, begin, size);
}

/* The contribution of one combination of taps to the outputs, zeros where it reads the border. */
static struct uop *add_place(const struct layer *l, const struct reach *r)
{
    struct tgc *t = l->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    struct uop *v = tensor_binary(t, OP_MUL, part_of_x(l, r), weights_of(l, r));
    v = uop_reduce(t, OP_ADD, v, REDUCE_AXES(l->reduce->arg.i));
    bool whole = true;
    for (int p = 0; p < v->ndim; p++) {
        lo[p] = hi[p] = uop_int(t, 0);
        for (int s = 0; s < l->nside; s++)
            if (l->side[s]->out == p) {
                lo[p] = uop_int(t, r->first[s]);
                hi[p] = uop_int(t, l->side[s]->size - r->first[s] - r->n[s]);
                whole &= r->n[s] == l->side[s]->size;
            }
    }
    if (whole)
        return v;
    v = uop_new(t, OP_CONTIGUOUS, v->dtype, &v, 1, (union arg){0});
    return uop_pad(t, v, uop_constf(t, v->dtype, 0.0), lo, hi);
}

/* Whether x has a border along an axis without windows, which is read as a whole. */
static bool has_other_border(const struct layer *l)
{
    for (int a = 0; a < l->x->ndim; a++) {
        bool window = false;
        for (int i = 0; i < l->nside; i++)
            window |= l->side[i]->axis == a;
        if (!window && !(uop_is_int(l->pad[2 * a], 0) && uop_is_int(l->pad[2 * a + 1], 0)))
            return true;
    }
    return false;
}

double taps_share(const struct layer *l)
{
    double share = 1;
    int64_t first;
    if (has_other_border(l))
        return 1;
    for (int i = 0; i < l->nside; i++) {
        const struct window *w = l->side[i];
        double n = 0;
        if (w->open || l->pad[2 * w->axis]->op != OP_CONST || w->dilation == 1)
            return 1;
        for (int k = 0; k < w->taps; k++)
            n += (double)tap_reads(l, w, k, &first);
        share *= n / (double)(w->taps * w->size);
    }
    return l->nwindow == l->nside ? share : 1;
}

struct uop *taps_apart(const struct layer *l)
{
    struct uop *sum = NULL;
    struct reach r;
    int nplace = 1;
    for (int i = 0; i < l->nside; i++)
        nplace *= (int)l->side[i]->taps;
    for (int place = 0; place < nplace; place++) {
        if (!find_reach(l, place, &r))
            continue;
        struct uop *v = add_place(l, &r);
        sum = sum ? tensor_binary(l->t, OP_ADD, sum, v) : v;
    }
    return sum;
}
