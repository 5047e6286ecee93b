/* SPDX-License-Identifier: 0BSD */
/* augment.c - pictures that are shifted, flipped, cropped and normalized on their way into a batch.
 *
 *      row of the array --shift--> --flip--> --crop--> --layout--> --normalize--> row of the batch
 *           two buffers in turn, in the array's element type            converted at the end
 *
 * What is drawn for a sample depends on (seed, epoch, sample) and the operation's place in the list
 * alone: not on the batch, the thread, or the field.
 */
#include "runtime/loader/parts.h"

//@ loader_augment loader_gather loader_order loader_decimal
enum augment_kind { AUGMENT_SHIFT, AUGMENT_FLIP, AUGMENT_CROP };
enum { AUGMENT_OPS = 8, AUGMENT_MOST_SHIFT = 1 << 20 };

/* planes x height x width x channels, the last `depth` of which are adjacent: NCHW has one channel
 * in each of its planes, NHWC one plane. */
struct augment_extent {
    int64_t planes, height, width, depth;
};

struct augment_op {
    enum augment_kind kind;
    int64_t height, width; /* shift: how far; crop: what remains */
};

struct loader_augment {
    int nop;
    struct augment_op op[AUGMENT_OPS];
    struct augment_extent from, to; /* of a row; `to` before its layout changes */
    bool from_last, to_last;        /* channels last */
    int64_t channels, nnormal;      /* nnormal: of mean and std, 0: nothing is normalized */
    double *mean, *std;
    uint8_t *buffer[2];
};

static bool augment_fail(const struct stream_field *f, char *error, const char *what)
{
    return loader_fail(error, "the stream: '%s': %s", f->name, what);
}

/* ---------------------------------------------------------------------------- what is asked for */

static bool augment_may_be_channels(int64_t n) { return n == 1 || n == 3 || n == 4; }

LOADER_API const char *loader_layout(int rank, const int64_t *dim)
{
    return rank == 3                                       ? "NHW"
           : rank == 4 && augment_may_be_channels(dim[1]) ? "NCHW"
           : rank == 4 && augment_may_be_channels(dim[3]) ? "NHWC"
                                                           : NULL;
}

/* "NHW" of rank 3, "NHWC" or "NCHW" of rank 4. */
static bool augment_read_layout(const char *layout, int rank, bool *is_last)
{
    *is_last = strcmp(layout, "NHWC") == 0;
    return rank == 3 ? strcmp(layout, "NHW") == 0 : *is_last || strcmp(layout, "NCHW") == 0;
}

static bool augment_set_layouts(struct loader_augment *g, const struct dataset_array *a,
                                const struct stream_field *f, char *error)
{
    const char *from = f->layout;
    if (!from)
        from = a->rank == 3 ? "NHW" : a->pictures ? "NHWC" : "";
    const char *to = f->to_layout ? f->to_layout : from;
    int to_rank = strcmp(to, "NHW") == 0 ? 3 : 4;
    if (a->rank != 3 && a->rank != 4)
        return augment_fail(f, error, "augmentations and layouts are for pictures, of rank 3 or 4");
    if (!*from)
        return augment_fail(f, error, "its layout is not known; say NHWC or NCHW");
    if (!augment_read_layout(from, a->rank, &g->from_last) ||
        !augment_read_layout(to, to_rank, &g->to_last))
        return augment_fail(f, error, "a layout is NHW for rank 3, NHWC or NCHW for rank 4");
    int64_t first = a->dim[1], second = a->dim[2], third = a->rank == 4 ? a->dim[3] : 1;
    bool is_first = a->rank == 4 && !g->from_last;
    g->channels = a->rank == 3 ? 1 : is_first ? first : third;
    g->from.planes = is_first ? first : 1;
    g->from.height = is_first ? second : first;
    g->from.width = is_first ? third : second;
    g->from.depth = is_first ? 1 : g->channels;
    g->to = g->from;
    if (to_rank == 3 && g->channels != 1)
        return augment_fail(f, error, "NHW is for pictures of one channel; say NHWC or NCHW");
    if (g->from.height > INT32_MAX || g->from.width > INT32_MAX)
        return augment_fail(f, error, "its pictures are too large");
    return true;
}

