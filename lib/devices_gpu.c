/* devices_gpu.c - the devices that programs for CUDA and AMD find here, by the numbers of
 * NAME_options.device, which counts in the same order (runtime/graphs.c). */
#include "lib/lib.h"

#include <dlfcn.h>
#include <string.h>

/* The driver's functions; properties: HIP's struct of a device. */
struct driver {
    int32_t (*init)(unsigned flags);
    int32_t (*get_version)(int *version);
    int32_t (*count)(int *count);
    int32_t (*get)(int *device, int number);
    int32_t (*name)(char *name, int size, int device);
    int32_t (*memory)(size_t *nbytes, int device);
    int32_t (*attribute)(int *value, int what, int device);
    int32_t (*properties)(void *properties, int device);
};
enum { LIBRARIES = 5, CALLS = sizeof(struct driver) / sizeof(void *), NAME_SIZE = 256 };

/* A driver: its library's names, its functions' in the order of the struct, numbers of attributes,
 * how its version is counted. */
struct interface {
    const char *target, *vendor, *title, *driver;
    const char *library[LIBRARIES], *call[CALLS];
    int group, local, units, major, minor;
    const char *(*architecture)(struct tgc *t, const struct driver *d, int device);
};

/* 0: the driver does not tell. */
static uint64_t number_of(const struct driver *d, int device, int what)
{
    int value = 0;
    return d->attribute(&value, what, device) == 0 && value > 0 ? (uint64_t)value : 0;
}

static const char *cuda_architecture(struct tgc *t, const struct driver *d, int device)
{
    enum { MAJOR = 75, MINOR = 76 };
    return mem_printf(t, "sm_%d%d", (int)number_of(d, device, MAJOR),
                      (int)number_of(d, device, MINOR));
}

/* "gfx90a:sramecc+:xnack-", where the properties have it; ROCm 5 has another struct,
 * by another function. */
static const char *read_properties(struct tgc *t, const struct driver *d, int device, size_t at)
{
    enum { WORDS = 512 };
    uint64_t properties[WORDS] = {0};
    if (d->properties(properties, device) != 0)
        return "an architecture that the driver does not tell";
    return mem_printf(t, "%.*s", NAME_SIZE - 1, (const char *)properties + at);
}

static const char *hip_architecture(struct tgc *t, const struct driver *d, int device)
{
    return read_properties(t, d, device, 1160);
}

static const char *hip5_architecture(struct tgc *t, const struct driver *d, int device)
{
    return read_properties(t, d, device, 396);
}

#define HIP(properties, architecture)                                                              \
    {                                                                                              \
        "amd", "AMD", "HIP", "libamdhip64.so, AMD's driver,",                                      \
            {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",         \
             "/opt/rocm/lib/libamdhip64.so"},                                                      \
            {"hipInit",          "hipDriverGetVersion", "hipGetDeviceCount",     "hipDeviceGet",   \
             "hipDeviceGetName", "hipDeviceTotalMem",   "hipDeviceGetAttribute", properties},      \
            56, 74, 63, 10000000, 100000, architecture                                             \
    }
static const struct interface cuda = {"cuda",
                                      "NVIDIA",
                                      "CUDA",
                                      "libcuda.so.1, NVIDIA's driver,",
                                      {"libcuda.so.1"},
                                      {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount",
                                       "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2",
                                       "cuDeviceGetAttribute"},
                                      1,
                                      8,
                                      16,
                                      1000,
                                      10,
                                      cuda_architecture};
static const struct interface hip = HIP("hipGetDevicePropertiesR0600", hip_architecture);
static const struct interface hip5 = HIP("hipGetDeviceProperties", hip5_architecture);

static void *open_library(const struct interface *f)
{
    void *library = NULL;
    for (int i = 0; !library && i < LIBRARIES && f->library[i]; i++)
        library = dlopen(f->library[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool load(void *library, const struct interface *f, struct driver *d)
{
    for (size_t i = 0; i < CALLS && f->call[i]; i++) {
        void *function = dlsym(library, f->call[i]);
        if (!function)
            return false;
        memcpy((unsigned char *)d + i * sizeof function, &function, sizeof function);
    }
    return true;
}

static struct device_facts facts_of(struct tgc *t, const struct interface *f,
                                    const struct driver *d, int device, int number)
{
    char *name = mem_array(t, NAME_SIZE, 1);
    size_t memory = 0;
    int version = 0;
    if (d->name(name, NAME_SIZE - 1, device) != 0)
        *name = 0;
    if (d->memory(&memory, device) != 0)
        memory = 0;
    if (d->get_version(&version) != 0)
        version = 0;
    return (struct device_facts){.target = f->target,
                                 .number = number,
                                 .kind = "GPU",
                                 .name = name,
                                 .vendor = f->vendor,
                                 .version = f->architecture(t, d, device),
                                 .driver =
                                     mem_printf(t, "of %s %d.%d", f->title, version / f->major,
                                                version % f->major / f->minor),
                                 .units = number_of(d, device, f->units),
                                 .work_group = number_of(d, device, f->group),
                                 .memory_bytes = memory,
                                 .buffer_bytes = memory,
                                 .local_bytes = number_of(d, device, f->local),
                                 .halves = true,
                                 .doubles = true};
}

static const char *add(struct tgc *t, const struct interface *f, void *library,
                       struct device_facts **list, int *n)
{
    size_t cap = (size_t)*n;
    struct driver d;
    int count = 0, device, first = *n;
    if (!library)
        return mem_printf(t, "%s is not installed", f->driver);
    if (!load(library, f, &d) || d.init(0) != 0 || d.count(&count) != 0)
        return mem_printf(t, "%s's driver does not start", f->vendor);
    for (int i = 0; i < count; i++)
        if (d.get(&device, i) == 0) {
            struct device_facts facts = facts_of(t, f, &d, device, i + 1);
            VEC_PUSH(t, *list, *n, cap, facts);
        }
    /* drivers do not like to be unloaded */
    return *n > first ? NULL : mem_printf(t, "%s's driver finds no device", f->vendor);
}

const char *devices_add_cuda(struct tgc *t, struct device_facts **list, int *n)
{
    return add(t, &cuda, open_library(&cuda), list, n);
}

const char *devices_add_amd(struct tgc *t, struct device_facts **list, int *n)
{
    void *library = open_library(&hip);
    return add(t, library && !dlsym(library, hip.call[CALLS - 1]) ? &hip5 : &hip, library, list, n);
}
