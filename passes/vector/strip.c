/* strip.c - vectorizes the innermost loops of a linear program that no tile covers: stages, rows of
 * a softmax, sums along the contiguous axis, of any size.
 *
 *      for k < n                     sums = splat 0
 *        sum := sum + x[k]           for k < n / 64                   four vectors at a time
 *                                      sums0 := sums0 + load.16 x[64k] ...
 *                                    sum := sum + fold(sums0 + ... + sums3)
 *                                    for k < n % 64 / 16  ...   for k < n % 8  sum := sum + x[...]
 *
 * Without a sum, the remainder is a partial vector.
 *
 * A loop that contains loops is taken, too, if all accesses in it are contiguous along the outer
 * one: the sums of many columns.
 *
 * Strip-mining (Allen, Kennedy: Optimizing Compilers for Modern Architectures, 2.2.4): accesses of
 * stride 1 along the loop become vectors, invariant ones stay scalars. A sum is reassociated, as
 * REDUCE allows. Sizes may be known only at run time.
 */
#include "passes/vector/gather.h"

#include <string.h>

enum {
    MAX_SUMS = 8,
    UNROLL = 4,
    SHORT = 5,                   /* the least elements for which a partial vector pays */
};

/* An accumulator that the loop updates by acc := acc op x. */
struct sum {
    struct uop *acc, *assign, *x;
    enum op op;
    struct uop *part[UNROLL];
};

struct strip {
    struct expander *e;
    struct uop *range;
    int begin, end;              /* of the loop in e->in */
    struct sum sum[MAX_SUMS]; int nsum;
    bool any;                    /* some access is contiguous along the loop */
    struct lookup lookup;        /* it reads a table; table NULL: none */
    struct groups groups;        /* it stores groups of bytes; lanes 0: none */
    struct gather gather;        /* it loads at data-dependent indices */
};

/* ----------------------------------------------------------------------------- does it go along */

static bool is_declared_inside(const struct strip *s, const struct uop *acc)
{
    for (int i = s->begin + 1; i < s->end; i++)
        if (s->e->in[i] == acc)
            return true;
    return false;
}

static bool find_sum(struct strip *s, struct uop *assign)
{
    struct uop *acc = assign->src[0], *v = assign->src[1];
    bool first = v->nsrc == 2 && v->src[0] == acc, second = v->nsrc == 2 && v->src[1] == acc;
    if ((v->op != OP_ADD && v->op != OP_MUL && v->op != OP_MAX && v->op != OP_MIN) ||
        first == second || s->nsum == MAX_SUMS || acc->dtype != DTYPE_F32 || acc->nsrc > 1)
        return false;
    for (int k = 0; k < s->nsum; k++)
        if (s->sum[k].acc == acc)
            return false;
    s->sum[s->nsum++] = (struct sum){acc, assign, v->src[first], v->op, {0}};
    return true;
}

static const struct sum *sum_of_value(const struct strip *s, const struct uop *u)
{
    for (int k = 0; k < s->nsum; k++)
        if (s->sum[k].assign->src[1] == u)
            return &s->sum[k];
    return NULL;
}

/* Whether a sum's accumulator and new value have no other readers in the loop. */
static bool sums_are_apart(const struct strip *s)
{
    struct uop *const *in = s->e->in;
    for (int i = s->begin + 1; i < s->end; i++)
        for (int k = 0; k < in[i]->nsrc; k++)
            for (int j = 0; j < s->nsum; j++) {
                const struct sum *m = &s->sum[j];
                if ((in[i]->src[k] == m->acc && in[i] != m->assign &&
                     in[i] != m->assign->src[1]) ||
                    (in[i]->src[k] == m->assign->src[1] && in[i] != m->assign) ||
                    in[i]->src[k] == m->assign)
                    return false;
            }
    return true;
}

/* Whether memory that the loop both stores and loads is loaded at the offset at which it is
 * stored. */
static bool memory_fits(const struct strip *s)
{
    struct uop *const *in = s->e->in;
    for (int i = s->begin + 1; i < s->end; i++)
        for (int k = s->begin + 1; k < s->end && in[i]->op == OP_STORE; k++) {
            bool same = (in[k]->op == OP_LOAD || in[k]->op == OP_STORE) && k != i &&
                        in[k]->src[0] == in[i]->src[0];
            if (same && (in[k]->op == OP_STORE || in[k]->src[1] != in[i]->src[1]))
                return false;
        }
    return true;
}

/* Whether vectors from the loop's first iteration on are whole transactions of a device with a
 * grid; a processor loads unaligned vectors as fast. */
static bool is_aligned(const struct strip *s, struct uop *offset)
{
    struct tgc *t = s->e->t;
    return !device_has_grid(t) ||
           index_divisor(t, sym_sub(t, offset, s->range)) % s->e->isa->lanes == 0;
}

