/* grid_matrix_cost.c - chooses the tile by which a matrix instruction computes a product fastest,
 * and how its blocks run. A wave is a subgroup (warp) or warpgroup.
 *
 * Cost model: the instruction's rate, including tiles that reach beyond the result. What threads
 * issue besides (loads of tiles, copies), in parallel if the device has separate matrix units. The
 * operands' bytes, once for each block. And occupancy and pipeline stages, which hide the latency
 * of copies.
 *
 * A tile may also have a cluster with multicast, persistent blocks, producer warps, an epilogue
 * staged through shared memory, or split-K. The model adds each of these in turn if it is faster
 * with it. */
#include "passes/analysis/banks.h"
#include "passes/analysis/copied.h"
#include "passes/analysis/matrix.h"
#include "passes/kernel/grid_compare.h"
#include "passes/kernel/grid_matrix.h"
#include "passes/target/target.h"

enum { REGISTERS_BESIDE = 40, CLUSTER_CHOSEN = 4, WORD_NBYTES = 4 };

/* The pipelines that are tried. Among tiles bound by the matrix units many cost the same, and the
 * first of equals is taken: so the order is by least issue, then least stall. Longest steps come
 * first, too. */
static const struct stages stages[] = {
    {4, TRANSFER_BULK},  {3, TRANSFER_BULK},  {2, TRANSFER_BULK},      {3, TRANSFER_ASYNC},
    {4, TRANSFER_ASYNC}, {2, TRANSFER_ASYNC}, {2, TRANSFER_REGISTERS}, {1, TRANSFER_REGISTERS}};
enum { STAGES = sizeof stages / sizeof *stages };

static void set_row(const struct tgc *t, struct matrix_choice *c)
{
    c->local_nbytes = device_local_nbytes(t);
    c->row = matrix_row(c->of);
    c->reads_copies = matrix_in_shared(c->row, MATRIX_A);
    for (int i = 0; i < 3; i++)
        c->nelem[i] = matrix_elements(c->row, (enum matrix_part)i);
}

int64_t choice_stride(struct tgc *t, const struct uop *factor, const struct uop *along)
{
    int64_t stride;
    const struct uop *load = matrix_factor_load((struct uop *)(uintptr_t)factor);
    return index_stride(t, load->src[1], along, &stride) ? stride : INT64_MAX;
}

/* Vector width of the load along the loop, at most `width`: contiguous, aligned and under one
 * condition; 1: scalar. */
static int64_t width_of_load(struct tgc *t, struct uop *load, struct uop *along, int64_t width)
{
    if (choice_stride(t, load, along) != 1 || (load->nsrc > 2 && !load_is_zero_elsewhere(load)))
        return 1;
    struct uop *rest = sym_sub(t, load->src[1], along);
    while (width > 1 && (range_fixed_size(along) % width || index_divisor(t, rest) % width ||
                         !buffer_is_aligned(t, uop_buffer_of(load->src[0]), width) ||
                         (load->nsrc > 2 && !condition_of_first(t, load->src[2], along, width))))
        width /= 2;
    return width;
}

/* Whether each aligned group of `width` iterations loads one element: a block's scale. */
static bool load_is_shared(struct tgc *t, struct uop *load, struct uop *along, int64_t width)
{
    if (range_fixed_size(along) < width || range_fixed_size(along) % width)
        return false;
    struct uop *lane = uop_axis(t, uop_int(t, width), AXIS_LOOP, WORKER_EACH),
               *group =
                   uop_axis(t, uop_int(t, range_fixed_size(along) / width), AXIS_LOOP, WORKER_EACH);
    return !uop_depends_on(
        t, uop_substitute(t, load, along, sym_add(t, sym_muli(t, group, width), lane)), lane);
}

/* Vector width of all loads from which the factor is computed. */
static int64_t width_of(struct tgc *t, struct uop *u, struct uop *along, int64_t width)
{
    if (u->op == OP_LOAD && uop_depends_on(t, u, along) &&
        (width == 1 || load_is_shared(t, u, along, width)))
        return width;
    if (u->op == OP_LOAD)
        return uop_depends_on(t, u, along) ? width_of_load(t, u, along, width) : width;
    for (int i = 0; u->op != OP_CONST && i < u->nsrc; i++)
        width = width_of(t, u->src[i], along, width);
    return width;
}

