/* optimize.c - OptOps, the tiling of a kernel's loops as data (kernel.opt, variant.opt): chosen by
 * choose_tile.c, applied to the AST by tile.c.
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

/* -------------------------------------------------------------------------- simpler loops first */

struct merge { struct uop *outer, *inner, *both; int64_t size; };

static struct uop *merge_two(struct tgc *t, void *ctx, struct uop *u)
{
    const struct merge *m = ctx;
    if (u == m->outer)
        return sym_div(t, m->both, uop_int(t, m->size));
    if (u == m->inner)
        return sym_mod(t, m->both, uop_int(t, m->size));
    return NULL;
}

static bool is_split_again(struct tgc *t, struct uop *u, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->dtype == DTYPE_INDEX &&
            (order[i]->op == OP_FLOORDIV || order[i]->op == OP_FLOORMOD ||
             order[i]->op == OP_DIV || order[i]->op == OP_MOD) &&
            uop_depends_on(t, order[i], r))
            return true;
    return false;
}

/* Whether the strides of the two ranges in an offset prevent a merge: a division would remain. */
static bool is_apart_at(struct tgc *t, struct uop *offset, const struct merge *m)
{
    int64_t outer, inner;
    return index_stride(t, offset, m->outer, &outer) &&
           index_stride(t, offset, m->inner, &inner) && outer != sat_mul(inner, m->size);
}

/* The same for all offsets of a store, found before anything is built. */
static bool is_apart(struct tgc *t, const struct uop *store, const struct merge *m)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop *root = store->src[2];
    int n;
    bool apart = is_apart_at(t, store->src[1], m);
    struct uop **order = apart ? NULL : uop_toposort(t, &root, 1, &n);
    for (int i = 0; !apart && i < n; i++)
        apart = order[i]->op == OP_LOAD && is_apart_at(t, order[i]->src[1], m);
    scratch_release(t, mark);
    return apart;
}

/* Merges two adjacent ranges of a store, if nothing needs them separate. */
static struct uop *merge_ranges(struct tgc *t, struct uop *store, int first)
{
    for (int k = store->nsrc - 2; k >= first; k--) {
        struct merge m = {store->src[k], store->src[k + 1], NULL,
                          range_fixed_size(store->src[k + 1])};
        int64_t n = range_fixed_size(m.outer), total;
        struct uop *src[72];
        if (n < 1 || m.size < 1 || range_is(m.outer, AXIS_BAND) ||
            __builtin_mul_overflow(n, m.size, &total) || store->nsrc > 72)
            continue;
        m.both = uop_range(t, uop_int(t, total), t->next_range++);
        if (n > 1 && m.size > 1 && is_apart(t, store, &m))
            continue;
        memcpy(src, store->src, (size_t)first * sizeof *src);
        uop_rewrite(t, src, first, merge_two, &m);
        bool apart = false;
        for (int i = 1; i < first && !apart; i++)
            apart = is_split_again(t, src[i], m.both);
        if (apart)
            continue;
        int nsrc = first;
        for (int i = first; i < store->nsrc; i++)
            if (i != k + 1)
                src[nsrc++] = i == k ? m.both : store->src[i];
        store = uop_intern(t, OP_STORE, store->dtype, src, nsrc, (union arg){0});
    }
    return store;
}

static bool depends_on_ranges(struct tgc *t, struct uop *offset, const struct uop *u)
{
    for (int k = 1; k < u->nsrc; k++)
        if (uop_depends_on(t, offset, u->src[k]))
            return true;
    return false;
}

/* The last range along which u reads a value that is no weight; NULL: none. */
static struct uop *find_values(struct tgc *t, struct uop *u)
{
    struct uop *values = NULL;
    int n;
    struct uop **order = nest_order(t, u->src[0], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && !load_is_stationary(order[i]) &&
            depends_on_ranges(t, order[i]->src[1], u))
            values = order[i];
    return values;
}

