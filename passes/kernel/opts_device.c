/* opts_device.c - opts of devices: loops over a grid and a block's threads, loops padded to full
 * blocks, and block reductions. Operands in shared memory: opts_local.c. Below, i, c and k are
 * loops, p is a thread, f(k) a term of the sum.
 *
 *    cover 0 axis=0 n=64                       i < 100       i = 64*q + p, masked where i >= 100
 *    block_reduce 0.sum0 axis=0 n=64           sum over k    part[p] = sum over q of f(64*q + p);
 *                                                            sum over p
 *    shuffle_reduce 0.sum0 axis=0 n=64         sum over k    thread p: sum over q of f(64*q + p);
 *                                                            sum over p by shuffles
 *    slice_k 0.sum0 axis=0 n=8 to=1            c < 32, sum   part[p][c] = sum over q of f(8*q + p)
 *                                              over k        256 threads; thread c: sum over p
 *    slice_k_adjacent 0.sum0 axis=0 n=32 to=1  c < 8, sum    part[c][p] = sum over q of f(32*q + p)
 *                                              over k        256 threads; thread c: sum over p
 */
#include "passes/analysis/matrix.h"
#include "passes/kernel/opts_work.h"

#include <string.h>

/* ---------------------------------------------------------------------------- grids and threads */

bool work_scratch_fits(struct work *w)
{
    int n;
    struct uop **order = uop_toposort(w->t, &w->ast, 1, &n);
    for (int i = 0; i < n; i++)
        if ((order[i]->op == OP_STAGE || order[i]->op == OP_BUFFER) &&
            buffer_space(order[i]->arg.p) == SPACE_SCRATCH &&
            !uop_buffer_of(order[i])->scratch.is_register &&
            buffer_most_nbytes(order[i]->arg.p) > STACK_SCRATCH_NBYTES)
            return work_refuse(w, "the kernel's scratch exceeds a thread's stack");
    return true;
}

static bool may_be_placed(struct work *w)
{
    return (!w->kernel->is_serial && !kernel_reads_results(w->t, w->kernel)) ||
           work_refuse(w, "the kernel reads what it stores: threads would race");
}

/* Whether clusters of blocks share copies: their opts have fixed the grid's dimensions. */
static bool has_clusters(struct work *w, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STAGE && uop_buffer_of(order[i])->scratch.pipeline.cluster)
            return true;
    return false;
}

bool apply_place(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    enum worker worker = opt->op == OPT_GRID ? WORKER_GRID : WORKER_ITEM;
    int same = 0;
    if (!work_open(w, opt))
        return false;
    if (o->stage)
        return work_refuse(w, "a stage is private to each thread");
    if (worker == WORKER_GRID && has_clusters(w, o->store))
        return work_refuse(w, "a cluster fixes the grid");
    if (opt->axis < 0 || opt->axis >= work_loops_before_lanes(o) ||
        (opt->op == OPT_ITEM && range_is(o->range[opt->axis], AXIS_BAND)))
        return work_refuse(w, "the nest has no such loop outside its lanes");
    if (range_is(o->range[opt->axis], AXIS_ORDER))
        return work_refuse(
            w, "iterations of the loop may store to the same element: threads would race");
    for (int i = 0; i < o->n; i++) {
        enum worker other = RANGE_WORKER(o->range[i]->arg.i);
        if (other == WORKER_TEAM || other == WORKER_BLOCK ||
            (i == opt->axis && other != WORKER_EACH))
            return work_refuse(w, "a loop of the nest is distributed over threads already");
        same += other == worker;
    }
    if (worker == WORKER_GRID && same == GRID_RANK)
        return work_refuse(w, "a grid has at most three dimensions");
    if (worker == WORKER_ITEM && range_fixed_size(o->range[opt->axis]) < 1)
        return work_refuse(w, "the loop's number of iterations is unknown at compile time");
    if (!may_be_placed(w))
        return false;
    w->is_placed = true;
    work_give(w, opt->axis, worker);
    return true;
}

