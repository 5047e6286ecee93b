/* w_model.c - w.tg in C, by tgc 0.1.0.
 *
 *   input  a f32[64,40]
 *   input  b f32[40,48]
 *   output y i64[64]
 *
 * 1 kernel, 249 kFLOP a run, arena 1.28 kB, weights 0 bytes.
 *
 *     cc -O2 -c w_model.c                     a library, see w_model.h
 *     cc -O2 -DW_MODEL_MAIN w_model.c -o w_model     a program, see w_model --help
 *
 * What tgc has written here, the parts of its runtime included, is its user's without obligation
 * (0BSD). The model and its weights keep their own terms. */
/* These flags change what the numbers below are. */
#if defined __FINITE_MATH_ONLY__ && __FINITE_MATH_ONLY__
#error "NaN and infinity are lost by -ffast-math, -Ofast, -ffinite-math-only: add -fno-finite-math-only"
#elif defined __i386__ && !defined __SSE2_MATH__
#error "the x87's numbers have more digits than float: compile with -msse2 -mfpmath=sse"
#elif defined __FLT_EVAL_METHOD__ && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "float is computed in more digits than it has (FLT_EVAL_METHOD is not 0)"
#elif defined __clang__
#pragma clang fp reassociate(off)
#elif defined __FAST_MATH__ || defined __ASSOCIATIVE_MATH__ || defined __RECIPROCAL_MATH__
#pragma GCC optimize("no-fast-math", "no-unsafe-math-optimizations", "no-associative-math", \
                     "no-reciprocal-math", "signed-zeros")
#endif

#include "w.h"

#include <assert.h>
#include <math.h>
#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

#ifdef __cplusplus
#define restrict __restrict
#endif

enum { W_MODEL_SPANS = 32 };
enum { W_MODEL_QUEUES = 1 };
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct image_shape {
    uint32_t type;
    size_t width, height, depth, count, row_pitch, slice_pitch;
    uint32_t levels, samples;
    void *buffer;
};

/* OpenCL's functions that are called, and what they return and take. */
struct opencl {
    int32_t (*get_platforms)(uint32_t most, void **platform, uint32_t *count);
    int32_t (*get_devices)(void *platform, uint64_t type, uint32_t most, void **device, uint32_t *n);
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
    void *library;                  /* open as long as the model is */
    void *device, *context, *queue, *program, *memory, *weights;
    void *side[W_MODEL_QUEUES];     /* queues beside it; behind the last is NULL */
    unsigned char *seen[W_MODEL_SPANS];     /* where the host sees parts of the memory */
    int nseen;
    uint32_t units;                 /* of the device: a processor's cores */
};

/* Of a place: its buffer, and the byte in it where it begins; of a buffer of the caller's the bytes from
 * there on. is_stale: kernels may have been told another one. */
struct place { void *buffer; size_t at, room; bool is_bound, is_stale; };
/* A kernel's argument: a tensor, at this byte of a place, or place < 0, a number. varies: the byte or
 * the number is told by each run. */
struct argument { int place; bool varies; size_t at; };
/* A kernel in a run: its function, its arguments in argument_of[], its work-groups and the work-items
 * of each. */
struct launch { const char *function; int first, count; size_t groups[3], block[3]; };

/* Bytes of the memory that the host needs; how: 1, it reads them; 2, it stores them, all if it does not read. */
struct span { size_t at, nbytes; int how; };

enum { W_MODEL_KERNELS = 1, W_MODEL_PLACES = 5, W_MODEL_INPUTS = 2 };
/* On a processor a kernel has a work-group for each core, at most those of launch_of[]. */
enum { W_MODEL_PER_CORE = 0 };

/* Where tensors lie: 0, the memory; 1, the weights; from 2 on the inputs, then the outputs. */
static const struct argument argument_of[] = {
    {4, 0, 0}, {2, 0, 0}, {3, 0, 0},    /* argmax_0 */
    {-1, 0, 0}
};

static const struct launch launch_of[] = {
    {"w_model_argmax_0", 0, 3, {1, 1, 1}, {64, 1, 1}},
    {NULL, 0, 0, {1, 1, 1}, {1, 1, 1}}
};

struct w_model {
    const w_model *opened;          /* itself, from w_model_init to w_model_close */
    w_model_options options;
    struct opencl device;
    struct place place[5];
    size_t groups[2][3];
    void *kernel[2];
};
static_assert(sizeof(struct w_model) <= 1280, "the intermediates begin behind the struct");

/* ----------------------------------------------------------------------------------- kernels */

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

/* The kernels in OpenCL C, and the functions that they call. */
static const char *const kernel_text[] = {
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "typedef char int8_t;\n"
    "typedef uchar uint8_t;\n"
    "typedef short int16_t;\n"
    "typedef ushort uint16_t;\n"
    "typedef int int32_t;\n"
    "typedef uint uint32_t;\n"
    "typedef long int64_t;\n"
    "typedef ulong uint64_t;\n"
    "#define INT32_MIN INT_MIN\n"
    "#define INT32_MAX INT_MAX\n"
    "#define UINT32_MAX UINT_MAX\n"
    "#define INT64_MIN LONG_MIN\n"
    "#define INT64_MAX LONG_MAX\n"
    "#define UINT64_MAX ULONG_MAX\n"
    "#define INT64_C(x) x##L\n"
    "#define UINT64_C(x) x##UL\n"
    "#define fabsf(x) fabs((float)(x))\n"
    "#define copysignf(x, y) copysign((float)(x), (float)(y))\n"
    "#define fmaf(x, y, z) fma((float)(x), (float)(y), (float)(z))\n"
    "#define static\n"
    "#define inline\n"
    "typedef half stored_half;\n"
    "#define half half_\n"
    "#define KEEP_LOOP\n"
    "#define KEPT_TWICE 2\n"
    "\n",
    "static inline int64_t min_i64(int64_t a, int64_t b) { return a < b \? a : b; }\n"
    "\n",
    "/* NaN if either is NaN. */\n"
    "static inline float max_f32(float a, float b) { return a < b || b != b \? b : a; }\n"
    "\n",
    "/* bool, where isnan() is an int of any value: it may be stored as a byte. */\n"
    "static inline bool is_nan_f32(float x) { return x != x; }\n"
    "\n",
    "typedef float4 f32x4;\n"
    "typedef uint4 bits_f32x4;\n"
    "typedef int4 ints_f32x4, mask_f32x4;\n"
    "typedef ushort4 halves_f32x4;\n"
    "typedef char4 i8_f32x4;\n"
    "typedef uchar4 u8_f32x4;\n"
    "#define IN_f32x4\n"
    "#define as_f32x4(v) as_float4(v)\n"
    "#define as_bits_f32x4(v) as_uint4(v)\n"
    "#define as_ints_f32x4(v) as_int4(v)\n"
    "#define to_f32x4(v) convert_float4(v)\n"
    "#define to_ints_f32x4(v) convert_int4(v)\n"
    "#define near_ints_f32x4(v) convert_int4_sat(v)\n"
    "#define to_halves_f32x4(v) convert_ushort4(v)\n"
    "#define to_i8_f32x4(v) convert_char4_sat(v)\n"
    "#define to_u8_f32x4(v) convert_uchar4_sat(v)\n"
    "#define nearest_i8_f32x4(v) convert_char4_sat_rte(v)\n"
    "#define nearest_u8_f32x4(v) convert_uchar4_sat_rte(v)\n"
    "#define get_f32x4(p) vload4(0, p)\n"
    "#define put_f32x4(p, v) vstore4(v, 0, p)\n"
    "#define get_halves_f32x4(p) vload_half4(0, p)\n"
    "#define put_halves_f32x4(p, v) vstore_half4_rte(v, 0, p)\n"
    "/* the first n lanes of a vector, each `step` behind the one before */\n"
    "#define put_apart_f32x4(type, p, v, step, n) \\\n"
    "    do { \\\n"
    "        const type lanes_ = v; \\\n"
    "        if ((n) > 0) (p)[0] = lanes_.s0; \\\n"
    "        if ((n) > 1) (p)[step] = lanes_.s1; \\\n"
    "        if ((n) > 2) (p)[2 * (step)] = lanes_.s2; \\\n"
    "        if ((n) > 3) (p)[3 * (step)] = lanes_.s3; \\\n"
    "    } while (0)\n"
    "\n",
    "/* also where one is NaN */\n"
    "mask_f32x4 differ_f32x4(f32x4 a, f32x4 b) { return a != b; }\n"
    "\n",
    "/* m \? a : b, lane by lane */\n"
    "f32x4 select_f32x4(mask_f32x4 m, f32x4 a, f32x4 b) { return select(b, a, m); }\n"
    "\n",
    "f32x4 splat_f32x4(float v) { return (f32x4)(v); }\n"
    "\n",
    "/* a*b + c, rounded once */\n"
    "f32x4 fma_f32x4(f32x4 a, f32x4 b, f32x4 c) { return fma(a, b, c); }\n"
    "\n",
    "/* the larger; b, if one of them is NaN */\n"
    "f32x4 higher_f32x4(f32x4 a, f32x4 b) { return select(b, a, a > b); }\n"
    "\n",
    "#define load_f32x4(p) get_f32x4(p)\n"
    "\n",
    "#define store_f32x4(p, v) put_f32x4(p, v)\n"
    "\n",
    "/* from a multiple of the vector's size, in one transaction; space: global or local */\n"
    "#define load_aligned_f32x4(space, p) (*(space const f32x4 *)(p))\n"
    "\n",
    "/* NaN if either is; where a is known to be a number, that is higher_f32x4(a, b) */\n"
    "static inline IN_f32x4 f32x4 max_f32x4(f32x4 a, f32x4 b) { return select_f32x4(differ_f32x4(a, a), a, higher_f32x4(a, b)); }\n"
    "\n",
    "float largest_f32x4(f32x4 v)\n"
    "{\n"
    "    v = max_f32x4(v, v.zwxy);\n"
    "    return max_f32x4(v, v.yxwz).x;\n"
    "}\n"
    "\n",
    "/* matmul \"c\", argmax \"y\"\n"
    " *   y   i64[64]  \"y\"  <- result\n"
    " *   x   f32[64,40]  input \"a\"\n"
    " *   x2  f32[40,48]  input \"b\"\n"
    " * 249 kFLOP, touches 18.4 kB. */\n"
    "__attribute__((reqd_work_group_size(64, 1, 1)))\n"
    "kernel void w_model_argmax_0(global uchar *y_in, ulong y_at, global const uchar *x_in, ulong x_at,\n"
    "                             global const uchar *x2_in, ulong x2_at)\n"
    "{\n"
    "    global int64_t *restrict y = (global int64_t *)(y_in + y_at);\n"
    "    global const float *restrict x = (global const float *)(x_in + x_at);\n"
    "    global const float *restrict x2 = (global const float *)(x2_in + x2_at);\n"
    "    float tile[48];\n"
    "    const int i = (int)get_global_id(0);\n"
    "    KEEP_LOOP for (int j = 0; j < 12; j++) {\n"
    "        f32x4 sum = splat_f32x4(0.0f);\n"
    "        KEEP_LOOP for (int k = 0; k < 40; k++) {\n"
    "            const f32x4 x2v = load_aligned_f32x4(global, &x2[k*48 + j*4]);\n"
    "            sum = fma_f32x4(splat_f32x4(x[k + i*40]), x2v, sum);\n"
    "        }\n"
    "        store_f32x4(&tile[j*4], sum);\n"
    "    }\n"
    "    float largest = -INFINITY;\n"
    "    const f32x4 t = splat_f32x4(-INFINITY);\n"
    "    f32x4 largest2 = t;\n"
    "    f32x4 largest3 = t;\n"
    "    f32x4 largest4 = t;\n"
    "    f32x4 largest5 = t;\n"
    "    KEEP_LOOP for (int i2 = 0; i2 < 3; i2++) {\n"
    "        largest2 = max_f32x4(load_f32x4(&tile[i2*16]), largest2);\n"
    "        largest3 = max_f32x4(load_f32x4(&tile[i2*16 + 4]), largest3);\n"
    "        largest4 = max_f32x4(load_f32x4(&tile[i2*16 + 8]), largest4);\n"
    "        largest5 = max_f32x4(load_f32x4(&tile[i2*16 + 12]), largest5);\n"
    "    }\n"
    "    const float t2 = largest_f32x4(max_f32x4(max_f32x4(largest5, largest3), max_f32x4(largest4, largest2)));\n"
    "    largest = max_f32(largest, t2);\n"
    "    int64_t smallest = INT64_C(9223372036854775807);\n"
    "    KEEP_LOOP for (int i2 = 0; i2 < 48; i2++) {\n"
    "        const float tilev = tile[i2];\n"
    "        const int at = tilev == largest || is_nan_f32(tilev) \? i2 : 48;\n"
    "        smallest = min_i64(at, smallest);\n"
    "    }\n"
    "    y[i] = smallest;\n"
    "}\n"
    "\n",
};