/* Orders the ranges of a reduction by stride in what it reads: the innermost loop is contiguous. */
static struct uop *order_ranges(struct tgc *t, struct uop *u)
{
    struct uop *src[MAX_RANK + 1];
    int64_t stride[MAX_RANK + 1] = {0};
    struct uop *values = u->nsrc <= MAX_RANK ? find_values(t, u) : NULL;
    if (!values)
        return u;
    for (int k = 0; k < u->nsrc; k++)
        src[k] = u->src[k];
    for (int k = 1; k < u->nsrc; k++)
        if (src[k]->op != OP_RANGE || !index_stride(t, values->src[1], src[k], &stride[k]) ||
            stride[k] < 0)
            return u;
    for (int k = 2; k < u->nsrc; k++)                    /* stable, by descending stride */
        for (int j = k; j > 1 && stride[j] > stride[j - 1]; j--) {
            struct uop *r = src[j];
            int64_t s = stride[j];
            src[j] = src[j - 1], src[j - 1] = r;
            stride[j] = stride[j - 1], stride[j - 1] = s;
        }
    struct uop *by = uop_intern(t, OP_REDUCE, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(t, by, u);
    return by;
}

static struct uop *order_reductions(struct tgc *t, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *by = order[i]->op == OP_REDUCE ? order_ranges(t, order[i]) : order[i];
        if (by == order[i])
            continue;
        store = uop_substitute(t, store, order[i], by);
        order = uop_toposort(t, &store, 1, &n);
        i = -1;
    }
    return store;
}

/* ------------------------------------------------------------------------------------- the pass */

/* Contractions in scratch get tiles that fit exactly. */
static struct uop *optimize_stages(struct tgc *t, struct variant *v, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n && !isa_is_portable(v->isa); i++) {
        struct nest m;
        if (order[i]->op != OP_STAGE || !nest_find(t, stage_as_store(t, order[i]), &m) ||
            !m.contraction)
            continue;
        m.staged = true;
        struct tile tile = tile_choose_vectors(&m, v->isa, NULL, true);
        if (tile.column_axis < 0 || tile.panel % tile.columns ||
            range_fixed_size(m.store->src[tile.column_axis]) % tile.panel)
            continue;
        while (tile.rows > 1 && range_fixed_size(m.store->src[tile.row_axis]) % tile.rows)
            tile.rows--;
        /* attention has one */
        return uop_substitute(t, store, order[i], store_as_stage(t, tile_apply(&m, &tile, v)));
    }
    return store;
}

struct stores { struct uop **u; struct tile *like; int n; size_t cap, cap_like; };

static void push_store(struct tgc *t, struct stores *s, struct uop *store, struct tile like)
{
    int n = s->n;
    SCRATCH_PUSH(t, s->like, n, s->cap_like, like);
    SCRATCH_PUSH(t, s->u, s->n, s->cap, store);
}

/* STACKs become straight-line code around one vector, since the expressions to choose from share
 * much. Remainder columns are a store of their own, with a partial vector. */
static void unroll_stacks(struct tgc *t, struct variant *v, struct uop *store, struct tile like,
                          struct stores *out)
{
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
        struct uop *rest;
        store_split(t, store, axis, n - n % width, &store, &rest);
        unroll_stacks(t, v, store, like, out);
        unroll_stacks(t, v, rest, like, out);
        return;
    }
    if (width) {
        struct tile tile = {.column_axis = axis, .row_axis = -1, .panel = n < width ? n : width,
                            .rows = 1, .columns = width, .vector = (int)width};
        store = tile_fill_vectors(&m, &tile, tile_apply(&m, &tile, v));
    }
    while ((axis = stacks_axis(t, store)) >= 0)
        store = tile_unroll(t, store, store->src[axis], v);
    push_store(t, out, store, like);
}

/* Gives the remainder of a store the store's own first loops, where they have the same size:
 * linearize.c merges the two nests, so a panel of weights in the cache serves both. */
static struct uop *join_loops(struct tgc *t, const struct uop *store, struct uop *rest)
{
    for (int k = 3; k < store->nsrc && k < rest->nsrc; k++) {
        struct uop *a = store->src[k], *b = rest->src[k];
        if (a == b)
            continue;
        if (a->op != OP_RANGE || b->op != OP_RANGE || a->src[0] != b->src[0] ||
            a->src[0]->op != OP_CONST || range_is_lane(a) || range_is_lane(b) ||
            range_is(a, AXIS_PART) || range_is(b, AXIS_PART) || uop_depends_on(t, rest, a))
            break;
        rest = uop_substitute(t, rest, b, a);
    }
    return rest;
}

