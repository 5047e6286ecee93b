/* grid_matrix.c - sums of products on a device by an instruction of ir/matrix.def: blocks of waves, each with a
 * tile of the instruction's matrices.
 *
 *      rows      q · wave · tile · m        a block: waves of rows x waves of columns; a wave: tiles of rows x
 *      columns   q · wave · tile · n                    tiles of columns, of m x n sums each
 *      terms     q · part · k
 *
 * As in grid_tile.c the sum goes in steps, and in each the block copies what its waves read of both factors to
 * local memory, in the order of the memory that they are in. Rows, columns and terms beyond the product are zeros
 * there, so all waves multiply whole matrices. Which instruction: of the device's that multiply values of the
 * factors' dtypes (passes/target/matrix.def) the one that costs least. One that reads factors from local memory
 * itself gets copies in panels (SWIZZLE), and several waves are one, of so many lanes.
 *
 * Copies are of as many neighbours as lie together at multiples of 4, 8 or 16 bytes, and come asynchronously, some
 * steps ahead, where the device has instructions for that; or as boxes, by an engine, to panels. What that does not
 * take (rows of pixels that are divided, sizes of the run's, rows at no multiples of 16 bytes) comes as without it.
 *
 * Blocks that are neighbours along rows, or columns, read the same other factor: a cluster of them (opts_cluster.c) copies it together,
 * where the device has clusters and the cache's bytes are what limits.
 *
 * The model: the instruction's rate, of tiles that reach beyond the result, too; what the threads issue besides
 * to load tiles and to copy, meanwhile if the device has units for matrices beside those of its threads;
 * the operands' bytes, once for each block; and how many blocks, and steps ahead, hide what copies wait for.
 */
#include "passes/analysis/banks.h"
#include "passes/analysis/copied.h"
#include "passes/analysis/matrix.h"
#include "passes/analysis/stationary.h"
#include "passes/kernel/grid_product.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

enum { CHOICES_MAX = 8, INSTRUCTIONS_MAX = 32, JOINED_MAX = 4, REGISTERS_MOST = 255, REGISTERS_BESIDE = 40, BESIDE_LIMIT = 64, CLUSTER_CHOSEN = 4 };
enum { LOOP_M = LOOP_COLUMN_ITEMS + 1, LOOP_N, LOOP_ROW_TILES, LOOP_COLUMN_TILES, LOOP_GROUPS, LOOP_CLUSTER };

/* How copies come: of so many parts, which a sum's steps use in turn. Where units for matrices are what limits, many cost the same: the
 * first of equals is taken, so these are in the order in which least is issued, and least waits; longest steps are first, too. */
struct stages { int parts; enum transfer how; };
static const struct stages stages[] = {{4, TRANSFER_BULK}, {3, TRANSFER_BULK}, {2, TRANSFER_BULK}, {3, TRANSFER_ASYNC}, {4, TRANSFER_ASYNC},
                                       {2, TRANSFER_ASYNC}, {2, TRANSFER_REGISTERS}, {1, TRANSFER_REGISTERS}};
enum { STAGES = sizeof stages / sizeof *stages };

struct matrix_choice;
/* cluster: how many blocks along rows, or along columns, copy the other factor together; blocks: that go through all places (PERSIST), 0:
 * each place has a block; producers: threads that copy for the others (PRODUCER); through: results leave through local memory. */
struct wave_tile {
    const struct matrix_choice *of; int64_t waves[2], tiles[2], step; struct stages by; int64_t cluster[2]; double blocks; int producers; bool through; double ns;
};
enum { PADS_MAX = 64 };
struct pads { struct pad { int side; int64_t row, width, pad; } v[PADS_MAX]; int n; };
struct matrix_choice {
    const struct shape *s; int joined;       /* whose product it is, and how many loops its rows and columns have been made of */
    bool patched, divided, alone[2];         /* rows, or columns, are patches; divisions tell them apart; these or conditions a factor's elements */
    const struct product *x;
    const struct matrix_row *row;
    enum matrix_unit of;
    double gflops;
    bool reads_copies;           /* the instruction reads factors from local memory */
    int64_t nelem[3];            /* what a thread has of each matrix */
    int64_t local_nbytes;        /* a block's memory */
    int m, n;                    /* the store's loops, by position, of the instruction's rows and columns */
    int64_t nm, nn, nk;          /* how many there are of each, and of terms */
    /* of the factors, a, b: how many neighbours may be one copy, and whether they are along rows or columns, not terms */
    int64_t width[2]; bool along_side[2];
    double spread[2];            /* of what is copied one by one, the elements of a line of memory for each */
    struct pads *pads;           /* that were found */
    bool is_counted;             /* all loops of the store are over the grid, and of known sizes */
    struct leaving leaving; bool may_leave;  /* how results may leave through local memory, and whether they may */
};

static bool reads_copies(const struct matrix_choice *c) { return c->reads_copies; }

static void set_row(const struct tgc *t, struct matrix_choice *c)
{
    c->local_nbytes = device_local_nbytes(t);
    c->row = matrix_row(c->of);
    c->reads_copies = matrix_is_local(c->row, MATRIX_A);
    for (int i = 0; i < 3; i++)
        c->nelem[i] = matrix_elements(c->row, (enum matrix_part)i);
}

/* How far apart the factor's elements along the loop are; a number that only an index can be: nobody knows. */
static int64_t stride_along(struct tgc *t, const struct uop *factor, const struct uop *along)
{
    int64_t stride;
    const struct uop *load = factor->op == OP_LOAD ? factor : factor->src[0];
    return index_stride(t, load->src[1], along, &stride) ? stride : INT64_MAX;
}

