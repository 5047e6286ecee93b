/* test_linear.c - linear programs in the oracle: right ones against plain C, wrong ones refused;
 * vectors for their loops; and how uops are printed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "passes/passes.h"
#include "ir/oracle.h"
#include "tests/unit/fixture.h"

struct program_text { struct tgc *t; struct uop *u[256]; int n; };

static struct uop *put(struct program_text *p, enum op op, enum dtype d, struct uop *const *src,
                       int nsrc, int64_t bits)
{
    return p->u[p->n++] = uop_intern(p->t, op, d, src, nsrc, (union arg){.i = bits});
}
#define PUT(p, op, d, bits, ...)                                                                   \
    put((p), (op), (d), (struct uop *[]){__VA_ARGS__},                                             \
        (int)(sizeof((struct uop *[]){__VA_ARGS__}) / sizeof(struct uop *)), (bits))

static struct uop *open_loop(struct program_text *p, int64_t n, int id)
{
    return PUT(p, OP_RANGE, DTYPE_INDEX, id, uop_int(p->t, n));
}
static void close_loop(struct program_text *p, struct uop *r) { PUT(p, OP_END, DTYPE_VOID, 0, r); }
static struct uop *iadd(struct program_text *p, struct uop *a, struct uop *b)
{
    return PUT(p, OP_ADD, DTYPE_INDEX, 0, a, b);
}
static struct uop *imul(struct program_text *p, struct uop *a, int64_t b)
{
    return PUT(p, OP_MUL, DTYPE_INDEX, 0, a, uop_int(p->t, b));
}

/* y[m] = sum over k of a[m][k]; where: the depth at which the accumulator is declared: 0 too far
 * out, 1 right, 2 too far in. */
static void row_sums(struct program_text *p, struct uop *a, struct uop *y, int where)
{
    struct uop *zero = uop_constf(p->t, DTYPE_F32, 0), *acc = NULL;
    if (where == 0)
        acc = PUT(p, OP_ACC, DTYPE_F32, 0, zero);
    struct uop *m = open_loop(p, 4, 0), *row = imul(p, m, 5);
    if (where == 1)
        acc = PUT(p, OP_ACC, DTYPE_F32, 0, zero);
    struct uop *k = open_loop(p, 5, 1);
    if (where == 2)
        acc = PUT(p, OP_ACC, DTYPE_F32, 0, zero);
    struct uop *v = PUT(p, OP_LOAD, DTYPE_F32, 0, a, iadd(p, row, k)),
               *sum = PUT(p, OP_ADD, DTYPE_F32, 0, acc, v);
    PUT(p, OP_ASSIGN, DTYPE_F32, 0, acc, sum);
    close_loop(p, k);
    PUT(p, OP_STORE, DTYPE_F32, 0, y, m, acc);
    close_loop(p, m);
}

static bool verifies(struct fixture *f, const struct program_text *p)
{
    jmp_buf outer;
    memcpy(&outer, &f->t->stop, sizeof outer);
    volatile bool ok = false;
    if (!setjmp(f->t->stop))
        ok = linear_verify(f->t, p->u, p->n, "test");
    memcpy(&f->t->stop, &outer, sizeof outer);
    return ok;
}

static bool runs(struct fixture *f, const struct program_text *p)
{
    struct eval_env env = {f->leaf, f->value, f->nleaf, f->var, f->nvar, f->budget};
    volatile bool ok = false;
    if (!setjmp(f->t->stop))
        ok = eval_linear(f->t, p->u, p->n, &env);
    return ok;
}

static void test_linear_sums(void **state)
{
    struct fixture *f = *state;
    struct array a, out;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(4, 5)), *y = output_of(f, DTYPE_F32, &out, 4);
    for (int where = 0; where < 3; where++) {
        struct program_text p = {.t = f->t};
        row_sums(&p, x, y, where);
        assert_int_equal(verifies(f, &p), where == 1);
        if (where != 1)
            continue;
        assert_true(runs(f, &p));
        for (int m = 0; m < 4; m++) {
            double sum = 0;
            for (int k = 0; k < 5; k++)
                sum += a.v[m * 5 + k].f;
            assert_true(out.v[m].f == sum);
        }
    }
}

