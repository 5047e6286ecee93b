/* optimize.c - OptOps: how a kernel's loops are tiled. They are data (kernel.opt), chosen here,
 * applied to the AST.
 *
 * A contraction (matmul, convolution) keeps a tile of rows x columns accumulators, so that each
 * value it loads is used several times:
 *
 *      acc[4][16] = 0;  for k: for row: for column: acc[row][column] += a[i + row, k] * b[k, j +
 *      column]
 *
 * UPCAST splits an output range r into r' * amount + lane, exactly: no remainder code. PACK writes
 * a weight in the order in which the tiles read it, as one stream (a storage view), so that its
 * columns lie side by side whatever the model's layout was.
 *
 * The columns run along a range in which every operand stands still, is contiguous, or is a weight
 * that can be packed; the rows along a range in which some operand stands still. All pairs of
 * ranges and divisors are tried; the best has the most multiply-adds for each vector or scalar that
 * it loads, within the registers.
 */
#include "passes/passes.h"

#include <string.h>

enum { VECTOR = 4, COLUMNS_MAX = 32, ROWS_MAX = 8, TILE_MAX = 64, MAX_LOADS = 32 };

struct nest {
    struct tgc *t;
    struct uop *store;
    int first;                   /* store->src[first..]: its ranges */
    struct uop *reduce;          /* the contraction */
    struct uop *load[MAX_LOADS]; int nload;     /* under it */
};

struct tile { int column_axis, row_axis; int64_t columns, rows; double gain; };

struct substitution { struct uop *from, *to; };

static struct uop *substitute(struct tgc *t, void *ctx, struct uop *u)
{
    (void)t;
    const struct substitution *s = ctx;
    return u == s->from ? s->to : NULL;
}

static struct uop *replace(struct tgc *t, struct uop *u, struct uop *from, struct uop *to)
{
    struct substitution s = {from, to};
    uop_rewrite(t, &u, 1, substitute, &s);
    return u;
}

/* By how much `offset` grows with r; false if that is no constant. */
static bool stride_in(struct tgc *t, struct uop *offset, struct uop *r, int64_t *stride)
{
    struct uop *next = replace(t, offset, r, sym_addi(t, r, 1));
    return uop_const_int(sym_sub(t, next, offset), stride);
}

static bool depends_on(struct tgc *t, struct uop *u, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i] == r)
            return true;
    return false;
}

/* The one contraction of a store, under its ranges or inside a pooling of its results; false if
 * there is none, or anything that lanes do not go through. */
static bool find_contraction(struct nest *m)
{
    int n;
    struct uop **order = uop_toposort(m->t, &m->store->src[2], 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op == OP_STAGE ||
            (order[i]->op == OP_LOAD && order[i]->src[0] == m->store->src[0]))
            return false;
        if (order[i]->op != OP_REDUCE)
            continue;
        if (m->reduce && !depends_on(m->t, order[i], m->reduce))
            return false;
        if (!m->reduce)
            m->reduce = order[i];
    }
    if (!m->reduce || REDUCE_OP(m->reduce->arg.i) != OP_ADD)
        return false;
    order = uop_toposort(m->t, &m->reduce->src[0], 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD) {
            if (m->nload == MAX_LOADS)
                return false;
            m->load[m->nload++] = order[i];
        }
    return m->nload >= 2;
}

/* ---- packing */

/* The ranges that a load's offset is a sum of, outermost first: the store's, the reduction's, then
 * the lanes. */
static int ranges_of(const struct nest *m, struct uop **range)
{
    int n = 0;
    for (int lane = 0; lane < 2; lane++) {
        for (int k = m->first; k < m->store->nsrc; k++)
            if (RANGE_IS_LANE(m->store->src[k]->arg.i) == (lane == 1))
                range[n++] = m->store->src[k];
        for (int k = 1; k < m->reduce->nsrc && !lane; k++)
            range[n++] = m->reduce->src[k];
    }
    return n;
}

/* A weight's load as a view of its data: one axis for each range that it depends on. `offset`
 * becomes the offset in the stored order. false: the load is no such sum, or would store elements
 * twice. */
