/* cross.c - runs a model on inputs that are the same on every machine, and prints its outputs;
 * float tensors alone. MODEL_H names the header, MODEL the C prefix. */
#include MODEL_H

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define FUNCTION(suffix) NAME(MODEL, suffix)

static alignas(64) unsigned char arena[ARENA_BYTES];

static size_t count_of(const struct FUNCTION(_tensor) *x)
{
    size_t n = 1;
    for (int i = 0; i < x->rank; i++)
        n *= (size_t)x->dim[i].size;
    return n;
}

/* Pointers lie in the structs where describe() says. */
static float *place(const struct FUNCTION(_tensor) *x, void *fields)
{
    float *data = calloc(count_of(x), sizeof *data);
    memcpy((char *)fields + x->offset, &data, sizeof data);
    return data;
}

int main(void)
{
    const struct FUNCTION(_info) *info = FUNCTION(_describe)();
    FUNCTION(_inputs) in;
    FUNCTION(_outputs) out;
    MODEL *model;
    for (int k = 0; k < info->symbol_count; k++)
        if (info->symbols[k].offset != (size_t)-1)
            memcpy((char *)&in + info->symbols[k].offset, &info->symbols[k].max, sizeof(int64_t));
    for (int k = 0; k < info->input_count; k++) {
        float *x = place(&info->inputs[k], &in);
        for (size_t i = 0; i < count_of(&info->inputs[k]); i++)
            x[i] = (float)((int)(i * 37 % 101) - 50) / 50;
    }
    float *y[8];
    for (int k = 0; k < info->output_count; k++)
        y[k] = place(&info->outputs[k], &out);
    if (FUNCTION(_init)(&model, arena, sizeof arena, NULL) || FUNCTION(_run)(model, &in, &out))
        return 1;
    for (int k = 0; k < info->output_count; k++)
        for (size_t i = 0; i < count_of(&info->outputs[k]); i++)
            printf("%.9g\n", (double)y[k][i]);
    FUNCTION(_close)(model);
    return 0;
}
