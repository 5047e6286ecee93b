/* tile_opts.c - a tile as a list of opts, and what vectors can do. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

#include <string.h>

bool tile_is_vector_dtype(enum dtype d)
{
    return d == DTYPE_F32 || d == DTYPE_I32 || dtype_is_byte(d) || dtype_is_half(d) ||
           d == DTYPE_BOOL;
}

/* Whether u is computed from coordinates alone, without sums. */
static bool is_of_places(struct tgc *t, struct uop *u)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    bool places = true;
    for (int i = 0; i < n && places; i++)
        places = order[i]->op != OP_ACC && order[i]->op != OP_REDUCE;
    scratch_release(t, mark);
    return places;
}

bool tile_compares_places(struct tgc *t, const struct uop *u, struct uop *r)
{
    int64_t along;
    return (u->op == OP_LT || u->op == OP_EQ || u->op == OP_NE) &&
           u->src[0]->dtype == DTYPE_INDEX &&
           is_of_places(t, u->src[0]) && is_of_places(t, u->src[1]) &&
           index_stride(t, sym_sub(t, u->src[1], u->src[0]), r, &along) && along >= -1 &&
           along <= 1;
}

bool tile_is_vector_op(const struct uop *u)
{
    switch (u->op) {
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_NEG:
        return u->dtype == DTYPE_F32 || u->dtype == DTYPE_I32;
    case OP_DIV: case OP_ABS: case OP_MAX: case OP_MIN: case OP_SQRT: case OP_RECIP: case OP_EXP:
    case OP_TANH: case OP_ERF: case OP_LOG: case OP_MULACC: case OP_FLOOR: case OP_CEIL:
    case OP_ROUND: case OP_TRUNC:
        return u->dtype == DTYPE_F32;
    case OP_CAST:
        if (u->src[0]->dtype == DTYPE_I32 || u->src[0]->dtype == DTYPE_BOOL)
            return u->dtype == DTYPE_F32;
        if (dtype_is_half(u->dtype) && u->src[0]->dtype == DTYPE_F32)
            return true;                              /* rounds; what is stored, or cast back: */
        if (u->src[0]->op == OP_CAST && dtype_is_half(u->src[0]->dtype))
            return u->dtype == DTYPE_F32;
        return u->src[0]->op == OP_LOAD && tile_is_vector_dtype(u->src[0]->dtype) &&
               (u->dtype == DTYPE_F32 ||
                (u->dtype == DTYPE_I32 && dtype_is_byte(u->src[0]->dtype)));
    case OP_WHERE: case OP_STACK: return u->dtype == DTYPE_F32;
    case OP_LT: case OP_EQ: case OP_NE: return u->src[0]->dtype == DTYPE_F32;
    case OP_AND: case OP_OR: case OP_XOR: case OP_NOT: return u->dtype == DTYPE_BOOL;
    default: return false;
    }
}

bool tile_stores_small(const struct uop *store, const struct uop *u)
{
    return u == store->src[2] && u->op == OP_CAST &&
           (dtype_is_byte(u->dtype) || dtype_is_half(u->dtype)) &&
           u->src[0]->dtype == DTYPE_F32;
}

bool tile_stores_vectors(const struct uop *store)
{
    enum dtype d = store->src[2]->dtype;
    return d == DTYPE_F32 || d == DTYPE_I32 || tile_stores_small(store, store->src[2]);
}

/* --------------------------------------------------------------------------- from tiles to opts */

/* How many leading ranges are batches, which stay outside the panels' loop: those along which
 * stages change, and those along which all operands change, since each of their values has its own
 * contraction. */
static int nest_batches(const struct nest *m)
{
    int n = 0;
    for (int k = m->first; k < m->store->nsrc; k++)
        if (nest_axis(m, m->store->src[k]).stages)
            n = k + 1 - m->first;
    for (int k = m->first + n; k < m->store->nsrc; k++) {
        if (nest_axis(m, m->store->src[k]).role != ROLE_BATCH)
            return n;
        n++;
    }
    return 0;
}

/* Elements that a load reads in one batch, each counted once even if windows overlap; elements that
 * a stride skips do not count. */
