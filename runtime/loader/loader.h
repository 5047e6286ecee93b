/* SPDX-License-Identifier: 0BSD */
/* loader.h - data sets in files, for training: arrays whose leading axis counts the samples.
 *
 *      files and folders  --dataset_open()-->  arrays  --dataset_gather()--------->  rows
 *                                                       --dataset_stream_next()---->  batches
 *
 * The loader needs libc alone. It never prints and never exits: a function that can fail returns
 * false and leaves a sentence in dataset.error, with the file, what was found, what was expected
 * and what to do. Files are data of unknown origin: every size and offset in them is checked before
 * it is used, and `most_nbytes` bounds the memory that they can ask for.
 *
 * The files of this folder are also pieces that a program can carry (runtime/embed.c). There
 * LOADER_API is `static inline`. MODEL_NO_MMAP: files are read, not mapped. MODEL_NO_PTHREADS:
 * batches are made in the caller's thread.
 */
//@ loader_interface
#ifndef LOADER_H
#define LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef LOADER_API
#define LOADER_API
#endif

enum {
    LOADER_ERROR_NBYTES = 2048,
    LOADER_RANK = 8,
    LOADER_NAME_NBYTES = 256 /* of an array's name, with the zero at its end */
};

/* The element types of files, which are also those that rows are converted to: name, text, C type,
 * NumPy's kind, IDX's code (0: IDX has none). f16 is stored as its bits, since pictures and tokens
 * are kept so to save space; u16 and u32 are usual for tokens. NumPy's remaining kinds (complex,
 * text, dates, objects) are refused. NumPy has no bf16: rows are converted to it. */
#define LOADER_INTEGERS(TYPE)            \
    TYPE(BOOL, "bool", uint8_t, 'b', 0)  \
    TYPE(U8, "u8", uint8_t, 'u', 0x08)   \
    TYPE(I8, "i8", int8_t, 'i', 0x09)    \
    TYPE(U16, "u16", uint16_t, 'u', 0)   \
    TYPE(I16, "i16", int16_t, 'i', 0x0b) \
    TYPE(U32, "u32", uint32_t, 'u', 0)   \
    TYPE(I32, "i32", int32_t, 'i', 0x0c) \
    TYPE(U64, "u64", uint64_t, 'u', 0)   \
    TYPE(I64, "i64", int64_t, 'i', 0)
#define LOADER_FLOATS(TYPE)              \
    TYPE(F16, "f16", uint16_t, 'f', 0)   \
    TYPE(BF16, "bf16", uint16_t, '-', 0) \
    TYPE(F32, "f32", float, 'f', 0x0d)   \
    TYPE(F64, "f64", double, 'f', 0x0e)

enum loader_type {
#define LOADER_ENUM(name, text, type, kind, code) LOADER_##name,
    LOADER_INTEGERS(LOADER_ENUM) LOADER_FLOATS(LOADER_ENUM)
#undef LOADER_ENUM
    LOADER_NTYPE
};

LOADER_API const char *loader_type_name(enum loader_type type);
LOADER_API size_t loader_type_nbytes(enum loader_type type);

/* One array of a data set. */
struct dataset_array {
    const char *name, *file;
    enum loader_type type;
    int rank;                 /* at least 1 */
    int64_t dim[LOADER_RANK]; /* each at least 1; dim[0] is the number of samples */
    int64_t row_nelem;        /* elements of one sample: the product of the other dimensions */
    const void *data;         /* in C order and the machine's byte order, of any alignment */
    size_t nbytes;
    const struct loader_pictures *pictures; /* in files, decoded row by row; data is NULL then */
};

