/* grid_attention_matrix.c - attention on a device by matrix instructions of ir/matrix.def
 * (online_matrix.c has the stores). A wave is a subgroup (warp).
 *
 *      queries   wave · tile · m      a wave has rows of its own, with all keys and columns
 *      keys             tile · n      columns of the scores; terms of the second product: part · k
 *      columns          tile · n      features are terms of the first product: part · k
 *
 * Some devices have instructions of four waves that read factors from shared memory (CUDA's wgmma
 * on warpgroups). Both products use them then: a warpgroup has 64 rows; queries, keys and values
 * lie in swizzled panels; the weights are a factor in registers. The accumulators are laid out as
 * by a wave's own instruction, so all other stores follow that instruction (MMA_LAYOUT).
 *
 * A block stages all features of a block of keys in shared memory, then all columns of their
 * values, zero-padded to whole tiles. What a nest of rows and columns updates (scores, results,
 * partial sums) stays in the registers of the threads that own the elements; such nests follow each
 * other without a barrier.
 *
 * The model, per block of keys: - the matrix instructions' rate; - what a thread issues besides
 * (loads of tiles, copies), in parallel if the device has separate matrix units; - exponentials, by
 * a unit of their own; - that each warpgroup waits for its products, while others go on; -
 * occupancy, by shared memory and threads, which hides the latency of copies; - bytes of keys and
 * values, once for each block. */
#include "passes/analysis/matrix.h"
#include "passes/kernel/grid_attention.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

enum {
    CHOICES_MAX = 8,
    WAITS = 2,
    PARTS = 2,
    BOXES = 4,
    EARLY_MOST = 16,
    PAD_NBYTES = 16,
    WAVES = 4,
    ROW_ISSUE = 12,
    REGISTERS_BESIDE = 36,
    BESIDE_LIMIT = 64,
    COMPARED = 3
};
enum { LOOP_M = LOOP_COLUMN_ITEMS + 1, LOOP_N, LOOP_ROW_TILES, LOOP_COLUMN_TILES };
enum { SCORES, RESULTS, PRODUCTS };

/* The matrix instruction of a product. */
struct instruction { const struct matrix_row *row; enum matrix_unit of; double gflops; };
struct tiling {
    const struct attention *x;
    const struct matrix_row *row;            /* that of a wave, which defines the layout of
                                              * elements */
    enum matrix_unit of;
    struct instruction by[PRODUCTS];
    bool panels;                             /* by[] are instructions of warpgroups, with
                                              * operands in panels */
    int64_t waves, tiles, keys;  /* waves of a block; tiles of rows for each wave; keys of a
                                  * block */
    int64_t width, stages;       /* vector width of the copies of keys and values; pipeline
                                  * stages */
    enum transfer how;
    double ns;
};

/* ------------------------------------------------------------------------------------- the cost */

static int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }
static int64_t rows_of(const struct tiling *s)
{
    return s->waves * s->tiles * s->row->size[MATRIX_M];
}
static int64_t threads_of(const struct tiling *s) { return s->waves * s->row->lanes; }
static int64_t features_of(const struct tiling *s)
{
    return whole(s->x->features, s->row->size[MATRIX_K]);
}
static int64_t columns_of(const struct tiling *s)
{
    return whole(s->x->columns, s->by[RESULTS].row->size[MATRIX_N]);
}
static int64_t factor_nbytes(const struct tiling *s)
{
    return (int64_t)dtype_nbytes(s->row->dtype[MATRIX_A]);
}

/* Row padding, in elements, of a product's operand in shared memory: against bank conflicts, or to
 * whole panels. */
static int64_t pad_of(const struct tiling *s, int product)
{
    int64_t n = product == SCORES ? features_of(s) : columns_of(s);
    return s->panels ? whole(n, PANEL_ROW_NBYTES / factor_nbytes(s)) - n
                     : PAD_NBYTES / factor_nbytes(s);
}

/* 32-bit registers of a tile in each thread. */
static int64_t words_of(const struct tiling *s, enum matrix_part part)
{
    return matrix_elements(s->row, part) * dtype_bits(s->row->dtype[part]) / 32;
}

