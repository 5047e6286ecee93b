/* device_cost.c - estimates a kernel's use of a device with a grid: threads, shared memory, bytes,
 * time.
 *
 * The program is read into the model by which its schedule was chosen (struct grid_work). That is:
 * what a thread issues, matrix products, steps between barriers, and the bytes that each block
 * needs from the cache. A block's bytes count once, however many of its threads load them; bytes
 * that threads load for themselves count twice. A loop whose end depends on the block counts with
 * its mean number of iterations, a condition with its frequency (index_values.h). */
#include "passes/analysis/access.h"
#include "passes/analysis/footprint.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/analysis/index_values.h"
#include "passes/target/cost.h"
#include "ir/device_ops.h"

#include <math.h>

enum { DEPTH_MAX = 128 };

/* An open loop: its iterations over all threads, of one thread, and of a block together. */
struct open_loop {
    const struct uop *range;
    double all, each, block;
    bool is_item, is_shared, is_serial, is_places;
};
/* Bytes of a block (or of each output tile of a persistent block), and how often they are
 * loaded. */
struct block_part { struct cover bytes; double again, places; };
struct device_walk {
    struct tgc *t;
    const struct kernel *k;
    struct grid_work work;
    struct device_use *use;
    struct open_loop open[DEPTH_MAX];
    int depth, items;
    double share[DEPTH_MAX];     /* share of the iterations around it for which a condition
                                  * holds, outer conditions included */
    double owned[DEPTH_MAX];     /* likewise for conditions in which data select the iteration:
                                  * these scale bytes, too */
    int conditions;
    struct places grid;          /* the grid loops that are open */
    double places;               /* output tiles of a block (PERSISTENT) */
    struct footprint footprint;
    struct block_part *part; int npart; size_t cap_part;             /* by group of the footprint */
    double given;                /* bytes that a block receives by multicast from others of its
                                  * cluster */
    double last_ns;              /* time of the last-arriving blocks (TICKET) */
    bool loaded;                 /* something was loaded from memory or cache since the last
                                  * barrier */
    const struct buffer *filled; /* barriers that signal the arrival of a box */
};

/* Pipeline steps that copies to shared memory are issued ahead; 0: each step stalls on its
 * copies. */
static int steps_ahead(const struct kernel *k)
{
    for (int i = 0; i < k->opts.n; i++)
        if (k->opts.v[i].op == OPT_PIPELINE)
            return (int)k->opts.v[i].n - 1;
    return 0;
}

/* Output tiles of each block: the iterations of its tile loop (PERSISTENT). */
static double count_places(const struct kernel *k)
{
    const struct uop *store = k->ast->src[0];
    bool persistent = false;
    double n = 1;
    for (int i = 0; i < k->opts.n; i++)
        persistent |= k->opts.v[i].op == OPT_PERSISTENT;
    for (int i = store_first_range(store); i < store->nsrc && persistent; i++)
        if (RANGE_WORKER(store->src[i]->arg.i) == WORKER_EACH && !range_is_lane(store->src[i]))
            n *= (double)store->src[i]->src[0]->vmax;
    return n;
}

/* Counts blocks of the grid, and threads of each. */
static void begin_work(struct device_walk *w)
{
    const struct kernel *k = w->k;
    w->work.blocks = 1;
    w->work.threads = k->block ? k->block : 1;
    w->places = count_places(k);
    for (int d = 0; d < k->ngrid; d++) {
        double places = k->grid[d]->vmax > 0 ? (double)k->grid[d]->vmax : 1,
               group = k->block ? 1 : k->group[d];
        w->work.blocks *= __builtin_ceil(places / group);
        w->work.threads *= group;
    }
}

static int grid_dimension(const struct device_walk *w)
{
    int outer = 0;
    for (int d = 0; d < w->depth; d++)
        outer += range_is_grid(w->open[d].range);
    return w->k->ngrid - 1 - outer;
}

static bool is_in_loop(const struct device_walk *w)
{
    for (int d = 0; d < w->depth; d++)
        if (w->open[d].is_serial)
            return true;
    return false;
}