/* The stride of an offset along the loop, if vectors can have it: 0 or 1. */
static bool stride_fits(const struct strip *s, struct uop *offset, int64_t *stride)
{
    return index_stride(s->e->t, offset, s->range, stride) &&
           (*stride == 0 || (*stride == 1 && is_aligned(s, offset)));
}

static bool load_fits(struct strip *s, const struct uop *u, struct uop_map *varies)
{
    int64_t stride;
    if (!stride_fits(s, u->src[1], &stride) || (stride == 1 && !tile_is_vector_dtype(u->dtype)) ||
        (stride == 1 && u->dtype != DTYPE_F32 && u->nsrc > 2))
        return false;
    for (int k = 1; k < u->nsrc; k++)
        if (map_get(varies, u->src[k]) || (k > 1 && uop_depends_on(s->e->t, u->src[k], s->range)))
            return false;
    if (stride == 1)
        map_set(varies, u, (void *)(uintptr_t)u);
    return true;
}

static bool is_stored(const struct strip *s, const struct uop *u)
{
    for (int i = s->begin + 1; i < s->end; i++)
        if (s->e->in[i]->op == OP_STORE && tile_stores_small(s->e->in[i], u))
            return true;
    return false;
}

static bool value_fits(struct strip *s, struct uop *u, struct uop_map *varies)
{
    bool any = false, of_index = false;
    if (u->dtype == DTYPE_BOOL && uop_depends_on(s->e->t, u, s->range) &&
        tile_compares_places(s->e->t, u, s->range)) {
        map_set(varies, u, u);
        return true;
    }
    for (int k = 0; k < u->nsrc; k++) {
        any |= map_get(varies, u->src[k]) != NULL;
        of_index |= u->src[k]->dtype == DTYPE_INDEX && u->dtype != DTYPE_INDEX &&
                    uop_depends_on(s->e->t, u->src[k], s->range);
    }
    if (any)
        map_set(varies, u, u);
    return !of_index && (!any || tile_is_vector_op(u) || is_stored(s, u));
}

/* Loads at data-dependent indices, and the indices. */
static bool gather_fits(struct strip *s, struct uop *u, struct uop_map *varies)
{
    if (!s->gather.any || !uop_depends_on(s->e->t, u, s->range) ||
        !(u->op == OP_LOAD ? gather_load(&s->gather, u, varies) : gather_value(&s->gather, u)))
        return false;
    map_set(varies, u, u);
    return true;
}

static int64_t find_tail(const struct strip *s, const struct uop *n, int64_t lanes);

/* One or two vectors at least; fewer elements if they fill half a vector, or a partial vector that
 * pays: channels are often that few. */
static bool size_fits(const struct strip *s, const struct uop *size)
{
    int lanes = s->e->isa->lanes, narrow = s->e->isa->narrow;
    if (size->op != OP_CONST)
        return size->vmax >= 2 * lanes;
    return size->arg.i >= lanes || size->arg.i == narrow ||
           (size->arg.i >= SHORT && find_tail(s, size, lanes) > 0);
}

static bool loop_fits(struct strip *s)
{
    struct expander *e = s->e;
    const struct uop *size = s->range->src[0];
    struct uop_map varies = {.t = e->t, .scratch = true};
    int64_t stride;
    for (int i = s->begin + 1; i < s->end; i++)
        if (e->in[i]->op == OP_ASSIGN && !is_declared_inside(s, e->in[i]->src[0]) &&
            !find_sum(s, e->in[i]))
            return false;
    if (!size_fits(s, size) || !sums_are_apart(s) || !memory_fits(s))
        return false;
    for (int i = s->begin + 1; i < s->end; i++) {
        struct uop *u = e->in[i];
        if (u->op == OP_LOAD) {
            if (!load_fits(s, u, &varies) && !gather_fits(s, u, &varies))
                return false;
        } else if (u->op == OP_STORE) {
            if (!stride_fits(s, u->src[1], &stride) || stride != 1 || u->nsrc > 3 ||
                !tile_stores_vectors(u))
                return false;
            s->any = true;
        } else if (op_is_elementwise(u->op)) {
            if (!sum_of_value(s, u) && !gather_fits(s, u, &varies) && !value_fits(s, u, &varies))
                return false;
        } else if (u->op == OP_ACC) {                  /* its sum is a vector, whatever is added */
            if (u->nsrc > 1 || u->dtype != DTYPE_F32 || map_get(&varies, u->src[0]))
                return false;
            map_set(&varies, u, u);
        } else if (u->op == OP_RANGE) {
            if (range_is_lane(u) || uop_depends_on(e->t, u->src[0], s->range))
                return false;
        } else if (u->op != OP_ASSIGN && u->op != OP_END && op_class(u->op) != CLASS_LEAF) {
            return false;
        }
    }
    for (int k = 0; k < s->nsum; k++)
        s->any |= map_get(&varies, s->sum[k].x) != NULL;
    return s->any;
}

