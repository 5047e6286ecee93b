/* grid_attention_matrix.c - attention on a device whose sums of products are an instruction's of ir/matrix.def
 * (online_matrix.c has the stores).
 *
 *      queries   wave · tile · m         each wave has rows of its own, and all keys and columns of them
 *      keys             tile · n         of the scores; of the weights they are terms: part · k
 *      columns          tile · n         features are terms, too: part · k
 *
 * A block copies all features of its keys to local memory, then all columns of their values, with zeros where these
 * are no whole tiles. What a nest of rows and columns updates (scores, results, parts of sums) is in the registers of
 * the threads that have these elements; such nests follow each other without a barrier.
 *
 * The model: the instruction's rate; what a thread issues besides, meanwhile if the device has units for matrices: words
 * of tiles, copies, exponentials; how many blocks a unit holds at once, by local memory and threads, which hide what the two
 * copies wait for; keys and values read once for each block.
 */
#include "passes/analysis/matrix.h"
#include "passes/kernel/grid_attention.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

enum { CHOICES_MAX = 8, WAITS = 2, PARTS = 2, PAD_NBYTES = 16, REGISTERS_MOST = 240, REGISTERS_BESIDE = 40 };
enum { LOOP_M = LOOP_COLUMN_ITEMS + 1, LOOP_N, LOOP_ROW_TILES, LOOP_COLUMN_TILES };

struct tiling {
    const struct attention *x;
    const struct matrix_row *row;
    enum matrix_unit of;
    double gflops;
    int64_t waves, tiles, keys;  /* of a block; of rows, for each wave; of a block */
    int64_t width, parts;        /* elements of keys and values that are copied at once; parts of the copies */
    double ns;
};

/* ------------------------------------------------------------------------------------- the cost */

static int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }
static double ceil_div(int64_t a, int64_t b) { return (double)((a + b - 1) / b); }

static int64_t rows_of(const struct tiling *s) { return s->waves * s->tiles * s->row->size[MATRIX_M]; }
static int64_t threads_of(const struct tiling *s) { return s->waves * s->row->lanes; }
static int64_t features_of(const struct tiling *s) { return whole(s->x->features, s->row->size[MATRIX_K]); }
static int64_t columns_of(const struct tiling *s) { return whole(s->x->columns, s->row->size[MATRIX_N]); }
static int64_t pad_of(const struct tiling *s) { return PAD_NBYTES / (int64_t)dtype_nbytes(s->row->dtype[MATRIX_A]); }

/* 32-bit words of a tile in each thread. */
static int64_t words_of(const struct tiling *s, enum matrix_part part)
{
    return matrix_elements(s->row, part) * dtype_bits(s->row->dtype[part]) / 32;
}

/* Whether the weights of a block of keys are factors where they are, in registers. */
static bool is_direct(const struct tiling *s) { return matrix_sums_are_factor(s->row, MATRIX_A); }

static int64_t local_nbytes(const struct tiling *s)
{
    int64_t rows = rows_of(s), pad = pad_of(s), f = features_of(s), c = columns_of(s), weights = is_direct(s) ? 0 : rows * (s->keys + pad);
    return (rows * (f + pad) + weights + s->parts * s->keys * (f + c + 2 * pad)) * (int64_t)dtype_nbytes(s->row->dtype[MATRIX_A]);
}

/* How many elements come at once asynchronously, if keys and values lie as widely: shares of a block are whole vectors. Threads' own
 * loads are element by element. */
static int64_t width_of(const struct tiling *s)
{
    int64_t width = s->parts > 1 ? COPY_NBYTES_MOST / (int64_t)dtype_nbytes(s->row->dtype[MATRIX_A]) : 1;
    while (width > 1 && (s->keys * features_of(s) % (threads_of(s) * width) || s->keys * columns_of(s) % (threads_of(s) * width)))
        width /= 2;
    return width;
}

/* Scores, results and parts of the sum, and the tiles of a product. */
static int64_t registers_of(const struct tiling *s)
{
    int64_t n = s->row->size[MATRIX_N], sums = s->tiles * words_of(s, MATRIX_SUM);
    return sums * (s->keys / n + columns_of(s) / n + 1) + s->tiles * words_of(s, MATRIX_A) + words_of(s, MATRIX_B);
}