static double nelem_read(const struct nest *m, int load, int nbatch)
{
    const struct buffer *b = uop_buffer_of(m->load[load]->src[0]);
    double whole = 1, reads = 1;
    for (int a = 0; a < b->ndim; a++)
        whole *= (double)b->dim[a]->vmax;
    for (int k = m->first; k < m->store->nsrc; k++) {
        const struct uop *r = m->store->src[k];
        if (!operands_has(nest_axis(m, r).varies, load))
            continue;
        if (k < m->first + nbatch)
            whole /= (double)r->src[0]->vmax;
        else
            reads *= (double)r->src[0]->vmax;
    }
    for (int k = 1; k < m->reduce->nsrc; k++)
        if (operands_has(nest_axis(m, m->reduce->src[k]).varies, load))
            reads *= (double)m->reduce->src[k]->src[0]->vmax;
    return reads < whole ? reads : whole;
}

/* Whether each element serves one result, or a few adjacent ones, as a depthwise layer's values: it
 * is read once in any order. */
static bool is_read_once(const struct nest *m, int load, int nbatch)
{
    for (int k = m->first + nbatch; k < m->store->nsrc; k++)
        if (!operands_has(nest_axis(m, m->store->src[k]).varies, load))
            return false;
    return true;
}

/* Cost of reading an operand again, relative to the first time. */
static double again_share(const struct tgc *t, double nelem)
{
    const struct machine *m = machine_of(t);
    return nelem <= (double)cost_fit_nelem(m, FIT_TILE_NEAR) ? 0
           : nelem <= (double)cost_fit_nelem(m, FIT_OPERAND)    ? RATIO_OPERAND_AGAIN
                                                               : 1;
}

/* Whether the panels' loop goes outside the rows or inside: the order that rereads less, except for
 * operands that fit a cache. Ties go to the larger operand's order, or to rows if they exceed the
 * nearest cache: stores then trail loads, and the result may alias the input (overlap.c). */
enum panels tile_place_panels(const struct nest *m, const struct tile *tile)
{
    const struct uop *column = m->store->src[tile->column_axis];
    double weights = 0, values = 0, ncolumns = 1, nrows = 1;
    int nbatch = nest_batches(m);
    if (!m->contraction || !tile->vector)
        return PANELS_THERE;
    /* a sum that is invariant in some loop (a mean) stays outside it */
    for (int k = m->first; k < m->store->nsrc; k++)
        if (!uop_depends_on(m->t, m->reduce, m->store->src[k]))
            return PANELS_THERE;
    for (int i = 0; i < m->nload; i++) {
        if (is_read_once(m, i, nbatch))
            continue;
        if (operands_has(nest_axis(m, column).reads, i))
            weights += nelem_read(m, i, nbatch);
        else
            values += nelem_read(m, i, nbatch);
    }
    for (int k = m->first + nbatch; k < m->store->nsrc; k++)
        if (m->store->src[k] != column)
            nrows *= (double)m->store->src[k]->src[0]->vmax;
    ncolumns = (double)column->src[0]->vmax / (double)tile->columns;
    nrows /= (double)tile->rows;
    double outside = weights + values * (1 + (ncolumns - 1) * again_share(m->t, values));
    double inside = values + weights * (1 + (nrows - 1) * again_share(m->t, weights));
    if (outside == inside)
        return again_share(m->t, values) > 0 || weights > values ? PANELS_INSIDE : PANELS_OUTSIDE;
    return outside < inside ? PANELS_OUTSIDE : PANELS_INSIDE;
}

/* Whether only weights of the columns vary along r, as the anchors of a detector's head. */
static bool is_of_weights(const struct nest *m, const struct uop *column, const struct uop *r)
{
    struct nest_axis axis = nest_axis(m, r);
    return axis.role == ROLE_COLUMN && axis.weights &&
           operands_within(axis.varies, nest_axis(m, column).varies);
}

/* A list of opts for one nest, and where its loops are after them. */
struct plan_of_tile {
    const struct nest *m;
    struct opt like, *opt;
    int n;
    const struct uop *loop[OPTS_OF_TILE]; int nloop;       /* NULL: a new one */
};

static struct opt *push_opt(struct plan_of_tile *p, enum opt_op op, int axis)
{
    struct opt *o = &p->opt[p->n++];
    *o = p->like;
    o->op = op;
    o->axis = axis;
    return o;
}

