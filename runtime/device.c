/* SPDX-License-Identifier: 0BSD */
/* device.c - a run on a device, whatever its driver: places of tensors, a list of launches that is
 * recorded once, copies, buffers of the caller's. The model's intermediates, states, inputs and
 * outputs are in one buffer of the device, its weights in another.
 *
 * The driver's functions are pieces of its own file (opencl.c, cuda.c), which has `struct NAME`:
 *
 *      open        device_open(), device_close()    what lives as long as the model
 *      record      record(), set_argument()         the list, and what changes of it
 *      map         map_span()                       bytes of the memory, which the host sees at device.seen[i]
 *      to_device   to_device()                      gives them back
 *      write, read write_buffer(), read_buffer()    copies, in the queue's order
 *      start       start()                          kernels of the list, by self->groups
 *      start_queued                                 the same by several queues, as turn_of[] says
 *      queue       look_at_queue()                  whether the queue captures what it is given, which runs later then
 *      end         mark(), wait_all(), check_buffer(), which finds the room of a buffer of the caller's
 *      hold        hold_buffer(), let_buffer()      a buffer of the caller's
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

//@ device_types
/* Of a place: its buffer, and the byte in it where it begins; of a buffer of the caller's the bytes from
 * there on. is_stale: kernels may have been told another one. */
struct place { void *buffer; size_t at, room; bool is_bound, is_stale; };
/* A kernel's argument: a tensor, at this byte of a place, or place < 0, a number. varies: the byte or
 * the number is told by each run. */
struct argument { int place; bool varies; size_t at; };
/* A kernel in a run: its function, its arguments in argument_of[], its work-groups and the work-items
 * of each. */
struct launch { const char *function; int first, count; size_t groups[3], block[3]; };

/* Bytes of the memory that the host needs; how: 1, it reads them; 2, it stores them, all if it does not read. */
struct span { size_t at, nbytes; int how; };

//@ device_list open record
/* A place is the model's own. */
static void reset_place(model_self *self, int place)
{
    struct place *p = &self->place[place];
    if (p->is_bound)
        let_buffer(self, p->buffer);
    p->buffer = place == 1 ? self->device.weights : self->device.memory;
    p->at = place_info[place].at;
    p->is_bound = false;
}

/* The list of a run, with the arguments that stay. */
static int begin_list(model_self *self)
{
    for (int i = 0; i < MODEL_PLACES; i++)
        reset_place(self, i);
    for (int i = 0; i < MODEL_KERNELS; i++)
        for (int d = 0; d < 3; d++)
            self->groups[i][d] = launch_of[i].groups[d];
    return record(self);
}

/* Tells all kernels where the place is. */
static bool tell_place(model_self *self, int place)
{
    bool done = true;
    for (int i = 0; i < MODEL_KERNELS && done; i++) {
        const struct argument *a = &argument_of[launch_of[i].first];
        for (int k = 0; k < launch_of[i].count && done; k++)
            done = a[k].place != place || set_argument(self, i, k, a[k].at);
    }
    self->place[place].is_stale = !done;
    return done;
}

