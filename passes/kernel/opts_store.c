/* opts_store.c - opts of whole stores (cut, joined, lanes padded) and of their sums. */
#include "passes/kernel/opts_work.h"

#include <string.h>

struct uop *stage_as_store(struct tgc *t, const struct uop *stage)
{
    struct uop **src = scratch_array(t, (size_t)stage->nsrc + 1, sizeof *src);
    int n = 0;
    src[n++] = uop_buffer(t, (struct buffer *)(uintptr_t)stage->arg.p);
    src[n++] = stage->src[1];
    src[n++] = stage->src[0];
    for (int k = 2; k < stage->nsrc; k++)
        src[n++] = stage->src[k];
    return uop_intern(t, OP_STORE, stage->dtype, src, n, (union arg){0});
}

struct uop *store_as_stage(struct tgc *t, const struct uop *store)
{
    struct uop **src = scratch_array(t, (size_t)store->nsrc, sizeof *src);
    int n = 0;
    src[n++] = store->src[2];
    src[n++] = store->src[1];
    for (int k = 3; k < store->nsrc; k++)
        src[n++] = store->src[k];
    return uop_intern(t, OP_STAGE, store->src[2]->dtype, src, n,
                      (union arg){.p = uop_buffer_of(store->src[0])});
}

static bool rest_has_place(struct work *w, const struct opt *opt)
{
    return (opt->to > opt->store && opt->to <= w->ast->nsrc) ||
           work_refuse(w, "the remainder's store must come after the first part");
}

static void put_parts(struct work *w, const struct opt *opt, struct uop *const *part)
{
    work_put_stores(w, opt->store, part, 1);
    struct uop *before_rest[2] = {w->ast->src[opt->to - 1], part[1]};
    work_put_stores(w, opt->to - 1, before_rest, 2);
}

bool apply_cut(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *r, *part[2];
    int64_t iterations;
    if (!work_take_axis(w, opt, &r, &iterations))
        return false;
    if (w->open.stage || range_is_lane(r))
        return work_refuse(w, "only a loop of a store that is no lane can be cut");
    if (opt->n < 1 || opt->n >= iterations || opt->from < 1 || opt->from > opt->n)
        return work_refuse(w, "a cut must leave iterations on both sides");
    if (opt->from < opt->n && t->threads > 1)
        return work_refuse(w, "two threads would store the same element");
    work_close(w);
    if (!rest_has_place(w, opt))
        return false;
    struct uop *store = w->ast->src[opt->store];
    int axis = store_first_range(store) + opt->axis;
    store_cut(t, store, axis, opt->n, opt->from, &part[0], &part[1]);
    put_parts(w, opt, part);
    w->stores_twice |= opt->from < opt->n;
    return true;
}

/* Whether n of the loop's iterations may leave a remainder, as only the run knows. */
static bool leaves_rest(struct work *w, const struct uop *r, int64_t n)
{
    if (r->src[0]->op == OP_CONST)
        return work_refuse(w, "the loop's number of iterations is known: use cut");
    if (n < 2 || r->src[0]->vmax < n)
        return work_refuse(w, "the loop never has so many iterations");
    if (uop_is_int(sym_mod(w->t, r->src[0], uop_int(w->t, n)), 0))
        return work_refuse(w, "n divides the loop's iterations: there is no remainder");
    return true;
}

bool apply_round(struct work *w, const struct opt *opt)
{
    struct uop *r, *part[2];
    if (!work_take_range(w, opt, &r))
        return false;
    if (w->open.stage || range_is_lane(r))
        return work_refuse(w, "only a loop of a store that is no lane can be cut");
    if (!leaves_rest(w, r, opt->n))
        return false;
    work_close(w);
    if (!rest_has_place(w, opt))
        return false;
    struct uop *store = w->ast->src[opt->store];
    store_round(w->t, store, store_first_range(store) + opt->axis, opt->n, &part[0], &part[1]);
    put_parts(w, opt, part);
    return true;
}