/* Makes n iterations of a loop a lane. Returns whether anything of the loop is left. */
static bool push_lanes(struct plan_of_tile *p, int axis, int64_t size, int64_t n, enum axis kind,
                       bool column)
{
    struct opt *o = push_opt(p, OPT_LANES, axis);
    o->n = n;
    o->kind = kind;
    o->column = column;
    p->loop[axis] = NULL;
    if (size == n)
        memmove(&p->loop[axis], &p->loop[axis + 1],
                (size_t)(--p->nloop - axis) * sizeof *p->loop);
    return size != n;
}

static void push_order(struct plan_of_tile *p, int axis, int to)
{
    const struct uop *r = p->loop[axis];
    if (axis == to)
        return;
    push_opt(p, OPT_ORDER, axis)->to = to;
    memmove(&p->loop[axis], &p->loop[axis + 1],
            (size_t)(p->nloop - axis - 1) * sizeof *p->loop);
    memmove(&p->loop[to + 1], &p->loop[to], (size_t)(p->nloop - to - 1) * sizeof *p->loop);
    p->loop[to] = r;
}

/* Lists the columns' loops: over panels, over parts of a panel, or one of them. There are `n` of
 * them after that, the first in the place of the columns'. */
static int push_columns(struct plan_of_tile *p, const struct tile *tile, int axis, int64_t size)
{
    int64_t columns = tile->columns, vector = tile->vector ? tile->vector : columns;
    enum axis kind = tile->vector ? AXIS_VECTOR : AXIS_KEPT;
    int n = 0;
    if (columns > tile->panel) {                         /* padded after the last column, by no
                                                          * more vectors */
        vector = columns = tile->panel;
        kind = AXIS_LANE;
    }
    if (tile->panel > columns) {
        push_opt(p, OPT_PANEL, axis)->n = tile->panel;
        if (size > tile->panel) {
            memmove(&p->loop[axis + 1], &p->loop[axis],
                    (size_t)(p->nloop++ - axis) * sizeof *p->loop);
            p->loop[axis] = NULL;
            n++;
        }
        size = tile->panel;
    }
    n += push_lanes(p, axis + n, size, columns, columns > vector ? AXIS_LANE : kind, true);
    if (columns > vector) {
        /* lanes are last: after the loops and the rows' lanes */
        struct opt *o = push_opt(p, OPT_LANES, p->nloop + (tile->rows > 1));
        o->n = vector;
        o->kind = kind;
        o->column = true;
    }
    return n;
}

/* Moves loops over weights to the panels' loop, outside of the rows. */
static void push_loops_of_weights(struct plan_of_tile *p, const struct uop *column, int first)
{
    const struct nest *m = p->m;
    double weights = 0;
    for (int i = 0; i < m->nload; i++)
        if (operands_has(nest_axis(m, column).varies, i))
            weights += nelem_read(m, i, nest_batches(m));
    if (weights <= (double)cost_fit_nelem(machine_of(m->t), FIT_OPERAND))
        return;
    for (int k = first; k < p->nloop; k++)
        if (p->loop[k] && is_of_weights(m, column, p->loop[k]))
            push_order(p, k, first++);
}

int tile_opts(const struct nest *m, const struct tile *tile, const struct opt *like,
              struct opt *opt)
{
    struct plan_of_tile p = {.m = m, .like = *like, .opt = opt};
    int first = m->store->nsrc > 3 && m->store->src[3]->op != OP_RANGE ? 4 : 3;
    int batches = m->first - first + nest_batches(m), axis = tile->column_axis - first;
    const struct uop *column = m->store->src[tile->column_axis];
    for (int k = first; k < m->store->nsrc; k++)
        p.loop[p.nloop++] = m->store->src[k];
    if (tile->rows > 1 &&
        !push_lanes(&p, tile->row_axis - first, range_fixed_size(m->store->src[tile->row_axis]),
                    tile->rows, tile->vector ? AXIS_LANE : AXIS_KEPT, false))
        axis -= tile->row_axis < tile->column_axis;
    int n = push_columns(&p, tile, axis, range_fixed_size(column));
    if (tile->panels == PANELS_THERE)
        return p.n;
    /* their position among all loops */
    int to = tile->panels == PANELS_INSIDE ? p.nloop - n : batches - (axis < batches);
    for (int k = 0; k < n; k++)
        push_order(&p, to > axis ? axis : axis + k, to > axis ? to + n - 1 : to + k);
    if (tile->panels == PANELS_OUTSIDE)
        push_loops_of_weights(&p, column, batches);
    return p.n;
}