/* Iterations of a loop, as a mean over the grid where they differ. In a grid with such loops also
 * notes how evenly the units are loaded. */
static double iterations_of(struct device_walk *w, const struct uop *range)
{
    double n = range->src[0]->vmax > 0 ? (double)range->src[0]->vmax : 1, mean;
    if (range->src[0]->op == OP_CONST || !w->k->block || range_is_of_block(range) ||
        !index_mean(w->t, range->src[0], &w->grid, NULL, &mean) || mean <= 0)
        return n;
    if (w->grid.n == w->k->ngrid && w->work.rounds <= 0)
        w->work.rounds = index_rounds(w->t, range->src[0], &w->grid, w->t->device->units);
    return mean < n ? mean : n;
}

static void open_loop(struct device_walk *w, const struct uop *range)
{
    bool parallel = range_is_grid(range) || range_is_item(range);
    double most = range->src[0]->vmax > 0 ? (double)range->src[0]->vmax : 1,
           n = parallel ? most : iterations_of(w, range);
    struct open_loop l = {.range = range, .all = n, .each = n, .block = n};
    if (range_is_grid(range)) {
        int d = grid_dimension(w);
        l.each = 1;
        if (w->grid.n < COUNTERS_MAX)
            w->grid.range[w->grid.n++] = range;
        l.block = w->k->block || d < 0 ? 1 : n < w->k->group[d] ? n : w->k->group[d];
    } else if (range_is_item(range)) {
        l.each = 1;
        l.is_item = true;
        w->items++;
    } else if (range_is_of_block(range)) {
        l.is_shared = true;
        l.each = w->k->block ? n / w->k->block : n;
        l.all = w->items ? l.each : n;               /* threads share it */
    } else {
        /* a loop over tiles, or, in producers, over the steps of all tiles: tiles have bytes of
         * their own */
        l.is_places = w->places > 1 && !is_in_loop(w) && n >= w->places;
        l.block = l.is_places ? n / w->places : n;
        l.is_serial = true;
    }
    if (w->depth == DEPTH_MAX)
        TGC_BUG(w->t, "more than %d loops in each other", DEPTH_MAX);
    w->open[w->depth++] = l;
}

static double iterations_of_thread(const struct device_walk *w)
{
    double n = w->conditions ? w->share[w->conditions - 1] : 1;
    for (int d = 0; d < w->depth; d++)
        n *= w->open[d].each;
    return n;
}

static bool is_loaded(struct tgc *t, struct uop *u)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD)
            return true;
    return false;
}

static const struct uop *without_casts(const struct uop *u)
{
    while (u->op == OP_CAST)
        u = u->src[0];
    return u;
}

/* The fraction of the grid for which data select an index, as for threads that share a scatter's
 * range: one index. */
static double share_of_place(struct tgc *t, const struct uop *condition)
{
    if (condition->op == OP_AND)
        return share_of_place(t, condition->src[0]) * share_of_place(t, condition->src[1]);
    for (int i = 0; i < 2 && condition->op == OP_EQ; i++) {
        const struct uop *place = without_casts(condition->src[i]);
        if (place->op == OP_RANGE && range_is_grid(place) &&
            !uop_depends_on(t, condition->src[1 - i], place) && is_loaded(t, condition->src[1 - i]))
            return 1 / (double)place->src[0]->vmax;
    }
    return 1;
}

/* Opens a condition: the fraction of iterations for which it holds, over blocks and the innermost
 * loop that it depends on. */
