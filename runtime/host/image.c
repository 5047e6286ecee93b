/* SPDX-License-Identifier: 0BSD */
/* image.c - pictures in files: BMP, PNM, PNG and baseline TIFF are decoded here, without
 * allocation; JPEG, JPEG 2000 and WebP by libraries, if the program is built with them. A file that
 * cannot be decoded is an image without pixels. source: ONNX ImageDecoder; RFC 1950 and 1951; PNG
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MODEL_OK,
    MODEL_DIM_OUT_OF_RANGE = 6,
    MODEL_TOO_MANY_RESULTS = 9,
    MODEL_NO_DECODER = 15
};

//@ image
/* What is read, and where its pixels go. order: 0 RGB, 1 BGR, 2 gray, 3 RGB and alpha. */
struct image {
    const uint8_t *data;
    uint8_t *pixels, *room;
    int64_t size, order, most_height, most_width, room_size, height, width;
    unsigned clear; /* 255 - alpha of the pixel at hand */
};
enum { IMAGE_DONE, IMAGE_BROKEN, IMAGE_TOO_LARGE, IMAGE_NO_DECODER };

//@ image_begin image
static int image_begin(struct image *m, int64_t height, int64_t width)
{
    if (height < 1 || width < 1)
        return IMAGE_BROKEN;
    m->height = height;
    m->width = width;
    return height > m->most_height || width > m->most_width ? IMAGE_TOO_LARGE : IMAGE_DONE;
}

//@ image_put image
/* Gray as ITU-R 601 weighs it, in 16 bits. */
static void image_put(const struct image *m, int64_t row, int64_t column, unsigned r, unsigned g,
                      unsigned b)
{
    int64_t at = row * m->width + column;
    if (m->order == 2) {
        m->pixels[at] = (uint8_t)((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16);
        return;
    }
    uint8_t *to = m->pixels + (m->order == 3 ? 4 : 3) * at;
    to[0] = (uint8_t)(m->order == 1 ? b : r);
    to[1] = (uint8_t)g;
    to[2] = (uint8_t)(m->order == 1 ? r : b);
    if (m->order == 3)
        to[3] = (uint8_t)(255 - m->clear);
}

//@ image_uint image
/* n bytes at a position as a number, 0 beyond the end. */
static uint32_t image_uint(const struct image *m, int64_t at, int n, bool big)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        int64_t k = at + (big ? i : n - 1 - i);
        v = v << 8 | (k >= 0 && k < m->size ? m->data[k] : 0u);
    }
    return v;
}

//@ image_bmp image_begin image_put image_uint
static int image_bmp(struct image *m)
{
    uint32_t header = image_uint(m, 14, 4, false), packing = 0;
    bool old = header == 12; /* of OS/2 */
    int64_t width = image_uint(m, 18, old ? 2 : 4, false),
            height =
                old ? image_uint(m, 20, 2, false) : (int64_t)(int32_t)image_uint(m, 22, 4, false),
            bits = image_uint(m, old ? 24 : 28, 2, false), pixels = image_uint(m, 10, 4, false);
    bool down = height < 0; /* the first row is the topmost */
    if (!old)
        packing = image_uint(m, 30, 4, false);
    if ((bits != 1 && bits != 4 && bits != 8 && bits != 24 && bits != 32) ||
        (packing != 0 && !(packing == 3 && bits == 32)) || header > 4096)
        return IMAGE_BROKEN;
    int status = image_begin(m, down ? -height : height, width);
    int64_t pitch = (width * bits + 31) / 32 * 4, palette = 14 + (int64_t)header,
            entry = old ? 3 : 4;
    if (status != IMAGE_DONE)
        return status;
    if (pixels + pitch * m->height > m->size)
        return IMAGE_BROKEN;
    for (int64_t y = 0; y < m->height; y++)
        for (int64_t x = 0; x < width; x++) {
            int64_t row = pixels + pitch * (down ? y : m->height - 1 - y), at = row + x * bits / 8;
            if (bits <= 8) {
                unsigned shift = (unsigned)(8 - bits - x * bits % 8),
                         v = (unsigned)m->data[at] >> shift & ((1u << bits) - 1);
                at = palette + entry * (int64_t)v;
            }
            image_put(m, y, x, image_uint(m, at + 2, 1, false), image_uint(m, at + 1, 1, false),
                      image_uint(m, at, 1, false));
        }
    return IMAGE_DONE;
}

