/* SPDX-License-Identifier: 0BSD */
/* buffers.c - memory objects: buffers, parts of them, images with pixels of their own or of a
 * buffer; what the host maps is a copy, as on a device with memory of its own.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RGBA = 0x10b5, HALF_FLOAT = 0x10dd, FLOAT = 0x10de };
enum { BUFFER = 0x10f0, IMAGE2D = 0x10f1, IMAGE1D = 0x10f4, IMAGE1D_BUFFER = 0x10f6 };
enum { UNWRITTEN = 0xa5 };

struct image_format {
    uint32_t order, type;
};
struct image_description {
    uint32_t type;
    size_t width, height, depth, array, row_pitch, slice_pitch;
    uint32_t levels, samples;
    void *buffer;
};

/* --------------------------------------------------------------------------------------- objects
 */

static void end_memory(struct object *o)
{
    struct cl_memory *m = (struct cl_memory *)o;
    while (m->mapping) {
        struct mapping *a = m->mapping;
        m->mapping = a->next;
        if (!a->is_excused)
            report("memory object %u ends while the host has it mapped", o->number);
        free(a->copy);
        free(a->before);
        free(a);
    }
    if ((m->flags & MEM_ALLOC_HOST) && m->is_used && !m->was_mapped && !getenv("TGC_EMULATOR_FAIL"))
        report("memory object %u is asked for in the host's memory, and the host never maps it",
               o->number);
    memory_release(&m->own);
    if (m->own.at && !m->has_host)
        munmap(m->own.at, m->own.nbytes);
    if (m->parent)
        object_let(&m->parent->o);
    object_let(&m->context->o);
}

struct memory *memory_of(const struct cl_memory *m, size_t *from)
{
    *from = m->from;
    for (; m->parent; m = m->parent)
        *from += m->parent->from;
    return (struct memory *)&m->own;
}

static struct cl_memory *create(struct context *c, uint64_t flags)
{
    struct cl_memory *m = object_create(KIND_MEMORY, sizeof *m, end_memory);
    if (m) {
        m->context = c;
        m->flags = flags;
        object_hold(&c->o);
    }
    return m;
}

/* Its own bytes, which nobody has written, or the host's. */
static bool give_bytes(struct cl_memory *m, size_t nbytes, void *host)
{
    m->has_host = host && (m->flags & MEM_USE_HOST);
    m->host = m->has_host ? host : NULL;
    m->nbytes = nbytes;
    void *at = host;
    if (!m->has_host) {
        at = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
        if (at == MAP_FAILED)
            return false;
        memset(at, UNWRITTEN, nbytes);
    }
    if (!memory_create(&m->own, at, nbytes))
        return false;
    if (host && !m->has_host)
        memcpy(at, host, nbytes);
    if (host)
        memset(m->own.known, 1, nbytes);
    return true;
}

static int32_t check_host(uint64_t flags, const void *host)
{
    if ((flags & MEM_USE_HOST) && (flags & (MEM_COPY_HOST | MEM_ALLOC_HOST)))
        return misuse(INVALID_VALUE, "flags 0x%llx exclude each other", (unsigned long long)flags);
    if (!host != !(flags & (MEM_USE_HOST | MEM_COPY_HOST)))
        return misuse(INVALID_HOST_PTR, "an address of the host, and flags that say otherwise");
    return SUCCESS;
}

static int32_t create_buffer(void *context, uint64_t flags, size_t nbytes, void *host, void **made)
{
    struct context *c = object_find(context, KIND_CONTEXT);
    if (!c)
        return INVALID_CONTEXT;
    const int32_t status = check_host(flags, host);
    if (status != SUCCESS)
        return status;
    if (nbytes == 0)
        return misuse(INVALID_BUFFER_SIZE, "a buffer of 0 bytes");
    const struct device_facts *d = device_facts();
    if (nbytes > (size_t)(d->most ? d->most : d->memory))
        return INVALID_BUFFER_SIZE;
    if ((flags & MEM_ALLOC_HOST) && !d->is_unified)
        report(
            "a buffer of %zu bytes is asked for in the host's memory, and the device has its own",
            nbytes);
    struct cl_memory *m = create(c, flags);
    if (!m)
        return OUT_OF_HOST_MEMORY;
    *made = m;
    return give_bytes(m, nbytes, host) ? SUCCESS : ALLOCATION_FAILURE;
}

