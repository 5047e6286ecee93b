/* expand.c - turns lanes into vectors and straight-line code in the variants of kernels; UNROLLED
 * lanes become straight-line code in all kernels.
 *
 * A linear program comes in with its lanes as loops. The body of a lane's loop is written once for
 * each value of the loop variable, which it replaces. The body of a vector's lane is written once,
 * with vector loads and stores for those along the lane:
 *
 *      acc[row, column] := 0                 acc0 := splat 0, acc1 := splat 0
 *      for k                                 for k
 *        for row                               w = load.16 b[k*16]
 *          for column                          acc0 := mulacc(splat a[k], w, acc0)
 *            acc := acc + a * b                acc1 := mulacc(splat a[k + K], w, acc1)
 *
 * The products of a group and their sum are one dot product, see group_bytes.c.
 *
 * A value that two lanes share is computed once. A product that is added becomes one MULACC.
 *
 * needs: tile_nest.c has made sure that everything that varies along a vector's lane has an
 * operation on vectors, and is loaded and stored with stride 1. */
#include "passes/vector/expand.h"

static int accs_of(const struct expander *e, const struct uop *acc)
{
    for (int i = e->naccs - 1; i >= 0; i--)
        if (e->accs[i].acc == acc)
            return i;
    return -1;
}

static bool is_unrolled(const struct uop *lane)
{
    return !range_is(lane, AXIS_VECTOR) && !range_is(lane, AXIS_KEPT) &&
           !range_is(lane, AXIS_FRAGMENT) && !range_is(lane, AXIS_GROUP);
}

/* Whether the weights of an accumulator's sum depend on its lane k. */
static bool is_of_weights(const struct expander *e, const struct accs *a, int k)
{
    return uop_depends_on(e->t, a->weights->src[1], a->acc->src[k]);
}

/* The index of the accumulator for the lanes' present values: row-major, a vector counts as one.
 * weights: only of lanes on which the weights depend, else of all. */
static int lane_index(const struct expander *e, const struct accs *a, bool weights)
{
    int64_t at = 0;
    for (int k = 1; k < a->acc->nsrc; k++) {
        const struct uop *lane = a->acc->src[k];
        if (!is_unrolled(lane) || (weights && !is_of_weights(e, a, k)))
            continue;
        const struct uop *v = map_get(&e->value, lane);
        at = at * lane->src[0]->arg.i + (v ? v->arg.i : 0);
    }
    return (int)at;
}

/* The value of an accumulator after its sums: with the correction term of centered dot products. */
static struct uop *read_acc(struct expander *e, const struct accs *a)
{
    struct uop *src[2] = {a->each[lane_index(e, a, false)]}, *v;
    if (!a->less || e->group)
        return src[0];
    src[1] = a->less[lane_index(e, a, true)];
    v = uop_intern(e->t, OP_SUB, DTYPE_I32, src, 2, (union arg){0});
    expand_need(e, v);
    return v;
}

struct uop *expand_value_of(struct expander *e, struct uop *u)
{
    int a = u->op == OP_ACC ? accs_of(e, u) : -1;
    if (a >= 0)
        return read_acc(e, &e->accs[a]);
    struct uop *v = map_get(&e->value, u);
    if (!v && op_class(u->op) != CLASS_LEAF && u->op != OP_STAGE)
        TGC_BUG(e->t, "%s is used before it is expanded", op_name(u->op));
    return v ? v : u;
}

struct uop *expand_splat(struct expander *e, struct uop *u, int lanes)
{
    if (lanes == 1 || u->lanes == lanes)
        return u;
    struct uop *v = uop_intern(e->t, OP_SPLAT, u->dtype, &u, 1, (union arg){.i = lanes});
    expand_need(e, v);
    return v;
}

/* Whether u is inside a group: casts of its elements, their products and sums, all part of its dot
 * product. */
static bool is_of_group(const struct expander *e, const struct uop *u)
{
    return e->group && u->dtype == e->summed;
}