//@ image_word image
/* The next number in ASCII, after white space and comments; -1: none. */
static int64_t image_word(const struct image *m, int64_t *at, bool digit)
{
    for (bool comment = false; *at < m->size; ++*at) {
        uint8_t c = m->data[*at];
        comment = comment ? c != '\n' && c != '\r' : c == '#';
        if (!comment && c != ' ' && (c < '\t' || c > '\r'))
            break;
    }
    int64_t v = -1;
    for (; *at < m->size && m->data[*at] >= '0' && m->data[*at] <= '9'; ++*at) {
        v = (v < 0 ? 0 : v) * 10 + m->data[*at] - '0';
        if (v > 1 << 30)
            return -1;
        if (digit) { /* a pixel of P1 is one digit, with or without space around it */
            ++*at;
            break;
        }
    }
    return v;
}

//@ image_pnm image_begin image_put image_uint image_word
static int image_pnm(struct image *m)
{
    int kind = m->data[1] - '0', plain = kind <= 3, samples = kind == 3 || kind == 6 ? 3 : 1;
    bool bitmap = kind == 1 || kind == 4;
    int64_t at = 2, width = image_word(m, &at, false), height = image_word(m, &at, false),
            most = bitmap ? 1 : image_word(m, &at, false);
    int status = image_begin(m, height, width);
    if (most < 1 || most > 65535 || status == IMAGE_BROKEN)
        return IMAGE_BROKEN;
    if (status != IMAGE_DONE)
        return status;
    at++; /* one white space */
    int64_t bytes = most > 255 ? 2 : 1,
            pitch = kind == 4 ? (width + 7) / 8 : width * samples * bytes;
    if (!plain && pitch * height > m->size - at)
        return IMAGE_BROKEN;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            int64_t v[3];
            for (int k = 0; k < samples; k++) {
                if (plain)
                    v[k] = image_word(m, &at, bitmap);
                else if (kind == 4)
                    v[k] = m->data[at + y * pitch + x / 8] >> (7 - x % 8) & 1;
                else
                    v[k] =
                        image_uint(m, at + y * pitch + (x * samples + k) * bytes, (int)bytes, true);
                if (v[k] < 0 || v[k] > most)
                    return IMAGE_BROKEN;
                v[k] = bitmap ? 255 - 255 * v[k] : (2 * 255 * v[k] + most) / (2 * most);
            }
            image_put(m, y, x, (unsigned)v[0], (unsigned)v[samples / 2], (unsigned)v[samples - 1]);
        }
    return IMAGE_DONE;
}

