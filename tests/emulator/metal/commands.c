/* SPDX-License-Identifier: 0BSD */
/* commands.c - queues, command buffers, encoders. What is committed runs when somebody waits for it, so
 * that a host that reads results too early sees none.
 */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 31, MOST_BYTES = 64 };
enum { NOT_ENQUEUED = 0, COMMITTED = 2, COMPLETED = 4, FAILED = 5 };

/* What a slot of the encoder's has: a buffer, or bytes. */
struct slot {
    struct buffer *buffer;
    size_t offset, nbytes;
    unsigned char bytes[MOST_BYTES];
};
struct dispatch {
    struct dispatch *next;
    struct kernel_of *kernel;
    struct slot slot[SLOTS];
    struct size groups, block;
};
struct queue {
    struct object o;
    struct object *device;
    struct commands *first; /* committed, which have not run */
};
struct commands {
    struct object o;
    struct queue *queue;
    struct commands *next;
    struct dispatch *first, **last;
    size_t status;
    bool is_encoded; /* an encoder has not ended */
};
struct encoder {
    struct object o;
    struct commands *commands; /* NULL: it has ended */
    struct kernel_of *kernel;
    struct slot slot[SLOTS];
};

/* ---------------------------------------------------------------------------------------- queues */

static void end_queue(struct object *o) { object_release(((struct queue *)o)->device); }

void *device_queue(void *self, void *selector)
{
    struct queue *q = object_create(KIND_QUEUE, sizeof *q, end_queue);
    (void)selector;
    if (q)
        q->device = object_retain(self);
    return q;
}
void *queue_device(void *self, void *selector)
{
    (void)selector;
    return ((struct queue *)self)->device;
}

static void end_slots(struct slot *slot)
{
    for (int i = 0; i < SLOTS; i++)
        object_release(slot[i].buffer);
}

static void end_commands(struct object *o)
{
    struct commands *c = (struct commands *)o;
    for (struct dispatch *d = c->first, *next; d; d = next) {
        next = d->next;
        end_slots(d->slot);
        object_release(d->kernel);
        free(d);
    }
    object_release(c->queue);
}

void *queue_commands(void *self, void *selector)
{
    struct commands *c = object_create(KIND_COMMANDS, sizeof *c, end_commands);
    (void)selector;
    if (c) {
        c->queue = object_retain(self);
        c->last = &c->first;
    }
    return object_pool(c);
}

/* -------------------------------------------------------------------------------------- encoders */

static void end_encoder(struct object *o)
{
    struct encoder *e = (struct encoder *)o;
    if (e->commands)
        misuse(0, "an encoder is released that has not ended");
    object_release(e->kernel);
    end_slots(e->slot);
}

void *commands_encoder(void *self, void *selector)
{
    struct commands *c = self;
    (void)selector;
    if (c->is_encoded || c->status != NOT_ENQUEUED) {
        misuse(0, "the command buffer has an encoder that has not ended, or it was committed");
        return NULL;
    }
    struct encoder *e = object_create(KIND_ENCODER, sizeof *e, end_encoder);
    if (e) {
        e->commands = c;
        c->is_encoded = true;
    }
    return object_pool(e);
}

/* Whether the encoder takes more. */
static bool goes_on(const struct encoder *e)
{
    if (!e->commands)
        misuse(0, "the encoder has ended");
    return e->commands != NULL;
}

void encoder_kernel(void *self, void *selector, void *kernel)
{
    struct encoder *e = self;
    (void)selector;
    if (!goes_on(e) || !object_is(kernel, KIND_KERNEL))
        return;
    object_retain(kernel);
    object_release(e->kernel);
    e->kernel = kernel;
}

void encoder_buffer(void *self, void *selector, void *buffer, size_t offset, size_t slot)
{
    struct encoder *e = self;
    struct buffer *b = buffer;
    (void)selector;
    if (!goes_on(e) || !object_is(buffer, KIND_BUFFER))
        return;
    if (slot >= SLOTS || offset >= b->memory.nbytes) {
        misuse(0, "slot %zu of %d, byte %zu of %zu", slot, SLOTS, offset, b->memory.nbytes);
        return;
    }
    object_retain(b);
    object_release(e->slot[slot].buffer);
    e->slot[slot] = (struct slot){.buffer = b, .offset = offset};
}

