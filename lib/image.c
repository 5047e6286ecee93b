/* image.c - pictures as inputs of a model: -i NAME=cat.jpg, and --image-layout, which says how the
 * input represents one.
 *
 *      file -> R G B A in bytes [height][width] -> cropped and scaled on request
 *           -> the input's axes, channels, range and dtype
 *
 * Nothing is guessed: a missing layout, or another size than the input's, is an error that names
 * the option. The decoders are those of ImageDecoder (runtime/host/image.c): PNG, BMP, PNM and TIFF
 * by themselves, JPEG by libjpeg where tgc is built with it. Scaling is linear, over all pixels
 * that contribute to one, with 22 bits for weights: bit-exact with Pillow's BILINEAR.
 */
#include "lib/lib.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/host/image.c"

enum { CHANNELS = 4, WEIGHT_BITS = 22, MOST_FILE_NBYTES = 1 << 30 };

/* Pixels, R G B A. */
struct picture { int64_t width, height; uint8_t *pixel; };

/* ------------------------------------------------------------------------------ --image-layout */

static const char *const channel_words[] = {"RGB", "BGR", "RGBA", "GRAY"};

static int channel_count(enum channel_order order)
{
    return order == CHANNELS_GRAY ? 1 : order == CHANNELS_RGBA ? 4 : 3;
}

/* NCHW, HWC, HW: each letter at most once, and valid for an image. */
static bool is_axes(const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("NCHW", word[i]) || memchr(word, word[i], i))
            return false;
    return n <= 4 && memchr(word, 'H', n) && memchr(word, 'W', n);
}

/* "a/b/c": one number for each channel, or one for all. */
static bool read_numbers(const char *s, const char *end, double v[4], int *n)
{
    char *stop;
    for (*n = 0; *n < 4; s++) {
        v[(*n)++] = strtod(s, &stop);
        if (stop == s || stop > end || !isfinite(v[*n - 1]))
            return false;
        s = stop;
        if (s == end || *s != '/')
            break;
    }
    return s == end;
}

static bool read_range(const char *s, const char *end, double range[2])
{
    const char *dots = strstr(s, "..");
    char *stop;
    if (!dots || dots >= end)
        return false;
    char *low = strndup(s, (size_t)(dots - s)); /* "0..1" begins with the number "0." */
    bool ok = low && *low;
    range[0] = ok ? strtod(low, &stop) : 0;
    ok = ok && !*stop;
    free(low);
    range[1] = ok ? strtod(dots + 2, &stop) : 0;
    return ok && stop == end && stop > dots + 2 && isfinite(range[0]) && isfinite(range[1]) &&
           range[0] < range[1];
}

static bool read_word(struct image_layout *v, const char *s, const char *end)
{
    size_t n = (size_t)(end - s);
    for (size_t i = 0; i < sizeof channel_words / sizeof *channel_words; i++)
        if (strlen(channel_words[i]) == n && strncmp(s, channel_words[i], n) == 0) {
            v->channels = (enum channel_order)i;
            v->has_channels = true;
            return true;
        }
    if (n && is_axes(s, n)) {
        snprintf(v->axes, sizeof v->axes, "%.*s", (int)n, s);
        return true;
    }
    if (n > 5 && strncmp(s, "mean=", 5) == 0)
        return v->has_range = read_numbers(s + 5, end, v->mean, &v->nmean);
    if (n > 4 && strncmp(s, "std=", 4) == 0) {
        v->has_range = read_numbers(s + 4, end, v->std, &v->nstd);
        for (int i = 0; i < v->nstd; i++)
            v->has_range &= v->std[i] > 0;
        return v->has_range;
    }
    if (n == 14 && strncmp(s, "resize=stretch", n) == 0)
        v->resize = RESIZE_STRETCH;
    else if (n == 11 && strncmp(s, "resize=crop", n) == 0)
        v->resize = RESIZE_CROP;
    else
        return v->has_range = read_range(s, end, v->range);
    return true;
}

