/* linear_values.c - the values of a linear program: where each is computed.
 *
 * A value is computed as soon as the last range on which it depends is open, so invariant work is
 * hoisted by construction and nothing is recomputed. A REDUCE becomes
 *
 *      ACC(init) · RANGE... · body · ASSIGN(acc, op(acc, value)) · END...
 *
 * at that moment, and its uses read the ACC. A STAGE becomes loops that store to its memory; shared
 * memory is between two barriers, the first only if loops around it store it again. So an
 * accumulator is always initialized outside its own loops and inside every loop that its value
 * depends on; ir/verify_linear.c checks it again.
 *
 * Lanes (the inner ranges of a register tile) are loops, too, but the innermost ones wherever they
 * are needed: a REDUCE that depends on lanes does not wait for them to open. It keeps one
 * accumulator per lane and opens the lanes inside its own loops:
 *
 *      ACC(init, lane) · RANGE k · RANGE lane · body · ASSIGN · END lane · END k ... RANGE lane ·
 *      STORE · END lane
 */
#include "passes/analysis/linear.h"
#include "passes/analysis/matrix.h"
#include "ir/device_ops.h"

void linear_push(struct linear *l, struct uop *u)
{
    SCRATCH_PUSH(l->t, l->program, l->nprogram, l->cap, u);
}

uint64_t linear_bit(struct linear *l, const struct uop *range)
{
    uintptr_t b = (uintptr_t)map_get(&l->bit, range);
    return b ? (uint64_t)1 << (b - 1) : 0;
}

static uint64_t deps_of(const struct linear *l, const struct uop *u)
{
    return l->deps[(uintptr_t)map_get(&l->place, u) - 1];
}

static uint64_t wait_of(const struct linear *l, const struct uop *u)
{
    return l->wait[(uintptr_t)map_get(&l->place, u) - 1];
}

/* The loops of the bands, if a band stores to the loaded memory: the value changes with each
 * band. */
static uint64_t bands_of(struct linear *l, const struct uop *load)
{
    uint64_t bits = 0;
    for (int j = 0; j < l->nbanded; j++) {
        const struct uop *store = l->banded[j];
        int first = store_first_range(store), nband = linear_count_bands(store);
        for (int k = first; k < first + nband && load->src[0] == store->src[0]; k++)
            bits |= linear_bit(l, store->src[k]);
    }
    return bits;
}

void linear_find_deps(struct linear *l)
{
    int nbit = 0;
    l->lanes = l->places = l->items = 0;
    for (int i = 0; i < l->n; i++)
        if (l->order[i]->op == OP_RANGE) {
            map_set(&l->bit, l->order[i], (void *)(uintptr_t)++nbit);
            if (range_is_grid(l->order[i]) || range_is_item(l->order[i]))
                l->places |= linear_bit(l, l->order[i]);
            if (range_is_item(l->order[i]))
                l->items |= linear_bit(l, l->order[i]);
            if (range_is_lane(l->order[i]))
                l->lanes |= linear_bit(l, l->order[i]);
        }
    if (nbit > 64)
        TGC_BUG(l->t, "a kernel with %d ranges", nbit);
    for (int i = 0; i < l->n; i++) {
        struct uop *u = l->order[i];
        map_set(&l->place, u, (void *)(uintptr_t)(i + 1));
        for (int k = 0; k < u->nsrc; k++)
            l->deps[i] |= deps_of(l, u->src[k]);
        l->deps[i] |= linear_bit(l, u);
        if (u->op == OP_REDUCE || u->op == OP_STAGE)
            for (int k = 1; k < u->nsrc; k++)
                l->deps[i] &= ~linear_bit(l, u->src[k]);
        /* a load of memory that a nest stores: must not be hoisted */
        for (int j = 0; j < l->nstore && u->op == OP_LOAD; j++)
            for (int k = 3; k < l->store[j]->nsrc && u->src[0] == l->store[j]->src[0]; k++)
                if (l->store[j]->src[k]->op == OP_RANGE)
                    l->deps[i] |= linear_bit(l, l->store[j]->src[k]);
        if (u->op == OP_LOAD)
            l->deps[i] |= bands_of(l, u);
        if (u->op == OP_LOAD && uop_buffer_of(u->src[0])->scratch.is_register)
            l->deps[i] |= l->items;      /* each thread has its own, which another nest may
                                          * overwrite */
        if (u->op == OP_REDUCE && range_is_item(u->src[u->nsrc - 1]))
            l->deps[i] |= l->items;      /* threads combine it by shuffles: so its users wait for
                                          * all threads */
        l->wait[i] = u->op == OP_REDUCE ? l->deps[i] & ~l->lanes : l->deps[i];
        if (u->op == OP_REDUCE && u->src[0]->op == OP_MATRIX)
            l->wait[i] |= l->items;      /* all threads of the subgroup compute it together */
    }
}

