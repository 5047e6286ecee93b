/* test_programs.c - what the linear programs of a graph look like: which loops are shared, what is
 * tiled, kept in bands, fetched ahead. What they compute is test_schedule.c's.
 */
#include "tests/unit/schedules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What is left of a matrix times one-hot rows, by case. */
static enum op op_of_onehot(struct fixture *f, int i)
{
    const int size[] = {9, 20};
    if (setjmp(f->t->stop))
        fail_msg("%s", f->t->ndiag ? f->t->diag[0].message : "stopped");
    struct uop *w = i == 2 ? INPUT(f, 9, 20) : make_weight(f, 2, size);
    if (i == 3)
        ((float *)(uintptr_t)((const struct buffer *)w->arg.p)->weight.data)[7] = INFINITY;
    if (i == 4)
        add_output(f, lib_matmul(&f->l, uop_cast(f->t, DTYPE_F32,
                                                 make_inputi(f, DTYPE_BOOL, 2, (int[]){4, 9})), w));
    else
        add_output(f, onehot(f, i ? DTYPE_I32 : DTYPE_I64, i ? 1 : 0, w));
    assert_true(pass_onehot(f->t, &f->g));
    const struct uop *u = f->g.output[0].value;
    while (u->op == OP_RESHAPE)
        u = u->src[0];
    return u->op;
}

/* One-hot rows are no sum, but of a matrix that may be infinite, or where nothing counts. */
static void test_onehot(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct fixture *f = fixture_new(1);
        assert_int_equal(op_of_onehot(f, i), i < 2 ? OP_INDEX : OP_REDUCE);
        fixture_free(f);
    }
}

static bool has_op(struct uop *const *linear, int n, enum op op)
{
    for (int i = 0; i < n; i++)
        if (linear[i]->op == op)
            return true;
    return false;
}

static int count_op(struct uop *const *linear, int n, enum op op)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += linear[i]->op == op;
    return count;
}

/* Loops that stand in no other. */
static int count_outermost(struct uop *const *linear, int n)
{
    int depth = 0, count = 0;
    for (int i = 0; i < n; i++) {
        count += linear[i]->op == OP_RANGE && depth == 0;
        depth += linear[i]->op == OP_RANGE ? 1 : linear[i]->op == OP_END ? -1 : 0;
    }
    return count;
}

static const struct variant *only_variant(struct fixture *f, struct uop *output)
{
    f->isa = ISA_AVX512;
    f->threads = 1;
    add_output(f, output);
    assert_int_equal(check(f, false), 1);
    assert_int_equal(f->schedule->kernel[0]->nvariant, 1);
    return &f->schedule->kernel[0]->variant[0];
}

/* Twelve rows and what they leave share the loop over heads and the packed keys, and each step of
 * scores is a tile. */
static void test_rows(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(1);
    const struct variant *v = only_variant(f, attention(f, 29, 37, NULL));
    assert_int_equal(count_outermost(v->linear, v->nlinear), 1);
    assert_true(count_op(v->linear, v->nlinear, OP_MULACC) >= 2 * 12 + 2 * 5);
    int scalars = 0;
    for (int i = 0; i < v->nlinear; i++)
        scalars += (v->linear[i]->op == OP_STORE && v->linear[i]->src[2]->op == OP_LOAD) ||
                   (v->linear[i]->op == OP_EXP && v->linear[i]->lanes == 1);
    assert_int_equal(scalars, 1);                     /* one copy of the keys, no exp */
    fixture_free(f);
}

/* Two pointwise layers, n channels between them. Returns the number of kernels. */
static int run_pointwise(struct fixture *f, int height, int width, int n)
{
    struct window_attr a = {.group = 1};
    if (setjmp(f->t->stop))
        fail();
    f->g.name = "pointwise layers";
    struct uop *x = lib_conv(&f->l, INPUT(f, 1, 4, height, width), WEIGHT(f, n, 4, 1, 1), NULL, &a);
    x = lib_binaryf(&f->l, OP_MAX, x, 0.0);
    add_output(f, lib_conv(&f->l, x, WEIGHT(f, 9, n, 1, 1), NULL, &a));
    return check(f, false);
}

