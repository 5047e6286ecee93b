/* filetype.c - says what kind of file each argument is, with the model magika compiled to C.
 *
 * The model reads 2048 numbers: the first and the last 1024 bytes of the file, white space at
 * either end left out, and 256 where the file is too short. It answers with a score for each
 * of its types. What is done around it follows the package's own rules: a file of less than
 * eight bytes is judged without the model, some types stand for others, and a score below a
 * type's threshold makes the answer a plain "txt" or "unknown".
 *
 * types.h is generated from the package's configuration: struct type types[TYPE_COUNT].
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "magika.h"
#include "types.h"

enum { BLOCK = 4096, END = 1024, PADDING = 256, FEW = 8 };

static _Alignas(MAGIKA_ARENA_ALIGN) unsigned char arena[MAGIKA_ARENA_BYTES];

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A strict reading of UTF-8: no overlong forms, no surrogates, nothing cut off. */
static bool is_utf8(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = s[i++];
        size_t more = c < 0x80                ? 0
                      : c >= 0xC2 && c < 0xE0 ? 1
                      : c >= 0xE0 && c < 0xF0 ? 2
                      : c >= 0xF0 && c < 0xF5 ? 3
                                              : 9;
        if (more == 9 || n - i < more)
            return false;
        if ((c == 0xE0 && s[i] < 0xA0) || (c == 0xED && s[i] > 0x9F) ||
            (c == 0xF0 && s[i] < 0x90) || (c == 0xF4 && s[i] > 0x8F))
            return false;
        for (; more > 0; more--)
            if ((s[i++] & 0xC0) != 0x80)
                return false;
    }
    return true;
}

struct answer {
    const char *label, *description;
    float score;
};

static struct answer plain(bool text)
{
    return text ? (struct answer){"txt", TXT_DESCRIPTION, 1}
                : (struct answer){"unknown", UNKNOWN_DESCRIPTION, 1};
}

/* The type with the best score, or the type that it stands for, or none that is certain. */
static struct answer judge(const float *scores)
{
    size_t best = 0;
    for (size_t i = 1; i < TYPE_COUNT; i++)
        if (scores[i] > scores[best])
            best = i;
    const struct type *type = &types[best];
    struct answer answer = {type->label, type->description, scores[best]};
    if (scores[best] < type->threshold) {
        answer = plain(type->is_text);
        answer.score = scores[best];
    }
    return answer;
}

static bool classify(magika *model, FILE *file, struct answer *answer)
{
    unsigned char head[BLOCK], tail[BLOCK];
    if (fseek(file, 0, SEEK_END) != 0)
        return false;
    long end = ftell(file);
    if (end < 0)
        return false;
    size_t size = (size_t)end, n = size < BLOCK ? size : BLOCK;
    if (fseek(file, 0, SEEK_SET) != 0 || fread(head, 1, n, file) != n ||
        fseek(file, (long)(size - n), SEEK_SET) != 0 || fread(tail, 1, n, file) != n)
        return false;
    if (size == 0) {
        *answer = (struct answer){"empty", EMPTY_DESCRIPTION, 1};
        return true;
    }
    size_t first = 0, last = n;
    while (first < n && is_space(head[first]))
        first++;
    while (last > 0 && is_space(tail[last - 1]))
        last--;
    if (n - first < FEW) {
        *answer = plain(is_utf8(head, n));
        return true;
    }
    int32_t bytes[2 * END];
    for (size_t i = 0; i < END; i++) {
        bytes[i] = first + i < n ? head[first + i] : PADDING;
        bytes[2 * END - 1 - i] = i < last ? tail[last - 1 - i] : PADDING;
    }
    float scores[TYPE_COUNT];
    int status = magika_run(model, &(magika_inputs){.bytes = bytes},
                            &(magika_outputs){.target_label = scores});
    if (status != 0) {
        fprintf(stderr, "filetype: %s\n", magika_strerror(status));
        return false;
    }
    *answer = judge(scores);
    return true;
}

int main(int argc, char **argv)
{
    magika *model;
    int status = magika_init(&model, arena, sizeof arena, NULL);
    if (status != 0) {
        fprintf(stderr, "filetype: %s\n", magika_strerror(status));
        return 1;
    }
    int failed = 0;
    printf("%-28s %-12s %6s   %s\n", "FILE", "TYPE", "SCORE", "");
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        struct answer answer;
        if (file && classify(model, file, &answer)) {
            printf("%-28s %-12s %5.1f%%   %s\n", argv[i], answer.label, 100 * (double)answer.score,
                   answer.description);
        } else {
            fprintf(stderr, "filetype: cannot read %s\n", argv[i]);
            failed = 1;
        }
        if (file)
            fclose(file);
    }
    magika_close(model);
    return failed;
}