/* Vector width of the factor's copy along the loop; 1: scalar, or it is converted on load. */
static int64_t width_along(struct tgc *t, struct uop *factor, struct uop *along)
{
    int64_t width = COPY_NBYTES_MOST / (int64_t)dtype_nbytes(factor->dtype);
    return factor->op == OP_LOAD        ? width_of_load(t, factor, along, width)
           : matrix_is_computed(factor) ? width_of(t, factor, along, width)
                                        : 1;
}

/* Traffic per element copied alone, in elements: the distance to the next one, at most a sector. */
static double spread_of(struct tgc *t, struct uop *factor, const struct uop *k,
                        const struct uop *side)
{
    enum { SECTOR_NBYTES = 32 };
    struct uop *offset = matrix_factor_load(factor)->src[1];
    int64_t along_k = index_first_step(t, offset, k), along = index_first_step(t, offset, side);
    double step = (double)(along_k < 1 || (along > 0 && along < along_k) ? along : along_k),
           most = SECTOR_NBYTES / (double)dtype_nbytes(factor->dtype);
    return step < 1 || step > most ? most : step;
}

static void find_widths(struct tgc *t, struct matrix_choice *c, struct uop *const factor[2])
{
    struct uop *const *loop = c->x->m.store->src,
                      *k = c->x->m.reduce->src[c->x->m.reduce->nsrc - 1];
    for (int side = 0; side < 2; side++) {
        struct uop *other = loop[side ? c->n : c->m];
        c->along_side[side] =
            choice_stride(t, factor[side], other) < choice_stride(t, factor[side], k);
        c->width[side] = width_along(t, factor[side], c->along_side[side] ? other : k);
        bool divided = choice_stride(t, factor[side], other) == INT64_MAX;
        c->divided |= divided;
        c->alone[side] = divided || matrix_factor_load(factor[side])->nsrc > 2;
        c->spread[side] = spread_of(t, factor[side], k, other);
        c->computed[side] = matrix_is_computed(factor[side]) ? matrix_computed(factor[side]) : 0;
        /* such a copy would be transposed, but these instructions read only rows of terms */
        if (c->along_side[side] && c->reads_copies && dtype_nbytes(c->row->dtype[side]) != 2)
            c->width[side] = 1;
    }
}

/* Iterations of the sum's loops around the last one. */
static int64_t outer_steps(const struct matrix_choice *c) { return c->x->terms / c->nk; }

/* Whether the store's loops fit the grid and have known sizes. */
static bool is_counted(const struct product *x)
{
    bool known = true;
    for (int i = x->m.first; i < x->m.store->nsrc; i++)
        known &= range_fixed_size(x->m.store->src[i]) > 0;
    return known && x->m.store->nsrc - x->m.first <= GRID_RANK;
}

/* Checks whether device instruction i multiplies the product's factors, with the first as its a
 * (or, exchanged, as its b), and finds which of the store's loops are its rows. */
static bool take_instruction(struct tgc *t, const struct product *x, int i, bool exchanged,
                             struct matrix_choice *c)
{
    struct uop *sum = x->m.reduce, *factor[2];
    struct uop *const *loop = x->m.store->src;
    *c = (struct matrix_choice){.x = x, .pads = scratch_array(t, 1, sizeof *c->pads)};
    if (!device_matrix(t, i, &c->of, &c->gflops))
        return false;
    set_row(t, c);
    bool of_copies = matrix_in_shared(c->row, MATRIX_A) == matrix_in_shared(c->row, MATRIX_B);
    if (!of_copies || c->row->lanes % t->device->wave ||
        !matrix_factors(sum, c->row, exchanged, factor))
        return false;
    /* a nested reduction would recompute the fragment in each iteration; the number of terms must
     * be known */
    if (x->m.nouter > 0 || x->last_terms < 1)
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
    for (int k = 0; k < x->m.nload; k++)
        c->memory_ns += buffer_most_nbytes(uop_buffer_of(x->m.load[k]->src[0])) / t->device->gbytes;
    find_widths(t, c, factor);
    c->may_stage = grid_find_epilogue(t, x, c->m, c->n, &c->epilogue);
    return c->nk > c->row->size[MATRIX_K] ||
           (outer_steps(c) > 1 && 2 * c->nk >= c->row->size[MATRIX_K]);
}

