/* SPDX-License-Identifier: 0BSD */
/* device.c - a run on a device, for any driver: where tensors are, a list of launches that is
 * recorded once, copies, and the caller's buffers. Intermediates, states, inputs and outputs share
 * one buffer of the device; the weights have another. A "place" is the location of a tensor: a
 * buffer and an offset.
 *
 * The driver's own functions are pieces of its file (opencl.c, graphs.c, metal.c), which also has
 * the struct of `device`:
 *
 *      open         device_open(), device_close(): what lives as long as the model
 *      record       record(), set_argument(): the list, and what changes in it
 *      map          map_span(): device.seen[i] points the host to some bytes of the memory
 *      to_device    to_device(): hands them back to the device
 *      write, read  write_buffer(), read_buffer(): copies, in the queue's order
 *      start        start(): launches kernels of the list; the grid is self->groups
 *      start_queued start_queued(): launches them on several queues, as turn_of[] says
 *      queue        look_at_queue(): is the queue capturing? Then what it is given runs later
 *      end          mark(), wait_all(), and check_buffer(), which finds the room in a buffer
 *      hold         hold_buffer(), let_buffer(): references to a buffer of the caller's
 *
 * A model that expects something of its inputs (an index within its tensor) has a verdict for each,
 * a byte of the memory that kernels store:
 *
 *      verdict = verdict && what is expected     false until the host has read and reported it
 *
 * Nothing waits for it but NAME_wait(). Whatever the inputs are, kernels access nothing outside of
 * tensors, and of states store nothing that cannot be taken back: what grows does so behind a
 * length, what is stored anew has two places (take_back()), and what is updated in place is stored
 * only where all verdicts are true.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

//@ device_types
/* Where a tensor is: byte `at` of a buffer. room: the bytes from there to the end of a buffer of
 * the caller's (is_bound). is_stale: some kernels may still have the location before this one. */
struct place { void *buffer; size_t at, room; bool is_bound, is_stale; };
/* A kernel's argument: a tensor, `at` bytes after the begin of a place, or a number if place < 0.
 * varies: each run sets that byte or number. */
struct argument { int place; bool varies; size_t at; };
/* A launch: the function, its arguments argument_of[first .. first + count - 1], blocks in the
 * grid, threads in a block. */
struct launch { const char *function; int first, count; size_t groups[3], block[3]; };

/* Bytes of the device's memory that a step of the host accesses, from byte `at` on. how: 1 it only
 * reads; 2 it overwrites all of them, so they are not copied to the host first; 3 anything else. */
struct span { size_t at, nbytes; int how; };

//@ device_list open record
/* Returns a place to the model's own memory. */
static void reset_place(model_self *self, int place)
{
    struct place *p = &self->place[place];
    if (p->is_bound)
        let_buffer(self, p->buffer);
    p->buffer = place == 1 ? self->device.weights : self->device.memory;
    p->at = place_info[place].at;
    p->is_bound = false;
}

/* Records the list of launches, with the arguments that are the same in each run. */
static int begin_list(model_self *self)
{
    for (int i = 0; i < MODEL_PLACES; i++)
        reset_place(self, i);
    for (int i = 0; i < MODEL_KERNELS; i++)
        for (int d = 0; d < 3; d++)
            self->groups[i][d] = launch_of[i].groups[d];
    return record(self);
}

/* Sets the argument of all kernels that use the place. */
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

/* Before a run: sets arguments again where that failed before. */
static int renew(model_self *self)
{
    for (int i = 0; i < MODEL_PLACES; i++)
        if (self->place[i].is_stale && !tell_place(self, i))
            return MODEL_DEVICE_FAILED;
    return MODEL_OK;
}

