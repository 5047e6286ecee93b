/* SPDX-License-Identifier: 0BSD */
/* metal.c - Metal from a program that links libc alone. The Objective-C runtime and the framework
 * are loaded when the model is opened, and called by messages. Also MSL's versions of pieces of
 * number.c and math.c. No header of Apple's is needed: constants are those of Metal's headers.
 *
 * Host and device share all buffers. A kernel's arguments are in a buffer, too, written when the
 * model is opened. What a run changes is written again: to the ring, if commands in flight may
 * still read the arguments in place.
 *
 *      arguments    kernel 0 | kernel 1 | ...          ring: kernel 7 of this run | ...
 *
 * So a run encodes three things for each kernel: its code, where its arguments are, how many
 * threads. A run is one command buffer with one compute encoder, which runs kernels in order. Where
 * the host needs a tensor, the command buffer is committed and waited for.
 *
 * An object that a message returns is owned by the caller if the message's name begins with "new".
 * Any other object lives until the open autorelease pool is drained, so what outlives a function is
 * retained.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//@ metal
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Where macOS has the framework and the Objective-C runtime; a build may set other paths. */
#ifndef METAL_FRAMEWORK
#define METAL_FRAMEWORK "/System/Library/Frameworks/Metal.framework/Metal"
#endif
#ifndef METAL_RUNTIME
#define METAL_RUNTIME "/usr/lib/libobjc.A.dylib"
#endif

/* MTLSize */
struct metal_size { size_t width, height, depth; };
/* A kernel's arguments: where they are, where they were at first, and their bytes. is_changed: to
 * be written again. is_read: commands in flight may read them. */
struct told { size_t at, first, nbytes; bool is_changed, is_read; };

struct metal {
    /* functions, in the order of metal_load() */
    void *(*find_class)(const char *name);
    void *(*find_selector)(const char *name);
    void (*send)(void);                 /* cast to the type of each message */
    void *(*retain)(void *object);
    void (*release)(void *object);
    void *(*push)(void);
    void (*pop)(void *pool);
    void *(*default_device)(void);
    void *(*all_devices)(void);
    void *runtime, *framework;          /* as long as the model is open */
    void *device, *queue, *library, *memory, *weights;
    void *arguments, *resident;         /* resident: the residency set of memory, weights and
                                         * arguments; NULL: the system is older than macOS 15 */
    size_t ring, ring_first, ring_end;  /* bytes of `arguments`: first free one of the ring, its
                                         * begin, its end */
    void *commands, *encoder;           /* being encoded, or NULL */
    void *last;                         /* committed last, and not yet waited for */
    void *set_kernel, *set_buffer, *dispatch;       /* selectors of the encoder */
    unsigned char *seen[MODEL_SPANS];   /* where the host sees parts of the memory */
};

//@ metal_driver_load
static int metal_load(model_self *self)
{
    static const char *const name[] = {
        "objc_getClass", "sel_registerName", "objc_msgSend", "objc_retain", "objc_release",
        "objc_autoreleasePoolPush", "objc_autoreleasePoolPop", "MTLCreateSystemDefaultDevice",
        "MTLCopyAllDevices"};
    struct metal *m = &self->device;
    char line[120];
    m->runtime = dlopen(METAL_RUNTIME, RTLD_NOW | RTLD_LOCAL);
    m->framework = m->runtime ? dlopen(METAL_FRAMEWORK, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!m->framework) {
        complain(self, "Metal is of macOS, and this system has no " METAL_FRAMEWORK);
        return MODEL_NO_DEVICE;
    }
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        void *function =
            dlsym(strncmp(name[i], "MTL", 3) == 0 ? m->framework : m->runtime, name[i]);
        if (!function) {
            snprintf(line, sizeof line, "the system has no %s: it is older than macOS 12", name[i]);
            complain(self, line);
            return MODEL_OLD_DRIVER;
        }
        memcpy((unsigned char *)m + i * sizeof function, &function, sizeof function);
    }
    return MODEL_OK;
}

//@ metal_driver_messages load
/* objc_msgSend by the types of what messages take and return. */
static void *ask(const model_self *self, void *object, const char *message)
{
    void *(*const send)(void *, void *) = (void *(*)(void *, void *))self->device.send;
    return send(object, self->device.find_selector(message));
}

static void *ask_with(const model_self *self, void *object, const char *message, const void *with)
{
    void *(*const send)(void *, void *, const void *) =
        (void *(*)(void *, void *, const void *))self->device.send;
    return send(object, self->device.find_selector(message), with);
}

/* A message whose last argument is the NSError to set. */
static void *ask_or_error(const model_self *self, void *object, const char *message, void *with,
                          void **error)
{
    void *(*const send)(void *, void *, void *, void **) =
        (void *(*)(void *, void *, void *, void **))self->device.send;
    return send(object, self->device.find_selector(message), with, error);
}

