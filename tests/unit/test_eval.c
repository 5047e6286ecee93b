/* test_eval.c - the oracle against plain C.
 *
 * Movement ops are applied to arrays by loops over coordinates that are written out here; random
 * compositions of them, of every rank to five and with sizes from zero, must agree with the
 * evaluator, which never sees those arrays. Elementwise ops are compared with scalar_apply(), which
 * constant folding uses and which was written apart. Contractions, reductions and indexed
 * access are compared with the loops that a person would write. Control: test_control.c; linear
 * programs: test_linear.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/fixture.h"
#include "ir/oracle.h"

/* ---------------------------------------------------------------------------------- elementwise */

static const double specials[] = {0, -0.0, 1,   -1,      0.5,      2.5,       -2.5, 3,
                                  7, 1e-3, 1e5, -123.25, INFINITY, -INFINITY, NAN};
static const int64_t int_specials[] = {0,  1,   -1,   2,   -3,   5,         7,        63,
                                       64, 127, -128, 255, 1000, INT64_MAX, INT64_MIN};

static bool same_scalar(enum dtype d, union scalar a, union scalar b)
{
    return dtype_is_float(d) ? a.f == b.f || (isnan(a.f) && isnan(b.f)) : a.i == b.i;
}

/* Every op, every dtype, every combination of special values; f32 is rounded by folding and not by
 * the oracle. */
static void compare_with_folding(enum op op, enum dtype to, enum dtype from)
{
    enum { N = 15 };
    int nsrc = op_nsrc(op), total = nsrc == 1 ? N : nsrc == 2 ? N * N : N * N * N;
    for (int k = 0; k < total; k++) {
        union scalar v[3], want;
        for (int s = 0, rest = k; s < nsrc; s++, rest /= N)
            v[s] = dtype_is_float(from)
                       ? scalar_cast(from, DTYPE_F64, (union scalar){.f = specials[rest % N]})
                       : scalar_cast(from, DTYPE_I64, (union scalar){.i = int_specials[rest % N]});
        if (op == OP_WHERE)
            v[0].i = k % 2;
        if (!scalar_apply(op, to, from, v, &want))
            continue;
        union scalar got = eval_scalar(op, to, from, v);
        if (to == DTYPE_F32)
            got = scalar_cast(to, DTYPE_F64, got);
        if (!same_scalar(to, got, want))
            fail_msg("%s of %s: %g or %lld, folding has %g or %lld, for %g or %lld, ...",
                     op_name(op), dtype_name(from), got.f, (long long)got.i, want.f,
                     (long long)want.i, v[0].f, (long long)v[0].i);
    }
}

static void test_scalars(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        if (!op_is_elementwise((enum op)op))
            continue;
        for (int d = DTYPE_BOOL; d <= DTYPE_F64; d++) {
            bool to_bool = op == OP_LT || op == OP_EQ || op == OP_NE || op == OP_ISNAN;
            for (int to = DTYPE_BOOL; to <= DTYPE_F64; to++)
                if (op == OP_CAST || op == OP_BITCAST || to == (to_bool ? (int)DTYPE_BOOL : d))
                    compare_with_folding((enum op)op, (enum dtype)to, (enum dtype)d);
        }
    }
}

