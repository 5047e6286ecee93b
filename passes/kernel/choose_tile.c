/* choose_tile.c - chooses a loop nest's tile among all candidates; tile_cost.c estimates the cost
 * of each.
 *
 * The columns run along a range in which every operand is invariant or contiguous, or is a weight
 * that can be packed; the rows along a range in which some operand is invariant. All pairs of
 * ranges and sizes are tried. The portable kernel's lanes are loops, which a compiler vectorizes; a
 * variant's columns are vectors of its instruction set.
 */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile_cost.h"

#include <string.h>

enum { COLUMNS_MAX = 32, ROWS_MAX = 8, TILE_MAX = 64 };          /* of the portable kernel */
enum { VECTOR_ROWS_MAX = 16, VECTOR_BLOCKS_MAX = 8 };

/* -------------------------------------------------------------------------- the portable kernel */

static bool is_gated_by(const struct nest *m, const struct uop *load, const struct uop *r)
{
    return load->nsrc > 2 && uop_depends_on(m->t, load->src[2], r);
}

/* Lanes lie no farther apart: expand.c. */
static bool is_vector_stride(int64_t stride)
{
    return stride <= VECTOR_STRIDE_MAX && stride >= -VECTOR_STRIDE_MAX;
}

bool store_is_apart_by_run(struct tgc *t, const struct uop *store, struct uop *r)
{
    int64_t stride;
    return store->op == OP_STORE && store_first_range(store) == 3 && store->dtype == DTYPE_F32 &&
           store->src[2]->dtype == DTYPE_F32 &&
           uop_buffer_of(store->src[0])->dtype == DTYPE_F32 &&
           !index_stride(t, store->src[1], r, &stride) && index_slope(t, store->src[1], r) != NULL;
}

/* Whether a contraction's columns along r may be stored where their stride puts them: one that is
 * known, or that the run knows. */
static bool store_fits(const struct nest *m, struct uop *r)
{
    int64_t stride;
    if (!index_stride(m->t, m->store->src[1], r, &stride))
        return m->contraction && !m->staged && store_is_apart_by_run(m->t, m->store, r);
    return is_vector_stride(stride);
}

bool nest_columns_are_open(const struct nest *m, const struct uop *r)
{
    int64_t stride;
    return m->contraction && !m->staged && !m->grouped && r->op == OP_RANGE &&
           range_is(r, AXIS_LOOP) && range_fixed_size(r) < 1 && m->first == 3 &&
           !nest_axis(m, r).weights && index_stride(m->t, m->store->src[1], r, &stride) &&
           stride != 0;
}

/* Whether that many columns fit a loop of open size: any number, until they are cut to a multiple
 * of `vector`. */
static bool open_suit(struct tgc *t, struct uop *size, int64_t columns, int64_t vector)
{
    return columns <= size->vmax && (!uop_is_int(sym_mod(t, size, uop_int(t, vector)), 0) ||
                                     uop_is_int(sym_mod(t, size, uop_int(t, columns)), 0));
}

/* Whether columns can run along r: some operand is contiguous then. */
static bool columns_fit(const struct nest *m, struct uop *r)
{
    int64_t stride;
    bool vectors = false;
    if (nest_axis(m, r).stages || !store_fits(m, r))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if (is_gated_by(m, m->load[i], r) || !index_stride(m->t, m->load[i]->src[1], r, &stride))
            return false;
        vectors |= stride != 0;
        bool groups = m->load[i] == m->weights && stride == dtype_group(m->weights->dtype);
        if (stride != 0 && stride != 1 && !groups && !nest_is_packable(m, m->load[i]))
            return false;
    }
    return vectors;
}

static bool rows_fit(const struct nest *m, struct uop *r)
{
    struct nest_axis axis = nest_axis(m, r);
    if (axis.stages)
        return false;
    for (int i = 0; i < m->nload; i++)
        if (is_gated_by(m, m->load[i], r))
            return false;
    return !m->contraction || axis.role != ROLE_BATCH;
}

/* The best tiles so far, best first; of equal ones the first. */
struct shortlist {
    struct tile *tile; int n, most;
    bool orders;                 /* the two orders of a tile's loops are separate candidates */
};

