/* fold_index.c - the right sides of index rules that patterns cannot express: n-ary sums, division
 * and comparison of sums.
 *
 * Everything rests on one identity of floor division: with x = y*Q + R, x // y = Q + R // y and x %
 * y = R % y. A quotient with 0 <= R < y by bounds solves the division; otherwise a common factor is
 * cancelled. x // y and x % y are decided alike, so that (x // y)*y + x % y folds to x again. All
 * of this holds for integers, not for words: a sum whose value may leave int64 is one opaque atom
 * here. Everything is compared with brute force in tests/unit/test_rules.c.
 *
 * y has to be above 0. A symbol may be 0; but where x counts a loop over y, or over a product with
 * y, there is an x only if y is not (sum_above_0).
 */
#include "passes/rules/fold_index.h"

enum { MAX_DIVIDE = 8 };

static struct uop *changed(const struct uop *u, struct uop *r) { return r == u ? NULL : r; }

/* ---- sums and products */

/* k*(x % y) + k*y*(x // y) is k*x. */
static bool join_remainder(struct tgc *t, struct sum *s, int i)
{
    struct uop *m = s->term[i].base, *factor = NULL;
    int64_t coef = s->term[i].coef, c;
    struct uop *q = uop_binary(t, OP_FLOORDIV, m->src[0], m->src[1]), *base;
    struct sum quotient = {0}, found = {0}, joined = {0}, whole;
    sum_collect(&whole, m->src[0]);
    if (!sum_above_0(t, m->src[1], &whole) || q->op == OP_CONST)
        return false;
    if (!uop_const_int(m->src[1], &c)) {
        c = 1;
        factor = m->src[1];
        if (factor->op == OP_ADD || (factor->op == OP_MUL && factor->src[1]->op == OP_CONST))
            return false;
    }
    sum_add(&quotient, q, 1);
    if (!sum_scale(t, &quotient, factor, c, &found) || found.n == 0)
        return false;
    /* every term of coef * y * (x // y) must be there */
    for (int k = 0; k < found.n; k++) {
        bool there = false;
        base = found.term[k].base;
        for (int j = 0; j < s->n; j++)
            there |= s->term[j].base == base &&
                     s->term[j].coef == (int64_t)((uint64_t)found.term[k].coef * (uint64_t)coef);
        if (!there)
            return false;
    }
    joined = *s;
    sum_term(&joined, m, -coef);
    sum_add_sum(&joined, &found, -coef);
    sum_add(&joined, m->src[0], coef);
    if (joined.overfull)
        return false;
    *s = joined;
    return true;
}

static void join_remainders(struct tgc *t, struct sum *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->term[i].base->op == OP_FLOORMOD && s->n > 1 && join_remainder(t, s, i))
            i = -1;
}

struct uop *fold_sum(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct sum s = {0};
    if (sum_ends_with(x, y))
        return NULL;
    sum_add(&s, x, 1);
    sum_add(&s, y, 1);
    if (s.overfull)
        return NULL;
    join_remainders(t, &s);
    return changed(u, sum_build(t, &s));
}

struct uop *fold_difference(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct sum s = {0};
    sum_add(&s, x, 1);
    sum_add(&s, y, -1);
    if (s.overfull)
        return NULL;
    join_remainders(t, &s);
    return changed(u, sum_build(t, &s));
}

struct uop *fold_product(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct sum a = {0}, b = {0}, product = {0}, part;
    if (product_is_term(x, y))
        return NULL;
    sum_add(&a, x, 1);
    sum_add(&b, y, 1);
    if (a.overfull || b.overfull || (a.n + 1) * (b.n + 1) > MAX_TERM)
        return NULL;
    for (int i = 0; i <= b.n; i++) {
        if (!sum_scale(t, &a, i < b.n ? b.term[i].base : NULL, i < b.n ? b.term[i].coef : b.c,
                       &part))
            return NULL;
        sum_add_sum(&product, &part, 1);
    }
    if (product.overfull)
        return NULL;
    join_remainders(t, &product);
    return changed(u, sum_build(t, &product));
}

