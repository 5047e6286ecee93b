/* opts_local.c - STAGE_OPERAND and STAGE_WHOLE_OPERAND: stage an operand of a sum in shared memory.
 *
 *      stage_operand 0.sum0 axis=0 n=4 to=4 operand=0    sum over ko, ki
 *                                                          ko: copy[ki][i] by all threads, barrier
 *
 * The copy holds what the block reads of the operand inside the sum's loop `axis` (STAGE_OPERAND),
 * or in all of its loops (STAGE_WHOLE_OPERAND). Threads copy in the operand's order of memory, `to`
 * contiguous elements at once. Groups of bytes are copied whole and stay contiguous.
 *
 *      stage_operand 0.sum0 axis=0 n=0 to=0 operand=0    sum over ko, ki
 *                                                          ko: copy[i][ki] by all threads, barrier
 *
 * With to=0 the copy's loops are those of a box (passes/analysis/box.c): loops that are contiguous
 * with each other merge, and the threads share the outermost. */
#include "passes/analysis/copied.h"
#include "passes/analysis/matrix.h"
#include "passes/kernel/opts_work.h"
#include "ir/device_ops.h"

static int64_t threads_of(const struct uop *store)
{
    int64_t threads = 1;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        threads = range_is_item(store->src[i]) ? sat_mul(threads, range_fixed_size(store->src[i]))
                                               : threads;
    return threads;
}

/* A loop of the copy, over elements or over groups of `unit` bytes. It is a digit of the range
 * `of`: n values, each `below` iterations of it. own: the copy's range for it. stride: the
 * operand's; INT64_MAX if it is under a division. first: the step from the first iteration to the
 * second. */
struct copied_loop { struct uop *of, *own; int64_t n, stride, first, below; };
struct copy {
    struct copied_loop v[MAX_RANK]; int ndim, nsum, row;
    bool of_tiles, digits;                   /* for a matrix instruction; a loop for each digit
                                              * of a range */
    struct uop *group; int64_t unit;         /* the group's loop, and its bytes; NULL: plain
                                              * elements */
};

/* The lowest digit that divisions extract from the range, in the offset or the condition; 0: there
 * is none. */
static int64_t find_digit(struct tgc *t, struct uop *const of[2], const struct uop *r)
{
    int n;
    int64_t least = 0, size = range_fixed_size(r), by, stride;
    struct uop **order = uop_toposort(t, of, of[1] ? 2 : 1, &n);
    for (int i = 0; i < n; i++)
        if ((order[i]->op == OP_FLOORDIV || order[i]->op == OP_FLOORMOD) &&
            uop_const_int(order[i]->src[1], &by) && index_stride(t, order[i]->src[0], r, &stride) &&
            stride > 0 && by > stride && by % stride == 0 && by / stride < size &&
            size % (by / stride) == 0 && (least == 0 || by / stride < least))
            least = by / stride;
    return least;
}

static bool add_loop(struct work *w, struct copy *c, struct uop *value, struct uop *load,
                     struct uop *r)
{
    struct tgc *t = w->t;
    int64_t n = range_fixed_size(r), digit;
    struct uop *of[2] = {load->src[1], load->nsrc < 4 ? NULL : load->src[2]}, *rest = r;
    if (!uop_depends_on(t, value, r))
        return true;
    for (int64_t below = 1; n > 0; below *= digit, n /= digit) {
        struct copied_loop *l = &c->v[c->ndim];
        bool near = index_stride(t, of[0], rest, &l->stride);
        digit = c->digits ? find_digit(t, of, rest) : 0;
        if (c->ndim == MAX_RANK)
            break;
        *l = (struct copied_loop){
            .of = r, .n = digit ? digit : n, .stride = l->stride, .below = below};
        c->ndim++;
        if (!digit && !near) {
            l->stride = INT64_MAX;                   /* under a division: not contiguous */
            l->first = index_first_step(t, of[0], rest);
        }
        if (!digit)
            return true;
        struct uop *low = uop_axis(t, uop_int(t, digit), AXIS_LOOP, WORKER_EACH),
                   *high = uop_axis(t, uop_int(t, n / digit), AXIS_LOOP, WORKER_EACH);
        for (int i = 0; i < 2 && of[i]; i++)
            of[i] = uop_substitute(t, of[i], rest, sym_add(t, sym_muli(t, high, digit), low));
        (void)index_stride(t, of[0], low, &l->stride);
        rest = high;
    }
    return work_refuse(w, "the copy has too many loops, or one of unknown size");
}

