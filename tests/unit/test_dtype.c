/* test_dtype.c - every code of every 8- and 16-bit kind, against a formulation that shares nothing
 * with dtype.c.
 *
 * Values are written down from the formats' definitions with ldexp. Rounding is checked from the
 * outside: between each two neighbouring values, the midpoint and the doubles just beside it must
 * go to the side that the definition of "nearest, ties to even" names. Integer kinds are compared
 * with C's own conversions.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ir/ir.h"

/* A float format as its definition tells it: largest finite code, and the infinity's code or -1. */
struct spec {
    enum dtype dtype;
    int nexp, nman, bias;
    unsigned max;
    int inf;
    bool saturates, unsigned_zero;
    double largest, smallest;
};
static const struct spec specs[] = {
    {DTYPE_F4E2M1, 2, 1, 1, 0x7, -1, true, false, 6, 0.5},
    {DTYPE_F6E2M3, 2, 3, 1, 0x1f, -1, true, false, 7.5, 0.125},
    {DTYPE_F6E3M2, 3, 2, 3, 0x1f, -1, true, false, 28, 0.0625},
    {DTYPE_F8E4M3FN, 4, 3, 7, 0x7e, -1, true, false, 448, 0x1p-9},
    {DTYPE_F8E4M3FNUZ, 4, 3, 8, 0x7f, -1, true, true, 240, 0x1p-10},
    {DTYPE_F8E5M2, 5, 2, 15, 0x7b, 0x7c, true, false, 57344, 0x1p-16},
    {DTYPE_F8E5M2FNUZ, 5, 2, 16, 0x7f, -1, true, true, 57344, 0x1p-17},
    {DTYPE_BF16, 8, 7, 127, 0x7f7f, 0x7f80, false, false, 3.3895313892515355e38, 0x1p-133},
    {DTYPE_F16, 5, 10, 15, 0x7bff, 0x7c00, false, false, 65504, 0x1p-24},
};
enum { NSPEC = sizeof specs / sizeof *specs };

static double value_of(const struct spec *s, unsigned magnitude)
{
    int e = (int)(magnitude >> s->nman), m = (int)(magnitude & ((1u << s->nman) - 1));
    return e == 0 ? ldexp(m, 1 - s->bias - s->nman)
                  : ldexp(m + (1 << s->nman), e - s->bias - s->nman);
}

static double load(enum dtype d, unsigned code)
{
    unsigned char b[2] = {(unsigned char)code, (unsigned char)(code >> 8)};
    return scalar_load(d, b).f;
}

static unsigned store(enum dtype d, double x)
{
    unsigned char b[2] = {0, 0};
    scalar_store(d, b, (union scalar){.f = x});
    return b[0] | (unsigned)b[1] << 8;
}