/* The uops that the roots need without those in the loops of a REDUCE or STAGE: where lanes open
 * again, only these are recomputed. */
struct linear_part linear_outside(struct linear *l, struct uop *const *root, int nroot)
{
    struct linear_part all = {0}, p = {0};
    all.u = uop_toposort(l->t, root, nroot, &all.n);
    p.u = scratch_array(l->t, (size_t)all.n, sizeof *p.u);
    bool *needed = scratch_array(l->t, (size_t)l->n, sizeof *needed);
    for (int k = 0; k < nroot; k++)
        needed[(uintptr_t)map_get(&l->place, root[k]) - 1] = true;
    for (int i = all.n - 1; i >= 0; i--) {
        const struct uop *u = all.u[i];
        bool inner = u->op == OP_REDUCE || u->op == OP_STAGE;
        if (!needed[(uintptr_t)map_get(&l->place, u) - 1])
            continue;
        for (int k = 0; k < u->nsrc && !inner; k++)
            needed[(uintptr_t)map_get(&l->place, u->src[k]) - 1] = true;
    }
    for (int i = 0; i < all.n; i++)
        if (needed[(uintptr_t)map_get(&l->place, all.u[i]) - 1])
            p.u[p.n++] = all.u[i];
    return p;
}

struct linear_part linear_under(struct linear *l, struct uop *const *root, int nroot)
{
    struct linear_part p = {0};
    p.u = uop_toposort(l->t, root, nroot, &p.n);
    return p;
}

static void count_flop(struct linear *l, const struct uop *u)
{
    if (op_is_elementwise(u->op) && (dtype_is_float(u->dtype) || u->dtype == DTYPE_I32) &&
        u->op != OP_CAST && u->op != OP_BITCAST && u->op != OP_WHERE)
        l->flop += l->trips;
}

struct uop *linear_made(struct linear *l, const struct uop *u)
{
    struct uop *m = map_get(&l->made, u);
    if (!m)
        TGC_BUG(l->t, "%s is used before it is computed", op_name(u->op));
    return m;
}

/* Iterations of a range, at their upper bound; threads counted by a loop of their own count
 * once. */
static double iterations_of(struct linear *l, const struct uop *r)
{
    bool counted = range_is_of_block(r) && (l->open & l->items);
    return counted ? 1 : r->src[0]->vmax > 0 ? (double)r->src[0]->vmax : 0;
}

void linear_open(struct linear *l, struct uop *r, const struct linear_part *part)
{
    linear_push(l, r);
    map_set(&l->made, r, r);
    l->open |= linear_bit(l, r);
    l->trips *= iterations_of(l, r);
    linear_emit(l, linear_bit(l, r), part);
}

/* Closes the range and forgets values computed inside. */
void linear_close(struct linear *l, struct uop *r)
{
    uint64_t bit = linear_bit(l, r);
    linear_push(l, uop_intern(l->t, OP_END, DTYPE_VOID, &r, 1, (union arg){0}));
    for (int i = 0; i < l->n; i++)
        if (l->wait[i] & bit)
            map_set(&l->made, l->order[i], NULL);
    l->open &= ~bit;
    if (iterations_of(l, r) > 0)
        l->trips /= iterations_of(l, r);
}

