/* layout.c - the order of the axes of intermediate values in memory.
 *
 * A layer's weights are packed as the loops read them, so their layout does not matter; that of the
 * layer's values does. If the axis that they share with the weights (channels, features) is
 * innermost, a tile's columns are stored contiguously, and a step of the reduction reads contiguous
 * elements: a convolution over [n, c, y, x] stores [n, y, x, c], and a 1x1 convolution is a plain
 * matrix product.
 *
 * Every layer votes for the innermost axis of the buffers that it reads and writes; buffers without
 * a vote follow those in the same kernels (additions, pooling, concats). A trial lowering of all
 * kernels shows which axes correspond: a range whose stride in a buffer is the row-major stride of
 * an axis runs along that axis.
 *
 * Only buffers that nothing but kernels access can have another order. An axis whose size only the
 * run knows never becomes the innermost one, but one outside of it may: the channels of an image.
 */
#include "passes/analysis/stationary.h"
#include "passes/plan/plan.h"
#include "passes/analysis/gathers.h"
#include "passes/analysis/nest.h"

#include <string.h>

enum { NO_AXIS = -1, MAX_ACCESS = 64 };

/* One access of a buffer in a kernel: the loads of a store, and the store itself. */
struct access { struct buffer *buffer; struct uop *offset; };
struct stored { struct access access[MAX_ACCESS]; int n; struct uop *range[64]; int nrange; };

struct layout {
    struct plan *p;
    struct stored *stored; int nstored; size_t cap_stored;
    double *weight;              /* by buffer id and axis: the votes for it as the innermost axis */
    struct gathered *gathered;  /* likewise: data-dependent reads at indices along the other axes */
    bool *is_free;               /* by buffer id */
};

static double *vote_of(struct layout *l, const struct buffer *b, int axis)
{
    return &l->weight[(size_t)b->id * MAX_RANK + (size_t)axis];
}

/* The axis of b along which r runs, where `offset` is loaded or stored; NO_AXIS: none, one whose
 * size only the run knows, or a part of one, or a window's. */
static int axis_along(struct tgc *t, const struct buffer *b, struct uop *offset, struct uop *r)
{
    int64_t size, stride;
    int a = b->ndim;
    if (!uop_const_int(r->src[0], &size))
        return NO_AXIS;
    bool fixed = index_stride(t, offset, r, &stride);
    for (int64_t step = 1; fixed && --a >= 0 && b->dim[a]->op == OP_CONST;) {
        int64_t dim = b->dim[a]->arg.i;
        if (dim > 1 && step == stride)
            return size <= dim ? a : NO_AXIS;
        step = sat_mul(step, dim);
    }
    /* outside of an axis of unknown size no stride is a constant */
    for (a = b->ndim - 1; a >= 0 && b->dim[a]->op == OP_CONST; a--)
        continue;
    struct uop *slope = !fixed && a >= 0 ? index_slope(t, offset, r) : NULL;
    struct uop *step = slope ? sym_prod(t, &b->dim[a], b->ndim - a) : NULL;
    while (slope && --a >= 0) {
        if (b->dim[a]->op == OP_CONST && b->dim[a]->arg.i > 1 && step == slope)
            return size <= b->dim[a]->arg.i ? a : NO_AXIS;
        step = sym_mul(t, step, b->dim[a]);
    }
    return NO_AXIS;
}

static void collect(struct layout *l, struct uop *store)
{
    struct tgc *t = l->p->t;
    struct stored *s = MEM_NEW(t, struct stored);
    int n;
    struct uop **order = uop_toposort(t, store->src, store->nsrc, &n);
    for (int i = -1; i < n; i++) {
        const struct uop *u = i < 0 ? store : order[i];
        if (i >= 0 && u->op == OP_RANGE && s->nrange < 64)
            s->range[s->nrange++] = order[i];
        if (i >= 0 && u->op != OP_LOAD)
            continue;
        struct buffer *b = (struct buffer *)(uintptr_t)uop_buffer_of(u->src[0]);
        if (s->n < MAX_ACCESS && l->is_free[b->id])
            s->access[s->n++] = (struct access){b, u->src[1]};
    }
    if (s->n > 0)
        VEC_PUSH(t, l->stored, l->nstored, l->cap_stored, *s);
}

