/* sharing.c - a model net of two entries over a state, while each call of the driver fails in turn.
 * Context, queue, buffers and the cache of programs are this program's own. Each run gives a status
 * or right numbers. Nothing stays with the driver or is touched later, and what failed can be tried
 * again. Arguments: what follows the call's number in TGC_EMULATOR_FAIL.
 */
#define _GNU_SOURCE
#include "net.h"

#include <dlfcn.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 8, ROUNDS = 3 };

static struct {
    void (*reset)(void);
    long (*calls)(void);
    int (*live)(void), (*reports)(void);
    int (*platforms)(unsigned, void **, unsigned *);
    int (*devices)(void *, unsigned long, unsigned, void **, unsigned *);
    void *(*context)(const void *, unsigned, void *const *, void *, void *, int *);
    void *(*queue)(void *, void *, unsigned long, int *);
    void *(*buffer)(void *, unsigned long, size_t, void *, int *);
    int (*write)(void *, void *, unsigned, size_t, size_t, const void *, unsigned, void *, void *);
    int (*read)(void *, void *, unsigned, size_t, size_t, void *, unsigned, void *, void *);
    int (*let_context)(void *), (*let_queue)(void *), (*let_buffer)(void *), (*let_event)(void *);
} cl;

static void find(void *library)
{
    static const char *const name[] = {
        "emulator_reset",        "emulator_calls",       "emulator_live",
        "emulator_reports",      "clGetPlatformIDs",     "clGetDeviceIDs",
        "clCreateContext",       "clCreateCommandQueue", "clCreateBuffer",
        "clEnqueueWriteBuffer",  "clEnqueueReadBuffer",  "clReleaseContext",
        "clReleaseCommandQueue", "clReleaseMemObject",   "clReleaseEvent"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(library, name[i]);
        memcpy((unsigned char *)&cl + i * sizeof function, &function, sizeof function);
    }
}

/* The program's own objects: made before calls may fail. */
struct shared { void *device, *context, *queue, *in, *out; };

static struct shared shared_new(void)
{
    struct shared s = {0};
    void *platform;
    const float x[N] = {1, 2, 3, 4, 5, 6, 7, 8};
    cl.platforms(1, &platform, NULL);
    cl.devices(platform, 0xffffffff, 1, &s.device, NULL);
    s.context = cl.context(NULL, 1, &s.device, NULL, NULL, NULL);
    s.queue = cl.queue(s.context, s.device, 0, NULL);
    s.in = cl.buffer(s.context, 1, sizeof x, NULL, NULL);
    s.out = cl.buffer(s.context, 1, sizeof x, NULL, NULL);
    cl.write(s.queue, s.in, 1, 0, sizeof x, x, 0, NULL, NULL);
    return s;
}

static void shared_end(const struct shared *s)
{
    cl.let_buffer(s->in);
    cl.let_buffer(s->out);
    cl.let_queue(s->queue);
    cl.let_context(s->context);
}

/* One program, kept by its key. */
static struct { char key[64]; unsigned char *bytes; size_t n; } kept;

static size_t load(void *user, const char *key, void *to, size_t size)
{
    (void)user;
    if (strcmp(kept.key, key) != 0)
        return 0;
    if (to && size >= kept.n)
        memcpy(to, kept.bytes, kept.n);
    return kept.n;
}

static void save(void *user, const char *key, const void *bytes, size_t n)
{
    (void)user;
    free(kept.bytes);
    kept.bytes = malloc(n);
    kept.n = n;
    memcpy(kept.bytes, bytes, n);
    snprintf(kept.key, sizeof kept.key, "%s", key);
}

static void forget(void)
{
    free(kept.bytes);
    memset(&kept, 0, sizeof kept);
}

/* "add": sum = sum + x, which is the state, and twice of it. The memory is there for the run
 * alone. */
static int add(net *model, float factor, int wait, float *sum)
{
    net_add_inputs in = {NULL, NULL};
    net_add_outputs out = {NULL, NULL};
    float *x = malloc(N * sizeof *x), *f = malloc(sizeof *f), *result = malloc(N * sizeof *result),
          *twice = malloc(N * sizeof *twice);
    void *event = NULL;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i + 1);
    *f = factor;
    in.x = x;
    in.factor = f;
    out.sum = result;
    out.twice = twice;
    int status = wait ? net_add_run(model, &in, &out) : net_add_enqueue(model, &in, &out, &event);
    if (!wait && status == NET_OK)
        status = net_wait(model);
    if (event)
        cl.let_event(event);
    memcpy(sum, result, N * sizeof *sum);
    free(x);
    free(f);
    free(result);
    free(twice);
    return status;
}

