/* tile_nest.c - one store's loops for one instruction set: stages, tile, packed weights and
 * remainders, as the cost model chooses or a tune file says. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

#include <string.h>
struct uop *store_sum(struct tgc *t, struct uop *store, int stage, int number)
{
    int n, nstage = 0, nsum = 0;
    struct uop *within = NULL, *sum = NULL;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op == OP_STAGE && nstage++ == stage)
            within = order[i];
        if (order[i]->op == OP_REDUCE && nsum++ == number)
            sum = order[i];
    }
    return sum && within && !uop_depends_on(t, within, sum) ? store : sum;
}

static bool has_lanes(const struct uop *stage)
{
    for (int k = 2; k < stage->nsrc; k++)
        if (range_is_lane(stage->src[k]))
            return true;
    return false;
}

/* Which candidates make a store's list of opts: all 0 for the cost model's. */
struct pick {
    int stage, tile;             /* number of the stage's tile, of the store's tile */
    int fragment;                /* 1: none; from 2 on: number 0 and so on */
    bool unpacked;               /* weights are not packed */
    bool exists;                 /* out: such candidates exist */
    struct tile told;            /* out: the store's tile; axes are counted from the first loop */
};

/* Contractions in scratch get tiles that fit exactly; attention has one. A cut store has the tiled
 * stages of the first part. */
static void optimize_stages(struct tgc *t, struct kernel *k, struct variant *v, int at,
                            struct pick *pick)
{
    struct uop *store = v->ast->src[at];
    struct opt opt[OPTS_OF_TILE], like = {.store = at, .of = OF_STAGE, .number = -1};
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n && !isa_is_portable(v->isa); i++) {
        struct nest m;
        like.number += order[i]->op == OP_STAGE;
        if (order[i]->op != OP_STAGE || has_lanes(order[i]) ||
            !nest_find(t, stage_as_store(t, order[i]), &m) || !m.contraction)
            continue;
        m.staged = true;
        struct tile tile = tile_choose_vectors(&m, v->isa, NULL, true, pick->stage);
        if (tile.column_axis < 0 || tile.panel % tile.columns ||
            range_fixed_size(m.store->src[tile.column_axis]) % tile.panel)
            continue;
        while (tile.rows > 1 && range_fixed_size(m.store->src[tile.row_axis]) % tile.rows)
            tile.rows--;
        opt_must(t, k, v, opt, tile_opts(&m, &tile, &like, opt));
        return;
    }
    pick->exists &= pick->stage == 0;
}

/* Packs the weights of a tiled contraction, wherever that is legal. */
static void pack_weights(struct tgc *t, struct kernel *k, struct variant *v, int at)
{
    struct nest m;
    struct uop *store = v->ast->src[at], *last = store->src[store->nsrc - 1];
    if (!nest_find(t, store, &m) || !m.contraction)
        return;
    struct opt pack = {.op = OPT_PACK, .store = at, .of = OF_SUM, .space = SPACE_WEIGHTS,
                       .number = opt_number(t, store, m.reduce), .n = range_fixed_size(last),
                       .axis = store->nsrc - 1 - store_first_range(store)};
    for (; pack.operand < m.nload; pack.operand++)
        if (load_is_stationary(m.load[pack.operand]))
            (void)opt_apply(t, k, v, &pack, 1, NULL);
}

/* Applies the opts of a tile: loops first, then the weights in their new order, then lanes that do
 * not fill whole vectors. */
static void apply_tile(struct tgc *t, struct kernel *k, struct variant *v, int at,
                       const struct nest *m, const struct tile *tile, bool packs)
{
    struct opt opt[OPTS_OF_TILE], like = {.store = at};
    opt_must(t, k, v, opt, tile_opts(m, tile, &like, opt));
    if (m->contraction && packs)
        pack_weights(t, k, v, at);
    const struct uop *store = v->ast->src[at];
    struct opt fill = {.op = OPT_FILL, .store = at, .n = tile->vector,
                       .axis = store->nsrc - 1 - store_first_range(store)};
    if (tile->columns > tile->panel)
        opt_must(t, k, v, &fill, 1);
}