/* Whether the weights can be a factor as they are, in registers. */
static bool is_direct(const struct tiling *s) { return matrix_sums_are_factor(s->row, MATRIX_A); }

static int64_t local_nbytes(const struct tiling *s)
{
    int64_t rows = rows_of(s), f = features_of(s) + pad_of(s, SCORES),
            c = columns_of(s) + pad_of(s, RESULTS),
            weights = is_direct(s) ? 0 : rows * (s->keys + pad_of(s, SCORES));
    return (rows * f + weights + s->stages * s->keys * (f + c)) * factor_nbytes(s);
}

/* Whether keys and values arrive as boxes (TMA), whoever issues them. */
static bool is_bulk(const struct tiling *s) { return s->stages > 1 && s->how == TRANSFER_BULK; }

/* Vector width of the copies, if memory allows it: each thread's share must be whole vectors. */
static int64_t width_of(const struct tiling *s)
{
    int64_t width = COPY_NBYTES_MOST / factor_nbytes(s);
    while (width > 1 && (s->keys * features_of(s) % (threads_of(s) * width) ||
                         s->keys * columns_of(s) % (threads_of(s) * width)))
        width /= 2;
    return width;
}

/* Registers of a thread: scores and what is loaded for each, results, partial sums, and a product's
 * tiles. */
static int64_t registers_of(const struct tiling *s)
{
    int64_t n = s->row->size[MATRIX_N], sums = s->tiles * words_of(s, MATRIX_SUM),
            weights = s->panels ? s->keys / s->row->size[MATRIX_K] : 1;
    return sums * ((1 + s->x->masks) * s->keys / n + columns_of(s) / n + 1) +
           s->tiles * weights * words_of(s, MATRIX_A) + (s->panels ? 0 : words_of(s, MATRIX_B));
}

/* Limit for registers_of() that leaves room for what it does not count. Compilers load fragments
 * early, which takes two thirds more. Threads that also copy and store weights to shared memory
 * need more still, so the larger budget of a small block gains less. */
static int64_t most_registers(const struct device_row *d, const struct tiling *s)
{
    int64_t own = device_registers(d, threads_of(s)), few = 3 * own / 8,
            usual = 3 * (int64_t)d->registers / 5;
    if (s->panels)
        return own - REGISTERS_BESIDE;
    return s->stages > 1 && is_direct(s) ? 3 * own / 5 : few > usual ? few : usual;
}

/* Whether threads share the copies evenly and the device can make them. */
static bool copies_fit(const struct tgc *t, const struct tiling *s)
{
    if (is_bulk(s))
        return s->panels && device_copies_boxes(t) && pad_of(s, SCORES) == 0;
    return s->keys * features_of(s) % threads_of(s) == 0 &&
           s->keys * columns_of(s) % threads_of(s) == 0 &&
           (s->stages == 1 || device_copies(t, s->width * factor_nbytes(s)));
}

static bool fits(const struct tgc *t, const struct tiling *s)
{
    const struct device_row *d = t->device;
    const int *size = s->row->size;
    int64_t threads = threads_of(s),
            most = d->group < THREADS_MOST || is_bulk(s) ? d->group : THREADS_MOST;
    if (s->panels && (!is_direct(s) || s->tiles > 1 || s->waves % WAVES ||
                      s->keys % s->by[SCORES].row->size[MATRIX_N]))
        return false;
    return threads <= most && threads > 1 &&
           rows_of(s) < 2 * whole(s->x->queries, size[MATRIX_M]) &&
           s->keys < 2 * whole(s->x->keys, size[MATRIX_K]) && s->keys % size[MATRIX_K] == 0 &&
           s->keys % size[MATRIX_N] == 0 &&
           (s->stages == 1 || s->keys * (s->stages - 1) < s->x->keys) && copies_fit(t, s) &&
           registers_of(s) <= most_registers(d, s) && local_nbytes(s) <= s->x->local_nbytes;
}

/* Whether exponentials are hardware powers of two. */
static bool has_powers(const struct tiling *s) { return dtype_bits(s->row->dtype[MATRIX_A]) == 16; }

/* Issue cost of a thread for a block of keys, in multiply-adds. cut: the share of blocks in which
 * it compares keys against a mask. */
