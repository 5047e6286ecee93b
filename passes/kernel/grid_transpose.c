/* grid_transpose.c - transposing stores: no sums, loads strided where stores are contiguous. A
 * block stages a tile in shared memory, so that both are coalesced, 16 bytes a thread where aligned
 * (opt STAGE_EPILOGUE).
 *
 *       t[64*p + c] = x[49*c + p]     coalesced loads along p      tile[72*p + c] = x[49*c + p]
 *                                     coalesced stores along c     t[64*p + c] = tile[72*p + c]
 *
 * Unstaged, each thread of a subgroup would access a line of its own and use one element of each
 * sector.
 *
 * Cost model: bytes by sectors, including blocks that reach beyond the tensor; what threads issue;
 * and bank conflicts, against which the tile's rows are padded. */
#include "passes/analysis/banks.h"
#include "passes/kernel/grid_product.h"
#include "passes/target/target.h"

/* ISSUED_EACH: address arithmetic of an access, in multiply-adds. BESIDE_LIMIT: costs that do not
 * bound the time count at 1/64, to break ties. */
enum { SECTOR_NBYTES = 32, WORD_NBYTES = 4, LANES = 32, ISSUED_EACH = 8, BESIDE_LIMIT = 64 };
enum { SIDE_MOST = 128, PAD_NBYTES_MOST = 64, TURN_THREADS_LEAST = 64, TURN_THREADS_MOST = 256 };

/* row, column: the loops, by position, along which loads and stores are contiguous. load_width,
 * width: their vector widths. loaded, passed, stored: bytes of an element that is loaded, staged,
 * stored. loads: the value's loads that vary along both. */
struct transposed {
    struct nest m;
    int row, column;
    int64_t nrow, ncolumn, load_width, width, loaded, passed, stored;
    double rest;
    int loads;
};

struct transpose_tile { int64_t rows, columns, threads, pad; double ns; };

static bool is_one(struct tgc *t, struct uop *offset, const struct uop *r)
{
    int64_t stride;
    return index_stride(t, offset, r, &stride) && stride == 1;
}

/* Vector width of the load along the row. */
static int64_t load_width(struct tgc *t, const struct uop *load, struct uop *row)
{
    int64_t nbytes = (int64_t)dtype_nbytes(load->dtype), width = COPY_NBYTES_MOST / nbytes;
    struct uop *rest = sym_sub(t, load->src[1], row);
    while (width > 1 && (load->nsrc > 2 || !device_stores(t, width * nbytes) ||
                         range_fixed_size(row) % width || index_divisor(t, rest) % width ||
                         !buffer_is_aligned(t, uop_buffer_of(load->src[0]), width)))
        width /= 2;
    return width;
}

/* Whether loop `at` is the row: all loads that vary with it are contiguous along it, and at least
 * one of them varies along the column, too, which is the loop along which the store is
 * contiguous. */
static bool is_row(struct transposed *x, int at)
{
    struct tgc *t = x->m.t;
    struct uop *row = x->m.store->src[at], *column = x->m.store->src[x->column];
    x->loads = 0;
    x->load_width = x->loaded = 0;
    for (int i = 0; i < x->m.nother; i++) {
        struct uop *load = x->m.other[i];
        bool by_row = uop_depends_on(t, load, row), by_column = uop_depends_on(t, load, column);
        if (by_column && !by_row && load->op == OP_LOAD && is_one(t, load->src[1], column))
            continue;                                    /* a bias: invariant along the rows */
        if (!by_row && !by_column)
            continue;
        if (load->op != OP_LOAD || !by_row || !is_one(t, load->src[1], row) ||
            uop_reads_memory(t, load->src[1]))
            return false;
        int64_t width = load_width(t, load, row);
        x->load_width = x->loads && x->load_width < width ? x->load_width : width;
        x->loaded = (int64_t)dtype_nbytes(load->dtype);
        x->loads += by_column;
    }
    return x->loads > 0;
}

