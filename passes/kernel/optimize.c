/* optimize.c - how a kernel's loops are tiled: the passes that choose opts, which opts.c does.
 *
 * A contraction (matmul, convolution) keeps a tile of rows x columns accumulators, so that each
 * value it loads is used several times:
 *
 *      acc[4][16] = 0
 *      for k: for row: for column: acc[row][column] += a[i + row, k] * b[k, j + column]
 *
 * The portable kernel's lanes stay loops, which compilers vectorize; for each instruction set a
 * variant is made whose columns are vectors. Other nests are vectorized, too, wherever their loads
 * and operations allow it.
 */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

#include <string.h>

struct variant kernel_variant(struct tgc *t, const struct kernel *k, enum isa isa)
{
    struct variant v = {.isa = isa, .ast = k->ast};
    for (int i = 0; i < k->opts.n; i++)
        VEC_PUSH(t, v.opts.v, v.opts.n, v.opts.cap, k->opts.v[i]);
    return v;
}

/* Sums of products of bytes that the kernel keeps in scratch become groups as well; their ranges
 * are divided and ordered for that alone. */
static void group_stages(struct tgc *t, struct kernel *k, int at)
{
    int n, number = -1;
    struct uop *store = k->ast->src[at], *values, *weights;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct nest m;
        number += order[i]->op == OP_STAGE;
        if (order[i]->op != OP_STAGE || !nest_find(t, stage_as_store(t, order[i]), &m) ||
            m.bytes || !nest_sums_bytes(&m, &values, &weights))
            continue;
        struct variant v = kernel_variant(t, k, isa_portable());
        struct opt group = {.op = OPT_GROUP, .store = at, .of = OF_STAGE, .number = number};
        divide_sums(t, k, &v, at, number);
        order_sums(t, k, &v, at, number);
        if (!opt_apply(t, k, &v, &group, 1, NULL))
            continue;
        k->ast = v.ast;
        k->opts = v.opts;
        store = k->ast->src[at];
        order = uop_toposort(t, &store, 1, &n);
        i = number = -1;
    }
}

void kernel_collect_buffers(struct tgc *t, struct kernel *k)
{
    struct buffer **b =
        mem_array(t, (size_t)(k->nbuffer + k->npacked) + 1, sizeof(struct buffer *));
    int n = 0;
    for (; n < k->noutput; n++)
        b[n] = k->buffer[n];
    for (int i = 0; i <= k->nvariant; i++) {
        int nuop;
        struct uop *root = i == 0 ? k->ast : k->variant[i - 1].ast;
        struct uop **order = uop_toposort(t, &root, 1, &nuop);
        for (int j = 0; j < nuop; j++) {
            bool known =
                order[j]->op != OP_BUFFER || uop_buffer_of(order[j])->kind == BUFFER_SCRATCH;
            for (int l = 0; l < n && !known; l++)
                known = b[l] == order[j]->arg.p;
            if (!known)
                b[n++] = (struct buffer *)(uintptr_t)order[j]->arg.p;
        }
    }
    k->buffer = b;
    k->nbuffer = n;
}

/* Whether there are sums of groups of bytes, in scratch or not. */
static bool has_bytes(struct tgc *t, struct uop *ast)
{
    int nuop;
    struct uop **order = uop_toposort(t, &ast, 1, &nuop);
    for (int i = 0; i < nuop; i++)
        if (range_is(order[i], AXIS_GROUP))
            return true;
    return false;
}

/* The instruction sets for which the kernel may have variants; those that differ only in sums of
 * bytes, if it has some. *widest: the first of them. */
static isa_set variants_of(struct tgc *t, const struct schedule *s, const struct kernel *k,
                           enum isa *widest)
{
    isa_set isa = s->isa;
    bool bytes = has_bytes(t, k->ast);
    *widest = isa_last();
    for (enum isa a = *widest; !bytes && !isa_is_portable(a); a = isa_before(a))
        if (isa >> isa_base(a) & 1 && isa_base(a) != a)
            isa &= ~(1u << a);
    while (!isa_is_portable(*widest) && !(isa >> *widest & 1))
        *widest = isa_before(*widest);
    return isa;
}

