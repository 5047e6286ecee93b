/* bytes.c - values as bytes, and back, with every length checked. */
#include "backends/llvm/bytes.h"

#include <string.h>

static const uint64_t no_string = UINT64_MAX;

void bytes_put(struct text *out, uint64_t v) { text_write(out, (const char *)&v, sizeof v); }

void bytes_put_real(struct text *out, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    bytes_put(out, bits);
}

void bytes_put_data(struct text *out, const void *p, size_t nbytes)
{
    bytes_put(out, nbytes);
    text_write(out, p, nbytes);
}

void bytes_put_string(struct text *out, const char *s)
{
    if (s)
        bytes_put_data(out, s, strlen(s));
    else
        bytes_put(out, no_string);
}

static const unsigned char *take(struct byte_reader *r, uint64_t nbytes)
{
    const unsigned char *p = r->at;
    if (r->is_bad || nbytes > (uint64_t)(r->end - r->at)) {
        r->is_bad = true;
        return NULL;
    }
    r->at += nbytes;
    return p;
}

uint64_t bytes_get(struct byte_reader *r)
{
    uint64_t v = 0;
    const unsigned char *p = take(r, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

double bytes_get_real(struct byte_reader *r)
{
    uint64_t bits = bytes_get(r);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

int bytes_get_int(struct byte_reader *r, int least, int most)
{
    int64_t v = (int64_t)bytes_get(r);
    if (v >= least && v <= most)
        return (int)v;
    r->is_bad = true;
    return least;
}

int bytes_get_count(struct byte_reader *r, size_t each)
{
    uint64_t n = bytes_get(r);
    if (n <= INT32_MAX && n <= (uint64_t)(r->end - r->at) / each)
        return (int)n;
    r->is_bad = true;
    return 0;
}

const void *bytes_get_data(struct byte_reader *r, size_t *nbytes)
{
    uint64_t n = bytes_get(r);
    const unsigned char *p = take(r, n);
    *nbytes = p ? n : 0;
    return p;
}

const char *bytes_get_string(struct byte_reader *r)
{
    uint64_t n = bytes_get(r);
    if (n == no_string)
        return NULL;
    const unsigned char *p = take(r, n);
    if (p && !memchr(p, 0, n))
        return mem_printf(r->t, "%.*s", (int)n, (const char *)p);
    r->is_bad = true;
    return "";
}
