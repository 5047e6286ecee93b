/* learn.c - an autoencoder that learns pictures where it runs: no files, no heap, no sample kept.
 * Each of 12 epochs shows 300 pictures, 10 of which make a step. */
#include "coder.h"
#include "digits.h"

#include <stdalign.h>
#include <stdio.h>

enum { EPOCHS = 12, RUNS = 10 };

static alignas(CODER_ARENA_ALIGN) unsigned char arena[CODER_ARENA_BYTES];
static alignas(CODER_PARAMS_ALIGN) unsigned char params[CODER_PARAMS_BYTES];
static alignas(CODER_GRADIENTS_ALIGN) unsigned char gradients[CODER_GRADIENTS_BYTES];
static alignas(CODER_OPTIMIZER_ALIGN) unsigned char optimizer[CODER_OPTIMIZER_BYTES];
static float x[64], again[64];

static void show(int number)
{
    for (int i = 0; i < 64; i++)
        x[i] = (float)picture[number][i] / 255;
}

/* The mean distance of a picture that it never saw from what comes back, in thousandths. */
static int measure(coder *model)
{
    float sum = 0;
    for (int k = LEARNED; k < LEARNED + NEW; k++) {
        float loss = 0;
        coder_inputs in = {.picture = x};
        coder_outputs out = {.again = again, .loss = &loss};
        show(k);
        if (coder_run(model, &in, &out) != CODER_OK)
            return -1;
        sum += loss;
    }
    return (int)(1000 * sum / NEW + 0.5f);
}

int main(void)
{
    coder_options options = {.params = params, .gradients = gradients, .optimizer = optimizer};
    coder_train_inputs in = {.data = {.picture = x}, .learning_rate = 0.005f};
    coder *model;
    int status = coder_init(&model, arena, sizeof arena, &options);
    if (status == CODER_OK)
        status = coder_params_init(model, 0);
    printf("memory: %d KB\n", (int)((sizeof arena + sizeof params + sizeof gradients +
                                     sizeof optimizer + CODER_STACK_BYTES + 1023) / 1024));
    printf("before: 0.%03d\n", measure(model));
    for (int epoch = 1; epoch <= EPOCHS && status == CODER_OK; epoch++) {
        for (int k = 0; k < LEARNED && status == CODER_OK; k++) {
            float loss;
            show(k);
            status = coder_gradients(model, &in, NULL, &loss);
            if (status == CODER_OK && k % RUNS == RUNS - 1) {
                in.step++;
                status = coder_update(model, &in);
            }
        }
    }
    printf("after: 0.%03d, %s\n", measure(model), coder_strerror(status));
    coder_close(model);
    return status;
}