static size_t ask_number(const model_self *self, void *object, const char *message)
{
    size_t (*const send)(void *, void *) = (size_t (*)(void *, void *))self->device.send;
    return send(object, self->device.find_selector(message));
}

static void tell(const model_self *self, void *object, const char *message)
{
    void (*const send)(void *, void *) = (void (*)(void *, void *))self->device.send;
    send(object, self->device.find_selector(message));
}

/* "commandBuffer: what an NSError says" */
static void complain_of(const model_self *self, const char *what, void *error)
{
    char line[2000];
    void *text = ask(self, error, "localizedDescription");
    const char *why = text ? ask(self, text, "UTF8String") : NULL;
    snprintf(line, sizeof line, "%s: %s", what, why ? why : "it failed, and does not say why");
    complain(self, line);
}

/* The status of a message that returns an object; a failure is reported. */
static int made(const model_self *self, const void *object, const char *message, int status)
{
    char line[120];
    if (object)
        return MODEL_OK;
    snprintf(line, sizeof line, "%s failed", message);
    complain(self, line);
    return status;
}

//@ metal_driver_hold
static bool hold_buffer(const model_self *self, void *buffer)
{
    return self->device.retain(buffer) != NULL;
}
static void let_buffer(const model_self *self, void *buffer) { self->device.release(buffer); }

//@ metal_driver_commands messages
/* Waits for a command buffer, and releases it. */
static int await(const model_self *self, void *commands)
{
    enum { COMPLETED = 4 };
    const struct metal *m = &self->device;
    int status = MODEL_OK;
    void *pool = m->push();
    tell(self, commands, "waitUntilCompleted");
    if (ask_number(self, commands, "status") != COMPLETED) {
        complain_of(self, "the device's commands", ask(self, commands, "error"));
        status = MODEL_DEVICE_FAILED;
    }
    m->release(commands);
    m->pop(pool);
    return status;
}

/* Declares the buffers that kernels reach through addresses in argument buffers: all that they
 * read, and all that they write. That makes them resident, and orders them with other
 * encoders' accesses. */
static void use_buffers(const model_self *self)
{
    enum { READ = 1, WRITE = 2 };
    const struct metal *m = &self->device;
    void (*const use)(void *, void *, void *const *, size_t, size_t) =
        (void (*)(void *, void *, void *const *, size_t, size_t))m->send;
    void *reads[MODEL_PLACES] = {m->weights}, *writes[MODEL_PLACES] = {m->memory};
    size_t nread = 1, nwrite = 1;
    for (int i = 2; i < MODEL_PLACES; i++)
        if (self->place[i].is_bound && i < 2 + MODEL_INPUTS)
            reads[nread++] = self->place[i].buffer;
        else if (self->place[i].is_bound)
            writes[nwrite++] = self->place[i].buffer;
    use(m->encoder, m->find_selector("useResources:count:usage:"), reads, nread, READ);
    use(m->encoder, m->find_selector("useResources:count:usage:"), writes, nwrite, READ | WRITE);
}

/* Makes an encoder, unless one is open. */
static int begin_commands(model_self *self)
{
    struct metal *m = &self->device;
    int status = MODEL_OK;
    if (m->encoder)
        return MODEL_OK;
    void *pool = m->push(), *commands = ask(self, m->queue, "commandBuffer"), *encoder = NULL;
    status = made(self, commands, "commandBuffer", MODEL_DEVICE_FAILED);
    if (status == MODEL_OK) {
        encoder = ask(self, commands, "computeCommandEncoder");
        status = made(self, encoder, "computeCommandEncoder", MODEL_DEVICE_FAILED);
    }
    if (status == MODEL_OK) {
        m->commands = m->retain(commands);
        m->encoder = m->retain(encoder);
        use_buffers(self);
    }
    m->pop(pool);
    return status;
}

/* Commits what is encoded. At most two command buffers are in flight: this one and the last, so the
 * one before that is waited for. */
static int commit_commands(model_self *self)
{
    struct metal *m = &self->device;
    void *before = m->last;
    if (!m->encoder)
        return MODEL_OK;
    void *pool = m->push();
    tell(self, m->encoder, "endEncoding");
    tell(self, m->commands, "commit");
    m->release(m->encoder);
    m->pop(pool);
    m->last = m->commands;
    m->encoder = m->commands = NULL;
    return before ? await(self, before) : MODEL_OK;
}

/* No command is in flight: the ring is free, and arguments return to their first place. */
static void forget_readers(model_self *self)
{
    self->device.ring = self->device.ring_first;
    for (int i = 0; i < MODEL_KERNELS; i++) {
        struct told *t = &self->told[i];
        t->is_changed |= t->at != t->first;
        t->at = t->first;
        t->is_read = false;
    }
}