int choice_list(struct tgc *t, const struct product *x, struct matrix_choice *c)
{
    enum matrix_unit of;
    double gflops;
    int n = 0;
    for (int i = 0; device_matrix(t, i, &of, &gflops); i++)
        for (int order = 0; order < 4 && n < INSTRUCTIONS_MAX; order++) {
            bool held = n > 0 && c[n - 1].of == of && !c[n - 1].reads_copies, by_rows = order < 2;
            n += !held && take_instruction(t, x, i, order % 2, &c[n]) &&
                 (c[n].m == x->row) == by_rows;
        }
    return n;
}

int64_t wave_side(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    return w->waves[side] * w->tiles[side] * c->row->size[side];
}

int64_t wave_threads(const struct matrix_choice *c, const struct wave_tile *w)
{
    return w->waves[0] * w->waves[1] * c->row->lanes;
}

int64_t wave_width(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    int64_t width = c->width[side];
    while (width > 1 && (w->step * wave_side(c, w, side) % (wave_threads(c, w) * width) ||
                         (c->along_side[side] && wave_side(c, w, side) % width)))
        width /= 2;
    return width;
}

/* Row length of a factor's copy, in elements. */
static int64_t row_of(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    return c->along_side[side] ? wave_side(c, w, side) : w->step;
}

/* Row padding with the fewest bank conflicts: of tile loads above all, then of copies. */
static int64_t find_pad(const struct tgc *t, const struct matrix_choice *c, int side, int64_t row,
                        int64_t width)
{
    enum { TILES = 4, MOST_NBYTES = 64 };        /* a tile is loaded more often than it is copied */
    int64_t nbytes = (int64_t)dtype_nbytes(c->row->dtype[side]), word = COPY_NBYTES_LEAST / nbytes,
            best = 0;
    int least = 0;
    for (int64_t pad = 0; pad * nbytes <= MOST_NBYTES; pad += width > word ? width : word) {
        bool along_k = !c->along_side[side],
             by_rows = matrix_is_by_rows(t, c->row, (enum matrix_part)side, along_k, row + pad);
        int conflicts =
            TILES * (banks_of_tile(c->row, (enum matrix_part)side, along_k, row + pad, by_rows) +
                     2 * !by_rows) +
            banks_of_copy(row * nbytes, (row + pad) * nbytes, width * nbytes);
        if (pad == 0 || conflicts < least)
            least = conflicts, best = pad;
        if (conflicts == 0)
            break;
    }
    return best;
}

/* find_pad() of the tile's copy, cached by row length and width. */
int64_t wave_pad(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w,
                 int side)
{
    int64_t row = row_of(c, w, side), width = wave_width(c, w, side);
    struct pads *of = c->pads;
    if (c->reads_copies)
        return 0;
    for (int i = 0; i < of->n; i++)
        if (of->v[i].side == side && of->v[i].row == row && of->v[i].width == width)
            return of->v[i].pad;
    if (of->n == PADS_MAX)
        return find_pad(t, c, side, row, width);
    of->v[of->n++] = (struct pad){side, row, width, find_pad(t, c, side, row, width)};
    return of->v[of->n - 1].pad;
}

static int64_t copied_nbytes(const struct tgc *t, const struct matrix_choice *c,
                             const struct wave_tile *w)
{
    int64_t nbytes = 0;
    for (int side = 0; side < 2; side++) {
        int64_t row = row_of(c, w, side), rows = w->step * wave_side(c, w, side) / row;
        nbytes +=
            rows * (row + wave_pad(t, c, w, side)) * (int64_t)dtype_nbytes(c->row->dtype[side]);
    }
    return nbytes * w->by.n;
}

bool wave_can_copy(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    bool bulk = w->by.how == TRANSFER_BULK;
    if (w->by.how == TRANSFER_REGISTERS)
        return true;
    /* a box's rows are not padded, so tile loads would have bank conflicts */
    if (bulk && (!device_copies_boxes(t) || !c->reads_copies || (c->divided && !c->patched)))
        return false;
    for (int side = 0; side < 2; side++) {
        int64_t nbytes = wave_width(c, w, side) * (int64_t)dtype_nbytes(c->row->dtype[side]);
        if (c->computed[side] > 0 || nbytes < (bulk ? BULK_ALIGNED : COPY_NBYTES_LEAST) ||
            (!bulk && !device_copies(t, nbytes)))
            return false;
    }
    return true;
}

/* The load that operand number `operand` is read by. The first operand is staged before the second,
 * which shifts the numbers. */