static void insert(struct shortlist *s, const struct tile *tile)
{
    int at = s->n;
    if (tile->gain <= 0)
        return;
    while (at > 0 && s->tile[at - 1].gain < tile->gain)
        at--;
    if (at == s->most)
        return;
    s->n += s->n < s->most;
    memmove(&s->tile[at + 1], &s->tile[at], (size_t)(s->n - at - 1) * sizeof *s->tile);
    s->tile[at] = *tile;
}

/* Both orders of a tile's loops are candidates; tiles that differ only in the order rank last. */
static void consider(const struct nest *m, struct shortlist *s, struct tile tile)
{
    tile.panels = s->orders ? tile_place_panels(m, &tile) : PANELS_THERE;
    insert(s, &tile);
    if (tile.panels == PANELS_THERE)
        return;
    tile.panels = tile.panels == PANELS_OUTSIDE ? PANELS_INSIDE : PANELS_OUTSIDE;
    tile.gain *= RATIO_SECOND;
    insert(s, &tile);
}

/* Of n rows. Where vectors are compilers' affair, whole tiles are all of them; else the last rows
 * are a loop nest of their own. */
static double rows_gain_portable(const struct nest *m, const struct uop *column,
                                 const struct uop *row, int64_t n, int64_t rows, int64_t columns)
{
    int64_t rest = n % rows;
    double full = tile_gain_portable(m, column, row, rows, columns), last;
    if (rest == 0)
        return full;
    if (machine_of(m->t)->registers == 0 || rows > n || full == 0)
        return 0;
    last = tile_gain_portable(m, column, row, rest, columns);
    return RATIO_REST * (double)n / ((double)(n - rest) / full + (double)rest / last);
}

static void try_rows(const struct nest *m, struct shortlist *s, struct tile tile)
{
    const struct uop *column = m->store->src[tile.column_axis];
    tile.row_axis = -1;
    tile.rows = 1;
    for (int a = m->first; a < m->store->nsrc; a++) {
        int64_t n = range_fixed_size(m->store->src[a]);
        /* a size known only at run time has no divisors */
        if (n < 1 || a == tile.column_axis || !rows_fit(m, m->store->src[a]))
            continue;
        for (int64_t rows = 1; rows <= ROWS_MAX && rows * tile.columns <= TILE_MAX; rows++) {
            struct tile by = tile;
            by.row_axis = a;
            by.rows = rows;
            by.gain = rows_gain_portable(m, column, m->store->src[a], n, rows, tile.columns);
            consider(m, s, by);
        }
    }
    tile.gain = tile_gain_portable(m, column, NULL, 1, tile.columns);
    consider(m, s, tile);
}

/* From the innermost range outwards, so that on equal gains the columns run along the output's
 * contiguous range. `like`: a variant's tile, whose panel is kept, or NULL. */
static void list_portable(const struct nest *m, const struct tile *like, struct shortlist *s)
{
    for (int a = m->store->nsrc - 1; a >= m->first && m->contraction; a--) {
        int64_t n = range_fixed_size(m->store->src[a]);
        bool open = nest_columns_are_open(m, m->store->src[a]);
        if ((n < 2 && !open) || (like && like->column_axis != a) ||
            !columns_fit(m, m->store->src[a]))
            continue;
        for (int64_t columns = 2; columns <= COLUMNS_MAX; columns++)
            if (open   ? columns % OPEN_COLUMNS == 0 &&
                           open_suit(m->t, m->store->src[a]->src[0], columns, OPEN_COLUMNS)
                : like ? like->panel % columns == 0
                       : n % columns == 0)
                try_rows(m, s,
                         (struct tile){.column_axis = a,
                                       .panel = like && !open ? like->panel : columns,
                                       .columns = columns});
    }
}

/* ------------------------------------------------------------------------------------- variants */

/* Whether strided lanes, which are moved one by one, are acceptable: for a contraction's tile,
 * which does that once for all its steps. */
static bool may_lie_apart(const struct nest *m, int64_t stride)
{
    return m->contraction && is_vector_stride(stride);
}

/* Whether a load that depends on r is contiguous along it, or can be packed; outside the reduction
 * it may also be strided. */
