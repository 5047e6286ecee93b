/* thread.c - chooses the loop of a kernel that threads share: OPT_THREAD.
 *
 * One loop of each nest, never a reduction's, is split evenly among the threads. Each thread runs
 * the kernel with its part of that loop, and all other loops whole:
 *
 *      for oc < 16                       part p of P:  for oc < 16
 *        for tile < 522                                  for tile from 522*p/P to 522*(p + 1)/P
 *          ...                                             ...
 *
 * So every element is computed by one thread, with the same operations in the same order: results
 * do not depend on the number of threads. Tiles stay whole, since they are inside the loop.
 *
 * The loop is chosen by the estimated time of the largest part and by the memory that a thread
 * reads; code outside the loop is repeated by every thread. So rows are split if activations are
 * large, columns if weights are. A kernel that takes less time than waking threads is not split,
 * nor is one whose threads could race: one that reads what it writes, or stores at data-dependent
 * offsets. In-place kernels (memory.c) read an element where they write it, so there is no race.
 *
 * Nests that depend on each other are kernels of their own (part.c). Nests of one band (band.c)
 * depend on each other through scratch, of which each thread has its own: their common loop is
 * split, unless they also depend on each other in other memory. (The border and the inside of a
 * padded tensor are independent nests, and so are the remainders of tiles.) */
#include "passes/kernel/tile.h"
#include "passes/target/tune.h"

/* ------------------------------------------------------------------------------------ may it be */

static bool is_written(const struct kernel *k, const struct buffer *b)
{
    for (int i = 0; i < k->noutput; i++)
        if (buffer_is_part_of(b, k->buffer[i]) || buffer_is_part_of(k->buffer[i], b))
            return true;
    return false;
}

/* Whether the load reads the element that the store writes: a thread then reads only what it has
 * stored itself. */
static bool is_of_element(const struct uop *load, const struct uop *store)
{
    return load->src[0] == store->src[0] && load->src[1] == store->src[1];
}

bool kernel_reads_results(struct tgc *t, const struct kernel *k)
{
    for (int s = 0; s < k->ast->nsrc; s++) {
        int n;
        struct uop *store = k->ast->src[s], **order = uop_toposort(t, &store, 1, &n);
        for (int i = 0; i < n; i++)
            if (order[i]->op == OP_LOAD && order[i]->src[0]->op == OP_BUFFER &&
                is_written(k, uop_buffer_of(order[i]->src[0])) && !is_of_element(order[i], store))
                return true;
    }
    return false;
}

/* ---------------------------------------------------------------------------- what does it cost */

/* A kernel's time: inside each of its loops, and in total. */
struct timed { const struct uop *range; double inside; };
struct cost {
    struct tgc *t;
    struct timed *loop; int nloop; size_t cap_loop;
    double total;
};

/* With vectors; only ratios and orders of magnitude matter. */
static double time_of(const struct machine *m, const struct uop *u)
{
    double flop = cost_of_addition(m);
    if (u->op == OP_LOAD || u->op == OP_STORE)
        return RATIO_LOOP_MOVE * flop;
    if (u->op == OP_STACK)       /* counted as a decision: the threshold for waking threads was
                                  * measured so */
        return 2 * (u->nsrc - 2) * flop;
    if (cost_class_of(u->op) >= COST_DIVISION)
        return u->dtype == DTYPE_INDEX ? flop : RATIO_LOOP_HARD * flop;
    return op_is_elementwise(u->op) ? flop : 0;
}

static void find_cost(struct cost *c, struct uop *const *u, int n)
{
    int open[128], depth = 0;
    double trips = 1;
    for (int i = 0; i < n; i++) {
        double size = u[i]->op == OP_RANGE ? (double)u[i]->src[0]->vmax : 1;
        if (u[i]->op == OP_END) {
            size = (double)u[i]->src[0]->src[0]->vmax;
            trips /= size > 0 ? size : 1;
            depth--;
            continue;
        }
        if (u[i]->op == OP_RANGE) {
            if (depth == sizeof open / sizeof *open)
                TGC_BUG(c->t, "more than %d loops in each other", depth);
            trips *= size > 0 ? size : 1;
            open[depth++] = c->nloop;
            SCRATCH_PUSH(c->t, c->loop, c->nloop, c->cap_loop, ((struct timed){u[i], 0}));
            continue;
        }
        double time = trips * time_of(machine_of(c->t), u[i]);
        c->total += time;
        for (int k = 0; k < depth; k++)
            c->loop[open[k]].inside += time;
    }
}

static double time_inside(const struct cost *c, const struct uop *range)
{
    double time = 0;
    for (int i = 0; i < c->nloop; i++)
        time += c->loop[i].range == range ? c->loop[i].inside : 0;
    return time;
}

