/* sample.c - writes text by a trained GPT: each letter is drawn by the scores of the last place.
 *
 *      ./sample 200 "The "         so many letters after these, of one byte each
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"
#include "letters.h"

static _Alignas(GPT_ARENA_ALIGN) unsigned char arena[GPT_ARENA_BYTES];
static int64_t window[CONTEXT];
static float scores[CONTEXT * LETTERS];

static int number_of(int code)
{
    for (int i = 0; i < LETTERS; i++)
        if (letters[i] == code)
            return i;
    return 0;
}

static void put(int code)
{
    if (code < 0x80)
        putchar(code);
    else if (code < 0x800)
        printf("%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
    else
        printf("%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
}

/* A letter by exp(score), less likely ones more rarely still. */
static int draw(const float *score)
{
    double sum = 0, part[LETTERS], at;
    for (int i = 0; i < LETTERS; i++)
        sum += part[i] = exp(score[i] / 0.8);
    at = rand() / (RAND_MAX + 1.0) * sum;
    for (int i = 0; i < LETTERS; i++)
        if ((at -= part[i]) < 0)
            return i;
    return LETTERS - 1;
}

int main(int argc, char **argv)
{
    const char *begin = argc > 2 ? argv[2] : "\n";
    int count = argc > 1 ? atoi(argv[1]) : 200, length = 0;
    gpt *model;
    int status = gpt_init(&model, arena, sizeof arena, NULL);
    for (const char *c = begin; *c && length < CONTEXT; c++) {
        put((unsigned char)*c);
        window[length++] = number_of((unsigned char)*c);
    }
    for (int i = 0; i < count && status == GPT_OK; i++) {
        status = gpt_run(model, &(gpt_inputs){.x = window}, &(gpt_outputs){.scores = scores});
        int next = draw(scores + (length - 1) * LETTERS);
        put(letters[next]);
        if (length == CONTEXT)
            memmove(window, window + 1, sizeof window - sizeof *window);
        else
            length++;
        window[length - 1] = next;
    }
    putchar('\n');
    if (status != GPT_OK)
        fprintf(stderr, "gpt: %s\n", gpt_strerror(status));
    return status != GPT_OK;
}
