/* grid_tile.c - sums of products on a device without matrix instructions: blocks of threads with a
 * register tile each, and operands staged in shared memory.
 *
 *       rows      q · lane · item        a block: items of rows x items of columns threads,
 *       columns   q · lane · item                 each with lanes of rows x lanes of columns sums
 *
 * Adjacent threads have adjacent rows or columns, and a thread's lanes are `items` apart: loads and
 * stores of a block are coalesced. The sum goes in steps; each stages what the block reads of both
 * operands, if that is less than what its threads read. A convolution is staged tap by tap, without
 * an im2col matrix. Its rows are the pixels of an image, if that fills tiles better than those of
 * one row (FLATTEN). In products of bytes the groups are the terms: words of four bytes of either
 * operand, and one dot product where the device has it.
 *
 * Cost model: time of the multiply-adds and their loads, including tiles that reach beyond the
 * result; occupancy; and the operands' bytes, once for each block. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/grid_product.h"
#include "passes/target/compared.h"

/* A step is the part of the sum between two barriers. Its terms divide the sum, at most STEP_MOST
 * and at least STEP_LEAST of them. Where that leaves fewer than STEP_FULL and the sum has at least
 * STEPS_COVER steps of STEP_MOST, these are taken and the last one is masked. */
enum { STEP_MOST = 16, STEP_LEAST = 4, STEP_FULL = 7, STEPS_COVER = 4 };
enum { TILES_MAX = 12 };         /* candidates that are kept */

struct block_tile {
    int64_t row_items, row_lanes, column_items, column_lanes;
    bool local, doubled;
    double ns;
};

static int64_t most_iterations(const struct uop *r)
{
    return r->src[0]->vmax > 0 ? r->src[0]->vmax : 1;
}

bool product_may_cut(const struct nest *m, const struct uop *r)
{
    return RANGE_AXIS(r->arg.i) == AXIS_LOOP && !range_is_lane(r) && !nest_axis(m, r).stages;
}

/* Chooses the two largest loops of which each reads operands that the other does not. Among equals
 * the innermost ones, which are contiguous. patched: the last loop is one of them. */
static bool find_sides(struct product *x, bool patched)
{
    const struct uop *s = x->m.store;
    double most = 0;
    for (int r = x->m.first; r < s->nsrc; r++)
        for (int c = x->m.first; c < s->nsrc; c++) {
            struct operands of_r = nest_axis(&x->m, s->src[r]).reads,
                            of_c = nest_axis(&x->m, s->src[c]).reads;
            double both = (double)most_iterations(s->src[r]) * (double)most_iterations(s->src[c]);
            if (r == c || (patched && r != s->nsrc - 1 && c != s->nsrc - 1) ||
                !product_may_cut(&x->m, s->src[r]) || !product_may_cut(&x->m, s->src[c]) ||
                !operands_any(of_r) || !operands_any(of_c) ||
                operands_any(operands_both(of_r, of_c)) || both < most ||
                most_iterations(s->src[r]) < 2 || most_iterations(s->src[c]) < 2)
                continue;
            most = both;
            x->row = r < c ? r : c;
            x->column = r < c ? c : r;
        }
    return most > 0;
}

static int64_t stride_along(struct tgc *t, struct uop *offset, const struct uop *r)
{
    int64_t stride;
    return index_stride(t, offset, r, &stride) ? stride : 0;
}

/* Swaps rows and columns if the result is contiguous along rows. */
static void order_sides(struct product *x)
{
    struct uop *const *loop = x->m.store->src;
    if (stride_along(x->m.t, loop[1], loop[x->row]) != 1)
        return;
    int row = x->row;
    x->row = x->column;
    x->column = row;
}

/* Whether all operands that vary along the rows are contiguous and aligned along them. */
static bool rows_are_vectors(const struct product *x, int64_t n)
{
    struct tgc *t = x->m.t;
    struct uop *row = x->m.store->src[x->row];
    for (int i = 0; i < x->m.nload; i++) {
        struct uop *load = x->m.load[i];
        if (uop_depends_on(t, load, row) &&
            (stride_along(t, load->src[1], row) != 1 || load->nsrc > 2 ||
             load->dtype != DTYPE_F32 || index_divisor(t, sym_sub(t, load->src[1], row)) % n ||
             !buffer_is_aligned(t, uop_buffer_of(load->src[0]), n)))
            return false;
    }
    return range_fixed_size(row) > 0 && range_fixed_size(row) % n == 0;
}