/* Before a run: what could not be told before. */
static int renew(model_self *self)
{
    for (int i = 0; i < MODEL_PLACES; i++)
        if (self->place[i].is_stale && !tell_place(self, i))
            return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ device_host to_device map queue
/* Makes these bytes of the memory the host's, until the device goes on. */
static int to_host(model_self *self, const struct span *need, int n)
{
    int status = look_at_queue(self);
    if (status == MODEL_CAPTURING)
        complain(self, "the host reads what the device computes, which it cannot while options.queue captures");
    if (status == MODEL_OK)
        status = to_device(self);
    for (int i = 0; i < n && status == MODEL_OK; i++)
        if (!map_span(self, i, &need[i], i + 1 == n))
            status = MODEL_DEVICE_FAILED;
    return status;
}

//@ device_put to_device write
/* Copies an input to its place, unless that is the caller's buffer. */
static int put(model_self *self, int place, const void *from, size_t nbytes)
{
    const struct place *p = &self->place[place];
    if (p->is_bound && nbytes > p->room) {
        complain(self, "the caller's buffer ends before an input of this run's size does");
        return MODEL_BAD_OPTIONS;
    }
    if (p->is_bound || nbytes == 0)
        return MODEL_OK;
    if (to_device(self) != MODEL_OK || !write_buffer(self, p->buffer, p->at, nbytes, from, false))
        return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ device_get to_device read
/* Copies a result from its place, unless that is the caller's buffer. */
static int get(model_self *self, int place, void *to, size_t nbytes)
{
    const struct place *p = &self->place[place];
    if (p->is_bound || nbytes == 0)
        return MODEL_OK;
    if (to_device(self) != MODEL_OK || !read_buffer(self, p->buffer, p->at, nbytes, to))
        return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ device_vary device_list
/* Tells of the list's next start what differs from run to run: a kernel's arguments that vary, in their
 * order, and its work-groups, unless they are NULL. */
static int vary(model_self *self, int index, const uint64_t *varying, const size_t *groups)
{
    const struct launch *l = &launch_of[index];
    for (int i = 0; i < l->count && varying; i++)
        if (argument_of[l->first + i].varies && !set_argument(self, index, i, *varying++))
            return MODEL_DEVICE_FAILED;
    for (int i = 0; i < 3 && groups; i++)
        self->groups[index][i] = groups[i];
    return MODEL_OK;
}

//@ device_launch to_device start device_list
/* Kernels from .. to - 1 of the list. */
static int run_part(model_self *self, int from, int to)
{
    return to_device(self) == MODEL_OK && start(self, from, to) ? MODEL_OK : MODEL_DEVICE_FAILED;
}

//@ device_launch_queued to_device start_queued device_list
/* The same by several queues. */
static int run_part_queued(model_self *self, int from, int to)
{
    return to_device(self) == MODEL_OK && start_queued(self, from, to) ? MODEL_OK : MODEL_DEVICE_FAILED;
}

//@ device_calls end queue device_list
static int enqueue_list(model_self *self, const model_inputs *in, model_outputs *out, void **event);

/* If it fails, nothing of it goes on that touches the caller's memory; what a queue captures has not begun. */
int model_enqueue(model_self *self, const model_inputs *in, model_outputs *out, void **event)
{
    const bool is_open = self && self->opened == self;
    if (event)
        *event = NULL;
    const int queue = is_open ? look_at_queue(self) : MODEL_OK;
    if (queue == MODEL_CAPTURING && MODEL_RUNS_DIFFER) {
        complain(self, "options.queue captures, and a state's place or length differs from run to run");
        return queue;
    }
    if (queue != MODEL_OK && queue != MODEL_CAPTURING)
        return queue;
    int status = enqueue_list(self, in, out, event);
    if (status != MODEL_OK && is_open && queue == MODEL_OK)
        wait_all(self);
    return status;
}

int model_wait(model_self *self)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    const int queue = look_at_queue(self);
    return queue != MODEL_OK ? queue : wait_all(self) ? MODEL_OK : MODEL_DEVICE_FAILED;
}

int model_run(model_self *self, const model_inputs *in, model_outputs *out)
{
    const int queue = self && self->opened == self ? look_at_queue(self) : MODEL_OK;
    if (queue != MODEL_OK)
        return queue;
    int begun = model_enqueue(self, in, out, NULL);
    int ended = begun == MODEL_NULL_ARGUMENT || begun == MODEL_NOT_INITIALIZED ? begun : model_wait(self);
    return begun == MODEL_OK ? ended : begun;
}

/* The caller's buffer, or NULL, the model's own, becomes a place; arguments that were recorded are
 * patched. If that fails the place is what it was. */
static int bind_place(model_self *self, int place, void *buffer, size_t at)
{
    if (buffer && place_info[place].is_of_host) {
        complain(self, "the host computes with this tensor, so it cannot be a buffer of the caller's");
        return MODEL_BAD_OPTIONS;
    }
    size_t room = 0;
    int status = buffer ? check_buffer(self, place, buffer, at, &room) : MODEL_OK;
    if (status != MODEL_OK)
        return status;
    if (buffer && !hold_buffer(self, buffer))
        return MODEL_DEVICE_FAILED;
    struct place *p = &self->place[place];
    const struct place before = *p, bound = {buffer, at, room, true, false};
    p->is_bound = false;
    if (buffer)
        *p = bound;
    else
        reset_place(self, place);
    if (tell_place(self, place)) {
        if (before.is_bound)
            let_buffer(self, before.buffer);
        return MODEL_OK;
    }
    if (buffer)
        let_buffer(self, buffer);
    *p = before;
    p->is_stale = true;
    return MODEL_DEVICE_FAILED;
}

int model_bind_input(model_self *self, int input, void *buffer, size_t at)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    return input < 0 || input >= MODEL_INPUTS ? MODEL_BAD_OPTIONS : bind_place(self, 2 + input, buffer, at);
}

int model_bind_output(model_self *self, int output, void *buffer, size_t at)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    return output < 0 || output >= MODEL_PLACES - 2 - MODEL_INPUTS
               ? MODEL_BAD_OPTIONS
               : bind_place(self, 2 + MODEL_INPUTS + output, buffer, at);
}

