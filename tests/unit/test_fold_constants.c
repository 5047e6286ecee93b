/* test_fold_constants.c - pass_fold_constants: what it folds, what it must leave alone, and that it
 * ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/graphs.h"

static int setup(void **state) { return graph_setup(state, 100, (int[]){200, 200}); }

/* A weight of a dtype of at most 4 bytes; element i is (i % period) - 2. */
static struct uop *weight(struct fixture *f, enum dtype d, int64_t rows, int64_t columns,
                          int64_t period)
{
    size_t size = dtype_nbytes(d), n = (size_t)(rows * columns);
    char *data = mem_array(f->t, n + 1, size);
    for (size_t i = 0; i < n; i++) {
        union scalar v = {.i = (int64_t)i % period - 2};
        if (dtype_is_float(d))
            v.f = (double)v.i;
        scalar_store(d, data + i * size, v);
    }
    return tensor_from_data(f->t, d, (int64_t[]){rows, columns}, 2, data, n * size, "w");
}

static struct uop *fold(struct fixture *f, struct uop *u)
{
    return graph_run(f, pass_fold_constants, "fold", u);
}

static const struct buffer *as_weight(const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u);
    return b && b->kind == BUFFER_WEIGHT ? b : NULL;
}

static struct uop *expf_of(struct fixture *f, struct uop *u) { return uop_unary(f->t, OP_EXP, u); }

static void test_folds_a_computed_weight(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, DTYPE_F32, 100, 200, 7),
               *u = fold(f, uop_binary(f->t, OP_ADD, f->input[0], expf_of(f, w)));
    assert_int_equal(u->op, OP_ADD);
    const struct buffer *b = as_weight(u->src[0]) ? as_weight(u->src[0]) : as_weight(u->src[1]);
    assert_non_null(b);
    assert_int_equal(b->nbytes, 80000);
    const float *v = b->weight.data;
    for (int i = 0; i < 20000; i++)
        assert_true(v[i] == (float)exp(i % 7 - 2));
}

static void test_leaves_movement_alone(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, DTYPE_F32, 200, 100, 7),
               *u = uop_binary(f->t, OP_ADD, f->input[0], uop_permute(f->t, w, (int[]){1, 0}));
    assert_ptr_equal(fold(f, u), u);
    u = uop_permute(f->t, w, (int[]){1, 0});
    assert_ptr_equal(fold(f, u), u);
}

/* Under movement, folding happens where it is small. */
static void test_folds_below_an_expand(void **state)
{
    struct fixture *f = *state;
    struct uop *row = weight(f, DTYPE_F32, 1, 200, 9),
               *e = uop_expand(f->t, expf_of(f, row), f->input[0]->dim),
               *u = fold(f, uop_binary(f->t, OP_MUL, f->input[0], e));
    struct uop *moved = u->src[0]->op == OP_EXPAND ? u->src[0] : u->src[1];
    assert_int_equal(moved->op, OP_EXPAND);
    assert_non_null(as_weight(moved->src[0]));
    assert_int_equal(as_weight(moved->src[0])->nbytes, 800);
}

static void test_does_not_grow(void **state)
{
    struct fixture *f = *state;
    struct uop *q = weight(f, DTYPE_I8, 100, 200, 11),
               *u = uop_binary(f->t, OP_ADD, f->input[0], uop_cast(f->t, DTYPE_F32, q));
    /* four times the bytes, and more than the cap */
    assert_ptr_equal(fold(f, u), u);
    struct uop *small = weight(f, DTYPE_I8, 1, 200, 11);
    u = uop_binary(f->t, OP_ADD, f->input[0],
                   uop_expand(f->t, uop_cast(f->t, DTYPE_F32, small), f->input[0]->dim));
    assert_ptr_not_equal(fold(f, u), u);                         /* small enough not to matter */
    struct uop *a = weight(f, DTYPE_F32, 100, 1, 7), *b = weight(f, DTYPE_F32, 1, 200, 7);
    u = uop_binary(f->t, OP_ADD, f->input[0], expf_of(f, tensor_binary(f->t, OP_MUL, a, b)));
    /* 800 and 400 bytes would become 80,000 */
    assert_ptr_equal(fold(f, u), u);
}

static void test_scalars_are_constants(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, DTYPE_F32, 100, 200, 7), *sum = tensor_sum(f->t, w, 3, false);
    struct uop *u = fold(f, tensor_binary(f->t, OP_MUL, f->input[0], sum));
    struct uop *c = u->src[0] == f->input[0] ? u->src[1] : u->src[0];
    assert_int_equal(c->op, OP_CONST);
    double want = 0;
    for (int i = 0; i < 20000; i++)
        want += i % 7 - 2;
    assert_true(c->arg.f == want);
    struct uop *ones = uop_binary(f->t, OP_ADD, w, uop_unary(f->t, OP_NEG, w));
    /* one value everywhere: no bytes at all */
    u = fold(f, uop_binary(f->t, OP_ADD, f->input[0], uop_unary(f->t, OP_COS, ones)));
    for (int k = 0; k < u->nsrc; k++)
        assert_null(as_weight(u->src[k]));
}