/* Bytes that a nest reads and writes, each buffer once; and those that vary along the range. */
static void find_bytes(struct tgc *t, struct uop *store, const struct uop *range, double *all,
                       double *along)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    *all = *along = buffer_most_nbytes(uop_buffer_of(store->src[0]));
    for (int i = 0; i < n; i++) {
        bool known = order[i]->op != OP_LOAD || order[i]->src[0]->op != OP_BUFFER;
        for (int k = 0; k < i && !known; k++)
            known = order[k]->op == OP_LOAD && order[k]->src[0] == order[i]->src[0];
        if (known)
            continue;
        double size = buffer_most_nbytes(uop_buffer_of(order[i]->src[0]));
        *all += size;
        *along += range && uop_depends_on(t, order[i]->src[1], range) ? size : 0;
    }
}

/* ----------------------------------------------------------------------------------- the choice */

/* The largest part of n iterations. */
static double largest_part(double n, int threads) { return __builtin_ceil(n / threads) / n; }

/* How many of a store's loops may be shared: bands keep their nests together, so if there are bands
 * it is the first of their loops, or one of those that contain all nests. */
static int count_shareable(const struct uop *ast, const struct uop *store)
{
    int first = store_first_range(store), common = store->nsrc - first;
    bool nest = false;
    if (common == 0 || !range_is(store->src[first], AXIS_BAND))
        return common;
    for (int i = 0; i < ast->nsrc; i++) {
        const struct uop *other = ast->src[i];
        int n = 0, at = store_first_range(other);
        while (n < common && at + n < other->nsrc && other->src[at + n] == store->src[first + n] &&
               range_is(other->src[at + n], AXIS_BAND))
            n++;
        common = n;
    }
    for (int i = 0; i < ast->nsrc; i++) {
        int at = store_first_range(ast->src[i]) + common;
        nest |= at < ast->src[i]->nsrc && range_is(ast->src[i]->src[at], AXIS_BAND);
    }
    return nest && common > 0 ? common : 1;
}

/* The range among the store's first `nloop` that saves most of one thread's time; NULL: none. */
static struct uop *choose_range(const struct cost *c, struct uop *store, int nloop, int threads,
                                double *saved)
{
    struct uop *best = NULL;
    double most = 0;
    for (int k = store_first_range(store); k < store_first_range(store) + nloop; k++) {
        struct uop *r = store->src[k];
        double n = (double)r->src[0]->vmax, all, along;
        if (range_is_lane(r) || range_is(r, AXIS_ORDER) || n < 2)
            continue;
        find_bytes(c->t, store, r, &all, &along);
        double time = time_inside(c, r) + cost_of_bytes(machine_of(c->t), LEVEL_MEMORY,
                                                        along / RATIO_LOOP_STREAM);
        double less = time * (1 - largest_part(n, threads));
        double worth = less * (r->src[0]->op == OP_CONST ? 1 : RATIO_SYMBOL);
        if (!best || worth > most) {
            best = r;
            most = worth;
            *saved = less;
        }
    }
    return best;
}

/* One of a kernel's programs. */
struct sharing {
    struct uop **range;          /* by store */
    double time, saved;          /* time of one thread; saved by all of them */
};

static bool has_loop_of(const struct uop *store, const struct uop *before)
{
    int a = store_first_range(store), b = before ? store_first_range(before) : 0;
    return before && a < store->nsrc && b < before->nsrc && store->src[a] == before->src[b] &&
           range_is(store->src[a], AXIS_BAND);
}

static void find_sharing(struct tgc *t, const struct uop *ast, const struct kernel *k, int threads,
                         struct sharing *s)
{
    struct cost c = {.t = t};
    int n;
    double flop, all, along;
    struct uop **linear = linearize(t, ast, &n, &flop);
    find_cost(&c, linear, n);
    s->range = scratch_array(t, (size_t)ast->nsrc, sizeof *s->range);
    s->time = c.total;
    for (int i = 0; i < ast->nsrc; i++) {
        double saved = 0;
        int nloop = count_shareable(ast, ast->src[i]);
        bool same = has_loop_of(ast->src[i], i ? ast->src[i - 1] : NULL);
        s->range[i] = same ? s->range[i - 1]
                           : choose_range(&c, ast->src[i], nloop, threads, &saved);
        find_bytes(t, ast->src[i], NULL, &all, &along);
        s->time += cost_of_bytes(machine_of(t), LEVEL_MEMORY, all / RATIO_LOOP_STREAM);
        s->saved += saved;
    }
    if (k->nvariant == 0) {
        s->time *= RATIO_SCALAR;
        s->saved *= RATIO_SCALAR;
    }
}

/* A nest without a loop to split, a tile's remainder, is one thread's. */
static void share(struct tgc *t, struct kernel *k, struct variant *v, const struct sharing *s)
{
    const struct uop *ast = v ? v->ast : k->ast;
    struct opt *opt = scratch_array(t, (size_t)ast->nsrc, sizeof *opt);
    int n = ast->nsrc;
    for (int i = 0; i < n; i++) {
        const struct uop *store = ast->src[i];
        int first = store_first_range(store), axis = first;
        while (s->range[i] && store->src[axis] != s->range[i])
            axis++;
        opt[i] = (struct opt){.op = s->range[i] ? OPT_THREAD : OPT_ALONE, .store = i,
                              .axis = axis - first};
    }
    opt_must(t, k, v, opt, n);
}

