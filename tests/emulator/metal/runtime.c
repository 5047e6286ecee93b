/* SPDX-License-Identifier: 0BSD */
/* runtime.c - an Objective-C runtime for tests: objects have counts of their holders, and pools; a
 * message is the method that its object's kind has for it, which gets the arguments as they were
 * passed.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

enum { POOLS = 16, MOST_POOLED = 4096, MOST_SELECTORS = 256 };

static const char *const kinds[] = {"class",
                                    "string",
                                    "error",
                                    "array",
                                    "MTLCompileOptions",
                                    "device",
                                    "queue",
                                    "buffer",
                                    "library",
                                    "function",
                                    "pipeline state",
                                    "command buffer",
                                    "encoder",
                                    "argument encoder",
                                    "MTLResidencySetDescriptor",
                                    "residency set"};

static struct {
    struct object *live;
    unsigned number[KINDS];
    struct object *pooled[MOST_POOLED];
    int npooled, pool[POOLS], npool;
    char *selector[MOST_SELECTORS];
} runtime;

/* ---------------------------------------------------------------------------------------- calls */

/* A call that can fail; whether it does. */
static bool count_call(void) { return call_count(1, 1) != 0; }

/* -------------------------------------------------------------------------------------- objects */

void *object_create(enum kind kind, size_t size, void (*end)(struct object *))
{
    struct object *o = calloc(1, size);
    if (!o)
        return NULL;
    *o = (struct object){kind, 1, runtime.live, end, ++runtime.number[kind]};
    runtime.live = o;
    return o;
}

static bool is_live(const void *object)
{
    const struct object *o = runtime.live;
    while (o && o != object)
        o = o->next;
    return o != NULL;
}

bool object_is(const void *object, enum kind kind)
{
    if (object && is_live(object) && ((const struct object *)object)->kind == kind)
        return true;
    misuse(0, "%p is no %s", object, kinds[kind]);
    return false;
}

void *object_retain(void *object)
{
    struct object *o = object;
    if (o && is_live(o))
        o->holders++;
    else if (o)
        misuse(0, "%p is no object, or it was released", object);
    return object;
}

void object_release(void *object)
{
    struct object *o = object, **at = &runtime.live;
    while (*at && *at != o)
        at = &(*at)->next;
    if (!o || !*at) {
        if (o)
            misuse(0, "%p is no object, or it was released", object);
        return;
    }
    if (o->kind == KIND_CLASS || --o->holders > 0)
        return;
    *at = o->next;
    if (o->end)
        o->end(o);
    free(o);
}

void *object_pool(void *object)
{
    if (object && runtime.npool == 0)
        misuse(0, "an object is left to a pool, and none is open");
    else if (object && runtime.npooled == MOST_POOLED)
        misuse(0, "a pool has more than %d objects", MOST_POOLED);
    else if (object)
        runtime.pooled[runtime.npooled++] = object;
    return object;
}

/* What is not released now. */
API int emulator_live(void);
int emulator_live(void)
{
    int n = 0;
    for (struct object *o = runtime.live; o; o = o->next)
        n += o->kind != KIND_CLASS;
    return n;
}

__attribute__((destructor)) static void end(void)
{
    for (struct object *o = runtime.live, *next; o; o = next) {
        next = o->next;
        if (o->kind == KIND_CLASS)
            free(o);
        else
            report("%s %u is not released", kinds[o->kind], o->number);
    }
    for (int i = 0; i < MOST_SELECTORS; i++)
        free(runtime.selector[i]);
}

/* ------------------------------------------------------------------------------------ functions */

API void *objc_retain(void *object);
void *objc_retain(void *object)
{
    call_note("objc_retain");
    return object_retain(object);
}

API void objc_release(void *object);
void objc_release(void *object)
{
    call_note("objc_release");
    object_release(object);
}

/* A pool is a number, from 1. */
API void *objc_autoreleasePoolPush(void);
void *objc_autoreleasePoolPush(void)
{
    call_note("objc_autoreleasePoolPush");
    if (runtime.npool == POOLS) {
        misuse(0, "more than %d pools are open", POOLS);
        return NULL;
    }
    runtime.pool[runtime.npool++] = runtime.npooled;
    return (void *)(uintptr_t)runtime.npool;
}