static struct uop *operand_load(const struct matrix_choice *c, int operand)
{
    const struct product *x = c->x;
    struct uop *factor[2];
    for (int exchanged = 0; exchanged < 2; exchanged++)
        if (matrix_factors(x->m.reduce, c->row, exchanged, factor)) {
            bool first = matrix_reads(factor[0], x->m.load[0]);
            return matrix_factor_load(factor[first == (operand > 0)]);
        }
    return x->m.load[operand];
}

int choice_side(const struct matrix_choice *c, int operand)
{
    const struct product *x = c->x;
    return operand < x->m.nload &&
           uop_depends_on(x->m.t, operand_load(c, operand), x->m.store->src[c->n]);
}

int64_t wave_copied_row(const struct matrix_choice *c, const struct wave_tile *w, int operand)
{
    const struct uop *sum = c->x->m.reduce;
    struct uop *offset = operand_load(c, operand)->src[1];
    int side = choice_side(c, operand);
    int64_t along_k, along;
    if (dtype_nbytes(c->row->dtype[MATRIX_A]) != 2)
        return w->step;
    struct uop *loop = c->x->m.store->src[side ? c->n : c->m];
    if (!index_stride(c->x->m.t, offset, sum->src[sum->nsrc - 1], &along_k))
        return 0;
    if (!index_stride(c->x->m.t, offset, loop, &along))
        return along_k == 1 ? w->step : 0;            /* flattened pixels */
    return along_k < along ? w->step : wave_side(c, w, side);
}

/* Whether an instruction that reads panels can read these copies: along terms, or along a side in
 * whole rows. */
static bool copies_fit(const struct matrix_choice *c, const struct wave_tile *w)
{
    int64_t size = (int64_t)dtype_nbytes(c->row->dtype[MATRIX_A]);
    for (int i = 0; i < 2 && c->reads_copies; i++) {
        int side = c->s ? choice_side(c, i) : i;
        int64_t row = c->s ? wave_copied_row(c, w, i) : w->step;  /* only sizes known: as along
                                                                   * terms */
        if (row == 0 || row * size % PANEL_ROW_NBYTES ||
            (row == w->step ? wave_side(c, w, side) : w->step) % PANEL_ROWS ||
            (row != w->step && c->row->size[side] * size % PANEL_ROW_NBYTES))
            return false;
    }
    return true;
}

static double steps_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    return (double)ceil_div(c->nk / w->split, w->step) * (double)outer_steps(c);
}

/* A thread's registers for accumulators, tiles and early loads. */
static int64_t registers_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    int64_t size[3];
    for (int i = 0; i < 3; i++)
        size[i] = c->nelem[i] * dtype_bits(c->row->dtype[i]) / 32;
    bool early = w->by.n > 1 && w->by.how == TRANSFER_REGISTERS;
    return w->tiles[0] * w->tiles[1] * size[MATRIX_SUM] + w->tiles[0] * size[MATRIX_A] +
           w->tiles[1] * size[MATRIX_B] +
           (early ? w->step * (wave_side(c, w, 0) + wave_side(c, w, 1)) / wave_threads(c, w) : 0);
}

/* Whether shared memory suffices. Copies by threads leave a quarter free; boxes may fill it, but
 * for their barriers. */
static bool copies_have_room(const struct tgc *t, const struct matrix_choice *c,
                             const struct wave_tile *w)
{
    int64_t nbytes = copied_nbytes(t, c, w), most = c->local_nbytes;
    return w->by.how == TRANSFER_BULK ? nbytes + BULK_MEMORY_ALIGNED <= most
                                      : 4 * nbytes <= 3 * most;
}

static bool wave_fits(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    const struct device_row *d = t->device;
    int64_t threads = wave_threads(c, w), most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    /* a small block's threads have more registers, which only accumulators can use */
    int64_t own = c->reads_copies ? device_registers(d, threads) : d->registers,
            registers = registers_of(c, w);
    return threads <= most && 4 * registers <= 3 * own && copies_fit(c, w) &&
           copies_have_room(t, c, w) && (outer_steps(c) > 1 || w->step < c->nk / w->split) &&
           w->step * wave_side(c, w, 0) % threads == 0 &&
           w->step * wave_side(c, w, 1) % threads == 0 && steps_of(c, w) >= (double)w->by.n &&
           wave_can_copy(t, c, w);
}

/* Bytes that a block's matrix instructions read from shared memory for one step of K. wgmma reads
 * both operands there itself, each instruction anew; where warps load fragments it is 0. */
