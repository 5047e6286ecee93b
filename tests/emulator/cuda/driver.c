/* SPDX-License-Identifier: 0BSD */
/* driver.c - a libcuda.so.1 for tests: objects; streams, memory, events. A stream's commands run
 * when somebody waits for them, so that a host that takes its memory back too early is seen.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    const char *name;
    int32_t failure;
} calls[] = {
#define NAME(name) #name
#define CALL(name, failure) {NAME(name), failure},
#include "calls.def"
#undef CALL
#undef NAME
};
static const char *const kinds[] = {"context", "stream", "memory",           "pinned memory",
                                    "module",  "graph",  "executable graph", "event"};

static struct {
    bool is_begun;
    struct object *live;
    unsigned number[KIND_EVENT + 1];
    size_t allocated; /* bytes of memory, of all contexts */
} driver;

/* ---------------------------------------------------------------------------------------- calls */

int32_t enter(enum call call)
{
    call_enter(calls[call].name);
    if (!driver.is_begun && call != CALL_cuInit && call != CALL_cuDriverGetVersion &&
        !own_is_early(call))
        return misuse(NOT_INITIALIZED, "the driver's init was not called");
    return call_count(calls[call].failure, calls[call].failure);
}

int32_t leave(enum call call, int32_t status) { return call_leave(calls[call].name, status); }

int32_t in_context(enum call call)
{
    const int32_t status = enter(call);
    const struct context *c = context_now();
    if (status != SUCCESS)
        return status;
    if (!c)
        return misuse(INVALID_CONTEXT, "the thread has no context");
    return c->is_lost && calls[call].failure ? ILLEGAL_ADDRESS : SUCCESS;
}

/* -------------------------------------------------------------------------------------- objects */

void *object_create(enum kind kind, size_t size, void (*end)(struct object *))
{
    struct object *o = calloc(1, size);
    if (!o)
        return NULL;
    *o = (struct object){kind, driver.live, context_now(), end, ++driver.number[kind]};
    driver.live = o;
    return o;
}

void *object_find(const void *handle, enum kind kind)
{
    struct object *o = driver.live;
    while (o && o != handle)
        o = o->next;
    if (!o || o->kind != kind) {
        misuse(0, "%p is no %s", handle, kinds[kind]);
        return NULL;
    }
    if (kind != KIND_CONTEXT && context_now() && o->context != context_now()) {
        misuse(0, "%s %u is another context's than the thread's", kinds[kind], o->number);
        return NULL;
    }
    return o;
}

struct object *objects_live(void) { return driver.live; }

void object_end(struct object *o)
{
    struct object **at = &driver.live;
    while (*at && *at != o)
        at = &(*at)->next;
    if (*at)
        *at = o->next;
    if (o->end)
        o->end(o);
    free(o);
}

/* What is not released now. */
API int emulator_live(void);
int emulator_live(void)
{
    int n = 0;
    for (struct object *o = driver.live; o; o = o->next)
        n++;
    return n;
}

__attribute__((destructor)) static void end(void)
{
    for (struct object *o = driver.live; o; o = o->next)
        report("%s %u is not released", kinds[o->kind], o->number);
}

int32_t object_destroy(enum call call, void *handle, enum kind kind)
{
    int32_t status = in_context(call);
    struct object *o = status == SUCCESS ? object_find(handle, kind) : NULL;
    if (o)
        object_end(o);
    return leave(call, status != SUCCESS ? status : o ? SUCCESS : INVALID_HANDLE);
}

/* ------------------------------------------------------------------------------------- devices */

API int32_t cuInit(unsigned flags);
int32_t cuInit(unsigned flags)
{
    int32_t status = enter(CALL_cuInit);
    if (status == SUCCESS && flags)
        status = misuse(INVALID_VALUE, "flags are 0");
    driver.is_begun |= status == SUCCESS;
    return leave(CALL_cuInit, status);
}