/* Applies the opts of products of tiles: columns, weights, then rows. */
static void apply_fragment_tile(struct tgc *t, struct kernel *k, struct variant *v, int at,
                                const struct nest *m, const struct fragment *f)
{
    struct opt opt[OPTS_OF_FRAGMENT], like = {.store = at};
    const struct uop *row = m->store->src[f->row_axis];
    apply_tile(t, k, v, at, m, &f->columns, true);
    opt_must(t, k, v, opt, fragment_opts(v->ast->src[at], row, f, &like, opt));
}

static void cut(struct tgc *t, struct kernel *k, struct variant *v, int at, int axis, int64_t n)
{
    int first = store_first_range((v ? v->ast : k->ast)->src[at]);
    struct opt opt = {.op = OPT_CUT, .store = at, .axis = axis - first, .n = n, .from = n,
                      .to = at + 1};
    opt_must(t, k, v, &opt, 1);
}

/* Makes the next store of the iterations that whole multiples of n leave. needs: n does not divide
 * the loop's iterations, of which there may be n. */
static void cut_rest(struct tgc *t, struct kernel *k, struct variant *v, int at, int axis,
                     int64_t n)
{
    const struct uop *store = v->ast->src[at];
    int64_t size = range_fixed_size(store->src[axis]);
    struct opt opt = {.op = OPT_ROUND, .store = at, .n = n, .to = at + 1,
                      .axis = axis - store_first_range(store)};
    if (size > 0)
        cut(t, k, v, at, axis, size - size % n);
    else
        opt_must(t, k, v, &opt, 1);
}

/* Makes straight-line code of STACKs around one vector, since the expressions to choose from
 * share much. Remainder columns are a store of their own, with a partial vector. Returns the
 * next store. */
static int unroll_stacks(struct tgc *t, struct kernel *k, struct variant *v, int at)
{
    struct uop *store = v->ast->src[at];
    int lanes = isa_lanes(v->isa), half = isa_half_lanes(v->isa);
    int axis = store->nsrc - 1;
    int64_t n = range_fixed_size(store->src[axis]), width = 0;
    struct nest m;
    if (!nest_find(t, store, &m))
        TGC_BUG(t, "stacks are no nest");
    if (!isa_is_portable(v->isa) && axis >= m.first && nest_vectors_fit(&m, store->src[axis])) {
        bool parts = n > 1 && !nest_has_gates(&m, store->src[axis]);
        width = n % lanes == 0          ? lanes
                : half && n % half == 0 ? half
                : parts                 ? lanes
                                        : 0;
    }
    if (width && n > width && n % width) {
        cut(t, k, v, at, axis, n - n % width);
        return unroll_stacks(t, k, v, unroll_stacks(t, k, v, at));
    }
    if (width) {
        struct tile tile = {.column_axis = axis, .row_axis = -1, .panel = n < width ? n : width,
                            .rows = 1, .columns = width, .vector = (int)width};
        apply_tile(t, k, v, at, &m, &tile, true);
    }
    while ((axis = stacks_axis(t, v->ast->src[at])) >= 0) {
        struct opt opt = {.op = OPT_UNROLL, .store = at,
                          .axis = axis - store_first_range(v->ast->src[at])};
        opt_must(t, k, v, &opt, 1);
    }
    return at + 1;
}

/* Chooses products of tiles if they are faster than vectors, or as picked; rows 0: vectors. */
static struct fragment pick_fragment(const struct nest *m, const struct variant *v,
                                     const struct tile *tile, struct pick *pick)
{
    struct fragment f, none = {.rows = 0};
    int number = pick->fragment > 1 ? pick->fragment - 2 : 0;
    bool any = isa_has_tiles(v->isa) && tile->column_axis >= 0 &&
               fragment_choose(m, v->ast, v->isa, tile, number, &f);
    pick->exists &= any || pick->fragment < 2;
    return any && (pick->fragment > 1 || (!pick->fragment && f.gain > tile->gain)) ? f : none;
}

static int optimize_rest(struct tgc *t, struct kernel *k, struct variant *v, int at,
                         struct tile *like);
static int optimize_parts(struct tgc *t, struct kernel *k, struct variant *v, int at,
                          const struct tile *tile);