/* Adds a condition to the store. */
static struct uop *store_if(struct tgc *t, struct uop *store, struct uop *valid)
{
    struct uop *src[RANGES_MAX + 8], *both[2] = {valid};
    int first = store_first_range(store), n = 3;
    ARRAY_COPY(src, store->src, 3);
    if (first == 4)
        both[1] = store->src[3];
    src[n++] = first == 4 ? uop_intern(t, OP_AND, DTYPE_BOOL, both, 2, (union arg){0}) : valid;
    for (int i = first; i < store->nsrc; i++)
        src[n++] = store->src[i];
    return uop_intern(t, OP_STORE, store->dtype, src, n, store->arg);
}

bool apply_first(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    if (!work_open(w, opt))
        return false;
    if (o->stage || o->n >= RANGES_MAX || opt->n < 2 || opt->n > BLOCK_MAX)
        return work_refuse(
            w, "a block has 2 to 256 threads, the same number in all stores of a kernel");
    for (int i = 0; i < o->n; i++)
        if (range_is_item(o->range[i]) || range_is_shared(o->range[i]) ||
            range_is_of_block(o->range[i]))
            return work_refuse(w, "a loop of the nest is distributed over threads already");
    if (!may_be_placed(w))
        return false;
    struct uop *thread = uop_axis(w->t, uop_int(w->t, opt->n), AXIS_LOOP, WORKER_ITEM);
    work_insert_range(o, work_loops_before_lanes(o), thread, thread);
    work_close(w);
    struct uop *now =
        store_if(w->t, w->ast->src[opt->store], sym_lt(w->t, thread, uop_int(w->t, 1)));
    work_put_stores(w, opt->store, &now, 1);
    w->is_placed = true;
    return true;
}

/* -------------------------------------------------------------------------------- whole blocks */

/* Makes loads conditional. Built without folding, so that the model's own conditions do not merge
 * with the mask. */
struct uop *loads_if(struct tgc *t, struct uop *u, struct uop *valid, const struct uop *q,
                     const struct uop *p)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    struct uop_map by = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *x = order[i], **src = scratch_array(t, (size_t)x->nsrc + 2, sizeof *src);
        bool changed = false;
        int nsrc = 0;
        for (; nsrc < x->nsrc; nsrc++) {
            struct uop *s = map_get(&by, x->src[nsrc]);
            changed |= s != NULL;
            src[nsrc] = s ? s : x->src[nsrc];
        }
        if (x->op == OP_LOAD &&
            (uop_depends_on(t, x->src[1], q) || uop_depends_on(t, x->src[1], p))) {
            struct uop *both[2] = {valid, nsrc == 4 ? src[2] : NULL};
            src[2] = nsrc == 4 ? uop_intern(t, OP_AND, DTYPE_BOOL, both, 2, (union arg){0}) : valid;
            src[3] = nsrc == 4 ? src[3] : uop_consti(t, x->dtype, 0);
            nsrc = 4;
            changed = true;
        }
        if (changed)
            map_set(&by, x, uop_intern(t, x->op, x->dtype, src, nsrc, x->arg));
    }
    struct uop *now = map_get(&by, u);
    return now ? now : u;
}

static bool depends_on_loops(struct tgc *t, struct uop *size)
{
    int n;
    struct uop **order = uop_toposort(t, &size, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_RANGE || order[i]->op == OP_LOAD)
            return true;
    return false;
}

/* Writes r as q * n + p. *valid: the mask of r's end; NULL: n divides r. false: refused. */
static bool cut_in_blocks(struct work *w, struct uop *r, int64_t n, struct uop **q, struct uop **p,
                          struct uop **valid)
{
    struct tgc *t = w->t;
    int64_t size = range_fixed_size(r);
    if (n < 2 || n > INT32_MAX || RANGE_AXIS(r->arg.i) != AXIS_LOOP ||
        RANGE_WORKER(r->arg.i) != WORKER_EACH || depends_on_loops(t, r->src[0]))
        return work_refuse(w,
                           "only a plain loop can be covered by blocks, of two iterations or more");
    struct uop *blocks = sym_ceildiv(t, r->src[0], n);
    *q = uop_is_int(blocks, 1) ? uop_int(t, 0) : uop_axis(t, blocks, AXIS_LOOP, WORKER_EACH);
    *p = uop_axis(t, uop_int(t, n), AXIS_LOOP, WORKER_EACH);
    work_name_like(t, *q, r);
    work_name_like(t, *p, r);
    *valid = size > 0 && size % n == 0 ? NULL
                                       : sym_lt(t, sym_add(t, sym_muli(t, *q, n), *p), r->src[0]);
    return true;
}