/* A difference that has too many terms is opaque, and rules of other integers know it. */
static bool is_term_of_rules(const struct uop *u)
{
    return u->ndim == 0 && u->lanes == 1 && u->op != OP_SUB && u->op != OP_NEG;
}

struct uop *index_normal(struct tgc *t, enum op op, struct uop *x, struct uop *y)
{
    bool constants = x->op == OP_CONST && y->op == OP_CONST;
    if (constants || !is_term_of_rules(x) || !is_term_of_rules(y))
        return NULL;
    if (x->vmin != x->vmax && ((op == OP_ADD && sum_ends_with(x, y)) ||
                               (op == OP_MUL && product_is_term(x, y))))
        return intern_normal(t, op, DTYPE_INDEX, x, y);
    return op == OP_ADD   ? fold_sum(t, NULL, x, y)
           : op == OP_SUB ? fold_difference(t, NULL, x, y)
                          : fold_product(t, NULL, x, y);
}

/* ---- division: x = y*Q + R */

struct division {
    struct tgc *t;
    struct uop *u, *x, *y;
    bool mod;
};

static struct uop *finish(struct division *d, struct sum *quotient, struct sum *rest)
{
    return sum_build(d->t, d->mod ? rest : quotient);
}

static int64_t nearest(int64_t a, int64_t c) /* congruent to a modulo c, of least magnitude */
{
    int64_t r = int_floormod(a, c);
    return r > c - r ? r - c : r;
}

/* Divides each coefficient; which = 0: remainders keep the sign of the coefficient, 1: of least
 * magnitude, 2: >= 0. */
static void split_by_constant(const struct sum *s, int64_t c, int which, struct sum *quotient,
                              struct sum *rest)
{
    *quotient = (struct sum){.c = int_floordiv(s->c, c)};
    *rest = (struct sum){.c = int_floormod(s->c, c)};
    for (int i = 0; i < s->n; i++) {
        int64_t a = s->term[i].coef, r = which == 0   ? a % c
                                         : which == 1 ? nearest(a, c)
                                                      : int_floormod(a, c);
        sum_term(quotient, s->term[i].base, (a - r) / c);
        sum_term(rest, s->term[i].base, r);
    }
}

/* If rest is in [k*c, k*c + c - 1]: moves k over and returns true. */
static bool settle(struct sum *quotient, struct sum *rest, int64_t c)
{
    int64_t lo, hi;
    if (!sum_bounds(rest, &lo, &hi) || int_floordiv(lo, c) != int_floordiv(hi, c))
        return false;
    quotient->c = sat_add(quotient->c, int_floordiv(lo, c));
    rest->c -= int_floordiv(lo, c) * c;
    return true;
}

static bool safe(const struct sum *a, const struct sum *b)
{
    int64_t lo, hi;
    return sum_bounds(a, &lo, &hi) && sum_bounds(b, &lo, &hi);
}

/* Collects the terms that g divides, if the rest is within one multiple of g: x = g*M + L, 0 <= L <
 * g, g | c. x // c = M // (c/g). */
static struct uop *divide_by_factor(struct division *d, const struct sum *s, int64_t c, int64_t g)
{
    struct sum many = {0}, low = {.c = s->c};
    struct tgc *t = d->t;
    for (int i = 0; i < s->n; i++) {
        bool whole = s->term[i].coef % g == 0;
        sum_term(whole ? &many : &low, s->term[i].base,
                 whole ? s->term[i].coef / g : s->term[i].coef);
    }
    if (!settle(&many, &low, g) || !safe(&many, &low))
        return NULL;
    struct uop *m = sum_build(t, &many), *by = uop_int(t, c / g);
    if (!d->mod)
        return sym_div(t, m, by);
    sum_add(&low, sym_mul(t, sym_mod(t, m, by), uop_int(t, g)), 1);
    return low.overfull ? NULL : sum_build(t, &low);
}

