/* threads.c - runs an emitted model by threads: any number of them, a parallel_for of the caller's,
 * two contexts at once, no run at all, threads that cannot be started. Every way has to give the
 * same bits. Prints a hash of them, to be compared with a model that is compiled for one thread.
 *
 * net.c is included, so that pthread_create() in it can be made to fail. With NET_OBJECT it is an
 * object instead, which is linked with --wrap=pthread_create.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NET_OBJECT
#define create_or_fail __wrap_pthread_create
#define start_thread __real_pthread_create
int start_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                 void *argument);
int create_or_fail(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument);
#define OF_THE_LINKER
#else
#define start_thread pthread_create
#define OF_THE_LINKER static
#endif

static int creations_left = -1; /* -1: no limit */

OF_THE_LINKER int create_or_fail(pthread_t *thread, const pthread_attr_t *attributes,
                                 void *(*start)(void *), void *argument)
{
    if (creations_left == 0)
        return 11;
    creations_left -= creations_left > 0;
    return start_thread(thread, attributes, start, argument);
}

#ifdef NET_OBJECT
#include "net.h"
#else
#define pthread_create create_or_fail
#include "net.c"
#undef pthread_create
#endif
#include "fill.c"

enum { MOST = 8 };

static void check(int condition, const char *what)
{
    if (!condition) {
        printf("not so: %s\n", what);
        exit(1);
    }
}

static size_t bound_bytes(const struct net_tensor *t)
{
    size_t n = t->element_bytes;
    for (int a = 0; a < t->rank; a++)
        n *= (size_t)t->dim[a].size;
    return n;
}

static void *get_memory(size_t nbytes)
{
    void *p = aligned_alloc(64, (nbytes + 64) / 64 * 64);
    check(p != NULL, "there is memory");
    return p;
}

/* A context with inputs and outputs of its own. */
struct session {
    net *model;
    void *arena, *input[MOST], *output[MOST];
    net_inputs in;
    net_outputs out;
};

static int open_session(struct session *s, const net_options *options)
{
    const struct net_info *info = net_describe();
    memset(s, 0, sizeof *s);
    s->arena = get_memory(info->arena_bytes);
    check(info->input_count <= MOST && info->output_count <= MOST, "few inputs and outputs");
    for (int i = 0; i < info->input_count; i++) {
        const struct net_tensor *t = &info->inputs[i];
        size_t nbytes = bound_bytes(t);
        s->input[i] = get_memory(nbytes);
        fill_random(t->dtype, s->input[i], t->element_bytes, nbytes / t->element_bytes,
                    (uint32_t)i + 1, info->feeds[i].least, info->feeds[i].most);
        memcpy((char *)&s->in + t->offset, &s->input[i], sizeof(void *));
    }
    for (int i = 0; i < info->output_count; i++) {
        s->output[i] = get_memory(bound_bytes(&info->outputs[i]));
        memset(s->output[i], 0x55, bound_bytes(&info->outputs[i]));
        memcpy((char *)&s->out + info->outputs[i].offset, &s->output[i], sizeof(void *));
    }
    for (int i = 0; i < info->symbol_count; i++)
        memcpy((char *)&s->in + info->symbols[i].offset, &info->symbols[i].max, sizeof(int64_t));
    return net_init(&s->model, s->arena, info->arena_bytes, options);
}

static void close_session(struct session *s)
{
    const struct net_info *info = net_describe();
    net_close(s->model);
    for (int i = 0; i < info->input_count; i++)
        free(s->input[i]);
    for (int i = 0; i < info->output_count; i++)
        free(s->output[i]);
    free(s->arena);
}

static int outputs_equal(const struct session *a, const struct session *b)
{
    const struct net_info *info = net_describe();
    for (int i = 0; i < info->output_count; i++)
        if (memcmp(a->output[i], b->output[i], bound_bytes(&info->outputs[i])) != 0)
            return 0;
    return 1;
}

static void run_and_compare(const net_options *options, const struct session *want,
                            const char *what)
{
    /* threads that meet where they should not do so in some runs only */
    const int runs = options->parallel_for || options->threads ? 3 : 40;
    struct session s;
    check(open_session(&s, options) == 0, what);
    for (int run = 0; run < runs; run++) {
        check(net_run(s.model, &s.in, &s.out) == 0, what);
        check(outputs_equal(&s, want), what);
    }
    close_session(&s);
}

/* ---- the caller's own threads */

struct pool {
    int calls, count;
};

static void run_backwards(void *user, int count, void (*body)(void *context, int index),
                          void *context)
{
    struct pool *pool = user;
    pool->calls++;
    pool->count = count;
    for (int i = count - 1; i >= 0; i--)
        body(context, i);
}

