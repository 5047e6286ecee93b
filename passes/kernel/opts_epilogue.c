/* opts_epilogue.c - STAGE_EPILOGUE: an epilogue staged through shared memory, for coalesced stores.
 * ALIAS_EPILOGUE: the epilogue tile aliases the block's operand copies. SPLIT_K: iterations of a
 * sum in several blocks.
 *
 *      stage_epilogue 0.sum0 axis=1 to=3 n=8
 *
 *      for q, i < 64, r, j < 64              for q, r (bands)
 *        y[..] = f(sum, bias[64*r + j])        for i < 64, j < 64
 *                                                tile[72*i + j] = sum
 *                                              for i < 64, j < 64
 *                                                y[..] = f(tile[72*i + j], bias[64*r + j])
 *
 * The loops `axis` and `to` are a block's rows and columns. n is the row padding, in elements:
 * threads that access different rows of a fragment use different banks. Applied to a store, the
 * whole value is staged. Applied to a sum (.sum0), only the sum is, rounded as it first is; the
 * second store computes the rest and loads its operands, coalesced. Both stores then get opts of
 * their own: the sum of the first may be a matrix instruction's, the second stores vectors.
 *
 * The copies' memory is free once the last one has been read, after a barrier that linear_order.c
 * places. With ALIAS_EPILOGUE the tile begins there. Copies that arrive during the epilogue would
 * overwrite it, so no loop may be around both.
 *
 *      split_k 0.sum0 axis=1 to=3 n=0
 *
 *      for q, i < 64, r, j < 64              for q, r, s (bands)
 *        y[..] = f(sum over s, k)              for i < 64, j < 64
 *                                                part[q, r, s, i, j] = sum over k
 *                                              in the last-arriving block of its q, r (TICKET)
 *                                                for i < 64, j < 64
 *                                                  y[..] = f(sum over s of part[q, r, s, i, j])
 *
 * Here n is the number of the sum's loop that is split; the sum needs another loop beside it.
 * Partial sums are added in order, whichever block does it, so results are the same in each run. */
#include "passes/analysis/value.h"
#include "passes/kernel/opts_work.h"

enum { PAD_MOST = 64 };

/* The store split in two: the row and column loops, and all others as bands. */
struct staged {
    struct uop *store, *row, *column, *band[RANGES_MAX];
    int nband;
    struct uop_map as_band;
};

static bool is_free_loop(const struct uop *r)
{
    return RANGE_AXIS(r->arg.i) == AXIS_LOOP && RANGE_WORKER(r->arg.i) == WORKER_EACH;
}

static bool find_loops(struct work *w, const struct opt *opt, struct staged *x)
{
    struct tgc *t = w->t;
    int first = store_first_range(x->store), n = x->store->nsrc - first;
    if (opt->axis < 0 || opt->to < 0 || opt->axis >= n || opt->to >= n || opt->axis == opt->to ||
        n > RANGES_MAX - 4)
        return work_refuse(w, "the store has no such two loops");
    x->row = x->store->src[first + opt->axis];
    x->column = x->store->src[first + opt->to];
    for (int i = first; i < x->store->nsrc; i++) {
        struct uop *r = x->store->src[i];
        if (!is_free_loop(r))
            return work_refuse(
                w, "a loop of the store is a lane, a band or distributed over threads already");
        if (r == x->row || r == x->column) {
            if (range_fixed_size(r) < 1)
                return work_refuse(w, "the tile's size is unknown at compile time");
            continue;
        }
        struct uop *band = uop_axis(t, r->src[0], AXIS_BAND, WORKER_EACH);
        work_name_like(t, band, r);
        map_set(&x->as_band, r, band);
        x->band[x->nband++] = band;
    }
    for (int i = first; i < x->store->nsrc; i++)
        for (int k = first; k < x->store->nsrc; k++)
            if (uop_depends_on(t, x->store->src[i]->src[0], x->store->src[k]))
                return work_refuse(w, "a loop's size depends on another loop");
    return true;
}

