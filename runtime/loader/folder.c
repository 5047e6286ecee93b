/* SPDX-License-Identifier: 0BSD */
/* folder.c - folders of pictures by class.
 *
 *      folder/cat/1.png                classes and files in the order of their bytes
 *      folder/cat/2.png      ->        input u8[3, height, width, channels], target i64[3] = 0 0 1
 *      folder/dog/1.png
 *
 * Opening lists the files and looks into the first for its size. A picture is decoded when its row
 * is asked for, by the decoders of ImageDecoder (runtime/host/image.c): PNG, BMP, PNM and TIFF by
 * themselves, others by libraries where the program is built with them. Nothing is scaled.
 */
#include "runtime/loader/parts.h"

#include "runtime/host/image.c"

//@ loader_folder loader_class image_decode
#include <dirent.h>
#include <sys/stat.h>

enum { FOLDER_MOST_FILE_NBYTES = 1 << 30 };

/* Sample i is the file folder/class_name[number[i]]/name[i]. */
struct loader_pictures {
    const char *folder;
    char *const *class_name, *const *name;
    const int64_t *number;
    int64_t height, width, channels;
    size_t pixels_nbytes, room_nbytes; /* what decoding one takes */
};

/* Texts one after another, each with its zero. */
struct folder_list {
    char *text;
    size_t nbytes, size;
    int64_t n;
};

struct folder_reader {
    struct dataset *d;
    char path[4096]; /* what is looked at */
};

static bool folder_push(struct folder_list *list, const char *name)
{
    size_t n = strlen(name) + 1;
    if (n > list->size - list->nbytes) {
        size_t size = 2 * list->size + n + 256;
        char *text = (char *)realloc(list->text, size);
        if (!text)
            return false;
        list->text = text;
        list->size = size;
    }
    memcpy(list->text + list->nbytes, name, n);
    list->nbytes += n;
    list->n++;
    return true;
}

/* Puts the texts in the order of their bytes. */
static bool folder_sort(struct folder_list *list)
{
    char **name = (char **)malloc((size_t)(list->n + 1) * sizeof *name);
    char *sorted = (char *)malloc(list->nbytes + 1), *from = list->text, *to = sorted;
    bool ok = name && sorted;
    for (int64_t i = 0; ok && i < list->n; i++, from += strlen(from) + 1)
        name[i] = from;
    if (ok)
        loader_sort_texts(name, list->n);
    for (int64_t i = 0; ok && i < list->n; i++) {
        size_t n = strlen(name[i]) + 1;
        memcpy(to, name[i], n);
        to += n;
    }
    free(name);
    if (ok) {
        free(list->text);
        list->text = sorted;
    } else {
        free(sorted);
    }
    return ok;
}

/* folder/a/b in path[size]; b may be NULL. */
static bool folder_path(char *path, size_t size, const char *folder, const char *a, const char *b,
                        char *error)
{
    int n = snprintf(path, size, "%s/%s%s%s", folder, a, b ? "/" : "", b ? b : "");
    return (n >= 0 && (size_t)n < size) ||
           loader_fail(error, "%s: the path of '%s' in it is too long; move the folder", folder,
                       b ? b : a);
}

/* The folder's entries without those that begin with a point: its folders, or its files, which are
 * then all that it may have. below: a folder in it, or NULL. */
static bool folder_read(struct folder_reader *r, const char *folder, const char *below,
                        struct folder_list *list)
{
    char *error = r->d->error;
    struct stat st;
    if (below && !folder_path(r->path, sizeof r->path, folder, below, NULL, error))
        return false;
    DIR *opened = opendir(below ? r->path : folder);
    if (!opened)
        return loader_fail(error, "%s: cannot be opened: %s", below ? r->path : folder,
                           strerror(errno));
    bool ok = true;
    errno = 0;
    for (const struct dirent *e = NULL; ok && (e = readdir(opened)); errno = 0) {
        if (e->d_name[0] == '.')
            continue;
        ok = folder_path(r->path, sizeof r->path, folder, below ? below : e->d_name,
                         below ? e->d_name : NULL, error);
        if (ok && stat(r->path, &st) != 0)
            ok = loader_fail(error, "%s: cannot be read: %s", r->path, strerror(errno));
        if (ok && below && !S_ISREG(st.st_mode))
            ok = loader_fail(error,
                             "%s: is no regular file; the folder of a class has pictures "
                             "and nothing else: move it away",
                             r->path);
        if (ok && (below || S_ISDIR(st.st_mode)) && !folder_push(list, e->d_name))
            ok = loader_fail(error, "%s: no memory for its files", folder);
    }
    if (ok && errno)
        ok = loader_fail(error, "%s%s%s: cannot be read: %s", folder, below ? "/" : "",
                         below ? below : "", strerror(errno));
    closedir(opened);
    return ok;
}

