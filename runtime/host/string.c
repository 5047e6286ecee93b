/* SPDX-License-Identifier: 0BSD */
/* string.c - strings made of strings: joined, split, normalized; and matched.
 *
 * Results are written to text[size] one after another; a run whose strings do not fit ends with
 * TOO_MANY_RESULTS.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MODEL_TOO_MANY_RESULTS = 9 };
typedef const char *string_t;
static string_t bytes_of(string_t s) { return s ? s : ""; }
static char *text_keep(uint8_t *text, int64_t size, int64_t *used, const char *from, int64_t n)
{
    (void)size;
    return memcpy(text + *used, from, (size_t)n);
}
static int32_t utf8_next(const char *s, int64_t *n) { return *n = 1, *s; }

//@ string_concat bytes_of text_keep
static int string_concat(const string_t *a, const string_t *b, string_t *y, uint8_t *text,
                         int64_t count, int64_t size)
{
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *first = bytes_of(a[i]), *second = bytes_of(b[i]);
        if (!(y[i] = text_keep(text, size, &used, first, (int64_t)strlen(first))))
            return MODEL_TOO_MANY_RESULTS;
        used--; /* the second one goes on where the first one ends */
        if (!text_keep(text, size, &used, second, (int64_t)strlen(second)))
            return MODEL_TOO_MANY_RESULTS;
    }
    return 0;
}

//@ string_part bytes_of
/* The next part of a string: *n bytes from the result on, and *rest what follows it (NULL:
 * nothing); NULL if there is none. An empty delimiter stands for any run of white space; `last`:
 * all that is left is one part. */
static string_t string_part(string_t s, string_t delimiter, bool last, int64_t *n, string_t *rest)
{
    static const char space[] = " \t\n\r\f\v";
    if (!s)
        return NULL;
    if (!*delimiter) {
        s += strspn(s, space);
        size_t length = last ? strlen(s) : strcspn(s, space);
        *n = (int64_t)length;
        *rest = s + length;
        return *s ? s : NULL;
    }
    const char *end = last ? NULL : strstr(s, delimiter);
    *n = end ? end - s : (int64_t)strlen(s);
    *rest = end ? end + strlen(delimiter) : NULL;
    return s;
}

//@ string_split string_part text_keep
/* x[count] -> y[count][*width], where *width is the largest number of parts, padded with empty
 * strings; found[count] says how many. most: splits of one string, -1: any number. */
static int string_split(const string_t *x, const string_t *delimiter, string_t *y, int64_t *found,
                        uint8_t *text, int64_t count, int64_t most, int64_t bound, int64_t size,
                        int64_t *width)
{
    string_t mark = bytes_of(*delimiter), part, rest;
    int64_t used = 0, n;
    *width = 0;
    for (int64_t i = 0; i < count; i++) {
        found[i] = 0;
        for (rest = bytes_of(x[i]); string_part(rest, mark, found[i] == most, &n, &rest);)
            found[i]++;
        *width = found[i] > *width ? found[i] : *width;
    }
    if (*width > bound)
        return MODEL_TOO_MANY_RESULTS;
    for (int64_t i = 0; i < count; i++) {
        rest = bytes_of(x[i]);
        for (int64_t k = 0; k < *width; k++) {
            part = k < found[i] ? string_part(rest, mark, k == most, &n, &rest) : NULL;
            y[i * *width + k] = part ? text_keep(text, size, &used, part, n) : "";
            if (!y[i * *width + k])
                return MODEL_TOO_MANY_RESULTS;
        }
    }
    return 0;
}

//@ change_case utf8_next
/* A character in lower (to < 0) or upper case: Latin, Greek and Cyrillic letters of at most two
 * bytes. */
static int32_t change_case(int32_t c, int64_t to)
{
    if (to < 0) {
        bool by_32 = (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) ||
                     (c >= 0x391 && c <= 0x3a9) || (c >= 0x410 && c <= 0x42f);
        bool by_1 = c >= 0x100 && c < 0x138 && c % 2 == 0 && c != 0x130;
        return by_32 ? c + 32 : c >= 0x400 && c <= 0x40f ? c + 80 : by_1 ? c + 1 : c;
    }
    bool by_32 = (c >= 'a' && c <= 'z') || (c >= 0xe0 && c <= 0xfe && c != 0xf7) ||
                 (c >= 0x3b1 && c <= 0x3c9 && c != 0x3c2) || (c >= 0x430 && c <= 0x44f);
    bool by_1 = c > 0x100 && c < 0x138 && c % 2 == 1 && c != 0x131;
    return by_32 ? c - 32 : c >= 0x450 && c <= 0x45f ? c - 80 : by_1 ? c - 1 : c;
}

//@ text_case change_case
/* Changes the case of a string in place; the letters that change keep their size. */
static void text_case(char *s, int64_t to)
{
    for (int64_t n; *s; s += n) {
        int32_t c = change_case(utf8_next(s, &n), to);
        if (n == 1 && (unsigned char)*s < 0x80) {
            *s = (char)c;
        } else if (n == 2) {
            s[0] = (char)(0xc0 | c >> 6);
            s[1] = (char)(0x80 | (c & 0x3f));
        }
    }
}

//@ is_in_case change_case
/* Is s, whose case was changed, the word with its case changed? */
static bool is_in_case(const char *s, const char *word, int64_t to)
{
    for (int64_t n, m; *s && *word; s += n, word += m)
        if (utf8_next(s, &n) != change_case(utf8_next(word, &m), to))
            return false;
    return !*s && !*word;
}

//@ string_normalize bytes_of text_keep text_case is_in_case
/* x[count] without the stop words, in lower (to < 0) or upper case (to > 0) or as they are; *kept
 * of them, one empty string if none. `sensitive`: the stop words are compared before the change,
 * else after it, theirs included. */
static int string_normalize(const string_t *x, const string_t *stop, string_t *y, uint8_t *text,
                            int64_t count, int64_t nstop, int64_t to, int64_t sensitive,
                            int64_t size, int64_t *kept)
{
    int64_t used = 0;
    *kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *word = bytes_of(x[i]);
        char *s = text_keep(text, size, &used, word, (int64_t)strlen(word));
        if (!s)
            return MODEL_TOO_MANY_RESULTS;
        bool is_stop = false, changed = to && !sensitive;
        if (changed)
            text_case(s, to);
        for (int64_t k = 0; k < nstop; k++)
            is_stop |= changed ? is_in_case(s, stop[k], to) : strcmp(s, stop[k]) == 0;
        if (to && sensitive)
            text_case(s, to);
        if (!is_stop && *s)
            y[(*kept)++] = s;
    }
    if (*kept == 0)
        y[(*kept)++] = "";
    return 0;
}