static double cast(enum dtype d, double x)
{
    return scalar_cast(d, DTYPE_F64, (union scalar){.f = x}).f;
}
static int64_t to_int(enum dtype d, double x)
{
    return scalar_cast(d, DTYPE_F64, (union scalar){.f = x}).i;
}
static int64_t wrap(enum dtype d, int64_t x)
{
    return scalar_cast(d, DTYPE_I64, (union scalar){.i = x}).i;
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void test_decode(void **state)
{
    (void)state;
    for (int i = 0; i < NSPEC; i++) {
        const struct spec *s = &specs[i];
        unsigned sign = 1u << (s->nexp + s->nman);
        assert_true(value_of(s, s->max) == s->largest && value_of(s, 1) == s->smallest);
        for (unsigned m = 0; m < sign; m++) {
            double want = m <= s->max ? value_of(s, m) : (int)m == s->inf ? INFINITY : NAN;
            double minus = m == 0 && s->unsigned_zero ? NAN : -want;
            assert_true(same(load(s->dtype, m), want));
            assert_true(same(load(s->dtype, m | sign), minus));
            if (!isnan(want))
                assert_int_equal(store(s->dtype, want), m);
            if (!isnan(minus))
                assert_int_equal(store(s->dtype, minus), m | sign);
        }
    }
}

static void test_round_to_nearest_even(void **state)
{
    (void)state;
    for (int i = 0; i < NSPEC; i++) {
        const struct spec *s = &specs[i];
        for (unsigned m = 0; m < s->max; m++) {
            double a = value_of(s, m), b = value_of(s, m + 1), mid = a + (b - a) / 2,
                   even = m & 1 ? b : a;
            double in[4] = {nextafter(mid, a), mid, nextafter(mid, b), a + (b - a) / 4};
            double want[4] = {a, even, b, a};
            for (int k = 0; k < 4; k++) {
                double negative = want[k] == 0 && s->unsigned_zero ? 0 : -want[k];
                assert_true(same(cast(s->dtype, in[k]), want[k]));
                assert_true(same(cast(s->dtype, -in[k]), negative));
                assert_true(same(load(s->dtype, store(s->dtype, in[k])), want[k]));
            }
        }
    }
}

static void test_above_the_largest(void **state)
{
    (void)state;
    for (int i = 0; i < NSPEC; i++) {
        const struct spec *s = &specs[i];
        double max = s->largest, ulp = max - value_of(s, s->max - 1),
               over = s->saturates ? max : INFINITY;
        assert_true(cast(s->dtype, nextafter(max + ulp / 2, 0)) == max);
        assert_true(cast(s->dtype, max + ulp) == over);
        assert_true(cast(s->dtype, -DBL_MAX) == -over);
        assert_true(cast(s->dtype, INFINITY) == over);
        assert_true(cast(s->dtype, -INFINITY) == -over);
        if (s->dtype == DTYPE_F4E2M1 || s->dtype == DTYPE_F6E2M3 || s->dtype == DTYPE_F6E3M2)
            assert_true(cast(s->dtype, NAN) == 0);
        else
            assert_true(isnan(cast(s->dtype, NAN)));
        if (s->inf >= 0)
            /* memory keeps what it can hold */
            assert_int_equal(store(s->dtype, INFINITY), s->inf);
    }
    assert_true(cast(DTYPE_F16, 65520) == INFINITY);
    assert_true(cast(DTYPE_F16, 65519.999) == 65504);
}

/* What cvt.rna.tf32.f32 does to each float: 0x1000 is added to its bits, and the last 13 of them
 * are dropped. */
static void test_tf32(void **state)
{
    (void)state;
    static const uint32_t ends[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000};
    for (uint32_t high = 0; high < 0x7f800000; high += 0x2000 * 37)
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            uint32_t bits = high + ends[i], want = (bits + 0x1000) & ~(uint32_t)0x1fff, got;
            float x, y;
            memcpy(&x, &bits, sizeof x);
            memcpy(&y, &want, sizeof y);
            if (bits >= 0x7f800000)
                continue;
            assert_true(same(cast(DTYPE_TF32, (double)x), (double)y));
            assert_true(same(cast(DTYPE_TF32, -(double)x), -(double)y));
            scalar_store(DTYPE_TF32, &got, (union scalar){.f = (double)x});
            assert_int_equal(got, want);
            assert_true(same(scalar_load(DTYPE_TF32, &got).f, (double)y));
        }
    assert_true(cast(DTYPE_TF32, (double)FLT_MAX) == INFINITY);
    assert_true(cast(DTYPE_TF32, -INFINITY) == -INFINITY);
    assert_true(isnan(cast(DTYPE_TF32, NAN)));
    /* half of the last bit: away from zero */
    assert_true(cast(DTYPE_TF32, 1 + 0x1p-11) == 1 + 0x1p-10);
    assert_true(cast(DTYPE_TF32, 1 + 0x1p-11 - 0x1p-40) == 1);     /* of a double: once */
}

static void test_e8m0(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++) {
        double x = ldexp(1, code - 127);
        assert_true(load(DTYPE_F8E8M0, (unsigned)code) == x);
        assert_int_equal(store(DTYPE_F8E8M0, x), code);
        assert_int_equal(store(DTYPE_F8E8M0, nextafter(x, 0)), code);
        assert_int_equal(store(DTYPE_F8E8M0, -x), code);
        assert_int_equal(store(DTYPE_F8E8M0, nextafter(x, INFINITY)), code == 254 ? 254 : code + 1);
    }
    assert_true(isnan(load(DTYPE_F8E8M0, 255)));
    assert_int_equal(store(DTYPE_F8E8M0, NAN), 255);
    assert_int_equal(store(DTYPE_F8E8M0, 0), 0);
}