static void expand_value(struct expander *e, struct uop *u)
{
    struct uop *src[4] = {NULL}, *v;
    if (is_of_group(e, u)) {
        if (u->op == OP_CAST)
            map_set(&e->value, u, expand_value_of(e, u->src[0]));
        return;
    }
    if (expand_places(e, u))
        return;
    int lanes = 1;
    for (int k = 0; k < u->nsrc; k++) {
        src[k] = expand_value_of(e, u->src[k]);
        lanes = src[k]->lanes > lanes ? src[k]->lanes : lanes;
    }
    if (u->op == OP_WHERE && src[0]->op == OP_CONST) {
        v = src[src[0]->arg.i ? 1 : 2];
    } else if (lanes == 1) {
        v = expand_fuse_product(e, uop_new(e->t, u->op, u->dtype, src, u->nsrc, u->arg));
    } else {
        bool uniform = u->op == OP_WHERE && src[0]->lanes == 1;
        for (int k = uniform; k < u->nsrc; k++)
            src[k] = expand_splat(e, src[k], lanes);
        v = uop_intern(e->t, u->op, u->dtype, src, u->nsrc, u->arg);
        v = expand_fuse_vector(e, v);
    }
    uop_set_origin(e->t, v, u);
    expand_need(e, v);
    map_set(&e->value, u, v);
}

/* The open lane determines which operand is chosen. */
static void expand_stack(struct expander *e, struct uop *u)
{
    int64_t at;
    if (!uop_const_int(expand_value_of(e, u->src[0]), &at) || at < 0 || at > u->nsrc - 2)
        TGC_BUG(e->t, "an index that no lane says");
    struct uop *v = expand_value_of(e, u->src[1 + at]);
    expand_need(e, v);
    map_set(&e->value, u, v);
}

/* The stride of an offset along the vector's lane, in elements; 0: all lanes have one element. */
static int64_t stride_of(struct expander *e, struct uop *offset)
{
    int64_t stride = 0;
    if (!e->vector)
        return 0;
    intptr_t memo = (intptr_t)map_get(&e->stride, offset);
    if (memo)
        return memo - VECTOR_STRIDE_MAX - 1;
    if (!index_stride(e->t, offset, e->vector, &stride) || stride > VECTOR_STRIDE_MAX ||
        stride < -VECTOR_STRIDE_MAX)
        TGC_BUG(e->t, "a vector's lane has no stride");
    map_set(&e->stride, offset, (void *)(intptr_t)(stride + VECTOR_STRIDE_MAX + 1));
    return stride;
}

static bool is_lane_wise(struct expander *e, struct uop *cond)
{
    return e->vector && uop_depends_on(e->t, cond, e->vector);
}

/* Elements of a group at an offset: its contiguous ones, or those of all the vector's columns. */
static int elements_at(struct expander *e, struct uop *offset, enum dtype d)
{
    int64_t stride = stride_of(e, offset), along;
    if (!index_stride(e->t, offset, e->group, &along) || along != 1 ||
        (stride != 0 && stride != dtype_group(d)))
        TGC_BUG(e->t, "the elements of a group are not contiguous");
    return stride ? dtype_group(d) * e->lanes : dtype_group(d);
}

/* A condition holds for the whole group. */
static void expand_elements(struct expander *e, struct uop *u)
{
    struct uop *src[4] = {u->src[0], expand_value_of(e, u->src[1])};
    int lanes = elements_at(e, u->src[1], u->dtype), nsrc = u->nsrc;
    if (nsrc == 4) {
        src[2] = expand_value_of(e, u->src[2]);
        src[3] = expand_splat(e, expand_value_of(e, u->src[3]), lanes);
        nsrc = uop_is_int(src[2], 1) ? 2 : 4;
    }
    struct uop *v = nsrc == 4 && uop_is_int(src[2], 0)
                        ? src[3]
                        : uop_intern(e->t, OP_LOAD, u->dtype, src, nsrc,
                                     (union arg){.i = ARG_PACK(VECTOR, lanes, 0, 1, true)});
    expand_need(e, v);
    map_set(&e->value, u, v);
}

/* Bytes that are copied as they are. */
static void store_bytes(struct expander *e, struct uop *u, struct uop *const *src)
{
    int lanes = elements_at(e, u->src[1], src[2]->dtype);
    scopes_forget_loads(&e->scopes, u->src[0]);
    expand_push(e, uop_intern(e->t, OP_STORE, u->dtype, src, 3,
                              (union arg){.i = ARG_PACK(VECTOR, lanes, 0, 1, true)}));
}