/* How many neighbours of the factor lie together and aligned along the loop; 1: none do, or it is computed. */
static int64_t width_along(struct tgc *t, struct uop *factor, struct uop *along)
{
    int64_t width = COPY_NBYTES_MOST / (int64_t)dtype_nbytes(factor->dtype);
    if (factor->op != OP_LOAD || stride_along(t, factor, along) != 1 || (factor->nsrc > 2 && !load_is_zero_elsewhere(factor)))
        return 1;
    struct uop *rest = sym_sub(t, factor->src[1], along);
    while (width > 1 && (range_fixed_size(along) % width || index_divisor(t, rest) % width ||
                         !buffer_is_aligned(t, uop_buffer_of(factor->src[0]), width) ||
                         (factor->nsrc > 2 && !condition_of_first(t, factor->src[2], along, width))))
        width /= 2;
    return width;
}

/* How many elements of memory lie from one that is copied to the next one, as far as a sector has so many. */
static double spread_of(struct tgc *t, const struct uop *factor, const struct uop *k, const struct uop *side)
{
    enum { SECTOR_NBYTES = 32 };
    struct uop *offset = (factor->op == OP_LOAD ? factor : factor->src[0])->src[1];
    int64_t along_k = index_first_step(t, offset, k), along = index_first_step(t, offset, side);
    double step = (double)(along_k < 1 || (along > 0 && along < along_k) ? along : along_k), most = SECTOR_NBYTES / (double)dtype_nbytes(factor->dtype);
    return step < 1 || step > most ? most : step;
}

static void find_widths(struct tgc *t, struct matrix_choice *c, struct uop *const factor[2])
{
    struct uop *const *loop = c->x->m.store->src, *k = c->x->m.reduce->src[c->x->m.reduce->nsrc - 1];
    for (int side = 0; side < 2; side++) {
        struct uop *other = loop[side ? c->n : c->m];
        c->along_side[side] = stride_along(t, factor[side], other) < stride_along(t, factor[side], k);
        c->width[side] = width_along(t, factor[side], c->along_side[side] ? other : k);
        bool divided = stride_along(t, factor[side], other) == INT64_MAX;
        c->divided |= divided;
        c->alone[side] = divided || (factor[side]->op == OP_LOAD ? factor[side] : factor[side]->src[0])->nsrc > 2;
        c->spread[side] = spread_of(t, factor[side], k, other);
        /* those copies are turned: rows of terms are all that these instructions read */
        if (c->along_side[side] && reads_copies(c) && dtype_nbytes(c->row->dtype[side]) != 2)
            c->width[side] = 1;
    }
}

/* Turns of the sum's loops around the last one. */
static int64_t outer_steps(const struct matrix_choice *c) { return c->x->terms / c->nk; }

/* Whether the store has no more loops than a grid, all of known sizes. */
static bool is_counted(const struct product *x)
{
    bool known = true;
    for (int i = x->m.first; i < x->m.store->nsrc; i++)
        known &= range_fixed_size(x->m.store->src[i]) > 0;
    return known && x->m.store->nsrc - x->m.first <= GRID_RANK;
}

/* Whether the instruction multiplies the product's factors, the first of them as its a, or the second; and which of the
 * store's loops are its rows then. */
static bool take_instruction(struct tgc *t, const struct product *x, int i, bool exchanged, struct matrix_choice *c)
{
    struct uop *sum = x->m.reduce, *factor[2];
    struct uop *const *loop = x->m.store->src;
    *c = (struct matrix_choice){.x = x, .pads = scratch_array(t, 1, sizeof *c->pads)};
    if (!device_matrix(t, i, &c->of, &c->gflops))
        return false;
    set_row(t, c);
    bool of_copies = matrix_is_local(c->row, MATRIX_A) == matrix_is_local(c->row, MATRIX_B);
    if (!of_copies || c->row->lanes % t->device->wave || !matrix_factors(sum, c->row, exchanged, factor))
        return false;
    bool rows = uop_depends_on(t, factor[0], loop[x->row]);
    c->m = rows ? x->row : x->column;
    c->n = rows ? x->column : x->row;
    if (!uop_depends_on(t, factor[0], loop[c->m]) || uop_depends_on(t, factor[0], loop[c->n]) ||
        !uop_depends_on(t, factor[1], loop[c->n]) || uop_depends_on(t, factor[1], loop[c->m]))
        return false;
    c->nm = loop[c->m]->src[0]->vmax;
    c->nn = loop[c->n]->src[0]->vmax;
    c->nk = x->last_terms;
    c->is_counted = is_counted(x);
    find_widths(t, c, factor);
    c->may_leave = grid_find_leaving(t, x, c->m, c->n, &c->leaving);
    return c->nk > c->row->size[MATRIX_K] || (outer_steps(c) > 1 && 2 * c->nk >= c->row->size[MATRIX_K]);
}

/* The instructions that multiply the product's factors; of one whose factors lanes hold, one order of them is enough. Those whose
 * rows are the result's come first, since a lane's neighbours are along columns. */
static int list_instructions(struct tgc *t, const struct product *x, struct matrix_choice *c)
{
    enum matrix_unit of;
    double gflops;
    int n = 0;
    for (int i = 0; device_matrix(t, i, &of, &gflops); i++)
        for (int order = 0; order < 4 && n < INSTRUCTIONS_MAX; order++) {
            bool held = n > 0 && c[n - 1].of == of && !reads_copies(&c[n - 1]), by_rows = order < 2;
            n += !held && take_instruction(t, x, i, order % 2, &c[n]) && (c[n].m == x->row) == by_rows;
        }
    return n;
}

/* ------------------------------------------------------------------------------------- the cost */

static double ceil_div(int64_t a, int64_t b) { return (double)((a + b - 1) / b); }

static int64_t side_of(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    return w->waves[side] * w->tiles[side] * c->row->size[side];
}

static int64_t threads_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    return w->waves[0] * w->waves[1] * c->row->lanes;
}

