/* SPDX-License-Identifier: 0BSD */
/* cuda.c - CUDA from a program that is linked with libc alone, by its driver's functions, which are
 * loaded when the model is opened; and CUDA C's versions of pieces of number.c and math.c.
 *
 * A part of a run's list (device.c) is a graph, made when the model is opened: a node for each kernel,
 * each behind the one before. What changes from run to run (run-time sizes, the caller's memory) is
 * told to the nodes that have it. Where hooks ask for kernels one by one, or one has no work, kernels
 * are launched by themselves. The memory is the device's, and managed, which both see, if the host
 * accesses tensors itself. The caller's thread has the context that it had when a function returns.
 * Only functions of CUDA 11.4 are called; constants are those of its cuda.h.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ cuda
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* A kernel's launch as a graph has it: CUDA_KERNEL_NODE_PARAMS, the first version. */
struct kernel_node {
    void *function;
    unsigned groups[3], block[3], shared_bytes;
    void **parameters, **extra;
};

/* The driver's functions that are called, and what they return and take. */
struct cuda {
    int32_t (*init)(unsigned flags);
    int32_t (*get_error)(int32_t error, const char **text);
    int32_t (*count_devices)(int *count);
    int32_t (*get_device)(int *device, int number);
    int32_t (*get_attribute)(int *value, int what, int device);
    int32_t (*retain_context)(void **context, int device);
    int32_t (*release_context)(int device);
    int32_t (*push)(void *context);
    int32_t (*pop)(void **context);
    int32_t (*get_context_device)(int *device);
    int32_t (*get_stream_context)(void *stream, void **context);
    int32_t (*create_stream)(void **stream, unsigned flags);
    int32_t (*wait)(void *stream);
    int32_t (*destroy_stream)(void *stream);
    int32_t (*get_memory)(size_t *free_bytes, size_t *all);
    int32_t (*allocate)(uint64_t *at, size_t nbytes);
    int32_t (*allocate_managed)(uint64_t *at, size_t nbytes, unsigned flags);
    int32_t (*release)(uint64_t at);
    int32_t (*write)(uint64_t to, const void *from, size_t nbytes, void *stream);
    int32_t (*read)(void *to, uint64_t from, size_t nbytes, void *stream);
    int32_t (*get_pointer)(void *value, int what, uint64_t at);
    int32_t (*get_range)(uint64_t *begin, size_t *nbytes, uint64_t at);
    int32_t (*load)(void **module, const void *image, unsigned count, int *option, void **value);
    int32_t (*unload)(void *module);
    int32_t (*get_function)(void **function, void *module, const char *name);
    int32_t (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared_bytes, void *stream, void **parameters, void **extra);
    int32_t (*create_graph)(void **graph, unsigned flags);
    int32_t (*add_kernel)(void **node, void *graph, void *const *after, size_t count,
                          const struct kernel_node *kernel);
    int32_t (*instantiate)(void **list, void *graph, unsigned long long flags);
    int32_t (*set_kernel)(void *list, void *node, const struct kernel_node *kernel);
    int32_t (*launch_graph)(void *list, void *stream);
    int32_t (*destroy_list)(void *list);
    int32_t (*destroy_graph)(void *graph);
    int32_t (*create_event)(void **event, unsigned flags);
    int32_t (*record_event)(void *event, void *stream);
    int32_t (*get_event_time)(float *ms, void *begin, void *end);
    int32_t (*destroy_event)(void *event);
    void *library;                  /* open as long as the model is */
    void *context, *queue, *module, *memory, *weights;
    bool owns_context, owns_queue;
    int device;
    unsigned char *seen[MODEL_SPANS];       /* parts of the memory, where it is managed */
};

/* The kernels for an architecture: machine code, for it and, unless it is exact, newer ones of the same
 * generation (the number's tens); or PTX, for it and all newer ones. */
struct binary { int arch; bool is_exact, is_ptx; const char *code; };

//@ cuda_driver_load
/* "cuMemAlloc: out of memory" */
static void complain_of(const model_self *self, const char *call, int32_t error)
{
    const char *text = NULL;
    char line[200];
    if (self->device.get_error(error, &text) != 0 || !text)
        text = "unknown error";
    snprintf(line, sizeof line, "%s: %s (%d)", call, text, (int)error);
    complain(self, line);
}