/* Exchanges the loop with the one outside of it. */
static void exchange_loops(struct copy *c, int k)
{
    struct copied_loop l = c->v[k];
    c->v[k] = c->v[k - 1];
    c->v[k - 1] = l;
}

/* The digit of the loop, as an expression of its range. */
static struct uop *digit_of(struct tgc *t, const struct copied_loop *l)
{
    return sym_mod(t, sym_div(t, l->of, uop_int(t, l->below)), uop_int(t, l->n));
}

/* Whether loop k has a larger stride than the loop outside of it. */
static bool is_further(const struct copy *c, int k)
{
    return c->v[k - 1].stride != c->v[k].stride ? c->v[k - 1].stride < c->v[k].stride
                                                : c->v[k - 1].first < c->v[k].first;
}

/* Sorts the loops from `first` on by the stride in memory. Threads and lanes are then parts of one
 * loop, contiguous in the copy, too. */
static void order_loops(struct copy *c, int first)
{
    for (int a = first + 1; a < c->ndim; a++)
        for (int k = a; k > first && is_further(c, k); k--)
            exchange_loops(c, k);
}

static bool is_of_sum(const struct uop *sum, const struct uop *r)
{
    for (int k = 1; k < sum->nsrc; k++)
        if (sum->src[k] == r)
            return true;
    return false;
}

/* Moves the loops that are the sum's (or that are not) inside of the others. */
static void move_inside(const struct uop *sum, struct copy *c, bool of_sum)
{
    for (int pass = 1; pass < c->ndim; pass++)
        for (int k = 1; k < c->ndim; k++)
            if (is_of_sum(sum, c->v[k - 1].of) == of_sum && is_of_sum(sum, c->v[k].of) != of_sum)
                exchange_loops(c, k);
}

/* Orders the copy for a matrix instruction. Rows keep the order of memory: the contiguous loops are
 * innermost, the sum's or the store's. An instruction that reads panels takes rows of terms, other
 * rows only of 16-bit elements. */
static void order_tile(const struct uop *sum, struct copy *c)
{
    const struct matrix_row *row = matrix_row((enum matrix_unit)(REDUCE_MATRIX(sum->arg.i) - 1));
    order_loops(c, 0);
    bool of_sum = is_of_sum(sum, c->v[c->ndim - 1].of) ||
                  (matrix_in_shared(row, MATRIX_B) && dtype_nbytes(row->dtype[MATRIX_A]) != 2);
    move_inside(sum, c, of_sum);                     /* pixels of several images are on both
                                                      * sides of their channels */
    for (c->row = c->ndim; c->row > 0 && is_of_sum(sum, c->v[c->row - 1].of) == of_sum; c->row--)
        continue;
}

/* Notes the group's loop, whose bytes must be contiguous in memory. */
static bool add_group(struct work *w, struct copy *c, const struct uop *load, struct uop *group)
{
    int64_t stride;
    if (!index_stride(w->t, load->src[1], group, &stride) || stride != 1 ||
        (load->nsrc > 2 && uop_depends_on(w->t, load->src[2], group)))
        return work_refuse(w, "the bytes of a group are not contiguous");
    c->group = group;
    c->unit = range_fixed_size(group);
    return true;
}

/* Collects the copy's loops: the sum's inside of `axis`, then the block's threads, then lanes. */
static bool find_copy(struct work *w, const struct uop *store, const struct uop *sum,
                      struct uop *value, struct uop *load, int axis, struct copy *c)
{
    int first = store_first_range(store);
    *c = (struct copy){
        .unit = 1,
        .digits = REDUCE_MATRIX(sum->arg.i) &&
                  matrix_in_shared(matrix_row((enum matrix_unit)(REDUCE_MATRIX(sum->arg.i) - 1)),
                                  MATRIX_A)};
    for (int i = axis + 2; i < sum->nsrc; i++)
        if (range_is(sum->src[i], AXIS_GROUP) ? !add_group(w, c, load, sum->src[i])
                                              : !add_loop(w, c, value, load, sum->src[i]))
            return false;
    c->nsum = c->ndim;
    for (int i = first; i < store->nsrc; i++)
        if (range_is_item(store->src[i]) && !add_loop(w, c, value, load, store->src[i]))
            return false;
    for (int i = first; i < store->nsrc; i++)
        if (range_is_lane(store->src[i]) && !add_loop(w, c, value, load, store->src[i]))
            return false;
    order_loops(c, c->nsum);
    c->row = c->nsum;
    c->of_tiles = REDUCE_MATRIX(sum->arg.i) && c->ndim > 0;
    if (c->of_tiles)
        order_tile(sum, c);
    return c->ndim > 0 || work_refuse(w, "the block's threads all read the same element");
}