static bool divides(struct tgc *t, int64_t n, const struct uop *range)
{
    return uop_is_int(sym_mod(t, range->src[0], uop_int(t, n)), 0);
}

/* Cuts a loop of open size for columns: whole tiles, whole vectors, a last vector that overlaps the
 * one before it, and all where there are fewer. A part's size may be fixed, if the loop's bounds
 * are near each other. Returns how many parts have tiles; *end: the store after all parts. */
static int cut_open_columns(struct tgc *t, struct kernel *k, struct variant *v, int at,
                            const struct tile *tile, int *end)
{
    const struct uop *store = v->ast->src[at];
    int64_t least = tile->vector ? tile->vector : OPEN_COLUMNS;
    int n = 1, axis = tile->column_axis;
    struct opt opt = {.op = OPT_OVERLAP, .store = at, .n = least,
                      .axis = axis - store_first_range(store)};
    *end = at + 1;
    bool whole = divides(t, least, store->src[axis]);
    if (!whole && opt_apply(t, k, v, &opt, 1, NULL))
        n = 2, *end = at + 3;
    if (!whole && n == 1) {
        cut_rest(t, k, v, at, axis, least);
        *end = at + 2;
    }
    const struct uop *column = v->ast->src[at]->src[axis];
    if (column->src[0]->vmax >= tile->columns && !divides(t, tile->columns, column)) {
        cut_rest(t, k, v, at, axis, tile->columns);
        ++n, ++*end;
    }
    return n;
}

/* Optimizes one store for one instruction set: it becomes several if rows remain. like: in: a tile
 * whose panel is kept; out: this one's, if it is the first. Returns the next store. */
static int optimize_store(struct tgc *t, struct kernel *k, struct variant *v, int at,
                          struct pick *pick, struct tile *like)
{
    struct nest m;
    struct opt decide = {.op = OPT_DECIDE, .store = at};
    pick->told.column_axis = -1;
    (void)opt_apply(t, k, v, &decide, 1, NULL);          /* a cut may have moved an index */
    optimize_stages(t, k, v, at, pick);
    struct uop *store = v->ast->src[at];
    bool nest = nest_find(t, store, &m), stacks = nest && !m.reduce && stacks_axis(t, store) >= 0;
    pick->exists &= (nest && !stacks) || (!pick->tile && !pick->fragment);
    if (!nest)
        return at + 1;
    if (stacks)
        return unroll_stacks(t, k, v, at);
    const struct tile *keep = like->column_axis >= 0 && m.contraction ? like : NULL;
    /* one packed weight for all variants */
    struct tile tile = tile_choose(&m, v->isa, keep, pick->tile);
    struct fragment f = pick_fragment(&m, v, &tile, pick);
    pick->exists &= tile.column_axis >= 0 || !pick->tile;
    if (f.rows) {
        tile.row_axis = f.row_axis;
        tile.rows = f.rows * f.high;
    }
    if (tile.column_axis >= 0) {
        pick->told = tile;
        pick->told.column_axis -= m.first;
        pick->told.row_axis = tile.rows > 1 ? tile.row_axis - m.first : -1;
    }
    if (tile.column_axis >= 0 && nest_columns_are_open(&m, store->src[tile.column_axis]) &&
        !divides(t, tile.columns, store->src[tile.column_axis])) {
        *like = keep ? *like : tile;
        return optimize_parts(t, k, v, at, &tile);
    }
    bool rest = tile.column_axis >= 0 && tile.rows > 1 &&
                !uop_is_int(sym_mod(t, store->src[tile.row_axis]->src[0],
                                    uop_int(t, tile.rows)), 0);
    if (tile.column_axis >= 0 && !keep)
        *like = tile;
    struct tile of_rest = *like;
    if (rest) {
        cut_rest(t, k, v, at, tile.row_axis, tile.rows);
        if (!nest_find(t, v->ast->src[at], &m))
            TGC_BUG(t, "a part of a nest is none");
        /* one row has no range */
        of_rest.column_axis -=
            v->ast->src[at + 1]->nsrc < store->nsrc && tile.row_axis < tile.column_axis;
    }
    if (f.rows)
        apply_fragment_tile(t, k, v, at, &m, &f);
    else if (tile.column_axis >= 0)
        apply_tile(t, k, v, at, &m, &tile, !pick->unpacked);
    return rest ? optimize_rest(t, k, v, at, &of_rest) : at + 1;
}

