/* loader.c - runs an object of the model PLAIN of object_test.py by
 * backends/llvm/loader.c, and prints its output: the same text on every machine. For
 * processors other than the one that tgc runs on. */
#include "backends/llvm/loader.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 4, COLUMNS = 8 };

static uint64_t find(void *user, const char *name)
{
    (void)user;
    if (strcmp(name, "memcpy") == 0)
        return (uint64_t)(uintptr_t)memcpy;
    return strcmp(name, "memset") == 0 ? (uint64_t)(uintptr_t)memset : 0;
}

static void find_function(const struct loaded_code *c, const char *name, void *function)
{
    uintptr_t at = (uintptr_t)code_find(c, name);
    memcpy(function, &at, sizeof at);
}

int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 20];
    static _Alignas(64) unsigned char arena[1 << 16];
    float x[ROWS][COLUMNS], y[ROWS][COLUMNS];
    int (*init)(void **, void *, size_t, const void *), (*run)(void *, const void *, void *);
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    const struct code_object object = {bytes, f ? fread(bytes, 1, sizeof bytes, f) : 0};
    const struct code_outside outside = {find, NULL};
    struct code_error why;
    struct loaded_code *c = code_link(&object, 1, &outside, &why);
    void *model;
    if (!c)
        return fprintf(stderr, "%s\n", why.text), 1;
    find_function(c, "g_init", &init);
    find_function(c, "g_run", &run);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i / COLUMNS][i % COLUMNS] = (float)(i % 7) - 3;
    const void *in[] = {x};
    void *out[] = {y};
    if (init(&model, arena, sizeof arena, NULL) != 0 || run(model, in, out) != 0)
        return fprintf(stderr, "init or run fails\n"), 1;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        printf("%.4f\n", (double)y[i / COLUMNS][i % COLUMNS]);
    code_free(c);
    return 0;
}
