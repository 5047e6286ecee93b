/* nest.c - reads a store's loop nest: its reduction, its loads, which of them vary along which
 * range, and the roles of the ranges that follow; splits a store in two along a range.
 *
 *      for n, oc, oy   y[n, oc, oy] = sum over ic, ky   x[n, ic, oy + ky] * w[oc, ic, ky]
 *
 *      n, oy: x varies, ROW     oc: w, COLUMN     ic: SUM     ky: TAP, x reads oy's elements again
 */
#include "passes/analysis/nest.h"

#include <string.h>

int64_t range_fixed_size(const struct uop *range)
{
    return range->src[0]->op == OP_CONST ? range->src[0]->arg.i : 0;
}

struct uop **nest_order(struct tgc *t, struct uop *root, int *n)
{
    int nall;
    struct uop **order = uop_toposort(t, &root, 1, &nall);
    struct uop_map seen = {.t = t, .scratch = true};
    map_set(&seen, root, root);
    for (int i = nall - 1; i >= 0; i--)
        for (int k = 0; k < order[i]->nsrc; k++)
            if (order[i]->op != OP_STAGE && map_get(&seen, order[i]))
                map_set(&seen, order[i]->src[k], order[i]->src[k]);
    *n = 0;
    for (int i = 0; i < nall; i++)
        if (map_get(&seen, order[i]))
            order[(*n)++] = order[i];
    return order;
}

bool operands_any(struct operands o) { return (o.bit[0] | o.bit[1]) != 0; }

bool operands_equal(struct operands a, struct operands b)
{
    return a.bit[0] == b.bit[0] && a.bit[1] == b.bit[1];
}

bool operands_within(struct operands a, struct operands b)
{
    return !((a.bit[0] & ~b.bit[0]) | (a.bit[1] & ~b.bit[1]));
}

struct operands operands_both(struct operands a, struct operands b)
{
    return (struct operands){{a.bit[0] & b.bit[0], a.bit[1] & b.bit[1]}};
}

static void operands_add(struct operands *o, int i) { o->bit[i / 64] |= (uint64_t)1 << i % 64; }

static bool is_reduced(const struct nest *m, const struct uop *r)
{
    for (int k = 1; m->reduce && k < m->reduce->nsrc; k++)
        if (m->reduce->src[k] == r)
            return true;
    return false;
}

static int64_t range_most(const struct uop *r) { return r->op == OP_RANGE ? r->src[0]->vmax : 1; }

/* Whether an operand that is not one of the columns reads elements along r again along another
 * range of the store: of the two, neither's elements lie between those of the other. */
static bool is_tap(const struct nest *m, const struct nest_axis *axis)
{
    int64_t along, across, n = range_most(axis->range);
    for (int i = 0; i < m->nload; i++) {
        struct uop *offset = m->load[i]->src[1];
        if (!operands_has(axis->reads, i) || operands_has(m->columns, i) ||
            !index_stride(m->t, offset, axis->range, &along) || along < 1)
            continue;
        for (int k = m->first; k < m->store->nsrc; k++)
            if (index_stride(m->t, offset, m->store->src[k], &across) && across > 0 &&
                across < sat_mul(along, n) &&
                along < sat_mul(across, range_most(m->store->src[k])))
                return true;
    }
    return false;
}

static enum role role_of(const struct nest *m, const struct nest_axis *axis)
{
    if (!operands_any(axis->varies))
        return ROLE_NONE;
    if (is_reduced(m, axis->range))
        return is_tap(m, axis) ? ROLE_TAP : ROLE_SUM;
    return operands_equal(axis->varies, m->operands)    ? ROLE_BATCH
           : operands_within(axis->varies, m->columns) ? ROLE_COLUMN
                                                       : ROLE_ROW;
}

static struct nest_axis read_axis(const struct nest *m, const struct uop *r)
{
    struct nest_axis axis = {.range = r};
    for (int i = 0; i < m->nload + m->nother; i++) {
        const struct uop *load = i < m->nload ? m->load[i] : m->other[i - m->nload];
        bool stage = load->src[0]->op == OP_STAGE && uop_depends_on(m->t, load->src[0], r);
        bool reads = uop_depends_on(m->t, load->src[1], r);
        axis.stages |= stage;
        if (i < m->nload && reads)
            operands_add(&axis.reads, i);
        if (i < m->nload && (reads || stage))
            operands_add(&axis.varies, i);
    }
    axis.weights = operands_any(operands_both(axis.varies, m->stationary));
    return axis;
}

/* The columns' operands if all are streamed: those of the last range along which some of them are
 * invariant. */
static struct operands columns_of(const struct nest *m)
{
    if (operands_any(m->stationary))
        return m->stationary;
    for (int i = m->naxis - 1; i >= 0; i--)
        if (!is_reduced(m, m->axis[i].range) && operands_any(m->axis[i].varies) &&
            !operands_equal(m->axis[i].varies, m->operands))
            return m->axis[i].varies;
    return (struct operands){{0}};
}

