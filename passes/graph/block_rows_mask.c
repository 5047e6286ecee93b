/* block_rows_mask.c - the keys that a block of rows may see, if a mask hides others by position.
 *
 *      S[q, k] = k <= q and q - k < 64 ? x[q, k] : -inf      rows 128 .. 255 see keys 65 .. 255
 *
 * A comparison of coordinates that is affine in the key bounds it, as in mask_bounds.c. Whether it
 * hides keys is read off the region's values, with the comparison true, or false. All that is
 * reduced over keys must be neutral then: 0 in a sum, -inf in a maximum. What leaves the region
 * must be a sum of zeros. A mask that is a large negative number hides nothing in a row of which
 * all keys have it, so it bounds nothing here. */
#include "passes/graph/block_rows.h"
#include "passes/analysis/access.h"

#include <math.h>

/* What is known of a value where the comparison hides the key. */
enum known { ANY, NO, YES, ZERO, LOWEST };

/* A comparison, with its operands as functions of the frame's coordinates. */
struct compare { struct uop *u, *less; bool twice; };

enum { COMPARES_MAX = 8 };
struct search {
    struct region *r;
    struct uop *range[MAX_RANK];         /* by axis of the frame */
    struct compare of[COMPARES_MAX]; int n;
};

/* ----------------------------------------------------------------- comparisons by coordinates */

/* The integer u at these coordinates; NULL: it is not computed from coordinates alone. */
static struct uop *element_at(struct tgc *t, struct uop *u, struct uop *const *at, int depth)
{
    struct uop *below[MAX_RANK], *valid, *a, *b;
    if (depth == 0)
        return NULL;
    if (move_is(u, MOVES_SPREAD | MOVES_CUT)) {
        move_index(t, u, 0, at, below, &valid);
        return element_at(t, u->src[0], below, depth - 1);
    }
    switch (u->op) {
    case OP_CONST: return uop_int(t, u->arg.i);
    case OP_IOTA: return at[0];
    case OP_CAST:
        return u->dtype == DTYPE_INDEX ? element_at(t, u->src[0], at, depth - 1) : NULL;
    case OP_ADD:
    case OP_SUB:
        a = element_at(t, u->src[0], at, depth - 1);
        b = element_at(t, u->src[1], at, depth - 1);
        return !a || !b ? NULL : u->op == OP_ADD ? sym_add(t, a, b) : sym_sub(t, a, b);
    default: return NULL;
    }
}

/* Notes the comparisons under a condition at these coordinates. */
static void find_compares(struct search *s, struct uop *u, struct uop *const *at, int depth)
{
    enum { INDEX_DEPTH = 12 };
    struct tgc *t = s->r->t;
    struct uop *below[MAX_RANK], *valid;
    if (depth == 0)
        return;
    if (move_is(u, MOVES_SPREAD)) {
        move_index(t, u, 0, at, below, &valid);
        find_compares(s, u->src[0], below, depth - 1);
    } else if (u->op == OP_NOT || u->op == OP_AND || u->op == OP_OR) {
        for (int k = 0; k < u->nsrc; k++)
            find_compares(s, u->src[k], at, depth - 1);
    } else if (u->op == OP_LT && u->src[0]->dtype == DTYPE_INDEX) {
        struct uop *a = element_at(t, u->src[0], at, INDEX_DEPTH),
                   *b = element_at(t, u->src[1], at, INDEX_DEPTH);
        struct uop *less = a && b ? sym_sub(t, b, a) : NULL;
        int i = 0;
        while (i < s->n && s->of[i].u != u)
            i++;
        if (i < s->n)
            s->of[i].twice |= s->of[i].less != less;
        else if (i < COMPARES_MAX)
            s->of[s->n++] = (struct compare){u, less, !less};
    }
}

/* The coordinates of a value at its place. */
static void coordinates(const struct search *s, const struct uop *u, const struct along *p,
                        struct uop **at)
{
    struct tgc *t = s->r->t;
    for (int a = 0; a < u->ndim; a++)
        at[a] = uop_is_int(u->dim[a], 1) ? uop_int(t, 0)
                : p->axis[a] >= 0        ? s->range[p->axis[a]]
                                         : uop_range(t, u->dim[a], t->next_range++);
}

