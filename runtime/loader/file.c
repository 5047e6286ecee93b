/* SPDX-License-Identifier: 0BSD */
/* file.c - what the loader stands on: errors, checked sizes, memory that counts towards a limit,
 * files as bytes.
 *
 * All that a data set holds is a list of blocks, the latest first, so what a failed dataset_open()
 * has added is released by going back to the block that was first before.
 */
#include "runtime/loader/parts.h"

//@ loader_file loader_parts
#include <stdarg.h>
#include <sys/stat.h>
#if defined _WIN32 && !defined MODEL_NO_MMAP
#define MODEL_NO_MMAP
#endif
#ifndef MODEL_NO_MMAP
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

struct loader_block {
    struct loader_block *next;
    void *data;
    size_t nbytes;
    bool is_mapped;
};

LOADER_API bool loader_fail(char *error, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(error, LOADER_ERROR_NBYTES, format, ap);
    va_end(ap);
    return false;
}

LOADER_API bool loader_add(size_t a, size_t b, size_t *r)
{
    if (b > SIZE_MAX - a)
        return false;
    *r = a + b;
    return true;
}

LOADER_API bool loader_mul(size_t a, size_t b, size_t *r)
{
    if (a && b > SIZE_MAX / a)
        return false;
    *r = a * b;
    return true;
}

LOADER_API uint64_t loader_uint(const uint8_t *s, int nbytes, bool is_big)
{
    uint64_t v = 0;
    for (int i = 0; i < nbytes; i++)
        v = v << 8 | s[is_big ? i : nbytes - 1 - i];
    return v;
}

LOADER_API bool loader_is_little_endian(void)
{
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 1;
}

LOADER_API size_t loader_room(const struct dataset *d)
{
    const size_t usual =
        sizeof(size_t) > 4 ? (size_t)1 << (sizeof(size_t) > 4 ? 34 : 30) : SIZE_MAX;
    size_t most = d->most_nbytes ? d->most_nbytes : usual;
    return most > d->used_nbytes ? most - d->used_nbytes : 0;
}

/* An entry for what the caller then puts into it. NULL: no memory. */
static struct loader_block *loader_new_block(struct dataset *d)
{
    struct loader_block *b = (struct loader_block *)calloc(1, sizeof *b);
    if (b) {
        b->next = d->block;
        d->block = b;
    }
    return b;
}

LOADER_API void *loader_take(struct dataset *d, const char *where, size_t nbytes)
{
    if (nbytes > loader_room(d)) {
        loader_fail(d->error,
                    "%s: %zu bytes of memory are needed, and %zu are left of the limit; set a "
                    "higher limit, or use fewer samples",
                    where, nbytes, loader_room(d));
        return NULL;
    }
    void *data = malloc(nbytes ? nbytes : 1);
    struct loader_block *b = data ? loader_new_block(d) : NULL;
    if (!b) {
        free(data);
        loader_fail(d->error, "%s: no memory for %zu bytes; use fewer samples", where, nbytes);
        return NULL;
    }
    b->data = data;
    b->nbytes = nbytes;
    d->used_nbytes += nbytes;
    return data;
}

LOADER_API char *loader_copy_text(struct dataset *d, const char *where, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = (char *)loader_take(d, where, n);
    return copy ? (char *)memcpy(copy, text, n) : NULL;
}

LOADER_API void loader_release(struct dataset *d, const struct loader_block *last)
{
    while (d->block && d->block != last) {
        struct loader_block *b = d->block;
        d->block = b->next;
#ifndef MODEL_NO_MMAP
        if (b->is_mapped)
            munmap(b->data, b->nbytes);
#endif
        if (!b->is_mapped) {
            free(b->data);
            d->used_nbytes -= b->nbytes;
        }
        free(b);
    }
}

#ifndef MODEL_NO_MMAP
static const uint8_t *loader_map_bytes(struct dataset *d, const char *path, size_t nbytes)
{
    int fd = open(path, O_RDONLY);
    void *data = MAP_FAILED;
    if (fd >= 0) {
        data = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
    }
    struct loader_block *b = data != MAP_FAILED ? loader_new_block(d) : NULL;
    if (!b) {
        loader_fail(d->error, "%s: cannot be read: %s", path, strerror(errno));
        if (data != MAP_FAILED)
            munmap(data, nbytes);
        return NULL;
    }
    b->data = data;
    b->nbytes = nbytes;
    b->is_mapped = true;
    return (const uint8_t *)data;
}
#else
static const uint8_t *loader_map_bytes(struct dataset *d, const char *path, size_t nbytes)
{
    uint8_t *data = (uint8_t *)loader_take(d, path, nbytes);
    FILE *f = data ? fopen(path, "rb") : NULL;
    if (data && (!f || fread(data, 1, nbytes, f) != nbytes)) {
        loader_fail(d->error, "%s: cannot be read: %s", path, strerror(errno));
        data = NULL;
    }
    if (f)
        fclose(f);
    return data;
}
#endif

LOADER_API bool loader_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

LOADER_API const uint8_t *loader_map(struct dataset *d, const char *path, size_t *nbytes)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        loader_fail(d->error, "%s: cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 1 || (uint64_t)st.st_size > SIZE_MAX) {
        loader_fail(d->error, "%s: is %s; a file with an array is expected", path,
                    !S_ISREG(st.st_mode) ? "no regular file"
                    : st.st_size < 1     ? "empty"
                                         : "too large for this machine's addresses");
        return NULL;
    }
    *nbytes = (size_t)st.st_size;
    return loader_map_bytes(d, path, *nbytes);
}