static void open_condition(struct device_walk *w, const struct uop *guard)
{
    double share = 1, owned = share_of_place(w->t, guard->src[0]);
    const struct uop *loop = NULL;
    for (int d = 0; d < w->depth; d++)
        loop = w->open[d].is_serial && uop_depends_on(w->t, guard->src[0], w->open[d].range)
                   ? w->open[d].range
                   : loop;
    if (!w->k->block || guard->src[0]->op == OP_ROLE ||
        !index_mean(w->t, guard->src[0], &w->grid, loop, &share))
        share = owned;
    if (w->conditions == DEPTH_MAX)
        TGC_BUG(w->t, "more than %d conditions in each other", DEPTH_MAX);
    w->owned[w->conditions] = owned * (w->conditions ? w->owned[w->conditions - 1] : 1);
    w->share[w->conditions] = share * (w->conditions ? w->share[w->conditions - 1] : 1);
    w->conditions++;
}

/* Bytes of one access to a buffer, and its extent from the first to the last byte, which is larger
 * for rows. */
struct taken { double nbytes, span; };

/* A contiguous access. */
static struct taken taken_together(double nbytes) { return (struct taken){nbytes, nbytes}; }

/* Adds the bytes that all threads request, and those that a block covers; shared: its threads
 * request them together. */
static void note_bytes(struct device_walk *w, const struct buffer *b, struct uop *offset,
                       struct taken of, bool shared)
{
    double all = of.nbytes, own = of.nbytes, span = of.span, again = 1, places = 1,
           size = (double)dtype_nbytes(b->dtype);
    int64_t at;
    bool inside = shared;                            /* the block's threads share a loop inside */
    for (int d = 0; d < w->depth; d++)
        inside |= w->open[d].is_shared;
    for (int d = 0; d < w->depth; d++) {
        const struct open_loop *l = &w->open[d];
        bool moves = uop_depends_on(w->t, offset, l->range);
        all *= (l->is_item || l->is_shared) && shared ? 1 : l->all;
        if ((l->is_item && inside) || (l->is_shared && shared))
            continue;
        own *= moves ? l->block : 1;
        span += moves && l->block > 1 ? size * footprint_span(w->t, offset, l->range, l->block) : 0;
        again *= moves ? 1 : l->block;
        places = l->is_places ? w->places : places;
    }
    if (buffer_space(b) == SPACE_SHARED) {
        w->use->local_asked += all;
        return;
    }
    w->use->asked += all;
    int group = footprint_find(&w->footprint, b, offset, &at);
    while (w->npart <= group)
        SCRATCH_PUSH(w->t, w->part, w->npart, w->cap_part,
                     ((struct block_part){.again = 1, .places = 1}));
    struct block_part *part = &w->part[group];
    part->again = again > part->again ? again : part->again;
    part->places = places > part->places ? places : part->places;
    cover_add(&part->bytes, own, span, at * (int64_t)size);
}

/* Extent in elements of a vector, or of a tile whose rows a subgroup's lanes load together. */
static double span_of_access(const struct uop *u, double nelem)
{
    if (u->op == OP_LOAD && TILE_IS(u->arg.i))
        return (TILE_ROWS(u->arg.i) - 1) * fabs((double)TILE_STRIDE(u->arg.i)) +
               TILE_COLUMNS(u->arg.i);
    return u->op == OP_GATHER ? nelem : (nelem - 1) * fabs((double)VECTOR_STRIDE(u->arg.i)) + 1;
}

static void note_access(struct device_walk *w, const struct uop *u)
{
    const struct device_row *d = w->t->device;
    const struct buffer *b = uop_buffer_of(u->src[0]);
    const struct uop *value = u->op == OP_STORE ? u->src[2] : u;
    bool local = buffer_space(b) == SPACE_SHARED, tile = u->op == OP_LOAD && TILE_IS(u->arg.i);
    double nelem = tile ? (double)TILE_ROWS(u->arg.i) * TILE_COLUMNS(u->arg.i) / d->wave
                        : (double)value->lanes;
    /* shared memory serves many threads of a subgroup that read one address at once: a vector takes
     * no longer */
    double nbytes = nelem * (double)dtype_nbytes(b->dtype),
           words = nbytes > 4 && (tile || !local) ? nbytes / 4 : 1;
    words = tile && b->scratch.panel ? 0 : words;            /* the matrix unit reads it */
    if (b->kind == BUFFER_SCRATCH && !local && b->scratch.space != SPACE_GLOBAL)
        return;
    /* a conditional load: relative to what the guard around it leaves */
    double around = w->conditions ? w->owned[w->conditions - 1] : 1,
           own = u->op == OP_LOAD && u->nsrc > 2 ? share_of_place(w->t, u->src[2]) : 1;
    double owned = own < around ? own : around;
    w->work.issued += iterations_of_thread(w) * owned / around * words *
                      (local ? cost_grid_local(d) : cost_grid_load(d));
    w->loaded |= u->op != OP_STORE && !local;
    note_bytes(
        w, b, u->src[1],
        (struct taken){nbytes * owned, span_of_access(u, nelem) * (double)dtype_nbytes(b->dtype)},
        false);
}

