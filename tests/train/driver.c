/* driver.c - a program that trains net.c on x.bin and target.bin: driver MODE STEPS THREADS.
 *
 *      train    net_train()
 *      apart    net_gradients(), net_update()
 *      parts    the same of all batches that the files hold, each of which weighs as much
 *      resume   as train, but half of the way all that is kept is the blocks
 *      draw     no step: the parameters of seed STEPS
 *
 * Prints the loss of each step, exactly, that of net_evaluate() and what it finds right; writes
 * params.bin, and to y.bin what net_run() computes then.
 */
#include "net.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RATE_OF_TEN_THOUSAND = RATE, RUNS = RUNS_OF_A_STEP };

static alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];
static alignas(NET_PARAMS_ALIGN) unsigned char params[NET_PARAMS_BYTES];
static alignas(NET_GRADIENTS_ALIGN) unsigned char gradients[NET_GRADIENTS_BYTES];
static alignas(NET_OPTIMIZER_ALIGN) unsigned char optimizer[NET_OPTIMIZER_BYTES];
static unsigned char kept[3][NET_PARAMS_BYTES + NET_GRADIENTS_BYTES + NET_OPTIMIZER_BYTES];
static float x[RUNS * BATCH * ROW], weight[BATCH], y[BATCH * COLUMNS];
static TARGET target[RUNS * BATCH * TARGETS];
#ifdef NET_WEIGHTS_BYTES
static alignas(64) unsigned char weights[NET_WEIGHTS_BYTES];
#endif

static void check(int status, const char *what)
{
    if (status == NET_OK)
        return;
    printf("%s: %s\n", what, net_strerror(status));
    exit(1);
}

static void read_file(const char *name, void *to, size_t nbytes)
{
    FILE *f = fopen(name, "rb");
    if (!f || fread(to, 1, nbytes, f) != nbytes)
        exit(2);
    fclose(f);
}

static void write_file(const char *name, const void *from, size_t nbytes)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(from, 1, nbytes, f) != nbytes || fclose(f) != 0)
        exit(2);
}

static net *open_net(const net_options *o)
{
    net *model;
    check(net_init(&model, arena, sizeof arena, o), "net_init");
    return model;
}

/* The blocks are as the runs left them; runs begin with the blocks. */
static void fetch_blocks(net *model)
{
#ifdef NET_DEVICE_BYTES
    check(net_download(model), "net_download");
#else
    (void)model;
#endif
}

static void hand_blocks(net *model)
{
#ifdef NET_DEVICE_BYTES
    check(net_upload(model), "net_upload");
#else
    (void)model;
#endif
}

/* Leaves nothing behind but the blocks. */
static net *begin_again(net *model, const net_options *o)
{
    unsigned char *const block[] = {params, gradients, optimizer};
    const size_t nbytes[] = {sizeof params, sizeof gradients, sizeof optimizer};
    fetch_blocks(model);
    net_close(model);
    for (int i = 0; i < 3; i++) {
        memcpy(kept[i], block[i], nbytes[i]);
        memset(block[i], 0xa5, nbytes[i]);
    }
    memset(arena, 0xa5, sizeof arena);
    model = open_net(o);
    for (int i = 0; i < 3; i++)
        memcpy(block[i], kept[i], nbytes[i]);
    hand_blocks(model);
    return model;
}

static float step(net *model, net_train_inputs *in, const char *mode)
{
    float loss = 0, all = 0;
    if (strcmp(mode, "train") == 0 || strcmp(mode, "resume") == 0) {
        check(net_train(model, in, target, &all), "net_train");
        return all;
    }
    for (int r = 0; r < RUNS; r++) {
        in->data.x = x + r * BATCH * ROW;
        check(net_gradients(model, in, target + r * BATCH * TARGETS, &loss), "net_gradients");
        all += loss;
    }
    check(net_update(model, in), "net_update");
    return all;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "train";
    const int steps = argc > 2 ? atoi(argv[2]) : 1;
    net_options options;
    memset(&options, 0, sizeof options);
    options.threads = argc > 3 ? atoi(argv[3]) : 0;
    options.params = params, options.gradients = gradients, options.optimizer = optimizer;
#ifdef NET_WEIGHTS_BYTES
    read_file("net.weights", weights, sizeof weights);
    options.weights = weights, options.weights_bytes = sizeof weights;
#endif
    net_train_inputs in;
    memset(&in, 0, sizeof in);
    read_file("x.bin", x, sizeof x);
    read_file("target.bin", target, sizeof target);
    for (int i = 0; i < BATCH; i++)
        weight[i] = 1.0f / (RUNS * BATCH);
    in.data.x = x;
    in.learning_rate = (float)RATE_OF_TEN_THOUSAND / 10000;
    in.weight_decay = NET_WEIGHT_DECAY;
    in.sample_weight = RUNS > 1 ? weight : NULL;
    net *model = open_net(&options);
    check(net_params_init(model, strcmp(mode, "draw") ? 0 : (uint64_t)steps), "net_params_init");
    for (int k = 0; k < steps && strcmp(mode, "draw") != 0; k++) {
        if (k == steps / 2 && strcmp(mode, "resume") == 0)
            model = begin_again(model, &options);
        in.step = k + 1;
        printf("%a\n", (double)step(model, &in, mode));
    }
    float loss, correct;
    net_outputs out = {y};
    in.data.x = x, in.sample_weight = NULL;
    check(net_evaluate(model, &in, target, &loss, &correct), "net_evaluate");
    check(net_run(model, &in.data, &out), "net_run");
    printf("evaluate %a %a\n", (double)loss, (double)correct);
    write_file("y.bin", y, sizeof y);
    fetch_blocks(model);
    write_file("params.bin", params, sizeof params);
    net_close(model);
    return 0;
}
