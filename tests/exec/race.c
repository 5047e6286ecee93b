/* race.c - two contexts of one model run at once in two threads: for the thread sanitizer. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "net.h"

enum { BATCH = 4, IN = 8, OUT = 4, RUNS = 200 };
static _Alignas(NET_ARENA_ALIGN) unsigned char arena[2][(NET_ARENA_BYTES + NET_ARENA_ALIGN - 1) /
                                                        NET_ARENA_ALIGN * NET_ARENA_ALIGN];
static float y[2][BATCH * OUT];

static void *work(void *argument)
{
    int k = *(int *)argument;
    float x[BATCH * IN];
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = 0.125f * (float)i;
    net *model = NULL;
    if (net_init(&model, arena[k], sizeof arena[k], NULL) != 0)
        return "init";
    for (int run = 0; run < RUNS; run++)
        if (net_run(model, &(net_inputs){.dim_batch = BATCH, .x = x}, &(net_outputs){.y = y[k]}) !=
            0)
            return "run";
    net_close(model);
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    int number[2] = {0, 1};
    void *failed[2];
    for (int k = 0; k < 2; k++)
        if (pthread_create(&thread[k], NULL, work, &number[k]) != 0)
            return 2;
    for (int k = 0; k < 2; k++)
        pthread_join(thread[k], &failed[k]);
    if (failed[0] || failed[1] || memcmp(y[0], y[1], sizeof y[0]) != 0) {
        printf("the two threads failed or differ\n");
        return 1;
    }
    return 0;
}
