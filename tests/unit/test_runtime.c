/* test_runtime.c - the arithmetic that emitted programs carry, against ir/dtype.c, C's libm and
 * exact integers. */
#include "ir/ir.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define bits_f32 math_bits_f32
#define float_bits math_float_bits
#define bits_f64 math_bits_f64
#define double_bits math_double_bits
#include "runtime/math.c"
#undef bits_f32
#undef float_bits
#undef bits_f64
#undef double_bits
#include "runtime/number.c"

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

/* -------------------------------------------------------------------------------- narrow floats */

struct format {
    enum dtype dtype;
    int ncode;
    float (*load8)(uint8_t);
    uint8_t (*store8)(float);
    float (*load16)(uint16_t);
    uint16_t (*store16)(float);
};
static const struct format formats[] = {
    {DTYPE_F16, 65536, NULL, NULL, f16_to_f32, f32_to_f16},
    {DTYPE_BF16, 65536, NULL, NULL, bf16_to_f32, f32_to_bf16},
    {DTYPE_F8E4M3FN, 256, f8e4m3fn_to_f32, f32_to_f8e4m3fn, 0, 0},
    {DTYPE_F8E4M3FNUZ, 256, f8e4m3fnuz_to_f32, f32_to_f8e4m3fnuz, 0, 0},
    {DTYPE_F8E5M2, 256, f8e5m2_to_f32, f32_to_f8e5m2, 0, 0},
    {DTYPE_F8E5M2FNUZ, 256, f8e5m2fnuz_to_f32, f32_to_f8e5m2fnuz, 0, 0},
    {DTYPE_F8E8M0, 256, f8e8m0_to_f32, f32_to_f8e8m0, 0, 0},
    {DTYPE_F4E2M1, 16, f4e2m1_to_f32, f32_to_f4e2m1, 0, 0},
    {DTYPE_F6E2M3, 64, f6e2m3_to_f32, f32_to_f6e2m3, 0, 0},
    {DTYPE_F6E3M2, 64, f6e3m2_to_f32, f32_to_f6e3m2, 0, 0},
};

static void check_load(const struct format *f, int code)
{
    uint8_t b1 = (uint8_t)code;
    uint16_t b2 = (uint16_t)code;
    double want = scalar_load(f->dtype, f->load8 ? (void *)&b1 : (void *)&b2).f,
           got = (double)(f->load8 ? f->load8(b1) : f->load16(b2));
    if (!(got == want && !signbit(got) == !signbit(want)) && !(got != got && want != want))
        fail_msg("%s code %d reads as %g, should be %g", dtype_name(f->dtype), code, got, want);
}

static void check_store(const struct format *f, float v)
{
    uint8_t b1 = 0;
    uint16_t b2 = 0;
    union scalar want = scalar_cast(f->dtype, DTYPE_F32, (union scalar){.f = (double)v});
    scalar_store(f->dtype, f->store8 ? (void *)&b1 : (void *)&b2, want);
    unsigned wanted = f->store8 ? b1 : b2, got = f->store8 ? f->store8(v) : f->store16(v);
    if (got != wanted)
        fail_msg("%a stored as %s is %#x, should be %#x", (double)v, dtype_name(f->dtype), got,
                 wanted);
}

static void test_narrow_floats(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const struct format *f = &formats[k];
        for (int code = 0; code < f->ncode; code++)
            check_load(f, code);
        /* each value, and the middle between neighbours with what is around it */
        for (int code = 0; code + 1 < f->ncode; code++) {
            float a = f->load8 ? f->load8((uint8_t)code) : f->load16((uint16_t)code);
            float b = f->load8 ? f->load8((uint8_t)(code + 1)) : f->load16((uint16_t)(code + 1));
            float middle = a + (b - a) / 2;
            check_store(f, a);
            check_store(f, middle);
            check_store(f, nextafterf(middle, INFINITY));
            check_store(f, nextafterf(middle, -INFINITY));
        }
        for (int i = 0; i < 200000; i++)
            check_store(f, float_bits((uint32_t)next_random(&seed)));
    }
}

