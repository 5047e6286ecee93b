/* gather.c - vectors loaded at data-dependent indices, in the loops that strip.c strips.
 *
 *      for p < n                             for p < n / 8
 *        i := cast(floor(x[p]))                i = narrow.8 floor(load.8 x[8p])            i32
 *        ok := i >= 0 & i < 40                 ok = i >= 0 & i < 40
 *        for c < 64                            for c < 64
 *          y[64c + p] := t[40c + i] if ok        y[64c + 8p] = gather.8 t[40c + i] if ok
 *
 * Indices are i64, and vectors have lanes of 32 bits. An index from data may have any value, so it
 * is clamped to [-limit, limit] when it becomes an i32 (NARROW). That changes nothing while the
 * index is only compared with numbers nearer to 0, moved by little, or multiplied by a positive
 * number: `exact` keeps account of that. Where a load's condition holds, its comparisons prove that
 * the index was not clamped; other lanes are not loaded. All values in lanes have bounds, so
 * nothing wraps.
 *
 * Terms that are invariant stay an i64 base offset, so tensors may be of any size. */
#include "passes/vector/gather.h"

/* An index in a vector's lanes, an i32 in [lo, hi]. A value of magnitude below `exact` is the true
 * index; otherwise both are at least `exact` from 0, on the same side. */
struct index {
    int64_t lo, hi, exact;
};

enum { TERMS_MAX = 16 };

static bool fits_i32(int64_t lo, int64_t hi) { return lo >= INT32_MIN && hi <= INT32_MAX; }

static bool depends(const struct gather *g, struct uop *u)
{
    return uop_depends_on(g->e->t, u, g->range);
}

/* What is known of u in the lanes; false: it does not fit in an i32. */
static bool index_of(const struct gather *g, struct uop *u, struct index *x)
{
    const struct index *known = map_get(&g->index, u);
    int64_t stride;
    if (known) {
        *x = *known;
        return true;
    }
    *x = (struct index){u->vmin, u->vmax, INT64_MAX};
    return u->dtype == DTYPE_INDEX && fits_i32(u->vmin, u->vmax) &&
           (!depends(g, u) ||
            (index_stride(g->e->t, u, g->range, &stride) && stride > -VECTOR_STRIDE_MAX &&
             stride < VECTOR_STRIDE_MAX));
}

static int64_t magnitude(const struct index *x)
{
    return -x->lo > x->hi ? -x->lo : x->hi;
}

/* a + b or a - b; only one of them may be inexact. */
static bool add(const struct index *a, struct index b, bool minus, struct index *x)
{
    if (minus)
        b = (struct index){-b.hi, -b.lo, b.exact};
    *x = (struct index){a->lo + b.lo, a->hi + b.hi, INT64_MAX};
    if (a->exact != INT64_MAX)
        x->exact = a->exact - magnitude(&b);
    else if (b.exact != INT64_MAX)
        x->exact = b.exact - magnitude(a);
    return (a->exact == INT64_MAX || b.exact == INT64_MAX) && x->exact > 0;
}

static bool multiply(const struct index *a, const struct index *b, struct index *x)
{
    int64_t v[4] = {a->lo * b->lo, a->lo * b->hi, a->hi * b->lo, a->hi * b->hi};
    bool exact = a->exact == INT64_MAX && b->exact == INT64_MAX;
    *x = (struct index){v[0], v[0], a->exact};
    for (int k = 1; k < 4; k++) {
        x->lo = v[k] < x->lo ? v[k] : x->lo;
        x->hi = v[k] > x->hi ? v[k] : x->hi;
    }
    return exact || (b->exact == INT64_MAX && b->lo == b->hi && b->lo > 0);
}

/* Whether two indices compare as the true ones do: an inexact one with what is nearer to 0. */
static bool compares(const struct index *a, const struct index *b)
{
    int64_t exact = a->exact < b->exact ? a->exact : b->exact;
    const struct index *other = a->exact < b->exact ? b : a;
    return exact == INT64_MAX || (other->exact == INT64_MAX && magnitude(other) < exact);
}

/* The maximum or minimum of two indices. A clamped index stays on its side, at least `exact` from
 * 0. So it is not taken for a nearer one; and if it is taken, the true one might be, since it is on
 * that side, too. */
static void extreme(const struct index *a, const struct index *b, bool larger, struct index *x)
{
    x->lo = (a->lo > b->lo) == larger ? a->lo : b->lo;
    x->hi = (a->hi > b->hi) == larger ? a->hi : b->hi;
    x->exact = a->exact < b->exact ? a->exact : b->exact;
}