/* How many neighbours of a factor one copy has: each thread makes as many copies. */
static int64_t width_of(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    int64_t width = c->width[side];
    while (width > 1 && (w->step * side_of(c, w, side) % (threads_of(c, w) * width) || (c->along_side[side] && side_of(c, w, side) % width)))
        width /= 2;
    return width;
}

/* The elements of a row of a factor's copy. */
static int64_t row_of(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    return c->along_side[side] ? side_of(c, w, side) : w->step;
}

/* The padding of a row, in elements, by which loads of tiles, above all, and copies meet least in banks of local memory. */
static int64_t find_pad(const struct tgc *t, const struct matrix_choice *c, int side, int64_t row, int64_t width)
{
    enum { TILES = 4, MOST_NBYTES = 64 };             /* a tile is loaded more often than it is copied */
    int64_t nbytes = (int64_t)dtype_nbytes(c->row->dtype[side]), word = COPY_NBYTES_LEAST / nbytes, best = 0;
    int least = 0;
    for (int64_t pad = 0; pad * nbytes <= MOST_NBYTES; pad += width > word ? width : word) {
        bool along_k = !c->along_side[side], by_rows = matrix_is_by_rows(t, c->row, (enum matrix_part)side, along_k, row + pad);
        int turns = TILES * (banks_of_tile(c->row, (enum matrix_part)side, along_k, row + pad, by_rows) + 2 * !by_rows) +
                    banks_of_copy(row * nbytes, (row + pad) * nbytes, width * nbytes);
        if (pad == 0 || turns < least)
            least = turns, best = pad;
        if (turns == 0)
            break;
    }
    return best;
}

/* The same of the tile's copy, found once for all tiles with such rows. */
static int64_t pad_of(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    int64_t row = row_of(c, w, side), width = width_of(c, w, side);
    struct pads *of = c->pads;
    if (reads_copies(c))
        return 0;
    for (int i = 0; i < of->n; i++)
        if (of->v[i].side == side && of->v[i].row == row && of->v[i].width == width)
            return of->v[i].pad;
    if (of->n == PADS_MAX)
        return find_pad(t, c, side, row, width);
    of->v[of->n++] = (struct pad){side, row, width, find_pad(t, c, side, row, width)};
    return of->v[of->n - 1].pad;
}

static int64_t copied_nbytes(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    int64_t nbytes = 0;
    for (int side = 0; side < 2; side++) {
        int64_t row = row_of(c, w, side), rows = w->step * side_of(c, w, side) / row;
        nbytes += rows * (row + pad_of(t, c, w, side)) * (int64_t)dtype_nbytes(c->row->dtype[side]);
    }
    return nbytes * w->by.parts;
}

static bool comes(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    bool bulk = w->by.how == TRANSFER_BULK;
    if (w->by.how == TRANSFER_REGISTERS)
        return true;
    /* boxes' rows are one behind the other: of tiles that are loaded, rows would begin in the same banks */
    if (bulk && (!device_copies_boxes(t) || !reads_copies(c) || (c->divided && !c->patched)))
        return false;
    for (int side = 0; side < 2; side++) {
        int64_t nbytes = width_of(c, w, side) * (int64_t)dtype_nbytes(c->row->dtype[side]);
        if (nbytes < (bulk ? BULK_ALIGNED : COPY_NBYTES_LEAST) || (!bulk && !device_copies(t, nbytes)))
            return false;
    }
    return true;
}

/* Whether the sum's load of that number, sources first, is the factor of rows (0) or of columns. */
static int side_of_operand(const struct matrix_choice *c, int operand)
{
    const struct product *x = c->x;
    return operand < x->m.nload && uop_depends_on(x->m.t, x->m.load[operand], x->m.store->src[c->n]);
}

/* How long the rows of the operand's copy are: they are those of its memory, by terms or along its side; of what is no
 * half, by terms. */
static int64_t copied_row(const struct matrix_choice *c, const struct wave_tile *w, int operand)
{
    const struct uop *sum = c->x->m.reduce;
    struct uop *offset = c->x->m.load[operand]->src[1];
    int side = side_of_operand(c, operand);
    int64_t along_k, along;
    if (dtype_nbytes(c->row->dtype[MATRIX_A]) != 2)
        return w->step;
    struct uop *loop = c->x->m.store->src[side ? c->n : c->m];
    if (!index_stride(c->x->m.t, offset, sum->src[sum->nsrc - 1], &along_k))
        return 0;
    if (!index_stride(c->x->m.t, offset, loop, &along))
        return along_k == 1 ? w->step : 0;            /* pixels that divisions tell apart */
    return along_k < along ? w->step : side_of(c, w, side);
}

/* Whether an instruction that reads copies in panels can read these: by terms, or along a side in whole rows. */
static bool copies_fit(const struct matrix_choice *c, const struct wave_tile *w)
{
    int64_t size = (int64_t)dtype_nbytes(c->row->dtype[MATRIX_A]);
    for (int i = 0; i < 2 && reads_copies(c); i++) {
        int side = c->s ? side_of_operand(c, i) : i;
        int64_t row = c->s ? copied_row(c, w, i) : w->step;      /* of sizes alone: as by terms */
        if (row == 0 || row * size % PANEL_ROW_NBYTES || (row == w->step ? side_of(c, w, side) : w->step) % PANEL_ROWS ||
            (row != w->step && c->row->size[side] * size % PANEL_ROW_NBYTES))
            return false;
    }
    return true;
}

static double steps_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    return ceil_div(c->nk, w->step) * (double)outer_steps(c);
}

/* A thread's registers for sums, tiles, and what it loads early. */
static int64_t registers_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    int64_t size[3];
    for (int i = 0; i < 3; i++)
        size[i] = c->nelem[i] * dtype_bits(c->row->dtype[i]) / 32;
    bool early = w->by.parts > 1 && w->by.how == TRANSFER_REGISTERS;
    return w->tiles[0] * w->tiles[1] * size[MATRIX_SUM] + w->tiles[0] * size[MATRIX_A] + w->tiles[1] * size[MATRIX_B] +
           (early ? w->step * (side_of(c, w, 0) + side_of(c, w, 1)) / threads_of(c, w) : 0);
}