API int32_t cuDriverGetVersion(int *version);
int32_t cuDriverGetVersion(int *version)
{
    const int32_t status = enter(CALL_cuDriverGetVersion);
    *version = (int)device_facts()->driver;
    return leave(CALL_cuDriverGetVersion, status);
}

API int32_t cuDeviceGetName(char *name, int size, int device);
int32_t cuDeviceGetName(char *name, int size, int device)
{
    const int32_t status = enter(CALL_cuDeviceGetName);
    (void)device;
    snprintf(name, (size_t)size, "%s", device_facts()->name);
    return leave(CALL_cuDeviceGetName, status);
}

API int32_t cuDeviceTotalMem_v2(size_t *nbytes, int device);
int32_t cuDeviceTotalMem_v2(size_t *nbytes, int device)
{
    const int32_t status = enter(CALL_cuDeviceTotalMem_v2);
    (void)device;
    *nbytes = (size_t)device_facts()->memory;
    return leave(CALL_cuDeviceTotalMem_v2, status);
}

/* --------------------------------------------------------------------------------------- memory */

static void end_memory(struct object *o)
{
    struct device_memory *m = (struct device_memory *)o;
    driver.allocated -= m->memory.nbytes;
    munmap(m->memory.at, m->memory.nbytes);
    memory_release(&m->memory);
}

struct device_memory *memory_find(uint64_t at)
{
    for (struct object *o = driver.live; o; o = o->next) {
        struct device_memory *m = (struct device_memory *)o;
        if (o->kind == KIND_MEMORY && at - (uintptr_t)m->memory.at < m->memory.nbytes)
            return m;
    }
    return NULL;
}

static size_t left_bytes(void)
{
    const size_t all = (size_t)device_facts()->memory;
    return all > driver.allocated ? all - driver.allocated : 0;
}

/* How many are open; the pages of all memory follow. */
static int opened;

static void protect_all(int how)
{
    for (struct object *o = driver.live; o; o = o->next)
        if (o->kind == KIND_MEMORY)
            mprotect(((struct device_memory *)o)->memory.at,
                     ((struct device_memory *)o)->memory.nbytes, how);
}

void memory_open(void)
{
    if (opened++ == 0)
        protect_all(PROT_READ | PROT_WRITE);
}

void memory_close(void)
{
    if (--opened == 0)
        protect_all(PROT_NONE);
}

/* What the device's memory holds now, as a test looks at it: no call of the driver's,
 * nothing is waited for. */
API void emulator_peek(void *to, const void *from, size_t nbytes);
void emulator_peek(void *to, const void *from, size_t nbytes)
{
    memory_open();
    memcpy(to, from, nbytes);
    memory_close();
}

/* An access of the host's to the device's memory is reported, and then goes on. */
static struct sigaction before;

static void fault(int number, siginfo_t *info, void *context)
{
    const struct device_memory *m = memory_find((uintptr_t)info->si_addr);
    if (m && opened == 0) {
        report("the host accesses byte %zu of memory %u, which is the device's",
               (size_t)((unsigned char *)info->si_addr - m->memory.at), m->o.number);
        memory_open();
    } else if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else
        signal(number, SIG_DFL);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = fault;
    a.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &a, &before);
}

/* Bytes that nobody has written are no zeros. */
static int32_t allocate(uint64_t *at, size_t nbytes)
{
    *at = 0;
    if (nbytes == 0)
        return misuse(INVALID_VALUE, "no bytes");
    if (nbytes > left_bytes())
        return OUT_OF_MEMORY;
    struct device_memory *m = object_create(KIND_MEMORY, sizeof *m, end_memory);
    unsigned char *bytes = mmap(NULL, nbytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!m || bytes == MAP_FAILED || !memory_create(&m->memory, bytes, nbytes))
        return OUT_OF_MEMORY;
    driver.allocated += nbytes;
    memset(bytes, 0xa5, nbytes < 1 << 24 ? nbytes : 1 << 24);
    if (opened == 0)
        mprotect(bytes, nbytes, PROT_NONE);
    *at = (uintptr_t)bytes;
    return SUCCESS;
}

