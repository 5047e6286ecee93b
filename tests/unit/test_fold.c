/* test_fold.c - the fold engine as its users see it.
 *
 * - Index expressions: random trees over symbols and loop counters, built once with folding and
 * once without; both must have one value under random assignments, within the folded uop's bounds.
 * This is what covers the helpers of fold_index.c and fold_valid.c.
 * - Normal forms that lowering relies on, by name.
 * - Constants: every elementwise op on constants of every dtype against the interpreter. */
#include "passes/passes.h"
#include "ir/oracle.h"
#include "tests/unit/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- index expressions against brute force */

enum { TREES = 4000, ASSIGNMENTS = 24, NVAR = 4, NRANGE = 5 };

struct pair {
    struct uop *raw, *folded;
};

struct trees {
    struct tgc *t;
    struct random r;
    struct var *var[NVAR];
    struct pair leaf[NVAR + NRANGE + 2];
    int nleaf;
    int64_t value[NVAR], range[NRANGE];
};

static int64_t value(const struct trees *w, const struct uop *u)
{
    union scalar v[3], r;
    if (u->op == OP_CONST)
        return u->arg.i;
    if (u->op == OP_VAR)
        return w->value[((const struct var *)u->arg.p)->id];
    if (u->op == OP_RANGE)
        return w->range[u->arg.i];
    for (int i = 0; i < u->nsrc; i++)
        v[i].i = value(w, u->src[i]);
    assert_true(scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, v, &r));
    return r.i;
}

/* Whether the loops that u counts have an iteration at all. */
static bool runs(const struct trees *w, struct uop *u)
{
    int n;
    struct mem_mark mark = scratch_mark(w->t);
    struct uop **order = uop_toposort(w->t, &u, 1, &n);
    bool all = true;
    for (int i = 0; i < n; i++)
        all &= order[i]->op != OP_RANGE || w->range[order[i]->arg.i] >= 0;
    scratch_release(w->t, mark);
    return all;
}

static struct pair make(struct trees *w, enum op op, enum dtype d, const struct pair *x, int n)
{
    struct uop *raw[3], *folded[3];
    for (int i = 0; i < n; i++) {
        raw[i] = x[i].raw;
        folded[i] = x[i].folded;
    }
    return (struct pair){uop_intern(w->t, op, d, raw, n, (union arg){0}),
                         uop_new(w->t, op, d, folded, n, (union arg){0})};
}

static struct pair number(struct trees *w, int64_t lo, int64_t hi)
{
    struct uop *c = uop_int(w->t, between(&w->r, lo, hi));
    return (struct pair){c, c};
}

static struct pair tree(struct trees *w, int depth);

static struct pair condition(struct trees *w, int depth)
{
    static const enum op compare[] = {OP_LT, OP_LT, OP_LT, OP_EQ, OP_NE};
    struct pair x[2];
    uint32_t kind = depth <= 0 ? 0 : pick(&w->r, 5);
    if (kind < 3) {
        x[0] = tree(w, depth - 1);
        x[1] = pick(&w->r, 2) ? tree(w, depth - 1) : number(w, -10, 30);
        return make(w, compare[pick(&w->r, 5)], DTYPE_BOOL, x, 2);
    }
    x[0] = condition(w, depth - 1);
    if (kind == 3)
        return make(w, OP_NOT, DTYPE_BOOL, x, 1);
    x[1] = condition(w, depth - 1);
    return make(w, pick(&w->r, 3) ? OP_AND : OP_OR, DTYPE_BOOL, x, 2);
}