union scalar reduce_identity(enum op op, enum dtype d)
{
    bool f = dtype_is_float(d);
    union scalar v = {0};
    switch (op) {
    case OP_MUL: case OP_AND:
        if (f)
            v.f = 1;
        else
            v.i = op == OP_AND && d != DTYPE_BOOL ? -1 : 1;
        break;
    case OP_MAX: case OP_MIN:
        if (f)
            v.f = op == OP_MAX ? -__builtin_inf() : __builtin_inf();
        else if (d == DTYPE_U64)
            v.i = op == OP_MAX ? 0 : -1;
        else
            v.i = op == OP_MAX ? dtype_min(d) : dtype_max(d);
        break;
    default:
        break;
    }
    return v;
}

/* The lanes among `bits`, outermost first; returns their number. */
static int lanes_in(struct linear *l, uint64_t bits, struct uop **lane)
{
    int n = 0;
    for (int k = 2; k < l->nest->nsrc; k++)
        if (l->nest->src[k]->op == OP_RANGE && (linear_bit(l, l->nest->src[k]) & bits & l->lanes))
            lane[n++] = l->nest->src[k];
    return n;
}

/* Whether the sum's loop is over threads, each of which has its own terms. */
static bool is_of_threads(const struct uop *r) { return range_is_of_block(r) || range_is_item(r); }

/* Combines partial sums by shuffles: over all threads of the block, or over those that differ in
 * one of the nest's items. */
static void emit_exchange(struct linear *l, const struct uop *reduce, struct uop *acc,
                          const struct uop *thread)
{
    enum op op = REDUCE_OP(reduce->arg.i);
    int64_t inner = 1, n = thread->src[0]->arg.i;
    for (int k = l->nest->nsrc - 1; range_is_item(thread) && l->nest->src[k] != thread; k--)
        inner *= range_is_item(l->nest->src[k]) ? l->nest->src[k]->src[0]->arg.i : 1;
    for (int64_t m = inner; m < inner * n; m *= 2)
        linear_push(l, uop_intern(l->t, OP_SHUFFLE, reduce->dtype, &acc, 1,
                                  (union arg){.i = ARG_PACK(SHUFFLE, op, m)}));
}

/* Adds one term to acc, for the lanes that are open, or all terms of a subgroup's matrix
 * product. */
static void emit_term(struct linear *l, struct uop *u, struct uop *acc)
{
    struct tgc *t = l->t;
    struct uop *value = u->src[0], *src[3] = {acc};
    if (value->op == OP_MATRIX) {
        const struct matrix_row *row = matrix_row(MATRIX_ROW(value->arg.i));
        for (int k = 0; k < 2; k++)
            src[1 + k] = linear_made(l, value->src[k]);
        linear_push(l, uop_intern(t, OP_MATRIX, u->dtype, src, 3, value->arg));
        l->flop += 2 * l->trips * matrix_elements(row, MATRIX_SUM) * row->size[MATRIX_K];
        return;
    }
    src[1] = linear_made(l, value);
    struct uop *sum = uop_intern(t, REDUCE_OP(u->arg.i), u->dtype, src, 2, (union arg){0});
    linear_push(l, sum);
    count_flop(l, sum);
    src[1] = sum;
    linear_push(l, uop_intern(t, OP_ASSIGN, u->dtype, src, 2, (union arg){0}));
}

/* The value that the nest adds to a subgroup's matrix product u, if it is that alone and in
 * registers: the product then accumulates onto it. NULL: there is none. */