static void test_linear_guards(void **state)
{
    struct fixture *f = *state;
    struct array a, out;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(6)), *y = output_of(f, DTYPE_F32, &out, 9),
               *minus = uop_constf(f->t, DTYPE_F32, -1);
    struct program_text p = {.t = f->t};
    struct uop *i = open_loop(&p, 9, 0),
               *inside = PUT(&p, OP_LT, DTYPE_BOOL, 0, i, uop_int(f->t, 6));
    struct uop *v = PUT(&p, OP_LOAD, DTYPE_F32, 0, x, i, inside, minus);
    struct uop *odd = PUT(&p, OP_FLOORMOD, DTYPE_INDEX, 0, i, uop_int(f->t, 2)),
               *yes = PUT(&p, OP_EQ, DTYPE_BOOL, 0, odd, uop_int(f->t, 1));
    struct uop *guard = PUT(&p, OP_GUARD, DTYPE_VOID, 7, yes);
    PUT(&p, OP_STORE, DTYPE_F32, 0, y, i, v);
    PUT(&p, OP_ENDGUARD, DTYPE_VOID, 0, guard);
    close_loop(&p, i);
    assert_true(verifies(f, &p) && runs(f, &p));
    for (int k = 0; k < 9; k++)
        assert_true(out.v[k].f == (k % 2 == 0 ? 0 : k < 6 ? a.v[k].f : -1));
    f->budget = 10;
    assert_false(runs(f, &p));
    f->budget = -1;
    p.u[2] = uop_intern(f->t, OP_LOAD, DTYPE_F32, (struct uop *[]){x, i}, 2, (union arg){0});
    p.u[6] = uop_intern(f->t, OP_STORE, DTYPE_F32, (struct uop *[]){y, i, p.u[2]}, 3,
                        (union arg){0});
    assert_true(verifies(f, &p));
    assert_false(runs(f, &p));                                   /* reads beyond x */
    assert_true(f->t->bug);
}

/* y[i / div] = x[i] by two parts, or y[i] = y[i + shift]: do they meet? */
static bool race_of(struct fixture *f, struct uop *x, struct uop *y, int div, int shift, int nparts)
{
    struct program_text p = {.t = f->t};
    struct uop *i = uop_axis(f->t, uop_int(f->t, 6), AXIS_LOOP, WORKER_TEAM);
    p.u[p.n++] = i;
    struct uop *at = PUT(&p, OP_FLOORDIV, DTYPE_INDEX, 0, i, uop_int(f->t, div)),
               *from = iadd(&p, i, uop_int(f->t, shift)),
               *v = PUT(&p, OP_LOAD, DTYPE_F32, 0, shift ? y : x, from);
    PUT(&p, OP_STORE, DTYPE_F32, 0, y, at, v);
    close_loop(&p, i);
    struct race race = {0};
    struct touched *each[8] = {0};
    struct eval_env env = {f->leaf, f->value, f->nleaf, f->var, f->nvar, -1};
    env.parts = nparts;
    env.race = &race;
    env.touch = each;
    for (int k = 0; k < f->nleaf; k++)
        each[k] = mem_array(f->t, (size_t)f->value[k]->nelem, sizeof **each);
    for (env.part = 0; env.part < nparts; env.part++)
        assert_true(eval_linear(f->t, p.u, p.n, &env));
    return race.buffer != NULL;
}

