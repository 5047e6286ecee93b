/* SPDX-License-Identifier: 0BSD */
/* gather.c - rows of arrays by their numbers, converted to another element type.
 *
 *      integers --> int64_t  --> any type
 *      floats   --> double   --> any type       LOADER_CHUNK elements at a time
 *
 * A conversion is exact, or rounds once to nearest. What a type cannot hold is an error that names
 * the sample, never another value.
 */
#include "runtime/loader/parts.h"

//@ loader_gather loader_folder
#include <float.h>

LOADER_API bool loader_is_float(enum loader_type type) { return type >= LOADER_F16; }

static bool loader_is_half(enum loader_type type)
{
    return type == LOADER_F16 || type == LOADER_BF16;
}

/* By the bits: f16 has 5 of exponent and 10 of mantissa. */
static double loader_from_half(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, mantissa = h & 1023, bits;
    float v;
    if (exponent == 0)
        v = (float)mantissa * 5.9604644775390625e-8f; /* 2^-24 */
    else {
        bits = (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13;
        memcpy(&v, &bits, sizeof v);
    }
    return (double)(h & 0x8000 ? -v : v);
}

/* To nearest, ties to even, by the bits: f64 has 11 of exponent and 52 of mantissa, bf16 8 and 7.
 * false: it is finite, and rounds to infinity. */
static bool loader_to_half(double v, enum loader_type type, uint16_t *h)
{
    const uint32_t fraction = type == LOADER_F16 ? 10 : 7, infinite = type == LOADER_F16 ? 31 : 255,
                   least = type == LOADER_F16 ? 1009 : 897; /* f64's exponent of the least normal */
    uint64_t bits, one = 1;
    memcpy(&bits, &v, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 48) & 0x8000, exponent = (uint32_t)(bits >> 52) & 2047;
    uint64_t mantissa = bits & ((one << 52) - 1);
    if (exponent == 2047) {
        *h = (uint16_t)(sign | infinite << fraction | (mantissa ? 1u << (fraction - 1) : 0));
        return true;
    }
    /* with a hidden one, in units of the half's last bit, which below `least` is that of `least` */
    uint32_t dropped = 52 - fraction + (exponent >= least ? 0 : least - exponent);
    uint32_t base = exponent >= least ? (exponent - least) << fraction : 0;
    mantissa |= exponent ? one << 52 : 0;
    if (dropped > 53)
        mantissa = 0;
    else
        mantissa = (mantissa + (one << (dropped - 1)) - 1 + (mantissa >> dropped & 1)) >> dropped;
    *h = (uint16_t)(sign | (base + (uint32_t)mantissa));
    return base + mantissa < infinite << fraction;
}

LOADER_API int64_t loader_load_integers(const uint8_t *from, enum loader_type type, int64_t n,
                                        int64_t *v)
{
    switch (type) {
#define LOADER_CASE(name, text, ctype, kind, code)                                                 \
    case LOADER_##name:                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            ctype x;                                                                               \
            memcpy(&x, from + i * (int)sizeof x, sizeof x);                                        \
            v[i] = (int64_t)x;                                                                     \
        }                                                                                          \
        break;
        LOADER_INTEGERS(LOADER_CASE)
#undef LOADER_CASE
    default:
        break;
    }
    for (int64_t i = 0; type == LOADER_BOOL && i < n; i++)
        v[i] = v[i] != 0;
    for (int64_t i = 0; type == LOADER_U64 && i < n; i++)
        if (v[i] < 0)
            return i;
    return n;
}

LOADER_API void loader_load_floats(const uint8_t *from, enum loader_type type, int64_t n, double *v)
{
    for (int64_t i = 0; type == LOADER_F16 && i < n; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, sizeof x);
        v[i] = loader_from_half(x);
    }
    for (int64_t i = 0; type == LOADER_BF16 && i < n; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, sizeof x);
        const uint32_t bits = (uint32_t)x << 16;
        float wide;
        memcpy(&wide, &bits, sizeof wide);
        v[i] = (double)wide;
    }
    for (int64_t i = 0; type == LOADER_F32 && i < n; i++) {
        float x;
        memcpy(&x, from + 4 * i, sizeof x);
        v[i] = (double)x;
    }
    if (type == LOADER_F64)
        memcpy(v, from, sizeof *v * (size_t)n);
}

/* An integer as a float of that type. */
static bool loader_store_as_float(int64_t v, uint8_t *to, enum loader_type type)
{
    uint16_t half;
    float narrow = (float)v;
    double wide = (double)v;
    if (loader_is_half(type) && !loader_to_half(wide, type, &half))
        return false;
    if (loader_is_half(type))
        memcpy(to, &half, sizeof half);
    else if (type == LOADER_F32)
        memcpy(to, &narrow, sizeof narrow);
    else
        memcpy(to, &wide, sizeof wide);
    return true;
}

