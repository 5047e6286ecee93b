/* SPDX-License-Identifier: 0BSD */
/* number_string.c - numbers read from strings; what float_string.c needs.
 *
 * A string that is no number ends the run with BAD_VALUE. The decimal point is a point, whatever
 * the locale. source: ONNX Cast
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MODEL_BAD_VALUE = 10 };
typedef const char *string_t;
static string_t bytes_of(string_t s) { return s ? s : ""; }

//@ decimal_point
#include <stdio.h>
#include <stdlib.h>

/* The locale's decimal point, as text; a zero follows. */
static const char *decimal_point(char room[16])
{
    (void)snprintf(room, 16, "%.1f", 0.5); /* 0, the point, 5 */
    room[strlen(room) - 1] = 0;
    return room + 1;
}

//@ read_number bytes_of decimal_point
/* The number that s is, with white space around it: as a double and, where `narrow`, as the nearest
 * float. false: it is none. */
static bool read_number(string_t s, bool narrow, double *v)
{
    char room[16], copy[128], *end;
    const char *point = decimal_point(room),
               *from = bytes_of(s) + strspn(bytes_of(s), " \t\n\r\f\v");
    size_t n = strlen(from), npoint = strlen(point);
    while (n > 0 && strchr(" \t\n\r\f\v", from[n - 1]))
        n--;
    const char *dot = (const char *)memchr(from, '.', n);
    if (n == 0 || n + npoint > sizeof copy || strspn(from, "+-0123456789.eEinfatyINFATY") < n)
        return false;
    size_t before = dot ? (size_t)(dot - from) : n;
    memcpy(copy, from, before);
    if (dot) {
        memcpy(copy + before, point, npoint);
        memcpy(copy + before + npoint, dot + 1, n - before - 1);
        n += npoint - 1;
    }
    copy[n] = 0;
    *v = narrow ? (double)strtof(copy, &end) : strtod(copy, &end);
    return end == copy + n;
}

//@ from_string_i64 bytes_of read_number
/* x[count] -> y[count], what is beyond 64 bits at their ends; 2.7 becomes 2. */
static int from_string_i64(const string_t *x, int64_t *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const char *s = bytes_of(x[i]);
        char *end;
        double v;
        s += strspn(s, " \t\n\r\f\v");
        y[i] = (int64_t)strtoll(s, &end, 10);
        if (end != s && !end[strspn(end, " \t\n\r\f\v")])
            continue;
        if (!read_number(x[i], false, &v) || isnan(v))
            return MODEL_BAD_VALUE;
        y[i] = v >= 9223372036854775808.0    ? INT64_MAX
               : v <= -9223372036854775808.0 ? INT64_MIN
                                             : (int64_t)v;
    }
    return 0;
}

//@ from_string_u64 bytes_of read_number
/* x[count] -> y[count], what is beyond 64 bits at their ends; 2.7 becomes 2. */
static int from_string_u64(const string_t *x, uint64_t *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const char *s = bytes_of(x[i]);
        char *end;
        double v;
        s += strspn(s, " \t\n\r\f\v");
        y[i] = (uint64_t)strtoull(s, &end, 10);
        if (*s != '-' && end != s && !end[strspn(end, " \t\n\r\f\v")])
            continue;
        if (!read_number(x[i], false, &v) || isnan(v))
            return MODEL_BAD_VALUE;
        y[i] = v >= 18446744073709551616.0 ? UINT64_MAX : v <= 0 ? 0 : (uint64_t)v;
    }
    return 0;
}