/* Optimizes the rows that a tile leaves of store `at`, in the next store. They are fewer than a
 * tile, so they leave none, unless their number is unknown. A panel of weights that is in the cache
 * serves both. */
static int optimize_rest(struct tgc *t, struct kernel *k, struct variant *v, int at,
                         struct tile *like)
{
    struct pick model = {.exists = true};
    int end = optimize_store(t, k, v, at + 1, &model, like);
    for (int i = at + 1; i < end; i++) {
        struct opt join = {.op = OPT_JOIN, .store = i, .to = at};
        (void)opt_apply(t, k, v, &join, 1, NULL);
    }
    return end;
}

/* Optimizes the parts of a store whose columns are open; the last one, of fewer than a vector,
 * stays as it is. Returns the next store. */
static int optimize_parts(struct tgc *t, struct kernel *k, struct variant *v, int at,
                          const struct tile *tile)
{
    int end, n = cut_open_columns(t, k, v, at, tile, &end);
    for (int i = 0; i < n; i++) {
        struct pick model = {.exists = true};
        struct tile like = *tile;
        int64_t size = range_fixed_size(v->ast->src[at]->src[tile->column_axis]);
        if (size % like.panel)                       /* fewer than a tile's */
            like.panel = size;
        int was = v->ast->nsrc, next = optimize_store(t, k, v, at, &model, &like);
        end += v->ast->nsrc - was;
        at = next;
    }
    return end;
}

/* Adds what a candidate makes of the store to the choice; false: there is no such candidate. */
static bool try_pick(struct opts_choice *c, struct pick pick, const struct tile *like)
{
    struct kernel k = *c->k;
    struct variant v = *c->v;
    struct tile own = *like;
    pick.exists = true;
    (void)optimize_store(c->t, &k, &v, c->at, &pick, &own);
    if (pick.stage || pick.fragment || pick.unpacked)
        pick.told.column_axis = -1;                   /* the model's own */
    if (pick.exists)
        opts_choice_add(c, &k, &v, &pick.told);
    return pick.exists;
}

/* Adds the model's choice, other tiles of the store and of its stage, other products of tiles or
 * none, and unpacked weights. */
static void try_picks(struct opts_choice *c, const struct tile *like)
{
    int width = opts_choice_width(c);
    for (int i = 0; i < 2 * width && c->of.n < width; i++)   /* some yield equal lists */
        if (!try_pick(c, (struct pick){.tile = i}, like))
            break;
    for (int i = 1; i < width && try_pick(c, (struct pick){.stage = i}, like); i++)
        continue;
    for (int i = 1; i < FRAGMENTS_MAX + 2 && width && isa_has_tiles(c->v->isa); i++)
        (void)try_pick(c, (struct pick){.fragment = i}, like);
    if (width)
        (void)try_pick(c, (struct pick){.unpacked = true}, like);
}

int tile_nest(struct tgc *t, struct kernel *k, struct variant *v, int at, int nest,
                      struct tile *like)
{
    struct opts_choice c;
    struct pick model = {.exists = true};
    const struct uop *store = v->ast->src[at];
    uint64_t of_panel = like->column_axis >= 0
                            ? tune_mix((uint64_t)like->panel, (uint64_t)like->column_axis + 1)
                            : 0;
    int end;
    if (!t->tuning)
        return optimize_store(t, k, v, at, &model, like);
    opts_choice_begin(&c, t, k, v, TUNE_TILE, at, nest, of_panel);
    try_picks(&c, like);
    if (!opts_choice_replay(&c, &end))
        end = optimize_store(t, k, v, at, &model, like);
    else if (like->column_axis < 0)
        *like = opts_columns(store, &c.of.by->opts);
    opts_choice_end(&c);
    return end;
}

/* The kernel as one instruction set's variant, before its loops are tiled. */