/* The hardware rounds to single precision; its bits say what must be in memory. */
static void test_f32_f64(void **state)
{
    (void)state;
    const double x[] = {
        0, -0.0, 1, 0.1, 1e-45, 7e-46, 0x1.000001p0, 0x1.000003p0, 3.4028235e38, -1e308, INFINITY};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        volatile float want = (float)x[i];
        float got;
        double d;
        scalar_store(DTYPE_F32, &got, (union scalar){.f = x[i]});
        assert_true(same(got, want) && same(cast(DTYPE_F32, x[i]), want) &&
                    same(scalar_load(DTYPE_F32, &got).f, want));
        scalar_store(DTYPE_F64, &d, (union scalar){.f = x[i]});
        assert_true(same(d, x[i]) && same(scalar_load(DTYPE_F64, &d).f, x[i]));
    }
}

static void test_integer_memory(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        uint8_t b = (uint8_t)code;
        assert_int_equal(scalar_load(DTYPE_I8, &b).i, (int8_t)b);
        assert_int_equal(scalar_load(DTYPE_U8, &b).i, b);
        assert_int_equal(scalar_load(DTYPE_U4, &b).i, code % 16);
        assert_int_equal(scalar_load(DTYPE_I4, &b).i, code % 16 < 8 ? code % 16 : code % 16 - 16);
        assert_int_equal(scalar_load(DTYPE_U2, &b).i, code % 4);
        assert_int_equal(scalar_load(DTYPE_I2, &b).i, code % 4 < 2 ? code % 4 : code % 4 - 4);
        assert_int_equal(scalar_load(DTYPE_BOOL, &b).i, code != 0);
        for (int k = 0; k < 5; k++) {
            static const enum dtype d[5] = {DTYPE_I2, DTYPE_U2, DTYPE_I4, DTYPE_U4, DTYPE_I8};
            int64_t v = scalar_load(d[k], &b).i;
            uint8_t again;
            scalar_store(d[k], &again, (union scalar){.i = v});
            assert_int_equal(k == 4 || dtype_min(d[k]) < 0 ? (int64_t)(int8_t)again : again, v);
        }
    }
    for (int code = 0; code < 65536; code++) {
        uint16_t b = (uint16_t)code;
        assert_int_equal(scalar_load(DTYPE_I16, &b).i, (int16_t)b);
        assert_int_equal(scalar_load(DTYPE_U16, &b).i, b);
        assert_int_equal(wrap(DTYPE_I16, 5 * 65536 + code), (int16_t)b);
        assert_int_equal(wrap(DTYPE_U8, -65536 + code), (uint8_t)code);
        assert_int_equal(wrap(DTYPE_I8, code), (int8_t)code);
    }
    uint32_t b4 = 0x80000001u;
    uint64_t b8 = 0x8000000000000001u;
    assert_int_equal(scalar_load(DTYPE_I32, &b4).i, INT32_MIN + 1);
    assert_int_equal(scalar_load(DTYPE_U32, &b4).i, 0x80000001u);
    assert_int_equal(scalar_load(DTYPE_I64, &b8).i, INT64_MIN + 1);
    assert_int_equal(scalar_load(DTYPE_U64, &b8).i, INT64_MIN + 1);
    scalar_store(DTYPE_U32, &b4, (union scalar){.i = -2});
    assert_int_equal(b4, 0xfffffffeu);
}