bool image_layout_read(struct tgc *t, const char *s, struct image_layout *v)
{
    const char *colon = strrchr(s, ':'), *words = colon ? colon + 1 : s;
    *v = (struct image_layout){.words = words, .range = {0, 1}, .std = {1}, .nmean = 1, .nstd = 1};
    if (colon) {
        char *name = mem_copy(t, s, (size_t)(colon - s) + 1);
        name[colon - s] = 0;
        v->input = name;
    }
    for (const char *word = words;; word++) {
        const char *end = word + strcspn(word, ",");
        if (!read_word(v, word, end))
            return false;
        word = end;
        if (!*word)
            break;
    }
    int n = v->has_channels ? channel_count(v->channels) : 0;
    return *v->axes && v->has_channels && (strchr(v->axes, 'C') || n == 1) &&
           (v->nmean == 1 || v->nmean == n) && (v->nstd == 1 || v->nstd == n);
}

static const struct image_layout *find_layout(const struct options *o, const char *input)
{
    const struct image_layout *found = NULL;
    for (int i = 0; i < o->nlayout; i++)
        if (!o->layout[i].input ? !found || !found->input
                                : strcmp(o->layout[i].input, input) == 0)
            found = &o->layout[i];
    return found;
}

/* ---------------------------------------------------------------------------------------- files */

static bool begins_as_image(const uint8_t *s)
{
    static const struct { const char *magic; size_t n; } formats[] = {
        {"\x89PNG", 4}, {"\xff\xd8\xff", 3}, {"BM", 2},     {"II*\0", 4},
        {"MM\0*", 4},   {"RIFF", 4},         {"\0\0\0\x0cjP  ", 8},
    };
    if (s[0] == 'P' && s[1] >= '1' && s[1] <= '6')
        return true;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (memcmp(s, formats[i].magic, formats[i].n) == 0)
            return true;
    return false;
}

bool image_is(const char *path)
{
    uint8_t start[8] = {0};
    struct stat st;
    int fd = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool is = fd >= 0 && read(fd, start, sizeof start) == (ssize_t)sizeof start &&
              begins_as_image(start);
    if (fd >= 0)
        close(fd);
    return is;
}

static const uint8_t *read_bytes(struct tgc *t, const struct place *at, size_t *n)
{
    struct stat st;
    struct held *held;
    FILE *f = held_fopen(t, at->file, "re", &held);
    bool ok = f && fstat(fileno(f), &st) == 0 && st.st_size < MOST_FILE_NBYTES;
    *n = ok ? (size_t)st.st_size : 0;
    uint8_t *data = ok ? pages_allocate(t, *n, "the image's file") : NULL;
    if (!ok)
        diag_error(t, at, "cannot be read: %s", f ? "it is larger than 1 GB" : strerror(errno));
    else if (data && fread(data, 1, *n, f) != *n)
        ok = diag_error(t, at, "cannot be read: %s", strerror(errno));
    held_release(held);
    return ok ? data : NULL;
}

/* Memory for a PNG's codes and bytes, or a row of a TIFF, as for ImageDecoder. */
static int64_t room_for(int64_t height, int64_t width)
{
    return sat_add((int64_t)sizeof(struct image_tables),
                   sat_mul(sat_add(height, 8), sat_add(sat_mul(width, 8), 16)));
}

/* Decodes once for the size, and once for the pixels. */
static bool decode(struct tgc *t, const struct place *at, struct picture *p)
{
    size_t n;
    const uint8_t *data = read_bytes(t, at, &n);
    if (!data)
        return false;
    struct image m = {.data = data, .size = (int64_t)n, .order = 3};
    int status = image_read(&m);
    if (status == IMAGE_NO_DECODER)
        return diag_error(t, at, "is a picture that this tgc cannot decode (tgc --version says "
                                 "which it can): convert it to PNG");
    if (status == IMAGE_TOO_LARGE) { /* than nothing */
        int64_t height = p->height = m.height, width = p->width = m.width,
                room_size = room_for(height, width);
        int64_t nbytes = sat_mul(CHANNELS, sat_mul(p->height, p->width));
        const char *what = mem_printf(t, "the image of %lld x %lld pixels", (long long)p->width,
                                      (long long)p->height);
        p->pixel = pages_allocate(t, (size_t)nbytes, what);
        uint8_t *room = p->pixel ? pages_allocate(t, (size_t)room_size, what) : NULL;
        if (!room)
            return false;
        if (image_decode(data, p->pixel, room, m.size, m.order, 1, height, 1, width, room_size,
                         &height, &width) == MODEL_OK)
            return true;
    }
    return diag_error(t, at, "is a damaged picture, or of a kind that is not known");
}