/* A file's bytes in *data, which grows. 0: `error` says why. */
static size_t folder_read_file(const char *path, uint8_t **data, size_t *size, char *error)
{
    struct stat st;
    bool ok = stat(path, &st) == 0;
    if (ok && (!S_ISREG(st.st_mode) || st.st_size < 1 || st.st_size > FOLDER_MOST_FILE_NBYTES)) {
        loader_fail(error, "%s: is %s; a picture is expected: remove it", path,
                    !S_ISREG(st.st_mode) ? "no regular file"
                    : st.st_size < 1     ? "empty"
                                         : "larger than 1 GiB");
        return 0;
    }
    size_t nbytes = ok ? (size_t)st.st_size : 0;
    if (nbytes > *size) {
        free(*data);
        *data = (uint8_t *)malloc(nbytes);
        *size = *data ? nbytes : 0;
        if (!*data) {
            loader_fail(error, "%s: no memory for its %zu bytes", path, nbytes);
            return 0;
        }
    }
    FILE *f = ok ? fopen(path, "rb") : NULL;
    ok = f && fread(*data, 1, nbytes, f) == nbytes;
    if (!ok)
        loader_fail(error, "%s: cannot be read: %s", path, strerror(errno));
    if (f)
        fclose(f);
    return ok ? nbytes : 0;
}

static bool folder_bad_picture(const char *path, int status, char *error)
{
    return loader_fail(
        error, "%s: %s", path,
        status == IMAGE_NO_DECODER
            ? "is a picture whose decoder this program was built without (JPEG, WebP "
              "and JPEG 2000 need a library); convert it to PNG"
            : "is no picture that is read here, or a damaged one; PNG, BMP, PNM or "
              "TIFF is expected, or JPEG: replace or remove it");
}

/* The size of a picture, from its header. */
static bool folder_size(const char *path, const uint8_t *data, size_t nbytes, int64_t *height,
                        int64_t *width, char *error)
{
    struct image m;
    memset(&m, 0, sizeof m);
    m.data = data;
    m.size = (int64_t)nbytes;
    int status = image_read(&m); /* every picture is too large for no room */
    *height = m.height;
    *width = m.width;
    return status == IMAGE_TOO_LARGE || folder_bad_picture(path, status, error);
}

/* What pixels and decoding take: a PNG's tables and rows of 4 samples of 16 bits, of up to seven
 * passes, or a TIFF's row. */
static bool folder_set_size(struct dataset *d, struct loader_pictures *p, const char *path)
{
    size_t height = (size_t)p->height, width = (size_t)p->width, row = 0, rows = 0;
    bool ok = loader_mul(width, 8, &row) && loader_add(row, 16, &row) &&
              loader_add(height, 8, &rows) && loader_mul(rows, row, &p->room_nbytes) &&
              loader_add(p->room_nbytes, sizeof(struct image_tables), &p->room_nbytes) &&
              loader_mul(height, width, &p->pixels_nbytes) &&
              loader_mul(p->pixels_nbytes, (size_t)p->channels, &p->pixels_nbytes) &&
              p->room_nbytes <= loader_room(d) && p->pixels_nbytes <= loader_room(d);
    return ok || loader_fail(d->error,
                             "%s: %lld x %lld pixels are more than the limit of memory leaves; "
                             "scale the pictures, or set a higher limit",
                             path, (long long)p->width, (long long)p->height);
}