/* As a loop that counts one too far, and begins one too early, would. */
static void run_too_far(void *user, int count, void (*body)(void *context, int index),
                        void *context)
{
    ((struct pool *)user)->calls++;
    for (int i = -1; i <= count; i++)
        body(context, i);
    body(context, 1 << 20);
}

struct call {
    void (*body)(void *context, int index);
    void *context;
    int index;
};

static void *run_call(void *argument)
{
    struct call *c = argument;
    c->body(c->context, c->index);
    return NULL;
}

static void run_in_new_threads(void *user, int count, void (*body)(void *context, int index),
                               void *context)
{
    pthread_t thread[64];
    struct call call[64];
    ((struct pool *)user)->calls++;
    check(count <= 64, "few parts");
    for (int i = 0; i < count; i++) {
        call[i] = (struct call){body, context, i};
        check(start_thread(&thread[i], NULL, run_call, &call[i]) == 0, "a thread starts");
    }
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
}

/* ---- two contexts at once */

static void *run_often(void *argument)
{
    struct session *s = argument;
    for (int run = 0; run < 5; run++)
        if (net_run(s->model, &s->in, &s->out) != 0)
            return "run";
    return NULL;
}

static void run_two(const struct session *want)
{
    struct session s[2];
    pthread_t thread[2];
    void *failed;
    for (int k = 0; k < 2; k++)
        check(open_session(&s[k], &(net_options){.threads = 2 + k}) == 0, "two contexts open");
    for (int k = 0; k < 2; k++)
        check(start_thread(&thread[k], NULL, run_often, &s[k]) == 0, "a thread starts");
    for (int k = 0; k < 2; k++) {
        pthread_join(thread[k], &failed);
        check(failed == NULL, "both contexts run");
        check(outputs_equal(&s[k], want), "both contexts give the same bits");
        close_session(&s[k]);
    }
}

#ifdef NET_THREADS
static int at_most(int threads) { return threads < NET_THREADS ? threads : NET_THREADS; }
#endif

static void refuse_threads(const net_options *options, int before, int threads)
{
    struct session s;
    creations_left = before;
    int status = open_session(&s, options);
    creations_left = -1;
#ifdef NET_THREADS
    check(status == (before < at_most(threads) - 1 ? NET_NO_THREADS : NET_OK),
          "a thread that cannot be started is a status");
    check((s.model == NULL) == (status != NET_OK), "no model where the status is bad");
#else
    (void)before, (void)threads, (void)create_or_fail;
    check(status == NET_OK, "a model for one thread starts none");
#endif
    close_session(&s);
}

static uint64_t hash_outputs(const struct session *s)
{
    const struct net_info *info = net_describe();
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < info->output_count; i++)
        for (size_t k = 0; k < bound_bytes(&info->outputs[i]); k++)
            h = (h ^ ((const unsigned char *)s->output[i])[k]) * 0x100000001b3u;
    return h;
}

int main(void)
{
    static const int count[] = {0, 1, 2, 3, 7, 1000};
    struct session one, idle;
    struct pool pool = {0, 0};
    check(open_session(&one, &(net_options){.threads = 1}) == 0, "one thread opens");
    check(net_run(one.model, &one.in, &one.out) == 0, "one thread runs");
    for (size_t i = 0; i < sizeof count / sizeof *count; i++)
        run_and_compare(&(net_options){.threads = count[i]}, &one, "any number gives the same");
    for (int threads = 1; threads <= 5; threads += 2)
        run_and_compare(&(net_options){.threads = threads, .parallel_for = run_backwards,
                                       .user = &pool}, &one, "parts in any order give the same");
#ifdef NET_THREADS
    check(pool.calls > 0 && pool.count == at_most(5), "the caller's parallel_for is used");
    creations_left = 0;
#else
    check(pool.calls == 0, "a model for one thread has no parts");
#endif
    run_and_compare(&(net_options){.parallel_for = run_too_far, .user = &pool}, &one,
                    "a parallel_for with indices outside the count");
    run_and_compare(&(net_options){.parallel_for = run_in_new_threads, .user = &pool}, &one,
                    "the caller's threads give the same, and no others are started");
    creations_left = -1;
    run_two(&one);
    check(open_session(&idle, NULL) == 0, "a model opens");
    net_close(idle.model);
    net_close(idle.model);
    check(net_run(idle.model, &idle.in, &idle.out) == NET_NOT_INITIALIZED, "it is closed");
    close_session(&idle);
    for (int before = 0; before < 4; before++)
        refuse_threads(&(net_options){.threads = 4}, before, 4);
    check(open_session(&idle, &(net_options){.threads = -1}) == NET_BAD_OPTIONS,
          "a number below zero is refused");
    close_session(&idle);
    printf("%016llx\n", (unsigned long long)hash_outputs(&one));
    close_session(&one);
    return 0;
}
