/* SPDX-License-Identifier: 0BSD */
/* cuda.c - CUDA's driver: what differs from HIP and graphs.c leaves to this file. Also CUDA C's
 * versions of pieces of number.c and math.c. Each function restores the context that the caller's
 * thread had. Only functions of CUDA 11.4 are called; constants are those of its cuda.h.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ cuda
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* The kernel node of a graph: CUDA_KERNEL_NODE_PARAMS, the first version. */
struct kernel_node {
    void *function;
    unsigned groups[3], block[3], shared_bytes;
    void **parameters, **extra;
};

/* CUDA's own functions, and the context in use. */
struct own_calls {
    int32_t (*get_error)(int32_t error, const char **text);
    int32_t (*get_attribute)(int *value, int what, int device);
    int32_t (*retain_context)(void **context, int device);
    int32_t (*release_context)(int device);
    int32_t (*push)(void *context);
    int32_t (*pop)(void **context);
    int32_t (*get_current)(void **context);
    int32_t (*get_context_device)(int *device);
    int32_t (*get_stream_context)(void *stream, void **context);
    int32_t (*set_function_attribute)(void *function, int what, int value);
    int32_t (*get_capture)(void *stream, int *state);
    void *context;
    bool owns_context;
};

/* Names that end in a number are of the interface of CUDA 3.2 or 4. */
static const char *const library_name[] = {"libcuda.so.1", "libcuda.so"};
static const char no_library[] =
    "no libcuda.so.1 is found: NVIDIA's driver is not installed, or not there for this program";
static const char oldest_version[] = "CUDA 11.4";
static const char *const call_name[] = {
    "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuStreamCreate", "cuStreamSynchronize",
    "cuStreamDestroy_v2", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFreeHost",
    "cuMemFree_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuPointerGetAttribute",
    "cuMemGetAddressRange_v2", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction",
    "cuLaunchKernel", "cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
    "cuEventCreate", "cuEventRecord", "cuEventElapsedTime", "cuEventDestroy_v2",
    "cuGetErrorString", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
    "cuCtxGetCurrent", "cuCtxGetDevice", "cuStreamGetCtx", "cuFuncSetAttribute",
    "cuStreamIsCapturing"};

/* An image of the kernels. Machine code runs on its architecture and, unless it is exact or for
 * Tegra, on newer ones of the same generation (the tens of the number). PTX runs on its
 * architecture and all newer ones. */
struct binary { int arch; bool is_exact, is_ptx; const char *code; };

//@ cuda_map_types
/* A tensor map, the Tensor Memory Accelerator's description of a tensor (CUtensorMap), and the
 * driver's function that encodes it. */
struct map { uint64_t word[16]; };
typedef int32_t encode_map(struct map *to, int type, uint32_t rank, void *at, const uint64_t *size,
                           const uint64_t *between_rows, const uint32_t *extent,
                           const uint32_t *step, int interleave, int swizzle, int promotion,
                           int fill);
/* What each map is made of. argument: the entry of argument_of[] with the tensor's address. type:
 * log2 of an element's bytes, which is the driver's type of an unsigned integer of that width, or
 * 11: floats, rounded to tf32 as they are copied. By axis, innermost first: the tensor's elements,
 * the strides in bytes of all axes but the first, and a box's elements. */
struct map_of {
    int argument, type, rank;
    uint64_t size[5], between_rows[4];
    uint32_t extent[5];
    int swizzle;
};

//@ cuda_driver_map_argument load
/* The i-th map. Maps are aligned to 64 bytes, which the model record need not be. */
static struct map *map_at(model_self *self, int i)
{
    unsigned char *bytes = self->maps.bytes;
    return (struct map *)(void *)(bytes + (64 - (uintptr_t)bytes % 64) % 64) + i;
}