int64_t grid_step(int64_t terms, bool alone)
{
    for (int64_t step = STEP_MOST; step >= STEP_LEAST; step--)
        if (terms > 0 && terms % step == 0 && (terms > step || !alone))
            return step;
    return 0;
}

/* Chooses the steps of the sum: its last loop, or a part of it; 0: none are worth it. A long loop
 * without a large divisor is covered, the last step zero-padded. */
static void find_step(struct product *x)
{
    const struct uop *sum = x->m.reduce;
    int last = x->last = sum->nsrc - (x->m.grouped ? 2 : 1);
    int64_t n = last > 0 ? range_fixed_size(sum->src[last]) : 0;
    x->terms = 1;
    for (int i = 1; i <= last; i++)
        x->terms = sat_mul(x->terms, most_iterations(sum->src[i]));
    x->last_terms = n;
    x->step = grid_step(n, last == 1);
    if (x->step < STEP_FULL && n >= STEPS_COVER * STEP_MOST && !x->m.grouped)
        x->step = STEP_MOST;
    x->outer = x->step == n ? last - 2 : last - 1;
    if (x->step)
        x->terms = sat_mul(x->terms / n, (n + x->step - 1) / x->step * x->step);
}

/* Whether the columns of a product of bytes are those of the weights, four bytes of which are a
 * lane. */
static bool order_bytes(struct product *x)
{
    struct uop *values, *weights, *const *loop = x->m.store->src;
    if (!x->m.grouped)
        return true;
    return nest_sums_bytes(&x->m, &values, &weights) &&
           uop_depends_on(x->m.t, weights->src[1], loop[x->column]) &&
           uop_depends_on(x->m.t, values->src[1], loop[x->row]) && grid_vector_lanes(x->m.t) > 1;
}

bool grid_find_product(struct tgc *t, struct uop *store, bool patched, struct product *x)
{
    *x = (struct product){.rest = 1};
    if (!(patched ? nest_find_anywhere : nest_find)(t, store, &x->m) || !x->m.contraction ||
        !find_sides(x, patched))
        return false;
    order_sides(x);
    if (!order_bytes(x))
        return false;
    x->unit = x->m.grouped ? DOT_BYTES : 1;
    x->nrow = most_iterations(store->src[x->row]);
    x->ncolumn = most_iterations(store->src[x->column]);
    for (int i = x->m.first; i < store->nsrc; i++)
        x->rest = i == x->row || i == x->column ? x->rest
                                                : sat_mul(x->rest, most_iterations(store->src[i]));
    find_step(x);
    int lanes = grid_vector_lanes(t);
    x->vector = lanes > 1 && grid_vector_fits(t, store, x->column, lanes) ? lanes : 1;
    x->row_vectors = lanes > 1 && rows_are_vectors(x, lanes);
    return true;
}

/* Whether the operand's rows or columns are contiguous only once it is packed. */
static bool gains_by_packing(const struct product *x, const struct uop *load, int side)
{
    return grid_vector_lanes(x->m.t) > 1 &&
           stride_along(x->m.t, load->src[1], x->m.store->src[side]) != x->unit;
}

/* ------------------------------------------------------------------------------------- the cost */

/* Whether a thread's columns are contiguous in the copy, so that it reads them as a vector although
 * the result has no vectors (its rows may be unaligned). */
static bool columns_are_near(const struct tgc *t, const struct product *x,
                             const struct block_tile *b)
{
    int lanes = grid_vector_lanes(t);
    return lanes > 1 && x->vector == 1 && b->local && !x->m.grouped && b->column_lanes % lanes == 0;
}

/* A thread's loads for one term of its sums, from both operands; contiguous ones are vectors. */
static double loads_of(const struct tgc *t, const struct product *x, const struct block_tile *b)
{
    int lanes = grid_vector_lanes(t);
    bool rows = (x->row_vectors || b->local) && b->row_lanes % lanes == 0;
    return (double)(b->row_lanes / (rows ? lanes : 1)) +
           (double)(b->column_lanes / (columns_are_near(t, x, b) ? lanes : x->vector));
}

