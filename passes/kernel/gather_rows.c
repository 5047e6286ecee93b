/* gather_rows.c - gathered rows that are contiguous along c, while the result is contiguous along
 * p: a grid's samples of an image with channels innermost, stored with pixels innermost as the
 * model has them.
 *
 *      for c  for p                        for po  p = 16*po + j
 *        y[c, p] = t[place(p), c] * w(p)     for j < 16, c   row[j][c] = t[place(p), c]*w(p) + ...
 *                  + ...                     for c, j < 16   y[c, p]   = row[j][c]
 *
 * A row is loaded in vectors, at an index that is computed once for the whole row. Rows are stored
 * by their columns (transpose_store.c), or as rows if the result has that order. Points are
 * processed in blocks, whose indices are computed in vectors (stage_places.c). */
#include "passes/analysis/gathers.h"
#include "passes/analysis/access.h"
#include "passes/kernel/tile.h"

enum { ROWS = 16, ROW_NBYTES = 8 << 10 };

/* Two ranges of a store: rows are loaded along `row`, at indices that differ along `point`. */
struct row_points {
    int row, point;
};

static bool is_affine_along(struct tgc *t, const struct uop *load, struct uop *r)
{
    int64_t stride;
    return index_stride(t, load->src[1], r, &stride);
}

/* Whether all loads are contiguous along r, and some of them have data-dependent indices along
 * p. */
static bool is_row(struct tgc *t, struct uop *const *order, int n, struct uop *r, struct uop *p)
{
    int64_t stride;
    bool any = false;
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        if (u->op != OP_LOAD || !uop_depends_on(t, order[i], r))
            continue;
        if (u->src[0]->op == OP_STAGE || u->dtype != DTYPE_F32 ||
            !index_stride(t, u->src[1], r, &stride) || stride != 1 ||
            (u->nsrc > 2 && uop_depends_on(t, u->src[2], r)))
            return false;
        any |= !is_affine_along(t, u, p);
    }
    return any;
}

/* The range along which the store is contiguous; -1: none. */
static int find_points(struct tgc *t, const struct uop *store)
{
    int64_t stride;
    for (int k = store->nsrc - 1; k >= 3; k--)
        if (index_stride(t, store->src[1], store->src[k], &stride) && stride == 1)
            return range_fixed_size(store->src[k]) >= CROSS_ROWS_MIN ? k : -1;
    return -1;
}

static bool has_plain_loops(const struct uop *store)
{
    for (int k = 3; k < store->nsrc; k++)
        if (store->src[k]->op != OP_RANGE || RANGE_AXIS(store->src[k]->arg.i) != AXIS_LOOP)
            return false;
    return store->nsrc >= 5 && store->nsrc <= 64 && store->dtype == DTYPE_F32;
}

/* Rows that are stored in the order in which they are loaded: the indices are invariant along
 * them. */
static bool find_block(struct tgc *t, struct uop *store, struct row_points *found)
{
    int n, row = store->nsrc - 1;
    int64_t stride;
    if (!has_plain_loops(store) || range_fixed_size(store->src[row]) < GATHER_ROW_MIN ||
        !index_stride(t, store->src[1], store->src[row], &stride) || stride != 1)
        return false;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int k = row - 1; k >= 3; k--)
        if (range_fixed_size(store->src[k]) >= CROSS_ROWS_MIN &&
            index_stride(t, store->src[1], store->src[k], &stride) &&
            is_row(t, order, n, store->src[row], store->src[k]) &&
            has_places(t, store->src[2], store->src[k], store->src[row])) {
            *found = (struct row_points){row, k};
            return true;
        }
    return false;
}

static bool find_row(struct tgc *t, struct uop *store, struct row_points *found)
{
    int n, point;
    int64_t stride;
    if (!has_plain_loops(store) || (point = find_points(t, store)) < 0)
        return false;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int k = store->nsrc - 1; k >= 3; k--) {
        struct uop *r = store->src[k];
        int64_t size = range_fixed_size(r);
        if (k != point && size >= GATHER_ROW_MIN &&
            size <= ROW_NBYTES / (int64_t)sizeof(float) &&
            index_stride(t, store->src[1], r, &stride) &&
            is_row(t, order, n, r, store->src[point])) {
            *found = (struct row_points){k, point};
            return true;
        }
    }
    return false;
}

static struct uop *new_range(struct tgc *t, int64_t n, const struct uop *like)
{
    struct uop *r = n == 1 ? uop_int(t, 0) : uop_range(t, uop_int(t, n), t->next_range++);
    if (n > 1 && uop_get_axes(t, like))
        uop_name_axes(t, r, uop_get_axes(t, like));
    return r;
}