/* What folding leaves open or shares a mistake in, said once more. */
static void test_scalar_facts(void **state)
{
    (void)state;
    const struct { enum op op; enum dtype d; int64_t a, b, want;
    } ints[] = {
        {OP_DIV, DTYPE_I32, -7, 2, -3},
        {OP_MOD, DTYPE_I32, -7, 2, -1},
        {OP_FLOORDIV, DTYPE_I32, -7, 2, -4},
        {OP_FLOORMOD, DTYPE_I32, -7, 2, 1},
        {OP_DIV, DTYPE_I32, 5, 0, 0},
        {OP_DIV, DTYPE_I8, -128, -1, -128},
        {OP_DIV, DTYPE_I64, INT64_MIN, -1, INT64_MIN},
        {OP_DIV, DTYPE_U64, -1, 2, INT64_MAX},
        {OP_MAX, DTYPE_U64, -1, 1, -1},
        {OP_LT, DTYPE_U64, -1, 1, 0},
        {OP_LT, DTYPE_I64, -1, 1, 1},
        {OP_ADD, DTYPE_U8, 250, 10, 4},
        {OP_MUL, DTYPE_I8, 100, 3, 44},
        {OP_SHL, DTYPE_U8, 3, 7, 128},
        {OP_SHL, DTYPE_U8, 3, 8, 0},
        {OP_SHR, DTYPE_I8, -128, 3, -16},
        {OP_SHR, DTYPE_I32, -5, 99, -1},
        {OP_SHR, DTYPE_U32, 5, 99, 0},
        {OP_SHR, DTYPE_U64, -1, 63, 1},
        {OP_POW, DTYPE_I32, 3, 4, 81},
        {OP_POW, DTYPE_I32, -1, -3, -1},
        {OP_POW, DTYPE_I32, 2, -1, 0},
        {OP_POW, DTYPE_I32, 0, 0, 1},
        {OP_XOR, DTYPE_BOOL, 1, 1, 0},
        {OP_SUB, DTYPE_U4, 1, 2, 15},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        union scalar v[2] = {{.i = ints[i].a}, {.i = ints[i].b}};
        enum dtype to = ints[i].op == OP_LT ? DTYPE_BOOL : ints[i].d;
        assert_int_equal(eval_scalar(ints[i].op, to, ints[i].d, v).i, ints[i].want);
    }
    const struct { enum op op; double a, b, want;
    } floats[] = {
        {OP_MOD, -7.5, 2, -1.5},
        {OP_FLOORMOD, -7.5, 2, 0.5},
        {OP_FLOORMOD, 7.5, -2, -0.5},
        {OP_ROUND, 2.5, 0, 2},
        {OP_ROUND, -1.5, 0, -2},
        {OP_MAX, NAN, 1, NAN},
        {OP_MIN, 1, NAN, NAN},
        {OP_DIV, 1, 0, INFINITY},
        {OP_ATAN2, 1, -1, 2.356194490192345},
        {OP_ERF, 0.5, 0, 0.5204998778130465},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        union scalar v[2] = {{.f = floats[i].a}, {.f = floats[i].b}},
                     got = eval_scalar(floats[i].op, DTYPE_F64, DTYPE_F64, v);
        assert_true(same_scalar(DTYPE_F64, got, (union scalar){.f = floats[i].want}));
    }
    union scalar third = eval_scalar(OP_DIV, DTYPE_F32, DTYPE_F32,
                                     (union scalar[2]){{.f = 1}, {.f = 3}});
    assert_true(third.f == 1.0 / 3);                             /* not rounded ... */
    /* ... before it is asked for */
    assert_true(eval_scalar(OP_CAST, DTYPE_F32, DTYPE_F32, &third).f == (double)(1.0f / 3));
    third = eval_scalar(OP_DIV, DTYPE_F16, DTYPE_F16, (union scalar[2]){{.f = 1}, {.f = 3}});
    assert_true(third.f == 0x1.554p-2);
}

static void test_elementwise_tensors(void **state)
{
    struct fixture *f = *state;
    struct array a, b, c, want;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(3, 700)),
               *y = input(f, DTYPE_F32, &b, DIMS(3, 700)),
               *s = input(f, DTYPE_BOOL, &c, DIMS(3, 700));
    struct uop *two = uop_constf(f->t, DTYPE_F32, 2);
    struct uop *u = uop_where(f->t, s, uop_binary(f->t, OP_MUL, x, y),
                              uop_binary(f->t, OP_SUB, two, x));
    want = array_new(f, 2, a.dim);
    for (int64_t i = 0; i < a.n; i++)
        want.v[i].f = c.v[i].i ? a.v[i].f * b.v[i].f : 2 - a.v[i].f;
    check_array(f, u, &want);
    struct uop *n = uop_cast(f->t, DTYPE_I32,
                             uop_binary(f->t, OP_MUL, x, uop_constf(f->t, DTYPE_F32, 0.75)));
    for (int64_t i = 0; i < a.n; i++)
        want.v[i].i = (int64_t)(a.v[i].f * 0.75);
    check_array(f, n, &want);
}

/* ------------------------------------------------------------------------------------- movement */

/* Fills `to` from `from`: the coordinates in from as a function of those in to; false: the pad
 * value. */
typedef bool (*mapping)(const struct array *from, const int64_t *p, const int64_t *at,
                        int64_t *src);

static void map_array(const struct array *from, struct array *to, mapping m, const int64_t *p,
                      double pad)
{
    for (int64_t i = 0; i < to->n; i++) {
        int64_t at[MAX_RANK], src[MAX_RANK];
        unflatten(to, i, at);
        to->v[i].f = m(from, p, at, src) ? element(from, src)->f : pad;
    }
}

static bool map_permute(const struct array *from, const int64_t *p, const int64_t *at, int64_t *src)
{
    for (int a = 0; a < from->ndim; a++)
        src[p[a]] = at[a];
    return true;
}

static bool map_expand(const struct array *from, const int64_t *p, const int64_t *at, int64_t *src)
{
    (void)p;
    for (int a = 0; a < from->ndim; a++)
        src[a] = from->dim[a] == 1 ? 0 : at[a];
    return true;
}