/* Rows whose length is a multiple of 1 KB lie a line further apart; others do not. */
static void test_rows_apart(void **state)
{
    (void)state;
    const struct { int channels, stored; } layer[] = {{256, 256 + 16}, {512, 512 + 16}, {160, 160}};
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        struct fixture *f = fixture_new(1);
        assert_int_equal(run_pointwise(f, 4, 3, layer[i].channels), 2);
        const struct buffer *between = f->schedule->kernel[0]->buffer[0];
        int64_t inner = 0;
        for (int k = 0; k < between->ndim; k++)
            inner = between->dim[k]->arg.i > inner ? between->dim[k]->arg.i : inner;
        assert_int_equal(inner, layer[i].stored);
        fixture_free(f);
    }
}

/* What is far larger than a cache is passed on in bands that fit it. */
static void test_band_size(void **state)
{
    (void)state;
    if (cases_are("quick"))
        skip();
    for (size_t cache = 1 << 16; cache <= 1 << 20; cache <<= 4) {
        struct fixture *f = fixture_new(1);
        f->t->cache_nbytes = cache;
        int kernels = run_pointwise(f, 80, 32, 64);
        const struct kernel *k = f->schedule->kernel[0];
        double nbytes = 4;
        assert_int_equal(kernels, cache == 1 << 16 ? 1 : 2);
        assert_int_equal(k->nscratch, cache == 1 << 16);
        for (int d = 0; k->nscratch && d < k->scratch[0]->ndim; d++)
            nbytes *= (double)k->scratch[0]->dim[d]->arg.i;
        assert_true(nbytes <= (double)cache && (!k->nscratch || nbytes >= (double)cache / 4));
        fixture_free(f);
    }
}

/* A line of the next panel at each step, where a panel is used again and again; each line, where
 * it is used once and the weights are too many for a cache; nothing where they are small. */
static void test_prefetch(void **state)
{
    (void)state;
    if (cases_are("quick"))
        skip();
    const struct { int rows, steps, prefetches; } layer[] = {
        {41, 200, 1}, {3, 9000, 4}, {3, 200, 0}, {41, 50, 0}};
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        struct fixture *f = fixture_new(1);
        const int size[] = {512, layer[i].steps};
        const struct variant *v = only_variant(
            f, lib_linear(&f->l, INPUT(f, layer[i].rows, layer[i].steps), make_weight(f, 2, size),
                          NULL));
        assert_int_equal(count_op(v->linear, v->nlinear, OP_PREFETCH), layer[i].prefetches);
        /* a rest of rows uses the panel that is there */
        assert_int_equal(count_outermost(v->linear, v->nlinear), 1);
        const struct kernel *k = f->schedule->kernel[0];
        assert_int_equal(count_op(k->linear, k->nlinear, OP_PREFETCH), 0);
        fixture_free(f);
    }
}

/* A range is taken apart where it is divided, and what it is made of is tiled. */
static void test_divided(void **state)
{
    (void)state;
    for (int rest = 0; rest < 2; rest++) {
        struct fixture *f = fixture_new(1);
        f->isa = ISA_AVX512;
        f->threads = 1;
        add_output(f, rest ? case_digits_rest(f) : case_digits(f));
        assert_int_equal(check(f, false), 1);
        const struct kernel *k = f->schedule->kernel[0];
        assert_int_equal(k->nvariant, rest ? k->nvariant : 1);
        for (int i = 0; i <= k->nvariant; i++) {
            struct uop **linear = i ? k->variant[i - 1].linear : k->linear;
            int n = i ? k->variant[i - 1].nlinear : k->nlinear;
            assert_false(has_op(linear, n, OP_FLOORDIV));
            assert_false(has_op(linear, n, OP_FLOORMOD));
        }
        fixture_free(f);
    }
}

