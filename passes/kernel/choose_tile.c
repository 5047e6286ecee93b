/* choose_tile.c - which tile a loop nest gets: the candidates, and what each of them costs.
 *
 * The columns run along a range in which every operand stands still, is contiguous, or is a weight
 * that can be packed; the rows along a range in which some operand stands still. All pairs of
 * ranges and sizes are tried. The portable kernel's tile is chosen by the multiply-adds for each
 * load; a variant's, whose columns are vectors, by the cycles that a step of the reduction takes:
 * as many as the slowest of the FMA units, the load ports, the decoder and the latency of an
 * accumulator need.
 */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tune.h"

#include <string.h>

enum { COLUMNS_MAX = 32, ROWS_MAX = 8, TILE_MAX = 64 };          /* of the portable kernel */
enum { VECTOR_ROWS_MAX = 16, VECTOR_BLOCKS_MAX = 8 };

int64_t range_fixed_size(const struct uop *range)
{
    return range->src[0]->op == OP_CONST ? range->src[0]->arg.i : 0;
}

/* -------------------------------------------------------------------------- the portable kernel */

static bool is_gated_by(const struct nest *m, const struct uop *load, const struct uop *r)
{
    return load->nsrc > 2 && uop_depends_on(m->t, load->src[2], r);
}

/* Whether columns can run along r: some operand is contiguous then. */
static bool columns_fit(const struct nest *m, struct uop *r)
{
    int64_t stride;
    bool vectors = false;
    if (nest_axis(m, r).stages || !index_stride(m->t, m->store->src[1], r, &stride))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if (is_gated_by(m, m->load[i], r) || !index_stride(m->t, m->load[i]->src[1], r, &stride))
            return false;
        vectors |= stride != 0;
        bool groups = m->bytes && stride == DOT_BYTES && m->load[i]->dtype == DTYPE_I8;
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
    return !m->contraction || !operands_equal(axis.reads, m->operands);
}

/* Multiply-adds of a vector for each load: the rows' operand is broadcast, the columns' is read in
 * vectors. */
static double gain_of(int64_t rows, int64_t columns)
{
    int64_t lanes = isa_lanes(isa_portable());
    double vectors = (double)((columns + lanes - 1) / lanes);
    double odd = columns % lanes ? RATIO_ODD_COLUMNS : 1;
    double used = (double)columns / (vectors * (double)lanes) * odd;
    return used * (double)rows * vectors / ((double)rows + vectors);
}

/* The best tiles so far, best first; of equals the first. `want`: this one alone is looked for. */
struct shortlist {
    struct tile *tile; int n, most;
    bool orders;                 /* are candidates of their own */
    const struct tile *want;
};

static void insert(struct shortlist *s, const struct tile *tile)
{
    int at = s->n;
    if (tile->gain <= 0 || (s->want && !tiles_are_equal(s->want, tile)))
        return;
    while (at > 0 && s->tile[at - 1].gain < tile->gain)
        at--;
    if (at == s->most)
        return;
    s->n += s->n < s->most;
    memmove(&s->tile[at + 1], &s->tile[at], (size_t)(s->n - at - 1) * sizeof *s->tile);
    s->tile[at] = *tile;
}

/* Both orders of a tile's loops are candidates, where only the order differs the second thoughts
 * come later. */
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

static void try_rows(const struct nest *m, struct shortlist *s, struct tile tile)
{
    tile.row_axis = -1;
    tile.rows = 1;
    for (int a = m->first; a < m->store->nsrc; a++) {
        int64_t n = range_fixed_size(m->store->src[a]);
        /* a size known only at run time divides by nothing */
        if (n < 1 || a == tile.column_axis || !rows_fit(m, m->store->src[a]))
            continue;
        for (int64_t rows = 1; rows <= ROWS_MAX && rows * tile.columns <= TILE_MAX; rows++) {
            struct tile by = tile;
            by.row_axis = a;
            by.rows = rows;
            by.gain = gain_of(rows, tile.columns);
            if (n % rows == 0)
                consider(m, s, by);
        }
    }
    tile.gain = gain_of(1, tile.columns);
    consider(m, s, tile);
}

