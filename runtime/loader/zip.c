/* SPDX-License-Identifier: 0BSD */
/* zip.c - the arrays of an .npz file: a zip archive (also zip64) of .npy files, stored or deflated.
 *
 *      local header | name | extra | bytes ...   entries, anywhere in the file
 *      entry | name | extra | comment ...        the central directory, which says all that counts
 *      [zip64 end] [its locator] end             at the file's end
 *
 * Stored entries are used where they are mapped. Names are keys, never paths: nothing is written.
 * Entries that overlap are harmless, since each is bounded by the file and by the limit of memory.
 * source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5
 */
#include "runtime/loader/parts.h"

//@ loader_zip loader_array loader_inflate
enum { ZIP_LOCAL = 30, ZIP_CENTRAL = 46, ZIP_END = 22, ZIP_LOCATOR = 20, ZIP_END64 = 56 };

struct zip {
    struct dataset *d;
    const char *path;
    const uint8_t *data;
    size_t n, directory, directory_end;
    uint64_t nentry;
};

/* An entry of the central directory. next: the offset of the one after it. */
struct zip_entry {
    char name[LOADER_NAME_NBYTES];
    unsigned flags, method;
    uint32_t crc;
    uint64_t packed, nbytes, offset;
    size_t next;
};

static bool zip_broken(struct zip *z, const char *what)
{
    return loader_fail(z->d->error, "%s: is no whole .npz archive: %s; copy or save it again",
                       z->path, what);
}

static uint64_t zip_uint(const struct zip *z, size_t at, int nbytes)
{
    return loader_uint(z->data + at, nbytes, false);
}

/* Whether nbytes from that offset on are before `end`. */
static bool zip_has(uint64_t at, uint64_t nbytes, size_t end)
{
    return at <= end && nbytes <= end - at;
}

static bool zip_find_directory(struct zip *z)
{
    size_t end = z->n < ZIP_END ? 0 : z->n - ZIP_END, longest = 65535;
    size_t least = end > longest ? end - longest : 0;
    if (z->n < ZIP_END)
        return zip_broken(z, "it is cut off");
    while (zip_uint(z, end, 4) != 0x06054b50 || zip_uint(z, end + 20, 2) != z->n - ZIP_END - end)
        if (end-- == least)
            return zip_broken(z, "it has no end of the central directory, so it is cut off");
    uint64_t disk = zip_uint(z, end + 4, 2), at = zip_uint(z, end + 16, 4),
             nbytes = zip_uint(z, end + 12, 4);
    z->nentry = zip_uint(z, end + 10, 2);
    z->directory_end = end;
    if (end >= ZIP_LOCATOR && zip_uint(z, end - ZIP_LOCATOR, 4) == 0x07064b50) {
        uint64_t end64 = zip_uint(z, end - ZIP_LOCATOR + 8, 8);
        if (!zip_has(end64, ZIP_END64, end - ZIP_LOCATOR) ||
            zip_uint(z, (size_t)end64, 4) != 0x06064b50)
            return zip_broken(z, "its zip64 end is not where it says");
        disk = zip_uint(z, (size_t)end64 + 16, 4);
        z->nentry = zip_uint(z, (size_t)end64 + 32, 8);
        nbytes = zip_uint(z, (size_t)end64 + 40, 8);
        at = zip_uint(z, (size_t)end64 + 48, 8);
        z->directory_end = (size_t)end64;
    }
    if (disk != 0)
        return zip_broken(z, "it has several parts");
    if (!zip_has(at, nbytes, z->directory_end))
        return zip_broken(z, "its central directory is not within the file");
    z->directory = (size_t)at;
    z->directory_end = (size_t)(at + nbytes);
    return true;
}