static double trips_of(const struct nest *m)
{
    double n = 1;
    for (int k = m->first; k < m->store->nsrc; k++)
        n *= (double)m->store->src[k]->src[0]->vmax;
    for (int k = 1; k < m->reduce->nsrc; k++)
        n *= (double)m->reduce->src[k]->src[0]->vmax;
    return n;
}

/* Stores of the result: once for each element, lane by lane if they are strided. */
static double stores_of(const struct nest *m)
{
    double n = RATIO_LAYOUT_STRIDED, all = trips_of(m);
    for (int k = m->first; k < m->store->nsrc; k++)
        n *= (double)m->store->src[k]->src[0]->vmax;
    return n < all ? n : all;
}

/* Adds a vote for the axis of the access's buffer along which r runs; false: there is none. */
static bool vote(struct layout *l, const struct uop *access, struct uop *r, double worth)
{
    struct buffer *b = (struct buffer *)(uintptr_t)uop_buffer_of(access->src[0]);
    int axis = l->is_free[b->id] ? axis_along(l->p->t, b, access->src[1], r) : NO_AXIS;
    if (axis != NO_AXIS)
        *vote_of(l, b, axis) += worth;
    return axis != NO_AXIS;
}

/* Whether the reduction runs along groups: that matters more than anything else. */
static bool makes_groups(const struct nest *m, const struct uop *access, const struct uop *r)
{
    struct uop *values, *weights;
    return nest_sums_groups(m, &values, &weights) && access == values &&
           r->src[0]->vmax % dtype_group(weights->dtype) == 0;
}

/* A value's vote for the axis along which r, a range of the weights, runs. A range that occurs in
 * the weights' offset only in parts (r % 2 of the pixels that a transposed convolution interleaves)
 * counts less. */
static bool vote_value(struct layout *l, const struct nest *m, const struct uop *access,
                       const struct uop *weight, struct uop *r)
{
    int64_t stride;
    double share = index_stride(m->t, weight->src[1], r, &stride) ? 1 : 0.5;
    double worth = makes_groups(m, access, r) ? DOT_BYTES * trips_of(m) : trips_of(m);
    return vote(l, access, r, share * worth);
}

/* The result's; one with hardly any columns is better stored with contiguous pixels. */
static void vote_result(struct layout *l, const struct nest *m, const struct uop *weight,
                        struct uop *r)
{
    const struct buffer *b = uop_buffer_of(m->store->src[0]);
    int64_t stride;
    double share = index_stride(m->t, weight->src[1], r, &stride) ? 1 : 0.5;
    int axis = l->is_free[b->id] ? axis_along(m->t, b, m->store->src[1], r) : NO_AXIS;
    if (axis != NO_AXIS && b->dim[axis]->arg.i >= COLUMNS_MIN)
        (void)vote(l, m->store, r, share * stores_of(m));
}

/* Whether the nest reads values other than weights and indices: a row of embeddings that is
 * normalized is no layer, though it is reduced. */
static bool has_values(const struct nest *m)
{
    for (int i = 0; i < m->nload; i++)
        if (!operands_has(m->stationary, i) &&
            (dtype_is_float(m->load[i]->dtype) || dtype_is_byte(m->load[i]->dtype)))
            return true;
    return false;
}

/* Whether the weights have enough columns for vectors. */
static bool has_columns(const struct nest *m)
{
    for (int k = m->first; k < m->store->nsrc; k++)
        if (m->store->src[k]->src[0]->vmax >= COLUMNS_MIN && nest_axis(m, m->store->src[k]).weights)
            return true;
    return false;
}

/* The range that should be innermost in a layer of few channels: as in the model; but where the
 * model's innermost axis is a few channels that are mixed (the heads of an attention), the
 * pixels. */
static struct uop *innermost_of_few(const struct nest *m)
{
    struct uop *last = m->store->src[m->store->nsrc - 1];
    int64_t summed = 1;
    if (!nest_axis(m, last).weights)
        return last;
    for (int k = 1; k < m->reduce->nsrc; k++)
        summed = sat_mul(summed, m->reduce->src[k]->src[0]->vmax);
    for (int k = m->store->nsrc - 1; k >= m->first && summed < 2 * COLUMNS_MIN; k--) {
        struct uop *r = m->store->src[k];
        if (r->op == OP_RANGE && r->src[0]->vmax >= COLUMNS_MIN && !nest_axis(m, r).weights)
            return r;
    }
    return last;
}

