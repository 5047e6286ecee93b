/* SPDX-License-Identifier: 0BSD */
/* order_string.c - strings as host functions see them: bytes up to a zero, UTF-8 where letters
 * matter; NULL is the empty one.
 *
 * Strings that a function makes lie in a text buffer of the arena, which is never used for anything
 * else: they last until the next run.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

//@ string_t
typedef const char *string_t;

//@ bytes_of string_t
static inline string_t bytes_of(string_t s) { return s ? s : ""; }

//@ less_str bytes_of
static inline bool less_str(string_t a, string_t b) { return strcmp(bytes_of(a), bytes_of(b)) < 0; }

//@ text_keep string_t
/* A copy of n bytes at text + *used, and a zero; NULL if size does not hold them. */
static inline char *text_keep(uint8_t *text, int64_t size, int64_t *used, const char *from,
                              int64_t n)
{
    if (size - *used <= n)
        return NULL;
    char *s = (char *)text + *used;
    memcpy(s, from, (size_t)n);
    s[n] = 0;
    *used += n + 1;
    return s;
}

//@ utf8_next
/* The character at s, whose size goes to *n; a byte that begins none is one by itself. */
static inline int32_t utf8_next(const char *s, int64_t *n)
{
    const unsigned char *b = (const unsigned char *)s;
    int more = b[0] < 0xc2 ? 0 : b[0] < 0xe0 ? 1 : b[0] < 0xf0 ? 2 : b[0] < 0xf5 ? 3 : 0;
    int32_t c = more ? b[0] & (0x3f >> more) : b[0] < 0x80 ? b[0] : 0xfffd;
    *n = 1;
    for (int i = 1; i <= more; i++) {
        if ((b[i] & 0xc0) != 0x80) {
            *n = 1;
            return 0xfffd;
        }
        c = (int32_t)((uint32_t)c << 6 | (b[i] & 0x3fu));
        *n = i + 1;
    }
    return c;
}

//@ equal_string
/* Strings are bytes; NULL is the empty one. */
static inline bool equal_string(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}
