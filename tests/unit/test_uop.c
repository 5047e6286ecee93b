/* test_uop.c - bounds of integer uops.
 *
 * vmin and vmax must hold for every value that the machine computes, overflow included, since rules
 * and emitted code rely on them. Random expressions of every integer dtype over constants, symbols
 * with bounds at the edges and unknown values are evaluated; each node's value must lie in the
 * node's bounds. Then: index arithmetic on ordinary dimensions keeps exact bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ir/ir.h"

enum { NODES = 24, TRIALS = 6000 };

struct machine {
    struct tgc *t;
    uint64_t seed;
    struct uop *node[NODES];
    int64_t value[NODES];
    int n;
};

static uint64_t draw(struct machine *m)
{
    m->seed ^= m->seed << 13;
    m->seed ^= m->seed >> 7;
    return m->seed ^= m->seed << 17;
}

static int pick(struct machine *m, int n) { return (int)(draw(m) % (uint64_t)n); }

/* Near an edge of some width, small, or anything. */
static int64_t edge(struct machine *m)
{
    static const int64_t at[] = {0,         INT64_MIN,  INT64_MAX,  INT32_MIN, INT32_MAX,
                                 UINT32_MAX, 3037000500, -3037000500};
    int kind = pick(m, 3);
    if (kind == 0)
        return (int64_t)draw(m) >> pick(m, 64);
    if (kind == 1)
        return pick(m, 9) - 4;
    return (int64_t)((uint64_t)at[pick(m, 8)] + (uint64_t)pick(m, 5) - 2);
}

static void add(struct machine *m, struct uop *u, int64_t value)
{
    m->node[m->n] = u;
    m->value[m->n++] = value;
}

static void add_leaf(struct machine *m)
{
    static const enum dtype dtypes[] = {DTYPE_I64, DTYPE_I32, DTYPE_U32, DTYPE_I8,
                                        DTYPE_U8,  DTYPE_U64, DTYPE_BOOL};
    int64_t a = edge(m), b = edge(m), lo = a < b ? a : b, hi = a < b ? b : a;
    enum dtype d = dtypes[pick(m, 7)];
    union scalar v = scalar_cast(d, DTYPE_I64, (union scalar){.i = a});
    switch (pick(m, 3)) {
    case 0: add(m, uop_const(m->t, d, v), v.i); return;
    case 1: add(m, uop_var(m->t, var_new(m->t, "v", lo, hi)), pick(m, 2) ? lo : hi); return;
    default:
        add(m, uop_buffer(m->t, buffer_new(m->t, BUFFER_INPUT, d, NULL, 0, "x")), v.i);
        return;
    }
}

static void add_op(struct machine *m)
{
    static const enum op ops[] = {OP_ADD,      OP_SUB, OP_MUL,  OP_DIV,  OP_MOD,  OP_FLOORDIV,
                                  OP_FLOORMOD, OP_MAX, OP_MIN,  OP_AND,  OP_OR,   OP_XOR,
                                  OP_LT,       OP_EQ,  OP_NE,   OP_NEG,  OP_ABS,  OP_NOT,
                                  OP_SHL,      OP_SHR, OP_CAST, OP_CAST, OP_WHERE};
    static const enum dtype dtypes[] = {DTYPE_I64, DTYPE_I32, DTYPE_U32, DTYPE_U8, DTYPE_I64};
    enum op op = ops[pick(m, 23)];
    int i = pick(m, m->n), k = pick(m, m->n), c = pick(m, m->n);
    struct uop *a = m->node[i], *b = m->node[k], *u;
    union scalar v[3] = {{m->value[i]}, {m->value[k]}, {0}}, r;
    if (op == OP_CAST) {
        u = uop_cast(m->t, dtypes[pick(m, 5)], a);
    } else if (op == OP_WHERE) {
        if (m->node[c]->dtype != DTYPE_BOOL || a->dtype != b->dtype)
            return;
        u = uop_where(m->t, m->node[c], a, b);
        v[2] = v[1];
        v[1] = v[0];
        v[0].i = m->value[c];
    } else if (op == OP_NEG || op == OP_ABS || op == OP_NOT) {
        u = uop_unary(m->t, op, a);
    } else {
        if (a->dtype != b->dtype)
            return;
        u = uop_binary(m->t, op, a, b);
    }
    if (u != a && scalar_apply(op, u->dtype, a->dtype, v, &r))
        add(m, u, r.i);
}

