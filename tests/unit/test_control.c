/* test_control.c - IF, LOOP, host steps in the oracle against plain C, and which graphs are
 * refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/fixture.h"
#include "ir/oracle.h"

static void test_if(void **state)
{
    struct fixture *f = *state;
    struct array a, c = array_new(f, 0, NULL), want;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(6)), *cond = input_of(f, DTYPE_BOOL, &c),
               *dim = uop_int(f->t, 6);
    struct uop *missing = uop_buffer(
        f->t, buffer_new(f->t, BUFFER_INPUT, DTYPE_F32, &dim, 1, "not given"));
    struct uop *node = uop_if(f->t, cond, (struct uop *[]){uop_unary(f->t, OP_NEG, x)},
                              (struct uop *[]){uop_unary(f->t, OP_EXP, missing)}, 1);
    struct uop *u = uop_unary(f->t, OP_ABS, uop_get(f->t, node, 0));
    struct tensor *got;
    want = array_new(f, 1, a.dim);
    for (int64_t i = 0; i < a.n; i++)
        want.v[i].f = fabs(a.v[i].f);
    c.v[0].i = 1;
    /* the other side is not looked at */
    check_array(f, u, &want);
    c.v[0].i = 0;
    assert_false(try_eval(f, u, &got));
}

static struct loop *new_loop(struct fixture *f, int ncarried, int nscan, struct uop *scan_length,
                             const int64_t *dim, int ndim)
{
    struct loop *l = MEM_NEW(f->t, struct loop);
    *l = (struct loop){
        .id = f->t->next_loop++, .ncarried = ncarried, .nscan = nscan, .scan_length = scan_length};
    l->counter = var_new(f->t, "i", 0, INT32_MAX);
    l->counter->is_counter = true;
    l->param = mem_array(f->t, (size_t)ncarried + 1, sizeof *l->param);
    for (int k = 0; k < ncarried; k++) {
        l->param[k] = (struct loop_param){.loop = l, .index = k, .dtype = DTYPE_F64, .ndim = ndim};
        dims_of(f, dim, ndim, l->param[k].dim);
    }
    return l;
}

/* (u, v) -> (v, u + v * i), seven times; a scan of u + the sum of the input, which does not depend
 * on the iteration. */
static void test_loop(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct array a, want = array_new(f, 1, (int64_t[]){3}),
                    stack = array_new(f, 2, (int64_t[]){7, 3});
    struct uop *x = input(f, DTYPE_F64, &a, DIMS(3));
    struct loop *l = new_loop(f, 2, 1, uop_int(t, 7), (int64_t[]){3}, 1);
    struct uop *p = uop_param(t, &l->param[0]), *q = uop_param(t, &l->param[1]);
    struct uop *i = uop_cast(t, DTYPE_F64, uop_var(t, l->counter)),
               *next[2] = {q, uop_binary(t, OP_ADD, p, uop_binary(t, OP_MUL, q, i))};
    struct uop *on = uop_bool(t, true), *invariant = uop_reduce(t, OP_ADD, x, 1),
               *three = uop_int(t, 3);
    struct uop *scan = uop_binary(t, OP_ADD, p, uop_expand(t, invariant, &three));
    struct uop *node = uop_loop(t, l, uop_int(t, 7), on, (struct uop *[]){x, x}, on, next, &scan);
    double sum = a.v[0].f + a.v[1].f + a.v[2].f;
    for (int e = 0; e < 3; e++) {
        double u = a.v[e].f, v = a.v[e].f;
        for (int k = 0; k < 7; k++) {
            stack.v[k * 3 + e].f = u + sum;
            double w = u + v * k;
            u = v;
            v = w;
        }
        want.v[e].f = v;
    }
    check_array(f, uop_get(t, node, 1), &want);
    check_array(f, uop_get(t, node, 2), &stack);
    struct uop *both[2] = {uop_get(t, node, 2), uop_get(t, node, 1)};
    struct tensor *got[2];
    struct eval_env env = {f->leaf, f->value, f->nleaf, f->var, f->nvar, f->budget};
    assert_true(eval_graph(t, both, 2, &env, got));
    assert_memory_equal(got[1]->data, want.v, 3 * sizeof(double));
}

/* Doubles until it passes 100; the length of the scan is known only afterwards. */
static void test_loop_ends_early(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct var *length = var_new(t, "length", 0, 50);
    struct loop *l = new_loop(f, 1, 1, uop_var(t, length), NULL, 0);
    struct uop *p = uop_param(t, &l->param[0]),
               *next = uop_binary(t, OP_MUL, p, uop_constf(t, DTYPE_F64, 2));
    struct uop *again = uop_binary(t, OP_LT, next, uop_constf(t, DTYPE_F64, 100)),
               *on = uop_bool(t, true), *init = uop_constf(t, DTYPE_F64, 3);
    struct uop *node = uop_loop(t, l, uop_int(t, 50), on, &init, again, &next, &p);
    struct array final = array_new(f, 0, NULL), stack = array_new(f, 1, (int64_t[]){6}),
                 doubled = array_new(f, 1, (int64_t[]){6});
    final.v[0].f = 192;
    for (int k = 0; k < 6; k++) {
        stack.v[k].f = 3 << k;
        doubled.v[k].f = 6 << k;
    }
    check_array(f, uop_get(t, node, 0), &final);
    check_array(f, uop_get(t, node, 1), &stack);
    check_array(f, uop_binary(t, OP_ADD, uop_get(t, node, 1), uop_get(t, node, 1)), &doubled);
    struct uop *never = uop_loop(t, l, uop_int(t, 0), on, &init, again, &next, &p);
    final.v[0].f = 3;
    stack.n = stack.dim[0] = 0;
    check_array(f, uop_get(t, never, 0), &final);
    check_array(f, uop_get(t, never, 1), &stack);
}