static void test_races(void **state)
{
    struct fixture *f = *state;
    struct array a, out;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(6)), *y = output_of(f, DTYPE_F32, &out, 8);
    assert_false(race_of(f, x, y, 1, 0, 2));
    assert_false(race_of(f, x, y, 3, 0, 2));      /* 0 0 0 by one, 1 1 1 by the other */
    assert_true(race_of(f, x, y, 4, 0, 2));       /* both store y[0] */
    assert_false(race_of(f, x, y, 4, 0, 1));
    assert_true(race_of(f, x, y, 1, 1, 2));    /* y[3] is read by the first, stored by the second */
    assert_false(race_of(f, x, y, 1, 1, 1));
}

/* t[] is stored by one loop and read by another within a band; how the program is damaged. */
enum damage {
    SOUND,
    MOVED,                       /* both move along with the band */
    HALO,                        /* what is read depends on the band */
    TWICE,                       /* a band after the band does the same */
    MASKED,                      /* accesses beyond the end are masked, and so are some by data */
    TOO_FEW,
    BEHIND_BAND,                 /* read after the loop that stores it again and again */
    THREADS,
    OUT_OF_BOUNDS,
    READ_AHEAD,                  /* of the next band's */
    DATA,                        /* where it is stored is data */
    MASKED_BY_DATA,              /* data decides whether it is read beyond the end */
    NDAMAGE
};

static void band(struct program_text *p, struct uop *x, struct uop *y, enum damage d, struct uop *t)
{
    int64_t bits = ARG_PACK(RANGE, 0, AXIS_BAND, d == THREADS ? WORKER_TEAM : WORKER_EACH);
    bool masked = d == MASKED || d == MASKED_BY_DATA;
    struct uop *b = PUT(p, OP_RANGE, DTYPE_INDEX, bits, uop_int(p->t, 4));
    struct uop *i = open_loop(p, d == TOO_FEW ? 7 : 8, 1), *at = i;
    struct uop *v = PUT(p, OP_LOAD, DTYPE_F32, 0, x, i);
    if (d == MOVED || d == READ_AHEAD)
        at = iadd(p, imul(p, b, 8), i);
    if (d == OUT_OF_BOUNDS)
        at = iadd(p, i, uop_int(p->t, 57));
    if (masked)
        at = iadd(p, i, uop_int(p->t, 56));
    if (d == DATA)
        at = PUT(p, OP_CAST, DTYPE_INDEX, 0, v);
    PUT(p, OP_STORE, DTYPE_F32, 0, t, at, v);
    close_loop(p, i);
    if (d == BEHIND_BAND || d == THREADS)
        close_loop(p, b);
    struct uop *j = open_loop(p, d == HALO ? 5 : 8, 2), *from = j;
    if (d == MOVED || d == READ_AHEAD)
        from = iadd(p, imul(p, b, 8), d == READ_AHEAD ? iadd(p, j, uop_int(p->t, 1)) : j);
    if (d == HALO)
        from = iadd(p, b, j);
    if (d == OUT_OF_BOUNDS)
        from = iadd(p, j, uop_int(p->t, 57));
    struct uop *read;
    if (masked) {
        struct uop *data = PUT(p, OP_LOAD, DTYPE_F32, 0, x, j),
                   *zero = uop_constf(p->t, DTYPE_F32, 0),
                   *mask = PUT(p, OP_LT, DTYPE_BOOL, 0, zero, data);
        if (d == MASKED)
            mask = PUT(p, OP_AND, DTYPE_BOOL, 0,
                       PUT(p, OP_LT, DTYPE_BOOL, 0, j, uop_int(p->t, 7)), mask);
        from = iadd(p, j, uop_int(p->t, 57));
        read = PUT(p, OP_LOAD, DTYPE_F32, 0, t, from, mask, zero);
    } else {
        read = PUT(p, OP_LOAD, DTYPE_F32, 0, t, from);
    }
    PUT(p, OP_STORE, DTYPE_F32, 0, y, j, read);
    close_loop(p, j);
    if (d != BEHIND_BAND && d != THREADS)
        close_loop(p, b);
}

