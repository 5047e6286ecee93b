/* SPDX-License-Identifier: 0BSD */
/* check.c - compares results with reference vectors: of NAME_selftest(), and of --selftest. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const double SELFTEST_RTOL = 0, SELFTEST_ATOL = 0;

//@ is_little_endian
/* Files and reference vectors have the least significant byte first; some machines do not. */
static int is_little_endian(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

//@ count_wrong is_little_endian
/* The element at p, in the given byte order, as the bits of a double: a compiler that assumes no
 * NaN does not pass one on. */
static uint64_t element(const char *dtype, size_t nbytes, const char *p, int little_endian)
{
    uint64_t u = 0, bits;
    for (size_t k = 0; k < nbytes; k++)
        u |= (uint64_t)(unsigned char)p[little_endian ? k : nbytes - 1 - k] << 8 * k;
    if (strcmp(dtype, "f64") == 0)
        return u;
    int is_f16 = strcmp(dtype, "f16") == 0;
    int is_float = is_f16 || strcmp(dtype, "f32") == 0 || strcmp(dtype, "bf16") == 0;
    double v;
    if (is_float) {
        u = strcmp(dtype, "bf16") == 0 ? u << 16 : u;
        int width = is_f16 ? 10 : 23, top = is_f16 ? 31 : 255, e = (int)(u >> width) & top;
        uint64_t sign = u >> (is_f16 ? 15 : 31) << 63, mantissa = u & (((uint64_t)1 << width) - 1);
        if (e == top)
            return sign | (uint64_t)0x7ff << 52 | mantissa << (52 - width);
        v = (double)(mantissa | (uint64_t)(e > 0) << width);
        for (int k = is_f16 ? 25 : 150; k > (e > 0 ? e : 1); k--)
            v *= 0.5;
        for (int k = is_f16 ? 25 : 150; k < e; k++)
            v *= 2;
        memcpy(&bits, &v, sizeof bits);
        return bits | sign;
    }
    uint64_t top = (uint64_t)1 << (8 * nbytes - 1);
    v = (double)(int64_t)(dtype[0] == 'i' ? (u ^ top) - top : u);
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static int is_finite(uint64_t bits) { return (bits >> 52 & 0x7ff) != 0x7ff; }

static double value(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Counts elements outside |a - b| <= rtol*|b| + atol*(largest |b|). Integers must be equal. from:
 * in the machine's byte order; by: in little-endian order. */
static size_t count_wrong(const char *dtype, size_t size, const void *from, const void *by,
                          size_t n)
{
    const char *a = (const char *)from, *b = (const char *)by;
    size_t wrong = 0;
    double largest = 0;
    int exact = !(dtype[0] == 'f' || strcmp(dtype, "bf16") == 0);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = element(dtype, size, b + i * size, 1);
        if (is_finite(r))
            largest = fabs(value(r)) > largest ? fabs(value(r)) : largest;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = element(dtype, size, a + i * size, is_little_endian());
        uint64_t r = element(dtype, size, b + i * size, 1);
        int same = v == r || (!is_finite(v) && !is_finite(r) && v << 12 != 0 && r << 12 != 0);
        if (!same && is_finite(v) && is_finite(r)) {
            double allowed = exact ? 0 : SELFTEST_RTOL * fabs(value(r)) + SELFTEST_ATOL * largest;
            same = fabs(value(v) - value(r)) <= allowed;
        }
        wrong += !same;
    }
    return wrong;
}