//@ device_host to_device map queue
/* Gives the host these bytes of the memory, until to_device(). */
static int to_host(model_self *self, const struct span *need, int n)
{
    int status = look_at_queue(self);
    if (status == MODEL_CAPTURING)
        complain(self, "the host reads what the device computes, which it cannot while "
                       "options.queue captures");
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
/* Sets what differs in the next start of a kernel: the arguments that vary, in their order, and the
 * grid. NULL: unchanged. */
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
/* Launches kernels from .. to - 1 of the list. */
static int run_part(model_self *self, int from, int to)
{
    return to_device(self) == MODEL_OK && start(self, from, to) ? MODEL_OK : MODEL_DEVICE_FAILED;
}

//@ device_launch_queued to_device start_queued device_list
/* Launches them on several queues. */
static int run_part_queued(model_self *self, int from, int to)
{
    return to_device(self) == MODEL_OK && start_queued(self, from, to) ? MODEL_OK
                                                                       : MODEL_DEVICE_FAILED;
}

//@ judge end
/* Nothing is expected of inputs. */
static int begin_verdicts(model_self *self) { (void)self; return MODEL_OK; }
static int judge(model_self *self) { return wait_all(self) ? MODEL_OK : MODEL_DEVICE_FAILED; }

//@ device_judge_verdicts end device_host
/* All is as expected, until a run finds otherwise. */
static int clear_verdicts(model_self *self)
{
    const struct span all = {MODEL_VERDICTS_AT, MODEL_VERDICTS, 2};
    int status = to_host(self, &all, 1);
    if (status != MODEL_OK)
        return status;
    memset(self->device.seen[0], 1, MODEL_VERDICTS);
    return to_device(self);
}

/* Waits for all runs; states are as before the last one if its inputs were not as expected. */
static int settle(model_self *self)
{
    const struct span all = {MODEL_VERDICTS_AT, MODEL_VERDICTS, 1};
    int status = to_host(self, &all, 1);
    if (status != MODEL_OK) {
        wait_all(self);
        return status;
    }
    const bool is_bad = memchr(self->device.seen[0], 0, MODEL_VERDICTS) != NULL;
    status = to_device(self);
    if (status == MODEL_OK && is_bad)
        status = clear_verdicts(self);
    if (status != MODEL_OK)
        return status;
    if (is_bad && self->is_pending)
        take_back(self);
    self->is_bad |= is_bad;
    self->is_pending = false;
    return MODEL_OK;
}

/* The same; what runs found that nobody was told yet is MODEL_BAD_VALUE. */
static int judge(model_self *self)
{
    const int status = settle(self);
    const bool is_bad = self->is_bad && status == MODEL_OK;
    self->is_bad &= !is_bad;
    return is_bad ? MODEL_BAD_VALUE : status;
}

/* Before a run: one that goes on from what the last one stored needs that to be good. */
static int begin_verdicts(model_self *self)
{
    const int status =
        MODEL_RUNS_DIFFER && (self->is_pending || self->is_bad) ? judge(self) : MODEL_OK;
    if (status == MODEL_OK) {
        note_states(self);
        self->is_pending = true;
    }
    return status;
}

//@ device_run end queue device_list judge
static int enqueue_list(model_self *self, const run_inputs *in, run_outputs *out, void **event);

/* After a failure no command is left that touches the caller's memory. What options.queue captures
 * has not begun, so there is nothing to wait for. */
static int enqueue_run(model_self *self, const run_inputs *in, run_outputs *out, void **event)
{
    const bool is_open = self && self->opened == self;
    if (event)
        *event = NULL;
    const int queue = is_open ? look_at_queue(self) : MODEL_OK;
    if (queue == MODEL_CAPTURING && MODEL_RUNS_DIFFER) {
        complain(self,
                 "options.queue captures, and a state's place or length differs from run to run");
        return queue;
    }
    if (queue != MODEL_OK && queue != MODEL_CAPTURING)
        return queue;
    int status = is_open ? begin_verdicts(self) : MODEL_OK;
    if (status == MODEL_OK)
        status = enqueue_list(self, in, out, event);
    if (status == MODEL_OK || !is_open || queue != MODEL_OK)
        return status;
    return judge(self) == MODEL_BAD_VALUE ? MODEL_BAD_VALUE : status;
}

static int wait_runs(model_self *self)
{
    const int queue = look_at_queue(self);
    return queue != MODEL_OK ? queue : judge(self);
}

/* A run, and its end. */
static int run_whole(model_self *self, const run_inputs *in, run_outputs *out)
{
    const int queue = self && self->opened == self ? look_at_queue(self) : MODEL_OK;
    if (queue != MODEL_OK)
        return queue;
    int begun = enqueue_run(self, in, out, NULL);
    int ended =
        begun == MODEL_NULL_ARGUMENT || begun == MODEL_NOT_INITIALIZED ? begun : wait_runs(self);
    return begun == MODEL_OK ? ended : begun;
}

//@ device_bind end device_list
/* Makes the caller's buffer the tensor's memory; NULL: the model's own again. Recorded arguments
 * are patched. After a failure the place is as before. */
static int bind_place(model_self *self, int place, void *buffer, size_t at)
{
    if (buffer && place_info[place].is_of_host) {
        complain(self,
                 "the host computes with this tensor, so it cannot be a buffer of the caller's");
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

//@ device_blocks device_run device_bind to_device write read
/* Copies the blocks that are begun to the device. */
static int upload(model_self *self)
{
    void *const block[] = {self->options.params, self->options.gradients, self->options.optimizer};
    self->uploaded = 0;RESTART
    for (int i = 0; i < 3; i++) {
        if (check_block(block[i], &block_info[i]) != MODEL_OK)
            continue;
        if (to_device(self) != MODEL_OK ||
            !write_buffer(self, self->device.memory, block_at[i],
                          (size_t)block_info[i].head.nbytes, block[i], true))
            return MODEL_DEVICE_FAILED;
        self->uploaded |= 1u << i;
    }
    if (self->uploaded & 1)
        memcpy(self->head, self->options.params, sizeof self->head);
    return MODEL_OK;
}

static bool download(model_self *self, size_t at, void *to, size_t nbytes)
{
    return to_device(self) == MODEL_OK &&
           read_buffer(self, self->device.memory, at, nbytes, to);
}

int model_upload(model_self *self)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    const int status = wait_runs(self);
    return status == MODEL_OK ? upload(self) : status;
}

int model_download(model_self *self)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    unsigned char *const block[] = {(unsigned char *)self->options.params,
                                    (unsigned char *)self->options.gradients,
                                    (unsigned char *)self->options.optimizer};
    int status = wait_runs(self);
    for (int i = 0; i < 3 && status == MODEL_OK; i++)
        if ((self->uploaded >> i & 1) &&
            !download(self, block_at[i], block[i], (size_t)block_info[i].head.nbytes))
            status = MODEL_DEVICE_FAILED;SECOND_PLACES
    const int ended = wait_runs(self);
    if (status == MODEL_OK && ended == MODEL_OK && (self->uploaded & 1))
        memcpy(self->options.params, self->head, sizeof self->head);
    return status == MODEL_OK ? ended : status;
}

/* In all entries that take it. */
int model_bind_input(model_self *self, int input, void *buffer, size_t at)
{
    static const int first[] = {FIRST_INPUTS};
    const int n = (int)(sizeof first / sizeof *first);
    int status = MODEL_OK;
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    if (input < 0 || input >= COUNT_OF_INPUTS)
        return MODEL_BAD_OPTIONS;
    for (int i = 0; i < n && status == MODEL_OK; i++)
        status = bind_place(self, 2 + first[i] + input, buffer, at);
    for (int i = 0; i < n && status != MODEL_OK; i++)
        bind_place(self, 2 + first[i] + input, NULL, 0);
    return status;
}

//@ device_calls device_run device_bind
int model_enqueue(model_self *self, const model_inputs *in, model_outputs *out, void **event)
{
    return enqueue_run(self, in, out, event);
}

int model_wait(model_self *self)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    return self->opened != self ? MODEL_NOT_INITIALIZED : wait_runs(self);
}

int model_run(model_self *self, const model_inputs *in, model_outputs *out)
{
    return run_whole(self, in, out);
}

int model_bind_input(model_self *self, int input, void *buffer, size_t at)
{
    if (!self)
        return MODEL_NULL_ARGUMENT;
    if (self->opened != self)
        return MODEL_NOT_INITIALIZED;
    return input < 0 || input >= MODEL_INPUTS ? MODEL_BAD_OPTIONS
                                              : bind_place(self, 2 + input, buffer, at);
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

