/* SPDX-License-Identifier: 0BSD */
/* parts.h - what the loader's files have in common, and others do not see. Functions that return
 * bool write the reason to `error` (LOADER_ERROR_NBYTES) where they return false. `where` is the
 * file as errors name it. */
#include "runtime/loader/loader.h"

//@ loader_parts loader_interface
#ifndef LOADER_PARTS_H
#define LOADER_PARTS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- file.c */

/* Always false. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
LOADER_API bool
loader_fail(char *error, const char *format, ...);

/* Checked arithmetic: false on overflow, *r untouched then. */
LOADER_API bool loader_add(size_t a, size_t b, size_t *r);
LOADER_API bool loader_mul(size_t a, size_t b, size_t *r);

LOADER_API uint64_t loader_uint(const uint8_t *s, int nbytes, bool is_big);
LOADER_API bool loader_is_little_endian(void);

/* Memory that dataset_close() releases, and that counts towards most_nbytes. NULL: d->error says
 * why. `where` names the file that needs it. */
LOADER_API void *loader_take(struct dataset *d, const char *where, size_t nbytes);
LOADER_API char *loader_copy_text(struct dataset *d, const char *where, const char *text);

/* Releases the blocks that came after `last`. */
LOADER_API void loader_release(struct dataset *d, const struct loader_block *last);

/* What most_nbytes leaves. */
LOADER_API size_t loader_room(const struct dataset *d);

LOADER_API bool loader_is_folder(const char *path);

/* A regular file's bytes, mapped or read; they last as long as the data set. */
LOADER_API const uint8_t *loader_map(struct dataset *d, const char *path, size_t *nbytes);

/* ------------------------------------------------------------------------------------ inflate.c */

/* Where inflated bytes go. data[size] grows with realloc() up to `most`; it is not reallocated
 * where size == most. */
struct loader_output {
    uint8_t *data;
    size_t n, size, most;
};
enum loader_inflated { INFLATE_DONE, INFLATE_FULL, INFLATE_BROKEN, INFLATE_NO_MEMORY };

/* Inflates one stream of RFC 1951, which begins at from[0]; *used: its length. FULL: it holds more
 * than `most` bytes, of which the first are there. */
LOADER_API enum loader_inflated loader_inflate(const uint8_t *from, size_t size, size_t *used,
                                               struct loader_output *out);

/* Inflates all members of a gzip file (RFC 1952) and checks their CRC-32 and length. */
LOADER_API enum loader_inflated loader_gunzip(const uint8_t *from, size_t size,
                                              struct loader_output *out);

/* CRC-32 as of gzip and zip. */
LOADER_API uint32_t loader_crc(const uint8_t *data, size_t nbytes);

/* Whether so many deflated bytes can hold so many: deflate's ratio is at most 1032. */
LOADER_API bool loader_can_hold(size_t deflated, size_t nbytes);

/* ---------------------------------------------------------------------------------------- npy.c */

/* What a header says: `header` bytes, then nbytes of elements. */
struct loader_shape {
    enum loader_type type;
    bool is_swapped; /* against the machine's byte order */
    int rank;
    int64_t dim[LOADER_RANK];
    size_t header, nbytes;
};

enum { LOADER_HEADER_NBYTES = (1 << 16) + 12 }; /* the longest that is read */

LOADER_API bool loader_is_npy(const uint8_t *data, size_t n);
LOADER_API bool loader_is_idx(const uint8_t *data, size_t n);
LOADER_API bool loader_read_npy(const uint8_t *data, size_t n, const char *where,
                                struct loader_shape *s, char *error);
LOADER_API bool loader_read_idx(const uint8_t *data, size_t n, const char *where,
                                struct loader_shape *s, char *error);

/* -------------------------------------------------------------------------------------- array.c */

/* 1 to LOADER_NAME_NBYTES - 1 bytes without control characters. */
LOADER_API bool loader_is_name(const char *name);

/* The shape of a .npy file or, if it does not begin as one, of IDX; data[n]: its first bytes. */
LOADER_API bool loader_read_shape(struct dataset *d, const char *where, const uint8_t *data,
                                  size_t n, struct loader_shape *s);

/* Adds a file whose bytes are data[n]: a .npy file, or IDX. */
LOADER_API bool loader_add_file(struct dataset *d, const char *where, const char *name,
                                const uint8_t *data, size_t n);

/* Adds an array; checks its name, its size, and the number of samples. */
LOADER_API bool loader_add_array(struct dataset *d, const char *where, const char *name,
                                 const struct loader_shape *s, const void *data);

