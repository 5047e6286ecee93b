/* SPDX-License-Identifier: 0BSD */
/* npy.c - the headers of .npy files and of IDX files.
 *
 *      .npy    \x93NUMPY major minor | length, 2 bytes (version 1) or 4 | header | elements
 *              header: {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
 *      IDX     0 0 type rank | dimensions, 4 bytes each, big-endian | elements, big-endian
 *
 * Only headers are read here, from the first bytes of a file or of what it inflates to. The shape
 * and the file's size are compared by who has the elements. source: numpy.lib.format; the page of
 * MNIST
 */
#include "runtime/loader/parts.h"

//@ loader_npy loader_file
static const struct {
    const char *name;
    uint8_t nbytes;
    char kind;
    uint8_t code;
} loader_types[] = {
#define LOADER_ROW(name, text, type, kind, code) {text, sizeof(type), kind, code},
    LOADER_INTEGERS(LOADER_ROW) LOADER_FLOATS(LOADER_ROW)
#undef LOADER_ROW
};

LOADER_API const char *loader_type_name(enum loader_type type) { return loader_types[type].name; }
LOADER_API size_t loader_type_nbytes(enum loader_type type) { return loader_types[type].nbytes; }

LOADER_API bool loader_is_npy(const uint8_t *data, size_t n)
{
    return n >= 6 && memcmp(data, "\x93NUMPY", 6) == 0;
}

LOADER_API bool loader_is_idx(const uint8_t *data, size_t n)
{
    return n >= 4 && data[0] == 0 && data[1] == 0 && data[2] >= 8 && data[2] <= 14 && data[3];
}

/* The bytes of all elements; each dimension is at least 1. */
static bool loader_count(struct loader_shape *s, const char *where, char *error)
{
    s->nbytes = loader_types[s->type].nbytes;
    if (s->rank == 0)
        return loader_fail(error,
                           "%s: is a single number; an array whose leading axis counts the samples "
                           "is expected",
                           where);
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] == 0)
            return loader_fail(error, "%s: dimension %d of its shape is 0; at least 1 is expected",
                               where, i);
        if ((uint64_t)s->dim[i] > SIZE_MAX || !loader_mul(s->nbytes, (size_t)s->dim[i], &s->nbytes))
            return loader_fail(error, "%s: its shape has more elements than can be addressed",
                               where);
    }
    return true;
}

/* The text after 'key': in the header; NULL: it is not there. */
static const char *loader_find_key(const char *s, const char *key)
{
    for (const char *p = s; (p = strstr(p, key)); p++) {
        const char *after = p + strlen(key);
        if (p == s || (p[-1] != '\'' && p[-1] != '"') || *after != p[-1])
            continue;
        after += 1 + strspn(after + 1, " ");
        return *after == ':' ? after + 1 + strspn(after + 1, " ") : NULL;
    }
    return NULL;
}

static bool loader_read_descr(const char *s, const char *where, struct loader_shape *shape,
                              char *error)
{
    const char *cure = "save numbers, for example array.astype('float32')";
    if (!s || (*s != '\'' && *s != '"'))
        return loader_fail(error, "%s: its elements are no plain numbers; %s", where, cure);
    char quote = *s++, order = *s ? *s++ : 0, kind = *s ? *s++ : 0;
    int nbytes = 0;
    for (; *s >= '0' && *s <= '9' && nbytes < 1000; s++)
        nbytes = 10 * nbytes + *s - '0';
    if (kind == 'O')
        return loader_fail(error, "%s: its elements are pickled objects, which are not read; %s",
                           where, cure);
    for (int i = 0; i < LOADER_NTYPE; i++)
        if (*s == quote && loader_types[i].kind == kind && loader_types[i].nbytes == nbytes &&
            order && strchr("<>|=", order)) {
            shape->type = (enum loader_type)i;
            shape->is_swapped = nbytes > 1 && (order == '<' || order == '>') &&
                                (order == '<') != loader_is_little_endian();
            return true;
        }
    return loader_fail(error,
                       "%s: its elements are of NumPy's kind '%c', %d bytes, which is not read; %s",
                       where, kind >= ' ' && kind <= '~' ? kind : '?', nbytes, cure);
}

