/* bulk.c - the model net, a product of two matrices of halves, with inputs and the output in device
 * memory of the caller's, and with pointers again. Kernels copy boxes by tensor maps of the memory
 * that is in use.
 */
#include "net.h"

#include <dlfcn.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 96, TERMS = 264, COLUMNS = 136 };
static alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];
static uint16_t a[ROWS * TERMS], b[TERMS * COLUMNS], wanted[ROWS * COLUMNS], got[ROWS * COLUMNS];

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*let)(int device);
    int (*allocate)(uint64_t *at, size_t nbytes);
    int (*release)(uint64_t at);
    int (*write)(uint64_t to, const void *from, size_t nbytes);
    int (*read)(void *to, uint64_t from, size_t nbytes);
} driver;

static void expect(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

static void load(void)
{
    static const char *const name[] = {"cuInit",
                                       "cuDevicePrimaryCtxRetain",
                                       "cuCtxPushCurrent_v2",
                                       "cuCtxPopCurrent_v2",
                                       "cuDevicePrimaryCtxRelease_v2",
                                       "cuMemAlloc_v2",
                                       "cuMemFree_v2",
                                       "cuMemcpyHtoD_v2",
                                       "cuMemcpyDtoH_v2"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; library && i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(library, name[i]);
        memcpy((unsigned char *)&driver + i * sizeof function, &function, sizeof function);
    }
}

static void run(net *model, uint16_t *to)
{
    const net_inputs in = {.a = a, .b = b};
    net_outputs out = {.c = to};
    expect(net_run(model, &in, &out) == NET_OK, "a run");
}

int main(void)
{
    void *context;
    uint64_t at[3];
    net *model = NULL;
    load();
    for (int i = 0; i < ROWS * TERMS; i++)
        a[i] = (uint16_t)(0x3800 + i % 7 * 64);
    for (int i = 0; i < TERMS * COLUMNS; i++)
        b[i] = (uint16_t)(0x3000 + i % 5 * 128);
    expect(net_init(&model, arena, sizeof arena, NULL) == NET_OK, "the model");
    run(model, wanted);
    expect(driver.init(0) == 0 && driver.retain(&context, 0) == 0 && driver.push(context) == 0,
           "the context");
    expect(driver.allocate(&at[0], sizeof a) == 0 && driver.allocate(&at[1], sizeof b) == 0 &&
               driver.allocate(&at[2], sizeof got) == 0,
           "memory");
    expect(driver.write(at[0], a, sizeof a) == 0 && driver.write(at[1], b, sizeof b) == 0,
           "a copy");
    for (int i = 0; i < 2; i++)
        expect(net_bind_input(model, i, (void *)(uintptr_t)at[i], 0) == NET_OK, "an input");
    memset(a, 0, sizeof a);
    run(model, got);
    expect(memcmp(got, wanted, sizeof got) == 0, "results of memory of the caller's");
    expect(net_bind_output(model, 0, (void *)(uintptr_t)at[2], 0) == NET_OK, "an output");
    memset(got, 0, sizeof got);
    run(model, got);
    expect(driver.read(got, at[2], sizeof got) == 0 && memcmp(got, wanted, sizeof got) == 0,
           "results in memory of the caller's");
    expect(net_bind_output(model, 0, NULL, 0) == NET_OK && driver.release(at[2]) == 0,
           "a pointer again");
    for (int i = 0; i < 2; i++)
        expect(net_bind_input(model, i, NULL, 0) == NET_OK && driver.release(at[i]) == 0,
               "pointers again");
    run(model, got);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        expect(got[i] == 0, "results of pointers");
    net_close(model);
    expect(driver.pop(&context) == 0 && driver.let(0) == 0, "the context, again");
    puts("right");
    return 0;
}