/* "a/b/c": a number for each channel, or one for all. */
static bool augment_read_numbers(const char *s, size_t n, double *v, int64_t most, int64_t *count)
{
    const char *end = s + n;
    for (*count = 0; *count < most; s++) {
        size_t length = 0;
        while (s + length < end && s[length] != '/')
            length++;
        if (!loader_read_number(s, length, false, &v[*count]) || v[*count] - v[*count] != 0)
            return false;
        ++*count;
        s += length;
        if (s == end)
            return true;
    }
    return false;
}

/* normalize:MEAN:STD. false: it has another form. */
static bool augment_read_normal(struct loader_augment *g, const char *s, size_t n)
{
    int64_t nmean, nstd;
    const char *colon = (const char *)memchr(s, ':', n);
    size_t length = colon ? (size_t)(colon - s) : n;
    if (!colon || !augment_read_numbers(s, length, g->mean, g->channels, &nmean) ||
        !augment_read_numbers(colon + 1, n - length - 1, g->std, g->channels, &nstd))
        return false;
    for (int64_t i = nmean; nmean == 1 && i < nstd; i++)
        g->mean[i] = g->mean[0];
    for (int64_t i = nstd; nstd == 1 && i < nmean; i++)
        g->std[i] = g->std[0];
    g->nnormal = nmean > nstd ? nmean : nstd;
    for (int64_t i = 0; i < g->nnormal; i++)
        if (!(g->std[i] > 0))
            return false;
    return (nmean == nstd || nmean == 1 || nstd == 1) &&
           (g->nnormal == 1 || g->nnormal == g->channels);
}

/* HxW, or one number of which both are. */
static bool augment_read_size(const char *s, size_t n, bool is_pair, struct augment_op *op)
{
    const char *x = is_pair ? (const char *)memchr(s, 'x', n) : NULL;
    size_t length = x ? (size_t)(x - s) : n;
    if (!loader_read_integer(s, length, &op->height))
        return false;
    op->width = op->height;
    return x ? loader_read_integer(x + 1, n - length - 1, &op->width) : !is_pair;
}

static bool augment_starts(const char *s, size_t n, const char *word)
{
    size_t length = strlen(word);
    return n > length && strncmp(s, word, length) == 0;
}

/* One word of the list. false: there is no such operation. */
static bool augment_read_op(struct loader_augment *g, const char *s, size_t n)
{
    struct augment_op *op = &g->op[g->nop];
    if (augment_starts(s, n, "normalize:"))
        return augment_read_normal(g, s + 10, n - 10);
    if (g->nop == AUGMENT_OPS)
        return false;
    g->nop++;
    if (n == 4 && strncmp(s, "flip", n) == 0) {
        op->kind = AUGMENT_FLIP;
        return true;
    }
    if (augment_starts(s, n, "shift:")) {
        op->kind = AUGMENT_SHIFT;
        return augment_read_size(s + 6, n - 6, false, op) && op->height > 0 &&
               op->height <= AUGMENT_MOST_SHIFT;
    }
    if (!augment_starts(s, n, "crop:"))
        return false;
    op->kind = AUGMENT_CROP;
    return augment_read_size(s + 5, n - 5, true, op) && op->height > 0 && op->width > 0;
}

static bool augment_read(struct loader_augment *g, const struct stream_field *f, char *error)
{
    const char *word = f->augment ? f->augment : "";
    for (size_t n; *word; word += n + (word[n] == ',')) {
        n = strcspn(word, ",");
        if (g->nnormal)
            return augment_fail(f, error, "normalize comes last, and once");
        if (!augment_read_op(g, word, n))
            return loader_fail(error,
                               "the stream: '%s': '%.*s' is no augmentation here; shift:N, "
                               "flip, crop:HxW (at most %d of them) and at last "
                               "normalize:MEAN:STD are, with one number or %lld with / "
                               "between them, STD above 0",
                               f->name, (int)(n < 100 ? n : 100), word, AUGMENT_OPS,
                               (long long)g->channels);
        const struct augment_op *op = &g->op[g->nop ? g->nop - 1 : 0];
        if (g->nnormal || op->kind != AUGMENT_CROP)
            continue;
        if (op->height > g->to.height || op->width > g->to.width)
            return loader_fail(error,
                               "the stream: '%s': crop:%lldx%lld is larger than pictures of "
                               "%lldx%lld; crop less, or scale them",
                               f->name, (long long)op->height, (long long)op->width,
                               (long long)g->to.height, (long long)g->to.width);
        g->to.height = op->height;
        g->to.width = op->width;
    }
    if (g->nnormal && !loader_is_float(f->type))
        return augment_fail(f, error, "what is normalized is no integer; ask for f16, f32 or f64");
    return true;
}

