/* SPDX-License-Identifier: 0BSD */
/* opencl.cl - OpenCL's built-ins, compiled as kernels are, so that their accesses are checked, too.
 *
 * A function of vectors is that of their halves, down to scalars, which libm computes. What is
 * missing here a build says: the module is not loaded for want of that symbol.
 */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define OVER __attribute__((overloadable))

/* -------------------------------------------------------------------------------- work-items */

ulong emulator_place(uint what, uint dimension);
void emulator_barrier(uint flags);
uint OVER get_work_dim(void) { return (uint)emulator_place(7, 0); }
size_t OVER get_global_id(uint d) { return emulator_place(0, d); }
size_t OVER get_global_size(uint d) { return emulator_place(1, d); }
size_t OVER get_local_id(uint d) { return emulator_place(2, d); }
size_t OVER get_local_size(uint d) { return emulator_place(3, d); }
size_t OVER get_group_id(uint d) { return emulator_place(4, d); }
size_t OVER get_num_groups(uint d) { return emulator_place(5, d); }
size_t OVER get_global_offset(uint d) { return emulator_place(6, d); }
void OVER barrier(cl_mem_fence_flags flags) { emulator_barrier(flags); }
void OVER work_group_barrier(cl_mem_fence_flags flags) { emulator_barrier(flags); }
void OVER mem_fence(cl_mem_fence_flags flags) { (void)flags; }
void OVER read_mem_fence(cl_mem_fence_flags flags) { (void)flags; }
void OVER write_mem_fence(cl_mem_fence_flags flags) { (void)flags; }

/* ------------------------------------------------------------------------------- sub-groups */

void emulator_give(const void *value, uint nbytes);
void emulator_take(void *value, uint nbytes, uint lane);

#define EXCHANGE(T)                                                                                \
    static T OVER from_lane(T like, uint lane)                                                     \
    {                                                                                              \
        T y = like;                                                                                \
        emulator_take(&y, sizeof y, lane);                                                         \
        return y;                                                                                  \
    }                                                                                              \
    T OVER emulator_shuffle(T x, uint lane)                                                        \
    {                                                                                              \
        emulator_give(&x, sizeof x);                                                               \
        return from_lane(x, lane);                                                                 \
    }                                                                                              \
    T OVER emulator_shuffle_xor(T x, uint mask)                                                    \
    {                                                                                              \
        return emulator_shuffle(x, emulator_subgroup(2) ^ mask);                                   \
    }                                                                                              \
    T OVER emulator_shuffle_down(T x, uint by)                                                     \
    {                                                                                              \
        return emulator_shuffle(x, emulator_subgroup(2) + by);                                     \
    }                                                                                              \
    T OVER emulator_shuffle_up(T x, uint by)                                                       \
    {                                                                                              \
        return emulator_shuffle(x, emulator_subgroup(2) - by);                                     \
    }
#define REDUCE(T, name, combine)                                                                   \
    T OVER name(T x)                                                                               \
    {                                                                                              \
        emulator_give(&x, sizeof x);                                                               \
        T y = from_lane(x, 0);                                                                     \
        for (uint i = 1; i < emulator_subgroup(0); i++) {                                          \
            const T z = from_lane(x, i);                                                           \
            y = combine;                                                                           \
        }                                                                                          \
        return y;                                                                                  \
    }
#define GROUP(T)                                                                                   \
    EXCHANGE(T)                                                                                    \
    REDUCE(T, emulator_reduce_add, y + z)                                                          \
    REDUCE(T, emulator_reduce_max, y < z ? z : y)                                                  \
    REDUCE(T, emulator_reduce_min, z < y ? z : y)
GROUP(int)
GROUP(uint)
GROUP(long)
GROUP(ulong)
GROUP(float)

/* What has no pointers accesses nothing but its own stack, which no check is of. */
#define BY_VALUE _Pragma("clang attribute push(__attribute__((no_sanitize(\"address\"))), apply_to = function)")
#define BY_VALUE_END _Pragma("clang attribute pop")

/* -------------------------------------------------------------------- functions of vectors */
BY_VALUE

