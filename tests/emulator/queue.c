/* SPDX-License-Identifier: 0BSD */
/* queue.c - command queues and events. A command runs as late as it may: when the host waits for it,
 * or for one behind it. So a host that reads too early reads what was there before, each time, and not
 * only on a slow device. A queue out of order begins with its last command.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OUT_OF_ORDER = 1, PROFILING = 2 };
enum { COMPLETE, RUNNING, SUBMITTED, QUEUED };
enum { TIME_QUEUED, TIME_SUBMIT, TIME_START, TIME_END };

enum work { WORK_LAUNCH, WORK_READ, WORK_WRITE, WORK_COPY, WORK_FILL, WORK_MAP, WORK_UNMAP, WORK_WAIT };

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
    bool is_barrier;                 /* it waits for all before it, and all behind it wait for it */
    struct cl_memory *from, *to;
    void *host;
    struct box box;
    unsigned char pattern[128];
    size_t npattern;
    struct mapping *mapping;
    struct prepared launch;
};

/* --------------------------------------------------------------------------------------- events */

static uint64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void end_event(struct object *o)
{
    struct event *e = (struct event *)o;
    if (e->queue)
        object_let(&e->queue->o);
    object_let(&e->context->o);
}

static struct event *create_event(struct context *c, struct queue *q)
{
    struct event *e = object_create(KIND_EVENT, sizeof *e, end_event);
    if (!e)
        return NULL;
    e->context = c;
    e->queue = q;
    e->status = q ? QUEUED : SUBMITTED;
    object_hold(&c->o);
    if (q)
        object_hold(&q->o);
    e->time[TIME_QUEUED] = clock_now();
    return e;
}

/* ------------------------------------------------------------------------------------- commands */

static void move_rows(unsigned char *to, const unsigned char *from, const struct box *b)
{
    for (size_t i = 0; i < b->rows; i++)
        memmove(to + b->to + i * b->to_pitch, from + b->from + i * b->from_pitch, b->row);
}

/* The bytes of memory from..: whether they are written goes with them. */
static void move_in_memory(const struct command *c)
{
    size_t from, to;
    const struct memory *a = memory_of(c->from, &from), *b = memory_of(c->to, &to);
    move_rows(b->at + to, a->at + from, &c->box);
    move_rows(b->known + to, a->known + from, &c->box);
}

static void write_memory(const struct command *c)
{
    size_t to;
    const struct memory *m = memory_of(c->to, &to);
    move_rows(m->at + to, c->host, &c->box);
    for (size_t i = 0; i < c->box.rows; i++)
        memset(m->known + to + c->box.to + i * c->box.to_pitch, 1, c->box.row);
}

static void fill_memory(const struct command *c)
{
    size_t to;
    const struct memory *m = memory_of(c->to, &to);
    for (size_t i = 0; i < c->box.row; i++)
        m->at[to + c->box.to + i] = c->pattern[i % c->npattern];
    memset(m->known + to + c->box.to, 1, c->box.row);
}

/* false: a kernel went wrong. */
static bool work(struct command *c)
{
    size_t from;
    switch (c->work) {
    case WORK_LAUNCH: return launch_go(&c->launch);
    case WORK_READ: move_rows(c->host, memory_of(c->from, &from)->at + from, &c->box); break;
    case WORK_WRITE: write_memory(c); break;
    case WORK_COPY: move_in_memory(c); break;
    case WORK_FILL: fill_memory(c); break;
    case WORK_MAP: mapping_fill(c->from, c->mapping); break;
    case WORK_UNMAP: mapping_write_back(c->to, c->mapping); break;
    case WORK_WAIT: break;
    }
    return true;
}

static void end_command(struct command *c)
{
    if (c->work == WORK_LAUNCH && c->launch.kernel)
        launch_end(&c->launch);
    if (c->from)
        object_let(&c->from->o);
    if (c->to)
        object_let(&c->to->o);
    for (uint32_t i = 0; i < c->nwait; i++)
        object_let(&c->wait[i]->o);
    free(c->wait);
    if (c->event) {
        c->event->command = NULL;
        object_let(&c->event->o);
    }
    free(c);
}

static void unlink_command(struct queue *q, struct command *c)
{
    struct command **at = &q->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    q->last = NULL;
    for (struct command *k = q->first; k; k = k->next)
        q->last = k;
}

static void run_command(struct queue *q, struct command *c);

