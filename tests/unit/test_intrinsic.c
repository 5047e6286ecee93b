/* test_intrinsic.c - the functions of runtime/ for the rows of passes/target/intrinsics.def, on the
 * processor at hand, against what ir/intrinsics.def says that they mean; and that a linear program
 * is held to the shapes of its row.
 *
 * Compiled for ARM, too, where tests/exec/integer_test.py runs it by an emulator.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ir/ir.h"
#include "ir/oracle.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#if defined __x86_64__
#include "runtime/vector_avx2.c"
#include "runtime/vector_avx512.c"
#include "runtime/vector_avx512vnni.c"
#include "runtime/vector_avx512bf16.c"
#define TGC_AMX_MODEL "tests/lib/amx_model.h"
#include "runtime/vector_amx.c"
#elif defined __AARCH64EL__
#include "runtime/vector_neon.c"
#include "runtime/vector_neondot.c"
#include "runtime/vector_neoni8mm.c"
#include "runtime/vector_neonbf16.c"
#endif

/* ---------------------------------------------------------------------------------- the functions
 * NAME_ISA(result, operands): the function of that row, on vectors in memory. */

typedef void (*function)(void *result, const void *const *in, int64_t bits);

#define CALL(function, type) CALL_(function, type)
#define CALL_(function, type) function##_##type
/* Three vectors of words. */
#define DEFINE_DOT(isa, of, function, in, word, real)                                              \
    static in void of##_##isa(void *result, const void *const *operand, int64_t bits)              \
    {                                                                                              \
        word a, b, c;                                                                              \
        (void)bits;                                                                                \
        memcpy(&a, operand[0], sizeof a);                                                          \
        memcpy(&b, operand[1], sizeof b);                                                          \
        memcpy(&c, operand[2], sizeof c);                                                          \
        a = CALL(function, word)(a, b, c);                                                         \
        memcpy(result, &a, sizeof a);                                                              \
    }
#define DEFINE_DOT_CENTERED DEFINE_DOT
/* Sums, and two vectors of words. */
#define DEFINE_DOT_BF16(isa, of, function, in, word, real)                                         \
    static in void of##_##isa(void *result, const void *const *operand, int64_t bits)              \
    {                                                                                              \
        real sum;                                                                                  \
        word a, b;                                                                                 \
        (void)bits;                                                                                \
        memcpy(&sum, operand[0], sizeof sum);                                                      \
        memcpy(&a, operand[1], sizeof a);                                                          \
        memcpy(&b, operand[2], sizeof b);                                                          \
        sum = CALL(function, real)(sum, a, b);                                                     \
        memcpy(result, &sum, sizeof sum);                                                          \
    }
/* A table, and a vector of bytes. */
#define DEFINE_LOOKUP(isa, of, function, in, word, real)                                           \
    static in void of##_##isa(void *result, const void *const *operand, int64_t bits)              \
    {                                                                                              \
        word a;                                                                                    \
        (void)bits;                                                                                \
        memcpy(&a, operand[1], sizeof a);                                                          \
        a = CALL(function, word)(operand[0], a);                                                   \
        memcpy(result, &a, sizeof a);                                                              \
    }
#define DEFINE_LOOKUP_I8 DEFINE_LOOKUP
#define DEFINE_EVENS(isa, of, function, in, word, real)                                            \
    static in void of##_##isa(void *result, const void *const *operand, int64_t bits)              \
    {                                                                                              \
        real a, b;                                                                                 \
        memcpy(&a, operand[0], sizeof a);                                                          \
        memcpy(&b, operand[1], sizeof b);                                                          \
        a = CALL(function, real)(a, b, (int)INTRINSIC_PARAM(bits, 1));                             \
        memcpy(result, &a, sizeof a);                                                              \
    }