static int32_t create_part(void *buffer, uint64_t flags, uint32_t type, const size_t *part,
                           void **made)
{
    enum { REGION = 0x1220 };
    struct cl_memory *parent = object_find(buffer, KIND_MEMORY);
    if (!parent)
        return INVALID_MEM_OBJECT;
    if (parent->is_image || parent->parent)
        return misuse(INVALID_MEM_OBJECT, "a part of what is no buffer of its own");
    if (type != REGION || !part || part[1] == 0 || part[0] > parent->nbytes ||
        part[1] > parent->nbytes - part[0])
        return misuse(INVALID_VALUE, "the part is none of the buffer's %zu bytes", parent->nbytes);
    if (part[0] % (size_t)device_facts()->align)
        return misuse(MISALIGNED_SUB_BUFFER_OFFSET, "byte %zu is no multiple of %ld", part[0],
                      device_facts()->align);
    struct cl_memory *m = create(parent->context, flags ? flags : parent->flags);
    if (!m)
        return OUT_OF_HOST_MEMORY;
    m->parent = parent;
    object_hold(&parent->o);
    m->from = part[0];
    m->nbytes = part[1];
    *made = m;
    return SUCCESS;
}

/* --------------------------------------------------------------------------------------- images */

static int32_t check_image(const struct image_format *f, const struct image_description *d)
{
    const struct device_facts *facts = device_facts();
    if (!facts->is_image)
        return misuse(INVALID_OPERATION, "the device has no images");
    if (!f || f->order != RGBA || (f->type != FLOAT && f->type != HALF_FLOAT))
        return misuse(IMAGE_FORMAT_NOT_SUPPORTED, "only RGBA of floats or halves is emulated");
    if (!d || (d->type != IMAGE2D && d->type != IMAGE1D && d->type != IMAGE1D_BUFFER))
        return misuse(INVALID_IMAGE_DESCRIPTOR, "a type of image that is not emulated");
    const size_t most = d->type == IMAGE1D_BUFFER ? (size_t)facts->pixels : (size_t)facts->width;
    if (d->width == 0 || d->width > most ||
        (d->type == IMAGE2D && (d->height == 0 || d->height > (size_t)facts->width)))
        return misuse(INVALID_IMAGE_SIZE, "%zu x %zu pixels; the device has up to %zu", d->width,
                      d->height, most);
    if (d->type == IMAGE1D_BUFFER && !d->buffer)
        return misuse(INVALID_IMAGE_DESCRIPTOR, "a buffer's image without a buffer");
    if (d->levels || d->samples)
        return misuse(INVALID_IMAGE_DESCRIPTOR, "levels or samples");
    return SUCCESS;
}

/* Rows of an image over a buffer are the buffer's bytes, which must suffice. */
static int32_t check_rows(const struct image_description *d, size_t pixel, size_t pitch,
                          const struct cl_memory *parent)
{
    const struct device_facts *facts = device_facts();
    if (d->type == IMAGE2D && facts->pitch == 0)
        return misuse(INVALID_OPERATION, "this device makes no image of two axes over a buffer");
    if (d->type == IMAGE2D && (pitch < d->width * pixel || pitch % ((size_t)facts->pitch * pixel)))
        return misuse(INVALID_IMAGE_DESCRIPTOR,
                      "rows of %zu bytes, which are no multiple of %ld pixels", pitch,
                      facts->pitch);
    const size_t rows = d->type == IMAGE2D ? d->height : 1;
    if ((rows - 1) * pitch + d->width * pixel > parent->nbytes)
        return misuse(INVALID_IMAGE_SIZE, "%zu rows of %zu bytes are more than the buffer's %zu",
                      rows, pitch, parent->nbytes);
    return SUCCESS;
}

