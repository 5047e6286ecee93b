/* box.c - which copies to shared memory are boxes of tensors, which a copy engine can make (TMA).
 *
 *      load(x, (16*q + i)*K + 8*k + j, 16*q + i < M & 8*k + j < K, 0) at i*8 + j
 *      for i < 16, j < 8
 *
 *              coordinate   size   stride   extent
 *      axis 0  8*k          K      1        8
 *      axis 1  16*q         M      K        16
 *
 * Each condition `e < n` gives an axis of size n with coordinate e; its stride comes from e's terms
 * in the offset. A loop without a condition is an axis, too; it takes the offset's other terms that
 * are multiples of its stride. The remaining terms are axes of one element. The size of an axis
 * without a condition is what its coordinate reaches. */
#include "passes/analysis/box.h"
#include "passes/analysis/panels.h"
#include "passes/analysis/nest.h"

#include <string.h>

enum { TERMS_MAX = 24, CONDITIONS_MAX = 12 };

/* A sum of integers: terms times what they are multiplied by. */
struct sum { struct uop *term[TERMS_MAX]; int64_t times[TERMS_MAX]; int n; int64_t constant; };

struct reader {
    struct tgc *t;
    struct uop *const *loop; int nloop;
    struct sum rest;             /* terms of the offset that no axis has taken yet */
    struct box *b;
    /* for each axis: its loop; NULL: it has one element */
    struct { struct uop *own; bool bounded; } of[BULK_RANK];
    const char **why;
};

static bool refuse(struct reader *r, const char *text)
{
    *r->why = text;
    return false;
}

static bool add_term(struct sum *s, struct uop *term, int64_t times)
{
    int i = 0;
    while (i < s->n && s->term[i] != term)
        i++;
    if (i == TERMS_MAX)
        return false;
    s->term[i] = term;
    s->times[i] = i < s->n ? s->times[i] + times : times;
    s->n += i == s->n;
    return true;
}

static bool add_sum(struct sum *s, struct uop *u, int64_t times)
{
    int64_t c;
    if (u->op == OP_CONST) {
        s->constant = sat_add(s->constant, sat_mul(u->arg.i, times));
        return true;
    }
    if (u->op == OP_ADD || u->op == OP_SUB)
        return add_sum(s, u->src[0], times) &&
               add_sum(s, u->src[1], u->op == OP_SUB ? -times : times);
    if (u->op == OP_MUL && uop_const_int(u->src[1], &c))
        return add_sum(s, u->src[0], sat_mul(c, times));
    return add_term(s, u, times);
}

static int64_t times_of(const struct sum *s, const struct uop *term)
{
    for (int i = 0; i < s->n; i++)
        if (s->term[i] == term)
            return s->times[i];
    return 0;
}

/* Adds an axis; own: its loop, NULL: it has one element. */
static struct box_axis *add_axis(struct reader *r, struct uop *own, int64_t stride, int64_t extent)
{
    struct box *b = r->b;
    if (b->rank == BULK_RANK)
        return NULL;
    r->of[b->rank].own = own;
    r->of[b->rank].bounded = false;
    b->axis[b->rank] = (struct box_axis){uop_int(r->t, 0), 0, stride, extent};
    return &b->axis[b->rank++];
}

/* ---------------------------------------------------------------------------------- conditions */

/* Takes the coordinate e + constant, without the axis's own loop; its terms leave the offset. */
static bool take_coordinate(struct reader *r, const struct sum *e, struct box_axis *x,
                            const struct uop *own, int64_t size)
{
    struct uop *at = uop_int(r->t, e->constant);
    for (int i = 0; i < e->n; i++) {
        if (e->times[i] == 0)
            continue;
        if (times_of(&r->rest, e->term[i]) != sat_mul(e->times[i], x->stride))
            return refuse(r, "a condition does not bound a coordinate of an axis");
        (void)add_term(&r->rest, e->term[i], -sat_mul(e->times[i], x->stride));
        if (e->term[i] != own)
            at = sym_add(r->t, at, sym_muli(r->t, e->term[i], e->times[i]));
    }
    r->rest.constant -= sat_mul(e->constant, x->stride);
    x->coordinate = at;
    x->size = size;
    return true;
}

/* Rewrites a + x // m < n as m*a + x < m*n: rows are then counted in units of 1/m. Arises where all
 * conditions' sizes are multiples of m. */