/* The last n iterations overlap the whole multiples: their elements are stored twice, with the same
 * values. */
bool apply_overlap(struct work *w, const struct opt *opt)
{
    struct uop *r, *part[3];
    if (!work_take_range(w, opt, &r))
        return false;
    if (w->open.stage || range_is_lane(r) || range_is(r, AXIS_ORDER))
        return work_refuse(w, "only a loop of a store that is no lane can be cut");
    if (!leaves_rest(w, r, opt->n))
        return false;
    if (w->t->threads > 1)
        return work_refuse(w, "two threads would store the same element");
    if (w->kernel->is_serial || kernel_reads_results(w->t, w->kernel))
        return work_refuse(w, "the kernel reads what it stores");
    work_close(w);
    struct uop *store = w->ast->src[opt->store];
    store_overlap(w->t, store, store_first_range(store) + opt->axis, opt->n, part);
    work_put_stores(w, opt->store, part, 3);
    w->stores_twice = true;
    return true;
}

/* Masks lanes beyond the last column: neither loaded nor stored. Built without folding, so that the
 * model's own conditions do not merge with the mask. */
static struct uop *gate_columns(struct tgc *t, struct uop *store, struct uop *column,
                                struct uop *lane, int64_t ncolumns)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n), *src[80];
    struct uop *valid = sym_lt(t, column, uop_int(t, ncolumns));
    struct uop_map by = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        bool changed = false;
        int nsrc = 0;
        for (int k = 0; k < u->nsrc; k++) {
            if (u == store && k == 3)
                src[nsrc++] = valid;
            struct uop *s = map_get(&by, u->src[k]);
            changed |= s != NULL;
            src[nsrc++] = s ? s : u->src[k];
        }
        if (u->op == OP_LOAD && u->nsrc == 2 && uop_depends_on(t, u->src[1], lane)) {
            src[nsrc++] = valid;
            src[nsrc++] = uop_consti(t, u->dtype, 0);
            changed = true;
        }
        if (changed || u == store)
            map_set(&by, u, uop_intern(t, u->op, u->dtype, src, nsrc, u->arg));
    }
    return map_get(&by, store);
}

bool apply_fill(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *r;
    int64_t size;
    if (!work_take_axis(w, opt, &r, &size))
        return false;
    if (!range_is(r, AXIS_LANE) || opt->axis != w->open.n - 1 || w->open.stage)
        return work_refuse(w, "only a store's innermost lane can be padded");
    if (w->open.first != 3)
        return work_refuse(w, "the store has a condition already");
    if (opt->n < 2 || opt->n > 64 || size % opt->n == 0)
        return work_refuse(w, "the lane needs no padding");
    struct uop *blocks = work_new_range(t, (size + opt->n - 1) / opt->n, AXIS_LANE),
               *lane = work_new_range(t, opt->n, AXIS_VECTOR);
    struct uop *column = sym_add(t, sym_muli(t, blocks, opt->n), lane);
    uop_name_axes(t, lane, "column");
    work_remove_range(&w->open, opt->axis);
    work_insert_range(&w->open, w->open.n, blocks, r);
    work_insert_range(&w->open, w->open.n, lane, r);
    work_substitute(w, r, column);
    work_close(w);
    struct uop *gated = gate_columns(t, w->ast->src[opt->store], column, lane, size);
    work_put_stores(w, opt->store, &gated, 1);
    return true;
}

bool apply_decide(struct work *w, const struct opt *opt)
{
    work_close(w);
    struct uop *store = w->ast->src[opt->store], *decided = stacks_decide(w->t, store);
    if (decided == store)
        return work_refuse(w, "each STACK's index belongs to an unrolled loop");
    work_put_stores(w, opt->store, &decided, 1);
    return true;
}

