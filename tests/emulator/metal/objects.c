/* SPDX-License-Identifier: 0BSD */
/* objects.c - what objects are and understand: strings, errors, arrays, devices, buffers,
 * libraries, functions and pipeline states. Buffers are filled with bytes that no number hides.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- strings */

static void end_string(struct object *o) { free(((struct string *)o)->text); }

void *string_create(const char *text)
{
    struct string *s = object_create(KIND_STRING, sizeof *s, end_string);
    if (s)
        s->text = strdup(text);
    return s;
}

static void *class_string(void *self, void *selector, const char *text)
{
    (void)self, (void)selector;
    return object_pool(string_create(text));
}
static const char *string_bytes(void *self, void *selector)
{
    (void)selector;
    return ((struct string *)self)->text;
}

struct error {
    struct object o;
    struct string *text;
};
static void end_error(struct object *o) { object_release(((struct error *)o)->text); }

void *error_create(const char *text)
{
    struct error *e = object_create(KIND_ERROR, sizeof *e, end_error);
    if (e)
        e->text = string_create(text);
    return object_pool(e);
}
static void *error_text(void *self, void *selector)
{
    (void)selector;
    return ((struct error *)self)->text;
}

/* -------------------------------------------------------------------------------------- devices */

struct array {
    struct object o;
    struct object *device; /* NULL: the array is empty */
};
static void end_array(struct object *o) { object_release(((struct array *)o)->device); }

/* The one that there is, as long as somebody holds it. */
static struct object *the_device;
static void end_device(struct object *o)
{
    (void)o;
    the_device = NULL;
}

void *device_retain(void)
{
    if (device_facts()->units == 0)
        return NULL;
    if (the_device)
        return object_retain(the_device);
    return the_device = object_create(KIND_DEVICE, sizeof *the_device, end_device);
}

API void *MTLCopyAllDevices(void);
void *MTLCopyAllDevices(void)
{
    struct array *a = object_create(KIND_ARRAY, sizeof *a, end_array);
    if (a)
        a->device = device_retain();
    return a;
}
static size_t array_count(void *self, void *selector)
{
    (void)selector;
    return ((struct array *)self)->device != NULL;
}
static void *array_at(void *self, void *selector, size_t i)
{
    const struct array *a = self;
    (void)selector;
    if (i > 0 || !a->device)
        misuse(0, "the array has no element %zu", i);
    return a->device;
}

static void *device_name(void *self, void *selector)
{
    (void)self, (void)selector;
    return object_pool(string_create(device_facts()->name));
}
static size_t device_most(void *self, void *selector)
{
    (void)self, (void)selector;
    return (size_t)device_facts()->memory;
}
/* MTLGPUFamilyApple1 is 1001; of other makers' families the device is none. */
static bool device_supports(void *self, void *selector, size_t family)
{
    (void)self, (void)selector;
    return family > 1000 && family <= 1000 + (size_t)device_facts()->family;
}
static size_t device_tier(void *self, void *selector)
{
    (void)self, (void)selector;
    return (size_t)device_facts()->tier - 1;
}
static size_t device_local(void *self, void *selector)
{
    (void)self, (void)selector;
    return (size_t)device_facts()->local;
}

/* -------------------------------------------------------------------------------------- buffers */

static void end_buffer(struct object *o)
{
    struct buffer *b = (struct buffer *)o;
    void *at = b->memory.at;
    memory_release(&b->memory);
    free(at);
    object_release(b->device);
}

static void *device_buffer(void *self, void *selector, size_t nbytes, size_t options)
{
    enum { ALIGN = 256, UNUSUAL = 0xff };
    (void)selector;
    if (nbytes == 0 || options != 0) {
        misuse(0, "%zu bytes with options %zu: the emulator has shared buffers of a byte or more",
               nbytes, options);
        return NULL;
    }
    if (nbytes > (size_t)device_facts()->memory)
        return NULL;
    unsigned char *at = aligned_alloc(ALIGN, (nbytes + ALIGN - 1) / ALIGN * ALIGN);
    struct buffer *b = at ? object_create(KIND_BUFFER, sizeof *b, end_buffer) : NULL;
    if (!b || !memory_create(&b->memory, at, nbytes)) {
        free(at);
        return NULL;
    }
    memset(at, UNUSUAL, nbytes);
    memset(b->memory.known, 1, nbytes); /* the host may write where it likes */
    b->device = object_retain(self);
    return b;
}
static void *buffer_contents(void *self, void *selector)
{
    (void)selector;
    return ((struct buffer *)self)->memory.at;
}
static size_t buffer_length(void *self, void *selector)
{
    (void)selector;
    return ((struct buffer *)self)->memory.nbytes;
}
static void *buffer_device(void *self, void *selector)
{
    (void)selector;
    return ((struct buffer *)self)->device;
}

/* -------------------------------------------------------------------------------------- kernels */