/* ---------------------------------------------------------------------- what a hidden key gives */

static bool is_positive(const struct uop *u)
{
    u = value_behind(u, MOVES_SPREAD);
    return u->op == OP_CONST && u->arg.f > 0 && isfinite(u->arg.f);
}

static enum known of_constant(const struct uop *u)
{
    if (u->dtype == DTYPE_BOOL)
        return u->arg.i ? YES : NO;
    if (!dtype_is_float(u->dtype))
        return ANY;
    return u->arg.f == 0 ? ZERO : u->arg.f == -(double)INFINITY ? LOWEST : ANY;
}

static enum known of_logic(enum op op, enum known a, enum known b)
{
    enum known sure = op == OP_AND ? NO : YES, other = op == OP_AND ? YES : NO;
    return a == sure || b == sure ? sure : a == other && b == other ? other : ANY;
}

/* From the sources' k[]. What is added to -inf, or multiplied by 0, is taken to be finite. */
static enum known of_step(const struct uop *u, const enum known *k)
{
    switch (u->op) {
    case OP_NOT: return k[0] == YES ? NO : k[0] == NO ? YES : ANY;
    case OP_AND:
    case OP_OR: return of_logic(u->op, k[0], k[1]);
    case OP_WHERE: return k[0] == YES ? k[1] : k[0] == NO || k[1] == k[2] ? k[2] : ANY;
    case OP_CAST: return dtype_is_float(u->dtype) ? k[0] : ANY;
    case OP_NEG: return k[0] == ZERO ? ZERO : ANY;
    case OP_EXP:
    case OP_EXP2: return k[0] == LOWEST ? ZERO : ANY;
    case OP_ADD:
        return k[0] == LOWEST || k[1] == LOWEST ? LOWEST
               : k[0] == ZERO && k[1] == ZERO   ? ZERO
                                                : ANY;
    case OP_SUB: return k[0] == LOWEST ? LOWEST : k[0] == ZERO && k[1] == ZERO ? ZERO : ANY;
    case OP_MUL:
        if (k[0] == ZERO || k[1] == ZERO)
            return ZERO;
        return (k[0] == LOWEST && is_positive(u->src[1])) ||
                       (k[1] == LOWEST && is_positive(u->src[0]))
                   ? LOWEST
                   : ANY;
    case OP_DIV:
        return k[0] == ZERO ? ZERO : k[0] == LOWEST && is_positive(u->src[1]) ? LOWEST : ANY;
    default: return ANY;
    }
}

static bool reduces_keys(const struct region *r, const struct uop *u, const struct along *at)
{
    for (int a = 0; a < u->ndim; a++)
        if ((REDUCE_AXES(u->arg.i) >> a & 1) && at->axis[a] == r->key)
            return true;
    return false;
}

static enum known known_of(const struct uop_map *m, const struct uop *u)
{
    return (enum known)(uintptr_t)map_get(m, u);
}

/* Whether keys for which the comparison has this value add nothing to anything. */
static bool hides(const struct region *r, const struct uop *compare, bool value)
{
    struct uop_map is = {.t = r->t, .scratch = true};
    struct mem_mark mark = scratch_mark(r->t);
    bool all = true;
    for (int i = 0; i < r->norder && all; i++) {
        const struct uop *u = r->order[i];
        const struct along *below = u->nsrc ? map_get(&r->inside, u->src[0]) : NULL;
        enum known k[3] = {ANY, ANY, ANY}, now = ANY;
        for (int s = 0; s < u->nsrc && s < 3; s++)
            k[s] = known_of(&is, u->src[s]);
        if (u == compare)
            now = value ? YES : NO;
        else if (u->op == OP_CONST)
            now = of_constant(u);
        else if (move_is(u, MOVES_SPREAD))
            now = k[0];
        else if (op_is_elementwise(u->op))
            now = of_step(u, k);
        else if (u->op == OP_REDUCE && map_get(&r->inside, u) && below &&
                 reduces_keys(r, u, below))
            all = k[0] == (REDUCE_OP(u->arg.i) == OP_ADD   ? ZERO
                           : REDUCE_OP(u->arg.i) == OP_MAX ? LOWEST
                                                           : YES);
        if (now != ANY)
            map_set(&is, u, (void *)(uintptr_t)now);
    }
    for (int i = 0; i < r->nsum && all; i++)
        all = known_of(&is, r->sum[i].sum->src[0]) == ZERO;
    scratch_release(r->t, mark);
    return all;
}