static void test_float_to_integer(void **state)
{
    (void)state;
    for (int d = DTYPE_I2; d <= DTYPE_U64; d++) {
        enum dtype k = (enum dtype)d;
        int64_t top = k == DTYPE_U64 ? -1 : dtype_max(k);
        assert_int_equal(to_int(k, NAN), 0);
        assert_int_equal(to_int(k, 1.99), 1);
        assert_int_equal(to_int(k, -0.99), 0);
        assert_int_equal(to_int(k, 1e300), top);
        assert_int_equal(to_int(k, INFINITY), top);
        assert_int_equal(to_int(k, -INFINITY), dtype_min(k));
        if (dtype_bits(k) < 64) {
            assert_int_equal(to_int(k, (double)dtype_max(k) + 0.5), top);
            assert_int_equal(to_int(k, (double)dtype_max(k) + 1), top);
            assert_int_equal(to_int(k, (double)dtype_min(k) - 0.5), dtype_min(k));
            assert_int_equal(to_int(k, (double)dtype_min(k) - 1), dtype_min(k));
        }
    }
    assert_int_equal(to_int(DTYPE_I8, -7.9), -7);
    assert_int_equal(to_int(DTYPE_I64, 0x1.fffffffffffffp62), 0x7ffffffffffffc00);
    assert_int_equal(to_int(DTYPE_U64, 0x1p63), INT64_MIN);
    assert_int_equal(to_int(DTYPE_BOOL, 0.25), 1);
    assert_int_equal(to_int(DTYPE_BOOL, NAN), 1);
    assert_int_equal(to_int(DTYPE_BOOL, -0.0), 0);
    assert_int_equal(wrap(DTYPE_BOOL, 256), 1);
}

/* Integers that a double cannot hold must still be rounded once. */
static void test_integer_to_float(void **state)
{
    (void)state;
    const int64_t v[] = {0,
                         1,
                         -1,
                         INT64_MAX,
                         INT64_MIN,
                         0x7fffffbfffffffff,
                         0x4000004000000001,
                         0x4000004000000000,
                         -0x4000004000000001,
                         16777217,
                         (int64_t)1 << 62 | 1};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        union scalar s = {.i = v[i]};
        assert_true(scalar_cast(DTYPE_F32, DTYPE_I64, s).f == (double)(float)v[i]);
        assert_true(scalar_cast(DTYPE_F32, DTYPE_U64, s).f == (double)(float)(uint64_t)v[i]);
        assert_true(scalar_cast(DTYPE_F64, DTYPE_I64, s).f == (double)v[i]);
        assert_true(scalar_cast(DTYPE_F64, DTYPE_U64, s).f == (double)(uint64_t)v[i]);
    }
    /* just above the middle of two bf16 */
    union scalar half = {.i = 0x4040000000000001};
    assert_true(scalar_cast(DTYPE_BF16, DTYPE_I64, half).f == 0x1.02p62);
    half.i = 0x4040000000000000;
    assert_true(scalar_cast(DTYPE_BF16, DTYPE_I64, half).f == 0x1p62);
    assert_true(scalar_cast(DTYPE_F16, DTYPE_I32, (union scalar){.i = 100000}).f == INFINITY);
}

static void test_table(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype back = DTYPE_COUNT, k = (enum dtype)d;
        assert_int_equal(dtype_parse(dtype_name(k), &back), k != DTYPE_VOID);
        assert_int_equal(back, k == DTYPE_VOID ? DTYPE_COUNT : k);
        assert_int_equal(dtype_from_onnx(dtype_to_onnx(k)), k == DTYPE_TF32 ? DTYPE_VOID : k);
    }
    enum dtype d;
    assert_false(dtype_parse("f33", &d));
    assert_int_equal(dtype_from_onnx(-3), DTYPE_VOID);
    assert_int_equal(dtype_nbytes(DTYPE_U2), 1);
    assert_int_equal(dtype_min(DTYPE_I4), -8);
    assert_int_equal(dtype_max(DTYPE_U32), 0xffffffffu);
    assert_int_equal(dtype_min(DTYPE_I64), INT64_MIN);
    assert_int_equal(dtype_max(DTYPE_I64), INT64_MAX);
    assert_int_equal(dtype_max(DTYPE_BOOL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_round_to_nearest_even),
        cmocka_unit_test(test_above_the_largest),
        cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_f32_f64),
        cmocka_unit_test(test_integer_memory),
        cmocka_unit_test(test_float_to_integer),
        cmocka_unit_test(test_integer_to_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