static int32_t create_image(void *context, uint64_t flags, const struct image_format *f,
                            const struct image_description *d, void *host, void **made)
{
    struct context *c = object_find(context, KIND_CONTEXT);
    if (!c)
        return INVALID_CONTEXT;
    int32_t status = check_image(f, d);
    if (status == SUCCESS)
        status = check_host(flags, host);
    if (status != SUCCESS)
        return status;
    const size_t pixel = f->type == FLOAT ? 16 : 8, height = d->type == IMAGE2D ? d->height : 1;
    const size_t pitch = d->row_pitch ? d->row_pitch : d->width * pixel;
    struct cl_memory *parent = d->buffer ? object_find(d->buffer, KIND_MEMORY) : NULL;
    if (d->buffer && !parent)
        return INVALID_IMAGE_DESCRIPTOR;
    if (parent && (status = check_rows(d, pixel, pitch, parent)) != SUCCESS)
        return status;
    if (host && pitch != d->width * pixel)
        return misuse(INVALID_IMAGE_DESCRIPTOR, "rows of the host with gaps are not emulated");
    struct cl_memory *m = create(c, flags ? flags : parent ? parent->flags : 0);
    if (!m)
        return OUT_OF_HOST_MEMORY;
    *made = m;
    m->is_image = true;
    m->parent = parent;
    if (parent) {
        object_hold(&parent->o);
        m->nbytes = (height - 1) * pitch + d->width * pixel;
    } else if (!give_bytes(m, height * d->width * pixel, host))
        return ALLOCATION_FAILURE;
    m->image = (struct image){.pitch = parent ? pitch : d->width * pixel,
                              .width = d->width,
                              .height = height,
                              .is_half = f->type == HALF_FLOAT};
    return SUCCESS;
}

/* ------------------------------------------------------------------------------------- mappings */

bool memory_is_mapped(const struct cl_memory *m)
{
    for (; m; m = m->parent)
        for (const struct mapping *a = m->mapping; a; a = a->next)
            if (a->flags & (MAP_WRITE | MAP_WRITE_INVALIDATE))
                return true;
    return false;
}

struct mapping *mapping_create(struct cl_memory *m, size_t from, size_t nbytes, uint64_t flags)
{
    struct mapping *a = calloc(1, sizeof *a);
    size_t base;
    struct memory *memory = memory_of(m, &base);
    if (!a)
        return NULL;
    a->copy =
        m->has_host ? memory->at + base + from : aligned_alloc(128, (nbytes + 127) / 128 * 128);
    a->before = flags == MAP_READ && !m->has_host ? malloc(nbytes) : NULL;
    a->from = from;
    a->nbytes = nbytes;
    a->flags = flags;
    if (!a->copy || (flags == MAP_READ && !m->has_host && !a->before)) {
        free(a->copy);
        free(a);
        return NULL;
    }
    if (!m->has_host)
        memset(a->copy, UNWRITTEN, nbytes); /* until the command runs */
    a->next = m->mapping;
    m->mapping = a;
    m->was_mapped = true;
    return a;
}

void mapping_fill(struct cl_memory *m, struct mapping *a)
{
    size_t base;
    const struct memory *memory = memory_of(m, &base);
    if (m->has_host || (a->flags & MAP_WRITE_INVALIDATE))
        return;
    memcpy(a->copy, memory->at + base + a->from, a->nbytes);
    if (a->before)
        memcpy(a->before, a->copy, a->nbytes);
}