API void objc_autoreleasePoolPop(void *pool);
void objc_autoreleasePoolPop(void *pool)
{
    call_note("objc_autoreleasePoolPop");
    if (runtime.npool == 0 || (uintptr_t)pool != (uintptr_t)runtime.npool) {
        misuse(0, "the pool is not the one that was opened last");
        return;
    }
    const int from = runtime.pool[--runtime.npool];
    while (runtime.npooled > from)
        object_release(runtime.pooled[--runtime.npooled]);
}

API void *sel_registerName(const char *name);
void *sel_registerName(const char *name)
{
    int i = 0;
    call_note("sel_registerName");
    if (!method_is_known(name))
        misuse(0, "no object has the message '%s'", name);
    while (i < MOST_SELECTORS && runtime.selector[i] && strcmp(runtime.selector[i], name) != 0)
        i++;
    if (i == MOST_SELECTORS)
        return NULL;
    if (!runtime.selector[i])
        runtime.selector[i] = strdup(name);
    return runtime.selector[i];
}

API void *objc_getClass(const char *name);
void *objc_getClass(const char *name)
{
    static const char *const known[] = {"NSString", "MTLCompileOptions",
                                        "MTLResidencySetDescriptor"};
    call_note("objc_getClass");
    if (!device_facts()->is_resident && strcmp(name, known[2]) == 0)
        return NULL; /* the system is older */
    for (struct object *o = runtime.live; o; o = o->next)
        if (o->kind == KIND_CLASS && strcmp(((struct class_of *)o)->name, name) == 0)
            return count_call() ? NULL : o;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], name) == 0) {
            struct class_of *c = count_call() ? NULL : object_create(KIND_CLASS, sizeof *c, NULL);
            if (c)
                c->name = known[i];
            return c;
        }
    misuse(0, "no class '%s'", name);
    return NULL;
}

API void *MTLCreateSystemDefaultDevice(void);
void *MTLCreateSystemDefaultDevice(void)
{
    call_note("MTLCreateSystemDefaultDevice");
    return count_call() ? NULL : device_retain();
}

/* ------------------------------------------------------------------------------------- messages */

static void *nil(void) { return NULL; }

/* The method of a message, for objc_msgSend, which jumps there. */
method emulator_method(struct object *object, const char *selector);
method emulator_method(struct object *object, const char *selector)
{
    method fails, found;
    if (!object)
        return (method)nil;
    call_note(selector ? selector : "a message without a selector");
    if (!is_live(object)) {
        misuse(0, "%p is no object, or it was released", (void *)object);
        return (method)nil;
    }
    found = selector ? method_find(object->kind, selector, &fails) : NULL;
    if (!found) {
        misuse(0, "%s %u does not understand it", kinds[object->kind], object->number);
        return (method)nil;
    }
    return fails && count_call() ? fails : found;
}

/* The arguments stay where the caller has put them, whatever they are. */
#if defined __x86_64__
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend, @function\nobjc_msgSend:\n"
        "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\nsub $8, %rsp\n"
        "call emulator_method\n"
        "add $8, %rsp\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"
        "jmp *%rax\n.size objc_msgSend, . - objc_msgSend\n");
#elif defined __aarch64__
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend, %function\nobjc_msgSend:\n"
        "stp x29, x30, [sp, -80]!\nmov x29, sp\nstp x0, x1, [sp, 16]\nstp x2, x3, [sp, 32]\n"
        "stp x4, x5, [sp, 48]\nstp x6, x7, [sp, 64]\n"
        "bl emulator_method\nmov x16, x0\n"
        "ldp x0, x1, [sp, 16]\nldp x2, x3, [sp, 32]\nldp x4, x5, [sp, 48]\nldp x6, x7, [sp, 64]\n"
        "ldp x29, x30, [sp], 80\nbr x16\n.size objc_msgSend, . - objc_msgSend\n");
#else
#error "objc_msgSend is written for x86-64 and aarch64"
#endif
