/* grid_matrix.c - sums of products on a device by a matrix instruction of ir/matrix.def: blocks of
 * waves, each with a tile of the instruction's matrices. A wave is a subgroup (warp), or the
 * warpgroup of an instruction that needs one.
 *
 *      rows      q · wave · tile · m     a block: waves of rows x waves of columns
 *      columns   q · wave · tile · n     a wave: tiles of rows x tiles of columns, m x n each
 *      terms     q · part · k
 *
 * As in grid_tile.c the sum goes in steps, and each stages in shared memory what the block's waves
 * read of both factors, in the order of global memory. Rows, columns and terms beyond the product
 * are zeros there, so all waves multiply whole matrices. The cheapest instruction that multiplies
 * the factors' dtypes is taken (passes/target/matrix.def). One that reads factors from shared
 * memory itself gets them in swizzled panels (SWIZZLE).
 *
 * Copies are vectors of 4, 8 or 16 aligned bytes. They are asynchronous, in an n-stage pipeline,
 * where the device can do that, or boxes in bulk (TMA), to panels. What these cannot copy (rows of
 * pixels that need divisions, open sizes, unaligned rows) is copied by plain loads and
 * stores.
 *
 * Blocks that are adjacent along rows (or columns) read the same other factor. Where the device has
 * clusters and the tile is cache-bound, a cluster multicasts it (opts_cluster.c). */
#include "passes/analysis/matrix.h"
#include "passes/analysis/stationary.h"
#include "passes/kernel/grid_compare.h"
#include "passes/kernel/grid_matrix.h"
#include "passes/target/target.h"

#include <string.h>

enum { JOINED_MAX = 4 };
enum {
    LOOP_M = LOOP_COLUMN_ITEMS + 1,
    LOOP_N,
    LOOP_ROW_TILES,
    LOOP_COLUMN_TILES,
    LOOP_GROUPS,
    LOOP_CLUSTER,
    LOOP_TURN,
    LOOP_PART
};

/* Cuts the loop `tag` into blocks. */
static void list_blocks(struct opt_list *l, const struct matrix_choice *c,
                        const struct wave_tile *w, int side, int tag)
{
    static const int blocks[2] = {LOOP_ROWS, LOOP_COLUMNS}, inner[2] = {LOOP_M, LOOP_N};
    struct block_of all = {wave_side(c, w, side), 1, blocks[side], inner[side], inner[side], false};
    list_cover(l, range_fixed_size(c->x->m.store->src[side ? c->n : c->m]), tag, &all);
}

/* Divides a block's loop into waves and tiles. */
static void list_side(struct opt_list *l, const struct matrix_choice *c,
                      const struct wave_tile *w, int side)
{
    static const int items[2] = {LOOP_ROW_ITEMS, LOOP_COLUMN_ITEMS},
                     tiles[2] = {LOOP_ROW_TILES, LOOP_COLUMN_TILES}, inner[2] = {LOOP_M, LOOP_N};
    list_divide(l, inner[side], wave_side(c, w, side), w->tiles[side] * c->row->size[side],
                items[side]);
    list_divide(l, inner[side], w->tiles[side] * c->row->size[side], c->row->size[side],
                tiles[side]);
}

/* A cluster of persistent blocks loops over tiles together: the rank in the cluster stays a loop
 * over the grid. */
static void list_cluster(struct opt_list *l, const struct matrix_choice *c,
                         const struct wave_tile *w, int side)
{
    static const int blocks[2] = {LOOP_ROWS, LOOP_COLUMNS};
    int64_t size = range_fixed_size(c->x->m.store->src[side ? c->n : c->m]),
            n = (size + wave_side(c, w, side) - 1) / wave_side(c, w, side);
    if (w->blocks <= 0 || w->cluster[side] == 1)
        return;
    list_divide(l, blocks[side], n, w->cluster[side], LOOP_CLUSTER);
    int at = list_position(l, blocks[side]);
    l->loop[at] = LOOP_CLUSTER;
    if (n > w->cluster[side])
        l->loop[at - 1] = blocks[side];
}

/* Tile rasterization: adds the opts that make consecutive blocks go through a group of rows of
 * blocks, whose operands stay in the L2. Returns whether there is such a group; there is none where
 * the numbers of blocks are known only at run time. */