/* Waits for an event: SUCCESS, or why it cannot come. */
static int32_t run_event(struct event *e)
{
    if (e->command)
        run_command(e->queue, e->command);
    if (e->status > COMPLETE) {
        report("a command waits for user event %u, which the host has not set", e->o.number);
        return EVENTS_FAILED;
    }
    return e->status;
}

/* Runs what must come before, and then the command. */
static void run_command(struct queue *q, struct command *c)
{
    const bool in_order = !(q->properties & OUT_OF_ORDER);
    while (in_order || c->is_barrier) {
        if (q->first == c)
            break;
        run_command(q, q->first);
    }
    for (struct command *k = q->first; k != c;) {        /* barriers before it */
        struct command *barrier = k->is_barrier ? k : NULL;
        k = k->next;
        if (barrier) {
            run_command(q, barrier);
            k = q->first;
        }
    }
    int32_t status = SUCCESS;
    for (uint32_t i = 0; i < c->nwait; i++)
        if (run_event(c->wait[i]) != SUCCESS)
            status = EVENTS_FAILED;
    if (q->is_lost || device_is_lost())
        status = OUT_OF_RESOURCES;
    unlink_command(q, c);
    struct event *e = c->event;
    if (e)
        e->time[TIME_SUBMIT] = e->time[TIME_START] = clock_now();
    if (status != SUCCESS && c->work == WORK_UNMAP)
        mapping_write_back(c->to, c->mapping);           /* which frees it */
    else if (status == SUCCESS && !work(c)) {
        status = OUT_OF_RESOURCES;
        q->is_lost = true;
    }
    if (e) {
        e->time[TIME_END] = clock_now();
        e->status = status;
    }
    if (status != SUCCESS)
        q->is_lost = true;
    end_command(c);
}

static void run_all(struct queue *q)
{
    while (q->last)
        run_command(q, q->properties & OUT_OF_ORDER ? q->last : q->first);
}

/* --------------------------------------------------------------------------------------- queues */

static void end_queue(struct object *o)
{
    struct queue *q = (struct queue *)o;
    object_let(&q->context->o);
}

static int32_t create_queue(void *context, void *device, uint64_t properties, void **made)
{
    struct context *c = object_find(context, KIND_CONTEXT);
    if (!c)
        return INVALID_CONTEXT;
    if (device != &the_device)
        return misuse(INVALID_DEVICE, "%p is no device", device);
    if (properties & ~(uint64_t)(OUT_OF_ORDER | PROFILING))
        return misuse(INVALID_QUEUE_PROPERTIES, "properties 0x%llx", (unsigned long long)properties);
    struct queue *q = object_create(KIND_QUEUE, sizeof *q, end_queue);
    if (!q)
        return OUT_OF_HOST_MEMORY;
    q->context = c;
    q->properties = properties;
    object_hold(&c->o);
    *made = q;
    return SUCCESS;
}

/* A command that waits for these events; NULL: *status. */
static struct command *create_command(void *queue, enum work work, uint32_t nwait,
                                      void *const *wait, int32_t *status)
{
    const struct queue *q = object_find(queue, KIND_QUEUE);
    *status = q ? SUCCESS : INVALID_COMMAND_QUEUE;
    if (q && q->is_lost)
        *status = OUT_OF_RESOURCES;
    if (q && (nwait > 0) != (wait != NULL))
        *status = misuse(INVALID_EVENT_WAIT_LIST, "%u events at %p", nwait, (const void *)wait);
    for (uint32_t i = 0; *status == SUCCESS && i < nwait; i++)
        if (!object_find(wait[i], KIND_EVENT))
            *status = INVALID_EVENT_WAIT_LIST;
    if (*status != SUCCESS)
        return NULL;
    struct command *c = calloc(1, sizeof *c);
    if (c)
        c->wait = calloc(nwait + 1, sizeof *c->wait);
    if (!c || !c->wait) {
        free(c);
        *status = OUT_OF_HOST_MEMORY;
        return NULL;
    }
    c->work = work;
    for (uint32_t i = 0; i < nwait; i++) {
        c->wait[i] = wait[i];
        object_hold(&c->wait[i]->o);
    }
    c->nwait = nwait;
    return c;
}

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

