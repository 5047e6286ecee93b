/* fold_sum.c - sums of monomials: the normal form of index arithmetic, and proofs about it.
 *
 * Normal form: ((t1 + t2) + t3) + c, each t a base or base*c, ordered by factors: loop counters
 * before other atoms before dimensions, then by age; a base is (f1*f2)*f3 in the same order. So
 * r0*1024 + r1*32 + r2 prints as one writes it, and equal polynomials are ==.
 */
#include "passes/rules/fold_index.h"

#include <string.h>

enum { MAX_FACTOR = 8, PROOF_STEPS = 12 };

/* Coefficients of a sum: modulo 2^64; overflow is noted. */
static int64_t coef_add(struct sum *s, int64_t a, int64_t b)
{
    int64_t r;
    s->wrapped |= __builtin_add_overflow(a, b, &r);
    return r;
}

static int64_t coef_mul(struct sum *s, int64_t a, int64_t b)
{
    int64_t r;
    s->wrapped |= __builtin_mul_overflow(a, b, &r);
    return r;
}

struct uop *intern_normal(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b)
{
    struct uop *src[2] = {a, b};
    struct uop *u = uop_intern(t, op, d, src, 2, (union arg){0});
    if (!u->folded)
        u->folded = u;
    return u->folded;
}

/* ---- bases */

static uint64_t atom_key(const struct uop *u)
{
    uint64_t rank = u->op == OP_RANGE ? 0 : u->op == OP_VAR ? 2 : 1;
    return rank << 32 | u->id;
}

static int base_factors(struct uop *base, struct uop **factor)
{
    int n = 1;
    for (struct uop *u = base; u->op == OP_MUL && n < MAX_FACTOR; u = u->src[0])
        n++;
    for (int i = n - 1; i > 0; i--, base = base->src[0])
        factor[i] = base->src[1];
    factor[0] = base;
    return n;
}

static struct uop *factors_build(struct tgc *t, struct uop *const *factor, int n)
{
    struct uop *u = factor[0];
    for (int i = 1; i < n; i++)
        u = intern_normal(t, OP_MUL, DTYPE_INDEX, u, factor[i]);
    return u;
}

struct uop *base_mul(struct tgc *t, struct uop *a, struct uop *b)
{
    struct uop *fa[MAX_FACTOR], *fb[MAX_FACTOR], *f[2 * MAX_FACTOR] = {0};
    int na = base_factors(a, fa), nb = base_factors(b, fb), n = 0;
    if (na + nb > MAX_FACTOR)
        return NULL;
    for (int i = 0, k = 0; i < na || k < nb;) {
        bool left = k == nb || (i < na && atom_key(fa[i]) <= atom_key(fb[k]));
        f[n++] = left ? fa[i++] : fb[k++];
    }
    return factors_build(t, f, n);
}

bool base_div(struct tgc *t, struct uop *a, struct uop *b, struct uop **r)
{
    struct uop *fa[MAX_FACTOR], *fb[MAX_FACTOR], *f[MAX_FACTOR];
    int na = base_factors(a, fa), nb = base_factors(b, fb), n = 0, k = 0;
    for (int i = 0; i < na; i++) {
        if (k < nb && fa[i] == fb[k])
            k++;
        else
            f[n++] = fa[i];
    }
    if (k < nb)
        return false;
    *r = n ? factors_build(t, f, n) : NULL;
    return true;
}

/* ---- sums */

void sum_term(struct sum *s, struct uop *base, int64_t coef)
{
    if (base->vmin == base->vmax) {
        s->c = coef_add(s, s->c, coef_mul(s, coef, base->vmin));
        return;
    }
    for (int i = 0; i < s->n; i++)
        if (s->term[i].base == base) {
            s->term[i].coef = coef_add(s, s->term[i].coef, coef);
            if (s->term[i].coef == 0)
                memmove(&s->term[i], &s->term[i + 1], (size_t)(--s->n - i) * sizeof s->term[0]);
            return;
        }
    if (coef == 0)
        return;
    if (s->n == MAX_TERM) {
        s->overfull = true;
        return;
    }
    s->term[s->n++] = (struct term){base, coef};
}

static void add_monomial(struct sum *s, struct uop *u, int64_t coef)
{
    if (u->op == OP_CONST)
        s->c = coef_add(s, s->c, coef_mul(s, coef, u->arg.i));
    else if (u->op == OP_MUL && u->src[1]->op == OP_CONST)
        sum_term(s, u->src[0], coef_mul(s, coef, u->src[1]->arg.i));
    else
        sum_term(s, u, coef);
}

void sum_add(struct sum *s, struct uop *u, int64_t coef)
{
    struct uop *part[MAX_TERM + 1];
    int n = 0;
    for (; u->op == OP_ADD && n <= MAX_TERM; u = u->src[0])
        part[n++] = u->src[1];
    if (u->op == OP_ADD) {
        s->overfull = true;
        return;
    }
    add_monomial(s, u, coef);
    while (n)
        add_monomial(s, part[--n], coef);
}

