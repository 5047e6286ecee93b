/* SPDX-License-Identifier: 0BSD */
/* opencl.c - OpenCL from a program that links libc alone: the driver is loaded when the model is
 * opened. Also OpenCL C's versions of pieces of number.c and math.c.
 *
 * A run's list (device.c) is a kernel object for each launch, which keeps its arguments. Tensors
 * that the host accesses (a condition, a host step) are mapped. That is free where host and device
 * share memory; only there is the buffer allocated in host-accessible memory. The weights are one
 * buffer, or several if the device allows none so large. Only functions of OpenCL 1.2 are called.
 * The API's constants are those of the specification's cl.h.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ opencl
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* A buffer of weights; begin: the first byte of the weights in it. */
enum { OPENCL_PARTS = 32 };
struct weights_part { void *buffer; size_t begin; };

struct image_shape {
    uint32_t type;
    size_t width, height, depth, count, row_pitch, slice_pitch;
    uint32_t levels, samples;
    void *buffer;
};

/* The functions of OpenCL that are called, in the order of call_name[]. */
struct opencl {
    int32_t (*get_platforms)(uint32_t most, void **platform, uint32_t *count);
    int32_t (*get_devices)(void *platform, uint64_t type, uint32_t most, void **device,
                           uint32_t *n);
    int32_t (*get_device_info)(void *device, uint32_t what, size_t size, void *value, size_t *n);
    void *(*create_context)(const intptr_t *properties, uint32_t count, void *const *device,
                            void (*notify)(const char *, const void *, size_t, void *), void *user,
                            int32_t *error);
    int32_t (*get_context_info)(void *context, uint32_t what, size_t size, void *value, size_t *n);
    void *(*create_queue)(void *context, void *device, uint64_t properties, int32_t *error);
    int32_t (*get_queue_info)(void *queue, uint32_t what, size_t size, void *value, size_t *n);
    void *(*create_buffer)(void *context, uint64_t flags, size_t size, void *host, int32_t *error);
    void *(*create_program)(void *context, uint32_t count, const char *const *text,
                            const size_t *length, int32_t *error);
    void *(*create_from_binary)(void *context, uint32_t count, void *const *device,
                                const size_t *size, const unsigned char *const *binary,
                                int32_t *status, int32_t *error);
    int32_t (*build)(void *program, uint32_t count, void *const *device, const char *options,
                     void (*notify)(void *, void *), void *user);
    int32_t (*get_build_info)(void *program, void *device, uint32_t what, size_t size, void *value,
                              size_t *n);
    int32_t (*get_program_info)(void *program, uint32_t what, size_t size, void *value, size_t *n);
    void *(*create_kernel)(void *program, const char *name, int32_t *error);
    int32_t (*get_kernel_info)(void *kernel, void *device, uint32_t what, size_t size, void *value,
                               size_t *n);
    int32_t (*set_argument)(void *kernel, uint32_t index, size_t size, const void *value);
    int32_t (*enqueue)(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                       const size_t *global, const size_t *local, uint32_t waits,
                       void *const *wait, void **event);
    int32_t (*enqueue_marker)(void *queue, uint32_t waits, void *const *wait, void **event);
    void *(*map)(void *queue, void *buffer, uint32_t blocking, uint64_t flags, size_t offset,
                 size_t size, uint32_t waits, void *const *wait, void **event, int32_t *error);
    int32_t (*unmap)(void *queue, void *buffer, void *mapped, uint32_t waits, void *const *wait,
                     void **event);
    int32_t (*write)(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                     const void *from, uint32_t waits, void *const *wait, void **event);
    int32_t (*read)(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                    void *to, uint32_t waits, void *const *wait, void **event);
    int32_t (*finish)(void *queue);
    int32_t (*flush)(void *queue);
    int32_t (*get_event_time)(void *event, uint32_t what, size_t size, void *value, size_t *n);
    int32_t (*release_event)(void *event);
    int32_t (*release_kernel)(void *kernel);
    int32_t (*release_program)(void *program);
    int32_t (*get_buffer_info)(void *buffer, uint32_t what, size_t size, void *value, size_t *n);
    int32_t (*retain_buffer)(void *buffer);
    int32_t (*release_buffer)(void *buffer);
    int32_t (*retain_queue)(void *queue);
    int32_t (*release_queue)(void *queue);
    int32_t (*retain_context)(void *context);
    int32_t (*release_context)(void *context);
    int32_t (*get_formats)(void *context, uint64_t flags, uint32_t type, uint32_t most,
                           uint32_t format[][2], uint32_t *n);
    void *(*create_part)(void *buffer, uint64_t flags, uint32_t type, const size_t region[2],
                         int32_t *error);
    void *(*create_image)(void *context, uint64_t flags, const uint32_t format[2],
                          const struct image_shape *shape, void *host, int32_t *error);
    int32_t (*fill_image)(void *queue, void *from, void *image, size_t at, const size_t *origin,
                          const size_t *region, uint32_t waits, void *const *wait, void **event);
    void *library;                  /* as long as the model is open */
    void *device, *context, *queue, *program, *memory, *weights;
    void *side[MODEL_QUEUES];       /* further queues; the last one is followed by NULL */
    unsigned char *seen[MODEL_SPANS];       /* where parts of the memory are mapped */
    int nseen, nweights;
    struct weights_part weights_of[OPENCL_PARTS];
    uint32_t units;                 /* compute units; of a CPU, its cores */
};

