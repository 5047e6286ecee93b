/* SPDX-License-Identifier: 0BSD */
/* graphs.c - a run on a device by a driver with CUDA's interface: CUDA itself (cuda.c), or HIP
 * (amd.c), which has the same functions under other names. The program links libc alone; the
 * driver's functions are loaded when the model is opened.
 *
 * Each part of a run's list (device.c) is a graph, instantiated when the model is opened. A
 * kernel's node depends on the kernels that store what it reads, and on those that access what it
 * stores (behind_of[]); independent nodes may overlap. What changes between runs (run-time sizes,
 * the caller's memory) is set in the nodes that use it.
 *
 * Kernels are launched one by one instead where hooks ask for that, where one has an empty grid,
 * and while the caller's stream captures.
 *
 * Device memory is allocated for the device alone. What the host itself reads or stores of it is
 * copied to pinned host memory, and back before the device goes on. Managed memory is no choice: on
 * many devices the host may not touch it while any kernel runs.
 *
 * cuda.c and amd.c have what differs: struct own_calls with the functions that the other driver has
 * not; struct kernel_node, whose fields differ in order; the names of the functions, of the
 * library's files and of the oldest version with all of them; and the piece `own`, which defines
 * the functions declared below.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ graphs
/* A part of the memory of which the host has a copy. lent: its own allocation, where pinned
 * memory has no room. */
struct seen_part { size_t at, nbytes; bool is_stored; void *lent; };

/* The driver's functions, in the order of call_name[]. */
struct driver {
    int32_t (*init)(unsigned flags);
    int32_t (*count_devices)(int *count);
    int32_t (*get_device)(int *device, int number);
    int32_t (*create_stream)(void **stream, unsigned flags);
    int32_t (*wait)(void *stream);
    int32_t (*destroy_stream)(void *stream);
    int32_t (*get_memory)(size_t *free_bytes, size_t *all);
    int32_t (*allocate)(uint64_t *at, size_t nbytes);
    int32_t (*allocate_pinned)(void **at, size_t nbytes, unsigned flags);
    int32_t (*release_pinned)(void *at);
    int32_t (*release)(uint64_t at);
    int32_t (*write)(uint64_t to, const void *from, size_t nbytes, void *stream);
    int32_t (*read)(void *to, uint64_t from, size_t nbytes, void *stream);
    int32_t (*get_pointer)(void *value, int what, uint64_t at);
    int32_t (*get_range)(uint64_t *begin, size_t *nbytes, uint64_t at);
    int32_t (*load)(void **module, const void *image, unsigned count, int *option, void **value);
    int32_t (*unload)(void *module);
    int32_t (*get_function)(void **function, void *module, const char *name);
    int32_t (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared_bytes, void *stream,
                      void **parameters, void **extra);
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
    struct own_calls own_calls;
    void *library;                  /* as long as the model is open */
    void *queue, *module, *memory, *weights;
    bool is_open, owns_queue;       /* is_open: device and context are known */
    bool captures;                  /* the caller's stream did, when asked last */
    int device;
    void *pinned;                   /* MODEL_MAPPED bytes of the host */
    unsigned char *seen[MODEL_SPANS];       /* the host's copies, in pinned or lent memory */
    struct seen_part part[MODEL_SPANS];
    int nseen;
    size_t npinned;                 /* pinned bytes that the copies use */
};

/* Calls a function of the driver; the value is the model's status, and an error is reported.
 * TRY_AS: for an error code that the call has already returned. */
#define TRY_AS(call, error)                                                                        \
    status_of(self, call_name[offsetof(struct driver, call) / sizeof(void *)], error)
#define TRY(call, ...) TRY_AS(call, self->device.call(__VA_ARGS__))
static int status_of(const model_self *self, const char *call, int32_t error);

/* Defined by cuda.c or amd.c: */
static const char *words_of(const model_self *self, int32_t error);
static int open_context(model_self *self);               /* finds the device and its context */
static void close_context(model_self *self);
static int enter(model_self *self);                      /* makes it current, until leave() */
static void leave(model_self *self);
static int open_module(model_self *self);
/* memory of the model's device? */
static int check_owner(const model_self *self, uint64_t at, bool *is_ours);
/* opts in to the kernel's dynamic shared memory */
static int allow_local(const model_self *self, int index);
static int ask_capture(model_self *self, int *state);    /* of the queue; 0: not capturing */
static int begin_arguments(model_self *self);            /* before the first set_argument() */
static int put_argument(model_self *self, int argument); /* self->value[argument] has changed */

