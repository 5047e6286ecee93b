/* tile.c - applies a tile to a loop nest: splits ranges, and packs weights in the order of the
 * tiles.
 *
 * UPCAST splits an output range r into r' * amount + lane, exactly, without a remainder. PACK
 * stores a weight in the order in which the tiles read it (a storage view), so that its columns are
 * contiguous whatever the model's layout is.
 */
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

static void note_opt(struct tgc *t, struct variant *v, enum opt_op op, int axis, int64_t amount)
{
    VEC_PUSH(t, v->opt, v->nopt, v->cap_opt, ((struct opt){op, axis, amount}));
}

struct uop *tile_pack(struct tgc *t, struct kernel *k, struct variant *v, struct uop *store)
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
        note_opt(t, v, OPT_PACK, i, 0);
    }
    return store;
}

/* ------------------------------------------------------------------------------------- applying */

static struct uop *split_range(struct tgc *t, int64_t n, enum axis a)
{
    return n == 1 ? uop_int(t, 0) : uop_axis(t, uop_int(t, n), a, WORKER_EACH);
}

/* Replaces r by `by`; the ranges in `outer` take its place (or come first behind `nbatch` ranges,
 * or last), the lanes are appended. Ranges of one value are constants and are left out. */
static struct uop *split(struct tgc *t, struct uop *store, int first, int nbatch, struct uop *r,
                         struct uop *by, struct uop *const *outer, int nouter,
                         struct uop *const *lane, int nlane, enum panels where)
{
    struct uop *src[80];
    int n = first, nlanes_before = 0;
    for (int k = 0; k < first; k++)
        src[k] = uop_substitute(t, store->src[k], r, by);
    for (int k = first; k < store->nsrc; k++)
        nlanes_before += range_is_lane(store->src[k]);
    int last = store->nsrc - nlanes_before;      /* lanes come last */
    for (int k = first; k <= last; k++) {
        bool here = where == PANELS_OUTSIDE  ? k == first + nbatch
                    : where == PANELS_INSIDE ? k == last
                                          : k < last && store->src[k] == r;
        for (int i = 0; i < nouter && here; i++)
            if (outer[i]->op == OP_RANGE)
                src[n++] = outer[i];
        if (k < last && store->src[k] != r)
            src[n++] = store->src[k];
    }
    for (int k = last; k < store->nsrc; k++)
        if (store->src[k] != r)
            src[n++] = store->src[k];
    for (int i = 0; i < nlane; i++)
        if (lane[i]->op == OP_RANGE)
            src[n++] = lane[i];
    return uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
}

static void name_like(struct tgc *t, struct uop *u, const struct uop *from)
{
    if (u->op == OP_RANGE && uop_get_axes(t, from))
        uop_name_axes(t, u, uop_get_axes(t, from));
}

static struct uop *apply_rows(struct nest *m, const struct tile *tile, struct variant *v,
                              struct uop *store)
{
    struct tgc *t = m->t;
    struct uop *r = m->store->src[tile->row_axis];
    struct uop *outer = split_range(t, r->src[0]->arg.i / tile->rows, AXIS_LOOP);
    struct uop *lane = split_range(t, tile->rows, tile->vector ? AXIS_LANE : AXIS_KEPT);
    name_like(t, outer, r);
    uop_name_axes(t, lane, "row");
    note_opt(t, v, OPT_UPCAST, tile->row_axis - m->first, tile->rows);
    struct uop *by = sym_add(t, sym_muli(t, outer, tile->rows), lane);
    return split(t, store, m->first, 0, r, by, &outer, 1, &lane, 1, PANELS_THERE);
}

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
        if (!operands_equal(nest_axis(m, m->store->src[k]).varies, m->operands))
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
           : nelem <= (double)cost_fit_nelem(m, FIT_TILE)    ? RATIO_OPERAND_AGAIN
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

/* Whether only weights vary along r, as the anchors of a detector's head. */
static bool is_of_weights(const struct nest *m, const struct uop *column, const struct uop *r)
{
    struct operands o = nest_axis(m, r).varies;
    return operands_any(o) && operands_within(o, nest_axis(m, column).varies) &&
           operands_within(o, m->stationary);
}

/* Moves loops along which only weights vary next to the panels' loop, outside the rows. */
static struct uop *move_panels(const struct nest *m, const struct uop *column, struct uop *store)
{
    struct uop *src[80];
    double weights = 0;
    int first = m->first + nest_batches(m), n = first;
    for (int i = 0; i < m->nload; i++)
        if (operands_has(nest_axis(m, column).varies, i))
            weights += nelem_read(m, i, first - m->first);
    if (weights <= (double)cost_fit_nelem(machine_of(m->t), FIT_TILE))
        return store;
    memcpy(src, store->src, (size_t)first * sizeof *src);
    for (int moved = 1; moved >= 0; moved--)
        for (int k = first; k < store->nsrc; k++)
            if (is_of_weights(m, column, store->src[k]) == moved)
                src[n++] = store->src[k];
    return uop_intern(m->t, OP_STORE, store->dtype, src, n, (union arg){0});
}