static int cuda_status(int32_t error)
{
    enum { OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NO_DEVICE = 100, NO_CODE = 209, OLD_PTX = 222, NO_JIT = 221,
           OLD_DRIVER = 36, MISMATCH = 803 };
    switch (error) {
    case 0: return MODEL_OK;
    case OUT_OF_MEMORY: return MODEL_DEVICE_MEMORY;
    case NO_DEVICE: case INVALID_DEVICE: return MODEL_NO_DEVICE;
    case OLD_DRIVER: case OLD_PTX: case NO_JIT: case MISMATCH: return MODEL_OLD_DRIVER;
    case NO_CODE: return MODEL_OTHER_DEVICE;
    default: return MODEL_DEVICE_FAILED;
    }
}

/* The status of a call, which is said if it is an error. */
static int status_of(const model_self *self, const char *call, int32_t error)
{
    if (error != 0)
        complain_of(self, call, error);
    return cuda_status(error);
}

/* The model's context is the thread's, until leave(). */
static int enter(const model_self *self)
{
    return status_of(self, "cuCtxPushCurrent", self->device.push(self->device.context));
}

static void leave(const model_self *self)
{
    void *context;
    self->device.pop(&context);
}

/* The status of a call in the context. */
static int done(const model_self *self, const char *call, int32_t error)
{
    const int status = status_of(self, call, error);
    leave(self);
    return status;
}

/* The functions, in the order of the struct; those with a number are of the interface of CUDA 3.2 or 4. */
static int cuda_load(model_self *self)
{
    static const char *const name[] = {
        "cuInit", "cuGetErrorString", "cuDeviceGetCount", "cuDeviceGet",
        "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
        "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxGetDevice", "cuStreamGetCtx",
        "cuStreamCreate", "cuStreamSynchronize", "cuStreamDestroy_v2", "cuMemGetInfo_v2",
        "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemFree_v2", "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2", "cuPointerGetAttribute", "cuMemGetAddressRange_v2",
        "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuLaunchKernel",
        "cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags",
        "cuGraphExecKernelNodeSetParams", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
        "cuEventCreate", "cuEventRecord", "cuEventElapsedTime", "cuEventDestroy_v2"};
    struct cuda *cu = &self->device;
    char line[120];
    cu->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cu->library)
        cu->library = dlopen("libcuda.so", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; cu->library && i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(cu->library, name[i]);
        if (!function) {
            snprintf(line, sizeof line, "the driver has no %s: it is older than CUDA 11.4", name[i]);
            complain(self, line);
            return MODEL_OLD_DRIVER;
        }
        memcpy((unsigned char *)cu + i * sizeof function, &function, sizeof function);
    }
    return cu->library ? MODEL_OK : MODEL_NO_DEVICE;
}

//@ cuda_driver_hold
/* Device memory of the caller's is an address; it has no count of holders. */
static bool hold_buffer(const model_self *self, void *buffer) { (void)self; return buffer != NULL; }
static void let_buffer(const model_self *self, void *buffer) { (void)self; (void)buffer; }

//@ cuda_driver_open load hold
/* Ends what has been begun. */
static void device_close(model_self *self)
{
    struct cuda *cu = &self->device;
    if (cu->context && cu->push(cu->context) == 0) {
        if (cu->queue)
            cu->wait(cu->queue);
        for (int i = 0; i < MODEL_KERNELS; i++) {
            if (self->list[i])
                cu->destroy_list(self->list[i]);
            if (self->graph[i])
                cu->destroy_graph(self->graph[i]);
        }
        if (cu->module)
            cu->unload(cu->module);
        if (cu->weights)
            cu->release((uint64_t)(uintptr_t)cu->weights);
        if (cu->memory)
            cu->release((uint64_t)(uintptr_t)cu->memory);
        if (cu->owns_queue)
            cu->destroy_stream(cu->queue);
        leave(self);
    }
    if (cu->owns_context)
        cu->release_context(cu->device);
    if (cu->library)
        dlclose(cu->library);
    memset(cu, 0, sizeof *cu);
}

