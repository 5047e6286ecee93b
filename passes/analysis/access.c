/* access.c - which ranges a value depends on, and strides of offsets.
 *
 * Each uop that was asked for keeps the number of a set: the RANGEs below it. Sets are sorted by id
 * and interned, since most uops have the set of one of their sources; a set is computed once, as
 * the union of its sources' sets.
 */
#include "passes/analysis/access.h"
#include "passes/rules/fold_index.h"

#include <string.h>

enum { SET_UNKNOWN, SET_EMPTY, NSET_FIRST = 256, PAIRS = 1024 };

struct set { uint32_t n, hash; const uint32_t *id; };
struct pair { uint32_t a, b, both; };
/* set[0] is empty. table: numbers of sets by hash, 0: free. pair: recent unions. */
struct range_sets {
    struct set *set; size_t nset, cap_set;
    uint32_t *table; size_t ntable;
    struct pair pair[PAIRS];
};

/* ------------------------------------------------------------------------------------- the sets */

static void enter(struct range_sets *s, uint32_t number)
{
    size_t i = s->set[number].hash & (s->ntable - 1);
    while (s->table[i])
        i = (i + 1) & (s->ntable - 1);
    s->table[i] = number;
}

/* The number of the set of n sorted ids. */
static uint32_t set_find(struct tgc *t, const uint32_t *id, uint32_t n)
{
    struct range_sets *s = t->range_sets;
    uint32_t hash = (uint32_t)hash_bytes(n, id, n * sizeof *id);
    for (size_t i = hash & (s->ntable - 1); s->table[i]; i = (i + 1) & (s->ntable - 1)) {
        const struct set *x = &s->set[s->table[i]];
        if (x->hash == hash && x->n == n && !memcmp(x->id, id, n * sizeof *id))
            return s->table[i];
    }
    uint32_t number = (uint32_t)s->nset;
    VEC_PUSH(t, s->set, s->nset, s->cap_set,
             ((struct set){n, hash, n ? mem_copy(t, id, n * sizeof *id) : NULL}));
    if (2 * s->nset > s->ntable) {
        s->ntable *= 2;
        s->table = mem_array(t, s->ntable, sizeof *s->table);
        for (uint32_t i = SET_EMPTY; i < s->nset; i++)
            enter(s, i);
    } else {
        enter(s, number);
    }
    return number;
}

static struct range_sets *sets_of(struct tgc *t)
{
    if (t->range_sets)
        return t->range_sets;
    struct range_sets *s = t->range_sets = MEM_NEW(t, struct range_sets);
    s->ntable = NSET_FIRST;
    s->table = mem_array(t, s->ntable, sizeof *s->table);
    VEC_PUSH(t, s->set, s->nset, s->cap_set, (struct set){0});
    if (set_find(t, NULL, 0) != SET_EMPTY)
        TGC_BUG(t, "the empty set is not the first");
    return s;
}

static bool set_has(const struct set *s, uint32_t id)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t at = (lo + hi) / 2;
        if (s->id[at] < id)
            lo = at + 1;
        else
            hi = at;
    }
    return lo < s->n && s->id[lo] == id;
}

static uint32_t set_union(struct tgc *t, uint32_t a, uint32_t b)
{
    if (a == b || b == SET_EMPTY)
        return a;
    if (a == SET_EMPTY)
        return b;
    struct range_sets *s = t->range_sets;
    struct pair *p = &s->pair[(a * 31 + b) % PAIRS];
    if (p->a == a && p->b == b)
        return p->both;
    const struct set *x = &s->set[a], *y = &s->set[b];
    struct mem_mark mark = scratch_mark(t);
    uint32_t *id = scratch_array(t, (size_t)x->n + y->n, sizeof *id), n = 0;
    for (uint32_t i = 0, k = 0; i < x->n || k < y->n;) {
        bool left = k == y->n || (i < x->n && x->id[i] <= y->id[k]);
        uint32_t next = left ? x->id[i++] : y->id[k++];
        if (n == 0 || id[n - 1] != next)
            id[n++] = next;
    }
    *p = (struct pair){a, b, set_find(t, id, n)};
    scratch_release(t, mark);
    return p->both;
}

