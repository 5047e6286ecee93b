/* grid.c - chooses a device's grid and blocks for a kernel.
 *
 *       for b  for y  for x                             thread (x, y) of the grid:  for b
 *
 * A device wants many threads, so loops whose iterations share no work become dimensions of the
 * grid, at most three. The innermost loop is dimension 0: adjacent threads access adjacent memory
 * (coalesced). Sums of products become blocks of tiles (grid_tile.c, grid_matrix.c). Rows whose
 * sums would keep few threads busy become blocks that share the sums (grid_rows.c). The order in
 * which an element's terms are added depends on the device's row in devices.def, not on the device.
 *
 * Some kernels are split along one loop instead, as on processors (thread.c): bands, those whose
 * scratch exceeds a thread's stack, and those whose nests have nothing to share. */
#include "passes/analysis/value.h"
#include "passes/kernel/grid.h"
#include "passes/kernel/grid_compare.h"

#include <string.h>

/* ------------------------------------------------------------------------------- lists of opts */

void list_begin(struct opt_list *l, struct tgc *t, const struct uop *ast, int store)
{
    const struct uop *s = ast->src[store];
    *l = (struct opt_list){.t = t, .store = store};
    for (int i = store_first_range(s); i < s->nsrc && !range_is_lane(s->src[i]); i++) {
        l->failed |= l->nloop == LOOPS_MAX;
        if (!l->failed)
            l->loop[l->nloop] = LOOP_GIVEN + l->nloop, l->nloop++;
    }
}

int list_position(const struct opt_list *l, int tag)
{
    for (int i = 0; i < l->nloop; i++)
        if (l->loop[i] == tag)
            return i;
    return -1;
}

void list_remove(struct opt_list *l, int tag)
{
    int at = list_position(l, tag);
    l->nloop -= at >= 0;
    for (int i = at; at >= 0 && i < l->nloop; i++)
        l->loop[i] = l->loop[i + 1];
}

struct opt *list_add(struct opt_list *l, enum opt_op op, int tag)
{
    int at = list_position(l, tag);
    if (l->n == LIST_MAX) {
        l->failed = true;
        return &l->opt[LIST_MAX];
    }
    l->opt[l->n] = (struct opt){.op = op, .store = l->store, .axis = at < 0 ? 0 : at};
    if (op == OPT_LANES)
        list_remove(l, tag);
    return &l->opt[l->n++];
}

/* Puts n loops in the place of the one at `at`. */
static void put_loops(struct opt_list *l, int at, const int *tag, int n)
{
    if (l->nloop + n - 1 > LOOPS_MAX) {
        l->failed = true;
        return;
    }
    for (int i = l->nloop - 1; i > at; i--)
        l->loop[i + n - 1] = l->loop[i];
    for (int i = 0; i < n; i++)
        l->loop[at + i] = tag[i];
    l->nloop += n - 1;
}

void list_cover(struct opt_list *l, int64_t size, int tag, const struct block_of *b)
{
    int64_t n = b->items * b->lanes;
    int at = list_position(l, tag),
        made[2] = {b->tag_blocks, b->items > 1 ? b->tag_items : b->tag_lanes},
        inner[2] = {b->lanes_inside ? b->tag_items : b->tag_lanes,
                    b->lanes_inside ? b->tag_lanes : b->tag_items};
    if (n < 2) {
        l->loop[at] = b->tag_blocks;
        return;
    }
    bool one = size > 0 && size <= n;
    list_add(l, OPT_COVER, tag)->n = n;
    put_loops(l, at, made + one, 2 - one);
    if (b->items == 1 || b->lanes == 1)
        return;
    list_add(l, OPT_DIVIDE, b->tag_items)->n = b->lanes_inside ? b->lanes : b->items;
    put_loops(l, at + !one, inner, 2);
}

void list_divide(struct opt_list *l, int tag, int64_t size, int64_t n, int outer)
{
    int loops[2] = {outer, tag};
    if (size == n)
        return;
    list_add(l, OPT_DIVIDE, tag)->n = n;
    put_loops(l, list_position(l, tag), loops, 2);
}