static void expand_load(struct expander *e, struct uop *u)
{
    if (e->group) {
        (e->fragment ? tile_load : expand_elements)(e, u);
        return;
    }
    struct uop *src[4] = {u->src[0], expand_value_of(e, u->src[1])}, *v;
    int64_t stride = stride_of(e, u->src[1]);
    int lanes = stride ? e->lanes : 1, part = stride && e->tail ? e->tail : lanes, nsrc = u->nsrc;
    if (stride != 0 && stride != 1 && u->dtype != DTYPE_F32 && u->dtype != DTYPE_I32)
        TGC_BUG(e->t, "a vector of %s lies apart", dtype_name(u->dtype));
    if (nsrc == 4 && is_lane_wise(e, u->src[2])) {
        src[2] = u->src[2];
        part = expand_count_lanes(e, &src[2]);
        expand_need(e, src[2]);
        nsrc = uop_is_int(src[2], 1) ? 2 : 4;
    } else if (nsrc == 4) {
        src[2] = expand_value_of(e, u->src[2]);
    }
    if (nsrc == 4 || part == 0)
        src[3] = expand_splat(e, expand_value_of(e, u->src[3]), lanes);
    v = part == 0
            ? src[3]
            : uop_intern(
                  e->t, OP_LOAD, u->dtype, src, nsrc,
                  (union arg){.i = lanes == 1 ? 0 : ARG_PACK(VECTOR, lanes, part % lanes, stride)});
    expand_need(e, v);
    map_set(&e->value, u, v);
}

/* The condition of a store that holds for a part of the lanes becomes the number of lanes
 * stored. */
static void expand_guard(struct expander *e, struct uop *u)
{
    struct uop *cond = u->src[0];
    e->part = e->lanes;
    if (is_lane_wise(e, cond)) {
        e->part = expand_count_lanes(e, &cond);
        e->guard = u;
        if (e->part > 0 && !uop_is_int(cond, 1))
            TGC_BUG(e->t, "a part of a vector is stored under a condition");
        return;
    }
    cond = expand_value_of(e, cond);
    map_set(&e->value, u, NULL);
    if (uop_is_int(cond, 1))                          /* it holds for this iteration of a lane */
        return;
    struct uop *v = uop_intern(e->t, OP_GUARD, u->dtype, &cond, 1, u->arg);
    expand_enter(e);
    expand_push(e, v);
    map_set(&e->value, u, v);
    e->nguard++;
}

static void expand_end(struct expander *e, struct uop *u)
{
    if (e->guard == u->src[0]) {
        e->guard = NULL;
        return;
    }
    struct uop *v = map_get(&e->value, u->src[0]);
    if (!v)                                           /* a condition that holds */
        return;
    expand_push(e, uop_intern(e->t, u->op, u->dtype, &v, 1, u->arg));
    e->nguard -= u->op == OP_ENDGUARD;
    expand_leave(e);
}

/* A value to be stored, splat to all lanes. Small dtypes exist in vectors only as the result of the
 * cast before a store. */
static struct uop *splat_stored(struct expander *e, struct uop *v)
{
    enum dtype d = v->dtype;
    if (v->lanes > 1 || (!dtype_is_half(d) && !dtype_is_byte(d)))
        return expand_splat(e, v, e->lanes);
    struct uop *wide = uop_intern(e->t, OP_CAST, DTYPE_F32, &v, 1, (union arg){0});
    expand_need(e, wide);
    wide = expand_splat(e, wide, e->lanes);
    v = uop_intern(e->t, OP_CAST, d, &wide, 1, (union arg){0});
    expand_need(e, v);
    return v;
}

/* The stride of a store along the vector's lane that only the run knows; NULL: it is known. */
static struct uop *slope_of(struct expander *e, const struct uop *u)
{
    return e->vector && store_is_apart_by_run(e->t, u, e->vector)
               ? index_slope(e->t, u->src[1], e->vector)
               : NULL;
}