/* An asynchronous copy to shared memory: no store is issued. */
static void note_copy(struct device_walk *w, const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    double nbytes = COPY_LANES(u->arg.i) * (double)dtype_nbytes(to->dtype);
    w->work.issued += iterations_of_thread(w) * nbytes / 4 * cost_grid_load(w->t->device);
    w->loaded = true;
    note_bytes(w, to, u->src[1], taken_together(nbytes), false);
    note_bytes(w, from, u->src[3], taken_together(nbytes), false);
}

/* A vector store from registers or shared memory to memory, or a vector load from there to
 * registers. */
static void note_put(struct device_walk *w, const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    double nbytes = COPY_LANES(u->arg.i) * (double)dtype_nbytes(to->dtype),
           iterations = iterations_of_thread(w) * nbytes / 4;
    const struct buffer *const of[2] = {to, from};
    for (int k = 0; k < 2; k++) {
        if (of[k]->scratch.is_register)
            continue;
        w->loaded |= k && of[k]->scratch.space != SPACE_SHARED;
        w->work.issued +=
            iterations * (of[k]->scratch.space == SPACE_SHARED ? cost_grid_local(w->t->device)
                                                               : cost_grid_load(w->t->device));
        note_bytes(w, of[k], u->src[k ? 3 : 1], taken_together(nbytes), false);
    }
}

/* The offset of a box in its tensor, as the program computes it. */
static struct uop *begin_of_box(struct tgc *t, const struct uop *u)
{
    enum dtype d = DTYPE_I32;
    for (int a = 0; a < bulk_rank(u); a++)
        d = bulk_axis(u, a).coordinate->op == OP_CONST ? d : bulk_axis(u, a).coordinate->dtype;
    struct uop *at = uop_consti(t, d, u->src[bulk_source(u, BULK_FIRST)]->arg.i);
    for (int a = 0; a < bulk_rank(u); a++) {
        struct bulk_axis axis = bulk_axis(u, a);
        struct uop *place = axis.coordinate->op == OP_CONST
                                ? uop_consti(t, d, axis.coordinate->arg.i)
                                : axis.coordinate;
        at = uop_binary(t, OP_ADD, at, uop_binary(t, OP_MUL, place, uop_consti(t, d, axis.stride)));
    }
    return at;
}

/* A block's part of the box, in its tensor. */
static struct taken taken_of_box(const struct uop *u, const struct buffer *local)
{
    double size = (double)dtype_nbytes(local->dtype), nelem = 1, last = 0;
    for (int a = 0; a < bulk_rank(u); a++) {
        double n = (double)(u->op == OP_BULK ? bulk_part_extent(u, a) : bulk_axis(u, a).extent);
        nelem *= n;
        last += (n - 1) * (double)bulk_axis(u, a).stride;
    }
    return (struct taken){nelem * size, (last + 1) * size};
}

/* A bulk load of a box, or of a block's part in a cluster: one thread issues it. */
static void note_bulk(struct device_walk *w, const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[BULK_TO]),
                        *from = uop_buffer_of(u->src[BULK_FROM]);
    struct taken part = taken_of_box(u, to);
    double nbytes = part.nbytes * BULK_CLUSTER(u->arg.i);
    w->filled = uop_buffer_of(u->src[BULK_BARRIERS]);
    note_bytes(w, to, u->src[BULK_OFFSET], taken_together(nbytes), true);
    note_bytes(w, from, begin_of_box(w->t, u), part, true);
    /* in prologue copies nothing is received from others */
    w->given += is_in_loop(w) ? iterations_of_thread(w) * (nbytes - part.nbytes) : 0;
}