static struct pair tree(struct trees *w, int depth)
{
    static const enum op ops[] = {
        OP_ADD,      OP_ADD,      OP_ADD, OP_SUB, OP_MUL, OP_MUL,   OP_FLOORDIV, OP_FLOORDIV,
        OP_FLOORMOD, OP_FLOORMOD, OP_MIN, OP_MAX, OP_NEG, OP_WHERE, OP_DIV,      OP_MOD};
    if (depth <= 0 || pick(&w->r, 8) == 0)
        return pick(&w->r, 4) ? w->leaf[pick(&w->r, (uint32_t)w->nleaf)] : number(w, -3, 10);
    enum op op = ops[pick(&w->r, 16)];
    bool divides = op == OP_FLOORDIV || op == OP_FLOORMOD || op == OP_DIV || op == OP_MOD;
    struct pair x[3] = {tree(w, depth - 1)};
    if (op == OP_WHERE) {
        x[1] = x[0];
        x[0] = condition(w, depth - 2);
        x[2] = tree(w, depth - 1);
    } else if (op != OP_NEG) {
        x[1] = divides && pick(&w->r, 4) == 0 ? w->leaf[pick(&w->r, NVAR)]
               : (divides || op == OP_MUL) && pick(&w->r, 3)
                   ? number(w, pick(&w->r, 6) ? 0 : -6, 12)
                   : tree(w, depth - 1);
    }
    return make(w, op, DTYPE_INDEX, x, op_nsrc(op));
}

static void start_symbols(struct trees *w)
{
    struct tgc *t = w->t;
    for (int i = 0; i < NVAR; i++) {
        int64_t lo = i < 2 ? pick(&w->r, 2) : between(&w->r, -4, 4);
        w->var[i] = var_new(t, "n", lo, lo + pick(&w->r, 9));
        w->leaf[i].raw = w->leaf[i].folded = uop_var(t, w->var[i]);
    }
    for (int i = 0; i < NRANGE; i++) {
        struct uop *size =
            i < 2    ? w->leaf[i].raw
            : i == 2 ? sym_mul(t, w->leaf[0].raw, pick(&w->r, 2) ? uop_int(t, 2) : w->leaf[1].raw)
                     : uop_int(t, between(&w->r, 1, 9));
        w->leaf[NVAR + i].raw = w->leaf[NVAR + i].folded = uop_range(t, size, i);
    }
    w->nleaf = NVAR + NRANGE;
    /* what row-major views are made of: r*n + s with s < n */
    for (int i = 1; i < 5 && pick(&w->r, 2); i += 3) {
        struct uop *size = w->leaf[NVAR + i].raw->src[0];
        struct pair x[2] = {w->leaf[NVAR + 2], {size, size}};
        x[0] = make(w, OP_MUL, DTYPE_INDEX, x, 2);
        x[1] = w->leaf[NVAR + i];
        w->leaf[w->nleaf++] = make(w, OP_ADD, DTYPE_INDEX, x, 2);
    }
}

static void assign(struct trees *w, int k)
{
    for (int i = 0; i < NVAR; i++)
        w->value[i] = k == 0   ? w->var[i]->min
                      : k == 1 ? w->var[i]->max
                               : between(&w->r, w->var[i]->min, w->var[i]->max);
    for (int i = 0; i < NRANGE; i++) {
        int64_t n = value(w, w->leaf[NVAR + i].raw->src[0]);
        w->range[i] = n == 0 || k % 5 == 3 ? n - 1 : k % 5 == 4 ? 0 : between(&w->r, 0, n - 1);
    }
}

static void check_tree(struct trees *w)
{
    struct pair p = pick(&w->r, 4) ? tree(w, 3 + (int)pick(&w->r, 2)) : condition(w, 3);
    for (int k = 0; k < ASSIGNMENTS; k++) {
        assign(w, k);
        if (!runs(w, p.raw))
            continue;
        int64_t x = value(w, p.raw), y = value(w, p.folded);
        if (x == y && y >= p.folded->vmin && y <= p.folded->vmax)
            continue;
        struct text out = {.t = w->t};
        uop_print(&out, p.raw);
        text_puts(&out, "\nbecame\n");
        uop_print(&out, p.folded);
        fail_msg("%lld became %lld in [%lld, %lld]:\n%s", (long long)x, (long long)y,
                 (long long)p.folded->vmin, (long long)p.folded->vmax, out.s);
    }
}

static void check_trees(struct trees *w)
{
    struct tgc *t = w->t = tgc_new(0);
    assert_non_null(t);
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[t->ndiag - 1].message : "stopped");
    passes_init(t);
    start_symbols(w);
    for (int i = 0; i < 10; i++)
        check_tree(w);
    tgc_free(t);
}

static void index_expressions_keep_their_value(void **state)
{
    (void)state;
    const char *seed = getenv("SEED");
    struct trees w = {.r = {88172645463325252u ^ (seed ? strtoull(seed, NULL, 0) << 20 : 0)}};
    for (int i = 0; i < TREES; i += 10)
        check_trees(&w);
}