/* zip64's extra field replaces the numbers that are all ones, in this order. */
static bool zip_read_extra(struct zip *z, struct zip_entry *e, size_t at, size_t end)
{
    uint64_t *number[] = {&e->nbytes, &e->packed, &e->offset};
    while (zip_has(at, 4, end)) {
        size_t kind = (size_t)zip_uint(z, at, 2), n = (size_t)zip_uint(z, at + 2, 2);
        at += 4;
        if (!zip_has(at, n, end))
            return zip_broken(z, "an entry's extra field is longer than its place");
        for (size_t i = 0, used = 0; kind == 1 && i < 3; i++)
            if (*number[i] == 0xffffffff) {
                if (!zip_has(used, 8, n))
                    return zip_broken(z, "an entry's zip64 field is too short");
                *number[i] = zip_uint(z, at + used, 8);
                used += 8;
            }
        at += n;
    }
    return true;
}

static bool zip_read_entry(struct zip *z, size_t at, struct zip_entry *e)
{
    memset(e, 0, sizeof *e);
    if (!zip_has(at, ZIP_CENTRAL, z->directory_end) || zip_uint(z, at, 4) != 0x02014b50)
        return zip_broken(z, "its central directory has fewer entries than it says");
    size_t n = (size_t)zip_uint(z, at + 28, 2), extra = (size_t)zip_uint(z, at + 30, 2),
           comment = (size_t)zip_uint(z, at + 32, 2), name = at + ZIP_CENTRAL;
    if (!zip_has(name, n + extra + comment, z->directory_end))
        return zip_broken(z, "an entry is longer than the central directory");
    e->flags = (unsigned)zip_uint(z, at + 8, 2);
    e->method = (unsigned)zip_uint(z, at + 10, 2);
    e->crc = (uint32_t)zip_uint(z, at + 16, 4);
    e->packed = zip_uint(z, at + 20, 4);
    e->nbytes = zip_uint(z, at + 24, 4);
    e->offset = zip_uint(z, at + 42, 4);
    e->next = name + n + extra + comment;
    if (n < 5 || n >= sizeof e->name || memcmp(z->data + name + n - 4, ".npy", 4) != 0)
        return zip_broken(z, "an entry's name is no name of an array with .npy after it");
    memcpy(e->name, z->data + name, n - 4);
    if (!loader_is_name(e->name))
        return zip_broken(z, "an entry's name has control characters");
    return zip_read_extra(z, e, name + n, name + n + extra);
}

/* The entry's bytes as they are in the file, after its local header. NULL: z->d->error says why. */
static const uint8_t *zip_packed(struct zip *z, const struct zip_entry *e, const char *where)
{
    bool ok = zip_has(e->offset, ZIP_LOCAL, z->directory) &&
              zip_uint(z, (size_t)e->offset, 4) == 0x04034b50;
    size_t at = ok ? (size_t)e->offset + ZIP_LOCAL : 0;
    uint64_t names = ok ? zip_uint(z, at - 4, 2) + zip_uint(z, at - 2, 2) : 0;
    if (ok && zip_has(at, names, z->directory) && zip_has(at + names, e->packed, z->directory))
        return z->data + at + names;
    loader_fail(z->d->error, "%s: its bytes are not where the archive says; copy or save it again",
                where);
    return NULL;
}

static const uint8_t *zip_damaged(struct zip *z, const char *where)
{
    loader_fail(z->d->error,
                "%s: is damaged: its bytes are not those that the archive says (size or CRC-32); "
                "copy or save it again",
                where);
    return NULL;
}

/* What the deflated bytes hold. NULL: z->d->error says why. */
static const uint8_t *zip_inflate(struct zip *z, const struct zip_entry *e, const uint8_t *from,
                                  const char *where)
{
    size_t nbytes = (size_t)e->nbytes, packed = (size_t)e->packed, used = 0;
    if (!loader_can_hold(packed, nbytes))
        return zip_damaged(z, where);
    struct loader_output out = {(uint8_t *)loader_take(z->d, where, nbytes), 0, nbytes, nbytes};
    if (!out.data)
        return NULL;
    enum loader_inflated status = loader_inflate(from, packed, &used, &out);
    if (status == INFLATE_NO_MEMORY) {
        loader_fail(z->d->error, "%s: no memory to inflate it", where);
        return NULL;
    }
    return status == INFLATE_DONE && out.n == nbytes && used == packed ? out.data
                                                                       : zip_damaged(z, where);
}