static double issued(const struct tgc *t, const struct tiling *s, double cut)
{
    const struct device_row *d = t->device;
    const int *size = s->row->size;
    double tiles = (double)s->tiles, f = (double)features_of(s), c = (double)columns_of(s),
           keys = (double)s->keys, local = cost_grid_local(d),
           a = s->panels ? 0 : local * (double)words_of(s, MATRIX_A),
           b = s->panels ? 0 : local * (double)words_of(s, MATRIX_B),
           threads = (double)threads_of(s), rows = (double)rows_of(s);
    double k = size[MATRIX_K], product = device_multiplies_apart(d) ? 1 : 0;
    double weights = is_direct(s) ? (double)words_of(s, MATRIX_A) : a;
    double of_b = b + tiles * product, key_tiles = keys / s->by[SCORES].row->size[MATRIX_N],
           column_tiles = c / s->by[RESULTS].row->size[MATRIX_N];
    double scores = f / k * (tiles * a + key_tiles * of_b),
           results = keys / k * (tiles * weights + column_tiles * of_b);
    double copy = cost_grid_load(d) + (s->stages > 1 ? 0 : local),
           copies = is_bulk(s) ? 0 : copy * keys * (f + c) / (threads * (double)s->width);
    /* per score: the exponential, the maximum, the sum; per result: its rescaling */
    double power = has_powers(s) ? 1 : ATTENTION_EXPONENTIAL;
    double elements = rows * keys / threads * (power + 4 + cut * COMPARED) + rows * c / threads;
    /* per row: the exchange between its lanes, and the rescaling factor */
    double of_rows = tiles * (double)(words_of(s, MATRIX_SUM) / 2) * ROW_ISSUE;
    /* the more waves, the longer the first waits for the last */
    double barriers = (s->stages > 1 ? 1 : 4) + (is_direct(s) ? 0 : 1);
    return scores + results + copies + elements + of_rows +
           barriers * RATIO_GRID_BARRIER / 8 * (double)(s->waves < 4 ? 4 : s->waves);
}

/* Time of a product's instructions for a block of keys, if all units shared them. */
static double product_ns(const struct device_row *d, const struct tiling *s, int product)
{
    const struct instruction *by = &s->by[product];
    const int *size = by->row->size;
    double rows = (double)rows_of(s),
           columns = (double)(product == SCORES ? s->keys : columns_of(s)),
           terms = (double)(product == SCORES ? features_of(s) : s->keys);
    return rows / size[MATRIX_M] * columns / size[MATRIX_N] * terms / size[MATRIX_K] *
           cost_of_matrix(d, by->of, by->gflops);
}

static struct grid_work tiling_work(struct tgc *t, const struct tiling *s)
{
    struct attention_iterations through = attention_iterations(t, s->x, rows_of(s), s->keys);
    double iterations = through.all, width = (double)(features_of(s) + columns_of(s)),
           issue = issued(t, s, through.cut / iterations),
           matrix_ns = product_ns(t->device, s, SCORES) + product_ns(t->device, s, RESULTS);
    double blocks = (double)s->x->heads * (double)ceil_div(s->x->queries, rows_of(s));
    return (struct grid_work){
        .blocks = blocks,
        .rounds = through.rounds,
        .threads = (double)threads_of(s),
        .apart = device_multiplies_apart(t->device),
        .steps = s->stages > 1 ? iterations : WAITS * iterations,
        .ahead = (int)s->stages - (is_bulk(s) ? 2 : 1),
        .issued = iterations * issue,
        .matrix_ns = iterations * matrix_ns,
        .powers = has_powers(s) ? iterations * (double)rows_of(s) * (double)s->keys /
                                      (double)threads_of(s) * cost_grid_power(t->device)
                                : 0,
        .groups = cost_grid_groups(t->device, (double)threads_of(s)),
        .local_nbytes = (double)local_nbytes(s),
        .registers = is_direct(s) ? (double)(registers_of(s) + REGISTERS_BESIDE) : 0,
        .cache_nbytes = blocks * iterations * (double)s->keys * width * (double)factor_nbytes(s),
        .memory_nbytes = attention_nbytes(s->x),
    };
}