static void test_scratch(void **state)
{
    struct fixture *f = *state;
    struct array a, out;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(8)), *y = output_of(f, DTYPE_F32, &out, 8);
    for (int d = SOUND; d < NDAMAGE; d++) {
        struct program_text p = {.t = f->t};
        struct uop *size = uop_int(p.t, 64);
        struct uop *t = uop_buffer(p.t, buffer_new(p.t, BUFFER_SCRATCH, DTYPE_F32, &size, 1, NULL));
        struct scratch_proof proof = {0};
        volatile bool ok = false;
        jmp_buf outer;
        band(&p, x, y, (enum damage)d, t);
        if (d == TWICE)
            band(&p, x, y, (enum damage)d, t);
        assert_true(verifies(f, &p));                  /* nothing else is wrong with it */
        memcpy(&outer, &f->t->stop, sizeof outer);
        if (!setjmp(f->t->stop)) {
            scratch_verify(f->t, p.u, p.n, "test", &proof);
            ok = true;
        }
        memcpy(&f->t->stop, &outer, sizeof outer);
        assert_int_equal(ok, d <= MASKED || d >= DATA);
        assert_int_equal(proof.proved, d == TWICE ? 2 : d <= MASKED);
        assert_int_equal(proof.open, d >= DATA);
    }
}

/* Programs that a pass must not make; each must be refused. */
static void test_linear_refused(void **state)
{
    struct fixture *f = *state;
    struct array a, out;
    struct uop *x = input(f, DTYPE_F32, &a, DIMS(4)), *y = output_of(f, DTYPE_F32, &out, 4),
               *zero = uop_int(f->t, 0);
    struct program_text p = {.t = f->t};
    struct uop *r = open_loop(&p, 4, 0), *v = PUT(&p, OP_LOAD, DTYPE_F32, 0, x, r);
    assert_false(verifies(f, &p));                               /* not closed */
    close_loop(&p, r);
    assert_true(verifies(f, &p));
    PUT(&p, OP_STORE, DTYPE_F32, 0, y, zero, v);
    assert_false(verifies(f, &p));                               /* v is gone */
    p.n--;
    PUT(&p, OP_STORE, DTYPE_F32, 0, y, r, uop_constf(f->t, DTYPE_F32, 0));
    assert_false(verifies(f, &p));                               /* r is gone */
    p.n--;
    PUT(&p, OP_STORE, DTYPE_F32, 0, x, zero, uop_constf(f->t, DTYPE_F32, 0));
    assert_false(verifies(f, &p));                               /* x is an input */
    p.n--;
    PUT(&p, OP_STORE, DTYPE_F32, 0, y, zero, uop_int(f->t, 0));
    assert_false(verifies(f, &p));                               /* wrong dtype */
    p.n--;
    struct uop *dim = uop_int(f->t, 4),
               *s = uop_buffer(f->t, buffer_new(f->t, BUFFER_SCRATCH, DTYPE_F32, &dim, 1, NULL));
    PUT(&p, OP_LOAD, DTYPE_F32, 0, s, zero);
    assert_false(verifies(f, &p));                               /* nothing was stored there */
    p.n--;
    PUT(&p, OP_STORE, DTYPE_F32, 0, s, zero, uop_constf(f->t, DTYPE_F32, 0));
    PUT(&p, OP_LOAD, DTYPE_F32, 0, s, zero);
    assert_true(verifies(f, &p));
}
/* -------------------------------------------------------------------------------------- vectors */

