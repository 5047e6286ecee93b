/* SPDX-License-Identifier: 0BSD */
/* enqueue.c - the functions that enqueue launches, copies and mappings: what they check of their
 * arguments. What a command does when it runs is in queue.c.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>

static struct cl_memory *use(struct queue *q, void *handle, int32_t *status)
{
    struct cl_memory *m = object_find(handle, KIND_MEMORY);
    if (!m)
        *status = INVALID_MEM_OBJECT;
    else if (m->context != q->context) {
        *status = misuse(INVALID_CONTEXT, "memory object %u is another context's", m->o.number);
        return NULL;
    } else
        object_hold(&m->o);
    return m;
}

/* Are the rows of the box within nbytes? `from` as in the box, or `to`. */
static bool is_within(size_t nbytes, size_t at, size_t pitch, const struct box *b)
{
    size_t last;
    return b->row > 0 && b->rows > 0 && at <= nbytes &&
           !__builtin_mul_overflow(b->rows - 1, pitch, &last) && last <= nbytes - at &&
           b->row <= nbytes - at - last;
}

static int32_t check_box(const struct cl_memory *m, bool is_to, const struct box *b)
{
    const size_t at = is_to ? b->to : b->from, pitch = is_to ? b->to_pitch : b->from_pitch;
    if (!is_within(m->nbytes, at, pitch, b))
        return misuse(INVALID_VALUE, "bytes %zu..%zu of memory object %u, which has %zu", at,
                      at + (b->rows - 1) * pitch + b->row, m->o.number, m->nbytes);
    if (memory_is_mapped(m))
        return misuse(INVALID_OPERATION,
                      "memory object %u is mapped by the host, which may write it", m->o.number);
    return SUCCESS;
}

/* ------------------------------------------------------------------------------------- launches */

/* Bytes of the kernel's arguments: of a pointer 8. */
static size_t parameter_bytes(const struct kernel_code *code)
{
    size_t all = 0;
    for (int i = 0; i < code->signature.n; i++)
        all +=
            code->signature.parameter[i].kind == PARAMETER_VALUE ? code->nbytes[i] : sizeof(void *);
    return all;
}

static int32_t check_sizes(const struct prepared *p)
{
    const struct device_facts *d = device_facts();
    const struct signature *s = &p->kernel->code->signature;
    size_t items = 1, all = 1;
    if (parameter_bytes(p->kernel->code) > (size_t)d->parameters)
        return misuse(OUT_OF_RESOURCES, "%s: %zu bytes of arguments, the device takes %ld", s->name,
                      parameter_bytes(p->kernel->code), d->parameters);
    for (int a = 0; a < 3; a++) {
        if (p->global[a] == 0)
            return misuse(INVALID_GLOBAL_WORK_SIZE, "%s: no work-items along axis %d", s->name, a);
        if (p->block[a] == 0 || p->global[a] % p->block[a])
            return misuse(INVALID_WORK_GROUP_SIZE,
                          "%s: %zu work-items along axis %d are no multiple of %zu", s->name,
                          p->global[a], a, p->block[a]);
        if (s->block[0] && p->block[a] != s->block[a])
            return misuse(INVALID_WORK_GROUP_SIZE,
                          "%s: a block of %zu along axis %d, where it requires %zu", s->name,
                          p->block[a], a, s->block[a]);
        if (p->block[a] > (size_t)d->axis)
            return misuse(INVALID_WORK_ITEM_SIZE,
                          "%s: a block of %zu along axis %d, the device has up to %ld", s->name,
                          p->block[a], a, d->axis);
        items *= p->block[a];
        all *= p->global[a];
    }
    if (items > (size_t)d->group)
        return misuse(INVALID_WORK_GROUP_SIZE,
                      "%s: a block of %zu work-items, the device has up to %ld", s->name, items,
                      d->group);
    if (all >= (size_t)1 << 24)
        return misuse(INVALID_GLOBAL_WORK_SIZE, "%s: %zu work-items are more than are emulated",
                      s->name, all);
    return SUCCESS;
}