static uint32_t set_of_sources(struct tgc *t, const struct uop *u)
{
    uint32_t set = SET_EMPTY;
    for (int k = 0; k < u->nsrc; k++)
        set = set_union(t, set, u->src[k]->ranges);
    return u->op == OP_RANGE ? set_union(t, set, set_find(t, &u->id, 1)) : set;
}

struct frame { struct uop *u; int next; };

/* The set of ranges below u, computed from the sources up. */
static const struct set *ranges_of(struct tgc *t, struct uop *u)
{
    struct range_sets *s = sets_of(t);
    if (u->ranges)
        return &s->set[u->ranges];
    struct mem_mark mark = scratch_mark(t);
    struct frame *stack = NULL;
    size_t depth = 0, cap = 0;
    SCRATCH_PUSH(t, stack, depth, cap, ((struct frame){u, 0}));
    while (depth) {
        struct frame *f = &stack[depth - 1];
        while (f->next < f->u->nsrc && f->u->src[f->next]->ranges)
            f->next++;
        if (f->next < f->u->nsrc) {
            SCRATCH_PUSH(t, stack, depth, cap, ((struct frame){f->u->src[f->next], 0}));
            continue;
        }
        f->u->ranges = set_of_sources(t, f->u);
        depth--;
    }
    scratch_release(t, mark);
    return &s->set[u->ranges];
}

/* ---------------------------------------------------------------------------------- dependence */

/* Whether u depends on r, which is not a RANGE; uops older than r cannot. */
static bool reaches(struct tgc *t, struct uop *u, const struct uop *r)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop **stack = NULL;
    size_t depth = 0, cap = 0;
    uint32_t seen = ++t->mark;
    bool found = u == r;
    SCRATCH_PUSH(t, stack, depth, cap, u);
    while (depth && !found) {
        const struct uop *x = stack[--depth];
        for (int k = 0; k < x->nsrc; k++) {
            struct uop *s = x->src[k];
            found |= s == r;
            if (s->id <= r->id || s->mark == seen)
                continue;
            s->mark = seen;
            SCRATCH_PUSH(t, stack, depth, cap, s);
        }
    }
    scratch_release(t, mark);
    return found;
}

bool uop_depends_on(struct tgc *t, struct uop *u, const struct uop *r)
{
    if (u->id <= r->id)
        return u == r;
    return r->op == OP_RANGE ? set_has(ranges_of(t, u), r->id) : reaches(t, u, r);
}

/* -------------------------------------------------------------------------------------- strides */

enum { PENDING_MOST = 32 };
/* The terms of a sum that depend on a range. A sum of too many terms for the normal form has sums,
 * and multiples of them, as its terms. lost: not all were found. */
struct terms {
    struct { struct uop *u; int64_t times; } left[PENDING_MOST];
    int n;
    bool lost;
};

static void terms_push(struct terms *of, struct uop *u, int64_t times)
{
    for (; u->op == OP_MUL && u->src[1]->op == OP_CONST; u = u->src[0])
        of->lost |= __builtin_mul_overflow(times, u->src[1]->arg.i, &times);
    if (of->n == PENDING_MOST) {
        of->lost = true;
        return;
    }
    of->left[of->n].u = u;
    of->left[of->n++].times = times;
}

/* NULL: there are no more. */
static struct uop *terms_next(struct tgc *t, struct terms *of, const struct uop *r, int64_t *times)
{
    while (of->n && !of->lost) {
        struct uop *u = of->left[--of->n].u;
        *times = of->left[of->n].times;
        if (!uop_depends_on(t, u, r))
            continue;
        if (u->op != OP_ADD)
            return u;
        terms_push(of, u->src[0], *times);
        terms_push(of, u->src[1], *times);
    }
    return NULL;
}

bool index_stride(struct tgc *t, struct uop *offset, const struct uop *r, int64_t *stride)
{
    struct terms of;
    struct uop *u;
    uint64_t sum = 0;
    int64_t times, part;
    of.n = 0;
    of.lost = false;
    terms_push(&of, offset, 1);
    while ((u = terms_next(t, &of, r, &times))) {
        /* a term may be a sum in 32 bits */
        bool widened = u->op == OP_CAST && u->dtype == DTYPE_INDEX && u->src[0]->dtype == DTYPE_I32;
        part = 1;
        if (widened ? !index_stride(t, u->src[0], r, &part) : u != r)
            return false;
        sum += (uint64_t)times * (uint64_t)part;
    }
    *stride = (int64_t)sum;
    return !of.lost;
}

