/* test_bounds.c - what integer bounds prove: whether arithmetic of i8 overflows, and what a
 * machine's operators may write plainly (passes/target/legal.c), each against all values within
 * random bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "passes/rules/rules.h"
#include "passes/target/legal.h"

enum { SAMPLES = 4000, MOST = 12 };

struct bounds { int64_t lo, hi; };

struct values {
    struct tgc *t;
    uint64_t r;
};

static int64_t pick(struct values *v, int64_t lo, int64_t hi)
{
    v->r = v->r * 6364136223846793005u + 1442695040888963407u;
    return lo + (int64_t)((v->r >> 33) % (uint64_t)(hi - lo + 1));
}

/* A value of i8 or of an index with bounds near the middle or an end of what its dtype holds. */
static struct uop *operand(struct values *v, enum dtype d, struct bounds *b)
{
    int64_t most = d == DTYPE_I8 ? INT8_MAX : INT32_MAX, ends[] = {0, 0, most, -most - 1};
    int64_t middle = ends[pick(v, 0, 3)];
    b->lo = middle + pick(v, -MOST, MOST);
    b->hi = b->lo + pick(v, 1, MOST);
    b->lo = b->lo < -most - 1 ? -most - 1 : b->lo;
    b->hi = b->hi > most ? most : b->hi;
    if (b->lo >= b->hi)
        return operand(v, d, b);
    struct uop *r = uop_range(v->t, uop_int(v->t, b->hi - b->lo + 1), v->t->next_range++);
    struct uop *u = uop_binary(v->t, OP_ADD, r, uop_int(v->t, b->lo));
    return d == DTYPE_I8 ? uop_cast(v->t, d, u) : u;
}

/* In unlimited integers. false: there is no result. */
static bool result(enum op op, int64_t x, int64_t y, int64_t *z)
{
    switch (op) {
    case OP_ADD: *z = x + y; return true;
    case OP_SUB: *z = x - y; return true;
    case OP_MUL: *z = x * y; return true;
    case OP_NEG: *z = -x; return true;
    case OP_NOT: *z = -1 - x; return true;
    case OP_ABS: *z = x < 0 ? -x : x; return true;
    default:
        if (y)
            *z = x / y; /* as machines do: towards 0 */
        return y != 0;
    }
}

/* Bounds of all results; false: some operands have none. */
static bool all_results(enum op op, struct bounds a, struct bounds b, struct bounds *all)
{
    bool first = true;
    for (int64_t x = a.lo; x <= a.hi; x++)
        for (int64_t y = b.lo; y <= b.hi; y++) {
            int64_t z;
            if (!result(op, x, y, &z))
                return false;
            all->lo = first || z < all->lo ? z : all->lo;
            all->hi = first || z > all->hi ? z : all->hi;
            first = false;
        }
    return true;
}

static struct uop *build(struct values *v, enum op op, enum dtype d, struct bounds b[2])
{
    struct uop *x = operand(v, d, &b[0]), *y = operand(v, d, &b[1]);
    bool unary = op == OP_NEG || op == OP_NOT || op == OP_ABS;
    struct uop *u = unary ? uop_unary(v->t, op, x) : uop_binary(v->t, op, x, y);
    bool kept = u->op == op && u->src[0] == x && (unary || u->src[1] == y);
    return kept && x->vmin == b[0].lo && x->vmax == b[0].hi && y->vmin == b[1].lo &&
                   y->vmax == b[1].hi
               ? u
               : NULL;
}

static void check(const char *what, const struct uop *u, struct bounds b[2], bool found,
                  bool wanted)
{
    if (found != wanted)
        fail_msg("%s of %s of %s in [%lld, %lld] and [%lld, %lld]: %d, not %d", what,
                 op_name(u->op), dtype_name(u->dtype), (long long)b[0].lo, (long long)b[0].hi,
                 (long long)b[1].lo, (long long)b[1].hi, found, wanted);
}

static struct values *start(struct values *v)
{
    *v = (struct values){.t = tgc_new(0), .r = 1};
    return v;
}

