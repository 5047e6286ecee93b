/* SPDX-License-Identifier: 0BSD */
/* runtime.h - the Objective-C runtime and Metal's objects as the emulator has them.
 *
 *      runtime.c   objects, release counts, autorelease pools
 *      objects.c   strings, arrays, errors, devices, buffers, libraries, kernels, and their
 *                  messages
 *      commands.c  queues, command buffers, encoders: launches
 *      arguments.c argument buffers; which buffers kernels reach by them
 */
#ifndef TGC_EMULATOR_METAL_RUNTIME_H
#define TGC_EMULATOR_METAL_RUNTIME_H

#include "../emulator.h"

enum kind {
    KIND_CLASS,
    KIND_STRING,
    KIND_ERROR,
    KIND_ARRAY,
    KIND_OPTIONS,
    KIND_DEVICE,
    KIND_QUEUE,
    KIND_BUFFER,
    KIND_LIBRARY,
    KIND_FUNCTION,
    KIND_KERNEL,
    KIND_COMMANDS,
    KIND_ENCODER,
    KIND_ARGUMENTS,
    KIND_DESCRIPTOR,
    KIND_RESIDENT,
    KINDS
};

struct object {
    enum kind kind;
    long holders;
    struct object *next;
    void (*end)(struct object *o);
    unsigned number; /* among those of its kind, for people */
};

typedef void (*method)(void);
/* objects.c: the method of a kind for a message, and that which fails; NULL: it has none. */
method method_find(enum kind kind, const char *selector, method *fails);
/* Whether some kind has it. */
bool method_is_known(const char *selector);

/* Of one holder; NULL: no memory. end: releases what it holds. */
void *object_create(enum kind kind, size_t size, void (*end)(struct object *));
/* Whether it is an object of this kind; otherwise that is reported. NULL is none. */
bool object_is(const void *object, enum kind kind);
void *object_retain(void *object);
void object_release(void *object);
/* Leaves the object to the pool that is open, and returns it. */
void *object_pool(void *object);

struct string {
    struct object o;
    char *text;
};
void *string_create(const char *text); /* of one holder */
/* The device, retained; NULL: there is none. */
void *device_retain(void);
void *error_create(const char *text); /* left to the pool */

/* A class: the name is all that it is. */
struct class_of {
    struct object o;
    const char *name;
};
struct options {
    struct object o;
    bool is_fast;
    size_t version;
};
struct buffer {
    struct object o;
    struct object *device;
    struct memory memory;
};
struct library {
    struct object o;
    struct module *module;
};
/* A function, or the pipeline state of one. */
struct kernel_of {
    struct object o;
    struct library *library;
    const struct kernel_code *code;
};

/* arguments.c: an argument as its buffer has it, which is nobody's but Metal's to read: a buffer's
 * byte, or a number. */
struct entry {
    struct buffer *buffer; /* NULL: a number, in `value` */
    uint64_t value;
};
/* The entries at that byte of the buffer; NULL: there are none of the kernel's. */
const struct entry *arguments_of(const struct buffer *b, size_t at, const struct kernel_code *code);
/* Buffers that an encoder was told of, and how they are used. */
enum { MAX_USED = 64 };
struct use {
    struct buffer *buffer;
    size_t how; /* 1: read, 2: written */
};
/* Whether the set has the buffer since its last commit. */
bool resident_has(const struct object *set, const struct buffer *b);

/* The methods of messages.def that other files have, whatever they take. */
struct size {
    size_t width, height, depth;
};
void *device_queue(void *self, void *selector);
void *queue_device(void *self, void *selector);
void *queue_commands(void *self, void *selector);
void *commands_encoder(void *self, void *selector);
void commands_commit(void *self, void *selector);
void commands_wait(void *self, void *selector);
size_t commands_status(void *self, void *selector);
void *commands_error(void *self, void *selector);
double commands_begin(void *self, void *selector);
double commands_end(void *self, void *selector);
void encoder_kernel(void *self, void *selector, void *kernel);
void encoder_buffer(void *self, void *selector, void *buffer, size_t offset, size_t slot);
void encoder_use(void *self, void *selector, void *const *buffer, size_t n, size_t usage);
void queue_resident(void *self, void *selector, void *set);
void queue_not_resident(void *self, void *selector, void *set);
void *function_arguments(void *self, void *selector, size_t slot);
size_t arguments_length(void *self, void *selector);
void arguments_place(void *self, void *selector, void *buffer, size_t at);
void arguments_buffer(void *self, void *selector, void *buffer, size_t offset, size_t index);
void *arguments_bytes(void *self, void *selector, size_t index);
void *device_resident(void *self, void *selector, void *descriptor, void **error);
void resident_add(void *self, void *selector, void *buffer);
void resident_commit(void *self, void *selector);
void resident_request(void *self, void *selector);
void encoder_dispatch(void *self, void *selector, struct size groups, struct size block);
void encoder_end(void *self, void *selector);

#endif