/* Commits what is encoded, and waits until all of it is done. */
static int finish_commands(model_self *self)
{
    struct metal *m = &self->device;
    int status = commit_commands(self);
    void *last = m->last;
    m->last = NULL;
    int ended = last ? await(self, last) : MODEL_OK;
    forget_readers(self);
    return status == MODEL_OK ? ended : status;
}

//@ metal_driver_open messages hold commands
/* Releases whatever has been acquired so far. */
static void device_close(model_self *self)
{
    struct metal *m = &self->device;
    if (m->encoder) {              /* after a failed run: encoding must end before the release */
        tell(self, m->encoder, "endEncoding");
        m->release(m->encoder);
        m->release(m->commands);
    }
    if (m->last)
        await(self, m->last);
    if (m->resident)
        ask_with(self, m->queue, "removeResidencySet:", m->resident);
    for (int i = 0; i < MODEL_KERNELS; i++) {
        if (self->kernel[i])
            m->release(self->kernel[i]);
        if (self->encoder[i])
            m->release(self->encoder[i]);
    }
    void *const object[] = {m->resident, m->library, m->arguments, m->weights,
                            m->memory,   m->queue,   m->device};
    for (size_t i = 0; i < sizeof object / sizeof *object; i++)
        if (object[i])
            m->release(object[i]);
    if (m->framework)
        dlclose(m->framework);
    if (m->runtime)
        dlclose(m->runtime);
    memset(m, 0, sizeof *m);
}

/* The wanted-th device, counted from 1. 0: the system's default, or the first one where there is no
 * default, as in a program without Core Graphics. The caller releases it. */
static void *choose_device(const model_self *self, int wanted)
{
    const struct metal *m = &self->device;
    void *found = wanted == 0 ? m->default_device() : NULL;
    if (found)
        return found;
    void *all = m->all_devices();
    size_t n = all ? ask_number(self, all, "count") : 0;
    void *(*const send)(void *, void *, size_t) = (void *(*)(void *, void *, size_t))m->send;
    const size_t index = wanted > 0 ? (size_t)wanted - 1 : 0;
    if (index < n)
        found = m->retain(send(all, m->find_selector("objectAtIndex:"), index));
    else
        complain(self, n == 0 ? "Metal has no device here"
                              : "options.device is more than there are devices");
    if (all)
        m->release(all);
    return found;
}

/* The device: options.context if given, else that of options.queue, else options.device (0: the
 * system's default, n: the n-th). Two that name different devices are an error. The queue: the
 * caller's, else a new one. Both are retained. */
static int open_queue(model_self *self)
{
    struct metal *m = &self->device;
    const model_options *o = &self->options;
    void *of_queue = o->queue ? ask(self, o->queue, "device") : NULL,
         *given = o->context ? o->context : of_queue;
    if (o->context && of_queue && of_queue != o->context) {
        complain(self, "options.queue is of another device than options.context");
        return MODEL_BAD_OPTIONS;
    }
    m->device = !given || o->device > 0 ? choose_device(self, o->device) : m->retain(given);
    if (m->device && given && m->device != given) {
        complain(self,
                 "options.context or options.queue is of another device than options.device names");
        return MODEL_BAD_OPTIONS;
    }
    if (!m->device)
        return MODEL_NO_DEVICE;
    m->queue = o->queue ? m->retain(o->queue) : ask(self, m->device, "newCommandQueue");
    return made(self, m->queue, "newCommandQueue", MODEL_DEVICE_FAILED);
}

/* SIMD-group matrices need Apple's GPU family 7; argument buffers of tier 2 need family 6. */
static int check_family(const model_self *self)
{
    enum { APPLE7 = 1007, SECOND_TIER = 1 };
    const struct metal *m = &self->device;
    bool (*const send)(void *, void *, size_t) = (bool (*)(void *, void *, size_t))m->send;
    if (MODEL_SECOND_TIER && ask_number(self, m->device, "argumentBuffersSupport") < SECOND_TIER) {
        complain(self, "a kernel has more than 31 tensors and run-time sizes, and the device's "
                       "argument buffers have no more: compile with -O0");
        return MODEL_OTHER_DEVICE;
    }
    if (!MODEL_SIMD_MATRICES || send(m->device, m->find_selector("supportsFamily:"), APPLE7))
        return MODEL_OK;
    complain(self, "kernels multiply matrices by SIMD groups, and the device is older than Apple's "
                   "M1 and A14, or another maker's: compile with --no-locals");
    return MODEL_OTHER_DEVICE;
}

/* Allocates the buffers of the arena and of the weights. Each is BEHIND bytes longer: a tensor
 * without elements may begin at the end of all others, and Metal requires an offset within the
 * buffer. */