bool apply_rows(struct work *w, const struct opt *opt)
{
    struct uop *r;
    int64_t size;
    if (!work_take_axis(w, opt, &r, &size))
        return false;
    if (opt->of != OF_STORE || opt->n < 2 || size % opt->n || range_is_lane(r))
        return work_refuse(w, "n must be 2 or more and divide the iterations of a store's loop");
    work_close(w);
    struct uop *store = w->ast->src[opt->store];
    struct uop *by =
        rows_take(w->t, w->kernel, store, store_first_range(store) + opt->axis, opt->n);
    if (by == store)
        return work_refuse(w, "no stage has a product that the loop's iterations could share");
    work_put_stores(w, opt->store, &by, 1);
    return true;
}

bool apply_points(struct work *w, const struct opt *opt)
{
    struct uop *r;
    int64_t size;
    if (!work_take_axis(w, opt, &r, &size))
        return false;
    if (opt->of != OF_STORE || opt->n < 2 || size % opt->n || opt->to < 0 ||
        opt->to >= w->open.n || range_fixed_size(w->open.range[opt->to]) < 2)
        return work_refuse(
            w,
            "n must be 2 or more and divide the iterations of a store's loop, along another loop");
    work_close(w);
    struct uop *store = w->ast->src[opt->store];
    int first = store_first_range(store);
    struct uop *by =
        points_take(w->t, w->kernel, store, first + opt->axis, first + opt->to, opt->n);
    if (by == store)
        return work_refuse(
            w, "no rows are gathered for the loop's iterations, contiguous along loop `to`");
    work_put_stores(w, opt->store, &by, 1);
    return true;
}

/* linearize.c makes one nest of stores with the same leading loops. */
bool apply_join(struct work *w, const struct opt *opt)
{
    work_close(w);
    if (opt->to < 0 || opt->to >= opt->store || opt->of != OF_STORE)
        return work_refuse(w, "`to` must be an earlier store");
    const struct uop *store = w->ast->src[opt->to];
    struct uop *rest = w->ast->src[opt->store], *was = rest;
    for (int k = 3; k < store->nsrc && k < rest->nsrc; k++) {
        struct uop *a = store->src[k], *b = rest->src[k];
        if (a == b)
            continue;
        if (a->op != OP_RANGE || b->op != OP_RANGE || a->src[0] != b->src[0] ||
            a->src[0]->op != OP_CONST || range_is_lane(a) || range_is_lane(b) ||
            range_is(a, AXIS_PART) || range_is(b, AXIS_PART) || range_is(a, AXIS_ORDER) ||
            range_is(b, AXIS_ORDER) || uop_depends_on(w->t, rest, a))
            break;
        rest = uop_substitute(w->t, rest, b, a);
    }
    if (rest == was)
        return work_refuse(w, "the leading loops have other sizes");
    work_put_stores(w, opt->store, &rest, 1);
    return true;
}

/* ----------------------------------------------------------------------------------------- sums */

bool work_take_sum(struct work *w, const struct opt *opt, int axis, struct uop **sum)
{
    work_close(w);
    *sum = work_find(w, w->ast->src[opt->store], OP_REDUCE, opt->number);
    if (!*sum)
        return work_refuse(w, "the store has no such sum");
    if (axis < 0 || axis + 1 >= (*sum)->nsrc || (*sum)->src[axis + 1]->op != OP_RANGE)
        return work_refuse(w, "the sum has no such loop");
    if (REDUCE_MATRIX((*sum)->arg.i) && opt->op != OPT_STAGE_OPERAND &&
        opt->op != OPT_STAGE_WHOLE_OPERAND && opt->op != OPT_SWIZZLE && opt->op != OPT_PIPELINE &&
        opt->op != OPT_WARP_SPECIALIZE && opt->op != OPT_CLUSTER_MULTICAST && opt->op != OPT_MMA)
        return work_refuse(w, "a matrix instruction computes the sum: its loops are fixed");
    return !range_is((*sum)->src[axis + 1], AXIS_GROUP) ||
           work_refuse(w, "a group of bytes must stay the innermost loop");
}