static double fetched_nbytes(const struct matrix_choice *c, const struct wave_tile *w)
{
    double instructions = (double)(w->waves[0] * w->tiles[0] * w->waves[1] * w->tiles[1]);
    return c->reads_copies ? instructions * (c->row->size[MATRIX_M] + c->row->size[MATRIX_N]) *
                                 (double)dtype_nbytes(c->row->dtype[MATRIX_A])
                           : 0;
}

/* Elements of a tile that one load brings: a word, or 1 if the copy is not along the instruction's
 * rows. */
static double elements_loaded(const struct tgc *t, const struct matrix_choice *c,
                              const struct wave_tile *w, int side)
{
    bool along_k = !c->along_side[side];
    int64_t stride = row_of(c, w, side) + wave_pad(t, c, w, side);
    return along_k || c->reads_copies ||
                   matrix_is_by_rows(t, c->row, (enum matrix_part)side, along_k, stride)
               ? 4 / (double)dtype_nbytes(c->row->dtype[side])
               : 1;
}

static double spread_in(const struct matrix_choice *c, const struct wave_tile *w, int side)
{
    return wave_width(c, w, side) > 1 ? 1 : c->spread[side];
}

int choice_epilogue_row(const struct matrix_choice *c) { return c->epilogue.row == c->n; }

static bool stores_whole(const struct tgc *t, const struct matrix_choice *c,
                         const struct wave_tile *w)
{
    int row = choice_epilogue_row(c);
    return c->may_stage && epilogue_fits(t, &c->epilogue, wave_side(c, w, row),
                                         wave_side(c, w, !row), wave_threads(c, w));
}

static bool may_stage(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    return stores_whole(t, c, w) && c->s->k.ast->nsrc == 1;
}

static bool are_boxes(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    int row = choice_epilogue_row(c);
    return epilogue_is_boxes(t, &c->epilogue, wave_side(c, w, row), wave_side(c, w, !row),
                             wave_threads(c, w));
}

/* Issue cost of a thread's epilogue. */
static double stored(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    double elements =
        (double)(wave_side(c, w, 0) * wave_side(c, w, 1)) / (double)wave_threads(c, w);
    if (w->split > 1) {                        /* the partial sums, unconverted */
        struct epilogue part = {.width = COPY_NBYTES_MOST / WORD_NBYTES, .nbytes = WORD_NBYTES};
        return epilogue_direct(t, &part, c->row, choice_epilogue_row(c), elements) +
               RATIO_GRID_BARRIER;
    }
    if (!c->may_stage)
        return 0;
    bool exchanged = choice_epilogue_row(c);
    return w->boxes    ? epilogue_as_boxes(t, &c->epilogue, c->row, exchanged, elements)
           : w->staged ? epilogue_staged(t, &c->epilogue, c->row, exchanged, elements)
                       : epilogue_direct(t, &c->epilogue, c->row, exchanged, elements);
}

bool wave_aliases(const struct wave_tile *w) { return w->staged && w->blocks <= 0; }

static int64_t epilogue_tile_nbytes(const struct matrix_choice *c, const struct wave_tile *w)
{
    int row = choice_epilogue_row(c);
    int64_t rows = wave_side(c, w, row), columns = wave_side(c, w, !row);
    return w->boxes    ? epilogue_boxes_nbytes(&c->epilogue, rows, columns)
           : w->staged ? epilogue_nbytes(&c->epilogue, rows, columns)
                       : 0;
}

static double wave_local_nbytes(const struct tgc *t, const struct matrix_choice *c,
                                const struct wave_tile *w)
{
    int64_t copied = copied_nbytes(t, c, w), tile = epilogue_tile_nbytes(c, w);
    return (double)(!wave_aliases(w) ? copied + tile : copied > tile ? copied : tile);
}

/* Whether a persistent block's shared memory holds the epilogue tile beside the operand boxes. */
static bool may_stage_apart(const struct tgc *t, const struct matrix_choice *c,
                            const struct wave_tile *w)
{
    return w->blocks > 0 && w->by.how == TRANSFER_BULK && may_stage(t, c, w) &&
           copied_nbytes(t, c, w) + epilogue_tile_nbytes(c, w) + BULK_MEMORY_ALIGNED <=
               c->local_nbytes;
}

/* Output tiles, each a block of the grid. */
static double places_of(const struct matrix_choice *c, const struct wave_tile *w)
{
    return (double)ceil_div(c->nm, wave_side(c, w, 0)) *
           (double)ceil_div(c->nn, wave_side(c, w, 1)) * (double)(c->x->rest * w->split);
}