/* Whether the sum's terms are 0 where its loads are masked: products of loads, one factor of which
 * may be computed. */
static bool is_zero_of_zeros(const struct uop *sum)
{
    const struct uop *x = sum->src[0], *src[2];
    int computed = 0;
    if (REDUCE_OP(sum->arg.i) != OP_ADD || x->op != OP_MUL)
        return false;
    for (int k = 0; k < 2; k++) {
        for (src[k] = x->src[k]; src[k]->op == OP_CAST; src[k] = src[k]->src[0])
            continue;
        if (src[k]->op == OP_LOAD ? src[k]->nsrc == 4 && !load_is_zero_elsewhere(src[k])
                                  : computed++ > 0 || !matrix_is_finite(src[k]))
            return false;
    }
    return true;
}

/* Covers a sum's loop: masked loads are 0, and so are their terms. */
static bool cover_sum(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *q, *p, *valid, *src[MAX_RANK + 8];
    int n = 1;
    if (!work_take_sum(w, opt, opt->axis, &sum))
        return false;
    struct uop *r = sum->src[opt->axis + 1];
    if (sum->nsrc > MAX_RANK + 6 || !is_zero_of_zeros(sum))
        return work_refuse(w, "terms masked off would not be zero");
    if (!cut_in_blocks(w, r, opt->n, &q, &p, &valid))
        return false;
    struct uop *value = uop_substitute(t, sum->src[0], r, sym_add(t, sym_muli(t, q, opt->n), p));
    src[0] = valid ? loads_if(t, value, valid, q, p) : value;
    for (int i = 1; i < sum->nsrc; i++) {
        if (i != opt->axis + 1) {
            src[n++] = sum->src[i];
            continue;
        }
        if (q->op == OP_RANGE)
            src[n++] = q;
        src[n++] = p;
    }
    struct uop *by = uop_intern(t, OP_REDUCE, sum->dtype, src, n, sum->arg);
    uop_set_origin(t, by, sum);
    struct uop *now = uop_substitute(t, w->ast->src[opt->store], sum, by);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}

bool apply_cover(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    struct tgc *t = w->t;
    struct uop *q, *p, *valid;
    if (opt->of == OF_SUM)
        return cover_sum(w, opt);
    if (!work_open(w, opt))
        return false;
    if (o->stage || opt->axis < 0 || opt->axis >= work_loops_before_lanes(o) || o->n >= RANGES_MAX)
        return work_refuse(w, "the nest has no such loop outside its lanes");
    struct uop *r = o->range[opt->axis], *was = o->was[opt->axis];
    if (!cut_in_blocks(w, r, opt->n, &q, &p, &valid))
        return false;
    work_remove_range(o, opt->axis);
    work_insert_range(o, opt->axis, p, was);
    work_insert_range(o, opt->axis, q, was);
    work_substitute(w, r, sym_add(t, sym_muli(t, q, opt->n), p));
    work_close(w);
    if (valid) {
        struct uop *now = store_if(t, loads_if(t, w->ast->src[opt->store], valid, q, p), valid);
        work_put_stores(w, opt->store, &now, 1);
    }
    return true;
}

/* ------------------------------------------------------------------------- sums of many threads */

/* A sum divided among n threads, each with every n-th term: the value that is summed, the remaining
 * loops, and the thread, a range of n. */
struct shared_sum { struct uop *sum, *value, *loop[MAX_RANK + 8], *thread; int nloop; };