static bool map_pad(const struct array *from, const int64_t *p, const int64_t *at, int64_t *src)
{
    bool inside = true;
    for (int a = 0; a < from->ndim; a++) {
        src[a] = at[a] - p[a];
        inside &= src[a] >= 0 && src[a] < from->dim[a];
    }
    return inside;
}

static bool map_shrink(const struct array *from, const int64_t *p, const int64_t *at, int64_t *src)
{
    for (int a = 0; a < from->ndim; a++)
        src[a] = at[a] + p[a];
    return true;
}

static bool map_flip(const struct array *from, const int64_t *p, const int64_t *at, int64_t *src)
{
    for (int a = 0; a < from->ndim; a++)
        src[a] = p[a] ? from->dim[a] - 1 - at[a] : at[a];
    return true;
}

static bool map_window(const struct array *from, const int64_t *p, const int64_t *at, int64_t *src)
{
    for (int a = 0; a < from->ndim; a++)
        src[a] = a < p[0] ? at[a] : a == p[0] ? at[a] * p[1] + at[a + 1] * p[2] : at[a + 1];
    return true;
}

static struct uop *random_reshape(struct fixture *f, struct uop *x, const struct array *a,
                                  struct array *to)
{
    int64_t dim[MAX_RANK], rest = a->n;
    int n = 0, rank = (int)draw(f, 6);
    while (n < rank && rest > 1) {
        int64_t d = draw(f, 7) + 1;
        while (rest % d)
            d--;
        dim[n++] = d;
        rest /= d;
    }
    if (rest != 1 || n == 0)
        dim[n++] = rest;
    struct uop *u[MAX_RANK];
    dims_of(f, dim, n, u);
    *to = array_new(f, n, dim);
    memcpy(to->v, a->v, (size_t)a->n * sizeof *a->v);
    return uop_reshape(f->t, x, u, n);
}

static struct uop *random_permute(struct fixture *f, struct uop *x, const struct array *a,
                                  struct array *to)
{
    int perm[MAX_RANK];
    int64_t p[MAX_RANK], dim[MAX_RANK];
    for (int i = 0; i < a->ndim; i++) {
        int j = (int)draw(f, i + 1);
        perm[i] = perm[j];
        perm[j] = i;
    }
    for (int i = 0; i < a->ndim; i++) {
        p[i] = perm[i];
        dim[i] = a->dim[perm[i]];
    }
    *to = array_new(f, a->ndim, dim);
    map_array(a, to, map_permute, p, 0);
    return uop_permute(f->t, x, perm);
}

static struct uop *random_expand(struct fixture *f, struct uop *x, const struct array *a,
                                 struct array *to)
{
    int64_t dim[MAX_RANK];
    struct uop *u[MAX_RANK];
    /* without rules, 0 + 1 is not 1 to the builder */
    for (int i = 0; i < a->ndim; i++) {
        dim[i] = uop_is_int(x->dim[i], 1) && a->n < 500 ? draw(f, 4) : a->dim[i];
        u[i] = dim[i] == a->dim[i] ? x->dim[i] : uop_int(f->t, dim[i]);
    }
    *to = array_new(f, a->ndim, dim);
    map_array(a, to, map_expand, NULL, 0);
    return uop_expand(f->t, x, u);
}

static struct uop *random_pad(struct fixture *f, struct uop *x, const struct array *a,
                              struct array *to)
{
    int64_t lo[MAX_RANK], hi[MAX_RANK], dim[MAX_RANK];
    struct uop *ulo[MAX_RANK], *uhi[MAX_RANK];
    for (int i = 0; i < a->ndim; i++) {
        lo[i] = draw(f, 3) % 2;
        hi[i] = draw(f, 3) % 2;
        dim[i] = a->dim[i] + lo[i] + hi[i];
    }
    dims_of(f, lo, a->ndim, ulo);
    dims_of(f, hi, a->ndim, uhi);
    *to = array_new(f, a->ndim, dim);
    map_array(a, to, map_pad, lo, -77);
    return uop_pad(f->t, x, uop_constf(f->t, DTYPE_F32, -77), ulo, uhi);
}

static struct uop *random_shrink(struct fixture *f, struct uop *x, const struct array *a,
                                 struct array *to)
{
    int64_t begin[MAX_RANK], size[MAX_RANK];
    struct uop *ubegin[MAX_RANK], *usize[MAX_RANK];
    for (int i = 0; i < a->ndim; i++) {
        begin[i] = draw(f, a->dim[i] + 1) / 2;
        size[i] = a->dim[i] - begin[i] - draw(f, a->dim[i] - begin[i] + 1) / 2;
    }
    dims_of(f, begin, a->ndim, ubegin);
    dims_of(f, size, a->ndim, usize);
    *to = array_new(f, a->ndim, size);
    map_array(a, to, map_shrink, begin, 0);
    return uop_shrink(f->t, x, ubegin, usize);
}

