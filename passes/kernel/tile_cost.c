/* tile_cost.c - the cost of a nest's tile: how many elements of the result are computed per ns.
 *
 * A step of the reduction takes as long as the slowest of the FMA units, the load ports, the
 * decoder and the latency of an accumulator need (cost_of_step()); a store comes once for all
 * steps. All else are factors: unused lanes, a remainder, rows that collide in one set of the L1,
 * windows that do or do not fit registers, idle threads.
 */
#include "passes/kernel/tile_cost.h"

/* -------------------------------------------------------------------- columns and rows together */

/* Whether each row has its own weights along the columns: a layer whose columns are split in two
 * (attention's heads and features), with one part of them as the rows. */
static bool columns_differ(const struct nest *m, const struct uop *column, const struct uop *row)
{
    struct nest_axis axis = nest_axis(m, column);
    return m->contraction && axis.weights && operands_within(axis.reads, nest_axis(m, row).reads);
}

/* Whether the stride of the rows is a multiple of a way, so that they share the few lines of one
 * set of the L1. */
static bool rows_share_set(const struct nest *m, const struct uop *row)
{
    int64_t stride, apart = machine_way_nbytes(machine_of(m->t), LEVEL_L1);
    for (int i = 0; i < m->nload; i++) {
        int64_t size = (int64_t)dtype_nbytes(m->load[i]->dtype);
        bool values = !m->grouped || m->load[i] != m->weights;
        if (values && index_stride(m->t, m->load[i]->src[1], row, &stride) && stride &&
            sat_mul(stride, size) % apart == 0)
            return true;
    }
    return false;
}

/* The first operand of the columns that forms a window with the rows. */
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

struct pairing tile_pair(const struct nest *m, struct uop *column, int axis)
{
    struct pairing p = {.axis = axis, .size = 1, .worth = 1};
    int64_t step;
    p.strided = index_stride(m->t, m->store->src[1], column, &p.stride);
    if (axis < 0)
        return p;
    struct uop *row = m->store->src[axis];
    p.size = row->src[0]->vmax;
    p.unknown = range_fixed_size(row) < 1;
    p.differ = columns_differ(m, column, row);
    p.share_set = rows_share_set(m, row);
    p.crosses = m->first == 3 && m->store->dtype == DTYPE_F32 &&
                index_stride(m->t, m->store->src[1], row, &step) && step == 1;
    find_window(m, column, row, &p);
    return p;
}

/* ------------------------------------------------------------------------------ a step's tile */

/* Of a machine without vectors. A step loads each operand once for all that share it, and keeps
 * those of the shorter side. A word of four bytes becomes two pairs of halves, each sum takes a
 * product of pairs from both. */
static double scalar_gain(const struct nest *m, const struct uop *column, const struct uop *row,
                          int64_t rows, int64_t columns)
{
    const struct machine *machine = machine_of(m->t);
    bool words = machine->sums_words && nest_group(m) == DTYPE_I8;
    bool floats = dtype_is_float(m->reduce->dtype);
    double acc = (double)(rows * columns), loads = 0, each = words ? 2 : 1;
    double kept = each * (double)((rows < columns ? rows : columns) + 1), places = 0;
    for (int i = 0; i < m->nload; i++) {
        bool by_row = row && operands_has(nest_axis(m, row).reads, i);
        bool by_column = operands_has(nest_axis(m, column).reads, i);
        loads += (double)((by_row ? rows : 1) * (by_column ? columns : 1));
        places += by_row && by_column ? (double)rows : 0;        /* compilers take a pointer each */
    }
    if (acc + kept + (floats ? 0 : places) >
            (floats ? machine->float_registers : machine->registers) ||
        places > machine->registers)
        return 0;
    return words ? DOT_BYTES * acc / (2 * acc + 3 * loads) : acc / (acc + loads);
}

double tile_gain_portable(const struct nest *m, const struct uop *column, const struct uop *row,
                          int64_t rows, int64_t columns)
{
    if (machine_of(m->t)->registers)
        return scalar_gain(m, column, row, rows, columns);
    /* the rows' operand is broadcast, the columns' is loaded in vectors */
    int64_t lanes = isa_lanes(isa_portable());
    double vectors = (double)((columns + lanes - 1) / lanes);
    double odd = columns % lanes ? RATIO_ODD_COLUMNS : 1;
    double used = (double)columns / (vectors * (double)lanes) * odd;
    return used * (double)rows * vectors / ((double)rows + vectors);
}

static double rows_apart(const struct nest *m, const struct pairing *p, int64_t rows)
{
    if (!p->share_set || rows <= machine_of(m->t)->level[LEVEL_L1].ways)
        return 1;
    return m->grouped ? RATIO_SHARED_SET_BYTES : RATIO_SHARED_SET;
}

/* The nest's parameters for vector_gain(). */
struct steps {
    const struct machine *machine;
    enum isa isa;
    bool reduces, apart, centered;
    enum dtype group;            /* of the weights of a grouped sum, or VOID */
    int nouter;                  /* sums around this one, with an accumulator for each of its own */
    double steps;                /* iterations of the reduction */
    int extra;                   /* operations on a vector of columns before the product */
    int64_t vector;              /* lanes */
};

int tile_column_steps(const struct nest *m, const struct uop *column)
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
    return m->contraction && !m->grouped ? more + (int)RATIO_WIDEN * widened : 0;
}

/* Iterations of the reduction; an unknown size counts with its bound. */
static double steps_of(const struct nest *m)
{
    double steps = 1;
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        steps *= m->reduce->src[k]->src[0]->vmax > 0 ? (double)m->reduce->src[k]->src[0]->vmax : 1;
    return steps;
}

