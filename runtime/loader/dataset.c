/* SPDX-License-Identifier: 0BSD */
/* dataset.c - opening files: what kind a file is, and how what it holds is unpacked.
 *
 * A dataset_open() that fails leaves the data set as it was before.
 */
#include "runtime/loader/parts.h"

//@ loader_dataset loader_zip loader_csv loader_folder
static bool loader_is_gzip(const uint8_t *data, size_t n)
{
    return n >= 3 && data[0] == 0x1f && data[1] == 0x8b && data[2] == 8;
}

static bool loader_is_zip(const uint8_t *data, size_t n)
{
    return n >= 4 && (memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, "PK\5\6", 4) == 0);
}

static bool loader_gzip_fault(struct dataset *d, const char *path, enum loader_inflated status)
{
    return loader_fail(d->error, "%s: %s", path,
                       status == INFLATE_NO_MEMORY ? "no memory to inflate it"
                       : status == INFLATE_FULL
                           ? "holds more bytes than its shape says; save it again"
                           : "is damaged or cut off (gzip); copy it again");
}

static bool loader_has_extension(const char *path, const char *extension)
{
    size_t n = strlen(path), length = strlen(extension);
    for (size_t i = 0; n >= length && i < length; i++) {
        char c = path[n - length + i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != extension[i])
            return false;
    }
    return n >= length;
}

/* A table has no length in front: it may take what memory the limit leaves. */
static bool loader_open_gzip_csv(struct dataset *d, const char *path, const char *as,
                                 const uint8_t *data, size_t n)
{
    struct loader_output out = {NULL, 0, 0, loader_room(d)};
    enum loader_inflated status = loader_gunzip(data, n, &out);
    bool ok = status == INFLATE_DONE;
    if (status == INFLATE_FULL)
        loader_fail(d->error,
                    "%s: holds more than the %zu bytes that the limit of memory leaves; "
                    "set a higher limit, or gunzip it first",
                    path, out.most);
    else if (!ok)
        loader_gzip_fault(d, path, status);
    else if (out.n == 0)
        ok = loader_fail(d->error, "%s: holds nothing; a table is expected", path);
    ok = ok && loader_open_csv(d, path, as, out.data, out.n);
    free(out.data);
    return ok;
}

/* The first bytes are inflated for the shape, which says how many there are. */
static bool loader_open_gzip(struct dataset *d, const char *path, const char *as,
                             const uint8_t *data, size_t n)
{
    struct loader_output head = {(uint8_t *)malloc(LOADER_HEADER_NBYTES), 0, LOADER_HEADER_NBYTES,
                                 LOADER_HEADER_NBYTES};
    struct loader_shape s;
    if (!head.data)
        return loader_fail(d->error, "%s: no memory for its header", path);
    enum loader_inflated status = loader_gunzip(data, n, &head);
    bool ok =
        status == INFLATE_DONE || status == INFLATE_FULL || loader_gzip_fault(d, path, status);
    if (ok && !loader_is_npy(head.data, head.n) && !loader_is_idx(head.data, head.n))
        ok = loader_fail(d->error,
                         "%s: holds no .npy and no IDX file; gunzip it first, or save the "
                         "array with numpy.save()",
                         path);
    ok = ok && loader_read_shape(d, path, head.data, head.n, &s);
    free(head.data);
    if (!ok)
        return false;
    size_t nbytes;
    if (!loader_add(s.header, s.nbytes, &nbytes) || !loader_can_hold(n, nbytes))
        return loader_fail(d->error,
                           "%s: its shape has %zu bytes, which its %zu bytes cannot hold; "
                           "is the file whole?",
                           path, s.nbytes, n);
    struct loader_output out = {(uint8_t *)loader_take(d, path, nbytes), 0, nbytes, nbytes};
    if (!out.data)
        return false;
    status = loader_gunzip(data, n, &out);
    if (status != INFLATE_DONE)
        return loader_gzip_fault(d, path, status);
    return loader_add_file(d, path, as, out.data, out.n);
}

static bool loader_open(struct dataset *d, const char *path, const char *as)
{
    size_t n = 0;
    if (loader_is_folder(path))
        return loader_open_folder(d, path, as);
    const uint8_t *data = loader_map(d, path, &n);
    if (!data)
        return false;
    if (loader_is_zip(data, n))
        return loader_open_npz(d, path, as, data, n);
    if (loader_is_gzip(data, n) && loader_has_extension(path, ".csv.gz"))
        return loader_open_gzip_csv(d, path, as, data, n);
    if (loader_has_extension(path, ".csv"))
        return loader_open_csv(d, path, as, data, n);
    if (!as)
        return loader_fail(d->error,
                           "%s: a name is needed for its array; only .npz and tables "
                           "have names",
                           path);
    if (loader_is_gzip(data, n))
        return loader_open_gzip(d, path, as, data, n);
    if (loader_is_npy(data, n) || loader_is_idx(data, n))
        return loader_add_file(d, path, as, data, n);
    return loader_fail(d->error,
                       "%s: is no data that is read here; .npy, .npz or IDX is expected, "
                       "or .npy.gz, or IDX with .gz",
                       path);
}

LOADER_API bool dataset_open(struct dataset *d, const char *path, const char *as)
{
    const struct loader_block *last = d->block;
    int narray = d->narray;
    int64_t nclass = d->nclass;
    char **class_name = d->class_name;
    d->error[0] = 0;
    if (loader_open(d, path, as))
        return true;
    loader_release(d, last);
    d->narray = narray;
    d->nclass = nclass;
    d->class_name = class_name;
    d->nsample = narray ? d->nsample : 0;
    return false;
}

LOADER_API void dataset_close(struct dataset *d)
{
    loader_release(d, NULL);
    free(d->array);
    d->array = NULL;
    d->class_name = NULL;
    d->narray = 0;
    d->nclass = 0;
    d->nsample = 0;
}