/* A vote for the innermost axis, whose size only the run knows, to stay there. */
static void vote_open(struct layout *l, const struct uop *access, struct uop *r, double worth)
{
    const struct buffer *b = uop_buffer_of(access->src[0]);
    int64_t stride;
    if (l->is_free[b->id] && b->ndim > 0 && b->dim[b->ndim - 1]->op != OP_CONST &&
        index_stride(l->p->t, access->src[1], r, &stride) && stride == 1)
        *vote_of(l, b, b->ndim - 1) += worth;
}

/* A layer of few channels is vectorized along its pixels, or not at all. */
static void vote_pixels(struct layout *l, const struct nest *m)
{
    struct uop *r = innermost_of_few(m);
    double worth = RATIO_LAYOUT_SCALAR * trips_of(m);
    for (int i = -1; i < m->nload && r->op == OP_RANGE; i++) {
        const struct uop *access = i < 0 ? m->store : m->load[i];
        if (range_fixed_size(r) > 0)
            (void)vote(l, access, r, worth);
        else
            vote_open(l, access, r, worth);
    }
}

/* A sum of products next to other sums, as values under a softmax of their scores: its operand
 * should be contiguous along the columns. */
static void vote_columns(struct layout *l, struct uop *store)
{
    struct nest m;
    struct tgc *t = l->p->t;
    struct uop *last = store->src[store->nsrc - 1], *sum = NULL;
    int n;
    if (store->nsrc == 3 || last->op != OP_RANGE || last->src[0]->vmax < COLUMNS_MIN)
        return;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE && REDUCE_OP(order[i]->arg.i) == OP_ADD &&
            uop_depends_on(t, order[i], last))
            sum = order[i];
    if (!sum || !nest_find_sum(t, store, sum, &m))
        return;
    for (int i = 0; i < m.nload; i++)
        if (operands_has(nest_axis(&m, last).varies, i))
            (void)vote(l, m.load[i], last, RATIO_LAYOUT_SCALAR * trips_of(&m));
}

/* Whether some value is read at data-dependent indices: a resize, which follows the others, since
 * any order suits it whose innermost axis is not indexed. */
static bool gathers(const struct nest *m)
{
    for (int i = 0; i < m->nload; i++)
        if (uop_reads_memory(m->t, m->load[i]->src[1]))
            return true;
    return false;
}

/* The votes for the axes that values share with one of the weights. A window's axis votes only if
 * the value has no channels yet, neither columns (of a depthwise convolution) nor reduced. */
static void vote_weight(struct layout *l, const struct nest *m, int weight, bool *columns)
{
    const struct uop *w = m->load[weight];
    for (int k = m->first; k < m->store->nsrc; k++) {
        struct uop *r = m->store->src[k];
        if (!operands_has(nest_axis(m, r).reads, weight))
            continue;
        vote_result(l, m, w, r);
        for (int j = 0; j < m->nload; j++)
            columns[j] |= vote_value(l, m, m->load[j], w, r);
    }
    for (int tap = 0; tap < 2; tap++)                     /* windows last */
        for (int k = 1; k < m->reduce->nsrc; k++) {
            struct uop *r = m->reduce->src[k];
            struct nest_axis axis = nest_axis(m, r);
            for (int j = 0; j < m->nload && operands_has(axis.reads, weight); j++)
                if ((axis.role == ROLE_TAP) == (tap == 1) && !(tap && columns[j]) &&
                    vote_value(l, m, m->load[j], w, r))
                    columns[j] |= r->src[0]->vmax >= COLUMNS_MIN;
        }
}

/* Factors of what a device's instruction for matrices reads as rows of terms, all but halves: terms
 * are innermost, whatever else is. false: the layer is none of those. */