static double tiling_ns(struct tgc *t, const struct tiling *s)
{
    struct grid_work work = tiling_work(t, s);
    double ns = cost_of_grid(t->device, &work, NULL);
    work.cache_nbytes = 0;   /* among cache-bound tilings prefer the one that stalls least
                              * otherwise */
    return ns + cost_of_grid(t->device, &work, NULL) / BESIDE_LIMIT;
}

static enum schedule_kind kind_of(const struct tiling *s)
{
    return s->panels ? SCHEDULE_ATTENTION_GROUPS : SCHEDULE_ATTENTION_MATRIX;
}

/* For tgc info --why. to: NULL: it does not ask. */
static void describe(struct tgc *t, const struct tiling *s, struct candidate *to)
{
    if (!to)
        return;
    struct grid_work work = tiling_work(t, s);
    compare_work(t, to, &work);
    to->text = mem_printf(t, "%s, %lld queries x %lld keys a block, %lld threads, %lld stage%s%s",
                          s->by[SCORES].row->text, (long long)rows_of(s), (long long)s->keys,
                          (long long)threads_of(s), (long long)s->stages, s->stages > 1 ? "s" : "",
                          is_bulk(s)     ? ", bulk copies"
                          : s->stages > 1 ? ", asynchronous copies"
                                         : "");
}

static void note_applied(struct tgc *t, const struct tiling *s, bool done)
{
    if (compared(t)) {
        double ns = tiling_ns(t, s);
        describe(t, s,
                 done ? compare_chosen(t, kind_of(s), ns) : compare_refused(t, kind_of(s), ns));
    }
}

/* Finds the instruction of one wave that computes both products. */
static bool find_row(struct tgc *t, struct tiling *s)
{
    struct instruction by;
    for (int i = 0; device_matrix(t, i, &by.of, &by.gflops); i++) {
        by.row = matrix_row(by.of);
        if (by.row->lanes == t->device->wave && by.row->dtype[MATRIX_A] == s->x->factor &&
            by.row->dtype[MATRIX_B] == s->x->factor) {
            s->row = by.row, s->of = by.of;
            s->by[SCORES] = s->by[RESULTS] = by;
            return true;
        }
    }
    return false;
}

/* Whether instruction `by` wastes fewer columns beyond n than `than`, or as few and is larger. */
static bool is_nearer(int64_t n, const struct instruction *by, const struct instruction *than)
{
    int64_t own = by->row->size[MATRIX_N], other = than->row ? than->row->size[MATRIX_N] : 0;
    return !other || whole(n, own) < whole(n, other) ||
           (whole(n, own) == whole(n, other) && own > other);
}

/* Finds instructions of warpgroups that read b from panels, and for the scores a as well. false:
 * there are none for this many keys. */
static bool find_groups(const struct tgc *t, const struct tiling *of, struct tiling *s)
{
    struct instruction by;
    *s = *of;
    s->by[SCORES] = s->by[RESULTS] = (struct instruction){.row = NULL};
    s->panels = true;
    for (int i = 0; device_matrix(t, i, &by.of, &by.gflops); i++) {
        by.row = matrix_row(by.of);
        bool fits = matrix_in_shared(by.row, MATRIX_B) &&
                    by.row->lanes == WAVES * t->device->wave &&
                    by.row->dtype[MATRIX_A] == s->x->factor &&
                    by.row->dtype[MATRIX_B] == s->x->factor &&
                    by.row->size[MATRIX_M] == WAVES * s->row->size[MATRIX_M];
        if (fits && matrix_in_shared(by.row, MATRIX_A) && s->keys % by.row->size[MATRIX_N] == 0 &&
            is_nearer(s->keys, &by, &s->by[SCORES]))
            s->by[SCORES] = by;
        if (fits && matrix_sums_are_factor(by.row, MATRIX_A) &&
            is_nearer(s->x->columns, &by, &s->by[RESULTS]))
            s->by[RESULTS] = by;
    }
    return s->by[SCORES].row && s->by[RESULTS].row;
}

static int add_tiling(struct tgc *t, struct tiling *s, struct tiling *best, int n)
{
    s->width = width_of(s);
    if (!fits(t, s))
        return n;
    s->ns = tiling_ns(t, s);
    describe(t, s, compare_candidate(t, kind_of(s), s->ns));
    return KEEP_BEST(best, n, CHOICES_MAX, s);
}