static bool put_sum(struct work *w, const struct opt *opt, struct uop *sum, struct uop *const *src,
                    int n)
{
    struct uop *by = uop_intern(w->t, OP_REDUCE, sum->dtype, src, n, sum->arg);
    uop_set_origin(w->t, by, sum);
    struct uop *now = uop_substitute(w->t, w->ast->src[opt->store], sum, by);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}

bool apply_merge_sum(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *src[MAX_RANK + 8];
    struct uop_map by = {.t = t, .scratch = true};
    int64_t size[2], total;
    int n = 0;
    if (!work_take_sum(w, opt, opt->axis, &sum) || !work_take_sum(w, opt, opt->axis + 1, &sum))
        return false;
    struct uop *const *r = &sum->src[opt->axis + 1];
    for (int i = 0; i < 2; i++)
        if (sum->nsrc > MAX_RANK || !uop_const_int(r[i]->src[0], &size[i]) ||
            RANGE_AXIS(r[i]->arg.i) != AXIS_LOOP || RANGE_WORKER(r[i]->arg.i) != WORKER_EACH)
            return work_refuse(w, "only plain loops of fixed size can be merged");
    if (__builtin_mul_overflow(size[0], size[1], &total) || total > INT32_MAX)
        return work_refuse(w, "the merged loop would have too many iterations");
    struct uop *both = uop_range(t, uop_int(t, total), t->next_range++);
    work_name_like(t, both, r[1]);
    map_set(&by, r[0], sym_div(t, both, uop_int(t, size[1])));
    map_set(&by, r[1], sym_mod(t, both, uop_int(t, size[1])));
    for (int i = 0; i < sum->nsrc; i++)
        if (i != opt->axis + 2)
            src[n++] = i == opt->axis + 1 ? both : sum->src[i];
    src[0] = uop_substitute_all(t, sum->src[0], &by);
    if (opt->op == OPT_MERGE && work_is_split_again(t, src[0], both))
        return work_refuse(w, "a division of the merged loop would remain");
    return put_sum(w, opt, sum, src, n);
}

/* Whether a sum or a stage would be computed once for each term. */
static bool has_parts_along(struct tgc *t, struct uop *value, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(t, &value, 1, &n);
    for (int i = 0; i < n; i++)
        if ((order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE) &&
            uop_depends_on(t, order[i], r))
            return true;
    return false;
}

bool apply_vector_load(struct work *w, const struct opt *opt)
{
    enum { TERMS_MOST = 16 };
    struct tgc *t = w->t;
    struct uop *sum, *term[TERMS_MOST], *src[MAX_RANK + 8];
    int64_t size;
    if (!work_take_sum(w, opt, opt->axis, &sum))
        return false;
    struct uop *r = sum->src[opt->axis + 1];
    if (sum->nsrc > MAX_RANK || !uop_const_int(r->src[0], &size) ||
        RANGE_AXIS(r->arg.i) != AXIS_LOOP || RANGE_WORKER(r->arg.i) != WORKER_EACH || opt->n < 2 ||
        opt->n > TERMS_MOST || size % opt->n || (size == opt->n && sum->nsrc < 3))
        return work_refuse(w,
                           "n must be 2 or more, divide the loop's iterations, and leave a loop");
    if (has_parts_along(t, sum->src[0], r))
        return work_refuse(w, "a sum or stage would be recomputed for each term");
    bool all = size == opt->n;
    struct uop *q = all ? uop_int(t, 0) : uop_range(t, uop_int(t, size / opt->n), t->next_range++);
    if (!all)
        work_name_like(t, q, r);
    for (int64_t i = 0; i < opt->n; i++)
        term[i] = uop_substitute(t, sum->src[0], r, sym_addi(t, sym_muli(t, q, opt->n), i));
    for (int64_t n = opt->n; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            term[i] = uop_binary(t, REDUCE_OP(sum->arg.i), term[2 * i], term[2 * i + 1]);
        if (n % 2)
            term[n / 2] = term[n - 1];
    }
    int n = 0;
    for (int i = 0; i < sum->nsrc; i++)
        if (!all || i != opt->axis + 1)
            src[n++] = i == 0 ? term[0] : i == opt->axis + 1 ? q : sum->src[i];
    return put_sum(w, opt, sum, src, n);
}