static int open_memory(model_self *self, size_t weights)
{
    enum { SHARED = 0, BEHIND = 16 };
    struct metal *m = &self->device;
    void *(*const send)(void *, void *, size_t, size_t) =
        (void *(*)(void *, void *, size_t, size_t))m->send;
    void *const make = m->find_selector("newBufferWithLength:options:");
    char line[200];
    m->memory = send(m->device, make, MODEL_DEVICE_BYTES + BEHIND, SHARED);
    m->weights = m->memory ? send(m->device, make, weights + BEHIND, SHARED) : NULL;
    if (m->weights)
        return MODEL_OK;
    snprintf(line, sizeof line,
             "the model needs %zu bytes and %zu for its weights, and the device has buffers of "
             "%zu bytes at most, or less memory: give smaller bounds by --dim",
             (size_t)MODEL_DEVICE_BYTES, weights, ask_number(self, m->device, "maxBufferLength"));
    complain(self, line);
    return MODEL_DEVICE_MEMORY;
}

/* Joins the texts to an NSString, which lives until the pool is drained. */
static void *join_text(const model_self *self, const char *const *text, size_t n)
{
    size_t nbytes = 0;
    for (size_t i = 0; i < n; i++)
        nbytes += strlen(text[i]);
    char *all = malloc(nbytes + 1), *end = all;
    if (!all)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t more = strlen(text[i]);
        memcpy(end, text[i], more);
        end += more;
    }
    *end = 0;
    void *string =
        ask_with(self, self->device.find_class("NSString"), "stringWithUTF8String:", all);
    free(all);
    return string;
}

/* Fast math is off, since kernels compute with infinities and NaN. */
static void *make_options(const model_self *self)
{
    const struct metal *m = &self->device;
    void *options = ask(self, m->find_class("MTLCompileOptions"), "new");
    void (*const set_flag)(void *, void *, bool) = (void (*)(void *, void *, bool))m->send;
    void (*const set_number)(void *, void *, size_t) = (void (*)(void *, void *, size_t))m->send;
    if (!options)
        return NULL;
    set_flag(options, m->find_selector("setFastMathEnabled:"), false);
    set_number(options, m->find_selector("setLanguageVersion:"), MODEL_MSL_VERSION);
    return options;
}

static int open_library(model_self *self, const char *const *text, size_t n)
{
    struct metal *m = &self->device;
    void *(*const send)(void *, void *, void *, void *, void **) =
        (void *(*)(void *, void *, void *, void *, void **))m->send;
    void *error = NULL, *string = join_text(self, text, n),
         *options = string ? make_options(self) : NULL;
    if (!options)
        return made(self, NULL, string ? "MTLCompileOptions" : "NSString", MODEL_DEVICE_FAILED);
    m->library = send(m->device, m->find_selector("newLibraryWithSource:options:error:"), string,
                      options, &error);
    m->release(options);
    if (m->library)
        return MODEL_OK;
    complain_of(self, "the kernels do not compile", error);
    return MODEL_DEVICE_FAILED;
}

/* Opens the framework, a device, a queue, the memory, the kernels. */
static int device_open(model_self *self, const char *const *text, size_t n, size_t weights)
{
    struct metal *m = &self->device;
    if (self->options.device < 0)
        return MODEL_BAD_OPTIONS;
    int status = metal_load(self);
    if (status != MODEL_OK)
        return status;
    void *pool = m->push();
    m->set_kernel = m->find_selector("setComputePipelineState:");
    m->set_buffer = m->find_selector("setBuffer:offset:atIndex:");
    m->dispatch = m->find_selector("dispatchThreadgroups:threadsPerThreadgroup:");
    status = open_queue(self);
    if (status == MODEL_OK)
        status = check_family(self);
    if (status == MODEL_OK)
        status = open_memory(self, weights);
    if (status == MODEL_OK)
        status = open_library(self, text, n);
    m->pop(pool);
    return status;
}

//@ metal_driver_record
/* Sets an argument for the next start. */
static bool set_argument(model_self *self, int index, int i, uint64_t value)
{
    self->value[launch_of[index].first + i] = value;
    self->told[index].is_changed = true;
    return true;
}

/* Does the device run the kernel in threadgroups of this size? */
static int check_kernel(const model_self *self, void *kernel, const struct launch *l)
{
    const struct metal *m = &self->device;
    const size_t threads = l->block[0] * l->block[1] * l->block[2];
    const size_t most = ask_number(self, kernel, "maxTotalThreadsPerThreadgroup");
    const size_t local = ask_number(self, kernel, "staticThreadgroupMemoryLength");
    const size_t room = ask_number(self, m->device, "maxThreadgroupMemoryLength");
    const size_t width = ask_number(self, kernel, "threadExecutionWidth");
    char line[300];
    if (threads <= most && local <= room && width % MODEL_SIMD_WIDTH == 0)
        return MODEL_OK;
    if (threads > most)
        snprintf(line, sizeof line,
                 "kernel %s has %zu threads in a threadgroup, and the device runs %zu of it: "
                 "compile with --no-locals",
                 l->function, threads, most);
    else if (local > room)
        snprintf(line, sizeof line,
                 "kernel %s has %zu bytes of threadgroup memory, and the device %zu: compile "
                 "with --no-locals",
                 l->function, local, room);
    else
        snprintf(line, sizeof line,
                 "kernel %s is for SIMD groups of %d threads, and the device's have %zu: "
                 "compile with --no-locals",
                 l->function, MODEL_SIMD_WIDTH, width);
    complain(self, line);
    return MODEL_OTHER_DEVICE;
}