/* sum of x[k], largest of x[k]: one loop, several accumulators */
static void sum_and_max(struct program_text *p, struct uop *x, struct uop *y, int64_t n)
{
    struct uop *zero = uop_constf(p->t, DTYPE_F32, 0);
    struct uop *sum = PUT(p, OP_ACC, DTYPE_F32, 0, zero), *max = PUT(p, OP_ACC, DTYPE_F32, 1, zero);
    struct uop *k = open_loop(p, n, 0), *v = PUT(p, OP_LOAD, DTYPE_F32, 0, x, k);
    struct uop *more = PUT(p, OP_ADD, DTYPE_F32, 0, sum, v);
    PUT(p, OP_ASSIGN, DTYPE_F32, 0, sum, more);
    struct uop *larger = PUT(p, OP_MAX, DTYPE_F32, 0, max, v);
    PUT(p, OP_ASSIGN, DTYPE_F32, 0, max, larger);
    close_loop(p, k);
    PUT(p, OP_STORE, DTYPE_F32, 0, y, uop_int(p->t, 0), sum);
    PUT(p, OP_STORE, DTYPE_F32, 0, y, uop_int(p->t, 1), max);
}

static void write_vectors(struct tgc *t, struct schedule *s, struct kernel *k)
{
    assert_true(pass_expand(t, s, k) && pass_half_vectors(t, s, k) && pass_prefetch(t, s, k) &&
                pass_drop_plain(t, s, k));
}

static void test_strips_of_two_sums(void **state)
{
    struct fixture *f = *state;
    passes_init(f->t);
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (int64_t n = 3; n < 300; n = n * 2 + 1) {
            struct array a, out;
            f->nleaf = 0;
            struct uop *x = input(f, DTYPE_F32, &a, DIMS(n)), *y = output_of(f, DTYPE_F32, &out, 2);
            struct program_text p = {.t = f->t};
            sum_and_max(&p, x, y, n);
            struct variant v = {.isa = (enum isa)isa, .linear = p.u, .nlinear = p.n};
            struct kernel k = {.variant = &v, .nvariant = 1}, *kernel = &k;
            struct schedule s = {.kernel = &kernel, .nkernel = 1};
            write_vectors(f->t, &s, &k);
            bool vectors = isa != ISA_GENERIC && n >= isa_table[isa].lanes;
            assert_int_equal(k.nvariant, vectors);
            struct program_text got = {.t = f->t, .n = v.nlinear};
            assert_true(v.nlinear <= (int)(sizeof got.u / sizeof *got.u));
            memcpy(got.u, v.linear, (size_t)v.nlinear * sizeof *v.linear);
            assert_true(verifies(f, &got) && runs(f, &got));
            double sum = 0, max = 0;
            for (int64_t i = 0; i < n; i++) {
                sum += a.v[i].f;
                max = a.v[i].f > max ? a.v[i].f : max;
            }
            assert_true(out.v[0].f == sum && out.v[1].f == max);
        }
}

/* y[i] = table[x[i]], x of dtype d; its least value has number 0 */
static void read_table(struct program_text *p, struct uop *table, struct uop *x, enum dtype d,
                       struct uop *y, int64_t n)
{
    struct uop *i = open_loop(p, n, 0), *key = PUT(p, OP_LOAD, d, 0, x, i);
    struct uop *at = PUT(p, OP_CAST, DTYPE_INDEX, 0, key);
    if (d == DTYPE_I8)
        at = iadd(p, at, uop_int(p->t, 128));
    struct uop *v = PUT(p, OP_LOAD, DTYPE_U8, 0, table, at);
    PUT(p, OP_STORE, DTYPE_U8, 0, y, i, v);
    close_loop(p, i);
}