/* Adds tilings by instructions of warpgroups, with copies by the threads or as boxes. */
static int add_groups(struct tgc *t, const struct tiling *of, bool bulk, struct tiling *best, int n)
{
    struct tiling s;
    if (!find_groups(t, of, &s))
        return n;
    n = add_tiling(t, &s, best, n);
    for (s.stages = 3; bulk && of->stages > 1 && s.stages <= BOXES; s.stages++)
        for (s.waves = WAVES; s.waves <= BOXES * WAVES && of->waves == 1; s.waves += WAVES) {
            s.how = TRANSFER_BULK;
            n = add_tiling(t, &s, best, n);
        }
    return n;
}

static int list_tilings(struct tgc *t, const struct tiling *of, bool bulk, struct tiling *best)
{
    int n = 0;
    for (int i = 0; i < 4 * 2 * 4 * PARTS; i++) {
        struct tiling s = *of;
        s.waves = 1 << i % 4, s.tiles = 1 << i / 4 % 2, s.keys = 16 << i / 8 % 4,
        s.stages = 1 + i / 32;
        n = add_groups(t, &s, bulk, best, add_tiling(t, &s, best, n));
    }
    return n;
}

/* ------------------------------------------------------------------------------------- the opts */

static int loops_of(const struct uop *store)
{
    return store->nsrc - store_first_range(store) - attention_bands(store);
}

static bool is_of_rows(const struct uop *store, int64_t rows)
{
    return loops_of(store) == 1 && range_fixed_size(store->src[store->nsrc - 1]) == rows;
}

/* Whether the store's result stays in registers: it updates the memory row by row, or has one
 * element for each row. */
static bool is_kept(struct tgc *t, const struct tiling *s, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store->src[2], 1, &n);
    bool reads = attention_product(t, store) != NULL;
    for (int i = 0; i < n; i++)
        reads |= order[i]->op == OP_LOAD && order[i]->src[0] == store->src[0];
    return ((reads && loops_of(store) == 2) || is_of_rows(store, rows_of(s))) &&
           uop_buffer_of(store->src[0])->kind == BUFFER_SCRATCH;
}

/* Whether the store loads or stores memory kept in registers. */
static bool reads_kept(struct tgc *t, struct uop *store, struct uop *const *kept, int nkept)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < nkept; k++)
            if (order[i] == kept[k])
                return true;
    return false;
}

/* Divides the nest's loop of rows into waves, tiles and rows of the instruction. */
static void list_waves(struct opt_list *l, const struct tiling *s, int outer,
                       const struct matrix_row *row)
{
    int m = row->size[MATRIX_M], group = WAVES * s->row->size[MATRIX_M];
    l->loop[outer] = LOOP_M;
    list_divide(l, LOOP_M, rows_of(s), s->panels ? group : s->tiles * m, LOOP_ROW_ITEMS);
    list_divide(l, LOOP_M, s->panels ? group : s->tiles * m, m, LOOP_ROW_TILES);
    if (rows_of(s) > (s->panels ? group : s->tiles * m))
        list_add(l, OPT_ITEM, LOOP_ROW_ITEMS);
    if (s->panels && group > m)
        list_add(l, OPT_ITEM, LOOP_ROW_TILES);
    else if (!s->panels)
        list_lanes(l, LOOP_ROW_TILES, s->tiles, false);
}

/* Distributes rows of a nest as the instruction's tiles are; lanes of one row combine their partial
 * sums by shuffles. */
static void list_rows(struct opt_list *l, const struct tiling *s, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(l->t, &store, 1, &n);
    list_waves(l, s, attention_bands(store), s->row);
    list_add(l, OPT_MMA_ROW_LAYOUT, LOOP_M)->by = s->of;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE) {
            struct opt *o = list_add(l, OPT_MMA_ROW_REDUCE, -1);
            o->of = OF_SUM, o->number = opt_number(l->t, store, order[i]), o->by = s->of;
        }
}