void encoder_bytes(void *self, void *selector, const void *bytes, size_t nbytes, size_t slot)
{
    struct encoder *e = self;
    (void)selector;
    if (!goes_on(e))
        return;
    if (slot >= SLOTS || nbytes == 0 || nbytes > MOST_BYTES) {
        misuse(0, "slot %zu of %d, %zu bytes", slot, SLOTS, nbytes);
        return;
    }
    object_release(e->slot[slot].buffer);
    e->slot[slot] = (struct slot){.nbytes = nbytes};
    memcpy(e->slot[slot].bytes, bytes, nbytes);
}

/* Whether the slots have what the kernel's parameters need. */
static bool check_slots(const struct encoder *e)
{
    const struct kernel_code *code = e->kernel->code;
    for (int i = 0; i < code->signature.n; i++) {
        const struct parameter *p = &code->signature.parameter[i];
        const struct slot *s = &e->slot[p->slot];
        if (p->kind == PARAMETER_GLOBAL ? !s->buffer : s->nbytes != code->nbytes[i]) {
            misuse(0, "%s: parameter '%s' is not set, or has %zu bytes", code->signature.name, p->name, s->nbytes);
            return false;
        }
    }
    return true;
}

void encoder_dispatch(void *self, void *selector, struct size groups, struct size block)
{
    struct encoder *e = self;
    const size_t threads = block.width * block.height * block.depth, all = groups.width * groups.height * groups.depth;
    (void)selector;
    if (!goes_on(e))
        return;
    if (!e->kernel) {
        misuse(0, "no pipeline state is set");
        return;
    }
    const size_t bound = e->kernel->code->signature.bound;
    if (threads == 0 || all == 0 || threads > (size_t)device_facts()->group || (bound && threads > bound)) {
        misuse(0, "%s: %zu threadgroups of %zu threads", e->kernel->code->signature.name, all, threads);
        return;
    }
    struct dispatch *d = check_slots(e) ? calloc(1, sizeof *d) : NULL;
    if (!d)
        return;
    *d = (struct dispatch){.kernel = object_retain(e->kernel), .groups = groups, .block = block};
    memcpy(d->slot, e->slot, sizeof d->slot);
    for (int i = 0; i < SLOTS; i++)
        object_retain(d->slot[i].buffer);
    *e->commands->last = d;
    e->commands->last = &d->next;
}

void encoder_end(void *self, void *selector)
{
    struct encoder *e = self;
    (void)selector;
    if (!goes_on(e))
        return;
    e->commands->is_encoded = false;
    e->commands = NULL;
}

/* -------------------------------------------------------------------------------------- launches */

static struct window *add_window(struct launch *l, const struct memory *m, size_t from, size_t nbytes, const char *name)
{
    struct window *w = &l->window[l->nwindow++];
    *w = (struct window){.memory = (struct memory *)m, .from = from, .to = from + nbytes};
    snprintf(w->name, sizeof w->name, "%s", name);
    return w;
}

/* A parameter that points to memory has a window there: the tensor, if the text says how long it is. */
static void pass_buffer(struct launch *l, const struct dispatch *d, int i)
{
    const struct signature *signature = &d->kernel->code->signature;
    const struct parameter *a = &signature->parameter[i];
    const struct slot *s = &d->slot[a->slot];
    struct launch_values v = {.signature = signature, .items = d->groups.width * d->block.width,
                              .threads = d->block.width, .is_pointer = true};
    for (int k = 0; k < signature->n; k++) {
        const struct slot *other = &d->slot[signature->parameter[k].slot];
        v.value[k] = other->buffer ? NULL : other->bytes;
    }
    const size_t room = s->buffer->memory.nbytes - s->offset;
    size_t begin = 0, nbytes = room;
    if (tensor_extent(&v, i, &begin, &nbytes) && nbytes > room)
        report("%s: '%s' has %zu bytes where the buffer ends after %zu", signature->name, a->name, nbytes, room);
    add_window(l, &s->buffer->memory, s->offset, nbytes, a->name)->is_writable = !a->is_const;
}

