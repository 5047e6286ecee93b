/* metal.c - the model net (models/digits.tg) in a program that uses Metal itself: its device, its
 * queue, buffers as input and output, a command buffer for the run's end, times of kernels. The
 * results are those of a run with pointers, and what does not go together is refused.
 */
#include "net.h"

#include <dlfcn.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    void *(*selector)(const char *name);
    void *(*retain)(void *object);
    void (*release)(void *object);
    void *(*push)(void);
    void (*pop)(void *pool);
    void *(*device)(void);
    void (*send)(void);
} objc;

static void load(void)
{
    static const char *const name[] = {"sel_registerName",
                                       "objc_retain",
                                       "objc_release",
                                       "objc_autoreleasePoolPush",
                                       "objc_autoreleasePoolPop",
                                       "MTLCreateSystemDefaultDevice",
                                       "objc_msgSend"};
    void *library = dlopen(METAL_FRAMEWORK, RTLD_NOW);
    for (size_t i = 0; library && i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(library, name[i]);
        memcpy((unsigned char *)&objc + i * sizeof function, &function, sizeof function);
    }
}

static void *ask(void *object, const char *message)
{
    void *(*send)(void *, void *) = (void *(*)(void *, void *))objc.send;
    return send(object, objc.selector(message));
}

static void *make_buffer(void *device, size_t nbytes)
{
    void *(*send)(void *, void *, size_t, size_t) =
        (void *(*)(void *, void *, size_t, size_t))objc.send;
    return send(device, objc.selector("newBufferWithLength:options:"), nbytes, 0);
}

static void expect(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

static void count_times(void *user, int index, const char *kernel, double ns)
{
    (void)index, (void)kernel;
    *(int *)user += ns > 0;
}

static void note_error(void *user, const char *text) { (void)user, (void)text; }

static alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];

/* A run with pointers, on the system's device. */
static void run_alone(const float *picture, float *wanted)
{
    net *model;
    net_inputs in = {picture};
    net_outputs out = {wanted};
    int times = 0;
    expect(net_init(&model, arena, sizeof arena, NULL) == NET_OK, "init by itself");
    expect(net_run(model, &in, &out) == NET_OK, "a run by itself");
    expect(net_enqueue(model, &in, &out, NULL) == NET_OK && net_wait(model) == NET_OK,
           "enqueue and wait");
    net_close(model);
    net_options options = {.on_kernel_time = count_times, .user = &times};
    expect(net_init(&model, arena, sizeof arena, &options) == NET_OK, "init with times");
    expect(net_run(model, &in, &out) == NET_OK && times == net_describe()->kernel_count,
           "a time for each kernel");
    net_close(model);
}

/* An output is another buffer while the device may be about to store to the one before: each run
 * stores to its own. */
static void bind_under_way(net *model, void *device, void *to, const float *wanted)
{
    net_inputs in = {NULL};
    net_outputs out = {NULL};
    void *other = make_buffer(device, 256);
    memset(ask(to, "contents"), 0, 256);
    expect(net_enqueue(model, &in, &out, NULL) == NET_OK &&
               net_bind_output(model, 0, other, 0) == NET_OK,
           "another output");
    expect(net_enqueue(model, &in, &out, NULL) == NET_OK && net_wait(model) == NET_OK,
           "a run to it");
    expect(memcmp(ask(to, "contents"), wanted, 10 * sizeof *wanted) == 0,
           "other numbers in the output of the run before");
    expect(memcmp(ask(other, "contents"), wanted, 10 * sizeof *wanted) == 0,
           "other numbers in the output");
    objc.release(other);
}

/* Runs with the caller's device, or its queue's device, from a buffer to another. */
static void run_shared(void *device, void *given, void *queue, const float *picture,
                       const float *wanted)
{
    net *model;
    net_options options = {.context = given, .queue = queue, .on_error = note_error};
    void *from = make_buffer(device, 1024), *to = make_buffer(device, 256), *event = NULL;
    expect(net_init(&model, arena, sizeof arena, &options) == NET_OK, "init on a device");
    memcpy((char *)ask(from, "contents") + 256, picture, 64 * sizeof *picture);
    expect(net_bind_input(model, 0, from, 100) == NET_BAD_OPTIONS, "an offset of 100");
    expect(net_bind_input(model, 0, from, 1024) == NET_BAD_OPTIONS, "a buffer that ends before");
    expect(net_bind_input(model, 0, from, 256) == NET_OK &&
               net_bind_output(model, 0, to, 0) == NET_OK,
           "buffers");
    net_inputs in = {NULL};
    net_outputs out = {NULL};
    for (int i = 0; i < 3; i++)
        expect(net_enqueue(model, &in, &out, NULL) == NET_OK, "enqueue, and again");
    expect(net_enqueue(model, &in, &out, &event) == NET_OK && event, "enqueue with an end");
    ask(event, "waitUntilCompleted");
    objc.release(event);
    expect(memcmp(ask(to, "contents"), wanted, 10 * sizeof *wanted) == 0,
           "other numbers in the buffer");
    bind_under_way(model, device, to, wanted);
    expect(net_bind_input(model, 0, NULL, 0) == NET_OK &&
               net_bind_output(model, 0, NULL, 0) == NET_OK,
           "pointers again");
    float got[10] = {0};
    in.picture = picture;
    out.probabilities = got;
    expect(net_run(model, &in, &out) == NET_OK && memcmp(got, wanted, sizeof got) == 0,
           "other numbers by pointers");
    net_close(model);
    objc.release(from);
    objc.release(to);
}

int main(void)
{
    float picture[64], wanted[10];
    net *model;
    for (int i = 0; i < 64; i++)
        picture[i] = (float)(i % 17) / 16;
    load();
    expect(objc.send != NULL, "the framework");
    run_alone(picture, wanted);
    void *pool = objc.push(), *device = objc.device(), *queue = ask(device, "newCommandQueue");
    run_shared(device, device, NULL, picture, wanted);
    run_shared(device, device, queue, picture, wanted);
    run_shared(device, NULL, queue, picture, wanted);
    net_options options = {.device = 7};
    expect(net_init(&model, arena, sizeof arena, &options) == NET_NO_DEVICE,
           "a device that is not there");
    options = (net_options){.context = queue, .queue = queue, .on_error = note_error};
    expect(net_init(&model, arena, sizeof arena, &options) == NET_BAD_OPTIONS,
           "a queue of another device");
    objc.release(queue);
    objc.release(device);
    objc.pop(pool);
    puts("right");
    return 0;
}
