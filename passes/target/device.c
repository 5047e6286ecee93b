/* device.c - the rows of devices.def. */
#include "passes/target/cost.h"
#include "ir/device_ops.h"

#include <string.h>

static const struct device_row rows[] = {
#define DEVICE(name, text, title, ...) {text, title, __VA_ARGS__},
#include "passes/target/devices.def"
#undef DEVICE
};
enum { NROW = sizeof rows / sizeof *rows };

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

static const struct { enum device_number device; enum matrix_unit of; double gflops; } has[] = {
#define MATRIX_OF(device, row, rate) {DEVICE_##device, MATRIX_##row, rate},
#include "passes/target/matrix.def"
#undef MATRIX_OF
};
enum { NHAS = sizeof has / sizeof *has };

static bool device_has(const struct device_row *d, enum matrix_unit of)
{
    for (int k = 0; k < NHAS; k++)
        if (&rows[has[k].device] == d && has[k].of == of)
            return true;
    return false;
}

/* The next row of those that the kernels are compiled for, from *s on; NULL: there are no more. */
static const struct device_row *next_row(const char **s)
{
    while (*s && **s) {
        const char *at = *s;
        size_t n = strcspn(at, ",");
        *s += n + (at[n] == ',');
        for (int i = 0; i < NROW; i++)
            if (strncmp(rows[i].text, at, n) == 0 && !rows[i].text[n])
                return &rows[i];
    }
    return NULL;
}

/* Whether all architectures that the kernels are compiled for have it. */
static bool all_have(const struct tgc *t, enum matrix_unit of)
{
    const char *s = t->architectures;
    for (const struct device_row *d; (d = next_row(&s));)
        if (!device_has(d, of))
            return false;
    return true;
}

static int by_rows(const struct device_row *d) { return d->by_rows; }
static int copied(const struct device_row *d) { return d->async; }
static int stored(const struct device_row *d) { return d->store; }
static int copies_boxes(const struct device_row *d) { return d->bulk; }
static int cluster(const struct device_row *d) { return d->cluster; }

/* The least value of a column over the device and all further architectures; 0: there is no
 * device. */
static int least_of(const struct tgc *t, int (*column)(const struct device_row *))
{
    const char *s = t->architectures;
    int n = t->device ? column(t->device) : 0;
    for (const struct device_row *d; (d = next_row(&s));)
        n = column(d) < n ? column(d) : n;
    return n;
}

bool device_loads_rows(const struct tgc *t) { return least_of(t, by_rows) > 0; }
bool device_copies(const struct tgc *t, int64_t nbytes)
{
    return t->device && least_of(t, copied) >= nbytes;
}
bool device_stores(const struct tgc *t, int64_t nbytes)
{
    return t->device && least_of(t, stored) >= nbytes;
}
bool device_copies_boxes(const struct tgc *t)
{
    return least_of(t, copies_boxes) > 0 && !t->by_llvm;
}
int device_cluster(const struct tgc *t)
{
    return device_copies_boxes(t) ? least_of(t, cluster) : 0;
}

static int tickets(const struct device_row *d) { return d->tickets; }
bool device_has_tickets(const struct tgc *t) { return least_of(t, tickets) > 0 && !t->by_llvm; }

static int role_waves(const struct device_row *d) { return d->role_waves; }

int device_role_registers(const struct tgc *t, int64_t consumers, int64_t producers,
                          enum thread_role role)
{
    /* a thread that issues boxes needs few registers */
    enum { REGISTERS_OF_PRODUCER = 40, REGISTERS_OF_THREAD = 255 };
    const int64_t waves = least_of(t, role_waves), threads = consumers + producers,
                  step = ROLE_REGISTERS_STEP;
    if (waves == 0 || consumers % (waves * t->device->wave) ||
        producers % (waves * t->device->wave))
        return 0;
    int64_t file = (int64_t)t->device->registers * t->device->group,
            begin = file / threads < REGISTERS_OF_THREAD ? file / threads / step * step
                                                         : REGISTERS_OF_THREAD / step * step,
            rest = (begin * threads - REGISTERS_OF_PRODUCER * producers) / consumers / step * step;
    rest = rest < REGISTERS_OF_THREAD ? rest : REGISTERS_OF_THREAD / step * step;
    return rest <= begin ? 0 : role == ROLE_CONSUMERS ? (int)rest : REGISTERS_OF_PRODUCER;
}

/* Instructions that LLVM's PTX lacks: its versions have none of sm_90a's, nor, before PTX 8.4,
 * those of 8-bit floats. */
static bool is_beyond_llvm(const struct matrix_row *r)
{
    return matrix_in_shared(r, MATRIX_B) || dtype_is_f8(r->dtype[MATRIX_A]);
}

bool device_matrix(const struct tgc *t, int i, enum matrix_unit *of, double *gflops)
{
    for (int k = 0; k < NHAS && t->device; k++)
        if (&rows[has[k].device] == t->device && all_have(t, has[k].of) &&
            !(t->by_llvm && is_beyond_llvm(matrix_row(has[k].of))) && i-- == 0) {
            *of = has[k].of;
            *gflops = has[k].gflops;
            return true;
        }
    return false;
}

bool device_multiplies_both(const struct tgc *t, enum dtype a, enum dtype b)
{
    enum matrix_unit unit;
    double gflops;
    for (int i = 0; device_matrix(t, i, &unit, &gflops); i++) {
        const enum dtype *of = matrix_row(unit)->dtype;
        if ((of[MATRIX_A] == a && of[MATRIX_B] == b) || (of[MATRIX_A] == b && of[MATRIX_B] == a))
            return true;
    }
    return false;
}

bool device_multiplies(const struct tgc *t, enum dtype of)
{
    return device_multiplies_both(t, of, of);
}

bool device_multiplies_apart(const struct device_row *d)
{
    for (int k = 0; k < NHAS; k++)
        if (&rows[has[k].device] == d && has[k].gflops > d->gflops)
            return true;
    return false;
}

int64_t device_registers(const struct device_row *d, int64_t threads)
{
    int64_t most = d->own_registers ? d->own_registers : d->registers,
            own = (int64_t)d->registers * d->group / threads;
    return own < d->registers ? d->registers : own < most ? own : most;
}

double device_cache_gbytes(const struct device_row *d)
{
    return d->cache_gbytes > 0 ? d->cache_gbytes : d->gbytes * RATIO_GRID_CACHE;
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

int64_t device_local_nbytes(const struct tgc *t)
{
    enum { LEAST = 32 << 10 };
    int64_t least = t->device ? t->device->local_nbytes : LEAST;
    for (const char *s = t->device ? t->architectures : NULL; s && *s;) {
        size_t n = strcspn(s, ",");
        for (int i = 0; i < NROW; i++)
            if (strncmp(rows[i].text, s, n) == 0 && !rows[i].text[n] &&
                rows[i].local_nbytes < least)
                least = rows[i].local_nbytes;
        s += n + (s[n] == ',');
    }
    return least;
}

int device_operands(const struct tgc *t)
{
    enum { BESIDE = 8 };               /* leaves an eighth of the bytes to other arguments */
    const struct device_row *d = t->device;
    return d && d->parameter_nbytes
               ? (d->parameter_nbytes - d->parameter_nbytes / BESIDE) / d->tensor_nbytes
               : INT32_MAX;
}

bool device_has_grid(const struct tgc *t) { return t->device && !t->device->is_processor; }