static struct uop *divide_by_factors(struct division *d, const struct sum *s, int64_t c)
{
    int64_t tried = c;
    for (;;) { /* each common factor once, the largest first */
        int64_t g = 1;
        for (int i = 0; i < s->n; i++) {
            int64_t k = int_gcd(s->term[i].coef, c);
            if (k < tried && k > g)
                g = k;
        }
        if (g == 1)
            return NULL;
        struct uop *r = divide_by_factor(d, s, c, g);
        if (r)
            return r;
        tried = g;
    }
}

/* (z // a + k) // c = (z + k*a) // (a*c);  (z % a) // c = (z // c) % (a / c) if c divides a. */
static struct uop *divide_nested(struct division *d, const struct sum *s, int64_t c)
{
    struct tgc *t = d->t;
    struct uop *inner = s->n == 1 && s->term[0].coef == 1 ? s->term[0].base : NULL;
    int64_t a, shift, ac;
    if (!inner || d->mod || (inner->op != OP_FLOORDIV && inner->op != OP_FLOORMOD) ||
        !uop_const_int(inner->src[1], &a) || a <= 0)
        return NULL;
    if (inner->op == OP_FLOORMOD)
        return s->c == 0 && a % c == 0
                   ? sym_mod(t, sym_div(t, inner->src[0], uop_int(t, c)), uop_int(t, a / c))
                   : NULL;
    if (__builtin_mul_overflow(a, c, &ac) || __builtin_mul_overflow(a, s->c, &shift))
        return NULL;
    struct sum z;
    int64_t lo, hi;
    sum_collect(&z, inner->src[0]);
    if (__builtin_add_overflow(z.c, shift, &z.c) || !sum_bounds(&z, &lo, &hi))
        return NULL;
    return sym_div(t, sum_build(t, &z), uop_int(t, ac));
}

/* (k*(z % a) + w) % c = (k*z + w) % c if c divides k*a. */
static struct uop *remainder_of_remainder(struct division *d, const struct sum *s, int64_t c)
{
    struct sum out = {.c = s->c};
    bool found = false;
    int64_t a, ka, lo, hi;
    for (int i = 0; d->mod && i < s->n; i++) {
        struct uop *b = s->term[i].base;
        bool drop = b->op == OP_FLOORMOD && uop_const_int(b->src[1], &a) && a > 0 &&
                    !__builtin_mul_overflow(a, s->term[i].coef, &ka) && ka % c == 0;
        struct sum inner = {0};
        if (drop) {
            sum_collect(&inner, b->src[0]);
            sum_add_sum(&out, &inner, s->term[i].coef);
        } else {
            sum_term(&out, b, s->term[i].coef);
        }
        found |= drop;
    }
    return found && sum_bounds(&out, &lo, &hi)
               ? sym_mod(d->t, sum_build(d->t, &out), uop_int(d->t, c))
               : NULL;
}

static struct uop *divide_by_constant(struct division *d, int64_t c)
{
    struct tgc *t = d->t;
    struct sum s, quotient, rest;
    if (c == 0 || (d->mod && (c == 1 || c == -1)))
        return uop_int(t, 0);
    if (c == 1)
        return d->x;
    if (c < 0)
        return c == -1 ? sym_mul(t, d->x, uop_int(t, -1)) : NULL;
    sum_collect(&s, d->x);
    for (int which = 2; which >= 0; which--) { /* ends with the split that is used from here on */
        split_by_constant(&s, c, which, &quotient, &rest);
        if (safe(&quotient, &rest) && settle(&quotient, &rest, c))
            return finish(d, &quotient, &rest);
    }
    if (!safe(&quotient, &rest))
        return NULL;
    if (quotient.n || quotient.c) {
        struct uop *r = sum_build(t, &rest);
        if (d->mod)
            return sym_mod(t, r, d->y);
        return sym_add(t, sum_build(t, &quotient), sym_div(t, r, d->y));
    }
    struct uop *r = divide_by_factors(d, &s, c);
    if (!r)
        r = divide_nested(d, &s, c);
    return r ? r : remainder_of_remainder(d, &s, c);
}