static bool loader_read_dims(const char *s, const char *where, struct loader_shape *shape,
                             char *error)
{
    for (bool is_open = s && *s++ == '('; is_open;) {
        s += strspn(s, " ");
        if (*s == ')') {
            s += 1 + strspn(s + 1, " ");
            if (*s == ',' || *s == '}')
                return true;
            break;
        }
        int64_t n = 0;
        const char *digits = s;
        for (; *s >= '0' && *s <= '9' && n <= (INT64_MAX - 9) / 10; s++)
            n = 10 * n + *s - '0';
        if (s == digits || shape->rank == LOADER_RANK)
            break;
        shape->dim[shape->rank++] = n;
        s += *s == 'L';
        s += strspn(s, " ");
        is_open = *s == ',' || *s == ')';
        s += *s == ',';
    }
    return loader_fail(error,
                       "%s: the shape in its header is malformed, or of rank over %d; save "
                       "it again with numpy.save()",
                       where, LOADER_RANK);
}

static bool loader_read_header(const char *text, const char *where, struct loader_shape *s,
                               char *error)
{
    const char *fortran = loader_find_key(text, "fortran_order");
    if (!loader_read_descr(loader_find_key(text, "descr"), where, s, error) ||
        !loader_read_dims(loader_find_key(text, "shape"), where, s, error) ||
        !loader_count(s, where, error))
        return false;
    int nlong = 0;
    for (int i = 0; i < s->rank; i++)
        nlong += s->dim[i] > 1;
    if (!fortran || (strncmp(fortran, "False", 5) != 0 && strncmp(fortran, "True", 4) != 0))
        return loader_fail(error,
                           "%s: its header does not say fortran_order; save it again with "
                           "numpy.save()",
                           where);
    if (*fortran == 'T' && nlong > 1)
        return loader_fail(error,
                           "%s: is in Fortran order; C order is expected: save "
                           "numpy.ascontiguousarray(array)",
                           where);
    return true;
}

LOADER_API bool loader_read_npy(const uint8_t *data, size_t n, const char *where,
                                struct loader_shape *s, char *error)
{
    memset(s, 0, sizeof *s);
    size_t start = n > 6 && data[6] == 1 ? 10 : 12;
    if (n < start)
        return loader_fail(error, "%s: is cut off within its header", where);
    if (data[6] < 1 || data[6] > 3)
        return loader_fail(error,
                           "%s: version %d of the .npy format is not known; save it as "
                           "version 1",
                           where, data[6]);
    size_t length = (size_t)loader_uint(data + 8, (int)start - 8, false);
    if (length > LOADER_HEADER_NBYTES - 12 || length > n - start)
        return loader_fail(error,
                           "%s: its header is said to have %zu bytes, and %zu follow (at "
                           "most %d are read); is the file whole?",
                           where, length, n - start, LOADER_HEADER_NBYTES - 12);
    char *text = (char *)malloc(length + 1);
    if (!text)
        return loader_fail(error, "%s: no memory for its header", where);
    memcpy(text, data + start, length);
    text[length] = 0;
    s->header = start + length;
    bool ok = loader_read_header(text, where, s, error);
    free(text);
    return ok;
}

LOADER_API bool loader_read_idx(const uint8_t *data, size_t n, const char *where,
                                struct loader_shape *s, char *error)
{
    memset(s, 0, sizeof *s);
    int type = 0;
    while (type < LOADER_NTYPE && loader_types[type].code != data[2])
        type++;
    s->type = (enum loader_type)type;
    s->rank = data[3];
    s->header = 4 + 4 * (size_t)data[3];
    if (type == LOADER_NTYPE || s->rank > LOADER_RANK)
        return loader_fail(error,
                           "%s: IDX of type 0x%02x and rank %d is not read; types 0x08 to "
                           "0x0e and ranks up to %d are",
                           where, data[2], data[3], LOADER_RANK);
    if (n < s->header)
        return loader_fail(error, "%s: is cut off within its header", where);
    s->is_swapped = loader_types[type].nbytes > 1 && loader_is_little_endian();
    for (int i = 0; i < s->rank; i++)
        s->dim[i] = (int64_t)loader_uint(data + 4 + 4 * i, 4, true);
    return loader_count(s, where, error);
}