/* Begins as all zeros. */
struct dataset {
    /* Set by the caller before dataset_open(): how many bytes all files together may ask of memory,
     * and how many of an archive's entry may be read to check it; 0 means 16 GiB. Files that are
     * mapped as they are do not count. */
    size_t most_nbytes;
    /* CSV: the column of targets, by its name in the first line; NULL: there is none. */
    const char *target_column;
    /* The training data, where this is data to validate with: classes have its numbers. */
    const struct dataset *classes;
    /* Folders: the pictures' size, 0: the first one's; 3 channels (RGB) or 1 (gray), 0: 3. */
    int64_t picture_height, picture_width, picture_channels;

    int64_t nsample;
    int narray;
    struct dataset_array *array; /* moves when another file is opened */
    int64_t nclass; /* where targets are names in the file: target k is class_name[k] */
    char **class_name;
    char error[LOADER_ERROR_NBYTES];

    size_t used_nbytes; /* of most_nbytes */
    struct loader_block *block;
};

/* ------------------------------------------------------------------------------------ dataset.c */

/* Opens a file and adds its arrays. What the file is, its first bytes say:
 *
 *      .npy    versions 1 to 3, in C order. `as` is the array's name.
 *      IDX     MNIST's format: 0 0 type rank, big-endian dimensions and elements. `as` likewise.
 *      .npz    stored and deflated entries, also of zip64. `as` NULL: all arrays, by their names.
 *              "NAME": the only array, else the one of this name. "NAME=ENTRY": that entry as NAME.
 *      .csv    by its name: f32[samples, columns], named `as` or else "input". The column
 *              `target_column` becomes "target": i64 where all of it are integers, else f32 where
 *              all are numbers, else i64 class numbers of texts, sorted by bytes. The first line
 *              names the columns if target_column is set, or if a field of it is no number. Fields
 *              and quotes are as in RFC 4180; empty lines are skipped. NaN and infinity are
 *              refused.
 *      folder  with a folder of pictures for each class: u8[samples, height, width, channels],
 *              named `as` or else "input", and class numbers "target". Classes, and files within
 *              them, are in the order of their bytes. Names that begin with a point are skipped,
 *              and so are files beside the folders of classes. Pictures are decoded when their rows
 *              are asked for, and must all have one size.
 *      .gz     of .npy, IDX or .csv, of one or several members
 *
 * Elements in the other byte order are copied and swapped; those in the machine's order are used
 * where the mapped file has them. Others must not shorten a file while it is mapped. CRC-32 of gzip
 * members and zip entries is checked. All arrays must have the same number of samples, and none may
 * be empty. false: d->error says why, and no array was added. */
LOADER_API bool dataset_open(struct dataset *d, const char *path, const char *as);

/* The array of that name; NULL: there is none. */
LOADER_API const struct dataset_array *dataset_find(const struct dataset *d, const char *name);

/* Releases all; the data set is as new, but for what the caller had set. */
LOADER_API void dataset_close(struct dataset *d);

/* ------------------------------------------------------------------------------------- gather.c */

/* Rows of an array by their numbers, converted: out[n][row_nelem] of that type. Floats are rounded
 * to nearest, ties to even. A value that the type does not hold is an error: a fraction or NaN as
 * an integer, a number beyond the type's range. false: d->error says which sample.
 * needs: an array of this data set */
LOADER_API bool dataset_gather(struct dataset *d, const struct dataset_array *a,
                               const int64_t *index, int64_t n, void *out, enum loader_type type);

/* -------------------------------------------------------------------------------------- order.c */

/* Threefry-2x32, 20 rounds. source: Salmon et al. 2011 */
LOADER_API void loader_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);

/* The order of n samples in an epoch: order[0..n) is a permutation that depends on nothing else.
 *
 *      key   = threefry(seed, (epoch, 0))                    low halves of 64 bits first
 *      for i = n - 1, n - 2, ... 1:  swap order[i], order[threefry(key, i) mod (i + 1)]
 *
 * needs: epoch < 2^32 */
LOADER_API void dataset_order(uint64_t seed, int64_t epoch, int64_t n, int64_t *order);

/* ------------------------------------------------------------------------------------- stream.c */

