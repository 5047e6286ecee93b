/* tile.c - a tile as a list of opts, and PACK, which stores a weight in the order in which the
 * tiles read it (a storage view), so that its columns are contiguous whatever the model's layout
 * is. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

#include <string.h>

bool tile_is_vector_dtype(enum dtype d)
{
    return d == DTYPE_F32 || d == DTYPE_I32 || d == DTYPE_I8 || d == DTYPE_U8 || d == DTYPE_BF16 ||
           d == DTYPE_F16 || d == DTYPE_BOOL;
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
        if (u->dtype == DTYPE_F16 && u->src[0]->dtype == DTYPE_F32)
            return true;                              /* rounds; what is stored, or cast back: */
        if (u->src[0]->op == OP_CAST && u->src[0]->dtype == DTYPE_F16)
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
           (dtype_is_byte(u->dtype) || u->dtype == DTYPE_F16 || u->dtype == DTYPE_BF16) &&
           u->src[0]->dtype == DTYPE_F32;
}

bool tile_stores_vectors(const struct uop *store)
{
    enum dtype d = store->src[2]->dtype;
    return d == DTYPE_F32 || d == DTYPE_I32 || tile_stores_small(store, store->src[2]);
}

/* -------------------------------------------------------------------------------------- packing */

/* The ranges of which a load's offset is a sum, in loop order within a panel: the store's (with the
 * bands'), the reduction's, the part of the panel, the lanes, a group of bytes. */
static int ranges_of(const struct nest *m, struct uop **range)
{
    int n = 0, first = m->store->nsrc > 3 && m->store->src[3]->op != OP_RANGE ? 4 : 3;
    for (int lane = 0; lane < 2; lane++) {
        for (int k = first; k < m->store->nsrc; k++)
            if (range_is_lane(m->store->src[k]) == (lane == 1) &&
                m->store->src[k] != m->part)
                range[n++] = m->store->src[k];
        for (int k = 1; m->reduce && k < m->reduce->nsrc - m->bytes && !lane; k++)
            range[n++] = m->reduce->src[k];
        if (m->part && !lane)
            range[n++] = m->part;
    }
    if (m->bytes)
        range[n++] = m->reduce->src[m->reduce->nsrc - 1];
    return n;
}

/* Merges adjacent axes where one suffices, so that equal orders are equal views. */
static void merge_axes(struct tgc *t, struct view *v)
{
    int n = 0;
    for (int a = 0; a < v->ndim; a++) {
        if (n > 0 && v->stride[n - 1] == sym_mul(t, v->dim[a], v->stride[a])) {
            v->dim[n - 1] = sym_mul(t, v->dim[n - 1], v->dim[a]);
            v->stride[n - 1] = v->stride[a];
            continue;
        }
        v->dim[n] = v->dim[a];
        v->stride[n++] = v->stride[a];
    }
    for (int a = n; a < v->ndim; a++)
        v->dim[a] = v->stride[a] = NULL;
    v->ndim = n;
}

/* A weight's load as a view of its data: one axis for each range on which it depends. `offset`
 * becomes the offset in the packed order. false: the offset is not affine, or elements would be
 * stored twice. */
static bool storage_view(const struct nest *m, const struct uop *load, struct view *v,
                         struct uop **offset)
{
    struct tgc *t = m->t;
    struct uop *range[64], *at[MAX_RANK], *rest = load->src[1];
    const struct buffer *b = uop_buffer_of(load->src[0]);
    int64_t stride, n, nelem = 1, total = 1;
    int nreduce = m->reduce ? m->reduce->nsrc : 0;
    if (!b || !buffer_is_stationary(b) || b->storage || load->nsrc > 2 ||
        m->store->nsrc + nreduce > 64)
        return false;
    *v = (struct view){0};
    int nrange = ranges_of(m, range);
    for (int k = 0; k < nrange; k++) {
        if (!index_stride(t, load->src[1], range[k], &stride) ||
            (stride && (!uop_const_int(range[k]->src[0], &n) || v->ndim == MAX_RANK)))
            return false;
        if (stride == 0)
            continue;
        rest = sym_sub(t, rest, sym_muli(t, range[k], stride));
        at[v->ndim] = range[k];
        v->dim[v->ndim] = uop_int(t, n);
        v->stride[v->ndim++] = uop_int(t, stride);
        total = sat_mul(total, n);
    }
    for (int a = 0; a < b->ndim; a++)
        nelem = uop_const_int(b->dim[a], &n) ? sat_mul(nelem, n) : -1;
    /* the weight, or the part of it that the nest reads */
    if (rest->op != OP_CONST || rest->arg.i < 0 || total > nelem)
        return false;
    v->offset = rest;
    *offset = uop_int(t, 0);
    for (int a = 0; a < v->ndim; a++)
        *offset = sym_add(t, sym_mul(t, *offset, v->dim[a]), at[a]);
    merge_axes(t, v);
    return true;
}

static bool is_read_elsewhere(const struct nest *m, const struct uop *load)
{
    int n;
    struct uop *root = m->store;
    struct uop **order = uop_toposort(m->t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && order[i] != load && order[i]->src[0] == load->src[0])
            return true;
    return false;
}

bool nest_is_packable(const struct nest *m, const struct uop *load)
{
    struct view v;
    struct uop *offset;
    /* floats that cannot be packed are loaded one by one */
    return storage_view(m, load, &v, &offset) &&
           (load->dtype == DTYPE_F32 || (!m->staged && !is_read_elsewhere(m, load)));
}