/* -------------------------------------------------------------------------------------- scaling */

static uint8_t to_byte(int64_t sum)
{
    int64_t v = (sum + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* The pixels of [begin, end) that contribute to pixel `at` of n, and their weights. needs:
 * weight[size] */
static int64_t weights_at(int64_t at, int64_t n, float begin, float end, int64_t size,
                          double *weight, int64_t *first)
{
    double scale = (double)(end - begin) / (double)n, wide = scale < 1 ? 1 : scale, sum = 0;
    double center = (double)begin + ((double)at + 0.5) * scale;
    int64_t from = (int64_t)(center - wide + 0.5), to = (int64_t)(center + wide + 0.5);
    from = from < 0 ? 0 : from;
    to = to > size ? size : to;
    for (int64_t i = from; i < to; i++) {
        double far = fabs(((double)i - center + 0.5) * (1 / wide));
        sum += weight[i - from] = far < 1 ? 1 - far : 0;
    }
    for (int64_t i = 0; i < to - from; i++)
        weight[i] = floor(0.5 + (sum != 0 ? weight[i] / sum : 0) * (1 << WEIGHT_BITS));
    *first = from;
    return to - from;
}

/* One axis: `size` pixels with stride `step` bytes, in `lines` lines with stride `pitch` bytes,
 * become n. */
struct scaled_axis { int64_t size, step, n, to_step, lines, pitch, to_pitch; float begin, end; };

static void scale_axis(const struct scaled_axis *a, const uint8_t *from, uint8_t *to,
                       double *weight)
{
    for (int64_t i = 0; i < a->n; i++) {
        int64_t first, count = weights_at(i, a->n, a->begin, a->end, a->size, weight, &first);
        for (int64_t line = 0; line < a->lines; line++)
            for (int c = 0; c < CHANNELS; c++) {
                const uint8_t *at = from + line * a->pitch + first * a->step + c;
                int64_t sum = 0;
                for (int64_t k = 0; k < count; k++)
                    sum += at[k * a->step] * (int64_t)weight[k];
                to[line * a->to_pitch + i * a->to_step + c] = to_byte(sum);
            }
    }
}

static bool scale(struct tgc *t, struct picture *p, enum image_resize how, int64_t height,
                  int64_t width)
{
    float x = 0, y = 0, w = (float)p->width, h = (float)p->height;
    if (how == RESIZE_CROP) { /* the middle part with the target's aspect ratio */
        double ratio = (double)width / (double)height, has = (double)p->width / (double)p->height;
        double cut_w = has > ratio ? ratio * (double)p->height : (double)p->width;
        double cut_h = has > ratio ? (double)p->height : (double)p->width / ratio;
        x = (float)(((double)p->width - cut_w) * 0.5);
        y = (float)(((double)p->height - cut_h) * 0.5);
        w = (float)((double)x + cut_w);
        h = (float)((double)y + cut_h);
    }
    int64_t longest = p->width > p->height ? p->width : p->height;
    int64_t row = sat_mul(CHANNELS, width);
    uint8_t *across = pages_allocate(t, (size_t)sat_mul(row, p->height), "a scaled image");
    uint8_t *whole = across ? pages_allocate(t, (size_t)sat_mul(row, height), "a scaled image")
                            : NULL;
    double *weight = whole ? pages_allocate(t, (size_t)longest * sizeof *weight, "a scaled image")
                           : NULL;
    if (!weight)
        return false;
    struct scaled_axis columns = {.size = p->width, .step = CHANNELS, .n = width,
                                  .to_step = CHANNELS, .lines = p->height,
                                  .pitch = CHANNELS * p->width, .to_pitch = row, .begin = x,
                                  .end = w},
                       rows = {.size = p->height, .step = row, .n = height, .to_step = row,
                               .lines = width, .pitch = CHANNELS, .to_pitch = CHANNELS,
                               .begin = y, .end = h};
    scale_axis(&columns, p->pixel, across, weight);
    scale_axis(&rows, across, whole, weight);
    *p = (struct picture){width, height, whole};
    return true;
}

/* ------------------------------------------------------------------------------------ the input */

/* The input's size, or that of --shape, along an axis of the layout; -1: it is open. */
static int64_t size_of_input(const struct options *o, const struct model_input *in,
                             const struct image_layout *v, char axis)
{
    int a = (int)(strchr(v->axes, axis) - v->axes), rank = (int)strlen(v->axes);
    int64_t size = in->has_shape && in->ndim == rank ? in->dim[a] : -1;
    for (int i = 0; i < o->nshape; i++)
        if (strcmp(o->shape[i].input, in->name) == 0 && o->shape[i].ndim == rank &&
            o->shape[i].dim[a] >= 0)
            size = o->shape[i].dim[a];
    return size;
}

static bool fit(struct tgc *t, const struct options *o, const struct place *at,
                const struct model_input *in, const struct image_layout *v, struct picture *p)
{
    int64_t height = size_of_input(o, in, v, 'H'), width = size_of_input(o, in, v, 'W');
    bool open = height < 0 || width < 0;
    if (v->resize != RESIZE_NONE && (open || !height || !width))
        return diag_error(t, at, "resize needs the size that the input '%.100s' is to have: "
                                 "--shape=%.100s=... says it",
                          in->name, in->name);
    if ((height < 0 || height == p->height) && (width < 0 || width == p->width))
        return true;
    int64_t channels = strchr(v->axes, 'C') ? size_of_input(o, in, v, 'C') : -1;
    if (channels >= 0 && channels != channel_count(v->channels))
        return diag_error(t, at,
                          "has %d channels as %s, but axis %d of the input '%.100s', which is C in "
                          "the layout %s, has %lld: give its axes in the model's order, as NCHW",
                          channel_count(v->channels), channel_words[v->channels],
                          (int)(strchr(v->axes, 'C') - v->axes), in->name, v->axes,
                          (long long)channels);
    if (v->resize != RESIZE_NONE)
        return scale(t, p, v->resize, height, width);
    return diag_error(t, at,
                      "is %lld pixels wide and %lld high; the input '%.100s' takes %s x %s: scale "
                      "it before, or add resize=crop (its middle, scaled) or resize=stretch (all "
                      "of it, scaled) to --image-layout",
                      (long long)p->width, (long long)p->height, in->name,
                      width < 0 ? "any" : mem_printf(t, "%lld", (long long)width),
                      height < 0 ? "any" : mem_printf(t, "%lld", (long long)height));
}

/* Suggests an option to paste, as far as the declared shape allows. */
static bool layout_is_missing(struct tgc *t, const struct place *at, const struct model_input *in)
{
    static const char *const first[] = {"", "", "HW", "CHW", "NCHW"};
    static const char *const last[] = {"", "", "HW", "HWC", "NHWC"};
    int rank = in->has_shape && in->ndim >= 2 && in->ndim <= 4 ? in->ndim : 4;
    int64_t c = in->has_shape && in->ndim == rank && rank > 2 ? in->dim[rank - 3] : -1,
            end = in->has_shape && in->ndim == rank ? in->dim[rank - 1] : -1;
    bool is_last = (end == 1 || end == 3 || end == 4) && c != 1 && c != 3 && c != 4;
    int64_t n = rank == 2 ? 1 : is_last ? end : c;
    return diag_error(t, at,
                      "is a picture; say how the input '%.100s' holds one: --image-layout=%s,%s%s "
                      "(axes; RGB, BGR, RGBA or GRAY%s)",
                      in->name, is_last ? last[rank] : first[rank],
                      n == 1 ? "GRAY" : n == 4 ? "RGBA" : "RGB",
                      dtype_is_float(in->dtype) ? ",0..1" : "",
                      dtype_is_float(in->dtype)
                          ? "; what 0 and 255 become, or 0..1,mean=0.485/0.456/0.406,"
                            "std=0.229/0.224/0.225"
                          : "");
}

/* Whether the dtype can hold the pixels' values. *low: the integer that represents 0. */
static bool check_dtype(struct tgc *t, const struct place *at, const struct model_input *in,
                        const struct image_layout *v, int64_t *low)
{
    if (dtype_is_float(in->dtype))
        return v->has_range ||
               diag_error(t, at, "is a picture; say what its 0 and 255 become in the input "
                                 "'%.100s', which is of %s: --image-layout=%s,0..1 (or 0..255, "
                                 "-1..1, 0..1,mean=A/B/C,std=A/B/C)",
                          in->name, dtype_name(in->dtype), v->words);
    if (!dtype_is_int(in->dtype))
        return diag_error(t, at, "is a picture, and the input '%.100s' is of %s", in->name,
                          dtype_name(in->dtype));
    double begin = v->has_range ? v->range[0] : 0, end = v->has_range ? v->range[1] : 255;
    bool plain = v->nmean == 1 && v->mean[0] == 0 && v->nstd == 1 && v->std[0] == 1;
    bool holds = in->dtype == DTYPE_I8 ? begin == -128
                 : in->dtype == DTYPE_U8
                     ? begin == 0
                     : begin == 0 || (begin == -128 && dtype_kind(in->dtype) == 'I');
    *low = (int64_t)begin;
    return (plain && holds && end == begin + 255) ||
           diag_error(t, at, "the input '%.100s' is of %s, which holds a picture's bytes as %s, "
                             "without mean and std",
                      in->name, dtype_name(in->dtype),
                      in->dtype == DTYPE_I8 ? "-128..127" : "0..255");
}

static unsigned channel(const uint8_t *p, enum channel_order order, int c)
{
    if (order == CHANNELS_GRAY)
        return (p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16;
    return p[order == CHANNELS_BGR ? 2 - c : c];
}

static void put_pixels(const struct picture *p, const struct image_layout *v, int64_t low,
                       struct array *to)
{
    int64_t stride[256] = {0}, n = 1;
    size_t width = dtype_nbytes(to->dtype);
    bool is_float = dtype_is_float(to->dtype);
    for (int a = to->ndim - 1; a >= 0; n *= to->dim[a--])
        stride[(unsigned char)v->axes[a]] = n;
    for (int c = 0; c < channel_count(v->channels); c++) {
        union scalar value[256];
        for (int b = 0; b < 256; b++)
            if (is_float)
                value[b].f = (v->range[0] + b * (v->range[1] - v->range[0]) / 255 -
                              v->mean[v->nmean > 1 ? c : 0]) / v->std[v->nstd > 1 ? c : 0];
            else
                value[b].i = low + b;
        for (int64_t y = 0; y < p->height; y++)
            for (int64_t x = 0; x < p->width; x++) {
                int64_t at = c * stride['C'] + y * stride['H'] + x * stride['W'];
                unsigned b = channel(p->pixel + CHANNELS * (y * p->width + x), v->channels, c);
                scalar_store(to->dtype, (char *)to->data + (size_t)at * width, value[b]);
            }
    }
}

bool image_input(struct tgc *t, const struct options *o, const char *path,
                 const struct model_input *in, struct array *v)
{
    struct place at = {.file = path};
    const struct image_layout *layout = find_layout(o, in->name);
    struct picture p;
    int64_t low = 0;
    if (!layout)
        return layout_is_missing(t, &at, in);
    if (!check_dtype(t, &at, in, layout, &low) || !decode(t, &at, &p) ||
        !fit(t, o, &at, in, layout, &p))
        return false;
    *v = (struct array){.name = in->name, .dtype = in->dtype, .ndim = (int)strlen(layout->axes)};
    for (int a = 0; a < v->ndim; a++)
        v->dim[a] = layout->axes[a] == 'H'   ? p.height
                    : layout->axes[a] == 'W' ? p.width
                    : layout->axes[a] == 'C' ? channel_count(layout->channels)
                                             : 1;
    if (!array_allocate(t, v))
        return false;
    put_pixels(&p, layout, low, v);
    return true;
}

const char *image_formats(void)
{
#ifdef MODEL_WITH_JPEG
    return "PNG JPEG BMP PNM TIFF";
#else
    return "PNG JPEG(no) BMP PNM TIFF";
#endif
}
