/* SPDX-License-Identifier: 0BSD */
/* float_string.c - floats written as strings, and read from them.
 *
 * They are written with as few digits as read back the same, in C's %g form; INF, -INF and NaN.
 * source: ONNX Cast
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_TOO_MANY_RESULTS = 9, MODEL_BAD_VALUE = 10 };
typedef const char *string_t;
typedef double T;
static char *text_keep(uint8_t *text, int64_t size, int64_t *used, const char *from, int64_t n)
{
    (void)size;
    return memcpy(text + *used, from, (size_t)n);
}
static const char *decimal_point(char room[16]) { return room; }
static _Bool read_number(string_t s, _Bool narrow, double *v) { return *v = *s + narrow, 1; }

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