/* The size that all pictures must have: as the caller says, or the first one's. */
static bool folder_find_size(struct folder_reader *r, struct loader_pictures *p)
{
    struct dataset *d = r->d;
    uint8_t *data = NULL;
    size_t size = 0;
    p->height = d->picture_height;
    p->width = d->picture_width;
    p->channels = d->picture_channels ? d->picture_channels : 3;
    if ((p->channels != 1 && p->channels != 3) || p->height < 0 || p->width < 0)
        return loader_fail(d->error,
                           "%s: pictures of %lld channels are asked for; 3 (RGB) or 1 "
                           "(gray) are possible, and sizes from 1 on",
                           p->folder, (long long)p->channels);
    if (!folder_path(r->path, sizeof r->path, p->folder, p->class_name[p->number[0]], p->name[0],
                     d->error))
        return false;
    bool ok = true;
    if (p->height == 0 || p->width == 0) {
        int64_t height, width;
        size_t nbytes = folder_read_file(r->path, &data, &size, d->error);
        ok = nbytes && folder_size(r->path, data, nbytes, &height, &width, d->error);
        free(data);
        if (!ok)
            return false;
        p->height = p->height ? p->height : height;
        p->width = p->width ? p->width : width;
    }
    return folder_set_size(d, p, r->path);
}

/* The files of all classes: name[] and number[], from the lists of classes. Returns how many; 0:
 * r->d->error says why. */
static int64_t folder_list_files(struct folder_reader *r, const struct folder_list *classes,
                                 struct folder_list *files, const char *folder)
{
    int64_t n = 0;
    const char *name = classes->text;
    for (int64_t i = 0; i < classes->n; i++, name += strlen(name) + 1) {
        if (!folder_read(r, folder, name, &files[i]))
            return 0;
        if (files[i].n == 0) {
            loader_fail(r->d->error, "%s/%s: has no pictures; add some, or remove the folder",
                        folder, name);
            return 0;
        }
        if (!folder_sort(&files[i])) {
            loader_fail(r->d->error, "%s: no memory for its files", folder);
            return 0;
        }
        n += files[i].n;
    }
    return n;
}

/* Copies names to memory of the data set, and numbers their classes. */
static bool folder_keep(struct folder_reader *r, const struct folder_list *classes,
                        const struct folder_list *files, int64_t n, struct loader_pictures *p)
{
    struct dataset *d = r->d;
    size_t nclass = (size_t)classes->n, nbytes = 0;
    for (size_t i = 0; i < nclass; i++)
        nbytes += files[i].nbytes;
    char **names = (char **)loader_take(d, p->folder, (size_t)n * sizeof *names);
    int64_t *number = (int64_t *)loader_take(d, p->folder, (size_t)n * sizeof *number);
    char *text = (char *)loader_take(d, p->folder, nbytes);
    char **class_name = (char **)malloc(2 * nclass * sizeof *class_name);
    int64_t *class_number = (int64_t *)malloc(nclass * sizeof *class_number), at = 0;
    bool ok = names && number && text;
    if (ok && (!class_name || !class_number))
        ok = loader_fail(d->error, "%s: no memory for its classes", p->folder);
    char *name = classes->text;
    for (size_t i = 0; ok && i < nclass; i++, name += strlen(name) + 1)
        class_name[i] = name;
    ok = ok && loader_number_classes(d, p->folder, class_name, class_name + nclass, classes->n,
                                     class_number);
    for (size_t i = 0; ok && i < nclass; i++) {
        memcpy(text, files[i].text, files[i].nbytes);
        for (int64_t k = 0; k < files[i].n; k++, at++, text += strlen(text) + 1) {
            names[at] = text;
            number[at] = class_number[i];
        }
    }
    free(class_name);
    free(class_number);
    p->name = names;
    p->number = number;
    p->class_name = d->class_name;
    return ok;
}

static bool folder_list_all(struct folder_reader *r, struct loader_pictures *p, int64_t *n)
{
    struct folder_list classes, *files = NULL;
    memset(&classes, 0, sizeof classes);
    bool ok = folder_read(r, p->folder, NULL, &classes);
    if (ok && classes.n == 0)
        ok = loader_fail(r->d->error,
                         "%s: has no folders; one for each class is expected, with "
                         "its pictures in it",
                         p->folder);
    files = ok ? (struct folder_list *)calloc((size_t)classes.n, sizeof *files) : NULL;
    if (ok && (!files || !folder_sort(&classes)))
        ok = loader_fail(r->d->error, "%s: no memory for its files", p->folder);
    *n = ok ? folder_list_files(r, &classes, files, p->folder) : 0;
    ok = *n > 0 && folder_keep(r, &classes, files, *n, p);
    for (int64_t i = 0; files && i < classes.n; i++)
        free(files[i].text);
    free(files);
    free(classes.text);
    return ok;
}