static bool multiply_out(struct sum *s, int64_t *size)
{
    for (int i = 0; i < s->n; i++) {
        const struct uop *x = s->term[i];
        int64_t m;
        if (x->op != OP_FLOORDIV || s->times[i] != 1 || !uop_const_int(x->src[1], &m) || m < 1)
            continue;
        s->times[i] = 0;
        for (int k = 0; k < s->n; k++)
            s->times[k] = sat_mul(s->times[k], m);
        s->constant = sat_mul(s->constant, m);
        *size = sat_mul(*size, m);
        return add_sum(s, x->src[0], 1);
    }
    return true;
}

/* Takes e < size as an axis: for the loop in e, or for a coordinate of one element. */
static bool take_bound(struct reader *r, struct uop *e, int64_t size)
{
    struct sum s = {.n = 0};
    struct uop *own = NULL;
    int64_t stride = 0;
    if (!add_sum(&s, e, 1) || !multiply_out(&s, &size))
        return refuse(r, "a condition has too many terms");
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < r->nloop; k++)
            if (s.term[i] == r->loop[k] && s.times[i] != 0) {
                if (own || s.times[i] != 1)
                    return refuse(
                        r, "a condition is of several loops of a copy, or of each n-th turn");
                own = s.term[i];
            }
    for (int i = 0; i < r->b->rank && own; i++)
        if (r->of[i].own == own) {
            if (r->of[i].bounded)
                return refuse(r, "a loop of a copy has two conditions");
            r->of[i].bounded = true;
            return take_coordinate(r, &s, &r->b->axis[i], own, size);
        }
    if (own)
        return refuse(r, "a condition bounds a loop that moves no coordinate");
    for (int i = 0; i < s.n && !stride; i++)
        if (s.times[i] > 0 && times_of(&r->rest, s.term[i]) % s.times[i] == 0)
            stride = times_of(&r->rest, s.term[i]) / s.times[i];
    struct box_axis *x = stride > 0 ? add_axis(r, NULL, stride, 1) : NULL;
    if (!x)
        return refuse(
            r,
            "a condition is of no coordinate along an axis, or there are more axes than a box has");
    r->of[r->b->rank - 1].bounded = true;
    return take_coordinate(r, &s, x, NULL, size);
}

struct bound { struct uop *e; int64_t size; bool has_size; };

/* The conditions e < size and -1 < e, joined by `and`. */
static bool list_bounds(struct reader *r, struct uop *cond, struct bound *bound, int *n)
{
    struct uop *e = cond->src[1];
    int64_t c;
    bool below = cond->op == OP_LT && uop_const_int(cond->src[1], &c);
    if (cond->op == OP_AND && cond->dtype == DTYPE_BOOL)
        return list_bounds(r, cond->src[0], bound, n) && list_bounds(r, cond->src[1], bound, n);
    if (below)
        e = cond->src[0];
    else if (cond->op != OP_LT || !uop_const_int(cond->src[0], &c) || c != -1)
        return refuse(r, "a condition is on something other than a coordinate");
    int i = 0;
    while (i < *n && bound[i].e != e)
        i++;
    if (i == CONDITIONS_MAX || (below && i < *n && bound[i].has_size))
        return refuse(r, "there are more conditions than a box has");
    bound[i].size = below ? c : i < *n ? bound[i].size : sat_add(e->vmax, 1);
    bound[i].e = e;
    bound[i].has_size |= below;
    *n += i == *n;
    return true;
}

static bool take_conditions(struct reader *r, struct uop *cond)
{
    struct bound bound[CONDITIONS_MAX] = {{0}};
    int n = 0;
    if (!list_bounds(r, cond, bound, &n))
        return false;
    for (int i = 0; i < n; i++)
        if (bound[i].size < 1 || !take_bound(r, bound[i].e, bound[i].size))
            return *r->why ? false : refuse(r, "a condition that never holds");
    return true;
}

/* -------------------------------------------------------------------------------------- offset */

/* Makes axes of the copy's loops, the last one innermost. */
static bool take_loops(struct reader *r)
{
    for (int k = r->nloop - 1; k >= 0; k--) {
        int64_t extent = range_fixed_size(r->loop[k]), stride = times_of(&r->rest, r->loop[k]);
        struct uop *own = r->loop[k];
        if (extent < 1 || extent > BULK_EXTENT || stride < 1)
            return refuse(
                r, "a loop of the copy has more than 256 iterations, or moves along no axis");
        for (int i = 0; i < r->rest.n; i++)
            if (r->rest.term[i] != own && uop_depends_on(r->t, r->rest.term[i], own))
                return refuse(
                    r, "a loop of the copy is divided: its rows span several rows of pixels");
        if (!add_axis(r, own, stride, extent))
            return refuse(r, "the copy has more axes than a box");
        r->b->nelem = sat_mul(r->b->nelem, extent);
    }
    return true;
}