static bool find_transposed(struct tgc *t, struct uop *store, struct transposed *x)
{
    *x = (struct transposed){.column = -1, .row = -1, .rest = 1};
    if (store_first_range(store) != 3 || !nest_find(t, store, &x->m) || x->m.reduce)
        return false;
    for (int i = x->m.first; i < store->nsrc; i++) {
        if (range_fixed_size(store->src[i]) < 1 || !product_may_cut(&x->m, store->src[i]))
            return false;
        if (range_fixed_size(store->src[i]) > 1 && is_one(t, store->src[1], store->src[i]))
            x->column = i;
    }
    for (int i = x->m.first; i < store->nsrc && x->column >= 0 && x->row < 0; i++)
        if (i != x->column && range_fixed_size(store->src[i]) > 1 && is_row(x, i))
            x->row = i;
    if (x->row < 0)
        return false;
    for (int i = x->m.first; i < store->nsrc; i++)
        x->rest *= i == x->row || i == x->column ? 1 : (double)range_fixed_size(store->src[i]);
    x->nrow = range_fixed_size(store->src[x->row]);
    x->ncolumn = range_fixed_size(store->src[x->column]);
    x->width = epilogue_width(t, store, store->src[x->column]);
    x->passed = (int64_t)dtype_nbytes(store->src[2]->dtype);
    x->stored = (int64_t)dtype_nbytes(uop_buffer_of(store->src[0])->dtype);
    return true;
}

static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* Row padding with the fewest bank conflicts, of a subgroup's stores to the tile and its loads. */
static int64_t find_pad(const struct transposed *x, int64_t rows, int64_t columns, int *conflicts)
{
    int64_t step = x->width > 1 ? x->width : 1,
            apart = rows / x->load_width < LANES ? rows / x->load_width : LANES, best = 0;
    for (int64_t pad = 0; pad * x->passed <= PAD_NBYTES_MOST; pad += step) {
        int each =
            (int)x->load_width * banks_of_copy(LANES / apart * x->passed,
                                               x->load_width * (columns + pad) * x->passed,
                                               x->passed) +
            banks_of_copy(columns * x->passed, (columns + pad) * x->passed, x->width * x->passed);
        if (pad == 0 || each < *conflicts)
            best = pad, *conflicts = each;
    }
    return best;
}

/* Bytes moved for n contiguous elements: whole sectors, one more if unaligned. */
static double sectors(int64_t n, int64_t nbytes, int64_t width)
{
    return (double)(round_up(n * nbytes, SECTOR_NBYTES) +
                    (width * nbytes < COPY_NBYTES_MOST ? SECTOR_NBYTES : 0));
}

/* Issue cost per element of accesses of `width` elements, address arithmetic included. */
static double access(const struct tgc *t, int64_t nbytes, int64_t width)
{
    double words = (double)(nbytes * width) / WORD_NBYTES;
    return (cost_grid_load(t->device) * (words > 1 ? words : 1) + ISSUED_EACH) / (double)width;
}

static struct grid_work tile_work(const struct tgc *t, const struct transposed *x,
                                  struct transpose_tile *b)
{
    const struct device_row *d = t->device;
    int conflicts = 0;
    b->pad = find_pad(x, b->rows, b->columns, &conflicts);
    double elements = (double)(b->rows * b->columns) / (double)b->threads,
           local = cost_grid_local(d);
    double rows = (double)ceil_div(x->nrow, b->rows),
           columns = (double)ceil_div(x->ncolumn, b->columns);
    double loaded = sectors(b->rows < x->nrow ? b->rows : x->nrow, x->loaded, x->load_width) * rows;
    double stored =
        sectors(b->columns < x->ncolumn ? b->columns : x->ncolumn, x->stored, x->width) * columns;
    return (struct grid_work){
        .blocks = rows * columns * x->rest,
        .threads = (double)b->threads,
        .issued = elements * (x->loads * access(t, x->loaded, x->load_width) +
                              local * (1 + conflicts / (double)x->load_width) +
                              local / (double)x->width + access(t, x->stored, x->width)) +
                  RATIO_GRID_BARRIER,
        .local_nbytes = (double)(b->rows * (b->columns + b->pad) * x->passed),
        .cache_nbytes =
            x->rest * ((double)x->ncolumn * x->loads * loaded + (double)x->nrow * stored),
        .memory_nbytes =
            x->rest * (double)(x->nrow * x->ncolumn) * (double)(x->loads * x->loaded + x->stored),
    };
}

