/* random.h - a deterministic source of choices, for tests that draw their cases (xorshift64). */
#ifndef TGC_TEST_RANDOM_H
#define TGC_TEST_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t s;                  /* the seed at first; not 0 */
};

/* 0 to n - 1; n > 0 */
static inline uint32_t pick(struct random *r, uint32_t n)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (uint32_t)(r->s >> 33) % n;
}

/* lo to hi, both among them */
static inline int64_t between(struct random *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)pick(r, (uint32_t)(hi - lo + 1));
}

#endif