/* ------------------------------------------------------------------------------------- integers */

static const int64_t edges[] = {
    0,         1,         -1,           2,  -2, 3,         7,         -7,
    100,       31,        32,           63, 64, INT32_MAX, INT32_MIN, INT32_MIN + 1,
    INT64_MAX, INT64_MIN, INT64_MIN + 1};
enum { NEDGE = sizeof edges / sizeof *edges };

static void expect(enum op op, enum dtype d, int64_t a, int64_t b, int64_t got)
{
    union scalar v[3] = {{.i = a}, {.i = b}, {.i = 0}}, want;
    if (!scalar_apply(op, d, d, v, &want))
        return;                                                  /* the IR leaves this open */
    if (got != want.i)
        fail_msg("%s of %s %" PRId64 " and %" PRId64 " is %" PRId64 ", should be %" PRId64,
                 op_name(op), dtype_name(d), a, b, got, want.i);
}

static void test_integers(void **state)
{
    (void)state;
    for (int i = 0; i < NEDGE; i++)
        for (int j = 0; j < NEDGE; j++) {
            int64_t a = edges[i], b = edges[j];
            expect(OP_ADD, DTYPE_I64, a, b, add_i64(a, b));
            expect(OP_SUB, DTYPE_I64, a, b, sub_i64(a, b));
            expect(OP_MUL, DTYPE_I64, a, b, mul_i64(a, b));
            expect(OP_DIV, DTYPE_I64, a, b, div_i64(a, b));
            expect(OP_MOD, DTYPE_I64, a, b, mod_i64(a, b));
            expect(OP_FLOORDIV, DTYPE_I64, a, b, floordiv_i64(a, b));
            expect(OP_FLOORMOD, DTYPE_I64, a, b, floormod_i64(a, b));
            expect(OP_SHL, DTYPE_I64, a, b, shl_i64(a, b));
            expect(OP_SHR, DTYPE_I64, a, b, shr_i64(a, b));
            expect(OP_POW, DTYPE_I64, a, b, b >= 0 ? pow_i64(a, b) : 0);
            expect(OP_DIV, DTYPE_U64, a, b, (int64_t)div_u64((uint64_t)a, (uint64_t)b));
            expect(OP_MOD, DTYPE_U64, a, b, (int64_t)mod_u64((uint64_t)a, (uint64_t)b));
            if (a != (int32_t)a || b != (int32_t)b)
                continue;
            int32_t x = (int32_t)a, y = (int32_t)b;
            expect(OP_ADD, DTYPE_I32, a, b, add_i32(x, y));
            expect(OP_SUB, DTYPE_I32, a, b, sub_i32(x, y));
            expect(OP_MUL, DTYPE_I32, a, b, mul_i32(x, y));
            expect(OP_DIV, DTYPE_I32, a, b, div_i32(x, y));
            expect(OP_MOD, DTYPE_I32, a, b, mod_i32(x, y));
            expect(OP_FLOORDIV, DTYPE_I32, a, b, floordiv_i32(x, y));
            expect(OP_FLOORMOD, DTYPE_I32, a, b, floormod_i32(x, y));
            expect(OP_SHL, DTYPE_I32, a, b, shl_i32(x, y));
            expect(OP_SHR, DTYPE_I32, a, b, shr_i32(x, y));
        }
}