void sum_add_sum(struct sum *s, const struct sum *b, int64_t coef)
{
    s->overfull |= b->overfull;
    s->wrapped |= b->wrapped;
    s->c = coef_add(s, s->c, coef_mul(s, coef, b->c));
    for (int i = 0; i < b->n; i++)
        sum_term(s, b->term[i].base, coef_mul(s, coef, b->term[i].coef));
}

bool sum_scale(struct tgc *t, const struct sum *s, struct uop *base, int64_t coef, struct sum *r)
{
    struct sum out = {.overfull = s->overfull, .wrapped = s->wrapped};
    for (int i = 0; i < s->n; i++) {
        struct uop *b = base ? base_mul(t, s->term[i].base, base) : s->term[i].base;
        if (!b)
            return false;
        sum_term(&out, b, coef_mul(&out, s->term[i].coef, coef));
    }
    if (!base)
        out.c = coef_mul(&out, s->c, coef);
    else if (s->c)
        sum_term(&out, base, coef_mul(&out, s->c, coef));
    *r = out;
    return !out.overfull;
}

static int compare_bases(struct uop *a, struct uop *b)
{
    struct uop *fa[MAX_FACTOR], *fb[MAX_FACTOR];
    if (a == b)
        return 0;
    int na = base_factors(a, fa), nb = base_factors(b, fb);
    for (int i = 0; i < na && i < nb; i++)
        if (fa[i] != fb[i])
            return atom_key(fa[i]) < atom_key(fb[i]) ? -1 : 1;
    return nb - na; /* the longer product first */
}

static struct uop *monomial_base(struct uop *u)
{
    return u->op == OP_MUL && u->src[1]->op == OP_CONST ? u->src[0] : u;
}

/* A sum with a remainder is collected, not extended, since a division may cancel it
 * (fold_index.c). */
static bool has_remainder(struct uop *u)
{
    for (; u->op == OP_ADD; u = u->src[0])
        if (monomial_base(u->src[1])->op == OP_FLOORMOD)
            return true;
    return monomial_base(u)->op == OP_FLOORMOD;
}

bool sum_ends_with(struct uop *x, struct uop *y)
{
    struct uop *last = x->op == OP_ADD ? x->src[1] : x, *base = monomial_base(y);
    if (last->op == OP_CONST || y->op == OP_ADD)
        return false;
    if (y->op == OP_CONST)
        return y->arg.i != 0;
    return base->vmin != base->vmax && base->op != OP_FLOORMOD &&
           compare_bases(monomial_base(last), base) < 0 && !has_remainder(x);
}

bool product_is_term(const struct uop *x, const struct uop *y)
{
    bool scaled = x->op == OP_MUL && x->src[1]->op == OP_CONST;
    return y->op == OP_CONST && y->arg.i != 0 && y->arg.i != 1 && x->op != OP_CONST &&
           x->op != OP_ADD && !scaled && x->vmin != x->vmax;
}

void sum_sort(struct sum *s)
{
    for (int i = 1; i < s->n; i++) {
        struct term x = s->term[i];
        int k = i;
        for (; k > 0 && compare_bases(s->term[k - 1].base, x.base) > 0; k--)
            s->term[k] = s->term[k - 1];
        s->term[k] = x;
    }
}

struct uop *sum_build(struct tgc *t, struct sum *s)
{
    struct uop *u = NULL;
    sum_sort(s);
    for (int i = 0; i < s->n; i++) {
        struct uop *x = s->term[i].base;
        if (s->term[i].coef != 1)
            x = intern_normal(t, OP_MUL, DTYPE_INDEX, x, uop_int(t, s->term[i].coef));
        u = u ? intern_normal(t, OP_ADD, DTYPE_INDEX, u, x) : x;
    }
    if (!u)
        return uop_int(t, s->c);
    return s->c ? intern_normal(t, OP_ADD, DTYPE_INDEX, u, uop_int(t, s->c)) : u;
}

/* ---- bounds of a sum */

/* A base that may wrap has the bounds of the dtype, which are no use. */
static bool add_bounds(int64_t *lo, int64_t *hi, const struct term *x)
{
    int64_t a = x->base->vmin, b = x->base->vmax;
    if (a == INT64_MIN || b == INT64_MAX || x->coef == INT64_MIN ||
        __builtin_mul_overflow(a, x->coef, &a) || __builtin_mul_overflow(b, x->coef, &b))
        return false;
    return !__builtin_add_overflow(*lo, x->coef < 0 ? b : a, lo) &&
           !__builtin_add_overflow(*hi, x->coef < 0 ? a : b, hi);
}

bool sum_bounds(const struct sum *s, int64_t *lo, int64_t *hi)
{
    if (s->overfull || s->wrapped || s->c > INT64_MAX / 2 || s->c < -(INT64_MAX / 2))
        return false;
    *lo = *hi = s->c;
    for (int i = 0; i < s->n; i++)
        if (!add_bounds(lo, hi, &s->term[i]))
            return false;
    return true;
}

void sum_collect(struct sum *s, struct uop *x)
{
    int64_t lo, hi;
    *s = (struct sum){0};
    sum_add(s, x, 1);
    if (!sum_bounds(s, &lo, &hi)) {
        *s = (struct sum){0};
        sum_term(s, x, 1);
    }
}