static struct uop *random_flip(struct fixture *f, struct uop *x, const struct array *a,
                               struct array *to)
{
    int64_t p[MAX_RANK];
    uint32_t axes = 0;
    for (int i = 0; i < a->ndim; i++) {
        p[i] = draw(f, 2);
        axes |= (uint32_t)p[i] << i;
    }
    *to = array_new(f, a->ndim, a->dim);
    map_array(a, to, map_flip, p, 0);
    return uop_flip(f->t, x, axes);
}

static struct uop *random_window(struct fixture *f, struct uop *x, const struct array *a,
                                 struct array *to)
{
    int axis = a->ndim ? (int)draw(f, a->ndim) : 0;
    if (a->ndim == 0 || a->ndim > 5 || a->dim[axis] == 0 || a->n > 500)
        return random_flip(f, x, a, to);
    int64_t s = draw(f, 3), d = draw(f, 3), k = draw(f, 3) + 1, dim[MAX_RANK];
    while ((k - 1) * d >= a->dim[axis])
        k--;
    int64_t o = s ? (a->dim[axis] - 1 - (k - 1) * d) / s + 1 : 2;
    for (int i = 0; i < a->ndim; i++)
        dim[i + (i > axis)] = a->dim[i];
    dim[axis] = o;
    dim[axis + 1] = k;
    *to = array_new(f, a->ndim + 1, dim);
    map_array(a, to, map_window, (int64_t[]){axis, s, d}, 0);
    return uop_window(f->t, x, axis, uop_int(f->t, o), uop_int(f->t, k), s, d);
}

typedef struct uop *(*random_move)(struct fixture *, struct uop *, const struct array *,
                                   struct array *);

static void test_movement(void **state)
{
    static const random_move moves[] = {random_reshape, random_permute, random_expand, random_pad,
                                        random_shrink,  random_flip,    random_window};
    struct fixture *f = *state;
    int compared = 0;
    for (int round = 0; round < 1500; round++) {
        static const int64_t sizes[] = {0, 1, 2, 3, 5, 1, 2, 3, 5, 7};
        int64_t dim[MAX_RANK];
        int ndim = (int)draw(f, 6);
        for (int i = 0; i < ndim; i++)
            dim[i] = sizes[draw(f, 10)];
        struct array a, next;
        f->nleaf = 0;
        struct uop *u = input(f, DTYPE_F32, &a, ndim, dim);
        for (int k = 0; k < 5; k++) {
            u = moves[draw(f, 7)](f, u, &a, &next);
            if (draw(f, 4) == 0) {                               /* something computed in between */
                u = uop_unary(f->t, OP_NEG, u);
                for (int64_t i = 0; i < next.n; i++)
                    next.v[i].f = -next.v[i].f;
            }
            a = next;
            check_array(f, u, &a);
            compared++;
        }
    }
    print_message("eval: %d compositions of movement\n", compared);
}

static void test_concat_iota(void **state)
{
    struct fixture *f = *state;
    for (int axis = 0; axis < 3; axis++) {
        struct array a[3], want;
        struct uop *x[3];
        int64_t dim[3] = {2, 3, 4}, sizes[3] = {3, 0, 5}, total[3] = {2, 3, 4};
        total[axis] = 8;
        for (int k = 0; k < 3; k++) {
            dim[axis] = sizes[k];
            x[k] = input(f, DTYPE_F32, &a[k], 3, dim);
        }
        want = array_new(f, 3, total);
        for (int64_t i = 0; i < want.n; i++) {
            int64_t at[MAX_RANK];
            unflatten(&want, i, at);
            int k = at[axis] < 3 ? 0 : 2;
            at[axis] -= k ? 3 : 0;
            want.v[i] = *element(&a[k], at);
        }
        check_array(f, uop_concat(f->t, x, 3, axis), &want);
    }
    struct array n = array_new(f, 1, (int64_t[]){1000});
    for (int64_t i = 0; i < n.n; i++)
        n.v[i].i = i;
    check_array(f, uop_iota(f->t, uop_int(f->t, 1000)), &n);
}

/* --------------------------------------------------------------------------------------- reduce */