static void expand_store(struct expander *e, struct uop *u)
{
    struct uop *src[3] = {u->src[0], expand_value_of(e, u->src[1]), expand_value_of(e, u->src[2])};
    int part = e->guard && e->part < e->lanes ? e->part : e->tail;
    struct uop *by_run = slope_of(e, u);
    int64_t stride = by_run ? VECTOR_STRIDE_MAX : stride_of(e, u->src[1]);
    if (e->guard && e->part == 0)
        return;
    if (e->fragment) {
        tile_store(e, u, src);
        return;
    }
    if (e->group) {
        store_bytes(e, u, src);
        return;
    }
    if (stride)
        src[2] = splat_stored(e, src[2]);
    else if (src[2]->lanes > 1)
        TGC_BUG(e->t, "a vector is stored to one place");
    for (int k = 1; k < 3 && e->lazy; k++)
        expand_compute(e, src[k]);
    scopes_forget_loads(&e->scopes, u->src[0]);
    if (by_run ? cross_store_by(e, u, src[1], src[2], part, by_run)
               : cross_store(e, u, src[1], src[2], part, stride))
        return;
    int lanes = src[2]->lanes;
    expand_push(
        e, uop_intern(e->t, OP_STORE, u->dtype, src, 3,
                      (union arg){.i = lanes > 1 ? ARG_PACK(VECTOR, lanes, part, stride) : 0}));
}

static bool opens_group(struct expander *e, int at);

/* The weights of a sum of products of bytes that becomes a dot product; NULL: acc is no such
 * sum. */
static const struct uop *find_weights(struct expander *e, const struct uop *acc)
{
    const struct uop *group = NULL;
    for (int i = 0; i < e->nin; i++) {
        const struct uop *u = e->in[i], *m = NULL;
        group = opens_group(e, i) ? u : u->op == OP_END && u->src[0] == group ? NULL : group;
        if (group && u->op == OP_ASSIGN && u->src[0] == acc)
            m = u->src[1]->src[u->src[1]->src[0] == acc];
        for (int k = 0; m && k < 2; k++)
            if (m->src[k]->src[0]->dtype == DTYPE_I8)
                return m->src[k]->src[0];
    }
    return NULL;
}

static struct uop *new_acc(struct expander *e, const struct uop *of, struct uop *const *src,
                           int nsrc)
{
    struct uop *acc = uop_intern(e->t, OP_ACC, of->dtype, src, nsrc,
                                 (union arg){.i = e->next_acc++});
    uop_set_origin(e->t, acc, of);
    expand_push(e, acc);
    return acc;
}

static void expand_acc(struct expander *e, struct uop *u)
{
    struct uop *src[MAX_RANK + 1] = {expand_value_of(e, u->src[0])};
    int64_t n = 1, lanes = 1, nweights = 1;
    int nsrc = 1;
    for (int k = 1; k < u->nsrc; k++) {
        if (range_is(u->src[k], AXIS_KEPT))
            src[nsrc++] = u->src[k];
        else if (range_is(u->src[k], AXIS_VECTOR) || range_is(u->src[k], AXIS_FRAGMENT) ||
                 range_is(u->src[k], AXIS_GROUP))
            lanes *= u->src[k]->src[0]->arg.i;
        else
            n *= u->src[k]->src[0]->arg.i;
    }
    if (u->nsrc == 1 && e->vector)                    /* declared inside a vector's lane */
        lanes = e->lanes;
    src[0] = expand_splat(e, src[0], (int)lanes);
    struct accs a = {.acc = u, .each = mem_array(e->t, (size_t)n, sizeof *a.each)};
    for (int64_t i = 0; i < n; i++)
        a.each[i] = new_acc(e, u, src, nsrc);
    a.weights = isa_centers_bytes((enum isa)(e->isa - isa_table)) && lanes > 1
                    ? find_weights(e, u)
                    : NULL;
    for (int k = 1; k < u->nsrc && a.weights; k++)
        nweights *=
            is_unrolled(u->src[k]) && is_of_weights(e, &a, k) ? u->src[k]->src[0]->arg.i : 1;
    a.less = a.weights ? mem_array(e->t, (size_t)nweights, sizeof *a.less) : NULL;
    for (int64_t i = 0; i < nweights && a.weights; i++)
        a.less[i] = new_acc(e, u, src, nsrc);
    SCRATCH_PUSH(e->t, e->accs, e->naccs, e->cap_accs, a);
}