/* Bytes of shared memory of a block. */
static int64_t copied_nbytes(const struct product *x, const struct block_tile *b)
{
    return (b->row_items * b->row_lanes + b->column_items * b->column_lanes + 2) * x->step * 4 *
           (b->doubled ? 2 : 1);
}

static struct grid_work work_of(const struct tgc *t, const struct product *x,
                                const struct block_tile *b)
{
    const struct device_row *d = t->device;
    double rows = (double)(b->row_items * b->row_lanes),
           columns = (double)(b->column_items * b->column_lanes);
    double blocks = (double)ceil_div(x->nrow, (int64_t)rows) *
                    (double)ceil_div(x->ncolumn, (int64_t)columns) * (double)x->rest;
    double threads = (double)(b->row_items * b->column_items), k = (double)x->terms;
    bool emulated = x->m.grouped && !isa_adds(d->isa, DTYPE_I8);
    double sums = (double)(b->row_lanes * b->column_lanes) * (emulated ? RATIO_GRID_DOT : 1);
    double instructions =
        sums +
        (b->local ? loads_of(t, x, b) * cost_grid_local(d)
                  : (double)(b->row_lanes + b->column_lanes) * cost_grid_load(d)) +
        1;
    /* copies, and two barriers a step, or one if double-buffered */
    if (b->local)
        instructions += (cost_grid_load(d) + 1.0 / x->vector) * (rows + columns) / threads +
                        RATIO_GRID_BARRIER / (double)x->step / (b->doubled ? 2 : 1);
    return (struct grid_work){
        .blocks = blocks,
        .threads = threads,
        .issued = k * instructions,
        .stored = (double)(b->row_lanes * b->column_lanes) * cost_grid_load(d),
        .ahead = b->doubled,
        .steps = b->local ? k / (double)x->step : 0,
        .local_nbytes = b->local ? (double)copied_nbytes(x, b) : 0,
        .cache_nbytes = blocks * k * (rows + columns) * 4 * (b->local ? 1 : RATIO_GRID_AGAIN),
    };
}

static double tile_ns(const struct tgc *t, const struct product *x, const struct block_tile *b)
{
    struct grid_work work = work_of(t, x, b);
    return cost_of_grid(t->device, &work, NULL);
}

/* Whether the device can run the tile: threads, registers, shared memory. */
static bool tile_fits(const struct tgc *t, const struct product *x, const struct block_tile *b)
{
    const struct device_row *d = t->device;
    int64_t threads = b->row_items * b->column_items;
    int64_t most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    int64_t registers = b->row_lanes * b->column_lanes + b->row_lanes + b->column_lanes;
    int64_t copied = copied_nbytes(x, b);
    if (b->doubled)                                   /* early loads */
        registers +=
            x->step * (b->row_items * b->row_lanes + b->column_items * b->column_lanes) / threads;
    if (t->no_locals)
        return threads == 1 && !b->local && b->column_lanes % x->vector == 0 &&
               4 * registers <= 3 * d->registers;
    return threads >= d->wave && threads <= most && 4 * registers <= 3 * d->registers &&
           b->column_lanes % x->vector == 0 &&
           (!b->local || (x->step && copied <= device_local_nbytes(t) / 2 &&
                          x->step * b->row_items * b->row_lanes % threads == 0 &&
                          x->step * b->column_items * b->column_lanes % threads == 0));
}

/* The tile's time, bound below by the latency of unstaged loads: a thread has few bytes in
 * flight. */
static double loaded_ns(const struct tgc *t, const struct product *x, const struct block_tile *b)
{
    const struct device_row *d = t->device;
    double blocks = (double)ceil_div(x->nrow, b->row_items * b->row_lanes) *
                    (double)ceil_div(x->ncolumn, b->column_items * b->column_lanes) *
                    (double)x->rest,
           threads = (double)(b->row_items * b->column_items),
           held = (double)d->units * __builtin_floor(d->unit_threads / threads),
           rounds = blocks > held ? blocks / held : 1;
    double loads = (double)(x->terms * (b->row_lanes + b->column_lanes)) * 4 / RATIO_GRID_FLIGHT;
    double waits = b->local ? 0 : rounds * loads * d->latency * (1 - RATIO_GRID_NEAR);
    return waits > b->ns ? waits : b->ns;
}

