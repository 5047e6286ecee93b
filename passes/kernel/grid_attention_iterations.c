/* grid_attention_iterations.c - how many blocks of keys a block of queries iterates over if a mask
 * hides keys: input of the models of grid_attention.c and grid_attention_matrix.c. The bounds of
 * visible keys are computed for the first and the last query of each block. If they are not index
 * arithmetic of the query alone, all keys count. */
#include "passes/analysis/index_values.h"
#include "passes/kernel/grid_attention.h"

enum { TILES_MOST = 1 << 12, BLOCKS_MOST = 1 << 13 };

/* The least and the greatest value of a bound for queries first..last. */
struct limits { int64_t least, most; };

static int64_t within(int64_t a, int64_t most) { return a < 0 ? 0 : a < most ? a : most; }

static bool is_of_query(struct tgc *t, const struct attention *x, struct uop *bound,
                        struct index_code *c)
{
    return index_read(t, bound, c) &&
           (c->ncounter == 0 || (c->ncounter == 1 && c->counter[0] == x->row));
}

/* Evaluates at both ends only: a bound is monotonic in the query. */
static struct limits limits_of(const struct attention *x, struct index_code *c, int64_t first,
                               int64_t last)
{
    int64_t at[2] = {first, last}, bound[2];
    for (int i = 0; i < 2; i++) {
        index_set(c, x->row, at[i]);
        bound[i] = within(index_value(c), x->keys);
    }
    return bound[0] < bound[1] ? (struct limits){bound[0], bound[1]}
                               : (struct limits){bound[1], bound[0]};
}

/* Key blocks that each tile iterates over. Returns how many blocks, over all tiles, hide keys from
 * only some queries; -1: unknown. */
static double count_iterations(struct tgc *t, const struct attention *x, int64_t rows, int64_t keys,
                          double *iterations)
{
    struct index_code begin, end;
    double cut = 0;
    if ((x->begin && !is_of_query(t, x, x->begin, &begin)) ||
        (x->end && !is_of_query(t, x, x->end, &end)))
        return -1;
    for (int64_t i = 0; i < ceil_div(x->queries, rows); i++) {
        int64_t first = i * rows, last = within(first + rows, x->queries) - 1;
        struct limits b = {0, 0}, e = {x->keys, x->keys};
        b = x->begin ? limits_of(x, &begin, first, last) : b;
        e = x->end ? limits_of(x, &end, first, last) : e;
        int64_t through = e.most > b.least ? ceil_div(e.most, keys) - b.least / keys : 0,
                whole = e.least / keys - ceil_div(b.most, keys);
        iterations[i] = (double)through;
        cut += (double)(through - (whole > 0 ? whole : 0));
    }
    return cut;
}

/* Simulates the units: tiles with the most keys start first, over all heads. */
static double rounds_of(struct tgc *t, const struct attention *x, const double *iterations,
                        int64_t tiles)
{
    int64_t blocks = sat_mul(tiles, x->heads);
    if (blocks > BLOCKS_MOST)
        return 0;
    double *ns = scratch_array(t, (size_t)blocks, sizeof *ns);
    bool grows = iterations[tiles - 1] > iterations[0];
    for (int64_t i = 0; i < blocks; i++)
        ns[i] = iterations[grows ? tiles - 1 - i / x->heads : i / x->heads];
    return blocks_rounds(ns, blocks, t->device->units);
}

struct attention_iterations attention_iterations(struct tgc *t, const struct attention *x,
                                                 int64_t rows, int64_t keys)
{
    int64_t tiles = ceil_div(x->queries, rows);
    struct attention_iterations of = {(double)ceil_div(x->keys, keys), 0, 0};
    if ((!x->begin && !x->end) || tiles > TILES_MOST)
        return of;
    struct mem_mark mark = scratch_mark(t);
    double *iterations = scratch_array(t, (size_t)tiles, sizeof *iterations),
           cut = count_iterations(t, x, rows, keys, iterations), all = 0;
    for (int64_t i = 0; i < tiles; i++)
        all += iterations[i];
    if (cut >= 0 && all > 0)
        of = (struct attention_iterations){all / (double)tiles, cut / (double)tiles,
                                      rounds_of(t, x, iterations, tiles)};
    scratch_release(t, mark);
    return of;
}