/* The only user of u in the value; NULL: there are several, or u is the value itself. */
static struct uop *only_user(struct tgc *t, struct uop *value, const struct uop *u)
{
    int n;
    struct uop *user = NULL, **order = uop_toposort(t, &value, 1, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < order[i]->nsrc; k++)
            if (order[i]->src[k] == u) {
                if (user && user != order[i])
                    return NULL;
                user = order[i];
            }
    return user;
}

/* What is staged in shared memory: the sum, or what it is converted to, where its only user
 * converts it to a smaller dtype. */
static struct uop *rounded(struct tgc *t, struct uop *value, struct uop *sum)
{
    struct uop *best = sum;
    for (struct uop *u = only_user(t, value, sum); u && u->op == OP_CAST;
         u = only_user(t, value, u))
        if (dtype_nbytes(u->dtype) < dtype_nbytes(best->dtype))
            best = u;
    return best;
}

/* What the first store passes to the second. */
static struct uop *find_passed(struct work *w, const struct opt *opt, struct uop *store)
{
    struct uop *value = store->src[2], *sum = value;
    if (opt->of == OF_SUM && !(sum = work_find(w, store, OP_REDUCE, opt->number))) {
        work_refuse(w, "the store has no such sum");
        return NULL;
    }
    struct uop *passed = opt->of == OF_SUM ? rounded(w->t, value, sum) : value;
    int nbits = dtype_bits(passed->dtype);
    if (passed->op == OP_CONST || nbits != 8 * (int)dtype_nbytes(passed->dtype)) {
        work_refuse(w, "the value has a dtype that memory does not hold");
        return NULL;
    }
    return passed;
}

static struct uop *store_of(struct tgc *t, const struct staged *x, struct uop *const *value,
                            int nvalue, struct uop *row, struct uop *column)
{
    struct uop *src[RANGES_MAX + 8];
    int n = 0;
    for (int i = 0; i < nvalue; i++)
        src[n++] = value[i];
    for (int i = 0; i < x->nband; i++)
        src[n++] = x->band[i];
    if (row->op == OP_RANGE)
        src[n++] = row;
    if (column->op == OP_RANGE)
        src[n++] = column;
    return uop_intern(t, OP_STORE, x->store->dtype, src, n, (union arg){0});
}

bool apply_stage_epilogue(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    work_close(w);
    struct staged x = {.store = w->ast->src[opt->store], .as_band = {.t = t, .scratch = true}};
    if (opt->of == OF_STAGE || w->ast->nsrc != 1)
        return work_refuse(w, "only the single store of a kernel, or its sum, can be staged");
    if (!find_loops(w, opt, &x))
        return false;
    int64_t rows = range_fixed_size(x.row), columns = range_fixed_size(x.column),
            width = sat_add(columns, opt->n), nelem = sat_mul(rows, width);
    if (opt->n < 0 || opt->n > PAD_MOST || nelem > INT32_MAX)
        return work_refuse(w, "row padding must be 0 to 64 elements");
    struct uop *passed = find_passed(w, opt, x.store);
    if (!passed)
        return false;
    struct uop *memory = uop_buffer(t, work_new_memory(w, passed->dtype, nelem, SPACE_SHARED)),
               *row = work_new_range(t, rows, AXIS_LOOP),
               *column = work_new_range(t, columns, AXIS_LOOP);
    work_name_like(t, row, x.row);
    work_name_like(t, column, x.column);
    struct uop *tile[3] = {memory, sym_add(t, sym_muli(t, x.row, width), x.column),
                           uop_substitute_all(t, passed, &x.as_band)};
    struct uop *read[2] = {memory, sym_add(t, sym_muli(t, row, width), column)};
    struct uop *load = uop_intern(t, OP_LOAD, passed->dtype, read, 2, (union arg){0});
    struct uop *src[4], *part[2];
    int nvalue = store_first_range(x.store);
    map_set(&x.as_band, x.row, row);
    map_set(&x.as_band, x.column, column);
    for (int i = 0; i < nvalue; i++)
        src[i] = i ? uop_substitute_all(t,
                                        i == 2 ? uop_substitute(t, x.store->src[2], passed, load)
                                               : x.store->src[i],
                                        &x.as_band)
                   : x.store->src[0];
    if (value_contains(t, src[2], OP_REDUCE, OP_STAGE))
        return work_refuse(w, "the rest of the value has other sums");
    part[0] = store_of(t, &x, tile, 3, x.row, x.column);
    part[1] = store_of(t, &x, src, nvalue, row, column);
    work_put_stores(w, opt->store, part, 2);
    return true;
}