/* ---- normal forms */

struct forms {
    struct tgc *t;
    struct uop *N, *L, *H, *n, *l, *r[4];
    struct uop *row; /* ((r0*4 + r1)*5 + r2)*6 + r3 */
};

static void forms_start(struct forms *f, int64_t least)
{
    struct tgc *t = f->t;
    static const int64_t size[] = {3, 4, 5, 6};
    f->N = uop_var(t, var_new(t, "N", least, 64));
    f->L = uop_var(t, var_new(t, "L", least, 512));
    f->H = uop_var(t, var_new(t, "H", 3, 1000));
    f->n = uop_range(t, f->N, 10);
    f->l = uop_range(t, f->L, 11);
    f->row = uop_int(t, 0);
    for (int i = 0; i < 4; i++) {
        f->r[i] = uop_range(t, uop_int(t, size[i]), i);
        f->row = sym_add(t, sym_muli(t, f->row, size[i]), f->r[i]);
    }
}

static struct uop *div_(struct forms *f, struct uop *a, int64_t c)
{
    return sym_div(f->t, a, uop_int(f->t, c));
}
static struct uop *mod_(struct forms *f, struct uop *a, int64_t c)
{
    return sym_mod(f->t, a, uop_int(f->t, c));
}

static void views_of_constant_size(struct forms *f)
{
    struct tgc *t = f->t;
    /* reshape [3,4,5,6] -> [360] and back is the identity */
    assert_ptr_equal(mod_(f, f->row, 6), f->r[3]);
    assert_ptr_equal(mod_(f, div_(f, f->row, 6), 5), f->r[2]);
    assert_ptr_equal(mod_(f, div_(f, f->row, 30), 4), f->r[1]);
    assert_ptr_equal(div_(f, f->row, 120), f->r[0]);
    /* [12,5,6] -> [2,3,2 | ...]: what does not line up leaves one division of the least number of
     * terms */
    assert_ptr_equal(div_(f, f->row, 60), sym_add(t, sym_muli(t, f->r[0], 2), div_(f, f->r[1], 2)));
    assert_ptr_equal(sym_add(t, sym_muli(t, div_(f, f->row, 60), 60), mod_(f, f->row, 60)), f->row);
    assert_ptr_equal(div_(f, div_(f, f->l, 3), 4), div_(f, f->l, 12));
    assert_ptr_equal(mod_(f, mod_(f, f->l, 12), 4), mod_(f, f->l, 4));
    assert_ptr_equal(sym_lt(t, f->row, uop_int(t, 360)), uop_bool(t, true));
    assert_ptr_equal(sym_lt(t, f->row, uop_int(t, 120)), sym_lt(t, f->r[0], uop_int(t, 1)));
}

static void views_of_symbolic_size(struct forms *f)
{
    struct tgc *t = f->t;
    struct uop *flat = sym_add(t, sym_mul(t, f->n, f->L), f->l), *size = sym_mul(t, f->N, f->L);
    assert_ptr_equal(sym_div(t, flat, f->L), f->n);
    assert_ptr_equal(sym_mod(t, flat, f->L), f->l);
    assert_ptr_equal(sym_lt(t, flat, size), uop_bool(t, true));
    assert_ptr_equal(sym_div(t, flat, size), uop_int(t, 0));
    struct uop *heads = sym_add(t, sym_muli(t, flat, 6), f->r[3]);
    assert_ptr_equal(sym_mod(t, div_(f, heads, 6), f->L), f->l);
    assert_ptr_equal(sym_div(t, heads, sym_muli(t, f->L, 6)), f->n);
    /* flip twice */
    struct uop *last = sym_addi(t, f->L, -1), *back = sym_sub(t, last, f->l);
    assert_ptr_equal(sym_sub(t, last, back), f->l);
    assert_ptr_equal(sym_lt(t, back, f->L), uop_bool(t, true));
    assert_ptr_equal(sym_lt(t, back, uop_int(t, 0)), uop_bool(t, false));
}