static bool fits(const struct tgc *t, const struct tiling *s)
{
    const struct device_row *d = t->device;
    const int *size = s->row->size;
    /* a small block's threads have more; what comes asynchronously needs none of them */
    int64_t own = s->parts > 1 && is_direct(s) ? d->registers * d->group / threads_of(s) : d->registers;
    own = own > REGISTERS_MOST ? REGISTERS_MOST : own;
    int64_t threads = threads_of(s), most = d->group < THREADS_MOST ? d->group : THREADS_MOST,
            nbytes = s->width * (int64_t)dtype_nbytes(s->row->dtype[MATRIX_A]);
    return threads <= most && threads > 1 && rows_of(s) < 2 * whole(s->x->queries, size[MATRIX_M]) && s->keys < 2 * whole(s->x->keys, size[MATRIX_K]) &&
           s->keys % size[MATRIX_K] == 0 && s->keys % size[MATRIX_N] == 0 && s->keys * features_of(s) % threads == 0 &&
           s->keys * columns_of(s) % threads == 0 && (s->parts == 1 || (s->keys < s->x->keys && device_copies(t, nbytes))) &&
           5 * registers_of(s) <= 3 * own && local_nbytes(s) <= s->x->local_nbytes;
}

/* What a thread issues for a block of keys, in multiply-adds. */
static double issued(const struct tgc *t, const struct tiling *s)
{
    const struct device_row *d = t->device;
    const int *size = s->row->size;
    double tiles = (double)s->tiles, f = (double)features_of(s), c = (double)columns_of(s), keys = (double)s->keys, local = cost_grid_local(d),
           a = local * (double)words_of(s, MATRIX_A), b = local * (double)words_of(s, MATRIX_B), threads = (double)threads_of(s), rows = (double)rows_of(s);
    double n = size[MATRIX_N], k = size[MATRIX_K], product = device_multiplies_apart(d) ? 1 : 0;
    double weights = is_direct(s) ? (double)words_of(s, MATRIX_A) : a;
    double scores = f / k * (tiles * a + keys / n * (b + tiles * product)), results = keys / k * (tiles * weights + c / n * (b + tiles * product));
    double copies = (cost_grid_load(d) + (s->parts > 1 ? 0 : local)) * keys * (f + c) / (threads * (double)s->width);
    /* of a score the exponential, the maximum, the sum; of a result that it gets smaller */
    double power = dtype_bits(s->row->dtype[MATRIX_A]) == 16 ? ATTENTION_POWER : ATTENTION_EXPONENTIAL;
    double elements = rows * keys / threads * (power + 4) + rows * c / threads;
    /* the more waves, the longer the first of them waits for the last */
    double barriers = (s->parts > 1 ? 1 : 4) + (is_direct(s) ? 0 : 1);
    return scores + results + copies + elements + barriers * RATIO_GRID_BARRIER / 8 * (double)(s->waves < 4 ? 4 : s->waves);
}

static double tiling_ns(const struct tgc *t, const struct tiling *s)
{
    double rows = (double)rows_of(s), width = (double)(features_of(s) + columns_of(s));
    double blocks = (double)s->x->heads * ceil_div(s->x->queries, rows_of(s)), turns = ceil_div(s->x->keys, s->keys);
    struct grid_work work = {
        .blocks = blocks, .threads = (double)threads_of(s), .apart = device_multiplies_apart(t->device), .steps = s->parts > 1 ? turns : WAITS * turns, .ahead = (int)s->parts - 1,
        .issued = turns * issued(t, s), .matrix_ns = turns * 2 * rows * (double)s->keys * width / s->gflops,
        .local_nbytes = (double)local_nbytes(s), .registers = is_direct(s) ? (double)(registers_of(s) + REGISTERS_BESIDE) : 0,
        .cache_nbytes = blocks * turns * (double)s->keys * width * (double)dtype_nbytes(s->row->dtype[MATRIX_A]),
    };
    return cost_of_grid(t->device, &work, NULL);
}