static void test_float_to_int(void **state)
{
    (void)state;
    static const double value[] = {0,
                                   0.5,
                                   -0.5,
                                   1.9,
                                   -1.9,
                                   127.5,
                                   128,
                                   -128.9,
                                   -129,
                                   255.9,
                                   256,
                                   2147483647.0,
                                   2147483648.0,
                                   -2147483648.0,
                                   -2147483649.0,
                                   4294967295.0,
                                   4294967296.0,
                                   9.3e18,
                                   -9.3e18,
                                   1.9e19,
                                   1e300,
                                   -1e300,
                                   INFINITY,
                                   -INFINITY,
                                   NAN};
    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        union scalar v = {.f = value[i]};
        assert_int_equal(to_i32_f64(value[i]), scalar_cast(DTYPE_I32, DTYPE_F64, v).i);
        assert_int_equal(to_i64_f64(value[i]), scalar_cast(DTYPE_I64, DTYPE_F64, v).i);
        assert_int_equal(to_u32_f64(value[i]), scalar_cast(DTYPE_U32, DTYPE_F64, v).i);
        assert_int_equal((int64_t)to_u64_f64(value[i]), scalar_cast(DTYPE_U64, DTYPE_F64, v).i);
        assert_int_equal(to_int_f64(value[i], -128, 127), scalar_cast(DTYPE_I8, DTYPE_F64, v).i);
        assert_int_equal(to_int_f64(value[i], 0, 255), scalar_cast(DTYPE_U8, DTYPE_F64, v).i);
        assert_int_equal(to_int_f64(value[i], -8, 7), scalar_cast(DTYPE_I4, DTYPE_F64, v).i);
        for (int step = -1; step <= 1; step++) {          /* the floats around it */
            float x = (float)value[i];
            x = step ? nextafterf(x, step < 0 ? -INFINITY : INFINITY) : x;
            v.f = (double)x;
            assert_int_equal(to_i32(x), scalar_cast(DTYPE_I32, DTYPE_F64, v).i);
            assert_int_equal(to_i64(x), scalar_cast(DTYPE_I64, DTYPE_F64, v).i);
            assert_int_equal(to_u32(x), scalar_cast(DTYPE_U32, DTYPE_F64, v).i);
            assert_int_equal((int64_t)to_u64(x), scalar_cast(DTYPE_U64, DTYPE_F64, v).i);
            assert_int_equal(to_int(x, -128, 127), scalar_cast(DTYPE_I8, DTYPE_F64, v).i);
            assert_int_equal(to_int(x, 0, 65535), scalar_cast(DTYPE_U16, DTYPE_F64, v).i);
            assert_int_equal(to_int(x, -32768, 32767), scalar_cast(DTYPE_I16, DTYPE_F64, v).i);
        }
    }
}

/* ------------------------------------------------------------------------- elementary functions */

struct function {
    const char *name;
    double (*f64)(double), (*libm)(double);
    float (*f32)(float);
    double ulp64, ulp32, low, high;
};
static const struct function functions[] = {
    {"exp", exp_f64, exp, exp_f32, 2, 1.5, -100, 100},
    {"log", log_f64, log, log_f32, 2, 1, 0, 1e6},
    {"sin", sin_f64, sin, sin_f32, 3, 1, -1000, 1000},
    {"cos", cos_f64, cos, cos_f32, 3, 1, -1000, 1000},
    {"tan", tan_f64, tan, tan_f32, 5, 1, -10, 10},
    {"asin", asin_f64, asin, asin_f32, 4, 1, -1.1, 1.1},
    {"acos", acos_f64, acos, acos_f32, 4, 1, -1.1, 1.1},
    {"atan", atan_f64, atan, atan_f32, 3, 1, -100, 100},
    {"sinh", sinh_f64, sinh, sinh_f32, 5, 1, -20, 20},
    {"cosh", cosh_f64, cosh, cosh_f32, 4, 1, -20, 20},
    {"tanh", tanh_f64, tanh, tanh_f32, 6, 2, -10, 10},
    {"asinh", asinh_f64, asinh, asinh_f32, 5, 1, -100, 100},
    {"acosh", acosh_f64, acosh, acosh_f32, 5, 1, 0.5, 50},
    {"atanh", atanh_f64, atanh, atanh_f32, 5, 1, -1.1, 1.1},
    {"erf", erf_f64, erf, erf_f32, 20, 3, -7, 7},
    {"sqrt", sqrt_f64, sqrt, sqrt_f32, 0.5, 0.5, 0, 1e6},
    {"floor", floor_f64, floor, floor_f32, 0, 0, -100, 100},
    {"ceil", ceil_f64, ceil, ceil_f32, 0, 0, -100, 100},
    {"trunc", trunc_f64, trunc, trunc_f32, 0, 0, -100, 100},
    {"round", round_f64, nearbyint, round_f32, 0, 0, -100, 100},
};