/* From the innermost range outwards, so that equal gains keep the output's contiguous range for the
 * columns. `like`: a variant's tile, whose panel is to be kept, or NULL. */
static void list_portable(const struct nest *m, const struct tile *like, struct shortlist *s)
{
    for (int a = m->store->nsrc - 1; a >= m->first && m->contraction; a--) {
        int64_t n = range_fixed_size(m->store->src[a]);
        if (n < 2 || (like && like->column_axis != a) || !columns_fit(m, m->store->src[a]))
            continue;
        for (int64_t columns = 2; columns <= COLUMNS_MAX; columns++)
            if (like ? like->panel % columns == 0 : n % columns == 0)
                try_rows(m, s,
                         (struct tile){.column_axis = a,
                                       .panel = like ? like->panel : columns,
                                       .columns = columns});
    }
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
    if (is_gated_by(m, load, r) || !index_stride(m->t, load->src[1], r, &stride))
        return false;
    if (m->bytes && reduced)
        return load->dtype == DTYPE_I8 ? stride == DOT_BYTES || nest_is_packable(m, load)
                                       : stride == 0;
    if (stride == 0)
        return true;
    if (load->dtype != DTYPE_F32)
        return tile_is_vector_dtype(load->dtype) && load->nsrc == 2 &&
               (stride == 1 || (reduced && nest_is_packable(m, load)));
    bool apart = may_lie_apart(m, stride);
    return stride == 1 || (reduced ? nest_is_packable(m, load) && (apart || !m->staged) : apart);
}

/* Whether what is computed along r is stored apart, since it is read side by side: an image whose
 * few channels become neighbours. */
static bool may_cross(const struct nest *m, const struct uop *r, int64_t stride)
{
    enum { CHANNELS_MAX = 4 };
    const struct uop *last = m->store->src[m->store->nsrc - 1];
    int64_t n = range_fixed_size(last);
    return !m->reduce && m->nother > 0 && r != last && n > 0 && n <= CHANNELS_MAX &&
           op_is_elementwise(m->store->src[2]->op) && stride > 0 && stride <= VECTOR_STRIDE_MAX;
}

/* Whether what is read side by side along r is stored side by side along the innermost range, as
 * where the order of axes changes: rows of vectors along r are stored by their columns, see
 * transpose_store.c. Vectors along the innermost range would be better, but something that is read
 * lies apart there. */
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

/* Whether vectors can run along r: everything that varies with it is a float, read side by side,
 * and has an operation on vectors; r itself is used in offsets only. */
bool nest_vectors_fit(const struct nest *m, struct uop *r)
{
    struct tgc *t = m->t;
    int64_t stride;
    int n;
    if (nest_axis(m, r).stages || !index_stride(t, m->store->src[1], r, &stride) || stride == 0 ||
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
            /* r may be a part of an offset, not of a value */
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
            fits = false;                             /* a value made of r itself */
    }
    scratch_release(t, mark);
    return fits;
}

/* What the costs of tiles want to know of the columns' range together with the rows', or with none:
 * asked once, not for each size of a tile. */
struct pairing {
    int axis;                    /* the rows', of store->src; -1: one row */
    int64_t size;                /* of the row's range */
    bool strided; int64_t stride;               /* the store's, along the columns */
    bool crosses;                /* its columns' rows are contiguous in memory */
    bool differ;                 /* see columns_differ() */
    bool share_set;              /* see rows_share_set() */
    /* A window: row i reads at step k what row i - 1 reads at step k + window, of `taps`; so many
     * `steps` of all others. 0: there is none. */
    int64_t window, taps, steps;
};

/* Rows that are neighbours in a window read the same vectors, as in a depthwise convolution: step k
 * of row i what step k + 1 of row i - 1 reads. Compilers keep these in registers: all of them where
 * they unroll a short innermost loop, otherwise those of one step, which move on to the next row.
 * That saves loads, as long as there are registers for them and for the accumulators; beyond, all
 * of it is spilled. It saves little where the windows and the weights are more than the L1
 * holds. */