static int make_kernel(model_self *self, int index)
{
    const struct metal *m = &self->device;
    const struct launch *l = &launch_of[index];
    void *error = NULL;
    for (int i = 0; i < index; i++)
        if (strcmp(launch_of[i].function, l->function) == 0) {
            self->kernel[index] = m->retain(self->kernel[i]);
            self->encoder[index] = m->retain(self->encoder[i]);
            return MODEL_OK;
        }
    void *name = ask_with(self, m->find_class("NSString"), "stringWithUTF8String:", l->function);
    void *function = name ? ask_with(self, m->library, "newFunctionWithName:", name) : NULL;
    if (!function)
        return made(self, NULL, l->function, MODEL_DEVICE_FAILED);
    void *(*const send)(void *, void *, size_t) = (void *(*)(void *, void *, size_t))m->send;
    self->encoder[index] =
        send(function, m->find_selector("newArgumentEncoderWithBufferIndex:"), 0);
    self->kernel[index] = ask_or_error(
        self, m->device, "newComputePipelineStateWithFunction:error:", function, &error);
    m->release(function);
    if (self->kernel[index])
        return self->encoder[index]
                   ? check_kernel(self, self->kernel[index], l)
                   : made(self, NULL, "newArgumentEncoderWithBufferIndex:", MODEL_DEVICE_FAILED);
    complain_of(self, l->function, error);
    return MODEL_DEVICE_FAILED;
}

/* Allocates the buffer of all kernels' arguments, then a ring of at least as many bytes for
 * arguments that commands in flight do not share. */
static int make_arguments(model_self *self)
{
    enum { SHARED = 0, ALIGN = 256, LEAST_RING = 1 << 16 };
    struct metal *m = &self->device;
    void *(*const send)(void *, void *, size_t, size_t) =
        (void *(*)(void *, void *, size_t, size_t))m->send;
    size_t end = 0;
    for (int i = 0; i < MODEL_KERNELS; i++) {
        struct told *t = &self->told[i];
        t->at = t->first = end;
        t->nbytes =
            (ask_number(self, self->encoder[i], "encodedLength") + ALIGN - 1) / ALIGN * ALIGN;
        end += t->nbytes;
    }
    m->ring = m->ring_first = end;
    m->ring_end = end + (end > LEAST_RING ? end : LEAST_RING);
    m->arguments =
        send(m->device, m->find_selector("newBufferWithLength:options:"), m->ring_end, SHARED);
    return made(self, m->arguments, "newBufferWithLength:options:", MODEL_DEVICE_MEMORY);
}

/* From macOS 15 on, a residency set keeps what the queue's commands use resident between them. It
 * only saves time, so programs run without it. */
static void keep_resident(model_self *self)
{
    struct metal *m = &self->device;
    void *const kind = m->find_class("MTLResidencySetDescriptor"), *error = NULL;
    void *const wanted = kind ? ask(self, kind, "new") : NULL;
    if (!wanted)
        return;
    m->resident =
        ask_or_error(self, m->device, "newResidencySetWithDescriptor:error:", wanted, &error);
    m->release(wanted);
    if (!m->resident)
        return;
    void *const buffer[] = {m->memory, m->weights, m->arguments};
    for (size_t i = 0; i < sizeof buffer / sizeof *buffer; i++)
        ask_with(self, m->resident, "addAllocation:", buffer[i]);
    tell(self, m->resident, "commit");
    tell(self, m->resident, "requestResidency");
    ask_with(self, m->queue, "addResidencySet:", m->resident);
}

/* Makes the kernels, and sets the arguments that are the same in each run. */
static int record(model_self *self)
{
    const struct metal *m = &self->device;
    int status = MODEL_OK;
    void *pool = m->push();
    for (int i = 0; i < MODEL_KERNELS && status == MODEL_OK; i++) {
        status = make_kernel(self, i);
        for (int k = 0; k < launch_of[i].count; k++)
            set_argument(self, i, k, argument_of[launch_of[i].first + k].at);
    }
    if (status == MODEL_OK)
        status = make_arguments(self);
    if (status == MODEL_OK)
        keep_resident(self);
    m->pop(pool);
    return status;
}