static bool find_row(struct tgc *t, struct tiling *s)
{
    for (int i = 0; device_matrix(t, i, &s->of, &s->gflops); i++) {
        s->row = matrix_row(s->of);
        if (s->row->lanes == t->device->wave && s->row->dtype[MATRIX_A] == s->x->factor && s->row->dtype[MATRIX_B] == s->x->factor)
            return true;
    }
    return false;
}

static int list_tilings(const struct tgc *t, const struct tiling *of, struct tiling *best)
{
    int n = 0;
    for (int i = 0; i < 4 * 2 * 4 * PARTS; i++) {
        struct tiling s = *of;
        s.waves = 1 << i % 4, s.tiles = 1 << i / 4 % 2, s.keys = 16 << i / 8 % 4, s.parts = 1 + i / 32;
        s.width = width_of(&s);
        if (!fits(t, &s))
            continue;
        s.ns = tiling_ns(t, &s);
        int at = n < CHOICES_MAX ? n++ : CHOICES_MAX;
        for (; at > 0 && best[at - 1].ns > s.ns; at--)
            if (at < CHOICES_MAX)
                best[at] = best[at - 1];
        if (at < CHOICES_MAX)
            best[at] = s;
    }
    return n;
}

/* ------------------------------------------------------------------------------------- the opts */

static int loops_of(const struct uop *store) { return store->nsrc - store_first_range(store) - attention_bands(store); }

static bool is_of_rows(const struct uop *store, int64_t rows)
{
    return loops_of(store) == 1 && range_fixed_size(store->src[store->nsrc - 1]) == rows;
}

/* Whether threads keep their elements of what the store passes on: it updates that, row by row, or has one for each row. */
static bool is_kept(struct tgc *t, const struct tiling *s, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store->src[2], 1, &n);
    bool reads = attention_product(t, store) != NULL;
    for (int i = 0; i < n; i++)
        reads |= order[i]->op == OP_LOAD && order[i]->src[0] == store->src[0];
    return ((reads && loops_of(store) == 2) || is_of_rows(store, rows_of(s))) && uop_buffer_of(store->src[0])->kind == BUFFER_SCRATCH;
}

/* Whether the store loads or stores what threads keep. */
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

/* Rows of a nest as those of the instruction's tiles, whose threads exchange what they have of a sum. */
static void list_rows(struct place_list *l, const struct tiling *s, struct uop *store)
{
    int outer = attention_bands(store), m = s->row->size[MATRIX_M], n;
    struct uop **order = uop_toposort(l->t, &store, 1, &n);
    l->loop[outer] = LOOP_M;
    list_divide(l, LOOP_M, rows_of(s), s->tiles * m, LOOP_ROW_ITEMS);
    list_divide(l, LOOP_M, s->tiles * m, m, LOOP_ROW_TILES);
    if (s->waves > 1)
        list_add(l, OPT_ITEM, LOOP_ROW_ITEMS);
    list_lanes(l, LOOP_ROW_TILES, s->tiles, false);
    list_add(l, OPT_REPEAT, LOOP_M)->by = s->of;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE) {
            struct opt *o = list_add(l, OPT_EXCHANGE, -1);
            o->of = OF_SUM, o->number = opt_number(l->t, store, order[i]), o->by = s->of;
        }
}