/* ---------------------------------------------------------------------------------------- zip.c */

LOADER_API bool loader_open_npz(struct dataset *d, const char *path, const char *as,
                                const uint8_t *data, size_t n);

/* ------------------------------------------------------------------------------------ classes.c */

LOADER_API void loader_sort_texts(char **text, int64_t n); /* by bytes */

/* Numbers the classes of n samples, by d->classes if that is set, else in sorted order; sets
 * d->class_name. sorted[n]: scratch. */
LOADER_API bool loader_number_classes(struct dataset *d, const char *where, char *const *name,
                                      char **sorted, int64_t n, int64_t *number);

/* ------------------------------------------------------------------------------------ decimal.c */

/* s[0..n) as a number: an integer of 64 bits; rounded to f32 or to f64, infinity if it is beyond.
 * false: it is none. */
LOADER_API bool loader_read_integer(const char *s, size_t n, int64_t *v);
LOADER_API bool loader_read_number(const char *s, size_t n, bool is_narrow, double *v);

/* ---------------------------------------------------------------------------------------- csv.c */

LOADER_API bool loader_open_csv(struct dataset *d, const char *path, const char *as,
                                const uint8_t *data, size_t n);

/* ------------------------------------------------------------------------------------- folder.c */

/* What decoding pictures needs, for one thread; begins as zeros. */
struct loader_decoder {
    uint8_t *file, *pixels, *room;
    size_t file_nbytes, pixels_nbytes, room_nbytes;
};

LOADER_API bool loader_open_folder(struct dataset *d, const char *path, const char *as);

/* The pixels of one picture, until the next call. NULL: `error` says why. */
LOADER_API const uint8_t *loader_decode(const struct dataset_array *a, int64_t sample,
                                        struct loader_decoder *v, char *error);
LOADER_API void loader_free_decoder(struct loader_decoder *v);

/* ------------------------------------------------------------------------------------- gather.c */

enum { LOADER_CHUNK = 256 }; /* elements that are converted at a time */

/* n elements as integers or as doubles, n <= LOADER_CHUNK. Integers: the number of elements before
 * the first that is beyond int64_t. needs: a type of that kind */
LOADER_API bool loader_is_float(enum loader_type type);
LOADER_API int64_t loader_load_integers(const uint8_t *from, enum loader_type type, int64_t n,
                                        int64_t *v);
LOADER_API void loader_load_floats(const uint8_t *from, enum loader_type type, int64_t n,
                                   double *v);

/* Stores integers as any type. Returns the number of elements before the first that the type does
 * not hold. */
LOADER_API int64_t loader_store_integers(const int64_t *v, int64_t n, uint8_t *to,
                                         enum loader_type type);
LOADER_API int64_t loader_store_floats(const double *v, int64_t n, uint8_t *to,
                                       enum loader_type type);

/* One row of a->row_nelem elements, converted. */
LOADER_API bool loader_convert(const struct dataset_array *a, int64_t sample, const uint8_t *from,
                               uint8_t *to, enum loader_type type, char *error);

/* A value of sample `sample` that the type cannot hold. Always false. */
LOADER_API bool loader_misfit(const struct dataset_array *a, int64_t sample, double value,
                              enum loader_type type, char *error);

/* The elements of one sample, as the array has them; those of a picture until the next call. NULL:
 * `error` says why. */
LOADER_API const uint8_t *loader_row(const struct dataset_array *a, int64_t sample,
                                     struct loader_decoder *v, char *error);

/* -------------------------------------------------------------------------------------- order.c */

/* The key for one purpose in one epoch. */
enum loader_purpose { LOADER_ORDER, LOADER_AUGMENT };
LOADER_API void loader_key(uint64_t seed, int64_t epoch, enum loader_purpose purpose,
                           uint32_t key[2]);

/* ------------------------------------------------------------------------------------ augment.c */

/* What the field asks for, and in *to the shape that results. It is allocated from `memory`. NULL:
 * memory->error says why. needs: to->rank as the array's */
LOADER_API struct loader_augment *loader_make_augment(struct dataset *memory,
                                                      const struct dataset_array *a,
                                                      const struct stream_field *f,
                                                      struct stream_array *to);

/* One sample's row, augmented and converted. */
LOADER_API bool loader_augment_row(const struct loader_augment *g, const struct dataset_array *a,
                                   const struct stream_options *o, int64_t epoch, int64_t sample,
                                   const uint8_t *row, uint8_t *to, enum loader_type type,
                                   char *error);
#endif