/* The store that produces what the sum reads in shared memory; -1: none does. */
static int stored_by(struct tgc *t, const struct uop *ast, struct uop *sum)
{
    int n, by = -1;
    struct uop **order = uop_toposort(t, &sum, 1, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; order[i]->op == OP_LOAD && k < ast->nsrc; k++)
            if (ast->src[k]->src[0] == order[i]->src[0])
                by = k;
    return by;
}

/* Stages a product's operand in shared memory: keys or values; in panels, the queries as well. */
static void list_factors(struct opt_list *l, const struct tiling *s, const struct uop *ast,
                         struct uop *store, struct uop *sum, int product)
{
    struct opt of_sum = {.store = l->store,
                         .of = OF_SUM,
                         .number = opt_number(l->t, store, sum),
                         .operand = attention_operand(l->t, sum)},
               *o;
    int64_t row = (product == SCORES ? features_of(s) : columns_of(s)) + pad_of(s, product);
    o = list_add(l, OPT_STAGE_WHOLE_OPERAND, -1);
    *o = of_sum;
    o->op = OPT_STAGE_WHOLE_OPERAND, o->n = pad_of(s, product),
    o->to = is_bulk(s) ? 0 : (int)s->width;
    if (s->panels) {
        o = list_add(l, OPT_SWIZZLE, -1);
        *o = of_sum;
        o->op = OPT_SWIZZLE, o->n = row;
    }
    if (s->panels && product == SCORES) {
        o = list_add(l, OPT_SWIZZLE, -1);
        o->store = stored_by(l->t, ast, sum), o->of = OF_STORE, o->n = row;
        l->failed |= o->store < 0;
    }
    if (s->stages > 1) {
        o = list_add(l, OPT_PIPELINE, -1);
        o->of = OF_SUM, o->number = of_sum.number, o->n = s->stages, o->how = s->how;
    }
}

/* Makes tiles of the nest's rows and columns, and its sum a matrix instruction. Without a sum:
 * tiles of a wave's own instruction. */
static void list_tile(struct opt_list *l, const struct tiling *s, const struct uop *ast,
                      struct uop *store, struct uop *sum, int product)
{
    int first = store_first_range(store), outer = attention_bands(store);
    const struct matrix_row *row = sum ? s->by[product].row : s->row;
    int64_t size = range_fixed_size(store->src[first + outer + 1]), n = row->size[MATRIX_N];
    list_waves(l, s, outer, row);
    l->loop[list_position(l, LOOP_M) + 1] = LOOP_N;
    list_divide(l, LOOP_N, size, n, LOOP_COLUMN_TILES);
    list_lanes(l, LOOP_COLUMN_TILES, size / n, true);
    if (sum && range_fixed_size(sum->src[1]) > row->size[MATRIX_K]) {
        struct opt *o = list_add(l, OPT_DIVIDE, -1);
        o->of = OF_SUM, o->number = opt_number(l->t, store, sum), o->n = row->size[MATRIX_K];
    }
    struct opt *o = list_add(l, sum ? OPT_MMA : OPT_MMA_LAYOUT, LOOP_M);
    o->of = sum ? OF_SUM : OF_STORE, o->number = sum ? opt_number(l->t, store, sum) : 0,
    o->by = sum ? s->by[product].of : s->of, o->to = list_position(l, LOOP_N);
    if (sum)
        list_factors(l, s, ast, store, sum, product);
}

/* The block's threads share what is stored for all of them (the queries); loads of several rows are
 * in flight together. */
static void list_shared(struct opt_list *l, const struct tiling *s, struct uop *store)
{
    int outer = attention_bands(store);
    int64_t iterations = attention_threads(l, store, threads_of(s)), lanes = EARLY_MOST;
    while (iterations % lanes)
        lanes /= 2;
    if (loops_of(store) > 1 && list_position(l, LOOP_GIVEN + outer) >= 0)
        list_lanes(l, LOOP_GIVEN + outer, lanes, false);
}

/* Lists the opts of all stores in order; each store with tiles joins the previous one that has
 * them. */
