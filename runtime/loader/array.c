/* SPDX-License-Identifier: 0BSD */
/* array.c - the arrays of a data set: what their files say of them, what they have in common. */
#include "runtime/loader/parts.h"

//@ loader_array loader_npy
LOADER_API bool loader_is_name(const char *name)
{
    size_t n = 0;
    while (n < LOADER_NAME_NBYTES && (unsigned char)name[n] >= ' ' && name[n] != 127)
        n++;
    return n > 0 && n < LOADER_NAME_NBYTES && !name[n];
}

LOADER_API const struct dataset_array *dataset_find(const struct dataset *d, const char *name)
{
    for (int i = 0; i < d->narray; i++)
        if (strcmp(d->array[i].name, name) == 0)
            return &d->array[i];
    return NULL;
}

/* A copy of the elements in the machine's byte order. */
static const void *loader_swap(struct dataset *d, const char *where, const struct loader_shape *s,
                               const uint8_t *from)
{
    size_t width = loader_type_nbytes(s->type);
    uint8_t *to = (uint8_t *)loader_take(d, where, s->nbytes);
    for (size_t i = 0; to && i < s->nbytes; i += width)
        for (size_t k = 0; k < width; k++)
            to[i + k] = from[i + width - 1 - k];
    return to;
}

LOADER_API bool loader_add_array(struct dataset *d, const char *where, const char *name,
                                 const struct loader_shape *s, const void *data)
{
    const struct dataset_array *other = name && loader_is_name(name) ? dataset_find(d, name) : NULL;
    if (!name || !loader_is_name(name))
        return loader_fail(d->error,
                           "%s: a name is needed for its array, of 1 to %d bytes without "
                           "control characters",
                           where, LOADER_NAME_NBYTES - 1);
    if (other)
        return loader_fail(d->error, "%s: another array is named '%s' (%s); give it another name",
                           where, name, other->file);
    if (d->narray && s->dim[0] != d->nsample)
        return loader_fail(d->error,
                           "%s: '%s' has %lld samples, and '%s' of %s has %lld; all leading axes "
                           "must be of one length",
                           where, name, (long long)s->dim[0], d->array[0].name, d->array[0].file,
                           (long long)d->nsample);
    struct dataset_array a, *grown;
    memset(&a, 0, sizeof a);
    a.name = loader_copy_text(d, where, name);
    a.file = a.name ? loader_copy_text(d, where, where) : NULL;
    if (!a.file)
        return false;
    a.type = s->type;
    a.rank = s->rank;
    a.row_nelem = 1;
    for (int i = 0; i < s->rank; i++) {
        a.dim[i] = s->dim[i];
        a.row_nelem *= i > 0 ? s->dim[i] : 1;
    }
    a.data = data;
    a.nbytes = s->nbytes;
    grown = (struct dataset_array *)realloc(d->array, ((size_t)d->narray + 1) * sizeof *grown);
    if (!grown)
        return loader_fail(d->error, "%s: no memory for another array", where);
    d->array = grown;
    d->array[d->narray++] = a;
    d->nsample = a.dim[0];
    return true;
}

LOADER_API bool loader_read_shape(struct dataset *d, const char *where, const uint8_t *data,
                                  size_t n, struct loader_shape *s)
{
    return loader_is_npy(data, n) ? loader_read_npy(data, n, where, s, d->error)
                                  : loader_read_idx(data, n, where, s, d->error);
}

LOADER_API bool loader_add_file(struct dataset *d, const char *where, const char *name,
                                const uint8_t *data, size_t n)
{
    struct loader_shape s;
    if (!loader_read_shape(d, where, data, n, &s))
        return false;
    if (n - s.header != s.nbytes)
        return loader_fail(d->error,
                           "%s: %zu bytes of elements follow its header, and its shape needs %zu; "
                           "is the file whole?",
                           where, n - s.header, s.nbytes);
    const void *elements = data + s.header;
    if (s.is_swapped)
        elements = loader_swap(d, where, &s, data + s.header);
    return elements && loader_add_array(d, where, name, &s, elements);
}
