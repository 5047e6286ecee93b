/* SPDX-License-Identifier: 0BSD */
/* driver.c - objects, and the functions of platforms, devices and contexts. What was created and
 * not released is reported when the library is unloaded.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEAD = 256 };

static const struct {
    const char *name;
    int32_t failure;
} calls[] = {
#define CALL(name, failure) {#name, failure},
#include "calls.def"
#undef CALL
};

static const struct {
    const char *name;
    int32_t invalid;
} kinds[] = {
    [KIND_CONTEXT] = {"context", INVALID_CONTEXT},
    [KIND_QUEUE] = {"command queue", INVALID_COMMAND_QUEUE},
    [KIND_MEMORY] = {"memory object", INVALID_MEM_OBJECT},
    [KIND_SAMPLER] = {"sampler", INVALID_SAMPLER},
    [KIND_PROGRAM] = {"program", INVALID_PROGRAM},
    [KIND_KERNEL] = {"kernel", INVALID_KERNEL},
    [KIND_EVENT] = {"event", INVALID_EVENT},
};

static struct {
    struct object *live;
    struct object *dead[DEAD]; /* kept for a while, so that a handle's second release is known */
    unsigned ndead, number[KIND_EVENT + 1];
} driver;

struct platform the_platform;
struct device the_device;

/* ---------------------------------------------------------------------------------------- calls */

int32_t enter(enum call call)
{
    call_enter(calls[call].name);
    return call_count(calls[call].failure, DEVICE_NOT_AVAILABLE);
}

int32_t leave(enum call call, int32_t status) { return call_leave(calls[call].name, status); }

/* -------------------------------------------------------------------------------------- objects */

void *object_create(enum kind kind, size_t size, void (*end)(struct object *))
{
    struct object *o = calloc(1, size);
    if (!o)
        return NULL;
    *o = (struct object){kind, 1, 0, end, driver.live, ++driver.number[kind]};
    driver.live = o;
    return o;
}

static struct object *find_dead(const void *handle)
{
    for (unsigned i = 0; i < DEAD; i++)
        if (driver.dead[i] == handle)
            return driver.dead[i];
    return NULL;
}

void *object_find(const void *handle, enum kind kind)
{
    struct object *o = driver.live;
    while (o && o != handle)
        o = o->next;
    if (!o && handle)
        o = find_dead(handle);
    if (!o)
        misuse(0, "%p is no %s", handle, kinds[kind].name);
    else if (o->references == 0)
        misuse(0, "%s %u is released already", kinds[o->kind].name, o->number);
    else if (o->kind != kind)
        misuse(0, "%s %u is no %s", kinds[o->kind].name, o->number, kinds[kind].name);
    else
        return o;
    return NULL;
}

/* Its memory stays for a while. */
static void settle(struct object *o)
{
    if (o->references > 0 || o->holds > 0)
        return;
    struct object **at = &driver.live;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    o->end(o);
    struct object **slot = &driver.dead[driver.ndead++ % DEAD];
    free(*slot);
    *slot = o;
}

void object_hold(struct object *o) { o->holds++; }

void object_let(struct object *o)
{
    o->holds--;
    settle(o);
}

int32_t object_retain(void *handle, enum kind kind)
{
    struct object *o = object_find(handle, kind);
    if (!o)
        return kinds[kind].invalid;
    o->references++;
    return SUCCESS;
}

int32_t object_release(void *handle, enum kind kind)
{
    struct object *o = object_find(handle, kind);
    if (!o)
        return kinds[kind].invalid;
    o->references--;
    settle(o);
    return SUCCESS;
}

__attribute__((destructor)) static void end(void)
{
    for (struct object *o = driver.live; o; o = o->next)
        if (o->references > 0)
            report("%s %u is not released", kinds[o->kind].name, o->number);
    for (unsigned i = 0; i < DEAD; i++)
        free(driver.dead[i]);
}

/* What is not released now. */
API int emulator_live(void);
int emulator_live(void)
{
    int n = 0;
    for (struct object *o = driver.live; o; o = o->next)
        n += o->references > 0;
    return n;
}