/* The functions' names, in the order of struct opencl. */
static const char *const call_name[] = {
    "clGetPlatformIDs", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext",
    "clGetContextInfo", "clCreateCommandQueue", "clGetCommandQueueInfo", "clCreateBuffer",
    "clCreateProgramWithSource", "clCreateProgramWithBinary", "clBuildProgram",
    "clGetProgramBuildInfo", "clGetProgramInfo", "clCreateKernel", "clGetKernelWorkGroupInfo",
    "clSetKernelArg", "clEnqueueNDRangeKernel", "clEnqueueMarkerWithWaitList",
    "clEnqueueMapBuffer", "clEnqueueUnmapMemObject", "clEnqueueWriteBuffer",
    "clEnqueueReadBuffer", "clFinish", "clFlush", "clGetEventProfilingInfo", "clReleaseEvent",
    "clReleaseKernel", "clReleaseProgram", "clGetMemObjectInfo", "clRetainMemObject",
    "clReleaseMemObject", "clRetainCommandQueue", "clReleaseCommandQueue", "clRetainContext",
    "clReleaseContext", "clGetSupportedImageFormats", "clCreateSubBuffer", "clCreateImage",
    "clEnqueueCopyBufferToImage"};

//@ opencl_driver_load
/* Calls a function of the driver; false: it has failed, and that is reported. TRY_MADE: for a call
 * that has returned a handle. */
#define TRY(call, ...)                                                                             \
    is_done(self, call_name[offsetof(struct opencl, call) / sizeof(void *)],                       \
            self->device.call(__VA_ARGS__))
#define TRY_MADE(call, handle, error)                                                              \
    is_made(self, call_name[offsetof(struct opencl, call) / sizeof(void *)], handle, error)

/* "clEnqueueNDRangeKernel: out of resources (-5)" */
static bool is_done(const model_self *self, const char *call, int32_t error)
{
    static const struct { int32_t error; const char *text; } known[] = {
        {-1, "no device is found"}, {-2, "the device is not available"},
        {-4, "the memory cannot be allocated"}, {-5, "out of resources"},
        {-6, "out of the host's memory"}, {-11, "the program does not build"},
        {-34, "invalid context"}, {-36, "invalid queue"}, {-38, "invalid memory object"},
        {-54, "invalid size of a work-group"}, {-61, "invalid size of a buffer"}};
    const char *text = "see cl.h";
    char line[160];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error)
            text = known[i].text;
    if (error == 0)
        return true;
    snprintf(line, sizeof line, "%s: %s (%ld)", call, text, (long)error);
    complain(self, line);
    return false;
}

static bool is_made(const model_self *self, const char *call, const void *handle, int32_t error)
{
    return handle ? true : is_done(self, call, error ? error : -6);
}

/* Loads the library and its functions; false: one is missing. */
static bool opencl_load(struct opencl *cl)
{
    cl->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cl->library)
        cl->library = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; cl->library && i < sizeof call_name / sizeof *call_name; i++) {
        void *function = dlsym(cl->library, call_name[i]);
        if (!function)
            return false;
        memcpy((unsigned char *)cl + i * sizeof function, &function, sizeof function);
    }
    return cl->library != NULL;
}

/* The wanted-th device, counted from 1 through all platforms. 0: the first GPU, or else the first
 * device of another kind. NULL: there is none. */
static void *opencl_choose(const struct opencl *cl, int wanted)
{
    enum { MOST = 64 };
    void *platform[MOST], *device[MOST], *first = NULL;
    uint32_t n = 0, count = 0;
    int number = 0;
    if (cl->get_platforms(MOST, platform, &n) != 0)
        return NULL;
    for (uint32_t i = 0; i < n && i < MOST; i++) {
        if (cl->get_devices(platform[i], 0xffffffffu /* all */, MOST, device, &count) != 0)
            continue;
        for (uint32_t k = 0; k < count && k < MOST; k++) {
            uint64_t type = 0;
            if (++number == wanted)
                return device[k];
            if (wanted == 0 &&
                cl->get_device_info(device[k], 0x1000 /* TYPE */, sizeof type, &type, NULL) == 0 &&
                (type & 1u << 2 /* GPU */))
                return device[k];
            if (!first)
                first = device[k];
        }
    }
    return wanted == 0 ? first : NULL;
}

//@ opencl_driver_binary
static uint64_t hash_bytes(uint64_t hash, const void *p, size_t nbytes)
{
    const unsigned char *s = (const unsigned char *)p;
    for (size_t i = 0; i < nbytes; i++)
        hash = (hash ^ s[i]) * UINT64_C(1099511628211);          /* FNV-1a */
    return hash;
}

/* Hashes sources, flags, device and driver into a key of 32 digits. false: the driver does
 * not say what it is. */