static bool take_shared_sum(struct work *w, const struct opt *opt, struct shared_sum *x)
{
    struct tgc *t = w->t;
    struct uop *sum, *q, *valid;
    *x = (struct shared_sum){.nloop = 0};
    if (!work_take_sum(w, opt, opt->axis, &sum))
        return false;
    struct uop *store = w->ast->src[opt->store], *r = sum->src[opt->axis + 1];
    const struct uop *around = work_stage_of(w, store, sum);
    for (int i = 2; around && i < around->nsrc; i++)
        if (uop_depends_on(t, sum, around->src[i]))
            return work_refuse(w, "the sum depends on a loop of the stage around it");
    if (work_is_of_sum(w, store, sum))
        return work_refuse(w, "the sum is a term of another one");
    if (opt->n > BLOCK_MAX || sum->nsrc > MAX_RANK + 4)
        return work_refuse(w, "a block has at most 256 threads");
    if (!cut_in_blocks(w, r, opt->n, &q, &x->thread, &valid))
        return false;
    struct uop *value =
        uop_substitute(t, sum->src[0], r, sym_add(t, sym_muli(t, q, opt->n), x->thread));
    if (valid) {
        enum op op = REDUCE_OP(sum->arg.i);
        struct uop *choice[3] = {valid, loads_if(t, value, valid, q, x->thread),
                                 uop_const(t, sum->dtype, reduce_identity(op, sum->dtype))};
        value = uop_intern(t, OP_WHERE, sum->dtype, choice, 3, (union arg){0});
    }
    x->sum = sum;
    x->value = value;
    for (int i = 1; i < sum->nsrc; i++)
        if (i != opt->axis + 1 || q->op == OP_RANGE)
            x->loop[x->nloop++] = i == opt->axis + 1 ? q : sum->src[i];
    return true;
}

static void put_sum(struct work *w, const struct opt *opt, struct uop *sum, struct uop *all)
{
    uop_set_origin(w->t, all, sum);
    struct uop *now = uop_substitute(w->t, w->ast->src[opt->store], sum, all);
    work_put_stores(w, opt->store, &now, 1);
}

bool apply_block_reduce(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct shared_sum x;
    struct uop *src[MAX_RANK + 9], *load[2], *stage[3];
    if (!take_shared_sum(w, opt, &x))
        return false;
    src[0] = x.value;
    ARRAY_COPY(src + 1, x.loop, x.nloop);
    struct uop *thread = uop_axis(t, uop_int(t, opt->n), AXIS_LOOP, WORKER_BLOCK);
    struct uop *part =
        x.nloop ? uop_intern(t, OP_REDUCE, x.sum->dtype, src, 1 + x.nloop, x.sum->arg) : x.value;
    stage[0] = uop_substitute(t, part, x.thread, thread);
    stage[1] = stage[2] = thread;
    union arg memory = {.p = work_new_memory(w, x.sum->dtype, opt->n, SPACE_SHARED)};
    load[0] = uop_intern(t, OP_STAGE, x.sum->dtype, stage, 3, memory);
    load[1] = x.thread;
    src[0] = uop_intern(t, OP_LOAD, x.sum->dtype, load, 2, (union arg){0});
    src[1] = x.thread;
    put_sum(w, opt, x.sum, uop_intern(t, OP_REDUCE, x.sum->dtype, src, 2, x.sum->arg));
    return true;
}

/* Whether the store's loop may become the block's threads: it is plain, and no other loop is
 * theirs. */
static bool may_be_sliced(struct work *w, const struct uop *store, int to, int64_t n)
{
    int first = store_first_range(store);
    if (to < 0 || first + to >= store->nsrc)
        return work_refuse(w, "the store has no such loop");
    const struct uop *columns = store->src[first + to];
    for (int i = first; i < store->nsrc; i++)
        if (range_is_item(store->src[i]) || range_is_shared(store->src[i]) ||
            range_is_of_block(store->src[i]))
            return work_refuse(w, "a loop of the nest is distributed over threads already");
    if (RANGE_AXIS(columns->arg.i) != AXIS_LOOP || RANGE_WORKER(columns->arg.i) != WORKER_EACH ||
        range_fixed_size(columns) < 2)
        return work_refuse(
            w, "the loop is a lane, or its number of iterations is unknown at compile time");
    return range_fixed_size(columns) * n <= BLOCK_MAX ||
           work_refuse(w, "a block has at most 256 threads");
}