static bool load_fits(const struct nest *m, const struct uop *load, struct uop *r, bool reduced)
{
    int64_t stride;
    if (is_gated_by(m, load, r) || !index_stride(m->t, load->src[1], r, &stride))
        return false;
    if (m->grouped && reduced)
        return load == m->weights
                   ? stride == dtype_group(load->dtype) || nest_is_packable(m, load)
                   : stride == 0;
    if (stride == 0)
        return true;
    if (load->dtype != DTYPE_F32)
        return tile_is_vector_dtype(load->dtype) && load->nsrc == 2 &&
               (stride == 1 || (reduced && m->contraction && nest_is_packable(m, load)));
    bool apart = may_lie_apart(m, stride);
    return stride == 1 || (reduced ? nest_is_packable(m, load) && (apart || !m->staged) : apart);
}

/* An image whose few channels become innermost: loads are contiguous along r, the store is
 * strided. */
static bool may_cross(const struct nest *m, const struct uop *r, int64_t stride)
{
    enum { CHANNELS_MAX = 4 };
    const struct uop *last = m->store->src[m->store->nsrc - 1];
    int64_t n = range_fixed_size(last);
    return !m->reduce && m->nother > 0 && r != last && n > 0 && n <= CHANNELS_MAX &&
           op_is_elementwise(m->store->src[2]->op) && stride > 0 && stride <= VECTOR_STRIDE_MAX;
}

/* A store that changes the order of axes: the load is contiguous along r, the store along its
 * innermost range. Rows of vectors along r are then stored by columns, see transpose_store.c.
 * Vectors along the innermost range would be better, but some load is strided there. */
static bool may_transpose(const struct nest *m, const struct uop *r)
{
    struct uop *last = m->store->src[m->store->nsrc - 1];
    int64_t stride;
    bool apart = false;
    if (m->reduce || m->first != 3 || r == last || m->store->dtype != DTYPE_F32 ||
        range_fixed_size(last) < CROSS_ROWS_MIN ||
        !index_stride(m->t, m->store->src[1], last, &stride) || stride != 1)
        return false;
    for (int i = 0; i < m->nother; i++)
        apart |= uop_depends_on(m->t, m->other[i]->src[1], r) &&
                 index_stride(m->t, m->other[i]->src[1], last, &stride) && stride != 0 &&
                 stride != 1;
    return apart;
}

static bool is_sum_of_i32(const struct uop *u)
{
    return u->dtype == DTYPE_I32 && REDUCE_OP(u->arg.i) == OP_ADD;
}

bool nest_vectors_fit(const struct nest *m, struct uop *r)
{
    struct tgc *t = m->t;
    int64_t stride = VECTOR_STRIDE_MAX;                  /* if only the run knows it */
    int n;
    if (nest_axis(m, r).stages || !store_fits(m, r) ||
        (index_stride(t, m->store->src[1], r, &stride) && stride == 0) ||
        (stride != 1 && !may_lie_apart(m, stride) && !may_cross(m, r, stride) &&
         !may_transpose(m, r)) ||
        !tile_stores_vectors(m->store))
        return false;
    for (int i = 0; i < m->nload; i++)
        if (!load_fits(m, m->load[i], r, true))
            return false;
    for (int i = 0; i < m->nother; i++)
        if (!load_fits(m, m->other[i], r, false))
            return false;
    struct mem_mark mark = scratch_mark(t);
    struct uop_map varies = {.t = t, .scratch = true};
    struct uop **order = nest_order(t, m->store->src[2], &n);
    bool fits = true;
    for (int i = 0; i < n && fits; i++) {
        struct uop *u = order[i];
        bool any = false;
        if (u->dtype == DTYPE_BOOL && uop_depends_on(t, u, r) && tile_compares_places(t, u, r)) {
            map_set(&varies, u, u);
            continue;
        }
        for (int k = u->op == OP_LOAD; k < u->nsrc && u->op != OP_RANGE; k++) {
            bool value = u->op != OP_LOAD || k > 2;
            any |= value && map_get(&varies, u->src[k]) != NULL;
            /* r may occur in an offset, but not in a value */
            fits &= u->src[k] != r || u->dtype == DTYPE_INDEX || !value;
        }
        if (u->op == OP_LOAD)
            any |= uop_depends_on(t, u->src[1], r);
        if (any && u->op != OP_LOAD)
            fits &= (u->op == OP_REDUCE && (u->dtype == DTYPE_F32 || is_sum_of_i32(u))) ||
                    tile_is_vector_op(u) || tile_stores_small(m->store, u);
        if (any || (u->dtype != DTYPE_INDEX && u->op != OP_LOAD && u->op != OP_BUFFER &&
                    op_is_elementwise(u->op) && uop_depends_on(t, u, r)))
            map_set(&varies, u, u);
        if (map_get(&varies, u) && u->op != OP_LOAD && !any)
            fits = false;                             /* a value computed from r itself */
    }
    scratch_release(t, mark);
    return fits;
}