/* How tiles are compared: with the latency of unstaged loads, or as tiles of so many merged
 * loops. */
struct compared_as { bool loaded; int joined; };

static double ns_as(const struct tgc *t, const struct product *x, const struct block_tile *b,
                    struct compared_as as)
{
    double ns = as.loaded ? loaded_ns(t, x, b) : b->ns;
    for (int i = 0; i < as.joined; i++)
        ns /= RATIO_GRID_FLAT;
    return ns;
}

static enum schedule_kind kind_of(const struct block_tile *b)
{
    return b->local ? SCHEDULE_TILES_STAGED : SCHEDULE_TILES_DIRECT;
}

/* For tgc info --why. to: NULL: it does not ask. */
static void describe(const struct tgc *t, const struct product *x, const struct block_tile *b,
                     struct compared_as as, struct candidate *to)
{
    if (!to)
        return;
    struct grid_work work = work_of(t, x, b);
    to->parts = cost_parts_of_grid(t->device, &work);
    double waits = as.loaded ? loaded_ns(t, x, b) - b->ns : 0;
    to->parts.ns[PART_LATENCY] += waits;
    cost_close_parts(&to->parts, b->ns + waits + RATIO_GRID_LAUNCH);
    to->parts.ns[PART_BIAS] = to->ns - cost_sum_parts(&to->parts);
    to->text = mem_printf(compared(t)->t, "%lld x %lld tile, %lld thread%s of %lld x %lld%s",
                          (long long)(b->row_items * b->row_lanes),
                          (long long)(b->column_items * b->column_lanes),
                          (long long)(b->row_items * b->column_items),
                          b->row_items * b->column_items > 1 ? "s" : "", (long long)b->row_lanes,
                          (long long)b->column_lanes, b->doubled ? ", double-buffered" : "");
}

/* Lists the cheapest tiles, best first. */
static int list_tiles(const struct tgc *t, const struct product *x, struct compared_as as,
                      struct block_tile *best)
{
    int n = 0;
    for (int i = 0; i < 6 * 6 * 4 * 4 * 3; i++) {
        struct block_tile b = {.row_items = 1 << i % 6,
                               .row_lanes = 1 << i / 36 % 4,
                               .column_items = 1 << i / 6 % 6,
                               .column_lanes = 1 << i / 144 % 4,
                               .local = i / 576 < 2,
                               .doubled = i / 576 == 1};
        if (!tile_fits(t, x, &b))
            continue;
        b.ns = tile_ns(t, x, &b);
        if (compared(t))
            describe(t, x, &b, as, compare_candidate(t, kind_of(&b), ns_as(t, x, &b, as)));
        n = KEEP_BEST(best, n, TILES_MAX, &b);
    }
    return n;
}

double grid_tile_ns(struct tgc *t, const struct product *x)
{
    struct block_tile best[TILES_MAX] = {{0}};
    return list_tiles(t, x, (struct compared_as){false, 0}, best) > 0 ? best[0].ns : 0;
}

double grid_tile_loaded_ns(struct tgc *t, const struct product *x)
{
    struct block_tile best[TILES_MAX] = {{0}};
    double least = 0;
    for (int i = 0, n = list_tiles(t, x, (struct compared_as){true, 0}, best); i < n; i++) {
        double ns = loaded_ns(t, x, &best[i]);
        least = i == 0 || ns < least ? ns : least;
    }
    return least;
}

/* ------------------------------------------------------------------------------------- the opts */

/* Whether a block's threads copy the operand in vectors: contiguous and aligned along the sum's
 * last loop (along), or along rows or columns, with equal shares. */
