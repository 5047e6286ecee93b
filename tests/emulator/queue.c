/* SPDX-License-Identifier: 0BSD */
/* queue.c - command queues and events. A command runs as late as it may: when the host waits for
 * it, or for a later one. So a host that reads too early always reads what was there before, and
 * not only on a slow device. A queue out of order begins with its last command.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OUT_OF_ORDER = 1, PROFILING = 2 };
enum { COMPLETE, RUNNING, SUBMITTED, QUEUED };
enum { TIME_QUEUED, TIME_SUBMIT, TIME_START, TIME_END };

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

/* Bytes copied from the device to the host, and back. Mappings count as on a device with
 * memory of its own. */
static long moved[2];

API long emulator_moved(int to_device);
long emulator_moved(int to_device)
{
    const long n = moved[to_device];
    moved[to_device] = 0;
    return n;
}

static void count_moved(const struct command *c)
{
    const uint64_t writes = MAP_WRITE | MAP_WRITE_INVALIDATE;
    if (c->work == WORK_READ || c->work == WORK_WRITE)
        moved[c->work == WORK_WRITE] += (long)(c->box.row * c->box.rows);
    if (c->work == WORK_MAP && !(c->mapping->flags & MAP_WRITE_INVALIDATE))
        moved[0] += (long)c->mapping->nbytes;
    if (c->work == WORK_UNMAP && (c->mapping->flags & writes))
        moved[1] += (long)c->mapping->nbytes;
}

/* The queues that there are, the commands of each so far, and how many of these the host
 * knows to be done. */
static struct {
    int n;
    bool is_taken[MAX_QUEUES];
    uint32_t submitted[MAX_QUEUES], done[MAX_QUEUES];
} queues;

static void join_order(struct order *o, const struct order *before)
{
    for (int i = 0; i < MAX_QUEUES; i++)
        if (before->before[i] > o->before[i])
            o->before[i] = before->before[i];
    if (before->number > o->before[before->queue])
        o->before[before->queue] = before->number;
}

/* A command is ordered after what the host has waited for, after the events that it waits for, and
 * after its queue's earlier commands. The commands of an out-of-order queue are not told apart. */
static void order_command(struct queue *q, struct command *c)
{
    struct order *o = &c->order;
    *o = (struct order){
        .several = queues.n > 1, .queue = q->number, .number = ++queues.submitted[q->number]};
    memcpy(o->before, queues.done, sizeof o->before);
    if (!(q->properties & OUT_OF_ORDER))
        join_order(o, &q->order);
    for (uint32_t i = 0; i < c->nwait; i++)
        join_order(o, &c->wait[i]->order);
    o->before[q->number] = o->number - 1;
    q->order = c->event->order = *o;
    c->launch.order = o;
}

/* What copies access, row by row. */
static void order_copy(const struct command *c)
{
    const bool maps = c->work == WORK_MAP || c->work == WORK_UNMAP;
    const struct cl_memory *side[] = {c->from, c->to};
    for (int k = 0; k < 2 && c->work != WORK_LAUNCH && c->order.several; k++) {
        size_t at;
        struct memory *m = side[k] ? memory_of(side[k], &at) : NULL;
        const size_t pitch = k ? c->box.to_pitch : c->box.from_pitch,
                     begin = k ? c->box.to : c->box.from;
        if (m && maps && (k == 0 || (c->mapping->flags & (MAP_WRITE | MAP_WRITE_INVALIDATE))))
            shadow_transfer(m, at + c->mapping->from, c->mapping->nbytes, k == 1, &c->order);
        for (size_t i = 0; m && !maps && i < c->box.rows; i++)
            shadow_transfer(m, at + begin + i * pitch, c->box.row, k == 1, &c->order);
    }
}