/* ---- loop counters imply facts about their sizes */

/* Whether f is a factor of the size of a RANGE among the factors of s: the loop runs only if its
 * size is above 0, and then so is each factor, as none is negative. */
static bool divides_size(struct tgc *t, struct uop *f, const struct sum *s)
{
    struct uop *rest;
    int64_t lo, hi;
    for (int i = 0; i < s->n; i++)
        for (struct uop *u = s->term[i].base; u; u = u->op == OP_MUL ? u->src[0] : NULL) {
            const struct uop *r = u->op == OP_MUL ? u->src[1] : u;
            struct sum size;
            if (r->op != OP_RANGE)
                continue;
            if (r->src[0] == f)
                return true;
            sum_collect(&size, r->src[0]);
            bool signs = size.n == 1 && size.c == 0 && size.term[0].coef > 0 &&
                         sum_bounds(&size, &lo, &hi);
            for (struct uop *v = signs ? size.term[0].base : NULL; v;
                 v = v->op == OP_MUL ? v->src[0] : NULL)
                signs &= (v->op == OP_MUL ? v->src[1] : v)->vmin >= 0;
            if (signs && base_div(t, size.term[0].base, f, &rest))
                return true;
        }
    return false;
}

bool sum_above_0(struct tgc *t, struct uop *y, const struct sum *s)
{
    struct sum each;
    int64_t lo, hi;
    if (y->vmin > 0 || divides_size(t, y, s))
        return true;
    sum_collect(&each, y);
    bool all = each.n == 1 && each.c == 0 && each.term[0].coef > 0 && sum_bounds(&each, &lo, &hi);
    for (struct uop *u = all ? each.term[0].base : NULL; u && all;
         u = u->op == OP_MUL ? u->src[0] : NULL) {
        struct uop *f = u->op == OP_MUL ? u->src[1] : u;
        all = f->vmin > 0 || divides_size(t, f, s);
    }
    return all;
}

/* The symbolic upper bound of an atom whose lower bound is 0: RANGE(n) and x % n are below n. (n
 * may be 0 if there is no value: the loop does not run.) */
static struct uop *atom_size(struct tgc *t, const struct uop *u)
{
    struct sum x;
    bool modulo = u->op == OP_FLOORMOD && u->src[1]->vmin >= 0;
    if (modulo)
        sum_collect(&x, u->src[0]);
    struct uop *n = u->op == OP_RANGE                         ? u->src[0]
                    : modulo && sum_above_0(t, u->src[1], &x) ? u->src[1]
                                                              : NULL;
    return n && n->vmin != n->vmax ? n : NULL;
}

/* s = a * atom + b */
static bool sum_split(struct tgc *t, const struct sum *s, struct uop *atom, struct sum *a,
                      struct sum *b)
{
    struct uop *rest;
    *a = (struct sum){0};
    *b = (struct sum){.c = s->c};
    for (int i = 0; i < s->n; i++) {
        if (!base_div(t, s->term[i].base, atom, &rest))
            sum_term(b, s->term[i].base, s->term[i].coef);
        else if (rest)
            sum_term(a, rest, s->term[i].coef);
        else
            a->c = coef_add(a, a->c, s->term[i].coef);
    }
    for (int i = 0; i < a->n; i++)
        if (base_div(t, a->term[i].base, atom, &rest))
            return false;
    return true;
}

static struct uop *find_sized_atom(struct tgc *t, const struct sum *s, struct uop *const *done,
                                   int ndone)
{
    struct uop *factor[MAX_FACTOR];
    for (int i = 0; i < s->n; i++) {
        int n = base_factors(s->term[i].base, factor);
        for (int k = 0; k < n; k++) {
            bool seen = !atom_size(t, factor[k]);
            for (int d = 0; d < ndone; d++)
                seen |= done[d] == factor[k];
            if (!seen)
                return factor[k];
        }
    }
    return NULL;
}

bool sum_nonnegative(struct tgc *t, const struct sum *given)
{
    struct uop *done[PROOF_STEPS], *atom;
    struct sum s = *given, a, b;
    int64_t lo, hi;
    for (int ndone = 0; ndone < PROOF_STEPS; ndone++) {
        if (!sum_bounds(&s, &lo, &hi))
            return false;
        if (lo >= 0 || hi < 0)
            return lo >= 0;
        if (!(atom = find_sized_atom(t, &s, done, ndone)))
            return false;
        done[ndone] = atom;
        if (!sum_split(t, &s, atom, &a, &b) || !sum_bounds(&a, &lo, &hi))
            continue;
        if (hi <= 0) { /* the minimum is at atom = size - 1 */
            struct sum top = {.c = -1}, at;
            sum_add(&top, atom_size(t, atom), 1);
            for (int i = 0; i <= a.n; i++) {
                if (!sum_scale(t, &top, i < a.n ? a.term[i].base : NULL,
                               i < a.n ? a.term[i].coef : a.c, &at))
                    return false;
                sum_add_sum(&b, &at, 1);
            }
            s = b;
        } else if (lo >= 0) {
            s = b;
        }
    }
    return false;
}