static bool copies_vectors(const struct product *x, const struct block_tile *b,
                           const struct uop *load, bool along)
{
    struct tgc *t = x->m.t;
    struct uop *const *loop = x->m.store->src;
    const struct uop *sum = x->m.reduce;
    int64_t n = grid_vector_lanes(t);
    bool rows = uop_depends_on(t, load->src[1], loop[x->row]);
    struct uop *side = along ? sum->src[x->last] : loop[rows ? x->row : x->column];
    int64_t threads = b->row_items * b->column_items,
            across = rows ? b->row_items * b->row_lanes : b->column_items * b->column_lanes,
            own = along  ? x->step
                  : rows ? b->row_lanes
                         : x->vector;
    struct uop *begin = sym_sub(t, load->src[1], sym_muli(t, side, x->unit));
    if (x->m.grouped)
        begin = sym_sub(t, begin, sum->src[sum->nsrc - 1]);
    return n > 1 && (x->m.grouped ? !along : load->dtype == DTYPE_F32) && load->nsrc == 2 &&
           stride_along(t, load->src[1], side) == x->unit &&
           index_divisor(t, begin) % (x->unit * n) == 0 &&
           buffer_is_aligned(t, uop_buffer_of(load->src[0]), x->unit * n) &&
           x->step * across % (n * threads) == 0 && own % n == 0 &&
           (along || (range_fixed_size(side) > 0 && range_fixed_size(side) % n == 0));
}

/* Stages the operands that several threads of the block read. */
static void list_copies(struct opt_list *l, const struct product *x, const struct block_tile *b)
{
    struct tgc *t = l->t;
    int lanes = grid_vector_lanes(t);
    const struct uop *sum = x->m.reduce, *last = sum->src[x->last];
    int number = opt_number(t, x->m.store, sum);
    if (x->step < range_fixed_size(last)) {
        struct opt *steps =
            list_add(l, range_fixed_size(last) % x->step ? OPT_COVER : OPT_DIVIDE, -1);
        steps->of = OF_SUM, steps->number = number, steps->n = x->step, steps->axis = x->last - 1;
    }
    for (int i = 0; i < x->m.nload; i++) {
        int64_t stride = 0;
        bool along = index_stride(t, x->m.load[i]->src[1], last, &stride) && stride == x->unit;
        bool rows = uop_depends_on(t, x->m.load[i]->src[1], x->m.store->src[x->row]),
             columns = uop_depends_on(t, x->m.load[i]->src[1], x->m.store->src[x->column]);
        if (rows == columns)
            continue;
        struct opt *local = list_add(l, OPT_STAGE_OPERAND, -1);
        local->of = OF_SUM, local->number = number, local->operand = i, local->axis = x->outer;
        local->n = along ? x->unit * lanes : 0;      /* row padding: else the copying threads
                                                      * have bank conflicts */
        local->to = (int)x->unit * (copies_vectors(x, b, x->m.load[i], along) ? lanes : 1);
    }
    if (b->doubled) {
        struct opt *twice = list_add(l, OPT_PIPELINE, -1);
        twice->of = OF_SUM, twice->number = number, twice->n = 2;
    }
}

static bool apply_tile(struct tgc *t, struct kernel *k, int store, const struct product *x,
                       const struct block_tile *b)
{
    struct opt_list l;
    struct kernel trial = *k;
    const struct uop *s = x->m.store;
    int tag[LOOPS_MAX], n = 0, column = LOOP_GIVEN + x->column - x->m.first,
                        lanes = grid_vector_lanes(t);
    int64_t size[LOOPS_MAX], ncolumn = range_fixed_size(s->src[x->column]);
    struct block_of rows = {b->row_items,   b->row_lanes,   LOOP_ROWS,
                            LOOP_ROW_LANES, LOOP_ROW_ITEMS, lanes > 1},
                    columns = {b->column_items,   b->column_lanes / x->vector,
                               LOOP_COLUMNS,      LOOP_COLUMN_LANES,
                               LOOP_COLUMN_ITEMS, columns_are_near(t, x, b)};
    list_begin(&l, t, k->ast, store);
    if (x->vector > 1)
        list_vector(&l, column, ncolumn, x->vector);
    for (int i = 0; i < l.nloop; i++)
        if (x->m.first + i != x->row && x->m.first + i != x->column) {
            tag[n] = LOOP_GIVEN + i;
            size[n++] = most_iterations(s->src[x->m.first + i]);
        }
    list_cover(&l, range_fixed_size(s->src[x->row]), LOOP_GIVEN + x->row - x->m.first, &rows);
    if (ncolumn != x->vector || x->vector == 1)
        list_cover(&l, ncolumn / x->vector, column, &columns);
    tag[n] = LOOP_ROWS, size[n++] = INT64_MAX;
    tag[n] = LOOP_COLUMNS, size[n++] = INT64_MAX;
    list_grid(&l, tag, size, n);
    if (rows.items > 1)
        list_add(&l, OPT_ITEM, LOOP_ROW_ITEMS);
    if (columns.items > 1)
        list_add(&l, OPT_ITEM, LOOP_COLUMN_ITEMS);
    list_lanes(&l, LOOP_ROW_LANES, rows.lanes, false);
    list_lanes(&l, LOOP_COLUMN_LANES, columns.lanes, true);
    if (b->local)
        list_copies(&l, x, b);
    int threads = (int)(rows.items * columns.items);
    if (l.failed || !grid_apply(t, &trial, &l, threads > 1 ? threads : 0, 1, NULL))
        return false;
    *k = trial;
    return true;
}

