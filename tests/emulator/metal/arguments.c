/* SPDX-License-Identifier: 0BSD */
/* arguments.c - argument buffers, by encoders of them, and residency sets. What an argument
 * buffer's bytes mean is nobody's but Metal's: here two words an argument, so that a host that
 * computes addresses of its own is seen. The bytes are read when the kernel runs, so that one that
 * changes them too early is seen, too.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------- argument encoders */

struct arguments {
    struct object o;
    struct kernel_of *of;
    struct buffer *buffer; /* NULL: none is set */
    size_t at;
};

static void end_arguments(struct object *o)
{
    struct arguments *a = (struct arguments *)o;
    object_release(a->buffer);
    object_release(a->of);
}

void *function_arguments(void *self, void *selector, size_t slot)
{
    struct kernel_of *of = self;
    (void)selector;
    if (slot != 0 || !*of->code->signature.structure) {
        misuse(0, "%s has no argument buffer in slot %zu", of->code->signature.name, slot);
        return NULL;
    }
    if (of->code->signature.n > 31 && device_facts()->tier < 2) {
        misuse(0, "%s has more arguments than the device's tier", of->code->signature.name);
        return NULL;
    }
    struct arguments *a = object_create(KIND_ARGUMENTS, sizeof *a, end_arguments);
    if (a)
        a->of = object_retain(of);
    return a;
}

size_t arguments_length(void *self, void *selector)
{
    (void)selector;
    return (size_t)((struct arguments *)self)->of->code->signature.n * sizeof(struct entry);
}

void arguments_place(void *self, void *selector, void *buffer, size_t at)
{
    struct arguments *a = self;
    (void)selector;
    if (!object_is(buffer, KIND_BUFFER))
        return;
    const size_t nbytes = ((struct buffer *)buffer)->memory.nbytes,
                 needed = arguments_length(self, NULL);
    if (at % 32 != 0 || at > nbytes || needed > nbytes - at) {
        misuse(0, "%zu bytes of arguments at byte %zu of %zu", needed, at, nbytes);
        return;
    }
    object_retain(buffer);
    object_release(a->buffer);
    a->buffer = buffer;
    a->at = at;
}

/* The entry of that index, of a parameter that is a pointer, or a number; NULL: reported. */
static struct entry *entry_of(const struct arguments *a, size_t index, bool is_pointer)
{
    const struct signature *s = &a->of->code->signature;
    if (!a->buffer)
        misuse(0, "no argument buffer is set");
    else if (index >= (size_t)s->n || (s->parameter[index].kind == PARAMETER_GLOBAL) != is_pointer)
        misuse(0, "%s has no %s of index %zu", s->name, is_pointer ? "buffer" : "number", index);
    else
        return (struct entry *)(void *)(a->buffer->memory.at + a->at) + index;
    return NULL;
}

void arguments_buffer(void *self, void *selector, void *buffer, size_t offset, size_t index)
{
    struct entry *e = object_is(buffer, KIND_BUFFER) ? entry_of(self, index, true) : NULL;
    (void)selector;
    if (e && offset >= ((struct buffer *)buffer)->memory.nbytes)
        misuse(0, "byte %zu of %zu", offset, ((struct buffer *)buffer)->memory.nbytes);
    else if (e)
        *e = (struct entry){buffer, offset};
}

void *arguments_bytes(void *self, void *selector, size_t index)
{
    struct entry *e = entry_of(self, index, false);
    (void)selector;
    if (!e)
        return NULL;
    e->buffer = NULL;
    return &e->value;
}

const struct entry *arguments_of(const struct buffer *b, size_t at, const struct kernel_code *code)
{
    const struct signature *s = &code->signature;
    if (at > b->memory.nbytes || (size_t)s->n * sizeof(struct entry) > b->memory.nbytes - at) {
        report("%s: its arguments end behind their buffer", s->name);
        return NULL;
    }
    const struct entry *entry = (const struct entry *)(const void *)(b->memory.at + at);
    for (int i = 0; i < s->n; i++) {
        const bool is_pointer = s->parameter[i].kind == PARAMETER_GLOBAL;
        if (is_pointer ? !object_is(entry[i].buffer, KIND_BUFFER)
                       : entry[i].buffer != NULL || code->nbytes[i] != sizeof(uint64_t)) {
            report("%s: parameter '%s' is not set", s->name, s->parameter[i].name);
            return NULL;
        }
    }
    return entry;
}

/* ------------------------------------------------------------------------------- residency sets */

enum { MAX_ALLOCATIONS = 16 };
struct resident {
    struct object o;
    struct buffer *buffer[MAX_ALLOCATIONS];
    int n, committed; /* those that count: up to the last commit */
};

static void end_resident(struct object *o)
{
    struct resident *r = (struct resident *)o;
    for (int i = 0; i < r->n; i++)
        object_release(r->buffer[i]);
}

void *device_resident(void *self, void *selector, void *descriptor, void **error)
{
    (void)self, (void)selector, (void)error;
    return object_is(descriptor, KIND_DESCRIPTOR)
               ? object_create(KIND_RESIDENT, sizeof(struct resident), end_resident)
               : NULL;
}

void resident_add(void *self, void *selector, void *buffer)
{
    struct resident *r = self;
    (void)selector;
    if (!object_is(buffer, KIND_BUFFER))
        return;
    if (r->n == MAX_ALLOCATIONS)
        misuse(0, "a set of more than %d buffers", MAX_ALLOCATIONS);
    else
        r->buffer[r->n++] = object_retain(buffer);
}
void resident_commit(void *self, void *selector)
{
    (void)selector;
    ((struct resident *)self)->committed = ((struct resident *)self)->n;
}
void resident_request(void *self, void *selector)
{
    const struct resident *r = self;
    (void)selector;
    if (r->committed < r->n)
        misuse(0, "of the set's %d buffers %d are committed", r->n, r->committed);
}

bool resident_has(const struct object *set, const struct buffer *b)
{
    const struct resident *r = (const struct resident *)set;
    for (int i = 0; i < r->committed; i++)
        if (r->buffer[i] == b)
            return true;
    return false;
}