void list_order(struct opt_list *l, int tag, int to)
{
    int from = list_position(l, tag), by = from < to ? 1 : -1;
    list_add(l, OPT_ORDER, tag)->to = to;
    for (int i = from; i != to; i += by)
        l->loop[i] = l->loop[i + by];
    l->loop[to] = tag;
}

void list_flatten(struct opt_list *l, int at)
{
    list_add(l, OPT_FLATTEN, l->loop[at]);
    l->nloop--;
    for (int i = at + 1; i < l->nloop; i++)
        l->loop[i] = l->loop[i + 1];
}

int64_t list_take(struct opt_list *l, int64_t size, bool fixed, int64_t n, int tag,
                  enum opt_op worker)
{
    struct block_of block = {n, 1, tag, tag, LOOP_INNER + l->n, false};
    list_cover(l, fixed ? size : 0, tag, &block);
    list_add(l, worker, block.tag_items);
    return (size + n - 1) / n;
}

void list_lanes(struct opt_list *l, int tag, int64_t n, bool column)
{
    struct opt *o = n > 1 ? list_add(l, OPT_LANES, tag) : NULL;
    if (o)
        o->n = n, o->kind = AXIS_LANE, o->column = column;
}

void list_vector(struct opt_list *l, int tag, int64_t size, int64_t n)
{
    int at = list_position(l, tag);
    struct opt vector = {.op = OPT_LANES,
                         .store = l->store,
                         .axis = at,
                         .n = n,
                         .kind = AXIS_VECTOR,
                         .column = true};
    l->opt[l->n++] = vector;
    if (size <= n)
        list_remove(l, tag);
}

void list_grid(struct opt_list *l, const int *tag, const int64_t *size, int n)
{
    bool taken[LOOPS_MAX + 2] = {false};
    for (int d = 0; d < GRID_RANK; d++) {
        int most = -1;
        for (int i = 0; i < n; i++)
            if (!taken[i] && size[i] > 1 && list_position(l, tag[i]) >= 0 &&
                (most < 0 || size[i] > size[most]))
                most = i;
        if (most < 0)
            return;
        taken[most] = true;
        list_add(l, OPT_GRID, tag[most]);
    }
}

/* ----------------------------------------------------------------------------- what the grid is */

/* The grid loop of dimension d (0: the innermost); NULL: the store has fewer. */
static const struct uop *grid_loop(const struct uop *store, int d)
{
    for (int i = store->nsrc - 1; i >= store_first_range(store); i--)
        if (range_is_grid(store->src[i]) && d-- == 0)
            return store->src[i];
    return NULL;
}

/* Chooses the block size: threads along the first dimensions, until there are a few subgroups.
 * Without shared memory (--no-locals) the driver chooses. */
static void choose_groups(struct tgc *t, struct kernel *k)
{
    enum { WAVES = 2 };
    int left = t->device && !t->no_locals ? t->device->wave * WAVES : 1;
    for (int d = 0; d < k->ngrid; d++) {
        int64_t most = k->grid[d]->vmax;
        for (k->group[d] = 1; k->group[d] < left && k->group[d] < most;)
            k->group[d] *= 2;
        left /= k->group[d];
    }
}

void kernel_note_grid(struct tgc *t, struct kernel *k)
{
    const struct uop *r;
    for (k->ngrid = 0; k->ngrid < GRID_RANK && grid_loop(k->ast->src[0], k->ngrid); k->ngrid++)
        for (int i = 0; i < k->ast->nsrc; i++) {
            r = grid_loop(k->ast->src[i], k->ngrid);
            k->grid[k->ngrid] = i ? sym_max(t, k->grid[k->ngrid], r->src[0]) : r->src[0];
        }
    k->is_shared |= k->ngrid > 0;
    choose_groups(t, k);
}

/* ---------------------------------------------------------------------------------- which loops */

bool grid_repeats(struct tgc *t, struct uop *store, const struct uop *r)
{
    int n;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int i = 0; i < n; i++)
        if ((order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE) &&
            !uop_depends_on(t, order[i], r))
            return true;
    return false;
}

/* Whether what a store loads, `lanes` elements at a time, fits a thread's registers. Straight-line
 * code holds all of it at once, as Winograd's transforms do; the loop of a sum holds one load. */