/* Appends the command, or drops it if the status says so; waits for it, if it blocks. */
static int32_t submit(struct queue *q, struct command *c, int32_t status, bool blocks, void **event)
{
    if (!c)
        return status;
    if (status == SUCCESS && !(c->event = create_event(q->context, q)))
        status = OUT_OF_HOST_MEMORY;
    if (status != SUCCESS) {
        end_command(c);
        return status;
    }
    c->event->command = c;
    object_hold(&c->event->o);
    struct event *e = c->event;
    if (q->last)
        q->last->next = c;
    else
        q->first = c;
    q->last = c;
    object_hold(&e->o);
    if (blocks || device_facts()->is_eager)
        run_command(q, c);
    if (blocks && e->status < 0)
        status = OUT_OF_RESOURCES;
    if (event && status == SUCCESS)
        *event = e;
    else
        e->o.references--;
    object_let(&e->o);
    return status;
}

/* Whether rows of the box are within so many bytes; `from` as in the box, or `to`. */
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
        return misuse(INVALID_OPERATION, "memory object %u is mapped by the host, which may write it",
                      m->o.number);
    return SUCCESS;
}

/* ------------------------------------------------------------------------------------- launches */

static int32_t check_sizes(const struct prepared *p)
{
    const struct device_facts *d = device_facts();
    const struct signature *s = &p->kernel->code->signature;
    size_t items = 1, all = 1;
    for (int a = 0; a < 3; a++) {
        if (p->global[a] == 0)
            return misuse(INVALID_GLOBAL_WORK_SIZE, "%s: no work-items along axis %d", s->name, a);
        if (p->block[a] == 0 || p->global[a] % p->block[a])
            return misuse(INVALID_WORK_GROUP_SIZE, "%s: %zu work-items along axis %d are no multiple of %zu",
                          s->name, p->global[a], a, p->block[a]);
        if (s->block[0] && p->block[a] != s->block[a])
            return misuse(INVALID_WORK_GROUP_SIZE, "%s: a block of %zu along axis %d, where it requires %zu",
                          s->name, p->block[a], a, s->block[a]);
        items *= p->block[a];
        all *= p->global[a];
    }
    if (items > (size_t)d->group)
        return misuse(INVALID_WORK_GROUP_SIZE, "%s: a block of %zu work-items, the device has up to %ld",
                      s->name, items, d->group);
    if (all >= (size_t)1 << 24)
        return misuse(INVALID_GLOBAL_WORK_SIZE, "%s: %zu work-items are more than are emulated", s->name,
                      all);
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
    else if (!block)                         /* the driver's choice */
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
        struct command *c = create_command(queue, WORK_LAUNCH, nwait, wait, &status);
        if (c)
            status = prepare(queue, c, kernel, dimensions, offset, global, local);
        status = submit(queue, c, status, false, event);
    }
    return leave(CALL_clEnqueueNDRangeKernel, status);
}

/* --------------------------------------------------------------------------------------- copies */

static int32_t transfer(void *queue, enum work work, void *from, void *to, void *host,
                        const struct box *box, bool blocks, uint32_t nwait, void *const *wait,
                        void **event)
{
    int32_t status;
    struct command *c = create_command(queue, work, nwait, wait, &status);
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
    return submit(queue, c, status, blocks, event);
}

API int32_t clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset, size_t size,
                                void *to, uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset, size_t size,
                            void *to, uint32_t nwait, void *const *wait, void **event)
{
    const struct box box = {.row = size, .rows = 1, .from = offset};
    int32_t status = enter(CALL_clEnqueueReadBuffer);
    if (status == SUCCESS)
        status = transfer(queue, WORK_READ, buffer, NULL, to, &box, blocks, nwait, wait, event);
    return leave(CALL_clEnqueueReadBuffer, status);
}

API int32_t clEnqueueWriteBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset, size_t size,
                                 const void *from, uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueWriteBuffer(void *queue, void *buffer, uint32_t blocks, size_t offset, size_t size,
                             const void *from, uint32_t nwait, void *const *wait, void **event)
{
    const struct box box = {.row = size, .rows = 1, .to = offset};
    int32_t status = enter(CALL_clEnqueueWriteBuffer);
    if (status == SUCCESS)
        status = transfer(queue, WORK_WRITE, NULL, buffer, (void *)(uintptr_t)from, &box, blocks, nwait,
                          wait, event);
    return leave(CALL_clEnqueueWriteBuffer, status);
}