bool apply_divide_sum(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *src[MAX_RANK + 2];
    int64_t size;
    int n = 0;
    if (!work_take_sum(w, opt, opt->axis, &sum))
        return false;
    struct uop *r = sum->src[opt->axis + 1];
    if (sum->nsrc > MAX_RANK || !uop_const_int(r->src[0], &size) || opt->n < 2 || size % opt->n ||
        size / opt->n < 2)
        return work_refuse(w, "n must divide the loop's iterations and leave two loops");
    struct uop *q = uop_range(t, uop_int(t, size / opt->n), t->next_range++),
               *p = uop_range(t, uop_int(t, opt->n), t->next_range++);
    work_name_like(t, q, r);
    work_name_like(t, p, r);
    for (int i = 0; i < sum->nsrc; i++) {
        if (i == opt->axis + 1)
            src[n++] = q;
        src[n++] = i == opt->axis + 1 ? p : sum->src[i];
    }
    src[0] = uop_substitute(t, sum->src[0], r, sym_add(t, sym_muli(t, q, opt->n), p));
    if (!device_has_grid(t) && (work_is_divided(t, src[0], q) || work_is_divided(t, src[0], p)))
        return work_refuse(w, "another division of the two loops would remain");
    return put_sum(w, opt, sum, src, n);
}

bool apply_order_sum(struct work *w, const struct opt *opt)
{
    struct uop *sum, *src[MAX_RANK + 2], *r;
    int from = opt->axis + 1, to = opt->to + 1;
    if (!work_take_sum(w, opt, opt->to, &sum) || !work_take_sum(w, opt, opt->axis, &sum))
        return false;
    if (sum->nsrc > MAX_RANK)
        return work_refuse(w, "too many nested loops");
    ARRAY_COPY(src, sum->src, sum->nsrc);
    r = src[from];
    memmove(&src[from], &src[from + 1], (size_t)(sum->nsrc - from - 1) * sizeof *src);
    memmove(&src[to + 1], &src[to], (size_t)(sum->nsrc - to - 1) * sizeof *src);
    src[to] = r;
    return put_sum(w, opt, sum, src, sum->nsrc);
}

struct uop *work_stage_of(struct work *w, struct uop *store, const struct uop *sum)
{
    int n, nown;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_STAGE)
            continue;
        struct uop **own = nest_order(w->t, order[i]->src[0], &nown);
        for (int j = 0; j < nown; j++)
            if (own[j] == sum)
                return order[i];
    }
    return NULL;
}

/* Whether u varies with r, apart from what has its own loop over r. */
static bool is_free_in(struct work *w, struct uop *u, const struct uop *r)
{
    struct uop_map free = {.t = w->t, .scratch = true};
    int n;
    struct uop **order = uop_toposort(w->t, &u, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *x = order[i];
        bool is_free = x == r, bound = false;
        for (int k = 0; k < x->nsrc; k++) {
            is_free |= map_get(&free, x->src[k]) != NULL;
            bound |= x->src[k] == r && (x->op == OP_REDUCE || x->op == OP_STAGE) && k > 0;
        }
        if (is_free && !bound)
            map_set(&free, x, x);
    }
    return map_get(&free, u) != NULL;
}