/* A bulk store of a box. */
static void note_bulk_store(struct device_walk *w, const struct uop *u)
{
    const struct buffer *from = uop_buffer_of(u->src[BULK_TO]),
                        *to = uop_buffer_of(u->src[bulk_source(u, BULK_FROM)]);
    struct taken of = taken_of_box(u, from);
    note_bytes(w, from, u->src[BULK_OFFSET], taken_together(of.nbytes), true);
    note_bytes(w, to, begin_of_box(w->t, u), of, true);
}

static void note_matrix(struct device_walk *w, const struct uop *u)
{
    enum matrix_unit of;
    double rate, iterations = iterations_of_thread(w),
                 each = w->work.threads / matrix_row(MATRIX_ROW(u->arg.i))->lanes;
    for (int i = 0; device_matrix(w->t, i, &of, &rate); i++)
        if (of == MATRIX_ROW(u->arg.i))
            w->work.matrix_ns += iterations * each * cost_of_matrix(w->t->device, of, rate);
    w->work.issued += w->work.apart ? iterations : 0;
}

/* Iterations in which u is computed. Lanes are straight-line code, in which compilers compute
 * common subexpressions once. */
static double iterations_of_value(const struct device_walk *w, struct uop *u)
{
    double n = iterations_of_thread(w);
    for (int d = 0; d < w->depth; d++)
        n /= range_is_lane(w->open[d].range) && !uop_depends_on(w->t, u, w->open[d].range)
                 ? w->open[d].each
                 : 1;
    return n;
}

static bool is_product(const struct uop *u) { return u->op == OP_MUL && dtype_is_float(u->dtype); }

/* Issue cost of u for a thread, in multiply-adds. An addition with a product costs nothing. */
static double issue_of(const struct device_walk *w, const struct uop *u)
{
    if (u->op == OP_INTRINSIC)
        return u->lanes * (isa_adds(w->t->device->isa, DTYPE_I8) ? 1 : RATIO_GRID_DOT);
    bool same_bits = u->op == OP_CAST && dtype_is_int(u->dtype) && dtype_is_int(u->src[0]->dtype) &&
                     dtype_bits(u->dtype) == dtype_bits(u->src[0]->dtype);
    if (!op_is_elementwise(u->op) || u->op == OP_CONST || same_bits || linear_is_index(u) ||
        ((u->op == OP_ADD || u->op == OP_SUB) && (is_product(u->src[0]) || is_product(u->src[1]))))
        return 0;
    return u->lanes *
           (cost_class_of(u->op) == COST_STEP || u->op == OP_EXP2 ? 1 : RATIO_GRID_FUNCTION);
}

static void note_value(struct device_walk *w, struct uop *u)
{
    double iterations = iterations_of_value(w, u);
    w->work.issued += iterations * issue_of(w, u);
    w->work.powers += u->op == OP_EXP2 ? iterations * u->lanes * cost_grid_power(w->t->device) : 0;
}

/* In a loop, the first barrier after loads begins a step of the block. */
static void note_barrier(struct device_walk *w)
{
    double iterations = iterations_of_thread(w);
    w->work.issued += iterations * RATIO_GRID_BARRIER / 2;
    w->work.steps += w->loaded && is_in_loop(w) ? iterations : 0;
    w->loaded = false;
}

/* So does a wait for boxes. */
static void note_wait(struct device_walk *w, const struct uop *u)
{
    if (w->filled == uop_buffer_of(u->src[0]) && is_in_loop(w))
        w->work.steps += iterations_of_thread(w);
}

/* The guard of a TICKET is run by the last-arriving block alone, after the others. Returns its
 * end. */