/* The split loops of each of the kernel's programs, the portable one first; NULL: it does not
 * pay. */
static struct sharing *find_sharings(struct tgc *t, const struct kernel *k,
                                     const struct schedule *s)
{
    struct sharing *each = scratch_array(t, (size_t)k->nvariant + 1, sizeof *each);
    for (int i = 0; i <= k->nvariant; i++)
        find_sharing(t, i ? k->variant[i - 1].ast : k->ast, k, s->threads, &each[i]);
    const struct sharing *first = &each[k->nvariant > 0];       /* the widest variant */
    if (s->on_device)            /* a single thread would leave the device idle */
        return first->saved > 0 ? each : NULL;
    return first->saved >= s->thread_gain_ns &&
                   first->time >= RATIO_THREADS_WORTH * (first->time - first->saved)
               ? each
               : NULL;
}

static bool is_shareable(const struct uop *r)
{
    return r->op == OP_RANGE && !range_is_lane(r) && !range_is(r, AXIS_ORDER) &&
           r->src[0]->vmax >= 2;
}

static struct tuned thread_at(const struct tuned *like, struct tgc *t, int axis)
{
    struct tuned e = *like;
    struct opt thread = {.op = OPT_THREAD, .axis = axis};
    e.opts = (struct opts){.v = mem_copy(t, &thread, sizeof thread), .n = 1};
    return e;
}

/* The loop that a tune file's list gives to threads; NULL: the list does something else. */
static struct uop *listed_range(const struct uop *store, const struct opts *list)
{
    const struct opt *o = list->v;
    int first = store_first_range(store);
    bool one = list->n == 1 && o->op == OPT_THREAD && o->store == 0 && o->of == OF_STORE;
    return one && o->axis < store->nsrc - first && is_shareable(store->src[first + o->axis])
               ? store->src[first + o->axis]
               : NULL;
}

/* The range that a tune file names, or the cost model's. */
static struct uop *tuned_range(struct tgc *t, struct kernel *k, enum isa isa, int nest,
                               struct uop *store, struct uop *model)
{
    int first = store_first_range(store);
    struct choice c = {.kernel = k, .nest = nest, .n = 1,
                       .taken = {.kind = TUNE_THREADS, .isa = isa,
                                 .key = tune_key_of_store(t, store)},
                       .candidate = mem_array(t, (size_t)store->nsrc, sizeof *c.candidate)};
    struct uop *range = model;
    for (int axis = first; axis < store->nsrc; axis++)
        if (store->src[axis] == model)
            c.candidate[0] = thread_at(&c.taken, t, axis - first);
        else if (is_shareable(store->src[axis]))
            c.candidate[c.n++] = thread_at(&c.taken, t, axis - first);
    c.taken = c.candidate[0];
    c.by = tune_find(t, TUNE_THREADS, c.taken.key, isa);
    if (c.by && (range = listed_range(store, &c.by->opts)))
        c.taken.opts = c.by->opts;
    tune_note(t, c);
    if (!range)
        tune_misfit(t, c.by, "the kernel of this key has no such loop for threads to share");
    return range ? range : model;
}

static void tune_sharing(struct tgc *t, struct kernel *k, enum isa isa, const struct uop *ast,
                         struct sharing *s)
{
    for (int i = 0; t->tuning && i < ast->nsrc; i++)
        if (s->range[i] && !range_is(s->range[i], AXIS_BAND))    /* shared with other nests */
            s->range[i] = tuned_range(t, k, isa, i, ast->src[i], s->range[i]);
}

static void share_kernel(struct tgc *t, struct kernel *k, const struct schedule *s)
{
    if (k->is_serial || k->ngrid || k->block || kernel_reads_results(t, k))
        return;
    struct sharing *each = find_sharings(t, k, s);
    if (!each)
        return;
    tune_sharing(t, k, isa_portable(), k->ast, &each[0]);
    for (int i = 0; i < k->nvariant; i++)
        tune_sharing(t, k, k->variant[i].isa, k->variant[i].ast, &each[i + 1]);
    share(t, k, NULL, &each[0]);
    for (int i = 0; i < k->nvariant; i++)
        share(t, k, &k->variant[i], &each[i + 1]);
    double saved = each[k->nvariant > 0].saved;
    k->shared_ns = saved < 1e9 ? saved : 1e9;
    k->is_shared = true;
}

bool threads_may_share(struct tgc *t, const struct kernel *k, const struct schedule *s)
{
    struct mem_mark mark = scratch_mark(t);
    bool worth = find_sharings(t, k, s) != NULL;
    scratch_release(t, mark);
    return worth;
}

bool pass_thread(struct tgc *t, struct schedule *s, struct kernel *k)
{
    if (s->threads > 1)
        share_kernel(t, k, s);
    return true;
}