/* Flattened channels, which lie innermost, are summed up as they lie in memory. */
static void test_divided_sum(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(1);
    const int size[] = {48, 16 * 6 * 5};
    struct window_attr a = {.group = 1};
    f->isa = ISA_AVX512;
    f->threads = 1;
    if (setjmp(f->t->stop))
        fail();
    struct uop *x = lib_conv(&f->l, INPUT(f, 1, 4, 8, 7), WEIGHT(f, 16, 4, 3, 3), NULL, &a);
    x = lib_flatten(&f->l, lib_binaryf(&f->l, OP_MAX, x, 0.0), 1);
    add_output(f, lib_linear(&f->l, x, make_weight(f, 2, size), NULL));
    assert_int_equal(check(f, false), 2);
    const struct kernel *k = f->schedule->kernel[1];
    assert_int_equal(k->nvariant, 1);
    assert_false(has_op(k->variant[0].linear, k->variant[0].nlinear, OP_FLOORDIV));
    assert_false(has_op(k->variant[0].linear, k->variant[0].nlinear, OP_FLOORMOD));
    assert_int_equal(count_op(k->variant[0].linear, k->variant[0].nlinear, OP_RANGE), 3);
    fixture_free(f);
}

/* The programs of a 3x3 convolution by Winograd's tiles and what reads its result. */
static struct fixture *convolve(int side, int tile)
{
    struct fixture *f = fixture_new(1);
    struct uop *one = uop_int(f->t, 1);
    struct window_attr a = {.group = 1, .lo = {one, one}, .hi = {one, one}};
    f->isa = ISA_AVX512;
    f->threads = 1;
    f->tile = tile;
    if (setjmp(f->t->stop))
        fail();
    struct uop *x = lib_conv(&f->l, INPUT(f, 1, 16, side, side), WEIGHT(f, 16, 16, 3, 3), NULL, &a);
    add_output(f, lib_unary(&f->l, OP_EXP, x));
    check(f, false);
    return f;
}

/* The places of Winograd's tiles, 1 KB apart, get a line between them: V and M. With tiles of
 * another number they are not that far apart. */
static void test_spread(void **state)
{
    (void)state;
    const struct { int side, spread; } image[] = {{8, 2}, {6, 0}};
    for (size_t i = 0; i < sizeof image / sizeof *image; i++) {
        struct fixture *f = convolve(image[i].side, 2);
        int spread = 0;
        for (int k = 0; k < f->schedule->nbuffer; k++)
            spread += f->schedule->buffer[k]->storage != NULL;
        assert_int_equal(spread, image[i].spread);
        fixture_free(f);
    }
}

/* Winograd's results of tiles that lie partly outside of the image: one nest more stores only the
 * rows within it. Columns are whole tiles. */
static void test_clip(void **state)
{
    (void)state;
    const struct {
        int side, rows, columns, nests;
    } image[] = {{8, 8, 8, 1}, {6, 6, 8, 2}, {3, 3, 4, 1}};
    for (size_t i = 0; i < sizeof image / sizeof *image; i++) {
        struct fixture *f = convolve(image[i].side, 4);
        int found = 0;
        for (int k = 0; k < f->schedule->nkernel; k++) {
            const struct kernel *y = f->schedule->kernel[k];
            int64_t nelem = 1;
            for (int d = 0; d < y->buffer[0]->ndim; d++)
                nelem *= y->buffer[0]->dim[d]->arg.i;
            found += nelem == 16 * image[i].rows * image[i].columns &&
                     y->ast->nsrc == image[i].nests && y->buffer[0]->kind == BUFFER_TEMP;
        }
        assert_int_equal(found, 1);
        fixture_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onehot),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_apart),
        cmocka_unit_test(test_band_size),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_divided),
        cmocka_unit_test(test_divided_sum),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