#define DEFINE_ODDS DEFINE_EVENS
#define DEFINE_HALF(isa, of, function, in, word, real)                                             \
    static in void of##_##isa(void *result, const void *const *operand, int64_t bits)              \
    {                                                                                              \
        real a;                                                                                    \
        (void)bits;                                                                                \
        memcpy(&a, operand[0], sizeof a);                                                          \
        memcpy(result, &(struct half_##real){CALL(function, real)(a)}, sizeof a / 2);              \
    }
/* Tiles, by the model of their registers. */
#define DEFINE_TILE_DOT(isa, of, function, in, word, real)                                         \
    static in void of##_##isa(void *result, const void *const *operand, int64_t bits)              \
    {                                                                                              \
        int m = (int)INTRINSIC_PARAM(bits, 0), n = (int)INTRINSIC_PARAM(bits, 1),                  \
            k = (int)INTRINSIC_PARAM(bits, 2);                                                     \
        begin_tiles((unsigned char[16]){(unsigned char)m, (unsigned char)(4 * n),                  \
                                        (unsigned char)m, (unsigned char)(4 * k),                  \
                                        (unsigned char)k, (unsigned char)(4 * n)});                \
        load_tile(0, operand[0], 4 * n);                                                           \
        load_tile(1, operand[1], 4 * k);                                                           \
        load_tile(2, operand[2], 4 * n);                                                           \
        function(0, 1, 2);                                                                         \
        store_tile(0, result, 4 * n);                                                              \
        end_tiles();                                                                               \
    }

#define DEFINE_TILE_DOT_BF16 DEFINE_TILE_DOT

#if defined __x86_64__
struct half_f32x16 { f32x8 v; };
#define X86(...) __VA_ARGS__
#define ARM(...)
#else
#define X86(...)
#define ARM(...) __VA_ARGS__
#endif
/* OpenCL C, CUDA C and so on are what drivers and their compilers take: tests/onnx/opencl_test.py,
 * cuda_test.py. */
/* scalars: suite integer */
#define ON_GENERIC(define, of, function)
#define ON_OPENCL4(define, of, function)
#define ON_SIMD128(define, of, function) /* tests/exec/vectors_test.py calls them */
#define ON_LANES4(define, of, function)
#define ON_LANES4DOT(define, of, function)
#define ON_OPENCL8(define, of, function)
#define ON_AVX2(define, of, function) X86(define(AVX2, of, function, IN_f32x8, i32x8, f32x8))
#define ON_AVX512(define, of, function) X86(define(AVX512, of, function, IN_f32x16, i32x16, f32x16))
#define ON_AVX512VNNI(define, of, function)                                                        \
    X86(define(AVX512VNNI, of, function, IN_vnni, i32x16, f32x16))
#define ON_AVX512BF16(define, of, function)                                                        \
    X86(define(AVX512BF16, of, function, IN_bf16, i32x16, f32x16))
#define ON_AMX(define, of, function) X86(define(AMX, of, function, IN_amx, i32x16, f32x16))
#define ON_NEON(define, of, function) ARM(define(NEON, of, function, IN_f32x4, i32x4, f32x4))
#define ON_NEONDOT(define, of, function)                                                           \
    ARM(define(NEONDOT, of, function, IN_dotprod, i32x4, f32x4))
#define ON_NEONI8MM(define, of, function)                                                          \
    ARM(define(NEONI8MM, of, function, IN_i8mm, i32x4, f32x4))
#define ON_NEONBF16(define, of, function)                                                          \
    ARM(define(NEONBF16, of, function, IN_bfdot, i32x4, f32x4))

#define INTRINSIC_OF(isa, of, function, one) ON_##isa(DEFINE_##of, of, function)
#include "passes/target/intrinsics.def"
#undef INTRINSIC_OF

/* Whether the processor has what an instruction set is called by. */
static bool has(const char *features)
{
#if defined __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           (!strstr(features, "avx512f") ||
            (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))) &&
           (!strstr(features, "avx512vnni") || __builtin_cpu_supports("avx512vnni")) &&
           (!strstr(features, "avx512bf16") || __builtin_cpu_supports("avx512bf16"));
#elif defined __AARCH64EL__
    return (!strstr(features, "dotprod") || has_dotprod()) &&
           (!strstr(features, "i8mm") || has_i8mm()) &&
           (!strstr(features, "bf16") || has_bf16());
#else
    return false;
#endif
}

static const struct {
    const char *name, *features;
    int lanes;
} sets[] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    {text, features, lanes},
#include "passes/target/isa.def"
#undef ISA
};
enum {
#define ISA(name, ...) SET_##name,
#include "passes/target/isa.def"
#undef ISA
    SET_COUNT
};

static const struct {
    int set;
    enum intrinsic of;
    function call;
} table[] = {
#define ROW(isa, of, function, in, word, real) {SET_##isa, INTRINSIC_##of, of##_##isa},
#define INTRINSIC_OF(isa, of, function, one) ON_##isa(ROW, of, function)
#include "passes/target/intrinsics.def"
#undef INTRINSIC_OF
};

/* ------------------------------------------------------------------------------- the comparison */