/* The store with these three sources, with `outer` and two ranges inside all its others. */
static struct uop *inside(struct tgc *t, const struct uop *store, struct row_points of,
                          struct uop *const *stored, struct uop *outer, struct uop *first,
                          struct uop *last)
{
    struct uop *src[64];
    int n = 0;
    for (; n < 3; n++)
        src[n] = stored[n];
    for (int i = 3; i < store->nsrc; i++)
        if (i != of.row && i != of.point)
            src[n++] = store->src[i];
    if (outer->op == OP_RANGE)
        src[n++] = outer;
    src[n++] = first;
    src[n++] = last;
    return uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
}

/* Stores the rows of a block of points to scratch; returns the load of row c at one of the
 * points. */
static struct uop *stage_rows(struct tgc *t, struct kernel *k, struct uop *store,
                              struct row_points of, struct uop *start, struct uop *point,
                              int64_t rows)
{
    struct uop *c = store->src[of.row], *p = store->src[of.point];
    int64_t nrow = range_fixed_size(c), pitch = scratch_pitch(t, nrow);
    struct uop *own = new_range(t, rows, p), *column = new_range(t, nrow, c);
    struct uop_map by = {.t = t, .scratch = true};
    map_set(&by, c, column);
    map_set(&by, p, sym_add(t, start, own));
    struct uop *value = uop_substitute_all(t, store->src[2], &by);
    struct uop *stage[4] = {stage_places(t, k, value, own, column),
                            sym_add(t, sym_muli(t, own, pitch), column), own, column};
    union arg scratch = {.p = kernel_new_scratch(t, k, DTYPE_F32, sat_mul(pitch, rows))};
    struct uop *load[2] = {uop_intern(t, OP_STAGE, DTYPE_F32, stage, 4, scratch),
                           sym_add(t, sym_muli(t, point, pitch), c)};
    return uop_intern(t, OP_LOAD, DTYPE_F32, load, 2, (union arg){0});
}

/* The store in blocks of `rows` points, which divide them. turned: rows go through scratch, whose
 * columns are stored; otherwise rows are stored as they are loaded. */
static struct uop *take_points(struct tgc *t, struct kernel *k, struct uop *store,
                               struct row_points of, int64_t rows, bool turned)
{
    struct uop *c = store->src[of.row], *p = store->src[of.point];
    struct uop *outer = new_range(t, range_fixed_size(p) / rows, p),
               *point = new_range(t, rows, p), *start = sym_muli(t, outer, rows);
    struct uop *at = sym_add(t, start, point);
    struct uop *stored[3] = {store->src[0], uop_substitute(t, store->src[1], p, at)};
    stored[2] = turned ? stage_rows(t, k, store, of, start, point, rows)
                       : stage_places(t, k, uop_substitute(t, store->src[2], p, at), point, c);
    return inside(t, store, of, stored, outer, turned ? c : point, turned ? point : c);
}

struct uop *points_take(struct tgc *t, struct kernel *k, struct uop *store, int point, int row,
                        int64_t n)
{
    int norder;
    int64_t along_row, along_point;
    if (!has_plain_loops(store) || row == point ||
        !index_stride(t, store->src[1], store->src[row], &along_row) ||
        !index_stride(t, store->src[1], store->src[point], &along_point) ||
        (along_row != 1 && along_point != 1))
        return store;
    struct uop **order = nest_order(t, store->src[2], &norder);
    return is_row(t, order, norder, store->src[row], store->src[point])
               ? take_points(t, k, store, (struct row_points){row, point}, n, along_row != 1)
               : store;
}

/* Chooses for store number `at`, which becomes up to two; returns their number. */
static int gather_rows(struct tgc *t, struct kernel *k, int at)
{
    struct row_points of;
    struct uop *store = k->ast->src[at];
    if (!find_row(t, store, &of) && !find_block(t, store, &of))
        return 1;
    int64_t size = range_fixed_size(store->src[of.point]), rows = size < ROWS ? size : ROWS;
    int first = store_first_range(store);
    struct opt opt = {.op = OPT_CUT, .store = at, .axis = of.point - first, .n = size - size % rows,
                      .from = size - size % rows, .to = at + 1};
    if (size % rows)
        opt_must(t, k, NULL, &opt, 1);
    for (int i = 0; i < 1 + (size % rows >= CROSS_ROWS_MIN); i++) {
        opt = (struct opt){.op = OPT_POINTS, .store = at + i, .axis = of.point - first,
                           .to = of.row - first, .n = i ? size % rows : rows};
        opt_must(t, k, NULL, &opt, 1);
    }
    return 1 + (size % rows > 0);
}

bool pass_gather_rows(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc;)
        i += gather_rows(t, k, i);
    return true;
}