static struct uop *begin_of(const struct linear *l, const struct uop *u)
{
    struct uop *value = l->nest->op == OP_STORE ? l->nest->src[2] : NULL;
    if (!value || value->op != OP_ADD || u->src[0]->op != OP_MATRIX ||
        (value->src[0] != u) == (value->src[1] != u))
        return NULL;
    struct uop *begin = value->src[value->src[0] == u];
    int n;
    struct uop **order = uop_toposort(l->t, &begin, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE ||
            (order[i]->op == OP_LOAD && !uop_buffer_of(order[i]->src[0])->scratch.is_register))
            return NULL;
    return begin;
}

/* Initializes each lane's accumulator with its own value. */
static void emit_begin(struct linear *l, struct uop *acc, struct uop *begin,
                       struct uop *const *lane, int nlane)
{
    struct linear_part part = linear_under(l, &begin, 1);
    linear_emit(l, 0, &part);
    for (int k = 0; k < nlane; k++)
        linear_open(l, lane[k], &part);
    struct uop *src[2] = {acc, linear_made(l, begin)};
    linear_push(l, uop_intern(l->t, OP_ASSIGN, acc->dtype, src, 2, (union arg){0}));
    for (int k = nlane - 1; k >= 0; k--)
        linear_close(l, lane[k]);
}

static void emit_reduce(struct linear *l, struct uop *u)
{
    struct tgc *t = l->t;
    enum op op = REDUCE_OP(u->arg.i);
    struct uop *acc_src[MAX_RANK + 1] = {uop_const(t, u->dtype, reduce_identity(op, u->dtype))};
    int nlane = lanes_in(l, deps_of(l, u) & ~l->open, acc_src + 1);
    struct uop *acc = uop_intern(t, OP_ACC, u->dtype, acc_src, 1 + nlane,
                                 (union arg){.i = l->next_acc++});
    uop_set_origin(t, acc, u);
    linear_push(l, acc);
    struct uop *begin = begin_of(l, u);
    if (begin)
        emit_begin(l, acc, begin, acc_src + 1, nlane);
    struct linear_part body = linear_under(l, u->src, 1);
    double trips = l->trips;
    for (int k = 1; k < u->nsrc; k++)
        if (!range_is_item(u->src[k]))
            linear_open(l, u->src[k], &body);
    struct linear_part inside = linear_outside(l, &u->src[0], 1);
    while (nlane > 0 && range_is(acc_src[nlane], AXIS_ELEMENT) && u->src[0]->op == OP_MATRIX)
        nlane--;                     /* for all elements at once */
    for (int k = 1; k <= nlane; k++)
        linear_open(l, acc_src[k], &inside);
    emit_term(l, u, acc);
    for (int k = nlane; k >= 1; k--)
        linear_close(l, acc_src[k]);
    for (int k = u->nsrc - 1; k >= 1; k--)
        if (!range_is_item(u->src[k]))
            linear_close(l, u->src[k]);
    struct linear_part none = {0};
    bool exchanged = false;
    for (int k = 1; k < u->nsrc; k++)
        exchanged |= is_of_threads(u->src[k]);
    for (int k = 1; k <= nlane && exchanged; k++)
        linear_open(l, acc_src[k], &none);
    for (int k = u->nsrc - 1; k >= 1; k--)
        if (is_of_threads(u->src[k]))
            emit_exchange(l, u, acc, u->src[k]);
    for (int k = nlane; k >= 1 && exchanged; k--)
        linear_close(l, acc_src[k]);
    l->trips = trips;
    map_set(&l->made, u, acc);
}

void linear_barrier(struct linear *l)
{
    linear_push(l,
                uop_intern(l->t, OP_BARRIER, DTYPE_VOID, NULL, 0, (union arg){.i = l->next_acc++}));
}

/* A barrier before the block's threads store to shared memory, needed if an outer loop's last
 * iteration read it. Consecutive copies share two barriers: the barrier after the first copy moves
 * after the second, unless that reads the first. */