enum { LANES_MAX = 1024, ROUNDS = 200 };

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

struct operand {
    struct intrinsic_shape shape;
    struct tensor value;
    union scalar wide[LANES_MAX];
    _Alignas(64) unsigned char bytes[LANES_MAX * 4];
};

/* Any bits; in every fourth round those at the ends of a dtype, where sums of pairs saturate.
 * Floats are integers whose sums of products are exact in any order. */
static void fill(struct operand *x, bool extreme, uint64_t *seed)
{
    bool real = dtype_is_float(x->shape.dtype), half = x->shape.dtype == DTYPE_BF16;
    size_t size = dtype_nbytes(x->shape.dtype);
    for (int i = 0; i < x->shape.lanes; i++) {
        uint64_t r = next_random(seed) >> 8;
        int64_t ends[] = {real ? -1 : dtype_min(x->shape.dtype),
                          real ? 1 : dtype_max(x->shape.dtype), -1, 0};
        int64_t any = half   ? (int64_t)(r % 255) - 127
                      : real ? (int64_t)(r % (1 << 22))
                             : (int64_t)r;
        union scalar v = {.i = extreme ? ends[r % 4] : any};
        scalar_store(x->shape.dtype, x->bytes + (size_t)i * size,
                     scalar_cast(x->shape.dtype, DTYPE_I64, v));
        x->wide[i] = scalar_load(x->shape.dtype, x->bytes + (size_t)i * size);
    }
}

static struct uop *operand_new(struct tgc *t, struct operand *x, int64_t bits, int k, enum dtype d)
{
    struct uop *dim[MAX_RANK];
    x->shape = intrinsic_shape(bits, k);
    if (x->shape.dtype == DTYPE_VOID)
        x->shape.dtype = d;
    x->value = (struct tensor){.dtype = x->shape.dtype, .ndim = x->shape.ndim,
                               .nelem = x->shape.lanes, .data = x->wide};
    for (int a = 0; a < x->shape.ndim; a++)
        dim[a] = uop_int(t, x->value.dim[a] = x->shape.dim[a]);
    return uop_buffer(t, buffer_new(t, BUFFER_INPUT, x->shape.dtype, dim, x->shape.ndim, NULL));
}

/* One row with these parameters, on many inputs; the number of those that differ. */
static int check_row(struct tgc *t, const char *set, int64_t bits, enum dtype d, function call)
{
    static struct operand in[INTRINSIC_OPERANDS];
    static union scalar want[LANES_MAX];
    _Alignas(64) unsigned char got[LANES_MAX * 4];
    const void *bytes[INTRINSIC_OPERANDS];
    const struct uop *leaf[INTRINSIC_OPERANDS];
    struct tensor *value[INTRINSIC_OPERANDS];
    struct uop *operand[INTRINSIC_OPERANDS];
    int n = intrinsic_nsrc(INTRINSIC_ROW(bits)), wrong = 0;
    uint64_t seed = 88172645463325252u;
    for (int k = 0; k < n; k++) {
        leaf[k] = operand[k] = operand_new(t, &in[k], bits, k, d);
        value[k] = &in[k].value;
        bytes[k] = in[k].bytes;
    }
    struct uop *meaning = intrinsic_meaning(t, bits, operand);
    struct intrinsic_shape result = intrinsic_result(bits);
    struct eval_env env = {.leaf = leaf, .value = value, .n = n, .budget = -1};
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < n; k++)
            fill(&in[k], round % 4 == 0, &seed);
        if (!eval_values(t, meaning, result.lanes, &env, want))
            return 1;
        call(got, bytes, bits);
        for (int i = 0; i < result.lanes; i++) {
            if (scalar_load(d, got + (size_t)i * dtype_nbytes(d)).i != want[i].i && wrong++ == 0)
                printf("# %s, %s: round %d, lane %d differs\n", set,
                       intrinsic_name(INTRINSIC_ROW(bits)), round, i);
        }
    }
    return wrong;
}

/* What is not finite, and what is subnormal, by the first lane. Instructions may take subnormal
 * numbers for zeros, so two results are right. */