/* --------------------------------------------------------------------------------- the model */

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

static const struct w_model_dim input_dim_0[] = {{64, NULL}, {40, NULL}};
static const struct w_model_dim input_dim_1[] = {{40, NULL}, {48, NULL}};
static const struct w_model_tensor input_info[] = {
    {"a", "f32", 4, 2, input_dim_0, offsetof(w_model_inputs, a), (size_t)-1},
    {"b", "f32", 4, 2, input_dim_1, offsetof(w_model_inputs, b), (size_t)-1},
};
static const struct w_model_dim output_dim_0[] = {{64, NULL}};
static const struct w_model_tensor output_info[] = {
    {"y", "i64", 8, 1, output_dim_0, offsetof(w_model_outputs, y), (size_t)-1},
};
static const struct w_model_kernel kernel_info[] = {
    {"argmax_0", "matmul \"c\", argmax \"y\"", 248832, 18432},
};

const struct w_model_info *w_model_describe(void)
{
    static const struct w_model_info info = {
        4, "w_model", "tgc 0.1.0", "opencl",
        2, 1, 0, 1, input_info, output_info, NULL, kernel_info,
        W_MODEL_ARENA_BYTES, W_MODEL_ARENA_ALIGN, 0, 0, 248832,
        sizeof(w_model_inputs), sizeof(w_model_outputs), W_MODEL_STACK_BYTES,
        0, NULL, 0,
        0, NULL, (size_t)-1,
        0, 0, NULL, NULL,
    };
    return &info;
}

/* Tells the caller's hook which kernel comes now; -1: the run ends. */
static void step(const w_model *self, int index)
{
    if (self->options.on_kernel)
        self->options.on_kernel(self->options.user, index < 0 ? 1 : index,
                                index < 0 ? NULL : kernel_info[index].name);
}

/* Says what went wrong, in a sentence. */
static void complain(const w_model *self, const char *text)
{
    if (self->options.on_error)
        self->options.on_error(self->options.user, text);
}

/* Of each place the byte of the memory where it begins, what a buffer of the caller's must
 * have (0: each run tells), and whether the host computes with it. */
static const struct { size_t at, nbytes; bool is_of_host; } place_info[] = {
    {0, 0, true}, {0, 0, true},
    {128, 10240, false},
    {10368, 7680, false},
    {18048, 512, false},
};