/* The entry's bytes; NULL: z->d->error says why. */
static const uint8_t *zip_read(struct zip *z, const struct zip_entry *e, const char *where)
{
    const uint8_t *from = zip_packed(z, e, where);
    bool is_stored = e->method == 0;
    if (from && (e->flags & 1 || (!is_stored && e->method != 8))) {
        loader_fail(z->d->error,
                    "%s: is %s; save it with numpy.savez() or numpy.savez_compressed()", where,
                    e->flags & 1 ? "encrypted" : "packed by another method than deflate");
        return NULL;
    }
    if (from && e->nbytes > loader_room(z->d)) {
        loader_fail(z->d->error,
                    "%s: has %llu bytes, more than the limit of memory leaves (%zu); set a higher "
                    "limit, or save it as .npy, which is mapped",
                    where, (unsigned long long)e->nbytes, loader_room(z->d));
        return NULL;
    }
    if (from && is_stored && e->packed != e->nbytes)
        return zip_damaged(z, where);
    if (from && !is_stored)
        from = zip_inflate(z, e, from, where);
    if (from && loader_crc(from, (size_t)e->nbytes) != e->crc)
        return zip_damaged(z, where);
    return from;
}

static bool zip_add(struct zip *z, const struct zip_entry *e, const char *name)
{
    char where[LOADER_ERROR_NBYTES / 2];
    (void)snprintf(where, sizeof where, "%s: array '%s'", z->path, e->name);
    const uint8_t *data = zip_read(z, e, where);
    if (data && !loader_is_npy(data, (size_t)e->nbytes))
        return loader_fail(z->d->error, "%s: is no .npy file; save it with numpy.savez()", where);
    return data && loader_add_file(z->d, where, name, data, (size_t)e->nbytes);
}

/* as: "NAME=ENTRY", or "NAME" for the only entry or the one of that name. */
static bool zip_add_one(struct zip *z, const char *as)
{
    struct zip_entry e;
    char name[LOADER_NAME_NBYTES];
    size_t at = z->directory, equal = strcspn(as, "=");
    const char *wanted = as[equal] ? as + equal + 1 : z->nentry == 1 ? NULL : as;
    if (equal >= sizeof name)
        return loader_fail(z->d->error, "%s: the name '%.40s...' is too long", z->path, as);
    memcpy(name, as, equal);
    name[equal] = 0;
    for (uint64_t i = 0; i < z->nentry; i++, at = e.next) {
        if (!zip_read_entry(z, at, &e))
            return false;
        if (!wanted || strcmp(e.name, wanted) == 0)
            return zip_add(z, &e, name);
    }
    return loader_fail(z->d->error,
                       "%s: has no array '%s'; name one of its %llu arrays as %s=ARRAY", z->path,
                       wanted ? wanted : as, (unsigned long long)z->nentry, name);
}

LOADER_API bool loader_open_npz(struct dataset *d, const char *path, const char *as,
                                const uint8_t *data, size_t n)
{
    struct zip z;
    memset(&z, 0, sizeof z);
    z.d = d;
    z.path = path;
    z.data = data;
    z.n = n;
    if (!zip_find_directory(&z))
        return false;
    if (z.nentry == 0)
        return zip_broken(&z, "it has no arrays");
    if (as)
        return zip_add_one(&z, as);
    size_t at = z.directory;
    struct zip_entry e;
    for (uint64_t i = 0; i < z.nentry; i++, at = e.next)
        if (!zip_read_entry(&z, at, &e) || !zip_add(&z, &e, e.name))
            return false;
    return true;
}
