/* gradient_move.c - the adjoint of a movement is the inverse movement. That of a WINDOW is a
 * window, too, and that of a contraction over windows is one sum of products.
 */
#include <string.h>

#include "frontend/gradient.h"

static void give_permuted(struct gradient *g, const struct uop *u, struct uop *d)
{
    int back[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        back[PERM_GET(u->arg.i, a)] = a;
    gradient_give(g, u->src[0], uop_permute(g->t, d, back));
}

static void give_expanded(struct gradient *g, const struct uop *u, struct uop *d)
{
    uint32_t axes = 0;
    for (int a = 0; a < u->ndim; a++)
        if (!sym_equal(g->t, u->src[0]->dim[a], u->dim[a]))
            axes |= 1u << a;
    gradient_give(g, u->src[0], axes ? gradient_sum(g, d, axes, true) : d);
}

/* src: (x, value, lo, hi, ...) */
static void give_padded(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *begin[MAX_RANK], *inside = uop_bool(g->t, true);
    const struct uop *x = u->src[0];
    for (int a = 0; a < u->ndim; a++)
        begin[a] = u->src[2 + 2 * a];
    gradient_give(g, u->src[0], uop_shrink(g->t, d, begin, x->dim));
    for (int a = 0; a < u->ndim && gradient_wants(g, u->src[1]); a++) {
        struct uop *i = tensor_iota(g->t, u->dim, u->ndim, a);
        struct uop *ok = uop_not(
            g->t, lib_binary(g->l, OP_OR, lib_binary(g->l, OP_LT, i, begin[a]),
                             uop_not(g->t, lib_binary(g->l, OP_LT, i,
                                                      sym_add(g->t, begin[a], x->dim[a])))));
        inside = lib_binary(g->l, OP_AND, inside, ok);
    }
    gradient_give(g, u->src[1], lib_where(g->l, inside, lib_scalar(g->l, d, 0), d));
}

/* src: (x, begin, size, ...) */
static void give_shrunk(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    const struct uop *x = u->src[0];
    for (int a = 0; a < u->ndim; a++) {
        lo[a] = u->src[1 + 2 * a];
        hi[a] = sym_sub(g->t, sym_sub(g->t, x->dim[a], lo[a]), u->dim[a]);
    }
    gradient_give(g, u->src[0], uop_pad(g->t, d, lib_scalar(g->l, d, 0), lo, hi));
}

/* x with `gap` zeros after each element of the axis but the last. */
static struct uop *spread(const struct gradient *g, struct uop *x, int axis, int64_t gap)
{
    struct uop *dim[MAX_RANK + 1], *lo[MAX_RANK + 1], *hi[MAX_RANK + 1], *n = x->dim[axis];
    struct uop *zero = uop_int(g->t, 0), *step = uop_int(g->t, gap + 1);
    for (int a = 0; a <= x->ndim; a++) {
        dim[a] = a <= axis ? x->dim[a] : a == axis + 1 ? uop_int(g->t, 1) : x->dim[a - 1];
        lo[a] = zero;
        hi[a] = a == axis + 1 ? uop_int(g->t, gap) : zero;
    }
    struct uop *rows = uop_reshape(g->t, x, dim, x->ndim + 1);
    rows = uop_pad(g->t, rows, lib_scalar(g->l, x, 0), lo, hi);
    ARRAY_COPY(dim, x->dim, x->ndim);
    dim[axis] = sym_mul(g->t, n, step);
    struct uop *flat = uop_reshape(g->t, rows, dim, x->ndim);
    return lib_narrow(g->l, flat, axis, zero, sym_sub(g->t, dim[axis], uop_int(g->t, gap)));
}

/* The elements of x with equal coordinates of two adjacent axes of size n, which become one axis.
 * They are n + 1 apart once the two are merged. */
static struct uop *diagonal(const struct gradient *g, struct uop *x, int axis)
{
    struct uop *dim[MAX_RANK], *lo[MAX_RANK], *hi[MAX_RANK], *n = x->dim[axis];
    struct uop *zero = uop_int(g->t, 0), *one = uop_int(g->t, 1);
    int ndim = x->ndim;
    for (int a = 0; a < ndim - 1; a++) {
        dim[a] = a < axis ? x->dim[a] : a == axis ? sym_mul(g->t, n, n) : x->dim[a + 1];
        lo[a] = zero;
        hi[a] = a == axis ? n : zero;
    }
    x = uop_reshape(g->t, x, dim, ndim - 1);
    x = uop_pad(g->t, x, lib_scalar(g->l, x, 0), lo, hi);
    for (int a = ndim - 1; a > axis + 1; a--)
        dim[a] = dim[a - 1];
    dim[axis] = n;
    dim[axis + 1] = sym_add(g->t, n, one);
    x = lib_narrow(g->l, uop_reshape(g->t, x, dim, ndim), axis + 1, zero, one);
    return lib_squeeze(g->l, x, 1u << (axis + 1));
}

/* The axis of a RESHAPE's source that is its axis: of the same size, with as much before it; -1:
 * none. */
static int axis_before_reshape(const struct gradient *g, const struct uop *x, int axis)
{
    const struct uop *from = x->src[0];
    struct uop *before = sym_prod(g->t, x->dim, axis), *there = uop_int(g->t, 1);
    for (int a = 0; a < from->ndim; there = sym_mul(g->t, there, from->dim[a++]))
        if (sym_equal(g->t, before, there) && sym_equal(g->t, from->dim[a], x->dim[axis]))
            return a;
    return -1;
}

/* The axis of a movement's source along which its axis runs; -1: along none, or several. */
static int source_axis(const struct gradient *g, const struct uop *x, int axis)
{
    return x->op == OP_RESHAPE                                  ? axis_before_reshape(g, x, axis)
           : x->op == OP_PERMUTE                                ? PERM_GET(x->arg.i, axis)
           : x->op == OP_WINDOW && axis > WINDOW_AXIS(x->arg.i) ? axis - 1
                                                                : axis;
}

/* Is the axis as long as that of its source? */
static bool is_as_long(const struct gradient *g, const struct uop *x, int axis)
{
    return sym_equal(g->t, x->src[0]->dim[axis], x->dim[axis]);
}

/* The sources of which x is a function at each place: *first and as many as are returned; 0: x is
 * taken as it is. */
static int sources_of_axes(const struct uop *x, int *first)
{
    *first = x->op == OP_INDEX;
    if (op_is_elementwise(x->op) || x->op == OP_INDEX)
        return x->nsrc - *first;
    bool one = x->op == OP_EXPAND || x->op == OP_PERMUTE || x->op == OP_FLIP ||
               x->op == OP_RESHAPE || x->op == OP_SHRINK || x->op == OP_CONTIGUOUS ||
               x->op == OP_PAD || x->op == OP_WINDOW || x->op == OP_REDUCE;
    return one;
}

/* Whether the elements change along the axis though the source's do not: by padding. */
static bool is_padded(const struct uop *x, int a)
{
    return x->op == OP_PAD &&
           !(uop_is_int(x->src[2 + 2 * a], 0) && uop_is_int(x->src[3 + 2 * a], 0));
}

/* Whether x's elements depend on their coordinate of the axis, given the axes on which those of its
 * sources depend. */
static bool depends_on(const struct gradient *g, const struct uop *x, int axis, uint32_t axes)
{
    int from = source_axis(g, x, axis);
    if (uop_is_int(x->dim[axis], 1))
        return false;
    return is_padded(x, axis) || from < 0 ||
           (axes >> from & 1 && !(x->op == OP_EXPAND && !is_as_long(g, x, axis)));
}

static uint32_t axes_from_sources(const struct gradient *g, const struct uop *x)
{
    int first, n = sources_of_axes(x, &first);
    uint32_t axes = 0, mask = 0;
    for (int k = first; k < first + n; k++)
        axes |= (uint32_t)(uintptr_t)map_get(&g->axes, x->src[k]) >> 1;
    for (int a = 0; a < x->ndim; a++)
        if (depends_on(g, x, a, n ? axes : lib_all_axes(x)))
            mask |= 1u << a;
    return mask;
}

uint32_t gradient_axes_of(struct gradient *g, struct uop *x)
{
    struct uop **todo = NULL;
    int n = 0, first;
    size_t cap = 0;
    VEC_PUSH(g->t, todo, n, cap, x);
    while (n) {
        struct uop *u = todo[n - 1];
        int before = n, count = sources_of_axes(u, &first);
        for (int k = first; k < first + count && !map_get(&g->axes, u); k++)
            if (!map_get(&g->axes, u->src[k]))
                VEC_PUSH(g->t, todo, n, cap, u->src[k]);
        if (n > before)
            continue;
        n--;
        map_set(&g->axes, u, (void *)(uintptr_t)(axes_from_sources(g, u) << 1 | 1));
    }
    return (uint32_t)(uintptr_t)map_get(&g->axes, x) >> 1;
}

static struct uop *move_terms(const struct gradient *g, struct uop *x, struct uop *const *chain,
                              int nchain, const struct uop *sum)
{
    struct uop *dim[MAX_RANK], *size[MAX_RANK];
    uint32_t axes = REDUCE_AXES(sum->arg.i);
    int perm[MAX_RANK], ndim = 0, nsum = 0;
    for (int a = 0; a < sum->ndim; a++)
        if (!(axes >> a & 1))
            perm[ndim++] = a;
    for (int a = 0; a < sum->ndim; a++)
        if (axes >> a & 1)
            perm[ndim + nsum] = a, size[nsum++] = sum->src[0]->dim[a];
    x = uop_permute(g->t, x, perm);
    for (int k = nchain; k >= 0; k--) { /* the REDUCE itself keeps axes of size 1 */
        const struct uop *u = k == nchain ? sum : chain[k];
        ARRAY_COPY(dim, u->dim, u->ndim);
        ARRAY_COPY(dim + u->ndim, size, nsum);
        for (int a = 0; a < u->ndim + nsum; a++)
            perm[a] = a < u->ndim && u->op == OP_PERMUTE ? PERM_GET(u->arg.i, a) : a;
        x = u->op == OP_PERMUTE ? uop_permute(g->t, x, perm)
                                : uop_reshape(g->t, x, dim, u->ndim + nsum);
    }
    return x;
}

/* The REDUCE by ADD below d's reshapes and permutations, which are noted; NULL: there is none, or
 * its axes and theirs are too many. */
enum { CHAIN_MOST = 8 };
static struct uop *sum_below(struct uop *d, struct uop **chain, int *nchain, int *nsum)
{
    struct uop *x = d;
    int most = 0;
    *nchain = *nsum = 0;
    for (; (x->op == OP_RESHAPE || x->op == OP_PERMUTE) && *nchain < CHAIN_MOST; x = x->src[0]) {
        most = x->ndim > most ? x->ndim : most;
        chain[(*nchain)++] = x;
    }
    if (x->op != OP_REDUCE || REDUCE_OP(x->arg.i) != OP_ADD)
        return NULL;
    for (int a = 0; a < x->ndim; a++)
        *nsum += (int)(REDUCE_AXES(x->arg.i) >> a & 1);
    most = x->ndim > most ? x->ndim : most;
    return most + *nsum < MAX_RANK ? x : NULL;
}

struct gradient_sum gradient_sum_of(const struct gradient *g, struct uop *d)
{
    struct uop *chain[CHAIN_MOST];
    int nchain, nsum;
    struct uop *x = sum_below(d, chain, &nchain, &nsum);
    if (!x || x->src[0]->op != OP_MUL)
        return (struct gradient_sum){d, NULL, 0};
    struct uop *a = x->src[0]->src[0], *b = x->src[0]->src[1];
    if (a->ndim != x->ndim || b->ndim != x->ndim)
        return (struct gradient_sum){d, NULL, 0};
    a = move_terms(g, a, chain, nchain, x);
    return (struct gradient_sum){a, move_terms(g, b, chain, nchain, x), nsum};
}

/* The same without factors, where a window of `taps` terms of each of the sum's is summed anew: if
 * few are, a single sum has no intermediate results. */
static struct gradient_sum few_terms_of(const struct gradient *g, struct uop *d, int64_t taps)
{
    enum { FEW = 9 };
    struct uop *chain[CHAIN_MOST];
    int nchain, nsum;
    struct uop *x = sum_below(d, chain, &nchain, &nsum);
    for (int a = 0; x && a < x->ndim; a++)
        if (REDUCE_AXES(x->arg.i) >> a & 1)
            taps = sat_mul(taps, x->src[0]->dim[a]->vmax);
    if (!x || taps > FEW || x->src[0]->dtype != d->dtype)
        return (struct gradient_sum){d, NULL, 0};
    return (struct gradient_sum){move_terms(g, x->src[0], chain, nchain, x), NULL, nsum};
}

/* The axis of x's source along which x's runs unchanged, so that padding may be done there; -1:
 * none. */
static int axis_below(const struct gradient *g, const struct uop *x, int axis)
{
    switch (x->op) {
    case OP_PERMUTE:
    case OP_RESHAPE: return source_axis(g, x, axis);
    case OP_FLIP: return x->arg.i >> axis & 1 ? -1 : axis;
    case OP_SHRINK:
    case OP_EXPAND: return is_as_long(g, x, axis) ? axis : -1;
    case OP_WINDOW: {
        int at = WINDOW_AXIS(x->arg.i);
        return axis == at || axis == at + 1 ? -1 : source_axis(g, x, axis);
    }
    default: return -1;
    }
}

/* x again, on a source that is longer along the axis. */
static struct uop *again_above(const struct gradient *g, const struct uop *x, struct uop *from,
                               int axis, struct uop *size)
{
    struct uop *dim[MAX_RANK], *begin[MAX_RANK];
    int perm[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        dim[a] = a == axis ? size : x->dim[a];
        begin[a] = x->op == OP_SHRINK ? x->src[1 + 2 * a] : NULL;
        perm[a] = x->op == OP_PERMUTE ? PERM_GET(x->arg.i, a) : a;
    }
    switch (x->op) {
    case OP_PERMUTE: return uop_permute(g->t, from, perm);
    case OP_RESHAPE: return uop_reshape(g->t, from, dim, x->ndim);
    case OP_FLIP: return uop_flip(g->t, from, (uint32_t)x->arg.i);
    case OP_SHRINK: return uop_shrink(g->t, from, begin, dim);
    case OP_EXPAND: return uop_expand(g->t, from, dim);
    default:
        return uop_window(g->t, from, WINDOW_AXIS(x->arg.i), x->dim[WINDOW_AXIS(x->arg.i)],
                          x->dim[WINDOW_AXIS(x->arg.i) + 1], WINDOW_STRIDE(x->arg.i),
                          WINDOW_DILATION(x->arg.i));
    }
}

/* x with `gap` zeros after each element of the axis but the last, `before` zeros before them, and
 * as many behind as make n elements. All of them are below windows, expansions and other movements:
 * of one tensor that is as small as a convolution's padded input. */
static struct uop *padded(const struct gradient *g, struct uop *x, int axis, int64_t gap,
                          struct uop *before, struct uop *n)
{
    enum { MOST = 32 };
    struct uop *above[MOST], *lo[MAX_RANK], *hi[MAX_RANK];
    int at[MOST], nabove = 0, below;
    while (nabove < MOST && (below = axis_below(g, x, axis)) >= 0) {
        above[nabove] = x;
        at[nabove++] = axis;
        x = x->src[0];
        axis = below;
    }
    if (gap)
        x = spread(g, x, axis, gap);
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(g->t, 0);
    lo[axis] = before;
    hi[axis] = sym_sub(g->t, sym_sub(g->t, n, before), x->dim[axis]);
    x = uop_pad(g->t, x, lib_scalar(g->l, x, 0), lo, hi);
    while (nabove-- > 0)
        x = again_above(g, above[nabove], x, at[nabove], n);
    return x;
}

/* Windows over n elements of an axis: taps k of window o at i = stride * o + dilation * k. */
struct windows { int axis; struct uop *n, *taps; int64_t stride, dilation; };

/* d[.. o ..] -> [.. i, k ..], the element of d at which tap k of window o = (i - dilation * k) /
 * stride lies, 0 where there is none. The taps run backwards, from n - 1 to 0. */
static struct uop *positions(const struct gradient *g, struct uop *d, const struct windows *w)
{
    struct tgc *t = g->t;
    struct uop *before =
        sym_mul(t, sym_sub(t, w->taps, uop_int(t, 1)), uop_int(t, w->dilation));
    d = padded(g, d, w->axis, w->stride - 1, before, sym_add(t, w->n, before));
    return uop_window(t, d, w->axis, w->n, w->taps, 1, w->dilation);
}

/* The adjoint of windows side by side, d[.. o, k ..]: each element is in one window, or past the
 * last one, where it is 0. */
static struct uop *side_by_side(const struct gradient *g, struct uop *d, const struct uop *u,
                                int axis)
{
    struct uop *dim[MAX_RANK], *lo[MAX_RANK], *hi[MAX_RANK];
    const struct uop *x = u->src[0];
    for (int a = 0; a < x->ndim; a++) {
        dim[a] = a == axis ? sym_mul(g->t, d->dim[a], d->dim[a + 1]) : x->dim[a];
        lo[a] = hi[a] = uop_int(g->t, 0);
    }
    hi[axis] = sym_sub(g->t, x->dim[axis], dim[axis]);
    d = uop_reshape(g->t, d, dim, x->ndim);
    return uop_pad(g->t, d, lib_scalar(g->l, d, 0), lo, hi);
}

static bool are_side_by_side(const struct uop *u, int axis)
{
    return WINDOW_DILATION(u->arg.i) == 1 &&
           uop_is_int(u->dim[axis + 1], WINDOW_STRIDE(u->arg.i));
}

/* Whether a depends on the windows' place, not on their tap, and b on the tap alone. */
static bool are_of_place_and_tap(struct gradient *g, struct uop *a, struct uop *b, int axis)
{
    return !(gradient_axes_of(g, b) >> axis & 1) && !(gradient_axes_of(g, a) >> (axis + 1) & 1);
}

/* Windows of stride s over x are windows of stride 1 over the rows of x'[q, r] = x[s * q + r],
 *
 *      x[s * o + k]  =  x'[o + m, r],   k = s * m + r,   m < height, r < width
 *
 * so an element of x has as many terms as there are m, instead of one for each k of which most are
 * zeros. axis: of q; where x' is x, height is the number of taps, and there is no axis r. */
struct rows { int64_t stride, height, width, taps; };

static bool find_rows(const struct gradient *g, const struct uop *u, struct rows *r)
{
    int axis = WINDOW_AXIS(u->arg.i);
    int64_t n;
    *r = (struct rows){.stride = WINDOW_STRIDE(u->arg.i)};
    if (r->stride == 1 || WINDOW_DILATION(u->arg.i) != 1 ||
        !uop_const_int(u->dim[axis + 1], &r->taps) ||
        !uop_is_int(sym_mod(g->t, u->src[0]->dim[axis], uop_int(g->t, r->stride)), 0))
        return false;
    n = r->taps;
    r->width = n < r->stride ? n : r->stride;
    r->height = (n + r->width - 1) / r->width;
    return true;
}

/* x[.. k ..] -> [.. m, r ..], with zeros for taps that there are not. */
static struct uop *split_taps(const struct gradient *g, struct uop *x, int axis,
                              const struct rows *r)
{
    struct uop *dim[MAX_RANK];
    bool is_same = uop_is_int(x->dim[axis], 1) && r->taps > 1;    /* for all taps */
    for (int a = 0; a < x->ndim; a++)
        dim[a < axis ? a : a + 1] = x->dim[a];
    dim[axis] = uop_int(g->t, is_same ? 1 : r->height);
    dim[axis + 1] = uop_int(g->t, is_same ? 1 : r->width);
    if (!is_same && r->height * r->width > r->taps)
        x = padded(g, x, axis, 0, uop_int(g->t, 0), uop_int(g->t, r->height * r->width));
    return uop_reshape(g->t, x, dim, x->ndim + 1);
}

/* d[.. q, r ..] -> [.. i ..], with zeros where r is past the taps. */
static struct uop *join_rows(const struct gradient *g, struct uop *d, int axis,
                             const struct rows *r)
{
    struct uop *dim[MAX_RANK], *lo[MAX_RANK], *hi[MAX_RANK];
    for (int a = 0; a < d->ndim; a++) {
        lo[a] = hi[a] = uop_int(g->t, 0);
        dim[a <= axis ? a : a - 1] = d->dim[a];
    }
    hi[axis + 1] = uop_int(g->t, r->stride - r->width);
    dim[axis] = sym_mul(g->t, d->dim[axis], uop_int(g->t, r->stride));
    d = uop_pad(g->t, d, lib_scalar(g->l, d, 0), lo, hi);
    return uop_reshape(g->t, d, dim, d->ndim - 1);
}

/* x[.. k ..] with the taps backwards, split where there are rows. */
static struct uop *backwards(const struct gradient *g, struct uop *x, int axis,
                             const struct rows *r)
{
    return uop_flip(g->t, r ? split_taps(g, x, axis, r) : x, 1u << axis);
}

/* Element i of x is in the windows o whose tap k is at i = stride * o + dilation * k, so its
 * adjoint is a sum over k. Where the adjoint is a sum of products of which one factor does not
 * depend on k and the other does not on o, as that of a convolution, it is a transposed
 * convolution: one sum of products, too. Where windows lie side by side, k has one value. */
static void give_window(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct tgc *t = g->t;
    struct uop *x = u->src[0], *zero = uop_int(t, 0), *one = uop_int(t, 1), *terms;
    int axis = WINDOW_AXIS(u->arg.i), ndim = u->ndim;
    struct windows w = {axis, x->dim[axis], u->dim[axis + 1], WINDOW_STRIDE(u->arg.i),
                        WINDOW_DILATION(u->arg.i)};
    struct rows rows, *r = NULL;
    struct gradient_sum s = gradient_sum_of(g, d);
    bool is_product = s.b && (are_of_place_and_tap(g, s.a, s.b, axis) ||
                              are_of_place_and_tap(g, s.b, s.a, axis));
    if (!is_product && are_side_by_side(u, axis)) {
        gradient_give(g, x, side_by_side(g, d, u, axis));
        return;
    }
    bool splits = find_rows(g, u, &rows);
    if (!is_product)
        s = few_terms_of(g, d, splits ? rows.height : w.taps->vmax);
    if (splits && ndim + s.nsum + 1 < MAX_RANK) {
        r = &rows;
        w = (struct windows){axis, sym_div(t, w.n, uop_int(t, r->stride)),
                             uop_int(t, r->height), 1, 1};
    }
    if (is_product) {
        bool is_first = are_of_place_and_tap(g, s.a, s.b, axis);
        struct uop *a = lib_narrow(g->l, is_first ? s.a : s.b, axis + 1, zero, one);
        struct uop *b = lib_narrow(g->l, is_first ? s.b : s.a, axis, zero, one);
        b = backwards(g, b, axis + 1, r);
        a = positions(g, lib_squeeze(g->l, a, 1u << (axis + 1)), &w);
        if (r)
            a = lib_unsqueeze(g->l, a, (int64_t[]){axis + 2}, 1);
        struct uop *dim[MAX_RANK];
        for (int k = 0; k < a->ndim; k++)
            dim[k] = r && k == axis + 2 ? b->dim[k] : a->dim[k];
        terms = lib_mul(g->l, uop_expand(t, a, dim), uop_expand(t, b, dim));
    } else {
        terms = diagonal(g, positions(g, backwards(g, s.a, axis + 1, r), &w), axis + 1);
    }
    uint32_t summed = ((1u << s.nsum) - 1) << (terms->ndim - s.nsum) | 1u << (axis + 1);
    d = gradient_sum(g, terms, summed, false);
    gradient_give(g, x, r ? join_rows(g, d, axis, r) : d);
}

static void give_joined(struct gradient *g, const struct uop *u, struct uop *d)
{
    int axis = (int)u->arg.i;
    struct uop *at = uop_int(g->t, 0);
    for (int k = 0; k < u->nsrc; k++) {
        gradient_give(g, u->src[k], lib_narrow(g->l, d, axis, at, u->src[k]->dim[axis]));
        at = sym_add(g->t, at, u->src[k]->dim[axis]);
    }
}

bool gradient_moved(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *from = u->src[0];
    const struct uop *x = from;
    switch (u->op) {
    case OP_RESHAPE: gradient_give(g, from, uop_reshape(g->t, d, x->dim, x->ndim)); return true;
    case OP_PERMUTE: give_permuted(g, u, d); return true;
    case OP_EXPAND: give_expanded(g, u, d); return true;
    case OP_PAD: give_padded(g, u, d); return true;
    case OP_SHRINK: give_shrunk(g, u, d); return true;
    case OP_FLIP: gradient_give(g, from, uop_flip(g->t, d, (uint32_t)u->arg.i)); return true;
    case OP_WINDOW: give_window(g, u, d); return true;
    case OP_CONCAT: give_joined(g, u, d); return true;
    default: return false;
    }
}
