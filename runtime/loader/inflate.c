/* SPDX-License-Identifier: 0BSD */
/* inflate.c - deflate (RFC 1951) and gzip (RFC 1952) from memory to memory; CRC-32.
 *
 *      bits held: least significant first; refilled once per literal or match, which take at most
 *      15 + 5 + 15 + 13 = 48 of the 57 or more that are then held, unless the input ends
 *      code:      FAST bits of input -> symbol and length; longer codes go through the counts
 *
 * Which streams are valid is what zlib says: a code that is over-subscribed or incomplete is
 * refused, but for a single code of one bit; so is a block without an end, a distance before the
 * beginning, and a stream that ends early. Input has no effect on how much memory this takes.
 */
#include "runtime/loader/parts.h"

//@ loader_inflate loader_file
enum { INFLATE_FAST = 10, INFLATE_LONGEST = 15, INFLATE_SYMBOLS = 288 };

/* fast: symbol << 4 | length, 0 where the code is longer or there is none; count and symbol: the
 * canonical code. */
struct inflate_code {
    uint16_t fast[1 << INFLATE_FAST], count[INFLATE_LONGEST + 1], symbol[INFLATE_SYMBOLS];
};

struct inflate {
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned nbits;
    bool is_short; /* the input has ended within a symbol */
    struct loader_output *out;
    size_t start; /* where the stream's output begins */
    struct inflate_code literals, distances;
};

static void inflate_refill(struct inflate *s)
{
    for (; s->nbits <= 56 && s->at < s->end; s->nbits += 8)
        s->bits |= (uint64_t)*s->at++ << s->nbits;
}

static void inflate_drop(struct inflate *s, unsigned n)
{
    s->is_short = s->is_short || n > s->nbits;
    s->bits >>= n;
    s->nbits -= n < s->nbits ? n : s->nbits;
}

/* needs: n bits held, or less where the input ends */
static unsigned inflate_take(struct inflate *s, unsigned n)
{
    unsigned v = (unsigned)(s->bits & ((UINT64_C(1) << n) - 1));
    inflate_drop(s, n);
    return v;
}

/* allows_one: the code may have a single symbol, of one bit. false: the lengths are no code. */
static bool inflate_make_code(struct inflate_code *c, const uint8_t *length, int n, bool allows_one)
{
    uint16_t at[INFLATE_LONGEST + 2];
    int left = 1, longest = 0;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < n; i++)
        c->count[length[i]]++;
    c->count[0] = 0;
    at[1] = 0;
    for (int k = 1; k <= INFLATE_LONGEST; k++) {
        left = 2 * left - c->count[k];
        if (left < 0)
            return false;
        longest = c->count[k] ? k : longest;
        at[k + 1] = (uint16_t)(at[k] + c->count[k]);
    }
    if (left > 0 && !(allows_one && longest <= 1))
        return false;
    for (int i = 0; i < n; i++)
        if (length[i])
            c->symbol[at[length[i]]++] = (uint16_t)i;
    unsigned code = 0, next = 0;
    for (unsigned k = 1; k <= INFLATE_FAST; k++, code <<= 1)
        for (int i = 0; i < c->count[k]; i++, code++, next++) {
            unsigned reversed = 0;
            for (unsigned b = 0; b < k; b++)
                reversed |= (code >> b & 1) << (k - 1 - b);
            for (unsigned v = reversed; v < 1u << INFLATE_FAST; v += 1u << k)
                c->fast[v] = (uint16_t)((unsigned)c->symbol[next] << 4 | k);
        }
    return true;
}

/* -1: there is no such code. */
static int inflate_symbol(struct inflate *s, const struct inflate_code *c)
{
    unsigned entry = c->fast[s->bits & ((1u << INFLATE_FAST) - 1)];
    if (entry) {
        inflate_drop(s, entry & 15);
        return (int)(entry >> 4);
    }
    int code = 0, first = 0, index = 0;
    for (unsigned k = 1; k <= INFLATE_LONGEST; k++) {
        code |= (int)(s->bits >> (k - 1) & 1);
        if (code - first < c->count[k]) {
            inflate_drop(s, k);
            return c->symbol[index + code - first];
        }
        index += c->count[k];
        first = (first + c->count[k]) << 1;
        code <<= 1;
    }
    return -1;
}