/* The index of u from its operands: floats, integers already in lanes, or other indices. */
static bool find_index(const struct gather *g, struct uop *u, struct index *x)
{
    struct index a, b;
    const struct uop *from = u->src[0];
    switch (u->op) {
    case OP_LOAD:
        *x = (struct index){-g->limit, g->limit, g->limit};
        return true;
    case OP_CAST:
        if (from->dtype == DTYPE_F32) {
            *x = (struct index){-g->limit, g->limit, g->limit};
            return true;
        }
        *x = (struct index){from->vmin, from->vmax, INT64_MAX};
        return from->dtype == DTYPE_I32 || (from->op == OP_LOAD && dtype_is_byte(from->dtype));
    case OP_WHERE:
        if (!index_of(g, u->src[1], &a) || !index_of(g, u->src[2], &b))
            return false;
        *x = (struct index){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi,
                            a.exact < b.exact ? a.exact : b.exact};
        return true;
    case OP_NEG:
        if (!index_of(g, u->src[0], &a))
            return false;
        *x = (struct index){-a.hi, -a.lo, a.exact};
        return true;
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_MAX: case OP_MIN:
        if (!index_of(g, u->src[0], &a) || !index_of(g, u->src[1], &b))
            return false;
        if (u->op == OP_MAX || u->op == OP_MIN) {
            extreme(&a, &b, u->op == OP_MAX, x);
            return true;
        }
        return u->op == OP_MUL ? multiply(&a, &b, x) || multiply(&b, &a, x)
                               : add(&a, b, u->op == OP_SUB, x);
    default: return false;
    }
}

/* Notes what is known of u. An index that does not fit a lane may still be the sum of one that does
 * and an invariant offset. */
static void note_index(struct gather *g, struct uop *u)
{
    struct index x, *kept;
    if (!find_index(g, u, &x) || !fits_i32(x.lo, x.hi))
        return;
    if (x.exact != INT64_MAX && u->vmin > -x.exact && u->vmax < x.exact) {
        x.exact = INT64_MAX;
        x.lo = u->vmin > x.lo ? u->vmin : x.lo;
        x.hi = u->vmax < x.hi ? u->vmax : x.hi;
    }
    kept = scratch_array(g->e->t, 1, sizeof *kept);
    *kept = x;
    map_set(&g->index, u, kept);
}

/* ---------------------------------------------------------------------------------------- loads */

/* Whether a term of the conjunction `cond` is a constant lower bound of u that is not negative
 * (least), or a constant upper bound. */
static bool is_asked(struct uop *cond, const struct uop *u, bool least)
{
    struct uop *todo[64];
    int n = 0;
    todo[n++] = cond;
    while (n > 0) {
        struct uop *c = todo[--n];
        int64_t at;
        if (c->op == OP_AND && n + 2 <= 64) {
            todo[n++] = c->src[0];
            todo[n++] = c->src[1];
        } else if (!least) {
            if (c->op == OP_LT && c->src[0] == u && uop_const_int(c->src[1], &at))
                return true;
        } else if (c->op == OP_NOT && c->src[0]->op == OP_LT && c->src[0]->src[0] == u &&
                   uop_const_int(c->src[0]->src[1], &at) && at >= 0) {
            return true;
        } else if (c->op == OP_LT && c->src[1] == u && uop_const_int(c->src[0], &at) && at >= -1) {
            return true;
        }
    }
    return false;
}

/* Whether u is exact in the lanes where `valid` holds. */
static bool is_exact_where(const struct gather *g, struct uop *u, struct uop *valid)
{
    struct index x;
    if (!index_of(g, u, &x))
        return false;
    if (x.exact == INT64_MAX ||
        (valid && is_asked(valid, u, true) && is_asked(valid, u, false)))
        return true;
    if (u->op != OP_ADD && u->op != OP_SUB && u->op != OP_MUL && u->op != OP_NEG)
        return false;
    for (int k = 0; k < u->nsrc; k++)
        if (!is_exact_where(g, u->src[k], valid))
            return false;
    return true;
}

/* Splits an offset into a sum of what varies by lane and an invariant base. */
static bool split_offset(const struct gather *g, struct uop *offset, struct uop **lane, int *nlane,
                         struct uop **same, int *nsame)
{
    struct uop *todo[TERMS_MAX];
    int n = 0;
    todo[n++] = offset;
    *nlane = *nsame = 0;
    while (n > 0) {
        struct uop *u = todo[--n];
        if (!depends(g, u)) {
            if (*nsame == TERMS_MAX)
                return false;
            same[(*nsame)++] = u;
        } else if (u->op == OP_ADD && n + 2 <= TERMS_MAX) {
            todo[n++] = u->src[1];
            todo[n++] = u->src[0];
        } else if (*nlane == TERMS_MAX) {
            return false;
        } else {
            lane[(*nlane)++] = u;
        }
    }
    return true;
}

