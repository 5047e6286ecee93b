/* opts_matrix.c - MMA: a subgroup computes a sum of products by an instruction of ir/matrix.def.
 * MMA_LAYOUT distributes a store's elements as the instruction's accumulators are; MMA_ROW_LAYOUT
 * and MMA_ROW_REDUCE do so for values of a row.
 *
 *      mma 0.sum0 axis=4 to=5 by=m16n8k16_f16
 *
 *      i < 16  ->  8*m1 + m0        items m0 < 8, n1 < 4: the lanes of the subgroup
 *      j < 8   ->  2*n1 + n0        elements m1 < 2, n0 < 2: what each of them holds
 *
 * The store's loops `axis` and `to`, and the sum's last loop, have the sizes of the instruction's
 * matrices. The row of ir/matrix.def says which bits of lane and element make the accumulator's
 * rows and columns. The sum's value does not change, so every reader of an AST knows what it means;
 * it carries the number of the instruction. MMA_ROW_LAYOUT distributes a loop over rows alone:
 * lanes that hold elements of one row store the same. A sum over columns then has the store's own
 * items as loops (MMA_ROW_REDUCE): each lane reduces its elements, and lanes combine the results by
 * shuffles. Factors must have the instruction's dtypes already: nothing is rounded here. */
#include "passes/analysis/matrix.h"
#include "passes/kernel/opts_work.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

static bool device_has(const struct work *w, enum matrix_unit of)
{
    enum matrix_unit has;
    double gflops;
    for (int i = 0; device_matrix(w->t, i, &has, &gflops); i++)
        if (has == of)
            return true;
    return false;
}

/* Whether one factor varies with m alone, the other one with n alone. */
static bool sides_fit(struct work *w, const struct uop *sum, const struct matrix_row *row,
                      const struct uop *m, const struct uop *n)
{
    struct uop *factor[2];
    for (int exchanged = 0; exchanged < 2; exchanged++)
        if (matrix_factors(sum, row, exchanged, factor) && uop_depends_on(w->t, factor[0], m) &&
            !uop_depends_on(w->t, factor[0], n) && uop_depends_on(w->t, factor[1], n) &&
            !uop_depends_on(w->t, factor[1], m))
            return true;
    return false;
}

static bool loop_fits(struct work *w, int at, int64_t size)
{
    const struct open *o = &w->open;
    return at >= 0 && at < work_loops_before_lanes(o) && range_fixed_size(o->range[at]) == size &&
           RANGE_AXIS(o->range[at]->arg.i) == AXIS_LOOP &&
           RANGE_WORKER(o->range[at]->arg.i) == WORKER_EACH;
}

static bool may_take_matrix(struct work *w, const struct opt *opt, struct uop *sum)
{
    const struct matrix_row *row = matrix_row(opt->by);
    struct uop *store = w->ast->src[opt->store];
    if (REDUCE_MATRIX(sum->arg.i) || work_stage_of(w, store, sum) || work_is_of_sum(w, store, sum))
        return work_refuse(w, "a matrix instruction must compute a sum of the store itself, once");
    if (range_fixed_size(sum->src[sum->nsrc - 1]) != row->size[MATRIX_K])
        return work_refuse(w, "the sum's last loop does not have the instruction's K iterations");
    return true;
}

/* A row of matrix.def says which bit of a coordinate (row, column, k) each bit of a lane's index
 * is, or of the index of an element in the lane's registers. Makes a range of each run of bits,
 * innermost first, and adds its part of the coordinate to at[coordinate]. Skips the bits of
 * coordinate `but`. Returns the number of ranges. */
static int make_ranges(struct work *w, const struct matrix_row *row, bool of_lane,
                       enum matrix_coordinate but, struct uop **range, struct uop **at)
{
    struct tgc *t = w->t;
    struct matrix_bit bit[MATRIX_BITS_MAX];
    int n = matrix_bits(row, MATRIX_SUM, of_lane, bit), nrange = 0;
    for (int i = 0, same; i < n; i += same) {
        same = 1;
        while (i + same < n && bit[i + same].of == bit[i].of &&
               bit[i + same].bit == bit[i].bit + same)
            same++;
        if (bit[i].of == but)
            continue;
        struct uop *r = uop_axis(t, uop_int(t, 1 << same), of_lane ? AXIS_LOOP : AXIS_ELEMENT,
                                 of_lane ? WORKER_ITEM : WORKER_EACH);
        at[bit[i].of] = sym_add(t, at[bit[i].of], sym_muli(t, r, 1 << bit[i].bit));
        range[nrange++] = r;
    }
    return nrange;
}

