/* stage_places.c - computes data-dependent indices, and the weights that go with them, for a block
 * of points at once.
 *
 *      for j < 16                                 for j < 16  x[j]  = grid[2*j]
 *        f = floor(grid[2*j] * 64)                for j < 16  at[j] = cast(floor(x[j] * 64))
 *        for c  ... t[cast(f) * 64 + c]           for j < 16  w[j]  = ...
 *                   * (grid[2*j] * 64 - f)        for j < 16
 *                                                   for c  ... t[at[j] * 64 + c] * w[j]
 *
 * With vectors along c, invariant values are scalars, for which floors, bounds and casts of floats
 * take several instructions each. Computed for a block of points, these are vectors, too. Values
 * that a few cheap ops compute from them stay inside.
 */
#include "passes/analysis/access.h"
#include "passes/kernel/tile.h"

enum { STAGES_MAX = 24, USES_MAX = 100 };
/* Indices are clamped to this magnitude: no tensor has such an element. */
static const int64_t place_max = (int64_t)1 << 29;

struct places {
    struct tgc *t;
    struct kernel *k;
    struct uop *value, *point, *row;
    struct uop **order; int n;
    struct uop_map fits;         /* uop of order: it can be computed for a block of points */
    struct uop_map cost;         /* uop -> cost as a scalar, as a tree, + 1 */
    struct uop *chosen[STAGES_MAX]; int nchosen;
    struct uop_map by;           /* uop -> its replacement */
};

static int cost_of(const struct places *x, const struct uop *u)
{
    return (int)(uintptr_t)map_get(&x->cost, u) - 1;
}

static int steps_of(const struct uop *u)
{
    switch (u->op) {
    case OP_FLOOR: case OP_CEIL: case OP_ROUND: case OP_TRUNC: case OP_DIV: case OP_CAST: return 5;
    case OP_MAX: case OP_MIN: case OP_ABS: return 3;
    case OP_SQRT: case OP_EXP: case OP_EXP2: case OP_LOG: case OP_TANH: case OP_ERF: case OP_RECIP:
        return 20;
    default: return op_is_elementwise(u->op) ? 1 : 0;
    }
}

static bool is_cheap(const struct uop *u)
{
    return u->dtype == DTYPE_F32 && op_is_elementwise(u->op) && steps_of(u) == 1;
}

static bool is_place(const struct uop *u)
{
    return u->op == OP_CAST && u->dtype == DTYPE_INDEX && u->src[0]->dtype == DTYPE_F32;
}

static bool depends(const struct places *x, struct uop *u)
{
    return uop_depends_on(x->t, u, x->point);
}

static bool reads(struct tgc *t, struct uop *root, const struct uop *u)
{
    int n;
    struct uop **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i] == u)
            return true;
    return false;
}

/* An upper bound of |v|. */
static int64_t magnitude(const struct uop *v)
{
    if (v->vmin == INT64_MIN)
        return INT64_MAX;
    return -v->vmin > v->vmax ? -v->vmin : v->vmax;
}

static int64_t elements_of(const struct uop *buffer)
{
    const struct buffer *b = buffer->op == OP_BUFFER ? buffer->arg.p : NULL;
    return b ? (int64_t)(b->nbytes / dtype_nbytes(b->dtype)) : INT64_MAX;
}

/* The limit of the search through an index's uses. */
struct use {
    const struct uop *place;
    int left;                    /* uses that may still be visited */
};

static bool only_place(const struct places *x, const struct uop *u, int64_t room, struct use *use);

/* Whether the use of u as the user's source k tolerates clamping: u is exact where its magnitude is
 * below room, and otherwise any value of at least that magnitude and the same sign. room 0: any
 * value at all. */
static bool suits(const struct places *x, struct uop *user, int k, int64_t room, struct use *use)
{
    const struct uop *other = user->nsrc > 1 ? user->src[1 - (k == 1)] : NULL;
    int64_t c, m;
    switch (user->op) {
    case OP_LT: case OP_EQ: case OP_NE:
        return magnitude(other) < room;
    case OP_ADD:
        m = magnitude(other);
        return only_place(x, user, m < room ? room - m : 0, use);
    case OP_MUL:
        return only_place(x, user, uop_const_int(other, &c) && c != 0 ? room : 0, use);
    case OP_LOAD:
        return k == 1 && (elements_of(user->src[0]) <= room ||
                          (user->nsrc > 2 && reads(x->t, user->src[2], use->place)));
    default:
        return false;
    }
}

/* Whether u is used only in comparisons with numbers below room, and in offsets of loads that are
 * conditional on the index being in range. */
static bool only_place(const struct places *x, const struct uop *u, int64_t room, struct use *use)
{
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->order[i]->nsrc; k++)
            if (x->order[i]->src[k] == u &&
                (use->left-- <= 0 || !suits(x, x->order[i], k, room, use)))
                return false;
    return true;
}

/* Whether u is an index that is only tested for being in range and used in offsets, so that
 * clamping it to place_max changes nothing. */
static bool is_only_place(const struct places *x, const struct uop *u)
{
    struct use use = {u, USES_MAX};
    return only_place(x, u, place_max, &use);
}

/* Whether u is invariant along the row, can be computed in vectors along the points, and is in no
 * reduction's loop. */
static bool fits(const struct places *x, struct uop *u)
{
    int64_t stride;
    if (!depends(x, u))
        return op_class(u->op) == CLASS_LEAF || u->op == OP_CONST;
    if (u->op == OP_LOAD)
        return u->dtype == DTYPE_F32 && u->nsrc == 2 && u->src[0]->op == OP_BUFFER &&
               index_stride(x->t, u->src[1], x->point, &stride) &&
               !uop_depends_on(x->t, u->src[1], x->row);
    for (int k = 0; k < u->nsrc; k++)
        if (!map_get(&x->fits, u->src[k]))
            return false;
    return op_is_elementwise(u->op) && u->nsrc > 0 &&
           (is_place(u) ? is_only_place(x, u) : tile_is_vector_op(u));
}