/* Room for n more bytes. */
static enum loader_inflated inflate_reserve(struct loader_output *out, size_t n)
{
    if (n <= out->size - out->n)
        return INFLATE_DONE;
    if (n > out->most - out->n)
        return INFLATE_FULL;
    size_t size = out->size < out->most / 2 ? 2 * out->size : out->most;
    size = size < out->n + n ? out->n + n : size;
    uint8_t *data = (uint8_t *)realloc(out->data, size);
    if (!data)
        return INFLATE_NO_MEMORY;
    out->data = data;
    out->size = size;
    return INFLATE_DONE;
}

static enum loader_inflated inflate_stored(struct inflate *s)
{
    inflate_drop(s, s->nbits % 8);
    inflate_refill(s);
    unsigned n = inflate_take(s, 16), check = inflate_take(s, 16);
    s->at -= s->nbits / 8;
    s->bits = s->nbits = 0;
    if (s->is_short || (n ^ check) != 0xffff || n > (size_t)(s->end - s->at))
        return INFLATE_BROKEN;
    enum loader_inflated status = inflate_reserve(s->out, n);
    if (status == INFLATE_DONE && n) {
        memcpy(s->out->data + s->out->n, s->at, n);
        s->out->n += n;
        s->at += n;
    }
    return status;
}

/* The codes of a block that has its own. */
static bool inflate_read_codes(struct inflate *s)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t length[320] = {0};
    inflate_refill(s);
    int nliteral = (int)inflate_take(s, 5) + 257, ndistance = (int)inflate_take(s, 5) + 1;
    int n = (int)inflate_take(s, 4) + 4;
    for (int i = 0; i < n; i++) {
        inflate_refill(s);
        length[order[i]] = (uint8_t)inflate_take(s, 3);
    }
    if (s->is_short || nliteral > 286 || ndistance > 30 ||
        !inflate_make_code(&s->literals, length, 19, false))
        return false;
    memset(length, 0, sizeof length);
    for (int i = 0; i < nliteral + ndistance;) {
        inflate_refill(s);
        int symbol = inflate_symbol(s, &s->literals);
        unsigned times = symbol < 16    ? 1
                         : symbol == 16 ? 3 + inflate_take(s, 2)
                         : symbol == 17 ? 3 + inflate_take(s, 3)
                                        : 11 + inflate_take(s, 7);
        if (symbol < 0 || s->is_short || (symbol == 16 && i == 0) ||
            i + (int)times > nliteral + ndistance)
            return false;
        uint8_t v = (uint8_t)(symbol < 16 ? symbol : symbol == 16 ? length[i - 1] : 0);
        while (times-- > 0)
            length[i++] = v;
    }
    return length[256] && inflate_make_code(&s->distances, length + nliteral, ndistance, true) &&
           inflate_make_code(&s->literals, length, nliteral, true);
}

static void inflate_set_fixed_codes(struct inflate *s)
{
    uint8_t length[INFLATE_SYMBOLS];
    for (int i = 0; i < INFLATE_SYMBOLS; i++)
        length[i] = (uint8_t)(i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8);
    (void)inflate_make_code(&s->literals, length, INFLATE_SYMBOLS, false);
    memset(length, 5, 32); /* symbols 30 and 31 are refused where they occur */
    (void)inflate_make_code(&s->distances, length, 32, false);
}

