/* SPDX-License-Identifier: 0BSD */
/* driver.h - OpenCL's objects as the emulator has them, and its constants, by the names of the
 * specification without CL_.
 */
#ifndef TGC_EMULATOR_DRIVER_H
#define TGC_EMULATOR_DRIVER_H

#include "emulator.h"

enum {
    SUCCESS = 0,
    DEVICE_NOT_FOUND = -1,
    DEVICE_NOT_AVAILABLE = -2,
    ALLOCATION_FAILURE = -4,
    OUT_OF_RESOURCES = -5,
    OUT_OF_HOST_MEMORY = -6,
    PROFILING_NOT_AVAILABLE = -7,
    MEM_COPY_OVERLAP = -8,
    IMAGE_FORMAT_NOT_SUPPORTED = -10,
    BUILD_PROGRAM_FAILURE = -11,
    MAP_FAILURE = -12,
    MISALIGNED_SUB_BUFFER_OFFSET = -13,
    EVENTS_FAILED = -14,
    INVALID_VALUE = -30,
    INVALID_DEVICE_TYPE = -31,
    INVALID_PLATFORM = -32,
    INVALID_DEVICE = -33,
    INVALID_CONTEXT = -34,
    INVALID_QUEUE_PROPERTIES = -35,
    INVALID_COMMAND_QUEUE = -36,
    INVALID_HOST_PTR = -37,
    INVALID_MEM_OBJECT = -38,
    INVALID_IMAGE_FORMAT = -39,
    INVALID_IMAGE_SIZE = -40,
    INVALID_SAMPLER = -41,
    INVALID_BINARY = -42,
    INVALID_BUILD_OPTIONS = -43,
    INVALID_PROGRAM = -44,
    INVALID_PROGRAM_EXECUTABLE = -45,
    INVALID_KERNEL_NAME = -46,
    INVALID_KERNEL = -48,
    INVALID_ARG_INDEX = -49,
    INVALID_ARG_VALUE = -50,
    INVALID_ARG_SIZE = -51,
    INVALID_KERNEL_ARGS = -52,
    INVALID_WORK_DIMENSION = -53,
    INVALID_WORK_GROUP_SIZE = -54,
    INVALID_WORK_ITEM_SIZE = -55,
    INVALID_EVENT_WAIT_LIST = -57,
    INVALID_EVENT = -58,
    INVALID_OPERATION = -59,
    INVALID_BUFFER_SIZE = -61,
    INVALID_GLOBAL_WORK_SIZE = -63,
    INVALID_IMAGE_DESCRIPTOR = -65,
};

/* ----------------------------------------------------------------------------------- driver.c */

/* Which function: calls.def. */
enum call {
#define CALL(name, failure) CALL_##name,
#include "calls.def"
#undef CALL
    CALLS
};

/* Every function begins with enter(), which counts it and may say that it fails, and ends with
 * leave(), which returns the status again. */
int32_t enter(enum call call);
int32_t leave(enum call call, int32_t status);

enum kind {
    KIND_CONTEXT,
    KIND_QUEUE,
    KIND_MEMORY,
    KIND_SAMPLER,
    KIND_PROGRAM,
    KIND_KERNEL,
    KIND_EVENT
};

/* What the host has handles of. Two counts: the host's references, and holds of other objects and
 * of commands. Without references it is no longer the host's to use; without both it ends. */
struct object {
    enum kind kind;
    long references, holds;
    void (*end)(struct object *o);
    struct object *next;
    unsigned number; /* among those of its kind, for people */
};

/* A new one, with one reference; NULL: no memory. */
void *object_create(enum kind kind, size_t size, void (*end)(struct object *));
/* The object of a handle; NULL: it is none, or none any more, which is reported. */
void *object_find(const void *handle, enum kind kind);
void object_hold(struct object *o);
void object_let(struct object *o);
int32_t object_retain(void *handle, enum kind kind);
int32_t object_release(void *handle, enum kind kind);

/* Answers a query by `n` bytes. */
int32_t answer(const void *value, size_t n, size_t size, void *to, size_t *need);
int32_t answer_text(const char *s, size_t size, void *to, size_t *need);
int32_t answer_number(uint64_t value, size_t nbytes, size_t size, void *to, size_t *need);

struct context {
    struct object o;
};
/* The one platform, the one device. */
extern struct platform {
    int unused;
} the_platform;
extern struct device {
    int unused;
} the_device;

/* ---------------------------------------------------------------------------------- buffers.c */

struct cl_memory {
    struct object o;
    struct context *context;
    struct cl_memory *parent; /* of a sub-buffer or an image over a buffer: who has the bytes */
    struct memory own;        /* without a parent */
    size_t from, nbytes;      /* of the parent's */
    uint64_t flags;
    bool is_image, has_host; /* the host gave the bytes */
    bool is_used, was_mapped; /* by a launch; by the host */
    struct image image;
    struct mapping *mapping;
    void *host;
};