/* A number is read where it is. */
static bool pass_bytes(struct launch *l, struct memory *m, struct slot *s, const char *name)
{
    if (!memory_create(m, s->bytes, s->nbytes))
        return false;
    memset(m->known, 1, s->nbytes);
    add_window(l, m, 0, s->nbytes, name);
    return true;
}

static void pass_local(struct launch *l, const struct local_array *a)
{
    struct window *w = add_window(l, a->memory, 0, a->memory->nbytes, a->name);
    w->is_local = w->is_writable = true;
}

/* The launch, with the places of its arguments. */
static void prepare(struct launch *l, const struct dispatch *d, void *const *argument)
{
    const size_t groups[] = {d->groups.width, d->groups.height, d->groups.depth};
    const size_t block[] = {d->block.width, d->block.height, d->block.depth};
    l->module = d->kernel->library->module;
    l->kernel = d->kernel->code;
    l->argument = argument;
    l->dimensions = 3;
    for (int a = 0; a < 3; a++) {
        l->block[a] = block[a];
        l->global[a] = groups[a] * block[a];
    }
    l->nsubgroup = (uint32_t)device_facts()->subgroup;
}

static bool run_dispatch(struct dispatch *d)
{
    const struct signature *signature = &d->kernel->code->signature;
    const struct module *m = d->kernel->library->module;
    struct memory bytes[SLOTS] = {{NULL}};
    void *address[SLOTS], *argument[SLOTS];
    struct launch *l = calloc(1, sizeof *l);
    bool done = l != NULL;
    for (int i = 0; i < signature->n && done; i++) {
        struct slot *s = &d->slot[signature->parameter[i].slot];
        address[i] = s->buffer ? s->buffer->memory.at + s->offset : s->bytes;
        argument[i] = s->buffer ? (void *)&address[i] : s->bytes;
        if (s->buffer)
            pass_buffer(l, d, i);
        else
            done = pass_bytes(l, &bytes[i], s, signature->parameter[i].name);
    }
    for (int i = 0; i < m->nlocal && done && l->nwindow < MAX_WINDOWS; i++)
        if (strcmp(m->local[i].kernel, signature->name) == 0)
            pass_local(l, &m->local[i]);
    if (done) {
        prepare(l, d, argument);
        done = launch_run(l);
    }
    for (int i = 0; i < SLOTS; i++)
        if (bytes[i].at)
            memory_release(&bytes[i]);
    free(l);
    return done;
}

/* ------------------------------------------------------------------------------- command buffers */

void commands_commit(void *self, void *selector)
{
    struct commands *c = self, **at = &c->queue->first;
    (void)selector;
    if (c->is_encoded || c->status != NOT_ENQUEUED) {
        misuse(0, "the command buffer has an encoder that has not ended, or it was committed");
        return;
    }
    c->status = COMMITTED;
    while (*at)
        at = &(*at)->next;
    *at = object_retain(c);
}

/* The first of the queue's. */
static void run_commands(struct queue *q)
{
    struct commands *c = q->first;
    bool done = !device_is_lost();
    q->first = c->next;
    for (struct dispatch *d = c->first; d && done; d = d->next)
        done = run_dispatch(d);
    c->status = done ? COMPLETED : FAILED;
    object_release(c);
}

void commands_wait(void *self, void *selector)
{
    struct commands *c = self;
    (void)selector;
    if (c->status == NOT_ENQUEUED)
        misuse(0, "the command buffer was not committed: this waits for ever");
    while (c->status == COMMITTED)
        run_commands(c->queue);
}
size_t commands_status(void *self, void *selector)
{
    (void)selector;
    return ((struct commands *)self)->status;
}
void *commands_error(void *self, void *selector)
{
    (void)selector;
    return ((struct commands *)self)->status == FAILED ? error_create("the device failed") : NULL;
}

static double time_of(const struct commands *c, double time)
{
    if (c->status != COMPLETED)
        misuse(0, "the command buffer has not completed");
    return time;
}
double commands_begin(void *self, void *selector)
{
    (void)selector;
    return time_of(self, 1.0);
}
double commands_end(void *self, void *selector)
{
    (void)selector;
    return time_of(self, 1.5);
}