/* |a - want| in units of the last place of a number with `digits` bits and the least exponent
 * `least`. */
static double ulps(double a, double want, int digits, int least)
{
    int e;
    if (a == want || (a != a && want != want))
        return 0;
    if (isinf(a) || isinf(want) || a != a || want != want)
        return INFINITY;
    frexp(want, &e);
    return fabs(a - want) / ldexp(1, (e < least ? least : e) - digits);
}

static void check_function(const struct function *f, double x)
{
    double d = ulps(f->f64(x), f->libm(x), 53, -1021);
    if (d > f->ulp64 + 0.5)
        fail_msg("%s_f64(%a) is %a, should be %a: %g units", f->name, x, f->f64(x), f->libm(x), d);
    float y = (float)x;
    double want = f->libm((double)y);
    /* either side of the largest float is right */
    if (fabs(want) > (double)FLT_MAX)
        return;
    d = ulps((double)f->f32(y), want, 24, -125);
    if (d > f->ulp32)
        fail_msg("%s_f32(%a) is %a, should be %a: %g units", f->name, (double)y, (double)f->f32(y),
                 want, d);
}

static void test_functions(void **state)
{
    (void)state;
    static const double special[] = {0.0,   -0.0, 1,        -1,        0.5, 1e-300, -1e-310,
                                     1e300, 1e22, INFINITY, -INFINITY, NAN, 0x1p20, 0x1.8p60};
    uint64_t seed = 88172645463325252u;
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            check_function(&functions[k], special[i]);
        for (int i = 0; i < 20000; i++) {
            double u = (double)(next_random(&seed) >> 11) * 0x1p-53;
            check_function(&functions[k],
                           functions[k].low + (functions[k].high - functions[k].low) * u);
            check_function(&functions[k], double_bits(next_random(&seed)));
            check_function(&functions[k], (double)float_bits((uint32_t)next_random(&seed)));
        }
    }
}

static void test_functions_of_two(void **state)
{
    (void)state;
    static const double v[] = {0,      -0.0, 1,        -1,        2,   -2,    3,
                               0.5,    -0.5, INFINITY, -INFINITY, NAN, 1e300, -1e300,
                               1e-310, 1e20, -3,       64,        65,  7.25};
    int n = (int)(sizeof v / sizeof *v);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double a = v[i], b = v[j];
            if (ulps(pow_f64(a, b), pow(a, b), 53, -1021) > 2000)
                fail_msg("pow(%g, %g) is %g, should be %g", a, b, pow_f64(a, b), pow(a, b));
            if (ulps(atan2_f64(a, b), atan2(a, b), 53, -1021) > 3 ||
                !signbit(atan2_f64(a, b)) != !signbit(atan2(a, b)))
                fail_msg("atan2(%g, %g) is %g, should be %g", a, b, atan2_f64(a, b), atan2(a, b));
            if (ulps(mod_f64(a, b), fmod(a, b), 53, -1021) > 0)
                fail_msg("mod(%g, %g) is %g, should be %g", a, b, mod_f64(a, b), fmod(a, b));
        }
    assert_true(isnan(max_f32(NAN, 1)) && isnan(max_f32(1, NAN)) && isnan(min_f64(NAN, 1)) &&
                isnan(min_f64(1, NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_narrow_floats),    cmocka_unit_test(test_integers),
        cmocka_unit_test(test_float_to_int),     cmocka_unit_test(test_functions),
        cmocka_unit_test(test_functions_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