static int note_last(struct device_walk *w, struct uop *const *linear, int n, int at)
{
    const struct uop *ticket = linear[at]->src[0];
    const struct buffer *counters = uop_buffer_of(ticket->src[TICKET_COUNTERS]),
                        *memory = uop_buffer_of(ticket->src[TICKET_MEMORY]);
    double tiles = (double)counters->dim[0]->vmax,
           parts = (double)ticket->src[TICKET_OF]->src[0]->vmax;
    w->last_ns += cost_grid_last(w->t->device, tiles, w->work.threads,
                                 (double)memory->dim[0]->vmax / tiles / parts, parts);
    w->work.issued += iterations_of_thread(w) * RATIO_GRID_BARRIER;
    while (at < n && !(linear[at]->op == OP_ENDGUARD && linear[at]->src[0]->src[0] == ticket))
        at++;
    return at;
}

static void walk(struct device_walk *w, struct uop *const *linear, int n)
{
    for (int i = 0; i < n; i++) {
        struct uop *u = linear[i];
        if (u->op == OP_GUARD && u->src[0]->op == OP_TICKET) {
            i = note_last(w, linear, n, i);
        } else if (u->op == OP_RANGE) {
            open_loop(w, u);
            w->work.issued +=
                w->open[w->depth - 1].is_serial && !range_is_lane(u) ? iterations_of_thread(w) : 0;
        } else if (u->op == OP_END && w->depth > 0) {
            w->items -= range_is_item(w->open[--w->depth].range);
            w->grid.n -= range_is_grid(w->open[w->depth].range) && w->grid.n > 0;
        } else if (u->op == OP_GUARD) {
            open_condition(w, u);
        } else if (u->op == OP_ENDGUARD) {
            w->conditions--;
        } else if (u->op == OP_LOAD || u->op == OP_STORE || u->op == OP_GATHER) {
            note_access(w, u);
        } else if (u->op == OP_COPY) {
            note_copy(w, u);
        } else if (u->op == OP_PUT) {
            note_put(w, u);
        } else if (u->op == OP_BULK) {
            note_bulk(w, u);
        } else if (u->op == OP_BULK_STORE) {
            note_bulk_store(w, u);
        } else if (u->op == OP_MBAR_WAIT) {
            note_wait(w, u);
        } else if (u->op == OP_MATRIX) {
            note_matrix(w, u);
        } else if (u->op == OP_BARRIER) {
            note_barrier(w);
        } else {
            note_value(w, u);
        }
    }
}

/* Bytes that a block needs: at most a buffer's, summed over its groups, for each output tile. */
static double block_nbytes(const struct device_walk *w)
{
    double sum = 0;
    for (int i = 0; i < w->npart; i++) {
        double nbytes = cover_nelem(&w->part[i].bytes),
               all = buffer_most_nbytes(w->footprint.group[i].b), again = w->part[i].again;
        sum += (nbytes < all ? nbytes : all) *
               (again < RATIO_GRID_AGAIN ? again : RATIO_GRID_AGAIN) * w->part[i].places;
    }
    return sum;
}

/* Registers of a thread that keeps much of what its block computes; 0: it does not. */
static double kept_registers(const struct kernel *k)
{
    enum { BESIDE = 36, LITTLE = 32 };
    double n = 0;
    for (int i = 0; i < k->nscratch; i++)
        n += k->scratch[i]->scratch.is_register ? (double)k->scratch[i]->nbytes / 4 : 0;
    return n > LITTLE ? n + BESIDE : 0;
}