/* Adds the term to the unconditional axis with the largest stride that divides its coefficient. */
static bool take_term(struct reader *r, struct uop *term, int64_t times)
{
    struct box_axis *best = NULL;
    if (term->vmin < 0 || times < 0)
        return refuse(r, "an offset that may be negative");
    for (int i = 0; i < r->b->rank; i++) {
        struct box_axis *x = &r->b->axis[i];
        if (!r->of[i].bounded && times % x->stride == 0 && (!best || x->stride > best->stride))
            best = x;
    }
    if (!best)
        best = add_axis(r, NULL, times, 1);
    if (!best)
        return refuse(r, "more axes than a box has");
    best->coordinate = sym_add(r->t, best->coordinate, sym_muli(r->t, term, times / best->stride));
    return true;
}

/* Assigns the remaining terms of the offset, those with the smallest strides first. */
static bool take_rest(struct reader *r, int64_t aligned)
{
    for (;;) {
        int next = -1;
        for (int i = 0; i < r->rest.n; i++)
            if (r->rest.times[i] != 0 && (next < 0 || r->rest.times[i] < r->rest.times[next]))
                next = i;
        if (next < 0)
            break;
        if (!take_term(r, r->rest.term[next], r->rest.times[next]))
            return false;
        r->rest.times[next] = 0;
    }
    r->b->first = r->rest.constant;
    if (r->b->first % aligned && !r->of[0].bounded && r->b->first > 0) {
        struct box_axis *x = &r->b->axis[0];                /* axis 0 may begin at any coordinate */
        x->coordinate = sym_addi(r->t, x->coordinate, r->b->first % aligned);
        r->b->first -= r->b->first % aligned;
    }
    return (r->b->first >= 0 && r->b->first % aligned == 0) ||
           refuse(r, "a tensor that begins at no multiple of 16 bytes");
}

/* ----------------------------------------------------------------------------------------- box */

/* Sorts axes by stride; the copy's loops keep their order. */
static bool sort_axes(struct reader *r)
{
    struct box *b = r->b;
    for (int i = 1; i < b->rank; i++)
        for (int k = i; k > 0 && b->axis[k - 1].stride > b->axis[k].stride; k--) {
            struct box_axis x = b->axis[k];
            if (b->axis[k - 1].extent > 1 && x.extent > 1)
                return refuse(r, "the copy's rows are not rows of memory");
            b->axis[k] = b->axis[k - 1];
            b->axis[k - 1] = x;
        }
    return true;
}

static bool fits(struct reader *r, const struct buffer *of)
{
    struct box *b = r->b;
    int64_t nbytes = (int64_t)dtype_nbytes(of->dtype), nelem = 1, last = b->first;
    for (int a = 0; a < of->ndim; a++) {
        if (of->dim[a]->op != OP_CONST)
            return refuse(r, "the tensor's sizes are unknown at compile time");
        nelem = sat_mul(nelem, of->dim[a]->arg.i);
    }
    b->row = b->axis[0].extent;
    if (b->axis[0].stride != 1 || b->row * nbytes % BULK_ALIGNED)
        return refuse(r, "the copy's rows are not contiguous, or no multiple of 16 bytes");
    for (int i = 0; i < b->rank; i++) {
        const struct box_axis *x = &b->axis[i];
        if (i > 0 &&
            (x->stride * nbytes % BULK_ALIGNED || x->stride >= ((int64_t)1 << 40) / nbytes ||
             (i > 1 && x->stride % b->axis[i - 1].stride)))
            return refuse(r, "the tensor's rows are not aligned to 16 bytes");
        if (x->size > UINT32_MAX || x->coordinate->vmin < INT32_MIN ||
            x->coordinate->vmax > INT32_MAX - BULK_EXTENT)
            return refuse(r, "an axis exceeds a box's extent");
        last = sat_add(last, sat_mul(x->size - 1, x->stride));
    }
    return last < nelem || refuse(r, "an axis reaches beyond the tensor");
}

/* Whether the offset in shared memory is the position in the box, whose rows are those of the
 * memory's layout. */
static bool is_in_order(struct reader *r, struct uop *at, const struct box_to *to)
{
    const struct layout l = buffer_layout(to->memory);
    struct uop *place = uop_int(r->t, 0);
    int64_t step = 1;
    for (int k = r->nloop - 1; k >= 0; k--) {
        place = sym_add(r->t, place, sym_muli(r->t, r->loop[k], step));
        step *= range_fixed_size(r->loop[k]);
    }
    if (l.row && to->is_linear)
        place = panels_offset(r->t, &l, place);
    return (place == at && (!l.row || l.row == r->b->row)) ||
           refuse(r, "the copy's order of elements is not a box's");
}