struct sampler {
    struct object o;
    uint32_t bits;
};

/* A part that the host has: a copy, so that what it does too early or too late does nothing. */
struct mapping {
    struct mapping *next;
    unsigned char *copy, *before; /* before: what it was, if the host may only read it */
    size_t from, nbytes;          /* bytes of the object */
    uint64_t flags;
    bool is_excused; /* the host has tried to give it back */
};

enum {
    MEM_WRITE_ONLY = 1 << 1,
    MEM_READ_ONLY = 1 << 2,
    MEM_USE_HOST = 1 << 3,
    MEM_ALLOC_HOST = 1 << 4,
    MEM_COPY_HOST = 1 << 5
};
enum { MAP_READ = 1, MAP_WRITE = 2, MAP_WRITE_INVALIDATE = 4 };

/* The memory that has the object's bytes, and where they begin in it. */
struct memory *memory_of(const struct cl_memory *m, size_t *from);
/* Whether the host has a part of these bytes mapped that it may write. */
bool memory_is_mapped(const struct cl_memory *m);
/* A part for the host; NULL: no memory. Filled and taken back by the next two, when their commands
 * run. */
struct mapping *mapping_create(struct cl_memory *m, size_t from, size_t nbytes, uint64_t flags);
void mapping_fill(struct cl_memory *m, struct mapping *a);
void mapping_write_back(struct cl_memory *m, struct mapping *a);
/* The mapping at this address is no leak: the unmap that would have ended it was made to fail. */
void mapping_excuse(void *handle, const void *at);
/* The mapping with this address, which is the host's no longer; NULL: there is none. */
struct mapping *mapping_take(struct cl_memory *m, void *at);

/* ---------------------------------------------------------------------------------- programs.c */

struct program {
    struct object o;
    struct context *context;
    char *text;
    unsigned char *binary;
    size_t nbinary;
    struct module *module;
    char log[4096];
    bool is_tried;
    int nkernel; /* objects that use it */
};

struct cl_kernel {
    struct object o;
    struct program *program;
    const struct kernel_code *code;
    struct argument {
        bool is_set;
        size_t nbytes;
        unsigned char value[128];
    } argument[MAX_PARAMETERS];
};

/* A launch with what the kernel's arguments are now, whose memory it holds. */
struct prepared {
    struct cl_kernel *kernel;
    struct argument argument[MAX_PARAMETERS];
    struct cl_memory *memory[MAX_PARAMETERS];
    uint32_t dimensions;
    size_t offset[3], global[3], block[3];
    const struct order *order;
};
/* Fills the arguments; a status. */
int32_t launch_prepare(struct prepared *p, struct cl_kernel *k);
/* false: something was reported. */
bool launch_go(struct prepared *p);
void launch_end(struct prepared *p);

/* ------------------------------------------------------------------------------------ queue.c */

struct queue {
    struct object o;
    struct context *context;
    uint64_t properties;
    struct command *first, *last;
    unsigned number; /* among the queues that there are */
    struct order order; /* of its last command */
    bool is_lost; /* a kernel went wrong: as after a fault of a device */
};

struct event {
    struct object o;
    struct context *context;
    struct queue *queue;     /* NULL: the host's own */
    struct command *command; /* NULL: it is done */
    int32_t status;          /* QUEUED ... COMPLETE, or an error */
    uint64_t time[4];
    struct order order;      /* of its command */
};

enum work {
    WORK_LAUNCH,
    WORK_READ,
    WORK_WRITE,
    WORK_COPY,
    WORK_FILL,
    WORK_MAP,
    WORK_UNMAP,
    WORK_WAIT
};

/* Rows of bytes, from one place to another. */
struct box {
    size_t row, rows;
    size_t from, to, from_pitch, to_pitch;
};

struct command {
    struct command *next;
    enum work work;
    struct event *event;
    struct event **wait;
    uint32_t nwait;
    bool is_barrier; /* it waits for all earlier commands, and all later ones wait for it */
    struct order order;
    struct cl_memory *from, *to;
    void *host;
    struct box box;
    unsigned char pattern[128];
    size_t npattern;
    struct mapping *mapping;
    struct prepared launch;
};

/* A command that waits for these events; NULL: *status says why there is none. */
struct command *command_create(void *queue, enum work work, uint32_t nwait, void *const *wait,
                               int32_t *status);
/* Appends the command, or drops it if the status says so; waits for it, if it blocks. The status.
 */
int32_t command_submit(struct queue *q, struct command *c, int32_t status, bool blocks,
                       void **event);

#endif