static void test_exact(void **state)
{
    (void)state;
    struct values v;
    start(&v);
    static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_NEG};
    int yes = 0, no = 0;
    for (int i = 0; i < SAMPLES; i++) {
        struct bounds b[2], all = {0, 0};
        struct uop *u = build(&v, ops[i % 4], DTYPE_I8, b);
        if (!u || !all_results(u->op, b[0], b[1], &all))
            continue;
        bool wanted = all.lo >= INT8_MIN && all.hi <= INT8_MAX;
        check("rule_exact", u, b, rule_exact(u), wanted);
        yes += wanted;
        no += !wanted;
    }
    assert_true(yes > SAMPLES / 20 && no > SAMPLES / 20);
    tgc_free(v.t);
}

static void test_fits(void **state)
{
    (void)state;
    struct values v;
    start(&v);
    static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_NEG, OP_NOT, OP_ABS};
    int yes = 0, no = 0;
    for (int i = 0; i < SAMPLES; i++) {
        struct bounds b[2], all = {0, 0};
        struct uop *u = build(&v, ops[i % 6], DTYPE_I8, b);
        if (!u || !all_results(u->op, b[0], b[1], &all))
            continue;
        for (int k = -1; k <= 1; k++) {
            /* the absolute value's least is 0 at least, that is all that is known of it */
            int64_t lo = u->op == OP_ABS ? 0 : all.lo;
            check("legal_fits", u, b, legal_fits(u, lo + k, all.hi), k <= 0);
            check("legal_fits", u, b, legal_fits(u, lo, all.hi + k), k >= 0);
            yes += k <= 0;
            no += k > 0;
        }
    }
    assert_true(yes > SAMPLES && no > SAMPLES / 2);
    tgc_free(v.t);
}

static void test_plain(void **state)
{
    (void)state;
    struct values v;
    start(&v);
    static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV};
    int yes = 0, no = 0;
    for (int i = 0; i < SAMPLES; i++) {
        struct bounds b[2], all = {0, 0};
        struct uop *u = build(&v, ops[i % 4], DTYPE_INDEX, b);
        if (!u)
            continue;
        bool wanted = all_results(u->op, b[0], b[1], &all) && all.lo >= INT32_MIN &&
                      all.hi <= INT32_MAX;
        check("legal_is_plain", u, b, legal_is_plain(u, 32), wanted);
        yes += wanted;
        no += !wanted;
    }
    assert_true(yes > SAMPLES / 20 && no > SAMPLES / 20);
    tgc_free(v.t);
}

/* A cast is written plainly where the dtype holds all values: as an integer between its bounds, as
 * a float all integers of its 24 bits. */
static void test_plain_cast(void **state)
{
    (void)state;
    struct values v;
    start(&v);
    static const struct { enum dtype dtype; int64_t lo, hi; } to[] = {
        {DTYPE_I8, INT8_MIN, INT8_MAX},
        {DTYPE_U8, 0, UINT8_MAX},
        {DTYPE_I32, INT32_MIN, INT32_MAX},
        {DTYPE_F32, -(1 << 24), 1 << 24},
    };
    int yes = 0, no = 0;
    for (int i = 0; i < SAMPLES; i++) {
        int64_t lo = to[i % 4].lo, hi = to[i % 4].hi;
        struct bounds b = {pick(&v, 0, 1) ? lo + pick(&v, -2, 2) : hi - pick(&v, 4, MOST), 0};
        b.hi = b.lo + pick(&v, 1, MOST);
        struct uop *r = uop_range(v.t, uop_int(v.t, b.hi - b.lo + 1), v.t->next_range++);
        struct uop *x = uop_binary(v.t, OP_ADD, r, uop_int(v.t, b.lo));
        struct uop *u = uop_cast(v.t, to[i % 4].dtype, x);
        if (u->op != OP_CAST || u->src[0] != x || x->vmin != b.lo || x->vmax != b.hi)
            continue;
        bool wanted = b.lo >= lo && b.hi <= hi;
        check("legal_is_plain", u, (struct bounds[2]){b, b}, legal_is_plain(u, 32), wanted);
        yes += wanted;
        no += !wanted;
    }
    assert_true(yes > SAMPLES / 20 && no > SAMPLES / 20);
    tgc_free(v.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_plain_cast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
