/* SPDX-License-Identifier: 0BSD */
/* opencl_image.c - what an OpenCL program needs in addition if its kernels read tensors as images
 * (--image): RGBA of floats or halves, four elements a pixel, a power of two of pixels a row.
 * Images are made in one of three ways:
 *
 *      1  rows     2D images over sub-buffers (cl_khr_image2d_from_buffer)
 *      2  line     1D images over sub-buffers
 *      3  copies   2D images with memory of their own: filled before a kernel reads one
 *                  if its tensor was stored since
 *
 * Kernels store to buffers in all three. A kernel's result must not alias an image that it reads.
 * So in 1 and 2 each tensor is a sub-buffer, and all arguments are sub-buffers.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ opencl_image_types
/* A tensor that kernels read as an image: its place and offset there, its pixels, log2 of the
 * pixels in a row, whether they are halves. */
struct image_of { int place; size_t at, pixels; int shift; bool is_half; };
/* A place's offset and size in the model's memory. */
struct part_of { size_t at, nbytes; };
/* An image. part: the sub-buffer of the weights that it is made of. is_stale: to be filled. */
struct image { void *image, *part; bool is_stale; };
enum image_way { IMAGE_ROWS = 1, IMAGE_LINE, IMAGE_COPY };

//@ opencl_image_open memory build
/* A numeric property of the device; 0: unknown. */
static uint64_t device_number(const model_self *self, uint32_t what)
{
    const struct opencl *cl = &self->device;
    uint64_t v = 0;
    uint32_t half = 0;
    size_t n = 0;
    if (cl->get_device_info(cl->device, what, 0, NULL, &n) != 0)
        return 0;
    if (n == sizeof half)
        return cl->get_device_info(cl->device, what, sizeof half, &half, NULL) == 0 ? half : 0;
    return n == sizeof v && cl->get_device_info(cl->device, what, sizeof v, &v, NULL) == 0 ? v : 0;
}

static bool has_extension(const model_self *self, const char *name)
{
    const struct opencl *cl = &self->device;
    size_t n = 0;
    char *all =
        cl->get_device_info(cl->device, 0x1030 /* EXTENSIONS */, 0, NULL, &n) == 0 && n < SIZE_MAX
            ? (char *)calloc(n + 1, 1)
            : NULL;
    bool has =
        all && cl->get_device_info(cl->device, 0x1030, n, all, NULL) == 0 && strstr(all, name);
    free(all);
    return has;
}

static bool has_format(const model_self *self, uint32_t type, bool half)
{
    enum { MOST = 256, READ_ONLY = 1 << 2, RGBA = 0x10b5, HALF = 0x10dd, FLOAT = 0x10de };
    const struct opencl *cl = &self->device;
    uint32_t format[MOST][2], n = 0;
    if (cl->get_formats(cl->context, READ_ONLY, type, MOST, format, &n) != 0)
        return false;
    for (uint32_t i = 0; i < n && i < MOST; i++)
        if (format[i][0] == RGBA && format[i][1] == (half ? HALF : FLOAT))
            return true;
    return false;
}

static size_t pixel_nbytes(const struct image_of *i) { return i->is_half ? 8 : 16; }
static size_t rows_of(const struct image_of *i)
{
    return (i->pixels + ((size_t)1 << i->shift) - 1) >> i->shift;
}

/* Is there a reason why a tensor cannot be an image in this way? It is written to `text`. */
static bool limits_image(const model_self *self, enum image_way way, const struct image_of *i,
                         char text[300])
{
    const uint64_t width = device_number(self, 0x1011 /* WIDTH */),
                   height = device_number(self, 0x1012 /* HEIGHT */),
                   line = device_number(self, 0x1040 /* IMAGE_MAX_BUFFER_SIZE */),
                   pitch = device_number(self, 0x104a /* PITCH */),
                   base = device_number(self, 0x104b /* BASE */),
                   align = device_number(self, 0x1019 /* MEM_BASE_ADDR_ALIGN, bits */) / 8;
    const size_t at = i->place == 1 ? i->at : part_of[i->place].at, row = (size_t)1 << i->shift;
    const unsigned long long pixels = i->pixels;
    if (!has_format(self, way == IMAGE_LINE ? 0x10f6 : 0x10f1, i->is_half))
        snprintf(text, 300, "the device has no such images of %s",
                 i->is_half ? "halves: compile without --half-storage" : "floats");
    else if (way == IMAGE_LINE && pixels > line)
        snprintf(text, 300,
                 "an image of a buffer has up to %llu pixels on the device, and a tensor has %llu",
                 (unsigned long long)line, pixels);
    else if (way != IMAGE_LINE && (row > width || rows_of(i) > height))
        snprintf(text, 300,
                 "an image has up to %llu x %llu pixels on the device, and a tensor needs "
                 "%zu x %zu",
                 (unsigned long long)width, (unsigned long long)height, row, rows_of(i));
    else if (way == IMAGE_ROWS &&
             (pitch == 0 || row % pitch != 0 || (base > 0 && at / pixel_nbytes(i) % base != 0)))
        snprintf(text, 300,
                 "rows of images over buffers are multiples of %llu pixels on the device, and "
                 "begin at multiples of %llu, and the model's are of %zu, from pixel %zu on",
                 (unsigned long long)pitch, (unsigned long long)base, row, at / pixel_nbytes(i));
    else if (way != IMAGE_COPY && align > 0 && at % align != 0)
        snprintf(text, 300,
                 "parts of buffers begin at multiples of %llu bytes on the device, and the model's "
                 "at %zu",
                 (unsigned long long)align, at);
    else
        return false;
    return true;
}

