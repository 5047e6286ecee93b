/* SPDX-License-Identifier: 0BSD */
/* fill.c - the pseudo-random inputs of tgc run and bench, and of --selftest and --bench of the
 * programs that it makes: the same bytes in all of them. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

//@ fill_random
/* Fills n elements: integers and bools from least to most, floats in [-1, 1), the narrow ones in
 * [0.5, 1) or so, strings with a letter. */
static void fill_random(const char *dtype, void *data, size_t element_bytes, size_t n,
                        uint32_t seed, int64_t least, int64_t most)
{
    static const char *const letter[] = {"a", "b", "c", "d"};
    unsigned char *at = (unsigned char *)data;
    uint64_t count = (uint64_t)most - (uint64_t)least + 1;
    uint32_t x = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < n; i++, at += element_bytes) {
        x ^= x << 13; /* xorshift32 */
        x ^= x >> 17;
        x ^= x << 5;
        float f32 = (float)(x >> 8) * 0x1p-23f - 1.0f;
        double f64 = (double)f32;
        uint64_t bits = strcmp(dtype, "f16") == 0    ? 0x3800u | (x >> 9 & 0x83ff)
                        : strcmp(dtype, "bf16") == 0 ? 0x3f00u | (x >> 9 & 0x807f)
                        : dtype[0] == 'f'            ? 0x30u | (x >> 9 & 7)
                        : least <= most ? (uint64_t)least + (count ? (x >> 9) % count : x)
                                        : 0;
        if (strcmp(dtype, "f32") == 0) {
            memcpy(at, &f32, 4);
        } else if (strcmp(dtype, "f64") == 0) {
            memcpy(at, &f64, 8);
        } else if (strcmp(dtype, "string") == 0) {
            memcpy(at, &letter[x >> 30], sizeof letter[0]);
        } else {
            const uint16_t one = 1; /* the first byte is 1 on little-endian machines */
            unsigned char first;
            memcpy(&first, &one, 1);
            for (size_t k = 0; k < element_bytes; k++)
                at[first ? k : element_bytes - 1 - k] = (unsigned char)(bits >> 8 * k);
        }
    }
}
