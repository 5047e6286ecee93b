/* driver.c - holds an emitted model to its interface: every misuse is a status, two contexts do not
 * meet. Built with NET and NET_ (upper case) as the model's name; the model is x f32[batch<=4, 8]
 * -> y f32[batch, 4]. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

static int failures, checks;

static void check(int condition, const char *what)
{
    checks++;
    if (!condition) {
        failures++;
        printf("not so: %s\n", what);
    }
}

static int refused(int status)
{
    return status != 0 && net_strerror(status) != NULL && net_strerror(status)[0] != '\0';
}

static void fill(float *x, int n, float from)
{
    for (int i = 0; i < n; i++)
        x[i] = from + 0.125f * (float)i;
}

int main(void)
{
    enum { BATCH = 4, IN = 8, OUT = 4 };
    _Alignas(NET_ARENA_ALIGN) static unsigned char arena[NET_ARENA_BYTES + NET_ARENA_ALIGN],
        second[NET_ARENA_BYTES];
    float x[BATCH * IN], y[BATCH * OUT], again[BATCH * OUT], other[BATCH * OUT];
    net *model = NULL, *twin = NULL;

    check(net_strerror(0) != NULL, "0 has a text");
    check(net_strerror(-12345) != NULL && net_strerror(12345) != NULL,
          "an unknown status has a text");
    check(refused(net_init(NULL, arena, sizeof arena, NULL)), "init without a place for the model");
    check(refused(net_init(&model, NULL, sizeof arena, NULL)), "init without an arena");
    check(refused(net_init(&model, arena, NET_ARENA_BYTES - 1, NULL)), "init with a byte too few");
    check(refused(net_init(&model, arena, 0, NULL)), "init with nothing");
    check(refused(net_init(&model, arena + 4, NET_ARENA_BYTES, NULL)),
          "init with a misaligned arena");
    net_close(NULL);

    check(net_init(&model, arena, NET_ARENA_BYTES, NULL) == 0, "init");
    check(net_init(&twin, second, sizeof second, &(net_options){0}) == 0,
          "init with options that are zero");
    fill(x, BATCH * IN, -1);
    net_inputs in = {.dim_batch = BATCH, .x = x};
    net_outputs out = {.y = y};
    check(net_run(model, &in, &out) == 0, "run");

    check(refused(net_run(NULL, &in, &out)), "run without a model");
    check(refused(net_run(model, NULL, &out)), "run without inputs");
    check(refused(net_run(model, &in, NULL)), "run without outputs");
    check(refused(net_run(model, &(net_inputs){.dim_batch = BATCH}, &out)),
          "run with an input that is NULL");
    check(refused(net_run(model, &in, &(net_outputs){0})), "run with an output that is NULL");
    check(refused(net_run(model, &(net_inputs){.dim_batch = BATCH + 1, .x = x}, &out)),
          "a batch beyond its bound");
    check(refused(net_run(model, &(net_inputs){.dim_batch = -1, .x = x}, &out)),
          "a negative batch");
    check(refused(net_run(model, &(net_inputs){.dim_batch = INT64_MAX, .x = x}, &out)),
          "a batch of 2^63 - 1");

    /* A smaller batch gives the same rows and touches nothing beyond them. */
    memset(again, 0x7f, sizeof again);
    in.dim_batch = 2;
    check(net_run(model, &in, &(net_outputs){.y = again}) == 0, "run with a smaller batch");
    check(memcmp(y, again, 2 * OUT * sizeof *y) == 0, "a smaller batch gives the same rows");
    for (int i = 2 * OUT; i < BATCH * OUT; i++)
        check(memcmp(&again[i], "\x7f\x7f\x7f\x7f", 4) == 0, "nothing is written beyond the batch");
    in.dim_batch = BATCH;

    /* Two contexts, runs interleaved; then the same run once more gives the same bytes. */
    float x2[BATCH * IN];
    fill(x2, BATCH * IN, 3);
    check(net_run(twin, &(net_inputs){.dim_batch = BATCH, .x = x2}, &(net_outputs){.y = other}) ==
              0,
          "run of the twin");
    check(memcmp(y, other, sizeof y) != 0, "another input gives another output");
    check(net_run(model, &in, &(net_outputs){.y = again}) == 0 && memcmp(y, again, sizeof y) == 0,
          "the same run again");

    const struct net_info *info = net_describe();
    check(info != NULL && info->input_count == 1 && info->output_count == 1,
          "describe counts inputs and outputs");
    check(strcmp(info->inputs[0].name, "x") == 0 && strcmp(info->inputs[0].dtype, "f32") == 0,
          "describe names the input");
    check(info->inputs[0].rank == 2 && info->inputs[0].dim[1].size == IN,
          "describe gives its shape");
    check(info->arena_bytes == NET_ARENA_BYTES, "describe gives the arena");
    net_close(model);
    net_close(twin);
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