static void test_strips_of_lookups(void **state)
{
    struct fixture *f = *state;
    unsigned char data[256];
    passes_init(f->t);
    for (int i = 0; i < 256; i++)
        data[i] = (unsigned char)(i * 37 + 11);
    struct uop *dim = uop_int(f->t, 256);
    struct buffer *b = buffer_new(f->t, BUFFER_WEIGHT, DTYPE_U8, &dim, 1, NULL);
    b->weight.data = data;
    b->nbytes = sizeof data;
    struct uop *table = uop_buffer(f->t, b);
    for (int i = 0; i < 4 * ISA_COUNT; i++) {
        enum isa isa = (enum isa)(i / 4);
        enum dtype d = i & 1 ? DTYPE_I8 : DTYPE_U8;
        int64_t n = i & 2 ? 5 : 300;
        struct array a, out;
        f->nleaf = 0;
        struct uop *x = input(f, d, &a, DIMS(n)), *y = output_of(f, DTYPE_U8, &out, n);
        for (int64_t k = 0; k < n; k++)
            a.v[k].i = k % 256 + dtype_min(d);
        struct program_text p = {.t = f->t};
        read_table(&p, table, x, d, y, n);
        struct variant v = {.isa = isa, .linear = p.u, .nlinear = p.n};
        struct kernel k = {.variant = &v, .nvariant = 1}, *kernel = &k;
        struct schedule s = {.kernel = &kernel, .nkernel = 1};
        write_vectors(f->t, &s, &k);
        bool has_lookup = isa_function((enum isa)isa, INTRINSIC_LOOKUP) != NULL;
        assert_int_equal(k.nvariant, has_lookup && n == 300);
        struct program_text got = {.t = f->t, .n = v.nlinear};
        memcpy(got.u, v.linear, (size_t)v.nlinear * sizeof *v.linear);
        assert_true(verifies(f, &got) && runs(f, &got));
        for (int64_t j = 0; j < n; j++)
            assert_int_equal(out.v[j].i, data[j % 256]);
    }
}

/* y[j][g] = x[g][j]: bytes that lie apart become groups */
static void test_strips_of_groups(void **state)
{
    struct fixture *f = *state;
    enum { COLUMNS = 37 };
    passes_init(f->t);
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        struct array a, out;
        f->nleaf = 0;
        struct uop *x = input(f, DTYPE_U8, &a, DIMS(4, COLUMNS));
        struct uop *y = output_of(f, DTYPE_U8, &out, 4 * COLUMNS);
        struct program_text p = {.t = f->t};
        struct uop *j = open_loop(&p, COLUMNS, 0), *g = open_loop(&p, 4, 1);
        struct uop *from = iadd(&p, imul(&p, g, COLUMNS), j), *to = iadd(&p, imul(&p, j, 4), g);
        struct uop *v = PUT(&p, OP_LOAD, DTYPE_U8, 0, x, from);
        PUT(&p, OP_STORE, DTYPE_U8, 0, y, to, v);
        close_loop(&p, g);
        close_loop(&p, j);
        struct variant variant = {.isa = (enum isa)isa, .linear = p.u, .nlinear = p.n};
        struct kernel k = {.variant = &variant, .nvariant = 1}, *kernel = &k;
        struct schedule s = {.kernel = &kernel, .nkernel = 1};
        write_vectors(f->t, &s, &k);
        assert_int_equal(k.nvariant, isa != ISA_GENERIC);
        struct program_text got = {.t = f->t, .n = variant.nlinear};
        memcpy(got.u, variant.linear, (size_t)variant.nlinear * sizeof *variant.linear);
        assert_true(verifies(f, &got) && runs(f, &got));
        for (int i = 0; i < 4 * COLUMNS; i++)
            assert_int_equal(out.v[i].i, a.v[i % 4 * COLUMNS + i / 4].i);
    }
}