API int32_t clEnqueueCopyBuffer(void *queue, void *from, void *to, size_t from_at, size_t to_at,
                                size_t size, uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueCopyBuffer(void *queue, void *from, void *to, size_t from_at, size_t to_at, size_t size,
                            uint32_t nwait, void *const *wait, void **event)
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
    struct command *c = create_command(queue, WORK_FILL, nwait, wait, &status);
    if (!c)
        return status;
    c->box = box;
    if (!pattern || npattern == 0 || npattern > sizeof c->pattern || (npattern & (npattern - 1)) ||
        offset % npattern || size % npattern)
        status = misuse(INVALID_VALUE, "a pattern of %zu bytes for %zu at %zu", npattern, size, offset);
    else {
        memcpy(c->pattern, pattern, npattern);
        c->npattern = npattern;
    }
    if (status == SUCCESS && (c->to = use(queue, buffer, &status)))
        status = check_box(c->to, true, &box);
    return submit(queue, c, status, false, event);
}

API int32_t clEnqueueFillBuffer(void *queue, void *buffer, const void *pattern, size_t npattern,
                                size_t offset, size_t size, uint32_t nwait, void *const *wait,
                                void **event);
int32_t clEnqueueFillBuffer(void *queue, void *buffer, const void *pattern, size_t npattern,
                            size_t offset, size_t size, uint32_t nwait, void *const *wait, void **event)
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
                           const size_t *region, size_t pitch, size_t slice, void *to, uint32_t nwait,
                           void *const *wait, void **event)
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
        status = transfer(queue, WORK_WRITE, NULL, image, (void *)(uintptr_t)from, &box, blocks, nwait,
                          wait, event);
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

static int32_t map(void *queue, void *buffer, bool blocks, uint64_t flags, size_t from, size_t nbytes,
                   uint32_t nwait, void *const *wait, void **event, void **at)
{
    int32_t status;
    struct command *c = create_command(queue, WORK_MAP, nwait, wait, &status);
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
    status = submit(queue, c, status, blocks, event);
    if (a && status != SUCCESS) {
        mapping_take(m, a->copy);
        a->flags = 0;
        mapping_write_back(m, a);
    } else if (a)
        *at = a->copy;
    return status;
}

API void *clEnqueueMapBuffer(void *queue, void *buffer, uint32_t blocks, uint64_t flags, size_t offset,
                             size_t size, uint32_t nwait, void *const *wait, void **event,
                             int32_t *error);
void *clEnqueueMapBuffer(void *queue, void *buffer, uint32_t blocks, uint64_t flags, size_t offset,
                         size_t size, uint32_t nwait, void *const *wait, void **event, int32_t *error)
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
                            const size_t *origin, const size_t *region, size_t *pitch, size_t *slice,
                            uint32_t nwait, void *const *wait, void **event, int32_t *error);
void *clEnqueueMapImage(void *queue, void *image, uint32_t blocks, uint64_t flags, const size_t *origin,
                        const size_t *region, size_t *pitch, size_t *slice, uint32_t nwait,
                        void *const *wait, void **event, int32_t *error)
{
    void *at = NULL;
    size_t from, rows;
    struct box box = {0};
    int32_t status = enter(CALL_clEnqueueMapImage);
    if (status == SUCCESS && (!pitch || !image_box(image, origin, region, &from, &rows, &box)))
        status = INVALID_VALUE;
    if (status == SUCCESS)
        status = map(queue, image, blocks, flags, from, (box.rows - 1) * rows + box.row, nwait, wait,
                     event, &at);
    if (status == SUCCESS)
        *pitch = rows;
    if (status == SUCCESS && slice)
        *slice = 0;
    if (error)
        *error = status;
    leave(CALL_clEnqueueMapImage, status);
    return at;
}