//@ graphs_driver_load own
enum { STUB = 34 };

/* Is it a sticky error: one of a kernel or the device, which every later call in this
 * context returns? */
static bool stays(int32_t error)
{
    static const int32_t staying[] = {214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719};
    for (size_t i = 0; i < sizeof staying / sizeof *staying; i++)
        if (staying[i] == error)
            return true;
    return false;
}

/* "cuMemAlloc: out of memory (2)" */
static void complain_of(const model_self *self, const char *call, int32_t error)
{
    const char *text = words_of(self, error);
    char line[300];
    snprintf(line, sizeof line, "%s: %s (%d)%s", call, text ? text : "unknown error", (int)error,
             stays(error) ? ", of a kernel that ran before, of whichever program of this context: "
                            "the context does nothing more, close what uses it and open another"
             : error == STUB ? ", the library that was found is the toolkit's stand-in for "
                               "linking, and no driver"
                             : "");
    complain(self, line);
}

/* Errors that CUDA and HIP share have the same numbers. */
static int status_of(const model_self *self, const char *call, int32_t error)
{
    enum { OUT_OF_MEMORY = 2, OLD_RUNTIME = 35, OLD_DRIVER = 36, NO_DEVICE = 100,
           INVALID_DEVICE = 101, NO_CODE = 209, NO_JIT = 221, OLD_PTX = 222, MISMATCH = 803 };
    if (error != 0)
        complain_of(self, call, error);
    switch (error) {
    case 0: return MODEL_OK;
    case OUT_OF_MEMORY: return MODEL_DEVICE_MEMORY;
    case NO_DEVICE: case INVALID_DEVICE: case STUB: return MODEL_NO_DEVICE;
    case OLD_RUNTIME: case OLD_DRIVER: case OLD_PTX: case NO_JIT: case MISMATCH:
        return MODEL_OLD_DRIVER;
    case NO_CODE: return MODEL_OTHER_DEVICE;
    default: return MODEL_DEVICE_FAILED;
    }
}

/* Passes on a status, and restores the thread's own device. */
static int done(model_self *self, int status)
{
    leave(self);
    return status;
}

/* Opens the library. Reports that no file has such a name, or else why the first file
 * found does not load. */
static void find_library(model_self *self)
{
    struct driver *d = &self->device;
    char why[300] = "";
    for (size_t i = 0; !d->library && i < sizeof library_name / sizeof *library_name; i++) {
        d->library = dlopen(library_name[i], RTLD_NOW | RTLD_LOCAL);
        const char *error = d->library ? NULL : dlerror();
        if (error && !*why && strncmp(error, library_name[i], strlen(library_name[i])) != 0)
            snprintf(why, sizeof why, "%s does not load: %s", library_name[i], error);
    }
    if (!d->library)
        complain(self, *why ? why : no_library);
}

/* Loads the library and its functions. */
static int load_driver(model_self *self)
{
    struct driver *d = &self->device;
    char line[120];
    find_library(self);
    for (size_t i = 0; d->library && i < sizeof call_name / sizeof *call_name; i++) {
        void *function = dlsym(d->library, call_name[i]);
        if (!function) {
            snprintf(line, sizeof line, "the driver has no %s: it is older than %s", call_name[i],
                     oldest_version);
            complain(self, line);
            return MODEL_OLD_DRIVER;
        }
        memcpy((unsigned char *)d + i * sizeof function, &function, sizeof function);
    }
    return d->library ? MODEL_OK : MODEL_NO_DEVICE;
}

//@ graphs_driver_hold
/* The caller's device memory is an address, without a reference count. */
static bool hold_buffer(const model_self *self, void *buffer) { (void)self; return buffer != NULL; }
static void let_buffer(const model_self *self, void *buffer) { (void)self; (void)buffer; }

//@ graphs_driver_queue load
/* MODEL_CAPTURING: the caller's stream records a graph. What is launched runs later, and waiting
 * would invalidate the capture. The model's own stream never captures. */