static bool opencl_key(const struct opencl *cl, const char *const *text, uint32_t count,
                       const char *flags, char key[33])
{
    static const uint32_t fact[] = {0x102b /* NAME */, 0x102c /* VENDOR */, 0x102d /* DRIVER */,
                                    0x102f /* VERSION */};
    uint64_t hash[2] = {hash_bytes(UINT64_C(14695981039346656037), flags, strlen(flags)), 97};
    char value[512];
    for (uint32_t i = 0; i < count + sizeof fact / sizeof *fact; i++) {
        const char *s = i < count ? text[i] : value;
        memset(value, 0, sizeof value);
        if (i >= count &&
            cl->get_device_info(cl->device, fact[i - count], sizeof value - 1, value, NULL) != 0)
            return false;
        for (int h = 0; h < 2; h++)
            hash[h] = hash_bytes(hash[h], s, strlen(s) + 1);
    }
    for (int i = 0; i < 32; i++)
        key[i] = "0123456789abcdef"[hash[i / 16] >> 4 * (i % 16) & 15];
    key[32] = 0;
    return true;
}

/* A cache entry is this header, then nbytes of the driver's binary. The hash covers key and binary,
 * since a damaged binary can crash the driver, and the caller's cache may mix up keys. */
struct kept_program { uint64_t nbytes, hash; };

static uint64_t hash_kept(const char *key, const void *binary, size_t nbytes)
{
    return hash_bytes(hash_bytes(0, key, strlen(key)), binary, nbytes);
}

/* The program from the caller's cache. NULL: it is not there, it is damaged, or this driver
 * does not take it. */
static void *opencl_cached(const model_self *self, const char *key)
{
    const struct opencl *cl = &self->device;
    const model_options *o = &self->options;
    struct kept_program head = {0, 0};
    size_t n = o->load_program ? o->load_program(o->user, key, NULL, 0) : 0;
    unsigned char *kept = n > sizeof head ? (unsigned char *)malloc(n) : NULL;
    const size_t size = n - sizeof head;
    const unsigned char *const binary = kept ? kept + sizeof head : NULL;
    void *program = NULL;
    int32_t status = 0, error = 0;
    if (kept && o->load_program(o->user, key, kept, n) == n)
        memcpy(&head, kept, sizeof head);
    if (kept && head.nbytes == size && head.hash == hash_kept(key, binary, size))
        program =
            cl->create_from_binary(cl->context, 1, &cl->device, &size, &binary, &status, &error);
    if (program && (status != 0 || cl->build(program, 1, &cl->device, "", NULL, NULL) != 0)) {
        cl->release_program(program);
        program = NULL;
    }
    free(kept);
    return program;
}

/* Hands the program that was built to the caller's cache. */
static void opencl_keep(const model_self *self, const char *key)
{
    const struct opencl *cl = &self->device;
    const model_options *o = &self->options;
    uint32_t devices = 0;
    size_t n = 0;
    /* a program has one binary for each device of its context, which may be the caller's */
    if (!o->save_program ||
        cl->get_program_info(cl->program, 0x1162 /* NUM_DEVICES */, sizeof devices, &devices,
                             NULL) != 0 ||
        devices != 1 ||
        cl->get_program_info(cl->program, 0x1165 /* BINARY_SIZES */, sizeof n, &n, NULL) != 0 ||
        n == 0 || n > SIZE_MAX / 2)
        return;
    unsigned char *kept = (unsigned char *)malloc(sizeof(struct kept_program) + n);
    unsigned char *binary = kept ? kept + sizeof(struct kept_program) : NULL;
    if (kept && cl->get_program_info(cl->program, 0x1166 /* BINARIES */, sizeof binary, &binary,
                                     NULL) == 0) {
        const struct kept_program head = {n, hash_kept(key, binary, n)};
        memcpy(kept, &head, sizeof head);
        o->save_program(o->user, key, kept, sizeof head + n);
    }
    free(kept);
}

//@ opencl_driver_hold
static bool hold_buffer(const model_self *self, void *buffer) { return TRY(retain_buffer, buffer); }
static void let_buffer(const model_self *self, void *buffer)
{
    self->device.release_buffer(buffer);
}

//@ opencl_driver_memory load hold
/* Waits for all queues. The further ones matter after a run that failed, which may have left
 * kernels in them. */
static bool wait_all(const model_self *self)
{
    const struct opencl *cl = &self->device;
    bool done = !cl->queue || TRY(finish, cl->queue);
    for (void *const *q = cl->side; *q; q++)
        done &= TRY(finish, *q);
    return done;
}

/* Releases whatever has been acquired so far. */
static void end_device(model_self *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < MODEL_KERNELS; i++)
        if (self->kernel[i])
            cl->release_kernel(self->kernel[i]);
    for (int i = 0; i < MODEL_PLACES; i++)
        if (self->place[i].is_bound)
            cl->release_buffer(self->place[i].buffer);
    if (cl->program)
        cl->release_program(cl->program);
    for (int i = 0; i < cl->nweights; i++)
        cl->release_buffer(cl->weights_of[i].buffer);
    if (cl->memory)
        cl->release_buffer(cl->memory);
    for (void **q = cl->side; *q; q++)
        cl->release_queue(*q);
    if (cl->queue)
        cl->release_queue(cl->queue);
    if (cl->context)
        cl->release_context(cl->context);
    if (cl->library)
        dlclose(cl->library);
    memset(cl, 0, sizeof *cl);
}