/* Bytes from vectors of floats: saturated, half to even. */
static void test_nearest(void **state)
{
    struct fixture *f = *state;
    static const double value[4] = {-0.75, 1.5, 2.5, 300},
                        want[2][4] = {{0, 2, 2, 255}, {-1, 2, 2, 127}};
    for (int k = 0; k < 2; k++) {
        enum dtype d = k ? DTYPE_I8 : DTYPE_U8;
        f->nleaf = 0;
        struct array a, out;
        struct uop *x = input(f, DTYPE_F32, &a, DIMS(4));
        struct uop *y = output_of(f, d, &out, 4);
        for (int i = 0; i < 4; i++)
            a.v[i].f = value[i];
        struct program_text p = {.t = f->t};
        struct uop *v = PUT(&p, OP_LOAD, DTYPE_F32, ARG_PACK(VECTOR, 4, 0, 1), x, uop_int(f->t, 0));
        v = PUT(&p, OP_NEAREST, d, 0, v);
        PUT(&p, OP_STORE, d, ARG_PACK(VECTOR, 4, 0, 1), y, uop_int(f->t, 0), v);
        assert_true(verifies(f, &p) && runs(f, &p));
        for (int i = 0; i < 4; i++)
            assert_true((double)out.v[i].i == want[k][i]);
        p.n = 0;
        v = PUT(&p, OP_LOAD, DTYPE_F32, 0, x, uop_int(f->t, 0));
        v = PUT(&p, OP_NEAREST, d, 0, v);
        PUT(&p, OP_STORE, d, 0, y, uop_int(f->t, 0), v);
        assert_false(verifies(f, &p));                           /* no vector */
    }
}

/* ------------------------------------------------------------------------------------- printing */

static void expect_print(struct fixture *f, struct uop *u, const char *want)
{
    struct text out = {.t = f->t};
    uop_print(&out, u);
    assert_string_equal(out.s, want);
}

static void test_print(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct uop *a = uop_var(t, var_new(t, "a", 0, 100)), *b = uop_var(t, var_new(t, "b\n", 0, 100)),
               *two = uop_int(t, 2);
    struct uop *sum = uop_binary(t, OP_ADD, a, two), *product = uop_binary(t, OP_MUL, sum, b),
               *r = uop_range(t, a, 3);
    expect_print(f, product, "(a + 2)*b\\x0a");
    expect_print(f, uop_binary(t, OP_ADD, product, uop_int(t, -5)), "(a + 2)*b\\x0a - 5");
    expect_print(f, uop_binary(t, OP_SUB, a, uop_binary(t, OP_SUB, a, two)), "a - (a - 2)");
    expect_print(f, uop_binary(t, OP_FLOORMOD, uop_binary(t, OP_FLOORDIV, r, two), two), "r3//2%2");
    expect_print(f, uop_where(t, uop_binary(t, OP_LT, r, two), a, b), "r3 < 2 ? a : b\\x0a");
    expect_print(f, uop_constf(t, DTYPE_F64, 0.1), "0.1");
    expect_print(f, uop_constf(t, DTYPE_F32, 0.1), "0.10000000149011612");
    expect_print(f, uop_constf(t, DTYPE_F32, 3), "3.0");
    for (int i = 0; i < 5000; i++)
        sum = uop_unary(t, OP_NEG, sum);
    struct text deep = {.t = t};
    uop_print(&deep, sum);
    assert_non_null(strstr(deep.s, "neg(...)"));
    struct array x;
    struct uop *in = input(f, DTYPE_F32, &x, DIMS(2, 3));
    struct graph_output out = {"y\"", uop_reduce(t, OP_ADD, uop_unary(t, OP_EXP, in), 2)};
    struct graph g = {.ninput = 1, .input = &in, .noutput = 1, .output = &out};
    struct text whole = {.t = t};
    graph_print(&whole, t, &g);
    assert_non_null(strstr(whole.s, "input  %input"));
    assert_non_null(strstr(whole.s, " : f32[2, 3] \"x\"\n"));
    assert_non_null(strstr(whole.s, "{op=add, axes=[1]}"));
    assert_non_null(strstr(whole.s, " as \"y\\\"\"\n"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_linear_sums),
        TEST(test_races),
        TEST(test_linear_guards),
        TEST(test_linear_refused),
        TEST(test_scratch),
        TEST(test_strips_of_two_sums),
        TEST(test_strips_of_lookups),
        TEST(test_strips_of_groups),
        TEST(test_nearest),
        TEST(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