/* Polynomial division of s by y on y's first term. */
static bool divide_sums(struct tgc *t, const struct sum *s, const struct sum *y,
                        struct sum *quotient, struct sum *rest)
{
    const struct term *lead = &y->term[0];
    struct uop *base;
    struct sum part;
    *quotient = (struct sum){0};
    *rest = *s;
    for (int steps = 0; steps < MAX_DIVIDE; steps++) {
        int i = 0;
        while (i < rest->n && (rest->term[i].coef % lead->coef ||
                               !base_div(t, rest->term[i].base, lead->base, &base)))
            i++;
        if (i == rest->n)
            return true;
        int64_t q = rest->term[i].coef / lead->coef;
        if (!sum_scale(t, y, base, q, &part))
            return false;
        if (base)
            sum_term(quotient, base, q);
        else
            quotient->c = sat_add(quotient->c, q);
        sum_add_sum(rest, &part, -1);
        if (rest->overfull || quotient->overfull)
            return false;
    }
    return false;
}

static bool within(struct tgc *t, const struct sum *rest, const struct sum *y)
{
    struct sum above = *y;
    above.c -= 1;
    sum_add_sum(&above, rest, -1);
    return sum_nonnegative(t, rest) && sum_nonnegative(t, &above);
}

/* A factor > 0 of every term of both; NULL: none. */
static struct uop *common_atom(struct tgc *t, const struct sum *s, const struct sum *y)
{
    struct uop *rest;
    if (s->c || y->c || !s->n || !y->n)
        return NULL;
    for (struct uop *f = y->term[0].base; f; f = f->op == OP_MUL ? f->src[0] : NULL) {
        struct uop *atom = f->op == OP_MUL ? f->src[1] : f;
        bool all = sum_above_0(t, atom, s);
        for (int i = 0; all && i < s->n; i++)
            all = base_div(t, s->term[i].base, atom, &rest);
        for (int i = 0; all && i < y->n; i++)
            all = base_div(t, y->term[i].base, atom, &rest);
        if (all)
            return atom;
    }
    return NULL;
}

static void take_out(struct tgc *t, struct sum *s, struct uop *atom, int64_t g)
{
    struct sum r = {.c = s->c / g};
    struct uop *rest;
    for (int i = 0; i < s->n; i++) {
        rest = s->term[i].base;
        if (atom)
            base_div(t, s->term[i].base, atom, &rest);
        if (rest)
            sum_term(&r, rest, s->term[i].coef / g);
        else
            r.c += s->term[i].coef / g;
    }
    *s = r;
}

/* (g*a*X) // (g*a*Y) = X // Y, and % gives g*a*(X % Y); a an atom > 0, g an integer > 0. */
static struct uop *cancel_common(struct division *d, struct sum *s, struct sum *y)
{
    struct tgc *t = d->t;
    int64_t g = int_gcd(s->c, y->c);
    for (int i = 0; i < s->n; i++)
        g = int_gcd(g, s->term[i].coef);
    for (int i = 0; i < y->n; i++)
        g = int_gcd(g, y->term[i].coef);
    struct uop *atom = common_atom(t, s, y);
    if (g <= 1 && !atom)
        return NULL;
    g = g > 1 ? g : 1;
    take_out(t, s, atom, g);
    take_out(t, y, atom, g);
    struct uop *a = sum_build(t, s), *b = sum_build(t, y);
    if (!d->mod)
        return sym_div(t, a, b);
    struct uop *r = sym_mul(t, sym_mod(t, a, b), uop_int(t, g));
    return atom ? sym_mul(t, r, atom) : r;
}