static void read_axes(struct nest *m)
{
    for (int i = 0; i < m->nload; i++) {
        operands_add(&m->operands, i);
        if (load_is_stationary(m->load[i]))
            operands_add(&m->stationary, i);
    }
    for (int k = m->first; k < m->store->nsrc && m->naxis < MAX_NEST_AXES; k++)
        m->axis[m->naxis++] = read_axis(m, m->store->src[k]);
    for (int k = 1; m->reduce && k < m->reduce->nsrc && m->naxis < MAX_NEST_AXES; k++)
        m->axis[m->naxis++] = read_axis(m, m->reduce->src[k]);
    m->columns = columns_of(m);
    for (int i = 0; i < m->naxis; i++)
        m->axis[i].role = role_of(m, &m->axis[i]);
}

struct nest_axis nest_axis(const struct nest *m, const struct uop *r)
{
    for (int i = 0; i < m->naxis; i++)
        if (m->axis[i].range == r)
            return m->axis[i];
    struct nest_axis axis = read_axis(m, r);
    axis.role = role_of(m, &axis);
    return axis;
}

/* Collects the loads under u, each once. */
static bool collect_loads(struct tgc *t, struct uop *u, struct uop *const *except, int nexcept,
                          struct uop **load, int *nload)
{
    int n;
    struct uop **order = nest_order(t, u, &n);
    for (int i = 0; i < n; i++) {
        bool known = order[i]->op != OP_LOAD;
        for (int k = 0; k < nexcept && !known; k++)
            known = except[k] == order[i];
        if (known)
            continue;
        if (*nload == MAX_LOADS)
            return false;
        load[(*nload)++] = order[i];
    }
    return true;
}

/* A store to scratch may load the element that it stores, beside its sum. */
static bool adds_to_scratch(const struct uop *store, const struct uop *load)
{
    return uop_buffer_of(store->src[0])->kind == BUFFER_SCRATCH && load->src[0]->op == OP_BUFFER &&
           load->src[1] == store->src[1];
}

/* Reads what the nest's reduction sums, and derives all else. */
static bool read_operands(struct nest *m)
{
    struct uop *sum = m->reduce;
    if (sum && !collect_loads(m->t, sum->src[0], NULL, 0, m->load, &m->nload))
        return false;
    for (int i = 0; i < m->nload; i++)
        if (m->load[i]->src[0] == m->store->src[0])
            return false;
    m->contraction = sum && REDUCE_OP(sum->arg.i) == OP_ADD && m->nload >= 2;
    m->grouped = m->contraction && range_is(sum->src[sum->nsrc - 1], AXIS_GROUP) &&
               sum->src[sum->nsrc - 1]->op == OP_RANGE;
    if (!collect_loads(m->t, m->store->src[2], m->load, m->nload, m->other, &m->nother))
        return false;
    read_axes(m);
    struct uop *values, *weights;
    if (m->grouped && nest_sums_groups(m, &values, &weights))
        m->weights = weights;
    return true;
}

static bool begin_nest(struct tgc *t, struct uop *store, struct nest *m)
{
    *m = (struct nest){.t = t, .store = store, .first = store_first_range(store)};
    if (store->nsrc > 64)
        return false;
    while (m->first < store->nsrc && range_is(store->src[m->first], AXIS_BAND))
        m->first++;
    return true;
}

bool nest_find(struct tgc *t, struct uop *store, struct nest *m)
{
    return store_first_range(store) == 3 && nest_find_anywhere(t, store, m);
}

bool nest_find_anywhere(struct tgc *t, struct uop *store, struct nest *m)
{
    int n;
    if (!begin_nest(t, store, m))
        return false;
    struct uop **order = nest_order(t, store->src[2], &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op == OP_LOAD && order[i]->src[0] == store->src[0] &&
            !adds_to_scratch(store, order[i]))
            return false;
        if (order[i]->op != OP_REDUCE)
            continue;
        if (m->reduce && !uop_depends_on(t, order[i], m->reduce))
            return false;
        m->nouter += m->reduce != NULL;
        if (!m->reduce)
            m->reduce = order[i];
    }
    return read_operands(m);
}

bool nest_find_sum(struct tgc *t, struct uop *store, struct uop *reduce, struct nest *m)
{
    if (!begin_nest(t, store, m))
        return false;
    m->reduce = reduce;
    return read_operands(m);
}

/* The unconditional load of dtype d that factor k is cast from; NULL: it is none. */
static struct uop *load_of(const struct uop *product, int k, enum dtype d)
{
    const struct uop *c = product->src[k];
    bool is_load = c->op == OP_CAST && c->src[0]->op == OP_LOAD && c->src[0]->nsrc == 2 &&
                   c->src[0]->dtype == d;
    return is_load ? c->src[0] : NULL;
}

static struct uop *operand_of(const struct uop *product, enum dtype d)
{
    struct uop *load = load_of(product, 0, d);
    return load ? load : load_of(product, 1, d);
}

