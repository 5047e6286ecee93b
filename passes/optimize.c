/* optimize.c - OptOps: how a kernel's loops are tiled. They are data (kernel.opt, variant.opt),
 * chosen here, applied to the AST by tile.c.
 *
 * A contraction (matmul, convolution) keeps a tile of rows x columns accumulators, so that each
 * value it loads is used several times:
 *
 *      acc[4][16] = 0
 *      for k: for row: for column: acc[row][column] += a[i + row, k] * b[k, j + column]
 *
 * The columns run along a range in which every operand stands still, is contiguous, or is a weight
 * that can be packed; the rows along a range in which some operand stands still. All pairs of
 * ranges and divisors are tried. The portable kernel's lanes stay loops, which compilers vectorize;
 * for each instruction set a variant is made whose columns are vectors: it is chosen by the cycles
 * that a step of the reduction takes, as the slowest of the FMA units, the load ports, the decoder
 * and the latency of an accumulator say. What is no contraction gets vectors, too, wherever its
 * loads and operations allow it.
 */
#include "passes/tile.h"

#include <string.h>

const struct isa_info isa_table[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, header, features)                   \
    {text, lanes, narrow, registers, title},
#include "passes/isa.def"
#undef ISA
};

enum { COLUMNS_MAX = 32, ROWS_MAX = 8, TILE_MAX = 64 };          /* of the portable kernel */
enum { VECTOR_ROWS_MAX = 16, VECTOR_BLOCKS_MAX = 8 };

/* -------------------------------------------------------------------------- simpler loops first */

static int64_t fixed_size(const struct uop *range)
{
    return range->src[0]->op == OP_CONST ? range->src[0]->arg.i : 0;
}

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
        if ((order[i]->op == OP_FLOORDIV || order[i]->op == OP_FLOORMOD || order[i]->op == OP_DIV ||
             order[i]->op == OP_MOD) &&
            nest_depends(t, order[i], r))
            return true;
    return false;
}