/* Takes the caller's queue and context, or makes new ones, and finds their device. */
static int open_queue(model_self *self)
{
    enum { PROFILING = 2, OUT_OF_ORDER = 1 };
    struct opencl *cl = &self->device;
    const model_options *o = &self->options;
    void *device[16] = {NULL}, *of_queue = NULL;
    uint64_t properties = 0;
    int32_t error = 0;
    size_t n = 0;
    if (o->device < 0)
        return MODEL_BAD_OPTIONS;
    if (o->queue) {
        void *context = NULL;
        if (!TRY(get_queue_info, o->queue, 0x1090 /* CONTEXT */, sizeof context, &context, NULL) ||
            !TRY(get_queue_info, o->queue, 0x1091 /* DEVICE */, sizeof of_queue, &of_queue, NULL) ||
            !TRY(get_queue_info, o->queue, 0x1093 /* PROPERTIES */, sizeof properties, &properties,
                 NULL))
            return MODEL_DEVICE_FAILED;
        if (properties & OUT_OF_ORDER)
            complain(self,
                     "options.queue is out of order, and a run needs its order: pass another one");
        if (o->context && o->context != context)
            complain(self, "options.queue is of another context than options.context");
        if ((properties & OUT_OF_ORDER) || (o->context && o->context != context))
            return MODEL_BAD_OPTIONS;
        if (o->device > 0 && opencl_choose(cl, o->device) != of_queue) {
            complain(self, "options.queue is of another device than options.device names");
            return MODEL_BAD_OPTIONS;
        }
        cl->device = of_queue;
        cl->context = TRY(retain_context, context) ? context : NULL;
        cl->queue = TRY(retain_queue, o->queue) ? o->queue : NULL;
        return cl->context && cl->queue ? MODEL_OK : MODEL_DEVICE_FAILED;
    }
    if (o->context) {
        if (!TRY(get_context_info, o->context, 0x1081 /* DEVICES */, sizeof device, device, &n) ||
            n == 0)
            return MODEL_DEVICE_FAILED;
        void *chosen = o->device > 0 ? opencl_choose(cl, o->device) : device[0];
        for (size_t i = 0; i < n / sizeof *device; i++)
            if (device[i] == chosen)
                cl->device = chosen;
        if (!cl->device)
            complain(self, "options.context is not of the device that options.device names");
        if (!cl->device)
            return MODEL_BAD_OPTIONS;
        cl->context = TRY(retain_context, o->context) ? o->context : NULL;
    } else {
        cl->device = opencl_choose(cl, o->device);
        if (!cl->device) {
            complain(self, o->device ? "options.device is more than there are devices"
                                     : "OpenCL has no device here: no driver of one is installed");
            return MODEL_NO_DEVICE;
        }
        cl->context = cl->create_context(NULL, 1, &cl->device, NULL, NULL, &error);
        if (!TRY_MADE(create_context, cl->context, error))
            return MODEL_DEVICE_FAILED;
    }
    if (cl->context)
        cl->queue =
            cl->create_queue(cl->context, cl->device, o->on_kernel_time ? PROFILING : 0, &error);
    return cl->context && TRY_MADE(create_queue, cl->queue, error) ? MODEL_OK : MODEL_DEVICE_FAILED;
}

/* Has the device what the model needs, other than for its kernels? *most: its largest
 * buffer, in bytes. */
static int check_device(const model_self *self, bool doubles, uint64_t *most)
{
    const struct opencl *cl = &self->device;
    uint64_t config = 0;
    size_t largest = MODEL_DEVICE_BYTES;
    char text[200];
    for (size_t i = 0; i + 1 < sizeof weight_begin / sizeof *weight_begin; i++)
        if (weight_begin[i + 1] - weight_begin[i] > largest)
            largest = weight_begin[i + 1] - weight_begin[i];
    if (doubles && (!TRY(get_device_info, cl->device, 0x1032 /* DOUBLE_CONFIG */, sizeof config,
                         &config, NULL) ||
                    config == 0)) {
        complain(self, "the model computes 64-bit floats, which the device does not have");
        return MODEL_DEVICE_LACKS;
    }
    if (!TRY(get_device_info, cl->device, 0x1010 /* MAX_MEM_ALLOC_SIZE */, sizeof *most, most,
             NULL))
        return MODEL_DEVICE_FAILED;
    if (largest <= *most)
        return MODEL_OK;
    snprintf(text, sizeof text,
             "the model needs %zu bytes in one buffer, and the device allows %llu: "
             "give smaller bounds by --dim",
             largest, (unsigned long long)*most);
    complain(self, text);
    return MODEL_DEVICE_LACKS;
}

/* Allocates a buffer that the model cannot do without. */
static int give_buffer(model_self *self, uint64_t flags, size_t nbytes, void **made)
{
    const struct opencl *cl = &self->device;
    int32_t error = 0;
    char lacks[100];
    *made = cl->create_buffer(cl->context, flags, nbytes, NULL, &error);
    if (TRY_MADE(create_buffer, *made, error))
        return MODEL_OK;
    snprintf(lacks, sizeof lacks, "the driver gives no buffer of %zu bytes", nbytes);
    complain(self, lacks);
    return MODEL_DEVICE_LACKS;
}