/* A form of the kernel, with its cheapest tiles. joined: loops that were merged into its rows. */
struct tiled { struct shape s; int joined; struct block_tile best[TILES_MAX]; int n; };

static bool find_tiles(struct tgc *t, struct tiled *of)
{
    struct compared_as as = {false, of->joined};
    of->n = of->s.x.m.grouped && of->s.x.vector == 1 ? 0 : list_tiles(t, &of->s.x, as, of->best);
    return of->n > 0;
}

/* Takes the other form if its time is below `most` of the present one's. */
static bool take_better(struct tgc *t, struct tiled *of, struct tiled *other, double most)
{
    bool better =
        find_tiles(t, other) && (of->n == 0 || other->best[0].ns <= most * of->best[0].ns);
    if (better)
        *of = *other;
    return better;
}

/* Packs operands where that is legal and cheaper. Moves the sum's longest loop innermost if the
 * best tile is cheaper then. Joins two loops of rows (FLATTEN), and two again, as long as each join
 * makes the best tile cheaper. */
static void find_shape(struct tgc *t, struct tiled *of, int store)
{
    struct tiled *other = scratch_array(t, 1, sizeof *other),
                 *ordered = scratch_array(t, 1, sizeof *ordered);
    bool may_order = shape_order_terms(t, &of->s, store, &ordered->s);
    if (shape_pack(t, &of->s, store, false, gains_by_packing, &other->s))
        *of = *other;
    (void)find_tiles(t, of);
    if (may_order && shape_pack(t, &ordered->s, store, false, gains_by_packing, &other->s))
        *ordered = *other;
    if (may_order)
        (void)take_better(t, of, ordered, 1);
    for (other->joined = 1; of->n > 0 && shape_join_rows(t, &of->s, store, &other->s) &&
                            take_better(t, of, other, RATIO_GRID_FLAT);)
        other->joined++;
}

/* Records what became of the tile, for tgc info --why. */
static void note_applied(struct tgc *t, const struct tiled *of, const struct block_tile *b,
                         bool done)
{
    struct compared_as as = {false, of->joined};
    double ns = ns_as(t, &of->s.x, b, as);
    enum schedule_kind kind = kind_of(b);
    describe(t, &of->s.x, b, as,
             done ? compare_chosen(t, kind, ns) : compare_refused(t, kind, ns));
}

bool grid_tile(struct tgc *t, struct kernel *k, int store, int first)
{
    struct tiled *of = scratch_array(t, 1, sizeof *of);
    struct kernel grouped = *k;
    /* bytes that no matrix instruction takes */
    struct opt group = {.op = OPT_GROUP, .store = store};
    (void)opt_apply(t, &grouped, NULL, &group, 1, NULL);
    compare_forget(t, SCHEDULE_TILES_STAGED);
    compare_forget(t, SCHEDULE_TILES_DIRECT);
    if (!shape_begin(t, &of->s, &grouped, store))
        return compare_refuse(t, SCHEDULE_TILES, "it is no sum of products of two factors");
    find_shape(t, of, store);
    for (int i = first; i < of->n; i++) {
        bool done = apply_tile(t, &of->s.k, store, &of->s.x, &of->best[i]);
        if (compared(t))
            note_applied(t, of, &of->best[i], done);
        if (done) {
            *k = of->s.k;
            return true;
        }
    }
    return of->n == 0 ? compare_refuse(t, SCHEDULE_TILES, "no tile fits the registers") : false;
}