static bool list_groups(struct opt_list *l, const struct matrix_choice *c,
                        const struct wave_tile *w)
{
    static const int blocks[2] = {LOOP_ROWS, LOOP_COLUMNS};
    int slow = list_position(l, LOOP_ROWS) < list_position(l, LOOP_COLUMNS) ? 0 : 1;
    struct raster r = {.at_once = l->t->device->units / (w->blocks > 0 ? wave_cluster(w) : 1)};
    for (int i = 0; i < 2; i++) {
        int side = i ? !slow : slow;
        int64_t size = range_fixed_size(c->x->m.store->src[side ? c->n : c->m]),
                of_block = wave_side(c, w, side) * (w->blocks > 0 ? w->cluster[side] : 1);
        if (size <= of_block || list_position(l, blocks[side]) < 0)
            return false;
        r.n[i] = (size + of_block - 1) / of_block;
        r.nbytes[i] =
            (double)of_block * (double)c->x->terms * (double)dtype_nbytes(c->row->dtype[MATRIX_A]);
    }
    int64_t group = grid_raster(l->t->device, &r);
    list_raster(l, blocks[slow], blocks[!slow], r.n[0], group, LOOP_GROUPS);
    return group > 1;
}

static struct opt *add_of_sum(struct opt_list *l, enum opt_op op, int number, int axis)
{
    struct opt *o = list_add(l, op, -1);
    o->of = OF_SUM, o->number = number, o->axis = axis;
    return o;
}

/* Moves block, rank in the cluster and tile loop outside of all others, where several stores share
 * a persistent loop. */
static void list_bands(struct opt_list *l, const struct wave_tile *w, int block)
{
    const int tag[] = {block, LOOP_CLUSTER, LOOP_TURN};
    int to = 0, loop[LOOPS_MAX + 1];
    list_remove(l, LOOP_CLUSTER);
    list_remove(l, block);
    for (int i = 0; i < 3; i++)
        if (tag[i] != LOOP_CLUSTER || wave_cluster(w) > 1)
            loop[to++] = tag[i];
    if (l->nloop + to > LOOPS_MAX) {
        l->failed = true;
        return;
    }
    ARRAY_COPY(loop + to, l->loop, l->nloop);
    l->nloop += to;
    ARRAY_COPY(l->loop, loop, l->nloop);
}

/* Makes the blocks persistent: they loop over the tiles of these grid loops. */
static void list_persist(struct opt_list *l, const struct wave_tile *w, const int *tag, int n)
{
    int last = -1;
    for (int i = 0; i < n; i++)
        last = list_position(l, tag[i]) > last ? list_position(l, tag[i]) : last;
    if (w->blocks <= 0 || last < 0)
        return;
    struct opt *o = list_add(l, OPT_PERSISTENT, l->loop[last]);
    o->n = (int64_t)w->blocks / wave_cluster(w);
    for (int i = 0, left = 0; i < n; i++) {
        left += list_position(l, tag[i]) >= 0;
        if (left > 1)
            list_remove(l, tag[i]);
        else if (left == 1 && w->staged && list_position(l, tag[i]) >= 0)
            list_bands(l, w, tag[i]);
    }
    if (wave_cluster(w) > 1)
        list_add(l, OPT_GRID, LOOP_CLUSTER);
}

/* Makes clusters along the loop of blocks that share a factor. */
static void list_shared(struct opt_list *l, const struct wave_tile *w, int number)
{
    int side = w->cluster[1] > 1, axis = list_position(l, w->blocks > 0 ? LOOP_CLUSTER
                                                          : side        ? LOOP_COLUMNS
                                                                        : LOOP_ROWS);
    if (wave_cluster(w) > 1)
        add_of_sum(l, OPT_CLUSTER_MULTICAST, number, axis)->n = wave_cluster(w);
}

/* Divides the sum's last loop into steps, and these into the instruction's k. Returns the number of
 * the innermost loop over steps. */
static int list_terms(struct opt_list *l, const struct matrix_choice *c,
                      const struct wave_tile *w, int number)
{
    int last = c->x->m.reduce->nsrc - 2, step = w->step < c->nk / w->split ? last + 1 : last;
    add_of_sum(l, OPT_COVER, number, last)->n = w->step;
    if (w->step > c->row->size[MATRIX_K])
        add_of_sum(l, OPT_DIVIDE, number, step)->n = c->row->size[MATRIX_K];
    return step - 1;
}

/* Candidates for the grid's loops, by tag, with their sizes. */
struct grid_loops { int tag[LOOPS_MAX]; int64_t size[LOOPS_MAX]; int n; };

static void add_grid_loop(struct grid_loops *g, int tag, int64_t size)
{
    g->tag[g->n] = tag;
    g->size[g->n++] = size;
}

static void list_append(struct opt_list *l, const struct opt_list *of)
{
    for (int i = 0; i < of->n; i++)
        *list_add(l, of->opt[i].op, -1) = of->opt[i];
    l->failed |= of->failed;
}

