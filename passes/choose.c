/* choose.c - which tile a loop nest gets: the candidates, and what each of them costs.
 *
 * The columns run along a range in which every operand stands still, is contiguous, or is a weight
 * that can be packed; the rows along a range in which some operand stands still. All pairs of
 * ranges and sizes are tried. The portable kernel's tile is chosen by the multiply-adds for each
 * load; a variant's, whose columns are vectors, by the cycles that a step of the reduction takes:
 * as many as the slowest of the FMA units, the load ports, the decoder and the latency of an
 * accumulator need.
 */
#include "passes/tile.h"

enum { COLUMNS_MAX = 32, ROWS_MAX = 8, TILE_MAX = 64 };          /* of the portable kernel */
enum { VECTOR_ROWS_MAX = 16, VECTOR_BLOCKS_MAX = 8 };

int64_t range_fixed_size(const struct uop *range)
{
    return range->src[0]->op == OP_CONST ? range->src[0]->arg.i : 0;
}

/* -------------------------------------------------------------------------- the portable kernel */

static bool is_gated_by(const struct nest *m, const struct uop *load, const struct uop *r)
{
    return load->nsrc > 2 && nest_depends(m->t, load->src[2], r);
}

/* Whether columns can run along r: some operand is contiguous then. */
static bool columns_fit(const struct nest *m, struct uop *r)
{
    int64_t stride;
    bool vectors = false;
    if (nest_stages_depend(m, r) || !nest_stride(m->t, m->store->src[1], r, &stride))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if (is_gated_by(m, m->load[i], r) || !nest_stride(m->t, m->load[i]->src[1], r, &stride))
            return false;
        vectors |= stride != 0;
        if (stride != 0 && stride != 1 && !nest_is_packable(m, m->load[i]))
            return false;
    }
    return vectors;
}

static bool rows_fit(const struct nest *m, struct uop *r)
{
    bool reuse = false;
    if (nest_stages_depend(m, r))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if (is_gated_by(m, m->load[i], r))
            return false;
        reuse |= !nest_depends(m->t, m->load[i]->src[1], r);
    }
    return reuse || !m->contraction;
}

/* Multiply-adds of a vector for each load: the rows' operand is broadcast, the columns' is read in
 * vectors. */
static double gain_of(int64_t rows, int64_t columns)
{
    int64_t lanes = isa_table[ISA_GENERIC].lanes;
    double vectors = (double)((columns + lanes - 1) / lanes);
    double used = (double)columns / (vectors * (double)lanes) * (columns % lanes ? 0.5 : 1);
    return used * (double)rows * vectors / ((double)rows + vectors);
}

static void try_rows(const struct nest *m, struct tile *best, struct tile tile)
{
    tile.row_axis = -1;
    tile.rows = 1;
    tile.gain = gain_of(1, tile.columns);
    for (int a = m->first; a < m->store->nsrc; a++) {
        int64_t n = range_fixed_size(m->store->src[a]);
        /* a size known only at run time divides by nothing */
        if (n < 1 || a == tile.column_axis || !rows_fit(m, m->store->src[a]))
            continue;
        for (int64_t rows = 1; rows <= ROWS_MAX && rows * tile.columns <= TILE_MAX; rows++)
            if (n % rows == 0 && gain_of(rows, tile.columns) > best->gain) {
                *best = tile;
                best->row_axis = a;
                best->rows = rows;
                best->gain = gain_of(rows, tile.columns);
            }
    }
    if (tile.gain > best->gain)
        *best = tile;
}

/* From the innermost range outwards, so that equal gains keep the output's contiguous range for the
 * columns. `like`: a variant's tile, whose panel is to be kept, or NULL. */
struct tile tile_choose_portable(const struct nest *m, const struct tile *like)
{
    struct tile best = {.column_axis = -1};
    for (int a = m->store->nsrc - 1; a >= m->first && m->contraction; a--) {
        int64_t n = range_fixed_size(m->store->src[a]);
        if (n < 2 || (like && like->column_axis != a) || !columns_fit(m, m->store->src[a]))
            continue;
        for (int64_t columns = 2; columns <= COLUMNS_MAX; columns++)
            if (like ? like->panel % columns == 0 : n % columns == 0)
                try_rows(m, &best,
                         (struct tile){.column_axis = a,
                                       .panel = like ? like->panel : columns,
                                       .columns = columns});
    }
    return best;
}

