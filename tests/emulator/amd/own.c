/* SPDX-License-Identifier: 0BSD */
/* own.c - what HIP has by itself: devices, which are contexts, too, and of which a thread has one
 * always; images, which are code objects. Besides what cuda/ reads, $TGC_EMULATOR_DEVICE has
 *
 *      version=gfx90a:sramecc+:xnack-       the architecture, gfx1100 otherwise
 *      devices=2                            how many there are
 *      driver=5000                          before ROCm 6: graphs take no functions of modules
 */
#define _GNU_SOURCE
#include "names.h"

#include "../cuda/driver.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2 };

const char own_text[] = "TGC_EMULATOR_AMD";
const struct language *const own_language = &language_hip;
const size_t own_shared = 65536;
bool own_is_early(enum call call) { return call == CALL_hipGetErrorString; }

static struct context device[DEVICES];
static _Thread_local int current;

struct context *context_now(void) { return &device[current]; }

static int count(void) { return device_facts()->units > 0 ? (int)device_facts()->devices : 0; }

static const char *architecture(void)
{
    return strncmp(device_facts()->version, "gfx", 3) == 0 ? device_facts()->version : "gfx1100";
}

uint32_t own_wave(void) { return strncmp(architecture(), "gfx9", 4) == 0 ? 64 : 32; }
int32_t own_check_graph(void)
{
    return device_facts()->driver < 6000 ? INVALID_DEVICE_FUNCTION : SUCCESS;
}

API const char *hipGetErrorString(int32_t error);
const char *hipGetErrorString(int32_t error)
{
    return error == OUT_OF_MEMORY ? "out of memory" : "an error of the emulator's";
}

/* --------------------------------------------------------------------------- devices, contexts */

API int32_t hipGetDeviceCount(int *n);
int32_t hipGetDeviceCount(int *n)
{
    const int32_t status = enter(CALL_hipGetDeviceCount);
    *n = count();
    return leave(CALL_hipGetDeviceCount, status == SUCCESS && *n == 0 ? NO_DEVICE : status);
}

static int32_t check_device(int number)
{
    return number >= 0 && number < count()
               ? SUCCESS
               : misuse(INVALID_DEVICE, "there are %d devices, not number %d", count(), number);
}

API int32_t hipDeviceGet(int *found, int number);
int32_t hipDeviceGet(int *found, int number)
{
    int32_t status = enter(CALL_hipDeviceGet);
    if (status == SUCCESS)
        status = check_device(number);
    *found = number;
    return leave(CALL_hipDeviceGet, status);
}

API int32_t hipDeviceGetAttribute(int *value, int what, int number);
int32_t hipDeviceGetAttribute(int *value, int what, int number)
{
    enum { GROUP = 56, UNITS = 63, SHARED = 74 };
    const struct device_facts *d = device_facts();
    int32_t status = enter(CALL_hipDeviceGetAttribute);
    if (status == SUCCESS)
        status = check_device(number);
    switch (what) {
    case GROUP: *value = (int)d->group; break;
    case SHARED: *value = (int)d->local; break;
    case UNITS: *value = (int)d->units; break;
    default: status = misuse(INVALID_VALUE, "unknown attribute %d", what);
    }
    return leave(CALL_hipDeviceGetAttribute, status);
}

/* hipDeviceProp_tR0600 has 1472 bytes. */
API int32_t hipGetDevicePropertiesR0600(void *properties, int number);
int32_t hipGetDevicePropertiesR0600(void *properties, int number)
{
    enum { NBYTES = 1472, ARCHITECTURE = 1160, ROOM = 256 };
    int32_t status = enter(CALL_hipGetDevicePropertiesR0600);
    if (status == SUCCESS)
        status = check_device(number);
    if (status == SUCCESS) {
        memset(properties, 0xa5, NBYTES);
        snprintf((char *)properties + ARCHITECTURE, ROOM, "%s", architecture());
    }
    return leave(CALL_hipGetDevicePropertiesR0600, status);
}

API int32_t hipGetDevice(int *number);
int32_t hipGetDevice(int *number)
{
    const int32_t status = enter(CALL_hipGetDevice);
    *number = current;
    return leave(CALL_hipGetDevice, status);
}

API int32_t hipSetDevice(int number);
int32_t hipSetDevice(int number)
{
    int32_t status = enter(CALL_hipSetDevice);
    if (status == SUCCESS)
        status = check_device(number);
    if (status == SUCCESS)
        current = number;
    return leave(CALL_hipSetDevice, status);
}

API int32_t hipCtxGetCurrent(void **context);
int32_t hipCtxGetCurrent(void **context)
{
    const int32_t status = enter(CALL_hipCtxGetCurrent);
    *context = context_now();
    return leave(CALL_hipCtxGetCurrent, status);
}