static int32_t prepare(struct queue *q, struct command *c, void *kernel, uint32_t dimensions,
                       const size_t *offset, const size_t *global, const size_t *block)
{
    struct cl_kernel *k = object_find(kernel, KIND_KERNEL);
    if (!k)
        return INVALID_KERNEL;
    if (k->program->context != q->context)
        return misuse(INVALID_CONTEXT, "%s is another context's", k->code->signature.name);
    if (dimensions < 1 || dimensions > 3 || !global)
        return misuse(INVALID_WORK_DIMENSION, "%u axes", dimensions);
    const int32_t status = launch_prepare(&c->launch, k);
    if (status != SUCCESS) {
        c->launch.kernel = NULL;
        return status;
    }
    struct prepared *p = &c->launch;
    p->dimensions = dimensions;
    for (uint32_t a = 0; a < 3; a++) {
        p->offset[a] = offset && a < dimensions ? offset[a] : 0;
        p->global[a] = a < dimensions ? global[a] : 1;
        p->block[a] = block && a < dimensions ? block[a] : 1;
    }
    if (!block && k->code->signature.block[0])
        memcpy(p->block, k->code->signature.block, sizeof p->block);
    else if (!block) /* the driver's choice */
        for (size_t n = 8; n > 1 && p->block[0] == 1; n--)
            if (p->global[0] % n == 0 && n <= (size_t)device_facts()->group)
                p->block[0] = n;
    return check_sizes(p);
}

API int32_t clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions,
                                   const size_t *offset, const size_t *global, const size_t *local,
                                   uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                               const size_t *global, const size_t *local, uint32_t nwait,
                               void *const *wait, void **event)
{
    int32_t status = enter(CALL_clEnqueueNDRangeKernel);
    if (status == SUCCESS) {
        struct command *c = command_create(queue, WORK_LAUNCH, nwait, wait, &status);
        if (c)
            status = prepare(queue, c, kernel, dimensions, offset, global, local);
        status = command_submit(queue, c, status, false, event);
    }
    return leave(CALL_clEnqueueNDRangeKernel, status);
}

/* --------------------------------------------------------------------------------------- copies */

static int32_t transfer(void *queue, enum work work, void *from, void *to, void *host,
                        const struct box *box, bool blocks, uint32_t nwait, void *const *wait,
                        void **event)
{
    int32_t status;
    struct command *c = command_create(queue, work, nwait, wait, &status);
    if (!c)
        return status;
    c->box = *box;
    c->host = host;
    if ((!from || !to) && !host)
        status = misuse(INVALID_VALUE, "no address of the host's");
    if (status == SUCCESS && from && (c->from = use(queue, from, &status)))
        status = check_box(c->from, false, box);
    if (status == SUCCESS && to && (c->to = use(queue, to, &status)))
        status = check_box(c->to, true, box);
    if (status == SUCCESS && c->from && c->from == c->to && box->from < box->to + box->row &&
        box->to < box->from + box->row)
        status = misuse(MEM_COPY_OVERLAP, "the parts overlap");
    return command_submit(queue, c, status, blocks, event);
}

API int32_t clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset,
                                size_t size, void *to, uint32_t nwait, void *const *wait,
                                void **event);
int32_t clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset, size_t size,
                            void *to, uint32_t nwait, void *const *wait, void **event)
{
    const struct box box = {.row = size, .rows = 1, .from = offset};
    int32_t status = enter(CALL_clEnqueueReadBuffer);
    if (status == SUCCESS)
        status = transfer(queue, WORK_READ, buffer, NULL, to, &box, blocks, nwait, wait, event);
    return leave(CALL_clEnqueueReadBuffer, status);
}

API int32_t clEnqueueWriteBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset,
                                 size_t size, const void *from, uint32_t nwait, void *const *wait,
                                 void **event);