static bool vote_terms(struct layout *l, const struct nest *m)
{
    const struct uop *product = summed_product(m->reduce);
    enum dtype of[2];
    bool any = false;
    for (int k = 0; product && k < 2; k++)
        of[k] = product->src[k]->op == OP_CAST ? product->src[k]->src[0]->dtype
                                               : product->src[k]->dtype;
    if (!product || dtype_nbytes(of[0]) == 2 || !device_multiplies_both(m->t, of[0], of[1]))
        return false;
    for (int k = 1; k < m->reduce->nsrc; k++)
        for (int j = 0; j < m->nload && m->reduce->src[k]->src[0]->vmax >= BYTES_TERMS_LEAST; j++)
            any |= (m->load[j]->dtype == of[0] || m->load[j]->dtype == of[1]) &&
                   vote(l, m->load[j], m->reduce->src[k], DOT_BYTES * trips_of(m));
    return any;
}

/* Whether the offset walks along one axis by r and by s: of the two, neither's elements lie between
 * those of the other. */
static bool walks_by_both(struct tgc *t, struct uop *offset, const struct uop *r,
                          const struct uop *s)
{
    int64_t along, across;
    return index_stride(t, offset, r, &along) && index_stride(t, offset, s, &across) && along > 0 &&
           across > 0 && across < sat_mul(along, r->src[0]->vmax) &&
           along < sat_mul(across, s->src[0]->vmax);
}

/* The operand that windows walk over, the range of the store and that of the reduction by which
 * they do. */
struct windows { int operand; const struct uop *stored, *reduced; };

static bool find_windows(const struct nest *m, struct windows *w)
{
    for (int i = 0; i < m->nload; i++)
        for (int k = m->first; k < m->store->nsrc; k++)
            for (int j = 1; j < m->reduce->nsrc; j++) {
                *w = (struct windows){i, m->store->src[k], m->reduce->src[j]};
                if (w->stored->op == OP_RANGE && w->reduced->op == OP_RANGE &&
                    walks_by_both(m->t, m->load[i]->src[1], w->reduced, w->stored))
                    return true;
            }
    return false;
}

/* Whether r is one of the ranges by which the operand is walked over. */
static bool is_of_window(const struct nest *m, int operand, const struct uop *r)
{
    struct uop *offset = m->load[operand]->src[1];
    for (int k = m->first; k < m->store->nsrc; k++)
        for (int j = 1; j < m->reduce->nsrc; j++)
            if ((m->store->src[k] == r || m->reduce->src[j] == r) &&
                walks_by_both(m->t, offset, m->reduce->src[j], m->store->src[k]))
                return true;
    return false;
}

/* A convolution whose weights are the run's, as those in training, and its derivatives:
 *
 *      y[n, oc, oy]   = sum over ic, ky    x[n, ic, oy + ky] * w[oc, ic, ky]
 *      dw[oc, ic, ky] = sum over n, oy     x[n, ic, oy + ky] * dy[n, oc, oy]
 *
 * Vectors run along an axis of the result that the other operand alone has, oc. x is read element
 * by element: its channels, ic, should be contiguous in either. On processors alone: the tiles of
 * a device go through pixels. false: there are no windows, or too few such columns. */
static bool vote_windows(struct layout *l, const struct nest *m)
{
    struct windows w;
    bool any = false;
    if (operands_any(m->stationary) || device_has_grid(m->t) || !find_windows(m, &w))
        return false;
    bool is_layer = w.reduced->src[0]->vmax <= w.stored->src[0]->vmax;
    for (int columns = 1; columns >= 0; columns--)
        for (int k = m->first; k < m->store->nsrc && (columns || any); k++) {
            struct uop *r = m->store->src[k];
            struct nest_axis axis = nest_axis(m, r);
            bool walked = operands_has(axis.reads, w.operand);
            if (r->op != OP_RANGE || r->src[0]->vmax < COLUMNS_MIN || walked == columns ||
                (walked && is_layer) || is_of_window(m, w.operand, r))
                continue;
            for (int i = 0; i < m->nload; i++)
                if (operands_has(axis.reads, i))
                    (void)vote(l, m->load[i], r, trips_of(m));
            if (columns && is_layer)
                (void)vote(l, m->store, r, stores_of(m));
            any = true;
        }
    for (int j = 1; j < m->reduce->nsrc && any && is_layer; j++)
        if (!is_of_window(m, w.operand, m->reduce->src[j]))
            (void)vote(l, m->load[w.operand], m->reduce->src[j], trips_of(m));
    return any;
}