/* Of bf16: a streamed value, and a weight. */
static bool sums_pairs(const struct nest *m, const struct uop *product, struct uop **values,
                       struct uop **weights)
{
    if (m->t->math != DTYPE_BF16 || m->t->device || product->dtype != DTYPE_F32)
        return false;
    struct uop *load[2] = {load_of(product, 0, DTYPE_BF16), load_of(product, 1, DTYPE_BF16)};
    int known = load[1] && load_is_stationary(load[1]);
    *values = load[!known];
    *weights = load[known];
    return *values && *weights && load_is_stationary(*weights) && !load_is_stationary(*values);
}

bool nest_sums_bytes(const struct nest *m, struct uop **values, struct uop **weights)
{
    const struct uop *product = m->reduce ? summed_product(m->reduce) : NULL;
    if (!product || product->dtype != DTYPE_I32 || m->nload != 2)
        return false;
    *values = operand_of(product, DTYPE_U8);
    *weights = operand_of(product, DTYPE_I8);
    return *values && *weights;
}

bool nest_sums_groups(const struct nest *m, struct uop **values, struct uop **weights)
{
    const struct uop *product = m->reduce ? summed_product(m->reduce) : NULL;
    return nest_sums_bytes(m, values, weights) ||
           (product && m->nload == 2 && sums_pairs(m, product, values, weights));
}

enum dtype nest_group(const struct nest *m)
{
    return !m->grouped ? DTYPE_VOID : m->weights ? m->weights->dtype : DTYPE_I8;
}

/* The store with `n` iterations of range `axis`, from `start` on. */
static struct uop *store_part(struct tgc *t, struct uop *store, int axis, struct uop *n,
                              struct uop *start)
{
    struct uop *r = store->src[axis], *src[80];
    struct uop *own = uop_is_int(n, 1) ? uop_int(t, 0) : uop_axis(t, n, AXIS_LOOP, WORKER_EACH);
    struct uop *by = sym_add(t, own, start);
    int nsrc = 0;
    if (own->op == OP_RANGE && uop_get_axes(t, r))
        uop_name_axes(t, own, uop_get_axes(t, r));
    for (int i = 0; i < store->nsrc; i++)
        if (i != axis)
            src[nsrc++] = uop_substitute(t, store->src[i], r, by);
        else if (own->op == OP_RANGE)
            src[nsrc++] = own;
    return uop_intern(t, OP_STORE, store->dtype, src, nsrc, (union arg){0});
}

void store_cut(struct tgc *t, struct uop *store, int axis, int64_t n, int64_t from,
               struct uop **first, struct uop **rest)
{
    int64_t size = store->src[axis]->src[0]->arg.i;
    *first = store_part(t, store, axis, uop_int(t, n), uop_int(t, 0));
    *rest = store_part(t, store, axis, uop_int(t, size - from), uop_int(t, from));
}

/* Iterations of a loop: none if its size is negative, as that of a window's results at sizes below
 * the window's may be. Divisions of such a size would make some. */
static struct uop *iterations_of(struct tgc *t, const struct uop *range)
{
    return sym_max(t, range->src[0], uop_int(t, 0));
}

struct uop *store_of_value(struct tgc *t, const struct uop *store, struct uop *value)
{
    struct uop **src = scratch_array(t, (size_t)store->nsrc, sizeof *src);
    ARRAY_COPY(src, store->src, store->nsrc);
    src[2] = value;
    return uop_intern(t, OP_STORE, store->dtype, src, store->nsrc, store->arg);
}

void store_round(struct tgc *t, struct uop *store, int axis, int64_t n, struct uop **first,
                 struct uop **rest)
{
    struct uop *size = iterations_of(t, store->src[axis]), *by = uop_int(t, n);
    struct uop *whole = sym_mul(t, sym_div(t, size, by), by);
    *first = store_part(t, store, axis, whole, uop_int(t, 0));
    *rest = store_part(t, store, axis, sym_mod(t, size, by), whole);
}

void store_overlap(struct tgc *t, struct uop *store, int axis, int64_t n, struct uop **part)
{
    struct uop *size = iterations_of(t, store->src[axis]), *by = uop_int(t, n),
               *zero = uop_int(t, 0),
               *one = uop_int(t, 1), *rest = sym_mod(t, size, by),
               *any = sym_min(t, sym_div(t, size, by), one),
               *last = sym_mul(t, any, sym_min(t, rest, one)),
               *few = sym_mul(t, rest, sym_sub(t, one, any));
    part[0] = store_part(t, store, axis, sym_muli(t, sym_div(t, size, by), n), zero);
    part[1] = store_part(t, store, axis, sym_muli(t, last, n),
                         sym_max(t, sym_addi(t, size, -n), zero));
    part[2] = store_part(t, store, axis, few, zero);
}

void store_split(struct tgc *t, struct uop *store, int axis, int64_t at, struct uop **first,
                 struct uop **rest)
{
    store_cut(t, store, axis, at, at, first, rest);
}
