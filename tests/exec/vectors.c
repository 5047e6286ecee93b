/* vectors.c - the loops around the functions of runtime/ that vectors_test.py calls: it appends one
 * call a function to this text, then main().
 *
 * main() reads what struct input holds and writes, for each function, its name, how many bytes its
 * results have, and these.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* N is a multiple of 64. */
static struct input {
    float x[N], y[N], z[N];
    double d[N], e[N];
    int32_t i[N], j[N];
    uint16_t h[N];
    uint8_t b[4 * N];
} in;

static struct output {
    float f[N];
    double d[N];
    int32_t i[N];
    uint16_t h[N];
    uint8_t b[4 * N];
} out;

static void put(const char *name, const void *data, size_t nbytes)
{
    char head[40] = {0};
    uint64_t size = nbytes;
    snprintf(head, sizeof head, "%s", name);
    memcpy(head + 32, &size, 8);
    fwrite(head, 1, sizeof head, stdout);
    fwrite(data, 1, nbytes, stdout);
    memset(&out, 0, sizeof out);
}

static void read_input(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fread(&in, 1, sizeof in, file) != sizeof in)
        exit(2);
    fclose(file);
}

#define EACH(lanes) for (int k = 0; k + (lanes) <= N; k += (lanes))