static double window_fits(const struct nest *m, enum isa isa, const struct pairing *p,
                          int64_t rows, int64_t blocks)
{
    enum { TAPS_MAX = 8 };
    if (!p->window)
        return 1;
    int64_t places = (rows - 1) * p->window + p->taps;
    if (p->taps <= TAPS_MAX ? (double)((rows + places) * blocks) >=
                                  RATIO_WINDOW_ROOM * isa_registers(isa)
                            : p->window == 1 && (2 * rows + 1) * blocks >= isa_registers(isa))
        return RATIO_WINDOW_SPILLED;
    int64_t floats = sat_mul(sat_mul(p->steps, p->taps + places), blocks * isa_lanes(isa));
    bool near = floats <= cost_fit_nelem(machine_of(m->t), FIT_WINDOW);
    return p->window == 1 && near ? RATIO_WINDOW_SAVED : 1;
}

/* Whether each row has weights of its own along the columns: a layer whose columns are split in two
 * (attention's heads and features), seen with one part of them as the rows. */
static bool columns_differ(const struct nest *m, const struct uop *column, const struct uop *row)
{
    struct operands o = nest_axis(m, column).reads, weights = o;
    for (int i = 0; i < 2; i++)
        weights.bit[i] &= m->stationary.bit[i];
    return m->contraction && operands_any(weights) &&
           operands_within(o, nest_axis(m, row).reads);
}

/* Whether rows lie a multiple of a way apart in memory, and so share the few lines of one set of
 * the L1. */
static bool rows_share_set(const struct nest *m, const struct uop *row)
{
    int64_t stride, apart = machine_way_nbytes(machine_of(m->t), LEVEL_L1);
    for (int i = 0; i < m->nload; i++) {
        int64_t size = (int64_t)dtype_nbytes(m->load[i]->dtype);
        bool values = !m->bytes || m->load[i]->dtype == DTYPE_U8;
        if (values && index_stride(m->t, m->load[i]->src[1], row, &stride) && stride &&
            sat_mul(stride, size) % apart == 0)
            return true;
    }
    return false;
}

/* The first operand of the columns that a window walks along the rows. */
static void find_window(const struct nest *m, const struct uop *column, const struct uop *row,
                        struct pairing *p)
{
    const struct uop *step =
        m->reduce && m->reduce->nsrc > 1 ? m->reduce->src[m->reduce->nsrc - 1] : NULL;
    int64_t down, along, taps = step ? range_fixed_size(step) : 0, steps = 1;
    struct operands of = nest_axis(m, column).reads;
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        steps = sat_mul(steps, range_fixed_size(m->reduce->src[k]));
    for (int i = 0; taps > 1 && i < m->nload; i++) {
        struct uop *offset = m->load[i]->src[1];
        if (!operands_has(of, i) || !index_stride(m->t, offset, row, &down) ||
            !index_stride(m->t, offset, step, &along) || along == 0 || down % along ||
            down / along < 1 || down / along >= taps)
            continue;
        p->window = down / along;
        p->taps = taps;
        p->steps = steps / taps;
        return;
    }
}

static struct pairing pair(const struct nest *m, struct uop *column, int axis)
{
    struct pairing p = {.axis = axis, .size = 1};
    int64_t step;
    p.strided = index_stride(m->t, m->store->src[1], column, &p.stride);
    if (axis < 0)
        return p;
    struct uop *row = m->store->src[axis];
    p.size = range_fixed_size(row);
    p.differ = columns_differ(m, column, row);
    p.share_set = rows_share_set(m, row);
    p.crosses = m->first == 3 && m->store->dtype == DTYPE_F32 &&
                index_stride(m->t, m->store->src[1], row, &step) && step == 1;
    find_window(m, column, row, &p);
    return p;
}

static double rows_apart(const struct nest *m, const struct pairing *p, int64_t rows)
{
    if (!p->share_set || rows <= machine_of(m->t)->level[LEVEL_L1].ways)
        return 1;
    return m->bytes ? RATIO_SHARED_SET_BYTES : RATIO_SHARED_SET;
}