/* The loop with the smallest stride that is not done. */
static int nearest(const struct copy *c, const bool *done)
{
    int next = -1;
    for (int a = c->ndim - 1; a >= 0; a--)
        if (!done[a] && (next < 0 || c->v[a].stride < c->v[next].stride))
            next = a;
    return next;
}

/* Expresses the copy's loops by the number of a copied element, e * width + lane. Contiguous
 * elements are adjacent; the lanes cover whole loops, or a part of the last one. */
static void divide_element(struct tgc *t, struct copy *c, struct uop *e, struct uop *lane,
                           int64_t width)
{
    bool done[MAX_RANK] = {false};
    for (int k = 0; k < c->ndim; k++) {
        int next = nearest(c, done);
        int64_t n = c->v[next].n, lanes = width < n ? width : n;
        done[next] = true;
        c->v[next].own = width > n   ? sym_mod(t, lane, uop_int(t, n))
                         : width > 1 ? lane
                                     : uop_int(t, 0);
        lane = sym_div(t, lane, uop_int(t, lanes));
        width /= lanes;
        struct uop *iteration = k + 1 < c->ndim ? sym_mod(t, e, uop_int(t, n / lanes)) : e;
        c->v[next].own = sym_add(t, sym_muli(t, iteration, lanes), c->v[next].own);
        e = sym_div(t, e, uop_int(t, n / lanes));
    }
}

/* Maps the ranges along which the copy has elements to the copy's own. */
static void map_own(struct tgc *t, const struct copy *c, struct uop_map *by)
{
    for (int a = 0; a < c->ndim; a++) {
        struct uop *own = sym_muli(t, c->v[a].own, c->v[a].below),
                   *others = map_get(by, c->v[a].of);
        map_set(by, c->v[a].of, others ? sym_add(t, others, own) : own);
    }
}

static int64_t iterations_of(const struct copy *c, int a, int last)
{
    int64_t iterations = 1;
    for (int k = a; k <= last; k++)
        iterations = sat_mul(iterations, c->v[k].n);
    return iterations;
}

/* Makes loops a to last digits of r. */
static void divide_own(struct tgc *t, struct copy *c, int a, int last, struct uop *r)
{
    int64_t iterations = iterations_of(c, a, last);
    for (int k = a; k <= last; k++) {
        iterations /= c->v[k].n;
        c->v[k].own = sym_div(t, k > a ? sym_mod(t, r, uop_int(t, iterations * c->v[k].n)) : r,
                              uop_int(t, iterations));
    }
}

/* Whether merging loops a to last leaves no remainder in the load's condition. */
static bool conditions_agree(struct tgc *t, const struct copy *c, const struct uop *load, int a,
                             int last)
{
    struct copy trial = *c;
    struct uop_map by = {.t = t, .scratch = true};
    struct uop *r = uop_axis(t, uop_int(t, iterations_of(c, a, last)), AXIS_LOOP, WORKER_EACH);
    int n;
    if (load->nsrc < 4)
        return true;
    for (int k = 0; k < c->ndim; k++)
        trial.v[k].own = uop_axis(t, uop_int(t, c->v[k].n), AXIS_LOOP, WORKER_EACH);
    divide_own(t, &trial, a, last, r);
    map_own(t, &trial, &by);
    struct uop *cond = uop_substitute_all(t, load->src[2], &by),
               **order = uop_toposort(t, &cond, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_FLOORMOD && uop_depends_on(t, order[i], r))
            return false;
    return true;
}

/* Expresses the copy's loops as those of a box, outermost first. Adjacent loops merge if their
 * strides allow it, but not across the rows that an instruction reads. Returns their number; the
 * first is the threads'. */