static struct uop *divide_by_symbol(struct division *d)
{
    struct tgc *t = d->t;
    struct sum s, y, quotient, rest;
    int64_t lo, hi;
    sum_collect(&s, d->x);
    sum_collect(&y, d->y);
    if (!sum_bounds(&s, &lo, &hi) || !sum_bounds(&y, &lo, &hi) || y.n == 0 ||
        !sum_above_0(t, d->y, &s))
        return NULL;
    if (divide_sums(t, &s, &y, &quotient, &rest) && safe(&quotient, &rest)) {
        if (within(t, &rest, &y))
            return finish(d, &quotient, &rest);
        if (quotient.n || quotient.c) {
            struct uop *r = sum_build(t, &rest);
            return d->mod ? sym_mod(t, r, d->y)
                          : sym_add(t, sum_build(t, &quotient), sym_div(t, r, d->y));
        }
    }
    /* a rest in (-y, 0): quotient -1 and remainder y + rest */
    rest = s;
    sum_add_sum(&rest, &y, 1);
    quotient = (struct sum){.c = -1};
    if (safe(&quotient, &rest) && within(t, &rest, &y))
        return finish(d, &quotient, &rest);
    return cancel_common(d, &s, &y);
}

static struct uop *divide(struct tgc *t, struct uop *u, struct uop *x, struct uop *y, bool mod)
{
    struct division d = {t, u, x, y, mod};
    int64_t c;
    struct uop *r = uop_const_int(y, &c) ? divide_by_constant(&d, c) : divide_by_symbol(&d);
    return r ? changed(u, r) : NULL;
}

struct uop *fold_floordiv(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    return divide(t, u, x, y, false);
}
struct uop *fold_floormod(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    return divide(t, u, x, y, true);
}

/* ---- comparison */

/* x - y as integers; false if it may overflow. */
static bool collect_difference(struct sum *s, struct uop *x, struct uop *y)
{
    struct sum a, b;
    int64_t lo, hi;
    sum_collect(&a, x);
    sum_collect(&b, y);
    *s = a;
    sum_add_sum(s, &b, -1);
    return sum_bounds(s, &lo, &hi) && lo > INT64_MIN / 2 && hi < INT64_MAX / 2;
}

static bool provably_less(struct tgc *t, const struct sum *difference) /* x - y < 0 */
{
    struct sum s = {.c = -1};
    sum_add_sum(&s, difference, -1);
    return sum_nonnegative(t, &s);
}

bool index_provably_less(struct tgc *t, struct uop *a, struct uop *b)
{
    struct sum s;
    return collect_difference(&s, a, b) && provably_less(t, &s);
}

static int64_t terms_gcd(const struct sum *s)
{
    int64_t g = 0;
    for (int i = 0; i < s->n; i++)
        g = int_gcd(g, s->term[i].coef);
    return g;
}

/* Terms with positive coefficients left of an op, the others and the constant right of it. */
static struct uop *build_comparison(struct tgc *t, enum op op, const struct sum *s)
{
    struct sum left = {0}, right = {.c = -s->c};
    for (int i = 0; i < s->n; i++)
        sum_term(s->term[i].coef > 0 ? &left : &right, s->term[i].base,
                 s->term[i].coef > 0 ? s->term[i].coef : -s->term[i].coef);
    struct uop *a = sum_build(t, &left);
    return intern_normal(t, op, DTYPE_BOOL, a, sum_build(t, &right));
}

