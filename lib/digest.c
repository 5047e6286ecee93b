/* digest.c - a hash of 256 bits that reads large data as fast as memory gives it.
 *
 * Chunks of 4 KB are compressed to 32 bytes by NH, a universal hash: sums of products of words to
 * which words of a key are added. What is left, and all that is small, goes to SHA-256. As long as
 * nobody knows the key, two different chunks meet with a probability of 2^-128 at most, whoever
 * wrote them; without NH's speed a hit in the cache would take longer than the model's run. source:
 * FIPS 180-4; Black et al., UMAC (1999), with words of 64 bits as in VMAC (2007), two sums.
 */
#include "lib/digest.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- SHA-256 */

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t v, int n) { return v >> n | v << (32 - n); }

static void sha_block(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + round_constant[i] + w[i];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

static void sha_begin(struct sha256 *s)
{
    *s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void sha_add(struct sha256 *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    s->total += n;
    while (n) {
        size_t part = sizeof s->block - s->n < n ? sizeof s->block - s->n : n;
        memcpy(s->block + s->n, p, part);
        s->n += part;
        p += part;
        n -= part;
        if (s->n == sizeof s->block) {
            sha_block(s->h, s->block);
            s->n = 0;
        }
    }
}

static void sha_end(struct sha256 *s, unsigned char out[DIGEST_NBYTES])
{
    static const unsigned char pad[64] = {0x80};
    unsigned char length[8];
    uint64_t bits = s->total * 8;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha_add(s, pad, 1 + (119 - s->n) % 64);
    sha_add(s, length, sizeof length);
    for (int i = 0; i < DIGEST_NBYTES; i++)
        out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* ------------------------------------------------------------------------------------------ NH */

struct sum { uint64_t low, high; };

/* sum + a * b, modulo 2^128 */
static inline void add_product(struct sum *sum, uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    uint64_t low = (uint64_t)product, high = (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = (a0 * b0 >> 32) + (uint32_t)(a0 * b1) + (uint32_t)(a1 * b0);
    uint64_t low = a * b, high = a1 * b1 + (a0 * b1 >> 32) + (a1 * b0 >> 32) + (middle >> 32);
#endif
    sum->low += low;
    sum->high += high + (sum->low < low);
}

/* The second sum's words of the key are shifted by two (Toeplitz). */
static void compress(const uint64_t *key, const unsigned char *p, struct sum sum[2])
{
    sum[0] = sum[1] = (struct sum){0, 0};
    for (int i = 0; i < CHUNK_NWORD; i += 2) {
        uint64_t w[2];
        memcpy(w, p + 8 * (size_t)i, sizeof w);
        add_product(&sum[0], w[0] + key[i], w[1] + key[i + 1]);
        add_product(&sum[1], w[0] + key[i + 2], w[1] + key[i + 3]);
    }
}

/* ------------------------------------------------------------------------------------- exported */

void digest_key(struct digest_key *key, const void *secret, size_t nbytes)
{
    enum { WORDS = DIGEST_NBYTES / 8 };
    uint64_t word[WORDS];
    for (uint64_t i = 0; i < KEY_NWORD; i += WORDS) {
        struct sha256 s;
        sha_begin(&s);
        sha_add(&s, secret, nbytes);
        sha_add(&s, &i, sizeof i);
        sha_end(&s, (unsigned char *)word);
        for (uint64_t k = 0; k < WORDS && i + k < KEY_NWORD; k++)
            key->word[i + k] = word[k];
    }
}

void digest_begin(struct digest *d, const struct digest_key *key)
{
    d->key = key;
    sha_begin(&d->sha);
    sha_add(&d->sha, key->word, DIGEST_NBYTES);
}

void digest_add(struct digest *d, const void *data, size_t nbytes)
{
    const unsigned char *p = data;
    uint64_t n = nbytes;
    sha_add(&d->sha, &n, sizeof n);
    for (; nbytes >= 8 * CHUNK_NWORD; p += 8 * CHUNK_NWORD, nbytes -= 8 * CHUNK_NWORD) {
        struct sum sum[2];
        compress(d->key->word, p, sum);
        sha_add(&d->sha, sum, sizeof sum);
    }
    sha_add(&d->sha, p, nbytes);
}

void digest_add_string(struct digest *d, const char *s)
{
    static const char none = 1;
    if (s)
        digest_add(d, s, strlen(s) + 1);
    else
        digest_add(d, &none, 1);
}

void digest_add_number(struct digest *d, uint64_t v) { digest_add(d, &v, sizeof v); }

void digest_end(struct digest *d, unsigned char out[DIGEST_NBYTES]) { sha_end(&d->sha, out); }

void digest_sha256(const void *data, size_t nbytes, unsigned char out[DIGEST_NBYTES])
{
    struct sha256 s;
    sha_begin(&s);
    sha_add(&s, data, nbytes);
    sha_end(&s, out);
}