static void assign(struct expander *e, struct uop *acc, struct uop *value)
{
    struct uop *src[2] = {acc, value};
    expand_push(e, uop_intern(e->t, OP_ASSIGN, acc->dtype, src, 2, (union arg){0}));
}

static struct uop *intern_dot(struct expander *e, struct uop *const *src)
{
    enum intrinsic dot = isa_dot((enum isa)(e->isa - isa_table), src[2]->dtype);
    return uop_intern(e->t, OP_INTRINSIC, src[0]->dtype, src, 3,
                      (union arg){.i = INTRINSIC_BITS(dot, src[0]->lanes, 0, 0)});
}

/* Adds the correction term -DOT_MIDDLE * sum(w) of centered dot products for the present weights,
 * once for all sums that share them: a dot product of zeros, less DOT_MIDDLE. */
static void sum_weights(struct expander *e, const struct accs *a, struct uop *weights)
{
    for (int k = 1; k < a->acc->nsrc; k++) {
        const struct uop *now = map_get(&e->value, a->acc->src[k]);
        if (is_unrolled(a->acc->src[k]) && !is_of_weights(e, a, k) && now && now->arg.i)
            return;
    }
    struct uop *acc = a->less[lane_index(e, a, true)];
    struct uop *none = expand_splat(e, uop_consti(e->t, DTYPE_U8, 0), weights->lanes);
    struct uop *src[3] = {acc, none, weights};
    struct uop *dot = intern_dot(e, src);
    expand_need(e, dot);
    assign(e, acc, dot);
}

/* acc + the sum of a group's products */
static struct uop *dot_of(struct expander *e, const struct uop *u, struct uop *acc)
{
    const struct accs *a = &e->accs[accs_of(e, u->src[0])];
    const struct uop *sum = u->src[1], *m = sum->src[sum->src[0] == u->src[0]];
    struct uop *src[3] = {acc, expand_value_of(e, m->src[0]), expand_value_of(e, m->src[1])};
    if (src[1]->dtype == DTYPE_I8) {
        struct uop *weights = src[1];
        src[1] = src[2], src[2] = weights;
    }
    for (int k = 1; k < 3 && !e->fragment; k++)
        src[k] = expand_splat(e, src[k], dtype_group(src[k]->dtype) * acc->lanes);
    if (a->less)
        sum_weights(e, a, src[2]);
    struct uop *dot = e->fragment ? tile_dot(e, src) : intern_dot(e, src);
    expand_need(e, dot);
    return dot;
}

static void expand_assign(struct expander *e, struct uop *u)
{
    struct uop *acc = expand_value_of(e, u->src[0]), *src[2] = {acc};
    src[1] = is_of_group(e, u) ? dot_of(e, u, acc)
                               : expand_splat(e, expand_value_of(e, u->src[1]), acc->lanes);
    struct uop *v = uop_intern(e->t, OP_ASSIGN, u->dtype, src, 2, (union arg){0});
    expand_push(e, v);
    map_set(&e->value, u, acc);
}

static void expand_prefetch(struct expander *e, struct uop *u)
{
    struct uop *src[2] = {u->src[0], expand_value_of(e, u->src[1])};
    expand_push(e, uop_intern(e->t, OP_PREFETCH, DTYPE_VOID, src, 2, (union arg){0}));
}

/* A statement outside of vectors and groups, with its operands' present forms. */
static void expand_statement(struct expander *e, struct uop *u)
{
    struct uop **src = scratch_array(e->t, (size_t)u->nsrc + 1, sizeof *src);
    for (int k = 0; k < u->nsrc; k++)
        src[k] = expand_value_of(e, u->src[k]);
    expand_push(e, uop_intern(e->t, u->op, u->dtype, src, u->nsrc, u->arg));
}

int expand_find_end(const struct expander *e, int at)
{
    for (int i = at + 1; i < e->nin; i++)
        if ((e->in[i]->op == OP_END || e->in[i]->op == OP_ENDGUARD) &&
            e->in[i]->src[0] == e->in[at])
            return i;
    TGC_BUG(e->t, "a loop is not closed");
}