static int divide_box(struct tgc *t, struct copy *c, const struct uop *load, struct uop **loop)
{
    int n = 0;
    for (int a = 0, last; a < c->ndim; a = last + 1) {
        for (last = a; last + 1 < c->ndim && (last + 1 != c->row || !c->of_tiles) &&
                       c->v[last].stride == sat_mul(c->v[last + 1].n, c->v[last + 1].stride);
             last++)
            continue;
        while (last > a && !conditions_agree(t, c, load, a, last))
            last--;
        struct uop *r = uop_axis(t, uop_int(t, iterations_of(c, a, last)), AXIS_LOOP,
                                 n ? WORKER_EACH : WORKER_BLOCK);
        divide_own(t, c, a, last, r);
        if (r->op == OP_RANGE)
            loop[n++] = r;
    }
    return n;
}

/* Whether `width` contiguous elements cover whole loops of the copy, or a part of the last one. */
static bool are_neighbours(const struct copy *c, int64_t width)
{
    bool done[MAX_RANK] = {false};
    int64_t stride = c->unit;
    for (int k = 0; k < c->ndim && width > 1; k++) {
        int next = nearest(c, done);
        if (c->v[next].stride != stride || (width % c->v[next].n && c->v[next].n % width))
            return false;
        done[next] = true;
        stride = sat_mul(stride, c->v[next].n);
        width = width > c->v[next].n ? width / c->v[next].n : 1;
    }
    return width == 1;
}

/* Whether a vector copy is one transaction from any start: contiguous and aligned in memory, groups
 * of bytes contiguous in the copy, and one condition for all. */
static bool copies_vectors(struct work *w, const struct copy *c, const struct uop *load,
                           int64_t width)
{
    bool done[MAX_RANK] = {false};
    int last = nearest(c, done);
    struct uop *first = sym_sub(w->t, load->src[1], sym_muli(w->t, c->v[last].of, c->unit));
    if (c->group)
        first = sym_sub(w->t, first, c->group);
    return c->v[last].stride == c->unit && (!c->group || last == c->ndim - 1) &&
           c->v[last].n % width == 0 && (c->group || load->dtype == DTYPE_F32) &&
           uop_buffer_of(load->src[0])->dtype == load->dtype &&
           index_divisor(w->t, first) % (c->unit * width) == 0 &&
           buffer_is_aligned(w->t, uop_buffer_of(load->src[0]), c->unit * width) &&
           (load->nsrc < 4 || !uop_depends_on(w->t, load->src[2], c->v[last].of));
}

/* The sum's load number `operand`, sources first, of global memory. */
static struct uop *find_operand(struct work *w, struct uop *sum, int operand)
{
    int n;
    struct uop **order = nest_order(w->t, sum->src[0], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && operand-- == 0)
            return order[i]->src[0]->op == OP_BUFFER ? order[i] : NULL;
    return NULL;
}

/* What is copied for the load. For a matrix instruction that is the factor, which may be converted
 * or computed on load. */
static struct uop *matrix_operand(const struct uop *sum, struct uop *load)
{
    struct uop *factor[2];
    for (int exchanged = 0; exchanged < 2 && REDUCE_MATRIX(sum->arg.i); exchanged++) {
        const struct matrix_row *row =
            matrix_row((enum matrix_unit)(REDUCE_MATRIX(sum->arg.i) - 1));
        for (int k = 0; matrix_factors(sum, row, exchanged, factor) && k < 2; k++)
            if (matrix_reads(factor[k], load))
                return factor[k];
    }
    return load;
}

/* Lists the copy's loops by the elements that each thread copies, `width` at once. */
static bool list_iterations(struct work *w, struct copy *c, const struct uop *load, int64_t threads,
                            int64_t width, struct uop **loop, int *n)
{
    struct tgc *t = w->t;
    int64_t total = 1;
    for (int a = 0; a < c->ndim; a++)
        total = sat_mul(total, c->v[a].n);
    if (width < c->unit || width > 16 || width % c->unit)
        return work_refuse(w, "the elements of one copy are no aligned, contiguous vector");
    width /= c->unit;
    if (total % (threads * width))
        return work_refuse(w, "the elements do not divide evenly among the block's threads");
    if (width > 1 && !(c->of_tiles ? are_neighbours(c, width) : copies_vectors(w, c, load, width)))
        return work_refuse(w, "the elements of one copy are no aligned, contiguous vector");
    struct uop *iteration = work_new_range(t, total / threads / width, AXIS_LOOP),
               *thread = uop_axis(t, uop_int(t, threads), AXIS_LOOP, WORKER_BLOCK),
               *lane = work_new_range(t, width, AXIS_VECTOR);
    divide_element(t, c, sym_add(t, sym_muli(t, iteration, threads), thread), lane, width);
    if (iteration->op == OP_RANGE)
        loop[(*n)++] = iteration;
    loop[(*n)++] = thread;
    if (c->group)
        loop[(*n)++] = uop_axis(t, c->group->src[0], AXIS_GROUP, WORKER_EACH);
    if (lane->op == OP_RANGE)
        loop[(*n)++] = lane;
    return true;
}

