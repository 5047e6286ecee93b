/* SPDX-License-Identifier: 0BSD */
/* own.c - what CUDA has by itself, where HIP (amd/own.c) is another thing: devices, contexts,
 * images. PTX says in its first line which text it is of:
 *
 *      // of NAME.cu, 0123456789abcdef      64-bit FNV-1a of the text
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { STACK = 16 };

const char own_text[] = "TGC_EMULATOR_CUDA";
const struct language *const own_language = &language_cuda;
const size_t own_shared = 49152;
uint32_t own_wave(void) { return 32; }
int32_t own_check_graph(void) { return SUCCESS; }
/* PTX is of the text, as it says. */
int32_t own_check_kernel(const char *image, const struct signature *s, const uint64_t *nbytes)
{
    (void)image, (void)s, (void)nbytes;
    return SUCCESS;
}
bool own_is_early(enum call call) { return call == CALL_cuGetErrorString; }

static struct {
    struct context *primary;
    int retained;
} driver;

/* The thread's contexts. */
static _Thread_local struct {
    struct context *context[STACK];
    int n;
} thread;

struct context *context_now(void) { return thread.n > 0 ? thread.context[thread.n - 1] : NULL; }

/* --------------------------------------------------------------------------- devices, contexts */

/* NVRTC asks for tables of NVIDIA's own where there is a driver; it needs none. */
API int32_t cuGetExportTable(const void **table, const void *id);
int32_t cuGetExportTable(const void **table, const void *id)
{
    enter(CALL_cuGetExportTable);
    (void)id;
    *table = NULL;
    return leave(CALL_cuGetExportTable, NOT_FOUND);
}

API int32_t cuGetErrorString(int32_t error, const char **text);
int32_t cuGetErrorString(int32_t error, const char **text)
{
    enter(CALL_cuGetErrorString);
    *text = error == OUT_OF_MEMORY ? "out of memory" : "an error of the emulator's";
    return leave(CALL_cuGetErrorString, SUCCESS);
}

API int32_t cuDeviceGetCount(int *count);
int32_t cuDeviceGetCount(int *count)
{
    const int32_t status = enter(CALL_cuDeviceGetCount);
    *count = device_facts()->units > 0;
    return leave(CALL_cuDeviceGetCount, status);
}

API int32_t cuDeviceGet(int *device, int number);
int32_t cuDeviceGet(int *device, int number)
{
    int32_t status = enter(CALL_cuDeviceGet);
    if (status == SUCCESS && number != 0)
        status = misuse(INVALID_DEVICE, "there is one device, not number %d", number);
    if (status == SUCCESS && device_facts()->units == 0)
        status = INVALID_DEVICE;
    *device = 0;
    return leave(CALL_cuDeviceGet, status);
}

/* What a launch may name of a block's memory, if its function was told: by the table of compute
 * capabilities. */
static int most_shared(void)
{
    const long arch = device_facts()->arch, kib = arch == 75 ? 64 : arch == 70 || arch == 72 ? 96
                                                  : arch == 80 || arch == 87                 ? 163
                                                  : arch >= 90 && arch < 120                 ? 227
                                                                                             : 99;
    return (int)kib * 1024;
}

API int32_t cuFuncSetAttribute(void *function, int what, int value);
int32_t cuFuncSetAttribute(void *function, int what, int value)
{
    enum { SHARED_LAUNCHED = 8 };
    int32_t status = in_context(CALL_cuFuncSetAttribute);
    struct kernel_code *code = function;
    if (status == SUCCESS && (what != SHARED_LAUNCHED || value < 0 || value > most_shared()))
        status = misuse(INVALID_VALUE, "%s: attribute %d may not be %d", code->signature.name, what,
                        value);
    if (status == SUCCESS)
        code->allowed = (size_t)value;
    return leave(CALL_cuFuncSetAttribute, status);
}

