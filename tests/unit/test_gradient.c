/* test_gradient.c - the derivative of every elementwise op, of first and of second order, against
 * differences of what the oracle computes. Convention at single points: gradient_points_test.py.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "frontend/library.h"
#include "ir/oracle.h"
#include "passes/passes.h"
#include "tests/unit/fixture.h"

enum { POINTS = 7, MOST = POINTS * POINTS };
static const double points[POINTS] = {0.3, 0.8, 1.7, -0.45, -1.6, 2.2, 5.1};
static const double step = 1e-5;

/* Operand k of the op at each combination of points. */
static struct array combinations(struct fixture *f, int k)
{
    struct array a = array_new(f, 1, (int64_t[]){MOST});
    for (int i = 0; i < MOST; i++)
        a.v[i].f = points[k % 2 ? i / POINTS : i % POINTS] + 0.03 * k;
    return a;
}

static struct uop *apply(struct fixture *f, enum op op, struct uop *const *x)
{
    struct tgc *t = f->t;
    struct uop *zero = uop_constf(t, DTYPE_F64, 0);
    if (op == OP_WHERE)
        return tensor_where(t, tensor_binary(t, OP_LT, x[0], zero), x[1], x[2]);
    if (op == OP_STACK)
        return tensor_stack(t, uop_cast(t, DTYPE_I64, x[0]), (struct uop *[]){x[1], x[2], x[0]}, 3);
    return uop_new(t, op, DTYPE_F64, x, op_nsrc(op), (union arg){0});
}

/* dy by x[k] is d: against (y(x + step) - y(x - step)) / 2 step, where both sides are numbers and y
 * has no step in between. */
static void compare(struct fixture *f, enum op op, struct uop *y, struct uop *d, struct array *x)
{
    struct tensor *side[2], *got = eval_one(f, d);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < MOST; i++)
            x->v[i].f += s ? -2 * step : step;
        side[s] = eval_one(f, y);
    }
    for (int i = 0; i < MOST; i++) {
        double a = ((double *)side[0]->data)[i], b = ((double *)side[1]->data)[i];
        double want = (a - b) / (2 * step), found = ((double *)got->data)[i];
        x->v[i].f += step;
        if (!isfinite(a) || !isfinite(b) || fabs(a - b) > 0.1)
            continue;
        if (!(fabs(found - want) <= 1e-4 * (1 + fabs(want))))
            fail_msg("%s at %g: %g, differences have %g", op_name(op), x->v[i].f, found, want);
    }
}

static void test_elementwise(void **state)
{
    struct fixture *f = *state;
    struct lib l = {.t = f->t, .at = &(struct place){0}};
    int seen = 0;
    passes_init(f->t);
    for (int i = 0; i < OP_COUNT; i++) {
        enum op op = (enum op)i;
        union scalar v[3] = {{.f = 0.5}, {.f = 0.5}, {.f = 0.5}}, r;
        bool chooses = op == OP_WHERE || op == OP_STACK, bits = op == OP_BITCAST;
        if (!op_is_pointwise(op) ||
            (!chooses && !scalar_apply(op, DTYPE_F64, DTYPE_F64, v, &r)) || op == OP_ISNAN ||
            op == OP_LT || op == OP_EQ || op == OP_NE || op == OP_NOT || bits ||
            op == OP_EXP1)               /* late passes alone make it */
            continue;
        int n = chooses ? 3 : op_nsrc(op);
        struct array a[3];
        struct uop *x[3], *dx[3], *ddx[3];
        for (int k = 0; k < n; k++) {
            a[k] = combinations(f, k);
            x[k] = input_of(f, DTYPE_F64, &a[k]);
        }
        struct uop *y = apply(f, op, x);
        if (!lib_gradient(&l, y, x, n, dx))
            fail_msg("%s: %s", op_name(op), f->t->ndiag ? f->t->diag[0].message : "no derivative");
        for (int k = 0; k < n; k++) {
            compare(f, op, y, dx[k], &a[k]);
            assert_true(lib_gradient(&l, dx[k], x, n, ddx));
            for (int j = 0; j < n; j++)
                compare(f, op, dx[k], ddx[j], &a[j]);
        }
        seen++;
    }
    assert_true(seen > 35);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_elementwise, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