/* ------------------------------------------------------------------------------------- variants */

/* Lanes that lie apart in memory are moved one by one: a contraction's tile is worth it, since it
 * does that once for all its steps. */
static bool may_lie_apart(const struct nest *m, int64_t stride)
{
    return m->contraction && stride <= VECTOR_STRIDE_MAX && stride >= -VECTOR_STRIDE_MAX;
}

/* Whether a load that depends on r reads neighbours along it, or can; outside of the reduction,
 * also what lies apart. */
static bool load_fits(const struct nest *m, const struct uop *load, struct uop *r, bool reduced)
{
    int64_t stride;
    if (is_gated_by(m, load, r) || !nest_stride(m->t, load->src[1], r, &stride))
        return false;
    if (m->bytes && reduced)
        return load->dtype == DTYPE_I8 ? nest_is_packable(m, load) : stride == 0;
    if (stride == 0)
        return true;
    if (load->dtype != DTYPE_F32)
        return tile_is_vector_dtype(load->dtype) && load->nsrc == 2 &&
               (stride == 1 || (reduced && nest_is_packable(m, load)));
    return stride == 1 || (reduced ? nest_is_packable(m, load) : may_lie_apart(m, stride));
}

/* Whether vectors can run along r: everything that varies with it is a float, read side by side,
 * and has an operation on vectors; r itself is used in offsets only. */
bool nest_vectors_fit(const struct nest *m, struct uop *r)
{
    struct tgc *t = m->t;
    int64_t stride;
    int n;
    if (nest_stages_depend(m, r) || !nest_stride(t, m->store->src[1], r, &stride) || stride == 0 ||
        (stride != 1 && !may_lie_apart(m, stride)) ||
        !tile_stores_vectors(m->store, m->store->src[2]))
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
        for (int k = u->op == OP_LOAD; k < u->nsrc && u->op != OP_RANGE; k++) {
            bool value = u->op != OP_LOAD || k > 2;
            any |= value && map_get(&varies, u->src[k]) != NULL;
            /* r may be a part of an offset, not of a value */
            fits &= u->src[k] != r || u->dtype == DTYPE_INDEX || !value;
        }
        if (u->op == OP_LOAD)
            any |= nest_depends(t, u->src[1], r);
        if (any && u->op != OP_LOAD)
            fits &= (u->op == OP_REDUCE && (u->dtype == DTYPE_F32 || m->bytes)) ||
                    tile_is_vector_op(u) || tile_stores_bytes(m->store, u);
        if (any || (u->dtype != DTYPE_INDEX && u->op != OP_LOAD && u->op != OP_BUFFER &&
                    op_is_elementwise(u->op) && nest_depends(t, u, r)))
            map_set(&varies, u, u);
        if (map_get(&varies, u) && u->op != OP_LOAD && !any)
            fits = false;                             /* a value made of r itself */
    }
    scratch_release(t, mark);
    return fits;
}

/* Lanes done in a cycle. One step of the reduction: rows * blocks FMAs, as many broadcasts as rows,
 * as many loads as blocks. */
static double vector_gain(const struct isa_info *isa, bool reduces, int64_t rows, int64_t blocks,
                          int64_t vector)
{
    enum { UNITS = 2, PORTS = 2, ISSUE = 5, LATENCY = 4, L2_FLOATS = 8 };
    double acc = (double)(rows * blocks), loads = (double)(rows + blocks);
    double cycles = acc / UNITS;
    if (acc + (double)blocks + 1 > isa->registers)
        return 0;
    if (reduces && cycles < LATENCY)
        cycles = LATENCY;
    if (cycles < loads / PORTS)
        cycles = loads / PORTS;
    if (cycles < (acc + loads + 2) / ISSUE)
        cycles = (acc + loads + 2) / ISSUE;
    if (reduces && cycles < (double)(blocks * vector) / L2_FLOATS)
        cycles = (double)(blocks * vector) / L2_FLOATS;
    return acc * (double)vector / (cycles + 0.02 * loads);
}

/* How well a tile of `rows` does on `size` of them, the last one being smaller, per lane of those
 * that are wanted. */
