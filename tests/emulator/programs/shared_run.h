/* shared_run.h - the model net (models/digits.tg) in a program that uses its driver itself, CUDA's
 * or HIP's: the caller's context, its stream, memory of the device's as input and output, an event
 * for the run's end, times of kernels. The results are those of a run with pointers, and each call
 * restores the thread's context. A stream that captures gets kernels alone, and its capture goes on
 * whatever is refused. The program has has_context(), whether that context is the thread's, and the
 * calls.
 */
#include "net.h"

#include <dlfcn.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What both drivers have, in the order of the names that load() is given. */
static struct {
    int (*init)(unsigned flags);
    int (*create_stream)(void **stream, unsigned flags);
    int (*destroy_stream)(void *stream);
    int (*allocate)(uint64_t *at, size_t nbytes);
    int (*release)(uint64_t at);
    int (*write)(uint64_t to, const void *from, size_t nbytes);
    int (*read)(void *to, uint64_t from, size_t nbytes);
    int (*wait_event)(void *event);
    int (*destroy_event)(void *event);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **list, void *graph, unsigned long long flags);
    int (*launch_graph)(void *list, void *stream);
    int (*destroy_list)(void *list);
    int (*destroy_graph)(void *graph);
    int (*wait)(void *stream);
} driver;

static void load(const char *library_name, const char *const *name, size_t n, void *calls)
{
    void *library = dlopen(library_name, RTLD_NOW);
    for (size_t i = 0; library && i < n; i++) {
        void *function = dlsym(library, name[i]);
        memcpy((unsigned char *)calls + i * sizeof function, &function, sizeof function);
    }
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

static void note_error(void *user, const char *text)
{
    (void)user, (void)text;
}

static int has_context(void *wanted);

static alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];

/* A run with pointers, in the model's own context. */
static void run_alone(const float *picture, float *wanted)
{
    net *model;
    net_inputs in = {picture};
    net_outputs out = {wanted};
    expect(net_init(&model, arena, sizeof arena, NULL) == NET_OK && has_context(NULL),
           "init by itself");
    expect(net_run(model, &in, &out) == NET_OK && has_context(NULL), "a run by itself");
    expect(net_enqueue(model, &in, &out, NULL) == NET_OK && net_wait(model) == NET_OK,
           "enqueue and wait");
    net_close(model);
}

/* A run that the caller's stream captures, twice: what would wait, or what fails, leaves the
 * capture as it is. */
static void run_captured(void *stream, const float *picture, const float *wanted)
{
    net *model, *again;
    net_options options;
    uint64_t from, to;
    void *graph, *list;
    float got[10];
    net_inputs in = {NULL};
    net_outputs out = {NULL};
    memset(&options, 0, sizeof options);
    options.queue = stream;
    options.on_error = note_error;
    expect(driver.begin_capture(stream, 0) == 0 &&
               net_init(&model, arena, sizeof arena, &options) == NET_CAPTURING,
           "init in a capture");
    expect(driver.end_capture(stream, &graph) == 0 && driver.destroy_graph(graph) == 0,
           "a capture without a model");
    expect(net_init(&model, arena, sizeof arena, &options) == NET_OK, "init with a stream");
    expect(net_init(&again, arena, sizeof arena, &options) == NET_OPEN_ALREADY,
           "init of an open arena");
    expect(driver.allocate(&from, 256) == 0 && driver.allocate(&to, 256) == 0, "memory");
    expect(net_bind_input(model, 0, (void *)(uintptr_t)from, 0) == NET_OK &&
               net_bind_output(model, 0, (void *)(uintptr_t)to, 0) == NET_OK,
           "device memory");
    expect(driver.begin_capture(stream, 0) == 0, "a capture");
    expect(net_enqueue(model, &in, &out, NULL) == NET_OK, "enqueue in a capture");
    expect(net_run(model, &in, &out) == NET_CAPTURING && net_wait(model) == NET_CAPTURING,
           "a wait in a capture");
    expect(net_bind_input(model, 0, NULL, 0) == NET_OK &&
               net_enqueue(model, &in, &out, NULL) == NET_MISSING_INPUT,
           "no input in a capture");
    expect(driver.end_capture(stream, &graph) == 0 && driver.instantiate(&list, graph, 0) == 0,
           "the captured graph");
    for (int i = 0; i < 2; i++) {
        memset(got, 0, sizeof got);
        expect(driver.write(from, picture, 64 * sizeof *picture) == 0 &&
                   driver.write(to, got, sizeof got) == 0,
               "copies");
        expect(driver.launch_graph(list, stream) == 0 && driver.wait(stream) == 0,
               "a launch of the graph");
        expect(driver.read(got, to, sizeof got) == 0 && memcmp(got, wanted, sizeof got) == 0,
               "other numbers by the captured graph");
    }
    expect(driver.destroy_list(list) == 0 && driver.destroy_graph(graph) == 0, "the graph's end");
    in.picture = picture;
    expect(net_run(model, &in, &out) == NET_OK && driver.read(got, to, sizeof got) == 0 &&
               memcmp(got, wanted, sizeof got) == 0,
           "other numbers behind the capture");
    net_close(model);
    driver.release(from);
    driver.release(to);
}