/* false: a function is missing. The order is that of the struct. */
static bool opencl_load(struct opencl *cl)
{
    static const char *const name[] = {
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

/* The wanted-th device, counted through all platforms from 1; 0: the first GPU, or else the first
 * device of another kind; NULL: there is none. */
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

static uint64_t hash_bytes(uint64_t hash, const void *p, size_t nbytes)
{
    const unsigned char *s = (const unsigned char *)p;
    for (size_t i = 0; i < nbytes; i++)
        hash = (hash ^ s[i]) * UINT64_C(1099511628211);          /* FNV-1a */
    return hash;
}

/* Names a program built for this device by this driver: 32 digits. false: the driver does not say who
 * it is. */
static bool opencl_key(const struct opencl *cl, const char *const *text, uint32_t count, const char *flags,
                       char key[33])
{
    static const uint32_t fact[] = {0x102b /* NAME */, 0x102c /* VENDOR */, 0x102d /* DRIVER */,
                                    0x102f /* VERSION */};
    uint64_t hash[2] = {hash_bytes(UINT64_C(14695981039346656037), flags, strlen(flags)), 97};
    char value[512];
    for (uint32_t i = 0; i < count + sizeof fact / sizeof *fact; i++) {
        const char *s = i < count ? text[i] : value;
        memset(value, 0, sizeof value);
        if (i >= count && cl->get_device_info(cl->device, fact[i - count], sizeof value - 1, value, NULL) != 0)
            return false;
        for (int h = 0; h < 2; h++)
            hash[h] = hash_bytes(hash[h], s, strlen(s) + 1);
    }
    for (int i = 0; i < 32; i++)
        key[i] = "0123456789abcdef"[hash[i / 16] >> 4 * (i % 16) & 15];
    key[32] = 0;
    return true;
}

/* What the cache keeps: a head, and the driver's binary. Drivers die of damaged ones, and a cache may mix up
 * keys, so the hash is of both. */
struct kept_program { uint64_t nbytes, hash; };

static uint64_t hash_kept(const char *key, const void *binary, size_t nbytes)
{
    return hash_bytes(hash_bytes(0, key, strlen(key)), binary, nbytes);
}

/* The program from the caller's cache; NULL: it is not there, or it is damaged, or this driver does not
 * take it. */
static void *opencl_cached(const w_model *self, const char *key)
{
    const struct opencl *cl = &self->device;
    const w_model_options *o = &self->options;
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
        program = cl->create_from_binary(cl->context, 1, &cl->device, &size, &binary, &status, &error);
    if (program && (status != 0 || cl->build(program, 1, &cl->device, "", NULL, NULL) != 0)) {
        cl->release_program(program);
        program = NULL;
    }
    free(kept);
    return program;
}

/* Hands the program that was built to the caller's cache. */
static void opencl_keep(const w_model *self, const char *key)
{
    const struct opencl *cl = &self->device;
    const w_model_options *o = &self->options;
    uint32_t devices = 0;
    size_t n = 0;
    /* as many binaries as the program has devices, those of the caller's context */
    if (!o->save_program ||
        cl->get_program_info(cl->program, 0x1162 /* NUM_DEVICES */, sizeof devices, &devices, NULL) != 0 ||
        devices != 1 ||
        cl->get_program_info(cl->program, 0x1165 /* BINARY_SIZES */, sizeof n, &n, NULL) != 0 ||
        n == 0 || n > SIZE_MAX / 2)
        return;
    unsigned char *kept = (unsigned char *)malloc(sizeof(struct kept_program) + n);
    unsigned char *binary = kept ? kept + sizeof(struct kept_program) : NULL;
    if (kept && cl->get_program_info(cl->program, 0x1166 /* BINARIES */, sizeof binary, &binary, NULL) == 0) {
        const struct kept_program head = {n, hash_kept(key, binary, n)};
        memcpy(kept, &head, sizeof head);
        o->save_program(o->user, key, kept, sizeof head + n);
    }
    free(kept);
}

static bool hold_buffer(const w_model *self, void *buffer) { return self->device.retain_buffer(buffer) == 0; }
static void let_buffer(const w_model *self, void *buffer) { self->device.release_buffer(buffer); }

/* Waits for the queue, and for those beside it, where a run that failed may have left some of its kernels. */
static bool wait_all(const w_model *self)
{
    const struct opencl *cl = &self->device;
    bool done = !cl->queue || cl->finish(cl->queue) == 0;
    for (void *const *q = cl->side; *q; q++)
        done &= cl->finish(*q) == 0;
    return done;
}

/* Ends what has been begun. */
static void end_device(w_model *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < W_MODEL_KERNELS; i++)
        if (self->kernel[i])
            cl->release_kernel(self->kernel[i]);
    for (int i = 0; i < W_MODEL_PLACES; i++)
        if (self->place[i].is_bound)
            cl->release_buffer(self->place[i].buffer);
    if (cl->program)
        cl->release_program(cl->program);
    if (cl->weights)
        cl->release_buffer(cl->weights);
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

/* The caller's queue and context, or new ones; the device of both. */
static int open_queue(w_model *self)
{
    enum { PROFILING = 2, OUT_OF_ORDER = 1 };
    struct opencl *cl = &self->device;
    const w_model_options *o = &self->options;
    void *device[16] = {NULL}, *of_queue = NULL;
    uint64_t properties = 0;
    int32_t error = 0;
    size_t n = 0;
    if (o->device < 0)
        return W_MODEL_BAD_OPTIONS;
    if (o->queue) {
        void *context = NULL;
        if (cl->get_queue_info(o->queue, 0x1090 /* CONTEXT */, sizeof context, &context, NULL) != 0 ||
            cl->get_queue_info(o->queue, 0x1091 /* DEVICE */, sizeof of_queue, &of_queue, NULL) != 0 ||
            cl->get_queue_info(o->queue, 0x1093 /* PROPERTIES */, sizeof properties, &properties, NULL) != 0)
            return W_MODEL_DEVICE_FAILED;
        if (properties & OUT_OF_ORDER)
            complain(self, "options.queue is out of order, and a run needs its order: pass another one");
        if (o->context && o->context != context)
            complain(self, "options.queue is of another context than options.context");
        if ((properties & OUT_OF_ORDER) || (o->context && o->context != context))
            return W_MODEL_BAD_OPTIONS;
        if (o->device > 0 && opencl_choose(cl, o->device) != of_queue) {
            complain(self, "options.queue is of another device than options.device names");
            return W_MODEL_BAD_OPTIONS;
        }
        cl->device = of_queue;
        cl->context = cl->retain_context(context) == 0 ? context : NULL;
        cl->queue = cl->retain_queue(o->queue) == 0 ? o->queue : NULL;
        return cl->context && cl->queue ? W_MODEL_OK : W_MODEL_DEVICE_FAILED;
    }
    if (o->context) {
        if (cl->get_context_info(o->context, 0x1081 /* DEVICES */, sizeof device, device, &n) != 0 || n == 0)
            return W_MODEL_DEVICE_FAILED;
        void *chosen = o->device > 0 ? opencl_choose(cl, o->device) : device[0];
        for (size_t i = 0; i < n / sizeof *device; i++)
            if (device[i] == chosen)
                cl->device = chosen;
        if (!cl->device)
            complain(self, "options.context is not of the device that options.device names");
        if (!cl->device)
            return W_MODEL_BAD_OPTIONS;
        cl->context = cl->retain_context(o->context) == 0 ? o->context : NULL;
    } else {
        cl->device = opencl_choose(cl, o->device);
        if (!cl->device)
            return W_MODEL_NO_DEVICE;
        cl->context = cl->create_context(NULL, 1, &cl->device, NULL, NULL, &error);
    }
    if (cl->context)
        cl->queue = cl->create_queue(cl->context, cl->device, o->on_kernel_time ? PROFILING : 0, &error);
    return cl->queue ? W_MODEL_OK : W_MODEL_DEVICE_FAILED;
}

/* Whether the device has what the model needs, apart from what kernels do. */
static int check_device(const w_model *self, bool doubles, size_t memory, size_t weights)
{
    const struct opencl *cl = &self->device;
    uint64_t config = 0, most = 0;
    const size_t largest = memory > weights ? memory : weights;
    char text[200];
    if (doubles && (cl->get_device_info(cl->device, 0x1032 /* DOUBLE_CONFIG */, sizeof config, &config,
                                        NULL) != 0 || config == 0)) {
        complain(self, "the model computes 64-bit floats, which the device does not have");
        return W_MODEL_DEVICE_LACKS;
    }
    if (cl->get_device_info(cl->device, 0x1010 /* MAX_MEM_ALLOC_SIZE */, sizeof most, &most, NULL) != 0)
        return W_MODEL_DEVICE_FAILED;
    if (largest <= most)
        return W_MODEL_OK;
    snprintf(text, sizeof text, "the model needs %zu bytes in one buffer, and the device allows %llu: "
                                "give smaller bounds by --dim", largest, (unsigned long long)most);
    complain(self, text);
    return W_MODEL_DEVICE_LACKS;
}

/* The driver, the queue, the memory. doubles: the kernels have 64-bit floats. */
static int open_memory(w_model *self, bool doubles, size_t weights)
{
    enum { READ_WRITE = 1 << 0, READ_ONLY = 1 << 2, HOST_MEMORY = 1 << 4 };
    struct opencl *cl = &self->device;
    int32_t error = 0;
    if (!opencl_load(cl))
        return W_MODEL_NO_DEVICE;
    int status = open_queue(self);
    for (int i = 0; i + 1 < W_MODEL_QUEUES && status == W_MODEL_OK; i++) {
        cl->side[i] = cl->create_queue(cl->context, cl->device, 0, &error);
        status = cl->side[i] ? W_MODEL_OK : W_MODEL_DEVICE_FAILED;
    }
    if (status == W_MODEL_OK)
        status = check_device(self, doubles, W_MODEL_DEVICE_BYTES, weights);
    if (status != W_MODEL_OK)
        return status;
    cl->memory = cl->create_buffer(cl->context, READ_WRITE | HOST_MEMORY, W_MODEL_DEVICE_BYTES, NULL, &error);
    if (cl->memory)
        cl->weights = cl->create_buffer(cl->context, READ_ONLY, weights > 0 ? weights : 1, NULL, &error);
    if (!cl->weights) {
        char lacks[100];
        snprintf(lacks, sizeof lacks, "the driver gives no buffer of %zu bytes",
                 cl->memory ? weights : (size_t)W_MODEL_DEVICE_BYTES);
        complain(self, lacks);
        return W_MODEL_DEVICE_LACKS;
    }
    if (cl->get_device_info(cl->device, 0x1002 /* MAX_COMPUTE_UNITS */, sizeof cl->units, &cl->units,
                            NULL) != 0 || cl->units == 0)
        return W_MODEL_DEVICE_FAILED;
    return W_MODEL_OK;
}

/* Waits for what has been begun. */
static void end_runs(w_model *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < cl->nseen; i++)
        cl->unmap(cl->queue, cl->memory, cl->seen[i], 0, NULL, NULL);
    wait_all(self);
}

/* Says what the compiler of the driver has said. */
static int complain_of_build(const w_model *self)
{
    const struct opencl *cl = &self->device;
    size_t n = 0;
    cl->get_build_info(cl->program, cl->device, 0x1183 /* LOG */, 0, NULL, &n);
    char *log = n > 0 && n < SIZE_MAX ? (char *)malloc(n + 1) : NULL;
    if (log) {
        memset(log, 0, n + 1);
        cl->get_build_info(cl->program, cl->device, 0x1183 /* LOG */, n, log, NULL);
    }
    complain(self, log && *log ? log : "the driver does not compile the kernels, and does not say why");
    free(log);
    return W_MODEL_DEVICE_FAILED;
}

static int open_program(w_model *self, const char *const *text, uint32_t count, const char *flags)
{
    struct opencl *cl = &self->device;
    char key[33];
    int32_t error = 0;
    const bool is_known = opencl_key(cl, text, count, flags, key);
    cl->program = is_known ? opencl_cached(self, key) : NULL;
    if (cl->program)
        return W_MODEL_OK;
    cl->program = cl->create_program(cl->context, count, text, NULL, &error);
    if (!cl->program)
        return W_MODEL_DEVICE_FAILED;
    if (cl->build(cl->program, 1, &cl->device, flags, NULL, NULL) != 0)
        return complain_of_build(self);
    if (is_known)
        opencl_keep(self, key);
    return W_MODEL_OK;
}

/* The kernels, built for the device; its memory. */
static int device_open(w_model *self, const char *const *text, uint32_t count, bool doubles,
                       size_t weights)
{
    int status = open_memory(self, doubles, weights);
    return status == W_MODEL_OK ? open_program(self, text, count, "-cl-std=CL1.2") : status;
}

static void device_close(w_model *self)
{
    end_runs(self);
    end_device(self);
}

/* Tells a kernel object its i-th argument, whose byte or number is `value`. A tensor is two of OpenCL's
 * arguments. */
static bool set_argument(w_model *self, int index, int i, uint64_t value)
{
    const struct opencl *cl = &self->device;
    const struct argument *a = &argument_of[launch_of[index].first];
    const struct place *p = a[i].place < 0 ? NULL : &self->place[a[i].place];
    const uint64_t number = (p ? p->at : 0) + value;
    uint32_t at = 0;
    for (int k = 0; k < i; k++)
        at += a[k].place < 0 ? 1 : 2;
    return (!p || cl->set_argument(self->kernel[index], at++, sizeof p->buffer, &p->buffer) == 0) &&
           cl->set_argument(self->kernel[index], at, sizeof number, &number) == 0;
}

static bool set_argument(w_model *self, int index, int i, uint64_t value);

/* Whether the device has the work-items and the local memory that a kernel object needs. */
static int check_kernel(const w_model *self, int index)
{
    const struct opencl *cl = &self->device;
    const struct launch *l = &launch_of[index];
    const size_t *b = l->block;
    void *const kernel = self->kernel[index];
    size_t items = 0, along[16] = {0};
    uint64_t local = 0, most = 0;
    char text[300], what[160] = "";
    if (cl->get_kernel_info(kernel, cl->device, 0x11b0 /* WORK_GROUP_SIZE */, sizeof items, &items, NULL) != 0 ||
        cl->get_kernel_info(kernel, cl->device, 0x11b2 /* LOCAL_MEM_SIZE */, sizeof local, &local, NULL) != 0 ||
        cl->get_device_info(cl->device, 0x1005 /* MAX_WORK_ITEM_SIZES */, sizeof along, along, NULL) != 0 ||
        cl->get_device_info(cl->device, 0x1023 /* LOCAL_MEM_SIZE */, sizeof most, &most, NULL) != 0)
        return W_MODEL_DEVICE_FAILED;
    if (b[0] * b[1] * b[2] > items)
        snprintf(what, sizeof what, "work-groups of %zu, and the device allows it %zu", b[0] * b[1] * b[2], items);
    for (int i = 0; i < 3 && !*what; i++)
        if (b[i] > along[i])
            snprintf(what, sizeof what, "%zu work-items along axis %d, and the device allows %zu", b[i], i, along[i]);
    if (!*what && local > most)
        snprintf(what, sizeof what, "%llu bytes of local memory, and the device has %llu",
                 (unsigned long long)local, (unsigned long long)most);
    if (!*what)
        return W_MODEL_OK;
    snprintf(text, sizeof text, "kernel %s needs %s: compile with --cpu=DEVICE or --no-locals", l->function, what);
    complain(self, text);
    return W_MODEL_DEVICE_LACKS;
}

/* The list of a run: an object for each kernel, with the arguments that stay. */
static int record(w_model *self)
{
    struct opencl *cl = &self->device;
    for (int i = 0; i < W_MODEL_KERNELS; i++) {
        const struct launch *l = &launch_of[i];
        int32_t error = 0;
        bool done = true;
        self->kernel[i] = cl->create_kernel(cl->program, l->function, &error);
        if (!self->kernel[i])
            return W_MODEL_DEVICE_FAILED;
        for (int k = 0; k < l->count && done; k++)
            done = set_argument(self, i, k, argument_of[l->first + k].at);
        int status = done ? check_kernel(self, i) : W_MODEL_DEVICE_FAILED;
        if (status != W_MODEL_OK)
            return status;
    }
    return W_MODEL_OK;
}

/* Gives what the host sees back to the device. */
static int to_device(w_model *self)
{
    struct opencl *cl = &self->device;
    for (; cl->nseen > 0; cl->nseen--)
        if (cl->unmap(cl->queue, cl->memory, cl->seen[cl->nseen - 1], 0, NULL, NULL) != 0)
            return W_MODEL_DEVICE_FAILED;
    return W_MODEL_OK;
}

/* The kernel's time by the device's clock, told to the caller. */
static int32_t tell_time(const w_model *self, int index, void *event)
{
    const struct opencl *cl = &self->device;
    uint64_t begin = 0, end = 0;
    int32_t error = cl->finish(cl->queue);
    if (error == 0 && event && self->options.on_kernel_time) {
        error = cl->get_event_time(event, 0x1282 /* START */, sizeof begin, &begin, NULL);
        if (error == 0)
            error = cl->get_event_time(event, 0x1283 /* END */, sizeof end, &end, NULL);
        if (error == 0)
            self->options.on_kernel_time(self->options.user, index, kernel_info[index].name,
                                         (double)(end - begin));
    }
    if (event)
        cl->release_event(event);
    return error;
}

/* A kernel behind `count` events; where there are no work-groups nothing but its event. */
static int32_t enqueue_kernel(const w_model *self, void *queue, int index, uint32_t count, void *const *wait,
                              void **event)
{
    const struct opencl *cl = &self->device;
    const struct launch *l = &launch_of[index];
    size_t items[3], all = 1;
    for (int i = 0; i < 3; i++) {
        items[i] = self->groups[index][i];
        if (W_MODEL_PER_CORE && items[i] > cl->units)
            items[i] = cl->units;
        items[i] *= l->block[i];
        all = items[i] == 0 ? 0 : all;
    }
    if (all == 0)
        return count || event ? cl->enqueue_marker(queue, count, count ? wait : NULL, event) : 0;
    return cl->enqueue(queue, self->kernel[index], 3, NULL, items,
                       W_MODEL_PER_CORE || l->block[0] * l->block[1] * l->block[2] > 1 ? l->block : NULL, count,
                       count ? wait : NULL, event);
}

/* One kernel. */
static bool start_one(w_model *self, int index)
{
    const size_t *groups = self->groups[index];
    const bool asked = self->options.on_kernel || self->options.on_kernel_time;
    void *event = NULL;
    step(self, index);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return true;
    int32_t error = enqueue_kernel(self, self->device.queue, index, 0, NULL,
                                   self->options.on_kernel_time ? &event : NULL);
    if (error == 0 && asked)        /* so that the hooks' times are the kernels' */
        error = tell_time(self, index, event);
    return error == 0;
}

static bool start(w_model *self, int from, int to)
{
    for (int i = from; i < to; i++)
        if (!start_one(self, i))
            return false;
    return true;
}

static bool write_buffer(const w_model *self, void *buffer, size_t at, size_t nbytes, const void *from,
                         bool waits)
{
    const struct opencl *cl = &self->device;
    return cl->write(cl->queue, buffer, waits, at, nbytes, from, 0, NULL, NULL) == 0;
}

static bool read_buffer(const w_model *self, void *buffer, size_t at, size_t nbytes, void *to)
{
    const struct opencl *cl = &self->device;
    return cl->read(cl->queue, buffer, 0, at, nbytes, to, 0, NULL, NULL) == 0;
}

static int to_device(w_model *self);

/* The end of a run's list: an event of the caller's, if it asks for one. */
static int mark(w_model *self, void **event)
{
    const struct opencl *cl = &self->device;
    if (to_device(self) != W_MODEL_OK || (event && cl->enqueue_marker(cl->queue, 0, NULL, event) != 0))
        return W_MODEL_DEVICE_FAILED;
    if (cl->flush(cl->queue) == 0)
        return W_MODEL_OK;
    if (event)
        cl->release_event(*event);
    if (event)
        *event = NULL;
    return W_MODEL_DEVICE_FAILED;
}

/* Whether the caller's buffer can be this place. */
static int check_buffer(const w_model *self, int place, void *buffer, size_t at, size_t *room)
{
    const struct opencl *cl = &self->device;
    void *context = NULL;
    size_t nbytes = 0;
    if (cl->get_buffer_info(buffer, 0x1106 /* CONTEXT */, sizeof context, &context, NULL) != 0 ||
        cl->get_buffer_info(buffer, 0x1102 /* SIZE */, sizeof nbytes, &nbytes, NULL) != 0)
        return W_MODEL_DEVICE_FAILED;
    if (context != cl->context)
        complain(self, "the buffer is of another context than the model: pass that one in options.context");
    else if (at % 128 != 0)
        complain(self, "a tensor begins at a multiple of 128 bytes of a buffer");
    else if (at >= nbytes || place_info[place].nbytes > nbytes - at)
        complain(self, "the buffer ends before the tensor does");
    else {
        *room = nbytes - at;
        return W_MODEL_OK;
    }
    return W_MODEL_BAD_OPTIONS;
}

/* A place is the model's own. */
static void reset_place(w_model *self, int place)
{
    struct place *p = &self->place[place];
    if (p->is_bound)
        let_buffer(self, p->buffer);
    p->buffer = place == 1 ? self->device.weights : self->device.memory;
    p->at = place_info[place].at;
    p->is_bound = false;
}

/* The list of a run, with the arguments that stay. */
static int begin_list(w_model *self)
{
    for (int i = 0; i < W_MODEL_PLACES; i++)
        reset_place(self, i);
    for (int i = 0; i < W_MODEL_KERNELS; i++)
        for (int d = 0; d < 3; d++)
            self->groups[i][d] = launch_of[i].groups[d];
    return record(self);
}

/* Tells all kernels where the place is. */
static bool tell_place(w_model *self, int place)
{
    bool done = true;
    for (int i = 0; i < W_MODEL_KERNELS && done; i++) {
        const struct argument *a = &argument_of[launch_of[i].first];
        for (int k = 0; k < launch_of[i].count && done; k++)
            done = a[k].place != place || set_argument(self, i, k, a[k].at);
    }
    self->place[place].is_stale = !done;
    return done;
}

/* Before a run: what could not be told before. */
static int renew(w_model *self)
{
    for (int i = 0; i < W_MODEL_PLACES; i++)
        if (self->place[i].is_stale && !tell_place(self, i))
            return W_MODEL_DEVICE_FAILED;
    return W_MODEL_OK;
}

/* Copies an input to its place, unless that is the caller's buffer. */
static int put(w_model *self, int place, const void *from, size_t nbytes)
{
    const struct place *p = &self->place[place];
    if (p->is_bound && nbytes > p->room) {
        complain(self, "the caller's buffer ends before an input of this run's size does");
        return W_MODEL_BAD_OPTIONS;
    }
    if (p->is_bound || nbytes == 0)
        return W_MODEL_OK;
    if (to_device(self) != W_MODEL_OK || !write_buffer(self, p->buffer, p->at, nbytes, from, false))
        return W_MODEL_DEVICE_FAILED;
    return W_MODEL_OK;
}

/* Copies a result from its place, unless that is the caller's buffer. */
static int get(w_model *self, int place, void *to, size_t nbytes)
{
    const struct place *p = &self->place[place];
    if (p->is_bound || nbytes == 0)
        return W_MODEL_OK;
    if (to_device(self) != W_MODEL_OK || !read_buffer(self, p->buffer, p->at, nbytes, to))
        return W_MODEL_DEVICE_FAILED;
    return W_MODEL_OK;
}

/* Kernels from .. to - 1 of the list. */
static int run_part(w_model *self, int from, int to)
{
    return to_device(self) == W_MODEL_OK && start(self, from, to) ? W_MODEL_OK : W_MODEL_DEVICE_FAILED;
}

static int enqueue_list(w_model *self, const w_model_inputs *in, w_model_outputs *out, void **event);

/* If it fails, nothing of it goes on that touches the caller's memory. */
int w_model_enqueue(w_model *self, const w_model_inputs *in, w_model_outputs *out, void **event)
{
    if (event)
        *event = NULL;
    int status = enqueue_list(self, in, out, event);
    if (status != W_MODEL_OK && self && self->opened == self)
        wait_all(self);
    return status;
}

int w_model_wait(w_model *self)
{
    if (!self)
        return W_MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return W_MODEL_NOT_INITIALIZED;
    return wait_all(self) ? W_MODEL_OK : W_MODEL_DEVICE_FAILED;
}

int w_model_run(w_model *self, const w_model_inputs *in, w_model_outputs *out)
{
    int begun = w_model_enqueue(self, in, out, NULL);
    int ended = begun == W_MODEL_NULL_ARGUMENT || begun == W_MODEL_NOT_INITIALIZED ? begun : w_model_wait(self);
    return begun == W_MODEL_OK ? ended : begun;
}

/* The caller's buffer, or NULL, the model's own, becomes a place; arguments that were recorded are
 * patched. If that fails the place is what it was. */
static int bind_place(w_model *self, int place, void *buffer, size_t at)
{
    if (buffer && place_info[place].is_of_host) {
        complain(self, "the host computes with this tensor, so it cannot be a buffer of the caller's");
        return W_MODEL_BAD_OPTIONS;
    }
    size_t room = 0;
    int status = buffer ? check_buffer(self, place, buffer, at, &room) : W_MODEL_OK;
    if (status != W_MODEL_OK)
        return status;
    if (buffer && !hold_buffer(self, buffer))
        return W_MODEL_DEVICE_FAILED;
    struct place *p = &self->place[place];
    const struct place before = *p, bound = {buffer, at, room, true, false};
    p->is_bound = false;
    if (buffer)
        *p = bound;
    else
        reset_place(self, place);
    if (tell_place(self, place)) {
        if (before.is_bound)
            let_buffer(self, before.buffer);
        return W_MODEL_OK;
    }
    if (buffer)
        let_buffer(self, buffer);
    *p = before;
    p->is_stale = true;
    return W_MODEL_DEVICE_FAILED;
}

int w_model_bind_input(w_model *self, int input, void *buffer, size_t at)
{
    if (!self)
        return W_MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return W_MODEL_NOT_INITIALIZED;
    return input < 0 || input >= W_MODEL_INPUTS ? W_MODEL_BAD_OPTIONS : bind_place(self, 2 + input, buffer, at);
}

int w_model_bind_output(w_model *self, int output, void *buffer, size_t at)
{
    if (!self)
        return W_MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return W_MODEL_NOT_INITIALIZED;
    return output < 0 || output >= W_MODEL_PLACES - 2 - W_MODEL_INPUTS
               ? W_MODEL_BAD_OPTIONS
               : bind_place(self, 2 + W_MODEL_INPUTS + output, buffer, at);
}

/* Copies the weights to the device. */
static int put_weights(w_model *self)
{
    (void)self;
    return W_MODEL_OK;
}

int w_model_init(w_model **made, void *arena, size_t arena_bytes, const w_model_options *options)
{
    if (made)
        *made = NULL;
    if (!made || !arena)
        return W_MODEL_NULL_ARGUMENT;
    if ((uintptr_t)arena % W_MODEL_ARENA_ALIGN != 0)
        return W_MODEL_ARENA_MISALIGNED;
    if (arena_bytes < W_MODEL_ARENA_BYTES)
        return W_MODEL_ARENA_TOO_SMALL;
    if (options && options->threads < 0)
        return W_MODEL_BAD_OPTIONS;
    w_model *self = (w_model *)arena;
    memset((void *)self, 0, sizeof *self);
    if (options)
        self->options = *options;
    int status = device_open(self, kernel_text, sizeof kernel_text / sizeof *kernel_text,
                             false, 0);
    if (status == W_MODEL_OK)
        status = begin_list(self);
    if (status == W_MODEL_OK)
        status = put_weights(self);
    if (status != W_MODEL_OK) {
        device_close(self);
        return status;
    }
    self->opened = self;
    *made = self;
    return W_MODEL_OK;
}

static int enqueue_list(w_model *self, const w_model_inputs *in, w_model_outputs *out, void **event)
{
    if (!self || !in || !out)
        return W_MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return W_MODEL_NOT_INITIALIZED;
    if ((!in->a && !self->place[2].is_bound) || (!in->b && !self->place[3].is_bound))
        return W_MODEL_MISSING_INPUT;
    if ((!out->y && !self->place[4].is_bound))
        return W_MODEL_MISSING_OUTPUT;
    int status;

    status = renew(self);
    if (status != W_MODEL_OK)
        return status;
    status = put(self, 2, in->a, (size_t)(64) * (size_t)(40) * 4);
    if (status != W_MODEL_OK)
        return status;
    status = put(self, 3, in->b, (size_t)(40) * (size_t)(48) * 4);
    if (status != W_MODEL_OK)
        return status;
    status = run_part(self, 0, 1);
    if (status != W_MODEL_OK)
        return status;
    status = get(self, 4, out->y, (size_t)(64) * 8);
    if (status != W_MODEL_OK)
        return status;
    status = mark(self, event);
    if (status != W_MODEL_OK)
        return status;
    step(self, -1);
    return W_MODEL_OK;
}

void w_model_close(w_model *self)
{
    if (self && self->opened == self)
        device_close(self);
    if (self)
        self->opened = NULL;
}

const char *w_model_strerror(int status)
{
    switch (status) {
    case W_MODEL_OK: return "success";
    case W_MODEL_NULL_ARGUMENT: return "a pointer to the model, the arena, the inputs or the outputs is NULL";
    case W_MODEL_ARENA_TOO_SMALL: return "the arena is smaller than the ARENA_BYTES macro says";
    case W_MODEL_ARENA_MISALIGNED: return "the arena's address is not a multiple of the ARENA_ALIGN macro";
    case W_MODEL_MISSING_INPUT: return "an input's pointer is NULL";
    case W_MODEL_MISSING_OUTPUT: return "an output's pointer is NULL";
    case W_MODEL_DIM_OUT_OF_RANGE: return "a run-time dimension is outside its bounds";
    case W_MODEL_BAD_OPTIONS: return "an option has a value that this model cannot use";
    case W_MODEL_MISSING_WEIGHTS: return "the options give no weights, too few bytes of them, or not 64-byte aligned";
    case W_MODEL_TOO_MANY_RESULTS: return "a result of data-dependent size does not fit its bound";
    case W_MODEL_BAD_VALUE: return "an input holds a value that the model cannot use, such as an index out of range";
    case W_MODEL_DEVICE_FAILED: return "the device or its driver failed";
    case W_MODEL_NOT_INITIALIZED: return "the model was not initialized, or it was closed";
    case W_MODEL_DIM_MISMATCH: return "the run-time dimensions do not go together: the model needs sizes equal that they make different";
    case W_MODEL_NO_THREADS: return "a thread could not be started";
    case W_MODEL_NO_DECODER: return "the image's format needs a library that the program was built without; see image_decode() in it";
    case W_MODEL_STATE_FULL: return "a state would grow beyond the bound of its dimension: reset it, or compile with a larger bound";
    case W_MODEL_STATE_SIZE: return "a run-time dimension of a state is not what it was in the run before: reset the state first";
    case W_MODEL_BAD_STATE: return "the block is no state of this model: of another one, of another version of it or of tgc, or damaged";
    case W_MODEL_NO_DEVICE: return "the driver of the device is not installed, or it has no device";
    case W_MODEL_DEVICE_LACKS: return "the device lacks what the model needs: memory, 64-bit floats or images";
    case W_MODEL_OLD_DRIVER: return "the device's driver is older than the program needs";
    case W_MODEL_DEVICE_MEMORY: return "the device has not enough free memory";
    case W_MODEL_OTHER_DEVICE: return "the program has no kernels for this architecture of devices";
    default: return "unknown status";
    }
}

/* -------------------------------------------------------------------- the program: -DW_MODEL_MAIN */

#ifdef W_MODEL_MAIN

/* What the interpreter of tgc computed from the inputs of fill_random(). */
struct vector { const void *data; size_t nbytes; };
enum { selftest_count = 1 };
static const double SELFTEST_RTOL = 0.001, SELFTEST_ATOL = 0.0001;
static const int64_t selftest_symbol[] = {0};
static const struct vector selftest_input[] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
alignas(64) static const unsigned char selftest_output_0[513] =
    "\21\0\0\0\0\0\0\0\35\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0,\0\0\0\0\0\0\0(\0\0\0\0\0\0\0)\0\0\0\0\0\0\0"
    "\5\0\0\0\0\0\0\0\25\0\0\0\0\0\0\0-\0\0\0\0\0\0\0+\0\0\0\0\0\0\0(\0\0\0\0\0\0\0(\0\0\0\0\0\0\0\10"
    "\0\0\0\0\0\0\0\37\0\0\0\0\0\0\0&\0\0\0\0\0\0\0\30\0\0\0\0\0\0\0\20\0\0\0\0\0\0\0\22\0\0\0\0\0\0"
    "\0\30\0\0\0\0\0\0\0$\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\35\0\0\0\0\0\0\0(\0\0\0\0\0\0\0\20\0\0\0\0\0"
    "\0\0\20\0\0\0\0\0\0\0&\0\0\0\0\0\0\0(\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0\0\0\0\0\0\16\0\0\0\0"
    "\0\0\0\4\0\0\0\0\0\0\0\33\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\21\0\0\0\0\0\0\0\3\0\0"
    "\0\0\0\0\0\12\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0)\0\0\0\0\0\0\0'\0\0\0\0\0\0\0-\0\0\0\0\0\0\0+\0\0\0"
    "\0\0\0\0\3\0\0\0\0\0\0\0/\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\22\0\0\0\0\0\0\0+\0\0\0\0\0\0\0\16\0\0"
    "\0\0\0\0\0)\0\0\0\0\0\0\0)\0\0\0\0\0\0\0 \0\0\0\0\0\0\0\24\0\0\0\0\0\0\0/\0\0\0\0\0\0\0\21\0\0"
    "\0\0\0\0\0\34\0\0\0\0\0\0\0/\0\0\0\0\0\0\0\32\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\22\0\0\0\0\0\0\0)\0"
    "\0\0\0\0\0\0\1\0\0\0\0\0\0\0,\0\0\0\0\0\0\0\27\0\0\0\0\0\0\0\36\0\0\0\0\0\0\0";
static const struct vector selftest_output[] = {{selftest_output_0, 512}, {NULL, 0}};

/* Fills n elements: floats in [-1, 1), the narrow ones in [0.5, 1) or so; integers in 0..3; bool 0
 * or 1. */
static void fill_random(const char *dtype, void *data, size_t element_bytes, size_t n,
                        uint32_t seed)
{
    unsigned char *at = (unsigned char *)data;
    uint32_t x = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < n; i++, at += element_bytes) {
        x ^= x << 13; /* xorshift32 */
        x ^= x >> 17;
        x ^= x << 5;
        float f32 = (float)(x >> 8) * 0x1p-23f - 1.0f;
        double f64 = (double)f32;
        uint64_t bits = strcmp(dtype, "bool") == 0   ? x >> 9 & 1
                        : strcmp(dtype, "f16") == 0  ? 0x3800u | (x >> 9 & 0x83ff)
                        : strcmp(dtype, "bf16") == 0 ? 0x3f00u | (x >> 9 & 0x807f)
                        : dtype[0] == 'f'            ? 0x30u | (x >> 9 & 7)
                                                     : x >> 9 & 3;
        if (strcmp(dtype, "f32") == 0) {
            memcpy(at, &f32, 4);
        } else if (strcmp(dtype, "f64") == 0) {
            memcpy(at, &f64, 8);
        } else {
            const uint16_t one = 1; /* its first byte is 1 where that is the least significant one */
            unsigned char first;
            memcpy(&first, &one, 1);
            for (size_t k = 0; k < element_bytes; k++)
                at[first ? k : element_bytes - 1 - k] = (unsigned char)(bits >> 8 * k);
        }
    }
}

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A program around the library: reads .npy files, runs, writes .npy files; checks itself; measures
 * itself. */

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(1);
}