static void check(struct machine *m, int trial)
{
    for (int i = 0; i < m->n; i++) {
        const struct uop *u = m->node[i];
        if (m->value[i] >= u->vmin && m->value[i] <= u->vmax)
            continue;
        struct text text = {.t = m->t};
        uop_print(&text, u);
        fail_msg("trial %d: %s %s is %lld, beyond %lld..%lld", trial, dtype_name(u->dtype), text.s,
                 (long long)m->value[i], (long long)u->vmin, (long long)u->vmax);
    }
}

static void test_bounds_hold(void **state)
{
    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct machine m = {.t = tgc_new(0), .seed = 0x9E3779B97F4A7C15u * (uint64_t)(trial + 1)};
        while (m.n < 8)
            add_leaf(&m);
        for (int step = 0; step < 2 * NODES && m.n < NODES; step++)
            add_op(&m);
        check(&m, trial);
        tgc_free(m.t);
    }
}

static void test_square_of_u32(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct uop *x = uop_buffer(t, buffer_new(t, BUFFER_INPUT, DTYPE_U32, NULL, 0, "x"));
    struct uop *wide = uop_cast(t, DTYPE_I64, x), *square = sym_mul(t, wide, wide);
    assert_int_equal(wide->vmin, 0);
    assert_int_equal(wide->vmax, UINT32_MAX);
    assert_int_equal(square->vmin, INT64_MIN);
    assert_int_equal(square->vmax, INT64_MAX);
    tgc_free(t);
}

static void assert_bounds(const struct uop *u, int64_t lo, int64_t hi)
{
    assert_int_equal(u->vmin, lo);
    assert_int_equal(u->vmax, hi);
}

static void test_dimensions_stay_exact(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct uop *n = uop_var(t, var_new(t, "n", 1, 1 << 20)), *c = uop_int(t, 4096);
    struct uop *r = uop_range(t, n, t->next_range++), *s = uop_range(t, c, t->next_range++);
    assert_bounds(sym_mul(t, n, c), 4096, INT64_C(1) << 32);
    assert_bounds(sym_add(t, sym_mul(t, r, c), s), 0, (INT64_C(1) << 32) - 1);
    assert_bounds(sym_sub(t, sym_sub(t, n, uop_int(t, 1)), r), -((1 << 20) - 1), (1 << 20) - 1);
    assert_bounds(sym_mul(t, r, uop_int(t, -3)), -3 * ((1 << 20) - 1), 0);
    assert_bounds(uop_unary(t, OP_NEG, n), -(1 << 20), -1);
    assert_bounds(sym_div(t, sym_add(t, r, uop_int(t, 1)), uop_int(t, 2)), 0, 1 << 19);
    assert_bounds(sym_mod(t, r, uop_int(t, 7)), 0, 6);
    tgc_free(t);
}

static struct buffer *weight(struct tgc *t, enum dtype d, const void *data, int64_t n)
{
    struct uop *dim = uop_int(t, n);
    struct buffer *b = buffer_new(t, BUFFER_WEIGHT, d, &dim, 1, "w");
    b->weight.data = data;
    b->nbytes = dtype_nbytes(d) * (size_t)n;
    return b;
}