bool box_read(struct tgc *t, struct uop *value, struct uop *at, struct uop *const *loop, int nloop,
              struct box_to to, struct box *b, const char **why)
{
    bool rounded =
        value->op == OP_CAST && value->dtype == DTYPE_TF32 && value->src[0]->dtype == DTYPE_F32;
    struct uop *load = value->op == OP_BITCAST || rounded ? value->src[0] : value;
    struct reader r = {.t = t, .loop = loop, .nloop = nloop, .b = b, .why = why};
    *b = (struct box){.nelem = 1};
    *why = NULL;
    if (load->op != OP_LOAD || load->arg.i || load->src[0]->op != OP_BUFFER ||
        (load->nsrc > 2 && !load_is_zero_elsewhere(load)))
        return refuse(&r, "the copied operand is computed, not loaded");
    const struct buffer *of = uop_buffer_of(load->src[0]);
    int64_t nbytes = (int64_t)dtype_nbytes(of->dtype), aligned = BULK_ALIGNED / nbytes;
    b->memory = load->src[0];
    if (dtype_bits(of->dtype) != 8 * (int)nbytes || dtype_nbytes(value->dtype) != (size_t)nbytes ||
        !buffer_is_aligned(t, of, aligned))
        return refuse(
            &r,
            "elements that are no bytes of the tensor's, which begins at multiples of 16 of them");
    if (!add_sum(&r.rest, load->src[1], 1))
        return refuse(&r, "an offset has too many terms");
    if (!take_loops(&r) || (load->nsrc > 2 && !take_conditions(&r, load->src[2])))
        return false;
    for (int i = 0; i < b->rank; i++)                 /* unconditional loops leave the offset */
        if (r.of[i].own && !r.of[i].bounded)
            (void)add_term(&r.rest, r.of[i].own, -b->axis[i].stride);
    if (!take_rest(&r, aligned))
        return false;
    for (int i = 0; i < b->rank; i++)
        if (!r.of[i].bounded)
            b->axis[i].size = sat_add(b->axis[i].coordinate->vmax, b->axis[i].extent);
    return sort_axes(&r) && fits(&r, of) && is_in_order(&r, at, &to);
}

/* ----------------------------------------------------------------------------- boxes that leave */

static struct uop *loaded(const struct uop *store)
{
    struct uop *value = store->src[2]->op == OP_BITCAST ? store->src[2]->src[0] : store->src[2];
    return value->op == OP_LOAD && value->nsrc == 2 ? value : NULL;
}

bool box_copies(const struct uop *store, const struct uop *memory)
{
    return loaded(store) && loaded(store)->src[0] == memory;
}

static bool is_first(const struct uop *u, const struct uop *item)
{
    return u->op == OP_LT && u->src[0] == item && uop_is_int(u->src[1], 1);
}

bool box_is_of_first(struct uop *valid, const struct uop *item)
{
    if (!valid || valid->op != OP_AND || valid->dtype != DTYPE_BOOL)
        return valid && is_first(valid, item);
    return box_is_of_first(valid->src[0], item) || box_is_of_first(valid->src[1], item);
}

/* The condition without the part that selects the thread; NULL: nothing remains. */
static struct uop *without_thread(struct tgc *t, struct uop *valid, const struct uop *item)
{
    if (!valid || is_first(valid, item))
        return NULL;
    if (valid->op != OP_AND || valid->dtype != DTYPE_BOOL)
        return valid;
    struct uop *a = without_thread(t, valid->src[0], item),
               *b = without_thread(t, valid->src[1], item);
    return !a ? b : !b ? a : sym_and(t, a, b);
}

bool box_read_store(struct tgc *t, const struct uop *store, struct uop *valid,
                    const struct uop *item, struct uop *const *loop, int nloop, bool is_linear,
                    struct box *b, const char **why)
{
    const struct uop *load = loaded(store);
    const struct buffer *to = uop_buffer_of(store->src[0]);
    struct uop *rest = without_thread(t, valid, item),
               *src[4] = {store->src[0], store->src[1], rest, uop_consti(t, to->dtype, 0)};
    struct uop *tensor = uop_intern(t, OP_LOAD, to->dtype, src, rest ? 4 : 2, (union arg){0});
    return box_read(t, tensor, load->src[1], loop, nloop,
                    (struct box_to){uop_buffer_of(load->src[0]), is_linear}, b, why);
}