/* Whether the operand depends on all of the reduction's ranges. */
static bool is_summed_whole(const struct nest *m, int operand)
{
    for (int k = 1; k < m->reduce->nsrc; k++)
        if (!operands_has(nest_axis(m, m->reduce->src[k]).reads, operand))
            return false;
    return true;
}

/* Whether one buffer alone depends on the reduction: its elements are summed, scaled or not. */
static bool is_of_one(const struct nest *m)
{
    const struct buffer *one = NULL;
    for (int k = 1; k < m->reduce->nsrc; k++)
        for (int i = 0; i < m->nload; i++) {
            const struct buffer *b = uop_buffer_of(m->load[i]->src[0]);
            if (!operands_has(nest_axis(m, m->reduce->src[k]).reads, i))
                continue;
            if (one && one != b)
                return false;
            one = b;
        }
    return true;
}

/* Whether the sum is the same along a range of the store: it is computed outside of that loop, and
 * no layer. Such are: products of two tensors, as in the gradient of a batch's statistics; in a
 * training, a sum of one tensor; few terms, as in the gradient of a pool's maximum. */
static bool is_statistic(const struct layout *l, const struct nest *m)
{
    bool same = false, two = false;
    int64_t terms = 1;
    for (int k = 1; k < m->reduce->nsrc; k++)
        terms = sat_mul(terms, m->reduce->src[k]->src[0]->vmax);
    for (int k = m->first; k < m->store->nsrc; k++)
        same |= m->store->src[k]->src[0]->vmax > 1 &&
                nest_axis(m, m->store->src[k]).role == ROLE_NONE;
    for (int i = 1; i < m->nload && same; i++)
        for (int k = 0; k < i; k++)
            two |= uop_buffer_of(m->load[i]->src[0]) != uop_buffer_of(m->load[k]->src[0]) &&
                   is_summed_whole(m, i) && is_summed_whole(m, k);
    return two || (same && (terms < COLUMNS_MIN || (l->p->trains && is_of_one(m))));
}

/* A layer's votes: the axes that its values share with its weights should be innermost. */
static void vote_layer(struct layout *l, struct uop *store)
{
    struct nest m;
    bool columns[MAX_LOADS] = {false};
    struct uop *values, *weights;
    if (!nest_find(l->p->t, store, &m)) {
        vote_columns(l, store);
        return;
    }
    if (!m.contraction || !has_values(&m) || gathers(&m) || is_statistic(l, &m))
        return;
    bool by_terms = vote_terms(l, &m);
    if (!has_columns(&m)) {
        if (by_terms || vote_windows(l, &m))
            return;
        if (nest_sums_bytes(&m, &values, &weights))
            for (int k = 1; k < m.reduce->nsrc; k++)
                (void)vote_value(l, &m, values, weights, m.reduce->src[k]);
        vote_pixels(l, &m);
        return;
    }
    for (int i = 0; i < m.nload; i++)
        if (operands_has(m.stationary, i))
            vote_weight(l, &m, i, columns);
}

/* The exponentials of a softmax should run along the row, as the search for its maximum does: with
 * the heads innermost they would be scalars. */
static void vote_rows(struct layout *l, struct uop *store)
{
    struct tgc *t = l->p->t;
    struct buffer *b = (struct buffer *)(uintptr_t)uop_buffer_of(store->src[0]);
    double elements = 1;
    int n, first = store_first_range(store);
    if (!l->is_free[b->id])
        return;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int k = first; k < store->nsrc; k++)
        elements *= (double)store->src[k]->src[0]->vmax;
    for (int k = first; k < store->nsrc; k++) {
        bool power = false, largest = false;
        for (int i = 0; i < n; i++) {
            bool along = uop_depends_on(t, order[i], store->src[k]);
            power |= order[i]->op == OP_EXP && along;
            largest |= order[i]->op == OP_REDUCE && REDUCE_OP(order[i]->arg.i) == OP_MAX && !along;
        }
        int axis = power && largest && store->src[k]->op == OP_RANGE
                       ? axis_along(t, b, store->src[1], store->src[k])
                       : NO_AXIS;
        if (axis != NO_AXIS && store->src[k]->src[0]->vmax >= COLUMNS_MIN)
            *vote_of(l, b, axis) += RATIO_LAYOUT_POWER * elements;
    }
}