/* --------------------------------------------------------------------------------------- strips */

static union scalar identity(enum op op)
{
    return (union scalar){.f = op == OP_MUL   ? 1
                               : op == OP_MAX ? -__builtin_inf()
                               : op == OP_MIN ? __builtin_inf()
                                              : 0};
}

static struct uop *combine(struct strip *s, enum op op, struct uop *a, struct uop *b)
{
    struct uop *src[2] = {a, b};
    struct uop *v = uop_intern(s->e->t, op, DTYPE_F32, src, 2, (union arg){0});
    v = expand_fuse_product(s->e, v);
    expand_need(s->e, v);
    return v;
}

static void assign(struct strip *s, struct uop *acc, struct uop *value)
{
    struct uop *src[2] = {acc, value};
    expand_push(s->e, uop_intern(s->e->t, OP_ASSIGN, DTYPE_F32, src, 2, (union arg){0}));
}

static struct uop *fold(struct strip *s, enum op op, struct uop *vector)
{
    if (vector->lanes == 1)
        return vector;
    struct uop *v = uop_intern(s->e->t, OP_FOLD, DTYPE_F32, &vector, 1, (union arg){.i = op});
    expand_need(s->e, v);
    return v;
}

/* Opens the vector accumulators, `n` for each sum. */
static void open_parts(struct strip *s, int lanes, int n)
{
    for (int k = 0; k < s->nsum; k++) {
        struct uop *init = uop_const(s->e->t, DTYPE_F32, identity(s->sum[k].op));
        init = expand_splat(s->e, init, lanes);
        for (int j = 0; j < n; j++) {
            s->sum[k].part[j] = uop_intern(s->e->t, OP_ACC, DTYPE_F32, &init, 1,
                                           (union arg){.i = s->e->next_acc++});
            uop_set_origin(s->e->t, s->sum[k].part[j], s->sum[k].acc);
            expand_push(s->e, s->sum[k].part[j]);
        }
    }
}

/* Reduces the n partial sums of each sum: added in pairs to one vector, then over its lanes to a
 * scalar, which is added to the accumulator. */
static void close_parts(struct strip *s, int n)
{
    for (int k = 0; k < s->nsum; k++) {
        struct sum *m = &s->sum[k];
        for (int half = n / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++)
                m->part[j] = combine(s, m->op, m->part[j], m->part[j + half]);
        struct uop *acc = expand_value_of(s->e, m->acc);
        assign(s, acc, combine(s, m->op, acc, fold(s, m->op, m->part[0])));
    }
}

/* Writes the loop's body once, for the elements from `at` on; part: the accumulators that it adds
 * to, -1: the sums themselves. */
static void write_inside(struct strip *s, struct uop *at, int lanes, int part)
{
    struct expander *e = s->e;
    e->vector = lanes > 1 ? s->range : NULL;
    e->lanes = lanes;
    e->stride = (struct uop_map){.t = e->t, .scratch = true};
    expand_need(e, at);
    map_set(&e->value, s->range, at);
    for (int i = s->begin + 1; i < s->end; i++) {
        struct uop *u = e->in[i];
        if (s->lookup.table && lanes > 1 && lookup_expand(e, &s->lookup, u))
            continue;
        if (s->groups.lanes && lanes > 1 && groups_expand(e, &s->groups, u))
            continue;
        if (lanes > 1 && gather_expand(&s->gather, u))
            continue;
        const struct sum *m = lanes > 1 && op_is_elementwise(u->op) ? sum_of_value(s, u) : NULL;
        if (m)
            continue;                                 /* its sum's ASSIGN does that */
        for (int k = 0; k < s->nsum && u->op == OP_ASSIGN && lanes > 1; k++)
            if (s->sum[k].assign == u)
                m = &s->sum[k];
        if (!m) {
            expand_one(e, u);
            continue;
        }
        struct uop *x = expand_splat(e, expand_value_of(e, m->x), lanes);
        struct uop *acc = part < 0 ? expand_value_of(e, m->acc) : m->part[part];
        assign(s, acc, combine(s, m->op, acc, part < 0 ? fold(s, m->op, x) : x));
    }
    e->vector = NULL;
}