/* Issue cost of a thread for each k of the instruction: tile loads, products, its share of copies,
 * barriers. */
static double issued_of(const struct tgc *t, const struct matrix_choice *c,
                        const struct wave_tile *w)
{
    const struct device_row *d = t->device;
    const struct matrix_row *r = c->row;
    double words = 0, copies = 0, load = cost_grid_load(d), local = cost_grid_local(d);
    for (int side = 0; side < 2; side++)
        words += (double)(w->tiles[side] * c->nelem[side]) / elements_loaded(t, c, w, side);
    /* boxes are issued by one thread */
    for (int side = 0; side < 2 && w->by.how != TRANSFER_BULK; side++)
        copies += (load + (w->by.how == TRANSFER_REGISTERS ? local : 0) +
                   c->computed[side] * (double)wave_width(c, w, side) +
                   (c->alone[side] && wave_width(c, w, side) == 1 ? RATIO_GRID_SINGLE : 0)) *
                  (double)(wave_side(c, w, side) * r->size[MATRIX_K]) /
                  (double)(wave_threads(c, w) * wave_width(c, w, side));
    double products = device_multiplies_apart(d) ? (double)(w->tiles[0] * w->tiles[1]) : 0;
    double barriers = w->by.how == TRANSFER_BULK ? 0
                                                 : RATIO_GRID_BARRIER * r->size[MATRIX_K] /
                                                       (double)w->step / (w->by.n > 1 ? 2 : 1);
    return local * words + products + copies + barriers;
}

int64_t wave_cluster(const struct wave_tile *w) { return w->cluster[0] * w->cluster[1]; }

static struct grid_work work_of(const struct tgc *t, const struct matrix_choice *c,
                                const struct wave_tile *w)
{
    const struct device_row *d = t->device;
    double rows = (double)wave_side(c, w, 0), columns = (double)wave_side(c, w, 1),
           places = places_of(c, w), k = steps_of(c, w) * (double)w->step,
           iterations = w->blocks > 0 ? __builtin_ceil(places / w->blocks) : 1,
           terms = places * k * (double)dtype_nbytes(c->row->dtype[MATRIX_A]);
    double parts = w->split > 1 ? WORD_NBYTES * places * rows * columns : 0;
    double arithmetic = 2 * rows * columns * k / c->gflops,
           fetched = fetched_nbytes(c, w) * k / (d->gflops * RATIO_GRID_LOCAL);
    return (struct grid_work){
        .blocks = w->blocks > 0 ? w->blocks : places,
        .threads = (double)wave_threads(c, w),
        .producers = w->producers,
        .apart = device_multiplies_apart(d),
        .handovers = c->reads_copies && !w->producers ? iterations * steps_of(c, w) : 0,
        .steps = iterations * steps_of(c, w),
        .ahead = w->by.n - 1,
        .cluster = (int)wave_cluster(w),
        .issued = iterations * k / c->row->size[MATRIX_K] * issued_of(t, c, w),
        .matrix_ns = iterations * (arithmetic > fetched ? arithmetic : fetched),
        .local_nbytes = wave_local_nbytes(t, c, w),
        .stored = iterations * stored(t, c, w),
        .persistent = w->blocks > 0,
        .registers = c->reads_copies ? (double)(registers_of(c, w) + REGISTERS_BESIDE) : 0,
        .received_nbytes =
            parts + terms * (rows * spread_in(c, w, 0) + columns * spread_in(c, w, 1)),
        .cache_nbytes = parts + terms * (rows * spread_in(c, w, 0) / (double)w->cluster[1] +
                                         columns * spread_in(c, w, 1) / (double)w->cluster[0]),
    };
}

/* Time of the last-arriving blocks of split-K. */
static double last_ns(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    double elements = (double)(wave_side(c, w, 0) * wave_side(c, w, 1)),
           tiles = places_of(c, w) / (double)w->split;
    return cost_grid_last(t->device, tiles, (double)wave_threads(c, w), elements, (double)w->split);
}