/* Two neighbouring ranges of a store become one, where nothing needs them apart. */
static struct uop *merge_ranges(struct tgc *t, struct uop *store, int first)
{
    for (int k = store->nsrc - 2; k >= first; k--) {
        struct merge m = {store->src[k], store->src[k + 1], NULL, fixed_size(store->src[k + 1])};
        int64_t n = fixed_size(m.outer), total;
        struct uop *src[72];
        if (n < 1 || m.size < 1 || RANGE_IS_BAND(m.outer->arg.i) || __builtin_mul_overflow(n, m.size, &total) || store->nsrc > 72)
            continue;
        m.both = uop_range(t, uop_int(t, total), t->next_range++);
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

/* The ranges of a contraction in the order in which its largest operand that is no weight lies in
 * memory: the innermost loop reads neighbours. */
static struct uop *order_reduction(struct tgc *t, struct uop *store)
{
    struct nest m;
    struct uop *src[MAX_RANK + 1], *values = NULL;
    int64_t stride[MAX_RANK + 1] = {0};
    if (!nest_find(t, store, &m) || !m.contraction || m.reduce->nsrc > MAX_RANK)
        return store;
    for (int i = 0; i < m.nload; i++)
        if (uop_buffer_of(m.load[i]->src[0])->kind != BUFFER_WEIGHT)
            values = m.load[i];
    if (!values)
        return store;
    for (int k = 0; k < m.reduce->nsrc; k++)
        src[k] = m.reduce->src[k];
    for (int k = 1; k < m.reduce->nsrc; k++)
        if (!nest_stride(t, values->src[1], src[k], &stride[k]) || stride[k] < 0)
            return store;
    for (int k = 2; k < m.reduce->nsrc; k++)             /* stable, by falling stride */
        for (int j = k; j > 1 && stride[j] > stride[j - 1]; j--) {
            struct uop *r = src[j];
            int64_t s = stride[j];
            src[j] = src[j - 1], src[j - 1] = r;
            stride[j] = stride[j - 1], stride[j - 1] = s;
        }
    struct uop *by = uop_intern(t, OP_REDUCE, m.reduce->dtype, src, m.reduce->nsrc, m.reduce->arg);
    uop_set_origin(t, by, m.reduce);
    return nest_replace(t, store, m.reduce, by);
}

/* -------------------------------------------------------------------------- the portable kernel */

static bool is_gated_by(const struct nest *m, const struct uop *load, const struct uop *r)
{
    return load->nsrc > 2 && nest_depends(m->t, load->src[2], r);
}

/* Whether columns can run along r: some operand is contiguous then. */
static bool columns_fit(const struct nest *m, struct uop *r)
{
    int64_t stride;
    bool vectors = false;
    if (nest_stages_depend(m, r) || !nest_stride(m->t, m->store->src[1], r, &stride))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if (is_gated_by(m, m->load[i], r) || !nest_stride(m->t, m->load[i]->src[1], r, &stride))
            return false;
        vectors |= stride != 0;
        if (stride != 0 && stride != 1 && !nest_is_packable(m, m->load[i]))
            return false;
    }
    return vectors;
}

static bool rows_fit(const struct nest *m, struct uop *r)
{
    bool reuse = false;
    if (nest_stages_depend(m, r))
        return false;
    for (int i = 0; i < m->nload; i++) {
        if (is_gated_by(m, m->load[i], r))
            return false;
        reuse |= !nest_depends(m->t, m->load[i]->src[1], r);
    }
    return reuse || !m->contraction;
}

/* Multiply-adds of a vector for each load: the rows' operand is broadcast, the columns' is read in
 * vectors. */
static double gain_of(int64_t rows, int64_t columns)
{
    int64_t lanes = isa_table[ISA_GENERIC].lanes;
    double vectors = (double)((columns + lanes - 1) / lanes);
    double used = (double)columns / (vectors * (double)lanes) * (columns % lanes ? 0.5 : 1);
    return used * (double)rows * vectors / ((double)rows + vectors);
}

static void try_rows(const struct nest *m, struct tile *best, struct tile tile)
{
    tile.row_axis = -1;
    tile.rows = 1;
    tile.gain = gain_of(1, tile.columns);
    for (int a = m->first; a < m->store->nsrc; a++) {
        int64_t n = fixed_size(m->store->src[a]);
        /* a size known only at run time divides by nothing */
        if (n < 1 || a == tile.column_axis || !rows_fit(m, m->store->src[a]))
            continue;
        for (int64_t rows = 1; rows <= ROWS_MAX && rows * tile.columns <= TILE_MAX; rows++)
            if (n % rows == 0 && gain_of(rows, tile.columns) > best->gain) {
                *best = tile;
                best->row_axis = a;
                best->rows = rows;
                best->gain = gain_of(rows, tile.columns);
            }
    }
    if (tile.gain > best->gain)
        *best = tile;
}

/* From the innermost range outwards, so that equal gains keep the output's contiguous range for the
 * columns. `like`: a variant's tile, whose panel is to be kept, or NULL. */
static struct tile choose_portable(const struct nest *m, const struct tile *like)
{
    struct tile best = {.column_axis = -1};
    for (int a = m->store->nsrc - 1; a >= m->first && m->contraction; a--) {
        int64_t n = fixed_size(m->store->src[a]);
        if (n < 2 || (like && like->column_axis != a) || !columns_fit(m, m->store->src[a]))
            continue;
        for (int64_t columns = 2; columns <= COLUMNS_MAX; columns++)
            if (like ? like->panel % columns == 0 : n % columns == 0)
                try_rows(m, &best,
                         (struct tile){.column_axis = a,
                                       .panel = like ? like->panel : columns,
                                       .columns = columns});
    }
    return best;
}

/* ------------------------------------------------------------------------------------- variants */

/* Lanes that lie apart in memory are moved one by one: a contraction's tile is worth it, since it
 * does that once for all its steps. */
static bool may_lie_apart(const struct nest *m, int64_t stride)
{
    return m->contraction && stride <= VECTOR_STRIDE_MAX && stride >= -VECTOR_STRIDE_MAX;
}

/* Whether a load that depends on r reads neighbours along it, or can; outside of the reduction,
 * also what lies apart. */
static bool load_fits(const struct nest *m, const struct uop *load, struct uop *r, bool reduced)
{
    int64_t stride;
    if (is_gated_by(m, load, r) || !nest_stride(m->t, load->src[1], r, &stride))
        return false;
    if (stride == 0)
        return true;
    if (load->dtype != DTYPE_F32)
        return tile_is_vector_dtype(load->dtype) && load->nsrc == 2 &&
               (stride == 1 || (reduced && nest_is_packable(m, load)));
    return stride == 1 || (reduced ? nest_is_packable(m, load) : may_lie_apart(m, stride));
}

/* Whether vectors can run along r: everything that varies with it is a float, read side by side,
 * and has an operation on vectors; r itself is used in offsets only. */
static bool vectors_fit(const struct nest *m, struct uop *r)
{
    struct tgc *t = m->t;
    int64_t stride;
    int n;
    if (nest_stages_depend(m, r) || !nest_stride(t, m->store->src[1], r, &stride) || stride == 0 ||
        (stride != 1 && !may_lie_apart(m, stride)) ||
        uop_buffer_of(m->store->src[0])->dtype != DTYPE_F32)
        return false;
    for (int i = 0; i < m->nload; i++)
        if (!load_fits(m, m->load[i], r, true))
            return false;
    for (int i = 0; i < m->nother; i++)
        if (!load_fits(m, m->other[i], r, false))
            return false;
    struct mem_mark mark = scratch_mark(t);
    struct uop_map varies = {.t = t, .scratch = true};
    struct uop **order = nest_order(t, m->store->src[2], &n);
    bool fits = true;
    for (int i = 0; i < n && fits; i++) {
        struct uop *u = order[i];
        bool any = false;
        for (int k = u->op == OP_LOAD; k < u->nsrc && u->op != OP_RANGE; k++) {
            bool value = u->op != OP_LOAD || k > 2;
            any |= value && map_get(&varies, u->src[k]) != NULL;
            /* r may be a part of an offset, not of a value */
            fits &= u->src[k] != r || u->dtype == DTYPE_INDEX || !value;
        }
        if (u->op == OP_LOAD)
            any |= nest_depends(t, u->src[1], r);
        if (any && u->op != OP_LOAD)
            fits &= (u->op == OP_REDUCE && u->dtype == DTYPE_F32) || tile_is_vector_op(u);
        if (any || (u->dtype != DTYPE_INDEX && u->op != OP_LOAD && u->op != OP_BUFFER &&
                    op_is_elementwise(u->op) && nest_depends(t, u, r)))
            map_set(&varies, u, u);
        if (map_get(&varies, u) && u->op != OP_LOAD && !any)
            fits = false;                             /* a value made of r itself */
    }
    scratch_release(t, mark);
    return fits;
}

/* Lanes done in a cycle. One step of the reduction: rows * blocks FMAs, as many broadcasts as rows,
 * as many loads as blocks. */
static double vector_gain(const struct isa_info *isa, bool reduces, int64_t rows, int64_t blocks,
                          int64_t vector)
{
    enum { UNITS = 2, PORTS = 2, ISSUE = 5, LATENCY = 4, L2_FLOATS = 8 };
    double acc = (double)(rows * blocks), loads = (double)(rows + blocks);
    double cycles = acc / UNITS;
    if (acc + (double)blocks + 1 > isa->registers)
        return 0;
    if (reduces && cycles < LATENCY)
        cycles = LATENCY;
    if (cycles < loads / PORTS)
        cycles = loads / PORTS;
    if (cycles < (acc + loads + 2) / ISSUE)
        cycles = (acc + loads + 2) / ISSUE;
    if (reduces && cycles < (double)(blocks * vector) / L2_FLOATS)
        cycles = (double)(blocks * vector) / L2_FLOATS;
    return acc * (double)vector / (cycles + 0.02 * loads);
}

/* How well a tile of `rows` does on `size` of them, the last one being smaller, per lane of those
 * that are wanted. */
static double rows_gain(const struct isa_info *isa, bool reduces, int64_t size, int64_t rows,
                        int64_t blocks, int64_t vector)
{
    double full = vector_gain(isa, reduces, rows, blocks, vector);
    int64_t rest = size % rows;
    if (rest == 0 || full == 0)
        return full;
    double last = vector_gain(isa, reduces, rest, blocks, vector);
    double cycles = (double)(size - rest) / full + (double)rest / last;
    return 0.98 * (double)size / cycles;                 /* two loop nests instead of one */
}

/* Columns of a panel: n, or a part of it. What is left is a store of its own (see split_columns),
 * or the last lanes of a vector that nobody looks at. false: such columns do not suit. */
static bool columns_suit(int64_t n, int64_t columns, int64_t vector, const struct tile *like,
                         bool exact, bool gated, int64_t *panel)
{
    *panel = like ? like->panel : columns < n ? columns : n;
    if (n % columns && (gated || (exact && columns < n)))
        return false;
    return columns <= *panel ? *panel % columns == 0 : *panel == n && columns - n < vector;
}

/* Whether a load that runs along r is conditional already, or of small elements: no part of it can
 * be loaded. */
static bool has_gates(const struct nest *m, const struct uop *r)
{
    for (int i = 0; i < m->nload + m->nother; i++) {
        const struct uop *load = i < m->nload ? m->load[i] : m->other[i - m->nload];
        if ((load->nsrc > 2 || load->dtype != DTYPE_F32) && nest_depends(m->t, load->src[1], r))
            return true;
    }
    return false;
}

/* Cycles to store a lane, for each step of the reduction. */
static double store_cost(const struct nest *m, struct uop *r)
{
    double steps = 1;
    int64_t stride;
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        steps *= m->reduce->src[k]->src[0]->vmax > 0 ? (double)m->reduce->src[k]->src[0]->vmax : 1;
    bool apart = !nest_stride(m->t, m->store->src[1], r, &stride) || stride != 1;
    return (apart ? 1.5 : 0.1) / steps;
}

static void try_vectors(const struct nest *m, const struct isa_info *isa, const struct tile *like,
                        bool exact, struct tile *best, int axis, int64_t vector)
{
    int64_t n = fixed_size(m->store->src[axis]), panel;
    double storing = store_cost(m, m->store->src[axis]);
    bool gated = has_gates(m, m->store->src[axis]);
    for (int64_t blocks = 1; blocks <= VECTOR_BLOCKS_MAX; blocks++) {
        int64_t columns = blocks * vector, tiles = (n + columns - 1) / columns;
        if (!columns_suit(n, columns, vector, like, exact, gated, &panel))
            continue;
        double used =
            (double)n / (double)(tiles * columns) * (n > columns && n % columns ? 0.98 : 1);
        for (int a = m->first; a <= m->store->nsrc; a++) {
            bool none = a == m->store->nsrc;             /* one row */
            int64_t size = none ? 1 : fixed_size(m->store->src[a]);
            if (!none && (size < 2 || a == axis || !m->reduce || !rows_fit(m, m->store->src[a])))
                continue;
            for (int64_t rows = none ? 1 : 2; rows <= size && rows <= VECTOR_ROWS_MAX; rows++) {
                double gain = used * rows_gain(isa, m->reduce != NULL, size, rows, blocks, vector);
                gain = gain > 0 ? 1 / (1 / gain + storing) : 0;
                if (gain <= best->gain)
                    continue;
                *best = (struct tile){.column_axis = axis, .row_axis = none ? -1 : a,
                                      .panel = panel, .columns = columns, .rows = rows,
                                      .vector = (int)vector, .gain = gain};
            }
        }
    }
}

static struct tile choose_vectors(const struct nest *m, const struct isa_info *isa,
                                  const struct tile *like, bool exact)
{
    struct tile best = {.column_axis = -1};
    for (int a = m->store->nsrc - 1; a >= m->first; a--) {
        bool plain = !m->reduce || !nest_depends(m->t, m->reduce, m->store->src[a]);
        if (fixed_size(m->store->src[a]) < 2 || (like && like->column_axis != a) ||
            /* strip.c does that, with any size */
            (plain && a == m->store->nsrc - 1) || !vectors_fit(m, m->store->src[a]))
            continue;
        for (int width = isa->lanes; width; width = width == isa->lanes ? isa->narrow : 0)
            try_vectors(m, isa, like, exact, &best, a, width);
    }
    return best;
}

/* -------------------------------------------------------------------------------------- choices */

/* A range of n values among which n - 1 decisions choose: each value has an expression of its own,
 * as Winograd's transforms have. */
static bool is_choice(struct tgc *t, struct uop *value, const struct uop *r)
{
    enum { CHOICES_MAX = 64 };
    int64_t size = fixed_size(r), at;
    bool decided[CHOICES_MAX] = {false};
    int n, ndecided = 0;
    if (size < 2 || size > CHOICES_MAX || RANGE_IS_LANE(r->arg.i))
        return false;
    struct uop **order = nest_order(t, value, &n);
    for (int i = 0; i < n; i++) {
        const struct uop *c = order[i]->op == OP_WHERE ? order[i]->src[0] : NULL;
        if (!c || c->op != OP_LT || c->src[0] != r || !uop_const_int(c->src[1], &at) || at < 1 ||
            at >= size || decided[at])
            continue;
        decided[at] = true;
        ndecided++;
    }
    return ndecided == size - 1;
}

static int find_choice(struct tgc *t, const struct uop *store)
{
    for (int k = 3; k < store->nsrc; k++)
        if (store->src[k]->op == OP_RANGE && is_choice(t, store->src[2], store->src[k]))
            return k;
    return -1;
}

/* Choices become straight-line code around one vector, since the values to choose from have much in
 * common. */
static struct uop *unroll_choices(const struct nest *m, struct variant *v, struct uop *store)
{
    const struct isa_info *isa = &isa_table[v->isa];
    int axis = store->nsrc - 1, width[2] = {isa->lanes, isa->narrow};
    bool fits = v->isa != ISA_GENERIC && axis >= m->first && vectors_fit(m, store->src[axis]);
    for (int k = 0; k < 2 && fits; k++) {
        struct tile tile = {.column_axis = axis, .row_axis = -1, .panel = width[k], .rows = 1,
                            .columns = width[k], .vector = width[k]};
        if (width[k] == 0 || fixed_size(store->src[axis]) % width[k])
            continue;
        struct nest nest = *m;
        store = tile_apply(&nest, &tile, v);
        break;
    }
    while ((axis = find_choice(m->t, store)) >= 0)
        store = tile_unroll(m->t, store, store->src[axis], v);
    return store;
}

/* ------------------------------------------------------------------------------------- the pass */

/* Contractions in scratch get tiles of one row. */
static struct uop *optimize_stages(struct tgc *t, struct variant *v, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n && v->isa != ISA_GENERIC; i++) {
        struct nest m;
        if (order[i]->op != OP_STAGE || !nest_find(t, stage_as_store(t, order[i]), &m) ||
            !m.contraction)
            continue;
        struct tile tile = choose_vectors(&m, &isa_table[v->isa], NULL, true);
        if (tile.column_axis < 0 || tile.rows > 1 || tile.panel % tile.columns ||
            fixed_size(m.store->src[tile.column_axis]) % tile.panel)
            continue;
        /* attention has one */
        return nest_replace(t, store, order[i], store_as_stage(t, tile_apply(&m, &tile, v)));
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

/* One store of a kernel, for one instruction set: several, where the rows leave a rest. `like` is
 * in: a tile whose panel is kept; out: this one's, if it is the first. */
static void optimize_store(struct tgc *t, struct kernel *k, struct variant *v, struct uop *store,
                           struct tile *like, struct stores *out)
{
    struct nest m;
    struct uop *rest = NULL;
    store = optimize_stages(t, v, store);
    if (!nest_find(t, store, &m)) {
        push_store(t, out, store, *like);
        return;
    }
    if (!m.reduce && find_choice(t, store) >= 0) {
        push_store(t, out, unroll_choices(&m, v, store), *like);
        return;
    }
    const struct tile *keep = like->column_axis >= 0 && m.contraction ? like : NULL;
    struct tile tile = {.column_axis = -1};
    if (v->isa != ISA_GENERIC)
        tile = choose_vectors(&m, &isa_table[v->isa], keep, true);
    if (tile.column_axis < 0)
        tile = choose_portable(&m, keep); /* and one stored weight for all variants */
    int64_t size =
        tile.column_axis >= 0 && tile.row_axis >= 0 ? fixed_size(store->src[tile.row_axis]) : 0;
    if (tile.column_axis >= 0 && !keep)
        *like = tile;
    if (tile.column_axis >= 0 && size % tile.rows) {
        tile_split(t, store, tile.row_axis, size - size % tile.rows, &store, &rest);
        if (!nest_find(t, store, &m))
            TGC_BUG(t, "a part of a nest is none");
    }
    if (tile.column_axis >= 0) {
        store = tile_apply(&m, &tile, v);
        if (m.contraction)
            store = tile_pack(t, k, v, store);
        store = tile_fill_vectors(&m, &tile, store);
    }
    push_store(t, out, store, *like);
    if (rest)
        optimize_store(t, k, v, rest, like, out);        /* fewer rows than a tile has: no rest */
}

static struct uop *simplify_store(struct tgc *t, struct uop *store)
{
    int first = store->nsrc > 3 && store->src[3]->op != OP_RANGE ? 4 : 3;
    return order_reduction(t, merge_ranges(t, store, first));
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

/* The stores of a kernel, as all its variants see them. Columns that a vector's tile leaves over
 * are a store of their own, so that the weights of both are packed. */
static void split_columns(struct tgc *t, enum isa isa, struct uop *store, struct stores *out)
{
    struct nest m;
    struct uop *rest = NULL;
    struct tile none = {.column_axis = -1}, tile = none;
    if (isa != ISA_GENERIC && nest_find(t, store, &m))
        tile = choose_vectors(&m, &isa_table[isa], NULL, false);
    int64_t n = tile.column_axis >= 0 ? fixed_size(store->src[tile.column_axis]) : 0;
    if (tile.column_axis >= 0 && n > tile.columns && n % tile.columns)
        tile_split(t, store, tile.column_axis, n - n % tile.columns, &store, &rest);
    push_store(t, out, store, none);
    if (rest)
        push_store(t, out, rest, none);
}

static void optimize_kernel(struct tgc *t, struct kernel *k, isa_set isa)
{
    static const enum isa order[] = {ISA_AVX512, ISA_AVX2, ISA_NEON, ISA_GENERIC};
    enum { NORDER = sizeof order / sizeof *order };
    struct stores from = {0};
    int widest = 0;
    while (order[widest] != ISA_GENERIC && !(isa >> order[widest] & 1))
        widest++;
    for (int i = 0; i < k->ast->nsrc; i++)
        split_columns(t, order[widest], keys_pack(t, k, simplify_store(t, k->ast->src[i])), &from);
    for (int a = widest; a < NORDER; a++) {
        struct variant v = {.isa = order[a]};
        struct stores to = {0};
        if (!(isa >> v.isa & 1) && v.isa != ISA_GENERIC)
            continue;
        for (int i = 0; i < from.n; i++)
            optimize_store(t, k, &v, from.u[i], &from.like[i], &to);
        v.ast = uop_intern(t, OP_SINK, DTYPE_VOID, to.u, to.n, (union arg){0});
        if (v.isa == ISA_GENERIC) {
            k->ast = v.ast;
            k->opt = v.opt;
            k->nopt = v.nopt;
        } else {
            VEC_PUSH(t, k->variant, k->nvariant, k->cap_variant, v);
        }
    }
    kernel_collect_buffers(t, k);
}

bool pass_optimize(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct mem_mark mark = scratch_mark(t);
        optimize_kernel(t, s->kernel[i], s->isa);
        scratch_release(t, mark);
    }
    schedule_collect_buffers(t, s);                   /* packed weights are buffers of their own */
    return true;
}