/* s = sum over i < 4 of sum over j < i of (i + 1) * j, the inner loop's result carried into the
 * outer. */
static void test_nested_loops(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct loop *outer = new_loop(f, 1, 0, NULL, NULL, 0),
                *inner = new_loop(f, 1, 0, NULL, NULL, 0);
    struct uop *s = uop_param(t, &outer->param[0]), *r = uop_param(t, &inner->param[0]),
               *i = uop_var(t, outer->counter), *on = uop_bool(t, true);
    struct uop *weight = uop_cast(t, DTYPE_F64, uop_binary(t, OP_ADD, i, uop_int(t, 1)));
    struct uop *add = uop_binary(
        t, OP_ADD, r,
        uop_binary(t, OP_MUL, weight, uop_cast(t, DTYPE_F64, uop_var(t, inner->counter))));
    struct uop *in = uop_get(t, uop_loop(t, inner, i, on, &s, on, &add, NULL), 0),
               *zero = uop_constf(t, DTYPE_F64, 0);
    struct uop *out = uop_get(t, uop_loop(t, outer, uop_int(t, 6), on, &zero, on, &in, NULL), 0);
    struct array want = array_new(f, 0, NULL);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++)
            want.v[0].f += (a + 1) * b;
    check_array(f, out, &want);
    f->budget = 100;
    struct tensor *got;
    struct uop *endless = uop_get(
        t, uop_loop(t, outer, uop_int(t, INT64_MAX), on, &zero, on, &in, NULL), 0);
    assert_false(try_eval(f, endless, &got));
}

/* The 3 largest along the middle axis, alone and inside a loop that rotates its operand. */
static struct uop *call_topk(struct fixture *f, struct uop *x, struct uop **indices,
                             int64_t largest)
{
    struct tgc *t = f->t;
    struct host_call *h = MEM_NEW(t, struct host_call);
    struct uop *dim[3], *param[6];
    dims_of(f, (int64_t[]){2, 3, 4}, 3, dim);
    dims_of(f, (int64_t[]){2, 7, 4, 3, largest, 1}, 6, param);
    *h = (struct host_call){
        .function = "topk_f64", .nout = 2, .nparam = 6, .param = mem_copy(t, param, sizeof param)};
    h->out = mem_array(t, 2, sizeof *h->out);
    h->out[0] = (struct host_output){DTYPE_F64, 3, {dim[0], dim[1], dim[2]}};
    h->out[1] = (struct host_output){DTYPE_I64, 3, {dim[0], dim[1], dim[2]}};
    struct uop *call = uop_host(t, h, &x, 1);
    *indices = uop_get(t, call, 1);
    return uop_get(t, call, 0);
}

static void naive_topk(const struct array *a, struct array *value, struct array *index,
                       bool largest)
{
    for (int64_t o = 0; o < 8; o++) {
        bool used[7] = {false};
        for (int k = 0; k < 3; k++) {
            int best = -1;
            for (int i = 0; i < 7; i++) {
                double v = a->v[(o / 4 * 7 + i) * 4 + o % 4].f,
                       b = best < 0 ? 0 : a->v[(o / 4 * 7 + best) * 4 + o % 4].f;
                if (!used[i] && (best < 0 || (largest ? v > b : v < b)))
                    best = i;
            }
            used[best] = true;
            value->v[(o / 4 * 3 + k) * 4 + o % 4] = a->v[(o / 4 * 7 + best) * 4 + o % 4];
            index->v[(o / 4 * 3 + k) * 4 + o % 4].i = best;
        }
    }
}

