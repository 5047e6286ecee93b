/* opts.c - applies opts to a kernel's loops; each opt has its conditions here or in opts_*.c.
 *
 *      lanes 0 axis=1 n=4 kind=lane as=row           for i < 96                 i = 4*o + row
 *                                                      for o < 24 .. row < 4
 *
 * An opt that changes loops of one nest records what becomes of each range. The nest is rebuilt
 * once, when an opt is about another one: a tile's rows, panels, blocks and vectors cost one
 * substitution. */
#include "passes/kernel/opts_work.h"
#include "passes/target/compared.h"

/* ---------------------------------------------------------------------------- loops of one nest */

static bool apply_order(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    if (opt->of == OF_SUM)
        return apply_order_sum(w, opt);
    if (!work_open(w, opt))
        return false;
    int last = work_loops_before_lanes(o), first = 0;
    while (first < o->n && range_is(o->range[first], AXIS_BAND))
        first++;
    if (opt->axis < first || opt->axis >= last || opt->to < first || opt->to >= last)
        return work_refuse(w, "bands must stay outside all loops, and lanes inside");
    struct uop *r = o->range[opt->axis], *was = o->was[opt->axis];
    if (range_is(r, AXIS_ORDER))
        return work_refuse(
            w, "iterations of the loop may store to the same element: it stays as it is");
    work_remove_range(o, opt->axis);
    work_insert_range(o, opt->to, r, was);
    return true;
}

static bool apply_panel(struct work *w, const struct opt *opt)
{
    struct uop *r;
    int64_t size;
    if (!work_take_axis(w, opt, &r, &size))
        return false;
    if (opt->n < 2 || size % opt->n || RANGE_AXIS(r->arg.i) != AXIS_LOOP)
        return work_refuse(w, "n must be 2 or more and divide the loop");
    struct uop *was = w->open.was[opt->axis];
    struct uop *outer = work_new_range(w->t, size / opt->n, AXIS_LOOP),
               *part = work_new_range(w->t, opt->n, AXIS_PART);
    work_name_like(w->t, outer, r);
    work_name_like(w->t, part, r);
    work_remove_range(&w->open, opt->axis);
    work_insert_range(&w->open, opt->axis, part, was);
    work_insert_range(&w->open, opt->axis, outer, was);
    work_substitute(w, r, sym_add(w->t, sym_muli(w->t, outer, opt->n), part));
    return true;
}

/* A stage that varies along the loop must be outside of the loop's lanes. */
static bool is_staged_along(struct work *w, struct uop *r)
{
    int n;
    struct uop *value = w->open.store->src[2];
    struct uop **order = uop_toposort(w->t, &value, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STAGE && uop_depends_on(w->t, order[i], r))
            return true;
    return false;
}

static bool vectors_fit(struct work *w, struct uop *r)
{
    struct nest m;
    if (!nest_find(w->t, w->open.store, &m))
        return false;
    m.staged = w->open.stage != NULL;
    return nest_vectors_fit(&m, r);
}

static bool apply_lanes(struct work *w, const struct opt *opt)
{
    struct uop *r;
    if (!work_take_range(w, opt, &r))
        return false;
    struct uop *was = w->open.was[opt->axis], *size = r->src[0];
    bool inner = range_is_lane(r);
    if (opt->n < 1 || !uop_is_int(sym_mod(w->t, size, uop_int(w->t, opt->n)), 0))
        return work_refuse(w, "n does not divide the loop's iterations: cut it first");
    if (inner && !range_is(r, AXIS_LANE))
        return work_refuse(w, "a lane of this kind cannot be divided");
    if (opt->kind != AXIS_LANE && opt->kind != AXIS_KEPT && opt->kind != AXIS_VECTOR)
        return work_refuse(w, "a lane's kind must be lane, kept or vector");
    if (is_staged_along(w, was))
        return work_refuse(w, "a stage depends on the loop");
    if (opt->kind == AXIS_VECTOR && !vectors_fit(w, was))
        return work_refuse(w, "an access or operation along the loop has no vector form");
    struct uop *iterations = sym_div(w->t, size, uop_int(w->t, opt->n));
    struct uop *outer = uop_is_int(iterations, 1)
                            ? uop_int(w->t, 0)
                            : uop_axis(w->t, iterations, RANGE_AXIS(r->arg.i), WORKER_EACH),
               *lane = work_new_range(w->t, opt->n, opt->kind);
    work_name_like(w->t, outer, r);
    if (inner && outer->op == OP_RANGE)
        uop_name_axes(w->t, outer, "block");
    uop_name_axes(w->t, lane, opt->column ? "column" : "row");
    work_remove_range(&w->open, opt->axis);
    work_insert_range(&w->open, opt->axis, outer, was);
    work_insert_range(&w->open, w->open.n, lane, was);
    work_substitute(w, r, sym_add(w->t, sym_muli(w->t, outer, opt->n), lane));
    return true;
}