/* Builds the copy: stored at `at` in the loops, loaded from `from`. Narrow floats are copied as
 * bits, without a conversion to f32 and back. */
static struct uop *copied(struct work *w, struct uop *value, struct uop *at, struct uop *from,
                          struct uop *const *loop, int n, struct uop_map *by, int64_t nelem)
{
    struct tgc *t = w->t;
    struct uop *src[2 + MAX_RANK] = {uop_substitute_all(t, value, by), at};
    enum dtype kept = dtype_as_bits(value->dtype);
    bool as_bits = kept != value->dtype;
    src[0] = as_bits ? uop_intern(t, OP_BITCAST, kept, src, 1, (union arg){0}) : src[0];
    for (int i = 0; i < n; i++)
        src[2 + i] = loop[i];
    union arg memory = {.p = work_new_memory(w, kept, nelem, SPACE_SHARED)};
    struct uop *read[2] = {uop_intern(t, OP_STAGE, kept, src, 2 + n, memory), from};
    struct uop *copy = uop_intern(t, OP_LOAD, kept, read, 2, (union arg){0});
    return as_bits ? uop_intern(t, OP_BITCAST, value->dtype, &copy, 1, (union arg){0}) : copy;
}

bool apply_stage_operand(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct uop *sum, *at = uop_int(t, 0), *from = at, *loop[MAX_RANK];
    struct uop_map by = {.t = t, .scratch = true};
    struct copy c;
    int nloop = 0, outside = opt->op == OPT_STAGE_WHOLE_OPERAND ? -1 : opt->axis;
    if (!work_take_sum(w, opt, outside < 0 ? 0 : outside, &sum))
        return false;
    struct uop *store = w->ast->src[opt->store], *load = find_operand(w, sum, opt->operand);
    int64_t threads = threads_of(store);
    if (!load || work_stage_of(w, store, sum))
        return work_refuse(w, "the sum has no such operand");
    struct uop *value = matrix_operand(sum, load);
    load = value == load ? load : matrix_factor_load(value);
    if (threads < 2)
        return work_refuse(w, "a copy in shared memory needs a block of two threads or more");
    if (!find_copy(w, store, sum, value, load, outside, &c))
        return false;
    if (opt->n < 0 || opt->n > 64 || opt->n % c.unit)
        return work_refuse(w, "row padding must be 0 to 64 elements, in whole groups of bytes");
    if (opt->to == 0 && (c.group || opt->n))
        return work_refuse(w, "a box has neither groups of bytes nor row padding");
    if (opt->to == 0)
        nloop = divide_box(t, &c, load, loop);
    else if (!list_iterations(w, &c, load, threads, opt->to, loop, &nloop))
        return false;
    int64_t step = c.unit;
    if (c.group) {
        for (int i = 0; i < nloop; i++)
            at = range_is(loop[i], AXIS_GROUP) ? loop[i] : at;
        map_set(&by, c.group, at);
        from = c.group;
    }
    map_own(t, &c, &by);
    for (int a = c.ndim - 1; a >= 0; a--) {
        at = sym_add(t, at, sym_muli(t, c.v[a].own, step));
        from = sym_add(t, from, sym_muli(t, digit_of(t, &c.v[a]), step));
        step = sat_mul(step, c.v[a].n);
        step += a == c.row ? opt->n : 0;
    }
    struct copied words;
    if (c.of_tiles && opt->to > 1 && !matrix_is_computed(value) &&
        !copied_read(t, uop_substitute_all(t, value, &by), at, loop, nloop, &words))
        return work_refuse(
            w, "an operand of a matrix instruction is copied unchanged, 4, 8 or 16 bytes at once");
    struct uop *copy = copied(w, value, at, from, loop, nloop, &by, step);
    struct uop *now = uop_substitute(t, store, value, copy);
    work_put_stores(w, opt->store, &now, 1);
    return true;
}