/* -------------------------------------------------------------------------------------- queries */

int32_t answer(const void *value, size_t n, size_t size, void *to, size_t *need)
{
    if (need)
        *need = n;
    if (to && size < n)
        return misuse(INVALID_VALUE, "%zu bytes for an answer of %zu", size, n);
    if (to)
        memcpy(to, value, n);
    return SUCCESS;
}

int32_t answer_text(const char *s, size_t size, void *to, size_t *need)
{
    return answer(s, strlen(s) + 1, size, to, need);
}

/* Little-endian machines alone run this. */
int32_t answer_number(uint64_t value, size_t nbytes, size_t size, void *to, size_t *need)
{
    return answer(&value, nbytes, size, to, need);
}

static int32_t platform_info(const void *platform, uint32_t what, size_t size, void *to,
                             size_t *need)
{
    enum { PROFILE = 0x900, VERSION, NAME, VENDOR, EXTENSIONS };
    if (platform && platform != &the_platform)
        return misuse(INVALID_PLATFORM, "%p is no platform", platform);
    switch (what) {
    case PROFILE:
        return answer_text("FULL_PROFILE", size, to, need);
    case VERSION:
        return answer_text("OpenCL 1.2 emulator", size, to, need);
    case NAME:
        return answer_text("emulator", size, to, need);
    case VENDOR:
        return answer_text("tgc", size, to, need);
    case EXTENSIONS:
        return answer_text("", size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

static int32_t device_sizes(uint32_t what, size_t size, void *to, size_t *need)
{
    const struct device_facts *d = device_facts();
    const size_t sizes[3] = {(size_t)d->axis, (size_t)d->axis, (size_t)d->axis};
    (void)what;
    return answer(sizes, sizeof sizes, size, to, need);
}

static int32_t device_extensions(size_t size, void *to, size_t *need)
{
    const struct device_facts *d = device_facts();
    char text[256];
    snprintf(text, sizeof text, "cl_khr_byte_addressable_store%s%s%s%s",
             d->is_double ? " cl_khr_fp64" : "", d->is_half ? " cl_khr_fp16" : "",
             d->subgroup ? " cl_khr_subgroups cl_khr_subgroup_shuffle" : "",
             d->is_image && d->pitch ? " cl_khr_image2d_from_buffer" : "");
    return answer_text(text, size, to, need);
}

static int32_t device_info(const void *device, uint32_t what, size_t size, void *to, size_t *need)
{
    const struct device_facts *d = device_facts();
    enum {
        GPU = 1 << 2,
        FLOATS = 0x3f,
        READ_WRITE_CACHE = 2,
        LOCAL = 1,
        OUT_OF_ORDER_PROFILING = 3
    };
    if (device != &the_device)
        return misuse(INVALID_DEVICE, "%p is no device", device);
    const struct {
        uint32_t what;
        size_t nbytes;
        uint64_t value;
    } number[] = {
        {0x1000, 8, GPU},
        {0x1001, 4, 1},
        {0x1002, 4, (uint64_t)d->units},
        {0x1003, 4, 3},
        {0x1004, 8, (uint64_t)d->group},
        {0x100c, 4, 1000},
        {0x100d, 4, 64},
        {0x1010, 8, (uint64_t)(d->most ? d->most : d->memory)},
        {0x1016, 4, d->is_image != 0},
        {0x100e, 4, 128},
        {0x100f, 4, 64},
        {0x1011, 8, (uint64_t)d->width},
        {0x1012, 8, (uint64_t)d->width},
        {0x1017, 8, 1024},
        {0x1019, 4, (uint64_t)d->align * 8},
        {0x101a, 4, (uint64_t)d->align},
        {0x101b, 8, FLOATS},
        {0x101c, 4, READ_WRITE_CACHE},
        {0x101d, 4, 64},
        {0x101e, 8, 1 << 20},
        {0x101f, 8, (uint64_t)d->memory},
        {0x1020, 8, 65536},
        {0x1021, 4, 8},
        {0x1022, 4, LOCAL},
        {0x1023, 8, (uint64_t)d->local},
        {0x1024, 4, 0},
        {0x1025, 8, 1},
        {0x1026, 4, 1},
        {0x1027, 4, 1},
        {0x1028, 4, 1},
        {0x1029, 8, 1},
        {0x102a, 8, OUT_OF_ORDER_PROFILING},
        {0x1031, 8, (uint64_t)(uintptr_t)&the_platform},
        {0x1032, 8, d->is_double ? FLOATS : 0},
        {0x1033, 8, d->is_half ? FLOATS : 0},
        {0x1034, 4, d->is_half ? 8 : 0},
        {0x1035, 4, d->is_unified != 0},
        {0x1018, 4, 16},
        {0x1040, 8, (uint64_t)d->pixels},
        {0x104a, 4, (uint64_t)d->pitch},
        {0x104b, 4, (uint64_t)d->align},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (number[i].what == what)
            return answer_number(number[i].value, number[i].nbytes, size, to, need);
    switch (what) {
    case 0x1005:
        return device_sizes(what, size, to, need);
    case 0x102b:
        return answer_text(d->name, size, to, need);
    case 0x102c:
        return answer_text("tgc", size, to, need);
    case 0x102d:
        return answer_text(d->version, size, to, need);
    case 0x102e:
        return answer_text("FULL_PROFILE", size, to, need);
    case 0x102f:
        return answer_text("OpenCL 1.2 emulator", size, to, need);
    case 0x1030:
        return device_extensions(size, to, need);
    case 0x103d:
        return answer_text("OpenCL C 1.2", size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

/* ------------------------------------------------------------------------------------ functions */

API int32_t clGetPlatformIDs(uint32_t most, void **platform, uint32_t *count);
int32_t clGetPlatformIDs(uint32_t most, void **platform, uint32_t *count)
{
    int32_t status = enter(CALL_clGetPlatformIDs);
    if (status == SUCCESS && ((!platform && !count) || (platform && most == 0)))
        status = misuse(INVALID_VALUE, "no place for a platform");
    if (status == SUCCESS && platform)
        *platform = &the_platform;
    if (status == SUCCESS && count)
        *count = 1;
    return leave(CALL_clGetPlatformIDs, status);
}

API int32_t clGetPlatformInfo(void *platform, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetPlatformInfo(void *platform, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetPlatformInfo);
    if (status == SUCCESS)
        status = platform_info(platform, what, size, to, need);
    return leave(CALL_clGetPlatformInfo, status);
}

static int32_t device_ids(void *platform, uint64_t type, uint32_t most, void **device,
                          uint32_t *count)
{
    enum { DEFAULT = 1, GPU = 1 << 2 };
    if (platform && platform != &the_platform)
        return misuse(INVALID_PLATFORM, "%p is no platform", platform);
    if ((!device && !count) || (device && most == 0))
        return misuse(INVALID_VALUE, "no place for a device");
    if (!(type & (DEFAULT | GPU)))
        return DEVICE_NOT_FOUND;
    if (device)
        *device = &the_device;
    if (count)
        *count = 1;
    return SUCCESS;
}

API int32_t clGetDeviceIDs(void *platform, uint64_t type, uint32_t most, void **device,
                           uint32_t *count);
int32_t clGetDeviceIDs(void *platform, uint64_t type, uint32_t most, void **device, uint32_t *count)
{
    int32_t status = enter(CALL_clGetDeviceIDs);
    if (status == SUCCESS)
        status = device_ids(platform, type, most, device, count);
    return leave(CALL_clGetDeviceIDs, status);
}

API int32_t clGetDeviceInfo(void *device, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetDeviceInfo(void *device, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetDeviceInfo);
    if (status == SUCCESS)
        status = device_info(device, what, size, to, need);
    return leave(CALL_clGetDeviceInfo, status);
}

/* Devices that are no parts of another have no count. */
API int32_t clRetainDevice(void *device);
int32_t clRetainDevice(void *device)
{
    enter(CALL_clRetainDevice);
    return leave(CALL_clRetainDevice, device == &the_device ? SUCCESS : INVALID_DEVICE);
}

API int32_t clReleaseDevice(void *device);
int32_t clReleaseDevice(void *device)
{
    enter(CALL_clReleaseDevice);
    return leave(CALL_clReleaseDevice, device == &the_device ? SUCCESS : INVALID_DEVICE);
}

static void end_context(struct object *o) { (void)o; }

static int32_t create_context(uint32_t count, void *const *device, void **made)
{
    if (count == 0 || !device)
        return misuse(INVALID_VALUE, "no device");
    for (uint32_t i = 0; i < count; i++)
        if (device[i] != &the_device)
            return misuse(INVALID_DEVICE, "%p is no device", device[i]);
    *made = object_create(KIND_CONTEXT, sizeof(struct context), end_context);
    return *made ? SUCCESS : OUT_OF_HOST_MEMORY;
}

API void *clCreateContext(const intptr_t *properties, uint32_t count, void *const *device,
                          void (*notify)(const char *, const void *, size_t, void *), void *user,
                          int32_t *error);
void *clCreateContext(const intptr_t *properties, uint32_t count, void *const *device,
                      void (*notify)(const char *, const void *, size_t, void *), void *user,
                      int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateContext);
    (void)properties;
    if (status == SUCCESS && !notify && user)
        status = misuse(INVALID_VALUE, "data for a callback that there is not");
    if (status == SUCCESS)
        status = create_context(count, device, &made);
    if (error)
        *error = status;
    leave(CALL_clCreateContext, status);
    return made;
}

static int32_t context_info(void *context, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { REFERENCES = 0x1080, DEVICES, PROPERTIES, COUNT };
    const struct context *c = object_find(context, KIND_CONTEXT);
    void *device = &the_device;
    if (!c)
        return INVALID_CONTEXT;
    switch (what) {
    case REFERENCES:
        return answer_number((uint64_t)c->o.references, 4, size, to, need);
    case DEVICES:
        return answer(&device, sizeof device, size, to, need);
    case PROPERTIES:
        return answer(NULL, 0, size, NULL, need);
    case COUNT:
        return answer_number(1, 4, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

API int32_t clGetContextInfo(void *context, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetContextInfo(void *context, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetContextInfo);
    if (status == SUCCESS)
        status = context_info(context, what, size, to, need);
    return leave(CALL_clGetContextInfo, status);
}

/* Functions that count references, of each kind. */
#define RETAIN(name, kind)                                                                         \
    API int32_t name(void *handle);                                                                \
    int32_t name(void *handle)                                                                     \
    {                                                                                              \
        int32_t status = enter(CALL_##name);                                                       \
        return leave(CALL_##name, status == SUCCESS ? object_retain(handle, kind) : status);       \
    }
#define RELEASE(name, kind)                                                                        \
    API int32_t name(void *handle);                                                                \
    int32_t name(void *handle)                                                                     \
    {                                                                                              \
        enter(CALL_##name);                                                                        \
        return leave(CALL_##name, object_release(handle, kind));                                   \
    }
RETAIN(clRetainContext, KIND_CONTEXT)
RELEASE(clReleaseContext, KIND_CONTEXT)
RETAIN(clRetainCommandQueue, KIND_QUEUE)
RETAIN(clRetainMemObject, KIND_MEMORY)
RELEASE(clReleaseMemObject, KIND_MEMORY)
RETAIN(clRetainSampler, KIND_SAMPLER)
RELEASE(clReleaseSampler, KIND_SAMPLER)
RETAIN(clRetainProgram, KIND_PROGRAM)
RELEASE(clReleaseProgram, KIND_PROGRAM)
RETAIN(clRetainKernel, KIND_KERNEL)
RELEASE(clReleaseKernel, KIND_KERNEL)
RETAIN(clRetainEvent, KIND_EVENT)
RELEASE(clReleaseEvent, KIND_EVENT)