LOADER_API int64_t loader_store_integers(const int64_t *v, int64_t n, uint8_t *to,
                                         enum loader_type type)
{
    int64_t width = (int64_t)loader_type_nbytes(type);
    switch (type) {
#define LOADER_CASE(name, text, ctype, kind, code)                                                 \
    case LOADER_##name:                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            ctype x = (ctype)v[i];                                                                 \
            if ((int64_t)x != v[i] || (kind == 'u' && v[i] < 0) || (kind == 'b' && x > 1))         \
                return i;                                                                          \
            memcpy(to + i * width, &x, sizeof x);                                                  \
        }                                                                                          \
        return n;
        LOADER_INTEGERS(LOADER_CASE)
#undef LOADER_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            if (!loader_store_as_float(v[i], to + i * width, type))
                return i;
        return n;
    }
}

static int64_t loader_store_as_integers(const double *v, int64_t n, uint8_t *to,
                                        enum loader_type type)
{
    const double end = 9223372036854775808.0; /* 2^63 */
    int64_t whole[LOADER_CHUNK], valid = 0;
    for (; valid < n && v[valid] >= -end && v[valid] < end; valid++) {
        whole[valid] = (int64_t)v[valid];
        if ((double)whole[valid] < v[valid] || (double)whole[valid] > v[valid])
            break;
    }
    return loader_store_integers(whole, valid, to, type);
}

LOADER_API int64_t loader_store_floats(const double *v, int64_t n, uint8_t *to,
                                       enum loader_type type)
{
    if (!loader_is_float(type))
        return loader_store_as_integers(v, n, to, type);
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        double size = v[i] < 0 ? -v[i] : v[i];
        bool is_finite = size <= DBL_MAX;
        if (type == LOADER_F64) {
            memcpy(to + 8 * i, &v[i], sizeof v[i]);
        } else if (type == LOADER_F32) {
            if (is_finite && size > (double)FLT_MAX)
                return i;
            float narrow = (float)v[i];
            memcpy(to + 4 * i, &narrow, sizeof narrow);
        } else {
            if (!loader_to_half(v[i], type, &half))
                return i;
            memcpy(to + 2 * i, &half, sizeof half);
        }
    }
    return n;
}

LOADER_API bool loader_misfit(const struct dataset_array *a, int64_t sample, double value,
                              enum loader_type type, char *error)
{
    return loader_fail(error,
                       "%s: sample %lld of '%s' has %.17g, which no %s is; take another type "
                       "for it, or correct the sample",
                       a->file, (long long)sample, a->name, value, loader_type_name(type));
}

LOADER_API bool loader_convert(const struct dataset_array *a, int64_t sample, const uint8_t *from,
                               uint8_t *to, enum loader_type type, char *error)
{
    size_t width = loader_type_nbytes(a->type), to_width = loader_type_nbytes(type);
    bool is_float = loader_is_float(a->type);
    if (type == a->type && type != LOADER_BOOL) {
        memcpy(to, from, (size_t)a->row_nelem * width);
        return true;
    }
    for (int64_t i = 0; i < a->row_nelem; i += LOADER_CHUNK) {
        int64_t whole[LOADER_CHUNK], left = a->row_nelem - i, most = LOADER_CHUNK;
        double real[LOADER_CHUNK];
        int64_t n = left < most ? left : most, loaded = n;
        if (is_float)
            loader_load_floats(from, a->type, n, real);
        else
            loaded = loader_load_integers(from, a->type, n, whole);
        int64_t stored = is_float ? loader_store_floats(real, n, to, type)
                                  : loader_store_integers(whole, loaded, to, type);
        if (stored < n)
            return loader_misfit(a, sample,
                                 is_float           ? real[stored]
                                 : stored == loaded ? (double)(uint64_t)whole[stored]
                                                    : (double)whole[stored],
                                 type, error);
        from += (size_t)n * width;
        to += (size_t)n * to_width;
    }
    return true;
}

LOADER_API const uint8_t *loader_row(const struct dataset_array *a, int64_t sample,
                                     struct loader_decoder *v, char *error)
{
    if (sample < 0 || sample >= a->dim[0]) {
        loader_fail(error, "%s: '%s' has no sample %lld; it has %lld, counted from 0", a->file,
                    a->name, (long long)sample, (long long)a->dim[0]);
        return NULL;
    }
    if (a->pictures)
        return loader_decode(a, sample, v, error);
    size_t nbytes = (size_t)a->row_nelem * loader_type_nbytes(a->type);
    return (const uint8_t *)a->data + (size_t)sample * nbytes;
}

LOADER_API bool dataset_gather(struct dataset *d, const struct dataset_array *a,
                               const int64_t *index, int64_t n, void *out, enum loader_type type)
{
    size_t nbytes = (size_t)a->row_nelem * loader_type_nbytes(type);
    struct loader_decoder v;
    bool ok = true;
    memset(&v, 0, sizeof v);
    for (int64_t i = 0; ok && i < n; i++) {
        const uint8_t *row = loader_row(a, index[i], &v, d->error);
        ok = row &&
             loader_convert(a, index[i], row, (uint8_t *)out + (size_t)i * nbytes, type, d->error);
    }
    loader_free_decoder(&v);
    return ok;
}