/* false: a kernel went wrong. */
static bool work(struct command *c)
{
    size_t from;
    count_moved(c);
    order_copy(c);
    switch (c->work) {
    case WORK_LAUNCH:
        return launch_go(&c->launch);
    case WORK_READ:
        move_rows(c->host, memory_of(c->from, &from)->at + from, &c->box);
        break;
    case WORK_WRITE:
        write_memory(c);
        break;
    case WORK_COPY:
        move_in_memory(c);
        break;
    case WORK_FILL:
        fill_memory(c);
        break;
    case WORK_MAP:
        mapping_fill(c->from, c->mapping);
        break;
    case WORK_UNMAP:
        mapping_write_back(c->to, c->mapping);
        break;
    case WORK_WAIT:
        break;
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
    for (struct command *k = q->first; k != c;) { /* barriers before it */
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
        mapping_write_back(c->to, c->mapping); /* which frees it */
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
    if (c->order.number > queues.done[c->order.queue])
        queues.done[c->order.queue] = c->order.number;
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
    queues.n--;
    queues.is_taken[q->number] = false;
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
        return misuse(INVALID_QUEUE_PROPERTIES, "properties 0x%llx",
                      (unsigned long long)properties);
    struct queue *q = object_create(KIND_QUEUE, sizeof *q, end_queue);
    if (!q)
        return OUT_OF_HOST_MEMORY;
    q->context = c;
    q->properties = properties;
    while (q->number + 1 < MAX_QUEUES && queues.is_taken[q->number])
        q->number++;
    queues.is_taken[q->number] = true;
    queues.n++;
    object_hold(&c->o);
    *made = q;
    return SUCCESS;
}

struct command *command_create(void *queue, enum work work, uint32_t nwait, void *const *wait,
                               int32_t *status)
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

int32_t command_submit(struct queue *q, struct command *c, int32_t status, bool blocks,
                       void **event)
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
    order_command(q, c);
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

/* ----------------------------------------------------------------------------- waiting, queries */

static int32_t wait_point(void *queue, bool is_barrier, uint32_t nwait, void *const *wait,
                          void **event)
{
    int32_t status;
    struct command *c = command_create(queue, WORK_WAIT, nwait, wait, &status);
    if (c)
        c->is_barrier = is_barrier || nwait == 0;
    return command_submit(queue, c, status, false, event);
}

API int32_t clEnqueueMarkerWithWaitList(void *queue, uint32_t nwait, void *const *wait,
                                        void **event);
int32_t clEnqueueMarkerWithWaitList(void *queue, uint32_t nwait, void *const *wait, void **event)
{
    int32_t status = enter(CALL_clEnqueueMarkerWithWaitList);
    if (status == SUCCESS)
        status = wait_point(queue, false, nwait, wait, event);
    return leave(CALL_clEnqueueMarkerWithWaitList, status);
}

API int32_t clEnqueueBarrierWithWaitList(void *queue, uint32_t nwait, void *const *wait,
                                         void **event);
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
    const int32_t done = finish(queue); /* a wait that fails has waited */
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

API void *clCreateCommandQueueWithProperties(void *context, void *device,
                                             const uint64_t *properties, int32_t *error);
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
    case CONTEXT:
        return answer(&q->context, sizeof q->context, size, to, need);
    case DEVICE:
        return answer(&device, sizeof device, size, to, need);
    case REFERENCES:
        return answer_number((uint64_t)q->o.references, 4, size, to, need);
    case PROPERTIES:
        return answer_number(q->properties, 8, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
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
    case QUEUE:
        return answer(&e->queue, sizeof e->queue, size, to, need);
    case TYPE:
        return answer_number(0x11f0, 4, size, to, need);
    case REFERENCES:
        return answer_number((uint64_t)e->o.references, 4, size, to, need);
    case STATUS:
        if (e->command)
            run_command(e->queue, e->command);
        return answer(&status, sizeof status, size, to, need);
    case CONTEXT:
        return answer(&e->context, sizeof e->context, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
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

API int32_t clGetEventProfilingInfo(void *event, uint32_t what, size_t size, void *to,
                                    size_t *need);
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
        status = misuse(e ? INVALID_OPERATION : INVALID_EVENT,
                        "no event of the host's that is to be set");
    else if (e)
        e->status = value;
    return leave(CALL_clSetUserEventStatus, status);
}