/* All memory lives as long as the program: a list of blocks. */
struct block {
    struct block *next;
};
static struct block *blocks;

static void *get_memory(size_t nbytes)
{
    struct block *b = nbytes < SIZE_MAX - 128 ? (struct block *)malloc(nbytes + 128) : NULL;
    if (!b)
        fail(w_model_describe()->name, "out of memory");
    b->next = blocks;
    blocks = b;
    return (void *)(((uintptr_t)b + sizeof *b + 63) / 64 * 64);
}

static void free_memory(void)
{
    while (blocks) {
        struct block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

static void *read_file(const char *path, size_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail(path, strerror(errno));
    size_t n = 0, size = 1 << 16;
    char *data = (char *)get_memory(size);
    for (size_t got; (got = fread(data + n, 1, size - n, f)) > 0;) {
        n += got;
        if (n == size) {
            char *grown = (char *)get_memory(size *= 2);
            memcpy(grown, data, n);
            data = grown;
        }
    }
    if (ferror(f))
        fail(path, strerror(errno));
    fclose(f);
    *nbytes = n;
    return data;
}

/* Files and reference vectors have the least significant byte first; some machines do not. */
static int is_little_endian(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* A copy with the bytes of each element in reverse order. */
static void *reversed(const void *from, size_t element_bytes, size_t nbytes)
{
    const unsigned char *s = (const unsigned char *)from;
    unsigned char *data = (unsigned char *)get_memory(nbytes);
    for (size_t i = 0; i < nbytes; i += element_bytes)
        for (size_t k = 0; k < element_bytes; k++)
            data[i + k] = s[i + element_bytes - 1 - k];
    return data;
}

/* NumPy's descr of a dtype; what NumPy has no name for travels as its bits. */
static const char *npy_descr(const char *dtype)
{
    static const char *const table[][2] = {
        {"f32", "<f4"}, {"f64", "<f8"}, {"f16", "<f2"}, {"bf16", "<u2"}, {"bool", "|b1"},
        {"i8", "|i1"},  {"i16", "<i2"}, {"i32", "<i4"}, {"i64", "<i8"},  {"u8", "|u1"},
        {"u16", "<u2"}, {"u32", "<u4"}, {"u64", "<u8"}, {"i4", "|i1"},   {"i2", "|i1"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i][0], dtype) == 0)
            return table[i][1];
    return "|u1";
}

/* NumPy keeps strings as rows of UCS-4, filled up with zeros; here they are UTF-8. */
static size_t put_utf8(char *to, uint32_t c)
{
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(lead[more] | (unsigned char)(c >> 6 * more));
    for (int i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
    return (size_t)more + 1;
}

static uint32_t get_utf8(const char **from)
{
    const unsigned char *s = (const unsigned char *)*from;
    int more = s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;
    uint32_t c = more ? s[0] & (0x3fu >> more) : s[0];
    int i = 1;
    for (; i <= more && (s[i] & 0xc0) == 0x80; i++)
        c = c << 6 | (s[i] & 0x3f);
    *from += i;
    return c;
}

static const void *read_strings(const unsigned char *data, size_t count, size_t width)
{
    const char **string = (const char **)get_memory(count * sizeof *string + 1);
    char *text = (char *)get_memory(count * (4 * width + 1) + 1);
    for (size_t i = 0; i < count; i++) {
        string[i] = text;
        for (size_t k = 0; k < width; k++) {
            const unsigned char *s = data + 4 * (i * width + k);
            uint32_t c = s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
            if (c)
                text += put_utf8(text, c);
        }
        *text++ = 0;
    }
    return string;
}

/* The bytes of one tensor, and its shape as the file says. */
static const void *read_npy(const char *path, const struct w_model_tensor *t, int64_t *shape)
{
    size_t n, header, at;
    const unsigned char *s = (const unsigned char *)read_file(path, &n);
    if (n < 12 || memcmp(s, "\x93NUMPY", 6) != 0)
        fail(path, "not a .npy file");
    header = s[6] == 1 ? s[8] + 256u * s[9] : s[8] + 256u * s[9] + 65536u * s[10];
    at = s[6] == 1 ? 10 : 12;
    char text[1024];
    if (header >= sizeof text || at + header > n)
        fail(path, "the .npy header is too long");
    memcpy(text, s + at, header);
    text[header] = 0;
    const char *descr = strstr(text, "'descr': '"), *dims = strstr(text, "'shape': (");
    if (!descr || !dims || strstr(text, "'fortran_order': True"))
        fail(path, "the .npy header has no descr or shape, or the array is not in C order");
    const char *wanted = npy_descr(t->dtype);
    descr += 10;
    int is_string = strcmp(t->dtype, "string") == 0;
    size_t width = is_string ? (size_t)strtoul(descr + 2, NULL, 10) : 0;
    if (is_string && strncmp(descr, "<U", 2) != 0)
        fail(path, "the array's dtype is not the input's, strings");
    if (!is_string && descr[1] != wanted[1] && !(descr[1] == 'u' && (strchr("fb", wanted[1]))))
        fail(path, "the array's dtype is not the input's");
    if (!is_string && strncmp(descr + 2, wanted + 2, 1) != 0)
        fail(path, "the array's dtype is not the input's");
    dims += 10;
    size_t count = 1, size = is_string ? 4 * width : t->element_bytes;
    for (int a = 0; a < t->rank; a++) {
        char *end;
        shape[a] = strtoll(dims, &end, 10);
        if (end == dims || shape[a] < 0 || shape[a] > t->dim[a].size ||
            (!t->dim[a].symbol && shape[a] != t->dim[a].size))
            fail(path, "the array's shape is not the input's");
        count *= (size_t)shape[a];
        dims = end + strspn(end, ", ");
    }
    if (*dims != ')')
        fail(path, "the array has more axes than the input");
    size_t nbytes = count * size;
    if (nbytes / (size ? size : 1) != (size ? count : 0) || nbytes > n - at - header)
        fail(path, "the file ends before its array");
    if (is_string)
        return read_strings(s + at + header, count, width);
    if (size > 1 && is_little_endian() != (descr[0] != '>'))
        return reversed(s + at + header, size, nbytes);
    void *data = get_memory(nbytes);
    memcpy(data, s + at + header, nbytes);
    return data;
}

/* Strings as rows of UCS-4; *width: of the longest one. */
static const void *strings_as_npy(const char *const *string, size_t count, size_t *width)
{
    *width = 1;
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        for (const char *s = string[i] ? string[i] : ""; *s; n++)
            get_utf8(&s);
        *width = n > *width ? n : *width;
    }
    unsigned char *data = (unsigned char *)get_memory(4 * count * *width + 1);
    memset(data, 0, 4 * count * *width);
    for (size_t i = 0; i < count; i++) {
        unsigned char *to = data + 4 * i * *width;
        for (const char *s = string[i] ? string[i] : ""; *s; to += 4) {
            uint32_t c = get_utf8(&s);
            for (int k = 0; k < 4; k++)
                to[k] = (unsigned char)(c >> 8 * k);
        }
    }
    return data;
}

static void write_npy(const char *folder, const struct w_model_tensor *t, const int64_t *shape,
                      const void *data)
{
    char path[4096], name[240], header[512];        /* file systems end names at 255 bytes */
    size_t length = 0, n = 0, nbytes = t->element_bytes;
    for (const char *s = t->name; *s && length + 1 < sizeof name; s++) {
        char c = *s;
        if (((unsigned char)c & 0xc0) == 0x80)      /* a character of several bytes becomes one _ */
            continue;
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
        name[length++] = plain ? c : '_';
    }
    name[length] = 0;
    if (snprintf(path, sizeof path, "%s/%s.npy", folder, name) >= (int)sizeof path)
        fail(folder, "the path is too long");
    int is_string = strcmp(t->dtype, "string") == 0;
    if (is_string) {
        size_t count = 1, width;
        for (int a = 0; a < t->rank; a++)
            count *= (size_t)shape[a];
        data = strings_as_npy((const char *const *)data, count, &width);
        nbytes = 4 * width;
        n += (size_t)snprintf(header, sizeof header, "{'descr': '<U%lld', ",
                              (long long)width);
    } else {
        n += (size_t)snprintf(header, sizeof header, "{'descr': '%s', ", npy_descr(t->dtype));
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "'fortran_order': False, 'shape': (");
    for (int a = 0; a < t->rank; a++) {
        n += (size_t)snprintf(header + n, sizeof header - n, a + 1 < t->rank ? "%lld, " : "%lld,",
                              (long long)shape[a]);
        nbytes *= (size_t)shape[a];
    }
    if (!is_string && !is_little_endian())
        data = reversed(data, t->element_bytes, nbytes);
    n += (size_t)snprintf(header + n, sizeof header - n, "), }");
    while ((n + 11) % 64 != 0)
        header[n++] = ' ';
    header[n++] = '\n';
    const unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(n & 255), (unsigned char)(n >> 8)};
    FILE *f = fopen(path, "wb");
    if (!f)
        fail(path, strerror(errno));
    if (fwrite(magic, 1, 10, f) != 10 || fwrite(header, 1, n, f) != n ||
        fwrite(data, 1, nbytes, f) != nbytes || fclose(f) != 0)
        fail(path, strerror(errno));
}

/* ---- a run on any inputs */

struct session {
    w_model *self;
    w_model_inputs *in;
    w_model_outputs *out;
    int entry;                   /* that runs; -1: each in turn, or the model has none */
};

static void check(int status, const char *what)
{
    if (status != 0)
        fail(what, w_model_strerror(status));
}

/* One run, or one of each entry. */
static int run_once(struct session *s)
{
    const struct w_model_info *info = w_model_describe();
    int64_t from = s->entry < 0 ? 0 : s->entry, to = s->entry >= 0 ? from + 1 : info->entry_count;
    int status = info->entry_count ? 0 : w_model_run(s->self, s->in, s->out);
    for (int64_t e = from; info->entry_count && e < to && status == 0; e++) {
        memcpy((char *)s->in + info->entry_offset, &e, sizeof e);
        status = w_model_run(s->self, s->in, s->out);
    }
    return status;
}

/* The same; where a state is full, all of them begin anew. */
static void run_again(struct session *s)
{
    int status = run_once(s);
#ifdef W_MODEL_STATE_BYTES
    if (status == W_MODEL_STATE_FULL) {
        check(w_model_reset(s->self), "reset");
        status = run_once(s);
    }
#endif
    check(status, "run");
}

static void set_symbol(struct session *s, const char *name, int64_t value, const char *what)
{
    const struct w_model_info *info = w_model_describe();
    for (int i = 0; i < info->symbol_count; i++) {
        const struct w_model_symbol *symbol = &info->symbols[i];
        if (strcmp(symbol->name, name) != 0 || symbol->offset == (size_t)-1)
            continue;
        int64_t known;
        memcpy(&known, (char *)s->in + symbol->offset, sizeof known);
        if (known >= 0 && known != value)
            fail(what, "two inputs disagree about a run-time dimension");
        memcpy((char *)s->in + symbol->offset, &value, sizeof value);
    }
}

static void *get_pointer(const void *structure, size_t offset)
{
    void *p;
    memcpy(&p, (const char *)structure + offset, sizeof p);
    return p;
}

static void set_pointer(void *structure, size_t offset, const void *p)
{
    memcpy((char *)structure + offset, &p, sizeof p);
}

static size_t bound_bytes(const struct w_model_tensor *t)
{
    size_t n = t->element_bytes;
    for (int a = 0; a < t->rank; a++)
        n *= (size_t)t->dim[a].size;
    return n;
}

static void get_shape(const struct session *s, const struct w_model_tensor *t, int64_t *shape)
{
    for (int a = 0; a < t->rank; a++)
        shape[a] = t->dim[a].size;
    if (t->shape_offset != (size_t)-1)
        memcpy(shape, (const char *)s->out + t->shape_offset, (size_t)t->rank * sizeof *shape);
}

static void open_session(struct session *s, const char *weights_path, const w_model_options *hooks)
{
    const struct w_model_info *info = w_model_describe();
    w_model_options options;
    memset(&options, 0, sizeof options);
    s->entry = -1;
    s->in = (w_model_inputs *)get_memory(info->inputs_bytes);
    s->out = (w_model_outputs *)get_memory(info->outputs_bytes);
    memset(s->in, 0, info->inputs_bytes);
    memset(s->out, 0, info->outputs_bytes);
    if (hooks)
        options = *hooks;
    if (info->weights_external)
        options.weights = read_file(weights_path, &options.weights_bytes);
    check(w_model_init(&s->self, get_memory(info->arena_bytes), info->arena_bytes, &options), "init");
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1) {
            int64_t unknown = -1;
            memcpy((char *)s->in + info->symbols[i].offset, &unknown, sizeof unknown);
        }
    for (int i = 0; i < info->output_count; i++)
        set_pointer(s->out, info->outputs[i].offset, get_memory(bound_bytes(&info->outputs[i])));
}