static bool list_stores(struct tgc *t, const struct kernel *k, const struct tiling *s,
                        struct opt *opt, int *n)
{
    int common = attention_common(k->ast), nkept = 0, products = 0;
    struct opt_list l;
    struct uop **kept = scratch_array(t, (size_t)k->ast->nsrc, sizeof *kept);
    for (int i = 0; i < k->ast->nsrc; i++)
        if (is_kept(t, s, k->ast->src[i]) && !reads_kept(t, k->ast->src[i]->src[0], kept, nkept))
            kept[nkept++] = k->ast->src[i]->src[0];
    for (int i = 0; i < k->ast->nsrc && common; i++) {
        struct uop *store = k->ast->src[i];
        list_begin(&l, t, k->ast, i);
        attention_places(&l, store, common);
        if (is_of_rows(store, rows_of(s)) && is_kept(t, s, store))
            list_rows(&l, s, store);
        else if (reads_kept(t, store, kept, nkept)) {
            struct uop *sum = attention_product(t, store);
            list_tile(&l, s, k->ast, store, sum, products);
            products += sum != NULL;
        } else
            list_shared(&l, s, store);
        if (l.failed)
            return false;
        for (int j = 0; j < l.n; j++)
            opt[(*n)++] = l.opt[j];
    }
    for (int i = 0; i < nkept; i++)
        for (int j = 0; j < k->ast->nsrc; j++)
            if (k->ast->src[j]->src[0] == kept[i]) {
                opt[(*n)++] = (struct opt){.op = OPT_KEEP_IN_REGISTERS, .store = j};
                break;
            }
    return common > 0;
}

static bool apply_copies(struct tgc *t, struct kernel *k, const struct tiling *s)
{
    struct kernel trial = *k;
    struct online_tiles tiles = {s->row->dtype[MATRIX_A],
                                 s->row->size[MATRIX_K],
                                 s->row->size[MATRIX_N],
                                 s->by[RESULTS].row->size[MATRIX_N],
                                 pad_of(s, SCORES),
                                 is_direct(s),
                                 s->panels};
    struct online_shape shape = {(int)rows_of(s), 1, (int)s->keys, true, &tiles};
    struct refusal refusal = {OPT_COUNT, "there are no such loops"};
    int n = 1;
    trial.ast = online_blocks(t, k->ast, &shape);
    if (!trial.ast)
        return false;
    kernel_describe(t, &trial);
    struct opt *opt = scratch_array(t, (size_t)trial.ast->nsrc * (LIST_MAX + 2) + 1, sizeof *opt);
    opt[0] = (struct opt){.op = OPT_SHARE_SCRATCH};
    bool ok = list_stores(t, &trial, s, opt, &n) && opt_apply(t, &trial, NULL, opt, n, &refusal);
    if (!ok && t->debug >= 3)
        fprintf(stderr, "grid: %s: not by tiles of %s: %s\n", k->name, s->by[SCORES].row->text,
                refusal.why);
    if (ok)
        *k = trial;
    note_applied(t, s, ok);
    return ok;
}

/* Falls back step by step: narrower copies of keys or values that are less contiguous or aligned,
 * then copies by loads of the threads. */
static bool apply_tiling(struct tgc *t, struct kernel *k, const struct tiling *s)
{
    struct tiling of = *s;
    if (is_bulk(s))
        return apply_copies(t, k, s);
    for (; of.width > 1; of.width /= 2)
        if (apply_copies(t, k, &of))
            return true;
    of.width = of.stages = 1;
    return apply_copies(t, k, &of);
}

bool attention_by_tiles(struct tgc *t, struct kernel *k, const struct attention *x, double ns)
{
    struct tiling s = {.x = x, .how = TRANSFER_ASYNC}, best[CHOICES_MAX] = {{.ns = 0}};
    if (!find_row(t, &s))
        return compared(t) &&
               compare_refuse(t, SCHEDULE_ATTENTION_MATRIX,
                              mem_printf(t, "the device has none for factors of %s",
                                         dtype_name(x->factor)));
    if (x->inner != x->columns)
        return compare_refuse(t, SCHEDULE_ATTENTION_MATRIX, "the result has columns in two loops");
    for (int bulk = 1; bulk >= 0; bulk--)        /* without boxes if keys and values are not
                                                  * boxes */
        for (int i = 0, n = list_tilings(t, &s, bulk, best); i < n; i++)
            if ((ns <= 0 || best[i].ns < ns) && apply_tiling(t, k, &best[i]))
                return true;
    return false;
}