/* The wanted-th device, counted from 1; 0: the first. */
static int choose_device(model_self *self, int wanted)
{
    struct cuda *cu = &self->device;
    int n = 0;
    int status = status_of(self, "cuDeviceGetCount", cu->count_devices(&n));
    if (status == MODEL_OK && wanted > n)
        complain(self, "options.device is more than there are devices");
    if (status == MODEL_OK && (n == 0 || wanted > n))
        return MODEL_NO_DEVICE;
    return status == MODEL_OK ? status_of(self, "cuDeviceGet", cu->get_device(&cu->device, wanted > 0 ? wanted - 1 : 0))
                              : status;
}

/* The caller's context, that of the caller's stream, or the device's primary one. */
static int open_context(model_self *self)
{
    struct cuda *cu = &self->device;
    const model_options *o = &self->options;
    void *of_stream = NULL, *chosen = o->context;
    int of_context = 0;
    int status = o->queue ? status_of(self, "cuStreamGetCtx", cu->get_stream_context(o->queue, &of_stream)) : MODEL_OK;
    if (status != MODEL_OK)
        return status;
    if (of_stream && chosen && of_stream != chosen) {
        complain(self, "options.queue is a stream of another context than options.context");
        return MODEL_BAD_OPTIONS;
    }
    cu->context = chosen ? chosen : of_stream;
    if (cu->context) {
        status = enter(self);
        if (status == MODEL_OK)
            status = done(self, "cuCtxGetDevice", cu->get_context_device(&of_context));
    }
    if (status == MODEL_OK && (!cu->context || o->device > 0))
        status = choose_device(self, o->device);
    if (status == MODEL_OK && cu->context && o->device > 0 && cu->device != of_context) {
        complain(self, "options.context or options.queue is of another device than options.device names");
        return MODEL_BAD_OPTIONS;
    }
    if (status != MODEL_OK)
        return status;
    if (cu->context) {
        cu->device = of_context;
        return MODEL_OK;
    }
    status = status_of(self, "cuDevicePrimaryCtxRetain", cu->retain_context(&cu->context, cu->device));
    cu->owns_context = status == MODEL_OK;
    return status;
}

/* The image for the device: of machine code the newest that it runs, else the newest PTX. */
static int choose_image(model_self *self, const struct binary **image)
{
    enum { MAJOR = 75, MINOR = 76 };
    struct cuda *cu = &self->device;
    int major = 0, minor = 0;
    char line[120];
    int status = status_of(self, "cuDeviceGetAttribute", cu->get_attribute(&major, MAJOR, cu->device));
    if (status == MODEL_OK)
        status = status_of(self, "cuDeviceGetAttribute", cu->get_attribute(&minor, MINOR, cu->device));
    const int arch = 10 * major + minor;
    *image = NULL;
    for (size_t i = 0; i < sizeof binary_of / sizeof *binary_of && status == MODEL_OK; i++) {
        const struct binary *m = &binary_of[i];
        const bool fits = m->is_ptx ? m->arch <= arch
                          : m->is_exact ? m->arch == arch
                                        : m->arch / 10 == major && m->arch <= arch;
        if (fits && (!*image || (*image)->is_ptx > m->is_ptx ||
                     ((*image)->is_ptx == m->is_ptx && (*image)->arch < m->arch)))
            *image = m;
    }
    if (status != MODEL_OK || *image)
        return status;
    snprintf(line, sizeof line, "the kernels are not for the device, which is sm_%d: compile with --cpu=sm_%d",
             arch, arch);
    complain(self, line);
    return MODEL_OTHER_DEVICE;
}

/* The kernels; what the driver says of them when it does not take them is told. */
static int open_module(model_self *self)
{
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6, LOG_BYTES = 2048 };
    struct cuda *cu = &self->device;
    const struct binary *image;
    char log[LOG_BYTES] = "";
    int option[] = {ERROR_LOG, ERROR_LOG_BYTES};
    void *value[] = {log, (void *)(uintptr_t)LOG_BYTES};
    int status = choose_image(self, &image);
    if (status != MODEL_OK)
        return status;
    status = status_of(self, "cuModuleLoadDataEx", cu->load(&cu->module, image->code, 2, option, value));
    log[LOG_BYTES - 1] = 0;
    if (status != MODEL_OK && *log)
        complain(self, log);
    return status;
}