/* Accumulators of the sums around this one that spill. */
static double spilled_by(const struct steps *of, double acc, double values)
{
    double outer = of->nouter * acc, most = acc + outer + values - isa_registers(of->isa);
    return most < 0 ? 0 : most < outer ? most : outer;
}

/* Lanes per ns. One step of the reduction has rows * blocks FMAs, a broadcast for each row, a load
 * for each block; if each row has its own columns, a load for each FMA. Sums of centered bytes add
 * those of the weights, as one more row. Without an instruction for products of bytes, even and odd
 * ones are separate values. */
static double vector_gain(const struct steps *of, int64_t rows, int64_t blocks)
{
    double acc = (double)((rows + of->centered) * blocks), read = of->apart ? acc : (double)blocks;
    double loads = read + (of->apart ? 1 : (double)rows), work = acc + of->extra * (double)blocks;
    double values = isa_step_registers(of->isa, of->group, (int)blocks);
    if (acc + values + of->centered > isa_registers(of->isa))
        return 0;
    double spilled = spilled_by(of, acc, values) / of->steps;
    struct cost_step step = {work, loads, read, spilled, of->vector, of->reduces};
    return (double)(rows * blocks * of->vector) / cost_of_step(of->machine, &step);
}

/* Rows that whole tiles leave; half a tile if the number of rows is unknown. */
static int64_t rows_left(const struct pairing *p, int64_t rows)
{
    return p->unknown ? rows / 2 : p->size % rows;
}

/* Efficiency of tiles of `rows` over all rows, the last tile being smaller, per used lane. */
static double rows_gain(const struct steps *of, const struct pairing *p, int64_t rows,
                        int64_t blocks)
{
    double full = vector_gain(of, rows, blocks);
    int64_t size = p->size, rest = rows_left(p, rows);
    if (rest == 0 || full == 0)
        return full;
    double last = vector_gain(of, p->unknown ? 1 : rest, blocks);
    double time = (double)(size - rest) / full + (double)rest / last;
    return RATIO_REMAINDER * (double)size / time;        /* two loop nests instead of one */
}

/* ------------------------------------------------------------------------------- other factors */

/* Adjacent rows of a window read the same vectors, as in a depthwise convolution: step k of row i
 * reads what step k + 1 of row i - 1 reads. Compilers keep these in registers: all of them if they
 * unroll a short innermost loop, otherwise those of one step, which move on to the next row. That
 * saves loads while registers suffice for them and the accumulators; beyond that everything spills.
 * It saves little if the windows and the weights exceed the L1. */
static double window_fits(const struct nest *m, enum isa isa, const struct pairing *p,
                          int64_t rows, int64_t blocks)
{
    if (!p->window)
        return 1;
    int64_t places = (rows - 1) * p->window + p->taps;
    if ((double)p->taps <= RATIO_WINDOW_TAPS
            ? (double)((rows + places) * blocks) >= RATIO_WINDOW_ROOM * isa_registers(isa)
            : p->window == 1 && (2 * rows + 1) * blocks >= isa_registers(isa))
        return RATIO_WINDOW_SPILLED;
    int64_t floats = sat_mul(sat_mul(p->steps, p->taps + places), blocks * isa_lanes(isa));
    bool near = floats <= cost_fit_nelem(machine_of(m->t), FIT_WINDOW);
    return p->window == 1 && near ? RATIO_WINDOW_SAVED : 1;
}

/* Cycles to store a lane of a tile. Lanes whose stride is a multiple of a page share a set of the
 * L1, which holds fewer lines than there are lanes. */
static double store_lane(const struct nest *m, const struct pairing *p, int64_t rows,
                         int64_t vector)
{
    const struct machine *machine = machine_of(m->t);
    int64_t way = machine_way_nbytes(machine, LEVEL_L1) / (int64_t)sizeof(float);
    if (p->strided && p->stride == 1)
        return RATIO_LANE;
    /* contiguous rows are stored by columns, see transpose_store.c */
    if (p->crosses && rows >= CROSS_ROWS_MIN && rows <= vector)
        return RATIO_LANE_CROSSED / (double)rows;
    return p->strided && p->stride % way == 0 ? RATIO_LANE_SHARED : machine->strided_cycles;
}

/* store_lane() in ns per step of the reduction, on average: the last tile has fewer rows. */
static double store_cost(const struct nest *m, const struct pairing *p, int64_t rows,
                         int64_t vector)
{
    int64_t size = p->size, rest = rows_left(p, rows);
    double cost = (double)(size - rest) * store_lane(m, p, rows, vector);
    if (rest)
        cost += (double)rest * store_lane(m, p, rest, vector);
    return cost_of_cycles(machine_of(m->t), cost / (double)size / steps_of(m));
}

/* How evenly threads can share the loops around a tile; 1: perfectly. A nest that takes less time
 * than waking threads is not shared. */
double tile_evenness(const struct nest *m, int column_axis, int64_t columns, int row_axis,
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

double tile_gain(const struct nest *m, enum isa isa, const struct pairing *p, int column_steps,
                 const struct tile *tile, double used)
{
    const int64_t rows = tile->rows, blocks = tile->columns / tile->vector;
    const enum dtype group = nest_group(m);
    struct steps of = {machine_of(m->t), isa, m->reduce != NULL, p->differ,
                       group == DTYPE_I8 && isa_centers_bytes(isa), group, m->nouter, steps_of(m),
                       column_steps, tile->vector};
    double gain = used * rows_gain(&of, p, rows, blocks);
    gain = gain > 0 ? 1 / (1 / gain + store_cost(m, p, rows, tile->vector)) : 0;
    gain *= tile_evenness(m, tile->column_axis, tile->columns, tile->row_axis, rows);
    gain *= rows_apart(m, p, rows);
    gain *= p->worth;
    return gain * window_fits(m, isa, p, rows, blocks);
}