/* sum < 0 with sum = g*M + L + c and L within one multiple of g: drops L if it does not decide. */
static void drop_rest(struct sum *s)
{
    for (int i = 0; i < s->n; i++) {
        int64_t g = s->term[i].coef < 0 ? -s->term[i].coef : s->term[i].coef, lo, hi;
        struct sum many = {0}, low = {0};
        for (int k = 0; k < s->n; k++)
            sum_term(s->term[k].coef % g ? &low : &many, s->term[k].base, s->term[k].coef);
        low.c = s->c;
        if (g == 1 || low.n == 0 || !sum_bounds(&low, &lo, &hi))
            continue;
        /* g*M < -c - L: do all L give one bound? */
        int64_t most = -int_floordiv(lo, g), least = -int_floordiv(hi, g);
        if (most != least)
            continue;
        many.c = -g * most;
        *s = many;
        return;
    }
}

/* x // a < c is x < c*a. */
static bool compare_quotient(struct sum *s)
{
    int64_t a, lo, hi;
    struct uop *q = s->n == 1 && s->term[0].coef == 1 ? s->term[0].base : NULL;
    struct sum x;
    if (!q || q->op != OP_FLOORDIV || !uop_const_int(q->src[1], &a) || a <= 0)
        return false;
    sum_collect(&x, q->src[0]);
    if (__builtin_mul_overflow(s->c, a, &a) || __builtin_add_overflow(x.c, a, &x.c) ||
        !sum_bounds(&x, &lo, &hi) || lo <= INT64_MIN / 2 || hi >= INT64_MAX / 2)
        return false;
    *s = x;
    return true;
}

struct uop *fold_less(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct sum s;
    if (!collect_difference(&s, x, y))
        return NULL;
    if (sum_nonnegative(t, &s))
        return uop_bool(t, false);
    if (provably_less(t, &s))
        return uop_bool(t, true);
    do {
        drop_rest(&s);
        int64_t g = terms_gcd(&s);
        /* g*M + c < 0 is M < ceil(-c / g) */
        int64_t limit = -int_floordiv(s.c, g);
        for (int i = 0; i < s.n; i++)
            s.term[i].coef /= g;
        s.c = -limit;
    } while (compare_quotient(&s));
    sum_sort(&s);
    if (s.term[0].coef > 0)
        return changed(u, build_comparison(t, OP_LT, &s));
    /* sum < 0 is !(-sum < 1) */
    for (int i = 0; i < s.n; i++)
        s.term[i].coef = -s.term[i].coef;
    s.c = -s.c - 1;
    struct uop *r = build_comparison(t, OP_LT, &s);
    return changed(u, uop_not(t, r));
}

struct uop *fold_equal(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct sum s;
    if (!collect_difference(&s, x, y))
        return NULL;
    bool is_eq = u->op == OP_EQ;
    int64_t g = terms_gcd(&s);
    if (s.n == 0)
        return uop_bool(t, (s.c == 0) == is_eq);
    struct sum negative = {.c = -1}, positive = s;
    sum_add_sum(&negative, &s, -1);
    positive.c -= 1;
    if (s.c % g || sum_nonnegative(t, &negative) || sum_nonnegative(t, &positive))
        return uop_bool(t, !is_eq);
    sum_sort(&s);
    g = s.term[0].coef < 0 ? -g : g;
    for (int i = 0; i < s.n; i++)
        s.term[i].coef /= g;
    s.c /= g;
    return changed(u, build_comparison(t, u->op, &s));
}

/* ---- maximum and minimum */

static struct uop *extreme(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct sum s, negative = {0};
    if (collect_difference(&s, x, y)) {
        sum_add_sum(&negative, &s, -1);
        if (sum_nonnegative(t, &s))
            return u->op == OP_MAX ? x : y;
        if (sum_nonnegative(t, &negative))
            return u->op == OP_MAX ? y : x;
    }
    /* one order, a constant last */
    bool swap = y->op != OP_CONST && (x->op == OP_CONST || x->id > y->id);
    return swap ? changed(u, uop_binary(t, u->op, y, x)) : NULL;
}

struct uop *fold_greater_of(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    return extreme(t, u, x, y);
}
struct uop *fold_lesser_of(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    return extreme(t, u, x, y);
}
