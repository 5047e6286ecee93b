/* test_narrow.c - pass_narrow_weights: which weights it takes, what they become, and that the graph
 * then computes what it did before with these very values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/graphs.h"
#include "ir/oracle.h"

enum { ROWS = 3, IN = 72, OUT = 80 };

static int setup(void **state) { return graph_setup(state, ROWS, (int[]){IN, OUT}); }

static float value_at(int i)
{
    return sinf((float)(i + 1)) * (float)(1 + i / OUT % 7);
}

static float *values(struct fixture *f)
{
    float *v = mem_array(f->t, IN * OUT, sizeof *v);
    for (int i = 0; i < IN * OUT; i++)
        v[i] = value_at(i);
    return v;
}

static struct uop *weight(struct fixture *f, const float *v)
{
    return tensor_from_data(f->t, DTYPE_F32, (int64_t[]){IN, OUT}, 2, v,
                            IN * OUT * sizeof(float), "w");
}

/* a[n, k] * b[k, m] as one sum; b is any view. */
static struct uop *matmul(struct fixture *f, struct uop *a, struct uop *b)
{
    struct tgc *t = f->t;
    struct uop *product = tensor_binary(t, OP_MUL, tensor_insert_axis(t, a, 2),
                                        tensor_insert_axis(t, b, 0));
    return tensor_drop_axes(t, uop_reduce(t, OP_ADD, product, 2), 2);
}

static struct uop *transposed(struct fixture *f, struct uop *w)
{
    return uop_permute(f->t, w, (int[]){1, 0});
}

static struct uop *narrow(struct fixture *f, enum dtype d, struct uop *u)
{
    f->t->weight_dtype = d;
    return graph_run(f, pass_narrow_weights, "narrow", u);
}

/* The only weight of that dtype, or NULL. */
static const struct buffer *find(struct fixture *f, struct uop *root, enum dtype d)
{
    int n;
    const struct buffer *found = NULL;
    struct uop **order = uop_toposort(f->t, &root, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? order[i]->arg.p : NULL;
        if (!b || b->kind != BUFFER_WEIGHT || b->dtype != d)
            continue;
        assert_null(found);
        found = b;
    }
    return found;
}

static struct tensor *run(struct fixture *f, struct uop *root)
{
    const struct uop *leaf[2] = {f->input[0], f->input[1]};
    struct tensor in[2], *value[2] = {&in[0], &in[1]}, *out;
    for (int k = 0; k < 2; k++) {
        int64_t n = k ? OUT : IN;
        in[k] = (struct tensor){DTYPE_F32, 2, {ROWS, n}, ROWS * n,
                                mem_array(f->t, (size_t)(ROWS * n), 8)};
        for (int64_t i = 0; i < in[k].nelem; i++)
            ((double *)in[k].data)[i] = cos((double)(i + 1));
    }
    struct eval_env env = {.leaf = leaf, .value = value, .n = 2, .budget = -1};
    assert_true(eval_graph(f->t, &root, 1, &env, &out));
    return out;
}

static void expect_equal(const struct tensor *a, const struct tensor *b, double tolerance)
{
    assert_int_equal(a->nelem, b->nelem);
    for (int64_t i = 0; i < a->nelem; i++) {
        double x = ((double *)a->data)[i], y = ((double *)b->data)[i];
        if (!(fabs(x - y) <= tolerance * (1 + fabs(x))))
            fail_msg("element %lld is %.17g, expected %.17g", (long long)i, y, x);
    }
}

static void test_bf16(void **state)
{
    struct fixture *f = *state;
    float *v = values(f), *rounded = values(f);
    for (int i = 0; i < IN * OUT; i++) {
        uint16_t h;
        scalar_store(DTYPE_BF16, &h, (union scalar){.f = v[i]});
        rounded[i] = (float)scalar_load(DTYPE_BF16, &h).f;
    }
    struct tensor *want = run(f, matmul(f, f->input[0], weight(f, rounded)));
    struct uop *y = narrow(f, DTYPE_BF16, matmul(f, f->input[0], weight(f, v)));
    const struct buffer *b = find(f, y, DTYPE_BF16);
    assert_non_null(b);
    assert_null(find(f, y, DTYPE_F32));
    assert_string_equal(b->name, "w");
    assert_int_equal(b->nbytes, IN * OUT * 2);
    expect_equal(want, run(f, y), 1e-12);
    assert_int_equal(f->g.narrowing.nweight, 1);
    assert_int_equal(f->g.narrowing.from_nbytes, IN * OUT * 4);
    assert_int_equal(f->g.narrowing.to_nbytes, IN * OUT * 2);
    assert_true(f->g.narrowing.max_error <= 0x1p-8 && f->g.narrowing.max_error > 0x1p-9);
}