static int64_t reduce_int(enum op op, int64_t a, int64_t b)
{
    switch (op) {
    case OP_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case OP_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_MAX:
        return a > b ? a : b;
    case OP_MIN:
        return a < b ? a : b;
    case OP_AND:
        return a & b;
    case OP_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

static void test_reduce(void **state)
{
    static const enum op ops[] = {OP_ADD, OP_MUL, OP_MAX, OP_MIN, OP_AND, OP_OR, OP_XOR};
    struct fixture *f = *state;
    for (int round = 0; round < 700; round++) {
        enum op op = ops[round % 7];
        enum dtype d = round % 3 == 0 ? DTYPE_I64 : round % 3 == 1 ? DTYPE_I8 : DTYPE_U8;
        int64_t dim[MAX_RANK], kept[MAX_RANK];
        int ndim = (int)draw(f, 4) + 1;
        uint32_t axes = (uint32_t)draw(f, (1 << ndim) - 1) + 1;
        for (int a = 0; a < ndim; a++) {
            dim[a] = draw(f, 12) == 0 ? 0 : draw(f, round % 5 == 0 ? 20 : 5) + 2;
            kept[a] = axes >> a & 1 ? 1 : dim[a];
        }
        struct array a, want;
        f->nleaf = 0;
        struct uop *x = input(f, d, &a, ndim, dim);
        want = array_new(f, ndim, kept);
        bool *any = mem_array(f->t, (size_t)want.n + 1, 1);
        for (int64_t i = 0; i < a.n; i++) {
            int64_t at[MAX_RANK];
            unflatten(&a, i, at);
            for (int k = 0; k < ndim; k++)
                at[k] = axes >> k & 1 ? 0 : at[k];
            union scalar *to = element(&want, at);
            bool *seen = &any[to - want.v];
            int64_t r = *seen ? reduce_int(op, to->i, a.v[i].i) : a.v[i].i;
            to->i = d == DTYPE_I8 ? (int8_t)r : d == DTYPE_U8 ? (uint8_t)r : r;
            *seen = true;
        }
        for (int64_t i = 0; i < want.n; i++)
            if (!any[i])
                want.v[i] = alu_identity(op, d);
        check_array(f, uop_reduce(f->t, op, x, axes), &want);
    }
    assert_true(alu_identity(OP_MAX, DTYPE_F32).f == -INFINITY &&
                alu_identity(OP_MIN, DTYPE_U8).i == 255);
    assert_true(alu_identity(OP_MUL, DTYPE_I32).i == 1 && alu_identity(OP_AND, DTYPE_BOOL).i == 1 &&
                alu_identity(OP_AND, DTYPE_I8).i == -1);
}

/* One element after the other, in double, in the order of memory: bit by bit what this loop
 * gives. */
static void test_reduce_order(void **state)
{
    struct fixture *f = *state;
    struct array a = array_new(f, 3, (int64_t[]){3, 40, 50}),
                 want = array_new(f, 3, (int64_t[]){3, 1, 1});
    for (int64_t i = 0; i < a.n; i++)
        a.v[i].f = 1.0 / (double)(i + 1);
    for (int64_t i = 0; i < a.n; i++)
        want.v[i / 2000].f += a.v[i].f;
    check_array(f, uop_reduce(f->t, OP_ADD, input_of(f, DTYPE_F64, &a), 6), &want);
    struct array wide = array_new(f, 2, (int64_t[]){100, 70}),
                 sum = array_new(f, 2, (int64_t[]){1, 70});
    for (int64_t i = 0; i < wide.n; i++) {
        wide.v[i].f = 1.0 / (double)(i + 1);
        sum.v[i % 70].f += wide.v[i].f;
    }
    check_array(f, uop_reduce(f->t, OP_ADD, input_of(f, DTYPE_F64, &wide), 1), &sum);
}

/* --------------------------------------------------------------------------------- contractions */

static void test_matmul(void **state)
{
    struct fixture *f = *state;
    static const int64_t shapes[][3] = {{1, 1, 1},  {3, 4, 5}, {2, 900, 3}, {70, 9, 11},
                                        {33, 0, 2}, {0, 3, 3}, {40, 41, 42}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        struct array a, b, want = array_new(f, 3, (int64_t[]){m, 1, n});
        struct uop *x = input(f, DTYPE_F32, &a, DIMS(m, k)),
                   *y = input(f, DTYPE_F32, &b, DIMS(k, n)), *dim[3];
        dims_of(f, (int64_t[]){m, k, n}, 3, dim);
        x = uop_expand(f->t, tensor_insert_axis(f->t, x, 2), dim);
        y = uop_expand(f->t, tensor_insert_axis(f->t, y, 0), dim);
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++)
                for (int64_t j = 0; j < k; j++)
                    want.v[r * n + c].f += a.v[r * k + j].f * b.v[j * n + c].f;
        struct uop *sum = uop_reduce(f->t, OP_ADD, uop_binary(f->t, OP_MUL, x, y), 2);
        if (k == 1)
            /* the builder leaves the axis alone: nothing to reduce */
            continue;
        check_array(f, sum, &want);
    }
}

/* x[batch, sum, row, also summed] times y[column, batch, sum, also summed], bit by bit what the
 * plain loop gives, and each factor is loaded once: all products of a program would take eight
 * times the budget. Rows, columns and terms are no multiples of the blocks they are computed in. */
static void test_product_of_factors(void **state)
{
    enum { COLUMNS = 70, SUM = 90, BATCH = 2, ROWS = 130, TERMS = 3 };
    struct fixture *f = *state;
    struct array a = array_new(f, 4, (int64_t[]){BATCH, SUM, ROWS, TERMS}),
                 b = array_new(f, 4, (int64_t[]){COLUMNS, BATCH, SUM, TERMS}),
                 want = array_new(f, 5, (int64_t[]){COLUMNS, 1, BATCH, ROWS, 1});
    for (int64_t i = 0; i < a.n; i++)
        a.v[i].f = 1.0 / (double)(i + 1);
    for (int64_t i = 0; i < b.n; i++)
        b.v[i].f = 1.0 / (double)(2 * i + 3);
    for (int64_t i = 0; i < want.n; i++) {
        int64_t at[5];
        unflatten(&want, i, at);
        for (int64_t k = 0; k < SUM; k++)
            for (int64_t j = 0; j < TERMS; j++)
                want.v[i].f += element(&a, (int64_t[]){at[2], k, at[3], j})->f *
                               element(&b, (int64_t[]){at[0], at[2], k, j})->f;
    }
    struct uop *dim[5];
    dims_of(f, (int64_t[]){COLUMNS, SUM, BATCH, ROWS, TERMS}, 5, dim);
    struct uop *x = uop_permute(f->t, input_of(f, DTYPE_F64, &a), (int[]){1, 0, 2, 3}),
               *y = uop_permute(f->t, input_of(f, DTYPE_F64, &b), (int[]){0, 2, 1, 3});
    x = uop_expand(f->t, tensor_insert_axis(f->t, x, 0), dim);
    y = uop_expand(f->t, tensor_insert_axis(f->t, y, 3), dim);
    f->budget = 2500000;
    for (int swap = 0; swap < 2; swap++) {
        struct uop *mul = swap ? uop_binary(f->t, OP_MUL, y, x) : uop_binary(f->t, OP_MUL, x, y);
        check_array(f, uop_reduce(f->t, OP_ADD, mul, 1u << 1 | 1u << 4), &want);
    }
}

/* 8 channels of 20 x 20, 3 x 3, stride 2, dilation 2, padded: by seven loops. The product would
 * take 30 times the memory allowed. */
static void test_convolution(void **state)
{
    enum {
        N = 2,
        C = 8,
        H = 20,
        O = 6,
        K = 3,
        S = 2,
        D = 2,
        P = 2,
        Y = (H + 2 * P - D * (K - 1) - 1) / S + 1
    };
    struct fixture *f = *state;
    struct array a, w, want = array_new(f, 7, (int64_t[]){N, O, 1, Y, 1, Y, 1});
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(N, C, H, H)),
               *k = input(f, DTYPE_F32, &w, DIMS(O, C, K, K));
    struct uop *lo[4], *dim[7], *y = uop_int(f->t, Y), *kk = uop_int(f->t, K);
    dims_of(f, (int64_t[]){0, 0, P, P}, 4, lo);
    struct uop *p = uop_pad(f->t, x, uop_constf(f->t, DTYPE_F32, 0), lo, lo);
    p = uop_window(f->t, p, 2, y, kk, S, D);                     /* n c oy ky w */
    p = uop_window(f->t, p, 4, y, kk, S, D);                     /* n c oy ky ox kx */
    dims_of(f, (int64_t[]){N, O, C, Y, K, Y, K}, 7, dim);
    struct uop *one = uop_int(f->t, 1),
               *pdim[7] = {dim[0], one, dim[2], dim[3], dim[4], dim[5], dim[6]};
    struct uop *kdim[7] = {one, dim[1], dim[2], one, dim[4], one, dim[6]};
    p = uop_expand(f->t, uop_reshape(f->t, p, pdim, 7), dim);
    k = uop_expand(f->t, uop_reshape(f->t, k, kdim, 7), dim);
    struct uop *sum = uop_reduce(f->t, OP_ADD, uop_binary(f->t, OP_MUL, p, k),
                                 1u << 2 | 1u << 4 | 1u << 6);
    for (int n = 0; n < N; n++)
        for (int o = 0; o < O; o++)
            for (int oy = 0; oy < Y; oy++)
                for (int ox = 0; ox < Y; ox++)
                    for (int c = 0; c < C; c++)
                        for (int ky = 0; ky < K; ky++)
                            for (int kx = 0; kx < K; kx++) {
                                int iy = oy * S + ky * D - P, ix = ox * S + kx * D - P;
                                if (iy >= 0 && iy < H && ix >= 0 && ix < H)
                                    want.v[((n * O + o) * Y + oy) * Y + ox].f +=
                                        element(&a, (int64_t[]){n, c, iy, ix})->f *
                                        element(&w, (int64_t[]){o, c, ky, kx})->f;
                            }
    f->t->mem_limit = f->t->mem_used + 200000;
    check_array(f, sum, &want);
}

