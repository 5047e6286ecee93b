/* device.c - the rows of devices.def. */
#include "passes/target/target.h"

#include <string.h>

static const struct device_row rows[] = {
#define DEVICE(name, text, title, ...) {text, title, __VA_ARGS__},
#include "passes/target/devices.def"
#undef DEVICE
};

const struct device_row *device_rows(int *n)
{
    *n = sizeof rows / sizeof *rows;
    return rows;
}

const struct device_row *device_find(const char *text)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].text, text) == 0)
            return &rows[i];
    return NULL;
}

const struct device_row *device_default(const char *target)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].target, target) == 0)
            return &rows[i];
    return NULL;
}

enum device_number {
#define DEVICE(name, ...) DEVICE_##name,
#include "passes/target/devices.def"
#undef DEVICE
};

bool device_matrix(const struct device_row *d, int i, enum matrix_unit *of, double *gflops)
{
    static const struct { enum device_number device; enum matrix_unit of; double gflops; } has[] = {
#define MATRIX_OF(device, row, rate) {DEVICE_##device, MATRIX_##row, rate},
#include "passes/target/matrix.def"
#undef MATRIX_OF
    };
    for (size_t k = 0; k < sizeof has / sizeof *has && d; k++)
        if (&rows[has[k].device] == d && i-- == 0) {
            *of = has[k].of;
            *gflops = has[k].gflops;
            return true;
        }
    return false;
}

bool device_multiplies(const struct device_row *d, enum dtype of)
{
    enum matrix_unit unit;
    double gflops;
    for (int i = 0; device_matrix(d, i, &unit, &gflops); i++)
        if (matrix_row(unit)->dtype[MATRIX_A] == of && matrix_row(unit)->dtype[MATRIX_B] == of)
            return true;
    return false;
}

int device_image_shift(const struct tgc *t, size_t nelem)
{
    enum { LEAST = 6 };                /* 64 pixels of floats are IMAGE_ALIGN bytes */
    const struct device_row *d = t->device;
    const size_t side = d ? (size_t)d->image_side : 0, pixels = nelem / 4 + (nelem % 4 > 0);
    int shift = LEAST;
    while (d && (size_t)1 << shift < (size_t)d->image_pitch)
        shift++;
    while ((size_t)1 << shift <= side && pixels > side << shift)
        shift++;
    return (size_t)1 << shift <= side ? shift : -1;
}

bool device_has_grid(const struct tgc *t) { return t->device && !t->device->is_processor; }