/* ----------------------------------------------------------------------------- passes of stores */

struct stores { struct uop **u; int n; size_t cap; };

static void push_store(struct tgc *t, struct stores *s, struct uop *store)
{
    SCRATCH_PUSH(t, s->u, s->n, s->cap, store);
}

static void set_stores(struct tgc *t, struct kernel *k, const struct stores *to)
{
    k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, to->u, to->n, (union arg){0});
}

/* Replaces a store. */
typedef struct uop *(*store_pass)(struct tgc *t, struct uop *store);
static bool each_store(struct tgc *t, struct kernel *k, store_pass pass)
{
    struct stores to = {0};
    for (int i = 0; i < k->ast->nsrc; i++)
        push_store(t, &to, pass(t, k->ast->src[i]));
    set_stores(t, k, &to);
    return true;
}

bool pass_decide_stacks(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, stacks_decide);
}

bool pass_merge_clamps(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, tile_fold_clamps);
}

bool pass_merge_ranges(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        for (int axis = k->ast->src[i]->nsrc - store_first_range(k->ast->src[i]) - 2; axis >= 0;
             axis--) {
            struct opt merge = {.op = OPT_MERGE, .store = i, .axis = axis};
            (void)opt_apply(t, k, NULL, &merge, 1, NULL);    /* wherever it is legal */
        }
    return true;
}

bool pass_order_gathers(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++) {
        const struct uop *store = k->ast->src[i];
        int *axis = scratch_array(t, (size_t)store->nsrc, sizeof *axis),
            first = store_first_range(store);
        for (int j = 0, n = gathers_find_inner(t, store, first, axis); j < n; j++) {
            struct opt order = {.op = OPT_ORDER, .store = i, .axis = axis[j] - j - first,
                                .to = store->nsrc - first - 1};
            opt_must(t, k, NULL, &order, 1);
        }
    }
    return true;
}

bool pass_divide_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        divide_sums(t, k, NULL, i, -1);
    return true;
}

bool pass_order_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        order_sums(t, k, NULL, i, -1);
    return true;
}

bool pass_group_bytes(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++) {
        struct opt group = {.op = OPT_GROUP, .store = i};
        if (!bytes_are_for_matrices(t, k->ast->src[i]))
            (void)opt_apply(t, k, NULL, &group, 1, NULL);    /* wherever it is legal */
    }
    return true;
}

bool pass_group_stages(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        group_stages(t, k, i);
    return true;
}

bool pass_divide_ranges(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc;)
        i += divide_ranges(t, k, i);
    return true;
}

/* The number of rows, as a choice that a tune file may make. */
static int tune_rows(struct tgc *t, struct kernel *k, int at)
{
    static const int others[] = {0, 4, 6, 8, 12, 16};
    struct opts_choice c;
    struct tile none = {.column_axis = -1};
    int end, model = -1;
    if (!t->tuning)
        return at + rows_share_stages(t, k, at, model);
    opts_choice_begin(&c, t, k, NULL, TUNE_ROWS, at, at, 0);
    for (int i = -1; i < (int)(sizeof others / sizeof *others) && opts_choice_width(&c); i++) {
        struct kernel trial = *k;
        (void)rows_share_stages(t, &trial, at, i < 0 ? model : others[i]);
        opts_choice_add(&c, &trial, NULL, &none);
    }
    if (!opts_choice_replay(&c, &end))
        end = at + rows_share_stages(t, k, at, model);
    opts_choice_end(&c);
    return end;
}

bool pass_share_stages(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc;)
        i = tune_rows(t, k, i);
    return true;
}

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
    variants_of(t, s, k, &widest);
    for (int i = 0; i < k->ast->nsrc;)
        i = split_columns(t, k, widest, i);
    return true;
}