/* The match whose length is that symbol. */
static enum loader_inflated inflate_match(struct inflate *s, int symbol)
{
    static const uint16_t base[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                      15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                      67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t far[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                     33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                     1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    struct loader_output *out = s->out;
    int k = symbol - 257;
    if (k > 28)
        return INFLATE_BROKEN;
    size_t n = base[k] + (size_t)inflate_take(s, k < 8 || k == 28 ? 0 : (unsigned)k / 4 - 1);
    int at = inflate_symbol(s, &s->distances);
    if (at < 0 || at > 29)
        return INFLATE_BROKEN;
    size_t back = far[at] + (size_t)inflate_take(s, at < 4 ? 0 : (unsigned)at / 2 - 1);
    if (s->is_short || back > out->n - s->start)
        return INFLATE_BROKEN;
    enum loader_inflated status = inflate_reserve(out, n);
    if (status != INFLATE_DONE) { /* as much of it as there is room for */
        n = out->size - out->n;
    }
    for (size_t i = 0; i < n; i++, out->n++)
        out->data[out->n] = out->data[out->n - back];
    return status;
}

/* A block's literals and matches, up to its end. */
static enum loader_inflated inflate_block(struct inflate *s)
{
    for (;;) {
        inflate_refill(s);
        int symbol = inflate_symbol(s, &s->literals);
        if (symbol < 0 || s->is_short)
            return INFLATE_BROKEN;
        if (symbol == 256)
            return INFLATE_DONE;
        enum loader_inflated status =
            symbol < 256 ? inflate_reserve(s->out, 1) : inflate_match(s, symbol);
        if (status != INFLATE_DONE)
            return status;
        if (symbol < 256)
            s->out->data[s->out->n++] = (uint8_t)symbol;
    }
}

static enum loader_inflated inflate_stream(struct inflate *s)
{
    for (bool is_last = false; !is_last;) {
        inflate_refill(s);
        is_last = inflate_take(s, 1);
        unsigned kind = inflate_take(s, 2);
        if (s->is_short || kind == 3 || (kind == 2 && !inflate_read_codes(s)))
            return INFLATE_BROKEN;
        if (kind == 1)
            inflate_set_fixed_codes(s);
        enum loader_inflated status = kind == 0 ? inflate_stored(s) : inflate_block(s);
        if (status != INFLATE_DONE)
            return status;
    }
    return INFLATE_DONE;
}

LOADER_API enum loader_inflated loader_inflate(const uint8_t *from, size_t size, size_t *used,
                                               struct loader_output *out)
{
    struct inflate *s = (struct inflate *)calloc(1, sizeof *s);
    *used = 0;
    if (!s)
        return INFLATE_NO_MEMORY;
    s->at = from;
    s->end = from + size;
    s->out = out;
    s->start = out->n;
    enum loader_inflated status = inflate_stream(s);
    *used = (size_t)(s->at - from) - s->nbits / 8;
    free(s);
    return status;
}

/* The length of a member's header; 0: it has none that is valid. */
static size_t inflate_gzip_header(const uint8_t *s, size_t n)
{
    enum { HAS_CHECK = 2, HAS_MORE = 4, HAS_NAME = 8, HAS_COMMENT = 16, RESERVED = 224 };
    if (n < 10 || s[0] != 0x1f || s[1] != 0x8b || s[2] != 8 || s[3] & RESERVED)
        return 0;
    size_t at = 10;
    if (s[3] & HAS_MORE) {
        if (n - at < 2 || n - at - 2 < loader_uint(s + at, 2, false))
            return 0;
        at += 2 + (size_t)loader_uint(s + at, 2, false);
    }
    for (int flag = HAS_NAME; flag <= HAS_COMMENT; flag *= 2) {
        const void *zero = s[3] & flag ? memchr(s + at, 0, n - at) : s + at;
        if (!zero)
            return 0;
        at = (size_t)((const uint8_t *)zero - s) + (s[3] & flag ? 1 : 0);
    }
    if (s[3] & HAS_CHECK) {
        if (n - at < 2 || loader_uint(s + at, 2, false) != (loader_crc(s, at) & 0xffff))
            return 0;
        at += 2;
    }
    return at;
}

LOADER_API enum loader_inflated loader_gunzip(const uint8_t *from, size_t size,
                                              struct loader_output *out)
{
    const size_t most_padding = 1 << 20; /* of zeros, as tapes have it */
    size_t at = 0;
    do {
        size_t start = out->n, used, header = inflate_gzip_header(from + at, size - at);
        if (!header)
            return INFLATE_BROKEN;
        at += header;
        enum loader_inflated status = loader_inflate(from + at, size - at, &used, out);
        if (status != INFLATE_DONE)
            return status;
        at += used;
        if (size - at < 8 ||
            loader_uint(from + at, 4, false) != loader_crc(out->data + start, out->n - start) ||
            loader_uint(from + at + 4, 4, false) != ((out->n - start) & 0xffffffff))
            return INFLATE_BROKEN;
        at += 8;
        for (size_t n = 0; at < size && from[at] == 0 && n < most_padding; n++)
            at++;
    } while (at < size);
    return INFLATE_DONE;
}

/* source: Kounavis and Berry 2008, eight tables; made for each call, since the loader has no
 * mutable globals. */
LOADER_API uint32_t loader_crc(const uint8_t *data, size_t nbytes)
{
    uint32_t table[8][256], crc = 0xffffffff;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++)
            v = v >> 1 ^ (v & 1 ? 0xedb88320 : 0);
        table[0][i] = v;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
    for (; nbytes >= 8; data += 8, nbytes -= 8) {
        crc ^= (uint32_t)loader_uint(data, 4, false);
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^
              table[4][crc >> 24] ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^
              table[0][data[7]];
    }
    for (; nbytes; data++, nbytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return ~crc;
}

LOADER_API bool loader_can_hold(size_t deflated, size_t nbytes)
{
    return nbytes / 1032 <= deflated;
}
