/* SPDX-License-Identifier: 0BSD */
/* driver.h - CUDA's objects as the emulator has them, and its statuses, by the names of cuda.h
 * without CUDA_ERROR_.
 *
 *      driver.c    objects, streams, memory, events
 *      launch.c    modules, launches, graphs
 *      own.c       devices, contexts, images
 *
 * HIP's driver is the first two again, with the names of amd/names.h, and amd/own.c.
 */
#ifndef TGC_EMULATOR_CUDA_DRIVER_H
#define TGC_EMULATOR_CUDA_DRIVER_H

#include "../emulator.h"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    INVALID_DEVICE_FUNCTION = 98,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    UNKNOWN = 999
};

/* Of CUDA's own functions; amd/names.h has another one. */
#ifndef OWN_CALLS
#define OWN_CALLS "own.def"
/* A launch as a graph has it. */
struct kernel_node {
    void *function;
    unsigned groups[3], block[3], shared_bytes;
    void **parameters, **extra;
};
#endif

enum call {
#define CALL(name, failure) CALL_##name,
#include "calls.def"
#undef CALL
    CALLS
};

/* Every function begins with enter(), which counts it and may say that it fails, and ends with
 * leave(), which returns the status again. Of all but a few, the thread must have a context:
 * in_context(). */
int32_t enter(enum call call);
int32_t in_context(enum call call);
int32_t leave(enum call call, int32_t status);

enum kind {
    KIND_CONTEXT,
    KIND_STREAM,
    KIND_MEMORY,
    KIND_PINNED,
    KIND_MODULE,
    KIND_GRAPH,
    KIND_LIST,
    KIND_EVENT
};

/* What the host has handles of; it is of the context that was the thread's when it was made. */
struct object {
    enum kind kind;
    struct object *next;
    struct context *context;
    void (*end)(struct object *o);
    unsigned number; /* among those of its kind, for people */
};
/* NULL: no memory. */
void *object_create(enum kind kind, size_t size, void (*end)(struct object *));
/* The object of a handle; NULL: it is none of this kind or of the thread's context,
 * which is reported. */
void *object_find(const void *handle, enum kind kind);
void object_end(struct object *o);
struct object *objects_live(void);
/* A whole function of the driver's: the end of an object of the thread's context. */
int32_t object_destroy(enum call call, void *handle, enum kind kind);

struct context {
    struct object o;
    bool is_primary, is_lost; /* a kernel went wrong: all calls fail from then on */
};

/* own.c. The thread's context, NULL: there is none; may the function come before init? The variable
 * that names the kernels' text, and its language; the lanes of a wave, and the shared memory of a
 * block. Statuses: does the device take an image compiled from that text; has the image a kernel of
 * it whose arguments have nbytes; do graphs take kernels? */
struct context *context_now(void);
bool own_is_early(enum call call);
extern const char own_text[];
extern const struct language *const own_language;
uint32_t own_wave(void);
extern const size_t own_shared;
int32_t own_check_image(const char *image, const char *text);
int32_t own_check_kernel(const char *image, const struct signature *s, const uint64_t *nbytes);
int32_t own_check_graph(void);

struct device_memory {
    struct object o;
    struct memory memory;
};
/* The memory that has the address; NULL: none has. */
struct device_memory *memory_find(uint64_t at);
/* What the device does lies between these two: else its memory cannot be accessed in this process,
 * as on a device. */
void memory_open(void);
void memory_close(void);

enum { MAX_MAPS = 8, MAP_NBYTES = 128 };
/* What a stream does next. Its arguments are those of when it was launched. */
struct launch_of {
    const struct kernel_code *code;
    const struct module *module;
    unsigned groups[3], block[3];
    uint64_t value[MAX_PARAMETERS]; /* of a tensor map its number */
    struct tensor_map map[MAX_MAPS];
    int nmap;
    struct order order; /* of a graph's: what comes before it; else launches run one after the
                         * other */
};
enum work { WORK_LAUNCH, WORK_WRITE, WORK_READ, WORK_EVENT, WORK_WAIT };
struct command {
    struct command *next;
    enum work work;
    void *host; /* WORK_WAIT: the other stream, which has run its first nbytes commands then */
    uint64_t at;
    size_t nbytes;
    struct launch_of launch;
};
struct stream {
    struct object o;
    struct command *first, *last;
    size_t added, done; /* how many it was given, and how many have run */
    struct graph *captured; /* what it was given since it captures; NULL: it does not */
    bool is_broken;         /* something was called meanwhile that ends the capture */
};
/* A status: whether the stream does not capture; if it does that is over, and reported. */
int32_t stream_check(struct stream *s);
/* Whether a handle is of the context's own streams, whose commands run at once. */
bool stream_is_eager(const void *stream);
/* launch.c: an empty graph, and one more command after all that it has. NULL, false: no memory. */
struct graph *graph_create(void);
bool graph_append(struct graph *g, const struct command *c);
/* Appends a copy of the command. A status. */
int32_t stream_add(void *stream, const struct command *c);
/* Runs a launch; false: something was reported. */
bool launch_go(const struct launch_of *l);

#endif