static bool load_fits(const struct gather *g, struct uop *u, const struct uop_map *varies)
{
    struct uop *lane[TERMS_MAX], *same[TERMS_MAX], *valid = u->nsrc == 4 ? u->src[2] : NULL;
    int nlane, nsame;
    int64_t lo = 0, hi = 0;
    if (u->dtype != DTYPE_F32 || !split_offset(g, u->src[1], lane, &nlane, same, &nsame))
        return false;
    for (int k = 0; k < nlane; k++) {
        struct index x;
        if (!index_of(g, lane[k], &x) || !is_exact_where(g, lane[k], valid))
            return false;
        lo += x.lo, hi += x.hi;
    }
    if (valid && !map_get(varies, valid) && depends(g, valid))
        return false;
    return fits_i32(lo, hi);
}

/* -------------------------------------------------------------------------------------- finding */

/* The smallest power of two above every number with which indices are compared or by which they are
 * moved. */
static int64_t find_limit(const struct gather *g, int begin, int end)
{
    int64_t most = 1 << 8, limit = 1 << 10;
    for (int i = begin + 1; i < end; i++) {
        const struct uop *u = g->e->in[i];
        bool moves = u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MAX || u->op == OP_MIN ||
                     u->op == OP_LT || u->op == OP_EQ || u->op == OP_NE || u->op == OP_WHERE;
        for (int k = 0; k < u->nsrc && moves; k++) {
            int64_t c;
            if (u->src[k]->dtype != DTYPE_INDEX || !uop_const_int(u->src[k], &c) ||
                c <= INT32_MIN)
                continue;
            most = c > most ? c : -c > most ? -c : most;
        }
    }
    while (limit / 4 < most && limit < 1 << 30)
        limit *= 2;
    return limit;
}

/* Indices stored by stage_places.c, of i32. */
static bool is_stored_place(const struct uop *u)
{
    return u->op == OP_CAST && u->dtype == DTYPE_I32 && u->src[0]->dtype == DTYPE_INDEX;
}

void gather_find(struct expander *e, int begin, int end, struct gather *g)
{
    *g = (struct gather){.e = e, .range = e->in[begin]};
    int64_t stride;
    for (int i = begin + 1; i < end; i++) {
        struct uop *u = e->in[i];
        if (u->op == OP_LOAD && depends(g, u->src[1]) &&
            !index_stride(e->t, u->src[1], g->range, &stride))
            g->any = true;
        g->any |= is_stored_place(u) && depends(g, u);
    }
    g->index = g->load = (struct uop_map){.t = e->t, .scratch = true};
    g->limit = g->any ? find_limit(g, begin, end) : 0;
}

bool gather_load(struct gather *g, struct uop *u, const struct uop_map *varies)
{
    int64_t stride;
    if (!g->any)
        return false;
    bool affine = index_stride(g->e->t, u->src[1], g->range, &stride);
    if (u->dtype == DTYPE_INDEX && u->nsrc == 2 && affine && stride > 0 &&
        stride < VECTOR_STRIDE_MAX) {
        note_index(g, u);
        return true;
    }
    if (!load_fits(g, u, varies))
        return false;
    map_set(&g->load, u, u);
    return true;
}

bool gather_value(struct gather *g, struct uop *u)
{
    struct index a, b;
    bool of_index = false;
    for (int k = 0; k < u->nsrc; k++)
        of_index |= u->src[k]->dtype == DTYPE_INDEX;
    if (!g->any || (u->dtype != DTYPE_INDEX && !of_index))
        return false;
    if (u->dtype == DTYPE_INDEX) {
        int64_t stride;
        if (index_stride(g->e->t, u, g->range, &stride))
            return false;  /* it is strided along the loop, not gathered */
        note_index(g, u);
        return true;
    }
    switch (u->op) {
    case OP_CAST:
        return (u->dtype == DTYPE_F32 || is_stored_place(u)) && index_of(g, u->src[0], &a) &&
               a.exact == INT64_MAX;
    case OP_LT: case OP_EQ: case OP_NE:
        return index_of(g, u->src[0], &a) && index_of(g, u->src[1], &b) &&
               compares(&a, &b);
    default: return false;
    }
}

/* ------------------------------------------------------------------------------------ expanding */

static struct uop *intern(struct gather *g, enum op op, struct uop *a, struct uop *b)
{
    struct uop *src[2] = {a, b};
    return uop_intern(g->e->t, op, DTYPE_I32, src, b ? 2 : 1, (union arg){0});
}

static struct uop *splat_i32(struct gather *g, struct uop *scalar)
{
    struct uop *narrow = uop_cast(g->e->t, DTYPE_I32, scalar);
    return uop_intern(g->e->t, OP_SPLAT, DTYPE_I32, &narrow, 1, (union arg){.i = g->e->lanes});
}