/* The handles of the thread's own streams, in a context that is its or is passed. */
static void run_by_handle(void *now, void *context, const float *picture, const float *wanted)
{
    for (uintptr_t handle = 1; handle <= 2; handle++) {
        net *model;
        net_options options;
        float got[10];
        net_inputs in = {picture};
        net_outputs out = {got};
        memset(&options, 0, sizeof options);
        options.context = context;
        options.queue = (void *)handle;
        expect(net_init(&model, arena, sizeof arena, &options) == NET_OK && has_context(now),
               "init with a handle of the thread's stream");
        expect(net_run(model, &in, &out) == NET_OK && memcmp(got, wanted, sizeof got) == 0,
               "other numbers by the thread's stream");
        net_close(model);
    }
}

/* The same in the caller's context, or that of its stream, which is the thread's, too; from the
 * device's memory to it. */
static void run_shared(void *now, void *context, void *stream, const float *picture,
                       const float *wanted)
{
    net *model;
    net_options options;
    int times = 0;
    uint64_t from, to;
    void *event;
    float got[10];
    memset(&options, 0, sizeof options);
    options.context = context;
    options.queue = stream;
    options.on_error = note_error;
    expect(net_init(&model, arena, sizeof arena, &options) == NET_OK && has_context(now),
           "init in a context");
    expect(driver.allocate(&from, 1024) == 0 && driver.allocate(&to, 256) == 0, "memory");
    expect(driver.write(from + 256, picture, 64 * sizeof *picture) == 0, "a copy");
    expect(net_bind_input(model, 0, (void *)(uintptr_t)from, 100) == NET_BAD_OPTIONS,
           "an offset of 100");
    expect(net_bind_input(model, 0, (void *)(uintptr_t)from, 1024) == NET_BAD_OPTIONS,
           "memory that ends before");
    expect(net_bind_input(model, 0, got, 0) == NET_BAD_OPTIONS, "the host's memory");
    expect(net_bind_input(model, 0, (void *)(uintptr_t)from, 256) == NET_OK, "an input");
    expect(net_bind_output(model, 0, (void *)(uintptr_t)to, 0) == NET_OK, "an output");
    net_inputs in = {NULL};
    net_outputs out = {NULL};
    expect(net_enqueue(model, &in, &out, &event) == NET_OK && event, "enqueue");
    expect(driver.wait_event(event) == 0 && driver.destroy_event(event) == 0, "the end's event");
    expect(driver.read(got, to, sizeof got) == 0 && memcmp(got, wanted, sizeof got) == 0,
           "other numbers in the device's memory");
    expect(net_bind_input(model, 0, NULL, 0) == NET_OK &&
               net_bind_output(model, 0, NULL, 0) == NET_OK,
           "pointers again");
    in.picture = picture;
    out.probabilities = got;
    memset(got, 0, sizeof got);
    expect(net_run(model, &in, &out) == NET_OK && memcmp(got, wanted, sizeof got) == 0,
           "other numbers by pointers");
    net_close(model);
    options.on_kernel_time = count_times;
    options.user = &times;
    expect(net_init(&model, arena, sizeof arena, &options) == NET_OK, "init with times");
    expect(net_run(model, &in, &out) == NET_OK && times == net_describe()->kernel_count,
           "a time for each kernel");
    net_close(model);
    driver.release(from);
    driver.release(to);
}