bool work_is_of_sum(struct work *w, struct uop *store, struct uop *sum)
{
    int n;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        for (int k = 1; order[i]->op == OP_REDUCE && order[i] != sum && k < order[i]->nsrc; k++)
            if (uop_depends_on(w->t, order[i], sum) && is_free_in(w, sum, order[i]->src[k]))
                return true;
    return false;
}

/* Whether a stage that the sum reads varies with r: with another range for r it would be a second
 * stage in the same scratch. */
static bool reads_stage_of(struct work *w, struct uop *sum, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(w->t, &sum, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STAGE && is_free_in(w, order[i], r))
            return true;
    return false;
}

bool apply_stage(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    work_close(w);
    struct uop *store = w->ast->src[opt->store], *src[RANGES_MAX + 2], *load[2];
    struct uop *sum = opt->of == OF_SUM ? work_find(w, store, OP_REDUCE, opt->number) : NULL;
    struct uop_map by = {.t = t, .scratch = true};
    int64_t size, nelem = 1;
    if (!sum || work_is_of_sum(w, store, sum))
        return work_refuse(w, "the store has no such sum, or it is a term of another one");
    if (opt->space != SPACE_SCRATCH && opt->space != SPACE_SHARED)
        return work_refuse(w, "a sum is staged in scratch or in shared memory");
    struct uop *stage = work_stage_of(w, store, sum);
    const struct uop *nest = stage ? stage : store;
    int n = 2, first = stage ? 2 : store_first_range(store);
    if (opt->axis < 0 || first + opt->axis > nest->nsrc || nest->nsrc > RANGES_MAX)
        return work_refuse(w, "the nest has no such loop");
    src[1] = load[1] = uop_int(t, 0);
    for (int i = first + opt->axis; i < nest->nsrc; i++) {
        if ((size = range_fixed_size(nest->src[i])) < 1 || range_is_lane(nest->src[i]) ||
            (nelem = sat_mul(nelem, size)) > INT32_MAX / 8)
            return work_refuse(w, "only loops of fixed size that are no lanes can be staged");
        if (reads_stage_of(w, sum, nest->src[i]))
            return work_refuse(w, "the sum reads a stage that depends on the loop");
        struct uop *r = uop_axis(t, uop_int(t, size), AXIS_LOOP,
                                 n == 2 && opt->space == SPACE_SHARED ? WORKER_BLOCK : WORKER_EACH);
        work_name_like(t, r, nest->src[i]);
        map_set(&by, nest->src[i], r);
        src[1] = sym_add(t, sym_muli(t, src[1], size), r);
        load[1] = sym_add(t, sym_muli(t, load[1], size), nest->src[i]);
        src[n++] = r;
    }
    src[0] = uop_substitute_all(t, sum, &by);
    union arg scratch = {.p = work_new_memory(w, sum->dtype, nelem, opt->space)};
    load[0] = uop_intern(t, OP_STAGE, sum->dtype, src, n, scratch);
    store =
        uop_substitute(t, store, sum, uop_intern(t, OP_LOAD, sum->dtype, load, 2, (union arg){0}));
    work_put_stores(w, opt->store, &store, 1);
    return true;
}

bool apply_group(struct work *w, const struct opt *opt)
{
    work_close(w);
    struct uop *store = w->ast->src[opt->store], *nest = store, *stage = NULL;
    if (opt->of == OF_STAGE) {
        if (!(stage = work_find(w, store, OP_STAGE, opt->number)))
            return work_refuse(w, "the store has no such stage");
        nest = stage_as_store(w->t, stage);
    }
    struct uop *by = opt->of == OF_SUM ? nest : tile_group_bytes(w->t, nest);
    if (by == nest)
        return work_refuse(
            w, "there is no sum of products of bytes in groups of four contiguous ones");
    by = stage ? uop_substitute(w->t, store, stage, store_as_stage(w->t, by)) : by;
    work_put_stores(w, opt->store, &by, 1);
    return true;
}