static void test_host(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct array a, value = array_new(f, 3, (int64_t[]){2, 3, 4}),
                    index = array_new(f, 3, (int64_t[]){2, 3, 4});
    struct uop *x = input(f, DTYPE_F64, &a, DIMS(2, 7, 4)), *indices;
    for (int largest = 0; largest < 2; largest++) {
        struct uop *values = call_topk(f, x, &indices, largest);
        naive_topk(&a, &value, &index, largest);
        check_array(f, values, &value);
        check_array(f, indices, &index);
    }
    struct loop *l = new_loop(f, 1, 1, uop_int(t, 3), (int64_t[]){2, 7, 4}, 3);
    struct uop *p = uop_param(t, &l->param[0]), *next = uop_unary(t, OP_NEG, p),
               *scan = call_topk(f, p, &indices, 1), *on = uop_bool(t, true);
    struct uop *node = uop_loop(t, l, uop_int(t, 3), on, &x, on, &next, &scan);
    struct array stack = array_new(f, 4, (int64_t[]){3, 2, 3, 4}), now = array_new(f, 3, a.dim);
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < a.n; i++)
            now.v[i].f = k % 2 ? -a.v[i].f : a.v[i].f;
        naive_topk(&now, &value, &index, true);
        memcpy(stack.v + k * value.n, value.v, (size_t)value.n * sizeof *value.v);
    }
    check_array(f, uop_get(t, node, 1), &stack);
    struct host_call *unknown = MEM_NEW(t, struct host_call);
    struct tensor *got;
    *unknown = (struct host_call){
        .function = "no_such_function", .nout = 1, .out = mem_array(t, 1, sizeof *unknown->out)};
    unknown->out[0].dtype = DTYPE_F64;
    assert_false(try_eval(f, uop_get(t, uop_host(t, unknown, &x, 1), 0), &got));
}
/* ------------------------------------------------------------------------------------ verifying */

static bool graph_is_fine(struct fixture *f, struct uop *u)
{
    struct graph_output out = {"y", u};
    struct graph g = {.noutput = 1, .output = &out};
    volatile bool ok = false;
    if (!setjmp(f->t->stop))
        ok = graph_verify(f->t, &g, "test");
    return ok;
}

static struct uop *make(struct fixture *f, enum op op, enum dtype d, struct uop *const *src, int n,
                        int64_t bits)
{
    return uop_intern(f->t, op, d, src, n, (union arg){.i = bits});
}

static void test_graph_verify(void **state)
{
    struct fixture *f = *state;
    struct array a;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(2, 3)), *i = input(f, DTYPE_I32, &a, DIMS(2, 3)),
               *z = input(f, DTYPE_F32, &a, DIMS(2, 4));
    struct uop *six = uop_int(f->t, 6), *seven = uop_int(f->t, 7), *r = uop_range(f->t, six, 0);
    assert_true(graph_is_fine(f, uop_binary(f->t, OP_ADD, x, x)));
    assert_true(graph_is_fine(f, make(f, OP_RESHAPE, DTYPE_F32, (struct uop *[]){x, six}, 2, 0)));
    assert_false(
        graph_is_fine(f, make(f, OP_RESHAPE, DTYPE_F32, (struct uop *[]){x, seven}, 2, 0)));
    assert_false(graph_is_fine(f, make(f, OP_ADD, DTYPE_F32, (struct uop *[]){x, i}, 2, 0)));
    assert_false(graph_is_fine(f, make(f, OP_ADD, DTYPE_F64, (struct uop *[]){x, x}, 2, 0)));
    assert_false(graph_is_fine(f, make(f, OP_ADD, DTYPE_F32, (struct uop *[]){x, z}, 2, 0)));
    assert_false(graph_is_fine(f, make(f, OP_LT, DTYPE_F32, (struct uop *[]){x, x}, 2, 0)));
    assert_false(graph_is_fine(f, make(f, OP_EXP, DTYPE_I32, &i, 1, 0)));
    assert_false(graph_is_fine(f, make(f, OP_SHL, DTYPE_F32, (struct uop *[]){x, x}, 2, 0)));
    assert_false(graph_is_fine(f, make(f, OP_PERMUTE, DTYPE_F32, &x, 1, 0)));
    assert_false(
        graph_is_fine(f, make(f, OP_REDUCE, DTYPE_F32, &x, 1, ARG_PACK(REDUCE, OP_SUB, 1))));
    assert_false(
        graph_is_fine(f, make(f, OP_REDUCE, DTYPE_F32, &x, 1, ARG_PACK(REDUCE, OP_ADD, 4))));
    assert_false(graph_is_fine(f, make(f, OP_LOAD, DTYPE_F32, (struct uop *[]){x, r}, 2, 0)));
    assert_false(graph_is_fine(
        f, make(f, OP_WINDOW, DTYPE_F32, (struct uop *[]){x, six, six}, 3,
                ARG_PACK(WINDOW, 1, 1, 1))));
    struct loop *l = new_loop(f, 1, 0, NULL, NULL, 0);
    struct uop *p = uop_param(f->t, &l->param[0]), *one = uop_constf(f->t, DTYPE_F64, 1),
               *on = uop_bool(f->t, true), *n = uop_int(f->t, 3);
    struct uop *next = uop_binary(f->t, OP_ADD, p, one),
               *node = uop_get(f->t, uop_loop(f->t, l, n, on, &one, on, &next, NULL), 0);
    assert_true(graph_is_fine(f, node));
    /* the inside of a loop that there is not, ... */
    assert_false(graph_is_fine(f, next));
    /* ... and of one that there is */
    assert_false(graph_is_fine(f, uop_binary(f->t, OP_ADD, node, next)));
    node = uop_get(f->t, uop_loop(f->t, l, n, on, &next, on, &next, NULL), 0);
    assert_false(graph_is_fine(f, node));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_if),
        TEST(test_loop),
        TEST(test_loop_ends_early),
        TEST(test_nested_loops),
        TEST(test_host),
        TEST(test_graph_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