static double rows_gain(const struct isa_info *isa, bool reduces, int64_t size, int64_t rows,
                        int64_t blocks, int64_t vector)
{
    double full = vector_gain(isa, reduces, rows, blocks, vector);
    int64_t rest = size % rows;
    if (rest == 0 || full == 0)
        return full;
    double last = vector_gain(isa, reduces, rest, blocks, vector);
    double cycles = (double)(size - rest) / full + (double)rest / last;
    return 0.98 * (double)size / cycles;                 /* two loop nests instead of one */
}

/* Columns of a panel: n, or a part of it. What is left is a store of its own (see split_columns),
 * or the last lanes of a vector that nobody looks at. false: such columns do not suit. */
static bool columns_suit(int64_t n, int64_t columns, int64_t vector, const struct tile *like,
                         bool exact, bool gated, int64_t *panel)
{
    *panel = like ? like->panel : columns < n ? columns : n;
    if (n % columns && columns < n ? exact : columns > n && gated)
        return false;
    return columns <= *panel ? *panel % columns == 0 : *panel == n && columns - n < vector;
}

/* Whether a load that runs along r is conditional already, or of small elements: no part of it can
 * be loaded. */
static bool has_gates(const struct nest *m, const struct uop *r)
{
    for (int i = 0; i < m->nload + m->nother; i++) {
        const struct uop *load = i < m->nload ? m->load[i] : m->other[i - m->nload];
        if ((load->nsrc > 2 || load->dtype != DTYPE_F32) && nest_depends(m->t, load->src[1], r))
            return true;
    }
    return m->store->src[2]->dtype != DTYPE_F32;
}

/* Cycles to store a lane, for each step of the reduction. */
static double store_cost(const struct nest *m, struct uop *r)
{
    double steps = 1;
    int64_t stride;
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        steps *= m->reduce->src[k]->src[0]->vmax > 0 ? (double)m->reduce->src[k]->src[0]->vmax : 1;
    bool apart = !nest_stride(m->t, m->store->src[1], r, &stride) || stride != 1;
    return (apart ? 1.5 : 0.1) / steps;
}

static void try_vectors(const struct nest *m, const struct isa_info *isa, const struct tile *like,
                        bool exact, struct tile *best, int axis, int64_t vector)
{
    int64_t n = range_fixed_size(m->store->src[axis]), panel;
    double storing = store_cost(m, m->store->src[axis]);
    bool gated = has_gates(m, m->store->src[axis]);
    for (int64_t blocks = 1; blocks <= VECTOR_BLOCKS_MAX; blocks++) {
        int64_t columns = blocks * vector, tiles = (n + columns - 1) / columns;
        if (!columns_suit(n, columns, vector, like, exact, gated, &panel))
            continue;
        double used =
            (double)n / (double)(tiles * columns) * (n > columns && n % columns ? 0.98 : 1);
        for (int a = m->first; a <= m->store->nsrc; a++) {
            bool none = a == m->store->nsrc;             /* one row */
            int64_t size = none ? 1 : range_fixed_size(m->store->src[a]);
            if (!none && (size < 2 || a == axis || !m->reduce || !rows_fit(m, m->store->src[a])))
                continue;
            for (int64_t rows = none ? 1 : 2; rows <= size && rows <= VECTOR_ROWS_MAX; rows++) {
                double gain = used * rows_gain(isa, m->reduce != NULL, size, rows, blocks, vector);
                gain = gain > 0 ? 1 / (1 / gain + storing) : 0;
                if (gain <= best->gain)
                    continue;
                *best = (struct tile){.column_axis = axis, .row_axis = none ? -1 : a,
                                      .panel = panel, .columns = columns, .rows = rows,
                                      .vector = (int)vector, .gain = gain};
            }
        }
    }
}

struct tile tile_choose_vectors(const struct nest *m, const struct isa_info *isa,
                                  const struct tile *like, bool exact)
{
    struct tile best = {.column_axis = -1};
    for (int a = m->store->nsrc - 1; a >= m->first; a--) {
        bool plain = !m->reduce || !nest_depends(m->t, m->reduce, m->store->src[a]);
        if (range_fixed_size(m->store->src[a]) < 2 || (like && like->column_axis != a) ||
            /* strip.c does that, with any size */
            (plain && a == m->store->nsrc - 1) || !nest_vectors_fit(m, m->store->src[a]))
            continue;
        for (int width = isa->lanes; width; width = width == isa->lanes ? isa->narrow : 0)
            try_vectors(m, isa, like, exact, &best, a, width);
    }
    return best;
}