/* Copies leave local memory to others; of boxes a block may have as many as there is room for, beside their barriers. */
static bool copies_have_room(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    int64_t nbytes = copied_nbytes(t, c, w), most = c->local_nbytes;
    return w->by.how == TRANSFER_BULK ? nbytes + BULK_MEMORY_ALIGNED <= most : 4 * nbytes <= 3 * most;
}

static bool wave_fits(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    const struct device_row *d = t->device;
    int64_t threads = threads_of(c, w), most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    /* a small block's threads have more, if what they hold are sums alone */
    int64_t own = reads_copies(c) ? d->registers * d->group / threads : d->registers;
    own = own > REGISTERS_MOST ? REGISTERS_MOST : own;
    int64_t registers = registers_of(c, w);
    return threads <= most && 4 * registers <= 3 * own && copies_fit(c, w) && copies_have_room(t, c, w) &&
           (outer_steps(c) > 1 || w->step < c->nk) && w->step * side_of(c, w, 0) % threads == 0 && w->step * side_of(c, w, 1) % threads == 0 &&
           steps_of(c, w) >= (double)w->by.parts && comes(t, c, w);
}

/* What the units read of local memory for each term of a block, each instruction its own factors. */
static double fetched_nbytes(const struct matrix_choice *c, const struct wave_tile *w)
{
    double instructions = (double)(w->waves[0] * w->tiles[0] * w->waves[1] * w->tiles[1]);
    return reads_copies(c) ? instructions * (c->row->size[MATRIX_M] + c->row->size[MATRIX_N]) * (double)dtype_nbytes(c->row->dtype[MATRIX_A]) : 0;
}

/* How many elements of a tile one load brings: a word of them, of rows that are not the instruction's one. */
static double elements_loaded(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    bool along_k = !c->along_side[side];
    int64_t stride = row_of(c, w, side) + pad_of(t, c, w, side);
    return along_k || reads_copies(c) || matrix_is_by_rows(t, c->row, (enum matrix_part)side, along_k, stride)
               ? 4 / (double)dtype_nbytes(c->row->dtype[side]) : 1;
}

static double spread_in(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    return width_of(c, w, side) > 1 ? 1 : c->spread[side];
}

/* The side of the block, of the instruction's rows (0) or columns, that is the results' rows. */
static int leaving_row(const struct matrix_choice *c) { return c->leaving.row == c->n; }

static bool may_go_through(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    int row = leaving_row(c);
    return c->may_leave && c->s->k.ast->nsrc == 1 && leaving_fits(t, &c->leaving, side_of(c, w, row), side_of(c, w, !row), threads_of(c, w));
}

/* What a thread issues behind its last step. */
static double stored(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    double elements = (double)(side_of(c, w, 0) * side_of(c, w, 1)) / (double)threads_of(c, w);
    if (!c->may_leave)
        return 0;
    return w->through ? leaving_through(t, &c->leaving, c->row, leaving_row(c), elements)
                      : leaving_direct(t, &c->leaving, c->row, leaving_row(c), elements);
}

static double wave_local_nbytes(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    int row = leaving_row(c);
    int64_t copied = copied_nbytes(t, c, w), left = w->through ? leaving_nbytes(&c->leaving, side_of(c, w, row), side_of(c, w, !row)) : 0;
    return (double)(copied > left ? copied : left);
}

/* Tiles of the result, each a place of the grid. */
static double places_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    return ceil_div(c->nm, side_of(c, w, 0)) * ceil_div(c->nn, side_of(c, w, 1)) * (double)c->x->rest;
}

/* What a thread issues for each k of the instruction: words of tiles, products, its part of the copies, barriers. */
static double issued_of(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    const struct device_row *d = t->device;
    const struct matrix_row *r = c->row;
    double words = 0, copies = 0, load = cost_grid_load(d), local = cost_grid_local(d);
    for (int side = 0; side < 2; side++)
        words += (double)(w->tiles[side] * c->nelem[side]) / elements_loaded(t, c, w, side);
    for (int side = 0; side < 2 && w->by.how != TRANSFER_BULK; side++)       /* one thread starts boxes */
        copies += (load + (w->by.how == TRANSFER_REGISTERS ? local : 0) + (c->alone[side] && width_of(c, w, side) == 1 ? RATIO_GRID_SINGLE : 0)) * (double)(side_of(c, w, side) * r->size[MATRIX_K]) /
                  (double)(threads_of(c, w) * width_of(c, w, side));
    double products = device_multiplies_apart(d) ? (double)(w->tiles[0] * w->tiles[1]) : 0;
    double barriers = w->by.how == TRANSFER_BULK ? 0 : RATIO_GRID_BARRIER * r->size[MATRIX_K] / (double)w->step / (w->by.parts > 1 ? 2 : 1);
    return local * words + products + copies + barriers;
}

static int64_t cluster_of(const struct wave_tile *w) { return w->cluster[0] * w->cluster[1]; }