/* -------------------------------------------------------------------------------------- split-K */

/* The block's number, partial sums apart. *places: how many there are; 0: unknown or too many. */
static struct uop *place_of(struct tgc *t, const struct staged *x, int64_t *places)
{
    struct uop *place = uop_int(t, 0);
    *places = 1;
    for (int i = 0; i < x->nband; i++) {
        int64_t n = range_fixed_size(x->band[i]);
        *places = n > 0 ? sat_mul(*places, n) : 0;
        place = sym_add(t, sym_muli(t, place, n), x->band[i]);
    }
    *places = *places > INT32_MAX ? 0 : *places;
    return place;
}

/* The sum without the split loop, which becomes a band. */
static struct uop *sum_of_part(struct tgc *t, const struct staged *x, const struct uop *sum,
                               const struct uop *loop)
{
    struct uop *src[MAX_RANK + 8];
    int n = 0;
    for (int i = 0; i < sum->nsrc; i++)
        if (sum->src[i] != loop)
            src[n++] = i ? sum->src[i] : uop_substitute_all(t, sum->src[0], &x->as_band);
    return uop_intern(t, OP_REDUCE, sum->dtype, src, n, sum->arg);
}

/* The sum's loop that is split over blocks; NULL: refused. */
static struct uop *loop_of_parts(struct work *w, const struct opt *opt, struct uop *sum)
{
    struct uop *loop = opt->n >= 0 && opt->n < sum->nsrc - 1 ? sum->src[opt->n + 1] : NULL;
    bool fits = loop && sum->nsrc > 2 && sum->nsrc < MAX_RANK + 8 && is_free_loop(loop) &&
                range_fixed_size(loop) > 1 && !REDUCE_MATRIX(sum->arg.i);
    for (int i = 1; i < sum->nsrc && fits; i++)
        fits = !uop_depends_on(w->t, sum->src[i]->src[0], loop);
    if (!fits)
        work_refuse(w, "the sum has no such loop of known size, or no other loop");
    return fits ? loop : NULL;
}

/* Offset of an element of a block's partial sum. */
static struct uop *at_part(struct tgc *t, struct uop *place, struct uop *part, int64_t parts,
                           struct uop *row, int64_t rows, struct uop *column, int64_t columns)
{
    struct uop *at = sym_add(t, sym_muli(t, place, parts), part);
    return sym_add(t, sym_muli(t, sym_add(t, sym_muli(t, at, rows), row), columns), column);
}

bool work_is_whole(struct work *w)
{
    int n;
    struct uop **order = uop_toposort(w->t, &w->ast, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_TICKET)
            return work_refuse(
                w, "the kernel uses split-K: its ticket counts all blocks, with all threads");
    return true;
}