void expand_one(struct expander *e, struct uop *u)
{
    struct uop *v;
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER: case OP_STAGE: case OP_SINK:
        break;
    case OP_RANGE:
        v = expand_value_of(e, u->src[0]);
        v = uop_intern(e->t, OP_RANGE, u->dtype, &v, 1, u->arg);
        expand_enter(e);
        expand_push(e, v);
        map_set(&e->value, u, v);
        break;
    case OP_GUARD: expand_guard(e, u); break;
    case OP_END: case OP_ENDGUARD: expand_end(e, u); break;
    case OP_ACC: expand_acc(e, u); break;
    case OP_ASSIGN: expand_assign(e, u); break;
    case OP_LOAD: expand_load(e, u); break;
    case OP_STORE: expand_store(e, u); break;
    case OP_STACK: expand_stack(e, u); break;
    case OP_PREFETCH: expand_prefetch(e, u); break;
    case OP_COPY: case OP_COMMIT: case OP_WAIT: case OP_MBAR_INIT: case OP_MBAR_ARRIVE:
    case OP_MBAR_RELEASE: case OP_MBAR_WAIT: case OP_BULK: case OP_BULK_STORE: case OP_BULK_WAIT:
    case OP_CLUSTER_BARRIER: case OP_REGISTERS:
        expand_statement(e, u);
        break;
    case OP_TICKET:
        expand_statement(e, u);
        map_set(&e->value, u, e->out[e->nout - 1]);
        break;
    default: expand_value(e, u);
    }
}

/* Whether values may be computed lazily, only where a store needs them. In choices the lane
 * determines what is chosen, so nothing else should be computed, nor earlier. That works if the
 * lanes contain nothing but stores. */
static bool may_be_lazy(const struct expander *e, int begin, int end)
{
    bool choice = false;
    const struct uop *vector = NULL;
    for (int i = begin; i < end; i++) {
        const struct uop *u = e->in[i];
        vector = range_is(u, AXIS_VECTOR) ? u : vector;
        bool part = vector && u->op == OP_GUARD && uop_depends_on(e->t, u->src[0], vector);
        if (u->op == OP_ACC || u->op == OP_ASSIGN || (u->op == OP_GUARD && !part) ||
            (u->op == OP_RANGE && !range_is_lane(u)))
            return false;
        choice |= range_is(u, AXIS_UNROLLED);
    }
    return choice;
}

/* The dtype of what a group sums; VOID: nothing. */
static enum dtype summed_by(const struct expander *e, int at)
{
    for (int i = at + 1; i < expand_find_end(e, at); i++)
        if (e->in[i]->op == OP_ASSIGN)
            return e->in[i]->dtype;
    return DTYPE_VOID;
}

static bool is_contiguous(struct expander *e, const struct uop *load, struct uop *group)
{
    int64_t stride;
    return load->op == OP_LOAD && load->nsrc == 2 && dtype_is_byte(load->dtype) &&
           index_stride(e->t, load->src[1], group, &stride) && stride == 1;
}

/* Whether all that the group `at` of a portable kernel does is adding products of words' bytes. */
static bool sums_words(struct expander *e, int at)
{
    bool any = false;
    for (int i = at + 1; i < expand_find_end(e, at); i++) {
        const struct uop *u = e->in[i];
        if (u->op == OP_LOAD && !is_contiguous(e, u, e->in[at]))
            return false;
        if (u->op == OP_STORE || u->op == OP_GUARD || u->op == OP_WHERE)
            return false;
        if (u->op != OP_ASSIGN)
            continue;
        const struct uop *sum = u->src[1];
        if (sum->op != OP_ADD || sum->dtype != DTYPE_I32)
            return false;
        const struct uop *m = sum->src[sum->src[0] == u->src[0]];
        if (m->op != OP_MUL || m->src[0]->op != OP_CAST || m->src[1]->op != OP_CAST ||
            m->src[0]->src[0]->dtype == m->src[1]->src[0]->dtype)
            return false;
        any = true;
    }
    return any;
}

/* A group that contains a vector's lane becomes its DOTs, one that is copied one load and one
 * store; other groups stay loops, but where the machine sums words. */
