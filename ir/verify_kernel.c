/* verify_kernel.c - checks the invariants of a kernel's AST at every stage: lowered, tiled, shared
 * by threads.
 *
 *   - The root is a SINK of STOREs; below it all values are scalars: constants, symbols, ranges,
 *     elementwise ops, LOADs of memory or of a STAGE, REDUCEs and STAGEs.
 *   - A range is bound by the REDUCE, STAGE or STORE that lists it, and is used only below it. A
 *     loop's size may depend on the loops around it.
 *   - A STORE's bands come first, then loops, then its lanes; a REDUCE lists no lanes of its own.
 *   - Offsets are i64, gates are bool, values have the dtype of the memory.
 *   - Threads of a block share loops only of stores and of local STAGEs. Each of these then has one
 *     such loop, so that no two threads store the same element. A local STAGE depends on no loop
 *     but those of its store that are outside the block's: all threads reach its barriers.
 *   - If iterations are threads of the block, each store has the same number of them, and stores
 *     share no other loop. A local STAGE may then depend on the loops of a sum.
 *   - All stores have the same number of loops over the grid; none of these is a lane.
 *   - Memory that all blocks share is read only by stores with a TICKET for it. Only TICKETs
 *     access its counters.
 *   - A STAGE's memory is scratch of its own. Scratch that one store passes on to another is read
 *     after that store, in the same bands.
 */
#include <string.h>

#include "ir/verify.h"
#include "ir/device_ops.h"

/* A set of ranges, as bits by their position in the AST. */
struct kernel_verifier {
    struct verifier v;
    struct uop **order;
    int n;
    struct uop_map place; /* uop -> index in order[] + 1 */
    uint64_t *free;       /* nword words a uop: its free ranges */
    int *depth;           /* nesting of REDUCEs and STAGEs */
    size_t nword;
    struct uop_map bit; /* range -> its bit + 1 */
};

/* Sources of a store or stage, and of a sum: what passes have room for. */
enum { NESTED_MAX = 64, LOOPS_MAX = 60, SUMMED_MAX = MAX_RANK + 4 };

static uint64_t *free_of(const struct kernel_verifier *k, const struct uop *u)
{
    return k->free + k->nword * ((uintptr_t)map_get(&k->place, u) - 1);
}

static void set_range(const struct kernel_verifier *k, uint64_t *set, const struct uop *r, bool in)
{
    uintptr_t bit = (uintptr_t)map_get(&k->bit, r) - 1;
    uint64_t one = (uint64_t)1 << bit % 64;
    set[bit / 64] = in ? set[bit / 64] | one : set[bit / 64] & ~one;
}

static int first_range_of(const struct uop *u)
{
    if (u->op == OP_STORE)
        return u->nsrc > 3 && u->src[3]->op != OP_RANGE ? 4 : 3;
    return u->op == OP_STAGE ? 2 : 1;
}

static bool is_vector(const struct uop *u) { return u->lanes != 1 || u->ndim != 0; }

/* Removes the ranges that u lists from the set, innermost first, since a loop's size is computed
 * outside it. What remains is free in u. */
static void bind(struct kernel_verifier *k, const struct uop *u, uint64_t *set)
{
    for (int i = u->nsrc - 1; i >= first_range_of(u); i--) {
        const struct uop *r = u->src[i];
        require(&k->v, u, r->op == OP_RANGE, "lists what is no range");
        for (int j = first_range_of(u); j < i; j++)
            require(&k->v, u, u->src[j] != r, "lists a range twice");
        set_range(k, set, r, false);
        const uint64_t *size = free_of(k, r->src[0]);
        for (size_t w = 0; w < k->nword; w++)
            set[w] |= size[w];
    }
}

static void find_free(struct kernel_verifier *k, int i)
{
    const struct uop *u = k->order[i];
    bool binds = u->op == OP_REDUCE || u->op == OP_STAGE || u->op == OP_STORE;
    uint64_t *set = k->free + k->nword * (size_t)i;
    int nvalue = binds ? first_range_of(u) : u->nsrc;
    for (int j = 0; j < u->nsrc; j++) {
        int below = k->depth[(uintptr_t)map_get(&k->place, u->src[j]) - 1];
        k->depth[i] = below > k->depth[i] ? below : k->depth[i];
    }
    k->depth[i] += u->op == OP_REDUCE || u->op == OP_STAGE;
    require(&k->v, u, k->depth[i] <= NESTED_MAX, "sums and stages inside of too many others");
    for (int j = 0; j < nvalue && u->op != OP_SINK; j++) {
        const uint64_t *of = free_of(k, u->src[j]);
        for (size_t w = 0; w < k->nword; w++)
            set[w] |= of[w];
    }
    if (binds)
        bind(k, u, set);
    if (u->op == OP_RANGE)
        set_range(k, set, u, true);
    for (size_t w = 0; w < k->nword && u->op == OP_STORE; w++)
        require(&k->v, u, set[w] == 0, "depends on a range that nothing around it binds");
}