/* Makes lanes and elements of the instruction's accumulator from the store's loops `axis` and
 * `to`. */
static bool spread_loops(struct work *w, const struct opt *opt, struct uop *const *of_loop)
{
    struct open *o = &w->open;
    const struct matrix_row *row = matrix_row(opt->by);
    struct uop *zero = uop_int(w->t, 0), *at[MATRIX_NONE + 1] = {zero, zero, zero, zero},
               *lane[MATRIX_BITS_MAX], *element[MATRIX_BITS_MAX];
    int nlane = make_ranges(w, row, true, MATRIX_NONE, lane, at),
        nelement = make_ranges(w, row, false, MATRIX_NONE, element, at);
    work_remove_range(o, opt->axis > opt->to ? opt->axis : opt->to);
    work_remove_range(o, opt->axis > opt->to ? opt->to : opt->axis);
    work_substitute(w, of_loop[0], at[MATRIX_M]);
    work_substitute(w, of_loop[1], at[MATRIX_N]);
    for (int i = nlane - 1; i >= 0; i--)
        work_insert_range(o, work_loops_before_lanes(o), lane[i], of_loop[1]);
    for (int i = nelement - 1; i >= 0; i--)
        work_insert_range(o, o->n, element[i], of_loop[1]);
    work_close(w);
    w->is_placed = true;
    return true;
}

static bool take_store(struct work *w, const struct opt *opt)
{
    const struct matrix_row *row = matrix_row(opt->by);
    struct opt nest = {.op = opt->op, .store = opt->store};
    if (w->t->device && (row->lanes % w->t->device->wave || !device_has(w, opt->by)))
        return work_refuse(w, "the device has no such instruction");
    return work_open(w, &nest);
}

/* Opens the store and finds its loops `axis` and `to`. */
static bool take_loops(struct work *w, const struct opt *opt, struct uop **loop)
{
    const struct open *o = &w->open;
    const struct matrix_row *row = matrix_row(opt->by);
    if (!take_store(w, opt))
        return false;
    if (opt->axis == opt->to || !loop_fits(w, opt->axis, row->size[MATRIX_M]) ||
        !loop_fits(w, opt->to, row->size[MATRIX_N]) || o->n + 8 > RANGES_MAX)
        return work_refuse(
            w, "the store's two loops do not have the instruction's M and N iterations");
    loop[0] = o->range[opt->axis];
    loop[1] = o->range[opt->to];
    return true;
}

bool apply_mma_layout(struct work *w, const struct opt *opt)
{
    struct uop *loop[2];
    return take_loops(w, opt, loop) && spread_loops(w, opt, loop);
}

bool apply_mma_row_layout(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    const struct matrix_row *row = matrix_row(opt->by);
    struct uop *zero = uop_int(w->t, 0), *at[MATRIX_NONE + 1] = {zero, zero, zero, zero},
               *lane[MATRIX_BITS_MAX], *element[MATRIX_BITS_MAX];
    if (!take_store(w, opt))
        return false;
    if (!loop_fits(w, opt->axis, row->size[MATRIX_M]) || o->n + 8 > RANGES_MAX)
        return work_refuse(w, "the store's loop does not have the instruction's M iterations");
    struct uop *loop = o->range[opt->axis];
    int nlane = make_ranges(w, row, true, MATRIX_NONE, lane, at),
        nelement = make_ranges(w, row, false, MATRIX_N, element, at);
    work_remove_range(o, opt->axis);
    work_substitute(w, loop, at[MATRIX_M]);
    for (int i = nlane - 1; i >= 0; i--)
        work_insert_range(o, work_loops_before_lanes(o), lane[i], loop);
    for (int i = nelement - 1; i >= 0; i--)
        work_insert_range(o, o->n, element[i], loop);
    work_close(w);
    w->is_placed = true;
    return true;
}