static int open_memory(model_self *self, size_t weights)
{
    enum { GLOBAL = 1 };
    struct cuda *cu = &self->device;
    uint64_t memory = 0, at = 0;
    size_t left = 0, all = 0;
    char line[200];
    int status = status_of(self, "cuMemAlloc", MODEL_MANAGED
                                               ? cu->allocate_managed(&memory, MODEL_DEVICE_BYTES, GLOBAL)
                                               : cu->allocate(&memory, MODEL_DEVICE_BYTES));
    cu->memory = (void *)(uintptr_t)memory;
    if (status == MODEL_OK)
        status = status_of(self, "cuMemAlloc", cu->allocate(&at, weights));
    cu->weights = (void *)(uintptr_t)at;
    if (status == MODEL_DEVICE_MEMORY && cu->get_memory(&left, &all) == 0) {
        snprintf(line, sizeof line, "the model needs %zu bytes and %zu for its weights, and of the device's %zu "
                 "bytes %zu are free: give smaller bounds by --dim", (size_t)MODEL_DEVICE_BYTES, weights, all, left);
        complain(self, line);
    }
    return status;
}

/* The driver, a context, a stream, the memory, the kernels. */
static int device_open(model_self *self, size_t weights)
{
    enum { NON_BLOCKING = 1 };
    struct cuda *cu = &self->device;
    if (self->options.device < 0)
        return MODEL_BAD_OPTIONS;
    int status = cuda_load(self);
    if (status == MODEL_OK)
        status = status_of(self, "cuInit", cu->init(0));
    if (status == MODEL_OK)
        status = open_context(self);
    if (status == MODEL_OK)
        status = enter(self);
    if (status != MODEL_OK)
        return status;
    cu->queue = self->options.queue;
    if (!cu->queue)
        status = status_of(self, "cuStreamCreate", cu->create_stream(&cu->queue, NON_BLOCKING));
    cu->owns_queue = !self->options.queue && status == MODEL_OK;
    if (status == MODEL_OK)
        status = open_memory(self, weights);
    if (status == MODEL_OK)
        status = open_module(self);
    leave(self);
    return status;
}

//@ cuda_driver_record
/* An argument of the next start. */
static bool set_argument(model_self *self, int index, int i, uint64_t value)
{
    const struct argument *a = &argument_of[launch_of[index].first + i];
    if (a->place >= 0)
        value += (uint64_t)(uintptr_t)self->place[a->place].buffer + self->place[a->place].at;
    self->value[launch_of[index].first + i] = value;
    self->changed[index] = true;
    return true;
}

/* A node of a graph has work, be it none in this run; then nobody starts the graph. */
static struct kernel_node node_of(model_self *self, int index)
{
    const struct launch *l = &launch_of[index];
    struct kernel_node n = {self->kernel[index], {0, 0, 0}, {0, 0, 0}, 0, &self->parameter[l->first], NULL};
    for (int d = 0; d < 3; d++) {
        n.groups[d] = self->groups[index][d] > 0 ? (unsigned)self->groups[index][d] : 1;
        n.block[d] = (unsigned)l->block[d];
    }
    return n;
}

/* The graph of the kernels from .. to - 1. */
static int record_part(model_self *self, int from, int to)
{
    const struct cuda *cu = &self->device;
    int status = status_of(self, "cuGraphCreate", cu->create_graph(&self->graph[from], 0));
    for (int i = from; i < to && status == MODEL_OK; i++) {
        const struct kernel_node node = node_of(self, i);
        status = status_of(self, "cuGraphAddKernelNode",
                       cu->add_kernel(&self->node[i], self->graph[from], i > from ? &self->node[i - 1] : NULL,
                                      i > from, &node));
        self->changed[i] = false;
    }
    return status == MODEL_OK ? status_of(self, "cuGraphInstantiate",
                                      cu->instantiate(&self->list[from], self->graph[from], 0))
                              : status;
}

