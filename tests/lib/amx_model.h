/* amx_model.h - AMX's tiles in C, for emitted programs on machines without it: compile with
 * -DTGC_AMX_MODEL='"amx_model.h"'. A program that does what the processor would refuse, or that
 * reads what it has not stored, stops.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model_tile {
    int rows, nbytes;
    _Bool known;                 /* something was stored to it */
    unsigned char byte[16][64];
};
static _Thread_local struct model_tile model_tile[8];
static _Thread_local _Bool model_is_configured;

static void model_stop(const char *why)
{
    fprintf(stderr, "amx model: %s\n", why);
    abort();
}

static inline struct model_tile *model_of(int r)
{
    if (!model_is_configured || r < 0 || r >= 8 || model_tile[r].rows == 0)
        model_stop("a register that is not configured");
    return &model_tile[r];
}

static inline struct model_tile *model_read(int r)
{
    if (!model_of(r)->known)
        model_stop("a register that nothing was stored to");
    return &model_tile[r];
}

static inline void begin_tiles(const unsigned char *shape)
{
    if (model_is_configured)
        model_stop("configured twice");
    memset(model_tile, 0, sizeof model_tile);
    for (int i = 0; i < 8; i++) {
        model_tile[i].rows = shape[2 * i];
        model_tile[i].nbytes = shape[2 * i + 1];
        if (model_tile[i].rows > 16 || model_tile[i].nbytes > 64 ||
            !model_tile[i].rows != !model_tile[i].nbytes)
            model_stop("a tile of more rows or bytes than a register has");
    }
    model_is_configured = 1;
}

static inline void end_tiles(void)
{
    if (!model_is_configured)
        model_stop("released twice");
    model_is_configured = 0;
}

static inline void zero_tile(int to)
{
    memset(model_of(to)->byte, 0, sizeof model_tile[to].byte);
    model_tile[to].known = 1;
}

static inline void load_tile(int to, const void *from, long stride)
{
    struct model_tile *t = model_of(to);
    memset(t->byte, 0, sizeof t->byte);
    for (int i = 0; i < t->rows; i++)
        memcpy(t->byte[i], (const unsigned char *)from + i * stride, (size_t)t->nbytes);
    t->known = 1;
}

static inline void store_tile(int from, void *to, long stride)
{
    const struct model_tile *t = model_read(from);
    for (int i = 0; i < t->rows; i++)
        memcpy((unsigned char *)to + i * stride, t->byte[i], (size_t)t->nbytes);
}

static void model_match(int sum, int a, int b)
{
    const struct model_tile *c = model_read(sum), *x = model_read(a), *y = model_read(b);
    if (sum == a || sum == b || a == b)
        model_stop("one register as two operands");
    if (x->rows != c->rows || y->nbytes != c->nbytes || x->nbytes != 4 * y->rows || c->nbytes % 4)
        model_stop("operands whose shapes do not match");
}

static inline void tile_dot(int sum, int a, int b)
{
    struct model_tile *c = model_read(sum);
    const struct model_tile *x = model_read(a), *y = model_read(b);
    model_match(sum, a, b);
    for (int i = 0; i < c->rows; i++)
        for (int j = 0; j < c->nbytes / 4; j++) {
            int32_t of;
            memcpy(&of, &c->byte[i][4 * j], sizeof of);
            for (int k = 0; k < x->nbytes; k++)
                of = (int32_t)((uint32_t)of + (uint32_t)(x->byte[i][k] *
                                                         (int8_t)y->byte[k / 4][4 * j + k % 4]));
            memcpy(&c->byte[i][4 * j], &of, sizeof of);
        }
}

/* a bf16 as f32, and an f32; a subnormal number is a zero of its sign */
static float model_flush(float v)
{
    return v > -0x1p-126f && v < 0x1p-126f ? v * 0.0f : v;
}

static float model_half(const unsigned char *p)
{
    uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float v;
    memcpy(&v, &bits, sizeof v);
    return model_flush(v);
}

/* The even products and the odd ones are summed apart, then added to the sum. */
static inline void tile_dot_bf16(int sum, int a, int b)
{
    struct model_tile *c = model_read(sum);
    const struct model_tile *x = model_read(a), *y = model_read(b);
    model_match(sum, a, b);
    for (int i = 0; i < c->rows; i++)
        for (int j = 0; j < c->nbytes / 4; j++) {
            float of, part[2] = {0, 0};
            memcpy(&of, &c->byte[i][4 * j], sizeof of);
            for (int k = 0; k < x->nbytes / 4; k++)
                for (int h = 0; h < 2; h++) {
                    /* exact in f64: one rounding */
                    double product = (double)model_half(&x->byte[i][4 * k + 2 * h]) *
                                     (double)model_half(&y->byte[k][4 * j + 2 * h]);
                    part[h] = model_flush((float)(part[h] + product));
                }
            of = model_flush(model_flush(of) + model_flush(part[0] + part[1]));
            memcpy(&c->byte[i][4 * j], &of, sizeof of);
        }
}