static struct grid_work work_of(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    const struct device_row *d = t->device;
    double rows = (double)side_of(c, w, 0), columns = (double)side_of(c, w, 1), places = places_of(c, w), k = steps_of(c, w) * (double)w->step,
           turns = w->blocks > 0 ? __builtin_ceil(places / w->blocks) : 1, terms = places * k * (double)dtype_nbytes(c->row->dtype[MATRIX_A]);
    double arithmetic = 2 * rows * columns * k / c->gflops, fetched = fetched_nbytes(c, w) * k / (d->gflops * RATIO_GRID_LOCAL);
    return (struct grid_work){
        .blocks = w->blocks > 0 ? w->blocks : places, .threads = (double)threads_of(c, w), .beside = w->producers, .apart = device_multiplies_apart(d),
        .handovers = reads_copies(c) && !w->producers ? turns * steps_of(c, w) : 0, .steps = turns * steps_of(c, w), .ahead = w->by.parts - 1, .cluster = (int)cluster_of(w),
        .issued = turns * k / c->row->size[MATRIX_K] * issued_of(t, c, w),
        .matrix_ns = turns * (arithmetic > fetched ? arithmetic : fetched), .local_nbytes = wave_local_nbytes(t, c, w), .stored = turns * stored(t, c, w), .goes_on = w->blocks > 0,
        .registers = reads_copies(c) ? (double)(registers_of(c, w) + REGISTERS_BESIDE) : 0,
        .taken_nbytes = terms * (rows * spread_in(c, w, 0) + columns * spread_in(c, w, 1)),
        .cache_nbytes = terms * (rows * spread_in(c, w, 0) / (double)w->cluster[1] + columns * spread_in(c, w, 1) / (double)w->cluster[0]),
    };
}

static double wave_ns(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    struct grid_work work = work_of(t, c, w);
    double ns = cost_of_grid(t->device, &work, NULL);
    work.cache_nbytes = work.taken_nbytes = 0;           /* of those that the cache limits the one that waits least otherwise, and of these the one that issues least */
    return ns + (cost_of_grid(t->device, &work, NULL) + work.blocks * 2 * work.threads * work.issued / t->device->gflops) / BESIDE_LIMIT;
}

/* Lets as many blocks as there are at once go through all places, as evenly as they may, where that takes less: copies of the next
 * place are made early, too. */
static void take_places(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *w)
{
    struct grid_work work = work_of(t, c, w);
    double of = (double)cluster_of(w), at_once = __builtin_floor(cost_grid_at_once(t->device, &work) / of), clusters = work.blocks / of;
    struct wave_tile other = *w;
    if (!c->is_counted || w->by.parts < 2 || clusters <= at_once)
        return;
    other.blocks = of * __builtin_ceil(clusters / __builtin_ceil(clusters / at_once));
    other.ns = wave_ns(t, c, &other);
    if (other.ns < w->ns)
        *w = other;
}

/* Lets other threads copy where that takes less, if those that compute have as many registers as they need beside them. */
static void take_producers(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *w)
{
    const struct device_row *d = t->device;
    const int64_t threads = threads_of(c, w), together = (int64_t)d->wave * (d->role_waves > 0 ? d->role_waves : 1), all = threads + together;
    int64_t own = device_role_registers(t, threads, together, ROLE_CONSUMERS), begin = d->registers * d->group / all;
    struct wave_tile other = *w;
    own = own ? own : begin < REGISTERS_MOST ? begin : REGISTERS_MOST;
    if (w->by.how != TRANSFER_BULK || threads % together || all > d->group || 4 * registers_of(c, w) > 3 * own)
        return;
    other.producers = (int)together;
    other.ns = wave_ns(t, c, &other);
    if (other.ns < w->ns)
        *w = other;
}

/* Whether n blocks along rows (0), or columns, may copy the other factor together: each has a part of its boxes. */
static bool may_share(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w, int along, int64_t n)
{
    int64_t blocks = ((along ? c->nn : c->nm) + side_of(c, w, along) - 1) / side_of(c, w, along);
    int64_t row = row_of(c, w, !along), rows = w->step * side_of(c, w, !along) / row;
    return w->by.how == TRANSFER_BULK && n <= device_cluster(t) && blocks % n == 0 && rows % (n * PANEL_ROWS) == 0;
}

/* The cluster by which the tile costs least, if it has any: one of more blocks, and of columns, gains something. Larger ones may find no
 * units that are near each other. */
static void choose_cluster(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *w)
{
    struct wave_tile best = *w;
    take_places(t, c, &best);
    for (int64_t n = 2; n <= CLUSTER_CHOSEN; n *= 2)
        for (int along = 0; along < 2; along++) {
            struct wave_tile of = *w;
            of.cluster[along] = n;
            if (!may_share(t, c, w, along, n))
                continue;
            of.ns = wave_ns(t, c, &of);
            take_places(t, c, &of);
            best = of.ns < best.ns ? of : best;
        }
    *w = best;
}

/* A wave's tiles of columns: of three, too, whose blocks may fill the device's units better than those of two or four. */
static const int columns[] = {1, 2, 4, 8, 3, 6};

/* Adds the instruction's tiles to the n that cost least; returns how many there are. */
static int list_waves(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *best, int n)
{
    enum { TILES = sizeof columns / sizeof *columns };
    for (int i = 0; i < 4 * 4 * 4 * TILES * 3 * STAGES; i++) {
        int of = i / 64 / TILES;
        struct wave_tile w = {c, {1 << i % 4, 1 << i / 4 % 4}, {1 << i / 16 % 4, columns[i / 64 % TILES]},
                              (int64_t)c->row->size[MATRIX_K] << (2 - of % 3), stages[of / 3], {1, 1}, 0, 0, false, 0};
        if (!wave_fits(t, c, &w))
            continue;
        w.ns = wave_ns(t, c, &w);
        struct wave_tile other = w;
        choose_cluster(t, c, &w);
        take_producers(t, c, &w);        /* not with results through local memory, for which all of a block's threads meet */
        other.through = may_go_through(t, c, &other);
        other.ns = other.through ? wave_ns(t, c, &other) : 0;
        w = other.through && other.ns < w.ns ? other : w;
        for (int j = 0; j < c->joined; j++)
            w.ns /= RATIO_GRID_FLAT;
        int at = n < CHOICES_MAX ? n++ : CHOICES_MAX;
        for (; at > 0 && best[at - 1].ns > w.ns; at--)
            if (at < CHOICES_MAX)
                best[at] = best[at - 1];
        if (at < CHOICES_MAX)
            best[at] = w;
    }
    return n;
}