static int look(net *model, float *total)
{
    const net_look_inputs in = {NULL};
    net_look_outputs out = {total};
    return net_look_run(model, &in, &out);
}

static int is_sum(const float *sum, float factor)
{
    for (int i = 0; i < N; i++)
        if (sum[i] != factor * (float)(i + 1))
            return 0;
    return 1;
}

/* All that a program does with a model. Returns what is wrong; *failed: some call
 * returned a status. */
static const char *use(net *model, const struct shared *s, int *failed)
{
    static unsigned char block[NET_STATE_BYTES], now[NET_STATE_BYTES];
    float sum[N], total = 0;
    const int saved = net_save(model, block) == NET_OK;
    if (!saved)
        return *failed = 1, NULL;
    if (add(model, 1, 0, sum) != NET_OK)
        *failed = 1;
    else if (!is_sum(sum, 1))
        return "a run that succeeds gives other numbers";
    if (net_restore(model, block) != NET_OK)
        return *failed = 1, NULL;
    if (add(model, 2, 1, sum) != NET_OK)
        return *failed = 1, NULL;
    if (!is_sum(sum, 2))
        return "a run behind restore gives other numbers";
    if (look(model, &total) != NET_OK)
        return *failed = 1, NULL;
    if (total != 72)
        return "the other entry does not see the state";
    if (net_bind_input(model, 0, s->in, 0) != NET_OK ||
        net_bind_output(model, 0, s->out, 0) != NET_OK)
        *failed = 1;                    /* pointers count still, where a bind has failed */
    if (net_reset(model) != NET_OK || add(model, 1, 1, sum) != NET_OK)
        return *failed = 1, NULL;
    if (cl.read(s->queue, s->out, 1, 0, sizeof sum, sum, 0, NULL, NULL) == 0 && !*failed &&
        !is_sum(sum, 1))
        return "a run on buffers of the caller's gives other numbers";
    if (net_bind_input(model, 0, NULL, 0) != NET_OK || net_bind_output(model, 0, NULL, 0) != NET_OK)
        return *failed = 1, NULL;
    if (net_save(model, now) == NET_OK && net_restore(model, now) == NET_OK &&
        add(model, 1, 1, sum) == NET_OK) {
        if (!is_sum(sum, 2))
            return "a run behind all of that gives other numbers";
    } else {
        *failed = 1;
    }
    return NULL;
}

/* Half of the attempts find the program in the cache. */
static const char *attempt(long n, int own_queue, const char *fails)
{
    alignas(NET_ARENA_ALIGN) static unsigned char arena[NET_ARENA_BYTES];
    struct shared s = shared_new();
    const int before = cl.live();
    net_options options;
    net *model = NULL;
    int failed = 0;
    memset(&options, 0, sizeof options);
    options.context = s.context;
    options.queue = own_queue ? s.queue : NULL;
    options.load_program = load;
    options.save_program = save;
    if (fails)
        setenv("TGC_EMULATOR_FAIL", fails, 1);
    else
        unsetenv("TGC_EMULATOR_FAIL");
    cl.reset();
    const int opened = net_init(&model, arena, sizeof arena, &options);
    const char *wrong = opened == NET_OK ? use(model, &s, &failed) : NULL;
    net_close(model);
    if (!wrong && cl.live() > before)
        wrong = "the driver's objects are not released";
    const long calls = cl.calls();
    const int reports = cl.reports();
    unsetenv("TGC_EMULATOR_FAIL");
    cl.reset();
    shared_end(&s);
    if (!wrong && n == 0 && (failed || opened != NET_OK))
        wrong = "no call fails, but a function does";
    if (!wrong && reports > 0)
        wrong = "the driver was misused";
    return wrong ? wrong : calls < n ? "" : NULL;
}

int main(int argc, char **argv)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    long most = 0;
    if (!library)
        return 1;
    find(library);
    for (int a = 1; a < argc; a++)
        for (int round = 0; round < ROUNDS; round++)
            for (long n = 1;; n++) {
                char words[64];
                snprintf(words, sizeof words, "%ld%s", n, argv[a]);
                if (round == 1)
                    forget();
                const char *wrong = attempt(n, round != 2, words);
                if (wrong && *wrong == 0)
                    break;
                most = n > most ? n : most;
                if (!wrong && !(wrong = attempt(0, round != 2, NULL)))
                    continue;
                fprintf(stderr, "call %ld, TGC_EMULATOR_FAIL=%s, round %d: %s\n", n, words, round,
                        wrong);
                return 1;
            }
    forget();
    dlclose(library);
    printf("each of %ld calls\n", most);
    return 0;
}