static int32_t unmap(void *queue, void *buffer, void *at, uint32_t nwait, void *const *wait, void **event)
{
    int32_t status;
    struct command *c = create_command(queue, WORK_UNMAP, nwait, wait, &status);
    struct cl_memory *m;
    if (!c) {                                /* a lost device lets the host's part go nevertheless */
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
    return submit(queue, c, status, false, event);
}

API int32_t clEnqueueUnmapMemObject(void *queue, void *buffer, void *at, uint32_t nwait,
                                    void *const *wait, void **event);
int32_t clEnqueueUnmapMemObject(void *queue, void *buffer, void *at, uint32_t nwait, void *const *wait,
                                void **event)
{
    int32_t status = enter(CALL_clEnqueueUnmapMemObject);
    if (status == SUCCESS)
        status = unmap(queue, buffer, at, nwait, wait, event);
    else
        mapping_excuse(buffer, at);
    return leave(CALL_clEnqueueUnmapMemObject, status);
}

/* ----------------------------------------------------------------------------- waiting, queries */

static int32_t wait_point(void *queue, bool is_barrier, uint32_t nwait, void *const *wait, void **event)
{
    int32_t status;
    struct command *c = create_command(queue, WORK_WAIT, nwait, wait, &status);
    if (c)
        c->is_barrier = is_barrier || nwait == 0;
    return submit(queue, c, status, false, event);
}

API int32_t clEnqueueMarkerWithWaitList(void *queue, uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueMarkerWithWaitList(void *queue, uint32_t nwait, void *const *wait, void **event)
{
    int32_t status = enter(CALL_clEnqueueMarkerWithWaitList);
    if (status == SUCCESS)
        status = wait_point(queue, false, nwait, wait, event);
    return leave(CALL_clEnqueueMarkerWithWaitList, status);
}

API int32_t clEnqueueBarrierWithWaitList(void *queue, uint32_t nwait, void *const *wait, void **event);
int32_t clEnqueueBarrierWithWaitList(void *queue, uint32_t nwait, void *const *wait, void **event)
{
    int32_t status = enter(CALL_clEnqueueBarrierWithWaitList);
    if (status == SUCCESS)
        status = wait_point(queue, true, nwait, wait, event);
    return leave(CALL_clEnqueueBarrierWithWaitList, status);
}

API int32_t clFlush(void *queue);
int32_t clFlush(void *queue)
{
    int32_t status = enter(CALL_clFlush);
    if (status == SUCCESS && !object_find(queue, KIND_QUEUE))
        status = INVALID_COMMAND_QUEUE;
    return leave(CALL_clFlush, status);
}

static int32_t finish(void *handle)
{
    struct queue *q = object_find(handle, KIND_QUEUE);
    if (!q)
        return INVALID_COMMAND_QUEUE;
    run_all(q);
    return q->is_lost ? OUT_OF_RESOURCES : SUCCESS;
}

API int32_t clFinish(void *queue);
int32_t clFinish(void *queue)
{
    int32_t status = enter(CALL_clFinish);
    const int32_t done = finish(queue);      /* a wait that fails has waited */
    return leave(CALL_clFinish, status == SUCCESS ? done : status);
}

API void *clCreateCommandQueue(void *context, void *device, uint64_t properties, int32_t *error);
void *clCreateCommandQueue(void *context, void *device, uint64_t properties, int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateCommandQueue);
    if (status == SUCCESS)
        status = create_queue(context, device, properties, &made);
    if (error)
        *error = status;
    leave(CALL_clCreateCommandQueue, status);
    return made;
}

API void *clCreateCommandQueueWithProperties(void *context, void *device, const uint64_t *properties,
                                             int32_t *error);
void *clCreateCommandQueueWithProperties(void *context, void *device, const uint64_t *properties,
                                         int32_t *error)
{
    enum { PROPERTIES = 0x1093 };
    void *made = NULL;
    uint64_t bits = 0;
    int32_t status = enter(CALL_clCreateCommandQueueWithProperties);
    for (; properties && *properties; properties += 2)
        bits |= *properties == PROPERTIES ? properties[1] : 0;
    if (status == SUCCESS)
        status = create_queue(context, device, bits, &made);
    if (error)
        *error = status;
    leave(CALL_clCreateCommandQueueWithProperties, status);
    return made;
}

/* Without its last reference a queue still does what it was told. */
API int32_t clReleaseCommandQueue(void *queue);
int32_t clReleaseCommandQueue(void *queue)
{
    enter(CALL_clReleaseCommandQueue);
    struct queue *q = object_find(queue, KIND_QUEUE);
    if (!q)
        return leave(CALL_clReleaseCommandQueue, INVALID_COMMAND_QUEUE);
    if (q->o.references == 1)
        run_all(q);
    return leave(CALL_clReleaseCommandQueue, object_release(queue, KIND_QUEUE));
}

static int32_t queue_info(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { CONTEXT = 0x1090, DEVICE, REFERENCES, PROPERTIES };
    const struct queue *q = object_find(handle, KIND_QUEUE);
    void *device = &the_device;
    if (!q)
        return INVALID_COMMAND_QUEUE;
    switch (what) {
    case CONTEXT: return answer(&q->context, sizeof q->context, size, to, need);
    case DEVICE: return answer(&device, sizeof device, size, to, need);
    case REFERENCES: return answer_number((uint64_t)q->o.references, 4, size, to, need);
    case PROPERTIES: return answer_number(q->properties, 8, size, to, need);
    default: return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

API int32_t clGetCommandQueueInfo(void *queue, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetCommandQueueInfo(void *queue, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetCommandQueueInfo);
    if (status == SUCCESS)
        status = queue_info(queue, what, size, to, need);
    return leave(CALL_clGetCommandQueueInfo, status);
}

static int32_t wait_for(uint32_t n, void *const *event)
{
    int32_t status = SUCCESS;
    if (n == 0 || !event)
        return misuse(INVALID_VALUE, "no events");
    for (uint32_t i = 0; i < n; i++)
        if (!object_find(event[i], KIND_EVENT))
            return INVALID_EVENT;
    for (uint32_t i = 0; i < n; i++)
        if (run_event(event[i]) != SUCCESS)
            status = EVENTS_FAILED;
    return status;
}

API int32_t clWaitForEvents(uint32_t n, void *const *event);
int32_t clWaitForEvents(uint32_t n, void *const *event)
{
    int32_t status = enter(CALL_clWaitForEvents);
    const int32_t done = wait_for(n, event);
    return leave(CALL_clWaitForEvents, status == SUCCESS ? done : status);
}

/* Who asks again and again for a status gets there: each question runs what the event waits for. */
static int32_t event_info(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { QUEUE = 0x11d0, TYPE, REFERENCES, STATUS, CONTEXT };
    struct event *e = object_find(handle, KIND_EVENT);
    if (!e)
        return INVALID_EVENT;
    const int32_t status = e->status;
    switch (what) {
    case QUEUE: return answer(&e->queue, sizeof e->queue, size, to, need);
    case TYPE: return answer_number(0x11f0, 4, size, to, need);
    case REFERENCES: return answer_number((uint64_t)e->o.references, 4, size, to, need);
    case STATUS:
        if (e->command)
            run_command(e->queue, e->command);
        return answer(&status, sizeof status, size, to, need);
    case CONTEXT: return answer(&e->context, sizeof e->context, size, to, need);
    default: return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

API int32_t clGetEventInfo(void *event, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetEventInfo(void *event, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetEventInfo);
    if (status == SUCCESS)
        status = event_info(event, what, size, to, need);
    return leave(CALL_clGetEventInfo, status);
}

static int32_t event_time(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { FIRST = 0x1280, LAST = 0x1283 };
    const struct event *e = object_find(handle, KIND_EVENT);
    if (!e)
        return INVALID_EVENT;
    if (what < FIRST || what > LAST)
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    if (!e->queue || !(e->queue->properties & PROFILING))
        return misuse(PROFILING_NOT_AVAILABLE, "the queue was made without profiling");
    if (e->status != COMPLETE)
        return e->status < 0 ? PROFILING_NOT_AVAILABLE
                             : misuse(PROFILING_NOT_AVAILABLE, "the command has not ended");
    return answer_number(e->time[what - FIRST], 8, size, to, need);
}

API int32_t clGetEventProfilingInfo(void *event, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetEventProfilingInfo(void *event, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetEventProfilingInfo);
    if (status == SUCCESS)
        status = event_time(event, what, size, to, need);
    return leave(CALL_clGetEventProfilingInfo, status);
}

API void *clCreateUserEvent(void *context, int32_t *error);
void *clCreateUserEvent(void *context, int32_t *error)
{
    struct event *made = NULL;
    int32_t status = enter(CALL_clCreateUserEvent);
    struct context *c = status == SUCCESS ? object_find(context, KIND_CONTEXT) : NULL;
    if (status == SUCCESS && !c)
        status = INVALID_CONTEXT;
    if (status == SUCCESS && !(made = create_event(c, NULL)))
        status = OUT_OF_HOST_MEMORY;
    if (error)
        *error = status;
    leave(CALL_clCreateUserEvent, status);
    return made;
}

API int32_t clSetUserEventStatus(void *event, int32_t value);
int32_t clSetUserEventStatus(void *event, int32_t value)
{
    int32_t status = enter(CALL_clSetUserEventStatus);
    struct event *e = status == SUCCESS ? object_find(event, KIND_EVENT) : NULL;
    if (status == SUCCESS && (!e || e->queue || e->status <= COMPLETE || value > COMPLETE))
        status = misuse(e ? INVALID_OPERATION : INVALID_EVENT, "no event of the host's that is to be set");
    else if (e)
        e->status = value;
    return leave(CALL_clSetUserEventStatus, status);
}