void mapping_excuse(void *handle, const void *at)
{
    const struct cl_memory *m = object_find(handle, KIND_MEMORY);
    for (struct mapping *a = m ? m->mapping : NULL; a; a = a->next)
        a->is_excused |= a->copy == at;
}

struct mapping *mapping_take(struct cl_memory *m, void *at)
{
    struct mapping **place = &m->mapping;
    while (*place && (*place)->copy != at)
        place = &(*place)->next;
    struct mapping *a = *place;
    if (!a)
        return NULL;
    *place = a->next;
    if (m->has_host)
        return a;
    unsigned char *data =
        malloc(a->nbytes ? a->nbytes : 1); /* what the host does from now on is lost */
    if (data)
        memcpy(data, a->copy, a->nbytes);
    free(a->copy);
    a->copy = data;
    return a;
}

void mapping_write_back(struct cl_memory *m, struct mapping *a)
{
    size_t base;
    struct memory *memory = memory_of(m, &base);
    if (a->before && a->copy && memcmp(a->before, a->copy, a->nbytes) != 0)
        report("the host has written what it mapped to read (memory object %u)", m->o.number);
    if (a->flags & (MAP_WRITE | MAP_WRITE_INVALIDATE)) {
        if (!m->has_host && a->copy)
            memcpy(memory->at + base + a->from, a->copy, a->nbytes);
        memset(memory->known + base + a->from, 1, a->nbytes);
    }
    if (!m->has_host)
        free(a->copy);
    free(a->before);
    free(a);
}

/* -------------------------------------------------------------------------------------- queries */

