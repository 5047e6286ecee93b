/* failing.c - a model net on the emulated device, with each call of the driver failing in turn:
 * init or run return a status, or right numbers all the same; nothing stays with the driver, close
 * works, and the next init and run give what they gave before. Arguments: what follows the call's
 * number in TGC_EMULATOR_FAIL.
 */
#define _GNU_SOURCE
#include "net.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DRIVER
#define DRIVER "libOpenCL.so.1"
#endif

struct emulator {
    void (*reset)(void);
    long (*calls)(void);
    int (*live)(void);
    int (*reports)(void);
};

struct memory {
    unsigned char *arena, *in, *out;
    unsigned char *output[16], *wanted[16];
    size_t nbytes[16];
};

static size_t tensor_bytes(const struct net_tensor *t)
{
    size_t n = t->element_bytes;
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->dim[i].size;
    return n;
}

/* Inputs by their dtype: small numbers, at the sizes' upper bounds. */
static unsigned char *make_input(const struct net_tensor *t)
{
    const size_t nbytes = tensor_bytes(t), n = nbytes / t->element_bytes;
    unsigned char *at = calloc(1, nbytes + 1);
    for (size_t i = 0; i < n && strcmp(t->dtype, "f32") == 0; i++)
        ((float *)(void *)at)[i] = (float)(i % 7) * 0.25f - 0.5f;
    for (size_t i = 0; i < n && strcmp(t->dtype, "i64") == 0; i++)
        ((int64_t *)(void *)at)[i] = (int64_t)(i % 3) + 1;
    for (size_t i = 0; i < n && strcmp(t->dtype, "bool") == 0; i++)
        at[i] = i % 2 == 0;
    return at;
}

static void prepare(struct memory *m)
{
    const struct net_info *info = net_describe();
    m->arena = aligned_alloc(NET_ARENA_ALIGN, (NET_ARENA_BYTES + NET_ARENA_ALIGN - 1) /
                                                  NET_ARENA_ALIGN * NET_ARENA_ALIGN);
    m->in = calloc(1, info->inputs_bytes + 1);
    m->out = calloc(1, info->outputs_bytes + 1);
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1)
            memcpy(m->in + info->symbols[i].offset, &info->symbols[i].max, sizeof(int64_t));
    for (int i = 0; i < info->output_count; i++) {
        m->nbytes[i] = tensor_bytes(&info->outputs[i]);
        m->output[i] = calloc(1, m->nbytes[i] + 1);
        m->wanted[i] = calloc(1, m->nbytes[i] + 1);
    }
}

static void forget(struct memory *m)
{
    for (int i = 0; i < net_describe()->output_count; i++) {
        free(m->output[i]);
        free(m->wanted[i]);
    }
    free(m->arena);
    free(m->in);
    free(m->out);
}

/* Its inputs and outputs are there as long as the run is: what touches them later, an address
 * sanitizer sees. */
static int run(struct memory *m, net *model)
{
    const struct net_info *info = net_describe();
    for (int i = 0; i < info->input_count; i++) {
        const unsigned char *data = make_input(&info->inputs[i]);
        memcpy(m->in + info->inputs[i].offset, &data, sizeof data);
    }
    for (int i = 0; i < info->output_count; i++) {
        unsigned char *data = calloc(1, m->nbytes[i] + 1);
        memcpy(m->out + info->outputs[i].offset, &data, sizeof data);
    }
    const int status =
        net_run(model, (const net_inputs *)(void *)m->in, (net_outputs *)(void *)m->out);
    for (int i = 0; i < info->output_count; i++) {
        unsigned char *data;
        memcpy(&data, m->out + info->outputs[i].offset, sizeof data);
        memcpy(m->output[i], data, m->nbytes[i]);
        free(data);
    }
    for (int i = 0; i < info->input_count; i++) {
        void *data;
        memcpy(&data, m->in + info->inputs[i].offset, sizeof data);
        free(data);
    }
    return status;
}

static int is_right(const struct memory *m)
{
    for (int i = 0; i < net_describe()->output_count; i++)
        if (memcmp(m->output[i], m->wanted[i], m->nbytes[i]) != 0)
            return 0;
    return 1;
}

/* Init, two runs and close, of which one call fails, perhaps; what is wrong, or NULL. */
static const char *attempt(struct memory *m, const struct emulator *e, long n)
{
    net *model = NULL;
    const int opened = net_init(&model, m->arena, NET_ARENA_BYTES, NULL);
    int first = 0, second = 0;
    if (opened == NET_OK) {
        first = run(m, model);
        if (first == NET_OK && !is_right(m))
            return "a run that succeeds gives other numbers";
        second = run(m, model);
        if (second == NET_OK && !is_right(m))
            return "the second run succeeds and gives other numbers";
        net_close(model);
    }
    const int failed = opened != NET_OK || first != NET_OK || second != NET_OK;
    if (n == 0 && failed)
        return "no call fails, but init or run does";
    if (failed && (!net_strerror(opened + first + second) || net_run(model, NULL, NULL) == NET_OK))
        return "a status without words";
    if (e->live() > 0)
        return "the driver's objects are not released";
    return e->reports() > 0 ? "the driver was misused" : NULL;
}

static int fail(const char *what, long n)
{
    const char *told = getenv("TGC_EMULATOR_FAIL");
    fprintf(stderr, "call %ld, TGC_EMULATOR_FAIL=%s: %s\n", n, told ? told : "", what);
    return 1;
}

int main(int argc, char **argv)
{
    struct memory m = {0};
    void *library = dlopen(DRIVER, RTLD_NOW);
    struct emulator e = {0};
    if (!library)
        return fail("no emulator", 0);
    *(void **)(void *)&e.reset = dlsym(library, "emulator_reset");
    *(void **)(void *)&e.calls = dlsym(library, "emulator_calls");
    *(void **)(void *)&e.live = dlsym(library, "emulator_live");
    *(void **)(void *)&e.reports = dlsym(library, "emulator_reports");
    prepare(&m);
    net *model = NULL;
    if (net_init(&model, m.arena, NET_ARENA_BYTES, NULL) != NET_OK || run(&m, model) != NET_OK)
        return fail("init and run fail by themselves", 0);
    net_close(model);
    for (int i = 0; i < net_describe()->output_count; i++)
        memcpy(m.wanted[i], m.output[i], m.nbytes[i]);
    long calls = 0;
    for (int a = 1; a < argc; a++)
        for (long n = 1;; n++) {
            char words[64];
            snprintf(words, sizeof words, "%ld%s", n, argv[a]);
            setenv("TGC_EMULATOR_FAIL", words, 1);
            e.reset();
            const char *wrong = attempt(&m, &e, n);
            calls = e.calls() > calls ? e.calls() : calls;
            if (e.calls() < n)
                break;
            if (wrong)
                return fail(wrong, n);
            unsetenv("TGC_EMULATOR_FAIL");
            e.reset();
            if ((wrong = attempt(&m, &e, 0)))
                return fail(wrong, n);
        }
    printf("each of %ld calls\n", calls);
    dlclose(library);
    forget(&m);
    return 0;
}