static void *class_new(void *self, void *selector)
{
    (void)selector;
    if (strcmp(((struct class_of *)self)->name, "MTLResidencySetDescriptor") == 0)
        return object_create(KIND_DESCRIPTOR, sizeof(struct object), NULL);
    struct options *o = object_create(KIND_OPTIONS, sizeof *o, NULL);
    if (o)
        o->is_fast = true;
    return o;
}
static void options_fast(void *self, void *selector, bool is_fast)
{
    (void)selector;
    ((struct options *)self)->is_fast = is_fast;
}
static void options_version(void *self, void *selector, size_t version)
{
    (void)selector;
    ((struct options *)self)->version = version;
}

static void end_library(struct object *o) { module_close(((struct library *)o)->module); }

/* "// Metal Shading Language 2.4" in the first line, and options that are the same. */
static bool check_options(const struct options *o, const char *text)
{
    unsigned major = 0, minor = 0;
    if (sscanf(text, "// Metal Shading Language %u.%u", &major, &minor) != 2)
        misuse(0, "the text does not say its version");
    else if (o->version != (major << 16 | minor))
        misuse(0, "the text is of version %u.%u, and the options ask for %zu.%zu", major, minor,
               o->version >> 16, o->version & 0xffff);
    else if (o->is_fast)
        misuse(0, "kernels are compiled as if there were no NaN");
    else
        return true;
    return false;
}

static void *device_library(void *self, void *selector, void *text, void *options, void **error)
{
    static char log[4096];
    const char *const flags[] = {"-I" TGC_EMULATOR_SOURCES "/metal", NULL};
    (void)self, (void)selector;
    if (!object_is(text, KIND_STRING) || !object_is(options, KIND_OPTIONS) ||
        !check_options(options, ((struct string *)text)->text))
        return NULL;
    struct module *module =
        build_module(&language_metal, ((struct string *)text)->text, flags, log, sizeof log);
    struct library *l = module ? object_create(KIND_LIBRARY, sizeof *l, end_library) : NULL;
    if (l)
        l->module = module;
    else
        *error = error_create(log);
    return l;
}

static void end_kernel(struct object *o) { object_release(((struct kernel_of *)o)->library); }

static void *kernel_create(enum kind kind, struct library *library, const struct kernel_code *code)
{
    struct kernel_of *k = object_create(kind, sizeof *k, end_kernel);
    if (k) {
        k->library = object_retain(library);
        k->code = code;
    }
    return k;
}

static void *library_function(void *self, void *selector, void *name)
{
    struct library *l = self;
    (void)selector;
    for (int i = 0; object_is(name, KIND_STRING) && i < l->module->nkernel; i++)
        if (strcmp(l->module->kernel[i].signature.name, ((struct string *)name)->text) == 0)
            return kernel_create(KIND_FUNCTION, l, &l->module->kernel[i]);
    return NULL;
}

static void *device_kernel(void *self, void *selector, void *function, void **error)
{
    const struct kernel_of *f = function;
    (void)self, (void)selector;
    if (!object_is(function, KIND_FUNCTION))
        return NULL;
    for (int i = 0; i < f->code->signature.n; i++)
        if (f->code->signature.parameter[i].slot != i || !*f->code->signature.structure) {
            *error = error_create(
                "a parameter is no field of an argument buffer's structure, or out of order");
            return NULL;
        }
    return kernel_create(KIND_KERNEL, f->library, f->code);
}
static size_t kernel_most(void *self, void *selector)
{
    const size_t bound = ((struct kernel_of *)self)->code->signature.bound,
                 most = (size_t)device_facts()->group;
    (void)selector;
    return bound && bound < most ? bound : most;
}
static size_t kernel_local(void *self, void *selector)
{
    (void)selector;
    return ((struct kernel_of *)self)->code->local;
}
static size_t kernel_width(void *self, void *selector)
{
    (void)self, (void)selector;
    return (size_t)device_facts()->subgroup;
}

/* ------------------------------------------------------------------------------------- messages */

static void *nothing(void) { return NULL; }
static void *fail_library(void *self, void *selector, void *text, void *options, void **error)
{
    (void)self, (void)selector, (void)text, (void)options;
    *error = error_create("a failure that was asked for");
    return NULL;
}
static void *fail_kernel(void *self, void *selector, void *function, void **error)
{
    return fail_library(self, selector, function, NULL, error);
}
static size_t fail_status(void *self, void *selector)
{
    enum { FAILED = 5 };
    (void)self, (void)selector;
    return FAILED;
}

static const struct {
    enum kind kind;
    const char *selector;
    method found, fails;
} messages[] = {
#define MESSAGE(kind, selector, function, fails) {kind, selector, (method)function, (method)fails},
#include "messages.def"
#undef MESSAGE
};

method method_find(enum kind kind, const char *selector, method *fails)
{
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (messages[i].kind == kind && strcmp(messages[i].selector, selector) == 0) {
            *fails = messages[i].fails;
            return messages[i].found;
        }
    return NULL;
}

bool method_is_known(const char *selector)
{
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (strcmp(messages[i].selector, selector) == 0)
            return true;
    return false;
}