/* ------------------------------------------------------------------------------------- each uop */

static void check_memory(const struct kernel_verifier *k, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    bool load = u->op == OP_LOAD;
    require(&k->v, u, b != NULL, "accesses what is no memory");
    require(&k->v, u, !b->scratch.counts, "accesses counters, which tickets count");
    require(&k->v, u, verify_is_size(u->src[1]), "its offset is no i64 scalar");
    require(&k->v, u, u->arg.i == 0, "a vector before there are any");
    if (load) {
        require(&k->v, u, u->nsrc == 2 || u->nsrc == 4, "wrong number of sources");
        require(&k->v, u, u->dtype == b->dtype, "reads another dtype than is there");
    } else {
        require(&k->v, u, u->src[0]->op == OP_BUFFER, "stores into a stage");
        require(&k->v, u, u->src[2]->dtype == b->dtype && !is_vector(u->src[2]),
                "stores another dtype than is there");
        require(&k->v, u, b->kind != BUFFER_WEIGHT && b->kind != BUFFER_INPUT,
                "writes to an input or a weight");
    }
    const struct uop *gate = load && u->nsrc == 4              ? u->src[2]
                             : !load && first_range_of(u) == 4 ? u->src[3]
                                                               : NULL;
    require(&k->v, u, !gate || (gate->dtype == DTYPE_BOOL && !is_vector(gate)),
            "its gate is no bool");
    require(&k->v, u, !load || u->nsrc == 2 || u->src[3]->dtype == u->dtype,
            "what it gives outside is of another dtype");
}

/* Bands, then loops, then lanes. */
static void check_order(const struct kernel_verifier *k, const struct uop *u)
{
    bool loop = false, lane = false;
    for (int i = first_range_of(u); i < u->nsrc; i++) {
        const struct uop *r = u->src[i];
        require(&k->v, u, r->op == OP_RANGE, "lists what is no range");
        require(&k->v, u, i < LOOPS_MAX, "too many loops");
        require(&k->v, u, !lane || range_is_lane(r), "a loop inside of its lanes");
        require(&k->v, u, !loop || !range_is(r, AXIS_BAND), "a band inside of a loop");
        lane |= range_is_lane(r);
        loop |= !range_is(r, AXIS_BAND);
    }
}

static void check_uop(const struct kernel_verifier *k, const struct uop *u)
{
    const struct buffer *b;
    require(&k->v, u, op_nsrc(u->op) < 0 || op_nsrc(u->op) == u->nsrc, "wrong number of sources");
    require(&k->v, u, arg_is_valid(u->op, u->arg.i), "an argument that it may not have");
    verify_bounds(&k->v, u);
    for (int i = 0; i < u->nsrc; i++) {
        bool memory = op_takes_memory(u->op, i);
        require(&k->v, u, memory || u->op == OP_SINK || !is_vector(u->src[i]),
                "an operand is no scalar");
        require(&k->v, u, memory || (u->src[i]->op != OP_STAGE && u->src[i]->op != OP_BUFFER),
                "computes with memory");
        require(&k->v, u, u->op == OP_SINK || u->src[i]->op != OP_STORE, "uses a store");
    }
    switch (u->op) {
    case OP_CONST:
    case OP_VAR:
    case OP_BUFFER:
        return;
    case OP_RANGE:
        require(&k->v, u, verify_is_size(u->src[0]), "its size is no i64 scalar");
        require(&k->v, u, !range_is_lane(u) || u->src[0]->op == OP_CONST,
                "a lane whose size is not known");
        require(&k->v, u, !range_is(u, AXIS_ORDER) || RANGE_WORKER(u->arg.i) == WORKER_EACH,
                "threads share a loop whose turns may store at the same place");
        return;
    case OP_LOAD:
        check_memory(k, u);
        return;
    case OP_STORE:
        require(&k->v, u, u->nsrc >= 3, "wrong number of sources");
        check_memory(k, u);
        check_order(k, u);
        return;
    case OP_REDUCE:
        require(&k->v, u, u->nsrc <= SUMMED_MAX, "too many loops");
        require(&k->v, u,
                u->nsrc > 1 && verify_is_reduction(REDUCE_OP(u->arg.i)),
                "no reduction over ranges");
        require(&k->v, u, u->dtype == u->src[0]->dtype, "a sum changes the dtype");
        for (int i = 1; i < u->nsrc; i++)
            require(&k->v, u, u->src[i]->op == OP_RANGE && !range_is_lane(u->src[i]),
                    "sums over a lane, or over no range");
        return;
    case OP_STAGE:
        b = u->arg.p;
        require(&k->v, u, u->nsrc >= 2 && b->kind == BUFFER_SCRATCH && b->dtype == u->dtype,
                "its memory is no scratch of its dtype");
        require(&k->v, u, u->src[0]->dtype == u->dtype && verify_is_size(u->src[1]),
                "its value or its offset is of another dtype");
        check_order(k, u);
        return;
    case OP_SINK:
        return;
    case OP_TICKET:
        verify_ticket(&k->v, u);
        require(&k->v, u, verify_is_size(u->src[TICKET_NUMBER]),
                "its counter's number is no i64 scalar");
        return;
    case OP_STACK:
        verify_stack(&k->v, u);
        require(&k->v, u, u->ndim == 0, "no scalar");
        return;
    default:
        require(&k->v, u, op_is_elementwise(u->op) && u->ndim == 0, "no op of a kernel's AST");
        verify_elementwise(&k->v, u);
    }
}