static double tile_ns(const struct tgc *t, const struct transposed *x, struct transpose_tile *b)
{
    struct grid_work work = tile_work(t, x, b);
    double ns = cost_of_grid(t->device, &work, NULL);
    work.memory_nbytes = 0;
    /* ties: the one that takes least of the other resources */
    return ns + cost_of_grid(t->device, &work, NULL) / BESIDE_LIMIT;
}

/* Time without staging: a thread for each element, a sector for each load. */
static struct grid_work each_work(const struct tgc *t, const struct transposed *x)
{
    const struct device_row *d = t->device;
    double n = x->rest * (double)(x->nrow * x->ncolumn), threads = 2 * d->wave;
    return (struct grid_work){
        .blocks = __builtin_ceil(n / threads),
        .threads = threads,
        .issued = x->loads * access(t, x->loaded, 1) + access(t, x->stored, 1),
        .cache_nbytes =
            n * (double)(x->loads *
                             (x->loaded * x->ncolumn < SECTOR_NBYTES ? x->loaded : SECTOR_NBYTES) +
                         x->stored),
        .memory_nbytes = n * (double)(x->loads * x->loaded + x->stored),
    };
}

/* Whether a block's loads and stores fill whole sectors, as far as the tensor has them. */
static bool has_sectors(const struct transposed *x, const struct transpose_tile *b)
{
    return (b->rows * x->loaded >= SECTOR_NBYTES || b->rows >= x->nrow) &&
           (b->columns * x->stored >= SECTOR_NBYTES || b->columns >= x->ncolumn);
}

static bool fits(const struct tgc *t, const struct transposed *x, const struct transpose_tile *b)
{
    const struct device_row *d = t->device;
    int64_t most = d->group < TURN_THREADS_MOST ? d->group : TURN_THREADS_MOST,
            n = b->rows * b->columns;
    return b->threads >= d->wave && b->threads <= most && b->rows % x->load_width == 0 &&
           b->columns % x->width == 0 && has_sectors(x, b) &&
           n % (b->threads * x->load_width) == 0 && n % (b->threads * x->width) == 0 &&
           b->rows < 2 * x->nrow && b->columns < 2 * x->ncolumn &&
           n * x->passed * 4 <= device_local_nbytes(t);
}

/* The cheapest tile. */
static struct transpose_tile find_tile(const struct tgc *t, const struct transposed *x)
{
    struct transpose_tile best = {.ns = 0};
    for (int64_t rows = 2; rows <= SIDE_MOST; rows *= 2)
        for (int64_t columns = 2; columns <= SIDE_MOST; columns *= 2)
            for (int64_t threads = TURN_THREADS_LEAST; threads <= TURN_THREADS_MOST; threads *= 2) {
                struct transpose_tile b = {.rows = rows, .columns = columns, .threads = threads};
                if (!fits(t, x, &b))
                    continue;
                b.ns = tile_ns(t, x, &b);
                best = best.ns <= 0 || b.ns < best.ns ? b : best;
            }
    return best;
}

/* Cuts the loop into blocks of n iterations. */
static void list_blocks(struct opt_list *l, int tag, int64_t size, int64_t n, int blocks,
                        int inner)
{
    list_cover(
        l, size, tag,
        &(struct block_of){.items = n, .lanes = 1, .tag_blocks = blocks, .tag_items = inner});
}

static void append(struct opt_list *l, const struct opt_list *of)
{
    for (int i = 0; i < of->n; i++)
        *list_add(l, of->opt[i].op, -1) = of->opt[i];
    l->failed |= of->failed;
}