static bool vectors_are_kept(struct tgc *t, struct uop *store, int lanes)
{
    int n, loads = 0;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int i = 0; i < n; i++)
        loads += order[i]->op == OP_LOAD;
    return loads * lanes <= t->device->registers || value_contains(t, store, OP_REDUCE, OP_REDUCE);
}

/* The tag of the loop to vectorize by `lanes`; -1: none. Vectors must leave enough threads: one for
 * each lane of the device, or, if sums wait for loads, enough to hide latency. */
static int vector_tag(struct tgc *t, struct uop *store, int lanes)
{
    int at = grid_vector_loop(t, store, lanes), first = store_first_range(store);
    double threads = 1;
    for (int i = first; i < store->nsrc && at >= 0; i++)
        if (!grid_repeats(t, store, store->src[i]))
            threads *= (double)store->src[i]->src[0]->vmax;
    bool pays = at >= 0 && !grid_repeats(t, store, store->src[at]) &&
                vectors_are_kept(t, store, lanes) &&
                threads / lanes >= (value_contains(t, store, OP_REDUCE, OP_REDUCE)
                                        ? cost_full_threads(t->device)
                                        : (double)t->device->units * t->device->wave);
    return pays ? LOOP_GIVEN + at - first : -1;
}

/* Gives each iteration of the store's independent loops (or each vector of `lanes`) a thread of its
 * own. */
static void list_each(struct opt_list *l, struct tgc *t, const struct kernel *k, int store,
                      int lanes)
{
    struct uop *s = k->ast->src[store];
    int tag[LOOPS_MAX], n = 0, first = store_first_range(s), vector = vector_tag(t, s, lanes);
    int64_t size[LOOPS_MAX];
    list_begin(l, t, k->ast, store);
    int nloop = l->nloop;
    for (int i = nloop - 1; i >= 0; i--) {
        struct uop *r = s->src[first + i];
        bool is_vector = vector == LOOP_GIVEN + i;
        if (is_vector)
            list_vector(l, vector, r->src[0]->vmax, lanes);
        if (range_is(r, AXIS_BAND) || range_is(r, AXIS_ORDER) || grid_repeats(t, s, r))
            continue;
        tag[n] = LOOP_GIVEN + i;
        size[n++] = r->src[0]->vmax / (is_vector ? lanes : 1);
    }
    list_grid(l, tag, size, n);
}

int grid_main_store(struct tgc *t, const struct kernel *k)
{
    int best = 0;
    double most = -1;
    for (int i = 0; i < k->ast->nsrc; i++) {
        int n;
        double iterations = 1;
        struct uop *s = k->ast->src[i], **order = uop_toposort(t, &s, 1, &n);
        for (int j = 0; j < n; j++)
            iterations *= order[j]->op == OP_RANGE ? (double)order[j]->src[0]->vmax : 1;
        if (iterations > most) {
            most = iterations;
            best = i;
        }
    }
    return best;
}

/* Dimensions of the grid that the list gives its own store. */
static int count_grid(const struct opt_list *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += l->opt[i].op == OPT_GRID && l->opt[i].store == l->store;
    return n;
}

/* Stores that the list adds after its own (SPLIT_K makes two of one), by which later stores
 * shift. */
static int count_more(const struct opt_list *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += l->opt[i].op == OPT_SPLIT_K;
    return n;
}

/* Upper bounds of the grid's dimensions, innermost first, that the list makes. */
static int find_sizes(struct tgc *t, const struct kernel *k, const struct opt_list *l,
                      int64_t size[GRID_RANK])
{
    struct kernel alone = *k;
    struct uop *store = k->ast->src[l->store];
    struct opt_list own = *l;
    int n = 0;
    alone.ast = uop_intern(t, OP_SINK, DTYPE_VOID, &store, 1, (union arg){0});
    for (int i = 0; i < own.n; i++)
        own.opt[i].store -= l->store;
    if (!opt_apply(t, &alone, NULL, own.opt, own.n, NULL))
        return 0;
    for (const struct uop *r; n < GRID_RANK && (r = grid_loop(alone.ast->src[0], n)); n++)
        size[n] = r->src[0]->vmax;
    return n;
}