static bool views_equal(const struct view *a, const struct view *b)
{
    return a->ndim == b->ndim && a->offset == b->offset &&
           !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) &&
           !memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof *a->stride);
}

/* The kernel's packed copy of a weight in this order, possibly another variant's. */
static struct buffer *packed_copy(struct tgc *t, struct kernel *k, const struct buffer *from,
                                  const struct view *v)
{
    for (int i = 0; i < k->npacked; i++)
        if (k->packed[i]->data == from->data && views_equal(k->packed[i]->storage, v))
            return k->packed[i];
    struct buffer *b = buffer_new(t, BUFFER_WEIGHT, from->dtype, v->dim, v->ndim, from->name);
    b->data = from->data;
    b->nbytes = dtype_nbytes(from->dtype);
    for (int a = 0; a < v->ndim; a++)
        b->nbytes *= (size_t)v->dim[a]->arg.i;       /* at most the weight's own size */
    b->storage = mem_copy(t, v, sizeof *v);
    VEC_PUSH(t, k->packed, k->npacked, k->cap_packed, b);
    return b;
}

struct uop *tile_pack(struct tgc *t, struct kernel *k, struct uop *store)
{
    struct nest m;
    struct view view;
    struct uop *offset;
    if (!nest_find(t, store, &m))
        return store;
    for (int i = m.first; i < store->nsrc; i++)
        if (range_is(store->src[i], AXIS_PART))
            m.part = store->src[i];
    for (int i = 0; i < m.nload; i++) {
        const struct uop *load = m.load[i];
        if (is_read_elsewhere(&m, load) || !storage_view(&m, load, &view, &offset) ||
            offset == load->src[1])
            continue;
        struct buffer *b = packed_copy(t, k, uop_buffer_of(load->src[0]), &view);
        struct uop *src[2] = {uop_buffer(t, b), offset};
        struct uop *packed = uop_intern(t, OP_LOAD, load->dtype, src, 2, (union arg){0});
        store = uop_substitute(t, store, m.load[i], packed);
    }
    return store;
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

/* Elements that a load reads in one batch: each counts once, even if windows overlap; elements that
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

/* Whether each element serves one result, or a few neighbours, as a depthwise layer's values: it is
 * read once in any order. */
static bool is_read_once(const struct nest *m, int load, int nbatch)
{
    for (int k = m->first + nbatch; k < m->store->nsrc; k++)
        if (!operands_has(nest_axis(m, m->store->src[k]).varies, load))
            return false;
    return true;
}

/* The share of an operand's first cost that reading it again costs. */
static double again_share(const struct tgc *t, double nelem)
{
    const struct machine *m = machine_of(t);
    return nelem <= (double)cost_fit_nelem(m, FIT_TILE_NEAR) ? 0
           : nelem <= (double)cost_fit_nelem(m, FIT_OPERAND)    ? RATIO_OPERAND_AGAIN
                                                               : 1;
}

/* Whether the panels' loop goes outside the rows or inside: the order that rereads less, except for
 * operands that fit a cache. */
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
    double outside = weights + ncolumns * values * again_share(m->t, values);
    double inside = values + nrows * weights * again_share(m->t, weights);
    return outside <= inside ? PANELS_OUTSIDE : PANELS_INSIDE;
}

/* Whether only weights of the columns vary along r, as the anchors of a detector's head. */
static bool is_of_weights(const struct nest *m, const struct uop *column, const struct uop *r)
{
    struct nest_axis axis = nest_axis(m, r);
    return axis.role == ROLE_COLUMN && axis.weights &&
           operands_within(axis.varies, nest_axis(m, column).varies);
}

/* A list of opts for one nest, and which of its loops are where then. */
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

/* n turns of a loop become a lane; whether anything of the loop is left. */
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

/* The columns' loops: over panels, over parts of a panel, or one of them; there are `n` of them
 * now, the first where the columns' was. */
static int push_columns(struct plan_of_tile *p, const struct tile *tile, int axis, int64_t size)
{
    int64_t columns = tile->columns, vector = tile->vector ? tile->vector : columns;
    enum axis kind = tile->vector ? AXIS_VECTOR : AXIS_KEPT;
    int n = 0;
    if (columns > tile->panel) {                         /* filled behind, with no more of them */
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
        /* the lanes stand last: behind the loops, the rows' */
        struct opt *o = push_opt(p, OPT_LANES, p->nloop + (tile->rows > 1));
        o->n = vector;
        o->kind = kind;
        o->column = true;
    }
    return n;
}

/* Loops over weights stand where the panels' loop does, outside of the rows. */
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
        !push_lanes(&p, tile->row_axis - first, m->store->src[tile->row_axis]->src[0]->arg.i,
                    tile->rows, tile->vector ? AXIS_LANE : AXIS_KEPT, false))
        axis -= tile->row_axis < tile->column_axis;
    int n = push_columns(&p, tile, axis, column->src[0]->arg.i);
    if (tile->panels == PANELS_THERE)
        return p.n;
    /* where they stand among all others */
    int to = tile->panels == PANELS_INSIDE ? p.nloop - n : batches - (axis < batches);
    for (int k = 0; k < n; k++)
        push_order(&p, to > axis ? axis : axis + k, to > axis ? to + n - 1 : to + k);
    if (tile->panels == PANELS_OUTSIDE)
        push_loops_of_weights(&p, column, batches);
    return p.n;
}