static bool apply(struct tgc *t, struct kernel *k, int store, const struct transposed *x,
                  const struct transpose_tile *b)
{
    enum { LOOP_ROW = LOOP_COLUMN_ITEMS + 1, LOOP_COLUMN, LOOP_ROW_CHUNKS, LOOP_COLUMN_CHUNKS };
    struct kernel trial = *k;
    struct opt_list l, second;
    struct epilogue in = {.width = x->load_width},
                   out = {.width = x->width, .passed_nbytes = x->passed};
    int tag[LOOPS_MAX], n = 0, row = LOOP_GIVEN + x->row - x->m.first,
                        column = LOOP_GIVEN + x->column - x->m.first;
    int64_t size[LOOPS_MAX];
    list_begin(&l, t, trial.ast, store);
    for (int i = 0; i < l.nloop; i++)
        if (l.loop[i] != row && l.loop[i] != column)
            tag[n] = l.loop[i], size[n++] = range_fixed_size(x->m.store->src[x->m.first + i]);
    for (; n + (x->nrow > b->rows) + (x->ncolumn > b->columns) > GRID_RANK && n > 1; n--) {
        list_order(&l, tag[n - 1], list_position(&l, tag[n - 2]) + 1);
        list_flatten(&l, list_position(&l, tag[n - 2]));
        size[n - 2] *= size[n - 1];
    }
    tag[n] = LOOP_ROWS, size[n++] = INT64_MAX;
    tag[n] = LOOP_COLUMNS, size[n++] = INT64_MAX;
    list_blocks(&l, row, x->nrow, b->rows, LOOP_ROWS, LOOP_ROW);
    list_blocks(&l, column, x->ncolumn, b->columns, LOOP_COLUMNS, LOOP_COLUMN);
    struct opt *o = list_add(&l, OPT_STAGE_EPILOGUE, LOOP_ROW);
    o->of = OF_STORE, o->n = b->pad, o->to = list_position(&l, LOOP_COLUMN);
    list_remove(&l, LOOP_ROW);
    list_remove(&l, LOOP_COLUMN);
    l.loop[l.nloop++] = LOOP_ROW;
    l.loop[l.nloop++] = LOOP_COLUMN;
    second = l;
    /* coalesced loads: adjacent threads along the row */
    list_order(&l, LOOP_COLUMN, list_position(&l, LOOP_ROW));
    list_grid(&l, tag, size, n);
    list_epilogue(&l, &in, LOOP_COLUMN, b->columns, LOOP_ROW, b->rows, b->threads, LOOP_ROW_CHUNKS);
    second.n = 0;
    second.store++;
    list_grid(&second, tag, size, n);
    list_epilogue(&second, &out, LOOP_ROW, b->rows, LOOP_COLUMN, b->columns, b->threads,
                  LOOP_COLUMN_CHUNKS);
    append(&l, &second);
    if (l.failed || !grid_apply(t, &trial, &l, (int)b->threads, 1, NULL))
        return false;
    *k = trial;
    return true;
}

bool grid_transposed(struct tgc *t, struct kernel *k, int store)
{
    struct transposed x;
    if (k->ast->nsrc != 1 || !find_transposed(t, k->ast->src[store], &x))
        return compare_refuse(t, SCHEDULE_TRANSPOSED, "it does not transpose");
    struct transpose_tile b = find_tile(t, &x);
    if (b.ns <= 0)
        return compare_refuse(t, SCHEDULE_TRANSPOSED, "no tile fits");
    struct grid_work tile = tile_work(t, &x, &b), each = each_work(t, &x);
    double each_ns = cost_of_grid(t->device, &each, NULL);
    compare_work(t, compare_candidate(t, SCHEDULE_EACH, each_ns), &each);
    compare_work(t, compare_candidate(t, SCHEDULE_TRANSPOSED, b.ns), &tile);
    return b.ns < each_ns &&
           (apply(t, k, store, &x, &b) || compare_refuse_last(t, SCHEDULE_TRANSPOSED));
}