/* Allocates the weights: as few buffers of up to `most` bytes as hold whole tensors. */
static int open_weights(model_self *self, uint64_t most)
{
    enum { READ_ONLY = 1 << 2 };
    struct opencl *cl = &self->device;
    const size_t n = sizeof weight_begin / sizeof *weight_begin - 1;
    int status = MODEL_OK;
    for (size_t i = 0, next; status == MODEL_OK && (i < n || cl->nweights == 0); i = next) {
        next = i;
        while (next < n && weight_begin[next + 1] - weight_begin[i] <= most)
            next++;
        if (cl->nweights == OPENCL_PARTS) {
            complain(self, "the device's largest buffer is too small for the model's weights");
            return MODEL_DEVICE_LACKS;
        }
        struct weights_part *part = &cl->weights_of[cl->nweights];
        const size_t nbytes = weight_begin[next] - weight_begin[i];
        part->begin = weight_begin[i];
        status = give_buffer(self, READ_ONLY, nbytes > 0 ? nbytes : 1, &part->buffer);
        cl->nweights += status == MODEL_OK;
    }
    cl->weights = cl->weights_of[0].buffer;
    return status;
}

/* Do host and device share memory? */
static int share_memory(const model_self *self, bool *is_shared)
{
    uint32_t unified = 0;
    if (!TRY(get_device_info, self->device.device, 0x1035 /* HOST_UNIFIED_MEMORY */, sizeof unified,
             &unified, NULL))
        return MODEL_DEVICE_FAILED;
    *is_shared = unified != 0;
    return MODEL_OK;
}

/* Opens the driver, the queue, the memory. doubles: the kernels use 64-bit floats. */
static int open_memory(model_self *self, bool doubles)
{
    enum { READ_WRITE = 1 << 0, HOST_MEMORY = 1 << 4 };
    struct opencl *cl = &self->device;
    uint64_t most = 0;
    int32_t error = 0;
    bool is_shared = false;
    if (!opencl_load(cl)) {
        complain(self, cl->library ? "libOpenCL.so.1 lacks functions of OpenCL 1.2"
                                   : "no libOpenCL.so.1 is found, or it does not load: "
                                     "OpenCL is not installed");
        return MODEL_NO_DEVICE;
    }
    int status = open_queue(self);
    for (int i = 0; i + 1 < MODEL_QUEUES && status == MODEL_OK; i++) {
        cl->side[i] = cl->create_queue(cl->context, cl->device, 0, &error);
        status = TRY_MADE(create_queue, cl->side[i], error) ? MODEL_OK : MODEL_DEVICE_FAILED;
    }
    if (status == MODEL_OK)
        status = check_device(self, doubles, &most);
    if (status == MODEL_OK && MODEL_MAPPED > 0)
        status = share_memory(self, &is_shared);
    if (status == MODEL_OK)
        status = give_buffer(self, READ_WRITE | (is_shared ? HOST_MEMORY : 0), MODEL_DEVICE_BYTES,
                             &cl->memory);
    if (status == MODEL_OK)
        status = open_weights(self, most);
    if (status != MODEL_OK)
        return status;
    if (!TRY(get_device_info, cl->device, 0x1002 /* MAX_COMPUTE_UNITS */, sizeof cl->units,
             &cl->units, NULL) ||
        cl->units == 0)
        return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

/* The buffer that holds byte *at of `buffer`. The weights may be several buffers; then *at becomes
 * the byte's offset in its own one. */
static void *buffer_of(const model_self *self, void *buffer, uint64_t *at)
{
    const struct opencl *cl = &self->device;
    int i = cl->nweights - 1;
    if (!cl->weights || buffer != cl->weights)
        return buffer;
    while (i > 0 && cl->weights_of[i].begin > *at)
        i--;
    *at -= cl->weights_of[i].begin;
    return cl->weights_of[i].buffer;
}

/* Unmaps everything, and waits for all commands. */
static void end_runs(model_self *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < cl->nseen; i++)
        cl->unmap(cl->queue, cl->memory, cl->seen[i], 0, NULL, NULL);
    wait_all(self);
}

//@ opencl_driver_build memory binary
/* Reports the build log of the driver's compiler. */
static int complain_of_build(const model_self *self)
{
    const struct opencl *cl = &self->device;
    size_t n = 0;
    cl->get_build_info(cl->program, cl->device, 0x1183 /* LOG */, 0, NULL, &n);
    char *log = n > 0 && n < SIZE_MAX ? (char *)malloc(n + 1) : NULL;
    if (log) {
        memset(log, 0, n + 1);
        cl->get_build_info(cl->program, cl->device, 0x1183 /* LOG */, n, log, NULL);
    }
    complain(self,
             log && *log ? log : "the driver does not compile the kernels, and does not say why");
    free(log);
    return MODEL_DEVICE_FAILED;
}

static int open_program(model_self *self, const char *const *text, uint32_t count,
                        const char *flags)
{
    struct opencl *cl = &self->device;
    char key[33];
    int32_t error = 0;
    const bool is_known = opencl_key(cl, text, count, flags, key);
    cl->program = is_known ? opencl_cached(self, key) : NULL;
    if (cl->program)
        return MODEL_OK;
    cl->program = cl->create_program(cl->context, count, text, NULL, &error);
    if (!TRY_MADE(create_program, cl->program, error))
        return MODEL_DEVICE_FAILED;
    if (cl->build(cl->program, 1, &cl->device, flags, NULL, NULL) != 0)
        return complain_of_build(self);
    if (is_known)
        opencl_keep(self, key);
    return MODEL_OK;
}