/* Where sizes may be 0, too: their loops' counters have a value only where they are not. */
static void views_of_what_may_be_empty(struct forms *f)
{
    struct tgc *t = f->t;
    struct uop *size = sym_mul(t, f->N, f->L), *both = uop_range(t, sym_muli(t, size, 2), 12);
    struct uop *less = sym_addi(t, f->L, -1), *few = uop_range(t, less, 13);
    views_of_symbolic_size(f);
    assert_ptr_equal(sym_div(t, sym_add(t, sym_mul(t, both, f->L), f->l), f->L), both);
    assert_ptr_equal(sym_add(t, sym_mul(t, sym_div(t, both, f->L), f->L), sym_mod(t, both, f->L)),
                     both);
    assert_ptr_equal(sym_div(t, sym_add(t, sym_mul(t, f->n, less), few), less), f->n);
    /* no counter says that it is not */
    assert_ptr_not_equal(sym_div(t, size, f->L), f->N);
    assert_ptr_not_equal(sym_div(t, f->L, f->L), uop_int(t, 1));
    assert_ptr_not_equal(sym_div(t, sym_mul(t, f->n, f->L), f->L), f->n);
    assert_ptr_not_equal(
        sym_add(t, sym_mul(t, sym_div(t, f->N, f->L), f->L), sym_mod(t, f->N, f->L)), f->N);
    /* L + 1 iterations, or L and -N: the size says nothing of its parts */
    struct uop *more = uop_range(t, sym_addi(t, f->L, 1), 14),
               *z = uop_var(t, var_new(t, "z", -3, 3));
    struct uop *product = uop_range(t, sym_mul(t, f->L, z), 15);
    assert_ptr_not_equal(sym_div(t, sym_add(t, sym_mul(t, more, f->L), f->L), f->L),
                         sym_addi(t, more, 1));
    assert_ptr_not_equal(sym_div(t, sym_add(t, sym_mul(t, product, z), z), z),
                         sym_addi(t, product, 1));
}

static void shapes(struct forms *f)
{
    struct tgc *t = f->t;
    assert_ptr_equal(div_(f, sym_muli(t, sym_muli(t, f->N, 12), 64), 768), f->N);
    assert_ptr_equal(sym_div(t, sym_mul(t, f->N, f->L), f->L), f->N);
    assert_ptr_equal(
        sym_div(t, sym_mul(t, sym_muli(t, f->N, 12), f->L), sym_mul(t, f->L, uop_int(t, 4))),
        sym_muli(t, f->N, 3));
    assert_ptr_equal(sym_mul(t, f->N, sym_addi(t, f->L, 2)),
                     sym_add(t, sym_muli(t, f->N, 2), sym_mul(t, f->L, f->N)));
    assert_ptr_equal(sym_div(t, sym_mul(t, f->N, sym_addi(t, f->L, 2)), sym_addi(t, f->L, 2)),
                     f->N);
    assert_ptr_equal(sym_addi(t, div_(f, sym_addi(t, f->H, 2 - 3), 2), 1),
                     div_(f, sym_addi(t, f->H, 1), 2));
    assert_ptr_equal(sym_ceildiv(t, sym_muli(t, f->N, 4), 4), f->N);
    assert_true(sym_equal(t, sym_add(t, f->N, f->L), sym_add(t, f->L, f->N)));
    assert_false(sym_equal(t, f->N, f->L));
    assert_ptr_equal(sym_max(t, sym_max(t, f->N, uop_int(t, 3)), uop_int(t, 5)),
                     sym_max(t, f->N, uop_int(t, 5)));
    assert_ptr_equal(sym_max(t, f->H, uop_int(t, 3)), f->H);
    assert_ptr_equal(sym_min(t, f->n, f->N), f->n);
}