API int32_t cuDeviceGetAttribute(int *value, int what, int device);
int32_t cuDeviceGetAttribute(int *value, int what, int device)
{
    enum { GROUP = 1, SHARED = 8, UNITS = 16, MAJOR = 75, MINOR = 76, SHARED_MOST = 97 };
    const struct device_facts *d = device_facts();
    int32_t status = enter(CALL_cuDeviceGetAttribute);
    (void)device;
    switch (what) {
    case GROUP: *value = (int)d->group; break;
    case SHARED: *value = (int)d->local; break;
    case UNITS: *value = (int)d->units; break;
    case MAJOR: *value = (int)d->arch / 10; break;
    case SHARED_MOST: *value = most_shared(); break;
    case MINOR: *value = (int)d->arch % 10; break;
    default: status = misuse(INVALID_VALUE, "unknown attribute %d", what);
    }
    return leave(CALL_cuDeviceGetAttribute, status);
}

API int32_t cuDevicePrimaryCtxRetain(void **context, int device);
int32_t cuDevicePrimaryCtxRetain(void **context, int device)
{
    int32_t status = enter(CALL_cuDevicePrimaryCtxRetain);
    (void)device;
    if (status == SUCCESS && driver.retained == 0) {
        driver.primary = object_create(KIND_CONTEXT, sizeof *driver.primary, NULL);
        if (driver.primary)
            driver.primary->is_primary = true;
        status = driver.primary ? SUCCESS : OUT_OF_MEMORY;
    }
    driver.retained += status == SUCCESS;
    *context = status == SUCCESS ? driver.primary : NULL;
    return leave(CALL_cuDevicePrimaryCtxRetain, status);
}

API int32_t cuDevicePrimaryCtxRelease_v2(int device);
int32_t cuDevicePrimaryCtxRelease_v2(int device)
{
    int32_t status = enter(CALL_cuDevicePrimaryCtxRelease_v2);
    (void)device;
    if (driver.retained == 0)
        status = misuse(INVALID_CONTEXT, "the primary context is not retained");
    else if (--driver.retained == 0) {
        object_end(&driver.primary->o);
        driver.primary = NULL;
    }
    return leave(CALL_cuDevicePrimaryCtxRelease_v2, status);
}

static int32_t push(struct context *c)
{
    if (thread.n == STACK)
        return misuse(INVALID_VALUE, "the thread has %d contexts already", STACK);
    thread.context[thread.n++] = c;
    return SUCCESS;
}

API int32_t cuCtxCreate_v2(void **context, unsigned flags, int device);
int32_t cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    int32_t status = enter(CALL_cuCtxCreate_v2);
    (void)flags, (void)device;
    struct context *c = status == SUCCESS ? object_create(KIND_CONTEXT, sizeof *c, NULL) : NULL;
    if (c)
        status = push(c);
    *context = c;
    return leave(CALL_cuCtxCreate_v2, c || status != SUCCESS ? status : OUT_OF_MEMORY);
}

API int32_t cuCtxDestroy_v2(void *context);
int32_t cuCtxDestroy_v2(void *context)
{
    int32_t status = enter(CALL_cuCtxDestroy_v2);
    struct context *c = object_find(context, KIND_CONTEXT);
    if (c && c == context_now())
        thread.n--;
    if (c)
        object_end(&c->o);
    return leave(CALL_cuCtxDestroy_v2, c ? status : INVALID_CONTEXT);
}

API int32_t cuCtxPushCurrent_v2(void *context);
int32_t cuCtxPushCurrent_v2(void *context)
{
    int32_t status = enter(CALL_cuCtxPushCurrent_v2);
    if (status == SUCCESS)
        status = object_find(context, KIND_CONTEXT) ? push(context) : INVALID_CONTEXT;
    return leave(CALL_cuCtxPushCurrent_v2, status);
}