//@ image_tiff image_begin image_put image_uint
/* The first picture of the file: strips of 8-bit samples, as they are or in PackBits. */
static int image_tiff(struct image *m)
{
    enum { WIDTH, HEIGHT, BITS, PACKING, MEANING, STRIPS, SAMPLES, ROWS, PLANAR, COLORS, FIELDS };
    static const uint16_t tags[FIELDS] = {256, 257, 258, 259, 262, 273, 277, 278, 284, 320};
    int64_t value[FIELDS] = {0, 0, 1, 1, 0, 0, 1, 1 << 30, 1, 0}, count[FIELDS] = {0};
    int size[FIELDS] = {0};
    bool big = m->data[0] == 'M';
    int64_t ifd = image_uint(m, 4, 4, big), n = image_uint(m, ifd, 2, big);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = ifd + 2 + 12 * i;
        for (int k = 0; k < FIELDS; k++) {
            if (image_uint(m, at, 2, big) != tags[k])
                continue;
            uint32_t type = image_uint(m, at + 2, 2, big);
            size[k] = type == 4 ? 4 : type == 3 ? 2 : 1;
            count[k] = image_uint(m, at + 4, 4, big);
            bool inside = count[k] * size[k] <= 4;
            value[k] = inside && count[k] == 1 ? image_uint(m, at + 8, size[k], big)
                       : inside                ? at + 8
                                               : image_uint(m, at + 8, 4, big);
            if (k == BITS && count[k] > 1)
                value[k] = image_uint(m, value[k], 2, big);
        }
    }
    int64_t meaning = value[MEANING], samples = value[SAMPLES], rows = value[ROWS];
    if (value[BITS] != 8 || (value[PACKING] != 1 && value[PACKING] != 32773) || meaning > 3 ||
        samples < (meaning == 2 ? 3 : 1) || samples > 8 || rows < 1 ||
        (value[PLANAR] != 1 && samples > 1) || (meaning == 3 && count[COLORS] != 768))
        return IMAGE_BROKEN;
    int status = image_begin(m, value[HEIGHT], value[WIDTH]);
    if (status != IMAGE_DONE)
        return status;
    int64_t at = 0, run = 0, pitch = m->width * samples;
    if (pitch > m->room_size)
        return IMAGE_BROKEN;
    rows = rows < m->height ? rows : m->height;
    bool same = false; /* of PackBits: one byte, again and again */
    for (int64_t i = 0; i < m->height * pitch; i++) {
        if (i % (rows * pitch) == 0) {
            int64_t k = i / (rows * pitch);
            if (k >= count[STRIPS])
                return IMAGE_BROKEN;
            at = count[STRIPS] == 1
                     ? value[STRIPS]
                     : image_uint(m, value[STRIPS] + k * size[STRIPS], size[STRIPS], big);
            run = 0;
        }
        while (value[PACKING] != 1 && run == 0) {
            if (at + 1 >= m->size)
                return IMAGE_BROKEN;
            uint8_t code = m->data[at++];
            same = code > 128;
            run = code == 128 ? 0 : same ? 257 - code : code + 1;
        }
        if (at >= m->size)
            return IMAGE_BROKEN;
        m->room[i % pitch] = m->data[at];
        run--;
        at += !same || run == 0;
        if (i % pitch < pitch - 1)
            continue;
        for (int64_t x = 0; x < m->width; x++) {
            const uint8_t *v = m->room + x * samples;
            unsigned c[3];
            for (int k = 0; k < 3; k++)
                c[k] = meaning == 3
                           ? image_uint(m, value[COLORS] + 2 * (256 * k + v[0]), 2, big) >> 8
                       : meaning == 2 ? v[k]
                       : meaning == 1 ? v[0]
                                      : 255u - v[0];
            image_put(m, i / pitch, x, c[0], c[1], c[2]);
        }
    }
    return IMAGE_DONE;
}

//@ image_inflate image_uint
/* The bits of the IDAT chunks in order; 0 after their end. */
struct image_bits {
    const struct image *image;
    int64_t at, end; /* in the chunk */
    uint32_t held;
    int count;
    bool ended;
};

static uint32_t image_take(struct image_bits *b, int n)
{
    while (b->count < n) {
        while (b->at == b->end && !b->ended) { /* the next chunk, after this one's checksum */
            int64_t size = image_uint(b->image, b->end + 4, 4, true);
            b->ended = image_uint(b->image, b->end + 8, 4, true) != 0x49444154u ||
                       size > b->image->size - b->end - 12;
            b->at = b->end + 12;
            b->end = b->at + size;
        }
        b->held |= (b->ended ? 0u : (uint32_t)b->image->data[b->at++]) << b->count;
        b->count += 8;
    }
    uint32_t v = b->held & ((1u << n) - 1);
    b->held >>= n;
    b->count -= n;
    return v;
}

/* A canonical Huffman code: how many codes of each length, and the symbols in order. */
struct image_code { uint16_t count[16], symbol[288]; };
/* The tables of a block's codes, at the start of a picture's room. */
struct image_tables { struct image_code literals, distances, lengths; uint8_t length[320]; };
_Static_assert(sizeof(struct image_tables) == 2144, "the room that ImageDecoder asks for");