//@ metal_driver_map commands
/* Host and device share the memory; the host waits until the device is done with it. */
static bool map_span(model_self *self, int i, const struct span *s, bool waits)
{
    struct metal *m = &self->device;
    unsigned char *memory = ask(self, m->memory, "contents");
    if (memory)
        m->seen[i] = memory + s->at;
    return memory && (!waits || finish_commands(self) == MODEL_OK);
}

//@ metal_driver_to_device
static int to_device(const model_self *self) { (void)self; return MODEL_OK; }

//@ metal_driver_start commands
/* Writes a kernel's arguments at byte `at` of their buffer. */
static int write_arguments(const model_self *self, int index, size_t at)
{
    const struct metal *m = &self->device;
    const struct launch *l = &launch_of[index];
    void *const encoder = self->encoder[index];
    void (*const set_place)(void *, void *, void *, size_t) =
        (void (*)(void *, void *, void *, size_t))m->send;
    void (*const set_buffer)(void *, void *, void *, size_t, size_t) =
        (void (*)(void *, void *, void *, size_t, size_t))m->send;
    void *(*const bytes_of)(void *, void *, size_t) = (void *(*)(void *, void *, size_t))m->send;
    set_place(encoder, m->find_selector("setArgumentBuffer:offset:"), m->arguments, at);
    for (int i = 0; i < l->count; i++) {
        const struct argument *a = &argument_of[l->first + i];
        const uint64_t *value = &self->value[l->first + i];
        const struct place *p = a->place >= 0 ? &self->place[a->place] : NULL;
        void *const bytes =
            p ? NULL : bytes_of(encoder, m->find_selector("constantDataAtIndex:"), (size_t)i);
        if (p)
            set_buffer(encoder, m->set_buffer, p->buffer, p->at + (size_t)*value, (size_t)i);
        else if (bytes)
            memcpy(bytes, value, sizeof *value);
        else
            return made(self, NULL, "constantDataAtIndex:", MODEL_DEVICE_FAILED);
    }
    return MODEL_OK;
}

/* Writes the arguments of the next start, if they changed: in place, or in the ring if commands in
 * flight read the old ones. */
static int settle_arguments(model_self *self, int index)
{
    struct metal *m = &self->device;
    struct told *t = &self->told[index];
    int status = MODEL_OK;
    if (t->is_changed && t->is_read && t->nbytes > m->ring_end - m->ring)
        status = finish_commands(self);
    if (t->is_changed && t->is_read && status == MODEL_OK) {
        t->at = m->ring;
        m->ring += t->nbytes;
    }
    if (t->is_changed && status == MODEL_OK) {
        status = write_arguments(self, index, t->at);
        t->is_changed = status != MODEL_OK;
    }
    t->is_read = true;
    return status;
}

/* Encodes a kernel's launch. */
static void encode(const model_self *self, int index)
{
    const struct metal *m = &self->device;
    const struct launch *l = &launch_of[index];
    void (*const set)(void *, void *, void *) = (void (*)(void *, void *, void *))m->send;
    void (*const set_buffer)(void *, void *, void *, size_t, size_t) =
        (void (*)(void *, void *, void *, size_t, size_t))m->send;
    void (*const dispatch)(void *, void *, struct metal_size, struct metal_size) =
        (void (*)(void *, void *, struct metal_size, struct metal_size))m->send;
    const struct metal_size groups = {self->groups[index][0], self->groups[index][1],
                                      self->groups[index][2]};
    const struct metal_size block = {l->block[0], l->block[1], l->block[2]};
    set(m->encoder, m->set_kernel, self->kernel[index]);
    set_buffer(m->encoder, m->set_buffer, m->arguments, self->told[index].at, 0);
    dispatch(m->encoder, m->dispatch, groups, block);
}

/* Waits for the command buffer committed last, and reports its time on the device. */
static int tell_time(model_self *self, int index)
{
    const struct metal *m = &self->device;
    double (*const get)(void *, void *) = (double (*)(void *, void *))m->send;
    void *commands = NULL;
    int status = commit_commands(self);
    if (status == MODEL_OK)
        commands = m->retain(m->last);
    if (status == MODEL_OK)
        status = finish_commands(self);
    if (status == MODEL_OK)
        self->options.on_kernel_time(self->options.user, index, kernel_info[index].name,
                                     (get(commands, m->find_selector("GPUEndTime")) -
                                      get(commands, m->find_selector("GPUStartTime"))) * 1e9);
    if (commands)
        m->release(commands);
    return status;
}