static bool storage_view(const struct nest *m, const struct uop *load, struct view *v,
                         struct uop **offset)
{
    struct tgc *t = m->t;
    struct uop *range[64], *at[MAX_RANK], *rest = load->src[1];
    const struct buffer *b = uop_buffer_of(load->src[0]);
    int64_t stride, n, nelem = 1, total = 1;
    if (!b || b->kind != BUFFER_WEIGHT || b->storage || load->nsrc > 2 ||
        m->store->nsrc + m->reduce->nsrc > 64)
        return false;
    *v = (struct view){0};
    int nrange = ranges_of(m, range);
    for (int k = 0; k < nrange; k++) {
        if (!stride_in(t, load->src[1], range[k], &stride) ||
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
    if (rest->op != OP_CONST || rest->arg.i != 0 || total != nelem)
        return false;
    v->offset = uop_int(t, 0);
    *offset = uop_int(t, 0);
    for (int a = 0; a < v->ndim; a++)
        *offset = sym_add(t, sym_mul(t, *offset, v->dim[a]), at[a]);
    return true;
}

/* PACK: the kernel reads its own copy of the weight, in the order of its loops. */
static struct uop *apply_pack(struct nest *m, struct kernel *k, struct uop *store, struct uop *load)
{
    struct view v;
    struct uop *offset;
    if (!storage_view(m, load, &v, &offset) || offset == load->src[1])
        return store;
    const struct buffer *from = uop_buffer_of(load->src[0]);
    struct buffer *b = buffer_new(m->t, BUFFER_WEIGHT, from->dtype, v.dim, v.ndim, from->name);
    b->data = from->data;
    b->nbytes = from->nbytes;
    b->storage = mem_copy(m->t, &v, sizeof v);
    struct uop *src[2] = {uop_buffer(m->t, b), offset};
    struct uop *packed = uop_intern(m->t, OP_LOAD, load->dtype, src, 2, (union arg){0});
    store = replace(m->t, store, load, packed);
    for (int i = 0; i < k->nbuffer; i++)
        if (k->buffer[i] == from)
            k->buffer[i] = b;
    return store;
}

static bool is_read_elsewhere(struct tgc *t, const struct kernel *k, struct uop *load)
{
    int n;
    struct uop *root = k->ast;
    struct uop **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && order[i] != load && order[i]->src[0] == load->src[0])
            return true;
    return false;
}

/* ---- choosing a tile */

static int64_t fixed_size(const struct uop *range)
{
    return range->src[0]->op == OP_CONST ? range->src[0]->arg.i : 0;
}

static bool is_packable(const struct nest *m, const struct uop *load)
{
    struct view v;
    struct uop *offset;
    return storage_view(m, load, &v, &offset);
}

/* Whether columns can run along r; *vectors: whether some operand is contiguous then. */
static bool columns_fit(const struct nest *m, struct uop *r, bool *vectors)
{
    int64_t stride;
    *vectors = false;
    if (!stride_in(m->t, m->store->src[1], r, &stride))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if ((m->load[i]->nsrc > 2 && depends_on(m->t, m->load[i]->src[2], r)) ||
            !stride_in(m->t, m->load[i]->src[1], r, &stride))
            return false;
        *vectors |= stride != 0;
        if (stride != 0 && stride != 1 && !is_packable(m, m->load[i]))
            return false;
    }
    return *vectors;
}

static bool rows_fit(const struct nest *m, struct uop *r)
{
    bool reuse = false;
    for (int i = 0; i < m->nload; i++) {
        if (m->load[i]->nsrc > 2 && depends_on(m->t, m->load[i]->src[2], r))
            return false;
        reuse |= !depends_on(m->t, m->load[i]->src[1], r);
    }
    return reuse;
}

/* Multiply-adds of a vector for each load: the rows' operand is broadcast, the columns' is read in
 * vectors. */
static double gain_of(int64_t rows, int64_t columns)
{
    double vectors = (double)((columns + VECTOR - 1) / VECTOR);
    double used = (double)columns / (vectors * VECTOR) * (columns % VECTOR ? 0.5 : 1);
    return used * (double)rows * vectors / ((double)rows + vectors);
}

static void try_rows(const struct nest *m, struct tile *best, int column_axis, int64_t columns)
{
    for (int a = m->first; a < m->store->nsrc; a++) {
        int64_t n = fixed_size(m->store->src[a]);
        /* a size known only at run time divides by nothing */
        if (n < 1 || a == column_axis || !rows_fit(m, m->store->src[a]))
            continue;
        for (int64_t rows = 1; rows <= ROWS_MAX && rows * columns <= TILE_MAX; rows++)
            if (n % rows == 0 && gain_of(rows, columns) > best->gain)
                *best = (struct tile){column_axis, a, columns, rows, gain_of(rows, columns)};
    }
    if (gain_of(1, columns) > best->gain)
        *best = (struct tile){column_axis, -1, columns, 1, gain_of(1, columns)};
}

