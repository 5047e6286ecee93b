/* SPDX-License-Identifier: 0BSD */
/* opencl.c - OpenCL from a program that is linked with libc alone: the driver is loaded when the
 * model is opened; and OpenCL C's versions of pieces of number.c and math.c.
 *
 * The model's intermediates, inputs and outputs are in one buffer of the device, its weights in
 * another. When the host accesses tensors (a condition, a host step, the inputs and results of a
 * run), the first one is mapped, which costs nothing if host and device share their memory. Only
 * functions of OpenCL 1.2 are called. The API's constants are those of the specification's cl.h.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

//@ opencl
#include <dlfcn.h>

/* OpenCL's functions that are called, and what they return and take. */
struct opencl {
    int32_t (*get_platforms)(uint32_t most, void **platform, uint32_t *count);
    int32_t (*get_devices)(void *platform, uint64_t type, uint32_t most, void **device, uint32_t *n);
    int32_t (*get_device_info)(void *device, uint32_t what, size_t size, void *value, size_t *n);
    void *(*create_context)(const intptr_t *properties, uint32_t count, void *const *device,
                            void (*notify)(const char *, const void *, size_t, void *), void *user,
                            int32_t *error);
    void *(*create_queue)(void *context, void *device, uint64_t properties, int32_t *error);
    void *(*create_buffer)(void *context, uint64_t flags, size_t size, void *host, int32_t *error);
    void *(*create_program)(void *context, uint32_t count, const char *const *text,
                            const size_t *length, int32_t *error);
    int32_t (*build)(void *program, uint32_t count, void *const *device, const char *options,
                     void (*notify)(void *, void *), void *user);
    void *(*create_kernel)(void *program, const char *name, int32_t *error);
    int32_t (*set_argument)(void *kernel, uint32_t index, size_t size, const void *value);
    int32_t (*enqueue)(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                       const size_t *global, const size_t *local, uint32_t waits,
                       void *const *wait, void **event);
    void *(*map)(void *queue, void *buffer, uint32_t blocking, uint64_t flags, size_t offset,
                 size_t size, uint32_t waits, void *const *wait, void **event, int32_t *error);
    int32_t (*unmap)(void *queue, void *buffer, void *mapped, uint32_t waits, void *const *wait,
                     void **event);
    int32_t (*write)(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                     const void *from, uint32_t waits, void *const *wait, void **event);
    int32_t (*finish)(void *queue);
    int32_t (*release_kernel)(void *kernel);
    int32_t (*release_program)(void *program);
    int32_t (*release_buffer)(void *buffer);
    int32_t (*release_queue)(void *queue);
    int32_t (*release_context)(void *context);
    void *library;                  /* open as long as the model is */
    void *device, *context, *queue, *program, *memory, *weights;
    unsigned char *mapped;          /* where the host sees the memory; NULL: it is the device's */
};

//@ opencl_driver
/* false: a function is missing. The order is that of the struct. */
static bool opencl_load(struct opencl *cl)
{
    static const char *const name[] = {
        "clGetPlatformIDs", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext",
        "clCreateCommandQueue", "clCreateBuffer", "clCreateProgramWithSource", "clBuildProgram",
        "clCreateKernel", "clSetKernelArg", "clEnqueueNDRangeKernel", "clEnqueueMapBuffer",
        "clEnqueueUnmapMemObject", "clEnqueueWriteBuffer", "clFinish", "clReleaseKernel",
        "clReleaseProgram", "clReleaseMemObject", "clReleaseCommandQueue", "clReleaseContext"};
    cl->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cl->library)
        cl->library = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; cl->library && i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(cl->library, name[i]);
        if (!function)
            return false;
        memcpy((unsigned char *)cl + i * sizeof function, &function, sizeof function);
    }
    return cl->library != NULL;
}

/* The first GPU, or else the first device of another kind; NULL: there is none. */
static void *opencl_choose(const struct opencl *cl)
{
    enum { MOST = 16 };
    static const uint64_t wanted[] = {1u << 2 /* GPU */, 0xffffffffu /* all */};
    void *platform[MOST], *device = NULL;
    uint32_t n = 0, count = 0;
    if (cl->get_platforms(MOST, platform, &n) != 0)
        return NULL;
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < n && i < MOST; i++)
            if (cl->get_devices(platform[i], wanted[k], 1, &device, &count) == 0 && count > 0)
                return device;
    return NULL;
}

//@ opencl_open opencl_driver
/* Ends what has been begun. */
static void device_close(model_self *self)
{
    struct opencl *cl = &self->device;
    if (cl->mapped)
        cl->unmap(cl->queue, cl->memory, cl->mapped, 0, NULL, NULL);
    if (cl->queue)
        cl->finish(cl->queue);
    for (int i = 0; i < (int)(sizeof self->kernel / sizeof *self->kernel); i++)
        if (self->kernel[i])
            cl->release_kernel(self->kernel[i]);
    if (cl->program)
        cl->release_program(cl->program);
    if (cl->weights)
        cl->release_buffer(cl->weights);
    if (cl->memory)
        cl->release_buffer(cl->memory);
    if (cl->queue)
        cl->release_queue(cl->queue);
    if (cl->context)
        cl->release_context(cl->context);
    if (cl->library)
        dlclose(cl->library);
    memset(cl, 0, sizeof *cl);
}

