/* json.c - a reader of JSON, for saved reports. Values live in the compile's memory. The reader
 * recurses to JSON_DEPTH levels at most. source: RFC 8259. */
#include "lib/report/report.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    struct tgc *t;
    const char *file, *begin, *at, *end;
    int depth;
    bool failed;
};

/* Records the first mistake with line and column. */
static struct json *complain(struct reader *r, const char *expected)
{
    int line = 1;
    const char *start = r->begin;
    for (const char *s = r->begin; s < r->at; s++)
        if (*s == '\n') {
            line++;
            start = s + 1;
        }
    if (!r->failed)
        diag_error(r->t,
                   &(struct place){.file = r->file, .line = line,
                                   .column = (int)(r->at - start) + 1},
                   "is no JSON: %s is expected here%s", expected,
                   r->at == r->end ? ", and the file ends" : "");
    r->failed = true;
    return NULL;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && *r->at && strchr(" \t\r\n", *r->at))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* Four hexadecimal digits; -1: there are none. */
static long read_code(struct reader *r)
{
    long code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char *digits = "0123456789abcdefABCDEF";
        const char *d = r->at < r->end && *r->at ? strchr(digits, *r->at) : NULL;
        if (!d)
            return -1;
        long v = (long)(d - digits);
        code = 16 * code + (v > 15 ? v - 6 : v);
    }
    return code;
}

static void put_utf8(struct text *x, long c)
{
    if (c < 0x80) {
        text_putc(x, (char)c);
    } else if (c < 0x800) {
        text_putc(x, (char)(0xc0 | c >> 6));
    } else if (c < 0x10000) {
        text_putc(x, (char)(0xe0 | c >> 12));
        text_putc(x, (char)(0x80 | (c >> 6 & 0x3f)));
    } else {
        text_putc(x, (char)(0xf0 | c >> 18));
        text_putc(x, (char)(0x80 | (c >> 12 & 0x3f)));
        text_putc(x, (char)(0x80 | (c >> 6 & 0x3f)));
    }
    if (c >= 0x80)
        text_putc(x, (char)(0x80 | (c & 0x3f)));
}

/* After \u: one character, which may be two surrogates; one alone becomes U+FFFD. */
static bool read_escaped(struct reader *r, struct text *x)
{
    long c = read_code(r);
    if (c >= 0xd800 && c < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        long low = read_code(r);
        c = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00)
            : low < 0                     ? -1
                                          : 0xfffd;
    } else if (c >= 0xd800 && c < 0xe000) {
        c = 0xfffd;
    }
    if (c <= 0)
        return complain(r, "\\u and four hexadecimal digits, not 0000,") != NULL;
    put_utf8(x, c);
    return true;
}

static const char *read_string(struct reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    struct text x = {.t = r->t};
    text_puts(&x, "");
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < 0x20)
            return complain(r, "no control character, but its escape"), NULL;
        if (*r->at != '\\') {
            text_putc(&x, *r->at++);
            continue;
        }
        const char *which = ++r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;
        if (which) {
            text_putc(&x, to[which - from]);
            r->at++;
        } else if (r->at == r->end || *r->at++ != 'u' || !read_escaped(r, &x)) {
            return complain(r, "an escape"), NULL;
        }
    }
    if (r->at == r->end)
        return complain(r, "\""), NULL;
    r->at++;
    return x.s;
}

static struct json *read_value(struct reader *r);

static struct json *read_members(struct reader *r, struct json *v, char close)
{
    struct json *last = NULL;
    if (take(r, close))
        return v;
    do {
        const char *key = NULL;
        if (v->kind == JSON_OBJECT &&
            (!take(r, '"') || !(key = read_string(r)) || !take(r, ':')))
            return complain(r, "\"name\": and a value");
        struct json *one = read_value(r);
        if (!one)
            return NULL;
        one->key = key;
        *(last ? &last->next : &v->child) = one;
        last = one;
        v->n++;
    } while (take(r, ','));
    return take(r, close) ? v : complain(r, close == '}' ? ", or }" : ", or ]");
}

static struct json *read_number(struct reader *r, struct json *v)
{
    char digits[64], *end;
    size_t n = 0;
    while (r->at + n < r->end && n + 1 < sizeof digits && r->at[n] &&
           strchr("+-.0123456789eE", r->at[n]))
        digits[n] = r->at[n], n++;
    digits[n] = 0;
    v->kind = JSON_NUMBER;
    v->number = strtod(digits, &end);
    if (n == 0 || *end || *digits == '+' || *digits == '.')
        return complain(r, "a value");
    r->at += n;
    return v;
}

static struct json *read_value(struct reader *r)
{
    static const struct { const char *word; enum json_kind kind; } words[] = {
        {"null", JSON_NULL}, {"false", JSON_FALSE}, {"true", JSON_TRUE}};
    struct json *v = MEM_NEW(r->t, struct json);
    if (r->depth == JSON_DEPTH)
        return complain(r, "fewer levels: no more than 64 are read; a value");
    skip_space(r);
    if (take(r, '{') || take(r, '[')) {
        bool is_object = r->at[-1] == '{';
        v->kind = is_object ? JSON_OBJECT : JSON_LIST;
        r->depth++;
        v = read_members(r, v, is_object ? '}' : ']');
        r->depth--;
        return v;
    }
    if (take(r, '"')) {
        v->kind = JSON_STRING;
        v->string = read_string(r);
        return v->string ? v : NULL;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->at) >= n && strncmp(r->at, words[i].word, n) == 0) {
            r->at += n;
            v->kind = words[i].kind;
            return v;
        }
    }
    return read_number(r, v);
}

const struct json *json_read(struct tgc *t, const char *file, const char *s, size_t nbytes)
{
    struct reader r = {.t = t, .file = file, .begin = s, .at = s, .end = s + nbytes};
    struct json *v = read_value(&r);
    skip_space(&r);
    return !v             ? NULL
           : r.at < r.end ? complain(&r, "the end of the file")
                          : v;
}

const struct json *json_get(const struct json *v, const char *key)
{
    const struct json *c = v && v->kind == JSON_OBJECT ? v->child : NULL;
    while (c && strcmp(c->key, key) != 0)
        c = c->next;
    return c;
}

double json_number(const struct json *v, const char *key)
{
    const struct json *c = json_get(v, key);
    return c && c->kind == JSON_NUMBER ? c->number : 0;
}

int json_index(const struct json *v)
{
    bool fits = v && v->kind == JSON_NUMBER && v->number >= 0 && v->number <= INT32_MAX;
    return fits ? (int)v->number : -1;
}

const char *json_string(const struct json *v, const char *key)
{
    const struct json *c = json_get(v, key);
    return c && c->kind == JSON_STRING ? c->string : "";
}
