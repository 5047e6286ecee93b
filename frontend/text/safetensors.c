/* safetensors.c - reads and writes safetensors files: 8 bytes of header length, a JSON header, the
 * data.
 *
 *      {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}
 *
 * The file is of unknown origin. The header is walked in place: nesting is counted, not recursed
 * into; every number is checked for overflow, every offset against the file's end. source: the
 * format's own description, github.com/huggingface/safetensors
 */
#include "frontend/text/reader.h"

#include <string.h>

static const struct { const char *name; enum dtype dtype;
} dtypes[] = {
    {"F64", DTYPE_F64},        {"F32", DTYPE_F32},
    {"F16", DTYPE_F16},        {"BF16", DTYPE_BF16},
    {"I64", DTYPE_I64},        {"I32", DTYPE_I32},
    {"I16", DTYPE_I16},        {"I8", DTYPE_I8},
    {"U64", DTYPE_U64},        {"U32", DTYPE_U32},
    {"U16", DTYPE_U16},        {"U8", DTYPE_U8},
    {"BOOL", DTYPE_BOOL},      {"F8_E4M3", DTYPE_F8E4M3FN},
    {"F8_E5M2", DTYPE_F8E5M2},
};
enum { NDTYPE = sizeof dtypes / sizeof *dtypes };

/* ---- reading: s never passes end; what does not parse makes it NULL */

struct json { const char *s, *end; };

static void skip_space(struct json *j)
{
    while (j->s && j->s < j->end && strchr(" \t\r\n", *j->s) && *j->s)
        j->s++;
}

static bool take(struct json *j, char c)
{
    skip_space(j);
    if (!j->s || j->s == j->end || *j->s != c)
        return false;
    j->s++;
    return true;
}

static void need(struct json *j, char c)
{
    if (!take(j, c))
        j->s = NULL;
}

/* A string: whether it is `want`, escapes of ASCII decoded. */
static bool take_string(struct json *j, const char *want)
{
    bool same = want != NULL;
    need(j, '"');
    while (j->s && j->s < j->end && *j->s != '"') {
        char c = *j->s++;
        if (c == '\\') {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            const char *k = j->s < j->end && *j->s ? strchr(from, *j->s) : NULL;
            int code = 0;
            if (!k && (j->end - j->s < 5 || *j->s != 'u')) {
                j->s = NULL;
                return false;
            }
            for (int i = 1; !k && i < 5; i++) {
                char h = j->s[i];
                int d = h >= '0' && h <= '9'   ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : 255;
                code = d > 15 ? 0x10000 : code * 16 + d;
            }
            c = k ? to[k - from] : code < 128 ? (char)code : 0;
            j->s += k ? 1 : 5;
        }
        same = same && c != 0 && *want == c;
        want += same;
    }
    need(j, '"');
    return same && !*want;
}

static bool take_size(struct json *j, size_t *v)
{
    skip_space(j);
    const char *begin = j->s;
    *v = 0;
    while (j->s && j->s < j->end && *j->s >= '0' && *j->s <= '9') {
        if (!size_mul(*v, 10, v) || !size_add(*v, (size_t)(*j->s - '0'), v)) {
            j->s = NULL;
            return false;
        }
        j->s++;
    }
    if (j->s == begin)
        j->s = NULL;
    return j->s != NULL;
}

/* Any value, by counting brackets outside strings. */
static void skip_value(struct json *j)
{
    size_t depth = 0;
    do {
        skip_space(j);
        if (!j->s || j->s == j->end) {
            j->s = NULL;
        } else if (*j->s == '"') {
            take_string(j, NULL);
        } else if (*j->s == '{' || *j->s == '[') {
            depth++;
            j->s++;
        } else if (*j->s == '}' || *j->s == ']') {
            if (!depth)
                j->s = NULL;
            else
                depth--, j->s++;
        } else {
            j->s++;
            while (!depth && j->s < j->end && !strchr(",}] \t\r\n", *j->s))
                j->s++;
        }
    } while (j->s && depth);
}

/* [a, b, ...], at most max; -1: more, or no list of sizes. */
static int take_sizes(struct json *j, size_t *v, int max)
{
    int n = 0;
    need(j, '[');
    if (take(j, ']'))
        return 0;
    do {
        if (n == max || !take_size(j, &v[n]))
            return -1;
        n++;
    } while (take(j, ','));
    need(j, ']');
    return j->s ? n : -1;
}