static bool opens_group(struct expander *e, int at)
{
    if (!range_is(e->in[at], AXIS_GROUP))
        return false;
    if (e->isa == &isa_table[ISA_GENERIC])
        return machine_of(e->t)->sums_words && sums_words(e, at);
    for (int i = at + 1; i < expand_find_end(e, at); i++) {
        const struct uop *u = e->in[i];
        if (range_is(u, AXIS_VECTOR) || u->op == OP_STORE ||
            (u->op == OP_ASSIGN && dtype_is_byte(u->dtype)))
            return true;
    }
    return false;
}

/* The loop at `at` stores other values in its next iteration, so values loaded before it are not
 * reused inside. */
static void forget_stored(struct expander *e, int at)
{
    for (int i = at + 1, end = expand_find_end(e, at); i < end; i++)
        if (e->in[i]->op == OP_STORE)
            scopes_forget_loads(&e->scopes, e->in[i]->src[0]);
}

static void expand_all(struct expander *e)
{
    enum { DEPTH = sizeof e->lane / sizeof *e->lane };
    struct lane *lane = e->lane;
    for (int i = 0; i < e->nin; i++) {
        struct uop *u = e->in[i];
        if (opens_group(e, i)) {
            e->groups = e->group;
            e->group = u;
            e->summed = summed_by(e, i);
            map_set(&e->value, u, uop_int(e->t, 0));
            continue;
        }
        if (u->op == OP_END && u->src[0] == e->group) {
            e->group = e->groups;
            e->groups = NULL;
            continue;
        }
        if (range_is_lane(u) && !range_is(u, AXIS_KEPT)) {
            bool vector = range_is(u, AXIS_VECTOR), fragment = range_is(u, AXIS_FRAGMENT);
            int64_t iterations = vector || fragment ? 1 : u->src[0]->arg.i;
            if (e->depth == DEPTH)
                TGC_BUG(e->t, "more than %d lanes", DEPTH);
            lane[e->depth++] = (struct lane){i, expand_find_end(e, i), 0, iterations};
            map_set(&e->value, u, uop_int(e->t, 0));
            if (e->depth == 1)
                e->lazy = may_be_lazy(e, i, lane[0].end);
            e->fragment = fragment ? u : e->fragment;
            if (vector) {
                e->vector = u;
                e->lanes = (int)u->src[0]->arg.i;
                e->stride = (struct uop_map){.t = e->t, .scratch = true};
            }
            continue;
        }
        if (e->depth == 0 && u->op == OP_RANGE && e->isa != &isa_table[ISA_GENERIC] &&
            strip_loop(e, &i))
            continue;
        if (e->depth == 0 || i != lane[e->depth - 1].end) {
            if (u->op == OP_RANGE)
                forget_stored(e, i);
            expand_one(e, u);
            continue;
        }
        struct lane *l = &lane[e->depth - 1];
        if (++l->now < l->size) {
            map_set(&e->value, e->in[l->begin], uop_int(e->t, l->now));
            i = l->begin;                             /* again, with the next value */
            continue;
        }
        if (e->vector == e->in[l->begin])
            e->vector = NULL;
        if (e->fragment == e->in[l->begin])
            e->fragment = NULL;
        if (e->depth == 1)
            tiles_forget(e);
        if (--e->depth == 0)
            e->lazy = false;
    }
}

static void expand_program(struct tgc *t, enum isa isa, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .isa = &isa_table[isa], .in = *linear, .nin = *nlinear,
                           .apart = rounds_one(*linear, *nlinear)};
    e->value = e->stride = e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    e->facts = (struct rule_facts){.bounds = {.t = t}, .most = {.t = t, .most = true}};
    expand_all(e);
    *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
    *nlinear = e->nout;
    scratch_release(t, mark);
}

/* Whether the portable program has what becomes straight-line code, or dot products. */
static bool has_choices(const struct tgc *t, const struct kernel *k)
{
    for (int i = 0; i < k->nlinear && machine_of(t)->sums_words; i++)
        if (range_is(k->linear[i], AXIS_GROUP))
            return true;
    for (int i = 0; i < k->opts.n; i++)
        if (k->opts.v[i].op == OPT_UNROLL)
            return true;
    return false;
}

bool pass_expand(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int j = 0; j < k->nvariant; j++)
        expand_program(t, k->variant[j].isa, &k->variant[j].linear, &k->variant[j].nlinear);
    if (has_choices(t, k))
        expand_program(t, isa_portable(), &k->linear, &k->nlinear);
    return true;
}