/* The kernels, and the graphs of the run's parts. */
static int record(model_self *self)
{
    const struct cuda *cu = &self->device;
    int status = enter(self);
    if (status != MODEL_OK)
        return status;
    for (int i = 0; i < MODEL_KERNELS && status == MODEL_OK; i++) {
        const struct launch *l = &launch_of[i];
        status = status_of(self, l->function, cu->get_function(&self->kernel[i], cu->module, l->function));
        for (int k = 0; k < l->count; k++) {
            self->parameter[l->first + k] = &self->value[l->first + k];
            set_argument(self, i, k, argument_of[l->first + k].at);
        }
    }
    for (int i = 0; i < MODEL_KERNELS && status == MODEL_OK; i++)
        if (part_end[i])
            status = record_part(self, i, part_end[i]);
    leave(self);
    return status;
}

//@ cuda_driver_map
/* Both see the memory, page by page as it is touched; the host waits until the device is done with it. */
static bool map_span(model_self *self, int i, const struct span *s, bool waits)
{
    struct cuda *cu = &self->device;
    int status = MODEL_OK;
    cu->seen[i] = (unsigned char *)cu->memory + s->at;
    if (waits)
        status = enter(self);
    if (waits && status == MODEL_OK)
        status = done(self, "cuStreamSynchronize", cu->wait(cu->queue));
    return status == MODEL_OK;
}

//@ cuda_driver_to_device
static int to_device(const model_self *self) { (void)self; return MODEL_OK; }

//@ cuda_driver_start
/* A kernel by itself; its time, if that is asked for. */
static int start_one(model_self *self, int index)
{
    const struct cuda *cu = &self->device;
    const struct kernel_node n = node_of(self, index);
    const bool timed = self->options.on_kernel_time != NULL;
    void *event[2] = {NULL, NULL};
    float ms = 0;
    int status = MODEL_OK;
    step(self, index);
    for (int d = 0; d < 3; d++)
        if (self->groups[index][d] == 0)
            return MODEL_OK;        /* nothing to compute */
    for (int i = 0; i < 2 && timed && status == MODEL_OK; i++)
        status = status_of(self, "cuEventCreate", cu->create_event(&event[i], 0));
    if (timed && status == MODEL_OK)
        status = status_of(self, "cuEventRecord", cu->record_event(event[0], cu->queue));
    if (status == MODEL_OK)
        status = status_of(self, "cuLaunchKernel",
                       cu->launch(n.function, n.groups[0], n.groups[1], n.groups[2], n.block[0], n.block[1],
                                  n.block[2], 0, cu->queue, n.parameters, NULL));
    if (timed && status == MODEL_OK)
        status = status_of(self, "cuEventRecord", cu->record_event(event[1], cu->queue));
    if (status == MODEL_OK && (timed || self->options.on_kernel))
        status = status_of(self, "cuStreamSynchronize", cu->wait(cu->queue));
    if (timed && status == MODEL_OK)
        status = status_of(self, "cuEventElapsedTime", cu->get_event_time(&ms, event[0], event[1]));
    if (timed && status == MODEL_OK)
        self->options.on_kernel_time(self->options.user, index, kernel_info[index].name, (double)ms * 1e6);
    for (int i = 0; i < 2; i++)
        if (event[i])
            cu->destroy_event(event[i]);
    return status;
}

/* The graph of a part, with what has changed since. */
static int start_graph(model_self *self, int from, int to)
{
    const struct cuda *cu = &self->device;
    int status = MODEL_OK;
    for (int i = from; i < to && status == MODEL_OK; i++) {
        if (!self->changed[i])
            continue;
        const struct kernel_node node = node_of(self, i);
        status = status_of(self, "cuGraphExecKernelNodeSetParams",
                       cu->set_kernel(self->list[from], self->node[i], &node));
        self->changed[i] = status != MODEL_OK;
    }
    return status == MODEL_OK ? status_of(self, "cuGraphLaunch", cu->launch_graph(self->list[from], cu->queue)) : status;
}

static bool start(model_self *self, int from, int to)
{
    bool whole = !self->options.on_kernel && !self->options.on_kernel_time;
    for (int i = from; i < to; i++)
        for (int d = 0; d < 3; d++)
            whole &= self->groups[i][d] > 0;
    if (enter(self) != MODEL_OK)
        return false;
    int status = whole ? start_graph(self, from, to) : MODEL_OK;
    for (int i = from; i < to && !whole && status == MODEL_OK; i++)
        status = start_one(self, i);
    leave(self);
    return status == MODEL_OK;
}