static void image_make_code(struct image_code *c, const uint8_t *length, int n)
{
    uint16_t first[17] = {0};
    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < n; i++)
        c->count[length[i]]++;
    c->count[0] = 0;
    for (int k = 1; k < 16; k++)
        first[k + 1] = (uint16_t)(first[k] + c->count[k]);
    for (int i = 0; i < n; i++)
        if (length[i])
            c->symbol[first[length[i]]++] = (uint16_t)i;
}

/* -1: no such code */
static int image_symbol(struct image_bits *b, const struct image_code *c)
{
    int code = 0, first = 0, index = 0;
    for (int k = 1; k < 16; k++) {
        code |= (int)image_take(b, 1);
        if (code - first < c->count[k])
            return c->symbol[index + code - first];
        index += c->count[k];
        first = (first + c->count[k]) << 1;
        code <<= 1;
    }
    return -1;
}

/* The lengths of a block's two codes. */
static bool image_lengths(struct image_bits *b, struct image_tables *t, int *nliteral,
                          int *ndistance)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t own[19] = {0}, *length = t->length;
    *nliteral = (int)image_take(b, 5) + 257;
    *ndistance = (int)image_take(b, 5) + 1;
    int n = (int)image_take(b, 4) + 4;
    for (int i = 0; i < n; i++)
        own[order[i]] = (uint8_t)image_take(b, 3);
    image_make_code(&t->lengths, own, 19);
    for (int i = 0; i < *nliteral + *ndistance;) {
        int symbol = image_symbol(b, &t->lengths);
        int times = symbol < 16    ? 1
                    : symbol == 16 ? 3 + (int)image_take(b, 2)
                    : symbol == 17 ? 3 + (int)image_take(b, 3)
                                   : 11 + (int)image_take(b, 7);
        if (symbol < 0 || (symbol == 16 && i == 0) || i + times > *nliteral + *ndistance)
            return false;
        uint8_t v = (uint8_t)(symbol < 16 ? symbol : symbol == 16 ? length[i - 1] : 0);
        while (times-- > 0)
            length[i++] = v;
    }
    return *nliteral <= 286 && *ndistance <= 30;
}

