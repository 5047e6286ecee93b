/* test_access.c - strides and dependences that are read off expressions, against what they mean.
 *
 * Random expressions of every kind that offsets are made of. A stride is what an expression's value
 * grows by, at random values of everything else; where there is none, r + 1 in the place of r gives
 * nothing constant either. A uop depends on what a walk over all that it is made of meets. */
#include "passes/analysis/access.h"
#include "passes/passes.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { COMPILES = 60, TREES = 200, SAMPLES = 12, NVAR = 2, NRANGE = 6, NLEAF = NVAR + NRANGE };

struct trees {
    struct tgc *t;
    struct random r;
    struct uop *leaf[NLEAF], *buffer, *table;
    int64_t value[NVAR], range[NRANGE];
    int constant, none;               /* strides other than 0; expressions without one */
};

/* ---- what an expression is worth; memory holds a hash of the place */

static int64_t value(const struct trees *w, const struct uop *u)
{
    union scalar v[3], r;
    if (u->op == OP_CONST)
        return u->arg.i;
    if (u->op == OP_VAR)
        return w->value[((const struct var *)u->arg.p)->id];
    if (u->op == OP_RANGE)
        return w->range[u->arg.i];
    if (u->op == OP_LOAD)
        return value(w, u->src[1]) * 37 % 101;
    for (int i = 0; i < u->nsrc; i++)
        v[i].i = value(w, u->src[i]);
    assert_true(scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, v, &r));
    return r.i;
}

/* ---- random expressions */

static struct uop *tree(struct trees *w, int depth);

static struct uop *linear(struct trees *w, int depth)
{
    struct uop *u = uop_int(w->t, between(&w->r, -9, 9));
    for (int i = 0; i < 4; i++) {
        struct uop *x = pick(&w->r, 4) ? w->leaf[pick(&w->r, NLEAF)] : tree(w, depth - 1);
        u = sym_add(w->t, u, sym_muli(w->t, x, between(&w->r, -4, 64)));
    }
    return u;
}

static struct uop *load(struct trees *w, int depth)
{
    struct uop *src[4] = {w->table, tree(w, depth - 1)};
    int n = 2;
    if (pick(&w->r, 3) == 0) {
        src[n++] = sym_lt(w->t, tree(w, depth - 1), uop_int(w->t, 7));
        src[n++] = uop_int(w->t, 0);
    }
    return uop_intern(w->t, OP_LOAD, DTYPE_INDEX, src, n, (union arg){0});
}

static struct uop *tree(struct trees *w, int depth)
{
    static const enum op ops[] = {OP_ADD, OP_ADD, OP_SUB, OP_MUL,      OP_MUL,      OP_NEG,
                                  OP_MIN, OP_MAX, OP_DIV, OP_FLOORDIV, OP_FLOORMOD, OP_WHERE};
    uint32_t kind = depth <= 0 ? 0 : pick(&w->r, 16);
    if (kind == 0)
        return pick(&w->r, 5) ? w->leaf[pick(&w->r, NLEAF)] : uop_int(w->t, between(&w->r, -3, 40));
    if (kind < 4)
        return linear(w, depth);
    if (kind == 4)
        return load(w, depth);
    enum op op = ops[pick(&w->r, 12)];
    struct uop *x = tree(w, depth - 1), *y = tree(w, depth - 1);
    if (op == OP_WHERE)
        return uop_where(w->t, sym_lt(w->t, x, tree(w, depth - 1)), x, y);
    if (op == OP_NEG)
        return uop_unary(w->t, op, x);
    if (op == OP_DIV || op == OP_FLOORDIV || op == OP_FLOORMOD)
        y = uop_int(w->t, between(&w->r, 1, 12));
    return uop_binary(w->t, op, x, y);
}