/* The kernels, built for the device; its memory. doubles: the kernels have 64-bit floats. */
static int device_open(model_self *self, const char *const *text, uint32_t count,
                       const char *const *name, bool doubles, size_t memory, size_t weights)
{
    enum { DOUBLE_CONFIG = 0x1032, READ_WRITE = 1 << 0, READ_ONLY = 1 << 2, HOST_MEMORY = 1 << 4 };
    struct opencl *cl = &self->device;
    if (!opencl_load(cl) || !(cl->device = opencl_choose(cl)))
        return MODEL_NO_DEVICE;
    uint64_t config = 0;
    if (doubles && (cl->get_device_info(cl->device, DOUBLE_CONFIG, sizeof config, &config, NULL) != 0
                    || config == 0))
        return MODEL_DEVICE_LACKS;
    int32_t error = 0;
    cl->context = cl->create_context(NULL, 1, &cl->device, NULL, NULL, &error);
    if (cl->context)
        cl->queue = cl->create_queue(cl->context, cl->device, 0, &error);
    if (!cl->queue)
        return MODEL_DEVICE_FAILED;
    cl->memory = cl->create_buffer(cl->context, READ_WRITE | HOST_MEMORY, memory, NULL, &error);
    if (cl->memory)
        cl->weights = cl->create_buffer(cl->context, READ_ONLY, weights, NULL, &error);
    if (!cl->weights)
        return MODEL_DEVICE_LACKS;
    cl->program = cl->create_program(cl->context, count, text, NULL, &error);
    if (!cl->program || cl->build(cl->program, 1, &cl->device, "-cl-std=CL1.2", NULL, NULL) != 0)
        return MODEL_DEVICE_FAILED;
    for (int i = 0; i < (int)(sizeof self->kernel / sizeof *self->kernel); i++)
        if (name[i] && !(self->kernel[i] = cl->create_kernel(cl->program, name[i], &error)))
            return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ opencl_run opencl_driver
/* Maps the memory, once the device is done with it. */
static int to_host(model_self *self)
{
    enum { READ_WRITE = 3 };
    struct opencl *cl = &self->device;
    int32_t error = 0;
    if (!cl->mapped)
        cl->mapped = (unsigned char *)cl->map(cl->queue, cl->memory, 1, READ_WRITE, 0,
                                              MODEL_DEVICE_BYTES, 0, NULL, NULL, &error);
    return cl->mapped ? MODEL_OK : MODEL_DEVICE_FAILED;
}

/* One kernel, by so many work-groups of so many work-items. Its arguments behind the memory and the
 * weights are numbers: where its tensors lie, and run-time sizes. */
static int launch(model_self *self, int index, size_t groups, size_t block,
                  const uint64_t *argument, uint32_t n)
{
    struct opencl *cl = &self->device;
    void *kernel = self->kernel[index];
    const size_t items = groups * block;
    if (cl->mapped && cl->unmap(cl->queue, cl->memory, cl->mapped, 0, NULL, NULL) != 0)
        return MODEL_DEVICE_FAILED;
    cl->mapped = NULL;
    int32_t error = cl->set_argument(kernel, 0, sizeof cl->memory, &cl->memory);
    if (error == 0)
        error = cl->set_argument(kernel, 1, sizeof cl->weights, &cl->weights);
    for (uint32_t i = 0; i < n && error == 0; i++)
        error = cl->set_argument(kernel, 2 + i, sizeof *argument, &argument[i]);
    if (error == 0)
        error = cl->enqueue(cl->queue, kernel, 1, NULL, &items, block > 1 ? &block : NULL, 0, NULL,
                            NULL);
    if (error == 0 && self->options.on_kernel)       /* so that the hook's times are the kernels' */
        error = cl->finish(cl->queue);
    return error == 0 ? MODEL_OK : MODEL_DEVICE_FAILED;
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
#define half half_
#define KEEP_LOOP
#define KEPT_TWICE 2

//@ opencl_bits_f32
uint32_t bits_f32(float v) { return as_uint(v); }

//@ opencl_float_bits
float float_bits(uint32_t u) { return as_float(u); }

//@ opencl_bits_f64
uint64_t bits_f64(double v) { return as_ulong(v); }

//@ opencl_double_bits
double double_bits(uint64_t u) { return as_double(u); }

//@ opencl_sqrt_f32
float sqrt_f32(float x) { return sqrt(x); }

//@ opencl_sqrt_f64
double sqrt_f64(double x) { return sqrt(x); }