static int look_at_queue(model_self *self)
{
    struct driver *d = &self->device;
    int state = 0, status = MODEL_OK;
    if (self->options.queue) {
        status = enter(self);
        if (status == MODEL_OK)
            status = done(self, ask_capture(self, &state));
    }
    d->captures = status == MODEL_OK && state != 0;
    return d->captures ? MODEL_CAPTURING : status;
}

//@ graphs_driver_open load hold queue
/* Releases whatever has been acquired so far. */
static void device_close(model_self *self)
{
    struct driver *d = &self->device;
    const bool waits = d->is_open && d->queue && look_at_queue(self) != MODEL_CAPTURING;
    if (d->is_open && enter(self) == MODEL_OK) {
        if (waits)
            d->wait(d->queue);
        for (int i = 0; i < MODEL_KERNELS; i++) {
            if (self->list[i])
                d->destroy_list(self->list[i]);
            if (self->graph[i])
                d->destroy_graph(self->graph[i]);
        }
        if (d->module)
            d->unload(d->module);
        if (d->weights)
            d->release((uint64_t)(uintptr_t)d->weights);
        if (d->memory)
            d->release((uint64_t)(uintptr_t)d->memory);
        if (d->pinned)
            d->release_pinned(d->pinned);
        if (d->owns_queue)
            d->destroy_stream(d->queue);
        leave(self);
    }
    for (int i = 0; i < d->nseen; i++)
        free(d->part[i].lent);
    close_context(self);
    if (d->library)
        dlclose(d->library);
    memset(d, 0, sizeof *d);
}

/* The wanted-th device, counted from 1; 0: the first. */
static int choose_device(model_self *self, int wanted)
{
    int n = 0;
    int status = TRY(count_devices, &n);
    if (status == MODEL_OK && (n == 0 || wanted > n))
        complain(self, n == 0 ? "the driver has no device"
                              : "options.device is more than there are devices");
    if (status == MODEL_OK && (n == 0 || wanted > n))
        return MODEL_NO_DEVICE;
    return status == MODEL_OK ? TRY(get_device, &self->device.device, wanted > 0 ? wanted - 1 : 0)
                              : status;
}

/* Settles on `theirs`, the device of the context or stream that the caller passed; if that is -1,
 * on the device that options.device names. */
static int settle_device(model_self *self, int theirs)
{
    const int wanted = self->options.device;
    int status = theirs < 0 || wanted > 0 ? choose_device(self, wanted) : MODEL_OK;
    if (status == MODEL_OK && theirs >= 0 && wanted > 0 && self->device.device != theirs) {
        complain(self,
                 "options.context or options.queue is of another device than options.device names");
        return MODEL_BAD_OPTIONS;
    }
    if (theirs >= 0)
        self->device.device = theirs;
    return status;
}

/* Sizes are compared first, so that nothing is taken from others if the whole does not fit. */
static int open_memory(model_self *self, size_t weights)
{
    struct driver *d = &self->device;
    uint64_t memory = 0, at = 0;
    size_t left = 0, all = 0;
    char line[200];
    int status = TRY(get_memory, &left, &all);
    if (status == MODEL_OK && (weights > all || MODEL_DEVICE_BYTES > all - weights))
        status = MODEL_DEVICE_MEMORY;
    if (status == MODEL_OK)
        status = TRY(allocate, &memory, MODEL_DEVICE_BYTES);
    d->memory = (void *)(uintptr_t)memory;
    if (status == MODEL_OK && weights > 0)
        status = TRY(allocate, &at, weights);
    d->weights = (void *)(uintptr_t)at;
    if (status == MODEL_DEVICE_MEMORY) {
        snprintf(line, sizeof line,
                 "the model needs %zu bytes and %zu for its weights, and of the device's %zu "
                 "bytes %zu are free: give smaller bounds by --dim",
                 (size_t)MODEL_DEVICE_BYTES, weights, all, left);
        complain(self, line);
    }
    if (status == MODEL_OK && MODEL_MAPPED > 0)
        status = TRY(allocate_pinned, &d->pinned, MODEL_MAPPED, 0);
    return status;
}