/* What is no index: values of loads, sums over a range, scratch that is computed before. */
static struct uop *scalar(struct trees *w)
{
    struct tgc *t = w->t;
    struct uop *src[3] = {w->buffer, tree(w, 3)};
    struct uop *u = uop_intern(t, OP_LOAD, DTYPE_F32, src, 2, (union arg){0});
    if (pick(&w->r, 2)) {
        src[1] = tree(w, 2);
        u = uop_binary(t, OP_MUL, u, uop_intern(t, OP_LOAD, DTYPE_F32, src, 2, (union arg){0}));
    }
    if (pick(&w->r, 2)) {
        src[0] = u;
        src[1] = w->leaf[NVAR + pick(&w->r, NRANGE)];
        u = uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, (union arg){.i = OP_ADD});
    }
    if (pick(&w->r, 2)) {
        src[0] = u;
        src[1] = src[2] = w->leaf[NVAR + pick(&w->r, NRANGE)];
        struct uop *stage = uop_intern(t, OP_STAGE, DTYPE_F32, src, 3, w->buffer->arg);
        src[0] = stage;
        src[1] = tree(w, 2);
        u = uop_intern(t, OP_LOAD, DTYPE_F32, src, 2, (union arg){0});
    }
    return u;
}

/* ---- the references */

static bool grows_by_constant(struct tgc *t, struct uop *u, struct uop *r, int64_t *by)
{
    struct uop *next = uop_substitute(t, u, r, sym_addi(t, r, 1));
    return uop_const_int(sym_sub(t, next, u), by);
}

static bool is_met(struct tgc *t, struct uop *u, const struct uop *r)
{
    struct mem_mark mark = scratch_mark(t);
    bool met = false;
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        met |= order[i] == r;
    scratch_release(t, mark);
    return met;
}

static void check_stride(struct trees *w, struct uop *u, int range)
{
    struct uop *r = w->leaf[NVAR + range];
    int64_t stride, by;
    size_t nuop = w->t->nuop;
    bool found = index_stride(w->t, u, r, &stride);
    assert_int_equal(w->t->nuop, nuop);
    if (!found) {
        assert_true(uop_depends_on(w->t, u, r));
        assert_false(grows_by_constant(w->t, u, r, &by));
        w->none++;
        return;
    }
    w->constant += stride != 0;
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < NVAR; k++)
            w->value[k] = between(&w->r, 1, 9);
        for (int k = 0; k < NRANGE; k++)
            w->range[k] = between(&w->r, 0, 40);
        int64_t here = value(w, u);
        w->range[range]++;
        assert_int_equal(value(w, u) - here, stride);
    }
}

static void start(struct trees *w)
{
    struct tgc *t = w->t;
    struct uop *size = uop_int(t, 999);
    for (int i = 0; i < NVAR; i++)
        w->leaf[i] = uop_var(t, var_new(t, "n", 1, 9));
    for (int i = 0; i < NRANGE; i++)
        w->leaf[NVAR + i] =
            uop_range(t, i == 0 ? w->leaf[0] : uop_int(t, between(&w->r, 2, 64)), i);
    w->buffer = uop_buffer(t, buffer_new(t, BUFFER_INPUT, DTYPE_F32, &size, 1, "x"));
    w->table = uop_buffer(t, buffer_new(t, BUFFER_INPUT, DTYPE_INDEX, &size, 1, "at"));
}

static void check_trees(struct trees *w)
{
    struct tgc *t = w->t = tgc_new(0);
    assert_non_null(t);
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[t->ndiag - 1].message : "stopped");
    passes_init(t);
    start(w);
    for (int i = 0; i < TREES; i++) {
        struct uop *u = tree(w, 4), *v = scalar(w);
        for (int k = 0; k < NRANGE; k++)
            check_stride(w, u, k);
        for (int k = 0; k < NLEAF; k++) {
            assert_int_equal(uop_depends_on(t, u, w->leaf[k]), is_met(t, u, w->leaf[k]));
            assert_int_equal(uop_depends_on(t, v, w->leaf[k]), is_met(t, v, w->leaf[k]));
        }
        /* also for what is no range */
        assert_int_equal(uop_depends_on(t, v, u), is_met(t, v, u));
        assert_int_equal(uop_depends_on(t, v, v->src[0]), true);
    }
    tgc_free(t);
}

