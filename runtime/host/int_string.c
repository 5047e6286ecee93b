/* SPDX-License-Identifier: 0BSD */
/* int_string.c - integers written as strings. source: ONNX Cast */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MODEL_TOO_MANY_RESULTS = 9 };
typedef const char *string_t;
typedef int64_t T;
static char *text_keep(uint8_t *text, int64_t size, int64_t *used, const char *from, int64_t n)
{
    (void)size;
    return memcpy(text + *used, from, (size_t)n);
}

//@for i64:int64_t u64:uint64_t
//@ to_string_T text_keep
/* x[count] -> y[count] */
static int to_string_T(const T *x, string_t *y, uint8_t *text, int64_t count, int64_t size)
{
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        char digits[24], *at = digits + sizeof digits;
        uint64_t v = (uint64_t)x[i];
        bool negative = (T)~(T)0 < 1 && v >> 63;
        for (v = negative ? 0 - v : v; v > 9; v /= 10)
            *--at = (char)('0' + v % 10);
        *--at = (char)('0' + v);
        if (negative)
            *--at = '-';
        if (!(y[i] = text_keep(text, size, &used, at, digits + sizeof digits - at)))
            return MODEL_TOO_MANY_RESULTS;
    }
    return 0;
}