struct uop *index_slope(struct tgc *t, struct uop *offset, struct uop *r)
{
    struct terms of;
    struct sum slope = {0};
    struct uop *u, *rest;
    int64_t times;
    of.n = 0;
    of.lost = false;
    terms_push(&of, offset, 1);
    while ((u = terms_next(t, &of, r, &times))) {
        if (!base_div(t, u, r, &rest) || (rest && uop_depends_on(t, rest, r)))
            return NULL;
        sum_term(&slope, rest ? rest : uop_int(t, 1), times);
    }
    if (of.lost || slope.overfull || slope.wrapped)
        return NULL;
    sum_sort(&slope);
    return sum_build(t, &slope);
}

int64_t index_first_step(struct tgc *t, struct uop *offset, const struct uop *r)
{
    struct uop_map zero = {.t = t, .scratch = true}, one = {.t = t, .scratch = true};
    int n;
    int64_t step;
    struct uop **order = uop_toposort(t, &offset, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_RANGE) {
            map_set(&zero, order[i], uop_int(t, 0));
            map_set(&one, order[i], uop_int(t, order[i] == r));
        }
    struct uop *from = uop_substitute_all(t, offset, &zero),
               *to = uop_substitute_all(t, offset, &one);
    return uop_const_int(sym_sub(t, to, from), &step) ? step : 0;
}

/* The divisor of one term: a product, a part of a division, a choice. */
static int64_t term_divisor(struct tgc *t, const struct uop *u)
{
    int64_t a, b;
    switch (u->op) {
    case OP_CONST:
        return u->arg.i < 0 ? (u->arg.i == INT64_MIN ? 1 : -u->arg.i) : u->arg.i;
    case OP_MUL:
        a = index_divisor(t, u->src[0]), b = index_divisor(t, u->src[1]);
        return sat_mul(a, b) < INT64_MAX ? a * b : a;
    case OP_NEG:
        return index_divisor(t, u->src[0]);
    case OP_FLOORMOD: case OP_MIN: case OP_MAX:
        return int_gcd(index_divisor(t, u->src[0]), index_divisor(t, u->src[1]));
    case OP_FLOORDIV:
        a = index_divisor(t, u->src[0]), b = u->src[1]->op == OP_CONST ? u->src[1]->arg.i : 0;
        return b > 0 && a % b == 0 ? a / b : 1;
    case OP_WHERE:
        return int_gcd(index_divisor(t, u->src[1]), index_divisor(t, u->src[2]));
    default:
        return 1;
    }
}

int64_t index_divisor(struct tgc *t, const struct uop *offset)
{
    int64_t all = 0;
    const struct uop *u = offset;
    if (u->dtype != DTYPE_INDEX)                      /* others wrap, or saturate */
        return 1;
    for (; (u->op == OP_ADD || u->op == OP_SUB) && all != 1; u = u->src[0])
        all = int_gcd(all, term_divisor(t, u->src[1]));
    return all == 1 ? 1 : int_gcd(all, term_divisor(t, u));
}

bool buffer_is_aligned(struct tgc *t, const struct buffer *b, int64_t n)
{
    if (b->kind == BUFFER_SCRATCH)
        return b->scratch.space == SPACE_SHARED || b->scratch.space == SPACE_GLOBAL;
    for (; b->base; b = b->base)
        if (b->base_offset && index_divisor(t, b->base_offset) % n)
            return false;
    return !b->port.state || b->port.state->npart < 2;
}

bool load_is_zero_elsewhere(const struct uop *load)
{
    const struct uop *v = load->nsrc > 3 ? load->src[3] : NULL;
    if (v && v->op == OP_SPLAT)
        v = v->src[0];
    return load->nsrc == 3 ||
           (v && v->op == OP_CONST && (dtype_is_float(v->dtype) ? v->arg.f == 0 : v->arg.i == 0));
}

int store_first_range(const struct uop *store)
{
    return store->nsrc > 3 && store->src[3]->op != OP_RANGE ? 4 : 3;
}