API int32_t cuMemAlloc_v2(uint64_t *at, size_t nbytes);
int32_t cuMemAlloc_v2(uint64_t *at, size_t nbytes)
{
    int32_t status = in_context(CALL_cuMemAlloc_v2);
    *at = 0;
    if (status == SUCCESS)
        status = allocate(at, nbytes);
    return leave(CALL_cuMemAlloc_v2, status);
}

/* Of the host, where copies of any stream may be under way. */
struct pinned_memory { struct object o; void *at; };

static void end_pinned(struct object *o) { free(((struct pinned_memory *)o)->at); }

API int32_t cuMemHostAlloc(void **at, size_t nbytes, unsigned flags);
int32_t cuMemHostAlloc(void **at, size_t nbytes, unsigned flags)
{
    int32_t status = in_context(CALL_cuMemHostAlloc);
    *at = NULL;
    if (status == SUCCESS && (nbytes == 0 || flags))
        status = misuse(INVALID_VALUE, "%zu bytes, flags %u", nbytes, flags);
    struct pinned_memory *m =
        status == SUCCESS ? object_create(KIND_PINNED, sizeof *m, end_pinned) : NULL;
    if (m)
        m->at = *at = malloc(nbytes);
    return leave(CALL_cuMemHostAlloc, m || status != SUCCESS ? status : OUT_OF_MEMORY);
}

API int32_t cuMemFreeHost(void *at);
int32_t cuMemFreeHost(void *at)
{
    int32_t status = in_context(CALL_cuMemFreeHost);
    struct object *o = driver.live;
    while (o && (o->kind != KIND_PINNED || ((struct pinned_memory *)o)->at != at))
        o = o->next;
    if (status == SUCCESS && !o)
        status = misuse(INVALID_VALUE, "%p is not what was allocated", at);
    if (status == SUCCESS)
        object_end(o);
    return leave(CALL_cuMemFreeHost, status);
}

API int32_t cuMemFree_v2(uint64_t at);
int32_t cuMemFree_v2(uint64_t at)
{
    int32_t status = in_context(CALL_cuMemFree_v2);
    struct device_memory *m = memory_find(at);
    if (status == SUCCESS && (!m || (uintptr_t)m->memory.at != at))
        status = misuse(INVALID_VALUE, "0x%llx is not what was allocated", (unsigned long long)at);
    if (status == SUCCESS)
        object_end(&m->o);
    return leave(CALL_cuMemFree_v2, status);
}

API int32_t cuMemGetInfo_v2(size_t *left, size_t *all);
int32_t cuMemGetInfo_v2(size_t *left, size_t *all)
{
    const int32_t status = in_context(CALL_cuMemGetInfo_v2);
    *all = (size_t)device_facts()->memory;
    *left = left_bytes();
    return leave(CALL_cuMemGetInfo_v2, status);
}

API int32_t cuMemGetAddressRange_v2(uint64_t *from, size_t *nbytes, uint64_t at);
int32_t cuMemGetAddressRange_v2(uint64_t *from, size_t *nbytes, uint64_t at)
{
    int32_t status = in_context(CALL_cuMemGetAddressRange_v2);
    const struct device_memory *m = memory_find(at);
    if (status == SUCCESS && !m)
        status = NOT_FOUND;
    if (status == SUCCESS) {
        *from = (uintptr_t)m->memory.at;
        *nbytes = m->memory.nbytes;
    }
    return leave(CALL_cuMemGetAddressRange_v2, status);
}

/* -------------------------------------------------------------------------------------- streams */

