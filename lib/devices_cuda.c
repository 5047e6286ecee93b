/* devices_cuda.c - the devices that programs for CUDA find here, by the numbers of NAME_options.device,
 * which counts in the same order (runtime/cuda.c). */
#include "lib/lib.h"

#include <dlfcn.h>
#include <string.h>

/* The driver's functions, and constants of cuda.h. */
struct driver {
    int32_t (*init)(unsigned flags);
    int32_t (*get_version)(int *version);
    int32_t (*count)(int *count);
    int32_t (*get)(int *device, int number);
    int32_t (*name)(char *name, int size, int device);
    int32_t (*memory)(size_t *nbytes, int device);
    int32_t (*attribute)(int *value, int what, int device);
};
enum { GROUP = 1, SHARED = 8, UNITS = 16, MAJOR = 75, MINOR = 76 };

static bool load(void *library, struct driver *d)
{
    static const char *const name[] = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet",
                                       "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(library, name[i]);
        if (!function)
            return false;
        memcpy((unsigned char *)d + i * sizeof function, &function, sizeof function);
    }
    return true;
}

/* 0: the driver does not tell. */
static uint64_t number_of(const struct driver *d, int device, int what)
{
    int value = 0;
    return d->attribute(&value, what, device) == 0 && value > 0 ? (uint64_t)value : 0;
}

static struct device_facts facts_of(struct tgc *t, const struct driver *d, int device, int number)
{
    enum { NAME_SIZE = 256 };
    char *name = mem_array(t, NAME_SIZE, 1);
    size_t memory = 0;
    int version = 0;
    if (d->name(name, NAME_SIZE - 1, device) != 0)
        *name = 0;
    if (d->memory(&memory, device) != 0)
        memory = 0;
    if (d->get_version(&version) != 0)
        version = 0;
    return (struct device_facts){
        .target = "cuda", .number = number, .kind = "GPU", .name = name, .vendor = "NVIDIA",
        .version = mem_printf(t, "sm_%d%d", (int)number_of(d, device, MAJOR), (int)number_of(d, device, MINOR)),
        .driver = mem_printf(t, "of CUDA %d.%d", version / 1000, version % 1000 / 10),
        .units = number_of(d, device, UNITS), .work_group = number_of(d, device, GROUP),
        .memory_bytes = memory, .buffer_bytes = memory, .local_bytes = number_of(d, device, SHARED),
        .halves = true, .doubles = true};
}

const char *devices_add_cuda(struct tgc *t, struct device_facts **list, int *n)
{
    size_t cap = (size_t)*n;
    struct driver d;
    int count = 0, device, first = *n;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "libcuda.so.1, NVIDIA's driver, is not installed";
    if (!load(library, &d) || d.init(0) != 0 || d.count(&count) != 0)
        return "NVIDIA's driver does not start";
    for (int i = 0; i < count; i++)
        if (d.get(&device, i) == 0) {
            struct device_facts facts = facts_of(t, &d, device, i + 1);
            VEC_PUSH(t, *list, *n, cap, facts);
        }
    /* drivers do not like to be unloaded */
    return *n > first ? NULL : "NVIDIA's driver finds no device";
}