/* -------------------------------------------------------------------------- what a block shares */

static int count_block_loops(const struct uop *u)
{
    int n = 0;
    for (int i = first_range_of(u); i < u->nsrc; i++)
        n += range_is_of_block(u->src[i]);
    return n;
}

/* How many loops of the worker the store has; *turns: the product of their sizes, 0: not known. */
static int count_workers(const struct uop *store, enum worker w, int64_t *turns)
{
    int count = 0;
    *turns = 1;
    for (int i = first_range_of(store); i < store->nsrc; i++)
        if (RANGE_WORKER(store->src[i]->arg.i) == w) {
            const struct uop *size = store->src[i]->src[0];
            *turns = size->op == OP_CONST ? sat_mul(*turns, size->arg.i) : 0;
            count++;
        }
    return count;
}

/* Has the set a range whose iterations differ between threads? */
static bool has_thread_ranges(const struct kernel_verifier *k, const uint64_t *set)
{
    for (int i = 0; i < k->n; i++) {
        const struct uop *r = k->order[i];
        if (r->op != OP_RANGE ||
            !(range_is_item(r) || range_is_of_block(r) || range_is_lane(r)))
            continue;
        uintptr_t bit = (uintptr_t)map_get(&k->bit, r) - 1;
        if (set[bit / 64] >> bit % 64 & 1)
            return true;
    }
    return false;
}

static void check_stage_of(const struct kernel_verifier *k, const struct uop *store,
                           const struct uop *stage)
{
    int64_t threads;
    bool items = count_workers(store, WORKER_ITEM, &threads) > 0;

    bool local = buffer_space(stage->arg.p) == SPACE_SHARED;
    uint64_t *left = scratch_array(k->v.t, k->nword, sizeof *left);
    ARRAY_COPY(left, free_of(k, stage), k->nword);
    require(&k->v, stage, count_block_loops(stage) == local,
            local ? "no loop, or several, of what is stored in shared memory are a block's"
                  : "a block's threads share what each of them needs");
    for (int i = first_range_of(store); i < store->nsrc && local; i++) {
        if (range_is_of_block(store->src[i]))
            break;
        set_range(k, left, store->src[i], false);
    }
    require(&k->v, stage, !local || !items || !has_thread_ranges(k, free_of(k, stage)),
            "a block's threads come to its barrier at other times");
    for (size_t w = 0; w < k->nword && local && !items; w++)
        require(&k->v, stage, left[w] == 0, "a block's threads come to its barrier at other times");
}

/* A sum whose terms a block's threads share and exchange: all of them, a power of
 * two, at the same time. */
static void check_shared_sum(const struct kernel_verifier *k, const struct uop *sum,
                             int64_t threads)
{
    int64_t n = 0;
    for (int i = 1; i < sum->nsrc; i++)
        if (range_is_of_block(sum->src[i]))
            n = sum->src[i]->src[0]->op == OP_CONST ? sum->src[i]->src[0]->arg.i : 0;
    require(&k->v, sum, count_block_loops(sum) == 1 && n == threads && n > 1 && !(n & (n - 1)),
            "a sum is shared by others than the block's threads, a power of two");
    require(&k->v, sum, sum->dtype == DTYPE_F32, "what threads exchange is f32");
    require(&k->v, sum, !has_thread_ranges(k, free_of(k, sum)),
            "a block's threads come to its exchange at other times");
}

