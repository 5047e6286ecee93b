/* SPDX-License-Identifier: 0BSD */
/* commands.c - queues, command buffers, encoders. What is committed runs when somebody waits for
 * it, so that a host that reads results too early sees none.
 */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_ENQUEUED = 0, COMMITTED = 2, COMPLETED = 4, FAILED = 5 };
enum { MAX_SETS = 4 };

struct dispatch {
    struct dispatch *next;
    struct kernel_of *kernel;
    struct buffer *arguments; /* from byte `at` on: they are read when it runs */
    size_t at;
    struct use use[MAX_USED]; /* what the encoder was told of */
    int nuse;
    struct size groups, block;
};
struct queue {
    struct object o;
    struct object *device;
    struct commands *first; /* committed, which have not run */
    struct object *resident[MAX_SETS];
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
    struct buffer *arguments;
    size_t at;
    struct use use[MAX_USED];
    int nuse;
};

/* --------------------------------------------------------------------------------------- queues */

static void end_queue(struct object *o)
{
    struct queue *q = (struct queue *)o;
    for (int i = 0; i < MAX_SETS; i++)
        object_release(q->resident[i]);
    object_release(q->device);
}

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

/* The set, or NULL, becomes another one of the queue's, or NULL. */
static void change_set(struct queue *q, struct object *from, struct object *to, const char *what)
{
    for (int i = 0; i < MAX_SETS; i++)
        if (q->resident[i] == from) {
            q->resident[i] = object_retain(to);
            object_release(from);
            return;
        }
    misuse(0, "%s", what);
}
void queue_resident(void *self, void *selector, void *set)
{
    (void)selector;
    if (object_is(set, KIND_RESIDENT))
        change_set(self, NULL, set, "a queue of more sets than the emulator has");
}
void queue_not_resident(void *self, void *selector, void *set)
{
    (void)selector;
    if (object_is(set, KIND_RESIDENT))
        change_set(self, set, NULL, "the set is none of the queue's");
}

static void end_uses(struct use *use, int n)
{
    for (int i = 0; i < n; i++)
        object_release(use[i].buffer);
}