/* From the function of scalars to those of vectors: R is the results' type. */
#define VECTORS1(R, T, name)                                                                       \
    R##2 OVER name(T##2 x) { return (R##2)(name(x.lo), name(x.hi)); }                              \
    R##3 OVER name(T##3 x) { return (R##3)(name(x.s0), name(x.s1), name(x.s2)); }                  \
    R##4 OVER name(T##4 x) { return (R##4)(name(x.lo), name(x.hi)); }                              \
    R##8 OVER name(T##8 x) { return (R##8)(name(x.lo), name(x.hi)); }                              \
    R##16 OVER name(T##16 x) { return (R##16)(name(x.lo), name(x.hi)); }
#define VECTORS2(R, T, U, name)                                                                    \
    R##2 OVER name(T##2 x, U##2 y) { return (R##2)(name(x.lo, y.lo), name(x.hi, y.hi)); }          \
    R##3 OVER name(T##3 x, U##3 y)                                                                 \
    {                                                                                              \
        return (R##3)(name(x.s0, y.s0), name(x.s1, y.s1), name(x.s2, y.s2));                       \
    }                                                                                              \
    R##4 OVER name(T##4 x, U##4 y) { return (R##4)(name(x.lo, y.lo), name(x.hi, y.hi)); }          \
    R##8 OVER name(T##8 x, U##8 y) { return (R##8)(name(x.lo, y.lo), name(x.hi, y.hi)); }          \
    R##16 OVER name(T##16 x, U##16 y) { return (R##16)(name(x.lo, y.lo), name(x.hi, y.hi)); }
#define HALVES3(R, T, U, name, n)                                                                  \
    R##n OVER name(T##n x, T##n y, U##n z)                                                         \
    {                                                                                              \
        return (R##n)(name(x.lo, y.lo, z.lo), name(x.hi, y.hi, z.hi));                             \
    }
#define VECTORS3(R, T, U, name)                                                                    \
    HALVES3(R, T, U, name, 2)                                                                      \
    R##3 OVER name(T##3 x, T##3 y, U##3 z)                                                         \
    {                                                                                              \
        return (R##3)(name(x.s0, y.s0, z.s0), name(x.s1, y.s1, z.s1), name(x.s2, y.s2, z.s2));     \
    }                                                                                              \
    HALVES3(R, T, U, name, 4) HALVES3(R, T, U, name, 8) HALVES3(R, T, U, name, 16)

/* A scalar in the place of the second operand, or of the second and third. */
#define SCALAR2(T, name)                                                                           \
    T##2 OVER name(T##2 x, T y) { return name(x, (T##2)(y)); }                                     \
    T##3 OVER name(T##3 x, T y) { return name(x, (T##3)(y)); }                                     \
    T##4 OVER name(T##4 x, T y) { return name(x, (T##4)(y)); }                                     \
    T##8 OVER name(T##8 x, T y) { return name(x, (T##8)(y)); }                                     \
    T##16 OVER name(T##16 x, T y) { return name(x, (T##16)(y)); }
#define SCALAR3(T, name)                                                                           \
    T##2 OVER name(T##2 x, T y, T z) { return name(x, (T##2)(y), (T##2)(z)); }                     \
    T##3 OVER name(T##3 x, T y, T z) { return name(x, (T##3)(y), (T##3)(z)); }                     \
    T##4 OVER name(T##4 x, T y, T z) { return name(x, (T##4)(y), (T##4)(z)); }                     \
    T##8 OVER name(T##8 x, T y, T z) { return name(x, (T##8)(y), (T##8)(z)); }                     \
    T##16 OVER name(T##16 x, T y, T z) { return name(x, (T##16)(y), (T##16)(z)); }

/* ------------------------------------------------------------------------------ floats */

#define LIBM1(name)                                                                                \
    float libm_##name##f(float) __asm__(#name "f");                                                \
    double libm_##name(double) __asm__(#name);                                                     \
    float OVER name(float x) { return libm_##name##f(x); }                                         \
    double OVER name(double x) { return libm_##name(x); }                                          \
    VECTORS1(float, float, name)                                                                   \
    VECTORS1(double, double, name)
#define LIBM2(name)                                                                                \
    float libm_##name##f(float, float) __asm__(#name "f");                                         \
    double libm_##name(double, double) __asm__(#name);                                             \
    float OVER name(float x, float y) { return libm_##name##f(x, y); }                             \
    double OVER name(double x, double y) { return libm_##name(x, y); }                             \
    VECTORS2(float, float, float, name)                                                            \
    VECTORS2(double, double, double, name)
LIBM1(exp) LIBM1(exp2) LIBM1(expm1) LIBM1(log) LIBM1(log2) LIBM1(log10) LIBM1(log1p) LIBM1(sqrt)
LIBM1(cbrt) LIBM1(sin) LIBM1(cos) LIBM1(tan) LIBM1(asin) LIBM1(acos) LIBM1(atan) LIBM1(sinh)
LIBM1(cosh) LIBM1(tanh) LIBM1(asinh) LIBM1(acosh) LIBM1(atanh) LIBM1(erf) LIBM1(erfc) LIBM1(tgamma)
LIBM1(lgamma)
LIBM1(fabs) LIBM1(floor) LIBM1(ceil) LIBM1(trunc) LIBM1(rint) LIBM1(round)
LIBM2(pow) LIBM2(fmod) LIBM2(atan2) LIBM2(fmin) LIBM2(fmax) LIBM2(copysign) LIBM2(fdim) LIBM2(hypot)
LIBM2(nextafter) LIBM2(remainder)

float libm_fmaf(float, float, float) __asm__("fmaf");
double libm_fma(double, double, double) __asm__("fma");
float OVER fma(float x, float y, float z) { return libm_fmaf(x, y, z); }
double OVER fma(double x, double y, double z) { return libm_fma(x, y, z); }
float libm_ldexpf(float, int) __asm__("ldexpf");
float OVER ldexp(float x, int n) { return libm_ldexpf(x, n); }
VECTORS2(float, float, int, ldexp)

#define FLOATS(T)                                                                                  \
    T OVER mad(T x, T y, T z) { return x * y + z; }                                                \
    T OVER min(T x, T y) { return y < x ? y : x; }                                                 \
    T OVER max(T x, T y) { return x < y ? y : x; }                                                 \
    T OVER clamp(T x, T y, T z) { return fmin(fmax(x, y), z); }                                    \
    T OVER mix(T x, T y, T z) { return x + (y - x) * z; }                                          \
    T OVER rsqrt(T x) { return 1 / sqrt(x); }                                                      \
    T OVER sign(T x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? x : 0; }                           \
    T OVER step(T x, T y) { return y < x ? 0 : 1; }                                                \
    T OVER degrees(T x) { return x * (T)57.295779513082320877; }                                   \
    T OVER radians(T x) { return x * (T)0.017453292519943295769; }                                 \
    VECTORS3(T, T, T, fma) VECTORS3(T, T, T, mad) VECTORS2(T, T, T, min) VECTORS2(T, T, T, max)    \
    VECTORS3(T, T, T, clamp) VECTORS3(T, T, T, mix) VECTORS1(T, T, rsqrt) VECTORS1(T, T, sign)     \
    SCALAR2(T, min) SCALAR2(T, max) SCALAR2(T, fmin) SCALAR2(T, fmax) SCALAR3(T, clamp)            \
    T OVER dot(T x, T y) { return x * y; }                                                         \
    T OVER dot(T##2 x, T##2 y) { return x.s0 * y.s0 + x.s1 * y.s1; }                               \
    T OVER dot(T##3 x, T##3 y) { return x.s0 * y.s0 + x.s1 * y.s1 + x.s2 * y.s2; }                 \
    T OVER dot(T##4 x, T##4 y) { return dot(x.lo, y.lo) + dot(x.hi, y.hi); }
FLOATS(float)
FLOATS(double)

/* The fast ones are as exact as the others here. */
#define FAST1(name)                                                                                \
    float OVER native_##name(float x) { return name(x); }                                          \
    float OVER half_##name(float x) { return name(x); }                                            \
    VECTORS1(float, float, native_##name)                                                          \
    VECTORS1(float, float, half_##name)
FAST1(exp) FAST1(exp2) FAST1(log) FAST1(log2) FAST1(sqrt) FAST1(rsqrt) FAST1(sin) FAST1(cos)
FAST1(tan)
float OVER native_recip(float x) { return 1 / x; }
float OVER native_divide(float x, float y) { return x / y; }
VECTORS1(float, float, native_recip)
VECTORS2(float, float, float, native_divide)

/* Scalars give 0 or 1, vectors 0 or -1. */
#define RELATION1(T, I, name, condition)                                                           \
    int OVER name(T x) { return condition; }                                                       \
    I##2 OVER name(T##2 x) { return -(I##2)(name(x.s0), name(x.s1)); }                             \
    I##3 OVER name(T##3 x) { return -(I##3)(name(x.s0), name(x.s1), name(x.s2)); }                 \
    I##4 OVER name(T##4 x) { return (I##4)(name(x.lo), name(x.hi)); }                              \
    I##8 OVER name(T##8 x) { return (I##8)(name(x.lo), name(x.hi)); }                              \
    I##16 OVER name(T##16 x) { return (I##16)(name(x.lo), name(x.hi)); }
#define RELATIONS(T, I, infinite)                                                                  \
    RELATION1(T, I, isnan, x != x)                                                                 \
    RELATION1(T, I, isinf, fabs(x) == (T)infinite)                                                 \
    RELATION1(T, I, isfinite, fabs(x) < (T)infinite)                                               \
    RELATION1(T, I, signbit, copysign((T)1, x) < 0)
RELATIONS(float, int, INFINITY)
RELATIONS(double, long, INFINITY)

/* --------------------------------------------------------------------------------- integers */

#define INTEGERS(T, U, bits)                                                                       \
    T OVER min(T x, T y) { return y < x ? y : x; }                                                 \
    T OVER max(T x, T y) { return x < y ? y : x; }                                                 \
    T OVER clamp(T x, T y, T z) { return min(max(x, y), z); }                                      \
    U OVER abs(T x) { return x < 0 ? (U)(0 - (U)x) : (U)x; }                                       \
    U OVER abs_diff(T x, T y) { return x < y ? (U)((U)y - (U)x) : (U)((U)x - (U)y); }              \
    T OVER rotate(T x, T y)                                                                        \
    {                                                                                              \
        const uint by = (uint)y & (bits - 1);                                                      \
        return by ? (T)((U)x << by | (U)x >> (bits - by)) : x;                                     \
    }                                                                                              \
    T OVER popcount(T x) { return (T)__builtin_popcountl((ulong)(U)x); }                           \
    T OVER clz(T x) { return (U)x ? (T)(__builtin_clzl((ulong)(U)x) - (64 - bits)) : (T)bits; }    \
    VECTORS2(T, T, T, min) VECTORS2(T, T, T, max) VECTORS3(T, T, T, clamp) VECTORS1(U, T, abs)     \
    VECTORS2(U, T, T, abs_diff) VECTORS2(T, T, T, rotate) VECTORS1(T, T, popcount)                 \
    VECTORS1(T, T, clz) SCALAR2(T, min) SCALAR2(T, max) SCALAR3(T, clamp)
INTEGERS(char, uchar, 8)
INTEGERS(uchar, uchar, 8)
INTEGERS(short, ushort, 16)
INTEGERS(ushort, ushort, 16)
INTEGERS(int, uint, 32)
INTEGERS(uint, uint, 32)
INTEGERS(long, ulong, 64)
INTEGERS(ulong, ulong, 64)

#define MULTIPLY(T, wide, bits)                                                                    \
    T OVER mul_hi(T x, T y) { return (T)((wide)x * (wide)y >> bits); }                             \
    VECTORS2(T, T, T, mul_hi)
MULTIPLY(int, long, 32)
MULTIPLY(uint, ulong, 32)
int OVER mul24(int x, int y) { return x * y; }
uint OVER mul24(uint x, uint y) { return x * y; }
int OVER mad24(int x, int y, int z) { return x * y + z; }
uint OVER mad24(uint x, uint y, uint z) { return x * y + z; }
VECTORS2(int, int, int, mul24)
VECTORS3(int, int, int, mad24)

/* ------------------------------------------------------------------------- select, any, all */

/* A scalar's condition is whether it is 0, a vector's the highest bit of each element. */
#define SELECT_N(T, I, n)                                                                          \
    T##n OVER select(T##n x, T##n y, I##n c)                                                       \
    {                                                                                              \
        T##n r = x;                                                                                \
        for (int i = 0; i < n; i++)                                                                \
            r[i] = c[i] < 0 ? y[i] : x[i];                                                         \
        return r;                                                                                  \
    }
#define SELECT_U(T, U, I, n)                                                                       \
    T##n OVER select(T##n x, T##n y, U##n c)                                                       \
    {                                                                                              \
        T##n r = x;                                                                                \
        for (int i = 0; i < n; i++)                                                                \
            r[i] = (I)c[i] < 0 ? y[i] : x[i];                                                      \
        return r;                                                                                  \
    }
#define SELECT(T, I, U)                                                                            \
    T OVER select(T x, T y, I c) { return c ? y : x; }                                             \
    T OVER select(T x, T y, U c) { return c ? y : x; }                                             \
    SELECT_N(T, I, 2) SELECT_N(T, I, 3) SELECT_N(T, I, 4) SELECT_N(T, I, 8) SELECT_N(T, I, 16)     \
    SELECT_U(T, U, I, 2) SELECT_U(T, U, I, 3) SELECT_U(T, U, I, 4) SELECT_U(T, U, I, 8)            \
    SELECT_U(T, U, I, 16)
SELECT(char, char, uchar)
SELECT(uchar, char, uchar)
SELECT(short, short, ushort)
SELECT(ushort, short, ushort)
SELECT(half, short, ushort)
SELECT(int, int, uint)
SELECT(uint, int, uint)
SELECT(float, int, uint)
SELECT(long, long, ulong)
SELECT(ulong, long, ulong)
SELECT(double, long, ulong)

#define ANY_N(T, n)                                                                                \
    int OVER any(T##n x)                                                                           \
    {                                                                                              \
        int r = 0;                                                                                 \
        for (int i = 0; i < n; i++)                                                                \
            r |= x[i] < 0;                                                                         \
        return r;                                                                                  \
    }                                                                                              \
    int OVER all(T##n x)                                                                           \
    {                                                                                              \
        int r = 1;                                                                                 \
        for (int i = 0; i < n; i++)                                                                \
            r &= x[i] < 0;                                                                         \
        return r;                                                                                  \
    }
#define ANY(T)                                                                                     \
    int OVER any(T x) { return x < 0; }                                                            \
    int OVER all(T x) { return x < 0; }                                                            \
    ANY_N(T, 2) ANY_N(T, 3) ANY_N(T, 4) ANY_N(T, 8) ANY_N(T, 16)
ANY(char)
ANY(short)
ANY(int)
ANY(long)
BY_VALUE_END

/* ------------------------------------------------------------------------------ loads, stores */

#define LOAD(T, space)                                                                             \
    T##2 OVER vload2(size_t i, const space T *p) { p += 2 * i; return (T##2)(p[0], p[1]); }        \
    T##3 OVER vload3(size_t i, const space T *p) { p += 3 * i; return (T##3)(p[0], p[1], p[2]); }  \
    T##4 OVER vload4(size_t i, const space T *p)                                                   \
    {                                                                                              \
        p += 4 * i;                                                                                \
        return (T##4)(p[0], p[1], p[2], p[3]);                                                     \
    }                                                                                              \
    T##8 OVER vload8(size_t i, const space T *p)                                                   \
    {                                                                                              \
        p += 8 * i;                                                                                \
        return (T##8)(vload4(0, p), vload4(1, p));                                                 \
    }                                                                                              \
    T##16 OVER vload16(size_t i, const space T *p)                                                 \
    {                                                                                              \
        p += 16 * i;                                                                               \
        return (T##16)(vload8(0, p), vload8(1, p));                                                \
    }
#define STORE_N(T, space, n)                                                                       \
    void OVER vstore##n(T##n x, size_t i, space T *p)                                              \
    {                                                                                              \
        for (int k = 0; k < n; k++)                                                                \
            p[n * i + k] = x[k];                                                                   \
    }
#define STORE(T, space)                                                                            \
    STORE_N(T, space, 2) STORE_N(T, space, 3) STORE_N(T, space, 4) STORE_N(T, space, 8)            \
    STORE_N(T, space, 16)
#define MEMORY(T)                                                                                  \
    LOAD(T, global) LOAD(T, local) LOAD(T, private) LOAD(T, constant)                              \
    STORE(T, global) STORE(T, local) STORE(T, private)
MEMORY(char)
MEMORY(uchar)
MEMORY(short)
MEMORY(ushort)
MEMORY(int)
MEMORY(uint)
MEMORY(long)
MEMORY(ulong)
MEMORY(half)
MEMORY(float)
MEMORY(double)

/* Halves in memory, floats in registers: no extension is needed. */
#define LOAD_HALF_N(space, n, name, stride)                                                        \
    float##n OVER name(size_t i, const space half *p)                                              \
    {                                                                                              \
        float##n x;                                                                                \
        for (int k = 0; k < n; k++)                                                                \
            x[k] = p[stride * i + k];                                                              \
        return x;                                                                                  \
    }
#define STORE_HALF_N(space, n, name, stride)                                                       \
    void OVER name(float##n x, size_t i, space half *p)                                            \
    {                                                                                              \
        for (int k = 0; k < n; k++)                                                                \
            p[stride * i + k] = (half)x[k];                                                        \
    }
#define LOAD_HALVES(space)                                                                         \
    float OVER vload_half(size_t i, const space half *p) { return p[i]; }                          \
    LOAD_HALF_N(space, 2, vload_half2, 2) LOAD_HALF_N(space, 3, vload_half3, 3)                    \
    LOAD_HALF_N(space, 4, vload_half4, 4) LOAD_HALF_N(space, 8, vload_half8, 8)                    \
    LOAD_HALF_N(space, 16, vload_half16, 16) LOAD_HALF_N(space, 2, vloada_half2, 2)                \
    LOAD_HALF_N(space, 3, vloada_half3, 4) LOAD_HALF_N(space, 4, vloada_half4, 4)                  \
    LOAD_HALF_N(space, 8, vloada_half8, 8) LOAD_HALF_N(space, 16, vloada_half16, 16)
#define STORE_HALVES(space, suffix)                                                                \
    void OVER vstore_half##suffix(float x, size_t i, space half *p) { p[i] = (half)x; }            \
    STORE_HALF_N(space, 2, vstore_half2##suffix, 2)                                                \
    STORE_HALF_N(space, 3, vstore_half3##suffix, 3)                                                \
    STORE_HALF_N(space, 4, vstore_half4##suffix, 4)                                                \
    STORE_HALF_N(space, 8, vstore_half8##suffix, 8)                                                \
    STORE_HALF_N(space, 16, vstore_half16##suffix, 16)                                             \
    STORE_HALF_N(space, 2, vstorea_half2##suffix, 2)                                               \
    STORE_HALF_N(space, 3, vstorea_half3##suffix, 4)                                               \
    STORE_HALF_N(space, 4, vstorea_half4##suffix, 4)                                               \
    STORE_HALF_N(space, 8, vstorea_half8##suffix, 8)                                               \
    STORE_HALF_N(space, 16, vstorea_half16##suffix, 16)
LOAD_HALVES(global)
LOAD_HALVES(local)
LOAD_HALVES(private)
LOAD_HALVES(constant)
STORE_HALVES(global, )
STORE_HALVES(global, _rte)
STORE_HALVES(local, )
STORE_HALVES(local, _rte)
STORE_HALVES(private, )
STORE_HALVES(private, _rte)

/* ------------------------------------------------------------------------------- conversions */
BY_VALUE

#define CONVERT(R, T)                                                                              \
    R OVER convert_##R(T x) { return (R)x; }                                                       \
    HALVES_CONVERT(R, T, )
#define HALVES_CONVERT(R, T, suffix)                                                               \
    R##2 OVER convert_##R##2##suffix(T##2 x)                                                       \
    {                                                                                              \
        return (R##2)(convert_##R##suffix(x.lo), convert_##R##suffix(x.hi));                       \
    }                                                                                              \
    R##3 OVER convert_##R##3##suffix(T##3 x)                                                       \
    {                                                                                              \
        return (R##3)(convert_##R##suffix(x.s0), convert_##R##suffix(x.s1),                        \
                      convert_##R##suffix(x.s2));                                                  \
    }                                                                                              \
    R##4 OVER convert_##R##4##suffix(T##4 x)                                                       \
    {                                                                                              \
        return (R##4)(convert_##R##2##suffix(x.lo), convert_##R##2##suffix(x.hi));                 \
    }                                                                                              \
    R##8 OVER convert_##R##8##suffix(T##8 x)                                                       \
    {                                                                                              \
        return (R##8)(convert_##R##4##suffix(x.lo), convert_##R##4##suffix(x.hi));                 \
    }                                                                                              \
    R##16 OVER convert_##R##16##suffix(T##16 x)                                                    \
    {                                                                                              \
        return (R##16)(convert_##R##8##suffix(x.lo), convert_##R##8##suffix(x.hi));                \
    }
#define CONVERT_TO(R)                                                                              \
    CONVERT(R, char) CONVERT(R, uchar) CONVERT(R, short) CONVERT(R, ushort) CONVERT(R, int)        \
    CONVERT(R, uint) CONVERT(R, long) CONVERT(R, ulong) CONVERT(R, half) CONVERT(R, float)         \
    CONVERT(R, double)
CONVERT_TO(char) CONVERT_TO(uchar) CONVERT_TO(short) CONVERT_TO(ushort) CONVERT_TO(int)
CONVERT_TO(uint) CONVERT_TO(long) CONVERT_TO(ulong) CONVERT_TO(half) CONVERT_TO(float)
CONVERT_TO(double)

/* To integers: to the nearest even, and clamped to what the type has. */
#define CONVERT_ROUND(R, T)                                                                        \
    R OVER convert_##R##_rte(T x) { return (R)rint(x); }                                           \
    R OVER convert_##R##_rtz(T x) { return (R)x; }                                                 \
    HALVES_CONVERT(R, T, _rte)                                                                     \
    HALVES_CONVERT(R, T, _rtz)
#define CONVERT_SAT(R, T, least, most)                                                             \
    R OVER convert_##R##_sat(T x)                                                                  \
    {                                                                                              \
        return x != x ? 0 : x <= (T)least ? (R)least : x >= (T)most ? (R)most : (R)x;              \
    }                                                                                              \
    R OVER convert_##R##_sat_rte(T x) { return convert_##R##_sat(rint(x)); }                       \
    HALVES_CONVERT(R, T, _sat)                                                                     \
    HALVES_CONVERT(R, T, _sat_rte)
#define TO_INTEGER(R, least, most)                                                                 \
    CONVERT_ROUND(R, float) CONVERT_ROUND(R, double)                                               \
    CONVERT_SAT(R, float, least, most) CONVERT_SAT(R, double, least, most)
TO_INTEGER(char, CHAR_MIN, CHAR_MAX)
TO_INTEGER(uchar, 0, UCHAR_MAX)
TO_INTEGER(short, SHRT_MIN, SHRT_MAX)
TO_INTEGER(ushort, 0, USHRT_MAX)
TO_INTEGER(int, INT_MIN, INT_MAX)
TO_INTEGER(uint, 0, UINT_MAX)
TO_INTEGER(long, LONG_MIN, LONG_MAX)
TO_INTEGER(ulong, 0, ULONG_MAX)
#define CLAMP_TO(R, T, least, most)                                                                \
    R OVER convert_##R##_sat(T x) { return x <= least ? (R)least : x >= most ? (R)most : (R)x; }   \
    HALVES_CONVERT(R, T, _sat)
CLAMP_TO(char, short, CHAR_MIN, CHAR_MAX)
CLAMP_TO(char, int, CHAR_MIN, CHAR_MAX)
CLAMP_TO(uchar, short, 0, UCHAR_MAX)
CLAMP_TO(uchar, int, 0, UCHAR_MAX)
CLAMP_TO(short, int, SHRT_MIN, SHRT_MAX)
CLAMP_TO(ushort, int, 0, USHRT_MAX)
#define NEAREST(R, T)                                                                              \
    R OVER convert_##R##_rte(T x) { return (R)x; }                                                 \
    HALVES_CONVERT(R, T, _rte)
NEAREST(half, float)
NEAREST(half, double)
NEAREST(float, double)
NEAREST(float, int)
NEAREST(float, uint)
NEAREST(float, long)
NEAREST(float, ulong)
BY_VALUE_END

/* ----------------------------------------------------------------------------------- atomics */

void emulator_atomic(const void *at, uint nbytes);
#define ATOMIC(T, space, name, result)                                                             \
    __attribute__((no_sanitize("address"))) T OVER name(volatile space T *p, T x)                  \
    {                                                                                              \
        emulator_atomic((const void *)(ulong)p, sizeof *p);                                        \
        const T old = *p;                                                                          \
        *p = result;                                                                               \
        return old;                                                                                \
    }
#define ATOMICS(T, space)                                                                          \
    ATOMIC(T, space, atomic_add, old + x)                                                          \
    ATOMIC(T, space, atomic_sub, old - x)                                                          \
    ATOMIC(T, space, atomic_and, old & x)                                                          \
    ATOMIC(T, space, atomic_or, old | x)                                                           \
    ATOMIC(T, space, atomic_xor, old ^ x)                                                          \
    ATOMIC(T, space, atomic_xchg, x)                                                               \
    ATOMIC(T, space, atomic_min, x < old ? x : old)                                                \
    ATOMIC(T, space, atomic_max, old < x ? x : old)                                                \
    T OVER atomic_inc(volatile space T *p) { return atomic_add(p, (T)1); }                         \
    T OVER atomic_dec(volatile space T *p) { return atomic_sub(p, (T)1); }                         \
    __attribute__((no_sanitize("address"))) T OVER atomic_cmpxchg(volatile space T *p, T x, T y)   \
    {                                                                                              \
        emulator_atomic((const void *)(ulong)p, sizeof *p);                                        \
        const T old = *p;                                                                          \
        *p = old == x ? y : old;                                                                   \
        return old;                                                                                \
    }
ATOMICS(int, global)
ATOMICS(uint, global)
ATOMICS(int, local)
ATOMICS(uint, local)

/* ------------------------------------------------------------------------------------ images */

/* Without a sampler coordinates are pixels, and inside. */
enum { TEXEL_READ, TEXEL_WRITE };

static float4 get_texel(global void *p, uint is_half)
{
    if (!p)                                  /* a border */
        return 0;
    return is_half ? vload_half4(0, (global half *)p) : vload4(0, (global float *)p);
}
static void put_texel(global void *p, uint is_half, float4 v)
{
    if (p && is_half)
        vstore_half4(v, 0, (global half *)p);
    else if (p)
        vstore4(v, 0, (global float *)p);
}
uint sampler_bits(sampler_t s) __asm__("emulator_sampler");
#define IMAGE(T, coordinates, X, Y)                                                                \
    global void *OVER texel(read_only T, uint sampler, int x, int y, uint use, uint *is_half)      \
        __asm__("emulator_texel");                                                                 \
    global void *OVER texel(write_only T, uint sampler, int x, int y, uint use, uint *is_half)     \
        __asm__("emulator_texel");                                                                 \
    int OVER side(read_only T, uint) __asm__("emulator_side");                                     \
    int OVER side(write_only T, uint) __asm__("emulator_side");                                    \
    float4 OVER read_imagef(read_only T i, coordinates c)                                          \
    {                                                                                              \
        uint is_half;                                                                              \
        global void *p = texel(i, 0, X, Y, TEXEL_READ, &is_half);                                  \
        return get_texel(p, is_half);                                                              \
    }                                                                                              \
    void OVER write_imagef(write_only T i, coordinates c, float4 v)                                \
    {                                                                                              \
        uint is_half;                                                                              \
        global void *p = texel(i, 0, X, Y, TEXEL_WRITE, &is_half);                                 \
        put_texel(p, is_half, v);                                                                  \
    }                                                                                              \
    half4 OVER read_imageh(read_only T i, coordinates c)                                           \
    {                                                                                              \
        return convert_half4(read_imagef(i, c));                                                   \
    }                                                                                              \
    void OVER write_imageh(write_only T i, coordinates c, half4 v)                                 \
    {                                                                                              \
        write_imagef(i, c, convert_float4(v));                                                     \
    }                                                                                              \
    int OVER get_image_width(read_only T i) { return side(i, 0); }                                 \
    int OVER get_image_width(write_only T i) { return side(i, 0); }
#define SAMPLED(T, coordinates, X, Y)                                                              \
    float4 OVER read_imagef(read_only T i, sampler_t s, coordinates c)                             \
    {                                                                                              \
        uint is_half;                                                                              \
        global void *p = texel(i, sampler_bits(s), X, Y, TEXEL_READ, &is_half);                    \
        return get_texel(p, is_half);                                                              \
    }                                                                                              \
    half4 OVER read_imageh(read_only T i, sampler_t s, coordinates c)                              \
    {                                                                                              \
        return convert_half4(read_imagef(i, s, c));                                                \
    }
IMAGE(image2d_t, int2, c.x, c.y)
IMAGE(image1d_t, int, c, 0)
IMAGE(image1d_buffer_t, int, c, 0)
SAMPLED(image2d_t, int2, c.x, c.y)
SAMPLED(image1d_t, int, c, 0)
int OVER get_image_height(read_only image2d_t i) { return side(i, 1); }
int OVER get_image_height(write_only image2d_t i) { return side(i, 1); }