static bool apply_unroll(struct work *w, const struct opt *opt)
{
    enum { ITERATIONS_MAX = 64 };
    struct uop *r;
    int64_t size;
    if (!work_take_axis(w, opt, &r, &size))
        return false;
    if (size > ITERATIONS_MAX || range_is_lane(r))
        return work_refuse(
            w, "only a loop of at most 64 iterations that is no lane can be unrolled");
    struct uop *was = w->open.was[opt->axis], *lane = work_new_range(w->t, size, AXIS_UNROLLED);
    work_name_like(w->t, lane, r);
    work_remove_range(&w->open, opt->axis);
    work_insert_range(&w->open, w->open.n, lane, was);
    work_substitute(w, r, lane);
    return true;
}

void work_give(struct work *w, int at, enum worker worker)
{
    struct open *o = &w->open;
    struct uop *r = o->range[at];
    struct uop *shared = uop_intern(w->t, OP_RANGE, r->dtype, r->src, r->nsrc,
                                    (union arg){.i = ARG_PACK(RANGE, RANGE_ID(r->arg.i),
                                                             RANGE_AXIS(r->arg.i), worker)});
    work_name_like(w->t, shared, r);
    o->range[at] = shared;
    work_substitute(w, r, shared);
}

static bool apply_thread(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    enum worker worker = opt->op == OPT_BLOCK ? WORKER_BLOCK : WORKER_TEAM;
    if (!work_open(w, opt))
        return false;
    if (o->stage)
        return work_refuse(w, "a stage is private to each thread");
    if (opt->axis < 0 || opt->axis >= work_loops_before_lanes(o))
        return work_refuse(w, "the nest has no such loop outside its lanes");
    if (range_is(o->range[opt->axis], AXIS_ORDER))
        return work_refuse(
            w, "iterations of the loop may store to the same element: threads would race");
    for (int i = 0; i < o->n; i++)
        if (RANGE_WORKER(o->range[i]->arg.i) == worker ||
            (i == opt->axis && RANGE_WORKER(o->range[i]->arg.i) != WORKER_EACH))
            return work_refuse(w, "a loop of the nest is distributed over threads already");
    if (w->kernel->is_serial || kernel_reads_results(w->t, w->kernel))
        return work_refuse(w, "the kernel reads what it stores: threads would race");
    if (worker == WORKER_BLOCK &&
        (opt->n < 2 || opt->n > BLOCK_MAX || (w->block && w->block != opt->n)))
        return work_refuse(
            w, "a block has 2 to 256 threads, the same number in all stores of a kernel");
    w->block = worker == WORKER_BLOCK ? (int)opt->n : w->block;
    work_give(w, opt->axis, worker);
    return true;
}

static bool apply_alone(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    if (!work_open(w, opt))
        return false;
    bool grid = w->is_placed;
    for (int i = 0; i < o->n; i++) {
        if (range_is_shared(o->range[i]))
            return work_refuse(w, "a loop of the nest is distributed over threads already");
        grid |= range_is_grid(o->range[i]);
    }
    if (o->n >= RANGES_MAX || o->stage)
        return work_refuse(w, "a stage, or too many nested loops");
    w->is_placed |= grid;
    struct uop *one = uop_axis(w->t, uop_int(w->t, 1), AXIS_LOOP, grid ? WORKER_GRID : WORKER_TEAM);
    work_insert_range(o, 0, one, one);
    return true;
}

/* --------------------------------------------------------------------------------- whole stores */