static bool take_entry(struct json *j, struct safetensor *found, size_t *range, const char **error)
{
    size_t dim[MAX_RANK];
    int ndim = -1, nrange = -1;
    found->dtype = DTYPE_VOID;
    need(j, '{');
    do {
        struct json key = *j;
        skip_value(j);
        need(j, ':');
        struct json probe = key;
        if (take_string(&probe, "dtype")) {
            struct json value = *j;
            skip_value(j);
            for (int i = 0; i < NDTYPE; i++) {
                probe = value;
                if (take_string(&probe, dtypes[i].name))
                    found->dtype = dtypes[i].dtype;
            }
        } else if (probe = key, take_string(&probe, "shape")) {
            ndim = take_sizes(j, dim, MAX_RANK);
        } else if (probe = key, take_string(&probe, "data_offsets")) {
            nrange = take_sizes(j, range, 2);
        } else {
            skip_value(j);
        }
    } while (take(j, ','));
    need(j, '}');
    if (!j->s || ndim < 0 || nrange != 2 || found->dtype == DTYPE_VOID) {
        *error = "the safetensors file describes it by something other than a known dtype, a shape "
                 "of at most 16 axes and data_offsets";
        return false;
    }
    found->ndim = ndim;
    for (int a = 0; a < ndim; a++)
        found->dim[a] = dim[a] > INT64_MAX ? -1 : (int64_t)dim[a];
    return true;
}

bool safetensors_find(const void *bytes, size_t nbytes, const char *name, struct safetensor *found,
                      const char **error)
{
    const unsigned char *b = bytes;
    uint64_t length = 0;
    size_t range[2];
    *error = "the file is no safetensors file";
    for (int i = 7; i >= 0 && nbytes >= 8; i--)
        length = length << 8 | b[i];
    if (nbytes < 8 || length > nbytes - 8)
        return false;
    struct json j = {(const char *)bytes + 8, (const char *)bytes + 8 + length};
    size_t ndata = nbytes - 8 - (size_t)length;
    need(&j, '{');
    if (!j.s)
        return false;
    if (!take(&j, '}')) {
        do {
            bool here = take_string(&j, name);
            need(&j, ':');
            if (here && j.s) {
                if (!take_entry(&j, found, range, error))
                    return false;
                *error = "the safetensors file places it beyond its end";
                if (range[0] > range[1] || range[1] > ndata)
                    return false;
                found->data = (const char *)bytes + 8 + length + range[0];
                found->nbytes = range[1] - range[0];
                return true;
            }
            skip_value(&j);
        } while (take(&j, ','));
        need(&j, '}');
    }
    if (j.s)
        *error = "the safetensors file has no tensor of this name";
    return false;
}

/* ---- writing */

static const char *dtype_key(enum dtype d)
{
    for (int k = 0; k < NDTYPE; k++)
        if (dtypes[k].dtype == d)
            return dtypes[k].name;
    return NULL;
}

bool safetensors_holds(enum dtype d) { return dtype_key(d) != NULL; }

static void put_json_string(struct text *out, const char *s)
{
    text_putc(out, '"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            text_printf(out, "\\%c", *s);
        else if ((unsigned char)*s < 32)
            text_printf(out, "\\u%04x", (unsigned)(unsigned char)*s);
        else
            text_putc(out, *s);
    text_putc(out, '"');
}

/* Adds the size that the elements have; returns it. */
static size_t add_nbytes(struct tgc *t, size_t at, const struct buffer *w)
{
    if (!size_add(at, w->nbytes, &at))
        tgc_stop(t);
    return at;
}

void safetensors_begin(struct text *out, struct buffer *const *w, const char *const *name, int n)
{
    struct text header = {.t = out->t};
    size_t at = 0;
    text_putc(&header, '{');
    for (int i = 0; i < n; i++) {
        text_puts(&header, i ? ",\n" : "");
        put_json_string(&header, name[i]);
        text_printf(&header, ":{\"dtype\":\"%s\",\"shape\":[", dtype_key(w[i]->dtype));
        for (int a = 0; a < w[i]->ndim; a++)
            text_printf(&header, "%s%lld", a ? "," : "", (long long)w[i]->dim[a]->arg.i);
        text_printf(&header, "],\"data_offsets\":[%zu,", at);
        at = add_nbytes(out->t, at, w[i]);
        text_printf(&header, "%zu]}", at);
    }
    text_putc(&header, '}');
    while (header.n % 8)
        text_putc(&header, ' ');
    for (int i = 0; i < 8; i++)
        text_putc(out, (char)(header.n >> (8 * i)));
    text_write(out, header.s, header.n);
}

void safetensors_write(struct text *out, struct buffer *const *w, const char *const *name, int n)
{
    size_t total = 1;
    safetensors_begin(out, w, name, n);
    for (int i = 0; i < n; i++)
        total = add_nbytes(out->t, total, w[i]);
    if (!size_add(total, out->n, &total))
        tgc_stop(out->t);
    out->s = mem_grow(out->t, out->s, &out->cap, total, 1);      /* at once: weights are large */
    for (int i = 0; i < n; i++)
        text_write(out, w[i]->weight.data, w[i]->nbytes);
}
