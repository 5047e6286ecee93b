/* fold_valid.c - conditions: conjunctions of comparisons, and expressions simplified under a
 * condition.
 *
 * Clauses that bound an expression are `a < c` and `!(a < c)` (the normal forms of comparisons with
 * a constant). To simplify under a condition, a is replaced by a symbol p with a's bounds under the
 * condition; the expression folds, and p is replaced by a again. If a is a sum with an atom z whose
 * coefficient is 1 or -1, z becomes +-(p - rest). The result is taken only if it is smaller.
 */
#include "passes/rules/fold_index.h"

enum { MAX_CLAUSE = 24 };
struct clauses {
    int n;
    bool never, overfull;
    struct uop *c[MAX_CLAUSE];
};
struct bound {
    struct uop *a;
    int64_t lo, hi;
};

/* a < c or !(a < c) as bounds of a. */
static bool clause_bound(const struct uop *u, struct bound *b)
{
    bool negated = u->op == OP_NOT;
    const struct uop *lt = negated ? u->src[0] : u;
    int64_t c;
    if (lt->op != OP_LT || !rule_is_index(lt->src[0]) || !uop_const_int(lt->src[1], &c) ||
        c == INT64_MIN)
        return false;
    *b = (struct bound){lt->src[0], negated ? c : INT64_MIN, negated ? INT64_MAX : c - 1};
    return true;
}

static void drop_clause(struct clauses *s, int i) { s->c[i] = s->c[--s->n]; }

static bool contradicts(const struct uop *a, const struct uop *b)
{
    return (a->op == OP_NOT && a->src[0] == b) || (b->op == OP_NOT && b->src[0] == a);
}

/* Adds a clause to a set in which no clause implies another one. */
static void add_clause(struct clauses *s, struct uop *u)
{
    struct bound b, other;
    bool bounded = clause_bound(u, &b);
    if (uop_is_int(u, 1))
        return;
    s->never |= uop_is_int(u, 0);
    for (int i = 0; i < s->n; i++) {
        if (s->c[i] == u)
            return;
        s->never |= contradicts(s->c[i], u);
        if (!bounded || !clause_bound(s->c[i], &other) || other.a != b.a)
            continue;
        if (other.lo >= b.lo && other.hi <= b.hi)
            return;
        s->never |= other.lo > b.hi || b.lo > other.hi;
        if (b.lo >= other.lo && b.hi <= other.hi)
            drop_clause(s, i--);
    }
    if (s->n == MAX_CLAUSE)
        s->overfull = true;
    else
        s->c[s->n++] = u;
}

static void collect_clauses(struct clauses *s, struct uop *u)
{
    struct uop *part[MAX_CLAUSE + 1];
    int n = 0;
    for (; u->op == OP_AND && n <= MAX_CLAUSE; u = u->src[0])
        part[n++] = u->src[1];
    s->overfull |= u->op == OP_AND;
    add_clause(s, u);
    while (n)
        add_clause(s, part[--n]);
}

static struct uop *build_clauses(struct tgc *t, struct clauses *s)
{
    for (int i = 1; i < s->n; i++) {
        struct uop *x = s->c[i];
        int k = i;
        for (; k > 0 && s->c[k - 1]->id > x->id; k--)
            s->c[k] = s->c[k - 1];
        s->c[k] = x;
    }
    struct uop *u = s->n ? s->c[0] : uop_bool(t, true);
    for (int i = 1; i < s->n; i++)
        u = intern_normal(t, OP_AND, DTYPE_BOOL, u, s->c[i]);
    return u;
}

struct uop *fold_conjunction(struct tgc *t, struct uop *u, struct uop *x, struct uop *y)
{
    struct clauses s = {0};
    if (u->ndim)
        return NULL;
    collect_clauses(&s, x);
    collect_clauses(&s, y);
    if (s.never)
        return uop_bool(t, false);
    return s.overfull ? NULL : build_clauses(t, &s);
}

/* Whether a clause of b holds wherever the conjunction a does. */
static bool clause_follows(const struct uop *a, const struct uop *clause)
{
    struct bound want, have;
    bool bounded = clause_bound(clause, &want);
    for (; a; a = a->op == OP_AND ? a->src[0] : NULL) {
        const struct uop *c = a->op == OP_AND ? a->src[1] : a;
        if (c == clause || (bounded && clause_bound(c, &have) && have.a == want.a &&
                            have.lo >= want.lo && have.hi <= want.hi))
            return true;
    }
    return false;
}

bool rule_implies(const struct uop *a, const struct uop *b)
{
    for (; b->op == OP_AND; b = b->src[0])
        if (!clause_follows(a, b->src[1]))
            return false;
    return clause_follows(a, b);
}