bool work_is_divided(struct tgc *t, struct uop *u, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if ((order[i]->op == OP_FLOORDIV || order[i]->op == OP_FLOORMOD ||
             order[i]->op == OP_DIV || order[i]->op == OP_MOD) &&
            order[i]->dtype == DTYPE_INDEX && order[i]->src[0] != r &&
            uop_depends_on(t, order[i], r))
            return true;
    return false;
}

static bool apply_divide(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *r;
    if (opt->of == OF_SUM)
        return apply_divide_sum(w, opt);
    if (!work_take_range(w, opt, &r))
        return false;
    struct uop *by = uop_int(t, opt->n < 2 ? 1 : opt->n), *size = r->src[0];
    if (opt->n < 2 || !uop_is_int(sym_mod(t, size, by), 0) || sym_div(t, size, by)->vmax < 2 ||
        RANGE_AXIS(r->arg.i) != AXIS_LOOP)
        return work_refuse(w, "n must divide the loop's iterations and leave two loops");
    struct uop *was = w->open.was[opt->axis];
    struct uop *q = uop_range(t, sym_div(t, size, by), t->next_range++),
               *p = uop_range(t, by, t->next_range++);
    work_name_like(t, q, r);
    work_name_like(t, p, r);
    work_remove_range(&w->open, opt->axis);
    work_insert_range(&w->open, opt->axis, p, was);
    work_insert_range(&w->open, opt->axis, q, was);
    work_substitute(w, r, sym_add(t, sym_muli(t, q, opt->n), p));
    work_close(w);
    struct uop *now = w->ast->src[opt->store];
    /* on a device threads compute their position once, whatever divisions that needs */
    return device_has_grid(t) || (!work_is_divided(t, now, q) && !work_is_divided(t, now, p)) ||
           work_refuse(w, "another division of the two loops would remain");
}

struct merge { struct uop *outer, *inner, *both; int64_t size; };

bool work_is_split_again(struct tgc *t, struct uop *u, const struct uop *r)
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

/* Whether the strides of the two ranges in an offset show that they cannot be merged without a
 * division. */
static bool is_apart_at(struct tgc *t, struct uop *offset, const struct merge *m)
{
    int64_t outer, inner;
    return index_stride(t, offset, m->outer, &outer) &&
           index_stride(t, offset, m->inner, &inner) && outer != sat_mul(inner, m->size);
}

/* is_apart_at() for all accesses of a store: a test before anything is built. */
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

static bool apply_merge(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct open *o = &w->open;
    struct uop_map by = {.t = t, .scratch = true};
    int64_t total, n;
    struct uop *r, *part[4];
    if (opt->of == OF_SUM)
        return apply_merge_sum(w, opt);
    if (!work_take_axis(w, opt, &r, &n))
        return false;
    if (opt->axis + 1 >= o->n || range_is_lane(o->range[opt->axis + 1]) || range_is_lane(r) ||
        range_is(o->range[opt->axis + 1], AXIS_ORDER))
        return work_refuse(w, "there is no loop inside it to merge with");
    struct merge m = {r, o->range[opt->axis + 1], NULL, range_fixed_size(o->range[opt->axis + 1])};
    if (m.size < 1 || __builtin_mul_overflow(n, m.size, &total))
        return work_refuse(w, "the loops' numbers of iterations are unknown at compile time");
    m.both = uop_range(t, uop_int(t, total), t->next_range++);
    if (opt->op == OPT_MERGE && o->nsubstitution == 0 && n > 1 && m.size > 1 &&
        is_apart(t, o->store, &m))
        return work_refuse(w, "offsets depend on the two loops separately: use flatten");
    work_remove_range(o, opt->axis + 1);
    o->range[opt->axis] = m.both;
    work_substitute(w, m.outer, sym_div(t, m.both, uop_int(t, m.size)));
    work_substitute(w, m.inner, sym_mod(t, m.both, uop_int(t, m.size)));
    for (int i = 0; i < o->nsubstitution; i++)
        map_set(&by, o->from[i], o->to[i]);
    for (int i = 0; i < o->first; i++) {
        part[i] = uop_substitute_all(t, o->store->src[i], &by);
        if (opt->op == OPT_MERGE && i > 0 && work_is_split_again(t, part[i], m.both))
            return work_refuse(w, "a division of the merged loop would remain");
    }
    work_close(w);
    return true;
}

/* ----------------------------------------------------------------------------------- the driver */