/* The scales of the columns come after the sum, which reads nothing but the small integers. */
static void test_int8(void **state)
{
    struct fixture *f = *state;
    float *v = values(f), *rounded = values(f);
    for (int c = 0; c < OUT; c++) {
        float most = 0;
        for (int k = 0; k < IN; k++)
            most = fmaxf(most, fabsf(v[k * OUT + c]));
        for (int k = 0; k < IN; k++)
            rounded[k * OUT + c] = rintf(v[k * OUT + c] / (most / 127)) * (most / 127);
    }
    struct tensor *want = run(f, matmul(f, f->input[0], weight(f, rounded)));
    struct uop *y = narrow(f, DTYPE_I8, matmul(f, f->input[0], weight(f, v)));
    const struct buffer *b = find(f, y, DTYPE_I8), *scale = find(f, y, DTYPE_F32);
    assert_non_null(b);
    assert_non_null(scale);
    assert_int_equal(scale->nbytes, OUT * sizeof(float));
    expect_equal(want, run(f, y), 1e-6);
    assert_int_equal(f->g.narrowing.to_nbytes, IN * OUT + OUT * sizeof(float));
    int n;
    struct uop **order = uop_toposort(f->t, &y, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE)
            assert_null(find(f, order[i], DTYPE_F32));
}

/* Rows are added up by the one sum, columns by the other: all share a scale. */
static void test_two_directions(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, values(f));
    struct uop *once = matmul(f, f->input[0], w), *back = matmul(f, f->input[1], transposed(f, w));
    struct uop *both = uop_concat(f->t, (struct uop *[]){once, back}, 2, 1);
    struct tensor *want = run(f, both);
    struct uop *y = narrow(f, DTYPE_I8, both);
    const struct buffer *scale = find(f, y, DTYPE_F32);
    assert_non_null(scale);
    assert_int_equal(scale->nbytes, sizeof(float));
    expect_equal(want, run(f, y), 0.2);
}

/* An embedding: rows are looked up, and multiplied with. */
static void test_lookup(void **state)
{
    struct fixture *f = *state;
    struct uop *w = weight(f, values(f)), *dim[2] = {uop_int(f->t, ROWS), uop_int(f->t, OUT)};
    struct uop *row = tensor_iota(f->t, dim, 2, 0), *column = tensor_iota(f->t, dim, 2, 1);
    struct uop *looked = uop_index(f->t, w, (struct uop *[]){row, column});
    struct uop *y = matmul(f, looked, transposed(f, w));
    struct tensor *want = run(f, y);
    y = narrow(f, DTYPE_I8, y);
    const struct buffer *scale = find(f, y, DTYPE_F32);
    assert_non_null(scale);
    assert_int_equal(scale->nbytes, IN * sizeof(float));
    int n;
    struct uop **order = uop_toposort(f->t, &y, 1, &n);
    for (int i = 0; i < n; i++)                       /* small elements are looked up */
        if (order[i]->op == OP_INDEX)
            assert_true(order[i]->dtype == DTYPE_I8 || order[i]->src[0]->op != OP_MUL);
    expect_equal(want, run(f, y), 0.1);
}

static void expect_refused(struct fixture *f, struct uop *u)
{
    assert_ptr_equal(narrow(f, DTYPE_BF16, u), u);
    assert_int_equal(f->g.narrowing.nweight, 0);
    assert_ptr_equal(narrow(f, DTYPE_VOID, u), u);
}

static void test_refused(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    float *v = values(f);
    v[17] = INFINITY;
    expect_refused(f, matmul(f, f->input[0], weight(f, v)));
    v = values(f);
    v[17] = 3.4e38f;                                  /* bf16 has none as large */
    expect_refused(f, matmul(f, f->input[0], weight(f, v)));
    v[17] = 0;
    struct uop *w = weight(f, v), *lo[2] = {uop_int(t, 1), uop_int(t, 0)},
               *hi[2] = {uop_int(t, 0), uop_int(t, 0)};
    struct uop *padded = uop_pad(t, w, uop_constf(t, DTYPE_F32, 0), lo, hi);
    struct uop *parts[2] = {matmul(f, f->input[0], w), padded};
    expect_refused(f, uop_concat(t, parts, 2, 0));    /* somebody wants it as it lies */
    expect_refused(f, tensor_binary(t, OP_ADD, w, uop_constf(t, DTYPE_F32, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bf16, setup, graph_teardown),
        cmocka_unit_test_setup_teardown(test_int8, setup, graph_teardown),
        cmocka_unit_test_setup_teardown(test_two_directions, setup, graph_teardown),
        cmocka_unit_test_setup_teardown(test_lookup, setup, graph_teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, graph_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