/* Can the device make all images in this way? If not, `text` says why. */
static bool can_make_images(const model_self *self, enum image_way way, char text[300])
{
    if (!device_number(self, 0x1016 /* IMAGE_SUPPORT */)) {
        snprintf(text, 300, "the device has no images: compile without --image");
        return false;
    }
    if (way == IMAGE_ROWS && !has_extension(self, "cl_khr_image2d_from_buffer")) {
        snprintf(text, 300, "the device makes no images of two axes over a buffer "
                            "(cl_khr_image2d_from_buffer)");
        return false;
    }
    for (int i = 0; i < MODEL_IMAGES; i++)
        if (limits_image(self, way, &image_of[i], text))
            return false;
    return true;
}

/* Releases the images and sub-buffers. */
static void drop_images(model_self *self)
{
    const struct opencl *cl = &self->device;
    for (int i = 0; i < MODEL_IMAGES; i++) {
        if (self->image[i].image)
            cl->release_buffer(self->image[i].image);
        if (self->image[i].part)
            cl->release_buffer(self->image[i].part);
        memset(&self->image[i], 0, sizeof self->image[i]);
    }
    for (int i = 0; i < MODEL_PLACES; i++) {
        if (self->part[i])
            cl->release_buffer(self->part[i]);
        self->part[i] = NULL;
    }
}

/* A sub-buffer from `at` on. */
static void *make_part(const model_self *self, void *buffer, size_t at, size_t nbytes,
                       int32_t *error)
{
    const size_t region[2] = {at, nbytes};
    return self->device.create_part(buffer, 0, 0x1220 /* REGION */, region, error);
}

static bool make_image(model_self *self, enum image_way way, int index, int32_t *error)
{
    enum { READ_ONLY = 1 << 2 };
    const struct opencl *cl = &self->device;
    const struct image_of *i = &image_of[index];
    struct image *made = &self->image[index];
    const size_t row = (size_t)1 << i->shift;
    const uint32_t format[2] = {0x10b5 /* RGBA */, i->is_half ? 0x10dd : 0x10de};
    struct image_shape shape;
    memset(&shape, 0, sizeof shape);
    if (way != IMAGE_COPY && i->place == 1) {
        uint64_t at = i->at;
        void *const weights = buffer_of(self, cl->weights, &at);
        made->part =
            make_part(self, weights, (size_t)at, rows_of(i) * row * pixel_nbytes(i), error);
        if (!made->part)
            return false;
    }
    shape.type = way == IMAGE_LINE ? 0x10f6 /* IMAGE1D_BUFFER */ : 0x10f1 /* IMAGE2D */;
    shape.width = way == IMAGE_LINE ? i->pixels : row;
    shape.height = way == IMAGE_LINE ? 0 : rows_of(i);
    shape.row_pitch = way == IMAGE_ROWS ? row * pixel_nbytes(i) : 0;
    shape.buffer = way == IMAGE_COPY ? NULL : i->place == 1 ? made->part : self->part[i->place];
    made->image = cl->create_image(cl->context, READ_ONLY, format, &shape, NULL, error);
    made->is_stale = true;
    return made->image != NULL;
}

/* Makes all images in this way. false: the driver refuses one, although its limits allow it. */
static bool make_images(model_self *self, enum image_way way, char text[300])
{
    bool made = true;
    int32_t error = 0;
    for (int i = 2; i < MODEL_PLACES && way != IMAGE_COPY && made; i++)
        if (part_of[i].nbytes > 0) {
            self->part[i] =
                make_part(self, self->device.memory, part_of[i].at, part_of[i].nbytes, &error);
            made = self->part[i] != NULL;
        }
    for (int i = 0; i < MODEL_IMAGES && made; i++)
        made = make_image(self, way, i, &error);
    if (!made)
        snprintf(text, 300, "the driver makes no image of %s: error %ld",
                 way == IMAGE_COPY ? "this size" : "a part of a buffer", (long)error);
    if (!made)
        drop_images(self);
    return made;
}