static void test_random(void **state)
{
    (void)state;
    struct trees w = {.r = {88172645463325252u}};
    for (int i = 0; i < COMPILES; i++)
        check_trees(&w);
    assert_true(w.constant > 1000 && w.none > 1000);
}

/* ---- by name */

static void test_forms(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    assert_non_null(t);
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[t->ndiag - 1].message : "stopped");
    passes_init(t);
    struct uop *n = uop_var(t, var_new(t, "n", 1, 9));
    struct uop *r = uop_range(t, uop_int(t, 8), 0), *s = uop_range(t, n, 1);
    struct uop *inner = uop_range(t, sym_addi(t, r, 1), 2);
    int64_t k = -1;
    assert_true(index_stride(t, uop_int(t, 5), r, &k) && k == 0);
    assert_true(index_stride(t, r, r, &k) && k == 1);
    struct uop *u = sym_sub(t, sym_muli(t, s, 24), sym_muli(t, sym_addi(t, r, 2), 3));
    assert_true(index_stride(t, u, r, &k) && k == -3);
    assert_true(index_stride(t, u, s, &k) && k == 24);
    /* a whole part of a division, what a remainder and a quotient make together */
    u = sym_div(t, sym_add(t, sym_muli(t, r, 4), sym_mod(t, s, uop_int(t, 4))), uop_int(t, 4));
    assert_true(index_stride(t, u, r, &k) && k == 1);
    u = sym_add(t, sym_mod(t, r, uop_int(t, 3)), sym_muli(t, sym_div(t, r, uop_int(t, 3)), 3));
    assert_true(index_stride(t, u, r, &k) && k == 1);
    assert_false(index_stride(t, sym_div(t, r, uop_int(t, 3)), r, &k));
    assert_false(index_stride(t, sym_mul(t, r, n), r, &k));      /* n: no constant */
    assert_false(index_stride(t, sym_mul(t, r, s), s, &k));
    /* the size of a loop is what the loop depends on */
    assert_true(uop_depends_on(t, inner, r) && uop_depends_on(t, s, n));
    assert_false(uop_depends_on(t, r, inner));
    assert_false(index_stride(t, inner, r, &k));
    tgc_free(t);
}

/* What divides an offset in every iteration. */
static void test_divisors(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    assert_non_null(t);
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[t->ndiag - 1].message : "stopped");
    passes_init(t);
    struct uop *n = uop_var(t, var_new(t, "n", 1, 9));
    struct uop *r = uop_range(t, uop_int(t, 80), 0), *s = uop_range(t, n, 1);
    assert_int_equal(index_divisor(t, uop_int(t, 0)), 0);
    assert_int_equal(index_divisor(t, uop_int(t, -12)), 12);
    assert_int_equal(index_divisor(t, r), 1);
    assert_int_equal(
        index_divisor(t, sym_add(t, sym_muli(t, r, 8), sym_addi(t, sym_muli(t, s, 12), 16))), 4);
    assert_int_equal(index_divisor(t, sym_addi(t, sym_muli(t, r, 8), 2)), 2);
    assert_int_equal(index_divisor(t, sym_mul(t, sym_muli(t, r, 4), n)), 4);     /* n: any number */
    /* threads' parts of a loop: whole vectors of a row */
    assert_int_equal(index_divisor(t, sym_muli(t, sym_mod(t, r, uop_int(t, 5)), 4)), 4);
    assert_int_equal(index_divisor(t, sym_mod(t, sym_muli(t, r, 4), uop_int(t, 6))), 2);
    assert_int_equal(index_divisor(t, sym_div(t, sym_muli(t, r, 12), uop_int(t, 5))), 1);
    struct uop *data = uop_cast(t, DTYPE_I32, uop_var(t, var_new(t, "m", 0, 9)));
    assert_int_equal(index_divisor(t, uop_cast(t, DTYPE_INDEX, data)), 1);
    tgc_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_forms),
                                       cmocka_unit_test(test_divisors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