/* The columns of a panel: n, or a part of it. The remainder is a store of its own (see
 * split_columns), or consists of unused lanes of the last vector. false: these columns are not
 * possible. */
static bool columns_suit(int64_t n, int64_t columns, int64_t vector, const struct tile *like,
                         bool exact, bool gated, int64_t *panel)
{
    *panel = like ? like->panel : columns < n ? columns : n;
    if (n % columns && columns < n ? exact : columns > n && gated)
        return false;
    return columns <= *panel ? *panel % columns == 0 : *panel == n && columns - n < vector;
}

bool nest_has_gates(const struct nest *m, const struct uop *r)
{
    for (int i = 0; i < m->nload + m->nother; i++) {
        const struct uop *load = i < m->nload ? m->load[i] : m->other[i - m->nload];
        if ((load->nsrc > 2 || load->dtype != DTYPE_F32) && uop_depends_on(m->t, load->src[1], r))
            return true;
    }
    return m->store->src[2]->dtype != DTYPE_F32;
}

static int64_t align_up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

/* Whether the last of n columns, if they are no whole vector, may be recomputed together with
 * columns that another tile stores: the same values, by the same thread. */
static bool tile_may_overlap(const struct nest *m, int64_t vector, int64_t n)
{
    return m->contraction && n >= vector && m->t->threads < 2;
}

int64_t tile_columns_left(const struct nest *m, const struct tile *tile)
{
    int64_t n = range_fixed_size(m->store->src[tile->column_axis]), rest = n % tile->columns;
    bool overlap = nest_has_gates(m, m->store->src[tile->column_axis]) &&
                   tile_may_overlap(m, tile->vector, n);
    return overlap ? align_up(rest, tile->vector) : rest;
}

/* Tries all tiles of `columns` with each of the numbers of rows. */
static void try_columns(const struct nest *m, enum isa isa, const struct pairing *p, int npair,
                        int column_steps, struct tile tile, double used, struct shortlist *s)
{
    for (int i = 0; i < npair; i++) {
        const struct pairing *by = &p[i];
        int64_t most = by->size < VECTOR_ROWS_MAX ? by->size : VECTOR_ROWS_MAX;
        tile.row_axis = by->axis;
        for (tile.rows = by->axis < 0 ? 1 : 2; tile.rows <= most;
             tile.rows += by->unknown ? tile.rows : 1) {
            tile.gain = tile_gain(m, isa, by, column_steps, &tile, used);
            consider(m, s, tile);
        }
    }
}

/* Rows that a tile along r may have at most. If the number of rows is unknown, what whole tiles of
 * a contraction leave becomes stores of half as many rows, outside of stages. */
static int64_t rows_most(const struct nest *m, const struct uop *r)
{
    int64_t n = range_fixed_size(r);
    return n > 0 || !m->contraction || m->staged ? n : r->src[0]->vmax;
}

/* The ranges for rows that go with columns along that axis: each that fits, and none. */
static int list_pairs(const struct nest *m, int axis, struct pairing *p)
{
    struct uop *column = m->store->src[axis];
    bool turned = may_transpose(m, column);
    int n = 0;
    for (int a = m->first; a < m->store->nsrc; a++) {
        struct uop *row = m->store->src[a];
        if (rows_most(m, row) >= 2 && a != axis && rows_fit(m, row) &&
            (m->reduce || (turned && a == m->store->nsrc - 1)))
            p[n++] = tile_pair(m, column, a);
    }
    bool fixed = false;
    for (int i = 0; i < n; i++)
        fixed |= !p[i].unknown;
    for (int i = 0; i < n; i++)                          /* the run may have one row */
        p[i].worth = p[i].unknown && fixed ? RATIO_ROWS_UNKNOWN : 1;
    p[n++] = tile_pair(m, column, -1);
    return n;
}