static void end_stream(struct object *o)
{
    struct stream *s = (struct stream *)o;
    if (s->first)
        misuse(0, "stream %u ends before its commands have run", o->number);
    for (struct command *c = s->first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    if (s->captured)
        misuse(0, "stream %u ends while it captures", o->number);
}

int32_t stream_check(struct stream *s)
{
    if (!s->captured)
        return SUCCESS;
    s->is_broken = true;
    return misuse(CAPTURE_UNSUPPORTED, "stream %u captures, which this ends", s->o.number);
}

static int32_t check_range(uint64_t at, size_t nbytes)
{
    const struct device_memory *m = memory_find(at);
    if (!m || nbytes > m->memory.nbytes - (size_t)(at - (uintptr_t)m->memory.at))
        return misuse(INVALID_VALUE, "%zu bytes at 0x%llx are not within what was allocated",
                      nbytes, (unsigned long long)at);
    return SUCCESS;
}

bool stream_is_eager(const void *stream) { return (uintptr_t)stream <= 2; }

/* Runs the first `count` commands that the stream was ever given. */
static int32_t drain_until(struct stream *s, size_t count);
static bool run(const struct command *c);

int32_t stream_add(void *handle, const struct command *c)
{
    if (stream_is_eager(handle))
        return run(c) ? SUCCESS : LAUNCH_FAILED;
    struct stream *s = object_find(handle, KIND_STREAM);
    if (!s)
        return INVALID_HANDLE;
    if (s->captured)
        return s->is_broken                   ? CAPTURE_INVALIDATED
               : graph_append(s->captured, c) ? SUCCESS
                                              : OUT_OF_MEMORY;
    struct command *copy = malloc(sizeof *copy);
    if (!copy)
        return OUT_OF_MEMORY;
    *copy = *c;
    copy->next = NULL;
    *(s->first ? &s->last->next : &s->first) = copy;
    s->last = copy;
    s->added++;
    return SUCCESS;
}

/* Runs what another stream had when an event was recorded there, if it is still there. */
static bool run_before(const struct command *c)
{
    struct object *o = driver.live;
    while (o && (void *)o != c->host)
        o = o->next;
    return !o || o->kind != KIND_STREAM || drain_until((struct stream *)o, c->nbytes) == SUCCESS;
}

static bool work(const struct command *c)
{
    if (c->work == WORK_LAUNCH)
        return launch_go(&c->launch);
    if (c->work == WORK_EVENT)
        return true;
    if (c->work == WORK_WAIT)
        return run_before(c);
    const struct device_memory *m = memory_find(c->at);
    if (!m)
        return misuse(0, "a copy's memory was freed before it has run"), false;
    void *at = (void *)(uintptr_t)c->at;
    if (c->work == WORK_READ)
        memcpy(c->host, at, c->nbytes);
    else {
        memcpy(at, c->host, c->nbytes);
        memset(m->memory.known + ((unsigned char *)at - m->memory.at), 1, c->nbytes);
    }
    return true;
}

static bool run(const struct command *c)
{
    memory_open();
    const bool done = work(c);
    memory_close();
    return done;
}

/* Runs the stream's commands up to this number of them. */
static int32_t drain_until(struct stream *s, size_t count)
{
    while (s->first && s->done < count) {
        struct command *c = s->first;
        s->first = c->next;
        s->done++;
        if (!s->o.context->is_lost && !device_is_lost() && !run(c))
            s->o.context->is_lost = true;
        free(c);
    }
    return s->o.context->is_lost ? ILLEGAL_ADDRESS : SUCCESS;
}

/* Runs all that the stream has. */
static int32_t drain(struct stream *s) { return drain_until(s, SIZE_MAX); }

API int32_t cuStreamCreate(void **stream, unsigned flags);
int32_t cuStreamCreate(void **stream, unsigned flags)
{
    int32_t status = in_context(CALL_cuStreamCreate);
    struct stream *s = status == SUCCESS ? object_create(KIND_STREAM, sizeof *s, end_stream) : NULL;
    *stream = s;
    (void)flags;
    return leave(CALL_cuStreamCreate, s || status != SUCCESS ? status : OUT_OF_MEMORY);
}

API int32_t cuStreamDestroy_v2(void *stream);
int32_t cuStreamDestroy_v2(void *stream)
{
    return object_destroy(CALL_cuStreamDestroy_v2, stream, KIND_STREAM);
}

API int32_t cuStreamSynchronize(void *stream);
int32_t cuStreamSynchronize(void *stream)
{
    int32_t status = in_context(CALL_cuStreamSynchronize);
    struct stream *s = stream_is_eager(stream) ? NULL : object_find(stream, KIND_STREAM);
    const int32_t captures = s ? stream_check(s) : SUCCESS;
    const int32_t done = captures != SUCCESS       ? captures
                         : s                       ? drain(s)
                         : stream_is_eager(stream) ? SUCCESS
                                                   : INVALID_HANDLE;
    return leave(CALL_cuStreamSynchronize, status != SUCCESS ? status : done);
}

API int32_t cuStreamBeginCapture_v2(void *stream, int mode);
int32_t cuStreamBeginCapture_v2(void *stream, int mode)
{
    int32_t status = in_context(CALL_cuStreamBeginCapture_v2);
    struct stream *s = status == SUCCESS ? object_find(stream, KIND_STREAM) : NULL;
    if (status == SUCCESS && (!s || s->captured || mode < 0 || mode > 2))
        status = misuse(INVALID_VALUE, "no stream, one that captures already, or mode %d", mode);
    if (status == SUCCESS && !(s->captured = graph_create()))
        status = OUT_OF_MEMORY;
    return leave(CALL_cuStreamBeginCapture_v2, status);
}

API int32_t cuStreamEndCapture(void *stream, void **graph);
int32_t cuStreamEndCapture(void *stream, void **graph)
{
    int32_t status = in_context(CALL_cuStreamEndCapture);
    struct stream *s = status == SUCCESS ? object_find(stream, KIND_STREAM) : NULL;
    *graph = NULL;
    if (status == SUCCESS && (!s || !s->captured))
        status = misuse(INVALID_VALUE, "the stream does not capture");
    if (status == SUCCESS && s->is_broken) {
        object_end((struct object *)(void *)s->captured);
        status = CAPTURE_INVALIDATED;
    } else if (status == SUCCESS)
        *graph = s->captured;
    if (s) {
        s->captured = NULL;
        s->is_broken = false;
    }
    return leave(CALL_cuStreamEndCapture, status);
}

API int32_t cuStreamIsCapturing(void *stream, int *state);
int32_t cuStreamIsCapturing(void *stream, int *state)
{
    int32_t status = in_context(CALL_cuStreamIsCapturing);
    const struct stream *s =
        status == SUCCESS && !stream_is_eager(stream) ? object_find(stream, KIND_STREAM) : NULL;
    if (status == SUCCESS && !s && !stream_is_eager(stream))
        status = INVALID_HANDLE;
    *state = !s || !s->captured ? 0 : s->is_broken ? 2 : 1;
    return leave(CALL_cuStreamIsCapturing, status);
}

static int32_t copy(enum call call, enum work work, uint64_t at, void *host, size_t nbytes,
                    void *stream)
{
    const struct command c = {.work = work, .at = at, .host = host, .nbytes = nbytes};
    int32_t status = in_context(call);
    if (status == SUCCESS)
        status = check_range(at, nbytes);
    if (status == SUCCESS && stream)
        status = stream_add(stream, &c);
    else if (status == SUCCESS && !run(&c))
        status = LAUNCH_FAILED;
    return leave(call, status);
}

API int32_t cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t nbytes, void *stream);
int32_t cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t nbytes, void *stream)
{
    return copy(CALL_cuMemcpyHtoDAsync_v2, WORK_WRITE, to, (void *)(uintptr_t)from, nbytes, stream);
}

