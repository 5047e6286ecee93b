/* split_columns.c - remainder columns of vectors: a store of their own, whose tile each variant
 * chooses by itself.
 */
#include "passes/kernel/tile.h"

/* Whether a store reads a stage beside its sums, as attention does that divides by a row's sum. */
static bool reads_stage_outside(struct tgc *t, struct uop *store)
{
    bool reads = false;
    int n;
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, &store, 1, &n);
    struct uop_map outside = {.t = t, .scratch = true};
    map_set(&outside, store, store);
    for (int i = n - 1; i >= 0 && !reads; i--) {
        const struct uop *u = order[i];
        if (!map_get(&outside, u) || u->op == OP_REDUCE)
            continue;
        reads = u->op == OP_LOAD && u->src[0]->op == OP_STAGE;
        for (int j = 0; j < u->nsrc; j++)
            map_set(&outside, u->src[j], u->src[j]);
    }
    scratch_release(t, mark);
    return reads;
}

/* Columns that a vector's tile leaves over are a store of their own, as all variants see them, so
 * that the weights of both are packed; but not where that store would compute a row's stages once
 * more. Returns the next store. */
static int split_columns(struct tgc *t, struct kernel *k, enum isa isa, int at)
{
    struct nest m;
    struct uop *store = k->ast->src[at];
    struct tile tile = {.column_axis = -1};
    if (!isa_is_portable(isa) && nest_find(t, store, &m) && !reads_stage_outside(t, store))
        tile = tile_choose_vectors(&m, isa, NULL, false, 0);
    int64_t n = tile.column_axis >= 0 ? range_fixed_size(store->src[tile.column_axis]) : 0;
    if (tile.column_axis < 0 || n <= tile.columns || n % tile.columns == 0)
        return at + 1;
    int64_t left = tile_columns_left(&m, &tile), whole = n - n % tile.columns;
    struct opt opt = {.op = OPT_CUT,
                      .store = at,
                      .axis = tile.column_axis - store_first_range(store),
                      .n = whole,
                      .from = n - left < whole ? n - left : whole,
                      .to = at + 1};
    opt_must(t, k, NULL, &opt, 1);
    return at + 2;
}

bool pass_split_columns(struct tgc *t, struct schedule *s, struct kernel *k)
{
    enum isa widest;
    kernel_variants_of(t, s, k, &widest);
    for (int i = 0; i < k->ast->nsrc;)
        i = split_columns(t, k, widest, i);
    return true;
}