/* SLICE_K and SLICE_K_ADJACENT: row length of the partial sums in shared memory, and whether rows
 * are by column. */
struct part_place { int64_t row; bool by_column; };

/* SLICE_K_ADJACENT pads rows by one element: the threads that add partial sums read different
 * banks. */
static struct uop *place_of_part(struct tgc *t, const struct part_place *l, struct uop *column,
                                 struct uop *part)
{
    return l->by_column ? sym_add(t, sym_muli(t, column, l->row), part)
                        : sym_add(t, sym_muli(t, part, l->row), column);
}

bool apply_slice_k(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct shared_sum x;
    struct uop *src[MAX_RANK + 9], *load[2], *stage[3];
    if (!take_shared_sum(w, opt, &x))
        return false;
    struct uop *store = w->ast->src[opt->store];
    if (!may_be_sliced(w, store, opt->to, opt->n) || !may_be_placed(w))
        return false;
    struct uop *column = store->src[store_first_range(store) + opt->to];
    if (!uop_depends_on(t, x.sum, column))
        return work_refuse(w, "the sum is invariant in the loop");
    int64_t n = range_fixed_size(column), threads = n * opt->n;
    bool adjacent = opt->op == OPT_SLICE_K_ADJACENT;
    struct part_place l = {adjacent ? opt->n + 1 : n, adjacent};
    struct uop *thread = uop_axis(t, uop_int(t, threads), AXIS_LOOP, WORKER_BLOCK),
               *item = uop_axis(t, uop_int(t, threads), AXIS_LOOP, WORKER_ITEM);
    work_name_like(t, item, column);
    src[0] = x.value;
    ARRAY_COPY(src + 1, x.loop, x.nloop);
    struct uop *part =
        x.nloop ? uop_intern(t, OP_REDUCE, x.sum->dtype, src, 1 + x.nloop, x.sum->arg) : x.value;
    struct uop *inner = uop_int(t, l.by_column ? opt->n : n), *outer = sym_div(t, thread, inner);
    inner = sym_mod(t, thread, inner);
    part = uop_substitute(t, part, x.thread, l.by_column ? inner : outer);
    stage[0] = uop_substitute(t, part, column, l.by_column ? outer : inner);
    stage[1] = l.by_column ? place_of_part(t, &l, outer, inner) : thread;
    stage[2] = thread;
    union arg memory = {
        .p = work_new_memory(w, x.sum->dtype, l.by_column ? n * l.row : threads, SPACE_SHARED)};
    load[0] = uop_intern(t, OP_STAGE, x.sum->dtype, stage, 3, memory);
    load[1] = place_of_part(t, &l, column, x.thread);
    src[0] = uop_intern(t, OP_LOAD, x.sum->dtype, load, 2, (union arg){0});
    src[1] = x.thread;
    put_sum(w, opt, x.sum, uop_intern(t, OP_REDUCE, x.sum->dtype, src, 2, x.sum->arg));
    struct uop *now = uop_substitute(t, w->ast->src[opt->store], column, item),
               *first = sym_lt(t, item, uop_int(t, n));
    now = store_if(t, loads_if(t, now, first, item, item), first);
    work_put_stores(w, opt->store, &now, 1);
    w->is_placed = true;
    return true;
}