static void emit_barrier_before(struct linear *l, struct uop *stage)
{
    int n, at = l->nprogram - 1;
    while (at >= 0 && op_is_elementwise(l->program[at]->op))
        at--;
    if (at < 0 || l->program[at]->op != OP_BARRIER) {
        if (l->open & ~l->places)
            linear_barrier(l);
        return;
    }
    struct uop **order = uop_toposort(l->t, &stage->src[0], 1, &n);
    for (int i = 0; i < n; i++)
        if ((order[i]->op == OP_STAGE || order[i]->op == OP_BUFFER) &&
            buffer_space(order[i]->arg.p) == SPACE_SHARED)
            return;
    for (; at + 1 < l->nprogram; at++)
        l->program[at] = l->program[at + 1];
    l->nprogram--;
}

static void emit_stage(struct linear *l, struct uop *u)
{
    struct tgc *t = l->t;
    struct uop *buffer = uop_buffer(t, (struct buffer *)(uintptr_t)u->arg.p);
    double trips = l->trips;
    struct uop *outer = l->nest;
    struct linear_part body = linear_under(l, u->src, 2), outside = linear_outside(l, u->src, 2);
    bool local = buffer_space(u->arg.p) == SPACE_SHARED;
    if (local)
        emit_barrier_before(l, u);
    l->nest = u;
    linear_emit(l, 0, &body); /* sums over its lanes, if it has no other loops */
    for (int k = 2; k < u->nsrc; k++)
        linear_open(l, u->src[k], range_is_lane(u->src[k]) ? &outside : &body);
    struct uop *src[3] = {buffer, linear_made(l, u->src[1]), linear_made(l, u->src[0])};
    linear_push(l, uop_intern(t, OP_STORE, u->dtype, src, 3, (union arg){0}));
    for (int k = u->nsrc - 1; k >= 2; k--)
        linear_close(l, u->src[k]);
    if (local)
        linear_barrier(l);
    l->nest = outer;
    l->trips = trips;
    map_set(&l->made, u, buffer);
}

static void emit_value(struct linear *l, struct uop *u)
{
    if (op_class(u->op) == CLASS_LEAF) {
        map_set(&l->made, u, u);
        return;
    }
    if (u->op == OP_REDUCE) {
        emit_reduce(l, u);
        return;
    }
    if (u->op == OP_STAGE) {
        emit_stage(l, u);
        return;
    }
    for (int k = 0; k < 2 && u->op == OP_ADD && l->nest->op == OP_STORE && u == l->nest->src[2];
         k++)
        if (u->src[k]->op == OP_REDUCE && begin_of(l, u->src[k])) {
            map_set(&l->made, u, linear_made(l, u->src[k]));
            return;
        }
    struct uop **src = scratch_array(l->t, (size_t)u->nsrc, sizeof *src);
    for (int k = 0; k < u->nsrc; k++)
        src[k] = linear_made(l, u->src[k]);
    struct uop *v = uop_intern(l->t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(l->t, v, u);
    linear_push(l, v);
    count_flop(l, v);
    map_set(&l->made, u, v);
}

/* Whether a sum has lanes of a stage that is not stored yet. */
static bool waits_for_stage(struct linear *l, const struct uop *reduce)
{
    uint64_t lanes = deps_of(l, reduce) & l->lanes & ~l->open;
    for (int k = 2; k < l->nest->nsrc && lanes; k++)
        lanes &= ~linear_bit(l, l->nest->src[k]);
    return lanes != 0;
}

/* Computes everything in `part` that became computable when `newly` opened. 0: what depends on no
 * range. */
void linear_emit(struct linear *l, uint64_t newly, const struct linear_part *part)
{
    for (int i = 0; i < part->n; i++) {
        struct uop *u = part->u[i];
        uint64_t wait = wait_of(l, u);
        if ((wait & ~l->open) || (newly && !(wait & newly)) || map_get(&l->made, u) ||
            u->op == OP_RANGE || (u->op == OP_REDUCE && waits_for_stage(l, u)))
            continue;
        emit_value(l, u);
    }
}