static void conditions(struct forms *f)
{
    struct tgc *t = f->t;
    struct uop *a = sym_lt(t, f->l, uop_int(t, 5)), *b = sym_lt(t, f->l, uop_int(t, 9)),
               *c = uop_not(t, sym_lt(t, f->l, uop_int(t, 2))),
               *d = uop_not(t, sym_lt(t, f->l, uop_int(t, 4))),
               *e = uop_not(t, sym_lt(t, f->l, uop_int(t, 3)));
    assert_ptr_equal(sym_and(t, a, b), a);
    assert_ptr_equal(sym_and(t, c, d), d);
    assert_ptr_equal(sym_and(t, d, e), d);
    assert_ptr_equal(sym_and(t, a, uop_not(t, b)), uop_bool(t, false));
    assert_ptr_equal(sym_and(t, sym_and(t, b, c), sym_and(t, c, a)), sym_and(t, a, c));
    assert_ptr_equal(sym_lt(t, uop_int(t, 1), f->l), c);
    assert_ptr_equal(sym_lt(t, sym_muli(t, f->l, 4), uop_int(t, 17)), a);
    assert_ptr_equal(sym_lt(t, div_(f, f->l, 3), uop_int(t, 3)), b);
    /* under a condition, bounds are tighter: min(l, 5) where l < 5 */
    struct uop *clamped = sym_min(t, f->l, uop_int(t, 5));
    assert_ptr_equal(uop_where(t, a, clamped, uop_int(t, 0)), uop_where(t, a, f->l, uop_int(t, 0)));
    struct uop *padded = sym_addi(t, sym_add(t, sym_muli(t, f->r[3], 2), f->r[0]), -1);
    struct uop *valid =
        sym_and(t, uop_not(t, sym_lt(t, padded, uop_int(t, 0))), sym_lt(t, padded, uop_int(t, 8)));
    struct uop *inside = sym_add(t, div_(f, padded, 8), mod_(f, padded, 8));
    assert_ptr_equal(uop_where(t, valid, inside, uop_int(t, 0)),
                     uop_where(t, valid, padded, uop_int(t, 0)));
}

static void check_forms(void (*check)(struct forms *), int64_t least)
{
    struct forms f = {.t = tgc_new(0)};
    assert_non_null(f.t);
    if (setjmp(f.t->stop))
        fail_msg("%s", f.t->ndiag ? f.t->diag[f.t->ndiag - 1].message : "stopped");
    passes_init(f.t);
    f.t->noopt = true; /* index rules are there at every level */
    forms_start(&f, least);
    check(&f);
    tgc_free(f.t);
}

static void normal_forms(void **state)
{
    (void)state;
    check_forms(views_of_constant_size, 1);
    check_forms(views_of_symbolic_size, 1);
    check_forms(views_of_what_may_be_empty, 0);
    check_forms(shapes, 1);
    check_forms(conditions, 1);
}

/* ---- constants against the interpreter */

static struct tensor *scalar_tensor(struct tgc *t, enum dtype d, union scalar v)
{
    struct tensor *x = MEM_NEW(t, struct tensor);
    union scalar *data = MEM_NEW(t, union scalar);
    *data = v;
    *x = (struct tensor){.dtype = d, .nelem = 1, .data = data};
    return x;
}

static union scalar random_scalar(struct random *r, enum dtype d)
{
    static const double specials[] = {0.0, -0.0, 1,   -1,   INFINITY, -INFINITY,
                                      NAN, 0.5,  2.5, 1e30, -3e-20,   7};
    if (dtype_is_float(d))
        return scalar_cast(d, DTYPE_F64,
                           (union scalar){.f = pick(r, 2) ? specials[pick(r, 12)]
                                                          : (double)between(r, -4000, 4000) / 512});
    int64_t i = pick(r, 3) ? between(r, -9, 70)
                           : (int64_t)((uint64_t)pick(r, 1u << 30) << 34 ^ pick(r, 1u << 30));
    return scalar_cast(d, DTYPE_I64, (union scalar){.i = d == DTYPE_BOOL ? i & 1 : i});
}