/* ------------------------------------------------------------------------------- indexed access */

static void test_index_scatter(void **state)
{
    struct fixture *f = *state;
    struct array a, i0, i1, v, want;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(4, 5));
    struct uop *p = input(f, DTYPE_I64, &i0, DIMS(3, 7)), *q = input(f, DTYPE_I64, &i1, DIMS(3, 7));
    want = array_new(f, 2, i0.dim);
    for (int64_t i = 0; i < want.n; i++) {
        bool inside = i0.v[i].i >= 0 && i0.v[i].i < 4 && i1.v[i].i >= 0 && i1.v[i].i < 5;
        want.v[i].f = inside ? a.v[i0.v[i].i * 5 + i1.v[i].i].f : 0;
    }
    check_array(f, uop_index(f->t, x, (struct uop *[]){p, q}), &want);
    struct uop *value = input(f, DTYPE_F32, &v, DIMS(3, 7));
    static const enum op ops[] = {OP_CONST, OP_ADD, OP_MUL, OP_MAX, OP_MIN};
    for (int k = 0; k < 5; k++) {
        struct array to = array_new(f, 2, a.dim);
        memcpy(to.v, a.v, (size_t)a.n * sizeof *a.v);
        for (int64_t i = 0; i < v.n; i++) {
            if (i0.v[i].i < 0 || i0.v[i].i >= 4 || i1.v[i].i < 0 || i1.v[i].i >= 5)
                continue;
            union scalar *e = &to.v[i0.v[i].i * 5 + i1.v[i].i];
            double y = v.v[i].f;
            e->f = k == 0   ? y
                   : k == 1 ? e->f + y
                   : k == 2 ? e->f * y
                   : k == 3 ? fmax(e->f, y)
                            : fmin(e->f, y);
        }
        check_array(f, uop_scatter(f->t, ops[k], x, value, (struct uop *[]){p, q}), &to);
    }
    struct array none;
    struct uop *empty = input(f, DTYPE_F32, &none, DIMS(0, 5));
    memset(want.v, 0, (size_t)want.n * sizeof *want.v);
    check_array(f, uop_index(f->t, empty, (struct uop *[]){p, q}), &want);
}