/* A kernel whose time is asked for has a command buffer of its own. */
static int start_one(model_self *self, int index)
{
    const bool timed = self->options.on_kernel_time != NULL;
    step(self, index);
    if (self->groups[index][0] == 0 || self->groups[index][1] == 0 || self->groups[index][2] == 0)
        return MODEL_OK;            /* nothing to compute */
    int status = timed ? commit_commands(self) : MODEL_OK;
    if (status == MODEL_OK)
        status = settle_arguments(self, index);
    if (status == MODEL_OK)
        status = begin_commands(self);
    if (status == MODEL_OK)
        encode(self, index);
    if (status == MODEL_OK && timed)
        return tell_time(self, index);
    return status == MODEL_OK && self->options.on_kernel ? finish_commands(self) : status;
}

static bool start(model_self *self, int from, int to)
{
    int status = MODEL_OK;
    void *pool = self->device.push();
    for (int i = from; i < to && status == MODEL_OK; i++)
        status = start_one(self, i);
    self->device.pop(pool);
    return status == MODEL_OK;
}

//@ metal_driver_contents commands
/* The buffer's bytes, once the device is done with them. NULL: the device failed, or the buffer is
 * private to it. */
static unsigned char *contents_of(model_self *self, void *buffer)
{
    return finish_commands(self) == MODEL_OK ? ask(self, buffer, "contents") : NULL;
}

//@ metal_driver_write contents
static bool write_buffer(model_self *self, void *buffer, size_t at, size_t nbytes, const void *from,
                         bool waits)
{
    unsigned char *to = contents_of(self, buffer);
    (void)waits;
    if (to)
        memcpy(to + at, from, nbytes);
    return to != NULL;
}

//@ metal_driver_read contents
static bool read_buffer(model_self *self, void *buffer, size_t at, size_t nbytes, void *to)
{
    const unsigned char *from = contents_of(self, buffer);
    if (from)
        memcpy(to, from + at, nbytes);
    return from != NULL;
}

//@ metal_driver_queue
/* Metal's queues do not capture. */
static int look_at_queue(const model_self *self) { (void)self; return MODEL_OK; }

//@ metal_driver_end to_device commands
/* Ends a run's list, with a command buffer for the caller to wait for if it asks for one. */
static int mark(model_self *self, void **event)
{
    int status = event ? begin_commands(self) : MODEL_OK;
    if (status == MODEL_OK)
        status = commit_commands(self);
    if (status == MODEL_OK && event)
        *event = self->device.retain(self->device.last);
    return status;
}

static bool wait_all(model_self *self) { return finish_commands(self) == MODEL_OK; }

/* Can the caller's buffer hold this tensor? *room: the bytes from there to the
 * end of the buffer. */
static int check_buffer(const model_self *self, int place, void *buffer, size_t at, size_t *room)
{
    const size_t nbytes = ask_number(self, buffer, "length");
    void *pool = self->device.push();
    const bool is_of_device = ask(self, buffer, "device") == self->device.device;
    self->device.pop(pool);
    if (!is_of_device)
        complain(self, "the buffer is of another device than the model: "
                       "pass that one in options.context");
    else if (at % 128 != 0)
        complain(self, "a tensor begins at a multiple of 128 bytes of a buffer");
    else if (at >= nbytes || place_info[place].nbytes > nbytes - at)
        complain(self, "the buffer ends before the tensor does");
    else {
        *room = nbytes - at;
        return MODEL_OK;
    }
    return MODEL_BAD_OPTIONS;
}

//@ metal_language
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)
#ifndef INT32_MAX
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807l - 1)
#define INT64_MAX 9223372036854775807l
#define UINT64_MAX 18446744073709551615ul
#define INT64_C(x) x##l
#define UINT64_C(x) x##ul
#endif
#define fabsf(x) fabs((float)(x))
#define copysignf(x, y) copysign((float)(x), (float)(y))
#define fmaf(x, y, z) fma((float)(x), (float)(y), (float)(z))
typedef half stored_half;
#define half half_
#define thread thread_
#define KEEP_LOOP
#define KEPT_TWICE 2

//@ metal_shuffle_f32
/* The value of thread t ^ m, which is in the same SIMD group of 32. */
static inline float shuffle_f32(float x, unsigned m) { return simd_shuffle_xor(x, (ushort)m); }

//@ metal_spaces
#ifndef SPACE_local
#define SPACE_global device
#define SPACE_local threadgroup
#endif

//@ metal_f32x4 metal_spaces
typedef float4 f32x4;
typedef uint4 i32x4;
typedef int4 mask_f32x4;
typedef int4 mask_i32x4;

//@ metal_load_word f32x4
/* four bytes from a multiple of four, in one transaction */
#define load_word(space, p) (*(SPACE_##space const int *)(p))

//@ metal_store_word f32x4
#define store_word(space, p, v) (*(SPACE_##space int *)(p) = (v))

//@ metal_load_aligned_f32x4 f32x4
/* from a multiple of 16 bytes */
#define load_aligned_f32x4(space, p) (*(SPACE_##space const f32x4 *)(p))