/* Makes the images: in the way of options.images, or in the first one that the device supports. */
static int open_images(model_self *self)
{
    const int asked = self->options.images;
    char text[300];
    int way = asked ? asked : IMAGE_ROWS;
    if (asked < 0 || asked > IMAGE_COPY)
        return MODEL_BAD_OPTIONS;
    while (!can_make_images(self, (enum image_way)way, text) ||
           !make_images(self, (enum image_way)way, text)) {
        if (asked || way == IMAGE_COPY) {
            complain(self, text);
            return MODEL_DEVICE_LACKS;
        }
        way++;
    }
    self->image_way = way;
    return MODEL_OK;
}

/* Opens the device's memory, makes the images, and builds the kernels. */
static int device_open(model_self *self, const char *const *text, uint32_t count, bool doubles)
{
    int status = open_memory(self, doubles);
    if (status == MODEL_OK)
        status = open_images(self);
    return status == MODEL_OK
               ? open_program(self, text, count,
                              self->image_way == IMAGE_LINE ? "-cl-std=CL1.2 -DPIXELS_IN_LINE"
                                                            : "-cl-std=CL1.2")
               : status;
}

static void device_close(model_self *self)
{
    end_runs(self);
    if (self->device.release_buffer)
        drop_images(self);
    end_device(self);
}

//@ opencl_image_argument memory
/* Sets the i-th argument of a kernel object; `value` is a tensor's offset or a number. A tensor is
 * two arguments of OpenCL, buffer and offset; an image is one. */
static bool set_argument(model_self *self, int index, int i, uint64_t value)
{
    const struct argument *a = &argument_of[launch_of[index].first];
    const struct place *p =
        a[i].place < 0 || a[i].place >= MODEL_PLACES ? NULL : &self->place[a[i].place];
    void *const own = p && !p->is_bound ? self->part[a[i].place] : NULL;
    uint64_t number = (p && !own ? p->at : 0) + value;
    void *const buffer = own ? own : p ? buffer_of(self, p->buffer, &number) : NULL;
    uint32_t at = 0;
    for (int k = 0; k < i; k++)
        at += a[k].place < 0 || a[k].place >= MODEL_PLACES ? 1 : 2;
    if (a[i].place >= MODEL_PLACES)
        return TRY(set_argument, self->kernel[index], at, sizeof(void *),
                   &self->image[a[i].place - MODEL_PLACES].image);
    return (!p || TRY(set_argument, self->kernel[index], at++, sizeof buffer, &buffer)) &&
           TRY(set_argument, self->kernel[index], at, sizeof number, &number);
}

//@ opencl_image_to_device
/* Unmaps what the host has accessed. It may have stored anywhere, so all images are stale. */
static int to_device(model_self *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < MODEL_IMAGES && cl->nseen > 0; i++)
        self->image[i].is_stale = true;
    for (; cl->nseen > 0; cl->nseen--)
        if (!TRY(unmap, cl->queue, cl->memory, cl->seen[cl->nseen - 1], 0, NULL, NULL))
            return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ opencl_image_start kernel
static bool fill_image(model_self *self, int index)
{
    const struct opencl *cl = &self->device;
    const struct image_of *i = &image_of[index];
    const size_t origin[3] = {0, 0, 0}, region[3] = {(size_t)1 << i->shift, rows_of(i), 1};
    uint64_t at = i->at + (i->place == 1 ? 0 : part_of[i->place].at);
    void *const from = buffer_of(self, i->place == 1 ? cl->weights : cl->memory, &at);
    if (!TRY(fill_image, cl->queue, from, self->image[index].image, (size_t)at, origin, region, 0,
             NULL, NULL))
        return false;
    self->image[index].is_stale = false;
    return true;
}

/* Launches one kernel, after it has filled the stale images that the kernel reads. */
static bool start_filled(model_self *self, int index)
{
    const struct argument *a = &argument_of[launch_of[index].first];
    for (int k = 0; k < launch_of[index].count; k++)
        if (a[k].place >= MODEL_PLACES && self->image[a[k].place - MODEL_PLACES].is_stale &&
            !fill_image(self, a[k].place - MODEL_PLACES))
            return false;
    for (int k = 0; k < results_of[index]; k++)
        for (int i = 0; i < MODEL_IMAGES; i++)
            if (image_of[i].place == a[k].place)
                self->image[i].is_stale = true;
    return start_one(self, index);
}

static bool start(model_self *self, int from, int to)
{
    for (int i = from; i < to; i++)
        if (!(self->image_way == IMAGE_COPY ? start_filled(self, i) : start_one(self, i)))
            return false;
    return true;
}