/* Fits another store's loops into a grid of these sizes. A loop longer than the next dimension
 * continues in the one after it, or is serial in each thread, so that the grid grows by little. */
static void list_within(struct opt_list *l, struct tgc *t, const struct kernel *k, int store,
                        int threads, int lanes, const int64_t *size, int ndim)
{
    struct uop *s = k->ast->src[store];
    int first = store_first_range(s), d = 0, vector = vector_tag(t, s, lanes);
    bool items = threads == 0;
    list_begin(l, t, k->ast, store);
    int nloop = l->nloop;
    if (vector >= 0)
        list_vector(l, vector, s->src[first + vector - LOOP_GIVEN]->src[0]->vmax, lanes);
    for (int i = nloop - 1; i >= 0; i--) {
        struct uop *r = s->src[first + i];
        int tag = LOOP_GIVEN + i;
        int64_t left = r->src[0]->vmax / (tag == vector ? lanes : 1);
        bool fixed = range_fixed_size(r) > 0;
        if (range_is(r, AXIS_BAND) || range_is(r, AXIS_ORDER) || left < 2 || grid_repeats(t, s, r))
            continue;
        if (!items)
            left = list_take(l, left, fixed, threads, tag, OPT_ITEM);
        items = true;
        for (; left > 1 && d < ndim && left > size[d] + size[d] / 8; d++)
            if (size[d] > 1)
                left = list_take(l, left, fixed, size[d], tag, OPT_GRID);
        if (left > 1 && d++ < ndim)
            list_add(l, OPT_GRID, tag);
    }
    if (!items)
        list_add(l, OPT_FIRST, -1)->n = threads;
}

bool grid_apply(struct tgc *t, struct kernel *k, const struct opt_list *of, int threads, int lanes,
                struct refusal *refusal)
{
    int nstore = k->ast->nsrc, n = 0, ndim = 0;
    int64_t size[GRID_RANK];
    struct opt_list *l = scratch_array(t, (size_t)nstore, sizeof *l), own;
    struct opt *opt = scratch_array(t, (size_t)nstore * (LIST_MAX + GRID_RANK), sizeof *opt);
    struct refusal own_refusal, *why = refusal ? refusal : &own_refusal;
    *why = (struct refusal){OPT_COUNT, "there is no such loop"};
    if (!of) {
        list_each(&own, t, k, grid_main_store(t, k), lanes);
        of = &own;
    }
    if (nstore > 1)
        ndim = find_sizes(t, k, of, size);
    for (int i = 0; i < nstore; i++) {
        if (of->store == i)
            l[i] = *of;
        else
            list_within(&l[i], t, k, i, threads, lanes, size, ndim);
        if (l[i].failed)
            return false;
        for (int j = 0; j < l[i].n; j++) {
            opt[n] = l[i].opt[j];
            opt[n++].store += i > of->store ? count_more(of) : 0;
        }
    }
    for (int i = 0; i < nstore; i++)                 /* missing dimensions get one index */
        for (int d = count_grid(&l[i]); d < count_grid(of); d++)
            opt[n++] =
                (struct opt){.op = OPT_ALONE, .store = i + (i > of->store ? count_more(of) : 0)};
    if (n > 0 && opt_apply(t, k, NULL, opt, n, why))
        return true;
    if (t->debug >= 3)
        fprintf(stderr, "grid: %s: not by %s%s: %s\n", k->name, threads ? "blocks" : "places",
                lanes > 1 ? " of vectors" : "", why->why);
    return false;
}

bool grid_has_bands(const struct kernel *k)
{
    for (int i = 0; i < k->ast->nsrc; i++) {
        const struct uop *s = k->ast->src[i];
        int first = store_first_range(s);
        if ((first < s->nsrc && range_is(s->src[first], AXIS_BAND)) ||
            uop_buffer_of(s->src[0])->kind == BUFFER_SCRATCH)
            return true;
    }
    return false;
}

static bool has_loops(struct tgc *t, const struct kernel *k, enum axis axis)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop *root = k->ast;
    int n;
    bool any = false;
    struct uop **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        any |= order[i]->op == OP_RANGE && range_is(order[i], axis);
    scratch_release(t, mark);
    return any;
}