/* Pseudo-random inputs; symbols that nothing set take `symbol` of the selftest, or their bound. */
static void fill_session(struct session *s, const int64_t *symbol)
{
    const struct w_model_info *info = w_model_describe();
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1)
            set_symbol(s, info->symbols[i].name, symbol ? symbol[i] : info->symbols[i].max,
                       "symbol");
    for (int i = 0; i < info->input_count; i++) {
        const struct w_model_tensor *t = &info->inputs[i];
        size_t nbytes = bound_bytes(t);
        void *data = get_memory(nbytes);
        memset(data, 0, nbytes); /* strings stay empty */
        if (strcmp(t->dtype, "string") != 0)
            fill_random(t->dtype, data, t->element_bytes, nbytes / t->element_bytes,
                        (uint32_t)i + 1);
        set_pointer(s->in, t->offset, data);
    }
}

/* ---- the commands */

/* The entry of that name, with the inputs and outputs that it has; of a model without entries, all. */
static struct w_model_entry find_entry(const char *name, int *index)
{
    const struct w_model_info *info = w_model_describe();
    struct w_model_entry all = {"", 0, 0, 0, 0};
    all.input_count = info->input_count;
    all.output_count = info->output_count;
    *index = -1;
    if (info->entry_count == 0 && !name)
        return all;
    for (int e = 0; e < info->entry_count; e++)
        if (name && strcmp(info->entries[e].name, name) == 0) {
            *index = e;
            return info->entries[e];
        }
    fail(name ? name : info->name, name ? "there is no such entry" : "has several entries: give --entry NAME");
    return all;
}