static bool apply(struct work *w, const struct opt *o)
{
    if (o->store < 0 || o->store >= w->ast->nsrc)
        return work_refuse(w, "the kernel has no such store");
    switch (o->op) {
    case OPT_MERGE: case OPT_FLATTEN: return apply_merge(w, o);
    case OPT_ORDER: return apply_order(w, o);
    case OPT_CUT: return apply_cut(w, o);
    case OPT_ROUND: return apply_round(w, o);
    case OPT_OVERLAP: return apply_overlap(w, o);
    case OPT_DIVIDE: return apply_divide(w, o);
    case OPT_PANEL: return apply_panel(w, o);
    case OPT_LANES: return apply_lanes(w, o);
    case OPT_UNROLL: return apply_unroll(w, o);
    case OPT_FILL: return apply_fill(w, o);
    case OPT_DECIDE: return apply_decide(w, o);
    case OPT_STAGE: return apply_stage(w, o);
    case OPT_ROWS: return apply_rows(w, o);
    case OPT_POINTS: return apply_points(w, o);
    case OPT_GROUP: return apply_group(w, o);
    case OPT_PACK: return apply_pack(w, o);
    case OPT_JOIN: return apply_join(w, o);
    case OPT_FRAGMENT: return apply_fragment(w, o);
    case OPT_THREAD: case OPT_BLOCK: return apply_thread(w, o);
    case OPT_GRID: case OPT_ITEM: return apply_place(w, o);
    case OPT_COVER: return apply_cover(w, o);
    case OPT_STAGE_OPERAND: case OPT_STAGE_WHOLE_OPERAND: return apply_stage_operand(w, o);
    case OPT_SWIZZLE: return apply_swizzle(w, o);
    case OPT_PIPELINE: return apply_pipeline(w, o);
    case OPT_PERSISTENT: return apply_persistent(w, o);
    case OPT_WARP_SPECIALIZE: return apply_warp_specialize(w, o);
    case OPT_CLUSTER_MULTICAST: return apply_cluster_multicast(w, o);
    case OPT_MMA: return apply_mma(w, o);
    case OPT_MMA_LAYOUT: return apply_mma_layout(w, o);
    case OPT_MMA_ROW_LAYOUT: return apply_mma_row_layout(w, o);
    case OPT_MMA_ROW_REDUCE: return apply_mma_row_reduce(w, o);
    case OPT_KEEP_IN_REGISTERS: return apply_keep_in_registers(w, o);
    case OPT_VECTOR_LOAD: return apply_vector_load(w, o);
    case OPT_BLOCK_REDUCE: return apply_block_reduce(w, o);
    case OPT_SLICE_K: case OPT_SLICE_K_ADJACENT: return apply_slice_k(w, o);
    case OPT_SHUFFLE_REDUCE: return apply_shuffle_reduce(w, o);
    case OPT_FIRST: return apply_first(w, o);
    case OPT_INLINE: return apply_inline(w, o);
    case OPT_SHARE_STAGE: return apply_share_stage(w, o);
    case OPT_SHARE_SCRATCH: return apply_share_scratch(w, o);
    case OPT_STAGE_EPILOGUE: return apply_stage_epilogue(w, o);
    case OPT_SPLIT_K: return apply_split_k(w, o);
    case OPT_ALIAS_EPILOGUE: return apply_alias_epilogue(w, o);
    case OPT_BULK_EPILOGUE: return apply_bulk_epilogue(w, o);
    case OPT_ALONE: return apply_alone(w, o);
    case OPT_COUNT: break;
    }
    TGC_BUG(w->t, "no such opt");
}

/* DEBUG=3: prints each opt as it is applied. */
static void tell(struct tgc *t, const struct kernel *k, const struct variant *v,
                 const struct opt *opt)
{
    struct text line = {.t = t};
    opt_print(&line, opt);
    fprintf(stderr, "opt: %s (%s): %s\n", k->name, isa_name(v ? v->isa : isa_portable()), line.s);
}