API int32_t cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t nbytes, void *stream);
int32_t cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t nbytes, void *stream)
{
    return copy(CALL_cuMemcpyDtoHAsync_v2, WORK_READ, from, to, nbytes, stream);
}

API int32_t cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t nbytes);
int32_t cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t nbytes)
{
    return copy(CALL_cuMemcpyHtoD_v2, WORK_WRITE, to, (void *)(uintptr_t)from, nbytes, NULL);
}

API int32_t cuMemcpyDtoH_v2(void *to, uint64_t from, size_t nbytes);
int32_t cuMemcpyDtoH_v2(void *to, uint64_t from, size_t nbytes)
{
    return copy(CALL_cuMemcpyDtoH_v2, WORK_READ, from, to, nbytes, NULL);
}

/* --------------------------------------------------------------------------------------- events */

struct event {
    struct object o;
    bool has_time;
    bool is_done;          /* recorded in a stream whose commands run at once */
    struct stream *stream; /* where it was recorded */
    size_t number;         /* of the command there */
};

API int32_t cuEventCreate(void **event, unsigned flags);
int32_t cuEventCreate(void **event, unsigned flags)
{
    enum { NO_TIMING = 2 };
    int32_t status = in_context(CALL_cuEventCreate);
    struct event *e = status == SUCCESS ? object_create(KIND_EVENT, sizeof *e, NULL) : NULL;
    if (e)
        e->has_time = !(flags & NO_TIMING);
    *event = e;
    return leave(CALL_cuEventCreate, e || status != SUCCESS ? status : OUT_OF_MEMORY);
}