/* Looks up the function that encodes maps; drivers have it from CUDA 12 on. */
static int begin_arguments(model_self *self)
{
    void *function = dlsym(self->device.library, "cuTensorMapEncodeTiled");
    if (!function) {
        complain(self, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
        return MODEL_OLD_DRIVER;
    }
    memcpy(&self->maps.encode, &function, sizeof function);
    return MODEL_OK;
}

/* Encodes an argument's map again after its tensor has moved. */
static int put_argument(model_self *self, int argument)
{
    enum { LINES_OF_128 = 2 };
    static const uint32_t step[] = {1, 1, 1, 1, 1};
    int i = 0;
    while (i < MODEL_MAPS && map_of[i].argument != argument)
        i++;
    if (i == MODEL_MAPS)
        return MODEL_OK;
    const struct map_of *m = &map_of[i];
    self->parameter[argument] = map_at(self, i);
    return status_of(self, "cuTensorMapEncodeTiled",
                     self->maps.encode(map_at(self, i), m->type, (uint32_t)m->rank,
                                       (void *)(uintptr_t)self->value[argument], m->size,
                                       m->between_rows, m->extent, step, 0, m->swizzle,
                                       LINES_OF_128, 0));
}

//@ cuda_driver_own
static const char *words_of(const model_self *self, int32_t error)
{
    const char *text = NULL;
    return self->device.own_calls.get_error(error, &text) == 0 ? text : NULL;
}

static int enter(model_self *self) { return TRY(own_calls.push, self->device.own_calls.context); }

static void leave(model_self *self)
{
    void *context;
    self->device.own_calls.pop(&context);
}

static int ask_capture(model_self *self, int *state)
{
    return TRY(own_calls.get_capture, self->device.queue, state);
}

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD belong to no context of their own: to the one that is
 * current when they are used. */
static bool is_of_thread(const void *stream)
{
    return (uintptr_t)stream == 1 || (uintptr_t)stream == 2;
}

/* Finds the context of the caller's stream; leaves it as it is where that does not
 * settle the context. */
static int ask_context(model_self *self, void **of_stream)
{
    const model_options *o = &self->options;
    if (!o->queue || (is_of_thread(o->queue) && o->context))
        return MODEL_OK;
    return is_of_thread(o->queue) ? TRY(own_calls.get_current, of_stream)
                                  : TRY(own_calls.get_stream_context, o->queue, of_stream);
}

/* Settles on the caller's context, the context of the caller's stream, or the
 * device's primary one. */
static int open_context(model_self *self)
{
    struct own_calls *calls = &self->device.own_calls;
    const model_options *o = &self->options;
    void *of_stream = NULL;
    int theirs = -1;
    int status = ask_context(self, &of_stream);
    if (status != MODEL_OK)
        return status;
    if (of_stream && o->context && of_stream != o->context) {
        complain(self, "options.queue is a stream of another context than options.context");
        return MODEL_BAD_OPTIONS;
    }
    calls->context = o->context ? o->context : of_stream;
    if (calls->context) {
        status = enter(self);
        if (status == MODEL_OK)
            status = done(self, TRY(own_calls.get_context_device, &theirs));
    }
    if (status == MODEL_OK)
        status = settle_device(self, theirs);
    if (status != MODEL_OK || calls->context)
        return status;
    status = TRY(own_calls.retain_context, &calls->context, self->device.device);
    calls->owns_context = status == MODEL_OK;
    return status;
}

static void close_context(model_self *self)
{
    if (self->device.own_calls.owns_context)
        self->device.own_calls.release_context(self->device.device);
}

/* Does a device of this architecture run the image? Machine code needs the same generation, and an
 * architecture that is no newer. Code for Tegra runs on its own architecture alone, and Tegra runs
 * no other code: CUDA's guide promises no binary compatibility between Tegras, or with the desktop.
 * PTX needs an architecture that is no newer. */
static bool runs_image(const struct binary *m, int arch)
{
    static const int tegra[] = {72, 87, 101, 110};
    bool alone = m->is_exact;
    for (size_t i = 0; i < sizeof tegra / sizeof *tegra; i++)
        alone |= !m->is_ptx && (m->arch == tegra[i] || arch == tegra[i]);
    return alone ? m->arch == arch : m->arch <= arch && (m->is_ptx || m->arch / 10 == arch / 10);
}

/* The first image to try, or the next one after `before`: machine code, then PTX, each newest
 * first. NULL: there is none. */
static const struct binary *next_image(int arch, const struct binary *before)
{
    enum { CODE = 1 << 16 };
    const struct binary *found = NULL;
    int best = -1, most = before ? 2 * before->arch + before->is_exact + (before->is_ptx ? 0 : CODE)
                                 : 2 * CODE;
    for (size_t i = 0; i < sizeof binary_of / sizeof *binary_of; i++) {
        const struct binary *m = &binary_of[i];
        int rank = 2 * m->arch + m->is_exact + (m->is_ptx ? 0 : CODE);
        if (rank < most && rank > best && runs_image(m, arch)) {
            best = rank;
            found = m;
        }
    }
    return found;
}

static int get_architecture(model_self *self, int *arch)
{
    enum { MAJOR = 75, MINOR = 76 };
    int major = 0, minor = 0;
    int status = TRY(own_calls.get_attribute, &major, MAJOR, self->device.device);
    if (status == MODEL_OK)
        status = TRY(own_calls.get_attribute, &minor, MINOR, self->device.device);
    *arch = 10 * major + minor;
    return status;
}

/* Does the error mean that the driver rejects the image? */
static bool is_of_image(int32_t error)
{
    enum { INVALID_IMAGE = 200, NO_CODE = 209, INVALID_PTX = 218 };
    return error == INVALID_IMAGE || error == NO_CODE || error == INVALID_PTX;
}

/* Loads the kernels from the first image that the driver accepts. If it accepts none, its log of
 * the last one is reported. */
static int open_module(model_self *self)
{
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6, LOG_BYTES = 2048 };
    char log[LOG_BYTES] = "", line[160];
    int option[] = {ERROR_LOG, ERROR_LOG_BYTES}, arch;
    void *value[] = {log, (void *)(uintptr_t)LOG_BYTES};
    int status = get_architecture(self, &arch);
    if (status != MODEL_OK)
        return status;
    const struct binary *image = next_image(arch, NULL), *next;
    if (!image) {
        snprintf(line, sizeof line,
                 "the kernels are not for the device, which is sm_%d: compile with --cpu=sm_%d "
                 "(what does where tgc does not know that, it says)",
                 arch, arch);
        complain(self, line);
        return MODEL_OTHER_DEVICE;
    }
    int32_t error = self->device.load(&self->device.module, image->code, 2, option, value);
    while (is_of_image(error) && (next = next_image(arch, image)) != NULL) {
        *log = 0;
        /* the driver overwrites it with the length of the log */
        value[1] = (void *)(uintptr_t)LOG_BYTES;
        image = next;
        error = self->device.load(&self->device.module, image->code, 2, option, value);
    }
    status = TRY_AS(load, error);
    log[LOG_BYTES - 1] = 0;
    if (status != MODEL_OK && *log)
        complain(self, log);
    return status;
}