static bool is_of_reduction(const struct places *x, struct uop *u)
{
    for (int i = 0; i < x->n; i++)
        for (int k = 1; x->order[i]->op == OP_REDUCE && k < x->order[i]->nsrc; k++)
            if (uop_depends_on(x->t, u, x->order[i]->src[k]))
                return true;
    return false;
}

static void find_fitting(struct places *x)
{
    for (int i = 0; i < x->n; i++) {
        struct uop *u = x->order[i];
        int cost = steps_of(u);
        for (int k = 0; k < u->nsrc; k++)
            cost += map_get(&x->cost, u->src[k]) ? cost_of(x, u->src[k]) : 0;
        cost = cost > 1 << 16 ? 1 << 16 : cost;
        map_set(&x->cost, u, (void *)(uintptr_t)(u->op == OP_LOAD ? 1 : cost + 1));
        if (fits(x, u) && !is_of_reduction(x, u))
            map_set(&x->fits, u, u);
    }
}

/* The number of cheap ops in u, given all other values. */
static int cheap_steps(const struct places *x, const struct uop *u)
{
    int n = 1;
    if (!is_cheap(u) || !map_get(&x->fits, u))
        return 0;
    for (int k = 0; k < u->nsrc && n <= RATIO_PLACE_CHEAP; k++)
        n += cheap_steps(x, u->src[k]);
    return n;
}

static void choose(struct places *x, struct uop *u, bool top)
{
    if (!map_get(&x->fits, u) || !depends(x, u) || cost_of(x, u) < RATIO_PLACE_WORTH)
        return;
    if (is_cheap(u) && ((top && u->op == OP_MUL) || cheap_steps(x, u) <= RATIO_PLACE_CHEAP)) {
        for (int k = 0; k < u->nsrc; k++)
            choose(x, u->src[k], false);
        return;
    }
    for (int i = 0; i < x->nchosen; i++)
        if (x->chosen[i] == u)
            return;
    if (x->nchosen < STAGES_MAX && (u->dtype == DTYPE_F32 || is_place(u)))
        x->chosen[x->nchosen++] = u;
}

/* Chooses the values to stage: those read by values of another kind. */
static void choose_all(struct places *x)
{
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->order[i]->nsrc; k++)
            if (!map_get(&x->fits, x->order[i]))
                choose(x, x->order[i]->src[k], true);
    if (map_get(&x->fits, x->value))
        x->nchosen = 0;                               /* nothing depends on the row */
}

/* Stages a row of u's values at all points; returns its load at one of them. */
static struct uop *stage(struct places *x, struct uop *u, struct uop *value, enum dtype d)
{
    struct tgc *t = x->t;
    int64_t n = range_fixed_size(x->point);
    struct uop *own = uop_range(t, uop_int(t, n), t->next_range++);
    struct uop *src[3] = {uop_substitute(t, value, x->point, own), own, own};
    struct uop *load[2] = {
        uop_intern(t, OP_STAGE, d, src, 3, (union arg){.p = kernel_new_scratch(t, x->k, d, n)}),
        x->point};
    struct uop *v = uop_intern(t, OP_LOAD, d, load, 2, (union arg){0});
    uop_set_origin(t, v, u);
    return v;
}

/* Stages the strided loads of the chosen values contiguously, once for all. */
static void stage_strided(struct places *x, struct uop_map *by)
{
    for (int c = 0; c < x->nchosen; c++) {
        int n;
        int64_t stride;
        struct uop **order = uop_toposort(x->t, &x->chosen[c], 1, &n);
        for (int i = 0; i < n; i++)
            if (order[i]->op == OP_LOAD && !map_get(by, order[i]) && depends(x, order[i]) &&
                index_stride(x->t, order[i]->src[1], x->point, &stride) && stride != 1)
                map_set(by, order[i], stage(x, order[i], order[i], DTYPE_F32));
    }
}

static struct uop *near(struct tgc *t, struct uop *place)
{
    return uop_cast(t, DTYPE_I32, sym_max(t, sym_min(t, place, uop_int(t, place_max)),
                                          uop_int(t, -place_max)));
}

static void find_places(struct places *x)
{
    x->fits = x->cost = x->by = (struct uop_map){.t = x->t, .scratch = true};
    x->order = nest_order(x->t, x->value, &x->n);
    find_fitting(x);
    choose_all(x);
}

bool has_places(struct tgc *t, struct uop *value, struct uop *point, struct uop *row)
{
    struct places x = {.t = t, .value = value, .point = point, .row = row};
    find_places(&x);
    return x.nchosen > 0;
}

struct uop *stage_places(struct tgc *t, struct kernel *k, struct uop *value, struct uop *point,
                         struct uop *row)
{
    struct places x = {.t = t, .k = k, .value = value, .point = point, .row = row};
    struct uop_map strided = {.t = t, .scratch = true};
    find_places(&x);
    stage_strided(&x, &strided);
    for (int i = 0; i < x.nchosen; i++) {
        struct uop *u = x.chosen[i], *v = uop_substitute_all(t, u, &strided);
        map_set(&x.by, u, u->dtype == DTYPE_F32
                              ? stage(&x, u, v, DTYPE_F32)
                              : uop_cast(t, DTYPE_INDEX, stage(&x, u, near(t, v), DTYPE_I32)));
    }
    return x.nchosen ? uop_substitute_all(t, value, &x.by) : value;
}