API int32_t cuEventRecord(void *event, void *stream);
int32_t cuEventRecord(void *event, void *stream)
{
    int32_t status = in_context(CALL_cuEventRecord);
    struct event *e = status == SUCCESS ? object_find(event, KIND_EVENT) : NULL;
    if (status == SUCCESS)
        status = e ? stream_add(stream, &(struct command){.work = WORK_EVENT}) : INVALID_HANDLE;
    if (status == SUCCESS) {
        e->is_done = stream_is_eager(stream);
        e->stream = e->is_done ? NULL : stream;
        e->number = e->stream ? e->stream->added : 0;
    }
    return leave(CALL_cuEventRecord, status);
}

/* What comes next in the stream waits for the event as it is recorded now. */
API int32_t cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int32_t cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    int32_t status = in_context(CALL_cuStreamWaitEvent);
    const struct event *e = status == SUCCESS ? object_find(event, KIND_EVENT) : NULL;
    if (status == SUCCESS && flags)
        status = misuse(INVALID_VALUE, "flags are 0");
    if (status == SUCCESS && !e)
        status = INVALID_HANDLE;
    if (status == SUCCESS && e->stream && e->stream != stream)
        status = stream_add(
            stream, &(struct command){.work = WORK_WAIT, .host = e->stream, .nbytes = e->number});
    return leave(CALL_cuStreamWaitEvent, status);
}

API int32_t cuEventSynchronize(void *event);
int32_t cuEventSynchronize(void *event)
{
    int32_t status = in_context(CALL_cuEventSynchronize);
    struct event *e = status == SUCCESS ? object_find(event, KIND_EVENT) : NULL;
    if (status == SUCCESS)
        status = !e ? INVALID_HANDLE : e->stream ? drain_until(e->stream, e->number) : SUCCESS;
    return leave(CALL_cuEventSynchronize, status);
}

static bool is_pending(const struct event *e) { return e->stream && e->stream->done < e->number; }

API int32_t cuEventElapsedTime(float *ms, void *from, void *to);
int32_t cuEventElapsedTime(float *ms, void *from, void *to)
{
    int32_t status = in_context(CALL_cuEventElapsedTime);
    const struct event *a = object_find(from, KIND_EVENT), *b = object_find(to, KIND_EVENT);
    *ms = 0.5f;
    if (status == SUCCESS && (!a || !b || !a->has_time || !b->has_time ||
                              !(a->is_done || a->stream) || !(b->is_done || b->stream)))
        status = misuse(INVALID_HANDLE, "an event was not recorded, or has no time");
    if (status == SUCCESS && (is_pending(a) || is_pending(b)))
        status = misuse(NOT_READY, "an event has not happened yet");
    return leave(CALL_cuEventElapsedTime, status);
}

API int32_t cuEventDestroy_v2(void *event);
int32_t cuEventDestroy_v2(void *event)
{
    return object_destroy(CALL_cuEventDestroy_v2, event, KIND_EVENT);
}