void grid_note_schedule(struct tgc *t, struct kernel *k)
{
    kernel_note_grid(t, k);
    kernel_collect_buffers(t, k);
    /* matrix instructions define their own lanes */
    if (grid_vector_lanes(t) < 2 || has_loops(t, k, AXIS_ELEMENT))
        return;
    struct variant v = kernel_variant(t, k, t->device->isa);
    VEC_PUSH(t, k->variant, k->nvariant, k->cap_variant, v);
}

/* If no loop's size is a multiple of `lanes`, cuts a contiguous loop at the last multiple: the rest
 * becomes a scalar store of the same grid. */
static void cut_vectors(struct tgc *t, struct kernel *k, int store, int lanes)
{
    struct uop *s = k->ast->src[store];
    int at = grid_vector_loop(t, s, lanes) < 0 ? grid_vector_part(t, s, lanes) : -1;
    int64_t n = at < 0 ? 0 : range_fixed_size(s->src[at]);
    struct kernel trial = *k;
    struct opt cut = {.op = OPT_CUT,
                      .store = store,
                      .axis = at - store_first_range(s),
                      .n = n - n % lanes,
                      .from = n - n % lanes,
                      .to = store + 1};
    if (at >= 0 && !value_contains(t, s, OP_REDUCE, OP_REDUCE) &&
        opt_apply(t, &trial, NULL, &cut, 1, NULL) &&
        vector_tag(t, trial.ast->src[store], lanes) >= 0)
        *k = trial;
}

/* The axis of the outer one of two adjacent loops to merge; -1: none, or it is not needed.
 * It is needed if more loops could be axes of the grid than a grid has, and the largest of
 * them have fewer threads than the device can run. Chooses the pair with the smallest
 * product of iterations. */
static int crowded_loops(struct tgc *t, struct uop *s, int lanes)
{
    int first = store_first_range(s), best = -1,
        vector = vector_tag(t, s, lanes) - LOOP_GIVEN + first, n = 0;
    double all = 1, least = 0, size[LOOPS_MAX] = {0}, full = cost_full_threads(t->device);
    int end = s->nsrc < first + LOOPS_MAX ? s->nsrc : first + LOOPS_MAX;
    for (int i = first; i < end; i++) {
        int64_t iterations = range_is(s->src[i], AXIS_LOOP) ? range_fixed_size(s->src[i]) : 0;
        bool placed = iterations > 1 && i != vector && !grid_repeats(t, s, s->src[i]);
        size[i - first] = placed ? (double)iterations : 0;
        n += placed;
        all *= placed ? (double)iterations : 1;
        if (i == first || !placed || size[i - first - 1] == 0)
            continue;
        double both = size[i - first - 1] * size[i - first];
        if (best < 0 || both < least)
            best = i - first - 1, least = both;
    }
    for (int d = 0; d < GRID_RANK; d++) {                      /* what exceeds the grid is serial */
        int most = 0;
        for (int i = 1; i < end - first; i++)
            most = size[i] > size[most] ? i : most;
        all /= size[most] > 0 ? size[most] : 1;
        full /= size[most] > 0 ? size[most] : 1;
        size[most] = 0;
    }
    return n > GRID_RANK && all > 1 && full > 1 ? best : -1;
}

static void join_loops(struct tgc *t, struct kernel *k, int store, int lanes)
{
    struct opt flatten = {.op = OPT_FLATTEN, .store = store};
    struct kernel trial = *k;
    while ((flatten.axis = crowded_loops(t, k->ast->src[store], lanes)) >= 0 &&
           opt_apply(t, &trial, NULL, &flatten, 1, NULL))
        *k = trial;
}

/* Gives each element (or vector) of the kernel's main store a thread. */
static bool grid_each(struct tgc *t, struct kernel *k, int lanes)
{
    struct kernel trial = *k;
    if (lanes > 1 && has_loops(t, k, AXIS_GROUP))      /* a group's bytes may not be contiguous */
        return false;
    if (lanes > 1)
        cut_vectors(t, &trial, grid_main_store(t, k), lanes);
    join_loops(t, &trial, grid_main_store(t, &trial), lanes);
    if (!grid_apply(t, &trial, NULL, 0, lanes, NULL))
        return false;
    *k = trial;
    return true;
}