double grid_matrix_ns(struct tgc *t, const struct product *x, enum dtype of)
{
    struct product own = *x;
    struct wave_tile best[CHOICES_MAX] = {{.ns = 0}};
    struct pads pads = {.n = 0};
    struct matrix_choice c = {.x = &own, .nm = x->nrow, .nn = x->ncolumn, .nk = x->last_terms, .pads = &pads};
    int64_t width = COPY_NBYTES_MOST / (int64_t)dtype_nbytes(of);
    while (x->last_terms % width)
        width /= 2;
    c.width[0] = c.width[1] = width;
    c.spread[0] = c.spread[1] = 1;
    int n = 0;
    for (int i = 0; device_matrix(t, i, &c.of, &c.gflops); i++) {
        set_row(t, &c);
        if (c.row->lanes % t->device->wave == 0 && c.row->dtype[MATRIX_A] == of && c.row->dtype[MATRIX_B] == of && c.nk > c.row->size[MATRIX_K])
            n = list_waves(t, &c, best, n);
    }
    return n ? best[0].ns : 0;
}

/* ------------------------------------------------------------------------------------- the opts */

/* The loop `tag` as blocks. */
static void list_blocks(struct place_list *l, const struct matrix_choice *c, const struct wave_tile *w, int side, int tag)
{
    static const int blocks[2] = {LOOP_ROWS, LOOP_COLUMNS}, inner[2] = {LOOP_M, LOOP_N};
    struct block_of all = {side_of(c, w, side), 1, blocks[side], inner[side], inner[side], false};
    list_cover(l, range_fixed_size(c->x->m.store->src[side ? c->n : c->m]), tag, &all);
}

/* A block's loop as waves and tiles. */
static void list_side(struct place_list *l, const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    static const int items[2] = {LOOP_ROW_ITEMS, LOOP_COLUMN_ITEMS}, tiles[2] = {LOOP_ROW_TILES, LOOP_COLUMN_TILES}, inner[2] = {LOOP_M, LOOP_N};
    list_divide(l, inner[side], side_of(c, w, side), w->tiles[side] * c->row->size[side], items[side]);
    list_divide(l, inner[side], w->tiles[side] * c->row->size[side], c->row->size[side], tiles[side]);
}

/* Blocks that go through places do so as clusters: which one of its cluster a block is stays a loop over the grid. */
static void list_cluster(struct place_list *l, const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    static const int blocks[2] = {LOOP_ROWS, LOOP_COLUMNS};
    int64_t size = range_fixed_size(c->x->m.store->src[side ? c->n : c->m]), n = (size + side_of(c, w, side) - 1) / side_of(c, w, side);
    if (w->blocks <= 0 || w->cluster[side] == 1)
        return;
    list_divide(l, blocks[side], n, w->cluster[side], LOOP_CLUSTER);
    int at = list_position(l, blocks[side]);
    l->loop[at] = LOOP_CLUSTER;
    if (n > w->cluster[side])
        l->loop[at - 1] = blocks[side];
}

/* The blocks in groups of rows, for the cache that all units share, where their numbers are known; false: they are in none. */
static bool list_groups(struct place_list *l, const struct matrix_choice *c, const struct wave_tile *w)
{
    static const int blocks[2] = {LOOP_ROWS, LOOP_COLUMNS};
    int slow = list_position(l, LOOP_ROWS) < list_position(l, LOOP_COLUMNS) ? 0 : 1;
    struct raster r = {.at_once = l->t->device->units / (w->blocks > 0 ? cluster_of(w) : 1)};
    for (int i = 0; i < 2; i++) {
        int side = i ? !slow : slow;
        int64_t size = range_fixed_size(c->x->m.store->src[side ? c->n : c->m]), of_block = side_of(c, w, side) * (w->blocks > 0 ? w->cluster[side] : 1);
        if (size <= of_block || list_position(l, blocks[side]) < 0)
            return false;
        r.n[i] = (size + of_block - 1) / of_block;
        r.nbytes[i] = (double)of_block * (double)c->x->terms * (double)dtype_nbytes(c->row->dtype[MATRIX_A]);
    }
    int64_t group = grid_raster(l->t->device, &r);
    list_raster(l, blocks[slow], blocks[!slow], r.n[0], group, LOOP_GROUPS);
    return group > 1;
}

static struct opt *add_of_sum(struct place_list *l, enum opt_op op, int number, int axis)
{
    struct opt *o = list_add(l, op, -1);
    o->of = OF_SUM, o->number = number, o->axis = axis;
    return o;
}

/* Blocks go through all places of the grid: up to the last of these loops that is over it. */
static void list_persist(struct place_list *l, const struct wave_tile *w, const int *tag, int n)
{
    int last = -1;
    for (int i = 0; i < n; i++)
        last = list_position(l, tag[i]) > last ? list_position(l, tag[i]) : last;
    if (w->blocks <= 0 || last < 0)
        return;
    struct opt *o = list_add(l, OPT_PERSIST, l->loop[last]);
    o->n = (int64_t)w->blocks / cluster_of(w);
    for (int i = 0, left = 0; i < n; i++) {
        left += list_position(l, tag[i]) >= 0;
        if (left > 1)
            list_remove(l, tag[i]);
    }
    if (cluster_of(w) > 1)
        list_add(l, OPT_GRID, LOOP_CLUSTER);
}

/* The loop of the blocks that copy together. */
static void list_shared(struct place_list *l, const struct wave_tile *w, int number)
{
    int side = w->cluster[1] > 1, axis = list_position(l, w->blocks > 0 ? LOOP_CLUSTER : side ? LOOP_COLUMNS : LOOP_ROWS);
    if (cluster_of(w) > 1)
        add_of_sum(l, OPT_CLUSTER, number, axis)->n = cluster_of(w);
}