//@ opencl_driver_open memory build
/* Opens the device's memory, and builds the kernels for it. */
static int device_open(model_self *self, const char *const *text, uint32_t count, bool doubles)
{
    int status = open_memory(self, doubles);
    return status == MODEL_OK ? open_program(self, text, count, "-cl-std=CL1.2") : status;
}

static void device_close(model_self *self)
{
    end_runs(self);
    end_device(self);
}

//@ opencl_driver_argument memory
/* Sets the i-th argument of a kernel object; `value` is a tensor's offset or a number. A tensor is
 * two arguments of OpenCL, buffer and offset. */
static bool set_argument(model_self *self, int index, int i, uint64_t value)
{
    const struct argument *a = &argument_of[launch_of[index].first];
    const struct place *p = a[i].place < 0 ? NULL : &self->place[a[i].place];
    uint64_t number = (p ? p->at : 0) + value;
    void *const buffer = p ? buffer_of(self, p->buffer, &number) : NULL;
    uint32_t at = 0;
    for (int k = 0; k < i; k++)
        at += a[k].place < 0 ? 1 : 2;
    return (!p || TRY(set_argument, self->kernel[index], at++, sizeof buffer, &buffer)) &&
           TRY(set_argument, self->kernel[index], at, sizeof number, &number);
}

//@ opencl_driver_record argument
static bool set_argument(model_self *self, int index, int i, uint64_t value);

/* Has the device the work-items and the local memory that a kernel object needs? */
static int check_kernel(const model_self *self, int index)
{
    const struct opencl *cl = &self->device;
    const struct launch *l = &launch_of[index];
    const size_t *b = l->block;
    void *const kernel = self->kernel[index];
    size_t items = 0, along[16] = {0};
    uint64_t local = 0, most = 0;
    char text[300], what[160] = "";
    if (!TRY(get_kernel_info, kernel, cl->device, 0x11b0 /* WORK_GROUP_SIZE */, sizeof items,
             &items, NULL) ||
        !TRY(get_kernel_info, kernel, cl->device, 0x11b2 /* LOCAL_MEM_SIZE */, sizeof local, &local,
             NULL) ||
        !TRY(get_device_info, cl->device, 0x1005 /* MAX_WORK_ITEM_SIZES */, sizeof along, along,
             NULL) ||
        !TRY(get_device_info, cl->device, 0x1023 /* LOCAL_MEM_SIZE */, sizeof most, &most, NULL))
        return MODEL_DEVICE_FAILED;
    if (b[0] * b[1] * b[2] > items)
        snprintf(what, sizeof what, "work-groups of %zu, and the device allows it %zu",
                 b[0] * b[1] * b[2], items);
    for (int i = 0; i < 3 && !*what; i++)
        if (b[i] > along[i])
            snprintf(what, sizeof what, "%zu work-items along axis %d, and the device allows %zu",
                     b[i], i, along[i]);
    if (!*what && local > most)
        snprintf(what, sizeof what, "%llu bytes of local memory, and the device has %llu",
                 (unsigned long long)local, (unsigned long long)most);
    if (!*what)
        return MODEL_OK;
    snprintf(text, sizeof text, "kernel %s needs %s: compile with --cpu=DEVICE or --no-locals",
             l->function, what);
    complain(self, text);
    return MODEL_DEVICE_LACKS;
}

/* Makes a kernel object for each launch of a run and sets the arguments that are the same in each
 * run. */
static int record(model_self *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < MODEL_KERNELS; i++) {
        const struct launch *l = &launch_of[i];
        int32_t error = 0;
        bool done = true;
        self->kernel[i] = cl->create_kernel(cl->program, l->function, &error);
        if (!TRY_MADE(create_kernel, self->kernel[i], error))
            return MODEL_DEVICE_FAILED;
        for (int k = 0; k < l->count && done; k++)
            done = set_argument(self, i, k, argument_of[l->first + k].at);
        int status = done ? check_kernel(self, i) : MODEL_DEVICE_FAILED;
        if (status != MODEL_OK)
            return status;
    }
    return MODEL_OK;
}

//@ opencl_driver_map
/* Maps the i-th span for the host. waits: until it and those before it are mapped. */
static bool map_span(model_self *self, int i, const struct span *s, bool waits)
{
    enum { READ = 1, READ_WRITE = 3, WRITE_ALL = 4 };
    struct opencl *cl = &self->device;
    int32_t error = 0;
    void *at = cl->map(cl->queue, cl->memory, waits,
                       s->how == 1 ? READ : s->how == 2 ? WRITE_ALL : READ_WRITE, s->at,
                       s->nbytes ? s->nbytes : 1, 0, NULL, NULL, &error);
    if (!TRY_MADE(map, at, error))
        return false;
    cl->seen[i] = (unsigned char *)at;
    cl->nseen = i + 1;
    return true;
}