/* Puts both stores of a staged epilogue over the same grid; s: the loops after STAGE_EPILOGUE.
 * Persistent blocks loop over the tiles of both. */
static void list_both(struct opt_list *l, struct opt_list *s, const struct grid_loops *grid,
                      const struct wave_tile *w)
{
    int all = s->n = 0;
    s->store++;
    list_grid(s, grid->tag, grid->size, grid->n);
    list_append(l, s);
    list_persist(l, w, grid->tag, grid->n);
    s->n = all;
    list_persist(s, w, grid->tag, grid->n);
    if (w->blocks > 0 && wave_cluster(w) > 1)
        list_add(l, OPT_GRID, -1)->store = s->store,
                              l->opt[l->n - 1].axis = list_position(s, LOOP_CLUSTER);
    s->n = 0;
}

/* Adds the epilogue store's opts after those of the block. */
static void list_second(struct opt_list *l, struct opt_list *s, const struct matrix_choice *c,
                        const struct wave_tile *w)
{
    static const int inner[2] = {LOOP_M, LOOP_N};
    int row = choice_epilogue_row(c);
    if (w->boxes)
        list_epilogue_boxes(s, wave_threads(c, w));
    else
        list_epilogue(s, &c->epilogue, inner[row], wave_side(c, w, row), inner[!row],
                      wave_side(c, w, !row), wave_threads(c, w), LOOP_COLUMN_TILES);
    list_append(l, s);
    if (wave_aliases(w))
        list_add(l, OPT_ALIAS_EPILOGUE, -1);
}

/* Splits the sum's last loop over blocks (split-K). After SPLIT_K the block's rows and columns are
 * inside all other loops. */
static void list_parts(struct opt_list *l, const struct matrix_choice *c,
                       const struct wave_tile *w, int number, int row, int column)
{
    int last = c->x->m.reduce->nsrc - 2, n = 0;
    add_of_sum(l, OPT_DIVIDE, number, last)->n = c->nk / w->split;
    struct opt *o = add_of_sum(l, OPT_SPLIT_K, number, list_position(l, row));
    o->to = list_position(l, column), o->n = last;
    for (int i = 0; i < l->nloop; i++)
        if (l->loop[i] != row && l->loop[i] != column)
            l->loop[n++] = l->loop[i];
    l->failed |= n + 3 > LOOPS_MAX;
    if (l->failed)
        return;
    l->loop[n++] = LOOP_PART;
    l->loop[n++] = row;
    l->loop[n++] = column;
    l->nloop = n;
}