/* The shape of what the stream delivers. */
static void augment_set_shape(const struct loader_augment *g, const struct stream_field *f,
                              struct stream_array *to)
{
    const struct augment_extent *e = &g->to;
    const char *layout = f->to_layout ? f->to_layout : f->layout;
    to->rank = (layout && strcmp(layout, "NHW") == 0) || (!layout && to->rank == 3) ? 3 : 4;
    to->dim[1] = to->rank == 4 && !g->to_last ? g->channels : e->height;
    to->dim[2] = to->rank == 4 && !g->to_last ? e->height : e->width;
    to->dim[3] = to->rank == 3 ? 0 : g->to_last ? g->channels : e->width;
    to->row_nelem = e->planes * e->height * e->width * e->depth;
}

LOADER_API struct loader_augment *loader_make_augment(struct dataset *memory,
                                                      const struct dataset_array *a,
                                                      const struct stream_field *f,
                                                      struct stream_array *to)
{
    const char *where = "the stream";
    struct loader_augment *g = (struct loader_augment *)loader_take(memory, where, sizeof *g);
    size_t row = (size_t)a->row_nelem * loader_type_nbytes(a->type);
    if (!g)
        return NULL;
    memset(g, 0, sizeof *g);
    if (!augment_set_layouts(g, a, f, memory->error))
        return NULL;
    g->buffer[0] = (uint8_t *)loader_take(memory, where, row);
    g->buffer[1] = (uint8_t *)loader_take(memory, where, row);
    if (!g->buffer[0] || !g->buffer[1])
        return NULL;
    g->mean = (double *)loader_take(memory, where, 2 * (size_t)g->channels * sizeof(double));
    if (!g->mean)
        return NULL;
    g->std = g->mean + g->channels;
    if (!augment_read(g, f, memory->error))
        return NULL;
    augment_set_shape(g, f, to);
    return g;
}

/* --------------------------------------------------------------------------------- what is done */

/* A number from 0 to n - 1, evenly. needs: n <= 2^32 */
static int64_t augment_below(uint32_t drawn, int64_t n)
{
    return (int64_t)((uint64_t)drawn * (uint64_t)n >> 32);
}

/* to[y][x] = from[y - dy][x - dx], 0 where that is outside; nbytes: of a pixel. */
static void augment_shift(const struct augment_extent *e, const uint8_t *from, uint8_t *to,
                          int64_t dy, int64_t dx, int64_t nbytes)
{
    int64_t left = dx > 0 ? dx : 0, right = dx < 0 ? -dx : 0, kept = e->width - left - right;
    for (int64_t p = 0; p < e->planes; p++)
        for (int64_t y = 0; y < e->height; y++, to += e->width * nbytes) {
            int64_t source = y - dy;
            memset(to, 0, (size_t)(e->width * nbytes));
            if (source >= 0 && source < e->height && kept > 0)
                memcpy(to + left * nbytes,
                       from + ((p * e->height + source) * e->width + right) * nbytes,
                       (size_t)(kept * nbytes));
        }
}

static void augment_flip(const struct augment_extent *e, const uint8_t *from, uint8_t *to,
                         int64_t nbytes)
{
    for (int64_t row = 0; row < e->planes * e->height; row++)
        for (int64_t x = 0; x < e->width; x++, to += nbytes)
            memcpy(to, from + (row * e->width + e->width - 1 - x) * nbytes, (size_t)nbytes);
}

static void augment_crop(const struct augment_extent *e, const uint8_t *from, uint8_t *to,
                         int64_t top, int64_t left, const struct augment_op *op, int64_t nbytes)
{
    for (int64_t p = 0; p < e->planes; p++)
        for (int64_t y = 0; y < op->height; y++, to += op->width * nbytes)
            memcpy(to, from + ((p * e->height + top + y) * e->width + left) * nbytes,
                   (size_t)(op->width * nbytes));
}

/* Channels from last to first (NHWC to NCHW), or from first to last. */
static void augment_transpose(const struct augment_extent *e, const uint8_t *from, uint8_t *to,
                              int64_t channels, int64_t nbytes)
{
    int64_t pixels = e->height * e->width;
    bool is_last = e->planes == 1;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < pixels; i++) {
            int64_t first = (c * pixels + i) * nbytes, last = (i * channels + c) * nbytes;
            memcpy(to + (is_last ? first : last), from + (is_last ? last : first), (size_t)nbytes);
        }
}

