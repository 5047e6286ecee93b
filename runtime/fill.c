/* SPDX-License-Identifier: 0BSD */
/* fill.c - the pseudo-random inputs of --selftest and --bench: the same bytes in tgc, which
 * computes the reference, and in the program. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

//@ fill_random
/* Fills n elements: floats in [-1, 1), the narrow ones in [0.5, 1) or so; integers in 0..3; bool 0
 * or 1. */
static void fill_random(const char *dtype, void *data, size_t element_bytes, size_t n,
                        uint32_t seed)
{
    unsigned char *at = (unsigned char *)data;
    uint32_t x = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < n; i++, at += element_bytes) {
        x ^= x << 13; /* xorshift32 */
        x ^= x >> 17;
        x ^= x << 5;
        float f32 = (float)(x >> 8) * 0x1p-23f - 1.0f;
        double f64 = (double)f32;
        uint64_t bits = strcmp(dtype, "bool") == 0   ? x >> 9 & 1
                        : strcmp(dtype, "f16") == 0  ? 0x3800u | (x >> 9 & 0x83ff)
                        : strcmp(dtype, "bf16") == 0 ? 0x3f00u | (x >> 9 & 0x807f)
                        : dtype[0] == 'f'            ? 0x30u | (x >> 9 & 7)
                                                     : x >> 9 & 3;
        if (strcmp(dtype, "f32") == 0) {
            memcpy(at, &f32, 4);
        } else if (strcmp(dtype, "f64") == 0) {
            memcpy(at, &f64, 8);
        } else {
            const uint16_t one = 1; /* its first byte is 1 where that is the least significant one */
            unsigned char first;
            memcpy(&first, &one, 1);
            for (size_t k = 0; k < element_bytes; k++)
                at[first ? k : element_bytes - 1 - k] = (unsigned char)(bits >> 8 * k);
        }
    }
}