/* Work without end, from few bytes: refused within the budget, and quickly. */
static void test_bombs_end(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, DTYPE_F32, 100, 1, 7),
               *dim[2] = {uop_int(f->t, 100), uop_int(f->t, 1 << 30)};
    struct uop *big = uop_expand(f->t, w, dim), *u = f->input[0];
    for (int i = 0; i < 50; i++) {
        struct uop *c = uop_constf(f->t, DTYPE_F32, i + 0.5);
        struct uop *s = tensor_sum(f->t, expf_of(f, tensor_binary(f->t, OP_MUL, big, c)), 2, true);
        u = tensor_binary(f->t, OP_ADD, u, s);
    }
    struct uop *folded = fold(f, u);
    assert_int_equal(folded->op, OP_ADD);
    assert_null(as_weight(folded->src[0]));
    assert_null(as_weight(folded->src[1]));
}

/* Much work, but for a large weight: as weight standardization of all layers is. */
static void test_large_weights_are_worth_more(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, DTYPE_F32, 2000, 2000, 7), *u = w;
    for (int i = 0; i < 30; i++)                                 /* 240,000,000 operations */
        u = uop_unary(f->t, OP_FLOOR,
                      tensor_binary(f->t, OP_ADD, u, uop_constf(f->t, DTYPE_F32, 1.5)));
    struct uop *sum = tensor_sum(f->t, tensor_binary(f->t, OP_MUL, u, w), 1, false);
    sum = uop_shrink(f->t, sum, (struct uop *[]){uop_int(f->t, 0)},
                     (struct uop *[]){uop_int(f->t, 200)});
    sum = fold(f, tensor_binary(f->t, OP_ADD, f->input[0], sum));
    int n;
    struct uop **order = uop_toposort(f->t, &sum, 1, &n);
    for (int i = 0; i < n; i++)
        assert_true(order[i]->op != OP_FLOOR);
}

/* What a sum makes may be a bit larger than what it is made of. */
static void test_costly_weights_may_grow(void **state)
{
    struct fixture *f = *state;
    struct uop *one = uop_int(f->t, 1), *k = uop_int(f->t, 90), *p[2];
    p[0] = uop_reshape(f->t, weight(f, DTYPE_F32, 100, 90, 7),
                       (struct uop *[]){uop_int(f->t, 100), one, k}, 3);
    p[1] = uop_reshape(f->t, weight(f, DTYPE_F32, 200, 90, 9),
                       (struct uop *[]){one, uop_int(f->t, 200), k}, 3);
    struct uop *w = tensor_sum(f->t, tensor_binary(f->t, OP_MUL, p[0], p[1]), 4, false),
               *u = fold(f, tensor_binary(f->t, OP_ADD, f->input[0], w));
    int n;
    struct uop **order = uop_toposort(f->t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        assert_true(order[i]->op != OP_REDUCE);       /* 80,000 bytes of 72,000 */
}

/* 300,000,000 multiply-adds of two weights: positions by a projection, as attention by relative
 * positions has them in each layer. */
static void test_products_of_large_weights(void **state)
{
    enum { ROWS = 512, COLUMNS = 700, DEPTH = 840 };
    struct fixture *f = *state;
    struct uop *one = uop_int(f->t, 1), *k = uop_int(f->t, DEPTH), *p[2];
    p[0] = uop_reshape(f->t, weight(f, DTYPE_F32, ROWS, DEPTH, 11),
                       (struct uop *[]){uop_int(f->t, ROWS), one, k}, 3);
    p[1] = uop_reshape(f->t, weight(f, DTYPE_F32, COLUMNS, DEPTH, 13),
                       (struct uop *[]){one, uop_int(f->t, COLUMNS), k}, 3);
    struct uop *w = tensor_sum(f->t, tensor_binary(f->t, OP_MUL, p[0], p[1]), 4, false),
               *x = uop_shrink(f->t, w, (struct uop *[]){uop_int(f->t, 100), uop_int(f->t, 300)},
                               (struct uop *[]){uop_int(f->t, 100), uop_int(f->t, 200)}),
               *u = fold(f, uop_binary(f->t, OP_ADD, f->input[0], x));
    struct uop *part = u->src[0] == f->input[0] ? u->src[1] : u->src[0];
    while (op_class(part->op) == CLASS_MOVE)
        part = part->src[0];
    const struct buffer *b = as_weight(part);
    assert_non_null(b);
    assert_int_equal(b->nbytes, ROWS * COLUMNS * 4);
    const float *v = b->weight.data;
    for (int i = 0; i < ROWS; i += 7)
        for (int j = 0; j < COLUMNS; j++) {
            int want = 0;
            for (int d = 0; d < DEPTH; d++)
                want += ((i * DEPTH + d) % 11 - 2) * ((j * DEPTH + d) % 13 - 2);
            assert_true(v[i * COLUMNS + j] == (float)want);
        }
}

/* A value read by the constant part and by the rest is replaced for both. */
static void test_shared_between_both(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, DTYPE_F32, 100, 200, 7), *e = expf_of(f, w),
               *g = uop_unary(f->t, OP_SIN, e);
    struct uop *u = fold(f, uop_binary(f->t, OP_MUL, uop_binary(f->t, OP_ADD, f->input[0], e), g));
    int n, nweight = 0;
    struct uop **order = uop_toposort(f->t, &u, 1, &n);
    for (int i = 0; i < n; i++) {
        nweight += as_weight(order[i]) != NULL;
        assert_true(order[i]->op != OP_EXP && order[i]->op != OP_SIN);
    }
    assert_int_equal(nweight, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, graph_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_folds_a_computed_weight), TEST(test_leaves_movement_alone),
        TEST(test_folds_below_an_expand), TEST(test_does_not_grow),
        TEST(test_scalars_are_constants), TEST(test_bombs_end), TEST(test_shared_between_both),
        TEST(test_large_weights_are_worth_more), TEST(test_costly_weights_may_grow),
        TEST(test_products_of_large_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
