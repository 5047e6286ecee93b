/* SPDX-License-Identifier: 0BSD */
/* decimal.c - numbers in texts: decimal, with a point whatever the locale. Neither hexadecimal ones
 * nor names such as nan and inf are numbers here.
 */
#include "runtime/loader/parts.h"

//@ loader_decimal loader_parts
enum { DECIMAL_NBYTES = 120 }; /* of the longest text that is taken as a number */

/* The length of what has the form of a number; 0: it has not. An integer has no point and no
 * exponent. */
static size_t decimal_length(const char *s, bool *is_integer)
{
    const char *digits = "0123456789", *p = s + (*s == '-' || *s == '+');
    size_t whole = strspn(p, digits), fraction = 0;
    p += whole;
    *is_integer = true;
    if (*p == '.') {
        fraction = strspn(p + 1, digits);
        p += 1 + fraction;
        *is_integer = false;
    }
    if (whole + fraction && (*p == 'e' || *p == 'E')) {
        const char *exponent = p + 1 + (p[1] == '-' || p[1] == '+');
        size_t n = strspn(exponent, digits);
        if (n == 0)
            return 0;
        p = exponent + n;
        *is_integer = false;
    }
    return whole + fraction ? (size_t)(p - s) : 0;
}

/* Copies what is a number. */
static bool decimal_copy(const char *s, size_t n, char copy[DECIMAL_NBYTES + 16], bool *is_integer)
{
    if (n == 0 || n > DECIMAL_NBYTES)
        return false;
    memcpy(copy, s, n);
    copy[n] = 0;
    return decimal_length(copy, is_integer) == n;
}

LOADER_API bool loader_read_integer(const char *s, size_t n, int64_t *v)
{
    char copy[DECIMAL_NBYTES + 16];
    bool is_integer;
    if (!decimal_copy(s, n, copy, &is_integer) || !is_integer)
        return false;
    errno = 0;
    *v = strtoll(copy, NULL, 10);
    return errno == 0;
}

LOADER_API bool loader_read_number(const char *s, size_t n, bool is_narrow, double *v)
{
    char copy[DECIMAL_NBYTES + 16], point[16], *end;
    bool is_integer;
    if (!decimal_copy(s, n, copy, &is_integer))
        return false;
    (void)snprintf(point, sizeof point, "%.1f", 0.5); /* 0, the locale's point, 5 */
    size_t npoint = strlen(point) - 2;
    char *dot = strchr(copy, '.');
    if (dot) {
        memmove(dot + npoint, dot + 1, strlen(dot + 1) + 1);
        memcpy(dot, point + 1, npoint);
    }
    *v = is_narrow ? (double)strtof(copy, &end) : strtod(copy, &end);
    return !*end;
}