/* ---- expressions under a condition */

static bool can_profit(struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++)
        switch (order[i]->op) {
        case OP_FLOORDIV: case OP_FLOORMOD: case OP_DIV: case OP_MOD: case OP_MIN: case OP_MAX:
        case OP_WHERE: case OP_LT:
        case OP_EQ: return true;
        default: break;
        }
    return false;
}

/* An atom of a, and its value if a is p. */
static bool solve_for_atom(struct tgc *t, struct uop *a, struct uop *p, struct uop **atom,
                           struct uop **value)
{
    struct sum s = {0}, rest = {0};
    sum_add(&s, a, 1);
    if (s.overfull || s.n == 0)
        return false;
    for (int i = s.n - 1; i >= 0; i--) {
        int64_t k = s.term[i].coef;
        if (s.term[i].base->op == OP_MUL || (k != 1 && k != -1))
            continue;
        *atom = s.term[i].base;
        sum_add(&rest, p, k);
        sum_add(&rest, a, -k);
        sum_term(&rest, *atom, 1);
        *value = sum_build(t, &rest);
        return true;
    }
    return false;
}

/* Whether a load's offset depends on the atom. The value is not used where the condition fails, but
 * the load is executed there, too: its offset must be in bounds without the condition. */
static bool moves_a_load(struct tgc *t, struct uop *const *order, int n, const struct uop *atom)
{
    struct uop **root = mem_array(t, 4 * (size_t)n + 1, sizeof *root);
    int nroot = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; order[i]->op == OP_LOAD && order[i] != atom && k < order[i]->nsrc && k < 4;
             k++)
            root[nroot++] = order[i]->src[k];
    if (nroot == 0)
        return false;
    order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++)
        if (order[i] == atom)
            return true;
    return false;
}

static struct uop *given_bound_on_scratch(struct tgc *t, const struct bound *b, struct uop *e)
{
    int n, m;
    struct uop *atom, *value, **order = uop_toposort(t, &e, 1, &n);
    int64_t lo = b->lo > b->a->vmin ? b->lo : b->a->vmin,
            hi = b->hi < b->a->vmax ? b->hi : b->a->vmax;
    if (lo > hi || !can_profit(order, n))
        return e;
    struct var *v = MEM_NEW(t, struct var);
    *v = (struct var){.name = "valid", .min = lo, .max = hi, .id = -1};
    struct uop *p = uop_var(t, v);
    if (!solve_for_atom(t, b->a, p, &atom, &value))
        return e;
    bool present = false;
    for (int i = 0; i < n; i++)
        present |= order[i] == atom;
    if (!present || moves_a_load(t, order, n, atom))
        return e;
    struct uop *r = uop_substitute(t, uop_substitute(t, e, atom, value), p, b->a);
    uop_toposort(t, &r, 1, &m);
    return m < n ? r : e;
}

static struct uop *given_bound(struct tgc *t, const struct bound *b, struct uop *e)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop *r = given_bound_on_scratch(t, b, e);
    scratch_release(t, mark);
    return r;
}

/* e, simplified under the condition u. */
static struct uop *given(struct tgc *t, struct uop *u, struct uop *e)
{
    struct clauses s = {0};
    if (e->nsrc == 0)
        return e;
    collect_clauses(&s, u);
    for (int i = 0; i < s.n && !s.overfull && !s.never; i++) {
        struct bound b, other;
        if (!clause_bound(s.c[i], &b))
            continue;
        bool first = true;
        for (int k = 0; k < s.n; k++)
            if (k != i && clause_bound(s.c[k], &other) && other.a == b.a) {
                first &= k > i;
                b.lo = other.lo > b.lo ? other.lo : b.lo;
                b.hi = other.hi < b.hi ? other.hi : b.hi;
            }
        if (first)
            e = given_bound(t, &b, e);
    }
    return e;
}

struct uop *fold_where_valid(struct tgc *t, struct uop *u, struct uop *c, struct uop *a,
                             struct uop *b)
{
    if (u->ndim)
        return NULL;
    struct uop *x = given(t, c, a), *y = c->op == OP_AND ? b : given(t, uop_not(t, c), b);
    return x == a && y == b ? NULL : uop_where(t, c, x, y);
}

struct uop *fold_load_valid(struct tgc *t, struct uop *u, struct uop *from, struct uop *offset,
                            struct uop *valid, struct uop *otherwise)
{
    struct uop *at = given(t, valid, offset);
    if (at == offset)
        return NULL;
    struct uop *src[4] = {from, at, valid, otherwise};
    return uop_new(t, OP_LOAD, u->dtype, src, 4, u->arg);
}