/* Rows and columns of a nest as the instruction's tiles, its sum by it. */
static void list_tile(struct place_list *l, const struct tiling *s, struct uop *store, struct uop *sum)
{
    int first = store_first_range(store), outer = attention_bands(store), m = s->row->size[MATRIX_M], n = s->row->size[MATRIX_N];
    int64_t size = range_fixed_size(store->src[first + outer + 1]);
    struct opt of_sum = {.store = l->store, .of = OF_SUM, .by = s->of, .n = pad_of(s)};
    l->loop[outer] = LOOP_M;
    l->loop[outer + 1] = LOOP_N;
    list_divide(l, LOOP_M, rows_of(s), s->tiles * m, LOOP_ROW_ITEMS);
    list_divide(l, LOOP_M, s->tiles * m, m, LOOP_ROW_TILES);
    list_divide(l, LOOP_N, size, n, LOOP_COLUMN_TILES);
    if (s->waves > 1)
        list_add(l, OPT_ITEM, LOOP_ROW_ITEMS);
    list_lanes(l, LOOP_ROW_TILES, s->tiles, false);
    list_lanes(l, LOOP_COLUMN_TILES, size / n, true);
    if (sum) {
        of_sum.number = opt_number(l->t, store, sum);
        of_sum.operand = attention_operand(l->t, sum);
        if (range_fixed_size(sum->src[1]) > s->row->size[MATRIX_K]) {
            struct opt *o = list_add(l, OPT_DIVIDE, -1);
            o->of = OF_SUM, o->number = of_sum.number, o->n = s->row->size[MATRIX_K];
        }
    }
    struct opt *o = list_add(l, sum ? OPT_MATRIX : OPT_SPREAD, LOOP_M);
    o->of = sum ? OF_SUM : OF_STORE, o->number = of_sum.number, o->by = s->of, o->to = list_position(l, LOOP_N);
    if (sum) {
        o = list_add(l, OPT_WHOLE, -1);
        *o = of_sum;
        o->op = OPT_WHOLE, o->to = (int)s->width;
        if (s->parts > 1) {
            o = list_add(l, OPT_PIPELINE, -1);
            o->of = OF_SUM, o->number = of_sum.number, o->n = s->parts, o->how = TRANSFER_ASYNC;
        }
    }
}

/* The stores in their order; each that has tiles joins the one before it that has. */
static bool list_stores(struct tgc *t, const struct kernel *k, const struct tiling *s, struct opt *opt, int *n)
{
    int common = attention_common(k->ast), nkept = 0;
    struct place_list l;
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
        else if (reads_kept(t, store, kept, nkept))
            list_tile(&l, s, store, attention_product(t, store));
        else
            attention_threads(&l, store, threads_of(s));
        if (l.failed)
            return false;
        for (int j = 0; j < l.n; j++)
            opt[(*n)++] = l.opt[j];
    }
    for (int i = 0; i < nkept; i++)
        for (int j = 0; j < k->ast->nsrc; j++)
            if (k->ast->src[j]->src[0] == kept[i]) {
                opt[(*n)++] = (struct opt){.op = OPT_KEEP, .store = j};
                break;
            }
    return common > 0;
}

static bool apply_copies(struct tgc *t, struct kernel *k, const struct tiling *s)
{
    struct kernel trial = *k;
    struct online_tiles tiles = {s->row->dtype[MATRIX_A], s->row->size[MATRIX_K], s->row->size[MATRIX_N], pad_of(s),
                                 is_direct(s)};
    struct online_shape shape = {(int)rows_of(s), 1, (int)s->keys, true, &tiles};
    const char *why = "there are no such loops";
    int n = 1;
    trial.ast = online_blocks(t, k->ast, &shape);
    if (!trial.ast)
        return false;
    kernel_describe(t, &trial);
    struct opt *opt = scratch_array(t, (size_t)trial.ast->nsrc * (LIST_MAX + 2) + 1, sizeof *opt);
    opt[0] = (struct opt){.op = OPT_PASS};
    bool ok = list_stores(t, &trial, s, opt, &n) && opt_apply(t, &trial, NULL, opt, n, &why);
    if (!ok && t->debug >= 3)
        fprintf(stderr, "grid: %s: not by tiles of %s: %s\n", k->name, s->row->text, why);
    if (ok)
        *k = trial;
    return ok;
}

/* Keys or values whose neighbours are fewer, or not aligned, come by as many as lie together; those that come in no other way by
 * loads of the threads. */
static bool apply_tiling(struct tgc *t, struct kernel *k, const struct tiling *s)
{
    struct tiling of = *s;
    for (; of.width > 1; of.width /= 2)
        if (apply_copies(t, k, &of))
            return true;
    of.width = of.parts = 1;
    return apply_copies(t, k, &of);
}

bool attention_by_tiles(struct tgc *t, struct kernel *k, const struct attention *x, double ns)
{
    struct tiling s = {.x = x}, best[CHOICES_MAX] = {{.ns = 0}};
    if (!find_row(t, &s) || x->inner != x->columns)
        return false;
    for (int i = 0, n = list_tilings(t, &s, best); i < n; i++)
        if ((ns <= 0 || best[i].ns < ns) && apply_tiling(t, k, &best[i]))
            return true;
    return false;
}