static int run_files(char **file, int nfile, const char *folder, const char *weights_path,
                     long steps, const char *entry, const w_model_options *options)
{
    const struct w_model_info *info = w_model_describe();
    struct session s;
    int index;
    const struct w_model_entry has = find_entry(entry, &index);
    open_session(&s, weights_path, options);
    s.entry = index;
    if (nfile != has.input_count) {
        fprintf(stderr, "%s takes %d inputs, %d were given:", info->name, has.input_count, nfile);
        for (int i = 0; i < has.input_count; i++)
            fprintf(stderr, " %s.npy", info->inputs[has.input + i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    for (int i = 0; i < nfile; i++) {
        const struct w_model_tensor *t = &info->inputs[has.input + i];
        int64_t shape[16];
        set_pointer(s.in, t->offset, read_npy(file[i], t, shape));
        for (int a = 0; a < t->rank; a++)
            if (t->dim[a].symbol)
                set_symbol(&s, t->dim[a].symbol, shape[a], file[i]);
    }
    for (long i = 0; i < steps; i++)
        check(run_once(&s), "run");
    for (int i = 0; i < has.output_count; i++) {
        const struct w_model_tensor *t = &info->outputs[has.output + i];
        int64_t shape[16] = {0};
        get_shape(&s, t, shape);
        write_npy(folder, t, shape, get_pointer(s.out, t->offset));
    }
    w_model_close(s.self);
    return 0;
}

/* The element at p, whose bytes are stored in that order, as the bits of a double: a compiler that
 * was told that there is no NaN does not pass one on. */
static uint64_t element(const char *dtype, size_t nbytes, const char *p, int little_endian)
{
    uint64_t u = 0, bits;
    for (size_t k = 0; k < nbytes; k++)
        u |= (uint64_t)(unsigned char)p[little_endian ? k : nbytes - 1 - k] << 8 * k;
    if (strcmp(dtype, "f64") == 0)
        return u;
    int is_f16 = strcmp(dtype, "f16") == 0;
    int is_float = is_f16 || strcmp(dtype, "f32") == 0 || strcmp(dtype, "bf16") == 0;
    double v;
    if (is_float) {
        u = strcmp(dtype, "bf16") == 0 ? u << 16 : u;
        int width = is_f16 ? 10 : 23, top = is_f16 ? 31 : 255, e = (int)(u >> width) & top;
        uint64_t sign = u >> (is_f16 ? 15 : 31) << 63, mantissa = u & (((uint64_t)1 << width) - 1);
        if (e == top)
            return sign | (uint64_t)0x7ff << 52 | mantissa << (52 - width);
        v = (double)(mantissa | (uint64_t)(e > 0) << width);
        for (int k = is_f16 ? 25 : 150; k > (e > 0 ? e : 1); k--)
            v *= 0.5;
        for (int k = is_f16 ? 25 : 150; k < e; k++)
            v *= 2;
        memcpy(&bits, &v, sizeof bits);
        return bits | sign;
    }
    uint64_t top = (uint64_t)1 << (8 * nbytes - 1);
    v = (double)(int64_t)(dtype[0] == 'i' ? (u ^ top) - top : u);
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static int is_finite(uint64_t bits) { return (bits >> 52 & 0x7ff) != 0x7ff; }

static double value(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Elements outside |a - b| <= rtol*|b| + atol*(largest |b|). Integers must be equal. a is the
 * machine's, b has the least significant byte first. */
static size_t count_wrong(const struct w_model_tensor *t, const char *a, const char *b, size_t n)
{
    size_t wrong = 0, size = t->element_bytes;
    double largest = 0;
    int exact = !(t->dtype[0] == 'f' || strcmp(t->dtype, "bf16") == 0);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = element(t->dtype, size, b + i * size, 1);
        if (is_finite(r))
            largest = fabs(value(r)) > largest ? fabs(value(r)) : largest;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = element(t->dtype, size, a + i * size, is_little_endian());
        uint64_t r = element(t->dtype, size, b + i * size, 1);
        int same = v == r || (!is_finite(v) && !is_finite(r) && v << 12 != 0 && r << 12 != 0);
        if (!same && is_finite(v) && is_finite(r)) {
            double allowed = exact ? 0 : SELFTEST_RTOL * fabs(value(r)) + SELFTEST_ATOL * largest;
            same = fabs(value(v) - value(r)) <= allowed;
        }
        wrong += !same;
    }
    return wrong;
}

static int selftest(const char *weights_path, const w_model_options *options)
{
    const struct w_model_info *info = w_model_describe();
    struct session s;
    if (selftest_count == 0) {
        printf("%s: carries no reference vectors; tgc --vectors=always computes them\n", info->name);
        return 77;
    }
    open_session(&s, weights_path, options);
    fill_session(&s, selftest_symbol);
    for (int i = 0; i < info->input_count; i++) {
        const struct w_model_tensor *t = &info->inputs[i];
        const void *data = selftest_input[i].data;
        if (data && !is_little_endian())
            data = reversed(data, t->element_bytes, selftest_input[i].nbytes);
        if (data)
            set_pointer(s.in, t->offset, data);
    }
    check(run_once(&s), "run");
#ifdef W_MODEL_STATE_BYTES
    /* the first run is the reference's; a second one may change the states, which then begin anew
     */
    int status = run_once(&s);
    check(status == W_MODEL_STATE_FULL ? W_MODEL_OK : status, "run");
    check(w_model_reset(s.self), "reset");
    check(run_once(&s), "run");
#endif
    int failed = 0;
    for (int i = 0; i < info->output_count; i++) {
        const struct w_model_tensor *t = &info->outputs[i];
        int64_t shape[16];
        size_t n = 1;
        get_shape(&s, t, shape);
        for (int a = 0; a < t->rank; a++)
            n *= (size_t)shape[a];
        const char *actual = (const char *)get_pointer(s.out, t->offset);
        int sized = n * t->element_bytes == selftest_output[i].nbytes;
        size_t wrong = sized ? count_wrong(t, actual, (const char *)selftest_output[i].data, n) : n;
        printf("%-24s %lld of %lld elements agree with the reference\n", t->name,
               (long long)(n - wrong), (long long)n);
        failed |= wrong > 0 || !sized;
    }
    w_model_close(s.self);
    printf("%s: selftest %s\n", info->name, failed ? "FAILED" : "passed");
    return failed;
}

/* Seconds since the first call, and how many are long beside the clock's steps. */
#ifdef TIME_UTC
static const double long_time = 1e-4;

static double now(void)
{
    static time_t first;
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    first = first ? first : t.tv_sec;
    return (double)(t.tv_sec - first) + 1e-9 * (double)t.tv_nsec;
}
#else /* newlib, and other libraries before C11 */
static const double long_time = 100.0 / (double)CLOCKS_PER_SEC;

static double now(void)
{
    return (double)clock() / (double)CLOCKS_PER_SEC;
}
#endif

struct profile {
    double *seconds, *least; /* of each kernel: in this run, in the run where it took least */
    double since;
    int kernel;
};

static void on_kernel(void *user, int index, const char *kernel)
{
    struct profile *p = (struct profile *)user;
    double t = now();
    if (p->kernel >= 0)
        p->seconds[p->kernel] += t - p->since;
    p->kernel = kernel ? index : -1;
    p->since = t;
}

static int bench(const char *weights_path, double seconds, const w_model_options *options)
{
    const struct w_model_info *info = w_model_describe();
    struct session s;
    double best = 1e30, total = 0;
    int runs = 0, at_once = 1; /* as many as take a long time */
    open_session(&s, weights_path, options);
    fill_session(&s, NULL);
    run_again(&s);
    while (total < seconds || runs < 3) {
        double start = now();
        for (int i = 0; i < at_once; i++)
            run_again(&s);
        double t = now() - start;
        if (t < long_time && at_once < 1 << 20) {
            at_once *= 2;
            continue;
        }
        best = t < best * at_once ? t / at_once : best;
        total += t;
        runs += at_once;
    }
    printf("%s: best %.4g us, mean %.4g us of %d runs; %.3g GFLOP, %.3g GFLOP/s\n", info->name,
           1e6 * best, 1e6 * total / runs, runs, 1e-9 * info->flop,
           best > 0 ? 1e-9 * info->flop / best : 0.0);
    w_model_close(s.self);

    int count = info->kernel_count;
    double *times = (double *)get_memory(2 * sizeof(double) * ((size_t)count + 1));
    struct profile p = {times, times + count, 0, -1};
    w_model_options hooks = *options;
    hooks.on_kernel = on_kernel;
    hooks.user = &p;
    open_session(&s, weights_path, &hooks);
    fill_session(&s, NULL);
    for (int r = 0; r < runs; r++) {
        p.kernel = -1;
        for (int i = 0; i < count; i++)
            p.seconds[i] = 0;
        run_again(&s);
        for (int i = 0; i < count; i++)
            p.least[i] = r == 0 || p.seconds[i] < p.least[i] ? p.seconds[i] : p.least[i];
    }
    printf("%10s %10s  kernel\n", "us", "GFLOP/s");
    for (int i = 0; i < count; i++) {
        double t = p.least[i];
        printf("%10.3f %10.2f  %s\n", 1e6 * t, t > 0 ? 1e-9 * info->kernels[i].flop / t : 0.0,
               info->kernels[i].name);
    }
    w_model_close(s.self);
    return 0;
}

static int usage(FILE *out, int status)
{
    const struct w_model_info *info = w_model_describe();
    fprintf(out, "usage: %s IN.npy... -o DIR     run; writes DIR/NAME.npy for each output\n",
            info->name);
    for (int e = 0; e < info->entry_count; e++)
        fprintf(out, "       --entry %s\n", info->entries[e].name);
    if (info->state_count)
        fprintf(out, "       --steps N      run N times, on the same inputs; states go on from one "
                     "to the next\n");
    fprintf(out, "       %s --selftest           compare with the embedded reference vectors\n",
            info->name);
    fprintf(out, "       %s --bench [SECONDS]    measure runs, and the least time of each kernel\n",
            info->name);
    fprintf(out, "       --threads N    at most so many, and at most as compiled\n");
    fprintf(out, "       --device N     the N-th that `tgc devices` lists; 0: the first GPU, else the first\n");
    if (info->weights_external)
        fprintf(out, "       --weights FILE where %s.weights is, if not here\n", info->name);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < (k ? info->output_count : info->input_count); i++) {
            const struct w_model_tensor *t = k ? &info->outputs[i] : &info->inputs[i];
            fprintf(out, "  %s %s: %s[", k ? "output" : "input ", t->name, t->dtype);
            for (int a = 0; a < t->rank; a++) {
                if (t->dim[a].symbol)
                    fprintf(out, "%s%s<=%lld", a ? "," : "", t->dim[a].symbol,
                            (long long)t->dim[a].size);
                else
                    fprintf(out, "%s%lld", a ? "," : "", (long long)t->dim[a].size);
            }
            fprintf(out, "]\n");
        }
    return status;
}

static void on_error(void *user, const char *text)
{
    (void)user;
    fprintf(stderr, "%s: %s\n", w_model_describe()->name, text);
}

int main(int argc, char **argv)
{
    atexit(free_memory);
    const char *folder = NULL, *weights_path = "w_model.weights", *command = NULL, *entry = NULL;
    double seconds = 1;
    long steps = 1;
    char **file = (char **)get_memory(sizeof(char *) * (size_t)(argc + 1));
    int nfile = 0;
    w_model_options options;
    memset(&options, 0, sizeof options);
    options.on_error = on_error;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            folder = argv[++i];
        else if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc)
            weights_path = argv[++i];
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            options.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            steps = atol(argv[++i]);
        else if (strcmp(argv[i], "--entry") == 0 && i + 1 < argc)
            entry = argv[++i];
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            options.device = atoi(argv[++i]);
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--selftest") == 0 ||
                 strcmp(argv[i], "--bench") == 0)
            command = argv[i];
        else if (command && strcmp(command, "--bench") == 0)
            seconds = atof(argv[i]);
        else if (argv[i][0] == '-')
            return usage(stderr, 2);
        else
            file[nfile++] = argv[i];
    }
    if (command && strcmp(command, "--help") == 0)
        return usage(stdout, 0);
    if (command && strcmp(command, "--selftest") == 0)
        return selftest(weights_path, &options);
    if (command)
        return bench(weights_path, seconds, &options);
    if (!folder || steps < 1)
        return usage(stderr, 2);
    return run_files(file, nfile, folder, weights_path, steps, entry, &options);
}

#endif
