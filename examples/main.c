/* main.c - shows a drawn digit to the network of digits.onnx and prints what it sees. */
#include <stdio.h>

#include "digits.h"

static const char picture[] = ".######."
                              ".....##."
                              "....##.."
                              "...##..."
                              "...##..."
                              "..##...."
                              "..##...."
                              "........";

static _Alignas(DIGITS_ARENA_ALIGN) unsigned char arena[DIGITS_ARENA_BYTES];

int main(void)
{
    float grey[64], p[10];
    for (int i = 0; i < 64; i++)
        grey[i] = picture[i] == '#' ? 1.0f : 0.0f;
    digits *model;
    int status = digits_init(&model, arena, sizeof arena, NULL);
    if (status == DIGITS_OK)
        status = digits_run(model, &(digits_inputs){.picture = grey},
                            &(digits_outputs){.probabilities = p});
    if (status != DIGITS_OK) {
        fprintf(stderr, "digits: %s\n", digits_strerror(status));
        return 1;
    }
    int best = 0;
    for (int digit = 1; digit < 10; digit++)
        if (p[digit] > p[best])
            best = digit;
    printf("a %d, to %.0f%%\n", best, 100 * (double)p[best]);
    digits_close(model);
    return 0;
}