/* An array that a stream delivers, and the type of its elements there. The rest is for pictures, of
 * rank 3 or 4, and may be NULL.
 *
 *      augment     operations in their order, with commas between them:
 *                  shift:N             by up to N pixels each way, filled with 0
 *                  flip                left and right, every other time
 *                  crop:HxW            to that size, anywhere
 *                  normalize:MEAN:STD  (v - MEAN) / STD of the values as they are in the file; one
 *                                      number, or one for each channel: 0.5/0.4/0.3; comes last
 *      layout      of the array: NHW; NHWC or NCHW (needed for rank 4, but for a folder's pictures)
 *      to_layout   of what is delivered, if that is another one
 *
 * What is drawn depends on (seed, epoch, sample) and the operation's place in the list alone, so a
 * picture and its mask with equal lists remain aligned:
 *
 *      (a, b) = threefry(threefry(threefry(seed, (epoch, 1)), sample), (place, 0))
 *      shift   down by (a * (2 N + 1) >> 32) - N, to the right likewise by b
 *      flip    if a >= 2^31
 *      crop    begins at row a * (height - H + 1) >> 32, and column likewise by b
 */
struct stream_field {
    const char *name;
    enum loader_type type;
    const char *augment, *layout, *to_layout;
};

/* The layout of pictures by their dims, of which the first counts samples: channels are 1, 3 or 4,
 * in the second axis or in the last. NULL: it cannot be told. */
LOADER_API const char *loader_layout(int rank, const int64_t *dim);

/* Zeros are fine but for `batch` and the fields. */
struct stream_options {
    int64_t batch; /* samples in a batch; an epoch's last one may have fewer */
    uint64_t seed;
    int64_t epoch, step; /* where to begin: that many batches of that epoch are done already */
    int64_t epochs;      /* the stream ends before that epoch; 0: never */
    bool in_order;       /* samples as the files have them, in each epoch */
    bool evaluates;      /* nothing is drawn: no shift, no flip, and crop takes the middle */
    bool no_thread;      /* batches are made when they are asked for */
    /* Of each batch nrow rows, from first_row on, are made; others are not touched. nrow 0: all */
    int64_t first_row, nrow;
    int nfield;
    const struct stream_field *field;
};

/* A batch. What it points to is valid until the next call for the stream. */
struct stream_batch {
    int64_t epoch, step, n;
    bool is_last;         /* of its epoch */
    const int64_t *index; /* [n], the samples' numbers */
    void *const *data;    /* [nfield]: of each field [n][row_nelem], of the stream's row_nelem */
};

/* What a field delivers. dim[0] is a full batch's. */
struct stream_array {
    enum loader_type type;
    int rank;
    int64_t dim[LOADER_RANK];
    int64_t row_nelem;
};

struct stream {
    int64_t nstep;              /* batches of an epoch */
    struct stream_array *array; /* [nfield] */
    char error[LOADER_ERROR_NBYTES];
    struct stream_state *state;
};

/* Batches of a data set, in an order that (seed, epoch) determines. A thread prepares the next
 * batch while the caller works with one; what comes does not depend on it. To go on after batch
 * (epoch, step), begin at (epoch, step + 1); nothing is replayed.
 * false: s->error says why, and nothing is to be stopped.
 * needs: the data set open and unchanged until dataset_stream_stop(); most_nbytes bounds what the
 * stream takes, too */
LOADER_API bool dataset_stream_start(struct stream *s, const struct dataset *d,
                                     const struct stream_options *options);

enum stream_status { STREAM_FAILED = -1, STREAM_ENDED, STREAM_BATCH };

/* FAILED: s->error says why, and remains the answer. */
LOADER_API enum stream_status dataset_stream_next(struct stream *s, struct stream_batch *b);

/* Ends the thread and releases all. Also after a failure; twice is harmless. */
LOADER_API void dataset_stream_stop(struct stream *s);

#endif