/* The sum's last loop in steps of parts of the instruction's k; returns the number of the innermost loop over steps. */
static int list_terms(struct place_list *l, const struct matrix_choice *c, const struct wave_tile *w, int number)
{
    int last = c->x->m.reduce->nsrc - 2, step = w->step < c->nk ? last + 1 : last;
    add_of_sum(l, OPT_COVER, number, last)->n = w->step;
    if (w->step > c->row->size[MATRIX_K])
        add_of_sum(l, OPT_DIVIDE, number, step)->n = c->row->size[MATRIX_K];
    return step - 1;
}

/* The loops that the grid takes, of these tags. */
struct grid_loops { int tag[LOOPS_MAX]; int64_t size[LOOPS_MAX]; int n; };

static void add_grid_loop(struct grid_loops *g, int tag, int64_t size)
{
    g->tag[g->n] = tag;
    g->size[g->n++] = size;
}

/* The opts of the results that leave through local memory, behind the others of the block; s: the loops as THROUGH has left them. */
static void list_second(struct place_list *l, struct place_list s, const struct grid_loops *grid, const struct matrix_choice *c, const struct wave_tile *w)
{
    static const int inner[2] = {LOOP_M, LOOP_N};
    int row = leaving_row(c);
    s.store++, s.n = 0;
    list_grid(&s, grid->tag, grid->size, grid->n);
    list_leaving(&s, &c->leaving, inner[row], side_of(c, w, row), inner[!row], side_of(c, w, !row), threads_of(c, w), LOOP_COLUMN_TILES);
    for (int i = 0; i < s.n; i++)
        *list_add(l, s.opt[i].op, -1) = s.opt[i];
    l->failed |= s.failed;
    list_add(l, OPT_OVER, -1);
}

static bool apply_waves(struct tgc *t, struct kernel *k, int store, const struct matrix_choice *c,
                        const struct wave_tile *w)
{
    struct place_list l, behind;
    struct kernel trial = c->s->k;
    const struct product *x = c->x;
    struct grid_loops grid = {.n = 0};
    int number = opt_number(t, x->m.store, x->m.reduce);
    list_begin(&l, t, trial.ast, store);
    for (int i = 0; i < l.nloop; i++)
        if (x->m.first + i != x->row && x->m.first + i != x->column)
            add_grid_loop(&grid, LOOP_GIVEN + i, x->m.store->src[x->m.first + i]->src[0]->vmax);
    list_blocks(&l, c, w, 0, LOOP_GIVEN + c->m - x->m.first);
    list_blocks(&l, c, w, 1, LOOP_GIVEN + c->n - x->m.first);
    for (int i = 0; i < 2; i++)
        list_cluster(&l, c, w, i);
    if (grid.n == 0 && list_groups(&l, c, w))
        add_grid_loop(&grid, LOOP_GROUPS, INT64_MAX);
    add_grid_loop(&grid, LOOP_ROWS, INT64_MAX);
    add_grid_loop(&grid, LOOP_COLUMNS, INT64_MAX);
    if (w->through) {
        list_through(&l, &c->leaving, number, leaving_row(c) ? LOOP_N : LOOP_M, leaving_row(c) ? LOOP_M : LOOP_N);
        number = c->leaving.of_sum ? 0 : number;
    }
    behind = l;
    list_grid(&l, grid.tag, grid.size, grid.n);
    list_side(&l, c, w, 0);
    list_side(&l, c, w, 1);
    for (int i = 0; i < 2; i++)
        if (w->waves[i] > 1)
            list_add(&l, OPT_ITEM, i ? LOOP_COLUMN_ITEMS : LOOP_ROW_ITEMS);
    list_lanes(&l, LOOP_ROW_TILES, w->tiles[0], false);
    list_lanes(&l, LOOP_COLUMN_TILES, w->tiles[1], true);
    int axis = list_terms(&l, c, w, number);
    struct opt *o = list_add(&l, OPT_MATRIX, LOOP_M);
    o->of = OF_SUM, o->number = number, o->by = c->of, o->to = list_position(&l, LOOP_N);
    list_remove(&l, LOOP_M);
    list_remove(&l, LOOP_N);
    for (int i = 0; i < 2; i++) {
        o = add_of_sum(&l, OPT_LOCAL, number, axis);
        o->n = pad_of(t, c, w, side_of_operand(c, i)), o->operand = i, o->to = w->by.how == TRANSFER_BULK ? 0 : (int)width_of(c, w, side_of_operand(c, i));
    }
    for (int i = 0; i < 2 && reads_copies(c); i++) {
        o = add_of_sum(&l, OPT_SWIZZLE, number, 0);
        o->n = copied_row(c, w, i), o->operand = i;
    }
    list_persist(&l, w, grid.tag, grid.n);
    if (w->by.parts > 1) {
        o = add_of_sum(&l, OPT_PIPELINE, number, 0);
        o->n = w->by.parts, o->how = w->by.how;
    }
    list_shared(&l, w, number);
    if (w->producers)
        add_of_sum(&l, OPT_PRODUCER, number, 0)->n = w->producers;
    if (w->through)
        list_second(&l, behind, &grid, c, w);
    if (l.failed || !grid_apply(t, &trial, &l, (int)threads_of(c, w), 1))
        return false;
    *k = trial;
    return true;
}

/* What is refused goes without its producers, blocks that go through places, results through local memory, or clusters, or some of them. */
static bool apply_less(struct tgc *t, struct kernel *k, int store, const struct wave_tile *w)
{
    struct wave_tile other = *w;
    for (int less = 0; less < 16; less++) {
        other.producers = less & 1 ? 0 : w->producers;
        other.blocks = less & 2 ? 0 : w->blocks;
        other.through = !(less & 4) && w->through;
        other.cluster[0] = less & 8 ? 1 : w->cluster[0];
        other.cluster[1] = less & 8 ? 1 : w->cluster[1];
        bool again = (less & 1 && !w->producers) || (less & 2 && w->blocks <= 0) || (less & 4 && !w->through) || (less & 8 && cluster_of(w) == 1);
        if (!again && apply_waves(t, k, store, w->of, &other))
            return true;
    }
    return false;
}

