/* SPDX-License-Identifier: 0BSD */
/* order.c - random numbers by counters, and the order of samples that they make.
 *
 * A number depends on a key and a counter alone, so an epoch's order and a sample's augmentation
 * need no state and no replay. source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1,
 * 2, 3"; Fisher and Yates, in Durstenfeld's form
 */
#include "runtime/loader/parts.h"

//@ loader_order loader_parts
LOADER_API void loader_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2])
{
    static const uint8_t rotation[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t k[3] = {key[0], key[1], 0x1bd11bda ^ key[0] ^ key[1]};
    uint32_t x = counter[0] + k[0], y = counter[1] + k[1];
    for (uint32_t round = 0; round < 20; round++) {
        unsigned r = rotation[round % 8];
        x += y;
        y = (y << r | y >> (32 - r)) ^ x;
        if (round % 4 == 3) {
            uint32_t injected = round / 4 + 1;
            x += k[injected % 3];
            y += k[(injected + 1) % 3] + injected;
        }
    }
    out[0] = x;
    out[1] = y;
}

LOADER_API void loader_key(uint64_t seed, int64_t epoch, enum loader_purpose purpose,
                           uint32_t key[2])
{
    const uint32_t halves[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                   counter[2] = {(uint32_t)epoch, (uint32_t)purpose};
    loader_threefry(halves, counter, key);
}

LOADER_API void dataset_order(uint64_t seed, int64_t epoch, int64_t n, int64_t *order)
{
    uint32_t key[2], v[2];
    loader_key(seed, epoch, LOADER_ORDER, key);
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const uint32_t counter[2] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32)};
        loader_threefry(key, counter, v);
        int64_t k = (int64_t)(((uint64_t)v[1] << 32 | v[0]) % ((uint64_t)i + 1));
        int64_t other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
}