//@ opencl_driver_to_device
/* Unmaps what the host has accessed. */
static int to_device(model_self *self)
{
    struct opencl *cl = &self->device;
    for (; cl->nseen > 0; cl->nseen--)
        if (!TRY(unmap, cl->queue, cl->memory, cl->seen[cl->nseen - 1], 0, NULL, NULL))
            return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ opencl_driver_kernel
/* Reports the kernel's time, by the device's clock, to the caller's hook. */
static bool tell_time(const model_self *self, int index, void *event)
{
    const struct opencl *cl = &self->device;
    uint64_t begin = 0, end = 0;
    bool done = TRY(finish, cl->queue);
    if (done && event && self->options.on_kernel_time) {
        done = TRY(get_event_time, event, 0x1282 /* START */, sizeof begin, &begin, NULL) &&
               TRY(get_event_time, event, 0x1283 /* END */, sizeof end, &end, NULL);
        if (done)
            self->options.on_kernel_time(self->options.user, index, kernel_info[index].name,
                                         (double)(end - begin));
    }
    if (event)
        cl->release_event(event);
    return done;
}

/* Enqueues a kernel that waits for `count` events. An empty grid leaves only its event. */
static bool enqueue_kernel(const model_self *self, void *queue, int index, uint32_t count,
                           void *const *wait, void **event)
{
    const struct opencl *cl = &self->device;
    const struct launch *l = &launch_of[index];
    size_t items[3], all = 1;
    for (int i = 0; i < 3; i++) {
        items[i] = self->groups[index][i];
        if (MODEL_PER_CORE && items[i] > cl->units)
            items[i] = cl->units;
        items[i] *= l->block[i];
        all = items[i] == 0 ? 0 : all;
    }
    if (all == 0)
        return !(count || event) || TRY(enqueue_marker, queue, count, count ? wait : NULL, event);
    return TRY(enqueue, queue, self->kernel[index], 3, NULL, items,
               MODEL_PER_CORE || l->block[0] * l->block[1] * l->block[2] > 1 ? l->block : NULL,
               count, count ? wait : NULL, event);
}

/* Launches one kernel, and waits for it if a hook is to see its time. */
static bool start_one(model_self *self, int index)
{
    const size_t *groups = self->groups[index];
    const bool asked = self->options.on_kernel || self->options.on_kernel_time;
    void *event = NULL;
    step(self, index);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return true;
    bool done = enqueue_kernel(self, self->device.queue, index, 0, NULL,
                               self->options.on_kernel_time ? &event : NULL);
    if (done && asked)              /* so that each hook sees one kernel's time */
        done = tell_time(self, index, event);
    return done;
}

//@ opencl_driver_start kernel
static bool start(model_self *self, int from, int to)
{
    for (int i = from; i < to; i++)
        if (!start_one(self, i))
            return false;
    return true;
}

//@ opencl_driver_start_queued start
/* Enqueues a kernel in its own queue. It waits for the kernels of other queues in turn_of[]; the
 * first of a queue, for `begin`. */
static bool start_turn(model_self *self, int index, void *begin)
{
    const struct opencl *cl = &self->device;
    void *wait[MODEL_QUEUES + 1],
         *const queue = turn_of[index].queue ? cl->side[turn_of[index].queue - 1] : cl->queue;
    uint32_t count = 0;
    for (int i = 0; i < turn_of[index].count; i++)
        wait[count++] = self->done[turn_of[index].wait[i]];
    if (begin)
        wait[count++] = begin;
    return enqueue_kernel(self, queue, index, count, wait,
                          turn_of[index].signals ? &self->done[index] : NULL) &&
           (!turn_of[index].signals || TRY(flush, queue));
}

/* Launches kernels from .. to - 1 on several queues. All of them start after what the caller's
 * queue was given before, and end before what it is given next. Where hooks are set, kernels run
 * one after the other. */
static bool start_queued(model_self *self, int from, int to)
{
    const struct opencl *cl = &self->device;
    void *begin = NULL, *wait[MODEL_QUEUES];
    int last[MODEL_QUEUES];
    uint32_t count = 0;
    if (self->options.on_kernel || self->options.on_kernel_time)
        return start(self, from, to);
    for (int q = 0; q < MODEL_QUEUES; q++)
        last[q] = -1;
    for (int i = from; i < to; i++)
        self->done[i] = NULL;
    bool done = TRY(enqueue_marker, cl->queue, 0, NULL, &begin) && TRY(flush, cl->queue);
    for (int i = from; i < to && done; i++) {
        int *of_queue = &last[turn_of[i].queue];
        done = start_turn(self, i, turn_of[i].queue && *of_queue < 0 ? begin : NULL);
        *of_queue = i;
    }
    for (int q = 1; q < MODEL_QUEUES; q++)
        if (last[q] >= 0)
            wait[count++] = self->done[last[q]];
    if (done && count)
        done = TRY(enqueue_marker, cl->queue, count, wait, NULL);
    for (int i = from; i < to; i++)
        if (self->done[i])
            cl->release_event(self->done[i]);
    if (begin)
        cl->release_event(begin);
    return done;
}

//@ opencl_driver_write memory
static bool write_buffer(const model_self *self, void *buffer, size_t at, size_t nbytes,
                         const void *from, bool waits)
{
    uint64_t begin = at;
    void *const to = buffer_of(self, buffer, &begin);
    return TRY(write, self->device.queue, to, waits, (size_t)begin, nbytes, from, 0, NULL, NULL);
}

//@ opencl_driver_read
static bool read_buffer(const model_self *self, void *buffer, size_t at, size_t nbytes, void *to)
{
    const struct opencl *cl = &self->device;
    return TRY(read, cl->queue, buffer, 0, at, nbytes, to, 0, NULL, NULL);
}

//@ opencl_driver_queue
/* OpenCL's queues do not capture. */
static int look_at_queue(const model_self *self) { (void)self; return MODEL_OK; }

//@ opencl_driver_end to_device
static int to_device(model_self *self);

/* Ends a run's list, with an event if the caller asks for one. */
static int mark(model_self *self, void **event)
{
    const struct opencl *cl = &self->device;
    if (to_device(self) != MODEL_OK || (event && !TRY(enqueue_marker, cl->queue, 0, NULL, event)))
        return MODEL_DEVICE_FAILED;
    if (TRY(flush, cl->queue))
        return MODEL_OK;
    if (event)
        cl->release_event(*event);
    if (event)
        *event = NULL;
    return MODEL_DEVICE_FAILED;
}

/* Can the caller's buffer hold this tensor? *room: the bytes from there to the
 * end of the buffer. */
static int check_buffer(const model_self *self, int place, void *buffer, size_t at, size_t *room)
{
    const struct opencl *cl = &self->device;
    void *context = NULL;
    size_t nbytes = 0;
    if (!TRY(get_buffer_info, buffer, 0x1106 /* CONTEXT */, sizeof context, &context, NULL) ||
        !TRY(get_buffer_info, buffer, 0x1102 /* SIZE */, sizeof nbytes, &nbytes, NULL))
        return MODEL_DEVICE_FAILED;
    if (context != cl->context)
        complain(self, "the buffer is of another context than the model: "
                       "pass that one in options.context");
    else if (at % 128 != 0)
        complain(self, "a tensor begins at a multiple of 128 bytes of a buffer");
    else if (at >= nbytes || place_info[place].nbytes > nbytes - at)
        complain(self, "the buffer ends before the tensor does");
    else {
        *room = nbytes - at;
        return MODEL_OK;
    }
    return MODEL_BAD_OPTIONS;
}

//@ opencl_language
#pragma OPENCL FP_CONTRACT OFF
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define INT64_C(x) x##L
#define UINT64_C(x) x##UL
#define fabsf(x) fabs((float)(x))
#define copysignf(x, y) copysign((float)(x), (float)(y))
#define fmaf(x, y, z) fma((float)(x), (float)(y), (float)(z))
#define static
#define inline
typedef half stored_half;
#define half half_
#define KEEP_LOOP
#define KEPT_TWICE 2

//@ opencl_shuffle_f32
/* The value of work-item t ^ m: a sub-group shuffle if the sub-group is the whole work-group,
 * otherwise an exchange through local memory. */
#if defined cl_khr_subgroups && defined cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif
float shuffle_f32(local float *exchanged, float x, uint m)
{
#if defined cl_khr_subgroups && defined cl_khr_subgroup_shuffle
    if (get_num_sub_groups() == 1)
        return sub_group_shuffle_xor(x, m);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    exchanged[get_local_id(0)] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return exchanged[get_local_id(0) ^ m];
}

//@ opencl_image_f32x4 f32x4 pixels
/* Loads the pixel of elements `at` to `at` + 3, f32; `at` is a multiple of 4. An image of two axes
 * has 2^shift pixels a row; PIXELS_IN_LINE: it has one axis. */
#ifdef PIXELS_IN_LINE
#define image_f32x4(i, at, shift) read_imagef(i, (int)(at) >> 2)
#else
#define image_f32x4(i, at, shift)                                                                  \
    read_imagef(i, outside_is_zero,                                                                \
                (int2)((int)(at) >> 2 & ((1 << shift) - 1), (int)(at) >> (shift + 2)))
#endif

//@ opencl_image_where_f32x4 image_f32x4
/* image_f32x4, or zeros if not `valid`: row -1 is out of bounds, which the sampler reads as 0. */
#ifdef PIXELS_IN_LINE
#define image_where_f32x4(i, valid, at, shift)                                                     \
    ((valid) ? image_f32x4(i, at, shift) : (float4)(0.0f))
#else
#define image_where_f32x4(i, valid, at, shift) image_f32x4(i, (valid) ? (int)(at) : -4, shift)
#endif

//@ opencl_pixels
/* PIXELS_IN_LINE: images have one dimension, as NAME_init() decides. */
#ifdef PIXELS_IN_LINE
#define image2d_pixels image1d_buffer_t
#else
#define image2d_pixels image2d_t
constant sampler_t outside_is_zero =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
#endif

//@ opencl_bits_f32
uint32_t bits_f32(float v) { return as_uint(v); }

//@ opencl_float_bits
float float_bits(uint32_t u) { return as_float(u); }

//@ opencl_bits_f64
uint64_t bits_f64(double v) { return as_ulong(v); }

//@ opencl_double_bits
double double_bits(uint64_t u) { return as_double(u); }

//@ opencl_f16_to_f32
/* Halves are passed as bits. Loads and stores convert them, which needs no extension. */
float f16_to_f32(uint16_t h) { return vload_half(0, (const stored_half *)&h); }

//@ opencl_f32_to_f16
uint16_t f32_to_f16(float v)
{
    uint16_t h;
    vstore_half_rte(v, 0, (stored_half *)&h);
    return h;
}

//@ opencl_sqrt_f32
float sqrt_f32(float x) { return sqrt(x); }

//@ opencl_sqrt_f64
double sqrt_f64(double x) { return sqrt(x); }