/* ----------------------------------------------------------------------------------- the bounds */

/* 0 < less as a bound of the key, affine in the row: `below`: key < bound, else key >= bound. */
static struct uop *bound_of(const struct search *s, struct uop *less, bool *below)
{
    struct tgc *t = s->r->t;
    struct uop *key = s->range[s->r->key], *row = s->range[s->r->row];
    int64_t along, slope, n;
    if (!index_stride(t, less, key, &along) || (along != 1 && along != -1))
        return NULL;
    *below = along == -1;
    struct uop *at = *below ? sym_add(t, less, key) : sym_addi(t, sym_sub(t, key, less), 1);
    bool affine = index_stride(t, at, row, &slope) &&
                  uop_const_int(uop_substitute(t, at, row, uop_int(t, 0)), &n);
    return affine ? at : NULL;
}

static void add_limits(const struct search *s, struct visible_keys *v)
{
    for (int i = 0; i < s->n; i++) {
        const struct compare *c = &s->of[i];
        bool below;
        struct uop *at = c->twice ? NULL : bound_of(s, c->less, &below);
        for (int value = 0; value < 2 && at; value++) {
            if (!hides(s->r, c->u, value))
                continue;
            bool ends = below != value;
            if (ends && v->nend < LIMITS_MAX)
                v->end[v->nend++] = at;
            else if (!ends && v->nbegin < LIMITS_MAX)
                v->begin[v->nbegin++] = at;
        }
    }
}

void visible_keys_find(struct region *r, struct visible_keys *v)
{
    enum { DEPTH = 16 };
    struct search s = {.r = r};
    for (int a = 0; a < r->frame->ndim; a++)
        s.range[a] = uop_range(r->t, r->frame->dim[a], r->t->next_range++);
    *v = (struct visible_keys){.row = s.range[r->row]};
    for (int i = 0; i < r->norder; i++) {
        struct uop *u = r->order[i], *at[MAX_RANK];
        const struct along *p = map_get(&r->inside, u);
        if (!p || u->op != OP_WHERE || u->src[0]->ndim != u->ndim)
            continue;
        coordinates(&s, u, p, at);
        find_compares(&s, u->src[0], at, DEPTH);
    }
    add_limits(&s, v);
}

/* The bound for the row of [first, first + n) for which it is least, or largest. */
static struct uop *extreme(struct region *r, const struct visible_keys *v, struct uop *at,
                           struct uop *first, int64_t n, bool largest)
{
    int64_t slope = 0;
    (void)index_stride(r->t, at, v->row, &slope);
    struct uop *row = (slope > 0) == largest ? sym_addi(r->t, first, n - 1) : first;
    return uop_substitute(r->t, at, v->row, row);
}

struct uop *visible_keys_begin(struct region *r, const struct visible_keys *v, struct uop *first,
                               int64_t n)
{
    enum { ALIGN = 16 };                 /* a vector begins where it would in the whole row */
    struct tgc *t = r->t;
    struct uop *begin = uop_int(t, 0), *align = uop_int(t, ALIGN);
    for (int i = 0; i < v->nbegin; i++)
        begin = sym_max(t, begin, extreme(r, v, v->begin[i], first, n, false));
    begin = sym_min(t, begin, r->frame->dim[r->key]);
    return sym_mul(t, sym_div(t, begin, align), align);
}

int64_t visible_keys_end(struct region *r, const struct visible_keys *v, int64_t first, int64_t n)
{
    struct uop *end = r->frame->dim[r->key];
    int64_t last = 0;
    for (int i = 0; i < v->nend; i++)
        end = sym_min(r->t, end,
                      extreme(r, v, v->end[i], uop_int(r->t, first), n, true));
    (void)uop_const_int(end, &last);
    return last < 0 ? 0 : last;
}