/* Optimizes one store of a kernel for one instruction set, as several if rows leave a remainder.
 * `like`, in: a tile whose panel is kept; out: this one's, if it is the first. nest: its number,
 * -1: a remainder. */
static void optimize_store(struct tgc *t, struct kernel *k, struct variant *v, struct uop *store,
                           int nest, struct tile *like, struct stores *out)
{
    struct nest m;
    struct uop *rest = NULL;
    store = optimize_stages(t, v, stacks_decide(t, store));
    if (!nest_find(t, store, &m)) {
        push_store(t, out, store, *like);
        return;
    }
    if (!m.reduce && stacks_axis(t, store) >= 0) {
        unroll_stacks(t, v, store, *like, out);
        return;
    }
    const struct tile *keep = like->column_axis >= 0 && m.contraction ? like : NULL;
    /* one packed weight for all variants */
    struct tile tile = tile_choose(&m, v->isa, keep, nest < 0 ? NULL : k, nest);
    int64_t size = tile.column_axis >= 0 && tile.row_axis >= 0
                       ? range_fixed_size(store->src[tile.row_axis])
                       : 0;
    if (tile.column_axis >= 0 && !keep)
        *like = tile;
    struct tile of_rest = *like;
    if (tile.column_axis >= 0 && size % tile.rows) {
        int nsrc = store->nsrc;
        store_split(t, store, tile.row_axis, size - size % tile.rows, &store, &rest);
        if (!nest_find(t, store, &m))
            TGC_BUG(t, "a part of a nest is none");
        /* a single row has no range */
        of_rest.column_axis -= rest->nsrc < nsrc && tile.row_axis < tile.column_axis;
    }
    if (tile.column_axis >= 0) {
        store = tile_apply(&m, &tile, v);
        if (m.contraction)
            store = tile_pack(t, k, v, store);
        store = tile_fill_vectors(&m, &tile, store);
    }
    push_store(t, out, store, *like);
    if (!rest)
        return;
    int from = out->n;
    optimize_store(t, k, v, rest, -1, &of_rest, out); /* fewer rows than a tile has: no remainder */
    for (int i = from; i < out->n; i++)
        out->u[i] = join_loops(t, store, out->u[i]);
}

/* Sums of products of bytes that the kernel keeps in scratch get groups, too. */
static struct uop *group_stages(struct tgc *t, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n), *values, *weights;
    for (int i = 0; i < n; i++) {
        struct nest m;
        struct uop *stage = order[i]->op == OP_STAGE ? stage_as_store(t, order[i]) : NULL, *by;
        if (!stage || !nest_find(t, stage, &m) || m.bytes ||
            !nest_sums_bytes(&m, &values, &weights))
            continue;
        by = tile_group_bytes(t, order_reductions(t, divide_sums(t, stage)));
        if (by == stage)
            continue;
        store = uop_substitute(t, store, order[i], store_as_stage(t, by));
        order = uop_toposort(t, &store, 1, &n);
        i = -1;
    }
    return store;
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
        push_store(t, &to, pass(t, k->ast->src[i]), (struct tile){.column_axis = -1});
    set_stores(t, k, &to);
    return true;
}

static int first_range(const struct uop *store)
{
    return store->nsrc > 3 && store->src[3]->op != OP_RANGE ? 4 : 3;
}

static struct uop *merge_store(struct tgc *t, struct uop *store)
{
    return merge_ranges(t, store, first_range(store));
}

static struct uop *order_store(struct tgc *t, struct uop *store)
{
    return tile_order_gathers(t, store, first_range(store));
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
    return each_store(t, k, merge_store);
}

bool pass_order_gathers(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, order_store);
}

bool pass_divide_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, divide_sums);
}

bool pass_order_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, order_reductions);
}

bool pass_group_bytes(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, tile_group_bytes);
}

bool pass_group_stages(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    return each_store(t, k, group_stages);
}