API int32_t cuCtxPopCurrent_v2(void **context);
int32_t cuCtxPopCurrent_v2(void **context)
{
    int32_t status = enter(CALL_cuCtxPopCurrent_v2);
    if (thread.n == 0)
        status = misuse(INVALID_CONTEXT, "the thread has no context");
    *context = thread.n > 0 ? thread.context[--thread.n] : NULL;
    return leave(CALL_cuCtxPopCurrent_v2, status);
}

API int32_t cuCtxGetCurrent(void **context);
int32_t cuCtxGetCurrent(void **context)
{
    const int32_t status = enter(CALL_cuCtxGetCurrent);
    *context = context_now();
    return leave(CALL_cuCtxGetCurrent, status);
}

API int32_t cuCtxGetDevice(int *device);
int32_t cuCtxGetDevice(int *device)
{
    const int32_t status = in_context(CALL_cuCtxGetDevice);
    *device = 0;
    return leave(CALL_cuCtxGetDevice, status);
}

API int32_t cuPointerGetAttribute(void *value, int what, uint64_t at);
int32_t cuPointerGetAttribute(void *value, int what, uint64_t at)
{
    enum { CONTEXT = 1 };
    int32_t status = in_context(CALL_cuPointerGetAttribute);
    const struct device_memory *m = memory_find(at);
    if (status == SUCCESS && (what != CONTEXT || !m))
        status = INVALID_VALUE; /* asked of what may be anything */
    if (status == SUCCESS)
        memcpy(value, &m->o.context, sizeof m->o.context);
    return leave(CALL_cuPointerGetAttribute, status);
}

API int32_t cuStreamGetCtx(void *stream, void **context);
int32_t cuStreamGetCtx(void *stream, void **context)
{
    int32_t status = enter(CALL_cuStreamGetCtx);
    const int n = thread.n;
    thread.n = 0; /* asked of a stream of any context */
    struct stream *s = status == SUCCESS ? object_find(stream, KIND_STREAM) : NULL;
    thread.n = n;
    *context = s ? s->o.context : NULL;
    return leave(CALL_cuStreamGetCtx, s || status != SUCCESS ? status : INVALID_HANDLE);
}

/* ----------------------------------------------------------------------------------------- maps */

/* What is wrong with a tensor map's facts, by the driver's manual; NULL: nothing. */
static const char *check_map(int type, uint32_t rank, uint64_t at, const uint64_t *size,
                             const uint64_t *between_rows, const uint32_t *extent,
                             const uint32_t *step, int swizzle)
{
    const uint64_t nbytes = (uint64_t)1 << type, row = extent[0] * nbytes;
    if (rank < 1 || rank > 5)
        return "a tensor has 1 to 5 axes";
    if (at % 16)
        return "its address is no multiple of 16";
    for (uint32_t a = 0; a < rank; a++) {
        if (size[a] == 0 || size[a] > (uint64_t)1 << 32)
            return "an axis has 1 to 2^32 elements";
        if (extent[a] == 0 || extent[a] > 256)
            return "a box has 1 to 256 elements along an axis";
        if (step[a] == 0 || step[a] > 8)
            return "elements are 1 to 8 apart";
    }
    for (uint32_t a = 0; a + 1 < rank; a++) {
        const uint64_t before = a ? between_rows[a - 1] : nbytes;
        if (between_rows[a] % 16 || between_rows[a] >= (uint64_t)1 << 40)
            return "rows are a multiple of 16 bytes apart, and less than 2^40";
        if (between_rows[a] % before)
            return "a stride is a multiple of the one before it";
    }
    if (row % 16)
        return "a row of a box is a multiple of 16 bytes";
    if (swizzle < 0 || swizzle > 3 || (swizzle && row > (uint64_t)16 << swizzle))
        return "a row of a box is no longer than the bytes that are swizzled";
    return NULL;
}

API int32_t cuTensorMapEncodeTiled(struct tensor_map *map, int type, uint32_t rank, void *at,
                                   const uint64_t *size, const uint64_t *between_rows,
                                   const uint32_t *extent, const uint32_t *step, int interleave,
                                   int swizzle, int promotion, int fill);