static int32_t memory_info(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { TYPE = 0x1100, FLAGS, SIZE, HOST, MAPS, REFERENCES, CONTEXT, PARENT, OFFSET };
    const struct cl_memory *m = object_find(handle, KIND_MEMORY);
    if (!m)
        return INVALID_MEM_OBJECT;
    switch (what) {
    case TYPE:
        return answer_number(m->is_image ? IMAGE2D : BUFFER, 4, size, to, need);
    case FLAGS:
        return answer_number(m->flags, 8, size, to, need);
    case SIZE:
        return answer_number(m->nbytes, 8, size, to, need);
    case HOST:
        return answer(&m->host, sizeof m->host, size, to, need);
    case MAPS:
        return answer_number(m->mapping != NULL, 4, size, to, need);
    case REFERENCES:
        return answer_number((uint64_t)m->o.references, 4, size, to, need);
    case CONTEXT:
        return answer(&m->context, sizeof m->context, size, to, need);
    case PARENT:
        return answer(&m->parent, sizeof m->parent, size, to, need);
    case OFFSET:
        return answer_number(m->from, 8, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

static int32_t image_info(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { FORMAT = 0x1110, ELEMENT, PITCH, SLICE, WIDTH, HEIGHT, DEPTH };
    const struct cl_memory *m = object_find(handle, KIND_MEMORY);
    if (!m || !m->is_image)
        return misuse(INVALID_MEM_OBJECT, "no image");
    const uint32_t format[2] = {RGBA, m->image.is_half ? HALF_FLOAT : FLOAT};
    switch (what) {
    case FORMAT:
        return answer(format, sizeof format, size, to, need);
    case ELEMENT:
        return answer_number(m->image.is_half ? 8 : 16, 8, size, to, need);
    case PITCH:
        return answer_number(m->image.pitch, 8, size, to, need);
    case SLICE:
        return answer_number(0, 8, size, to, need);
    case WIDTH:
        return answer_number(m->image.width, 8, size, to, need);
    case HEIGHT:
        return answer_number(m->image.height, 8, size, to, need);
    case DEPTH:
        return answer_number(0, 8, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

/* ------------------------------------------------------------------------------------ functions */

/* What a failed function has made is nobody's. */
static void *finish(enum call call, int32_t status, void *made, int32_t *error)
{
    if (status != SUCCESS && made) {
        object_release(made, KIND_MEMORY);
        made = NULL;
    }
    if (error)
        *error = status;
    leave(call, status);
    return made;
}

API void *clCreateBuffer(void *context, uint64_t flags, size_t size, void *host, int32_t *error);
void *clCreateBuffer(void *context, uint64_t flags, size_t size, void *host, int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateBuffer);
    if (status == SUCCESS)
        status = create_buffer(context, flags, size, host, &made);
    return finish(CALL_clCreateBuffer, status, made, error);
}

API void *clCreateSubBuffer(void *buffer, uint64_t flags, uint32_t type, const void *part,
                            int32_t *error);
void *clCreateSubBuffer(void *buffer, uint64_t flags, uint32_t type, const void *part,
                        int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateSubBuffer);
    if (status == SUCCESS)
        status = create_part(buffer, flags, type, part, &made);
    return finish(CALL_clCreateSubBuffer, status, made, error);
}

API void *clCreateImage(void *context, uint64_t flags, const struct image_format *format,
                        const struct image_description *description, void *host, int32_t *error);
void *clCreateImage(void *context, uint64_t flags, const struct image_format *format,
                    const struct image_description *description, void *host, int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateImage);
    if (status == SUCCESS)
        status = create_image(context, flags, format, description, host, &made);
    return finish(CALL_clCreateImage, status, made, error);
}

API int32_t clGetSupportedImageFormats(void *context, uint64_t flags, uint32_t type, uint32_t most,
                                       struct image_format *format, uint32_t *count);
int32_t clGetSupportedImageFormats(void *context, uint64_t flags, uint32_t type, uint32_t most,
                                   struct image_format *format, uint32_t *count)
{
    static const struct image_format all[] = {{RGBA, HALF_FLOAT}, {RGBA, FLOAT}};
    int32_t status = enter(CALL_clGetSupportedImageFormats);
    (void)flags;
    (void)type;
    if (status == SUCCESS && !object_find(context, KIND_CONTEXT))
        status = INVALID_CONTEXT;
    const uint32_t n = device_facts()->is_image ? 2 : 0;
    for (uint32_t i = 0; status == SUCCESS && format && i < n && i < most; i++)
        format[i] = all[i];
    if (status == SUCCESS && count)
        *count = n;
    return leave(CALL_clGetSupportedImageFormats, status);
}

API int32_t clGetMemObjectInfo(void *handle, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetMemObjectInfo(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetMemObjectInfo);
    if (status == SUCCESS)
        status = memory_info(handle, what, size, to, need);
    return leave(CALL_clGetMemObjectInfo, status);
}

API int32_t clGetImageInfo(void *handle, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetImageInfo(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetImageInfo);
    if (status == SUCCESS)
        status = image_info(handle, what, size, to, need);
    return leave(CALL_clGetImageInfo, status);
}

static void end_sampler(struct object *o) { (void)o; }

API void *clCreateSampler(void *context, uint32_t normalized, uint32_t addressing, uint32_t filter,
                          int32_t *error);
void *clCreateSampler(void *context, uint32_t normalized, uint32_t addressing, uint32_t filter,
                      int32_t *error)
{
    enum { LINEAR = 0x1141, LINEAR_BIT = 0x20, NEAREST_BIT = 0x10, NONE = 0x1130 };
    struct sampler *made = NULL;
    int32_t status = enter(CALL_clCreateSampler);
    if (status == SUCCESS && !object_find(context, KIND_CONTEXT))
        status = INVALID_CONTEXT;
    if (status == SUCCESS && !(made = object_create(KIND_SAMPLER, sizeof *made, end_sampler)))
        status = OUT_OF_HOST_MEMORY;
    if (made)
        made->bits = (normalized != 0) | (filter == LINEAR ? LINEAR_BIT : NEAREST_BIT) |
                     (addressing - NONE) << 1;
    if (error)
        *error = status;
    leave(CALL_clCreateSampler, status);
    return made;
}