/* Opens the driver, a device, a stream, the memory, the kernels. */
static int device_open(model_self *self, size_t weights)
{
    enum { NON_BLOCKING = 1 };
    struct driver *d = &self->device;
    if (self->options.device < 0)
        return MODEL_BAD_OPTIONS;
    int status = load_driver(self);
    if (status == MODEL_OK)
        status = TRY(init, 0);
    if (status == MODEL_OK)
        status = open_context(self);
    d->is_open = status == MODEL_OK;
    d->queue = self->options.queue;
    if (status == MODEL_OK)
        status = look_at_queue(self);
    if (status == MODEL_CAPTURING)
        complain(self, "options.queue captures, and weights are copied now: open the model before");
    if (status == MODEL_OK)
        status = enter(self);
    if (status != MODEL_OK)
        return status;
    if (!d->queue)
        status = TRY(create_stream, &d->queue, NON_BLOCKING);
    d->owns_queue = !self->options.queue && status == MODEL_OK;
    if (status == MODEL_OK)
        status = open_memory(self, weights);
    if (status == MODEL_OK)
        status = open_module(self);
    return done(self, status);
}

//@ graphs_driver_argument
/* Arguments are addresses and numbers: nothing is to be prepared. */
static int begin_arguments(model_self *self) { (void)self; return MODEL_OK; }
static int put_argument(model_self *self, int argument)
{
    (void)self, (void)argument;
    return MODEL_OK;
}

//@ graphs_driver_record argument
/* Sets an argument for the next start. */
static bool set_argument(model_self *self, int index, int i, uint64_t value)
{
    const struct argument *a = &argument_of[launch_of[index].first + i];
    if (a->place >= 0)
        value += (uint64_t)(uintptr_t)self->place[a->place].buffer + self->place[a->place].at;
    self->value[launch_of[index].first + i] = value;
    self->changed[index] = true;
    return put_argument(self, launch_of[index].first + i) == MODEL_OK;
}

/* A node must have a non-empty grid, even where this run's is empty; such a
 * graph is not started. */
static struct kernel_node node_of(model_self *self, int index)
{
    const struct launch *l = &launch_of[index];
    struct kernel_node n;
    memset(&n, 0, sizeof n);
    n.function = self->kernel[index];
    n.parameters = &self->parameter[l->first];
    for (int d = 0; d < 3; d++) {
        n.groups[d] = self->groups[index][d] > 0 ? (unsigned)self->groups[index][d] : 1;
        n.block[d] = (unsigned)l->block[d];
    }
    n.shared_bytes = local_of[index];
    return n;
}

/* Makes the graph of the kernels from .. to - 1. There is none if the driver takes no functions of
 * modules in graphs (HIP of ROCm 5). */
static int record_part(model_self *self, int from, int to)
{
    enum { NO_FUNCTION_OF_GRAPHS = 98 };
    int status = TRY(create_graph, &self->graph[from], 0);
    for (int i = from; i < to && status == MODEL_OK; i++) {
        const struct kernel_node node = node_of(self, i);
        const int count = behind_first[i + 1] - behind_first[i];
        void *behind[MODEL_BEHIND];
        for (int k = 0; k < count; k++)
            behind[k] = self->node[behind_of[behind_first[i] + k]];
        const int32_t error = self->device.add_kernel(&self->node[i], self->graph[from],
                                                      count ? behind : NULL, (size_t)count, &node);
        if (error == NO_FUNCTION_OF_GRAPHS)
            return MODEL_OK;
        status = TRY_AS(add_kernel, error);
        self->changed[i] = false;
    }
    return status == MODEL_OK ? TRY(instantiate, &self->list[from], self->graph[from], 0) : status;
}

/* Finds the kernels, and makes the graph of each part. */
static int record(model_self *self)
{
    int status = enter(self);
    if (status != MODEL_OK)
        return status;
    status = begin_arguments(self);
    for (int i = 0; i < MODEL_KERNELS && status == MODEL_OK; i++) {
        const struct launch *l = &launch_of[i];
        status = status_of(
            self, l->function,
            self->device.get_function(&self->kernel[i], self->device.module, l->function));
        if (status == MODEL_OK && local_of[i])
            status = allow_local(self, i);
        for (int k = 0; k < l->count && status == MODEL_OK; k++) {
            self->parameter[l->first + k] = &self->value[l->first + k];
            if (!set_argument(self, i, k, argument_of[l->first + k].at))
                status = MODEL_DEVICE_FAILED;
        }
    }
    for (int i = 0; i < MODEL_KERNELS && status == MODEL_OK; i++)
        if (part_end[i])
            status = record_part(self, i, part_end[i]);
    return done(self, status);
}

