/* SPDX-License-Identifier: 0BSD */
/* amd.c - HIP, AMD's driver: what differs from CUDA and graphs.c leaves to this file. Also HIP C's
 * versions of pieces of number.c and math.c. In HIP a context is a device: each function restores
 * the device that the caller's thread had. Only functions of ROCm 5.0 are needed; constants are
 * those of its hip_runtime_api.h.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ amd
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* The kernel node of a graph: hipKernelNodeParams. */
struct kernel_node {
    unsigned block[3];
    void **extra;
    void *function;
    unsigned groups[3];
    void **parameters;
    unsigned shared_bytes;
};

/* HIP's own functions. before: the thread's device, which leave() restores. */
struct own_calls {
    const char *(*get_error)(int32_t error);
    int32_t (*get_current)(int *device);
    int32_t (*set_current)(int device);
    int32_t (*push)(void *context);
    int32_t (*pop)(void **context);
    int before;
};

/* Of ROCm 7, 6 and 5. */
static const char *const library_name[] = {
    "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
    "/opt/rocm/lib/libamdhip64.so"};
static const char no_library[] =
    "no libamdhip64.so (.7, .6, .5, also of /opt/rocm/lib) is found: ROCm's HIP is not installed";
static const char oldest_version[] = "ROCm 5.0";
static const char *const call_name[] = {
    "hipInit", "hipGetDeviceCount", "hipDeviceGet", "hipStreamCreateWithFlags",
    "hipStreamSynchronize", "hipStreamDestroy", "hipMemGetInfo", "hipMalloc", "hipHostMalloc",
    "hipHostFree", "hipFree", "hipMemcpyHtoDAsync", "hipMemcpyDtoHAsync",
    "hipPointerGetAttribute", "hipMemGetAddressRange", "hipModuleLoadDataEx", "hipModuleUnload",
    "hipModuleGetFunction", "hipModuleLaunchKernel", "hipGraphCreate", "hipGraphAddKernelNode",
    "hipGraphInstantiateWithFlags", "hipGraphExecKernelNodeSetParams", "hipGraphLaunch",
    "hipGraphExecDestroy", "hipGraphDestroy", "hipEventCreateWithFlags", "hipEventRecord",
    "hipEventElapsedTime", "hipEventDestroy", "hipGetErrorString", "hipGetDevice", "hipSetDevice",
    "hipCtxPushCurrent", "hipCtxPopCurrent"};

/* The code object of an architecture. */
struct binary { const char *arch, *code; };

//@ amd_driver_own
static const char *words_of(const model_self *self, int32_t error)
{
    return self->device.own_calls.get_error(error);
}

static int enter(model_self *self)
{
    int status = TRY(own_calls.get_current, &self->device.own_calls.before);
    return status == MODEL_OK ? TRY(own_calls.set_current, self->device.device) : status;
}

static void leave(model_self *self)
{
    self->device.own_calls.set_current(self->device.own_calls.before);
}

