/* transpose_store.c - stores a tile by its columns if its rows are contiguous in memory while the
 * lanes of its vectors are strided: for example, the result of a layer with channels in the lanes
 * where the model has contiguous pixels.
 *
 *      a = a0 a1 a2 a3        evens 1: a0 b0 a2 b2    evens 2: a0 b0 c0 d0   store
 *      b = b0 b1 b2 b3   ->   odds 1:  a1 b1 a3 b3 ->           a1 b1 c1 d1   ...
 *      c = c0 c1 c2 c3                  c0 d0 c2 d2    odds 2:  a2 b2 c2 d2
 *      d = d0 d1 d2 d3                  c1 d1 c3 d3              a3 b3 c3 d3
 *
 * Eklundh's transposition: in step `by`, 1, 2, 4..., each pair of rows at distance `by` exchanges
 * groups of `by` lanes. With fewer rows than lanes, the columns are partial vectors.
 */
#include "passes/vector/expand.h"

static bool is_row(struct expander *e, const struct uop *store, const struct lane *l, int64_t least)
{
    int64_t step;
    return l->size >= least && l->size <= e->lanes &&
           index_stride(e->t, store->src[1], e->in[l->begin], &step) && step == 1;
}

/* The open lane of `least` rows or more along which the stored elements are contiguous, or NULL. */
static const struct lane *find_rows(struct expander *e, const struct uop *store, int64_t least)
{
    for (int k = 0; k < e->depth; k++)
        if (is_row(e, store, &e->lane[k], least))
            return &e->lane[k];
    return NULL;
}

/* The number of the tile's block of columns that is open. */
static int64_t tile_number(const struct expander *e, const struct lane *rows)
{
    int64_t n = 0;
    for (int k = 0; k < e->depth; k++)
        if (&e->lane[k] != rows)
            n = n * e->lane[k].size + e->lane[k].now;
    return n;
}

/* Takes the rows of a block, in order, off the list. */
static int take_rows(struct expander *e, const struct uop *store, int64_t tile, struct uop **row)
{
    int n = 0, kept = 0;
    for (int i = 0; i < e->ncrossed; i++)
        if (e->crossed[i].store == store && e->crossed[i].tile == tile)
            row[n++] = e->crossed[i].value;
        else
            e->crossed[kept++] = e->crossed[i];
    e->ncrossed = kept;
    return n;
}

static struct uop *cross_two(struct tgc *t, struct uop *a, struct uop *b, int by, bool odd)
{
    struct uop *src[2] = {a, b};
    enum intrinsic row = odd ? INTRINSIC_ODDS : INTRINSIC_EVENS;
    return uop_intern(t, OP_INTRINSIC, a->dtype, src, 2,
                      (union arg){.i = INTRINSIC_BITS(row, a->lanes / (2 * by), by, 0)});
}

/* Transposes v[]: rows in, NULL after the last one; columns out. Lanes of rows that do not exist
 * are never read. */
static void cross_rows(struct tgc *t, struct uop **v, int lanes)
{
    for (int by = 1; by < lanes; by *= 2)
        for (int i = 0; i < lanes; i++) {
            struct uop *a = v[i], *b = i + by < lanes ? v[i + by] : NULL;
            if ((i & by) || !a)
                continue;
            v[i] = b ? cross_two(t, a, b, by, false) : a;
            v[i + by] = cross_two(t, a, b ? b : a, by, true);
        }
}

/* Stores the rows that were collected for a block, column by column, whose stride is `by`. place:
 * the last row's. rows NULL: the value is the only one. */
static void store_columns(struct expander *e, const struct uop *u, const struct lane *rows,
                          struct uop *place, struct uop *value, int part, struct uop *by)
{
    enum { LANES_MAX = 64 };
    struct uop *v[LANES_MAX] = {value}, *src[3] = {u->src[0]};
    int lanes = e->lanes, nrows = rows ? take_rows(e, u, tile_number(e, rows), v) : 1;
    cross_rows(e->t, v, lanes);
    for (int k = 0; k < (part ? part : lanes); k++) {
        src[1] = sym_addi(e->t, sym_add(e->t, place, sym_muli(e->t, by, k)), 1 - nrows);
        src[2] = v[k];
        expand_need(e, src[1]);
        expand_need(e, src[2]);
        expand_push(e, uop_intern(e->t, OP_STORE, u->dtype, src, 3,
                                  (union arg){.i = ARG_PACK(VECTOR, lanes, nrows % lanes, 1)}));
    }
}

/* Keeps a row for store_columns(); true: it is not the last one. */
static bool collect_row(struct expander *e, const struct uop *u, const struct lane *rows,
                        struct uop *value)
{
    expand_need(e, value);
    SCRATCH_PUSH(e->t, e->crossed, e->ncrossed, e->cap_crossed,
                 ((struct crossed){u, tile_number(e, rows), value}));
    return rows->now + 1 < rows->size;
}

bool cross_store(struct expander *e, const struct uop *u, struct uop *place, struct uop *value,
                 int part, int64_t stride)
{
    const struct lane *rows = NULL;
    if (e->vector && stride != 1 && stride != 0 && e->nguard == 0 && value->dtype == DTYPE_F32 &&
        uop_buffer_of(u->src[0])->dtype == DTYPE_F32)
        rows = find_rows(e, u, CROSS_ROWS_MIN);
    if (!rows)
        return false;
    if (!collect_row(e, u, rows, value))
        store_columns(e, u, rows, place, value, part, uop_int(e->t, stride));
    return true;
}

bool cross_store_by(struct expander *e, const struct uop *u, struct uop *place, struct uop *value,
                    int part, struct uop *stride)
{
    const struct lane *rows = find_rows(e, u, 1);
    if (!rows || !collect_row(e, u, rows, value))
        store_columns(e, u, rows, place, value, part, stride);
    return true;
}