/* Counts the data-dependent reads of a buffer for the last axis along which a range of the store
 * runs, unless that is innermost already. */
static void count_gathers(struct layout *l, struct uop *store)
{
    struct tgc *t = l->p->t;
    int n, nof, first = store_first_range(store);
    double nresult = 1;
    struct uop **order = uop_toposort(t, store->src, store->nsrc, &n);
    for (int k = first; k < store->nsrc; k++)
        nresult *= (double)store->src[k]->src[0]->vmax;
    for (int i = 0; i < n; i++) {
        struct buffer *b = order[i]->op == OP_LOAD
                               ? (struct buffer *)(uintptr_t)uop_buffer_of(order[i]->src[0])
                               : NULL;
        int axis = NO_AXIS;
        double nread = 1;
        if (!b || !l->is_free[b->id] || b->dtype != DTYPE_F32 ||
            !uop_reads_memory(t, order[i]->src[1]))
            continue;
        for (int k = first; k < store->nsrc; k++) {
            int a = axis_along(t, b, order[i]->src[1], store->src[k]);
            axis = a > axis && b->dim[a]->arg.i >= GATHER_ROW_MIN ? a : axis;
        }
        struct uop **of = uop_toposort(t, &order[i]->src[1], 1, &nof);
        for (int k = 0; k < nof; k++)
            nread *= of[k]->op == OP_RANGE ? (double)of[k]->src[0]->vmax : 1;
        if (axis != NO_AXIS && axis != b->ndim - 1)
            gather_count(&l->gathered[(size_t)b->id * MAX_RANK + (size_t)axis], nread,
                         nread / (double)b->dim[axis]->arg.i, nresult);
    }
}

/* Votes for gathered rows to be innermost, if that is worth a transposition. */
static void vote_gathers(struct layout *l, const struct buffer *b)
{
    enum { GATHERED = 16 };                           /* the cost of an element, in products */
    double nelem = 1;
    for (int a = 0; a < b->ndim; a++)
        nelem *= dim_extent(b->dim[a]);
    for (int a = 0; a < b->ndim; a++) {
        const struct gathered *g = &l->gathered[(size_t)b->id * MAX_RANK + (size_t)a];
        if (g->nread > 0 && gather_gain(l->p->t, g, nelem) > 0)
            *vote_of(l, b, a) += GATHERED * g->nread;
    }
}

static int winner(struct layout *l, const struct buffer *b)
{
    int best = NO_AXIS;
    for (int a = b->ndim - 1; a >= 0; a--)
        if (*vote_of(l, b, a) > (best == NO_AXIS ? 0 : *vote_of(l, b, best)))
            best = a;
    return best;
}

/* Buffers without a vote follow those that are accessed along the same ranges. True: one of them
 * did. */
static bool follow(struct layout *l, const struct stored *s)
{
    struct tgc *t = l->p->t;
    bool any = false;
    for (int i = 0; i < s->n; i++) {
        int inner = winner(l, s->access[i].buffer);
        for (int k = 0; k < s->nrange && inner != NO_AXIS; k++) {
            if (axis_along(t, s->access[i].buffer, s->access[i].offset, s->range[k]) != inner)
                continue;
            for (int j = 0; j < s->n; j++) {
                struct buffer *b = s->access[j].buffer;
                int axis = winner(l, b) == NO_AXIS
                               ? axis_along(t, b, s->access[j].offset, s->range[k])
                               : NO_AXIS;
                if (axis == NO_AXIS)
                    continue;
                *vote_of(l, b, axis) = 1;
                any = true;
            }
        }
    }
    return any;
}

static bool may_be_filled(const struct buffer *b)
{
    for (int a = 0; a < b->ndim; a++)
        if (b->dim[a]->vmax < 1)
            return false;
    return b->ndim > 1;
}

/* A reduction's buffer lacks the reduced axes, of size 1. */
static int rank_stored(const struct uop *v)
{
    int n = v->ndim;
    for (int a = 0; a < v->ndim && v->op == OP_REDUCE; a++)
        n -= (int)(REDUCE_AXES(v->arg.i) >> a & 1);
    return n;
}