/* Looks up a function that older drivers lack; false: it is missing. */
static bool find_call(const model_self *self, const char *name, void *function)
{
    void *found = dlsym(self->device.library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* Without the function, a driver's streams do not report a capture, or cannot capture. */
static int ask_capture(model_self *self, int *state)
{
    int32_t (*get_capture)(void *stream, int *state);
    return find_call(self, "hipStreamIsCapturing", &get_capture)
               ? status_of(self, "hipStreamIsCapturing", get_capture(self->device.queue, state))
               : MODEL_OK;
}

static int device_of_context(model_self *self, void *context, int *device)
{
    const struct own_calls *calls = &self->device.own_calls;
    int before;
    int status = TRY(own_calls.get_current, &before);
    if (status == MODEL_OK)
        status = TRY(own_calls.push, context);
    if (status != MODEL_OK)
        return status;
    status = TRY(own_calls.get_current, device);
    calls->pop(&context);
    calls->set_current(before);
    return status;
}

/* Before ROCm 5.6 a stream cannot be asked for its device: it is taken to be the thread's current
 * one. That always holds for hipStreamLegacy (1) and hipStreamPerThread (2). */
static int device_of_stream(model_self *self, void *stream, int *device)
{
    int32_t (*get_device)(void *stream, int *device);
    if ((uintptr_t)stream > 2 && find_call(self, "hipStreamGetDevice", &get_device))
        return status_of(self, "hipStreamGetDevice", get_device(stream, device));
    return TRY(own_calls.get_current, device);
}

/* Settles on the device of the caller's context, of its stream, or the one that
 * options.device names. */
static int open_context(model_self *self)
{
    const model_options *o = &self->options;
    int of_context = -1, of_stream = -1;
    int status = o->context ? device_of_context(self, o->context, &of_context) : MODEL_OK;
    if (status == MODEL_OK && o->queue)
        status = device_of_stream(self, o->queue, &of_stream);
    if (status != MODEL_OK)
        return status;
    if (of_context >= 0 && of_stream >= 0 && of_context != of_stream) {
        complain(self, "options.queue is a stream of another device than options.context");
        return MODEL_BAD_OPTIONS;
    }
    return settle_device(self, of_context >= 0 ? of_context : of_stream);
}

static void close_context(model_self *self) { (void)self; }

/* Reads the architecture and its settings, as "gfx90a:sramecc+:xnack-". ROCm 6 has moved it within
 * the device's properties, and renamed the function that returns them. */
static int read_architecture(model_self *self, char *name, size_t n)
{
    enum { AT = 1160, AT_BEFORE = 396, WORDS = 512 };
    int32_t (*get_properties)(void *properties, int device);
    uint64_t properties[WORDS] = {0};
    const bool is_new = find_call(self, "hipGetDevicePropertiesR0600", &get_properties);
    if (!is_new && !find_call(self, "hipGetDeviceProperties", &get_properties)) {
        complain(self, "the driver has no hipGetDeviceProperties");
        return MODEL_OLD_DRIVER;
    }
    int status =
        status_of(self, "hipGetDeviceProperties", get_properties(properties, self->device.device));
    snprintf(name, n, "%s", (const char *)properties + (is_new ? AT : AT_BEFORE));
    return status;
}

static int open_module(model_self *self)
{
    char name[64], line[300];
    int status = read_architecture(self, name, sizeof name);
    if (status != MODEL_OK)
        return status;
    name[strcspn(name, ":")] = 0;
    for (size_t i = 0; i < sizeof binary_of / sizeof *binary_of; i++)
        if (strcmp(binary_of[i].arch, name) == 0)
            return TRY(load, &self->device.module, binary_of[i].code, 0, NULL, NULL);
    snprintf(line, sizeof line,
             "the kernels are not for the device, which is %s: compile with --cpu=%s (what does "
             "where tgc does not know that, it says)",
             name, name);
    complain(self, line);
    return MODEL_OTHER_DEVICE;
}

/* No opt-in is needed: each kernel declares its shared memory. */
static int allow_local(const model_self *self, int index)
{
    (void)self, (void)index;
    return MODEL_OK;
}

static int check_owner(const model_self *self, uint64_t at, bool *is_ours)
{
    enum { DEVICE_ORDINAL = 9 };
    int device = -1;
    int status = TRY(get_pointer, &device, DEVICE_ORDINAL, at);
    *is_ours = device == self->device.device;
    return status;
}

//@ amd_language
#pragma clang fp contract(off)
#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#ifndef __launch_bounds__
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(n, n)))
#endif
typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
#ifndef INT32_MAX
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#define INT64_C(x) x##ll
#define UINT64_C(x) x##ull
#endif
#ifndef INFINITY
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#endif
#define fabs(x) __builtin_fabs(x)
#define fabsf(x) __builtin_fabsf(x)
#define copysign(x, y) __builtin_copysign(x, y)
#define copysignf(x, y) __builtin_copysignf(x, y)
#define fmaf(x, y, z) __builtin_fmaf(x, y, z)
#define fma(x, y, z) __builtin_fma(x, y, z)
#define signbit(x) __builtin_signbit(x)
#define GROUPS_X (__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())
#define wait_block() \
    (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \
     __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define static static __device__
#define KEEP_LOOP _Pragma("unroll 1")
#define KEPT_TWICE 2

//@ amd_shuffle_f32
/* The value of lane t ^ m; the block is one wave. DPP exchanges within four lanes (1, 2) or a row
 * of 16 (8), ds_swizzle within 32 lanes (4, 16), and ds_bpermute across the wave. */
static inline float shuffle_f32(float x, unsigned m)
{
    const int v = __builtin_bit_cast(int, x);
    int other;
    switch (m) {
    /* the controls of DPP: quad_perm:[1,0,3,2], quad_perm:[2,3,0,1], row_ror:8 */
    case 1: other = __builtin_amdgcn_update_dpp(v, v, 0xb1, 15, 15, true); break;
    case 2: other = __builtin_amdgcn_update_dpp(v, v, 0x4e, 15, 15, true); break;
    case 4: other = __builtin_amdgcn_ds_swizzle(v, 4 << 10 | 31); break;
    case 8: other = __builtin_amdgcn_update_dpp(v, v, 0x128, 15, 15, true); break;
    case 16: other = __builtin_amdgcn_ds_swizzle(v, 16 << 10 | 31); break;
    default:
        other = __builtin_amdgcn_ds_bpermute((int)(__builtin_amdgcn_workitem_id_x() ^ m) << 2, v);
    }
    return __builtin_bit_cast(float, other);
}

//@ amd_mul_add_f32
static inline float mul_add_f32(float a, float b, float c) { return fmaf(a, b, c); }

//@ amd_exp2_f32
static inline float exp2_f32(float x) { return __builtin_exp2f(x); }

//@ amd_bits_f32
static inline uint32_t bits_f32(float v) { return __builtin_bit_cast(uint32_t, v); }

//@ amd_float_bits
static inline float float_bits(uint32_t u) { return __builtin_bit_cast(float, u); }

//@ amd_bits_f64
static inline uint64_t bits_f64(double v) { return __builtin_bit_cast(uint64_t, v); }

//@ amd_double_bits
static inline double double_bits(uint64_t u) { return __builtin_bit_cast(double, u); }

//@ amd_f16_to_f32
static inline float f16_to_f32(uint16_t h) { return (float)__builtin_bit_cast(_Float16, h); }

//@ amd_f32_to_f16
static inline uint16_t f32_to_f16(float v) { return __builtin_bit_cast(uint16_t, (_Float16)v); }

//@ amd_sqrt_f32
static inline float sqrt_f32(float x) { return __builtin_sqrtf(x); }

//@ amd_sqrt_f64
static inline double sqrt_f64(double x) { return __builtin_sqrt(x); }