static int check_special(const char *set, int lanes, function call)
{
    static const struct { uint32_t sum; uint16_t a[2], b[2]; uint32_t want, or; } cases[] = {
        {0, {0x7f80, 0}, {0x3f80, 0}, 0x7f800000, 0x7f800000},          /* inf * 1 */
        {0, {0, 0x7f80}, {0, 0xbf80}, 0xff800000, 0xff800000},          /* inf * -1, upper */
        {0, {0x7f80, 0}, {0, 0}, 0x7fc00000, 0x7fc00000},               /* inf * 0 */
        {0, {0x7f80, 0x7f80}, {0x3f80, 0xbf80}, 0x7fc00000, 0x7fc00000},    /* inf - inf */
        {0x7f800000, {0xff80, 0}, {0x3f80, 0}, 0x7fc00000, 0x7fc00000},
        {0, {0, 0x7fc0}, {0, 0}, 0x7fc00000, 0x7fc00000},               /* NaN * 0 */
        {0x7fc00000, {0, 0}, {0, 0}, 0x7fc00000, 0x7fc00000},
        {0x3f800000, {0x7f7f, 0}, {0x7f7f, 0}, 0x7f800000, 0x7f800000}, /* beyond f32 */
        {0, {1, 0}, {0x4f80, 0}, 0x0d000000, 0},                        /* 2^-133 * 2^32 */
        {0, {0x2000, 0}, {0x1800, 0}, 0x00000080, 0},                   /* 2^-63 * 2^-79 */
        {1, {0, 0}, {0, 0}, 1, 0},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t sum[16] = {cases[i].sum}, got[16];
        uint16_t a[32] = {cases[i].a[0], cases[i].a[1]}, b[32] = {cases[i].b[0], cases[i].b[1]};
        call(got, (const void *[]){sum, a, b}, INTRINSIC_BITS(INTRINSIC_DOT_BF16, lanes, 0, 0));
        bool is_nan = (got[0] & 0x7fffffff) > 0x7f800000, nan = cases[i].want == 0x7fc00000;
        if (nan ? !is_nan : got[0] != cases[i].want && got[0] != cases[i].or) {
            printf("# %s: special case %zu gives %08x\n", set, i, (unsigned)got[0]);
            wrong++;
        }
    }
    return wrong;
}

/* A row with all parameters for vectors of that many lanes, and with all dtypes. */
static int check_all(struct tgc *t, const char *set, int lanes, enum intrinsic of, function call)
{
    struct intrinsic_shape result = intrinsic_result(INTRINSIC_BITS(of, 1, 1, 0));
    int wrong = 0;
    for (int m = 1; intrinsic_is_of_tiles(of) && m <= 16; m += 5)
        for (int k = 1; k <= 16; k += 3)
            wrong += check_row(t, set, INTRINSIC_BITS(of, m, lanes, k), result.dtype, call);
    if (intrinsic_is_of_tiles(of))
        return wrong;
    if (result.byte)
        return check_row(t, set, INTRINSIC_BITS(of, lanes * DOT_BYTES, 0, 0), DTYPE_U8, call) +
               check_row(t, set, INTRINSIC_BITS(of, lanes * DOT_BYTES, 0, 0), DTYPE_I8, call);
    if (result.dtype == DTYPE_I32)
        return check_row(t, set, INTRINSIC_BITS(of, lanes, 0, 0), DTYPE_I32, call);
    if (of == INTRINSIC_DOT_BF16)
        return check_row(t, set, INTRINSIC_BITS(of, lanes, 0, 0), DTYPE_F32, call) +
               check_special(set, lanes, call);
    if (of == INTRINSIC_HALF)
        return check_row(t, set, INTRINSIC_BITS(of, lanes / 2, 0, 0), DTYPE_F32, call);
    for (int by = 1; by < lanes; by *= 2)
        wrong += check_row(t, set, INTRINSIC_BITS(of, lanes / (2 * by), by, 0), DTYPE_F32, call);
    return wrong;
}

/* TAP, a line for each row of a table. */
int main(void)
{
    const int n = (int)(sizeof table / sizeof *table);
    struct tgc *t = tgc_new(0);
    int failed = 0;
    if (!t)
        return 1;
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        const char *set = sets[table[i].set].name, *row = intrinsic_name(table[i].of);
        if (!has(sets[table[i].set].features)) {
            printf("ok %d - %s %s # SKIP the processor has not got it\n", i + 1, set, row);
            continue;
        }
        int wrong = check_all(t, set, sets[table[i].set].lanes, table[i].of, table[i].call);
        printf("%sok %d - %s %s\n", wrong ? "not " : "", i + 1, set, row);
        if (wrong)
            printf("# %d values differ\n", wrong);
        failed += wrong > 0;
    }
    tgc_free(t);
    return failed > 0;
}