/* Bytes that were regrouped (runtime_products.c) are read in that order. */
static bool is_in_groups(const struct uop *v)
{
    return v->op == OP_CONTIGUOUS && v->dtype == DTYPE_I8 &&
           uop_is_int(v->dim[v->ndim - 1], DOT_BYTES);
}

/* Buffers that only a node's own segments fill and only kernels read, and that have the node's
 * rank, so that its coordinates are axes. */
static void find_free(struct layout *l)
{
    struct plan *p = l->p;
    for (int i = 0; i < p->nnode; i++) {
        const struct node *n = &p->node[i];
        enum op op = n->u->op;
        if (n->buffer && n->buffer->kind == BUFFER_TEMP && !n->in_order &&
            rank_stored(n->u) == n->buffer->ndim && op != OP_GET && op != OP_PARAM &&
            op != OP_BUFFER && may_be_filled(n->buffer) && !is_in_groups(n->u))
            l->is_free[n->buffer->id] = true;
    }
    for (int i = 0; i < p->nsegment; i++) {
        const struct segment *s = p->segment[i];
        if (s->value && (s->lead || s->scatter || rank_stored(s->value) != s->dest->ndim))
            l->is_free[s->dest->id] = false;
    }
}

/* Rows of a tile whose stride is a multiple of half a page map to the same few cache sets: pads
 * them by one line. */
static void pad_rows(struct tgc *t, struct buffer *b, int inner)
{
    const struct machine *m = machine_of(t);
    int64_t size = (int64_t)dtype_nbytes(b->dtype), nrow = 1;
    int64_t row = sat_mul(b->dim[inner]->arg.i, size);
    for (int a = 0; a < b->ndim; a++)
        nrow = sat_mul(nrow, a == inner ? 1 : b->dim[a]->vmax);
    if (row % cost_alias_nbytes(m) || nrow < m->level[LEVEL_L1].ways)
        return;
    if (!b->order.is_set)
        for (int a = 0; a < b->ndim; a++)
            b->order.axis[a] = (unsigned char)a;
    b->order.is_set = true;
    b->dim[inner] = uop_int(t, (row + m->line) / size);
}

static void set_order(struct buffer *b, int inner)
{
    int n = 0;
    for (int a = 0; a < b->ndim; a++)
        if (a != inner)
            b->order.axis[n++] = (unsigned char)a;
    b->order.axis[n] = (unsigned char)inner;
    b->order.is_set = true;
}

void plan_layout(struct plan *p)
{
    struct tgc *t = p->t;
    struct layout *l = MEM_NEW(t, struct layout);
    l->p = p;
    l->is_free = mem_array(t, (size_t)t->next_buffer, sizeof *l->is_free);
    l->weight = mem_array(t, (size_t)t->next_buffer * MAX_RANK, sizeof *l->weight);
    l->gathered = mem_array(t, (size_t)t->next_buffer * MAX_RANK, sizeof *l->gathered);
    find_free(l);
    for (int i = 0; i < p->nsegment; i++) {
        struct segment *s = p->segment[i];
        if (!s->value || s->absorbed)
            continue;
        struct uop *ast = lower_trial(p, s);
        struct mem_mark mark = scratch_mark(t);
        for (int k = 0; k < ast->nsrc; k++) {
            vote_layer(l, ast->src[k]);
            vote_rows(l, ast->src[k]);
            count_gathers(l, ast->src[k]);
            collect(l, ast->src[k]);
        }
        scratch_release(t, mark);
    }
    for (int i = 0; i < p->nnode; i++)
        if (p->node[i].buffer && l->is_free[p->node[i].buffer->id])
            vote_gathers(l, p->node[i].buffer);
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < l->nstored; i++)
            any |= follow(l, &l->stored[i]);
    }
    for (int i = 0; i < p->nnode; i++) {
        struct buffer *b = p->node[i].buffer;
        int inner = b && l->is_free[b->id] ? winner(l, b) : NO_AXIS;
        if (inner != NO_AXIS && inner != b->ndim - 1)
            set_order(b, inner);
        if (inner != NO_AXIS && b->dim[inner]->op == OP_CONST)
            pad_rows(t, b, inner);
    }
}