int32_t cuTensorMapEncodeTiled(struct tensor_map *map, int type, uint32_t rank, void *at,
                               const uint64_t *size, const uint64_t *between_rows,
                               const uint32_t *extent, const uint32_t *step, int interleave,
                               int swizzle, int promotion, int fill)
{
    enum { BITS_32 = 2, BLOCKS = 1, PROMOTIONS = 4, TYPE_TF32 = 11 };
    const bool rounds = type == TYPE_TF32;
    type = rounds ? BITS_32 : type;
    int32_t status = enter(CALL_cuTensorMapEncodeTiled);
    const char *wrong =
        (uintptr_t)map % 64 ? "the map is at no multiple of 64 bytes"
        : type < 0 || type > BITS_32
            ? "an element is of another type than integers of 8, 16 and 32 bits, or tf32"
        : interleave || promotion >= PROMOTIONS || fill
            ? "interleaved, or filled by no zeros"
            : check_map(type, rank, (uintptr_t)at, size, between_rows, extent, step, swizzle);
    if (status == SUCCESS && device_facts()->arch < 90)
        wrong = "the device copies no boxes";
    if (status == SUCCESS && wrong)
        status = misuse(INVALID_VALUE, "%s", wrong);
    if (status == SUCCESS) {
        *map = (struct tensor_map){.magic = TENSOR_MAP,
                                   .at = (uintptr_t)at,
                                   .type = type,
                                   .rank = (int)rank,
                                   .swizzle = swizzle,
                                   .rounds = rounds};
        for (uint32_t a = 0; a < rank; a++) {
            map->size[a] = (uint32_t)size[a];
            map->extent[a] = extent[a];
            if (a + 1 < rank)
                map->between_rows[a] = between_rows[a];
        }
    }
    return leave(CALL_cuTensorMapEncodeTiled, status);
}

/* --------------------------------------------------------------------------------------- images */

/* Whether PTX is of that text. */
static bool is_of(const char *ptx, const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *s = text; *s; s++)
        hash = (hash ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    const char *key = strstr(ptx, ".cu, ");
    return key && strncmp(ptx, "// of ", 6) == 0 && strtoull(key + 5, NULL, 16) == hash;
}

static bool is_of_tegra(long arch)
{
    return arch == 72 || arch == 87 || arch == 101 || arch == 110;
}

/* Whether the device takes the image; machine code begins as ELF does, its flags have the
 * architecture. */
int32_t own_check_image(const char *image, const char *text)
{
    const struct device_facts *d = device_facts();
    if (memcmp(image, "\x7f" "ELF", 4) == 0) {
        uint32_t flags;
        memcpy(&flags, image + 48, sizeof flags);
        const long arch = (flags & 0xff) >= 50 ? (long)(flags & 0xff) : (long)(flags >> 8 & 0xff);
        if (!d->takes_code)
            return NO_BINARY_FOR_GPU;
        if (is_of_tegra(arch) || is_of_tegra(d->arch))
            return arch == d->arch ? SUCCESS : NO_BINARY_FOR_GPU;
        return arch / 10 == d->arch / 10 && arch <= d->arch ? SUCCESS : NO_BINARY_FOR_GPU;
    }
    const char *target = strstr(image, "\n.target sm_"), *version = strstr(image, "\n.version ");
    if (!target || !version)
        return misuse(INVALID_PTX, "neither PTX nor machine code");
    if (strtod(version + 10, NULL) >
        (double)(d->driver / 1000) - 4 + (double)(d->driver % 1000) / 100)
        return UNSUPPORTED_PTX_VERSION;
    if (strtol(target + 12, NULL, 10) > d->arch)
        return NO_BINARY_FOR_GPU;
    return is_of(image, text)
               ? SUCCESS
               : misuse(INVALID_PTX, "$TGC_EMULATOR_CUDA is not the text of this PTX");
}