//@ metal_store_aligned_f32x4 f32x4
#define store_aligned_f32x4(space, p, v) (*(SPACE_##space f32x4 *)(p) = (v))

//@ metal_load_aligned_i32x4 f32x4
#define load_aligned_i32x4(space, p) (*(SPACE_##space const i32x4 *)(p))

//@ metal_store_aligned_i32x4 f32x4
#define store_aligned_i32x4(space, p, v) (*(SPACE_##space i32x4 *)(p) = (v))

//@ metal_mul_add_f32
static inline float mul_add_f32(float a, float b, float c) { return fmaf(a, b, c); }

//@ metal_exp2_f32
static inline float exp2_f32(float x) { return exp2(x); }

//@ metal_bits_f32
static inline uint32_t bits_f32(float v) { return as_type<uint32_t>(v); }

//@ metal_float_bits
static inline float float_bits(uint32_t u) { return as_type<float>(u); }

//@ metal_f16_to_f32
static inline float f16_to_f32(uint16_t h) { return (float)as_type<stored_half>(h); }

//@ metal_f32_to_f16
static inline uint16_t f32_to_f16(float v) { return as_type<uint16_t>((stored_half)v); }

//@ metal_to_i32
/* Float to integer: truncates, saturates to the range of int32; NaN becomes 0. */
static inline int32_t to_i32(float v)
{
    return v >= 2147483648.0f    ? INT32_MAX
           : v >= -2147483648.0f ? (int32_t)v
           : v < 0               ? INT32_MIN
                                 : 0;
}

//@ metal_to_i64
static inline int64_t to_i64(float v)
{
    return v >= 9223372036854775808.0f    ? INT64_MAX
           : v >= -9223372036854775808.0f ? (int64_t)v
           : v < 0                        ? INT64_MIN
                                          : 0;
}

//@ metal_to_u32
static inline uint32_t to_u32(float v)
{
    return v >= 4294967296.0f ? UINT32_MAX : v > 0 ? (uint32_t)v : 0;
}

//@ metal_to_u64
static inline uint64_t to_u64(float v)
{
    return v >= 18446744073709551616.0f ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

//@ metal_to_int
static inline int to_int(float v, int low, int high)
{
    return v >= high ? high : v > low ? (int)v : v <= low ? low : 0;
}

//@ metal_sqrt_f32
static inline float sqrt_f32(float x) { return precise::sqrt(x); }

//@ metal_log_f32
static inline float log_f32(float x) { return precise::log(x); }

//@ metal_sin_f32
static inline float sin_f32(float x) { return precise::sin(x); }

//@ metal_cos_f32
static inline float cos_f32(float x) { return precise::cos(x); }

//@ metal_tan_f32
static inline float tan_f32(float x) { return precise::tan(x); }

//@ metal_asin_f32
static inline float asin_f32(float x) { return precise::asin(x); }

//@ metal_acos_f32
static inline float acos_f32(float x) { return precise::acos(x); }

//@ metal_atan_f32
static inline float atan_f32(float x) { return precise::atan(x); }

//@ metal_sinh_f32
static inline float sinh_f32(float x) { return precise::sinh(x); }

//@ metal_cosh_f32
static inline float cosh_f32(float x) { return precise::cosh(x); }

//@ metal_asinh_f32
static inline float asinh_f32(float x) { return precise::asinh(x); }

//@ metal_acosh_f32
static inline float acosh_f32(float x) { return precise::acosh(x); }

//@ metal_atanh_f32
static inline float atanh_f32(float x) { return precise::atanh(x); }

//@ metal_atan2_f32
static inline float atan2_f32(float y, float x) { return precise::atan2(y, x); }

//@ metal_pow_f32
static inline float pow_f32(float x, float y) { return precise::pow(x, y); }

//@ metal_mod_f32
/* The exact remainder with the sign of a, by long division. */
static float mod_f32(float a, float b)
{
    float r = fabs(a), d = fabs(b);
    if (!(d > 0) || !(r < INFINITY))
        return NAN;
    while (r >= d) {
        float t = d;
        while (t <= r * 0.5f)
            t *= 2;
        r -= t;
    }
    return copysign(r, a);
}

//@ metal_floormod_f32 mod_f32
static inline float floormod_f32(float a, float b)
{
    float r = mod_f32(a, b);
    return r == 0 ? copysign(0.0f, b) : (r < 0) != (b < 0) ? r + b : r;
}

//@ metal_floor_f32
static inline float floor_f32(float x) { return floor(x); }

//@ metal_ceil_f32
static inline float ceil_f32(float x) { return ceil(x); }

//@ metal_trunc_f32
static inline float trunc_f32(float x) { return trunc(x); }

//@ metal_round_f32
static inline float round_f32(float x) { return rint(x); }