//@ cuda_driver_write
static bool write_buffer(const model_self *self, void *buffer, size_t at, size_t nbytes, const void *from,
                         bool waits)
{
    const struct cuda *cu = &self->device;
    if (enter(self) != MODEL_OK)
        return false;
    int status = status_of(self, "cuMemcpyHtoDAsync", cu->write((uint64_t)(uintptr_t)buffer + at, from, nbytes, cu->queue));
    if (status == MODEL_OK && waits)
        status = status_of(self, "cuStreamSynchronize", cu->wait(cu->queue));
    leave(self);
    return status == MODEL_OK;
}

//@ cuda_driver_read
static bool read_buffer(const model_self *self, void *buffer, size_t at, size_t nbytes, void *to)
{
    const struct cuda *cu = &self->device;
    return enter(self) == MODEL_OK &&
           done(self, "cuMemcpyDtoHAsync", cu->read(to, (uint64_t)(uintptr_t)buffer + at, nbytes, cu->queue)) == MODEL_OK;
}

//@ cuda_driver_end to_device
/* The end of a run's list: an event of the caller's, if it asks for one. */
static int mark(model_self *self, void **event)
{
    enum { NO_TIMING = 2 };
    const struct cuda *cu = &self->device;
    if (!event)
        return MODEL_OK;
    int status = enter(self);
    if (status != MODEL_OK)
        return status;
    status = status_of(self, "cuEventCreate", cu->create_event(event, NO_TIMING));
    if (status == MODEL_OK)
        status = status_of(self, "cuEventRecord", cu->record_event(*event, cu->queue));
    if (status != MODEL_OK && *event) {
        cu->destroy_event(*event);
        *event = NULL;
    }
    leave(self);
    return status;
}

static bool wait_all(const model_self *self)
{
    return enter(self) == MODEL_OK &&
           done(self, "cuStreamSynchronize", self->device.wait(self->device.queue)) == MODEL_OK;
}

/* Whether the caller's memory can be this place. */
static int check_buffer(const model_self *self, int place, void *buffer, size_t at, size_t *room)
{
    enum { CONTEXT = 1 };
    const struct cuda *cu = &self->device;
    const uint64_t address = (uint64_t)(uintptr_t)buffer;
    void *context = NULL;
    uint64_t begin = 0;
    size_t nbytes = 0;
    int status = enter(self);
    if (status != MODEL_OK)
        return status;
    status = status_of(self, "cuPointerGetAttribute", cu->get_pointer(&context, CONTEXT, address));
    if (status == MODEL_OK)
        status = status_of(self, "cuMemGetAddressRange", cu->get_range(&begin, &nbytes, address));
    leave(self);
    if (status != MODEL_OK)
        return MODEL_BAD_OPTIONS;
    nbytes -= (size_t)(address - begin);
    if (context && context != cu->context)
        complain(self, "the memory is of another context than the model: pass that one in options.context");
    else if (at % 128 != 0 || address % 128 != 0)
        complain(self, "a tensor begins at a multiple of 128 bytes");
    else if (at >= nbytes || place_info[place].nbytes > nbytes - at)
        complain(self, "the memory ends before the tensor does");
    else {
        *room = nbytes - at;
        return MODEL_OK;
    }
    return MODEL_BAD_OPTIONS;
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

//@ cuda_shuffle_f32
/* What the thread has whose number is t ^ m, of a block that is one warp. */
static inline float shuffle_f32(float x, unsigned m) { return __shfl_xor_sync(0xffffffffu, x, (int)m); }

//@ cuda_bits_f32
static inline uint32_t bits_f32(float v) { return __float_as_uint(v); }

//@ cuda_float_bits
static inline float float_bits(uint32_t u) { return __uint_as_float(u); }

//@ cuda_bits_f64
static inline uint64_t bits_f64(double v) { return (uint64_t)__double_as_longlong(v); }

//@ cuda_double_bits
static inline double double_bits(uint64_t u) { return __longlong_as_double((long long)u); }

//@ cuda_sqrt_f32
static inline float sqrt_f32(float x) { return sqrtf(x); }

//@ cuda_sqrt_f64
static inline double sqrt_f64(double x) { return sqrt(x); }