static int count_items(const struct uop *sum)
{
    int n = 0;
    for (int i = 1; i < sum->nsrc; i++)
        n += range_is_item(sum->src[i]);
    return n;
}

/* A sum over threads of the block that are the store's own: they exchange it where nothing is but
 * the store's loops. */
static void check_exchanged(const struct kernel_verifier *k, const struct uop *store,
                            const struct uop *sum)
{
    require(&k->v, sum, sum->dtype == DTYPE_F32, "what threads exchange is f32");
    for (int i = 1; i < sum->nsrc; i++) {
        int64_t n = sum->src[i]->src[0]->op == OP_CONST ? sum->src[i]->src[0]->arg.i : 0;
        bool own = !range_is_item(sum->src[i]);
        for (int j = first_range_of(store); j < store->nsrc && !own; j++)
            own = store->src[j] == sum->src[i] && n > 0 && !(n & (n - 1));
        require(&k->v, sum, own,
                "a sum over threads that are none of the store's, or no power of two");
        require(&k->v, sum, range_is_item(sum->src[i]) || i < 2 || !range_is_item(sum->src[i - 1]),
                "a loop inside of a sum's threads");
    }
}

/* Grids, and threads that are iterations. */
static void check_workers(const struct kernel_verifier *k, const struct uop *sink)
{
    int64_t places, threads, first = 0;
    int ngrid = sink->nsrc ? count_workers(sink->src[0], WORKER_GRID, &places) : 0;
    for (int i = 0; i < sink->nsrc; i++) {
        const struct uop *store = sink->src[i];
        int n = count_workers(store, WORKER_GRID, &places), lane = 0;
        for (int j = first_range_of(store); j < store->nsrc; j++)
            lane += range_is_lane(store->src[j]) && RANGE_WORKER(store->src[j]->arg.i);
        require(&k->v, store, n == ngrid && n <= GRID_RANK && !lane,
                "another number of loops are over the grid, or a lane is");
        require(&k->v, store, !n || !count_workers(store, WORKER_TEAM, &places),
                "a loop is shared by threads beside the grid");
        n = count_workers(store, WORKER_ITEM, &threads) ? 1 : 0;
        threads = n ? threads : -1;
        first = i ? first : threads;
        require(&k->v, store, threads == first && threads != 0,
                "the block has another number of threads");
    }
}


/* Each element of what a block's threads store is one thread's, but of registers, which each of
 * them has: its offset or its condition tells threads apart. */
static void check_stored(const struct kernel_verifier *k, struct uop *store)
{
    for (int i = first_range_of(store); i < store->nsrc; i++) {
        bool apart =
            !range_is_item(store->src[i]) || uop_buffer_of(store->src[0])->scratch.is_register;
        for (int j = 1; j < first_range_of(store) && !apart; j++) {
            uintptr_t bit = (uintptr_t)map_get(&k->bit, store->src[i]) - 1;
            apart = j != 2 && (free_of(k, store->src[j])[bit / 64] >> bit % 64 & 1);
        }
        require(&k->v, store, apart, "several threads of a block store the same element");
    }
}

/* needs: the free ranges of all uops. */
static void check_block(const struct kernel_verifier *k, const struct uop *sink)
{
    bool any = false;
    for (int i = 0; i < k->n; i++)
        any |= range_is_of_block(k->order[i]) || range_is_item(k->order[i]) ||
               ((k->order[i]->op == OP_STAGE || k->order[i]->op == OP_BUFFER) &&
                buffer_space(k->order[i]->arg.p) == SPACE_SHARED);
    for (int i = 0; i < sink->nsrc && any; i++) {
        int n;
        struct mem_mark mark = scratch_mark(k->v.t);
        struct uop *store = sink->src[i], **order = uop_toposort(k->v.t, &store, 1, &n);
        int64_t threads;
        bool items = count_workers(store, WORKER_ITEM, &threads) > 0;
        require(&k->v, store, count_block_loops(store) == !items,
                "no loop, or several, of a store are a block's");
        const struct buffer *to = uop_buffer_of(store->src[0]);
        enum space space = buffer_space(to);
        require(&k->v, store,
                space == SPACE_GLOBAL ||
                    ((space == SPACE_SHARED || to->scratch.is_register) && items),
                "a block's threads pass scratch on that is each thread's own");
        check_stored(k, store);
        for (int j = 0; j < n; j++)
            if (order[j]->op == OP_STAGE)
                check_stage_of(k, store, order[j]);
            else if (order[j]->op == OP_REDUCE && count_block_loops(order[j]))
                check_shared_sum(k, order[j], items ? threads : 0);
            else if (order[j]->op == OP_REDUCE && count_items(order[j]))
                check_exchanged(k, store, order[j]);
        scratch_release(k->v.t, mark);
    }
}

