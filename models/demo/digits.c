/* digits.c - shows pictures of digits, covered with noise, to the network of models/digits.tg.
 *
 * The pictures are drawn here; the noise comes from a small generator with a fixed seed, so
 * that everybody sees the same.
 */
#include <stdint.h>
#include <stdio.h>

#include "digits.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, TOGETHER = 5 };

static const char *const glyphs[10][SIDE] = {
    {".####...", "##..##..", "##..##..", "##..##..", "##..##..", "##..##..", ".####...",
     "........"},
    {"...##...", "..###...", "...##...", "...##...", "...##...", "...##...", ".######.",
     "........"},
    {".####...", "##..##..", "....##..", "...##...", "..##....", ".##.....", "######..",
     "........"},
    {".####...", "##..##..", "....##..", "..###...", "....##..", "##..##..", ".####...",
     "........"},
    {"....##..", "...###..", "..####..", ".##.##..", ".######.", "....##..", "....##..",
     "........"},
    {".######.", ".##.....", ".#####..", ".....##.", ".....##.", ".##..##.", "..####..",
     "........"},
    {"..####..", ".##.....", ".##.....", ".#####..", ".##..##.", ".##..##.", "..####..",
     "........"},
    {".######.", ".....##.", "....##..", "...##...", "...##...", "..##....", "..##....",
     "........"},
    {".####...", "##..##..", "##..##..", ".####...", "##..##..", "##..##..", ".####...",
     "........"},
    {".####...", "##..##..", "##..##..", ".#####..", "....##..", "....##..", ".###....",
     "........"},
};

static _Alignas(DIGITS_ARENA_ALIGN) unsigned char arena[DIGITS_ARENA_BYTES];

/* A number from 0 to 1. */
static float draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 24);
}

static void make_picture(int digit, uint32_t *seed, float picture[PIXELS])
{
    for (int i = 0; i < PIXELS; i++) {
        float ink = glyphs[digit][i / SIDE][i % SIDE] == '#' ? 0.85f : 0.1f;
        float value = ink + 0.5f * (draw(seed) - 0.5f);
        picture[i] = value < 0 ? 0 : value > 1 ? 1 : value;
    }
}

static void print_row(float pictures[TOGETHER][PIXELS], int y)
{
    for (int k = 0; k < TOGETHER; k++) {
        printf("   ");
        for (int x = 0; x < SIDE; x++) {
            char shade = " .:*#"[(int)(pictures[k][y * SIDE + x] * 4.99f)];
            printf("%c%c", shade, shade);
        }
    }
    printf("\n");
}

int main(void)
{
    digits *model;
    int status = digits_init(&model, arena, sizeof arena, NULL);
    uint32_t seed = 7;
    int right = 0;
    for (int first = 0; first < 10 && status == 0; first += TOGETHER) {
        float pictures[TOGETHER][PIXELS], p[TOGETHER][10];
        for (int k = 0; k < TOGETHER && status == 0; k++) {
            make_picture(first + k, &seed, pictures[k]);
            status = digits_run(model, &(digits_inputs){.picture = pictures[k]},
                                &(digits_outputs){.probabilities = p[k]});
        }
        if (status != 0)
            break;
        for (int y = 0; y < SIDE; y++)
            print_row(pictures, y);
        for (int k = 0; k < TOGETHER; k++) {
            int best = 0;
            for (int d = 1; d < 10; d++)
                if (p[k][d] > p[k][best])
                    best = d;
            printf("   a %d, to %5.1f%%   ", best, 100 * (double)p[k][best]);
            right += best == first + k;
        }
        printf("\n\n");
    }
    if (status != 0) {
        fprintf(stderr, "digits: %s\n", digits_strerror(status));
        return 1;
    }
    printf("   %d of 10 are right\n", right);
    digits_close(model);
    return 0;
}