LOADER_API bool loader_open_folder(struct dataset *d, const char *path, const char *as)
{
    struct loader_shape s, targets;
    struct loader_pictures *p =
        (struct loader_pictures *)loader_take(d, path, sizeof(struct loader_pictures));
    struct folder_reader *r = (struct folder_reader *)calloc(1, sizeof *r);
    memset(&s, 0, sizeof s);
    if (p)
        memset(p, 0, sizeof *p);
    if (r)
        r->d = d;
    bool ok = p && (r || loader_fail(d->error, "%s: no memory to list it", path)) &&
              (p->folder = loader_copy_text(d, path, path)) && folder_list_all(r, p, &s.dim[0]) &&
              folder_find_size(r, p);
    free(r);
    if (!ok)
        return false;
    targets = s;
    targets.type = LOADER_I64;
    targets.rank = 1;
    targets.nbytes = (size_t)s.dim[0] * sizeof(int64_t);
    s.type = LOADER_U8;
    s.rank = 4;
    s.dim[1] = p->height;
    s.dim[2] = p->width;
    s.dim[3] = p->channels;
    if (!loader_mul((size_t)s.dim[0], p->pixels_nbytes, &s.nbytes))
        return loader_fail(d->error, "%s: has more pixels than can be addressed", path);
    if (!loader_add_array(d, path, as ? as : "input", &s, NULL))
        return false;
    d->array[d->narray - 1].pictures = p;
    return loader_add_array(d, path, "target", &targets, p->number);
}

LOADER_API void loader_free_decoder(struct loader_decoder *v)
{
    free(v->file);
    free(v->pixels);
    free(v->room);
    memset(v, 0, sizeof *v);
}

/* Memory for pictures of that size. */
static bool folder_reserve(struct loader_decoder *v, const struct loader_pictures *p, char *error)
{
    if (v->pixels_nbytes >= p->pixels_nbytes && v->room_nbytes >= p->room_nbytes)
        return true;
    free(v->pixels);
    free(v->room);
    v->pixels = (uint8_t *)malloc(p->pixels_nbytes);
    v->room = (uint8_t *)malloc(p->room_nbytes);
    bool ok = v->pixels && v->room;
    v->pixels_nbytes = ok ? p->pixels_nbytes : 0;
    v->room_nbytes = ok ? p->room_nbytes : 0;
    return ok || loader_fail(error, "%s: no memory for a picture", p->folder);
}

LOADER_API const uint8_t *loader_decode(const struct dataset_array *a, int64_t sample,
                                        struct loader_decoder *v, char *error)
{
    const struct loader_pictures *p = a->pictures;
    char path[4096];
    if (!folder_reserve(v, p, error) ||
        !folder_path(path, sizeof path, p->folder, p->class_name[p->number[sample]],
                     p->name[sample], error))
        return NULL;
    size_t nbytes = folder_read_file(path, &v->file, &v->file_nbytes, error);
    int64_t height = 0, width = 0;
    if (!nbytes)
        return NULL;
    int status = image_decode(v->file, v->pixels, v->room, (int64_t)nbytes,
                              p->channels == 1 ? 2 : 0, p->height, p->height, p->width, p->width,
                              (int64_t)p->room_nbytes, &height, &width);
    if (status == MODEL_OK)
        return v->pixels;
    if (!folder_size(path, v->file, nbytes, &height, &width, error))
        return NULL;
    if (height == p->height && width == p->width)
        (void)folder_bad_picture(path, IMAGE_BROKEN, error);
    else
        loader_fail(error,
                    "%s: has %lld x %lld pixels (width x height), where all have %lld x "
                    "%lld; scale it",
                    path, (long long)width, (long long)height, (long long)p->width,
                    (long long)p->height);
    return NULL;
}