static int check_owner(const model_self *self, uint64_t at, bool *is_ours)
{
    enum { CONTEXT = 1 };
    void *context = NULL;
    int status = TRY(get_pointer, &context, CONTEXT, at);
    *is_ours = !context || context == self->device.own_calls.context;
    return status;
}

static int allow_local(const model_self *self, int index)
{
    enum { MOST_OF_FUNCTION = 8, MOST_OF_DEVICE = 97 };
    int most = 0;
    char line[200];
    int status = TRY(own_calls.get_attribute, &most, MOST_OF_DEVICE, self->device.device);
    if (status != MODEL_OK || (unsigned)most >= local_of[index])
        return status == MODEL_OK ? TRY(own_calls.set_function_attribute, self->kernel[index],
                                        MOST_OF_FUNCTION, (int)local_of[index])
                                  : status;
    snprintf(line, sizeof line,
             "a block of %s takes %u bytes of shared memory, and the device has %d: compile with "
             "--cpu= of the device's architecture",
             launch_of[index].function, local_of[index], most);
    complain(self, line);
    return MODEL_OTHER_DEVICE;
}

//@ cuda_language
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#define INT64_C(x) x##ll
#define UINT64_C(x) x##ull
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <math.h>
#include <stdint.h>
#endif
#define static static __device__
#define KEEP_LOOP _Pragma("unroll 1")
#define KEPT_TWICE 2

//@ cuda_block_array
/* An array in the block's dynamic shared memory, at byte `at`. */
#ifndef BLOCK_ARRAY
extern __shared__ __attribute__((aligned(1024))) unsigned char block_memory[];
#define BLOCK_ARRAY(type, name, count, at) type *const name = (type *)(block_memory + at)
#endif

//@ cuda_shuffle_f32
/* The value of lane t ^ m; the block is one warp. */
static inline float shuffle_f32(float x, unsigned m)
{
    return __shfl_xor_sync(0xffffffffu, x, (int)m);
}

//@ cuda_bits_f32
static inline uint32_t bits_f32(float v) { return __float_as_uint(v); }

//@ cuda_float_bits
static inline float float_bits(uint32_t u) { return __uint_as_float(u); }

//@ cuda_f16_to_f32
static inline float f16_to_f32(uint16_t h)
{
#ifdef TGC_HALF_MODEL
    return (float)__builtin_bit_cast(TGC_HALF_MODEL, h);
#else
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
    return v;
#endif
}

//@ cuda_f32_to_f16
static inline uint16_t f32_to_f16(float v)
{
#ifdef TGC_HALF_MODEL
    return __builtin_bit_cast(uint16_t, (TGC_HALF_MODEL)v);
#else
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
#endif
}

//@ cuda_round_tf32
static inline float round_tf32(float v)
{
#if defined TGC_HALF_MODEL || (defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800)
    return v != v ? v : __uint_as_float((__float_as_uint(v) + 0x1000) & 0xffffe000);
#else
    uint32_t u;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(v));
    return __uint_as_float(u);
#endif
}

//@ cuda_mul_add_f32
static inline float mul_add_f32(float a, float b, float c) { return fmaf(a, b, c); }

//@ cuda_exp2_f32
/* Accurate to two ulp; subnormals are flushed to 0. */
static inline float exp2_f32(float x)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return __builtin_exp2f(x);
#endif
}

//@ cuda_max_f32
/* NaN if either is. */
static inline float max_f32(float a, float b)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a < b || b != b ? b : a;
#endif
}

//@ cuda_bits_f64
static inline uint64_t bits_f64(double v) { return (uint64_t)__double_as_longlong(v); }

//@ cuda_double_bits
static inline double double_bits(uint64_t u) { return __longlong_as_double((long long)u); }

//@ cuda_sqrt_f32
static inline float sqrt_f32(float x) { return sqrtf(x); }

//@ cuda_sqrt_f64
static inline double sqrt_f64(double x) { return sqrt(x); }