static void test_weights_bounds(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    static const int8_t bytes[4] = {3, -128, 127, 0};
    static const float whole[3] = {-2, 0, 7}, parts[2] = {0.5f, -1.5f};
    const float wrong[2] = {1, (float)__builtin_inf()};
    struct element_bounds e;
    assert_true(buffer_bounds(weight(t, DTYPE_I8, bytes, 4), 4, &e));
    assert_true(e.lo.i == -128 && e.hi.i == 127 && e.whole);
    assert_bounds(uop_buffer(t, weight(t, DTYPE_I8, bytes, 3)), -128, 127);
    assert_false(buffer_bounds(weight(t, DTYPE_I8, bytes, 4), 3, &e));          /* too many */
    assert_true(buffer_bounds(weight(t, DTYPE_F32, whole, 3), 3, &e));
    assert_true(e.lo.f == -2 && e.hi.f == 7 && e.whole);
    assert_true(buffer_bounds(weight(t, DTYPE_F32, parts, 2), 3, &e));
    assert_true(e.lo.f == -1.5 && e.hi.f == 0.5 && !e.whole);
    assert_false(buffer_bounds(weight(t, DTYPE_F32, wrong, 2), 3, &e));
    assert_false(buffer_bounds(weight(t, DTYPE_F32, whole, 0), 3, &e));
    tgc_free(t);
}

/* The rows of ops.def: fields of a layout are apart, and hold what they may. */
static void test_fields(void **state)
{
    (void)state;
    uint64_t taken = 0;
    int n = 0;
    for (int i = 0; i < ARG_COUNT; i++) {
        const struct arg_field *f = arg_field((enum argkind)i);
        taken = f->text ? taken : 0;
        if (!f->text)
            continue;
        uint64_t mask = (UINT64_MAX >> (64 - f->bits)) << f->at;
        const int64_t value[] = {f->least, f->most};
        assert_true(f->at + f->bits <= 64 && (taken & mask) == 0);
        taken |= mask;
        n++;
        for (int k = 0; k < 2; k++) {
            int64_t zeros = arg_with(0, (enum argkind)i, value[k]),
                    ones = arg_with(-1, (enum argkind)i, value[k]);
            assert_true(arg_get(zeros, (enum argkind)i) == value[k]);
            assert_true(arg_get(ones, (enum argkind)i) == value[k]);
            assert_true(((uint64_t)zeros & ~mask) == 0 && ((uint64_t)ones | mask) == UINT64_MAX);
        }
        assert_false(arg_fits((enum argkind)i, f->most + 1));
        assert_false(arg_fits((enum argkind)i, f->least - 1));
    }
    assert_true(n > 40);
    int64_t load = ARG_PACK(VECTOR, 16, 3, -5, true);
    assert_true(VECTOR_LANES(load) == 16 && VECTOR_PART(load) == 3 && VECTOR_STRIDE(load) == -5);
    assert_true(VECTOR_IS_GROUPS(load) && !VECTOR_IS_ALIGNED(load) && !VECTOR_IS_IMAGE(load));
    assert_true(op_layout(OP_LOAD, load) == ARG_VECTOR && op_layout(OP_STORE, 0) == ARG_NONE);
    int64_t tile = ARG_PACK(TILE, 8, 16, 1 << 20, true);
    assert_true(TILE_ROWS(tile) == 8 && TILE_COLUMNS(tile) == 16 && TILE_STRIDE(tile) == 1 << 20);
    assert_true(TILE_IS_BY_ROWS(tile) && op_layout(OP_LOAD, tile) == ARG_TILE);
    assert_true(arg_is_valid(OP_LOAD, tile) && !arg_is_valid(OP_LOAD, ARG_PACK(TILE, 0, 16, 1)));
    assert_true(REDUCE_MATRIX(ARG_PACK(REDUCE, OP_ADD, 6)) == 0);
    assert_true(REDUCE_MATRIX(ARG_PACK(REDUCE, OP_ADD, 0, 4)) == 5);
    assert_false(arg_is_valid(OP_SHUFFLE, ARG_PACK(SHUFFLE, OP_ADD, 6)));
    assert_false(arg_is_valid(OP_ROLE, ARG_PACK(ROLE, ROLE_COUNT, 128)));
    assert_false(arg_is_valid(OP_WAIT, ARG_PACK(WAIT, 1, 1) | (int64_t)1 << 50));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds_hold),
                                       cmocka_unit_test(test_fields),
                                       cmocka_unit_test(test_weights_bounds),
                                       cmocka_unit_test(test_square_of_u32),
                                       cmocka_unit_test(test_dimensions_stay_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