/* The device becomes the thread's, and stays it when the context is popped. */
static _Thread_local int npushed;
API int32_t hipCtxPushCurrent(void *context);
int32_t hipCtxPushCurrent(void *context)
{
    int32_t status = enter(CALL_hipCtxPushCurrent);
    const ptrdiff_t number = (struct context *)context - device;
    if (status == SUCCESS)
        status = number >= 0 && number < DEVICES
                     ? check_device((int)number)
                     : misuse(INVALID_CONTEXT, "%p is no context", context);
    if (status == SUCCESS) {
        current = (int)number;
        npushed++;
    }
    return leave(CALL_hipCtxPushCurrent, status);
}

API int32_t hipCtxPopCurrent(void **context);
int32_t hipCtxPopCurrent(void **context)
{
    int32_t status = enter(CALL_hipCtxPopCurrent);
    *context = context_now();
    if (npushed == 0)
        status = misuse(INVALID_CONTEXT, "the thread has pushed no context");
    npushed -= npushed > 0;
    return leave(CALL_hipCtxPopCurrent, status);
}

API int32_t hipStreamGetDevice(void *stream, int *number);
int32_t hipStreamGetDevice(void *stream, int *number)
{
    int32_t status = enter(CALL_hipStreamGetDevice);
    const struct object *found = NULL;
    for (const struct object *o = objects_live(); o; o = o->next)
        if (o == stream && o->kind == KIND_STREAM)
            found = o;
    *number = found ? (int)(found->context - device) : 0;
    return leave(CALL_hipStreamGetDevice, found || status != SUCCESS
                                              ? status
                                              : misuse(INVALID_HANDLE, "%p is no stream", stream));
}

API int32_t hipPointerGetAttribute(void *value, int what, uint64_t at);
int32_t hipPointerGetAttribute(void *value, int what, uint64_t at)
{
    enum { ORDINAL = 9 };
    int32_t status = enter(CALL_hipPointerGetAttribute);
    const struct device_memory *m = memory_find(at);
    if (status == SUCCESS && (what != ORDINAL || !m))
        status = INVALID_VALUE; /* asked of what may be anything */
    if (status == SUCCESS)
        *(int *)value = (int)(m->o.context - device);
    return leave(CALL_hipPointerGetAttribute, status);
}

/* --------------------------------------------------------------------------------------- images */

static const struct { const char *name; uint32_t flags; } machines[] = {
#define MACHINE(NAME, FLAGS) {NAME, FLAGS},
#include "machines.def"
#undef MACHINE
};

/* Where the object has the descriptor of the kernel: 64 bytes, the symbol NAME.kd; NULL:
 * nowhere. */
static const unsigned char *find_descriptor(const char *image, const char *name)
{
    const Elf64_Ehdr *head = (const void *)image;
    const Elf64_Shdr *section = (const void *)(image + head->e_shoff);
    char wanted[MAX_NAME + 4];
    snprintf(wanted, sizeof wanted, "%s.kd", name);
    for (int i = 0; i < head->e_shnum; i++) {
        const Elf64_Sym *symbol = (const void *)(image + section[i].sh_offset);
        const size_t n = section[i].sh_type == SHT_DYNSYM ? section[i].sh_size / sizeof *symbol : 0;
        for (size_t k = 0; k < n; k++) {
            const Elf64_Shdr *in = &section[symbol[k].st_shndx];
            if (symbol[k].st_shndx < head->e_shnum &&
                strcmp(image + section[section[i].sh_link].sh_offset + symbol[k].st_name, wanted) ==
                    0)
                return (const unsigned char *)image + in->sh_offset +
                       (symbol[k].st_value - in->sh_addr);
        }
    }
    return NULL;
}

/* Whether the object has the text's kernels, with arguments of as many bytes. */
int32_t own_check_kernel(const char *image, const struct signature *s, const uint64_t *nbytes)
{
    enum { ARGUMENTS_AT = 8 };
    const unsigned char *descriptor = find_descriptor(image, s->name);
    uint32_t has;
    size_t needed = 0;
    if (!descriptor)
        return misuse(INVALID_IMAGE, "the code object has no kernel '%s', and $%s does", s->name,
                      own_text);
    for (int i = 0; i < s->n; i++)
        needed = (needed + nbytes[i] - 1) / nbytes[i] * nbytes[i] + nbytes[i];
    memcpy(&has, descriptor + ARGUMENTS_AT, sizeof has);
    return has >= needed ? SUCCESS
                         : misuse(INVALID_IMAGE,
                                  "%s has arguments of %u bytes in the code object, and %zu in $%s",
                                  s->name, has, needed, own_text);
}

int32_t own_check_image(const char *image, const char *text)
{
    enum { AMDGPU = 224, MACHINE = 0xff };
    const Elf64_Ehdr *head = (const void *)image;
    const char *arch = architecture();
    (void)text;
    if (memcmp(image, ELFMAG, SELFMAG) != 0 || head->e_machine != AMDGPU || head->e_type != ET_DYN)
        return misuse(INVALID_IMAGE, "no linked code object");
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (strncmp(arch, machines[i].name, strcspn(arch, ":")) == 0)
            return (head->e_flags & MACHINE) == machines[i].flags ? SUCCESS : NO_BINARY_FOR_GPU;
    return NO_BINARY_FOR_GPU;
}