struct device_use device_use(struct tgc *t, const struct kernel *k)
{
    struct device_use use = {0};
    if (!device_has_grid(t))
        return use;
    struct mem_mark mark = scratch_mark(t);
    struct device_walk w = {.t = t,
                            .k = k,
                            .use = &use,
                            .footprint.t = t,
                            .work.apart = device_multiplies_apart(t->device)};
    begin_work(&w);
    use.local_nbytes = (double)kernel_local_nbytes(k);
    for (int i = 0; i < k->nscratch; i++)
        w.work.cluster = k->scratch[i]->scratch.pipeline.cluster > w.work.cluster
                             ? k->scratch[i]->scratch.pipeline.cluster
                             : w.work.cluster;
    if (k->nvariant > 0)
        walk(&w, k->variant->linear, k->variant->nlinear);
    else
        walk(&w, k->linear, k->nlinear);
    use.threads = w.work.blocks * w.work.threads;
    use.cached = w.work.blocks * block_nbytes(&w);
    use.cached = use.cached < use.asked ? use.cached : use.asked;
    /* only a part of a table that is gathered from */
    use.moved = use.cached < k->nbytes ? use.cached : k->nbytes;
    w.work.ahead = steps_ahead(k);
    w.work.registers = kept_registers(k);            /* it computes them by a product, for the
                                                      * next one */
    w.work.groups = w.work.registers > 0 && w.work.matrix_ns > 0
                        ? cost_grid_groups(t->device, w.work.threads)
                        : 0;
    w.work.local_nbytes = use.local_nbytes;
    w.work.cache_nbytes = use.cached;
    w.work.received_nbytes = use.cached + w.work.blocks * w.given;
    w.work.memory_nbytes = use.moved;
    use.ns = cost_of_grid(t->device, &w.work, &use.limit) + w.last_ns;
    use.limit = use.ns < RATIO_GRID_LAUNCH ? LIMIT_LAUNCH : use.limit;
    use.ns += RATIO_GRID_LAUNCH;
    use.parts = cost_parts_of_grid(t->device, &w.work);
    use.parts.ns[PART_LATENCY] += w.last_ns;
    cost_close_parts(&use.parts, use.ns);
    scratch_release(t, mark);
    return use;
}

/* Whether the condition, which names an entry, is false in its runs. */
static bool is_of_another(struct tgc *t, const struct schedule *s, struct uop *cond, int entry)
{
    int64_t is = 1;
    struct uop *now =
        uop_substitute(t, cond, uop_var(t, s->graph->entry_number), uop_int(t, entry));
    return uop_const_int(now, &is) && is == 0;
}

bool *steps_of_entry(struct tgc *t, const struct schedule *s, int entry)
{
    bool *takes = scratch_array(t, (size_t)s->nstep + 1, sizeof *takes);
    int depth = 0, out = 0;      /* out: depth of the branch that belongs to another entry */
    for (int i = 0; i < s->nstep; i++) {
        const struct step *st = &s->step[i];
        depth += st->kind == STEP_IF;
        if (st->kind == STEP_IF && !out && entry >= 0 && is_of_another(t, s, st->cond, entry))
            out = depth;
        else if (st->kind == STEP_ELSE && out == depth)
            out = 0;
        takes[i] = !out;
        if (st->kind == STEP_ENDIF) {
            out = out == depth ? 0 : out;
            depth--;
        }
    }
    return takes;
}

struct run_use run_use(struct tgc *t, const struct schedule *s, int entry)
{
    struct mem_mark mark = scratch_mark(t);
    const bool *takes = steps_of_entry(t, s, entry);
    double *times = scratch_array(t, (size_t)s->nstep + 1, sizeof *times);
    struct run_use use = {0};
    int depth = 0;
    times[0] = 1;
    for (int i = 0; i < s->nstep; i++) {
        const struct step *st = &s->step[i];
        if (st->kind == STEP_LOOP) {
            int64_t most = st->trip->vmax;
            double trips = most > 0 && most < INT32_MAX ? (double)most : 1;
            times[depth + 1] = times[depth] * trips;
            depth++;
        }
        depth -= st->kind == STEP_ENDLOOP;
        if (takes[i] && st->kernel) {
            use.kernels++;
            use.flop += st->kernel->flop * times[depth];
        }
    }
    scratch_release(t, mark);
    return use;
}

/* Inputs, outputs and weights, and the bytes of each that kernels have accessed so far. */
struct tensor_use { const struct buffer *b; double nbytes; };
struct tensor_uses { struct tgc *t; struct tensor_use *v; int n; size_t cap; };