/* From the innermost range outwards, so that equal gains keep the output's contiguous range for the
 * columns. */
static struct tile choose_tile(const struct nest *m)
{
    struct tile best = {.column_axis = -1};
    for (int a = m->store->nsrc - 1; a >= m->first; a--) {
        int64_t n = fixed_size(m->store->src[a]);
        bool vectors;
        if (n < 2 || !columns_fit(m, m->store->src[a], &vectors))
            continue;
        for (int64_t columns = 2; columns <= COLUMNS_MAX; columns++)
            if (n % columns == 0)
                try_rows(m, &best, a, columns);
    }
    return best;
}

/* ---- applying it */

/* The lane joins the store's ranges at the end, the quotient takes r's place. */
static struct uop *apply_upcast(struct tgc *t, struct uop *store, int first, struct uop *r,
                                int64_t amount, const char *name)
{
    struct uop *src[72];
    struct uop *lane = uop_lane(t, uop_int(t, amount), t->next_range++);
    struct uop *outer = sym_div(t, r->src[0], uop_int(t, amount));
    bool whole = uop_is_int(outer, 1);
    struct uop *q = whole ? uop_int(t, 0) : uop_range(t, outer, t->next_range++);
    struct uop *by = sym_add(t, sym_muli(t, q, amount), lane);
    uop_name_axes(t, lane, name);
    if (uop_get_axes(t, r) && !whole)
        uop_name_axes(t, q, uop_get_axes(t, r));
    for (int k = 0; k < first; k++)
        src[k] = replace(t, store->src[k], r, by);
    int n = first;
    for (int k = first; k < store->nsrc; k++)
        if (store->src[k] != r)
            src[n++] = store->src[k];
        else if (!whole)
            src[n++] = q;
    src[n++] = lane;
    return uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
}

static void note_opt(struct tgc *t, struct kernel *k, enum opt_op op, int axis, int64_t amount)
{
    VEC_PUSH(t, k->opt, k->nopt, k->cap_opt, ((struct opt){op, axis, amount}));
}

static struct uop *pack_weights(struct tgc *t, struct kernel *k, struct uop *store)
{
    struct nest m = {.t = t, .store = store, .first = 3};
    if (!find_contraction(&m))
        return store;
    for (int i = 0; i < m.nload; i++) {
        struct uop *packed = is_read_elsewhere(t, k, m.load[i])
                                 ? store
                                 : apply_pack(&m, k, store, m.load[i]);
        if (packed != store)
            note_opt(t, k, OPT_PACK, i, 0);
        store = packed;
    }
    return store;
}

static struct uop *optimize_store(struct tgc *t, struct kernel *k, struct uop *store)
{
    struct nest m = {.t = t, .store = store, .first = 3};
    bool guarded = store->nsrc > 3 && store->src[3]->op != OP_RANGE;
    if (guarded || store->nsrc > 64 || !find_contraction(&m))
        return store;
    struct tile tile = choose_tile(&m);
    if (tile.column_axis < 0)
        return store;
    struct uop *column = store->src[tile.column_axis],
               *row = tile.row_axis < 0 ? NULL : store->src[tile.row_axis];
    if (row && tile.rows > 1) {
        note_opt(t, k, OPT_UPCAST, tile.row_axis - m.first, tile.rows);
        store = apply_upcast(t, store, m.first, row, tile.rows, "row");
    }
    note_opt(t, k, OPT_UPCAST, tile.column_axis - m.first, tile.columns);
    return apply_upcast(t, store, m.first, column, tile.columns, "column");
}

bool pass_optimize(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct mem_mark mark = scratch_mark(t);
        struct kernel *k = s->kernel[i];
        int n = k->ast->nsrc;
        struct uop **store = scratch_array(t, (size_t)n, sizeof *store);
        memcpy(store, k->ast->src, (size_t)n * sizeof *store);
        for (int j = 0; j < n; j++)
            store[j] = optimize_store(t, k, store[j]);
        k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, n, (union arg){0});
        for (int j = 0; j < n; j++)
            if (store[j]->src[store[j]->nsrc - 1]->op == OP_RANGE &&
                RANGE_IS_LANE(store[j]->src[store[j]->nsrc - 1]->arg.i))
                store[j] = pack_weights(t, k, store[j]);
        k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, n, (union arg){0});
        scratch_release(t, mark);
    }
    schedule_collect_buffers(t, s);                   /* packed weights are buffers of their own */
    return true;
}
