/* devices.c - the devices that emitted programs find here: those of OpenCL's drivers. Numbers are
 * those of NAME_options.device, which counts in the same order (runtime/opencl.c). */
#include "lib/lib.h"

#include <dlfcn.h>
#include <string.h>

/* OpenCL's functions, and constants of cl.h. */
struct driver {
    int32_t (*platforms)(uint32_t most, void **platform, uint32_t *count);
    int32_t (*devices)(void *platform, uint64_t type, uint32_t most, void **device,
                       uint32_t *count);
    int32_t (*info)(void *device, uint32_t what, size_t size, void *value, size_t *n);
};
enum {
    TYPE = 0x1000, UNITS = 0x1002, GROUP = 0x1004, ALLOCATION = 0x1010, IMAGE_WIDTH = 0x1011,
    IMAGE_HEIGHT = 0x1012, IMAGES = 0x1016, MEMORY = 0x101f, LOCAL = 0x1023, NAME = 0x102b,
    VENDOR = 0x102c, DRIVER_VERSION = 0x102d, VERSION = 0x102f, EXTENSIONS = 0x1030,
    DOUBLES = 0x1032, PITCH = 0x104a
};
enum { MOST = 64 };

static bool load(void *library, struct driver *d)
{
    static const char *const name[] = {"clGetPlatformIDs", "clGetDeviceIDs", "clGetDeviceInfo"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(library, name[i]);
        if (!function)
            return false;
        memcpy((unsigned char *)d + i * sizeof function, &function, sizeof function);
    }
    return true;
}

static const char *text_of(struct tgc *t, const struct driver *d, void *device, uint32_t what)
{
    size_t n = 0;
    if (d->info(device, what, 0, NULL, &n) != 0 || n == 0)
        return "";
    char *s = mem_array(t, n + 1, 1);
    return d->info(device, what, n, s, NULL) == 0 ? s : "";
}

/* A fact of 4 or 8 bytes; 0: the driver does not tell. */
static uint64_t number_of(const struct driver *d, void *device, uint32_t what)
{
    unsigned char bytes[8] = {0};
    size_t n = 0;
    uint32_t small;
    uint64_t large;
    if (d->info(device, what, sizeof bytes, bytes, &n) != 0)
        return 0;
    memcpy(&small, bytes, sizeof small);
    memcpy(&large, bytes, sizeof large);
    return n == sizeof small ? small : large;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; (s = strstr(s, word)); s += n)
        if ((s == list || s[-1] == ' ') && (s[n] == ' ' || !s[n]))
            return true;
    return false;
}

static struct device_facts facts_of(struct tgc *t, const struct driver *d, void *device, int number)
{
    uint64_t type = number_of(d, device, TYPE);
    const char *extensions = text_of(t, d, device, EXTENSIONS);
    return (struct device_facts){
        .target = "opencl",
        .number = number,
        .kind = type & 1u << 2   ? "GPU"
                : type & 1u << 1 ? "CPU"
                : type & 1u << 3 ? "accelerator"
                                 : "device",
        .name = text_of(t, d, device, NAME),
        .vendor = text_of(t, d, device, VENDOR),
        .version = text_of(t, d, device, VERSION),
        .driver = text_of(t, d, device, DRIVER_VERSION),
        .units = number_of(d, device, UNITS),
        .work_group = number_of(d, device, GROUP),
        .memory_bytes = number_of(d, device, MEMORY),
        .buffer_bytes = number_of(d, device, ALLOCATION),
        .local_bytes = number_of(d, device, LOCAL),
        .image_width = number_of(d, device, IMAGES) ? number_of(d, device, IMAGE_WIDTH) : 0,
        .image_height = number_of(d, device, IMAGES) ? number_of(d, device, IMAGE_HEIGHT) : 0,
        .image_pitch = number_of(d, device, PITCH),
        .halves = has_word(extensions, "cl_khr_fp16"),
        .doubles = number_of(d, device, DOUBLES) != 0};
}

const char *devices_list(struct tgc *t, struct device_facts **list, int *n)
{
    size_t cap = 0;
    struct driver d;
    void *platform[MOST], *device[MOST];
    uint32_t nplatform = 0, ndevice = 0;
    *list = NULL;
    *n = 0;
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "libOpenCL.so.1 is not installed: Debian's package is ocl-icd-libopencl1, beside "
               "the "
               "device's driver (for processors pocl-opencl-icd)";
    if (!load(library, &d) || d.platforms(MOST, platform, &nplatform) != 0 || nplatform == 0)
        return "libOpenCL.so.1 finds no driver of a device (for processors Debian has "
               "pocl-opencl-icd)";
    for (uint32_t i = 0; i < nplatform && i < MOST; i++) {
        if (d.devices(platform[i], 0xffffffffu, MOST, device, &ndevice) != 0)
            continue;
        for (uint32_t k = 0; k < ndevice && k < MOST; k++) {
            struct device_facts facts = facts_of(t, &d, device[k], *n + 1);
            VEC_PUSH(t, *list, *n, cap, facts);
        }
    }
    /* drivers do not like to be unloaded */
    return *n > 0 ? NULL : "OpenCL's drivers find no device";
}