static bool apply_waves(struct tgc *t, struct kernel *k, int store, const struct matrix_choice *c,
                        const struct wave_tile *w, struct refusal *refusal)
{
    struct opt_list l, behind;
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
    if (grid.n == 0 && w->split == 1 && list_groups(&l, c, w))
        add_grid_loop(&grid, LOOP_GROUPS, INT64_MAX);
    add_grid_loop(&grid, LOOP_ROWS, INT64_MAX);
    add_grid_loop(&grid, LOOP_COLUMNS, INT64_MAX);
    if (w->split > 1)
        add_grid_loop(&grid, LOOP_PART, w->split);
    bool two = w->staged || w->split > 1;
    if (two) {
        int row = choice_epilogue_row(c) ? LOOP_N : LOOP_M,
            column = choice_epilogue_row(c) ? LOOP_M : LOOP_N;
        if (w->split > 1)
            list_parts(&l, c, w, number, row, column);
        else if (w->boxes)
            list_stage_boxes(&l, row, column, wave_side(c, w, !choice_epilogue_row(c)));
        else
            list_stage_epilogue(&l, &c->epilogue, number, row, column);
        number = c->epilogue.of_sum || w->split > 1 ? 0 : number;
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
    struct opt *o = list_add(&l, OPT_MMA, LOOP_M);
    o->of = OF_SUM, o->number = number, o->by = c->of, o->to = list_position(&l, LOOP_N);
    list_remove(&l, LOOP_M);
    list_remove(&l, LOOP_N);
    for (int i = 0; i < 2; i++) {
        o = add_of_sum(&l, OPT_STAGE_OPERAND, number, axis);
        o->n = wave_pad(t, c, w, choice_side(c, i)), o->operand = i,
        o->to = w->by.how == TRANSFER_BULK ? 0 : (int)wave_width(c, w, choice_side(c, i));
    }
    for (int i = 0; i < 2 && c->reads_copies; i++) {
        o = add_of_sum(&l, OPT_SWIZZLE, number, 0);
        o->n = wave_copied_row(c, w, i), o->operand = i;
    }
    if (two)
        list_both(&l, &behind, &grid, w);
    else
        list_persist(&l, w, grid.tag, grid.n);
    if (w->by.n > 1) {
        o = add_of_sum(&l, OPT_PIPELINE, number, 0);
        o->n = w->by.n, o->how = w->by.how;
    }
    list_shared(&l, w, number);
    if (w->producers)
        add_of_sum(&l, OPT_WARP_SPECIALIZE, number, 0)->n = w->producers;
    if (two)
        list_second(&l, &behind, c, w);
    *refusal = (struct refusal){OPT_COUNT, "it has too many loops"};
    if (l.failed || !grid_apply(t, &trial, &l, (int)wave_threads(c, w), 1, refusal))
        return false;
    *k = trial;
    return true;
}

/* What a schedule can do without: boxes of the epilogue, producer warps, persistence, the staged
 * epilogue, clusters; the opt that makes it. */
enum part { BOXES, PRODUCERS, BLOCKS, STAGED, CLUSTER, PARTS };
static const enum opt_op makes_part[PARTS] = {
    OPT_BULK_EPILOGUE, OPT_WARP_SPECIALIZE, OPT_PERSISTENT, OPT_STAGE_EPILOGUE,
    OPT_CLUSTER_MULTICAST};

static bool has_part(const struct wave_tile *w, enum part part)
{
    const bool has[PARTS] = {w->boxes, w->producers > 0, w->blocks > 0, w->staged,
                             wave_cluster(w) > 1};
    return has[part];
}

/* Leaves out the part whose opt was refused; for other opts, and for the list as a whole, the first
 * of those that the schedule has. false: it has none. */
static bool drop_part(struct wave_tile *w, enum opt_op refused)
{
    int part = 0;
    while (part < PARTS && !(has_part(w, part) && makes_part[part] == refused))
        part++;
    for (part %= PARTS; part < PARTS && !has_part(w, part);)
        part++;
    switch (part) {
    case STAGED: w->staged = false;  /* fall through */
    case BOXES: w->boxes = false; break;
    case PRODUCERS: w->producers = 0; break;
    case BLOCKS: w->blocks = 0; break;
    case CLUSTER: w->cluster[0] = w->cluster[1] = 1; break;
    default: return false;
    }
    return true;
}

/* Applies the schedule, if need be without parts that are refused. */
static bool apply_less(struct tgc *t, struct kernel *k, int store, const struct wave_tile *w)
{
    struct wave_tile less = *w;
    struct refusal refusal;
    bool done;
    do {
        done = apply_waves(t, k, store, w->of, &less, &refusal);
        compare_applied(t, &less, done);
    } while (!done && drop_part(&less, refusal.op));
    return done;
}

/* If bulk copies are refused because something is no box, retries with asynchronous copies by the
 * threads. */
static bool apply_some(struct tgc *t, struct kernel *k, int store, const struct wave_tile *w)
{
    struct wave_tile other = *w;
    other.by.how = TRANSFER_ASYNC;
    other.producers = 0;
    other.cluster[0] = other.cluster[1] = 1;
    return apply_less(t, k, store, w) ||
           (w->by.how == TRANSFER_BULK && wave_can_copy(t, w->of, &other) &&
            apply_less(t, k, store, &other));
}

/* Whether packing helps: neither the terms are contiguous, nor the rows or columns of a 16-bit
 * factor, which instructions transpose on load. */
static bool gains_by_packing(const struct product *x, const struct uop *load, int side)
{
    const struct uop *const *loop = (const struct uop *const *)x->m.store->src, *sum = x->m.reduce;
    bool exchanged = dtype_nbytes(load->dtype) == 2 && choice_stride(x->m.t, load, loop[side]) == 1;
    return choice_stride(x->m.t, load, sum->src[sum->nsrc - 1]) != 1 && !exchanged;
}

/* Adds the cheapest tiles of the shape's product, and of those with more loops merged into rows and
 * columns. */
static int list_joined(struct tgc *t, const struct shape *s, int store, struct wave_tile *best,
                       int n)
{
    bool joined = true;
    for (int i = 0; joined && i < JOINED_MAX; i++) {
        struct matrix_choice *c = scratch_array(t, INSTRUCTIONS_MAX + 1, sizeof *c);
        struct shape *next = scratch_array(t, 1, sizeof *next);
        int of = choice_list(t, &s->x, c);
        for (int j = 0; j < of; j++) {
            c[j].s = s, c[j].joined = i;
            n = choice_list_waves(t, &c[j], best, n);
        }
        joined = of > 0 && shape_join_rows(t, s, store, next);
        s = next;
    }
    return n;
}

/* Adds the cheapest tiles of patches of rows, for instructions that read panels: patches are
 * boxes. */
static int list_patches(struct tgc *t, const struct shape *s, int store, struct wave_tile *best,
                        int n)
{
    enum { PATCH_LEAST = 64, PATCH_MOST = 256 };
    struct matrix_choice *c = scratch_array(t, INSTRUCTIONS_MAX, sizeof *c);
    struct patch patch;
    int of = choice_list(t, &s->x, c), reading = 0;
    for (int i = 0; i < of; i++)
        reading += c[i].reads_copies && c[i].width[0] > 1 && c[i].width[1] > 1;
    for (int64_t iterations = PATCH_LEAST;
         reading && iterations <= PATCH_MOST && shape_find_patch(s, iterations, &patch);
         iterations *= 2) {
        struct shape *patched = scratch_array(t, 1, sizeof *patched);
        c = scratch_array(t, INSTRUCTIONS_MAX, sizeof *c);
        of = shape_patch(t, s, store, &patch, patched) ? choice_list(t, &patched->x, c) : -1;
        for (int i = 0; i < of; i++) {
            c[i].s = patched, c[i].joined = 0, c[i].patched = true;
            n = c[i].reads_copies ? choice_list_waves(t, &c[i], best, n) : n;
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

/* Whether a factor is computed while it is copied: blocks of terms with a scale each, which are
 * loops of the sum. */
static bool has_computed_factor(const struct uop *product)
{
    bool any = false;
    for (int k = 0; k < 2 && product->op == OP_MUL; k++) {
        const struct uop *u = product->src[k];
        while (u->op == OP_CAST)
            u = u->src[0];
        any |= u->op != OP_LOAD && matrix_is_finite(u);
    }
    return any;
}

/* Lists the forms of a product: with known factors packed along terms (preferred), as it is, and
 * with its loops of terms merged if all are short or scaled blocks. */
static int add_forms(struct tgc *t, const struct shape *form, int store, struct shape *to)
{
    enum { TERMS_SHORT = 16 };
    int n = shape_pack(t, form, store, true, gains_by_packing, to);
    to[n++] = *form;
    bool joins = longest_terms(form->x.m.reduce) < TERMS_SHORT ||
                 has_computed_factor(form->x.m.reduce->src[0]);
    return n + (joins && shape_join_terms(t, &to[0], store, &to[n]));
}

/* Finds the cheapest tiles of any instruction, best first, for the product as it is and with its
 * longest loop innermost. *scalar: time without matrix instructions. */
static int find_waves(struct tgc *t, const struct kernel *k, int store, struct wave_tile *best,
                      double *scalar)
{
    enum { FORMS = 6 };
    struct shape *s = scratch_array(t, FORMS, sizeof *s), *form = scratch_array(t, 2, sizeof *form);
    int n = 0;
    if (!shape_begin(t, &form[0], k, store))
        return compare_refuse(t, SCHEDULE_MATRIX, "it is no sum of products of two factors");
    if (form[0].x.m.grouped)
        return compare_refuse(t, SCHEDULE_MATRIX, "bytes are multiplied by dot products");
    int of = add_forms(t, &form[0], store, s);
    of +=
        shape_order_terms(t, &form[0], store, &form[1]) ? add_forms(t, &form[1], store, s + of) : 0;
    for (int i = 0; i < of; i++) {
        double ns = grid_tile_loaded_ns(t, &s[i].x);
        *scalar = i == 0 || (ns > 0 && ns < *scalar) ? ns : *scalar;
        n = list_joined(t, &s[i], store, best, n);
        n = list_patches(t, &s[i], store, best, n);
    }
    if (n == 0)
        compare_no_matrix(t, &form[0].x);
    return n;
}

bool grid_matrix(struct tgc *t, struct kernel *k, int store, int first)
{
    struct wave_tile best[CHOICES_MAX] = {{.ns = 0}};
    double scalar = 0;
    /* wave_ns() adds a tie-breaking share */
    int n = t->no_locals ? compare_refuse(t, SCHEDULE_MATRIX, "--no-locals")
                         : find_waves(t, k, store, best, &scalar);
    for (int i = first; i < n; i++)
        if ((scalar <= 0 || best[i].ns < scalar * (1 + 1.0 / BESIDE_LIMIT)) &&
            apply_some(t, k, store, &best[i]))
            return true;
    return false;
}