static bool by_matrix(struct tgc *t, struct kernel *k, int store)
{
    return grid_matrix(t, k, store, 0);
}

static bool by_tiles(struct tgc *t, struct kernel *k, int store)
{
    return grid_tile(t, k, store, 0);
}

static bool by_elements(struct tgc *t, struct kernel *k, int store)
{
    int lanes = grid_vector_lanes(t);
    (void)store;
    return grid_each(t, k, lanes) || (lanes > 1 && grid_each(t, k, 1)) ||
           compare_refuse_last(t, SCHEDULE_EACH);
}

/* In this order; the first that applies is the kernel's schedule. */
static const struct grid_schedule schedules[] = {
    {SCHEDULE_MATRIX, false, by_matrix},     {SCHEDULE_TILES, false, by_tiles},
    {SCHEDULE_SLICES, true, grid_slices},    {SCHEDULE_ROWS, true, grid_rows},
    {SCHEDULE_WINDOWS, false, grid_windows}, {SCHEDULE_TRANSPOSED, true, grid_transposed},
    {SCHEDULE_EACH, false, by_elements}};

const struct grid_schedule *grid_schedule_at(int i)
{
    return i < (int)(sizeof schedules / sizeof *schedules) ? &schedules[i] : NULL;
}

bool grid_schedule_apply(struct tgc *t, const struct grid_schedule *s, struct kernel *k, int store)
{
    if (s->shares && t->no_locals)
        return compare_refuse(t, s->kind, "--no-locals");
    return s->apply(t, k, store);
}

/* The schedule that the cost model chooses. */
static bool grid_by_model(struct tgc *t, struct kernel *k, int store)
{
    const struct grid_schedule *s;
    for (int i = 0; (s = grid_schedule_at(i)); i++)
        if (grid_schedule_apply(t, s, k, store))
            return true;
    return false;
}

/* Alternatives that tgc tune measures: tiles, rows, a thread for each element. */
static void add_schedules(struct opts_choice *c, struct tgc *t, struct kernel *k, int store)
{
    static const struct tile none = {.column_axis = -1};
    int width = opts_choice_width(c);
    for (int i = 0; i < width + 3 && width; i++) {
        struct kernel trial = *k;
        int lanes = i == width + 1 ? grid_vector_lanes(t) : 1;
        bool done = i == 0       ? grid_by_model(t, &trial, store)
                    : i < width  ? grid_tile(t, &trial, store, i)
                    : i == width ? !t->no_locals && grid_rows(t, &trial, store)
                                 : grid_each(t, &trial, lanes);
        if (done)
            opts_choice_add(c, &trial, NULL, &none);
    }
}

bool pass_grid(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct opts_choice c;
    int end, store;
    bool chosen = false, tuned = t->tuning && k->ast->nsrc == 1;
    (void)s;
    if (!device_has_grid(t) || k->is_serial || kernel_reads_results(t, k))
        return true;
    grid_compare(t, k);
    if (grid_attention(t, k))
        kernel_note_grid(t, k);
    if (grid_has_bands(k))
        return true;
    store = grid_main_store(t, k);
    if (tuned) {
        opts_choice_begin(&c, t, k, NULL, TUNE_GRID, 0, 0, 0);
        add_schedules(&c, t, k, store);
        chosen = opts_choice_replay(&c, &end);
    }
    if (chosen || grid_by_model(t, k, store)) {
        if (tuned)
            opts_choice_end(&c);
        grid_note_schedule(t, k);
    }
    return true;
}

int grid_keep_best(void *best, int n, int most, size_t size, size_t ns, const void *candidate)
{
    char *list = best;
    const double *new_ns = (const void *)((const char *)candidate + ns);
    int at = n;
    while (at > 0 && *(const double *)(const void *)(list + (size_t)(at - 1) * size + ns) > *new_ns)
        at--;
    if (at == most)
        return n;
    n = n < most ? n + 1 : most;
    char *to = list + (size_t)at * size;
    memmove(to + size, to, (size_t)(n - 1 - at) * size);
    memcpy(to, candidate, size);
    return n;
}
