/* fixture.c - see fixture.h */
#include "tests/unit/fixture.h"
#include "ir/oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void stopped(struct fixture *f)
{
    for (int i = 0; i < f->t->ndiag; i++)
        print_message("%s\n", f->t->diag[i].message);
    fail();
}

int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->t = tgc_new(0);
    /* the oracle owes nothing to rules */
    f->t->fold = NULL;
    f->budget = -1;
    f->seed = 88172645463325252u;
    *state = f;
    return 0;
}

int teardown(void **state)
{
    struct fixture *f = *state;
    tgc_free(f->t);
    free(f);
    return 0;
}

int64_t draw(struct fixture *f, int64_t n)
{
    f->seed ^= f->seed << 13;
    f->seed ^= f->seed >> 7;
    f->seed ^= f->seed << 17;
    return (int64_t)((f->seed >> 1) % (uint64_t)n);
}


struct array array_new(struct fixture *f, int ndim, const int64_t *dim)
{
    struct array a = {.ndim = ndim, .n = 1};
    for (int i = 0; i < ndim; i++)
        a.n *= a.dim[i] = dim[i];
    a.v = mem_array(f->t, (size_t)a.n + 1, sizeof *a.v);
    return a;
}

void unflatten(const struct array *a, int64_t flat, int64_t *at)
{
    for (int i = a->ndim - 1; i >= 0; i--) {
        at[i] = flat % a->dim[i];
        flat /= a->dim[i];
    }
}

union scalar *element(const struct array *a, const int64_t *at)
{
    int64_t flat = 0;
    for (int i = 0; i < a->ndim; i++)
        flat = flat * a->dim[i] + at[i];
    return &a->v[flat];
}

struct uop *dims_of(struct fixture *f, const int64_t *v, int n, struct uop **dim)
{
    for (int i = 0; i < n; i++)
        dim[i] = uop_int(f->t, v[i]);
    return n ? dim[0] : NULL;
}

struct uop *input_of(struct fixture *f, enum dtype d, const struct array *a)
{
    struct uop *dim[MAX_RANK];
    for (int i = 0; i < a->ndim; i++)
        dim[i] = uop_int(f->t, a->dim[i]);
    struct tensor *x = MEM_NEW(f->t, struct tensor);
    *x = (struct tensor){.dtype = d, .ndim = a->ndim, .nelem = a->n, .data = a->v};
    memcpy(x->dim, a->dim, sizeof x->dim);
    struct uop *u = uop_buffer(f->t, buffer_new(f->t, BUFFER_INPUT, d, dim, a->ndim, "x"));
    assert_true(f->nleaf < MAX_LEAF);
    f->leaf[f->nleaf] = u;
    f->value[f->nleaf++] = x;
    return u;
}

struct uop *input(struct fixture *f, enum dtype d, struct array *a, int ndim, const int64_t *dim)
{
    *a = array_new(f, ndim, dim);
    for (int64_t i = 0; i < a->n; i++)
        if (dtype_is_float(d))
            a->v[i].f = (double)(draw(f, 19) - 9);
        else
            a->v[i].i = d == DTYPE_BOOL ? draw(f, 2) : draw(f, 19) - (dtype_min(d) < 0 ? 9 : 0);
    return input_of(f, d, a);
}

bool try_eval(struct fixture *f, struct uop *u, struct tensor **x)
{
    if (setjmp(f->t->stop))
        stopped(f);
    struct eval_env env = {f->leaf, f->value, f->nleaf, f->var, f->nvar, f->budget};
    return eval_graph(f->t, &u, 1, &env, x);
}

struct tensor *eval_one(struct fixture *f, struct uop *u)
{
    struct tensor *x = NULL;
    assert_true(try_eval(f, u, &x));
    assert_int_equal(x->dtype, u->dtype);
    assert_int_equal(x->ndim, u->ndim);
    return x;
}

void check_array(struct fixture *f, struct uop *u, const struct array *want)
{
    struct tensor *got = eval_one(f, u);
    assert_int_equal(got->ndim, want->ndim);
    for (int a = 0; a < want->ndim; a++)
        assert_int_equal(got->dim[a], want->dim[a]);
    for (int64_t i = 0; i < want->n; i++) {
        union scalar g = ((union scalar *)got->data)[i], w = want->v[i];
        if (dtype_is_float(u->dtype) ? !(g.f == w.f || (isnan(g.f) && isnan(w.f))) : g.i != w.i)
            fail_msg("%s: element %lld is %g or %lld, expected %g or %lld", op_name(u->op),
                     (long long)i, g.f, (long long)g.i, w.f, (long long)w.i);
    }
}

struct uop *output_of(struct fixture *f, enum dtype d, struct array *a, int64_t n)
{
    *a = array_new(f, 1, &n);
    struct uop *dim = uop_int(f->t, n),
               *u = uop_buffer(f->t, buffer_new(f->t, BUFFER_OUTPUT, d, &dim, 1, "y"));
    struct tensor *x = MEM_NEW(f->t, struct tensor);
    *x = (struct tensor){.dtype = d, .ndim = 1, .dim = {n}, .nelem = n, .data = a->v};
    f->leaf[f->nleaf] = u;
    f->value[f->nleaf++] = x;
    return u;
}