/* How a nest is seen by vector_gain(). */
struct steps {
    const struct machine *machine;
    bool reduces, apart, centered, emulated;
    int extra;                   /* operations on a vector of columns before it is multiplied */
};

/* Small elements are widened, what is made of several loads is computed. */
static int extra_of(const struct nest *m, const struct uop *column)
{
    enum { FACTORS = 2 };
    int columns = 0, widened = 0;
    for (int i = 0; i < m->nload; i++) {
        bool depends = operands_has(nest_axis(m, column).reads, i);
        columns += depends;
        widened += depends && m->load[i]->dtype != DTYPE_F32;
    }
    int factors = columns < m->nload ? FACTORS - 1 : FACTORS;
    int more = columns > factors ? columns - factors : 0;
    return m->contraction && !m->bytes ? more + (int)RATIO_WIDEN * widened : 0;
}

/* Lanes done in a ns. One step of the reduction: rows * blocks FMAs, as many broadcasts as rows,
 * as many loads as blocks; if rows have columns of their own, as many as there are FMAs. Sums of
 * centered bytes have those of the weights beside them, as one more row; where no instruction adds
 * up products of bytes, the even and the odd ones are values of their own. */
static double vector_gain(enum isa isa, struct steps of, int64_t rows, int64_t blocks,
                          int64_t vector)
{
    double acc = (double)((rows + of.centered) * blocks), read = of.apart ? acc : (double)blocks;
    double loads = read + (of.apart ? 1 : (double)rows), work = acc + of.extra * (double)blocks;
    double values = of.emulated ? 2 * (double)blocks + 4 : (double)blocks + 1;
    if (acc + values + of.centered > isa_registers(isa))
        return 0;
    struct cost_step step = {work, loads, read, vector, of.reduces};
    return (double)(rows * blocks * vector) / cost_of_step(of.machine, &step);
}

/* How well a tile of `rows` does on `size` of them, the last one being smaller, per lane of those
 * that are wanted. */