bool apply_split_k(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    work_close(w);
    struct staged x = {.store = w->ast->src[opt->store], .as_band = {.t = t, .scratch = true}};
    struct uop *sum = opt->of == OF_SUM ? work_find(w, x.store, OP_REDUCE, opt->number) : NULL,
               *loop;
    if (!sum)
        return work_refuse(w, "the store has no such sum");
    if (!find_loops(w, opt, &x) || !(loop = loop_of_parts(w, opt, sum)))
        return false;
    int64_t rows = range_fixed_size(x.row), columns = range_fixed_size(x.column),
            parts = range_fixed_size(loop), places;
    struct uop *place = place_of(t, &x, &places), *src[4], *store[2];
    int64_t nelem = sat_mul(sat_mul(places, parts), sat_mul(rows, columns));
    if (places < 1 || nelem > INT32_MAX)
        return work_refuse(w, "the number of blocks is unknown at compile time, or too large");
    struct buffer *counters = work_new_memory(w, DTYPE_U32, places, SPACE_GLOBAL);
    counters->scratch.counts = true;
    struct uop *memory = uop_buffer(t, work_new_memory(w, sum->dtype, nelem, SPACE_GLOBAL)),
               *part = uop_axis(t, loop->src[0], AXIS_BAND, WORKER_EACH),
               *row = work_new_range(t, rows, AXIS_LOOP),
               *column = work_new_range(t, columns, AXIS_LOOP),
               *r = work_new_range(t, parts, AXIS_LOOP);
    work_name_like(t, row, x.row);
    work_name_like(t, column, x.column);
    uop_name_axes(t, part, "part");
    uop_name_axes(t, r, "part");
    map_set(&x.as_band, loop, part);
    x.band[x.nband++] = part;
    struct uop *own[3] = {memory, at_part(t, place, part, parts, x.row, rows, x.column, columns),
                          sum_of_part(t, &x, sum, loop)};
    struct uop *read[2] = {memory, at_part(t, place, r, parts, row, rows, column, columns)};
    struct uop *all[2] = {uop_intern(t, OP_LOAD, sum->dtype, read, 2, (union arg){0}), r};
    struct uop *added = uop_intern(t, OP_REDUCE, sum->dtype, all, 2,
                                   (union arg){.i = ARG_PACK(REDUCE, REDUCE_OP(sum->arg.i), 0)});
    struct uop *given[4] = {uop_buffer(t, counters), place, part, memory},
               *valid[2] = {uop_intern(t, OP_TICKET, DTYPE_BOOL, given, 4, (union arg){0})};
    map_set(&x.as_band, x.row, row);
    map_set(&x.as_band, x.column, column);
    struct uop *value = uop_substitute(t, x.store->src[2], sum, uop_consti(t, sum->dtype, 0));
    if (value_contains(t, value, OP_REDUCE, OP_STAGE))
        return work_refuse(w, "the rest of the value has other sums");
    src[0] = x.store->src[0];
    src[1] = uop_substitute_all(t, x.store->src[1], &x.as_band);
    map_set(&x.as_band, sum, added);
    src[2] = uop_substitute_all(t, x.store->src[2], &x.as_band);
    valid[1] =
        store_first_range(x.store) == 4 ? uop_substitute_all(t, x.store->src[3], &x.as_band) : NULL;
    src[3] = valid[1] ? uop_intern(t, OP_AND, DTYPE_BOOL, valid, 2, (union arg){0}) : valid[0];
    store[0] = store_of(t, &x, own, 3, x.row, x.column);
    store[1] = store_of(t, &x, src, 4, row, column);
    work_put_stores(w, opt->store, store, 2);
    return true;
}

/* -------------------------------------------------------------------------- aliasing the copies */

bool apply_alias_epilogue(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop_map by = {.t = t, .scratch = true};
    int n, copies = 0;
    work_close(w);
    struct uop *store = w->ast->src[opt->store], *memory = store->src[0], **order;
    const struct buffer *was = uop_buffer_of(memory);
    if (opt->of != OF_STORE || was->kind != BUFFER_SCRATCH || buffer_space(was) != SPACE_SHARED ||
        was->scratch.is_alias)
        return work_refuse(
            w, "the store writes no scratch in shared memory, or it is an alias already");
    for (int i = store_first_range(store); i < store->nsrc; i++)
        if (RANGE_WORKER(store->src[i]->arg.i) == WORKER_EACH && !range_is_lane(store->src[i]))
            return work_refuse(
                w, "copies of a loop's next iteration would overwrite the tile while it is stored");
    for (int i = 0; i < w->ast->nsrc; i++) {
        order = uop_toposort(t, &w->ast->src[i], 1, &n);
        for (int k = 0; k < n; k++) {
            bool stage = order[k]->op == OP_STAGE && buffer_space(order[k]->arg.p) == SPACE_SHARED;
            copies += stage && i == opt->store;
            if ((stage && i != opt->store) || (order[k]->op == OP_BUFFER && order[k] != memory &&
                                               buffer_space(order[k]->arg.p) == SPACE_SHARED))
                return work_refuse(w, "other stores use shared memory, too");
        }
    }
    if (!copies)
        return work_refuse(w, "the store has no operand in shared memory");
    struct buffer *b = work_copy_memory(w, was);
    b->scratch.is_alias = true;
    map_set(&by, memory, uop_buffer(t, b));
    w->ast = uop_substitute_all(t, w->ast, &by);
    return true;
}