static void note_tensor(struct tensor_uses *uses, const struct buffer *b, double nbytes)
{
    int i = 0;
    while (i < uses->n && uses->v[i].b != b)
        i++;
    if (i == uses->n)
        SCRATCH_PUSH(uses->t, uses->v, uses->n, uses->cap, ((struct tensor_use){.b = b}));
    uses->v[i].nbytes += nbytes;
}

/* Bytes that no schedule can avoid: of each tensor what all kernels access, once. */
static double least_nbytes(struct tgc *t, const struct schedule *s, const bool *takes)
{
    struct tensor_uses uses = {.t = t};
    double nbytes = 0;
    for (int i = 0; i < s->nstep; i++) {
        const struct kernel *k = s->step[i].kernel;
        for (int j = 0; takes[i] && k && j < k->nbuffer; j++) {
            const struct buffer *b = buffer_root(k->buffer[j]);
            if (b->kind == BUFFER_INPUT || b->kind == BUFFER_OUTPUT || b->kind == BUFFER_WEIGHT)
                note_tensor(&uses, b, kernel_reads(t, k, j));
        }
    }
    for (int i = 0; i < uses.n; i++) {
        double all = buffer_most_nbytes(uses.v[i].b);
        nbytes += uses.v[i].nbytes < all ? uses.v[i].nbytes : all;
    }
    return nbytes;
}

struct device_run device_run(struct tgc *t, const struct schedule *s, int entry)
{
    struct mem_mark mark = scratch_mark(t);
    const bool *takes = steps_of_entry(t, s, entry);
    struct device_run run = {.least = least_nbytes(t, s, takes)};
    for (int i = 0; i < s->nstep; i++) {
        const struct kernel *k = s->step[i].kernel;
        if (!k || !takes[i])
            continue;
        struct device_use use = device_use(t, k);
        run.launches++;
        run.moved += device_has_grid(t) ? use.moved : k->nbytes;
        run.asked += use.asked;
        run.local_nbytes =
            use.local_nbytes > run.local_nbytes ? use.local_nbytes : run.local_nbytes;
        run.ns += kernel_cost(t, s, k).ns;
    }
    scratch_release(t, mark);
    return run;
}

/* Counts the image reads of a kernel's program. */
static void count_reads(struct uop *const *u, int n, struct image_use *use)
{
    for (int i = 0; i < n; i++) {
        if (u[i]->op != OP_LOAD || !VECTOR_IS_IMAGE(u[i]->arg.i))
            continue;
        use->reads++;
        use->gated += u[i]->nsrc > 2 && !load_is_zero_elsewhere(u[i]);
    }
}

static bool is_read_in_floats(const struct kernel *k, int i)
{
    return i >= k->noutput &&
           (k->buffer[i]->dtype == DTYPE_F32 || k->buffer[i]->dtype == DTYPE_F16);
}

struct image_use image_use(struct tgc *t, const struct schedule *s, int entry)
{
    struct mem_mark mark = scratch_mark(t);
    struct image_use use = {0};
    const bool *takes = steps_of_entry(t, s, entry);
    bool *seen = scratch_array(t, 2 * ((size_t)t->next_buffer + 1), sizeof *seen);
    for (int i = 0; i < s->nstep && t->image; i++) {
        const struct kernel *k = s->step[i].kernel, *code = k && k->like ? k->like->kernel : k;
        if (!k || !takes[i])
            continue;
        if (code->nvariant > 0)
            count_reads(code->variant->linear, code->variant->nlinear, &use);
        else
            count_reads(code->linear, code->nlinear, &use);
        for (int j = 0; j < k->nbuffer; j++) {
            bool image = k->is_image && k->is_image[j];
            size_t at = 2 * (size_t)k->buffer[j]->id + image;
            if (!is_read_in_floats(k, j) || seen[at])
                continue;
            seen[at] = true;
            use.images += image;
            use.buffers += !image;
        }
    }
    scratch_release(t, mark);
    return use;
}