/* Drops scratch since `nscratch` that a later opt of the list has made unused. */
static void drop_scratch(struct tgc *t, struct kernel *k, struct uop *ast, int nscratch)
{
    int nuop, n = nscratch;
    if (nscratch == 0)           /* the array may be shared with another kernel */
        k->scratch = mem_copy(t, k->scratch, (size_t)k->nscratch * sizeof *k->scratch);
    struct uop **order = k->nscratch > nscratch ? uop_toposort(t, &ast, 1, &nuop) : NULL;
    for (int i = nscratch; i < k->nscratch; i++) {
        bool used = false;
        for (int j = 0; j < nuop && !used; j++)
            used = (order[j]->op == OP_STAGE || order[j]->op == OP_BUFFER) &&
                   order[j]->arg.p == k->scratch[i];
        if (used)
            k->scratch[n++] = k->scratch[i];
    }
    k->nscratch = n;
}

/* Counts the threads of a block, by the stores' ITEM loops. */
static bool count_items(struct work *w)
{
    const struct uop *store = w->ast->src[0];
    int64_t threads = 1;
    bool any = false;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        if (range_is_item(store->src[i])) {
            threads = sat_mul(threads, range_fixed_size(store->src[i]));
            any = true;
        }
    if (any && (threads < 2 || threads > ITEMS_MAX))
        return work_refuse(w, "a block has 2 to 512 threads");
    w->block = any ? (int)threads : w->block;
    return true;
}

/* Whether a block's threads may share what the opts say; the verifier decides. */
static bool is_fit_for_blocks(struct work *w)
{
    struct violation found;
    if (kernel_local_nbytes(w->kernel) > device_local_nbytes(w->t))
        return work_refuse(w, mem_printf(w->t, "a block has at most %lld KB of shared memory",
                                         (long long)device_local_nbytes(w->t) >> 10));
    return kernel_check(w->t, w->ast, &found) || work_refuse(w, found.what);
}

static bool apply_all(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt,
                      int n, struct refusal *refusal)
{
    struct opts *noted = v ? &v->opts : &k->opts;
    struct mem_mark mark = scratch_mark(t);
    struct work *w = scratch_array(t, 1, sizeof *w);
    *w = (struct work){.t = t, .kernel = k, .ast = v ? v->ast : k->ast, .block = k->block};
    struct buffer **scratch = k->scratch;
    int nscratch = k->nscratch;
    bool ok = true;
    int done = 0;
    while (done < n && ok)
        ok = apply(w, &opt[done++]);
    const struct opt *refused = ok ? NULL : &opt[done - 1];
    if (ok)
        work_close(w);
    if (ok)
        drop_scratch(t, k, w->ast, w->is_placed && k->nvariant == 0 ? 0 : nscratch);
    if (ok && w->is_placed)
        ok = count_items(w) && work_scratch_fits(w);
    if (ok && (w->block || w->is_placed))
        ok = is_fit_for_blocks(w) && work_matrices_fit(w);
    if (ok) {
        k->block = w->block;
        *(v ? &v->ast : &k->ast) = w->ast;
        k->stores_twice |= w->stores_twice;
        for (int i = 0; i < n; i++) {
            VEC_PUSH(t, noted->v, noted->n, noted->cap, opt[i]);
            if (t->debug >= 3)
                tell(t, k, v, &opt[i]);
        }
    } else {
        k->scratch = scratch;
        k->nscratch = nscratch;
        compare_note(t, refused, w->why);
        if (refusal)
            *refusal = (struct refusal){refused ? refused->op : OPT_COUNT, w->why};
    }
    scratch_release(t, mark);
    return ok;
}

static const char *list_text(struct tgc *t, const struct opt *opt, int n)
{
    struct text list = {.t = t};
    for (int i = 0; i < n; i++) {
        opt_print(&list, &opt[i]);
        text_puts(&list, i + 1 < n ? "; " : "");
    }
    return list.s;
}

bool opt_apply(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt, int n,
               struct refusal *refusal)
{
    if (t->limit && !limit_takes(t, "pass %s, kernel '%s': %s", t->limit->pass, k->name,
                                 list_text(t, opt, n))) {
        if (refusal)
            *refusal = (struct refusal){OPT_COUNT, "TGC_OPT_LIMIT"};
        return false;
    }
    return apply_all(t, k, v, opt, n, refusal);
}

/* No step of its own: who asks has no other way. */
void opt_must(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt, int n)
{
    struct refusal refusal;
    if (!apply_all(t, k, v, opt, n, &refusal))
        TGC_BUG(t, "%s: %s: %s", k->name, list_text(t, opt, n), refusal.why);
}