/* ---------------------------------------------------------------------------------------- depth */

static void test_long_chain(void **state)
{
    struct fixture *f = *state;
    struct array a, want;
    struct uop *x = input(f, DTYPE_F64, &a, DIMS(3, 5)), *one = uop_constf(f->t, DTYPE_F64, 1);
    want = array_new(f, 2, a.dim);
    for (int i = 0; i < 20000; i++)
        x = uop_binary(f->t, OP_ADD, x, one);
    for (int64_t i = 0; i < a.n; i++)
        want.v[i].f = a.v[i].f + 20000;
    check_array(f, x, &want);
}

/* x + flip(x), sixty times: two to the sixty if values were not shared. */
static void test_shared_values(void **state)
{
    struct fixture *f = *state;
    struct array a, want;
    struct uop *x = input(f, DTYPE_F64, &a, DIMS(4));
    want = array_new(f, 1, a.dim);
    memcpy(want.v, a.v, (size_t)a.n * sizeof *a.v);
    for (int i = 0; i < 60; i++) {
        x = uop_binary(f->t, OP_ADD, x, uop_flip(f->t, x, 1));
        double left = want.v[0].f + want.v[3].f, mid = want.v[1].f + want.v[2].f;
        want.v[0].f = want.v[3].f = left;
        want.v[1].f = want.v[2].f = mid;
    }
    f->budget = 1000000;
    check_array(f, x, &want);
}

/* -------------------------------------------------------------------------------------- symbols */