struct grid_parts wave_parts(const struct tgc *t, const struct matrix_choice *c,
                             const struct wave_tile *w)
{
    struct grid_work work = work_of(t, c, w);
    struct grid_parts parts = cost_parts_of_grid(t->device, &work);
    double ns = cost_of_grid(t->device, &work, NULL);
    if (w->split > 1) {
        double memory = parts.ns[PART_MEMORY], last = last_ns(t, c, w);
        parts.ns[PART_MEMORY] = memory > c->memory_ns ? memory : c->memory_ns;
        parts.ns[PART_LATENCY] += last;
        ns = (ns > c->memory_ns ? ns : c->memory_ns) + last;
    }
    cost_close_parts(&parts, ns + RATIO_GRID_LAUNCH);
    return parts;
}

double wave_ns(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    struct grid_work work = work_of(t, c, w);
    double ns = cost_of_grid(t->device, &work, NULL);
    if (w->split > 1)                     /* if memory-bound without the split, it is so with it */
        ns = (ns > c->memory_ns ? ns : c->memory_ns) + last_ns(t, c, w);
    /* ties among cache-bound tiles: prefer the least stall otherwise, then the least issue */
    work.cache_nbytes = work.received_nbytes = 0;
    return ns + (cost_of_grid(t->device, &work, NULL) +
                 work.blocks * 2 * work.threads * work.issued / t->device->gflops) /
                    BESIDE_LIMIT;
}

/* Makes the blocks persistent if that is faster: as many as are resident at once, spread evenly
 * over the tiles. The next tile's copies then overlap the epilogue. */
static void take_places(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *w)
{
    struct grid_work work = work_of(t, c, w);
    double of = (double)wave_cluster(w),
           at_once = __builtin_floor(cost_grid_at_once(t->device, &work) / of),
           clusters = work.blocks / of;
    struct wave_tile other = *w;
    if (!c->is_counted || w->by.n < 2 || clusters <= at_once)
        return;
    other.blocks = of * __builtin_ceil(clusters / __builtin_ceil(clusters / at_once));
    other.ns = wave_ns(t, c, &other);
    if (other.ns < w->ns)
        *w = other;
}

/* Adds producer warps if that is faster and leaves the computing threads enough registers. */
static void take_producers(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *w)
{
    const struct device_row *d = t->device;
    const int64_t threads = wave_threads(c, w),
                  together = (int64_t)d->wave * (d->role_waves > 0 ? d->role_waves : 1),
                  all = threads + together;
    int64_t own = device_role_registers(t, threads, together, ROLE_CONSUMERS);
    struct wave_tile other = *w;
    own = own ? own : device_registers(d, all);
    if (w->by.how != TRANSFER_BULK || threads % together || all > d->group ||
        4 * registers_of(c, w) > 3 * own)
        return;
    other.producers = (int)together;
    other.ns = wave_ns(t, c, &other);
    if (other.ns < w->ns)
        *w = other;
}

/* Whether a cluster of n blocks along rows (0) or columns (1) can multicast the other factor: each
 * block copies a part of its boxes. */
static bool may_share(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w,
                      int along, int64_t n)
{
    int64_t blocks =
        ((along ? c->nn : c->nm) + wave_side(c, w, along) - 1) / wave_side(c, w, along);
    int64_t row = row_of(c, w, !along), rows = w->step * wave_side(c, w, !along) / row;
    return w->by.how == TRANSFER_BULK && n <= device_cluster(t) && blocks % n == 0 &&
           rows % (n * PANEL_ROWS) == 0;
}

/* The cheapest cluster, if any helps. Each doubling, and columns after rows, must gain. Larger
 * clusters are not tried: the device may find no adjacent free units. */
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

/* Tiles of columns for each wave. Three or six may fill the units better than powers of two. */
static const int columns[] = {1, 2, 4, 8, 3, 6};

/* Whether split-K is possible: the last-arriving block reduces, its result is stored as a staged
 * epilogue is, and the parts need a grid dimension. */
static bool may_split(const struct tgc *t, const struct matrix_choice *c, const struct wave_tile *w)
{
    const struct product *x = c->x;
    int loops = 1 + (c->nm > wave_side(c, w, 0)) + (c->nn > wave_side(c, w, 1));
    if (!c->s)                                 /* only sizes known */
        return device_has_tickets(t);
    for (int i = x->m.first; i < x->m.store->nsrc; i++) {
        int64_t size = range_fixed_size(x->m.store->src[i]);
        if (i != c->m && i != c->n)
            loops += size < 1 ? GRID_RANK : size > 1;
    }
    return device_has_tickets(t) && loops <= GRID_RANK && stores_whole(t, c, w);
}