static void try_vectors(const struct nest *m, enum isa isa, const struct tile *like,
                        bool exact, struct shortlist *s, int axis, const struct pairing *p,
                        int npair, int64_t vector)
{
    struct uop *column = m->store->src[axis];
    int64_t n = range_fixed_size(column), panel;
    bool gated = nest_has_gates(m, column);
    int half = isa_half_lanes(isa), column_steps = tile_column_steps(m, column);
    bool open = nest_columns_are_open(m, column);
    for (int64_t blocks = 1; blocks <= VECTOR_BLOCKS_MAX; blocks++) {
        int64_t columns = blocks * vector, tiles = (n + columns - 1) / columns;
        struct tile whole = {.column_axis = axis, .panel = columns, .columns = columns,
                             .vector = (int)vector};
        if (open && vector == isa_lanes(isa) && open_suit(m->t, column->src[0], columns, vector))
            try_columns(m, isa, p, npair, column_steps, whole, RATIO_REMAINDER, s);
        if (open || !columns_suit(n, columns, vector, like, exact, gated, &panel))
            continue;
        /* the remainder: a partial vector, or, with gates, whole vectors or scalars */
        int64_t last = n % columns, lanes = tiles * columns;
        if (gated && n > columns)
            lanes = n - last + (tile_may_overlap(m, vector, n) ? align_up(last, vector)
                                                               : last * vector);
        else if (!m->grouped && n > vector && vector == 2 * half && n % vector == half)
            lanes -= half;                            /* half a vector, see half_vectors.c */
        bool rest = n > columns && n % columns;
        double used = (double)n / (double)lanes * (rest ? RATIO_REMAINDER : 1);
        struct tile tile = {.column_axis = axis, .panel = panel, .columns = columns,
                            .vector = (int)vector};
        try_columns(m, isa, p, npair, column_steps, tile, used, s);
    }
}

static void list_vectors(const struct nest *m, enum isa isa, const struct tile *like,
                         bool exact, struct shortlist *s)
{
    for (int a = m->store->nsrc - 1; a >= m->first; a--) {
        bool plain = !m->reduce || !uop_depends_on(m->t, m->reduce, m->store->src[a]);
        if ((range_fixed_size(m->store->src[a]) < 2 &&
             !nest_columns_are_open(m, m->store->src[a])) ||
            (like && like->column_axis != a) ||
            /* strip.c does that, for any size */
            (plain && a == m->store->nsrc - 1) || !nest_vectors_fit(m, m->store->src[a]))
            continue;
        struct pairing p[64];
        int npair = list_pairs(m, a, p);
        try_vectors(m, isa, like, exact, s, a, p, npair, isa_lanes(isa));
        if (isa_half_lanes(isa))
            try_vectors(m, isa, like, exact, s, a, p, npair, isa_half_lanes(isa));
    }
}

/* Candidate number `pick`; the list has room for one more than that. */
static struct tile nth_of(const struct nest *m, const struct shortlist *s, int pick)
{
    struct tile best = {.column_axis = -1};
    if (s->n <= pick)
        return best;
    best = s->tile[pick];
    if (!s->orders)
        best.panels = tile_place_panels(m, &best);
    return best;
}

struct tile tile_choose_vectors(const struct nest *m, enum isa isa,
                                const struct tile *like, bool exact, int pick)
{
    struct mem_mark mark = scratch_mark(m->t);
    struct shortlist s = {.tile = scratch_array(m->t, (size_t)pick + 1, sizeof *s.tile),
                          .most = pick + 1};
    list_vectors(m, isa, like, exact, &s);
    struct tile best = nth_of(m, &s, pick);
    scratch_release(m->t, mark);
    return best;
}

struct tile tile_choose(const struct nest *m, enum isa isa, const struct tile *like, int pick)
{
    struct mem_mark mark = scratch_mark(m->t);
    struct shortlist s = {.tile = scratch_array(m->t, (size_t)pick + 1, sizeof *s.tile),
                          .most = pick + 1, .orders = pick > 0};
    if (!isa_is_portable(isa))
        list_vectors(m, isa, like, true, &s);
    if (s.n == 0 && !device_has_grid(m->t))          /* whose tiles grid_tile.c chooses */
        list_portable(m, like, &s);
    struct tile best = nth_of(m, &s, pick);
    scratch_release(m->t, mark);
    return best;
}