bool apply_shuffle_reduce(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct shared_sum x;
    struct uop *src[MAX_RANK + 10];
    if (!take_shared_sum(w, opt, &x))
        return false;
    if (x.sum->dtype != DTYPE_F32)
        return work_refuse(w, "only sums of f32 are reduced by shuffles");
    struct uop *thread = uop_axis(t, uop_int(t, opt->n), AXIS_LOOP, WORKER_BLOCK);
    src[0] = x.value;
    src[1] = x.thread;
    ARRAY_COPY(src + 2, x.loop, x.nloop);
    struct uop *all = uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2 + x.nloop, x.sum->arg);
    put_sum(w, opt, x.sum, uop_substitute(t, all, x.thread, thread));
    w->is_placed = true;
    return true;
}

/* --------------------------------------------------------------------------------------- stages */

/* The opt's stage, if it is a row: one element for each iteration of its only loop. */
static struct uop *find_row(struct work *w, const struct opt *opt)
{
    work_close(w);
    struct uop *stage = opt->of != OF_STAGE ? NULL
                        : work_find(w, w->ast->src[opt->store], OP_STAGE, opt->number);
    if (stage && stage->nsrc == 3 && stage->src[1] == stage->src[2] &&
        buffer_space(stage->arg.p) == SPACE_SCRATCH)
        return stage;
    work_refuse(w, "the store has no such stage of one loop in scratch");
    return NULL;
}

bool apply_inline(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *stage = find_row(w, opt), *store = w->ast->src[opt->store];
    if (!stage)
        return false;
    for (;;) {
        int n, i = 0;
        struct uop **order = uop_toposort(t, &store, 1, &n);
        while (i < n && !(order[i]->op == OP_LOAD && order[i]->src[0] == stage))
            i++;
        if (i == n)
            break;
        if (order[i]->nsrc > 2)
            return work_refuse(w, "the stage is read under a condition");
        store = uop_substitute(t, store, order[i],
                               uop_substitute(t, stage->src[0], stage->src[2], order[i]->src[1]));
    }
    work_put_stores(w, opt->store, &store, 1);
    return true;
}

bool apply_share_stage(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *stage = find_row(w, opt), *store = w->ast->src[opt->store], *src[3];
    if (!stage)
        return false;
    const struct buffer *was = stage->arg.p;
    if (was->ndim != 1 || was->dim[0]->vmax > INT32_MAX / 8 || was->dim[0]->vmax < 1 ||
        RANGE_AXIS(stage->src[2]->arg.i) != AXIS_LOOP)
        return work_refuse(w, "the stage is not one loop of bounded size");
    struct uop *thread = uop_axis(t, stage->src[2]->src[0], AXIS_LOOP, WORKER_BLOCK);
    work_name_like(t, thread, stage->src[2]);
    src[0] = uop_substitute(t, stage->src[0], stage->src[2], thread);
    src[1] = src[2] = thread;
    union arg memory = {.p = work_new_memory(w, stage->dtype, was->dim[0]->vmax, SPACE_SHARED)};
    struct uop *local = uop_intern(t, OP_STAGE, stage->dtype, src, 3, memory);
    store = uop_substitute(t, store, stage, local);
    work_put_stores(w, opt->store, &store, 1);
    return true;
}

/* --------------------------------------------------------------------- what stores pass on */

bool apply_share_scratch(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop_map by = {.t = t, .scratch = true};
    int passed = 0;
    (void)opt;
    work_close(w);
    for (int i = 0; i < w->ast->nsrc; i++) {
        struct uop *memory = w->ast->src[i]->src[0];
        const struct buffer *b = uop_buffer_of(memory);
        if (b->kind != BUFFER_SCRATCH || b->scratch.space == SPACE_SHARED ||
            b->scratch.space == SPACE_GLOBAL || map_get(&by, memory))
            continue;
        if (b->ndim != 1 || b->dim[0]->op != OP_CONST)
            return work_refuse(w, "the scratch's size is unknown at compile time");
        struct buffer *local = work_new_memory(w, b->dtype, b->dim[0]->arg.i, SPACE_SHARED);
        map_set(&by, memory, uop_buffer(t, local));
        passed++;
    }
    if (!passed)
        return work_refuse(w, "the kernel has no scratch that its stores share");
    w->ast = uop_substitute_all(t, w->ast, &by);
    return true;
}