static struct uop *apply_columns(struct nest *m, const struct tile *tile, struct variant *v,
                                 struct uop *store)
{
    struct tgc *t = m->t;
    struct uop *r = m->store->src[tile->column_axis];
    int64_t vector = tile->vector ? tile->vector : tile->columns;
    int64_t columns = tile->columns;
    enum axis axis = tile->vector ? AXIS_VECTOR : AXIS_KEPT;
    if (columns > tile->panel) {                         /* see tile_fill_vectors() */
        vector = columns = tile->panel;
        axis = AXIS_LANE;
    }
    struct uop *outer[2] = {split_range(t, r->src[0]->arg.i / tile->panel, AXIS_LOOP),
                            split_range(t, tile->panel / columns, AXIS_PART)};
    struct uop *lane[2] = {split_range(t, columns / vector, AXIS_LANE),
                           split_range(t, vector, axis)};
    name_like(t, outer[0], r);
    name_like(t, outer[1], r);
    uop_name_axes(t, lane[0], "block");
    uop_name_axes(t, lane[1], "column");
    note_opt(t, v, tile->vector ? OPT_VECTORIZE : OPT_UPCAST, tile->column_axis - m->first,
             tile->columns);
    struct uop *by = sym_add(t, sym_muli(t, outer[0], tile->panel),
                             sym_add(t, sym_muli(t, outer[1], columns),
                                     sym_add(t, sym_muli(t, lane[0], vector), lane[1])));
    store = split(t, store, m->first, nest_batches(m), r, by, outer, 2, lane, 2, tile->panels);
    if (tile->panels != PANELS_OUTSIDE)
        return store;
    note_opt(t, v, OPT_SWAP, tile->column_axis - m->first, 0);
    return move_panels(m, r, store);
}

struct uop *tile_apply(struct nest *m, const struct tile *tile, struct variant *v)
{
    struct uop *store = m->store;
    if (tile->rows > 1)
        store = apply_rows(m, tile, v, store);
    return apply_columns(m, tile, v, store);
}

/* Makes loads and the store conditional for lanes behind the last column. Built without folding, so
 * that the lanes' condition stays separate from the model's own. */
static struct uop *gate_columns(struct tgc *t, struct uop *store, struct uop *column,
                                struct uop *lane, int64_t ncolumns)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n), *src[80];
    struct uop *valid = sym_lt(t, column, uop_int(t, ncolumns));
    struct uop_map by = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        bool changed = false;
        int nsrc = 0;
        for (int k = 0; k < u->nsrc; k++) {
            if (u == store && k == 3)
                src[nsrc++] = valid;
            struct uop *s = map_get(&by, u->src[k]);
            changed |= s != NULL;
            src[nsrc++] = s ? s : u->src[k];
        }
        if (u->op == OP_LOAD && u->nsrc == 2 && uop_depends_on(t, u->src[1], lane)) {
            src[nsrc++] = valid;
            src[nsrc++] = uop_consti(t, u->dtype, 0);
            changed = true;
        }
        if (changed || u == store)
            map_set(&by, u, uop_intern(t, u->op, u->dtype, src, nsrc, u->arg));
    }
    return map_get(&by, store);
}

struct uop *tile_fill_vectors(struct nest *m, const struct tile *tile, struct uop *store)
{
    struct tgc *t = m->t;
    if (tile->columns <= tile->panel)
        return store;
    struct uop *r = store->src[store->nsrc - 1];         /* the panel's columns */
    struct uop *lane[2] = {split_range(t, tile->columns / tile->vector, AXIS_LANE),
                           split_range(t, tile->vector, AXIS_VECTOR)};
    uop_name_axes(t, lane[1], "column");
    struct uop *by = sym_add(t, sym_muli(t, lane[0], tile->vector), lane[1]);
    store = split(t, store, m->first, 0, r, by, NULL, 0, lane, 2, PANELS_THERE);
    return gate_columns(t, store, by, lane[1], tile->panel);
}

struct uop *tile_unroll(struct tgc *t, struct uop *store, struct uop *r, struct variant *v)
{
    int first = store->src[3]->op == OP_RANGE ? 3 : 4, axis = first;
    while (store->src[axis] != r)
        axis++;
    struct uop *lane = split_range(t, r->src[0]->arg.i, AXIS_UNROLLED);
    name_like(t, lane, r);
    note_opt(t, v, OPT_UNROLL, axis - first, r->src[0]->arg.i);
    return split(t, store, first, 0, r, lane, NULL, 0, &lane, 1, PANELS_THERE);
}