/* Writes `count` iterations of `unroll` vectors of `lanes`, from `first` on. */
static void write_strip(struct strip *s, struct uop *first, struct uop *count, int lanes,
                        int unroll, bool parts)
{
    struct tgc *t = s->e->t;
    struct uop *range = NULL, *at = first;
    if (count->vmax <= 0)
        return;
    if (parts)
        open_parts(s, lanes, unroll);
    enum worker worker = RANGE_WORKER(s->range->arg.i);
    if (!uop_is_int(count, 1) || worker != WORKER_EACH) {
        expand_need(s->e, count);
        range = uop_axis(t, count, AXIS_LOOP, worker);
        if (uop_get_axes(t, s->range))
            uop_name_axes(t, range, uop_get_axes(t, s->range));
        expand_push(s->e, range);
        expand_enter(s->e);
        at = sym_add(t, first, sym_muli(t, range, (int64_t)lanes * unroll));
    }
    for (int j = 0; j < unroll; j++)
        write_inside(s, sym_addi(t, at, (int64_t)j * lanes), lanes, parts ? j : -1);
    if (range) {
        expand_push(s->e, uop_intern(t, OP_END, DTYPE_VOID, &range, 1, (union arg){0}));
        expand_leave(s->e);
    }
    if (parts)
        close_parts(s, unroll);
}

/* No guards inside, and not both of loops inside and sums that continue outside. */
static bool is_simple(const struct strip *s)
{
    bool loops = false, guards = false;
    for (int i = s->begin + 1; i < s->end; i++) {
        loops |= s->e->in[i]->op == OP_RANGE;
        guards |= s->e->in[i]->op == OP_GUARD;
    }
    return !guards && !(loops && s->nsum > 0);
}

/* How many remaining elements a partial vector of `lanes` can do at once; 0 if none: that needs a
 * loop without sums whose loads are floats. */
static int64_t find_tail(const struct strip *s, const struct uop *n, int64_t lanes)
{
    if (s->nsum > 0 || s->gather.any || n->op != OP_CONST || n->arg.i % lanes < 2)
        return 0;
    for (int i = s->begin + 1; i < s->end; i++) {
        const struct uop *u = s->e->in[i];
        if ((u->op == OP_LOAD && (u->nsrc > 2 || u->dtype != DTYPE_F32)) ||
            (u->op == OP_STORE && u->src[2]->dtype != DTYPE_F32))
            return 0;
    }
    return n->arg.i % lanes;
}

/* A device's grid and thread ranges are no loops. A loop of a single thread has vectors; one that a
 * block shares has as many iterations as threads. */
static bool stays_a_loop(const struct tgc *t, const struct uop *range)
{
    return !device_has_grid(t) || RANGE_WORKER(range->arg.i) == WORKER_EACH;
}

bool strip_loop(struct expander *e, int *at)
{
    struct strip s = {.e = e, .range = e->in[*at], .begin = *at, .end = expand_find_end(e, *at)};
    if (range_is_lane(s.range) || range_is(s.range, AXIS_BAND) || !stays_a_loop(e->t, s.range))
        return false;
    bool grid = device_has_grid(e->t),
         bytes = !grid && (lookup_find(e, s.begin, s.end, &s.lookup) ||
                           groups_find(e, s.begin, s.end, &s.groups));
    if (!bytes && !grid)
        gather_find(e, s.begin, s.end, &s.gather);
    if (!bytes && (!loop_fits(&s) || !is_simple(&s)))
        return false;
    struct tgc *t = e->t;
    struct uop *done = uop_int(t, 0);
    struct uop *n = sym_max(t, expand_value_of(e, s.range->src[0]), done);   /* may be negative */
    int64_t wide = s.lookup.table ? DOT_BYTES * e->isa->lanes : e->isa->lanes;
    wide = bytes && !s.lookup.table ? s.groups.lanes : wide;
    int64_t size = n->op == OP_CONST ? n->arg.i : n->vmax;
    int unroll = s.nsum == 0 ? 1 : size >= 4 * wide ? 4 : size >= 2 * wide ? 2 : 1;
    int64_t width[4] = {wide * unroll, wide, bytes ? 0 : e->isa->narrow, 1}, left = 0;
    int64_t tail = find_tail(&s, n, wide);
    for (int k = 0; k < 4; k++) {
        if (width[k] == 0 || width[k] == left)
            continue;
        if (width[k] < wide && tail > 0 && tail != e->isa->narrow) {
            e->tail = (int)tail;
            write_strip(&s, done, uop_int(t, 1), (int)wide, 1, false);
            e->tail = 0;
            break;
        }
        struct uop *rest = left ? sym_mod(t, n, uop_int(t, left)) : n;
        struct uop *count = sym_div(t, rest, uop_int(t, width[k]));
        int lanes = k == 0 ? (int)wide : (int)width[k];
        write_strip(&s, done, count, lanes, k == 0 ? unroll : 1, k == 0 && s.nsum > 0);
        left = width[k];
        done = sym_sub(t, n, sym_mod(t, n, uop_int(t, left)));
    }
    *at = s.end;
    return true;
}