static double rows_gain(enum isa isa, struct steps of, int64_t size, int64_t rows,
                        int64_t blocks, int64_t vector)
{
    double full = vector_gain(isa, of, rows, blocks, vector);
    int64_t rest = size % rows;
    if (rest == 0 || full == 0)
        return full;
    double last = vector_gain(isa, of, rest, blocks, vector);
    double time = (double)(size - rest) / full + (double)rest / last;
    return RATIO_REMAINDER * (double)size / time;        /* two loop nests instead of one */
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

/* Whether the last of n columns, where they are no whole vector, may be computed together with
 * columns that another tile stores, too: the same values, by one thread. */
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

/* Cycles to store a lane of a tile. Lanes a multiple of a page apart share a set of the L1, which
 * holds fewer lines than they have. */
static double store_lane(const struct nest *m, const struct pairing *p, int64_t rows,
                         int64_t vector)
{
    const struct machine *machine = machine_of(m->t);
    int64_t way = machine_way_nbytes(machine, LEVEL_L1) / (int64_t)sizeof(float);
    if (!p->strided)
        return machine->strided_cycles;
    if (p->stride == 1)
        return RATIO_LANE;
    /* rows that are contiguous in memory are stored so, see transpose_store.c */
    if (p->crosses && rows >= CROSS_ROWS_MIN && rows <= vector)
        return RATIO_LANE_CROSSED / (double)rows;
    return p->stride % way == 0 ? RATIO_LANE_SHARED : machine->strided_cycles;
}

/* The same in ns for each step of the reduction, on average: the last rows are fewer. */
static double store_cost(const struct nest *m, const struct pairing *p, int64_t rows,
                         int64_t vector)
{
    int64_t size = p->size, rest = size % rows;
    double cost = (double)(size - rest) * store_lane(m, p, rows, vector), steps = 1;
    if (rest)
        cost += (double)rest * store_lane(m, p, rest, vector);
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        steps *= m->reduce->src[k]->src[0]->vmax > 0 ? (double)m->reduce->src[k]->src[0]->vmax : 1;
    return cost_of_cycles(machine_of(m->t), cost / (double)size / steps);
}

/* How evenly threads can share what a tile leaves of the nest's loops: 1, all have as much to do. A
 * nest that is done before they have woken up is not shared. */
static double evenness(const struct nest *m, int column_axis, int64_t columns, int row_axis,
                       int64_t rows)
{
    double threads = m->t->threads, steps = 1, best = 1 / threads;
    if (m->t->threads < 2)
        return 1;
    for (int k = m->first; k < m->store->nsrc; k++) {
        double n = (double)m->store->src[k]->src[0]->vmax;
        double each = k == column_axis ? (double)columns : k == row_axis ? (double)rows : 1;
        double loops = n > each ? __builtin_floor(n / each) : 1;
        double even = loops / (threads * __builtin_ceil(loops / threads));
        best = even > best ? even : best;
        steps *= n;
    }
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        steps *= (double)m->reduce->src[k]->src[0]->vmax;
    return steps < RATIO_THREAD_STEPS ? 1 : best;
}

/* All tiles of so many columns, and of any number of those rows. */
static void try_columns(const struct nest *m, enum isa isa, const struct pairing *p, int npair,
                        struct steps of, struct tile tile, double used, struct shortlist *s)
{
    int64_t blocks = tile.columns / tile.vector;
    for (int i = 0; i < npair; i++) {
        const struct pairing *by = &p[i];
        of.apart = by->differ;
        int64_t most = by->size < VECTOR_ROWS_MAX ? by->size : VECTOR_ROWS_MAX;
        tile.row_axis = by->axis;
        for (tile.rows = by->axis < 0 ? 1 : 2; tile.rows <= most; tile.rows++) {
            double gain = used * rows_gain(isa, of, by->size, tile.rows, blocks, tile.vector);
            gain = gain > 0 ? 1 / (1 / gain + store_cost(m, by, tile.rows, tile.vector)) : 0;
            gain *= evenness(m, tile.column_axis, tile.columns, tile.row_axis, tile.rows);
            gain *= rows_apart(m, by, tile.rows);
            gain *= window_fits(m, isa, by, tile.rows, blocks);
            tile.gain = gain;
            consider(m, s, tile);
        }
    }
}

/* The rows that go with columns along that axis: each range that suits, and none. */
static int list_pairs(const struct nest *m, int axis, struct pairing *p)
{
    struct uop *column = m->store->src[axis];
    bool turned = may_transpose(m, column);
    int n = 0;
    for (int a = m->first; a < m->store->nsrc; a++) {
        struct uop *row = m->store->src[a];
        if (range_fixed_size(row) >= 2 && a != axis && rows_fit(m, row) &&
            (m->reduce || (turned && a == m->store->nsrc - 1)))
            p[n++] = pair(m, column, a);
    }
    p[n++] = pair(m, column, -1);
    return n;
}

static void try_vectors(const struct nest *m, enum isa isa, const struct tile *like,
                        bool exact, struct shortlist *s, int axis, const struct pairing *p,
                        int npair, int64_t vector)
{
    struct uop *column = m->store->src[axis];
    int64_t n = range_fixed_size(column), panel;
    bool gated = nest_has_gates(m, column);
    int half = isa_half_lanes(isa);
    struct steps of = {machine_of(m->t), m->reduce != NULL, false,
                       m->bytes && isa_centers_bytes(isa), m->bytes && !isa_adds_bytes(isa),
                       extra_of(m, column)};
    for (int64_t blocks = 1; blocks <= VECTOR_BLOCKS_MAX; blocks++) {
        int64_t columns = blocks * vector, tiles = (n + columns - 1) / columns;
        if (!columns_suit(n, columns, vector, like, exact, gated, &panel))
            continue;
        /* what is left over: part of a vector, or, with gates, whole ones or one by one */
        int64_t last = n % columns, lanes = tiles * columns;
        if (gated && n > columns)
            lanes = n - last + (tile_may_overlap(m, vector, n) ? align_up(last, vector)
                                                               : last * vector);
        else if (!m->bytes && n > vector && vector == 2 * half && n % vector == half)
            lanes -= half;                            /* half a vector, see half_vectors.c */
        bool rest = n > columns && n % columns;
        double used = (double)n / (double)lanes * (rest ? RATIO_REMAINDER : 1);
        struct tile tile = {.column_axis = axis, .panel = panel, .columns = columns,
                            .vector = (int)vector};
        try_columns(m, isa, p, npair, of, tile, used, s);
    }
}

static void list_vectors(const struct nest *m, enum isa isa, const struct tile *like,
                         bool exact, struct shortlist *s)
{
    for (int a = m->store->nsrc - 1; a >= m->first; a--) {
        bool plain = !m->reduce || !uop_depends_on(m->t, m->reduce, m->store->src[a]);
        if (range_fixed_size(m->store->src[a]) < 2 || (like && like->column_axis != a) ||
            /* strip.c does that, with any size */
            (plain && a == m->store->nsrc - 1) || !nest_vectors_fit(m, m->store->src[a]))
            continue;
        struct pairing p[64];
        int npair = list_pairs(m, a, p);
        try_vectors(m, isa, like, exact, s, a, p, npair, isa_lanes(isa));
        if (isa_half_lanes(isa))
            try_vectors(m, isa, like, exact, s, a, p, npair, isa_half_lanes(isa));
    }
}

struct tile tile_choose_vectors(const struct nest *m, enum isa isa,
                                const struct tile *like, bool exact)
{
    struct tile best = {.column_axis = -1};
    struct shortlist s = {.tile = &best, .most = 1};
    list_vectors(m, isa, like, exact, &s);
    if (s.n > 0)
        best.panels = tile_place_panels(m, &best);
    return best;
}

/* ------------------------------------------------------------------------------- what is chosen */

static void list_all(const struct nest *m, enum isa isa, const struct tile *like,
                     struct shortlist *s)
{
    if (!isa_is_portable(isa))
        list_vectors(m, isa, like, true, s);
    if (s->n == 0)
        list_portable(m, like, s);
}

/* The axes as a tune file counts them, from the nest's first one on; and back. */
static struct tile count_from(struct tile tile, int first)
{
    tile.column_axis -= first;
    tile.row_axis = tile.rows > 1 ? tile.row_axis - first : -1;
    return tile;
}

/* What an entry says, if it is a candidate. */
static struct tile tuned_tile(const struct nest *m, const struct tuned *e, const struct tile *like)
{
    struct tile want = e->tile, found = {.column_axis = -1};
    struct shortlist s = {.tile = &found, .most = 1, .orders = true, .want = &want};
    want = count_from(want, -m->first);
    list_all(m, e->isa, like, &s);
    if (s.n == 0)
        tune_misfit(m->t, e, "the kernel of this key cannot be tiled like this");
    return found;
}

struct tile tile_choose(const struct nest *m, enum isa isa, const struct tile *like,
                        struct kernel *k, int nest)
{
    struct tgc *t = m->t;
    struct tile best = {.column_axis = -1};
    struct shortlist s = {.tile = &best, .most = 1};
    bool tunable = t->tuning && k;
    if (tunable) {
        s.orders = true;
        s.most = t->tuning->width > 1 ? t->tuning->width : 1;
        s.tile = mem_array(t, (size_t)s.most, sizeof *s.tile);
    }
    list_all(m, isa, like, &s);
    if (s.n == 0)
        return (struct tile){.column_axis = -1};
    best = s.tile[0];
    if (!s.orders)
        best.panels = tile_place_panels(m, &best);
    if (!tunable)
        return best;
    struct choice c = {.kernel = k, .nest = nest, .n = s.n,
                       .taken = {.kind = TUNE_TILE, .key = tune_key_of_nest(m, like), .isa = isa},
                       .candidate = mem_array(t, (size_t)s.n, sizeof *c.candidate)};
    c.by = tune_find(t, TUNE_TILE, c.taken.key, isa);
    best = c.by ? tuned_tile(m, c.by, like) : best;
    for (int i = 0; i < s.n; i++) {
        c.candidate[i] = c.taken;
        c.candidate[i].tile = count_from(s.tile[i], m->first);
    }
    c.taken.tile = count_from(best, m->first);
    tune_note(t, c);
    return best;
}