bool pass_divide_ranges(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct stores to = {0};
    struct uop *part[PARTS_MAX];
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        for (int j = 0, n = divide_ranges(t, k->ast->src[i], part); j < n; j++)
            push_store(t, &to, part[j], (struct tile){.column_axis = -1});
    set_stores(t, k, &to);
    return true;
}

bool pass_gather_rows(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct stores to = {0};
    struct uop *part[GATHER_PARTS_MAX];
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        for (int j = 0, n = gather_rows(t, k, k->ast->src[i], part); j < n; j++)
            push_store(t, &to, part[j], (struct tile){.column_axis = -1});
    set_stores(t, k, &to);
    return true;
}

bool pass_pack_keys(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct stores to = {0};
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        push_store(t, &to, keys_pack(t, k, k->ast->src[i]), (struct tile){.column_axis = -1});
    set_stores(t, k, &to);
    return true;
}

bool pass_share_stages(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct stores to = {0};
    struct uop *part[2];
    (void)s;
    for (int i = 0; i < k->ast->nsrc; i++)
        for (int j = 0, n = rows_share_stages(t, k, k->ast->src[i], part); j < n; j++)
            push_store(t, &to, part[j], (struct tile){.column_axis = -1});
    set_stores(t, k, &to);
    return true;
}

/* Splits the columns that a tile of vectors leaves over into a store of their own, for all
 * variants, so that the weights of both are packed. */
static void split_columns(struct tgc *t, struct kernel *k, enum isa isa, struct uop *store,
                          struct stores *out)
{
    struct nest m;
    struct uop *rest = NULL;
    struct tile none = {.column_axis = -1}, tile = none;
    if (!isa_is_portable(isa) && nest_find(t, store, &m))
        tile = tile_choose_vectors(&m, isa, NULL, false);
    int64_t n = tile.column_axis >= 0 ? range_fixed_size(store->src[tile.column_axis]) : 0;
    if (tile.column_axis >= 0 && n > tile.columns && n % tile.columns) {
        struct uop *whole = store, *other;
        store_split(t, whole, tile.column_axis, n - n % tile.columns, &store, &rest);
        int64_t left = tile_columns_left(&m, &tile);
        if (left > n % tile.columns) {
            store_split(t, whole, tile.column_axis, n - left, &other, &rest);
            k->stores_twice = true;
        }
    }
    push_store(t, out, store, none);
    if (rest)
        push_store(t, out, rest, none);
}

bool pass_split_columns(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct stores to = {0};
    enum isa widest;
    variants_of(t, s, k, &widest);
    for (int i = 0; i < k->ast->nsrc; i++)
        split_columns(t, k, widest, k->ast->src[i], &to);
    set_stores(t, k, &to);
    return true;
}

bool pass_tile(struct tgc *t, struct schedule *s, struct kernel *k)
{
    const struct uop *ast = k->ast;
    enum isa widest;
    isa_set isa = variants_of(t, s, k, &widest);
    struct tile *like = scratch_array(t, (size_t)ast->nsrc, sizeof *like);
    for (int i = 0; i < ast->nsrc; i++)
        like[i].column_axis = -1;
    for (enum isa a = widest;; a = isa_before(a)) {
        struct variant v = {.isa = a};
        struct stores to = {0};
        if (!(isa >> a & 1) && !isa_is_portable(a))
            continue;
        for (int i = 0; i < ast->nsrc; i++)
            optimize_store(t, k, &v, ast->src[i], i, &like[i], &to);
        v.ast = uop_intern(t, OP_SINK, DTYPE_VOID, to.u, to.n, (union arg){0});
        if (isa_is_portable(a)) {
            k->ast = v.ast;
            k->opt = v.opt;
            k->nopt = v.nopt;
            k->cap_opt = v.cap_opt;
            break;
        }
        VEC_PUSH(t, k->variant, k->nvariant, k->cap_variant, v);
    }
    kernel_collect_buffers(t, k);
    return true;
}

bool pass_collect(struct tgc *t, struct schedule *s)
{
    schedule_collect_buffers(t, s);                   /* packed weights are new buffers */
    return true;
}