//@ graphs_driver_map to_device
/* Where the host's copy of a part goes: into pinned memory, after the other copies of the
 * same step. Saving all states may need more and is rare, so that memory is lent until they
 * are handed back. */
static unsigned char *place_copy(model_self *self, struct seen_part *part)
{
    enum { ALIGN = 64 };
    struct driver *d = &self->device;
    const size_t nbytes = (part->nbytes + ALIGN - 1) / ALIGN * ALIGN;
    if (nbytes > MODEL_MAPPED - d->npinned) {
        part->lent = malloc(nbytes);
        if (!part->lent)
            complain(self, "the host has no memory for a copy of the states");
        return (unsigned char *)part->lent;
    }
    d->npinned += nbytes;
    return (unsigned char *)d->pinned + d->npinned - nbytes;
}

/* Gives the host the i-th span; copies it if the host reads it. waits: until all spans are
 * copied, and until the device has read what the host handed back before. After a failure
 * nothing is handed back. */
static bool map_span(model_self *self, int i, const struct span *s, bool waits)
{
    enum { READS = 1, WRITES = 2 };
    struct driver *d = &self->device;
    struct seen_part *part = &d->part[i];
    d->npinned = i ? d->npinned : 0;
    memset(part, 0, sizeof *part);
    part->at = s->at;
    part->nbytes = s->nbytes;
    part->is_stored = (s->how & WRITES) != 0;
    d->seen[i] = place_copy(self, part);
    d->nseen = i + 1;
    int status = d->seen[i] ? enter(self) : MODEL_DEVICE_MEMORY;
    if (status == MODEL_OK) {
        if ((s->how & READS) && s->nbytes > 0)
            status =
                TRY(read, d->seen[i], (uint64_t)(uintptr_t)d->memory + s->at, s->nbytes, d->queue);
        if (waits && status == MODEL_OK)
            status = TRY(wait, d->queue);
        leave(self);
    }
    for (int k = 0; k <= i && status != MODEL_OK; k++)
        d->part[k].is_stored = false;
    return status == MODEL_OK;
}

//@ graphs_driver_to_device
/* Copies back to the device what the host has stored. */
static int to_device(model_self *self)
{
    struct driver *d = &self->device;
    int status = d->nseen ? enter(self) : MODEL_OK;
    if (!d->nseen || status != MODEL_OK)
        return status;
    bool waits = false;
    for (int i = 0; i < d->nseen; i++) {
        const struct seen_part *part = &d->part[i];
        if (part->is_stored && part->nbytes > 0 && status == MODEL_OK)
            status = TRY(write, (uint64_t)(uintptr_t)d->memory + part->at, d->seen[i], part->nbytes,
                         d->queue);
        waits |= part->lent != NULL;
    }
    if (waits) {
        const int waited = TRY(wait, d->queue);
        status = status == MODEL_OK ? waited : status;
    }
    for (; d->nseen > 0; d->nseen--)
        free(d->part[d->nseen - 1].lent);
    return done(self, status);
}

//@ graphs_driver_start
/* Launches one kernel, and reports its time if a hook asks for it. */
static int start_one(model_self *self, int index)
{
    const struct driver *d = &self->device;
    const struct kernel_node n = node_of(self, index);
    const bool timed = self->options.on_kernel_time && !d->captures;
    void *event[2] = {NULL, NULL};
    float ms = 0;
    int status = MODEL_OK;
    step(self, index);
    for (int a = 0; a < 3; a++)
        if (self->groups[index][a] == 0)
            return MODEL_OK;        /* nothing to compute */
    for (int i = 0; i < 2 && timed && status == MODEL_OK; i++)
        status = TRY(create_event, &event[i], 0);
    if (timed && status == MODEL_OK)
        status = TRY(record_event, event[0], d->queue);
    if (status == MODEL_OK)
        status = TRY(launch, n.function, n.groups[0], n.groups[1], n.groups[2], n.block[0],
                     n.block[1], n.block[2], n.shared_bytes, d->queue, n.parameters, NULL);
    if (timed && status == MODEL_OK)
        status = TRY(record_event, event[1], d->queue);
    if (status == MODEL_OK && (timed || self->options.on_kernel) && !d->captures)
        status = TRY(wait, d->queue);
    if (timed && status == MODEL_OK)
        status = TRY(get_event_time, &ms, event[0], event[1]);
    if (timed && status == MODEL_OK)
        self->options.on_kernel_time(self->options.user, index, kernel_info[index].name,
                                     (double)ms * 1e6);
    for (int i = 0; i < 2; i++)
        if (event[i])
            d->destroy_event(event[i]);
    return status;
}