int32_t clEnqueueWriteBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset, size_t size,
                             const void *from, uint32_t nwait, void *const *wait, void **event)
{
    const struct box box = {.row = size, .rows = 1, .to = offset};
    int32_t status = enter(CALL_clEnqueueWriteBuffer);
    if (status == SUCCESS)
        status = transfer(queue, WORK_WRITE, NULL, buffer, (void *)(uintptr_t)from, &box, blocks,
                          nwait, wait, event);
    return leave(CALL_clEnqueueWriteBuffer, status);
}

API int32_t clEnqueueCopyBuffer(void *queue, void *from, void *to, size_t from_at, size_t to_at,
                                size_t size, uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueCopyBuffer(void *queue, void *from, void *to, size_t from_at, size_t to_at,
                            size_t size, uint32_t nwait, void *const *wait, void **event)
{
    const struct box box = {.row = size, .rows = 1, .from = from_at, .to = to_at};
    int32_t status = enter(CALL_clEnqueueCopyBuffer);
    if (status == SUCCESS)
        status = transfer(queue, WORK_COPY, from, to, NULL, &box, false, nwait, wait, event);
    return leave(CALL_clEnqueueCopyBuffer, status);
}

static int32_t fill(void *queue, void *buffer, const void *pattern, size_t npattern, size_t offset,
                    size_t size, uint32_t nwait, void *const *wait, void **event)
{
    const struct box box = {.row = size, .rows = 1, .to = offset};
    int32_t status;
    struct command *c = command_create(queue, WORK_FILL, nwait, wait, &status);
    if (!c)
        return status;
    c->box = box;
    if (!pattern || npattern == 0 || npattern > sizeof c->pattern || (npattern & (npattern - 1)) ||
        offset % npattern || size % npattern)
        status =
            misuse(INVALID_VALUE, "a pattern of %zu bytes for %zu at %zu", npattern, size, offset);
    else {
        memcpy(c->pattern, pattern, npattern);
        c->npattern = npattern;
    }
    if (status == SUCCESS && (c->to = use(queue, buffer, &status)))
        status = check_box(c->to, true, &box);
    return command_submit(queue, c, status, false, event);
}

API int32_t clEnqueueFillBuffer(void *queue, void *buffer, const void *pattern, size_t npattern,
                                size_t offset, size_t size, uint32_t nwait, void *const *wait,
                                void **event);
int32_t clEnqueueFillBuffer(void *queue, void *buffer, const void *pattern, size_t npattern,
                            size_t offset, size_t size, uint32_t nwait, void *const *wait,
                            void **event)
{
    int32_t status = enter(CALL_clEnqueueFillBuffer);
    if (status == SUCCESS)
        status = fill(queue, buffer, pattern, npattern, offset, size, nwait, wait, event);
    return leave(CALL_clEnqueueFillBuffer, status);
}

/* The bytes of a region of an image; false: it is none of its. */
static bool image_box(const void *handle, const size_t *origin, const size_t *region, size_t *at,
                      size_t *pitch, struct box *b)
{
    const struct cl_memory *m = object_find(handle, KIND_MEMORY);
    if (!m || !m->is_image || !origin || !region || origin[0] + region[0] > m->image.width ||
        origin[1] + region[1] > m->image.height || origin[2] != 0 || region[2] != 1 ||
        region[0] == 0 || region[1] == 0) {
        misuse(0, "the region is none of the image's");
        return false;
    }
    const size_t pixel = m->image.is_half ? 8 : 16;
    *at = origin[1] * m->image.pitch + origin[0] * pixel;
    *pitch = m->image.pitch;
    b->row = region[0] * pixel;
    b->rows = region[1];
    return true;
}

API int32_t clEnqueueReadImage(void *queue, void *image, uint32_t blocks, const size_t *origin,
                               const size_t *region, size_t pitch, size_t slice, void *to,
                               uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueReadImage(void *queue, void *image, uint32_t blocks, const size_t *origin,
                           const size_t *region, size_t pitch, size_t slice, void *to,
                           uint32_t nwait, void *const *wait, void **event)
{
    struct box box = {0};
    int32_t status = enter(CALL_clEnqueueReadImage);
    (void)slice;
    if (status == SUCCESS && !image_box(image, origin, region, &box.from, &box.from_pitch, &box))
        status = INVALID_VALUE;
    box.to_pitch = pitch ? pitch : box.row;
    if (status == SUCCESS)
        status = transfer(queue, WORK_READ, image, NULL, to, &box, blocks, nwait, wait, event);
    return leave(CALL_clEnqueueReadImage, status);
}

API int32_t clEnqueueWriteImage(void *queue, void *image, uint32_t blocks, const size_t *origin,
                                const size_t *region, size_t pitch, size_t slice, const void *from,
                                uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueWriteImage(void *queue, void *image, uint32_t blocks, const size_t *origin,
                            const size_t *region, size_t pitch, size_t slice, const void *from,
                            uint32_t nwait, void *const *wait, void **event)
{
    struct box box = {0};
    int32_t status = enter(CALL_clEnqueueWriteImage);
    (void)slice;
    if (status == SUCCESS && !image_box(image, origin, region, &box.to, &box.to_pitch, &box))
        status = INVALID_VALUE;
    box.from_pitch = pitch ? pitch : box.row;
    if (status == SUCCESS)
        status = transfer(queue, WORK_WRITE, NULL, image, (void *)(uintptr_t)from, &box, blocks,
                          nwait, wait, event);
    return leave(CALL_clEnqueueWriteImage, status);
}

API int32_t clEnqueueCopyBufferToImage(void *queue, void *from, void *to, size_t offset,
                                       const size_t *origin, const size_t *region, uint32_t nwait,
                                       void *const *wait, void **event);
int32_t clEnqueueCopyBufferToImage(void *queue, void *from, void *to, size_t offset,
                                   const size_t *origin, const size_t *region, uint32_t nwait,
                                   void *const *wait, void **event)
{
    struct box box = {.from = offset};
    int32_t status = enter(CALL_clEnqueueCopyBufferToImage);
    if (status == SUCCESS && !image_box(to, origin, region, &box.to, &box.to_pitch, &box))
        status = INVALID_VALUE;
    box.from_pitch = box.row;
    if (status == SUCCESS)
        status = transfer(queue, WORK_COPY, from, to, NULL, &box, false, nwait, wait, event);
    return leave(CALL_clEnqueueCopyBufferToImage, status);
}

API int32_t clEnqueueCopyImageToBuffer(void *queue, void *from, void *to, const size_t *origin,
                                       const size_t *region, size_t offset, uint32_t nwait,
                                       void *const *wait, void **event);
int32_t clEnqueueCopyImageToBuffer(void *queue, void *from, void *to, const size_t *origin,
                                   const size_t *region, size_t offset, uint32_t nwait,
                                   void *const *wait, void **event)
{
    struct box box = {.to = offset};
    int32_t status = enter(CALL_clEnqueueCopyImageToBuffer);
    if (status == SUCCESS && !image_box(from, origin, region, &box.from, &box.from_pitch, &box))
        status = INVALID_VALUE;
    box.to_pitch = box.row;
    if (status == SUCCESS)
        status = transfer(queue, WORK_COPY, from, to, NULL, &box, false, nwait, wait, event);
    return leave(CALL_clEnqueueCopyImageToBuffer, status);
}

/* ------------------------------------------------------------------------------------- mappings */

static int32_t map(void *queue, void *buffer, bool blocks, uint64_t flags, size_t from,
                   size_t nbytes, uint32_t nwait, void *const *wait, void **event, void **at)
{
    int32_t status;
    struct command *c = command_create(queue, WORK_MAP, nwait, wait, &status);
    if (!c)
        return status;
    c->from = use(queue, buffer, &status);
    if (c->from && (nbytes == 0 || from > c->from->nbytes || nbytes > c->from->nbytes - from))
        status = misuse(INVALID_VALUE, "bytes %zu..%zu of memory object %u, which has %zu", from,
                        from + nbytes, c->from->o.number, c->from->nbytes);
    if (status == SUCCESS && (flags == 0 || flags > MAP_WRITE_INVALIDATE))
        status = misuse(INVALID_VALUE, "flags 0x%llx", (unsigned long long)flags);
    struct mapping *a = status == SUCCESS ? mapping_create(c->from, from, nbytes, flags) : NULL;
    if (status == SUCCESS && !a)
        status = MAP_FAILURE;
    c->mapping = a;
    struct cl_memory *m = c->from;
    status = command_submit(queue, c, status, blocks, event);
    if (a && status != SUCCESS) {
        mapping_take(m, a->copy);
        a->flags = 0;
        mapping_write_back(m, a);
    } else if (a)
        *at = a->copy;
    return status;
}

API void *clEnqueueMapBuffer(void *queue, void *buffer, uint32_t blocks, uint64_t flags,
                             size_t offset, size_t size, uint32_t nwait, void *const *wait,
                             void **event, int32_t *error);
void *clEnqueueMapBuffer(void *queue, void *buffer, uint32_t blocks, uint64_t flags, size_t offset,
                         size_t size, uint32_t nwait, void *const *wait, void **event,
                         int32_t *error)
{
    void *at = NULL;
    int32_t status = enter(CALL_clEnqueueMapBuffer);
    if (status == SUCCESS)
        status = map(queue, buffer, blocks, flags, offset, size, nwait, wait, event, &at);
    if (error)
        *error = status;
    leave(CALL_clEnqueueMapBuffer, status);
    return at;
}

API void *clEnqueueMapImage(void *queue, void *image, uint32_t blocks, uint64_t flags,
                            const size_t *origin, const size_t *region, size_t *pitch,
                            size_t *slice, uint32_t nwait, void *const *wait, void **event,
                            int32_t *error);
void *clEnqueueMapImage(void *queue, void *image, uint32_t blocks, uint64_t flags,
                        const size_t *origin, const size_t *region, size_t *pitch, size_t *slice,
                        uint32_t nwait, void *const *wait, void **event, int32_t *error)
{
    void *at = NULL;
    size_t from, rows;
    struct box box = {0};
    int32_t status = enter(CALL_clEnqueueMapImage);
    if (status == SUCCESS && (!pitch || !image_box(image, origin, region, &from, &rows, &box)))
        status = INVALID_VALUE;
    if (status == SUCCESS)
        status = map(queue, image, blocks, flags, from, (box.rows - 1) * rows + box.row, nwait,
                     wait, event, &at);
    if (status == SUCCESS)
        *pitch = rows;
    if (status == SUCCESS && slice)
        *slice = 0;
    if (error)
        *error = status;
    leave(CALL_clEnqueueMapImage, status);
    return at;
}

static int32_t unmap(void *queue, void *buffer, void *at, uint32_t nwait, void *const *wait,
                     void **event)
{
    int32_t status;
    struct command *c = command_create(queue, WORK_UNMAP, nwait, wait, &status);
    struct cl_memory *m;
    if (!c) { /* a lost device lets the host's part go nevertheless */
        m = status == OUT_OF_RESOURCES ? object_find(buffer, KIND_MEMORY) : NULL;
        struct mapping *a = m ? mapping_take(m, at) : NULL;
        if (a)
            mapping_write_back(m, a);
        return status;
    }
    c->to = use(queue, buffer, &status);
    c->mapping = c->to ? mapping_take(c->to, at) : NULL;
    if (c->to && !c->mapping)
        status = misuse(INVALID_VALUE, "%p is no part of memory object %u that is mapped", at,
                        c->to->o.number);
    return command_submit(queue, c, status, false, event);
}

API int32_t clEnqueueUnmapMemObject(void *queue, void *buffer, void *at, uint32_t nwait,
                                    void *const *wait, void **event);
int32_t clEnqueueUnmapMemObject(void *queue, void *buffer, void *at, uint32_t nwait,
                                void *const *wait, void **event)
{
    int32_t status = enter(CALL_clEnqueueUnmapMemObject);
    if (status == SUCCESS)
        status = unmap(queue, buffer, at, nwait, wait, event);
    else
        mapping_excuse(buffer, at);
    return leave(CALL_clEnqueueUnmapMemObject, status);
}