/* u in the lanes, as an i32. */
static struct uop *in_lanes(struct gather *g, struct uop *u)
{
    struct tgc *t = g->e->t;
    int64_t stride = 0;
    if (map_get(&g->index, u))
        return map_get(&g->e->value, u);
    struct uop *v = splat_i32(g, expand_value_of(g->e, u));
    if (!depends(g, u) || !index_stride(t, u, g->range, &stride) || stride == 0)
        return v;
    struct uop *lane = uop_intern(t, OP_LANES, DTYPE_I32, NULL, 0, (union arg){.i = g->e->lanes});
    if (stride != 1)
        lane = intern(g, OP_MUL, lane, splat_i32(g, uop_int(t, stride)));
    return intern(g, OP_ADD, v, lane);
}

static struct uop *narrow(struct gather *g, struct uop *v)
{
    return uop_intern(g->e->t, OP_NARROW, DTYPE_I32, &v, 1, (union arg){.i = g->limit});
}

static struct uop *load_index(struct gather *g, struct uop *u)
{
    struct uop *src[2] = {u->src[0], expand_value_of(g->e, u->src[1])};
    int64_t stride;
    if (!index_stride(g->e->t, u->src[1], g->range, &stride))
        TGC_BUG(g->e->t, "an index has no stride");
    return narrow(g, uop_intern(g->e->t, OP_LOAD, u->dtype, src, 2,
                                (union arg){.i = ARG_PACK(VECTOR, g->e->lanes, 0, stride)}));
}

static struct uop *make_index(struct gather *g, struct uop *u)
{
    struct uop *v, *src[3];
    if (u->op == OP_LOAD)
        return load_index(g, u);
    if (u->op == OP_CAST) {
        v = expand_splat(g->e, expand_value_of(g->e, u->src[0]), g->e->lanes);
        return u->src[0]->dtype == DTYPE_F32   ? narrow(g, v)
               : u->src[0]->dtype == DTYPE_I32 ? v
                                               : intern(g, OP_CAST, v, NULL);
    }
    for (int k = 0; k < u->nsrc; k++)
        src[k] = u->src[k]->dtype == DTYPE_INDEX
                     ? in_lanes(g, u->src[k])
                     : expand_splat(g->e, expand_value_of(g->e, u->src[k]), g->e->lanes);
    return uop_intern(g->e->t, u->op, DTYPE_I32, src, u->nsrc, (union arg){0});
}

static struct uop *make_load(struct gather *g, struct uop *u)
{
    struct tgc *t = g->e->t;
    struct uop *lane[TERMS_MAX], *same[TERMS_MAX], *src[5] = {u->src[0], uop_int(t, 0), NULL};
    int nlane, nsame;
    if (!split_offset(g, u->src[1], lane, &nlane, same, &nsame))
        TGC_BUG(t, "an offset has become longer");
    for (int k = 0; k < nsame; k++)
        src[1] = sym_add(t, src[1], expand_value_of(g->e, same[k]));
    for (int k = 0; k < nlane; k++) {
        struct uop *v = in_lanes(g, lane[k]);
        src[2] = src[2] ? intern(g, OP_ADD, src[2], v) : v;
    }
    if (!src[2])  /* one element for all lanes, some of which may not read it */
        src[2] = splat_i32(g, uop_int(t, 0));
    for (int k = 2; k < u->nsrc; k++)
        src[k + 1] = expand_splat(g->e, expand_value_of(g->e, u->src[k]), g->e->lanes);
    return uop_intern(t, OP_GATHER, u->dtype, src, u->nsrc + 1, (union arg){0});
}

bool gather_expand(struct gather *g, struct uop *u)
{
    struct uop *v;
    if (!g->any)
        return false;
    if (map_get(&g->index, u)) {                      /* computed on demand */
        map_set(&g->e->value, u, make_index(g, u));
        return true;
    }
    if (map_get(&g->load, u)) {
        v = make_load(g, u);
    } else if (is_stored_place(u) && depends(g, u)) {
        v = in_lanes(g, u->src[0]);
    } else if (u->dtype == DTYPE_INDEX && op_is_elementwise(u->op) && depends(g, u)) {
        int64_t stride;
        return !index_stride(g->e->t, u, g->range, &stride);
    } else if (op_is_elementwise(u->op) && u->nsrc > 0 && u->src[0]->dtype == DTYPE_INDEX &&
               depends(g, u)) {
        struct uop *src[2];
        for (int k = 0; k < u->nsrc; k++)
            src[k] = in_lanes(g, u->src[k]);
        v = uop_intern(g->e->t, u->op, u->dtype, src, u->nsrc, (union arg){0});
    } else {
        return false;
    }
    expand_need(g->e, v);
    map_set(&g->e->value, u, v);
    return true;
}