static void end_commands(struct object *o)
{
    struct commands *c = (struct commands *)o;
    for (struct dispatch *d = c->first, *next; d; d = next) {
        next = d->next;
        end_uses(d->use, d->nuse);
        object_release(d->arguments);
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

/* ------------------------------------------------------------------------------------- encoders */

static void end_encoder(struct object *o)
{
    struct encoder *e = (struct encoder *)o;
    if (e->commands)
        misuse(0, "an encoder is released that has not ended");
    object_release(e->kernel);
    object_release(e->arguments);
    end_uses(e->use, e->nuse);
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
    if (slot != 0 || offset >= b->memory.nbytes || offset % 32 != 0) {
        misuse(
            0,
            "slot %zu, byte %zu of %zu: the emulator's kernels have an argument buffer in slot 0",
            slot, offset, b->memory.nbytes);
        return;
    }
    object_retain(b);
    object_release(e->arguments);
    e->arguments = b;
    e->at = offset;
}

void encoder_use(void *self, void *selector, void *const *buffer, size_t n, size_t usage)
{
    struct encoder *e = self;
    (void)selector;
    if (!goes_on(e))
        return;
    for (size_t i = 0; i < n; i++) {
        if (!object_is(buffer[i], KIND_BUFFER))
            return;
        if (e->nuse == MAX_USED || usage == 0 || usage > 3) {
            misuse(0, "usage %zu, of more than %d buffers", usage, e->nuse);
            return;
        }
        e->use[e->nuse++] = (struct use){object_retain(buffer[i]), usage};
    }
}

void encoder_dispatch(void *self, void *selector, struct size groups, struct size block)
{
    struct encoder *e = self;
    const size_t threads = block.width * block.height * block.depth,
                 all = groups.width * groups.height * groups.depth;
    (void)selector;
    if (!goes_on(e))
        return;
    if (!e->kernel) {
        misuse(0, "no pipeline state is set");
        return;
    }
    const size_t bound = e->kernel->code->signature.bound;
    if (threads == 0 || all == 0 || threads > (size_t)device_facts()->group ||
        (bound && threads > bound)) {
        misuse(0, "%s: %zu threadgroups of %zu threads", e->kernel->code->signature.name, all,
               threads);
        return;
    }
    struct dispatch *d = e->arguments ? calloc(1, sizeof *d) : NULL;
    if (!d) {
        misuse(0, "%s: no arguments", e->kernel->code->signature.name);
        return;
    }
    *d = (struct dispatch){.kernel = object_retain(e->kernel),
                           .arguments = object_retain(e->arguments),
                           .at = e->at,
                           .nuse = e->nuse,
                           .groups = groups,
                           .block = block};
    memcpy(d->use, e->use, sizeof d->use);
    for (int i = 0; i < d->nuse; i++)
        object_retain(d->use[i].buffer);
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

/* ------------------------------------------------------------------------------------- launches */

static struct window *add_window(struct launch *l, const struct memory *m, size_t from,
                                 size_t nbytes, const char *name)
{
    struct window *w = &l->window[l->nwindow++];
    *w = (struct window){.memory = (struct memory *)m, .from = from, .to = from + nbytes};
    snprintf(w->name, sizeof w->name, "%s", name);
    return w;
}

/* Whether the kernel reaches the buffer: the encoder was told of it, or it is in a set of
 * the queue's; and whether what it stores is in order with other encoders, which is by
 * the encoder alone. */
static bool check_use(const struct queue *q, const struct dispatch *d, const struct parameter *a,
                      const struct buffer *b)
{
    size_t how = 0;
    bool is_there = false;
    for (int i = 0; i < d->nuse; i++)
        if (d->use[i].buffer == b)
            how |= d->use[i].how;
    for (int i = 0; i < MAX_SETS; i++)
        is_there |= q->resident[i] && resident_has(q->resident[i], b);
    if (how & (a->is_const ? 1 : 2))
        return true;
    if (how || is_there)
        report("%s: '%s' is in a buffer that the encoder was not told to be %s",
               d->kernel->code->signature.name, a->name, a->is_const ? "read" : "written");
    else
        report("%s: '%s' is in a buffer that is not resident", d->kernel->code->signature.name,
               a->name);
    return false;
}

/* A parameter that points to memory has a window there: the tensor, if the text says how long it
 * is. */
static void pass_buffer(struct launch *l, const struct dispatch *d, const struct entry *entry,
                        int i)
{
    const struct signature *signature = &d->kernel->code->signature;
    const struct parameter *a = &signature->parameter[i];
    const struct memory *m = &entry[i].buffer->memory;
    struct launch_values v = {.signature = signature, .items = d->groups.width * d->block.width,
                              .threads = d->block.width, .is_pointer = true};
    for (int k = 0; k < signature->n; k++)
        v.value[k] = entry[k].buffer ? NULL : (const unsigned char *)&entry[k].value;
    const size_t room = m->nbytes - (size_t)entry[i].value;
    size_t begin = 0, nbytes = room;
    if (tensor_extent(&v, i, &begin, &nbytes) && nbytes > room)
        report("%s: '%s' has %zu bytes where the buffer ends after %zu", signature->name, a->name,
               nbytes, room);
    add_window(l, m, (size_t)entry[i].value, nbytes, a->name)->is_writable = !a->is_const;
}

/* The structure that the kernel reads, of addresses and numbers. */
static bool pass_structure(struct launch *l, struct memory *m, const struct dispatch *d,
                           const struct entry *entry, uint64_t *field)
{
    const struct signature *s = &d->kernel->code->signature;
    for (int i = 0; i < s->n; i++)
        field[i] = entry[i].buffer ? (uintptr_t)entry[i].buffer->memory.at + entry[i].value
                                   : entry[i].value;
    if (!memory_create(m, field, (size_t)s->n * sizeof *field))
        return false;
    memset(m->known, 1, m->nbytes);
    add_window(l, m, 0, m->nbytes, "arguments");
    return true;
}

static void pass_local(struct launch *l, const struct local_array *a)
{
    struct window *w = add_window(l, a->memory, 0, a->memory->nbytes, a->name);
    w->in_shared = w->is_writable = true;
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

static bool run_dispatch(const struct queue *q, const struct dispatch *d)
{
    const struct signature *signature = &d->kernel->code->signature;
    const struct module *m = d->kernel->library->module;
    const struct entry *entry = arguments_of(d->arguments, d->at, d->kernel->code);
    struct memory structure = {NULL};
    uint64_t field[MAX_PARAMETERS];
    void *argument[] = {field};
    struct launch *l = entry ? calloc(1, sizeof *l) : NULL;
    bool done = l && pass_structure(l, &structure, d, entry, field);
    for (int i = 0; i < signature->n && done; i++)
        if (entry[i].buffer) {
            done = check_use(q, d, &signature->parameter[i], entry[i].buffer);
            pass_buffer(l, d, entry, i);
        }
    for (int i = 0; i < m->nlocal && done && l->nwindow < MAX_WINDOWS; i++)
        if (strcmp(m->local[i].kernel, signature->name) == 0)
            pass_local(l, &m->local[i]);
    if (done) {
        prepare(l, d, argument);
        done = launch_run(l);
    }
    if (structure.at)
        memory_release(&structure);
    free(l);
    return done;
}

/* ------------------------------------------------------------------------------ command buffers */

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
        done = run_dispatch(q, d);
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