/* One operation on a picture of that extent, which becomes that of the result. */
static void augment_apply(const struct augment_op *op, const uint32_t drawn[2], bool evaluates,
                          const uint8_t *from, uint8_t *to, struct augment_extent *e, size_t width)
{
    int64_t nbytes = e->depth * (int64_t)width, dy = 0, dx = 0;
    switch (op->kind) {
    case AUGMENT_SHIFT:
        if (!evaluates) {
            dy = augment_below(drawn[0], 2 * op->height + 1) - op->height;
            dx = augment_below(drawn[1], 2 * op->width + 1) - op->width;
        }
        augment_shift(e, from, to, dy, dx, nbytes);
        break;
    case AUGMENT_FLIP:
        if (!evaluates && drawn[0] >> 31)
            augment_flip(e, from, to, nbytes);
        else
            augment_shift(e, from, to, 0, 0, nbytes);
        break;
    case AUGMENT_CROP:
        dy = e->height - op->height;
        dx = e->width - op->width;
        dy = evaluates ? dy / 2 : augment_below(drawn[0], dy + 1);
        dx = evaluates ? dx / 2 : augment_below(drawn[1], dx + 1);
        augment_crop(e, from, to, dy, dx, op, nbytes);
        e->height = op->height;
        e->width = op->width;
        break;
    }
}

/* (v - mean) / std, in double. */
static bool augment_normalize(const struct loader_augment *g, const struct dataset_array *a,
                              int64_t sample, const uint8_t *from, uint8_t *to,
                              enum loader_type type, char *error)
{
    int64_t pixels = g->to.height * g->to.width, total = g->channels * pixels, most = LOADER_CHUNK;
    size_t width = loader_type_nbytes(a->type), to_width = loader_type_nbytes(type);
    for (int64_t i = 0; i < total; i += most) {
        int64_t whole[LOADER_CHUNK], n = total - i < most ? total - i : most, valid = n;
        double v[LOADER_CHUNK];
        if (loader_is_float(a->type))
            loader_load_floats(from + (size_t)i * width, a->type, n, v);
        else
            valid = loader_load_integers(from + (size_t)i * width, a->type, n, whole);
        for (int64_t k = 0; k < valid; k++) {
            int64_t c = g->nnormal == 1 ? 0 : g->to_last ? (i + k) % g->channels : (i + k) / pixels;
            v[k] = loader_is_float(a->type) ? v[k] : (double)whole[k];
            v[k] = (v[k] - g->mean[c]) / g->std[c];
        }
        int64_t stored = loader_store_floats(v, valid, to + (size_t)i * to_width, type);
        if (stored < n)
            return loader_misfit(a, sample,
                                 stored < valid ? v[stored] : (double)(uint64_t)whole[stored], type,
                                 error);
    }
    return true;
}

LOADER_API bool loader_augment_row(const struct loader_augment *g, const struct dataset_array *a,
                                   const struct stream_options *o, int64_t epoch, int64_t sample,
                                   const uint8_t *row, uint8_t *to, enum loader_type type,
                                   char *error)
{
    uint32_t key[2], own[2], drawn[2];
    const uint32_t halves[2] = {(uint32_t)sample, (uint32_t)((uint64_t)sample >> 32)};
    struct augment_extent e = g->from;
    struct dataset_array result = *a;
    size_t width = loader_type_nbytes(a->type);
    int next = 0;
    loader_key(o->seed, epoch, LOADER_AUGMENT, key);
    loader_threefry(key, halves, own);
    for (int i = 0; i < g->nop; i++, next = 1 - next) {
        const uint32_t place[2] = {(uint32_t)i, 0};
        loader_threefry(own, place, drawn);
        augment_apply(&g->op[i], drawn, o->evaluates, row, g->buffer[next], &e, width);
        row = g->buffer[next];
    }
    if (g->channels > 1 && g->from_last != g->to_last) {
        augment_transpose(&e, row, g->buffer[next], g->channels, (int64_t)width);
        row = g->buffer[next];
    }
    if (g->nnormal)
        return augment_normalize(g, a, sample, row, to, type, error);
    result.row_nelem = e.planes * e.height * e.width * e.depth;
    return loader_convert(&result, sample, row, to, type, error);
}