/* The tile with the best split-K factor; parts are whole steps. */
static struct wave_tile with_parts(const struct tgc *t, const struct matrix_choice *c,
                                   const struct wave_tile *w)
{
    enum { PARTS_MOST = 64, PLACES_MOST = 4 };
    struct wave_tile best = *w, other = *w;
    double most = may_split(t, c, w) ? PLACES_MOST * t->device->units / places_of(c, w) : 0;
    for (int64_t n = 2; n <= PARTS_MOST && (double)n <= most && n * w->step <= c->nk; n++) {
        other.split = n;
        if (c->nk % (n * w->step))
            continue;
        other.ns = wave_fits(t, c, &other) ? wave_ns(t, c, &other) : 0;
        best = other.ns > 0 && other.ns < best.ns ? other : best;
    }
    return best;
}

/* The cheaper of the tile and its variant with a staged epilogue. */
static struct wave_tile cheaper(const struct tgc *t, const struct matrix_choice *c,
                                const struct wave_tile *w, struct wave_tile *staged)
{
    staged->ns = staged->staged ? wave_ns(t, c, staged) : 0;
    return staged->staged && staged->ns < w->ns ? *staged : *w;
}

double choice_flat_ns(const struct matrix_choice *c, double ns)
{
    for (int j = 0; j < c->joined; j++)
        ns /= RATIO_GRID_FLAT;
    return ns;
}

static void note_both(const struct tgc *t, const struct matrix_choice *c, struct wave_tile whole,
                      struct wave_tile parted)
{
    whole.ns = choice_flat_ns(c, whole.ns);
    parted.ns = choice_flat_ns(c, parted.ns);
    compare_wave(t, &whole);
    if (parted.split > 1)
        compare_wave(t, &parted);
}

int choice_list_waves(const struct tgc *t, const struct matrix_choice *c, struct wave_tile *best,
                      int n)
{
    enum { TILES = sizeof columns / sizeof *columns };
    for (int i = 0; i < 4 * 4 * 4 * TILES * 3 * STAGES; i++) {
        int of = i / 64 / TILES;
        struct wave_tile w = {.of = c,
                              .waves = {1 << i % 4, 1 << i / 4 % 4},
                              .tiles = {1 << i / 16 % 4, columns[i / 64 % TILES]},
                              .step = (int64_t)c->row->size[MATRIX_K] << (2 - of % 3),
                              .by = stages[of / 3],
                              .cluster = {1, 1},
                              .split = 1};
        if (!wave_fits(t, c, &w))
            continue;
        w.ns = wave_ns(t, c, &w);
        struct wave_tile over = w, parted = with_parts(t, c, &w);
        choose_cluster(t, c, &w);
        take_producers(t, c, &w);
        over.staged = may_stage(t, c, &over);
        over.boxes = over.staged && are_boxes(t, c, &over);
        struct wave_tile apart = w;
        apart.staged = true;
        apart.boxes = are_boxes(t, c, &apart);
        apart.staged = may_stage_apart(t, c, &apart);
        w = cheaper(t, c, &w, &over);
        w = cheaper(t, c, &w, &apart);
        if (compared(t))
            note_both(t, c, w, parted);
        w = parted.ns < w.ns ? parted : w;
        w.ns = choice_flat_ns(c, w.ns);
        n = KEEP_BEST(best, n, CHOICES_MAX, &w);
    }
    return n;
}

double grid_matrix_ns(struct tgc *t, const struct product *x, enum dtype of)
{
    struct product own = *x;
    struct wave_tile best[CHOICES_MAX] = {{.ns = 0}};
    struct pads pads = {.n = 0};
    struct matrix_choice c = {
        .x = &own, .nm = x->nrow, .nn = x->ncolumn, .nk = x->last_terms, .pads = &pads};
    int64_t width = COPY_NBYTES_MOST / (int64_t)dtype_nbytes(of);
    while (x->last_terms % width)
        width /= 2;
    c.width[0] = c.width[1] = width;
    c.spread[0] = c.spread[1] = 1;
    int n = 0;
    for (int i = 0; device_matrix(t, i, &c.of, &c.gflops); i++) {
        set_row(t, &c);
        if (c.row->lanes % t->device->wave == 0 && c.row->dtype[MATRIX_A] == of &&
            c.row->dtype[MATRIX_B] == of && c.nk > c.row->size[MATRIX_K])
            n = choice_list_waves(t, &c, best, n);
    }
    return n ? best[0].ns : 0;
}