/* Updates the nodes that changed, and launches the part's graph. */
static int start_graph(model_self *self, int from, int to)
{
    int status = MODEL_OK;
    for (int i = from; i < to && status == MODEL_OK; i++) {
        if (!self->changed[i])
            continue;
        const struct kernel_node node = node_of(self, i);
        status = TRY(set_kernel, self->list[from], self->node[i], &node);
        self->changed[i] = status != MODEL_OK;
    }
    return status == MODEL_OK ? TRY(launch_graph, self->list[from], self->device.queue) : status;
}

static bool start(model_self *self, int from, int to)
{
    bool whole = self->list[from] && !self->options.on_kernel && !self->options.on_kernel_time &&
                 !self->device.captures;
    for (int i = from; i < to; i++)
        for (int d = 0; d < 3; d++)
            whole &= self->groups[i][d] > 0;
    if (enter(self) != MODEL_OK)
        return false;
    int status = whole ? start_graph(self, from, to) : MODEL_OK;
    for (int i = from; i < to && !whole && status == MODEL_OK; i++)
        status = start_one(self, i);
    return done(self, status) == MODEL_OK;
}

//@ graphs_driver_write
static bool write_buffer(model_self *self, void *buffer, size_t at, size_t nbytes, const void *from,
                         bool waits)
{
    if (enter(self) != MODEL_OK)
        return false;
    int status = TRY(write, (uint64_t)(uintptr_t)buffer + at, from, nbytes, self->device.queue);
    if (status == MODEL_OK && waits)
        status = TRY(wait, self->device.queue);
    return done(self, status) == MODEL_OK;
}

//@ graphs_driver_read
static bool read_buffer(model_self *self, void *buffer, size_t at, size_t nbytes, void *to)
{
    return enter(self) == MODEL_OK &&
           done(self, TRY(read, to, (uint64_t)(uintptr_t)buffer + at, nbytes,
                          self->device.queue)) == MODEL_OK;
}

//@ graphs_driver_end to_device
/* Ends a run's list, with an event if the caller asks for one. */
static int mark(model_self *self, void **event)
{
    enum { NO_TIMING = 2 };
    int status = to_device(self);
    if (!event || status != MODEL_OK)
        return status;
    status = enter(self);
    if (status != MODEL_OK)
        return status;
    status = TRY(create_event, event, NO_TIMING);
    if (status == MODEL_OK)
        status = TRY(record_event, *event, self->device.queue);
    if (status != MODEL_OK && *event) {
        self->device.destroy_event(*event);
        *event = NULL;
    }
    return done(self, status);
}

static bool wait_all(model_self *self)
{
    return enter(self) == MODEL_OK && done(self, TRY(wait, self->device.queue)) == MODEL_OK;
}

/* Can the caller's memory hold this tensor? *room: the bytes from there to the end
 * of the allocation. */
static int check_buffer(model_self *self, int place, void *buffer, size_t at, size_t *room)
{
    const uint64_t address = (uint64_t)(uintptr_t)buffer;
    uint64_t begin = 0;
    size_t nbytes = 0;
    bool is_ours = true;
    int status = enter(self);
    if (status != MODEL_OK)
        return status;
    status = check_owner(self, address, &is_ours);
    if (status == MODEL_OK)
        status = TRY(get_range, &begin, &nbytes, address);
    leave(self);
    if (status != MODEL_OK)
        return MODEL_BAD_OPTIONS;
    nbytes -= (size_t)(address - begin);
    if (!is_ours)
        complain(self, "the memory is of another context than the model: "
                       "pass that one in options.context");
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