/* One op on constants: folded, and interpreted on buffers that hold them. true: it folded. */
static bool check_constant(struct tgc *t, struct random *r, enum op op, enum dtype d, enum dtype to)
{
    struct uop *c[3], *leaf[3];
    const struct uop *buffers[3];
    struct tensor *tensors[3], *result;
    int n = op_nsrc(op);
    for (int i = 0; i < n; i++) {
        enum dtype di = op == OP_WHERE && i == 0 ? DTYPE_BOOL : d;
        union scalar v = random_scalar(r, di);
        c[i] = uop_const(t, di, v);
        leaf[i] = uop_buffer(t, buffer_new(t, BUFFER_INPUT, di, NULL, 0, "x"));
        buffers[i] = leaf[i];
        tensors[i] = scalar_tensor(t, di, v);
    }
    struct uop *folded = uop_new(t, op, to, c, n, (union arg){0}),
               *u = uop_intern(t, op, to, leaf, n, (union arg){0});
    struct eval_env env = {.leaf = buffers, .value = tensors, .n = n, .budget = -1};
    if (folded->op != OP_CONST || !eval_graph(t, &u, 1, &env, &result))
        return false;
    union scalar want = *(union scalar *)result->data, got = {.i = folded->arg.i};
    if (dtype_is_float(to)) {
        want = scalar_cast(to, DTYPE_F64, want);
        if ((want.f != want.f && got.f != got.f) || want.i == got.i)
            return true;
    }
    if (want.i != got.i)
        fail_msg("%s of %s to %s: folded to %.17g (%lld), interpreted to %.17g (%lld); first "
                 "operand %.17g (%lld), last %.17g (%lld)",
                 op_name(op), dtype_name(d), dtype_name(to), got.f, (long long)got.i, want.f,
                 (long long)want.i, c[0]->arg.f, (long long)c[0]->arg.i, c[n - 1]->arg.f,
                 (long long)c[n - 1]->arg.i);
    return true;
}

static int check_constants(struct random *r, enum op op)
{
    struct tgc *t = tgc_new(0);
    volatile int folded = 0;
    assert_non_null(t);
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[t->ndiag - 1].message : "stopped");
    passes_init(t);
    for (int d = DTYPE_BOOL; d <= DTYPE_F64; d++)
        for (int k = 0; k < 40; k++) {
            enum dtype to = (enum dtype)d;
            if (op == OP_LT || op == OP_EQ || op == OP_NE || op == OP_ISNAN)
                to = DTYPE_BOOL;
            else if (op == OP_CAST)
                to = (enum dtype)(DTYPE_BOOL + (int)pick(r, DTYPE_F64 - DTYPE_BOOL + 1));
            folded += check_constant(t, r, op, (enum dtype)d, to);
        }
    tgc_free(t);
    return folded;
}

static void constants_fold_as_interpreted(void **state)
{
    (void)state;
    struct random r = {77777};
    int silent = 0;
    for (int op = 0; op < OP_COUNT; op++) {
        if (!op_is_elementwise((enum op)op) || op == OP_MULACC || op == OP_BITCAST)
            continue;
        if (!check_constants(&r, (enum op)op)) {
            print_error("%s of constants never folds\n", op_name((enum op)op));
            silent++;
        }
    }
    assert_int_equal(silent, 0);
}

/* r - 1 becomes r where r becomes r + 1: that r stays. */
static void substitutes_once(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    passes_init(t);
    struct uop *r = uop_range(t, uop_int(t, 10), 0), *zero = uop_int(t, 0);
    for (int64_t c = -3; c <= 3; c++) {
        struct uop *at = sym_addi(t, r, c), *next = sym_addi(t, r, c + 1), *by = sym_addi(t, r, 1);
        assert_ptr_equal(uop_substitute(t, at, r, by), next);
        assert_ptr_equal(uop_substitute(t, sym_max(t, at, zero), r, by), sym_max(t, next, zero));
    }
    tgc_free(t);
}

/* Two ranges that become each other are swapped, which one after the other would make them one;
 * what stands under a uop that has an entry of its own stays. */
static void substitutes_at_once(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    passes_init(t);
    struct uop *a = uop_range(t, uop_int(t, 10), 0), *b = uop_range(t, uop_int(t, 10), 1);
    struct uop *at = sym_add(t, sym_muli(t, a, 10), b), *half = sym_div(t, a, uop_int(t, 2));
    struct uop_map by = {.t = t};
    map_set(&by, a, b);
    map_set(&by, b, a);
    map_set(&by, half, a);
    assert_ptr_equal(uop_substitute_all(t, at, &by), sym_add(t, sym_muli(t, b, 10), a));
    assert_ptr_equal(uop_substitute_all(t, sym_add(t, half, b), &by), sym_muli(t, a, 2));
    assert_ptr_equal(uop_substitute_all(t, uop_int(t, 3), &by), uop_int(t, 3));
    tgc_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_expressions_keep_their_value),
        cmocka_unit_test(normal_forms),
        cmocka_unit_test(constants_fold_as_interpreted),
        cmocka_unit_test(substitutes_once),
        cmocka_unit_test(substitutes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