/* With copies by the threads, where what is to come in bulk is no box. */
static bool apply_some(struct tgc *t, struct kernel *k, int store, const struct wave_tile *w)
{
    struct wave_tile other = *w;
    other.by.how = TRANSFER_ASYNC;
    other.producers = 0;
    other.cluster[0] = other.cluster[1] = 1;
    return apply_less(t, k, store, w) || (w->by.how == TRANSFER_BULK && comes(t, w->of, &other) && apply_less(t, k, store, &other));
}

/* Whether the factor's terms are no neighbours, nor its rows or columns, of halves, which instructions exchange as they load them. */
static bool gains_by_packing(const struct product *x, const struct uop *load, int side)
{
    const struct uop *const *loop = (const struct uop *const *)x->m.store->src, *sum = x->m.reduce;
    bool exchanged = dtype_nbytes(load->dtype) == 2 && stride_along(x->m.t, load, loop[side]) == 1;
    return stride_along(x->m.t, load, sum->src[sum->nsrc - 1]) != 1 && !exchanged;
}

/* Of the shape's product, and of those whose rows and columns are made of more loops, the tiles that cost least. */
static int list_joined(struct tgc *t, const struct shape *s, int store, struct wave_tile *best, int n)
{
    bool joined = true;
    for (int i = 0; joined && i < JOINED_MAX; i++) {
        struct matrix_choice *c = scratch_array(t, INSTRUCTIONS_MAX + 1, sizeof *c);
        struct shape *next = scratch_array(t, 1, sizeof *next);
        int of = list_instructions(t, &s->x, c);
        for (int j = 0; j < of; j++) {
            c[j].s = s, c[j].joined = i;
            n = list_waves(t, &c[j], best, n);
        }
        joined = of > 0 && shape_join_rows(t, s, store, next);
        s = next;
    }
    return n;
}

/* The same of patches of its rows, by instructions that read copies, in panels: these come as boxes. */
static int list_patches(struct tgc *t, const struct shape *s, int store, struct wave_tile *best, int n)
{
    enum { PATCH_LEAST = 64, PATCH_MOST = 256 };
    struct matrix_choice *c = scratch_array(t, INSTRUCTIONS_MAX, sizeof *c);
    struct patch patch;
    int of = list_instructions(t, &s->x, c), reading = 0;
    for (int i = 0; i < of; i++)
        reading += reads_copies(&c[i]) && c[i].width[0] > 1 && c[i].width[1] > 1;
    for (int64_t turns = PATCH_LEAST; reading && turns <= PATCH_MOST && shape_find_patch(s, turns, &patch); turns *= 2) {
        struct shape *patched = scratch_array(t, 1, sizeof *patched);
        c = scratch_array(t, INSTRUCTIONS_MAX, sizeof *c);
        of = shape_patch(t, s, store, &patch, patched) ? list_instructions(t, &patched->x, c) : -1;
        for (int i = 0; i < of; i++) {
            c[i].s = patched, c[i].joined = 0, c[i].patched = true;
            n = reads_copies(&c[i]) ? list_waves(t, &c[i], best, n) : n;
        }
    }
    return n;
}

static int64_t longest_terms(const struct uop *sum)
{
    int64_t most = 0;
    for (int i = 1; i < sum->nsrc; i++)
        most = range_fixed_size(sum->src[i]) > most ? range_fixed_size(sum->src[i]) : most;
    return most;
}

/* The form with known factors by terms, which is preferred, and as it is; with one loop of terms, if all of them are short. */
static int add_forms(struct tgc *t, const struct shape *form, int store, struct shape *to)
{
    enum { TERMS_SHORT = 16 };
    int n = shape_pack(t, form, store, true, gains_by_packing, to);
    to[n++] = *form;
    return n + (longest_terms(form->x.m.reduce) < TERMS_SHORT && shape_join_terms(t, &to[0], store, &to[n]));
}

/* Of the product as it is, and with its sum's longest loop innermost, the tiles that cost least by any instruction, best first;
 * *scalar: what it costs without one. */
static int find_waves(struct tgc *t, const struct kernel *k, int store, struct wave_tile *best, double *scalar)
{
    enum { FORMS = 6 };
    struct shape *s = scratch_array(t, FORMS, sizeof *s), *form = scratch_array(t, 2, sizeof *form);
    int n = 0;
    if (!shape_begin(t, &form[0], k, store) || form[0].x.m.bytes)
        return 0;
    int of = add_forms(t, &form[0], store, s);
    of += shape_order_terms(t, &form[0], store, &form[1]) ? add_forms(t, &form[1], store, s + of) : 0;
    for (int i = 0; i < of; i++) {
        double ns = grid_tile_loaded_ns(t, &s[i].x);
        *scalar = i == 0 || (ns > 0 && ns < *scalar) ? ns : *scalar;
        n = list_joined(t, &s[i], store, best, n);
        n = list_patches(t, &s[i], store, best, n);
    }
    return n;
}

bool grid_matrix(struct tgc *t, struct kernel *k, int store, int first)
{
    struct wave_tile best[CHOICES_MAX] = {{.ns = 0}};
    double scalar = 0;
    int n = t->no_locals ? 0 : find_waves(t, k, store, best, &scalar);      /* wave_ns() adds a share to each */
    for (int i = first; i < n; i++)
        if ((scalar <= 0 || best[i].ns < scalar * (1 + 1.0 / BESIDE_LIMIT)) && apply_some(t, k, store, &best[i]))
            return true;
    return false;
}