/* One block of literals and copies, up to its end. */
static bool image_block(struct image_bits *b, const struct image_code *literals,
                        const struct image_code *distances, uint8_t *to, int64_t size,
                        int64_t *used)
{
    static const uint16_t base[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                      15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                      67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t far[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                     33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                     1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (*used <= size) {
        int symbol = image_symbol(b, literals);
        if (symbol == 256)
            return true;
        if (symbol < 0 || symbol > 285 || (symbol < 256 && *used == size) || b->ended)
            return false;
        if (symbol < 256) {
            to[(*used)++] = (uint8_t)symbol;
            continue;
        }
        int k = symbol - 257, extra = k < 8 || k == 28 ? 0 : k / 4 - 1;
        int64_t n = base[k] + (int64_t)image_take(b, extra);
        int d = image_symbol(b, distances);
        if (d < 0 || d > 29)
            return false;
        int64_t back = far[d] + (int64_t)image_take(b, d < 4 ? 0 : d / 2 - 1);
        if (back > *used || n > size - *used)
            return false;
        for (; n > 0; n--, ++*used)
            to[*used] = to[*used - back];
    }
    return false;
}

/* Inflates the zlib stream of the chunk [at, end) and those after it, to exactly `size`
 * bytes. A block must not begin after the end of the data: the zeros read there would be
 * empty blocks without end. */
static bool image_inflate(const struct image *m, int64_t at, int64_t end, struct image_tables *t,
                          uint8_t *to, int64_t size)
{
    struct image_bits b = {m, at, end, 0, 0, false};
    int64_t used = 0;
    int nliteral = 288, ndistance = 30;
    if ((image_take(&b, 8) & 15) != 8 || image_take(&b, 8) & 32)
        return false;
    for (bool last = false; !last;) {
        last = image_take(&b, 1) != 0;
        uint32_t kind = image_take(&b, 2);
        if (b.ended)
            return false;
        if (kind == 0) {
            image_take(&b, b.count % 8);
            int64_t n = image_take(&b, 16);
            image_take(&b, 16);
            if (n > size - used)
                return false;
            while (n-- > 0)
                to[used++] = (uint8_t)image_take(&b, 8);
            continue;
        }
        if (kind == 3)
            return false;
        for (int i = 0; kind == 1 && i < 320; i++)
            t->length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : i < 288 ? 8 : 5;
        if (kind == 2 && !image_lengths(&b, t, &nliteral, &ndistance))
            return false;
        image_make_code(&t->literals, t->length, kind == 1 ? 288 : nliteral);
        image_make_code(&t->distances, t->length + (kind == 1 ? 288 : nliteral),
                        kind == 1 ? 30 : ndistance);
        if (!image_block(&b, &t->literals, &t->distances, to, size, &used))
            return false;
    }
    uint32_t low = 1, high = 0, sum = 0; /* Adler's checksum */
    image_take(&b, b.count % 8);
    for (int i = 0; i < 4; i++)
        sum = sum << 8 | image_take(&b, 8);
    for (int64_t i = 0; i < used; i++) {
        low = (low + to[i]) % 65521;
        high = (high + low) % 65521;
    }
    return used == size && !b.ended && sum == (high << 16 | low);
}

//@ image_png image_begin image_put image_inflate
/* Undoes a row's filter. before: the row above, NULL: none; step: bytes of a pixel. */
static bool image_unfilter(uint8_t *row, const uint8_t *before, int64_t n, int64_t step, int kind)
{
    for (int64_t i = 0; i < n; i++) {
        int a = i < step ? 0 : row[i - step], b = before ? before[i] : 0,
            c = i < step || !before ? 0 : before[i - step];
        int p = a + b - c, pa = p < a ? a - p : p - a, pb = p < b ? b - p : p - b,
            pc = p < c ? c - p : p - c;
        int guess = kind == 1   ? a
                    : kind == 2 ? b
                    : kind == 3 ? (a + b) / 2
                    : kind == 4 ? (pa <= pb && pa <= pc ? a : pb <= pc ? b : c)
                                : 0;
        row[i] = (uint8_t)(row[i] + guess);
    }
    return kind <= 4;
}

static int image_png(struct image *m)
{
    /* Adam7's seven passes, and the one of a picture that is not interlaced */
    static const uint8_t row0[8] = {0, 0, 4, 0, 2, 0, 1, 0}, column0[8] = {0, 4, 0, 2, 0, 1, 0, 0},
                         rows[8] = {8, 8, 8, 4, 4, 2, 2, 1}, columns[8] = {8, 8, 4, 4, 2, 2, 1, 1};
    int64_t width = image_uint(m, 16, 4, true), height = image_uint(m, 20, 4, true), at = 33,
            palette = 0, colors = 0, clear = 0, clears = 0, total = 0;
    int bits = (int)image_uint(m, 24, 1, true), kind = (int)image_uint(m, 25, 1, true),
        samples = kind == 2 ? 3 : kind == 6 ? 4 : kind == 4 ? 2 : 1;
    bool interlaced = image_uint(m, 28, 1, true) == 1;
    bool valid = bits == 8 || (bits == 16 && kind != 3) ||
                 ((bits == 1 || bits == 2 || bits == 4) && (kind == 0 || kind == 3));
    if (image_uint(m, 12, 4, true) != 0x49484452u || !valid || kind > 6 || kind == 1 || kind == 5)
        return IMAGE_BROKEN;
    int status = image_begin(m, height, width);
    if (status != IMAGE_DONE)
        return status;
    while (at + 12 <= m->size && image_uint(m, at + 4, 4, true) != 0x49444154u) {
        int64_t size = image_uint(m, at, 4, true);
        if (image_uint(m, at + 4, 4, true) == 0x504c5445u) {
            palette = at + 8;
            colors = size / 3;
        } else if (image_uint(m, at + 4, 4, true) == 0x74524e53u) { /* the palette's alpha */
            clear = at + 8;
            clears = size;
        }
        at += 12 + size;
    }
    int first = interlaced ? 0 : 7, last = interlaced ? 7 : 8;
    for (int pass = first; pass < last; pass++) {
        int64_t h = (height - row0[pass] + rows[pass] - 1) / rows[pass],
                w = (width - column0[pass] + columns[pass] - 1) / columns[pass];
        total += w > 0 && h > 0 ? h * (1 + (w * bits * samples + 7) / 8) : 0;
    }
    struct image_tables *tables = (struct image_tables *)(void *)m->room;
    uint8_t *row = m->room + sizeof *tables;
    if (at + 12 > m->size || image_uint(m, at, 4, true) > m->size - at - 12 ||
        total > m->room_size - (int64_t)sizeof *tables ||
        !image_inflate(m, at + 8, at + 8 + image_uint(m, at, 4, true), tables, row, total))
        return IMAGE_BROKEN;
    for (int pass = first; pass < last; pass++) {
        int64_t h = (height - row0[pass] + rows[pass] - 1) / rows[pass],
                w = (width - column0[pass] + columns[pass] - 1) / columns[pass],
                pitch = (w * bits * samples + 7) / 8,
                step = bits * samples < 8 ? 1 : bits * samples / 8;
        for (int64_t y = 0; y < h && w > 0; y++, row += 1 + pitch) {
            if (!image_unfilter(row + 1, y ? row - pitch : NULL, pitch, step, row[0]))
                return IMAGE_BROKEN;
            for (int64_t x = 0; x < w; x++) {
                unsigned v[4] = {0};
                for (int k = 0; k < samples; k++) {
                    int64_t bit = (x * samples + k) * bits;
                    v[k] = row[1 + bit / 8]; /* of 16 bits the upper ones */
                    if (bits < 8)
                        v[k] = v[k] >> (8 - bits - bit % 8) & ((1u << bits) - 1);
                    if (bits < 8 && kind == 0)
                        v[k] = v[k] * 255u / ((1u << bits) - 1);
                }
                m->clear = kind == 6 ? 255 - v[3] : kind == 4 ? 255 - v[1] : 0;
                if (kind == 3) {
                    if ((int64_t)v[0] >= colors)
                        return IMAGE_BROKEN;
                    int64_t p = palette + 3 * (int64_t)v[0], i = (int64_t)v[0];
                    m->clear = i < clears ? 255 - image_uint(m, clear + i, 1, true) : 0;
                    for (int k = 2; k >= 0; k--)
                        v[k] = image_uint(m, p + k, 1, true);
                } else if (samples < 3) {
                    v[1] = v[2] = v[0];
                }
                image_put(m, row0[pass] + y * rows[pass], column0[pass] + x * columns[pass], v[0],
                          v[1], v[2]);
            }
        }
    }
    return IMAGE_DONE;
}

//@ image_jpeg image_begin image_put
/* With -DMODEL_WITH_JPEG -ljpeg */
#ifdef MODEL_WITH_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

struct image_jpeg_error {
    struct jpeg_error_mgr base;
    jmp_buf back;
};
static void image_jpeg_fail(j_common_ptr c)
{
    longjmp(((struct image_jpeg_error *)c->err)->back, 1);
}
static void image_jpeg_say(j_common_ptr c) { (void)c; }

static int image_jpeg(struct image *m)
{
    struct jpeg_decompress_struct c;
    struct image_jpeg_error error;
    c.err = jpeg_std_error(&error.base);
    error.base.error_exit = image_jpeg_fail;
    error.base.output_message = image_jpeg_say;
    if (setjmp(error.back)) {
        jpeg_destroy_decompress(&c);
        return IMAGE_BROKEN;
    }
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, m->data, (unsigned long)m->size);
    jpeg_read_header(&c, TRUE);
    c.out_color_space = JCS_RGB;
    int status = image_begin(m, c.image_height, c.image_width);
    if (status == IMAGE_DONE) {
        jpeg_start_decompress(&c);
        JSAMPARRAY row =
            (*c.mem->alloc_sarray)((j_common_ptr)&c, JPOOL_IMAGE, 3 * c.output_width, 1);
        while (c.output_scanline < c.output_height) {
            int64_t y = c.output_scanline;
            jpeg_read_scanlines(&c, row, 1);
            for (int64_t x = 0; x < m->width; x++)
                image_put(m, y, x, row[0][3 * x], row[0][3 * x + 1], row[0][3 * x + 2]);
        }
    }
    jpeg_destroy_decompress(&c);
    return status;
}
#else
static int image_jpeg(struct image *m) { return m->size < 0 ? IMAGE_BROKEN : IMAGE_NO_DECODER; }
#endif

//@ image_webp image_begin image_put
/* With -DMODEL_WITH_WEBP -lwebp */
#ifdef MODEL_WITH_WEBP
#include <webp/decode.h>

static int image_webp(struct image *m)
{
    int width = 0, height = 0;
    if (!WebPGetInfo(m->data, (size_t)m->size, &width, &height))
        return IMAGE_BROKEN;
    int status = image_begin(m, height, width);
    if (status != IMAGE_DONE)
        return status;
    uint8_t *v = WebPDecodeRGB(m->data, (size_t)m->size, &width, &height);
    for (int64_t i = 0; v && i < m->width * m->height; i++)
        image_put(m, i / m->width, i % m->width, v[3 * i], v[3 * i + 1], v[3 * i + 2]);
    WebPFree(v);
    return v ? IMAGE_DONE : IMAGE_BROKEN;
}
#else
static int image_webp(struct image *m) { return m->size < 0 ? IMAGE_BROKEN : IMAGE_NO_DECODER; }
#endif

//@ image_jpeg2000 image_begin image_put
/* With -DMODEL_WITH_OPENJPEG -lopenjp2 */
#ifdef MODEL_WITH_OPENJPEG
#include <openjpeg.h>

struct image_stream { const uint8_t *data; int64_t size, at; };

static OPJ_SIZE_T image_stream_read(void *to, OPJ_SIZE_T n, void *user)
{
    struct image_stream *s = (struct image_stream *)user;
    int64_t left = s->size - s->at, take = left < (int64_t)n ? left : (int64_t)n;
    if (take <= 0)
        return (OPJ_SIZE_T)-1;
    memcpy(to, s->data + s->at, (size_t)take);
    s->at += take;
    return (OPJ_SIZE_T)take;
}

static OPJ_BOOL image_stream_seek(OPJ_OFF_T at, void *user)
{
    struct image_stream *s = (struct image_stream *)user;
    s->at = at < 0 || at > s->size ? s->size : at;
    return s->at == at;
}

static OPJ_OFF_T image_stream_skip(OPJ_OFF_T n, void *user)
{
    struct image_stream *s = (struct image_stream *)user;
    return image_stream_seek(s->at + n, user) ? n : -1;
}

/* Components of one size, of at most 8 bits. */
static int image_jpeg2000_put(struct image *m, const opj_image_t *from)
{
    int status = image_begin(m, from->comps[0].h, from->comps[0].w);
    uint32_t used = from->numcomps < 3 ? 1 : 3;
    for (uint32_t k = 0; k < used; k++)
        if (from->comps[k].w != from->comps[0].w || from->comps[k].h != from->comps[0].h ||
            from->comps[k].prec > 8 || !from->comps[k].data)
            return IMAGE_BROKEN;
    for (int64_t i = 0; status == IMAGE_DONE && i < m->width * m->height; i++) {
        unsigned v[3];
        for (uint32_t k = 0; k < 3; k++) {
            const opj_image_comp_t *c = &from->comps[used == 1 ? 0 : k];
            v[k] =
                (unsigned)(c->data[i] + (c->sgnd ? 1 << (c->prec - 1) : 0)) << (8 - c->prec) & 255u;
        }
        image_put(m, i / m->width, i % m->width, v[0], v[1], v[2]);
    }
    return status;
}

static int image_jpeg2000(struct image *m)
{
    struct image_stream source = {m->data, m->size, 0};
    opj_dparameters_t parameters;
    opj_image_t *image = NULL;
    opj_stream_t *stream = opj_stream_default_create(OPJ_TRUE);
    opj_codec_t *codec = opj_create_decompress(m->data[0] ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
    int status = IMAGE_BROKEN;
    opj_set_default_decoder_parameters(&parameters);
    opj_stream_set_user_data(stream, &source, NULL);
    opj_stream_set_user_data_length(stream, (OPJ_UINT64)m->size);
    opj_stream_set_read_function(stream, image_stream_read);
    opj_stream_set_seek_function(stream, image_stream_seek);
    opj_stream_set_skip_function(stream, image_stream_skip);
    if (opj_setup_decoder(codec, &parameters) && opj_read_header(stream, codec, &image) &&
        image->numcomps > 0 && image->x1 - image->x0 <= (uint64_t)m->most_width &&
        image->y1 - image->y0 <= (uint64_t)m->most_height && opj_decode(codec, stream, image))
        status = image_jpeg2000_put(m, image);
    else if (image && (image->x1 - image->x0 > (uint64_t)m->most_width ||
                       image->y1 - image->y0 > (uint64_t)m->most_height))
        status = IMAGE_TOO_LARGE;
    opj_image_destroy(image);
    opj_destroy_codec(codec);
    opj_stream_destroy(stream);
    return status;
}
#else
static int image_jpeg2000(struct image *m) { return m->size < 0 ? IMAGE_BROKEN : IMAGE_NO_DECODER; }
#endif

//@ image_read image_bmp image_pnm image_tiff image_png image_jpeg image_webp image_jpeg2000
/* By the bytes that a file begins with. An image that is too large has its size. */
static int image_read(struct image *m)
{
    static const struct {
        const char *magic;
        int n;
        int (*decode)(struct image *m);
    } formats[] = {
        {"BM", 2, image_bmp},       {"P1", 2, image_pnm},       {"P2", 2, image_pnm},
        {"P3", 2, image_pnm},       {"P4", 2, image_pnm},       {"P5", 2, image_pnm},
        {"P6", 2, image_pnm},       {"II*\0", 4, image_tiff},   {"MM\0*", 4, image_tiff},
        {"\x89PNG", 4, image_png},  {"\xff\xd8\xff", 3, image_jpeg}, {"RIFF", 4, image_webp},
        {"\0\0\0\x0cjP  ", 8, image_jpeg2000}, {"\xff\x4f\xff\x51", 4, image_jpeg2000},
    };
    int status = IMAGE_BROKEN;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (m->size > 8 && memcmp(m->data, formats[i].magic, (size_t)formats[i].n) == 0)
            status = formats[i].decode(m);
    return status;
}

//@ image_decode image_read
/* data[size] -> pixels [*height][*width][3, or 1 for gray]; room: for a row, or a PNG's tables and
 * bytes, aligned for uint16_t. */
static int image_decode(const uint8_t *data, uint8_t *pixels, uint8_t *room, int64_t size,
                        int64_t order, int64_t least_height, int64_t most_height,
                        int64_t least_width, int64_t most_width, int64_t room_size, int64_t *height,
                        int64_t *width)
{
    struct image m = {data,        pixels,     room,      size, order,
                      most_height, most_width, room_size, 0,    0, 0};
    int status = image_read(&m);
    if (status == IMAGE_NO_DECODER)
        return MODEL_NO_DECODER;
    if (status == IMAGE_TOO_LARGE)
        return MODEL_TOO_MANY_RESULTS;
    *height = status == IMAGE_DONE ? m.height : 0;
    *width = status == IMAGE_DONE ? m.width : 0;
    return *height < least_height || *width < least_width ? MODEL_DIM_OUT_OF_RANGE : MODEL_OK;
}