static void test_symbols(void **state)
{
    struct fixture *f = *state;
    struct array a, want;
    struct var *n = var_new(f->t, "n", 0, 100);
    struct uop *size = uop_var(f->t, n), *x = input(f, DTYPE_F32, &a, DIMS(12));
    struct uop *three = uop_int(f->t, 3),
               *dim[2] = {size, uop_binary(f->t, OP_FLOORDIV, uop_int(f->t, 12), size)};
    struct uop *u = uop_reduce(f->t, OP_ADD, uop_reshape(f->t, x, dim, 2), 2);
    struct uop *v = uop_binary(f->t, OP_MUL,
                               uop_cast(f->t, DTYPE_F32, uop_binary(f->t, OP_ADD, size, three)),
                               uop_constf(f->t, DTYPE_F32, 2));
    struct tensor *got;
    assert_false(try_eval(f, u, &got));                          /* no value for n */
    f->nvar = 1;
    f->var[n->id] = 4;
    want = array_new(f, 2, (int64_t[]){4, 1});
    for (int64_t i = 0; i < 12; i++)
        want.v[i / 3].f += a.v[i].f;
    check_array(f, u, &want);
    assert_true(((double *)eval_one(f, v)->data)[0] == 14);
    f->var[n->id] = 5;
    assert_false(try_eval(f, u, &got));                          /* 5 x 2 is not 12 */
    f->var[n->id] = -1;
    assert_false(try_eval(f, u, &got));
}

static void test_refusals(void **state)
{
    struct fixture *f = *state;
    struct array a;
    struct tensor *got;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(100, 100)),
               *u = uop_reduce(f->t, OP_ADD, uop_unary(f->t, OP_EXP, x), 3);
    f->budget = 5000;
    assert_false(try_eval(f, u, &got));
    f->budget = 100000;
    assert_true(try_eval(f, u, &got));
    f->budget = -1;
    f->nleaf = 0;
    assert_false(try_eval(f, u, &got));                          /* x is not given */
    struct uop *dim[3], *one = uop_int(f->t, 1), *ones[3] = {one, one, one};
    dims_of(f, (int64_t[]){1 << 30, 1 << 30, 1 << 30}, 3, dim);
    struct uop *bomb = uop_expand(f->t, uop_reshape(f->t, uop_constf(f->t, DTYPE_F32, 1), ones, 3),
                                  dim);
    /* more elements than can be counted */
    assert_false(try_eval(f, bomb, &got));
    dims_of(f, (int64_t[]){1 << 30, 1 << 10, 1}, 3, dim);
    bomb = uop_expand(f->t, uop_reshape(f->t, uop_constf(f->t, DTYPE_F32, 1), ones, 3), dim);
    f->budget = 1000000;
    f->t->mem_limit = f->t->mem_used + (1 << 20);
    assert_false(try_eval(f, bomb, &got));
}

/* -------------------------------------------------------------------------------------- weights */

static void test_weights(void **state)
{
    struct fixture *f = *state;
    const char *note = "";
    for (int d = DTYPE_BOOL; d <= DTYPE_F64; d++) {
        size_t size = dtype_nbytes((enum dtype)d);
        unsigned char *bytes = mem_array(f->t, 12, size), *back = mem_array(f->t, 12, size);
        bytes++;                                                 /* not aligned */
        struct array want = array_new(f, 1, (int64_t[]){11});
        for (int64_t i = 0; i < 11; i++) {
            union scalar v = dtype_is_float((enum dtype)d)
                                 ? scalar_cast((enum dtype)d, DTYPE_F64,
                                               (union scalar){.f = (double)i - 4})
                                 : scalar_cast((enum dtype)d, DTYPE_I64,
                                               (union scalar){.i = i - 4});
            scalar_store((enum dtype)d, bytes + (size_t)i * size, v);
            want.v[i] = scalar_load((enum dtype)d, bytes + (size_t)i * size);
        }
        struct uop *w = tensor_from_data(f->t, (enum dtype)d, (int64_t[]){11}, 1, bytes, 11 * size,
                                         note);
        check_array(f, w, &want);
        struct eval_env env = {.budget = 1000};
        int64_t left = 0;
        assert_true(eval_store(f->t, w, 11, &env, back, &left));
        assert_memory_equal(back, bytes, 11 * size);
        assert_true(left > 0 && left < 1000);
        assert_false(eval_store(f->t, w, 10, &env, back, NULL));
        if (size > 1)
            assert_false(eval_store(
                f->t,
                tensor_from_data(f->t, (enum dtype)d, (int64_t[]){11}, 1, bytes, 10 * size, note),
                11, &env, back, NULL));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_scalars),
        TEST(test_scalar_facts),
        TEST(test_elementwise_tensors),
        TEST(test_movement),
        TEST(test_concat_iota),
        TEST(test_reduce),
        TEST(test_reduce_order),
        TEST(test_matmul),
        TEST(test_product_of_factors),
        TEST(test_convolution),
        TEST(test_index_scatter),
        TEST(test_long_chain),
        TEST(test_shared_values),
        TEST(test_symbols),
        TEST(test_refusals),
        TEST(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