static void push_variant(struct tgc *t, struct kernel *k, enum isa isa)
{
    struct variant v = kernel_variant(t, k, isa);
    VEC_PUSH(t, k->variant, k->nvariant, k->cap_variant, v);
}

/* The widest set first. A set that multiplies tiles follows the one that it extends, whose vector
 * tiles it keeps. */
bool pass_make_variants(struct tgc *t, struct schedule *s, struct kernel *k)
{
    enum isa widest, waits = isa_portable();
    isa_set isa = variants_of(t, s, k, &widest);
    for (enum isa a = widest; !isa_is_portable(a); a = isa_before(a)) {
        if (!(isa >> a & 1))
            continue;
        if (isa_has_tiles(a) && isa >> isa_before(a) & 1) {
            waits = a;
            continue;
        }
        push_variant(t, k, a);
        if (!isa_is_portable(waits))
            push_variant(t, k, waits);
        waits = isa_portable();
    }
    return true;
}

/* like: by store, a tile whose panel is kept. */
static void tile_stores(struct tgc *t, struct kernel *k, struct variant *v, struct tile *like)
{
    for (int i = 0, at = 0, n = v->ast->nsrc; i < n; i++)
        at = tile_nest(t, k, v, at, i, &like[i]);
}

bool pass_tile(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int nstore = k->ast->nsrc;
    struct variant portable = kernel_variant(t, k, isa_portable());
    struct tile *like = scratch_array(t, (size_t)nstore, sizeof *like);
    for (int i = 0; i < nstore; i++)
        like[i].column_axis = -1;
    for (int j = 0; j < k->nvariant; j++)
        tile_stores(t, k, &k->variant[j], like);
    tile_stores(t, k, &portable, like);
    if (s->on_device && k->nvariant)                  /* it is all that a device runs */
        portable = k->variant[0];
    k->ast = portable.ast;
    k->opts = portable.opts;
    kernel_collect_buffers(t, k);
    return true;
}

/* Whether a tune file has chosen something for this instruction set. */
static bool is_tuned(const struct tgc *t, const struct kernel *k, enum isa isa)
{
    for (int i = 0; t->tuning && i < t->tuning->nchoice; i++) {
        const struct choice *c = &t->tuning->choice[i];
        if (c->kernel == k && c->by && c->taken.kind == TUNE_TILE && c->taken.isa == isa)
            return true;
    }
    return false;
}

/* Whether variant j multiplies tiles, and would be the one before it if it did not. */
static bool is_idle(struct tgc *t, const struct kernel *k, int j)
{
    const struct variant *v = &k->variant[j];
    return isa_has_tiles(v->isa) && j > 0 && k->variant[j - 1].isa == isa_before(v->isa) &&
           !fragments_are_used(t, v->ast) && !is_tuned(t, k, v->isa);
}

bool pass_drop_idle(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int n = 0, all = k->nvariant;
    (void)s;
    for (int j = 0; j < all; j++)
        if (!is_idle(t, k, j))
            k->variant[n++] = k->variant[j];
    k->nvariant = n;
    if (n < all)
        kernel_collect_buffers(t, k);                 /* without its weights */
    return true;
}

bool pass_collect(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i]->like)
            twin_follow(t, s->kernel[i]);             /* whose program has changed before */
        else
            kernel_keep_registers(t, s->kernel[i]);
    schedule_collect_buffers(t, s);                   /* packed weights are new buffers */
    return true;
}

static bool has_vectors(const struct variant *v)
{
    for (int i = 0; i < v->nlinear; i++)
        if (v->linear[i]->op == OP_STORE ? v->linear[i]->src[2]->lanes > 1
                                         : v->linear[i]->lanes > 1)
            return true;
    return false;
}

bool pass_drop_plain(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int n = 0;
    (void)t;
    (void)s;
    for (int j = 0; j < k->nvariant; j++)
        if (has_vectors(&k->variant[j]))
            k->variant[n++] = k->variant[j];
    k->nvariant = n;
    return true;
}
