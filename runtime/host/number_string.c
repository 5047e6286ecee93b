/* number_string.c - numbers written as strings, and read from them.
 *
 * Floats are written with as few digits as read back the same, in C's %g form; INF, -INF and NaN. A
 * string that is no number ends the run with BAD_VALUE. The decimal point is a point, whatever the
 * locale. source: ONNX Cast
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MODEL_TOO_MANY_RESULTS = 9, MODEL_BAD_VALUE = 10 };
typedef const char *string_t;
typedef double T;
static string_t bytes_of(string_t s) { return s ? s : ""; }
static char *text_keep(uint8_t *text, int64_t size, int64_t *used, const char *from, int64_t n)
{
    (void)size;
    return memcpy(text + *used, from, (size_t)n);
}

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
    const char *point = decimal_point(room), *from = bytes_of(s) + strspn(bytes_of(s), " \t\n\r\f\v");
    size_t n = strlen(from), npoint = strlen(point);
    while (n > 0 && strchr(" \t\n\r\f\v", from[n - 1]))
        n--;
    const char *dot = memchr(from, '.', n);
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

//@for f32:float f64:double
//@ to_string_T text_keep decimal_point
/* x[count] -> y[count] */
static int to_string_T(const T *x, string_t *y, uint8_t *text, int64_t count, int64_t size)
{
    char room[16], digits[48];
    const char *point = decimal_point(room);
    const int most = sizeof(T) == sizeof(float) ? 9 : 17;
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        double v = (double)x[i];
        if (isnan(v)) {
            strcpy(digits, "NaN");
        } else if (isinf(v)) {
            strcpy(digits, v < 0 ? "-INF" : "INF");
        } else {
            for (int n = 1; n <= most; n++) {
                (void)snprintf(digits, sizeof digits, "%.*g", n, v);
                T back = (T)(sizeof(T) == sizeof(float) ? (double)strtof(digits, NULL)
                                                        : strtod(digits, NULL));
                if ((double)back >= v && (double)back <= v)
                    break;
            }
            char *at = strstr(digits, point);
            if (at) {
                *at = '.';
                memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
            }
        }
        if (!(y[i] = text_keep(text, size, &used, digits, (int64_t)strlen(digits))))
            return MODEL_TOO_MANY_RESULTS;
    }
    return 0;
}

//@ from_string_T read_number
/* x[count] -> y[count] */
static int from_string_T(const string_t *x, T *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double v;
        if (!read_number(x[i], sizeof(T) == sizeof(float), &v))
            return MODEL_BAD_VALUE;
        y[i] = (T)v;
    }
    return 0;
}

//@for i64:int64_t u64:uint64_t
//@ to_string_T text_keep
/* x[count] -> y[count] */
static int to_string_T(const T *x, string_t *y, uint8_t *text, int64_t count, int64_t size)
{
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        char digits[24], *at = digits + sizeof digits;
        bool negative = x[i] < 1 && x[i] != 0;
        T v = x[i];
        do {
            int digit = (int)(v % 10);
            *--at = (char)('0' + (digit < 0 ? -digit : digit));
            v /= 10;
        } while (v != 0);
        if (negative)
            *--at = '-';
        if (!(y[i] = text_keep(text, size, &used, at, digits + sizeof digits - at)))
            return MODEL_TOO_MANY_RESULTS;
    }
    return 0;
}