bool apply_mma_row_reduce(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    const struct matrix_row *row = matrix_row(opt->by);
    struct matrix_axes lanes = {.n = 0};
    struct uop *sum, *zero = uop_int(t, 0), *at[MATRIX_NONE + 1] = {zero, zero, zero, zero},
                     *element[MATRIX_BITS_MAX], *src[MAX_RANK + 12];
    int n = 1;
    if (!work_take_sum(w, opt, opt->axis, &sum))
        return false;
    const struct uop *store = w->ast->src[opt->store], *loop = sum->src[opt->axis + 1];
    if (sum->dtype != DTYPE_F32 || sum->nsrc > MAX_RANK + 4 ||
        work_stage_of(w, w->ast->src[opt->store], sum))
        return work_refuse(w, "only a sum of f32 of the store itself is reduced by shuffles");
    if (!matrix_find_lanes(row, store, &lanes) || range_fixed_size(loop) != row->size[MATRIX_N] ||
        (w->t->device && w->t->device->shuffle < row->lanes))
        return work_refuse(
            w,
            "the loop does not have the instruction's N iterations, or no lanes that hold one row");
    int nelement = make_ranges(w, row, false, MATRIX_M, element, at);
    for (int i = 0; i < lanes.n; i++)
        if (lanes.v[i].of == MATRIX_N)
            at[MATRIX_N] =
                sym_add(t, at[MATRIX_N], sym_muli(t, lanes.v[i].range, lanes.v[i].scale));
    for (int i = 1; i < sum->nsrc; i++)
        if (i != opt->axis + 1)
            src[n++] = sum->src[i];
    for (int i = nelement - 1; i >= 0; i--)
        src[n++] = uop_axis(t, element[i]->src[0], AXIS_LOOP, WORKER_EACH);
    for (int i = 0; i < nelement; i++)
        at[MATRIX_N] = uop_substitute(t, at[MATRIX_N], element[i], src[n - 1 - i]);
    for (int i = lanes.n - 1; i >= 0; i--)
        if (lanes.v[i].of == MATRIX_N)
            src[n++] = lanes.v[i].range;
    src[0] = uop_substitute(t, sum->src[0], loop, at[MATRIX_N]);
    struct uop *by = uop_intern(t, OP_REDUCE, sum->dtype, src, n, sum->arg);
    uop_set_origin(t, by, sum);
    struct uop *now = uop_substitute(t, w->ast->src[opt->store], sum, by);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}

bool apply_mma(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *loop[2];
    if (!work_take_sum(w, opt, 0, &sum) || !may_take_matrix(w, opt, sum) ||
        !take_loops(w, opt, loop))
        return false;
    if (!sides_fit(w, sum, matrix_row(opt->by), loop[0], loop[1]))
        return work_refuse(w, "the sum is no product of the instruction's dtypes, of one factor by "
                              "rows and one by columns");
    if (!spread_loops(w, opt, loop) || !work_take_sum(w, opt, 0, &sum))
        return false;
    union arg arg = {.i = ARG_PACK(REDUCE, OP_ADD, 0, opt->by)};
    struct uop *by = uop_intern(t, OP_REDUCE, sum->dtype, sum->src, sum->nsrc, arg);
    uop_set_origin(t, by, sum);
    struct uop *now = uop_substitute(t, w->ast->src[opt->store], sum, by);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}

bool work_matrices_fit(struct work *w)
{
    struct matrix_product p;
    for (int i = 0; i < w->ast->nsrc; i++) {
        struct mem_mark mark = scratch_mark(w->t);
        struct uop *store = w->ast->src[i];
        int n;
        struct uop **order = uop_toposort(w->t, &store, 1, &n);
        bool fits = true;
        for (int j = 0; j < n && fits; j++)
            fits = order[j]->op != OP_REDUCE || !REDUCE_MATRIX(order[j]->arg.i) ||
                   matrix_read(w->t, store, order[j], &p, &w->why);
        scratch_release(w->t, mark);
        if (!fits)
            return false;
    }
    return true;
}