/* -------------------------------------------------------------------------- what stores pass on */

static int count_bands_of(const struct uop *store)
{
    int first = first_range_of(store), n = 0;
    while (first + n < store->nsrc && range_is(store->src[first + n], AXIS_BAND))
        n++;
    return n;
}

/* Whether the stores are in the same loops over bands; without bands they follow each other. */
static bool in_same_band(const struct uop *a, const struct uop *b)
{
    int n = count_bands_of(a), m = count_bands_of(b);
    return n && m ? a->src[first_range_of(a)] == b->src[first_range_of(b)] : n == m;
}

/* Whether the store's condition has a TICKET that hands the memory over. */
static bool has_ticket(const struct kernel_verifier *k, struct uop *store, const struct uop *memory)
{
    int n = 0;
    struct uop **order =
        first_range_of(store) == 4 ? uop_toposort(k->v.t, &store->src[3], 1, &n) : NULL;
    bool found = false;
    for (int i = 0; i < n; i++)
        found |= order[i]->op == OP_TICKET && order[i]->src[TICKET_MEMORY] == memory;
    return found;
}

static void check_passed(const struct kernel_verifier *k, const struct uop *sink)
{
    for (int i = 0; i < sink->nsrc; i++) {
        int n;
        struct mem_mark mark = scratch_mark(k->v.t);
        struct uop *store = sink->src[i], **order = uop_toposort(k->v.t, &store, 1, &n);
        for (int j = 0; j < n; j++) {
            const struct uop *u = order[j];
            bool scratch = u->op == OP_LOAD && u->src[0]->op == OP_BUFFER &&
                           uop_buffer_of(u->src[0])->kind == BUFFER_SCRATCH,
                 stored = !scratch;
            for (int s = 0; s <= i && !stored; s++)
                stored = sink->src[s]->src[0] == u->src[0] && in_same_band(sink->src[s], store);
            require(&k->v, u, stored, "reads scratch that no store before it wrote");
            require(&k->v, u,
                    !scratch || uop_buffer_of(u->src[0])->scratch.space != SPACE_GLOBAL ||
                        has_ticket(k, store, u->src[0]),
                    "reads what other blocks store without a ticket");
        }
        scratch_release(k->v.t, mark);
    }
}

static bool verify_ast(struct verifier v, const struct uop *ast)
{
    struct tgc *t = v.t;
    struct mem_mark mark = scratch_mark(t);
    struct kernel_verifier k = {
        .v = v, .place = {.t = t, .scratch = true}, .bit = {.t = t, .scratch = true}};
    struct uop *root = (struct uop *)(uintptr_t)ast;
    uintptr_t nrange = 0;
    require(&v, ast, ast->op == OP_SINK && ast->nsrc > 0, "no SINK of stores");
    for (int i = 0; i < ast->nsrc; i++)
        require(&v, ast, ast->src[i]->op == OP_STORE, "what is sunk is no store");
    k.order = uop_toposort(t, &root, 1, &k.n);
    for (int i = 0; i < k.n; i++) {
        map_set(&k.place, k.order[i], (void *)(uintptr_t)(i + 1));
        if (k.order[i]->op == OP_RANGE)
            map_set(&k.bit, k.order[i], (void *)++nrange);
    }
    k.nword = nrange / 64 + 1;
    k.free = scratch_array(t, (size_t)k.n * k.nword, sizeof *k.free);
    k.depth = scratch_array(t, (size_t)k.n, sizeof *k.depth);
    for (int i = 0; i < k.n; i++) {
        check_uop(&k, k.order[i]);
        find_free(&k, i);
    }
    check_workers(&k, ast);
    check_block(&k, ast);
    check_passed(&k, ast);
    scratch_release(t, mark);
    return true;
}

bool kernel_verify(struct tgc *t, const struct uop *ast, const char *after_pass)
{
    return verify_ast((struct verifier){.t = t, .after = after_pass}, ast);
}

bool kernel_check(struct tgc *t, const struct uop *ast, struct violation *found)
{
    jmp_buf back;
    struct mem_mark mark = scratch_mark(t);
    if (setjmp(back)) {
        scratch_release(t, mark);
        return false;
    }
    return verify_ast((struct verifier){.t = t, .found = found, .back = &back}, ast);
}
